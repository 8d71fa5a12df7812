"""The producer state of a log: sequence numbers, epochs, and open and aborted transactions (KIP-98).

Each log has one ledger (Kafka's ``ProducerStateManager``), which is updated with every appended block of records, and
rebuilt from the records when the log is opened.  Methods receive the current time as an argument.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from attrs import define, field

from streams.broker.logs.storage import Stamped
from streams.core.blocks.records import Block, ProducerStamp, TopicPartition
from streams.core.errors import BrokerError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import AbortedTransaction

#: Number of recent batches per producer that are kept to detect duplicates: the maximum number in flight.
_REMEMBERED = 5
_SEQUENCE_MASK = 0x7FFFFFFF


class _Appended(NamedTuple):
    """A run of consecutive records from one producer: first sequence number, record count and first offset."""

    first: int
    length: int
    offset: int


@define(eq=False)
class _Producer:
    epoch: int
    last_ms: int
    #: None: any, because the log does not say how far the producer had come in this epoch.
    next_sequence: int | None
    recent: deque[_Appended] = field(factory=lambda: deque(maxlen=_REMEMBERED))

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, or -1 if the log has none of this epoch."""
        return -1 if self.next_sequence is None or not self.recent else (self.next_sequence - 1) & _SEQUENCE_MASK


class _Aborted(NamedTuple):
    """An aborted transaction in a log: the offsets of its first record and of its abort marker."""

    producer_id: int
    first_offset: int
    marker_offset: int


