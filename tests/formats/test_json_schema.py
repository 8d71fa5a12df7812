"""JSON Schema serdes: schemas of classes, Confluent's bytes, validation, and errors."""

import json
import pickle
import sys
import uuid

import pydantic
import pytest
from attrs import frozen
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from streams import Topic
from streams.core.errors import ConfigError, SchemaError, SerializationError, TopologyError
from streams.formats import json_schema


@frozen
class Line:
    sku: str
    count: int = 1


@frozen
class Order:
    cents: int
    lines: list[Line]
    note: str | None = None
    next: "Order | None" = None


@frozen
class Weight:
    kg: float
    note: str | None = None


class Model(pydantic.BaseModel):
    cents: int
    lines: list[int] = []


SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"cents": {"type": "integer", "minimum": 0}},
    "required": ["cents"],
}


@pytest.mark.parametrize("value", [Line("a", 2), Order(5, [Line("a")], "é", Order(1, [])), Model(cents=5, lines=[1])])
def test_confluents_client_reads_and_writes_it(value, registry, client):
    topic = f"documents-{type(value).__name__}"
    serde = Topic(topic, value=json_schema(type(value), registry=registry)).value_serde
    context = SerializationContext(topic, MessageField.VALUE)

    data = serde.serialize(value)

    schema = client.get_latest_version(f"{topic}-value").schema.schema_str
    document = JSONDeserializer(None, schema_registry_client=client)(data, context)
    assert document == json.loads(data[5:])
    assert JSONSerializer(schema, client)(document, context) == data
    assert serde.deserialize(data) == value
    assert pickle.loads(pickle.dumps(serde)).serialize(value) == data


def test_a_class_may_gain_a_field_with_a_default(registry, client):
    @frozen
    class Wider:
        sku: str
        count: int = 1
        colour: str = "red"

    @frozen
    class Stricter:
        sku: str
        colour: str
        count: int = 1

    def serde(form):
        return Topic("lines", value=json_schema(form, registry=registry, title="Line")).value_serde

    old = serde(Line).serialize(Line("a", 2))

    assert serde(Wider).deserialize(serde(Wider).serialize(Wider("b"))) == Wider("b")
    assert serde(Wider).deserialize(old) == Wider("a", 2)
    with pytest.raises(SchemaError, match="REQUIRED_ATTRIBUTE_ADDED"):
        serde(Stricter).serialize(Stricter("c", "red"))


def test_documents_of_a_schema_are_validated(registry, client):
    for form in (SCHEMA, json.dumps(SCHEMA)):
        serde = Topic("generic-documents", value=json_schema(form, registry=registry)).value_serde
        context = SerializationContext("generic-documents", MessageField.VALUE)

        data = serde.serialize({"cents": 5})

        assert data == JSONSerializer(json.dumps(SCHEMA), client)({"cents": 5}, context)
        assert serde.deserialize(data) == {"cents": 5}
        with pytest.raises(SerializationError, match="-1 is less than the minimum of 0, at cents"):
            serde.serialize({"cents": -1})
        with pytest.raises(SerializationError, match="'cents' is a required property"):
            serde.deserialize(data[:5] + b"{}")


def test_errors_of_records_name_the_place(registry):
    serde = Topic("bad-documents", value=json_schema(Order, registry=registry)).value_serde
    header = serde.serialize(Order(1, []))[:5]

    with pytest.raises(SerializationError, match=r"Expected `int`, got `str` - at `\$\.cents`"):
        serde.deserialize(header + b'{"cents":"x","lines":[]}')
    with pytest.raises(SerializationError, match="expected Order"):
        serde.serialize(Line("a"))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_has_not_are_not_written_as_null(number):
    """Nobody could read the null: the field is a number."""
    for form, value in ((Weight, Weight(number)), ({"type": "object"}, {"kg": number})):
        with pytest.raises(SerializationError, match="JSON has no NaN and no infinity"):
            json_schema(form).serialize(value)


def test_what_is_no_schema_is_refused(monkeypatch):
    with pytest.raises(TopologyError, match="no JSON schema"):
        json_schema(complex)
    with pytest.raises(TopologyError, match="no JSON schema: 'objekt'"):
        json_schema({"type": "objekt"})
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ConfigError, match=r"pip install 'streams\[json-schema\]'"):
        json_schema(SCHEMA)


def test_without_a_registry_the_bytes_are_json():
    serde = json_schema(Line)

    assert serde.deserialize(serde.serialize(Line("a", 2))) == Line("a", 2)
    assert json.loads(serde.serialize(Line("a", 2))) == {"sku": "a", "count": 2}
    assert uuid.UUID(int=1) == json_schema(uuid.UUID).deserialize(json_schema(uuid.UUID).serialize(uuid.UUID(int=1)))
