"""Transcripts of the coordinator: what it answers, and when."""

from random import Random

import pytest
from attrs import define, field

from streams.core.blocks.records import Block, TopicPartition
from streams.group import (
    Assignment,
    Coordinator,
    CoordinatorConfig,
    Persist,
    Reply,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from streams.group.state.offsets import read_key
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    CreateGroup,
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetFetch,
    ResetOffsets,
    Shift,
    SyncGroup,
)
from streams.protocol.group_requests import GroupRequest
from streams.protocol.messages import TxnOffsetCommit

P0 = TopicPartition("words", 0)
P1 = TopicPartition("words", 1)
P2, P3, P4, P5, P6 = (TopicPartition("words", number) for number in range(2, 7))
SESSION_MS = 10_000
REBALANCE_MS = 60_000


@define
class Desk:
    """A coordinator with its clock, its log, and the replies by token."""

    coordinator: Coordinator = field(factory=lambda: Coordinator(CoordinatorConfig(), Random(7)))
    now_ms: int = 1_000
    log: list[tuple[bytes, bytes | None]] = field(factory=list)
    replies: dict[str, object] = field(factory=dict)

    def ask(self, token: str, request: GroupRequest):
        """Send; the reply, if it came at once."""
        self.replies.pop(token, None)
        self._perform(self.coordinator.handle(request, self.now_ms, token))
        return self.replies.get(token)

    def join(self, who, member_id="", protocols=(("range", b""),), instance=None, protocol_type="consumer"):
        """Join as a client; ``who`` is token and client id."""
        return self.ask(
            who, JoinGroup("g", member_id, protocol_type, protocols, SESSION_MS, REBALANCE_MS, instance, who)
        )

    def sync(self, who, joined, assignments=None, instance=None):
        """Sync after a join."""
        request = SyncGroup("g", joined.generation_id, joined.member_id, instance, assignments or {})
        return self.ask(who, request)

    def beat(self, joined, instance=None):
        """Send a heartbeat and return its error."""
        return self.ask("heartbeat", Heartbeat("g", joined.generation_id, joined.member_id, instance)).error

    def commit(self, joined, offset, instance=None, partition=P0):
        """Commit as a member (None = as nobody) and return the error."""
        offsets = {partition: OffsetAndMetadata(offset)}
        if joined is None:
            request = OffsetCommit("g", offsets)
        else:
            request = OffsetCommit("g", offsets, joined.generation_id, joined.member_id, instance)
        return self.ask("commit", request).errors[partition]

    def committed(self):
        """Return the committed offsets."""
        return {p: c.offset for p, c in self.ask("fetch", OffsetFetch("g")).offsets.items()}

    def state(self):
        """Return the state of the group."""
        return self.ask("describe", DescribeGroup("g")).state

    def advance(self, by_ms):
        """Let time pass, tick by tick as the coordinator wants it."""
        end = self.now_ms + by_ms
        while (due := self.coordinator.next_deadline_ms()) is not None and due <= end:
            self.now_ms = max(self.now_ms, due)
            self._perform(self.coordinator.tick(self.now_ms))
        self.now_ms = end

    def settle_two(self):
        """Bring members a (leader) and b into a stable generation; return their joins."""
        a = self.join("a")
        self.sync("a", a, {a.member_id: b"A"})
        self.join("b")
        a = self.join("a", a.member_id)
        b = self.replies["b"]
        self.sync("b", b)
        self.sync("a", a, {a.member_id: b"A", b.member_id: b"B"})
        return a, b

    def _perform(self, effects):
        for effect in effects:
            if isinstance(effect, Reply):
                self.replies[effect.token] = effect.response
            else:
                assert isinstance(effect, Persist)
                self.log.append((effect.key, effect.value))


@pytest.fixture
def desk():
    return Desk()


def test_one_member_joins_leads_and_gets_what_it_assigned(desk):
    joined = desk.join("a")
    synced = desk.sync("a", joined, {joined.member_id: b"all"})

    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("a-")
    assert (joined.generation_id, joined.protocol_name) == (1, "range")
    assert [member.member_id for member in joined.members] == [joined.member_id]
    assert synced.assignment == b"all"
    assert desk.state() == "Stable"


