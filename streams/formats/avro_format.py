"""The Avro format, by fastavro (extra ``avro``), with or without a schema registry."""

import json
import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar, overload

from typing_extensions import TypeForm

from streams.core.errors import ConfigError, TopologyError
from streams.core.installation import pip_install
from streams.core.serdes.serdes import Serde
from streams.formats.avro_classes import shape_of
from streams.formats.avro_forms import form_of
from streams.formats.avro_logical import fitted
from streams.formats.avro_references import parsed_schema, whole_schema
from streams.formats.avro_values import Shape, check_integers, shape_of_schema
from streams.formats.connect_types import schema_of_avro
from streams.formats.json_values import json_form
from streams.formats.registered import Decode, Readers, Registration, registered_serde
from streams.formats.registry_client import References, RegistryAccess, registry_at
from streams.formats.subjects import SubjectStrategy, check_strategy
from streams.registry import AVRO, Reference, Schema

T = TypeVar("T")


@overload
def avro(
    form: TypeForm[T],
    *,
    registry: str | RegistryAccess | None = None,
    subject: SubjectStrategy = "topic",
    name: str | None = None,
    namespace: str | None = None,
    auto_register: bool = True,
    schema_id: int | None = None,
) -> Serde[T]: ...
@overload
def avro(
    form: str | Mapping[str, Any] | os.PathLike[str],
    *,
    registry: str | RegistryAccess | None = None,
    subject: SubjectStrategy = "topic",
    auto_register: bool = True,
    schema_id: int | None = None,
    references: References | None = None,
) -> Serde[Any]: ...
def avro(
    form: Any,
    *,
    registry: str | RegistryAccess | None = None,
    subject: SubjectStrategy = "topic",
    name: str | None = None,
    namespace: str | None = None,
    auto_register: bool = True,
    schema_id: int | None = None,
    references: References | None = None,
) -> Serde[Any]:
    """Return the Avro serde of a class, or of a schema.

    The schema of a class (attrs, dataclass, msgspec.Struct, pydantic, TypedDict, NamedTuple) comes from its fields. A
    schema is given as JSON text, as parsed JSON, or as the path of an ``.avsc`` file; its records are dicts.

    - ``registry``: the URL of a schema registry; the bytes then begin with the schema ID, in Confluent's wire
      format, and data written with other schemas is read by Avro's schema resolution. Without a registry (the
      default), the bytes are the bare Avro datum.
    - ``subject``: the subject name strategy: ``topic`` (the default), ``record`` or ``topic-record``.
    - ``name``, ``namespace``: name and namespace of the record (default: the name of the class, no namespace).
    - ``auto_register``: whether to register the schema; if False, it must be registered already (default: True).
    - ``schema_id``: the schema ID to write; nothing is registered.
    - ``references``: the subjects of the types of other schemas that a given schema names, by their full names; with a
      version ``("customers-value", 2)`` (default: the subject of that name, and its latest version).

    Raises:
        ConfigError: fastavro is not installed.
        TopologyError: there is no Avro schema for the class, or the schema is invalid, or names what is not there.
        SchemaError: the registry, which is asked for references, does not respond.
    """
    _fastavro()
    check_strategy(subject)
    if isinstance(form, os.PathLike):
        form = Path(form).read_text(encoding="utf-8")
    registration = Registration(registry_at(registry), subject, auto_register, schema_id)
    if not isinstance(form, (str, Mapping, list)):
        return registered_serde(_AvroCodec, (form, name, namespace), registration)
    schema = _loaded(form) if isinstance(form, str) else form
    whole = whole_schema(schema, registration.registry, references or {})
    return registered_serde(_AvroCodec, (schema, None, None, *whole), registration)


def any_avro(registry: str | RegistryAccess) -> Callable[[bytes], Any]:
    """Return a function that deserializes what is written with any Avro schema of a registry, as Connect's documents.

    Records are dicts; a document has the ``schema`` of Kafka Connect and the ``payload``.

    Raises:
        ConfigError: fastavro is not installed.
    """
    _fastavro()
    access = RegistryAccess(registry) if isinstance(registry, str) else registry
    return Readers(access, _read_any).read


def avro_schema(form: Any, *, name: str | None = None, namespace: str | None = None) -> dict[str, Any]:
    """Return the Avro schema of a class as JSON, for a file or a registry; the arguments are those of ``avro``.

    Raises:
        TopologyError: there is no Avro schema for the class.
    """
    schema: dict[str, Any] = shape_of(form, name, namespace).schema
    return schema


def _fastavro() -> Any:
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise ConfigError(f"Avro needs fastavro: {pip_install('avro')}") from error
    return fastavro


