"""Records put into a real Kafka and taken out again, by another client than ours (confluent-kafka)."""

from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.waiting import WATCHDOG_MS, WATCHDOG_S

#: Ends of changelogs with a sequence number at the end of each key, which Kafka Streams starts again with the process.
NUMBERED = ("-this-join-store-changelog", "-other-join-store-changelog", "-Buffer-changelog")


class Stored(NamedTuple):
    """A record as Kafka keeps it; its offset is that within its partition, headers keep their order."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def create_topic(bootstrap_servers: str, topic: str, partitions: int = 1) -> None:
    """Create a topic and wait until it is there."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    made = admin.create_topics(
        [NewTopic(topic, partitions, 1)], operation_timeout=WATCHDOG_S, request_timeout=WATCHDOG_S
    )
    made[topic].result(WATCHDOG_S)


def put(bootstrap_servers: str, topic: str, records: list[Stored]) -> None:
    """Append records in their order, and wait until the log has them where they say they are.

    Raises:
        KafkaException: a record was refused.
        AssertionError: a record got another offset than its own, or has a time that the client cannot send.
    """
    # To this client, time 0 means the present.
    assert all(record.timestamp_ms > 0 for record in records), "timestamps must be positive"
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "enable.idempotence": True,
        "message.timeout.ms": WATCHDOG_MS,
    }
    producer = Producer(settings)
    places: list[tuple[int, int]] = []

    def place(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        places.append(_place(message))

    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            record.partition,
            on_delivery=place,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
    left = producer.flush(WATCHDOG_S)
    assert left == 0, f"{left} of {len(records)} records for {topic} were not acknowledged in {WATCHDOG_S} s"
    assert sorted(places) == sorted((record.partition, record.offset) for record in records)


def delete_before(bootstrap_servers: str, topic: str, partition: int, offset: int) -> None:
    """Delete a partition's records below an offset, as its retention would."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    where = TopicPartition(topic, partition, offset)
    admin.delete_records([where], operation_timeout=WATCHDOG_S, request_timeout=WATCHDOG_S)[where].result(WATCHDOG_S)


def stored(bootstrap_servers: str, topic: str) -> list[Stored]:
    """All records of a topic up to its present end, by partition and offset; of transactions the committed ones.

    Open transactions end first: that of a killed process is aborted by the node after its timeout, and until then hides
    what others have written behind its records.

    Raises:
        KafkaException: the topic is not there, or the node never answers.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "streams-tests",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        known = consumer.list_topics(topic, timeout=WATCHDOG_S).topics[topic]
        if known.error is not None:
            raise KafkaException(known.error)
        unread = set(known.partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in unread])
        records = []
        while unread:
            message = consumer.poll(WATCHDOG_S)
            assert message is not None, f"no record and no end of {topic} {sorted(unread)} in {WATCHDOG_S} s"
            error = message.error()
            if error is None:
                records.append(_stored(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                # With read_committed this is the last stable offset; the high watermark is the end.
                _, end = consumer.get_watermark_offsets(TopicPartition(topic, message.partition()), cached=True)
                if message.offset() >= end:
                    unread.discard(message.partition())
            else:
                raise KafkaException(error)
        return sorted(records, key=lambda record: record[:2])
    finally:
        consumer.close()


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def _stored(message: Message) -> Stored:
    _, timestamp_ms = message.timestamp()
    headers: Any = message.headers() or ()
    return Stored(*_place(message), timestamp_ms, message.key(), message.value(), tuple(headers))
