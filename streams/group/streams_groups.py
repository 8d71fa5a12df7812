"""The coordinator side of streams groups, whose members are assigned tasks of a topology by the coordinator (KIP-1071).

This is a part of ``coordinator``, like ``consumer_groups``: a state machine without I/O.  The first member brings the
topology; the coordinator looks at its topics, lets the broker create the internal ones that are missing, and assigns
tasks when all topics are there.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

from attrs import define, evolve

from streams.core.blocks.records import TopicPartition
from streams.core.errors import BrokerError
from streams.group.effects import CreateInternalTopics, Persist
from streams.group.group_configs import GroupConfigs
from streams.group.internal_topics import ConfiguredTopology, configured, hash_of, required_topics
from streams.group.registry import Groups
from streams.group.states import Group, check_instance
from streams.group.streams_checks import (
    check_epoch,
    check_request,
    check_tasks,
    owned_of,
    topology_of,
)
from streams.group.streams_group import (
    NOTHING,
    RoleTasks,
    StreamsGroup,
    StreamsGroupMember,
    StreamsMemberState,
    StreamsTask,
    ids_of,
    reconciled,
)
from streams.group.streams_log import (
    current_record,
    group_record,
    keys_of_member,
    member_record,
    target_member_record,
    target_record,
    topology_record,
)
from streams.group.streams_views import endpoints, task_of_partition
from streams.group.task_assignor import TaskHolder, assign_tasks
from streams.group.timers import GroupTimer, TimerKind, Timers
from streams.group.topic_directory import TopicDirectory
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    OffsetCommit,
)
from streams.protocol.messages import TxnOffsetCommit
from streams.protocol.streams_group_messages import (
    GroupStatus,
    GroupTopology,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    StreamsStatus,
    TaskOffset,
)

_LOGGER = logging.getLogger(__name__)
_STANDBY_REPLICAS: Final = "num.standby.replicas"


@define(eq=False)
class StreamsGroups:
    """The streams groups of one broker; they share group IDs and committed offsets with all other groups."""

    configs: GroupConfigs
    groups: Groups
    timers: Timers[GroupTimer]
    topics: TopicDirectory

    # --- heartbeats -------------------------------------------------------------------

    def heartbeat(self, request: StreamsGroupHeartbeat, now_ms: int) -> StreamsGroupHeartbeatResponse:
        """Handle a heartbeat: join, leave, or move the member towards its target assignment."""
        try:
            check_request(request)
            if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                return self._leave(request)
            return self._stay(request, now_ms)
        except BrokerError as error:
            return StreamsGroupHeartbeatResponse(ErrorCode(error.code), str(error), request.member_id)

    def _stay(self, request: StreamsGroupHeartbeat, now_ms: int) -> StreamsGroupHeartbeatResponse:
        # Whatever may be wrong with a request is found before anything changes.
        group = self._opened(request)
        known, replaced = _known(group, request)
        topology = topology_of(group, request)
        found, topics_hash = self._looked_up(group, topology)
        check_tasks(request, found)
        shell = self._adopted(request.group_id, group)
        if group.topology is None:
            group.topology = topology
            self._persist(topology_record(shell.group_id, topology))
        if replaced is not None:
            self._replace(shell.group_id, group, replaced, known)
        is_first = not group.members
        member, is_changed = self._described(shell.group_id, group, known, request)
        if self._update(shell.group_id, group, found, topics_hash) or is_changed:
            self._advance(shell.group_id, group)
        _note_offsets(group, request)
        delay_ms = self._delay_ms(shell.group_id, group, now_ms, is_first=is_first)
        if not delay_ms and group.epoch > group.assignment_epoch:
            self._assign(shell.group_id, group, now_ms)
        owned = owned_of(request)
        after = self._reconcile(shell.group_id, group, member, owned)
        self.set_timers(shell.group_id, member, after, now_ms)
        if request.shutdown_application:
            group.shutdown_member_id = group.shutdown_member_id or request.member_id
        if found.missing:
            self.groups.effects.append(CreateInternalTopics(shell.group_id, found.missing))
        return self._answered(shell.group_id, group, known, after, request, delay_ms)

    def _opened(self, request: StreamsGroupHeartbeat) -> StreamsGroup:
        """Return the streams group of a request; for a join it may be a new one, which is not registered yet."""
        group_id = request.group_id
        shell = self.groups.get(group_id)
        if shell is not None and shell.streams is not None:
            return shell.streams
        is_free = shell is None or (shell.consumer is None and not shell.members)
        if request.member_epoch == JOIN_EPOCH and is_free:
            return StreamsGroup()
        if shell is None:
            raise BrokerError(f"Streams group {group_id} not found.", code=ErrorCode.GROUP_ID_NOT_FOUND)
        raise BrokerError(f"Group {group_id} is not a streams group.", code=ErrorCode.GROUP_ID_NOT_FOUND)

    def _adopted(self, group_id: str, group: StreamsGroup) -> Group:
        """Return the registered group; a classic group without members becomes the streams group."""
        shell = self.groups.made(group_id)
        if shell.streams is None:
            self.groups.become_modern(shell, group)
        return shell

    def _looked_up(self, group: StreamsGroup, topology: GroupTopology) -> tuple[ConfiguredTopology, int]:
        """Return what the topics make of the topology, and their hash; topics are looked at only when they change."""
        if group.configured is not None and group.topics_version == self.topics.version:
            return group.configured, group.topics_hash
        names = required_topics(topology)
        existing = {name: topic for name in names if (topic := self.topics.found(name)) is not None}
        return configured(topology, {name: count for name, (_, count) in existing.items()}), hash_of(existing)

    def _replace(self, group_id: str, group: StreamsGroup, old: StreamsGroupMember, member: StreamsGroupMember) -> None:
        """Let a static member take the place of its predecessor, with its target assignment."""
        target = group.target.get(old.member_id)
        self._drop(group_id, group, old)
        group.put(member)
        self._persist(member_record(group_id, member))
        self._persist(current_record(group_id, member))
        if target is not None:
            group.target[member.member_id] = target
            self._persist(target_member_record(group_id, member.member_id, target))

    def _described(
        self, group_id: str, group: StreamsGroup, known: StreamsGroupMember, request: StreamsGroupHeartbeat
    ) -> tuple[StreamsGroupMember, bool]:
        """Return a member with what a request says about it, and whether that requires a new assignment."""
        is_joining = request.member_epoch == JOIN_EPOCH
        has_timeout = request.rebalance_timeout_ms >= 0
        keeps_endpoint = request.user_endpoint is None and not is_joining
        member = evolve(
            known,
            group_instance_id=request.group_instance_id or known.group_instance_id,
            rack_id=known.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else known.rebalance_timeout_ms,
            topology_epoch=known.topology_epoch if request.topology is None else request.topology.epoch,
            process_id=known.process_id if request.process_id is None else request.process_id,
            user_endpoint=known.user_endpoint if keeps_endpoint else request.user_endpoint,
            client_tags=known.client_tags if request.client_tags is None else dict(request.client_tags),
        )
        is_new = member.member_id not in group.members
        if not is_new and member == known:
            return member, False
        group.put(member)
        self._persist(member_record(group_id, member))
        if member.user_endpoint != known.user_endpoint:
            group.endpoint_epoch += 1
        # A static member may come back under another name or address and keep the assignment of the group.
        return member, is_new or member.group_instance_id is None or _relevant(member) != _relevant(known)

    def _update(self, group_id: str, group: StreamsGroup, found: ConfiguredTopology, topics_hash: int) -> bool:
        """Note the state of the topics and of the settings; return whether any of it requires a new assignment."""
        assert group.topology is not None
        validated = group.topology.epoch if found.is_ready else -1
        settings = {_STANDBY_REPLICAS: str(self.configs.of(group_id).streams_num_standby_replicas)}
        before = group.topics_hash, group.validated_epoch, group.assignment_settings
        group.configured = found
        group.topics_version = self.topics.version
        group.topics_hash = topics_hash
        group.validated_epoch = validated
        group.assignment_settings = settings
        if found.problem is None or found.problem.code != StreamsStatus.MISSING_INTERNAL_TOPICS:
            group.creation_failures = {}
        return before != (topics_hash, validated, settings)

    def _delay_ms(self, group_id: str, group: StreamsGroup, now_ms: int, *, is_first: bool) -> int:
        """Return for how many milliseconds a group that has changed waits for its assignment, or 0.

        The first assignment waits for more members, from the first one on; the next ones keep a distance.
        """
        timer = GroupTimer(TimerKind.FIRST_ASSIGNMENT, group_id)
        first_ms = self.configs.of(group_id).streams_initial_rebalance_delay_ms
        if is_first and first_ms and self.timers.deadline_ms(timer) is None:
            self.timers.set(timer, now_ms + first_ms)
        if (deadline_ms := self.timers.deadline_ms(timer)) is not None:
            return max(1, deadline_ms - now_ms)
        return self.configs.assignment_delay_ms("streams", group_id, group, now_ms)

    def _reconcile(
        self, group_id: str, group: StreamsGroup, member: StreamsGroupMember, owned: RoleTasks | None
    ) -> StreamsGroupMember:
        after = reconciled(group, member, group.target.get(member.member_id, NOTHING), owned)
        if after != member:
            group.put(after)
            self._persist(current_record(group_id, after))
            if after.assigned != member.assigned and after.user_endpoint is not None:
                group.endpoint_epoch += 1
        return after

    def _answered(
        self,
        group_id: str,
        group: StreamsGroup,
        known: StreamsGroupMember,
        member: StreamsGroupMember,
        request: StreamsGroupHeartbeat,
        delay_ms: int,
    ) -> StreamsGroupHeartbeatResponse:
        owned = owned_of(request)
        # A member that reports other tasks than its own has lost a response, or has not acted on it yet.
        is_told = request.member_epoch == JOIN_EPOCH or member.assigned != known.assigned
        is_told = is_told or (owned is not None and owned != member.assigned)
        is_informed = group.endpoint_epoch == request.endpoint_information_epoch
        config = self.configs.of(group_id)
        return StreamsGroupHeartbeatResponse(
            ErrorCode.NONE,
            "",
            member.member_id,
            member.epoch,
            self.configs.heartbeat_interval_ms("streams", group_id, delay_ms),
            config.streams_task_offset_interval_ms,
            config.streams_acceptable_recovery_lag,
            tuple(_statuses(group, member, is_delayed=delay_ms > 0 and member.member_id not in group.target)),
            ids_of(member.assigned.active) if is_told else None,
            ids_of(member.assigned.standby) if is_told else None,
            {} if is_told else None,
            endpoint_information_epoch=group.endpoint_epoch,
            partitions_by_user_endpoint=None if is_informed else endpoints(group, self.topics),
        )

    # --- assignment -------------------------------------------------------------------

    def _assign(self, group_id: str, group: StreamsGroup, now_ms: int) -> None:
        """Compute the target assignment of the group epoch; nobody has tasks while topics are missing."""
        found = group.configured
        given: Mapping[str, RoleTasks] = {}
        if found is not None and found.is_ready:
            replicas = int(group.assignment_settings[_STANDBY_REPLICAS])
            given = assign_tasks(
                found.tasks,
                found.stateful,
                {
                    member_id: TaskHolder(
                        member.process_id,
                        member.assigned.active,
                        member.assigned.standby,
                        group.offsets.get(member_id, {}),
                    )
                    for member_id, member in group.members.items()
                },
                replicas,
            )
            copies = sum(len(tasks.standby) for tasks in given.values())
            wanted = replicas * sum(found.tasks[subtopology_id] for subtopology_id in found.stateful)
            if copies < wanted:
                _LOGGER.warning(
                    "group %s has %d of %d standby tasks: more processes are needed for the others",
                    group_id,
                    copies,
                    wanted,
                )
        for member_id in group.members:
            target = given.get(member_id, NOTHING)
            if target != group.target.get(member_id):
                group.target[member_id] = target
                self._persist(target_member_record(group_id, member_id, target))
        group.assignment_epoch = group.epoch
        group.assigned_ms = now_ms
        self._persist(target_record(group_id, group))

    def _advance(self, group_id: str, group: StreamsGroup) -> None:
        group.epoch += 1
        self._persist(group_record(group_id, group))

    # --- the end of members -----------------------------------------------------------

    def _leave(self, request: StreamsGroupHeartbeat) -> StreamsGroupHeartbeatResponse:
        group = self._opened(request)
        member = _registered(group, request)
        if member is None:
            raise _unknown(request)
        check_instance(member.member_id, request.member_id, request.group_instance_id)
        shell = self.groups.made(request.group_id)
        if request.shutdown_application:
            group.shutdown_member_id = group.shutdown_member_id or request.member_id
        if request.member_epoch == LEAVE_EPOCH:
            self.remove(shell, member)
        else:
            away = evolve(
                member, epoch=LEAVE_STATIC_EPOCH, revoking=NOTHING, since=dict.fromkeys(member.assigned.active, 0)
            )
            group.put(away)
            self._persist(current_record(shell.group_id, away))
        return StreamsGroupHeartbeatResponse(ErrorCode.NONE, "", member.member_id, request.member_epoch, status=())

    def remove(self, shell: Group, member: StreamsGroupMember) -> None:
        """Remove a member that has left, expired, or been fenced; the others are assigned its tasks."""
        group = shell.streams
        assert group is not None
        self._drop(shell.group_id, group, member)
        if member.user_endpoint is not None:
            group.endpoint_epoch += 1
        self._advance(shell.group_id, group)
        if not group.members:
            self.timers.cancel(GroupTimer(TimerKind.FIRST_ASSIGNMENT, shell.group_id))
            group.assignment_epoch = group.epoch
            group.assigned_ms = None
            self._persist(target_record(shell.group_id, group))

    def _drop(self, group_id: str, group: StreamsGroup, member: StreamsGroupMember) -> None:
        for kind in (TimerKind.CONSUMER_SESSION, TimerKind.RECONCILIATION):
            self.timers.cancel(GroupTimer(kind, group_id, member.member_id))
        group.remove(member)
        self.groups.effects += (Persist(key, None) for key in keys_of_member(group_id, member.member_id))

    def expire(self, shell: Group, timer: GroupTimer, now_ms: int) -> None:
        """Remove a member whose session has expired, or which did not revoke tasks in time; or assign at last."""
        group = shell.streams
        assert group is not None
        if timer.kind is TimerKind.FIRST_ASSIGNMENT:
            if group.members and group.epoch > group.assignment_epoch:
                self._assign(shell.group_id, group, now_ms)
        elif (member := group.members.get(timer.member_id)) is not None:
            self.remove(shell, member)

    def set_timers(self, group_id: str, before: StreamsGroupMember, member: StreamsGroupMember, now_ms: int) -> None:
        """Start the session of a member anew, and the time for what it has to give up since ``before``."""
        session = GroupTimer(TimerKind.CONSUMER_SESSION, group_id, member.member_id)
        self.timers.set(session, now_ms + self.configs.of(group_id).streams_session_timeout_ms)
        revocation = GroupTimer(TimerKind.RECONCILIATION, group_id, member.member_id)
        if member.state is not StreamsMemberState.UNREVOKED_TASKS:
            self.timers.cancel(revocation)
        elif member.revoking != before.revoking or self.timers.deadline_ms(revocation) is None:
            self.timers.set(revocation, now_ms + member.rebalance_timeout_ms)

    # --- offsets and topics -----------------------------------------------------------

    @staticmethod
    def check_commit(group: StreamsGroup, request: OffsetCommit | TxnOffsetCommit) -> ErrorCode:
        """Return the error code for the member ID and epoch with which offsets are committed, or NONE.

        A member may commit in an earlier epoch for tasks that it has had since then.  Without a member ID, offsets may
        be committed while the group has no members.
        """
        is_in_transaction = isinstance(request, TxnOffsetCommit)
        epoch = request.generation_id
        if epoch < 0 and not group.members:
            return ErrorCode.NONE
        if is_in_transaction and epoch < 0 and not request.member_id:
            # Transactions are fenced by the producer epoch.
            return ErrorCode.NONE
        member = group.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_current = epoch == member.epoch or (
            epoch < member.epoch and all(_has_had(group, member, partition, epoch) for partition in request.offsets)
        )
        if is_current:
            return ErrorCode.NONE
        # Transactions do not know member epochs.
        return ErrorCode.ILLEGAL_GENERATION if is_in_transaction else ErrorCode.STALE_MEMBER_EPOCH

    def remove_owners(self, shell: Group, partitions: Set[TopicPartition]) -> None:
        """Remove the members of a streams group that have an active task with any of ``partitions``."""
        group = shell.streams
        if group is None:
            return
        tasks = {task_of_partition(group, partition) for partition in partitions}
        for member in list(group.members.values()):
            if not tasks.isdisjoint(member.assigned.active | member.revoking.active):
                self.remove(shell, member)

    def note_creation(self, group_id: str, failures: Mapping[str, str]) -> None:
        """Note which internal topics could not be created, and why: members learn it with their next heartbeat."""
        shell = self.groups.get(group_id)
        if shell is not None and shell.streams is not None:
            shell.streams.creation_failures = failures

    def _persist(self, record: tuple[bytes, bytes]) -> None:
        self.groups.effects.append(Persist(*record))


def _registered(group: StreamsGroup, request: StreamsGroupHeartbeat) -> StreamsGroupMember | None:
    """Return the member with the instance ID of a request, or else with its member ID; None if there is none."""
    instance = request.group_instance_id
    return group.members.get(request.member_id) if instance is None else group.static_member(instance)


def _known(group: StreamsGroup, request: StreamsGroupHeartbeat) -> tuple[StreamsGroupMember, StreamsGroupMember | None]:
    """Return the member of a request, and the static member whose place it takes, or None.

    A member that joins again keeps what it is assigned.

    Raises:
        BrokerError: the member is unknown, fenced by another one, or has another epoch.
    """
    member = _registered(group, request)
    is_joining = request.member_epoch == JOIN_EPOCH
    if member is None:
        if not is_joining:
            raise _unknown(request)
        return StreamsGroupMember(request.member_id, request.group_instance_id), None
    if not is_joining:
        check_instance(member.member_id, request.member_id, request.group_instance_id)
        check_epoch(member, request)
        return member, None
    if member.member_id == request.member_id and not member.is_away:
        return member, None
    if not member.is_away:
        raise BrokerError(
            f"Static member {request.member_id} with instance id {member.group_instance_id} cannot join the group "
            f"because the instance id is owned by {member.member_id} member.",
            code=ErrorCode.UNRELEASED_INSTANCE_ID,
        )
    return evolve(member, member_id=request.member_id, epoch=0, previous_epoch=0), member


def _unknown(request: StreamsGroupHeartbeat) -> BrokerError:
    instance = request.group_instance_id
    if instance is not None:
        return BrokerError(f"Instance id {instance} is unknown.", code=ErrorCode.UNKNOWN_MEMBER_ID)
    return BrokerError(
        f"Member {request.member_id} is not a member of group {request.group_id}.", code=ErrorCode.UNKNOWN_MEMBER_ID
    )


def _relevant(member: StreamsGroupMember) -> tuple[object, ...]:
    """Return what the assignment depends on."""
    return member.topology_epoch, member.rack_id, member.client_tags, member.process_id


def _note_offsets(group: StreamsGroup, request: StreamsGroupHeartbeat) -> None:
    if request.task_offsets is not None:
        group.offsets[request.member_id] = _by_task(request.task_offsets)
    if request.task_end_offsets is not None:
        group.end_offsets[request.member_id] = _by_task(request.task_end_offsets)


def _by_task(offsets: Sequence[TaskOffset]) -> dict[StreamsTask, int]:
    return {StreamsTask(found.subtopology_id, found.partition): found.offset for found in offsets}


def _statuses(group: StreamsGroup, member: StreamsGroupMember, *, is_delayed: bool) -> Iterator[GroupStatus]:
    """Return what keeps the member or the group from processing, with Kafka's words."""
    topology = group.topology
    found = group.configured
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
    if found is not None and found.problem is not None:
        failures = "".join(f"; creation of {name} failed: {why}" for name, why in group.creation_failures.items())
        yield evolve(found.problem, detail=found.problem.detail + failures)
    if group.shutdown_member_id is not None:
        yield GroupStatus(
            StreamsStatus.SHUTDOWN_APPLICATION,
            f"Streams group member {group.shutdown_member_id} encountered a fatal error and requested a shutdown for "
            "the entire application.",
        )


def _has_had(group: StreamsGroup, member: StreamsGroupMember, partition: TopicPartition, epoch: int) -> bool:
    """Whether a member has the task of a partition, or is revoking it, and has had it since this epoch."""
    task = task_of_partition(group, partition)
    return task is not None and task in member.since and member.since[task] <= epoch
