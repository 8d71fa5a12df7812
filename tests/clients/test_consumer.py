"""The consumer against the embedded broker, under a clock that moves only when told to."""

import re
from itertools import islice

import pytest

from streams.clients import (
    Admin,
    BrokerClosedError,
    Consumer,
    NoOffsetError,
    OffsetAndTimestamp,
    Producer,
    RebalanceListener,
    WakeupError,
)
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import (
    ClientClosedError,
    ConfigError,
    MemberFencedError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    SerializationError,
    UnknownTopicError,
)
from streams.core.topic import Topic
from streams.group import CooperativeStickyAssignor, RangeAssignor
from streams.protocol.group_messages import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from streams.protocol.messages import Fetch, FindCoordinator, ListOffsets, Metadata

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)
typed = Topic("t", key=str, value=int)

both_protocols = pytest.mark.parametrize("assignor", [RangeAssignor, CooperativeStickyAssignor])


def fill(broker, partition, count, start=0):
    """Append records whose value is their number, at times of that many seconds."""
    numbers = range(start, start + count)
    values = [typed.value_serde.serialize(number) for number in numbers]
    broker.append(partition, Block([b"k"] * count, values, [number * 1_000 for number in numbers]))


@pytest.fixture
def make(broker, clock):
    """Make consumers that are closed at the end."""
    made = []

    def make(group_id="g", cluster=None, **settings):
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings}
        made.append(Consumer(cluster or broker, group_id, clock=clock, **settings))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def values(records):
    return [record.value for record in records]


