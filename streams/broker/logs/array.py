"""In-memory log storage that keeps the appended blocks of records.

Large blocks are kept without a copy.  Small ones are merged into one growing chunk, so that a
million single-record appends stay fast and a reader gets few large blocks.  Batches that arrive
encoded stay encoded, one block each; other blocks are encoded when they are first sent to another process.
Sizes and timestamps are computed on first use.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from attrs import define, field

from streams.broker.logs.batches import EncodedRun, encoded_blocks, is_gapless, pieces, run_of
from streams.broker.logs.steps import Keep, Steps, portions, records_in, whole
from streams.broker.logs.storage import RECORD_OVERHEAD, LogExtent, StorageContext, continues, payload_size
from streams.core.blocks.records import NO_TIMESTAMP, Block, Headers, Lanes, ProducerStamp
from streams.protocol.wire import EncodedBlock

#: Blocks of at least this many records are kept unchanged.
KEEP_RECORDS = 256
#: The growing chunk is closed at this many records.
CHUNK_RECORDS = 4096


@define(eq=False)
class ArrayStorage:
    """The storage of one partition, which keeps blocks of records in memory.

    With ``keeps_decoded=False``, a batch that arrived encoded is kept only as bytes, even after it has been decoded.
    """

    start_offset: int = 0
    end_offset: int = 0
    keeps_decoded: bool = field(default=True, kw_only=True)
    _bases: list[int] = field(factory=list, init=False)
    _blocks: list[Block] = field(factory=list, init=False)
    # Extents of blocks by base offset, filled on first use.
    _extents: dict[int, LogExtent] = field(factory=dict, init=False)
    _open: "_OpenChunk" = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._open = _OpenChunk(self.end_offset)

    def append(self, block: Block) -> int:
        """Append a block of records; see ``LogStorage.append``."""
        base = self.end_offset
        count = len(block)
        if count >= KEEP_RECORDS or (count and isinstance(block, EncodedBlock)):
            self._seal()
            self._bases.append(base)
            self._blocks.append(numbered(block, base))
            self._open.base_offset = base + count
            self.end_offset = base + count
        elif count:
            if not self._open.accepts(block):
                self._seal()
            self._open.add(block, count)
            self.end_offset = base + count
            if len(self._open.values) >= CHUNK_RECORDS:
                self._seal()
        return base

    def read(self, offset: int, max_records: int) -> list[Block]:
        """Return blocks of records from ``offset`` on.  They are not copied, so the caller must not modify them."""
        result: list[Block] = []
        position = max(offset, self.start_offset)
        index = max(bisect_right(self._bases, position) - 1, 0)
        while max_records > 0 and index < len(self._blocks):
            block = self._blocks[index]
            index += 1
            first = index_of(block.offsets, position)
            count = len(block) - first
            if count <= 0:
                continue
            if not self.keeps_decoded and isinstance(block, EncodedBlock):
                block = EncodedBlock(block.data, block.header)
            if first or count > max_records:
                block = block.slice(first, first + max_records)
            result.append(block)
            max_records -= count
        if max_records > 0 and self._open.values:
            tail = self._open.block(position, max_records)
            if tail is not None:
                result.append(tail)
        # Merge small batches, so that the reader gets few large blocks.
        is_split = len(result) > 1 and any(isinstance(block, EncodedBlock) for block in result)
        return list(joined(result)) if is_split else result

    def read_encoded(self, offset: int, max_bytes: int, upto: int, *, is_first: bool) -> EncodedRun:
        """Return whole record batches; see ``EncodedStorage.read_encoded``."""
        position = max(offset, self.start_offset)
        return run_of(self._encoded_from(position), position, max_bytes, upto, is_first=is_first)

    def kept_encoded(self, offset: int) -> Iterator[EncodedBlock]:
        """Yield batches from the one that contains ``offset``, up to the first block that did not arrive encoded."""
        for index in range(max(bisect_right(self._bases, offset) - 1, 0), len(self._blocks)):
            block = self._blocks[index]
            if not isinstance(block, EncodedBlock):
                return
            yield block

    def truncate_before(self, offset: int) -> None:
        """Raise the start offset to ``offset``, and drop the blocks that are entirely below it."""
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        self.end_offset = max(offset, self.end_offset)
        dropped = 0
        for block in self._blocks:
            if block.offsets[-1] >= self.start_offset:
                break
            self._extents.pop(block.offsets[0], None)
            dropped += 1
        del self._blocks[:dropped], self._bases[:dropped]
        if self.start_offset == self.end_offset:
            self._open = _OpenChunk(self.end_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after a timestamp, or None.

        Only the maximum timestamp of an older block is compared, not the timestamps of its records.
        """
        self._seal()
        for block in self._blocks:
            if self._extent(block).max_timestamp < timestamp_ms:
                continue
            for offset, timestamp in zip(block.offsets, block.timestamps, strict=True):
                if timestamp >= timestamp_ms and offset >= self.start_offset:
                    return offset, timestamp
        return None

    def extents(self) -> Sequence[LogExtent]:
        """Return one extent for each block in memory."""
        self._seal()
        return [self._extent(block) for block in self._blocks]

    @property
    def sealed_offset(self) -> int:
        """The offset below which compaction may rewrite records: the end of the log."""
        return self.end_offset

    def compact(self, upto: int, keep: Keep) -> int:
        """Compact the blocks of records below the offset ``upto``; adjacent small blocks are merged."""
        return whole(self.compaction(upto, keep))

    def compaction(self, upto: int, keep: Keep) -> Steps[int]:
        """Compact like ``compact``, but in steps; readers see the result after the last step."""
        self._seal()
        below = yield from kept_below(self._blocks, upto, keep)
        # Since the first step, records may have been appended, and records at the start may have been deleted.
        self._seal()
        below = [block for block in joined(below) if block.offsets[-1] >= self.start_offset]
        self._blocks = below + blocks_from(self._blocks, upto)
        self._bases = [block.offsets[0] for block in self._blocks]
        self._extents.clear()
        return sum(map(len, below))

    def flush(self) -> None:
        """Do nothing: records in memory are not durable."""

    def close(self) -> None:
        """Free the records."""
        self._blocks = []
        self._bases = []
        self._extents.clear()
        self._open = _OpenChunk(self.end_offset)

    def delete(self) -> None:
        """Free the records and restart at offset 0."""
        self.start_offset = self.end_offset = 0
        self.close()

    def _encoded_from(self, offset: int) -> Iterator[EncodedBlock]:
        """Yield all batches from the one that contains ``offset`` on, encoded; newly encoded batches are cached."""
        index = max(bisect_right(self._bases, offset) - 1, 0)
        while index < len(self._blocks):
            block = self._blocks[index]
            if not isinstance(block, EncodedBlock):
                parts = pieces(block)
                if len(parts) > 1:
                    self._extents.pop(block.offsets[0], None)
                    self._blocks[index : index + 1] = parts
                    self._bases[index : index + 1] = [part.offsets[0] for part in parts]
                    index = max(bisect_right(self._bases, offset) - 1, index)
                    block = self._blocks[index]
                block = self._blocks[index] = EncodedBlock.of(block, block.offsets[0])
            yield block
            index += 1
        # The open chunk still grows: encode only the requested part, without caching it.
        tail = self._open.block(offset, CHUNK_RECORDS)
        if tail is not None:
            yield from encoded_blocks((tail,))

    def _seal(self) -> None:
        chunk = self._open
        if chunk.values:
            self._bases.append(chunk.base_offset)
            self._blocks.append(chunk.whole())
            self._open = _OpenChunk(self.end_offset)

    def _extent(self, block: Block) -> LogExtent:
        extent = self._extents.get(block.offsets[0])
        if extent is None:
            extent = self._extents[block.offsets[0]] = extent_of(block)
        return extent


