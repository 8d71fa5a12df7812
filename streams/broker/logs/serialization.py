"""User-defined log serialization: a codec between blocks of records and stored bytes.

The codec works with any storage.  Each appended block becomes one record in the inner storage, called an envelope.
The value of the envelope is the block encoded by the codec; the key has the metadata that the log
needs (offsets and producer).  Offsets, retention, compaction and restarts therefore work with every
codec.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from struct import Struct, pack, unpack_from
from typing import Final, Generic, Protocol, TypeVar

from attrs import define, field

from streams.broker.logs.storage import CompactableStorage, LogExtent, LogStorage
from streams.core.blocks.records import NO_TIMESTAMP, Block, ProducerStamp
from streams.protocol import batch
from streams.protocol.batch import CorruptBatchError

S = TypeVar("S", bound=LogStorage)

# Envelopes per read: enough to save calls, but few enough to avoid decoding unneeded records.
_READ_ENVELOPES: Final = 32

# Base offset, number of offsets, start of the log (marks only), producer ID, epoch, sequence, flags.
_HEADER: Final = Struct(">qqqqhib")
_HAS_PRODUCER = 1
_IS_TRANSACTIONAL = 2
_IS_CONTROL = 4
_IS_MARK = 8


class Serialization(Protocol):
    """A user-defined codec: ``decode`` returns the keys, values, timestamps and headers that were passed to ``encode``.

    The log itself stores offsets and the producer.  If ``encode`` raises an exception, the append is rejected; if
    ``decode`` raises one, the read fails with an error that names the offset.
    """

    def encode(self, block: Block) -> bytes:
        """Return the bytes to store for a non-empty block of records."""
        ...

    def decode(self, data: bytes) -> Block:
        """Return the records that ``encode`` encoded as ``data``: the same number, in the same order."""
        ...


@define(eq=False)
class SerializedStorage(Generic[S]):
    """The storage of one partition, which encodes records with a user-defined codec."""

    inner: S
    serialization: Serialization
    start_offset: int = field(default=0, init=False)
    end_offset: int = field(default=0, init=False)
    # The first record offset of each envelope, and the envelope's offset in the inner storage.
    _bases: list[int] = field(factory=list, init=False)
    _numbers: list[int] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._index()

    def append(self, block: Block) -> int:
        """Append a block of records, encoded by the codec; see ``LogStorage.append``."""
        base = self.end_offset
        count = len(block)
        if count:
            key = _key(base, count, block.producer, range(count))
            number = self.inner.append(self._envelope(key, block))
            self._bases.append(base)
            self._numbers.append(number)
            self.end_offset = base + count
        return base

    def read(self, offset: int, max_records: int) -> list[Block]:
        """Return decoded records from ``offset`` on.

        Raises:
            CorruptBatchError: the codec cannot decode the bytes, or returns a wrong number of records.
        """
        position = max(offset, self.start_offset)
        result: list[Block] = []
        for block in self._blocks_from(position):
            first = bisect_left(block.offsets, position)
            if max_records <= 0:
                break
            if first or len(block) - first > max_records:
                block = block.slice(first, first + max_records)
            if len(block):
                result.append(block)
                max_records -= len(block)
        return result

    def truncate_before(self, offset: int) -> None:
        """Raise the start offset, and drop the encoded blocks that are entirely below it."""
        if offset <= self.start_offset:
            return
        self.end_offset = max(offset, self.end_offset)
        # The inner storage has only the offsets of envelopes, so a mark record stores the exact start offset for the
        # next open, and the next offset if no envelope is left.
        mark = _HEADER.pack(self.end_offset, 0, offset, -1, -1, -1, _IS_MARK)
        number = self.inner.append(Block([mark], [None], [NO_TIMESTAMP]))
        self.start_offset = offset
        first = self._index_of(offset) if offset < self.end_offset else len(self._bases)
        self.inner.truncate_before(self._numbers[first] if first < len(self._numbers) else number)
        del self._bases[:first], self._numbers[:first]

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after a timestamp, or None.

        The inner storage finds the encoded block by the maximum timestamp of its records.
        """
        place = self.inner.offset_for_timestamp(timestamp_ms)
        if place is None:
            return None
        for block in self._blocks(place[0]):
            for offset, timestamp in zip(block.offsets, block.timestamps, strict=True):
                if timestamp >= timestamp_ms and offset >= self.start_offset:
                    return offset, timestamp
        return None

    def extents(self) -> Sequence[LogExtent]:
        """Return the extents of the inner storage, converted to record offsets."""
        result = []
        for extent in self.inner.extents():
            base = self._offset_at(extent.base_offset)
            end = self._offset_at(extent.end_offset)
            if base < end:
                result.append(LogExtent(base, end, extent.size_bytes, extent.max_timestamp))
        return result

    def flush(self) -> None:
        """Flush the inner storage."""
        self.inner.flush()

    def close(self) -> None:
        """Close the inner storage."""
        self.inner.close()

    def delete(self) -> None:
        """Delete the records of the inner storage."""
        self.inner.delete()
        self.start_offset = self.end_offset = 0
        self._bases = []
        self._numbers = []

    # --- internal -------------------------------------------------------------------------

    def _index(self) -> None:
        self._bases = []
        self._numbers = []
        for number, key, _, _ in self._envelopes(self.inner.start_offset):
            base, span, start, *_, flags = _HEADER.unpack_from(key)
            self.end_offset = max(self.end_offset, base + span)
            if flags & _IS_MARK:
                self.start_offset = max(self.start_offset, start)
            else:
                self._bases.append(base)
                self._numbers.append(number)

    def _index_of(self, offset: int) -> int:
        return max(bisect_right(self._bases, offset) - 1, 0)

    def _offset_at(self, number: int) -> int:
        """Return the base offset of the first encoded block at or after the offset ``number`` in the inner storage."""
        index = bisect_left(self._numbers, number)
        return self._bases[index] if index < len(self._bases) else self.end_offset

    def _envelope(self, key: bytes, block: Block) -> Block:
        is_control = block.producer is not None and block.producer.is_control
        # Transaction markers are written by the broker, and the codec does not encode them.
        plain = Block(block.keys, block.values, block.timestamps, block.headers, range(len(block)), lanes=block.lanes)
        data = batch.encode(plain, 0) if is_control else self.serialization.encode(plain)
        return Block([key], [data], [max(block.timestamps)], compression=block.compression)

    def _envelopes(self, number: int) -> Iterator[tuple[int, bytes, bytes | None, str]]:
        while number < self.inner.end_offset:
            blocks = self.inner.read(number, _READ_ENVELOPES)
            if not blocks:
                return
            for block in blocks:
                if block.producer is not None and block.producer.is_control:
                    # This control record replaces removed envelopes.
                    number = block.offsets[-1] + 1
                    continue
                for offset, key, value, _, _ in block.rows():
                    if key is None or len(key) < _HEADER.size:
                        raise CorruptBatchError(f"record {offset} is no envelope: was the topic's codec added later?")
                    yield offset, key, value, block.compression
                    number = offset + 1

    def _blocks_from(self, offset: int) -> Iterator[Block]:
        if self._numbers and offset < self.end_offset:
            yield from self._blocks(self._numbers[self._index_of(offset)])

    def _blocks(self, number: int) -> Iterator[Block]:
        for _, key, value, compression in self._envelopes(number):
            if value is not None:
                yield self._opened(key, value, compression)

    def _opened(self, key: bytes, value: bytes, compression: str) -> Block:
        base, span, _, producer_id, epoch, sequence, flags = _HEADER.unpack_from(key)
        room = len(key) - _HEADER.size
        offsets: Sequence[int] = range(base, base + span)
        if room:
            offsets = [base + delta for delta in unpack_from(f">{room // 8}q", key, _HEADER.size)]
        try:
            block = batch.decode(value) if flags & _IS_CONTROL else self.serialization.decode(value)
            lengths = {len(block.keys), len(block.values), len(block.timestamps)}
        except Exception as error:
            raise CorruptBatchError(f"the codec cannot decode the records from offset {base} on: {error!r}") from error
        if lengths != {len(offsets)}:
            raise CorruptBatchError(
                f"the codec returns columns of {sorted(lengths)} records from offset {base} on, "
                f"but {len(offsets)} were kept: decode must give back what encode got"
            )
        stamp = None
        if flags & _HAS_PRODUCER:
            is_transactional = bool(flags & _IS_TRANSACTIONAL)
            is_control = bool(flags & _IS_CONTROL)
            stamp = ProducerStamp(producer_id, epoch, sequence, is_transactional, is_control)
        return Block(
            block.keys, block.values, block.timestamps, block.headers, offsets, stamp, compression, block.lanes
        )


