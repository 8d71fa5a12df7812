"""Schemas of a writer and a reader, made to agree on their logical types before fastavro resolves them.

Avro's schema resolution compares the types below the logical ones: a ``long`` would be read as itself where a class has
a ``datetime``.  Pure; imports no other module of the package.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from attrs import field, frozen

#: Logical types that are read as the same type of Python.
_ALIKE = {
    "timestamp-micros": "datetime",
    "timestamp-millis": "datetime",
    "local-timestamp-micros": "datetime",
    "local-timestamp-millis": "datetime",
    "time-micros": "time",
    "time-millis": "time",
}
#: Those whose numbers become a datetime only in a class.
_NANOSECONDS = {"timestamp-nanos": "datetime", "local-timestamp-nanos": "datetime"}
#: What they annotate may be read instead: the number of a time, the bytes of a decimal and the text of a UUID.
_BELOW = {"bytes": "bytes", "int": "long", "long": "long", "string": "string"}


def fitted(writer: Any, reader: Any, named: Mapping[str, Any], *, is_class: bool) -> tuple[Any, Any]:
    """Return copies of two parsed schemas, with the logical types by which the writer's data is read as the reader's.

    What is plain for the reader is so in the copy for the writer: a text that was written as a UUID is read as the
    text. A decimal of bytes may be one of fixed size. ``named`` are the types that the writer's schema refers to, which
    are changed in place.

    Raises:
        ValueError: the reader has a time, decimal or UUID where the writer has none; or a class a text, of bytes.
    """
    written, own = deepcopy(_bare(writer)), deepcopy(_bare(reader))
    _Fit({**named, **_names(written)}, _names(own), is_class).visit(written, own, "")
    return written, own


def _bare(schema: Any) -> Any:
    """Return a schema without the marks of fastavro, which parses it again."""
    if not isinstance(schema, dict):
        return schema
    return {name: part for name, part in schema.items() if not name.startswith("__")}


def _names(schema: Any) -> dict[str, Any]:
    """Return the types with a name in a schema."""
    if isinstance(schema, list):
        return {name: part for branch in schema for name, part in _names(branch).items()}
    if not isinstance(schema, dict):
        return {}
    own = {schema["name"]: schema} if "name" in schema else {}
    inner = [schema.get("type"), schema.get("items"), schema.get("values")]
    inner += [part["type"] for part in schema.get("fields", ())]
    return own | _names(inner)


@frozen
class _Fit:
    """Types are changed in place; those with names are visited once for each type of the other side."""

    writers: Mapping[str, Any]
    readers: Mapping[str, Any]
    is_class: bool
    _seen: set[tuple[int, int]] = field(factory=set)

    def visit(self, writer: Any, reader: Any, where: str) -> None:
        writer, reader = _type(writer, self.writers), _type(reader, self.readers)
        if isinstance(writer, list) or isinstance(reader, list):
            readers = reader if isinstance(reader, list) else [reader]
            for branch in writer if isinstance(writer, list) else [writer]:
                other = self._match(_type(branch, self.writers), readers)
                if other is not None:
                    self.visit(branch, other, where)
            return
        if (id(writer), id(reader)) in self._seen:
            return
        if isinstance(writer, dict) and isinstance(reader, dict):
            self._seen.add((id(writer), id(reader)))
        self._logical(writer, reader, where)
        if not isinstance(writer, dict) or not isinstance(reader, dict):
            return
        parts = {part["name"]: part["type"] for part in writer.get("fields", ())}
        for part in reader.get("fields", ()):
            name = next((name for name in (part["name"], *part.get("aliases", ())) if name in parts), None)
            if name is not None:
                self.visit(parts[name], part["type"], f"{where}.{part['name']}")
        for inner in ("items", "values"):
            if inner in writer and inner in reader:
                self.visit(writer[inner], reader[inner], f"{where}[]")

    def _logical(self, writer: Any, reader: Any, where: str) -> None:
        expected, actual = self._name(reader), self._name(writer)
        below = {_BELOW.get(_kind(writer)), _BELOW.get(_kind(reader))}
        is_other = (
            expected != actual and not (expected == "uuid" and not actual)
            if expected
            else bool(actual) and len(below) > 1 and self.is_class
        )
        if is_other or (self.is_class and below == {"bytes", "string"}):
            shown = f"of logical type {reader['logicalType']!r}" if expected else repr(_kind(reader))
            written = writer.get("logicalType") or writer["type"] if isinstance(writer, dict) else writer
            raise ValueError(f"{where.lstrip('.') or 'the value'} is {shown} here, but was written as {written!r}")
        if not expected and isinstance(writer, dict):
            writer.pop("logicalType", None)
        elif _are_same_decimals(writer, reader):
            # By Avro's rules they match, whatever is below them; fastavro compares that.
            reader.clear()
            reader.update(writer)

    def _name(self, schema: Any) -> str:
        name = schema.get("logicalType", "") if isinstance(schema, dict) else ""
        return (_ALIKE | _NANOSECONDS if self.is_class else _ALIKE).get(name, name)

    def _match(self, writer: Any, readers: list[Any]) -> Any:
        """Return the branch of a reader that a type of the writer is read with, or None if Avro promotes the type."""
        types = [_type(branch, self.readers) for branch in readers]
        for branch in types:
            if _kind(branch) == _kind(writer) or _are_same_decimals(writer, branch):
                return branch
        others = [branch for branch in types if branch != "null"]
        return others[0] if len(others) == 1 and writer != "null" else None


def _are_same_decimals(writer: Any, reader: Any) -> bool:
    if not isinstance(writer, dict) or not isinstance(reader, dict) or writer["type"] == reader["type"]:
        return False
    return all(
        schema.get("logicalType") == "decimal" and schema.get("scale", 0) == writer.get("scale", 0)
        for schema in (writer, reader)
    )


def _type(schema: Any, named: Mapping[str, Any]) -> Any:
    """Return a type in place of its name."""
    return named.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    # Names are compared without their namespaces, as by Avro.
    return schema["name"].rpartition(".")[2] if "name" in schema else schema["type"]
