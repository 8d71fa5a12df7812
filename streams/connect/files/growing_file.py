"""A file that grows, opened at a position, and the files that its rotation has left.

A position names the file by its inode, and says what was read of it: the byte after the last whole line, and a digest
of the first and the last KiB before it.  So a file that was truncated, replaced or copied is recognized.
Of other packages, this module imports only ``core``.
"""

import os
import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Final

from attrs import define, field

from streams.connect.errors import ConnectError
from streams.core.dialect import Csv

#: Bytes at the beginning, and before the position, whose digest is in a position.
_COMPARED: Final = 1024
#: A longer line means that this is not a file of lines.
_LONGEST: Final = 64 << 20
#: What rotation adds to the name of a file: numbers and dates.
_ROTATED: Final = re.compile(r"[.-][0-9][0-9T._-]*")
_BOM: Final = b"\xef\xbb\xbf"


class LongLineError(Exception):
    """A line is longer than any line of data; the argument is the limit in bytes."""


@define(eq=False)
class GrowingFile:
    """An open file, and what was read of it so far; a last line without line end is not read yet.

    With ``csv``, a row may have line ends within quotes, and is read when it is whole.
    """

    path: Path
    stream: BinaryIO
    inode: int
    csv: Csv | None
    #: The byte after the last whole row that was read, and the number of the line there.
    offset: int = 0
    line: int = 1
    _head: bytes = b""
    _tail: bytes = b""
    _heading: list[bytes] = field(factory=list)
    #: Bytes that are read at once, more if a line is longer.
    _size: int = field(default=1 << 20, kw_only=True)

    @classmethod
    def begin(cls, path: Path, *, csv: Csv | None) -> "GrowingFile | None":
        """Open a file at its beginning; return None if there is none."""
        try:
            stream = open(path, "rb", buffering=0)  # noqa: SIM115 - it is closed by close().
        except FileNotFoundError:
            return None
        return cls(path, stream, os.fstat(stream.fileno()).st_ino, csv)

    @classmethod
    def resume(cls, path: Path, position: dict[str, Any], *, csv: Csv | None) -> "GrowingFile | None":
        """Open a file at a position; return None if it does not have what was read up to there."""
        file = cls.begin(path, csv=csv)
        if file is None:
            return None
        file.offset = position["offset"]
        file.line = position["line"]
        size = min(_COMPARED, file.offset)
        file._head = os.pread(file.stream.fileno(), size, 0)
        file._tail = os.pread(file.stream.fileno(), size, file.offset - size)
        if len(file._tail) == size and file._mark() == position["mark"]:
            return file
        file.close()
        return None

    @property
    def position(self) -> dict[str, Any]:
        """The position after what was read, as JSON."""
        return {"inode": self.inode, "offset": self.offset, "line": self.line, "mark": self._mark()}

    @property
    def is_unchanged(self) -> bool:
        """Whether the file still has what was read of it: it was neither truncated nor written over."""
        descriptor = self.stream.fileno()
        before = self.offset - len(self._tail)
        return (
            os.pread(descriptor, len(self._head), 0) == self._head
            and os.pread(descriptor, len(self._tail), before) == self._tail
        )

    @property
    def size(self) -> int:
        """The size in bytes."""
        return os.fstat(self.stream.fileno()).st_size

    @property
    def modified_ns(self) -> int:
        """When the file was written last, in nanoseconds."""
        return os.fstat(self.stream.fileno()).st_mtime_ns

    def peek(self, *, is_whole: bool = False) -> bytes:
        """Return the next whole rows; with ``is_whole`` nothing is written any more, and the rest is a row too.

        Raises:
            LongLineError: a line is longer than any line of data.
        """
        size = self._size
        while True:
            data = os.pread(self.stream.fileno(), size, self.offset)
            if self.csv is not None and not self.offset:
                _check_csv(self.path, data)
            end = data.rfind(b"\n") + 1 if self.csv is None else _end_of_rows(data, self.csv)
            if end or len(data) < size:
                return data[:end] or (data if is_whole else b"")
            if size >= _LONGEST:
                raise LongLineError(_LONGEST)
            size *= 2

    def take(self, data: bytes) -> None:
        """Move the position after rows that ``peek`` has returned."""
        self.offset += len(data)
        self.line += data.count(b"\n")
        self._head = (self._head + data[:_COMPARED])[:_COMPARED]
        self._tail = (self._tail + data[-_COMPARED:])[-_COMPARED:]

    def heading(self) -> list[bytes]:
        """Return the lines of the first row of a CSV file, which was read; it is the same as long as the file is."""
        if not self._heading:
            self._heading = self._first_row()
        return self._heading

    def _first_row(self) -> list[bytes]:
        data = os.pread(self.stream.fileno(), min(self.offset, self._size), 0).removeprefix(_BOM)
        lines: list[bytes] = []
        is_quoted = False
        for line in data.split(b"\n"):
            if lines or line.strip():
                lines.append(line)
                assert self.csv is not None, "other files have no heading"
                is_quoted = _is_quoted(line, is_quoted, self.csv)
                if not is_quoted:
                    break
        return lines

    def close(self) -> None:
        self.stream.close()

    def _mark(self) -> str:
        return blake2b(self._head + self._tail, digest_size=16).hexdigest()


