"""Requests and responses of streams groups: the groups of stream processing applications (KIP-1071).

The coordinator knows the topology of the application and assigns tasks, not partitions.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Annotated, ClassVar, Final, NamedTuple, TypeAlias

from attrs import field, frozen

from streams.core.blocks.records import TopicPartition
from streams.protocol.admin_messages import NO_OPERATIONS
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import RequestFor, Response
from streams.protocol.schema import (
    INT8,
    STRING,
    ErrorText,
    Field,
    Int8,
    Int16,
    Int32,
    Int64,
    Struct,
    UInt16,
    Unsent,
    api,
    array,
    struct,
    wire,
)

#: Tasks: the partitions by sub-topology ID.
TaskIds: TypeAlias = Annotated[Mapping[str, Sequence[Int32]], wire(key="subtopology_id", value="partitions")]
Pairs: TypeAlias = Annotated[Mapping[str, str], wire(key="key", value="value")]

# The description of a topology (KIP-1331), which no message here has.
_NODE: Final = (
    Field("name", STRING),
    Field("node_type", INT8),
    array("source_topics", STRING),
    Field("sink_topic", STRING, nullable=0, default=None),
    array("stores", STRING),
    array("successors", STRING),
)
_DESCRIPTION: Final = Struct(
    (
        array("subtopologies", Field("subtopology_id", STRING), array("nodes", *_NODE)),
        array("global_stores", struct("source", *_NODE), struct("processor", *_NODE)),
    )
)


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
    port: UInt16


class TaskOffset(NamedTuple):
    """The sum of the changelog offsets of one task."""

    subtopology_id: str
    partition: Int32
    offset: Int64


@frozen
class TopicInfo:
    """An internal topic; ``partitions`` is 0 if the count follows from other topics, as it does for changelogs.

    A ``replication_factor`` of 0 is the broker's default.
    """

    name: str
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    configs: Annotated[Pairs, wire("topic_configs")] = field(factory=dict)


@frozen
class CopartitionGroup:
    """Sources that must have the same partition count, as indexes into the sequences of their sub-topology."""

    source_topics: Sequence[Int16] = ()
    source_topic_regex: Sequence[Int16] = ()
    repartition_source_topics: Sequence[Int16] = ()


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

    epoch: Int32 = 0
    subtopologies: Sequence[GroupSubtopology] = ()


@api(88, (0, 1), flexible=0)
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
    member_epoch: Int32
    endpoint_information_epoch: Int32 = -1
    group_instance_id: Annotated[str | None, wire("instance_id")] = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: GroupTopology | None = None
    active_tasks: TaskIds | None = None
    standby_tasks: TaskIds | None = None
    warmup_tasks: TaskIds | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: Pairs | None = None
    task_offsets: Sequence[TaskOffset] | None = None
    task_end_offsets: Sequence[TaskOffset] | None = None
    shutdown_application: bool = False
    client_id: Annotated[str, Unsent("client.client_id")] = ""
    client_host: Annotated[str, Unsent("client.host")] = ""


@frozen
class GroupStatus:
    """A status of the group with its explanation; ``code`` is a ``StreamsStatus``, or one of a newer broker."""

    code: Annotated[Int8, wire("status_code")]
    detail: Annotated[str, wire("status_detail")]


@frozen
class EndpointPartitions:
    """The source partitions of the tasks of one member; several members can have the same endpoint."""

    user_endpoint: Endpoint
    active_partitions: Annotated[Sequence[TopicPartition], wire(topic="topic")] = ()
    standby_partitions: Annotated[Sequence[TopicPartition], wire(topic="topic")] = ()


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
    message: ErrorText = ""
    member_id: str = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    # The lag in version 0, which no client reads any more.
    acceptable_recovery_lag_legacy: ClassVar[Annotated[Int32, wire(until=0, is_ignorable=True)]] = 0
    task_offset_interval_ms: Int32 = 0
    acceptable_recovery_lag: Annotated[Int64, wire(since=1, is_ignorable=True)] = -1
    status: Sequence[GroupStatus] | None = None
    active_tasks: TaskIds | None = None
    standby_tasks: TaskIds | None = None
    warmup_tasks: TaskIds | None = None
    # Members here do not describe their topology to brokers (KIP-1331).
    topology_description_required: ClassVar[Annotated[bool, wire(since=1, is_ignorable=True)]] = False
    endpoint_information_epoch: Int32 = -1
    partitions_by_user_endpoint: Sequence[EndpointPartitions] | None = None


class DescriptionStatus(IntEnum):
    """Whether a broker has the nodes of a topology (KIP-1331), with Kafka's numbers; the embedded broker has none."""

    NOT_REQUESTED = 0
    NOT_STORED = 1


@api(89, (0, 1), flexible=0)
@frozen
class StreamsGroupDescribe(RequestFor["StreamsGroupDescribeResponse"]):
    """Request the state, topology and members of one streams group."""

    group_id: str
    include_authorized_operations: bool = False
    include_topology_description: Annotated[bool, wire(since=1, is_ignorable=True)] = False


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

    epoch: Int32
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
    member_epoch: Int32
    group_instance_id: Annotated[str | None, wire("instance_id", default=None)]
    rack_id: Annotated[str | None, wire(default=None)]
    client_id: str
    client_host: str
    topology_epoch: Int32
    process_id: str
    user_endpoint: Endpoint | None = None
    client_tags: Pairs = field(factory=dict)
    task_offsets: Sequence[TaskOffset] = ()
    task_end_offsets: Sequence[TaskOffset] = ()
    assignment: StreamsAssignment = field(factory=StreamsAssignment)
    target_assignment: StreamsAssignment = field(factory=StreamsAssignment)
    is_classic: ClassVar[bool] = False


@frozen
class StreamsGroupDescribeResponse(Response):
    """The description of a streams group.

    ``state`` is Empty, NotReady, Assigning, Reconciling, Stable or Dead.  ``topology_description_status`` is a
    ``DescriptionStatus`` or another number of Kafka.
    """

    error: ErrorCode
    message: ErrorText = ""
    group_id: ClassVar[str]
    state: Annotated[str, wire("group_state")] = "Dead"
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: DescribedTopology | None = None
    members: Sequence[DescribedStreamsMember] = ()
    authorized_operations: ClassVar[Int32] = NO_OPERATIONS
    topology_description: ClassVar[Annotated[None, _DESCRIPTION, wire(since=1, nullable=1, is_ignorable=True)]] = None
    topology_description_status: Annotated[Int8, wire(since=1, is_ignorable=True)] = DescriptionStatus.NOT_REQUESTED
    assignor_name: Annotated[str | None, wire(since=1, is_ignorable=True)] = None
