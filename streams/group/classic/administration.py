"""Administration of groups in the coordinator: describing, creating and deleting groups, and setting offsets.

The module ``coordinator`` handles requests from members.
Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Mapping, Sequence, Set

from streams.core.blocks.records import TopicPartition
from streams.core.errors import SerializationError
from streams.group.assignment.subscriptions import (
    CONSUMER_PROTOCOL_TYPE,
    STREAMS_PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    is_concerned,
)
from streams.group.epochs.server_assignors import DEFAULT_ASSIGNOR
from streams.group.epochs.streams_views import partitions_of, source_topics
from streams.group.epochs.task_assignor import STICKY
from streams.group.state.consumer_group import ConsumerGroup, named
from streams.group.state.coordinator_config import CoordinatorConfig
from streams.group.state.registry import Groups
from streams.group.state.states import Group, GroupMember, GroupSettings
from streams.group.state.streams_group import StreamsGroup
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    CLASSIC_GROUP,
    CONSUMER_GROUP,
    STREAMS_GROUP,
    CreateGroup,
    DescribedMember,
    DescribeGroupResponse,
    ListGroups,
    OffsetAndMetadata,
    ResetOffsets,
    ResetOffsetsResponse,
    Shift,
)

# Number of resets kept per group to detect duplicates.
_REMEMBERED_RESETS = 16


def describe(group: Group | None) -> DescribeGroupResponse:
    """Return the description of a group; the state is ``Dead`` if there is none."""
    if group is None:
        return DescribeGroupResponse(ErrorCode.NONE)
    if group.consumer is not None:
        return _described_consumers(group.consumer)
    if group.streams is not None:
        return _described_streams(group.streams)
    members = tuple(
        DescribedMember(
            m.member_id, m.group_instance_id, m.client_id, m.metadata(group.protocol_name), m.assignment, m.client_host
        )
        for m in group.members.values()
    )
    return DescribeGroupResponse(
        ErrorCode.NONE,
        group.state.value,
        group.protocol_type,
        group.protocol_name,
        group.generation_id,
        members,
        group.is_ephemeral,
        None if group.settings is None else group.settings.session_timeout_ms,
    )


def _described_consumers(group: ConsumerGroup) -> DescribeGroupResponse:
    """Return the description of a consumer group as if its members had assigned the partitions themselves."""
    members = tuple(
        DescribedMember(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            encode_subscription(Subscription(tuple(sorted(m.topics)), rack_id=m.rack_id)),
            encode_assignment(Assignment(tuple(named(m.owned, group.topics.names)))),
            m.client_host,
        )
        for m in group.members.values()
    )
    assignor = group.assignor(DEFAULT_ASSIGNOR)
    return DescribeGroupResponse(ErrorCode.NONE, group.state, CONSUMER_PROTOCOL_TYPE, assignor, group.epoch, members)


def _described_streams(group: StreamsGroup) -> DescribeGroupResponse:
    """Return the description of a streams group as if its members were consumers that read what their tasks read.

    By another protocol type, Java's ``describeConsumerGroups`` would refuse the group; Kafka calls it ``Dead``.
    """
    subscribed = encode_subscription(Subscription(tuple(sorted(source_topics(group)))))
    members = tuple(
        DescribedMember(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            subscribed,
            encode_assignment(Assignment(partitions_of(group, m.assigned.active))),
            m.client_host,
        )
        for m in group.members.values()
    )
    return DescribeGroupResponse(ErrorCode.NONE, group.state, CONSUMER_PROTOCOL_TYPE, STICKY, group.epoch, members)


def listed(groups: Groups, request: ListGroups) -> tuple[tuple[str, str, str, str], ...]:
    """Return (group id, protocol type, state, type) of each group that passes the filters (KIP-518, KIP-848)."""
    rows = (
        (group.group_id, *_type_of(group), group.state_name)
        for group in groups
        if _passes(group.state_name, request.states_filter)
    )
    return tuple(
        (group_id, protocol_type, state, kind)
        for group_id, protocol_type, kind, state in rows
        if _passes(kind, request.types_filter)
    )


def _type_of(group: Group) -> tuple[str, str]:
    if group.consumer is not None:
        return CONSUMER_PROTOCOL_TYPE, CONSUMER_GROUP
    if group.streams is not None:
        return STREAMS_PROTOCOL_TYPE, STREAMS_GROUP
    return group.protocol_type, CLASSIC_GROUP


def _passes(word: str, accepted: Sequence[str]) -> bool:
    """Whether ``accepted`` is empty or contains ``word``, ignoring case."""
    return not accepted or word.lower() in {item.lower() for item in accepted}


def create(groups: Groups, config: CoordinatorConfig, request: CreateGroup) -> ErrorCode:
    """Create a group with explicit settings before its first member joins; idempotent for the same settings."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    timeout_ms = request.session_timeout_ms
    if timeout_ms is not None and not config.allows_session(timeout_ms):
        return ErrorCode.INVALID_SESSION_TIMEOUT
    settings = GroupSettings(request.is_ephemeral, request.session_timeout_ms)
    group = groups.get(request.group_id)
    if group is not None:
        # Creating a group is idempotent for the same settings.
        return ErrorCode.NONE if group.settings == settings else ErrorCode.DUPLICATE_RESOURCE
    groups.set_up(groups.get_or_create(request.group_id), settings)
    return ErrorCode.NONE


