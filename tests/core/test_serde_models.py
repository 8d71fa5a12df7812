"""JSON of pydantic models, and of unions of classes without a tag."""

import json
import pickle
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Optional, TypeVar
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from attrs import frozen
from pydantic import BaseModel, Field

from streams import SerializationError, StreamsBuilder, Topic, TopologyError
from streams.core.serdes.serde_models import shape_of
from streams.core.serdes.serdes import canonical_json, serde_for
from streams.formats import debezium
from streams.testing import TopologyTestDriver
from streams.values import arrow_table, form_of

T = TypeVar("T")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Line(BaseModel):
    sku: str
    price: Decimal
    at: datetime


class Order(BaseModel, frozen=True):
    number: int = Field(alias="no", ge=1)
    lines: tuple[Line, ...] = ()
    note: Optional[str] = None  # noqa: UP045 - as users write it


class Strict(BaseModel, strict=True):
    at: datetime


class Page(BaseModel, Generic[T]):
    items: list[T]


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Rectangle(BaseModel):
    width: float
    height: float

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> float:
        return self.width * self.height


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


class Card(BaseModel):
    kind: Literal["card"] = "card"
    digits: str


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"
    amount: int


@pydantic.dataclasses.dataclass
class Checked:
    count: Annotated[int, Field(gt=0)]


@frozen
class Paid:
    payment: Card
    at: datetime


@dataclass(frozen=True)
class Opened:
    url: str
    at: datetime


@frozen
class Closed:
    url: str
    seconds: float


@dataclass(frozen=True)
class Event:
    what: Opened | Closed
    session: str = ""


LINE = Line(sku="a", price=Decimal("1.50"), at=NOON)
CASES: list[tuple[Any, Any, bytes]] = [
    (Line, LINE, b'{"at":"2026-03-01T12:00:00Z","price":"1.50","sku":"a"}'),
    (
        Order,
        Order(no=1, lines=(LINE,)),
        b'{"lines":[{"at":"2026-03-01T12:00:00Z","price":"1.50","sku":"a"}],"no":1,"note":null}',
    ),
    (Strict, Strict(at=NOON), b'{"at":"2026-03-01T12:00:00Z"}'),
    (Page[int], Page[int](items=[1]), b'{"items":[1]}'),
    (Numbers, Numbers([1, 2]), b"[1,2]"),
    (Rectangle, Rectangle(width=2, height=3), b'{"height":3.0,"width":2.0}'),
    (Tree, Tree(name="a", children=[Tree(name="b")]), b'{"children":[{"children":[],"name":"b"}],"name":"a"}'),
    (Checked, Checked(1), b'{"count":1}'),
    (Card | Cash, Cash(amount=1), b'{"amount":1,"kind":"cash"}'),
    (Annotated[Card | Cash, Field(discriminator="kind")], Card(digits="4"), b'{"digits":"4","kind":"card"}'),
    (list[Numbers], [Numbers([1])], b"[[1]]"),
    (dict[str, Card], {"a": Card(digits="4")}, b'{"a":{"digits":"4","kind":"card"}}'),
    (
        Paid,
        Paid(Card(digits="4"), NOON),
        b'{"at":"2026-03-01T12:00:00Z","payment":{"digits":"4","kind":"card"}}',
    ),
    (Opened | Closed, Opened("/", NOON), b'{"at":"2026-03-01T12:00:00Z","url":"/"}'),
    (Opened | Closed | None, Closed("/", 2.5), b'{"seconds":2.5,"url":"/"}'),
    (list[Opened | Closed], [Closed("/", 1.0)], b'[{"seconds":1.0,"url":"/"}]'),
    (Event, Event(Closed("/", 1.0)), b'{"session":"","what":{"seconds":1.0,"url":"/"}}'),
]


