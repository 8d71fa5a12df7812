"""Columns of topics: records as rows of Arrow tables, in two forms.

In the record form, a windowed key is a struct, and times are epoch milliseconds, as in files and inputs, so a reader
needs no time zone.  The table form is for data lakes: a windowed key has three columns, and times are timestamps in
UTC.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from streams.core.blocks.records import Block, Headers
from streams.core.errors import InputError
from streams.core.serdes.serdes import WindowedSerde
from streams.core.topic import Topic
from streams.values.arrow_writer import arrow_array, arrow_column
from streams.values.rule import stored_schema, stored_type

#: The last millisecond of the year 9999, the limit of timestamps of most tables.
_LAST_MS = 253_402_300_799_999
#: The characters that Spark escapes in the names of partition folders.
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
#: The folder of a null, as in Hive.
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


@frozen
class ArrowRecords:
    """The columns of a topic: ``key``, ``value``, ``timestamp``, ``headers``, ``partition`` and ``offset``.

    ``as_table`` selects the table form, in which a windowed key is ``key``, ``window_start`` and ``window_end``.
    ``has_json`` is unset for formats without a type of JSON, for which it is text.
    """

    topic: Topic[Any, Any] | None
    as_table: bool = False
    has_json: bool = True

    @property
    def schema(self) -> Any:
        """Columns of the file: key, value, timestamp in UTC, partition, offset."""
        import pyarrow as pa

        key = arrow_column(self.topic.key_serde if self.topic else None).type
        value = arrow_column(self.topic.value_serde if self.topic else None).type
        at = pa.timestamp("us", "UTC")
        keys = {"key": key}
        if self._splits_windows:
            keys = {"key": key.field("key").type, "window_start": at, "window_end": at}
        rest = {"headers": headers_type(), "partition": pa.int32(), "offset": pa.int64()}
        schema = pa.schema({**keys, "value": value, "timestamp": at if self.as_table else pa.int64(), **rest})
        return schema if self.has_json else stored_schema(schema)

    @property
    def _splits_windows(self) -> bool:
        return self.as_table and self.topic is not None and isinstance(self.topic.key_serde, WindowedSerde)

    def batch(self, number: int, block: Block) -> Any:
        """Return serialized records of partition ``number`` as an Arrow batch."""
        key = arrow_column(self.topic.key_serde if self.topic else None)
        value = arrow_column(self.topic.value_serde if self.topic else None)
        return self.batch_of(number, block, key.values(block.keys), value.values(block.values))

    def batch_of(self, number: int, records: Block, keys: Sequence[Any], values: Sequence[Any]) -> Any:
        """Return records as an Arrow batch; ``keys`` and ``values`` have been converted by ``arrow_column``."""
        import pyarrow as pa

        key = arrow_column(self.topic.key_serde if self.topic else None).type
        key = key if self.has_json else stored_type(key)
        columns = self.schema
        size = len(records)
        arrays = [arrow_array(keys, key, "key")]
        if self._splits_windows:
            plain, start, end = arrays[0].flatten()
            arrays = [plain, _timestamps(start), _timestamps(end)]
        times = pa.array(list(records.timestamps), pa.int64())
        arrays += [
            arrow_array(values, columns.field("value").type, "value"),
            _timestamps(times) if self.as_table else times,
            headers_array(records.headers if records.headers is not None else [()] * size, size),
            pa.array([number] * size, pa.int32()),
            pa.array(list(records.offsets), pa.int64()),
        ]
        return pa.record_batch(arrays, schema=columns)


def headers_type() -> Any:
    """Return the Arrow type of record headers."""
    import pyarrow as pa

    return pa.list_(pa.struct({"name": pa.string(), "value": pa.binary()}))


def headers_array(headers: Sequence[Headers] | None, size: int) -> Any:
    """Return the Arrow column of record headers; it is null if ``headers`` is None."""
    import pyarrow as pa

    if headers is None:
        return pa.nulls(size, headers_type())
    return pa.array([[{"name": name, "value": data} for name, data in record] for record in headers], headers_type())


def _timestamps(milliseconds: Any) -> Any:
    """Convert epoch milliseconds to timestamps in microseconds; an unlimited window has no end."""
    import pyarrow as pa
    import pyarrow.compute as pc

    representable = pc.if_else(pc.less_equal(milliseconds, _LAST_MS), milliseconds, pa.scalar(None, pa.int64()))
    return representable.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


@frozen
class PartitionColumn:
    """A column by which a folder is partitioned: the UTC day of the event time, or a field."""

    name: str
    #: Names of the column and its nested fields, empty for the day.
    path: tuple[str, ...] = ()
    #: Whether the files have the column too, as in Iceberg; otherwise only the names of their folders say the values.
    is_in_files: bool = False

    @classmethod
    def of(cls, column: str, schema: Any) -> "PartitionColumn":
        """Return the partition column for ``day``, the name of a column, or a field such as ``value.country``.

        Raises:
            InputError: there is no such column, or its type is not text, whole number, boolean or date.
        """
        import pyarrow as pa

        if column == "day":
            return cls("day")
        path = tuple(column.split("."))
        kind: Any = pa.struct(list(schema))
        for name in path:
            if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
                columns = [*schema.names, *(f"value.{part.name}" for part in _fields(schema.field("value").type))]
                raise InputError(f"partition_by {column!r}: there is no such column; give day, {', '.join(columns)}")
            kind = kind.field(name).type
        checks = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)
        if not any(check(kind) for check in checks):
            raise InputError(
                f"partition_by {column!r}: has type {kind}; give a column of text, whole numbers, booleans or dates"
            )
        return cls(path[-1], path)

    def type_in(self, schema: Any) -> Any:
        """Return the Arrow type of the column, given the columns of the output."""
        import pyarrow as pa

        kind: Any = pa.struct(list(schema))
        for name in self.path:
            kind = kind.field(name).type
        return kind if self.path else pa.date32()

    def array(self, batch: Any) -> Any:
        """Return the values of a batch, as an Arrow array.

        Raises:
            InputError: a text would be read as null.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.path:
            return pc.cast(batch.column("timestamp"), "date32")
        column = batch.column(self.path[0])
        for name in self.path[1:]:
            column = pc.struct_field(column, name)
        if pa.types.is_string(column.type):
            nulls = pa.array([NULL_FOLDER] if self.is_in_files else [NULL_FOLDER, ""])
            row = pc.index(pc.is_in(column, nulls), True).as_py()
            if row >= 0:
                raise InputError(
                    f"partition {batch['partition'][row]}, offset {batch['offset'][row]}: "
                    f"{'.'.join(self.path)} is {column[row].as_py()!r}, which a table partitioned by it does not keep "
                    "apart from null; give it another text, or partition by another column"
                )
        return column

    def texts(self, batch: Any) -> list[str]:
        """Return the values of a batch as they are written in folder names."""
        import pyarrow.compute as pc

        texts = pc.cast(self.array(batch), "string").to_pylist()
        return [NULL_FOLDER if text is None else _escaped(text) for text in texts]


