"""The registry's HTTP API: what Confluent's client does with it, error codes, references, and what is kept."""

import asyncio
import json
import socket
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError

from streams import ConfigError, EmbeddedBroker
from streams.broker.registry import http_server
from streams.core.blocks.records import TopicPartition
from streams.core.http.http_checks import HttpRefusal, whole_body


def record(*fields: tuple[str, object], name: str = "Order", **more: object) -> Schema:
    listed = [{"name": field, "type": kind} for field, kind in fields]
    return Schema(json.dumps({"type": "record", "name": name, "fields": listed, **more}), "AVRO")


ONE, TWO = record(("a", "int")), record(("a", "long"))
BREAKING = record(("a", "int"), ("b", "int"))


@pytest.fixture
def broker():
    with EmbeddedBroker() as made:
        yield made


@pytest.fixture
def url(broker):
    with broker.serve_registry("127.0.0.1:0") as server:
        yield server.url


@pytest.fixture
def client(url):
    return SchemaRegistryClient({"url": url, "max.retries": 0})


def refusal(action):
    with pytest.raises(SchemaRegistryError) as caught:
        action()
    return caught.value.http_status_code, caught.value.error_code


def test_versions_of_a_subject(client):
    assert client.register_schema("orders-value", ONE) == 1
    assert client.register_schema("orders-value", TWO) == 2
    assert client.register_schema("orders-value", ONE) == 1
    assert client.register_schema("other", TWO) == 2

    assert client.get_subjects() == ["orders-value", "other"]
    assert client.get_subjects(subject_prefix="ot") == ["other"]
    assert client.get_subjects(offset=1, limit=1) == ["other"]
    assert client.get_versions("orders-value") == [1, 2]
    assert client.get_latest_version("orders-value").version == 2
    assert client.get_version("orders-value", 1).schema_id == 1
    assert client.lookup_schema("orders-value", ONE).version == 1
    assert json.loads(client.get_schema(2).schema_str) == json.loads(TWO.schema_str)
    assert client.get_schema_by_guid(client.get_version("other", 1).guid) == client.get_schema(2)
    assert client.get_subjects_by_schema_id(2) == ["orders-value", "other"]
    assert [(it.subject, it.version) for it in client.get_schema_versions(2)] == [("orders-value", 2), ("other", 1)]
    assert client.get_schema_types() == ["JSON", "PROTOBUF", "AVRO"]


def test_texts_that_differ_in_space_are_one_schema(client):
    spaced = Schema(json.dumps(json.loads(ONE.schema_str), indent=4), "AVRO")

    assert client.register_schema("s", ONE) == client.register_schema("s", spaced)
    assert client.get_versions("s") == [1]

    turned = Schema(json.dumps(dict(reversed(json.loads(ONE.schema_str).items()))), "AVRO")
    assert client.register_schema("n", ONE, normalize_schemas=True) == client.register_schema(
        "n", turned, normalize_schemas=True
    )


def test_an_incompatible_schema_is_refused_with_the_reason(client):
    client.register_schema("s", ONE)

    with pytest.raises(SchemaRegistryError, match=r"READER_FIELD_MISSING_DEFAULT_VALUE.*field b") as caught:
        client.register_schema("s", BREAKING)

    assert (caught.value.http_status_code, caught.value.error_code) == (409, 409)
    assert client.test_compatibility("s", TWO)
    assert not client.test_compatibility("s", BREAKING)
    assert not client.test_compatibility("s", BREAKING, version=1)
    assert not client.test_compatibility_all_versions("s", BREAKING)
    assert client.test_compatibility("unknown", BREAKING)


