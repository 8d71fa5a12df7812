"""Record batch v2: blocks to Kafka's bytes and back.

Used by whatever leaves the process or goes to disk; in process, blocks travel as they
are.  The records behind the header are compressed where the batch's attributes say so
(``compression``).  Layout as in Kafka's protocol guide ("Record Batch").  Imports core only.
"""

from collections.abc import Iterator, Sequence
from operator import sub
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

import google_crc32c

from streams.core.errors import BrokerError
from streams.core.records import Block, Headers, ProducerStamp
from streams.protocol import compression
from streams.protocol.compression import CODECS, CompressionError
from streams.protocol.messages import ErrorCode

#: Attribute bits of a batch.
COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
_NOBODY = ProducerStamp(-1, -1)
DELETE_HORIZON = 0x40

#: Bytes of a batch before its first record.
HEADER_SIZE = 61
#: Bytes that the length field does not count: base offset and the length itself.
LENGTH_PREFIX = 12

_MAGIC = 2
_MIN_RECORD_SIZE = 7
_HEADER = Struct(">qiibIhiqqqhii")
_LEAD = Struct(">qiibI")
_CHECKED = Struct(">hiqqqhii")
_INT32_MAX = 2**31 - 1


class CorruptBatchError(BrokerError):
    """Bytes that are no record batch, or whose checksum does not fit."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.CORRUPT_MESSAGE)


class IncompleteBatchError(CorruptBatchError):
    """A batch that ends before its announced length."""


class BatchHeader(NamedTuple):
    """The fixed part of a batch; ``size`` counts all its bytes."""

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
        """Offset after the last record, counting records that compaction took away."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> str:
        """Name of the codec, "none" for plain bytes."""
        bits = self.attributes & COMPRESSION_MASK
        return CODECS[bits] if bits < len(CODECS) else f"unknown ({bits})"

    @property
    def is_control(self) -> bool:
        """True for transaction markers."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """True where the records belong to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def stamp(self) -> ProducerStamp:
        """Who wrote the batch; producer id -1 is nobody in particular."""
        return ProducerStamp(
            self.producer_id, self.producer_epoch, self.base_sequence, self.is_transactional, self.is_control
        )


# --- variable-length integers -------------------------------------------------------------


