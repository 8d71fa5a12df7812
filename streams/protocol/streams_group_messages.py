"""Requests and responses of streams groups: the groups of stream processing applications (KIP-1071).

The coordinator knows the topology of the application and assigns tasks, not partitions.
This module imports only ``core``, ``protocol.error_codes`` and ``protocol.request``.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from attrs import field, frozen

from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import RequestFor, Response

#: Tasks: the partitions by sub-topology ID.
TaskIds: TypeAlias = Mapping[str, Sequence[int]]


class StreamsStatus(IntEnum):
    """What keeps a streams group, or one of its members, from processing, with Kafka's numbers."""

    #: The topology of the member is not the newest of its group.
    STALE_TOPOLOGY = 0
    #: A source topic does not exist, or nothing matches the regular expression of one.
    MISSING_SOURCE_TOPICS = 1
    #: Topics that must be co-partitioned have different partition counts, or a changelog has a wrong one.
    INCORRECTLY_PARTITIONED_TOPICS = 2
    #: Internal topics do not exist yet; the coordinator creates them.
    MISSING_INTERNAL_TOPICS = 3
    #: A member asks all members to shut down.
    SHUTDOWN_APPLICATION = 4
    #: The assignment waits for more members.
    ASSIGNMENT_DELAYED = 5
    #: The member lacks a client tag by which standby tasks are spread (from version 1 on).
    MISSING_CLIENT_TAGS = 6


class Endpoint(NamedTuple):
    """The address of a member for interactive queries."""

    host: str
    port: int


class TaskOffset(NamedTuple):
    """The sum of the changelog offsets of one task."""

    subtopology_id: str
    partition: int
    offset: int


@frozen
class TopicInfo:
    """An internal topic; ``partitions`` is 0 if the count follows from other topics, as it does for changelogs.

    A ``replication_factor`` of 0 is the broker's default.
    """

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: Mapping[str, str] = field(factory=dict)


@frozen
class CopartitionGroup:
    """Sources that must have the same partition count, as indexes into the sequences of their sub-topology."""

    source_topics: Sequence[int] = ()
    source_topic_regex: Sequence[int] = ()
    repartition_source_topics: Sequence[int] = ()


@frozen
class GroupSubtopology:
    """A sub-topology as a streams group knows it: its topics."""

    subtopology_id: str
    source_topics: Sequence[str] = ()
    source_topic_regex: Sequence[str] = ()
    state_changelog_topics: Sequence[TopicInfo] = ()
    repartition_sink_topics: Sequence[str] = ()
    repartition_source_topics: Sequence[TopicInfo] = ()
    copartition_groups: Sequence[CopartitionGroup] = ()


@frozen
class GroupTopology:
    """The topology of a streams group; a higher epoch replaces a lower one."""

    epoch: int = 0
    subtopologies: Sequence[GroupSubtopology] = ()


@frozen
class StreamsGroupHeartbeat(RequestFor["StreamsGroupHeartbeatResponse"]):
    """Join a streams group, stay in it, report changes, or leave it.

    - ``member_epoch``: the current epoch, or ``JOIN_EPOCH``, ``LEAVE_EPOCH`` or ``LEAVE_STATIC_EPOCH`` of
      ``group_messages``.
    - ``endpoint_information_epoch``: the epoch of the last endpoint information that the member has received.
    - ``rebalance_timeout_ms``: how long the member may take to revoke tasks; -1 if it is unchanged.
    - ``topology``: sent when the member joins, otherwise None.
    - ``active_tasks``, ``standby_tasks``, ``warmup_tasks``: the tasks that the member owns; None if unchanged.
    - ``process_id``, ``user_endpoint``, ``client_tags``: of the instance to which the member belongs; None if
      unchanged.
    - ``task_offsets``, ``task_end_offsets``: how far the changelogs of tasks are restored; None if unchanged.
    - ``shutdown_application``: asks all members of the group to shut down.
    - ``client_host``: the address of the client as seen by the broker, or "" for a client in the broker process.
    """

    group_id: str
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int = -1
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: GroupTopology | None = None
    active_tasks: TaskIds | None = None
    standby_tasks: TaskIds | None = None
    warmup_tasks: TaskIds | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] | None = None
    task_offsets: Sequence[TaskOffset] | None = None
    task_end_offsets: Sequence[TaskOffset] | None = None
    shutdown_application: bool = False
    client_id: str = ""
    client_host: str = ""


