"""The columns of a table or of a file that a topic reads, checked before a row is read."""

from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from typing import Any

from msgspec import inspect

from streams.core.errors import InputError
from streams.core.nearest import nearest
from streams.core.serdes.serdes import WindowedSerde
from streams.core.topic import Topic
from streams.values.json_text import object_type, row_type
from streams.values.rule import (
    NESTED,
    arrow_family,
    extra_of,
    is_serialized,
    plain_member,
    rule_of,
    type_name,
    unpacked_type,
)

#: The columns of a windowed key in addition to ``key``; alternatively, ``key`` is a struct of key, start and end.
WINDOW_COLUMNS = ("window_start", "window_end")
#: The columns of tables whose rows are records; only value and timestamp are required.
_RECORD_COLUMNS = ("key", *WINDOW_COLUMNS, "value", "timestamp", "headers", "partition")


def are_records(topic: Topic[Any, Any], names: Collection[str]) -> bool:
    """Return whether rows with these columns are records of a topic, as in outputs of a replay, rather than values.

    Rows are records if there are columns ``value`` and ``timestamp``, the topic has no ``timestamp`` of (value), and
    the columns are not the fields of its value type; for a dict or ``Any``, if there are all columns of an output.
    """
    if topic.value_time is not None or not {"value", "timestamp"} <= {*names}:
        return False
    kind = object_type(topic.value_serde)
    info = None if kind is None else inspect.type_info(kind[0])
    fields = getattr(info, "fields", ())
    present = [part for part in fields if part.encode_name in names]
    has_all = bool(present) and all(part in present for part in fields if part.required)
    is_output = {"headers", "partition", "offset"} <= {*names}
    return not has_all and (is_output or not isinstance(plain_member(info), (inspect.DictType, inspect.AnyType)))


def _record_misfits(topic: Topic[Any, Any], schema: Any) -> Iterator[str]:
    """Yield a message for each column of a table of records that occurs twice or has the wrong type."""
    for column in _RECORD_COLUMNS:
        if schema.names.count(column) > 1:
            yield f"the table has column {column!r} more than once; select one of them"
    kinds = {part.name: part.type for part in schema}
    for column, serde in (("key", topic.key_serde), ("value", topic.value_serde)):
        declared = object_type(serde)
        if declared is not None and column in kinds and not is_serialized(kinds[column]):
            yield from _misfit(inspect.type_info(declared[0]), kinds[column], column)
    if isinstance(topic.key_serde, WindowedSerde) and "key" in kinds:
        kind = kinds["key"]
        parts = [part.name for part in kind] if arrow_family(kind) == "struct" else []
        if not ({"key", "start", "end"} <= {*parts} or {*WINDOW_COLUMNS} <= {*kinds} or is_serialized(kind)):
            yield "column 'key' has no window; give a struct of key, start and end, or columns window_start, window_end"
    headers = kinds.get("headers")
    if headers is not None and (arrow_family(headers) != "list" or getattr(headers.value_type, "num_fields", 0) != 2):
        yield f"column 'headers' is {headers}, but has to be a list of structs of a name and a value"
    for column, extra in (
        *((name, "timestamp") for name in ("timestamp", *WINDOW_COLUMNS)),
        ("partition", "null"),
    ):
        kind = kinds.get(column)
        if kind is not None and arrow_family(kind) not in ("integer", extra):
            meant = "an int" if column == "partition" else "a timestamp, or a bigint of epoch milliseconds"
            yield f"column {column!r} is {kind}, but has to be {meant}"


def check_file_columns(topic: Topic[Any, Any], schema: Any, name: str) -> None:
    """Check the columns of a Parquet file by the rules for the columns of a table.

    A file needs no event times, and its rows may be converted to values without fields by a serde.

    Raises:
        InputError: a column is missing, occurs twice or has another type; the message lists all problems with a remedy
            for each.
    """
    _refuse(topic, name, (_record_misfits if are_records(topic, schema.names) else _value_misfits)(topic, schema))


