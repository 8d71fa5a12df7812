"""Media that carry values, each with what it says of them, and the product's reader of it.

A medium has forms of each arrival of ``rule``: Arrow has four units of a time.  Reading returns the values in a
declared type, or an error of the product that refuses them; any other error is a fault.
"""

import csv
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from attrs import evolve, frozen

from streams import Topic
from streams.connect.http.json_records import JsonRecords
from streams.core.clock import VirtualClock
from streams.core.dead_letters import ROW_HEADER
from streams.core.errors import InputError, StreamsError
from streams.files import open_input
from streams.formats import avro, debezium, json_schema
from streams.web.answers import Refused
from streams.web.texts import key_of
from tests.values.shapes import SHAPES, field_of, row_class


@frozen
class Form:
    """A physical form of an arrival; ``raw`` converts a value to what the medium stores, or to None if it cannot."""

    name: str
    type: Any
    raw: Callable[[Any], Any]

    def holds(self, value: Any) -> bool:
        try:
            return self.raw(value) is not None
        except (ValueError, OverflowError, UnicodeError, pa.ArrowException):
            return False


# --- Arrow ----------------------------------------------------------------------------------

_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_ZONES = {"s": "UTC", "ms": "+05:30", "us": "America/New_York", "ns": "UTC"}


def _in_units(ns: int, bits: int = 64) -> Callable[[int], int | None]:
    return lambda value: value // ns if value % ns == 0 and abs(value // ns) < 2 ** (bits - 1) else None


def _times(make: Callable[[str], Any], units: str = "s ms us ns", bits: int = 64) -> list[Form]:
    return [Form(str(make(unit)), make(unit), _in_units(_NS[unit], bits)) for unit in units.split()]


def _exact(kind: Any) -> Form:
    def raw(value: Any) -> Any:
        pa.array([value], kind)
        return value

    return Form(str(kind), kind, raw)


def _narrow(kind: Any) -> Form:
    def raw(value: float) -> float | None:
        narrow: float = pa.array([value]).cast(kind).cast(pa.float64())[0].as_py()
        return value if repr(narrow) == repr(value) else None

    return Form(str(kind), kind, raw)


ARROW: dict[str, list[Form]] = {
    "bool": [_exact(pa.bool_())],
    "int": [*map(_exact, (pa.int64(), pa.uint64(), pa.int32(), pa.int8()))],
    "float": [_exact(pa.float64())],
    "small float": [_narrow(pa.float32()), _narrow(pa.float16())],
    "text": [
        *map(_exact, (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()))),
    ],
    "bytes": [*map(_exact, (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(16)))],
    "decimal": [*map(_exact, (pa.decimal128(38, 18), pa.decimal256(60, 20), pa.decimal128(5, 2)))],
    "whole decimal": [*map(_exact, (pa.decimal128(38, 0), pa.decimal256(60, 0), pa.decimal128(5, 0)))],
    "instant": _times(lambda unit: pa.timestamp(unit, _ZONES[unit])),
    "local time": _times(pa.timestamp),
    "date": [
        Form("date32", pa.date32(), lambda days: days),
        Form("date64", pa.date64(), lambda days: days * 86_400_000),
    ],
    "time": [*_times(pa.time32, "s ms", 32), *_times(pa.time64, "us ns")],
    "duration": _times(pa.duration),
    "uuid": [Form("uuid", pa.uuid(), lambda value: value.bytes)],
}


