"""Session and administration requests and responses: versions, SASL, settings and group offsets.

Names and meanings follow Kafka's protocol guide, except that ``error_code`` and ``error_message`` are called
``error`` and ``message``; an empty ``message`` means that there is none.  This module imports only
``core``, ``protocol.error_codes`` and ``protocol.request``.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Annotated, ClassVar, NamedTuple

from attrs import field, frozen

from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import RequestFor, Response
from streams.protocol.schema import (
    NEVER,
    ErrorText,
    Int8,
    Int16,
    Int32,
    Int64,
    api,
    wire,
)

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
    include_documentation: ClassVar[Annotated[bool, wire(since=3)]] = False


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
    documentation: ClassVar[Annotated[str | None, wire(since=3, is_ignorable=True)]] = None


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
    """Request the resources of the given types that have settings (KIP-1142).

    Version 0 of the API can request only client metrics resources.
    """

    resource_types: Annotated[Sequence[Int8], wire(since=1)] = ()


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
