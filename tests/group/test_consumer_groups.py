"""Consumer groups of KIP-848: what the coordinator answers, and that no partition ever has two owners."""

from collections import Counter

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from streams.core.blocks.records import TopicPartition
from streams.group import CoordinatorConfig, decode_assignment
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DescribeGroup,
    JoinGroup,
    ListGroups,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetFetch,
    ResetOffsets,
)
from streams.protocol.messages import TxnOffsetCommit
from tests.group.desk import INTERVALS_MS, Desk

SESSION_MS = 45_000
REVOKE_MS = 10_000


@define
class Client:
    """A member as its consumer sees it: it revokes at once, and confirms it with its next heartbeat."""

    desk: Desk
    member_id: str
    topics: tuple[str, ...] = ("t",)
    instance: str | None = None
    assignor: str | None = None
    regex: str | None = None
    epoch: int = JOIN_EPOCH
    owned: set[tuple[bytes, int]] = field(factory=set)
    reported: set[tuple[bytes, int]] | None = None
    last: ConsumerGroupHeartbeatResponse | None = None

    def beat(self, *, is_lost: bool = False) -> ErrorCode:
        """Send a heartbeat; with ``is_lost``, the response does not arrive."""
        is_joining = self.epoch == JOIN_EPOCH
        is_full = is_joining or self.reported is None
        must_report = is_full or self.reported != self.owned
        request = ConsumerGroupHeartbeat(
            "g",
            self.member_id,
            self.epoch,
            self.instance,
            rebalance_timeout_ms=REVOKE_MS if is_full else -1,
            topics=self.topics if is_full and not self.regex else None,
            topic_regex=self.regex if is_full else None,
            server_assignor=self.assignor if is_full else None,
            owned=by_id(self.owned) if must_report else None,
        )
        response = self.desk.ask(request)
        if is_lost:
            self.reported = None
            return ErrorCode.NONE
        self.last = response
        if response.error is ErrorCode.NONE:
            self.reported = set(self.owned)
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.owned = places(response.assignment.partitions)
        else:
            self.owned, self.epoch, self.reported = set(), JOIN_EPOCH, None
        return response.error

    def leave(self, epoch: int = LEAVE_EPOCH) -> ConsumerGroupHeartbeatResponse:
        """Leave the group."""
        self.owned, self.reported, self.epoch = set(), None, JOIN_EPOCH
        return self.desk.ask(ConsumerGroupHeartbeat("g", self.member_id, epoch, self.instance))

    @property
    def share(self) -> set[tuple[bytes, int]]:
        """What the member owns."""
        return self.owned

    def hold(self, share: set[tuple[bytes, int]]) -> None:
        """Own what it may have to revoke, and say nothing of it."""
        self.owned, self.reported = set(share), set(share)

    def assignment(self) -> object:
        """What the last response assigns, None if it is as before."""
        return self.last.assignment

    def numbers(self) -> list[int]:
        """The numbers of the partitions that the member owns."""
        return sorted(number for _, number in self.owned)


def by_id(owned) -> dict[bytes, list[int]]:
    """Group partitions by topic ID."""
    found: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(owned):
        found.setdefault(topic_id, []).append(number)
    return found


def places(partitions) -> set[tuple[bytes, int]]:
    """Flatten partitions by topic ID."""
    return {(topic_id, number) for topic_id, numbers in partitions.items() for number in numbers}


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.topics.put("t", 4)
    return desk


def settle(*clients: Client) -> None:
    """Heartbeat until nothing changes any more."""
    for _ in range(6):
        for client in clients:
            assert client.beat() is ErrorCode.NONE, client.last


def test_partition_moves_only_after_its_owner_has_revoked_it(desk: Desk):
    one, two = Client(desk, "one"), Client(desk, "two")
    one.beat()
    assert (one.epoch, one.numbers()) == (1, [0, 1, 2, 3])
    two.beat()
    assert (two.epoch, two.numbers(), desk.described().state) == (2, [], "Reconciling")
    one.beat()
    assert (one.epoch, one.numbers()) == (1, [0, 1])
    two.beat()
    assert two.numbers() == []
    one.beat()
    assert one.epoch == 2
    two.beat()
    assert two.numbers() == [2, 3]
    assert desk.described().state == "Stable"


