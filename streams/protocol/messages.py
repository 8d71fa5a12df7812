"""Requests and responses between client and broker.

Names, fields and meanings are those of Kafka's protocol guide (classic group protocol).  In process they
are passed as objects, with records as blocks; over TCP ``protocol.wire`` encodes them.  Those of
administration are in ``admin_messages`` and ``operations_messages``.  Imports core only.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from attrs import field, frozen

from streams.core.partitioning import Partitioner
from streams.core.records import Block, TopicPartition
from streams.protocol.admin_messages import AdminRequest, AdminResponse
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    CLASSIC_GROUP,
    CreateGroup,
    CreateGroupResponse,
    DeleteGroup,
    DeleteGroupResponse,
    DescribedMember,
    DescribeGroup,
    DescribeGroupResponse,
    GroupRequest,
    GroupResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupMember,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    ListGroups,
    ListGroupsResponse,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    ResetOffsets,
    ResetOffsetsResponse,
    Shift,
    SyncGroup,
    SyncGroupResponse,
)
from streams.protocol.operations_messages import OperationsRequest, OperationsResponse

__all__ = [
    "CLASSIC_GROUP",
    "AbortedTransaction",
    "AddOffsetsToTxn",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxn",
    "AddPartitionsToTxnResponse",
    "COORDINATOR_GROUP",
    "COORDINATOR_TRANSACTION",
    "CreateGroup",
    "CreateGroupResponse",
    "CreatePartitions",
    "CreatePartitionsResponse",
    "CreateTopics",
    "CreateTopicsResponse",
    "DeleteGroup",
    "DeleteGroupResponse",
    "DeleteRecords",
    "DeleteRecordsResponse",
    "DeleteTopics",
    "DeleteTopicsResponse",
    "DeletedRecords",
    "DescribeGroup",
    "DescribeGroupResponse",
    "DescribedMember",
    "EARLIEST_LOCAL_TIMESTAMP",
    "EARLIEST_TIMESTAMP",
    "EndTxn",
    "EndTxnResponse",
    "ErrorCode",
    "Fetch",
    "FetchResponse",
    "FetchedPartition",
    "FindCoordinator",
    "FindCoordinatorResponse",
    "GroupRequest",
    "GroupResponse",
    "Heartbeat",
    "HeartbeatResponse",
    "InitProducerId",
    "InitProducerIdResponse",
    "JoinGroup",
    "JoinGroupMember",
    "JoinGroupResponse",
    "LATEST_TIERED_TIMESTAMP",
    "LATEST_TIMESTAMP",
    "LeaveGroup",
    "LeaveGroupResponse",
    "ListGroups",
    "ListGroupsResponse",
    "ListOffsets",
    "ListOffsetsResponse",
    "ListedOffset",
    "MAX_TIMESTAMP",
    "Metadata",
    "MetadataResponse",
    "NO_TOPIC_ID",
    "OffsetAndMetadata",
    "OffsetCommit",
    "OffsetCommitResponse",
    "OffsetFetch",
    "OffsetFetchResponse",
    "Produce",
    "ProduceResponse",
    "Produced",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "REQUEST_TIMEOUT_MS",
    "Request",
    "ResetOffsets",
    "ResetOffsetsResponse",
    "Response",
    "Shift",
    "SyncGroup",
    "SyncGroupResponse",
    "TopicMetadata",
    "TopicSpec",
    "TransactionRequest",
    "TxnOffsetCommit",
    "TxnOffsetCommitResponse",
]

#: Default timeout of administrative requests, in milliseconds, as in Kafka.
REQUEST_TIMEOUT_MS = 30_000

# --- topics ---------------------------------------------------------------------------


@frozen
class TopicSpec:
    """A topic to create; ``partitions`` and ``replicas`` -1 = the broker's default; ``config`` has Kafka's names."""

    name: str
    partitions: int = -1
    config: Mapping[str, str] = field(factory=dict)
    replicas: int = -1


@frozen
class CreateTopics:
    """Create topics; each has its own result.  ``is_trial``: validate only.  Timeout in milliseconds."""

    topics: Sequence[TopicSpec]
    is_trial: bool = False
    timeout_ms: int = REQUEST_TIMEOUT_MS


@frozen
class CreateTopicsResponse:
    """Result per topic name; ``made`` describes the created topics, or with ``is_trial`` the valid ones."""

    errors: Mapping[str, tuple[ErrorCode, str]]
    made: Mapping[str, "TopicMetadata"] = field(factory=dict)


@frozen
class CreatePartitions:
    """Raise the partition counts of topics.  ``is_trial``: validate only.  Timeout in milliseconds."""

    counts: Mapping[str, int]
    is_trial: bool = False
    timeout_ms: int = REQUEST_TIMEOUT_MS


@frozen
class CreatePartitionsResponse:
    """Result per topic name."""

    errors: Mapping[str, tuple[ErrorCode, str]]


@frozen
class DeleteTopics:
    """Delete topics by name, and by id.  Timeout in milliseconds."""

    topics: Sequence[str]
    topic_ids: Sequence[bytes] = ()
    timeout_ms: int = REQUEST_TIMEOUT_MS


@frozen
class DeleteTopicsResponse:
    """Error per topic name; for topics requested by id, error and name ("" if unknown)."""

    errors: Mapping[str, ErrorCode]
    by_id: Mapping[bytes, tuple[ErrorCode, str]] = field(factory=dict)


@frozen
class DeleteRecords:
    """Raise the log start offset of partitions; -1 = to the high watermark.  Timeout in milliseconds."""

    offsets: Mapping[TopicPartition, int]
    timeout_ms: int = REQUEST_TIMEOUT_MS


class DeletedRecords(NamedTuple):
    """Error, and the log start offset afterwards."""

    error: ErrorCode
    low_watermark: int


@frozen
class DeleteRecordsResponse:
    """Result per partition."""

    partitions: Mapping[TopicPartition, DeletedRecords]


@frozen
class Metadata:
    """Get topic metadata; None = all topics.

    Unknown topics are created if the broker's configuration and this request allow it.  ``topic_ids`` requests more
    topics by id (KIP-516).  Authorized operations are bit sets (KIP-430).
    """

    topics: Sequence[str] | None = None
    allow_auto_topic_creation: bool = True
    topic_ids: Sequence[bytes] = ()
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


#: Id of a topic without an id, or of an unknown topic.
NO_TOPIC_ID = bytes(16)


@frozen
class TopicMetadata:
    """Partitions, leaders (node id per partition) and configuration of a topic.

    ``partitioner`` is the function of a topic with a custom strategy, in process only.  ``topic_id`` distinguishes a
    topic from earlier ones of the same name (KIP-516).
    """

    name: str
    error: ErrorCode
    leaders: Sequence[int] = ()
    config: Mapping[str, str] = field(factory=dict)
    is_internal: bool = False
    partitioner: Partitioner | None = None
    topic_id: bytes = NO_TOPIC_ID


@frozen
class MetadataResponse:
    """Brokers as node id -> address ("" in process), and topics; ``controller_id`` -1 = not known."""

    brokers: Mapping[int, str]
    topics: Sequence[TopicMetadata]
    controller_id: int = -1


# --- records --------------------------------------------------------------------------


@frozen
class Produce:
    """Append blocks; the broker assigns offsets.

    Blocks of an idempotent producer carry its stamp; ``transactional_id`` is set if they
    belong to its transaction.
    """

    blocks: Mapping[TopicPartition, Sequence[Block]]
    acks: int = -1
    transactional_id: str | None = None


class Produced(NamedTuple):
    """The result for one partition; -1 = not known.

    ``log_append_time_ms`` is set for topics with ``message.timestamp.type=LogAppendTime``.
    """

    error: ErrorCode
    base_offset: int = -1
    message: str = ""
    log_append_time_ms: int = -1
    log_start_offset: int = -1


@frozen
class ProduceResponse:
    """Result per partition."""

    partitions: Mapping[TopicPartition, Produced]


READ_UNCOMMITTED = 0
READ_COMMITTED = 1


@frozen
class Fetch:
    """Read records; ``positions`` is partition -> next offset.

    The response waits up to ``max_wait_ms`` for records.  With READ_COMMITTED nothing at or above the
    last stable offset is returned, and the response lists the aborted transactions, whose records the consumer
    skips.

    ``max_records`` bounds each partition's blocks in process.  Over TCP
    (``as_bytes``) stored batches are returned unchanged: the response waits for ``min_bytes``, ``max_bytes`` bounds
    all of it, and ``partition_max_bytes`` or ``limits`` each partition; the first batch may exceed them
    (KIP-74).
    """

    positions: Mapping[TopicPartition, int]
    max_wait_ms: int = 500
    max_records: int = 10_000
    isolation_level: int = READ_UNCOMMITTED
    max_bytes: int = 52_428_800
    partition_max_bytes: int = 1_048_576
    min_bytes: int = 1
    limits: Mapping[TopicPartition, int] = field(factory=dict)
    as_bytes: bool = False


@frozen
class AbortedTransaction:
    """An aborted transaction: records of the producer from this offset to its next abort marker are skipped."""

    producer_id: int
    first_offset: int


class FetchedPartition(NamedTuple):
    """Blocks in offset order, control blocks among them; ``high_watermark`` is the next offset to be written.

    ``last_stable_offset`` is the first offset of the oldest open transaction, or the high
    watermark; ``aborted`` is filled with READ_COMMITTED only, by first offset.  ``chunks`` are the encoded
    batches if the fetch has ``as_bytes``.
    """

    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    blocks: Sequence[Block] = ()
    last_stable_offset: int = -1
    aborted: Sequence[AbortedTransaction] = ()
    chunks: Sequence[bytes] = ()


@frozen
class FetchResponse:
    """The records per partition.

    In process, partitions without new records are absent.
    """

    partitions: Mapping[TopicPartition, FetchedPartition]


EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5


@frozen
class ListOffsets:
    """Get the offset of the first record at or after a time; -2 = earliest, -1 = latest.

    With READ_COMMITTED the latest is the last stable offset.
    """

    timestamps: Mapping[TopicPartition, int]
    isolation_level: int = READ_UNCOMMITTED


class ListedOffset(NamedTuple):
    """The record found: timestamp in milliseconds, offset and leader epoch; -1 if there is none."""

    error: ErrorCode
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


@frozen
class ListOffsetsResponse:
    """Result per partition."""

    partitions: Mapping[TopicPartition, ListedOffset]


# --- groups ---------------------------------------------------------------------------


COORDINATOR_GROUP = 0
COORDINATOR_TRANSACTION = 1


@frozen
class FindCoordinator:
    """Get the coordinator of a group or of a transactional id."""

    key: str
    key_type: int = COORDINATOR_GROUP


@frozen
class FindCoordinatorResponse:
    """Node id of the coordinator."""

    error: ErrorCode
    node_id: int


# --- transactions (KIP-98, KIP-447) ---------------------------------------------------


@frozen
class InitProducerId:
    """Get a producer id and epoch; with a transactional id, fence its earlier owner and end its open transaction."""

    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    producer_id: int = -1
    producer_epoch: int = -1


@frozen
class InitProducerIdResponse:
    """The producer's identity from now on."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


