"""Serialization of the records that an operator buffers, with their metadata and headers.

A buffered record is a plain tuple ``(origin, place_ms, timestamp_ms, headers, value, ...)``: the record metadata
(None if unknown), the time that orders the record in the buffer, the record timestamp, the headers, and one or
more values, each of which may be None.  In stores and changelogs it is written as a format mark and MessagePack.
"""

import struct
from typing import Any, TypeAlias

import msgspec

from streams.core.marks import Format, marked
from streams.core.records import Headers, RecordMetadata
from streams.core.serdes import BYTES, Serde
from streams.dsl.operators.portable import portable
from streams.state import KEY_VALUE, StoreSpec

Buffered: TypeAlias = tuple[Any, ...]

_Row: TypeAlias = tuple[tuple[str, int, int] | None, int, int, Headers | None, list[bytes | None]]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Row).decode

#: Positions in a buffered record.
ORIGIN, PLACE, TIME, HEADERS, VALUES = range(5)


_TIME = struct.Struct(">q")
#: Upper bound for record timestamps in epoch milliseconds: the year 10889.
_LAST_MS = 1 << 48


def is_buffer_value(data: bytes) -> bool:
    """Return whether ``data`` looks like a ``BufferValue`` of Kafka Streams, which begins with a timestamp."""
    return len(data) > 2 * _TIME.size and -1 <= _TIME.unpack_from(data)[0] < _LAST_MS


def buffered_serde(own: Format, parts: str, value: Serde[Any]) -> Serde[Buffered]:
    """Return the serde for buffered records, given the serde of their values; ``parts`` becomes part of its name."""
    write_value, read_value = portable(value)

    def write(row: Buffered) -> bytes:
        # A record without headers has None or an empty tuple, depending on its block.
        return _encode((*row[:HEADERS], row[HEADERS] or None, [write_value(item) for item in row[VALUES:]]))

    def read(data: bytes, start: int) -> Buffered:
        origin, place_ms, timestamp_ms, headers, items = _decode(memoryview(data)[start:])
        metadata = None if origin is None else RecordMetadata(*origin)
        return metadata, place_ms, timestamp_ms, headers, *(read_value(item) for item in items)

    return marked(own, parts, write, read, is_immutable=value.is_immutable)


def buffer_spec(
    name: str, own: Format, key_serde: Serde[Any], value_serde: Serde[Any], *, has_changelog: bool = True
) -> StoreSpec:
    """Return the spec of a store of buffered records, with the serdes of the stream or table."""
    return StoreSpec(
        name,
        KEY_VALUE,
        BYTES,
        buffered_serde(own, f"{key_serde.name}:{value_serde.name}", value_serde),
        has_caching=False,
        has_changelog=has_changelog,
    )
