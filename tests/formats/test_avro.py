"""Avro serdes: schemas of classes, Confluent's bytes, evolution, and errors."""

import dataclasses
import json
import pickle
import sys
import typing
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import attrs
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pydantic
import pytest
from attrs import field, frozen
from confluent_kafka.schema_registry import record_subject_name_strategy, topic_record_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from streams import Topic
from streams.core.dead_letters import ROW_HEADER
from streams.core.errors import ConfigError, InputError, SchemaError, SerializationError, TopologyError
from streams.files import open_input
from streams.formats import RegistryAccess, avro, avro_schema, precision
from streams.values import BAD_INPUT
from streams.values import form_of as files_form


class Kind(Enum):
    NEW = "NEW"
    PAID = "PAID"


class Level(IntEnum):
    LOW = 1


@frozen
class Line:
    sku: str
    count: int


@frozen
class Order:
    id: uuid.UUID
    price: Annotated[Decimal, precision(10, 2)]
    at: datetime
    day: date
    noon: time
    kind: Kind
    level: Level
    lines: tuple[Line, ...]
    raw: bytes
    word: Literal["a", "b"] = "a"
    note: str | None = None
    first: Line | None = None
    tags: dict[str, float] = field(factory=dict)
    next: "Order | None" = None


def order(**changes: Any) -> Order:
    given: dict[str, Any] = {
        "id": uuid.UUID(int=7),
        "price": Decimal("12.50"),
        "at": datetime(2026, 3, 1, 12, 30, 1, 250, tzinfo=UTC),
        "day": date(2026, 3, 1),
        "noon": time(12, 0, 0, 5),
        "kind": Kind.PAID,
        "level": Level.LOW,
        "lines": (Line("a", 1), Line("b", 2)),
        "raw": b"\x00\xff",
    }
    return Order(**(given | changes))


@dataclass(frozen=True)
class AsDataclass:
    sku: str
    count: int = 1


class AsStruct(msgspec.Struct, frozen=True):
    sku: str
    count: int = 1


class Paid(msgspec.Struct, frozen=True, tag=True):
    cents: int


class Sent(msgspec.Struct, frozen=True, tag=True):
    by: str


class Batch(msgspec.Struct, frozen=True):
    events: list[Paid | Sent]
    last: Sent | None


class AsModel(pydantic.BaseModel):
    sku: str
    count: int = 1
    price: Decimal = pydantic.Field(default=Decimal("1.00"), max_digits=6, decimal_places=2)
    lines: list[AsDataclass] = []


class AsTuple(NamedTuple):
    sku: str
    count: int = 1


class AsDict(TypedDict):
    sku: str
    count: NotRequired[int]


def context(topic: str, side: str = MessageField.VALUE) -> SerializationContext:
    return SerializationContext(topic, side)


def test_all_types_have_the_bytes_of_confluents_serializer(registry, client):
    value = order(note="x", first=Line("c", 3), tags={"t": 0.5}, next=order())
    serde = Topic("all-types", value=avro(Order, registry=registry, namespace="shop")).value_serde
    line = {"sku": "c", "count": 3}
    lines = [{"sku": "a", "count": 1}, {"sku": "b", "count": 2}]
    inner = {
        "id": value.id, "price": value.price, "at": value.at, "day": value.day, "noon": value.noon, "kind": "PAID",
        "level": 1, "lines": lines, "raw": value.raw, "word": "a", "note": None, "first": None, "tags": {},
        "next": None,
    }  # fmt: skip
    datum = inner | {"note": "x", "first": line, "tags": {"t": 0.5}, "next": inner}
    schema = json.dumps(avro_schema(Order, namespace="shop"))

    data = serde.serialize(value)

    assert data == AvroSerializer(client, schema)(datum, context("all-types"))
    assert AvroDeserializer(client)(data, context("all-types")) == datum
    assert serde.deserialize(data) == value
    assert serde.deserialize_all(serde.serialize_all([value, None])) == [value, None]


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (AsDataclass, AsDataclass("a", 2)),
        (AsStruct, AsStruct("a", 2)),
        (AsModel, AsModel(sku="a", count=2, price=Decimal("2.50"), lines=[AsDataclass("x", 1)])),
        (AsTuple, AsTuple("a", 2)),
        (AsDict, {"sku": "a", "count": 2}),
        (AsDict, {"sku": "a"}),
        (list[Line], [Line("a", 1)]),
        (dict[str, Line], {"k": Line("a", 1)}),
        (frozenset[str], frozenset({"a"})),
        (Paid | Sent | None, Sent("a")),
        (Batch, Batch([Paid(5), Sent("a")], Sent("b"))),
        (str, "a"),
        (int, 5),
        (bytes, b"\x01\x02"),
    ],
    ids=str,
)
def test_a_class_of_any_kind_survives(form, value, registry):
    for serde in (avro(form), Topic(f"kinds-{uuid.uuid4()}", value=avro(form, registry=registry)).value_serde):
        assert serde.deserialize(serde.serialize(value)) == value
        copy = pickle.loads(pickle.dumps(serde))
        assert copy.serialize(value) == serde.serialize(value)