def test_member_that_leaves_frees_its_partitions(desk: Desk):
    one, two = Client(desk, "one"), Client(desk, "two")
    settle(one, two)
    assert two.leave().member_epoch == LEAVE_EPOCH
    settle(one)
    assert one.numbers() == [0, 1, 2, 3]


def test_member_that_joins_again_with_its_id_keeps_its_partitions(desk: Desk):
    one, two = Client(desk, "one"), Client(desk, "two")
    settle(one, two)
    epoch = desk.described().group_epoch
    again = Client(desk, "two")
    again.beat()
    assert again.numbers() == [2, 3]
    assert desk.described().group_epoch == epoch


def test_topics_that_change_are_assigned_with_the_next_heartbeat(desk: Desk):
    one = Client(desk, "one", topics=("t", "u"))
    settle(one)
    desk.topics.put("u", 2)
    desk.topics.put("t", 5)
    settle(one)
    assert one.owned == desk.topics.partitions()
    del desk.topics.by_name["t"]
    desk.topics.version += 1
    settle(one)
    assert one.owned == desk.topics.partitions()


def test_regular_expression_is_matched_by_the_coordinator(desk: Desk):
    one = Client(desk, "one", regex="t.*|v")
    settle(one)
    assert len(one.owned) == 4
    desk.topics.put("tt", 2)
    desk.topics.put("xt", 2)
    settle(one)
    assert len(one.owned) == 6


def test_range_assignor_keeps_numbers_together(desk: Desk):
    desk.topics.put("u", 4)
    one, two = (Client(desk, name, topics=("t", "u"), assignor="range") for name in ("one", "two"))
    settle(one, two)
    assert (one.numbers(), two.numbers()) == ([0, 0, 1, 1], [2, 2, 3, 3])
    assert desk.described().assignor_name == "range"


