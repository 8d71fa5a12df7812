"""Errors of clients, and the protocol error codes that they correspond to.

Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Mapping
from typing import Any, Final

from streams.core.blocks.records import TopicPartition
from streams.core.errors import (
    BrokerError,
    MemberFencedError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    RecordTooLargeError,
    StreamsError,
    UnknownTopicError,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.wire.errors import EncodingError, UnsupportedVersionError


class RequestTimeoutError(BrokerError, TimeoutError):
    """No response came within the timeout; the broker may or may not have performed the request."""


class DisconnectedError(RequestTimeoutError):
    """A broker was unreachable or disconnected before it responded, so it may or may not have performed the request."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.NETWORK_EXCEPTION)


class UnreachableError(DisconnectedError):
    """No broker could be reached within the timeout; nothing was sent."""


class AuthenticationError(BrokerError):
    """The broker rejected the client's credentials, or the client rejected the broker's proof; not retriable."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.SASL_AUTHENTICATION_FAILED)


class BrokerClosedError(BrokerError):
    """The embedded broker is closed, and does not come back; not retriable."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.UNKNOWN_SERVER_ERROR)


class WakeupError(StreamsError):
    """``wakeup`` was called from another thread while the consumer was waiting."""


class NoOffsetError(BrokerError):
    """Partitions have no committed offset and no reset policy applies; ``partitions`` names them."""

    def __init__(self, message: str, partitions: tuple[TopicPartition, ...]) -> None:
        super().__init__(message, code=ErrorCode.OFFSET_OUT_OF_RANGE)
        self.partitions = partitions


class PartitionerError(StreamsError):
    """A partitioner chose a partition that the topic does not have."""


class TopicExistsError(BrokerError):
    """A topic to be created already exists."""


class GroupExistsError(BrokerError):
    """A group to be created already exists with other settings."""


class StatefulGroupError(StreamsError):
    """The group is an application with state that would not be rewound with its offsets.

    Fields: ``group_id``, ``changelogs`` (the topics that hold the state).
    """

    def __init__(self, message: str, group_id: str, changelogs: tuple[str, ...]) -> None:
        super().__init__(message)
        self.group_id = group_id
        self.changelogs = changelogs


class GroupNotEmptyError(BrokerError):
    """The group has members, so it cannot be deleted and its offsets cannot be altered."""


_CLASSES: dict[ErrorCode, type[BrokerError]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicError,
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    ErrorCode.MESSAGE_TOO_LARGE: RecordTooLargeError,
    ErrorCode.UNKNOWN_MEMBER_ID: MemberFencedError,
    ErrorCode.ILLEGAL_GENERATION: MemberFencedError,
    ErrorCode.FENCED_INSTANCE_ID: MemberFencedError,
    ErrorCode.REBALANCE_IN_PROGRESS: RebalanceInProgressError,
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicExistsError,
    ErrorCode.NON_EMPTY_GROUP: GroupNotEmptyError,
    ErrorCode.DUPLICATE_RESOURCE: GroupExistsError,
}

_ADVICE: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist; create it or check the name",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log does not hold that offset; seek, or set auto_offset_reset",
    ErrorCode.MESSAGE_TOO_LARGE: "a record is above the topic's max.message.bytes; send less, or raise it",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has removed this member; poll to rejoin",
    ErrorCode.ILLEGAL_GENERATION: "the group has rebalanced without this member; poll to rejoin",
    ErrorCode.FENCED_INSTANCE_ID: "another process uses this group_instance_id; give each its own",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing; poll and retry",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic already exists",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop them first (rewind moves a consumer group while it runs)",
    ErrorCode.DUPLICATE_RESOURCE: "it already exists and is another; delete it, or choose another id",
    ErrorCode.INVALID_GROUP_ID: "a group id must not be empty",
    ErrorCode.INVALID_SESSION_TIMEOUT: "choose a session timeout within the broker's group.min.session.timeout.ms "
    "and group.max.session.timeout.ms",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.STORAGE_ERROR: "the broker could not write; see its log and disk",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "shorten the metadata of the commit",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user may not do that; have the broker allow it (ACL)",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user may not do that; have the broker allow it (ACL)",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user may not do that; have the broker allow it (ACL)",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this user may not do that; have the broker allow it (ACL)",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions can only grow and must be at least 1",
}

#: Codes after which to look up the coordinator again, because it has moved or is not ready.
COORDINATOR_MOVED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
#: Codes for missing authorization, which are not retriable.
FORBIDDEN: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
#: Codes after which to refresh metadata, because another broker may lead the partition.
LEADER_MOVED: Final = frozenset(
    {
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
#: Codes after which the same request may soon succeed.
RETRIABLE: Final = frozenset(
    {
        *COORDINATOR_MOVED,
        *LEADER_MOVED,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


def is_transient(error: Exception) -> bool:
    """Whether the failed request may be retried, because of its error code, a timeout, or a failed connection."""
    if isinstance(error, BrokerError) and error.code in RETRIABLE:
        return True
    return isinstance(error, (RequestTimeoutError, OSError)) or isinstance(error.__cause__, OSError)


def is_final(error: BaseException) -> bool:
    """Whether the failed request must not be retried: it, or what it is for, cannot succeed later."""
    kinds = (AuthenticationError, BrokerClosedError, EncodingError, RecordTooLargeError, UnsupportedVersionError)
    return isinstance(error, kinds) or isinstance(error.__cause__, kinds)


def error_for(code: ErrorCode, what: str, detail: str = "") -> BrokerError:
    """Return the error for a code; ``what`` names the rejected request."""
    kind = _CLASSES.get(code, BrokerError)
    advice = _ADVICE.get(code, "")
    reason = "; ".join(part for part in (detail, advice) if part) or "the broker rejected the request"
    return kind(f"{what}: {code.name}: {reason}", code=code)


def raise_first(errors: Mapping[Any, tuple[ErrorCode, str]], what: str) -> None:
    """Raise the first error of the parts of a request, each given with its code and message, if there is any."""
    for part, (code, detail) in errors.items():
        if code is not ErrorCode.NONE:
            raise error_for(code, f"{what} for {part}", detail)


def as_error(failure: Exception, what: str) -> BrokerError:
    """Return the ``BrokerError`` for a failure of a request, which ``what`` names; ``failure`` may be one itself."""
    if isinstance(failure, BrokerError):
        return failure
    if isinstance(failure, (EncodingError, UnsupportedVersionError)):
        refused = BrokerError(f"{what}: {failure}", code=ErrorCode.UNSUPPORTED_VERSION)
        refused.__cause__ = failure
        return refused
    error = BrokerError(f"{what}: {failure or type(failure).__name__}; is the broker running?")
    error.__cause__ = failure
    return error


def codes_of(response: object) -> list[ErrorCode]:
    """Return the error codes in a response, which has either one code or one for each of its parts."""
    errors = getattr(response, "errors", None)
    if errors is None:
        return [getattr(response, "error", ErrorCode.NONE)]
    return [code[0] if isinstance(code, tuple) else code for code in errors.values()]


def first_error(response: object) -> ErrorCode:
    """Return the first error code in a response other than NONE, or NONE if there is no error."""
    return next((code for code in codes_of(response) if code is not ErrorCode.NONE), ErrorCode.NONE)