@pytest.mark.parametrize(("form", "value"), [("string", "a"), ("bytes", b"ab"), ("long", 3)])
def test_a_plain_schema_has_the_bytes_of_confluents_serializer(form, value, registry, client):
    serde = Topic(f"plain-{form}", value=avro(form, registry=registry)).value_serde

    data = serde.serialize(value)

    assert data == AvroSerializer(client, json.dumps(form))(value, context(f"plain-{form}"))
    assert serde.deserialize(data) == value


def test_a_naive_time_is_utc():
    serde = avro(datetime)

    assert serde.deserialize(serde.serialize(datetime(2026, 3, 1))) == datetime(2026, 3, 1, tzinfo=UTC)


def test_defaults_are_in_the_schema():
    assert avro_schema(Line, name="Item", namespace="shop") == {
        "type": "record",
        "name": "shop.Item",
        "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "long"}],
    }
    fields = {field["name"]: field for field in avro_schema(Order)["fields"]}
    assert fields["note"] == {"name": "note", "type": ["null", "string"], "default": None}
    assert fields["tags"]["default"] == {}
    assert fields["next"]["type"] == ["null", "Order"]


@pytest.mark.parametrize(
    ("subject", "strategy", "expected"),
    [
        ("topic", None, "by-topic-value"),
        ("record", record_subject_name_strategy, "by.record.Line"),
        ("topic-record", topic_record_subject_name_strategy, "by-topic-record-by.topic-record.Line"),
    ],
)
def test_subjects_are_those_of_confluents_strategies(subject, strategy, expected, registry, client):
    topic, namespace = f"by-{subject}", f"by.{subject}".replace("-", "_")
    expected = expected.replace("by.topic-record", "by.topic_record")
    serde = Topic(topic, value=avro(Line, registry=registry, subject=subject, namespace=namespace)).value_serde
    settings = {} if strategy is None else {"subject.name.strategy": strategy}
    theirs = AvroSerializer(client, json.dumps(avro_schema(Line, namespace=namespace)), conf=settings)

    data = serde.serialize(Line("a", 1))

    assert client.get_latest_version(expected).version == 1
    assert data == theirs({"sku": "a", "count": 1}, context(topic))
    assert client.get_versions(expected) == [1]


def test_keys_have_a_subject_of_their_own(registry, client):
    topic = Topic("keyed", key=avro(Line, registry=registry), value=str)

    topic.key_serde.serialize(Line("a", 1))

    assert client.get_versions("keyed-key") == [1]


@frozen
class Wider:
    sku: str
    count: float
    colour: str = "red"


def test_older_and_newer_data_is_read_by_the_readers_schema(registry):
    """A field with a default is added, an int becomes a float; and the other way round a field is dropped."""
    narrow = Topic("evolving", value=avro(Line, registry=registry, name="Item")).value_serde
    wide = Topic("evolving", value=avro(Wider, registry=registry, name="Item")).value_serde

    assert wide.deserialize(narrow.serialize(Line("a", 1))) == Wider("a", 1.0, "red")

    class JustSku(msgspec.Struct):
        sku: str

    less = Topic("evolving", value=avro(JustSku, registry=registry, name="Item")).value_serde
    assert less.deserialize(wide.serialize(Wider("b", 2.5, "blue"))) == JustSku("b")


@frozen
class Stricter:
    sku: str
    count: int
    colour: str


