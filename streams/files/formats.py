"""The rows of each kind of file, and their keys, values and timestamps.

A format splits a file into rows and turns rows into columns.  Rows that cannot be converted are handled by
``reader``.  It imports only ``core``, ``values``, ``kinds`` and ``lines``.
"""

import csv
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, Any, Protocol

import msgspec
from attrs import define, evolve, field, frozen

from streams.core.blocks.records import Headers
from streams.core.errors import InputError
from streams.core.serdes.serdes import BYTES, WindowedSerde
from streams.core.topic import Topic
from streams.files.kinds import WHOLE, FileKind, FileSource, Kind, Part, open_binary
from streams.files.lines import BATCH_ROWS, line_chunks, whole_content
from streams.values import (
    BAD_INPUT,
    WINDOW_COLUMNS,
    ArrowRows,
    Fields,
    Form,
    Hex,
    Row,
    ValueReader,
    are_records,
    check_file_columns,
    is_serialized,
    plain_batch,
    python_objects,
)


@frozen
class RowBatch:
    """Consecutive raw rows, with the index of the first row in the file and each row's line number, from 1."""

    first_row: int
    lines: Sequence[int]
    rows: Sequence[Any]

    def from_row(self, row: int) -> "RowBatch":
        """Return the rows of this batch from row ``row`` of the file on."""
        skipped = max(0, row - self.first_row)
        return RowBatch(self.first_row + skipped, self.lines[skipped:], self.rows[skipped:])


@define
class RowColumns:
    """The keys, values, timestamps, headers and partitions of some rows, as columns.

    A column or an element is None if the rows do not contain it, in which case the topic determines it.  Keys and
    values are a list of bytes, or an Arrow array.
    """

    values: Any
    keys: Any = None
    timestamps: list[int | None] | None = None
    headers: list[Headers] | None = None
    partitions: list[int | None] | None = None
    #: The columns of the values if they come from Arrow data; the serde can then read all values.
    fields: Fields | None = None


class FileFormat(Protocol):
    """Splits one kind of file into rows, and converts rows to columns."""

    @property
    def unit(self) -> str:
        """The unit in which positions in the file are counted, such as "line"."""
        ...

    @property
    def heading(self) -> bytes:
        """The content above the first row, such as column names; available after the first batch."""
        ...

    def batches(self, source: FileSource, kind: FileKind, skip_rows: int, part: Part = WHOLE) -> Iterator[RowBatch]:
        """Yield the rows in ``part`` in file order, without the first ``skip_rows`` rows of the file."""
        ...

    def declared(self) -> "FileFormat":
        """Return a format that reads only the columns that the topic declares, or itself if it reads all of them."""
        ...

    def columns(self, rows: Any) -> RowColumns:
        """Convert rows of a batch to columns; raise one of the exceptions in ``BAD_INPUT`` if a row is bad."""
        ...

    def raw(self, row: Any) -> bytes:
        """Return the original bytes of a row, or the nearest equivalent."""
        ...


def format_of(kind: Kind, key: Form, value: Form, records: "RecordReader | None" = None) -> FileFormat:
    """Return the format for a kind of file, given the ``Form`` of a topic's keys and of its values.

    Rows of Arrow data that are whole records are converted by ``records``, if given.
    """
    if kind is Kind.CSV:
        return CsvRows(value)
    if kind is Kind.PARQUET:
        return ParquetRows(ValueReader(value), records)
    if kind is Kind.JSON:
        return JsonRows(value)
    if kind is Kind.RECORDS:
        return LineRows(partial(_record_columns, key, value))
    if kind.is_text:
        return LineRows(partial(_text_columns, value), skips_blank=False)
    return LineRows(partial(_json_columns, value))


@frozen
class LineRows:
    """Files with one row per line; ``convert`` turns lines into columns, and ``skips_blank`` omits blank lines."""

    convert: Callable[[Sequence[bytes]], RowColumns]
    skips_blank: bool = True
    unit: str = "line"
    heading: bytes = b""

    def batches(self, source: FileSource, kind: FileKind, skip_rows: int, part: Part = WHOLE) -> Iterator[RowBatch]:
        """Yield batches of lines."""
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

    def declared(self) -> FileFormat:
        """Return the format itself."""
        return self

    def columns(self, rows: Sequence[bytes]) -> RowColumns:
        """Convert lines to columns."""
        return self.convert(rows)

    def raw(self, row: bytes) -> bytes:
        """Return the line, which is the original form of the row."""
        return row


