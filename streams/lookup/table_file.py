"""Look-ups in files, which are kept in memory and reloaded when they change.

Of the other packages, this module imports only ``core`` and ``files``.
"""

import inspect
import logging
import os
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from numbers import Number
from pathlib import Path
from typing import Any, ClassVar, Generic, NotRequired, TypeAlias, TypeVar

from typing_extensions import TypedDict

from streams.core.clock import Clock, SystemClock
from streams.core.errors import ConfigError, InputError, StreamsError
from streams.core.topic import Topic
from streams.core.user_code import refuse_unawaited
from streams.files import FormatOption, Location, as_list, local_files, open_input, sources_at

A = TypeVar("A")

log = logging.getLogger(__name__)

#: The name, inode, size and modification time of each file; a different value means that a file has changed.
_Version: TypeAlias = tuple[tuple[str, int, int, int], ...]


class FileLookUp(Generic[A]):
    """Looks a key up in a table from a Parquet, JSON or CSV file; the answer is None if no row has the key.

    ``key`` is the name of the key column.  ``row`` is called with the columns that its parameters name, and returns the
    answer.  The same object is the answer for all records with this key, so do not modify it.  Columns are read as the
    types of the parameters, by the rules of a topic's files; a parameter without a type takes what JSON has, and the
    text of a CSV file.  This also applies to the key, which has the type of the parameter with its name, if there is
    one.  A function that takes any arguments, such as ``dict``, gets all columns but the key.  ``path`` may be a folder
    or a pattern.  ``file_format`` is "csv", "json", "jsonl" or "parquet", by default that of the suffix; options of CSV
    are a ``streams.Csv``, or text, as in "csv?delimiter=;".

    All rows are in memory, so ``look_up`` neither caches answers nor starts calls.  A look-up checks at most once per
    ``check`` (default: one second) whether the file has changed.  A changed file is loaded when two checks in
    succession find it unchanged, and replaces all rows at once.  If it cannot be read, for example because it is still
    being written, the previous rows remain in use, and a warning with the reason is logged.  To update the file, write
    a new file and rename it over the old one: an incomplete CSV file may look like a complete one.

    Raises:
        InputError: the file cannot be read, a column is missing, a row does not have the types of the parameters, a key
            occurs twice, or ``row`` failed.
        ConfigError: ``check`` is negative, there is no such ``file_format``, or ``row`` is async, or has parameters of
            types that are not read.
    """

    #: Read by ``look_up``, which then uses neither calls nor a cache.
    answers_from_memory: ClassVar = True

    def __init__(
        self,
        path: str | Path,
        *,
        key: str,
        row: Callable[..., A],
        file_format: FormatOption = "",
        check: timedelta = timedelta(seconds=1),
        clock: Clock | None = None,
    ) -> None:
        self._recipe = partial(type(self), path, key=key, row=row, file_format=file_format, check=check, clock=clock)
        self._path = Path(path)
        self._location = Location(str(path), file_format)
        self._key = key
        self._row = row
        self._clock: Clock = clock or SystemClock()
        if not isinstance(check, timedelta) or check < timedelta(0):
            raise ConfigError(f"{self!r}: check must be a timedelta of 0 or more, not {check!r}")
        refuse_unawaited(row, f"row= of {self!r}", error=ConfigError)
        self._has_key, self._topic = _declared(row, key, repr(self))
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
        return self._recipe, ()

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
            f"it with by=, or declare the type of the keys as that of a parameter {self._key!r} of row="
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
            files = [(path, os.stat(path)) for path in local_files(str(self._path))]
        except (StreamsError, OSError):
            # ``_read`` reports the reason.
            return None
        return tuple((path, it.st_ino, it.st_size, it.st_mtime_ns) for path, it in files)

    def _read(self) -> Mapping[Any, A]:
        """Return the answers by key.

        Raises:
            InputError: a file cannot be read, a row does not have the types, a key occurs twice, or ``row`` failed.
        """
        answers: dict[Any, A] = {}
        for source in sources_at(self._location):
            number = 0
            for records in open_input(self._topic, source, advice="correct it").records(1):
                rows: list[Any] = self._topic.value_serde.deserialize_all(as_list(records.values))
                for row in rows:
                    number += 1
                    if self._key not in row:
                        raise InputError(f"{source} has no column {self._key!r}; it has {', '.join(row)}")
                    try:
                        key = row[self._key] if self._has_key else row.pop(self._key)
                        is_double = key in answers
                        answers[key] = self._row(**row)
                    except Exception as error:
                        raise InputError(f"{source}, row {number}: {type(error).__name__}: {error}") from error
                    if is_double:
                        raise InputError(f"{source}, row {number}: has the key {key!r}, as an earlier row")
        return answers


def _declared(row: Callable[..., Any], key: str, place: str) -> tuple[bool, Topic[None, Any]]:
    """Return whether ``row`` takes the key, and the topic whose values are the rows of the file.

    Raises:
        ConfigError: a type is not known or not read.
    """
    try:
        parameters = inspect.signature(row, eval_str=True).parameters.values()
    except ValueError:  # A class without a signature, such as dict.
        parameters = {}.values()
    except NameError as error:
        raise ConfigError(f"row= of {place}: its types cannot be read: {error}") from error
    columns: dict[str, Any] = {}
    for part in parameters:
        if part.kind not in (part.VAR_POSITIONAL, part.VAR_KEYWORD):
            kind = Any if part.annotation is part.empty else part.annotation
            columns[part.name] = kind if part.default is part.empty or part.name == key else NotRequired[kind]
    form: Any = TypedDict("Row", {key: Any, **columns}) if columns else dict[str, Any]  # type: ignore[operator]
    return key in columns, Topic("look-up", value=form)


def _types(rows: Mapping[Any, Any]) -> tuple[type, ...]:
    """Return the types of the keys; all numbers count as one type, since equal numbers may have different types."""
    kinds = {type(key) for key in rows if key is not None}
    return tuple({Number if issubclass(kind, Number) else kind for kind in kinds})
