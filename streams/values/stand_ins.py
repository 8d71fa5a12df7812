"""Partial objects in place of a topic's values while a file is read; they are cheaper to create than the values.

Reading a file needs values only to check them, and to call ``key_from`` and ``timestamp``.  Functions that only read
fields of their argument (``field_access``) get an object of a generated class with these fields.  The other fields are
checked too; objects within them are also of generated classes.
"""

from collections.abc import Callable, Sequence
from types import FunctionType, NoneType, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

from streams.core.serdes.serdes import exact_decoder
from streams.values.field_access import fields_read
from streams.values.json_columns import is_plain_class

#: Decodes a column of JSON, in which None stays None.
DecodeAll: TypeAlias = Callable[[Sequence[bytes | None]], list[Any]]


def names_read(info: Any, functions: Sequence[Any]) -> frozenset[str] | None:
    """Return the fields of a class that the functions read, or None if they may need complete objects."""
    if not is_plain_class(info) or isinstance(info.cls.__getattribute__, FunctionType):
        return None
    names: set[str] = set()
    for function in functions:
        fields = fields_read(function)
        if fields is None or not fields <= {part.name for part in info.fields}:
            return None
        names |= fields
    return frozenset(names)


def stand_in_decoder(info: Any, names: frozenset[str], *, reads_rest: bool = True) -> DecodeAll | None:
    """Return a decoder of a column of JSON to objects with the fields ``names`` of a class, or None if there is none.

    With ``reads_rest``, the decoder rejects the same JSON as a decoder of the class.
    """
    try:
        stand_in = _stand_in(info, names, (), reads_rest=reads_rest)
        return exact_decoder(inspect.type_info(stand_in), msgspec.json.Decoder(stand_in).decode).all
    except (NameError, TypeError, KeyError, AttributeError, ValueError, RecursionError):
        return None


def _stand_in(info: Any, needed: frozenset[str], outer: tuple[Any, ...], *, reads_rest: bool = True) -> Any:
    cls = info.cls
    kinds = get_type_hints(cls, include_extras=True)
    fields: list[Any] = []
    for part in info.fields:
        if part.name not in needed and not reads_rest:
            continue
        kind = kinds[part.name]
        kind = kind if part.name in needed else _lighter(kind, part.type, (*outer, cls))
        fields.append((part.name, kind) if part.required else (part.name, kind, _default(part)))
    texts = {part.name: part.encode_name for part in info.fields}
    stand_in: Any = msgspec.defstruct(cls.__name__, fields, rename=texts.get, kw_only=True, gc=False)
    stand_in.__qualname__ = cls.__qualname__
    return stand_in


def _default(part: Any) -> Any:
    if part.default is msgspec.NODEFAULT:
        return msgspec.field(default_factory=part.default_factory)
    return msgspec.field(default_factory=lambda: part.default)


def _lighter(kind: Any, info: Any, outer: tuple[Any, ...]) -> Any:
    """Return a type that accepts the same JSON as ``kind``, but whose objects are cheaper to create."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin in (Union, UnionType) and isinstance(info, inspect.UnionType) and len(info.types) == 2:
        members = [member for member in info.types if not isinstance(member, inspect.NoneType)]
        inner = [argument for argument in arguments if argument is not NoneType]
        return _lighter(inner[0], members[0], outer) | None if len(members) == len(inner) == 1 else kind
    if origin is list and isinstance(info, inspect.ListType):
        return list[_lighter(arguments[0], info.item_type, outer)]  # type: ignore[misc]
    if origin is dict and isinstance(info, inspect.DictType):
        return dict[arguments[0], _lighter(arguments[1], info.value_type, outer)]  # type: ignore[misc,valid-type]
    if isinstance(kind, type) and getattr(info, "cls", None) is kind and kind not in outer and is_plain_class(info):
        return _stand_in(info, frozenset(), outer)
    return kind
