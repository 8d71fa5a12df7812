"""Property: a batch of Arrow rows is serialized as its rows are one by one, for any columns and classes."""

import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pytest
from attrs import Factory, field, frozen, make_class
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import Topic
from streams.core.serdes.serdes import canonical_json
from streams.files import open_input
from streams.files.reader import as_list
from streams.values import form_of
from streams.values.arrow_reader import ArrowRows, ValueReader
from streams.values.field_access import fields_read, path_read


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
TEXT = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(['"', "\\", "\n", "é", "Zürich,"])
#: Scalars: (type in Python, type in Arrow, values).
SCALARS: list[tuple[Any, Any, Any]] = [
    (int, pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (int, pa.int8(), st.integers(-128, 127)),
    (int, pa.uint64(), st.integers(0, 2**64 - 1)),
    (int, pa.decimal128(38, 0), st.integers(-(2**60), 2**60).map(Decimal)),
    (float, pa.float64(), st.floats(allow_nan=False, allow_infinity=False) | st.floats()),
    (float, pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    (float, pa.int32(), st.integers(-5, 5)),
    (bool, pa.bool_(), st.booleans()),
    (str, pa.string(), TEXT),
    (str, pa.large_string(), TEXT),
    (str, pa.dictionary(pa.int32(), pa.string()), TEXT),
    (bytes, pa.binary(), st.binary(max_size=5)),
    (Decimal, pa.decimal128(20, 9), st.decimals(-1000, 1000, places=9)),
    (Decimal, pa.decimal128(9, 2), st.decimals(-1000, 1000, places=2)),
    (Decimal, pa.string(), st.decimals(-1000, 1000, places=3).map(str)),
    (date, pa.date32(), st.dates()),
    (datetime, pa.timestamp("us", "UTC"), TIMES.map(lambda time: time.replace(tzinfo=UTC))),
    (datetime, pa.timestamp("ms", "Europe/Berlin"), st.integers(0, 10**12)),
    (datetime, pa.timestamp("us"), TIMES | TIMES.map(lambda time: time.replace(microsecond=0))),
    (Colour, pa.string(), st.sampled_from(["red", "blue", "green"])),
    (Literal["a", "b"], pa.string(), st.sampled_from(["a", "b"])),
]


@frozen
class Column:
    kind: Any
    arrow: Any
    values: Any
    default: Any = None


def nested(inner: Any) -> Any:
    """Return a strategy of columns of lists, maps and structs of columns."""
    return st.one_of(
        inner.map(lambda item: Column(list[item.kind], pa.list_(item.arrow), st.lists(item.values, max_size=3))),
        inner.map(
            lambda item: Column(
                dict[str, item.kind],  # type: ignore[name-defined]
                pa.map_(pa.string(), item.arrow),
                st.dictionaries(TEXT, item.values, max_size=3).map(lambda found: list(found.items())),
            )
        ),
        st.tuples(st.dictionaries(st.sampled_from("abZé"), inner, min_size=1, max_size=3), st.sampled_from(MAKERS)).map(
            lambda given: Column(
                given[1]({name: column.kind for name, column in given[0].items()}),
                pa.struct([(name, column.arrow) for name, column in given[0].items()]),
                st.fixed_dictionaries({name: column.values for name, column in given[0].items()}),
            )
        ),
    )


def attrs_class(kinds: dict[str, Any]) -> Any:
    return make_class("Part", {name: field(type=kind) for name, kind in kinds.items()}, frozen=True)


def struct_class(kinds: dict[str, Any]) -> Any:
    return msgspec.defstruct("Part", list(kinds.items()))


def optional(column: Column) -> Column:
    return Column(column.kind | None, column.arrow, st.none() | column.values)


MAKERS: list[Callable[[dict[str, Any]], Any]] = [attrs_class, struct_class]
scalars = st.sampled_from(SCALARS).map(lambda item: Column(*item))
any_column = st.recursive(
    scalars | scalars.map(optional), lambda inner: nested(inner) | nested(inner).map(optional), max_leaves=4
)


@st.composite
def tables(draw: Any) -> tuple[Any, Any]:
    """Draw a class and a batch of rows, which may have nulls where it has none, and lack columns."""
    columns = draw(st.dictionaries(st.sampled_from(["a", "b", "Z", "é", "a b"]), any_column, min_size=1, max_size=4))
    names = [name for name in columns if name.isidentifier()]
    fields = {name: field(type=columns[name].kind) for name in names}
    fields["added"] = field(type=int, default=7)
    fields["made"] = field(type=list[int], default=Factory(lambda: [1]))
    fields["late"] = field(type=str | None, default=None)
    order = draw(st.permutations(sorted(fields)))
    cls = make_class("Row", {name: fields[name] for name in order}, frozen=True, kw_only=True)
    size = draw(st.integers(0, 5))
    holes = draw(st.sampled_from([False, False, True]))
    types: dict[str, Any] = {name: column.arrow for name, column in columns.items()}
    values = {name: column.values if not holes else st.none() | column.values for name, column in columns.items()}
    for name, kind, strategy in (
        ("added", pa.int32(), st.none() | st.integers(0, 9)),
        ("made", pa.list_(pa.int64()), st.none() | st.just([2])),
        ("late", pa.string(), st.none() | TEXT),
    ):
        if draw(st.booleans()):
            types[name], values[name] = kind, strategy
    rows = [{name: draw(strategy) for name, strategy in values.items()} for _ in range(size)]
    arrays = [pa.array([row[name] for row in rows], kind) for name, kind in types.items()]
    batch = pa.record_batch(arrays, names=list(types))
    start = draw(st.integers(0, size))
    return cls, batch.slice(start, draw(st.integers(0, size)))


def outcome(read: Callable[[], list[Any]]) -> Any:
    """Return what is read, or the kind of the error."""
    try:
        return read()
    except Exception as error:
        return type(error)


@pytest.mark.world
@settings(max_examples=100, deadline=None)
@given(tables())
def test_batches_are_serialized_as_their_rows_one_by_one(table: tuple[Any, Any]) -> None:
    cls, batch = table
    form = form_of(Topic("t", key=str, value=cls).value_serde)
    by_row = ValueReader(form)
    by_row._writer = None
    found = outcome(lambda: pa.array(ValueReader(form).read(ArrowRows(batch)).data, pa.binary()).to_pylist())
    assert found == outcome(lambda: by_row.read(ArrowRows(batch)).data)


def test_values_with_columns_of_every_kind_are_serialized_by_columns() -> None:
    kinds = {f"c{number}": (kind, arrow) for number, (kind, arrow, _) in enumerate(SCALARS)}
    cls = make_class("Row", {name: field(type=kind | None) for name, (kind, _) in kinds.items()}, frozen=True)
    batch = pa.record_batch([pa.nulls(2, arrow) for _, arrow in kinds.values()], names=list(kinds))
    found = ValueReader(form_of(Topic("t", key=str, value=cls).value_serde)).read(ArrowRows(batch))
    assert found.fields is not None
    assert found.data.to_pylist() == [canonical_json(dict.fromkeys(kinds))] * 2


def whole(value: Any) -> Any:
    return value


class Shown:
    def __call__(self, value: Any) -> Any:
        return value.a


@pytest.mark.parametrize(
    ("function", "path", "fields"),
    [
        (lambda row: row.a, ("a",), {"a"}),
        (lambda row: row.a.b, ("a", "b"), {"a"}),
        (operator.attrgetter("a.b"), ("a", "b"), {"a"}),
        (operator.attrgetter("a", "b.c"), None, {"a", "b"}),
        (lambda row: row.a if row.b is None else row.c.d, None, {"a", "b", "c"}),
        (lambda row: f"{row.a}-{row.b}", None, {"a", "b"}),
        (lambda row: 7, None, set()),
        (whole, None, None),
        (lambda row: str(row), None, None),
        (lambda row: row.a if row else None, None, None),
        (lambda row: (lambda: row.a)(), None, None),
        (lambda row: [other.a for other in [row]], None, None),
        (lambda row: row.method(), None, None),
        (lambda row: locals()["row"].a, None, None),
        (lambda row, other=1: row.a, None, None),
        (lambda *row: row[0].a, None, None),
        (Shown(), None, None),
    ],
)
def test_fields_that_functions_read(function: Any, path: Any, fields: Any) -> None:
    assert path_read(function) == path
    found = fields_read(function)
    # A method is an attribute from Python 3.12 on; that it is no field is found later.
    assert found == fields or (found == {"method"} and fields is None)


@frozen
class Part:
    name: str | None
    cents: Decimal = Decimal(3)


@frozen
class Sale:
    at: datetime
    part: Part | None
    parts: list[Part]
    number: int = 5

    @property
    def text(self) -> str:
        return f"{self.number}"


FUNCTIONS: list[Any] = [
    lambda sale: sale.part.name,
    lambda sale: sale.part and sale.part.name,
    lambda sale: "x" if isinstance(sale.part, Part) else None,
    lambda sale: sale.text,
    lambda sale: str(sale),
    lambda sale: str(sale.parts),
    lambda sale: type(sale.part).__module__,
]


@pytest.mark.parametrize("key_of", FUNCTIONS)
@pytest.mark.parametrize("name", ["sales.jsonl", "sales.parquet"])
@pytest.mark.parametrize("has_bad_row", [False, True])
def test_keys_of_batches_are_those_of_their_values(key_of: Any, name: str, has_bad_row: bool, tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = [
        {
            "at": datetime(2026, 3, 1, tzinfo=UTC) + timedelta(milliseconds=number),
            "part": None
            if number % 3 == 0
            else {"name": f"n{number}" if number % 2 else None, "cents": Decimal("1.5")},
            "parts": None if has_bad_row and number == 7 else [{"name": "p", "cents": Decimal(number)}],
            "number": number,
            "other": "y" * number,
        }
        for number in range(20)
    ]
    path = tmp_path / name
    if name.endswith("jsonl"):
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=6)
    topic = Topic("sales", key=str, value=Sale, key_from=key_of, timestamp=lambda sale: sale.at)
    given = open_input(topic, path, on_bad_row="continue")
    expected = [
        (own, value, time)
        for batch in given(1, 2)
        for _, block in batch
        for own, value, time in zip(block.keys, block.values, block.timestamps, strict=True)
    ]
    found = [
        (own, value, time)
        for records in given.records(1, 2)
        for own, value, time in zip(*map(as_list, (records.keys, records.values, records.timestamps)), strict=True)
    ]
    is_read = [value is not None and value.startswith(b"{") for _, value, _ in expected]
    assert [item[:2] for item in found] == [item[:2] for item in expected]
    assert len(found) == 18
    for (own, value, time), is_sale in zip(found, is_read, strict=True):
        if is_sale and b'"parts":null' not in (value or b""):
            sale = topic.value_serde.deserialize(value)
            assert sale is not None
            assert time == sale.at.timestamp() * 1000
            assert own == (None if key_of(sale) is None else key_of(sale).encode())
    if has_bad_row:
        assert any(b"yyyyyyy" in (value or b"") for _, value, _ in found)
