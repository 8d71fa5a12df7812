"""Records, and blocks of records.

Every stage of the data path passes blocks: columns of equal length, never an object per record.
Imports no module of ours.
"""

from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from attrs import define, field

K = TypeVar("K")
V = TypeVar("V")

#: Headers of one record, in order; a name may occur more than once.
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

#: Timestamp of a record that has none (Kafka's ``NO_TIMESTAMP``); also "no time seen yet".
NO_TIMESTAMP = -1


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TaskId(NamedTuple):
    """Identity of a stream task: its sub-topology and its partition group."""

    sub_topology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.sub_topology}_{self.partition}"


class Window(NamedTuple):
    """A span of event time in epoch milliseconds.

    ``end_ms`` is exclusive for time windows and inclusive for session and sliding
    windows, as in Kafka Streams.
    """

    start_ms: int
    end_ms: int


class Windowed(NamedTuple, Generic[K]):
    """The key of a windowed table: a key and the window it belongs to."""

    key: K
    window: Window


class RecordMetadata(NamedTuple):
    """Topic, partition and offset of the record being processed."""

    topic: str
    partition: int
    offset: int


class RecordContext(NamedTuple):
    """Origin, event time and headers of a record, for functions that choose a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    headers: Headers


@define
class Record(Generic[K, V]):
    """One record in the Processor API.

    ``timestamp_ms`` is event time in epoch milliseconds; ``headers`` are in order.
    """

    key: K
    value: V
    timestamp_ms: int
    headers: Headers = ()


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record from a topic; key and value are bytes unless the topic is a ``Topic`` with types."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K
    value: V
    headers: Headers


class ProducerStamp(NamedTuple):
    """Producer id, epoch and sequence of a block (KIP-98).

    ``sequence`` numbers the first record of the block among those that the producer wrote to the
    partition in this epoch; -1 if it is not idempotent.  A control block has one marker, the end of a
    transaction, instead of records.
    """

    producer_id: int
    epoch: int
    sequence: int = -1
    is_transactional: bool = False
    is_control: bool = False


@define(eq=False)
class Block:
    """Raw records of one topic partition, as columns of equal length.

    ``headers`` is None if no record of the block has any.  ``offsets`` ascend strictly; they are a
    ``range`` if they have no gaps.  ``producer`` is None for producers that are neither idempotent
    nor transactional.  ``compression`` is the codec of its producer, used when the block is encoded.
    """

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None = None
    offsets: Sequence[int] = field(default=range(0))
    producer: ProducerStamp | None = None
    compression: str = "none"

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, stop: int | None = None) -> "Block":
        """Return the records from index ``start`` up to ``stop``."""
        part = slice(start, stop)
        return Block(
            self.keys[part],
            self.values[part],
            self.timestamps[part],
            None if self.headers is None else self.headers[part],
            self.offsets[part],
            self.producer,
            self.compression,
        )

    def rows(self) -> Iterator[tuple[int, bytes | None, bytes | None, int, Headers]]:
        """Yield (offset, key, value, timestamp_ms, headers) of each record."""
        headers: Sequence[Headers] = self.headers or [()] * len(self)
        return zip(self.offsets, self.keys, self.values, self.timestamps, headers, strict=True)
