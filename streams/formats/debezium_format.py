"""Change events of Debezium, read as rows of a table: the current row, or None if the row was deleted.

An event contains the row ``before`` and ``after`` the change, and an operation: ``c`` (insert), ``u`` (update), ``d``
(delete), ``r`` (snapshot), ``t`` (truncate) or ``m`` (message). JSON events may include their schema; the schemas of
Avro events are in a registry.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from hashlib import md5
from typing import Any, Literal, TypeVar
from uuid import UUID

import msgspec
from attrs import frozen
from msgspec import inspect

from streams.core.errors import SerializationError, TopologyError
from streams.core.serdes.parts import Visit, parts_of, visit_of
from streams.core.serdes.serde_base import CODEC_ERRORS, blank, fill, read_error, write_error
from streams.core.serdes.serdes import FormatSerde, PartialRow, PartialSerde, Serde, serde_for
from streams.formats.avro_format import any_avro
from streams.formats.connect_types import read_row
from streams.formats.json_values import JsonForm, json_form
from streams.formats.registry_client import RegistryAccess

T = TypeVar("T")

#: Operations: create, update, delete, read (snapshot), truncate, message.
_OPERATIONS = ("c", "u", "d", "r", "t", "m")
_WITH_ROW = ("c", "u", "r")
#: What Postgres' connector writes in place of a large value that an update did not change: text, or bytes, which are
#: base64 in JSON; arrays of these, of UUIDs and of integers; maps, which may be text.
_BYTES = b"__debezium_unavailable_value"
_TEXT = _BYTES.decode()
_SCALARS = (_TEXT, _BYTES, base64.b64encode(_BYTES).decode())
_UUID = str(UUID(bytes=md5(_BYTES, usedforsecurity=False).digest(), version=3))
_MAP = {_TEXT: _TEXT}
_ARRAYS = (*([scalar] for scalar in _SCALARS), [_UUID], [*_BYTES])
_PLACEHOLDERS = (*_SCALARS, *_ARRAYS, _MAP, msgspec.json.encode(_MAP).decode())
_texts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_OPTION = 'let a table keep its value by unavailable_values="keep"'
_ERRORS = (msgspec.MsgspecError, *CODEC_ERRORS)


def debezium(
    form: type[T],
    *,
    registry: str | RegistryAccess | None = None,
    unavailable_values: Literal["fail", "keep"] = "fail",
) -> Serde[T]:
    """Return the serde of a topic that Debezium writes, for the rows of a class; read the topic as a table.

    As a value, an event becomes the row after the change; a deletion and the tombstone that follows it become None. As
    a key, it becomes the key of the row. Fields that the class does not have are ignored. With ``registry``, events are
    Avro; otherwise they are JSON, with or without schemas. By the schema, decimals and times are read as ``Decimal``,
    ``datetime``, ``date``, ``time`` and ``timedelta``; a field of type ``int`` has the number of a time.

    For a large value that an update did not change, an event may have the placeholder ``__debezium_unavailable_value``.
    With ``unavailable_values="fail"``, the event is then an error of the record, unless it has the row before. With
    ``"keep"``, the table keeps the value of its row, and the topic can be read as a table only; it is an error if the
    table does not have the row.

    JSON events can also be written, for tests: a row as a snapshot event, and None as a tombstone. Avro events can
    only be read.

    Raises:
        ConfigError: a registry is given, but fastavro is not installed.
        TopologyError: there is no serde for the class, or ``unavailable_values`` is neither of the two.
    """
    if unavailable_values not in ("fail", "keep"):
        raise TopologyError(f"unavailable_values must be 'fail' or 'keep', not {unavailable_values!r}")
    return _serde(form, registry, unavailable_values == "keep", "value")


def _serde(form: Any, registry: str | RegistryAccess | None, keeps: bool, side: str) -> FormatSerde[Any]:
    rows = serde_for(form)
    shape = json_form(form)
    name = f"debezium:{'keep:' * keeps}{rows.name}"
    declared = inspect.type_info(form)
    parse = _parser(declared)
    visit = visit_of(declared, _untyped) if registry is None else None
    document = parse if registry is None else any_avro(registry)
    row_of = partial(_key_row if side == "key" else _value_row, declared)

    def read(document: Any) -> Any:
        row, lacking = row_of(document)
        if lacking and not keeps:
            raise ValueError(_lacking(next(iter(lacking)), _OPTION))
        value = None if row is None else shape.from_plain(row if visit is None else visit(row))
        return PartialRow(value, lacking) if lacking else value

    def complete(partial: PartialRow, former: Any) -> Any:
        values, before = (_texts(rows.serialize(row) or b"{}") for row in (partial.row, former))
        for field, name in partial.lacking.items():
            del values[name]
            if name in before:
                values[name] = before[name]
            elif former is None or isinstance(former, dict):
                raise SerializationError(f"serde {serde.name!r}: {_lacking(field, 'the table has none to keep')}")
        return rows.deserialize(msgspec.json.encode(values))

    def deserialize(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return read(document(data))
        except _ERRORS as error:
            raise read_error(name, data, error) from error

    def serialize(value: Any) -> bytes | None:
        if value is None:
            return None
        if registry is not None:
            raise write_error(name, value, "Avro topics of Debezium are only read; write to a topic of avro(...)")
        row = rows.serialize(value.row if isinstance(value, PartialRow) else value)
        return row if side == "key" else b'{"before":null,"after":%b,"op":"r"}' % (row or b"null")

    serde: FormatSerde[Any] = blank(PartialSerde if keeps else FormatSerde)
    if isinstance(serde, PartialSerde):
        serde.complete = complete
    serde.format = _Events(form, registry, keeps, rows, shape, lambda text: read(parse(text)))
    recipe = (_serde, (form, registry, keeps, side))
    return fill(serde, name, recipe, (serialize, deserialize), is_immutable=rows.is_immutable)


@frozen(eq=False)
class _Events:
    """The ``SerdeFormat`` of change events: stores contain rows, and lines of files may be events or rows."""

    form: Any
    registry: str | RegistryAccess | None
    keeps: bool
    rows: Serde[Any]
    shape: JsonForm
    from_json: Callable[[bytes], Any]

    def on_topic(self, topic: str, side: str) -> Serde[Any]:
        return _serde(self.form, self.registry, self.keeps, side)

    def inside(self) -> Serde[Any]:
        return self.rows

    def prepare(self, *, writes: bool) -> None:
        """Do nothing: Debezium's converter registers the schemas."""

    def to_json(self, value: Any) -> bytes:
        return b"null" if value is None else self.shape.to_json(value.row if isinstance(value, PartialRow) else value)


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


