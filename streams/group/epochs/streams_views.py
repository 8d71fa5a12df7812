"""What others are told of a streams group: its description, and where the partitions of its tasks are.

This module performs no I/O.
"""

from collections.abc import Set

from streams.core.blocks.records import TopicPartition
from streams.group.epochs.task_assignor import STICKY
from streams.group.state.internal_topics import sources_of
from streams.group.state.states import Group, absence
from streams.group.state.streams_group import (
    NOTHING,
    RoleTasks,
    StreamsGroup,
    StreamsGroupMember,
    StreamsTask,
    TaskSet,
    ids_of,
)
from streams.group.state.topic_directory import TopicDirectory
from streams.protocol.error_codes import ErrorCode
from streams.protocol.streams_group_messages import (
    DescribedStreamsMember,
    DescribedSubtopology,
    DescribedTopology,
    DescriptionStatus,
    EndpointPartitions,
    StreamsAssignment,
    StreamsGroupDescribe,
    StreamsGroupDescribeResponse,
    TaskOffset,
)


def describe_streams(shell: Group | None, request: StreamsGroupDescribe) -> StreamsGroupDescribeResponse:
    """Return the description of a streams group."""
    if shell is None or shell.streams is None:
        return StreamsGroupDescribeResponse(ErrorCode.GROUP_ID_NOT_FOUND, absence(shell, request.group_id, "streams"))
    group = shell.streams
    return StreamsGroupDescribeResponse(
        ErrorCode.NONE,
        "",
        group.state,
        group.epoch,
        group.assignment_epoch,
        _topology(group),
        tuple(_member(group, member) for member in group.members.values()),
        DescriptionStatus.NOT_STORED if request.include_topology_description else DescriptionStatus.NOT_REQUESTED,
        STICKY,
    )


def _topology(group: StreamsGroup) -> DescribedTopology | None:
    """Return the topology with partition counts, or as the application gave it while topics are missing."""
    topology = group.topology
    configured = group.configured
    if topology is None:
        return None
    if configured is not None and configured.is_ready:
        return DescribedTopology(topology.epoch, configured.subtopologies)
    return DescribedTopology(
        topology.epoch,
        tuple(
            DescribedSubtopology(
                one.subtopology_id,
                tuple(sorted(one.source_topics)),
                tuple(sorted(one.repartition_sink_topics)),
                tuple(sorted(one.state_changelog_topics, key=lambda info: info.name)),
                tuple(sorted(one.repartition_source_topics, key=lambda info: info.name)),
            )
            for one in sorted(topology.subtopologies, key=lambda one: one.subtopology_id)
        ),
    )


def _member(group: StreamsGroup, member: StreamsGroupMember) -> DescribedStreamsMember:
    return DescribedStreamsMember(
        member.member_id,
        member.epoch,
        member.group_instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topology_epoch,
        member.process_id,
        member.user_endpoint,
        member.client_tags,
        _offsets(group.offsets.get(member.member_id, {})),
        _offsets(group.end_offsets.get(member.member_id, {})),
        _assignment(member.assigned),
        _assignment(group.target.get(member.member_id, NOTHING)),
    )


def _assignment(tasks: RoleTasks) -> StreamsAssignment:
    return StreamsAssignment(ids_of(tasks.active), ids_of(tasks.standby))


def _offsets(offsets: dict[StreamsTask, int]) -> tuple[TaskOffset, ...]:
    return tuple(TaskOffset(*task, offset) for task, offset in sorted(offsets.items()))


def endpoints(group: StreamsGroup, topics: TopicDirectory) -> tuple[EndpointPartitions, ...]:
    """Return the source partitions of the tasks of all members that have an endpoint."""

    def exists(partition: TopicPartition) -> bool:
        topic = topics.topic(partition.topic)
        return topic is not None and partition.partition < topic[1]

    return tuple(
        EndpointPartitions(
            member.user_endpoint,
            tuple(filter(exists, partitions_of(group, member.assigned.active))),
            tuple(filter(exists, partitions_of(group, member.assigned.standby))),
        )
        for member in group.members.values()
        if member.user_endpoint is not None
    )


def partitions_of(group: StreamsGroup, tasks: TaskSet) -> tuple[TopicPartition, ...]:
    """Return the partitions that tasks read; of a topic with fewer partitions than there are tasks also more."""
    topology = group.topology
    if topology is None:
        return ()
    sources = {one.subtopology_id: sources_of(one) for one in topology.subtopologies}
    return tuple(
        TopicPartition(name, task.partition) for task in sorted(tasks) for name in sources.get(task.subtopology_id, ())
    )


def source_topics(group: StreamsGroup) -> Set[str]:
    """Return the topics that the topology of a group reads."""
    topology = group.topology
    return set() if topology is None else {name for one in topology.subtopologies for name in sources_of(one)}


def task_of_partition(group: StreamsGroup, partition: TopicPartition) -> StreamsTask | None:
    """Return the task that reads a partition, or None if the topology does not read its topic."""
    if group.topology is None:
        return None
    for one in group.topology.subtopologies:
        if partition.topic in sources_of(one):
            return StreamsTask(one.subtopology_id, partition.partition)
    return None
