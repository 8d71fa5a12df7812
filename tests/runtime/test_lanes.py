"""Topics that several tasks write in a bounded run: one order, whatever the speed of the tasks."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from streams import StreamsBuilder, Topic
from streams.app import BoundedRun, RowReader, run_bounded
from streams.core.partitioning import partition_for
from streams.core.records import Block

Rows = Sequence[tuple[str, int, int]]
#: Partition -> (key, value, timestamp) by offset.
Written = dict[int, list[tuple[str, int, int]]]

words = Topic("words", key=str, value=int)
more = Topic("more", key=str, value=int)
middle = Topic("middle", key=str, value=int)
out = Topic("out", key=str, value=int)

#: Times go to and fro, keys are spread, and partitions differ in size.
WORDS: Rows = [(f"k{n * n % 13}", n, 100 + 10 * n - (n * 7 % 11) * 9) for n in range(120)]
MORE: Rows = [(f"m{n % 5}", 1000 + n, 25 * n) for n in range(40)]


def reader(rows: Rows, batch: int = 1000) -> RowReader:
    """Return rows by the partitions of their keys, ``batch`` of them at a time."""

    def read(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
        for start in range(skip, len(rows), batch):
            blocks = []
            for number in range(count):
                mine = [row for row in rows[start : start + batch] if partition_for(row[0].encode(), count) == number]
                if mine:
                    keys = [key.encode() for key, _, _ in mine]
                    values = [words.value_serde.serialize(value) for _, value, _ in mine]
                    blocks.append((number, Block(keys, values, [time for *_, time in mine], None, range(len(mine)))))
            yield blocks

    return read


def written(finished: BoundedRun, topic: str) -> Written:
    """Return what a topic holds; offsets must be without gaps."""
    result: Written = {}
    for number, block in finished.read_output(topic):
        rows = result.setdefault(number, [])
        assert list(block.offsets) == list(range(len(rows), len(rows) + len(block)))
        keys = [(key or b"").decode() for key in block.keys]
        values = [words.value_serde.deserialize(value) for value in block.values]
        rows += zip(keys, values, block.timestamps, strict=True)
    return result


def run(
    topology: Any,
    inputs: Mapping[str, Rows],
    *topics: str,
    partitions: int = 3,
    batch: int = 1000,
    state_dir: Path | None = None,
    **settings: Any,
) -> list[Written]:
    """Run a topology over rows; return what the topics hold."""
    with run_bounded(
        topology,
        {topic: reader(rows, batch) for topic, rows in inputs.items()},
        application_id="app",
        partitions=partitions,
        state_dir=state_dir,
        settings={"poll_ms": 5, **settings},
    ) as finished:
        return [written(finished, topic) for topic in topics]


#: Ways to cut the work that must not be seen in the result.
CUTS: list[dict[str, Any]] = [
    {"num_stream_threads": threads, "max_poll_records": size, "batch": batch, "buffered_records_per_partition": held}
    for threads, (size, batch, held) in product((1, 2, 4), ((1000, 1000, 1000), (3, 7, 1), (1, 1000, 5)))
]


def rekeyed(builder: StreamsBuilder) -> None:
    """The key changes before the sink, and nothing repartitions."""
    builder.stream(words).select_key(lambda key, value: f"v{value % 4}").to(out)


def through(builder: StreamsBuilder) -> None:
    """One part writes what another reads."""
    builder.stream(words).select_key(lambda key, value: f"v{value % 4}").to(middle)
    builder.stream(middle).map_values(lambda value: value + 1).to(out)


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_output_behind_a_changed_key_does_not_depend_on_threads_and_polls(partitions: int):
    whole = run(rekeyed, {"words": WORDS}, "out", partitions=partitions)
    others = [run(rekeyed, {"words": WORDS}, "out", partitions=partitions, **cut) for cut in CUTS]

    assert sum(len(rows) for rows in whole[0].values()) == len(WORDS)
    assert all(other == whole for other in others)


@pytest.mark.parametrize("partitions", [1, 2, 5])
@pytest.mark.parametrize("inputs", [{"words": WORDS}, {"words": WORDS, "middle": MORE}], ids=["alone", "with a file"])
def test_topic_that_is_written_and_read_loses_nothing_and_has_one_order(inputs: Mapping[str, Rows], partitions: int):
    whole = run(through, inputs, "middle", "out", partitions=partitions)
    others = [run(through, inputs, "middle", "out", partitions=partitions, **cut) for cut in CUTS]

    for result in whole:
        assert sum(len(rows) for rows in result.values()) == sum(map(len, inputs.values()))
    assert all(other == whole for other in others)
