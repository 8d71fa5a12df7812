"""Consumer groups of KIP-848 on a real broker: our members beside those of librdkafka."""

import pytest
from confluent_kafka import Consumer as OtherConsumer

from streams.clients import Admin, Consumer, Producer, SubscriptionPattern
from streams.clients.tcp import TcpCluster
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import BrokerError
from streams.protocol.messages import TopicSpec
from tests.kafka.node import KafkaNode
from tests.waiting import until

pytestmark = pytest.mark.kafka


def test_ours_and_others_share_a_group_that_the_broker_assigns(kafka: KafkaNode, topic: str):
    """One of ours, then one of another library beside it; each leaves once, and every record is read by one."""
    cluster, group, seen = TcpCluster(kafka.bootstrap_servers), f"{topic}-group", []
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    others = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "group.protocol": "consumer"}
    others |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}

    def write(first: int) -> None:
        with Producer(cluster) as producer:
            for partition in range(3):
                values = [b"%d" % (first + 10 * partition + n) for n in range(10)]
                producer.send_block(TopicPartition(topic, partition), Block([None] * 10, values, [1] * 10))

    other = OtherConsumer(others)
    one = Consumer(cluster, group, group_protocol="consumer", **settings)
    try:
        one.subscribe([topic])

        def turn_of_ours() -> None:
            seen.extend(int(record.value) for record in one.poll(50))

        def turn_of_other() -> None:
            for message in other.consume(100, 0.05):
                assert not message.error(), message.error()
                seen.append(int(message.value()))

        def turn() -> None:
            turn_of_ours()
            turn_of_other()

        until(lambda: len(one.assignment()) == 3, turn_of_ours)
        write(0)
        until(lambda: len(seen) >= 30, turn_of_ours)
        one.commit_sync()
        other.subscribe([topic])
        until(lambda: sorted((len(one.assignment()), len(other.assignment()))) == [1, 2], turn)
        write(100)
        until(lambda: len(seen) >= 60, turn)
        one.commit_sync()
        other.commit(asynchronous=False)
        one.close()
        until(lambda: len(other.assignment()) == 3, turn_of_other)
        write(200)
        until(lambda: len(seen) >= 90, turn_of_other)
        other.commit(asynchronous=False)
        with Admin(cluster) as admin:
            assert group in [found.group_id for found in admin.list_groups()]
            assert {offset.offset for offset in admin.committed_offsets(group).values()} == {30}
    finally:
        one.close()
        other.close()
    assert sorted(seen) == [first + n for first in (0, 100, 200) for n in range(30)]


def test_a_real_broker_matches_a_pattern_with_topics_that_are_created_later(kafka: KafkaNode, topic: str):
    cluster, first, second = TcpCluster(kafka.bootstrap_servers), f"{topic}-a", f"{topic}-b"
    # Kafka looks for new topics at intervals, and whenever the subscription of a member changes.
    with Admin(cluster) as admin, Consumer(cluster, f"{topic}-group", group_protocol="consumer") as one:
        admin.create_topics([TopicSpec(first, 2)])
        one.subscribe(SubscriptionPattern(f"{topic}-[ab]"))
        until(lambda: len(one.assignment()) == 2, lambda: one.poll(50))
        admin.create_topics([TopicSpec(second, 1), TopicSpec(f"{topic}-c", 1)])
        other = Consumer(cluster, f"{topic}-group", group_protocol="consumer")
        with other:
            other.subscribe(SubscriptionPattern(f"{topic}-b"))
            until(lambda: {p.topic for p in other.assignment()} == {second}, lambda: (one.poll(20), other.poll(20)))
        one.subscribe([first])
        until(lambda: {p.topic for p in one.assignment()} == {first}, lambda: one.poll(50))
        one.subscribe(SubscriptionPattern(f"{topic}-(a|b|c)"))
        until(lambda: len(one.assignment()) == 4, lambda: one.poll(50))


def test_a_real_broker_refuses_an_invalid_pattern(kafka: KafkaNode, topic: str):
    cluster = TcpCluster(kafka.bootstrap_servers)
    with (
        Consumer(cluster, f"{topic}-group", group_protocol="consumer") as one,
        pytest.raises(BrokerError, match=r"INVALID_REGULAR_EXPRESSION.*syntax of RE2"),
    ):
        one.subscribe(SubscriptionPattern("orders-("))
        until(lambda: False, lambda: one.poll(50))
