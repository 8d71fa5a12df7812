"""What the values of a declared type are read from and written as: one row per kind of type, for all of ``streams``.

What arrives is the exact value of the declared type, or it is refused with the cast that helps.  A number never becomes
a time, since it has no unit; a fraction never becomes an integer; text becomes a number only if it is a cell of a file
of text, which has nothing else.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from functools import cache
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
    #: The kinds of JSON values that are read, such as "string" or "fraction"; the first is written.
    json: tuple[str, ...]
    #: What a text is that is read, as in a cell of a CSV file or a string of JSON; "" if none is.
    text: str
    #: The families of Arrow types (``arrow_family``) that are read, for files and tables.
    columns: tuple[str, ...]
    #: Returns the Arrow type that is written, given the module ``pyarrow``; None if it depends on the types within.
    arrow: Callable[[Any], Any] | None
    #: The column of a database that is written.
    sql: ColumnType
    #: The Avro type that is written, with its logical type, such as "int: date"; "" if there is none.
    avro: str = ""
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


def text_of(value: str | bytes) -> str:
    """Return a text, which bytes of a pydantic model are in JSON."""
    return value.decode() if isinstance(value, bytes) else value


_NUMBERS: Final = ("integer", "whole decimal", "decimal", "float")
#: Floats of less than 64 bits, whose decimal digits depend on who writes them: 0.1, or 0.10000000149011612.
_SMALL: Final = ("small float",)
_STRING: Final = ("string",)
_SQL = ColumnType

# fmt: off
_SCALARS: tuple[tuple[Any, ...], ...] = (
    (inspect.StrType, str, _STRING, "any text", ("text",),
        lambda pa: pa.string(), _SQL.TEXT, "string", {"": "string({0})"}, text_of),
    (inspect.IntType, int, ("integer",), "digits; also `007`, and `1.0` or `1e3`, which are whole",
        ("integer", "whole decimal"), lambda pa: pa.int64(), _SQL.INTEGER, "long",
        {"": "bigint({0})", "timestamp": "unix_millis({0})"}),
    (inspect.FloatType, float, ("fraction", "integer"), "a number", (*_NUMBERS, *_SMALL),
        lambda pa: pa.float64(), _SQL.FLOAT, "double", {"": "double({0})"}),
    (inspect.BoolType, bool, ("boolean",), "`true`, `false`, `1` or `0`", ("boolean",),
        lambda pa: pa.bool_(), _SQL.BOOLEAN, "boolean", {"": "boolean({0})"}),
    (inspect.BytesType, bytes, _STRING, "base64", ("binary", "text"),
        lambda pa: pa.binary(), _SQL.BYTES, "bytes"),
    (inspect.ByteArrayType, bytearray, _STRING, "base64", ("binary", "text"), lambda pa: pa.binary(), _SQL.BYTES),
    (inspect.MemoryViewType, memoryview, _STRING, "base64", ("binary", "text"), lambda pa: pa.binary(), _SQL.BYTES),
    (inspect.DecimalType, Decimal, ("string", "integer", "fraction"), "a number", (*_NUMBERS, "text"),
        lambda pa: pa.decimal128(38, 18), _SQL.DECIMAL, "bytes: decimal",
        {"": "decimal({0})", "small float": "string({0})"}),
    (inspect.DateTimeType, datetime, _STRING, "`2026-01-31T12:00:00Z`", ("timestamp", "text"),
        lambda pa: pa.timestamp("us", "UTC"), _SQL.TIMESTAMP, "long: timestamp-micros",
        {"": "timestamp({0})", "integer": "timestamp_millis({0})"}, in_utc),
    (inspect.DateType, date, _STRING, "`2026-01-31`", ("date", "text"),
        lambda pa: pa.date32(), _SQL.DATE, "int: date", {"": "date({0})"}),
    (inspect.TimeType, time, _STRING, "`12:00:00`", ("time", "text"),
        lambda pa: pa.time64("us"), _SQL.TIME, "long: time-micros", {}, without_zone),
    (inspect.TimeDeltaType, timedelta, _STRING, "`PT1H30M`", ("duration", "text"),
        lambda pa: pa.string(), _SQL.TEXT, "", {}, msgspec.to_builtins),
    (inspect.UUIDType, UUID, _STRING, "`67e55044-10b1-426f-9247-bb680e5fe0c8`", ("uuid", "binary", "text"),
        lambda pa: pa.string(), _SQL.UUID, "string: uuid"),
)
# fmt: on
#: The rules of scalar types, by msgspec's description of the type.
RULES: Final[Mapping[type[inspect.Type], TypeRule]] = {kind: TypeRule(*row) for kind, *row in _SCALARS}
_ARRAY: Final = TypeRule(list, ("array",), "", ("list",), None, ColumnType.JSON, "array")
_OBJECT: Final = TypeRule(type, ("object",), "", ("struct",), None, ColumnType.JSON, "record")
#: Types with others within them, whose items, values and fields have rules of their own.
NESTED: Final[Mapping[type[inspect.Type], TypeRule]] = {
    inspect.ListType: _ARRAY,
    inspect.SetType: evolve(_ARRAY, type=set),
    inspect.FrozenSetType: evolve(_ARRAY, type=frozenset),
    inspect.VarTupleType: evolve(_ARRAY, type=tuple),
    inspect.TupleType: evolve(_ARRAY, type=tuple, columns=(), avro=""),
    inspect.DictType: TypeRule(dict, ("object",), "", ("map", "struct"), None, ColumnType.JSON, "map"),
    inspect.StructType: _OBJECT,
    inspect.DataclassType: _OBJECT,
    inspect.TypedDictType: _OBJECT,
    inspect.NamedTupleType: evolve(_OBJECT, json=("array",)),
    inspect.AnyType: TypeRule(
        object,
        ("string", "integer", "fraction", "boolean", "array", "object"),
        "any text",
        ("text", "integer", "float", *_SMALL, "boolean", "list", "map", "struct"),
        None,
        ColumnType.JSON,
        casts={"": "string({0})"},
    ),
}
#: An enum or ``Literal`` whose values are both texts and numbers.
_MIXED: Final = TypeRule(
    object, ("string", "integer"), "any text", ("text", "integer", "whole decimal"), None, ColumnType.JSON
)
CHOICES: Final = {
    frozenset({str}): RULES[inspect.StrType],
    frozenset({int}): evolve(RULES[inspect.IntType], text="digits"),
}


def _value_of(member: Any) -> Any:
    # A model of pydantic may have the values themselves.
    return member.value if isinstance(member, Enum) else member


def rule_of(info: Any) -> TypeRule | None:
    """Return the rule for a scalar type, None for any other; an enum and ``Literal`` are as their values."""
    if isinstance(info, inspect.EnumType):
        choices = CHOICES.get(frozenset(type(member.value) for member in info.cls), _MIXED)
        return evolve(choices, column_value=None if choices is _MIXED else _value_of)
    if isinstance(info, inspect.LiteralType):
        return CHOICES.get(frozenset(map(type, info.values)), _MIXED)
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
    "list": ("list", "large_list", "fixed_size_list", "list_view", "large_list_view"),
    "map": ("map",),
    "struct": ("struct",),
    "null": ("null",),
}


def unpacked_type(kind: Any) -> Any:
    """Return the type of the values of an Arrow type that stores equal ones once."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) else kind