def _json_columns(value: Form, rows: Sequence[bytes]) -> RowColumns:
    """Convert lines of JSON to columns that contain only values."""
    return RowColumns(value.all_from_json(list(map(bytes.strip, rows))))


def _text_columns(value: Form, rows: Sequence[bytes]) -> RowColumns:
    """Convert lines of text to columns that contain only values; an empty line is an empty value."""
    if value.serde is BYTES:
        return RowColumns(list(rows))
    return RowColumns([value.from_object(line.decode()) for line in rows])


#: The largest content of a JSON file, which is in memory as a whole.
_JSON_BYTES = 1 << 30
_read_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_read_lines = msgspec.json.Decoder(msgspec.Raw).decode_lines


@frozen
class JsonRows:
    """JSON files with an array of values, or with one value, or a value on each line; read as a whole."""

    value: Form
    unit: str = "row"
    heading: bytes = b""

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

    def declared(self) -> FileFormat:
        """Return the format itself."""
        return self

    def columns(self, rows: Sequence[bytes]) -> RowColumns:
        """Convert JSON values to columns."""
        return _json_columns(self.value, rows)

    def raw(self, row: bytes) -> bytes:
        """Return the JSON of the row."""
        return row


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


def is_record(line: bytes) -> bool:
    """Return whether a line is a record with a value and a timestamp, as in files of records."""
    try:
        return _read_record(line).timestamp is not msgspec.UNSET
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _record_columns(key: Form, value: Form, rows: Sequence[bytes]) -> RowColumns:
    """Convert lines with one record each, as ``{"key", "value", "timestamp", "headers", "partition"}``, to columns.

    Only the value is required.
    """
    records = [_record(line) for line in rows]
    headers = None
    if any(record.headers for record in records):
        headers = [tuple(_header(*header) for header in record.headers or ()) for record in records]
    return RowColumns(
        value.all_from_json([bytes(record.value) for record in records]),
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


@define
class CsvRows:
    """CSV files with a header; each row is a dict of strings."""

    value: Form
    unit: str = "line"
    _header: list[str] = field(factory=list)

    @property
    def heading(self) -> bytes:
        """The header line with the column names."""
        return ",".join(self._header).encode(errors="surrogateescape") + b"\n"

    def batches(self, source: FileSource, kind: FileKind, skip_rows: int, part: Part = WHOLE) -> Iterator[RowBatch]:
        """Yield (cells, text) for each row; blank lines are skipped.

        Raises:
            InputError: two columns have the same name, or a quote is not closed.
        """
        text = _CsvText(line_chunks(source, kind, part, keeps_returns=True), part.first_line - 1)
        reader = csv.reader(text, strict=True)
        self._header = []
        numbers: list[int] = []
        rows: list[tuple[list[str], str]] = []
        row = 0
        while True:
            text.taken.clear()
            line = text.line + 1
            try:
                cells = next(reader, None)
            except csv.Error as error:
                if rows:
                    yield RowBatch(row - len(rows), numbers, rows)
                raise InputError(
                    f"{source}:{line}: the row that begins here is not CSV: {error}; "
                    "look for a quote that is not closed"
                ) from error
            if cells is None:
                break
            if not cells:
                continue
            if not self._header:
                self._header = _csv_header(source, line, cells)
                continue
            row += 1
            if row > skip_rows:
                rows.append((cells, "".join(text.taken)))
                numbers.append(line)
            if len(rows) >= BATCH_ROWS:
                yield RowBatch(row - len(rows), numbers, rows)
                numbers = []
                rows = []
        if rows:
            yield RowBatch(row - len(rows), numbers, rows)

    def declared(self) -> FileFormat:
        """Return the format itself."""
        return self

    def columns(self, rows: Sequence[tuple[list[str], str]]) -> RowColumns:
        """Return the rows as columns; CSV rows contain only values."""
        header = self._header
        convert = self.value.from_object
        width = len(header)
        for cells, _ in rows:
            if len(cells) != width:
                raise ValueError(f"the row has {len(cells)} cells, the header {width}")
        return RowColumns([convert(dict(zip(header, cells, strict=True))) for cells, _ in rows])

    def raw(self, row: tuple[list[str], str]) -> bytes:
        """Return the line or lines that the row occupies."""
        return row[1].rstrip("\r\n").encode(errors="surrogateescape")


@define
class _CsvText:
    """An iterator over lines as text; ``taken`` collects the lines of the current row."""

    chunks: Iterator[tuple[int, list[bytes]]]
    line: int = 0
    taken: list[str] = field(factory=list)
    _lines: Iterator[bytes] = field(factory=lambda: iter(()))

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines, None)
        while line is None:
            _, lines = next(self.chunks)
            self._lines = iter(lines)
            line = next(self._lines, None)
        self.line += 1
        # Malformed UTF-8 makes only its row bad, since the surrogates cannot be encoded.
        text = line.decode(errors="surrogateescape") + "\n"
        self.taken.append(text)
        return text