def test_an_incompatible_class_is_refused_when_it_is_registered(registry):
    Topic("strict", value=avro(Line, registry=registry, name="Item")).value_serde.serialize(Line("a", 1))
    serde = Topic("strict", value=avro(Stricter, registry=registry, name="Item")).value_serde

    with pytest.raises(SchemaError, match=r"Item in subject 'strict-value': the schema is incompatible .*colour"):
        serde.serialize(Stricter("a", 1, "red"))
    with pytest.raises(SchemaError, match=r"cannot read what the latest version writes.*colour"):
        serde.format.prepare(writes=False)


@pytest.mark.parametrize("schema_id", [0, -1, 1 << 31, "7", True])
def test_an_id_that_no_schema_has_is_refused(schema_id, registry):
    with pytest.raises(TopologyError, match="schema_id is a whole number from 1 to 2147483647"):
        avro(int, registry=registry, schema_id=schema_id)


def test_a_schema_that_must_be_there_is_not_added(registry, client):
    serde = Topic("given", value=avro(Line, registry=registry, auto_register=False)).value_serde

    with pytest.raises(SchemaError, match="not registered, and auto_register=False"):
        serde.serialize(Line("a", 1))
    assert "given-value" not in client.get_subjects()

    schema_id = AvroSerializer(client, json.dumps(avro_schema(Line)))({"sku": "a", "count": 1}, context("given"))[1:5]
    assert serde.serialize(Line("a", 1))[1:5] == schema_id


def test_a_schema_in_place_of_a_class_has_dicts(registry, tmp_path):
    path = tmp_path / "line.avsc"
    path.write_text(json.dumps(avro_schema(Line)))

    for form in (path, path.read_text(), avro_schema(Line)):
        serde = Topic("generic", value=avro(form, registry=registry)).value_serde
        assert serde.deserialize(serde.serialize({"sku": "a", "count": 1})) == {"sku": "a", "count": 1}


def test_references_of_the_writers_schema_are_followed(registry, client):
    from confluent_kafka.schema_registry import Schema, SchemaReference

    client.register_schema("lines", Schema(json.dumps(avro_schema(Line, namespace="shop")), "AVRO"))
    holder = {"type": "record", "name": "Holder", "fields": [{"name": "line", "type": "shop.Line"}]}
    schema = Schema(json.dumps(holder), "AVRO", [SchemaReference("shop.Line", "lines", 1)])
    data = AvroSerializer(client, schema)({"line": {"sku": "a", "count": 1}}, context("holders"))

    @frozen
    class Holder:
        line: Line

    serde = Topic("holders", value=avro(Holder, registry=registry, namespace="shop")).value_serde
    assert serde.deserialize(data) == Holder(Line("a", 1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x01\x00\x00\x00\x01ab", "do not begin with 0"),
        (b"\x00\x00\x00\x10\x00ab", "schema 4096 is unknown"),
        (b"\x00\x00", "do not begin with 0"),
    ],
)
def test_foreign_bytes_are_an_error_of_the_record(data, message, registry):
    serde = Topic("foreign", value=avro(Line, registry=registry)).value_serde

    with pytest.raises(SerializationError, match=message):
        serde.deserialize(data)


@pytest.mark.parametrize(("size", "reason"), [(5, "they end within a value"), (7, "Expected 3 bytes, read 1")])
def test_truncated_bytes_are_an_error_of_the_record(size, reason, registry):
    serde = Topic("truncated", value=avro(Line, registry=registry)).value_serde

    with pytest.raises(SerializationError, match=rf"avro:Line.*: {reason}"):
        serde.deserialize(serde.serialize(Line("abc", 1))[:size])


def test_a_value_of_another_class_is_an_error_of_the_record(registry):
    serde = Topic("classes", value=avro(Line, registry=registry)).value_serde

    with pytest.raises(SerializationError, match="expected Line, got AsDataclass"):
        serde.serialize(AsDataclass("a", 1))


class _Odd(Enum):
    A = "not a symbol"


@frozen
class _Seen:
    id: uuid.UUID
    at: datetime
    number: int = 0
    kind: Kind = Kind.PAID
    word: Literal["a", "b"] = "a"


_SEEN = _Seen(uuid.UUID(int=7), datetime(2026, 3, 1, tzinfo=UTC))


