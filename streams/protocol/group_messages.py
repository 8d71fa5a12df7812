"""Group requests and responses: Kafka's classic group protocol and group administration.

``streams_group_messages`` has those of streams groups.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final, TypeAlias

from attrs import field, frozen

from streams.core.blocks.records import TopicPartition
from streams.protocol.admin_messages import NO_OPERATIONS
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import RequestFor, Response
from streams.protocol.schema import ErrorText, Int8, Int32, Int64, Local, Unsent, Uuid, api, wire

ClientId: TypeAlias = Annotated[str, Unsent("client.client_id")]
ClientHost: TypeAlias = Annotated[str, Unsent("client.host")]


@api(11, (2, 9), flexible=6)
@frozen
class JoinGroup(RequestFor["JoinGroupResponse"]):
    """Join or rejoin a group; ``protocols`` has (name, metadata) pairs in order of preference.

    With ``takes_member_id``, a new member first gets a member ID and then joins with it (from version 4 on, KIP-394),
    so that a join that is retried after a lost connection leaves no dead member.  ``client_host`` is the address of
    the client as seen by the broker, or "" for a client in the broker process; members without a host are removed
    when the process of their embedded broker has ended.
    """

    group_id: str
    member_id: str
    protocol_type: str
    protocols: Sequence[tuple[Annotated[str, wire("name")], Annotated[bytes, wire("metadata")]]]
    session_timeout_ms: Annotated[Int32, wire(before="member_id")]
    rebalance_timeout_ms: Annotated[Int32, wire(before="member_id")]
    group_instance_id: Annotated[str | None, wire(since=5, before="protocol_type")] = None
    client_id: ClientId = ""
    takes_member_id: Annotated[bool, Unsent("version >= 4")] = False
    client_host: ClientHost = ""
    reason: ClassVar[Annotated[str | None, wire(since=8, is_ignorable=True)]] = None


@frozen
class JoinGroupMember:
    """A group member and its subscription metadata, as sent to the group leader."""

    member_id: str
    group_instance_id: Annotated[str | None, wire(since=5, default=None, is_ignorable=True)]
    metadata: bytes


@frozen
class JoinGroupResponse(Response):
    """The response to a join; ``members`` is sent only to the group leader.

    ``session_timeout_ms`` is set if the group has its own session timeout (see ``CreateGroup``).  With
    ``skip_assignment``, the leader gets the members and must not assign partitions (KIP-814).
    """

    error: ErrorCode
    generation_id: Int32 = -1
    protocol_name: Annotated[str, wire(nullable=7)] = ""
    leader: str = ""
    member_id: str = ""
    members: Sequence[JoinGroupMember] = ()
    protocol_type: Annotated[
        str, wire(since=7, nullable=7, default=None, is_ignorable=True, before="protocol_name")
    ] = ""
    session_timeout_ms: Local[int | None] = None
    skip_assignment: Annotated[bool, wire(since=9, is_ignorable=True, before="member_id")] = False


@api(14, (0, 5), flexible=4, throttled=1)
@frozen
class SyncGroup(RequestFor["SyncGroupResponse"]):
    """Request the assignment of this member; the request of the group leader has the assignments of all members.

    The protocol type and name, if given, must match the group (KIP-559).  ``rebalance_timeout_ms`` is how long the
    broker may delay the response while the leader assigns partitions.  It is not sent; the client uses it to detect
    a lost connection.
    """

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, wire(since=3)] = None
    assignments: Annotated[Mapping[str, bytes], wire(key="member_id", value="assignment")] = field(factory=dict)
    protocol_type: Annotated[str | None, wire(since=5, is_ignorable=True, before="assignments")] = None
    protocol_name: Annotated[str | None, wire(since=5, is_ignorable=True, before="assignments")] = None
    rebalance_timeout_ms: Local[int] = 300_000


@frozen
class SyncGroupResponse(Response):
    """The encoded partition assignment of this member."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: Annotated[str, wire(since=5, nullable=5, default=None, is_ignorable=True, before="assignment")] = ""
    protocol_name: Annotated[str, wire(since=5, nullable=5, default=None, is_ignorable=True, before="assignment")] = ""


