"""What the coordinator checks of a heartbeat of a streams group, with Kafka's messages.

This module performs no I/O.
"""

from streams.core.errors import BrokerError
from streams.group.state.internal_topics import ConfiguredTopology
from streams.group.state.streams_group import RoleTasks, StreamsGroup, tasks_of
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import JOIN_EPOCH, LEAVE_STATIC_EPOCH
from streams.protocol.streams_group_messages import GroupTopology, StreamsGroupHeartbeat


def check_request(request: StreamsGroupHeartbeat) -> None:
    """Check a heartbeat by itself.

    Raises:
        BrokerError: a field is missing or invalid (``INVALID_REQUEST``), or the topology is
            (``STREAMS_INVALID_TOPOLOGY``).
    """
    epoch = request.member_epoch
    topology = request.topology
    is_joining = epoch == JOIN_EPOCH
    owned = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    rules = (
        (not request.member_id, "MemberId can't be empty."),
        (not request.group_id, "GroupId can't be empty."),
        (request.group_instance_id == "", "InstanceId can't be empty."),
        (request.rack_id == "", "RackId can't be empty."),
        (epoch < LEAVE_STATIC_EPOCH, f"MemberEpoch is {epoch}, but must be greater than or equal to -2."),
        (epoch == LEAVE_STATIC_EPOCH and request.group_instance_id is None, "InstanceId can't be null."),
        (is_joining and request.rebalance_timeout_ms < 0, "RebalanceTimeoutMs must be provided in first request."),
        (is_joining and request.active_tasks, "ActiveTasks must be empty when (re-)joining."),
        (is_joining and request.standby_tasks, "StandbyTasks must be empty when (re-)joining."),
        (is_joining and request.warmup_tasks, "WarmupTasks must be empty when (re-)joining."),
        (is_joining and topology is None, "Topology must be non-null when (re-)joining."),
        (not is_joining and topology is not None, "Topology can only be provided when (re-)joining."),
        (len({ids is None for ids in owned}) > 1, "If one task-type is non-null, all must be non-null."),
    )
    for is_broken, message in rules:
        if is_broken:
            raise BrokerError(message, code=ErrorCode.INVALID_REQUEST)
    if topology is not None:
        _check_topology(topology)


def _check_topology(topology: GroupTopology) -> None:
    if topology.epoch < 0:
        raise BrokerError("Topology epoch must be non-negative.", code=ErrorCode.INVALID_REQUEST)
    names = [one.subtopology_id for one in topology.subtopologies]
    if len(set(names)) < len(names):
        raise _invalid(f"Subtopology ids must be unique: {sorted(names)}.")
    for one in topology.subtopologies:
        if one.source_topic_regex:
            raise BrokerError(
                "Regular expressions for source topics are not supported yet.", code=ErrorCode.INVALID_REQUEST
            )
        for info in one.state_changelog_topics:
            if info.partitions:
                raise _invalid(
                    f"Changelog topic {info.name} must have an undefined partition count, but it is set to "
                    f"{info.partitions}."
                )
        for group in one.copartition_groups:
            sizes = (
                (group.source_topics, len(one.source_topics)),
                (group.repartition_source_topics, len(one.repartition_source_topics)),
            )
            if any(not 0 <= index < size for indexes, size in sizes for index in indexes):
                raise _invalid(f"A copartition group of subtopology {one.subtopology_id} names a topic that is not.")


def _invalid(reason: str) -> BrokerError:
    return BrokerError(reason, code=ErrorCode.STREAMS_INVALID_TOPOLOGY)


def topology_of(group: StreamsGroup, request: StreamsGroupHeartbeat) -> GroupTopology:
    """Return the topology of the group: the first one, or that of the request.

    Raises:
        BrokerError: the topology of the request is another one, in the same or a later epoch.
    """
    ours = group.topology
    theirs = request.topology
    if ours is None:
        # Only a join opens a group without a topology, and a join has one.
        assert theirs is not None
        return theirs
    # A member with an older topology may join: it is told by a status.
    if theirs is not None and theirs.epoch >= ours.epoch and _parts(theirs) != _parts(ours):
        raise BrokerError(
            f"Topology updates are not supported yet: group {request.group_id} has another topology, of epoch "
            f"{ours.epoch}; delete the group, or use another application id.",
            code=ErrorCode.INVALID_REQUEST,
        )
    return ours


def _parts(topology: GroupTopology) -> object:
    return topology.epoch, {one.subtopology_id: one for one in topology.subtopologies}


def check_tasks(request: StreamsGroupHeartbeat, topology: ConfiguredTopology) -> None:
    """Check that the tasks that a member reports exist.

    Raises:
        BrokerError: one does not (``INVALID_REQUEST``).
    """
    if not topology.is_ready:
        return
    for ids in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
        for subtopology_id, numbers in (ids or {}).items():
            count = topology.tasks.get(subtopology_id)
            if count is None:
                raise BrokerError(
                    f"Subtopology {subtopology_id} does not exist in the topology.", code=ErrorCode.INVALID_REQUEST
                )
            for number in numbers:
                if not 0 <= number < count:
                    raise BrokerError(
                        f"Task {number} for subtopology {subtopology_id} is invalid. Number of tasks for this "
                        f"subtopology: {count}",
                        code=ErrorCode.INVALID_REQUEST,
                    )


def owned_of(request: StreamsGroupHeartbeat) -> RoleTasks | None:
    """Return the tasks that a member reports, or None if it reports none."""
    if request.active_tasks is None or request.standby_tasks is None:
        return None
    return RoleTasks(tasks_of(request.active_tasks), tasks_of(request.standby_tasks))