def _written_as(schema, registry):
    """A value that another program has written with a schema of its own."""
    datum = {"id": str(_SEEN.id), "at": 5, "number": 1, "kind": "lost"}
    for part in schema["fields"]:
        if part["type"] == "string" and part["name"] != "id":
            datum[part["name"]] = "5"
        if part["name"] == "at" and part["type"] != "long":
            datum["at"] = _SEEN.at
        if part["type"] in ("bytes", _WORD):
            datum[part["name"]] = b"5"
        if part["type"] == _PRICE:
            datum[part["name"]] = Decimal("2.57")
    serde = Topic(f"other-{uuid.uuid4()}", value=avro(schema, registry=registry)).value_serde
    return serde.serialize({part["name"]: datum[part["name"]] for part in schema["fields"]})


def _fields(**types):
    return {"type": "record", "name": "_Seen", "fields": [{"name": name, "type": types[name]} for name in types]}


_TIME = {"type": "long", "logicalType": "timestamp-millis"}
_PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
_WORD = ["null", "bytes"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (_fields(at=_TIME), "the schema it was written with does not fit: No default value for field id"),
        (_fields(id="string", at=_TIME, number="string"), "does not fit: .*string"),
        (_fields(id="bytes", at=_TIME), "id is of logical type 'uuid' here, but was written as 'bytes'"),
        (_fields(id=_PRICE, at=_TIME), "id is of logical type 'uuid' here, but was written as 'decimal'"),
        (_fields(id="string", at=_TIME, word=_WORD), "word is 'string' here, but was written as 'bytes'"),
        (_fields(id="string", at=_TIME, word="string"), r"expected one of a, b, got '5' of type str - at `\$.word`"),
        (_fields(id="string", at="long"), "at is of logical type 'timestamp-micros' here, but was written as 'long'"),
        (
            _fields(id="string", at=_TIME, kind={"type": "enum", "name": "Kind", "symbols": ["PAID", "lost"]}),
            "does not fit: lost not found in reader symbol list",
        ),
    ],
    ids=["missing", "text", "bytes as id", "decimal as id", "bytes as word", "other word", "no time", "newer enum"],
)
def test_data_whose_schema_does_not_fit_is_an_error_of_the_record(schema, message, registry):
    data = _written_as(schema, registry)
    serde = Topic("seen", value=avro(_Seen, registry=registry)).value_serde
    with pytest.raises(SerializationError, match=message):
        serde.deserialize(data)


@frozen
class _Plain:
    id: str
    at: int
    day: int
    price: bytes
    tags: list[str]


def test_a_field_without_logical_type_is_read_as_what_it_is_below_that_of_the_writer(registry):
    """By Avro's rules for schemas: below its logical type a UUID is a text, and a time is a number."""
    id_type = {"type": "string", "logicalType": "uuid"}
    schema = _fields(
        id=id_type,
        at=["null", _TIME],
        day={"type": "int", "logicalType": "date"},
        price=_PRICE,
        tags={"type": "array", "items": id_type},
    )
    schema["name"] = "_Plain"
    row = {"id": _SEEN.id, "at": _SEEN.at, "day": date(1970, 1, 3), "price": Decimal("2.57"), "tags": [_SEEN.id]}
    data = Topic("other-plain", value=avro(schema, registry=registry)).value_serde.serialize(row)
    schema_of_plain = {**_fields(id="string", at=["null", "long"]), "name": "_Plain"}

    at_ms = int(_SEEN.at.timestamp() * 1000)
    plain = Topic("plain", value=avro(_Plain, registry=registry)).value_serde.deserialize(data)
    assert plain == _Plain(str(_SEEN.id), at_ms, 2, b"\x01\x01", [str(_SEEN.id)])
    as_dict = Topic("plain", value=avro(schema_of_plain, registry=registry)).value_serde.deserialize(data)
    assert as_dict == {"id": str(_SEEN.id), "at": at_ms}


def test_a_text_is_read_as_the_id_of_the_class(registry):
    data = _written_as(_fields(id="string", at=_TIME), registry)

    assert Topic("seen", value=avro(_Seen, registry=registry)).value_serde.deserialize(data) == _SEEN


