"""Encoding and decoding of record batches in Kafka's current format (v2).

Records are encoded when they leave the process or are written to disk; within the process, blocks of records are
passed as objects.  The records after the header are compressed if the batch attributes specify a codec (see
``compression``).  The layout is described in Kafka's protocol guide ("Record Batch").
"""

from collections.abc import Iterator, Sequence
from operator import sub
from struct import Struct
from typing import NamedTuple

import google_crc32c

from streams.core.blocks.records import Block, Headers, ProducerStamp
from streams.core.errors import BrokerError
from streams.protocol import compression
from streams.protocol.compression import CODECS, MAX_BYTES, CompressionError, DecompressedSizeError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.lane_header import with_lanes, without_lanes
from streams.protocol.record_codec import check_records, decode_records, encode_records, record_size

#: Bits of the batch attributes.
COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
_NOBODY = ProducerStamp(-1, -1)
DELETE_HORIZON = 0x40

#: Number of bytes in a batch before its first record.
HEADER_SIZE = 61
#: Number of bytes that the length field does not include: the base offset and the length field itself.
LENGTH_PREFIX = 12

_MAGIC = 2
_MIN_RECORD_SIZE = 7
_HEADER = Struct(">qiibIhiqqqhii")
_LEAD = Struct(">qiibI")
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_CHECKED = Struct(">hiqqqhii")
_INT32_MAX = 2**31 - 1


class CorruptBatchError(BrokerError):
    """The bytes are not a record batch, or the checksum does not match."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.CORRUPT_MESSAGE)


class IncompleteBatchError(CorruptBatchError):
    """A batch is shorter than its length field specifies."""


class InvalidBatchError(BrokerError):
    """A batch with a valid checksum that the broker does not accept from a producer (``INVALID_RECORD``)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.INVALID_RECORD)


class BatchHeader(NamedTuple):
    """The header of a record batch; ``size`` is the size of the whole batch in bytes."""

    base_offset: int
    size: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def next_offset(self) -> int:
        """The offset after the last record of the batch, even if compaction has removed this record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> str:
        """The name of the codec, or "none" if the batch is not compressed."""
        bits = self.attributes & COMPRESSION_MASK
        return CODECS[bits] if bits < len(CODECS) else f"unknown ({bits})"

    @property
    def is_control(self) -> bool:
        """Whether this is a control batch, such as a transaction marker."""
        return bool(self.attributes & CONTROL)

    @property
    def is_gap(self) -> bool:
        """Whether this is a control batch that replaces removed records (see ``markers.gap``)."""
        return is_gap(self.attributes, self.producer_id)

    @property
    def is_transactional(self) -> bool:
        """Whether the records belong to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def stamp(self) -> ProducerStamp:
        """The producer ID, epoch and base sequence; ID -1 means that the producer is not idempotent."""
        return ProducerStamp(
            self.producer_id, self.producer_epoch, self.base_sequence, self.is_transactional, self.is_control
        )


def is_gap(attributes: int, producer_id: int) -> bool:
    """Whether a batch with this part of a header is a control batch that replaces removed records."""
    return producer_id < 0 and bool(attributes & CONTROL)


# --- encoding -----------------------------------------------------------------------------


def encode(
    block: Block, base_offset: int, *, attributes: int = 0, leader_epoch: int = 0, next_offset: int | None = None
) -> bytes:
    """Encode a block of records as one record batch that starts at ``base_offset``.

    Offset gaps within the block (left by compaction) and the producer ID, epoch and sequence are kept.  With
    ``next_offset``, the batch spans ``base_offset`` to ``next_offset``, which may be more than the offsets in the
    block, because compaction may have removed records at either end.  The compression bits in ``attributes`` select the
    codec; records that exceed the decompression limit are not compressed.

    Raises:
        CompressionError: ``attributes`` specifies an unknown codec.
        ValueError: the block is empty or larger than 2 GiB.
    """
    count = len(block)
    if count == 0:
        raise ValueError("an empty block makes no record batch: leave it out")
    deltas = _offset_deltas(block) if next_offset is None else [offset - base_offset for offset in block.offsets]
    base_timestamp = block.timestamps[0]
    records = encode_records(block if block.lanes is None else with_lanes(block), base_timestamp, deltas)
    if attributes & COMPRESSION_MASK:
        if len(records) > MAX_BYTES:
            # No reader would decompress this batch, so send it uncompressed.
            attributes &= ~COMPRESSION_MASK
        else:
            records = compression.compress(attributes & COMPRESSION_MASK, records)
    if len(records) > _INT32_MAX - HEADER_SIZE:
        raise ValueError(f"record batch of {len(records)} bytes: at most 2 GiB fit; send smaller blocks")
    stamp = block.producer or _NOBODY
    attributes |= (TRANSACTIONAL if stamp.is_transactional else 0) | (CONTROL if stamp.is_control else 0)
    checked = _CHECKED.pack(
        attributes,
        deltas[-1] if next_offset is None else next_offset - base_offset - 1,
        base_timestamp,
        max(block.timestamps),
        stamp.producer_id,
        stamp.epoch,
        stamp.sequence,
        count,
    )
    crc = google_crc32c.extend(google_crc32c.value(checked), records)
    length = HEADER_SIZE - LENGTH_PREFIX + len(records)
    return b"".join((_LEAD.pack(base_offset, length, leader_epoch, _MAGIC, crc), checked, records))