def arrow_array(form: Form, values: Sequence[Any]) -> Any:
    """Return values, some of which may be None, as an array."""
    raws = [None if value is None else form.raw(value) for value in values]
    kind = form.type
    if kind == pa.uuid():
        return pa.ExtensionArray.from_storage(kind, pa.array(raws, pa.binary(16)))
    if pa.types.is_temporal(kind):
        return pa.array(raws, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    if pa.types.is_floating(kind):
        return pa.array(raws, pa.float64()).cast(kind)
    return pa.array(raws, kind)


# --- Avro -----------------------------------------------------------------------------------


def _logical(kind: str, name: str, raw: Callable[[Any], Any], **given: Any) -> Form:
    return Form(
        name + "".join(f" {value}" for value in given.values()), {"type": kind, "logicalType": name, **given}, raw
    )


def _long(value: int) -> int | None:
    return value if -(2**63) <= value < 2**63 else None


def _same(value: Any) -> Any:
    return value


def _utf_8(text: str) -> str:
    text.encode()
    return text


def _scaled(precision: int, scale: int) -> Callable[[Decimal], Decimal | None]:
    def raw(value: Decimal) -> Decimal | None:
        _, digits, exponent = value.as_tuple()
        return value if isinstance(exponent, int) and -exponent <= scale and len(digits) <= precision else None

    return raw


AVRO: dict[str, list[Form]] = {
    "bool": [Form("boolean", "boolean", _same)],
    "int": [Form("long", "long", _long), Form("int", "int", lambda value: value if abs(value) < 2**31 else None)],
    "float": [Form("double", "double", _same), Form("float", "float", _narrow(pa.float32()).raw)],
    "text": [Form("string", "string", _utf_8)],
    "bytes": [Form("bytes", "bytes", _same)],
    "decimal": [_logical("bytes", "decimal", _scaled(38, 18), precision=38, scale=18)],
    "whole decimal": [_logical("bytes", "decimal", _scaled(38, 0), precision=38, scale=0)],
    "instant": [
        _logical("long", "timestamp-millis", _in_units(10**6)),
        _logical("long", "timestamp-micros", _in_units(1000)),
        _logical("long", "timestamp-nanos", _in_units(1)),
    ],
    "local time": [
        _logical("long", "local-timestamp-millis", _in_units(10**6)),
        _logical("long", "local-timestamp-micros", _in_units(1000)),
    ],
    "date": [_logical("int", "date", _same)],
    "time": [
        _logical("int", "time-millis", _in_units(10**6, 32)),
        _logical("long", "time-micros", _in_units(1000)),
    ],
    "uuid": [_logical("string", "uuid", str)],
}

# --- texts ----------------------------------------------------------------------------------


def _number(value: Any) -> str:
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


JSON: dict[str, list[Form]] = {
    "bool": [Form("true or false", None, json.dumps)],
    "int": [Form("whole number", None, _number)],
    "float": [Form("number", None, _number)],
    "number": [Form("number", None, lambda value: f"{value:f}" if "." in f"{value:f}" else None)],
    "text": [
        Form("string", None, json.dumps),
        Form("UTF-8", None, lambda text: json.dumps(_utf_8(text), ensure_ascii=False)),
    ],
}
CELLS = {"cell": [Form("cell", None, _utf_8)]}


# --- readers --------------------------------------------------------------------------------


@frozen
class Case:
    """Values of one form, declared as ``declared`` in a shape of a kind of class."""

    form: Form
    declared: Any
    values: Sequence[Any]
    shape: str = "alone"
    cls: str = "attrs"

    @property
    def row(self) -> Any:
        return row_class(self.cls, self.shape, self.declared)

    def json_lines(self) -> list[str]:
        return ['{"x":%s}' % (SHAPES[self.shape].json % self.form.raw(value)) for value in self.values]

    def arrow(self) -> Any:
        return pa.table({"x": SHAPES[self.shape].arrow(arrow_array(self.form, self.values))})

    def unwrapped(self, row: Any) -> Any:
        return SHAPES[self.shape].unwrap(field_of(row))


def rows_of_file(declared: Any, path: Path, **options: Any) -> list[Any]:
    """Return what becomes of the rows of a file: values, or the error that refuses a row.

    Bad rows are counted by handlers otherwise, so the columns of a file without them are read once more, all at once.
    """
    topic: Topic[Any, Any] = Topic("in", value=declared)
    reader = open_input(topic, path, clock=VirtualClock(0), on_bad_row="continue")
    found: list[Any] = []
    for batch in reader(1, 0):
        for _, block in batch:
            headers = block.headers if block.headers is not None else [()] * len(block)
            for value, header in zip(block.values, headers, strict=True):
                message = dict(header).get(ROW_HEADER)
                found.append(topic.value_serde.deserialize(value) if message is None else InputError(message.decode()))
    return found


def _lines(case: Case, folder: Path, name: str, line: str) -> list[Any]:
    (folder / name).write_text("".join(line % text + "\n" for text in case.json_lines()), encoding="utf-8")
    return rows_of_file(case.row, folder / name)


def _json_file(case: Case, folder: Path) -> list[Any]:
    return _lines(case, folder, "in.jsonl", "%s")


def _records_file(case: Case, folder: Path) -> list[Any]:
    return _lines(case, folder, "in.records.jsonl", '{"value":%s}')


def _deserialized(serde: Any, lines: Sequence[bytes]) -> list[Any]:
    return [attempt(lambda line=line: serde.deserialize(line)) for line in lines]


def attempt(read: Callable[[], Any]) -> Any:
    """Return a value, or the error of the product that refuses it."""
    try:
        return read()
    except StreamsError as error:
        return error


def _topic(case: Case, folder: Path) -> list[Any]:
    return _deserialized(Topic("in", value=case.row).value_serde, [line.encode() for line in case.json_lines()])


def _debezium(case: Case, folder: Path) -> list[Any]:
    lines = [b'{"before":null,"after":%s,"op":"c"}' % line.encode() for line in case.json_lines()]
    return _deserialized(debezium(case.row), lines)


def _json_schema(case: Case, folder: Path) -> list[Any]:
    return _deserialized(json_schema(case.row), [line.encode() for line in case.json_lines()])


def _webhook(case: Case, folder: Path) -> list[Any]:
    topic: Topic[Any, Any] = Topic("in", value=case.row)
    records = JsonRecords("webhook", topic, key="")
    return [
        attempt(lambda line=line: topic.value_serde.deserialize(records.record(line.encode())[1]))
        for line in case.json_lines()
    ]


def _url(case: Case, folder: Path) -> list[Any]:
    serde = Topic("in", key=case.row, value=str).key_serde

    def read(line: str) -> Any:
        try:
            return key_of(serde, line.encode(), None)
        except Refused as refusal:
            raise InputError(str(refusal)) from refusal

    return [attempt(lambda line=line: read(line)) for line in case.json_lines()]


def _csv(case: Case, folder: Path, serde: Callable[[Any], Any] = _same) -> list[Any]:
    with (folder / "in.csv").open("w", newline="", encoding="utf-8") as file:
        # A second column, as an empty line is no row.
        csv.writer(file).writerows([["x", "n"], *([case.form.raw(value), "0"] for value in case.values)])
    return rows_of_file(serde(case.row), folder / "in.csv")


def _parquet(case: Case, folder: Path) -> list[Any]:
    pq.write_table(case.arrow(), folder / "in.parquet")
    return rows_of_file(case.row, folder / "in.parquet")


def _json_column(case: Case, folder: Path) -> list[Any]:
    texts = [SHAPES[case.shape].json % case.form.raw(value) for value in case.values]
    pq.write_table(pa.table({"x": pa.array(texts, pa.json_())}), folder / "in.parquet")
    return rows_of_file(case.row, folder / "in.parquet")


@frozen
class Medium:
    """A medium: its forms by arrival, the shapes that it has, and the product's reader of it."""

    forms: dict[str, list[Form]]
    read: Callable[[Case, Path], list[Any]]
    shapes: tuple[str, ...] = tuple(SHAPES)
    is_columnar: bool = False


def avro_medium(registry: str) -> Medium:
    """Return Avro with a registry: the schema of the writer is that of the form, not of the class."""
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    client = SchemaRegistryClient({"url": registry})

    @cache
    def schema_id(text: str) -> int:
        return client.register_schema(f"matrix-{hash(text)}", Schema(text, "AVRO"))

    def read(case: Case, folder: Path) -> list[Any]:
        shape = SHAPES[case.shape]
        schema = {
            "type": "record",
            "name": "Row",
            "fields": [{"name": "x", "type": shape.avro(case.form.type)}],
        }
        serde = avro(case.row, registry=registry, name="Row")
        head = b"\0" + schema_id(json.dumps(schema)).to_bytes(4, "big")
        lines = []
        for value in case.values:
            stream = BytesIO(head)
            stream.seek(5)
            fastavro.schemaless_writer(stream, schema, {"x": shape.wrap(case.form.raw(value))})
            lines.append(stream.getvalue())
        return _deserialized(serde, lines)

    return Medium(AVRO, read)


MEDIA: dict[str, Medium] = {
    "json lines": Medium(JSON, _json_file),
    "records": Medium(JSON, _records_file),
    "topic": Medium(JSON, _topic),
    "debezium": Medium(JSON, _debezium),
    "json schema": Medium(JSON, _json_schema),
    "webhook": Medium(JSON, _webhook),
    "key in a URL": Medium(JSON, _url),
    "csv": Medium(CELLS, _csv, ("alone", "optional")),
    "parquet": Medium(ARROW, _parquet, is_columnar=True),
    "csv of json schema": Medium(CELLS, partial(_csv, serde=json_schema), ("alone", "optional")),
    "column of json": Medium(JSON, _json_column, is_columnar=True),
}


def outcomes(medium: Medium, case: Case, folder: Path) -> list[Any]:
    """Return what becomes of each value: the value, or the error that refuses it.

    What is good is read once more without the rest: readers convert whole columns, and go row by row if a row is bad.
    """
    read = attempt(lambda: medium.read(case, folder))
    if isinstance(read, StreamsError):
        return [read] * len(case.values)
    found = [row if isinstance(row, StreamsError) else case.unwrapped(row) for row in read]
    good = [index for index, value in enumerate(found) if not isinstance(value, StreamsError)]
    if medium.is_columnar and 1 < len(good) < len(found):
        rest = outcomes(medium, evolve(case, values=[case.values[index] for index in good]), folder)
        for index, value in zip(good, rest, strict=True):
            if not is_same(found[index], value):
                found[index] = Differs(found[index], value)
    return found


@frozen
class Differs:
    """A value that is another one if the rows beside it are others."""

    beside_bad_rows: Any
    alone: Any


def is_same(value: Any, other: Any) -> bool:
    """Return whether values are equal, with their types and signs; times are equal if they are one instant."""
    if type(value) is not type(other):
        return False
    if isinstance(value, float):
        return repr(value) == repr(other)
    if isinstance(value, datetime) and (value.tzinfo is None) != (other.tzinfo is None):
        return False
    return bool(value == other)
