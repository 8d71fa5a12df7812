"""Records of streams groups in the ``__consumer_offsets`` log, in Kafka's format (KIP-1071).

A group has a record with its epoch, one with its topology, and one with the epoch of its target assignment.  A member
has a record with what it says about itself, one with its target assignment, and one with its current assignment.
This module performs no I/O.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from attrs import evolve

from streams.group.record_coding import decoded, encoded, key_of, key_parts
from streams.group.streams_group import (
    RoleTasks,
    StreamsGroup,
    StreamsGroupMember,
    StreamsMemberState,
    StreamsTask,
    TaskSet,
    ids_of,
)
from streams.protocol.streams_group_messages import Endpoint, GroupTopology
from streams.protocol.wire import (
    ENDPOINT,
    INT8,
    INT32,
    INT64,
    STRING,
    TOPOLOGY,
    Field,
    Fields,
    Message,
    array,
    mapping,
    struct,
)

_GROUP = 17
_MEMBER = 19
_TARGET = 20
_TARGET_MEMBER = 21
_CURRENT = 22
_TOPOLOGY = 23
_VERSIONS: Final = frozenset({_GROUP, _MEMBER, _TARGET, _TARGET_MEMBER, _CURRENT, _TOPOLOGY})
_OF_MEMBERS: Final = frozenset({_MEMBER, _TARGET_MEMBER, _CURRENT})

_PAIR = (Field("key", STRING), Field("value", STRING))


def _tasks(name: str, *more: Field) -> Field:
    return array(name, Field("subtopology_id", STRING), array("partitions", INT32), *more)


def _tasks_with_epochs(name: str) -> Field:
    return _tasks(name, array("assignment_epochs", INT32, nullable=0, default=None, tag=0))


_GROUP_VALUE = Message(
    "StreamsGroupMetadataValue",
    0,
    (
        Field("epoch", INT32),
        Field("metadata_hash", INT64),
        Field("validated_topology_epoch", INT32, default=-1, tag=0),
        array("last_assignment_configs", *_PAIR, nullable=0, default=None, tag=1),
    ),
)
_TOPOLOGY_VALUE = Message("StreamsGroupTopologyValue", 0, TOPOLOGY)
_TARGET_VALUE = Message(
    "StreamsGroupTargetAssignmentMetadataValue",
    0,
    (Field("assignment_epoch", INT32), Field("assignment_timestamp", INT64, default=0, tag=0)),
)
_TARGET_MEMBER_VALUE = Message(
    "StreamsGroupTargetAssignmentMemberValue",
    0,
    (_tasks("active_tasks"), _tasks("standby_tasks"), _tasks("warmup_tasks")),
)
_MEMBER_VALUE = Message(
    "StreamsGroupMemberMetadataValue",
    0,
    (
        Field("instance_id", STRING, nullable=0),
        Field("rack_id", STRING, nullable=0),
        Field("client_id", STRING),
        Field("client_host", STRING),
        Field("rebalance_timeout_ms", INT32),
        Field("topology_epoch", INT32),
        Field("process_id", STRING),
        struct("user_endpoint", *ENDPOINT, nullable=0, default=None),
        array("client_tags", *_PAIR),
    ),
)
_CURRENT_VALUE = Message(
    "StreamsGroupCurrentMemberAssignmentValue",
    0,
    (
        Field("member_epoch", INT32),
        Field("previous_member_epoch", INT32),
        Field("state", INT8),
        _tasks_with_epochs("active_tasks"),
        _tasks("standby_tasks"),
        _tasks("warmup_tasks"),
        _tasks_with_epochs("active_tasks_pending_revocation"),
        _tasks("standby_tasks_pending_revocation"),
        _tasks("warmup_tasks_pending_revocation"),
    ),
)


def group_record(group_id: str, group: StreamsGroup) -> tuple[bytes, bytes]:
    """Return the record of a group's epoch, and of what its target assignment depends on."""
    fields = {
        "epoch": group.epoch,
        "metadata_hash": group.topics_hash,
        "validated_topology_epoch": group.validated_epoch,
        "last_assignment_configs": _pairs(group.assignment_settings),
    }
    return key_of(_GROUP, group_id), encoded(_GROUP_VALUE, fields)