@define(eq=False)
class CompactableSerializedStorage(SerializedStorage[CompactableStorage]):
    """A storage that encodes records with a user-defined codec, and that can be compacted."""

    @property
    def sealed_offset(self) -> int:
        return self._offset_at(self.inner.sealed_offset)

    def compact(self, upto: int, keep: Callable[[Block], Block | None]) -> int:
        """Compact the encoded blocks that are entirely below ``upto``; changed blocks are encoded again."""
        count = 0

        def thinned(envelopes: Block) -> Block | None:
            nonlocal count
            rows: list[tuple[int, Block]] = []
            for index, (key, value) in enumerate(zip(envelopes.keys, envelopes.values, strict=True)):
                whole = envelopes.slice(index, index + 1)
                if key is None or value is None:
                    rows.append((envelopes.offsets[index], whole))
                    continue
                block = self._opened(key, value, envelopes.compression)
                remaining = keep(block)
                if remaining is None or not len(remaining):
                    continue
                count += len(remaining)
                rows.append(
                    (envelopes.offsets[index], whole if remaining is block else self._reencoded(key, remaining))
                )
            return _stacked(rows, envelopes.compression) if rows else None

        below = bisect_left(self._bases, upto)
        self.inner.compact(self._numbers[below] if below < len(self._numbers) else self.inner.end_offset, thinned)
        end = self.end_offset
        start = self.start_offset
        self._index()
        self.end_offset = max(end, self.end_offset)
        self.start_offset = start
        return count

    def _reencoded(self, key: bytes, block: Block) -> Block:
        base, span, *_ = _HEADER.unpack_from(key)
        return self._envelope(_key(base, span, block.producer, [offset - base for offset in block.offsets]), block)


