"""The test driver: several partitions, virtual clock, stores, internal topics."""

import re
from datetime import timedelta
from typing import NamedTuple

import pytest

from streams import (
    ProcessingError,
    Processor,
    PunctuationType,
    StreamsBuilder,
    StreamsError,
    Topic,
    UnknownTopicError,
    punctuate,
)
from streams.core.blocks.partitioning import partition_for
from streams.testing import TopologyTestDriver

words = Topic("words", key=str, value=str)
counts = Topic("counts", key=str, value=int)
spoken = Topic("spoken", key=str, value=str)
spoken_of = Topic("spoken-of", key=float, value=str)


class Pair(NamedTuple):
    """A pair with names."""

    key: str
    value: str


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


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda driver: driver.pipe(words, "a", key="a", timestamp_ms=1.5), "timestamp_ms must be an int of epoch"),
        (lambda driver: driver.pipe(words, "a", key="a", headers={"trace": b"t1"}), "headers must be pairs of text"),
        (lambda driver: driver.pipe(words, "a", key="a", headers=[("trace", "t1")]), "headers must be pairs of text"),
        (
            lambda driver: driver.pipe_all(words, [("a", "a", 0, ())]),
            r"rows of \(key, value, timestamp_ms\), .* got \('a', 'a', 0, \(\)\)",
        ),
        (lambda driver: driver.advance_wall_clock(-1), "by_ms, in milliseconds, must be an int of at least 0, not -1"),
        (lambda driver: driver.advance_wall_clock(timedelta(1)), "in milliseconds, must be an int"),
        (lambda driver: driver.pipe(words, "a", key="a", partition="0"), "has partitions 0 to 0, not '0'"),
        (lambda driver: driver.pipe(words, "a", key="a", partition=False), "has partitions 0 to 0, not False"),
        (lambda driver: driver.store("store", partition=1), r"store 'store' has the partitions \[0\], not 1"),
        (lambda driver: TopologyTestDriver(topology, partitions=0), "partitions must be an int of at least 1, not 0"),
    ],
)
def test_wrong_arguments_are_errors_that_say_what_is_needed(act, message):
    with TopologyTestDriver(topology) as driver, pytest.raises(StreamsError, match=message):
        act(driver)


def test_topic_that_no_broker_would_have_is_refused():
    def scattered(builder: StreamsBuilder) -> None:
        builder.stream(words).to(lambda key, value: f"of {key}", key=str, value=str)

    with TopologyTestDriver(scattered) as driver, pytest.raises(StreamsError, match="topic name 'of a' has ' '"):
        driver.pipe(words, "a", key="a")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"timestamp_ms": 1.5}, "timestamp_ms of forward.* must be an int of epoch milliseconds, not 1.5"),
        ({"timestamp_ms": -1}, "timestamp_ms of forward.* must be from 0"),
        ({"timestamp_ms": 2**63}, "timestamp_ms of forward.* must be from 0"),
        ({"headers": {"trace": b"t1"}}, "headers of forward.* must be pairs of text and bytes"),
        ({"headers": [("trace", "t1")]}, "headers of forward.* must be pairs of text and bytes"),
    ],
)
def test_forwarded_time_or_headers_of_another_type_fail_at_the_node(given, message):
    class Sending(Processor[str, str, str, str]):
        def process(self, record):
            self.context.forward(record.key, record.value, **given)

    with TopologyTestDriver(
        lambda builder: builder.stream(words).process(Sending, name="sending").to(spoken)
    ) as driver:
        with pytest.raises(ProcessingError, match=f"node 'sending' at words-0 offset 0: {message}"):
            driver.pipe(words, "a", key="a")


class Failing(Processor[str, str, str, str]):
    def init(self, context):
        raise ValueError("no licence")


class FailingToClose(Processor[str, str, str, str]):
    def close(self):
        raise ValueError("no answer")


class FailingToBeMade(Processor[str, str, str, str]):
    def __init__(self):
        raise ValueError("no file")


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (Failing, r"node 'sending': init\(\) failed: ValueError: no licence"),
        (FailingToClose, r"node 'sending': close\(\) failed: ValueError: no answer"),
        (FailingToBeMade, "node 'sending': making the processor failed: ValueError: no file"),
    ],
)
def test_processor_that_fails_without_a_record_is_named(processor, message):
    def sending(builder: StreamsBuilder) -> None:
        builder.stream(words).process(processor, name="sending").to(spoken)

    with pytest.raises(ProcessingError, match=message), TopologyTestDriver(sending):
        pass


def test_key_that_is_not_equal_to_itself_is_kept():
    levels = Topic("levels", key=float, value=str)

    class Passing(Processor[float, str, float, str]):
        def process(self, record):
            self.context.forward(record.key, record.value)

    with TopologyTestDriver(lambda builder: builder.stream(levels).process_values(Passing).to(spoken_of)) as driver:
        driver.pipe(levels, "a", key=float("nan"))

        assert [value for _, value in driver.read(spoken_of)] == ["a"]


def odd(key, value):
    return value if value == "a" else None


