"""On-disk log storage: segment files of record batches, with the newest batches cached in memory.

Appended bytes reach the operating system before ``append`` returns, so that a killed
process loses nothing; the fsync policy decides when they also survive a power failure.  The recovery point, in a
file of its own, says up to where the log is whole: with ``commit`` up to the last sync, else up to the last append.
So a log that has lost its end is told from a batch that a killed process did not finish.  Reads near the end of the
log are served from memory without decoding.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from attrs import define, field

from streams.broker.logs.array import joined, numbered
from streams.broker.logs.batches import EncodedRun, empty_batches, pieces, run_of
from streams.broker.logs.cache import CacheBudget, RecentBatches
from streams.broker.logs.checkpoint import overwrite_checkpoint, write_checkpoint
from streams.broker.logs.files import DIRECTORY_MODE, OpenFiles
from streams.broker.logs.folders import remove_partition
from streams.broker.logs.limits import PARTITION_CACHE_BYTES
from streams.broker.logs.recovery import RECOVERY_FILE, START_FILE, damaged, recovered
from streams.broker.logs.segment import Segment
from streams.broker.logs.steps import Keep, Steps, portions, records_in, whole
from streams.broker.logs.storage import LogExtent, Stamped, StorageContext, StorageFactory
from streams.core.blocks.chunking import chunks_by_size
from streams.core.blocks.records import Block
from streams.core.errors import ConfigError
from streams.core.folders import sync_to_disk
from streams.core.settings.config import FsyncPolicy
from streams.protocol import batch
from streams.protocol.batch import BatchHeader
from streams.protocol.compression import codec_number
from streams.protocol.wire import EncodedBlock

_DEFAULT_SEGMENT_BYTES = 1 << 30
_DEFAULT_SEGMENT_MS = 604_800_000
#: Size in bytes from which the active segment is sealed for compaction.
_SEAL_BYTES = 16 << 20
# Maximum number of offsets in one batch.
_MOST_OFFSETS = 2**31 - 1


@define(eq=False)
class FileStorage:
    """The storage of one partition, which keeps records in segment files in one directory.

    A new segment starts at ``segment_bytes``, or when records are ``segment_ms`` newer than the first batch of the
    segment.  ``compression`` is the codec for all batches; "producer" keeps the codec of each block.  ``cache_bytes``
    limits the share of ``budget`` that this partition uses for its newest batches.  ``is_known`` means that the
    partition already existed, so its folder must exist.

    Raises:
        DamagedLogError: records of the log are damaged or missing; nothing is changed.
    """

    directory: Path
    segment_bytes: int = _DEFAULT_SEGMENT_BYTES
    fsync: FsyncPolicy = "never"
    files: OpenFiles = field(factory=OpenFiles)
    cache_bytes: int = PARTITION_CACHE_BYTES
    budget: CacheBudget = field(factory=CacheBudget)
    compression: str = "producer"
    is_known: bool = False
    segment_ms: int = _DEFAULT_SEGMENT_MS
    start_offset: int = field(default=0, init=False)
    end_offset: int = field(default=0, init=False)
    _segments: list[Segment] = field(factory=list, init=False)
    _bases: list[int] = field(factory=list, init=False)
    _unsynced: set[Path] = field(factory=set, init=False)
    _cache: RecentBatches = field(init=False)
    _recovery_path: Path = field(init=False)
    # The stored recovery point; -1 = unknown.
    _noted_end: int = field(default=-1, init=False)

    def __attrs_post_init__(self) -> None:
        if self.fsync not in ("never", "commit", "always"):
            raise ConfigError(f"fsync {self.fsync!r}: choose 'never', 'commit' or 'always'")
        if self.compression != "producer":
            codec_number(self.compression)
        if self.is_known and not self.directory.is_dir():
            raise damaged(self.directory, "the folder is missing", self.directory)
        self.directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        self._recovery_path = self.directory / RECOVERY_FILE
        self._open()

    # --- operations of a storage ----------------------------------------------------------

    def append(self, block: Block) -> int:
        """Write a block of records to the active segment; see ``LogStorage.append``."""
        base = self.end_offset
        count = len(block)
        if not count:
            return base
        # The offsets in the block are ignored: the log assigns consecutive ones.
        block = numbered(block, base)
        headers: Sequence[BatchHeader]
        if isinstance(block, EncodedBlock) and self.compression not in ("producer", block.compression):
            block = block.slice(0)
        if isinstance(block, EncodedBlock):
            data = block.data
            headers = (block.header,)
        else:
            data = self._encoded(block, base)
            headers = [header for _, header in batch.headers(data)]
        active = self._segments[-1]
        if active.size and (active.size + len(data) > self.segment_bytes or self._exceeds_segment_ms(active, headers)):
            active = self._roll()
        active.append(data, headers)
        try:
            if self.fsync == "always":
                active.sync()
            elif self.fsync == "commit":
                self._unsynced.add(active.path)
            if self.fsync != "commit":
                self._note_end(base + count)
        except OSError:
            self._reopen_active()
            raise
        self.end_offset = base + count
        self._cache.append(block, len(data))
        return base

    def read(self, offset: int, max_records: int) -> list[Block]:
        """Return records from ``offset`` on; recent records are read from memory.

        Raises:
            CorruptBatchError: the bytes on disk are damaged.
        """
        position = max(offset, self.start_offset)
        if position >= self._cache.start_offset:
            return self._cache.read(position, max_records)
        result: list[Block] = []
        for block in self._blocks_from(position):
            if max_records <= 0:
                break
            first = _first_not_below(block, position)
            if first or len(block) - first > max_records:
                block = block.slice(first, first + max_records)
            if len(block):
                result.append(block)
                max_records -= len(block)
        # Merge small batches, so that the reader gets few large blocks.
        return list(joined(result)) if len(result) > 1 else result

    def read_encoded(self, offset: int, max_bytes: int, upto: int, *, is_first: bool) -> EncodedRun:
        """Return whole record batches from memory or a file; see ``EncodedStorage.read_encoded``."""
        position = max(offset, self.start_offset)
        if position >= self._cache.start_offset:
            run = run_of(self._cache.batches(position), position, max_bytes, upto, is_first=is_first)
            if run.chunks:
                return run
        run = EncodedRun([], 0, position)
        for index in range(max(bisect_right(self._bases, position) - 1, 0), len(self._segments)):
            run = self._segments[index].read_encoded(position, max_bytes, upto, is_first=is_first)
            if run.chunks:
                break
        return run

    def stamped(self) -> Iterator[Stamped]:
        """Yield the producer ID, epoch and sequence of each batch, read from the batch headers."""
        for segment in self._segments:
            yield from segment.stamped()

    def truncate_before(self, offset: int) -> None:
        """Raise the start offset, store it, and delete the segment files that are entirely below it."""
        if offset <= self.start_offset:
            return
        # Store the new start first: after a crash the files below it are deleted later.
        start_path = self.directory / START_FILE
        # A power failure must not leave a new file empty: the log would be offline.
        write_checkpoint(start_path, offset, is_durable=self.fsync != "never" or not start_path.exists())
        is_beyond = offset > self.end_offset
        self.start_offset = offset
        self.end_offset = max(offset, self.end_offset)
        if is_beyond or (offset == self.end_offset and self._segments[-1].size):
            self._roll()
        self._delete_below(offset)
        self._cache.truncate_before(offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after a timestamp, or None.

        The record is found with the time indexes of the segments.
        """
        for segment in self._segments:
            place = segment.first_at(timestamp_ms, self.start_offset)
            if place is not None:
                return place
        return None

    def extents(self) -> Sequence[LogExtent]:
        """Return one extent for each segment file that is not empty."""
        ends = [*self._bases[1:], self.end_offset]
        return [
            LogExtent(segment.base_offset, end, segment.size, segment.max_timestamp)
            for segment, end in zip(self._segments, ends, strict=True)
            if segment.size
        ]

    def configure(self, config: Mapping[str, str]) -> None:
        """Apply ``segment.bytes``, ``segment.ms`` and ``compression.type`` to later appends."""
        size = config.get("segment.bytes", _DEFAULT_SEGMENT_BYTES)
        self.segment_bytes = int(config.get("internal.segment.bytes", size))
        self.segment_ms = int(config.get("segment.ms", _DEFAULT_SEGMENT_MS))
        self.compression = config.get("compression.type", "producer")

    def flush(self) -> None:
        """With the fsync policy "commit", sync the appends since the last flush to disk."""
        if not self._unsynced:
            return
        for path in sorted(self._unsynced):
            if path.exists():
                self.files.sync(path)
        self._unsynced.clear()
        self._note_end(self.end_offset)

    def close(self) -> None:
        """Flush and close the files, and store the recovery point."""
        self.flush()
        if self._noted_end != self.end_offset:
            write_checkpoint(self._recovery_path, self.end_offset, is_durable=self.fsync != "never")
            self._noted_end = self.end_offset
        for segment in self._segments:
            self.files.drop(segment.path)
        self.files.drop(self._recovery_path)
        self._cache.clear()

    def delete(self) -> None:
        """Close the log and delete its directory."""
        self._unsynced.clear()
        self._noted_end = self.end_offset
        self.close()
        remove_partition(self.directory)

    # --- compaction -----------------------------------------------------------------------

    @property
    def sealed_offset(self) -> int:
        """The start offset of the active segment, which is not compacted."""
        return self._segments[-1].base_offset

    def seal(self, *, is_due: bool) -> None:
        size = self._segments[-1].size
        if size and (is_due or size >= _SEAL_BYTES):
            self._roll()

    def compact(self, upto: int, keep: Keep) -> int:
        """Compact the segments that are entirely below ``upto``; adjacent small segments are merged into one file."""
        return whole(self.compaction(upto, keep))

    def compaction(self, upto: int, keep: Keep) -> Steps[int]:
        """Compact like ``compact``, but in steps; readers see each file as soon as it is finished."""
        left = 0
        sealed_offset = self.sealed_offset
        sealed = [segment for segment, end in zip(self._segments, self._bases[1:], strict=False) if end <= upto]
        for group in chunks_by_size(sealed, attrgetter("size"), self.segment_bytes):
            left += yield from self._rewrite(group, keep)
        self._cache.truncate_before(sealed_offset)
        return left

    def _rewrite(self, group: list[Segment], keep: Keep) -> Steps[int]:
        first = group[0]
        if any(segment not in self._segments for segment in group):
            return 0
        cleaned = first.path.with_suffix(".cleaned")
        self.files.drop(cleaned)
        cleaned.unlink(missing_ok=True)
        result = Segment(cleaned, first.base_offset, self.files)
        self.files.get(cleaned)
        try:
            count = yield from self._clean(group, result, keep)
        except BaseException:
            result.remove()
            raise
        if count < 0:
            # Segments were deleted during the compaction: the next pass compacts the rest.
            result.remove()
            return 0
        # The result replaces durable files, so it must be durable before they are deleted.
        result.sync()
        # One rename replaces the first file with the result.  The others are deleted in
        # ascending order: files left by a crash are newer than deleted ones, so a
        # tombstone is never removed before the value it deletes.
        for segment in group:
            self.files.drop(segment.path)
        self.files.drop(cleaned)
        os.replace(cleaned, first.path)
        result.path = first.path
        index = self._segments.index(first)
        self._segments[index : index + len(group)] = [result]
        self._bases = [segment.base_offset for segment in self._segments]
        for segment in group[1:]:
            segment.remove()
        sync_to_disk(self.directory)
        return count

    def _clean(self, group: list[Segment], result: Segment, keep: Keep) -> Steps[int]:
        """Write the records of a segment group that ``keep`` keeps to ``result``, and return their number.

        The result is -1 if a segment was deleted meanwhile.  The written batches cover all offsets of the group, so
        that a missing batch is detected.
        """
        end = self._bases[self._segments.index(group[-1]) + 1]
        held: Block | None = None
        count = 0
        for portion in portions(block for segment in group for block in segment.blocks()):
            compacted = (keep(block) for block in portion)
            for block in joined(block for block in compacted if block is not None and len(block)):
                if held is not None:
                    self._write(result, held, block.offsets[0])
                held = block
                count += len(block)
            yield records_in(portion)
            if any(segment not in self._segments for segment in group):
                return -1
        self._write(result, held, end)
        return count

    def _write(self, result: Segment, block: Block | None, upto: int) -> None:
        """Write a block of records, if given, and empty batches for the removed records up to the offset ``upto``."""
        first = upto if block is None else block.offsets[0]
        if first > result.next_offset:
            _append(result, empty_batches(result.next_offset, first))
        if block is not None:
            # Sequences follow offsets: a batch with sequences must not cover additional offsets.
            is_counted = block.producer is not None and block.producer.sequence >= 0
            next_offset = block.offsets[-1] + 1 if is_counted or upto - first > _MOST_OFFSETS else upto
            _append(result, self._encoded(block, first, next_offset))
            if upto > next_offset:
                _append(result, empty_batches(next_offset, upto))

    # --- internal -------------------------------------------------------------------------

    def _open(self) -> None:
        state = recovered(self.directory, self.files, is_known=self.is_known)
        if state is None:
            self._roll()
        else:
            self._segments, self.start_offset, self.end_offset = state
            self._bases = [segment.base_offset for segment in self._segments]
            if self._segments[-1].next_offset < self.end_offset:
                # The log start offset is above the last record, as after a power failure: continue at the start offset.
                self._roll()
            self._delete_below(self.start_offset)
        self._cache = RecentBatches(self.budget, self.end_offset, self.cache_bytes)

    def _roll(self) -> Segment:
        if self.fsync != "never" and self._segments:
            # A sealed segment must survive a power failure.
            self._segments[-1].sync()
            self._unsynced.discard(self._segments[-1].path)
            write_checkpoint(self._recovery_path, self.end_offset, is_durable=True)
            self._noted_end = self.end_offset
        segment = Segment(Segment.path_of(self.directory, self.end_offset), self.end_offset, self.files)
        self.files.get(segment.path)
        if self.fsync != "never":
            sync_to_disk(self.directory)
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        return segment

    def _note_end(self, offset: int) -> None:
        """Store the recovery point, which a killed process leaves behind."""
        overwrite_checkpoint(self.files.get(self._recovery_path), offset)
        self._noted_end = offset

    def _reopen_active(self) -> None:
        """Remove the batches whose fsync failed from the active segment.

        The write was not acknowledged, so its records must not be read.
        """
        active = self._segments[-1]
        os.ftruncate(self.files.get(active.path), self._cut_position(active))
        self._segments[-1], damage = Segment.open(active.path, self.files)
        if damage is not None:
            raise damaged(self.directory, damage.reason, active.path, position=damage.position, offset=damage.offset)

    def _cut_position(self, segment: Segment) -> int:
        data = os.pread(self.files.get(segment.path), segment.size, 0)
        unread = (position for position, header in batch.headers(data) if header.base_offset >= self.end_offset)
        return next(unread, segment.size)

    def _delete_below(self, offset: int) -> None:
        count = max(bisect_right(self._bases, offset) - 1, 0)
        for segment in self._segments[:count]:
            self._unsynced.discard(segment.path)
            segment.remove()
        del self._segments[:count], self._bases[:count]

    def _blocks_from(self, offset: int) -> Iterator[Block]:
        first = max(bisect_right(self._bases, offset) - 1, 0)
        for segment in self._segments[first:]:
            yield from segment.blocks(offset, self.end_offset)
            if segment is not self._segments[-1]:
                self.files.drop(segment.path)

    def _encoded(self, block: Block, base_offset: int, next_offset: int | None = None) -> bytes:
        """Return a block as encoded batches; with ``next_offset``, the batches cover all offsets below it."""
        codec = codec_number(block.compression if self.compression == "producer" else self.compression)
        parts = pieces(block)
        if next_offset is None:
            start = base_offset - block.offsets[0]
            return b"".join(batch.encode(piece, start + piece.offsets[0], attributes=codec) for piece in parts)
        bases = [piece.offsets[0] for piece in parts]
        return b"".join(
            batch.encode(piece, base, attributes=codec, next_offset=end)
            for piece, base, end in zip(parts, bases, [*bases[1:], next_offset], strict=True)
        )

    def _exceeds_segment_ms(self, active: Segment, headers: Sequence[BatchHeader]) -> bool:
        """Whether batches are more than ``segment_ms`` newer than the first batch of a segment, as in Kafka."""
        if active.first_timestamp < 0:
            return False
        return max(header.max_timestamp for header in headers) - active.first_timestamp > self.segment_ms


def _append(segment: Segment, data: bytes) -> None:
    segment.append(data, [header for _, header in batch.headers(data)])


def _first_not_below(block: Block, offset: int) -> int:
    if block.offsets[0] >= offset:
        return 0
    return next((index for index, candidate in enumerate(block.offsets) if candidate >= offset), len(block))


def file_storage(data_dir: Path, fsync: FsyncPolicy = "never") -> StorageFactory:
    """Return a storage factory that stores each partition in ``data_dir/<topic>-<partition>``."""
    files = OpenFiles()
    budget = CacheBudget()

    def make(context: StorageContext) -> FileStorage:
        directory = data_dir / str(context.partition)
        storage = FileStorage(directory, fsync=fsync, files=files, budget=budget, is_known=context.is_known)
        storage.configure(context.config)
        return storage

    return make
