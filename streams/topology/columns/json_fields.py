"""The fields of a class in JSON, as far as they can be sliced out of it without an object."""

from collections.abc import Iterator
from typing import Any

import attrs
from attrs import frozen
from msgspec import inspect

from streams.core.serdes.serde_models import codec_of
from streams.core.serdes.serde_types import declared_type
from streams.core.serdes.serdes import Serde
from streams.topology.columns.symbols import TraceError
from streams.topology.columns.trace import HOOKS, KINDS


@frozen
class JsonField:
    """A field: its name in the class and in JSON, and its type, which is int, float, bool or str."""

    name: str
    json_name: str
    kind: type


def json_fields(serde: Serde[Any]) -> tuple[JsonField, ...]:
    """Return the fields of the class whose values a serde reads.

    Raises:
        TraceError: its JSON has other fields than numbers and texts, or is checked while it is read.
    """
    form = declared_type(serde)
    if form is None or codec_of(form).shape is not form:
        raise TraceError("are read by another library than msgspec")
    info: Any = inspect.type_info(form)
    if not isinstance(info, inspect.StructType | inspect.DataclassType):
        raise TraceError(f"are no objects of JSON: {form!r}")
    if getattr(info, "array_like", False) or getattr(info, "tag", None) is not None:
        raise TraceError("are no plain objects of JSON")
    is_checked = attrs.has(info.cls) and any(part.validator or part.converter for part in attrs.fields(info.cls))
    if is_checked or any(hasattr(info.cls, hook) for hook in HOOKS):
        raise TraceError("are checked or converted when they are created")
    return tuple(_fields(info))


def _fields(info: Any) -> Iterator[JsonField]:
    for part in info.fields:
        kinds = part.type.types if isinstance(part.type, inspect.UnionType) else (part.type,)
        # A field may be absent or null: such records are left to rows.
        members = [kind for kind in kinds if not isinstance(kind, inspect.NoneType)]
        kind = KINDS.get(type(members[0])) if len(members) == 1 else None
        name = part.encode_name
        if kind is None or any(value is not None for value in _constraints(members[0])):
            raise TraceError(f"have .{part.name}, which is no plain number or text")
        if not name.isascii() or not name.isprintable() or '"' in name or "\\" in name:
            raise TraceError(f"have .{part.name}, whose name in JSON has other characters than plain ones")
        yield JsonField(part.name, name, kind)


def _constraints(kind: Any) -> Iterator[Any]:
    return (getattr(kind, name) for name in kind.__struct_fields__)