def invalid(**changes):
    """A joining heartbeat with changes."""
    fields = {"member_epoch": 0, "rebalance_timeout_ms": 1_000, "topics": ["t"], "owned": {}} | changes
    return ConsumerGroupHeartbeat(fields.pop("group_id", "g"), fields.pop("member_id", "m"), **fields)


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (invalid(group_id=""), ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        (invalid(member_id="", member_epoch=3), ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        (invalid(group_instance_id=""), ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
        (invalid(rack_id=""), ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        (invalid(member_epoch=-3), ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
        (invalid(member_epoch=-2), ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
        (invalid(rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided"),
        (invalid(owned=None), ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty"),
        (invalid(owned={b"x" * 16: [0]}), ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty"),
        (invalid(topics=None), ErrorCode.INVALID_REQUEST, "Either SubscribedTopicNames"),
        (invalid(server_assignor="best"), ErrorCode.UNSUPPORTED_ASSIGNOR, "Supported assignors: uniform, range."),
        (invalid(topic_regex="("), ErrorCode.INVALID_REGULAR_EXPRESSION, "`(` is not a valid regular expression"),
        (invalid(member_epoch=1), ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
        (invalid(member_epoch=-1), ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
    ],
)
def test_invalid_heartbeats_are_rejected_and_leave_nothing(desk: Desk, request_, error, message):
    response = desk.ask(request_)
    assert response.error is error
    assert message in response.message
    assert desk.log == []
    assert desk.ask(ListGroups()).groups == ()


def test_new_member_without_id_gets_one(desk: Desk):
    response = desk.ask(invalid(member_id=""))
    assert len(response.member_id) == 36
    assert desk.described().members[0].member_id == response.member_id


def commit(member_id: str, epoch: int) -> OffsetCommit:
    """A commit of offset 5."""
    return OffsetCommit("g", {TopicPartition("t", 0): OffsetAndMetadata(5)}, epoch, member_id)


def test_offsets_are_committed_and_fetched_in_the_current_epoch(desk: Desk):
    one = Client(desk, "one")
    settle(one)

    def outcome(member_id: str, epoch: int) -> ErrorCode:
        (found,) = desk.ask(commit(member_id, epoch)).errors.values()
        return found

    assert outcome("one", 1) is ErrorCode.NONE
    assert outcome("one", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert outcome("two", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert outcome("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.ask(OffsetFetch("g", member_id="one", member_epoch=1)).error is ErrorCode.NONE
    assert desk.ask(OffsetFetch("g", member_id="one", member_epoch=3)).error is ErrorCode.STALE_MEMBER_EPOCH
    assert desk.ask(OffsetFetch("g")).offsets[TopicPartition("t", 0)].offset == 5
    one.leave()
    assert outcome("", -1) is ErrorCode.NONE


def test_offsets_in_transactions_know_generations_only(desk: Desk):
    one = Client(desk, "one")
    settle(one)

    def outcome(epoch: int, member_id: str = "one") -> ErrorCode:
        offsets = {TopicPartition("t", 0): OffsetAndMetadata(5)}
        request = TxnOffsetCommit("tx", "g", 1, 0, offsets, generation_id=epoch, member_id=member_id)
        (found,) = desk.ask(request).errors.values()
        return found

    assert outcome(1) is ErrorCode.NONE
    assert outcome(0) is ErrorCode.ILLEGAL_GENERATION
    assert outcome(-1, "") is ErrorCode.NONE


def test_groups_are_listed_and_described_by_type(desk: Desk):
    one = Client(desk, "one")
    settle(one)
    assert desk.ask(ListGroups()).groups == (("g", "consumer", "Stable", "Consumer"),)
    assert desk.ask(ListGroups(types_filter=["classic"])).groups == ()
    assert len(desk.ask(ListGroups(states_filter=["stable"], types_filter=["Consumer"])).groups) == 1
    (member,) = desk.ask(DescribeGroup("g")).members
    assert decode_assignment(member.assignment).partitions == tuple(TopicPartition("t", n) for n in range(4))
    desk.ask(OffsetCommit("classic", {TopicPartition("t", 0): OffsetAndMetadata(5)}))
    assert desk.ask(ConsumerGroupDescribe("classic")).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_group_without_members_changes_its_type_and_keeps_its_offsets(desk: Desk):
    one = Client(desk, "one")
    settle(one)
    desk.ask(commit("one", 1))
    join = JoinGroup("g", "", "consumer", (("range", b""),), 10_000, 10_000)
    assert desk.ask(join).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    one.leave()
    assert desk.ask(join).error is ErrorCode.NONE
    assert one.beat() is ErrorCode.GROUP_ID_NOT_FOUND
    desk.advance(10_000)
    desk.restart()
    settle(one)
    desk.restart()
    assert desk.ask(OffsetFetch("g")).offsets[TopicPartition("t", 0)].offset == 5
    assert desk.ask(ListGroups()).groups[0][3] == "Consumer"


def test_group_with_members_of_the_classic_protocol_keeps_it(desk: Desk):
    assert desk.ask(JoinGroup("g", "", "consumer", (("range", b""),), 10_000, 10_000)).error is ErrorCode.NONE
    assert Client(desk, "one").beat() is ErrorCode.GROUP_ID_NOT_FOUND
    assert desk.ask(ListGroups()).groups[0][3] == "Classic"


def test_reset_of_offsets_removes_the_owner(desk: Desk):
    one, two = Client(desk, "one"), Client(desk, "two")
    settle(one, two)
    desk.ask(ResetOffsets("g", {TopicPartition("t", 3): 0}))
    assert two.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert one.beat() is ErrorCode.NONE


CHOICES = st.sampled_from(
    ["beat", "beat", "beat", "lost", "leave", "vanish", "away", "change", "time", "grow", "restart"]
)


@given(st.lists(st.tuples(CHOICES, st.integers(0, 4)), max_size=80), INTERVALS_MS)
def test_no_partition_has_two_owners_and_all_have_one_in_the_end(steps: list[tuple[str, int]], interval_ms: int):
    """Members beat, leave, vanish and return, responses are lost, topics grow, the coordinator restarts."""
    desk = Desk(config=CoordinatorConfig(consumer_assignment_interval_ms=interval_ms))
    desk.topics.put("t", 3)
    clients = [Client(desk, f"m{n}", ("t", "u") if n % 2 else ("t",)) for n in range(3)]
    clients += [Client(desk, f"s{n}", instance=f"i{n}") for n in range(2)]
    for action, number in steps:
        client = clients[number]
        match action:
            case "beat":
                client.beat()
            case "lost":
                client.beat(is_lost=True)
            case "leave":
                client.leave()
            case "vanish":
                # The process has died: its partitions are free for others only after its session.
                clients[number] = Client(desk, client.member_id + "'", client.topics)
            case "away":
                client.leave(LEAVE_EPOCH if client.instance is None else LEAVE_STATIC_EPOCH)
            case "change":
                # Another subscription is told with the next heartbeat, as by a consumer that sends everything again.
                client.topics, client.reported = ("u",) if client.topics == ("t",) else ("t",), None
            case "time":
                desk.advance(5_000)
                for other in clients:
                    other.beat()
            case "grow":
                desk.topics.put("u" if number % 2 else "t", 1 + number + desk.topics.by_name.get("u", (b"", 0))[1])
            case "restart":
                desk.restart()
        owners = Counter(place for other in clients for place in other.owned)
        assert max(owners.values(), default=0) <= 1, owners
    for _ in range(12):
        desk.advance(5_000)
        for client in clients:
            client.beat()
    for _ in range(6):
        settle(*clients)
        desk.advance(5_000)
    assert desk.described().state == "Stable"
    for name, (topic_id, count) in desk.topics.by_name.items():
        subscribed = [client for client in clients if name in client.topics]
        shares = [len({number for found, number in client.owned if found == topic_id}) for client in subscribed]
        assert sum(shares) == (count if subscribed else 0)


@pytest.fixture
def slow_desk() -> Desk:
    desk = Desk(config=CoordinatorConfig(consumer_assignment_interval_ms=1_000))
    desk.topics.put("t", 4)
    desk.topics.put("u", 2)
    return desk


def test_members_that_come_within_the_interval_are_assigned_together(slow_desk: Desk):
    desk = slow_desk
    clients = [Client(desk, f"m{number}") for number in range(4)]
    for client in clients:
        client.beat()
        desk.advance(100)
    assert [client.numbers() for client in clients] == [[0, 1, 2, 3], [], [], []]
    assert desk.described().state == "Assigning"
    # They are told to come back when it is due, rather than after their usual interval.
    assert [client.last.heartbeat_interval_ms for client in clients] == [5_000, 900, 800, 700]
    desk.advance(599)
    clients[1].beat()
    assert clients[1].last.heartbeat_interval_ms == 1
    desk.advance(1)
    settle(*clients)
    assert [len(client.owned) for client in clients] == [1, 1, 1, 1]
    assert desk.described().assignment_epoch == desk.described().group_epoch == 4


def test_members_that_leave_within_the_interval_are_missed_after_it(slow_desk: Desk):
    desk = slow_desk
    one, two = Client(desk, "one"), Client(desk, "two")
    one.beat()
    desk.advance(1_000)
    settle(two, one)
    two.leave()
    one.beat()
    assert len(one.owned) == 2
    desk.advance(1_000)
    one.beat()
    assert len(one.owned) == 4


def test_topic_that_is_unsubscribed_within_the_interval_is_revoked_at_once(slow_desk: Desk):
    desk = slow_desk
    one = Client(desk, "one", ("t", "u"))
    settle(one)
    one.topics, one.reported = ("u",), None
    settle(one)
    assert {topic_id for topic_id, _ in one.owned} == {desk.topics.topic("u")[0]}
    assert desk.described().state == "Assigning"
    desk.advance(1_000)
    settle(one)
    assert (len(one.owned), desk.described().state) == (2, "Stable")


def test_group_has_its_own_interval(slow_desk: Desk):
    slow_desk.configure(consumer_assignment_interval_ms="0")
    one, two = Client(slow_desk, "one"), Client(slow_desk, "two")
    settle(one, two)
    assert (len(one.owned), len(two.owned)) == (2, 2)


def test_static_members_and_their_heirs_never_share(desk: Desk):
    """The heir of a static member that did not leave waits until the session of the other has ended."""
    one = Client(desk, "one", instance="i")
    settle(one)
    heir = Client(desk, "two", instance="i")
    assert heir.beat() is ErrorCode.UNRELEASED_INSTANCE_ID
    desk.advance(SESSION_MS)
    settle(heir)
    assert len(heir.owned) == 4
