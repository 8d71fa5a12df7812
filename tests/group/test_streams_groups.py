"""Streams groups of KIP-1071: what the coordinator answers, and that no active task ever has two owners."""

from collections import Counter
from functools import partial

import pytest
from attrs import define, evolve, field
from hypothesis import given
from hypothesis import strategies as st

from streams.core.blocks.records import TopicPartition
from streams.core.errors import ConfigError
from streams.group import CoordinatorConfig, decode_assignment
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    DescribeGroup,
    JoinGroup,
    ListGroups,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetFetch,
    ResetOffsets,
)
from streams.protocol.messages import TxnOffsetCommit
from streams.protocol.streams_group_messages import (
    CopartitionGroup,
    Endpoint,
    EndpointPartitions,
    GroupSubtopology,
    GroupTopology,
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    StreamsStatus,
    TaskOffset,
    TopicInfo,
)
from tests.group.desk import INTERVALS_MS, Desk

SESSION_MS = 45_000
#: What each sub-topology reads.
SOURCES = {"0": "t", "1": "g-words"}
REVOKE_MS = 10_000
#: Words are counted: a stateless sub-topology writes the repartition topic, a stateful one reads it.
TOPOLOGY = GroupTopology(
    0,
    (
        GroupSubtopology("0", ("t",), repartition_sink_topics=("g-words",)),
        GroupSubtopology(
            "1",
            state_changelog_topics=(TopicInfo("g-counts", configs={"cleanup.policy": "compact"}),),
            repartition_source_topics=(TopicInfo("g-words", configs={"cleanup.policy": "delete"}),),
        ),
    ),
)


def streams_desk(interval_ms: int = 0) -> Desk:
    """A coordinator of a streams group whose input has two partitions."""
    desk = Desk(StreamsGroupDescribe, CoordinatorConfig(streams_assignment_interval_ms=interval_ms))
    desk.topics.put("t", 2)
    return desk


@define
class Client:
    """A member as its thread sees it: it revokes at once, and confirms it with its next heartbeat."""

    desk: Desk
    member_id: str
    process: str = ""
    instance: str | None = None
    endpoint: Endpoint | None = None
    topology: GroupTopology = TOPOLOGY
    epoch: int = JOIN_EPOCH
    active: set[tuple[str, int]] = field(factory=set)
    standby: set[tuple[str, int]] = field(factory=set)
    endpoints: tuple[EndpointPartitions, ...] = ()
    endpoint_epoch: int = -1
    reported: tuple[set[tuple[str, int]], set[tuple[str, int]]] | None = None
    last: StreamsGroupHeartbeatResponse | None = None

    def beat(self, *, is_lost: bool = False, **more) -> ErrorCode:
        """Send a heartbeat; with ``is_lost``, the response does not arrive."""
        is_joining = self.epoch == JOIN_EPOCH
        is_full = is_joining or self.reported is None
        must_report = is_full or self.reported != (self.active, self.standby)
        request = StreamsGroupHeartbeat(
            "g",
            self.member_id,
            self.epoch,
            self.endpoint_epoch,
            self.instance,
            rebalance_timeout_ms=REVOKE_MS if is_full else -1,
            topology=self.topology if is_joining else None,
            active_tasks=by_id(self.active) if must_report else None,
            standby_tasks=by_id(self.standby) if must_report else None,
            warmup_tasks={} if must_report else None,
            process_id=(self.process or self.member_id) if is_full else None,
            user_endpoint=self.endpoint if is_full else None,
            client_tags={} if is_full else None,
            **more,
        )
        response = self.desk.ask(request)
        if is_lost:
            self.reported = None
            return ErrorCode.NONE
        self.last = response
        if response.error is ErrorCode.NONE:
            self.reported = set(self.active), set(self.standby)
            self.epoch = response.member_epoch
            if response.active_tasks is not None:
                self.active, self.standby = tasks(response.active_tasks), tasks(response.standby_tasks)
            self.endpoint_epoch = response.endpoint_information_epoch
            if response.partitions_by_user_endpoint is not None:
                self.endpoints = response.partitions_by_user_endpoint
        else:
            self.active, self.standby, self.epoch, self.reported = set(), set(), JOIN_EPOCH, None
        return response.error

    def leave(self, epoch: int = LEAVE_EPOCH, **more) -> StreamsGroupHeartbeatResponse:
        """Leave the group."""
        self.active, self.standby, self.reported, self.epoch = set(), set(), None, JOIN_EPOCH
        return self.desk.ask(StreamsGroupHeartbeat("g", self.member_id, epoch, -1, self.instance, **more))

    @property
    def share(self) -> set[tuple[str, int]]:
        """The active tasks of the member."""
        return self.active

    def hold(self, share: set[tuple[str, int]]) -> None:
        """Have tasks that it may have to give up, and say nothing of it."""
        self.active, self.reported = set(share), (set(share), set())

    def assignment(self) -> object:
        """What the last response assigns, None if it is as before."""
        lists = (self.last.active_tasks, self.last.standby_tasks, self.last.warmup_tasks)
        return None if lists == (None, None, None) else lists

    def statuses(self) -> list[int]:
        """The status codes of the last response."""
        return [status.code for status in self.last.status]


