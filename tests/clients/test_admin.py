"""Administration against the embedded broker."""

import pytest

from streams.clients import Admin, Consumer, GroupListing, GroupNotEmptyError, TopicExistsError
from streams.clients.admin import EARLIEST, LATEST
from streams.core.errors import BrokerError, ClientClosedError, ConfigError, OffsetOutOfRangeError, UnknownTopicError
from streams.core.records import Block, TopicPartition
from streams.protocol.messages import OffsetAndMetadata, TopicSpec

P0 = TopicPartition("t", 0)


@pytest.fixture
def admin(broker, clock):
    with Admin(broker, clock=clock) as admin:
        yield admin


def test_topics_are_created_described_widened_and_deleted(admin):
    admin.create_topics([TopicSpec("new", 3, {"cleanup.policy": "compact"})])
    assert admin.list_topics() == ["new", "t"]
    described = admin.describe_topics(["new"])["new"]
    assert len(described.leaders) == 3
    assert described.config["cleanup.policy"] == "compact"

    admin.create_partitions({"new": 5})
    assert len(admin.describe_topics(["new"])["new"].leaders) == 5

    admin.delete_topics(["new"])
    assert admin.list_topics() == ["t"]


def test_refusals_are_named(admin):
    with pytest.raises(TopicExistsError, match="'t'"):
        admin.create_topics([TopicSpec("t", 1)])
    admin.create_topics([TopicSpec("t", 1)], exist_ok=True)
    for verb in (admin.delete_topics, admin.describe_topics):
        with pytest.raises(UnknownTopicError, match="'absent'"):
            verb(["absent"])
    with pytest.raises(UnknownTopicError):
        admin.create_partitions({"absent": 3})
    with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
        admin.create_partitions({"t": 1})


def test_offsets_are_listed_and_records_deleted(admin, broker):
    broker.append(P0, Block([None] * 4, [b"v"] * 4, [0, 10, 20, 30]))

    assert admin.delete_records({P0: 2}) == {P0: 2}

    assert admin.list_offsets({P0: EARLIEST}) == {P0: 2}
    assert admin.list_offsets({P0: LATEST}) == {P0: 4}
    assert admin.list_offsets({P0: 25}) == {P0: 3}
    assert admin.list_offsets({P0: 99}) == {P0: -1}
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({P0: 99})
    with pytest.raises(UnknownTopicError):
        admin.delete_records({TopicPartition("t", 7): 0})


def test_groups_are_listed_described_and_deleted(admin, broker, clock):
    consumer = Consumer(broker, "g", clock=clock)
    consumer.subscribe("t")
    consumer.poll()

    assert admin.list_groups() == [GroupListing("g", "consumer", "Stable")]
    described = admin.describe_group("g")
    assert (described.state, described.protocol_name, len(described.members)) == ("Stable", "range", 1)
    assert admin.describe_group("absent").state == "Dead"
    with pytest.raises(GroupNotEmptyError):
        admin.delete_group("g")
    with pytest.raises(GroupNotEmptyError):
        admin.alter_offsets("g", {P0: 1})
    consumer.close()

    admin.delete_group("g")
    assert admin.list_groups() == []
    with pytest.raises(BrokerError, match="no such group"):
        admin.delete_group("g")


def test_offsets_of_an_empty_group_are_altered(admin):
    admin.alter_offsets("g", {P0: 5, TopicPartition("t", 1): OffsetAndMetadata(6, "note")})

    assert admin.committed_offsets("g")[P0] == OffsetAndMetadata(5)
    assert admin.committed_offsets("g", [TopicPartition("t", 1)]) == {
        TopicPartition("t", 1): OffsetAndMetadata(6, "note")
    }
    assert admin.committed_offsets("absent") == {}


def test_without_broker_or_after_close_it_says_so(admin):
    with pytest.raises(ConfigError, match="broker"):
        Admin()
    admin.close()
    with pytest.raises(ClientClosedError):
        admin.list_topics()
