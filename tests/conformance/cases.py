"""Files of cases: reading them, choosing among them, and judging one.

A line stays text until a worker takes it; only name and features are looked at here.
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

from streams.core.blocks.partitioning import murmur2, partition_for
from tests.conformance.compare import difference
from tests.conformance.play import play

_VECTORS = (".vectors.jsonl", ".vectors.jsonl.gz")


class UnreadableError(Exception):
    """A file that cannot be read, or has a line that is no case."""


@frozen
class Case:
    """One line of a file."""

    name: str
    features: frozenset[str]
    line: str
    is_vector: bool

    def is_wanted(self, prefix: str, feature: str | None) -> bool:
        """Say whether the selection of the command line takes it."""
        return self.name.startswith(prefix) and (feature is None or feature in self.features)


def read_cases(path: Path) -> list[Case]:
    """Return all cases of a file, in order.

    Raises:
        UnreadableError: the file cannot be read, or a line is no case.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        lines = data.decode().split("\n")
    except (OSError, EOFError, ValueError) as error:
        raise UnreadableError(f"{path}: {error}") from error
    is_vectors = path.name.endswith(_VECTORS)
    return list(_parsed(path, lines, is_vectors))


def _parsed(path: Path, lines: Iterable[str], is_vectors: bool) -> Iterator[Case]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            case = json.loads(line)
            if is_vectors:
                yield Case(f"murmur2:{case['key_hex']}", frozenset(), line, True)
            else:
                yield Case(str(case["name"]), frozenset(case.get("features", ())), line, False)
        except (ValueError, TypeError, KeyError) as error:
            raise UnreadableError(f"{path}:{number}: not a case: {type(error).__name__}: {error}") from error


def judge(line: str, is_vector: bool) -> str | None:
    """Run a case; return why it failed on one line, None if it did not."""
    try:
        case = json.loads(line)
        found = _vector_difference(case) if is_vector else difference(case, play(case))
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    return None if found is None else " ".join(found.split())


def _vector_difference(vector: dict[str, Any]) -> str | None:
    key = bytes.fromhex(vector["key_hex"])
    if murmur2(key) != vector["murmur2"]:
        return f"expected murmur2 {vector['murmur2']}, got {murmur2(key)}"
    for count, partition in vector["partition"].items():
        if (given := partition_for(key, int(count))) != partition:
            return f"expected partition {partition} of {count}, got {given}"
    return None