def _key_row(declared: inspect.Type, document: Any) -> tuple[Any, Mapping[str, str]]:
    return read_row(declared, *_schema_and_payload(document)), {}


def _value_row(declared: inspect.Type, document: Any) -> tuple[Any, Mapping[str, str]]:
    """Return the row after a change, None if it was deleted, and the fields for which it has placeholders.

    These are by their name in the class, with that in the row.

    Raises:
        ValueError: it is no change event.
    """
    schema, event = _schema_and_payload(document)
    if event is None:
        return None, {}
    if not isinstance(event, Mapping) or event.get("op") not in _OPERATIONS:
        raise ValueError(f"it is no change event of Debezium: it needs op, one of {', '.join(_OPERATIONS)}")
    row = event.get("after")
    if not isinstance(row, Mapping):
        if event["op"] in _WITH_ROW:
            raise ValueError(f"its op is {event['op']!r}, but it has no row in 'after'")
        return None, {}
    fields = getattr(declared, "fields", None)
    names = {name: name for name in row} if fields is None else {part.name: part.encode_name for part in fields}
    lacking = {field: name for field, name in names.items() if row.get(name) in _PLACEHOLDERS}
    # A large value is no null: the row before has null where Postgres has not logged it.
    before = {name: value for name, value in (event.get("before") or {}).items() if value not in (None, *_PLACEHOLDERS)}
    row = {**row, **{name: before[name] for name in lacking.values() if name in before}}
    lacking = {field: name for field, name in lacking.items() if name not in before}
    schemas = schema.get("fields", ()) if isinstance(schema, Mapping) else ()
    schema = next((part for part in schemas if part.get("field") == "after"), None)
    # A placeholder is no value of its schema.
    stand_ins = {name: row.pop(name) for name in lacking.values()}
    return {**read_row(declared, schema, row), **stand_ins}, lacking


def _lacking(field: str, remedy: str) -> str:
    """Return the error of an event that has a placeholder for a field."""
    return (
        f"field {field!r} has {_TEXT}: the update did not change this large value, so that Postgres did not log it; "
        f"{remedy}, set REPLICA IDENTITY FULL for the table, or leave the field out of the class"
    )
