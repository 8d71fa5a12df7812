"""Which kind a file is, by its suffix, and how it is opened.

Between a path that the user typed and the readers and writers.  Imports core only.
"""

import gzip
import os
import zlib
from enum import Enum
from pathlib import Path
from typing import IO, cast

from attrs import frozen

from streams.core.errors import InputError

#: What stands for standard output.
STANDARD_OUTPUT = "-"

_GZIP_MAGIC = b"\x1f\x8b"

#: What reading a damaged or mislabelled compressed file raises.
GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)


class Kind(Enum):
    """Forms that the rows of a file can have."""

    RECORDS = ".records.jsonl"
    JSON_LINES = ".jsonl"
    CSV = ".csv"
    LOG = ".log"
    TEXT = ".txt"
    PARQUET = ".parquet"

    @property
    def is_text(self) -> bool:
        """True where each line is a string value."""
        return self in (Kind.LOG, Kind.TEXT)


WRITTEN = (Kind.RECORDS, Kind.JSON_LINES, Kind.PARQUET)


@frozen
class FileKind:
    """A kind, and whether the file is compressed with gzip."""

    kind: Kind
    is_gzip: bool = False


def listed(kinds: tuple[Kind, ...] = tuple(Kind)) -> str:
    """Return suffixes as a message lists them."""
    return ", ".join(kind.value for kind in kinds)


def kind_of(path: str | os.PathLike[str]) -> FileKind | None:
    """Return the kind that a path's suffix names, or None.

    >>> kind_of("a/access.LOG.gz")
    FileKind(kind=<Kind.LOG: '.log'>, is_gzip=True)
    """
    name = os.fspath(path).lower()
    is_gzip = name.endswith(".gz")
    name = name.removesuffix(".gz")
    for kind in Kind:  # The longer suffix stands first.
        if name.endswith(kind.value):
            return FileKind(kind, is_gzip)
    return None


def input_kind(path: Path) -> FileKind:
    """Return the kind of a file to read, after a look at the file itself.

    Raises:
        InputError: there is no such file, it cannot be read, or its suffix is not known or
            contradicts its first bytes.
    """
    kind = kind_of(path)
    if kind is None:
        raise InputError(f"{path}: its suffix tells no kind of file; known are {listed()}, each also with .gz")
    try:
        with path.open("rb") as stream:
            magic = stream.read(2)
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file{_nearby(path)}") from error
    except IsADirectoryError as error:
        raise InputError(f"{path}: is a directory; give one file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if kind.is_gzip and magic and magic != _GZIP_MAGIC:
        raise InputError(f"{path}: is not compressed with gzip, as its name says; rename it without .gz")
    if not kind.is_gzip and magic == _GZIP_MAGIC:
        raise InputError(f"{path}: is compressed with gzip; rename it to {path.name}.gz")
    return kind


def open_binary(path: Path, kind: FileKind) -> IO[bytes]:
    """Open a file for reading its uncompressed bytes."""
    if kind.is_gzip:
        return cast(IO[bytes], gzip.open(path, "rb"))
    return path.open("rb")


def _nearby(path: Path) -> str:
    """Return a hint at what is missing: the folder, or a similar name in it."""
    folder = path.parent
    if not folder.is_dir():
        return f"; its folder {str(folder)!r} does not exist either"
    from difflib import get_close_matches

    names = sorted(entry.name for entry in folder.iterdir())[:1000]
    close = get_close_matches(path.name, names, n=1)
    return f"; did you mean {str(folder / close[0])!r}?" if close else f" in {str(folder.resolve())!r}"
