"""Session and administration requests and responses: versions, SASL, settings, replicas, transactions, ACLs and quotas.

Names and meanings follow Kafka's protocol guide, except that ``error_code`` and ``error_message`` are called
``error`` and ``message``; an empty ``message`` means that there is none.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Annotated, ClassVar, NamedTuple

from attrs import field, frozen

from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import RequestFor, Response
from streams.protocol.schema import NEVER, ErrorText, Int8, Int16, Int32, Int64, Uuid, api, wire

# --- the session (KIP-35, KIP-43, KIP-152) ------------------------------------------------


#: The name of this library as a client (KIP-511).
SOFTWARE = "streams-python"
SOFTWARE_VERSION = "1"


@api(18, (0, 3), flexible=3, throttled=None)
@frozen
class ApiVersions(RequestFor["ApiVersionsResponse"]):
    """Request the APIs that the broker serves, with their versions (KIP-35, KIP-511)."""

    client_software_name: Annotated[str, wire(since=3, is_ignorable=True)] = ""
    client_software_version: Annotated[str, wire(since=3, is_ignorable=True)] = ""


class VersionRange(NamedTuple):
    """The lowest and highest supported versions of an API."""

    min_version: Int16
    max_version: Int16


class FinalizedLevels(NamedTuple):
    """The version levels of a feature that all brokers of a cluster have agreed on."""

    max_version_level: Int16
    min_version_level: Int16


#: The feature that says which transactions producers use; with level 2 those of KIP-890, second part.
TRANSACTION_VERSION = "transaction.version"


@frozen
class ApiVersionsResponse(Response):
    """The supported version range of each API, by API key, and the features of the cluster (KIP-584), by name."""

    error: ErrorCode
    api_keys: Annotated[Mapping[Int16, VersionRange], wire(key="api_key")]
    throttle_time_ms: ClassVar[Annotated[Int32, wire(since=1, is_ignorable=True)]] = 0
    supported_features: Annotated[Mapping[str, VersionRange], wire(since=3, tag=0, is_ignorable=True)] = field(
        factory=dict
    )
    finalized_features_epoch: Annotated[Int64, wire(since=3, tag=1, is_ignorable=True)] = -1
    finalized_features: Annotated[Mapping[str, FinalizedLevels], wire(since=3, tag=2, is_ignorable=True)] = field(
        factory=dict
    )
    zk_migration_ready: ClassVar[Annotated[bool, wire(since=3, tag=3, is_ignorable=True)]] = False


@api(17, (0, 1), flexible=NEVER, throttled=None)
@frozen
class SaslHandshake(RequestFor["SaslHandshakeResponse"]):
    """Choose a SASL mechanism (KIP-43)."""

    mechanism: str


@frozen
class SaslHandshakeResponse(Response):
    """The SASL mechanisms that the broker has enabled."""

    error: ErrorCode
    mechanisms: Sequence[str]


@api(36, (0, 1), flexible=2, throttled=None)
@frozen
class SaslAuthenticate(RequestFor["SaslAuthenticateResponse"]):
    """Send one token of the client's SASL exchange to the broker (KIP-152)."""

    auth_bytes: bytes


@frozen
class SaslAuthenticateResponse(Response):
    """The token of the broker in a SASL exchange.

    If ``session_lifetime_ms`` is not 0, the client must reauthenticate within this time (KIP-368).
    """

    error: ErrorCode
    message: Annotated[str | None, wire("error_message")] = None
    auth_bytes: bytes = b""
    session_lifetime_ms: Annotated[Int64, wire(since=1, is_ignorable=True)] = 0


# --- the cluster --------------------------------------------------------------------------

#: The value of authorized operations that were not requested (KIP-430).
NO_OPERATIONS = -(2**31)


