"""Committed offsets and the administration of groups in Kafka's words."""

from collections.abc import Iterable, Mapping, Sequence

from streams.core.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    DeleteGroup,
    DeleteGroupResponse,
    DescribedMember,
    DescribeGroup,
    DescribeGroupResponse,
    ListGroups,
    ListGroupsResponse,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
)
from streams.protocol.wire.fields import Fields
from streams.protocol.wire.mapping.base import (
    NO_OPERATIONS,
    Asked,
    Incoming,
    Operation,
    Serving,
    Translation,
    by_topic,
    code,
    each_partition,
    fail_on,
    one,
    operations_bits,
    partitions_by_topic,
    text,
)
from streams.protocol.wire.tables import groups as tables

_NO_OFFSET = -1
# First versions of what changes the form of a message.
_MANY_GROUPS_SINCE = 8
_WHOLE_ERROR_SINCE = 2
# Who may come in may do everything (KIP-430).
_GROUP_OPERATIONS = operations_bits(Operation.READ, Operation.DELETE, Operation.DESCRIBE)
# All groups are of the protocol that has its assignors at the clients; the other one is KIP-848's.
_GROUP_TYPE = "Classic"


# --- OffsetCommit -------------------------------------------------------------------------


def _commit(request: OffsetCommit, version: int) -> Fields:
    return {
        "group_id": request.group_id,
        "generation_id_or_member_epoch": request.generation_id,
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": committed.offset,
                        "committed_metadata": committed.metadata,
                        "committed_leader_epoch": committed.leader_epoch,
                    }
                    for number, committed in partitions
                ],
            }
            for topic, partitions in by_topic(request.offsets).items()
        ],
    }


def _commit_answer(message: Fields, version: int, request: OffsetCommit) -> OffsetCommitResponse:
    rows = each_partition(message["topics"], "name", "partitions", "partition_index")
    return OffsetCommitResponse({partition: code(row) for partition, row in rows})


def _commit_asked(message: Fields, version: int, client_id: str) -> Asked[OffsetCommit]:
    rows = each_partition(message["topics"], "name", "partitions", "partition_index")
    return one(
        OffsetCommit(
            message["group_id"],
            {
                partition: OffsetAndMetadata(
                    row["committed_offset"], text(row["committed_metadata"]), row["committed_leader_epoch"]
                )
                for partition, row in rows
            },
            message["generation_id_or_member_epoch"],
            message["member_id"],
            message["group_instance_id"],
        )
    )


def _commit_answered(
    incoming: Incoming[OffsetCommit], responses: Sequence[OffsetCommitResponse], serving: Serving
) -> Fields:
    (response,) = responses
    return {
        "topics": [
            {
                "name": topic,
                "partitions": [{"partition_index": number, "error_code": error} for number, error in partitions],
            }
            for topic, partitions in by_topic(response.errors).items()
        ]
    }


OFFSET_COMMIT = Translation(
    tables.OFFSET_COMMIT.key,
    OffsetCommit,
    OffsetCommitResponse,
    tables.OFFSET_COMMIT.versions,
    _commit,
    _commit_answer,
    _commit_asked,
    _commit_answered,
)


# --- OffsetFetch --------------------------------------------------------------------------


def _fetch(request: OffsetFetch, version: int) -> Fields:
    topics = None
    if request.partitions is not None:
        topics = [
            {"name": topic, "partition_indexes": numbers}
            for topic, numbers in partitions_by_topic(request.partitions).items()
        ]
    asked: Fields = {"group_id": request.group_id, "topics": topics}
    if version >= _MANY_GROUPS_SINCE:
        asked = {"groups": [asked]}
    return asked | {"require_stable": request.require_stable}