def delete(groups: Groups, group_id: str) -> ErrorCode:
    """Delete a group that has no members; return the error code."""
    group = groups.get(group_id)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not group.is_empty:
        return ErrorCode.NON_EMPTY_GROUP
    groups.delete(group)
    return ErrorCode.NONE


def delete_offsets(
    groups: Groups, group_id: str, partitions: Sequence[TopicPartition]
) -> tuple[ErrorCode, Mapping[TopicPartition, ErrorCode]]:
    """Delete committed offsets, except for topics that a member is subscribed to."""
    group = groups.get(group_id)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND, {}
    subscribed = _subscribed_topics(group)
    if subscribed is None:
        return ErrorCode.NON_EMPTY_GROUP, {}
    free = [partition for partition in partitions if partition.topic not in subscribed]
    groups.forget_offsets(group, free)
    errors = dict.fromkeys(partitions, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    return ErrorCode.NONE, errors | dict.fromkeys(free, ErrorCode.NONE)


def _subscribed_topics(group: Group) -> Set[str] | None:
    """Return the topics that members subscribe to, or None if their metadata cannot be decoded."""
    if group.consumer is not None:
        return set(group.consumer.topics.by_name)
    if group.streams is not None:
        return source_topics(group.streams) if group.streams.members else set()
    if group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    try:
        joined_with = [decode_subscription(data) for member in group.members.values() for _, data in member.protocols]
    except SerializationError:
        return None
    return {topic for subscription in joined_with for topic in subscription.topics}


def reset_offsets(groups: Groups, group: Group, request: ResetOffsets, now_ms: int) -> ResetOffsetsResponse:
    """Set committed offsets, and store the response so that a duplicate of the request gets the same response."""
    offsets: dict[TopicPartition, int] = {}
    for partition, target in request.targets.items():
        if isinstance(target, Shift):
            committed = group.offsets.get(partition)
            offset = target.lowest if committed is None else committed.offset + target.by
            offsets[partition] = max(target.lowest, min(target.highest, offset))
        else:
            offsets[partition] = target
    groups.commit(group, {p: OffsetAndMetadata(offset) for p, offset in offsets.items()}, now_ms)
    response = ResetOffsetsResponse(ErrorCode.NONE, offsets)
    if request.nonce:
        group.resets[request.nonce] = response
        if len(group.resets) > _REMEMBERED_RESETS:
            del group.resets[next(iter(group.resets))]
    return response


def holders(group: Group, partitions: Set[TopicPartition]) -> list[GroupMember]:
    """Return the members that own any of ``partitions``, or may own them because their metadata cannot be decoded."""
    is_known = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    return [
        member
        for member in group.members.values()
        if not is_known or is_concerned(member.assignment, [data for _, data in member.protocols], partitions)
    ]
