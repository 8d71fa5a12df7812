"""Serdes with schemas in a registry: Confluent's wire format, registration, and a cached decoder per writer schema.

The bytes are the magic byte 0, the ID of the writer schema (four bytes, big-endian) and the payload. A format only
provides a ``ClassCodec``; everything else is the same for Avro, Protobuf and JSON Schema.
"""

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from attrs import evolve, field, frozen

from streams.core.errors import SchemaError, TopologyError
from streams.core.serdes.serde_base import CODEC_ERRORS, blank, fill, one_by_one, read_error, write_error
from streams.core.serdes.serdes import FormatSerde, Serde
from streams.formats.registry_client import IncompatibleSchema, NoSuchSchema, RegistryAccess
from streams.formats.subjects import SubjectStrategy, subject_of
from streams.registry import AVRO, JSON, PROTOBUF, Reference, Schema, differences

T = TypeVar("T")

_MAGIC = b"\0"
#: The magic byte and the ID.
_HEADER_BYTES = 5
#: The formats in names of serdes; ``json`` is that of types without a schema.
_WORDS: Final = {AVRO: "avro", JSON: "json-schema", PROTOBUF: "protobuf"}
#: Errors of the formats' libraries about input; EOFError: the bytes end within a value.
BAD_DATA = (*CODEC_ERRORS, AttributeError, EOFError)

Decode = Callable[[bytes], T]


class ClassCodec(Protocol[T]):
    """A format for one class: the ``name`` of the record, its ``schema``, and conversions to bytes without a header.

    ``form`` is the class or type expression; None if the schema alone is known, and Python has no type like it.
    ``dependencies`` are the files that the schema references by name; they are registered before it.
    """

    form: Any
    name: str
    schema: Schema
    dependencies: Mapping[str, Schema]
    is_immutable: bool

    @property
    def encode(self) -> Callable[[T], bytes]:
        """The function that serializes a value."""

    def decoder(self, writer: Schema, referenced: Mapping[str, Schema]) -> Decode[T]:
        """Return a function that deserializes data of a writer schema.

        Raises:
            SerializationError: data of this schema cannot be read as the class.
        """

    def from_json(self, text: bytes) -> T:
        """Return the value for a JSON text."""

    def to_json(self, value: T) -> bytes:
        """Return a value as JSON."""


@frozen
class Registration:
    """How a serde uses its registry.

    ``auto_register`` adds the schema to its subject; otherwise the subject must have it. ``schema_id`` is a fixed ID
    to write, without registration.
    """

    registry: RegistryAccess | None
    subject: SubjectStrategy = "topic"
    auto_register: bool = True
    schema_id: int | None = None

    def __attrs_post_init__(self) -> None:
        """Check the ID.

        Raises:
            TopologyError: there is no such ID.
        """
        schema_id = self.schema_id
        if schema_id is not None and not (type(schema_id) is int and 1 <= schema_id < 1 << 31):
            raise TopologyError(f"schema_id is a whole number from 1 to {(1 << 31) - 1}, not {schema_id!r}")


@frozen(eq=False)
class Readers(Generic[T]):
    """Deserializes bytes with a header; ``decoder`` creates the function for a writer schema, once per schema ID."""

    registry: RegistryAccess
    decoder: Callable[[Schema, Mapping[str, Schema]], Decode[T]]
    _decoders: dict[bytes, Decode[T]] = field(factory=dict)

    def read(self, data: bytes) -> T:
        """Return the value that bytes with a header contain.

        Raises:
            ValueError: the bytes have no header, or one with an unknown ID.
            SchemaError: the registry does not respond.
        """
        decode = self._decoders.get(data[:_HEADER_BYTES]) or self._new_decoder(data[:_HEADER_BYTES])
        return decode(data[_HEADER_BYTES:])

    def _new_decoder(self, head: bytes) -> Decode[T]:
        if len(head) < _HEADER_BYTES or not head.startswith(_MAGIC):
            raise ValueError("they do not begin with 0 and the ID of a schema; were they written without a registry?")
        schema_id = int.from_bytes(head[1:], "big")
        try:
            writer = self.registry.schema(schema_id)
            referenced = self.registry.referenced(writer)
        except NoSuchSchema as error:
            raise ValueError(f"schema {schema_id} is unknown: {error}") from error
        decode = self._decoders[head] = self.decoder(writer, referenced)
        return decode


