"""The rows of each kind of file, and their keys, values and timestamps.

A format splits a file into rows and turns rows into columns.  Rows that cannot be converted are handled by
the reader.  Imports core, kinds, lines and forms.
"""

import csv
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, Any, Protocol

import msgspec
from attrs import define, field, frozen

from streams.core.errors import InputError
from streams.core.records import Headers
from streams.core.serdes import BYTES
from streams.files.forms import BAD_INPUT, Form, Hex
from streams.files.kinds import WHOLE, FileKind, FileSource, Kind, Part, open_binary
from streams.files.lines import BATCH_ROWS, line_chunks


@frozen
class RowBatch:
    """Consecutive raw rows, with the index of the first row in the file and each row's line number, from 1."""

    first_row: int
    lines: Sequence[int]
    rows: Sequence[Any]

    def from_row(self, row: int) -> "RowBatch":
        """Return the rows from index ``row`` of the file."""
        skipped = max(0, row - self.first_row)
        return RowBatch(self.first_row + skipped, self.lines[skipped:], self.rows[skipped:])


@define
class RowColumns:
    """Columns from rows; a column or item is None if the rows do not give it, and the topic determines it."""

    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    timestamps: list[int | None] | None = None
    headers: list[Headers] | None = None
    partitions: list[int | None] | None = None


class FileFormat(Protocol):
    """Splits and reads one kind of file."""

    @property
    def unit(self) -> str:
        """The unit in which positions in the file are counted."""
        ...

    @property
    def heading(self) -> bytes:
        """The content above the first row, which determines the meaning of rows; available after the first batch."""
        ...

    def batches(self, source: FileSource, kind: FileKind, skip_rows: int, part: Part = WHOLE) -> Iterator[RowBatch]:
        """Yield the rows in ``part`` in file order, without the first ``skip_rows`` rows of the file."""
        ...

    def columns(self, rows: Sequence[Any]) -> RowColumns:
        """Convert rows to columns; raise one of BAD_INPUT if a row is bad."""
        ...

    def raw(self, row: Any) -> bytes:
        """Return the original bytes of a row, or the nearest equivalent."""
        ...


def format_of(kind: Kind, key: Form, value: Form) -> FileFormat:
    """Return the format for a kind of file, with the forms of a topic's keys and values."""
    if kind is Kind.CSV:
        return CsvRows(value)
    if kind is Kind.PARQUET:
        return ParquetRows(value)
    if kind is Kind.RECORDS:
        return LineRows(partial(_record_columns, key, value))
    if kind.is_text:
        return LineRows(partial(_text_columns, value), skips_blank=False)
    return LineRows(partial(_json_columns, value))


@frozen
class LineRows:
    """Files with one row per line; ``convert`` makes columns from lines, without blank lines if they are skipped."""

    convert: Callable[[Sequence[bytes]], RowColumns]
    skips_blank: bool = True
    unit: str = "line"
    heading: bytes = b""

    def batches(self, source: FileSource, kind: FileKind, skip_rows: int, part: Part = WHOLE) -> Iterator[RowBatch]:
        """Yield lines."""
        row = part.first_row
        for first_line, lines in line_chunks(source, kind, part):
            numbers: Sequence[int] = range(first_line, first_line + len(lines))
            if self.skips_blank and not all(map(bytes.strip, lines)):
                kept = [(number, line) for number, line in zip(numbers, lines, strict=True) if line.strip()]
                numbers, lines = [number for number, _ in kept], [line for _, line in kept]
            batch = RowBatch(row, numbers, lines)
            row += len(lines)
            if row > skip_rows:
                yield batch.from_row(skip_rows)

    def columns(self, rows: Sequence[bytes]) -> RowColumns:
        """Convert lines to columns."""
        return self.convert(rows)

    def raw(self, row: bytes) -> bytes:
        """Return the line."""
        return row


def _json_columns(value: Form, rows: Sequence[bytes]) -> RowColumns:
    """Return values from lines of JSON."""
    return RowColumns(value.all_from_json(list(map(bytes.strip, rows))))


