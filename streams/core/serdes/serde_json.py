"""Canonical JSON: keys sorted, no spaces, UTF-8; untyped, or typed by a class or type form.

Equal values have equal bytes, so that they can be keys, which are partitioned, looked up and compared as bytes.
Encoding and decoding use msgspec, whose unions, constraints and tagged structs are supported;
``serde_models`` has the types that msgspec cannot decode. This module
imports only ``core.serdes.serde_base`` and ``core.serdes.serde_models``.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, get_origin

import msgspec
from msgspec import inspect

from streams.core.serdes.serde_base import CODEC_ERRORS, Recipe, Serde, blank, read_error, write_error
from streams.core.serdes.serde_models import codec_of, encode_hook, parts_of

_encode = msgspec.json.Encoder(order="sorted", enc_hook=encode_hook).encode
_encode_as_is = msgspec.json.Encoder(enc_hook=encode_hook).encode
_decode = msgspec.json.Decoder().decode

#: Container types for which subclasses are accepted.
_LOOSE = (str, int, float, bytes, dict, list, tuple, set, frozenset, Mapping)


def canonical_json(value: Any) -> bytes:
    """Return the canonical JSON of a value.

    Dict keys that are not str are converted to str, as usual in JSON.  No two of a dict may become the same text.

    >>> canonical_json({"b": 1, "a": ["é", None]}).decode()
    '{"a":["é",null],"b":1}'

    Raises:
        TypeError, ValueError, OverflowError, RecursionError: the value cannot be written as JSON, for example NaN
            or infinity.
    """
    data = _encode_any(value)
    if b"null" in data:
        refuse_non_finite(value, data, _decode)
    return data


def refuse_non_finite(value: Any, data: bytes, decode: Callable[[bytes], Any]) -> None:
    """Raise ValueError if NaN or infinity in the value was written as null, since JSON has neither."""
    try:
        if decode(data) == value:  # Fast path: NaN or infinity would have been read back as None.
            return
    except msgspec.MsgspecError:
        pass
    if _has_non_finite(value):
        raise ValueError("JSON has no NaN and no infinity")


def _encode_any(value: Any) -> bytes:
    try:
        return _encode(value)
    except TypeError:
        # msgspec sorts only str keys, so keys are first converted to str.
        data = _encode(msgspec.to_builtins(value, str_keys=True, enc_hook=encode_hook))
        # Unsorted, msgspec writes an entry for each key, also where two of them are the same text.
        if len(_encode_as_is(value)) != len(data):
            raise ValueError(
                "two keys of a dict are the same text in JSON, such as 1 and '1', and one of them would be lost; "
                "keys that are not texts are read back as texts where their type is not declared"
            ) from None
        return data


def _has_non_finite(value: Any) -> bool:
    """Whether a value is or contains NaN or infinity."""
    pending = [msgspec.to_builtins(value, str_keys=True, enc_hook=encode_hook)]
    while pending:
        item = pending.pop()
        if type(item) is float:
            if not math.isfinite(item):
                return True
        elif type(item) is dict:
            pending.extend(item.values())
        elif isinstance(item, (list, tuple)):
            pending.extend(item)
    return False


def typed_json(name: str, form: Any, accepted: tuple[type, ...] | None, recipe: Recipe) -> Serde[Any]:
    """Return the JSON serde of a type form.

    ``accepted`` are the valid classes of a value, or None for any class. Only the value itself is checked:
    checking its contents would cost more than the encoding.

    Raises:
        TypeError, NameError, ValueError, AttributeError, RecursionError: the type form cannot be decoded.
    """
    codec = codec_of(form)
    decode = codec.decode
    facts = list(parts_of(inspect.type_info(codec.shape)))
    _refuse_lossy(facts)
    check = None if accepted is None else _checker(form, accepted)
    holds_float = _may_hold_float(facts)

    def serialize(value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            if check is not None:
                check(value)
            try:
                data = _encode(value)
            except TypeError:
                data = _encode_any(value)
            if holds_float and b"null" in data:
                refuse_non_finite(value, data, decode)
            return data
        except (msgspec.MsgspecError, *CODEC_ERRORS) as error:
            raise write_error(name, value, error) from error

    def deserialize(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return decode(data)
        except (msgspec.MsgspecError, *CODEC_ERRORS) as error:
            raise read_error(name, data, error) from error

    # The values of these types need no check.
    exact = accepted[0] if accepted is not None and len(accepted) == 1 and not holds_float else None

    def serialize_all(column: Any) -> list[bytes | None]:
        if exact is not None and set(map(type, column)) == {exact}:
            try:
                return list(map(_encode, column))
            except (msgspec.MsgspecError, *CODEC_ERRORS):
                pass  # Serialize again one by one, either with keys as str or for a message that names the value.
        return [serialize(value) for value in column]

    def deserialize_all(column: Any) -> list[Any]:
        try:
            return [None if data is None else decode(data) for data in column]
        except (msgspec.MsgspecError, *CODEC_ERRORS):
            return [deserialize(data) for data in column]

    serde = blank(Serde)
    serde.name = name
    serde.is_immutable = all(_is_immutable(fact) for fact in facts)
    serde.key_suffix = 0
    serde.serialize = serialize
    serde.deserialize = deserialize
    serde.serialize_all = serialize_all
    serde.deserialize_all = deserialize_all
    serde.quick = None if exact is None else (exact, _encode)
    serde._recipe = recipe
    return serde


_TIMES = (inspect.DateTimeType, inspect.DateType, inspect.TimeType, inspect.TimeDeltaType)
_NUMBERS = (inspect.IntType, inspect.FloatType, inspect.DecimalType)
_TEXTS = (inspect.StrType, inspect.BytesType, inspect.UUIDType, inspect.EnumType, inspect.LiteralType)
#: Types of keys that are read back from the text that a key is in JSON.
_READ_AS_KEYS = (inspect.AnyType, *_TEXTS, *_NUMBERS, *_TIMES)
_UNHASHABLE = (inspect.ListType, inspect.SetType, inspect.DictType, inspect.TypedDictType, inspect.ByteArrayType)


def _refuse_lossy(facts: list[inspect.Type]) -> None:
    """Refuse dicts and sets of which no value, or not every value, could be written and read back.

    Raises:
        TypeError: keys of a dict are not one type that is a text in JSON, or items of a set cannot be hashed.
    """
    for fact in facts:
        inner: Any = getattr(fact, "key_type", None) or getattr(fact, "item_type", None)
        while isinstance(inner, inspect.Metadata):
            inner = inner.type
        kind = getattr(inner, "cls", None) or type(inner).__name__.removesuffix("Type").lower()
        if isinstance(fact, inspect.DictType) and not isinstance(inner, _READ_AS_KEYS):
            raise TypeError(
                f"keys of a JSON object are texts, of which no {kind} can be read back; declare keys of one type such "
                "as str, int, UUID or an Enum, or a list of a class with the parts of the key and the value"
            )
        if isinstance(fact, (inspect.SetType, inspect.FrozenSetType)) and isinstance(inner, _UNHASHABLE):
            raise TypeError(f"a set has no items of type {kind}, which cannot be hashed; declare a list, or tuples")


def _checker(form: Any, accepted: tuple[type, ...]) -> Callable[[Any], None]:
    """Return a function that checks the class of a value; subclasses are accepted only for containers."""
    exact = frozenset(accepted)
    # Subclasses are accepted only for containers: a subclass of a class with fields would lose its own fields.
    loose = tuple(cls for cls in accepted if cls in _LOOSE or cls.__module__ == "collections.abc")
    is_class = isinstance(form, type) and get_origin(form) is None
    expected = f"expected {form.__qualname__ if is_class else form}"

    def check(value: Any) -> None:
        kind = type(value)
        if kind in exact:
            return
        if kind is not bool and issubclass(kind, loose):
            return
        raise TypeError(expected)

    return check


def _may_hold_float(facts: list[inspect.Type]) -> bool:
    return any(isinstance(fact, (inspect.FloatType, inspect.AnyType)) for fact in facts)


_MUTABLE = (
    inspect.AnyType,
    inspect.ByteArrayType,
    inspect.CustomType,
    inspect.DictType,
    inspect.ListType,
    inspect.RawType,
    inspect.SetType,
    inspect.TypedDictType,
)


def is_immutable_form(form: Any) -> bool:
    """Whether objects of a type form, and all within them, are immutable, so that they may be shared."""
    return all(_is_immutable(fact) for fact in parts_of(inspect.type_info(codec_of(form).shape)))


def _is_immutable(fact: inspect.Type) -> bool:
    """Whether objects of this type are immutable, regardless of their contents."""
    if isinstance(fact, inspect.StructType):
        return bool(fact.cls.__struct_config__.frozen)
    if isinstance(fact, inspect.DataclassType):
        parameters = getattr(fact.cls, "__dataclass_params__", None)
        if parameters is not None:
            return bool(parameters.frozen)
        return getattr(fact.cls.__setattr__, "__name__", "") == "_frozen_setattrs"
    return not isinstance(fact, _MUTABLE)
