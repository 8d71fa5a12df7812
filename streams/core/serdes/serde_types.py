"""Serdes for type expressions.

``Topic(key=..., value=...)`` and all other ``key=`` and ``value=`` arguments use ``serde_for``. This module imports
only other modules of ``core``.
"""

import functools
import operator
import types
from collections.abc import Iterable
from datetime import datetime
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, NewType, TypeVar, Union, get_args, get_origin, overload
from uuid import UUID as Uuid

import typing_extensions
from msgspec import inspect
from typing_extensions import TypeForm

from streams.core.errors import TopologyError
from streams.core.serdes.serde_base import Serde
from streams.core.serdes.serde_json import typed_json
from streams.core.serdes.serde_models import FORM_ERRORS, codec_of
from streams.core.serdes.serde_primitives import BOOLEAN, BYTES, DATETIME, DOUBLE, LONG, NULL, STRING, UUID

T = TypeVar("T")

_BY_TYPE: dict[Any, Serde[Any]] = {
    None: NULL,
    type(None): NULL,
    str: STRING,
    int: LONG,
    float: DOUBLE,
    bool: BOOLEAN,
    bytes: BYTES,
    Uuid: UUID,
    datetime: DATETIME,
}


@overload
def serde_for(form: Serde[T]) -> Serde[T]: ...
@overload
def serde_for(form: TypeForm[T]) -> Serde[T]: ...
def serde_for(form: Any) -> Serde[Any]:
    r"""Return the serde for a type expression; a serde is returned unchanged.

    ``str``, ``int`` (64 bits), ``float``, ``bool``, ``bytes``, ``UUID`` and ``None`` have the same bytes as
    Kafka's serdes; all other types are JSON. ``X | None`` is the same as ``X``, with None as the tombstone.

    >>> serde_for(int | None).serialize(1)
    b'\x00\x00\x00\x00\x00\x00\x00\x01'
    >>> serde_for(dict[str, int]).serialize({"b": 1, "a": 2})
    b'{"a":2,"b":1}'

    Raises:
        TopologyError: the form is not a type, or is a type that cannot be decoded from JSON.
    """
    if isinstance(form, Serde):
        return form
    try:
        hash(form)
    except TypeError:  # An unhashable form, such as a Literal with a list, is not cached.
        return _make(form)
    return _BY_TYPE.get(form) or _shared(form)


@cache
def _shared(form: Any) -> Serde[Any]:
    """Return the serde for a type form; equal forms share one serde."""
    return _make(form)


def _make(form: Any) -> Serde[Any]:
    if form is Any or form is object:
        return JSON
    if isinstance(form, NewType):
        base: Any = form.__supertype__
        return serde_for(base)
    if isinstance(form, typing_extensions.TypeAliasType):
        return serde_for(form.__value__)
    origin = get_origin(form)
    if origin is Annotated:
        inner = serde_for(get_args(form)[0])
        return inner if inner in _BY_TYPE.values() or inner is JSON else _json_of(form)
    if origin is Union or origin is types.UnionType:
        members = [member for member in get_args(form) if member is not type(None)]
        if len(members) == 1:
            return serde_for(members[0])
        if any(member is Any or member is object for member in members):
            return JSON
        return _json_of(functools.reduce(operator.or_, members))
    if origin is Literal:
        kinds = {type(choice) for choice in get_args(form)} - {type(None)}
        if len(kinds) == 1 and kinds <= _BY_TYPE.keys():
            return serde_for(kinds.pop())
    if isinstance(form, str):
        raise TopologyError(f"no serde for {form!r}: pass the type itself, not its name")
    return _json_of(form)


def _json_of(form: Any) -> Serde[Any]:
    """Return the typed JSON serde for a form.

    Raises:
        TopologyError: there is no JSON serde for the form.
    """
    advice = (
        "use a type that JSON can hold (attrs, dataclass, msgspec.Struct, pydantic model, containers of such), or pass "
        "a Serde"
    )
    try:
        return typed_json(form_name(form), form, _outermost(form), (serde_for, (form,)))
    except FORM_ERRORS as error:
        raise TopologyError(f"no serde for {form!r}: {error}; {advice}") from error


@lru_cache(maxsize=1024)
def fields_of(serde: Serde[Any]) -> tuple[tuple[str, bool], ...] | None:
    """Return the fields of the class whose values a JSON serde writes, None for other serdes.

    Each field is its name in JSON, and whether a value must have it.

    >>> from typing import NotRequired, TypedDict
    >>> fields_of(serde_for(TypedDict("Total", {"amount": int, "currency": NotRequired[str]})))
    (('amount', True), ('currency', False))
    """
    form = declared_type(serde)
    if form is None or serde in _BY_TYPE.values() or serde is JSON:
        return None
    info = inspect.type_info(codec_of(form).shape)
    fields = getattr(info, "fields", None)
    if fields is None or isinstance(info, inspect.NamedTupleType):
        return None
    return tuple(sorted((part.encode_name, part.required) for part in fields))


def declared_type(serde: Serde[Any]) -> Any:
    """Return the type of a serde of Kafka or of JSON; None for other serdes.

    >>> declared_type(serde_for(int)), declared_type(serde_for(list[int])), declared_type(JSON)
    (<class 'int'>, list[int], typing.Any)
    """
    for form, of_kafka in _BY_TYPE.items():
        if serde is of_kafka:
            return form
    # An undeclared type has no recipe.
    recipe = getattr(serde, "_recipe", None)
    return recipe[1][0] if recipe is not None and recipe[0] is serde_for else None


def form_name(form: Any) -> str:
    """Return the name of a form's JSON serde; classes are named with their module, so that they can be imported."""
    if form is dict or form is list:
        return JSON.name
    if form is tuple:
        return "tuple"
    if isinstance(form, type) and get_origin(form) is None:
        return f"class:{form.__module__}:{form.__qualname__}"
    return f"json:{form!r}"


def _outermost(form: Any) -> tuple[type, ...] | None:
    """Return the valid classes for a value of a type form, or None for any class."""
    origin = get_origin(form)
    if origin is Annotated:
        return _outermost(get_args(form)[0])
    if origin is Union or origin is types.UnionType:
        return _merged(_outermost(member) for member in get_args(form))
    if origin is Literal:
        return tuple({type(choice) for choice in get_args(form)})
    if isinstance(form, NewType):
        return _outermost(form.__supertype__)
    if isinstance(form, typing_extensions.TypeAliasType):
        return _outermost(form.__value__)
    if typing_extensions.is_typeddict(form):
        return (dict,)
    if origin is not None:
        return (origin,) if isinstance(origin, type) else None
    if form is float:
        return (float, int)
    return (form,) if isinstance(form, type) else None


def _merged(parts: Iterable[tuple[type, ...] | None]) -> tuple[type, ...] | None:
    merged: list[type] = []
    for part in parts:
        if part is None:
            return None
        merged.extend(part)
    return tuple(merged)


#: Canonical, untyped JSON for any JSON value; returns dicts, lists and scalars.
JSON: Serde[Any] = typed_json("json", Any, None, (serde_for, (Any,)))
