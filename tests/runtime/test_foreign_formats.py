"""Bytes of another program or release in internal topics that have those of Kafka Streams: an error, never a result."""

from datetime import timedelta
from struct import pack
from typing import Any

import pytest

from streams import (
    EmbeddedBroker,
    ForeignFormatError,
    JoinWindows,
    Producer,
    SessionWindows,
    State,
    Streams,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    TopicPartition,
)
from streams.core.blocks.marks import Format
from streams.core.blocks.records import Block
from tests.comparison.takeover_cases import FAST
from tests.waiting import WATCHDOG_MS, until

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
    table = builder.table(customers, name="versions", history=timedelta(hours=1))
    builder.stream(orders).join(table, lambda one, two: f"{one} {two}", grace=SECOND, name="late").to(joined)


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
        with self.app() as app:
            _await_running(app)

    def app(self) -> Streams:
        """Return the application, which goes on with its topics."""
        given = FAST | MEMORY | self.settings
        return Streams(self.topology, application_id="app", broker=self.broker, **given)

    def topic(self, ending: str) -> TopicPartition:
        """Return partition 0 of the one internal topic whose name ends so."""
        (name,) = [name for name in self.broker.topics() if name.startswith("app-") and name.endswith(ending)]
        return TopicPartition(name, 0)

    def write(self, at: TopicPartition, *records: tuple[bytes, bytes]) -> int:
        """Append what another implementation has written; return the offset of the first record."""
        keys, values = zip(*records, strict=True)
        return self.broker.append(at, Block(list(keys), list(values), [0] * len(records), None, range(len(records))))

    def failure(self) -> ForeignFormatError:
        """Run the application until it fails; nothing may have come out of it."""
        with Producer(self.broker) as producer:
            for time_ms, key in enumerate("abc"):
                producer.send(orders, "c1", key=key, timestamp_ms=time_ms)
                producer.send(customers, "ann", key=key, timestamp_ms=time_ms)
        with pytest.raises(ForeignFormatError) as caught, self.app() as app:
            app.wait(WATCHDOG_MS)
        assert not self.broker.end_offset(TopicPartition(joined.name, 0))
        assert not self.broker.end_offset(TopicPartition(counted.name, 0))
        return caught.value


def _await_running(app: Streams) -> None:
    def is_running() -> bool:
        return app.state is State.RUNNING and all(thread.tasks for thread in app.instance.stream_threads)

    until(is_running, lambda: app.wait(20))


@pytest.fixture
def broker():
    with EmbeddedBroker() as found:
        yield found


@pytest.mark.parametrize(
    ("topology", "ending", "key", "value"),
    [
        # Of an earlier release of streams, and cut off.
        (outer, UNMATCHED, pack(">qB", 5, 1) + b"ann", b"\xf5U\x01\x01" + pack(">i", 2) + b"c1"),
        (outer, UNMATCHED, pack(">qB", 5, 0) + b"ann", pack(">biiB", 1, 2, 3, 0) + b"c1"),
        (suppressed, HELD, b"ann" + pack(">q", 0), b"\xf5S\x01" + bytes(60)),
        (suppressed, HELD, b"ann" + pack(">q", 0), buffer_value(5, pack(">q", 3))),
        (with_grace, WAITING, pack(">q", 5) + b"ann" + pack(">i", 1), b"\xf5W\x01" + bytes(60)),
    ],
)
def test_a_changelog_of_other_bytes_is_refused_with_store_topic_and_offset(broker, topology, ending, key, value):
    place = Place(broker, topology)
    at = place.topic(ending)
    offset = place.write(at, (key, value))

    failure = place.failure()

    assert (failure.topic, failure.partition, failure.offset) == (at.topic, 0, offset)
    assert failure.store in at.topic
    for part in (failure.store, str(at), f"offset {offset}", "Kafka Streams writes it", "application id"):
        assert part in str(failure)


def test_a_suppressed_change_of_an_earlier_release_of_kafka_streams_is_emitted(broker):
    """Of version 0: the time that orders the record, old and new value; no header."""
    place, three = Place(broker, suppressed), pack(">q", 3)
    place.write(place.topic(HELD), (b"ann" + pack(">q", 0), pack(">qii", 1_000, -1, len(three)) + three))

    with Producer(broker) as producer:
        producer.send(orders, "c1", key="bob", timestamp_ms=5_000)
    at = TopicPartition(counted.name, 0)
    with place.app() as app:
        until(lambda: broker.end_offset(at) > 0, lambda: app.wait(20))

    assert broker.read(at, 0)[0].values[0] == three


