"""Avro schemas as trees of types, with names resolved (Avro 1.12, "Schema Declaration"). Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field

from streams.registry.errors import invalid_schema

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@define(eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: "AvroType"
    has_default: bool
    aliases: tuple[str, ...] = ()


@define(eq=False)
class AvroType:
    """A type; ``name`` is the full name of a record, enum or fixed type. A record may contain itself."""

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: list[AvroField] = field(factory=list)
    symbols: tuple[str, ...] = ()
    #: The symbol that stands for those that a reader does not know.
    default: str | None = None
    #: The type of the items of an array, or of the values of a map.
    items: "AvroType | None" = None
    branches: tuple["AvroType", ...] = ()
    size: int = 0
    #: Precision and scale of a decimal, which is bytes or fixed.
    decimal: tuple[int, int] | None = None


class _Parser:
    """Resolves the type names of a schema and of the schemas that it references."""

    def __init__(self, named: dict[str, AvroType]) -> None:
        self._named = named

    def type(self, schema: Any, namespace: str) -> AvroType:
        """Return the parsed type of a JSON value within a schema."""
        parsed = self._type(schema, namespace)
        if isinstance(schema, dict) and schema.get("logicalType") == "decimal" and parsed.kind in ("bytes", "fixed"):
            parsed.decimal = (schema.get("precision", 0), schema.get("scale", 0))
        return parsed

    def _type(self, schema: Any, namespace: str) -> AvroType:
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        if not isinstance(schema, dict) or "type" not in schema:
            raise invalid_schema(f"no type in {schema!r}")
        kind = schema["type"]
        if isinstance(kind, (dict, list)):
            return self.type(kind, namespace)
        if kind == "array":
            return AvroType(kind, items=self.type(_part(schema, "items"), namespace))
        if kind == "map":
            return AvroType(kind, items=self.type(_part(schema, "values"), namespace))
        if kind in ("record", "error", "enum", "fixed"):
            return self._declared("record" if kind == "error" else kind, schema, namespace)
        return self._by_name(kind, namespace)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        named = self._named.get(_full(name, namespace)) or self._named.get(name)
        if named is None:
            raise invalid_schema(f"{name!r} is no type: a primitive one, or one that is declared before")
        return named

    def _union(self, schemas: list[Any], namespace: str) -> AvroType:
        branches = tuple(self.type(branch, namespace) for branch in schemas)
        kinds = [branch.name or branch.kind for branch in branches]
        if "union" in kinds or len(set(kinds)) < len(kinds):
            raise invalid_schema(f"a union of {', '.join(kinds)}: each type may be in it once, and no union")
        return AvroType("union", branches=branches)

    def _declared(self, kind: str, schema: Mapping[str, Any], namespace: str) -> AvroType:
        name = schema.get("name")
        if not isinstance(name, str) or not all(map(_NAME.fullmatch, name.split("."))):
            raise invalid_schema(f"{name!r} is no name of a type {kind}")
        own = name.rpartition(".")[0] or schema.get("namespace", namespace)
        full = _full(name, own)
        if full in self._named:
            raise invalid_schema(f"type {full} is declared twice")
        aliases = tuple(_full(alias, own) for alias in schema.get("aliases", ()))
        declared = self._named[full] = AvroType(kind, full, aliases)
        if kind == "fixed":
            declared.size = _part(schema, "size")
        elif kind == "enum":
            declared.symbols = tuple(_part(schema, "symbols"))
            declared.default = schema.get("default")
            if declared.default is not None and declared.default not in declared.symbols:
                raise invalid_schema(f"enum {full}: the default {declared.default!r} is none of its symbols")
        else:
            declared.fields = [self._field(part, own, full) for part in _part(schema, "fields")]
            names = [part.name for part in declared.fields]
            if len(set(names)) < len(names):
                raise invalid_schema(f"record {full}: a field is declared twice")
        return declared

    def _field(self, schema: Any, namespace: str, record: str) -> AvroField:
        if not isinstance(schema, dict) or not _NAME.fullmatch(str(schema.get("name"))):
            raise invalid_schema(f"record {record}: {schema!r} is no field")
        kind = self.type(_part(schema, "type"), namespace)
        return AvroField(schema["name"], kind, "default" in schema, tuple(schema.get("aliases", ())))


def _part(schema: Mapping[str, Any], name: str) -> Any:
    if name not in schema:
        raise invalid_schema(f"{schema.get('type')} {schema.get('name', '')!r} has no {name}")
    return schema[name]


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def parse(document: Any, referenced: Iterable[Any] = ()) -> AvroType:
    """Return the type of a schema, given as JSON; ``referenced`` are those that it references, in dependency order.

    Raises:
        RegistryError: the text is not an Avro schema.
    """
    named: dict[str, AvroType] = {}
    for schema in referenced:
        _Parser(named).type(schema, "")
    return _Parser(named).type(document, "")