def settle(clock, *consumers, by_ms=10_000):
    """Let the group settle: everybody polls, time passes; returns what they read."""
    read = {consumer: [] for consumer in consumers}
    for _ in range(by_ms // 500):
        for consumer in consumers:
            read[consumer] += consumer.poll()
        clock.advance(500)
    return [read[consumer] for consumer in consumers]


# --- reading --------------------------------------------------------------------------


def test_one_poll_joins_fetches_and_decodes(broker, make):
    fill(broker, P0, 3)
    consumer = make()
    consumer.subscribe([typed])

    records = consumer.poll()

    assert values(records) == [0, 1, 2]
    assert records[1][:5] == ("t", 0, 1, 1_000, "k")
    assert consumer.assignment() == {P0, P1}
    assert consumer.subscription() == {"t"}


def test_topics_given_by_name_give_bytes(broker, make):
    fill(broker, P0, 1)
    consumer = make()
    consumer.subscribe("t")

    assert values(consumer.poll()) == [(0).to_bytes(8, "big")]


def test_blocks_are_handed_out_as_they_are(broker, make):
    block = Block([b"k"], [b"v"], [5])
    broker.append(P1, block)
    consumer = make()
    consumer.assign([P1])

    blocks = consumer.poll_blocks()

    assert blocks[P1][0].values[0] is block.values[0]
    assert list(blocks[P1][0].offsets) == [0]


def test_a_poll_returns_at_most_max_poll_records_and_serves_partitions_in_turn(broker, make):
    fill(broker, P0, 5)
    fill(broker, P1, 5)
    consumer = make(max_poll_records=3)
    consumer.subscribe([typed])

    polls = [[(r.partition, r.value) for r in consumer.poll()] for _ in range(4)]

    assert [len(poll) for poll in polls] == [3, 3, 3, 1]
    assert {partition for partition, _ in polls[0]} != {partition for partition, _ in polls[1]}
    for partition in (0, 1):
        assert [value for poll in polls for p, value in poll if p == partition] == [0, 1, 2, 3, 4]


def test_next_block_is_prefetched_but_the_position_waits(broker, make, cluster):
    fill(broker, P0, 4)
    consumer = make(cluster=cluster, fetch_max_records=2)
    consumer.assign([P0], [typed])

    assert values(consumer.poll()) == [0, 1]

    fetched = [request.positions.get(P0) for request in cluster.sent if isinstance(request, Fetch)]
    assert fetched == [0, 2]
    assert consumer.position(P0) == 2
    assert consumer.known_end(P0) == 4


def test_news_are_the_partitions_that_have_moved(broker, make, clock):
    consumer = make()
    consumer.assign([P0, P1])
    consumer.seek_to_beginning([P0, P1])

    assert consumer.poll() == []
    clock.advance(500)
    assert consumer.poll() == []
    assert consumer.take_news() == {P0, P1}, "both ends are known from now on, and nothing is there"
    assert (consumer.known_end(P0), consumer.known_position(P1)) == (0, 0)

    clock.advance(500)
    assert consumer.poll() == []
    assert consumer.take_news() == set()

    fill(broker, P1, 3)
    assert len(consumer.poll(1_000)) == 3
    assert consumer.take_news() == {P1}
    assert (consumer.known_end(P1), consumer.known_position(P1)) == (3, 3)

    consumer.seek(P1, 1)
    assert len(consumer.poll(1_000)) == 2
    assert consumer.take_news() == {P1}


def test_a_partition_that_can_be_fetched_again_is(broker, make):
    """After a poll for which nothing was to be asked, each of these has something to ask for."""
    fill(broker, P0, 3)
    consumer = make()
    consumer.assign([P0, P1])
    consumer.pause([P0])
    assert consumer.poll(1_000) == []
    assert consumer.poll(1_000) == []

    consumer.resume([P0])
    assert len(consumer.poll(1_000)) == 3
    assert consumer.poll(1_000) == []

    consumer.seek(P0, 2)
    assert len(consumer.poll(1_000)) == 1
    assert consumer.poll(1_000) == []

    fill(broker, P1, 1)
    assert len(consumer.poll(1_000)) == 1
    assert consumer.poll(1_000) == []

    consumer.assign([P1])
    consumer.assign([P0, P1])
    consumer.seek_to_beginning([P0])
    assert len(consumer.poll(1_000)) == 3


def test_idle_partitions_do_not_hold_up_the_busy_one(broker, make):
    """Fetches of idle partitions wait at the broker; the busy one is asked for on its own."""
    consumer = make()
    consumer.assign([P0, P1], [typed])
    consumer.poll()
    read = []

    for number in range(5):
        fill(broker, P0, 1, start=number)
        read += values(consumer.poll())

    assert read == [0, 1, 2, 3, 4]


def test_paused_partitions_are_not_handed_out_and_lose_nothing(broker, make):
    fill(broker, P0, 4)
    consumer = make(fetch_max_records=2)
    consumer.assign([P0], [typed])
    assert values(consumer.poll()) == [0, 1]

    consumer.pause([P0])
    assert (consumer.poll(), consumer.paused()) == ([], {P0})
    consumer.resume([P0])

    assert values(consumer.poll()) == [2, 3]


def test_seek_discards_what_was_prefetched(broker, make):
    fill(broker, P0, 6)
    consumer = make(fetch_max_records=2)
    consumer.assign([P0], [typed])
    consumer.poll()

    consumer.seek(P0, 5)

    assert values(consumer.poll()) == [5]
    consumer.seek_to_beginning()
    assert values(consumer.poll()) == [0, 1]
    consumer.seek_to_end([P0])
    assert consumer.position(P0) == 6


def test_bad_record_stops_before_it_until_it_is_skipped(broker, make):
    fill(broker, P0, 1)
    broker.append(P0, Block([b"k"], [b"not a long"], [0]))
    fill(broker, P0, 1, start=2)
    consumer = make()
    consumer.assign([P0], [typed])

    assert values(consumer.poll()) == [0]
    for _ in range(2):
        with pytest.raises(SerializationError, match=r"t-0 at 1: .* seek to 2"):
            consumer.poll()
    consumer.seek(P0, 2)
    assert values(consumer.poll()) == [2]


def test_iteration_counts_a_record_as_read_when_the_next_is_asked_for(broker, make):
    fill(broker, P0, 5)
    consumer = make()
    consumer.subscribe([typed])

    assert values(islice(consumer, 2)) == [0, 1]

    assert consumer.position(P0) == 2
    consumer.commit_sync()
    assert consumer.committed([P0])[P0].offset == 2
    assert values(consumer.poll()) == [2, 3, 4]


def test_wakeup_ends_the_next_poll(make):
    consumer = make()
    consumer.subscribe("t")
    consumer.wakeup()

    with pytest.raises(WakeupError):
        consumer.poll(1_000)
    assert consumer.poll() == []


@pytest.mark.parametrize("name", ["", "a b", "orders-.*", "x" * 250])
def test_name_that_no_topic_has_is_refused_with_the_way_to_a_pattern(make, name):
    """It would be waited for, for ever."""
    with pytest.raises(ConfigError, match=r"subscribe\(\): topic name .*; a pattern is given as re.compile\("):
        make("readers").subscribe(["orders", name])


def test_poll_without_topics_is_an_error_and_not_a_wait(make):
    """As in Kafka's client: nothing would ever come."""
    consumer = make("readers")
    told = r"poll\(\) without a subscription or an assignment; call subscribe\(\) or assign\(\) first"
    for partitions in (None, []):
        consumer.unsubscribe()
        if partitions is not None:
            consumer.assign(partitions)
        with pytest.raises(ConfigError, match=told):
            consumer.poll(1_000)
        with pytest.raises(ConfigError, match=told):
            next(consumer)
        consumer.unsubscribe()
        consumer.subscribe([typed])
        assert consumer.poll(0) == []


def test_closed_consumer_says_so(make):
    consumer = make()
    consumer.close()
    consumer.close()

    with pytest.raises(ClientClosedError):
        consumer.poll()


# --- positions ------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "position"), [("earliest", 2), ("latest", 5)])
def test_without_committed_offset_the_reset_policy_goes(broker, make, clock, policy, position):
    fill(broker, P0, 5)
    Admin(broker, clock=clock).delete_records({P0: 2})
    consumer = make(auto_offset_reset=policy)
    consumer.assign([P0])

    assert consumer.position(P0) == position


@pytest.mark.parametrize(("back", "position"), [("PT10S", 0), ("PT3S", 2), ("PT2.5S", 3), ("PT0S", 5)])
def test_the_reset_policy_by_duration_goes_to_the_first_record_that_is_not_older(broker, make, clock, back, position):
    """KIP-1106; where all records are older, to the end."""
    now_ms = clock.now_ms() + 5_000
    with Producer(broker, clock=clock) as producer:
        for number in range(5):
            producer.send("t", b"v", partition=0, timestamp_ms=now_ms - 5_000 + 1_000 * number)
    clock.advance(5_000)
    consumer = make(auto_offset_reset=f"by_duration:{back}")
    consumer.assign([P0])

    assert consumer.position(P0) == position


@pytest.mark.parametrize("policy", ["by_duration:1h", "by_duration:P", "by_duration:-PT1S", "by_duration:", "oldest"])
def test_a_reset_policy_that_does_not_exist_is_refused(make, policy):
    with pytest.raises(
        ConfigError, match="expected earliest or latest or none, or a text such as by_duration:PT1H, not"
    ):
        make(auto_offset_reset=policy)


def test_without_policy_and_offset_a_named_error_tells_which(make):
    consumer = make(auto_offset_reset="none")
    consumer.subscribe("t")

    with pytest.raises(NoOffsetError, match="no committed offset") as error:
        consumer.poll()

    assert set(error.value.partitions) == {P0, P1}
    for partition in (P0, P1):
        consumer.seek(partition, 0)
    assert consumer.poll() == []


def test_missing_offset_is_no_error_where_the_position_was_set_before_the_answer(broker, make):
    fill(broker, P0, 2)
    consumer = make(auto_offset_reset="none")

    class Waking(RebalanceListener):
        def on_partitions_assigned(self, partitions):
            consumer.wakeup()

    consumer.subscribe([typed], listener=Waking())
    with pytest.raises(WakeupError):
        consumer.poll(1_000)
    # The answer to the look-up that poll has begun comes before this one.
    assert consumer.committed([P0]) == {}
    consumer.seek(P0, 1)
    consumer.seek(P1, 0)

    assert values(consumer.poll()) == [1]


def test_committed_offset_goes_before_the_policy(broker, make):
    fill(broker, P0, 5)
    first = make()
    first.subscribe([typed])
    first.poll()
    first.commit_sync({P0: 3})
    first.close()

    second = make()
    second.subscribe([typed])

    assert values(second.poll()) == [3, 4]


def test_position_outside_the_log_goes_by_the_policy_or_fails(broker, make, clock):
    fill(broker, P0, 5)
    lenient, strict = make(), make(auto_offset_reset="none")
    for consumer in (lenient, strict):
        consumer.assign([P0], [typed])
        consumer.seek(P0, 99)

    assert values(lenient.poll()) == [0, 1, 2, 3, 4]
    with pytest.raises(OffsetOutOfRangeError, match="t-0 at 99"):
        strict.poll()
    strict.seek(P0, 4)
    assert values(strict.poll()) == [4]


@pytest.mark.parametrize("partition", [TopicPartition("absent", 0), TopicPartition("t", 2)])
def test_assigned_partition_that_does_not_exist_is_an_error(make, partition):
    consumer = make()
    consumer.assign([partition])

    with pytest.raises(UnknownTopicError, match=str(partition)):
        consumer.poll()
    with pytest.raises(UnknownTopicError):
        consumer.end_offsets([partition])


def test_offsets_by_time(broker, make):
    fill(broker, P0, 5)
    consumer = make()

    assert consumer.beginning_offsets([P0, P1]) == {P0: 0, P1: 0}
    assert consumer.end_offsets([P0, P1]) == {P0: 5, P1: 0}
    assert consumer.offsets_for_times({P0: 1_500, P1: 0}) == {P0: OffsetAndTimestamp(2, 2_000), P1: None}
    assert consumer.partitions_for("t") == [P0, P1]
    assert consumer.partitions_for("absent") == []


# --- commits --------------------------------------------------------------------------


def test_commits_default_to_positions_and_carry_metadata(broker, make):
    fill(broker, P0, 3)
    consumer = make()
    consumer.subscribe([typed])
    consumer.poll()

    consumer.commit_sync()
    assert consumer.committed([P0, P1]) == {P0: OffsetAndMetadata(3), P1: OffsetAndMetadata(0)}
    consumer.commit_sync({P0: OffsetAndMetadata(1, "note")})
    assert consumer.committed([P0]) == {P0: OffsetAndMetadata(1, "note")}


def test_asynchronous_commit_calls_back_inside_poll(make):
    consumer = make()
    consumer.subscribe("t")
    consumer.poll()
    told = []
    consumer.commit_async({P0: 7}, lambda offsets, error: told.append((offsets, error)))
    assert told == []

    consumer.poll()

    assert told == [({P0: OffsetAndMetadata(7)}, None)]


def test_auto_commit_follows_its_interval_and_close(broker, make, clock):
    fill(broker, P0, 3)
    admin = Admin(broker, clock=clock)
    consumer = make(enable_auto_commit=True, auto_commit_interval_ms=1_000)
    consumer.subscribe([typed])
    consumer.poll()
    assert admin.committed_offsets("g") == {}

    clock.advance(1_000)
    consumer.poll()
    assert admin.committed_offsets("g")[P0].offset == 3

    fill(broker, P0, 2, start=3)
    consumer.poll()
    consumer.close()
    assert admin.committed_offsets("g")[P0].offset == 5


def test_assigned_partitions_are_committed_under_the_group_id(broker, make, clock):
    fill(broker, P0, 3)
    consumer = make()
    consumer.assign([P0], [typed])
    consumer.poll()

    consumer.commit_sync()

    assert Admin(broker, clock=clock).committed_offsets("g") == {P0: OffsetAndMetadata(3)}


def test_stale_member_cannot_commit_and_comes_back(broker, make, clock):
    fill(broker, P0, 3)
    stalled, other = make(), make()
    stalled.subscribe([typed])
    stalled.poll()
    clock.advance(45_001)
    other.subscribe([typed])
    assert values(other.poll()) == [0, 1, 2]

    with pytest.raises(MemberFencedError):
        stalled.commit_sync()

    settle(clock, stalled, other)
    assert stalled.assignment() | other.assignment() == {P0, P1}
    assert not stalled.assignment() & other.assignment()
    stalled.commit_sync()


def test_commit_between_join_and_sync_says_that_the_group_rebalances(make, clock):
    leader, follower = make(assignors=[CooperativeStickyAssignor()]), make(assignors=[CooperativeStickyAssignor()])
    leader.subscribe("t")
    follower.subscribe("t")
    settle(clock, leader, follower)
    leader.enforce_rebalance()
    leader.poll()
    clock.advance(3_000)
    follower.poll()

    with pytest.raises(RebalanceInProgressError):
        follower.commit_sync(dict.fromkeys(follower.assignment(), 0))

    settle(clock, leader, follower)
    follower.commit_sync()


# --- groups ---------------------------------------------------------------------------


@both_protocols
def test_orderly_rebalance_processes_every_record_once(broker, make, clock, assignor):
    """What is revoked is committed by its old owner before the new one starts."""

    class Committing(RebalanceListener):
        def __init__(self, consumer):
            self.consumer = consumer

        def on_partitions_revoked(self, partitions):
            self.consumer.commit_sync()

    consumers = []
    read = []
    for round_number in range(4):
        if round_number < 3:
            consumer = make(assignors=[assignor()], max_poll_records=7)
            consumer.subscribe([typed], Committing(consumer))
            consumers.append(consumer)
        else:
            consumers.pop(0).close()
        for _ in range(12):
            for partition in (P0, P1):
                fill(broker, partition, 5, start=len(read))
            for consumer in consumers:
                read += [(r.partition, r.offset) for r in consumer.poll()]
            clock.advance(1_000)
    read += [(r.partition, r.offset) for part in settle(clock, *consumers) for r in part]

    assert sorted(read) == [(p, offset) for p in (0, 1) for offset in range(4 * 12 * 5)]


@both_protocols
def test_listener_hears_of_everything_inside_poll(broker, make, clock, assignor):
    heard = []

    class Hearing(RebalanceListener):
        def on_partitions_assigned(self, partitions):
            heard.append(("assigned", {p.partition for p in partitions}))

        def on_partitions_revoked(self, partitions):
            heard.append(("revoked", {p.partition for p in partitions}))

    consumer = make(assignors=[assignor()])
    consumer.subscribe("t", Hearing())
    assert heard == []
    consumer.poll()
    assert heard == [("assigned", {0, 1})]

    other = make(assignors=[assignor()])
    other.subscribe("t")
    settle(clock, other, consumer)
    consumer.close()

    if assignor is RangeAssignor:
        assert heard[1:] == [("revoked", {0, 1}), ("assigned", heard[2][1]), ("revoked", heard[2][1])]
    else:
        assert [what for what, _ in heard[1:]] == ["revoked", "assigned", "assigned", "revoked"]
        assert heard[1][1] != {0, 1}
        assert heard[2][1] == set()


def test_lost_partitions_are_told_as_lost(broker, make, clock):
    lost = []

    class Losing(RebalanceListener):
        def on_partitions_lost(self, partitions):
            lost.extend(partitions)

    consumer = make()
    consumer.subscribe("t", Losing())
    consumer.poll()
    clock.advance(45_001)
    other = make()
    other.subscribe("t")
    other.poll()

    consumer.poll()

    assert set(lost) == {P0, P1}


def test_consumer_that_was_not_polled_for_too_long_leaves(make, clock):
    consumer = make(session_timeout_ms=400_000, max_poll_interval_ms=60_000)
    consumer.subscribe("t")
    consumer.poll()
    _, generation, _, _ = consumer.group_metadata

    clock.advance(60_001)
    consumer.poll()

    assert consumer.group_metadata[1] == generation + 2, "empty, then of one member again"


def test_added_partitions_are_noticed(broker, make, clock):
    consumer = make(metadata_max_age_ms=5_000)
    consumer.subscribe([typed])
    consumer.poll()
    Admin(broker, clock=clock).create_partitions({"t": 3})
    fill(broker, TopicPartition("t", 2), 1)

    clock.advance(5_000)

    assert values(consumer.poll()) == [0]


def test_topics_made_later_are_noticed(broker, make, clock):
    consumer = make(metadata_max_age_ms=5_000)
    consumer.subscribe(["later"])
    assert consumer.poll() == []
    broker.create_topic("later", partitions=1)

    clock.advance(5_000)
    consumer.poll()

    assert consumer.assignment() == {TopicPartition("later", 0)}


def test_pattern_takes_in_topics_as_they_appear_and_disappear(broker, make, clock):
    consumer = make(metadata_max_age_ms=5_000)
    consumer.subscribe(re.compile("log-.*"))
    assert consumer.poll() == []
    for name in ("log-a", "log-b", "metadata-x"):
        broker.create_topic(name, partitions=1)
    clock.advance(5_000)
    consumer.poll()
    assert consumer.subscription() == {"log-a", "log-b"}
    assert {p.topic for p in consumer.assignment()} == {"log-a", "log-b"}

    broker.delete_topic("log-a")
    clock.advance(5_000)
    consumer.poll()
    assert {p.topic for p in consumer.assignment()} == {"log-b"}


def test_changed_subscription_rejoins(broker, make):
    broker.create_topic("u", partitions=1)
    consumer = make(assignors=[CooperativeStickyAssignor()])
    consumer.subscribe("t")
    consumer.poll()

    consumer.subscribe(["u"])
    consumer.poll()

    assert consumer.assignment() == {TopicPartition("u", 0)}


def test_unsubscribed_consumer_leaves_and_may_assign(broker, make, clock):
    admin = Admin(broker, clock=clock)
    consumer = make()
    consumer.subscribe("t")
    consumer.poll()

    consumer.unsubscribe()

    assert admin.describe_group("g").state == "Empty"
    consumer.assign([P0])
    assert consumer.assignment() == {P0}


def test_close_leaves_but_a_static_member_stays(broker, make, clock):
    admin = Admin(broker, clock=clock)
    for instance, group in ((None, "dynamic"), ("one", "static")):
        consumer = make(group, group_instance_id=instance)
        consumer.subscribe("t")
        consumer.poll()
        consumer.close()

    assert admin.describe_group("dynamic").state == "Empty"
    assert admin.describe_group("static").state == "Stable"


def test_static_member_restarts_without_a_rebalance_and_fences_a_double(broker, make, clock):
    fill(broker, P0, 2)
    other = make()
    other.subscribe([typed])
    first = make(group_instance_id="one")
    first.subscribe([typed])
    settle(clock, first, other)
    before = first.assignment(), first.group_metadata[1]

    second = make(group_instance_id="one")
    second.subscribe([typed])
    second.poll()

    assert (second.assignment(), second.group_metadata[1]) == before
    clock.advance(3_000)
    for _ in range(2):
        with pytest.raises(MemberFencedError, match="'one'"):
            first.poll()


def test_hundred_consumers_settle(broker, make, clock):
    broker.create_topic("wide", partitions=1_000)
    consumers = [make("many", client_id=str(n), assignors=[CooperativeStickyAssignor()]) for n in range(100)]
    for consumer in consumers:
        consumer.subscribe("wide")

    for _ in range(20):
        for consumer in consumers:
            consumer.poll_blocks()
        clock.advance(1_500)

    assert {len(consumer.assignment()) for consumer in consumers} == {10}


# --- faults ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [Metadata, FindCoordinator, JoinGroup, SyncGroup, OffsetFetch, ListOffsets, Fetch, Heartbeat]
)
def test_lost_requests_are_sent_again(broker, make, cluster, clock, first_of, kind):
    fill(broker, P0, 3)
    fill(broker, P1, 3)
    cluster.fails = first_of(2, kind)
    consumer = make(cluster=cluster)
    consumer.subscribe([typed])

    (read,) = settle(clock, consumer)

    assert sorted(values(read)) == [0, 0, 1, 1, 2, 2]
    assert consumer.assignment() == {P0, P1}


