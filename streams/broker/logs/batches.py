"""Encoded record batches, as logs store them and return them to clients in other processes.

This module performs no I/O.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple, Protocol, runtime_checkable

import google_crc32c

from streams.broker.logs.storage import RECORD_OVERHEAD, LogStorage, advanced, payload_size
from streams.core.blocks.records import Block
from streams.protocol import batch
from streams.protocol.batch import LOG_APPEND_TIME
from streams.protocol.markers import gap
from streams.protocol.wire import EncodedBlock

#: Blocks above this size in bytes become several batches.
BATCH_BYTES = 1_000_000

# Fields of the batch header that ``at_append_time`` changes: struct formats, and positions below.
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_CRC = Struct(">I")
# Maximum number of offsets in one batch.
_MOST_OFFSETS = 2**31 - 1
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35


class EncodedRun(NamedTuple):
    """Consecutive whole batches: their bytes in chunks, the total ``size`` in bytes, and the next offset to read."""

    chunks: list[bytes]
    size: int
    next_offset: int


@runtime_checkable
class EncodedStorage(LogStorage, Protocol):
    """A storage that reads and appends batches without decoding them."""

    def read_encoded(self, offset: int, max_bytes: int, upto: int, *, is_first: bool) -> EncodedRun:
        """Return as many whole batches as fit into ``max_bytes``, from the one that contains ``offset`` on.

        All returned batches start below ``upto``.  With ``is_first``, the first batch is returned even if it exceeds
        ``max_bytes`` (KIP-74).

        Raises:
            CorruptBatchError: the stored bytes are damaged.
        """
        ...


def run_of(blocks: Iterable[EncodedBlock], offset: int, max_bytes: int, upto: int, *, is_first: bool) -> EncodedRun:
    """Return the first batches that fit into ``max_bytes``; see ``EncodedStorage.read_encoded``."""
    chunks: list[bytes] = []
    size = 0
    next_offset = offset
    for block in blocks:
        header = block.header
        if header.next_offset <= offset:
            continue
        if header.base_offset >= upto or (size + header.size > max_bytes and (chunks or not is_first)):
            break
        chunks.append(block.data)
        size += header.size
        next_offset = header.next_offset
    return EncodedRun(chunks, size, next_offset)


def encoded_blocks(blocks: Iterable[Block]) -> Iterator[EncodedBlock]:
    """Yield blocks of records as encoded batches with unchanged offsets; a large block is split into batches."""
    for block in blocks:
        if isinstance(block, EncodedBlock):
            yield block
        else:
            for piece in pieces(block):
                yield EncodedBlock.of(piece, piece.offsets[0])


def pieces(block: Block) -> list[Block]:
    """Split a block of records into pieces with equal record counts, each of about ``BATCH_BYTES`` bytes at most."""
    size = payload_size(block) + RECORD_OVERHEAD * len(block)
    length = len(block)
    count = min(-(-size // BATCH_BYTES), length)
    if count <= 1:
        return [block]
    parts = []
    for number in range(count):
        start = number * length // count
        stop = (number + 1) * length // count
        piece = block.slice(start, stop)
        if block.producer is not None:
            piece.producer = advanced(block.producer, block.offsets[start] - block.offsets[0])
        parts.append(piece)
    return parts


def empty_batches(base_offset: int, next_offset: int) -> bytes:
    """Return encoded batches that replace the removed records from ``base_offset`` up to ``next_offset``.

    Each batch has one control record, which readers skip.
    """
    batches = []
    while base_offset < next_offset:
        end = min(next_offset, base_offset + _MOST_OFFSETS)
        batches.append(batch.encode(gap(end - 1), base_offset, next_offset=end))
        base_offset = end
    return b"".join(batches)


def is_gapless(block: EncodedBlock) -> bool:
    """Whether a batch has consecutive offsets, so that its base offset can be changed without decoding."""
    header = block.header
    return header.record_count == header.last_offset_delta + 1


def at_append_time(block: EncodedBlock, now_ms: int) -> EncodedBlock:
    """Return the batch with ``now_ms`` as the timestamp of every record (``message.timestamp.type=LogAppendTime``).

    Only the header changes (Kafka's protocol guide, "Record Batch"); nothing is decoded.
    """
    attributes = block.header.attributes | LOG_APPEND_TIME
    data = bytearray(block.data)
    _ATTRIBUTES.pack_into(data, _ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(data, _MAX_TIMESTAMP_AT, now_ms)
    crc = google_crc32c.value(bytes(data[_ATTRIBUTES_AT:]))
    _CRC.pack_into(data, _CRC_AT, crc)
    header = block.header._replace(attributes=attributes, max_timestamp=now_ms, crc=crc)
    return EncodedBlock(bytes(data), header)
