"""Declared types and values of them, drawn by hypothesis."""

import dataclasses
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
from hypothesis import reject
from hypothesis import strategies as st

from streams.formats import precision
from tests.values.rule import Colour, Level

Values = st.SearchStrategy[Any]

_texts = st.text(max_size=6) | st.sampled_from(
    ["", "\x00", '"', "\\", "\n", "\r\n", "\u2028", "\ud83d", "null", "5", "2026-01-01", "Köln", " a ", "'", ",;\t"]
)
# pydantic itself replaces surrogates in keys by other characters.
_keys = _texts.filter(lambda text: "\ud83d" not in text)
_zones = st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=11))])
_datetimes = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=_zones) | st.sampled_from(
    [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), datetime(1969, 12, 31, 23, 59, 59, 999999)]
)
_ints = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [0, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**30]
)
_decimals = st.decimals(-(10**18), 10**18, allow_nan=False) | st.sampled_from(
    [Decimal("1.50"), Decimal("0.1234567890123456789012345678"), Decimal("1E+20"), Decimal("-0"), Decimal("NaN")]
)
_spans = st.timedeltas(timedelta(days=-99_999), timedelta(days=99_999)) | st.sampled_from([timedelta(microseconds=-1)])
#: What JSON has, which looks like JSON as text too.
_json = st.recursive(
    st.none() | st.booleans() | _ints | st.floats() | _texts | st.sampled_from(["5", '"a"', "[]", "{}", "true"]),
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(_keys, parts, max_size=2),
    max_leaves=3,
)


@dataclasses.dataclass(frozen=True)
class Left:
    """One class of a union."""

    a: int | str


@dataclasses.dataclass(frozen=True)
class Right:
    """Another class."""

    b: list[Any]


SCALARS: dict[Any, Values] = {
    str: _texts,
    int: _ints,
    float: st.floats() | st.sampled_from([-0.0, 5e-324, 1e308, 2.0**53]),
    bool: st.booleans(),
    bytes: st.binary(max_size=5),
    Annotated[Decimal, precision(38, 18)]: _decimals,
    datetime: _datetimes,
    date: st.dates(),
    time: st.times() | st.just(time(12, tzinfo=UTC)),
    timedelta: _spans,
    UUID: st.uuids(),
    Colour: st.sampled_from(Colour),
    Level: st.sampled_from(Level),
    Literal["red", "blue"]: st.sampled_from(["red", "blue"]),
    # Types of which a column has only JSON.
    Any: _json,
    int | str: _ints | _texts,
    list: st.lists(_json, max_size=2),
    dict: st.dictionaries(_keys, _json, max_size=2),
    tuple[int, str]: st.tuples(_ints, _texts),
    Left | Right: (_ints | _texts).map(Left) | st.lists(_json, max_size=2).map(Right),
}


@attrs.frozen
class Drawn:
    """A type, with the strategy of its values."""

    type: Any
    values: Values = attrs.field(repr=False)


_NAMES = ("a", "b", "c")
_REQUIRED: Any = object()


def _attrs(fields: dict[str, tuple[Any, Any]]) -> Any:
    parts = {
        name: attrs.field(type=kind) if default is _REQUIRED else attrs.field(type=kind, default=default)
        for name, (kind, default) in fields.items()
    }
    return attrs.make_class("Drawn", parts, frozen=True, kw_only=True)


def _dataclass(fields: dict[str, tuple[Any, Any]]) -> Any:
    parts = [
        (name, kind) if default is _REQUIRED else (name, kind, dataclasses.field(default=default))
        for name, (kind, default) in fields.items()
    ]
    return dataclasses.make_dataclass("Drawn", parts, frozen=True, kw_only=True)


def _struct(fields: dict[str, tuple[Any, Any]]) -> Any:
    parts = [
        (name, kind) if default is _REQUIRED else (name, kind, default) for name, (kind, default) in fields.items()
    ]
    return msgspec.defstruct("Drawn", parts, frozen=True, kw_only=True)


def _model(fields: dict[str, tuple[Any, Any]]) -> Any:
    parts: Any = {name: (kind, ... if default is _REQUIRED else default) for name, (kind, default) in fields.items()}
    return pydantic.create_model("Drawn", **parts)


def _typed_dict(fields: dict[str, tuple[Any, Any]]) -> Any:
    return TypedDict("Drawn", {name: kind for name, (kind, _) in fields.items()})  # type: ignore[operator]


_MAKERS: dict[str, Callable[[dict[str, tuple[Any, Any]]], Any]] = {
    "attrs": _attrs,
    "dataclass": _dataclass,
    "msgspec": _struct,
    "pydantic": _model,
    "TypedDict": _typed_dict,
}


@st.composite
def classes(draw: st.DrawFn, parts: st.SearchStrategy[Drawn], kinds: tuple[str, ...] = tuple(_MAKERS)) -> Drawn:
    """Draw a class of one to three fields, some of which have a default."""
    kind = draw(st.sampled_from(kinds))
    fields = {name: draw(parts) for name in _NAMES[: draw(st.integers(1, 3))]}
    defaults = dict.fromkeys(fields, _REQUIRED)
    for name, part in fields.items():
        if kind != "TypedDict" and draw(st.booleans()):
            default = draw(part.values)
            if type(default).__hash__ is not None:
                defaults[name] = default
    cls = _MAKERS[kind]({name: (part.type, defaults[name]) for name, part in fields.items()})
    rows = st.fixed_dictionaries({name: part.values for name, part in fields.items()})
    return Drawn(cls, rows.map(lambda row: _instance(cls, row)))


def _instance(cls: Any, row: dict[str, Any]) -> Any:
    try:
        return cls(**row)
    except pydantic.ValidationError:  # Its decimals are no NaN.
        reject()


def types() -> st.SearchStrategy[Drawn]:
    """Draw a class whose fields are scalars, optional, lists, dicts and classes."""
    scalars = st.sampled_from([Drawn(kind, values) for kind, values in SCALARS.items()])

    def wider(parts: st.SearchStrategy[Drawn]) -> st.SearchStrategy[Drawn]:
        return st.one_of(
            parts.map(lambda part: Drawn(part.type | None, st.none() | part.values)),
            parts.map(lambda part: Drawn(list[part.type], st.lists(part.values, max_size=3))),
            parts.map(lambda part: Drawn(dict[str, part.type], st.dictionaries(_keys, part.values, max_size=2))),
            # Of the classes that contain others, pydantic's take only some.
            classes(parts, ("dataclass",)),
        )

    return classes(st.recursive(scalars, wider, max_leaves=3))


def plain(value: Any) -> Any:
    """Return a value in a form in which equal is the same: with types, signs, and times as instants."""
    if isinstance(value, datetime):
        return "datetime", value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, Decimal):
        return "decimal", "nan" if value.is_nan() else value
    if isinstance(value, float):
        return "float", repr(value)
    if isinstance(value, time):
        return "time", value.replace(tzinfo=None, fold=0), value.utcoffset()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value), *(plain(item) for item in value)]
    if isinstance(value, Enum) or value is None or isinstance(value, (str, int, bytes, date, timedelta, UUID)):
        return type(value).__name__, value
    names = [name for name in _NAMES if hasattr(value, name)]
    assert names, value
    return type(value).__name__, {name: plain(getattr(value, name)) for name in names}
