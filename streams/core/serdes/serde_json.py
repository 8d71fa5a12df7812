"""Canonical JSON: keys sorted, no spaces, UTF-8; untyped, or typed by a class or type form.

Equal values have equal bytes, so that they can be keys, which are partitioned, looked up and compared as bytes.
Encoding and decoding use msgspec, whose unions, constraints and tagged structs are supported;
``serde_models`` has the types that msgspec cannot decode. Where no type is declared (``Any``, ``dict``, ``list``), only
JSON's own values are written, since others would be read back as text. This module imports only other modules of
``core``.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import partial
from typing import Any, get_origin

import msgspec
from msgspec import inspect

from streams.core.blocks.loops import is_json
from streams.core.serdes.exact_texts import JsonDecoder
from streams.core.serdes.parts import RefusedPart, Visit, parts_of, visit_of
from streams.core.serdes.serde_base import CODEC_ERRORS, Recipe, Serde, blank, fill, read_error, write_error
from streams.core.serdes.serde_models import Codec, classes_of, codec_of, encode_hook

_encode = msgspec.json.Encoder(order="sorted", enc_hook=encode_hook).encode
_decode = msgspec.json.Decoder().decode

#: Container types for which subclasses are accepted.
_LOOSE = (str, int, float, bytes, dict, list, tuple, set, frozenset, Mapping)


def canonical_json(value: Any) -> bytes:
    """Return the canonical JSON of a value.

    Dict keys that are not str are converted to str, as usual in JSON.

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


_encode_finite = json.JSONEncoder(allow_nan=False, default=str).encode


def refuse_non_finite(value: Any, data: bytes, decode: Callable[[bytes], Any]) -> None:
    """Raise ValueError if NaN or infinity in the value was written as null, since JSON has neither."""
    try:
        if decode(data) == value:  # Fast path: NaN or infinity would have been read back as None.
            return
    except msgspec.MsgspecError:
        pass
    try:
        _encode_finite(msgspec.to_builtins(value, str_keys=True, enc_hook=encode_hook))
    except ValueError:
        raise ValueError("JSON has no NaN and no infinity") from None


def _encode_any(value: Any) -> bytes:
    try:
        return _encode(value)
    except TypeError:
        # msgspec sorts only str keys, so keys are first converted to str.
        return _encode(msgspec.to_builtins(value, str_keys=True, enc_hook=encode_hook))


_UNTYPED = (
    inspect.AnyType(),
    *(inspect.DictType(key, inspect.AnyType()) for key in (inspect.AnyType(), inspect.StrType())),
    inspect.ListType(inspect.AnyType()),
)


def is_untyped(info: inspect.Type) -> bool:
    """Whether a type is any JSON value, or any JSON object or array."""
    return info in _UNTYPED


def refusal_of(form: Any, shape: Any) -> Visit | None:
    """Return a visit that refuses what JSON has not where a type form declares no type; None if it always does."""
    # A shape has Any in place of some declared types, whose values are instances of the classes in the form.
    classes = frozenset() if shape is form else frozenset(classes_of(form)) - {str, int, float, dict, list}
    visit = partial(_only_json, classes)

    def leaf(members: Collection[inspect.Type]) -> Visit | None:
        some = [member for member in members if not isinstance(member, inspect.NoneType)]
        is_only = len(some) == 1 and is_untyped(some[0])  # In a union, the values of other members are declared.
        return visit if is_only or inspect.AnyType() in some else None

    return visit_of(inspect.type_info(shape), leaf)


def _only_json(declared: Collection[type], value: Any) -> Any:
    """Return a value of a type that is not declared.

    Raises:
        RefusedPart: a part of it would be read back from JSON as another value.
    """
    if is_json(value):
        return value
    pending: list[tuple[Any, str, int]] = [(value, "", 0)]
    while pending:
        item, place, depth = pending.pop()
        kind = type(item)
        if depth > 1000:
            raise RecursionError("the value is nested too deeply")
        if item is None or kind in (str, int, bool) or kind in declared:
            continue
        if kind is float:
            if not math.isfinite(item):
                raise RefusedPart("JSON has no NaN and no infinity", "use None", place)
        elif isinstance(item, dict):
            for name in item:
                if not isinstance(name, str) or isinstance(name, Enum):
                    advice = f"use str keys, or declare a type such as dict[{type(name).__qualname__}, int]"
                    raise RefusedPart(f"JSON has no key of type {type(name).__qualname__}: {name!r}", advice, place)
            pending += [(part, f"{place}.{name}", depth + 1) for name, part in reversed(item.items())]
        elif isinstance(item, list):
            pending += [(part, f"{place}[{at}]", depth + 1) for at, part in reversed([*enumerate(item)])]
        else:
            advice = "declare the type: a class with this field, or one such as dict[str, Decimal]"
            raise RefusedPart(f"JSON has no value of type {kind.__qualname__}", advice, place)
    return value


