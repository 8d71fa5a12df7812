"""The machine's clock, held still: times of records, retention and sessions without waiting."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from freezegun import freeze_time

from streams import (
    Admin,
    Consumer,
    EmbeddedBroker,
    Processor,
    Producer,
    PunctuationType,
    Record,
    Streams,
    StreamsBuilder,
    SystemClock,
    Topic,
    TopicPartition,
    Topology,
    VirtualClock,
    punctuate,
)
from streams.core.serdes.serdes import LONG
from tests import waiting

P0 = TopicPartition("events", 0)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_system_clock_shows_epoch_milliseconds():
    with freeze_time(NOON):
        assert SystemClock().now_ms() == int(NOON.timestamp() * 1000)


def test_record_without_a_time_gets_that_of_its_sending():
    with freeze_time(NOON) as frozen, EmbeddedBroker() as broker, Producer(broker) as producer:
        broker.create_topic("events", 1)
        producer.send("events", b"first")
        frozen.tick(timedelta(seconds=90))
        producer.send("events", b"second")
        producer.flush()

        first, second = (time for block in broker.read(P0, 0) for time in block.timestamps)
        assert first == int(NOON.timestamp() * 1000)
        assert second - first == 90_000


def test_records_older_than_the_retention_go_when_the_time_has_come(tmp_path):
    config = {"retention.ms": "60000", "segment.bytes": "65536"}
    with freeze_time(NOON) as frozen, EmbeddedBroker(tmp_path) as broker, Producer(broker) as producer:
        broker.create_topic("events", 1, config)
        for _ in range(3):
            producer.send("events", b"x" * 100_000)
            producer.flush()
            frozen.tick(timedelta(seconds=40))
        broker.maintain()
        kept = [time for block in broker.read(P0, broker.start_offset(P0)) for time in block.timestamps]

        assert kept == [int(NOON.timestamp() * 1000) + 80_000]


def test_member_that_says_nothing_for_its_session_is_out():
    """Sessions are of monotonic time, which a frozen clock does not hold still; a virtual clock does."""
    clock = VirtualClock()
    with EmbeddedBroker(clock=clock) as broker, Admin(broker) as admin:
        broker.create_topic("events", 1)
        consumer = Consumer(broker, "group", session_timeout_ms=6_000, heartbeat_interval_ms=1_000)
        consumer.subscribe(["events"])
        while not consumer.assignment():
            consumer.poll(0)
        assert len(admin.describe_group("group").members) == 1

        clock.advance(6_001)
        assert admin.describe_group("group").members == ()


@pytest.fixture(params=["embedded", "tcp"])
def where(request: pytest.FixtureRequest) -> Iterator[tuple[EmbeddedBroker, dict[str, Any]]]:
    with EmbeddedBroker() as broker:
        broker.create_topic("events", 1)
        if request.param == "embedded":
            yield broker, {"broker": broker}
            return
        with broker.serve("127.0.0.1:0") as server:
            yield broker, {"bootstrap_servers": server.address}


@pytest.mark.parametrize("options", [{}, {"tick": True}], ids=["frozen", "ticking"])
def test_clients_wait_as_long_as_they_are_told_to(where, options):
    _broker, server = where
    with (
        freeze_time(NOON, **options),
        Producer(**server) as producer,
        Consumer(**server, group_id="g", auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe(["events"])
        producer.send("events", b"first")
        producer.flush()
        while not (records := list(consumer.poll(50))):
            pass
        assert [record.value for record in records] == [b"first"]
        assert not consumer.poll(50)
        consumer.commit_sync()


def test_clients_of_coroutines_wait_as_long_as_they_are_told_to(where):
    _, server = where

    async def read() -> bytes | None:
        async with (
            Producer(**server) as producer,
            Consumer(**server, group_id="g", auto_offset_reset="earliest") as consumer,
        ):
            await consumer.subscribe(["events"])
            await producer.send("events", b"first")
            while not (records := await consumer.poll(50)):
                pass
            assert not await consumer.poll(50)
            return records[0].value

    with freeze_time(NOON):
        assert asyncio.run(read()) == b"first"


async def _doubled(number: int) -> int:
    await asyncio.sleep(0.001)
    return 2 * number


def test_an_application_makes_progress_and_has_the_frozen_time(where):
    """Its async functions too, and punctuations of the wall clock are due when the test says so."""
    broker, server = where
    numbers = Topic("numbers", key=str, value=int)
    doubles = Topic("doubles", key=str, value=int)
    builder = StreamsBuilder()
    builder.stream(numbers).map_values_async(_doubled).to(doubles)
    for topic in (numbers, doubles):
        broker.create_topic(topic, partitions=1)
    with freeze_time(NOON), Streams(builder.build(), application_id="app", commit_interval_ms=20, **server):
        with Producer(**server) as producer:
            producer.send(numbers, 4, key="a")
        waiting.until(lambda: list(broker.read(TopicPartition("doubles", 0), 0)))
    block = next(iter(broker.read(TopicPartition("doubles", 0), 0)))
    assert (LONG.deserialize(block.values[0]), block.timestamps[0]) == (8, int(NOON.timestamp() * 1000))


NOON_MS = int(NOON.timestamp() * 1000)
ticks: Topic[str, int] = Topic("ticks", key=str, value=int)
seen: Topic[str, dict[str, int]] = Topic("seen", key=str, value=dict[str, int])


class Stamper(Processor[str, int, str, dict[str, int]]):
    """Says the times that a processor sees: of a record, and of a punctuation of the wall clock."""

    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record.key, {"record": record.timestamp_ms})

    @punctuate(timedelta(seconds=30), PunctuationType.WALL_CLOCK_TIME)
    def look(self, now_ms: int) -> None:
        self.context.forward("punctuation", {"now": now_ms})


def stamped() -> Topology:
    builder = StreamsBuilder()
    builder.stream(ticks).process(Stamper).to(seen)
    return builder.build()


#: Options of ``freeze_time``: how the clock goes on, and by how much at most in one test.
CLOCKS: dict[str, tuple[dict[str, Any], int]] = {
    "frozen": ({}, 0),
    "ticking": ({"tick": True}, waiting.WATCHDOG_MS),
    "each reading": ({"auto_tick_seconds": 1}, 10**9),
}


clocks = pytest.mark.parametrize(("options", "most_ms"), CLOCKS.values(), ids=CLOCKS)


def is_frozen(time_ms: int, most_ms: int) -> bool:
    return NOON_MS <= time_ms <= NOON_MS + most_ms


@clocks
def test_times_of_processors_are_those_of_the_driver(options, most_ms, driver):
    """The fixture is that of the product's plugin; the clock of a driver is virtual."""
    with freeze_time(NOON, **options), driver(stamped(), now_ms=NOON_MS) as one:
        one.pipe(ticks, 1, key="a")
        one.advance_wall_clock(30_000)
        assert one.read(seen) == [("a", {"record": NOON_MS}), ("punctuation", {"now": NOON_MS + 30_000})]