@pytest.mark.parametrize("kind", [JoinGroup, SyncGroup, OffsetFetch, Fetch, Heartbeat])
def test_lost_answers_do_no_harm(broker, make, cluster, clock, first_of, kind):
    fill(broker, P0, 3)
    cluster.loses_answer = first_of(1, kind)
    consumer = make(cluster=cluster, session_timeout_ms=6_000, heartbeat_interval_ms=2_000, max_poll_interval_ms=9_000)
    consumer.subscribe([typed])

    (read,) = settle(clock, consumer, by_ms=30_000)

    assert values(read) == [0, 1, 2]
    assert consumer.assignment() == {P0, P1}


def test_fetch_that_fails_is_repeated_after_a_pause(broker, make, cluster, clock):
    fill(broker, P0, 1)
    consumer = make(cluster=cluster, retry_backoff_ms=100)
    consumer.assign([P0])
    consumer.seek(P0, 0)
    cluster.fails = lambda request: isinstance(request, Fetch)
    counts = []
    for _ in range(2):
        for _ in range(5):
            consumer.poll_blocks(0)
        counts.append(sum(isinstance(request, Fetch) for request in cluster.sent))
        clock.advance(100)

    assert counts == [1, 2]


def test_unreachable_broker_at_close_does_not_hang(make, cluster):
    consumer = make(cluster=cluster)
    consumer.subscribe("t")
    consumer.poll()
    cluster.fails = lambda request: isinstance(request, (LeaveGroup, OffsetCommit))

    consumer.close()


