"""Requests for which the machine has no message: versions, settings of topics, single offsets, leader epochs.

Each is a function of the machine, the time and what was asked, in Kafka's words on both sides; all of them are
called with the machine at hand and answer at once.  Under ``requests``.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from streams.broker.config import PARTITIONER, STORAGE, parse_config
from streams.broker.refusals import error_of
from streams.broker.service import Broker
from streams.broker.topics import TopicLogs
from streams.core.errors import BrokerError, ConfigError
from streams.core.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.wire import Fields

#: Kinds of what can have settings (Kafka's ``ConfigResource.Type``).
TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

# Where a setting comes from (``DescribeConfigsResponse.ConfigSource``), and what it is (``ConfigType``).
_OF_TOPIC, _OF_BROKER, _DEFAULT = 1, 4, 5
_BOOLEAN, _STRING, _LONG, _DOUBLE, _LIST = 1, 2, 5, 6, 7
_LISTS: Final = frozenset(
    {"cleanup.policy", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)
# What an incremental change does (``AlterConfigOp.OpType``).
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

#: What a machine is asked by a message, at a time.
Action = Callable[[Broker, int, Fields], Fields]


# --- settings -----------------------------------------------------------------------------


def describe_configs(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Return the settings of topics, and the few of the broker (DescribeConfigs)."""
    # Each once, however often it is named: the answer is a thousand times as long.
    distinct = {(row["resource_type"], row["resource_name"]): row for row in message["resources"]}.values()
    return {"results": [_described(machine, resource, message) for resource in distinct]}


def _described(machine: Broker, resource: Fields, message: Fields) -> Fields:
    kind, name = resource["resource_type"], resource["resource_name"]
    wanted = resource["configuration_keys"]
    row: Fields = {"error_code": ErrorCode.NONE, "resource_type": kind, "resource_name": name}
    try:
        settings, given = _settings(machine, kind, name)
    except BrokerError as error:
        code, reason = error_of(error)
        return row | {"error_code": code, "error_message": reason}
    own = _OF_TOPIC if kind == TOPIC else _OF_BROKER
    configs = []
    for setting, value in sorted(settings.items()):
        if wanted is not None and setting not in wanted:
            continue
        source = own if setting in given else _DEFAULT
        entry: Fields = {
            "name": setting,
            "value": value,
            "read_only": kind == BROKER or setting in (PARTITIONER, STORAGE),
            "config_source": source,
            "config_type": _type_of(setting, value),
        }
        if message["include_synonyms"]:
            entry["synonyms"] = [{"name": setting, "value": value, "source": source}]
        configs.append(entry)
    return row | {"configs": configs}


