"""Kinds of files, which are determined by the suffix, and functions that open files.

This module connects paths given by the user with the readers and writers.
Of the other packages, this module imports only ``core``.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import IO

from attrs import evolve, frozen

from streams.core.errors import InputError
from streams.core.nearest import nearest
from streams.files.compression import COMPRESSED, COMPRESSIONS

#: The name of standard output.
STANDARD_OUTPUT = "-"


class Kind(Enum):
    """The kinds of files, which differ in the form of their rows."""

    RECORDS = ".records.jsonl"
    JSON_LINES = ".jsonl"
    JSON = ".json"
    CSV = ".csv"
    LOG = ".log"
    TEXT = ".txt"
    PARQUET = ".parquet"

    @property
    def is_text(self) -> bool:
        """Whether each line is a string value."""
        return self in (Kind.LOG, Kind.TEXT)

    @property
    def is_lines(self) -> bool:
        """Whether each line is a row, possibly except for blank lines."""
        return self.is_text or self in (Kind.RECORDS, Kind.JSON_LINES)


WRITTEN = (Kind.RECORDS, Kind.JSON_LINES, Kind.PARQUET)
#: The kinds by suffix, longer suffixes first.
_SUFFIXES = {
    suffix: kind for kind in Kind for suffix in ((kind.value, ".ndjson") if kind is Kind.JSON_LINES else (kind.value,))
}


@frozen
class FileKind:
    """The kind of a file, and the suffix of its compression, such as ``.gz``."""

    kind: Kind
    compression: str = ""


@frozen
class FileSource:
    """A file to read, with a name, and a function that opens the file.

    ``opened`` raises an ``OSError`` if the file cannot be opened.  ``lines`` is given instead of
    the content if the file is already split into lines; they can be read only once.  ``kind`` is given if the suffix
    of the name does not determine it.
    """

    name: str
    opened: Callable[[], IO[bytes]]
    lines: Iterable[list[bytes]] | None = None
    kind: FileKind | None = None

    @classmethod
    def local(cls, path: str | os.PathLike[str]) -> "FileSource":
        """Return the source for a path of this machine, which is opened when it is read."""
        return cls(os.fspath(path), lambda: open(path, "rb"))

    def __str__(self) -> str:
        return self.name


@frozen
class Part:
    """A part of a file, by default the whole file.  Bounds are bytes at line ends, or row groups in Parquet.

    The part begins with row ``first_row``, counted from 0, and line ``first_line``, counted from 1.
    """

    start: int = 0
    #: None for the end of the file.
    end: int | None = None
    first_row: int = 0
    first_line: int = 1


WHOLE = Part()


def listed(kinds: tuple[Kind, ...] = tuple(Kind)) -> str:
    """Return the suffixes of ``kinds`` as a comma-separated list, for messages."""
    return ", ".join(suffix for suffix, kind in _SUFFIXES.items() if kind in kinds)


def kind_of(path: str | os.PathLike[str]) -> FileKind | None:
    """Return the kind for a path's suffix, or None if the suffix is not known.

    >>> kind_of("a/access.LOG.gz")
    FileKind(kind=<Kind.LOG: '.log'>, compression='.gz')
    """
    name = os.fspath(path).lower()
    compression = next((suffix for suffix in COMPRESSIONS if name.endswith(suffix)), "")
    name = name.removesuffix(compression)
    return next((FileKind(kind, compression) for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)


def input_kind(source: FileSource) -> FileKind:
    """Return the kind of an input file, checking the file's first bytes.

    Raises:
        InputError: the file does not exist or cannot be read, or its suffix is not known or
            contradicts the first bytes.
    """
    path = Path(source.name)
    kind = source.kind or kind_of(source.name)
    if kind is None:
        if path.is_dir():
            raise InputError(f"{source}: is a folder; give one of its files here (`streams replay` reads folders)")
        raise InputError(
            f"{source}: its suffix is not of a known kind of file; known are {listed()}, each also with {COMPRESSED}"
        )
    if source.lines is not None:
        return evolve(kind, compression="")
    try:
        with source.opened() as stream:
            head = stream.read(4)
    except FileNotFoundError as error:
        raise InputError(f"{source}: there is no such file{nearby(path)}") from error
    except IsADirectoryError as error:
        raise InputError(f"{source}: is a directory; give one file") from error
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror or error}") from error
    actual = next((suffix for suffix, it in COMPRESSIONS.items() if head.startswith(it.magics)), "")
    if kind.compression and head and kind.compression != actual:
        name = COMPRESSIONS[kind.compression].name
        raise InputError(
            f"{source}: is not compressed with {name}, as its name says; rename it "
            + (f"so that it ends with {actual}" if actual else f"without {kind.compression}")
        )
    if not kind.compression and actual:
        raise InputError(f"{source}: is compressed with {COMPRESSIONS[actual].name}; rename it to {path.name}{actual}")
    return kind


@contextmanager
def open_binary(source: FileSource, kind: FileKind) -> Iterator[IO[bytes]]:
    """Open a file for reading within a ``with`` block; a compressed file is decompressed."""
    with source.opened() as stream:
        if not kind.compression:
            yield stream
            return
        with COMPRESSIONS[kind.compression].reader(stream) as content:
            yield content


def nearby(path: Path, pattern: str = "*") -> str:
    """Return a hint for a missing file: its folder is missing, or has a similar name that matches ``pattern``."""
    folder = path.parent
    if not folder.is_dir():
        return f"; its folder {str(folder)!r} does not exist either"
    near = nearest(path.name, sorted(entry.name for entry in folder.glob(pattern))[:1000])
    return f" in {str(folder.resolve())!r}" if near is None else f"; did you mean {str(folder / near)!r}?"
