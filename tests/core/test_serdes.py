"""Serdes: Kafka's bytes, strictness, canonical JSON, type expressions."""

import json
import math
import pickle
import re
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict
from uuid import UUID as Uuid

import msgspec
import pytest
from attrs import define, field, frozen
from attrs.validators import gt
from hypothesis import given
from hypothesis import strategies as st

from streams.core.blocks.records import Window, Windowed
from streams.core.errors import SerializationError, TopologyError
from streams.core.serdes.serdes import (
    BOOLEAN,
    BYTES,
    DATETIME,
    DOUBLE,
    INT32,
    JSON,
    LONG,
    NULL,
    STRING,
    UUID,
    Serde,
    WindowedSerde,
    canonical_json,
    serde_for,
    session_windowed,
    time_windowed,
    time_windowed_ms,
)


@frozen
class Order:
    sku: str
    quantity: int = field(validator=gt(0))
    price: float = 0.0


@define
class Cart:
    orders: list[Order]


@frozen
class RushOrder(Order):
    fee: int = 0


@dataclass(frozen=True)
class Point:
    y: int
    x: Optional["Point"] = None


class Reading(msgspec.Struct, frozen=True):
    sensor: str
    value: float


class Pair(NamedTuple):
    left: int
    right: str


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Row(TypedDict):
    name: str


class Opaque:
    pass


UserId = NewType("UserId", str)


@frozen
class Loose:
    anything: Any
    more: dict[str, Any]
    children: "list[Loose]" = field(factory=list)


@pytest.mark.parametrize(
    ("form", "value", "problem"),
    [
        (dict, {"a": [1, 2, Decimal("1.10")]}, "JSON has no value of type Decimal - at `$.a[2]`"),
        (list, [b"x"], "JSON has no value of type bytes - at `$[0]`"),
        (Any, (1, 2), "JSON has no value of type tuple - at `$`"),
        (Any, {"a": {1: 2}}, "JSON has no key of type int: 1 - at `$.a`"),
        (dict, {None: 1}, "JSON has no key of type NoneType: None - at `$`"),
        (dict, {"a": math.nan}, "JSON has no NaN and no infinity - at `$.a`"),
        (dict, {"a": Order("a", 1)}, "JSON has no value of type Order - at `$.a`"),
        (dict, {"a": Colour.RED}, "JSON has no value of type Colour - at `$.a`"),
        (dict[str, Any], {"a": {"b": {1}}}, "JSON has no value of type set - at `$.a.b`"),
        (dict[int, Any], {1: Uuid(int=1)}, "JSON has no value of type UUID - at `$.1`"),
        (tuple, (1, (2,)), "JSON has no value of type tuple - at `$[1]`"),
        (Loose, Loose(1, {"x": datetime(2024, 1, 2)}), "JSON has no value of type datetime - at `$.more.x`"),
        (
            Loose,
            Loose(1, {}, [Loose(Decimal(1), {})]),
            "type Decimal - at `$.children[0].anything`",
        ),
        (dict | datetime | list[Decimal], {"a": Decimal(1)}, "JSON has no value of type Decimal - at `$.a`"),
        (Loose | int, Loose(timedelta(1), {}), "JSON has no value of type timedelta - at `$.anything`"),
    ],
)
def test_what_json_has_not_is_refused_where_no_type_is_declared(form: Any, value: Any, problem: str) -> None:
    """It would be read back as a text or a list: the sum of two decimals was their texts, joined."""
    serde = serde_for(form)

    with pytest.raises(SerializationError, match=re.escape(problem)):
        serde.serialize(value)
    with pytest.raises(SerializationError, match=re.escape(problem)):
        serde.serialize_all([None, value])


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (dict, OrderedDict(a=[None, True, 2**70, 1.5, "é", {}])),
        (list, [{"a": [[]]}]),
        (Any, 5),
        (dict[str, Decimal], {"a": Decimal("1.10")}),
        (dict | datetime | list[Decimal], [Decimal("1.10")]),
        (dict | datetime | list[Decimal], datetime(2024, 1, 2)),
        (dict[int, list[date]], {1: [date(2024, 1, 2)]}),
        (Loose, Loose([{"a": None}], {"b": 1.5}, [Loose(None, {})])),
    ],
)
def test_what_is_json_or_declared_is_read_as_it_was_written(form: Any, value: Any) -> None:
    serde = serde_for(form)

    assert serde.deserialize_all(serde.serialize_all([value, None])) == [value, None]
    assert serde.deserialize(serde.serialize(value)) == value


