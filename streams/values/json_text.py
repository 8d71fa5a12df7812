"""Keys and values of a topic in files: conversion between serialized bytes and JSON, text or rows.

A ``Form`` represents the keys or the values of one topic.  Bytes that JSON cannot represent, and
bytes that a serde cannot read, are written as ``{"$hex": "00ff"}``; a windowed key is written as
``{"key": K, "start": MS, "end": MS}``.
"""

import math
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
from attrs import frozen
from msgspec import inspect

from streams.core.blocks.records import Window, Windowed
from streams.core.errors import SerializationError
from streams.core.serdes.serde_json import is_untyped
from streams.core.serdes.serde_models import shape_of
from streams.core.serdes.serdes import (
    BOOLEAN,
    BYTES,
    DATETIME,
    DOUBLE,
    INT32,
    LONG,
    NULL,
    STRING,
    UUID,
    FormatSerde,
    Serde,
    WindowedSerde,
    canonical_json,
    serde_for,
)
from streams.values.cells import cell_converter

#: Exceptions that msgspec and serdes raise on bad input.
BAD_INPUT = (SerializationError, msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)

_TYPES: dict[Serde[Any], type] = {STRING: str, LONG: int, INT32: int, DOUBLE: float, BOOLEAN: bool, UUID: uuid.UUID}

_encode = msgspec.json.encode
_decode = msgspec.json.decode


class Hex(msgspec.Struct, forbid_unknown_fields=True, rename={"hex": "$hex"}):
    """The JSON representation of bytes that are not valid text: ``{"$hex": "00ff"}``."""

    hex: str

    def data(self) -> bytes:
        """Return the decoded bytes.

        Raises:
            ValueError: the text is not hexadecimal.
        """
        try:
            return bytes.fromhex(self.hex)
        except ValueError as error:
            raise ValueError(f"$hex {self.hex[:40]!r} is not hexadecimal: {error}") from None


class _WindowedKey(msgspec.Struct, forbid_unknown_fields=True):
    key: msgspec.Raw
    start: int
    end: int


_read_hex = msgspec.json.Decoder(Hex).decode
_read_text = msgspec.json.Decoder(str).decode
_read_windowed = msgspec.json.Decoder(_WindowedKey).decode


def hex_json(data: bytes) -> bytes:
    r"""Return bytes as JSON.

    >>> hex_json(b"\x00\xff")
    b'{"$hex":"00ff"}'
    """
    return b'{"$hex":"%b"}' % data.hex().encode()


def text_or_hex_json(data: bytes) -> bytes:
    """Return bytes without a known type as JSON: as text if they are UTF-8, otherwise as hex."""
    try:
        return _encode(data.decode())
    except UnicodeDecodeError:
        return hex_json(data)


@frozen
class Form:
    """Conversions for the keys or the values of a topic; ``serde`` is None if the topic is not declared.

    ``is_json`` is set if the serialized bytes are JSON; ``from_json`` returns such bytes unchanged and
    unchecked.  All functions except ``to_json`` may raise the exceptions in ``BAD_INPUT``.
    """

    serde: Serde[Any] | None
    is_json: bool
    #: Converts one JSON text to serialized bytes.
    from_json: Callable[[bytes], bytes | None]
    #: Converts a value of a column or of a database, or a row as a dict, to serialized bytes.
    from_object: Callable[[Any], bytes | None]
    #: Converts a text, or a row of cells as a dict, to serialized bytes: it has numbers as text.
    from_cells: Callable[[Any], bytes | None]
    #: Converts serialized bytes to one JSON text; never raises.
    to_json: Callable[[bytes | None], bytes]

    def all_from_json(self, texts: Sequence[bytes]) -> list[bytes | None]:
        """Convert many JSON texts to serialized bytes."""
        if self.is_json and self.serde is not None:
            return [None if text == b"null" else text for text in texts]
        return list(map(self.from_json, texts))

    @property
    def declared(self) -> Any:
        """The type of the objects, as ``object_type`` has it; ``Any`` if it is not known."""
        kind = None if self.serde is None else object_type(self.serde)
        return Any if kind is None else kind[0]

    @property
    def is_untyped(self) -> bool:
        """Whether any JSON value, or any object or array, is of this type."""
        return self.serde is None or (
            self.is_json and serde_for(self.declared) is self.serde and is_untyped(inspect.type_info(self.declared))
        )

    @property
    def info(self) -> inspect.Type:
        """Msgspec's description of the type to which rows are converted; that of ``Any`` if there is none."""
        kind = None if self.serde is None else row_type(self.serde)
        return inspect.type_info(Any if kind is None else kind[0])

    def check(self, column: Sequence[bytes | None]) -> list[Any]:
        """Deserialize a column, to check that the serde can read it."""
        return list(column) if self.serde is None else self.serde.deserialize_all(column)


