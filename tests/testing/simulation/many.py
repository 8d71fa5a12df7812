"""Many seeds of the worlds, one after another, with the number that passed.

``python -m tests.testing.simulation.many [WORLD ...] [--first N] [--seeds N] [--guarantee NAME]`` runs all worlds if
none is named, and prints the faults of each two hundred seeds.  It continues with the seed after one that failed, and
returns 1 if one has.
"""

import argparse
import sys

from streams.testing import SimulationError
from tests.testing.simulation.worlds import WORLDS, storm

#: Seeds of one simulation: so many that each fault and feature must have occurred.
_CHUNK = 200


def run(world: str, first: int, count: int, guarantee: str) -> tuple[int, list[int]]:
    """Return the number of seeds of a world that passed, and the seeds that failed."""
    passed, failed, end = 0, list[int](), first + count
    while first < end:
        seeds = range(first, min(first + _CHUNK, end))
        try:
            report = storm(world, seeds, guarantee)
        except SimulationError as error:
            print(f"{world}: {error}", flush=True)
            if error.seed < 0:
                return passed, [*failed, error.seed]
            passed, first = passed + error.seed - first, error.seed + 1
            failed.append(error.seed)
        else:
            passed, first = passed + report.seeds, seeds.stop
            print(f"{world} {seeds.start} to {seeds.stop - 1}: {report.summary()}", flush=True)
    return passed, failed


def main(arguments: list[str]) -> int:
    """Run the worlds that are named, and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.testing.simulation.many", description=__doc__)
    parser.add_argument("worlds", nargs="*", choices=[[], *WORLDS], metavar="WORLD")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=_CHUNK)
    parser.add_argument("--guarantee", default="exactly_once_v2")
    options = parser.parse_args(arguments)
    has_failed = False
    for world in options.worlds or WORLDS:
        passed, failed = run(world, options.first, options.seeds, options.guarantee)
        print(f"{world}, {options.guarantee}: {passed} seeds passed, failed: {failed or 'none'}", flush=True)
        has_failed = has_failed or bool(failed)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
