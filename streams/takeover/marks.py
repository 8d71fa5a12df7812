"""Marks: where a stopped application stands, so that what it does from there on can be repeated.

A mark has the committed offsets with their metadata, the ends of all topics of the application, a digest of each
changelog up to there, and the records of internal topics that were not processed yet.  It has no state: that is read
from the changelogs again, up to the marked ends, and the digest tells whether compaction has changed it meanwhile.
"""

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import InputError
from streams.protocol.group_messages import OffsetAndMetadata
from streams.takeover.facts import Facts

_VERSION = 1


@frozen
class PositionMark:
    """Where a stopped application stands."""

    application_id: str
    committed: Mapping[TopicPartition, OffsetAndMetadata] = field(factory=dict)
    #: Ends of inputs, changelogs and outputs.
    ends: Mapping[TopicPartition, int] = field(factory=dict)
    #: Digests of the live entries of changelogs.
    digests: Mapping[TopicPartition, str] = field(factory=dict)
    #: Records of internal topics between their committed offset and their end.
    pending: Mapping[TopicPartition, Block] = field(factory=dict)

    def write(self, path: Path) -> None:
        """Write the mark to a file.

        Raises:
            OSError: the file cannot be written.
        """
        row = {
            "version": _VERSION,
            "application_id": self.application_id,
            "committed": [[*at, item.offset, item.metadata] for at, item in self.committed.items()],
            "ends": [[*at, end] for at, end in self.ends.items()],
            "digests": [[*at, digest] for at, digest in self.digests.items()],
            "pending": [[*at, _rows(block)] for at, block in self.pending.items()],
        }
        path.write_text(f"{json.dumps(row, indent=1)}\n")

    @classmethod
    def read(cls, path: Path) -> "PositionMark":
        """Read a mark from a file.

        Raises:
            InputError: the file cannot be read, or is no mark.
        """
        try:
            row = json.loads(path.read_text())
            if row["version"] != _VERSION:
                raise InputError(f"{path}: is a mark of version {row['version']}, not {_VERSION}; make one again")
            return cls(
                row["application_id"],
                {TopicPartition(t, n): OffsetAndMetadata(offset, text) for t, n, offset, text in row["committed"]},
                {TopicPartition(t, n): end for t, n, end in row["ends"]},
                {TopicPartition(t, n): digest for t, n, digest in row["digests"]},
                {TopicPartition(t, n): _block(rows) for t, n, rows in row["pending"]},
            )
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: is no mark; `streams takeover --mark FILE` makes one") from error

    def check(self, facts: Facts) -> None:
        """Check that the mark is of this application, and that nothing was set back since.

        Raises:
            InputError: it is not.
        """
        if self.application_id != facts.application_id:
            raise InputError(f"the mark is of application {self.application_id!r}, not {facts.application_id!r}")
        for at, was in self.committed.items():
            now = facts.committed.get(at)
            if now is None or now.offset < was.offset:
                raise InputError(
                    f"the mark is at offset {was.offset} of {at}, and the application now at "
                    f"{'none' if now is None else now.offset}: it was reset since; make a mark again"
                )


def live_entries(blocks: Iterable[Block], *, has_versions: bool) -> Block:
    """Return the records of a changelog that count: the last one of each key, or all if each is a version."""
    rows: dict[object, tuple[Any, ...]] = {}
    for block in blocks:
        for offset, key, value, time_ms, headers in block.rows():
            if has_versions:
                rows[offset] = (key, value, time_ms, headers)
            else:
                # A later record takes the last place.
                rows.pop(key, None)
                if value is not None:
                    rows[key] = (key, value, time_ms, headers)
    return block_of(list(rows.values()))


def block_of(rows: list[tuple[Any, ...]]) -> Block:
    """Return a block of records, each (key, value, timestamp_ms, headers)."""
    keys, values, times, headers = ([row[index] for row in rows] for index in range(4))
    return Block(keys, values, times, headers if any(headers) else None, range(len(rows)))


def digest(block: Block) -> str:
    """Return a digest of records that does not depend on their order."""
    total = 0
    for _, key, value, time_ms, _ in block.rows():
        data = repr((key, value, time_ms)).encode()
        total += int.from_bytes(hashlib.blake2b(data, digest_size=16).digest(), "big")
    return f"{len(block)}:{total % (1 << 128):032x}"


def _rows(block: Block) -> list[list[Any]]:
    return [
        [_text(key), _text(value), time_ms, [[name, _text(content)] for name, content in headers]]
        for _, key, value, time_ms, headers in block.rows()
    ]


def _block(rows: list[list[Any]]) -> Block:
    return block_of(
        [
            (_bytes(key), _bytes(value), time_ms, tuple((name, _bytes(content)) for name, content in headers))
            for key, value, time_ms, headers in rows
        ]
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
