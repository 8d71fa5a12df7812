"""Bytes of Kafka Streams, or of another release, where only this library writes: an error, never a result.

The bytes are built by hand from the layout of Kafka Streams' serializers (``SubscriptionWrapperSerde``,
``SubscriptionResponseWrapperSerde``, ``LeftOrRightValueSerializer``, ``BufferValue``, ``ChangedSerializer``).
"""

from datetime import timedelta
from struct import pack
from typing import Any

import pytest

from streams import (
    EmbeddedBroker,
    ForeignFormatError,
    JoinWindows,
    Producer,
    State,
    Streams,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    TopicPartition,
)
from streams.core.records import Block, Headers
from tests.comparison.takeover_cases import FAST
from tests.waiting import WATCHDOG_MS

orders = Topic("orders", key=str, value=str)
customers = Topic("customers", key=str, value=str)
joined = Topic("joined", key=str, value=str)
counted = Topic("counted", key=bytes, value=int)

MEMORY = {"default_store": "in_memory", "processing_guarantee": "at_least_once"}
SUBSCRIPTIONS, UNMATCHED = "fk-subscription-store-changelog", "shared-join-store-changelog"
HELD, WAITING = "held-store-changelog", "late-Buffer-changelog"
HASH = bytes(range(16))
SECOND = timedelta(seconds=1)
#: An order "ann" of customer "c1", as the subscription store's key has it: length of the foreign key, both keys.
PLACE = pack(">i", 2) + b"c1" + b"ann"


def foreign_keys(builder: StreamsBuilder) -> None:
    left, right = builder.table(orders), builder.table(customers)
    found = left.join(right, lambda one, two: f"{one} {two}", foreign_key=lambda k, v: v, name="fk")
    found.to_stream().to(joined)


def outer(builder: StreamsBuilder) -> None:
    windows = JoinWindows.of(SECOND)
    left, right = builder.stream(orders), builder.stream(customers)
    left.outer_join(right, lambda one, two: f"{one} {two}", windows, name="pairs", store="pairs").to(joined)