@frozen
class GroupStatus:
    """A status of the group with its explanation; ``code`` is a ``StreamsStatus``, or one of a newer broker."""

    code: int
    detail: str


@frozen
class EndpointPartitions:
    """The source partitions of the tasks of one member; several members can have the same endpoint."""

    user_endpoint: Endpoint
    active_partitions: Sequence[TopicPartition] = ()
    standby_partitions: Sequence[TopicPartition] = ()


@frozen
class StreamsGroupHeartbeatResponse(Response):
    """The epoch of the member, the status of the group, and what has changed of the assignment.

    - ``active_tasks``, ``standby_tasks``, ``warmup_tasks``: the tasks of the member; None if they are unchanged.
    - ``task_offset_interval_ms``: how often the member reports its changelog offsets.
    - ``acceptable_recovery_lag``: the lag of a task that is caught up; -1 if the broker does not say (version 0).
    - ``partitions_by_user_endpoint``: the source partitions of all members that have an endpoint; None if they are
      unchanged since ``endpoint_information_epoch`` of the request.
    """

    error: ErrorCode
    message: str = ""
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = -1
    status: Sequence[GroupStatus] | None = None
    active_tasks: TaskIds | None = None
    standby_tasks: TaskIds | None = None
    warmup_tasks: TaskIds | None = None
    endpoint_information_epoch: int = -1
    partitions_by_user_endpoint: Sequence[EndpointPartitions] | None = None


class DescriptionStatus(IntEnum):
    """Whether a broker has the nodes of a topology (KIP-1331), with Kafka's numbers; the embedded broker has none."""

    NOT_REQUESTED = 0
    NOT_STORED = 1


@frozen
class StreamsGroupDescribe(RequestFor["StreamsGroupDescribeResponse"]):
    """Request the state, topology and members of one streams group."""

    group_id: str
    include_authorized_operations: bool = False
    include_topology_description: bool = False


@frozen
class DescribedSubtopology:
    """A sub-topology whose regular expressions are resolved and whose internal topics have partition counts."""

    subtopology_id: str
    source_topics: Sequence[str]
    repartition_sink_topics: Sequence[str]
    state_changelog_topics: Sequence[TopicInfo]
    repartition_source_topics: Sequence[TopicInfo]


@frozen
class DescribedTopology:
    """The topology of a group; ``subtopologies`` is None while its topics are missing or wrongly partitioned."""

    epoch: int
    subtopologies: Sequence[DescribedSubtopology] | None = None


@frozen
class StreamsAssignment:
    """The tasks of a member, by role."""

    active_tasks: TaskIds = field(factory=dict)
    standby_tasks: TaskIds = field(factory=dict)
    warmup_tasks: TaskIds = field(factory=dict)


@frozen
class DescribedStreamsMember:
    """A member of a streams group, with what it is assigned now and what it will be assigned."""

    member_id: str
    member_epoch: int
    group_instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(factory=dict)
    task_offsets: Sequence[TaskOffset] = ()
    task_end_offsets: Sequence[TaskOffset] = ()
    assignment: StreamsAssignment = field(factory=StreamsAssignment)
    target_assignment: StreamsAssignment = field(factory=StreamsAssignment)


@frozen
class StreamsGroupDescribeResponse(Response):
    """The description of a streams group.

    ``state`` is Empty, NotReady, Assigning, Reconciling, Stable or Dead.  ``topology_description_status`` is a
    ``DescriptionStatus`` or another number of Kafka.
    """

    error: ErrorCode
    message: str = ""
    state: str = "Dead"
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology: DescribedTopology | None = None
    members: Sequence[DescribedStreamsMember] = ()
    topology_description_status: int = DescriptionStatus.NOT_REQUESTED
    assignor_name: str | None = None
