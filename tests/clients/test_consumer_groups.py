"""Consumers in groups whose partitions the broker assigns (KIP-848)."""

import re
from collections.abc import Iterator

import pytest

from streams import ConfigError, EmbeddedBroker
from streams.clients import Consumer, Producer, RebalanceListener, SubscriptionPattern
from streams.clients.tcp import TcpCluster
from streams.core.blocks.records import TopicPartition
from streams.core.errors import BrokerError
from streams.group import CoordinatorConfig, RangeAssignor
from streams.testing.simulation.conditions import ANY_LENGTH
from tests.waiting import until

BEAT_MS = 20


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker whose members send heartbeats often."""
    config = CoordinatorConfig(**ANY_LENGTH, consumer_heartbeat_interval_ms=BEAT_MS)
    with EmbeddedBroker(auto_create_topics=False, group_config=config) as broker:
        broker.create_topic("t", partitions=4)
        yield broker


@pytest.fixture(params=["embedded", "tcp"])
def cluster(request, broker):
    """The broker in this process, and over TCP."""
    if request.param == "embedded":
        yield broker
    else:
        with broker.serve("127.0.0.1:0") as server:
            yield TcpCluster(server.address)


def member(cluster, **settings) -> Consumer:
    """A consumer in the group."""
    given = {"auto_offset_reset": "earliest", "enable_auto_commit": False} | settings
    return Consumer(cluster, "g", group_protocol="consumer", **given)


def write(broker: EmbeddedBroker, start: int, stop: int) -> None:
    """Write numbers, spread over the partitions."""
    with Producer(broker) as producer:
        for number in range(start, stop):
            producer.send("t", b"%d" % number, partition=number % 4)


def numbers(consumer: Consumer) -> set[int]:
    """The numbers of the assigned partitions."""
    return {partition.partition for partition in consumer.assignment()}


def test_members_share_the_partitions_and_go_on_from_what_was_committed(broker, cluster):
    seen: list[int] = []
    with member(cluster) as one, member(cluster) as two:
        one.subscribe(["t"])
        until(lambda: len(one.assignment()) == 4, lambda: one.poll(10))
        two.subscribe(["t"])

        def turn() -> None:
            for consumer in (one, two):
                seen.extend(int(record.value) for record in consumer.poll(5))

        until(lambda: len(one.assignment()) == len(two.assignment()) == 2, turn)
        assert not numbers(one) & numbers(two)
        write(broker, 0, 40)
        until(lambda: len(seen) >= 40, turn)
        one.commit_sync()
        two.commit_sync()
        two.close()
        until(lambda: len(one.assignment()) == 4, turn_of(one, seen))
        write(broker, 40, 60)
        until(lambda: len(seen) >= 60, turn_of(one, seen))
        one.commit_sync()
    assert sorted(seen) == list(range(60))
    write(broker, 60, 64)
    with member(cluster) as three:
        three.subscribe(["t"])
        until(lambda: len(seen) >= 64, turn_of(three, seen))
    assert sorted(seen) == list(range(64))


def topics_of(consumer: Consumer) -> set[str]:
    """The topics of the assigned partitions."""
    return {partition.topic for partition in consumer.assignment()}


def test_the_broker_matches_a_pattern_with_topics_that_are_created_later(broker, cluster):
    broker.create_topic("orders-eu", partitions=2)
    with member(cluster, metadata_max_age_ms=3_600_000) as one, member(cluster) as two:
        for consumer in (one, two):
            consumer.subscribe(SubscriptionPattern("orders-[a-z]+"))

        def turn() -> None:
            one.poll(5)
            two.poll(5)

        until(lambda: len(one.assignment()) == len(two.assignment()) == 1, turn)
        assert topics_of(one) == topics_of(two) == {"orders-eu"}
        assert one.subscription() == frozenset()
        broker.create_topic("orders-us", partitions=2)
        broker.create_topic("orders-2", partitions=2)
        until(lambda: len(one.assignment()) == len(two.assignment()) == 2, turn)
        with Producer(broker) as producer:
            producer.send("orders-us", b"v", partition=0)
        seen: list[bytes] = []
        until(lambda: seen, lambda: seen.extend(record.value for one in (one, two) for record in one.poll(5)))
        assert topics_of(one) | topics_of(two) == {"orders-eu", "orders-us"}
        # Names take the place of the pattern, and a pattern that of names.
        one.subscribe(["t"])
        until(lambda: topics_of(one) == {"t"} and len(two.assignment()) == 4, turn)
        one.subscribe(SubscriptionPattern(".*-2"))
        until(lambda: topics_of(one) == {"orders-2"}, turn)
        one.unsubscribe()
        assert not one.assignment()
        one.subscribe(["t"])
        until(lambda: topics_of(one) == {"t"}, turn)


def test_a_pattern_matches_internal_topics(cluster):
    """As in Kafka; the first commit, or the group itself, creates the topic."""
    with member(cluster) as one:
        one.subscribe(SubscriptionPattern("__consumer_.*"))
        until(lambda: one.assignment() == {TopicPartition("__consumer_offsets", 0)}, lambda: one.poll(10))


def test_a_pattern_that_the_broker_cannot_match_is_an_error_that_says_so(cluster):
    with (
        member(cluster) as one,
        pytest.raises(BrokerError, match=r"INVALID_REGULAR_EXPRESSION.*orders-\(.*syntax of RE2"),
    ):
        one.subscribe(SubscriptionPattern("orders-("))
        until(lambda: False, lambda: one.poll(5))


@pytest.mark.parametrize("given", ["", None, re.compile("t"), b"t"])
def test_a_pattern_for_the_broker_is_a_text(given):
    with pytest.raises(ConfigError, match="give a regular expression as text"):
        SubscriptionPattern(given)


def test_only_brokers_that_assign_match_patterns(broker):
    with Consumer(broker, "g") as one, pytest.raises(ConfigError, match="group_protocol='consumer'; set that, or"):
        one.subscribe(SubscriptionPattern("t"))


def turn_of(consumer: Consumer, seen: list[int]):
    """A turn of one consumer."""
    return lambda: seen.extend(int(record.value) for record in consumer.poll(5))


class Noted(RebalanceListener):
    """What a listener is told; it commits what is revoked."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer, self.told = consumer, []

    def on_partitions_assigned(self, partitions):
        """Note."""
        self.told.append(("assigned", len(partitions)))

    def on_partitions_revoked(self, partitions):
        """Note, and commit."""
        self.consumer.commit_sync({TopicPartition(*partition): 0 for partition in partitions})
        self.told.append(("revoked", len(partitions)))

    def on_partitions_lost(self, partitions):
        """Note."""
        self.told.append(("lost", len(partitions)))


