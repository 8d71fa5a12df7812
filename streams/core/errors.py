"""Errors: one class per cause that a caller treats differently.

Each message says what is wrong, where, and what to do.  Imports nothing of ours.
"""

from typing import Any


class StreamsError(Exception):
    """Root of every error that this package raises on purpose."""


class TopologyError(StreamsError):
    """A topology that cannot be built: a user's mistake, found before anything runs."""


class ConfigError(StreamsError):
    """An unknown setting, or a value that does not fit it."""


class SerializationError(StreamsError):
    """Bytes that a serde cannot read, or a value that it cannot write."""


class ForeignFormatError(SerializationError):
    """Bytes in a place that only this library writes, in a form that it did not write: never read as ours.

    Fields: ``what`` was expected; ``store``, ``topic``, ``partition``, ``offset`` (None where unknown).
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

    Fields: ``node``, ``task_id``, ``topic``, ``partition``, ``offset`` (None where unknown).
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
    """A handler of failed records has failed itself, or has given an answer that is none.

    Fields: those of ``ProcessingError``, and ``setting``, which names the handler.  The cause is what the handler
    raised; what it was asked about is in the message.
    """

    def __init__(self, message: str, *, setting: str, **place: Any) -> None:
        super().__init__(message, **place)
        self.setting = setting


class UnawaitedError(StreamsError):
    """A function of the user's gave back a coroutine or a generator where nobody runs it."""


class InvalidTimestampError(StreamsError):
    """A timestamp extractor gave a negative or missing time, and the policy is to fail."""


class WallClockError(StreamsError):
    """Wall-clock time was asked for where there is none; ``node`` says by whom."""

    def __init__(self, node: str) -> None:
        super().__init__(
            f"node {node!r} asks for wall-clock time, which history does not have; give wall_clock='skip' to let its "
            "punctuations be, or wall_clock='append_time' to take the times at which records were appended"
        )
        self.node = node


class StoreError(StreamsError):
    """A state store that cannot be opened, read or written."""


class LostRecordsError(StoreError):
    """A log of the application's own ends before what its last commit, or a store, had of it.

    Fields: ``topic``, ``partition``, ``expected`` and ``end`` (the offset at which it should end at least, and
    does), ``task_id``, and ``store`` where it is a changelog.
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
    """An application has state that its topology does not know; fields ``stores``, ``topics``: their names."""

    def __init__(self, message: str, *, stores: tuple[str, ...], topics: tuple[str, ...]) -> None:
        super().__init__(message)
        self.stores = stores
        self.topics = topics


class StoreClosedError(StoreError):
    """A store was used after its task gave it up."""


class InvalidStateStoreError(StreamsError):
    """A store that cannot be asked, here or now: no answer, which is another thing than "no such key".

    Fields: ``store``, ``state`` (the application's, such as "REBALANCING"; None where it does not matter), and
    ``owner``, a ``KeyQueryMetadata``, where another instance has the key.
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
    """Tasks are on their way, or their stores are restored: ask again."""


class StateStoreMigratedError(InvalidStateStoreError):
    """Another instance has it: ask ``owner``."""


class StateStoreNotAvailableError(InvalidStateStoreError):
    """The application is closing, closed or has failed: this instance will not have the store again."""


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
    """Stored records of a partition that are damaged or missing; nothing of them was changed.

    Fields: ``code`` (``KAFKA_STORAGE_ERROR``), ``partition``, ``path`` of the file or folder, ``position`` (its
    byte, -1 where the whole is meant), ``offset`` (the first that cannot be read, -1 where that is not known).
    """

    def __init__(self, message: str, *, partition: str, path: str, position: int = -1, offset: int = -1) -> None:
        super().__init__(message, code=56)
        self.partition = partition
        self.path = path
        self.position = position
        self.offset = offset


class UnreadableBatchError(BrokerError):
    """Records as the broker has them that nobody can read: the position stays before them.

    Fields: ``code``, ``partition``, ``offset`` of the first, and ``next_offset``, to which a consumer may seek to go
    on without them.
    """

    def __init__(self, message: str, *, code: int, partition: object, offset: int, next_offset: int) -> None:
        super().__init__(message, code=code)
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class OffsetOutOfRangeError(BrokerError):
    """A position outside the log, where no reset policy applies."""


class MemberFencedError(BrokerError):
    """A group member whose generation, member id or instance id is no longer valid."""


class RebalanceInProgressError(BrokerError):
    """A commit refused because the group is rebalancing; join again and retry."""


class ClientClosedError(StreamsError):
    """A consumer, producer or instance was used after close."""


class RecordTooLargeError(BrokerError):
    """A record above ``max_message_bytes`` of its topic."""


class TransactionError(BrokerError):
    """A transaction that cannot be committed any more: ``abort_transaction`` is the only way on.

    Fields: ``code``, ``transactional_id``; the cause, where there is one, says what was refused.
    """

    def __init__(self, message: str, *, code: int = -1, transactional_id: str | None = None) -> None:
        super().__init__(message, code=code)
        self.transactional_id = transactional_id


class ProducerFencedError(BrokerError):
    """Another producer has taken this one's place, or its transaction was ended for it: close it, make a new one.

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
