"""Generated records: of every type that a topic can have, and what serdes write is what they read."""

import enum
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from annotated_types import Gt, Le
from hypothesis import find, given, settings
from hypothesis import strategies as st

from streams import ConfigError, Serde, StreamsBuilder, Topic, session_windowed, time_windowed
from streams.formats import avro, precision
from streams.testing import TopologyTestDriver, records

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: float
    y: int = 0


class Visit(TypedDict):
    city: str
    days: NotRequired[int]


@attrs.frozen
class Tree:
    name: str
    children: "list[Tree]" = attrs.field(factory=list)


class Small(msgspec.Struct, frozen=True):
    size: Annotated[int, msgspec.Meta(ge=1, le=3)]


class Guest(pydantic.BaseModel):
    name: Annotated[str, pydantic.Field(min_length=2, max_length=4)]
    share: float = pydantic.Field(gt=0, lt=1)


@attrs.frozen
class Page(Generic[T]):
    items: tuple[T, ...]


@dataclass(frozen=True)
class Everything:
    text: str
    flag: bool
    ratio: float
    data: bytes
    at: datetime
    day: date
    hour: time
    lasts: timedelta
    token: UUID
    amount: Decimal
    color: Color
    kind: Literal["big", "small"]
    maybe: int | None
    point: Point
    visit: Visit
    small: Small
    numbers: frozenset[int]
    pair: tuple[int, str]
    tags: dict[str, list[int]] = field(default_factory=dict)


TYPES = [int, str, float, bool, bytes, UUID, datetime, Everything, Tree, Guest, Page[Small], dict, list[int] | Small]


@pytest.mark.case
@pytest.mark.parametrize("form", TYPES, ids=repr)
def test_what_is_generated_is_read_as_it_was_written(form):
    topic = Topic("topic", key=str, value=form)

    @settings(max_examples=25)
    @given(records(topic, min_size=1, max_size=3, tombstones=True))
    def check(rows):
        for key, value, timestamp_ms in rows:
            assert isinstance(key, str)
            assert 0 <= timestamp_ms <= 600_000
            assert topic.value_serde.deserialize(topic.value_serde.serialize(value)) == value

    check()


@pytest.mark.world
@pytest.mark.parametrize("key", [time_windowed(str, timedelta(seconds=1)), session_windowed(int)], ids=repr)
def test_windowed_keys(key):
    topic = Topic("topic", key=key, value=int)

    @settings(max_examples=25)
    @given(records(topic, min_size=1))
    def check(rows):
        for found, _, _ in rows:
            assert key.deserialize(key.serialize(found)) == found

    check()


@dataclass(frozen=True)
class Payment:
    cents: Annotated[int, Gt(0), Le(10)]
    price: Annotated[Decimal, precision(4, 1)]


@settings(max_examples=25)
@given(records(Topic("payments", value=avro(Payment)), min_size=1))
def test_formats_and_constraints(rows):
    for key, payment, _ in rows:
        assert key is None
        assert 1 <= payment.cents <= 10
        assert payment.price.as_tuple().exponent == -1
        assert abs(payment.price) < 1000


@pytest.mark.world
def test_keys_come_again_or_are_those_of_the_values():
    plain = Topic("plain", key=str, value=int)
    derived = Topic("derived", key=int, value=Small, key_from=lambda value: value.size * 10)

    assert find(records(plain), lambda rows: len({row[0] for row in rows}) < len(rows) == 3)
    assert all(key == value.size * 10 for key, value, _ in find(records(derived, min_size=3), lambda rows: True))


@pytest.mark.world
def test_a_property_of_a_topology_finds_its_smallest_counterexample():
    orders, totals = Topic("orders", key=str, value=int), Topic("totals", key=str, value=int)

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).group_by_key().reduce(max, name="largest").to_stream().to(totals)

    def is_sum(rows):
        with TopologyTestDriver(topology) as driver:
            driver.pipe_all(orders, rows)
            read = dict(driver.read(totals))
        return read == {key: sum(value for other, value, _ in rows if other == key) for key, _, _ in rows}

    amounts = st.integers(1, 5)
    assert find(records(orders, values=amounts), lambda rows: not is_sum(rows)) == [("", 1, 0), ("", 1, 0)]


def test_what_has_no_strategy_is_refused_with_a_remedy():
    own = Serde("own", lambda value: b"", lambda data: None)

    with pytest.raises(ConfigError, match="topic 'own': pass values=: there is no strategy for objects of serde 'own'"):
        records(Topic("own", value=own))
    assert find(records(Topic("own", value=own), values=st.none(), min_size=1), lambda rows: True) == [(None, None, 0)]
