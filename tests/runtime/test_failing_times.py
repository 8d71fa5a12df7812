"""A record whose event time cannot be extracted is an error with its place, which the deserialization handler may skip.

As of records that cannot be deserialized: no operator has seen them yet, and the dead letter has their bytes.
"""

import sys
from datetime import UTC, datetime

import pytest

from streams import (
    EmbeddedBroker,
    ErrorHandlerContext,
    HandlerResponse,
    InvalidTimestampError,
    ProcessingError,
    Producer,
    Streams,
    StreamsBuilder,
    Topic,
)
from streams.replay import replay
from streams.testing import TopologyTestDriver
from tests.waiting import WATCHDOG_MS, until

FAST = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10, "metadata_max_age_ms": 20}


class NoTime(datetime):
    """Like NaT of pandas, which is a datetime whose difference to another one has no number of days."""

    def __sub__(self, other):
        return _NoDifference()


class _NoDifference:
    days = seconds = microseconds = float("nan")

    def __eq__(self, other):
        return False


def parsed(value: str) -> datetime:
    """Return a time, like ``pd.to_datetime(value, errors="coerce")``."""
    return datetime.fromtimestamp(int(value), UTC) if value.isdigit() else NoTime(1970, 1, 1)


times = Topic("times", key=str, value=str, timestamp=parsed)
plain = Topic("times", key=str, value=str)
out = Topic("out", key=str, value=str)
dead = Topic("dead", key=bytes, value=bytes)
#: What the error says of the record at offset 1.
PLACE = r"times-0 at offset 1, source 'KSTREAM-SOURCE-000000000[01]': topic 'times'.*: the timestamp extractor failed"


def topology(builder: StreamsBuilder) -> None:
    builder.stream(times).to(out)


class Failing:
    """An extractor of an application, which fails in ``one`` and gives no times for blocks."""

    def block(self, values, timestamps):
        return [None for _ in values]

    def one(self, key, value, timestamp_ms, partition_time_ms):
        return int(value) * 1000


#: Sources whose extractor fails on "n/a".
SOURCES = {
    "function of the topic": lambda builder: builder.stream(times),
    "function of the source": lambda builder: builder.stream(plain, timestamp=lambda key, value, *_: parsed(value)),
    "extractor": lambda builder: builder.stream(plain, timestamp=Failing()),
    "function that returns text": lambda builder: builder.stream(
        plain, timestamp=lambda key, value, *_: int(value) if value.isdigit() else value
    ),
    "table": lambda builder: builder.table(times).to_stream(),
}


def _three(driver):
    for value in ("1", "n/a", "2"):
        driver.pipe(plain, value, key="k", timestamp_ms=7)


@pytest.mark.parametrize("source", SOURCES)
def test_the_error_names_topic_and_offset_and_records_before_it_are_processed(source):
    with TopologyTestDriver(lambda builder: SOURCES[source](builder).to(out)) as driver:
        with pytest.raises(ProcessingError, match=PLACE) as caught:
            _three(driver)

        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("times", 0, 1)
        assert isinstance(caught.value.__cause__, InvalidTimestampError)
        assert driver.read(out) == [("k", "1")]


@pytest.mark.parametrize("source", SOURCES)
def test_a_handler_may_skip_it(source):
    settings = {"deserialization_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}
    with TopologyTestDriver(lambda builder: SOURCES[source](builder).to(out), **settings) as driver:
        _three(driver)

        assert driver.read(out) == [("k", "1"), ("k", "2")]
        assert driver.read(dead) == [(b"k", b"n/a")]
        [drop] = driver.drops()
        assert (drop.reason, drop.count) == ("unreadable, InvalidTimestampError", 1)
        assert "times-0 at offset 1" in drop.example


def test_a_function_is_asked_about_the_record_of_bytes():
    asked: list[tuple[ErrorHandlerContext, object, Exception]] = []

    def handler(context, record, error):
        asked.append((context, record, error))
        return HandlerResponse.resume()

    with TopologyTestDriver(topology, deserialization_handler=handler) as driver:
        _three(driver)

    [(context, record, error)] = asked
    assert (context.topic, context.partition, context.offset) == ("times", 0, 1)
    assert (record.key, record.value, record.timestamp_ms) == (b"k", b"n/a", 7)
    assert isinstance(error, InvalidTimestampError)


@pytest.mark.parametrize("policy", ["fail_on_invalid", "use_partition_time"])
def test_the_handler_is_also_asked_by_the_policies_that_fail(policy):
    """There is no partition time before the first record."""
    with TopologyTestDriver(
        lambda builder: builder.stream(plain, timestamp=policy).to(out), deserialization_handler="continue"
    ) as driver:
        driver.pipe_bytes(plain, b"k", b"1", timestamp_ms=-1)
        driver.pipe(plain, "2", key="k", timestamp_ms=1)

        assert driver.read(out) == [("k", "2")]
        assert [drop.count for drop in driver.drops()] == [1]


def _leave() -> int:
    sys.exit(3)


def test_a_function_that_would_end_the_program_fails_the_task_and_no_handler_is_asked():
    def leaving(builder: StreamsBuilder) -> None:
        builder.stream(plain, timestamp=lambda *_: _leave()).to(out)

    settings = {"deserialization_handler": "continue"}
    with (
        TopologyTestDriver(leaving, **settings) as driver,
        pytest.raises(ProcessingError, match=r"times-0 at offset 0.*SystemExit: 3$"),
    ):
        driver.pipe(plain, "1", key="k", timestamp_ms=1)


@pytest.mark.slow
def test_a_replay_of_files_fails_or_skips_likewise(tmp_path):
    """A row of a file has no offset yet: its line is named."""
    file = tmp_path / "times.txt"
    file.write_text("1\nn/a\n2\n")

    def run(**settings):
        return replay(topology, {times: str(file)}, executor="local", processes=1, application_id="app", **settings)

    with pytest.raises(Exception, match=r"times.txt:2: topic 'times': the timestamp extractor failed"):
        run()
    with run(deserialization_handler="continue") as result:
        assert result.outputs[out].column("value").to_pylist() == ["1", "2"]


@pytest.mark.parametrize("handler", ["fail", "continue"])
def test_a_live_application_fails_or_skips_likewise(handler):
    with EmbeddedBroker() as broker:
        for topic in (times, out):
            broker.create_topic(topic.name, 1)
        with Producer(broker) as producer:
            for value in ("1", "n/a", "2"):
                producer.send(plain, value, key="k", timestamp_ms=7)
        streams = Streams(topology, application_id="app", broker=broker, deserialization_handler=handler, **FAST)
        if handler == "fail":
            with pytest.raises(ProcessingError, match=PLACE), streams:
                streams.wait(WATCHDOG_MS)
        else:
            with streams:
                until(lambda: sum(drop.count for drop in streams.metrics.drops()) == 1)
                until(lambda: streams.metrics.get("process-total") == 2)
