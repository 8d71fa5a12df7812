"""``python -m tests.bench.recording``: the CPU time of recording metrics, by level, and of the flight recorder.

The runs of one round follow each other over the same input, and rounds begin with another level each time, so that what
else the machine does meets all levels alike. The median over the rounds of the ratio within a round is printed. With
``--bytecodes`` the ratio of the bytecodes that the interpreter executes is printed instead, which does not depend on
what else the machine does, except for the number of polls and commits.
"""

import argparse
import statistics
from functools import partial

from attrs import evolve

from tests.bench.__main__ import PIPELINES
from tests.bench.harness import Pipeline, blocks_of, machine, run_once
from tests.bench.test_bytecodes import bytecodes

LEVELS = ("off", "info", "debug", "recorder")


def at(pipeline: Pipeline, level: str) -> Pipeline:
    """Return a pipeline that records metrics of a level, or with the flight recorder and no metrics."""
    has_recorder = level == "recorder"
    own = {"metrics_recording_level": "off" if has_recorder else level, "flight_recorder": has_recorder}
    return evolve(pipeline, settings={**pipeline.settings, **own})


def cost_of(pipeline: Pipeline, events: int, rounds: int, *, counts_bytecodes: bool) -> dict[str, float]:
    """Return the median ratio of CPU time, or of bytecodes, by level, relative to ``off``."""
    blocks = {topic.name: blocks_of(topic, events) for topic in pipeline.inputs}
    # The flight recorder does not record when async calls finish, so it rejects them.
    levels = [level for level in LEVELS if level != "recorder" or not pipeline.calls]
    ratios: dict[str, list[float]] = {level: [] for level in levels}
    # The first run compiles, imports and fills caches.
    run_once(pipeline, blocks)
    for number in range(rounds):
        cpu = {}
        turn = number % len(levels)
        for level in levels[turn:] + levels[:turn]:
            chosen = at(pipeline, level)
            if counts_bytecodes:
                cpu[level] = bytecodes(partial(run_once, chosen, blocks))
            else:
                cpu[level] = run_once(chosen, blocks)[1]
        for level in levels:
            ratios[level].append(cpu[level] / cpu["off"])
    return {level: statistics.median(found) for level, found in ratios.items()}


def main() -> None:
    """Print a table: pipelines, and the cost of each level."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    parser.add_argument("--bytecodes", action="store_true")
    options = parser.parse_args()
    print(machine())
    for pipeline in PIPELINES:
        if options.only in pipeline.name:
            found = cost_of(pipeline, options.events, options.rounds, counts_bytecodes=options.bytecodes)
            costs = "  ".join(f"{level} {ratio - 1:+.1%}" for level, ratio in found.items() if level != "off")
            print(f"{pipeline.name:32} {costs}", flush=True)


if __name__ == "__main__":
    main()
