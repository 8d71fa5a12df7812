"""History from a real Kafka: a topic read through Spark's source, partitions and offsets kept."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from streams import StreamsBuilder, Topic
from streams.core.blocks.records import TopicPartition
from streams.replay import KafkaTopic, ReplayError, replay
from tests.kafka.node import KafkaNode
from tests.kafka.records import Stored, delete_before, put, stored
from tests.kafka.spark_kafka import SparkKafka
from tests.waiting import WATCHDOG_S

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

HEADERS = (("trace", b"\x00\xff"), ("none", None))


def records(partition: int, start: int, count: int) -> list[Stored]:
    """Every third one with headers, the second without a key, the last a tombstone."""
    return [
        Stored(
            partition,
            number,
            1_000_000 + number * 10 + partition - number % 3 * 20,
            None if number % 5 == 1 else b"k%d" % (number % 4),
            None if number == start + count - 1 else b"v%d" % number,
            HEADERS if number % 3 == 0 else (),
        )
        for number in range(start, start + count)
    ]


def copied(topic: str) -> Any:
    """A topology that gives out what it reads."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(Topic(topic, key=bytes, value=bytes)).to("out", key=bytes, value=bytes)

    return topology


def options(spark_kafka: SparkKafka) -> dict[str, Any]:
    return {"executor": "spark", "spark": spark_kafka.session, "application_id": "app", "partitions": 3}


def rows(result: Any) -> list[tuple[int, int, bytes | None, bytes | None, Any]]:
    """(partition of the history, time, key, value, headers): records without a key stay where they were too."""
    return sorted(
        (row[3], row[1] or b"", row[2] or b"", row[4]) for _, block in result.read("out") for row in block.rows()
    )


def as_rows(found: list[Stored]) -> list[Any]:
    return sorted((record.timestamp_ms, record.key or b"", record.value or b"", record.headers) for record in found)


def positions(result: Any, topic: str) -> dict[int, int]:
    ends: dict[int, int] = result.snapshot().ends(topic)
    return ends


def test_topic_is_read_as_it_is_and_later_what_came(
    kafka: KafkaNode, spark_kafka: SparkKafka, topic: str, tmp_path: Path
):
    """In slices, and from a snapshot too; a partition without a record has its place."""
    first = [*records(0, 0, 40), *records(1, 0, 25)]
    put(kafka.bootstrap_servers, topic, first)
    given = {topic: KafkaTopic(kafka.bootstrap_servers, topic)}
    kept = options(spark_kafka) | {"directory": tmp_path / "replay", "slices": 3}

    with replay(copied(topic), given, **kept) as result:
        assert rows(result) == as_rows(first)
        assert positions(result, topic) == {0: 40, 1: 25, 2: 0}
        result.save(tmp_path / "snapshot")
    more = [*records(0, 40, 5), *records(2, 0, 7)]
    put(kafka.bootstrap_servers, topic, more)

    with replay(copied(topic), {topic: f"kafka://{kafka.bootstrap_servers}/{topic}"}, resume=True, **kept) as result:
        assert rows(result) == as_rows([*first, *more])
        assert positions(result, topic) == {0: 45, 1: 25, 2: 7}
    with replay(copied(topic), given, state_from=tmp_path / "snapshot", **options(spark_kafka)) as result:
        assert rows(result) == as_rows(more)
        assert positions(result, topic) == {0: 45, 1: 25, 2: 7}


def test_ends_of_transactions_leave_holes(kafka: KafkaNode, spark_kafka: SparkKafka, topic: str, tmp_path: Path):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(WATCHDOG_S)

    def transaction(value: bytes, end: Any) -> None:
        producer.begin_transaction()
        producer.produce(topic, value, partition=1, timestamp=5)
        assert producer.flush(WATCHDOG_S) == 0
        end(WATCHDOG_S)

    transaction(b"one", producer.commit_transaction)
    transaction(b"two", producer.abort_transaction)
    given = {topic: KafkaTopic(kafka.bootstrap_servers, topic)}
    kept = options(spark_kafka) | {"directory": tmp_path / "replay", "slices": 1}
    with replay(copied(topic), given, **kept) as result:
        assert [row[2] for row in rows(result)] == [b"one"]
    transaction(b"three", producer.commit_transaction)

    with replay(copied(topic), given, resume=True, **kept) as result:
        assert [row[2] for row in rows(result)] == [b"one", b"three"]
        assert positions(result, topic)[1] == 5
        extents = result.session.inputs.histories[topic].extents[1]
        assert [(extent.first, extent.rows) for extent in extents] == [(0, 1), (4, 1)]
        assert result.session.inputs.origin(TopicPartition(topic, 1), 4) is None
    assert [record.offset for record in stored(kafka.bootstrap_servers, topic)] == [0, 4]


def test_records_that_are_gone_before_they_were_read_are_a_gap(
    kafka: KafkaNode, spark_kafka: SparkKafka, topic: str, tmp_path: Path
):
    put(kafka.bootstrap_servers, topic, records(0, 0, 10))
    given = {topic: KafkaTopic(kafka.bootstrap_servers, topic)}
    kept = options(spark_kafka) | {"directory": tmp_path / "replay", "slices": 1}
    replay(copied(topic), given, **kept)
    put(kafka.bootstrap_servers, topic, records(0, 10, 10))
    delete_before(kafka.bootstrap_servers, topic, partition=0, offset=15)

    with pytest.raises(ReplayError, match="the next records to read were deleted, a gap"):
        replay(copied(topic), given, resume=True, **kept)


def test_partition_counts_have_to_agree(kafka: KafkaNode, spark_kafka: SparkKafka, topic: str):
    put(kafka.bootstrap_servers, topic, records(0, 0, 3))

    with pytest.raises(ReplayError, match="has 3 partitions, not 2"):
        replay(copied(topic), {topic: KafkaTopic(kafka.bootstrap_servers, topic, partitions=2)}, **options(spark_kafka))


def test_a_topic_that_does_not_exist_is_refused(kafka: KafkaNode, spark_kafka: SparkKafka):
    with pytest.raises(ReplayError, match="/nowhere: there is no such topic"):
        replay(copied("nowhere"), {"nowhere": KafkaTopic(kafka.bootstrap_servers, "nowhere")}, **options(spark_kafka))