def form_of(serde: Serde[Any] | None) -> Form:
    """Return the ``Form`` that converts the keys or values of a serde."""
    if serde is None or serde is NULL:
        return _form(serde, _unknown_from_json, _unknown_from_object, text_or_hex_json)
    if isinstance(serde, WindowedSerde):
        return _form(serde, _windowed_reader(serde), serde.serialize, _windowed_writer(serde))
    if serde is BYTES:
        return _form(serde, _bytes_from_json, _bytes_from_object, hex_json)
    kind = json_type(serde)
    serialize, deserialize = serde.serialize, serde.deserialize
    if kind is not None:
        return Form(serde, True, _null_or_same, *_converters(serde, kind[0], deserialize), _json_writer)
    if isinstance(serde, FormatSerde):
        own = serde.format
        kind = row_type(serde)
        read_json = own.from_json if kind is None else serde_for(own.form).deserialize
        of_objects, of_cells = _converters(serde, Any if kind is None else kind[0], read_json)
        return _form(
            serde,
            lambda text: serialize(own.from_json(text)),
            of_objects,
            lambda data: own.to_json(deserialize(data)),
            of_cells,
        )
    plain = _TYPES.get(serde)
    if plain is None:
        convert = _plain_converter(serde)
        return _form(serde, lambda text: convert(_decode(text)), convert, _object_writer(serde))
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(plain).decode
    of_objects, of_cells = _converters(serde, plain, deserialize)
    return _form(serde, lambda text: serialize(decode(text)), of_objects, _object_writer(serde), of_cells)


def _form(
    serde: Serde[Any] | None,
    from_json: Callable[[bytes], bytes | None],
    from_object: Callable[[Any], bytes | None],
    to_json: Callable[[bytes], bytes],
    from_cells: Callable[[Any], bytes | None] | None = None,
) -> Form:
    """Return the form of bytes that are not JSON; where they are no value, they are ``{"$hex": ...}``."""

    def read(text: bytes) -> bytes | None:
        if text == b"null":
            return None
        if b'"$hex"' in text:
            with suppress(msgspec.ValidationError):
                data = _read_hex(text).data()
                if serde is not None and serde is not NULL:
                    serde.deserialize(data)
                return data
        return from_json(text)

    def write(data: bytes | None) -> bytes:
        if data is None:
            return b"null"
        try:
            return to_json(data)
        except BAD_INPUT:
            return hex_json(data)

    return Form(serde, False, read, from_object, from_cells or from_object, write)


def json_type(serde: Serde[Any]) -> tuple[Any] | None:
    """Return the type of a serde whose bytes are JSON, as a 1-tuple, or None for any other serde.

    The type is one that msgspec supports: pydantic models are replaced by generated structs
    (``core.serdes.serde_models``).
    """
    if serde is DATETIME:
        from datetime import datetime

        return (datetime,)
    maker, arguments = serde.__reduce__()
    return (_shape(arguments[0]),) if maker is serde_for else None


def _shape(form: Any) -> Any:
    try:
        return _cached_shape(form)
    except TypeError:  # An unhashable form.
        return shape_of(form)


_cached_shape = cache(shape_of)


def row_type(serde: Serde[Any]) -> tuple[Any] | None:
    """Return the type of the objects of a serde of JSON or of a format, to which rows are converted, as a 1-tuple."""
    if not isinstance(serde, FormatSerde):
        return json_type(serde)
    form = serde.format.form
    shape = None if form is None else _shape(form)
    # A message of Protobuf is no type of msgspec.
    return None if form is None or isinstance(inspect.type_info(shape), inspect.CustomType) else (shape,)


def object_type(serde: Serde[Any]) -> tuple[Any] | None:
    """Return the type of the objects of a serde, as a 1-tuple; None for bytes, windowed keys and custom serdes."""
    plain = _TYPES.get(serde)
    return row_type(serde) if plain is None else (plain,)


# Undeclared keys and values, and those declared as None whose bytes another program has written.


def _unknown_from_json(text: bytes) -> bytes | None:
    return _unknown_from_object(_decode(text))


