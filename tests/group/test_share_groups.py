"""Members and assignments of share groups (KIP-932) in the coordinator."""

from random import Random

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from streams.core.records import Block, TopicPartition
from streams.group import Coordinator, CoordinatorConfig, Persist, Reply
from streams.group.share_assignor import assign_shares
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetAndMetadata, OffsetCommit
from streams.protocol.share_group_messages import (
    ShareGroupDescribe,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
)
from tests.group.desk import Topics, started

GROUP = "workers"
TOPICS = st.sets(st.sampled_from("abc"), min_size=1)
SUBSCRIPTIONS = st.dictionaries(st.sampled_from([f"m{number}" for number in range(9)]), TOPICS)


@define(eq=False)
class Members:
    """A coordinator with its log, and the epochs that its members know."""

    config: CoordinatorConfig = field(factory=CoordinatorConfig)
    topics: Topics = field(factory=Topics)
    now_ms: int = 0
    log: list[tuple[bytes, bytes | None]] = field(factory=list)
    epochs: dict[str, int] = field(factory=dict)
    coordinator: Coordinator = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.coordinator = Coordinator(self.config, Random(1), self.topics)

    def ask(self, request):
        """Send a request; return the response."""
        replies = []
        for effect in self.coordinator.handle(request, self.now_ms, "token"):
            if isinstance(effect, Persist):
                self.log.append((effect.key, effect.value))
            elif isinstance(effect, Reply):
                replies.append(effect.response)
        (reply,) = replies
        return reply

    def beat(self, member: str, *topics: str, epoch: int | None = None) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat; a new member joins."""
        epoch = self.epochs.get(member, 0) if epoch is None else epoch
        found = self.ask(ShareGroupHeartbeat(GROUP, member, epoch, topics=topics or None))
        if found.error is ErrorCode.NONE:
            self.epochs[member] = found.member_epoch
        return found

    def described(self) -> ShareGroupDescribeResponse:
        """The description of the group."""
        return self.ask(ShareGroupDescribe(GROUP))

    def wait(self, ms: int) -> None:
        """Let time go by."""
        self.now_ms += ms
        for effect in self.coordinator.tick(self.now_ms):
            if isinstance(effect, Persist):
                self.log.append((effect.key, effect.value))


@pytest.fixture
def members() -> Members:
    """A group with the topics ``a`` of two partitions and ``b`` of one."""
    found = Members()
    found.topics.put("a", 2)
    found.topics.put("b", 1)
    return found


@given(
    counts=st.fixed_dictionaries({name: st.integers(1, 6) for name in "abc"}),
    rounds=st.lists(SUBSCRIPTIONS, min_size=1, max_size=4),
)
def test_all_partitions_have_members_and_all_members_work(counts: dict[str, int], rounds: list[dict[str, set[str]]]):
    """In numbers that differ by one at most in each topic; nothing moves without need."""
    topics = {name: (name.encode(), count) for name, count in counts.items()}
    had: dict[str, frozenset[tuple[bytes, int]]] = {}
    for wanted in rounds:
        had = assign_shares(topics, wanted, had)
        assert assign_shares(topics, wanted, had) == had
        for name, (topic_id, count) in topics.items():
            asking = [member for member in wanted if name in wanted[member]]
            by_member = [sum(place[0] == topic_id for place in had[member]) for member in asking]
            by_partition = [sum((topic_id, number) in places for places in had.values()) for number in range(count)]
            assert sum(by_member) == sum(by_partition)
            if asking:
                assert min(by_member) >= 1
                assert min(by_partition) >= 1
                assert max(by_member) - min(by_member) <= 1
                assert max(by_partition) - min(by_partition) <= 1


def test_members_join_follow_changes_and_leave(members: Members):
    """Each change of members, subscriptions or topics has an epoch, which members reach at their next heartbeat."""
    joined = members.beat("one", "a")
    assert joined.assignment is not None
    assert (joined.member_epoch, list(joined.assignment.partitions.values())) == (1, [[0, 1]])
    assert members.beat("one").assignment is None
    members.beat("two", "a", "b")
    moved = members.beat("one")
    assert moved.assignment is not None
    assert (moved.member_epoch, sum(map(len, moved.assignment.partitions.values()))) == (2, 1)

    members.topics.put("a", 4)
    assert members.beat("one").member_epoch == 3
    assert members.beat("two", epoch=-1).error is ErrorCode.NONE
    left = members.beat("one")
    assert left.assignment is not None
    assert list(left.assignment.partitions.values()) == [[0, 1, 2, 3]]
    assert members.described().state == "Stable"
    members.beat("one", epoch=-1)
    assert members.described().state == "Empty"


def test_a_member_that_says_nothing_is_removed(members: Members):
    """After the session timeout of the group."""
    members.beat("one", "a")
    members.wait(members.config.share_session_timeout_ms)

    assert members.beat("one").error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (ShareGroupHeartbeat(GROUP, "", 0, topics=("a",)), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeat("", "two", 0, topics=("a",)), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeat(GROUP, "two", 0), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeat(GROUP, "two", -2), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeat(GROUP, "two", 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (ShareGroupHeartbeat(GROUP, "one", 7), ErrorCode.FENCED_MEMBER_EPOCH),
        (ShareGroupHeartbeat("other", "one", 7), ErrorCode.GROUP_ID_NOT_FOUND),
        (ShareGroupHeartbeat(GROUP, "two", 0, topics=("a",)), ErrorCode.GROUP_MAX_SIZE_REACHED),
    ],
)
def test_heartbeats_are_checked(request_: ShareGroupHeartbeat, error: ErrorCode):
    """With Kafka's codes."""
    members = Members(CoordinatorConfig(share_max_size=1))
    members.topics.put("a", 2)
    members.beat("one", "a")

    assert members.ask(request_).error is error


def test_a_restart_keeps_members_epochs_and_assignments(members: Members):
    """From the compacted log; the members go on with their next heartbeat."""
    members.beat("one", "a")
    members.beat("two", "a", "b")
    members.beat("one")
    before = members.described()

    members.coordinator = started(members.config, Random(2), members.topics, members.log)

    assert members.beat("two").member_epoch == members.epochs["two"]
    after = members.described()
    assert {one.member_id: one.topics for one in after.members} == {one.member_id: one.topics for one in before.members}
    assert members.beat("one").error is ErrorCode.NONE
    members.wait(members.config.share_session_timeout_ms)
    assert members.described().state == "Empty"
    restarted = Coordinator(members.config, Random(3), members.topics)
    keys, values = zip(*members.log, strict=True)
    restarted.load([Block(keys, values, [0] * len(keys))])
    group = restarted.group(GROUP)
    assert group is not None
    assert group.state_name == "Empty"


def test_a_share_group_has_no_committed_offsets(members: Members):
    """A commit is refused."""
    members.beat("one", "a")
    partition = TopicPartition("a", 0)

    answer = members.ask(OffsetCommit(GROUP, {partition: OffsetAndMetadata(1)}, 1, "one"))

    assert answer.errors == {partition: ErrorCode.GROUP_ID_NOT_FOUND}
