"""Values of stores that keep headers: pairs of a value and the headers of the record that it came from (KIP-1271).

The bytes are those of ``AggregationWithHeaders`` in Kafka Streams: the length of the headers, the headers, the value.
They are in the engine; in the changelog the value is plain, and its headers are those of the record. Of the other
packages, this module imports only ``core``.
"""

from collections.abc import Collection, Sequence
from typing import Generic, NamedTuple, TypeVar

from streams.core.blocks.records import Block, Headers
from streams.core.serdes.serde_base import Serde, blank, one_by_one, read_error, write_error
from streams.core.serdes.serdes import PinnedSerde
from streams.core.serdes.varints import read_varint, varint

V = TypeVar("V")

_NO_HEADERS = b"\x00"
_NO_VALUE = varint(-1)


class ValueAndHeaders(NamedTuple, Generic[V]):
    """A value and the headers of the record that it came from (``AggregationWithHeaders`` in Kafka Streams)."""

    value: V
    headers: Headers = ()


class HeadedSerde(Serde[ValueAndHeaders[V]]):
    """A serde of values with headers; ``inner`` is the serde of the plain values."""

    __slots__ = ("inner",)

    inner: Serde[V]


def headed(inner: Serde[V]) -> HeadedSerde[V]:
    """Return the serde of values with headers, given the serde of plain values."""
    name = f"with_headers:{inner.name}"

    def serialize(pair: ValueAndHeaders[V] | None) -> bytes | None:
        if pair is None:
            return None
        try:
            value, headers = pair
            # The function is read at each call, because a pinned serde changes its functions at its first object.
            data = inner.serialize(value)
            if data is None:
                raise ValueError("the value is None; put None to delete")
            return headers_bytes(headers) + data
        except (TypeError, ValueError, AttributeError) as error:
            raise write_error(
                name, pair, f"expected a value with its headers, which are pairs of a name and bytes or None: {error}"
            ) from error

    def deserialize(data: bytes | None) -> ValueAndHeaders[V] | None:
        if data is None:
            return None
        try:
            headers, start = read_headers(data)
        except (IndexError, UnicodeDecodeError) as error:
            raise read_error(name, data, error) from error
        return tuple.__new__(ValueAndHeaders, (inner.deserialize(data[start:]), headers))

    serde: HeadedSerde[V] = blank(HeadedSerde)
    serde.name = name
    serde.inner = inner
    # The type of undeclared values is not known yet.
    serde.is_immutable = inner.is_immutable and not isinstance(inner, PinnedSerde)
    serde.key_suffix = 0
    serde.serialize = serialize
    serde.deserialize = deserialize
    serde.serialize_all = one_by_one(serialize)
    serde.deserialize_all = one_by_one(deserialize)
    serde._recipe = (headed, (inner,))
    return serde


def headers_bytes(headers: Headers) -> bytes:
    """Return headers in the layout of Kafka Streams' stores: the length of what follows, the number, the headers."""
    if not headers:
        return _NO_HEADERS
    parts = [varint(len(headers))]
    for name, content in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        parts += (_NO_VALUE,) if content is None else (varint(len(content)), content)
    body = b"".join(parts)
    return varint(len(body)) + body


def read_headers(data: bytes) -> tuple[Headers, int]:
    """Return the headers at the start of a stored value, and the place of the plain value after them.

    Raises:
        IndexError: the bytes end within the headers.
        UnicodeDecodeError: a name is not UTF-8.
    """
    size, place = read_varint(data)
    if not size:
        return (), place
    end = place + size
    count, place = read_varint(data, place)
    headers = []
    for _ in range(count):
        length, place = read_varint(data, place)
        name = data[place : place + length].decode()
        place = place + length
        length, place = read_varint(data, place)
        content = None if length < 0 else data[place : place + length]
        place += max(length, 0)
        headers.append((name, content))
    if place != end or end > len(data):
        raise IndexError(f"headers of {size} bytes end at byte {place}, in {len(data)} bytes")
    return tuple(headers), end


def split(values: Sequence[bytes | None]) -> tuple[list[bytes | None], list[Headers]]:
    """Return stored values as those of the changelog: plain values, and the headers of their records."""
    plain: list[bytes | None] = []
    headers: list[Headers] = []
    for data in values:
        record_headers, start = ((), 0) if data is None else read_headers(data)
        plain.append(None if data is None else data[start:])
        headers.append(record_headers)
    return plain, headers


def joined(block: Block, own: Collection[str]) -> Block:
    """Return changelog records with the values that a store keeps; headers with ``own`` names are not of the values."""
    rows = block.headers or [()] * len(block)
    values = [
        None if data is None else headers_bytes(tuple(header for header in headers if header[0] not in own)) + data
        for data, headers in zip(block.values, rows, strict=True)
    ]
    return block.with_values(values)
