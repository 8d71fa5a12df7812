"""JSON Schema serdes: schemas of classes, Confluent's bytes, validation, and errors."""

import json
import pickle
import sys
import uuid
from decimal import Decimal

import pydantic
import pytest
from attrs import frozen
from confluent_kafka.schema_registry import Schema, SchemaReference
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


ADDRESS = {"type": "object", "properties": {"street": {"type": "string"}, "old": {"$ref": "#"}}, "required": ["street"]}
CUSTOMER = {"properties": {"address": {"$ref": "address.json"}, "boss": {"$ref": "#"}}}
SHIPMENT = {
    "title": "Shipment",
    "properties": {
        "customer": {"$ref": "customer.json"},
        "street": {"$ref": "address.json#/properties/street"},
        "next": {"$ref": "#"},
        "like": {"$ref": "http://json-schema.org/draft-07/schema#"},
    },
}


@pytest.fixture
def subjects(client):
    client.register_schema("addresses", Schema(json.dumps(ADDRESS), "JSON"))
    client.register_schema("addresses", Schema(json.dumps({**ADDRESS, "required": []}), "JSON"))
    parts = [SchemaReference("address.json", "addresses", 1)]
    client.register_schema("customer.json", Schema(json.dumps(CUSTOMER), "JSON", parts))


@pytest.mark.parametrize("base", [{}, {"$id": "http://shop.example/schemas/shipment.json"}], ids=["plain", "$id"])
def test_references_to_other_subjects_are_followed(base, subjects, registry, client):
    form = json_schema({**base, **SHIPMENT}, registry=registry, references={"address.json": ("addresses", 1)})
    serde = Topic(f"shipments{len(base)}", value=form).value_serde
    street = {"street": "Main"}
    value = {"customer": {"address": {**street, "old": street}}, "street": "Main", "like": {"type": "object"}}

    data = serde.serialize(value)

    assert serde.deserialize(data) == pickle.loads(pickle.dumps(serde)).deserialize(data) == value
    linked = client.get_latest_version(f"shipments{len(base)}-value").schema.references
    assert {(it.name, it.subject, it.version) for it in linked} == {
        ("customer.json", "customer.json", 1),
        ("address.json", "addresses", 1),
    }
    if not base:  # Theirs takes no $id as the base of the names.
        theirs = JSONDeserializer(None, schema_registry_client=client)
        assert theirs(data, SerializationContext("shipments0", MessageField.VALUE)) == value
    serde.format.prepare(writes=False)
    for bad, place in (
        ({"customer": {"address": {"street": 1}}}, "1 is not of type 'string', at customer/address/street"),
        ({"next": {"customer": {"boss": {"address": {}}}}}, "'street' is a required property, at next/customer/boss"),
        ({"street": None}, "None is not of type 'string', at street"),
    ):
        with pytest.raises(SerializationError, match=place):
            serde.serialize(bad)
        with pytest.raises(SerializationError, match=place):
            serde.deserialize(data[:5] + json.dumps(bad).encode())


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ({"$ref": "lost.json"}, {}, r"\$ref 'lost.json', subject 'lost.json': .*404: Subject 'lost.json' not found"),
        (
            SHIPMENT,
            {"references": {"address.json": ("addresses", 7)}},
            "subject 'addresses': .*404: Version 7 not found",
        ),
        ({"$ref": "customer.json#/nope"}, {}, r"\$ref 'customer.json#/nope' names no part of its schema"),
        ({"$ref": "#/nope"}, {}, r"\$ref '#/nope' names no part of its schema"),
        (
            {"$ref": "customer.json"},
            {"registry": None},
            r"\$ref 'customer.json' names another schema: give the registry=",
        ),
    ],
    ids=["subject", "version", "part", "own part", "no registry"],
)
def test_a_reference_that_leads_nowhere_is_refused_when_it_is_declared(schema, options, message, subjects, registry):
    with pytest.raises(TopologyError, match=message):
        json_schema(schema, **{"registry": registry, **options})


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
    with pytest.raises(ConfigError, match=r"pip install .*\[json-schema\]'"):
        json_schema(SCHEMA)


def test_without_a_registry_the_bytes_are_json():
    serde = json_schema(Line)

    assert serde.deserialize(serde.serialize(Line("a", 2))) == Line("a", 2)
    assert json.loads(serde.serialize(Line("a", 2))) == {"sku": "a", "count": 2}
    assert uuid.UUID(int=1) == json_schema(uuid.UUID).deserialize(json_schema(uuid.UUID).serialize(uuid.UUID(int=1)))


@pytest.mark.parametrize("number", ["NaN", "sNaN", "Infinity"])
def test_a_decimal_that_json_has_not_is_not_written(number):
    """It would be a text that no reader takes."""
    serde = json_schema(dict[str, list[Decimal]])

    with pytest.raises(SerializationError, match="expected a decimal"):
        serde.serialize({"prices": [Decimal(number)]})
    assert serde.deserialize(serde.serialize({"prices": [Decimal("1.50")]})) == {"prices": [Decimal("1.50")]}
