"""The producer's unacknowledged records: one queue per partition, in send order.

Records are collected in open batches (``ProducerBatch``).  A block of records is queued as a separate batch.  A
``Parcel`` joins the batches of one partition in one request, with a common producer id, epoch and base sequence;
it corresponds to ``ProducerBatch`` of the Java producer.  A retry sends the parcel unchanged.  An idempotent producer
may have several parcels per partition in flight.  Any other producer has at most one, so that retries keep the
order.  The producer's lock guards this module.
Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from attrs import define, field

from streams.clients.errors import RequestTimeoutError
from streams.clients.producer.delivery import Delivery
from streams.core.blocks.loops import bytes_in
from streams.core.blocks.records import Block, Headers, Lanes, ProducerStamp, TopicPartition
from streams.core.errors import BrokerError
from streams.core.settings.client_settings import ProducerSettings
from streams.protocol.error_codes import ErrorCode

# Maximum number of records in a parcel; a single block may exceed it.
_MAX_PARCEL_RECORDS: Final = 100_000

# Errors that concern single records; all other errors concern the whole batch.
REFUSED_RECORDS: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD})

# Estimated overhead of a record in addition to key and value, and of a header in addition to name and value.
_RECORD_OVERHEAD_BYTES: Final = 32
_HEADER_OVERHEAD_BYTES: Final = 4


@define(eq=False)
class ProducerBatch:
    """Consecutive records of one partition; ``deliveries`` has one entry per record, or one for a whole block."""

    number: int
    partition: TopicPartition
    created_ms: int
    block: Block
    deliveries: list[Delivery]
    is_open: bool
    size_bytes: int = 0
    _keys: list[bytes | None] = field(factory=list)
    _values: list[bytes | None] = field(factory=list)
    _timestamps: list[int] = field(factory=list)
    _headers: list[Headers] | None = None

    def append(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers, size_bytes: int
    ) -> None:
        """Add a record to an open batch."""
        if headers and self._headers is None:
            self._headers = [()] * len(self._keys)
        if self._headers is not None:
            self._headers.append(headers)
        self._keys.append(key)
        self._values.append(value)
        self._timestamps.append(timestamp_ms)
        self.size_bytes += size_bytes

    def seal(self) -> None:
        """Close an open batch by making a block of the collected records."""
        if self.is_open:
            self.is_open = False
            self.block = Block(self._keys, self._values, self._timestamps, self._headers, range(len(self._keys)))


@define(eq=False)
class Parcel:
    """The batches of one partition in one produce request.

    ``places`` contains, for each delivery (the future of one send), the index of its first record in ``block``.
    ``was_next`` is set if all earlier parcels had been acknowledged when this one was last sent.  ``is_abandoned`` is
    set if the response is to be ignored.
    """

    partition: TopicPartition
    created_ms: int
    block: Block
    deliveries: list[Delivery]
    places: Sequence[int]
    numbers: tuple[int, ...]
    size_bytes: int
    attempts: int = 0
    is_in_flight: bool = False
    was_next: bool = False
    is_abandoned: bool = False

    def stamp(self, stamp: ProducerStamp | None, compression: str | None = None) -> None:
        """Replace the block of records by a copy with this producer id, epoch and sequence number.

        The embedded broker may still use the block that was sent.
        """
        block = self.block
        self.block = Block(
            block.keys,
            block.values,
            block.timestamps,
            block.headers,
            block.offsets,
            stamp,
            compression or block.compression,
            block.lanes,
        )

    def acknowledge(self, base_offset: int) -> None:
        """Complete the deliveries successfully; their offset is -1 if ``base_offset`` is -1, which means unknown."""
        if base_offset < 0:
            for delivery in self.deliveries:
                delivery.fulfil(-1)
            return
        for place, delivery in zip(self.places, self.deliveries, strict=True):
            delivery.fulfil(base_offset + place)

    def gives_back(self, error: BrokerError) -> bool:
        """Pass rejected or expired records to the ``on_refused`` callback, if any; return whether this was done."""
        on_refused = self.deliveries[0].on_refused
        is_refused = error.code in REFUSED_RECORDS and len(self.block) == 1
        if on_refused is None or not (is_refused or isinstance(error, RequestTimeoutError)):
            return False
        on_refused(self.block, error)
        self.acknowledge(-1)
        return True

    def fail(self, error: BrokerError) -> None:
        """Fail the deliveries with ``error``."""
        for delivery in self.deliveries:
            delivery.fail(error)

    def halves(self) -> "tuple[Parcel, Parcel] | None":
        """Split a parcel into two, each with half of the deliveries, or return None if it cannot be split.

        A single delivery is split only if it has an ``on_refused`` callback and is a block of several records.
        """
        count = len(self.deliveries)
        if count < 2:
            delivery = self.deliveries[0]
            if delivery.on_refused is None or len(self.block) < 2:
                return None
            # Divide down to the rejected record, which is passed to ``on_refused``.
            start = len(self.block) // 2
            delivery.divide(2)
            parts: tuple[tuple[Block, list[Delivery], Sequence[int]], ...] = (
                (self.block.slice(0, start), [delivery], [0]),
                (self.block.slice(start), [delivery], [0]),
            )
        else:
            middle = count // 2
            start = self.places[middle]
            parts = (
                (self.block.slice(0, start), self.deliveries[:middle], self.places[:middle]),
                (self.block.slice(start), self.deliveries[middle:], [place - start for place in self.places[middle:]]),
            )
        first, second = (
            Parcel(
                self.partition,
                self.created_ms,
                block,
                deliveries,
                places,
                tuple(dict.fromkeys(delivery.sequence for delivery in deliveries)),
                self.size_bytes // 2,
            )
            for block, deliveries, places in parts
        )
        stamp = self.block.producer
        if stamp is not None:
            second.stamp(stamp._replace(sequence=stamp.sequence + start))
        return first, second


@define(eq=False)
class PartitionBatches:
    """Queued and in-flight records of one partition, oldest first: first parcels, then batches not yet in a parcel.

    The next parcel gets the producer id and epoch ``identity`` and the base sequence ``next_sequence``.
    ``is_muted`` is set while a metadata or coordinator look-up must complete before anything is sent.  ``is_settled``
    is set once the broker has acknowledged a record with this identity.  Until then it accepts any sequence number as
    the first, so only one parcel is in flight at a time.  ``needs_restart`` is set when the broker will never receive
    some sequence number, so that the sequence has to restart in a new epoch once nothing is in flight.
    """

    parcels: list[Parcel] = field(factory=list)
    batches: deque[ProducerBatch] = field(factory=deque)
    in_flight: int = 0
    retry_at_ms: int = 0
    is_muted: bool = False
    is_settled: bool = False
    needs_restart: bool = False
    identity: tuple[int, int] = (-1, -1)
    next_sequence: int = 0

    def adopt(self, identity: tuple[int, int]) -> None:
        """Set a new producer id and epoch, and restart the sequence at 0."""
        self.identity = identity
        self.next_sequence = 0
        self.is_settled = False

    @property
    def has_waiting(self) -> bool:
        """Whether any records are queued and not in flight."""
        return bool(self.batches) or self.in_flight < len(self.parcels)


class Accumulator:
    """All unacknowledged records of a producer."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._linger_ms = settings.linger_ms
        self._batch_size = settings.batch_size_bytes
        # In-flight requests per partition; only with an idempotent producer does a broker keep several in order.
        self._max_in_flight = settings.max_in_flight_requests if settings.is_idempotent else 1
        self._max_parcel_bytes = settings.max_request_bytes
        self._queues: dict[TopicPartition, PartitionBatches] = {}
        # Queues that may send something, in the order in which they became ready.
        self._waiting: dict[TopicPartition, PartitionBatches] = {}
        # The number of unfinished pieces of each batch, by batch number.
        self._unfinished: dict[int, int] = {}
        self._number = 0
        self._flush_through = 0
        self._restarts = 0
        #: Bytes of all unfinished batches.
        self.used_bytes = 0

    @property
    def last_sequence(self) -> int:
        """The number of the newest batch; batches are numbered in the order of their creation."""
        return self._number

    @property
    def is_empty(self) -> bool:
        """Whether every record has been acknowledged or has failed."""
        return not self._unfinished

    def is_finished_through(self, sequence: int) -> bool:
        """Whether all batches up to number ``sequence`` have been acknowledged or have failed."""
        return not self._unfinished or next(iter(self._unfinished)) > sequence

    def request_flush(self, sequence: int) -> None:
        """Make all batches up to number ``sequence`` due immediately, regardless of ``linger_ms``."""
        self._flush_through = max(self._flush_through, sequence)

    # --- adding -----------------------------------------------------------------------

    def add_block(
        self, partition: TopicPartition, block: Block, delivery: Delivery, now_ms: int, size_bytes: int
    ) -> None:
        """Queue a whole block, split into pieces that each fit into a request; brokers reject larger batches."""
        if not isinstance(block.offsets, range):
            # Brokers reject gaps, too: the offsets are those of the log from which the records come.
            columns = block.keys, block.values, block.timestamps, block.headers
            block = Block(*columns, range(len(block)), block.producer, block.compression)
        pieces = min(len(block), -(-size_bytes // self._max_parcel_bytes))
        self._number += 1
        self._unfinished[self._number] = pieces
        self.used_bytes += size_bytes
        if pieces > 1:
            delivery.divide(pieces)
        for index in range(pieces):
            start = len(block) * index // pieces
            stop = len(block) * (index + 1) // pieces
            piece = block if pieces == 1 else block.slice(start, stop)
            batch = ProducerBatch(self._number, partition, now_ms, piece, [delivery], is_open=False)
            # The remainder of the division belongs to the last piece.
            batch.size_bytes = size_bytes * (index + 1) // pieces - size_bytes * index // pieces
            self._append(batch)

    def add_record(
        self,
        partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        now_ms: int,
        size_bytes: int,
        new_delivery: Callable[[int], Delivery],
    ) -> tuple[Delivery, bool]:
        """Queue a record; return its delivery, and whether to wake the sender because a batch was begun or is full."""
        queue = self._queues.get(partition)
        batch = queue.batches[-1] if queue is not None and queue.batches else None
        is_new = batch is None or not batch.is_open or batch.size_bytes >= self._batch_size
        if is_new or batch is None:
            batch = self._new_batch(partition, _EMPTY, [], now_ms, is_open=True)
            self._append(batch)
        delivery = new_delivery(batch.number)
        batch.deliveries.append(delivery)
        batch.append(key, value, timestamp_ms, headers, size_bytes)
        self.used_bytes += size_bytes
        return delivery, is_new or batch.size_bytes >= self._batch_size

    def open_size(self, partition: TopicPartition) -> int:
        """Return the number of deliveries in the newest queued batch of a partition, or 0 if no batch is queued."""
        queue = self._queues.get(partition)
        return len(queue.batches[-1].deliveries) if queue is not None and queue.batches else 0

    # --- sending ----------------------------------------------------------------------

    def ready_at_ms(self, now_ms: int) -> int | None:
        """Return the time when the next batches may be sent (not before ``now_ms``), or None if nothing is queued."""
        earliest: int | None = None
        for queue in self._waiting.values():
            if queue.is_muted:
                continue
            at = max(queue.retry_at_ms, self._due_ms(queue))
            if at <= now_ms:
                return now_ms
            if earliest is None or at < earliest:
                earliest = at
        return earliest

    def drain(
        self, now_ms: int, may_go: Callable[[TopicPartition], bool], begin: Callable[[PartitionBatches, Parcel], None]
    ) -> dict[TopicPartition, Parcel]:
        """Return the next parcel of each partition that may send now; ``begin`` is called to stamp each new parcel.

        A parcel is in flight until ``finish`` or ``retry``.  A partition is muted if ``may_go`` returns False.
        """
        drained: dict[TopicPartition, Parcel] = {}
        for partition, queue in list(self._waiting.items()):
            if queue.is_muted or max(queue.retry_at_ms, self._due_ms(queue)) > now_ms:
                continue
            if not may_go(partition):
                queue.is_muted = True
                continue
            index = next((i for i, parcel in enumerate(queue.parcels) if not parcel.is_in_flight), None)
            if index is None:
                parcel = self._new_parcel(queue)
                begin(queue, parcel)
                index = len(queue.parcels)
                queue.parcels.append(parcel)
            parcel = queue.parcels[index]
            parcel.attempts += 1
            parcel.is_in_flight = True
            parcel.was_next = index == 0
            queue.in_flight += 1
            # Move the partition to the end of the queue, so that the other partitions are served first.
            self._waiting.pop(partition)
            self._update(partition, queue)
            drained[partition] = parcel
        return drained

    def release(self) -> None:
        """Unmute all partitions, because the look-up for which they were muted has completed."""
        for queue in self._waiting.values():
            queue.is_muted = False

    def waiting_partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic that have records to send."""
        return [partition for partition in self._waiting if partition.topic == topic]

    def land(self, parcel: Parcel) -> None:
        """Mark a parcel as no longer in flight, because its request has completed."""
        parcel.is_in_flight = False
        self._queues[parcel.partition].in_flight -= 1

    def finish(self, parcel: Parcel, *, is_acknowledged: bool = False) -> None:
        """Remove a parcel that is acknowledged, or has failed for good, so that the next one may be sent."""
        queue = self._queues[parcel.partition]
        queue.is_settled = queue.is_settled or is_acknowledged
        queue.parcels.remove(parcel)
        self._forget(parcel.numbers)
        self.used_bytes -= parcel.size_bytes
        self._update(parcel.partition, queue)

    def retry(self, parcel: Parcel, at_ms: int) -> None:
        """Queue a parcel for a retry at ``at_ms``, without changing the order of the partition."""
        queue = self._queues[parcel.partition]
        queue.retry_at_ms = max(queue.retry_at_ms, at_ms)
        self._update(parcel.partition, queue)

    def split(self, parcel: Parcel) -> bool:
        """Replace a parcel by its halves; return False if it cannot be divided."""
        halves = parcel.halves()
        if halves is None:
            return False
        first, second = halves
        stamp = parcel.block.producer
        if stamp is not None:
            first.stamp(stamp)
        second.size_bytes = parcel.size_bytes - first.size_bytes
        for number in first.numbers:
            if number in second.numbers:
                self._unfinished[number] += 1
        queue = self._queues[parcel.partition]
        index = queue.parcels.index(parcel)
        queue.parcels[index : index + 1] = [first, second]
        self._update(parcel.partition, queue)
        return True

    def restart(self, partition: TopicPartition) -> None:
        """Restart a partition's sequence numbers as soon as it has nothing in flight."""
        queue = self._queues[partition]
        if not queue.needs_restart:
            queue.needs_restart = True
            self._restarts += 1
        self._update(partition, queue)

    def restartable(self) -> list[tuple[TopicPartition, PartitionBatches]]:
        """Return the partitions whose sequence numbers have to be restarted and that have nothing in flight."""
        if not self._restarts:
            return []
        return [(p, queue) for p, queue in self._queues.items() if queue.needs_restart and not queue.in_flight]

    def restarted(self, partition: TopicPartition) -> None:
        """Let a partition send again after its sequence numbers were restarted."""
        queue = self._queues[partition]
        queue.needs_restart = False
        self._restarts -= 1
        self._update(partition, queue)

    def take_expired(self, created_before_ms: int) -> list[Parcel]:
        """Remove and return batches and parcels created before ``created_before_ms`` that are not in flight."""
        expired: list[Parcel] = []
        for partition, queue in list(self._waiting.items()):
            old = [p for p in queue.parcels if p.created_ms < created_before_ms and not p.is_in_flight]
            for parcel in old:
                queue.parcels.remove(parcel)
            # Newer parcels stay before the batches, which are newer still.
            while queue.batches and queue.batches[0].created_ms < created_before_ms:
                old.append(self._parcel_of([queue.batches.popleft()]))
            expired += self._remove(partition, queue, old)
        return expired

    def take_waiting(self, partitions: Iterable[TopicPartition] | None = None) -> list[Parcel]:
        """Remove and return all records that are not in flight, for the given partitions or for all."""
        taken: list[Parcel] = []
        for partition in list(self._queues) if partitions is None else partitions:
            queue = self._queues[partition]
            old = [parcel for parcel in queue.parcels if not parcel.is_in_flight]
            queue.parcels = [parcel for parcel in queue.parcels if parcel.is_in_flight]
            old += [self._parcel_of([batch]) for batch in queue.batches]
            queue.batches.clear()
            taken += self._remove(partition, queue, old)
        return taken

    def take_all(self) -> list[Parcel]:
        """Remove and return all records; responses to in-flight parcels will be ignored."""
        taken: list[Parcel] = []
        for partition, queue in self._queues.items():
            old = queue.parcels
            queue.parcels = []
            queue.in_flight = 0
            for parcel in old:
                parcel.is_abandoned = parcel.is_in_flight
            taken += self._remove(partition, queue, old)
        return taken + self.take_waiting()

    # --- inside -----------------------------------------------------------------------

    def _remove(self, partition: TopicPartition, queue: PartitionBatches, parcels: list[Parcel]) -> list[Parcel]:
        for parcel in parcels:
            self._forget(parcel.numbers)
            self.used_bytes -= parcel.size_bytes
        self._update(partition, queue)
        return parcels

    def _new_batch(
        self, partition: TopicPartition, block: Block, deliveries: list[Delivery], now_ms: int, *, is_open: bool
    ) -> ProducerBatch:
        self._number += 1
        self._unfinished[self._number] = 1
        return ProducerBatch(self._number, partition, now_ms, block, deliveries, is_open)

    def _append(self, batch: ProducerBatch) -> None:
        queue = self._queues.get(batch.partition)
        if queue is None:
            queue = self._queues[batch.partition] = PartitionBatches()
        queue.batches.append(batch)
        self._update(batch.partition, queue)

    def _new_parcel(self, queue: PartitionBatches) -> Parcel:
        batches = [queue.batches.popleft()]
        batches[0].seal()
        count = len(batches[0].block)
        size = batches[0].size_bytes
        while queue.batches:
            batch = queue.batches[0]
            batch.seal()
            count = count + len(batch.block)
            size = size + batch.size_bytes
            if count > _MAX_PARCEL_RECORDS or size > self._max_parcel_bytes:
                break
            batches.append(queue.batches.popleft())
        return self._parcel_of(batches)

    def _parcel_of(self, batches: Sequence[ProducerBatch]) -> Parcel:
        first = batches[0]
        first.seal()
        if len(batches) == 1:
            return Parcel(
                first.partition,
                first.created_ms,
                first.block,
                first.deliveries,
                range(len(first.deliveries)),
                (first.number,),
                first.size_bytes,
            )
        places: list[int] = []
        deliveries: list[Delivery] = []
        start = 0
        for batch in batches:
            places += range(start, start + len(batch.deliveries))
            deliveries += batch.deliveries
            start += len(batch.block)
        return Parcel(
            first.partition,
            first.created_ms,
            _joined([batch.block for batch in batches]),
            deliveries,
            places,
            tuple(batch.number for batch in batches),
            sum(batch.size_bytes for batch in batches),
        )

    def _forget(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._unfinished[number] -= 1
            if not self._unfinished[number]:
                del self._unfinished[number]

    def _update(self, partition: TopicPartition, queue: PartitionBatches) -> None:
        """Add a partition to the partitions that may send, or remove it from them."""
        limit = self._max_in_flight if queue.is_settled else 1
        if queue.has_waiting and queue.in_flight < limit and not queue.needs_restart:
            self._waiting[partition] = queue
        else:
            self._waiting.pop(partition, None)
            queue.is_muted = False

    def _due_ms(self, queue: PartitionBatches) -> int:
        """Return when a partition may send: 0 for a retry or a due batch, or the end of the next batch's linger."""
        if queue.in_flight < len(queue.parcels):
            return 0
        batch = queue.batches[0]
        is_due = (
            not self._linger_ms
            or batch.number <= self._flush_through
            or sum(batch.size_bytes for batch in queue.batches) >= self._batch_size
        )
        return 0 if is_due else batch.created_ms + self._linger_ms


def _joined(blocks: Sequence[Block]) -> Block:
    """Join several blocks of records into a single block."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    timestamps: list[int] = []
    for block in blocks:
        keys += block.keys
        values += block.values
        timestamps += block.timestamps
    headers: list[Headers] | None = None
    if any(block.headers is not None for block in blocks):
        headers = []
        for block in blocks:
            headers += block.headers if block.headers is not None else [()] * len(block)
    return Block(keys, values, timestamps, headers, range(len(keys)), lanes=Lanes.joined(blocks))


_EMPTY: Final = Block((), (), ())


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the estimated size of a record in bytes."""
    size = _RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += len(name) + len(content or b"")
    return size


def oversized(block: Block, limit_bytes: int) -> list[int]:
    """Return the indexes of the records in a block whose ``record_size`` exceeds ``limit_bytes``."""
    size_bytes = block_size(block)
    if size_bytes <= limit_bytes:
        return []
    # No record in a piece within the limit exceeds the limit, so few pieces are checked record by record.
    count = len(block)
    pieces = 2 * -(-size_bytes // limit_bytes)
    indexes: list[int] = []
    for piece in range(pieces):
        start = count * piece // pieces
        part = block.slice(start, count * (piece + 1) // pieces)
        if block_size(part) > limit_bytes:
            headers: Sequence[Headers] = part.headers or [()] * len(part)
            rows = zip(part.keys, part.values, headers, strict=True)
            indexes += [start + index for index, row in enumerate(rows) if record_size(*row) > limit_bytes]
    return indexes


def block_size(block: Block) -> int:
    """Return an upper bound on the size of a block of records in bytes."""
    size = len(block) * _RECORD_OVERHEAD_BYTES
    size += bytes_in(block.keys) + bytes_in(block.values)
    for headers in block.headers or ():
        for name, content in headers:
            size += _HEADER_OVERHEAD_BYTES + len(name) + len(content or b"")
    return size