def test_levels_are_those_of_the_subject_or_of_all(client):
    client.register_schema("s", ONE)

    assert client.get_compatibility() == "BACKWARD"
    assert refusal(lambda: client.get_compatibility("s")) == (404, 40408)
    client.set_compatibility("s", "NONE")
    assert client.get_compatibility("s") == "NONE"
    assert client.register_schema("s", BREAKING) == 2
    client.set_config(config=ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert client.get_compatibility() == "FULL"
    client.delete_config("s")
    assert refusal(lambda: client.register_schema("s", record(("b", "int")))) == (409, 409)
    assert refusal(lambda: client.set_compatibility("s", "SOMEHOW")) == (422, 42203)


def test_transitive_levels_compare_with_all_versions(client):
    """A third version restores a field as a string: the second has none, the first has an int."""
    optional = {"name": "b", "type": "int", "default": 0}
    first = Schema(json.dumps({"type": "record", "name": "O", "fields": [optional]}), "AVRO")
    second = Schema(json.dumps({"type": "record", "name": "O", "fields": []}), "AVRO")
    third = Schema(
        json.dumps({"type": "record", "name": "O", "fields": [{"name": "b", "type": "string", "default": ""}]}), "AVRO"
    )
    for schema in (first, second):
        client.register_schema("s", schema)

    client.set_compatibility("s", "BACKWARD_TRANSITIVE")
    assert refusal(lambda: client.register_schema("s", third)) == (409, 409)
    client.set_compatibility("s", "BACKWARD")
    assert client.register_schema("s", third) == 3


def test_deletion_is_soft_and_then_for_good(client):
    for schema in (ONE, TWO):
        client.register_schema("s", schema)

    assert refusal(lambda: client.delete_version("s", 1, permanent=True)) == (404, 40407)
    assert client.delete_version("s", 1) == 1
    assert refusal(lambda: client.delete_version("s", 1)) == (404, 40406)
    assert client.get_versions("s") == [2]
    assert client.get_versions("s", deleted=True) == [1, 2]
    assert client.get_versions("s", deleted_only=True) == [1]
    assert client.delete_version("s", 1, permanent=True) == 1
    assert client.get_versions("s", deleted=True) == [2]

    assert refusal(lambda: client.delete_subject("s", permanent=True)) == (404, 40405)
    assert client.delete_subject("s") == [2]
    assert refusal(lambda: client.get_versions("s")) == (404, 40401)
    assert refusal(lambda: client.delete_subject("s")) == (404, 40404)
    assert client.get_subjects(deleted=True) == ["s"]
    assert client.get_schema(2) is not None
    assert client.register_schema("s", TWO) == 2
    assert client.get_versions("s") == [3]
    client.delete_subject("s")
    assert client.delete_subject("s", permanent=True) == [2, 3]
    assert client.get_subjects(deleted=True) == []


def test_a_schema_that_is_referred_to_stays(client):
    client.register_schema("lines", record(("sku", "string"), name="Line"))
    holder = record(("line", "Line"), name="Holder")
    holder.references.append(SchemaReference("Line", "lines", 1))
    holder_id = client.register_schema("holders", holder)

    assert client.get_referenced_by("lines", 1) == [holder_id]
    assert client.get_latest_version("holders").schema.references == holder.references
    assert refusal(lambda: client.delete_subject("lines")) == (422, 42206)
    assert refusal(lambda: client.delete_version("lines", 1)) == (422, 42206)
    missing = record(("line", "Line"), name="Holder")
    missing.references.append(SchemaReference("Line", "nobody", 1))
    assert refusal(lambda: client.register_schema("others", missing)) == (422, 42201)


def test_modes(client):
    client.register_schema("s", ONE)

    assert client.get_global_mode() == "READWRITE"
    assert refusal(lambda: client.get_mode("s")) == (404, 40409)
    client.update_mode("s", "READONLY")
    assert client.get_mode("s") == "READONLY"
    assert refusal(lambda: client.register_schema("s", TWO)) == (422, 42205)
    assert client.delete_mode("s") == "READONLY"
    assert client.register_schema("s", TWO) == 2
    assert refusal(lambda: client.update_mode("s", "IMPORT")) == (422, 42205)
    assert refusal(lambda: client.update_mode("s", "OFF")) == (422, 42204)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (Schema("{", "AVRO"), "Invalid schema"),
        (record(("a", "nothing")), "'nothing' is no type"),
        (record(("a", ["int", "int"])), "a union of int, int"),
        (Schema('{"type": "objekt"}', "JSON"), "'objekt' is no type"),
        (Schema('{"$ref": "#/definitions/x"}', "JSON"), "leads nowhere"),
        (Schema('syntax = "proto3"; message A { B b = 1; }', "PROTOBUF"), "Invalid schema"),
        (Schema("mesage A {}", "PROTOBUF"), "'mesage' is no declaration"),
    ],
)
def test_what_is_no_schema_is_refused(schema, told, client):
    with pytest.raises(SchemaRegistryError, match=told) as caught:
        client.register_schema("s", schema)

    assert (caught.value.http_status_code, caught.value.error_code) == (422, 42201)


def test_what_is_not_there(client):
    client.register_schema("s", ONE)

    assert refusal(lambda: client.get_latest_version("t")) == (404, 40401)
    assert refusal(lambda: client.get_version("s", 9)) == (404, 40402)
    assert refusal(lambda: client.get_version("s", 0)) == (422, 42202)
    assert refusal(lambda: client.get_schema(9)) == (404, 40403)
    assert refusal(lambda: client.lookup_schema("s", TWO)) == (404, 40403)
    assert refusal(lambda: client.lookup_schema("t", TWO)) == (404, 40401)


def test_subjects_with_odd_names(client):
    for subject in ("a/b c", "é-value", ":.ctx:s"):
        client.register_schema(subject, ONE)

    assert client.get_subjects() == sorted(["a/b c", "é-value", ":.ctx:s"])
    assert client.get_versions("a/b c") == [1]


def test_a_protobuf_file_is_given_as_text_or_as_its_descriptor(client):
    text = 'syntax = "proto3"; message A { string b = 1; }'

    schema_id = client.register_schema("s", Schema(text, "PROTOBUF"))

    assert client.get_schema(schema_id).schema_str == text
    descriptor = client.get_schema(schema_id, subject_name="s", fmt="serialized").schema_str
    assert client.test_compatibility("s", Schema(descriptor, "PROTOBUF"))


