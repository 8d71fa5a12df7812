"""Protobuf schemas: files in Protobuf's language, or their descriptors in base64 (extra ``protobuf``). Pure."""

import base64
import binascii
from collections.abc import Mapping

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from streams.registry.errors import invalid_schema
from streams.registry.protobuf_text import parse

#: Files that every file may import, by name.
_WELL_KNOWN = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (
        any_pb2,
        api_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )
}

#: The name of the file of a schema, which has none of its own.
ROOT = "default.proto"


def file_of(text: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the file of a schema, given in Protobuf's language or as a descriptor in base64.

    Raises:
        RegistryError: the schema is neither.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return parse(text)
    file = descriptor_pb2.FileDescriptorProto()
    try:
        file.ParseFromString(data)
    except DecodeError as error:
        raise invalid_schema(f"it is no descriptor of a file: {error}") from error
    return file


def canonical(text: str) -> str:
    """Return a schema without surrounding whitespace, otherwise unchanged.

    Raises:
        RegistryError: the text is not a Protobuf file.
    """
    file_of(text)
    return text.strip()


def serialized(text: str) -> str:
    """Return the descriptor of a schema's file in base64 (``format=serialized``)."""
    return base64.standard_b64encode(file_of(text).SerializeToString()).decode()


def parsed(text: str, referenced: Mapping[str, str]) -> FileDescriptor:
    """Return the file of a schema with all type names resolved; ``referenced`` are the schemas of its imports, by name.

    Raises:
        RegistryError: an import or a type is missing.
    """
    pool = DescriptorPool()
    try:
        for name, other in referenced.items():
            _add(pool, name, other)
        _add(pool, ROOT, text)
        file: FileDescriptor = pool.FindFileByName(ROOT)
    except (TypeError, KeyError) as error:
        raise invalid_schema(error) from error
    return file


def _add(pool: DescriptorPool, name: str, text: str) -> None:
    file = file_of(text)
    file.name = name
    for imported in file.dependency:
        _add_known(pool, imported)
    pool.AddSerializedFile(file.SerializeToString())


def _add_known(pool: DescriptorPool, name: str) -> None:
    """Add a well-known file, which needs no reference, after the files that it imports."""
    file = _WELL_KNOWN.get(name)
    if file is None:
        return
    for imported in file.dependencies:
        _add_known(pool, imported.name)
    pool.AddSerializedFile(file.serialized_pb)
