"""Requests and responses of sessions and administration: versions, SASL, settings, group offsets.

Names and meanings are those of Kafka's protocol guide.  ``error`` and ``message`` are ``error_code`` and
``error_message`` there; an empty ``message`` means none.  Imports core only.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from attrs import field, frozen

from streams.core.records import TopicPartition
from streams.protocol.error_codes import ErrorCode

# --- the session (KIP-35, KIP-43, KIP-152) ------------------------------------------------


@frozen
class ApiVersions:
    """Ask which versions of which APIs the broker serves (KIP-35, KIP-511)."""

    client_software_name: str = ""
    client_software_version: str = ""


class VersionRange(NamedTuple):
    """Lowest and highest version of an API."""

    min_version: int
    max_version: int


@frozen
class ApiVersionsResponse:
    """Version ranges by API key."""

    error: ErrorCode
    api_keys: Mapping[int, VersionRange]


@frozen
class SaslHandshake:
    """Choose a SASL mechanism (KIP-43)."""

    mechanism: str


@frozen
class SaslHandshakeResponse:
    """The mechanisms that the broker has enabled."""

    error: ErrorCode
    mechanisms: Sequence[str]


@frozen
class SaslAuthenticate:
    """One token of the client's SASL exchange (KIP-152)."""

    auth_bytes: bytes


@frozen
class SaslAuthenticateResponse:
    """The broker's token.  ``session_lifetime_ms``: reauthenticate within this time; 0 = never (KIP-368)."""

    error: ErrorCode
    message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0


# --- the cluster --------------------------------------------------------------------------

#: Value of authorized operations that were not requested (KIP-430).
NO_OPERATIONS = -(2**31)


@frozen
class DescribeCluster:
    """Ask for the brokers and the id of the cluster (KIP-700)."""

    include_cluster_authorized_operations: bool = False


@frozen
class DescribedBroker:
    """One broker; in process it has no address."""

    broker_id: int
    host: str = ""
    port: int = -1
    rack: str | None = None


@frozen
class DescribeClusterResponse:
    """The brokers of the cluster; ``cluster_authorized_operations`` has one bit per ``AclOperation`` of Kafka."""

    error: ErrorCode
    cluster_id: str
    controller_id: int
    brokers: Sequence[DescribedBroker]
    cluster_authorized_operations: int = NO_OPERATIONS
    message: str = ""


# --- settings (KIP-133, KIP-226, KIP-339, KIP-1142) ---------------------------------------


class ResourceType(IntEnum):
    """Kinds of resources that have settings (Kafka's ``ConfigResource.Type``)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Source of a setting's value (``DescribeConfigsResponse.ConfigSource``)."""

    TOPIC = 1
    BROKER = 4
    DEFAULT = 5


class ConfigType(IntEnum):
    """Type of a setting's value (``DescribeConfigsResponse.ConfigType``)."""

    BOOLEAN = 1
    STRING = 2
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigOperation(IntEnum):
    """Operation of an incremental change (``AlterConfigOp.OpType``)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@frozen
class ConfigResource:
    """A requested resource; ``configuration_keys`` None = all settings."""

    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None = None


@frozen
class DescribeConfigs:
    """Ask for settings, defaults included."""

    resources: Sequence[ConfigResource]
    include_synonyms: bool = False


@frozen
class ConfigSynonym:
    """Another setting that can provide the value."""

    name: str
    value: str | None
    source: int


@frozen
class DescribedConfig:
    """An effective setting of a resource."""

    name: str
    value: str | None
    read_only: bool = False
    config_source: int = -1
    config_type: int = 0
    synonyms: Sequence[ConfigSynonym] = ()


@frozen
class DescribedResource:
    """The settings of one resource."""

    error: ErrorCode
    resource_type: int
    resource_name: str
    configs: Sequence[DescribedConfig] = ()
    message: str = ""


@frozen
class DescribeConfigsResponse:
    """One result for each distinct resource."""

    results: Sequence[DescribedResource]


@frozen
class ConfigValue:
    """A setting and its new value; None = the default."""

    name: str
    value: str | None


@frozen
class ReplacedConfigs:
    """The complete new settings of a resource; absent ones get their defaults."""

    resource_type: int
    resource_name: str
    configs: Sequence[ConfigValue]


@frozen
class AlterConfigs:
    """Replace all settings of resources; ``validate_only``: check only."""

    resources: Sequence[ReplacedConfigs]
    validate_only: bool = False


@frozen
class AlteredResource:
    """The result for one resource."""

    error: ErrorCode
    resource_type: int
    resource_name: str
    message: str = ""


@frozen
class AlterConfigsResponse:
    """One result for each distinct resource."""

    responses: Sequence[AlteredResource]


@frozen
class ConfigChange:
    """A change of one setting; ``config_operation`` is a ``ConfigOperation``."""

    name: str
    config_operation: int
    value: str | None


@frozen
class ChangedConfigs:
    """Changes of single settings of a resource; others stay."""

    resource_type: int
    resource_name: str
    configs: Sequence[ConfigChange]


@frozen
class IncrementalAlterConfigs:
    """Change single settings of resources (KIP-339); ``validate_only``: check only."""

    resources: Sequence[ChangedConfigs]
    validate_only: bool = False


@frozen
class IncrementalAlterConfigsResponse:
    """One result for each distinct resource."""

    responses: Sequence[AlteredResource]


@frozen
class ListConfigResources:
    """Ask which resources have settings, by ``ResourceType``; version 0 asks for client metrics (KIP-1142)."""

    resource_types: Sequence[int] = ()


@frozen
class ListedResource:
    """A resource that has settings."""

    resource_name: str
    resource_type: int


@frozen
class ListConfigResourcesResponse:
    """Resources in the order of the requested types."""

    error: ErrorCode
    config_resources: Sequence[ListedResource] = ()


# --- offsets ------------------------------------------------------------------------------


@frozen
class OffsetDelete:
    """Delete committed offsets of a group (KIP-496)."""

    group_id: str
    partitions: Sequence[TopicPartition]


@frozen
class OffsetDeleteResponse:
    """The error of the group, or one per partition."""

    error: ErrorCode
    errors: Mapping[TopicPartition, ErrorCode] = field(factory=dict)


@frozen
class AskedEpoch:
    """A requested leader epoch; ``current_leader_epoch`` -1 = not known."""

    leader_epoch: int
    current_leader_epoch: int = -1


@frozen
class OffsetForLeaderEpoch:
    """Ask for the end offsets of leader epochs (KIP-101, KIP-320)."""

    partitions: Mapping[TopicPartition, AskedEpoch]


@frozen
class EpochEnd:
    """The end offset of an epoch; -1 if not known."""

    error: ErrorCode
    leader_epoch: int = -1
    end_offset: int = -1


@frozen
class OffsetForLeaderEpochResponse:
    """End offset per partition."""

    partitions: Mapping[TopicPartition, EpochEnd]


AdminRequest: TypeAlias = (
    ApiVersions
    | SaslHandshake
    | SaslAuthenticate
    | DescribeCluster
    | DescribeConfigs
    | AlterConfigs
    | IncrementalAlterConfigs
    | ListConfigResources
    | OffsetDelete
    | OffsetForLeaderEpoch
)
AdminResponse: TypeAlias = (
    ApiVersionsResponse
    | SaslHandshakeResponse
    | SaslAuthenticateResponse
    | DescribeClusterResponse
    | DescribeConfigsResponse
    | AlterConfigsResponse
    | IncrementalAlterConfigsResponse
    | ListConfigResourcesResponse
    | OffsetDeleteResponse
    | OffsetForLeaderEpochResponse
)
