"""Encoded blocks of records, as in Fetch responses and Produce requests.

A received batch is decoded only when its columns are read, and an in-memory block is encoded
only when it is sent to another process.  A log may store received batches unchanged.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Any, Final, Self

from streams.core.blocks.records import Block
from streams.protocol import batch
from streams.protocol.batch import BatchHeader, CorruptBatchError, IncompleteBatchError, InvalidBatchError
from streams.protocol.compression import MAX_BYTES, codec_number
from streams.protocol.wire.message_sets import decode_message_set

_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_COLUMNS: Final = frozenset({"keys", "values", "timestamps", "headers", "offsets", "lanes"})


class EncodedBlock(Block):
    """A block of records that is backed by the bytes of one record batch; columns are decoded on first access.

    The length, producer and compression are known without decoding, and so are the offsets if they are consecutive.
    If the batch has not been checked, access to a column may raise ``CorruptBatchError``.
    """

    # Only the first access to an unset column reaches __getattr__; later accesses cost the same as in any block.
    __slots__ = ("data", "header")

    data: bytes
    header: BatchHeader

    def __init__(self, data: bytes, header: BatchHeader) -> None:
        self.data = data
        self.header = header
        self.producer = header.stamp if header.producer_id >= 0 or header.is_control else None
        self.compression = header.compression
        if header.record_count == header.last_offset_delta + 1:
            self.offsets = range(header.base_offset, header.next_offset)

    @classmethod
    def of(cls, block: Block, base_offset: int, leader_epoch: int = 0) -> Self:
        """Encode a block with its first record at ``base_offset``; the result has both the columns and the bytes.

        Raises:
            ValueError: the block is empty or larger than 2 GiB.
        """
        if isinstance(block, EncodedBlock):
            header = block.header._replace(base_offset=base_offset, leader_epoch=leader_epoch)
            return cls(batch.moved(block.data, base_offset, leader_epoch), header)
        data = batch.encode(block, base_offset, attributes=codec_number(block.compression), leader_epoch=leader_epoch)
        result = cls(data, batch.read_header(data))
        result.keys = block.keys
        result.values = block.values
        result.timestamps = block.timestamps
        result.headers = block.headers
        result.lanes = block.lanes
        return result

    def __len__(self) -> int:
        return self.header.record_count

    def __getattr__(self, name: str) -> Any:
        if name not in _COLUMNS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.look_inside()
        return getattr(self, name)

    def look_inside(self, most_bytes: int = MAX_BYTES) -> None:
        """Decode the columns; ``most_bytes`` limits the decompressed size.

        Raises:
            CorruptBatchError: the bytes are damaged.
            InvalidBatchError: the decompressed size exceeds ``most_bytes``.
        """
        block = batch.decode(self.data, 0, self.header, verify=False, most_bytes=most_bytes)
        self.keys = block.keys
        self.values = block.values
        self.headers = block.headers
        self.timestamps = block.timestamps
        self.offsets = block.offsets
        self.lanes = block.lanes

    def check_inside(self, most_bytes: int, *, decodes: bool) -> None:
        """Check that the records can be decoded; with ``decodes``, the decoded columns are kept.

        Raises:
            InvalidBatchError: the records cannot be decoded, or their decompressed size exceeds ``most_bytes``.
        """
        if not decodes:
            batch.check_inside(self.data, self.header, most_bytes)
            return
        try:
            self.look_inside(most_bytes)
        except CorruptBatchError as error:
            raise InvalidBatchError(str(error)) from error
        if not isinstance(self.offsets, range):
            raise InvalidBatchError(f"{len(self)} records whose offsets are not consecutive")

    @property
    def next_offset(self) -> int:
        """The offset after the batch, including records removed by compaction."""
        return self.header.next_offset


def produced(data: bytes) -> EncodedBlock:
    """Verify the checksum and counts of a batch from a producer, and return it as a block without decoding its records.

    Raises:
        CorruptBatchError: the bytes are damaged or truncated.
        InvalidBatchError: there is not exactly one batch, it is a control batch, or a count is wrong.
    """
    return EncodedBlock(data, batch.check_produced(data))


def encoded(block: Block, base_offset: int | None = None) -> bytes:
    """Encode a block as one batch; ``base_offset`` defaults to the first offset of the block, or to 0 if it has none.

    For an encoded block, the existing bytes are returned.

    Raises:
        ValueError: the block is empty or larger than 2 GiB.
    """
    if base_offset is None:
        base_offset = block.offsets[0] if len(block.offsets) else 0
    if isinstance(block, EncodedBlock):
        is_there = block.header.base_offset == base_offset
        return block.data if is_there else batch.moved(block.data, base_offset, block.header.leader_epoch)
    return batch.encode(block, base_offset, attributes=codec_number(block.compression))


def encoded_all(blocks: Iterable[Block]) -> list[bytes]:
    """Return each block of records encoded as one batch; the offsets are kept."""
    return [encoded(block) for block in blocks]


def fetched(data: bytes, *, verify: bool = True) -> list[Block]:
    """Return the record batches of a fetch response, including transaction markers and empty batches.

    A truncated batch at the end is left out and will be fetched again.  Message sets in formats 0 and 1,
    which brokers up to 3.x may still have in their logs, are decoded immediately.  ``verify=False`` skips
    the checksums.

    Raises:
        CorruptBatchError: the bytes are damaged.
    """
    blocks: list[Block] = []
    position = 0
    end = len(data)
    while end - position > _MAGIC_AT:
        (length,) = _LENGTH.unpack_from(data, position + _LENGTH_AT)
        after = position + batch.LENGTH_PREFIX + length
        if length <= _MAGIC_AT - batch.LENGTH_PREFIX:
            raise CorruptBatchError(f"record batch at byte {position}: length {length} is too short")
        if after > end:
            break
        if data[position + _MAGIC_AT] < 2:
            position = _message_set(data, position, blocks, verify=verify)
            continue
        whole = data[position:after] if position or after < end else data
        blocks.append(_batch(whole, position, verify=verify))
        position = after
    return blocks


def _batch(data: bytes, position: int, *, verify: bool) -> EncodedBlock:
    try:
        header = batch.check(data) if verify else batch.read_header(data)
    except IncompleteBatchError as error:
        raise CorruptBatchError(f"record batch at byte {position}: its length is too short: {error}") from error
    return EncodedBlock(data, header)


def _message_set(data: bytes, position: int, blocks: list[Block], *, verify: bool) -> int:
    """Decode messages in formats 0 and 1 from a position up to the next batch, and return the position of the batch."""
    start = position
    end = len(data)
    while end - position > _MAGIC_AT and data[position + _MAGIC_AT] < 2:
        (length,) = _LENGTH.unpack_from(data, position + _LENGTH_AT)
        after = position + batch.LENGTH_PREFIX + length
        if length < 0 or after > end:
            # The bytes are damaged or truncated, which the loop in ``fetched`` determines.
            break
        position = after
    blocks += decode_message_set(data[start:position], verify=verify)
    return position