class ActiveProducer(NamedTuple):
    """An idempotent producer that is known to a log.

    ``open_offset`` is the first offset of its open transaction, or -1 if no transaction is open.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_ms: int
    open_offset: int


@define(eq=False)
class ProducerLedger:
    """The state of all idempotent and transactional producers of one log."""

    partition: TopicPartition
    _producers: dict[int, _Producer] = field(factory=dict)
    #: First offset of each producer's open transaction, oldest first.
    _open: dict[int, int] = field(factory=dict)
    #: Aborted transactions, by the offsets of their markers.
    _aborted: list[_Aborted] = field(factory=list)

    # --- appending ------------------------------------------------------------------------

    def repeated(self, block: Block) -> int | None:
        """Check the producer epoch and sequence of a block before it is appended.

        Returns the base offset of the original if the block is a duplicate, otherwise None.

        Raises:
            BrokerError: the producer was fenced (``INVALID_PRODUCER_EPOCH``), or earlier records
                are missing (``OUT_OF_ORDER_SEQUENCE_NUMBER``).
        """
        stamp = block.producer
        if stamp is None:
            return None
        producer = self._producers.get(stamp.producer_id)
        if producer is None:
            return None
        if stamp.epoch < producer.epoch:
            raise BrokerError(
                f"producer {stamp.producer_id} of epoch {stamp.epoch} writes to {self.partition}, but epoch "
                f"{producer.epoch} has begun: another producer has taken its place",
                code=ErrorCode.INVALID_PRODUCER_EPOCH,
            )
        if stamp.sequence < 0:
            return None
        is_new_epoch = stamp.epoch > producer.epoch
        for appended in () if is_new_epoch else producer.recent:
            distance = (stamp.sequence - appended.first) & _SEQUENCE_MASK
            if distance + len(block) <= appended.length:
                return appended.offset + distance
        # The second batch of an epoch may arrive before the first, whose connection was lost.
        expected = 0 if is_new_epoch else producer.next_sequence
        if expected is not None and stamp.sequence != expected:
            raise self._out_of_order(stamp, expected)
        return None

    def appended(self, stamped: Stamped, now_ms: int) -> None:
        """Update the producer state with records that were appended to the log."""
        stamp, base_offset, length, is_commit = stamped
        if stamp.is_control:
            self._end(stamp, base_offset, is_commit, now_ms)
            return
        producer = self._producer(stamp, now_ms)
        if stamp.sequence >= 0:
            last = producer.recent[-1] if producer.recent else None
            if (
                last is not None
                and producer.next_sequence == stamp.sequence
                and last.offset + last.length == base_offset
            ):
                # The records are adjacent in the log: merge them into one batch.
                producer.recent[-1] = _Appended(last.first, last.length + length, last.offset)
            else:
                producer.recent.append(_Appended(stamp.sequence, length, base_offset))
            producer.next_sequence = (stamp.sequence + length) & _SEQUENCE_MASK
        if stamp.is_transactional:
            self._open.setdefault(stamp.producer_id, base_offset)

    def epoch_of(self, producer_id: int) -> int:
        """Return the latest epoch of a producer, or -1 if the producer is unknown."""
        producer = self._producers.get(producer_id)
        return -1 if producer is None else producer.epoch

    def active(self) -> list[ActiveProducer]:
        """Return all idempotent and transactional producers that are known to the log."""
        return [
            ActiveProducer(
                producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_ms,
                self._open.get(producer_id, -1),
            )
            for producer_id, producer in self._producers.items()
        ]

    def last_offsets(self) -> frozenset[int]:
        """Return the offset of each producer's last record, from which the producer's next sequence is read."""
        last = (producer.recent[-1] for producer in self._producers.values() if producer.recent)
        return frozenset(appended.offset + appended.length - 1 for appended in last)

    # --- transactions ---------------------------------------------------------------------

    def last_stable_offset(self, end: int) -> int:
        """Return the first offset of the oldest open transaction, or ``end`` if no transaction is open."""
        return next(iter(self._open.values()), end)

    def is_open(self, producer_id: int) -> bool:
        """Whether a producer has an open transaction in this log."""
        return producer_id in self._open

    def aborted_between(self, start: int, end: int) -> Sequence[AbortedTransaction]:
        """Return the aborted transactions that have records from ``start`` up to ``end``, ordered by first offset."""
        if not self._aborted:
            return ()
        aborted = [item for item in self._aborted if item.marker_offset >= start and item.first_offset < end]
        return tuple(
            AbortedTransaction(item.producer_id, item.first_offset)
            for item in sorted(aborted, key=lambda item: item.first_offset)
        )

    def is_aborted(self, block: Block) -> bool:
        """Whether the records of a block belong to an aborted transaction."""
        stamp = block.producer
        if stamp is None or not stamp.is_transactional or stamp.is_control:
            return False
        offset = block.offsets[0]
        return any(
            item.producer_id == stamp.producer_id and item.first_offset <= offset <= item.marker_offset
            for item in self._aborted
        )

    # --- upkeep ---------------------------------------------------------------------------

    def truncated(self, start: int) -> None:
        """Drop the aborted transactions that ended below ``start``, the new start offset of the log."""
        if self._aborted and self._aborted[0].marker_offset < start:
            self._aborted = [item for item in self._aborted if item.marker_offset >= start]

    def expire(self, idle_since_ms: int) -> None:
        """Drop producers that have not written since ``idle_since_ms`` and have no open transaction."""
        idle = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.last_ms < idle_since_ms and producer_id not in self._open
        ]
        for producer_id in idle:
            del self._producers[producer_id]

    # --- internal -------------------------------------------------------------------------

    def _producer(self, stamp: ProducerStamp, now_ms: int) -> _Producer:
        producer = self._producers.get(stamp.producer_id)
        if producer is None or stamp.epoch > producer.epoch:
            next_sequence = None if producer is None else 0
            producer = self._producers[stamp.producer_id] = _Producer(stamp.epoch, now_ms, next_sequence)
        producer.last_ms = now_ms
        return producer

    def _end(self, stamp: ProducerStamp, offset: int, is_commit: bool, now_ms: int) -> None:
        self._producer(stamp, now_ms)
        first = self._open.pop(stamp.producer_id, None)
        if first is not None and not is_commit:
            self._aborted.append(_Aborted(stamp.producer_id, first, offset))

    def _out_of_order(self, stamp: ProducerStamp, expected: int) -> BrokerError:
        return BrokerError(
            f"producer {stamp.producer_id} (epoch {stamp.epoch}) sends sequence {stamp.sequence} to {self.partition}, "
            f"where {expected} is next: records before it were lost",
            code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        )
