"""Functions as handlers are asked about what fails, and what they answer is done (KIP-161, 210, 1033, 1034)."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from streams import (
    ConfigError,
    ConsumerRecord,
    EmbeddedBroker,
    ErrorHandlerContext,
    HandlerError,
    HandlerResponse,
    ProcessingError,
    Processor,
    Producer,
    ProducerRecord,
    PunctuationType,
    Record,
    RecordTooLargeError,
    Streams,
    StreamsBuilder,
    TaskId,
    Topic,
    TopicPartition,
    key_value_store,
)
from streams.clients import RequestTimeoutError
from streams.protocol.messages import Produce
from streams.testing import TopologyTestDriver
from tests.clients.conftest import FaultyCluster
from tests.waiting import WATCHDOG_MS

numbers = Topic("numbers", key=str, value=int)
shares = Topic("shares", key=str, value=int)
dead = Topic("dead", key=bytes, value=bytes)
own = Topic("own", key=bytes, value=bytes)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(numbers).map_values(lambda number: 100 // number, name="divide").to(shares)


class Asked:
    """A handler that keeps what it was asked, and gives one answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[tuple[ErrorHandlerContext, Any, Exception]] = []

    def __call__(self, context: ErrorHandlerContext, record: Any, error: Exception) -> Any:
        self.calls.append((context, record, error))
        return self.answer


# --- which handler is asked, and what it is told ---------------------------------------------


def test_processing_handler_is_asked_with_the_record_of_the_node_and_the_bytes_of_the_source():
    asked = Asked("continue")
    with TopologyTestDriver(topology, processing_handler=asked) as driver:
        driver.pipe(numbers, 0, key="a", timestamp_ms=7, headers=(("h", b"1"),))
        driver.pipe(numbers, 4, key="a", timestamp_ms=8)

        assert driver.read(shares) == [("a", 25)]

    ((context, record, error),) = asked.calls
    assert context == ErrorHandlerContext(
        "divide", TaskId(0, 0), "numbers", 0, 0, 7, (("h", b"1"),), b"a", bytes(8), None, ""
    )
    assert record == Record("a", 0, 7, (("h", b"1"),))
    assert isinstance(error, ZeroDivisionError)


def test_deserialization_handler_is_asked_with_the_bytes():
    asked = Asked("continue")
    with TopologyTestDriver(topology, deserialization_handler=asked) as driver:
        driver.pipe_bytes("numbers", b"a", b"short", 7, (("h", b"1"),))

        assert driver.metric("dropped-records-total") == 1

    ((context, record, _),) = asked.calls
    assert record == ConsumerRecord("numbers", 0, 0, 7, b"a", b"short", (("h", b"1"),))
    assert (context.source_raw_key, context.source_raw_value) == (b"a", b"short")
    assert context.node == "KSTREAM-SOURCE-0000000000"


def small(builder: StreamsBuilder) -> None:
    builder.stream(numbers).map_values(lambda number: 1 << number).to(shares)


def test_production_handler_is_asked_with_the_objects_that_do_not_become_bytes():
    asked = Asked("continue")
    with TopologyTestDriver(small, production_handler=asked) as driver:
        driver.pipe(numbers, 64, key="a", timestamp_ms=7)
        driver.pipe(numbers, 3, key="a", timestamp_ms=8)

        assert driver.read(shares) == [("a", 8)]

    ((context, record, _),) = asked.calls
    assert record == ProducerRecord("shares", "a", 1 << 64, 7)
    assert (context.origin, context.offset) == ("value", 0)


class Ticking(Processor[str, int, str, int]):
    def init(self, context):
        super().init(context)
        context.schedule(timedelta(milliseconds=10), PunctuationType.WALL_CLOCK_TIME, self.tick)

    def tick(self, now_ms: int) -> None:
        raise ValueError(f"tick at {now_ms}")

    def process(self, record: Record[str, int]) -> None:
        raise AssertionError