def _refuse(topic: Topic[Any, Any], name: str, problems: Iterable[str]) -> None:
    if listed := "; ".join(problems):
        raise InputError(f"{name} as input of topic {topic.name!r}: {listed}")


def _row_info(topic: Topic[Any, Any]) -> Any:
    kind = row_type(topic.value_serde)
    return None if kind is None else inspect.type_info(kind[0])


def _value_misfits(topic: Topic[Any, Any], schema: Any) -> Iterator[str]:
    """Yield a message for each column of values that occurs twice, and if none does, for each that does not fit."""
    info = _row_info(topic)
    fields = getattr(info, "fields", None)
    doubles = list(_doubles(schema.names, None if fields is None else {part.encode_name for part in fields}))
    yield from doubles
    if fields is None:
        for part in schema:
            if arrow_family(part.type) == "opaque":
                yield _opaque_column(part.type, part.name, "which is not read")
            elif info is not None:
                yield from _misfit(getattr(info, "value_type", info), part.type, part.name)
    elif not doubles:
        yield from _misfits(fields, {part.name: part.type for part in schema}, "")


def table_columns(topic: Topic[Any, Any], schema: Any, name: str) -> tuple[str, ...]:
    """Return the columns of a table to read: the columns of records, or the fields of the topic's value type.

    All columns are read if the value type is a dict.  ``schema`` is the Arrow schema of the table, and ``name`` is its
    name in messages.

    Raises:
        InputError: a column is missing, occurs twice or has another type, the topic has no event time, or its values
            have no fields; the message lists all problems with a remedy for each.
    """
    if are_records(topic, schema.names):
        _refuse(topic, name, _record_misfits(topic, schema))
        return tuple(column for column in _RECORD_COLUMNS if column in schema.names)
    problems: list[str] = []
    if topic.timestamp is None:
        problems.append(
            f"its rows have no time, which a replay needs; declare Topic({topic.name!r}, timestamp=lambda value: ...), "
            "or give records, with columns key, value and timestamp"
        )
    info = _row_info(topic)
    fields = getattr(info, "fields", None)
    declared = None if fields is None else {part.encode_name for part in fields}
    problems += _value_misfits(topic, schema)
    if fields is None and not isinstance(plain_member(info), (inspect.DictType, inspect.AnyType)):
        problems.append(
            f"a row has columns, but the values of topic {topic.name!r} have no fields; declare a class with a field "
            "for each column to read, or dict"
        )
    _refuse(topic, name, problems)
    return tuple(column for column in schema.names if declared is None or column in declared)


def _doubles(names: Sequence[str], declared: Set[str] | None) -> Iterator[str]:
    """Yield a message for each column to read whose name is not unique; case is ignored, as in Spark."""
    for lower in sorted({name.lower() for name in names}):
        same = sorted(name for name in names if name.lower() == lower)
        if len(same) > 1 and (declared is None or not declared.isdisjoint(same)):
            if len(set(same)) == 1:
                yield f"the table has column {same[0]!r} more than once; select one of them"
            else:
                listed = " and ".join(map(repr, dict.fromkeys(same)))
                yield f"the table has columns {listed}, which differ in case only; select or rename one of them"


def check_names(form: Any, names: Sequence[str], place: str) -> None:
    """Check the names of columns of text, which have no types, by the rules for the columns of a table.

    Raises:
        InputError: a name differs in case or spaces only from that of a field of the type ``form``, or of another
            column.
    """
    fields = getattr(inspect.type_info(form), "fields", ())
    problems = list(_doubles(names, {part.encode_name for part in fields}))
    problems += [f"column {name!r} is missing; rename {other!r}" for name, other in _other_case(fields, names).items()]
    if problems:
        raise InputError(f"{place}: {'; '.join(problems)}")


