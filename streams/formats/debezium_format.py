"""Change events of Debezium, read as rows of a table: the current row, or None if the row was deleted.

An event contains the row ``before`` and ``after`` the change, and an operation: ``c`` (insert), ``u`` (update), ``d``
(delete), ``r`` (snapshot), ``t`` (truncate) or ``m`` (message). JSON events may include their schema; the schemas of
Avro events are in a registry.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

import msgspec
from attrs import frozen
from msgspec import inspect

from streams.core.serdes.parts import Visit, parts_of, visit_of
from streams.core.serdes.serde_base import CODEC_ERRORS, blank, one_by_one, read_error, write_error
from streams.core.serdes.serdes import FormatSerde, Serde, serde_for
from streams.formats.avro_format import any_avro
from streams.formats.connect_types import read_row
from streams.formats.json_values import JsonForm, json_form
from streams.formats.registry_client import RegistryAccess

T = TypeVar("T")

#: Operations: create, update, delete, read (snapshot), truncate, message.
_OPERATIONS = ("c", "u", "d", "r", "t", "m")
_WITH_ROW = ("c", "u", "r")
#: What Postgres' connector writes in place of a large value that an update did not change, as text and as bytes.
_UNAVAILABLE = b"__debezium_unavailable_value"
_PLACEHOLDERS = (_UNAVAILABLE.decode(), _UNAVAILABLE, base64.b64encode(_UNAVAILABLE).decode())
_ERRORS = (msgspec.MsgspecError, *CODEC_ERRORS)


def debezium(form: type[T], *, registry: str | RegistryAccess | None = None) -> Serde[T]:
    """Return the serde of a topic that Debezium writes, for the rows of a class; read the topic as a table.

    As a value, an event becomes the row after the change; a deletion and the tombstone that follows it become None. As
    a key, it becomes the key of the row. Fields that the class does not have are ignored. With ``registry``, events are
    Avro; otherwise they are JSON, with or without schemas. By the schema, decimals and times are read as ``Decimal``,
    ``datetime``, ``date``, ``time`` and ``timedelta``; a field of type ``int`` has the number of a time.

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
    declared = inspect.type_info(form)
    parse = _parser(declared)
    visit = visit_of(declared, _untyped) if registry is None else None
    document = parse if registry is None else any_avro(registry)
    row_of = partial(_key_row if side == "key" else _value_row, declared)

    def from_plain(row: Any) -> Any:
        return shape.from_plain(row if visit is None else visit(row))

    def deserialize(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            row = row_of(document(data))
            return None if row is None else from_plain(row)
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
    serde.format = _Events(form, registry, rows, shape, lambda text: row_of(parse(text)), from_plain)
    serde._recipe = (_serde, (form, registry, side))
    return serde


@frozen(eq=False)
class _Events:
    """The ``SerdeFormat`` of change events: stores contain rows, and lines of files may be events or rows."""

    form: Any
    registry: str | RegistryAccess | None
    rows: Serde[Any]
    shape: JsonForm
    row_of: Callable[[bytes], Any]
    from_plain: Callable[[Any], Any]

    def on_topic(self, topic: str, side: str) -> Serde[Any]:
        return _serde(self.form, self.registry, side)

    def inside(self) -> Serde[Any]:
        return self.rows

    def prepare(self, *, writes: bool) -> None:
        """Do nothing: Debezium's converter registers the schemas."""

    def from_json(self, text: bytes) -> Any:
        row = self.row_of(text)
        return None if row is None else self.from_plain(row)

    def from_row(self, row: Any) -> Any:
        return self.shape.from_row(row)

    def to_json(self, value: Any) -> bytes:
        return b"null" if value is None else self.shape.to_json(value)


def _parser(declared: inspect.Type) -> Callable[[bytes], Any]:
    """Return the function that parses a document; each digit of a number counts if it may be a decimal."""
    has_decimals = any(isinstance(part, inspect.DecimalType) for part in parts_of(declared))
    return msgspec.json.Decoder(float_hook=Decimal if has_decimals else None).decode


def _untyped(members: Sequence[inspect.Type]) -> Visit | None:
    return _floats if any(isinstance(member, inspect.AnyType) for member in members) else None


def _floats(value: Any) -> Any:
    """Return JSON whose type is not declared, with numbers as JSON has them."""
    return msgspec.json.decode(_with_numbers(value))


_with_numbers = msgspec.json.Encoder(decimal_format="number").encode


def _schema_and_payload(document: Any) -> tuple[Any, Any]:
    """Return the parts of a document; ``schemas.enable`` of Kafka Connect's converter adds the schema."""
    if isinstance(document, Mapping) and document.keys() == {"schema", "payload"}:
        return document["schema"], document["payload"]
    return None, document


def _key_row(declared: inspect.Type, document: Any) -> Any:
    return read_row(declared, *_schema_and_payload(document))


def _value_row(declared: inspect.Type, document: Any) -> Any:
    """Return the row after a change, or None if it was deleted.

    Raises:
        ValueError: it is no change event, or Debezium did not have the value of a declared field.
    """
    schema, event = _schema_and_payload(document)
    if event is None:
        return None
    if not isinstance(event, Mapping) or event.get("op") not in _OPERATIONS:
        raise ValueError(f"it is no change event of Debezium: it needs op, one of {', '.join(_OPERATIONS)}")
    row = event.get("after")
    if not isinstance(row, Mapping):
        if event["op"] in _WITH_ROW:
            raise ValueError(f"its op is {event['op']!r}, but it has no row in 'after'")
        return None
    fields = getattr(declared, "fields", None)
    names = row.keys() if fields is None else [part.encode_name for part in fields]
    before = event.get("before") or {}
    row = {name: _available(row, before, name) if name in names else value for name, value in row.items()}
    schemas = schema.get("fields", ()) if isinstance(schema, Mapping) else ()
    return read_row(declared, next((part for part in schemas if part.get("field") == "after"), None), row)


def _available(row: Mapping[str, Any], before: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field, which may be in the row before the change only."""
    former = before.get(name)
    # A large value is no null: the row before has null where Postgres has not logged it.
    for value in (row[name], _UNAVAILABLE if former is None else former):
        if (value[0] if value and type(value) is list else value) not in _PLACEHOLDERS:
            return value
    raise ValueError(
        f"field {name!r} has {_UNAVAILABLE.decode()}: the update did not change this large value, so that Postgres did "
        "not log it; set REPLICA IDENTITY FULL for the table, or leave the field out of the class"
    )
