"""Conversion of rows of Arrow data to values of a topic, column by column.

Only columns that the topic's type declares are converted.  A batch of values is serialized column by column
(``json_columns``); keys and event times that are columns are read from these columns.  If this is not possible for a
batch, or a row may be bad, the batch is converted row by row, with the same result.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from types import FunctionType
from typing import Any, overload

import msgspec
from attrs import define, evolve, field, frozen
from msgspec import inspect

from streams.core.serdes.serdes import INT32, LONG, STRING, Serde, parts_of, read_exactly
from streams.values.cells import whole_or_same
from streams.values.field_access import guarded_path_read, path_read
from streams.values.json_columns import (
    NotColumnarError,
    StructWriter,
    joined_fields,
    map_parts,
    spread,
    struct_writer,
)
from streams.values.json_text import BAD_INPUT, Form
from streams.values.rule import arrow_family, is_optional, plain_member, plain_type, rule_of, stored_type
from streams.values.stand_ins import DecodeAll, names_read, stand_in_decoder

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NAIVE = _EPOCH.replace(tzinfo=None)
_ANY = inspect.AnyType()

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


def _objects(array: Any) -> list[Any]:
    try:
        objects: list[Any] = array.to_pylist(maps_as_pydicts="strict")
    except KeyError as error:
        key = str(error).rpartition("duplicate key was ")[2].rstrip(')."')
        raise ValueError(f"a map has the key {key} more than once") from None
    return objects


def plain_batch(batch: Any) -> Any:
    """Convert columns to their plain types, with times in microseconds, as in Python, and UTC; return the batch.

    Nanoseconds are cut off, as in texts.

    Raises:
        ValueError: a time is beyond the range of microseconds.
    """
    import pyarrow as pa

    for index, part in enumerate(batch.schema):
        if plain_type(part.type) == part.type:
            continue
        try:
            column = _plain(batch.column(index))
        except pa.ArrowInvalid as error:
            raise ValueError(f"column {part.name!r}: {error}; a time is from the year 1 to 9999") from None
        batch = batch.set_column(index, part.name, column)
    return batch


def _plain(array: Any) -> Any:
    """Return an array with its plain type; Arrow has no cast for some types within others."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, plain = array.type, plain_type(array.type)
    family = arrow_family(kind)
    if kind == plain:
        return array
    if pa.types.is_dictionary(kind):
        return _plain(array.dictionary).take(array.indices)
    if pa.types.is_run_end_encoded(kind):
        return _plain(pc.run_end_decode(array))
    if family == "json":
        return array.storage.cast(plain.storage_type).cast(plain)
    if getattr(kind, "unit", "") == "ns":
        # A cast would cut times before 1970 to later ones.
        microseconds = np.floor_divide(array.cast(pa.int64()).fill_null(0).to_numpy(), 1000)
        return pa.array(microseconds, mask=array.is_null().to_numpy(zero_copy_only=False)).cast(plain)
    if family == "struct":
        parts = [_plain(array.field(at)) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(plain), mask=array.is_null())
    if family == "map":
        offsets = pa.array(array.offsets.to_numpy())
        return pa.MapArray.from_arrays(offsets, _plain(array.keys), _plain(array.items), plain, mask=array.is_null())
    if family == "list":
        sizes = pc.list_value_length(array).fill_null(0).to_numpy()
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
        return pa.ListArray.from_arrays(offsets, _plain(array.flatten()), plain, mask=array.is_null())
    # Seconds and milliseconds may be out of range, which is an error.
    return array.cast(plain)


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
    _declared: inspect.Type = field(init=False)
    #: Serializes batches column by column; None if values can only be converted row by row.
    _writer: StructWriter | None = field(init=False, default=None)
    #: Decoders of objects that have only some fields of the type, by the names of these fields.
    _decoders: dict[frozenset[str], DecodeAll] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        info = self._declared = self.form.info
        if getattr(info, "fields", None) and not getattr(info, "array_like", False):
            self._info = info
            if self.form.is_json and isinstance(info, (inspect.StructType, inspect.DataclassType)):
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
            return Values(list(map(self.form.from_object, python_objects(batch.to_struct_array(), self._declared))))
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
    decoders: dict[frozenset[str], DecodeAll]

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
        return decode(joined_fields(texts, len(self.data)).cast(self.data.type).to_pylist())

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


