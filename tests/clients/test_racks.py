"""A consumer with a rack reads from the replica that the leader names (KIP-392)."""

from collections import deque
from contextlib import ExitStack
from typing import Any

import pytest
from attrs import evolve

from streams.broker import EmbeddedBroker
from streams.clients import Consumer, DisconnectedError, Producer
from streams.clients.tcp import TcpCluster
from streams.core.blocks.records import TopicPartition
from streams.group import RangeAssignor
from streams.protocol.admin_messages import DescribeCluster
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import Fetch, FetchedPartition, FetchResponse, Metadata, MetadataResponse
from streams.protocol.transport import ANY_NODE
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


def test_assignors_know_the_racks_of_the_members(broker):
    """Consumer protocol version 3 (KIP-881)."""
    seen: dict[str, str | None] = {}

    class Noting(RangeAssignor):
        name = "noting"

        def assign(self, partitions_per_topic: Any, members: Any) -> Any:
            seen.update((subscription.user_data.decode(), subscription.rack_id) for subscription in members.values())
            return super().assign(partitions_per_topic, members)

    class Named(Noting):
        def __init__(self, member: str) -> None:
            self.member = member

        def subscription_user_data(self) -> bytes:
            return self.member.encode()

    with ExitStack() as stack:
        consumers = [
            stack.enter_context(
                Consumer(broker, "racks", client_rack=rack, assignors=[Named(member)], heartbeat_interval_ms=10)
            )
            for member, rack in (("one", "a"), ("two", "b"), ("three", ""))
        ]
        for consumer in consumers:
            consumer.subscribe(["orders"])
        until(lambda: len(seen) == 3, lambda: [consumer.poll(10) for consumer in consumers])

    assert seen == {"one": "a", "two": "b", "three": None}


def answered(cluster: Any, request: Any) -> Any:
    connection, answers = cluster.connect("asks"), list[Any]()
    connection.send(ANY_NODE, request)
    until(lambda: bool(answers), lambda: answers.extend(connection.poll(10)))
    connection.close()
    return answers[0][1]


def test_a_broker_tells_its_rack_in_process_and_over_tcp():
    with EmbeddedBroker(rack="eu-1a") as broker, broker.serve("127.0.0.1:0") as server:
        for cluster in (broker, TcpCluster(server.bootstrap_servers)):
            assert answered(cluster, Metadata(())).racks == {0: "eu-1a"}
            assert [found.rack for found in answered(cluster, DescribeCluster()).brokers] == ["eu-1a"]


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
