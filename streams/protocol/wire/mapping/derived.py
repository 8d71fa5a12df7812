"""Derived translations: functions generated from the attributes of a message and the fields of its table.

A message attribute corresponds to the field with the same name, or to the field whose ``attribute`` names it;
``error`` and ``message`` correspond to ``error_code`` and ``error_message``.  Fields without an attribute have their
default; attributes without a field must have a default.  The types determine the format:

- A mapping or sequence by ``TopicPartition`` is an array of topics, each with an array of
  partitions; other fields of a topic have their default.
- Any other mapping is an array of structures, whose first field is the key.
- A single value with a key is the only required field of its structure.
- A sequence of messages or tuples is an array of structures; the items of plain tuples are the fields in order.
- An empty string is written as None if that is the default of the field, and None is read as "".

The functions are generated as straight-line code, like the functions of the codec.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import attrs

from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode, error_code
from streams.protocol.request import response_type
from streams.protocol.wire.fields import Api, Array, Field, Fields, Fixed, Struct, Text, Type
from streams.protocol.wire.mapping.base import RequestParts, Translation, partitions_by_topic, values_by_topic
from streams.protocol.wire.source import FunctionSource

#: Names of fields with a partition number.
_INDEXES: Final = frozenset({"partition_index", "partition", "index", "partition_id"})
_ALIASES: Final[Mapping[str, str]] = {"error_code": "error", "error_message": "message"}


def writer(kind: type[Any], fields: Sequence[Field], name: str = "") -> Callable[[Any], Fields]:
    """Return a function that converts a message object to Kafka protocol fields.

    Raises:
        TypeError: the message and the fields do not match.
    """
    return _Derivation().compiled("write", "value", name or kind.__name__, lambda one: one.written(kind, fields))


def reader(kind: type[Any], fields: Sequence[Field], name: str = "") -> Callable[[Fields], Any]:
    """Return a function that converts decoded Kafka protocol fields to a message object.

    Raises:
        TypeError: the message and the fields do not match.
    """
    return _Derivation().compiled("read", "value", name or kind.__name__, lambda one: one.read(kind, fields))


def derived(api: Api) -> Translation[Any, Any]:
    """Derive the translation of an API from its table and its two message types.

    Raises:
        TypeError: the API has no message types, or they do not match the table.
    """
    if api.request_type is None:
        raise TypeError(f"{api.name} has no messages: name its request in its table")
    write_request, read_request = (make(api.request_type, api.request_fields) for make in (writer, reader))
    response_class = response_type(api.request_type)
    write_response, read_response = (make(response_class, api.response_fields) for make in (writer, reader))
    return Translation(
        api,
        lambda request, version: write_request(request),
        lambda message, version, request: read_response(message),
        lambda message, version, client: RequestParts((read_request(message),)),
        lambda incoming, responses, serving: write_response(responses[0]),
    )


@attrs.frozen
class _Slot:
    """A part of a message: the expression that reads it, its type, and its field."""

    access: str
    hint: Any
    field: Field


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _attributes(kind: type[Any]) -> dict[str, bool]:
    """Return the attributes of a message or named tuple, and whether each is required."""
    if attrs.has(kind):
        return {found.name: found.default is attrs.NOTHING for found in attrs.fields(kind)}
    return {name: name not in kind._field_defaults for name in kind._fields}


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Return a type hint without None, and whether the hint allowed None."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return (kinds[0] if len(kinds) == 1 else Any), len(kinds) < len(get_args(hint))


def _is_message(hint: Any) -> bool:
    return isinstance(hint, type) and (attrs.has(hint) or _is_named_tuple(hint)) and hint is not TopicPartition


def _is_named_tuple(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


class _Derivation:
    """A generator for the source of one conversion function."""

    def __init__(self) -> None:
        self._source = FunctionSource()

    def compiled(
        self, verb: str, argument: str, name: str, expression: Callable[["_Derivation"], str]
    ) -> Callable[[Any], Any]:
        """Compile a function with one argument, which returns the value of the generated expression."""
        source = self._source
        source.names.update(
            TopicPartition=TopicPartition,
            error_code=error_code,
            values_by_topic=values_by_topic,
            partitions_by_topic=partitions_by_topic,
        )
        with source.block(f"def {verb}({argument}):"):
            source.add(f"return {expression(self)}")
        return source.compiled(verb, f"<{verb} {name}>")

    # --- used in both directions ----------------------------------------------------------

    def _slots(self, kind: Any, fields: Sequence[Field], value: str) -> list[_Slot]:
        """Match the parts of a message, tuple or single value to fields."""
        if _is_message(kind):
            known = _attributes(kind)
            hints = _hints(kind)
            slots = []
            for item in fields:
                name = item.attribute or (item.name if item.name in known else _ALIASES.get(item.name, item.name))
                if name in known:
                    place = list(known).index(name)
                    access = f"{value}[{place}]" if _is_named_tuple(kind) else f"{value}.{name}"
                    slots.append(_Slot(access, hints[name], item))
                elif item.is_required or item.attribute is not None:
                    raise TypeError(f"{kind.__name__} has no attribute for the field {item.name}")
            held = {slot.access for slot in slots}
            for place, (name, is_required) in enumerate(known.items()):
                if is_required and not held & {f"{value}.{name}", f"{value}[{place}]"}:
                    raise TypeError(f"{kind.__name__}.{name} has no field: give it a default, or a field its attribute")
            return slots
        if get_origin(kind) is tuple:
            kinds = get_args(kind)
            return [
                _Slot(f"{value}[{place}]", one, item)
                for place, (one, item) in enumerate(zip(kinds, fields, strict=False))
            ]
        needed = [item for item in fields if item.is_required] or list(fields)
        if len(needed) != 1:
            raise TypeError(f"one value for the fields {', '.join(item.name for item in fields)}")
        return [_Slot(value, kind, needed[0])]

    @staticmethod
    def _by_topic(of: Type) -> tuple[Field, Field] | None:
        """Return the topic field and the partitions field of an array of topics, or None for other arrays."""
        if isinstance(of, Struct) and len(of.fields) > 1:
            topic, *others, partitions = of.fields
            is_free = not any(item.is_required for item in others)
            if isinstance(topic.type, Text) and isinstance(partitions.type, Array) and is_free:
                return topic, partitions
        return None

    def _split(self, fields: Sequence[Field]) -> tuple[str, list[Field]]:
        """Return the name of the field that has the partition number, and the other fields."""
        (index,) = (item.name for item in fields if item.name in _INDEXES and isinstance(item.type, Fixed))
        return index, [item for item in fields if item.name != index]

    # --- to the wire ----------------------------------------------------------------------

    def written(self, kind: Any, fields: Sequence[Field], value: str = "value", keys: str = "") -> str:
        """Return the expression that builds the dict of fields from a message, tuple or single value."""
        rows = [
            f"{slot.field.name!r}: {self._write(slot.hint, slot.field, slot.access)}"
            for slot in self._slots(kind, fields, value)
        ]
        return "{" + ", ".join([keys, *rows] if keys else rows) + "}"

    def _write(self, hint: Any, item: Field, value: str) -> str:
        hint, is_optional = _without_none(hint)
        match item.type:
            case Array(of=of):
                found = self._write_array(hint, of, value)
            case Struct(fields=fields):
                found = self.written(hint, fields, value)
            case Text() if not is_optional and not item.is_required and item.absent is None:
                return f"{value} or None"
            case _:
                return value
        return f"None if {value} is None else {found}" if is_optional and found != value else found

    def _write_array(self, hint: Any, of: Type, value: str) -> str:
        fresh = self._source.fresh
        origin = get_origin(hint)
        arguments = get_args(hint)
        topics = self._by_topic(of) if arguments and arguments[0] is TopicPartition else None
        if topics is not None:
            topic, partitions = topics
            name = fresh("t")
            rows = fresh("p")
            number = fresh("n")
            inner = fresh("v")
            assert isinstance(partitions.type, Array)
            struct = partitions.type.of
            if len(arguments) == 2:
                assert isinstance(struct, Struct)
                index, rest = self._split(struct.fields)
                row = self.written(arguments[1], rest, inner, f"{index!r}: {number}")
                each = f"[{row} for {number}, {inner} in {rows}]"
                groups = f"values_by_topic({value})"
            else:
                index = self._split(struct.fields)[0] if isinstance(struct, Struct) else ""
                each = f"[{{{index!r}: {number}}} for {number} in {rows}]" if index else rows
                groups = f"partitions_by_topic({value})"
            return f"[{{{topic.name!r}: {name}, {partitions.name!r}: {each}}} for {name}, {rows} in {groups}.items()]"
        if not isinstance(of, Struct):
            return value
        inner = fresh("v")
        if isinstance(origin, type) and issubclass(origin, Mapping):
            key = of.fields[0]
            number = fresh("k")
            row = self.written(arguments[1], of.fields[1:], inner, f"{key.name!r}: {number}")
            return f"[{row} for {number}, {inner} in {value}.items()]"
        return f"[{self.written(arguments[0], of.fields, inner)} for {inner} in {value}]"

    # --- from the wire --------------------------------------------------------------------

    def read(self, kind: Any, fields: Sequence[Field], value: str = "value") -> str:
        """Return the expression that builds a message, tuple or single value from a dict of fields."""
        parts = []
        for slot in self._slots(kind, fields, ""):
            text = self._read(slot.hint, slot.field, f"{value}[{slot.field.name!r}]")
            if _is_message(kind):
                place = slot.access.strip("[].")
                name = list(_attributes(kind))[int(place)] if place.isdigit() else place
                text = f"{name}={text}"
            parts.append(text)
        if _is_message(kind):
            return f"{self._source.constant(kind)}({', '.join(parts)})"
        return f"({', '.join(parts)},)" if get_origin(kind) is tuple else parts[0]

    def _read(self, hint: Any, item: Field, value: str) -> str:
        hint, is_optional = _without_none(hint)
        if hint is ErrorCode:
            return f"error_code({value})"
        match item.type:
            case Array(of=of):
                is_nullable = not is_optional and item.nullable is not None
                found = self._read_array(hint, of, f"({value} or ())" if is_nullable else value)
            case Struct(fields=fields):
                found = self.read(hint, fields, value)
            case Text() if not is_optional and item.nullable is not None:
                return f"{value} or ''"
            case _:
                return value
        return f"None if {value} is None else {found}" if is_optional else found

    def _read_array(self, hint: Any, of: Type, value: str) -> str:
        fresh = self._source.fresh
        origin = get_origin(hint)
        arguments = get_args(hint)
        inner = fresh("r")
        topics = self._by_topic(of) if arguments and arguments[0] is TopicPartition else None
        if topics is not None:
            topic, partitions = topics
            row = fresh("r")
            assert isinstance(partitions.type, Array)
            struct = partitions.type.of
            loops = f"for {inner} in {value} for {row} in {inner}[{partitions.name!r}]"
            index, rest = self._split(struct.fields) if isinstance(struct, Struct) else ("", [])
            number = f"{row}[{index!r}]" if index else row
            found = f"TopicPartition({inner}[{topic.name!r}], {number})"
            if len(arguments) == 2:
                return f"{{{found}: {self.read(arguments[1], rest, row)} {loops}}}"
            return f"tuple(dict.fromkeys({found} {loops}))"
        if not isinstance(of, Struct):
            return f"tuple({value})"
        if isinstance(origin, type) and issubclass(origin, Mapping):
            key = f"{inner}[{of.fields[0].name!r}]"
            return f"{{{key}: {self.read(arguments[1], of.fields[1:], inner)} for {inner} in {value}}}"
        return f"tuple([{self.read(arguments[0], of.fields, inner)} for {inner} in {value}])"
