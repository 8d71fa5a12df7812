"""Administration against the embedded broker."""

import pytest

from streams.clients import (
    Admin,
    Consumer,
    GroupExistsError,
    GroupListing,
    GroupNotEmptyError,
    RebalanceListener,
    StatefulGroupError,
    TopicExistsError,
)
from streams.clients.admin import EARLIEST, LATEST
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import (
    BrokerError,
    ClientClosedError,
    ConfigError,
    MemberFencedError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from streams.group import CooperativeStickyAssignor
from streams.protocol.admin_messages import ConfigResource, DescribeConfigs, ResourceType
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.messages import TopicSpec
from streams.protocol.transport import ANY_NODE

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)


STANDBYS = "streams.num.standby.replicas"


@pytest.fixture
def admin(broker, clock):
    with Admin(broker, clock=clock) as admin:
        yield admin


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


@pytest.fixture
def reader(broker, clock):
    """Make consumers of group g that commit by hand, and close them."""
    made = []

    def make(**settings):
        consumer = Consumer(
            broker, "g", clock=clock, auto_offset_reset="earliest", enable_auto_commit=False, **settings
        )
        consumer.subscribe("t", Told(consumer))
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


class Told(RebalanceListener):
    def __init__(self, consumer):
        consumer.told = self.told = []

    def on_partitions_revoked(self, partitions):
        self.told.append("revoked")

    def on_partitions_lost(self, partitions):
        self.told.append("lost")


def beats(clock, *consumers, seconds=7):
    """Let time pass; return what everybody read, by partition."""
    read = []
    for _ in range(seconds):
        clock.advance(1_000)
        for consumer in consumers:
            read += [(record.partition, record.offset) for record in consumer.poll()]
    return sorted(read)


def test_a_live_group_is_rewound_and_goes_on_from_there(admin, broker, clock, reader):
    """What the member commits before it notices is refused, and what it had is lost, not revoked."""
    broker.append(P0, Block([None] * 5, [b"v"] * 5, [0, 10, 20, 30, 40]))
    broker.append(P1, Block([None] * 2, [b"v"] * 2, [0, 10]))
    consumer = reader()
    consumer.poll()
    consumer.commit_sync({P0: 5, P1: 2})

    assert admin.rewind("g", offsets={P0: 2}) == {P0: 2}

    with pytest.raises(MemberFencedError):
        consumer.commit_sync({P0: 5, P1: 2})
    assert beats(clock, consumer) == [(0, 2), (0, 3), (0, 4)]
    assert consumer.told == ["lost"]
    consumer.commit_sync()
    assert {p: found.offset for p, found in admin.committed_offsets("g").items()} == {P0: 5, P1: 2}


def test_rewind_leaves_members_alone_that_have_none_of_the_partitions(admin, broker, clock, reader):
    broker.append(P0, Block([None] * 3, [b"v"] * 3, [0, 10, 20]))
    broker.append(P1, Block([None] * 3, [b"v"] * 3, [0, 10, 20]))
    a = reader(assignors=[CooperativeStickyAssignor()])
    b = reader(assignors=[CooperativeStickyAssignor()])
    beats(clock, a, b, seconds=12)
    of_a = next(iter(a.assignment()))
    for consumer in (a, b):
        consumer.commit_sync()

    admin.rewind("g", to=EARLIEST, partitions=[of_a])

    assert beats(clock, a, b, seconds=12) == [(of_a.partition, offset) for offset in range(3)]
    assert "lost" not in b.told


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"to": EARLIEST}, {P0: 1, P1: 0}),
        ({"to": LATEST}, {P0: 4, P1: 0}),
        ({"to": 15}, {P0: 2, P1: 0}),
        ({"shift": -1}, {P0: 2, P1: 0}),
        ({"shift": -100}, {P0: 1, P1: 0}),
        ({"shift": 100}, {P0: 4, P1: 0}),
        ({"shift": 1, "partitions": [P0]}, {P0: 4}),
    ],
)
def test_rewind_knows_places_by_name_time_and_distance(admin, broker, where, expected):
    broker.append(P0, Block([None] * 4, [b"v"] * 4, [0, 10, 20, 30]))
    admin.delete_records({P0: 1})
    admin.alter_offsets("g", {P0: 3})

    assert admin.rewind("g", **where) == expected


def test_rewind_that_cannot_be_changes_nothing(admin, broker):
    admin.alter_offsets("g", {P0: 0})
    with pytest.raises(OffsetOutOfRangeError, match="has offsets 0 to 0, not 7"):
        admin.rewind("g", offsets={P0: 7})
    with pytest.raises(UnknownTopicError):
        admin.rewind("g", offsets={TopicPartition("t", 9): 0})
    with pytest.raises(BrokerError, match="no such group"):
        admin.rewind("absent", to=EARLIEST)
    for wrong in ({}, {"to": 1, "shift": 1}, {"to": -7}):
        with pytest.raises(ConfigError, match="rewind of group 'g'"):
            admin.rewind("g", **wrong)

    assert admin.committed_offsets("g") == {P0: OffsetAndMetadata(0)}


