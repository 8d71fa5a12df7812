"""The interface between a log and the storage of its records.

The interface has few methods, so that users can write their own storages: any object with these
methods is a storage, and a factory creates one per partition.  A storage assigns offsets; topics, limits
and time are handled by ``log``.  Storages are called under the broker lock, never by two threads at
the same time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from attrs import frozen

from streams.broker.logs.steps import Keep, Steps
from streams.core.blocks.records import Block, ProducerStamp, TopicPartition
from streams.core.errors import BrokerError
from streams.core.folders import full_disk
from streams.protocol.error_codes import ErrorCode
from streams.protocol.markers import is_commit_marker

#: Minimum overhead of a record in bytes, in addition to its key, value and headers (record batch v2).
RECORD_OVERHEAD = 7
_SCAN_RECORDS = 50_000


def storage_error(
    action: str, partition: TopicPartition, error: Exception, path: Path | None = None, needed: int | None = None
) -> BrokerError:
    """Return the error for a storage that failed; ``path`` is where it keeps the records, if that is known.

    ``needed`` is the size in bytes of what could not be written.
    """
    reason = repr(error)
    if isinstance(error, OSError) and error.strerror:
        place = error.filename or path
        reason = error.strerror if place is None else f"{error.strerror}: {place}"
    reason = full_disk(error, path, needed) or f"{reason}; fix the storage, then retry"
    return BrokerError(f"the storage failed to {action} {partition}: {reason}", code=ErrorCode.STORAGE_ERROR)


class LogExtent(NamedTuple):
    """A part of a log that retention drops as a whole: a segment file, or a block in memory."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int


class LogStorage(Protocol):
    """The storage of one partition, whose records have ascending offsets from 0 on."""

    @property
    def start_offset(self) -> int:
        """The lowest offset that may be read."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        ...

    def append(self, block: Block) -> int:
        """Append a block of records, ignoring its ``offsets``, and return the offset of the first record.

        An append is atomic: after an ``OSError``, none of the records is stored.  The storage may keep
        the columns without copying, because the caller does not modify them afterwards.  The
        ``producer`` of the block is stored with the records.
        """
        ...

    def read(self, offset: int, max_records: int) -> list[Block]:
        """Return up to ``max_records`` records from ``offset`` on, in order; [] at the end of the log."""
        ...

    def truncate_before(self, offset: int) -> None:
        """Make ``offset`` the start of the log; records below it may be freed now or later.

        An offset above the end empties the log; the next record gets that offset.
        """
        ...

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after a timestamp, or None if there is none."""
        ...

    def extents(self) -> Sequence[LogExtent]:
        """Return the extents of the log in offset order."""
        ...

    def flush(self) -> None:
        """Make appended records durable, if the fsync policy of the storage requires it."""
        ...

    def close(self) -> None:
        """Release files and memory; durable records stay."""
        ...

    def delete(self) -> None:
        """Close the storage and delete the records."""
        ...


@runtime_checkable
class CompactableStorage(LogStorage, Protocol):
    """A storage that can be compacted."""

    @property
    def sealed_offset(self) -> int:
        """The offset below which compaction may rewrite records."""
        ...

    def compact(self, upto: int, keep: Callable[[Block], Block | None]) -> int:
        """Replace every block below ``upto`` with the result of ``keep``, without changing offsets.

        Returns the number of records left below ``upto``.  ``keep`` is called with blocks in offset
        order, none of which extends beyond ``upto``.
        """
        ...


@runtime_checkable
class GradualStorage(CompactableStorage, Protocol):
    """A storage that is compacted in steps, so that requests are not blocked for a whole compaction pass."""

    def compaction(self, upto: int, keep: Keep) -> Steps[int]:
        """Compact like ``compact``, but in steps.

        Between steps, records may be read, appended, and deleted at the start.
        """
        ...


@runtime_checkable
class SealableStorage(CompactableStorage, Protocol):
    """A segmented storage whose active segment is not compacted."""

    def seal(self, *, is_due: bool) -> None:
        """Start a new segment, so that the active one can be compacted, if ``is_due`` or if the active one is large."""
        ...