def _other_case(fields: Any, names: Collection[str]) -> dict[str, str]:
    """Return for each field without a column the column whose name differs in case or outer spaces, if there is one."""
    # Spark and Hive ignore case, and Hive does not keep it; people write spaces after the commas of a header.
    declared = {part.encode_name for part in fields}
    others = {name.strip().casefold(): name for name in names if name not in declared}
    return {name: others[name.casefold()] for name in declared - {*names} if name.casefold() in others}


def _misfits(fields: Any, columns: dict[str, Any], prefix: str, root: str = "") -> Iterator[str]:
    """Yield a message for each field whose column is missing or has the wrong type."""
    in_other_case = _other_case(fields, columns)
    for part in fields:
        column = prefix + part.encode_name
        kind = columns.get(part.encode_name)
        same = in_other_case.get(part.encode_name)
        if kind is None:
            if part.required or same is not None:
                near = same or nearest(part.encode_name, columns)
                hint = f"rename {prefix + near!r}" if near else "add it"
                remedy = "" if same else ", or give the field a default"
                column_names = ", ".join(prefix + name for name in list(columns)[:20])
                yield (
                    f"column {column!r} ({type_name(plain_member(part.type))}) is missing; {hint}{remedy}; the table "
                    f"has {column_names}"
                )
        else:
            yield from _misfit(part.type, kind, column, root)


def _misfit(info: Any, kind: Any, column: str, root: str = "") -> Iterator[str]:
    """Yield a message if a column, of Arrow type ``kind``, cannot be read as a declared type.

    A part of a column has the path in place of the name, and the column as ``root``.
    """
    is_declared = extra_of(info).get("is_declared", False)
    kind = unpacked_type(kind)
    family = arrow_family(kind)
    info = plain_member(info)
    rule = rule_of(info) or NESTED.get(type(info))
    at = root or column
    if family == "opaque":
        yield _opaque_column(kind, column, f"but is declared as {type_name(info)}")
    elif family in ("null", "json") or is_declared or isinstance(info, inspect.CustomType):
        return  # Its values are checked, JSON as in a file of JSON.
    elif isinstance(info, inspect.UnionType):
        if all(any(_misfit(member, kind, column)) for member in info.types):
            yield f"column {column!r} is {kind}, but is declared as {' | '.join(map(type_name, info.types))}; cast it"
    elif rule is None or family not in rule.columns:
        cast = None if rule is None else rule.cast(family)
        hint = f"cast it, such as {cast.format(column)} AS {column}" if cast else "change the one or the other"
        if cast and root:  # No cast of SQL changes a part of a column.
            hint = f"make column {root!r} anew with {cast.format('it')} for it, or declare the type that it has"
        if not cast and rule is not None and rule.columns:
            hint = f"give it as {' or '.join(rule.columns)}"
        declared = f"but is declared as {type_name(info)}; "
        if isinstance(info, inspect.AnyType):
            declared = "which JSON has not, and its type is not declared; declare a class with this field, or "
        yield f"column {column!r} is {kind}, {declared}{hint}"
    elif family == "struct" and hasattr(info, "fields"):
        yield from _misfits(info.fields, {part.name: part.type for part in kind}, f"{column}.", at)
    elif family == "struct":
        for part in kind:
            yield from _misfit(getattr(info, "value_type", info), part.type, f"{column}.{part.name}", at)
    elif family == "map":
        yield from _misfit(getattr(info, "key_type", inspect.StrType()), kind.key_type, f"{column} (keys)", at)
        yield from _misfit(getattr(info, "value_type", info), kind.item_type, f"{column}[]", at)
    elif family == "list":
        yield from _misfit(getattr(info, "item_type", info), kind.value_type, f"{column}[]", at)


def _opaque_column(kind: Any, column: str, problem: str) -> str:
    """Return the message for a column of an opaque type; ``problem`` says what does not fit."""
    cast = "to_json({0})" if "variant" in kind.type_name else "string({0})"
    return f"column {column!r} is {kind.type_name}, {problem}; cast it, such as {cast.format(column)} AS {column}"
