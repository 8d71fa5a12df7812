"""Conversion of rows of Arrow data to values of a topic, column by column, and the check of a table's columns.

Only columns that the topic's type declares are converted.  A batch of values is serialized column by column
(``json_columns``); keys and event times that are columns are read from these columns.  If this is not possible for a
batch, or a row may be bad, the batch is converted row by row, with the same result.
Of the other packages, this module imports only ``core``.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from types import FunctionType
from typing import Any, overload

from attrs import define, evolve, field, frozen
from msgspec import inspect

from streams.core.errors import InputError
from streams.core.nearest import nearest
from streams.core.serdes.cells import whole_or_same
from streams.core.serdes.serdes import INT32, LONG, STRING, Serde, WindowedSerde
from streams.core.topic import Topic
from streams.files.field_access import guarded_path_read, path_read
from streams.files.forms import BAD_INPUT, Form, declared_type, json_type
from streams.files.json_columns import (
    NotColumnarError,
    StructWriter,
    is_optional,
    joined_fields,
    plain_member,
    spread,
    struct_writer,
)
from streams.files.stand_ins import names_read, stand_in_decoder

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NAIVE = _EPOCH.replace(tzinfo=None)

#: A row as a dict by column name, with times in UTC.
Row = dict[str, Any]


@frozen
class ArrowRows(Sequence[Row]):
    """The rows of an Arrow record batch, which become dicts only if they are read one by one."""

    batch: Any

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> "ArrowRows": ...
    def __getitem__(self, index: int | slice) -> "Row | ArrowRows":
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return ArrowRows(self.batch.slice(start, max(0, stop - start)))
        return next(iter(ArrowRows(self.batch.slice(index, 1))))

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def __iter__(self) -> Iterator[Row]:
        try:
            batch = plain_batch(self.batch)
        except ValueError:
            batch = self.batch
        try:
            return iter(batch.to_pylist(maps_as_pydicts="strict"))
        except OverflowError:  # A time after the year 9999, which Python cannot represent.
            return iter(_times_as_text(batch).to_pylist(maps_as_pydicts="strict"))
        except KeyError:  # A map with a key that occurs twice, which no dict can represent.
            return iter(batch.to_pylist())


def python_objects(array: Any) -> list[Any]:
    """Return an Arrow array or batch as Python objects, with maps as dicts.

    Raises:
        ValueError: a map has a key twice.
    """
    try:
        objects: list[Any] = array.to_pylist(maps_as_pydicts="strict")
    except KeyError as error:
        key = str(error).rpartition("duplicate key was ")[2].rstrip(')."')
        raise ValueError(f"a map has the key {key} more than once") from None
    return objects


def plain_batch(batch: Any) -> Any:
    """Convert columns to their plain types, with times in microseconds, as in Python, and UTC; return the batch.

    Nanoseconds are cut off.

    Raises:
        ValueError: a time is beyond the range of microseconds.
    """
    import pyarrow as pa

    for index, part in enumerate(batch.schema):
        kind = plain_type(part.type)
        if kind == part.type:
            continue
        column = batch.column(index)
        try:
            # Seconds and milliseconds may be out of range, which an unsafe cast wraps around.
            column = column.cast(plain_type(part.type, with_nanoseconds=True))
        except pa.ArrowInvalid as error:
            raise ValueError(f"column {part.name!r}: {error}; a time is from the year 1 to 9999") from None
        batch = batch.set_column(index, part.name, column.cast(kind, safe=False))
    return batch


def _times_as_text(batch: Any) -> Any:
    """Replace each column that has a time after the year 9999 by text, and return the batch."""
    import pyarrow as pa

    for index, name in enumerate(batch.schema.names):
        try:
            batch.column(index).to_pylist()
        except OverflowError:
            column = batch.column(index)
            is_time = pa.types.is_timestamp(column.type)
            texts = column.cast(pa.string()) if is_time else pa.array(["has a time after the year 9999"] * len(column))
            batch = batch.set_column(index, name, texts)
    return batch


def plain_type(kind: Any, *, with_nanoseconds: bool = False) -> Any:
    """Return the type that values are converted to before they are read, without dictionaries, views and large lists.

    Arrow lacks functions for some of the others, and cannot cut their arrays.  Times are in microseconds, or in
    nanoseconds if they are so and ``with_nanoseconds`` is True.
    """
    import pyarrow as pa

    is_a = pa.types
    inner = partial(plain_type, with_nanoseconds=with_nanoseconds)
    if is_a.is_timestamp(kind):
        unit = "ns" if with_nanoseconds and kind.unit == "ns" else "us"
        return pa.timestamp(unit, "UTC" if kind.tz else None)
    if is_a.is_dictionary(kind):
        return inner(kind.value_type)
    if is_a.is_struct(kind):
        return pa.struct([part.with_type(inner(part.type)) for part in kind])
    if _is_list(kind):
        return pa.list_(kind.value_field.with_type(inner(kind.value_type)))
    if is_a.is_map(kind):
        return pa.map_(inner(kind.key_type), inner(kind.item_type))
    others = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.date64(): pa.date32()}
    return others.get(kind, kind)


@frozen
class Values:
    """Serialized values, as a list, or as an Arrow array together with its ``fields``."""

    data: Any
    fields: "Fields | None" = None


@define
class ValueReader:
    """Converts rows of Arrow data to the values of a topic, in batches."""

    form: Form
    #: The description of the value type by msgspec if the type has fields, otherwise None.
    _info: Any = field(init=False, default=None)
    #: Serializes batches column by column; None if values can only be converted row by row.
    _writer: StructWriter | None = field(init=False, default=None)
    #: Decoders of objects that have only some fields of the type, by the names of these fields.
    _decoders: dict[frozenset[str], Callable[[Any], Any]] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        kind = None if self.form.serde is None else json_type(self.form.serde)
        info = None if kind is None else inspect.type_info(kind[0])
        if getattr(info, "fields", None) and not getattr(info, "array_like", False):
            self._info = info
            if isinstance(info, (inspect.StructType, inspect.DataclassType)):
                self._writer = struct_writer(info)

    @property
    def declared(self) -> frozenset[str] | None:
        """The names of the columns to read, or None for all columns."""
        return None if self._info is None else frozenset(part.encode_name for part in self._info.fields)

    def read(self, rows: ArrowRows) -> Values:
        """Convert rows; raise one of the exceptions in ``BAD_INPUT`` if a row is bad."""
        import pyarrow as pa

        batch = plain_batch(rows.batch)
        if self._info is None:
            return Values(list(map(self.form.from_object, python_objects(batch))))
        columns = {name: batch.column(name) for name in batch.schema.names}
        # One row is converted by itself, so that an error names the place in the row.
        if self._writer is not None and len(rows) > 1:
            try:
                texts = self._writer.texts(columns, len(rows))
                data = joined_fields(texts, len(rows)).cast(pa.binary())
                return Values(data, Fields(self._info, columns, texts, data, self.form, self._decoders))
            except (NotColumnarError, pa.ArrowException, *BAD_INPUT):
                pass  # One of the rows may be bad.
        return Values(list(map(self.form.from_object, _dicts(len(rows), columns, self._info))))


@frozen
class Fields:
    """The columns of a batch of values, from which keys and event times can be computed without the values."""

    info: Any
    columns: dict[str, Any]
    #: JSON of each column.
    texts: dict[str, Any]
    data: Any
    form: Form
    decoders: dict[frozenset[str], Callable[[Any], Any]]

    def times(self, function: Any) -> list[int] | None:
        """Return the event times in epoch milliseconds if ``function`` returns a time column, otherwise None."""
        import numpy as np
        import pyarrow as pa

        array, info = self._column(path_read(function))
        if array is None or array.null_count:
            return None
        info = plain_member(info)
        if isinstance(info, inspect.IntType) and pa.types.is_signed_integer(array.type):
            numbers: list[int] = array.to_pylist()
            return numbers
        if isinstance(info, inspect.DateTimeType) and pa.types.is_timestamp(array.type):
            times_ms: list[int] = np.floor_divide(array.cast(pa.int64()).to_numpy(), 1000).tolist()
            return times_ms
        return None

    def keys(self, function: Any, serde: Serde[Any]) -> Any:
        """Return the serialized keys if ``function`` returns a column whose type matches the serde, otherwise None."""
        import pyarrow as pa

        array, info = self._key_column(function)
        if array is None:
            return None
        kind = type(plain_member(info))
        if kind is inspect.StrType and serde is STRING and pa.types.is_string(array.type):
            return array.cast(pa.binary())
        if kind is inspect.IntType and serde in (LONG, INT32) and pa.types.is_integer(array.type):
            return serde.serialize_all(array.to_pylist())
        return None

    def objects(self, function: Any) -> list[Any]:
        """Return an object for each value, with at least the fields that ``function`` reads."""
        names = names_read(self.info, [function])
        if names is None:
            return self.form.check(self.data.to_pylist())
        decode = self.decoders.get(names)
        if decode is None:
            decode = stand_in_decoder(self.info, names, reads_rest=False)
            if decode is None:
                return self.form.check(self.data.to_pylist())
            self.decoders[names] = decode
        texts = {part.encode_name: self.texts[part.encode_name] for part in self.info.fields if part.name in names}
        return list(map(decode, joined_fields(texts, len(self.data)).to_pylist()))

    def _key_column(self, function: Any) -> tuple[Any, Any]:
        """Return the column and type of the field that ``function`` returns, with nulls only where it returns None."""
        import pyarrow as pa

        guarded = guarded_path_read(function)
        if guarded is None:
            array, info = self._column(path_read(function))
            is_null = array is not None and array.null_count and not is_optional(info)
            return (None, None) if is_null else (array, info)
        outer, info = self._column(guarded[:1])
        if outer is None or not pa.types.is_struct(outer.type) or not is_optional(info):
            return None, None
        present = evolve(self, columns={**self.columns, guarded[0]: outer.drop_null()})
        array, info = present._column(guarded)
        if array is None or array.null_count:
            return None, None
        return spread(array, outer), info

    def _column(self, path: tuple[str, ...] | None) -> tuple[Any, Any]:
        """Return the column and type of the field at a path, or (None, None)."""
        import pyarrow as pa

        info = self.info
        columns = self.columns
        array = None
        for name in path or ():
            part = next((part for part in getattr(info, "fields", ()) if part.name == name), None)
            if part is None or (array is not None and array.null_count) or _has_own_access(info.cls):
                return None, None
            if array is not None:
                columns = {kind.name: array.field(index) for index, kind in enumerate(array.type)}
            array = columns.get(part.encode_name)
            kind = part.type
            if array is None:
                return None, None
            info = plain_member(kind) if pa.types.is_struct(array.type) else kind
        return (None, None) if array is None else (array, kind)


def _has_own_access(cls: Any) -> bool:
    """Return whether a class overrides ``__getattribute__``, so that an attribute may differ from the field."""
    return isinstance(cls.__getattribute__, FunctionType)


def _dicts(size: int, columns: dict[str, Any], info: Any) -> list[Row]:
    """Return rows as dicts of declared columns; a null is left out if the field has a default and is not optional."""
    parts = {part.encode_name: part for part in info.fields if part.encode_name in columns}
    names = tuple(parts)
    converted = [_column(columns[name], plain_member(part.type)) for name, part in parts.items()]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*converted, strict=True)] if names else [{}] * size
    for name, part in parts.items():
        if columns[name].null_count and not part.required and not is_optional(part.type):
            rows = [row if row[name] is not None else _without(row, name) for row in rows]
    return rows


def _without(row: Row, name: str) -> Row:
    return {other: value for other, value in row.items() if other != name}


def _column(array: Any, info: Any) -> list[Any]:
    """Return a column as Python objects."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_timestamp(kind):
        return _times(array)
    if pa.types.is_struct(kind) and getattr(info, "fields", None):
        columns = {part.name: array.field(index) for index, part in enumerate(kind)}
        rows: list[Any] = _dicts(len(array), columns, info)
        if not array.null_count:
            return rows
        return [row if is_valid else None for row, is_valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    item = getattr(info, "item_type", None)
    if pa.types.is_list(kind) and item is not None:
        items = iter(_column(array.flatten(), plain_member(item)))
        return [
            None if size is None else [next(items) for _ in range(size)] for size in array.value_lengths().to_pylist()
        ]
    values = python_objects(array)
    if pa.types.is_decimal(kind) and isinstance(info, inspect.IntType):
        return [None if value is None else whole_or_same(value) for value in values]
    return values


def _times(array: Any) -> list[Any]:
    """Return a column of times in microseconds as datetimes."""
    import pyarrow as pa

    whole = array.cast(pa.int64())
    if whole.null_count:
        whole = whole.fill_null(0)
    objects: list[Any] = whole.to_numpy(zero_copy_only=False).astype("timedelta64[us]").astype(object).tolist()
    objects = list(map((_EPOCH_NAIVE if array.type.tz is None else _EPOCH).__add__, objects))
    if array.null_count:
        valid = array.is_valid().to_pylist()
        return [value if is_valid else None for value, is_valid in zip(objects, valid, strict=True)]
    return objects


# --- the columns of a table -----------------------------------------------------------------

#: The SQL cast that a message proposes, by declared type; ``{0}`` is the column.
_CASTS: dict[type[Any], str] = {
    inspect.StrType: "string({0})",
    inspect.IntType: "bigint({0})",
    inspect.FloatType: "double({0})",
    inspect.BoolType: "boolean({0})",
    inspect.DateTimeType: "timestamp({0})",
    inspect.DateType: "date({0})",
    inspect.DecimalType: "decimal({0})",
}


#: The columns of a windowed key in addition to ``key``; alternatively, ``key`` is a struct of key, start and end.
WINDOW_COLUMNS = ("window_start", "window_end")
#: The columns of tables whose rows are records; only value and timestamp are required.
_RECORD_COLUMNS = ("key", *WINDOW_COLUMNS, "value", "timestamp", "headers", "partition")


def are_records(topic: Topic[Any, Any], names: Collection[str]) -> bool:
    """Return whether rows with these columns are records of a topic, as in outputs of a replay, rather than values.

    Rows are records if there are columns ``value`` and ``timestamp``, the topic has no ``timestamp`` function, and the
    columns are not the fields of its value type.
    """
    if topic.timestamp is not None or not {"value", "timestamp"} <= {*names}:
        return False
    kind = declared_type(topic.value_serde)
    info = None if kind is None else inspect.type_info(kind[0])
    fields = getattr(info, "fields", ())
    present = [part for part in fields if part.encode_name in names]
    has_all = bool(present) and all(part in present for part in fields if part.required)
    return not has_all and not isinstance(info, (inspect.DictType, inspect.AnyType))


def check_file_columns(topic: Topic[Any, Any], schema: Any, name: str) -> None:
    """Check the columns of a Parquet file by the rules for the columns of a table.

    A file needs no event times, and its rows may be converted to values without fields by a serde.

    Raises:
        InputError: a column is missing, occurs twice or has another type; the message lists all problems with a remedy
            for each.
    """
    problems = list(
        _record_misfits(topic, schema) if are_records(topic, schema.names) else _value_misfits(topic, schema)
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
            if _is_opaque(part.type):
                yield _opaque_column(part.type, part.name, "which is not read")
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
    problems: list[str] = []
    if are_records(topic, schema.names):
        problems += _record_misfits(topic, schema)
        if problems:
            raise InputError(f"{name} as input of topic {topic.name!r}: {'; '.join(problems)}")
        return tuple(column for column in _RECORD_COLUMNS if column in schema.names)
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


def _record_misfits(topic: Topic[Any, Any], schema: Any) -> Iterator[str]:
    """Yield a message for each column of a table of records that occurs twice or has the wrong type."""
    import pyarrow as pa

    for column in _RECORD_COLUMNS:
        if schema.names.count(column) > 1:
            yield f"the table has column {column!r} more than once; select one of them"
    kinds = {part.name: part.type for part in schema}
    for column, serde in (("key", topic.key_serde), ("value", topic.value_serde)):
        declared = declared_type(serde)
        if declared is not None and column in kinds and not is_serialized(kinds[column]):
            yield from _misfit(inspect.type_info(declared[0]), kinds[column], column)
    if isinstance(topic.key_serde, WindowedSerde) and "key" in kinds:
        kind = kinds["key"]
        parts = [part.name for part in kind] if pa.types.is_struct(kind) else []
        if not ({"key", "start", "end"} <= {*parts} or {*WINDOW_COLUMNS} <= {*kinds} or is_serialized(kind)):
            yield "column 'key' has no window; give a struct of key, start and end, or columns window_start, window_end"
    headers = kinds.get("headers")
    if headers is not None and not (_is_list(headers) and getattr(headers.value_type, "num_fields", 0) == 2):
        yield f"column 'headers' is {headers}, but has to be a list of structs of a name and a value"
    for column, extra in (
        *((name, pa.types.is_timestamp) for name in ("timestamp", *WINDOW_COLUMNS)),
        ("partition", pa.types.is_null),
    ):
        kind = kinds.get(column)
        if kind is not None and not (pa.types.is_integer(kind) or extra(kind)):
            meant = "an int" if column == "partition" else "a timestamp, or a bigint of epoch milliseconds"
            yield f"column {column!r} is {kind}, but has to be {meant}"


def is_serialized(kind: Any) -> bool:
    """Return whether a column of this Arrow type contains serialized keys or values."""
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _misfits(fields: Any, columns: dict[str, Any], prefix: str) -> Iterator[str]:
    """Yield a message for each field whose column is missing or has the wrong type."""
    # Spark and Hive ignore case, and Hive does not keep it, so a name in another case is meant for the field.
    in_other_case = {name.casefold(): name for name in columns if all(part.encode_name != name for part in fields)}
    for part in fields:
        column = prefix + part.encode_name
        kind = columns.get(part.encode_name)
        same = in_other_case.get(part.encode_name.casefold())
        if kind is None:
            if part.required or same is not None:
                near = same or nearest(part.encode_name, columns)
                hint = f"rename {prefix + near!r}" if near else "add it"
                column_names = ", ".join(prefix + name for name in list(columns)[:20])
                yield (
                    f"column {column!r} ({_declared(plain_member(part.type))}) is missing; {hint}, or give the field a "
                    f"default; the table has {column_names}"
                )
        else:
            yield from _misfit(part.type, kind, column)


def _misfit(info: Any, kind: Any, column: str) -> Iterator[str]:
    import pyarrow as pa

    info = plain_member(info)
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if _is_opaque(kind):
        yield _opaque_column(kind, column, f"but is declared as {_declared(info)}")
        return
    if pa.types.is_null(kind) or isinstance(info, (inspect.AnyType, inspect.UnionType, inspect.CustomType)):
        return
    fields = getattr(info, "fields", None)
    item = getattr(info, "item_type", None)
    if fields is not None and pa.types.is_struct(kind):
        yield from _misfits(fields, {part.name: part.type for part in kind}, f"{column}.")
    elif item is not None and _is_list(kind):
        yield from _misfit(item, kind.value_type, f"{column}[]")
    elif isinstance(info, inspect.DictType) and pa.types.is_map(kind):
        yield from _misfit(info.value_type, kind.item_type, f"{column}[]")
    elif isinstance(info, inspect.DictType) and pa.types.is_struct(kind):
        return
    elif not _fits(info, kind):
        cast = _CASTS.get(type(info))
        hint = f"cast it, such as {cast.format(column)} AS {column}" if cast else "change the one or the other"
        if isinstance(info, inspect.DateTimeType) and pa.types.is_integer(kind):
            hint = f"convert it, such as timestamp_millis({column}) AS {column}"
        if isinstance(info, inspect.IntType) and pa.types.is_timestamp(kind):
            hint = f"convert it, such as unix_millis({column}) AS {column}, or declare a datetime"
        yield f"column {column!r} is {kind}, but is declared as {_declared(info)}; {hint}"


def _is_opaque(kind: Any) -> bool:
    """Return whether a column has a type of Spark that Python has no values for."""
    return getattr(kind, "extension_name", "") == "arrow.opaque"


def _opaque_column(kind: Any, column: str, problem: str) -> str:
    """Return the message for a column of an opaque type; ``problem`` says what does not fit."""
    cast = "to_json({0})" if "variant" in kind.type_name else "string({0})"
    return f"column {column!r} is {kind.type_name}, {problem}; cast it, such as {cast.format(column)} AS {column}"


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _fits(info: Any, kind: Any) -> bool:
    """Return whether values of an Arrow type can be converted to a declared scalar type."""
    import pyarrow as pa

    is_a = pa.types
    text = is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_string_view(kind)
    data = is_serialized(kind) or is_a.is_fixed_size_binary(kind)
    number = is_a.is_integer(kind) or is_a.is_decimal(kind)
    whole = is_a.is_integer(kind) or (is_a.is_decimal(kind) and kind.scale == 0)
    # Declared type -> whether this column can be converted to it; text is parsed as in JSON lines.
    fitting: dict[Any, bool] = {
        inspect.StrType: text,
        inspect.IntType: whole,
        inspect.FloatType: number or is_a.is_floating(kind),
        inspect.BoolType: is_a.is_boolean(kind),
        inspect.BytesType: data or text,
        inspect.ByteArrayType: data or text,
        inspect.MemoryViewType: data or text,
        inspect.DateTimeType: is_a.is_timestamp(kind) or text,
        inspect.DateType: is_a.is_date(kind) or text,
        inspect.TimeType: is_a.is_time(kind) or text,
        inspect.TimeDeltaType: is_a.is_duration(kind) or text,
        inspect.UUIDType: text or data or getattr(kind, "extension_name", "") == "arrow.uuid",
        inspect.DecimalType: number or is_a.is_floating(kind) or text,
        inspect.EnumType: text or whole,
        inspect.LiteralType: text or whole,
        inspect.NoneType: False,
    }
    return bool(fitting.get(type(info), False))


def _declared(info: Any) -> str:
    cls = getattr(info, "cls", None)
    if cls is not None:
        return str(cls.__qualname__)
    names: dict[type[Any], str] = {
        inspect.DateTimeType: "datetime",
        inspect.BytesType: "bytes",
        inspect.DictType: "dict",
    }
    return names.get(type(info), type(info).__name__.removesuffix("Type").lower())
