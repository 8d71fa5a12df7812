"""Streams groups, whose members are assigned tasks of a topology by the coordinator (KIP-1071), for ``epoch_groups``.

A state machine without I/O.  The first member brings the topology; the coordinator looks at its topics, lets the broker
create the internal ones that are missing, and assigns tasks when all topics are there.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

from attrs import evolve, frozen

from streams.core.blocks.records import TopicPartition
from streams.core.errors import BrokerError
from streams.group.epochs.streams_checks import check_request, check_tasks, owned_of, topology_of
from streams.group.epochs.streams_log import STREAMS_LOG
from streams.group.epochs.streams_views import describe_streams, endpoints, task_of_partition
from streams.group.epochs.task_assignor import TaskHolder, assign_tasks
from streams.group.state.effects import CreateInternalTopics, Effect
from streams.group.state.group_configs import GroupConfigs
from streams.group.state.internal_topics import ConfiguredTopology, configured, hash_of, required_topics
from streams.group.state.states import Group
from streams.group.state.streams_group import (
    NOTHING,
    RoleTasks,
    StreamsGroup,
    StreamsGroupMember,
    StreamsTask,
    ids_of,
    reconciled,
)
from streams.group.state.topic_directory import TopicDirectory
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import JOIN_EPOCH
from streams.protocol.streams_group_messages import (
    GroupStatus,
    GroupTopology,
    StreamsGroupDescribe,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    StreamsStatus,
    TaskOffset,
)

_LOGGER = logging.getLogger(__name__)
_STANDBY_REPLICAS: Final = "num.standby.replicas"


@frozen
class _Facts:
    """The topology of a group, what the topics make of it, and their hash."""

    topology: GroupTopology
    configured: ConfiguredTopology
    topics_hash: int


@frozen(eq=False)
class StreamsKind:
    """The kind of streams groups: members run a topology, and its tasks are assigned."""

    configs: GroupConfigs
    topics: TopicDirectory
    effects: list[Effect]
    name = "streams"
    title = "Streams group"
    heartbeat = StreamsGroupHeartbeat
    description = StreamsGroupDescribe
    work = "tasks"
    log = STREAMS_LOG
    settles_when_empty = True

    # --- heartbeats -------------------------------------------------------------------

    def describe(self, shell: Group | None, request: StreamsGroupDescribe) -> StreamsGroupDescribeResponse:
        return describe_streams(shell, request)

    def check(self, request: StreamsGroupHeartbeat) -> None:
        """Check a heartbeat by itself, with Kafka's messages."""
        check_request(request)

    def failed(self, request: StreamsGroupHeartbeat, error: BrokerError) -> StreamsGroupHeartbeatResponse:
        return StreamsGroupHeartbeatResponse(ErrorCode(error.code), str(error), request.member_id)

    def left(self, group: StreamsGroup, request: StreamsGroupHeartbeat) -> StreamsGroupHeartbeatResponse:
        _note_shutdown(group, request)
        return StreamsGroupHeartbeatResponse(ErrorCode.NONE, "", request.member_id, request.member_epoch, status=())

    def answered(
        self,
        group_id: str,
        group: StreamsGroup,
        before: StreamsGroupMember,
        member: StreamsGroupMember,
        request: StreamsGroupHeartbeat,
        delay_ms: int,
    ) -> StreamsGroupHeartbeatResponse:
        """Return the response to a member that stays, with the state of the group; create topics that are missing."""
        if group.configured is not None and group.configured.missing:
            self.effects.append(CreateInternalTopics(group_id, group.configured.missing))
        config = self.configs.of(group_id)
        owned = owned_of(request)
        # A member that reports other tasks than its own has lost a response, or has not acted on it yet.
        is_told = request.member_epoch == JOIN_EPOCH or member.assigned != before.assigned
        is_told = is_told or (owned is not None and owned != member.assigned)
        is_informed = group.endpoint_epoch == request.endpoint_information_epoch
        # Members in Java end two intervals after they have heard that source topics are missing: no short ones then.
        problem = None if group.configured is None else group.configured.problem
        lacks_sources = problem is not None and problem.code == StreamsStatus.MISSING_SOURCE_TOPICS
        return StreamsGroupHeartbeatResponse(
            ErrorCode.NONE,
            "",
            member.member_id,
            member.epoch,
            self.configs.heartbeat_interval_ms(self.name, group_id, 0 if lacks_sources else delay_ms),
            config.streams_task_offset_interval_ms,
            config.streams_acceptable_recovery_lag,
            tuple(_statuses(group, member, is_delayed=delay_ms > 0 and member.member_id not in group.target)),
            ids_of(member.assigned.active) if is_told else None,
            ids_of(member.assigned.standby) if is_told else None,
            {} if is_told else None,
            endpoint_information_epoch=group.endpoint_epoch,
            partitions_by_user_endpoint=None if is_informed else endpoints(group, self.topics),
        )

    # --- groups and members -----------------------------------------------------------

    def opened(self, generation_id: int) -> StreamsGroup:
        return StreamsGroup()

    def owned(self, request: StreamsGroupHeartbeat) -> RoleTasks | None:
        """Return the tasks that a member reports, or None if it reports none."""
        return owned_of(request)

    def is_repeated(self, member: StreamsGroupMember, request: StreamsGroupHeartbeat) -> bool:
        owned = owned_of(request)
        return owned is not None and member.assigned.covers(owned) and not request.warmup_tasks

    def rejoined(self, member: StreamsGroupMember, member_id: str) -> StreamsGroupMember:
        """Return a member that joins again; it keeps what it is assigned."""
        if member.member_id == member_id and not member.is_away:
            return member
        return evolve(member, member_id=member_id, epoch=0, previous_epoch=0)

    def examined(self, group: StreamsGroup, request: StreamsGroupHeartbeat) -> _Facts:
        """Look at the topics of the topology, if they have changed, and check the heartbeat against it."""
        topology = topology_of(group, request)
        if group.configured is not None and group.topics_version == self.topics.version:
            facts = _Facts(topology, group.configured, group.topics_hash)
        else:
            topics = ((name, self.topics.topic(name)) for name in required_topics(topology))
            existing = {name: topic for name, topic in topics if topic is not None}
            counts = {name: count for name, (_, count) in existing.items()}
            facts = _Facts(topology, configured(topology, counts), hash_of(existing))
        check_tasks(request, facts.configured)
        return facts

    def described(self, member: StreamsGroupMember, request: StreamsGroupHeartbeat) -> StreamsGroupMember:
        """Return a member with what a heartbeat says about its process."""
        keeps_endpoint = request.user_endpoint is None and request.member_epoch != JOIN_EPOCH
        return evolve(
            member,
            topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
            process_id=member.process_id if request.process_id is None else request.process_id,
            user_endpoint=member.user_endpoint if keeps_endpoint else request.user_endpoint,
            client_tags=member.client_tags if request.client_tags is None else dict(request.client_tags),
        )

    def is_relevant(self, before: StreamsGroupMember, member: StreamsGroupMember) -> bool:
        """Whether the assignment depends on the change.

        A static member may come back under another name or address and keep the assignment of the group.
        """
        return member.group_instance_id is None or _relevant(member) != _relevant(before)

    def note_change(self, group: StreamsGroup, before: StreamsGroupMember, member: StreamsGroupMember | None) -> None:
        """Raise the epoch of the endpoints if one of them, or the tasks behind it, has changed."""
        if member is None:
            is_moved = before.user_endpoint is not None
        else:
            is_moved = member.user_endpoint != before.user_endpoint or (
                member.assigned != before.assigned and member.user_endpoint is not None
            )
        group.endpoint_epoch += is_moved

    # --- assignment -------------------------------------------------------------------

    def refresh(self, group: StreamsGroup, request: StreamsGroupHeartbeat, facts: _Facts, *, is_changed: bool) -> bool:
        """Note the topology, its topics, the settings, and what a member says of the application."""
        if group.topology is None:
            group.topology = facts.topology
            self.effects.append(self.log.of_group(self.log.more[0], request.group_id, group))
        before = group.topics_hash, group.validated_epoch, group.assignment_settings
        group.configured = facts.configured
        group.topics_version = self.topics.version
        group.topics_hash = facts.topics_hash
        group.validated_epoch = group.topology.epoch if facts.configured.is_ready else -1
        replicas = self.configs.of(request.group_id).streams_num_standby_replicas
        group.assignment_settings = {_STANDBY_REPLICAS: str(replicas)}
        problem = facts.configured.problem
        if problem is None or problem.code != StreamsStatus.MISSING_INTERNAL_TOPICS:
            group.creation_failures = {}
        if request.task_offsets is not None:
            group.offsets[request.member_id] = _by_task(request.task_offsets)
        if request.task_end_offsets is not None:
            group.end_offsets[request.member_id] = _by_task(request.task_end_offsets)
        _note_shutdown(group, request)
        return is_changed or before != (group.topics_hash, group.validated_epoch, group.assignment_settings)

    def first_delay_ms(self, group_id: str) -> int:
        return self.configs.of(group_id).streams_initial_rebalance_delay_ms

    def targets(self, group_id: str, group: StreamsGroup) -> Mapping[str, RoleTasks]:
        """Return the tasks of each member; nobody has tasks while topics are missing."""
        topology = group.configured
        if topology is None or not topology.is_ready:
            return dict.fromkeys(group.members, NOTHING)
        replicas = int(group.assignment_settings[_STANDBY_REPLICAS])
        # As in Kafka, what members were to have counts, not what they have so far: a plan under way is not made anew.
        holders = {
            member_id: TaskHolder(member.process_id, planned.active, planned.standby, group.offsets.get(member_id, {}))
            for member_id, member in group.members.items()
            for planned in (group.target.get(member_id, NOTHING),)
        }
        targets = assign_tasks(topology.tasks, topology.stateful, holders, replicas)
        copies = sum(len(tasks.standby) for tasks in targets.values())
        configured_copies = replicas * sum(topology.tasks[subtopology_id] for subtopology_id in topology.stateful)
        if copies < configured_copies:
            _LOGGER.warning(
                "group %s has %d of %d standby tasks: more processes are needed for the others",
                group_id,
                copies,
                configured_copies,
            )
        return {member_id: targets.get(member_id, NOTHING) for member_id in group.members}

    def reconciled(
        self, group: StreamsGroup, member: StreamsGroupMember, owned: RoleTasks | None
    ) -> StreamsGroupMember:
        return reconciled(group, member, group.target.get(member.member_id, NOTHING), owned)

    # --- offsets ----------------------------------------------------------------------

    def owners(self, group: StreamsGroup, partitions: Set[TopicPartition]) -> Sequence[StreamsGroupMember]:
        """Return the members that have an active task with any of ``partitions``."""
        tasks = {task_of_partition(group, partition) for partition in partitions}
        return [
            member
            for member in group.members.values()
            if not tasks.isdisjoint(member.assigned.active | member.revoking.active)
        ]

    def has_had(self, group: StreamsGroup, member: StreamsGroupMember, partition: TopicPartition, epoch: int) -> bool:
        """Whether the member has the task of a partition, or is revoking it, and has had it since this epoch."""
        task = task_of_partition(group, partition)
        return task is not None and task in member.since and member.since[task] <= epoch


