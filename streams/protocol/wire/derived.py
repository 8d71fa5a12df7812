"""Derived translations: functions generated from message classes, between messages and Kafka protocol fields.

``protocol.schema`` says which field an attribute is, and which attributes are not on the wire.  An empty string is
written as None if that is the default of the field, and None is read as "".  The functions are generated as
straight-line code, like the functions of the codec.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, get_args, get_origin

from attrs import evolve

from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode, error_code
from streams.protocol.request import response_type
from streams.protocol.schema import (
    Api,
    Array,
    Field,
    Fields,
    Struct,
    Text,
    Type,
    by_class,
    fields_of,
    is_structure,
    split_hint,
    unsent_of,
)
from streams.protocol.wire.source import FunctionSource
from streams.protocol.wire.translation import RequestParts, Translation, limited, partitions_by_topic, values_by_topic


@by_class
def writer(kind: type[Any]) -> Callable[[Any], Fields]:
    """Return a function that converts a message object to Kafka protocol fields.

    Raises:
        TypeError: an attribute has no form on the wire.
    """
    return _Derivation().compiled("write(value)", kind, lambda one: one.written(kind))


@by_class
def reader(kind: type[Any]) -> Callable[[Fields], Any]:
    """Return a function that converts decoded Kafka protocol fields to a message object.

    Attributes that are not on the wire have their defaults.

    Raises:
        TypeError: an attribute has no form on the wire.
    """
    return _Derivation().compiled("read(value)", kind, lambda one: one.read(kind))


def derived(api: Api) -> Translation[Any, Any]:
    """Derive the translation of an API from its two message classes.

    Raises:
        TypeError: an attribute has no form on the wire.
    """
    asked = api.request_type
    answered = response_type(asked)
    translation: Translation[Any, Any] = Translation(
        api,
        _Derivation().compiled("write(value, version)", asked, lambda one: one.written(asked)),
        _Derivation().compiled("read(value, version, request)", answered, lambda one: one.read_whole(answered)),
        _Derivation().compiled(
            "read(value, version, client)", asked, lambda one: f"RequestParts(({one.read_whole(asked)},))"
        ),
        _Derivation().compiled(
            "write(incoming, responses, serving)",
            answered,
            lambda one: one.written(answered, one.variable("responses[0]")),
        ),
    )
    for name, note in unsent_of(asked).items():
        if note.limit is not None:
            return evolve(translation, limit=limited(note.limit, attrgetter(name)))
    return translation


class _Derivation:
    """A generator for the source of one conversion function."""

    def __init__(self) -> None:
        self._source = FunctionSource()

    def compiled(
        self, signature: str, kind: type[Any], expression: Callable[["_Derivation"], str]
    ) -> Callable[..., Any]:
        """Compile a function, which returns the value of the generated expression."""
        source = self._source
        source.names.update(
            TopicPartition=TopicPartition,
            RequestParts=RequestParts,
            error_code=error_code,
            values_by_topic=values_by_topic,
            partitions_by_topic=partitions_by_topic,
        )
        with source.block(f"def {signature}:"):
            source.add(f"return {expression(self)}")
        verb = signature.partition("(")[0]
        return source.compiled(verb, f"<{verb} {kind.__name__}>")

    def variable(self, expression: str) -> str:
        """Add a line that sets a variable, and return its name."""
        name = self._source.fresh("m")
        self._source.add(f"{name} = {expression}")
        return name

    # --- to the wire ----------------------------------------------------------------------

    def written(self, kind: Any, value: str = "value") -> str:
        """Return the expression that builds the dict of fields from a message or named tuple."""
        return self._dict(kind, fields_of(kind), value)

    def _dict(self, kind: Any, fields: Sequence[Field], value: str, first: str = "") -> str:
        """Return the expression that builds the dict of ``fields`` from a message, a tuple or a single value."""
        rows = [first] if first else []
        rows += (f"{item.name!r}: {self._write(item, access)}" for item, access in _parts(kind, fields, value))
        return "{" + ", ".join(rows) + "}"

    def _write(self, item: Field, value: str) -> str:
        hint, is_optional, _ = split_hint(item.hint)
        match item.type:
            case Array(of=of):
                written = self._write_array(hint, of, value)
            case Struct():
                written = self.written(hint, value)
            case Text() if not is_optional and item.default is None:
                return f"{value} or None"
            case _:
                return value
        return f"None if {value} is None else {written}" if is_optional and written != value else written

    def _write_array(self, hint: Any, of: Type, value: str) -> str:
        fresh = self._source.fresh
        if not isinstance(of, Struct):
            return value
        arguments = get_args(hint)
        if arguments[0] is TopicPartition:
            topic, *_, partitions = of.fields
            name = fresh("t")
            rows = fresh("p")
            number = fresh("n")
            index, rest = _split(partitions)
            each = rows
            groups = f"partitions_by_topic({value})"
            if len(arguments) == 2:
                inner = fresh("v")
                each = (
                    f"[{self._dict(arguments[1], rest, inner, f'{index!r}: {number}')} for {number}, {inner} in {rows}]"
                )
                groups = f"values_by_topic({value})"
            elif index:
                each = f"[{{{index!r}: {number}}} for {number} in {rows}]"
            return f"[{{{topic.name!r}: {name}, {partitions.name!r}: {each}}} for {name}, {rows} in {groups}.items()]"
        inner = fresh("v")
        if get_origin(hint) is Mapping:
            key = fresh("k")
            row = self._dict(arguments[1], of.fields[1:], inner, f"{of.fields[0].name!r}: {key}")
            return f"[{row} for {key}, {inner} in {value}.items()]"
        return f"[{self._dict(arguments[0], of.fields, inner)} for {inner} in {value}]"

    # --- from the wire --------------------------------------------------------------------

    def read_whole(self, kind: type[Any]) -> str:
        """Return the expression that builds a request or response, with what is not on the wire."""
        sources = [f"{name}={note.source}" for name, note in unsent_of(kind).items() if note.source]
        return self.read(kind, more=sources)

    def read(self, kind: Any, value: str = "value", more: Sequence[str] = ()) -> str:
        """Return the expression that builds a message or named tuple from a dict of fields."""
        return self._built(kind, fields_of(kind), value, more)

    def _built(self, kind: Any, fields: Sequence[Field], value: str, more: Sequence[str] = ()) -> str:
        """Return the expression that builds a message, a tuple or a single value from a dict of ``fields``."""
        items = [item for item, _ in _parts(kind, fields, "")]
        parts = [self._read(item, f"{value}[{item.name!r}]") for item in items]
        if is_structure(kind):
            named = [f"{item.attribute}={part}" for item, part in zip(items, parts, strict=True)]
            return f"{self._source.constant(kind)}({', '.join([*named, *more])})"
        return f"({', '.join(parts)},)" if get_origin(kind) is tuple else parts[0]

    def _read(self, item: Field, value: str) -> str:
        hint, is_optional, _ = split_hint(item.hint)
        if hint is ErrorCode:
            return f"error_code({value})"
        match item.type:
            case Array(of=of):
                is_nullable = not is_optional and item.nullable is not None
                read = self._read_array(hint, of, f"({value} or ())" if is_nullable else value)
            case Struct():
                read = self.read(hint, value)
            case Text() if not is_optional and item.nullable is not None:
                return f"{value} or ''"
            case _:
                return value
        return f"None if {value} is None else {read}" if is_optional else read

    def _read_array(self, hint: Any, of: Type, value: str) -> str:
        if not isinstance(of, Struct):
            return f"tuple({value})"
        fresh = self._source.fresh
        inner = fresh("r")
        arguments = get_args(hint)
        if arguments[0] is TopicPartition:
            topic, *_, partitions = of.fields
            row = fresh("r")
            loops = f"for {inner} in {value} for {row} in {inner}[{partitions.name!r}]"
            index, rest = _split(partitions)
            number = f"{row}[{index!r}]" if index else row
            partition = f"TopicPartition({inner}[{topic.name!r}], {number})"
            if len(arguments) == 2:
                return f"{{{partition}: {self._built(arguments[1], rest, row)} {loops}}}"
            return f"tuple(dict.fromkeys({partition} {loops}))"
        if get_origin(hint) is Mapping:
            key = f"{inner}[{of.fields[0].name!r}]"
            return f"{{{key}: {self._built(arguments[1], of.fields[1:], inner)} for {inner} in {value}}}"
        return f"tuple([{self._built(arguments[0], of.fields, inner)} for {inner} in {value}])"


def _parts(kind: Any, fields: Sequence[Field], value: str) -> list[tuple[Field, str]]:
    """Return the fields that a message, a tuple or a single value has, and the expressions that read them from it."""
    if is_structure(kind):
        names = getattr(kind, "_fields", ())
        return [
            (item, f"{value}[{names.index(item.attribute)}]" if names else f"{value}.{item.attribute}")
            for item in fields
            if item.attribute is not None
        ]
    if get_origin(kind) is tuple:
        return [
            (item, f"{value}[{place}]") for place, (item, _) in enumerate(zip(fields, get_args(kind), strict=False))
        ]
    return [(next(item for item in fields if item.hint is not None), value)]


def _split(partitions: Field) -> tuple[str, Sequence[Field]]:
    """Return the name of the field that has the partition number, or "" for plain numbers, and the other fields."""
    assert isinstance(partitions.type, Array)
    of = partitions.type.of
    if not isinstance(of, Struct):
        return "", ()
    index = next(item.name for item in of.fields if item.hint is TopicPartition)
    return index, [item for item in of.fields if item.name != index]
