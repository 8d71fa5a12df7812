"""Protobuf serdes: Confluent's bytes with the indexes of messages, references, and errors."""

import base64
import pickle
import sys

import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp

from streams import Topic
from streams.core.errors import ConfigError, SchemaError, SerializationError, TopologyError
from streams.formats import protobuf
from tests.formats.messages import Customer, First, Line, Order


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
    with pytest.raises(ConfigError, match=r"pip install 'streams\[protobuf\]'"):
        protobuf(Order)
