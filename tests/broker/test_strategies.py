"""The partitioning strategy of a topic, as its producers follow it."""

import pytest

from streams.broker import EmbeddedBroker
from streams.clients import Admin, PartitionerError, Producer
from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import TopicPartition
from streams.core.clock import VirtualClock
from streams.core.errors import BrokerError, ConfigError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import TopicSpec


@pytest.fixture
def broker():
    with EmbeddedBroker(clock=VirtualClock(0)) as broker:
        yield broker


def sent(broker, keys, topic="t", **options):
    """Return the partition that each key went to, every record acknowledged before the next."""
    with Producer(broker, clock=broker._clock, **options) as producer:
        return [producer.send(topic, b"v", key=key).result().partition for key in keys]


def by_length(topic, key, value, count):
    return len(key or b"") % count


def test_keys_go_by_murmur2_and_null_keys_stay_until_their_batch_is_gone(broker):
    broker.create_topic("t", 4)
    keys = [b"a", b"b", b"c", b"21"]

    assert sent(broker, keys) == [partition_for(key, 4) for key in keys]
    with Producer(broker, clock=broker._clock, linger_ms=10) as producer:
        together = [producer.send("t", b"v").partition.partition for _ in range(5)]
        producer.flush()
        later = producer.send("t", b"v").partition.partition
    assert len(set(together)) == 1
    assert later == (together[0] + 1) % 4


def test_round_robin_goes_from_partition_to_partition_whatever_the_key(broker):
    broker.create_topic("t", 3, partitioner="round_robin")

    first, *rest = sent(broker, [b"k", None, b"k", b"k"])

    assert rest == [(first + step) % 3 for step in (1, 2, 3)]


def test_explicit_takes_only_records_whose_partition_is_named(broker):
    broker.create_topic("t", 3, partitioner="explicit")
    with Producer(broker, clock=broker._clock) as producer:
        assert producer.send("t", b"v", key=b"k", partition=2).result().partition == 2
        with pytest.raises(PartitionerError, match=r"'t'.*explicit.*0 to 2.*partition="):
            producer.send("t", b"v", key=b"k")


def test_a_function_of_the_users_own(broker):
    broker.create_topic("t", 3, partitioner=by_length)

    assert sent(broker, [b"", b"a", b"ab", b"abc"]) == [0, 1, 2, 0]
    assert broker.describe_topic("t").config["streams.partitioner"] == "custom"


def test_the_producers_own_partitioner_goes_before_the_topics(broker):
    broker.create_topic("t", 3, partitioner="explicit")

    assert sent(broker, [b"a"], partitioner=lambda topic, key, value, count: 2) == [2]


@pytest.mark.parametrize("result", [3, -1, "0", None, True, 1.0])
def test_a_result_that_is_no_partition_is_an_error_and_nothing_is_sent(broker, result):
    broker.create_topic("t", 3, partitioner=lambda topic, key, value, count: result)
    with Producer(broker, clock=broker._clock) as producer:
        with pytest.raises(PartitionerError, match=r"'t'.*3 partitions.*0 to 2"):
            producer.send("t", b"v", key=b"k")
    assert [broker.end_offset(TopicPartition("t", number)) for number in range(3)] == [0, 0, 0]


def test_a_function_that_raises_is_an_error_that_names_the_topic(broker):
    def broken(topic, key, value, count):
        raise KeyError("region")

    broker.create_topic("t", 3, partitioner=broken)
    with Producer(broker, clock=broker._clock) as producer:
        with pytest.raises(PartitionerError, match=r"'t'.*b'k'.*region") as caught:
            producer.send("t", b"v", key=b"k")
    assert isinstance(caught.value.__cause__, KeyError)


def test_admins_choose_by_configuration(broker):
    with Admin(broker, clock=broker._clock) as admin:
        admin.create_topics([TopicSpec("t", 3, {"streams.partitioner": "round_robin", "streams.storage": "linked"})])
        config = admin.describe_topics(["t"])["t"].config

        assert (config["streams.partitioner"], config["streams.storage"]) == ("round_robin", "linked")
        with pytest.raises(BrokerError, match="by_weight") as caught:
            admin.create_topics([TopicSpec("u", 3, {"streams.partitioner": "by_weight"})])
        assert caught.value.code == ErrorCode.INVALID_CONFIG
        with pytest.raises(BrokerError, match="partitioners="):
            admin.create_topics([TopicSpec("u", 3, {"streams.partitioner": "custom"})])
        with pytest.raises(BrokerError, match="storage="):
            admin.create_topics([TopicSpec("u", 3, {"streams.storage": "custom"})])
    assert broker.topics() == {"t": 3}


def test_strategies_are_kept_with_the_topic_and_functions_are_asked_for_again(tmp_path):
    clock = VirtualClock(0)
    with EmbeddedBroker(tmp_path, clock=clock) as broker:
        broker.create_topic("own", 3, partitioner=by_length)
        broker.create_topic("turns", 3, partitioner="round_robin")

    with pytest.raises(ConfigError, match=r"'own'.*partitioners="):
        EmbeddedBroker(tmp_path, clock=clock)
    with EmbeddedBroker(tmp_path, clock=clock, partitioners={"own": by_length}) as broker:
        assert sent(broker, [b"ab"], "own") == [2]
        assert len(set(sent(broker, [b"k"] * 3, "turns"))) == 3


def test_a_function_beside_a_named_strategy_is_refused():
    with EmbeddedBroker(partitioners={"t": by_length}) as broker:
        with pytest.raises(ConfigError, match=r"'t'.*round_robin"):
            broker.create_topic("t", 3, partitioner="round_robin")
        broker.create_topic("u", 3, partitioner="round_robin")
        broker.create_topic("t", 3)
        assert broker.describe_topic("t").partitioner is by_length
