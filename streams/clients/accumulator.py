"""What a producer has yet to send: a queue per partition, in the order of its calls.

Records gather in open batches, whole blocks queue as they are.  While a request of a
partition is under way nothing else of it is sent: that keeps its order over retries.  Not
locked; the producer does that.  Imports protocol and core.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from attrs import define, field

from streams.clients.delivery import Delivery
from streams.core.errors import BrokerError
from streams.core.records import Block, Headers, TopicPartition

# One request carries at most so many records of a partition, however many wait.
_MAX_RECORDS_PER_REQUEST: Final = 100_000

# What a record costs beside its key and value.
_RECORD_OVERHEAD_BYTES: Final = 32


@define(eq=False)
class Batch:
    """Consecutive records of one partition with one fate; ``deliveries`` is one per record, or one for a block."""

    sequence: int
    partition: TopicPartition
    created_ms: int
    block: Block
    deliveries: list[Delivery]
    is_open: bool
    size_bytes: int = 0
    goes_alone: bool = False
    _keys: list[bytes | None] = field(factory=list)
    _values: list[bytes | None] = field(factory=list)
    _timestamps: list[int] = field(factory=list)
    _headers: list[Headers] | None = None

    def append(self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers) -> None:
        """Add a record to an open batch."""
        if headers and self._headers is None:
            self._headers = [()] * len(self._keys)
        if self._headers is not None:
            self._headers.append(headers)
        self._keys.append(key)
        self._values.append(value)
        self._timestamps.append(timestamp_ms)
        self.size_bytes += len(key or b"") + len(value or b"") + _RECORD_OVERHEAD_BYTES

    def seal(self) -> None:
        """Make the block of what has gathered."""
        if self.is_open:
            self.is_open = False
            self.block = Block(self._keys, self._values, self._timestamps, self._headers, range(len(self._keys)))

    def halves(self) -> "tuple[Batch, Batch] | None":
        """Return two batches of half the records each; None where there is one delivery to fulfil as a whole."""
        count = len(self.deliveries)
        if count < 2:
            return None
        middle = count // 2
        first, second = (
            Batch(self.sequence, self.partition, self.created_ms, block, deliveries, is_open=False, goes_alone=True)
            for block, deliveries in (
                (self.block.slice(0, middle), self.deliveries[:middle]),
                (self.block.slice(middle), self.deliveries[middle:]),
            )
        )
        return first, second

    def acknowledge(self, base_offset: int) -> None:
        """Fulfil the deliveries."""
        for index, delivery in enumerate(self.deliveries):
            delivery.fulfil(base_offset + index)

    def fail(self, error: BrokerError) -> None:
        """Fail the deliveries."""
        for delivery in self.deliveries:
            delivery.fail(error)


@define(eq=False)
class PartitionQueue:
    """Batches of one partition that wait, the oldest first."""

    batches: deque[Batch] = field(factory=deque)
    is_in_flight: bool = False
    retry_at_ms: int = 0


class Accumulator:
    """All batches that are not acknowledged yet."""

    def __init__(self, *, linger_ms: int, batch_size: int) -> None:
        self._linger_ms = linger_ms
        self._batch_size = batch_size
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        # Partitions with something waiting and nothing in flight, in the order in which they got so.
        self._waiting: dict[TopicPartition, PartitionQueue] = {}
        # How many parts of each batch are under way, in the order of their numbers.
        self._unfinished: dict[int, int] = {}
        self._sequence = 0
        self._flush_through = 0

    @property
    def last_sequence(self) -> int:
        """Number of the youngest batch."""
        return self._sequence

    def is_finished_through(self, sequence: int) -> bool:
        """Whether all batches up to this one have been acknowledged or have failed."""
        return not self._unfinished or next(iter(self._unfinished)) > sequence

    def request_flush(self, sequence: int) -> None:
        """Let batches up to this one linger no more."""
        self._flush_through = max(self._flush_through, sequence)

    def add_block(self, partition: TopicPartition, block: Block, delivery: Delivery, now_ms: int) -> None:
        """Queue a whole block."""
        self._append(self._new_batch(partition, block, [delivery], now_ms, is_open=False))

    def add_record(
        self,
        partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        now_ms: int,
        new_delivery: Callable[[int], Delivery],
    ) -> tuple[Delivery, bool]:
        """Queue a record; return its delivery and whether the sender should look (a batch began or is full)."""
        queue = self._queues.get(partition)
        batch = queue.batches[-1] if queue is not None and queue.batches else None
        is_new = batch is None or not batch.is_open or batch.size_bytes >= self._batch_size
        if is_new or batch is None:
            batch = self._new_batch(partition, _EMPTY, [], now_ms, is_open=True)
            self._append(batch)
        delivery = new_delivery(batch.sequence)
        batch.deliveries.append(delivery)
        batch.append(key, value, timestamp_ms, headers)
        return delivery, is_new or batch.size_bytes >= self._batch_size

    def open_size(self, partition: TopicPartition) -> int:
        """Return how many records gather in the open batch of a partition."""
        queue = self._queues.get(partition)
        return len(queue.batches[-1].deliveries) if queue is not None and queue.batches else 0

    def ready_at_ms(self, now_ms: int) -> int | None:
        """Return when the next batch may be sent, ``now_ms`` if it may be already; None without any."""
        earliest: int | None = None
        for queue in self._waiting.values():
            at = max(queue.retry_at_ms, self._due_ms(queue))
            if at <= now_ms:
                return now_ms
            if earliest is None or at < earliest:
                earliest = at
        return earliest

    def drain(self, now_ms: int) -> dict[TopicPartition, list[Batch]]:
        """Take what may be sent now; each partition taken is in flight until ``finish`` or ``retry``."""
        drained: dict[TopicPartition, list[Batch]] = {}
        for partition, queue in list(self._waiting.items()):
            if max(queue.retry_at_ms, self._due_ms(queue)) > now_ms:
                continue
            batches: list[Batch] = []
            count = 0
            while queue.batches and count < _MAX_RECORDS_PER_REQUEST:
                if batches and (queue.batches[0].goes_alone or batches[0].goes_alone):
                    break
                batches.append(queue.batches.popleft())
                batches[-1].seal()
                count += len(batches[-1].block)
            queue.is_in_flight = True
            del self._waiting[partition]
            drained[partition] = batches
        return drained

    def finish(self, partition: TopicPartition, batches: Sequence[Batch]) -> None:
        """These have been acknowledged or have failed: the next may go."""
        self._forget(batches)
        self._release(partition)

    def split(self, batch: Batch) -> list[Batch]:
        """Return a batch in two, or as it is where it cannot be divided."""
        halves = batch.halves()
        if halves is None:
            return [batch]
        self._unfinished[batch.sequence] += 1
        return list(halves)

    def retry(self, partition: TopicPartition, batches: Sequence[Batch], at_ms: int) -> None:
        """Put batches back in front, to be sent at a later time."""
        queue = self._queues[partition]
        queue.batches.extendleft(reversed(batches))
        queue.retry_at_ms = at_ms
        self._release(partition)

    def retry_apart(self, partition: TopicPartition, batches: Sequence[Batch]) -> None:
        """Put batches back in front, to be sent at once but each in a request of its own."""
        for batch in batches:
            batch.goes_alone = True
        self._queues[partition].batches.extendleft(reversed(batches))
        self._release(partition)

    def take_expired(self, created_before_ms: int) -> list[Batch]:
        """Remove and return waiting batches that are older than this."""
        expired: list[Batch] = []
        for partition, queue in list(self._waiting.items()):
            while queue.batches and queue.batches[0].created_ms < created_before_ms:
                expired.append(queue.batches.popleft())
                expired[-1].seal()
            if not queue.batches:
                del self._waiting[partition]
        self._forget(expired)
        return expired

    def take_all(self) -> list[Batch]:
        """Remove and return everything that waits."""
        taken = [batch for queue in self._queues.values() for batch in queue.batches]
        for queue in self._queues.values():
            queue.batches.clear()
        self._waiting.clear()
        self._forget(taken)
        return taken

    # --- inside -----------------------------------------------------------------------

    def _new_batch(
        self, partition: TopicPartition, block: Block, deliveries: list[Delivery], now_ms: int, *, is_open: bool
    ) -> Batch:
        self._sequence += 1
        self._unfinished[self._sequence] = 1
        return Batch(self._sequence, partition, now_ms, block, deliveries, is_open)

    def _append(self, batch: Batch) -> None:
        queue = self._queues.get(batch.partition)
        if queue is None:
            queue = self._queues[batch.partition] = PartitionQueue()
        queue.batches.append(batch)
        if not queue.is_in_flight:
            self._waiting[batch.partition] = queue

    def _forget(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self._unfinished[batch.sequence] -= 1
            if not self._unfinished[batch.sequence]:
                del self._unfinished[batch.sequence]

    def _release(self, partition: TopicPartition) -> None:
        queue = self._queues[partition]
        queue.is_in_flight = False
        if queue.batches:
            self._waiting[partition] = queue

    def _due_ms(self, queue: PartitionQueue) -> int:
        """Return when the first batch of a queue has lingered enough."""
        batch = queue.batches[0]
        is_due = (
            not batch.is_open
            or len(queue.batches) > 1
            or batch.size_bytes >= self._batch_size
            or batch.sequence <= self._flush_through
        )
        return 0 if is_due else batch.created_ms + self._linger_ms


_EMPTY: Final = Block((), (), ())
