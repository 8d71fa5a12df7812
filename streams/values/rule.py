"""What the values of a declared type are read from and written as: one row per kind of type, for all of ``streams``.

What arrives is the exact value of the declared type, or it is refused with the cast that helps.  A number never becomes
a time, since it has no unit; a fraction never becomes an integer; text becomes a number only if it is a cell of a file
of text, which has nothing else.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import cache, partial
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

import msgspec
from attrs import evolve, frozen
from msgspec import inspect


class ColumnType(StrEnum):
    """The type of a column and its values: str, int, float, bool, bytes, datetime and so on; JSON is stored as text."""

    TEXT = "text"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    BYTES = "bytes"
    TIMESTAMP = "timestamp"
    DATE = "date"
    TIME = "time"
    DECIMAL = "decimal"
    UUID = "uuid"
    JSON = "json"


@frozen
class TypeRule:
    """What values of one kind of declared type are read from and written as."""

    #: The Python type, such as ``datetime``.
    type: type[Any]
    #: The families of Arrow types (``arrow_family``) that are read, for files and tables.
    columns: tuple[str, ...]
    #: Returns the Arrow type that is written, given the module ``pyarrow``.
    arrow: Callable[[Any], Any]
    #: The column of a database that is written.
    sql: ColumnType
    #: The Avro type that is written.
    avro: Any = None
    #: The SQL cast that a message proposes for a column of another family, by family; ``{0}`` is the column.
    casts: Mapping[str, str] = {}
    #: Converts a value to that of a column, as ``avro`` and ``sql`` name it; None if it is the same.
    column_value: Callable[[Any], Any] | None = None

    def cast(self, family: str) -> str | None:
        """Return the SQL cast for a column of a family, or None if no cast helps."""
        return self.casts.get(family) or self.casts.get("")


def in_utc(value: datetime) -> datetime:
    """Return a time in UTC; a naive time is in UTC already."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def without_zone(value: time) -> time:
    """Return a time of day, which has no zone in a column.

    Raises:
        ValueError: it has a zone.
    """
    if value.tzinfo is not None:
        raise ValueError(f"a column of times of day has no zones, and would change {value}; use a datetime")
    return value


_NUMBERS: Final = ("integer", "whole decimal", "decimal", "float")
_BINARY: Final = ("binary", "text")

RULES: Final[Mapping[type[inspect.Type], TypeRule]] = {
    inspect.StrType: TypeRule(str, ("text",), lambda pa: pa.string(), ColumnType.TEXT, "string", {"": "string({0})"}),
    inspect.IntType: TypeRule(
        int,
        ("integer", "whole decimal"),
        lambda pa: pa.int64(),
        ColumnType.INTEGER,
        "long",
        {"": "bigint({0})", "timestamp": "unix_millis({0})"},
    ),
    inspect.FloatType: TypeRule(
        float, _NUMBERS, lambda pa: pa.float64(), ColumnType.FLOAT, "double", {"": "double({0})"}
    ),
    inspect.BoolType: TypeRule(
        bool, ("boolean",), lambda pa: pa.bool_(), ColumnType.BOOLEAN, "boolean", {"": "boolean({0})"}
    ),
    inspect.BytesType: TypeRule(bytes, _BINARY, lambda pa: pa.binary(), ColumnType.BYTES, "bytes"),
    inspect.ByteArrayType: TypeRule(bytearray, _BINARY, lambda pa: pa.binary(), ColumnType.BYTES),
    inspect.MemoryViewType: TypeRule(memoryview, _BINARY, lambda pa: pa.binary(), ColumnType.BYTES),
    inspect.DecimalType: TypeRule(
        Decimal,
        (*_NUMBERS, "text"),
        lambda pa: pa.decimal128(38, 18),
        ColumnType.DECIMAL,
        {"type": "bytes", "logicalType": "decimal"},
        {"": "decimal({0})"},
    ),
    inspect.DateTimeType: TypeRule(
        datetime,
        ("timestamp", "text"),
        lambda pa: pa.timestamp("us", "UTC"),
        ColumnType.TIMESTAMP,
        {"type": "long", "logicalType": "timestamp-micros"},
        {"": "timestamp({0})", "integer": "timestamp_millis({0})"},
        in_utc,
    ),
    inspect.DateType: TypeRule(
        date,
        ("date", "text"),
        lambda pa: pa.date32(),
        ColumnType.DATE,
        {"type": "int", "logicalType": "date"},
        {"": "date({0})"},
    ),
    inspect.TimeType: TypeRule(
        time,
        ("time", "text"),
        lambda pa: pa.time64("us"),
        ColumnType.TIME,
        {"type": "long", "logicalType": "time-micros"},
        column_value=without_zone,
    ),
    inspect.TimeDeltaType: TypeRule(
        timedelta, ("duration", "text"), lambda pa: pa.string(), ColumnType.TEXT, column_value=msgspec.to_builtins
    ),
    inspect.UUIDType: TypeRule(
        UUID,
        ("uuid", "binary", "text"),
        lambda pa: pa.string(),
        ColumnType.UUID,
        {"type": "string", "logicalType": "uuid"},
    ),
}
#: An enum or ``Literal`` whose values are both texts and numbers.
_MIXED: Final = TypeRule(object, ("text", "integer", "whole decimal"), lambda pa: pa.string(), ColumnType.JSON)
_CHOICES: Final = {frozenset({str}): RULES[inspect.StrType], frozenset({int}): RULES[inspect.IntType]}


