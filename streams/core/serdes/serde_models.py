"""JSON of types that msgspec alone cannot decode: pydantic models, and unions of classes without a tag.

Three libraries decode JSON, depending on the type.  msgspec decodes most types.  pydantic decodes its models, with
their validators, and the types that contain them if it supports these types.  cattrs decodes unions of classes, which
it distinguishes by a ``Literal`` field or by the names of required fields, and unions that contain pydantic models.

pydantic is optional: only code that has imported it can pass a model.  This module imports only
other modules of ``core``.
"""

import dataclasses
import functools
import operator
import re
import types
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, NewType, TypeAlias, Union, get_args, get_origin, get_type_hints

import attrs
import msgspec
import typing_extensions
from attrs import frozen
from msgspec import UNSET, UnsetType, inspect

from streams.core.serdes.exact_texts import JsonDecoder, exact_decoder, rewriter
from streams.core.serdes.parts import Visit, parts_of, visit_of

#: Errors of a type form that a library cannot decode.
FORM_ERRORS = (TypeError, NameError, ValueError, AttributeError, RecursionError)
#: What msgspec says of unions of str, UUID, datetime and the like.
_ONE_TEXT = "more than one str-like type"
_Decode = Callable[[bytes], Any]
_from_json = msgspec.json.decode
_to_json = msgspec.json.encode


@frozen
class Codec:
    """The decoder of a type form, and the shape of its JSON.

    ``shape`` is a type that msgspec can decode and that has the same JSON: the form itself, or generated structs in
    place of models and ``DECLARED`` in place of unions without a tag.  It describes the JSON; it does not check
    the values.
    """

    decoder: JsonDecoder
    shape: Any


def codec_of(form: Any) -> Codec:
    """Return the codec for a type form.

    Raises:
        TypeError, NameError, ValueError, AttributeError, RecursionError: no library can decode the form.
    """
    classes = set(classes_of(form))
    _refuse_private(classes)
    if not any(map(is_model, classes)):
        try:
            decoder = msgspec.json.Decoder(form)
        except TypeError as error:
            if "Type unions may not contain more than one" not in str(error):
                raise
            _refuse_one_text(error)
            try:
                return _exact_codec(_by_cattrs(form), shape_of(form))
            except TypeError as reason:
                raise TypeError(f"{error} ({reason})") from error
        strange = unreadable_parts(form)
        if strange:
            raise TypeError(f"JSON has no form for {', '.join(sorted(_full_name(kind) for kind in strange))}")
        return _exact_codec(decoder.decode, form)
    shape = shape_of(form)
    by_pydantic = _by_pydantic(form)
    if by_pydantic is not None and any(
        isinstance(part, inspect.BytesType) for part in parts_of(inspect.type_info(shape))
    ):
        raise TypeError(
            "bytes beside a pydantic model, or in a dataclass of pydantic, are base64 in JSON, which pydantic reads as "
            "text; declare the field in a BaseModel, or as str"
        )
    return _exact_codec(by_pydantic or _by_cattrs(form), shape)


def _refuse_one_text(error: TypeError) -> None:
    """Raise the error of msgspec about a union if its values are all texts in JSON.

    cattrs reads any text as the str, so that a UUID would come back as text; pydantic reads "2026" as a time of 1970.
    """
    if _ONE_TEXT in str(error):
        raise TypeError(f"values of such a union are all texts in JSON, and cannot be told apart: {error}") from None


def _exact_codec(decode: _Decode, shape: Any) -> Codec:
    return Codec(exact_decoder(inspect.type_info(shape), decode), shape)


def _refuse_private(classes: set[type]) -> None:
    """Refuse attrs classes with fields that msgspec does not write, and that would be lost without a word.

    Raises:
        TypeError: a field has a name that begins with ``_``.
    """
    for kind in classes:
        fields = attrs.fields(kind) if attrs.has(kind) else ()
        private = [part.name for part in fields if part.init and part.name.startswith("_")]
        if private:
            raise TypeError(
                f"private fields of attrs classes are not written to JSON: {_full_name(kind)} has {private[0]!r}; "
                "give it a name without the underscore"
            )


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def is_model(kind: Any) -> bool:
    """Whether a class is a pydantic model or a pydantic dataclass."""
    return hasattr(kind, "__pydantic_validator__")


def encode_hook(value: Any) -> Any:
    """Convert a pydantic model to JSON values, by alias and without computed fields, for ``msgspec.json.Encoder``.

    Raises:
        TypeError: the value is no model.
        ValueError: a field has a value that its type does not allow.
    """
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True, warnings="error")
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")