@frozen(eq=False)
class _Wire(Generic[T]):
    """The registry data that a serde caches: the header that it writes, and the decoders by schema ID."""

    codec: ClassCodec[T]
    registration: Registration
    #: The topic and the side; None for state stores and internal topics.
    place: tuple[str, str] | None
    readers: Readers[T] | None
    _header: list[bytes] = field(factory=list)
    _lock: threading.Lock = field(factory=threading.Lock)

    @property
    def registry(self) -> RegistryAccess:
        assert self.registration.registry is not None, "only serdes with a registry have a wire"
        return self.registration.registry

    @property
    def subject(self) -> str:
        """The subject of the schema; each schema of an application's internal topics has a subject of its own."""
        if self.place is None:
            digest = hashlib.blake2b(self.codec.schema.text.encode(), digest_size=8).hexdigest()
            return f"streams-internal-{self.codec.name}-{digest}"
        topic, side = self.place
        return subject_of(self.registration.subject, topic, side, self.codec.name)

    def header(self) -> bytes:
        """Return the header to write; the schema ID is requested from the registry once.

        Raises:
            SchemaError: the registry rejects the schema, does not have it, or does not respond.
        """
        if not self._header:
            with self._lock:
                if not self._header:
                    schema_id = self.registration.schema_id or self._registered()
                    self._header.append(_MAGIC + schema_id.to_bytes(4, "big"))
        return self._header[0]

    def _registered(self) -> int:
        schema = evolve(self.codec.schema, references=self._references())
        try:
            if self.registration.auto_register or self.place is None:
                return self.registry.register(self.subject, schema)
            return int(self.registry.look_up(self.subject, schema)["id"])
        except IncompatibleSchema as error:
            raise SchemaError(
                f"{self._what}: the schema is incompatible with an earlier one: {error}; give new fields a default, or "
                "change the compatibility of the subject"
            ) from error
        except NoSuchSchema as error:
            raise SchemaError(
                f"{self._what}: the schema is not registered, and auto_register=False: register it: {error}"
            ) from error

    @property
    def _what(self) -> str:
        return f"{self.codec.name} in subject {self.subject!r}"

    def _references(self) -> tuple[Reference, ...]:
        """Register the dependencies of the schema, each under a subject with its name; return the references."""
        references: dict[str, Reference] = {}
        for name, schema in self.codec.dependencies.items():
            own = tuple(references[reference.name] for reference in schema.references)
            whole = evolve(schema, references=own)
            if self.registration.auto_register:
                self.registry.register(name, whole)
            references[name] = Reference(name, name, int(self.registry.look_up(name, whole)["version"]))
        # Those that the schema itself refers to; the others are referred to by these.
        direct = [reference.name for reference in self.codec.schema.references]
        return tuple(
            references.get(name, held) for name, held in zip(direct, self.codec.schema.references, strict=True)
        )

    def check(self) -> None:
        """Check that data of the subject's latest version can be read.

        Raises:
            SchemaError: the data cannot be read, or the registry does not respond.
        """
        try:
            latest = self.registry.version(self.subject, "latest")
        except NoSuchSchema:
            # Nobody has written yet.
            return
        schema = self.codec.schema
        # The dependencies of a class may not be registered yet; what a given schema refers to is.
        referenced = self.codec.dependencies or self.registry.referenced(schema)
        problems = differences("BACKWARD", (schema, referenced), (latest, self.registry.referenced(latest)))
        if problems:
            raise SchemaError(f"{self._what}: it cannot read what the latest version writes: {'; '.join(problems)}")


@frozen(eq=False)
class _Registered(Generic[T]):
    """The ``Format`` of a serde: how to create it for another topic, and its JSON form."""

    make: Callable[..., "ClassCodec[T]"]
    arguments: tuple[Any, ...]
    registration: Registration
    codec: ClassCodec[T]
    wire: _Wire[T]
    #: The serde inside the application, once it is made: stores compare serdes by identity.
    _inside: list[Serde[T]] = field(factory=list)

    @property
    def form(self) -> Any:
        return self.codec.form

    def on_topic(self, topic: str, side: str) -> Serde[T]:
        return registered_serde(self.make, self.arguments, self.registration, (topic, side))

    def inside(self) -> Serde[T]:
        if not self._inside:
            self._inside.append(registered_serde(self.make, self.arguments, self.registration))
        return self._inside[0]

    def keep_inside(self, serde: Serde[T]) -> None:
        """Return this serde for internal topics and stores of the application."""
        self._inside.append(serde)

    def prepare(self, *, writes: bool) -> None:
        if self.registration.registry is None:
            return
        if writes:
            self.wire.header()
        elif self.wire.place is not None:
            self.wire.check()

    def from_json(self, text: bytes) -> T:
        return self.codec.from_json(text)

    def to_json(self, value: T) -> bytes:
        return self.codec.to_json(value)


def registered_serde(
    make: Callable[..., ClassCodec[T]],
    arguments: tuple[Any, ...],
    registration: Registration,
    place: tuple[str, str] | None = None,
) -> FormatSerde[T]:
    """Return the serde of the codec that ``make(*arguments)`` creates; unpickling the serde calls ``make`` again.

    Without a registry the bytes have no header, and are read with the schema of the class.
    """
    codec = make(*arguments)
    registry = registration.registry
    wire = _Wire(codec, registration, place, None if registry is None else Readers(registry, codec.decoder))
    name = f"{_WORDS[codec.schema.kind]}:{codec.name}"
    serde: FormatSerde[T] = blank(FormatSerde)
    serde.format = registered = _Registered(make, arguments, registration, codec, wire)
    if place is None:
        registered.keep_inside(serde)
    recipe = (registered_serde, (make, arguments, registration, place))
    return fill(serde, name, recipe, *_functions(name, wire), is_immutable=codec.is_immutable)


def _functions(name: str, wire: _Wire[Any]) -> Any:
    """Return the functions to write and read a value, and those for columns."""
    codec = wire.codec
    encode = wire.codec.encode
    has_header = wire.readers is not None
    read = codec.decoder(codec.schema, codec.dependencies) if wire.readers is None else wire.readers.read

    def serialize(value: Any) -> bytes | None:
        if value is None:
            return None
        header = wire.header() if has_header else b""
        try:
            return header + encode(value)
        except BAD_DATA as error:
            raise write_error(name, value, error) from error

    def deserialize(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return read(data)
        except BAD_DATA as error:
            # EOFError has no message.
            raise read_error(name, data, str(error) or "they end within a value") from error

    def serialize_all(column: Any) -> list[bytes | None]:
        header = wire.header() if has_header else b""
        try:
            return [None if value is None else header + encode(value) for value in column]
        except BAD_DATA:
            return [serialize(value) for value in column]

    return (serialize, deserialize), (serialize_all, one_by_one(deserialize))