def _text_columns(value: Form, rows: Sequence[bytes]) -> RowColumns:
    """Return values from lines; each line, even an empty one, is one value."""
    if value.serde is BYTES:
        return RowColumns(list(rows))
    return RowColumns([value.from_object(line.decode()) for line in rows])


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
    """Return all columns from records: ``{"key", "value", "timestamp", "headers", "partition"}``, one per line.

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
    timestamp, partition = record.timestamp, record.partition
    if timestamp is not msgspec.UNSET and not 0 <= timestamp < 1 << 63:
        raise ValueError(f"timestamp {timestamp} is no time; give epoch milliseconds, or leave it out")
    if partition is not None and partition < 0:
        raise ValueError(f"partition {partition} is negative")
    return record


def _header(name: str, value: str | Hex | None) -> tuple[str, bytes | None]:
    return name, value.encode() if isinstance(value, str) else None if value is None else value.data()


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
        """The column names."""
        return ",".join(self._header).encode(errors="surrogateescape") + b"\n"

    def batches(self, source: FileSource, kind: FileKind, skip_rows: int, part: Part = WHOLE) -> Iterator[RowBatch]:
        """Yield (cells, text) for each row; blank lines are skipped.

        Raises:
            InputError: two columns have the same name, or a quote is not closed.
        """
        text = _CsvText(line_chunks(source, kind, part))
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
                numbers, rows = [], []
        if rows:
            yield RowBatch(row - len(rows), numbers, rows)

    def columns(self, rows: Sequence[tuple[list[str], str]]) -> RowColumns:
        """Return the rows as columns; CSV rows have values only."""
        header, convert = self._header, self.value.from_object
        width = len(header)
        for cells, _ in rows:
            if len(cells) != width:
                raise ValueError(f"the row has {len(cells)} cells, the header {width}")
        return RowColumns([convert(dict(zip(header, cells, strict=True))) for cells, _ in rows])

    def raw(self, row: tuple[list[str], str]) -> bytes:
        """Return the line or lines that the row occupies."""
        return row[1].rstrip("\n").encode(errors="surrogateescape")


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

    value: Form
    unit: str = "row"
    heading: bytes = b""

    def batches(self, source: FileSource, kind: FileKind, skip_rows: int, part: Part = WHOLE) -> Iterator[RowBatch]:
        """Yield rows as dicts; row groups that are skipped entirely are not read.

        Raises:
            InputError: the file is not a Parquet file or is damaged.
        """
        import pyarrow as pa

        row = part.first_row
        try:
            with ExitStack() as stack:
                file = stack.enter_context(_parquet_file(source, kind))
                groups = list(range(file.num_row_groups))[part.start : part.end]
                while groups and row + file.metadata.row_group(groups[0]).num_rows <= skip_rows:
                    row += file.metadata.row_group(groups.pop(0)).num_rows
                for batch in file.iter_batches(BATCH_ROWS, row_groups=groups) if groups else ():
                    first, row = row, row + batch.num_rows
                    if row > skip_rows:
                        rows = _plain_times(batch).to_pylist(maps_as_pydicts="strict")
                        yield RowBatch(first, range(first + 1, row + 1), rows).from_row(skip_rows)
        except (pa.ArrowException, OSError, EOFError) as error:
            raise InputError(f"{source}: row {row + 1}: not a whole Parquet file: {error}; make it again") from error

    def columns(self, rows: Sequence[dict[str, Any]]) -> RowColumns:
        """Return the rows as columns; Parquet rows have values only."""
        return RowColumns(list(map(self.value.from_object, rows)))

    def raw(self, row: dict[str, Any]) -> bytes:
        """Return the row as JSON."""
        try:
            return msgspec.json.encode(row, enc_hook=repr)
        except BAD_INPUT:
            return repr(row).encode(errors="replace")


@contextmanager
def _parquet_file(source: FileSource, kind: FileKind) -> Iterator[Any]:
    """Open a Parquet file."""
    import pyarrow.parquet as pq

    with _unpacked(source, kind) if kind.is_gzip else source.opened() as stream, pq.ParquetFile(stream) as file:
        yield file


def row_groups(source: FileSource, kind: FileKind) -> list[tuple[int, int]]:
    """Return (number of rows, size in bytes) for each row group in a Parquet file.

    Raises:
        InputError: the file is not a Parquet file or is damaged.
    """
    import pyarrow as pa

    try:
        with _parquet_file(source, kind) as file:
            found = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            return [(group.num_rows, group.total_byte_size) for group in found]
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InputError(f"{source}: not a whole Parquet file: {error}; make it again") from error


def _unpacked(source: FileSource, kind: FileKind) -> IO[bytes]:
    """Return an uncompressed temporary copy, because reading Parquet starts at the end of the file."""
    target = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it.
    with open_binary(source, kind) as stream:
        shutil.copyfileobj(stream, target, 1 << 20)
    target.seek(0)
    return target


def _plain_times(batch: Any) -> Any:
    """Return the batch with times in microseconds, as in Python, and times with a time zone in UTC."""
    import pyarrow as pa

    plain: Callable[[Any], Any] = lambda kind: pa.timestamp("us", "UTC" if kind.tz else None)  # noqa: E731
    for index, part in enumerate(batch.schema):
        if pa.types.is_timestamp(part.type) and part.type != plain(part.type):
            column = batch.column(index).cast(plain(part.type), safe=False)
            batch = batch.set_column(index, part.name, column)
    return batch
