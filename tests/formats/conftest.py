"""A registry, and Confluent's client of it."""

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from streams import EmbeddedBroker


@pytest.fixture(scope="session")
def registry():
    with EmbeddedBroker() as broker, broker.serve_registry("127.0.0.1:0") as server:
        yield server.url


@pytest.fixture
def client(registry):
    return SchemaRegistryClient({"url": registry})
