"""The test driver: several partitions, virtual clock, stores, internal topics."""

import re
from datetime import timedelta

import pytest

from streams import Processor, PunctuationType, StreamsBuilder, StreamsError, Topic, UnknownTopicError, punctuate
from streams.core.partitioning import partition_for
from streams.testing import TopologyTestDriver

words = Topic("words", key=str, value=str)
counts = Topic("counts", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by(lambda _, word: word).count("store").to_stream().to(counts)


def test_with_partitions_each_word_is_counted_in_the_partition_of_its_bytes():
    with TopologyTestDriver(topology, partitions=4) as driver:
        for number in range(40):
            driver.pipe(words, f"w{number % 10}", key=f"k{number}", timestamp_ms=number)
        found = driver.read_partitions(counts)

        assert {word: partition for partition, rows in found.items() for word, _ in rows} == {
            f"w{number}": partition_for(f"w{number}".encode(), 4) for number in range(10)
        }
        assert all(
            max(count for word, count in rows if word == name) == 4 for rows in found.values() for name, _ in rows
        )
        home = partition_for(b"w3", 4)
        assert driver.store("store", home).get("w3").value == 4
        with pytest.raises(StreamsError, match="has 4 partitions; name one"):
            driver.store("store")


def test_internal_topics_can_be_read():
    with TopologyTestDriver(topology) as driver:
        driver.pipe(words, "a", key="k", timestamp_ms=5)

        assert driver.topics() == ["app-store-changelog", "app-store-repartition", "counts", "words"]
        (change,) = driver.read_bytes("app-store-changelog")
        assert (change.key, change.value, change.timestamp_ms) == (b"a", (1).to_bytes(8, "big"), 5)


def test_wall_clock_moves_only_when_told():
    class Ticks(Processor[str, str, str, int]):
        @punctuate(timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME)
        def tick(self, now_ms: int) -> None:
            self.context.forward("tick", now_ms)

        def process(self, record):
            pass

    def ticking(builder: StreamsBuilder) -> None:
        builder.stream(words).process(Ticks).to(counts)

    with TopologyTestDriver(ticking, now_ms=100) as driver:
        driver.advance_wall_clock(999)
        assert driver.read(counts) == []
        driver.advance_wall_clock(1)
        driver.advance_wall_clock(5000)

        assert driver.read(counts) == [("tick", 1100), ("tick", 6100)]


def test_topic_that_is_no_input_is_named_with_those_that_are():
    with TopologyTestDriver(topology) as driver, pytest.raises(UnknownTopicError, match="does not read topic 'counts'"):
        driver.pipe(counts, 1, key="a")


def test_source_may_take_its_times_from_the_wall_clock():
    def clocked(builder: StreamsBuilder) -> None:
        builder.stream(words, timestamp="wall_clock").map_values(lambda _: 1).to(counts)

    with TopologyTestDriver(clocked, now_ms=5000) as driver:
        driver.pipe(words, "a", key="k", timestamp_ms=7)

        assert [record.timestamp_ms for record in driver.read_records(counts)] == [5000]


@pytest.mark.parametrize("partitions", [1, 3])
def test_pattern_before_a_repartition_takes_topics_that_come_later(partitions):
    """Their tasks come into being with the first record."""

    def topology(builder: StreamsBuilder) -> None:
        read = builder.stream(re.compile("in-.*"), key=str, value=str)
        read.group_by(lambda _, word: word).count("words").to_stream().to(Topic("out", key=str, value=int))

    driver = TopologyTestDriver(topology, partitions=partitions)
    for name in ("in-a", "in-b"):
        for number in range(6):
            driver.pipe(Topic(name, key=str, value=str), f"word-{name}", key=f"k{number}")

    assert dict(driver.read(Topic("out", key=str, value=int))) == {"word-in-a": 6, "word-in-b": 6}


@pytest.mark.parametrize("partitions", [1, 3])
def test_pattern_before_a_foreign_key_join_takes_topics_that_come_later(partitions):
    def topology(builder: StreamsBuilder) -> None:
        left = builder.stream(re.compile("left-.*"), key=str, value=str).to_table("left")
        right = builder.table(Topic("right", key=str, value=int), "right")
        left.join(right, lambda _, number: number, foreign_key=lambda _, value: value).to_stream().to("out")

    driver = TopologyTestDriver(topology, partitions=partitions)
    for number in range(6):
        driver.pipe(Topic("right", key=str, value=int), number, key=f"r{number}")
        driver.pipe(Topic("left-a", key=str, value=str), f"r{number}", key=f"l{number}")

    found = driver.read(Topic("out", key=str, value=int))
    assert sorted(found) == [(f"l{number}", number) for number in range(6)]
