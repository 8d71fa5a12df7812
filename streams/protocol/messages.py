"""Requests and responses between client and broker: topics, records, coordinators and transactions.

Names, fields and meanings follow Kafka's protocol guide (classic group protocol).  Within a process, messages
are passed as objects, with blocks of records; over TCP, ``protocol.wire`` encodes them.  The other messages are in
``group_messages`` and ``admin_messages``.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from attrs import define, field, frozen

from streams.core.blocks.partitioning import Partitioner
from streams.core.blocks.records import Block, TopicPartition
from streams.core.settings.setting import LONG_MAX
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.request import RequestFor, Response
from streams.protocol.schema import (
    INDEX,
    INT32,
    INT64,
    STRING,
    UUID,
    Array,
    ErrorText,
    Field,
    Int8,
    Int16,
    Int32,
    Int64,
    Local,
    Struct,
    api,
    array,
    implied,
    wire,
)

#: Default timeout of administrative requests, in milliseconds, as in Kafka.
REQUEST_TIMEOUT_MS = 30_000
#: Fields and types that no message here has.
LEADER: Final = (Field("leader_id", INT32, default=-1), Field("leader_epoch", INT32, default=-1))
NODE: Final = (Field("node_id", INT32), Field("host", STRING), Field("port", INT32))
NODES: Final = Array(Struct((*NODE, Field("rack", STRING, nullable=10, default=None))))
_ASSIGNMENTS: Final = array("assignments", array("broker_ids", INT32), nullable=0, default=None)
_LEADER_EPOCH: Final = Field("current_leader_epoch", INT32, since=4, default=-1, is_ignorable=True)

# --- topics ---------------------------------------------------------------------------


@frozen
class TopicSpec:
    """A topic to create; -1 for ``partitions`` or ``replicas`` means the broker default."""

    name: str
    partitions: Annotated[Int32, wire("num_partitions")] = -1
    assignments: ClassVar[Annotated[Sequence[int], Array(Struct((INDEX, array("broker_ids", INT32))))]] = ()
    config: Annotated[Mapping[str, Annotated[str, wire("value", nullable=0)]], wire("configs")] = field(factory=dict)
    replicas: Annotated[Int16, wire("replication_factor", before="assignments")] = -1


@api(19, (2, 7), flexible=5)
@frozen
class CreateTopics(RequestFor["CreateTopicsResponse"]):
    """Create topics, each with its own result; with ``is_trial``, the request is only validated."""

    topics: Sequence[TopicSpec]
    is_trial: Annotated[bool, wire("validate_only")] = False
    timeout_ms: Annotated[Int32, wire(before="is_trial")] = REQUEST_TIMEOUT_MS


@frozen
class CreateTopicsResponse(Response):
    """The error code and message for each topic name.

    ``created`` describes the created topics or, with ``is_trial``, the topics that would be created.
    """

    errors: Mapping[str, tuple[ErrorCode, str]]
    created: Mapping[str, "TopicMetadata"] = field(factory=dict)


@api(37, (0, 1), flexible=2)
@frozen
class CreatePartitions(RequestFor["CreatePartitionsResponse"]):
    """Raise the partition counts of topics; with ``is_trial``, the request is only validated."""

    counts: Annotated[Mapping[str, Int32], wire("topics", value="count", more=(_ASSIGNMENTS,))]
    is_trial: Annotated[bool, wire("validate_only")] = False
    timeout_ms: Annotated[Int32, wire(before="is_trial")] = REQUEST_TIMEOUT_MS


@frozen
class CreatePartitionsResponse(Response):
    """The error code and message for each topic name."""

    errors: Annotated[Mapping[str, tuple[ErrorCode, ErrorText]], wire("results")]


@api(20, (1, 6), flexible=4)
@frozen
class DeleteTopics(RequestFor["DeleteTopicsResponse"]):
    """Delete topics by name or by ID."""

    topics: Sequence[str]
    topic_ids: Sequence[bytes] = ()
    timeout_ms: int = REQUEST_TIMEOUT_MS


@frozen
class DeleteTopicsResponse(Response):
    """The error code for each topic name; for topics requested by ID, the error code and name ("" if unknown)."""

    errors: Mapping[str, ErrorCode]
    by_id: Mapping[bytes, tuple[ErrorCode, str]] = field(factory=dict)


@api(21, (0, 1), flexible=2)
@frozen
class DeleteRecords(RequestFor["DeleteRecordsResponse"]):
    """Raise the log start offsets of partitions, which deletes earlier records; -1 means the high watermark."""

    offsets: Annotated[Mapping[TopicPartition, Int64], wire("topics", value="offset")]
    timeout_ms: Int32 = REQUEST_TIMEOUT_MS


class DeletedRecords(NamedTuple):
    """The result of ``DeleteRecords`` for one partition: the error code and the new log start offset."""

    error: ErrorCode
    low_watermark: Annotated[Int64, wire(before="error")]


@frozen
class DeleteRecordsResponse(Response):
    """The error code and the new log start offset for each partition."""

    partitions: Annotated[Mapping[TopicPartition, DeletedRecords], wire("topics")]


@api(3, (0, 12), flexible=9, throttled=3)
@frozen
class Metadata(RequestFor["MetadataResponse"]):
    """Request the metadata of topics, or of all topics if ``topics`` is None.

    Unknown topics are created if the broker configuration and this request allow it.  ``topic_ids`` requests
    additional topics by ID (KIP-516).  Authorized operations are bit sets (KIP-430).
    """

    topics: Sequence[str] | None = None
    allow_auto_topic_creation: bool = True
    topic_ids: Sequence[bytes] = ()
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


#: The ID of an unknown topic, or of a topic that has no ID.
NO_TOPIC_ID = bytes(16)


@frozen
class TopicMetadata:
    """The metadata of a topic: the broker ID of each partition leader, and the topic configuration.

    ``partitioner`` is the user-defined partitioner, which is only available within the broker process.  ``topic_id``
    distinguishes a topic from earlier topics with the same name (KIP-516).
    """

    name: str
    error: ErrorCode
    leaders: Sequence[int] = ()
    config: Mapping[str, str] = field(factory=dict)
    is_internal: bool = False
    partitioner: Partitioner | None = None
    topic_id: bytes = NO_TOPIC_ID


@frozen
class MetadataResponse(Response):
    """The requested topics, and the addresses of the brokers by broker ID ("" within a process).

    ``controller_id`` is -1 if the controller is unknown.  ``racks`` has the racks of the brokers that have one.
    """

    brokers: Mapping[int, str]
    topics: Sequence[TopicMetadata]
    controller_id: int = -1
    racks: Mapping[int, str] = field(factory=dict)


# --- records --------------------------------------------------------------------------


def _storage_error_since(since: int) -> Mapping[ErrorCode, tuple[int, ErrorCode]]:
    return {ErrorCode.STORAGE_ERROR: (since, ErrorCode.NOT_LEADER_OR_FOLLOWER)}


def _fenced_since(since: int) -> Mapping[ErrorCode, tuple[int, ErrorCode]]:
    return {ErrorCode.PRODUCER_FENCED: (since, ErrorCode.INVALID_PRODUCER_EPOCH)}


@api(0, (3, 12), flexible=9, throttled=None, later_errors=_storage_error_since(4))
@frozen
class Produce(RequestFor["ProduceResponse"]):
    """Append blocks of records to partitions; the broker assigns the offsets.

    Blocks from an idempotent producer carry its ID, epoch and sequence; ``transactional_id`` is set if the blocks
    belong to a transaction.  With ``adds_partitions``, the broker adds the partitions to the transaction (KIP-890);
    otherwise ``AddPartitionsToTxn`` has added them.
    """

    blocks: Mapping[TopicPartition, Sequence[Block]]
    acks: int = -1
    transactional_id: str | None = None
    adds_partitions: bool = False


# Not frozen, which would make each of them slower: there is one for each partition of each request.
@define
class Produced:
    """The result of a produce request for one partition; an offset or timestamp of -1 is unknown.

    ``log_append_time_ms`` is set for topics with ``message.timestamp.type=LogAppendTime``.  If records are refused,
    ``record_errors`` has a reason by their position in the batch (KIP-467).
    """

    error: ErrorCode
    base_offset: Int64 = -1
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, wire(since=5, is_ignorable=True)] = -1
    record_errors: Annotated[
        Mapping[Int32, Annotated[str, wire(nullable=8, default=None)]],
        wire(since=8, is_ignorable=True, key="batch_index", value="batch_index_error_message"),
    ] = field(factory=dict)
    message: Annotated[ErrorText, wire(since=8, nullable=8, is_ignorable=True)] = ""
    current_leader: ClassVar[Annotated[None, Struct(LEADER), wire(since=10, tag=0, is_ignorable=True)]] = None


@frozen
class ProduceResponse(Response):
    """The result of a produce request for each partition."""

    partitions: Annotated[
        Mapping[TopicPartition, Produced], wire("responses", partitions="partition_responses", index="index")
    ]
    throttle_time_ms: ClassVar[Int32] = 0
    node_endpoints: ClassVar[Annotated[Sequence[Any], NODES, wire(since=10, tag=0, is_ignorable=True)]] = ()


READ_UNCOMMITTED = 0
READ_COMMITTED = 1

#: Epoch of a fetch without a session, which also ends the session that it names, and of one that begins a session.
FINAL_EPOCH = -1
INITIAL_EPOCH = 0


_FETCHED: Final = wire(
    "topics",
    topic="topic",
    index="partition",
    ids_since=13,
    ahead=(Field("current_leader_epoch", INT32, since=9, default=-1, is_ignorable=True),),
    value="fetch_offset",
    more=(
        Field("last_fetched_epoch", INT32, since=12, default=-1),
        Field("log_start_offset", INT64, since=5, default=-1, is_ignorable=True),
        Field("partition_max_bytes", INT32),
        Field("replica_directory_id", UUID, since=17, tag=0, default=UUID.zero, is_ignorable=True),
        Field("high_watermark", INT64, since=18, tag=1, default=LONG_MAX, is_ignorable=True),
    ),
)
# Of followers, which this broker has not (KIP-903).
_REPLICA: Final = Struct((Field("replica_id", INT32, default=-1), Field("replica_epoch", INT64, default=-1)))


@api(1, (4, 18), flexible=12, later_errors=_storage_error_since(6))
@frozen
class Fetch(RequestFor["FetchResponse"]):
    """Read records; ``positions`` maps each partition to the offset to read from.

    The broker waits up to ``max_wait_ms`` for records.  With ``READ_COMMITTED``, no records at or above the last
    stable offset are returned, and the response lists the aborted transactions, whose records the consumer skips.

    Within a process, ``max_records`` limits the number of records per partition.  Over TCP (``as_bytes``), stored
    batches are returned unchanged: the broker waits for ``min_bytes``, ``max_bytes`` limits the whole response, and
    ``partition_max_bytes`` or ``limits`` limits each partition; the first batch may exceed these limits (KIP-74).
    ``rack_id`` is the rack of the client (KIP-392).  With ``by_id`` each topic is named by its ID (KIP-516) throughout
    request and response: the ID stands in its partitions in place of the name.

    In a fetch session (KIP-227), a request with ``session_epoch`` 0 names all partitions and begins a session.  The
    following ones, with its ID and the epochs 1, 2, and so on, name only partitions that are new or have another
    position, and those that are ``forgotten``.
    """

    cluster_id: ClassVar[Annotated[str | None, wire(since=12, tag=0, is_ignorable=True)]] = None
    replica_id: ClassVar[Annotated[Int32, wire(until=14)]] = -1
    replica_state: ClassVar[Annotated[None, _REPLICA, wire(since=15, tag=1, is_ignorable=True)]] = None
    positions: Annotated[Mapping[TopicPartition, Int64], _FETCHED]
    max_wait_ms: Annotated[Int32, wire(before="positions")] = 500
    max_records: Local[int] = 10_000
    isolation_level: Annotated[Int8, wire(before="positions")] = READ_UNCOMMITTED
    max_bytes: Annotated[Int32, wire(before="isolation_level")] = 52_428_800
    partition_max_bytes: Local[int] = 1_048_576
    min_bytes: Annotated[Int32, wire(before="max_bytes")] = 1
    limits: Local[Mapping[TopicPartition, int]] = field(factory=dict)
    as_bytes: Local[bool] = False
    by_id: Local[bool] = False
    rack_id: Annotated[str, wire(since=11, is_ignorable=True)] = ""
    session_id: Annotated[Int32, wire(since=7, is_ignorable=True, before="positions")] = 0
    session_epoch: Annotated[Int32, wire(since=7, is_ignorable=True, before="positions")] = FINAL_EPOCH
    forgotten: Annotated[
        Sequence[TopicPartition], wire("forgotten_topics_data", topic="topic", ids_since=13, since=7, before="rack_id")
    ] = ()


@frozen
class AbortedTransaction:
    """An aborted transaction.

    Consumers skip the records of the producer from ``first_offset`` to its next abort marker.
    """

    producer_id: int
    first_offset: int


class FetchedPartition(NamedTuple):
    """The records fetched from one partition: blocks in offset order, including control blocks.

    ``high_watermark`` is the next offset to be written.  ``last_stable_offset`` is the first offset of the oldest open
    transaction, or the high watermark if no transaction is open.  ``aborted`` is set only with ``READ_COMMITTED``, and
    is ordered by first offset.  ``chunks`` has the encoded batches if the fetch has ``as_bytes``.
    ``preferred_read_replica`` is the broker to fetch from instead, without records; -1 for none (KIP-392).
    """

    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    blocks: Sequence[Block] = ()
    last_stable_offset: int = -1
    aborted: Sequence[AbortedTransaction] = ()
    chunks: Sequence[bytes] = ()
    preferred_read_replica: int = -1


@frozen
class FetchResponse(Response):
    """The records fetched from each partition, or the error of the whole request.

    In a fetch session, partitions with nothing new since the last response are absent.  ``session_id`` is 0 if the
    broker has no session for the following requests.
    """

    partitions: Mapping[TopicPartition, FetchedPartition]
    error: ErrorCode = ErrorCode.NONE
    session_id: int = 0


EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5


@api(2, (1, 9), flexible=6, throttled=2)
@frozen
class ListOffsets(RequestFor["ListOffsetsResponse"]):
    """Request, for each partition, the offset of the first record at or after a timestamp in milliseconds.

    The timestamp -2 requests the earliest offset, and -1 the latest offset, which is the last stable offset with
    ``READ_COMMITTED``.
    """

    replica_id: ClassVar[Int32] = -1
    timestamps: Annotated[Mapping[TopicPartition, Int64], wire("topics", ahead=(_LEADER_EPOCH,), value="timestamp")]
    isolation_level: Annotated[Int8, wire(since=2, before="timestamps")] = READ_UNCOMMITTED


class ListedOffset(NamedTuple):
    """The timestamp in milliseconds, offset and leader epoch of the matching record; -1 if there is none."""

    error: ErrorCode
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, wire(since=4, is_ignorable=True)] = -1


@frozen
class ListOffsetsResponse(Response):
    """The timestamp and offset found for each partition."""

    partitions: Annotated[Mapping[TopicPartition, ListedOffset], wire("topics")]


# --- groups ---------------------------------------------------------------------------


COORDINATOR_GROUP = 0
COORDINATOR_TRANSACTION = 1


@api(10, (0, 6), flexible=3, throttled=1)
@frozen
class FindCoordinator(RequestFor["FindCoordinatorResponse"]):
    """Request the broker that coordinates a group or a transactional ID."""

    key: str
    key_type: int = COORDINATOR_GROUP


@frozen
class FindCoordinatorResponse(Response):
    """The broker ID of the coordinator."""

    error: ErrorCode
    node_id: int


# --- transactions (KIP-98, KIP-447) ---------------------------------------------------


@api(22, (0, 4), flexible=2, later_errors=_fenced_since(4))
@frozen
class InitProducerId(RequestFor["InitProducerIdResponse"]):
    """Request a producer ID and epoch.

    With a transactional ID, the previous producer is fenced, and its transaction is aborted.
    """

    transactional_id: str | None = None
    transaction_timeout_ms: Int32 = 60_000
    producer_id: Annotated[Int64, wire(since=3)] = -1
    producer_epoch: Annotated[Int16, wire(since=3)] = -1


@frozen
class InitProducerIdResponse(Response):
    """The producer ID and epoch that the producer must use from now on."""

    error: ErrorCode
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1


@api(24, (0, 2), flexible=3, later_errors=_fenced_since(2))
@frozen
class AddPartitionsToTxn(RequestFor["AddPartitionsToTxnResponse"]):
    """Add partitions to the transaction of a producer, before the producer sends records to them."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    partitions: Annotated[Sequence[TopicPartition], wire("topics")]


