"""Whether documents of one JSON schema are valid for another one, and the differences that break readers. Pure.

A document that is valid for the writer's schema must be valid for the reader's. The rules are those of Confluent's
Schema Registry for drafts 4 to 7, including one exception: a field may be added to an open object only if it
accepts any content, because the writer may have written any content in it.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from attrs import define, field

from streams.registry.errors import invalid_schema

_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
#: Keywords that make no difference between two documents.
_REMARKS = frozenset(
    {"$schema", "$id", "id", "title", "description", "default", "examples", "definitions", "$defs", "$comment"}
)
#: Keywords whose values are documents, or names, and no schemas.
_DATA = frozenset({"enum", "const", "default", "examples", "required"})
_COMBINED = ("anyOf", "oneOf", "allOf")

Json = Mapping[str, Any] | bool


_NOTHING = object()
#: The schema of documents about which nothing is said.
_ANYTHING: Mapping[str, Any] = {}


def _at(value: Any, pointer: str) -> Any:
    """Return the part of a document at a JSON pointer (RFC 6901), or ``_NOTHING``."""
    for step in filter(None, pointer.split("/")):
        key = step.replace("~1", "/").replace("~0", "~")
        value = value.get(key, _NOTHING) if isinstance(value, Mapping) else _NOTHING
    return value


@define
class _Document:
    """A schema, and the schemas that it references by name, for ``$ref``."""

    root: Json
    named: Mapping[str, Json] = field(factory=dict)

    def resolved(self, schema: Json) -> Json:
        for _ in range(32):
            if not isinstance(schema, Mapping) or "$ref" not in schema:
                break
            schema = self._target(str(schema["$ref"]))
        return schema

    def _target(self, ref: str) -> Json:
        name, _, pointer = ref.partition("#")
        target = _at(self.named.get(name, True) if name else self.root, pointer)
        return target if isinstance(target, (Mapping, bool)) else True

    def has(self, pointer: str) -> bool:
        """Return whether the schema has a part at a JSON pointer."""
        return _at(self.root, pointer) is not _NOTHING


def check(schema: Any, referenced: Collection[str]) -> None:
    """Check that a schema is an object or a bool, that its types are known, and that its references exist.

    Raises:
        RegistryError: the schema is invalid.
    """
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise invalid_schema("a JSON schema is an object or a boolean")
    document = _Document(schema)
    pending: list[Any] = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending.extend(part)
        elif isinstance(part, dict):
            kind = part.get("type")
            if isinstance(kind, str) and kind not in _TYPES:
                raise invalid_schema(f"{kind!r} is no type; there are {', '.join(_TYPES)}")
            _check_ref(document, part.get("$ref"), referenced)
            pending.extend(value for name, value in part.items() if name not in _DATA)


def _check_ref(document: _Document, ref: Any, referenced: Collection[str]) -> None:
    if not isinstance(ref, str):
        return
    name, _, pointer = ref.partition("#")
    if (not name and not document.has(pointer)) or (name and not name.startswith("http") and name not in referenced):
        raise invalid_schema(f"$ref {ref!r} leads nowhere: it names no part of the schema, and none of its references")


def unreadable(reader: tuple[Any, Mapping[str, Any]], writer: tuple[Any, Mapping[str, Any]]) -> list[str]:
    """Return the reasons why documents of ``writer`` may be invalid for ``reader``; both include referenced schemas."""
    comparison = _Comparison(_Document(*reader), _Document(*writer))
    return list(comparison.compared(reader[0], writer[0], "#"))


def _problem(kind: str, path: str) -> str:
    return f"{{errorType:'{kind}', path:'{path}'}}"


@define
class _Comparison:
    _reader: _Document
    _writer: _Document
    #: Pairs of parts that fit, or are assumed to while they are compared; in order, so that assumptions can be undone.
    _seen: dict[tuple[int, int], None] = field(factory=dict)
    _unfit: set[tuple[int, int]] = field(factory=set)

    def compared(self, reader: Json, writer: Json, path: str) -> Iterator[str]:
        """Yield the reasons why documents of a part of the writer's schema may be invalid for the reader's."""
        new = self._reader.resolved(reader)
        old = self._writer.resolved(writer)
        pair = (id(new), id(old))
        if pair in self._seen or new is True or old is False or _constraints(new) == {}:
            return
        self._seen[pair] = None
        if new is False:
            yield _problem("SCHEMA_REMOVED", path)
            return
        assert isinstance(new, Mapping)
        held = old if isinstance(old, Mapping) else _ANYTHING
        if any(part in new or part in held for part in _COMBINED):
            yield from self._combined(new, held, path)
            return
        yield from _types(new, held, path)
        yield from _values(new, held, path)
        yield from self._items(new, held, path)
        if "object" in _kinds(held) and (_is_object(new) or _is_object(held)):
            yield from self._properties(new, held, path)

    def _fits(self, reader: Json, writer: Json, path: str) -> bool:
        """Return whether a part fits another one; each pair is compared once, as schemas may share parts."""
        pair = (id(self._reader.resolved(reader)), id(self._writer.resolved(writer)))
        if pair in self._unfit:
            return False
        before = len(self._seen)
        if next(self.compared(reader, writer, path), None) is None:
            return True
        while len(self._seen) > before:
            self._seen.popitem()
        self._unfit.add(pair)
        return False

    def _combined(self, new: Mapping[str, Any], old: Mapping[str, Any], path: str) -> Iterator[str]:
        """Compare combinations: each alternative of the writer must match one of the reader; all of ``allOf`` apply."""
        alternatives = _alternatives(old)
        for requirement in new.get("allOf", ()):
            fits = any(self._fits(requirement, part, path) for part in old.get("allOf", (old,)))
            if not fits:
                yield _problem("PRODUCT_TYPE_EXTENDED", f"{path}/allOf")
        choices = _alternatives(new)
        if choices == [new] and "allOf" in new:
            return
        for number, alternative in enumerate(alternatives):
            if not any(self._fits(choice, alternative, path) for choice in choices):
                yield _problem("SUM_TYPE_NARROWED", f"{path}/{number}")

    def _items(self, new: Mapping[str, Any], old: Mapping[str, Any], path: str) -> Iterator[str]:
        items = new.get("items", True)
        held = old.get("items", True)
        if isinstance(items, list) and isinstance(held, list):
            rest = new.get("additionalItems", True)
            for number, part in enumerate(held):
                place = items[number] if number < len(items) else rest
                yield from self.compared(place, part, f"{path}/items/{number}")
        elif isinstance(items, list) or isinstance(held, list):
            yield _problem("ITEM_TYPE_CHANGED", f"{path}/items")
        else:
            yield from self.compared(items, held, f"{path}/items")

    def _properties(self, new: Mapping[str, Any], old: Mapping[str, Any], path: str) -> Iterator[str]:
        properties = new.get("properties", {})
        held = old.get("properties", {})
        rest = new.get("additionalProperties", True)
        old_rest = old.get("additionalProperties", True)
        for name, part in held.items():
            place = f"{path}/properties/{name}"
            if name in properties:
                yield from self.compared(properties[name], part, place)
            elif self._reader.resolved(rest) is False:
                yield _problem("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", place)
            else:
                yield from self.compared(rest, part, place)
        for name, part in properties.items():
            is_open = self._writer.resolved(old_rest) is not False
            if name not in held and is_open and not self._fits(part, old_rest, path):
                yield _problem("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", f"{path}/properties/{name}")
        if not self._fits(rest, old_rest, path):
            yield _problem("ADDITIONAL_PROPERTIES_REMOVED", f"{path}/additionalProperties")
        for name in new.get("required", ()):
            if name not in old.get("required", ()):
                part = self._reader.resolved(properties.get(name, True))
                if not (isinstance(part, Mapping) and "default" in part):
                    yield _problem("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}")


def _constraints(schema: Json) -> Mapping[str, Any]:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return {name: value for name, value in schema.items() if name not in _REMARKS}


def _alternatives(schema: Mapping[str, Any]) -> list[Json]:
    for name in ("anyOf", "oneOf"):
        if name in schema:
            return list(schema[name])
    return [schema]


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    kind = schema.get("type", _TYPES)
    return {kind} if isinstance(kind, str) else set(kind)


def _is_object(schema: Mapping[str, Any]) -> bool:
    return not schema.keys().isdisjoint({"properties", "required", "additionalProperties"})


def _types(new: Mapping[str, Any], old: Mapping[str, Any], path: str) -> Iterator[str]:
    read = _kinds(new)
    written = _kinds(old)
    if "number" in read:
        read.add("integer")
    if not written <= read:
        yield _problem("TYPE_NARROWED" if read < written else "TYPE_CHANGED", f"{path}/type")


def _values(new: Mapping[str, Any], old: Mapping[str, Any], path: str) -> Iterator[str]:
    """Compare bounds, patterns and enumerations, which may only become wider."""
    for name in (*_LOWER, *_UPPER):
        if name in new:
            bound = new[name]
            held = old.get(name)
            if held is None or (bound > held if name in _LOWER else bound < held):
                change = "ADDED" if held is None else "INCREASED" if name in _LOWER else "DECREASED"
                yield _problem(f"{_words(name)}_{change}", f"{path}/{name}")
    for name in ("pattern", "format", "multipleOf", "const", "not", "uniqueItems"):
        if name in new and new[name] is not False and new[name] != old.get(name):
            yield _problem(f"{_words(name)}_{'CHANGED' if name in old else 'ADDED'}", f"{path}/{name}")
    if "enum" in new:
        allowed = {json.dumps(value, sort_keys=True) for value in new["enum"]}
        written = old.get("enum", [old["const"]] if "const" in old else None)
        if written is None or not {json.dumps(value, sort_keys=True) for value in written} <= allowed:
            yield _problem("ENUM_ARRAY_NARROWED" if written else "ENUM_ARRAY_ADDED", f"{path}/enum")


def _words(name: str) -> str:
    return "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name)
