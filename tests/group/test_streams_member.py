"""The member of a streams group against a coordinator whose responses are written down (KIP-1071)."""

from collections.abc import Sequence

import pytest
from attrs import define, evolve, field

from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.errors import BrokerError
from streams.group import (
    Assign,
    ChangelogSums,
    EpochMember,
    Failed,
    HostFacts,
    Lose,
    MemberConfig,
    MemberState,
    Revoke,
    Send,
    StreamsHeartbeats,
    TaskRoles,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import FindCoordinator, FindCoordinatorResponse
from streams.protocol.streams_group_messages import (
    Endpoint,
    EndpointPartitions,
    GroupStatus,
    GroupSubtopology,
    GroupTopology,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    StreamsStatus,
    TaskOffset,
)

BEAT_MS, OFFSETS_MS, SESSION_MS, MAX_POLL_MS = 1_000, 5_000, 45_000, 60_000
TOPOLOGY = GroupTopology(0, [GroupSubtopology("0", ["t"])])


@define
class Host:
    """A stream thread whose task N_M reads partition M of topic tN."""

    #: Sub-topologies whose topics are in the metadata.
    known: set[int] = field(factory=lambda: {0, 1})
    endpoint: Endpoint | None = None
    wants_shutdown: bool = False
    is_changed: bool = False
    sums: ChangelogSums = field(factory=ChangelogSums)
    adopted: TaskRoles | None = None
    statuses: list[Sequence[GroupStatus]] = field(factory=list)
    places: Sequence[EndpointPartitions] = ()
    acceptable_lag: int | None = None

    def group_topology(self) -> GroupTopology:
        """The topology that is sent."""
        return TOPOLOGY

    def host_facts(self) -> HostFacts:
        """The facts of the process."""
        return HostFacts("p", self.endpoint, {"zone": "a"})

    def changelog_sums(self) -> ChangelogSums:
        """The positions of local state."""
        return self.sums

    def note_status(self, status: Sequence[GroupStatus], now_ms: int) -> None:
        """Note."""
        self.statuses.append(status)

    def note_acceptable_lag(self, lag: int) -> None:
        """Note."""
        self.acceptable_lag = lag

    def note_endpoints(self, endpoints: Sequence[EndpointPartitions]) -> None:
        """Note."""
        self.places = endpoints

    def has_news(self) -> bool:
        """Whether the status has changed."""
        return self.is_changed

    def partitions_of(self, roles: TaskRoles) -> tuple[TopicPartition, ...] | None:
        """Adopt tasks whose topics are known."""
        if not {task.sub_topology for task in roles.active} <= self.known:
            return None
        self.adopted, self.is_changed = roles, False
        return tuple(TopicPartition(f"t{task.sub_topology}", task.partition) for task in roles.active)


@define
class World:
    """A member, its host, and what it has asked and done; ``answer`` is the coordinator's next response."""

    host: Host = field(factory=Host)
    instance: str | None = None
    now_ms: int = 0
    answer: StreamsGroupHeartbeatResponse | Exception = field(
        factory=lambda: StreamsGroupHeartbeatResponse(
            ErrorCode.NONE, "", "m", 1, BEAT_MS, OFFSETS_MS, active_tasks={}, standby_tasks={}, warmup_tasks={}
        )
    )
    requests: list[StreamsGroupHeartbeat] = field(factory=list)
    done: list[object] = field(factory=list)
    member: EpochMember = field(init=False)

    def __attrs_post_init__(self) -> None:
        config = MemberConfig("g", "c", self.instance, SESSION_MS, 3_000, MAX_POLL_MS, 100)
        self.member = EpochMember(config, StreamsHeartbeats(config, self.host, "r"))

    def turn(self, **assigned: dict[str, list[int]]) -> None:
        """Act until nothing is due; the next response assigns these tasks, later ones leave them as they are."""
        if assigned:
            tasks = {f"{role}_tasks": assigned.get(role, {}) for role in ("active", "standby", "warmup")}
            self.answer = evolve(self.answer, **tasks)
        while actions := self.member.poll(self.now_ms):
            for action in actions:
                self.perform(action)

    def perform(self, action: object) -> None:
        """Perform an action as a consumer does."""
        match action:
            case Send(_, FindCoordinator() as request):
                self.member.on_response(request, FindCoordinatorResponse(ErrorCode.NONE, 0), self.now_ms)
            case Send(_, StreamsGroupHeartbeat() as request):
                self.requests.append(request)
                answer = self.answer
                if isinstance(answer, StreamsGroupHeartbeatResponse):
                    self.answer = evolve(
                        answer, error=ErrorCode.NONE, status=None, active_tasks=None, standby_tasks=None,
                        warmup_tasks=None, partitions_by_user_endpoint=None,
                    )  # fmt: skip
                self.member.on_response(request, answer, self.now_ms)
            case _:
                self.done.append(action)

    def beat(self, **assigned: dict[str, list[int]]) -> None:
        """Let the next heartbeat be due, and act."""
        self.now_ms += BEAT_MS
        self.turn(**assigned)


@pytest.fixture
def world() -> World:
    """A member that has joined, without tasks."""
    world = World()
    world.turn()
    return world


def partitions(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def test_join_sends_the_topology_and_all_facts_later_heartbeats_only_what_changed(world: World):
    join, confirmation = world.requests
    assert (join.member_epoch, join.topology, join.rack_id, join.rebalance_timeout_ms) == (
        0,
        TOPOLOGY,
        "r",
        MAX_POLL_MS,
    )
    assert (join.process_id, join.client_tags, join.active_tasks, join.standby_tasks) == ("p", {"zone": "a"}, {}, {})
    assert (confirmation.member_epoch, confirmation.topology, confirmation.process_id) == (1, None, None)
    assert world.done == [Assign((), ())]
    assert world.host.adopted == TaskRoles()
    world.beat()
    last = world.requests[-1]
    assert (last.active_tasks, last.standby_tasks, last.warmup_tasks, last.client_tags) == (None, None, None, None)


def test_tasks_are_given_up_before_the_member_confirms_it(world: World):
    world.beat(active={"0": [0, 1], "1": [1]}, standby={"1": [0]}, warmup={"0": [2]})
    assert world.done[1:] == [
        Assign(partitions("t0", 0, 1) + partitions("t1", 1), partitions("t0", 0, 1) + partitions("t1", 1))
    ]
    confirmed = world.requests[-1]
    assert confirmed.active_tasks == {"0": [0, 1], "1": [1]}
    assert (confirmed.standby_tasks, confirmed.warmup_tasks) == ({"1": [0]}, {"0": [2]})
    assert world.host.adopted == TaskRoles((TaskId(0, 0), TaskId(0, 1), TaskId(1, 1)), (TaskId(1, 0),), (TaskId(0, 2),))

    world.now_ms += BEAT_MS
    world.answer = evolve(world.answer, active_tasks={"0": [1, 3]}, standby_tasks={}, warmup_tasks={})
    for action in world.member.poll(world.now_ms):
        world.perform(action)
    asked = len(world.requests)
    actions = world.member.poll(world.now_ms)
    assert actions == [
        Revoke(partitions("t0", 0) + partitions("t1", 1)),
        Assign(partitions("t0", 1, 3), partitions("t0", 3)),
    ]
    assert len(world.requests) == asked
    world.turn()
    assert world.requests[-1].active_tasks == {"0": [1, 3]}


def test_only_standby_tasks_that_change_are_an_assignment_too(world: World):
    world.beat(active={"0": [0]})
    world.beat(active={"0": [0]}, standby={"1": [0]})
    assert world.done[-1] == Assign(partitions("t0", 0), ())
    assert world.requests[-1].standby_tasks == {"1": [0]}


def test_same_tasks_again_and_a_report_of_everything_change_nothing(world: World):
    world.beat(active={"0": [0]})
    done = list(world.done)
    world.beat(active={"0": [0]})
    world.member.request_rejoin("a warm-up replica has caught up")
    world.turn()
    assert world.requests[-1].active_tasks == {"0": [0]}
    assert world.requests[-1].process_id == "p"
    assert world.requests[-1].topology is None
    assert world.done == done


def test_tasks_wait_for_the_metadata_of_their_topics(world: World):
    world.host.known = {0}
    world.beat(active={"0": [0], "1": [0]})
    assert world.member.needs_metadata
    assert len(world.done) == 1
    world.host.known = {0, 1}
    world.turn()
    assert not world.member.needs_metadata
    assert world.done[-1] == Assign(
        partitions("t0", 0) + partitions("t1", 0), partitions("t0", 0) + partitions("t1", 0)
    )


def test_removed_member_loses_its_tasks_and_joins_again_with_the_topology(world: World):
    world.beat(active={"0": [0]})
    world.answer = evolve(world.answer, error=ErrorCode.FENCED_MEMBER_EPOCH)
    world.beat()
    assert world.done[-1] == Lose(partitions("t0", 0))
    assert world.member.state is MemberState.UNJOINED
    world.beat(standby={"0": [0]})
    join = next(request for request in reversed(world.requests) if request.member_epoch == 0)
    assert (join.topology, join.active_tasks) == (TOPOLOGY, {})
    assert world.done[-1] == Assign((), ())
    assert world.requests[-1].standby_tasks == {"0": [0]}


def test_member_that_had_replicas_only_is_told_of_its_first_assignment_again(world: World):
    world.beat(standby={"0": [0]})
    world.answer = evolve(world.answer, error=ErrorCode.UNKNOWN_MEMBER_ID)
    world.beat()
    done = len(world.done)
    world.beat(active={})
    assert world.done[done:] == [Assign((), ())]


def test_news_of_the_status_are_passed_on_with_the_tasks_as_they_are(world: World):
    status = [GroupStatus(StreamsStatus.SHUTDOWN_APPLICATION, "one has failed")]
    world.beat(active={"0": [0]})
    world.answer, world.host.is_changed = evolve(world.answer, status=status), True
    world.beat()
    assert world.host.statuses[-1] in (status, ())
    assert status in world.host.statuses
    assert world.done[-1] == Assign(partitions("t0", 0), ())


def test_changelog_positions_are_reported_at_once_and_then_in_the_interval_of_the_coordinator(world: World):
    world.host.sums = ChangelogSums({TaskId(1, 2): 30}, {TaskId(1, 2): 50})
    reports = []
    for _ in range(2 * OFFSETS_MS // BEAT_MS):
        world.beat()
        if world.requests[-1].task_offsets is not None:
            reports.append(world.now_ms)
    assert reports == [OFFSETS_MS, 2 * OFFSETS_MS]
    last = next(request for request in reversed(world.requests) if request.task_offsets is not None)
    assert last.task_offsets == [TaskOffset("1", 2, 30)]
    assert last.task_end_offsets == [TaskOffset("1", 2, 50)]


def test_lag_up_to_which_warmup_tasks_have_caught_up_is_that_of_the_broker(world: World):
    """Version 0 of the heartbeat does not name it."""
    assert world.host.acceptable_lag is None
    world.answer = evolve(world.answer, acceptable_recovery_lag=7)
    world.beat()
    assert world.host.acceptable_lag == 7


def test_endpoints_are_asked_for_since_the_last_ones(world: World):
    places = [EndpointPartitions(Endpoint("h", 1), [TopicPartition("t0", 0)])]
    world.answer = evolve(world.answer, endpoint_information_epoch=4, partitions_by_user_endpoint=places)
    world.beat()
    assert world.host.places == places
    world.beat()
    assert world.requests[-1].endpoint_information_epoch == 4


def test_request_for_a_shutdown_goes_with_every_heartbeat(world: World):
    world.host.wants_shutdown = True
    world.beat()
    assert world.requests[-1].shutdown_application


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_leaving_gives_the_tasks_up_first(instance: str | None, epoch: int):
    world = World(instance=instance)
    world.turn()
    world.beat(active={"0": [0]})
    revoked, left = world.member.leave()
    assert revoked == Revoke(partitions("t0", 0))
    assert isinstance(left, Send)
    assert isinstance(left.request, StreamsGroupHeartbeat)
    assert (left.request.member_epoch, left.request.group_instance_id) == (epoch, instance)


def test_topology_that_differs_from_that_of_the_group_is_an_error_with_the_reason_of_the_broker(world: World):
    world.answer = evolve(
        world.answer, error=ErrorCode.INVALID_REQUEST, message="Topology updates are not supported yet."
    )
    world.now_ms += BEAT_MS
    world.turn()
    failed = world.done[-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, BrokerError)
    assert "Topology updates are not supported yet.; all members of a group need the same topology" in str(failed.error)


def test_group_of_another_kind_is_an_error(world: World):
    other = World()
    other.answer = evolve(other.answer, error=ErrorCode.GROUP_ID_NOT_FOUND, message="Group g is not a streams group.")
    other.turn()
    (failed,) = other.done
    assert isinstance(failed, Failed)
    assert "the group has members with another protocol: stop them all" in str(failed.error)
    world.answer = evolve(world.answer, error=ErrorCode.GROUP_ID_NOT_FOUND)
    world.beat()
    world.beat()
    assert world.member.state is MemberState.STABLE, "the group was deleted, and is created again"
