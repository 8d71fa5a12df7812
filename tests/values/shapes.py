"""Declared types that hold a value: a field of a class, alone or within another type."""

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, TypedDict

import attrs
import msgspec
import pyarrow as pa
import pydantic
from attrs import frozen


@frozen
class Shape:
    """A place of a value in a row: as a type of Python, in a datum of Avro, in JSON, and in schemas."""

    declared: Callable[[Any], Any]
    wrap: Callable[[Any], Any]
    unwrap: Callable[[Any], Any]
    json: str
    arrow: Callable[[Any], Any]
    avro: Callable[[Any], Any]


def _offsets(array: Any) -> Any:
    return pa.array(range(len(array) + 1), pa.int32())


#: Kinds of classes with one field.
CLASSES: dict[str, Callable[..., Any]] = {
    "attrs": lambda name, kind: attrs.make_class(name, {"x": attrs.field(type=kind)}, frozen=True, slots=True),
    "dataclass": lambda name, kind: dataclasses.make_dataclass(name, [("x", kind)], frozen=True),
    "msgspec": lambda name, kind: msgspec.defstruct(name, [("x", kind)], frozen=True),
    "pydantic": lambda name, kind: pydantic.create_model(name, x=(kind, ...)),
    "TypedDict": lambda name, kind: TypedDict(name, {"x": kind}),  # type: ignore[operator]
}

SHAPES: dict[str, Shape] = {
    "alone": Shape(lambda kind: kind, lambda v: v, lambda v: v, "%s", lambda a: a, lambda s: s),
    "optional": Shape(lambda kind: kind | None, lambda v: v, lambda v: v, "%s", lambda a: a, lambda s: ["null", s]),
    "in a list": Shape(
        lambda kind: list[kind],
        lambda v: [v],
        lambda v: v[0],
        "[%s]",
        lambda a: pa.ListArray.from_arrays(_offsets(a), a),
        lambda s: {"type": "array", "items": s},
    ),
    "in a dict": Shape(
        lambda kind: dict[str, kind],
        lambda v: {"k": v},
        lambda v: v["k"],
        '{"k":%s}',
        lambda a: pa.MapArray.from_arrays(_offsets(a), pa.array(["k"] * len(a)), a),
        lambda s: {"type": "map", "values": s},
    ),
    "in a class": Shape(
        # Of all classes, pydantic takes dataclasses, and its own.
        lambda kind: CLASSES["dataclass"]("Inner", kind),
        lambda v: {"x": v},
        lambda v: v.x,
        '{"x":%s}',
        lambda a: pa.StructArray.from_arrays([a], ["x"]),
        lambda s: {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": s}]},
    ),
}


def field_of(row: Any) -> Any:
    return row["x"] if isinstance(row, dict) else row.x


@cache
def row_class(kind: str, shape: str, declared: Any) -> Any:
    """Return a class with a field ``x``, in which a shape has a declared type."""
    return CLASSES[kind]("Row", SHAPES[shape].declared(declared))