@pytest.mark.parametrize(
    ("form", "value", "message"),
    [
        (_Seen, attrs.evolve(_SEEN, number=1.5), r"whole number of 64 bits, got 1.5 of type float - at `\$.number`"),
        (_Seen, attrs.evolve(_SEEN, number=Decimal("1.9")), r"Decimal - at `\$.number`"),
        (_Seen, attrs.evolve(_SEEN, number=True), r"bool - at `\$.number`"),
        (_Seen, attrs.evolve(_SEEN, at=date(2026, 1, 1)), r"expected a datetime, got .* of type date - at `\$.at`"),
        (_Seen, attrs.evolve(_SEEN, id=None), r"expected a UUID, got None of type NoneType - at `\$.id`"),
        (list[Line], [Line("a", 1), Line("b", 1 << 63)], r"of type int - at `\$\[1\].count`"),
        (dict[str, float], {"a": 0.5, "b": "1"}, r"of type str - at `\$\['b'\]`"),
        (Literal["a", "b"], "c", "expected one of a, b, got 'c'"),
        (time, time(12, tzinfo=UTC), "times of day has no zones, and would change"),
    ],
)
def test_a_value_that_avro_would_change_is_not_written(form, value, message):
    with pytest.raises(SerializationError, match=message):
        avro(form).serialize(value)


def _logical(kind, logical_type, **more):
    return {"type": kind, "logicalType": logical_type, **more}


_DECIMAL = _logical("bytes", "decimal", precision=4, scale=2)
_FIXED = _logical("fixed", "decimal", name="Price", size=4, precision=4, scale=2)
_ONE = {"type": "record", "name": "One", "fields": [{"name": "a", "type": "int"}]}
_TWO = {"type": "record", "name": "Two", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}]}


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("int", 1.5, "a whole number of 32 bits, got 1.5 of type float"),
        ("int", 1 << 31, "a whole number of 32 bits"),
        ("int", True, "a whole number of 32 bits, got True of type bool"),
        ("long", 1 << 63, "a whole number of 64 bits"),
        ("float", 1e39, "a number that a float has"),
        ("float", (1 << 24) + 1, "a number that a float has"),
        ("double", (1 << 53) + 1, "a number that a double has"),
        ("double", Decimal("1.5"), "a number that a double has"),
        ("string", b"a", "a str, got b'a' of type bytes"),
        ("bytes", "a", "bytes, got 'a' of type str"),
        ("string", None, "a str, got None"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "one of A, got 'B'"),
        ({"type": "fixed", "name": "F", "size": 2}, b"abc", "2 bytes, got b'abc'"),
        (_logical("int", "date"), datetime(2026, 1, 1), "a date, got datetime"),
        (_TIME, date(2026, 1, 1), "a datetime, got datetime.date"),
        (_logical("long", "local-timestamp-millis"), datetime(2026, 1, 1, tzinfo=UTC), "a datetime without a zone"),
        (_DECIMAL, Decimal("NaN"), "a Decimal of 4 digits, 2 of them after the point"),
        (_DECIMAL, Decimal("1E3"), "a Decimal of 4 digits"),
        (_DECIMAL, Decimal("1.234"), "a Decimal of 4 digits"),
        (_logical("bytes", "big-decimal"), Decimal(1), "bytes, got Decimal"),
        (["null", "int"], "1", "a whole number of 32 bits, got '1'"),
        (["int", "string"], 1.5, "one of int, string, got 1.5"),
        ([_ONE, _TWO], {"a": 1, "c": ""}, "one of One, Two"),
        (_ONE, {"a": 1, "c": ""}, "only fields of One, which has no 'c'"),
        (_ONE, {}, r"a whole number of 32 bits, got nothing - at `\$.x.a`"),
        ({"type": "map", "values": "int"}, {1: 1}, "a dict whose keys are str"),
        ({"type": "array", "items": ["null", "int"]}, [None, "1"], r"at `\$.x\[1\]`"),
    ],
    ids=str,
)
def test_a_value_that_a_given_schema_has_not_is_refused_with_its_place(kind, value, message):
    serde = avro({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]})

    with pytest.raises(
        SerializationError, match=rf"expected .*{message}.*at `\$.x" if "at `" not in message else message
    ):
        serde.serialize({"x": value})


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        (_TIME, datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)),
        (_TIME, 5, datetime(1970, 1, 1, 0, 0, 0, 5000, tzinfo=UTC)),
        (_logical("long", "timestamp-nanos"), datetime(1970, 1, 1, 0, 0, 0, 1), 1000),
        (_logical("string", "uuid"), uuid.UUID(int=1), uuid.UUID(int=1)),
        (["double", "long"], 5, 5),
        (["float", "double"], 0.1, 0.1),
        ([_ONE, _TWO], {"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
        ([_ONE, _TWO], ("Two", {"a": 1, "b": "x"}), {"a": 1, "b": "x"}),
        (["null", {"type": "array", "items": "R"}], [{"x": None}], [{"x": None}]),
        ("float", float("inf"), float("inf")),
    ],
    ids=str,
)
def test_a_value_of_a_given_schema_comes_back(kind, value, result):
    serde = avro({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]})

    row = serde.deserialize(serde.serialize({"x": value}))

    assert row == {"x": result}
    assert type(row["x"]) is type(result)