def suppressed(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(SECOND)
    counts = builder.stream(orders).group_by_key().windowed_by(windows).count("sums")
    counts.suppress(Suppressed.until_window_closes(), name="held").to_stream().map(lambda k, v: (b"x", v)).to(counted)


def with_grace(builder: StreamsBuilder) -> None:
    table = builder.table(customers, "versions", history=timedelta(hours=1))
    builder.stream(orders).join(table, lambda one, two: f"{one} {two}", grace=SECOND, name="late").to(joined)


def subscription(version: int, value_hash: bytes | None, instruction: int, key: bytes, partition: int) -> bytes:
    """Return the bytes of SubscriptionWrapperSerde, versions 0 (to 3.3) and 1."""
    head = bytes((version | (0x80 if value_hash is None else 0), instruction)) + (value_hash or b"")
    return head + key + (pack(">i", partition) if version else b"")


def response(value_hash: bytes | None, value: bytes) -> bytes:
    """Return the bytes of SubscriptionResponseWrapperSerde."""
    return bytes((0 if value_hash else 0x80,)) + (value_hash or b"") + value


def context(time_ms: int, topic: bytes) -> bytes:
    """Return the bytes of ProcessorRecordContext: time, offset, topic, partition, number of headers."""
    return pack(">qqi", time_ms, 7, len(topic)) + topic + pack(">ii", 0, 0)


def buffer_value(time_ms: int, new: bytes) -> bytes:
    """Return the bytes of BufferValue: context, then prior (none), old (as prior) and new value with their lengths."""
    return context(time_ms, b"orders") + pack(">iii", -1, -2, len(new)) + new


class Place:
    """A broker on which an application has run before, and left its topics."""

    def __init__(self, broker: EmbeddedBroker, topology: Any, **settings: Any) -> None:
        self.broker, self.topology, self.settings = broker, topology, settings
        for topic in (orders, customers, joined, counted):
            broker.create_topic(topic.name)
        with self._app() as app:
            _await_running(app)

    def _app(self) -> Streams:
        given = FAST | MEMORY | self.settings
        return Streams(self.topology, application_id="app", broker=self.broker, **given)

    def topic(self, ending: str) -> TopicPartition:
        """Return partition 0 of the one internal topic whose name ends so."""
        (name,) = [name for name in self.broker.topics() if name.startswith("app-") and name.endswith(ending)]
        return TopicPartition(name, 0)

    def write(self, at: TopicPartition, *records: tuple[bytes, bytes], headers: Headers | None = None) -> int:
        """Append what another implementation has written; return the offset of the first record."""
        keys, values = zip(*records, strict=True)
        own = None if headers is None else [headers] * len(records)
        return self.broker.append(at, Block(list(keys), list(values), [0] * len(records), own, range(len(records))))

    def failure(self) -> ForeignFormatError:
        """Run the application until it fails; nothing may have come out of it."""
        with Producer(self.broker) as producer:
            for time_ms, key in enumerate("abc"):
                producer.send(orders, "c1", key=key, timestamp_ms=time_ms)
                producer.send(customers, "ann", key=key, timestamp_ms=time_ms)
        with pytest.raises(ForeignFormatError) as caught, self._app() as app:
            app.wait(WATCHDOG_MS)
        assert not self.broker.end_offset(TopicPartition(joined.name, 0))
        assert not self.broker.end_offset(TopicPartition(counted.name, 0))
        return caught.value


def _await_running(app: Streams) -> None:
    for _ in range(3000):
        threads = app.instance.stream_threads
        if app.state is State.RUNNING and all(thread.tasks for thread in threads):
            return
        app.wait(20)
    raise AssertionError("never ran")


@pytest.fixture
def broker():
    with EmbeddedBroker() as found:
        yield found


@pytest.mark.parametrize(
    ("topology", "ending", "key", "value", "headers", "counterpart"),
    [
        (foreign_keys, SUBSCRIPTIONS, PLACE, subscription(1, HASH, 3, b"ann", 0), None, "SubscriptionWrapper"),
        (foreign_keys, SUBSCRIPTIONS, PLACE, subscription(0, HASH, 3, b"ann", 0), None, "SubscriptionWrapper"),
        (foreign_keys, SUBSCRIPTIONS, PLACE, subscription(1, None, 2, b"ann", 0), None, "SubscriptionWrapper"),
        (outer, UNMATCHED, pack(">qB", 5, 1) + b"ann", b"\x01c1", None, "LeftOrRightValue"),
        (outer, UNMATCHED, pack(">qB", 5, 0) + b"ann", b"\x00c1", None, "LeftOrRightValue"),
        (suppressed, HELD, b"ann" + pack(">q", 0), buffer_value(5, pack(">q", 3)) + pack(">q", 0),
         (("v", b"\x03"),), "BufferValue"),
        (with_grace, WAITING, pack(">q", 5) + b"ann" + pack(">i", 1), buffer_value(5, b"c1"), None, "BufferValue"),
    ],
)  # fmt: skip
def test_a_changelog_of_kafka_streams_is_refused_with_store_topic_and_offset(
    broker, topology, ending, key, value, headers, counterpart
):
    place = Place(broker, topology)
    at = place.topic(ending)
    offset = place.write(at, (key, value), headers=headers)

    failure = place.failure()

    assert (failure.topic, failure.partition, failure.offset) == (at.topic, 0, offset)
    assert failure.store in at.topic
    for part in (failure.store, str(at), f"offset {offset}", f"Kafka Streams' ({counterpart})", "application id"):
        assert part in str(failure)


@pytest.mark.parametrize("settings", [{}, {"deserialization_handler": "continue"}])
@pytest.mark.parametrize(
    ("ending", "key", "value", "counterpart"),
    [
        ("registration-topic", b"c1", subscription(1, HASH, 2, b"ann", 0), "SubscriptionWrapper"),
        ("registration-topic", b"c1", subscription(0, None, 2, b"ann", 0), "SubscriptionWrapper"),
        ("response-topic", b"ann", response(HASH, b"x"), "SubscriptionResponseWrapper"),
        ("response-topic", b"ann", response(None, b"x"), "SubscriptionResponseWrapper"),
    ],
)
def test_an_internal_topic_of_kafka_streams_is_refused_whatever_the_handler(
    broker, settings, ending, key, value, counterpart
):
    place = Place(broker, foreign_keys, **settings)
    at = place.topic(ending)
    offset = place.write(at, (key, value))

    failure = place.failure()

    assert (failure.topic, failure.partition, failure.offset) == (at.topic, 0, offset)
    for part in (str(at), f"offset {offset}", f"Kafka Streams' ({counterpart})", "application id"):
        assert part in str(failure)


def test_a_later_version_of_our_own_is_refused(broker):
    place = Place(broker, foreign_keys)
    at = place.topic("response-topic")
    place.write(at, (b"ann", b"\xf5R\x02" + bytes(40)))

    assert "they are of version 2, which another release of streams wrote" in str(place.failure())