@pytest.mark.parametrize(
    ("declare", "form"),
    [
        (lambda stream: stream.map(odd), "a pair .key, value."),
        (lambda stream: stream.flat_map(odd), "an iterable of pairs .key, value."),
        (lambda stream: stream.flat_map_values(odd), "an iterable of values"),
    ],
)
def test_result_of_another_form_names_the_function_and_the_form(declare, form):
    with TopologyTestDriver(lambda builder: declare(builder.stream(words)).to(spoken)) as driver:
        with pytest.raises(ProcessingError, match=rf"TypeError: .*; 'odd' \(.*test_driver.py:\d+\) must return {form}"):
            driver.pipe(words, "b", key="a")


@pytest.mark.parametrize("returned", ["US", b"US", {"U", "S"}, {"U": 1, "S": 2}, range(2)])
@pytest.mark.parametrize("operator", ["map", "flat_map"])
def test_stream_is_mapped_to_pairs_only(operator, returned):
    """Text of two characters could be unpacked as a pair: the key U and the value S."""

    def mapped(key, value):
        found = ("DE", "first") if value == "a" else returned
        return [found] if operator == "flat_map" else found

    def topology(builder: StreamsBuilder) -> None:
        getattr(builder.stream(words), operator)(mapped).to(spoken)

    with TopologyTestDriver(topology) as driver:
        driver.pipe(words, "a", key="a")
        with pytest.raises(ProcessingError, match=r"is no pair; '.*mapped' \(.*test_driver.py:\d+\) must return a"):
            driver.pipe(words, "b", key="a")

        assert driver.read(spoken) == [("DE", "first")]


@pytest.mark.parametrize("operator", ["map_async", "flat_map_async", "flat_map_batches"])
def test_functions_for_several_records_return_pairs_only(operator):
    async def mapped(key, value):
        return ["US"] if operator == "flat_map_async" else "US"

    def batched(records):
        return ["US"]

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(words)
        if operator == "flat_map_batches":
            stream.flat_map_batches(batched, max_records=1).to(spoken)
        else:
            getattr(stream, operator)(mapped).to(spoken)

    with TopologyTestDriver(topology) as driver:
        with pytest.raises(ProcessingError, match=r"returned 'US' where a pair \(key, value\) is needed"):
            driver.pipe(words, "b", key="a")


@pytest.mark.parametrize("pair", [["a", "b"], Pair("a", "b")])
@pytest.mark.parametrize("operator", ["map", "flat_map"])
def test_lists_and_named_tuples_of_two_are_pairs(operator, pair):
    def topology(builder: StreamsBuilder) -> None:
        mapped = [pair] if operator == "flat_map" else pair
        getattr(builder.stream(words), operator)(lambda key, value: mapped).to(spoken)

    with TopologyTestDriver(topology) as driver:
        driver.pipe(words, "b", key="a")

        assert driver.read(spoken) == [("a", "b")]


@pytest.mark.parametrize("returned", ["US", None, ("US",)])
def test_table_is_grouped_by_pairs_only(returned):
    """Text of two characters could be unpacked as a pair: the key U and the value S."""

    def grouped(builder: StreamsBuilder) -> None:
        builder.table(words).group_by(lambda key, value: returned).count().to_stream().to(counts)

    with TopologyTestDriver(grouped) as driver:
        with pytest.raises(ProcessingError, match=rf"of group_by returned {re.escape(repr(returned))} where a pair"):
            driver.pipe(words, "b", key="a")


def test_error_of_the_function_itself_is_not_blamed_on_its_result():
    with TopologyTestDriver(lambda builder: builder.stream(words).map(lambda k, v: int(v)).to(spoken)) as driver:
        with pytest.raises(ProcessingError, match=r"with base 10: 'b'$"):
            driver.pipe(words, "b", key="a")


def test_headers_may_be_lists_of_pairs():
    class Sending(Processor[str, str, str, str]):
        def process(self, record):
            self.context.forward(record.key, record.value, headers=[("given", b"1")])
            record.headers = [("set", b"2")]
            self.context.forward(record.key, record.value)

    with TopologyTestDriver(lambda builder: builder.stream(words).process(Sending).to(spoken)) as driver:
        driver.pipe(words, "a", key="a", headers=[("piped", b"0")])

        assert [record.headers for record in driver.read_records(spoken)] == [(("given", b"1"),), (("set", b"2"),)]


def test_kind_of_a_punctuation_is_checked_when_the_task_is_opened():
    class Ticking(Processor[str, str, str, str]):
        @punctuate(timedelta(seconds=1), "stream_time")
        def tick(self, now_ms):
            pass

    with pytest.raises(StreamsError, match=r"must be PunctuationType\.STREAM_TIME or .*, not 'stream_time'"):
        TopologyTestDriver(lambda builder: builder.stream(words).process(Ticking).to(spoken))


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
        right = builder.table(Topic("right", key=str, value=int), name="right")
        left.join(right, lambda _, number: number, foreign_key=lambda _, value: value).to_stream().to("out")

    driver = TopologyTestDriver(topology, partitions=partitions)
    for number in range(6):
        driver.pipe(Topic("right", key=str, value=int), number, key=f"r{number}")
        driver.pipe(Topic("left-a", key=str, value=str), f"r{number}", key=f"l{number}")

    found = driver.read(Topic("out", key=str, value=int))
    assert sorted(found) == [(f"l{number}", number) for number in range(6)]