def test_second_member_waits_until_the_first_rejoins(desk):
    a = desk.join("a")
    desk.sync("a", a, {a.member_id: b"all"})

    assert desk.join("b") is None
    assert desk.beat(a) is ErrorCode.REBALANCE_IN_PROGRESS
    again = desk.join("a", a.member_id)

    b = desk.replies["b"]
    assert again.generation_id == b.generation_id == 2
    assert again.leader == b.leader == a.member_id
    assert len(again.members) == 2
    assert b.members == ()


def test_follower_waits_for_the_leaders_assignment(desk):
    a = desk.join("a")
    desk.join("b")
    a = desk.join("a", a.member_id)
    b = desk.replies["b"]

    assert desk.sync("b", b) is None
    desk.sync("a", a, {a.member_id: b"A", b.member_id: b"B"})

    assert desk.replies["b"].assignment == b"B"
    assert desk.replies["a"].assignment == b"A"


def test_leaving_member_makes_the_other_rejoin(desk):
    a, b = desk.settle_two()

    assert desk.ask("b", LeaveGroup("g", b.member_id)).error is ErrorCode.NONE
    assert desk.beat(a) is ErrorCode.REBALANCE_IN_PROGRESS
    again = desk.join("a", a.member_id)

    assert [member.member_id for member in again.members] == [a.member_id]
    assert desk.beat(b) is ErrorCode.UNKNOWN_MEMBER_ID


def test_last_member_leaves_an_empty_group_with_its_offsets(desk):
    a = desk.join("a")
    desk.sync("a", a, {})
    desk.commit(a, 5)
    desk.ask("a", LeaveGroup("g", a.member_id))

    assert desk.state() == "Empty"
    assert desk.committed() == {P0: 5}


def test_silent_member_is_dropped_after_its_session(desk):
    a, b = desk.settle_two()
    desk.advance(SESSION_MS - 1)
    assert desk.beat(a) is ErrorCode.NONE

    desk.advance(1)

    assert desk.beat(a) is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.beat(b) is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_waits_for_others_does_not_expire(desk):
    a = desk.join("a")
    desk.sync("a", a, {})
    desk.join("b")

    for _ in range(5):
        desk.advance(SESSION_MS - 1)
        assert desk.beat(a) is ErrorCode.REBALANCE_IN_PROGRESS
    a = desk.join("a", a.member_id)

    assert len(a.members) == 2


