"""Requests and responses of operators' tools: log directories, reassignments, transactions, ACLs, quotas.

Names and meanings are those of Kafka's protocol guide.  ``error`` and ``message`` are ``error_code`` and
``error_message`` there; an empty ``message`` means none.  Imports core only.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from attrs import field, frozen

from streams.core.records import TopicPartition
from streams.protocol.error_codes import ErrorCode


class ErrorWithMessage(NamedTuple):
    """The result of one operation of a bulk request."""

    error: ErrorCode
    message: str = ""


# --- partitions and replicas --------------------------------------------------------------


@frozen
class DescribeLogDirs:
    """Get the sizes of partitions on disk (KIP-113); None = all."""

    partitions: Sequence[TopicPartition] | None = None


@frozen
class LogSize:
    """Size of one partition in bytes."""

    partition_size: int
    offset_lag: int = 0
    is_future_key: bool = False


@frozen
class LogDir:
    """A log directory and the partitions in it."""

    error: ErrorCode
    log_dir: str
    partitions: Mapping[TopicPartition, LogSize]


@frozen
class DescribeLogDirsResponse:
    """Directories; partitions that do not exist are absent."""

    results: Sequence[LogDir]
    error: ErrorCode = ErrorCode.NONE


@frozen
class ElectLeaders:
    """Elect leaders of partitions (KIP-183, KIP-460); None = all."""

    partitions: Sequence[TopicPartition] | None = None
    election_type: int = 0
    timeout_ms: int = 60_000


@frozen
class ElectLeadersResponse:
    """Result per partition."""

    results: Mapping[TopicPartition, ErrorWithMessage]
    error: ErrorCode = ErrorCode.NONE


@frozen
class AlterPartitionReassignments:
    """Move replicas of partitions (KIP-455); replicas None = cancel a pending reassignment."""

    replicas: Mapping[TopicPartition, Sequence[int] | None]
    timeout_ms: int = 60_000


@frozen
class AlterPartitionReassignmentsResponse:
    """Result per partition."""

    results: Mapping[TopicPartition, ErrorWithMessage]
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@frozen
class ListPartitionReassignments:
    """Ask for reassignments in progress (KIP-455); None = of all partitions."""

    partitions: Sequence[TopicPartition] | None = None
    timeout_ms: int = 60_000


@frozen
class Reassignment:
    """A reassignment in progress; node ids."""

    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]


@frozen
class ListPartitionReassignmentsResponse:
    """Reassignments in progress, per partition."""

    reassignments: Mapping[TopicPartition, Reassignment] = field(factory=dict)
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


# --- producers and transactions (KIP-664) -------------------------------------------------


@frozen
class TxnMarker:
    """The end of a producer's transaction in some partitions."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: Sequence[TopicPartition]
    coordinator_epoch: int = 0


@frozen
class WriteTxnMarkers:
    """Write transaction markers to partitions, regardless of the coordinator's state."""

    markers: Sequence[TxnMarker]


@frozen
class WrittenMarker:
    """Error per partition of one marker."""

    producer_id: int
    errors: Mapping[TopicPartition, ErrorCode]


@frozen
class WriteTxnMarkersResponse:
    """One result for each marker, in order."""

    markers: Sequence[WrittenMarker]


@frozen
class DescribeProducers:
    """Get the active idempotent and transactional producers of partitions."""

    partitions: Sequence[TopicPartition]


@frozen
class DescribedProducer:
    """An active producer; ``current_txn_start_offset`` -1 = no open transaction, times in epoch milliseconds."""

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
class DescribeProducersResponse:
    """Active producers per partition."""

    partitions: Mapping[TopicPartition, PartitionProducers]


@frozen
class DescribeTransactions:
    """Ask for the states of transactional ids."""

    transactional_ids: Sequence[str]


@frozen
class DescribedTransaction:
    """State of one transactional id; ``transaction_start_time_ms`` -1 = none is open."""

    error: ErrorCode
    transactional_id: str
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    partitions: Sequence[TopicPartition] = ()


