"""The log of one partition: validated appends, reads, retention and compaction.

The topics own the logs, and a storage has the records.  Methods receive the current time as an argument; there are
no timers.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from attrs import define, evolve, field

from streams.broker.logs import expiry
from streams.broker.logs.batches import EncodedRun, EncodedStorage, at_append_time, encoded_blocks, run_of
from streams.broker.logs.compaction import Cleaner
from streams.broker.logs.config import TopicConfig
from streams.broker.logs.damaged import DamagedStorage
from streams.broker.logs.limits import LOOKED_INTO_BYTES
from streams.broker.logs.producers import ProducerLedger
from streams.broker.logs.steps import STEP_RECORDS, Steps, portions, records_in, whole
from streams.broker.logs.storage import (
    CompactableStorage,
    GradualStorage,
    LogStorage,
    SealableStorage,
    Stamped,
    payload_size,
    stamps_of,
    storage_error,
)
from streams.core.blocks.loops import longest_in
from streams.core.blocks.records import NO_TIMESTAMP, Block, TopicPartition
from streams.core.errors import BrokerError, DamagedLogError, OffsetOutOfRangeError, RecordTooLargeError
from streams.protocol.batch import HEADER_SIZE, CorruptBatchError, InvalidBatchError, batch_size
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
)
from streams.protocol.wire import EncodedBlock

T = TypeVar("T")

#: Maximum bytes that length fields, deltas and the batch header add to a record without headers.
_FRAME_BYTES = HEADER_SIZE + 32
_COMPACTION_READ_RECORDS = STEP_RECORDS
# Records that are read and encoded at once if the storage cannot return batches.
_ENCODED_READ_RECORDS = 4096
#: Producer state expires after this time without a record (Kafka's ``producer.id.expiration.ms``).
_PRODUCER_EXPIRATION_MS = 86_400_000


class RefusedRecordsError(BrokerError):
    """Some records of a batch are refused, so that none is appended; ``reasons`` are by position in the batch."""

    def __init__(self, code: ErrorCode, reasons: Mapping[int, str]) -> None:
        super().__init__(next(iter(reasons.values())), code=code)
        self.reasons = reasons


@define(eq=False)
class PartitionLog:
    """The log of one partition, with the limits and cleanup policies of its topic."""

    partition: TopicPartition
    storage: LogStorage
    config: TopicConfig
    # Compaction state: the first dirty offset, the number of records that earlier passes kept, and
    # when tombstones may be removed.  Not persisted: after a reopen, the next pass reads the whole log.
    _first_dirty_offset: int = field(default=0, init=False)
    _clean_records: int = field(default=0, init=False)
    _horizons: dict[int, int] = field(factory=dict, init=False)
    _next_expiry_ms: int | None = field(default=None, init=False)
    # The start of the active segment, and when the segment was first seen.
    _unsealed: tuple[int, int] | None = field(default=None, init=False)
    #: The idempotent and transactional producers of this log.
    producers: ProducerLedger = field(init=False)
    # The storage, if it can return encoded batches.
    _encoded: EncodedStorage | None = field(init=False)
    #: The reason why the partition is offline, or None.
    damage: DamagedLogError | None = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.damage = self.storage.error if isinstance(self.storage, DamagedStorage) else None
        self.producers = ProducerLedger(self.partition)
        self._encoded = self.storage if isinstance(self.storage, EncodedStorage) else None

    def check_sound(self) -> None:
        """Check that the partition is not offline because of damaged records.

        Raises:
            DamagedLogError: records of the partition are damaged.
        """
        if self.damage is not None:
            raise self.damage

    def load(self, now_ms: int) -> None:
        """Rebuild the producer state from the records in the storage."""
        for stamped in stamps_of(self.storage) if self.damage is None else ():
            self.producers.appended(stamped, now_ms)

    @property
    def start_offset(self) -> int:
        return self.storage.start_offset

    @property
    def high_watermark(self) -> int:
        """The offset after the last readable record; because there are no replicas, it is the end of the log."""
        return self.storage.end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset after the last record that ``read_committed`` consumers may see."""
        return self.producers.last_stable_offset(self.storage.end_offset)

    def committed(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield the blocks up to the last stable offset, without the records of aborted transactions."""
        stable = self.last_stable_offset
        for block in blocks:
            if block.offsets[0] >= stable:
                return
            if not self.producers.is_aborted(block):
                yield block if block.offsets[-1] < stable else block.slice(0, bisect_left(block.offsets, stable))

    # --- records --------------------------------------------------------------------------

    def append(self, blocks: Sequence[Block], now_ms: int) -> int:
        """Append blocks of records, and return the offset of the first record.

        For a duplicate block from an idempotent producer, the offset of the original is returned.  If the
        storage fails between two blocks, the first block stays; when both are retried, readers
        may see the first block twice.

        Raises:
            RecordTooLargeError: a record exceeds ``max.message.bytes``; nothing is appended.
            BrokerError: the timestamp of a record is outside the limits of the topic (``INVALID_TIMESTAMP``); nothing
                is appended.
            BrokerError: the columns have different lengths, a key is missing in a compacted topic, the producer has
                an invalid sequence number or epoch, or the storage failed (``STORAGE_ERROR``).
        """
        self.check_sound()
        for block in blocks:
            self._check(block)
            if self.config.limits_timestamps:
                self._check_timestamps(block, now_ms)
        base: int | None = None
        for block in blocks:
            at = self.producers.repeated(block)
            if at is None:
                at = self.storage.end_offset
                self._store(block, now_ms)
            base = at if base is None else base
        return self.storage.end_offset if base is None else base

    def _store(self, block: Block, now_ms: int) -> None:
        offset = self.storage.end_offset
        if self.config.timestamp_type == "LogAppendTime":
            if isinstance(block, EncodedBlock):
                block = at_append_time(block, now_ms)
            else:
                block = evolve(block, timestamps=[now_ms] * len(block))
        try:
            self.storage.append(block)
        except BrokerError:
            raise
        except Exception as error:
            # A user-defined storage may raise anything; the producer gets ``STORAGE_ERROR``.
            raise self._storage_error("append to", error, payload_size(block)) from error
        stamped = Stamped.of(block, offset, len(block))
        if stamped is not None:
            self.producers.appended(stamped, now_ms)

    def read(self, offset: int, max_records: int) -> list[Block]:
        """Return up to ``max_records`` records from ``offset`` on, or [] at the end of the log.

        Raises:
            OffsetOutOfRangeError: the offset is below the start or above the end.
            BrokerError: the storage failed, or the stored bytes are damaged.
        """
        self.check_sound()
        if offset == self.storage.end_offset:
            return []
        self._check_offset(offset)
        return self._named(offset, lambda: self.storage.read(offset, max_records))

    def _check_offset(self, offset: int) -> None:
        storage = self.storage
        if not storage.start_offset <= offset <= storage.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.partition} is out of range: "
                f"the log holds {storage.start_offset} to {storage.end_offset - 1}",
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )

    def _named(self, offset: int, read: Callable[[], T]) -> T:
        """Call a function that reads from ``offset`` on, and name the partition in its errors."""
        try:
            return read()
        except CorruptBatchError as error:
            raise CorruptBatchError(f"{self.partition} cannot be read from offset {offset} on: {error}") from error
        except BrokerError:
            raise
        except Exception as error:
            raise self._storage_error("read", error) from error

    def fetch(self, offset: int, max_records: int, now_ms: int) -> list[Block]:
        """Return the records from ``offset`` on that a client may see at the time ``now_ms``.

        Unlike ``read``, this method leaves out expired records; those at the end are replaced by a control record (see
        ``expiry``).
        """
        blocks = self.read(offset, max_records)
        ttl_ms = self.config.record_ttl_ms
        return blocks if ttl_ms is None else expiry.without_expired(blocks, ttl_ms, now_ms)

    def fetch_encoded(
        self, offset: int, max_bytes: int, now_ms: int, isolation_level: int, *, is_first: bool
    ) -> EncodedRun:
        """Return the encoded batches from ``offset`` on that a client may see at the time ``now_ms``.

        With ``READ_COMMITTED``, only batches below the last stable offset are returned.  With ``is_first``, the first
        batch is returned even if it is larger than ``max_bytes``.

        Raises:
            OffsetOutOfRangeError: the offset is below the start or above the end.
            BrokerError: the storage failed, or the stored bytes are damaged.
        """
        self.check_sound()
        self._check_offset(offset)
        end = self.storage.end_offset
        upto = self.producers.last_stable_offset(end) if isolation_level == READ_COMMITTED else end
        if offset >= upto or (max_bytes <= 0 and not is_first):
            return EncodedRun([], 0, offset)
        if self._encoded is None or self.config.record_ttl_ms is not None:
            blocks = encoded_blocks(self.fetch(offset, _ENCODED_READ_RECORDS, now_ms))
            return run_of(blocks, offset, max_bytes, upto, is_first=is_first)
        read = self._encoded.read_encoded
        return self._named(offset, lambda: read(offset, max_bytes, upto, is_first=is_first))

    def offset_for(self, timestamp_ms: int, isolation_level: int = READ_UNCOMMITTED) -> tuple[int, int]:
        """Return (timestamp, offset) of the first record at or after a timestamp; (-1, -1) if there is none.

        The special timestamps are those of ``ListOffsets`` in Kafka's protocol guide: -2 is the start of the log, -1
        the end, -3 the first record with the highest timestamp (KIP-734), -4 the local start (KIP-405), which is the
        start here, and -5 the end of tiered records, of which there are none (KIP-1005).
        """
        if timestamp_ms == LATEST_TIERED_TIMESTAMP:
            return -1, -1
        if timestamp_ms == MAX_TIMESTAMP:
            timestamp_ms = max((extent.max_timestamp for extent in self.storage.extents()), default=-1)
            if timestamp_ms < 0:
                return -1, -1
        if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            return -1, self.start_offset
        if timestamp_ms == LATEST_TIMESTAMP:
            return -1, self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark
        if timestamp_ms < 0:
            raise BrokerError(
                f"timestamp {timestamp_ms} for the offsets of {self.partition}: use a time in epoch milliseconds, "
                "-2 for the start or -1 for the end",
                code=ErrorCode.INVALID_REQUEST,
            )
        place = self.storage.offset_for_timestamp(timestamp_ms)
        return (-1, -1) if place is None else (place[1], place[0])

    def delete_records(self, offset: int) -> int:
        """Raise the start offset to ``offset`` (-1 = the end) and return the new start offset.

        Raises:
            OffsetOutOfRangeError: the offset is above the end.
        """
        end = self.high_watermark
        if offset == -1:
            offset = end
        if not 0 <= offset <= end:
            raise OffsetOutOfRangeError(
                f"records of {self.partition} cannot be deleted up to {offset}: the log ends at {end}",
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        self.storage.truncate_before(offset)
        return self.start_offset

    def _storage_error(self, action: str, error: Exception, needed: int | None = None) -> BrokerError:
        return storage_error(action, self.partition, error, getattr(self.storage, "directory", None), needed)

    def _check_batch(self, block: EncodedBlock) -> None:
        """Validate an encoded batch before it is appended.

        An unreadable record would stop every reader of the partition.
        """
        config = self.config
        if block.header.size > config.max_message_bytes:
            raise RecordTooLargeError(
                f"record batch of {block.header.size} bytes for {self.partition}: its topic takes up to "
                f"{config.max_message_bytes} (max.message.bytes); nothing of it was appended",
                code=ErrorCode.MESSAGE_TOO_LARGE,
            )
        is_looked_at = config.is_compacted or config.record_ttl_ms is not None or config.limits_timestamps
        try:
            block.check_inside(max(LOOKED_INTO_BYTES, config.max_message_bytes), decodes=is_looked_at)
        except InvalidBatchError as error:
            raise InvalidBatchError(
                f"record batch for {self.partition}: {error}; nothing of it was appended"
            ) from error
        if config.is_compacted and None in block.keys:
            raise self._keyless_error(block.keys)
        if config.record_ttl_ms is not None and block.headers is not None:
            expiry.check_ttl(block, self.partition)

    def _check_timestamps(self, block: Block, now_ms: int) -> None:
        """Check that timestamps are within the limits of the topic; as in Kafka, a record without one is accepted."""
        if block.producer is not None and block.producer.is_control:
            return
        before_ms = self.config.timestamp_before_max_ms
        after_ms = self.config.timestamp_after_max_ms
        reasons: dict[int, str] = {}
        for index, timestamp_ms in enumerate(block.timestamps):
            age_ms = now_ms - timestamp_ms
            if timestamp_ms != NO_TIMESTAMP and not -after_ms <= age_ms <= before_ms:
                side, most_ms = ("before", before_ms) if age_ms > 0 else ("after", after_ms)
                reasons[index] = (
                    f"record for {self.partition}: its timestamp {timestamp_ms} is {abs(age_ms)} ms {side} the "
                    f"broker's time; its topic takes up to {most_ms} (message.timestamp.{side}.max.ms); nothing of the "
                    "block was appended"
                )
        if reasons:
            raise RefusedRecordsError(ErrorCode.INVALID_TIMESTAMP, reasons)

    def _keyless_error(self, keys: Sequence[bytes | None]) -> RefusedRecordsError:
        message = f"record without a key for {self.partition}: its topic is compacted (cleanup.policy) and needs keys"
        return RefusedRecordsError(
            ErrorCode.INVALID_RECORD, {index: message for index, key in enumerate(keys) if key is None}
        )

    def _check(self, block: Block) -> None:
        if isinstance(block, EncodedBlock):
            self._check_batch(block)
            return
        keys, values, headers = block.keys, block.values, block.headers
        count = len(values)
        if len(keys) != count or len(block.timestamps) != count or (headers is not None and len(headers) != count):
            raise BrokerError(
                f"block for {self.partition}: {len(keys)} keys, {count} values and {len(block.timestamps)} timestamps; "
                "columns must be equally long",
                code=ErrorCode.INVALID_RECORD,
            )
        if self.config.is_compacted and None in keys:
            raise self._keyless_error(keys)
        if headers is not None and self.config.record_ttl_ms is not None:
            expiry.check_ttl(block, self.partition)
        limit = self.config.max_message_bytes
        # Check an upper bound first: usually two passes at C speed are enough.
        if headers is None and longest_in(keys) + longest_in(values) + _FRAME_BYTES <= limit:
            return
        for index, (key, value) in enumerate(zip(keys, values, strict=True)):
            size = batch_size(key, value, () if headers is None else headers[index])
            if size > limit:
                raise RecordTooLargeError(
                    f"record of {size} bytes for {self.partition}: its topic takes up to {limit} (max.message.bytes); "
                    "nothing of the block was appended",
                    code=ErrorCode.MESSAGE_TOO_LARGE,
                )

    # --- retention and compaction -----------------------------------------------------------

    def apply_retention(self, now_ms: int) -> int:
        """Drop the oldest extents beyond ``retention.ms`` and ``retention.bytes``; return the count of dropped offsets.

        As in Kafka, an extent expires when its latest record is too old, so an old
        record after a newer one is kept.  Records without a timestamp never expire.
        """
        config = self.config
        start = self.start_offset
        self.producers.expire(now_ms - _PRODUCER_EXPIRATION_MS)
        self.producers.truncated(start)
        if config.is_deleted and config.record_ttl_ms is not None:
            self._drop_expired(config.record_ttl_ms, now_ms)
        if not config.is_deleted or (config.retention_ms < 0 and config.retention_bytes < 0):
            return self.start_offset - start
        extents = self.storage.extents()
        excess = sum(extent.size_bytes for extent in extents) - config.retention_bytes
        cut = self.start_offset
        for extent in extents:
            is_old = config.retention_ms >= 0 and 0 <= extent.max_timestamp < now_ms - config.retention_ms
            is_excess = config.retention_bytes >= 0 and extent.size_bytes <= excess
            if not (is_old or is_excess):
                break
            excess -= extent.size_bytes
            cut = extent.end_offset
        if cut > self.start_offset:
            self.storage.truncate_before(cut)
        return self.start_offset - start

    def _drop_expired(self, ttl_ms: int, now_ms: int) -> None:
        """Raise the start offset to the first record whose time to live has not expired."""
        for block in _blocks_between(self.storage, self.start_offset, self.high_watermark):
            live = expiry.live(block, ttl_ms, now_ms)
            if live is not None:
                self.storage.truncate_before(live.offsets[0])
                return
            self.storage.truncate_before(block.offsets[-1] + 1)

    def seal(self, now_ms: int) -> None:
        """Seal the active segment of a compacted topic once ``segment.ms`` has passed, or if it is large or overdue.

        As in Kafka, appends start a new segment based on record timestamps.  This method uses the broker time since the
        segment was first seen, so that a log without further appends is compacted too.
        """
        storage = self.storage
        if not self.config.is_compacted or not isinstance(storage, SealableStorage):
            return
        sealed_offset = storage.sealed_offset
        if self._unsealed is None or self._unsealed[0] != sealed_offset:
            self._unsealed = sealed_offset, now_ms
        is_due = now_ms - self._unsealed[1] >= self.config.segment_ms or self._is_overdue(sealed_offset, now_ms)
        storage.seal(is_due=is_due)

    def compact(self, now_ms: int) -> bool:
        """Keep the latest record per key if ``cleanup.policy`` and ``min.cleanable.dirty.ratio`` require it.

        Dirty records that are older than ``max.compaction.lag.ms`` require it whatever the ratio is (KIP-354).
        Returns whether a compaction pass was run.  Storages that cannot be compacted are skipped.
        """
        return whole(self.compaction(now_ms))

    def compaction(self, now_ms: int) -> Steps[bool]:
        """Compact like ``compact``, but in steps; the log may be read and written between steps."""
        storage = self.storage
        if not self.config.is_compacted or not isinstance(storage, CompactableStorage):
            return False
        first_dirty = max(self._first_dirty_offset, self.start_offset)
        # Records of an open transaction must not replace committed ones.
        upto = min(self._compactable_end(storage, now_ms), self.last_stable_offset)
        dirty = upto - first_dirty
        last_offset = self.high_watermark - 1
        has_old_tombstones = any(due_ms <= now_ms for at, due_ms in self._horizons.items() if at != last_offset)
        ratio = dirty / (dirty + self._clean_records) if dirty > 0 else 0.0
        has_expired = self._next_expiry_ms is not None and self._next_expiry_ms <= now_ms
        is_dirty = dirty > 0 and (
            ratio >= self.config.min_cleanable_dirty_ratio or self._is_overdue(first_dirty, now_ms)
        )
        if not (has_old_tombstones or has_expired or is_dirty):
            return False
        cleaner = Cleaner(
            now_ms,
            self.config.delete_retention_ms,
            last_offset,
            self.producers.last_offsets(),
            self._horizons,
            self.config.record_ttl_ms,
            self.producers.is_aborted,
        )
        for portion in portions(_blocks_between(storage, first_dirty, upto)):
            cleaner.learn(portion)
            yield records_in(portion)
        if isinstance(storage, GradualStorage):
            self._clean_records = yield from storage.compaction(upto, cleaner.keep)
        else:
            self._clean_records = storage.compact(upto, cleaner.keep)
        self._horizons = cleaner.kept_horizons
        self._next_expiry_ms = cleaner.next_expiry_ms
        self._first_dirty_offset = max(upto, first_dirty)
        return True

    def _is_overdue(self, offset: int, now_ms: int) -> bool:
        """Whether the first record from ``offset`` on is older than ``max.compaction.lag.ms``, by its timestamp."""
        if not self.config.limits_compaction_lag or offset >= self.high_watermark:
            return False
        first = next(iter(self.storage.read(offset, 1)), None)
        return first is not None and 0 <= first.timestamps[0] < now_ms - self.config.max_compaction_lag_ms

    def _compactable_end(self, storage: CompactableStorage, now_ms: int) -> int:
        end = storage.sealed_offset
        if self.config.min_compaction_lag_ms > 0:
            youngest = now_ms - self.config.min_compaction_lag_ms
            fresh = (extent.base_offset for extent in storage.extents() if extent.max_timestamp > youngest)
            end = min(end, next(fresh, end))
        return end


def _blocks_between(storage: LogStorage, offset: int, upto: int) -> Iterator[Block]:
    """Yield blocks with the records from ``offset`` up to, but not including, ``upto``."""
    while offset < upto:
        # The start offset may have been raised between two steps.
        offset = max(offset, storage.start_offset)
        blocks = storage.read(offset, _COMPACTION_READ_RECORDS)
        if not blocks:
            return
        for block in blocks:
            if block.offsets[0] >= upto:
                return
            if block.offsets[-1] >= upto:
                yield block.slice(0, bisect_left(block.offsets, upto))
            else:
                yield block
        offset = blocks[-1].offsets[-1] + 1