def _unknown_from_object(value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    return value.encode() if type(value) is str else canonical_json(value)


def _bytes_from_json(text: bytes) -> bytes | None:
    try:
        return _read_text(text).encode()
    except msgspec.ValidationError:
        raise ValueError('expected bytes as {"$hex": "00ff"} or a string') from None


def _bytes_from_object(value: Any) -> bytes | None:
    return value.encode() if type(value) is str else BYTES.serialize(value)


# JSON.


def _null_or_same(text: bytes) -> bytes | None:
    return None if text == b"null" else text


def _json_writer(data: bytes | None) -> bytes:
    if data is None:
        return b"null"
    try:
        _decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return text_or_hex_json(data)
    # JSON from another program may have several lines.
    return data if b"\n" not in data and b"\r" not in data else msgspec.json.format(data, indent=-1)


# Types with Kafka's own encoding, and user serdes.


def _plain_converter(serde: Serde[Any]) -> Callable[[Any], bytes | None]:
    """Return a function that converts JSON values to the bytes of a custom serde."""
    serialize, from_plain = serde.serialize, serde.from_plain
    if from_plain is not None:
        return lambda value: None if value is None else serialize(from_plain(value))

    def convert(value: Any) -> bytes | None:
        try:
            return serialize(value)
        except SerializationError as error:
            if isinstance(value, (dict, list)):
                # The bytes of the serde may be JSON themselves.
                with suppress(SerializationError):
                    return serialize(serde.deserialize(canonical_json(value)))
            raise SerializationError(
                f"{error} (the serde gets plain JSON values here; if it expects objects, give it from_plain=)"
            ) from error

    return convert


def _object_writer(serde: Serde[Any]) -> Callable[[bytes], bytes]:
    deserialize = serde.deserialize
    to_plain = serde.to_plain or _plain
    may_be_nan = serde is DOUBLE

    def to_json(data: bytes) -> bytes:
        try:
            value: Any = deserialize(data)
            if may_be_nan and not math.isfinite(value):
                return hex_json(data)
            return _encode(to_plain(value))
        except Exception:  # noqa: BLE001 - a user serde may raise anything; the bytes are shown instead.
            return _json_or_hex(data)

    return to_json


def _json_or_hex(data: bytes) -> bytes:
    """Return bytes unchanged if they are a JSON object or array; otherwise return their hex representation."""
    try:
        return _json_writer(data) if isinstance(_decode(data), (dict, list)) else hex_json(data)
    except (msgspec.MsgspecError, RecursionError):
        return hex_json(data)


def _plain(value: Any) -> Any:
    """Return a deserialized value of an undeclared type as it is represented in files."""
    if isinstance(value, Windowed):
        return {"key": _plain(value.key), "start": value.window.start_ms, "end": value.window.end_ms}
    return {"$hex": value.hex()} if isinstance(value, bytes) else value


# Windowed keys.


def _windowed_reader(serde: WindowedSerde[Any]) -> Callable[[bytes], bytes | None]:
    inner = form_of(serde.inner)

    def from_json(text: bytes) -> bytes | None:
        try:
            parts = _read_windowed(text)
        except msgspec.ValidationError as error:
            raise ValueError(f'expected a windowed key {{"key": K, "start": MS, "end": MS}}: {error}') from None
        key = serde.inner.deserialize(inner.from_json(bytes(parts.key)))
        data = serde.serialize(Windowed(key, Window(parts.start, parts.end)))
        written = serde.deserialize(data)
        if written is not None and written.window.end_ms != parts.end:
            raise ValueError(f"window {parts.start}..{parts.end}: the topic's windows end at {written.window.end_ms}")
        return data

    return from_json


def _windowed_writer(serde: WindowedSerde[Any]) -> Callable[[bytes], bytes]:
    inner = form_of(serde.inner)
    suffix = serde.key_suffix

    def to_json(data: bytes) -> bytes:
        windowed = serde.deserialize(data)
        assert windowed is not None, "only None reads as None"
        window = windowed.window
        return b'{"key":%b,"start":%d,"end":%d}' % (inner.to_json(data[:-suffix]), window.start_ms, window.end_ms)

    return to_json


# Rows and lines of text.


def _converters(
    serde: Serde[Any], kind: Any, read_json: Callable[[bytes], Any]
) -> tuple[Callable[[Any], bytes | None], Callable[[Any], bytes | None]]:
    """Return the functions that convert objects, and cells of text, or rows of them as dicts, to bytes."""
    serialize = serde.serialize
    is_own = serde.format.form is kind if isinstance(serde, FormatSerde) else serde_for(kind) is serde
    if kind is str or (is_own and is_untyped(inspect.type_info(kind))):
        return serialize, serialize

    def converter(read: Callable[[Any], Any]) -> Callable[[Any], bytes | None]:
        def typed(value: Any) -> bytes | None:
            if value is None:
                return None
            row = read(value)
            return serialize(row if is_own else read_json(canonical_json(row)))

        return typed

    return converter(cell_converter(kind, strict=True)), converter(cell_converter(kind))
