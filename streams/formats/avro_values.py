"""The values that each type of Avro has, and their conversion to the objects that fastavro writes.

fastavro cuts a fraction of an ``int``, wraps what is out of range, and takes a naive time as local.  Here a value is
written as it is, or is a ``Misfit`` that names its place.  Times are cut to the unit of their type.  Of other packages
only ``core`` and ``values``.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import MAX_PREC, Context, Decimal
from fractions import Fraction
from numbers import Integral, Real
from operator import itemgetter
from typing import Any
from uuid import UUID

from attrs import evolve, field, frozen
from msgspec import UNSET

from streams.core.serdes.serde_base import shown, type_name
from streams.values import in_utc, without_zone

Convert = Callable[[Any], Any]


class Misfit(ValueError):
    """A value that its type does not have; ``place`` is its path, such as ``.lines[1].count``."""

    place = ""

    def __str__(self) -> str:
        return super().__str__() + (f" - at `${self.place}`" if self.place else "")


def misfit(expected: str, value: Any) -> Misfit:
    """Return the error for a value in place of what is expected."""
    actual = "nothing" if value is UNSET else f"{shown(value)} of type {type_name(value)}"
    return Misfit(f"expected {expected}, got {actual}")


def placed(error: ValueError, place: str) -> Misfit:
    """Return an error with the place of its value, before that within the value."""
    within = error if isinstance(error, Misfit) else Misfit(error)
    within.place = place + within.place
    return within


@frozen
class Shape:
    """The Avro schema of a type, and its conversions to and from fastavro's objects.

    Objects of exactly the classes ``plain`` are written as they are; ``to_datum`` raises ``Misfit``.
    """

    schema: Any
    to_datum: Convert
    from_datum: Convert | None = None
    plain: frozenset[type] = frozenset()


def instance_of(expected: str, *classes: type) -> Convert:
    """Return a conversion that takes instances of some classes."""

    def convert(value: Any) -> Any:
        if isinstance(value, classes):
            return value
        raise misfit(expected, value)

    return convert


def one_of(values: Iterable[Any]) -> Convert:
    """Return a conversion that takes some values, each of its own type."""
    kinds = {value: type(value) for value in values}
    expected = f"one of {', '.join(map(str, kinds))}"

    def convert(value: Any) -> Any:
        if isinstance(value, str | int) and kinds.get(value) is type(value):
            return value
        raise misfit(expected, value)

    return convert


def _integer(bits: int) -> Convert:
    limit = 1 << (bits - 1)

    def convert(value: Any) -> int:
        # As numpy's, which are no int.
        number = None if type(value) is bool or not isinstance(value, Integral) else int(value)
        if number is not None and -limit <= number < limit:
            return number
        raise misfit(f"a whole number of {bits} bits", value)

    return convert


def _real(layout: str, name: str) -> Convert:
    def convert(value: Any) -> float:
        if isinstance(value, Real) and type(value) not in (bool, Fraction):
            with suppress(OverflowError, struct.error):
                (written,) = struct.unpack(layout, struct.pack(layout, value))
                # A fraction may become the nearest one, but no whole number another.
                if written == value or not isinstance(value, Integral):
                    return float(value)
        raise misfit(f"a number that a {name} has", value)

    return convert


def _fixed(size: int) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, bytes | bytearray) and len(value) == size:
            return value
        raise misfit(f"{size} bytes", value)

    return convert


_LONG = _integer(64)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Decimals that are moved by powers of ten have all their digits.
_EXACT = Context(prec=MAX_PREC)


def _instant(value: Any) -> datetime:
    if isinstance(value, datetime):
        # Otherwise fastavro takes a naive time as local.
        return value if value.tzinfo is not None else in_utc(value)
    raise misfit("a datetime", value)


def _local(value: Any) -> datetime:
    if isinstance(value, datetime) and value.tzinfo is None:
        return value
    raise misfit("a datetime without a zone", value)


def _nanoseconds(convert: Convert) -> Convert:
    return lambda value: (in_utc(convert(value)) - _EPOCH) // timedelta(microseconds=1) * 1_000


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise misfit("a date", value)


def _time(value: Any) -> time:
    return without_zone(instance_of("a time", time)(value))


def _decimal(schema: Mapping[str, Any]) -> Convert:
    """Return the conversion of a Decimal to the bytes of its digits, which fastavro does more slowly."""
    digits, scale, size = schema["precision"], schema.get("scale", 0), schema.get("size", 0)

    def convert(value: Any) -> bytes:
        if isinstance(value, Decimal) and value.is_finite() and value.adjusted() + scale < digits:
            unscaled = value.scaleb(scale, _EXACT)
            number = int(unscaled)
            if number == unscaled:
                return number.to_bytes(size or number.bit_length() // 8 + 1, "big", signed=True)
        raise misfit(f"a Decimal of {digits} digits, {scale} of them after the point", value)

    return convert


#: Classes that are written as they are, and the conversion of others, by type.
_PLAIN: Mapping[str, tuple[tuple[type, ...], Convert]] = {
    "null": ((type(None),), instance_of("None", type(None))),
    "boolean": ((bool,), instance_of("a bool", bool)),
    "int": ((), _integer(32)),
    # fastavro refuses what is beyond them; ``check_integers`` finds the place.
    "long": ((int,), _integer(64)),
    "float": ((), _real("<f", "float")),
    "double": ((float,), _real("<d", "double")),
    "string": ((str,), instance_of("a str", str)),
    "bytes": ((bytes, bytearray), instance_of("bytes", bytes, bytearray)),
}
#: The conversion of objects of a logical type, and the type below it.
_LOGICAL: Mapping[tuple[str, str], Convert] = {
    ("int", "date"): _date,
    ("int", "time-millis"): _time,
    ("long", "time-micros"): _time,
    ("long", "timestamp-millis"): _instant,
    ("long", "timestamp-micros"): _instant,
    ("long", "timestamp-nanos"): _nanoseconds(_instant),
    ("long", "local-timestamp-millis"): _local,
    ("long", "local-timestamp-micros"): _local,
    ("long", "local-timestamp-nanos"): _nanoseconds(_local),
    ("string", "uuid"): instance_of("a UUID", UUID),
}


def leaf(schema: Any, *, takes_below: bool = False) -> Shape:
    """Return the shape of a type without parts; with ``takes_below``, values of the type below a logical one fit too.

    A logical type that is unknown here is the type below it, as Avro says.
    """
    kind = schema["type"] if isinstance(schema, dict) else schema
    logical_type = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    if kind == "enum":
        return Shape(schema, one_of(schema["symbols"]))
    classes, below = ((), _fixed(schema["size"])) if kind == "fixed" else _PLAIN[kind]
    if kind in ("bytes", "fixed") and logical_type == "decimal":
        convert: Convert | None = _decimal(schema)
    else:
        convert = _LOGICAL.get((kind, logical_type))
    if convert is None:
        return Shape(schema, below, None, frozenset(classes))
    return Shape(schema, first_of([convert, below]) if takes_below else convert)


def first_of(converts: Iterable[Convert]) -> Convert:
    """Return a conversion by the first one that a value fits; its error is that of the first one."""
    first, *others = converts

    def convert(value: Any) -> Any:
        try:
            return first(value)
        except Misfit:
            for other in others:
                try:
                    return other(value)
                except Misfit:
                    continue
            raise

    return convert


_ARRAYS = (list, tuple, set, frozenset)
_TEXTS = frozenset({str})


def _optional(convert: Convert) -> Convert:
    """Return a conversion that keeps what is missing, in place of which the default is written."""
    return lambda value: value if value is UNSET else convert(value)


def _item_writer(item: Shape) -> Convert:
    plain, convert = item.plain, item.to_datum
    return (lambda value: value if type(value) in plain else convert(value)) if plain else convert


def items_of(item: Shape, make: Convert | None = None) -> Shape:
    """Return the shape of an array; ``make`` creates the collection from the list that fastavro reads."""
    plain, of, write = item.plain, item.from_datum, _item_writer(item)

    def to_datum(values: Any) -> Any:
        if not isinstance(values, _ARRAYS):
            raise misfit("a list", values)
        if plain.issuperset(map(type, values)):
            return values if type(values) is list else list(values)
        datum: list[Any] = []
        try:
            datum.extend(map(write, values))
        except ValueError as error:
            raise placed(error, f"[{len(datum)}]") from error
        return datum

    def from_datum(values: Any) -> Any:
        items = values if of is None else list(map(of, values))
        return items if make is None else make(items)

    reads = None if make is None and of is None else from_datum
    return Shape({"type": "array", "items": item.schema}, to_datum, reads)


def values_of(item: Shape) -> Shape:
    """Return the shape of a map."""
    plain, of, write = item.plain, item.from_datum, _item_writer(item)

    def to_datum(values: Any) -> Any:
        # The first is faster.
        is_map = type(values) is dict or isinstance(values, Mapping)
        if not is_map or not _TEXTS.issuperset(map(type, values)):
            raise misfit("a dict whose keys are str", values)
        if plain.issuperset(map(type, values.values())):
            return values if type(values) is dict else dict(values)
        datum: dict[str, Any] = {}
        try:
            datum.update(zip(values, map(write, values.values()), strict=True))
        except ValueError as error:
            raise placed(error, f"[{list(values)[len(datum)]!r}]") from error
        return datum

    def from_datum(values: Any) -> Any:
        return values if of is None else {name: of(value) for name, value in values.items()}

    return Shape({"type": "map", "values": item.schema}, to_datum, None if of is None else from_datum)


#: Sets of classes in the fields of a record that are remembered.
_MOST_SETS = 1_000


def record_writer(
    names: Sequence[str], shapes: Sequence[Shape], row_of: Convert, optional: frozenset[str] = frozenset()
) -> Convert:
    """Return the conversion of a record to a dict; ``row_of`` returns the values of its fields, in order.

    Those of ``optional`` may be missing.
    """
    # The fields to convert, by the classes of the values of all fields: most records have the same.
    conversions: dict[tuple[type, ...], list[tuple[str, Convert]]] = {}

    def special_of(classes: tuple[type, ...]) -> list[tuple[str, Convert]]:
        special = [
            (name, _optional(shape.to_datum) if name in optional else shape.to_datum)
            for name, shape, cls in zip(names, shapes, classes, strict=True)
            if cls not in shape.plain
        ]
        if len(conversions) < _MOST_SETS:
            conversions[classes] = special
        return special

    def to_datum(value: Any) -> dict[str, Any]:
        row = row_of(value)
        classes = tuple(map(type, row))
        special = conversions.get(classes)
        if special is None:
            special = special_of(classes)
        datum = dict(zip(names, row, strict=False))
        try:
            for name, convert in special:
                datum[name] = convert(datum[name])
        except ValueError as error:
            raise placed(error, f".{name}") from error
        return datum

    return to_datum


# --- given schemas --------------------------------------------------------------------------


def shape_of_schema(parsed: Any, named: Mapping[str, Any]) -> Shape:
    """Return the shape of a schema, as fastavro has parsed it with the ``named`` types; its records are dicts."""
    return evolve(_Schemas(named).shape(parsed), schema=parsed)


#: Numbers of unions are of the type that is exact: an int is no double, and a float is a double.
_LAST = ("double", "float")


@frozen
class _Schemas:
    """The conversions of the types of a schema; records may contain themselves."""

    named: Mapping[str, Any]
    _records: dict[str, Convert] = field(factory=dict)

    def shape(self, schema: Any) -> Shape:
        if isinstance(schema, list):
            return self._union(schema)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in self.named:
            return self.shape(self.named[kind])
        if kind == "array":
            return items_of(self.shape(schema["items"]))
        if kind == "map":
            return values_of(self.shape(schema["values"]))
        if kind in ("record", "error"):
            if schema["name"] not in self._records:
                self._records[schema["name"]] = lambda value: self._records[schema["name"]](value)
                self._records[schema["name"]] = self._record(schema)
            return Shape(schema, lambda value: self._records[schema["name"]](value))
        return leaf(schema, takes_below=True)

    def _record(self, schema: Mapping[str, Any]) -> Convert:
        parts = {part["name"]: self.shape(part["type"]) for part in schema["fields"]}
        optional = frozenset(part["name"] for part in schema["fields"] if "default" in part)
        names = list(parts)
        # Of one name it returns no tuple.
        read = itemgetter(*names) if len(names) > 1 else None

        def row_of(value: Any) -> Sequence[Any]:
            if not isinstance(value, Mapping):
                raise misfit(f"a dict of the fields of {schema['name']}", value)
            if read is not None and len(value) == len(names):
                try:
                    row: Sequence[Any] = read(value)
                    return row
                except KeyError:
                    pass  # Some are not fields of it.
            # The last one names the type of a record in a union.
            unknown = value.keys() - parts.keys() - {"-type"}
            if unknown:
                raise misfit(f"only fields of {schema['name']}, which has no {', '.join(map(repr, unknown))}", value)
            return [value.get(name, UNSET) for name in names]

        write = record_writer(names, list(parts.values()), row_of, optional)

        def to_datum(value: Any) -> dict[str, Any]:
            datum: dict[str, Any] = write(value)
            if len(value) == len(names) and "-type" not in value:
                return datum
            return {name: part for name, part in datum.items() if part is not UNSET}

        return to_datum

    def _union(self, schema: list[Any]) -> Shape:
        shapes = {_branch(part): self.shape(part) for part in schema if part != "null"}
        optional = frozenset({type(None)} if "null" in schema else ())
        if len(shapes) == 1:
            (inner,) = shapes.values()
            return Shape(schema, inner.to_datum, None, inner.plain | optional)
        ordered = sorted(shapes, key=lambda name: _LAST.index(name) if name in _LAST else -1)

        def to_datum(value: Any) -> Any:
            if value is None and optional:
                return None
            names = ordered
            if isinstance(value, tuple) and len(value) == 2 and value[0] in shapes:
                names, value = [value[0]], value[1]
            elif isinstance(value, Mapping) and value.get("-type") in shapes:
                names = [value["-type"]]
            for name in names:
                try:
                    return name, shapes[name].to_datum(value)
                except Misfit:
                    if len(names) == 1:
                        raise
            raise misfit(f"one of {', '.join(map(_branch, schema))}", value)

        return Shape(schema, to_datum)


def _branch(schema: Any) -> str:
    """Return the name of a branch of a union, as fastavro takes it."""
    kind: str = schema["type"] if isinstance(schema, dict) else schema
    return schema["name"] if kind in ("record", "error", "enum", "fixed") else kind


def check_integers(datum: Any) -> None:
    """Raise ``Misfit`` for an integer beyond 64 bits in a datum, which fastavro refuses without its place."""
    if type(datum) is int:
        _LONG(datum)
    elif isinstance(datum, dict | list):
        for at, value in datum.items() if isinstance(datum, dict) else enumerate(datum):
            try:
                check_integers(value)
            except Misfit as error:
                raise placed(error, f".{at}" if isinstance(at, str) else f"[{at}]") from error
    elif isinstance(datum, tuple):
        check_integers(datum[1])
