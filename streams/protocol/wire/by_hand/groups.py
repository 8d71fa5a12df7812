"""Group APIs whose format depends on the version, or that cover several groups."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import evolve

from streams.core.blocks.records import TopicPartition
from streams.protocol.admin_messages import Operation, operations_bits
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    ConsumerGroupDescribe,
    DeleteGroup,
    DescribeGroup,
    LeaveGroup,
    LeaveGroupResponse,
    OffsetAndMetadata,
    OffsetFetch,
    OffsetFetchResponse,
)
from streams.protocol.messages import NODE, FindCoordinator, FindCoordinatorResponse
from streams.protocol.request import ClientInformation, response_type
from streams.protocol.schema import (
    BOOLEAN,
    ERROR,
    INDEX,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Api,
    Field,
    Fields,
    array,
    fields_of,
)
from streams.protocol.streams_group_messages import StreamsGroupDescribe
from streams.protocol.wire.derived import reader, writer
from streams.protocol.wire.errors import EncodingError
from streams.protocol.wire.translation import (
    Incoming,
    RequestParts,
    Serving,
    Translation,
    code,
    each_partition,
    values_by_topic,
)

# First versions with a new message format.
_MANY_COORDINATORS_SINCE = 4
_MANY_LEAVE_SINCE = 3
_MANY_FETCH_SINCE = 8
_FETCH_ERROR_SINCE = 2
_NO_OFFSET = -1


# --- FindCoordinator: several keys from version 4 on (KIP-699) ----------------------------


_FIND_COORDINATOR: Final[Api] = FindCoordinator.api.with_fields(
    (
        Field("key", STRING, until=3),
        Field("key_type", INT8, since=1, default=0),
        array("coordinator_keys", STRING, since=4),
    ),
    (
        Field("error_code", INT16, until=3),
        Field("error_message", STRING, since=1, until=3, nullable=1, default=None, is_ignorable=True),
        Field("node_id", INT32, until=3),
        Field("host", STRING, until=3),
        Field("port", INT32, until=3),
        array(
            "coordinators",
            Field("key", STRING),
            *NODE,
            ERROR,
            Field("error_message", STRING, nullable=4, default=None),
            since=4,
        ),
    ),
)


def _find(request: FindCoordinator, version: int) -> Fields:
    if version >= _MANY_COORDINATORS_SINCE:
        return {"key_type": request.key_type, "coordinator_keys": [request.key]}
    return {"key": request.key, "key_type": request.key_type}


def _find_response(message: Fields, version: int, request: FindCoordinator) -> FindCoordinatorResponse:
    if version < _MANY_COORDINATORS_SINCE:
        return FindCoordinatorResponse(code(message), message["node_id"])
    for row in message["coordinators"]:
        if row["key"] == request.key:
            return FindCoordinatorResponse(code(row), row["node_id"])
    return FindCoordinatorResponse(ErrorCode.UNKNOWN_SERVER_ERROR, -1)


def _find_request(message: Fields, version: int, client: ClientInformation) -> RequestParts[FindCoordinator]:
    keys = message["coordinator_keys"] if version >= _MANY_COORDINATORS_SINCE else (message["key"],)
    return RequestParts(tuple(FindCoordinator(key, message["key_type"]) for key in dict.fromkeys(keys)))


def _find_reply(
    incoming: Incoming[FindCoordinator], responses: Sequence[FindCoordinatorResponse], serving: Serving
) -> Fields:
    rows = []
    for request, response in zip(incoming.requests, responses, strict=True):
        host, port = serving.addresses.get(response.node_id, ("", -1))
        row = {"key": request.key, "error_code": response.error, "node_id": response.node_id}
        rows.append(row | {"host": host, "port": port})
    return {"coordinators": rows} if incoming.version >= _MANY_COORDINATORS_SINCE else rows[0]


FIND_COORDINATOR = Translation(_FIND_COORDINATOR, _find, _find_response, _find_request, _find_reply)


# --- LeaveGroup: several members from version 3 on (KIP-345) ------------------------------

_LEAVE_GROUP: Final[Api] = LeaveGroup.api.with_fields(
    (
        Field("group_id", STRING),
        Field("member_id", STRING, until=2),
        array(
            "members", Field("member_id", STRING), Field("group_instance_id", STRING, nullable=3, default=None), since=3
        ),
    ),
    (
        ERROR,
        array("members", Field("member_id", STRING), Field("group_instance_id", STRING, nullable=3), ERROR, since=3),
    ),
)
_OF_THE_GROUP = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_GROUP_ID,
}


def _leave(request: LeaveGroup, version: int) -> Fields:
    if version >= _MANY_LEAVE_SINCE:
        member = {"member_id": request.member_id, "group_instance_id": request.group_instance_id}
        return {"group_id": request.group_id, "members": [member]}
    if request.group_instance_id is not None and not request.member_id:
        raise EncodingError(
            f"static member {request.group_instance_id!r}: version {_MANY_LEAVE_SINCE} or later can name it",
            api="LeaveGroupRequest",
            version=version,
            field="group_instance_id",
        )
    return {"group_id": request.group_id, "member_id": request.member_id}


def _leave_response(message: Fields, version: int, request: LeaveGroup) -> LeaveGroupResponse:
    error = code(message)
    if error is ErrorCode.NONE and message["members"]:
        error = code(message["members"][0])
    return LeaveGroupResponse(error)


def _leave_request(message: Fields, version: int, client: ClientInformation) -> RequestParts[LeaveGroup]:
    group_id = message["group_id"]
    if version < _MANY_LEAVE_SINCE:
        return RequestParts((LeaveGroup(group_id, message["member_id"]),))
    members = message["members"]
    return RequestParts(tuple(LeaveGroup(group_id, one["member_id"], one["group_instance_id"]) for one in members))


def _leave_reply(incoming: Incoming[LeaveGroup], responses: Sequence[LeaveGroupResponse], serving: Serving) -> Fields:
    if incoming.version < _MANY_LEAVE_SINCE:
        return {"error_code": responses[0].error}
    # A group error applies to all members.
    errors = {response.error for response in responses}
    whole = next(iter(errors)) if len(errors) == 1 and errors <= _OF_THE_GROUP else ErrorCode.NONE
    rows = [
        {"member_id": request.member_id, "group_instance_id": request.group_instance_id, "error_code": response.error}
        for request, response in zip(incoming.requests, responses, strict=True)
    ]
    return {"error_code": whole, "members": rows}


LEAVE_GROUP = Translation(_LEAVE_GROUP, _leave, _leave_response, _leave_request, _leave_reply)


# --- OffsetFetch: several groups from version 8 on (KIP-709) ------------------------------


_FETCHED_TOPICS: Final = (
    Field("name", STRING),
    array(
        "partitions",
        INDEX,
        Field("committed_offset", INT64),
        Field("committed_leader_epoch", INT32, since=5, default=-1, is_ignorable=True),
        Field("metadata", STRING, nullable=0),
        ERROR,
    ),
)
_OFFSET_FETCH: Final[Api] = OffsetFetch.api.with_fields(
    (
        Field("group_id", STRING, until=7),
        array("topics", Field("name", STRING), array("partition_indexes", INT32), until=7, nullable=2),
        array("groups", *fields_of(OffsetFetch), since=8),
        Field("require_stable", BOOLEAN, since=7, default=False),
    ),
    (
        array("topics", *_FETCHED_TOPICS, until=7),
        Field("error_code", INT16, since=2, until=7, default=0, is_ignorable=True),
        array(
            "groups",
            Field("group_id", STRING),
            array("topics", *_FETCHED_TOPICS),
            Field("error_code", INT16, default=0),
            since=8,
        ),
    ),
)
_NO_MEMBER: Final = {"member_id": None, "member_epoch": -1}


def _fetch(request: OffsetFetch, version: int) -> Fields:
    group = writer(OffsetFetch)(request)
    asked = {"groups": [group]} if version >= _MANY_FETCH_SINCE else group
    return asked | {"require_stable": request.require_stable}


def _fetch_response(message: Fields, version: int, request: OffsetFetch) -> OffsetFetchResponse:
    if version >= _MANY_FETCH_SINCE:
        (message,) = (group for group in message["groups"] if group["group_id"] == request.group_id)
    error = code(message)
    offsets = {}
    for partition, row in each_partition(message["topics"], "name", "partitions", "partition_index"):
        of_partition = code(row)
        # The error of one partition becomes the error of the whole response, which can then be retried.
        if error is ErrorCode.NONE and of_partition is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            error = of_partition
        if row["committed_offset"] != _NO_OFFSET:
            offsets[partition] = OffsetAndMetadata(
                row["committed_offset"], row["metadata"] or "", row["committed_leader_epoch"]
            )
    return OffsetFetchResponse(error, offsets if error is ErrorCode.NONE else {})


def _fetch_request(message: Fields, version: int, client: ClientInformation) -> RequestParts[OffsetFetch]:
    groups = message["groups"] if version >= _MANY_FETCH_SINCE else (message | _NO_MEMBER,)
    read = reader(OffsetFetch)
    # List each group once: without partitions, all offsets of the group are requested.
    distinct = {group["group_id"]: group for group in groups}.values()
    is_stable = message["require_stable"]
    return RequestParts(tuple(evolve(read(group), require_stable=is_stable) for group in distinct))


def _fetch_reply(incoming: Incoming[OffsetFetch], responses: Sequence[OffsetFetchResponse], serving: Serving) -> Fields:
    groups = [
        {"group_id": request.group_id} | _fetched(request, response, incoming.version)
        for request, response in zip(incoming.requests, responses, strict=True)
    ]
    return {"groups": groups} if incoming.version >= _MANY_FETCH_SINCE else groups[0]


def _fetched(request: OffsetFetch, response: OffsetFetchResponse, version: int) -> Fields:
    partitions = response.offsets if request.partitions is None else request.partitions
    # UNSTABLE_OFFSET_COMMIT is an error of partitions: as an error of the group, clients treat it as fatal (KIP-447).
    is_of_partitions = version < _FETCH_ERROR_SINCE or response.error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    error = response.error if is_of_partitions else ErrorCode.NONE
    rows: Mapping[TopicPartition, Fields] = {
        partition: _fetched_row(partition, response.offsets.get(partition), error) for partition in partitions
    }
    return {
        "error_code": ErrorCode.NONE if is_of_partitions and rows else response.error,
        "topics": [
            {"name": topic, "partitions": [row for _, row in pairs]} for topic, pairs in values_by_topic(rows).items()
        ],
    }


def _fetched_row(partition: TopicPartition, committed: OffsetAndMetadata | None, error: ErrorCode) -> Fields:
    return {
        "partition_index": partition.partition,
        "committed_offset": _NO_OFFSET if committed is None else committed.offset,
        "metadata": "" if committed is None else committed.metadata,
        "committed_leader_epoch": -1 if committed is None else committed.leader_epoch,
        "error_code": error,
    }


OFFSET_FETCH = Translation(_OFFSET_FETCH, _fetch, _fetch_response, _fetch_request, _fetch_reply)


# --- DescribeGroups and DeleteGroups: one message object for each group -------------------


# An authenticated client may perform all operations (KIP-430).
_GROUP_OPERATIONS = operations_bits(Operation.READ, Operation.DELETE, Operation.DESCRIBE)


def of_each_group(request_class: type[Any], names: str = "group_ids", rows: str = "groups") -> Translation[Any, Any]:
    """Return the translation of an API whose messages are of one group each.

    ``names`` and ``rows`` are the fields with the names of the groups and with what is said of each.
    """
    response_class = response_type(request_class)
    flags = [item for item in fields_of(request_class) if item.name != "group_id"]
    api = request_class.api.with_fields((array(names, STRING), *flags), (array(rows, *fields_of(response_class)),))
    write = writer(response_class)
    read = reader(response_class)

    def parse_request(message: Fields, version: int, client: ClientInformation) -> RequestParts[Any]:
        # List each group once: its description may be a thousand times as long as its name.
        included = [message[flag.name] for flag in flags]
        return RequestParts(tuple(request_class(group_id, *included) for group_id in dict.fromkeys(message[names])))

    def build_response(incoming: Incoming[Any], responses: Sequence[Any], serving: Serving) -> Fields:
        message = []
        for request, response in zip(incoming.requests, responses, strict=True):
            row = write(response) | {"group_id": request.group_id}
            if getattr(request, "include_authorized_operations", False):
                row["authorized_operations"] = _GROUP_OPERATIONS
            message.append(row)
        return {rows: message}

    def parse_response(message: Fields, version: int, request: Any) -> Any:
        (row,) = message[rows]
        return read(row)

    def build_request(request: Any, version: int) -> Fields:
        return {names: [request.group_id], **{flag.name: getattr(request, flag.name) for flag in flags}}

    return Translation(api, build_request, parse_response, parse_request, build_response)


TRANSLATIONS = (
    FIND_COORDINATOR,
    LEAVE_GROUP,
    OFFSET_FETCH,
    of_each_group(DescribeGroup, "groups"),
    of_each_group(DeleteGroup, "groups_names", "results"),
    of_each_group(ConsumerGroupDescribe),
    of_each_group(StreamsGroupDescribe),
)
