"""Handlers for the offsets of share groups: listed, altered and deleted by tools (KIP-932).

Each handler receives the broker, the request and the monotonic time in milliseconds, and returns the response.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from streams.broker.reads import LEADER_EPOCH
from streams.broker.refusals import error_of
from streams.broker.shares.state_log import ShareKey
from streams.core.errors import BrokerError
from streams.core.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import Response
from streams.protocol.share_group_messages import (
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsets,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsets,
    DescribeShareGroupOffsetsResponse,
    SharedOffset,
    TopicOutcome,
)

if TYPE_CHECKING:
    from streams.broker.service import Broker
    from streams.group.share_group import ShareGroup

_UNKNOWN: Final = TopicOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


def _group(machine: "Broker", group_id: str, *, is_changed: bool = False) -> "ShareGroup":
    """Return a share group; it must have no members if it ``is_changed``.

    Raises:
        BrokerError: there is none (``GROUP_ID_NOT_FOUND``), or it has members (``NON_EMPTY_GROUP``).
    """
    shell = machine.coordinator.group(group_id)
    if shell is None or shell.share is None:
        what = "not found" if shell is None else "is not a share group"
        raise BrokerError(f"Group {group_id} {what}.", code=ErrorCode.GROUP_ID_NOT_FOUND)
    if is_changed and shell.share.members:
        raise BrokerError(f"Group {group_id} has members.", code=ErrorCode.NON_EMPTY_GROUP)
    return shell.share


def _describe(machine: "Broker", request: DescribeShareGroupOffsets, now_ms: int) -> DescribeShareGroupOffsetsResponse:
    try:
        group = _group(machine, request.group_id)
    except BrokerError as error:
        return DescribeShareGroupOffsetsResponse(*error_of(error))
    asked = request.partitions
    if asked is None:
        names = {topic.topic_id: topic.name for topic in machine.topics}
        begun = [
            TopicPartition(names[key.topic_id], key.partition)
            for key in machine.shares.store.of_group(request.group_id)
            if key.topic_id in names
        ]
        subscribed = group.topics.by_name if group.members else {}
        wanted = [TopicPartition(name, place) for name, (_, count) in subscribed.items() for place in range(count)]
        asked = sorted({*begun, *wanted})
    offsets = {partition: _offset(machine, request.group_id, partition) for partition in asked}
    return DescribeShareGroupOffsetsResponse(ErrorCode.NONE, "", offsets)


def _offset(machine: "Broker", group_id: str, partition: TopicPartition) -> SharedOffset:
    log = machine.topics.logs.get(partition)
    if log is None:
        return SharedOffset(-1, error=_UNKNOWN.error, message=_UNKNOWN.message)
    share = machine.shares.store.get(_key(machine, group_id, partition))
    if share is None:
        return SharedOffset(-1, LEADER_EPOCH)
    start_offset = max(share.state.start_offset, log.start_offset)
    lag = max(0, log.high_watermark - start_offset - share.state.done)
    return SharedOffset(start_offset, LEADER_EPOCH, lag)


def _key(machine: "Broker", group_id: str, partition: TopicPartition) -> ShareKey:
    return ShareKey(group_id, machine.topics.by_name[partition.topic].topic_id, partition.partition)


def _alter(machine: "Broker", request: AlterShareGroupOffsets, now_ms: int) -> AlterShareGroupOffsetsResponse:
    errors: dict[TopicPartition, tuple[ErrorCode, str]] = dict.fromkeys(request.offsets, (ErrorCode.NONE, ""))
    try:
        _group(machine, request.group_id, is_changed=True)
        errors |= {partition: _UNKNOWN for partition in request.offsets if partition not in machine.topics.logs}
        starts = [
            (_key(machine, request.group_id, partition), offset)
            for partition, offset in request.offsets.items()
            if partition in machine.topics.logs
        ]
        if any(offset < 0 for _, offset in starts):
            raise BrokerError("Start offsets must not be negative.", code=ErrorCode.INVALID_REQUEST)
        machine.shares.store.begin(starts, now_ms)
    except (BrokerError, OSError) as error:
        return AlterShareGroupOffsetsResponse(*error_of(error))
    return AlterShareGroupOffsetsResponse(ErrorCode.NONE, "", errors)


def _delete(machine: "Broker", request: DeleteShareGroupOffsets, now_ms: int) -> DeleteShareGroupOffsetsResponse:
    topics = machine.topics.by_name
    try:
        _group(machine, request.group_id, is_changed=True)
        ids = {topics[name].topic_id for name in request.topics if name in topics}
        store = machine.shares.store
        store.forget([key for key in store.of_group(request.group_id) if key.topic_id in ids], now_ms)
    except (BrokerError, OSError) as error:
        return DeleteShareGroupOffsetsResponse(*error_of(error))
    outcomes = {name: TopicOutcome(ErrorCode.NONE) if name in topics else _UNKNOWN for name in request.topics}
    return DeleteShareGroupOffsetsResponse(ErrorCode.NONE, "", outcomes)


HANDLERS: Final[Mapping[type, "Callable[[Broker, Any, int], Response]"]] = {
    AlterShareGroupOffsets: _alter,
    DeleteShareGroupOffsets: _delete,
    DescribeShareGroupOffsets: _describe,
}