def _dicts(size: int, columns: dict[str, Any], info: Any) -> list[Any]:
    """Return rows as dicts of declared columns; a null is left out if the field has a default and is not optional."""
    parts = {part.encode_name: part for part in getattr(info, "fields", ()) if part.encode_name in columns}
    names = tuple(parts) if hasattr(info, "fields") else tuple(columns)
    others = getattr(info, "value_type", _ANY)
    converted = [_named_column(name, columns[name], parts[name].type if name in parts else others) for name in names]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*converted, strict=True)] if names else [{}] * size
    for name, part in parts.items():
        if columns[name].null_count and not part.required and not is_optional(part.type):
            rows = [row if row[name] is not None else _without(row, name) for row in rows]
    if isinstance(info, inspect.NamedTupleType):  # It is an array in JSON.
        return [[row.get(part.encode_name, part.default) for part in info.fields] for row in rows]
    return rows


def _named_column(name: str, array: Any, declared: inspect.Type) -> list[Any]:
    try:
        return python_objects(array, declared)
    except OverflowError as error:
        raise OverflowError(f"column {name!r}: {error}; a time is from the year 1 to 9999") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"column {name!r}: not JSON, as its type says: {error}") from None


def _without(row: Row, name: str) -> Row:
    return {other: value for other, value in row.items() if other != name}


def python_objects(array: Any, declared: inspect.Type = _ANY) -> list[Any]:
    """Return an Arrow array as Python objects of which a declared type is made, with maps as dicts, and JSON parsed.

    Raises:
        ValueError: a map has a key twice, or a text is not JSON.
        OverflowError: a time is out of the range of Python.
    """
    import pyarrow as pa

    kind = array.type
    info: Any = plain_member(declared)
    if arrow_family(kind) == "json":
        return _parsed(array, declared)
    has_json = stored_type(kind) != kind
    if pa.types.is_timestamp(kind):
        return _times(array)
    if pa.types.is_struct(kind) and (getattr(info, "fields", None) or has_json):
        columns = {part.name: array.field(index) for index, part in enumerate(kind)}
        rows: list[Any] = _dicts(len(array), columns, info)
        if not array.null_count:
            return rows
        return [row if is_valid else None for row, is_valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    item = getattr(info, "item_type", _ANY if has_json else None)
    if pa.types.is_list(kind) and item is not None:
        items = iter(python_objects(array.flatten(), item))
        return [
            None if size is None else [next(items) for _ in range(size)] for size in array.value_lengths().to_pylist()
        ]
    values = _objects(array)
    if pa.types.is_map(kind) and (isinstance(info, inspect.DictType) or has_json):
        items = iter(python_objects(map_parts(array)[1], getattr(info, "value_type", _ANY)))
        return [None if row is None else {key: next(items) for key in row} for row in values]
    rule = rule_of(info)
    if pa.types.is_decimal(kind) and rule is not None and rule.type is int:
        return [None if value is None else whole_or_same(value) for value in values]
    return values


def _parsed(array: Any, declared: inspect.Type) -> list[Any]:
    """Return a column of JSON as Python objects, with all digits of its numbers if some become a ``Decimal``."""
    has_decimals = any(
        isinstance(part, inspect.DecimalType) or (getattr(part, "extra", None) or {}).get("is_declared")
        for part in parts_of(declared)
    )
    read = read_exactly if has_decimals else msgspec.json.decode
    return [None if text is None else read(text) for text in array.to_pylist()]


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