@api(12, (0, 3), flexible=4, throttled=1)
@frozen
class Heartbeat(RequestFor["HeartbeatResponse"]):
    """Keep the session of a group member alive; ``REBALANCE_IN_PROGRESS`` means that the member must rejoin."""

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, wire(since=3)] = None


@frozen
class HeartbeatResponse(Response):
    """The response to a heartbeat, which has only an error code."""

    error: ErrorCode


@api(13, (0, 3), flexible=4, throttled=1)
@frozen
class LeaveGroup(RequestFor["LeaveGroupResponse"]):
    """Leave the group at once, without waiting for the session timeout."""

    group_id: str
    member_id: str
    group_instance_id: str | None = None


@frozen
class LeaveGroupResponse(Response):
    """The response to ``LeaveGroup``, which has only an error code."""

    error: ErrorCode


@frozen
class OffsetAndMetadata:
    """A committed offset (the next record to read) with metadata text.

    ``leader_epoch`` is the leader epoch of the last record read, or -1 if not given (KIP-320).
    """

    offset: Annotated[Int64, wire("committed_offset")]
    metadata: Annotated[str, wire("committed_metadata", nullable=0)] = ""
    leader_epoch: Annotated[Int32, wire("committed_leader_epoch", since=6, is_ignorable=True, before="metadata")] = -1


@api(
    8,
    (2, 9),
    flexible=8,
    throttled=3,
    later_errors={
        ErrorCode.GROUP_ID_NOT_FOUND: (9, ErrorCode.ILLEGAL_GENERATION),
        ErrorCode.STALE_MEMBER_EPOCH: (9, ErrorCode.UNSUPPORTED_VERSION),
    },
)
@frozen
class OffsetCommit(RequestFor["OffsetCommitResponse"]):
    """Commit offsets of a group.

    For a group without members, the generation is -1 and the member ID is "".
    """

    group_id: str
    offsets: Annotated[Mapping[TopicPartition, OffsetAndMetadata], wire("topics")]
    generation_id: Annotated[Int32, wire("generation_id_or_member_epoch", before="offsets")] = -1
    member_id: Annotated[str, wire(before="offsets")] = ""
    group_instance_id: Annotated[str | None, wire(since=7, before="offsets")] = None
    retention_time_ms: ClassVar[Annotated[Int64, wire(until=4, is_ignorable=True, before="offsets")]] = -1


@frozen
class OffsetCommitResponse(Response):
    """The result of ``OffsetCommit``: the error code for each partition."""

    errors: Annotated[Mapping[TopicPartition, ErrorCode], wire("topics")]


@api(9, (1, 9), flexible=6, throttled=3)
@frozen
class OffsetFetch(RequestFor["OffsetFetchResponse"]):
    """Request committed offsets; if ``partitions`` is None, all offsets of the group are requested.

    With ``require_stable``, the error is ``UNSTABLE_OFFSET_COMMIT`` while a transaction that commits any of
    these offsets is open (KIP-447).  A member of a consumer group sends its ID and epoch, which must be the current
    ones (KIP-848); otherwise they are None and -1.
    """

    group_id: str
    partitions: Annotated[Sequence[TopicPartition] | None, wire("topics", partitions="partition_indexes")] = None
    require_stable: Local[bool] = False
    member_id: Annotated[str | None, wire(since=9, is_ignorable=True, before="partitions")] = None
    member_epoch: Annotated[Int32, wire(since=9, is_ignorable=True, before="partitions")] = -1


@frozen
class OffsetFetchResponse(Response):
    """The committed offsets of a group; partitions without a committed offset are absent."""

    error: ErrorCode
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


#: The type of groups whose members assign the partitions.
CLASSIC_GROUP = "Classic"
#: The type of groups whose coordinator assigns the partitions (KIP-848).
CONSUMER_GROUP = "Consumer"
#: The type of groups whose coordinator assigns the tasks of a topology (KIP-1071).
STREAMS_GROUP = "Streams"