# --- settings -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"auto_offset_reset": "newest"},
        {"heartbeat_interval_ms": 45_000},
        {"max_poll_records": 0},
    ],
)
def test_settings_that_do_not_fit_are_refused(make, settings):
    with pytest.raises(ConfigError):
        make(**settings)


def test_what_needs_a_group_or_a_broker_says_so(make):
    alone = make(None)

    with pytest.raises(ConfigError, match="broker"):
        Consumer()
    with pytest.raises(ConfigError, match="9092 is no broker; give addresses as text"):
        Consumer(9092)
    with pytest.raises(ConfigError, match=r"both broker= and bootstrap_servers="):
        Consumer("kafka-1:9092", bootstrap_servers="kafka-2:9092")
    with pytest.raises(ConfigError, match=r"bootstrap_servers: .*kafka-1"):
        Consumer("kafka-1:none")
    with pytest.raises(ConfigError, match="group_id"):
        alone.subscribe("t")
    grouped = make()
    grouped.subscribe("t")
    with pytest.raises(ConfigError, match="unsubscribe"):
        grouped.assign([P0])


def test_produced_records_are_read_with_their_headers(broker, make, clock):
    with Producer(broker, clock=clock) as producer:
        producer.send(typed, 5, key="k", headers=[("h", b"1"), ("n", None)])
    consumer = make()
    consumer.subscribe([typed])

    (record,) = consumer.poll()

    assert record.headers == (("h", b"1"), ("n", None))
    assert record.timestamp_ms == clock.now_ms()


