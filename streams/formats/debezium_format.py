"""Change events of Debezium, read as rows of a table: the current row, or None if the row was deleted.

An event contains the row ``before`` and ``after`` the change, and an operation: ``c`` (insert), ``u`` (update), ``d``
(delete), ``r`` (snapshot), ``t`` (truncate) or ``m`` (message). JSON events may include their schema; the schemas of
Avro events are in a registry.
"""

import base64
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
from attrs import frozen
from msgspec import inspect

from streams.core.serdes.serde_base import CODEC_ERRORS, blank, one_by_one, read_error, write_error
from streams.core.serdes.serdes import FormatSerde, Serde, serde_for
from streams.formats.avro_format import any_avro
from streams.formats.json_values import JsonForm, json_form
from streams.formats.registry_client import RegistryAccess

T = TypeVar("T")

#: Operations: create, update, delete, read (snapshot), truncate, message.
_OPERATIONS = ("c", "u", "d", "r", "t", "m")
#: What Postgres' connector writes in place of a large value that an update did not change, as text and as bytes.
_UNAVAILABLE = b"__debezium_unavailable_value"
_PLACEHOLDERS = (_UNAVAILABLE.decode(), _UNAVAILABLE, base64.b64encode(_UNAVAILABLE).decode())
_ERRORS = (msgspec.MsgspecError, *CODEC_ERRORS)


def debezium(form: type[T], *, registry: str | RegistryAccess | None = None) -> Serde[T]:
    """Return the serde of a topic that Debezium writes, for the rows of a class; read the topic as a table.

    As a value, an event becomes the row after the change; a deletion and the tombstone that follows it become None. As
    a key, it becomes the key of the row. Fields that the class does not have are ignored; types must match those that
    Debezium writes. With ``registry``, events are Avro; otherwise they are JSON, with or without schemas.

    JSON events can also be written, for tests: a row as a snapshot event, and None as a tombstone. Avro events can
    only be read.

    Raises:
        ConfigError: a registry is given, but fastavro is not installed.
        TopologyError: there is no serde for the class.
    """
    return _serde(form, registry, "value")


def _serde(form: Any, registry: str | RegistryAccess | None, side: str) -> FormatSerde[Any]:
    rows = serde_for(form)
    shape = json_form(form)
    name = f"debezium:{rows.name}"
    document = _parsed if registry is None else _avro_reader(registry)
    row_of = _key_row if side == "key" else partial(_value_row, _declared(form))

    def deserialize(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            row = row_of(document(data))
            return None if row is None else shape.from_plain(row)
        except _ERRORS as error:
            raise read_error(name, data, error) from error

    def serialize(value: Any) -> bytes | None:
        if value is None:
            return None
        if registry is not None:
            raise write_error(name, value, "Avro topics of Debezium are only read; write to a topic of avro(...)")
        row = rows.serialize(value)
        return row if side == "key" else b'{"before":null,"after":%b,"op":"r"}' % (row or b"null")

    serde: FormatSerde[Any] = blank(FormatSerde)
    serde.name = name
    serde.is_immutable = rows.is_immutable
    serde.key_suffix = 0
    serde.serialize = serialize
    serde.deserialize = deserialize
    serde.serialize_all = one_by_one(serialize)
    serde.deserialize_all = one_by_one(deserialize)
    serde.format = _Events(form, registry, rows, shape, row_of)
    serde._recipe = (_serde, (form, registry, side))
    return serde


@frozen(eq=False)
class _Events:
    """The ``SerdeFormat`` of change events: stores contain rows, and lines of files may be events or rows."""

    form: Any
    registry: str | RegistryAccess | None
    rows: Serde[Any]
    shape: JsonForm
    row_of: Callable[[Any], Any]

    def on_topic(self, topic: str, side: str) -> Serde[Any]:
        return _serde(self.form, self.registry, side)

    def inside(self) -> Serde[Any]:
        return self.rows

    def prepare(self, *, writes: bool) -> None:
        """Do nothing: Debezium's converter registers the schemas."""

    def from_json(self, text: bytes) -> Any:
        row = self.row_of(_parsed(text))
        return None if row is None else self.shape.from_plain(row)

    def from_row(self, row: Any) -> Any:
        return self.shape.from_row(row)

    def to_json(self, value: Any) -> bytes:
        return b"null" if value is None else self.shape.to_json(value)


def _parsed(data: bytes) -> Any:
    return json.loads(data)


def _payload(document: Any) -> Any:
    """Return the payload of an event, without the schema that ``schemas.enable`` of Kafka Connect's converter adds."""
    if isinstance(document, Mapping) and document.keys() == {"schema", "payload"}:
        return document["payload"]
    return document


def _key_row(document: Any) -> Any:
    return _payload(document)


def _declared(form: Any) -> frozenset[str] | None:
    """Return the names of the fields of a class, or None if all fields are read."""
    fields = getattr(inspect.type_info(form), "fields", None)
    return None if fields is None else frozenset(part.encode_name for part in fields)


def _value_row(declared: frozenset[str] | None, document: Any) -> Any:
    """Return the row after a change, or None if it was deleted.

    Raises:
        ValueError: it is no change event, or Debezium did not have the value of a declared field.
    """
    event = _payload(document)
    if event is None:
        return None
    if not isinstance(event, Mapping) or event.get("op") not in _OPERATIONS:
        raise ValueError(f"it is no change event of Debezium: it needs op, one of {', '.join(_OPERATIONS)}")
    row = event.get("after")
    if isinstance(row, Mapping):
        for name, value in row.items():
            if (declared is None or name in declared) and (value[0] if value and type(value) is list else value) in (
                _PLACEHOLDERS
            ):
                raise ValueError(
                    f"field {name!r} has {_UNAVAILABLE.decode()}: the update did not change this large value, so that "
                    f"Postgres did not log it; set REPLICA IDENTITY FULL for the table, or leave the field out of the "
                    "class"
                )
    return row


def _avro_reader(registry: str | RegistryAccess) -> Callable[[bytes], Any]:
    """Return a function that deserializes any Avro record to a dict, with its writer schema."""
    return any_avro(registry)