@cache
def arrow_family(kind: Any) -> str:
    """Return the family of an Arrow type: what its values are, whatever their width, unit or layout.

    It is "json" for texts that are JSON, "opaque" for a type of Spark that Python has no values for, and "other" for
    one that no declared type reads.
    """
    import pyarrow as pa

    kind = unpacked_type(kind)
    if pa.types.is_decimal(kind):
        return "decimal" if kind.scale else "whole decimal"
    if pa.types.is_floating(kind) and kind.bit_width < 64:
        return "small float"
    extension = getattr(kind, "extension_name", "")
    if extension:
        return {"arrow.uuid": "uuid", "arrow.json": "json", "arrow.opaque": "opaque"}.get(extension, "other")
    checks = ((family, getattr(pa.types, f"is_{name}")) for family, names in _FAMILIES.items() for name in names)
    return next((family for family, check in checks if check(kind)), "other")


def is_serialized(kind: Any) -> bool:
    """Return whether a column of this Arrow type contains serialized keys or values."""
    import pyarrow as pa

    return arrow_family(kind) == "binary" and not pa.types.is_fixed_size_binary(kind)


#: The description of a column of JSON in tables whose formats have no such type: Iceberg's ``doc``, SQL's ``COMMENT``.
JSON_COMMENT: Final = "arrow.json"


def stored_type(kind: Any) -> Any:
    """Return an Arrow type with text in place of JSON, for formats without such a type; the field says what it is."""

    def leaf(part: Any) -> Any:
        is_json = arrow_family(part.type) == "json"
        return part.with_type(part.type.storage_type).with_metadata({"doc": JSON_COMMENT}) if is_json else part

    return with_leaves(kind, leaf)


def stored_schema(schema: Any) -> Any:
    """Return an Arrow schema with text in place of JSON, as ``stored_type``."""
    import pyarrow as pa

    return pa.schema(list(stored_type(pa.struct(list(schema)))))


def marked_schema(schema: Any) -> Any:
    """Return an Arrow schema with JSON in place of the text of fields that say that they are."""
    import pyarrow as pa

    def leaf(part: Any) -> Any:
        is_json = (part.metadata or {}).get(b"doc") == JSON_COMMENT.encode() and arrow_family(part.type) == "text"
        return part.with_type(pa.json_()) if is_json else part

    return pa.schema(list(with_leaves(pa.struct(list(schema)), leaf)))


@cache
def plain_type(kind: Any) -> Any:
    """Return the type that values are converted to before they are read, without dictionaries, views and large lists.

    Arrow lacks functions for some of the others, and cannot cut their arrays.  Times and durations are in microseconds.
    """
    return with_leaves(kind, _plain_leaf)


def with_leaves(kind: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return an Arrow type in which ``leaf`` has replaced each field that has no others within it."""
    import pyarrow as pa

    def field(part: Any) -> Any:
        family = arrow_family(part.type)
        return part.with_type(with_leaves(part.type, leaf)) if family in ("struct", "list", "map") else leaf(part)

    kind = unpacked_type(kind)
    if pa.types.is_struct(kind):
        return pa.struct(list(map(field, kind)))
    if arrow_family(kind) == "list":
        return pa.list_(field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(field(kind.key_field), field(kind.item_field))
    return leaf(pa.field("", kind)).type


def _plain_leaf(part: Any) -> Any:
    import pyarrow as pa

    kind = unpacked_type(part.type)
    if pa.types.is_timestamp(kind):
        return part.with_type(pa.timestamp("us", "UTC" if kind.tz else None))
    if pa.types.is_duration(kind):
        return part.with_type(pa.duration("us"))
    if arrow_family(kind) == "uuid":
        return part.with_type(kind.storage_type)
    if arrow_family(kind) == "json":
        return part.with_type(pa.json_())
    others = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.date64(): pa.date32()}
    return part.with_type(others.get(kind, kind))