# --- misuse ---------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 1.5, "1", None, True])
def test_offsets_that_no_record_can_have_are_refused_where_they_are_given(broker, make, clock, offset):
    """A negative offset was committed; text in a transaction was an error only after max_block_ms."""
    consumer = make()
    consumer.assign([P0])

    with pytest.raises(ConfigError, match="seek of t-0 to"):
        consumer.seek(P0, offset)
    with pytest.raises(ConfigError, match="commit of t-0 to"):
        consumer.commit_sync({P0: offset})
    with pytest.raises(ConfigError, match="commit of t-0 to"):
        consumer.commit_async({P0: OffsetAndMetadata(offset)})
    with Producer(broker, transactional_id="x", clock=clock) as producer:
        producer.init_transactions()
        with pytest.raises(ConfigError, match="commit of t-0 to"), producer.transaction():
            producer.send_offsets_to_transaction({P0: offset}, consumer.group_metadata)

    assert consumer.committed([P0]) == {}


@pytest.mark.parametrize("partitions", ["t", P0, [("t", 0)], ["t"], None])
def test_what_is_no_list_of_partitions_is_refused(make, partitions):
    """A TopicPartition is a tuple, and text has letters: both can be iterated over."""
    consumer = make()

    with pytest.raises(ConfigError, match=r"assign\(\) needs partitions, as in"):
        consumer.assign(partitions)

    assert consumer.assignment() == frozenset()


