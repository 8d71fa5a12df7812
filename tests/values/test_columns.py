"""Columns of Arrow data become the values of their rows, and misfits are found before a row is read."""

import itertools
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pyarrow as pa
import pytest
from attrs import field, frozen

from streams import Topic
from streams.core.clock import VirtualClock
from streams.core.errors import InputError
from streams.files import open_table
from streams.files.reader import as_list
from streams.values import form_of, table_columns
from streams.values.arrow_reader import ArrowRows, Fields, ValueReader, plain_batch
from streams.values.declared_columns import are_records, check_file_columns

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@frozen
class Place:
    city: str
    seen: datetime | None = None


@frozen
class Line:
    product: str
    cents: Decimal
    at: datetime


@frozen
class Order:
    number: int
    at: datetime
    day: date
    hour: time
    price: Decimal
    weight: float
    is_paid: bool
    data: bytes
    colour: Colour
    kind: Literal["web", "shop"]
    place: Place | None
    lines: list[Line]
    counts: dict[str, int]
    tags: list[str] | None = None
    discount: int = 7
    local: datetime | None = None
    id: UUID | None = None


def rows() -> list[dict[str, Any]]:
    """Return rows with nulls wherever the class allows them."""
    made = []
    for number, (place, tags, discount) in enumerate(
        itertools.product(
            (None, {"city": "Köln", "seen": NOON}, {"city": '"\\\n', "seen": None}), (None, [], ["a", "b"]), (None, 3)
        )
    ):
        at = NOON + timedelta(seconds=number)
        made.append(
            {
                "number": Decimal(number),
                "at": at,
                "day": at.date(),
                "hour": at.time(),
                "price": Decimal("1.50"),
                "weight": 0.1 * number,
                "is_paid": number % 2 == 0,
                "data": b"\x00\xff",
                "colour": "red",
                "kind": "web",
                "place": place,
                "lines": [{"product": "tea", "cents": Decimal("0.10"), "at": at}] * (number % 3),
                "counts": {"x": number},
                "tags": tags,
                "discount": discount,
                "local": at.replace(tzinfo=None),
                "id": "00000000-0000-0000-0000-00000000002a",
                "unread": "?",
            }
        )
    return made


def batch(unit: str = "us") -> Any:
    line = pa.struct({"product": pa.string(), "cents": pa.decimal128(9, 2), "at": pa.timestamp(unit, "UTC")})
    types = {
        "number": pa.decimal128(20, 0),
        "at": pa.timestamp(unit, "Europe/Berlin"),
        "day": pa.date32(),
        "hour": pa.time64("us"),
        "price": pa.decimal128(9, 2),
        "weight": pa.float64(),
        "is_paid": pa.bool_(),
        "data": pa.binary(),
        "colour": pa.dictionary(pa.int32(), pa.string()),
        "kind": pa.string(),
        "place": pa.struct({"city": pa.string(), "seen": pa.timestamp(unit, "UTC")}),
        "lines": pa.list_(line),
        "counts": pa.map_(pa.string(), pa.int64()),
        "tags": pa.list_(pa.string()),
        "discount": pa.int32(),
        "local": pa.timestamp(unit),
        "id": pa.string(),
        "unread": pa.string(),
    }
    plain = {**types, "colour": pa.string()}
    made = pa.RecordBatch.from_pylist(rows(), pa.schema(plain))
    return made.set_column(made.schema.get_field_index("colour"), "colour", made.column("colour").dictionary_encode())


def topic_of(kind: Any, **given: Any) -> Topic[Any, Any]:
    return Topic("orders", key=str, value=kind, timestamp=lambda order: order.at, **given)


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_columns_give_the_values_of_their_rows(unit: str) -> None:
    serde = topic_of(Order).value_serde
    found = ValueReader(form_of(serde)).read(ArrowRows(batch(unit)))
    expected = []
    for row in rows():
        kept = {name: value for name, value in row.items() if name != "discount" or value is not None}
        expected.append(form_of(serde).from_object(kept | {"number": int(row["number"])}))
    assert found.data.to_pylist() == expected


def test_parts_of_a_batch_give_the_values_of_their_rows() -> None:
    reader = ValueReader(form_of(topic_of(Order).value_serde))
    whole, part = ArrowRows(batch()), ArrowRows(batch())[5:9]
    assert reader.read(part).data.to_pylist() == reader.read(whole).data.to_pylist()[5:9]
    assert [row["at"] for row in part] == [part[index]["at"] for index in range(4)]


@frozen
class Rounded:
    at: datetime
    cents: int = field(converter=lambda cents: cents + 1)


@frozen
class Open:
    at: datetime
    anything: Any


