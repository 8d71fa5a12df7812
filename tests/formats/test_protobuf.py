"""Protobuf serdes: Confluent's bytes with the indexes of messages, references, and errors."""

import base64
import pickle
import sys
from datetime import datetime

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp

from streams import Topic
from streams.core.errors import ConfigError, SchemaError, SerializationError, TopologyError
from streams.formats import protobuf
from tests.formats.messages import CUSTOMER, ORDER, Customer, First, Line, Order


def order() -> Order:
    return Order(
        id="7",
        cents=1250,
        customer=Customer(name="ann", address={"city": "Bern"}),
        at=Timestamp(seconds=5),
        lines=[Line(sku="a", count=1)],
        counts={"x": 1},
        state="PAID",
        note="n",
    )


@pytest.mark.parametrize(
    ("value", "indexes"), [(order(), b"\x02\x02"), (First(n=5), b"\x00"), (Line(sku="a", count=2), b"\x04\x02\x02")]
)
def test_bytes_are_those_of_confluents_serializer(value, indexes, registry, client):
    name = type(value).__name__
    serde = Topic(f"messages-{name}", value=protobuf(type(value), registry=registry)).value_serde
    context = SerializationContext(f"messages-{name}", MessageField.VALUE)

    data = serde.serialize(value)

    assert data == ProtobufSerializer(type(value), client)(value, context)
    assert data[5 : 5 + len(indexes)] == indexes
    assert ProtobufDeserializer(type(value), client.config() | {"use.deprecated.format": False})(data, context) == value
    assert serde.deserialize(data) == value


def test_imported_files_are_references(registry, client):
    serde = Topic("referring", value=protobuf(Order, registry=registry)).value_serde

    serde.serialize(order())

    found = client.get_latest_version("referring-value", fmt="serialized")
    assert [(it.name, it.subject, it.version) for it in found.schema.references] == [
        ("shop/customer.proto", "shop/customer.proto", 1)
    ]
    assert base64.b64decode(found.schema.schema_str) == Order.DESCRIPTOR.file.serialized_pb
    assert client.get_referenced_by("shop/customer.proto", 1) != []


def test_a_message_of_another_name_is_an_error_of_the_record(registry):
    orders = Topic("mixed", value=protobuf(Order, registry=registry)).value_serde
    firsts = Topic("mixed", value=protobuf(First, registry=registry)).value_serde

    with pytest.raises(SerializationError, match=r"it is a shop\.First, not a shop\.Order"):
        orders.deserialize(firsts.serialize(First(n=1)))
    with pytest.raises(SerializationError, match=r"expected shop\.Order"):
        orders.serialize(First(n=1))


def test_an_incompatible_file_is_refused(registry, client):
    from confluent_kafka.schema_registry import Schema

    text = 'syntax = "proto3"; package shop; message First { int32 n = 1; } message Order { int32 id = 1; }'
    client.register_schema("strict-messages-value", Schema(text, "PROTOBUF"))
    serde = Topic("strict-messages", value=protobuf(Order, registry=registry)).value_serde

    with pytest.raises(SchemaError, match="FIELD_SCALAR_KIND_CHANGED"):
        serde.serialize(order())
    with pytest.raises(SchemaError, match="cannot read what the latest version writes"):
        serde.format.prepare(writes=False)


def test_a_serde_travels(registry):
    serde = Topic("travelling", value=protobuf(Timestamp, registry=registry)).value_serde
    value = Timestamp(seconds=3)

    copy = pickle.loads(pickle.dumps(serde))

    assert copy.deserialize(serde.serialize(value)) == value
    assert copy.serialize(value) == serde.serialize(value)


@pytest.fixture
def described(registry, client):
    """A subject with the files of the messages, as text and without their classes."""
    client.register_schema("described-customers", Schema(CUSTOMER, "PROTOBUF"))
    parts = [SchemaReference("shop/customer.proto", "described-customers", 1)]
    client.register_schema("described-value", Schema(ORDER, "PROTOBUF", parts))
    client.register_schema("described-numbers", Schema('"int"', "AVRO"))
    return "described-value"


