"""The first seed that finds each deliberate bug, and the table of them in the guide.

``python -m tests.testing.simulation.first_seeds [NAME ...] [--write]`` runs the seeds from 0 until a bug is found, and
compares the seed with that of ``mutations.FOUND``; with ``--write`` it corrects ``FOUND`` and the guide.  Run it when
the simulator or what it simulates has changed: a bug that is found later than before, or no more, is a regression.
"""

import importlib
import re
import sys
from pathlib import Path

from streams.testing import SimulationError
from tests.testing.simulation import mutations
from tests.testing.simulation.worlds import storm

_ROOT = Path(__file__).parents[3]
GUIDE = _ROOT / "docs" / "guide" / "rules-simulation.md"
#: Worlds in which a bug must be found.
_ENOUGH = 200
_DEFAULT = ("word count", "exactly_once_v2")


def first_seed(name: str, seeds: range) -> int | None:
    """Return the first seed that finds a bug in the world and with the guarantee of ``FOUND``."""
    world, guarantee, _ = mutations.FOUND[name]
    with mutations.ALL[name]():
        try:
            storm(world, seeds, guarantee)
        except SimulationError as error:
            return error.seed
    return None


def table() -> list[str]:
    """Return the rows of the guide's table."""
    rows = []
    for name, (world, guarantee, seed) in mutations.FOUND.items():
        others = [world] if world != _DEFAULT[0] else []
        others += [f"`{guarantee}`"] if guarantee != _DEFAULT[1] else []
        text = (mutations.ALL[name].__doc__ or "").rstrip(".")
        where = f" ({', '.join(others)})" if others else ""
        rows.append(f"| {text[0].lower()}{text[1:]}{where} | {seed} |")
    return rows


def _write(found: dict[str, int]) -> None:
    source = Path(mutations.__file__)
    text = source.read_text()
    for name, seed in found.items():
        world, guarantee, _ = mutations.FOUND[name]
        text = re.sub(rf'(    "{name}": \(.*, )-?\d+\)', rf"\g<1>{seed})", text)
        mutations.FOUND[name] = (world, guarantee, seed)
    source.write_text(text)
    rows = "".join(f"{row}\n" for row in table())
    GUIDE.write_text(re.sub(r"(?:^\| .+ \| \d+ \|\n)+", lambda _: rows, GUIDE.read_text(), flags=re.MULTILINE))


def main(arguments: list[str]) -> int:
    """Print bug, known seed and first seed for each; return 1 if one differs and is not written."""
    # Which faults are needed is of no interest here, and takes up to forty more worlds.
    importlib.import_module("streams.testing.simulation.simulate")._SHRINK_RUNS = 0
    writes = "--write" in arguments
    names = [name for name in arguments if name != "--write"] or list(mutations.FOUND)
    found: dict[str, int] = {}
    is_same = True
    for name in names:
        world, guarantee, known = mutations.FOUND[name]
        first = first_seed(name, range(_ENOUGH))
        is_same &= first == known
        print(f"{name}, {world}, {guarantee}: known {known}, first {first}", flush=True)
        if first is not None and first >= 0:
            found[name] = first
    if writes:
        _write(found)
    return 0 if is_same or (writes and len(found) == len(names)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