@frozen
class AddPartitionsToTxn:
    """Add partitions to the transaction, before its first record is sent there."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]


@frozen
class AddPartitionsToTxnResponse:
    """Error per partition; if one is refused the others are OPERATION_NOT_ATTEMPTED."""

    errors: Mapping[TopicPartition, ErrorCode]


@frozen
class AddOffsetsToTxn:
    """Add a group, whose offsets will be committed, to the transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


@frozen
class AddOffsetsToTxnResponse:
    """Only an error code."""

    error: ErrorCode


@frozen
class TxnOffsetCommit:
    """Commit offsets of a group as part of a transaction; they are valid once it is committed."""

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@frozen
class TxnOffsetCommitResponse:
    """Error per partition."""

    errors: Mapping[TopicPartition, ErrorCode]


@frozen
class EndTxn:
    """Commit or abort a transaction: markers are written to all its partitions.

    ``bumps_epoch``: the producer continues with the identity in the response (KIP-890); older clients keep theirs.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    bumps_epoch: bool = True


@frozen
class EndTxnResponse:
    """With KIP-890 the producer's identity for its next transaction, so that late requests of this one are refused.

    -1 if the producer keeps its identity.
    """

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


TransactionRequest: TypeAlias = InitProducerId | AddPartitionsToTxn | AddOffsetsToTxn | TxnOffsetCommit | EndTxn
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
    | TransactionRequest
    | AdminRequest
    | OperationsRequest
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
    | GroupResponse
    | InitProducerIdResponse
    | AddPartitionsToTxnResponse
    | AddOffsetsToTxnResponse
    | TxnOffsetCommitResponse
    | EndTxnResponse
    | AdminResponse
    | OperationsResponse
)
