"""Time to live of single records: header before topic, offsets stay, readers get to the end."""

import pytest

from streams.broker import EmbeddedBroker, ttl_header
from streams.clients import Consumer, Producer
from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.errors import BrokerError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import Fetch

T = TopicPartition("t", 0)


@pytest.fixture
def clock():
    return VirtualClock(0)


@pytest.fixture(params=["array", "linked", "file"])
def broker(request, clock, tmp_path):
    with EmbeddedBroker(tmp_path, clock=clock, storage=request.param, maintenance_interval_ms=None) as broker:
        yield broker


def add(broker, value, at_ms, ttl_ms=None, key=b"k"):
    headers = None if ttl_ms is None else [(ttl_header(ttl_ms),)]
    return broker.append(T, Block([key], [value], [at_ms], headers))


def offsets(broker, start=0):
    return [offset for block in broker.read(T, start) for offset in block.offsets]


def test_a_record_expires_at_its_timestamp_plus_its_time_to_live(broker, clock):
    broker.create_topic("t", 1, ttl_ms=100)
    add(broker, b"topic", 10)
    add(broker, b"own", 10, ttl_ms=500)
    add(broker, b"ever", 10, ttl_ms=-1)
    add(broker, b"no time", -1)
    seen = []
    for now_ms in (109, 110, 509, 510):
        clock.advance(now_ms - clock.now_ms())
        seen.append(offsets(broker))

    assert seen == [[0, 1, 2, 3], [1, 2, 3], [1, 2, 3], [2, 3]]
    assert broker.end_offset(T) == 4


def test_without_a_time_to_live_of_the_topic_headers_mean_nothing(broker, clock):
    broker.create_topic("t", 1)
    add(broker, b"v", 0, ttl_ms=5)
    clock.advance(10)

    assert offsets(broker) == [0]


def test_minus_one_lets_only_the_headers_decide(broker, clock):
    broker.create_topic("t", 1, {"streams.record.ttl.ms": "-1"})
    add(broker, b"stays", 0)
    add(broker, b"goes", 0, ttl_ms=5)
    clock.advance(10)

    assert offsets(broker) == [0]


@pytest.mark.parametrize("content", [b"soon", b"", None, b"-2"])
def test_a_header_that_says_no_time_is_refused(broker, content):
    broker.create_topic("t", 1, ttl_ms=100)

    with pytest.raises(BrokerError, match=r"t-0.*streams\.ttl\.ms") as caught:
        broker.append(T, Block([b"k"], [b"v"], [0], [(("streams.ttl.ms", content),)]))

    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert broker.end_offset(T) == 0


def test_maintenance_raises_the_start_to_the_first_live_record(broker, clock):
    broker.create_topic("t", 1, ttl_ms=100)
    for at_ms in (0, 5, 200, 3):
        add(broker, b"v", at_ms)
    clock.advance(150)
    broker.maintain()

    assert (broker.start_offset(T), broker.end_offset(T)) == (2, 4)
    assert offsets(broker, 2) == [2]
    clock.advance(150)
    broker.maintain()
    assert (broker.start_offset(T), broker.end_offset(T)) == (4, 4)


def test_compaction_removes_what_is_expired_and_keeps_the_last_offset(clock):
    with EmbeddedBroker(clock=clock, maintenance_interval_ms=None) as broker:
        broker.create_topic("t", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}, ttl_ms=100)
        add(broker, b"old", 0, key=b"a")
        add(broker, b"young", 90, key=b"b")
        add(broker, b"ever", 0, ttl_ms=-1, key=b"c")
        add(broker, b"last", 0, key=b"d")
        broker.maintain()
        log = broker._machine.topics.log(T)
        kept = []
        for now_ms in (99, 100, 189, 190):
            clock.advance(now_ms - clock.now_ms())
            broker.maintain()
            kept.append([offset for block in log.read(0, 10) for offset in block.offsets])

        assert kept == [[0, 1, 2, 3], [1, 2, 3], [1, 2, 3], [2, 3]]
        assert offsets(broker) == [2]


def test_a_consumer_gets_past_expired_records_to_the_end(broker, clock):
    broker.create_topic("t", 1, ttl_ms=100)
    with Producer(broker, clock=clock) as producer:
        for _ in range(3):
            producer.send("t", b"gone", timestamp_ms=0)
        producer.send("t", b"stays", timestamp_ms=0, headers=[ttl_header(1000)])
        producer.send("t", b"gone", timestamp_ms=0)
    clock.advance(100)

    for isolation in ("read_uncommitted", "read_committed"):
        with Consumer(broker, clock=clock, isolation_level=isolation) as consumer:
            consumer.assign([T])
            consumer.seek(T, 0)
            seen = [record for _ in range(4) for record in consumer.poll(0)]
            assert [(record.offset, record.value) for record in seen] == [(3, b"stays")]
            assert consumer.position(T) == 5


def test_a_fetch_of_nothing_but_expired_records_is_answered_at_once(broker, clock):
    broker.create_topic("t", 1, ttl_ms=100)
    add(broker, b"gone", 0)
    clock.advance(100)
    client = broker.connect("c")
    client.send(-1, Fetch({T: 0}, max_wait_ms=1000))
    [(_, answer)] = client.poll(0)

    [block] = answer.partitions[T].blocks

    assert block.producer.is_control
    assert list(block.offsets) == [0]


def test_the_time_to_live_is_kept_with_the_topic(tmp_path, clock):
    with EmbeddedBroker(tmp_path, clock=clock) as broker:
        broker.create_topic("t", 1, ttl_ms=100)
        add(broker, b"v", 0)
    clock.advance(100)

    with EmbeddedBroker(tmp_path, clock=clock) as broker:
        assert broker.describe_topic("t").config["streams.record.ttl.ms"] == "100"
        assert offsets(broker) == []
