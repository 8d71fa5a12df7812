"""The Protobuf format (extra ``protobuf``): of generated classes, and of messages that a schema registry describes.

In Confluent's wire format, the schema ID is followed by the message indexes, which locate the message type in its file:
their number and each index as zigzag varints, or a single 0 for the first message type of the file.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, overload

from streams.core.errors import ConfigError, TopologyError
from streams.core.installation import pip_install
from streams.core.serdes.serdes import Serde
from streams.core.serdes.varints import read_varint, varint
from streams.formats.registered import Decode, Registration, registered_serde
from streams.formats.registry_client import NoSuchSchema, RegistryAccess, registry_at
from streams.formats.subjects import SubjectStrategy, check_strategy
from streams.registry import PROTOBUF, Reference, Schema, protobuf_file

M = TypeVar("M")

#: Files that every registry has; they are no references.
_KNOWN = ("google/protobuf/", "google/type/", "confluent/")


@overload
def protobuf(
    form: type[M],
    *,
    registry: str | RegistryAccess | None = None,
    subject: SubjectStrategy = "topic",
    auto_register: bool = True,
    schema_id: int | None = None,
) -> Serde[M]: ...
@overload
def protobuf(form: str, *, registry: str | RegistryAccess, source: str | tuple[str, int]) -> Serde[Any]: ...
def protobuf(
    form: type[Any] | str,
    *,
    registry: str | RegistryAccess | None = None,
    subject: SubjectStrategy = "topic",
    auto_register: bool = True,
    schema_id: int | None = None,
    source: str | tuple[str, int] | None = None,
) -> Serde[Any]:
    """Return the Protobuf serde of a generated message class, or of a message that the registry describes.

    The arguments are those of ``avro``. The files that the class's file imports are registered first, each under a
    subject with the name of the file, and become references. Without a registry the bytes are the bare message.

    Instead of a class, the full name of a message, such as ``shop.Order``, with the ``source`` of its file: a subject,
    or a subject and a version (default: the latest). The values are messages; a dict of fields can be written, too.
    The file is read when the type is declared; records have its schema ID, and nothing is registered.

    Raises:
        ConfigError: protobuf is not installed.
        TopologyError: the class is not a generated message class, or the registry has no such message.
        SchemaError: the registry, which is asked for a message by name, does not respond.
    """
    check_strategy(subject)
    access = registry_at(registry)
    if isinstance(form, str):
        _message_type()
        if access is None or source is None:
            raise TopologyError(f"the message {form!r} needs registry= and source=, the subject that describes it")
        place = (source, "latest") if isinstance(source, str) else source
        try:
            schema_id, schema = access.identified(*place)
        except NoSuchSchema as error:
            raise TopologyError(f"message {form!r}, subject {place[0]!r}: {error}") from error
        if schema.kind != PROTOBUF:
            raise TopologyError(f"message {form!r}: the schema of subject {place[0]!r} is {schema.kind}, not PROTOBUF")
        files = tuple((name, file.text) for name, file in access.referenced(schema).items())
        fixed = Registration(access, subject, schema_id=schema_id)
        return registered_serde(_ProtobufCodec, (form, True, schema, files), fixed)
    registration = Registration(access, subject, auto_register, schema_id)
    return registered_serde(_ProtobufCodec, (form, registration.registry is not None), registration)


def _message_type() -> type[Any]:
    try:
        from google.protobuf.message import Message
    except ModuleNotFoundError as error:
        raise ConfigError(f"Protobuf needs its library: {pip_install('protobuf')}") from error
    message: type[Any] = Message
    return message


class _ProtobufCodec:
    """The codec of a class; with ``has_indexes`` the message indexes precede the message.

    A name instead of a class is that of a message of ``schema``, which imports ``files``.
    """

    is_immutable = False

    def __init__(
        self, form: Any, has_indexes: bool, schema: Schema | None = None, files: tuple[tuple[str, str], ...] = ()
    ) -> None:
        message = _message_type()
        if schema is not None:
            form = _class_of(form, schema.text, files)
        if not (isinstance(form, type) and issubclass(form, message) and hasattr(form, "DESCRIPTOR")):
            raise TopologyError(f"{form!r} is no Protobuf message: give a class that protoc has generated")
        self._cls: Any = form
        self.form: Any = form
        self._has_indexes = has_indexes
        descriptor = self._cls.DESCRIPTOR
        self.name: str = descriptor.full_name
        imported: dict[str, Schema] = {}
        self.schema = _schema(descriptor.file, imported) if schema is None else schema
        self.dependencies: Mapping[str, Schema] = imported
        self._prefix = _encoded(_indexes(descriptor)) if has_indexes else b""

    def encode(self, value: Any) -> bytes:
        """Return message indexes and message; map entries are sorted, so that equal messages have equal bytes."""
        if type(value) is dict:
            value = self._cls(**value)
        if type(value) is not self._cls:
            raise TypeError(f"expected {self.name}")
        data: bytes = value.SerializeToString(deterministic=True)
        return self._prefix + data

    def decoder(self, writer: Schema, referenced: Mapping[str, Schema]) -> Decode[Any]:
        """Return a function that deserializes messages of this name, with any indexes in the writer's file."""
        if writer.kind != PROTOBUF:
            raise ValueError(f"its schema is {writer.kind}, not PROTOBUF")
        from google.protobuf.message import DecodeError

        parse = self._cls.FromString

        def message(data: bytes) -> Any:
            try:
                return parse(data)
            except DecodeError as error:
                raise ValueError(error) from error

        if not self._has_indexes:
            return message
        file = protobuf_file(writer, referenced)
        names: dict[tuple[int, ...], str] = {}

        def decode(data: bytes) -> Any:
            indexes, start = _decoded(data)
            name = names.get(indexes)
            if name is None:
                name = names[indexes] = _named(file, indexes)
            if name != self.name:
                raise ValueError(f"it is a {name}, not a {self.name}")
            return message(data[start:])

        return decode

    def from_json(self, text: bytes) -> Any:
        """Return the message for a JSON text (Protobuf's JSON mapping)."""
        from google.protobuf import json_format

        try:
            return json_format.ParseDict(json.loads(text), self._cls(), descriptor_pool=self._cls.DESCRIPTOR.file.pool)
        except json_format.ParseError as error:
            raise ValueError(error) from error

    def to_json(self, value: Any) -> bytes:
        """Return a message as JSON, with the field names of the file."""
        from google.protobuf import json_format

        pool = self._cls.DESCRIPTOR.file.pool
        fields = json_format.MessageToDict(value, preserving_proto_field_name=True, descriptor_pool=pool)
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