def rule_of(info: Any) -> TypeRule | None:
    """Return the rule for a scalar type, None for any other; an enum and ``Literal`` are as their values."""
    if isinstance(info, inspect.EnumType):
        choices = _CHOICES.get(frozenset(type(member.value) for member in info.cls), _MIXED)
        return evolve(choices, column_value=None if choices is _MIXED else attrgetter("value"))
    if isinstance(info, inspect.LiteralType):
        return _CHOICES.get(frozenset(map(type, info.values)), _MIXED)
    return RULES.get(type(info))


def plain_member(info: Any) -> Any:
    """Return the type of an optional field without None, and without annotations."""
    while isinstance(info, inspect.Metadata):
        info = info.type
    if isinstance(info, inspect.UnionType):
        members = [member for member in info.types if not isinstance(member, inspect.NoneType)]
        return plain_member(members[0]) if len(members) == 1 else info
    return info


def extra_of(info: Any) -> Mapping[str, Any]:
    """Return the ``extra`` of ``msgspec.Meta`` on a type, or on the type of an optional field."""
    if isinstance(info, inspect.Metadata):
        return {**extra_of(info.type), **(info.extra or {})}
    is_union = isinstance(info, inspect.UnionType)
    return {name: value for member in info.types for name, value in extra_of(member).items()} if is_union else {}


def is_optional(info: Any) -> bool:
    """Return whether None is a value of a type."""
    while isinstance(info, inspect.Metadata):
        info = info.type
    if isinstance(info, inspect.UnionType):
        return any(isinstance(member, inspect.NoneType) for member in info.types)
    return isinstance(info, (inspect.AnyType, inspect.NoneType))


def type_name(info: Any) -> str:
    """Return a declared type as messages name it."""
    cls: Any = getattr(info, "cls", None)
    if cls is None:
        rule = RULES.get(type(info))
        return type(info).__name__.removesuffix("Type").lower() if rule is None else rule.type.__name__
    return str(cls.__qualname__)


# --- Arrow types ----------------------------------------------------------------------------

_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("string", "large_string", "string_view"),
    "integer": ("integer",),
    "float": ("floating",),
    "boolean": ("boolean",),
    "binary": ("binary", "large_binary", "binary_view", "fixed_size_binary"),
    "timestamp": ("timestamp",),
    "date": ("date",),
    "time": ("time",),
    "duration": ("duration",),
    "list": ("list", "large_list", "fixed_size_list"),
    "map": ("map",),
    "struct": ("struct",),
    "null": ("null",),
}


@cache
def arrow_family(kind: Any) -> str:
    """Return the family of an Arrow type: what its values are, whatever their width, unit or layout.

    It is "opaque" for a type of Spark that Python has no values for, and "other" for one that no declared type reads.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return arrow_family(kind.value_type)
    if pa.types.is_decimal(kind):
        return "decimal" if kind.scale else "whole decimal"
    extension = getattr(kind, "extension_name", "")
    if extension:
        return {"arrow.uuid": "uuid", "arrow.opaque": "opaque"}.get(extension, "other")
    checks = ((family, getattr(pa.types, f"is_{name}")) for family, names in _FAMILIES.items() for name in names)
    return next((family for family, check in checks if check(kind)), "other")


def is_serialized(kind: Any) -> bool:
    """Return whether a column of this Arrow type contains serialized keys or values."""
    import pyarrow as pa

    return arrow_family(kind) == "binary" and not pa.types.is_fixed_size_binary(kind)


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
    if arrow_family(kind) == "list":
        return pa.list_(kind.value_field.with_type(inner(kind.value_type)))
    if is_a.is_map(kind):
        return pa.map_(inner(kind.key_type), inner(kind.item_type))
    others = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.date64(): pa.date32()}
    return others.get(kind, kind)
