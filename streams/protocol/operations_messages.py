"""Operations requests and responses: log directories, reassignments, transactions, ACLs and quotas.

Names and meanings follow Kafka's protocol guide, except that ``error_code`` and ``error_message`` are called
``error`` and ``message``; an empty ``message`` means that there is none.  This module imports only
``core``, ``protocol.error_codes`` and ``protocol.request``.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, NamedTuple

from attrs import field, frozen

from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import RequestFor, Response
from streams.protocol.schema import (
    ErrorText,
    Int8,
    Int16,
    Int32,
    Int64,
    api,
    wire,
)


class ErrorWithMessage(NamedTuple):
    """The error code and message for one item of a bulk request, such as a partition or an ACL."""

    error: ErrorCode
    message: ErrorText = ""


# --- partitions and replicas --------------------------------------------------------------


@api(35, (1, 4), flexible=2)
@frozen
class DescribeLogDirs(RequestFor["DescribeLogDirsResponse"]):
    """Request the sizes of partitions on disk (KIP-113); if ``partitions`` is None, all partitions are requested."""

    partitions: Annotated[Sequence[TopicPartition] | None, wire("topics", topic="topic")] = None


@frozen
class LogSize:
    """The size of one partition on disk in bytes (``partition_size``)."""

    partition_size: Int64
    offset_lag: Int64 = 0
    is_future_key: bool = False


@frozen
class LogDir:
    """A log directory of a broker, and the partitions in it."""

    error: ErrorCode
    log_dir: str
    partitions: Annotated[Mapping[TopicPartition, LogSize], wire("topics")]
    total_bytes: ClassVar[Annotated[Int64, wire(since=4, is_ignorable=True)]] = -1
    usable_bytes: ClassVar[Annotated[Int64, wire(since=4, is_ignorable=True)]] = -1


@frozen
class DescribeLogDirsResponse(Response):
    """The log directories with their partitions; partitions that do not exist are absent."""

    results: Sequence[LogDir]
    error: Annotated[ErrorCode, wire(since=3, is_ignorable=True, before="results")] = ErrorCode.NONE


@api(43, (0, 2), flexible=2)
@frozen
class ElectLeaders(RequestFor["ElectLeadersResponse"]):
    """Elect leaders for partitions (KIP-183, KIP-460), or for all partitions if ``partitions`` is None."""

    partitions: Annotated[Sequence[TopicPartition] | None, wire("topic_partitions", topic="topic")] = None
    election_type: Annotated[Int8, wire(since=1, before="partitions")] = 0
    timeout_ms: Int32 = 60_000


@frozen
class ElectLeadersResponse(Response):
    """The result of the leader election for each partition."""

    results: Annotated[
        Mapping[TopicPartition, ErrorWithMessage],
        wire("replica_election_results", topic="topic", partitions="partition_result", index="partition_id"),
    ]
    error: Annotated[ErrorCode, wire(since=1, before="results")] = ErrorCode.NONE


@api(45, (0, 0), flexible=0)
@frozen
class AlterPartitionReassignments(RequestFor["AlterPartitionReassignmentsResponse"]):
    """Move partitions to the given replicas (KIP-455); None for a partition cancels its pending reassignment."""

    replicas: Annotated[
        Mapping[TopicPartition, Annotated[Sequence[Int32] | None, wire(default=None)]], wire("topics", value="replicas")
    ]
    timeout_ms: Annotated[Int32, wire(before="replicas")] = 60_000


@frozen
class AlterPartitionReassignmentsResponse(Response):
    """The result of the requested reassignment for each partition."""

    results: Annotated[Mapping[TopicPartition, ErrorWithMessage], wire("responses")]
    error: Annotated[ErrorCode, wire(before="results")] = ErrorCode.NONE
    message: Annotated[ErrorText, wire(before="results")] = ""


@api(46, (0, 0), flexible=0)
@frozen
class ListPartitionReassignments(RequestFor["ListPartitionReassignmentsResponse"]):
    """Request the reassignments in progress (KIP-455), for all partitions if ``partitions`` is None."""

    partitions: Annotated[Sequence[TopicPartition] | None, wire("topics", partitions="partition_indexes")] = None
    timeout_ms: Annotated[Int32, wire(before="partitions")] = 60_000


@frozen
class Reassignment:
    """An ongoing partition reassignment; all replicas are broker IDs."""

    replicas: Sequence[Int32]
    adding_replicas: Sequence[Int32]
    removing_replicas: Sequence[Int32]


@frozen
class ListPartitionReassignmentsResponse(Response):
    """The reassignments in progress by partition."""

    reassignments: Annotated[Mapping[TopicPartition, Reassignment], wire("topics")] = field(factory=dict)
    error: Annotated[ErrorCode, wire(before="reassignments")] = ErrorCode.NONE
    message: Annotated[ErrorText, wire(before="reassignments")] = ""


# --- producers and transactions (KIP-664) -------------------------------------------------


@frozen
class TxnMarker:
    """A commit or abort marker to write to ``partitions``, which ends the transaction of a producer in them."""

    producer_id: Int64
    producer_epoch: Int16
    is_commit: Annotated[bool, wire("transaction_result")]
    partitions: Annotated[Sequence[TopicPartition], wire("topics", partitions="partition_indexes")]
    coordinator_epoch: Int32 = 0


@api(27, (1, 1), flexible=1, throttled=None)
@frozen
class WriteTxnMarkers(RequestFor["WriteTxnMarkersResponse"]):
    """Write transaction markers to partitions, regardless of the coordinator state."""

    markers: Sequence[TxnMarker]


@frozen
class WrittenMarker:
    """The result of writing one transaction marker: the error code for each partition."""

    producer_id: Int64
    errors: Annotated[Mapping[TopicPartition, ErrorCode], wire("topics")]


@frozen
class WriteTxnMarkersResponse(Response):
    """The results of ``WriteTxnMarkers``, one for each marker, in the order of the request."""

    markers: Sequence[WrittenMarker]


@api(61, (0, 0), flexible=0)
@frozen
class DescribeProducers(RequestFor["DescribeProducersResponse"]):
    """Request the active idempotent and transactional producers of partitions."""

    partitions: Annotated[Sequence[TopicPartition], wire("topics", partitions="partition_indexes")]


@frozen
class DescribedProducer:
    """An active producer of a partition.

    ``current_txn_start_offset`` is -1 if the producer has no open transaction.  ``last_timestamp`` is in milliseconds
    since the epoch.
    """

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Annotated[Int32, wire(default=-1)]
    last_timestamp: Annotated[Int64, wire(default=-1)]
    coordinator_epoch: Int32
    current_txn_start_offset: Annotated[Int64, wire(default=-1)]


@frozen
class PartitionProducers:
    """The active producers of one partition."""

    error: ErrorCode
    active_producers: Sequence[DescribedProducer] = ()
    message: Annotated[ErrorText, wire(before="active_producers")] = ""


@frozen
class DescribeProducersResponse(Response):
    """The active producers of each partition."""

    partitions: Annotated[Mapping[TopicPartition, PartitionProducers], wire("topics")]


@api(65, (0, 0), flexible=0)
@frozen
class DescribeTransactions(RequestFor["DescribeTransactionsResponse"]):
    """Request the transaction state of transactional IDs."""

    transactional_ids: Sequence[str]


@frozen
class DescribedTransaction:
    """The state of one transactional ID; ``transaction_start_time_ms`` is -1 if no transaction is open."""

    error: ErrorCode
    transactional_id: str
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = -1
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1
    partitions: Annotated[Sequence[TopicPartition], wire("topics", topic="topic")] = ()


@frozen
class DescribeTransactionsResponse(Response):
    """The transaction states, one for each distinct transactional ID."""

    transaction_states: Sequence[DescribedTransaction]


@api(66, (0, 1), flexible=0)
@frozen
class ListTransactions(RequestFor["ListTransactionsResponse"]):
    """Request transactional IDs; an empty filter matches all IDs.

    With ``duration_filter`` (in milliseconds), only transactions that have been open for longer match; a negative
    value matches all (KIP-994).
    """

    state_filters: Sequence[str] = ()
    producer_id_filters: Sequence[Int64] = ()
    duration_filter: Annotated[Int64, wire(since=1)] = -1


@frozen
class ListedTransaction:
    """A transactional ID and its state."""

    transactional_id: str
    producer_id: Int64
    transaction_state: str


@frozen
class ListTransactionsResponse(Response):
    """The matching transactional IDs; ``unknown_state_filters`` has the state filters that are not valid states."""

    error: ErrorCode
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[ListedTransaction]


# --- access control and quotas ------------------------------------------------------------


@frozen
class AclFilter:
    """A filter for ACLs; a name, principal or host of None matches any value.

    The numeric attributes are numbers from Kafka's enumerations, such as ``AclOperation``.
    """

    resource_type_filter: Int8
    resource_name_filter: str | None
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8
    pattern_type_filter: Annotated[Int8, wire(before="principal_filter")] = 3


@api(29, (1, 3), flexible=2)
@frozen
class DescribeAcls(AclFilter, RequestFor["DescribeAclsResponse"]):
    """Request the ACLs that match a filter (KIP-140, KIP-290); the attributes are the same as in ``AclFilter``."""


@frozen
class Acl:
    """An access control entry: a principal, a host, an operation, and whether the operation is allowed."""

    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@frozen
class ResourceAcls:
    """The ACLs of one resource pattern."""

    resource_type: Int8
    resource_name: str
    acls: Sequence[Acl]
    pattern_type: Annotated[Int8, wire(before="acls")] = 3


@frozen
class DescribeAclsResponse(Response):
    """The matching ACLs by resource."""

    error: ErrorCode
    message: ErrorText = ""
    resources: Sequence[ResourceAcls] = ()


@frozen
class NewAcl:
    """An ACL to create: a resource pattern and an access control entry."""

    resource_type: Int8
    resource_name: str
    principal: str
    host: str
    operation: Int8
    permission_type: Int8
    resource_pattern_type: Annotated[Int8, wire(before="principal")] = 3


@api(30, (1, 3), flexible=2)
@frozen
class CreateAcls(RequestFor["CreateAclsResponse"]):
    """Create ACLs (KIP-140), each with its own result."""

    creations: Sequence[NewAcl]


@frozen
class CreateAclsResponse(Response):
    """The results of ``CreateAcls``, one for each ACL, in the order of the request."""

    results: Sequence[ErrorWithMessage]


@api(31, (1, 3), flexible=2)
@frozen
class DeleteAcls(RequestFor["DeleteAclsResponse"]):
    """Delete the ACLs that match any of the filters (KIP-140)."""

    filters: Sequence[AclFilter]


@frozen
class DeletedAcl:
    """An ACL that matched a deletion filter, and the result of deleting it."""

    error: ErrorCode
    resource_type: Int8
    resource_name: str
    principal: str
    host: str
    operation: Int8
    permission_type: Int8
    pattern_type: Annotated[Int8, wire(before="principal")] = 3
    message: Annotated[ErrorText, wire(before="resource_type")] = ""


@frozen
class DeletedAcls:
    """The result of one deletion filter: an error, or the ACLs that matched the filter."""

    error: ErrorCode
    message: ErrorText = ""
    matching_acls: Sequence[DeletedAcl] = ()


@frozen
class DeleteAclsResponse(Response):
    """The results of ``DeleteAcls``, one for each filter, in the order of the request."""

    filter_results: Sequence[DeletedAcls]


@frozen
class QuotaFilter:
    """A filter for quota entities; a ``match`` of None means any name, or the default entity (KIP-546)."""

    entity_type: str
    match_type: Int8
    match: str | None


@api(48, (0, 1), flexible=1)
@frozen
class DescribeClientQuotas(RequestFor["DescribeClientQuotasResponse"]):
    """Request the quotas of matching entities; ``strict`` excludes entities with additional components (KIP-546)."""

    components: Sequence[QuotaFilter]
    strict: bool


@frozen
class QuotaEntity:
    """One component of a quota entity, such as a user; an ``entity_name`` of None means the default entity."""

    entity_type: str
    entity_name: str | None


@frozen
class QuotaEntry:
    """The quotas of one entity: the quota values by name."""

    entity: Sequence[QuotaEntity]
    values: Annotated[Mapping[str, float], wire(key="key", value="value")]


@frozen
class DescribeClientQuotasResponse(Response):
    """The quotas of the matching entities."""

    error: ErrorCode
    message: ErrorText = ""
    entries: Annotated[Sequence[QuotaEntry], wire(nullable=0)] = ()
