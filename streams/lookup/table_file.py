"""Look-ups in a Parquet or CSV file, which is kept in memory and reloaded when it changes.

Of the other packages, this module imports only ``core`` and ``files``.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from numbers import Number
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import msgspec

from streams.core.clock import Clock, SystemClock
from streams.core.errors import ConfigError, InputError, StreamsError
from streams.core.user_code import refuse_unawaited
from streams.files import FileKind, FileSource, FormatOption, Kind, Location, open_binary

A = TypeVar("A")

log = logging.getLogger(__name__)

#: The inode, size and modification time of a file; a different value means that the file has changed.
_Version: TypeAlias = tuple[int, int, int]


class FileLookUp(Generic[A]):
    """Looks a key up in a table from a Parquet, JSON or CSV file; the answer is None if no row has the key.

    ``key`` is the name of the key column.  ``row`` is called with the other columns as keyword arguments, and returns
    the answer.  The same object is the answer for all records with this key, so do not modify it.  ``text`` has the
    names of CSV columns that are read as strings rather than as numbers or dates (default: the key column).
    ``file_format`` is "csv", "json", "jsonl" or "parquet", by default that of the suffix, or else CSV; options of CSV
    are a ``streams.Csv``, or text, as in "csv?delimiter=;".

    All rows are in memory, so ``look_up`` neither caches answers nor starts calls.  A look-up checks at most once per
    ``check`` (default: one second) whether the file has changed.  A changed file is loaded when two checks in
    succession find it unchanged, and replaces all rows at once.  If it cannot be read, for example because it is still
    being written, the previous rows remain in use, and a warning with the reason is logged.  To update the file, write
    a new file and rename it over the old one: an incomplete CSV file may look like a complete one.

    Raises:
        InputError: the file cannot be read, a column is missing or occurs twice, a key occurs twice, or ``row`` failed.
        ConfigError: ``check`` is negative, ``text`` is not a tuple, there is no such ``file_format``, or ``row`` is
            async.
    """

    #: Read by ``look_up``, which then uses neither calls nor a cache.
    answers_from_memory: ClassVar = True

    def __init__(
        self,
        path: str | Path,
        *,
        key: str,
        row: Callable[..., A],
        text: tuple[str, ...] | None = None,
        file_format: FormatOption = "",
        check: timedelta = timedelta(seconds=1),
        clock: Clock | None = None,
    ) -> None:
        self._arguments = (path, key, row, text, file_format, check, clock)
        self._path = Path(path)
        self._location = Location(str(path), file_format)
        self._key = key
        self._row = row
        self._text = (key,) if text is None else text
        self._clock: Clock = clock or SystemClock()
        if not isinstance(check, timedelta) or check < timedelta(0):
            raise ConfigError(f"{self!r}: check must be a timedelta of 0 or more, not {check!r}")
        if isinstance(text, str):
            raise ConfigError(f"{self!r}: text must be a tuple of names of columns, not {text!r}")
        refuse_unawaited(row, f"row= of {self!r}", error=ConfigError)
        self._check_ms = check // timedelta(milliseconds=1)
        self._lock = threading.Lock()
        version = self._version()
        self._rows = self._read()
        self._types = _types(self._rows)
        #: The version that was read last, successfully or not, and the version found by the last check.
        self._current: _Version | None = version
        self._seen: _Version | None = version
        self._next_ms = self._clock.monotonic_ms() + self._check_ms

    def __repr__(self) -> str:
        return f"FileLookUp({str(self._path)!r})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _rebuild, self._arguments

    def __call__(self, key: Any) -> A | None:
        """Return the answer for a key, or None if no row has it.

        Raises:
            StreamsError: the key has another type than all keys of the file.
        """
        if self._clock.monotonic_ms() >= self._next_ms and self._lock.acquire(blocking=False):
            # Meanwhile, other threads use the previous rows.
            try:
                self._check()
                self._next_ms = self._clock.monotonic_ms() + self._check_ms
            finally:
                self._lock.release()
        rows = self._rows
        if key in rows or not self._types or isinstance(key, self._types):
            return rows.get(key)
        kinds = " or ".join(sorted(kind.__name__ for kind in self._types))
        raise StreamsError(
            f"{self!r} has keys of type {kinds}, so {key!r:.60} of type {type(key).__name__} cannot be found: convert "
            "it with by=, or, for numbers of a CSV file, give text=() so that keys are not read as text"
        )

    def _check(self) -> None:
        version = self._version()
        is_settled = version == self._seen
        self._seen = version
        if version == self._current or not is_settled:
            return
        self._current = version
        try:
            rows = self._read()
            if self._version() != version:
                raise InputError(f"{self._path} changed while it was read")
        except (StreamsError, OSError) as error:
            log.warning("%r: the previous rows remain in use until the file changes again: %s", self, error)
            return
        self._types = _types(rows)
        self._rows = rows

    def _version(self) -> _Version | None:
        try:
            status = self._path.stat()
        except OSError:
            # ``_read`` reports the reason.
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _read(self) -> Mapping[Any, A]:
        """Return the answers by key.

        Raises:
            InputError: the file cannot be read, a column is missing or occurs twice, a key occurs twice, or ``row``
            failed.
        """
        # Imported here, because the import takes long.
        import pyarrow

        kind = self._location.kind_of(self._path) or FileKind(Kind.CSV)
        try:
            with open_binary(FileSource.local(self._path), kind) as stream:
                table = _columns(stream.read(), kind, self._text)
        except (pyarrow.ArrowException, msgspec.MsgspecError, ValueError, OSError, EOFError) as error:
            raise InputError(f"{self._path} cannot be read: {error}") from error
        names = [name for name, _ in table]
        if self._key not in names:
            raise InputError(f"{self._path} has no column {self._key!r}; it has {', '.join(names)}")
        for name, count in Counter((*names, *self._text)).items():
            if count - (name in self._text) != 1:
                raise InputError(
                    f"{self._path} has {count - (name in self._text) or 'no'} columns {name!r}; it has "
                    f"{', '.join(names)}"
                )
        keys = dict(table)[self._key]
        names.remove(self._key)
        columns = [values for name, values in table if name != self._key]
        rows = {}
        for number, (key, *row) in enumerate(zip(keys, *columns, strict=True), 1):
            try:
                rows[key] = self._row(**dict(zip(names, row, strict=True)))
            except Exception as error:
                raise InputError(f"{self._path}, row {number}: {type(error).__name__}: {error}") from error
        if len(rows) < len(keys):
            ((repeated, _),) = Counter(keys).most_common(1)
            raise InputError(f"{self._path} has the key {repeated!r} more than once")
        return rows


def _columns(data: bytes, kind: FileKind, text: tuple[str, ...]) -> list[tuple[str, list[Any]]]:
    """Return the columns of a file by name, with the ``text`` columns of CSV as strings.

    Raises:
        ValueError: a column of CSV is not in the encoding of the file.
    """
    import pyarrow
    from pyarrow import csv, parquet

    if kind.kind in (Kind.JSON, Kind.JSON_LINES):
        decoder = msgspec.json.Decoder(dict[str, Any])
        is_array = kind.kind is Kind.JSON
        rows = msgspec.json.decode(data, type=list[dict[str, Any]]) if is_array else decoder.decode_lines(data)
        # Objects may lack some fields, also the first one.
        names = dict.fromkeys(name for row in rows for name in row)
        return [(name, [row.get(name) for row in rows]) for name in names]
    if kind.kind is Kind.PARQUET:
        table = parquet.read_table(pyarrow.BufferReader(data))
    else:
        options = kind.csv
        nulls = {} if options.null is None else {"null_values": [options.null], "strings_can_be_null": True}
        table = csv.read_csv(
            pyarrow.BufferReader(data),
            csv.ReadOptions(encoding=options.encoding, column_names=list(options.columns or ())),
            csv.ParseOptions(delimiter=options.delimiter, quote_char=options.quote or False, newlines_in_values=True),
            csv.ConvertOptions(column_types={name: pyarrow.string() for name in text}, **nulls),
        )
        for part in table.schema:
            if pyarrow.types.is_binary(part.type):  # As Arrow reads text that is not UTF-8.
                raise ValueError(
                    f"column {part.name!r} is not UTF-8; write the file as UTF-8, or give its encoding, as "
                    "file_format='csv?encoding=latin-1'"
                )
    return [(name, column.to_pylist()) for name, column in zip(table.column_names, table.columns, strict=True)]


def _types(rows: Mapping[Any, Any]) -> tuple[type, ...]:
    """Return the types of the keys; all numbers count as one type, since equal numbers may have different types."""
    kinds = {type(key) for key in rows if key is not None}
    return tuple({Number if issubclass(kind, Number) else kind for kind in kinds})


def _rebuild(path: Any, key: str, row: Any, text: Any, file_format: Any, check: Any, clock: Any) -> "FileLookUp[Any]":
    return FileLookUp(path, key=key, row=row, text=text, file_format=file_format, check=check, clock=clock)
