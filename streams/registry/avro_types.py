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


class _Parser:
    """Resolves the type names of a schema and of the schemas that it references."""

    def __init__(self, named: dict[str, AvroType]) -> None:
        self._named = named

    def type(self, given: Any, namespace: str) -> AvroType:
        """Return the parsed type of a JSON value within a schema."""
        if isinstance(given, list):
            return self._union(given, namespace)
        if isinstance(given, str):
            return self._by_name(given, namespace)
        if not isinstance(given, dict) or "type" not in given:
            raise invalid_schema(f"no type in {given!r}")
        kind = given["type"]
        if isinstance(kind, (dict, list)):
            return self.type(kind, namespace)
        if kind == "array":
            return AvroType(kind, items=self.type(_part(given, "items"), namespace))
        if kind == "map":
            return AvroType(kind, items=self.type(_part(given, "values"), namespace))
        if kind in ("record", "error", "enum", "fixed"):
            return self._declared("record" if kind == "error" else kind, given, namespace)
        return self._by_name(kind, namespace)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        found = self._named.get(_full(name, namespace)) or self._named.get(name)
        if found is None:
            raise invalid_schema(f"{name!r} is no type: a primitive one, or one that is declared before")
        return found

    def _union(self, given: list[Any], namespace: str) -> AvroType:
        branches = tuple(self.type(branch, namespace) for branch in given)
        kinds = [branch.name or branch.kind for branch in branches]
        if "union" in kinds or len(set(kinds)) < len(kinds):
            raise invalid_schema(f"a union of {', '.join(kinds)}: each type may be in it once, and no union")
        return AvroType("union", branches=branches)

    def _declared(self, kind: str, given: Mapping[str, Any], namespace: str) -> AvroType:
        name = given.get("name")
        if not isinstance(name, str) or not all(map(_NAME.fullmatch, name.split("."))):
            raise invalid_schema(f"{name!r} is no name of a type {kind}")
        own = name.rpartition(".")[0] or given.get("namespace", namespace)
        full = _full(name, own)
        if full in self._named:
            raise invalid_schema(f"type {full} is declared twice")
        aliases = tuple(_full(alias, own) for alias in given.get("aliases", ()))
        found = self._named[full] = AvroType(kind, full, aliases)
        if kind == "fixed":
            found.size = _part(given, "size")
        elif kind == "enum":
            found.symbols = tuple(_part(given, "symbols"))
            found.default = given.get("default")
            if found.default is not None and found.default not in found.symbols:
                raise invalid_schema(f"enum {full}: the default {found.default!r} is none of its symbols")
        else:
            found.fields = [self._field(part, own, full) for part in _part(given, "fields")]
            names = [part.name for part in found.fields]
            if len(set(names)) < len(names):
                raise invalid_schema(f"record {full}: a field is declared twice")
        return found

    def _field(self, given: Any, namespace: str, record: str) -> AvroField:
        if not isinstance(given, dict) or not _NAME.fullmatch(str(given.get("name"))):
            raise invalid_schema(f"record {record}: {given!r} is no field")
        kind = self.type(_part(given, "type"), namespace)
        return AvroField(given["name"], kind, "default" in given, tuple(given.get("aliases", ())))


def _part(given: Mapping[str, Any], name: str) -> Any:
    if name not in given:
        raise invalid_schema(f"{given.get('type')} {given.get('name', '')!r} has no {name}")
    return given[name]


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def parse(given: Any, referenced: Iterable[Any] = ()) -> AvroType:
    """Return the type of a schema, given as JSON; ``referenced`` are those that it references, in dependency order.

    Raises:
        RegistryError: the text is not an Avro schema.
    """
    named: dict[str, AvroType] = {}
    for schema in referenced:
        _Parser(named).type(schema, "")
    return _Parser(named).type(given, "")
