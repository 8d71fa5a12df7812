"""kafka-python against ``streams broker``."""

import logging
import threading
from queue import SimpleQueue

import pytest

kafka = pytest.importorskip("kafka")
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition  # noqa: E402

from tests.waiting import WATCHDOG_MS, WATCHDOG_S  # noqa: E402
from tests.wire import scenarios  # noqa: E402
from tests.wire.scenarios import Sent  # noqa: E402

logging.getLogger("kafka").setLevel(logging.CRITICAL)


class KafkaPython:
    def __init__(self, address):
        self.address = address
        self.admin = KafkaAdminClient(bootstrap_servers=address)

    def create_topic(self, name, partitions):
        self.admin.create_topics({name: {"num_partitions": partitions, "replication_factor": 1}})

    def produce(self, topic, records, **settings):
        producer = KafkaProducer(bootstrap_servers=self.address, linger_ms=5, acks="all", **settings)
        futures = [
            producer.send(topic, r.value, r.key, list(r.headers), partition=r.partition, timestamp_ms=r.timestamp_ms)
            for r in records
        ]
        for future in futures:
            future.get(WATCHDOG_S)
        producer.close()

    def consume(self, topic, count, *, is_committed_only=False):
        level = "read_committed" if is_committed_only else "read_uncommitted"
        consumer = KafkaConsumer(bootstrap_servers=self.address, isolation_level=level, consumer_timeout_ms=WATCHDOG_MS)
        consumer.assign([TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))])
        consumer.seek_to_beginning()
        found = []
        while len(found) < count:
            batches = consumer.poll(WATCHDOG_MS, max_records=count - len(found))
            assert batches, f"{len(found)} of {count} records, and no more"
            found += [
                Sent(m.partition, m.key, m.value, tuple(m.headers or ()), m.timestamp, m.offset)
                for messages in batches.values()
                for m in messages
            ]
        consumer.close()
        return found

    def transactional(self, transactional_id):
        return Transactional(KafkaProducer(bootstrap_servers=self.address, transactional_id=transactional_id))


class Transactional:
    def __init__(self, producer):
        self.producer = producer
        producer.init_transactions()
        self.begin, self.commit, self.abort = (
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
        )

    def send(self, topic, value):
        self.producer.send(topic, value, partition=0).get(WATCHDOG_S)


class Member:
    """A consumer in a thread of its own: a poll that ends while its group is joined would leave it half in."""

    def __init__(self, address, topic, group):
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
            session_timeout_ms=WATCHDOG_MS,
        )
        self.seen, self.held = set(), set()
        self.orders, self.has_turned = SimpleQueue(), threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        order = None
        while order != self.consumer.close:
            for partition, messages in self.consumer.poll(1_000).items():
                self.seen.update((partition.partition, message.offset) for message in messages)
            self.held = {found.partition for found in self.consumer.assignment()}
            if not self.orders.empty():
                order, is_done = self.orders.get()
                order()
                is_done.set()
            self.has_turned.set()

    def _order(self, order):
        is_done = threading.Event()
        self.orders.put((order, is_done))
        assert is_done.wait(WATCHDOG_S)

    def poll(self):
        self.has_turned.wait(0.1)
        self.has_turned.clear()

    def assigned(self):
        return self.held

    def commit(self):
        self._order(self.consumer.commit)

    def close(self):
        self._order(self.consumer.close)


@pytest.fixture(scope="module")
def client(address):
    client = KafkaPython(address)
    yield client
    client.admin.close()


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_records_arrive_as_they_were_sent(client, unique, codec):
    scenarios.round_trip(client, unique("python-records"), compression_type=codec)


def test_what_is_aborted_is_not_read(client, unique):
    scenarios.transactions(client, client.transactional, unique("python-transactions"), unique("python-id"))


@pytest.mark.slow
def test_a_group_shares_partitions(client, unique):
    def join(topic, group):
        return Member(client.address, topic, group)

    scenarios.group(client, join, unique("python-shared"), unique("python-group"))