def test_a_message_is_read_and_written_by_the_schema_of_the_registry(described, registry, client):
    """Without a generated class: messages, with imported and well-known types; dicts of fields are written, too."""
    serde = Topic("described", value=protobuf("shop.Order", registry=registry, source=described)).value_serde
    other = Topic("copies", value=protobuf("shop.Order", registry=registry, source=(described, 1))).value_serde
    lines = Topic("described", value=protobuf("shop.Order.Line", registry=registry, source=described)).value_serde
    fields = {"id": "7", "cents": 1 << 60, "customer": {"name": "ann"}, "lines": [{"sku": "a"}], "state": "PAID"}

    data = serde.serialize({**fields, "at": datetime(1970, 1, 1, 0, 0, 5), "counts": {"x": 1}})

    message = serde.deserialize(data)
    assert (message.cents, message.customer.name, message.at.seconds, message.counts["x"]) == (1 << 60, "ann", 5, 1)
    assert other.serialize(message) == pickle.loads(pickle.dumps(serde)).serialize(message) == data
    theirs = ProtobufDeserializer(Order, client.config() | {"use.deprecated.format": False})
    assert theirs(data, SerializationContext("described", MessageField.VALUE)).SerializeToString(
        deterministic=True
    ) == message.SerializeToString(deterministic=True)
    assert lines.serialize({"sku": "a"})[5:8] == b"\x04\x02\x02"
    with pytest.raises(SerializationError, match=r"it is a shop\.Order\.Line, not a shop\.Order"):
        serde.deserialize(lines.serialize({"sku": "a"}))
    assert serde.format.from_json(serde.format.to_json(message)) == message
    assert b'"at":"1970-01-01T00:00:05Z"' in serde.format.to_json(message)
    serde.format.prepare(writes=True)
    assert client.get_versions(described) == [1]


@pytest.mark.parametrize(
    "fields", [{"id": 5}, {"nope": 1}, {"cents": 1.5}, {"cents": True}, {"lines": [{"count": 1 << 31}]}]
)
def test_fields_that_a_described_message_has_not_are_an_error_of_the_record(fields, described, registry):
    with pytest.raises(SerializationError, match=r"protobuf:shop\.Order"):
        protobuf("shop.Order", registry=registry, source=described).serialize(fields)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("shop.Ordr", {}, r"no message 'shop.Ordr': the schema has shop.First, shop.Order"),
        ("shop.Order", {"source": "lost"}, "subject 'lost': .*404"),
        ("shop.Order", {"source": ("described-value", 9)}, "subject 'described-value': .*Version 9 not found"),
        ("shop.Order", {"source": "described-numbers"}, "the schema of subject 'described-numbers' is AVRO"),
        ("shop.Order", {"source": None}, "needs registry= and source="),
    ],
)
def test_a_message_that_the_registry_has_not_is_refused_when_it_is_declared(
    name, options, message, described, registry
):
    with pytest.raises(TopologyError, match=message):
        protobuf(name, **{"registry": registry, "source": described, **options})


def test_json_is_that_of_protobuf():
    serde = protobuf(Order)

    text = serde.format.to_json(order())

    assert text.startswith(b'{"id":"7","cents":"1250","customer":{"name":"ann","address":{"city":"Bern"}},"at":"1970-')
    assert serde.format.from_json(text) == order()
    assert serde.deserialize(serde.serialize(order())) == order()


def test_what_is_no_message_is_refused(monkeypatch):
    with pytest.raises(TopologyError, match="no Protobuf message"):
        protobuf(int)
    monkeypatch.setitem(sys.modules, "google.protobuf.message", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[protobuf\]'"):
        protobuf(Order)
