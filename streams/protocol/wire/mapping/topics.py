"""Metadata and the administration of topics in Kafka's words."""

from collections.abc import Mapping, Sequence

from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    NO_TOPIC_ID,
    CreatePartitions,
    CreatePartitionsResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    Metadata,
    MetadataResponse,
    TopicMetadata,
    TopicSpec,
)
from streams.protocol.wire.errors import EncodingError
from streams.protocol.wire.fields import Fields
from streams.protocol.wire.mapping.base import (
    NO_OPERATIONS,
    REQUEST_TIMEOUT_MS,
    Asked,
    Incoming,
    Operation,
    Refusal,
    Serving,
    Translation,
    code,
    one,
    operations_bits,
    text,
)
from streams.protocol.wire.tables import session
from streams.protocol.wire.tables import topics as tables

_NO_LEADER = -1
# First version in which "as the broker is configured" can be asked for (KIP-464).
_BROKER_DEFAULTS_SINCE = 4
# First version in which a topic that was asked for by its id has no name.
_NO_NAME_SINCE = 12
# First version in which topics are deleted by id too (KIP-516).
_BY_ID_SINCE = 6
# Who may come in may do everything that can be done to topics and to the cluster (KIP-430).
_TOPIC_OPERATIONS = operations_bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS = operations_bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
# Where a setting comes from (``DescribeConfigsResponse.ConfigSource``).
_OF_TOPIC, _DEFAULT = 1, 5
_REPLICAS = 1


# --- Metadata -----------------------------------------------------------------------------


def _metadata(request: Metadata, version: int) -> Fields:
    topics: list[Fields] | None = None if request.topics is None else [{"name": name} for name in request.topics]
    if topics is not None:
        topics += [{"name": None, "topic_id": topic_id} for topic_id in request.topic_ids]
    # Version 0 knows no None: an empty list stands for all, and none cannot be asked for.
    return {
        "topics": topics or [] if version == 0 else topics,
        "allow_auto_topic_creation": request.allow_auto_topic_creation,
    }


def _metadata_answer(message: Fields, version: int, request: Metadata) -> MetadataResponse:
    return MetadataResponse(
        {broker["node_id"]: address(broker["host"], broker["port"]) for broker in message["brokers"]},
        tuple(_topic(topic) for topic in message["topics"] if topic["name"] is not None),
    )


def _topic(topic: Fields) -> TopicMetadata:
    found = {row["partition_index"]: row["leader_id"] for row in topic["partitions"]}
    count = max(found, default=-1) + 1
    leaders = tuple(found.get(number, _NO_LEADER) for number in range(count))
    return TopicMetadata(
        topic["name"], code(topic), leaders, is_internal=topic["is_internal"], topic_id=topic["topic_id"]
    )


def _metadata_asked(message: Fields, version: int, client_id: str) -> Asked[Metadata]:
    topics = message["topics"]
    is_all = topics is None or (version == 0 and not topics)
    if is_all:
        return one(Metadata(None, message["allow_auto_topic_creation"]))
    # Each once, as in Kafka, however often it is named.
    names = dict.fromkeys(topic["name"] for topic in topics if topic["name"])
    ids = dict.fromkeys(topic["topic_id"] for topic in topics if not topic["name"] and topic["topic_id"] != NO_TOPIC_ID)
    return one(Metadata(tuple(names), message["allow_auto_topic_creation"], tuple(ids)))


def _metadata_answered(incoming: Incoming[Metadata], responses: Sequence[MetadataResponse], serving: Serving) -> Fields:
    (response,) = responses
    topics = [_topic_row(topic, incoming) for topic in response.topics]
    operations = CLUSTER_OPERATIONS if incoming.message["include_cluster_authorized_operations"] else NO_OPERATIONS
    return {
        "cluster_authorized_operations": operations,
        "brokers": [
            {"node_id": node_id, "host": host, "port": port} for node_id, (host, port) in serving.addresses.items()
        ],
        "cluster_id": serving.cluster_id,
        "controller_id": serving.controller_id,
        "topics": topics,
    }


def _topic_row(topic: TopicMetadata, incoming: Incoming[Metadata]) -> Fields:
    operations = _TOPIC_OPERATIONS if incoming.message["include_topic_authorized_operations"] else NO_OPERATIONS
    return {
        "error_code": topic.error,
        # The name of an id that is not known: versions before this one have no None for it.
        "name": topic.name or (None if incoming.version >= _NO_NAME_SINCE else ""),
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "topic_authorized_operations": operations,
        "partitions": [
            {
                "error_code": ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                "partition_index": number,
                "leader_id": leader,
                "replica_nodes": [leader] if leader >= 0 else [],
                "isr_nodes": [leader] if leader >= 0 else [],
            }
            for number, leader in enumerate(topic.leaders)
        ],
    }


