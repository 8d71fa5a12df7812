"""Operations requests and responses: log directories, reassignments, transactions, ACLs and quotas.

Names and meanings follow Kafka's protocol guide, except that ``error_code`` and ``error_message`` are called
``error`` and ``message``; an empty ``message`` means that there is none.  This module imports only
``core``, ``protocol.error_codes`` and ``protocol.request``.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from attrs import field, frozen

from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import RequestFor, Response


class ErrorWithMessage(NamedTuple):
    """The error code and message for one item of a bulk request, such as a partition or an ACL."""

    error: ErrorCode
    message: str = ""


# --- partitions and replicas --------------------------------------------------------------


@frozen
class DescribeLogDirs(RequestFor["DescribeLogDirsResponse"]):
    """Request the sizes of partitions on disk (KIP-113); if ``partitions`` is None, all partitions are requested."""

    partitions: Sequence[TopicPartition] | None = None


@frozen
class LogSize:
    """The size of one partition on disk in bytes (``partition_size``)."""

    partition_size: int
    offset_lag: int = 0
    is_future_key: bool = False


@frozen
class LogDir:
    """A log directory of a broker, and the partitions in it."""

    error: ErrorCode
    log_dir: str
    partitions: Mapping[TopicPartition, LogSize]


@frozen
class DescribeLogDirsResponse(Response):
    """The log directories with their partitions; partitions that do not exist are absent."""

    results: Sequence[LogDir]
    error: ErrorCode = ErrorCode.NONE


@frozen
class ElectLeaders(RequestFor["ElectLeadersResponse"]):
    """Elect leaders for partitions (KIP-183, KIP-460), or for all partitions if ``partitions`` is None."""

    partitions: Sequence[TopicPartition] | None = None
    election_type: int = 0
    timeout_ms: int = 60_000


@frozen
class ElectLeadersResponse(Response):
    """The result of the leader election for each partition."""

    results: Mapping[TopicPartition, ErrorWithMessage]
    error: ErrorCode = ErrorCode.NONE


@frozen
class AlterPartitionReassignments(RequestFor["AlterPartitionReassignmentsResponse"]):
    """Move partitions to the given replicas (KIP-455); None for a partition cancels its pending reassignment."""

    replicas: Mapping[TopicPartition, Sequence[int] | None]
    timeout_ms: int = 60_000


@frozen
class AlterPartitionReassignmentsResponse(Response):
    """The result of the requested reassignment for each partition."""

    results: Mapping[TopicPartition, ErrorWithMessage]
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@frozen
class ListPartitionReassignments(RequestFor["ListPartitionReassignmentsResponse"]):
    """Request the reassignments in progress (KIP-455), for all partitions if ``partitions`` is None."""

    partitions: Sequence[TopicPartition] | None = None
    timeout_ms: int = 60_000


@frozen
class Reassignment:
    """An ongoing partition reassignment; all replicas are broker IDs."""

    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]


@frozen
class ListPartitionReassignmentsResponse(Response):
    """The reassignments in progress by partition."""

    reassignments: Mapping[TopicPartition, Reassignment] = field(factory=dict)
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


# --- producers and transactions (KIP-664) -------------------------------------------------


@frozen
class TxnMarker:
    """A commit or abort marker to write to ``partitions``, which ends the transaction of a producer in them."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: Sequence[TopicPartition]
    coordinator_epoch: int = 0


@frozen
class WriteTxnMarkers(RequestFor["WriteTxnMarkersResponse"]):
    """Write transaction markers to partitions, regardless of the coordinator state."""

    markers: Sequence[TxnMarker]


@frozen
class WrittenMarker:
    """The result of writing one transaction marker: the error code for each partition."""

    producer_id: int
    errors: Mapping[TopicPartition, ErrorCode]


@frozen
class WriteTxnMarkersResponse(Response):
    """The results of ``WriteTxnMarkers``, one for each marker, in the order of the request."""

    markers: Sequence[WrittenMarker]


@frozen
class DescribeProducers(RequestFor["DescribeProducersResponse"]):
    """Request the active idempotent and transactional producers of partitions."""

    partitions: Sequence[TopicPartition]


