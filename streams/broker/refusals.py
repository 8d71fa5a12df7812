"""Error responses to requests whose log cannot be written, and Kafka error codes for exceptions."""

from typing import TypeAlias

from streams.core.errors import BrokerError, ConfigError
from streams.protocol.messages import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    CreateGroup,
    CreateGroupResponse,
    DeleteGroup,
    DeleteGroupResponse,
    DescribeGroup,
    DescribeGroupResponse,
    EndTxn,
    EndTxnResponse,
    ErrorCode,
    GroupRequest,
    Heartbeat,
    HeartbeatResponse,
    InitProducerId,
    InitProducerIdResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    ListGroupsResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    ResetOffsets,
    ResetOffsetsResponse,
    Response,
    SyncGroup,
    SyncGroupResponse,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)

ErrorText: TypeAlias = tuple[ErrorCode, str]


def error_of(error: Exception) -> ErrorText:
    """Return the Kafka error code and the message for an exception."""
    if isinstance(error, BrokerError):
        known = error.code in ErrorCode._value2member_map_
        return ErrorCode(error.code) if known else ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
    if isinstance(error, ConfigError):
        return ErrorCode.INVALID_CONFIG, str(error)
    return ErrorCode.STORAGE_ERROR, f"the storage failed: {error}"


def refusal(request: GroupRequest | TxnOffsetCommit, error: ErrorCode) -> Response:
    """Return the error response to a group request."""
    match request:
        case JoinGroup():
            return JoinGroupResponse(error, member_id=request.member_id)
        case SyncGroup():
            return SyncGroupResponse(error)
        case Heartbeat():
            return HeartbeatResponse(error)
        case LeaveGroup():
            return LeaveGroupResponse(error)
        case OffsetCommit():
            return OffsetCommitResponse(dict.fromkeys(request.offsets, error))
        case TxnOffsetCommit():
            return TxnOffsetCommitResponse(dict.fromkeys(request.offsets, error))
        case OffsetFetch():
            return OffsetFetchResponse(error, {})
        case DescribeGroup():
            return DescribeGroupResponse(error)
        case DeleteGroup():
            return DeleteGroupResponse(error)
        case CreateGroup():
            return CreateGroupResponse(error)
        case ResetOffsets():
            return ResetOffsetsResponse(error)
        case _:
            return ListGroupsResponse(())


def transaction_refusal(
    request: InitProducerId | AddPartitionsToTxn | AddOffsetsToTxn | EndTxn, error: ErrorCode
) -> Response:
    """Return the error response to a transaction request."""
    match request:
        case InitProducerId():
            return InitProducerIdResponse(error)
        case AddPartitionsToTxn():
            return AddPartitionsToTxnResponse(dict.fromkeys(request.partitions, error))
        case AddOffsetsToTxn():
            return AddOffsetsToTxnResponse(error)
        case EndTxn():
            return EndTxnResponse(error)
