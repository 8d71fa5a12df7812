"""Requests and responses of groups: Kafka's classic group protocol, and what its administration adds.

Part of ``protocol.messages``, from where they are imported.  Imports core only.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from attrs import field, frozen

from streams.core.records import TopicPartition
from streams.protocol.error_codes import ErrorCode


@frozen
class JoinGroup:
    """Join or rejoin a group; ``protocols`` are (name, metadata) in order of preference.

    ``takes_member_id``: a new member is given its id first and joins with that (version 4 on, KIP-394), so that
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
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@frozen
class JoinGroupResponse:
    """``members`` is filled for the leader only.

    ``session_timeout_ms`` is set where the group has a session timeout of its own (``CreateGroup``).
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
    """Fetch one's assignment; the leader brings everybody's.

    Protocol type and name, where given, must be the group's (KIP-559).  ``rebalance_timeout_ms`` is how long the
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
    """Keep the session alive; answered REBALANCE_IN_PROGRESS when one must rejoin."""

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
    """Leave at once instead of by session timeout."""

    group_id: str
    member_id: str
    group_instance_id: str | None = None


@frozen
class LeaveGroupResponse:
    """Only an error code."""

    error: ErrorCode


@frozen
class OffsetAndMetadata:
    """A committed offset: the next record to read, and the committer's note.

    ``leader_epoch`` is that of the last record read, -1 where who committed did not say (KIP-320).
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
    """Error per partition."""

    errors: Mapping[TopicPartition, ErrorCode]


@frozen
class OffsetFetch:
    """Read committed offsets; None = all of the group.

    ``require_stable``: answered UNSTABLE_OFFSET_COMMIT while a transaction that commits one of
    them is open (KIP-447).
    """

    group_id: str
    partitions: Sequence[TopicPartition] | None = None
    require_stable: bool = False


@frozen
class OffsetFetchResponse:
    """Partitions without a committed offset are absent."""

    error: ErrorCode
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


#: Type of the groups whose members assign partitions; the other type is KIP-848's.
CLASSIC_GROUP = "Classic"


@frozen
class ListGroups:
    """Ask for the broker's groups; filters without entries take all (KIP-518, KIP-848)."""

    states_filter: Sequence[str] = ()
    types_filter: Sequence[str] = ()


@frozen
class ListGroupsResponse:
    """(group id, protocol type, state) of each."""

    groups: Sequence[tuple[str, str, str]]
    error: ErrorCode = ErrorCode.NONE


@frozen
class DescribeGroup:
    """State and members of one group."""

    group_id: str
    include_authorized_operations: bool = False


@frozen
class DescribedMember:
    """A member with the bytes it joined with and was assigned."""

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
    """Delete a group; refused with members."""

    group_id: str


@frozen
class DeleteGroupResponse:
    """Only an error code."""

    error: ErrorCode


@frozen
class CreateGroup:
    """Create a group before its first member comes; Kafka has no such request.

    An ephemeral group vanishes with its last member, offsets included.  ``session_timeout_ms`` takes the place of
    what its members ask for.
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
    """Move the committed offset, within the bounds given; without one it begins at ``lowest``."""

    by: int
    lowest: int
    highest: int


@frozen
class ResetOffsets:
    """Set committed offsets of a group, whatever its members are at; Kafka has no such request.

    Members that have one of the partitions are put out of the group in the same step: what they commit late is
    refused, and when they notice they join again and go on from the new offsets.  ``nonce`` makes it happen once.
    """

    group_id: str
    targets: Mapping[TopicPartition, int | Shift]
    nonce: int = 0


@frozen
class ResetOffsetsResponse:
    """The offsets from which the group goes on."""

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