# Decoders.


def _by_pydantic(form: Any) -> _Decode | None:
    """Return pydantic's decoder for a form; None if the form has classes that pydantic does not know."""
    import pydantic

    try:
        validate = pydantic.TypeAdapter(form).validate_json
    except pydantic.PydanticSchemaGenerationError:
        return None

    # Even so it makes times of texts of digits, choices of booleans, and NaN of what is no JSON.  A duration of more
    # than a year has years as pydantic writes it, which msgspec does not read.
    shape = shape_of(form, texts=(bytes, timedelta))
    # It makes floats of numbers, and so loses digits of decimals, unless they are text.
    info = inspect.type_info(shape)
    visit = visit_of(info, _decimal_text) if any(isinstance(it, inspect.DecimalType) for it in parts_of(info)) else None
    exact = None if visit is None else rewriter(visit)
    is_open = any(map(_is_open, classes_of(form))) or bool(unreadable_parts(shape))
    check = None if is_open else msgspec.json.Decoder(shape).decode

    def decode(data: bytes) -> Any:
        if exact is not None and _LONG_NUMBER.search(data):
            data = exact(data)
        try:
            # As all types do: pydantic makes times of numbers, and numbers of booleans and texts, unless told not to.
            value = validate(data, strict=True)
        except pydantic.ValidationError as error:
            raise ValueError(_validation_message(error)) from None
        if check is not None:
            check(data)
        return value

    return decode


_LONG_NUMBER = re.compile(rb"[0-9.]{17}")


def _decimal_text(members: Sequence[inspect.Type]) -> Visit | None:
    """Return the visit of a part that may be a decimal, and no float; None for any other."""
    kinds = {type(member) for member in members}
    return _as_text if inspect.DecimalType in kinds and inspect.FloatType not in kinds else None


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


def _is_open(kind: type) -> bool:
    """Whether JSON of a class is another than its shape: two names of a field, or validators that get the JSON."""
    import pydantic

    if not is_model(kind):
        hints = get_type_hints(kind, include_extras=True).values() if _has_fields(kind) else ()
        return any(map(_reads_itself, hints))
    decorators: Any = kind.__pydantic_decorators__  # type: ignore[attr-defined]
    fields = kind.__pydantic_fields__.values()  # type: ignore[attr-defined]
    config = getattr(kind, "model_config", {})
    return bool(
        config.get("populate_by_name")
        or config.get("validate_by_name")
        or any(it.info.mode != "after" for it in decorators.field_validators.values())
        or any(it.info.mode != "after" for it in decorators.model_validators.values())
        or any(_reads_itself(Annotated[field.annotation, pydantic.Field(), *field.metadata]) for field in fields)
    )


def _reads_itself(form: Any) -> bool:
    """Whether a form has annotations by which pydantic reads other JSON than that of the type."""
    import pydantic

    own = form.__metadata__ if get_origin(form) is Annotated else ()
    return any(
        hasattr(part, "__get_pydantic_core_schema__") and not isinstance(part, pydantic.AfterValidator) for part in own
    ) or any(map(_reads_itself, get_args(form)))