def _csv_header(source: FileSource, line: int, cells: list[str]) -> list[str]:
    doubles = sorted({name for name in cells if cells.count(name) > 1})
    if doubles:
        raise InputError(f"{source}:{line}: column {doubles[0]!r} stands twice in the header; rename one")
    return cells


@frozen
class ParquetRows:
    """Parquet files; each row is a dict with times in UTC."""

    value: ValueReader
    records: "RecordReader | None" = None
    #: Whether only columns that the topic declares are read.
    is_selective: bool = False
    unit: str = "row"
    heading: bytes = b""

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
                if self.records is not None:
                    check_file_columns(self.records.topic, file.schema_arrow, str(source))
                names = self._names(file.schema_arrow.names)
                for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=names) if groups else ():
                    first = row
                    row = row + batch.num_rows
                    if row > skip_rows:
                        yield RowBatch(first, range(first + 1, row + 1), ArrowRows(batch)).from_row(skip_rows)
        except (pa.ArrowException, OSError, EOFError) as error:
            raise InputError(f"{source}: row {row + 1}: not a whole Parquet file: {error}; make it again") from error

    def declared(self) -> FileFormat:
        """Return a format that reads only the columns that the topic declares."""
        return evolve(self, is_selective=True)

    def _names(self, column_names: list[str]) -> list[str] | None:
        """Return the names of the columns of a file to read, or None for all columns."""
        declared = self.value.declared
        if not self.is_selective or declared is None:
            return None
        if self.records is not None and are_records(self.records.topic, column_names):
            return None
        names = [name for name in column_names if name in declared]
        # Arrow parses a dot in a name as a path separator, and returns no rows if no column is selected.
        return None if not names or any("." in name for name in names) else names

    def columns(self, rows: ArrowRows) -> RowColumns:
        """Return the rows as columns."""
        return _row_columns(self.value, self.records, rows)

    def raw(self, row: Row) -> bytes:
        """Return the row as JSON."""
        return _raw_row(row)


@frozen
class TableRows:
    """Rows that are given as Arrow record batches."""

    value: ValueReader
    records: "RecordReader"
    record_batches: Iterable[Any]
    unit: str = "row"
    heading: bytes = b""

    def batches(self, source: FileSource, kind: FileKind, skip_rows: int, part: Part = WHOLE) -> Iterator[RowBatch]:
        """Yield all rows."""
        row = 0
        for batch in self.record_batches:
            yield RowBatch(row, range(row + 1, row + 1 + batch.num_rows), ArrowRows(batch))
            row += batch.num_rows

    def declared(self) -> FileFormat:
        """Return the format itself."""
        return self

    def columns(self, rows: ArrowRows) -> RowColumns:
        """Return the rows as columns."""
        return _row_columns(self.value, self.records, rows)

    def raw(self, row: Row) -> bytes:
        """Return the row as JSON."""
        return _raw_row(row)


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
    items = python_objects(column)
    if is_serialized(column.type):
        return items
    return [None if item is None else form.from_object(item) for item in items]


def _epoch_ms(column: Any) -> list[int | None]:
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        numbers: list[int | None] = column.to_pylist()
        return numbers
    return [None if time is None else time // 1000 for time in column.cast(pa.int64()).to_pylist()]


def _row_columns(value: ValueReader, records: RecordReader | None, rows: ArrowRows) -> RowColumns:
    if records is not None and records.are_records(rows):
        return records.read(rows)
    parsed = value.read(rows)
    return RowColumns(parsed.data, fields=parsed.fields)


def _raw_row(row: Row) -> bytes:
    try:
        return msgspec.json.encode(row, enc_hook=repr)
    except BAD_INPUT:
        return repr(row).encode(errors="replace")


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