@frozen
class DescribeTransactionsResponse:
    """One state for each distinct id."""

    transaction_states: Sequence[DescribedTransaction]


@frozen
class ListTransactions:
    """Ask for transactional ids; empty filters take all.

    ``duration_filter``: only transactions open for longer, in milliseconds; below 0 = all (KIP-994).
    """

    state_filters: Sequence[str] = ()
    producer_id_filters: Sequence[int] = ()
    duration_filter: int = -1


@frozen
class ListedTransaction:
    """A transactional id and its state."""

    transactional_id: str
    producer_id: int
    transaction_state: str


@frozen
class ListTransactionsResponse:
    """Transactional ids; ``unknown_state_filters`` are filters that are not states."""

    error: ErrorCode
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[ListedTransaction]


# --- access control and quotas ------------------------------------------------------------


@frozen
class AclFilter:
    """A filter for ACLs; names None = any.  Numbers are those of Kafka's enumerations."""

    resource_type_filter: int
    resource_name_filter: str | None
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    pattern_type_filter: int = 3


@frozen
class DescribeAcls:
    """Ask for the ACLs that a filter matches (KIP-140, KIP-290); the attributes are those of ``AclFilter``."""

    resource_type_filter: int
    resource_name_filter: str | None
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    pattern_type_filter: int = 3


@frozen
class Acl:
    """An access control entry: a principal, a host, an operation, and whether it is allowed."""

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
class DescribeAclsResponse:
    """Matching ACLs by resource."""

    error: ErrorCode
    message: str = ""
    resources: Sequence[ResourceAcls] = ()


@frozen
class NewAcl:
    """An ACL to create."""

    resource_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission_type: int
    resource_pattern_type: int = 3


@frozen
class CreateAcls:
    """Create ACLs."""

    creations: Sequence[NewAcl]


@frozen
class CreateAclsResponse:
    """One result for each ACL, in order."""

    results: Sequence[ErrorWithMessage]


@frozen
class DeleteAcls:
    """Delete the ACLs that filters match."""

    filters: Sequence[AclFilter]


@frozen
class DeletedAcl:
    """An ACL that a filter matched."""

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
    """The result of one filter."""

    error: ErrorCode
    message: str = ""
    matching_acls: Sequence[DeletedAcl] = ()


@frozen
class DeleteAclsResponse:
    """One result for each filter, in order."""

    filter_results: Sequence[DeletedAcls]


@frozen
class QuotaFilter:
    """A filter for quota entities; ``match`` None = any, or the default (KIP-546)."""

    entity_type: str
    match_type: int
    match: str | None


@frozen
class DescribeClientQuotas:
    """Get the quotas of matching entities; ``strict``: exclude entities with further components."""

    components: Sequence[QuotaFilter]
    strict: bool


@frozen
class QuotaEntity:
    """One component of an entity; None = the default."""

    entity_type: str
    entity_name: str | None


@frozen
class QuotaEntry:
    """The quotas of an entity, by name."""

    entity: Sequence[QuotaEntity]
    values: Mapping[str, float]


@frozen
class DescribeClientQuotasResponse:
    """Quotas of matching entities."""

    error: ErrorCode
    message: str = ""
    entries: Sequence[QuotaEntry] = ()


OperationsRequest: TypeAlias = (
    DescribeLogDirs
    | ElectLeaders
    | AlterPartitionReassignments
    | ListPartitionReassignments
    | WriteTxnMarkers
    | DescribeProducers
    | DescribeTransactions
    | ListTransactions
    | DescribeAcls
    | CreateAcls
    | DeleteAcls
    | DescribeClientQuotas
)
OperationsResponse: TypeAlias = (
    DescribeLogDirsResponse
    | ElectLeadersResponse
    | AlterPartitionReassignmentsResponse
    | ListPartitionReassignmentsResponse
    | WriteTxnMarkersResponse
    | DescribeProducersResponse
    | DescribeTransactionsResponse
    | ListTransactionsResponse
    | DescribeAclsResponse
    | CreateAclsResponse
    | DeleteAclsResponse
    | DescribeClientQuotasResponse
)