def address(host: str, port: int) -> str:
    """Return HOST:PORT; an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


METADATA = Translation(
    session.METADATA.key,
    Metadata,
    MetadataResponse,
    session.METADATA.versions,
    _metadata,
    _metadata_answer,
    _metadata_asked,
    _metadata_answered,
)


# --- CreateTopics -------------------------------------------------------------------------


def _create_topics(request: CreateTopics, version: int) -> Fields:
    for topic in request.topics:
        if topic.partitions < 1 and version < _BROKER_DEFAULTS_SINCE:
            raise EncodingError(
                f"topic {topic.name!r} with the broker's own number of partitions: "
                f"version {_BROKER_DEFAULTS_SINCE} or later has that; say how many",
                api="CreateTopicsRequest",
                version=version,
                field="topics.num_partitions",
            )
    return {
        "timeout_ms": REQUEST_TIMEOUT_MS,
        "topics": [
            {
                "name": topic.name,
                "num_partitions": topic.partitions,
                "replication_factor": topic.replicas
                if topic.replicas > 0
                else (-1 if version >= _BROKER_DEFAULTS_SINCE else 1),
                "configs": [{"name": name, "value": value} for name, value in topic.config.items()],
            }
            for topic in request.topics
        ],
        "validate_only": request.is_trial,
    }


def _create_topics_answer(message: Fields, version: int, request: CreateTopics) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        {topic["name"]: (code(topic), text(topic["error_message"])) for topic in message["topics"]}
    )


def _create_topics_asked(message: Fields, version: int, client_id: str) -> Asked[CreateTopics]:
    specs: dict[str, TopicSpec] = {}
    refused: dict[str, Refusal] = {}
    for topic in message["topics"]:
        name = topic["name"]
        if name in specs or name in refused:
            specs.pop(name, None)
            refused[name] = (ErrorCode.INVALID_REQUEST, "the topic is named more than once")
            continue
        # Where assignments are given, these are the partitions (and their nodes, which are ours to choose).
        count = len(topic["assignments"]) or topic["num_partitions"]
        config = {item["name"]: item["value"] for item in topic["configs"] if item["value"] is not None}
        replicas = -1 if topic["assignments"] else topic["replication_factor"]
        specs[name] = TopicSpec(name, count, config, replicas)
    return ((CreateTopics(tuple(specs.values()), message["validate_only"]),) if specs else ()), refused


def _create_topics_answered(
    incoming: Incoming[CreateTopics], responses: Sequence[CreateTopicsResponse], serving: Serving
) -> Fields:
    found = dict(incoming.refused)
    for response in responses:
        found.update(response.errors)
    names = dict.fromkeys(topic["name"] for topic in incoming.message["topics"])
    rows = _refusal_rows({name: found[name] for name in names})
    given = {spec.name: spec.config for request in incoming.requests for spec in request.topics}
    made = {name: topic for response in responses for name, topic in response.made.items()}
    for row in rows:
        topic = made.get(row["name"])
        if topic is not None:
            row |= _made_row(topic, given[topic.name], is_trial=incoming.message["validate_only"])
    return {"topics": rows}


def _made_row(topic: TopicMetadata, given: Mapping[str, str], *, is_trial: bool) -> Fields:
    """Return what a topic is that was just made (KIP-525)."""
    return {
        "topic_id": NO_TOPIC_ID if is_trial else topic.topic_id,
        "num_partitions": len(topic.leaders),
        "replication_factor": _REPLICAS,
        "configs": [
            {"name": name, "value": value, "config_source": _OF_TOPIC if name in given else _DEFAULT}
            for name, value in sorted(topic.config.items())
        ],
    }


def _refusal_rows(errors: dict[str, Refusal]) -> list[Fields]:
    return [
        {"name": name, "error_code": error, "error_message": reason or None} for name, (error, reason) in errors.items()
    ]


CREATE_TOPICS = Translation(
    tables.CREATE_TOPICS.key,
    CreateTopics,
    CreateTopicsResponse,
    tables.CREATE_TOPICS.versions,
    _create_topics,
    _create_topics_answer,
    _create_topics_asked,
    _create_topics_answered,
)


# --- CreatePartitions ---------------------------------------------------------------------


def _create_partitions(request: CreatePartitions, version: int) -> Fields:
    return {
        "timeout_ms": REQUEST_TIMEOUT_MS,
        "topics": [{"name": name, "count": count} for name, count in request.counts.items()],
        "validate_only": request.is_trial,
    }


def _create_partitions_answer(message: Fields, version: int, request: CreatePartitions) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        {topic["name"]: (code(topic), text(topic["error_message"])) for topic in message["results"]}
    )


def _create_partitions_asked(message: Fields, version: int, client_id: str) -> Asked[CreatePartitions]:
    counts = {topic["name"]: topic["count"] for topic in message["topics"]}
    return one(CreatePartitions(counts, message["validate_only"]))


def _create_partitions_answered(
    incoming: Incoming[CreatePartitions], responses: Sequence[CreatePartitionsResponse], serving: Serving
) -> Fields:
    found = dict(incoming.refused)
    for response in responses:
        found.update(response.errors)
    return {"results": _refusal_rows(found)}


CREATE_PARTITIONS = Translation(
    tables.CREATE_PARTITIONS.key,
    CreatePartitions,
    CreatePartitionsResponse,
    tables.CREATE_PARTITIONS.versions,
    _create_partitions,
    _create_partitions_answer,
    _create_partitions_asked,
    _create_partitions_answered,
)


# --- DeleteTopics -------------------------------------------------------------------------


def _delete_topics(request: DeleteTopics, version: int) -> Fields:
    rows: list[Fields] = [{"name": name} for name in request.topics]
    rows += [{"name": None, "topic_id": topic_id} for topic_id in request.topic_ids]
    return {
        "topics": rows if version >= _BY_ID_SINCE else [],
        "topic_names": list(request.topics) if version < _BY_ID_SINCE else [],
        "timeout_ms": REQUEST_TIMEOUT_MS,
    }


def _delete_topics_answer(message: Fields, version: int, request: DeleteTopics) -> DeleteTopicsResponse:
    asked, rows = set(request.topic_ids), message["responses"]
    return DeleteTopicsResponse(
        {row["name"]: code(row) for row in rows if row["topic_id"] not in asked},
        {row["topic_id"]: (code(row), text(row["name"])) for row in rows if row["topic_id"] in asked},
    )


def _delete_topics_asked(message: Fields, version: int, client_id: str) -> Asked[DeleteTopics]:
    if version < _BY_ID_SINCE:
        return one(DeleteTopics(tuple(dict.fromkeys(message["topic_names"]))))
    names = dict.fromkeys(topic["name"] for topic in message["topics"] if topic["name"] is not None)
    ids = dict.fromkeys(topic["topic_id"] for topic in message["topics"] if topic["name"] is None)
    return one(DeleteTopics(tuple(names), tuple(ids)))


def _delete_topics_answered(
    incoming: Incoming[DeleteTopics], responses: Sequence[DeleteTopicsResponse], serving: Serving
) -> Fields:
    (response,) = responses
    rows: list[Fields] = [{"name": name, "error_code": error} for name, error in response.errors.items()]
    rows += [
        {"name": name or None, "topic_id": topic_id, "error_code": error}
        for topic_id, (error, name) in response.by_id.items()
    ]
    return {"responses": rows}


DELETE_TOPICS = Translation(
    tables.DELETE_TOPICS.key,
    DeleteTopics,
    DeleteTopicsResponse,
    tables.DELETE_TOPICS.versions,
    _delete_topics,
    _delete_topics_answer,
    _delete_topics_asked,
    _delete_topics_answered,
)

TRANSLATIONS = (METADATA, CREATE_TOPICS, CREATE_PARTITIONS, DELETE_TOPICS)


# --- DescribeCluster ----------------------------------------------------------------------


def described_cluster(message: Fields, serving: Serving) -> Fields:
    """Return the nodes and the name of the cluster (DescribeCluster, KIP-700); the machine is not asked."""
    includes_operations = message["include_cluster_authorized_operations"]
    return {
        "error_code": ErrorCode.NONE,
        "cluster_id": serving.cluster_id,
        "controller_id": serving.controller_id,
        "brokers": [
            {"broker_id": node_id, "host": host, "port": port} for node_id, (host, port) in serving.addresses.items()
        ],
        "cluster_authorized_operations": CLUSTER_OPERATIONS if includes_operations else NO_OPERATIONS,
    }
