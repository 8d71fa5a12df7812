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

#: What they annotate may be read instead: the number of a time, the bytes of a decimal and the text of a UUID.
_BELOW = {"bytes": "bytes", "int": "long", "long": "long", "string": "string"}


def check_logical_types(writer: Any, reader: Any, where: str = "") -> None:
    """Check that times, decimals, UUIDs, texts and bytes of the reader are the same for the writer.

    Both are parsed schemas. Avro would also read the bytes of a text, and the number of a time as a float. Names of
    types within them are not followed, nor are unions of several types.

    Raises:
        ValueError: the writer has another type; the message names the field.
    """
    writer = _only(writer)
    reader = _only(reader)
    expected = _logical(reader)
    logical_type = _logical(writer)
    written_as, read_as = _BELOW.get(_kind(writer)), _BELOW.get(_kind(reader))
    is_other = (
        logical_type != expected and not (expected == "uuid" and not logical_type)
        if expected
        else logical_type and written_as != read_as
    )
    if is_other or {written_as, read_as} == {"bytes", "string"}:
        shown = f"of logical type {reader['logicalType']!r}" if expected else repr(_kind(reader))
        raise ValueError(
            f"{where.lstrip('.') or 'the value'} is {shown} here, but was written as "
            f"{(logical_type and writer['logicalType']) or _kind(writer)!r}"
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


def _kind(schema: Any) -> Any:
    return schema.get("type") if isinstance(schema, dict) else schema


def _logical(schema: Any) -> str:
    name = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    return _ALIKE.get(name, name)