def _offset_deltas(block: Block) -> Sequence[int]:
    offsets = block.offsets
    count = len(block)
    if len(offsets) != count or (isinstance(offsets, range) and offsets.step == 1):
        return range(count)
    first = offsets[0]
    return [offset - first for offset in offsets]


def batch_size(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Return the size in bytes of an uncompressed batch that contains only one record."""
    return HEADER_SIZE + record_size(key, value, headers)


# --- decoding -----------------------------------------------------------------------------


def read_header(data: bytes, position: int = 0) -> BatchHeader:
    """Read the header of the batch at ``position``; the records after the header may be truncated.

    Raises:
        IncompleteBatchError: the header is truncated.
        CorruptBatchError: the bytes are not a record batch v2.
    """
    if len(data) - position < HEADER_SIZE:
        raise IncompleteBatchError(
            f"record batch at byte {position}: {max(0, len(data) - position)} bytes, a header has {HEADER_SIZE}"
        )
    base_offset, length, epoch, magic, *fields = _HEADER.unpack_from(data, position)
    if magic != _MAGIC:
        raise CorruptBatchError(f"record batch at byte {position}: magic {magic}, only version 2 is read")
    header = BatchHeader(base_offset, length + LENGTH_PREFIX, epoch, *fields)
    room = header.size - HEADER_SIZE
    if room < 0 or header.record_count < 0 or header.last_offset_delta < 0 or base_offset < 0:
        raise CorruptBatchError(f"record batch at byte {position}: a length, count or offset is negative")
    if not header.attributes & COMPRESSION_MASK and header.record_count * _MIN_RECORD_SIZE > room:
        raise CorruptBatchError(
            f"record batch at byte {position}: {header.record_count} records do not fit into {room} bytes"
        )
    return header


def headers(data: bytes, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each complete batch; a truncated batch at the end is left out."""
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        if position + header.size > len(data):
            return
        yield position, header
        position += header.size


def check(data: bytes, position: int = 0, header: BatchHeader | None = None) -> BatchHeader:
    """Verify the checksum of the whole batch at ``position``, and return its header.

    Pass ``header`` if it has already been read.

    Raises:
        IncompleteBatchError: the batch extends beyond ``data``.
        CorruptBatchError: the bytes are not a record batch, or the checksum does not match.
    """
    if header is None:
        header = read_header(data, position)
    end = position + header.size
    if end > len(data):
        raise IncompleteBatchError(
            f"record batch at byte {position} (offset {header.base_offset}): "
            f"{len(data) - position} of its {header.size} bytes are there"
        )
    # The C checksum function only accepts bytes, not memory views.
    actual = google_crc32c.value(data[position + HEADER_SIZE - _CHECKED.size : end])
    if actual != header.crc:
        raise CorruptBatchError(
            f"record batch at byte {position} (offset {header.base_offset}): "
            f"checksum {actual:#010x}, expected {header.crc:#010x}; the bytes are damaged"
        )
    return header


def check_produced(data: bytes) -> BatchHeader:
    """Verify the checksum and counts of a single batch from a producer, and return its header.

    The records are not decoded (see ``check_inside``).  The base offset, usually 0, is ignored.

    Raises:
        CorruptBatchError: the bytes are damaged or truncated.
        InvalidBatchError: there is not exactly one batch, it is a control batch, or a count is wrong.
    """
    if not data:
        raise InvalidBatchError("not a record batch: a produce request has one for each partition")
    header = check(data)
    if header.size != len(data):
        raise InvalidBatchError(f"{len(data) - header.size} bytes after the record batch: only one may be sent")
    if header.is_control:
        raise InvalidBatchError("a control batch: only brokers write these")
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        raise InvalidBatchError(
            f"{header.record_count} records with offsets 0 to {header.last_offset_delta}: they must be consecutive"
        )
    return header


def check_inside(data: bytes, header: BatchHeader, most_bytes: int = MAX_BYTES) -> None:
    """Check that the records of a batch can be decoded.

    As in Kafka, compressed records are decompressed for this check.

    Raises:
        InvalidBatchError: the records cannot be read, their offsets are not consecutive, or their decompressed size
            exceeds ``most_bytes``.
    """
    codec = header.attributes & COMPRESSION_MASK
    try:
        if codec:
            check_records(compression.decompress(codec, data[HEADER_SIZE:], most_bytes), 0, header.record_count)
        else:
            check_records(data, HEADER_SIZE, header.record_count)
    except (CompressionError, IndexError, ValueError) as error:
        reason = str(error) if isinstance(error, CompressionError) else "a record is malformed, long or out of order"
        raise InvalidBatchError(f"{header.record_count} records that cannot be read: {reason}") from error


def moved(data: bytes, base_offset: int, leader_epoch: int = 0) -> bytes:
    """Return the encoded batch with another base offset and leader epoch, which the checksum does not cover."""
    return b"".join((_OFFSET.pack(base_offset), data[8:12], _EPOCH.pack(leader_epoch), data[16:]))


def decode(
    data: bytes,
    position: int = 0,
    header: BatchHeader | None = None,
    *,
    verify: bool = True,
    most_bytes: int = MAX_BYTES,
) -> Block:
    """Decode the batch at ``position`` into a block of records with offsets.

    Pass ``header`` if it has already been read.  ``verify=False`` skips the checksum, for bytes that
    have already been verified.  ``most_bytes`` limits the decompressed size.

    Raises:
        IncompleteBatchError: the batch extends beyond ``data``.
        CorruptBatchError: the bytes are damaged.
        InvalidBatchError: the decompressed size exceeds ``most_bytes``.
    """
    if verify:
        header = check(data, position, header)
    elif header is None:
        header = read_header(data, position)
    end = position + header.size
    if end > len(data):
        raise IncompleteBatchError(f"record batch at byte {position}: the last {end - len(data)} bytes are missing")
    records = data[position + HEADER_SIZE : end]
    try:
        if header.attributes & COMPRESSION_MASK:
            records = compression.decompress(header.attributes & COMPRESSION_MASK, records, most_bytes)
        columns = decode_records(records, header.record_count, header.base_timestamp)
    except DecompressedSizeError as error:
        raise InvalidBatchError(f"record batch at byte {position} (offset {header.base_offset}): {error}") from error
    except CompressionError as error:
        raise CorruptBatchError(f"record batch at byte {position} (offset {header.base_offset}): {error}") from error
    except (IndexError, ValueError) as error:
        raise CorruptBatchError(
            f"record batch at byte {position} (offset {header.base_offset}): a record is malformed or too long"
        ) from error
    timestamps = columns.timestamps
    record_headers, lanes = without_lanes(columns.headers, timestamps)
    if header.attributes & LOG_APPEND_TIME:
        timestamps = [header.max_timestamp] * header.record_count
    return Block(
        columns.keys,
        columns.values,
        timestamps,
        record_headers,
        _absolute_offsets(header, columns.offset_deltas),
        header.stamp if header.producer_id >= 0 or header.is_control else None,
        header.compression,
        lanes,
    )


def decode_all(data: bytes, *, verify: bool = True) -> list[Block]:
    """Decode every complete data batch in ``data``; control batches and a truncated batch at the end are left out."""
    return [
        decode(data, position, header, verify=verify)
        for position, header in headers(data)
        if header.record_count and not header.is_control
    ]


def _absolute_offsets(header: BatchHeader, deltas: list[int] | None) -> Sequence[int]:
    base = header.base_offset
    count = header.record_count
    if deltas is None:
        # The offsets are consecutive.
        if count > header.last_offset_delta + 1:
            raise CorruptBatchError(f"record batch at offset {base}: a record is after its last offset")
        return range(base, base + count)
    # Differences below one mean that the offsets do not ascend.
    if deltas[0] < 0 or any(map((1).__gt__, map(sub, deltas[1:], deltas))):
        raise CorruptBatchError(f"record batch at offset {base}: the offsets of its records do not ascend")
    if deltas[-1] > header.last_offset_delta:
        raise CorruptBatchError(f"record batch at offset {base}: a record is after its last offset")
    return [base + delta for delta in deltas]
