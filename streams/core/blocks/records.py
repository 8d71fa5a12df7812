"""Records, and blocks of records.

All stages of the data path pass blocks, which are columns of equal length, instead of one object per record.
This module imports no other module of the package.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar
from zlib import crc32

from attrs import define, field, frozen

K = TypeVar("K")
V = TypeVar("V")

#: Headers of a record, in order; a name may occur more than once.
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

#: Timestamp of a record without a timestamp (Kafka's ``NO_TIMESTAMP``); also means that no time was observed yet.
NO_TIMESTAMP = -1

#: Bits of a lane for the number of a partition group; the others are the sub-topology.
_PARTITION_BITS = 24

#: Lane of records that no task of a ``streams`` application has written.
NO_LANE = -1

#: Bits of a lane for the task; those above tell applications apart, in topics that others may write too.
_TASK_BITS = 36


class TopicPartition(NamedTuple):
    """A partition of a topic: the topic name and the partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TaskId(NamedTuple):
    """The identity of a stream task: its sub-topology and the number of its partition group."""

    sub_topology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.sub_topology}_{self.partition}"


class Window(NamedTuple):
    """An interval of event time in epoch milliseconds.

    ``end_ms`` is exclusive for time windows and inclusive for session and sliding
    windows, as in Kafka Streams.
    """

    start_ms: int
    end_ms: int


class Windowed(NamedTuple, Generic[K]):
    """The key of a windowed table: a key and its window."""

    key: K
    window: Window


class RecordMetadata(NamedTuple):
    """The topic, partition and offset of the record that is being processed."""

    topic: str
    partition: int
    offset: int