@pytest.mark.parametrize("kind", [Rounded, Open, dict])
def test_values_that_their_bytes_may_change_are_read_from_the_bytes(kind: Any) -> None:
    rows = pa.RecordBatch.from_pylist([{"at": None if kind is dict else NOON, "cents": 4, "anything": [None, "a"]}])
    reader = ValueReader(form_of(Topic("t", key=str, value=kind).value_serde))
    found = reader.read(ArrowRows(rows))
    assert found.fields is None
    names = {"at", "cents"} if kind is Rounded else {"at", "anything"} if kind is Open else {"at", "cents", "anything"}
    expected = [{name: row[name] for name in names} for row in plain_batch(rows).to_pylist()]
    assert found.data == list(map(reader.form.from_object, expected))


@pytest.mark.parametrize("kind", [float, float | None, Decimal, list[float], Any])
@pytest.mark.parametrize("number", [float("nan"), float("-inf")])
def test_what_json_has_not_is_refused_with_its_row(kind: Any, number: float) -> None:
    cls = frozen(type("Weight", (), {"__annotations__": {"kilos": kind}}))
    topic = Topic("weights", value=cls, timestamp=lambda weight: 0)
    column = [[1.5], [number]] if kind == list[float] else [1.5, number]

    with pytest.raises(InputError, match=r"t: row .*(no NaN and no infinity|expected a decimal)"):
        list(open_table(topic, "t", [pa.record_batch({"kilos": column})], clock=VirtualClock(0)).records(1))


def records(topic: Topic[Any, Any], data: Any) -> Any:
    (found,) = open_table(topic, "table", [data], clock=VirtualClock(0)).records(4)
    return found


@pytest.mark.parametrize(
    ("time_of", "key_of"),
    [
        (lambda order: order.at, lambda order: order.kind),
        (lambda order: order.at + timedelta(days=1), lambda order: None),
        (lambda order: order.at if order.number % 2 else order.local, lambda order: str(order.number)),
        (lambda order: order.number, lambda order: order.place and order.place.city),
        (lambda order: order.at, lambda order: None if order.place is None else order.place.city),
        (lambda order: order.at, lambda order: order.place.city if order.place is not None else None),
        (lambda order: order.at, lambda order: None if order.place is None else order.kind),
    ],
)
def test_keys_and_times_of_columns_are_those_of_their_values(time_of: Any, key_of: Any) -> None:
    from streams.core.event_time.timestamps import to_milliseconds

    topic = Topic("orders", key=str, value=Order, timestamp=time_of, key_from=key_of)
    found = records(topic, batch())
    values = [topic.value_serde.deserialize(data) for data in found.values.to_pylist()]
    assert found.timestamps == [to_milliseconds(time_of(value)) for value in values]
    assert as_list(found.keys) == [None if key_of(value) is None else key_of(value).encode() for value in values]


def test_key_of_a_struct_that_may_be_missing_needs_no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Topic(
        "orders",
        key=str,
        value=Order,
        timestamp=lambda order: order.at,
        key_from=lambda order: None if order.place is None else order.place.city,
    )
    monkeypatch.setattr(Fields, "objects", lambda *_: pytest.fail("made objects"))
    found = records(made, batch())
    assert as_list(found.keys) == [row["place"] and row["place"]["city"].encode() for row in rows()]


def test_rows_without_numbers_have_a_partition_that_does_not_depend_on_their_place() -> None:
    topic = topic_of(Order)
    whole = records(topic, batch())
    parts = [records(topic, batch().slice(index, 1)).partitions[0] for index in range(batch().num_rows)]
    assert whole.partitions == parts
    assert len(set(parts)) > 1


SCHEMA = pa.schema({"at": pa.timestamp("us", "UTC"), "cents": pa.int64(), "other": pa.string()})


@frozen
class Paid:
    at: datetime
    cents: int


def test_only_declared_columns_are_read() -> None:
    assert table_columns(topic_of(Paid), SCHEMA, "t") == ("at", "cents")
    assert table_columns(topic_of(dict), SCHEMA.remove(SCHEMA.get_field_index("at")), "t") == ("cents", "other")
    assert set(table_columns(topic_of(Order), batch().schema, "t")) == set(batch().schema.names) - {"unread"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"cents": None, "cent": pa.int64()}, "column 'cents' (int) is missing; rename 'cent'"),
        ({"cents": pa.float64()}, "column 'cents' is double, but is declared as int; cast it, such as bigint(cents)"),
        ({"cents": pa.decimal128(9, 2)}, "column 'cents' is decimal128(9, 2), but is declared as int"),
        ({"cents": pa.timestamp("us")}, "cast it, such as unix_millis(cents)"),
        ({"at": pa.int64()}, "column 'at' is int64, but is declared as datetime; cast it, such as timestamp_millis"),
        (
            {"at": pa.date32()},
            "column 'at' is date32[day], but is declared as datetime; cast it, such as timestamp(at)",
        ),
        ({"cents": pa.struct({"x": pa.int64()})}, "column 'cents' is struct<x: int64>, but is declared as int"),
    ],
)
def test_misfits_are_found_before_a_row_is_read(columns: dict[str, Any], message: str) -> None:
    types = {**{part.name: part.type for part in SCHEMA}, **columns}
    schema = pa.schema({name: kind for name, kind in types.items() if kind is not None})
    with pytest.raises(InputError) as caught:
        table_columns(topic_of(Paid), schema, "table:shop.orders")
    assert message in str(caught.value)
    assert "table:shop.orders as input of topic 'orders'" in str(caught.value)


