"""Our consumers on a real Kafka are restarted one by one with the other protocol, under load (KIP-848).

Every record is read once: what a consumer has read counts when its commit has succeeded.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import pytest
from attrs import define, field

from streams.clients import Consumer, Producer
from streams.clients.consumer.session import RebalanceListener
from streams.clients.tcp import TcpCluster
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import MemberFencedError, RebalanceInProgressError
from tests.kafka.node import KafkaNode
from tests.kafka.records import create_topic
from tests.waiting import until

PARTITIONS = 6
CLASSIC, CONSUMER = "classic", "consumer"


class Reader(RebalanceListener):
    """A consumer in a thread of its own, which commits what it has read; ``done`` has that as ranges of offsets."""

    def __init__(self, address: str, topic: str, protocol: str) -> None:
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300}
        self.done: list[tuple[int, int, int]] = []
        self._read: dict[int, tuple[int, int]] = {}
        self._failures: list[Exception] = []
        self._count = 0
        self._stopped = threading.Event()
        self._topic = topic
        self._consumer = Consumer(TcpCluster(address), f"{topic}-group", group_protocol=protocol, **settings)
        self._consumer.subscribe([topic], self)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def owned(self) -> int:
        """The number of partitions that it owns."""
        assert not self._failures, self._failures
        return self._count

    def stop(self) -> None:
        """Leave the group."""
        self._stopped.set()
        self._thread.join()
        assert not self._failures, self._failures

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._turn()
            self._consumer.close()
        except Exception as error:
            self._failures.append(error)

    def _turn(self) -> None:
        for record in self._consumer.poll(100):
            first, _ = self._read.get(record.partition, (record.offset, 0))
            self._read[record.partition] = (first, record.offset + 1)
        # After a commit that is refused, the next poll says what is lost; what is not is committed again.
        with suppress(RebalanceInProgressError, MemberFencedError):
            self._commit(list(self._read))
        self._count = len(self._consumer.assignment())

    def _commit(self, numbers: Sequence[int]) -> None:
        if due := {TopicPartition(self._topic, n): self._read[n][1] for n in numbers if n in self._read}:
            self._consumer.commit_sync(due)
            self.done += [(number, *self._read.pop(number)) for _, number in due]

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        try:
            self._commit([partition.partition for partition in partitions])
        except (MemberFencedError, RebalanceInProgressError):
            self.on_partitions_lost(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._read.pop(partition.partition, None)


@define
class Load:
    """A producer that writes on and on, in a thread of its own."""

    address: str
    topic: str
    written: int = 0
    _stopped: threading.Event = field(factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> "Load":
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Write no more."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        with Producer(TcpCluster(self.address)) as producer:
            while not self._stopped.wait(0.01):
                for partition in range(PARTITIONS):
                    producer.send_block(TopicPartition(self.topic, partition), Block([None], [b"x"], [1]))
                producer.flush()
                self.written += 1


def rolled(address: str, topic: str) -> None:
    """Roll a group of two to the new protocol and back, and check that each record was read once."""
    all_readers: list[Reader] = []
    running: list[Reader] = []

    def read() -> int:
        return sum(end - first for reader in all_readers for _, first, end in reader.done)

    def add(protocol: str) -> None:
        reader = Reader(address, topic, protocol)
        all_readers.append(reader)
        running.append(reader)

    def settled() -> None:
        """All share the partitions, and read on."""
        until(lambda: sum(r.owned() for r in running) == PARTITIONS and all(r.owned() for r in running))
        before = read()
        until(lambda: read() > before + 10 * PARTITIONS)

    with Load(address, topic) as load:
        try:
            for protocol in (CLASSIC, CLASSIC):
                add(protocol)
            settled()
            for protocol in (CONSUMER, CONSUMER, CLASSIC, CLASSIC):
                add(protocol)
                settled()
                running.pop(0).stop()
                settled()
            load.stop()
            until(lambda: read() >= load.written * PARTITIONS)
        finally:
            for reader in running:
                reader.stop()
    offsets = Counter((number, o) for reader in all_readers for number, a, b in reader.done for o in range(a, b))
    assert offsets == Counter((number, o) for number in range(PARTITIONS) for o in range(load.written))


@pytest.mark.kafka
def test_ours_are_rolled_on_a_real_kafka(kafka: KafkaNode):
    topic = "rolling-ours"
    create_topic(kafka.bootstrap_servers, topic, partitions=PARTITIONS)
    rolled(kafka.bootstrap_servers, topic)