def _fetch_answer(message: Fields, version: int, request: OffsetFetch) -> OffsetFetchResponse:
    if version >= _MANY_GROUPS_SINCE:
        (message,) = (group for group in message["groups"] if group["group_id"] == request.group_id)
    error, offsets = code(message), {}
    for partition, row in each_partition(message["topics"], "name", "partitions", "partition_index"):
        found = code(row)
        # One partition that cannot be told makes the whole answer one to ask for again.
        if error is ErrorCode.NONE and found is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            error = found
        if row["committed_offset"] != _NO_OFFSET:
            offsets[partition] = OffsetAndMetadata(
                row["committed_offset"], text(row["metadata"]), row["committed_leader_epoch"]
            )
    return OffsetFetchResponse(error, offsets if error is ErrorCode.NONE else {})


def _fetch_asked(message: Fields, version: int, client_id: str) -> Asked[OffsetFetch]:
    groups = message["groups"] if version >= _MANY_GROUPS_SINCE else (message,)
    # Each once: without partitions it asks for all offsets of a group.
    distinct = {group["group_id"]: group for group in groups}.values()
    return tuple(
        OffsetFetch(group["group_id"], _partitions(group["topics"]), message["require_stable"]) for group in distinct
    ), {}


def _partitions(topics: Iterable[Fields] | None) -> tuple[TopicPartition, ...] | None:
    if topics is None:
        return None
    named = (TopicPartition(topic["name"], number) for topic in topics for number in topic["partition_indexes"])
    return tuple(dict.fromkeys(named))


def _fetch_answered(
    incoming: Incoming[OffsetFetch], responses: Sequence[OffsetFetchResponse], serving: Serving
) -> Fields:
    groups = [
        {"group_id": request.group_id} | _fetched(request, response, incoming.version)
        for request, response in zip(incoming.requests, responses, strict=True)
    ]
    return {"groups": groups} if incoming.version >= _MANY_GROUPS_SINCE else groups[0]


def _fetched(request: OffsetFetch, response: OffsetFetchResponse, version: int) -> Fields:
    partitions = response.offsets if request.partitions is None else request.partitions
    # What is not stable is said of partitions; clients take it for fatal where it is said of the group (KIP-447).
    is_of_partitions = version < _WHOLE_ERROR_SINCE or response.error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    error = response.error if is_of_partitions else ErrorCode.NONE
    rows: Mapping[TopicPartition, Fields] = {
        partition: _fetched_row(partition, response.offsets.get(partition), error) for partition in partitions
    }
    return {
        "error_code": ErrorCode.NONE if is_of_partitions and rows else response.error,
        "topics": [{"name": topic, "partitions": [row for _, row in found]} for topic, found in by_topic(rows).items()],
    }


def _fetched_row(partition: TopicPartition, committed: OffsetAndMetadata | None, error: ErrorCode) -> Fields:
    return {
        "partition_index": partition.partition,
        "committed_offset": _NO_OFFSET if committed is None else committed.offset,
        "metadata": "" if committed is None else committed.metadata,
        "committed_leader_epoch": -1 if committed is None else committed.leader_epoch,
        "error_code": error,
    }


OFFSET_FETCH = Translation(
    tables.OFFSET_FETCH.key,
    OffsetFetch,
    OffsetFetchResponse,
    tables.OFFSET_FETCH.versions,
    _fetch,
    _fetch_answer,
    _fetch_asked,
    _fetch_answered,
)


# --- ListGroups ---------------------------------------------------------------------------


def _list(request: ListGroups, version: int) -> Fields:
    return {}


def _list_answer(message: Fields, version: int, request: ListGroups) -> ListGroupsResponse:
    fail_on(message, "list of groups")
    # States are told from version 4 on only; they are empty before.
    return ListGroupsResponse(
        tuple((group["group_id"], group["protocol_type"], group["group_state"]) for group in message["groups"])
    )


def _list_asked(message: Fields, version: int, client_id: str) -> Asked[ListGroups]:
    return one(ListGroups())


def _list_answered(incoming: Incoming[ListGroups], responses: Sequence[ListGroupsResponse], serving: Serving) -> Fields:
    return {
        "error_code": ErrorCode.NONE,
        "groups": [
            {
                "group_id": group_id,
                "protocol_type": protocol_type,
                "group_state": state,
                "group_type": _GROUP_TYPE,
            }
            for group_id, protocol_type, state in responses[0].groups
            if _is_listed(state, incoming.message["states_filter"])
            and _is_listed(_GROUP_TYPE, incoming.message["types_filter"])
        ],
    }