@api(16, (0, 5), flexible=3, throttled=1)
@frozen
class ListGroups(RequestFor["ListGroupsResponse"]):
    """List groups; an empty filter matches all groups (KIP-518, KIP-848)."""

    states_filter: Annotated[Sequence[str], wire(since=4)] = ()
    types_filter: Annotated[Sequence[str], wire(since=5)] = ()


@frozen
class ListGroupsResponse(Response):
    """The group ID, protocol type, state and group type of each group."""

    groups: Sequence[
        tuple[
            Annotated[str, wire("group_id")],
            Annotated[str, wire("protocol_type")],
            Annotated[str, wire("group_state", since=4, default="", is_ignorable=True)],
            Annotated[str, wire("group_type", since=5, default="", is_ignorable=True)],
        ]
    ]
    error: Annotated[ErrorCode, wire(before="groups")] = ErrorCode.NONE


@api(15, (0, 4), flexible=5, name="DescribeGroups", throttled=1)
@frozen
class DescribeGroup(RequestFor["DescribeGroupResponse"]):
    """Request the state and members of one group."""

    group_id: str
    include_authorized_operations: Annotated[bool, wire(since=3)] = False


@frozen
class DescribedMember:
    """A group member with its encoded subscription metadata and assignment."""

    member_id: str
    group_instance_id: Annotated[str | None, wire(since=4, default=None, is_ignorable=True)]
    client_id: str
    metadata: Annotated[bytes, wire("member_metadata")]
    assignment: Annotated[bytes, wire("member_assignment")]
    client_host: Annotated[str, wire(before="metadata")] = ""


@frozen
class DescribeGroupResponse(Response):
    """The description of a group and its members.

    ``state`` is Empty, PreparingRebalance, CompletingRebalance, Stable or Dead, as in Kafka; consumer groups (KIP-848)
    are Assigning or Reconciling during a rebalance, and streams groups (KIP-1071) NotReady while topics are missing.
    """

    error: ErrorCode
    group_id: ClassVar[str]
    state: Annotated[str, wire("group_state")] = "Dead"
    protocol_type: str = ""
    protocol_name: Annotated[str, wire("protocol_data")] = ""
    generation_id: Local[int] = -1
    members: Sequence[DescribedMember] = ()
    is_ephemeral: Local[bool] = False
    session_timeout_ms: Local[int | None] = None
    authorized_operations: ClassVar[Annotated[Int32, wire(since=3)]] = NO_OPERATIONS


@api(42, (0, 1), flexible=2, name="DeleteGroups")
@frozen
class DeleteGroup(RequestFor["DeleteGroupResponse"]):
    """Delete a group that has no members."""

    group_id: str


@frozen
class DeleteGroupResponse(Response):
    """The response to ``DeleteGroup``, which has only an error code."""

    group_id: ClassVar[str]
    error: ErrorCode


@frozen
class CreateGroup(RequestFor["CreateGroupResponse"]):
    """Create a group before its first member joins.  Kafka has no such request.

    An ephemeral group and its offsets are deleted when the last member leaves.  ``session_timeout_ms`` overrides the
    session timeouts of the members.
    """

    group_id: str
    is_ephemeral: bool = False
    session_timeout_ms: int | None = None


@frozen
class CreateGroupResponse(Response):
    """The response to ``CreateGroup``, which has only an error code."""

    error: ErrorCode


@frozen
class Shift:
    """A relative change of a committed offset.

    The new offset is the committed offset plus ``by``, limited to ``lowest`` and ``highest``; it is ``lowest`` if there
    is no committed offset.
    """

    by: int
    lowest: int
    highest: int


@frozen
class ResetOffsets(RequestFor["ResetOffsetsResponse"]):
    """Set committed offsets of a group, even if it has members.  Kafka has no such request.

    Members that are assigned any of the partitions are removed from the group in the same step: their late commits
    are rejected, and they rejoin and continue from the new offsets.  ``nonce`` makes the request idempotent.
    """

    group_id: str
    targets: Mapping[TopicPartition, int | Shift]
    nonce: int = 0


@frozen
class ResetOffsetsResponse(Response):
    """The new committed offsets of the group."""

    error: ErrorCode
    offsets: Mapping[TopicPartition, int] = field(factory=dict)


