"""Consumers are restarted one by one with the other protocol, under load (KIP-848, online migration).

Every record is read once: what a consumer has read counts when its commit has succeeded.  Those of librdkafka and of
Java run on the embedded broker over TCP, ours on a real Kafka too.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest
from attrs import define, field
from confluent_kafka import Consumer as Confluent
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition

from streams import EmbeddedBroker
from streams.clients import Consumer, Producer
from streams.clients.session import RebalanceListener
from streams.clients.tcp import TcpCluster
from streams.core.errors import MemberFencedError, RebalanceInProgressError
from streams.core.records import Block, TopicPartition
from streams.group import CoordinatorConfig
from tests.kafka.node import KafkaNode, compiled, jars
from tests.kafka.processes import Started
from tests.kafka.records import create_topic
from tests.waiting import WATCHDOG_MS, until

PARTITIONS = 6
SOURCE = Path(__file__).parent / "java" / "Rolling.java"
CLASSIC, CONSUMER = "classic", "consumer"


class Reader(Protocol):
    """A running consumer: how many partitions it owns, and what it has read and committed, as ranges of offsets."""

    def owned(self) -> int: ...
    def ranges(self) -> Sequence[tuple[int, int, int]]: ...
    def stop(self) -> None: ...


@define(eq=False)
class Looping:
    """A consumer in a thread of its own."""

    read: dict[int, tuple[int, int]] = field(factory=dict)
    done: list[tuple[int, int, int]] = field(factory=list)
    failures: list[Exception] = field(factory=list)
    count: int = 0
    _stopped: threading.Event = field(factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def owned(self) -> int:
        assert not self.failures, self.failures
        return self.count

    def ranges(self) -> Sequence[tuple[int, int, int]]:
        return tuple(self.done)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        assert not self.failures, self.failures

    def note(self, partition: int, offset: int) -> None:
        """Note a record that was read."""
        first, _ = self.read.get(partition, (offset, 0))
        self.read[partition] = (first, offset + 1)

    def commit(self, partitions: Sequence[int]) -> None:
        """Commit what was read of these partitions."""
        if due := {number: self.read[number][1] for number in partitions if number in self.read}:
            self.send(due)
            self.done += [(number, *self.read.pop(number)) for number in due]

    def forget(self, partitions: Sequence[int]) -> None:
        """Forget what was read of partitions that are lost."""
        for number in partitions:
            self.read.pop(number, None)

    def send(self, offsets: Mapping[int, int]) -> None:
        """Commit offsets."""
        raise NotImplementedError

    def turn(self) -> None:
        """Read some records, and commit them."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the group."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self.turn()
            self.close()
        except Exception as error:
            self.failures.append(error)


class Ours(Looping, RebalanceListener):
    """Our consumer."""

    def __init__(self, address: str, topic: str, protocol: str) -> None:
        super().__init__()
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300}
        self._topic = topic
        self._consumer = Consumer(TcpCluster(address), f"{topic}-group", group_protocol=protocol, **settings)
        self._consumer.subscribe([topic], self)
        self.start()

    def turn(self) -> None:
        for record in self._consumer.poll(100):
            self.note(record.partition, record.offset)
        # After a commit that is refused, the next poll says what is lost; what is not is committed again.
        with suppress(RebalanceInProgressError, MemberFencedError):
            self.commit(list(self.read))
        self.count = len(self._consumer.assignment())

    def send(self, offsets: Mapping[int, int]) -> None:
        self._consumer.commit_sync({TopicPartition(self._topic, number): end for number, end in offsets.items()})

    def close(self) -> None:
        self._consumer.close()

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        numbers = [partition.partition for partition in partitions]
        try:
            self.commit(numbers)
        except (MemberFencedError, RebalanceInProgressError):
            self.forget(numbers)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.forget([partition.partition for partition in partitions])


