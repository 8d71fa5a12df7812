"""Serialization of the records that an operator buffers, with their metadata and headers.

A buffered record is a plain tuple ``(origin, place_ms, timestamp_ms, headers, value, ...)``: the record metadata
(None if unknown), the time that orders the record in the buffer, the record timestamp, the headers, and one or
more values, each of which may be None.

Operators of Kafka Streams have its bytes in stores and changelogs (``BufferValue``): the record context (timestamp,
offset, topic, partition, headers), the value before the first buffered change, the old and the new value, and the
time that orders the record.  Lengths and numbers are big-endian, -1 is the length of None, and an old value of length
-2 equals the first.  Operators that only this library has write a format mark and MessagePack.
"""

from struct import Struct, error
from typing import Any, TypeAlias

import msgspec

from streams.core.blocks.marks import Format, KafkaFormat, marked, unmarked
from streams.core.blocks.records import Headers, RecordMetadata
from streams.core.serdes.serdes import BYTES, Serde
from streams.dsl.processing.portable import portable
from streams.state import KEY_VALUE, StoreSpec, Upgrades

Buffered: TypeAlias = tuple[Any, ...]

_Row: TypeAlias = tuple[tuple[str, int, int] | None, int, int, Headers | None, list[bytes | None]]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Row).decode

#: Positions in a buffered record.
ORIGIN, PLACE, TIME, HEADERS, VALUES = range(5)

_LENGTH = Struct(">i")
_PLACE = Struct(">q")
#: Timestamp, offset and length of the topic; partition and number of headers.
_HEAD = Struct(">qqi")
_MIDDLE = Struct(">ii")
_NONE = _LENGTH.pack(-1)
_SAME = -2
#: A record that a punctuation forwarded has no metadata.
_NO_ORIGIN = RecordMetadata("", -1, -1)


def _sized(data: bytes | None) -> bytes:
    return _NONE if data is None else _LENGTH.pack(len(data)) + data


def unsized(data: bytes, place: int) -> tuple[bytes | None, int]:
    """Return the bytes with a length at ``place``, None for length -1, and the place behind them."""
    (size,) = _LENGTH.unpack_from(data, place)
    start = place + _LENGTH.size
    stop = place + _LENGTH.size + max(size, 0)
    if size < -1 or stop > len(data):
        raise ValueError(f"a length of {size} at byte {place}")
    return None if size < 0 else data[start:stop], stop


def written(row: Buffered) -> bytes:
    """Return a buffered record, whose three values are bytes, as Kafka Streams writes it."""
    topic, partition, offset = row[ORIGIN] or _NO_ORIGIN
    name = topic.encode()
    headers = row[HEADERS] or ()
    prior, old, new = row[VALUES:]
    parts = [_HEAD.pack(row[TIME], offset, len(name)), name, _MIDDLE.pack(partition, len(headers))]
    parts += [_sized(key.encode()) + _sized(content) for key, content in headers]
    parts += (_sized(prior), _LENGTH.pack(_SAME) if old is not None and old == prior else _sized(old), _sized(new))
    return b"".join(parts) + _PLACE.pack(row[PLACE])


def parsed(data: bytes) -> Buffered:
    """Return the buffered record that Kafka Streams has written as these bytes; its three values are bytes.

    Raises:
        ValueError, struct.error: the bytes are something else.
    """
    (origin, timestamp_ms, headers), place = parsed_context(data, 0)
    prior, place = unsized(data, place)
    if _LENGTH.unpack_from(data, place)[0] == _SAME:
        old = prior
        place = place + _LENGTH.size
    else:
        old, place = unsized(data, place)
    new, place = unsized(data, place)
    if place + _PLACE.size != len(data):
        raise ValueError(f"{len(data) - place} bytes behind the values")
    return origin, _PLACE.unpack_from(data, place)[0], timestamp_ms, headers, prior, old, new


def parsed_context(data: bytes, place: int) -> tuple[tuple[RecordMetadata | None, int, Headers | None], int]:
    """Return metadata, timestamp and headers of a record context at ``place``, and the place behind it."""
    timestamp_ms, offset, _ = _HEAD.unpack_from(data, place)
    name, place = unsized(data, place + _HEAD.size - _LENGTH.size)
    partition, count = _MIDDLE.unpack_from(data, place)
    place += _MIDDLE.size
    headers = []
    # A count of -1 is an older form of 0.
    for _ in range(count):
        key, place = unsized(data, place)
        content, place = unsized(data, place)
        headers.append(((key or b"").decode(), content))
    origin = RecordMetadata(name.decode(), partition, offset) if name else None
    return (origin, timestamp_ms, tuple(headers) or None), place


def _is_buffer_value(data: bytes) -> bool:
    try:
        parsed(data)
    except (ValueError, error):
        return False
    return True


#: Header of each change of ``suppress`` in the changelog, but of deletions: the version of the layout.
_VERSION: Headers = (("v", b"\x03"),)
SUPPRESSED_CHANGE = KafkaFormat("suppressed change", "BufferValue", _is_buffer_value)
WAITING_RECORD = KafkaFormat("record that waits for its table", "BufferValue", _is_buffer_value)


def _packed_serde(own: Format, parts: str, value: Serde[Any]) -> Serde[Buffered]:
    """Return the serde for buffered records in MessagePack; ``parts`` becomes part of its name."""
    write_value, read_value = portable(value)

    def write(row: Buffered) -> bytes:
        # A record without headers has None or an empty tuple, depending on its block.
        return _encode((*row[:HEADERS], row[HEADERS] or None, [write_value(item) for item in row[VALUES:]]))

    def read(data: bytes, start: int) -> Buffered:
        origin, place_ms, timestamp_ms, headers, items = _decode(memoryview(data)[start:])
        metadata = None if origin is None else RecordMetadata(*origin)
        return metadata, place_ms, timestamp_ms, headers, *(read_value(item) for item in items)

    return marked(own, parts, write, read, is_immutable=value.is_immutable)


def _kafka_serde(own: KafkaFormat, parts: str, value: Serde[Any]) -> Serde[Buffered]:
    """Return the serde for buffered records with the bytes of Kafka Streams; ``parts`` becomes part of its name."""
    write_value, read_value = portable(value)

    def write(row: Buffered) -> bytes:
        return written((*row[:VALUES], *(write_value(item) for item in row[VALUES:])))

    def read(data: bytes) -> Buffered:
        row = parsed(data)
        return *row[:VALUES], *(read_value(item) for item in row[VALUES:])

    return unmarked(own, parts, write, read, is_immutable=value.is_immutable)


def buffer_spec(
    name: str,
    own: Format | KafkaFormat,
    key_serde: Serde[Any],
    value_serde: Serde[Any],
    *,
    has_changelog: bool = True,
    upgrades: Upgrades | None = None,
) -> StoreSpec:
    """Return the spec of a store of buffered records, with the serdes of the stream or table."""
    parts = f"{key_serde.name}:{value_serde.name}"
    if isinstance(own, Format):
        serde = _packed_serde(own, parts, value_serde)
    else:
        serde = _kafka_serde(own, parts, value_serde)
    return StoreSpec(
        name,
        KEY_VALUE,
        BYTES,
        serde,
        has_caching=False,
        has_changelog=has_changelog,
        changelog_headers=_VERSION if own is SUPPRESSED_CHANGE else (),
        upgrades=upgrades,
        is_buffer=True,
    )