def _check_csv(path: Path, data: bytes) -> None:
    """Check the beginning of a file of CSV.

    Raises:
        ConnectError: its lines end with carriage returns alone, after which no row is seen to be whole, or it begins
            with a line that gives the delimiter.
    """
    if b"\n" not in data and b"\r" in data[:-1] and b'"' not in data:
        raise ConnectError(f"{path}: its lines end with carriage returns alone; FolderSource reads such files whole")
    if data.removeprefix(_BOM).lstrip(b'"').startswith(b"sep="):
        raise ConnectError(f"{path}: begins with a line sep=, which FolderSource reads; give file_format= instead")


def _end_of_rows(data: bytes, csv: Csv) -> int:
    """Return where the last whole row of CSV ends: at a line end outside of quotes."""
    end = at = 0
    is_quoted = False
    for line in data.split(b"\n")[:-1]:
        at += len(line) + 1
        is_quoted = _is_quoted(line, is_quoted, csv)
        if not is_quoted:
            end = at
    return end


def _is_quoted(line: bytes, is_quoted: bool, csv: Csv) -> bool:
    """Whether quotes are open at the end of a line, if they were at its beginning or not.

    As for the reader of the rows, only a quote at the beginning of a cell opens them: that of ``5" pipe`` is text.
    """
    quote_mark = csv.quote.encode(csv.encoding)
    if not quote_mark or quote_mark not in line:
        return is_quoted
    opening = csv.delimiter.encode(csv.encoding) + quote_mark
    line = line.removeprefix(_BOM)
    at = 0
    if not is_quoted and line.startswith(quote_mark):
        is_quoted = True
        at = 1
    while True:
        quote = line.find(quote_mark if is_quoted else opening, at)
        if quote < 0:
            return is_quoted
        if not is_quoted:
            is_quoted = True
            at = quote + len(opening)
        elif line.startswith(quote_mark * 2, quote):
            at = quote + 2
        else:
            is_quoted = False
            at = quote + 1


def file_of_inode(folder: Path, inode: int) -> Iterator[Path]:
    """Yield the file of a folder that has an inode, whatever its name is."""
    with os.scandir(folder) as entries:
        yield from [Path(entry.path) for entry in entries if entry.inode() == inode and entry.is_file()]


def rotated(path: Path) -> list[Path]:
    """Return what rotation has left of a file, such as ``app.log.1``, uncompressed, the oldest first."""
    files = []
    with os.scandir(path.parent) as entries:
        for entry in entries:
            end = entry.name.removeprefix(path.name)
            is_rotated = end != entry.name and _ROTATED.fullmatch(end) is not None
            if (is_rotated or _is_dated(path, entry.name)) and entry.is_file():
                files.append((entry.stat().st_mtime_ns, entry.name))
    return [path.parent / name for _, name in sorted(files)]


def _is_dated(path: Path, name: str) -> bool:
    """Whether a name has a number or date before its suffix, such as ``app-20260101.log``."""
    middle = name.removeprefix(path.stem).removesuffix(path.suffix)
    is_around = name.startswith(path.stem) and name.endswith(path.suffix) and name != path.name
    return is_around and bool(path.suffix) and _ROTATED.fullmatch(middle) is not None
