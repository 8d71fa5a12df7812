"""Metadata and the administration of topics in Kafka's words."""

from collections.abc import Sequence

from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
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
    REQUEST_TIMEOUT_MS,
    Asked,
    Incoming,
    Refusal,
    Serving,
    Translation,
    code,
    one,
    text,
)
from streams.protocol.wire.tables import session
from streams.protocol.wire.tables import topics as tables

_NO_LEADER = -1
# First version in which "as the broker is configured" can be asked for (KIP-464).
_BROKER_DEFAULTS_SINCE = 4


# --- Metadata -----------------------------------------------------------------------------


def _metadata(request: Metadata, version: int) -> Fields:
    topics = None if request.topics is None else [{"name": name} for name in request.topics]
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
    return TopicMetadata(topic["name"], code(topic), leaders, is_internal=topic["is_internal"])


def _metadata_asked(message: Fields, version: int, client_id: str) -> Asked[Metadata]:
    topics = message["topics"]
    is_all = topics is None or (version == 0 and not topics)
    names = None if is_all else tuple(topic["name"] for topic in topics if topic["name"] is not None)
    return one(Metadata(names, message["allow_auto_topic_creation"]))


def _metadata_answered(incoming: Incoming[Metadata], responses: Sequence[MetadataResponse], serving: Serving) -> Fields:
    (response,) = responses
    topics = [_topic_row(topic) for topic in response.topics]
    for asked in incoming.message["topics"] or ():
        if asked["name"] is None:
            # Asked for by its id; topics have none here (KIP-516).
            unknown = {"error_code": ErrorCode.UNKNOWN_TOPIC_ID, "topic_id": asked["topic_id"], "partitions": []}
            topics.append(unknown | {"name": None if incoming.version >= 12 else ""})
    return {
        "brokers": [
            {"node_id": node_id, "host": host, "port": port} for node_id, (host, port) in serving.addresses.items()
        ],
        "cluster_id": serving.cluster_id,
        "controller_id": serving.controller_id,
        "topics": topics,
    }


def _topic_row(topic: TopicMetadata) -> Fields:
    return {
        "error_code": topic.error,
        "name": topic.name,
        "is_internal": topic.is_internal,
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
        specs[name] = TopicSpec(name, count, config)
    return ((CreateTopics(tuple(specs.values()), message["validate_only"]),) if specs else ()), refused


def _create_topics_answered(
    incoming: Incoming[CreateTopics], responses: Sequence[CreateTopicsResponse], serving: Serving
) -> Fields:
    found = dict(incoming.refused)
    for response in responses:
        found.update(response.errors)
    names = dict.fromkeys(topic["name"] for topic in incoming.message["topics"])
    return {"topics": _refusal_rows({name: found[name] for name in names})}


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
    return {"topic_names": list(request.topics), "timeout_ms": REQUEST_TIMEOUT_MS}


def _delete_topics_answer(message: Fields, version: int, request: DeleteTopics) -> DeleteTopicsResponse:
    return DeleteTopicsResponse({topic["name"]: code(topic) for topic in message["responses"]})


def _delete_topics_asked(message: Fields, version: int, client_id: str) -> Asked[DeleteTopics]:
    return one(DeleteTopics(tuple(dict.fromkeys(message["topic_names"]))))


def _delete_topics_answered(
    incoming: Incoming[DeleteTopics], responses: Sequence[DeleteTopicsResponse], serving: Serving
) -> Fields:
    (response,) = responses
    return {"responses": [{"name": name, "error_code": error} for name, error in response.errors.items()]}


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