def test_member_whose_listener_fails_on_close_leaves_the_group(broker, make, clock):
    """Its partitions stayed with it until the end of its session, and what it had read was not committed."""

    class Failing(RebalanceListener):
        def on_partitions_revoked(self, partitions):
            raise ValueError("the database is away")

    fill(broker, P0, 3)
    consumer = make(enable_auto_commit=True)
    consumer.subscribe([typed], Failing())
    assert len(consumer.poll()) == 3

    with pytest.raises(ValueError, match="the database is away"):
        consumer.close()

    assert Admin(broker, clock=clock).describe_group("g").members == ()
    assert make().committed([P0])[P0].offset == 3


@pytest.mark.parametrize("group_id", ["", 5, b"g", "g" * 40_000])
def test_group_id_that_no_request_can_carry_is_refused(broker, clock, group_id):
    """Such a consumer polled for ever and got nothing."""
    with pytest.raises(ConfigError, match="group_id: expected text of 1 to 32,767 bytes"):
        Consumer(broker, group_id, clock=clock)


@pytest.mark.parametrize("time_ms", [-1, -2, -3, -100, 1.5, "1", None])
def test_times_that_no_record_is_looked_up_for_are_refused(broker, make, time_ms):
    """-1 was the end of the log, -2 its beginning, -3 the record with the highest time."""
    fill(broker, P0, 3)

    with pytest.raises(ConfigError, match="for an offset of t-0"):
        make().offsets_for_times({P0: time_ms})


@pytest.mark.parametrize("group_id", ["g", None])
def test_poll_of_a_closed_broker_fails_and_the_consumer_can_be_closed(broker, make, group_id):
    """It returned no records for ever, and an application on the broker went on running."""
    consumer = make(group_id)
    if group_id is None:
        consumer.assign([P0])
    else:
        consumer.subscribe([typed])
    consumer.poll()

    broker.close()

    with pytest.raises(BrokerClosedError, match="the embedded broker is closed: open another one"):
        consumer.poll()
    consumer.close()
