"""Change events of Debezium, as in its documentation: what a table has after each of them."""

import base64
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import attrs
import pytest
from attrs import frozen
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from streams import StreamsBuilder, Topic
from streams.core.errors import SerializationError
from streams.formats import debezium
from streams.testing import TopologyTestDriver


@frozen
class CustomerKey:
    id: int


@frozen
class Customer:
    id: int
    first_name: str
    email: str


SOURCE = {
    "version": "2.7.0.Final", "connector": "postgresql", "name": "PostgreSQL_server", "ts_ms": 1559033904863,
    "snapshot": True, "db": "postgres", "sequence": '["24023119","24023128"]', "schema": "public",
    "table": "customers", "txId": 555, "lsn": 24023128, "xmin": None,
}  # fmt: skip
MYSQL = {
    "version": "3.2.0.Final", "name": "mysql-server-1", "connector": "mysql", "ts_ms": 1465581029100,
    "ts_us": 1465581029100000, "ts_ns": 1465581029100000000, "snapshot": "false", "db": "inventory",
    "table": "customers", "server_id": 223344, "gtid": None, "file": "mysql-bin.000003", "pos": 484, "row": 0,
    "thread": 7, "query": "UPDATE customers SET first_name='Anne Marie' WHERE id=1",
}  # fmt: skip
ANNE = {"id": 1, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
ANNE_MARIE = {**ANNE, "first_name": "Anne Marie"}


def event(op, before, after):
    return {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 1559033904863}


def wrapped(payload):
    """With the schema, as Kafka Connect's JSON converter writes it by default."""
    return {"schema": {"type": "struct", "optional": False, "fields": []}, "payload": payload}


EVENTS = [
    (event("r", None, ANNE), Customer(1, "Anne", "annek@noanswer.org")),
    (event("u", ANNE, ANNE_MARIE), Customer(1, "Anne Marie", "annek@noanswer.org")),
    (event("d", ANNE_MARIE, None), None),
    (None, None),
    (event("c", None, ANNE), Customer(1, "Anne", "annek@noanswer.org")),
]


def run(topic, records, optimization="none"):
    """Return what the table emits, and its rows at the end."""
    rows = Topic("rows", key=CustomerKey, value=Customer)

    def topology(builder: StreamsBuilder) -> None:
        builder.table(topic, store="customers").to_stream().to(rows)

    with TopologyTestDriver(topology, topology_optimization=optimization) as driver:
        for key, value in records:
            driver.pipe_bytes(topic, key, value)
        found = driver.store("customers").get(CustomerKey(1))
        return driver.read(rows), None if found is None else found.value


@pytest.mark.parametrize("optimization", ["none", "all"])
@pytest.mark.parametrize("source", [SOURCE, MYSQL], ids=lambda source: source["connector"])
@pytest.mark.parametrize("wrap", [wrapped, lambda payload: payload], ids=["with schemas", "without"])
def test_json_events_are_a_table(wrap, source, optimization):
    topic = Topic("server.public.customers", key=debezium(CustomerKey), value=debezium(Customer))
    key = json.dumps(wrap({"id": 1})).encode()
    records = [
        (key, None if change is None else json.dumps(wrap({**change, "source": source})).encode())
        for change, _ in EVENTS
    ]

    emitted, last = run(topic, records, optimization)

    states = [row for _, row in emitted]
    assert states[:3] == [row for _, row in EVENTS[:3]]
    assert states[-1] == last == EVENTS[-1][1]
    assert {key for key, _ in emitted} == {CustomerKey(1)}


def test_avro_events_are_a_table(registry, client):
    value = {
        "type": "record", "name": "Value", "fields": [
            {"name": "id", "type": "long"}, {"name": "first_name", "type": "string"},
            {"name": "last_name", "type": "string"}, {"name": "email", "type": "string"},
        ],
    }  # fmt: skip
    envelope = {
        "type": "record", "name": "Envelope", "namespace": "server.public.customers", "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }  # fmt: skip
    key = {"type": "record", "name": "Key", "namespace": "server.public.customers",
           "fields": [{"name": "id", "type": "long"}]}  # fmt: skip
    name = "avro.public.customers"
    topic = Topic(name, key=debezium(CustomerKey, registry=registry), value=debezium(Customer, registry=registry))
    write_key, write = AvroSerializer(client, json.dumps(key)), AvroSerializer(client, json.dumps(envelope))
    raw_key = write_key({"id": 1}, SerializationContext(name, MessageField.KEY))
    context = SerializationContext(name, MessageField.VALUE)

    _, last = run(topic, [(raw_key, None if it is None else write(it, context)) for it, _ in EVENTS])
    _, deleted = run(topic, [(raw_key, None if it is None else write(it, context)) for it, _ in EVENTS[:3]])

    assert (last, deleted) == (EVENTS[-1][1], None)
    with pytest.raises(SerializationError, match="only read"):
        topic.value_serde.serialize(Customer(1, "Anne", "a"))


@frozen
class Sale:
    """A row of all types that have a schema of their own, as declared in ``SALE``."""

    price: Decimal
    total: Decimal
    millis: datetime
    micros: datetime
    nanos: datetime
    connect: datetime
    zoned: datetime
    day: date
    at: time
    lasts: timedelta
    number: int
    days: list[date]
    rate: float
    note: Decimal | None = None


def typed(name, kind="int64", **more):
    return {"type": kind, "optional": True, "version": 1, "name": name, **more}


CONNECT, DEBEZIUM = "org.apache.kafka.connect.data", "io.debezium.time"
#: Each field: its schema in the record, its value there, and in the class.
SALE = {
    "price": (typed(f"{CONNECT}.Decimal", "bytes", parameters={"scale": "2"}), "AJY=", Decimal("1.50")),
    "total": (
        typed("io.debezium.data.VariableScaleDecimal", "struct", fields=[]),
        {"scale": 20, "value": "/zhVVVVVVVVVVVVVVVVVVVU="},
        Decimal(int.from_bytes(base64.b64decode("/zhVVVVVVVVVVVVVVVVVVVU="), "big", signed=True)).scaleb(
            -20, Context(prec=60)
        ),
    ),
    "millis": (typed(f"{DEBEZIUM}.Timestamp"), -1, datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    "micros": (typed(f"{DEBEZIUM}.MicroTimestamp"), 1529507596945104, datetime(2018, 6, 20, 15, 13, 16, 945104, UTC)),
    "nanos": (typed(f"{DEBEZIUM}.NanoTimestamp"), -1, datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    "connect": (typed(f"{CONNECT}.Timestamp"), 5, datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)),
    "zoned": (
        typed(f"{DEBEZIUM}.ZonedTimestamp", "string"),
        "2018-06-20T13:37:03Z",
        datetime(2018, 6, 20, 13, 37, 3, 0, UTC),
    ),
    "day": (typed(f"{DEBEZIUM}.Date", "int32"), -1, date(1969, 12, 31)),
    "at": (typed(f"{DEBEZIUM}.MicroTime"), 3_600_000_001, time(1, 0, 0, 1)),
    "lasts": (typed(f"{DEBEZIUM}.MicroTime"), -3_020_399_000_000, timedelta(seconds=-3_020_399)),
    "number": (typed(f"{DEBEZIUM}.MicroTimestamp"), 5, 5),
    "days": (
        {"type": "array", "items": typed(f"{CONNECT}.Date", "int32")},
        [0, 1],
        [date(1970, 1, 1), date(1970, 1, 2)],
    ),
    "rate": (typed(None, "double"), 0.1, 0.1),
    "note": (typed(f"{CONNECT}.Decimal", "bytes", parameters={"scale": "0"}), None, None),
}


def sale(**values):
    """The event of a row with the schemas of its fields."""
    row = {name: value for name, (_, value, _) in SALE.items()} | values
    fields = [{**schema, "field": name} for name, (schema, _, _) in SALE.items()]
    schema = {"type": "struct", "fields": [{"type": "struct", "optional": True, "fields": fields, "field": "after"}]}
    return json.dumps({"schema": schema, "payload": event("c", None, row)}).encode()


def test_decimals_and_times_are_read_by_the_schema_in_the_record():
    row = debezium(Sale).deserialize(sale())

    assert row == Sale(**{name: value for name, (_, _, value) in SALE.items()})
    assert debezium(Sale).format.from_json(sale(price=1.50)) == attrs.evolve(row, price=Decimal("1.5"))
    assert debezium(Sale).deserialize(sale(total={"scale": -3, "value": "/w=="})).total == Decimal(-1000)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"price": "1.50"}, r"'1.50' of type org.apache.kafka.connect.data.Decimal is not read: .* - at `\$.price`"),
        ({"at": 86_400_000_000}, r"no time of day; declare a timedelta.* - at `\$.at`"),
        ({"micros": 1 << 62}, r"of type io.debezium.time.MicroTimestamp is not read: OverflowError.* - at `\$.micros`"),
        (
            {"total": {"value": "AQ=="}},
            r"of type io.debezium.data.VariableScaleDecimal is not read: KeyError\('scale'\)",
        ),
    ],
)
def test_what_is_not_of_its_schema_is_an_error_of_the_record(values, message):
    with pytest.raises(SerializationError, match=message):
        debezium(Sale).deserialize(sale(**values))