@frozen
class Tree:
    name: str
    children: "list[Tree]" = field(factory=list)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["a"] = [value]
    for write in (serde_for(dict).serialize, lambda value: serde_for(dict).serialize_all([value])):
        with pytest.raises(SerializationError, match="recursion"):
            write(value)


def test_values_of_a_type_that_contains_itself_are_not_searched_without_need() -> None:
    assert serde_for(Tree).quick is not None
    assert serde_for(Loose).quick is None


@pytest.mark.parametrize(("form", "data"), [(dict, b"[1]"), (dict, b"5"), (list, b'{"a":1}'), (list, b'"x"')])
def test_an_object_is_a_dict_and_an_array_a_list(form: Any, data: bytes) -> None:
    with pytest.raises(SerializationError, match="Expected `object`" if form is dict else "Expected `array`"):
        serde_for(form).deserialize(data)


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (STRING, "é", b"\xc3\xa9"),
        (STRING, "", b""),
        (LONG, 5, bytes(7) + b"\x05"),
        (LONG, -1, b"\xff" * 8),
        (LONG, -(2**63), b"\x80" + bytes(7)),
        (INT32, -2, b"\xff\xff\xff\xfe"),
        (DOUBLE, 1.5, b"\x3f\xf8" + bytes(6)),
        (DOUBLE, math.inf, b"\x7f\xf0" + bytes(6)),
        (BOOLEAN, True, b"\x01"),
        (BOOLEAN, False, b"\x00"),
        (BYTES, b"\x00\xff", b"\x00\xff"),
        (UUID, Uuid(int=1), b"00000000-0000-0000-0000-000000000001"),
        (DATETIME, datetime(2024, 1, 2, 3, 4, 5, 600, UTC), b'"2024-01-02T03:04:05.000600Z"'),
        (DATETIME, datetime(2024, 1, 2), b'"2024-01-02T00:00:00"'),
    ],
)
def test_primitive_has_kafkas_bytes(serde: Serde[Any], value: object, data: bytes) -> None:
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value
    assert serde.serialize_all([value, None, value]) == [data, None, data]
    assert serde.serialize_all([value, value]) == [data, data]
    assert serde.deserialize_all([data, None]) == [value, None]
    assert serde.deserialize_all([data, data]) == [value, value]
    assert serde.is_immutable


@pytest.mark.parametrize(
    "serde", [STRING, LONG, INT32, DOUBLE, BOOLEAN, BYTES, UUID, DATETIME, NULL, JSON, time_windowed_ms(LONG, 1)]
)
def test_none_stands_for_none(serde: Serde[Any]) -> None:
    assert serde.serialize(None) is None
    assert serde.deserialize(None) is None
    assert serde.serialize_all([None, None]) == [None, None]
    assert serde.deserialize_all([None]) == [None]
    assert serde.serialize_all([]) == []
    assert serde.deserialize_all([]) == []


@pytest.mark.parametrize(
    ("serde", "value", "expected"),
    [
        (LONG, "x", "int of 64 bits"),
        (LONG, True, "int of 64 bits"),
        (LONG, 1.0, "int of 64 bits"),
        (LONG, 2**63, "int of 64 bits"),
        (LONG, -(2**63) - 1, "int of 64 bits"),
        (INT32, 2**31, "int of 32 bits"),
        (STRING, 1, "expected str"),
        (STRING, b"a", "expected str"),
        (STRING, "\ud800", "surrogates"),
        (DOUBLE, "1", "expected float"),
        (DOUBLE, True, "expected float"),
        (DOUBLE, 2**53 + 1, "exact"),
        (DOUBLE, 10**400, "too large"),
        (BOOLEAN, 1, "expected bool"),
        (BYTES, "a", "expected bytes"),
        (UUID, "a", "expected UUID"),
        (DATETIME, "2024-01-01", "expected datetime"),
        (NULL, "x", "expected None"),
    ],
)
def test_wrong_value_is_refused_with_value_type_and_expectation(
    serde: Serde[Any], value: object, expected: str
) -> None:
    for write in (
        serde.serialize,
        lambda item: serde.serialize_all([None, item]),
        lambda item: serde.serialize_all([item]),
    ):
        with pytest.raises(SerializationError) as caught:
            write(value)

        message = str(caught.value)
        assert expected in message
        assert serde.name in message
        assert type(value).__name__ in message


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (LONG, b""),
        (LONG, bytes(7)),
        (LONG, bytes(9)),
        (INT32, bytes(8)),
        (DOUBLE, bytes(4)),
        (BOOLEAN, b"\x02"),
        (BOOLEAN, b""),
        (STRING, b"\xff"),
        (UUID, b"{00000000000000000000000000000001}"),
        (UUID, b"x" * 36),
        (DATETIME, b'"yesterday"'),
        (JSON, b"{"),
        (JSON, b'"\xff"'),
        (JSON, b""),
        (JSON, b"[" * 100_000),
    ],
)
def test_bytes_that_do_not_fit_are_refused(serde: Serde[Any], data: bytes) -> None:
    for read in (
        serde.deserialize,
        lambda item: serde.deserialize_all([None, item]),
        lambda item: serde.deserialize_all([item]),
    ):
        with pytest.raises(SerializationError, match=serde.name):
            read(data)


