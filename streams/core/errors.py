"""The errors of this package: one class per cause that callers handle differently.

Each message states what is wrong, where, and what to do. This module imports no other module of the package.
"""

from typing import Any, ClassVar


class StreamsError(Exception):
    """The base class of all errors raised by this package."""

    #: Whether whoever wrote or started the program made a mistake, which a restart would repeat.
    is_mistake: ClassVar[bool] = False
    #: The line of user code that failed, if a task of a replay did.
    place: str | None = None


class TopologyError(StreamsError):
    """The topology is invalid. Usually raised before the application runs."""

    is_mistake = True


class ConfigError(StreamsError):
    """A setting is unknown or has an invalid value."""

    is_mistake = True


class SerializationError(StreamsError):
    """A serde cannot deserialize bytes or serialize a value."""


class SchemaError(StreamsError):
    """A schema is incompatible with other schemas of its subject, or the schema registry does not respond."""


class ForeignFormatError(SerializationError):
    """An internal topic or store contains bytes that are not in the format of this library.

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

    Fields: those of ``ProcessingError``, and ``setting``, the name of the handler setting. The cause is the error
    that the handler raised; the message describes the failed record.
    """

    def __init__(self, message: str, *, setting: str, **place: Any) -> None:
        super().__init__(message, **place)
        self.setting = setting


class UnawaitedError(StreamsError):
    """A user function returned a coroutine or a generator, whose code would not run."""


class InvalidTimestampError(StreamsError):
    """A timestamp extractor returned a negative timestamp or None, and the policy is to fail."""


class WallClockError(StreamsError):
    """A node needs wall-clock time, which is not available in a replay. Field: ``node``."""

    def __init__(self, node: str) -> None:
        super().__init__(
            f"node {node!r} uses wall-clock time, which history does not have; give wall_clock='skip' to disable its "
            "punctuations, or wall_clock='append_time' to take the times at which records were appended"
        )
        self.node = node


class StoreError(StreamsError):
    """A state store cannot be opened, read or written."""


class StoreFormatError(StoreError):
    """The content of a store or changelog does not fit the topology: a restart would find the same."""

    is_mistake = True


class LostRecordsError(StoreError):
    """An internal topic ends before the committed offset or the offset of a store: records were lost.

    Fields: ``topic``, ``partition``, ``expected`` (the lowest valid end offset), ``end`` (the actual end offset),
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
    """An application has state that is not part of its topology. Fields: ``stores`` and ``topics`` (names)."""

    def __init__(self, message: str, *, stores: tuple[str, ...], topics: tuple[str, ...]) -> None:
        super().__init__(message)
        self.stores = stores
        self.topics = topics


class StoreClosedError(StoreError):
    """A store was used after its task had closed the store."""


class InvalidStateStoreError(StreamsError):
    """A store cannot currently be queried on this instance, although the key may exist.

    Fields: ``store``, ``state`` (the state of the application, such as "REBALANCING", or None), and ``owner`` (a
    ``KeyQueryMetadata`` if another instance has the key).
    """

    def __init__(self, message: str, *, store: str, state: str | None = None, owner: Any = None) -> None:
        super().__init__(message)
        self.store = store
        self.state = state
        self.owner = owner


class UnknownStateStoreError(InvalidStateStoreError):
    """The topology has no store with this name."""


class StreamsNotStartedError(InvalidStateStoreError):
    """The application has not been started."""


class StreamsRebalancingError(InvalidStateStoreError):
    """Tasks are being reassigned or their stores are being restored; retry later."""


class StateStoreMigratedError(InvalidStateStoreError):
    """Another instance has the store; query ``owner`` instead."""


class StateStoreNotAvailableError(InvalidStateStoreError):
    """The application is closing, is closed or has failed; this instance will not open the store again."""


class StateLockedError(StoreError):
    """The state directory is in use by another process or instance."""


class InputError(StreamsError):
    """An input file cannot be read; the message contains the file and the line."""

    is_mistake = True


class BrokerError(StreamsError):
    """The broker rejected a request; ``code`` is Kafka's error code."""

    def __init__(self, message: str, *, code: int = -1) -> None:
        super().__init__(message)
        self.code = code


class UnknownTopicError(BrokerError):
    """A topic or partition does not exist."""

    is_mistake = True


class DamagedLogError(BrokerError):
    """Stored records of a partition are damaged or missing. The files have not been changed.

    Fields: ``code`` (``KAFKA_STORAGE_ERROR``), ``partition``, ``path`` of the file or directory, ``position`` in
    bytes (-1: the whole file), and ``offset`` (the first offset that cannot be read, -1 if unknown).
    """

    def __init__(self, message: str, *, partition: str, path: str, position: int = -1, offset: int = -1) -> None:
        super().__init__(message, code=56)
        self.partition = partition
        self.path = path
        self.position = position
        self.offset = offset


class UnreadableBatchError(BrokerError):
    """A record batch cannot be decoded. The position of the consumer remains at the first record of the batch.

    Fields: ``code``, ``partition``, ``offset`` of the first record, and ``next_offset``, to which a consumer may
    seek to skip the batch.
    """

    def __init__(self, message: str, *, code: int, partition: object, offset: int, next_offset: int) -> None:
        super().__init__(message, code=code)
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class OffsetOutOfRangeError(BrokerError):
    """The position is outside the log, and there is no reset policy."""


class MemberFencedError(BrokerError):
    """The generation, member id or instance id of a group member is no longer valid."""


class RebalanceInProgressError(BrokerError):
    """A commit was rejected because the group is rebalancing; rejoin the group and retry."""


class ClientClosedError(StreamsError):
    """A consumer, producer or instance was used that is closed or not running."""


class RecordTooLargeError(BrokerError):
    """A record is larger than the ``max_message_bytes`` of its topic."""


class TransactionError(BrokerError):
    """The transaction can only be aborted; call ``abort_transaction``.

    Fields: ``code``, ``transactional_id``; the cause, if any, is the error of the failed request.
    """

    def __init__(self, message: str, *, code: int = -1, transactional_id: str | None = None) -> None:
        super().__init__(message, code=code)
        self.transactional_id = transactional_id


class ProducerFencedError(BrokerError):
    """The producer was fenced by another producer with its transactional id, or by the broker; create a new one.

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