def _fields(kind: Any) -> list[Any]:
    import pyarrow as pa

    return list(kind) if pa.types.is_struct(kind) else []


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda character: f"%{ord(character[0]):02X}", text)


def file_schema(schema: Any, partition_by: Sequence[PartitionColumn]) -> Any:
    """Return the Arrow schema of the files in a partitioned folder, without columns that only its name has."""
    import pyarrow as pa

    in_names = {column.name for column in partition_by if not column.is_in_files}
    return pa.schema([part for part in schema if part.name not in in_names])


def wide_schema(schema: Any, partition_by: Sequence[PartitionColumn]) -> Any:
    """Return the Arrow schema of a partitioned table: the columns of its files, and then the partition columns."""
    import pyarrow as pa

    parts = [pa.field(column.name, column.type_in(schema)) for column in partition_by]
    return pa.schema([*file_schema(schema, partition_by), *parts])


def wide_table(rows: Any, partition_by: Sequence[PartitionColumn]) -> Any:
    """Return a table of records with the columns of ``wide_schema``."""
    schema = wide_schema(rows.schema, partition_by)
    added = {column.name: column.array(rows) for column in partition_by}
    arrays = [added[name] if name in added else rows[name] for name in schema.names]
    return type(rows).from_arrays(arrays, schema=schema)


def partition_columns(schema: Any, names: str | Sequence[str]) -> tuple[PartitionColumn, ...]:
    """Return the columns by which an output with an Arrow schema is partitioned; an empty name means none.

    Raises:
        InputError: there is no such column, its type is not supported, or it has the name of another one.
    """
    listed = [names] if isinstance(names, str) else names
    columns = tuple(PartitionColumn.of(name, schema) for name in listed if name)
    column_names = [column.name for column in columns]
    others = [column.name for column in columns if len(column.path) > 1 and column.name in schema.names]
    if others or len(set(column_names)) < len(column_names):
        raise InputError(f"partition_by {', '.join(listed)}: two columns of the table would have the same name")
    return columns


def folders_of(batch: Any, partition_by: Sequence[PartitionColumn], schema: Any) -> Iterator[tuple[str, Any]]:
    """Divide the rows of a batch by the folder that they belong to, such as ``day=2026-01-01/``; yield each part.

    ``schema`` is that of the files; without ``partition_by`` the whole batch belongs to the folder ``""``.
    """
    import pyarrow as pa

    if not partition_by:
        yield "", batch
        return
    rows_by_folder: dict[str, list[int]] = {}
    texts = [[f"{column.name}={text}/" for text in column.texts(batch)] for column in partition_by]
    for index, folder in enumerate(map("".join, zip(*texts, strict=True))):
        rows_by_folder.setdefault(folder, []).append(index)
    rows = batch.select(schema.names)
    for folder, indexes in rows_by_folder.items():
        yield folder, rows if len(rows_by_folder) == 1 else rows.take(pa.array(indexes))
