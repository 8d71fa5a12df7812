"""Both halves of membership together, without network: transcripts of rebalances."""

from random import Random

import pytest
from attrs import define, field

from streams.core.blocks.records import TopicPartition
from streams.core.errors import ConfigError, MemberFencedError
from streams.group import (
    Assign,
    Assignment,
    ConsumerMembership,
    CooperativeStickyAssignor,
    Coordinator,
    CoordinatorConfig,
    Failed,
    Lose,
    Member,
    MemberConfig,
    MemberState,
    PerformAssignment,
    RangeAssignor,
    RebalanceProtocol,
    Reply,
    Revoke,
    RoundRobinAssignor,
    Send,
    StickyAssignor,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    CreateGroup,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    SyncGroup,
)
from streams.protocol.messages import FindCoordinator, FindCoordinatorResponse


@define
class World:
    """A coordinator and members that reach it at once; ``history`` tells what they did."""

    counts: dict[str, int] = field(factory=lambda: {"t": 4})
    coordinator: Coordinator = field(factory=lambda: Coordinator(CoordinatorConfig(), Random(3)))
    now_ms: int = 1_000
    members: dict[str, Member] = field(factory=dict)
    history: list[str] = field(factory=list)
    errors: dict[str, Exception] = field(factory=dict)
    #: Members whose requests are lost.
    cut_off: set[str] = field(factory=set)

    def add(self, name, *assignors, instance=None, topics=("t",)):
        policy = ConsumerMembership(assignors or (RangeAssignor(),), instance)
        policy.topics = topics
        self.members[name] = Member(MemberConfig("g", name, instance, 10_000, 3_000, 60_000), policy)
        self.members[name].policy = policy
        return self.members[name]

    def owned(self, name):
        return [partition.partition for partition in self.members[name].policy.owned]

    def settle(self, *names):
        """Let members (all by default) act until nothing is left to do now."""
        is_busy = True
        while is_busy:
            is_busy = False
            for name in names or tuple(self.members):
                for action in self.members[name].poll(self.now_ms):
                    is_busy = True
                    self.perform(name, action)

    def advance(self, by_ms, *names):
        """Let time pass in steps of a second."""
        for _ in range(by_ms // 1_000):
            self.now_ms += 1_000
            self.reply(self.coordinator.tick(self.now_ms))
            self.settle(*names)

    def perform(self, name, action):
        member = self.members[name]
        match action:
            case Send(_, FindCoordinator() as request):
                member.on_response(request, FindCoordinatorResponse(ErrorCode.NONE, 0), self.now_ms)
            case Send(_, request) if name in self.cut_off:
                member.on_response(request, ConnectionError("cut off"), self.now_ms)
            case Send(_, request):
                if not isinstance(request, Heartbeat):
                    self.history.append(f"{name} {type(request).__name__}")
                self.reply(self.coordinator.handle(request, self.now_ms, (name, request)))
            case PerformAssignment(generation, protocol, members):
                wanted = member.policy.wanted_topics(members)
                counts = {topic: self.counts[topic] for topic in wanted if topic in self.counts}
                assignments = member.policy.assign(protocol, members, counts)
                member.complete_assignment(generation, assignments, self.now_ms)
            case Revoke(partitions):
                self.history.append(f"{name} revokes {[p.partition for p in partitions]}")
            case Assign(_, added):
                self.history.append(f"{name} gets {[p.partition for p in added]}")
            case Lose(partitions):
                self.history.append(f"{name} loses {[p.partition for p in partitions]}")
            case Failed(error):
                self.errors[name] = error

    def reply(self, effects):
        for effect in effects:
            if isinstance(effect, Reply):
                name, request = effect.token
                self.members[name].on_response(request, effect.response, self.now_ms)

    def take_history(self):
        history, self.history = self.history, []
        return history


@pytest.fixture
def world():
    return World()


def test_eager_members_give_all_up_before_they_join_again(world):
    world.add("a")
    world.settle()
    world.add("b")
    world.settle("b")
    world.take_history()

    world.advance(3_000)

    assert world.take_history() == [
        "a revokes [0, 1, 2, 3]",
        "a JoinGroup",
        "b SyncGroup",
        "a SyncGroup",
        "b gets [2, 3]",
        "a gets [0, 1]",
    ]
    assert (world.owned("a"), world.owned("b")) == ([0, 1], [2, 3])


def test_cooperative_members_give_up_only_what_moves_in_a_second_round(world):
    world.add("a", CooperativeStickyAssignor())
    world.settle()
    world.add("b", CooperativeStickyAssignor())
    world.settle("b")
    world.take_history()

    world.advance(6_000)

    history = world.take_history()
    of_a = [line for line in history if line.startswith("a ")]
    assert of_a == [
        "a JoinGroup",
        "a SyncGroup",
        "a revokes [2, 3]",
        "a gets []",
        "a JoinGroup",
        "a SyncGroup",
        "a gets []",
    ]
    assert history.index("a revokes [2, 3]") < history.index("b gets [2, 3]")
    assert (world.owned("a"), world.owned("b")) == ([0, 1], [2, 3])


def test_lost_member_is_replaced_and_reintegrated(world):
    for name in "ab":
        world.add(name, CooperativeStickyAssignor())
    world.settle()
    world.advance(9_000)
    world.cut_off.add("b")
    of_b = world.owned("b")

    world.advance(15_000)
    assert world.owned("a") == [0, 1, 2, 3]
    assert world.owned("b") == of_b, "it cannot know"

    world.cut_off.clear()
    world.advance(10_000)
    assert f"b loses {of_b}" in world.history
    assert sorted(world.owned("a") + world.owned("b")) == [0, 1, 2, 3]
    assert len(world.owned("b")) == 2


def test_stalled_application_leaves(world):
    """Heartbeats go on in the background, but nobody asks for records."""
    member = world.add("a")
    world.settle()
    world.take_history()

    while member.state is MemberState.STABLE:
        world.now_ms += 1_000
        world.reply(world.coordinator.tick(world.now_ms))
        for action in member.poll(world.now_ms, by_application=False):
            world.perform("a", action)

    assert world.now_ms == 1_000 + 61_000
    assert world.history == ["a LeaveGroup", "a loses [0, 1, 2, 3]"]


def test_leaving_member_gives_up_first(world):
    world.add("a")
    world.settle()
    world.take_history()

    for action in world.members["a"].leave():
        world.perform("a", action)

    assert world.history == ["a revokes [0, 1, 2, 3]", "a LeaveGroup"]
    assert world.members["a"].poll(world.now_ms) == []


def test_static_member_does_not_leave_and_returns_without_rebalance(world):
    world.add("a", instance="one")
    world.settle()
    old = world.members["a"]
    assert not any(isinstance(a, Send) and isinstance(a.request, LeaveGroup) for a in old.leave())
    world.take_history()

    back = world.add("a", instance="one")
    world.settle()

    assert world.history == ["a JoinGroup", "a SyncGroup", "a gets [0, 1, 2, 3]"]
    assert back.generation_id == old.generation_id
    assert not back.is_leader


@pytest.mark.parametrize("is_skipped", [False, True])
def test_leader_that_is_told_to_skip_the_assignment_only_asks_for_its_own(is_skipped):
    """As a broker tells a static leader that is back in a stable group (KIP-814)."""
    policy = ConsumerMembership((RangeAssignor(),), "one")
    policy.topics = ("t",)
    member = Member(MemberConfig("g", "a", "one", 10_000, 3_000, 60_000), policy)
    (search,) = member.poll(0)
    member.on_response(search.request, FindCoordinatorResponse(ErrorCode.NONE, 0), 0)
    (join,) = member.poll(0)
    joined = JoinGroupResponse(ErrorCode.NONE, 4, "range", "id", "id", skip_assignment=is_skipped)

    member.on_response(join.request, joined, 0)

    (action,) = member.poll(0)
    assert member.is_leader
    assert isinstance(action, PerformAssignment) != is_skipped
    if is_skipped:
        assert isinstance(action.request, SyncGroup)
        assert not action.request.assignments


def test_second_process_under_an_instance_id_fences_the_first(world):
    world.add("first", instance="one")
    world.settle()
    world.add("second", instance="one")
    world.settle("second")

    world.advance(3_000, "first")

    assert isinstance(world.errors["first"], MemberFencedError)
    assert "first loses [0, 1, 2, 3]" in world.history
    assert world.members["first"].state is MemberState.FAILED


def test_leader_lost_between_join_and_sync(world):
    world.add("a")
    world.settle()
    world.add("b")
    world.settle("b")
    world.now_ms += 3_000
    a = world.members["a"]
    while a.state is not MemberState.ASSIGNING:
        for action in a.poll(world.now_ms):
            if isinstance(action, PerformAssignment):
                break
            world.perform("a", action)

    world.advance(12_000, "b")

    assert world.owned("b") == [0, 1, 2, 3]
    assert world.members["b"].is_leader


def test_members_without_common_assignor_are_told(world):
    world.add("a", RangeAssignor())
    world.settle()
    world.add("b", RoundRobinAssignor())
    world.settle()

    assert world.errors["b"].code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "use one assignor" in str(world.errors["b"])


def test_assignor_may_change_member_by_member(world):
    """Both list the old and the new one: the group goes over when the last has been restarted."""
    world.add("a", RangeAssignor())
    world.add("b", StickyAssignor(), RangeAssignor())
    world.settle()
    world.advance(3_000)

    assert sorted(world.owned("a") + world.owned("b")) == [0, 1, 2, 3]


def test_protocol_is_cooperative_only_where_all_assignors_are():
    assert ConsumerMembership([CooperativeStickyAssignor()]).rebalance_protocol is RebalanceProtocol.COOPERATIVE
    mixed = ConsumerMembership([CooperativeStickyAssignor(), RangeAssignor()])
    assert mixed.rebalance_protocol is RebalanceProtocol.EAGER
    with pytest.raises(ConfigError):
        ConsumerMembership([])


def test_cooperative_member_gives_up_dropped_topics_but_keeps_what_it_never_asked_for(world):
    class Generous(CooperativeStickyAssignor):
        name = "generous"

        def assign(self, partitions_per_topic, members):
            return {member: Assignment((TopicPartition("t", 0), TopicPartition("extra", 5))) for member in members}

    member = world.add("a", Generous())
    world.settle()
    world.take_history()
    member.policy.topics = ("u",)
    member.request_rejoin("changed")

    world.settle()

    assert world.history[0] == "a revokes [0]"
    assert TopicPartition("extra", 5) in member.policy.owned


def test_assignor_talks_to_itself_by_user_data(world):
    seen = []

    class Talking(RangeAssignor):
        name = "talking"

        def subscription_user_data(self):
            return b"up"

        def assign(self, partitions_per_topic, members):
            seen.extend(subscription.user_data for subscription in members.values())
            return {member: Assignment((), b"down") for member in members}

        def on_assignment(self, assignment):
            seen.append(assignment.user_data)

    world.add("a", Talking())
    world.settle()

    assert seen == [b"up", b"down"]


def test_two_rebalances_crossing(world):
    """A third member joins while the second one's assignment is being worked out."""
    world.add("a", CooperativeStickyAssignor())
    world.settle()
    world.add("b", CooperativeStickyAssignor())
    world.settle("b")
    world.now_ms += 3_000
    a = world.members["a"]
    held = None
    while held is None:
        for action in a.poll(world.now_ms):
            if isinstance(action, PerformAssignment):
                held = action
            else:
                world.perform("a", action)
    world.settle("b")
    world.add("c", CooperativeStickyAssignor())
    world.settle("c")

    world.perform("a", held)
    world.advance(12_000)

    owned = [world.owned(name) for name in "abc"]
    assert sorted(partition for partitions in owned for partition in partitions) == [0, 1, 2, 3]
    assert sorted(map(len, owned)) == [1, 1, 2]


def test_late_answers_are_dropped(world):
    member = world.add("a")
    world.settle()
    stale = JoinGroup("g", "", "consumer", (), 1, 1)

    member.on_response(stale, ConnectionError("old"), world.now_ms)
    member.on_response(SyncGroup("g", 0, ""), ConnectionError("old"), world.now_ms)

    assert member.state is MemberState.STABLE
    assert world.owned("a") == [0, 1, 2, 3]


def test_sticky_members_remember_what_they_gave_up(world):
    """Eager: all is given up before the join, and yet only what balance asks for changes hands."""
    world.counts["t"] = 7
    for name in "ab":
        world.add(name, StickyAssignor())
    world.settle()
    world.advance(3_000)
    before = {name: set(world.owned(name)) for name in "ab"}

    world.add("c", StickyAssignor())
    world.settle("c")
    world.advance(3_000)

    assert len(world.owned("c")) == 2
    assert all(set(world.owned(name)) <= before[name] for name in "ab")

    for action in world.members.pop("b").leave():
        if isinstance(action, Send):
            world.coordinator.handle(action.request, world.now_ms, ("b", action.request))
    of_a, of_c = set(world.owned("a")), set(world.owned("c"))
    world.advance(3_000)
    assert of_a <= set(world.owned("a"))
    assert of_c <= set(world.owned("c"))


@pytest.mark.parametrize("kind", [JoinGroup, SyncGroup, Heartbeat])
def test_request_is_sent_again_after_its_connection_was_lost(kind):
    class Losing(World):
        def perform(self, name, action):
            if isinstance(action, Send) and isinstance(action.request, kind) and not self.errors:
                self.errors["lost"] = None
                self.members[name].on_response(action.request, ConnectionError("reset"), self.now_ms)
            else:
                World.perform(self, name, action)

    world = Losing()
    world.add("a")
    world.settle()
    world.advance(13_000)

    assert "lost" in world.errors
    assert world.members["a"].state is MemberState.STABLE
    assert world.owned("a") == [0, 1, 2, 3]
    generation = world.members["a"].generation_id
    world.advance(20_000)
    assert world.members["a"].generation_id == generation


def test_member_that_goes_before_its_join_is_answered_leaves_nobody_behind(world):
    """Neither the id it was offered nor the join that waits holds anybody up."""
    world.add("a")
    world.settle()
    b = world.add("b")
    requests = []
    while b.state is not MemberState.JOINING or not b.member_id:
        for action in b.poll(world.now_ms):
            if isinstance(action, Send):
                requests.append(action.request)
            world.perform("b", action)
    for action in b.leave():
        world.perform("b", action)

    world.advance(3_000, "a")

    assert world.owned("a") == [0, 1, 2, 3]
    group = world.coordinator.group("g")
    assert [member.client_id for member in group.members.values()] == ["a"]
    world.reply(world.coordinator.handle(requests[-1], world.now_ms, ("b", requests[-1])))
    assert len(group.members) == 1, "its join comes late once more"


def test_group_may_shorten_the_session_of_its_members(world):
    world.coordinator.handle(CreateGroup("g", session_timeout_ms=6_000), 0, "admin")
    member = world.add("a")
    world.settle()

    assert member.heartbeat_interval_ms == 2_000
    assert member.alive_until_ms == world.now_ms + 6_000


@pytest.mark.parametrize(("late_ms", "is_heard"), [(6_000, True), (12_000, False)])
def test_each_response_to_a_heartbeat_is_heard_within_the_session(world, late_ms, is_heard):
    """The next heartbeat is sent before the last one is answered, which may be slow."""
    member = world.add("a")
    world.settle()
    begun_ms, sent = world.now_ms, []
    world.history.clear()
    for now_ms in range(begun_ms + 3_000, begun_ms + 3_000 + late_ms + 1, 3_000):
        sent += member.poll(now_ms, by_application=False)

    member.on_response(sent[0].request, HeartbeatResponse(ErrorCode.REBALANCE_IN_PROGRESS), now_ms)

    assert len(sent) == 1 + late_ms // 3_000
    world.now_ms = now_ms
    world.settle()
    assert ("a JoinGroup" in world.history) is is_heard
