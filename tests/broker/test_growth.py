"""Partitions are added while producers send and groups consume."""

import pytest

from streams.broker import EmbeddedBroker
from streams.clients import Admin, Consumer, Producer
from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.errors import BrokerError, UnknownTopicError
from streams.group import CooperativeStickyAssignor, RangeAssignor
from streams.protocol.error_codes import ErrorCode


@pytest.fixture
def clock():
    return VirtualClock(0)


@pytest.fixture(params=["array", "linked", "file"])
def broker(request, clock, tmp_path):
    with EmbeddedBroker(tmp_path, clock=clock, storage=request.param) as broker:
        yield broker


@pytest.mark.parametrize("assignor", [RangeAssignor, CooperativeStickyAssignor])
@pytest.mark.parametrize("by_admin", [True, False])
def test_a_group_takes_up_added_partitions_and_reads_every_record_once(broker, clock, assignor, by_admin):
    """Two members; the topic grows from 2 partitions to 6 while records come in."""
    broker.create_topic("t", 2, partitioner="round_robin")
    consumers = [
        Consumer(
            broker,
            "group",
            client_id=f"member-{number}",
            clock=clock,
            auto_offset_reset="earliest",
            metadata_max_age_ms=2_000,
            assignors=[assignor()],
        )
        for number in range(2)
    ]
    for consumer in consumers:
        consumer.subscribe(["t"])
    producer = Producer(broker, clock=clock, metadata_max_age_ms=2_000)
    read = []

    def live(ms):
        for _ in range(ms // 500):
            for consumer in consumers:
                read.extend((record.partition, int(record.value)) for record in consumer.poll(0))
            clock.advance(500)

    live(5_000)
    sent = 0
    for step in range(20):
        if step == 5:
            if by_admin:
                Admin(broker, clock=clock).create_partitions({"t": 6})
            else:
                broker.add_partitions("t", 6)
            # Before any member knows of it: added partitions are read from their beginning.
            broker.append(TopicPartition("t", 5), Block([None], [b"-1"], [0]))
        for _ in range(6):
            producer.send("t", b"%d" % sent)
            sent += 1
        producer.flush()
        live(1_000)
    live(5_000)

    assert sorted(value for _, value in read) == [-1, *range(sent)]
    assert {partition for partition, _ in read} == set(range(6))
    for number in range(6):
        values = [value for partition, value in read if partition == number]
        assert values == sorted(values)
    owned = [consumer.assignment() for consumer in consumers]
    assert sorted(map(len, owned)) == [3, 3]
    assert owned[0] | owned[1] == {TopicPartition("t", number) for number in range(6)}
    producer.close()
    for consumer in consumers:
        consumer.close()


def test_partitions_are_only_ever_added(broker):
    broker.create_topic("t", 3)

    for count in (3, 2, 0):
        with pytest.raises(
            BrokerError,
            match=rf"Topic already has 3|t currently has 3 partition\(s\); {count} would not be an increase",
        ) as caught:
            broker.add_partitions("t", count)
        assert caught.value.code == ErrorCode.INVALID_PARTITIONS
    with pytest.raises(UnknownTopicError, match="'absent'"):
        broker.add_partitions("absent", 5)
    assert broker.topics() == {"t": 3}


def test_growth_survives_a_restart(tmp_path):
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", 1)
        broker.add_partitions("t", 3)
        broker.append(TopicPartition("t", 2), Block([None], [b"a"], [0]))

    with EmbeddedBroker(tmp_path) as broker:
        assert broker.topics() == {"t": 3}
        assert broker.end_offset(TopicPartition("t", 2)) == 1


def test_the_verbs_name_what_is_wrong(broker):
    broker.create_topic("t", 1)
    broker.append(TopicPartition("t", 0), Block([None] * 3, [b"a", b"b", b"c"], [10, 20, 30]))
    first, absent = TopicPartition("t", 0), TopicPartition("t", 1)

    assert [broker.offset_for_time(first, at_ms) for at_ms in (0, 10, 11, 30, 31)] == [0, 0, 1, 2, None]
    assert broker.delete_records(first, 2) == 2
    assert broker.offset_for_time(first, 0) == 2
    assert len(broker.describe_topic("t").leaders) == 1
    with pytest.raises(BrokerError, match=r"time -5 .*t-0"):
        broker.offset_for_time(first, -5)
    with pytest.raises(BrokerError, match=r"t-0.*up to 4.*ends at 3"):
        broker.delete_records(first, 4)
    for ask in (lambda: broker.offset_for_time(absent, 0), lambda: broker.delete_records(absent, 0)):
        with pytest.raises(UnknownTopicError, match=r"t-1.*partitions 0 to 0"):
            ask()
    with pytest.raises(UnknownTopicError, match="'absent'"):
        broker.describe_topic("absent")
