"""Bounded runs over rows of numbers, and what they write."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from streams import Topic
from streams.bounded import BoundedRun, RowReader, run_bounded
from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import Block

#: Key, value, timestamp.
Rows = Sequence[tuple[str, int, int]]
#: Partition -> rows by offset.
Written = dict[int, list[tuple[str, int, int]]]

NUMBERS = Topic("numbers", key=str, value=int)

#: Ways to cut the work that must not be seen in the result.
CUTS: list[dict[str, Any]] = [
    {"num_stream_threads": threads, "max_poll_records": size, "batch": batch, "buffered_records_per_partition": held}
    for threads, (size, batch, held) in product((1, 2, 4), ((1000, 1000, 1000), (3, 7, 1), (1, 1000, 5)))
]


def reader(rows: Rows, batch: int = 1000) -> RowReader:
    """Return rows by the partitions of their keys, ``batch`` of them at a time."""

    def read(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
        for start in range(skip, len(rows), batch):
            blocks = []
            for number in range(count):
                mine = [row for row in rows[start : start + batch] if partition_for(row[0].encode(), count) == number]
                if mine:
                    keys = [key.encode() for key, _, _ in mine]
                    values = [NUMBERS.value_serde.serialize(value) for _, value, _ in mine]
                    blocks.append((number, Block(keys, values, [time for *_, time in mine], None, range(len(mine)))))
            yield blocks

    return read


def written(finished: BoundedRun, topic: str) -> Written:
    """Return what a topic holds; its offsets must be without gaps."""
    result: Written = {}
    for number, block in finished.read_output(topic):
        rows = result.setdefault(number, [])
        assert list(block.offsets) == list(range(len(rows), len(rows) + len(block)))
        keys = [(key or b"").decode() for key in block.keys]
        values = [NUMBERS.value_serde.deserialize(value) for value in block.values]
        rows += zip(keys, values, block.timestamps, strict=True)
    return result


def started(
    topology: Any,
    inputs: Mapping[str, Rows],
    *,
    partitions: int = 3,
    batch: int = 1000,
    state_dir: Path | None = None,
    **settings: Any,
) -> BoundedRun:
    """Run a topology over rows; the caller closes the run."""
    return run_bounded(
        topology,
        {topic: reader(rows, batch) for topic, rows in inputs.items()},
        application_id="app",
        partitions=partitions,
        state_dir=state_dir,
        settings={"poll_ms": 5, **settings},
    )


def run(topology: Any, inputs: Mapping[str, Rows], *topics: str, **options: Any) -> list[Written]:
    """Run a topology over rows; return what the topics hold."""
    with started(topology, inputs, **options) as finished:
        return [written(finished, topic) for topic in topics]


def count(result: Written) -> int:
    """Return how many rows there are."""
    return sum(map(len, result.values()))