@runtime_checkable
class ConfigurableStorage(LogStorage, Protocol):
    """A storage that applies changes of the topic configuration."""

    def configure(self, config: Mapping[str, str]) -> None:
        """Apply new topic settings, given by their Kafka names; absent settings have their defaults."""
        ...


class Stamped(NamedTuple):
    """Consecutive records of one producer in a log, with the ID, epoch and first sequence in ``stamp``.

    ``is_commit`` is True for a transaction marker that commits the transaction.
    """

    stamp: ProducerStamp
    offset: int
    length: int
    is_commit: bool = False

    @classmethod
    def of(cls, block: Block, offset: int, length: int) -> "Stamped | None":
        """Return the producer data of a block that has ``length`` offsets from ``offset`` on; None without producer.

        Records that compaction has removed had sequences too.
        """
        stamp = block.producer
        if stamp is None:
            return None
        return cls(stamp, offset, length, stamp.is_control and is_commit_marker(block))


@runtime_checkable
class StampedStorage(LogStorage, Protocol):
    """A storage that can return the producers of its records without decoding all records."""

    def stamped(self) -> Iterator[Stamped]:
        """Yield the producer ID, epoch and sequence of each batch, in offset order."""
        ...


def stamps_of(storage: LogStorage) -> Iterator[Stamped]:
    """Yield the producer ID, epoch and sequence of each block of a log, in offset order."""
    if isinstance(storage, StampedStorage):
        yield from storage.stamped()
        return
    offset = storage.start_offset
    while blocks := storage.read(offset, _SCAN_RECORDS):
        for block in blocks:
            stamped = Stamped.of(block, block.offsets[0], block.offsets[-1] + 1 - block.offsets[0])
            if stamped is not None:
                yield stamped
        offset = blocks[-1].offsets[-1] + 1


@frozen
class StorageContext:
    """The argument of a storage factory: the partition, and the topic configuration by Kafka setting name.

    ``is_known`` is True for a partition that already existed, so its records must exist.
    """

    partition: TopicPartition
    config: dict[str, str]
    is_known: bool = False


StorageFactory: TypeAlias = Callable[[StorageContext], LogStorage]


def continues(first: ProducerStamp | None, distance: int, following: ProducerStamp | None) -> bool:
    """Whether records directly continue a block that started ``distance`` offsets earlier.

    They do if both have the same producer and the sequence numbers continue.  A transaction marker always has its
    own block.
    """
    if first is None or following is None:
        return first is following
    if first.is_control or following.is_control:
        return False
    return following == advanced(first, distance)


def advanced(stamp: ProducerStamp, distance: int) -> ProducerStamp:
    """Return the producer ID, epoch and sequence of the record ``distance`` records after the one with ``stamp``."""
    return stamp if stamp.sequence < 0 or not distance else stamp._replace(sequence=stamp.sequence + distance)


def picked(block: Block, indexes: Sequence[int]) -> Block:
    """Return a block with the records at these indexes (at least one), keeping their offsets."""
    distance = block.offsets[indexes[0]] - block.offsets[0]
    return Block(
        [block.keys[index] for index in indexes],
        [block.values[index] for index in indexes],
        [block.timestamps[index] for index in indexes],
        None if block.headers is None else [block.headers[index] for index in indexes],
        [block.offsets[index] for index in indexes],
        None if block.producer is None else advanced(block.producer, distance),
        block.compression,
        None if block.lanes is None else block.lanes.pick(indexes),
    )


def payload_size(block: Block) -> int:
    """Return the total size of the keys, values and headers of a block in bytes."""
    size = column_size(block.keys) + column_size(block.values)
    if block.headers is not None:
        size += sum(
            len(name) + (0 if content is None else len(content)) for row in block.headers for name, content in row
        )
    return size


def column_size(column: Sequence[bytes | None]) -> int:
    """Return the total size of a column of keys or values in bytes; nulls count as 0."""
    try:
        return sum(map(len, column))  # type: ignore[arg-type]
    except TypeError:
        # Most columns have no nulls or only nulls; only a mixed column needs the second pass.
        return sum(len(item) for item in column if item is not None)