def _settings(machine: Broker, kind: int, name: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the settings of a resource that are in effect, and those that were given for it."""
    if kind == TOPIC:
        topic = machine.topics.topic(name)
        return topic.shown(), topic.config.given
    if kind == BROKER and name in ("", str(machine.config.node_id)):
        of_broker = {
            "auto.create.topics.enable": str(machine.config.auto_create_topics).lower(),
            "broker.id": str(machine.config.node_id),
            "compression.type": "producer",
            "default.replication.factor": "1",
            "delete.topic.enable": "true",
            "log.cleanup.policy": "delete",
            "message.max.bytes": parse_config({}).shown()["max.message.bytes"],
            "node.id": str(machine.config.node_id),
            "num.partitions": str(machine.config.default_partitions),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "min.insync.replicas": "1",
        }
        return of_broker, of_broker
    if kind in (GROUP, CLIENT_METRICS) or (kind == BROKER_LOGGER and name == str(machine.config.node_id)):
        # Kafka's have settings for protocols and quotas that there are not here.
        return {}, {}
    raise BrokerError(
        f"resource {name!r} of type {kind} has no settings: ask for topics ({TOPIC}) or broker "
        f"{machine.config.node_id} ({BROKER})",
        code=ErrorCode.INVALID_REQUEST,
    )


def _type_of(setting: str, value: str) -> int:
    if setting in _LISTS:
        return _LIST
    if value in ("true", "false"):
        return _BOOLEAN
    if value.lstrip("-").isdigit():
        return _LONG
    return _DOUBLE if setting.endswith(".ratio") else _STRING


def alter_configs(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Give topics other settings, all of them (AlterConfigs)."""

    def changed(topic: TopicLogs, configs: Sequence[Fields]) -> dict[str, str]:
        # What a topic has for life stays, though nobody names it.
        kept = {name: value for name, value in topic.config.given.items() if name in (PARTITIONER, STORAGE)}
        return kept | {item["name"]: item["value"] for item in configs if item["value"] is not None}

    return _altered(machine, now_ms, message, changed)


def incremental_alter_configs(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Change single settings of topics (IncrementalAlterConfigs, KIP-339)."""

    def changed(topic: TopicLogs, configs: Sequence[Fields]) -> dict[str, str]:
        given = dict(topic.config.given)
        for item in configs:
            _change(given, topic, item["name"], item["config_operation"], item["value"])
        return given

    return _altered(machine, now_ms, message, changed)


def _change(given: dict[str, str], topic: TopicLogs, name: str, operation: int, value: str | None) -> None:
    if operation == _DELETE:
        given.pop(name, None)
        return
    if value is None or operation not in (_SET, _APPEND, _SUBTRACT):
        raise BrokerError(
            f"setting {name} of topic {topic.name!r}: operation {operation} with value {value!r}",
            code=ErrorCode.INVALID_REQUEST,
        )
    if operation == _SET:
        given[name] = value
        return
    if name != "cleanup.policy":
        raise BrokerError(
            f"setting {name} of topic {topic.name!r} is no list: set it instead", code=ErrorCode.INVALID_CONFIG
        )
    items = [item.strip() for item in topic.described()[name].split(",")]
    changes = [item.strip() for item in value.split(",")]
    kept = [item for item in items if operation == _APPEND or item not in changes]
    added = [item for item in changes if operation == _APPEND and item not in items]
    given[name] = ",".join(kept + added)


def _altered(
    machine: Broker, now_ms: int, message: Fields, changed: Callable[[TopicLogs, Sequence[Fields]], dict[str, str]]
) -> Fields:
    rows = []
    named = Counter((resource["resource_type"], resource["resource_name"]) for resource in message["resources"])
    distinct = {(row["resource_type"], row["resource_name"]): row for row in message["resources"]}
    for (kind, name), resource in distinct.items():
        code, reason = ErrorCode.NONE, ""
        try:
            if machine.is_ending:
                raise BrokerError("the broker is ending: nothing was done", code=ErrorCode.REQUEST_TIMED_OUT)
            if named[kind, name] > 1:
                raise BrokerError("Each resource must appear at most once.", code=ErrorCode.INVALID_REQUEST)
            if kind != TOPIC:
                raise BrokerError(
                    f"resource {name!r} of type {kind}: only settings of topics can be altered",
                    code=ErrorCode.INVALID_REQUEST,
                )
            config = changed(machine.topics.topic(name), resource["configs"])
            if message["validate_only"]:
                parse_config(config)
            else:
                machine.alter_topic(name, config, now_ms)
        except (BrokerError, ConfigError, OSError) as error:
            code, reason = error_of(error)
        rows.append({"error_code": code, "error_message": reason or None, "resource_type": kind, "resource_name": name})
    return {"responses": rows}


# --- offsets ------------------------------------------------------------------------------


def delete_offsets(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Drop committed offsets of a group (OffsetDelete, KIP-496)."""
    partitions = dict.fromkeys(
        TopicPartition(topic["name"], row["partition_index"])
        for topic in message["topics"]
        for row in topic["partitions"]
    )
    error, errors = machine.delete_offsets(message["group_id"], tuple(partitions), now_ms)
    topics: dict[str, list[Fields]] = {}
    for (name, number), code in errors.items():
        topics.setdefault(name, []).append({"partition_index": number, "error_code": code})
    return {"error_code": error, "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()]}


def offsets_for_leader_epochs(machine: Broker, now_ms: int, message: Fields) -> Fields:
    """Return where the only epoch ends, which is that of this broker (OffsetForLeaderEpoch, KIP-320)."""
    topics = []
    for topic in message["topics"]:
        name = topic["topic"]
        rows = [_end_of_epoch(machine, TopicPartition(name, row["partition"]), row) for row in topic["partitions"]]
        topics.append({"topic": name, "partitions": rows})
    return {"topics": topics}


def _end_of_epoch(machine: Broker, partition: TopicPartition, row: Fields) -> Fields:
    log = machine.topics.logs.get(partition)
    found: Fields = {"error_code": ErrorCode.NONE, "partition": partition.partition}
    if log is None:
        return found | {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    if row["current_leader_epoch"] > 0:
        return found | {"error_code": ErrorCode.UNKNOWN_LEADER_EPOCH}
    if row["leader_epoch"] != 0:
        return found
    return found | {"leader_epoch": 0, "end_offset": log.high_watermark}