def test_everything_is_kept_in_the_topic_in_the_registrys_own_format(tmp_path):
    with EmbeddedBroker(tmp_path) as broker, broker.serve_registry("127.0.0.1:0") as server:
        client = SchemaRegistryClient({"url": server.url})
        client.register_schema("s", ONE)
        client.set_compatibility("s", "FULL")
        client.update_mode("s", "READONLY")
    with EmbeddedBroker(tmp_path) as broker, broker.serve_registry("127.0.0.1:0") as server:
        client = SchemaRegistryClient({"url": server.url})

        assert client.get_latest_version("s").schema_id == 1
        assert client.get_compatibility("s") == "FULL"
        assert client.get_mode("s") == "READONLY"
        (block,) = broker.read(TopicPartition("_schemas", 0), 0)[:1]
        assert json.loads(block.keys[0]) == {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
        value = json.loads(block.values[0])
        assert {part: value[part] for part in ("subject", "version", "id", "schema", "deleted")} == {
            "subject": "s", "version": 1, "id": 1, "deleted": False,
            "schema": '{"type":"record","name":"Order","fields":[{"name":"a","type":"int"}]}',
        }  # fmt: skip
        assert broker.describe_topic("_schemas").config["cleanup.policy"] == "compact"


def test_two_servers_of_one_broker_agree(broker):
    with broker.serve_registry("127.0.0.1:0") as one, broker.serve_registry("127.0.0.1:0") as two:
        assert SchemaRegistryClient({"url": one.url}).register_schema("s", ONE) == 1
        assert SchemaRegistryClient({"url": two.url}).register_schema("s", TWO) == 2
        assert SchemaRegistryClient({"url": one.url}).get_versions("s") == [1, 2]


def test_closing_the_broker_closes_its_registries():
    broker = EmbeddedBroker()
    server = broker.serve_registry("127.0.0.1:0")
    broker.close()
    server.close()

    with pytest.raises(OSError):
        urllib.request.urlopen(f"{server.url}/subjects")


def test_a_taken_address_is_refused(broker, url):
    with pytest.raises(ConfigError, match="cannot listen at"):
        broker.serve_registry(url.removeprefix("http://"))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_pages_of_other_sites_are_refused(headers, status, url):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(f"{url}/subjects", headers=headers))

    assert caught.value.code == status
    caught.value.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nothing", None, 404),
        ("PUT", "/subjects", b"{}", 405),
        ("POST", "/subjects/s/versions", b"{", 400),
        ("POST", "/subjects/s/versions", b"[]", 422),
        ("POST", "/subjects/s/versions", b'{"schema": 5}', 422),
        ("POST", "/subjects/s/versions", b'{"schema": "\\"int\\"", "references": 5}', 422),
        (
            "POST",
            "/subjects/s/versions",
            b'{"schema": "{\\"type\\":\\"record\\",\\"name\\":\\"a\\",\\"fields\\":5}"}',
            422,
        ),
        ("GET", "/schemas/ids/x", None, 404),
    ],
)
def test_odd_requests_have_an_answer(method, path, body, status, url):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(url + path, body, method=method))

    with caught.value as answer:
        assert answer.code == status
        assert json.load(answer).keys() == {"error_code", "message"}


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("PROTOBUF", 'syntax = "proto3"; ' + "message A {" * 2_000 + "}" * 2_000),
        ("JSON", '{"not": ' * 5_000 + "{}" + "}" * 5_000),
    ],
)
def test_a_schema_that_is_nested_too_deeply_is_refused(kind, schema, client):
    assert refusal(lambda: client.register_schema("s", Schema(schema, kind))) == (422, 42201)
    assert client.register_schema("s", ONE) == 1


def test_half_requests_take_no_threads_and_end(url, broker, monkeypatch):
    """A body that does not come ends with 408; meanwhile others are answered."""
    monkeypatch.setattr(http_server, "IDLE_S", 0.05)
    parts = urlsplit(url)
    with ExitStack() as stack:
        half = [stack.enter_context(socket.create_connection((parts.hostname, parts.port))) for _ in range(100)]
        threads = threading.active_count()
        for raw in half:
            raw.sendall(b"POST /subjects/s/versions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        assert urllib.request.urlopen(f"{url}/subjects").read() == b"[]"
        assert threading.active_count() == threads
        assert {raw.recv(100)[:12] for raw in half} == {b"HTTP/1.1 408"}


def test_a_body_whose_connection_is_cut_is_no_whole_body() -> None:
    messages = iter(
        [{"type": "http.request", "body": b'{"schema":"1"}', "more_body": True}, {"type": "http.disconnect"}]
    )

    async def receive() -> Any:
        return next(messages)

    with pytest.raises(HttpRefusal, match="closed before the whole body"):
        asyncio.run(whole_body(receive, 100, within_s=60))
