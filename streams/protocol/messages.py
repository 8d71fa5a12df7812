"""Requests and responses between client and broker, as values.

Names, fields and meanings are those of Kafka's protocol guide (classic group protocol).  In process they are
handed over as they are, and records travel as blocks; over TCP ``protocol.wire`` encodes them.  Those of
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

#: Timeout of requests that take the broker some time, in milliseconds; Kafka's default.
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
    """Create topics; each has a result of its own.  ``is_trial``: validate only.  Timeout in milliseconds."""

    topics: Sequence[TopicSpec]
    is_trial: bool = False
    timeout_ms: int = REQUEST_TIMEOUT_MS


@frozen
class CreateTopicsResponse:
    """Result per topic name; ``made`` describes the topics that were created, or would be."""

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
    """Error per topic name; of those that were asked for by id, error and name (empty where there is none)."""

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
    """Ask for topics; None = all.

    Unknown ones are created where the broker's configuration and this request allow it.  ``topic_ids`` asks for more
    of them, by their ids (KIP-516).  Authorized operations are sets of bits (KIP-430).
    """

    topics: Sequence[str] | None = None
    allow_auto_topic_creation: bool = True
    topic_ids: Sequence[bytes] = ()
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


#: Id of a topic that has none, or is not known.
NO_TOPIC_ID = bytes(16)


@frozen
class TopicMetadata:
    """Partitions, leaders (node id per partition) and configuration of a topic.

    ``partitioner`` is the user's function of a topic with that strategy, known in process only.  ``topic_id`` tells a
    topic from another one that had its name before (KIP-516).
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
    """Append blocks; offsets of a block are given by the broker.

    Blocks of an idempotent producer carry its stamp; ``transactional_id`` is set where they
    belong to its transaction.
    """

    blocks: Mapping[TopicPartition, Sequence[Block]]
    acks: int = -1
    transactional_id: str | None = None


class Produced(NamedTuple):
    """The result for one partition; -1 where it is not known.

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
    """Read from offsets: ``positions`` is partition -> next offset.

    The response waits up to ``max_wait_ms`` for something to read.  With READ_COMMITTED nothing at or above the
    last stable offset is returned, and the response names the aborted transactions, whose records the consumer
    leaves out.

    ``max_records`` bounds each partition's blocks in process, whatever the size of stored batches.  Over TCP
    (``as_bytes``) batches are answered as they are stored: the response waits for ``min_bytes``, ``max_bytes`` bounds
    all of it and ``partition_max_bytes``, or ``limits``, each partition's; the first batch comes whatever its size
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
    """An aborted transaction: records of the producer from this offset to its next abort marker do not count."""

    producer_id: int
    first_offset: int


class FetchedPartition(NamedTuple):
    """Blocks in offset order, control blocks among them; ``high_watermark`` is the next offset to be written.

    ``last_stable_offset`` is the first offset of the oldest open transaction, or the high
    watermark; ``aborted`` is filled with READ_COMMITTED only, by first offset.  ``chunks`` are the encoded
    batches where the fetch asked for bytes.
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
    """What was read, per partition.

    In process a partition may be missing: its log ends at the position that was asked for.
    """

    partitions: Mapping[TopicPartition, FetchedPartition]


EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5


@frozen
class ListOffsets:
    """Offset of the first record at or after a time, or -2 earliest, -1 latest.

    With READ_COMMITTED the latest is the last stable offset.
    """

    timestamps: Mapping[TopicPartition, int]
    isolation_level: int = READ_UNCOMMITTED


class ListedOffset(NamedTuple):
    """The record that was asked for: timestamp in milliseconds, offset and leader epoch; -1 where there is none."""

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
    """Which node coordinates this group, or the transactions of this transactional id."""

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
    """Get a producer id and epoch; with a transactional id, fence its earlier owner and end what it left open."""

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
    """Announce partitions before the transaction's first record goes there."""

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
    """Announce that the transaction commits offsets of a group."""

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
    """Commit offsets of a group as part of a transaction: they count from its commit marker on."""

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
    """Commit or abort: markers go to all partitions of the transaction.

    ``bumps_epoch``: the producer goes on under the identity of the answer (KIP-890); older ones keep theirs.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    bumps_epoch: bool = True


@frozen
class EndTxnResponse:
    """With KIP-890 the identity for the producer's next transaction, so that what is late of this one is refused.

    -1 where the producer keeps the one it has.
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