def test_processing_handler_is_asked_about_punctuations_without_a_record():
    asked = Asked("continue")
    settings = {"processing_handler": asked, "errors_dead_letter_queue_topic_name": "dead"}
    with TopologyTestDriver(
        lambda builder: builder.stream(numbers).process(Ticking, name="ticking"), **settings
    ) as driver:
        driver.advance_wall_clock(10)

        (letter,) = driver.read_records(dead)
        assert driver.metric("dropped-records-total", "ticking") == 1

    ((context, record, error),) = asked.calls
    assert (context.node, context.topic, context.partition, context.offset) == ("ticking", None, -1, -1)
    assert (context.timestamp_ms, record, str(error)) == (10, None, "tick at 10")
    assert (letter.key, letter.value) == (None, None)
    assert dict(letter.headers)["__streams.errors.message"] == b"tick at 10"


def test_processing_handler_is_called_only_for_the_node_that_failed():
    asked = Asked("fail")

    def chain(builder: StreamsBuilder) -> None:
        stream = builder.stream(numbers).filter(lambda key, value: True, name="first")
        stream = stream.peek(lambda key, value: None, name="second")
        stream.map_values(lambda value: 1 // value, name="third").to(shares)

    with TopologyTestDriver(chain, processing_handler=asked) as driver:
        with pytest.raises(ProcessingError, match="node 'third' at numbers-0 offset 0: ZeroDivisionError") as caught:
            driver.pipe(numbers, 0, key="a", timestamp_ms=1)

    assert [context.node for context, _, _ in asked.calls] == ["third"]
    assert (caught.value.node, caught.value.offset) == ("third", 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


# --- what it may answer ----------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["fail", HandlerResponse.fail()])
def test_fail_ends_the_task_and_keeps_the_record(answer):
    with TopologyTestDriver(topology, processing_handler=Asked(answer)) as driver:
        with pytest.raises(ProcessingError, match="ZeroDivisionError"):
            driver.pipe(numbers, 0, key="a", timestamp_ms=1)
        assert driver.metric("dropped-records-total") == 0
    with TopologyTestDriver(topology, deserialization_handler=Asked(answer)) as driver:
        with pytest.raises(ProcessingError, match=r"numbers-0 at offset 0.*cannot read 5 bytes"):
            driver.pipe_bytes("numbers", b"a", b"short", 7)
        assert driver.metric("dropped-records-total") == 0


def test_text_returned_by_a_handler_acts_as_that_value_of_the_setting():
    """Skipped records are sent to the dead letter topic."""
    found = []
    for handler in ("continue", lambda context, record, error: "continue"):
        settings = {"processing_handler": handler, "errors_dead_letter_queue_topic_name": "dead"}
        with TopologyTestDriver(topology, **settings) as driver:
            driver.pipe(numbers, 0, key="a", timestamp_ms=1)
            found.append([(letter.key, letter.value) for letter in driver.read_records(dead)])

    assert found == [[(b"a", bytes(8))]] * 2


def test_response_sends_its_own_dead_letters_and_no_others():
    def handler(context: ErrorHandlerContext, record: Any, error: Exception) -> HandlerResponse:
        if record.key == "silent":
            return HandlerResponse.resume()
        letter = ProducerRecord("own", b"k", repr(error).encode(), 5, (("x", b"y"),))
        return HandlerResponse.resume([letter, context.dead_letter(error)])

    settings = {"processing_handler": handler, "errors_dead_letter_queue_topic_name": "dead"}
    with TopologyTestDriver(topology, **settings) as driver:
        driver.pipe(numbers, 0, key="silent", timestamp_ms=1)
        driver.pipe(numbers, 0, key="a", timestamp_ms=1)

        (mine,) = driver.read_records(own)
        (letter,) = driver.read_records(dead)

    assert (mine.key, mine.timestamp_ms, mine.headers) == (b"k", 5, (("x", b"y"),))
    assert letter.key == b"a"


def test_dead_letters_of_a_failure_are_written_before_the_end():
    def handler(context: ErrorHandlerContext, record: Any, error: Exception) -> HandlerResponse:
        return HandlerResponse.fail([context.dead_letter(error, topic="own")])

    with TopologyTestDriver(topology, processing_handler=handler) as driver:
        with pytest.raises(ProcessingError):
            driver.pipe(numbers, 0, key="a", timestamp_ms=1)

        assert [letter.key for letter in driver.read_records(own)] == [b"a"]


@pytest.mark.parametrize("answer", [None, True, "skip", "retry", HandlerResponse.retry()])
@pytest.mark.parametrize("setting", ["processing_handler", "deserialization_handler"])
def test_any_other_answer_is_an_error_that_names_the_handler(setting, answer):
    with TopologyTestDriver(topology, **{setting: Asked(answer)}) as driver:
        with pytest.raises(HandlerError, match=f"{setting} .*Asked.* returned .*it must return") as caught:
            if setting == "processing_handler":
                driver.pipe(numbers, 0, key="a", timestamp_ms=1)
            else:
                driver.pipe_bytes("numbers", b"a", b"short", 7)

    assert (caught.value.setting, caught.value.offset) == (setting, 0)


def test_handler_that_fails_is_an_error_that_tells_both():
    def broken(context, record, error):
        raise LookupError("no such table")

    with TopologyTestDriver(topology, processing_handler=broken) as driver:
        with pytest.raises(HandlerError, match=r"failed: LookupError: no such table.*ZeroDivisionError") as caught:
            driver.pipe(numbers, 0, key="a", timestamp_ms=1)

    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize(
    "letter", ["text", ProducerRecord("own", "text", b"", 1), ProducerRecord("", b"", b"", 1)], ids=repr
)
def test_dead_letter_that_is_no_record_of_bytes_is_an_error(letter):
    with TopologyTestDriver(topology, processing_handler=Asked(HandlerResponse.resume([letter]))) as driver:
        with pytest.raises(HandlerError, match="must be a ProducerRecord"):
            driver.pipe(numbers, 0, key="a", timestamp_ms=1)


def test_dead_letter_needs_a_topic():
    with TopologyTestDriver(
        topology, processing_handler=lambda context, record, error: HandlerResponse.resume([context.dead_letter(error)])
    ) as driver:
        with pytest.raises(HandlerError, match="errors_dead_letter_queue_topic_name"):
            driver.pipe(numbers, 0, key="a", timestamp_ms=1)


async def awaited(context, record, error):
    return "continue"


def generated(context, record, error):
    yield "continue"


class Awaited:
    async def __call__(self, context, record, error):
        return "continue"


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (awaited, "is async"),
        (Awaited(), "is async"),
        (generated, "is a generator"),
        (Asked, "is a class"),
        (lambda error: "continue", r"takes \(error\); give a function of \(context, record, error\)"),
        (object(), "expected fail or continue, or a function"),
    ],
)
@pytest.mark.parametrize("setting", ["processing_handler", "deserialization_handler", "production_handler"])
def test_invalid_handler_is_rejected_when_the_setting_is_given(setting, handler, message):
    with pytest.raises(ConfigError, match=message):
        TopologyTestDriver(topology, **{setting: handler})


