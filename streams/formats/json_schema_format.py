"""The JSON Schema format, with or without a schema registry; jsonschema (extra ``json-schema``) validates documents."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

import msgspec
from typing_extensions import TypeForm

from streams.core.errors import ConfigError, TopologyError
from streams.core.installation import pip_install
from streams.core.serdes.serde_models import codec_of
from streams.core.serdes.serdes import Serde, refusal_of, refuse_non_finite
from streams.formats.json_references import referenced_documents, registry_of
from streams.formats.json_values import JsonForm, json_form
from streams.formats.registered import Decode, Registration, registered_serde
from streams.formats.registry_client import References, RegistryAccess, registry_at
from streams.formats.subjects import SubjectStrategy, check_strategy
from streams.registry import JSON, Reference, Schema

T = TypeVar("T")

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


@overload
def json_schema(
    form: TypeForm[T],
    *,
    registry: str | RegistryAccess | None = None,
    subject: SubjectStrategy = "topic",
    title: str | None = None,
    auto_register: bool = True,
    schema_id: int | None = None,
) -> Serde[T]: ...
@overload
def json_schema(
    form: str | Mapping[str, Any] | os.PathLike[str],
    *,
    registry: str | RegistryAccess | None = None,
    subject: SubjectStrategy = "topic",
    auto_register: bool = True,
    schema_id: int | None = None,
    references: References | None = None,
) -> Serde[Any]: ...
def json_schema(
    form: Any,
    *,
    registry: str | RegistryAccess | None = None,
    subject: SubjectStrategy = "topic",
    title: str | None = None,
    auto_register: bool = True,
    schema_id: int | None = None,
    references: References | None = None,
) -> Serde[Any]:
    """Return the serde of a class, or of a schema, whose bytes are JSON.

    The schema of a class is derived from its fields. Its objects are closed, so that a field with a default can be
    added later, which is an incompatible change of an open schema (see the guide). Deserialization checks the types of
    the fields. A schema is given as JSON text, as parsed JSON, or as the path of a file; its values are JSON values,
    which are validated when they are read and when they are written.

    - ``registry``, ``subject``, ``auto_register``, ``schema_id``: as for ``avro``.
    - ``title``: the title of the schema, which the strategies ``record`` and ``topic-record`` use as its name (default:
      the name of the class).
    - ``references``: the subjects of the schemas that a given schema refers to, by their names in ``$ref``; with a
      version ``("customers-value", 2)`` (default: the subject of that name, and its latest version).

    Raises:
        ConfigError: a schema is given, but jsonschema is not installed.
        TopologyError: there is no JSON schema for the class, or the schema is invalid, or refers to what is not there.
        SchemaError: the registry, which is asked for references, does not respond.
    """
    check_strategy(subject)
    if isinstance(form, os.PathLike):
        form = Path(form).read_text(encoding="utf-8")
    registration = Registration(registry_at(registry), subject, auto_register, schema_id)
    if not isinstance(form, (str, Mapping)):
        return registered_serde(_JsonCodec, (form, title), registration)
    schema = _loaded(form)
    _validators()
    references_and_documents = referenced_documents(schema, registration.registry, references or {})
    return registered_serde(_JsonCodec, (schema, title, *references_and_documents), registration)


class _JsonCodec:
    """The codec of a class, or of a schema whose values are JSON values."""

    dependencies: Mapping[str, Schema]

    def __init__(
        self,
        form: Any,
        title: str | None,
        references: tuple[Reference, ...] = (),
        documents: Mapping[str, Any] | None = None,
    ) -> None:
        is_schema = isinstance(form, Mapping)
        self.form = None if is_schema else form
        schema = form if is_schema else _schema_of(form, title)
        self.schema = Schema(JSON, json.dumps(schema), references)
        self.dependencies = {}
        self.name = str(schema.get("title", "JSON"))
        declared = Any if is_schema else form
        self._json = json_form(declared)
        self.is_immutable = self._json.is_immutable
        self.from_json = self._json.from_json
        self.to_json = self._json.to_json
        validate = _validator(schema, documents or {}) if is_schema else None
        self._decode = self._json.from_json if validate is None else _then(self._json.from_json, validate)
        encode = _exact(self._json, refusal_of(declared, codec_of(declared).shape))
        self.encode = encode if validate is None else _after(validate, encode)
        if not is_schema and isinstance(form, type):
            self.encode = _of_class(form, encode)

    def decoder(self, writer: Schema, referenced: Mapping[str, Schema]) -> Decode[Any]:
        """Return a function that deserializes documents, regardless of their writer schema."""
        if writer.kind != JSON:
            raise ValueError(f"its schema is {writer.kind}, not JSON")
        return self._decode


def _schema_of(form: Any, title: str | None) -> dict[str, Any]:
    """Return the JSON schema of a class, with the class at the root and the classes that it uses in ``$defs``."""
    make = getattr(form, "model_json_schema", None)
    try:
        schema = make() if make is not None else msgspec.json.schema(form, schema_hook=_pydantic_schema)
    except (TypeError, ValueError, NameError, NotImplementedError, AttributeError) as error:
        raise TopologyError(f"no JSON schema for {form!r}: {error}") from error
    named = schema.pop("$defs", {})
    target = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    root = named.get(target, schema)
    if target in named and f'"#/$defs/{target}"' not in json.dumps(named):
        del named[target]
    for part in (root, *named.values()):
        if part.get("type") == "object" and "properties" in part:
            part.setdefault("additionalProperties", False)
    name = title or root.get("title") or getattr(form, "__name__", "JSON")
    return {"$schema": _DRAFT, **root, "title": name, **({"$defs": named} if named else {})}


def _pydantic_schema(cls: Any) -> dict[str, Any]:
    make = getattr(cls, "model_json_schema", None)
    if make is None:
        raise NotImplementedError
    schema: dict[str, Any] = make()
    return schema


def _loaded(form: Any) -> dict[str, Any]:
    try:
        schema = json.loads(form) if isinstance(form, str) else dict(form)
    except ValueError as error:
        raise TopologyError(f"{form[:200]!r} is no JSON schema: {error}") from error
    if not isinstance(schema, dict):
        raise TopologyError(f"{form!r} is no JSON schema: a schema is an object")
    return schema


def _validators() -> Any:
    try:
        import jsonschema
    except ModuleNotFoundError as error:
        raise ConfigError(f"validating by a JSON schema needs jsonschema: {pip_install('json-schema')}") from error
    return jsonschema


def _validator(schema: Mapping[str, Any], documents: Mapping[str, Any]) -> Callable[[Any], None]:
    """Return a function that raises ValueError for an invalid document."""
    jsonschema = _validators()
    kind = jsonschema.validators.validator_for(schema)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise TopologyError(f"it is no JSON schema: {error.message}") from error
    find = kind(schema, registry=registry_of(documents)).iter_errors

    def validate(value: Any) -> None:
        for error in find(value):
            place = "/".join(map(str, error.absolute_path))
            raise ValueError(f"{error.message}{f', at {place}' if place else ''}")

    return validate


def _exact(form: JsonForm, refuse: Callable[[Any], Any] | None) -> Callable[[Any], bytes]:
    """Return the encoder of a form that raises ValueError for NaN and other values that JSON has not."""
    encode, decoder = form.to_json, form.decoder

    def write(value: Any) -> bytes:
        data = encode(value)
        if refuse is not None:
            refuse(value)
        decoder.check_decimals(data)
        if b"null" in data:
            refuse_non_finite(value, data, decoder.one)
        return data

    return write


def _then(decode: Callable[[bytes], Any], validate: Callable[[Any], None]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        value = decode(data)
        validate(value)
        return value

    return read


def _after(validate: Callable[[Any], None], encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def write(value: Any) -> bytes:
        validate(value)
        return encode(value)

    return write


def _of_class(cls: type, encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    kind = dict if issubclass(cls, dict) else cls

    def write(value: Any) -> bytes:
        if type(value) is not kind:
            raise TypeError(f"expected {cls.__qualname__}")
        return encode(value)

    return write