def by_id(owned) -> dict[str, list[int]]:
    """Group tasks by sub-topology."""
    found: dict[str, list[int]] = {}
    for name, number in sorted(owned):
        found.setdefault(name, []).append(number)
    return found


def tasks(ids) -> set[tuple[str, int]]:
    """Flatten tasks by sub-topology."""
    return {(name, number) for name, numbers in ids.items() for number in numbers}


ALL = {("0", 0), ("0", 1), ("1", 0), ("1", 1)}


@pytest.fixture
def desk() -> Desk:
    return streams_desk()


def settle(*clients: Client) -> None:
    """Heartbeat until nothing changes any more."""
    for _ in range(6):
        for client in clients:
            assert client.beat() is ErrorCode.NONE, client.last


def targets(desk: Desk) -> dict[str, set[tuple[str, int]]]:
    return {member.member_id: tasks(member.target_assignment.active_tasks) for member in desk.described().members}


def test_a_task_that_is_on_its_way_to_a_member_stays_so_when_another_joins(desk: Desk):
    """By load alone, the first task that is free would go to the member that comes first by its name."""
    one, two, three = (Client(desk, name) for name in ("one", "two", "a third"))
    settle(one)
    two.beat()
    one.beat()
    assert targets(desk) == {"one": one.active, "two": {("0", 1), ("1", 1)}}
    assert two.active == set()

    three.beat()

    assert targets(desk) == {"one": one.active, "two": {("0", 1)}, "a third": {("1", 1)}}


# --- topics -----------------------------------------------------------------------------


def test_members_are_told_how_often_to_report_offsets_and_which_lag_is_acceptable(desk: Desk):
    desk.configure(streams_task_offset_interval_ms="7", streams_acceptable_recovery_lag="0")
    client = Client(desk, "a")
    client.beat()
    assert (client.last.task_offset_interval_ms, client.last.acceptable_recovery_lag) == (7, 0)


def test_internal_topics_are_created_before_tasks_are_assigned(desk: Desk):
    one = Client(desk, "one")
    one.beat()
    assert (one.epoch, one.active, one.statuses()) == (2, set(), [StreamsStatus.MISSING_INTERNAL_TOPICS])
    assert one.last.status[0].detail == "Internal topics are missing: g-counts, g-words"
    assert desk.topics.by_name["g-counts"][1] == desk.topics.by_name["g-words"][1] == 2
    assert desk.described().state == "NotReady"
    one.beat()
    assert (one.epoch, one.active, one.statuses()) == (3, ALL, [])
    found = desk.described()
    assert (found.state, found.group_epoch, found.assignment_epoch) == ("Stable", 3, 3)
    assert [info.partitions for info in found.topology.subtopologies[1].state_changelog_topics] == [2]


def test_group_is_not_ready_while_a_source_topic_is_missing(desk: Desk):
    one = Client(desk, "one")
    settle(one)
    del desk.topics.by_name["t"]
    desk.topics.version += 1
    settle(one)
    assert (one.active, one.statuses()) == (set(), [StreamsStatus.MISSING_SOURCE_TOPICS])
    assert one.last.status[0].detail == "Source topics t are missing."
    assert desk.described().state == "NotReady"
    desk.topics.put("t", 2)
    settle(one)
    assert (one.active, one.statuses()) == (ALL, [])


