"""Schemas of Avro, JSON Schema and Protobuf as a schema registry has them, and their rules of compatibility.

``schema`` has the schemas, ``compatibility`` the checks, and ``errors`` the errors of a registry. ``streams.formats``
uses them with any registry; that of the embedded broker is ``streams.broker.registry``.
"""

from streams.registry.compatibility import LEVELS, check, differences, is_transitive, protobuf_file
from streams.registry.errors import RegistryError, invalid_schema
from streams.registry.schema import AVRO, JSON, PROTOBUF, TYPES, Reference, Schema, page_of

__all__ = [
    "AVRO",
    "JSON",
    "LEVELS",
    "PROTOBUF",
    "TYPES",
    "Reference",
    "RegistryError",
    "Schema",
    "check",
    "differences",
    "invalid_schema",
    "is_transitive",
    "page_of",
    "protobuf_file",
]
