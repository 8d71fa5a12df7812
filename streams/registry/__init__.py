"""A schema registry: subjects with versions of schemas, over the HTTP API of Confluent's Schema Registry.

``routes`` has the paths, ``registry`` what they do, ``records`` the topic ``_schemas`` in which everything is kept,
``compatibility`` the rules by which a schema may follow another one, and ``server`` the HTTP server. The broker gives
the log.
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
