"""A bounded run in two goes gives what one run gives: timers, open windows and held-back changes go on."""

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streams import (
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    key_value_store,
)
from streams.bounded import run_bounded
from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import Block

numbers = Topic("numbers", key=str, value=int)
ticks = Topic("ticks", key=str, value=int)
counted = Topic("counted", key=str, value=int)
final = Topic("final", key=str, value=int)
OUTPUTS = ("ticks", "counted", "final")

#: Key, value, timestamp.
Row = tuple[str, int, int]


class Ticker(Processor[str, int, str, int]):
    """Tells every 100 ms, and every 70 ms, how many records there were; once, how it began."""

    total = key_value_store(str, int, "total")

    def init(self, context: Any) -> None:
        for interval_ms in (100, 70):
            context.schedule(
                timedelta(milliseconds=interval_ms),
                PunctuationType.STREAM_TIME,
                lambda now_ms, name=f"every {interval_ms}": self.tell(name, now_ms),
            )
        self.once = context.schedule(
            timedelta(milliseconds=150), PunctuationType.STREAM_TIME, self.begin, start_ms=1150
        )

    def process(self, record: Record[str, int]) -> None:
        self.total.put("all", (self.total.get("all") or 0) + 1)

    def tell(self, name: str, now_ms: int) -> None:
        self.context.forward(name, self.total.get("all"), timestamp_ms=now_ms)

    def begin(self, now_ms: int) -> None:
        self.once.cancel()
        self.tell("once", now_ms)


def topology(builder: StreamsBuilder) -> None:
    source = builder.stream(numbers)
    source.process(Ticker).to(ticks)
    windows = TimeWindows.of(timedelta(milliseconds=50), grace=timedelta(milliseconds=30))
    table = source.group_by_key().windowed_by(windows).count("windows")
    table.to_stream(lambda key, _: f"{key.key}@{key.window.start_ms}").to(counted)
    held = table.suppress(Suppressed.until_window_closes())
    held.to_stream(lambda key, _: f"{key.key}@{key.window.start_ms}").to(final)


def run(rows: list[Row], partitions: int, **options: Any) -> dict[str, list[tuple[int, Any, Any, int]]]:
    """Return what was written to each topic: partition, key, value, timestamp."""

    def read(count: int, skip: int) -> Iterator[list[tuple[int, Block]]]:
        for number, (key, value, time) in enumerate(rows[skip:], skip):
            raw = numbers.key_serde.serialize(key)
            block = Block([raw], [numbers.value_serde.serialize(value)], [time], None, range(number, number + 1))
            yield [(partition_for(raw, count), block)]

    with run_bounded(topology, {"numbers": read}, application_id="app", partitions=partitions, **options) as finished:
        return {
            topic: [
                (number, counted.key_serde.deserialize(key), counted.value_serde.deserialize(value), time)
                for number, block in finished.read_output(topic)
                for key, value, time in zip(block.keys, block.values, block.timestamps, strict=True)
            ]
            for topic in OUTPUTS
        }


@pytest.mark.parametrize("engine", ["in_memory", "rocksdb"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_several_runs_have_the_results_of_one_run(engine: str, partitions: int, tmp_path: Path) -> None:
    """Stopped in the middle of intervals and windows; rows come up to 60 ms late, so that some are refused."""
    chance = random.Random(5)
    rows = [(chance.choice("abcdef"), n, 1000 + n * 7 - chance.randrange(60)) for n in range(200)]
    settings = {"settings": {"default_store": engine}}

    for end in (37, 38, 120, len(rows)):
        stopped = run(rows[:end], partitions, state_dir=tmp_path, **settings)
    whole = run(rows, partitions, **settings)

    if partitions > 1:
        # Several tasks write to a partition; who of them is first is open.
        stopped, whole = ({topic: sorted(rows) for topic, rows in run.items()} for run in (stopped, whole))
    assert stopped == whole
    assert {key for _, key, _, _ in whole["ticks"]} == {"every 100", "every 70", "once"}
    assert sum(key == "once" for _, key, _, _ in whole["ticks"]) == partitions
    assert len(whole["final"]) > 20
