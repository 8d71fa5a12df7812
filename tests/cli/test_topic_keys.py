"""``streams topics describe --keys``: whether keys are where joins look for them, or which partitioner moved them."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import Producer as LibrdkafkaProducer

from streams import EmbeddedBroker, Topic
from streams.broker.tcp.server import BrokerServer
from streams.clients import Admin, Producer
from streams.core.blocks.records import Window, Windowed
from streams.core.serdes.serdes import BYTES, time_windowed
from tests.cli.conftest import Program

RECORDS = 200


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(auto_create_topics=False) as broker:
        yield broker


@pytest.fixture
def server(broker: EmbeddedBroker) -> Iterator[BrokerServer]:
    with broker.serve("127.0.0.1:0") as server:
        yield server


def described(streams: Program, server: BrokerServer, topic: str = "orders") -> str:
    result = streams("topics", "describe", topic, "--keys", "--bootstrap-servers", server.bootstrap_servers)
    assert (result.status, result.err) == (0, "")
    return result.out


def produce_with_librdkafka(server: BrokerServer, **settings: str) -> None:
    # Its log would be on standard error: it misses the broker that ends before it.
    producer = LibrdkafkaProducer({"bootstrap.servers": server.bootstrap_servers, "log_level": 0, **settings})
    for number in range(RECORDS):
        producer.produce("orders", key=f"customer-{number}".encode(), value=b"1")
    assert producer.flush(60) == 0


@pytest.mark.parametrize(
    ("partitioner", "name"),
    [
        ("consistent_random", "CRC32 (the default of librdkafka"),
        ("fnv1a", "FNV-1a (the default of sarama"),
        ("random", "no hash of the key"),
    ],
)
def test_partitioner_of_librdkafka_is_named(
    streams: Program, broker: EmbeddedBroker, server: BrokerServer, partitioner: str, name: str
) -> None:
    broker.create_topic("orders", 4)
    # Every record has a random partition of its own, not one for each batch.
    produce_with_librdkafka(server, partitioner=partitioner, **{"sticky.partitioning.linger.ms": "0"})

    lines = described(streams, server).splitlines()

    (summary,) = (line for line in lines if line.startswith("  keys:"))
    assert summary.startswith("  keys: 200 sampled, ")
    assert name in summary
    assert " 0 misplaced" not in summary
    assert lines[lines.index(summary) + 1].startswith("    the first: b'customer-")


def test_keys_of_murmur2_are_in_their_places(streams: Program, broker: EmbeddedBroker, server: BrokerServer) -> None:
    broker.create_topic("orders", 4)
    produce_with_librdkafka(server, partitioner="murmur2_random")

    assert "  keys: 200 sampled, 0 misplaced\n" in described(streams, server)


def test_topic_that_grew_is_named(streams: Program, broker: EmbeddedBroker, server: BrokerServer) -> None:
    broker.create_topic("orders", 2)
    produce_with_librdkafka(server, partitioner="murmur2")
    with Admin(broker) as admin:
        admin.create_partitions({"orders": 4})
    produce_with_librdkafka(server, partitioner="murmur2")

    assert "murmur2 over 2 partitions (the topic had fewer partitions when they were written)" in described(
        streams, server
    )


def test_null_keys_windowed_keys_and_topics_with_a_partitioner_are_not_misplaced(
    streams: Program, broker: EmbeddedBroker, server: BrokerServer
) -> None:
    for name in ("keyless", "windowed"):
        broker.create_topic(name, 4)
    broker.create_topic("spread", 4, partitioner="round_robin")
    raw = {name: Topic(name, key=BYTES, value=BYTES) for name in ("keyless", "spread")}
    windowed = Topic("windowed", key=time_windowed(str, timedelta(seconds=1)), value=BYTES)
    with Producer(broker) as producer:
        for number in range(40):
            producer.send(raw["keyless"], key=None, value=b"1", partition=number % 4)
            producer.send(raw["spread"], key=b"%d" % number, value=b"1")
            producer.send(windowed, key=Windowed(f"{number}", Window(0, 1000)), value=b"1")
        producer.flush()

    assert "  keys: none in 40 sampled records\n" in described(streams, server, "keyless")
    assert "  keys: 40 sampled, 0 misplaced: windowed keys, placed without their windows\n" in described(
        streams, server, "windowed"
    )
    assert "  keys: placed by the topic's partitioner round_robin, not by their hash\n" in described(
        streams, server, "spread"
    )
