"""The machine's clock, held still: times of records, retention and sessions without waiting."""

from datetime import UTC, datetime, timedelta

from freezegun import freeze_time

from streams import Admin, Consumer, EmbeddedBroker, Producer, SystemClock, TopicPartition

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
    with freeze_time(NOON) as frozen, EmbeddedBroker() as broker, Admin(broker) as admin:
        broker.create_topic("events", 1)
        consumer = Consumer(broker, "group", session_timeout_ms=6_000, heartbeat_interval_ms=1_000)
        consumer.subscribe(["events"])
        while not consumer.assignment():
            consumer.poll(0)
        assert len(admin.describe_group("group").members) == 1

        frozen.tick(timedelta(seconds=6, milliseconds=1))
        assert admin.describe_group("group").members == ()