@pytest.mark.parametrize("name", [f"{CONNECT}.Decimal", None])
@pytest.mark.parametrize("form", [dict, Any, dict[str, str], dict[str, Any]])
def test_bytes_of_a_schema_are_no_text(form, name):
    fields = [{**typed(name, "bytes", parameters={"scale": "2"}), "field": "price"}]
    schema = {"type": "struct", "fields": [{"type": "struct", "fields": fields, "field": "after"}]}
    data = json.dumps({"schema": schema, "payload": event("c", None, {"price": "AJY="})}).encode()

    with pytest.raises(SerializationError, match=r"'AJY=' of type .*declare (a Decimal|bytes): .* - at `\$.price`"):
        debezium(form).deserialize(data)
    own = debezium(dict[str, bytes if name is None else Decimal]).deserialize(data)
    assert own == {"price": b"\x00\x96" if name is None else Decimal("1.50")}


def test_a_number_without_a_schema_is_no_time():
    @frozen
    class Moment:
        at: datetime

    with pytest.raises(SerializationError, match=r"time.*at `\$.at`"):
        debezium(Moment).deserialize(json.dumps(event("c", None, {"at": 5})).encode())


def test_avro_events_have_the_types_of_their_schema(registry, client):
    """As Confluent's converter writes them: logical types of Avro for those of Connect, and ``connect.name``."""

    @frozen
    class Row:
        price: Decimal
        total: Decimal
        at: datetime
        day: date

    total = {"type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data",
             "connect.name": "io.debezium.data.VariableScaleDecimal",
             "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]}  # fmt: skip
    fields = [
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2,
                                   "connect.name": f"{CONNECT}.Decimal", "connect.parameters": {"scale": "2"}}},
        {"name": "total", "type": ["null", total]},
        {"name": "at", "type": {"type": "long", "connect.name": f"{DEBEZIUM}.MicroTimestamp"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date", "connect.name": f"{CONNECT}.Date"}},
    ]  # fmt: skip
    value = {"type": "record", "name": "Value", "fields": fields}
    envelope = {"type": "record", "name": "Envelope", "namespace": "server.public.rows", "fields": [
        {"name": "before", "type": ["null", value]}, {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"}]}  # fmt: skip
    after = {"price": Decimal("1.50"), "total": {"scale": 3, "value": b"\x01"}, "at": 1, "day": date(2026, 1, 1)}
    context = SerializationContext("server.public.rows", MessageField.VALUE)
    data = AvroSerializer(client, json.dumps(envelope))({"before": None, "after": after, "op": "c"}, context)

    row = Topic("server.public.rows", value=debezium(Row, registry=registry)).value_serde.deserialize(data)
    assert row == Row(Decimal("1.50"), Decimal("0.001"), datetime(1970, 1, 1, 0, 0, 0, 1, UTC), date(2026, 1, 1))


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ({"op": "t", "before": None, "after": None}, None),
        ({"op": "m", "message": {"transactional": True, "prefix": "a", "content": "aGk="}}, None),
        (
            {"op": "r", "before": None, "after": ANNE, "transaction": {"id": "571:53195829", "total_order": 1}},
            EVENTS[0][1],
        ),
    ],
    ids=["truncate", "message", "transaction"],
)
def test_events_of_other_kinds(change, row):
    assert debezium(Customer).deserialize(json.dumps(change).encode()) == row


@pytest.mark.parametrize(
    "change",
    [
        {"op": "u", "before": ANNE},
        {"ts_ms": 1559033904863},
        {
            "status": "BEGIN",
            "id": "571:53195829",
            "ts_ms": 1486500577125,
            "event_count": None,
            "data_collections": None,
        },
    ],
    ids=["no row", "heartbeat", "transaction"],
)
def test_what_has_no_row_is_an_error_of_the_record(change):
    with pytest.raises(SerializationError, match=r"no row in 'after'|no change event of Debezium"):
        debezium(Customer).deserialize(json.dumps(change).encode())


@frozen
class Transaction:
    id: str
    total_order: int


@frozen
class Envelope:
    op: str
    before: Customer | None
    after: Customer | None
    transaction: Transaction | None = None


@frozen
class Boundary:
    status: str
    id: str
    event_count: int | None
    data_collections: list[dict[str, Any]] | None


def test_a_class_of_the_envelope_has_the_row_before_and_the_transaction():
    """The last records are of the topic of transactions."""
    changes, boundaries = Topic("changes", value=Envelope), Topic("server.transaction", value=Boundary)
    change = {**event("u", ANNE, ANNE_MARIE), "transaction": {"id": "571:5", "total_order": 1}}
    end = {"status": "END", "id": "571:5", "ts_ms": 1486500577691, "event_count": 1,
           "data_collections": [{"data_collection": "s1.a", "event_count": 1}]}  # fmt: skip

    rows = [row for _, row in EVENTS[:2]]
    assert changes.value_serde.deserialize(json.dumps(change).encode()) == Envelope("u", *rows, Transaction("571:5", 1))
    assert boundaries.value_serde.deserialize(json.dumps(end).encode()) == Boundary(
        "END", "571:5", 1, end["data_collections"]
    )


def test_rows_can_be_written_for_tests():
    topic = Topic("customers", key=debezium(CustomerKey), value=debezium(Customer))
    row = Customer(1, "Anne", "a")

    assert topic.value_serde.deserialize(topic.value_serde.serialize(row)) == row
    assert topic.key_serde.deserialize(topic.key_serde.serialize(CustomerKey(1))) == CustomerKey(1)
    assert topic.value_serde.serialize(None) is None


def test_what_is_no_event_is_an_error_of_the_record():
    serde = Topic("customers", value=debezium(Customer)).value_serde

    for data in (b'{"id": 1}', b"[]", b"{", json.dumps(event("c", None, {"id": "x"})).encode()):
        with pytest.raises(SerializationError, match="debezium:"):
            serde.deserialize(data)


@attrs.frozen
class Account:
    total: Decimal
    notes: Any = None
    limits: dict[str, Decimal] | None = None
    text: str | None = None


def test_json_beside_a_decimal_has_numbers_as_json_has_them():
    row = b'{"total":1.10,"notes":{"rates":[1.5,2]},"limits":{"day":0.12345678901234567890123}}'
    account = debezium(Account).deserialize(b'{"before":null,"after":%b,"op":"c"}' % row)

    assert str(account) == str(
        Account(Decimal("1.10"), {"rates": [1.5, 2]}, {"day": Decimal("0.12345678901234567890123")})
    )


def _with_schema(fields: list[dict[str, Any]], row: dict[str, Any]) -> bytes:
    after = {"field": "after", "type": "struct", "fields": fields}
    payload = {"before": None, "after": row, "op": "c"}
    return json.dumps({"schema": {"type": "struct", "fields": [after]}, "payload": payload}).encode()


_PRECISE = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}


def test_precise_decimals_of_a_map_are_read_by_its_schema():
    limits = {"field": "limits", "type": "map", "values": _PRECISE}
    row = {"total": "0", "limits": {"day": "AJY="}}

    assert debezium(Account).deserialize(_with_schema([limits], row)).limits == {"day": Decimal("1.50")}


def test_a_precise_decimal_is_no_text():
    text = {**_PRECISE, "field": "text"}

    with pytest.raises(SerializationError, match="declare a Decimal: the text is base64"):
        debezium(Account).deserialize(_with_schema([text], {"total": "0", "text": "AJY="}))