class RecordContext(NamedTuple):
    """Position, event time and headers of a record, passed to functions that choose its output topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    headers: Headers

    @classmethod
    def of(cls, origin: RecordMetadata | None, timestamp_ms: int, headers: Headers | None) -> "RecordContext":
        """Return the context of a buffered record; ``origin`` is None if a punctuation forwarded the record."""
        # Without the call of the constructor, which is a Python function, too.
        return tuple.__new__(cls, (*(origin or ("", -1, -1)), timestamp_ms, headers or ()))


@define
class Record(Generic[K, V]):
    """A record in the Processor API.

    ``timestamp_ms`` is the event time in epoch milliseconds.
    """

    key: K
    value: V
    timestamp_ms: int
    headers: Headers = ()


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A record read from a topic; key and value are bytes unless the topic was given as a typed ``Topic``."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K
    value: V
    headers: Headers


class ProducerStamp(NamedTuple):
    """Producer id, epoch and sequence number of a block (KIP-98).

    ``sequence`` is the base sequence, the sequence number of the first record for its partition and epoch, or -1
    if there is none. A control block contains no records, but one transaction marker.
    """

    producer_id: int
    epoch: int
    sequence: int = -1
    is_transactional: bool = False
    is_control: bool = False


class LanedRecords(Protocol):
    """Records as columns, which may have lanes: a block of raw records, or a batch of deserialized records."""

    @property
    def lanes(self) -> "Lanes | None":
        """The lane and the place of each record, or None if no record has a lane."""
        ...

    @property
    def timestamps(self) -> Sequence[int]:
        """The event times of the records, in epoch milliseconds."""
        ...

    def __len__(self) -> int: ...


def places_of(records: LanedRecords) -> Sequence[int]:
    """Return the places of records: those that their tasks have given them or, without lanes, their timestamps.

    The records of a source are taken in the order of its partition, so that their running maximum is their place.
    """
    return records.timestamps if records.lanes is None else records.lanes.places


def lane_of(task_id: TaskId) -> int:
    """Return the number of the lane of a task in each partition to which it writes; lanes are in the order of tasks."""
    return task_id.sub_topology << _PARTITION_BITS | task_id.partition


def lanes_base(application_id: str) -> int:
    """Return what is added to the lanes of an application in topics that others may write too."""
    return (1 + crc32(application_id.encode()) % (1 << 26)) << _TASK_BITS


def task_of(lane: int) -> TaskId:
    """Return the task that writes a lane."""
    return TaskId(lane >> _PARTITION_BITS, lane & (1 << _PARTITION_BITS) - 1)


@frozen(eq=False)
class Lanes:
    """The lane and the place of each record of a block, as columns.

    A lane contains the records that one task has written to a partition.  The place of a record is the highest place
    among the inputs that the task had processed when it wrote the record, in epoch milliseconds; the place of a record
    from a source topic is the highest timestamp of its partition so far.  The places of a lane never descend.

    Both columns are usually arrays of 64-bit numbers, whose slices cost almost nothing.
    """

    lanes: Sequence[int]
    places: Sequence[int]

    def slice(self, part: slice) -> "Lanes":
        """Return the rows of a slice."""
        return Lanes(self.lanes[part], self.places[part])

    def pick(self, indexes: Iterable[int]) -> "Lanes":
        """Return the rows at these indexes."""
        rows = list(indexes)
        return Lanes(
            array("q", map(self.lanes.__getitem__, rows)),
            array("q", map(self.places.__getitem__, rows)),
        )

    @classmethod
    def of_one(cls, lane: int, places: Sequence[int]) -> "Lanes":
        """Return the rows of records of one lane."""
        return cls(array("q", [lane]) * len(places), places)

    def above(self, base: int) -> "Lanes":
        """Return the rows with lanes relative to ``base`` (``lanes_base``); records of others belong to no lane."""
        numbers = {lane: lane - base for lane in set(self.lanes)}
        own = {lane: number for lane, number in numbers.items() if 0 <= number < 1 << _TASK_BITS}
        lanes = array("q", [own.get(lane, NO_LANE) for lane in self.lanes])
        if len(own) == len(numbers):
            return Lanes(lanes, self.places)
        rows = zip(lanes, self.places, strict=True)
        return Lanes(lanes, array("q", [NO_TIMESTAMP if lane == NO_LANE else place for lane, place in rows]))

    @classmethod
    def of(cls, records: "LanedRecords") -> "Lanes":
        """Return the lanes of records; the lane of each record is ``NO_LANE`` if they have none."""
        return records.lanes or cls.none(len(records))

    @classmethod
    def none(cls, count: int) -> "Lanes":
        """Return the rows of ``count`` records that belong to no lane; their place is before all others."""
        return cls.of_one(NO_LANE, array("q", [NO_TIMESTAMP]) * count)

    def extend(self, rows: "Lanes") -> None:
        """Append rows; both columns must be arrays."""
        self.lanes.extend(rows.lanes)  # type: ignore[attr-defined]
        self.places.extend(rows.places)  # type: ignore[attr-defined]

    @classmethod
    def joined(cls, parts: "Sequence[LanedRecords]") -> "Lanes | None":
        """Return the lanes of several parts one after the other, or None if no part has lanes."""
        if all(part.lanes is None for part in parts):
            return None
        joined = cls.none(0)
        for part in parts:
            joined.extend(cls.of(part))
        return joined


@define(eq=False)
class Block:
    """Raw records of one topic partition, as columns of equal length.

    ``headers`` is None if no record of the block has headers. ``offsets`` are strictly ascending, and a ``range``
    if there are no gaps. ``producer`` is None for producers that are neither idempotent nor transactional.
    ``compression`` is the codec that the producer chose, which is used when the block is encoded.  ``lanes`` is None
    if no task of an application that is read in step has written the records.
    """

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None = None
    offsets: Sequence[int] = field(default=range(0))
    producer: ProducerStamp | None = None
    compression: str = "none"
    lanes: Lanes | None = None

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, stop: int | None = None) -> "Block":
        """Return the records from index ``start`` up to ``stop``, exclusive (by default the end), as a block."""
        part = slice(start, stop)
        return Block(
            self.keys[part],
            self.values[part],
            self.timestamps[part],
            None if self.headers is None else self.headers[part],
            self.offsets[part],
            self.producer,
            self.compression,
            None if self.lanes is None else self.lanes.slice(part),
        )

    def with_values(self, values: Sequence[bytes | None]) -> "Block":
        """Return the same records with other values, as a block of columns, whatever backs this one."""
        return Block(
            self.keys,
            values,
            self.timestamps,
            self.headers,
            self.offsets,
            self.producer,
            self.compression,
            self.lanes,
        )

    def rows(self) -> Iterator[tuple[int, bytes | None, bytes | None, int, Headers]]:
        """Yield (offset, key, value, timestamp_ms, headers) for each record."""
        headers: Sequence[Headers] = self.headers or [()] * len(self)
        return zip(self.offsets, self.keys, self.values, self.timestamps, headers, strict=True)
