"""Requests and responses of share groups, with the first version that can say what they mean."""

from streams.core.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import NamedAssignment, NamedPartitions, PartitionsById
from streams.protocol.share_group_messages import (
    RECORD_LIMIT,
    AcknowledgementBatch,
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsets,
    DeleteShareGroupOffsetsResponse,
    DescribedShareMember,
    DescribeShareGroupOffsets,
    DescribeShareGroupOffsetsResponse,
    ShareAcknowledge,
    ShareAcknowledgeResponse,
    SharedOffset,
    SharedPartition,
    ShareFetch,
    ShareFetchResponse,
    ShareGroupDescribe,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
    TopicIdPartition,
    TopicOutcome,
)

_ONE, _TWO = TopicIdPartition(b"1" * 16, 0), TopicIdPartition(b"2" * 16, 3)
_ACKS = {_ONE: (AcknowledgementBatch(4, 6, (1, 2, 0)), AcknowledgementBatch(9, 12, (3,))), _TWO: ()}
_PLACE = TopicPartition("a", 1)
_NO = (ErrorCode.INVALID_RECORD_STATE, "not locked")
_MEMBER = DescribedShareMember(
    "m", None, 3, "client", "/127.0.0.1", ("a",), NamedAssignment((NamedPartitions(b"1" * 16, "a", (0, 1)),))
)

SHARE_EXCHANGES = [
    (
        1,
        ShareGroupHeartbeat("g", "m", 0, "rack", ("a", "b"), "client"),
        ShareGroupHeartbeatResponse(ErrorCode.NONE, "", "m", 1),
    ),
    (
        1,
        ShareGroupHeartbeat("g", "m", 1, client_id="client"),
        ShareGroupHeartbeatResponse(ErrorCode.NONE, "", "m", 2, 500, PartitionsById({b"1" * 16: (0, 1)})),
    ),
    (1, ShareGroupDescribe("g"), ShareGroupDescribeResponse(ErrorCode.NONE, "", "Stable", 4, 4, "simple", (_MEMBER,))),
    (1, ShareFetch("g", "m", 0, 500, 1, 1 << 20, 10, 10, partitions=_ACKS), ShareFetchResponse(ErrorCode.NONE)),
    (
        2,
        ShareFetch("g", "m", 7, 0, 0, 0, 0, 0, RECORD_LIMIT, True, _ACKS, (_ONE, _TWO)),
        ShareFetchResponse(
            ErrorCode.NONE, "", 30_000, {_ONE: SharedPartition(acknowledge_error=_NO[0], acknowledge_message=_NO[1])}
        ),
    ),
    (2, ShareAcknowledge("g", "m", -1), ShareAcknowledgeResponse(ErrorCode.SHARE_SESSION_NOT_FOUND, "no session")),
    (
        2,
        ShareAcknowledge("g", "m", 2, True, _ACKS),
        ShareAcknowledgeResponse(ErrorCode.NONE, "", 15_000, {_ONE: (ErrorCode.NONE, ""), _TWO: _NO}),
    ),
    (
        1,
        DescribeShareGroupOffsets("g"),
        DescribeShareGroupOffsetsResponse(ErrorCode.NONE, "", {_PLACE: SharedOffset(5, 2, 7)}),
    ),
    (
        0,
        DescribeShareGroupOffsets("g", (_PLACE,)),
        DescribeShareGroupOffsetsResponse(ErrorCode.GROUP_ID_NOT_FOUND, "no group"),
    ),
    (
        0,
        AlterShareGroupOffsets("g", {_PLACE: 3}),
        AlterShareGroupOffsetsResponse(ErrorCode.NONE, "", {_PLACE: (ErrorCode.NONE, "")}),
    ),
    (
        0,
        DeleteShareGroupOffsets("g", ("a", "b")),
        DeleteShareGroupOffsetsResponse(
            ErrorCode.NONE, "", {"a": TopicOutcome(ErrorCode.NONE), "b": TopicOutcome(*_NO)}
        ),
    ),
]