def test_members_that_are_told_of_missing_sources_keep_their_interval_while_the_assignment_waits(desk: Desk):
    """Kafka Streams ends two intervals later, so that one of the milliseconds that are left would end it at once."""
    desk.configure(streams_initial_rebalance_delay_ms="3000")
    del desk.topics.by_name["t"]
    one, two = Client(desk, "one"), Client(desk, "two")
    one.beat()
    desk.advance(2_999)
    two.beat()
    assert [client.last.heartbeat_interval_ms for client in (one, two)] == [5_000, 5_000]
    assert StreamsStatus.MISSING_SOURCE_TOPICS in two.statuses()
    desk.topics.put("t", 2)
    two.beat()
    assert (two.last.heartbeat_interval_ms, two.statuses()[0]) == (1, StreamsStatus.ASSIGNMENT_DELAYED)


def test_internal_topic_that_cannot_be_created_is_named_with_the_reason(desk: Desk):
    desk.failure = "no room"
    one = Client(desk, "one")
    one.beat()
    one.beat()
    assert one.last.status[0].detail.endswith(
        "; creation of g-counts failed: no room; creation of g-words failed: no room"
    )
    desk.failure = ""
    settle(one)
    assert (one.active, one.statuses()) == (ALL, [])


def test_existing_internal_topic_with_another_count_is_named(desk: Desk):
    desk.topics.put("g-counts", 3)
    one = Client(desk, "one")
    settle(one)
    assert one.statuses() == [StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS]
    assert one.last.status[0].detail == (
        "Existing topic g-counts has different number of partitions: expected 2, found 3"
    )


