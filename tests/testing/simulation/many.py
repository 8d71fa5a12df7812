"""Many seeds of the worlds, one after another, with the number that passed.

``python -m tests.testing.simulation.many [WORLD ...] [--first N] [--seeds N] [--guarantee NAME]`` runs all worlds if
none is named, and prints the faults of each two hundred seeds.  It continues with the seed after one that failed, and
returns 1 if one has.  The world ``combined`` is that of generated topologies, always with exactly-once: another one for
each forty seeds.  The world ``stepped`` is that of generated topologies behind repartition topics: another one for each
ten seeds, of which every third is run with at-least-once.  So is ``cyclic``, with foreign-key joins.

At the end it prints how often each state of ``streams.testing.simulation.states`` was reached; from a thousand worlds
on, one that was never reached is a failure, too.
"""

import argparse
import gc
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from streams.testing import SimulationError
from streams.testing.simulation.states import STATES, Need
from tests.testing.simulation import cyclic, stepped
from tests.testing.simulation.combined import Combined, differences, driven
from tests.testing.simulation.worlds import WORLDS, storm

COMBINED = "combined"
#: Worlds whose outputs are compared with those of a bounded run.
BACKLOGS: dict[str, Any] = {"stepped": stepped, "cyclic": cyclic}

#: Seeds of one simulation: so many that each fault and feature must have occurred.
_CHUNK = 200
#: Seeds of one generated topology, whose expected results take as long as half a world.
_SEEDS_OF_TOPOLOGY = 40
#: Worlds from which on every state must have been reached.
ENOUGH = 1_000


def run(world: str, first: int, count: int, guarantee: str, states: Counter[str]) -> tuple[int, list[int]]:
    """Return the number of seeds of a world that passed, and the seeds that failed; add the states reached."""
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
            states += report.states
            print(f"{world} {seeds.start} to {seeds.stop - 1}: {report.summary()}", flush=True)
    return passed, failed


def run_combined(first: int, count: int) -> tuple[int, list[int]]:
    """Return the number of worlds of generated topologies that passed, and the seeds that failed."""
    passed, failed, end = 0, list[int](), first + count
    while first < end:
        topology, last = Combined(first // _SEEDS_OF_TOPOLOGY), first - first % _SEEDS_OF_TOPOLOGY + _SEEDS_OF_TOPOLOGY
        expected = driven(topology)
        for seed in range(first, min(last, end)):
            if found := differences(topology, expected, seed):
                print(f"{COMBINED}, seed {seed}: {found}", flush=True)
                failed.append(seed)
            gc.collect()
        passed, first = passed + min(last, end) - first, last
        print(f"{COMBINED}: {passed - len(failed)} of {passed} passed", flush=True)
    return passed - len(failed), failed


def run_backlog(world: str, first: int, count: int) -> tuple[int, list[int]]:
    """Return the number of worlds of topologies that read a backlog that passed, and the seeds that failed."""
    module = BACKLOGS[world]
    failed = list[int]()
    expected: Any = None
    for seed in range(first, first + count):
        topology = module.topology_of(seed)
        if seed == first or seed % module.SEEDS_OF_TOPOLOGY == 0:
            expected = module.from_files(topology)
        if found := module.differences(topology, expected, seed):
            print(f"{world}, seed {seed}: {found}", flush=True)
            failed.append(seed)
        gc.collect()
        done = seed + 1 - first
        if done % _SEEDS_OF_TOPOLOGY == 0:
            print(f"{world}: {done - len(failed)} of {done} passed", flush=True)
    return count - len(failed), failed


def unreached(counts: Mapping[str, int], needs: Iterable[Need]) -> list[str]:
    """Return the states that applications with these properties have never reached."""
    able = {"nothing", *needs}
    return [name for name, need in STATES.items() if need in able and not counts.get(name)]


def main(arguments: list[str]) -> int:
    """Run the worlds that are named, and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.testing.simulation.many", description=__doc__)
    generated = {COMBINED: run_combined, **{world: partial(run_backlog, world) for world in BACKLOGS}}
    parser.add_argument("worlds", nargs="*", choices=[[], *WORLDS, *generated], metavar="WORLD")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=_CHUNK)
    parser.add_argument("--guarantee", default="exactly_once_v2")
    options = parser.parse_args(arguments)
    has_failed, states, count = False, Counter[str](), 0
    for world in options.worlds or (*WORLDS, *generated):
        if world in generated:
            passed, failed = generated[world](options.first, options.seeds)
        else:
            passed, failed = run(world, options.first, options.seeds, options.guarantee, states)
            count += passed
        print(f"{world}, {options.guarantee}: {passed} seeds passed, failed: {failed or 'none'}", flush=True)
        has_failed = has_failed or bool(failed)
    able: list[Need] = ["state", "steps"]
    if options.guarantee == "exactly_once_v2":
        able.append("exactly once")
    never = unreached(states, able)
    for state, times in states.most_common():
        print(f"reached {times} times: {state}")
    print(f"never reached in {count} worlds: {', '.join(never) or 'none'}", flush=True)
    return int(has_failed or (count >= ENOUGH and bool(never)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
