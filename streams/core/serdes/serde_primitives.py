"""Serdes with the same bytes as Kafka's: string, long, integer, double, boolean, bytes, UUID, void.

The serdes are strict in both directions: values are read back equal, and no value is converted to another type (a
bool is not an int). This module imports only ``core.errors`` and ``core.serdes.serde_base``.
"""

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import UUID as Uuid

import msgspec
from msgspec import inspect

from streams.core.errors import SerializationError
from streams.core.serdes.exact_texts import exact_decoder
from streams.core.serdes.serde_base import (
    CODEC_ERRORS,
    Recipe,
    Serde,
    assemble,
    blank,
    fill,
    one_by_one,
    read_error,
    shown,
    type_name,
    write_error,
)


def _named(name: str) -> Recipe:
    return primitive, (name,)


def primitive(name: str) -> Serde[Any]:
    """Return the primitive serde with the given name.

    Raises:
        KeyError: there is no primitive serde with this name.
    """
    return PRIMITIVES[name]


def _expects(what: str) -> Callable[[object], NoReturn]:
    def refuse(value: object) -> NoReturn:
        raise TypeError(f"expected {what}")

    return refuse


def _subclass_of(base: type, what: str) -> Callable[[Any], Any]:
    """Return a function that converts an instance of a subclass to ``base``; it rejects a bool as an int."""

    def convert(value: Any) -> Any:
        if isinstance(value, base) and not isinstance(value, bool):
            return base(value) if base is not str else str.__str__(value)
        raise TypeError(f"expected {what}")

    return convert


