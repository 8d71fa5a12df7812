"""User code that raises what is no ``Exception``: ``sys.exit()``, a cancellation.  It is a failure like any other."""

import asyncio
import logging
import sys
from datetime import timedelta

import pytest

from streams import (
    EmbeddedBroker,
    ProcessingError,
    Processor,
    Producer,
    PunctuationType,
    Record,
    State,
    Streams,
    StreamsBuilder,
    Topic,
    punctuate,
)
from streams.bounded import run_bounded
from streams.clients import ParallelConsumer
from streams.core.blocks.records import Block
from streams.testing import TopologyTestDriver
from tests.waiting import WATCHDOG_MS

words = Topic("words", key=str, value=str, partitions=2)
lengths = Topic("lengths", key=str, value=int, partitions=2)
FAST = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10}


class Leaving(BaseException):
    pass


def length(word):
    match word:
        case "exit":
            sys.exit(0)
        case "cancel":
            raise asyncio.CancelledError
        case "own":
            raise Leaving("bye")
    return len(word)


def measured(builder: StreamsBuilder) -> None:
    builder.stream(words).map_values(length, name="measure").to(lengths)


def read(count, skip):
    """Read two rows, at the second of which the topology would leave."""
    yield [(0, Block([b"k", b"k"], [b"one", b"exit"], [0, 1], None, range(2)))]


def send(broker, *values):
    with Producer(broker) as producer:
        for value in values:
            producer.send(words, value, key="k", timestamp_ms=0)


@pytest.mark.parametrize("handler", ["fail", "continue"])
@pytest.mark.parametrize(
    ("word", "told"), [("exit", "SystemExit: 0"), ("cancel", "CancelledError"), ("own", "Leaving")]
)
def test_function_that_would_end_the_program_fails_the_application(word, told, handler, caplog):
    with EmbeddedBroker() as broker, caplog.at_level(logging.ERROR, "streams"):
        broker.create_topic("words", partitions=2)
        streams = Streams(measured, application_id="a", broker=broker, processing_handler=handler, **FAST)
        with pytest.raises(ProcessingError, match=told) as caught, streams:
            send(broker, "one", word)
            streams.wait(WATCHDOG_MS)
        assert caught.value.node == "measure"
        assert caught.value.offset == 1
        assert streams.state is State.ERROR
        assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_bounded_run_and_driver_fail_likewise():
    with pytest.raises(ProcessingError, match=r"node 'measure'.*SystemExit: 0"):
        run_bounded(measured, {words.name: read}, application_id="a")
    with TopologyTestDriver(measured) as driver, pytest.raises(ProcessingError, match=r"node 'measure'.*SystemExit: 0"):
        driver.pipe(words, "exit", key="k", timestamp_ms=0)


def test_interruption_of_the_driver_stays_one():
    def interrupt() -> None:
        raise KeyboardInterrupt

    def interrupted(builder: StreamsBuilder) -> None:
        builder.stream(words).for_each(lambda _, value: interrupt())

    with TopologyTestDriver(interrupted) as driver, pytest.raises(KeyboardInterrupt):
        driver.pipe(words, "one", key="k", timestamp_ms=0)


def test_punctuation_that_would_end_the_program_is_a_failure_that_no_handler_is_asked_about():
    class Ticking(Processor[str, str, str, str]):
        @punctuate(timedelta(seconds=1), PunctuationType.STREAM_TIME)
        def tick(self, now_ms: int) -> None:
            sys.exit(0)

        def process(self, record: Record[str, str]) -> None: ...

    def ticking(builder: StreamsBuilder) -> None:
        builder.stream(words).process(Ticking, name="ticking")

    with (
        TopologyTestDriver(ticking, processing_handler="continue") as driver,
        pytest.raises(ProcessingError, match=r"node 'ticking', punctuation at 0: SystemExit: 0"),
    ):
        driver.pipe(words, "one", key="k", timestamp_ms=0)


def test_exception_handler_that_would_end_the_program_ends_the_application():
    with EmbeddedBroker() as broker:
        broker.create_topic("words", partitions=2)
        streams = Streams(measured, application_id="a", broker=broker, on_exception=lambda error: sys.exit(1), **FAST)
        with pytest.raises(SystemExit), streams:
            send(broker, "exit")
            streams.wait(WATCHDOG_MS)
        assert streams.state is State.ERROR


def test_state_listener_that_would_end_the_program_is_logged_and_stops_nothing(caplog):
    def listen(new: State, old: State) -> None:
        if new is State.ERROR:
            sys.exit(1)

    with EmbeddedBroker() as broker:
        broker.create_topic("words", partitions=2)
        streams = Streams(measured, application_id="a", broker=broker, on_state=listen, **FAST)
        with pytest.raises(ProcessingError), streams:
            send(broker, "exit")
            streams.wait(WATCHDOG_MS)
        assert streams.state is State.ERROR
        assert any("state listener failed at ERROR" in record.getMessage() for record in caplog.records)


def test_handler_of_a_parallel_consumer_that_would_end_the_program_is_a_failed_attempt():
    with EmbeddedBroker() as broker:
        broker.create_topic("words", partitions=2)
        send(broker, "one")
        consumer = ParallelConsumer(
            broker, "group", [words], lambda record: sys.exit(0), max_attempts=2, auto_offset_reset="earliest"
        )
        with pytest.raises(ProcessingError, match="given up after 2 attempts: SystemExit"):
            consumer.run()