def test_ephemeral_group_vanishes_with_its_last_member(admin, broker, clock, reader):
    admin.create_group("g", ephemeral=True, session_timeout_ms=6_000)
    assert admin.describe_group("g").state == "Empty"
    consumer = reader()
    consumer.poll()
    consumer.commit_sync({P0: 0})
    assert admin.describe_group("g").session_timeout_ms == 6_000

    admin.rewind("g", to=EARLIEST)
    assert admin.list_groups() == [GroupListing("g", "consumer", "Empty")], "its member will be back"
    beats(clock, consumer)
    assert admin.describe_group("g").state == "Stable"

    clock.advance(6_001)
    assert admin.list_groups() == []
    assert admin.committed_offsets("g") == {}


def test_settings_of_a_group_are_set_and_reset(admin, broker):
    def described() -> str:
        connection = broker.connect("test")
        connection.send(ANY_NODE, DescribeConfigs((ConfigResource(ResourceType.GROUP, "g", (STANDBYS,)),)))
        ((_, response),) = connection.poll(1_000)
        return response.results[0].configs[0].value

    admin.alter_group_configs("g", {STANDBYS: "2"})
    assert described() == "2"
    with pytest.raises(BrokerError, match="INVALID_CONFIG"):
        admin.alter_group_configs("g", {STANDBYS: "-1"})
    admin.alter_group_configs("g", {STANDBYS: None})
    assert described() == "0"


def test_group_that_was_created_is_not_created_otherwise(admin):
    admin.create_group("g")
    admin.create_group("g")
    with pytest.raises(GroupExistsError, match="'g'"):
        admin.create_group("g", ephemeral=True)
    with pytest.raises(BrokerError, match="must not be empty"):
        admin.create_group("")
    with pytest.raises(BrokerError, match="within the broker's group"):
        admin.create_group("h", session_timeout_ms=0)
    admin.delete_group("g")
    assert admin.list_groups() == []


def test_static_member_is_removed_by_name(admin, broker, clock, reader):
    consumer = reader(group_instance_id="one")
    consumer.poll()

    admin.remove_member("g", "one")

    assert admin.describe_group("g").state == "Empty"
    with pytest.raises(MemberFencedError, match="'two'"):
        admin.remove_member("g", "two")


def test_partitions_that_are_added_are_read_from_their_beginning(admin, broker, clock):
    """Also by who begins at the end: nobody could have read them before."""
    with Consumer(broker, "g", clock=clock, auto_offset_reset="latest", metadata_max_age_ms=1_000) as consumer:
        broker.append(P0, Block([None], [b"before"], [0]))
        consumer.subscribe("t")
        assert beats(clock, consumer) == []
        admin.create_partitions({"t": 3})
        broker.append(TopicPartition("t", 2), Block([None] * 2, [b"v"] * 2, [0, 0]))

        assert beats(clock, consumer) == [(2, 0), (2, 1)]


def test_without_broker_or_after_close_it_says_so(admin):
    with pytest.raises(ConfigError, match="broker"):
        Admin()
    admin.close()
    with pytest.raises(ClientClosedError):
        admin.list_topics()


@pytest.fixture
def shops(broker):
    """Two applications, one with an id that begins with the other's; only the longer one has state."""
    for name in ("shop-eu-sums-changelog", "shop-eu-sums-repartition", "shop-regrouped-repartition"):
        broker.create_topic(name)


@pytest.mark.parametrize(
    "do", [lambda a, g, **o: a.rewind(g, to=EARLIEST, **o), lambda a, g, **o: a.delete_group(g, **o)]
)
def test_offsets_of_an_application_with_state_are_not_moved_alone(admin, shops, do):
    for group in ("shop", "shop-eu"):
        admin.alter_offsets(group, {P0: 3})

    with pytest.raises(StatefulGroupError, match=r"shop-eu-sums-changelog.*streams reset shop-eu.*--force") as caught:
        do(admin, "shop-eu")
    assert (caught.value.group_id, caught.value.changelogs) == ("shop-eu", ("shop-eu-sums-changelog",))
    assert admin.committed_offsets("shop-eu") == {P0: OffsetAndMetadata(3)}
    do(admin, "shop-eu", force=True)
    assert admin.committed_offsets("shop-eu").get(P0) in (OffsetAndMetadata(0), None)
    admin.alter_offsets("shop-eu", {P0: 3})
    do(admin, "shop")