@pytest.mark.parametrize(("form", "value", "data"), CASES, ids=[str(case[0]) for case in CASES])
def test_values_come_back(form: Any, value: Any, data: bytes) -> None:
    serde = serde_for(form)

    assert serde.serialize_all([value, None]) == [data, None]
    (found, none) = serde.deserialize_all([data, None])
    assert (found, type(found), none) == (value, type(value), None)
    assert pickle.loads(pickle.dumps(serde)).deserialize(data) == value


@pytest.mark.parametrize(("form", "value", "data"), CASES, ids=[str(case[0]) for case in CASES])
def test_shape_has_the_same_json(form: Any, value: Any, data: bytes) -> None:
    shape = shape_of(form)

    assert canonical_json(msgspec.json.decode(data, type=shape)) == data
    assert form_of(serde_for(form)).from_object(msgspec.json.decode(data)) == data


def test_rows_of_files_are_validated_by_the_model() -> None:
    form = form_of(serde_for(Order))

    assert form.from_object({"no": 7}) == b'{"lines":[],"no":7,"note":null}'
    with pytest.raises(SerializationError, match=r"no: Input should be greater than or equal to 1"):
        form.from_object({"no": 0})


@pytest.mark.parametrize(
    ("form", "data", "message"),
    [
        (Order, b'{"no":0}', r"cannot read 8 bytes b'{\"no\":0}': no: Input should be greater than or equal to 1$"),
        (Order, b"{", "Invalid JSON"),
        (Checked, b'{"count":0}', "count: Input should be greater than 0"),
        (Card | Cash, b'{"kind":"coin"}', "card"),
        (Event, b'{"session":"a"}', "Object missing required field `what`"),
        (Event, b'{"what":{"url":"/","seconds":"1"}}', "Expected `float`, got `str`"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_field(form: Any, data: bytes, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        serde_for(form).deserialize(data)


def test_values_that_their_model_does_not_allow_are_not_written() -> None:
    with pytest.raises(SerializationError, match="amount"):
        serde_for(Cash).serialize(Cash.model_construct(kind="cash", amount="much"))
    with pytest.raises(SerializationError, match="expected Cash"):
        serde_for(Cash).serialize(Card(digits="4"))  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="width: Input should be a valid number"):
        serde_for(Rectangle).serialize(Rectangle(width=float("nan"), height=1))


def test_models_are_immutable_if_all_within_them_are() -> None:
    class Point(BaseModel, frozen=True):
        x: int

    assert serde_for(Point).is_immutable
    assert not serde_for(Order).is_immutable  # Its lines are mutable.
    assert not serde_for(Cash).is_immutable


class Dated(BaseModel):
    """pydantic makes a time of 1970 of the text "2026"."""

    at: list[datetime | str]


class Left(BaseModel):
    x: int = Field(serialization_alias="a", validation_alias="b")


@dataclass
class One:
    x: int


@dataclass
class Same:
    x: int


class Stranger:
    pass


@frozen
class Hidden:
    shown: int
    _hidden: int = 0


@frozen
class Loose:
    id: UUID | str


@frozen
class Cached:
    x: int
    _cache: int = attrs.field(init=False, default=0)


def test_a_private_field_that_is_no_argument_is_not_written() -> None:
    assert serde_for(Cached).serialize(Cached(1)) == b'{"x":1}'
    assert serde_for(Cached).deserialize(b'{"x":1}') == Cached(1)


@frozen
class Holder:
    what: Stranger
    model: Card


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (Left, "field 'x' of Left is written as 'a' but read as 'b'; give both names by alias="),
        (One | Same, "no serde for .*One"),
        (Holder, "no serde for .*Holder.*Stranger"),
        (Opened | Stranger, "no serde for"),
        (list[Hidden], "private fields of attrs classes are not written to JSON: .*Hidden has '_hidden'; give it"),
        (UUID | str, "are all texts in JSON, and cannot be told apart"),
        (Dated, "are all texts in JSON, and cannot be told apart"),
        (Loose, "are all texts in JSON, and cannot be told apart"),
        (dict[tuple[int, str], int], "of which no tuple can be read back; declare keys of one type"),
        (list[dict[bool, int]], "of which no bool can be read back"),
        (dict[int | str, int], "of which no union can be read back"),
        (dict[str | None, int], "of which no union can be read back"),
        (dict[Opened, int], "of which no .*Opened"),
        (set[list[int]], "a set has no items of type list, which cannot be hashed"),
    ],
)
def test_types_that_cannot_come_back_are_refused(form: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        serde_for(form)


def test_results_of_lambdas_may_be_models() -> None:
    orders = Topic("orders", key=str, value=Order)
    totals = Topic("totals", key=str, value=Cash)

    def topology(builder: StreamsBuilder) -> None:
        (
            builder.stream(orders)
            .map(lambda key, order: (key[0], Cash(amount=order.number)))
            .group_by_key()
            .reduce(lambda total, new: Cash(amount=total.amount + new.amount), name="totals")
            .to_stream()
            .to(totals)
        )

    with TopologyTestDriver(topology) as driver:
        driver.pipe(orders, Order(no=1), key="ann")
        driver.pipe(orders, Order(no=2), key="abe")
        assert driver.read(totals) == [("a", Cash(amount=1)), ("a", Cash(amount=3))]


@pytest.mark.parametrize("text", ["20260101", "2026", " 1.5", "-1e9"])
def test_texts_of_digits_are_no_times_of_a_model(text: str) -> None:
    """Pydantic takes them for seconds since 1970, strict or not."""

    class Event(pydantic.BaseModel):
        ats: list[datetime | None]
        note: str = ""

    serde = serde_for(Event)

    with pytest.raises(SerializationError, match=r"at `\$.ats\[1\]`|ats\.1: Input should be a valid datetime"):
        serde.deserialize(json.dumps({"ats": [None, text]}).encode())
    assert serde.deserialize(json.dumps({"ats": ["2026-01-01T00:00:00Z"], "note": text}).encode()).note == text


def _day(text: Any) -> Any:
    return datetime.strptime(text, "%Y%m%d").replace(tzinfo=UTC)


class ByField(pydantic.BaseModel):
    at: datetime

    _read = pydantic.field_validator("at", mode="before")(_day)


class ByType(pydantic.BaseModel):
    at: Annotated[datetime, pydantic.BeforeValidator(_day)]


class ByModel(pydantic.BaseModel):
    at: datetime

    @pydantic.model_validator(mode="before")
    @classmethod
    def _read(cls, row: Any) -> Any:
        return {"at": _day(row["at"])}


@pytest.mark.parametrize("model", [ByField, ByType, ByModel])
def test_validators_of_a_model_may_convert_texts_of_digits(model: Any) -> None:
    serde = serde_for(list[model])

    assert serde.deserialize(b'[{"at":"20260131"}]')[0].at == datetime(2026, 1, 31, tzinfo=UTC)


class Loose(pydantic.BaseModel):
    x: Literal[0, 1] | None = None
    f: float = 0.0
    id: UUID | None = None


@pytest.mark.parametrize(
    "text", ['{"x":false}', '{"x":0.0}', '{"f":NaN}', '{"id":"urn:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8"}']
)
def test_what_pydantic_takes_for_another_value_is_refused(text: str) -> None:
    with pytest.raises(SerializationError, match=r"Expected|malformed|Invalid"):
        serde_for(Loose).deserialize(text.encode())
    with pytest.raises(SerializationError, match=r"Expected|malformed|Invalid"):
        debezium(Loose).deserialize(b'{"before":null,"after":%b,"op":"c"}' % text.encode())


def test_a_model_with_two_names_of_a_field_is_read_by_either() -> None:
    class Named(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(populate_by_name=True)
        number: int = Field(alias="no")

    assert [serde_for(Named).deserialize(text).number for text in (b'{"no":1}', b'{"number":1}')] == [1, 1]


def test_texts_of_digits_are_no_days_of_a_model() -> None:
    """Pydantic takes a multiple of 86,400 for seconds since 1970."""

    class Day(pydantic.BaseModel):
        at: date

    with pytest.raises(SerializationError, match="Invalid RFC3339 encoded date"):
        serde_for(Day).deserialize(b'{"at":"86400"}')


@dataclass
class Raw:
    data: bytes


class Holder(pydantic.BaseModel):
    raw: Raw
    more: list[bytes | None] = []


@pydantic.dataclasses.dataclass
class OwnRaw:
    data: bytes


@dataclass
class Beside:
    data: bytes
    holder: Holder


@attrs.frozen
class BesideAttrs:
    data: bytes
    holder: Holder


def test_bytes_within_a_model_are_text_at_any_depth() -> None:
    serde = serde_for(Holder)
    value = Holder(raw=Raw(b"abcd"), more=[b"x", None])

    assert serde.deserialize(serde.serialize(value)) == value
    assert arrow_table(serde, [value]).to_pylist() == [{"raw": {"data": "abcd"}, "more": ["x", None]}]


@pytest.mark.parametrize("form", [OwnRaw, Beside, list[OwnRaw]])
def test_bytes_that_pydantic_reads_but_does_not_write_are_refused(form: Any) -> None:
    with pytest.raises(TopologyError, match="are base64 in JSON, which pydantic reads as text"):
        serde_for(form)


def test_bytes_of_an_attrs_class_beside_a_model_are_read_back() -> None:
    serde = serde_for(BesideAttrs)
    value = BesideAttrs(b"abcd", Holder(raw=Raw(b"abcd")))

    assert serde.deserialize(serde.serialize(value)) == value


def test_durations_of_years_are_read_back() -> None:
    class Span(pydantic.BaseModel):
        took: timedelta
        at: datetime | None = None

    serde = serde_for(Span)

    assert serde.deserialize(serde.serialize(Span(took=timedelta(days=800)))) == Span(took=timedelta(days=800))
    with pytest.raises(SerializationError, match="Invalid RFC3339"):
        serde.deserialize(b'{"took":"PT1S","at":"20260101"}')


class Whatever(pydantic.BaseModel):
    aware: pydantic.AwareDatetime | None = None
    path: Path | None = None
    numbers: pydantic.Json[list[int]] | None = None
    texts: list[Annotated[int, pydantic.BeforeValidator(int)]] = []
    took: Optional[timedelta] = None  # noqa: UP045 - the old form.


def test_what_only_pydantic_knows_is_written_and_read_as_pydantic_does() -> None:
    serde = serde_for(Whatever)
    value = Whatever(aware=datetime(2026, 1, 1, tzinfo=UTC), path=Path("a"), took=timedelta(days=800))

    assert serde.deserialize(serde.serialize(value)) == value
    assert serde.deserialize(b'{"numbers":"[1]","texts":["5"]}') == Whatever(numbers="[1]", texts=[5])
    assert serde_for(Matcher).deserialize(b'{"pattern":"a+"}').pattern.fullmatch("aa")


class Matcher(pydantic.BaseModel):
    pattern: re.Pattern[str]


def test_a_secret_is_refused_unless_the_model_writes_it() -> None:
    class Hidden(pydantic.BaseModel):
        token: pydantic.SecretStr | None

    class Written(Hidden):
        @pydantic.field_serializer("token")
        def shown(self, token: pydantic.SecretStr | None) -> str | None:
            return token and token.get_secret_value()

    with pytest.raises(TopologyError, match=r"'token' of .*Hidden is a secret, of which pydantic writes stars"):
        Topic("t", value=Hidden)
    serde = Topic("t", value=Written).value_serde
    value = Written(token=pydantic.SecretStr("x"))
    assert serde.deserialize(serde.serialize(value)) == value


def test_numbers_of_a_model_keep_the_digits_that_their_types_have() -> None:
    class Amounts(pydantic.BaseModel):
        exact: Decimal
        near: float

    found = Topic("t", value=Amounts).value_serde.deserialize(
        b'{"exact":0.12345678901234567890,"near":0.1234567890123456789}'
    )

    assert found == Amounts(exact=Decimal("0.12345678901234567890"), near=0.1234567890123456789)
