"""Translations of Metadata, DescribeCluster, CreateTopics and DeleteTopics, including addresses, IDs and defaults."""

from collections.abc import Mapping, Sequence

from attrs import evolve

from streams.core.http.address import Address
from streams.protocol.admin_messages import (
    NO_OPERATIONS,
    ConfigSource,
    DescribeCluster,
    DescribeClusterResponse,
    DescribedBroker,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    NO_TOPIC_ID,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    Metadata,
    MetadataResponse,
    TopicMetadata,
    TopicSpec,
)
from streams.protocol.request import ClientInformation
from streams.protocol.wire.errors import EncodingError
from streams.protocol.wire.fields import Fields
from streams.protocol.wire.mapping.base import (
    Incoming,
    Operation,
    Refusal,
    RequestParts,
    Serving,
    Translation,
    code,
    operations_bits,
    text,
)
from streams.protocol.wire.mapping.derived import derived
from streams.protocol.wire.tables import session
from streams.protocol.wire.tables import topics as tables

_NO_LEADER = -1
# First version in which the broker defaults can be requested (KIP-464).
_BROKER_DEFAULTS_SINCE = 4
# First version in which a topic requested by ID has no name.
_NO_NAME_SINCE = 12
# First version in which topics can also be deleted by ID (KIP-516).
_BY_ID_SINCE = 6
# An authenticated client may perform all operations on topics and the cluster (KIP-430).
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
_REPLICAS = 1
_OF_TOPIC = ConfigSource.TOPIC
_DEFAULT = ConfigSource.DEFAULT


# --- Metadata -----------------------------------------------------------------------------


def _metadata(request: Metadata, version: int) -> Fields:
    topics: list[Fields] | None = None if request.topics is None else [{"name": name} for name in request.topics]
    if topics is not None:
        topics += [{"name": None, "topic_id": topic_id} for topic_id in request.topic_ids]
    # Version 0 has no None: an empty list means all topics, and it is not possible to request no topics.
    return {
        "topics": topics or [] if version == 0 else topics,
        "allow_auto_topic_creation": request.allow_auto_topic_creation,
        "include_cluster_authorized_operations": request.include_cluster_authorized_operations,
        "include_topic_authorized_operations": request.include_topic_authorized_operations,
    }


def _metadata_response(message: Fields, version: int, request: Metadata) -> MetadataResponse:
    return MetadataResponse(
        {broker["node_id"]: str(Address(broker["host"], broker["port"])) for broker in message["brokers"]},
        tuple(_topic(topic) for topic in message["topics"] if topic["name"] is not None),
        message.get("controller_id", -1),
        {row["node_id"]: row["rack"] for row in message["brokers"] if row.get("rack") is not None},
    )


def _topic(topic: Fields) -> TopicMetadata:
    found = {row["partition_index"]: row["leader_id"] for row in topic["partitions"]}
    count = max(found, default=-1) + 1
    leaders = tuple(found.get(number, _NO_LEADER) for number in range(count))
    return TopicMetadata(
        topic["name"], code(topic), leaders, is_internal=topic["is_internal"], topic_id=topic["topic_id"]
    )


def _metadata_request(message: Fields, version: int, client: ClientInformation) -> RequestParts[Metadata]:
    topics = message["topics"]
    names: tuple[str, ...] | None = None
    ids: tuple[bytes, ...] = ()
    if topics or (topics is not None and version > 0):
        # Return each topic once, as in Kafka, even if the request repeats it.
        names = tuple(dict.fromkeys(topic["name"] for topic in topics if topic["name"]))
        found = (topic["topic_id"] for topic in topics if not topic["name"] and topic["topic_id"] != NO_TOPIC_ID)
        ids = tuple(dict.fromkeys(found))
    request = Metadata(
        names,
        message["allow_auto_topic_creation"],
        ids,
        message["include_cluster_authorized_operations"],
        message["include_topic_authorized_operations"],
    )
    return RequestParts((request,))


def _metadata_reply(incoming: Incoming[Metadata], responses: Sequence[MetadataResponse], serving: Serving) -> Fields:
    (request,), (response,) = incoming.requests, responses
    of_topics = _TOPIC_OPERATIONS if request.include_topic_authorized_operations else NO_OPERATIONS
    of_cluster = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS
    return {
        "cluster_authorized_operations": of_cluster,
        "brokers": [
            {"node_id": node_id, "host": host, "port": port, "rack": response.racks.get(node_id)}
            for node_id, (host, port) in serving.addresses.items()
        ],
        "cluster_id": serving.cluster_id,
        "controller_id": serving.controller_id,
        "topics": [_topic_row(topic, incoming.version, of_topics) for topic in response.topics],
    }


