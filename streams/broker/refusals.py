"""Kafka error codes for exceptions, and error responses.

The error responses are for group and transaction requests whose write to a log failed.
"""

from collections.abc import Callable
from typing import TypeAlias

from streams.core.errors import BrokerError, ConfigError
from streams.core.folders import full_disk
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import JoinGroup, ListGroups, OffsetCommit, OffsetFetch
from streams.protocol.messages import AddPartitionsToTxn, TxnOffsetCommit
from streams.protocol.request import Request, Response, response_type

ErrorText: TypeAlias = tuple[ErrorCode, str]


def error_of(error: Exception) -> ErrorText:
    """Return the Kafka error code and the message for an exception."""
    if isinstance(error, BrokerError):
        is_of_kafka = error.code in ErrorCode._value2member_map_
        return ErrorCode(error.code) if is_of_kafka else ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
    if isinstance(error, ConfigError):
        return ErrorCode.INVALID_CONFIG, str(error)
    return ErrorCode.STORAGE_ERROR, f"the storage failed: {full_disk(error) or error}"


def refusal(request: Request, error: ErrorCode) -> Response:
    """Return the response to a group or transaction request that reports this error."""
    kind: Callable[..., Response] = response_type(type(request))
    match request:
        case JoinGroup():
            return kind(error, member_id=request.member_id)
        case OffsetCommit() | TxnOffsetCommit():
            return kind(dict.fromkeys(request.offsets, error))
        case AddPartitionsToTxn():
            return kind(dict.fromkeys(request.partitions, error))
        case OffsetFetch():
            return kind(error, {})
        case ListGroups():
            return kind(())
        case _:
            return kind(error)
