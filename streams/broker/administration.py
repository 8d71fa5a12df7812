"""Handlers for administrative requests: settings of topics and groups, group offsets, leader epochs and the cluster.

Each handler receives the broker, the request and the monotonic time in milliseconds, and returns the response.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from attrs import frozen

from streams.broker.broker_settings import TABLE, BrokerSettings
from streams.broker.logs.config import TOPIC_SETTINGS, parse_config
from streams.broker.logs.limits import DESCRIBED_PARTITIONS
from streams.broker.reads import LEADER_EPOCH
from streams.broker.refusals import error_of
from streams.broker.service import Broker, Handler
from streams.core.blocks.records import TopicPartition
from streams.core.errors import BrokerError, ConfigError
from streams.core.settings.setting import INT_MAX, Setting
from streams.protocol.admin_messages import (
    TOPIC_OPERATIONS,
    AlterConfigs,
    AlterConfigsResponse,
    AlteredResource,
    AskedEpoch,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    DescribeCluster,
    DescribeClusterResponse,
    DescribeConfigs,
    DescribeConfigsResponse,
    DescribedBroker,
    DescribedConfig,
    DescribedPartition,
    DescribedResource,
    DescribedTopic,
    DescribeTopicPartitions,
    DescribeTopicPartitionsResponse,
    EpochEnd,
    IncrementalAlterConfigs,
    IncrementalAlterConfigsResponse,
    ListConfigResources,
    ListConfigResourcesResponse,
    ListedResource,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResponse,
    PartitionCursor,
    ReplacedConfigs,
    ResourceType,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import ListGroups, ListGroupsResponse
from streams.protocol.messages import NO_TOPIC_ID
from streams.protocol.request import Response

_TYPES: Final[Mapping[str, ConfigType]] = {
    "bool": ConfigType.BOOLEAN,
    "choice": ConfigType.STRING,
    "decimal": ConfigType.DOUBLE,
    "list": ConfigType.LIST,
    "text": ConfigType.STRING,
}
_WITHOUT_EFFECT: Final = "Accepted and shown, because Kafka has it; without effect in this broker."
_ADVERTISED: Final = Setting("advertised_listeners", "list", "", "Addresses that clients are told.")
# Where the settings of a resource come from that were set explicitly; else they are the broker's.
_SOURCES: Final[Mapping[int, ConfigSource]] = {
    ResourceType.TOPIC: ConfigSource.TOPIC,
    ResourceType.GROUP: ConfigSource.GROUP,
}


# --- the cluster --------------------------------------------------------------------------


def _describe_cluster(machine: Broker, request: DescribeCluster, now_ms: int) -> DescribeClusterResponse:
    node_id = machine.config.node_id
    return DescribeClusterResponse(ErrorCode.NONE, "", node_id, (DescribedBroker(node_id, rack=machine.config.rack),))


def _describe_partitions(
    machine: Broker, request: DescribeTopicPartitions, now_ms: int
) -> DescribeTopicPartitionsResponse:
    topics = machine.topics.by_name
    cursor = request.cursor or PartitionCursor("", 0)
    asked = {topic.name for topic in request.topics} or set(topics)
    is_outside = request.topics and request.cursor is not None and cursor.topic_name not in asked
    if is_outside or cursor.partition_index < 0:
        refused = [DescribedTopic(ErrorCode.INVALID_REQUEST, name, NO_TOPIC_ID) for name in sorted(asked)]
        return DescribeTopicPartitionsResponse(refused if request.topics else ())
    room = max(1, min(request.response_partition_limit, DESCRIBED_PARTITIONS))
    described: list[DescribedTopic] = []
    for name in sorted(name for name in asked if name >= cursor.topic_name):
        if not room:
            return DescribeTopicPartitionsResponse(described, PartitionCursor(name, 0))
        topic = machine.catalogue.metadata_of(name)
        first = cursor.partition_index if name == cursor.topic_name else 0
        numbers = range(first, min(len(topic.leaders), first + room))
        partitions = [
            DescribedPartition(ErrorCode.NONE, number, leader, LEADER_EPOCH, (leader,), (leader,))
            for number, leader in zip(numbers, topic.leaders[first:], strict=False)
        ]
        described.append(
            DescribedTopic(topic.error, name, topic.topic_id, topic.is_internal, partitions, TOPIC_OPERATIONS)
        )
        if numbers.stop < len(topic.leaders):
            return DescribeTopicPartitionsResponse(described, PartitionCursor(name, numbers.stop))
        room -= len(numbers)
    return DescribeTopicPartitionsResponse(described)


# --- settings -----------------------------------------------------------------------------


def _describe_configs(machine: Broker, request: DescribeConfigs, now_ms: int) -> DescribeConfigsResponse:
    # Each resource once, even if the request repeats it: a response row is a thousand times as long as its request.
    distinct = {(asked.resource_type, asked.resource_name): asked for asked in request.resources}.values()
    return DescribeConfigsResponse(tuple(_described(machine, asked, request) for asked in distinct))


def _described(machine: Broker, asked: ConfigResource, request: DescribeConfigs) -> DescribedResource:
    kind = asked.resource_type
    name = asked.resource_name
    try:
        texts, own, table = _settings(machine, kind, name)
    except BrokerError as error:
        code, reason = error_of(error)
        return DescribedResource(code, kind, name, message=reason)
    configs = []
    for setting, value in sorted(texts.items()):
        if asked.configuration_keys is not None and setting not in asked.configuration_keys:
            continue
        is_brokers = kind == ResourceType.TOPIC and setting in machine.topics.defaults
        source = ConfigSource.BROKER if is_brokers else ConfigSource.DEFAULT
        source = _SOURCES.get(kind, ConfigSource.BROKER) if setting in own else source
        is_fixed = kind == ResourceType.BROKER or table[setting].is_fixed
        synonyms = (ConfigSynonym(setting, value, source),) if request.include_synonyms else ()
        text = (table[setting].doc or _WITHOUT_EFFECT) if request.include_documentation else None
        configs.append(DescribedConfig(setting, value, is_fixed, source, _type_of(table[setting]), synonyms, text))
    return DescribedResource(ErrorCode.NONE, kind, name, tuple(configs))


def _settings(
    machine: Broker, kind: int, name: str
) -> tuple[Mapping[str, str], Mapping[str, str], Mapping[str, Setting]]:
    """Return the effective settings of a resource, those of them that were set explicitly, and what they are."""
    if kind == ResourceType.TOPIC:
        topic = machine.topics.topic(name)
        return topic.shown(), topic.config.own, TOPIC_SETTINGS
    configs = machine.coordinator.configs
    node_id = str(machine.config.node_id)
    if kind == ResourceType.BROKER and name in ("", node_id):
        texts = BrokerSettings(machine.config, configs.defaults, machine.topics.defaults).shown()
        own = {name: text for name, text in texts.items() if text != TABLE[name].text_of(TABLE[name].default)}
        ours = {"broker.id": node_id, "advertised.listeners": ",".join(machine.advertised())}
        return texts | ours, own | ours, {**TABLE, "broker.id": TABLE["node.id"], "advertised.listeners": _ADVERTISED}
    if kind == ResourceType.GROUP:
        return configs.shown(name), configs.own(name), configs.table
    if kind == ResourceType.BROKER_LOGGER and name == node_id:
        # Kafka has settings for loggers; this broker has none.
        return {}, {}, {}
    raise BrokerError(
        f"resource {name!r} of type {kind} has no settings: ask for topics ({ResourceType.TOPIC}) or broker "
        f"{node_id} ({ResourceType.BROKER})",
        code=ErrorCode.INVALID_REQUEST,
    )


def _type_of(setting: Setting) -> ConfigType:
    if setting.kind in _TYPES:
        return _TYPES[setting.kind]
    return ConfigType.INT if setting.maximum is not None and setting.maximum <= INT_MAX else ConfigType.LONG


@frozen
class _Resource:
    """A resource whose settings can be altered: all of them, those that were set, and what they are.

    ``check`` raises an error if it cannot have certain settings, ``alter`` replaces the settings.
    """

    what: str
    shown: Mapping[str, str]
    own: Mapping[str, str]
    table: Mapping[str, Setting]
    check: Callable[[Mapping[str, str]], object]
    alter: Callable[[str, Mapping[str, str], int], None]


def _resource(machine: Broker, kind: int, name: str) -> _Resource:
    if kind == ResourceType.TOPIC:
        parse = partial(parse_config, of_broker=machine.topics.defaults)
        return _Resource(f"topic {name!r}", *_settings(machine, kind, name), parse, machine.alter_topic)
    if kind == ResourceType.GROUP:
        check = machine.coordinator.configs.check
        return _Resource(f"group {name!r}", *_settings(machine, kind, name), check, machine.groups.alter_configs)
    raise BrokerError(
        f"resource {name!r} of type {kind}: only settings of topics and groups can be altered",
        code=ErrorCode.INVALID_REQUEST,
    )


def _alter_configs(machine: Broker, request: AlterConfigs, now_ms: int) -> AlterConfigsResponse:
    def changed(resource: _Resource, asked: ReplacedConfigs) -> dict[str, str]:
        # Settings that are fixed at creation are kept, whether the request names them or not.
        fixed = {name: value for name, value in resource.own.items() if resource.table[name].is_fixed}
        return fixed | {item.name: item.value for item in asked.configs if item.value is not None}

    return AlterConfigsResponse(_altered(machine, now_ms, request, changed))


def _incremental_alter_configs(
    machine: Broker, request: IncrementalAlterConfigs, now_ms: int
) -> IncrementalAlterConfigsResponse:
    def changed(resource: _Resource, asked: Any) -> dict[str, str]:
        texts = dict(resource.own)
        for item in asked.configs:
            _change(texts, resource, item)
        return texts

    return IncrementalAlterConfigsResponse(_altered(machine, now_ms, request, changed))


def _change(texts: dict[str, str], resource: _Resource, change: ConfigChange) -> None:
    name = change.name
    operation = change.config_operation
    value = change.value
    if operation == ConfigOperation.DELETE:
        texts.pop(name, None)
        return
    if value is None or operation not in ConfigOperation._value2member_map_:
        raise BrokerError(
            f"setting {name} of {resource.what}: operation {operation} with value {value!r}",
            code=ErrorCode.INVALID_REQUEST,
        )
    if operation == ConfigOperation.SET:
        texts[name] = value
        return
    # Lists without an effect are shown only.
    if (setting := resource.table.get(name)) is None or setting.kind != "list" or not setting.doc:
        raise BrokerError(
            f"setting {name} of {resource.what} is not a list: set it instead", code=ErrorCode.INVALID_CONFIG
        )
    is_added = operation == ConfigOperation.APPEND
    items = [item.strip() for item in resource.shown[name].split(",") if item.strip()]
    changes = [item.strip() for item in value.split(",")]
    remaining = [item for item in items if is_added or item not in changes]
    added = [item for item in changes if is_added and item not in items]
    texts[name] = ",".join(remaining + added)


def _altered(
    machine: Broker,
    now_ms: int,
    request: AlterConfigs | IncrementalAlterConfigs,
    changed: Callable[[_Resource, Any], dict[str, str]],
) -> tuple[AlteredResource, ...]:
    results = []
    named = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    distinct = {(asked.resource_type, asked.resource_name): asked for asked in request.resources}
    for (kind, name), asked in distinct.items():
        code = ErrorCode.NONE
        reason = ""
        try:
            if machine.is_ending:
                raise BrokerError("the broker is closing: nothing was done", code=ErrorCode.REQUEST_TIMED_OUT)
            if named[kind, name] > 1:
                raise BrokerError("Each resource must appear at most once.", code=ErrorCode.INVALID_REQUEST)
            resource = _resource(machine, kind, name)
            config = changed(resource, asked)
            if request.validate_only:
                resource.check(config)
            else:
                resource.alter(name, config, now_ms)
        except (BrokerError, ConfigError, OSError) as error:
            code, reason = error_of(error)
        results.append(AlteredResource(code, kind, name, reason))
    return tuple(results)


def _list_config_resources(machine: Broker, request: ListConfigResources, now_ms: int) -> ListConfigResourcesResponse:
    node = (str(machine.config.node_id),)
    names: dict[int, Callable[[], Sequence[str]]] = {
        ResourceType.TOPIC: lambda: tuple(machine.topics.by_name),
        ResourceType.BROKER: lambda: node,
        ResourceType.BROKER_LOGGER: lambda: node,
        ResourceType.CLIENT_METRICS: lambda: (),  # No client pushes its metrics to this broker.
        ResourceType.GROUP: lambda: _groups(machine, now_ms),
    }
    kinds = dict.fromkeys(request.resource_types or names)
    if any(kind not in names for kind in kinds):
        return ListConfigResourcesResponse(ErrorCode.UNSUPPORTED_VERSION)
    listed = tuple(ListedResource(name, kind) for kind in kinds for name in names[kind]())
    return ListConfigResourcesResponse(ErrorCode.NONE, listed)


def _groups(machine: Broker, now_ms: int) -> list[str]:
    responses: list[Response] = []
    machine.handle(ListGroups(), now_ms, responses.append)
    (response,) = responses
    assert isinstance(response, ListGroupsResponse)
    group_ids = [group_id for group_id, *_ in response.groups]
    # A group that does not exist yet may have settings.
    return list(dict.fromkeys([*group_ids, *machine.coordinator.configs.groups()]))


# --- offsets ------------------------------------------------------------------------------


def _delete_offsets(machine: Broker, request: OffsetDelete, now_ms: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(*machine.groups.delete_offsets(request.group_id, request.partitions, now_ms))


def _offsets_for_leader_epochs(
    machine: Broker, request: OffsetForLeaderEpoch, now_ms: int
) -> OffsetForLeaderEpochResponse:
    ends = {partition: _end_of_epoch(machine, partition, asked) for partition, asked in request.partitions.items()}
    return OffsetForLeaderEpochResponse(ends)


def _end_of_epoch(machine: Broker, partition: TopicPartition, asked: AskedEpoch) -> EpochEnd:
    log = machine.topics.logs.get(partition)
    if log is None:
        return EpochEnd(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if asked.current_leader_epoch > LEADER_EPOCH:
        return EpochEnd(ErrorCode.UNKNOWN_LEADER_EPOCH)
    if asked.leader_epoch != LEADER_EPOCH:
        return EpochEnd(ErrorCode.NONE)
    return EpochEnd(ErrorCode.NONE, LEADER_EPOCH, log.high_watermark)


HANDLERS: Final[Mapping[type, Handler]] = {
    AlterConfigs: _alter_configs,
    DescribeCluster: _describe_cluster,
    DescribeConfigs: _describe_configs,
    DescribeTopicPartitions: _describe_partitions,
    IncrementalAlterConfigs: _incremental_alter_configs,
    ListConfigResources: _list_config_resources,
    OffsetDelete: _delete_offsets,
    OffsetForLeaderEpoch: _offsets_for_leader_epochs,
}