_ROW = _fields(
    n="int",
    price=_DECIMAL,
    at=_TIME,
    id=_logical("string", "uuid"),
    count=["null", "long"],
    kind={"type": "enum", "name": "Kind", "symbols": ["PAID"]},
    raw="bytes",
    any=["int", "string"],
    day=_logical("int", "date"),
)
_ROW["fields"] += [
    {"name": "next", "type": ["null", "_Seen"], "default": None},
    {"name": "rates", "type": {"type": "array", "items": "double"}, "default": []},
]
_CELLS = {
    "n": "1", "price": "1.50", "at": "2026-01-01T00:00:00Z", "id": str(uuid.UUID(int=1)), "count": "5",
    "kind": "PAID", "raw": "AQ==", "any": "x", "day": "2026-01-01", "undeclared": "1",
}  # fmt: skip


def test_rows_of_files_have_the_types_of_a_given_schema():
    serde = avro(_ROW)

    value = serde.deserialize(files_form(serde).from_cells(_CELLS))

    assert {name: value[name] for name in _CELLS if name in value} == {
        "n": 1, "price": Decimal("1.50"), "at": datetime(2026, 1, 1, tzinfo=UTC), "id": uuid.UUID(int=1), "count": 5,
        "kind": "PAID", "raw": b"\x01", "any": "x", "day": date(2026, 1, 1),
    }  # fmt: skip
    assert (value["next"], value["rates"]) == (None, [])
    assert serde.format.from_json(serde.format.to_json(value)) == value
    # As for a class: by it an empty cell is None, and tables of sinks have columns of these types.
    assert typing.get_type_hints(serde.format.form)["price"] is Decimal


@pytest.mark.parametrize(
    ("cells", "message"),
    [({"n": "1.5"}, r"\$.n"), ({"at": "20260101"}, r"expected a time, got '20260101'"), ({"kind": "LOST"}, r"\$.kind")],
)
def test_a_row_that_a_given_schema_has_not_is_refused(cells, message):
    with pytest.raises(ValueError, match=message):
        files_form(avro(_ROW)).from_cells({**_CELLS, **cells})


class _Model(pydantic.BaseModel):
    n: int
    at: datetime | None = None


@pytest.mark.parametrize("serde", [avro(_Model), avro({**_ROW, "fields": _ROW["fields"][:1]}), avro(dict[str, int])])
@pytest.mark.parametrize(("cell", "n"), [("5", 5), ("1_0", None), (" 1", None), ("٣", None), ("1.5", None)])
def test_cells_and_columns_are_read_by_the_rule_and_not_by_a_model(serde, cell, n):
    """Pydantic reads ``1_0`` as 10; a column is no text."""
    form = files_form(serde)

    def read(convert, value):
        try:
            row = serde.deserialize(convert({"n": value}))
        except BAD_INPUT:
            return None
        return row["n"] if isinstance(row, dict) else row.n

    assert (read(form.from_cells, cell), read(form.from_object, cell)) == (n, None)
    assert (read(form.from_object, 5), read(form.from_object, True)) == (5, None)


