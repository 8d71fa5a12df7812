"""Division of files into parts for several processes, and the row counts of parts.

An uncompressed file with lines is divided at line ends, and a Parquet file between row groups.  Compressed files
and CSV files, whose cells may contain line ends, are not divided.
"""

from collections.abc import Iterator

from attrs import evolve

from streams.core.errors import InputError
from streams.files.formats import format_of, row_groups
from streams.files.kinds import WHOLE, FileKind, FileSource, Kind, Part
from streams.files.lines import MAX_LINE_BYTES, count_lines
from streams.values import form_of

_LOOK_BYTES = 1 << 16


def cut_file(
    source: FileSource, kind: FileKind, size_bytes: int, part_bytes: int
) -> Iterator[tuple[Part, int | None, int]]:
    """Yield (part, number of rows or None, approximate size in bytes) for the parts of a file.

    The number of rows is None if it is not known without reading.  Only the first ``size_bytes`` bytes are used;
    bytes appended in the meantime are omitted.

    Raises:
        InputError: the file cannot be read.
    """
    if kind.compression:
        yield WHOLE, None, size_bytes
    elif kind.kind is Kind.PARQUET:
        yield from _cut_row_groups(row_groups(source, kind), part_bytes)
    elif not kind.kind.is_lines or size_bytes <= part_bytes:
        yield Part(0, size_bytes), None, size_bytes
    else:
        start = 0
        count = max(1, round(size_bytes / part_bytes))
        for number in range(1, count + 1):
            end = size_bytes if number == count else _line_end(source, size_bytes * number // count, size_bytes)
            if end > start:
                yield Part(start, end), None, end - start
                start = end


def _cut_row_groups(groups: list[tuple[int, int]], part_bytes: int) -> Iterator[tuple[Part, int, int]]:
    start = rows = size = row = 0
    for number, (count, size_bytes) in enumerate(groups):
        rows = rows + count
        size = size + size_bytes
        if size >= part_bytes or number == len(groups) - 1:
            yield Part(start, number + 1, row), rows, size
            start = number + 1
            row = row + rows
            rows = 0
            size = 0


def _line_end(source: FileSource, position: int, size_bytes: int) -> int:
    """Return the start of the first line at or after ``position``."""
    try:
        with source.opened() as stream:
            stream.seek(position - 1)
            end = position - 1
            while chunk := stream.read(_LOOK_BYTES):
                newline = chunk.find(b"\n")
                if newline >= 0:
                    return min(end + newline + 1, size_bytes)
                end += len(chunk)
                if end - position > MAX_LINE_BYTES:
                    break  # The error is reported by the reader of the line.
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror or error}") from error
    return size_bytes


def count_rows(source: FileSource, kind: FileKind, part: Part) -> tuple[int, int]:
    """Return the number of rows and of lines in a part; both are equal for files that are not counted in lines.

    Raises:
        InputError: the file cannot be read to its end.
    """
    if kind.kind.is_lines:
        return count_lines(source, kind, part, skip_blank=not kind.kind.is_text)
    if kind.kind is Kind.PARQUET:
        rows = sum(count for count, _ in row_groups(source, kind))
        return rows, rows
    unknown = form_of(None)
    reader = format_of(source, kind, unknown, unknown)
    rows = sum(len(batch.rows) for batch in reader.batches(source, kind, 0, evolve(part, first_row=0, first_line=1)))
    return rows, rows