def _topic_row(topic: TopicMetadata, version: int, operations: int) -> Fields:
    return {
        "error_code": topic.error,
        # A topic requested by an unknown ID has no name; before version 12, the name cannot be None.
        "name": topic.name or (None if version >= _NO_NAME_SINCE else ""),
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


METADATA = Translation(session.METADATA, _metadata, _metadata_response, _metadata_request, _metadata_reply)


# --- CreateTopics -------------------------------------------------------------------------


def _create_topics(request: CreateTopics, version: int) -> Fields:
    for topic in request.topics:
        if topic.partitions < 1 and version < _BROKER_DEFAULTS_SINCE:
            raise EncodingError(
                f"topic {topic.name!r} with the broker's default number of partitions: "
                f"version {_BROKER_DEFAULTS_SINCE} or later supports that; give a number",
                api="CreateTopicsRequest",
                version=version,
                field="topics.num_partitions",
            )
    return {
        "timeout_ms": request.timeout_ms,
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


def _create_topics_response(message: Fields, version: int, request: CreateTopics) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        {topic["name"]: (code(topic), text(topic["error_message"])) for topic in message["topics"]}
    )


def _create_topics_request(message: Fields, version: int, client: ClientInformation) -> RequestParts[CreateTopics]:
    specs: dict[str, TopicSpec] = {}
    refused: dict[str, Refusal] = {}
    for topic in message["topics"]:
        name = topic["name"]
        if name in specs or name in refused:
            specs.pop(name, None)
            refused[name] = (ErrorCode.INVALID_REQUEST, "the topic is named more than once")
            continue
        # Manual assignments determine the number of partitions; their replicas are ignored.
        count = len(topic["assignments"]) or topic["num_partitions"]
        config = {item["name"]: item["value"] for item in topic["configs"] if item["value"] is not None}
        replicas = -1 if topic["assignments"] else topic["replication_factor"]
        specs[name] = TopicSpec(name, count, config, replicas)
    request = CreateTopics(tuple(specs.values()), message["validate_only"], message["timeout_ms"])
    order = tuple(dict.fromkeys(topic["name"] for topic in message["topics"]))
    return RequestParts((request,) if specs else (), refused, order)


def _create_topics_reply(
    incoming: Incoming[CreateTopics], responses: Sequence[CreateTopicsResponse], serving: Serving
) -> Fields:
    found = dict(incoming.refused)
    rows: dict[str, Fields] = {}
    for request, response in zip(incoming.requests, responses, strict=True):
        found.update(response.errors)
        for spec in request.topics:
            topic = response.made.get(spec.name)
            if topic is not None:
                rows[spec.name] = _made_row(topic, spec.config, is_trial=request.is_trial)
    return {
        "topics": [
            {"name": name, "error_code": found[name][0], "error_message": found[name][1] or None} | rows.get(name, {})
            for name in incoming.order
        ]
    }


def _made_row(topic: TopicMetadata, given: Mapping[str, str], *, is_trial: bool) -> Fields:
    """Return the fields of a CreateTopics response that describe a created topic (KIP-525)."""
    return {
        "topic_id": NO_TOPIC_ID if is_trial else topic.topic_id,
        "num_partitions": len(topic.leaders),
        "replication_factor": _REPLICAS,
        "configs": [
            {
                "name": name,
                "value": value,
                "config_source": ConfigSource.TOPIC if name in given else ConfigSource.DEFAULT,
            }
            for name, value in sorted(topic.config.items())
        ],
    }


CREATE_TOPICS = Translation(
    tables.CREATE_TOPICS,
    _create_topics,
    _create_topics_response,
    _create_topics_request,
    _create_topics_reply,
)


# --- DeleteTopics -------------------------------------------------------------------------


def _delete_topics(request: DeleteTopics, version: int) -> Fields:
    rows: list[Fields] = [{"name": name} for name in request.topics]
    rows += [{"name": None, "topic_id": topic_id} for topic_id in request.topic_ids]
    return {
        "topics": rows if version >= _BY_ID_SINCE else [],
        "topic_names": list(request.topics) if version < _BY_ID_SINCE else [],
        "timeout_ms": request.timeout_ms,
    }


def _delete_topics_response(message: Fields, version: int, request: DeleteTopics) -> DeleteTopicsResponse:
    asked = set(request.topic_ids)
    rows = message["responses"]
    return DeleteTopicsResponse(
        {row["name"]: code(row) for row in rows if row["topic_id"] not in asked},
        {row["topic_id"]: (code(row), text(row["name"])) for row in rows if row["topic_id"] in asked},
    )


def _delete_topics_request(message: Fields, version: int, client: ClientInformation) -> RequestParts[DeleteTopics]:
    timeout_ms = message["timeout_ms"]
    if version < _BY_ID_SINCE:
        return RequestParts((DeleteTopics(tuple(dict.fromkeys(message["topic_names"])), (), timeout_ms),))
    names = dict.fromkeys(topic["name"] for topic in message["topics"] if topic["name"] is not None)
    ids = dict.fromkeys(topic["topic_id"] for topic in message["topics"] if topic["name"] is None)
    return RequestParts((DeleteTopics(tuple(names), tuple(ids), timeout_ms),))


def _delete_topics_reply(
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
    tables.DELETE_TOPICS,
    _delete_topics,
    _delete_topics_response,
    _delete_topics_request,
    _delete_topics_reply,
)


# --- DescribeCluster ----------------------------------------------------------------------

_CLUSTER = derived(session.DESCRIBE_CLUSTER)


def _cluster_reply(
    incoming: Incoming[DescribeCluster], responses: Sequence[DescribeClusterResponse], serving: Serving
) -> Fields:
    # The server adds the cluster ID and the advertised addresses, which are not in the broker response.
    (request,), (response,) = incoming.requests, responses
    racks = {broker.broker_id: broker.rack for broker in response.brokers}
    brokers = tuple(
        DescribedBroker(node_id, *address, racks.get(node_id)) for node_id, address in serving.addresses.items()
    )
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS
    shown = evolve(response, cluster_id=serving.cluster_id, brokers=brokers, cluster_authorized_operations=operations)
    return _CLUSTER.build_response(incoming, (shown,), serving)


DESCRIBE_CLUSTER = evolve(_CLUSTER, build_response=_cluster_reply)

TRANSLATIONS = (METADATA, CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CLUSTER)
