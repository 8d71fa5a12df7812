"""Translations of group APIs whose format depends on the version, or that cover several groups."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from streams.core.blocks.records import TopicPartition
from streams.protocol.admin_messages import NO_OPERATIONS
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    DeleteGroup,
    DeleteGroupResponse,
    DescribeGroup,
    DescribeGroupResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    ListGroups,
    ListGroupsResponse,
    OffsetAndMetadata,
    OffsetFetch,
    OffsetFetchResponse,
    SyncGroup,
    SyncGroupResponse,
)
from streams.protocol.messages import FindCoordinator, FindCoordinatorResponse
from streams.protocol.request import ClientInformation
from streams.protocol.streams_group_messages import (
    StreamsGroupDescribe,
    StreamsGroupDescribeResponse,
)
from streams.protocol.wire.errors import EncodingError
from streams.protocol.wire.fields import INT32, STRING, Api, Field, Fields, by_topic
from streams.protocol.wire.mapping.base import (
    Incoming,
    Operation,
    RequestParts,
    Serving,
    Translation,
    code,
    each_partition,
    fail_on,
    operations_bits,
    text,
    values_by_topic,
    with_client,
)
from streams.protocol.wire.mapping.derived import derived, reader, writer
from streams.protocol.wire.tables import groups as tables
from streams.protocol.wire.tables import streams_groups as streams_tables

# First versions with a new message format.
_MANY_COORDINATORS_SINCE = 4
_MANY_LEAVE_SINCE = 3
_MEMBER_ID_FIRST_SINCE = 4
_MANY_FETCH_SINCE = 8
_FETCH_ERROR_SINCE = 2
_NO_OFFSET = -1
# An authenticated client may perform all operations (KIP-430).
_GROUP_OPERATIONS = operations_bits(Operation.READ, Operation.DELETE, Operation.DESCRIBE)


# --- FindCoordinator: several keys from version 4 on (KIP-699) ----------------------------


def _find(request: FindCoordinator, version: int) -> Fields:
    if version >= _MANY_COORDINATORS_SINCE:
        return {"key_type": request.key_type, "coordinator_keys": [request.key]}
    return {"key": request.key, "key_type": request.key_type}


def _find_response(message: Fields, version: int, request: FindCoordinator) -> FindCoordinatorResponse:
    if version < _MANY_COORDINATORS_SINCE:
        return FindCoordinatorResponse(code(message), message["node_id"])
    for found in message["coordinators"]:
        if found["key"] == request.key:
            return FindCoordinatorResponse(code(found), found["node_id"])
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


FIND_COORDINATOR = Translation(tables.FIND_COORDINATOR, _find, _find_response, _find_request, _find_reply)


# --- JoinGroup and SyncGroup: some attributes are not on the wire --------------------------

_JOIN = derived(tables.JOIN_GROUP)
_SYNC = derived(tables.SYNC_GROUP)


def _join_request(message: Fields, version: int, client: ClientInformation) -> RequestParts[JoinGroup]:
    (request,) = _JOIN.parse_request(message, version, client).requests
    takes_member_id = version >= _MEMBER_ID_FIRST_SINCE
    request = evolve(request, client_id=client.client_id, client_host=client.host, takes_member_id=takes_member_id)
    return RequestParts((request,))


def _join_response(message: Fields, version: int, request: JoinGroup) -> JoinGroupResponse:
    # The protocol type is on the wire only from version 7 on; the request has the same value.
    response: JoinGroupResponse = evolve(
        _JOIN.parse_response(message, version, request), protocol_type=request.protocol_type
    )
    return response


def _sync_response(message: Fields, version: int, request: SyncGroup) -> SyncGroupResponse:
    # The protocol type and name are on the wire only from version 5 on; the request has the same values.
    return SyncGroupResponse(
        code(message), message["assignment"], request.protocol_type or "", request.protocol_name or ""
    )


JOIN_GROUP = evolve(_JOIN, parse_request=_join_request, parse_response=_join_response)
SYNC_GROUP = evolve(_SYNC, parse_response=_sync_response)


# --- LeaveGroup: several members from version 3 on (KIP-345) ------------------------------

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
    found = code(message)
    if found is ErrorCode.NONE and message["members"]:
        found = code(message["members"][0])
    return LeaveGroupResponse(found)


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
        {
            "member_id": request.member_id,
            "group_instance_id": request.group_instance_id,
            "error_code": response.error,
        }
        for request, response in zip(incoming.requests, responses, strict=True)
    ]
    return {"error_code": whole, "members": rows}


LEAVE_GROUP = Translation(tables.LEAVE_GROUP, _leave, _leave_response, _leave_request, _leave_reply)


# --- OffsetFetch: several groups from version 8 on (KIP-709) ------------------------------


_GROUP = (
    Field("group_id", STRING),
    by_topic("topics", INT32, partitions="partition_indexes", nullable=0, attribute="partitions"),
)
_MEMBER = (Field("member_id", STRING, nullable=0, default=None), Field("member_epoch", INT32, default=-1))
_write_fetch = writer(OffsetFetch, _GROUP)
_write_fetch_of_member = writer(OffsetFetch, _GROUP + _MEMBER)
_read_fetch = reader(OffsetFetch, _GROUP)
_read_fetch_of_member = reader(OffsetFetch, _GROUP + _MEMBER)


def _fetch(request: OffsetFetch, version: int) -> Fields:
    is_many = version >= _MANY_FETCH_SINCE
    asked = {"groups": [_write_fetch_of_member(request)]} if is_many else _write_fetch(request)
    return asked | {"require_stable": request.require_stable}


def _fetch_response(message: Fields, version: int, request: OffsetFetch) -> OffsetFetchResponse:
    if version >= _MANY_FETCH_SINCE:
        (message,) = (group for group in message["groups"] if group["group_id"] == request.group_id)
    error = code(message)
    offsets = {}
    for partition, row in each_partition(message["topics"], "name", "partitions", "partition_index"):
        found = code(row)
        # The error of one partition becomes the error of the whole response, which can then be retried.
        if error is ErrorCode.NONE and found is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            error = found
        if row["committed_offset"] != _NO_OFFSET:
            offsets[partition] = OffsetAndMetadata(
                row["committed_offset"], text(row["metadata"]), row["committed_leader_epoch"]
            )
    return OffsetFetchResponse(error, offsets if error is ErrorCode.NONE else {})


def _fetch_request(message: Fields, version: int, client: ClientInformation) -> RequestParts[OffsetFetch]:
    is_many = version >= _MANY_FETCH_SINCE
    groups, read = (message["groups"], _read_fetch_of_member) if is_many else ((message,), _read_fetch)
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
            {"name": topic, "partitions": [row for _, row in found]} for topic, found in values_by_topic(rows).items()
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


OFFSET_FETCH = Translation(tables.OFFSET_FETCH, _fetch, _fetch_response, _fetch_request, _fetch_reply)


# --- ListGroups ---------------------------------------------------------------------------

_LIST = derived(tables.LIST_GROUPS)


def _list_response(message: Fields, version: int, request: ListGroups) -> ListGroupsResponse:
    fail_on(message, "list of groups")
    response: ListGroupsResponse = _LIST.parse_response(message, version, request)
    return response


LIST_GROUPS = evolve(_LIST, parse_response=_list_response)


# --- DescribeGroups and DeleteGroups: one message object for each group -------------------


def description(
    api: Api, names: str, request_class: type[Any], response_class: type[Any], fields: Sequence[Field]
) -> Translation[Any, Any]:
    """Return the translation of an API that describes groups; ``names`` is the field with the names of the groups."""
    row = tuple(item for item in fields if item.name != "group_id")
    write = writer(response_class, row)
    read = reader(response_class, row)
    flags = [item.name for item in api.request_fields if item.name != names]

    def parse_request(message: Fields, version: int, client: ClientInformation) -> RequestParts[Any]:
        # List each group once: its description may be a thousand times as long as its name.
        included = [message[flag] for flag in flags]
        return RequestParts(tuple(request_class(group_id, *included) for group_id in dict.fromkeys(message[names])))

    def build_response(incoming: Incoming[Any], responses: Sequence[Any], serving: Serving) -> Fields:
        rows = []
        for request, response in zip(incoming.requests, responses, strict=True):
            operations = _GROUP_OPERATIONS if request.include_authorized_operations else NO_OPERATIONS
            rows.append(write(response) | {"group_id": request.group_id, "authorized_operations": operations})
        return {"groups": rows}

    def parse_response(message: Fields, version: int, request: Any) -> Any:
        (group,) = message["groups"]
        return read(group)

    def build_request(request: Any, version: int) -> Fields:
        return {names: [request.group_id], **{flag: getattr(request, flag) for flag in flags}}

    return Translation(api, build_request, parse_response, parse_request, build_response)


def _delete_response(message: Fields, version: int, request: DeleteGroup) -> DeleteGroupResponse:
    (result,) = message["results"]
    return DeleteGroupResponse(code(result))


def _delete_reply(
    incoming: Incoming[DeleteGroup], responses: Sequence[DeleteGroupResponse], serving: Serving
) -> Fields:
    pairs = zip(incoming.requests, responses, strict=True)
    return {"results": [{"group_id": request.group_id, "error_code": found.error} for request, found in pairs]}


DESCRIBE_GROUPS = description(
    tables.DESCRIBE_GROUPS, "groups", DescribeGroup, DescribeGroupResponse, tables.DESCRIBED_GROUP
)
DELETE_GROUPS = Translation(
    tables.DELETE_GROUPS,
    lambda request, version: {"groups_names": [request.group_id]},
    _delete_response,
    lambda message, version, client: RequestParts(tuple(map(DeleteGroup, dict.fromkeys(message["groups_names"])))),
    _delete_reply,
)


# --- consumer groups (KIP-848) --------------------------------------------------------------


def heartbeat(api: Api) -> Translation[Any, Any]:
    """Return the translation of heartbeats, whose requests say which client has sent them."""
    return with_client(derived(api), lambda client: {"client_id": client.client_id, "client_host": client.host})


CONSUMER_GROUP_HEARTBEAT = heartbeat(tables.CONSUMER_GROUP_HEARTBEAT)

CONSUMER_GROUP_DESCRIBE = description(
    tables.CONSUMER_GROUP_DESCRIBE,
    "group_ids",
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    tables.DESCRIBED_CONSUMER_GROUP,
)

# --- streams groups (KIP-1071) --------------------------------------------------------------

STREAMS_GROUP_HEARTBEAT = heartbeat(streams_tables.STREAMS_GROUP_HEARTBEAT)

STREAMS_GROUP_DESCRIBE = description(
    streams_tables.STREAMS_GROUP_DESCRIBE,
    "group_ids",
    StreamsGroupDescribe,
    StreamsGroupDescribeResponse,
    streams_tables.DESCRIBED_STREAMS_GROUP,
)

TRANSLATIONS = (
    FIND_COORDINATOR,
    JOIN_GROUP,
    SYNC_GROUP,
    LEAVE_GROUP,
    OFFSET_FETCH,
    LIST_GROUPS,
    DESCRIBE_GROUPS,
    DELETE_GROUPS,
    CONSUMER_GROUP_HEARTBEAT,
    CONSUMER_GROUP_DESCRIBE,
    STREAMS_GROUP_HEARTBEAT,
    STREAMS_GROUP_DESCRIBE,
)