@clocks
def test_times_of_processors_are_frozen_in_an_application(options, most_ms, where):
    broker, server = where
    for topic in (ticks, seen):
        broker.create_topic(topic, partitions=1)

    def read() -> dict[str, dict[str, int]]:
        blocks = broker.read(TopicPartition("seen", 0), 0)
        rows = [row for block in blocks for row in zip(block.keys, block.values, strict=True)]
        return {key.decode(): seen.value_serde.deserialize(value) for key, value in rows}

    with (
        freeze_time(NOON, **options) as clock,
        Streams(stamped(), application_id="app", commit_interval_ms=20, **server),
        Producer(**server) as producer,
    ):
        producer.send(ticks, 1, key="a")
        waiting.until(lambda: "a" in read())
        assert is_frozen(read()["a"]["record"], most_ms)
        clock.tick(timedelta(seconds=30))
        waiting.until(lambda: "punctuation" in read())
    assert is_frozen(read()["punctuation"]["now"] - 30_000, most_ms + 30_000)


@clocks
def test_a_transaction_is_committed(options, most_ms, where):
    _, server = where
    with freeze_time(NOON, **options), Producer(**server, transactional_id="t") as producer:
        producer.init_transactions()
        for value in (b"aborted", b"committed"):
            producer.begin_transaction()
            producer.send("events", value)
            producer.abort_transaction() if value == b"aborted" else producer.commit_transaction()
    with (
        freeze_time(NOON, **options),
        Consumer(**server, isolation_level="read_committed", auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([P0])
        while not (records := list(consumer.poll(50))):
            pass
    assert [record.value for record in records] == [b"committed"]
    assert is_frozen(records[0].timestamp_ms, most_ms)


@clocks
def test_consumers_join_and_leave_a_group(options, most_ms, where):
    broker, server = where
    broker.create_topic("many", 4)
    member = {"group_id": "g", "heartbeat_interval_ms": 50, **server}
    with freeze_time(NOON, **options), Consumer(**member) as first:
        first.subscribe(["many"])
        with Consumer(**member) as second:
            second.subscribe(["many"])

            def turn() -> None:
                first.poll(5)
                second.poll(5)

            waiting.until(lambda: len(first.assignment()) == len(second.assignment()) == 2, turn)
        waiting.until(lambda: len(first.assignment()) == 4, lambda: first.poll(5))
