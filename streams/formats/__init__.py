"""Formats with schemas, as types of topics: Avro, Protobuf and JSON Schema, with or without a schema registry.

Each format needs the extra with its name. ``registered`` has the code that they share.
"""

from streams.formats.avro_classes import precision
from streams.formats.avro_format import avro, avro_schema
from streams.formats.debezium_format import debezium
from streams.formats.json_schema_format import json_schema
from streams.formats.protobuf_format import protobuf
from streams.formats.registry_client import RegistryAccess

__all__ = ["RegistryAccess", "avro", "avro_schema", "debezium", "json_schema", "precision", "protobuf"]
