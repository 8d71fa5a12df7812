"""Serdes with the bytes of Kafka's own: string, long, integer, double, boolean, bytes, UUID, void.

Strict both ways: what they write they read back equal, and nothing is coerced that would
change on the way (a bool is not an int).  Imports serde_base and errors only.
"""

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import UUID as Uuid

import msgspec

from streams.core.errors import SerializationError
from streams.core.serde_base import CODEC_ERRORS, Recipe, Serde, assemble, blank, one_by_one, shown, type_name

_unpack = struct.unpack


def _named(name: str) -> Recipe:
    return primitive, (name,)


def primitive(name: str) -> Serde[Any]:
    """Return the primitive serde of that name.

    Raises:
        KeyError: there is none.
    """
    return PRIMITIVES[name]


def _expects(what: str) -> Callable[[object], NoReturn]:
    def refuse(value: object) -> NoReturn:
        raise TypeError(f"expected {what}")

    return refuse


def _subclass_of(base: type, what: str) -> Callable[[Any], Any]:
    """Accept instances of subclasses as the base type; a bool is no int."""

    def convert(value: Any) -> Any:
        if isinstance(value, base) and not isinstance(value, bool):
            return base(value) if base is not str else str.__str__(value)
        raise TypeError(f"expected {what}")

    return convert


def _integer(name: str, code: str, size: int) -> Serde[int]:
    """Return the serde of big-endian two's complement integers of ``size`` bytes."""
    what = f"int of {size * 8} bits"
    low, high = -(1 << size * 8 - 1), (1 << size * 8 - 1) - 1
    pack = struct.Struct(f">{code}").pack
    from_bytes = int.from_bytes
    one = struct.Struct(f">{code}").unpack

    def encode(value: int) -> bytes:
        try:
            return pack(value)
        except struct.error:
            raise OverflowError(f"expected {what}, from {low} to {high}") from None

    def decode(data: bytes) -> int:
        if len(data) != size:
            raise ValueError(f"expected {size} bytes")
        return from_bytes(data, "big", signed=True)

    def decode_all(column: Sequence[bytes | None]) -> list[int | None]:
        try:
            if set(map(len, column)) == {size}:  # type: ignore[arg-type]
                return list(_unpack(f">{len(column)}{code}", b"".join(column)))  # type: ignore[arg-type]
        except TypeError:
            pass  # There is a None among them.
        try:
            return [None if data is None else one(data)[0] for data in column]
        except struct.error:
            return [serde.deserialize(data) for data in column]

    serde = assemble(
        blank(),
        name,
        _named(name),
        exact=int,
        encode=encode,
        decode=decode,
        convert=_subclass_of(int, what),
        decode_all=decode_all,
    )
    # Blocks pack without the frame of `encode`; its message comes from the retry one by one.
    serde.serialize_all = _packing(int, pack, serde)
    return serde


def _packing(exact: type, pack: Callable[[Any], bytes], serde: Serde[Any]) -> Callable[[Sequence[Any]], list[Any]]:
    """Return the block form of ``struct`` packing."""
    only_exact = {exact}
    exact_or_none = {exact, type(None)}
    serialize = serde.serialize

    def serialize_all(values: Sequence[Any]) -> list[Any]:
        kinds = set(map(type, values))
        try:
            if kinds == only_exact:
                return list(map(pack, values))
            if kinds <= exact_or_none:
                return [None if value is None else pack(value) for value in values]
        except struct.error:
            pass
        return [serialize(value) for value in values]

    return serialize_all


def _double() -> Serde[float]:
    pack = struct.Struct(">d").pack
    one = struct.Struct(">d").unpack

    def convert(value: Any) -> float:
        # Type checkers let an int stand for a float; one that a double cannot hold is refused.
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            number = float(value)
            if number == value or number != number:
                return number
            raise TypeError("expected float; this int is not exact as a double")
        raise TypeError("expected float")

    def decode(data: bytes) -> float:
        if len(data) != 8:
            raise ValueError("expected 8 bytes")
        number: float = one(data)[0]
        return number

    def decode_all(column: Sequence[bytes | None]) -> list[float | None]:
        try:
            if set(map(len, column)) == {8}:  # type: ignore[arg-type]
                return list(_unpack(f">{len(column)}d", b"".join(column)))  # type: ignore[arg-type]
        except TypeError:
            pass  # There is a None among them.
        return [serde.deserialize(data) for data in column]

    serde = assemble(
        blank(),
        "double",
        _named("double"),
        exact=float,
        encode=pack,
        decode=decode,
        convert=convert,
        decode_all=decode_all,
    )
    return serde


def _string() -> Serde[str]:
    def decode_all(column: Sequence[bytes | None]) -> list[str | None]:
        try:
            return [None if data is None else data.decode() for data in column]
        except CODEC_ERRORS:
            return [serde.deserialize(data) for data in column]

    serde = assemble(
        blank(),
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
        blank(),
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
        blank(),
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

    return assemble(blank(), "uuid", _named("uuid"), exact=Uuid, encode=encode, decode=decode, convert=convert)


def _datetime() -> Serde[datetime]:
    """Return the serde of datetimes as JSON text.

    An aware one is written in UTC, so that equal keys have equal bytes; a naive one without
    an offset, and is read back naive, so that a repartition topic changes nothing.
    """
    dump = msgspec.json.encode

    def encode(value: datetime) -> bytes:
        return dump(value if value.tzinfo is None else value.astimezone(UTC))

    def convert(value: Any) -> datetime:
        if isinstance(value, datetime):
            return value
        raise TypeError("expected datetime")

    return assemble(
        blank(),
        "datetime",
        _named("datetime"),
        exact=datetime,
        encode=encode,
        decode=msgspec.json.Decoder(datetime).decode,
        convert=convert,
    )


def _null() -> Serde[None]:
    """Return the serde of what is always None: it writes None only, and reads any bytes as None.

    Reading is lenient because a topic declared without ``key`` may still have keys that its
    reader does not care for.
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

    serde: Serde[None] = blank()
    serde.name = "null"
    serde.is_immutable = True
    serde.key_suffix = 0
    serde.serialize = serialize
    serde.deserialize = deserialize
    serde.serialize_all = one_by_one(serialize)
    serde.deserialize_all = deserialize_all
    serde._recipe = _named("null")
    return serde


#: Text as UTF-8; malformed bytes and lone surrogates are errors.
STRING: Serde[str] = _string()
#: 64-bit signed integer, big-endian: what ``int`` means.
LONG: Serde[int] = _integer("long", "q", 8)
#: 32-bit signed integer, big-endian: Kafka's IntegerSerializer.
INT32: Serde[int] = _integer("int", "i", 4)
#: IEEE 754 double, big-endian: what ``float`` means.
DOUBLE: Serde[float] = _double()
#: One byte, 0 or 1.
BOOLEAN: Serde[bool] = _boolean()
#: Bytes as they are.
BYTES: Serde[bytes] = _bytes()
#: The text of a UUID, as Kafka's UUIDSerializer writes it.
UUID: Serde[Uuid] = _uuid()
#: JSON text of a time: aware ones in UTC.
DATETIME: Serde[datetime] = _datetime()
#: Always None.
NULL: Serde[None] = _null()

PRIMITIVES: dict[str, Serde[Any]] = {
    serde.name: serde for serde in (STRING, LONG, INT32, DOUBLE, BOOLEAN, BYTES, UUID, DATETIME, NULL)
}
