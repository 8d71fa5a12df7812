"""Encoding and decoding of the records in a batch, in plain Python.

These functions are the hot loops of the protocol.  ``compiled_codec`` must produce the same results, byte for byte;
no other module depends on the record layout (Kafka's protocol guide, "Record").  ``record_codec`` selects one of
the two modules.
"""

from collections.abc import Sequence
from typing import NamedTuple

from streams.core.blocks.records import Block, Headers


class Columns(NamedTuple):
    """Decoded record columns; ``offset_deltas`` is None if the offset deltas are 0, 1, 2, ..."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers] | None
    offset_deltas: list[int] | None


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
    """Zigzag varints by number, which are cached for small numbers and computed for others.

    This is a dict rather than a list, because a negative delta must not index from the end.
    """

    def __missing__(self, number: int) -> bytes:
        encoded = _zigzag_varint(number)
        if -1024 <= number < 65_536:
            self[number] = encoded
        return encoded


_VARINTS = _Varints()


def _continued(data: bytes, position: int, low: int) -> tuple[int, int]:
    """Read the rest of a varint whose first byte has the bits ``low``.

    Returns the value and the position after it.
    """
    result, shift = low, 7
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, position
        shift += 7
        if shift > 63:
            raise ValueError("an integer of more than 10 bytes")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Read one zigzag varint; return the value and the position after it."""
    raw = data[position]
    position += 1
    if raw > 127:
        raw, position = _continued(data, position, raw & 127)
    return (raw >> 1) ^ -(raw & 1), position


# --- encoding -----------------------------------------------------------------------------


def encode_records(block: Block, base_timestamp: int, deltas: Sequence[int]) -> bytes:
    """Encode the records of a block, without the batch header.

    ``deltas`` are the offsets of the records relative to the base offset of the batch.
    """
    if block.headers is None:
        return _encode_plain(block, base_timestamp, deltas)
    return _encode_with_headers(block, base_timestamp, deltas)


def record_size(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Return the encoded size in bytes of a record, if it is the first record of a batch."""
    length = 3 + _sized_length(key) + _sized_length(value) + len(_VARINTS[len(headers)])
    for name, content in headers:
        length += _sized_length(name.encode()) + _sized_length(content)
    return len(_VARINTS[length]) + length


def _sized_length(data: bytes | None) -> int:
    return 1 if data is None else len(_VARINTS[len(data)]) + len(data)


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
    varints, join = _VARINTS, b"".join
    # Records from one source often have the same headers.
    sections: dict[Headers, bytes] = {(): b"\0"}
    parts: list[bytes] = []
    append = parts.append
    columns = zip(block.keys, block.values, block.timestamps, block.headers, deltas, strict=True)
    for key, value, timestamp, headers, delta in columns:
        if key is None:
            key_length, key = b"\x01", b""
        else:
            key_length = varints[len(key)]
        if value is None:
            value_length, value = b"\x01", b""
        else:
            value_length = varints[len(value)]
        try:
            section = sections.get(headers)
            if section is None:
                section = sections[headers] = encode_headers(headers)
        except TypeError:
            # Lists and bytearrays are valid too, but cannot be cached.
            section = encode_headers(headers)
        body = join(
            (b"\0", varints[timestamp - base_timestamp], varints[delta], key_length, key, value_length, value, section)
        )
        append(varints[len(body)])
        append(body)
    return join(parts)


def encode_headers(headers: Headers) -> bytes:
    """Encode the headers of a record, preceded by their count."""
    parts = [_VARINTS[len(headers)]]
    for name, content in headers:
        parts += (_sized(name.encode()), _sized(content))
    return b"".join(parts)


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else _VARINTS[len(data)] + data


# --- decoding -----------------------------------------------------------------------------


def decode_records(data: bytes, count: int, base_timestamp: int) -> Columns:
    """Decode the records of a batch; ``data`` must contain exactly ``count`` records.

    Raises:
        IndexError: a length is wrong, or bytes are left over.
        ValueError: a number is too long, or a header name is not UTF-8.
    """
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    times: list[int] = []
    # Deltas in zigzag form, doubled; collected only if they are not consecutive.
    deltas: list[int] | None = None
    with_headers: dict[int, Headers] = {}
    sections: dict[bytes, Headers] = {}
    add_key, add_value, add_time = keys.append, values.append, times.append
    p = 0
    # One-byte varints are read inline: a function call for each would double the time.
    for twice in range(0, 2 * count, 2):
        n, p = data[p], p + 1
        if n > 127:
            n, p = _continued(data, p, n & 127)
        end = p + (n >> 1 ^ -(n & 1))
        # The record attributes byte is skipped, because it is unused so far.
        n, p = data[p + 1], p + 2
        if n > 127:
            n, p = _continued(data, p, n & 127)
        add_time(n)
        n, p = data[p], p + 1
        if n > 127:
            n, p = _continued(data, p, n & 127)
        if n != twice and deltas is None:
            deltas = list(range(0, twice, 2))
        if deltas is not None:
            deltas.append(n)
        n, p = data[p], p + 1
        if n > 127:
            n, p = _continued(data, p, n & 127)
        if n & 1:
            add_key(None)
        else:
            start, p = p, p + (n >> 1)
            add_key(data[start:p])
        n, p = data[p], p + 1
        if n > 127:
            n, p = _continued(data, p, n & 127)
        if n & 1:
            add_value(None)
        else:
            start, p = p, p + (n >> 1)
            add_value(data[start:p])
        if data[p]:
            # The headers: records often have the same headers, so the decoded ones are cached by their bytes.
            section, p = data[p:end], end
            row = sections.get(section)
            if row is None:
                row = sections[section] = decode_headers(section)
            with_headers[twice >> 1] = row
        else:
            p += 1
        if p != end:
            raise IndexError(p)
    if p != len(data):
        raise IndexError(p)
    return Columns(
        keys,
        values,
        [base_timestamp + (n >> 1 ^ -(n & 1)) for n in times],
        [with_headers.get(index, ()) for index in range(count)] if with_headers else None,
        None if deltas is None else [n >> 1 ^ -(n & 1) for n in deltas],
    )


def check_records(data: bytes, position: int, count: int) -> None:
    """Check that the bytes from ``position`` on are ``count`` valid records with the offset deltas 0, 1, 2, ...

    Raises:
        IndexError: a length is wrong, or bytes are left over.
        ValueError: a number is too long, a header name is not UTF-8, or an offset delta is wrong.
    """
    columns = decode_records(data[position:], count, 0)
    if columns.offset_deltas is not None:
        raise ValueError("offsets that do not count through")


def decode_headers(data: bytes) -> Headers:
    """Decode record headers; ``data`` must contain nothing else."""
    count, position = _varint(data, 0)
    if count < 0:
        raise IndexError(position)
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
    if position != len(data):
        raise IndexError(position)
    return tuple(row)