def test_wrong_lengths_that_add_up_are_refused_in_a_block() -> None:
    with pytest.raises(SerializationError):
        LONG.deserialize_all([bytes(7), bytes(9)])


def test_subclasses_of_plain_types_are_written_as_these() -> None:
    assert LONG.serialize(Level.HIGH) == LONG.serialize(3)
    assert LONG.serialize_all([Level.HIGH, 1]) == LONG.serialize_all([3, 1])
    assert DOUBLE.serialize(3) == DOUBLE.serialize(3.0)
    assert BYTES.serialize(bytearray(b"a")) == b"a"  # type: ignore[arg-type]


def test_null_reads_any_bytes_as_none() -> None:
    """A topic declared without key may have keys that its reader does not care for."""
    assert NULL.deserialize(b"key") is None
    assert NULL.deserialize_all([b"key", None]) == [None, None]


def test_equal_aware_datetimes_have_equal_bytes() -> None:
    east = timezone(timedelta(hours=2))

    assert DATETIME.serialize(datetime(2024, 1, 1, 2, tzinfo=east)) == DATETIME.serialize(
        datetime(2024, 1, 1, tzinfo=UTC)
    )


@given(st.integers(-(2**63), 2**63 - 1))
def test_long_round_trip(value: int) -> None:
    data = LONG.serialize(value)

    assert data == value.to_bytes(8, "big", signed=True)
    assert LONG.deserialize(data) == value
    assert LONG.deserialize_all([data, None]) == [value, None]


@given(st.lists(st.none() | st.floats(allow_nan=False)))
def test_double_round_trip(values: list[float | None]) -> None:
    assert DOUBLE.deserialize_all(DOUBLE.serialize_all(values)) == values


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))))
def test_string_round_trip(values: list[str | None]) -> None:
    assert STRING.deserialize_all(STRING.serialize_all(values)) == values


@given(st.datetimes() | st.datetimes(timezones=st.just(UTC)), st.uuids())
def test_datetime_and_uuid_round_trip(moment: datetime, identity: Uuid) -> None:
    assert DATETIME.deserialize(DATETIME.serialize(moment)) == moment
    assert UUID.deserialize(UUID.serialize(identity)) == identity


texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.none() | st.booleans() | st.integers() | texts
documents = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)
exact_documents = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20)


@given(documents)
def test_json_round_trip(value: object) -> None:
    assert JSON.deserialize(JSON.serialize(value)) == value


@given(exact_documents)
def test_canonical_json_is_that_of_the_standard_library(value: object) -> None:
    """Sorted, no spaces, UTF-8, integers of any size."""
    assert canonical_json(value).decode() == json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )


@pytest.mark.world
@given(st.dictionaries(texts, documents))
def test_canonical_json_does_not_depend_on_insertion_order(value: dict[str, object]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


@pytest.mark.parametrize("value", [math.nan, [1, {"a": -math.inf}], {"a": (None, math.inf)}, "\ud800", object()])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(SerializationError, match="'json'"):
        JSON.serialize(value)


def test_none_within_json_is_allowed() -> None:
    assert JSON.serialize({"b": None, "a": "null"}) == b'{"a":"null","b":null}'


@pytest.mark.parametrize(
    ("form", "value", "data"),
    [
        (Order, Order("a", 1, 2), b'{"price":2,"quantity":1,"sku":"a"}'),
        (Point, Point(1, Point(2)), b'{"x":{"x":null,"y":2},"y":1}'),
        (Reading, Reading("s", 1.5), b'{"sensor":"s","value":1.5}'),
        (Pair, Pair(1, "x"), b'[1,"x"]'),
        (Cart, Cart([Order("a", 1)]), b'{"orders":[{"price":0.0,"quantity":1,"sku":"a"}]}'),
        (list[Order], [Order("a", 1)], b'[{"price":0.0,"quantity":1,"sku":"a"}]'),
        (dict[str, int], {"b": 1, "a": 2}, b'{"a":2,"b":1}'),
        (dict[int, str], {2: "b", 1: "a"}, b'{"1":"a","2":"b"}'),
        (dict[str, Order], {"x": Order("a", 1)}, b'{"x":{"price":0.0,"quantity":1,"sku":"a"}}'),
        (Mapping[str, int], {"a": 1}, b'{"a":1}'),
        (tuple[int, float], (1, 2.5), b"[1,2.5]"),
        (tuple[str, ...], ("a", "b"), b'["a","b"]'),
        (tuple, (1, "a"), b'[1,"a"]'),
        (set[int], {3, 1, 2}, b"[1,2,3]"),
        (frozenset[str], frozenset("ba"), b'["a","b"]'),
        (Row, {"name": "x"}, b'{"name":"x"}'),
        (Colour, Colour.RED, b'"red"'),
        (Decimal, Decimal("1.10"), b'"1.10"'),
        (date, date(2024, 1, 2), b'"2024-01-02"'),
        (int | str, "a", b'"a"'),
        (int | str, 2**70, b"1180591620717411303424"),
        (Literal["a", 1], 1, b"1"),
        (Annotated[list[int], msgspec.Meta(max_length=2)], [1], b"[1]"),
    ],
)
def test_typed_json_round_trip(form: Any, value: object, data: bytes) -> None:
    serde = serde_for(form)

    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value
    assert type(serde.deserialize(data)) is type(value)
    assert serde.deserialize_all(serde.serialize_all([value, None])) == [value, None]


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (Order, "x"),
        (Order, {"sku": "a"}),
        (Order, RushOrder("a", 1)),
        (dict[str, int], [1]),
        (list[Order], Order("a", 1)),
        (tuple[int, float], [1, 2.0]),
        (int | str, True),
        (int | str, 1.5),
        (Colour, "red"),
        (list[float], [math.nan]),
    ],
)
def test_typed_json_refuses_other_types(form: Any, value: object) -> None:
    with pytest.raises(SerializationError) as caught:
        serde_for(form).serialize(value)

    assert type(value).__name__ in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"{}", b'{"sku":"a","quantity":"x"}', b'{"sku":"a","quantity":0}', b"[]", b"{", b'{"sku":"\xff"}']
)
def test_typed_json_that_does_not_fit_names_the_serde(data: bytes) -> None:
    """A field of the wrong type, a failed validator, malformed text."""
    with pytest.raises(SerializationError, match="Order"):
        serde_for(Order).deserialize(data)


@pytest.mark.parametrize(
    ("form", "serde"),
    [
        (str, STRING),
        (int, LONG),
        (float, DOUBLE),
        (bool, BOOLEAN),
        (bytes, BYTES),
        (Uuid, UUID),
        (datetime, DATETIME),
        (None, NULL),
        (type(None), NULL),
        (int | None, LONG),
        (Optional[str], STRING),  # noqa: UP045
        (Any, JSON),
        (object, JSON),
        (dict | None, serde_for(dict)),
        (UserId, STRING),
        (Annotated[int, "units"], LONG),
        (Literal["a", "b"], STRING),
        (Literal["a", None], STRING),
        (STRING, STRING),
    ],
)
def test_type_expression_gives_the_plain_serde(form: Any, serde: Serde[Any]) -> None:
    assert serde_for(form) is serde


def test_equal_forms_share_a_serde() -> None:
    assert serde_for(list[Order]) is serde_for(list[Order])
    assert serde_for(Order | None) is serde_for(Order)