@cache
def _class_of(name: str, text: str, files: tuple[tuple[str, str], ...]) -> Any:
    """Return the class of a message of a schema: one for all topics, so that its messages go from one to the other."""
    from google.protobuf.message_factory import GetMessageClass

    file = protobuf_file(Schema(PROTOBUF, text), {other: Schema(PROTOBUF, part) for other, part in files})
    messages = dict(_messages(file.message_types_by_name.values()))
    if name not in messages:
        raise TopologyError(f"there is no message {name!r}: the schema has {', '.join(messages)}")
    return GetMessageClass(messages[name])


def _messages(descriptors: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for descriptor in descriptors:
        yield descriptor.full_name, descriptor
        yield from _messages(descriptor.nested_types)


def _schema(file: Any, referenced: dict[str, Schema]) -> Schema:
    """Return the schema of a file, and add the schemas of the files that it imports to ``referenced`` by name."""
    imported = [other for other in file.dependencies if not other.name.startswith(_KNOWN)]
    for other in imported:
        if other.name not in referenced:
            schema = _schema(other, referenced)
            referenced[other.name] = schema
    # Their versions are known when they are registered.
    references = tuple(Reference(other.name, other.name, 1) for other in imported)
    return Schema(PROTOBUF, base64.standard_b64encode(file.serialized_pb).decode(), references)


def _indexes(descriptor: Any) -> list[int]:
    """Return the indexes of a message type in its file: those of the enclosing message types, then its own."""
    parent = descriptor.containing_type
    if parent is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    return [*_indexes(parent), [nested.name for nested in parent.nested_types].index(descriptor.name)]


def _encoded(indexes: list[int]) -> bytes:
    if indexes == [0]:
        return b"\0"
    return b"".join(map(varint, (len(indexes), *indexes)))


def _decoded(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return the message indexes, and the offset at which the message begins."""
    count, at = read_varint(data, 0)
    if count == 0:
        return (0,), at
    indexes = []
    for _ in range(count):
        index, at = read_varint(data, at)
        indexes.append(index)
    return tuple(indexes), at


def _named(file: Any, indexes: tuple[int, ...]) -> str:
    """Return the full name of the message type with these indexes in a file."""
    messages = list(file.message_types_by_name.values())
    message = messages[indexes[0]]
    for index in indexes[1:]:
        message = message.nested_types[index]
    name: str = message.full_name
    return name
