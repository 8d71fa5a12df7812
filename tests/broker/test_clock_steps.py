"""The wall clock is set: sessions, transactions and fetches go on; records and retention go by the new time.

As in Kafka, whose sessions go by a monotonic clock.
"""

from random import Random

import pytest

from streams.broker import EmbeddedBroker
from streams.core.blocks.records import Block, ProducerStamp, TopicPartition
from streams.core.clock import VirtualClock
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import DescribeGroup, Heartbeat, JoinGroup, SyncGroup
from streams.protocol.messages import AddPartitionsToTxn, EndTxn, Fetch, InitProducerId, Produce

WORDS = TopicPartition("words", 0)
START_MS, HOUR_MS, SESSION_MS = 1_000_000_000, 3_600_000, 10_000


@pytest.fixture
def clock():
    return VirtualClock(START_MS)


@pytest.fixture
def broker(clock):
    with EmbeddedBroker(clock=clock, rng=Random(1)) as broker:
        broker.create_topic("words", config={"message.timestamp.type": "LogAppendTime", "retention.ms": "60000"})
        yield broker


@pytest.fixture
def ask(broker):
    client = broker.connect("test")

    def asked(request):
        client.send(-1, request)
        ((_, answer),) = client.poll(0)
        return answer

    return asked


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_a_member_keeps_its_session(ask, clock, step_ms):
    joined = ask(JoinGroup("group", "", "consumer", [("range", b"")], SESSION_MS, SESSION_MS))
    ask(SyncGroup("group", joined.generation_id, joined.member_id, None, {joined.member_id: b""}))

    clock.jump_to(START_MS + step_ms)
    clock.advance(SESSION_MS - 1)

    assert ask(Heartbeat("group", joined.generation_id, joined.member_id)).error is ErrorCode.NONE
    clock.advance(SESSION_MS)
    assert ask(DescribeGroup("group")).state == "Empty"


def test_a_transaction_stays_open(ask, clock):
    given = ask(InitProducerId("app", SESSION_MS))
    stamp = ProducerStamp(given.producer_id, given.producer_epoch, 0, True)
    ask(AddPartitionsToTxn("app", given.producer_id, given.producer_epoch, (WORDS,)))
    block = Block([None], [b"a"], [1], producer=stamp)
    assert ask(Produce({WORDS: (block,)}, -1, "app")).partitions[WORDS].error is ErrorCode.NONE

    clock.jump_to(START_MS + HOUR_MS)

    assert ask(EndTxn("app", given.producer_id, given.producer_epoch, True)).error is ErrorCode.NONE


def test_a_fetch_waits_as_long_as_it_asks_for(broker, clock):
    client = broker.connect("test")
    client.send(-1, Fetch({WORDS: 0}, max_wait_ms=500))

    clock.jump_to(START_MS + HOUR_MS)
    assert client.poll(0) == []
    clock.advance(500)

    assert len(client.poll(0)) == 1


def test_records_and_retention_go_by_the_new_time(broker, clock):
    broker.append(WORDS, Block([None], [b"old"], [1]))
    clock.jump_to(START_MS + HOUR_MS)
    broker.append(WORDS, Block([None], [b"new"], [1]))

    times = [time for block in broker.read(WORDS, 0) for time in block.timestamps]
    assert times == [START_MS, START_MS + HOUR_MS]
    clock.advance(60_001)
    broker.maintain()
    assert broker.start_offset(WORDS) == 2


def test_the_times_of_records_never_go_back(broker, clock):
    broker.append(WORDS, Block([None], [b"a"], [1]))
    clock.jump_to(START_MS - HOUR_MS)
    clock.advance(5)
    broker.append(WORDS, Block([None], [b"b"], [1]))

    assert [time for block in broker.read(WORDS, 0) for time in block.timestamps] == [START_MS, START_MS + 5]
