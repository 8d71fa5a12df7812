"""Requests and responses between client and broker, as values.

Names, fields and meanings are those of Kafka's protocol guide (classic group protocol);
a codec turns them into Kafka's bytes where they leave the process.  In process they are
handed over as they are, and records travel as blocks.  Imports core only.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TypeAlias

from attrs import field, frozen

from streams.core.records import Block, TopicPartition


class ErrorCode(IntEnum):
    """Kafka's error codes, as far as they are used here."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    STORAGE_ERROR = 56
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    FENCED_INSTANCE_ID = 82
    INVALID_RECORD = 87


# --- topics ---------------------------------------------------------------------------


@frozen
class TopicSpec:
    """A topic to create; ``partitions`` -1 = the broker's default; ``config`` has Kafka's names."""

    name: str
    partitions: int = -1
    config: Mapping[str, str] = field(factory=dict)


@frozen
class CreateTopics:
    """Create topics; each is answered on its own."""

    topics: Sequence[TopicSpec]


@frozen
class CreateTopicsResponse:
    """Error and message per topic name."""

    errors: Mapping[str, tuple[ErrorCode, str]]


@frozen
class CreatePartitions:
    """Raise the partition counts of topics."""

    counts: Mapping[str, int]


@frozen
class CreatePartitionsResponse:
    """Error and message per topic name."""

    errors: Mapping[str, tuple[ErrorCode, str]]


@frozen
class DeleteTopics:
    """Delete topics by name."""

    topics: Sequence[str]


@frozen
class DeleteTopicsResponse:
    """Error per topic name."""

    errors: Mapping[str, ErrorCode]


@frozen
class DeleteRecords:
    """Raise the log start offset of partitions."""

    offsets: Mapping[TopicPartition, int]


@frozen
class DeleteRecordsResponse:
    """Error and new log start offset per partition."""

    partitions: Mapping[TopicPartition, tuple[ErrorCode, int]]


@frozen
class Metadata:
    """Ask for topics; None = all.

    Unknown ones are created where the broker's configuration and this request allow it.
    """

    topics: Sequence[str] | None = None
    allow_auto_topic_creation: bool = True


@frozen
class TopicMetadata:
    """Partitions, leaders (node id per partition) and configuration of a topic."""

    name: str
    error: ErrorCode
    leaders: Sequence[int] = ()
    config: Mapping[str, str] = field(factory=dict)
    is_internal: bool = False


@frozen
class MetadataResponse:
    """Brokers as node id -> address ("" in process), and topics."""

    brokers: Mapping[int, str]
    topics: Sequence[TopicMetadata]


# --- records --------------------------------------------------------------------------


@frozen
class Produce:
    """Append blocks; offsets of a block are given by the broker."""

    blocks: Mapping[TopicPartition, Sequence[Block]]
    acks: int = -1


@frozen
class ProduceResponse:
    """Per partition: error, base offset of the first block, message."""

    partitions: Mapping[TopicPartition, tuple[ErrorCode, int, str]]


@frozen
class Fetch:
    """Read from offsets: ``positions`` is partition -> next offset.

    The response waits up to ``max_wait_ms`` while there is nothing at all to read.
    ``max_records`` bounds each partition's answer, whatever the size of stored batches.
    """

    positions: Mapping[TopicPartition, int]
    max_wait_ms: int = 500
    max_records: int = 10_000
    isolation_level: int = 0


@frozen
class FetchedPartition:
    """Blocks in offset order; ``high_watermark`` is the next offset to be written."""

    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    blocks: Sequence[Block] = ()


@frozen
class FetchResponse:
    """What was read, per partition."""

    partitions: Mapping[TopicPartition, FetchedPartition]


EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1


@frozen
class ListOffsets:
    """Offset of the first record at or after a time, or -2 earliest, -1 latest."""

    timestamps: Mapping[TopicPartition, int]


@frozen
class ListOffsetsResponse:
    """Per partition: error, timestamp, offset (-1 where none is that late)."""

    partitions: Mapping[TopicPartition, tuple[ErrorCode, int, int]]


# --- groups ---------------------------------------------------------------------------


@frozen
class FindCoordinator:
    """Which node coordinates this group."""

    key: str


@frozen
class FindCoordinatorResponse:
    """Node id of the coordinator."""

    error: ErrorCode
    node_id: int


@frozen
class JoinGroup:
    """Join or rejoin a group; ``protocols`` are (name, metadata) in order of preference."""

    group_id: str
    member_id: str
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    group_instance_id: str | None = None
    client_id: str = ""


@frozen
class JoinGroupMember:
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@frozen
class JoinGroupResponse:
    """``members`` is filled for the leader only."""

    error: ErrorCode
    generation_id: int = -1
    protocol_name: str = ""
    leader: str = ""
    member_id: str = ""
    members: Sequence[JoinGroupMember] = ()


@frozen
class SyncGroup:
    """Fetch one's assignment; the leader brings everybody's."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    assignments: Mapping[str, bytes] = field(factory=dict)


@frozen
class SyncGroupResponse:
    """This member's assignment."""

    error: ErrorCode
    assignment: bytes = b""


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
    """A committed offset: the next record to read, and the committer's note."""

    offset: int
    metadata: str = ""


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
    """Read committed offsets; None = all of the group."""

    group_id: str
    partitions: Sequence[TopicPartition] | None = None


@frozen
class OffsetFetchResponse:
    """Partitions without a committed offset are absent."""

    error: ErrorCode
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


@frozen
class ListGroups:
    """All groups of the broker."""


@frozen
class ListGroupsResponse:
    """(group id, protocol type, state) of each."""

    groups: Sequence[tuple[str, str, str]]


@frozen
class DescribeGroup:
    """State and members of one group."""

    group_id: str


@frozen
class DescribedMember:
    """A member with the bytes it joined with and was assigned."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    metadata: bytes
    assignment: bytes


@frozen
class DescribeGroupResponse:
    """``state`` is Kafka's: Empty, PreparingRebalance, CompletingRebalance, Stable, Dead."""

    error: ErrorCode
    state: str = "Dead"
    protocol_type: str = ""
    protocol_name: str = ""
    generation_id: int = -1
    members: Sequence[DescribedMember] = ()


@frozen
class DeleteGroup:
    """Delete a group; refused with members."""

    group_id: str


@frozen
class DeleteGroupResponse:
    """Only an error code."""

    error: ErrorCode


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
)
Request: TypeAlias = (
    CreateTopics
    | CreatePartitions
    | DeleteTopics
    | DeleteRecords
    | Metadata
    | Produce
    | Fetch
    | ListOffsets
    | FindCoordinator
    | GroupRequest
)
Response: TypeAlias = (
    CreateTopicsResponse
    | CreatePartitionsResponse
    | DeleteTopicsResponse
    | DeleteRecordsResponse
    | MetadataResponse
    | ProduceResponse
    | FetchResponse
    | ListOffsetsResponse
    | FindCoordinatorResponse
    | JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | ListGroupsResponse
    | DescribeGroupResponse
    | DeleteGroupResponse
)
