"""Metadata, DescribeCluster, CreateTopics and DeleteTopics, including addresses, IDs and defaults."""

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import evolve

from streams.core.http.address import Address
from streams.protocol.admin_messages import (
    NO_OPERATIONS,
    TOPIC_OPERATIONS,
    ConfigSource,
    DescribeCluster,
    DescribeClusterResponse,
    DescribedBroker,
    Operation,
    operations_bits,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    NO_TOPIC_ID,
    NODE,
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
from streams.protocol.schema import (
    BOOLEAN,
    ERROR,
    ERROR_MESSAGE,
    INDEX,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    Api,
    Field,
    Fields,
    array,
    fields_of,
)
from streams.protocol.wire.derived import derived, writer
from streams.protocol.wire.errors import EncodingError
from streams.protocol.wire.translation import (
    Incoming,
    Refusal,
    RequestParts,
    Serving,
    Translation,
    code,
)

_NO_LEADER = -1
# First version in which the broker defaults can be requested (KIP-464).
_BROKER_DEFAULTS_SINCE = 4
# First version in which a topic requested by ID has no name.
_NO_NAME_SINCE = 12
# First version in which topics can also be deleted by ID (KIP-516).
_BY_ID_SINCE = 6
# An authenticated client may perform all operations on the cluster (KIP-430).
_CLUSTER_OPERATIONS = operations_bits(*set(Operation) - {Operation.READ, Operation.WRITE, Operation.DELETE})
_REPLICAS = 1


# --- Metadata -----------------------------------------------------------------------------


_METADATA: Final[Api] = Metadata.api.with_fields(
    (
        array(
            "topics",
            Field("topic_id", UUID, since=10, default=UUID.zero, is_ignorable=True),
            Field("name", STRING, nullable=10),
            nullable=1,
        ),
        Field("allow_auto_topic_creation", BOOLEAN, since=4, default=True),
        Field("include_cluster_authorized_operations", BOOLEAN, since=8, until=10, default=False),
        Field("include_topic_authorized_operations", BOOLEAN, since=8, default=False),
    ),
    (
        array("brokers", *NODE, Field("rack", STRING, since=1, nullable=1, default=None, is_ignorable=True)),
        Field("cluster_id", STRING, since=2, nullable=2, default=None, is_ignorable=True),
        Field("controller_id", INT32, since=1, default=-1, is_ignorable=True),
        array(
            "topics",
            ERROR,
            Field("name", STRING, nullable=12),
            Field("topic_id", UUID, since=10, default=UUID.zero, is_ignorable=True),
            Field("is_internal", BOOLEAN, since=1, default=False, is_ignorable=True),
            array(
                "partitions",
                ERROR,
                INDEX,
                Field("leader_id", INT32),
                Field("leader_epoch", INT32, since=7, default=-1, is_ignorable=True),
                array("replica_nodes", INT32),
                array("isr_nodes", INT32),
                array("offline_replicas", INT32, since=5, default=(), is_ignorable=True),
            ),
            Field("topic_authorized_operations", INT32, since=8, default=NO_OPERATIONS),
        ),
        Field("cluster_authorized_operations", INT32, since=8, until=10, default=NO_OPERATIONS),
    ),
)


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
    leader_of = {row["partition_index"]: row["leader_id"] for row in topic["partitions"]}
    count = max(leader_of, default=-1) + 1
    leaders = tuple(leader_of.get(number, _NO_LEADER) for number in range(count))
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
        unnamed = (topic["topic_id"] for topic in topics if not topic["name"] and topic["topic_id"] != NO_TOPIC_ID)
        ids = tuple(dict.fromkeys(unnamed))
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
    of_topics = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NO_OPERATIONS
    of_cluster = _CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS
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


METADATA = Translation(_METADATA, _metadata, _metadata_response, _metadata_request, _metadata_reply)


# --- CreateTopics -------------------------------------------------------------------------


_CREATE_TOPICS: Final[Api] = CreateTopics.api.with_fields(
    fields_of(CreateTopics),
    (
        array(
            "topics",
            Field("name", STRING),
            Field("topic_id", UUID, since=7, default=UUID.zero, is_ignorable=True),
            ERROR,
            ERROR_MESSAGE,
            Field("topic_config_error_code", INT16, since=5, tag=0, default=0, is_ignorable=True),
            Field("num_partitions", INT32, since=5, default=-1, is_ignorable=True),
            Field("replication_factor", INT16, since=5, default=-1, is_ignorable=True),
            array(
                "configs",
                Field("name", STRING),
                Field("value", STRING, nullable=5),
                Field("read_only", BOOLEAN, default=False),
                Field("config_source", INT8, default=-1),
                Field("is_sensitive", BOOLEAN, default=False),
                since=5,
                nullable=5,
                default=None,
                is_ignorable=True,
            ),
        ),
    ),
)


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
    default = -1 if version >= _BROKER_DEFAULTS_SINCE else 1
    topics = [evolve(topic, replicas=topic.replicas if topic.replicas > 0 else default) for topic in request.topics]
    return writer(CreateTopics)(evolve(request, topics=topics))


def _create_topics_response(message: Fields, version: int, request: CreateTopics) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        {topic["name"]: (code(topic), topic["error_message"] or "") for topic in message["topics"]}
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
    errors = dict(incoming.refused)
    rows: dict[str, Fields] = {}
    for request, response in zip(incoming.requests, responses, strict=True):
        errors.update(response.errors)
        for spec in request.topics:
            topic = response.created.get(spec.name)
            if topic is not None:
                rows[spec.name] = _created_row(topic, spec.config, is_trial=request.is_trial)
    return {
        "topics": [
            {"name": name, "error_code": errors[name][0], "error_message": errors[name][1] or None} | rows.get(name, {})
            for name in incoming.order
        ]
    }


def _created_row(topic: TopicMetadata, config: Mapping[str, str], *, is_trial: bool) -> Fields:
    """Return the fields of a CreateTopics response that describe a created topic (KIP-525)."""
    return {
        "topic_id": NO_TOPIC_ID if is_trial else topic.topic_id,
        "num_partitions": len(topic.leaders),
        "replication_factor": _REPLICAS,
        "configs": [
            {
                "name": name,
                "value": value,
                "config_source": ConfigSource.TOPIC if name in config else ConfigSource.DEFAULT,
            }
            for name, value in sorted(topic.config.items())
        ],
    }


CREATE_TOPICS = Translation(
    _CREATE_TOPICS, _create_topics, _create_topics_response, _create_topics_request, _create_topics_reply
)


# --- DeleteTopics -------------------------------------------------------------------------


_DELETE_TOPICS: Final[Api] = DeleteTopics.api.with_fields(
    (
        array(
            "topics",
            Field("name", STRING, nullable=6, default=None),
            Field("topic_id", UUID, default=UUID.zero),
            since=6,
        ),
        array("topic_names", STRING, until=5),
        Field("timeout_ms", INT32),
    ),
    (
        array(
            "responses",
            Field("name", STRING, nullable=6),
            Field("topic_id", UUID, since=6, default=UUID.zero, is_ignorable=True),
            ERROR,
            Field("error_message", STRING, since=5, nullable=5, default=None, is_ignorable=True),
        ),
    ),
)


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
        {row["topic_id"]: (code(row), row["name"] or "") for row in rows if row["topic_id"] in asked},
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
    _DELETE_TOPICS, _delete_topics, _delete_topics_response, _delete_topics_request, _delete_topics_reply
)


# --- DescribeCluster ----------------------------------------------------------------------

_CLUSTER = derived(DescribeCluster.api)


def _cluster_reply(
    incoming: Incoming[DescribeCluster], responses: Sequence[DescribeClusterResponse], serving: Serving
) -> Fields:
    # The server adds the cluster ID and the advertised addresses, which are not in the broker response.
    (request,), (response,) = incoming.requests, responses
    racks = {broker.broker_id: broker.rack for broker in response.brokers}
    brokers = tuple(
        DescribedBroker(node_id, *address, racks.get(node_id)) for node_id, address in serving.addresses.items()
    )
    operations = _CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS
    shown = evolve(response, cluster_id=serving.cluster_id, brokers=brokers, cluster_authorized_operations=operations)
    return _CLUSTER.build_response(incoming, (shown,), serving)


DESCRIBE_CLUSTER = evolve(_CLUSTER, build_response=_cluster_reply)

TRANSLATIONS = (METADATA, CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CLUSTER)
