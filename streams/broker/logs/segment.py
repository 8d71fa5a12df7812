"""One segment file of a log: consecutive record batches, with a sparse index.

The file contains only batches in Kafka's format; the sparse index of offsets and
timestamps is kept in memory and rebuilt on open.
"""

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct

from attrs import define, field, frozen

from streams.broker.logs.batches import EncodedRun
from streams.broker.logs.files import OpenFiles, write_at
from streams.broker.logs.storage import Stamped
from streams.core.blocks.records import NO_TIMESTAMP, Block
from streams.protocol import batch
from streams.protocol.batch import BatchHeader, CorruptBatchError, IncompleteBatchError
from streams.protocol.markers import is_commit_marker

#: Number of bytes between two index entries.
INDEX_INTERVAL = 16_384
#: Number of bytes per read.
WINDOW = 1 << 20
# Base offset, length, attributes, last offset delta and producer of a batch: enough to find the next batch.
_SPAN = Struct(">qi9xhi16xq")


@frozen
class Damage:
    """Damaged bytes in a segment file, from ``position`` to ``length``, where a batch with ``offset`` is expected."""

    path: Path
    position: int
    length: int
    offset: int
    reason: str


@define(eq=False)
class Segment:
    """A segment file of record batches; as in Kafka, its name is the base offset."""

    path: Path
    base_offset: int
    files: OpenFiles
    size: int = field(default=0, init=False)
    next_offset: int = field(init=False)
    max_timestamp: int = field(default=NO_TIMESTAMP, init=False)
    #: Maximum timestamp of the first batch; ``segment.ms`` counts from it.
    first_timestamp: int = field(default=NO_TIMESTAMP, init=False)
    # The index: offset and position of a batch, and the maximum timestamp before that batch.
    _offsets: list[int] = field(factory=list, init=False)
    _positions: list[int] = field(factory=list, init=False)
    _times_before: list[int] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.next_offset = self.base_offset

    @staticmethod
    def path_of(directory: Path, base_offset: int) -> Path:
        """Return the path of the segment file with this base offset, named as in Kafka."""
        return directory / f"{base_offset:020d}.log"

    @classmethod
    def open(cls, path: Path, files: OpenFiles) -> tuple["Segment", "Damage | None"]:
        """Scan a segment file; return a segment with its valid part, and the damage after that part, if there is any.

        Batch offsets are consecutive: compaction leaves no gaps between batches.
        """
        segment = cls(path, int(path.stem), files)
        length = os.fstat(files.get(path)).st_size
        reason = "the last batch is incomplete"
        try:
            for header, data in segment._scan(0, length):
                if header.base_offset != segment.next_offset:
                    raise CorruptBatchError(f"a batch with offset {header.base_offset}")
                batch.check(data, 0, header)
                segment.note(header)
        except IncompleteBatchError:
            pass
        except CorruptBatchError as error:
            # The caller adds the position.
            reason = re.sub(r"^record batch at byte \d+( \(offset \d+\))?: ", "", str(error))
        if segment.size == length:
            return segment, None
        return segment, Damage(path, segment.size, length, segment.next_offset, reason)

    def note(self, header: BatchHeader) -> None:
        """Add a batch to the index, and update the end offset; the batch must be the next one in the file."""
        if not self._positions or self.size - self._positions[-1] >= INDEX_INTERVAL:
            self._offsets.append(header.base_offset)
            self._positions.append(self.size)
            self._times_before.append(self.max_timestamp)
        if not self.size:
            self.first_timestamp = header.max_timestamp
        self.size += header.size
        self.next_offset = header.next_offset
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp

    def append(self, data: bytes, headers: Iterable[BatchHeader]) -> None:
        """Append whole batches, given their bytes and headers; if an error is raised, no batch is stored."""
        descriptor = self.files.get(self.path)
        try:
            write_at(descriptor, data, self.size)
        except OSError:
            os.ftruncate(descriptor, self.size)
            raise
        for header in headers:
            self.note(header)

    def sync(self) -> None:
        """Sync the file to disk, which makes the appended batches durable."""
        self.files.sync(self.path)

    def blocks(self, offset: int = 0, end: int = -1) -> Iterator[Block]:
        """Yield decoded batches from the one that contains ``offset`` on, without empty batches.

        An empty batch that ends the log at ``end`` is included, because readers need it to reach the end.
        """
        index = max(bisect_right(self._offsets, offset) - 1, 0)
        start = self._positions[index] if self._positions else 0
        for header, data in self._scan(start, self.size):
            if header.next_offset > offset and (not header.is_gap or header.next_offset == end):
                yield self._decoded(data, header)

    def read_encoded(self, offset: int, max_bytes: int, upto: int, *, is_first: bool) -> EncodedRun:
        """Return the bytes of whole record batches; see ``EncodedStorage.read_encoded``."""
        index = max(bisect_right(self._offsets, offset) - 1, 0)
        place = self._positions[index] if self._positions else 0
        window = self._bytes(place, min(INDEX_INTERVAL + max(0, min(max_bytes, WINDOW)), self.size - place))
        chunks: list[bytes] = []
        size = start = at = 0
        next_offset = offset
        while at + _SPAN.size <= len(window):
            base, length, attributes, delta, producer_id = _SPAN.unpack_from(window, at)
            if length < batch.HEADER_SIZE - batch.LENGTH_PREFIX or base < self.base_offset:
                raise CorruptBatchError(f"log segment {self.path}: no batch at byte {place + at}")
            end = at + batch.LENGTH_PREFIX + length
            if base >= upto:
                break
            # Some clients take each record of a batch for one of the application: they get no gaps, as from Kafka.
            is_passed = batch.is_gap(attributes, producer_id) and base + delta + 1 < upto
            if is_passed or base + delta < offset:
                if start < at:
                    chunks.append(window[start:at])
                    size += at - start
                start = at = end
                next_offset = max(offset, base + delta + 1)
                continue
            is_alone = not chunks and start == at
            if size + end - start > max_bytes and not (is_alone and is_first):
                break
            if end > len(window):
                if is_alone:
                    window = self._bytes(place + at, end - at)
                    start, at = 0, end - at
                    next_offset = base + delta + 1
                break
            at = end
            next_offset = base + delta + 1
        else:
            if not chunks and start == at and next_offset > offset and place + at < self.size:
                return self.read_encoded(next_offset, max_bytes, upto, is_first=is_first)
        if start < at:
            chunks.append(window[start:at])
            size += at - start
        if sum(map(len, chunks)) < size:
            raise CorruptBatchError(f"log segment {self.path}: shorter than its {self.size} bytes; was it changed?")
        return EncodedRun(chunks, size, next_offset if chunks else offset)

    def stamped(self) -> Iterator[Stamped]:
        """Yield the producer ID, epoch and sequence of each batch; only transaction markers are decoded."""
        for header, data in self._scan(0, self.size):
            if header.producer_id >= 0 and header.record_count:
                is_commit = header.is_control and is_commit_marker(self._decoded(data, header))
                yield Stamped(header.stamp, header.base_offset, header.last_offset_delta + 1, is_commit)

    def first_at(self, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after the given timestamp and offset."""
        if self.max_timestamp < timestamp_ms:
            return None
        index = max(bisect_left(self._times_before, timestamp_ms) - 1, 0)
        for header, data in self._scan(self._positions[index], self.size):
            if header.max_timestamp < timestamp_ms or header.next_offset <= start_offset:
                continue
            block = self._decoded(data, header)
            for offset, timestamp in zip(block.offsets, block.timestamps, strict=True):
                if timestamp >= timestamp_ms and offset >= start_offset:
                    return offset, timestamp
        return None

    def remove(self) -> None:
        """Delete the segment file."""
        self.files.drop(self.path)
        self.path.unlink(missing_ok=True)

    def _decoded(self, data: bytes, header: BatchHeader) -> Block:
        try:
            return batch.decode(data, 0, header)
        except CorruptBatchError as error:
            raise CorruptBatchError(f"log segment {self.path}: {error}") from error

    def _scan(self, position: int, end: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield the header and bytes of each whole batch between two positions; the file is read in large pieces."""
        window = b""
        base = position
        while end - position >= batch.HEADER_SIZE:
            if position - base + batch.HEADER_SIZE > len(window):
                window = self._bytes(position, min(WINDOW, end - position))
                base = position
            header = batch.read_header(window, position - base)
            if position + header.size > end:
                return
            if position - base + header.size > len(window):
                size = min(max(WINDOW, header.size), end - position)
                window = self._bytes(position, size)
                base = position
            first = position - base
            data = window[first : first + header.size]
            if len(data) < header.size:
                raise CorruptBatchError(f"log segment {self.path}: shorter than its {self.size} bytes; was it changed?")
            yield header, data
            position += header.size

    def _bytes(self, position: int, count: int) -> bytes:
        return os.pread(self.files.get(self.path), count, position)
