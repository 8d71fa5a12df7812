"""Logical types of a writer's schema that a class cannot be read from.

Avro's schema resolution compares the types below the logical ones: a ``long`` would be read as itself where the class
has a ``datetime``.  Pure; imports no other module of the package.
"""

from typing import Any

#: Logical types that are read as the same type of Python.
_ALIKE = {
    "timestamp-micros": "datetime",
    "timestamp-millis": "datetime",
    "local-timestamp-micros": "datetime",
    "local-timestamp-millis": "datetime",
    "time-micros": "time",
    "time-millis": "time",
}


def check_logical_types(writer: Any, reader: Any, where: str = "") -> None:
    """Check that what the reader has as a time, decimal or UUID is one for the writer, in schemas that were parsed.

    Names of types within them are not followed, nor are unions of several types.

    Raises:
        ValueError: the writer has another type; the message names the field.
    """
    writer = _only(writer)
    reader = _only(reader)
    expected = _logical(reader)
    logical_type = _logical(writer)
    if expected and expected != "uuid" and logical_type != expected:
        raise ValueError(
            f"{where.lstrip('.') or 'the value'} is of logical type {reader['logicalType']!r} here, but was written as "
            f"{writer.get('logicalType') or writer.get('type') if isinstance(writer, dict) else writer!r}"
        )
    if not isinstance(writer, dict) or not isinstance(reader, dict):
        return
    written = {part["name"]: part["type"] for part in writer.get("fields", ())}
    for part in reader.get("fields", ()):
        for name in (part["name"], *part.get("aliases", ())):
            if name in written:
                check_logical_types(written[name], part["type"], f"{where}.{part['name']}")
    for inner in ("items", "values"):
        if inner in writer and inner in reader:
            check_logical_types(writer[inner], reader[inner], f"{where}[]")


def without_foreign_logical_types(writer: Any, reader: Any) -> Any:
    """Return a writer's schema without the logical types of what is plain for the reader.

    A text that was written as a UUID is then read as the text, and a time as its number, as the reader declares.
    Names of types within them are not followed, nor are unions of several types of the reader.
    """
    reader = _only(reader)
    if isinstance(reader, list):
        return writer
    if isinstance(writer, list):
        return [without_foreign_logical_types(branch, reader) for branch in writer]
    if not isinstance(writer, dict):
        return writer
    schema = dict(writer)
    if not _logical(reader):
        schema.pop("logicalType", None)
    if isinstance(schema.get("type"), dict | list):
        schema["type"] = without_foreign_logical_types(schema["type"], reader)
    parts = {
        name: part["type"]
        for part in (reader.get("fields", ()) if isinstance(reader, dict) else ())
        for name in (part["name"], *part.get("aliases", ()))
    }
    if "fields" in schema:
        schema["fields"] = [
            {**part, "type": without_foreign_logical_types(part["type"], parts[part["name"]])}
            if part["name"] in parts
            else part
            for part in schema["fields"]
        ]
    for inner in ("items", "values"):
        if inner in schema and isinstance(reader, dict) and inner in reader:
            schema[inner] = without_foreign_logical_types(schema[inner], reader[inner])
    return schema


def _only(schema: Any) -> Any:
    """Return the type of a union with null, or else the schema."""
    others = [branch for branch in schema if branch != "null"] if isinstance(schema, list) else []
    return others[0] if len(others) == 1 else schema


def _logical(schema: Any) -> str:
    name = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    return _ALIKE.get(name, name)
