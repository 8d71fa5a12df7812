"""Parquet columns for the types of a topic.

This module converts between a topic's serdes and pyarrow.  Kafka's plain types, and classes with such fields, become
columns, structs, lists and maps; types without fixed columns (plain dicts and lists, unions, JSON) become text that is
marked as JSON, by Arrow's type ``arrow.json``, so that readers do not take it for a ``str``.
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from typing import Any

import msgspec
from attrs import evolve, frozen
from msgspec import inspect

from streams.core.errors import SerializationError
from streams.core.serdes.serdes import BYTES, INT32, UUID, FormatSerde, Serde, WindowedSerde, serde_for
from streams.values.json_text import form_of, json_type, object_type, row_type
from streams.values.rule import extra_of, plain_member, rule_of, stored_type, without_zone


@frozen
class ArrowColumn:
    """A pyarrow type, and the conversions of serialized and deserialized keys or values to values of this type."""

    type: Any
    values: Callable[[Sequence[bytes | None]], list[Any]]
    of_objects: Callable[[Sequence[Any]], list[Any]]


@frozen
class _ArrowForm:
    """A pyarrow type, and a conversion from msgspec builtins to a value of this type."""

    type: Any
    convert: Callable[[Any], Any]


def arrow_column(serde: Serde[Any] | None) -> ArrowColumn:
    """Return the Arrow column for a topic's keys or values; if ``serde`` is None, it has serialized bytes."""
    import pyarrow as pa

    if serde is None:
        return ArrowColumn(pa.binary(), list, list)
    if isinstance(serde, WindowedSerde):
        return _windowed(serde)
    if isinstance(serde, FormatSerde) and row_type(serde) is not None:
        own = arrow_column(serde_for(serde.format.form))
        return _column(serde, own.type, own.of_objects)
    kind = json_type(serde)
    if kind is not None:
        form = _structured(inspect.type_info(kind[0]))
        return _json(serde) if form is None else _objects(serde, serde_for(kind[0]), form)
    plain = (bytes,) if serde is BYTES else object_type(serde)
    form = None if plain is None else _structured(inspect.type_info(plain[0]))
    if form is None:
        return _json(serde)
    return _column(serde, pa.int32() if serde is INT32 else form.type, _texts if serde is UUID else list)


def _column(serde: Serde[Any], kind: Any, of_objects: Callable[[Sequence[Any]], list[Any]]) -> ArrowColumn:
    return ArrowColumn(kind, lambda column: of_objects(serde.deserialize_all(column)), of_objects)


def _windowed(serde: WindowedSerde[Any]) -> ArrowColumn:
    import pyarrow as pa

    inner = arrow_column(serde.inner)

    def of_objects(column: Sequence[Any]) -> list[Any]:
        keys = inner.of_objects([None if windowed is None else windowed.key for windowed in column])
        return [
            None if windowed is None else {"key": key, "start": windowed.window.start_ms, "end": windowed.window.end_ms}
            for key, windowed in zip(keys, column, strict=True)
        ]

    return _column(serde, pa.struct({"key": inner.type, "start": pa.int64(), "end": pa.int64()}), of_objects)


def _json(serde: Serde[Any]) -> ArrowColumn:
    import pyarrow as pa

    to_json = form_of(serde).to_json

    def values(column: Sequence[bytes | None]) -> list[Any]:
        return [None if data is None else to_json(data).decode() for data in column]

    return ArrowColumn(pa.json_(), values, lambda column: values(serde.serialize_all(column)))


#: Types that msgspec leaves unchanged, because Arrow has them too.
_KEPT = (datetime, date, time, bytes, bytearray, Decimal)


def _objects(serde: Serde[Any], plain: Serde[Any], form: _ArrowForm) -> ArrowColumn:
    """Return a column of structs; ``plain`` deserializes the bytes of ``serde`` to objects that msgspec supports."""
    builtins = partial(msgspec.to_builtins, builtin_types=_KEPT)
    column = _column(
        plain, form.type, lambda values: [None if value is None else form.convert(builtins(value)) for value in values]
    )
    if plain is serde:
        return column
    return evolve(column, of_objects=lambda values: column.values(serde.serialize_all(values)))


def _texts(values: Sequence[Any]) -> list[Any]:
    return [None if value is None else str(value) for value in values]


def _json_text(value: Any) -> Any:
    return None if value is None else msgspec.json.encode(value).decode()