@frozen
class DescribedProducer:
    """An active producer of a partition.

    ``current_txn_start_offset`` is -1 if the producer has no open transaction.  ``last_timestamp`` is in milliseconds
    since the epoch.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


@frozen
class PartitionProducers:
    """The active producers of one partition."""

    error: ErrorCode
    active_producers: Sequence[DescribedProducer] = ()
    message: str = ""


@frozen
class DescribeProducersResponse(Response):
    """The active producers of each partition."""

    partitions: Mapping[TopicPartition, PartitionProducers]


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
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    partitions: Sequence[TopicPartition] = ()


@frozen
class DescribeTransactionsResponse(Response):
    """The transaction states, one for each distinct transactional ID."""

    transaction_states: Sequence[DescribedTransaction]


@frozen
class ListTransactions(RequestFor["ListTransactionsResponse"]):
    """Request transactional IDs; an empty filter matches all IDs.

    With ``duration_filter`` (in milliseconds), only transactions that have been open for longer match; a negative
    value matches all (KIP-994).
    """

    state_filters: Sequence[str] = ()
    producer_id_filters: Sequence[int] = ()
    duration_filter: int = -1


@frozen
class ListedTransaction:
    """A transactional ID and its state."""

    transactional_id: str
    producer_id: int
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

    resource_type_filter: int
    resource_name_filter: str | None
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    pattern_type_filter: int = 3


@frozen
class DescribeAcls(RequestFor["DescribeAclsResponse"]):
    """Request the ACLs that match a filter (KIP-140, KIP-290); the attributes are the same as in ``AclFilter``."""

    resource_type_filter: int
    resource_name_filter: str | None
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    pattern_type_filter: int = 3


@frozen
class Acl:
    """An access control entry: a principal, a host, an operation, and whether the operation is allowed."""

    principal: str
    host: str
    operation: int
    permission_type: int


@frozen
class ResourceAcls:
    """The ACLs of one resource pattern."""

    resource_type: int
    resource_name: str
    acls: Sequence[Acl]
    pattern_type: int = 3


@frozen
class DescribeAclsResponse(Response):
    """The matching ACLs by resource."""

    error: ErrorCode
    message: str = ""
    resources: Sequence[ResourceAcls] = ()


@frozen
class NewAcl:
    """An ACL to create: a resource pattern and an access control entry."""

    resource_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission_type: int
    resource_pattern_type: int = 3


@frozen
class CreateAcls(RequestFor["CreateAclsResponse"]):
    """Create ACLs (KIP-140), each with its own result."""

    creations: Sequence[NewAcl]


@frozen
class CreateAclsResponse(Response):
    """The results of ``CreateAcls``, one for each ACL, in the order of the request."""

    results: Sequence[ErrorWithMessage]


@frozen
class DeleteAcls(RequestFor["DeleteAclsResponse"]):
    """Delete the ACLs that match any of the filters (KIP-140)."""

    filters: Sequence[AclFilter]


@frozen
class DeletedAcl:
    """An ACL that matched a deletion filter, and the result of deleting it."""

    error: ErrorCode
    resource_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission_type: int
    pattern_type: int = 3
    message: str = ""


@frozen
class DeletedAcls:
    """The result of one deletion filter: an error, or the ACLs that matched the filter."""

    error: ErrorCode
    message: str = ""
    matching_acls: Sequence[DeletedAcl] = ()


@frozen
class DeleteAclsResponse(Response):
    """The results of ``DeleteAcls``, one for each filter, in the order of the request."""

    filter_results: Sequence[DeletedAcls]


@frozen
class QuotaFilter:
    """A filter for quota entities; a ``match`` of None means any name, or the default entity (KIP-546)."""

    entity_type: str
    match_type: int
    match: str | None


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
    values: Mapping[str, float]


@frozen
class DescribeClientQuotasResponse(Response):
    """The quotas of the matching entities."""

    error: ErrorCode
    message: str = ""
    entries: Sequence[QuotaEntry] = ()
