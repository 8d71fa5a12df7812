"""A schema registry: subjects with versions of schemas, over the HTTP API of Confluent's Schema Registry.

``routes`` has the paths of the API, ``registry`` the operations, ``records`` the records of the topic ``_schemas``,
``compatibility`` the compatibility checks, and ``server`` the HTTP server. The broker provides the log of the topic.
"""

from streams.registry.compatibility import differences, protobuf_file
from streams.registry.records import TOPIC, Record
from streams.registry.schema import AVRO, JSON, PROTOBUF, Reference, Schema
from streams.registry.server import RegistryServer

__all__ = [
    "AVRO",
    "JSON",
    "PROTOBUF",
    "TOPIC",
    "Record",
    "Reference",
    "RegistryServer",
    "Schema",
    "differences",
    "protobuf_file",
]