@define(eq=False)
class _OpenChunk:
    """A growing chunk of records, merged from small blocks without offset gaps."""

    base_offset: int
    keys: list[bytes | None] = field(factory=list, init=False)
    values: list[bytes | None] = field(factory=list, init=False)
    timestamps: list[int] = field(factory=list, init=False)
    headers: list[Headers] | None = field(default=None, init=False)
    producer: ProducerStamp | None = field(default=None, init=False)
    lanes: Lanes | None = field(default=None, init=False)

    def accepts(self, block: Block) -> bool:
        """Whether a block can be added to this chunk."""
        return not self.values or continues(self.producer, len(self.values), block.producer)

    def add(self, block: Block, count: int) -> None:
        if not self.values:
            self.producer = block.producer
        if block.headers is not None and self.headers is None:
            self.headers = [()] * len(self.values)
        if self.headers is not None:
            self.headers += block.headers if block.headers is not None else [()] * count
        if block.lanes is not None and self.lanes is None:
            self.lanes = Lanes.none(len(self.values))
        if self.lanes is not None:
            self.lanes.extend(Lanes.of(block))
        self.keys += block.keys
        self.values += block.values
        self.timestamps += block.timestamps

    def block(self, offset: int, max_records: int) -> Block | None:
        """Return a block with a copy of the records from ``offset`` on, or None if the chunk has none."""
        first = max(0, offset - self.base_offset)
        stop = min(len(self.values), first + max_records)
        if first >= stop:
            return None
        base = self.base_offset
        headers = None if self.headers is None else self.headers[first:stop]
        return Block(
            self.keys[first:stop],
            self.values[first:stop],
            self.timestamps[first:stop],
            headers,
            range(base + first, base + stop),
            self.producer,
            lanes=None if self.lanes is None else self.lanes.slice(slice(first, stop)),
        )

    def whole(self) -> Block:
        """Return the chunk as a block without copying; the chunk must not be used afterwards."""
        offsets = range(self.base_offset, self.base_offset + len(self.values))
        return Block(self.keys, self.values, self.timestamps, self.headers, offsets, self.producer, lanes=self.lanes)


