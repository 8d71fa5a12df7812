"""The table of values says what the readers and writers do: each type and each kind of what arrives is tried."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from functools import cache
from typing import Any, Literal
from uuid import UUID

import attrs
import msgspec
import pyarrow as pa
import pytest
from msgspec import inspect

from streams import Topic
from streams.connect.table_columns import table_shape
from streams.core.clock import VirtualClock
from streams.core.errors import StreamsError
from streams.files import open_table
from streams.values import arrow_table, table_columns
from streams.values.cells import cell_converter
from streams.values.rule import NESTED, RULES, arrow_family, rule_of

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NUMBER = UUID(int=7)


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 12


#: A value of each type, with its JSON; a string of JSON is also a cell and a text.
VALUES: list[tuple[Any, Any, str]] = [
    (str, "a", '"a"'),
    (int, 12, "12"),
    (float, 12.0, "12.0"),
    (bool, True, "true"),
    (bytes, b"a", '"YQ=="'),
    (Decimal, Decimal("12"), '"12"'),
    (datetime, NOON, '"2026-01-31T12:00:00Z"'),
    (date, NOON.date(), '"2026-01-31"'),
    (time, time(12), '"12:00:00"'),
    (timedelta, timedelta(hours=12), '"PT12H"'),
    (UUID, NUMBER, f'"{NUMBER}"'),
    (Colour, Colour.RED, '"red"'),
    (Level, Level.LOW, "12"),
    (Literal["red"], "red", '"red"'),
    (list[int], [12], "[12]"),
    (set[int], {12}, "[12]"),
    (tuple[int, ...], (12,), "[12]"),
    (tuple[int, str], (12, "a"), '[12,"a"]'),
    (dict[str, int], {"a": 12}, '{"a":12}'),
]
JSON = {
    "string": '"~"',
    "integer": "12",
    "fraction": "12.5",
    "boolean": "true",
    "array": "[true]",
    "object": '{"~":true}',
}
#: A column of each family; its text and bytes are those of the type.
COLUMNS = {
    "integer": pa.array([12]),
    "whole decimal": pa.array([Decimal(12)], pa.decimal128(10, 0)),
    "decimal": pa.array([Decimal(12)], pa.decimal128(10, 2)),
    "float": pa.array([12.0]),
    "small float": pa.array([12.0], pa.float32()),
    "boolean": pa.array([True]),
    "timestamp": pa.array([NOON], pa.timestamp("us", "UTC")),
    "date": pa.array([NOON.date()]),
    "time": pa.array([time(12)]),
    "duration": pa.array([timedelta(hours=12)]),
    "uuid": pa.array([NUMBER.bytes], pa.uuid()),
    "list": pa.array([[12]]),
    "map": pa.array([[("a", 12)]], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"a": 12}]),
}


def rule(form: Any) -> Any:
    info = inspect.type_info(form)
    return rule_of(info) or NESTED[type(info)]


@cache
def holder(form: Any) -> Any:
    """A class with one field of the type."""
    return attrs.frozen(type("Holder", (), {"__annotations__": {"value": form}}))


def read(cls: Any, column: Any) -> list[Any]:
    """The values of a column, as a table of two rows gives them."""
    topic = Topic("in", value=cls, timestamp=lambda value: 0)
    batches = [pa.record_batch({"value": pa.concat_arrays([column, column])})]
    table_columns(topic, batches[0].schema, "t")
    records = open_table(topic, "t", batches, clock=VirtualClock(0)).records(1)
    return [
        topic.value_serde.deserialize(bytes(data))
        for part in records
        for data in msgspec.to_builtins(
            part.values.to_pylist() if isinstance(part.values, pa.Array) else part.values, builtin_types=(bytes,)
        )
    ]


@pytest.mark.parametrize(("form", "value", "text"), VALUES)
def test_json_is_read_as_the_table_says(form: Any, value: Any, text: str) -> None:
    serde = Topic("in", value=holder(form)).value_serde
    first, *_ = rule(form).json
    samples = {**JSON, first: text}
    if form is Decimal:
        samples["string"] = text

    def is_read(sample: str) -> bool:
        try:
            serde.deserialize(b'{"value":%b}' % sample.encode())
        except StreamsError:
            return False
        return True

    assert serde.deserialize(b'{"value":%b}' % text.encode()).value == value
    assert {kind for kind, sample in samples.items() if is_read(sample)} == set(rule(form).json)
    written = serde.serialize(holder(form)(value))
    assert written.startswith(b'{"value":' + samples[first][:1].encode())


@pytest.mark.parametrize(("form", "value", "text"), VALUES)
def test_cells_of_text_are_read_as_the_table_says(form: Any, value: Any, text: str) -> None:
    cell = text.strip('"')

    if rule(form).text:
        assert cell_converter(form)(cell) == value
    else:
        with pytest.raises(msgspec.ValidationError, match="got `str`"):
            cell_converter(form)(cell)


@pytest.mark.parametrize("family", [*COLUMNS, "text", "binary"])
@pytest.mark.parametrize(("form", "value", "text"), VALUES)
def test_columns_are_read_as_the_table_says(form: Any, value: Any, text: str, family: str) -> None:
    texts = pa.array([text.strip('"')])
    data = pa.array([NUMBER.bytes if form is UUID else b"a"])
    column = {**COLUMNS, "text": texts, "binary": data}[family]
    assert arrow_family(column.type) == family

    if family in rule(form).columns:
        assert read(holder(form), column) == [holder(form)(value)] * 2
    else:
        with pytest.raises(StreamsError, match=r"column 'value' is .*, but is declared as"):
            read(holder(form), column)


@pytest.mark.parametrize(("form", "value", "text"), VALUES)
def test_columns_are_written_as_the_table_says(form: Any, value: Any, text: str) -> None:
    topic = Topic("out", key=str, value=holder(form))
    table = arrow_table(topic.value_serde, [holder(form)(value)] * 2)
    kind = table.schema.field("value").type

    if rule(form).arrow is not None:
        assert kind == rule(form).arrow(pa)
    assert table_shape(topic).values[0].type == rule(form).sql
    if rule(form).columns:
        assert arrow_family(kind) in rule(form).columns
        assert read(holder(form), table.column(0).chunk(0).slice(0, 1)) == [holder(form)(value)] * 2


def test_every_rule_has_a_value_here() -> None:
    kinds = {type(inspect.type_info(form)) for form, _, _ in VALUES}

    assert {*RULES} - kinds == {inspect.ByteArrayType, inspect.MemoryViewType}  # They are as bytes.