def _validation_message(error: Any) -> str:
    """Return the message of a pydantic error in one line, without links."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{'.'.join(map(str, item['loc']))}: {item['msg']}" if item["loc"] else item["msg"] for item in problems
    )


def _by_cattrs(form: Any) -> _Decode:
    """Return a decoder based on cattrs, which uses msgspec for all types that msgspec can decode.

    Raises:
        TypeError: the classes of a union cannot be distinguished, or a class is not supported.
    """
    import cattrs
    from cattrs.preconf.msgspec import make_converter

    structs = [kind for kind in classes_of(form) if issubclass(kind, msgspec.Struct) and not _is_plain(kind)]
    if structs:
        raise TypeError(
            f"{_full_name(structs[0])} is a msgspec.Struct with a pydantic model, or with a union of classes without a "
            "tag, of which msgspec reads none; declare it as a dataclass, or give the classes of the union tag=True"
        )
    converter = make_converter(detailed_validation=False)
    converter.register_structure_hook_factory(_is_plain, lambda kind: lambda value, _: msgspec.convert(value, kind))
    converter.register_structure_hook_factory(is_model, _model_hook)
    try:
        structure = converter.get_structure_hook(form)
    except cattrs.errors.StructureHandlerNotFoundError as error:
        raise TypeError(f"cattrs: {error.message}" if not error.type_ else f"no way to read {error.type_}") from error

    def decode(data: bytes) -> Any:
        try:
            return structure(_from_json(data), form)
        except KeyError as error:
            raise ValueError(f"Object missing required field `{error.args[0]}`") from error

    return decode


def _is_plain(kind: Any) -> bool:
    """Whether msgspec alone can decode a type."""
    return not any(map(is_model, classes_of(kind))) and _is_known(kind)


def _model_hook(kind: Any) -> Callable[[Any, Any], Any]:
    decode = _by_pydantic(kind)
    assert decode is not None, "pydantic knows its own models"
    # As JSON: strict models accept a datetime as text in JSON only.
    return lambda value, _: decode(_to_json(value))


# What is within a form.


def unreadable_parts(form: Any) -> list[type]:
    """Return the classes within a type form that msgspec cannot decode from JSON.

    Raises:
        TypeError, NameError: the form is not a type, or names an undefined type.
    """
    return [fact.cls for fact in parts_of(inspect.type_info(form)) if isinstance(fact, inspect.CustomType)]


def classes_of(form: Any) -> Iterator[type]:
    """Yield the classes within a type form, each once."""
    pending: list[Any] = [form]
    seen: list[Any] = []
    while pending:
        item = _plain_form(pending.pop())
        if item in seen:
            continue
        seen.append(item)
        pending.extend(get_args(item))
        kind = get_origin(item) or item
        if isinstance(kind, type):
            yield kind
            pending.extend(_annotations(kind).values())


def _plain_form(form: Any) -> Any:
    """Return a form without its aliases and annotations."""
    while True:
        if isinstance(form, NewType):
            form = form.__supertype__
        elif isinstance(form, typing_extensions.TypeAliasType):
            form = form.__value__
        elif get_origin(form) in (Annotated, typing_extensions.Required, typing_extensions.NotRequired):
            form = get_args(form)[0]
        else:
            return form


def _declared_form(hint: Any) -> Any:
    """Return the form of a key of a TypedDict, which may say whether it is required."""
    says = get_origin(hint) in (typing_extensions.Required, typing_extensions.NotRequired)
    return get_args(hint)[0] if says else hint


def _annotations(kind: type) -> dict[str, Any]:
    """Return the types of the fields of a class, by name."""
    fields = getattr(kind, "model_fields", None) if is_model(kind) else None
    if fields is not None:
        return {name: field.annotation for name, field in fields.items()}
    if _has_fields(kind):
        return get_type_hints(kind)
    return {}


def _has_fields(kind: type) -> bool:
    return (
        dataclasses.is_dataclass(kind)
        or attrs.has(kind)
        or issubclass(kind, msgspec.Struct)
        or typing_extensions.is_typeddict(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


# Shapes.

#: The shape of a declared type that msgspec cannot describe; plain Any is a type that is not declared.
DECLARED: Any = Annotated[Any, msgspec.Meta(extra={"is_declared": True})]
#: The same for a class that only pydantic knows, such as AwareDatetime: its values may be of other classes.
_OPAQUE: Any = Annotated[Any, msgspec.Meta(extra={"is_declared": True, "is_opaque": True})]
#: Types whose values are text within a model.
Texts: TypeAlias = tuple[type, ...]
#: Pydantic reads durations such as 23:59:59 and "1 day" too, which no other type does.
_TEXTS: dict[type, Any] = {bytes: str, timedelta: Annotated[str, msgspec.Meta(pattern="^-?P")]}


def shape_of(form: Any, outer: tuple[Any, ...] = (), *, in_model: bool = False, texts: Texts = (bytes,)) -> Any:
    """Return a type that msgspec can decode and that has the same JSON as a form.

    Values of the types ``texts`` within a model are text, as pydantic writes bytes, by the model's settings.

    Raises:
        TypeError: a tuple with names, or a TypedDict, in a model has bytes, or a union in a model is of texts.
    """
    form = _plain_form(form) if in_model else form
    if in_model and form in texts:
        return _TEXTS[form]
    has_texts = in_model and not {*texts}.isdisjoint(classes_of(form))
    if form is Ellipsis or (_is_plain(form) and not has_texts):
        return form
    form = _plain_form(form)
    if form in outer:  # A recursive type.
        return DECLARED
    outer = (*outer, form)
    origin = get_origin(form)
    is_union = origin is Union or origin is types.UnionType
    if is_union or (origin is not None and not _annotations(origin)):
        arguments = [shape_of(argument, outer, in_model=in_model, texts=texts) for argument in get_args(form)]
        if not is_union:
            return origin[tuple(arguments)]
        if in_model:
            try:
                msgspec.json.Decoder(functools.reduce(operator.or_, filter(_is_plain, get_args(form)), None))
            except TypeError as error:
                _refuse_one_text(error)
        if _OPAQUE in arguments:
            return _OPAQUE
        union = functools.reduce(operator.or_, arguments)
        return union if DECLARED not in arguments and _is_known(union) else DECLARED
    if is_model(form) and hasattr(form, "model_fields"):
        return _model_shape(form, outer, texts)
    kind = origin or form
    is_class = dataclasses.is_dataclass(kind) or attrs.has(kind)
    if not is_class and has_texts and bytes in classes_of(form):
        raise TypeError(f"bytes of {_full_name(kind)} are text within a pydantic model; declare str")
    if is_class or typing_extensions.is_typeddict(kind):
        return _class_shape(form, outer, in_model=in_model, texts=texts)
    return _OPAQUE


def _is_known(form: Any) -> bool:
    try:
        return not unreadable_parts(form)
    except FORM_ERRORS:
        return False


def _model_shape(model: Any, outer: tuple[Any, ...], texts_of: Texts) -> Any:
    fields = model.model_fields
    if model.__pydantic_root_model__:
        return shape_of(fields["root"].annotation, outer, in_model=True, texts=texts_of)
    config = model.model_config
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    texts = {}
    serializers = {name for it in model.__pydantic_decorators__.field_serializers.values() for name in it.info.fields}
    for name, field in fields.items():
        is_secret = any(hasattr(kind, "get_secret_value") for kind in classes_of(field.annotation))
        if is_secret and serializers.isdisjoint((name, "*")):
            raise TypeError(
                f"field {name!r} of {model.__qualname__} is a secret, of which pydantic writes stars; declare str, or "
                "give the model a field_serializer that returns get_secret_value()"
            )
        texts[name] = field.serialization_alias or field.alias or name
        read = field.validation_alias or field.alias or name
        if read != texts[name] and not (by_name and texts[name] == name):
            raise TypeError(
                f"field {name!r} of {model.__qualname__} is written as {texts[name]!r} but read as {read!r}; "
                "give both names by alias="
            )
    kinds = {
        name: (shape_of(field.annotation, outer, in_model=True, texts=texts_of), field.is_required())
        for name, field in fields.items()
    }
    return _struct(model, kinds, texts, is_frozen=bool(config.get("frozen")))


def _class_shape(form: Any, outer: tuple[Any, ...], *, in_model: bool, texts: Texts) -> Any:
    kind = get_origin(form) or form
    if attrs.has(kind):
        required = {part.name: part.default is attrs.NOTHING for part in attrs.fields(kind) if part.init}
    elif typing_extensions.is_typeddict(kind):
        required = {name: name in kind.__required_keys__ for name in kind.__annotations__}
    else:
        missing = dataclasses.MISSING
        required = {
            part.name: part.default is missing and part.default_factory is missing
            for part in dataclasses.fields(kind)
            if part.init
        }
    hints = get_type_hints(kind, include_extras=True)
    kinds = {
        name: (shape_of(_declared_form(hints[name]), outer, in_model=in_model, texts=texts), is_required)
        for name, is_required in required.items()
    }
    if typing_extensions.is_typeddict(kind):
        keys = {
            name: part if is_required else typing_extensions.NotRequired[part]
            for name, (part, is_required) in kinds.items()
        }
        return typing_extensions.TypedDict(kind.__name__, keys)  # type: ignore[operator]
    return _struct(kind, kinds, {name: name for name in required}, is_frozen=False)


def _struct(
    cls: type, kinds: dict[str, tuple[Any, bool]], texts: dict[str, str], *, is_frozen: bool
) -> type[msgspec.Struct]:
    """Return a struct with the fields of a class, each with its type and whether it is required."""
    fields: list[Any] = [
        # A union with Any, as that of a declared type, is Any.
        (name, kind) if is_required else (name, kind if kind in (DECLARED, _OPAQUE) else Union[kind, UnsetType], UNSET)  # noqa: UP007
        for name, (kind, is_required) in kinds.items()
    ]
    struct: Any = msgspec.defstruct(
        cls.__name__,
        fields,
        rename=texts.get,
        kw_only=True,
        frozen=is_frozen,
        # A class with code of its own is never replaced by its fields: its values are checked by its own decoder.
        namespace={"__post_init__": _nothing, "__module__": cls.__module__},
    )
    struct.__qualname__ = cls.__qualname__
    return struct  # type: ignore[no-any-return]


def _nothing(_: Any) -> None:
    """Do nothing."""