def _key_text(key: Any) -> str:
    """Return a key of a dict as text, as in JSON."""
    return key if type(key) is str else str(msgspec.to_builtins(key))


def _same(value: Any) -> Any:
    return value


def _structured(info: Any, depth: int = 0) -> _ArrowForm | None:
    """Return the Arrow type and conversion for a type with fixed columns, or None if it is written as JSON text."""
    import pyarrow as pa

    extra = extra_of(info)
    info = plain_member(info)
    rule = rule_of(info)
    if rule is not None:
        kind: Any = None if rule.arrow is None else rule.arrow(pa)
        if isinstance(info, inspect.DecimalType):
            return _decimal(int(extra.get("precision", kind.precision)), int(extra.get("scale", kind.scale)))
        return None if kind is None else _ArrowForm(kind, _time_of_day if isinstance(info, inspect.TimeType) else _same)
    if depth > 8:  # The type is recursive.
        return None
    if isinstance(info, inspect.DictType):
        return _map(info, depth)
    if hasattr(info, "item_type"):
        # A set is written as a list too.
        item = _structured(info.item_type, depth + 1)
        return item and _ArrowForm(
            pa.list_(item.type),
            lambda values: None if values is None else [item.convert(value) for value in values],
        )
    fields = getattr(info, "fields", ())
    if not fields or getattr(info, "array_like", False) or getattr(info, "tag", None) is not None:
        return None
    parts = {
        part.encode_name: _structured(part.type, depth + 1) or _ArrowForm(pa.json_(), _json_text) for part in fields
    }

    def convert(value: Any) -> Any:
        if value is None:
            return None
        # A named tuple is an array in JSON.
        values = value if isinstance(value, dict) else dict(zip(parts, value, strict=True))
        return {name: part.convert(values.get(name)) for name, part in parts.items()}

    return _ArrowForm(pa.struct({name: part.type for name, part in parts.items()}), convert)


def _time_of_day(value: Any) -> Any:
    try:
        return None if value is None else without_zone(value)
    except ValueError as error:
        raise SerializationError(str(error)) from None


def _decimal(precision: int, scale: int) -> _ArrowForm:
    import pyarrow as pa

    context = Context(precision, traps=[Inexact, InvalidOperation])
    unit = Decimal(1).scaleb(-scale)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        try:
            return value.quantize(unit, context=context)
        except (Inexact, InvalidOperation):
            raise SerializationError(
                f"decimal {value} exceeds precision {precision} or scale {scale} of the column; declare the field as "
                'Annotated[Decimal, msgspec.Meta(extra={"precision": P, "scale": S})], or as str'
            ) from None

    return _ArrowForm(pa.decimal128(precision, scale), convert)


def _map(info: inspect.DictType, depth: int) -> _ArrowForm | None:
    """Return the Arrow type and conversion for a dict whose values have one type; non-integer keys become text."""
    import pyarrow as pa

    item = _structured(info.value_type, depth + 1)
    if item is None or isinstance(info.key_type, inspect.AnyType):
        return None
    is_number = isinstance(info.key_type, inspect.IntType)
    key: Callable[[Any], Any] = int if is_number else _key_text

    def convert(value: Any) -> Any:
        return None if value is None else [(key(name), item.convert(entry)) for name, entry in value.items()]

    return _ArrowForm(pa.map_(pa.int64() if is_number else pa.string(), item.type), convert)


def arrow_array(values: Sequence[Any], kind: Any, name: str) -> Any:
    """Return values as the Arrow column ``name``.

    Raises:
        SerializationError: a value is outside of the range of the type, such as a number of more than 64 bits.
    """
    import pyarrow as pa

    plain = stored_type(kind)
    try:
        # Arrow makes no arrays of structs with JSON.
        return pa.array(values, plain) if plain == kind else pa.array(values, plain).cast(kind)
    except (OverflowError, pa.ArrowException) as error:
        raise SerializationError(
            f"a {name} does not fit into the column {name}, {kind}: {error}; declare numbers of more than 64 bits as "
            "Decimal or str"
        ) from error


def arrow_table(serde: Serde[Any], values: Sequence[Any]) -> Any:
    """Return values as a ``pyarrow.Table``: a column per field, or the column ``value`` for types without fields."""
    import pyarrow as pa

    column = arrow_column(serde)
    array = arrow_array(column.values(serde.serialize_all(values)), column.type, "value")
    if pa.types.is_struct(column.type):
        return pa.Table.from_struct_array(array)
    return pa.table({"value": array})