def _zigzag_varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 127:
        out.append((rest & 127) | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class _Varints(dict[int, bytes]):
    """Zigzag varints by number: a lookup where small, computed where not.

    A dict and not a list: a negative delta must not index from the end.
    """

    def __missing__(self, number: int) -> bytes:
        encoded = _zigzag_varint(number)
        if -1024 <= number < 65_536:
            self[number] = encoded
        return encoded


_VARINTS = _Varints()


def _continued(data: bytes, position: int, low: int) -> tuple[int, int]:
    """Read on a varint whose first two bytes gave ``low`` (14 bits); return it and the next position."""
    result, shift = low, 14
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, position
        shift += 7
        if shift > 63:
            raise CorruptBatchError("record batch: an integer of more than 10 bytes; the bytes are damaged")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Read one zigzag varint; return it and the next position."""
    raw = data[position]
    position += 1
    if raw > 127:
        raw = raw & 127 | data[position] << 7
        position += 1
        if raw > 16_383:
            raw, position = _continued(data, position, raw - 16_384)
    return (raw >> 1) ^ -(raw & 1), position


# --- encoding -----------------------------------------------------------------------------


def encode(
    block: Block,
    base_offset: int,
    *,
    attributes: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """Return the block as one record batch that starts at ``base_offset``.

    Holes between the block's offsets (left by compaction) are kept, and so is its producer's stamp.
    ``attributes`` are the batch's bits; its compression bits say how the records are compressed.

    Raises:
        CompressionError: ``attributes`` ask for a compression that Kafka does not have.
        ValueError: the block is empty, or above 2 GiB.
    """
    count = len(block)
    if count == 0:
        raise ValueError("an empty block makes no record batch: leave it out")
    deltas = _offset_deltas(block)
    base_timestamp = block.timestamps[0]
    records = (
        _encode_plain(block, base_timestamp, deltas)
        if block.headers is None
        else _encode_with_headers(block, base_timestamp, deltas)
    )
    if attributes & COMPRESSION_MASK:
        records = compression.compress(attributes & COMPRESSION_MASK, records)
    if len(records) > _INT32_MAX - HEADER_SIZE:
        raise ValueError(f"record batch of {len(records)} bytes: at most 2 GiB fit; send smaller blocks")
    stamp = block.producer or _NOBODY
    attributes |= (TRANSACTIONAL if stamp.is_transactional else 0) | (CONTROL if stamp.is_control else 0)
    checked = _CHECKED.pack(
        attributes,
        deltas[-1],
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
    offsets, count = block.offsets, len(block)
    if len(offsets) != count or (isinstance(offsets, range) and offsets.step == 1):
        return range(count)
    first = offsets[0]
    return [offset - first for offset in offsets]


def _encode_plain(block: Block, base_timestamp: int, deltas: Sequence[int]) -> bytes:
    varints, join = _VARINTS, b"".join
    parts: list[bytes] = []
    append = parts.append
    for key, value, timestamp, delta in zip(block.keys, block.values, block.timestamps, deltas, strict=True):
        if key is None:
            key_length, key = b"\x01", b""
        else:
            key_length = varints[len(key)]
        if value is None:
            value_length, value = b"\x01", b""
        else:
            value_length = varints[len(value)]
        body = join(
            (b"\0", varints[timestamp - base_timestamp], varints[delta], key_length, key, value_length, value, b"\0")
        )
        append(varints[len(body)])
        append(body)
    return join(parts)


def _encode_with_headers(block: Block, base_timestamp: int, deltas: Sequence[int]) -> bytes:
    assert block.headers is not None
    parts: list[bytes] = []
    columns = zip(block.keys, block.values, block.timestamps, block.headers, deltas, strict=True)
    for key, value, timestamp, headers, delta in columns:
        body = _body(key, value, timestamp - base_timestamp, headers, delta)
        parts += (_VARINTS[len(body)], body)
    return b"".join(parts)


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else _VARINTS[len(data)] + data


def _body(key: bytes | None, value: bytes | None, timestamp_delta: int, headers: Headers, offset_delta: int) -> bytes:
    parts = [
        b"\0",
        _VARINTS[timestamp_delta],
        _VARINTS[offset_delta],
        _sized(key),
        _sized(value),
        _VARINTS[len(headers)],
    ]
    for name, content in headers:
        parts += (_sized(name.encode()), _sized(content))
    return b"".join(parts)


def batch_size(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Return the bytes of a batch that holds this record alone."""
    length = 3 + _sized_length(key) + _sized_length(value) + len(_VARINTS[len(headers)])
    for name, content in headers:
        length += _sized_length(name.encode()) + _sized_length(content)
    return HEADER_SIZE + len(_VARINTS[length]) + length


def _sized_length(data: bytes | None) -> int:
    return 1 if data is None else len(_VARINTS[len(data)]) + len(data)


# --- decoding -----------------------------------------------------------------------------


def read_header(data: bytes, position: int = 0) -> BatchHeader:
    """Read the header of the batch at ``position``; its records may lie beyond ``data``.

    Raises:
        IncompleteBatchError: fewer bytes than a header has.
        CorruptBatchError: no record batch v2.
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
    """Yield (position, header) of each whole batch; a batch cut short at the end is left out."""
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        if position + header.size > len(data):
            return
        yield position, header
        position += header.size


def check(data: bytes, position: int = 0, header: BatchHeader | None = None) -> BatchHeader:
    """Return the header of the whole batch at ``position``, its checksum verified.

    ``header`` saves reading it again.

    Raises:
        IncompleteBatchError: the batch ends beyond ``data``.
        CorruptBatchError: no batch, or a checksum that does not fit.
    """
    if header is None:
        header = read_header(data, position)
    end = position + header.size
    if end > len(data):
        raise IncompleteBatchError(
            f"record batch at byte {position} (offset {header.base_offset}): "
            f"{len(data) - position} of its {header.size} bytes are there"
        )
    # The C checksum takes bytes only, not views.
    actual = google_crc32c.value(data[position + HEADER_SIZE - _CHECKED.size : end])
    if actual != header.crc:
        raise CorruptBatchError(
            f"record batch at byte {position} (offset {header.base_offset}): "
            f"checksum {actual:#010x}, expected {header.crc:#010x}; the bytes are damaged"
        )
    return header


def decode(data: bytes, position: int = 0, header: BatchHeader | None = None, *, verify: bool = True) -> Block:
    """Return the batch at ``position`` as a block with its offsets.

    ``header`` saves reading it again; ``verify`` False skips the checksum, for bytes that
    were verified before.

    Raises:
        IncompleteBatchError: the batch ends beyond ``data``.
        CorruptBatchError: damaged bytes.
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
            records = compression.decompress(header.attributes & COMPRESSION_MASK, records)
        block = _decode_records(records, header)
        block.compression = header.compression
        if header.producer_id >= 0:
            block.producer = header.stamp
        return block
    except CompressionError as error:
        raise CorruptBatchError(f"record batch at byte {position} (offset {header.base_offset}): {error}") from error
    except (IndexError, UnicodeDecodeError, OverflowError, struct_error) as error:
        raise CorruptBatchError(
            f"record batch at byte {position} (offset {header.base_offset}): a record is malformed or too long"
        ) from error


def decode_all(data: bytes, *, verify: bool = True) -> list[Block]:
    """Return every whole data batch of ``data``; control batches and a cut tail are left out."""
    return [
        decode(data, position, header, verify=verify)
        for position, header in headers(data)
        if header.record_count and not header.is_control
    ]


def _decode_records(data: bytes, header: BatchHeader) -> Block:
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    times: list[int] = []
    deltas: list[int] = []
    with_headers: dict[int, Headers] = {}
    add_key, add_value, add_time, add_delta = keys.append, values.append, times.append, deltas.append
    p = 0
    # Varints of one and two bytes are read in place; a call each would double the time.
    for index in range(header.record_count):
        n, p = data[p], p + 1
        if n > 127:
            n, p = n & 127 | data[p] << 7, p + 1
            if n > 16_383:
                n, p = _continued(data, p, n - 16_384)
        end = p + (n >> 1)
        # One byte of record attributes is skipped: it has no meaning so far.
        n, p = data[p + 1], p + 2
        if n > 127:
            n, p = n & 127 | data[p] << 7, p + 1
            if n > 16_383:
                n, p = _continued(data, p, n - 16_384)
        add_time((n >> 1) ^ -(n & 1))
        n, p = data[p], p + 1
        if n > 127:
            n, p = n & 127 | data[p] << 7, p + 1
            if n > 16_383:
                n, p = _continued(data, p, n - 16_384)
        add_delta((n >> 1) ^ -(n & 1))
        n, p = data[p], p + 1
        if n > 127:
            n, p = n & 127 | data[p] << 7, p + 1
            if n > 16_383:
                n, p = _continued(data, p, n - 16_384)
        if n & 1:
            add_key(None)
        else:
            start, p = p, p + (n >> 1)
            add_key(data[start:p])
        n, p = data[p], p + 1
        if n > 127:
            n, p = n & 127 | data[p] << 7, p + 1
            if n > 16_383:
                n, p = _continued(data, p, n - 16_384)
        if n & 1:
            add_value(None)
        else:
            start, p = p, p + (n >> 1)
            add_value(data[start:p])
        if data[p]:
            with_headers[index], p = _decode_headers(data, p)
        else:
            p += 1
        if p != end:
            raise IndexError(p)
    if p != len(data):
        raise IndexError(p)
    rows = [with_headers.get(index, ()) for index in range(len(keys))] if with_headers else None
    return Block(keys, values, _absolute_times(header, times), rows, _absolute_offsets(header, deltas))


def _decode_headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = _varint(data, position)
    row: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = _varint(data, position)
        if length < 0:
            raise IndexError(position)
        name = data[position : position + length].decode()
        position += length
        length, position = _varint(data, position)
        if length < 0:
            row.append((name, None))
        else:
            row.append((name, data[position : position + length]))
            position += length
    return tuple(row), position


def _absolute_times(header: BatchHeader, deltas: list[int]) -> list[int]:
    if header.attributes & LOG_APPEND_TIME:
        return [header.max_timestamp] * len(deltas)
    base = header.base_timestamp
    return [base + delta for delta in deltas]


def _absolute_offsets(header: BatchHeader, deltas: list[int]) -> Sequence[int]:
    base, count = header.base_offset, len(deltas)
    if deltas == list(range(count)) and count <= header.last_offset_delta + 1:
        return range(base, base + count)
    # Steps below one would be offsets that do not ascend.
    if deltas[0] < 0 or any(map((1).__gt__, map(sub, deltas[1:], deltas))):
        raise CorruptBatchError(f"record batch at offset {base}: the offsets of its records do not ascend")
    if deltas[-1] > header.last_offset_delta:
        raise CorruptBatchError(f"record batch at offset {base}: a record lies behind its last offset")
    return [base + delta for delta in deltas]
