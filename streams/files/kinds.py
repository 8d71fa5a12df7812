"""Kinds of files, which are determined by the suffix, and functions that open files.

This module connects paths given by the user with the readers and writers.
Of the other packages, this module imports only ``core``.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import IO, Any, TypeAlias

from attrs import evolve, field, frozen

from streams.core.dialect import Csv
from streams.core.errors import ConfigError, InputError
from streams.core.nearest import meant, nearest
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


#: The forms of records in outputs: ``auto``, aligned columns, whole records as JSON, or values as JSON.
FORMS = ("auto", "table", "json", "value")
WRITTEN = (Kind.RECORDS, Kind.JSON_LINES, Kind.PARQUET)
#: The kinds by suffix, longer suffixes first.
_SUFFIXES = {
    suffix: kind for kind in Kind for suffix in ((kind.value, ".ndjson") if kind is Kind.JSON_LINES else (kind.value,))
}


_PLAIN_CSV = Csv()


@frozen
class FileKind:
    """The kind of a file, the suffix of its compression, such as ``.gz``, and the options of CSV."""

    kind: Kind
    compression: str = ""
    csv: Csv = _PLAIN_CSV
    #: The path of the input, as a folder, that the file is from; empty for the file itself.
    location: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the file cannot be read in part, by lines that end with a byte."""
        return self.kind in (Kind.PARQUET, Kind.JSON) or "a\n".encode(self.csv.encoding) != b"a\n"

    def advice(self, source: "FileSource", **options: Any) -> str:
        """Return the options of CSV to give for a file, as they are typed."""
        csv = evolve(self.csv, **options)
        text = f"?{csv}" if str(csv) else ""
        return f'give "csv:{self.location or source.name}{text}" as the input, or file_format="csv{text}" in code'


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
    def local(cls, path: str | os.PathLike[str], kind: FileKind | None = None) -> "FileSource":
        """Return the source for a path of this machine, which is opened when it is read."""
        return cls(os.fspath(path), lambda: open(path, "rb"), kind=kind)

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


#: The kinds by the names of formats.
_KINDS = {
    "jsonl": Kind.JSON_LINES,
    "json": Kind.JSON,
    "records": Kind.RECORDS,
    "csv": Kind.CSV,
    "text": Kind.TEXT,
    "parquet": Kind.PARQUET,
}

#: The format of files: a name, for CSV also with options, as ``csv?delimiter=;``, or these options as an object.
FormatOption: TypeAlias = str | Csv
#: What is between the path of a CSV file and its options; the question mark of a pattern has no name behind it.
_OPTIONS = re.compile(r"[?](?=[A-Za-z_]+(?:=|&|$))")


@frozen
class Location:
    """The path of files as it is given, which may be a folder or pattern, and their format if suffixes do not say it.

    Raises:
        ConfigError: there is no such format, or an option is invalid.
    """

    path: str = ""
    file_format: FormatOption = ""
    _kind: Kind | None = field(init=False, eq=False, repr=False)
    _csv: Csv = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        kind, csv = (Kind.CSV, self.file_format) if isinstance(self.file_format, Csv) else _named(self.file_format)
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_csv", csv)

    @classmethod
    def parse(cls, text: str) -> "Location":
        """Return the location in a text: a path, or ``FORMAT:PATH``, for CSV also with options behind the path.

        >>> Location.parse("csv:orders/*.csv?delimiter=;")
        Location(path='orders/*.csv', file_format='csv?delimiter=;')

        Raises:
            ConfigError: an option is invalid, or the name of the format is missing or misspelt.
        """
        name, _, rest = text.partition(":")
        path, *options = _OPTIONS.split(rest, maxsplit=1)
        if name in _KINDS:
            return cls(path, "?".join([name, *options]))
        near = nearest(name, _KINDS) if name.isalpha() and not rest.startswith("//") else None
        meant = f"{near}:{rest}" if near else f"csv:{text}" if re.search("[?][a-z]+=", text) else ""
        if meant and not os.path.exists(text):
            raise ConfigError(f"{text}: there is no such path or format; did you mean {meant}?")
        return cls(text)

    def kind_of(self, path: str | os.PathLike[str]) -> "FileKind | None":
        """Return the kind of one of the files, or None if no format is given and its suffix is not known."""
        name = os.fspath(path).lower()
        compression = next((suffix for suffix in COMPRESSIONS if name.endswith(suffix)), "")
        name = name.removesuffix(compression)
        kind = self._kind or next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)
        return None if kind is None else FileKind(kind, compression, self._csv, self.path)


def _named(name: str) -> tuple[Kind | None, Csv]:
    if not name:
        return None, _PLAIN_CSV
    name, _, options = name.partition("?")
    if name not in _KINDS:
        raise ConfigError(f"there is no file format {name!r}: {meant(name, _KINDS)}")
    if options and name != "csv":
        raise ConfigError(f"file format {name} has no options, such as {options}; only csv has")
    return _KINDS[name], Csv.parse(options)


#: Files whose kinds are those of their suffixes.
BY_SUFFIX = Location()


def kind_of(path: str | os.PathLike[str]) -> FileKind | None:
    """Return the kind for a path's suffix, or None if the suffix is not known.

    >>> kind = kind_of("a/access.LOG.gz")
    >>> kind.kind, kind.compression
    (<Kind.LOG: '.log'>, '.gz')
    """
    return BY_SUFFIX.kind_of(path)


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
        plain = FileKind(Kind.CSV)
        raise InputError(
            f"{source}: its suffix is not of a known kind of file; known are {listed()}, each also with {COMPRESSED}; "
            f"else name the format: {plain.advice(source, delimiter='tab' if '.tsv' in path.suffixes else ',')}"
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