class Operation(IntEnum):
    """An operation on a resource (Kafka's ``AclOperation``)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def operations_bits(*operations: Operation) -> int:
    """Return a bit set of ACL operations (KIP-430)."""
    return sum(1 << operation for operation in operations)


#: An authenticated client may perform all operations on topics.
TOPIC_OPERATIONS = operations_bits(*set(Operation) - {Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE})


@api(60, (0, 0), flexible=0)
@frozen
class DescribeCluster(RequestFor["DescribeClusterResponse"]):
    """Request the brokers and the ID of the cluster (KIP-700)."""

    include_cluster_authorized_operations: bool = False


@frozen
class DescribedBroker:
    """A broker of the cluster; for an in-process connection, ``host`` is empty and ``port`` is -1."""

    broker_id: Int32
    host: str = ""
    port: Int32 = -1
    rack: str | None = None


@frozen
class DescribeClusterResponse(Response):
    """The brokers of the cluster; ``cluster_authorized_operations`` has one bit per Kafka ``AclOperation``."""

    error: ErrorCode
    cluster_id: str
    controller_id: Int32
    brokers: Sequence[DescribedBroker]
    cluster_authorized_operations: Int32 = NO_OPERATIONS
    message: Annotated[ErrorText, wire(before="cluster_id")] = ""


@frozen
class AskedTopic:
    """A topic that is asked for."""

    name: str


@frozen
class PartitionCursor:
    """The partition at which the rest of a long answer begins."""

    topic_name: str
    partition_index: Int32


@api(75, (0, 0), flexible=0)
@frozen
class DescribeTopicPartitions(RequestFor["DescribeTopicPartitionsResponse"]):
    """Request topics with their partitions from ``cursor`` on, in order of their names; all without ``topics``.

    The answer has ``response_partition_limit`` partitions at most, and the cursor of the next ones (KIP-966).
    """

    topics: Sequence[AskedTopic]
    response_partition_limit: Int32 = 2_000
    cursor: PartitionCursor | None = None


@frozen
class DescribedPartition:
    """A partition and the brokers that have it; this broker has no replicas to elect that were in sync before."""

    error: ErrorCode
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    replica_nodes: Sequence[Int32]
    isr_nodes: Sequence[Int32]
    eligible_leader_replicas: ClassVar[Annotated[Sequence[Int32] | None, wire(nullable=0)]] = ()
    last_known_elr: ClassVar[Annotated[Sequence[Int32] | None, wire(nullable=0)]] = ()
    offline_replicas: ClassVar[Sequence[Int32]] = ()


@frozen
class DescribedTopic:
    """A topic, or why it is not described."""

    error: ErrorCode
    name: Annotated[str, wire(nullable=0)]
    topic_id: Uuid
    is_internal: bool = False
    partitions: Sequence[DescribedPartition] = ()
    topic_authorized_operations: Int32 = NO_OPERATIONS


@frozen
class DescribeTopicPartitionsResponse(Response):
    """The topics; ``next_cursor`` is None with the last partition."""

    topics: Sequence[DescribedTopic]
    next_cursor: PartitionCursor | None = None


# --- settings (KIP-133, KIP-226, KIP-339, KIP-1142) ---------------------------------------


class ResourceType(IntEnum):
    """The types of resources that have settings (Kafka's ``ConfigResource.Type``)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a setting value (``DescribeConfigsResponse.ConfigSource``)."""

    TOPIC = 1
    BROKER = 4
    DEFAULT = 5
    GROUP = 8


class ConfigType(IntEnum):
    """The type of a setting value (``DescribeConfigsResponse.ConfigType``)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigOperation(IntEnum):
    """The operation of an incremental change of a setting (``AlterConfigOp.OpType``)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@frozen
class ConfigResource:
    """A resource whose settings are requested; if ``configuration_keys`` is None, all settings are requested."""

    resource_type: Int8
    resource_name: str
    configuration_keys: Sequence[str] | None = None


@api(32, (1, 3), flexible=4)
@frozen
class DescribeConfigs(RequestFor["DescribeConfigsResponse"]):
    """Request the effective settings of resources, including settings that have their default value."""

    resources: Sequence[ConfigResource]
    include_synonyms: bool = False
    include_documentation: Annotated[bool, wire(since=3)] = False


@frozen
class ConfigSynonym:
    """A setting from which another setting can take its value, with the source of the value."""

    name: str
    value: str | None
    source: Int8


@frozen
class DescribedConfig:
    """A setting of a resource, with its effective value and the source of the value."""

    name: str
    value: str | None
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: ClassVar[bool] = False
    config_type: Annotated[Int8, wire(since=3, is_ignorable=True)] = 0
    synonyms: Annotated[Sequence[ConfigSynonym], wire(before="config_type")] = ()
    documentation: Annotated[str | None, wire(since=3, is_ignorable=True)] = None


@frozen
class DescribedResource:
    """The settings of one resource, or the reason why they could not be described."""

    error: ErrorCode
    resource_type: Int8
    resource_name: str
    configs: Sequence[DescribedConfig] = ()
    message: Annotated[ErrorText, wire(before="resource_type")] = ""


@frozen
class DescribeConfigsResponse(Response):
    """The settings of the requested resources, with one entry for each distinct resource."""

    results: Sequence[DescribedResource]


@frozen
class ConfigValue:
    """A setting and its new value; None resets the setting to its default."""

    name: str
    value: str | None


@frozen
class ReplacedConfigs:
    """The complete new settings of a resource; absent settings get their defaults."""

    resource_type: Int8
    resource_name: str
    configs: Sequence[ConfigValue]


@api(33, (0, 1), flexible=2)
@frozen
class AlterConfigs(RequestFor["AlterConfigsResponse"]):
    """Replace all settings of resources; with ``validate_only``, the request is only validated."""

    resources: Sequence[ReplacedConfigs]
    validate_only: bool = False


@frozen
class AlteredResource:
    """The result of changing the settings of one resource."""

    error: ErrorCode
    resource_type: Int8
    resource_name: str
    message: Annotated[ErrorText, wire(before="resource_type")] = ""


@frozen
class AlterConfigsResponse(Response):
    """The results of replacing settings, one for each distinct resource."""

    responses: Sequence[AlteredResource]


@frozen
class ConfigChange:
    """A change of one setting; ``config_operation`` is a ``ConfigOperation``."""

    name: str
    config_operation: Int8
    value: str | None


@frozen
class ChangedConfigs:
    """Changes to individual settings of a resource; other settings are kept."""

    resource_type: Int8
    resource_name: str
    configs: Sequence[ConfigChange]


@api(44, (0, 0), flexible=1)
@frozen
class IncrementalAlterConfigs(RequestFor["IncrementalAlterConfigsResponse"]):
    """Change individual settings of resources (KIP-339); with ``validate_only``, the request is only validated."""

    resources: Sequence[ChangedConfigs]
    validate_only: bool = False


@frozen
class IncrementalAlterConfigsResponse(Response):
    """The results of the changes, one for each distinct resource."""

    responses: Sequence[AlteredResource]


@api(74, (0, 1), flexible=0)
@frozen
class ListConfigResources(RequestFor["ListConfigResourcesResponse"]):
    """Request the resources of the given types that have settings, or of all types (KIP-1142).

    Version 0 of the API can request only client metrics resources.
    """

    resource_types: Annotated[Sequence[Int8], wire(since=1, default=(int(ResourceType.CLIENT_METRICS),))] = ()


@frozen
class ListedResource:
    """A resource that has settings."""

    resource_name: str
    resource_type: Annotated[Int8, wire(since=1, default=ResourceType.CLIENT_METRICS, is_ignorable=True)]


@frozen
class ListConfigResourcesResponse(Response):
    """The resources that have settings, in the order of the requested types."""

    error: ErrorCode
    config_resources: Sequence[ListedResource] = ()


# --- offsets ------------------------------------------------------------------------------


@api(47, (0, 0), flexible=NEVER, throttled=None)
@frozen
class OffsetDelete(RequestFor["OffsetDeleteResponse"]):
    """Delete committed offsets of a group (KIP-496)."""

    group_id: str
    partitions: Annotated[Sequence[TopicPartition], wire("topics", index="partition_index")]


@frozen
class OffsetDeleteResponse(Response):
    """The result of deleting offsets: an error for the whole group, or an error code for each partition."""

    error: ErrorCode
    throttle_time_ms: ClassVar[Int32] = 0
    errors: Annotated[Mapping[TopicPartition, ErrorCode], wire("topics")] = field(factory=dict)


@frozen
class AskedEpoch:
    """A leader epoch whose end offset is requested.

    ``current_leader_epoch`` is the current epoch known to the client, or -1 if it is unknown.
    """

    leader_epoch: Int32
    current_leader_epoch: Annotated[Int32, wire(before="leader_epoch")] = -1


@api(23, (2, 3), flexible=4)
@frozen
class OffsetForLeaderEpoch(RequestFor["OffsetForLeaderEpochResponse"]):
    """Request the end offsets of leader epochs (KIP-101, KIP-320)."""

    replica_id: ClassVar[Annotated[Int32, wire(since=3, is_ignorable=True)]] = -2
    partitions: Annotated[Mapping[TopicPartition, AskedEpoch], wire("topics", topic="topic", index="partition")]


@frozen
class EpochEnd:
    """The end offset of a leader epoch in one partition, or -1 if it is unknown."""

    error: ErrorCode
    partition: ClassVar[Int32]
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


@frozen
class OffsetForLeaderEpochResponse(Response):
    """The end offset of the requested leader epoch for each partition."""

    partitions: Annotated[Mapping[TopicPartition, EpochEnd], wire("topics", topic="topic", index="partition")]


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
