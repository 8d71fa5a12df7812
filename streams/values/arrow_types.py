"""Arrow types of columns, and whether the values of a column can be those of a declared type.

It imports only ``core`` and ``json_columns``.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec import inspect

from streams.core.nearest import nearest
from streams.values.json_columns import plain_member

#: The SQL cast that a message proposes, by declared type; ``{0}`` is the column.
_CASTS: dict[type[Any], str] = {
    inspect.StrType: "string({0})",
    inspect.IntType: "bigint({0})",
    inspect.FloatType: "double({0})",
    inspect.BoolType: "boolean({0})",
    inspect.DateTimeType: "timestamp({0})",
    inspect.DateType: "date({0})",
    inspect.DecimalType: "decimal({0})",
}


def plain_type(kind: Any, *, with_nanoseconds: bool = False) -> Any:
    """Return the type that values are converted to before they are read, without dictionaries, views and large lists.

    Arrow lacks functions for some of the others, and cannot cut their arrays.  Times are in microseconds, or in
    nanoseconds if they are so and ``with_nanoseconds`` is True.
    """
    import pyarrow as pa

    is_a = pa.types
    inner = partial(plain_type, with_nanoseconds=with_nanoseconds)
    if is_a.is_timestamp(kind):
        unit = "ns" if with_nanoseconds and kind.unit == "ns" else "us"
        return pa.timestamp(unit, "UTC" if kind.tz else None)
    if is_a.is_dictionary(kind):
        return inner(kind.value_type)
    if is_a.is_struct(kind):
        return pa.struct([part.with_type(inner(part.type)) for part in kind])
    if is_list(kind):
        return pa.list_(kind.value_field.with_type(inner(kind.value_type)))
    if is_a.is_map(kind):
        return pa.map_(inner(kind.key_type), inner(kind.item_type))
    others = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.date64(): pa.date32()}
    return others.get(kind, kind)


def is_serialized(kind: Any) -> bool:
    """Return whether a column of this Arrow type contains serialized keys or values."""
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def misfits(fields: Any, columns: dict[str, Any], prefix: str) -> Iterator[str]:
    """Yield a message for each field whose column is missing or has the wrong type."""
    # Spark and Hive ignore case, and Hive does not keep it, so a name in another case is meant for the field.
    in_other_case = {name.casefold(): name for name in columns if all(part.encode_name != name for part in fields)}
    for part in fields:
        column = prefix + part.encode_name
        kind = columns.get(part.encode_name)
        same = in_other_case.get(part.encode_name.casefold())
        if kind is None:
            if part.required or same is not None:
                near = same or nearest(part.encode_name, columns)
                hint = f"rename {prefix + near!r}" if near else "add it"
                column_names = ", ".join(prefix + name for name in list(columns)[:20])
                yield (
                    f"column {column!r} ({_declared(plain_member(part.type))}) is missing; {hint}, or give the field a "
                    f"default; the table has {column_names}"
                )
        else:
            yield from misfit(part.type, kind, column)


def misfit(info: Any, kind: Any, column: str) -> Iterator[str]:
    """Yield a message if a column, of Arrow type ``kind``, cannot be read as a declared type."""
    import pyarrow as pa

    info = plain_member(info)
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if is_opaque(kind):
        yield opaque_column(kind, column, f"but is declared as {_declared(info)}")
        return
    if pa.types.is_null(kind) or isinstance(info, (inspect.AnyType, inspect.UnionType, inspect.CustomType)):
        return
    fields = getattr(info, "fields", None)
    item = getattr(info, "item_type", None)
    if fields is not None and pa.types.is_struct(kind):
        yield from misfits(fields, {part.name: part.type for part in kind}, f"{column}.")
    elif item is not None and is_list(kind):
        yield from misfit(item, kind.value_type, f"{column}[]")
    elif isinstance(info, inspect.DictType) and pa.types.is_map(kind):
        yield from misfit(info.value_type, kind.item_type, f"{column}[]")
    elif isinstance(info, inspect.DictType) and pa.types.is_struct(kind):
        return
    elif not _fits(info, kind):
        cast = _CASTS.get(type(info))
        hint = f"cast it, such as {cast.format(column)} AS {column}" if cast else "change the one or the other"
        if isinstance(info, inspect.DateTimeType) and pa.types.is_integer(kind):
            hint = f"convert it, such as timestamp_millis({column}) AS {column}"
        if isinstance(info, inspect.IntType) and pa.types.is_timestamp(kind):
            hint = f"convert it, such as unix_millis({column}) AS {column}, or declare a datetime"
        yield f"column {column!r} is {kind}, but is declared as {_declared(info)}; {hint}"


def is_opaque(kind: Any) -> bool:
    """Return whether a column has a type of Spark that Python has no values for."""
    return getattr(kind, "extension_name", "") == "arrow.opaque"


def opaque_column(kind: Any, column: str, problem: str) -> str:
    """Return the message for a column of an opaque type; ``problem`` says what does not fit."""
    cast = "to_json({0})" if "variant" in kind.type_name else "string({0})"
    return f"column {column!r} is {kind.type_name}, {problem}; cast it, such as {cast.format(column)} AS {column}"


def is_list(kind: Any) -> bool:
    """Return whether an Arrow type is a list of any length."""
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _fits(info: Any, kind: Any) -> bool:
    """Return whether values of an Arrow type can be converted to a declared scalar type."""
    import pyarrow as pa

    is_a = pa.types
    text = is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_string_view(kind)
    data = is_serialized(kind) or is_a.is_fixed_size_binary(kind)
    number = is_a.is_integer(kind) or is_a.is_decimal(kind)
    whole = is_a.is_integer(kind) or (is_a.is_decimal(kind) and kind.scale == 0)
    # Declared type -> whether this column can be converted to it; text is parsed as in JSON lines.
    fitting: dict[Any, bool] = {
        inspect.StrType: text,
        inspect.IntType: whole,
        inspect.FloatType: number or is_a.is_floating(kind),
        inspect.BoolType: is_a.is_boolean(kind),
        inspect.BytesType: data or text,
        inspect.ByteArrayType: data or text,
        inspect.MemoryViewType: data or text,
        inspect.DateTimeType: is_a.is_timestamp(kind) or text,
        inspect.DateType: is_a.is_date(kind) or text,
        inspect.TimeType: is_a.is_time(kind) or text,
        inspect.TimeDeltaType: is_a.is_duration(kind) or text,
        inspect.UUIDType: text or data or getattr(kind, "extension_name", "") == "arrow.uuid",
        inspect.DecimalType: number or is_a.is_floating(kind) or text,
        inspect.EnumType: text or whole,
        inspect.LiteralType: text or whole,
        inspect.NoneType: False,
    }
    return bool(fitting.get(type(info), False))


def _declared(info: Any) -> str:
    cls = getattr(info, "cls", None)
    if cls is not None:
        return str(cls.__qualname__)
    names: dict[type[Any], str] = {
        inspect.DateTimeType: "datetime",
        inspect.BytesType: "bytes",
        inspect.DictType: "dict",
    }
    return names.get(type(info), type(info).__name__.removesuffix("Type").lower())
