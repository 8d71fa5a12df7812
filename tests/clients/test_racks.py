"""A consumer with a rack reads from the replica that the leader names (KIP-392)."""

from collections import deque
from typing import Any

import pytest
from attrs import evolve

from streams.broker import EmbeddedBroker
from streams.clients import Consumer, DisconnectedError, Producer
from streams.core.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import Fetch, FetchedPartition, FetchResponse, MetadataResponse
from tests.waiting import until

LEADER, REPLICA = 0, 7
ORDERS = TopicPartition("orders", 0)


class TwoBrokers:
    """A cluster of a leader, which names the replica once to clients of its rack, and a replica, which may fail."""

    def __init__(self, inner: EmbeddedBroker, failure: Any = None) -> None:
        self.inner, self.failure = inner, failure
        self.is_named = False
        #: Broker and rack of each fetch.
        self.fetches: list[tuple[str, str]] = []

    def connect(self, client_id: str) -> "Link":
        return Link(self, self.inner.connect(client_id))


class Link:
    """A connection to both; what the leader has, the replica has too."""

    def __init__(self, cluster: TwoBrokers, inner: Any) -> None:
        self.cluster, self.inner = cluster, inner
        self.answers: deque[tuple[int, Any]] = deque()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def send(self, node_id: int, request: Any) -> int:
        if not isinstance(request, Fetch):
            return int(self.inner.send(node_id, request))
        cluster = self.cluster
        is_replica = node_id == REPLICA
        cluster.fetches.append(("replica" if is_replica else "leader", request.rack_id))
        answer: Any = None
        if is_replica and cluster.failure is not None:
            answer = cluster.failure
            if isinstance(answer, ErrorCode):
                answer = FetchResponse({ORDERS: FetchedPartition(answer, -1, -1)})
        elif not is_replica and request.rack_id == "b" and not cluster.is_named:
            cluster.is_named = True
            named = FetchedPartition(ErrorCode.NONE, 5, 0, preferred_read_replica=REPLICA)
            answer = FetchResponse({ORDERS: named})
        if answer is None:
            return int(self.inner.send(LEADER, request))
        self.answers.append((-len(cluster.fetches), answer))
        return -len(cluster.fetches)

    def poll(self, timeout_ms: int) -> list[tuple[int, Any]]:
        if self.answers:
            return [self.answers.popleft()]
        return [
            (number, evolve(answer, brokers={**answer.brokers, REPLICA: ""}))
            if isinstance(answer, MetadataResponse)
            else (number, answer)
            for number, answer in self.inner.poll(timeout_ms)
        ]


@pytest.fixture
def broker():
    with EmbeddedBroker() as made:
        made.create_topic("orders", 1)
        with Producer(made) as producer:
            for number in range(5):
                producer.send("orders", str(number).encode())
        yield made


def fetched_from(cluster: TwoBrokers, **settings: Any) -> list[str]:
    """Read all records; return the brokers in the order of the fetches, each once in a row."""
    found: list[bytes] = []
    with Consumer(cluster, retry_backoff_ms=1, fetch_max_wait_ms=5, **settings) as consumer:
        consumer.assign([ORDERS])
        consumer.seek(ORDERS, 0)
        until(lambda: len(found) == 5, lambda: found.extend(record.value for record in consumer.poll(10)))
    assert found == [b"0", b"1", b"2", b"3", b"4"]
    assert {rack for _, rack in cluster.fetches} == {settings.get("client_rack", "")}
    names = [name for name, _ in cluster.fetches]
    return [name for number, name in enumerate(names) if not number or names[number - 1] != name]


def test_records_are_read_from_the_replica_that_the_leader_names(broker):
    assert fetched_from(TwoBrokers(broker), client_rack="b") == ["leader", "replica"]
    assert fetched_from(TwoBrokers(broker), client_rack="c") == ["leader"]
    assert fetched_from(TwoBrokers(broker)) == ["leader"]


@pytest.mark.parametrize(
    "failure",
    [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        DisconnectedError("gone"),
    ],
    ids=str,
)
def test_the_leader_is_asked_again_when_the_replica_fails(broker, failure):
    """The position stays as it is: what a replica does not have is no reason for a reset."""
    cluster = TwoBrokers(broker, failure)

    found = fetched_from(cluster, client_rack="b", auto_offset_reset="none")

    assert found == ["leader", "replica", "leader"]


def test_a_replica_is_read_from_for_as_long_as_metadata_is_valid(broker):
    assert fetched_from(TwoBrokers(broker), client_rack="b", metadata_max_age_ms=0) == ["leader"]
