"""An application whose state is of many kinds, and how it goes live in a process that dies on the way.

Run as a program it lays a snapshot down, or goes live with it, and ends without a word, as kill -9
would end it, before the step that it is given.
"""

import os
import sys
from datetime import timedelta
from pathlib import Path

from streams import (
    EmbeddedBroker,
    Processor,
    PunctuationType,
    Record,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topic,
    key_value_store,
    punctuate,
)
from streams.core.blocks.records import Block, TopicPartition
from streams.replay import Snapshot, go_live, lay_down
from streams.replay.storage.places import Place

clicks = Topic("clicks", key=str, value=int)
prices = Topic("prices", key=str, value=int)
names = Topic("names", key=str, value=str)
windowed = Topic("windowed", key=str, value=int)
visits = Topic("visits", key=str, value=int)
priced = Topic("priced", key=str, value=int)
sums = Topic("sums", key=str, value=int)
PARTITIONS = 3


class Summing(Processor[str, int, str, int]):
    """Adds up per key, and gives the sums out every ten seconds of stream time."""

    sums = key_value_store(str, int)

    def process(self, record: Record[str, int]) -> None:
        self.sums.put(record.key, (self.sums.get(record.key) or 0) + record.value)

    @punctuate(timedelta(seconds=10), PunctuationType.STREAM_TIME)
    def give_out(self, now_ms: int) -> None:
        for key, total in self.sums.all():
            self.context.forward(key, total, timestamp_ms=now_ms)


def topology(builder: StreamsBuilder) -> None:
    """Windows with grace, sessions behind a repartition, a table, a global table, a punctuator."""
    stream = builder.stream(clicks)
    grouped = stream.group_by_key()
    (
        grouped.windowed_by(TimeWindows.of(timedelta(seconds=5), grace=timedelta(seconds=2)))
        .count("counts")
        .to_stream()
        .map(lambda key, count: (f"{key.key}@{key.window.start_ms}", count))
        .to(windowed)
    )
    (
        stream.group_by(lambda key, value: f"group {value % 3}", key=str)
        .windowed_by(SessionWindows.of(timedelta(seconds=3), grace=timedelta(seconds=1)))
        .count("visits-store")
        .to_stream()
        .map(lambda key, count: (f"{key.key}@{key.window.start_ms}-{key.window.end_ms}", count))
        .to(visits)
    )
    table = builder.table(prices, store="prices-store")
    known = builder.global_table(names, store="names-store")
    stream.join(table, lambda click, price: click * price).to(priced)
    stream.join(known, lambda click, name: click + len(name), key=lambda key, click: key).process(Summing).to(sums)


def history(topic: str, size: int) -> list[tuple[str, object, int]]:
    """Return the history as it was when there were ``size`` clicks; some records are late.

    Sizes are such that no later record has a time before that of an earlier one: merging by time
    takes everything before the cut first, with what comes after it and without.
    """
    if topic != "clicks":
        size = round(size * 400 / 1700)
    if topic == "names":
        return [(f"key {number}", "x" * number, 0) for number in range(7)]
    step = 400 if topic == "clicks" else 1700
    return [
        (f"key {number * 5 % 7}", number % 11, number * step - (900 if number % 4 == 0 and number else 0))
        for number in range(size)
    ]


def fill(broker: EmbeddedBroker, size: int) -> None:
    """Put the records into a broker, those that are not there yet."""
    from streams.core.blocks.partitioning import partition_for

    for topic in (clicks, prices, names):
        have = {number: broker.end_offset(TopicPartition(topic.name, number)) for number in range(PARTITIONS)}
        for key, value, time in history(topic.name, size):
            raw = topic.key_serde.serialize(key)
            number = partition_for(raw, PARTITIONS)
            if have[number]:
                have[number] -= 1
                continue
            broker.append(
                TopicPartition(topic.name, number), Block([raw], [topic.value_serde.serialize(value)], [time])
            )


class Killed(BaseException):
    """Stands for the end of the process."""


def main() -> None:
    """Die before a step: VERB SNAPSHOT FOLDER STEP."""
    verb, snapshot, folder, step = sys.argv[1:]

    def on_step(name: str) -> None:
        if name == step:
            os._exit(9)

    loaded = Snapshot.open(Place(snapshot))
    if verb == "lay-down":
        lay_down(loaded, Path(folder), on_step=on_step)
    else:
        with EmbeddedBroker(Path(folder) / "broker", maintenance_interval_ms=None) as broker:
            go_live(loaded, broker, on_step=on_step)


if __name__ == "__main__":
    main()