def test_misfits_in_structs_and_lists_are_named_by_their_path() -> None:
    place = pa.struct({"city": pa.int64(), "seen": pa.timestamp("us")})
    line = pa.struct({"product": pa.string(), "at": pa.timestamp("us")})
    schema = batch().schema
    for name, kind in (("place", place), ("lines", pa.list_(line))):
        schema = schema.set(schema.get_field_index(name), pa.field(name, kind))
    with pytest.raises(InputError) as caught:
        table_columns(topic_of(Order), schema, "t")
    assert (
        "column 'place.city' is int64, but is declared as str; make column 'place' anew with string(it) for it, or "
        "declare the type that it has"
    ) in str(caught.value)
    assert "column 'lines[].cents' (Decimal) is missing" in str(caught.value)


def test_topics_without_time_or_fields_are_refused() -> None:
    with pytest.raises(InputError, match="its rows have no time, which a replay needs"):
        table_columns(Topic("orders", key=str, value=Paid), SCHEMA, "t")
    with pytest.raises(InputError, match="the values of topic 'orders' have no fields"):
        table_columns(topic_of(str), SCHEMA, "t")
    with pytest.raises(InputError, match="the table has column 'at' more than once"):
        table_columns(topic_of(Paid), pa.schema([SCHEMA.field("at"), *SCHEMA]), "t")


def test_columns_that_differ_in_case_only_are_an_error_also_for_fields_with_defaults() -> None:
    @frozen
    class Parcel:
        at: datetime
        weightKg: float | None = None  # noqa: N815

    schema = pa.schema({"AT": pa.timestamp("us"), "weightkg": pa.float64()})
    with pytest.raises(InputError) as caught:
        table_columns(topic_of(Parcel), schema, "t")
    assert "column 'at' (datetime) is missing; rename 'AT'" in str(caught.value)
    assert "column 'weightKg' (float) is missing; rename 'weightkg'" in str(caught.value)
    both = pa.schema({"at": pa.timestamp("us"), "AT": pa.int64(), "weightKg": pa.float64()})
    with pytest.raises(InputError, match="columns 'AT' and 'at', which differ in case only; select or rename one"):
        table_columns(topic_of(Parcel), both, "t")


def test_columns_that_are_not_read_may_have_the_same_name() -> None:
    twice = pa.schema([*SCHEMA, pa.field("unread", pa.int64()), pa.field("unread", pa.string())])
    assert table_columns(topic_of(Paid), twice, "t") == ("at", "cents")
    with pytest.raises(InputError, match="the table has column 'unread' more than once"):
        table_columns(topic_of(dict), twice, "t")


@pytest.mark.parametrize(
    ("value", "names", "expected"),
    [
        (str, ("key", "value", "timestamp"), True),
        (str, ("key", "value"), False),
        (Paid, ("key", "value", "timestamp"), True),
        (Paid, ("at", "cents", "value", "timestamp"), False),
        (dict, ("key", "value", "timestamp"), False),
    ],
)
def test_rows_are_records_if_they_are_no_values(value: Any, names: tuple[str, ...], expected: bool) -> None:
    assert are_records(Topic("t", key=str, value=value), names) is expected
    assert not are_records(Topic("t", key=str, value=value, timestamp=lambda _: 0), names)


@frozen
class Opened:
    opened: datetime
    price: Decimal


@frozen
class Closed:
    closed: datetime


@frozen
class Change:
    at: datetime
    change: Opened | Closed
    before: Opened | Closed | None = None


@pytest.mark.parametrize("kind", [Opened | Closed, Change])
def test_columns_of_unions_that_rows_tell_apart_are_those_of_any_of_their_classes(kind: Any) -> None:
    """Their types are declared, although no column is that of one class."""
    opened = Opened(NOON, Decimal("1.50"))
    row = {"opened": NOON, "price": Decimal("1.50")}
    value, rows = (Change(NOON, opened), [{"at": NOON, "change": row}]) if kind is Change else (opened, [row])
    topic = Topic("t", key=str, value=kind, timestamp=lambda _: NOON)
    batch = pa.RecordBatch.from_pylist(rows)

    assert table_columns(topic, batch.schema, "t") == tuple(batch.schema.names)
    check_file_columns(topic, batch.schema, "t")
    found = ValueReader(form_of(topic.value_serde)).read(ArrowRows(batch))
    assert [topic.value_serde.deserialize(data) for data in found.data] == [value]
