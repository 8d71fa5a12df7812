"""The Python type of a given Avro schema, by which its values are read from JSON and from the rows of files. Pure."""

from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any, Literal, NotRequired, TypedDict
from uuid import UUID

from msgspec import inspect

_PLAIN: Mapping[str, Any] = {
    "null": None,
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "bytes": bytes,
    "fixed": bytes,
}
#: Nanoseconds stay numbers, as in the records that are read.
_LOGICAL: Mapping[str, Any] = {
    "date": date,
    "time-millis": time,
    "time-micros": time,
    "timestamp-millis": datetime,
    "timestamp-micros": datetime,
    "local-timestamp-millis": datetime,
    "local-timestamp-micros": datetime,
    "decimal": Decimal,
    "uuid": UUID,
}


def form_of(schema: Any, named: Mapping[str, Any], outer: tuple[str, ...] = ()) -> Any:
    """Return the type of a parsed schema, whose records are dicts.

    It is ``Any`` for a record within itself, and for a union whose types are one in JSON.
    """
    if isinstance(schema, list):
        return _union([form_of(branch, named, outer) for branch in schema])
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in outer:
        return Any
    if kind in named:
        return form_of(named[kind], named, outer)
    if kind == "array":
        return list[form_of(schema["items"], named, outer)]  # type: ignore[misc]
    if kind == "map":
        return dict[str, form_of(schema["values"], named, outer)]  # type: ignore[misc]
    if kind == "enum":
        return Literal[tuple(schema["symbols"])]
    if kind in ("record", "error"):
        name = schema["name"]
        if name in outer:
            return Any
        fields = {part["name"]: form_of(part["type"], named, (*outer, name)) for part in schema["fields"]}
        optional = {part["name"] for part in schema["fields"] if "default" in part}
        # Built from a schema, which is not known before.
        return TypedDict(  # type: ignore[operator]
            name.rpartition(".")[2],
            {field: NotRequired[form] if field in optional else form for field, form in fields.items()},
        )
    logical_type = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    return _LOGICAL.get(logical_type, _PLAIN[kind])


def _union(forms: list[Any]) -> Any:
    if Any in forms:
        return Any
    form = reduce(or_, (type(None) if form is None else form for form in forms))
    try:
        inspect.type_info(form)
    except TypeError:
        return Any
    return form