def joined(*copartitioned: int, fixed: int = 0) -> GroupTopology:
    """A join of topics t and u, and of a repartition topic of v."""
    return GroupTopology(
        0,
        (
            GroupSubtopology("0", ("v",), repartition_sink_topics=("r",)),
            GroupSubtopology(
                "1",
                ("t", "u"),
                repartition_source_topics=(TopicInfo("r", fixed),),
                copartition_groups=(CopartitionGroup(copartitioned, (), (0,)),),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("topology", "detail"),
    [
        (joined(0, 1), "Following topics do not have the same number of partitions: [{t=2, u=5}]"),
        (
            joined(1, fixed=3),
            "Number of partitions [3] of repartition topic [r] doesn't match number of partitions [5] of the source "
            "topic.",
        ),
    ],
)
def test_co_partitioned_topics_with_other_counts_are_named(desk: Desk, topology: GroupTopology, detail: str):
    desk.topics.put("u", 5)
    desk.topics.put("v", 7)
    one = Client(desk, "one", topology=topology)
    settle(one)
    assert (one.statuses(), one.last.status[0].detail) == ([StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS], detail)


def test_repartition_topic_gets_the_count_of_the_topics_with_which_it_is_joined(desk: Desk):
    desk.topics.put("u", 5)
    desk.topics.put("v", 7)
    settle(Client(desk, "one", topology=joined(1)))
    assert desk.topics.by_name["r"][1] == 5


def test_topics_that_get_partitions_get_tasks(desk: Desk):
    one = Client(desk, "one", topology=GroupTopology(0, (GroupSubtopology("0", ("t",)),)))
    settle(one)
    desk.topics.put("t", 4)
    settle(one)
    assert one.active == {("0", number) for number in range(4)}


# --- topology ---------------------------------------------------------------------------


def test_member_with_an_older_topology_is_told_and_one_with_another_is_rejected(desk: Desk):
    one = Client(desk, "one", topology=evolve(TOPOLOGY, epoch=1))
    settle(one)
    two = Client(desk, "two")
    settle(one, two)
    assert two.statuses() == [StreamsStatus.STALE_TOPOLOGY]
    assert {member.topology_epoch for member in desk.described().members} == {0, 1}
    three = Client(desk, "three", topology=evolve(TOPOLOGY, epoch=2))
    assert three.beat() is ErrorCode.INVALID_REQUEST
    assert "Topology updates are not supported yet" in three.last.message


def topology_with(**changes) -> GroupTopology:
    """A topology of one sub-topology."""
    return GroupTopology(0, (GroupSubtopology("0", **({"source_topics": ("t",)} | changes)),))


@pytest.mark.parametrize(
    ("topology", "error", "message"),
    [
        (topology_with(source_topics=()), ErrorCode.STREAMS_INVALID_TOPOLOGY, "No source topics found"),
        (
            topology_with(state_changelog_topics=(TopicInfo("c", 2),)),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Changelog topic c must have an undefined partition count, but it is set to 2.",
        ),
        (
            topology_with(repartition_source_topics=(TopicInfo("r"),)),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "r is never used as a sink topic",
        ),
        (
            topology_with(
                source_topics=(),
                repartition_source_topics=(TopicInfo("r"),),
                repartition_sink_topics=("r",),
            ),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "There may be loops",
        ),
        (
            topology_with(copartition_groups=(CopartitionGroup((1,)),)),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "names a topic that is not",
        ),
        (topology_with(source_topic_regex=("a",)), ErrorCode.INVALID_REQUEST, "Regular expressions"),
        (evolve(TOPOLOGY, epoch=-1), ErrorCode.INVALID_REQUEST, "must be non-negative"),
        (GroupTopology(0, TOPOLOGY.subtopologies[:1] * 2), ErrorCode.STREAMS_INVALID_TOPOLOGY, "must be unique"),
    ],
)
def test_invalid_topology_is_rejected_and_leaves_nothing(desk: Desk, topology, error, message):
    one = Client(desk, "one", topology=topology)
    assert one.beat() is error
    assert message in one.last.message
    assert (desk.log, desk.ask(ListGroups()).groups) == ([], ())


# --- assignment -------------------------------------------------------------------------


def test_task_moves_only_after_its_owner_has_revoked_it(desk: Desk):
    one, two = Client(desk, "one"), Client(desk, "two")
    settle(one)
    two.beat()
    assert (two.epoch, two.active, desk.described().state) == (4, set(), "Reconciling")
    one.beat()
    kept = set(one.active)
    assert (one.epoch, len(kept)) == (3, 2)
    two.beat()
    assert two.active == set()
    one.beat()
    assert one.epoch == 4
    two.beat()
    assert (one.active, two.active) == (kept, ALL - kept)
    assert desk.described().state == "Stable"


def test_static_member_that_leaves_while_it_revokes_keeps_its_place(desk: Desk):
    """Only its session removes it, not the time in which it had to revoke."""
    client = Client(desk, "a", instance="i")
    settle(client)
    Client(desk, "b").beat()
    client.beat()

    client.leave(LEAVE_STATIC_EPOCH)
    desk.advance(REVOKE_MS + 1)

    assert "a" in {member.member_id for member in desk.described().members}


def test_restart_alone_changes_nothing(desk: Desk):
    one, two = Client(desk, "one"), Client(desk, "two", endpoint=Endpoint("host", 80))
    settle(one, two)
    before = desk.described()
    desk.restart()
    assert one.beat() is two.beat() is ErrorCode.NONE
    assert desk.described() == before


def test_tasks_stay_where_they_are_when_a_member_leaves(desk: Desk):
    clients = [Client(desk, f"m{n}") for n in range(3)]
    settle(*clients)
    before = [set(client.active) for client in clients]
    clients[2].leave()
    settle(*clients[:2])
    assert all(client.active >= owned for client, owned in zip(clients[:2], before[:2], strict=True))
    assert clients[0].active | clients[1].active == ALL


def test_standby_tasks_are_on_another_process_and_become_active_without_moving(desk: Desk):
    desk.configure(streams_num_standby_replicas="1")
    one, two = Client(desk, "one"), Client(desk, "two")
    settle(one, two)
    stateful = {task for task in ALL if task[0] == "1"}
    assert one.active | two.active == ALL
    assert one.standby | two.standby == stateful
    assert one.standby == stateful & two.active
    copies = set(two.standby)
    one.leave()
    settle(two)
    assert (two.active, two.standby) == (ALL, set())
    assert copies <= two.active


def test_processes_of_equal_load_are_given_tasks_in_turn():
    """Before, the first by name got them all, and a member of another had none."""
    desk = streams_desk(interval_ms=1_000)
    first = Client(desk, "first", "b")
    settle(first)
    desk.advance(1_000)
    settle(first)
    clients = first, Client(desk, "second", "b"), Client(desk, "third", "a")
    for client in clients[1:]:
        client.beat()
    desk.advance(1_000)
    settle(*clients)
    assert [len(client.active) for client in clients] == [2, 1, 1]


def test_members_of_one_process_hold_one_copy_of_a_task(desk: Desk):
    desk.configure(streams_num_standby_replicas="1")
    clients = [Client(desk, f"m{n}", process=f"p{n % 2}") for n in range(4)]
    settle(*clients)
    for process in ("p0", "p1"):
        held = Counter(
            task for client in clients if client.process == process for task in (*client.active, *client.standby)
        )
        assert max(held.values()) == 1
    assert sum(len(client.standby) for client in clients) == 2


def test_change_of_the_replicas_is_assigned_with_the_next_heartbeat(desk: Desk):
    one, two = Client(desk, "one"), Client(desk, "two")
    settle(one, two)
    desk.configure(streams_num_standby_replicas="1")
    settle(one, two)
    assert len(one.standby | two.standby) == 2
    desk.restart()
    settle(one, two)
    desk.configure()
    settle(one, two)
    assert one.standby | two.standby == set()


def test_member_that_reports_the_state_of_a_task_gets_it(desk: Desk):
    one = Client(desk, "one")
    settle(one)
    one.leave()
    fresh, known = Client(desk, "a"), Client(desk, "b")
    desk.configure(streams_initial_rebalance_delay_ms="1000")
    fresh.beat()
    known.beat(task_offsets=(TaskOffset("1", 0, 50),), task_end_offsets=(TaskOffset("1", 0, 60),))
    desk.advance(1_000)
    settle(fresh, known)
    assert ("1", 0) in known.active
    (member,) = (found for found in desk.described().members if found.member_id == "b")
    assert (member.task_offsets, member.task_end_offsets) == ((TaskOffset("1", 0, 50),), (TaskOffset("1", 0, 60),))


def test_first_assignment_waits_for_more_members(desk: Desk):
    desk.configure(streams_initial_rebalance_delay_ms="3000")
    one, two = Client(desk, "one"), Client(desk, "two")
    one.beat()
    desk.advance(2_999)
    two.beat()
    one.beat()
    assert (one.active, two.active) == (set(), set())
    assert StreamsStatus.ASSIGNMENT_DELAYED in two.statuses()
    desk.advance(1)
    one.beat()
    two.beat()
    assert (len(one.active), len(two.active)) == (2, 2)
    assert desk.described().group_epoch == 3


def test_members_that_come_within_the_interval_are_assigned_together():
    desk = streams_desk(1_000)
    clients = [Client(desk, f"m{number}") for number in range(4)]
    clients[0].beat()
    # The internal topics exist now.
    desk.advance(1_000)
    for client in clients:
        client.beat()
        desk.advance(100)
    assert [len(client.active) for client in clients] == [4, 0, 0, 0]
    assert [client.last.heartbeat_interval_ms for client in clients] == [5_000, 900, 800, 700]
    assert StreamsStatus.ASSIGNMENT_DELAYED in clients[1].statuses()
    assert StreamsStatus.ASSIGNMENT_DELAYED not in clients[0].statuses()
    desk.advance(600)
    settle(*clients)
    assert [len(client.active) for client in clients] == [1, 1, 1, 1]


# --- members ----------------------------------------------------------------------------


def test_group_has_its_own_session_and_heartbeats(desk: Desk):
    desk.configure(streams_session_timeout_ms="50000", streams_heartbeat_interval_ms="6000")
    one = Client(desk, "one")
    settle(one)
    assert one.last.heartbeat_interval_ms == 6_000
    desk.advance(50_000)
    assert desk.described().state == "Empty"
    with pytest.raises(ConfigError, match=r"group\.streams\.min\.session\.timeout\.ms=45000: expected at most"):
        desk.configure(streams_session_timeout_ms="900")
    with pytest.raises(ConfigError, match="groups have no setting nonsense"):
        desk.configure(nonsense="1")
    with pytest.raises(ConfigError, match="at least 0"):
        desk.configure(streams_num_standby_replicas="-1")


@pytest.mark.parametrize("is_last_word", [False, True])
def test_request_to_shut_down_reaches_all_members_until_the_group_is_empty(desk: Desk, is_last_word: bool):
    one, two = Client(desk, "one"), Client(desk, "two")
    settle(one, two)
    if is_last_word:
        one.leave(shutdown_application=True)
        two.beat()
        settle(one)
    else:
        one.beat(shutdown_application=True)
    two.beat()
    assert two.statuses() == [StreamsStatus.SHUTDOWN_APPLICATION]
    assert "member one encountered a fatal error" in two.last.status[0].detail
    one.leave()
    two.leave()
    settle(one)
    assert one.statuses() == []


def test_members_learn_where_the_partitions_of_all_tasks_are(desk: Desk):
    desk.configure(streams_num_standby_replicas="1")
    one = Client(desk, "one", endpoint=Endpoint("a", 1))
    two = Client(desk, "two", endpoint=Endpoint("b", 2))
    three = Client(desk, "three")
    settle(one, two, three)
    by_endpoint = {found.user_endpoint.host: found for found in three.endpoints}
    for client, host in ((one, "a"), (two, "b")):
        partitions = [TopicPartition(SOURCES[name], number) for name, number in sorted(client.active)]
        assert sorted(by_endpoint[host].active_partitions) == sorted(partitions)
        copies = [TopicPartition(SOURCES[name], number) for name, number in sorted(client.standby)]
        assert sorted(by_endpoint[host].standby_partitions) == sorted(copies)
    three.beat()
    assert three.last.partitions_by_user_endpoint is None
    two.leave()
    three.beat()
    assert [found.user_endpoint.host for found in three.endpoints] == ["a"]


def request(**changes):
    """A joining heartbeat with changes."""
    fields = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "topology": TOPOLOGY,
        "active_tasks": {},
        "standby_tasks": {},
        "warmup_tasks": {},
        "process_id": "p",
    }
    return StreamsGroupHeartbeat(**(fields | changes))


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (request(group_id=""), ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        (request(member_id=""), ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        (request(group_instance_id=""), ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
        (request(rack_id=""), ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        (request(member_epoch=-3), ErrorCode.INVALID_REQUEST, "MemberEpoch is -3"),
        (request(member_epoch=-2, topology=None), ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
        (request(rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided"),
        (request(active_tasks={"0": [0]}), ErrorCode.INVALID_REQUEST, "ActiveTasks must be empty"),
        (request(standby_tasks={"0": [0]}), ErrorCode.INVALID_REQUEST, "StandbyTasks must be empty"),
        (request(warmup_tasks={"0": [0]}), ErrorCode.INVALID_REQUEST, "WarmupTasks must be empty"),
        (request(warmup_tasks=None), ErrorCode.INVALID_REQUEST, "If one task-type is non-null"),
        (request(topology=None), ErrorCode.INVALID_REQUEST, "Topology must be non-null"),
        (request(member_epoch=1), ErrorCode.INVALID_REQUEST, "Topology can only be provided"),
        (request(member_epoch=1, topology=None), ErrorCode.GROUP_ID_NOT_FOUND, "Streams group g not found."),
        (request(member_epoch=-1, topology=None), ErrorCode.GROUP_ID_NOT_FOUND, "Streams group g not found."),
    ],
)
def test_invalid_heartbeats_are_rejected_and_leave_nothing(desk: Desk, request_, error, message):
    response = desk.ask(request_)
    assert (response.error, message in response.message) == (error, True)
    assert (desk.log, desk.ask(ListGroups()).groups) == ([], ())


def test_tasks_that_do_not_exist_are_rejected(desk: Desk):
    one = Client(desk, "one")
    settle(one)
    one.active = {("7", 0)}
    assert one.beat() is ErrorCode.INVALID_REQUEST
    assert one.last.message == "Subtopology 7 does not exist in the topology."
    settle(one)
    one.active = {("0", 2)}
    assert one.beat() is ErrorCode.INVALID_REQUEST
    assert "Number of tasks for this subtopology: 2" in one.last.message


# --- offsets and administration ---------------------------------------------------------


def committed(desk: Desk, member_id: str, epoch: int, topic: str = "t", partition: int = 0) -> ErrorCode:
    """The error code of a commit of one offset."""
    offsets = {TopicPartition(topic, partition): OffsetAndMetadata(5)}
    (code,) = desk.ask(OffsetCommit("g", offsets, epoch, member_id)).errors.values()
    return code


def test_a_task_that_comes_back_after_its_revocation_takes_no_offsets_of_before(desk: Desk):
    one, two = Client(desk, "one"), Client(desk, "two")
    settle(one)
    first = one.epoch
    two.beat()
    one.beat()
    kept = set(one.active)
    two.leave()
    one.beat()
    assert (len(kept), one.active) == (2, ALL)
    codes = {task: committed(desk, "one", first, SOURCES[task[0]], task[1]) for task in ALL}
    assert codes == {task: ErrorCode.NONE if task in kept else ErrorCode.STALE_MEMBER_EPOCH for task in ALL}


def test_offsets_are_committed_in_the_epochs_in_which_the_member_has_had_the_task(desk: Desk):
    one, two = Client(desk, "one"), Client(desk, "two")
    settle(one)
    outcome = partial(committed, desk)
    assert outcome("one", one.epoch) is ErrorCode.NONE
    assert outcome("one", one.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert outcome("one", one.epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert outcome("two", one.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert outcome("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    first = one.epoch
    settle(one, two)
    (kept, *_), (moved, *_) = sorted(one.active), sorted(two.active)
    assert outcome("one", first, SOURCES[kept[0]], kept[1]) is ErrorCode.NONE
    assert outcome("one", first, SOURCES[moved[0]], moved[1]) is ErrorCode.STALE_MEMBER_EPOCH
    assert outcome("one", first, "other") is ErrorCode.STALE_MEMBER_EPOCH
    fetch = OffsetFetch("g", member_id="one", member_epoch=one.epoch)
    assert desk.ask(fetch).error is ErrorCode.NONE
    assert desk.ask(evolve(fetch, member_epoch=first)).error is ErrorCode.STALE_MEMBER_EPOCH
    in_transaction = TxnOffsetCommit(
        "tx", "g", 1, 0, {TopicPartition("other", 0): OffsetAndMetadata(5)}, generation_id=first, member_id="one"
    )
    assert set(desk.ask(in_transaction).errors.values()) == {ErrorCode.ILLEGAL_GENERATION}
    assert set(desk.ask(evolve(in_transaction, generation_id=-1, member_id="")).errors.values()) == {ErrorCode.NONE}
    one.leave()
    two.leave()
    assert outcome("", -1) is ErrorCode.NONE


def test_groups_are_listed_and_described_by_type(desk: Desk):
    one = Client(desk, "one")
    settle(one)
    assert desk.ask(ListGroups()).groups == (("g", "streams", "Stable", "Streams"),)
    assert desk.ask(ListGroups(types_filter=["consumer"])).groups == ()
    assert len(desk.ask(ListGroups(states_filter=["stable"], types_filter=["streams"])).groups) == 1
    found = desk.ask(DescribeGroup("g"))
    # Java's describeConsumerGroups takes no other protocol type.
    assert (found.state, found.protocol_type) == ("Stable", "consumer")
    read = tuple(TopicPartition(name, number) for name in ("g-words", "t") for number in range(2))
    assert [decode_assignment(member.assignment).partitions for member in found.members] == [read]
    assert desk.ask(StreamsGroupDescribe("h")).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert desk.ask(StreamsGroupDescribe("g", include_topology_description=True)).topology_description_status == 1


def test_group_is_of_one_type_while_it_has_members(desk: Desk):
    one = Client(desk, "one")
    settle(one)
    classic = JoinGroup("g", "", "consumer", (("range", b""),), 10_000, 10_000)
    heartbeat = ConsumerGroupHeartbeat("g", "c", 0, rebalance_timeout_ms=1_000, topics=["t"], owned={})
    assert desk.ask(classic).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.ask(heartbeat).error is ErrorCode.GROUP_ID_NOT_FOUND
    desk.ask(OffsetCommit("g", {TopicPartition("t", 0): OffsetAndMetadata(5)}, one.epoch, "one"))
    one.leave()
    assert desk.ask(heartbeat).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert desk.ask(classic).error is ErrorCode.NONE
    assert one.beat() is ErrorCode.GROUP_ID_NOT_FOUND
    desk.advance(10_000)
    desk.restart()
    settle(one)
    desk.restart()
    assert desk.ask(OffsetFetch("g")).offsets[TopicPartition("t", 0)].offset == 5
    assert desk.ask(ListGroups()).groups[0][3] == "Streams"


def test_group_with_members_is_not_deleted(desk: Desk):
    desk.configure(streams_num_standby_replicas="1")
    one = Client(desk, "one")
    settle(one)
    assert desk.ask(DeleteGroup("g")).error is ErrorCode.NON_EMPTY_GROUP
    one.leave()
    assert desk.described().state == "Empty"
    assert desk.ask(DeleteGroup("g")).error is ErrorCode.NONE
    desk.restart()
    assert desk.ask(ListGroups()).groups == ()
    assert desk.coordinator.configs.own("g") == {"streams.num.standby.replicas": "1"}


def test_reset_of_offsets_removes_the_owner(desk: Desk):
    one, two = Client(desk, "one"), Client(desk, "two")
    settle(one, two)
    owner, other = (one, two) if ("0", 1) in one.active else (two, one)
    desk.ask(OffsetCommit("g", {TopicPartition("t", 1): OffsetAndMetadata(5)}, owner.epoch, owner.member_id))
    desk.ask(ResetOffsets("g", {TopicPartition("t", 1): 0}))
    assert owner.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert other.beat() is ErrorCode.NONE
    _, errors, _ = desk.coordinator.delete_offsets("g", [TopicPartition("t", 1), TopicPartition("x", 0)])
    assert list(errors.values()) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]


CHOICES = st.sampled_from(
    ["beat", "beat", "beat", "lost", "leave", "vanish", "away", "time", "replicas", "restart", "gone"]
)


@given(st.lists(st.tuples(CHOICES, st.integers(0, 4)), max_size=80), INTERVALS_MS)
def test_no_active_task_has_two_owners_and_all_have_one_in_the_end(steps: list[tuple[str, int]], interval_ms: int):
    """Members beat, leave, vanish and return, responses are lost, topics go, the coordinator restarts."""
    desk = streams_desk(interval_ms)
    desk.topics.put("t", 3)
    clients = [Client(desk, f"m{n}", process=f"p{n % 2}") for n in range(3)]
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
                # The process has died: its tasks are free for others only after its session.
                clients[number] = Client(desk, client.member_id + "'", client.process)
            case "away":
                client.leave(LEAVE_EPOCH if client.instance is None else LEAVE_STATIC_EPOCH)
            case "time":
                desk.advance(5_000)
                for other in clients:
                    other.beat()
            case "replicas":
                desk.configure(streams_num_standby_replicas=str(number % 3))
            case "restart":
                desk.restart()
            case "gone":
                desk.topics.by_name.pop("g-counts", None)
                desk.topics.version += 1
        owners = Counter(task for other in clients for task in other.active)
        assert max(owners.values(), default=0) <= 1, owners
        check_processes(clients)
    for _ in range(12):
        desk.advance(5_000)
        for client in clients:
            client.beat()
    for _ in range(6):
        settle(*clients)
        desk.advance(5_000)
    assert desk.described().state == "Stable"
    assert Counter(task for client in clients for task in client.active) == Counter(
        (name, number) for name in "01" for number in range(3)
    )
    replicas = desk.coordinator.configs.of("g").streams_num_standby_replicas
    processes = len({client.process or client.member_id for client in clients})
    assert sum(len(client.standby) for client in clients) == 3 * min(replicas, processes - 1)


def check_processes(clients: list[Client]) -> None:
    """No two members of a process hold the same task: they would share its folder."""
    held = Counter(
        (client.process, task) for client in clients if client.process for task in {*client.active, *client.standby}
    )
    assert max(held.values(), default=0) <= 1, held
