"""The types of other subjects that an Avro schema names, read from a registry when the type is declared."""

import json
from collections.abc import Mapping
from typing import Any

from streams.core.errors import TopologyError
from streams.formats.registry_client import References, RegistryAccess, referred
from streams.registry import AVRO, Reference


def whole_schema(
    schema: Any, access: RegistryAccess | None, references: References
) -> tuple[tuple[Reference, ...], Any]:
    """Return the references of a schema, and the schema with the definitions of the types that it names.

    Raises:
        TopologyError: it is no Avro schema, or names what is not there.
        SchemaError: the registry does not respond.
    """
    from fastavro.schema import UnknownType, parse_schema

    direct: dict[str, Reference] = {}
    named: dict[str, Any] = {}
    while True:
        others = dict(named)
        try:
            parsed = parse_schema(schema, others)
        except UnknownType as error:
            if not isinstance(name := error.name, str):
                raise _refused(schema, error) from error
            direct[name], more = referred("type", name, AVRO, access, references)
            for other in more.values():
                parsed_schema(json.loads(other.text), named)
            if name not in named:
                raise TopologyError(f"subject {direct[name].subject!r} has no type {name!r}") from None
        except _errors() as error:
            raise _refused(schema, error) from error
        else:
            return tuple(direct.values()), _defined(parsed, others, set()) if direct else schema


def parsed_schema(schema: Any, named: dict[str, Any]) -> Any:
    """Return a schema as fastavro reads it, and add its types to ``named``.

    Raises:
        TopologyError: it is no Avro schema.
    """
    from fastavro.schema import parse_schema

    try:
        return parse_schema(schema, named)
    except _errors() as error:
        raise _refused(schema, error) from error


def _errors() -> tuple[type[Exception], ...]:
    from fastavro.schema import SchemaParseException, UnknownType

    return (SchemaParseException, UnknownType, KeyError, TypeError, AttributeError)


def _refused(schema: Any, error: Exception) -> TopologyError:
    return TopologyError(f"{json.dumps(schema)[:200]} is no Avro schema: {error}")


def _defined(part: Any, named: Mapping[str, Any], seen: set[str]) -> Any:
    """Return a parsed schema with each named type defined where it is named first, as Avro has it."""
    if isinstance(part, list):
        return [_defined(member, named, seen) for member in part]
    if isinstance(part, str):
        return _defined(named[part], named, seen) if part in named and part not in seen else part
    if part.get("name") in named:
        if part["name"] in seen:
            return part["name"]
        seen.add(part["name"])
    part = {key: value for key, value in part.items() if not key.startswith("__")}
    if "fields" in part:
        part["fields"] = [{**field, "type": _defined(field["type"], named, seen)} for field in part["fields"]]
    return {**part, **{key: _defined(part[key], named, seen) for key in ("items", "values") if key in part}}