def _key(base: int, span: int, producer: ProducerStamp | None, deltas: Sequence[int]) -> bytes:
    stamp = ProducerStamp(-1, -1) if producer is None else producer
    flags = _HAS_PRODUCER if producer is not None else 0
    flags |= _IS_TRANSACTIONAL if stamp.is_transactional else 0
    flags |= _IS_CONTROL if stamp.is_control else 0
    header = _HEADER.pack(base, span, -1, stamp.producer_id, stamp.epoch, stamp.sequence, flags)
    return header if len(deltas) == span else header + pack(f">{len(deltas)}q", *deltas)


def _stacked(rows: Sequence[tuple[int, Block]], compression: str) -> Block:
    """Return one block of the first record of each block, with the numbers beside them as offsets."""
    blocks = [block for _, block in rows]
    return Block(
        [block.keys[0] for block in blocks],
        [block.values[0] for block in blocks],
        [block.timestamps[0] for block in blocks],
        None,
        [number for number, _ in rows],
        None,
        compression,
    )


def serialized(
    inner: LogStorage, serialization: Serialization
) -> SerializedStorage[LogStorage] | SerializedStorage[CompactableStorage]:
    """Wrap a storage, so that it stores records encoded by a user-defined codec."""
    if isinstance(inner, CompactableStorage):
        return CompactableSerializedStorage(inner, serialization)
    return SerializedStorage(inner, serialization)