def topology_record(group_id: str, topology: GroupTopology) -> tuple[bytes, bytes]:
    """Return the record of a group's topology."""
    return key_of(_TOPOLOGY, group_id), encoded(_TOPOLOGY_VALUE, _topology_functions()[0](topology))


def target_record(group_id: str, group: StreamsGroup) -> tuple[bytes, bytes]:
    """Return the record of the epoch of a group's target assignment."""
    return key_of(_TARGET, group_id), encoded(_TARGET_VALUE, {"assignment_epoch": group.assignment_epoch})


def target_member_record(group_id: str, member_id: str, target: RoleTasks) -> tuple[bytes, bytes]:
    """Return the record of a member's target assignment."""
    fields = {"active_tasks": _rows(target.active), "standby_tasks": _rows(target.standby), "warmup_tasks": ()}
    return key_of(_TARGET_MEMBER, group_id, member_id), encoded(_TARGET_MEMBER_VALUE, fields)


def member_record(group_id: str, member: StreamsGroupMember) -> tuple[bytes, bytes]:
    """Return the record of what a member says about itself."""
    endpoint = member.user_endpoint
    fields = {
        "instance_id": member.group_instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "topology_epoch": member.topology_epoch,
        "process_id": member.process_id,
        "user_endpoint": None if endpoint is None else {"host": endpoint.host, "port": endpoint.port},
        "client_tags": _pairs(member.client_tags),
    }
    return key_of(_MEMBER, group_id, member.member_id), encoded(_MEMBER_VALUE, fields)


def current_record(group_id: str, member: StreamsGroupMember) -> tuple[bytes, bytes]:
    """Return the record of a member's epoch and assignment."""
    fields = {
        "member_epoch": member.epoch,
        "previous_member_epoch": member.previous_epoch,
        "state": member.state,
        "active_tasks": _rows(member.assigned.active, member.since),
        "standby_tasks": _rows(member.assigned.standby),
        "warmup_tasks": (),
        "active_tasks_pending_revocation": _rows(member.revoking.active, member.since),
        "standby_tasks_pending_revocation": _rows(member.revoking.standby),
        "warmup_tasks_pending_revocation": (),
    }
    return key_of(_CURRENT, group_id, member.member_id), encoded(_CURRENT_VALUE, fields)


def keys_of_member(group_id: str, member_id: str) -> list[bytes]:
    """Return the keys of all records of a member."""
    return [key_of(version, group_id, member_id) for version in (_CURRENT, _TARGET_MEMBER, _MEMBER)]


def keys_of_group(group_id: str) -> list[bytes]:
    """Return the keys of all records of a group without members."""
    return [key_of(version, group_id) for version in (_TARGET, _GROUP, _TOPOLOGY)]


def read_streams_key(data: bytes) -> tuple[int, str, str] | None:
    """Decode a record key: its version, group ID, and member ID or ""; None if it is not of this module."""
    return key_parts(data, _VERSIONS, _OF_MEMBERS)


def load_streams_record(group: StreamsGroup, version: int, member_id: str, value: bytes | None) -> None:
    """Apply a record of a group to its state.  Compaction keeps the records of a member in any order."""
    if version in _OF_MEMBERS:
        _load_member(group, version, member_id, value)
    elif version == _TOPOLOGY:
        read = _topology_functions()[1]
        group.topology = None if value is None else read(decoded(_TOPOLOGY_VALUE, value))
    elif version == _TARGET:
        group.assignment_epoch = 1 if value is None else decoded(_TARGET_VALUE, value)["assignment_epoch"]
    elif value is None:
        group.epoch = 1
        group.topics_hash = 0
        group.validated_epoch = -1
        group.assignment_settings = {}
    else:
        fields = decoded(_GROUP_VALUE, value)
        group.epoch = fields["epoch"]
        group.topics_hash = fields["metadata_hash"]
        group.validated_epoch = fields["validated_topology_epoch"]
        group.assignment_settings = _unpaired(fields["last_assignment_configs"] or ())