def test_headers_of_entries_are_said_not_to_be_kept(broker, caplog):
    place = Place(broker, windowed)
    at = place.topic("sums-changelog")
    key, headers = b"ann" + pack(">qi", 0, 0), (("trace", b"1"),)
    offset = broker.append(at, Block([key], [pack(">q", 3)], [0], [headers], range(1)))

    with place.app() as app:
        _await_running(app)
        until(lambda: "headers" in caplog.text, lambda: app.wait(20))

    for part in ("'sums'", str(at), f"from offset {offset}", "timestamped_key_value_store_with_headers"):
        assert part in caplog.text


#: Bytes of an earlier release of streams, text, an unknown version and instruction, and too few of them.
OWN = b"\xf5F\x01\x03" + bytes(25)
NO_SUBSCRIPTIONS = (OWN, b"ann", b"\x02\x03" + HASH, b"\x01\x04" + bytes(25), b"\x01\x03" + HASH)
NO_RESPONSES = (b"\xf5R\x01" + bytes(25), b"ann", b"\x01" + HASH, b"\x00" + HASH[1:], b"")


@pytest.mark.parametrize("value", NO_SUBSCRIPTIONS)
def test_a_changelog_that_has_no_subscriptions_is_refused_with_store_topic_and_offset(broker, value):
    place = Place(broker, foreign_keys)
    at = place.topic(SUBSCRIPTIONS)
    offset = place.write(at, (PLACE, value))

    failure = place.failure()

    assert (failure.topic, failure.partition, failure.offset) == (at.topic, 0, offset)
    for part in (failure.store, str(at), f"offset {offset}", "Kafka Streams writes it", "application id"):
        assert part in str(failure)


def windowed(builder: StreamsBuilder) -> None:
    builder.stream(orders).group_by_key().windowed_by(TimeWindows.of(SECOND)).count("sums")


def sessions(builder: StreamsBuilder) -> None:
    builder.stream(orders).group_by_key().windowed_by(SessionWindows.of(SECOND)).count("sums")


@pytest.mark.parametrize(
    ("topology", "key", "name"),
    [
        (windowed, b"a long key of a table", "WindowKeySchema"),
        (windowed, b"ann", "WindowKeySchema"),
        (sessions, b"a long key of a table", "SessionKeySchema"),
        # The key of a window: its start, and a sequence number.
        (sessions, b"ann" + pack(">qi", 1_700_000_000_000, 0), "SessionKeySchema"),
    ],
)
def test_a_changelog_of_another_kind_of_store_is_refused(broker, topology, key, name):
    place = Place(broker, topology)
    at = place.topic("sums-changelog")
    offset = place.write(at, (key, pack(">q", 3)))

    failure = place.failure()

    assert (failure.store, failure.topic, failure.offset) == ("sums", at.topic, offset)
    for part in (name, str(at), f"offset {offset}", "application id"):
        assert part in str(failure)


@pytest.mark.case(5)
@pytest.mark.parametrize("settings", [{}, {"deserialization_handler": "continue"}])
@pytest.mark.parametrize(
    ("ending", "key", "value"),
    [
        *(("registration-topic", b"c1", value) for value in NO_SUBSCRIPTIONS),
        *(("response-topic", b"ann", value) for value in NO_RESPONSES),
    ],
)
def test_an_internal_topic_of_other_bytes_is_refused_whatever_the_handler(broker, settings, ending, key, value):
    place = Place(broker, foreign_keys, **settings)
    at = place.topic(ending)
    offset = place.write(at, (key, value))

    failure = place.failure()

    assert (failure.topic, failure.partition, failure.offset) == (at.topic, 0, offset)
    for part in (str(at), f"offset {offset}", "Kafka Streams writes it", "application id"):
        assert part in str(failure)


def test_a_later_version_of_our_own_is_refused():
    own = Format("record in a buffer", "Z", 1)

    with pytest.raises(ForeignFormatError, match="of version 2, which another release of streams wrote"):
        own.check(b"\xf5Z\x02" + bytes(40))