@frozen
class AddPartitionsToTxnResponse(Response):
    """The error code for each partition; if one is rejected, the others get ``OPERATION_NOT_ATTEMPTED``."""

    errors: Annotated[
        Mapping[TopicPartition, ErrorCode],
        wire("results", partitions="results_by_partition", value="partition_error_code"),
    ]


@api(25, (0, 2), flexible=3, later_errors=_fenced_since(2))
@frozen
class AddOffsetsToTxn(RequestFor["AddOffsetsToTxnResponse"]):
    """Add a consumer group to a transaction, before the transaction commits offsets of the group."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


@frozen
class AddOffsetsToTxnResponse(Response):
    """The response to ``AddOffsetsToTxn``, which has only an error code."""

    error: ErrorCode


@api(28, (0, 5), flexible=3)
@frozen
class TxnOffsetCommit(RequestFor["TxnOffsetCommitResponse"]):
    """Commit offsets of a group as part of a transaction; they take effect when the transaction is committed.

    With ``adds_group``, the broker adds the group to the transaction (KIP-890); otherwise ``AddOffsetsToTxn`` has.
    """

    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    offsets: Annotated[Mapping[TopicPartition, OffsetAndMetadata], wire("topics", since_of={"leader_epoch": 2})]
    generation_id: Annotated[Int32, wire(since=3, before="offsets")] = -1
    member_id: Annotated[str, wire(since=3, before="offsets")] = ""
    group_instance_id: Annotated[str | None, wire(since=3, before="offsets")] = None
    adds_group: Annotated[bool, implied(since=5)] = False


@frozen
class TxnOffsetCommitResponse(Response):
    """The result of ``TxnOffsetCommit``: the error code for each partition."""

    errors: Annotated[Mapping[TopicPartition, ErrorCode], wire("topics")]


@api(26, (0, 5), flexible=3, later_errors=_fenced_since(2))
@frozen
class EndTxn(RequestFor["EndTxnResponse"]):
    """Commit or abort a transaction, so that markers are written to all its partitions.

    With ``bumps_epoch``, the producer continues with the producer ID and epoch in the response (KIP-890); older clients
    keep theirs.
    """

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    is_commit: Annotated[bool, wire("committed")]
    bumps_epoch: Annotated[bool, implied(since=5)] = True


@frozen
class EndTxnResponse(Response):
    """The producer ID and epoch for the next transaction (KIP-890); late requests with the old epoch are rejected.

    Both are -1 if the producer keeps its producer ID and epoch.
    """

    error: ErrorCode
    producer_id: Annotated[Int64, wire(since=5, is_ignorable=True)] = -1
    producer_epoch: Annotated[Int16, wire(since=5, is_ignorable=True)] = -1