def numbered(block: Block, base_offset: int) -> Block:
    """Return the block with consecutive offsets from ``base_offset`` on; a gapless encoded block stays encoded."""
    if isinstance(block, EncodedBlock) and is_gapless(block):
        is_there = block.header.base_offset == base_offset and block.header.leader_epoch == 0
        return block if is_there else EncodedBlock.of(block, base_offset)
    offsets = range(base_offset, base_offset + len(block))
    return Block(
        block.keys,
        block.values,
        block.timestamps,
        block.headers,
        offsets,
        block.producer,
        block.compression,
        block.lanes,
    )


def index_of(offsets: Sequence[int], offset: int) -> int:
    """Return the index of the first of ``offsets`` that is not below ``offset``."""
    if isinstance(offsets, range):
        return min(max(offset - offsets.start, 0), len(offsets))
    return bisect_left(offsets, offset)


def extent_of(block: Block) -> LogExtent:
    """Return the extent of a block in memory; its size is estimated if the block is not encoded."""
    if isinstance(block, EncodedBlock):
        header = block.header
        return LogExtent(header.base_offset, header.next_offset, header.size, header.max_timestamp)
    size = payload_size(block) + RECORD_OVERHEAD * len(block)
    return LogExtent(block.offsets[0], block.offsets[-1] + 1, size, max(block.timestamps, default=NO_TIMESTAMP))


def kept_below(blocks: Iterable[Block], upto: int, keep: Keep) -> Steps[list[Block]]:
    """Apply ``keep`` to the records below the offset ``upto``, in steps, and return the remaining records.

    Adjacent small blocks are merged.
    """
    below: list[Block] = []
    for portion in portions(blocks_below(blocks, upto)):
        compacted = (keep(block) for block in portion)
        below += joined(block for block in compacted if block is not None and len(block))
        yield records_in(portion)
    return below


def blocks_below(blocks: Iterable[Block], upto: int) -> list[Block]:
    """Return the blocks with the records below the offset ``upto``; a block that extends beyond it is cut."""
    parts: list[Block] = []
    for block in blocks:
        split = index_of(block.offsets, upto)
        if not split:
            break
        parts.append(block if split == len(block) else block.slice(0, split))
    return parts


def blocks_from(blocks: Iterable[Block], offset: int) -> list[Block]:
    """Return the blocks with the records from ``offset`` on; a block that starts below it is cut."""
    parts: list[Block] = []
    for block in blocks:
        split = index_of(block.offsets, offset)
        if split < len(block):
            parts.append(block.slice(split) if split else block)
    return parts


def joined(blocks: Iterable[Block]) -> Iterable[Block]:
    """Merge adjacent small blocks into blocks of at most ``CHUNK_RECORDS`` records; large blocks stay unchanged."""
    pending: list[Block] = []
    count = 0
    for block in blocks:
        is_large = len(block) >= KEEP_RECORDS
        if pending and (is_large or count + len(block) > CHUNK_RECORDS or not _may_join(pending[0], block)):
            yield concatenate(pending)
            pending = []
            count = 0
        if is_large:
            yield block
        else:
            pending.append(block)
            count += len(block)
    if pending:
        yield concatenate(pending)


def _may_join(first: Block, block: Block) -> bool:
    return first.compression == block.compression and continues(
        first.producer, block.offsets[0] - first.offsets[0], block.producer
    )


def concatenate(blocks: Sequence[Block]) -> Block:
    """Concatenate blocks in ascending offset order; the result has the producer of the first block."""
    if len(blocks) == 1:
        return blocks[0]
    headers: list[Headers] | None = None
    if any(block.headers is not None for block in blocks):
        headers = [row for block in blocks for row in (block.headers or [()] * len(block))]
    offsets: Sequence[int] = [offset for block in blocks for offset in block.offsets]
    if offsets[-1] - offsets[0] == len(offsets) - 1:
        offsets = range(offsets[0], offsets[-1] + 1)
    return Block(
        [key for block in blocks for key in block.keys],
        [value for block in blocks for value in block.values],
        [timestamp for block in blocks for timestamp in block.timestamps],
        headers,
        offsets,
        blocks[0].producer,
        blocks[0].compression,
        Lanes.joined(blocks),
    )


def array_storage(context: StorageContext) -> ArrayStorage:
    """Return a storage for a partition of a topic with ``storage="array"``."""
    return ArrayStorage()
