"""A consumer names in a fetch only what has changed since the last response (KIP-227)."""

from typing import Any

import pytest

from streams.broker import EmbeddedBroker
from streams.broker.fetch_sessions import FetchSessions
from streams.clients import Consumer, Producer
from streams.clients.consumer.fetch_session import Asked, ConsumerSessions, FetchSession
from streams.clients.consumer.subscription import PartitionState
from streams.core.blocks.records import TopicPartition
from streams.protocol.messages import Fetch, FetchResponse
from tests.waiting import until

PARTITIONS = [TopicPartition("orders", number) for number in range(50)]


class Watched:
    """A cluster that notes the fetches of its clients."""

    def __init__(self, inner: EmbeddedBroker) -> None:
        self.inner = inner
        self.fetches: list[Fetch] = []

    def connect(self, client_id: str) -> Any:
        connection = self.inner.connect(client_id)
        send = connection.send

        def noted(node_id: int, request: Any) -> int:
            if isinstance(request, Fetch):
                self.fetches.append(request)
            return send(node_id, request)

        connection.send = noted  # type: ignore[method-assign]
        return connection


@pytest.fixture
def broker():
    with EmbeddedBroker() as made:
        made.create_topic("orders", len(PARTITIONS))
        yield made


@pytest.fixture
def cluster(broker):
    return Watched(broker)


@pytest.fixture
def consumer(cluster):
    with Consumer(cluster, fetch_max_wait_ms=10, auto_offset_reset="earliest") as made:
        made.assign(PARTITIONS)
        yield made


def idle(consumer: Consumer, cluster: Watched) -> Fetch:
    """Poll until a fetch names nothing, and return it."""
    until(lambda: cluster.fetches and cluster.fetches[-1].session_epoch > 0, lambda: consumer.poll(10))
    return cluster.fetches[-1]


def send(broker: EmbeddedBroker, partition: TopicPartition) -> None:
    with Producer(broker) as producer:
        producer.send("orders", b"v", partition=partition.partition)


def values(consumer: Consumer) -> list[TopicPartition]:
    """Wait for records, and return their partitions."""
    found: list[TopicPartition] = []

    def turn() -> None:
        found.extend(consumer.poll_blocks(10))

    until(lambda: found, turn)
    return found


def test_idle_consumer_names_nothing(cluster, consumer):
    begin = idle(consumer, cluster)

    assert len(cluster.fetches[0].positions) == len(PARTITIONS)
    assert (begin.positions, begin.forgotten) == ({}, ())


def test_record_of_one_partition_changes_that_partition_alone(broker, cluster, consumer):
    idle(consumer, cluster)
    cluster.fetches.clear()

    send(broker, PARTITIONS[7])
    assert values(consumer) == [PARTITIONS[7]]
    idle(consumer, cluster)

    named = {partition for fetch in cluster.fetches for partition in (*fetch.positions, *fetch.forgotten)}
    assert named == {PARTITIONS[7]}


def test_session_that_the_broker_has_lost_begins_again(broker, cluster, consumer):
    idle(consumer, cluster)

    broker._machine._fetches.sessions = FetchSessions()
    send(broker, PARTITIONS[3])

    assert values(consumer) == [PARTITIONS[3]]
    assert broker._machine._fetches.sessions.partitions_of(idle(consumer, cluster).session_id) >= {PARTITIONS[0]}


def test_paused_partition_is_forgotten_and_read_again(broker, cluster, consumer):
    idle(consumer, cluster)

    consumer.pause(PARTITIONS[:2])
    until(lambda: any(fetch.forgotten for fetch in cluster.fetches), lambda: consumer.poll(10))
    send(broker, PARTITIONS[1])
    consumer.resume(PARTITIONS[:2])

    assert values(consumer) == [PARTITIONS[1]]
    assert consumer.known_end(PARTITIONS[1]) == 1


def test_partition_that_is_assigned_anew_is_told_to_be_at_its_end(cluster, consumer):
    """A session may have it still, but what it has told those before is not news for those that have it now."""
    idle(consumer, cluster)
    seen: set[TopicPartition] = set()

    def turn() -> None:
        consumer.poll(10)
        seen.update(consumer.take_news())

    # Each time another session reads it, until one that has read it before.
    for _ in range(4):
        consumer.assign(PARTITIONS[1:])
        turn()
        seen.clear()
        consumer.assign(PARTITIONS)
        until(lambda: PARTITIONS[0] in seen, turn)


def test_end_is_confirmed_by_the_session_that_reads_now():
    """Another one may have told it, which is not used any more."""
    state, (partition, *_) = PartitionState(position=0), PARTITIONS
    wanted, first, second = {partition: Asked(state, 0)}, FetchSession(), FetchSession()
    for session, now_ms in ((first, 10), (second, 20)):
        session.begin(wanted)
        state.know_end(0, now_ms, session.confirmation)
        session.on_response(FetchResponse({}, session_id=now_ms), now_ms)

    assert first.begin(wanted).positions == {}
    first.on_response(FetchResponse({}, session_id=10), 30)

    assert state.end_known_ms == 30


def test_end_that_a_session_told_which_gives_the_partition_up_is_confirmed_by_the_one_that_reads_it():
    """The end was never known again, so that windows that idle inputs close stayed open."""
    state, (partition, other, *_) = PartitionState(position=0), PARTITIONS
    sessions, wanted = ConsumerSessions(), {partition: Asked(state, 0)}
    old, _ = sessions.begin(0, wanted)
    reading, _ = sessions.begin(0, wanted)
    for session, now_ms in ((reading, 10), (old, 20)):
        state.know_end(0, now_ms, session.confirmation)
        session.on_response(FetchResponse({}, session_id=now_ms), now_ms)
    reading.again()

    assert sessions.begin(0, {other: Asked(PartitionState(position=0), 0)})[0] is old
    reading.on_response(FetchResponse({}, session_id=10), 30)

    assert state.end_known_ms == 30


def test_end_that_is_confirmed_is_known_since_then(consumer, cluster):
    idle(consumer, cluster)
    before_ms = consumer.end_known_ms(PARTITIONS[0])
    assert before_ms is not None

    until(lambda: consumer.end_known_ms(PARTITIONS[0]) > before_ms, lambda: consumer.poll(10))


def test_closed_consumer_leaves_no_session(broker, cluster, consumer):
    idle(consumer, cluster)
    consumer.pause(PARTITIONS)
    until(lambda: not consumer._network.in_flight, lambda: consumer.poll(10))

    consumer.close()

    assert len(broker._machine._fetches.sessions) == 0