def test_a_column_of_a_file_is_checked_by_the_type_of_the_class(tmp_path):
    """The bytes of the row, which Avro without a registry reads as a number, are no value either."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"n": ["5"]}), path)
    topic = Topic("rows", value=avro(_Model))

    with pytest.raises(InputError, match="column 'n' is string, but is declared as int; cast it"):
        list(open_input(topic, path)(1, 0))

    (tmp_path / "rows.csv").write_text("n\n1.5\n")
    ((_, block),) = next(iter(open_input(topic, tmp_path / "rows.csv", on_bad_row="continue")(1, 0)))
    with pytest.raises(SerializationError):
        topic.value_serde.deserialize(block.values[0])
    assert block.headers[0][0][0] == ROW_HEADER


@frozen
class _Inner:
    at: datetime


@frozen
class _Priced:
    price: Annotated[Decimal, precision(4, 2)]
    at: datetime
    local: datetime
    first: _Inner
    last: _Inner | None = None


def test_logical_types_of_other_widths_are_read(registry):
    """Decimals of fixed size match those of bytes; nanoseconds are cut; also in types that are named twice."""
    nanos = _logical("long", "timestamp-nanos")
    inner = {"type": "record", "name": "_Inner", "fields": [{"name": "at", "type": nanos}]}
    schema = _fields(
        price=_FIXED, at=nanos, local=_logical("long", "local-timestamp-micros"), first=inner, last="_Inner"
    )
    schema["name"] = "_Priced"
    serde = Topic("priced", value=avro(_Priced, registry=registry)).value_serde
    row = {"price": Decimal("1.50"), "at": -1, "local": datetime(2026, 1, 1), "first": {"at": 1999}, "last": {"at": 0}}
    data = Topic("priced", value=avro(schema, registry=registry)).value_serde.serialize(row)

    serde.format.prepare(writes=False)
    assert serde.deserialize(data) == _Priced(
        Decimal("1.50"),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2026, 1, 1),
        _Inner(datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        _Inner(datetime(1970, 1, 1, tzinfo=UTC)),
    )


@pytest.mark.parametrize("kind", [_logical("bytes", "big-decimal"), {**_DECIMAL, "logicalType": "money"}, "bytes"])
def test_a_logical_type_that_is_unknown_is_named(kind, registry):
    schema = {**_fields(price=kind), "name": "_Priced"}
    data = Topic(f"odd-{uuid.uuid4()}", value=avro(schema, registry=registry)).value_serde.serialize({"price": b""})

    with pytest.raises(SerializationError, match="price is of logical type 'decimal' here, but was written as"):
        Topic("odd", value=avro(_Priced, registry=registry)).value_serde.deserialize(data)


@dataclasses.dataclass(frozen=True, slots=True)
class _Counted:
    number: int
    twice: int = dataclasses.field(init=False, default=0)


@attrs.frozen
class _Marked:
    number: int
    mark: str = attrs.field(init=False, default="new")


def test_fields_that_are_no_arguments_of_the_class_come_back():
    for made, name, value in ((_Counted(1), "twice", 2), (_Marked(1), "mark", "old")):
        object.__setattr__(made, name, value)
        serde = avro(type(made))
        assert serde.deserialize(serde.serialize(made)) == made


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (Decimal, r"needs its precision in Avro: Annotated\[Decimal, precision\(18, 2\)\]"),
        (object, "no Avro type"),
        (Any, "no Avro type for any"),
        (_Odd, "no symbol of an Avro enum"),
        (dict[int, str], "keys of an Avro map are str"),
        (Literal["a", 1], "of str or of int"),
        (datetime | int, "cannot be told apart"),
        ("{", "no Avro schema"),
        ({"type": "recor", "name": "x"}, "no Avro schema"),
    ],
    ids=str,
)
def test_what_avro_has_not_is_refused(form, message):
    with pytest.raises(TopologyError, match=message):
        avro(form)


def test_a_registry_that_does_not_answer_is_no_error_of_the_record():
    serde = Topic("away", value=avro(Line, registry="http://127.0.0.1:1")).value_serde

    with pytest.raises(SchemaError, match=r"http://127.0.0.1:1: POST .*no answer"):
        serde.serialize(Line("a", 1))


def test_a_password_is_not_shown():
    access = RegistryAccess("http://ann:secret@127.0.0.1:1", token="hidden")

    assert "hidden" not in repr(access)
    assert "secret" not in access.place
    with pytest.raises(ConfigError, match="no URL"):
        RegistryAccess("ann:secret@host")


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastavro", None)

    with pytest.raises(ConfigError, match=r"pip install .*\[avro\]'"):
        avro(Line)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def test_an_optional_enum_comes_back_wherever_it_is():
    """Within a union, fastavro returns a value of a named type with its name."""

    @frozen
    class Painted:
        colours: list[Colour | None]
        by_room: dict[str, Colour | None]
        other: Colour | None = None

    serde = avro(Painted)
    painted = Painted([Colour.RED, None, Colour.BLUE], {"hall": Colour.RED, "attic": None}, Colour.BLUE)

    assert serde.deserialize(serde.serialize(painted)) == painted


ADDRESS = {"type": "record", "name": "Address", "namespace": "geo", "fields": [
    {"name": "country", "type": {"type": "enum", "name": "Country", "symbols": ["CH", "DE"]}},
    {"name": "other", "type": ["null", "Country"], "default": None}]}  # fmt: skip
HOLDER = {"type": "record", "name": "Holder", "namespace": "shop", "fields": [
    {"name": "country", "type": "geo.Country"}, {"name": "home", "type": "geo.Address"},
    {"name": "all", "type": {"type": "array", "items": ["null", "geo.Address"]}},
    {"name": "next", "type": ["null", "Holder"], "default": None}]}  # fmt: skip


@pytest.mark.parametrize("version", [1, "latest"])
def test_a_given_schema_names_types_of_other_subjects(version, registry, client):
    """Both ways, as Confluent's serializers, which take the references from the registry."""
    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    client.register_schema(
        "geo.Country", Schema(json.dumps({**ADDRESS["fields"][0]["type"], "namespace": "geo"}), "AVRO")
    )
    parts = [SchemaReference("geo.Country", "geo.Country", 1)]
    for doc in ("one", "two"):
        fields = [{"name": "country", "type": "Country"}, *ADDRESS["fields"][1:]]
        address = json.dumps({**ADDRESS, "fields": fields, "doc": doc})
        client.register_schema("avro-addresses", Schema(address, "AVRO", parts))
    name = f"holders-{version}"
    form = avro(HOLDER, registry=registry, references={"geo.Address": ("avro-addresses", version)})
    serde = Topic(name, value=form).value_serde
    home = {"country": "CH", "other": "DE"}
    value = {"country": "DE", "home": home, "all": [None, home], "next": None}

    data = serde.serialize({**value, "next": {**value}})

    linked = client.get_latest_version(f"{name}-value").schema
    assert {(it.name, it.subject, it.version) for it in linked.references} == {
        ("geo.Country", "geo.Country", 1),
        ("geo.Address", "avro-addresses", 1 if version == 1 else 2),
    }
    assert json.loads(linked.schema_str) == HOLDER
    theirs = AvroDeserializer(client)(data, context(name))
    assert theirs == {**value, "next": value}
    for mine in (serde, pickle.loads(pickle.dumps(serde))):
        assert mine.deserialize(AvroSerializer(client, linked)(theirs, context(name))) == theirs
    serde.format.prepare(writes=False)
    with pytest.raises(SerializationError, match=r"home\.country"):
        serde.serialize({**value, "home": {"country": "FR"}})


