"""``python -m tests.bench.nexmark [--events N] [--runs N] [--only q5]``: the Nexmark queries, whole path.

Each query of ``topology_examples/09_nexmark.py`` by itself, in memory, every update sent.
"""

import argparse
from importlib import import_module

from tests.bench.__main__ import COLUMNS, row
from tests.bench.figures import Table
from tests.bench.harness import Pipeline, machine, measure
from topology_examples.nexmark import auctions, bids, persons

INPUTS = {
    "q3": [persons, auctions],
    "q4": [auctions, bids],
    "q6": [auctions, bids],
    "q8": [persons, auctions],
}


def pipelines() -> list[Pipeline]:
    # The example's name begins with a number, so no import statement can say it.
    queries = import_module("topology_examples.09_nexmark").QUERIES
    return [Pipeline(name, query, INPUTS.get(name, [bids]), [output.name]) for name, (query, output) in queries.items()]


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.nexmark")
    options.add_argument("--events", type=int, default=200_000, help="Nexmark events, 46 of 50 of them bids")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--only", default="", help="one query, such as q5")
    chosen = options.parse_args()
    conditions = (
        f"{machine()}; {chosen.events:,} Nexmark events, 4 partitions, one thread; median of {chosen.runs} runs"
    )
    table = Table("nexmark", ("query", *COLUMNS[1:]), conditions)
    table.open()
    for pipeline in pipelines():
        if chosen.only in ("", pipeline.name):
            table.add(row(measure(pipeline, chosen.events, chosen.runs)))


if __name__ == "__main__":
    main()
