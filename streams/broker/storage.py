"""The interface between a log and the storage of its records.

A few methods, so that users can write their own: an object with them is a storage, and a
factory makes one per partition.  Storages number records and know nothing of topics,
limits or time; ``log`` above them does.  They are called under the broker's lock, never
by two threads at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from attrs import frozen

from streams.broker.steps import Keep, Steps
from streams.core.records import Block, ProducerStamp, TopicPartition
from streams.protocol.markers import is_commit_marker

#: Minimum overhead of a record in bytes, in addition to key, value and headers (record batch v2).
RECORD_OVERHEAD = 7
_SCAN_RECORDS = 50_000


class LogExtent(NamedTuple):
    """A part of a log that retention drops as a whole: a segment, or a chunk in memory."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int


class LogStorage(Protocol):
    """Records of one partition, numbered from 0 upwards."""

    @property
    def start_offset(self) -> int:
        """Lowest offset that may be read."""
        ...

    @property
    def end_offset(self) -> int:
        """Offset that the next record gets."""
        ...

    def append(self, block: Block) -> int:
        """Add the records, whatever their ``offsets`` say, and return the offset of the first.

        All or nothing: after an ``OSError`` none of them is stored.  The columns may be kept
        without a copy; the caller does not change them afterwards.  A block's ``producer`` is
        stored with it.
        """
        ...

    def read(self, offset: int, max_records: int) -> list[Block]:
        """Return up to ``max_records`` records from ``offset`` on, in order; [] at the end."""
        ...

    def truncate_before(self, offset: int) -> None:
        """Make ``offset`` the start; records below may be freed now or later.

        An offset above the end empties the log, whose next record gets that offset.
        """
        ...

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after the time; None if there is none."""
        ...

    def extents(self) -> Sequence[LogExtent]:
        """Return the extents in offset order."""
        ...

    def flush(self) -> None:
        """Make appended records durable, if the storage's policy requires it."""
        ...

    def close(self) -> None:
        """Release files and memory; durable records stay."""
        ...

    def delete(self) -> None:
        """Close, and delete the records."""
        ...


@runtime_checkable
class CompactableStorage(LogStorage, Protocol):
    """A storage that can be compacted."""

    @property
    def sealed_offset(self) -> int:
        """Compaction may touch records below this offset."""
        ...

    def compact(self, upto: int, keep: Callable[[Block], Block | None]) -> int:
        """Replace every block below ``upto`` by the result of ``keep``, offsets unchanged.

        Returns the number of records left below ``upto``.  ``keep`` sees blocks in offset
        order, none of them reaching beyond ``upto``.
        """
        ...


@runtime_checkable
class GradualStorage(CompactableStorage, Protocol):
    """A storage that is compacted in steps, so that requests need not wait for a whole pass."""

    def compaction(self, upto: int, keep: Keep) -> Steps[int]:
        """Compact as ``compact``; between steps records may be read, appended, and deleted at the start."""
        ...


@runtime_checkable
class SealableStorage(CompactableStorage, Protocol):
    """A storage in segments, whose active one is not compacted."""

    def seal(self, *, is_due: bool) -> None:
        """Seal the active segment if that is due or it is large."""
        ...


@runtime_checkable
class ConfigurableStorage(LogStorage, Protocol):
    """A storage that uses some of a topic's settings."""

    def configure(self, config: Mapping[str, str]) -> None:
        """Apply new settings, with Kafka's names; absent ones have their defaults."""
        ...


class Stamped(NamedTuple):
    """Consecutive records of one producer in a log; ``is_commit`` is for markers."""

    stamp: ProducerStamp
    offset: int
    length: int
    is_commit: bool = False

    @classmethod
    def of(cls, block: Block, offset: int) -> "Stamped | None":
        """Return the stamp of a block at an offset, None without a producer."""
        stamp = block.producer
        if stamp is None:
            return None
        return cls(stamp, offset, len(block), stamp.is_control and is_commit_marker(block))


@runtime_checkable
class StampedStorage(LogStorage, Protocol):
    """A storage that returns the stamps of producers without reading all records."""

    def stamped(self) -> Iterator[Stamped]:
        """Yield the stamps of producers, in offset order."""
        ...


def stamps_of(storage: LogStorage) -> Iterator[Stamped]:
    """Yield the stamps of producers in a log, in offset order."""
    if isinstance(storage, StampedStorage):
        yield from storage.stamped()
        return
    offset = storage.start_offset
    while blocks := storage.read(offset, _SCAN_RECORDS):
        for block in blocks:
            stamped = Stamped.of(block, block.offsets[0])
            if stamped is not None:
                yield stamped
        offset = blocks[-1].offsets[-1] + 1


@frozen
class StorageContext:
    """The argument of a storage factory: the partition, and the topic's configuration with Kafka's names.

    ``is_known``: the partition existed before, so its records must exist.
    """

    partition: TopicPartition
    config: dict[str, str]
    is_known: bool = False


StorageFactory: TypeAlias = Callable[[StorageContext], LogStorage]


def continues(first: ProducerStamp | None, distance: int, following: ProducerStamp | None) -> bool:
    """Return whether records continue a block that started ``distance`` offsets before.

    They do if the same producer's sequence continues; a transaction marker always has its own block.
    """
    if first is None or following is None:
        return first is following
    if first.is_control or following.is_control:
        return False
    return following == advanced(first, distance)


def advanced(stamp: ProducerStamp, distance: int) -> ProducerStamp:
    """Return the stamp of the record ``distance`` offsets after the stamp's own."""
    return stamp if stamp.sequence < 0 or not distance else stamp._replace(sequence=stamp.sequence + distance)


def picked(block: Block, indexes: Sequence[int]) -> Block:
    """Return a block of the records with these indexes, at least one, with their offsets."""
    distance = block.offsets[indexes[0]] - block.offsets[0]
    return Block(
        [block.keys[index] for index in indexes],
        [block.values[index] for index in indexes],
        [block.timestamps[index] for index in indexes],
        None if block.headers is None else [block.headers[index] for index in indexes],
        [block.offsets[index] for index in indexes],
        None if block.producer is None else advanced(block.producer, distance),
        block.compression,
    )


def payload_size(block: Block) -> int:
    """Return the bytes of keys, values and headers of a block."""
    size = column_size(block.keys) + column_size(block.values)
    if block.headers is not None:
        size += sum(
            len(name) + (0 if content is None else len(content)) for row in block.headers for name, content in row
        )
    return size


def column_size(column: Sequence[bytes | None]) -> int:
    """Return the size of a column in bytes; nulls count as 0."""
    try:
        return sum(map(len, column))  # type: ignore[arg-type]
    except TypeError:
        # Most columns have no nulls or only nulls; only a mixed one needs the second pass.
        return sum(len(item) for item in column if item is not None)
