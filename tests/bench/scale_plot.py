"""Draws what the measurements of size have noted: ``docs/images/scale.svg``."""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.bench.plots import draw_cost
from tests.bench.scale_parts import NOTES

IMAGE = Path("docs") / "images" / "scale.svg"
#: What grows, and how its line is called.
_SERIES = {
    "records": "records, 1,000 keys",
    "keys": "keys, 1 million records",
    "partitions": "partitions, 1 million records",
    "operators": "operators, 1 million records",
}
_STATE = "keys, ever new ones, 128 MiB"
#: Stretches into which a long run is divided.
_PARTS = 10


def lines(notes: list[dict[str, Any]]) -> dict[str, dict[float, list[float]]]:
    """Return CPU nanoseconds of a record by line and size; of measurements made again the last counts."""
    found: dict[str, dict[float, list[float]]] = defaultdict(dict)
    for line in notes:
        if line["name"] == "cost" and line["series"] in _SERIES:
            found[_SERIES[line["series"]]][max(line["size"], 1)] = line["costs"]
        elif line["name"] == "state":
            found[_STATE] = _stretches(line["samples"], line["keys"])
    return dict(found)


def _stretches(samples: list[list[float]], keys: int) -> dict[float, list[float]]:
    """Return what a record took in each stretch of a run, by the number of keys at its end."""
    points: dict[float, list[float]] = {}
    last = samples[-1][2]
    before = next(sample for sample in samples if sample[2])
    for part in range(1, _PARTS + 1):
        after = next(sample for sample in samples if sample[2] >= last * part / _PARTS)
        if after[2] > before[2]:
            points[keys * part / _PARTS] = [(after[1] - before[1]) / (after[2] - before[2]) * 1e9]
            before = after
    return points


def run(arguments: list[str]) -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.scale plot")
    options.add_argument("--out", type=Path, default=IMAGE)
    chosen = options.parse_args(arguments)
    notes = [json.loads(line) for line in NOTES.read_text().splitlines()]
    draw_cost(chosen.out, "CPU per record against size", "size", "ns", lines(notes))
    print(chosen.out)
