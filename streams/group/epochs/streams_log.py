"""Records of streams groups in the ``__consumer_offsets`` log, in Kafka's format (KIP-1071).  No I/O."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from streams.group.state.epoch_log import (
    ASSIGNMENT_EPOCH,
    EPOCH,
    REBALANCE_TIMEOUT,
    WHO,
    Column,
    GroupLog,
    GroupRecord,
    progress,
    record,
)
from streams.group.state.streams_group import (
    RoleTasks,
    StreamsGroup,
    StreamsGroupMember,
    StreamsTask,
    TaskSet,
    ids_of,
)
from streams.protocol.schema import INT32, INT64, STRING, Field, Fields, Message, array, fields_of, struct
from streams.protocol.streams_group_messages import Endpoint, GroupTopology
from streams.protocol.wire.derived import reader, writer

_PAIR: Final = (Field("key", STRING), Field("value", STRING))


def _pairs(values: Mapping[str, str]) -> list[Fields]:
    return [{"key": key, "value": value} for key, value in sorted(values.items())]


def _unpaired(rows: Iterable[Fields] | None) -> dict[str, str]:
    return {row["key"]: row["value"] for row in rows or ()}


def _endpoint_row(endpoint: Endpoint | None) -> Fields | None:
    return None if endpoint is None else {"host": endpoint.host, "port": endpoint.port}


def _endpoint(row: Fields | None) -> Endpoint | None:
    return None if row is None else Endpoint(row["host"], row["port"])


# --- tasks --------------------------------------------------------------------------


def _tasks(name: str, *more: Field) -> Field:
    return array(name, Field("subtopology_id", STRING), array("partitions", INT32), *more)


def _roles(suffix: str = "", *of_active: Field) -> tuple[Field, ...]:
    return (
        _tasks(f"active_tasks{suffix}", *of_active),
        _tasks(f"standby_tasks{suffix}"),
        _tasks(f"warmup_tasks{suffix}"),
    )


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


def _role_rows(tasks: RoleTasks, suffix: str = "", since: Mapping[StreamsTask, int] | None = None) -> Fields:
    return {
        f"active_tasks{suffix}": _rows(tasks.active, since),
        f"standby_tasks{suffix}": _rows(tasks.standby),
        f"warmup_tasks{suffix}": (),
    }


def _role_tasks(fields: Fields, suffix: str = "") -> RoleTasks:
    return RoleTasks(_tasks_in(fields[f"active_tasks{suffix}"]), _tasks_in(fields[f"standby_tasks{suffix}"]))


_REVOKING: Final = "_pending_revocation"
_EPOCHS: Final = array("assignment_epochs", INT32, nullable=0, default=None, tag=0)
_PROGRESS: Final = record(22, "StreamsGroupCurrentMemberAssignmentValue", *progress(1))


def _current_fields(member: StreamsGroupMember) -> Fields:
    assigned = _role_rows(member.assigned, since=member.since)
    return _PROGRESS.write(member) | assigned | _role_rows(member.revoking, _REVOKING, member.since)


def _current(fields: Fields) -> Mapping[str, Any]:
    since = {
        StreamsTask(row["subtopology_id"], number): epoch
        for row in (*fields["active_tasks"], *fields[f"active_tasks{_REVOKING}"])
        for number, epoch in zip(row["partitions"], row["assignment_epochs"] or (), strict=False)
    }
    work = {"assigned": _role_tasks(fields), "revoking": _role_tasks(fields, _REVOKING), "since": since}
    return {**_PROGRESS.read(fields), **work}


_TOPOLOGY: Final = GroupRecord(
    23,
    Message("StreamsGroupTopologyValue", 0, fields_of(GroupTopology)),
    lambda group: writer(GroupTopology)(group.topology),
    lambda fields: {"topology": reader(GroupTopology)(fields)},
    ("topology",),
)
STREAMS_LOG: Final = GroupLog(
    StreamsGroup,
    StreamsGroupMember,
    group=record(
        17,
        "StreamsGroupMetadataValue",
        EPOCH,
        Column(Field("metadata_hash", INT64), "topics_hash"),
        Column(Field("validated_topology_epoch", INT32, default=-1, tag=0), "validated_epoch"),
        Column(
            array("last_assignment_configs", *_PAIR, nullable=0, default=None, tag=1),
            "assignment_settings",
            _pairs,
            _unpaired,
        ),
    ),
    target=record(
        20,
        "StreamsGroupTargetAssignmentMetadataValue",
        ASSIGNMENT_EPOCH,
        unused=(Field("assignment_timestamp", INT64, default=0, tag=0),),
    ),
    member=record(
        19,
        "StreamsGroupMemberMetadataValue",
        *WHO,
        REBALANCE_TIMEOUT,
        Column(Field("topology_epoch", INT32), "topology_epoch"),
        Column(Field("process_id", STRING), "process_id"),
        Column(
            struct("user_endpoint", *fields_of(Endpoint), nullable=0, default=None),
            "user_endpoint",
            _endpoint_row,
            _endpoint,
        ),
        Column(array("client_tags", *_PAIR), "client_tags", _pairs, _unpaired),
    ),
    current=GroupRecord(
        22,
        Message(
            _PROGRESS.message.name,
            0,
            (*_PROGRESS.message.fields, *_roles("", _EPOCHS), *_roles(_REVOKING, _EPOCHS)),
        ),
        _current_fields,
        _current,
    ),
    target_member=GroupRecord(
        21,
        Message("StreamsGroupTargetAssignmentMemberValue", 0, _roles()),
        _role_rows,
        lambda fields: {"target": _role_tasks(fields)},
    ),
    more=(_TOPOLOGY,),
)
