"""The columns of a table or of a file that a topic reads, checked before a row is read."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from msgspec import inspect

from streams.core.errors import InputError
from streams.core.topic import Topic
from streams.values.arrow_types import is_opaque, misfits, opaque_column
from streams.values.json_text import json_type
from streams.values.record_columns import RECORD_COLUMNS, are_records, record_misfits


def check_file_columns(topic: Topic[Any, Any], schema: Any, name: str) -> None:
    """Check the columns of a Parquet file by the rules for the columns of a table.

    A file needs no event times, and its rows may be converted to values without fields by a serde.

    Raises:
        InputError: a column is missing, occurs twice or has another type; the message lists all problems with a remedy
            for each.
    """
    problems = list(
        record_misfits(topic, schema) if are_records(topic, schema.names) else _value_misfits(topic, schema)
    )
    if problems:
        raise InputError(f"{name} as input of topic {topic.name!r}: {'; '.join(problems)}")


def _value_misfits(topic: Topic[Any, Any], schema: Any) -> Iterator[str]:
    """Yield a message for each column of values that occurs twice, and if none does, for each that does not fit."""
    kind = json_type(topic.value_serde)
    fields = None if kind is None else getattr(inspect.type_info(kind[0]), "fields", None)
    doubles = list(_doubles(schema.names, None if fields is None else {part.encode_name for part in fields}))
    yield from doubles
    if fields is None:
        for part in schema:
            if is_opaque(part.type):
                yield opaque_column(part.type, part.name, "which is not read")
    elif not doubles:
        yield from misfits(fields, {part.name: part.type for part in schema}, "")


def table_columns(topic: Topic[Any, Any], schema: Any, name: str) -> tuple[str, ...]:
    """Return the columns of a table to read: the columns of records, or the fields of the topic's value type.

    All columns are read if the value type is a dict.  ``schema`` is the Arrow schema of the table, and ``name`` is its
    name in messages.

    Raises:
        InputError: a column is missing, occurs twice or has another type, the topic has no event time, or its values
            have no fields; the message lists all problems with a remedy for each.
    """
    problems: list[str] = []
    if are_records(topic, schema.names):
        problems += record_misfits(topic, schema)
        if problems:
            raise InputError(f"{name} as input of topic {topic.name!r}: {'; '.join(problems)}")
        return tuple(column for column in RECORD_COLUMNS if column in schema.names)
    if topic.timestamp is None:
        problems.append(
            f"its rows have no time, which a replay needs; declare Topic({topic.name!r}, timestamp=lambda value: ...), "
            "or give records, with columns key, value and timestamp"
        )
    kind = json_type(topic.value_serde)
    info = None if kind is None else inspect.type_info(kind[0])
    fields = getattr(info, "fields", None)
    declared = None if fields is None else {part.encode_name for part in fields}
    problems += _value_misfits(topic, schema)
    if fields is None and not isinstance(info, (inspect.DictType, inspect.AnyType)):
        problems.append(
            f"a row has columns, but the values of topic {topic.name!r} have no fields; declare a class with a field "
            "for each column to read, or dict"
        )
    if problems:
        raise InputError(f"{name} as input of topic {topic.name!r}: {'; '.join(problems)}")
    return tuple(column for column in schema.names if declared is None or column in declared)


def _doubles(names: Sequence[str], declared: Collection[str] | None) -> Iterator[str]:
    """Yield a message for each column to read whose name is not unique; case is ignored, as in Spark."""
    for name in sorted(names if declared is None else declared):
        same = sorted(other for other in names if other.lower() == name.lower())
        if name in same and len(same) > 1:
            if len(set(same)) == 1:
                yield f"the table has column {name!r} more than once; select one of them"
            else:
                listed = " and ".join(map(repr, dict.fromkeys(same)))
                yield f"the table has columns {listed}, which differ in case only; select or rename one of them"
            return
