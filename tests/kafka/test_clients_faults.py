"""Our clients when a real broker is killed, restarted, cut off or compacts; and beside the clients of others."""

from pathlib import Path

import pytest
from confluent_kafka import Producer as OtherProducer

from streams.clients import Admin, Consumer, Delivery, Producer
from streams.clients.tcp import TcpCluster
from streams.core.blocks.records import Block, TopicPartition
from streams.protocol.messages import TopicSpec
from tests.kafka.load import Load
from tests.kafka.node import KafkaNode
from tests.kafka.proxy import Proxy
from tests.kafka.records import Stored, stored
from tests.kafka.secured import AdvertisedNode
from tests.waiting import WATCHDOG_MS, WATCHDOG_S, until

pytestmark = pytest.mark.kafka

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
def test_others_read_what_we_write(kafka: KafkaNode, topic: str, codec: str):
    rows = [
        Stored(1, offset, 1_000 + offset, b"k%d" % (offset % 7), b"v" * (offset % 300), (("h", b"%d" % offset),))
        for offset in range(1_000)
    ]
    with Producer(TcpCluster(kafka.bootstrap_servers), compression_type=codec, linger_ms=5) as producer:
        for row in rows:
            producer.send(
                topic, row.value, key=row.key, timestamp_ms=row.timestamp_ms, headers=row.headers, partition=1
            )

    assert stored(kafka.bootstrap_servers, topic) == rows


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_others_write(kafka: KafkaNode, topic: str, codec: str):
    other = OtherProducer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec, "linger.ms": 5})
    for number in range(1_000):
        other.produce(
            topic, b"v" * (number % 300), b"k%d" % number, 1, timestamp=1_000 + number, headers=[("h", b"%d" % number)]
        )
    assert other.flush(WATCHDOG_S) == 0
    with Consumer(TcpCluster(kafka.bootstrap_servers), auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 1)])
        found: list[tuple[object, ...]] = []
        until(
            lambda: len(found) >= 1_000, lambda: found.extend((r.key, r.value, r.headers) for r in consumer.poll(500))
        )
    assert found == [(b"k%d" % n, b"v" * (n % 300), (("h", b"%d" % n),)) for n in range(1_000)]


def test_keys_go_to_the_partitions_that_others_choose(kafka: KafkaNode, topic: str):
    """Java's murmur2: whoever writes a key, it goes to the same partition."""
    other = OtherProducer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random"})
    with Producer(TcpCluster(kafka.bootstrap_servers)) as producer:
        for number in range(200):
            key = b"key-%d" % number
            producer.send(topic, b"ours", key=key)
            other.produce(topic, b"theirs", key)
    assert other.flush(WATCHDOG_S) == 0

    places: dict[bytes | None, set[int]] = {}
    for record in stored(kafka.bootstrap_servers, topic):
        places.setdefault(record.key, set()).add(record.partition)
    assert len(places) == 200
    assert all(len(found) == 1 for found in places.values())


def test_topic_is_read_to_its_end_over_the_holes_of_compaction(tmp_path: Path):
    """Batches that compaction has emptied, in the middle and at the end of segments, are passed."""
    settings = {"log.cleaner.backoff.ms": 100, "log.cleaner.min.cleanable.ratio": 0.01}
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
        "delete.retention.ms": "0",
    }
    with KafkaNode(tmp_path, settings=settings) as node:
        cluster = TcpCluster(node.bootstrap_servers)
        partition = TopicPartition("t", 0)
        with Admin(cluster) as admin, Producer(cluster) as producer:
            admin.create_topics([TopicSpec("t", 1, config)])
            for round_ in range(10):
                for number in range(50):
                    producer.send("t", b"%d" % round_, key=b"%d" % number, partition=0)
                producer.flush()
                until(lambda: not producer.poll(150))
            end = admin.list_offsets({partition: -1})[partition]

            def offsets() -> list[int]:
                with Consumer(cluster, auto_offset_reset="earliest") as consumer:
                    consumer.assign([partition])
                    found: list[int] = []
                    until(
                        lambda: (consumer.known_position(partition) or 0) >= end,
                        lambda: found.extend(record.offset for record in consumer.poll(200)),
                    )
                    return found

            compacted: list[int] = []

            def look() -> None:
                producer.send("t", b"again", key=b"another", partition=0)
                producer.flush()
                producer.poll(150)
                compacted[:] = offsets()

            until(lambda: 0 < len(compacted) < 150, look)
            with Consumer(cluster, auto_offset_reset="earliest") as consumer:
                consumer.assign([partition])
                # In the middle of what is gone.
                consumer.seek(partition, 275)
                found: list[int] = []
                until(
                    lambda: (consumer.known_position(partition) or 0) >= end,
                    lambda: found.extend(record.offset for record in consumer.poll(200)),
                )
            # In order, from there on, and the last record of each key is among them.
            assert found == sorted({offset for offset in found if offset >= 275})
            assert {*range(450, 500)} <= {*found}


def test_broker_that_is_killed_under_load_loses_and_repeats_nothing(own_kafka: KafkaNode):
    """Killed twice while a producer sends, a transactional one commits, and a group reads and commits."""

    def disturb(load: Load) -> None:
        for _ in range(2):
            load.work()
            own_kafka.kill()
            for _ in range(5):
                load.turn()
            own_kafka.start()
        load.work()

    Load(TcpCluster(own_kafka.bootstrap_servers), 3, lambda: own_kafka.is_running).bear(disturb)


def test_cut_connections_lose_and_repeat_nothing(tmp_path: Path):
    """A proxy that cuts every connection, again and again, between our clients and a real broker.

    Each cut comes when something has come through since the last one, however long that takes.
    """
    with Proxy(0) as proxy, AdvertisedNode(tmp_path, advertised_port=proxy.port) as node:
        proxy.target = node.port
        cluster = TcpCluster(proxy.bootstrap_servers)
        with Admin(cluster) as admin:
            admin.create_topics([TopicSpec("t", 3)])
        sent = 0
        with Producer(cluster) as producer:

            def send() -> Delivery:
                nonlocal sent
                block = Block([None] * 10, [b"%d" % (sent + n) for n in range(10)], [1] * 10)
                delivery = producer.send_block(TopicPartition("t", sent // 10 % 3), block)
                sent += 10
                return delivery

            for number in range(30):
                deliveries = [send() for _ in range(20)]
                until(lambda: deliveries[number % 20].done(), lambda: producer.poll(5))  # noqa: B023
                proxy.cut()
            producer.flush()
        cuts = proxy.cuts
        seen: list[int] = []
        with Consumer(
            cluster,
            "g",
            auto_offset_reset="earliest",
            session_timeout_ms=WATCHDOG_MS,
            max_poll_records=200,
            max_partition_fetch_bytes=2_000,
        ) as consumer:
            consumer.subscribe(["t"])
            while len(seen) < sent:
                before = len(seen)
                until(
                    lambda: len(seen) > before,  # noqa: B023
                    lambda: seen.extend(int(record.value) for record in consumer.poll(100)),
                )
                proxy.cut()
        assert cuts >= 30
        assert proxy.cuts - cuts >= 20
    assert sorted(seen) == list(range(sent))
