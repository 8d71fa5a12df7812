"""Errors: one class per cause that a caller handles differently.

Each message says what is wrong, where, and what to do.  Imports no module of ours.
"""

from typing import Any


class StreamsError(Exception):
    """Base class of all errors of this package."""


class TopologyError(StreamsError):
    """An invalid topology: a mistake of the user, raised before anything runs."""


class ConfigError(StreamsError):
    """An unknown setting, or an invalid value of one."""


class SerializationError(StreamsError):
    """Bytes that a serde cannot read, or a value that it cannot write."""


class ForeignFormatError(SerializationError):
    """Bytes in an internal topic or store that are not in the format of this library.

    Fields: ``what``, the expected content; ``store``, ``topic``, ``partition``, ``offset`` (None if unknown).
    """

    def __init__(
        self,
        message: str,
        *,
        what: str,
        store: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.what = what
        self.store = store
        self.topic = topic
        self.partition = partition
        self.offset = offset


class ProcessingError(StreamsError):
    """User code failed on a record.

    Fields: ``node``, ``task_id``, ``topic``, ``partition``, ``offset`` (None if unknown).
    """

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        task_id: object = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.node = node
        self.task_id = task_id
        self.topic = topic
        self.partition = partition
        self.offset = offset


class HandlerError(ProcessingError):
    """A handler of failed records raised an error, or returned no valid response.

    Fields: those of ``ProcessingError``, and ``setting``, which names the handler.  The cause is the error of the
    handler; the message describes the failed record.
    """

    def __init__(self, message: str, *, setting: str, **place: Any) -> None:
        super().__init__(message, **place)
        self.setting = setting


class UnawaitedError(StreamsError):
    """A function of the user returned a coroutine or a generator, which is not run here."""


class InvalidTimestampError(StreamsError):
    """A timestamp extractor returned a negative time or none, and the policy is to fail."""


class WallClockError(StreamsError):
    """``node`` needs wall-clock time, which a replay does not have."""

    def __init__(self, node: str) -> None:
        super().__init__(
            f"node {node!r} asks for wall-clock time, which history does not have; give wall_clock='skip' to let its "
            "punctuations be, or wall_clock='append_time' to take the times at which records were appended"
        )
        self.node = node


class StoreError(StreamsError):
    """A state store that cannot be opened, read or written."""


class LostRecordsError(StoreError):
    """An internal topic ends before the offset of the last commit or of a store: records were lost.

    Fields: ``topic``, ``partition``, ``expected`` (the lowest valid end offset), ``end`` (the actual one),
    ``task_id``, and ``store`` if the topic is a changelog.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str,
        partition: int,
        expected: int,
        end: int,
        task_id: object,
        store: str | None = None,
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.expected = expected
        self.end = end
        self.task_id = task_id
        self.store = store


class UnknownStateError(StoreError):
    """An application has state that is not part of its topology; fields ``stores``, ``topics``: their names."""

    def __init__(self, message: str, *, stores: tuple[str, ...], topics: tuple[str, ...]) -> None:
        super().__init__(message)
        self.stores = stores
        self.topics = topics


class StoreClosedError(StoreError):
    """A store was used after its task had closed it."""


class InvalidStateStoreError(StreamsError):
    """A store that cannot be queried on this instance at present; the key may exist.

    Fields: ``store``, ``state`` (of the application, such as "REBALANCING", or None), and ``owner``, a
    ``KeyQueryMetadata``, if another instance has the key.
    """

    def __init__(self, message: str, *, store: str, state: str | None = None, owner: Any = None) -> None:
        super().__init__(message)
        self.store = store
        self.state = state
        self.owner = owner


class UnknownStateStoreError(InvalidStateStoreError):
    """The topology has no such store."""


class StreamsNotStartedError(InvalidStateStoreError):
    """The application was not started."""


class StreamsRebalancingError(InvalidStateStoreError):
    """Tasks are being reassigned, or their stores restored: retry."""


class StateStoreMigratedError(InvalidStateStoreError):
    """Another instance has the store: query ``owner``."""


class StateStoreNotAvailableError(InvalidStateStoreError):
    """The application is closing, closed or has failed: this instance will not open the store again."""


class StateLockedError(StoreError):
    """The state directory is in use by another process or instance."""


class InputError(StreamsError):
    """An input file that cannot be read, with the file and the line in the message."""


class BrokerError(StreamsError):
    """A request that the broker refused; ``code`` is Kafka's error code."""

    def __init__(self, message: str, *, code: int = -1) -> None:
        super().__init__(message)
        self.code = code


class UnknownTopicError(BrokerError):
    """A topic or partition that does not exist."""


class DamagedLogError(BrokerError):
    """Stored records of a partition are damaged or missing; the files were not changed.

    Fields: ``code`` (``KAFKA_STORAGE_ERROR``), ``partition``, ``path`` of the file or directory, ``position`` in
    bytes (-1: the whole file), ``offset`` (the first that cannot be read, -1 if unknown).
    """

    def __init__(self, message: str, *, partition: str, path: str, position: int = -1, offset: int = -1) -> None:
        super().__init__(message, code=56)
        self.partition = partition
        self.path = path
        self.position = position
        self.offset = offset


class UnreadableBatchError(BrokerError):
    """A record batch that cannot be decoded: the position remains at its first record.

    Fields: ``code``, ``partition``, ``offset`` of the first record, and ``next_offset``, to which a consumer may
    seek to skip the batch.
    """

    def __init__(self, message: str, *, code: int, partition: object, offset: int, next_offset: int) -> None:
        super().__init__(message, code=code)
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class OffsetOutOfRangeError(BrokerError):
    """A position outside the log, without a reset policy."""


class MemberFencedError(BrokerError):
    """A group member whose generation, member id or instance id is no longer valid."""


class RebalanceInProgressError(BrokerError):
    """A commit refused because the group is rebalancing; join again and retry."""


class ClientClosedError(StreamsError):
    """A consumer, producer or instance was used after close."""


class RecordTooLargeError(BrokerError):
    """A record above ``max_message_bytes`` of its topic."""


class TransactionError(BrokerError):
    """A transaction that can only be aborted: call ``abort_transaction``.

    Fields: ``code``, ``transactional_id``; the cause, if any, is the request that failed.
    """

    def __init__(self, message: str, *, code: int = -1, transactional_id: str | None = None) -> None:
        super().__init__(message, code=code)
        self.transactional_id = transactional_id


class ProducerFencedError(BrokerError):
    """Another producer has the same transactional id, or the broker aborted the transaction: close it, make a new one.

    Fields: ``code``, ``transactional_id``, ``producer_id``, ``producer_epoch``.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = -1,
        transactional_id: str | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        super().__init__(message, code=code)
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
