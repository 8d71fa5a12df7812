"""Requests and responses of groups: Kafka's classic group protocol and group administration.

Part of ``protocol.messages``, which reexports them.  Imports core only.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from attrs import field, frozen

from streams.core.records import TopicPartition
from streams.protocol.error_codes import ErrorCode


@frozen
class JoinGroup:
    """Join or rejoin a group; ``protocols`` are (name, metadata) in order of preference.

    ``takes_member_id``: a new member first gets its id and then joins with it (version 4 on, KIP-394), so that
    a join that is repeated after a lost connection leaves no dead member.  ``client_host`` is the client's address
    as the broker sees it, "" in process: members without one end with the process of an embedded broker.
    """

    group_id: str
    member_id: str
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    group_instance_id: str | None = None
    client_id: str = ""
    takes_member_id: bool = False
    client_host: str = ""


@frozen
class JoinGroupMember:
    """A member and its metadata, for the leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@frozen
class JoinGroupResponse:
    """``members`` is filled for the leader only.

    ``session_timeout_ms`` is set if the group has its own session timeout (``CreateGroup``).
    """

    error: ErrorCode
    generation_id: int = -1
    protocol_name: str = ""
    leader: str = ""
    member_id: str = ""
    members: Sequence[JoinGroupMember] = ()
    protocol_type: str = ""
    session_timeout_ms: int | None = None


@frozen
class SyncGroup:
    """Get the member's assignment; the leader sends those of all members.

    Protocol type and name, if given, must be the group's (KIP-559).  ``rebalance_timeout_ms`` is how long the
    broker may hold it while the leader assigns; it is not sent, but says for the client when the connection is lost.
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    assignments: Mapping[str, bytes] = field(factory=dict)
    protocol_type: str | None = None
    protocol_name: str | None = None
    rebalance_timeout_ms: int = 300_000


@frozen
class SyncGroupResponse:
    """This member's assignment."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str = ""
    protocol_name: str = ""


@frozen
class Heartbeat:
    """Keep the session alive; error REBALANCE_IN_PROGRESS when the member must rejoin."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@frozen
class HeartbeatResponse:
    """Only an error code."""

    error: ErrorCode


@frozen
class LeaveGroup:
    """Leave the group at once, without waiting for the session timeout."""

    group_id: str
    member_id: str
    group_instance_id: str | None = None


@frozen
class LeaveGroupResponse:
    """Only an error code."""

    error: ErrorCode


@frozen
class OffsetAndMetadata:
    """A committed offset (the next record to read) with its metadata text.

    ``leader_epoch`` is that of the last record read, -1 if not given (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@frozen
class OffsetCommit:
    """Commit offsets; generation -1 and member "" for a group without members."""

    group_id: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@frozen
class OffsetCommitResponse:
    """An error per partition."""

    errors: Mapping[TopicPartition, ErrorCode]


@frozen
class OffsetFetch:
    """Get committed offsets; partitions None = all of the group.

    ``require_stable``: error UNSTABLE_OFFSET_COMMIT while a transaction that commits one of
    them is open (KIP-447).
    """

    group_id: str
    partitions: Sequence[TopicPartition] | None = None
    require_stable: bool = False


@frozen
class OffsetFetchResponse:
    """Committed offsets; partitions without one are absent."""

    error: ErrorCode
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


#: Type of groups with client-side assignment; the other type is KIP-848's.
CLASSIC_GROUP = "Classic"


@frozen
class ListGroups:
    """List groups; empty filters match all (KIP-518, KIP-848)."""

    states_filter: Sequence[str] = ()
    types_filter: Sequence[str] = ()


@frozen
class ListGroupsResponse:
    """(group id, protocol type, state) per group."""

    groups: Sequence[tuple[str, str, str]]
    error: ErrorCode = ErrorCode.NONE


@frozen
class DescribeGroup:
    """Get state and members of one group."""

    group_id: str
    include_authorized_operations: bool = False


@frozen
class DescribedMember:
    """A member with the bytes of its metadata and its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    metadata: bytes
    assignment: bytes
    client_host: str = ""


@frozen
class DescribeGroupResponse:
    """``state`` is Kafka's: Empty, PreparingRebalance, CompletingRebalance, Stable, Dead."""

    error: ErrorCode
    state: str = "Dead"
    protocol_type: str = ""
    protocol_name: str = ""
    generation_id: int = -1
    members: Sequence[DescribedMember] = ()
    is_ephemeral: bool = False
    session_timeout_ms: int | None = None


@frozen
class DeleteGroup:
    """Delete a group without members."""

    group_id: str


@frozen
class DeleteGroupResponse:
    """Only an error code."""

    error: ErrorCode


@frozen
class CreateGroup:
    """Create a group before its first member joins; not in Kafka.

    An ephemeral group is deleted with its last member, offsets included.  ``session_timeout_ms`` overrides the
    timeouts of its members.
    """

    group_id: str
    is_ephemeral: bool = False
    session_timeout_ms: int | None = None


@frozen
class CreateGroupResponse:
    """Only an error code."""

    error: ErrorCode


@frozen
class Shift:
    """Shift of a committed offset within bounds; without a committed offset it starts at ``lowest``."""

    by: int
    lowest: int
    highest: int


@frozen
class ResetOffsets:
    """Set committed offsets of a group, even one with members; not in Kafka.

    Members with one of the partitions are removed from the group in the same step: their late commits are
    refused, and they rejoin and continue from the new offsets.  ``nonce`` makes the request idempotent.
    """

    group_id: str
    targets: Mapping[TopicPartition, int | Shift]
    nonce: int = 0


@frozen
class ResetOffsetsResponse:
    """The new committed offsets of the group."""

    error: ErrorCode
    offsets: Mapping[TopicPartition, int] = field(factory=dict)


GroupRequest: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | ListGroups
    | DescribeGroup
    | DeleteGroup
    | CreateGroup
    | ResetOffsets
)
GroupResponse: TypeAlias = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | ListGroupsResponse
    | DescribeGroupResponse
    | DeleteGroupResponse
    | CreateGroupResponse
    | ResetOffsetsResponse
)
