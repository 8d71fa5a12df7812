"""Kafka error codes for exceptions, error responses, and the lines of the log about a storage that fails.

The error responses are for group and transaction requests whose write to a log failed.
"""

import logging
from collections.abc import Callable
from typing import TypeAlias

from attrs import define

from streams.core.errors import BrokerError, ConfigError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import JoinGroup, ListGroups, OffsetCommit, OffsetFetch
from streams.protocol.messages import AddPartitionsToTxn, TxnOffsetCommit
from streams.protocol.request import Request, Response, response_type

_LOGGER = logging.getLogger(__name__)
#: The shortest time between two lines about failures of the storage.
_EVERY_MS = 60_000

ErrorText: TypeAlias = tuple[ErrorCode, str]


def error_of(error: Exception) -> ErrorText:
    """Return the Kafka error code and the message for an exception."""
    if isinstance(error, BrokerError):
        is_of_kafka = error.code in ErrorCode._value2member_map_
        return ErrorCode(error.code) if is_of_kafka else ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
    if isinstance(error, ConfigError):
        return ErrorCode.INVALID_CONFIG, str(error)
    return ErrorCode.STORAGE_ERROR, f"the storage failed: {error}"


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


@define
class StorageFailures:
    """Logs failures of the storage, such as a full disk: at most once a minute, with their number.

    The broker of one process does not, because its clients say it there.
    """

    is_logged: bool = True
    _count: int = 0
    #: Monotonic time of the last line.
    _logged_ms: int | None = None

    def note(self, message: str, now_ms: int) -> None:
        """Count a failure, and log it if it is time."""
        self._count += 1
        if not self.is_logged:
            return
        if self._logged_ms is None or now_ms >= self._logged_ms + _EVERY_MS:
            _LOGGER.warning("%s (failures since the last such line: %d)", message, self._count)
            self._logged_ms = now_ms
            self._count = 0