class OfConfluent(Looping):
    """The consumer of librdkafka."""

    def __init__(self, address: str, topic: str, protocol: str) -> None:
        super().__init__()
        settings = {"bootstrap.servers": address, "group.id": f"{topic}-group", "group.protocol": protocol}
        settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        if protocol == CLASSIC:
            settings |= {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 300}
        self._topic = topic
        self._consumer = Confluent(settings)
        self._consumer.subscribe([topic], on_revoke=self._revoked, on_lost=self._lost)
        self.start()

    def turn(self) -> None:
        for number in range(100):
            message = self._consumer.poll(0 if number else 0.1)
            if message is None:
                break
            assert not message.error(), message.error()
            self.note(message.partition(), message.offset())
        self.commit(list(self.read))
        self.count = len(self._consumer.assignment())

    def commit(self, partitions: Sequence[int]) -> None:
        # After a commit that is refused, the next poll says what is lost; what is not is committed again.
        with suppress(KafkaException):
            super().commit(partitions)

    def send(self, offsets: Mapping[int, int]) -> None:
        due = [ConfluentPartition(self._topic, number, end) for number, end in offsets.items()]
        for partition in self._consumer.commit(offsets=due, asynchronous=False):
            if partition.error:
                raise KafkaException(partition.error)

    def close(self) -> None:
        self._consumer.close()

    def _revoked(self, _: object, partitions: Sequence[ConfluentPartition]) -> None:
        self.commit([partition.partition for partition in partitions])
        self.forget([partition.partition for partition in partitions])

    def _lost(self, _: object, partitions: Sequence[ConfluentPartition]) -> None:
        self.forget([partition.partition for partition in partitions])


@define
class OfJava:
    """The consumer of Java, in a process of its own."""

    started: Started

    def owned(self) -> int:
        assert self.started.process.poll() is None, self.started.said
        counts = [int(line.split()[1]) for line in self.started.said.splitlines() if line.startswith("owns ")]
        return counts[-1] if counts else 0

    def ranges(self) -> Sequence[tuple[int, int, int]]:
        lines = [line.split() for line in self.started.said.splitlines() if line.startswith("read ")]
        return [(int(line[1]), int(line[2]), int(line[3])) for line in lines if len(line) == 4]

    def stop(self) -> None:
        self.started.stop()


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


def rolled(address: str, topic: str, make: "Maker") -> None:
    """Roll a group of two to the new protocol and back, and check that each record was read once."""
    all_readers: list[Reader] = []
    running: list[Reader] = []

    def read() -> int:
        return sum(end - first for reader in all_readers for _, first, end in reader.ranges())

    def add(protocol: str) -> None:
        reader = make(protocol, len(all_readers))
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
    offsets = Counter((number, o) for reader in all_readers for number, a, b in reader.ranges() for o in range(a, b))
    assert offsets == Counter((number, o) for number in range(PARTITIONS) for o in range(load.written))


class Maker(Protocol):
    """Starts the reader with this number, of a protocol."""

    def __call__(self, protocol: str, number: int) -> Reader: ...


@pytest.fixture
def address() -> Iterator[str]:
    """Where an embedded broker listens that has the topic ``rolling``."""
    with EmbeddedBroker(group_config=CoordinatorConfig(consumer_heartbeat_interval_ms=300)) as broker:
        broker.create_topic("rolling", partitions=PARTITIONS)
        with broker.serve("127.0.0.1:0") as server:
            yield server.bootstrap_servers


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Ours, OfConfluent])
def test_consumers_are_rolled_on_the_embedded_broker(address: str, kind: type[Ours] | type[OfConfluent]):
    rolled(address, "rolling", lambda protocol, _: kind(address, "rolling", protocol))


@pytest.mark.kafka
@pytest.mark.seeds("assignor", ["CooperativeStickyAssignor", "RangeAssignor"])
def test_consumers_of_java_are_rolled_on_the_embedded_broker(address: str, tmp_path: Path, assignor: str):
    classes = compiled(SOURCE, tmp_path / "classes")
    classpath = ":".join([str(classes), *map(str, jars("streams"))])

    def make(protocol: str, number: int) -> Reader:
        settings = [f"group.protocol={protocol}"]
        if protocol == CLASSIC:
            strategy = f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{assignor}"
            settings += [strategy, "heartbeat.interval.ms=300", f"session.timeout.ms={WATCHDOG_MS}"]
        command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", classpath, "Rolling", address, "rolling", "g"]
        return OfJava(Started([*command, *settings], tmp_path / f"reader-{number}.log"))

    rolled(address, "rolling", make)


@pytest.mark.kafka
def test_ours_are_rolled_on_a_real_kafka(kafka: KafkaNode):
    topic = "rolling-ours"
    create_topic(kafka.bootstrap_servers, topic, partitions=PARTITIONS)
    rolled(kafka.bootstrap_servers, topic, lambda protocol, _: Ours(kafka.bootstrap_servers, topic, protocol))
