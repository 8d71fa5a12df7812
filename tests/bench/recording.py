"""``python -m tests.bench.recording``: what recording metrics costs, as CPU time with each level against without.

The runs of one round follow each other over the same input, and rounds begin with another level each time, so that what
else the machine does meets all levels alike. The median over the rounds of the ratio within a round is printed.
"""

import argparse
import statistics

from attrs import evolve

from tests.bench.__main__ import PIPELINES
from tests.bench.harness import Pipeline, blocks_of, machine, run_once

LEVELS = ("off", "info", "debug")


def cost_of(pipeline: Pipeline, events: int, rounds: int) -> dict[str, float]:
    """Return the median ratio of CPU time by level, relative to ``off``."""
    blocks = {topic.name: blocks_of(topic, events) for topic in pipeline.inputs}
    ratios: dict[str, list[float]] = {level: [] for level in LEVELS}
    for number in range(rounds):
        cpu = {}
        for level in LEVELS[number % 3 :] + LEVELS[: number % 3]:
            chosen = evolve(pipeline, settings={**pipeline.settings, "metrics_recording_level": level})
            cpu[level] = run_once(chosen, blocks)[1]
        for level in LEVELS:
            ratios[level].append(cpu[level] / cpu["off"])
    return {level: statistics.median(found) for level, found in ratios.items()}


def main() -> None:
    """Print a table: pipelines, and the cost of each level."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(machine())
    for pipeline in PIPELINES:
        if options.only in pipeline.name:
            found = cost_of(pipeline, options.events, options.rounds)
            print(
                f"{pipeline.name:32}", "  ".join(f"{level} {found[level] - 1:+.1%}" for level in LEVELS[1:]), flush=True
            )


if __name__ == "__main__":
    main()
