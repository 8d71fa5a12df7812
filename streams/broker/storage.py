"""What a log needs from the place where its records lie.

A few verbs, so that users can bring their own: an object with them is a storage, and a
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

#: Bytes that a record costs beside key, value and headers, at least (record batch v2).
RECORD_OVERHEAD = 7
_SCAN_RECORDS = 50_000


class LogExtent(NamedTuple):
    """A stretch of a log that retention drops as a whole: a segment, or a chunk in memory."""

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

        All or nothing: after an ``OSError`` none of them is there.  The columns may be kept
        as they are; who appends does not change them afterwards.  A block's ``producer`` is
        kept with it.
        """
        ...

    def read(self, offset: int, max_records: int) -> list[Block]:
        """Return up to ``max_records`` records from ``offset`` on, in order; [] at the end."""
        ...

    def truncate_before(self, offset: int) -> None:
        """Make ``offset`` the start; what lies below may be freed now or later.

        Behind the end it empties the log, whose next record gets that offset.
        """
        ...

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after the time; None if there is none."""
        ...

    def extents(self) -> Sequence[LogExtent]:
        """Return what can be dropped as a whole, in offset order."""
        ...

    def flush(self) -> None:
        """Make what was appended durable, as far as the storage's policy asks for it."""
        ...

    def close(self) -> None:
        """Give up files and memory; the records stay where they are durable."""
        ...

    def delete(self) -> None:
        """Close, and remove the records for good."""
        ...


@runtime_checkable
class CompactableStorage(LogStorage, Protocol):
    """A storage whose records can be thinned out in place."""

    @property
    def sealed_offset(self) -> int:
        """Compaction may touch records below this offset."""
        ...

    def compact(self, upto: int, keep: Callable[[Block], Block | None]) -> int:
        """Replace every block below ``upto`` by what ``keep`` leaves of it, offsets unchanged.

        Returns the number of records left below ``upto``.  ``keep`` sees blocks in offset
        order, none of them reaching beyond ``upto``.
        """
        ...


@runtime_checkable
class GradualStorage(CompactableStorage, Protocol):
    """A storage that is thinned out in steps, so that nobody waits for the whole."""

    def compaction(self, upto: int, keep: Keep) -> Steps[int]:
        """As ``compact``; between two steps records may be read, appended, and deleted at the start."""
        ...


@runtime_checkable
class SealableStorage(CompactableStorage, Protocol):
    """A storage in files, of which the one being written is not compacted."""

    def seal(self, *, is_due: bool) -> None:
        """Begin a new file where that is due, or where the one being written is large."""
        ...


@runtime_checkable
class ConfigurableStorage(LogStorage, Protocol):
    """A storage that some of a topic's settings are for."""

    def configure(self, config: Mapping[str, str]) -> None:
        """Take settings as they are from now on, with Kafka's names; those not given have their defaults."""
        ...


class Stamped(NamedTuple):
    """Records of one producer that follow each other in a log; ``is_commit`` says it of a marker."""

    stamp: ProducerStamp
    offset: int
    length: int
    is_commit: bool = False

    @classmethod
    def of(cls, block: Block, offset: int) -> "Stamped | None":
        """Return what a block at an offset says of its producer, None if it does not name one."""
        stamp = block.producer
        if stamp is None:
            return None
        return cls(stamp, offset, len(block), stamp.is_control and is_commit_marker(block))


@runtime_checkable
class StampedStorage(LogStorage, Protocol):
    """A storage that tells who wrote its records without reading these."""

    def stamped(self) -> Iterator[Stamped]:
        """Yield what producers have written, in offset order."""
        ...


def stamps_of(storage: LogStorage) -> Iterator[Stamped]:
    """Yield what producers have written to a log, in offset order."""
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
    """What a factory is told: the partition, and the topic's configuration with Kafka's names.

    ``is_known``: there was the partition before, so its records are to be there.
    """

    partition: TopicPartition
    config: dict[str, str]
    is_known: bool = False


StorageFactory: TypeAlias = Callable[[StorageContext], LogStorage]


def continues(first: ProducerStamp | None, distance: int, following: ProducerStamp | None) -> bool:
    """Return whether records may stand in one block with those that began ``distance`` offsets before.

    They may where the same producer went on numbering them; the end of a transaction stands alone.
    """
    if first is None or following is None:
        return first is following
    if first.is_control or following.is_control:
        return False
    return following == advanced(first, distance)


def advanced(stamp: ProducerStamp, distance: int) -> ProducerStamp:
    """Return the stamp of the record that lies ``distance`` offsets behind the stamp's own."""
    return stamp if stamp.sequence < 0 or not distance else stamp._replace(sequence=stamp.sequence + distance)


def picked(block: Block, indexes: Sequence[int]) -> Block:
    """Return a block of the records with these indexes, at least one, under their offsets."""
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
    """Return the bytes of a column, nulls counting nothing."""
    try:
        return sum(map(len, column))  # type: ignore[arg-type]
    except TypeError:
        # The usual column has no null, or nothing else; only a mixed one pays for the second look.
        return sum(len(item) for item in column if item is not None)
