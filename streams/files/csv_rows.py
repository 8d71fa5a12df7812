"""The rows of CSV files, with the options that say how the files are written.

This module imports only ``core``, ``values``, ``kinds``, ``lines``, ``rows`` and ``folder_columns``.
"""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from attrs import define, field

from streams.core.dialect import Csv
from streams.core.errors import InputError
from streams.files.folder_columns import Cells, unequal
from streams.files.kinds import WHOLE, FileKind, FileSource, Part
from streams.files.lines import BATCH_ROWS, MAX_LINE_BYTES, text_lines
from streams.files.rows import FileFormat, RowBatch, RowColumns
from streams.values import BAD_INPUT, Form, check_names, null_cells


@define
class CsvRows:
    """CSV files; each row is a dict of text, with None for null cells."""

    source: FileSource
    kind: FileKind
    value: Form
    #: The columns of the folders, which are in each row.
    folder: Cells
    unit: str = "line"
    _header: list[str] = field(factory=list)
    _nulls: Callable[[dict[str, str | None]], dict[str, str | None]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._nulls = null_cells(self.value.declared, self.kind.csv.null)

    @property
    def heading(self) -> bytes:
        """The header line with the column names."""
        return ",".join(self._header).encode(errors="surrogateescape") + b"\n"

    def batches(self, source: FileSource, kind: FileKind, skip_rows: int, part: Part = WHOLE) -> Iterator[RowBatch]:
        """Yield (cells, text) for each row; a blank line is skipped, or an empty cell where there is one column.

        Raises:
            InputError: a column has the name of another one, or of a field in another case; a quote is not closed, or
                the options do not fit the file.
        """
        text = _CsvText(text_lines(source, kind, part))
        reader = self._reader(text)
        self._header = []
        numbers: list[int] = []
        rows: list[tuple[list[str], str]] = []
        row = 0
        taken = text.taken
        lines_before = part.first_line + text.skipped
        while True:
            taken.clear()
            line = lines_before + reader.line_num
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
            if not cells and len(self._header) == 1 and not text.is_start:
                cells = [""]  # As polars, DuckDB and pyarrow write a null.
            if not cells or (text.is_start and self._is_header(text, line, cells)):
                continue
            row += 1
            if row > skip_rows:
                rows.append((cells, "".join(taken)))
                numbers.append(line)
            if len(rows) >= BATCH_ROWS:
                yield RowBatch(row - len(rows), numbers, rows)
                numbers = []
                rows = []
        if rows:
            yield RowBatch(row - len(rows), numbers, rows)

    def _reader(self, text: "_CsvText") -> Any:
        """Return the reader of the rows; a first line ``sep=;``, as Excel reads it, gives the delimiter."""
        options = self.kind.csv
        delimiter = options.delimiter
        separator = re.fullmatch('\ufeff?"?sep=(.)"?[\r\n]*', text.first)
        if separator is not None and delimiter not in (separator[1], _PLAIN_DELIMITER):
            raise InputError(f"{self.source}:1: says sep={separator[1]}, but the delimiter is {delimiter!r}")
        if separator is not None:
            delimiter = separator[1]
            text.skipped = 1
        # The limit is of the process, and is never lowered here.
        csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
        if options.quote:
            return csv.reader(text, strict=True, delimiter=delimiter, quotechar=options.quote)
        return csv.reader(text, strict=True, delimiter=delimiter, quoting=csv.QUOTE_NONE)

    def _is_header(self, text: "_CsvText", line: int, cells: list[str]) -> bool:
        """Return whether the first row is the header, also that of a file that was joined to another one."""
        text.is_start = False
        if self._header:
            is_header = self.kind.csv.columns is None and sorted(cells) == sorted(self._header)
            if is_header and cells != self._header:
                raise InputError(f"{self.source}:{line}: has the columns of line 1 in another order; give two files")
            return is_header
        _check_dialect(self.source, self.kind, line, cells)
        names = self.kind.csv.columns
        self._header = list(names or cells)
        doubles = sorted({name for name in self._header if self._header.count(name) > 1})
        if doubles:
            raise InputError(f"{self.source}:{line}: column {doubles[0]!r} stands twice in the header; rename one")
        if names and [cell.casefold() for cell in cells] == [name.casefold() for name in names]:
            raise InputError(f"{self.source}:{line}: is a header with these names; leave the option columns out")
        check_names(self.value.declared, self._header, f"{self.source}:{line}")
        return names is None

    def declared(self) -> FileFormat:
        return self

    def columns(self, rows: Sequence[tuple[list[str], str]]) -> RowColumns:
        """Return the rows as columns; CSV rows contain only values."""
        header = self._header
        null = self.kind.csv.null
        convert = self.value.from_cells
        nulls = self._nulls
        for cells, _ in rows:
            if len(cells) != len(header):
                raise ValueError(f"the row has {len(cells)} cells, the header {len(header)}")
        try:
            values = []
            for cells, _ in rows:
                row: dict[str, str | None] = dict(zip(header, cells, strict=False))
                if self.folder:
                    row = self._in_folder(row)
                elif "" in cells or (null and null in cells):
                    row = nulls(row)
                values.append(convert(row))
            return RowColumns(values)
        except BAD_INPUT as error:
            for _, text in rows:
                malformed = _MALFORMED.search(text)
                if malformed:
                    encoding = self.kind.csv.encoding
                    byte = ord(malformed[0]) - 0xDC00
                    raise ValueError(
                        f"byte 0x{byte:02x} is not {encoding.upper()}; if the file is in another encoding, "
                        f"{self.kind.advice(self.source, encoding='latin-1' if encoding == 'utf-8' else 'utf-8')}"
                    ) from error
            raise

    def _in_folder(self, row: dict[str, str | None]) -> dict[str, str | None]:
        """Return a row with the columns of the folders."""
        for name, cell in self.folder.items():
            own = row.get(name, cell)
            if own != cell and not (cell is None and own in ("", self.kind.csv.null)):
                raise ValueError(unequal(name, own, cell))
        return self._nulls({**row, **self.folder})

    def raw(self, row: tuple[list[str], str]) -> bytes:
        """Return the line or lines that the row occupies."""
        return row[1].rstrip("\r\n").encode(errors="surrogateescape")


_PLAIN_DELIMITER = Csv().delimiter
#: A byte that is malformed in the encoding of a file.
_MALFORMED = re.compile("[\udc80-\udcff]")


@define
class _CsvText:
    """The lines of a file as text; ``taken`` collects those of the current row."""

    lines: Iterator[list[str]]
    taken: list[str] = field(factory=list)
    #: Whether the next row is the first one, also of a file that was joined to another one.
    is_start: bool = True
    #: The number of first lines that are no rows.
    skipped: int = 0
    _begin: list[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._begin = next(self.lines, [])

    @property
    def first(self) -> str:
        """The first line."""
        return self._begin[0] if self._begin else ""

    def __iter__(self) -> Iterator[str]:
        take = self.taken.append
        for lines in chain([self._begin[self.skipped :]], self.lines):
            for text in lines:
                if text[0] == "\ufeff" and not self.taken:
                    text = text[1:]
                    self.is_start = True
                take(text)
                yield text


def _check_dialect(source: FileSource, kind: FileKind, line: int, cells: list[str]) -> None:
    """Check that the first row does not look like that of a file with other options.

    Raises:
        InputError: it has one column with delimiters in it, or is in another encoding.
    """
    if any(map(_MALFORMED.search, cells)):
        remedy = kind.advice(source, encoding="latin-1")
        raise InputError(f"{source}:{line}: the header is not {kind.csv.encoding.upper()}; if it is Latin-1, {remedy}")
    other = next((delimiter for delimiter in ";\t|," if len(cells) == 1 and delimiter in cells[0]), None)
    if other is not None:
        remedy = kind.advice(source, delimiter=other)
        raise InputError(f"{source}:{line}: has one column, {cells[0]!r:.80}; if {other!r} is its delimiter, {remedy}")