#: An escaped half of a pair of surrogates, without the other half.
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)(?:\\\\)*(?:(\\u[dD][89aAbB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89aAbB][0-9a-fA-F]{2})(\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
)


def json_fault(data: bytes, error: Exception) -> str:
    """Return why bytes are not JSON: the message of ``msgspec``, unless it is about the end of something else."""
    if isinstance(error, msgspec.ValidationError) or not isinstance(error, msgspec.DecodeError):
        return str(error)
    try:
        data.decode()
    except UnicodeDecodeError as unreadable:
        return f"not UTF-8: {unreadable.reason} at byte {unreadable.start}"
    lone = _LONE_SURROGATE.search(data)
    if lone is None:
        return f"not JSON: {error}"
    return f"not JSON: {(lone[1] or lone[2]).decode()} is half of a pair of surrogates, which is no character"


def typed_json(name: str, form: Any, accepted: tuple[type, ...] | None, recipe: Recipe) -> Serde[Any]:
    """Return the JSON serde of a type form.

    ``accepted`` are the valid classes of a value, or None for any class. Only the value itself is checked:
    checking its contents would cost more than the encoding.

    Raises:
        TypeError, NameError, ValueError, AttributeError, RecursionError: the type form cannot be decoded.
    """
    codec = codec_of(form)
    facts = list(parts_of(inspect.type_info(codec.shape)))
    _refuse_lossy(facts)
    write, write_all, quick = _writers(
        name, form, accepted, codec, holds_float=any(isinstance(fact, inspect.FloatType) for fact in facts)
    )
    read, read_all = _readers(name, codec.decoder)
    is_immutable = all(_is_immutable(fact) for fact in facts)
    columns = write_all, read_all
    return fill(blank(Serde), name, recipe, (write, read), columns, is_immutable=is_immutable, quick=quick)


def _writers(name: str, form: Any, accepted: tuple[type, ...] | None, codec: Codec, *, holds_float: bool) -> Any:
    """Return the functions that write a value and a column, and ``quick``."""
    decoder = codec.decoder
    check = None if accepted is None else _checker(form, accepted)
    refuse = refusal_of(form, codec.shape)
    has_decimals, check_decimals = decoder.has_decimals, decoder.check_decimals

    def serialize(value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            if check is not None:
                check(value)
            try:
                data = _encode(value)
            except TypeError:
                if refuse is not None:
                    refuse(value)
                data = _encode_any(value)
            if refuse is not None:
                refuse(value)
            if has_decimals:
                check_decimals(data)
            if holds_float and b"null" in data:
                refuse_non_finite(value, data, decoder.decode)
            return data
        except (msgspec.MsgspecError, *CODEC_ERRORS) as error:
            raise write_error(name, value, error) from error

    is_checked = holds_float or has_decimals
    # Untyped values of a column are checked at once; the values of these types need no other check.
    is_whole = is_untyped(inspect.type_info(codec.shape))
    kinds: set[type] = set(accepted or ()) if not is_checked and (refuse is None or is_whole) else set()

    def serialize_all(column: Any) -> list[bytes | None]:
        try:
            if len(kinds) == 1 and set(map(type, column)) == kinds:
                texts: list[bytes | None] = list(map(_encode, column))
            elif is_whole and accepted is None:
                texts = [None if value is None else _encode(value) for value in column]
            else:
                return [serialize(value) for value in column]
            # After writing, at which a value that contains itself is an error.
            if refuse is None or is_json(list(column)):
                return texts
        except (msgspec.MsgspecError, *CODEC_ERRORS):
            pass  # Serialize again one by one, either with keys as str or for a message that names the value.
        return [serialize(value) for value in column]

    return serialize, serialize_all, (next(iter(kinds)), _encode) if len(kinds) == 1 and refuse is None else None


def _readers(name: str, decoder: JsonDecoder) -> Any:
    # A type without times and decimals needs no look at its JSON.
    decode_all, decode = decoder.all, decoder.decode if decoder.exact is None else decoder.one

    def deserialize(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return decode(data)
        except (msgspec.MsgspecError, *CODEC_ERRORS) as error:
            raise read_error(name, data, json_fault(data, error)) from error

    def deserialize_all(column: Any) -> list[Any]:
        try:
            return decode_all(column)
        except (msgspec.MsgspecError, *CODEC_ERRORS):
            return [deserialize(data) for data in column]

    return deserialize, deserialize_all


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