@pytest.mark.parametrize(
    ("field", "options", "message"),
    [
        ("none.Here", {}, "type 'none.Here', subject 'none.Here': .*not found"),
        (
            "lines.Other",
            {"references": {"lines.Other": "other-lines"}},
            "subject 'other-lines' has no type 'lines.Other'",
        ),
        ("shop.Json", {"references": {"shop.Json": "a-json"}}, "names a schema of type JSON, not AVRO"),
        ("shop.Line", {"registry": None}, r"type 'shop.Line' names another schema: give the registry="),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_when_it_is_declared(field, options, message, registry, client):
    from confluent_kafka.schema_registry import Schema

    client.register_schema("other-lines", Schema(json.dumps(avro_schema(Line)), "AVRO"))
    client.register_schema("a-json", Schema('{"type": "object"}', "JSON"))
    schema = {"type": "record", "name": "Top", "fields": [{"name": "a", "type": field}]}

    with pytest.raises(TopologyError, match=message):
        avro(schema, **{"registry": registry, **options})


def test_records_of_a_union_are_dicts_also_where_the_schema_has_changed(registry):
    later = {**HOLDER, "fields": [{"name": "n", "type": "int", "default": 7}, HOLDER["fields"][3]]}
    earlier = {**HOLDER, "fields": HOLDER["fields"][3:]}
    written = Topic("unions", value=avro(earlier, registry=registry)).value_serde.serialize({"next": {"next": None}})

    serde = Topic("unions", value=avro(later, registry=registry)).value_serde
    assert serde.deserialize(written) == {"n": 7, "next": {"n": 7, "next": None}}
