"""Membership of groups in Kafka's words: the coordinator, joining, assignment, heartbeats, leaving."""

from collections.abc import Sequence

from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    FindCoordinator,
    FindCoordinatorResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupMember,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    SyncGroup,
    SyncGroupResponse,
)
from streams.protocol.wire.errors import EncodingError
from streams.protocol.wire.fields import Fields
from streams.protocol.wire.mapping.base import Asked, Incoming, Serving, Translation, code, one
from streams.protocol.wire.tables import groups as tables

# First versions of what changes the form of a message.
_MANY_KEYS_SINCE = 4
_MANY_LEAVE_SINCE = 3
_MEMBER_ID_FIRST_SINCE = 4


# --- FindCoordinator ----------------------------------------------------------------------


def _find(request: FindCoordinator, version: int) -> Fields:
    if version >= _MANY_KEYS_SINCE:
        return {"key_type": request.key_type, "coordinator_keys": [request.key]}
    return {"key": request.key, "key_type": request.key_type}


def _find_answer(message: Fields, version: int, request: FindCoordinator) -> FindCoordinatorResponse:
    if version < _MANY_KEYS_SINCE:
        return FindCoordinatorResponse(code(message), message["node_id"])
    for found in message["coordinators"]:
        if found["key"] == request.key:
            return FindCoordinatorResponse(code(found), found["node_id"])
    return FindCoordinatorResponse(ErrorCode.UNKNOWN_SERVER_ERROR, -1)


def _find_asked(message: Fields, version: int, client_id: str) -> Asked[FindCoordinator]:
    keys = message["coordinator_keys"] if version >= _MANY_KEYS_SINCE else (message["key"],)
    return tuple(FindCoordinator(key, message["key_type"]) for key in dict.fromkeys(keys)), {}


def _find_answered(
    incoming: Incoming[FindCoordinator], responses: Sequence[FindCoordinatorResponse], serving: Serving
) -> Fields:
    rows = []
    for request, response in zip(incoming.requests, responses, strict=True):
        host, port = serving.addresses.get(response.node_id, ("", -1))
        rows.append(
            {
                "key": request.key,
                "error_code": response.error,
                "node_id": response.node_id,
                "host": host,
                "port": port,
            }
        )
    return {"coordinators": rows} if incoming.version >= _MANY_KEYS_SINCE else rows[0]


FIND_COORDINATOR = Translation(
    tables.FIND_COORDINATOR.key,
    FindCoordinator,
    FindCoordinatorResponse,
    tables.FIND_COORDINATOR.versions,
    _find,
    _find_answer,
    _find_asked,
    _find_answered,
)


# --- JoinGroup ----------------------------------------------------------------------------


def _join(request: JoinGroup, version: int) -> Fields:
    return {
        "group_id": request.group_id,
        "session_timeout_ms": request.session_timeout_ms,
        "rebalance_timeout_ms": request.rebalance_timeout_ms,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "protocol_type": request.protocol_type,
        "protocols": [{"name": name, "metadata": metadata} for name, metadata in request.protocols],
    }


def _join_answer(message: Fields, version: int, request: JoinGroup) -> JoinGroupResponse:
    return JoinGroupResponse(
        code(message),
        message["generation_id"],
        message["protocol_name"],
        message["leader"],
        message["member_id"],
        tuple(
            JoinGroupMember(member["member_id"], member["group_instance_id"], member["metadata"])
            for member in message["members"]
        ),
        # Named in the answer from version 7 on only; it is what was joined with.
        request.protocol_type,
    )


def _join_asked(message: Fields, version: int, client_id: str) -> Asked[JoinGroup]:
    return one(
        JoinGroup(
            message["group_id"],
            message["member_id"],
            message["protocol_type"],
            tuple((protocol["name"], protocol["metadata"]) for protocol in message["protocols"]),
            message["session_timeout_ms"],
            message["rebalance_timeout_ms"],
            message["group_instance_id"],
            client_id,
            takes_member_id=version >= _MEMBER_ID_FIRST_SINCE,
        )
    )


def _join_answered(incoming: Incoming[JoinGroup], responses: Sequence[JoinGroupResponse], serving: Serving) -> Fields:
    (response,) = responses
    return {
        "error_code": response.error,
        "generation_id": response.generation_id,
        "protocol_name": response.protocol_name,
        "leader": response.leader,
        "member_id": response.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "metadata": member.metadata,
            }
            for member in response.members
        ],
    }


