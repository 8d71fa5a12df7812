"""Spark's Kafka source with the installed PySpark reads what is in a topic, and just that."""

import pytest
from confluent_kafka import Producer

from tests.kafka.node import KafkaNode
from tests.kafka.records import Stored, delete_before, put, stored
from tests.kafka.spark_kafka import SparkKafka
from tests.waiting import WATCHDOG_S

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

DAY_MS = 86_400_000
RECORDS = [
    Stored(0, 0, 20_000 * DAY_MS + 1, b"a", b"\x00\xffone", (("trace", b"\x00\xff"), ("trace", b"again"))),
    Stored(0, 1, 19_999 * DAY_MS + 999, None, b"two", (("none", None),)),
    Stored(0, 2, 20_001 * DAY_MS, b"", b""),
    Stored(1, 0, 1, b"gone", None),
    *(Stored(2, number, 1 + number, b"%d" % (number % 7), b"%d" % number) for number in range(500)),
]


def test_whole_topic_is_read_exactly(kafka: KafkaNode, spark_kafka: SparkKafka, topic: str):
    """Partition, offset, time, key, value and headers, with nulls and times that go back."""
    put(kafka.bootstrap_servers, topic, RECORDS)

    assert spark_kafka.stored(topic) == RECORDS


def test_offsets_bound_each_partition(kafka: KafkaNode, spark_kafka: SparkKafka, topic: str):
    """The starting offset is read, the ending one is not; equal ones read nothing."""
    put(kafka.bootstrap_servers, topic, RECORDS)
    starting, ending = {0: 1, 1: 1, 2: 100}, {0: 2, 1: 1, 2: 400}

    found = spark_kafka.stored(topic, starting, ending)

    assert found == [r for r in RECORDS if starting[r.partition] <= r.offset < ending[r.partition]]


def test_offsets_beyond_the_end_are_an_error(kafka: KafkaNode, spark_kafka: SparkKafka, topic: str):
    """They are waited for, and then missed."""
    put(kafka.bootstrap_servers, topic, RECORDS)

    with pytest.raises(Exception, match=r"Could not read records in offset \[500, 501\)"):
        # Only the last offset is read again, alone: too short a wait for all others together fails in another way.
        spark_kafka.stored(topic, {0: 3, 1: 1, 2: 500}, {0: 3, 1: 1, 2: 501}, poll_timeout_ms=10_000)


def test_deleted_records_are_an_error(kafka: KafkaNode, spark_kafka: SparkKafka, topic: str):
    """What is asked for and gone is no gap."""
    put(kafka.bootstrap_servers, topic, RECORDS)
    delete_before(kafka.bootstrap_servers, topic, partition=2, offset=10)

    assert len(spark_kafka.stored(topic, {0: 3, 1: 1, 2: 10})) == 490
    with pytest.raises(Exception, match=r"Could not read records in offset \[9, 500\)"):
        spark_kafka.stored(topic, {0: 3, 1: 1, 2: 9})


def test_aborted_records_are_left_out(kafka: KafkaNode, spark_kafka: SparkKafka, topic: str):
    """Markers take offsets too: 2 is that of the commit, 5 that of the abort."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(WATCHDOG_S)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for value in (b"one", b"two"):
            producer.produce(topic, value, partition=0, timestamp=1)
        # The client would keep to itself what it has not sent before an abort.
        assert producer.flush(WATCHDOG_S) == 0
        end(WATCHDOG_S)

    found = spark_kafka.stored(topic)

    assert [(record.offset, record.value) for record in found] == [(0, b"one"), (1, b"two"), (6, b"one"), (7, b"two")]
    assert found == stored(kafka.bootstrap_servers, topic)


def test_partitions_keep_their_order(kafka: KafkaNode, spark_kafka: SparkKafka, topic: str):
    """A Spark partition is one of the topic, offsets ascending: Python sees it as it was written."""
    put(kafka.bootstrap_servers, topic, RECORDS)

    def places(rows):
        yield [(row["partition"], row["offset"]) for row in rows]

    found = spark_kafka.frame(topic).rdd.mapPartitions(places).collect()

    assert sorted(found) == [
        [(record.partition, record.offset) for record in RECORDS if record.partition == partition]
        for partition in range(3)
    ]