@pytest.mark.parametrize("form", ["Order", Opaque, list[Opaque], Counter, 3, complex, datetime | Uuid])
def test_form_without_serde_is_a_topology_error(form: Any) -> None:
    with pytest.raises(TopologyError, match="no serde for"):
        serde_for(form)


def test_immutability_goes_by_the_type_and_its_parts() -> None:
    immutable = [str, Order, Point, Reading, Pair, tuple[int, str], frozenset[int], tuple[int, ...], Colour]
    mutable = [Cart, dict[str, int], list[int], Any, tuple, tuple[list[int], int], Row, tuple[Cart, int], set[int]]

    assert all(serde_for(form).is_immutable for form in immutable)
    assert not any(serde_for(form).is_immutable for form in mutable)


def test_custom_serde_wraps_two_functions() -> None:
    def encode(value: int) -> bytes:
        return str(value).encode()

    serde = Serde("text-number", encode, int)

    assert serde.serialize_all([1, None]) == [b"1", None]
    assert serde.deserialize_all([b"1", None]) == [1, None]
    with pytest.raises(SerializationError, match="text-number"):
        serde.deserialize(b"x")
    with pytest.raises(SerializationError, match="must return bytes"):
        Serde("bad", lambda value: "text", bytes.decode).serialize("x")  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    "serde",
    [LONG, NULL, JSON, serde_for(list[Order]), time_windowed(str, timedelta(seconds=1)), session_windowed(Order)],
)
def test_serde_survives_pickling(serde: Serde[Any]) -> None:
    again = pickle.loads(pickle.dumps(serde))

    assert again.name == serde.name
    assert again.key_suffix == serde.key_suffix


# Windowed keys.


def test_size_of_windowed_keys_is_a_duration() -> None:
    with pytest.raises(ValueError, match="window size must be a timedelta, not 1000 of type int"):
        time_windowed(str, 1000)  # type: ignore[call-overload]


def test_time_windowed_key_is_key_then_start() -> None:
    serde = time_windowed(str, timedelta(milliseconds=10))
    key = Windowed("a", Window(20, 30))

    assert serde.serialize(key) == b"a" + (20).to_bytes(8, "big")
    assert serde.deserialize(b"a" + (20).to_bytes(8, "big")) == key
    assert isinstance(serde.deserialize(serde.serialize(key)), Windowed)
    assert serde.key_suffix == 8
    assert isinstance(serde, WindowedSerde)
    assert serde.inner is STRING


def test_session_windowed_key_is_key_then_end_then_start() -> None:
    serde = session_windowed(int)
    key = Windowed(1, Window(20, 35))

    assert serde.serialize(key) == bytes(7) + b"\x01" + (35).to_bytes(8, "big") + (20).to_bytes(8, "big")
    assert serde.deserialize_all(serde.serialize_all([key, None])) == [key, None]
    assert serde.key_suffix == 16


def test_end_of_an_unlimited_window_is_the_highest_time() -> None:
    serde = time_windowed_ms(STRING, 2**63 - 1)

    assert serde.deserialize(serde.serialize(Windowed("a", Window(5, 2**63 - 1)))) == Windowed(
        "a", Window(5, 2**63 - 1)
    )


@pytest.mark.parametrize(
    "value",
    [
        "a",
        ("a", Window(0, 1)),
        Windowed(None, Window(0, 1)),
        Windowed("a", Window(2**63, 0)),
        Windowed(1, Window(0, 1)),
    ],
)
def test_windowed_key_of_other_kind_is_refused(value: Any) -> None:
    for serde in (time_windowed_ms(STRING, 1), session_windowed(str)):
        with pytest.raises(SerializationError):
            serde.serialize(value)


def test_windowed_bytes_that_are_too_short_are_refused() -> None:
    with pytest.raises(SerializationError, match="at least 8"):
        time_windowed_ms(STRING, 1).deserialize(b"1234567")
    with pytest.raises(SerializationError, match="long"):
        session_windowed(int).deserialize(bytes(16))


def test_negative_window_size_is_refused_and_none_is_that_of_records_of_one_time():
    with pytest.raises(ValueError, match="must not be negative"):
        time_windowed(str, timedelta(milliseconds=-1))
    assert time_windowed(str, timedelta(0)).deserialize(b"a" + bytes(8)) == Windowed("a", Window(0, 0))