def test_who_does_not_rejoin_within_the_rebalance_timeout_is_out(desk):
    a = desk.join("a")
    desk.sync("a", a, {})
    desk.join("b")

    for _ in range(REBALANCE_MS // 5_000):
        desk.beat(a)
        desk.advance(5_000)

    b = desk.replies["b"]
    assert b.leader == b.member_id
    assert [member.member_id for member in b.members] == [b.member_id]
    assert desk.beat(a) is ErrorCode.UNKNOWN_MEMBER_ID


def test_late_member_that_has_to_revoke_gets_its_assignment_though_the_next_rebalance_has_begun(desk):
    """Cooperative members that revoke one after the other would need a rebalance each; others join again at once."""

    def owning(*partitions):
        return (("cooperative-sticky", encode_subscription(Subscription(["words"], partitions, 1))),)

    def given(*partitions):
        return encode_assignment(Assignment(partitions))

    a = desk.join("a", protocols=owning())
    owned = {"b": [P0, P1], "c": [P2, P3], "d": [P4], "late": [P5, P6]}
    for who, partitions in owned.items():
        desk.join(who, protocols=owning(*partitions))
    a = desk.join("a", a.member_id, protocols=owning())
    ids = {who: desk.replies[who].member_id for who in owned}
    shares = {ids["b"]: given(P1), ids["c"]: given(P3), ids["d"]: given(P4), ids["late"]: given(P6)}
    late = desk.replies["late"]

    desk.sync("a", a, shares)
    assert desk.sync("b", desk.replies["b"]).assignment == given(P1)
    desk.join("b", ids["b"], protocols=owning(P1))
    assert desk.state() == "PreparingRebalance"

    c = desk.replies["c"]
    assert desk.sync("c", c).assignment == given(P3)
    assert desk.sync("c", c).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.sync("d", desk.replies["d"]).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.beat(c) is ErrorCode.REBALANCE_IN_PROGRESS

    for who in ("a", "c", "d"):
        desk.join(who, a.member_id if who == "a" else ids[who], protocols=owning())
    desk.advance(REBALANCE_MS)
    assert desk.replies["a"].generation_id == a.generation_id + 1
    assert desk.sync("late", late).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_late_member_is_refused_if_its_generation_was_never_assigned(desk):
    a = desk.join("a")
    owning = (("range", encode_subscription(Subscription(["words"], [P0]))),)
    desk.join("b", protocols=owning)
    desk.join("a", a.member_id)
    b = desk.replies["b"]
    desk.join("c")
    assert desk.sync("b", b).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_leader_lost_between_join_and_sync(desk):
    """The follower waits for an assignment that never comes; it is told to join again, and leads."""
    a = desk.join("a")
    desk.join("b")
    desk.join("a", a.member_id)
    b = desk.replies["b"]
    assert desk.sync("b", b) is None

    desk.advance(SESSION_MS)
    assert desk.replies["b"].error is ErrorCode.REBALANCE_IN_PROGRESS
    again = desk.join("b", b.member_id)

    assert again.leader == b.member_id
    assert again.generation_id == b.generation_id + 1


def test_member_that_never_asks_for_its_assignment_is_out(desk):
    """It sends heartbeats, so its session lives; the sync phase ends by the rebalance timeout."""
    a = desk.join("a")
    desk.join("b")
    a = desk.join("a", a.member_id)
    b = desk.replies["b"]
    desk.sync("a", a, {})
    for _ in range(REBALANCE_MS // 5_000):
        desk.beat(a)
        desk.beat(b)
        desk.advance(5_000)

    assert desk.beat(b) is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.beat(a) is ErrorCode.REBALANCE_IN_PROGRESS


def test_retried_join_gets_the_settled_generation_without_a_rebalance(desk):
    a, b = desk.settle_two()

    again = desk.join("b", b.member_id)

    assert again.generation_id == b.generation_id
    assert desk.beat(a) is ErrorCode.NONE


def test_rejoining_leader_starts_a_rebalance(desk):
    a, b = desk.settle_two()

    assert desk.join("a", a.member_id) is None
    assert desk.beat(b) is ErrorCode.REBALANCE_IN_PROGRESS


def test_protocol_is_common_to_all_and_voted(desk):
    a = desk.join("a", protocols=(("range", b""), ("sticky", b""), ("mine", b"")))
    desk.join("b", protocols=(("sticky", b"1"), ("range", b"2")))
    desk.join("c", protocols=(("sticky", b"3"), ("range", b"4")))
    a = desk.join("a", a.member_id, protocols=(("range", b""), ("sticky", b""), ("mine", b"")))

    assert a.protocol_name == "sticky"
    assert [member.metadata for member in a.members] == [b"", b"1", b"3"]


@pytest.mark.parametrize(
    ("protocols", "protocol_type"),
    [((("other", b""),), "consumer"), ((("range", b""),), "connect"), ((), "consumer")],
)
def test_member_without_common_protocol_is_refused(desk, protocols, protocol_type):
    desk.join("a")

    refused = desk.join("b", protocols=protocols, protocol_type=protocol_type)

    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.state() == "CompletingRebalance"


@pytest.mark.parametrize("timeout_ms", [100, 5_999, 1_800_001])
def test_session_timeout_outside_the_bounds_is_refused(desk, timeout_ms):
    """As by Kafka, whose bounds are 6 seconds and half an hour: a shorter session flaps."""
    request = JoinGroup("g", "", "consumer", [("range", b"")], timeout_ms, REBALANCE_MS)

    assert desk.ask("a", request).error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_initial_delay_gathers_members_into_one_generation():
    desk = Desk(Coordinator(CoordinatorConfig(initial_rebalance_delay_ms=3_000), Random(7)))
    assert desk.join("a") is None
    desk.advance(2_000)
    assert desk.join("b") is None

    desk.advance(1_000)

    assert desk.replies["a"].generation_id == desk.replies["b"].generation_id == 1
    assert len(desk.replies["a"].members) == 2


def test_static_member_restarts_without_a_rebalance(desk):
    a = desk.join("a", instance="one")
    desk.join("b", instance="two")
    a = desk.join("a", a.member_id, instance="one")
    b = desk.replies["b"]
    desk.sync("b", b, instance="two")
    desk.sync("a", a, {a.member_id: b"A", b.member_id: b"B"}, instance="one")

    back = desk.join("b", instance="two")
    synced = desk.sync("b", back, instance="two")

    assert back.generation_id == b.generation_id
    assert back.member_id != b.member_id
    assert synced.assignment == b"B"
    assert desk.beat(a, "one") is ErrorCode.NONE
    assert desk.beat(b, "two") is ErrorCode.FENCED_INSTANCE_ID
    assert desk.commit(b, 1, "two") is ErrorCode.FENCED_INSTANCE_ID
    assert desk.commit(back, 1, "two") is ErrorCode.NONE


def test_static_leader_that_restarts_is_not_asked_to_assign(desk):
    a = desk.join("a", instance="one")
    desk.sync("a", a, {a.member_id: b"A"}, instance="one")

    back = desk.join("a", instance="one")

    assert back.leader == a.member_id != back.member_id
    assert back.members == ()
    assert desk.sync("a", back, instance="one").assignment == b"A"


def test_static_member_replaced_while_it_waits_is_fenced(desk):
    a = desk.join("a")
    desk.sync("a", a, {})
    desk.join("old", instance="one")

    desk.join("new", instance="one")

    assert desk.replies["old"].error is ErrorCode.FENCED_INSTANCE_ID
    a = desk.join("a", a.member_id)
    assert [member.group_instance_id for member in a.members] == [None, "one"]


def test_absent_static_member_keeps_its_place_until_its_session_ends(desk):
    a = desk.join("a", instance="one")
    desk.sync("a", a, {}, instance="one")
    desk.join("b")
    desk.advance(SESSION_MS)

    b = desk.replies["b"]

    assert b.leader == b.member_id
    assert desk.ask("describe", DescribeGroup("g")).members[0].member_id == b.member_id


@pytest.mark.parametrize(("instance", "stays"), [("one", True), (None, False)])
def test_member_that_beats_and_does_not_rejoin_stays_after_the_rebalance_if_it_is_static(desk, instance, stays):
    """A dynamic one is removed: KIP-345."""
    a = desk.join("a", instance=instance)
    desk.sync("a", a, {}, instance=instance)
    desk.join("b")
    for _ in range(2 * REBALANCE_MS // SESSION_MS):
        desk.beat(a, instance)
        desk.advance(SESSION_MS // 2)

    members = {member.member_id for member in desk.ask("describe", DescribeGroup("g")).members}

    assert desk.replies["b"].member_id in members
    assert (a.member_id in members) is stays


def test_stale_commits_are_refused(desk):
    a, b = desk.settle_two()
    assert desk.commit(a, 1) is ErrorCode.NONE

    desk.join("c")
    assert desk.commit(b, 2) is ErrorCode.NONE, "while the group waits for its members, they are still owners"
    new_a = desk.join("a", a.member_id)
    new_b = desk.join("b", b.member_id)
    new_a = desk.replies["a"]

    assert desk.commit(b, 3) is ErrorCode.ILLEGAL_GENERATION
    assert desk.commit(new_b, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.commit(None, 3) is ErrorCode.UNKNOWN_MEMBER_ID
    desk.sync("a", new_a, {})
    assert desk.commit(new_b, 4) is ErrorCode.NONE
    assert desk.committed() == {P0: 4}


def test_nobody_may_commit_for_a_group_without_members(desk):
    assert desk.commit(None, 3) is ErrorCode.NONE

    assert desk.committed() == {P0: 3}
    assert desk.ask("list", ListGroups()).groups == (("g", "", "Empty", "Classic"),)


def test_oversized_metadata_refuses_its_partition_alone(desk):
    offsets = {P0: OffsetAndMetadata(1, "x" * 5_000), P1: OffsetAndMetadata(2)}

    response = desk.ask("commit", OffsetCommit("g", offsets))

    assert response.errors == {P0: ErrorCode.OFFSET_METADATA_TOO_LARGE, P1: ErrorCode.NONE}
    assert desk.committed() == {P1: 2}


def test_group_with_members_cannot_be_deleted(desk):
    a, b = desk.settle_two()
    desk.commit(a, 1)
    assert desk.ask("delete", DeleteGroup("g")).error is ErrorCode.NON_EMPTY_GROUP

    for member in (a, b):
        desk.ask("leave", LeaveGroup("g", member.member_id))
    assert desk.ask("delete", DeleteGroup("g")).error is ErrorCode.NONE

    assert desk.ask("delete", DeleteGroup("g")).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert desk.committed() == {}
    assert desk.state() == "Dead"


def test_restarted_coordinator_knows_members_and_offsets(desk):
    a, b = desk.settle_two()
    desk.commit(a, 7)
    compacted = dict(desk.log)

    after = Desk(now_ms=desk.now_ms + 1_000_000)
    after.coordinator.load([Block(list(compacted), list(compacted.values()), [0] * len(compacted))])

    assert after.committed() == {P0: 7}
    assert after.state() == "Stable"
    assert after.beat(a) is ErrorCode.NONE
    assert after.commit(b, 8, partition=P1) is ErrorCode.NONE
    assert after.sync("b", b).assignment == b"B"
    after.advance(SESSION_MS)
    assert after.state() == "Empty"


def test_static_member_that_is_replaced_within_a_rebalance_is_known_after_a_restart(desk):
    """It has its new id from the join, and nobody has synced yet."""
    before = desk.join("s", instance="i")
    desk.sync("s", before, {before.member_id: b"S"}, "i")
    others = (("roundrobin", b""),)
    joined = desk.join("s", protocols=others, instance="i")
    assert joined.generation_id == before.generation_id + 1
    compacted = dict(desk.log)

    after = Desk(now_ms=desk.now_ms)
    after.coordinator.load([Block(list(compacted), list(compacted.values()), [0] * len(compacted))])

    assert after.join("s", joined.member_id, others, "i").error is ErrorCode.NONE


@pytest.mark.parametrize("phase", ["join", "sync"])
def test_rebalance_in_which_a_static_member_is_replaced_begins_again_after_a_restart(desk, phase):
    """No member gets the empty assignment of a generation that never had one, and none loses its subscription."""
    protocols = (("range", b"subscription"),)
    before = desk.join("s", protocols=protocols, instance="i")
    desk.sync("s", before, {before.member_id: b"S"}, "i")
    desk.join("other", protocols=protocols)
    if phase == "sync":
        desk.join("s", before.member_id, protocols, "i")
        assert desk.state() == "CompletingRebalance"
    desk.join("s", protocols=protocols, instance="i")
    compacted = dict(desk.log)

    after = Desk(now_ms=desk.now_ms)
    after.coordinator.load([Block(list(compacted), list(compacted.values()), [0] * len(compacted))])

    assert after.join("s", protocols=protocols, instance="i") is None
    assert after.state() == "PreparingRebalance"
    after.advance(SESSION_MS)
    joined = after.replies["s"]
    assert [member.metadata for member in joined.members] == [b"subscription"]
    after.sync("s", joined, {joined.member_id: b"T"}, "i")
    assert after.state() == "Stable"


def test_deleted_group_stays_deleted_after_restart(desk):
    desk.commit(None, 3)
    desk.ask("delete", DeleteGroup("g"))

    after = Desk()
    after.coordinator.load([Block([key for key, _ in desk.log], [value for _, value in desk.log], [0] * len(desk.log))])

    assert after.ask("list", ListGroups()).groups == ()
    assert {read_key(key) for key, _ in desk.log} == {("g", "group"), ("g", P0)}


def test_deleted_topics_lose_their_offsets(desk):
    desk.commit(None, 3)

    desk.coordinator.forget_topics(["words"])

    assert desk.committed() == {}


def test_thousand_members_settle_in_one_rebalance():
    desk = Desk()
    first = desk.join("0")
    for number in range(1, 1_000):
        desk.join(str(number))
    leader = desk.join("0", first.member_id)
    for number in range(1, 1_000):
        desk.sync(str(number), desk.replies[str(number)])
    desk.sync("0", leader, {member.member_id: b"x" for member in leader.members})

    assert desk.state() == "Stable"
    assert all(desk.replies[str(number)].assignment == b"x" for number in range(1_000))


def careful(who, member_id=""):
    """A join that takes a member id first (KIP-394)."""
    return JoinGroup(
        "g", member_id, "consumer", (("range", b""),), SESSION_MS, REBALANCE_MS, None, who, takes_member_id=True
    )


def enter(desk, who):
    """Join in two steps; return the answer."""
    offered = desk.ask(who, careful(who))
    assert offered.error is ErrorCode.MEMBER_ID_REQUIRED
    return desk.ask(who, careful(who, offered.member_id))


def test_first_join_that_comes_twice_adds_one_member(desk):
    offered = [desk.ask("a", careful("a")) for _ in range(2)]
    joined = desk.ask("a", careful("a", offered[0].member_id))
    desk.sync("a", joined, {joined.member_id: b"all"})

    assert [member.member_id for member in joined.members] == [joined.member_id]
    desk.advance(SESSION_MS - 1)
    desk.beat(joined)
    desk.advance(1)
    assert desk.ask("late", careful("a", offered[1].member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.beat(joined) is ErrorCode.NONE


def test_id_that_is_offered_and_not_taken_leaves_no_group(desk):
    desk.ask("a", careful("a"))
    desk.advance(SESSION_MS)

    assert desk.ask("list", ListGroups()).groups == ()


def test_id_that_is_given_back_is_nobodys(desk):
    offered = desk.ask("a", careful("a"))

    assert desk.ask("leave", LeaveGroup("g", offered.member_id)).error is ErrorCode.NONE
    assert desk.ask("a", careful("a", offered.member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_under_another_protocol_is_refused(desk):
    a = desk.join("a")
    for wrong in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
        refused = desk.ask("a", SyncGroup("g", a.generation_id, a.member_id, **wrong))
        assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    right = SyncGroup("g", a.generation_id, a.member_id, None, {}, "consumer", "range")
    assert desk.ask("a", right).error is ErrorCode.NONE


def test_refused_join_leaves_no_group(desk):
    desk.join("a", protocols=())

    assert desk.ask("list", ListGroups()).groups == ()


def test_reset_puts_members_out_whose_bytes_say_that_they_have_the_partition(desk):
    parts = {"a": encode_assignment(Assignment((P0,))), "b": encode_assignment(Assignment((P1,)))}
    wants = (("range", encode_subscription(Subscription(("words",)))),)
    a = desk.join("a", protocols=wants)
    desk.join("b", protocols=wants)
    a = desk.join("a", a.member_id, protocols=wants)
    b = desk.replies["b"]
    desk.sync("b", b)
    desk.sync("a", a, {a.member_id: parts["a"], b.member_id: parts["b"]})
    desk.commit(a, 9)

    reset = desk.ask("admin", ResetOffsets("g", {P0: 4}, nonce=1))

    assert reset.offsets == {P0: 4}
    assert desk.commit(a, 10) is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.commit(b, 3, partition=P1) is ErrorCode.NONE
    assert desk.beat(b) is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.committed() == {P0: 4, P1: 3}


def test_reset_that_comes_twice_happens_once(desk):
    desk.commit(None, 5)
    request = ResetOffsets("g", {P0: Shift(-2, 0, 100)}, nonce=1)

    assert [desk.ask("admin", request).offsets for _ in range(2)] == [{P0: 3}, {P0: 3}]
    assert desk.committed() == {P0: 3}


def test_transaction_that_ends_after_a_reset_does_not_undo_it(desk):
    desk.ask("t", TxnOffsetCommit("tx", "g", 1, 0, {P0: OffsetAndMetadata(8), P1: OffsetAndMetadata(8)}))
    desk.commit(None, 1, partition=P1)
    desk.ask("admin", ResetOffsets("g", {P0: 4}))

    desk.coordinator.end_transaction(1, is_commit=True)

    assert desk.committed() == {P0: 4, P1: 1}


def test_member_that_waits_to_join_is_put_out_by_a_reset(desk):
    """A cooperative member still has what it owns, and would commit it."""
    owned = (("sticky", encode_subscription(Subscription(("words",), (P0,), 1))),)
    a = desk.join("a", protocols=owned)
    desk.sync("a", a, {a.member_id: encode_assignment(Assignment((P0,)))})
    desk.join("b", protocols=owned)

    desk.ask("admin", ResetOffsets("g", {P0: 4}))

    assert desk.replies["b"].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.state() == "Empty"


def test_settings_and_resets_survive_a_restart(desk):
    desk.ask("create", CreateGroup("g", True, 6_000))
    a = desk.join("a")
    desk.sync("a", a, {})
    desk.commit(a, 7)

    after = Desk(now_ms=desk.now_ms)
    log = dict(desk.log)
    after.coordinator.load([Block(list(log), list(log.values()), [0] * len(log))])

    described = after.ask("describe", DescribeGroup("g"))
    assert (described.is_ephemeral, described.session_timeout_ms) == (True, 6_000)
    assert after.beat(a) is ErrorCode.NONE
    after.advance(6_000)
    assert after.ask("list", ListGroups()).groups == ()
    gone = {key for key, value in after.log if value is None}
    assert {read_key(key) for key in gone} == {("g", "group"), ("g", "settings"), ("g", P0)}