# --- consumer groups (KIP-848) ------------------------------------------------------------

#: The member epoch with which a member joins.
JOIN_EPOCH: Final = 0
#: The member epoch with which a member leaves.
LEAVE_EPOCH: Final = -1
#: The member epoch with which a static member leaves for a while; its partitions remain assigned to it.
LEAVE_STATIC_EPOCH: Final = -2


NumbersById: TypeAlias = Annotated[Mapping[Uuid, Sequence[Int32]], wire(key="topic_id", value="partitions")]


@frozen
class PartitionsById:
    """Partition numbers by topic ID."""

    partitions: Annotated[NumbersById, wire("topic_partitions")]


@api(68, (0, 1), flexible=0)
@frozen
class ConsumerGroupHeartbeat(RequestFor["ConsumerGroupHeartbeatResponse"]):
    """Join a consumer group, stay in it, report changes, or leave it.

    - ``member_epoch``: the current epoch, or ``JOIN_EPOCH``, ``LEAVE_EPOCH`` or ``LEAVE_STATIC_EPOCH``.
    - ``rebalance_timeout_ms``: how long the member may take to revoke partitions; -1 if it is unchanged.
    - ``topics``, ``topic_regex``, ``server_assignor``: the subscription; None if it is unchanged.
    - ``owned``: the partitions that the member owns, by topic ID; None if they are unchanged.
    - ``client_host``: the address of the client as seen by the broker, or "" for a client in the broker process.
    """

    group_id: str
    member_id: str
    member_epoch: Int32
    group_instance_id: Annotated[str | None, wire("instance_id")] = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    topics: Annotated[Sequence[str] | None, wire("subscribed_topic_names")] = None
    topic_regex: Annotated[str | None, wire("subscribed_topic_regex", since=1)] = None
    server_assignor: str | None = None
    owned: Annotated[NumbersById | None, wire("topic_partitions")] = None
    client_id: ClientId = ""
    client_host: ClientHost = ""


@frozen
class ConsumerGroupHeartbeatResponse(Response):
    """The epoch of the member, and its assignment by topic ID, or None if the assignment is unchanged."""

    error: ErrorCode
    message: ErrorText = ""
    member_id: Annotated[str, wire(nullable=0, default=None)] = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: PartitionsById | None = None


@api(69, (0, 1), flexible=0)
@frozen
class ConsumerGroupDescribe(RequestFor["ConsumerGroupDescribeResponse"]):
    """Request the state and members of one consumer group."""

    group_id: str
    include_authorized_operations: bool = False


@frozen
class NamedPartitions:
    """Partition numbers of one topic."""

    topic_id: Uuid
    topic_name: str
    partitions: Sequence[Int32]


@frozen
class NamedAssignment:
    """The partitions of a member, by topic."""

    topics: Annotated[Sequence[NamedPartitions], wire("topic_partitions")] = ()


#: Types of the members of consumer groups, by the protocol that they use (KIP-1099).
CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


@frozen
class DescribedConsumer:
    """A member of a consumer group, with what it is assigned now and what it will be assigned."""

    member_id: str
    group_instance_id: Annotated[str | None, wire("instance_id", default=None)]
    rack_id: Annotated[str | None, wire(default=None)]
    member_epoch: Int32
    client_id: str
    client_host: str
    topics: Annotated[Sequence[str], wire("subscribed_topic_names")]
    topic_regex: Annotated[str | None, wire("subscribed_topic_regex", default=None)]
    assignment: NamedAssignment
    target_assignment: NamedAssignment
    member_type: Annotated[Int8, wire(since=1, is_ignorable=True)] = CONSUMER_MEMBER


@frozen
class ConsumerGroupDescribeResponse(Response):
    """The description of a consumer group; ``state`` is Empty, Assigning, Reconciling, Stable or Dead."""

    error: ErrorCode
    message: ErrorText = ""
    group_id: ClassVar[str]
    state: Annotated[str, wire("group_state")] = "Dead"
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: Sequence[DescribedConsumer] = ()
    authorized_operations: ClassVar[Int32] = NO_OPERATIONS