def _is_listed(word: str, wanted: Sequence[str]) -> bool:
    """Whether a filter takes a word: one without words takes all (KIP-518, KIP-848)."""
    return not wanted or word.lower() in {item.lower() for item in wanted}


LIST_GROUPS = Translation(
    tables.LIST_GROUPS.key,
    ListGroups,
    ListGroupsResponse,
    tables.LIST_GROUPS.versions,
    _list,
    _list_answer,
    _list_asked,
    _list_answered,
)


# --- DescribeGroups -----------------------------------------------------------------------


def _describe(request: DescribeGroup, version: int) -> Fields:
    return {"groups": [request.group_id]}


def _describe_answer(message: Fields, version: int, request: DescribeGroup) -> DescribeGroupResponse:
    (group,) = message["groups"]
    return DescribeGroupResponse(
        code(group),
        group["group_state"],
        group["protocol_type"],
        group["protocol_data"],
        members=tuple(
            DescribedMember(
                member["member_id"],
                member["group_instance_id"],
                member["client_id"],
                member["member_metadata"],
                member["member_assignment"],
                member["client_host"],
            )
            for member in group["members"]
        ),
    )


def _describe_asked(message: Fields, version: int, client_id: str) -> Asked[DescribeGroup]:
    # Each once: an answer may be a thousand times as long as the name.
    return tuple(DescribeGroup(group_id) for group_id in dict.fromkeys(message["groups"])), {}


def _describe_answered(
    incoming: Incoming[DescribeGroup], responses: Sequence[DescribeGroupResponse], serving: Serving
) -> Fields:
    operations = _GROUP_OPERATIONS if incoming.message["include_authorized_operations"] else NO_OPERATIONS
    return {
        "groups": [
            {
                "error_code": response.error,
                "group_id": request.group_id,
                "group_state": response.state,
                "protocol_type": response.protocol_type,
                "protocol_data": response.protocol_name,
                "authorized_operations": operations,
                "members": [
                    {
                        "member_id": member.member_id,
                        "group_instance_id": member.group_instance_id,
                        "client_id": member.client_id,
                        "client_host": member.client_host,
                        "member_metadata": member.metadata,
                        "member_assignment": member.assignment,
                    }
                    for member in response.members
                ],
            }
            for request, response in zip(incoming.requests, responses, strict=True)
        ]
    }


DESCRIBE_GROUPS = Translation(
    tables.DESCRIBE_GROUPS.key,
    DescribeGroup,
    DescribeGroupResponse,
    tables.DESCRIBE_GROUPS.versions,
    _describe,
    _describe_answer,
    _describe_asked,
    _describe_answered,
)


# --- DeleteGroups -------------------------------------------------------------------------


def _delete(request: DeleteGroup, version: int) -> Fields:
    return {"groups_names": [request.group_id]}


def _delete_answer(message: Fields, version: int, request: DeleteGroup) -> DeleteGroupResponse:
    (result,) = message["results"]
    return DeleteGroupResponse(code(result))


def _delete_asked(message: Fields, version: int, client_id: str) -> Asked[DeleteGroup]:
    return tuple(DeleteGroup(group_id) for group_id in dict.fromkeys(message["groups_names"])), {}


def _delete_answered(
    incoming: Incoming[DeleteGroup], responses: Sequence[DeleteGroupResponse], serving: Serving
) -> Fields:
    return {
        "results": [
            {"group_id": request.group_id, "error_code": response.error}
            for request, response in zip(incoming.requests, responses, strict=True)
        ]
    }


DELETE_GROUPS = Translation(
    tables.DELETE_GROUPS.key,
    DeleteGroup,
    DeleteGroupResponse,
    tables.DELETE_GROUPS.versions,
    _delete,
    _delete_answer,
    _delete_asked,
    _delete_answered,
)

TRANSLATIONS = (OFFSET_COMMIT, OFFSET_FETCH, LIST_GROUPS, DESCRIBE_GROUPS, DELETE_GROUPS)