# --- live --------------------------------------------------------------------------------------


def _closed(streams: Streams) -> None:
    # What has ended it is raised again.
    with suppress(ProcessingError):
        streams.close()


@pytest.fixture(params=["at_least_once", "exactly_once_v2"])
def live(request):
    """Run a topology live over some records until something is so; return the application and its broker."""

    def run(
        application: Any,
        rows: list[tuple[bytes, bytes]],
        until: Callable[[EmbeddedBroker], bool],
        topic_config: Mapping[str, Mapping[str, str]] | None = None,
        **settings: Any,
    ) -> tuple[Streams, EmbeddedBroker]:
        broker = EmbeddedBroker()
        request.addfinalizer(broker.close)
        for name in ("numbers", "shares", "dead", "own"):
            broker.create_topic(name, 1, (topic_config or {}).get(name))
        with Producer(broker) as producer:
            for key, value in rows:
                producer.send("numbers", value, key=key)
        streams = Streams(
            application,
            application_id="handled",
            broker=broker,
            processing_guarantee=request.param,
            commit_interval_ms=10,
            **settings,
        )
        request.addfinalizer(lambda: _closed(streams))
        streams.start()
        while not (until(broker) or streams.wait(5)):
            pass
        return streams, broker

    return run


def _values(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    blocks = broker.read(TopicPartition(topic, 0), 0, committed_only=True)
    return [value for block in blocks for value in block.values]


ONE, ZERO, BAD = (1).to_bytes(8, "big"), bytes(8), b"short"


def test_live_application_asks_and_goes_on(live):
    processing, reading = Asked("continue"), Asked("continue")

    streams, broker = live(
        topology,
        [(b"a", ONE), (b"b", ZERO), (b"c", BAD), (b"d", ONE)],
        lambda broker: len(_values(broker, "shares")) == len(_values(broker, "dead")) == 2,
        processing_handler=processing,
        deserialization_handler=reading,
        errors_dead_letter_queue_topic_name="dead",
    )

    assert [context.offset for context, _, _ in processing.calls] == [1]
    assert [context.offset for context, _, _ in reading.calls] == [2]
    assert len(_values(broker, "shares")) == 2
    assert sorted(_values(broker, "dead")) == [ZERO, BAD]
    assert [(found.node, found.reason) for found in streams.metrics.drops()] == [
        ("divide", "failed, ZeroDivisionError"),
        ("KSTREAM-SOURCE-0000000000", "unreadable, SerializationError"),
    ]


def test_live_application_that_a_handler_ends_has_not_counted_the_record(live):
    def handler(context: ErrorHandlerContext, record: Any, error: Exception) -> HandlerResponse:
        return HandlerResponse.fail([context.dead_letter(error, topic="own")])

    rows = [(b"a", ONE), (b"b", ZERO), (b"c", ONE)]
    with pytest.raises(ProcessingError, match="node 'divide' at numbers-0 offset 1: ZeroDivisionError"):
        live(topology, rows, lambda broker: False, processing_handler=handler)


# --- what cannot be sent ----------------------------------------------------------------------

lengths = Topic("numbers", key=bytes, value=bytes)
longest = Topic("shares", key=bytes, value=bytes)


def stretched(builder: StreamsBuilder) -> None:
    """Values of as many bytes as their first byte says, in hundreds."""
    builder.stream(lengths).map_values(lambda value: bytes(100 * value[0])).to(longest, name="stretched-sink")


@pytest.mark.parametrize("bound", ["producer", "broker"])
def test_production_handler_is_called_for_records_that_are_too_large(live, bound, request):
    """One of several records is too large, for the topic or for the producer; only the latter also in a transaction."""
    if bound == "broker" and "exactly_once_v2" in request.node.name:
        pytest.skip("what the broker refuses of a transaction ends it")
    asked = Asked("continue")

    _, broker = live(
        stretched,
        [(b"a", b"\x01"), (b"b", b"\x09"), (b"c", b"\x02")],
        lambda broker: len(_values(broker, "shares")) == 2 and asked.calls,
        production_handler=asked,
        topic_config={"shares": {"max.message.bytes": "500"}} if bound == "broker" else {},
        **({"max_request_bytes": 500} if bound == "producer" else {}),
    )

    assert list(map(len, _values(broker, "shares"))) == [100, 200]
    ((context, record, error),) = asked.calls
    assert (context.node, context.origin, context.topic) == ("stretched-sink", "send", None)
    assert (record.topic, record.key, len(record.value)) == ("shares", b"b", 900)
    assert isinstance(error, RecordTooLargeError)


@pytest.mark.parametrize("bound", ["producer", "broker"])
def test_record_that_cannot_be_sent_ends_the_application_with_its_place(live, bound):
    """Also in a transaction, where it would be tried for ever."""
    with pytest.raises(ProcessingError, match="a record of 901 bytes for topic 'shares' cannot be written") as caught:
        live(
            stretched,
            [(b"a", b"\x01"), (b"b", b"\x09")],
            lambda broker: False,
            topic_config={"shares": {"max.message.bytes": "500"}} if bound == "broker" else {},
            **({"max_request_bytes": 500} if bound == "producer" else {}),
        )

    assert caught.value.node == "stretched-sink"
    assert isinstance(caught.value.__cause__, RecordTooLargeError)


def test_dead_letter_of_a_handler_for_an_unsendable_record_is_sent(live):
    def handler(context: ErrorHandlerContext, record: Any, error: Exception) -> HandlerResponse:
        return HandlerResponse.resume([ProducerRecord("own", record.key, b"too large", record.timestamp_ms)])

    _, broker = live(
        stretched,
        [(b"b", b"\x09")],
        lambda broker: _values(broker, "own") == [b"too large"],
        production_handler=handler,
        max_request_bytes=500,
    )

    assert _values(broker, "shares") == []


@pytest.mark.parametrize("answer", ["retry", "fail", "continue"])
def test_production_handler_is_called_for_records_that_time_out(answer):
    """KIP-1065; the broker does not respond to requests for the sink topic until the handler has been called."""
    asked = Asked(answer)
    with EmbeddedBroker() as broker:
        for name in ("numbers", "shares"):
            broker.create_topic(name, 1)
        with Producer(broker) as producer:
            producer.send(numbers, 4, key="a").result()
        cluster = FaultyCluster(broker, lambda request: isinstance(request, Produce) and not asked.calls)
        settings = {"delivery_timeout_ms": 20, "poll_ms": 5, "production_handler": asked, "commit_interval_ms": 5}
        streams = Streams(topology, application_id="slow", broker=cluster, **settings)
        streams.start()
        try:
            if answer == "fail":
                with pytest.raises(ProcessingError, match="for topic 'shares' cannot be written"):
                    streams.wait(WATCHDOG_MS)
            elif answer == "retry":
                while not _values(broker, "shares"):
                    assert not streams.wait(5)
            else:
                while not streams.metrics.get("commit-total"):
                    assert not streams.wait(5)
                assert streams.metrics.get("dropped-records-total") == 1
                assert _values(broker, "shares") == []
        finally:
            _closed(streams)

    context, record, error = asked.calls[0]
    assert (context.origin, record.topic, record.key) == ("send", "shares", b"a")
    assert isinstance(error, RequestTimeoutError)


class _Strict(Processor[str, int, None, None]):
    def process(self, record: Record[str, int]) -> None:
        if record.value < 0:
            raise ValueError("below zero")
        self.context.store("stored").put(record.key, record.value)


def _strict(builder: StreamsBuilder) -> None:
    builder.add_global_store(key_value_store(str, int, "stored"), numbers, _Strict, name="strict")


def test_global_store_asks_the_processing_handler_if_that_is_enabled():
    asked = Asked("continue")
    settings = {"processing_handler": asked, "processing_exception_handler_global_enabled": True}

    with TopologyTestDriver(_strict, **settings) as driver:
        driver.pipe(numbers, -1, key="a", timestamp_ms=7)
        driver.pipe(numbers, 4, key="b", timestamp_ms=8)

        assert dict(driver.store("stored").all()) == {"b": 4}
        assert driver.metric("dropped-records-total") == 1

    assert [(context.offset, record.value) for context, record, _ in asked.calls] == [(0, -1)]


def test_global_store_does_not_ask_the_processing_handler_by_default():
    asked = Asked("continue")
    with TopologyTestDriver(_strict, processing_handler=asked) as driver, pytest.raises(ProcessingError, match="below"):
        driver.pipe(numbers, -1, key="a", timestamp_ms=7)

    assert asked.calls == []


def test_global_store_asks_about_what_cannot_be_read_and_writes_no_dead_letters(caplog):
    asked = Asked(HandlerResponse.resume([ProducerRecord("own", b"k", b"v", 1)]))

    def application(builder: StreamsBuilder) -> None:
        builder.global_table(numbers, store="all")

    with TopologyTestDriver(application, deserialization_handler=asked) as driver:
        driver.pipe_bytes("numbers", b"a", b"short", 7)
        driver.pipe(numbers, 4, key="b", timestamp_ms=8)

        assert driver.store("all").get("b") is not None
        assert driver.read_bytes("own") == []
        assert driver.metric("dropped-records-total") == 1

    assert [context.offset for context, _, _ in asked.calls] == [0]
    assert any("its dead letters are not written" in message for message in caplog.messages)
