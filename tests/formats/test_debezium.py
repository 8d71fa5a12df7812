"""Change events of Debezium, as in its documentation: what a table has after each of them."""

import json

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
@pytest.mark.parametrize("wrap", [wrapped, lambda payload: payload], ids=["with schemas", "without"])
def test_json_events_are_a_table(wrap, optimization):
    topic = Topic("server.public.customers", key=debezium(CustomerKey), value=debezium(Customer))
    key = json.dumps(wrap({"id": 1})).encode()
    records = [(key, None if given is None else json.dumps(wrap(given)).encode()) for given, _ in EVENTS]

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


@pytest.mark.parametrize(
    "placeholder",
    ["__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", ["__debezium_unavailable_value"]],
)
def test_a_large_value_that_the_event_lacks_is_an_error_of_the_record(placeholder):
    """The table keeps its row; fields that the class does not read do not matter."""
    serde = Topic("customers", value=debezium(Customer)).value_serde
    without_email = json.dumps(event("u", None, {**ANNE_MARIE, "email": placeholder})).encode()
    without_other = json.dumps(event("u", None, {**ANNE_MARIE, "biography": placeholder})).encode()

    with pytest.raises(SerializationError, match=r"field 'email' has __debezium_unavailable_value: .*REPLICA IDENTITY"):
        serde.deserialize(without_email)
    assert serde.deserialize(without_other) == EVENTS[1][1]
