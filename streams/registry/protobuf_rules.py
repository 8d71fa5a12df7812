"""Whether messages of one Protobuf file can be read with another one. Pure.

The rules are those of Confluent's Schema Registry: fields are compared by number; a field may be added or removed,
unless it is required; a scalar type may be replaced by one with the same encoding.
"""

from collections.abc import Iterator, Mapping

from attrs import define, field
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

_Field = FieldDescriptor
#: Scalars with the same encoding, such that one may be read as the other.
_ALIKE = (
    {_Field.TYPE_INT32, _Field.TYPE_UINT32, _Field.TYPE_INT64, _Field.TYPE_UINT64, _Field.TYPE_BOOL},
    {_Field.TYPE_SINT32, _Field.TYPE_SINT64},
    {_Field.TYPE_STRING, _Field.TYPE_BYTES},
    {_Field.TYPE_FIXED32, _Field.TYPE_SFIXED32},
    {_Field.TYPE_FIXED64, _Field.TYPE_SFIXED64},
)
_WORDS = {
    number: name.removeprefix("TYPE_").lower() for name, number in vars(_Field).items() if name.startswith("TYPE_")
}


def unreadable(reader: FileDescriptor, writer: FileDescriptor) -> list[str]:
    """Return why messages of ``writer`` cannot be read with ``reader``; [] if they can."""
    return list(_Comparison().files(reader, writer))


def _problem(kind: str, path: str, told: str) -> str:
    return f"{{errorType:'{kind}', description:'{told}', path:'#/{path}'}}"


@define
class _Comparison:
    #: Pairs of messages that have been compared, by name: messages may contain themselves.
    _seen: set[tuple[str, str]] = field(factory=set)

    def files(self, reader: FileDescriptor, writer: FileDescriptor) -> Iterator[str]:
        if reader.package != writer.package:
            yield _problem("PACKAGE_CHANGED", "", f"the package was {writer.package}")
        yield from self._messages(reader.message_types_by_name, writer.message_types_by_name, "")

    def _messages(
        self, readers: Mapping[str, Descriptor], writers: Mapping[str, Descriptor], path: str
    ) -> Iterator[str]:
        for name, writer in writers.items():
            place = f"{path}{name}"
            reader = readers.get(name)
            if reader is None:
                yield _problem("MESSAGE_REMOVED", place, f"message {name} is missing")
            else:
                yield from self._message(reader, writer, place)

    def _message(self, reader: Descriptor, writer: Descriptor, path: str) -> Iterator[str]:
        pair = (reader.full_name, writer.full_name)
        if pair in self._seen:
            return
        self._seen.add(pair)
        read = reader.fields_by_number
        written = writer.fields_by_number
        for number, part in written.items():
            if number in read:
                yield from self._field(read[number], part, f"{path}/{number}")
            elif part.is_required:
                yield _problem("REQUIRED_FIELD_REMOVED", f"{path}/{number}", f"field {part.name} was required")
        for number, part in read.items():
            if number not in written and part.is_required:
                yield _problem("REQUIRED_FIELD_ADDED", f"{path}/{number}", f"field {part.name} is required")
        yield from _oneofs(reader, writer, path)
        yield from self._messages(_own(reader), _own(writer), f"{path}.")

    def _field(self, reader: FieldDescriptor, writer: FieldDescriptor, path: str) -> Iterator[str]:
        if reader.is_repeated != writer.is_repeated and _kind(reader) != "scalar":
            yield _problem("FIELD_LABEL_CHANGED", path, f"field {reader.name} is repeated in one of them only")
        if _kind(reader) != _kind(writer):
            yield _problem("FIELD_KIND_CHANGED", path, f"field {reader.name} was a {_kind(writer)}")
        elif reader.message_type is not None:
            if reader.message_type.name != writer.message_type.name:
                yield _problem("FIELD_NAMED_TYPE_CHANGED", path, f"its type was {writer.message_type.name}")
            else:
                yield from self._message(reader.message_type, writer.message_type, reader.message_type.name)
        elif reader.enum_type is None or writer.enum_type is None:
            pair = {reader.type, writer.type}
            if len(pair) > 1 and not any(pair <= alike for alike in _ALIKE):
                yield _problem("FIELD_SCALAR_KIND_CHANGED", path, f"its type was {_WORDS[writer.type]}")


def _kind(part: FieldDescriptor) -> str:
    if part.message_type is not None:
        return "map" if part.message_type.GetOptions().map_entry else "message"
    # An enum is encoded as a number, and may become one.
    return "scalar"


def _own(message: Descriptor) -> dict[str, Descriptor]:
    """Return the message types that are nested in a message type, without the entry types of its maps."""
    return {name: part for name, part in message.nested_types_by_name.items() if not part.GetOptions().map_entry}


def _oneofs(reader: Descriptor, writer: Descriptor, path: str) -> Iterator[str]:
    """Check that fields which a writer may set together are not in one oneof of the reader."""
    for group in reader.oneofs:
        numbers = [part.number for part in group.fields]
        held = next((other for other in writer.oneofs if other.name == group.name), None)
        was_there = held is not None
        inside = {part.number for part in held.fields} if held is not None else set()
        free = [number for number in numbers if number not in inside and _is_free(writer, number)]
        if len(free) > 1 or (free and was_there):
            kind = "FIELDS_MOVED_TO_EXISTING_ONEOF" if was_there else "MULTIPLE_FIELDS_MOVED_TO_ONEOF"
            yield _problem(kind, f"{path}/{group.name}", f"fields {', '.join(map(str, free))} were independent")
    remaining = reader.fields_by_number
    for group in writer.oneofs:
        for part in group.fields:
            if part.number not in remaining and len(group.fields) > 1:
                yield _problem("ONEOF_FIELD_REMOVED", f"{path}/{group.name}", f"field {part.name} is missing")


def _is_free(message: Descriptor, number: int) -> bool:
    part = message.fields_by_number.get(number)
    return part is not None and (part.containing_oneof is None or len(part.containing_oneof.fields) == 1)
