"""The rows of each kind of file, and their keys, values and timestamps.

A format splits a file into rows and turns rows into columns.  Rows that cannot be converted are handled by
``reader``.  It imports only ``core``, ``values``, ``kinds`` and ``lines``.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, Any, Self

import msgspec
from attrs import evolve, field, frozen

from streams.core.blocks.records import Headers
from streams.core.errors import InputError
from streams.core.serdes.serdes import BYTES, WindowedSerde
from streams.core.topic import Topic
from streams.files.csv_rows import CsvRows
from streams.files.folder_columns import (
    Cells,
    check_fields,
    check_whole,
    folder_cells,
    names_in,
    with_arrays,
    with_columns,
)
from streams.files.kinds import WHOLE, FileKind, FileSource, Kind, Part, open_binary
from streams.files.lines import BATCH_ROWS, line_chunks, whole_content
from streams.files.rows import FileFormat, RowBatch, RowColumns
from streams.values import (
    BAD_INPUT,
    WINDOW_COLUMNS,
    ArrowRows,
    Form,
    Hex,
    Row,
    ValueReader,
    are_records,
    arrow_family,
    check_file_columns,
    check_names,
    is_serialized,
    plain_batch,
    python_objects,
)


def format_of(
    source: FileSource, kind: FileKind, key: Form, value: Form, records: "RecordReader | None" = None
) -> FileFormat:
    """Return the format for a file, given the ``Form`` of a topic's keys and of its values.

    Rows of Arrow data that are whole records are converted by ``records``, if given.

    Raises:
        InputError: a column of the folders has the name of a field in another case.
    """
    folder = folder_cells(source.name)
    if folder and kind.kind is not Kind.RECORDS and not kind.kind.is_text:
        check_names(value.declared, [*folder], str(source))
    if kind.kind is Kind.CSV:
        return CsvRows(source, kind, value, folder)
    if kind.kind is Kind.PARQUET:
        return ParquetRows(ValueReader(value), records, folder=folder)
    if kind.kind is Kind.RECORDS:
        return LineRows(partial(_record_columns, key, value, folder))
    if kind.kind.is_text:
        return LineRows(partial(_text_columns, value), skips_blank=False)
    convert = partial(_json_columns, value, folder)
    return JsonRows(convert) if kind.kind is Kind.JSON else LineRows(convert)


@frozen
class _TextRows:
    """Rows that are texts as they stand in the file; ``convert`` turns them into columns."""

    convert: Callable[[Sequence[bytes]], RowColumns]
    heading: bytes = b""

    def declared(self) -> Self:
        return self

    def columns(self, rows: Sequence[bytes]) -> RowColumns:
        return self.convert(rows)

    def raw(self, row: bytes) -> bytes:
        """Return the row, which is its own original form."""
        return row


@frozen
class LineRows(_TextRows):
    """Files with one row per line; ``skips_blank`` omits blank lines."""

    skips_blank: bool = True
    unit: str = "line"

    def batches(self, source: FileSource, kind: FileKind, skip_rows: int, part: Part = WHOLE) -> Iterator[RowBatch]:
        row = part.first_row
        for first_line, lines in line_chunks(source, kind, part):
            numbers: Sequence[int] = range(first_line, first_line + len(lines))
            if self.skips_blank and not all(map(bytes.strip, lines)):
                filled = [(number, line) for number, line in zip(numbers, lines, strict=True) if line.strip()]
                numbers = [number for number, _ in filled]
                lines = [line for _, line in filled]
            batch = RowBatch(row, numbers, lines)
            row += len(lines)
            if row > skip_rows:
                yield batch.from_row(skip_rows)


def _json_columns(value: Form, folder: Cells, rows: Sequence[bytes]) -> RowColumns:
    """Convert lines of JSON to columns that contain only values."""
    texts = list(map(bytes.strip, rows))
    # Few lines have the name, which is quickly looked for.
    if value.is_untyped and any(b'"timestamp"' in row and is_record(row, is_whole=True) for row in rows):
        # Any JSON is a value of this topic, but this is what an output of records has on each line.
        raise msgspec.ValidationError("expected a value, got a whole record")
    if folder:
        texts = with_columns(texts, folder, value.declared)
    return RowColumns(value.all_from_json(texts))


def _text_columns(value: Form, rows: Sequence[bytes]) -> RowColumns:
    """Convert lines of text to columns that contain only values; an empty line is an empty value."""
    if value.serde is BYTES:
        return RowColumns(list(rows))
    return RowColumns([value.from_cells(line.decode()) for line in rows])


#: The largest content of a JSON file, which is in memory as a whole.
_JSON_BYTES = 1 << 30
_read_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_read_lines = msgspec.json.Decoder(msgspec.Raw).decode_lines


@frozen
class JsonRows(_TextRows):
    """JSON files with an array of values, or with one value, or a value on each line; read as a whole."""

    unit: str = "row"

    def batches(self, source: FileSource, kind: FileKind, skip_rows: int, part: Part = WHOLE) -> Iterator[RowBatch]:
        """Yield the JSON of each value.

        Raises:
            InputError: the file is not JSON, or is too large.
        """
        data = whole_content(source, kind, part, _JSON_BYTES)
        try:
            rows = _read_array(data) if data.startswith(b"[") else _values(data)
        except msgspec.DecodeError as error:
            raise InputError(
                f"{source}: is not JSON as a whole: {error}; if it has a value on each line, give it as jsonl"
            ) from error
        for start in range(skip_rows, len(rows), BATCH_ROWS):
            some = rows[start : start + BATCH_ROWS]
            yield RowBatch(start, range(start + 1, start + 1 + len(some)), list(map(bytes, some)))


def _values(data: bytes) -> list[msgspec.Raw]:
    """Return the only JSON value, which may have several lines, or the value of each line."""
    try:
        return [msgspec.json.decode(data, type=msgspec.Raw)] if data else []
    except msgspec.DecodeError:
        return _read_lines(data)


class _RecordLine(msgspec.Struct, forbid_unknown_fields=True):
    value: msgspec.Raw
    key: msgspec.Raw = msgspec.Raw(b"null")
    timestamp: int | msgspec.UnsetType = msgspec.UNSET
    headers: list[tuple[str, str | Hex | None]] | None = None
    partition: int | None = None
    # Other programs store the record's origin here; it is ignored.
    topic: str | None = None
    offset: int | None = None


_read_record = msgspec.json.Decoder(_RecordLine).decode


def is_record(line: bytes, *, is_whole: bool = False) -> bool:
    """Return whether a line is a record with a value and a timestamp, as in files of records.

    If ``is_whole``, it needs headers and a partition too, as in those that are written here.
    """
    try:
        record = _read_record(line)
        return record.timestamp is not msgspec.UNSET and not (
            is_whole and (record.headers is None or record.partition is None)
        )
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _record_columns(key: Form, value: Form, folder: Cells, rows: Sequence[bytes]) -> RowColumns:
    """Convert lines with one record each, as ``{"key", "value", "timestamp", "headers", "partition"}``, to columns.

    Only the value is required.
    """
    records = [_record(line) for line in rows]
    headers = None
    if any(record.headers for record in records):
        headers = [tuple(_header(*header) for header in record.headers or ()) for record in records]
    texts = [bytes(record.value) for record in records]
    check_whole(texts, folder, value.declared)
    return RowColumns(
        value.all_from_json(texts),
        _keys(key, [bytes(record.key) for record in records]),
        [None if record.timestamp is msgspec.UNSET else record.timestamp for record in records],
        headers,
        [record.partition for record in records],
    )


def _record(line: bytes) -> _RecordLine:
    record = _read_record(line)
    if record.timestamp is not msgspec.UNSET:
        _checked_time(record.timestamp)
    _checked_partition(record.partition)
    return record


def _checked_time(timestamp: int) -> int:
    if not 0 <= timestamp < 1 << 63:
        raise ValueError(f"timestamp {timestamp} is no time; give epoch milliseconds, or leave it out")
    return timestamp


def _checked_partition(partition: int | None) -> int | None:
    if partition is not None and partition < 0:
        raise ValueError(f"partition {partition} is negative")
    return partition


def _header(name: str, value: str | bytes | Hex | None) -> tuple[str, bytes | None]:
    if isinstance(value, Hex):
        return name, value.data()
    return name, value.encode() if isinstance(value, str) else value


def _keys(form: Form, texts: list[bytes]) -> list[bytes | None]:
    """Serialize keys; JSON keys are in canonical form."""
    keys = form.all_from_json(texts)
    if form.is_json and form.serde is not None:
        return form.serde.serialize_all(form.serde.deserialize_all(keys))
    return keys


@frozen
class _ColumnRows:
    """Rows of Arrow data: values, or records if ``records`` is given and they are."""

    value: ValueReader
    records: "RecordReader | None" = None
    unit: str = "row"
    heading: bytes = b""

    def columns(self, rows: ArrowRows) -> RowColumns:
        if self.records is not None and self.records.are_records(rows):
            return self.records.read(rows)
        parsed = self.value.read(rows)
        return RowColumns(parsed.data, fields=parsed.fields)

    def raw(self, row: Row) -> bytes:
        """Return the row as JSON."""
        try:
            return msgspec.json.encode(row, enc_hook=repr)
        except BAD_INPUT:
            return repr(row).encode(errors="replace")


@frozen
class ParquetRows(_ColumnRows):
    """Parquet files; each row is a dict with times in UTC."""

    #: Whether only columns that the topic declares are read.
    is_selective: bool = False
    #: The columns of the folders, which are in each row.
    folder: Cells = field(factory=dict)

    def batches(self, source: FileSource, kind: FileKind, skip_rows: int, part: Part = WHOLE) -> Iterator[RowBatch]:
        """Yield rows as dicts; row groups that are skipped entirely are not read.

        Raises:
            InputError: the file is not a Parquet file or is damaged, or a column does not fit the topic's type.
        """
        import pyarrow as pa

        row = part.first_row
        try:
            with ExitStack() as stack:
                file = stack.enter_context(_parquet_file(source, kind))
                groups = list(range(file.num_row_groups))[part.start : part.end]
                while groups and row + file.metadata.row_group(groups[0]).num_rows <= skip_rows:
                    row += file.metadata.row_group(groups.pop(0)).num_rows
                is_wide = self.folder and not self._are_records(file.schema_arrow.names)
                if self.folder and not is_wide and pa.types.is_struct(form := file.schema_arrow.field("value").type):
                    check_fields(names_in(self.folder, self.value.form.declared), [part.name for part in form])
                widened = self._wide if is_wide else lambda batch: batch
                if self.records is not None:
                    schema = widened(pa.Table.from_batches([], file.schema_arrow)).schema
                    check_file_columns(self.records.topic, schema, str(source))
                names = self._names(file.schema_arrow.names)
                for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=names) if groups else ():
                    first = row
                    row = row + batch.num_rows
                    if row > skip_rows:
                        rows = ArrowRows(widened(batch))
                        yield RowBatch(first, range(first + 1, row + 1), rows).from_row(skip_rows)
        except (pa.ArrowException, OSError, EOFError) as error:
            raise InputError(f"{source}: row {row + 1}: not a whole Parquet file: {error}; make it again") from error
        except ValueError as error:
            raise InputError(f"{source}: {error}") from error

    def _wide(self, batch: Any) -> Any:
        """Return a batch with the columns of the folders."""
        return with_arrays(batch, self.folder, self.value.form.declared)

    def _are_records(self, names: list[str]) -> bool:
        return self.records is not None and are_records(self.records.topic, names)

    def declared(self) -> FileFormat:
        return evolve(self, is_selective=True)

    def _names(self, column_names: list[str]) -> list[str] | None:
        """Return the names of the columns of a file to read, or None for all columns."""
        declared = self.value.declared
        if not self.is_selective or declared is None:
            return None
        if self._are_records(column_names):
            return None
        names = [name for name in column_names if name in declared]
        # Arrow parses a dot in a name as a path separator, and returns no rows if no column is selected.
        return None if not names or any("." in name for name in names) else names


@frozen
class TableRows(_ColumnRows):
    """Rows that are given as Arrow record batches."""

    record_batches: Iterable[Any] = ()

    def batches(self, source: FileSource, kind: FileKind, skip_rows: int, part: Part = WHOLE) -> Iterator[RowBatch]:
        """Yield all rows."""
        row = 0
        for batch in self.record_batches:
            yield RowBatch(row, range(row + 1, row + 1 + batch.num_rows), ArrowRows(batch))
            row += batch.num_rows

    def declared(self) -> FileFormat:
        return self


@frozen
class RecordReader:
    """Converts rows of Arrow data that are records; the columns besides ``value`` and ``timestamp`` are optional.

    Columns of binary data have the serialized bytes of keys and values.
    """

    topic: Topic[Any, Any]
    key: Form
    value: Form

    def are_records(self, rows: ArrowRows) -> bool:
        """Return whether the rows are records, rather than values."""
        return are_records(self.topic, rows.batch.schema.names)

    def read(self, rows: ArrowRows) -> RowColumns:
        """Convert rows; raise one of the exceptions in ``BAD_INPUT`` if a row is bad."""
        batch = plain_batch(rows.batch)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        return RowColumns(
            _data(self.value, columns["value"]),
            self._keys(columns) if "key" in columns else None,
            [None if time is None else _checked_time(time) for time in _epoch_ms(columns["timestamp"])],
            _headers(columns["headers"]) if "headers" in columns else None,
            partitions=[_checked_partition(number) for number in columns["partition"].to_pylist()]
            if "partition" in columns
            else None,
        )

    def _keys(self, columns: dict[str, Any]) -> list[bytes | None]:
        form = self.key
        column = columns["key"]
        if not isinstance(form.serde, WindowedSerde) or is_serialized(column.type):
            return _data(form, column)
        items = python_objects(column)
        if set(WINDOW_COLUMNS) <= columns.keys():
            starts, ends = (_epoch_ms(columns[name]) for name in WINDOW_COLUMNS)
            items = [
                None if key is None else {"key": key, "start": start, "end": end}
                for key, start, end in zip(items, starts, ends, strict=True)
            ]
        return [None if item is None else form.from_json(msgspec.json.encode(item)) for item in items]


def _headers(column: Any) -> list[Headers] | None:
    """Convert a column with lists of structs (name, value) to record headers."""
    rows = [tuple(_header(*item.values()) for item in items or ()) for items in column.to_pylist()]
    return rows if any(rows) else None


def _data(form: Form, column: Any) -> list[bytes | None]:
    if arrow_family(column.type) == "json":
        return _keys(form, [b"null" if text is None else text.encode() for text in column.to_pylist()])
    if is_serialized(column.type):
        data: list[bytes | None] = column.to_pylist()
        return data
    return [None if item is None else form.from_object(item) for item in python_objects(column, form.info)]


def _epoch_ms(column: Any) -> list[int | None]:
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        numbers: list[int | None] = column.to_pylist()
        return numbers
    return [None if time is None else time // 1000 for time in column.cast(pa.int64()).to_pylist()]


@contextmanager
def _parquet_file(source: FileSource, kind: FileKind) -> Iterator[Any]:
    """Open a Parquet file for the duration of a ``with`` block."""
    import pyarrow.parquet as pq

    with _unpacked(source, kind) if kind.compression else source.opened() as stream:
        # Nanoseconds, the default for times that Spark and Hive write as INT96, overflow before 1678 and after 2262.
        with pq.ParquetFile(stream, coerce_int96_timestamp_unit="us") as file:
            yield file


def row_groups(source: FileSource, kind: FileKind) -> list[tuple[int, int]]:
    """Return (number of rows, size in bytes) for each row group in a Parquet file.

    Raises:
        InputError: the file is not a Parquet file or is damaged.
    """
    import pyarrow as pa

    try:
        with _parquet_file(source, kind) as file:
            groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            return [(group.num_rows, group.total_byte_size) for group in groups]
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InputError(f"{source}: not a whole Parquet file: {error}; make it again") from error


def _unpacked(source: FileSource, kind: FileKind) -> IO[bytes]:
    """Return an uncompressed temporary copy of the file, because a Parquet file must be read from its end."""
    target = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it.
    with open_binary(source, kind) as stream:
        shutil.copyfileobj(stream, target, 1 << 20)
    target.seek(0)
    return target