def _read_any(writer: Schema, referenced: Mapping[str, Schema]) -> Decode[Any]:
    """Return a function that deserializes data with its writer schema."""
    if writer.kind != AVRO:
        raise ValueError(f"its schema is {writer.kind}, not AVRO")
    named: dict[str, Any] = {}
    for other in referenced.values():
        parsed_schema(json.loads(other.text), named)
    written = parsed_schema(_loaded(writer.text), named)
    read = _fastavro().schemaless_reader
    schema = schema_of_avro(written, named)
    return lambda data: {"schema": schema, "payload": read(BytesIO(data), written, None)}


class _AvroCodec:
    """The codec of a class, or of a schema whose records are dicts."""

    def __init__(
        self,
        form: Any,
        name: str | None,
        namespace: str | None,
        references: tuple[Reference, ...] = (),
        whole: Any = None,
    ) -> None:
        self._fastavro = _fastavro()
        is_schema = whole is not None
        shape = Shape(whole, _same) if is_schema else shape_of(form, name, namespace)
        self.schema = Schema(AVRO, json.dumps(form if is_schema else shape.schema), references)
        self.dependencies: Mapping[str, Schema] = {}
        named: dict[str, Any] = {}
        self._parsed = parsed_schema(shape.schema, named)
        self._shape = shape_of_schema(self._parsed, named) if is_schema else shape
        self.name = self._parsed["name"] if isinstance(self._parsed, dict) and "name" in self._parsed else _word(shape)
        self._is_class = not is_schema
        self.form = form_of(self._parsed, named) if is_schema else form
        self._json = json_form(self.form)
        self.is_immutable = self._json.is_immutable
        self.encode = self._encoder(self._shape)
        self.from_json = self._json.from_json
        self.to_json = self._json.to_json

    def _encoder(self, shape: Shape) -> Callable[[Any], bytes]:
        convert, plain = shape.to_datum, shape.plain
        write = self._fastavro.schemaless_writer
        parsed = self._parsed
        if _kind(parsed) == "bytes" and isinstance(parsed, str):
            # As Confluent's serializers: bytes alone have no length before them.
            return lambda value: bytes(convert(value))

        def encode(value: Any) -> bytes:
            buffer = BytesIO()
            datum = value if type(value) in plain else convert(value)
            try:
                write(buffer, parsed, datum)
            except OverflowError:
                check_integers(datum)
                raise
            return buffer.getvalue()

        return encode

    def decoder(self, writer: Schema, referenced: Mapping[str, Schema]) -> Decode[Any]:
        """Return a function that deserializes data of a writer schema, by Avro's schema resolution."""
        if writer.kind != AVRO:
            raise ValueError(f"its schema is {writer.kind}, not AVRO")
        named: dict[str, Any] = {}
        for other in referenced.values():
            parsed_schema(json.loads(other.text), named)
        linked = deepcopy(named)
        written = parsed_schema(_loaded(writer.text), named)
        if _kind(written) == "bytes" and isinstance(self._parsed, str):
            return bytes
        read = self._fastavro.schemaless_reader
        convert = self._shape.from_datum
        # Without a reader's schema fastavro compares nothing.
        own = None if written == self._parsed else self._parsed
        if own is None and convert is None:
            return lambda data: read(BytesIO(data), written, None)

        if own is not None:
            written, own = fitted(written, own, linked, is_class=self._is_class)
            written, own = parsed_schema(written, linked), parsed_schema(own, {})
        unresolved = self._fastavro.read.SchemaResolutionError

        def decode(data: bytes) -> Any:
            try:
                datum = read(BytesIO(data), written, own, return_record_name=convert is not None)
            except unresolved as error:
                raise ValueError(f"the schema it was written with does not fit: {str(error)[:_SHOWN]}") from error
            return datum if convert is None else convert(datum)

        return decode


#: Characters of a message of fastavro, which may have whole schemas.
_SHOWN = 300


def _same(value: Any) -> Any:
    return value


def _loaded(text: str) -> Any:
    try:
        schema = json.loads(text)
    except ValueError as error:
        if text.strip().isidentifier():
            return text.strip()
        raise TopologyError(f"{text[:200]!r} is no Avro schema: {error}") from error
    return schema["type"] if isinstance(schema, dict) and schema.keys() == {"type"} else schema


def _kind(parsed: Any) -> Any:
    return parsed.get("type") if isinstance(parsed, dict) else parsed


def _word(shape: Shape) -> str:
    """Return the type name of a schema, which names it if it has no other name."""
    kind = _kind(shape.schema)
    return kind if isinstance(kind, str) else "union"