def _load_member(group: StreamsGroup, version: int, member_id: str, value: bytes | None) -> None:
    known = group.members.get(member_id)
    if version == _TARGET_MEMBER:
        if value is None:
            group.target.pop(member_id, None)
        else:
            fields = decoded(_TARGET_MEMBER_VALUE, value)
            group.target[member_id] = RoleTasks(_tasks_in(fields["active_tasks"]), _tasks_in(fields["standby_tasks"]))
    elif value is not None:
        load = _with_metadata if version == _MEMBER else _with_assignment
        group.put(load(known or StreamsGroupMember(member_id), value))
    elif known is not None:
        target = group.target.get(member_id)
        group.remove(known)
        if target is not None:
            group.target[member_id] = target


def _with_metadata(member: StreamsGroupMember, value: bytes) -> StreamsGroupMember:
    fields = decoded(_MEMBER_VALUE, value)
    endpoint = fields["user_endpoint"]
    return evolve(
        member,
        group_instance_id=fields["instance_id"],
        rack_id=fields["rack_id"],
        client_id=fields["client_id"],
        client_host=fields["client_host"],
        rebalance_timeout_ms=fields["rebalance_timeout_ms"],
        topology_epoch=fields["topology_epoch"],
        process_id=fields["process_id"],
        user_endpoint=None if endpoint is None else Endpoint(endpoint["host"], endpoint["port"]),
        client_tags=_unpaired(fields["client_tags"]),
    )


def _with_assignment(member: StreamsGroupMember, value: bytes) -> StreamsGroupMember:
    fields = decoded(_CURRENT_VALUE, value)
    active = fields["active_tasks"]
    revoking = fields["active_tasks_pending_revocation"]
    return evolve(
        member,
        epoch=fields["member_epoch"],
        previous_epoch=fields["previous_member_epoch"],
        state=StreamsMemberState(fields["state"]),
        assigned=RoleTasks(_tasks_in(active), _tasks_in(fields["standby_tasks"])),
        revoking=RoleTasks(_tasks_in(revoking), _tasks_in(fields["standby_tasks_pending_revocation"])),
        since={
            StreamsTask(row["subtopology_id"], number): epoch
            for row in (*active, *revoking)
            for number, epoch in zip(row["partitions"], row["assignment_epochs"] or (), strict=False)
        },
    )


@cache
def _topology_functions() -> tuple[Any, Any]:
    """Return the functions that write and read a topology."""
    return mapping.writer(GroupTopology, TOPOLOGY), mapping.reader(GroupTopology, TOPOLOGY)


def _rows(tasks: TaskSet, since: Mapping[StreamsTask, int] | None = None) -> list[Fields]:
    rows: list[Fields] = []
    for subtopology_id, numbers in ids_of(tasks).items():
        row: Fields = {"subtopology_id": subtopology_id, "partitions": numbers}
        if since is not None:
            row["assignment_epochs"] = [since.get(StreamsTask(subtopology_id, number), 0) for number in numbers]
        rows.append(row)
    return rows


def _tasks_in(rows: Iterable[Fields]) -> TaskSet:
    return frozenset(StreamsTask(row["subtopology_id"], number) for row in rows for number in row["partitions"])


def _pairs(values: Mapping[str, str]) -> list[Fields]:
    return [{"key": key, "value": value} for key, value in sorted(values.items())]


def _unpaired(rows: Iterable[Fields]) -> dict[str, str]:
    return {row["key"]: row["value"] for row in rows}