def test_listeners_are_told_of_what_changes_only(broker, cluster):
    with member(cluster) as one, member(cluster) as two:
        noted = Noted(one)
        one.subscribe(["t"], noted)
        until(lambda: len(one.assignment()) == 4, lambda: one.poll(10))
        two.subscribe(["t"])
        # The first may learn that it has all it is to have after the second has the rest.
        until(lambda: len(two.assignment()) == 2 and len(noted.told) > 2, lambda: (one.poll(5), two.poll(5)))
        assert noted.told == [("assigned", 4), ("revoked", 2), ("assigned", 0)]


def test_removed_member_is_told_that_its_partitions_are_lost(broker):
    with member(broker) as one:
        noted = Noted(one)
        one.subscribe(["t"], noted)
        until(lambda: len(one.assignment()) == 4, lambda: one.poll(10))
        broker._machine.coordinator.remove_members(lambda _: True, 0)
        until(lambda: len(noted.told) >= 3, lambda: one.poll(10))
        assert noted.told == [("assigned", 4), ("lost", 4), ("assigned", 4)]


def test_topics_by_pattern_and_topics_that_grow(broker):
    with member(broker, metadata_max_age_ms=20) as one:
        one.subscribe(re.compile("t.*"))
        until(lambda: len(one.assignment()) == 4, lambda: one.poll(10))
        broker.create_topic("tt", partitions=2)
        broker.create_topic("u", partitions=2)
        until(lambda: len(one.assignment()) == 6, lambda: one.poll(10))
        broker.add_partitions("tt", 3)
        until(lambda: len(one.assignment()) == 7, lambda: one.poll(10))


def test_static_member_comes_back_to_what_it_had(broker):
    with member(broker) as one:
        one.subscribe(["t"])
        two = member(broker, group_instance_id="i")
        two.subscribe(["t"])
        until(lambda: len(one.assignment()) == len(two.assignment()) == 2, lambda: (one.poll(5), two.poll(5)))
        mine, others = numbers(two), numbers(one)
        two.close()
        for _ in range(5):
            one.poll(BEAT_MS)
        assert numbers(one) == others
        with member(broker, group_instance_id="i") as two:
            two.subscribe(["t"])
            until(lambda: numbers(two) == mine, lambda: (one.poll(5), two.poll(5)))
        assert numbers(one) == others


def test_offsets_in_a_transaction(broker):
    write(broker, 0, 4)
    with member(broker) as one, Producer(broker, transactional_id="tx") as producer:
        one.subscribe(["t"])
        until(lambda: len(one.assignment()) == 4, lambda: one.poll(10))
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition("t", 1): 1}, one.group_metadata)
        producer.commit_transaction()
        assert one.committed([TopicPartition("t", 1)])[TopicPartition("t", 1)].offset == 1


def test_assignor_of_the_broker_is_chosen_by_name(broker):
    with member(broker, group_remote_assignor="range") as one:
        one.subscribe(["t"])
        until(lambda: len(one.assignment()) == 4, lambda: one.poll(10))
    with member(broker, group_remote_assignor="best") as two:
        two.subscribe(["t"])
        with pytest.raises(BrokerError, match="ServerAssignor best is not supported"):
            until(lambda: False, lambda: two.poll(10))


def test_own_assignors_are_refused():
    with (
        EmbeddedBroker() as broker,
        pytest.raises(ConfigError, match="group_protocol='consumer' and assignors=: the broker assigns"),
    ):
        Consumer(broker, "g", group_protocol="consumer", assignors=[RangeAssignor()])
