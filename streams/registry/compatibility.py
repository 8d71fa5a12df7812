"""Compatibility of schemas: whether readers of one version understand records of another one. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from streams.registry import avro_rules, avro_types, json_rules
from streams.registry.schema import AVRO, JSON, Schema, parsed_json

#: BACKWARD: consumers of the new schema read earlier records; FORWARD: earlier consumers read new ones; FULL: both.
LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)

#: A schema, and those that it refers to by name, the deepest first.
Whole = tuple[Schema, Mapping[str, Schema]]


def is_transitive(level: str) -> bool:
    """Return whether a compatibility level compares with all earlier versions instead of only the latest."""
    return level.endswith("_TRANSITIVE")


def differences(level: str, new: Whole, old: Whole) -> list[str]:
    """Return why two schemas are incompatible at a level; [] if they are compatible."""
    if level == "NONE":
        return []
    if new[0].kind != old[0].kind:
        return [f"the schema type has changed from {old[0].kind} to {new[0].kind}"]
    problems: list[str] = []
    if level.startswith(("BACKWARD", "FULL")):
        problems += _unreadable(new, old)
    if level.startswith(("FORWARD", "FULL")):
        problems += _unreadable(old, new)
    return problems


def _unreadable(reader: Whole, writer: Whole) -> list[str]:
    kind = reader[0].kind
    if kind == AVRO:
        return avro_rules.unreadable(_avro(reader), _avro(writer))
    if kind == JSON:
        return json_rules.unreadable(_json(reader), _json(writer))
    # Only here, so that the registry needs the extra ``protobuf`` for such schemas alone.
    from streams.registry import protobuf_rules

    return protobuf_rules.unreadable(protobuf_file(*reader), protobuf_file(*writer))


def protobuf_file(schema: Schema, referenced: Mapping[str, Schema]) -> Any:
    """Return the file of a Protobuf schema as the library's ``FileDescriptor``.

    Raises:
        RegistryError: the text is not a Protobuf file, or an import or a type is missing.
    """
    from streams.registry import protobuf_files

    return protobuf_files.parsed(schema.text, {name: other.text for name, other in referenced.items()})


def _avro(whole: Whole) -> avro_types.AvroType:
    schema, referenced = whole
    return avro_types.parse(
        parsed_json(schema.text, AVRO), [parsed_json(other.text, AVRO) for other in referenced.values()]
    )


def _json(whole: Whole) -> tuple[Any, dict[str, Any]]:
    schema, referenced = whole
    return parsed_json(schema.text), {name: parsed_json(other.text) for name, other in referenced.items()}


def check(schema: Schema, referenced: Mapping[str, Schema]) -> None:
    """Check that a schema is valid for its type, and that its references exist.

    Raises:
        RegistryError: the schema is invalid, or a reference is missing.
    """
    if schema.kind == AVRO:
        _avro((schema, referenced))
    elif schema.kind == JSON:
        json_rules.check(parsed_json(schema.text), set(referenced))
    else:
        protobuf_file(schema, referenced)