def _packed(name: str, exact: type, code: str, size: int, convert: Callable[[Any], Any], expected: str) -> Serde[Any]:
    """Return the serde for numbers with ``size`` big-endian bytes and the given ``struct`` format code.

    These serdes are not created with ``assemble``, because counts and sums call them most often.
    """
    layout = struct.Struct(f">{code}")
    pack = layout.pack
    one = layout.unpack

    def serialize(value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return pack(value if type(value) is exact else convert(value))
        except struct.error as error:
            raise write_error(name, value, f"expected {expected}") from error
        except CODEC_ERRORS as error:
            raise write_error(name, value, error) from error

    def deserialize(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return one(data)[0]
        except struct.error as error:
            raise read_error(name, data, f"expected {size} bytes") from error

    only_exact = {exact}
    exact_or_none = {exact, type(None)}

    def serialize_all(values: Sequence[Any]) -> list[bytes | None]:
        kinds = set(map(type, values))
        try:
            if kinds == only_exact:
                return list(map(pack, values))
            if kinds <= exact_or_none:
                return [None if value is None else pack(value) for value in values]
        except struct.error:
            pass  # Serialize again one by one, so that the message names the value.
        return [serialize(value) for value in values]

    def deserialize_all(column: Sequence[bytes | None]) -> list[Any]:
        try:
            if set(map(len, column)) == {size}:  # type: ignore[arg-type]
                return list(struct.unpack(f">{len(column)}{code}", b"".join(column)))  # type: ignore[arg-type]
        except TypeError:
            pass  # The column contains None.
        return [deserialize(data) for data in column]

    single, columns = (serialize, deserialize), (serialize_all, deserialize_all)
    return fill(blank(Serde), name, _named(name), single, columns, quick=(exact, pack))


def _integer(name: str, code: str, size: int) -> Serde[int]:
    """Return the serde for big-endian two's complement integers of ``size`` bytes."""
    highest = (1 << size * 8 - 1) - 1
    expected = f"int of {size * 8} bits, from {-highest - 1} to {highest}"
    return _packed(name, int, code, size, _subclass_of(int, f"int of {size * 8} bits"), expected)


def _to_double(value: Any) -> float:
    # Type checkers accept an int as a float; an int that a double cannot represent exactly is an error.
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
        if number == value or number != number:
            return number
        raise TypeError("expected float; this int is not exact as a double")
    raise TypeError("expected float")


def _string() -> Serde[str]:
    def decode_all(column: Sequence[bytes | None]) -> list[str | None]:
        try:
            return [None if data is None else data.decode() for data in column]
        except CODEC_ERRORS:
            return [serde.deserialize(data) for data in column]

    serde = assemble(
        blank(Serde),
        "string",
        _named("string"),
        exact=str,
        encode=str.encode,
        decode=bytes.decode,
        convert=_subclass_of(str, "str"),
        decode_all=decode_all,
    )
    return serde


def _boolean() -> Serde[bool]:
    written = {False: b"\x00", True: b"\x01"}
    read = {b"\x00": False, b"\x01": True}

    def decode(data: bytes) -> bool:
        try:
            return read[data]
        except KeyError:
            raise ValueError("expected one byte, 0 or 1") from None

    return assemble(
        blank(Serde),
        "boolean",
        _named("boolean"),
        exact=bool,
        encode=written.__getitem__,
        decode=decode,
        convert=_expects("bool"),
    )


def _bytes() -> Serde[bytes]:
    def identity(data: bytes) -> bytes:
        return data

    def convert(value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise TypeError("expected bytes")

    return assemble(
        blank(Serde),
        "bytes",
        _named("bytes"),
        exact=bytes,
        encode=identity,
        decode=identity,
        convert=convert,
        decode_all=list,
    )


def _uuid() -> Serde[Uuid]:
    def encode(value: Uuid) -> bytes:
        return str(value).encode()

    def decode(data: bytes) -> Uuid:
        if len(data) != 36:
            raise ValueError("expected the 36 characters of a UUID")
        return Uuid(data.decode())

    def convert(value: Any) -> Uuid:
        if isinstance(value, Uuid):
            return value
        raise TypeError("expected UUID")

    return assemble(blank(Serde), "uuid", _named("uuid"), exact=Uuid, encode=encode, decode=decode, convert=convert)


def _datetime() -> Serde[datetime]:
    """Return the serde for datetimes as JSON text.

    Aware datetimes are written in UTC, so that equal keys have equal bytes. Naive datetimes are written without
    an offset and are read back as naive, so that a repartition topic does not change them.
    """
    dump = msgspec.json.encode

    def encode(value: datetime) -> bytes:
        return dump(value if value.tzinfo is None else value.astimezone(UTC))

    def convert(value: Any) -> datetime:
        if isinstance(value, datetime):
            return value
        raise TypeError("expected datetime")

    return assemble(
        blank(Serde),
        "datetime",
        _named("datetime"),
        exact=datetime,
        encode=encode,
        decode=exact_decoder(inspect.type_info(datetime), msgspec.json.Decoder(datetime).decode).one,
        convert=convert,
    )


def _null() -> Serde[None]:
    """Return the serde for None, which can only write None and reads any bytes as None.

    Any bytes can be read because a topic declared without ``key`` may contain keys, which the reader ignores.
    """

    def serialize(value: None) -> bytes | None:
        if value is not None:
            raise SerializationError(
                f"serde 'null' cannot write {shown(value)} of type {type_name(value)}: expected None; "
                "declare key= or value= where it is written"
            )
        return None

    def deserialize(data: bytes | None) -> None:
        return None

    def deserialize_all(column: Sequence[bytes | None]) -> list[None]:
        return [None] * len(column)

    columns = one_by_one(serialize), deserialize_all
    return fill(blank(Serde), "null", _named("null"), (serialize, deserialize), columns)


#: UTF-8 text; malformed bytes and lone surrogates are errors.
STRING: Serde[str] = _string()
#: 64-bit signed big-endian integer; the serde for ``int``.
LONG: Serde[int] = _integer("long", "q", 8)
#: 32-bit signed big-endian integer, as written by Kafka's IntegerSerializer.
INT32: Serde[int] = _integer("int", "i", 4)
#: Big-endian IEEE 754 double; the serde for ``float``.
DOUBLE: Serde[float] = _packed("double", float, "d", 8, _to_double, "float")
#: One byte, 0 or 1.
BOOLEAN: Serde[bool] = _boolean()
#: Unchanged bytes.
BYTES: Serde[bytes] = _bytes()
#: The text of a UUID, as written by Kafka's UUIDSerializer.
UUID: Serde[Uuid] = _uuid()
#: A datetime as JSON text; aware datetimes are in UTC.
DATETIME: Serde[datetime] = _datetime()
#: Always None.
NULL: Serde[None] = _null()

PRIMITIVES: dict[str, Serde[Any]] = {
    serde.name: serde for serde in (STRING, LONG, INT32, DOUBLE, BOOLEAN, BYTES, UUID, DATETIME, NULL)
}