JOIN_GROUP = Translation(
    tables.JOIN_GROUP.key,
    JoinGroup,
    JoinGroupResponse,
    tables.JOIN_GROUP.versions,
    _join,
    _join_answer,
    _join_asked,
    _join_answered,
)


# --- SyncGroup ----------------------------------------------------------------------------


def _sync(request: SyncGroup, version: int) -> Fields:
    return {
        "group_id": request.group_id,
        "generation_id": request.generation_id,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "assignments": [
            {"member_id": member_id, "assignment": assignment} for member_id, assignment in request.assignments.items()
        ],
    }


def _sync_answer(message: Fields, version: int, request: SyncGroup) -> SyncGroupResponse:
    # Protocol type and name come from version 5 on only; they are what was asked for.
    return SyncGroupResponse(
        code(message), message["assignment"], request.protocol_type or "", request.protocol_name or ""
    )


def _sync_asked(message: Fields, version: int, client_id: str) -> Asked[SyncGroup]:
    return one(
        SyncGroup(
            message["group_id"],
            message["generation_id"],
            message["member_id"],
            message["group_instance_id"],
            {member["member_id"]: member["assignment"] for member in message["assignments"]},
        )
    )


def _sync_answered(incoming: Incoming[SyncGroup], responses: Sequence[SyncGroupResponse], serving: Serving) -> Fields:
    return {"error_code": responses[0].error, "assignment": responses[0].assignment}


SYNC_GROUP = Translation(
    tables.SYNC_GROUP.key,
    SyncGroup,
    SyncGroupResponse,
    tables.SYNC_GROUP.versions,
    _sync,
    _sync_answer,
    _sync_asked,
    _sync_answered,
)


# --- Heartbeat ----------------------------------------------------------------------------


def _heartbeat(request: Heartbeat, version: int) -> Fields:
    return {
        "group_id": request.group_id,
        "generation_id": request.generation_id,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
    }


def _heartbeat_answer(message: Fields, version: int, request: Heartbeat) -> HeartbeatResponse:
    return HeartbeatResponse(code(message))


def _heartbeat_asked(message: Fields, version: int, client_id: str) -> Asked[Heartbeat]:
    return one(
        Heartbeat(message["group_id"], message["generation_id"], message["member_id"], message["group_instance_id"])
    )


def _heartbeat_answered(
    incoming: Incoming[Heartbeat], responses: Sequence[HeartbeatResponse], serving: Serving
) -> Fields:
    return {"error_code": responses[0].error}


HEARTBEAT = Translation(
    tables.HEARTBEAT.key,
    Heartbeat,
    HeartbeatResponse,
    tables.HEARTBEAT.versions,
    _heartbeat,
    _heartbeat_answer,
    _heartbeat_asked,
    _heartbeat_answered,
)


# --- LeaveGroup ---------------------------------------------------------------------------


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


def _leave_answer(message: Fields, version: int, request: LeaveGroup) -> LeaveGroupResponse:
    found = code(message)
    if found is ErrorCode.NONE and message["members"]:
        found = code(message["members"][0])
    return LeaveGroupResponse(found)


def _leave_asked(message: Fields, version: int, client_id: str) -> Asked[LeaveGroup]:
    group_id = message["group_id"]
    if version < _MANY_LEAVE_SINCE:
        return one(LeaveGroup(group_id, message["member_id"]))
    return tuple(
        LeaveGroup(group_id, member["member_id"], member["group_instance_id"]) for member in message["members"]
    ), {}


def _leave_answered(
    incoming: Incoming[LeaveGroup], responses: Sequence[LeaveGroupResponse], serving: Serving
) -> Fields:
    if incoming.version < _MANY_LEAVE_SINCE:
        return {"error_code": responses[0].error}
    # Where the group has moved, or is not there yet, it is so for all its members.
    errors = {response.error for response in responses}
    whole = next(iter(errors)) if len(errors) == 1 and errors <= _OF_THE_GROUP else ErrorCode.NONE
    return {
        "error_code": whole,
        "members": [
            {
                "member_id": request.member_id,
                "group_instance_id": request.group_instance_id,
                "error_code": response.error,
            }
            for request, response in zip(incoming.requests, responses, strict=True)
        ],
    }


_OF_THE_GROUP = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_GROUP_ID,
}

LEAVE_GROUP = Translation(
    tables.LEAVE_GROUP.key,
    LeaveGroup,
    LeaveGroupResponse,
    tables.LEAVE_GROUP.versions,
    _leave,
    _leave_answer,
    _leave_asked,
    _leave_answered,
)

TRANSLATIONS = (FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP)