def _note_shutdown(group: StreamsGroup, request: StreamsGroupHeartbeat) -> None:
    """Note the first member that asks for the end of the application, be it with its last word."""
    if request.shutdown_application and group.members:
        group.shutdown_member_id = group.shutdown_member_id or request.member_id


def _relevant(member: StreamsGroupMember) -> tuple[object, ...]:
    """Return what the assignment depends on."""
    return member.topology_epoch, member.rack_id, member.client_tags, member.process_id


def _by_task(offsets: Sequence[TaskOffset]) -> dict[StreamsTask, int]:
    return {StreamsTask(row.subtopology_id, row.partition): row.offset for row in offsets}


def _statuses(group: StreamsGroup, member: StreamsGroupMember, *, is_delayed: bool) -> Iterator[GroupStatus]:
    """Return what keeps the member or the group from processing, with Kafka's words."""
    topology = group.topology
    problem = None if group.configured is None else group.configured.problem
    if topology is not None and member.topology_epoch < topology.epoch:
        yield GroupStatus(
            StreamsStatus.STALE_TOPOLOGY,
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
            f"{topology.epoch}.",
        )
    if is_delayed:
        yield GroupStatus(
            StreamsStatus.ASSIGNMENT_DELAYED,
            "Assignment delayed due to the configured initial rebalance delay, or assignment interval.",
        )
    if problem is not None:
        failures = "".join(f"; creation of {name} failed: {why}" for name, why in group.creation_failures.items())
        yield evolve(problem, detail=problem.detail + failures)
    if group.shutdown_member_id is not None:
        yield GroupStatus(
            StreamsStatus.SHUTDOWN_APPLICATION,
            f"Streams group member {group.shutdown_member_id} encountered a fatal error and requested a shutdown for "
            "the entire application.",
        )
