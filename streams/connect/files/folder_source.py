"""A source of the files that appear in a folder or bucket: each is read once, whole, exactly once.

Each file is a partition of the source, with a position of its own: its size, its time, and the rows that were read.
A file that was removed is forgotten, so that there are no more positions than files.
Of the other packages, this module imports only ``core`` and ``files``; pyarrow is imported on use.
"""

import logging
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from attrs import evolve, frozen

from streams.connect.errors import ConnectError
from streams.connect.files.file_rows import FileRows, check_pause, check_settings, location_of
from streams.connect.protocol import Position, SourceBlock
from streams.core.clock import SystemClock
from streams.core.concurrency.threads import SystemThreads
from streams.core.errors import ConfigError, InputError
from streams.core.topic import Topic
from streams.files import (
    FileSource,
    FileSystemError,
    FormatOption,
    OnBadRow,
    file_system,
    is_hidden,
    is_local,
    listed,
    nearby,
    short_reason,
    table_below,
)

log = logging.getLogger(__name__)

#: Suffixes of files that are still being written.
_UNFINISHED: Final = (".tmp", ".part", ".partial", ".inprogress", ".filepart", ".crdownload", "._copying_", "~")
#: How long a local file has to be unchanged by default.
_SETTLE_MS: Final = 1_000
#: Records of small files that are written at once.
_BATCH: Final = 10_000


@frozen
class _Version:
    """What a file is at one time: its size in bytes, and when it was modified, in nanoseconds."""

    size: int
    modified_ns: int


def _check(
    name: str,
    bad_rows: OnBadRow,
    changed_files: OnBadRow,
    interval_ms: int,
    settle_ms: int,
) -> None:
    """Check the arguments of the source with a name.

    Raises:
        ConfigError: there is no such reaction, or a pause is too short.
    """
    check_settings(name, interval_ms, bad_rows=bad_rows, changed_files=changed_files)
    check_pause(name, "settle_ms", settle_ms, least_ms=0)


def _is_in_loop(root: str, folder: str) -> bool:
    """Whether a folder below the root is, by a link, one of those above it, whose files would be read again."""
    places = {os.path.realpath(root)}
    at = root
    for part in folder.split("/") if folder else ():
        at = os.path.join(at, part)
        place = os.path.realpath(at)
        if place in places:
            return True
        places.add(place)
    return False


@frozen
class _Progress:
    """What was read of a file: the version, and the rows; ``is_whole`` if there are no more."""

    version: _Version
    rows: int
    is_whole: bool

    @property
    def position(self) -> Position:
        return {
            "size": self.version.size,
            "modified_ns": self.version.modified_ns,
            "rows": self.rows,
            "is_whole": self.is_whole,
        }

    @classmethod
    def of(cls, position: Position) -> "_Progress":
        version = _Version(position["size"], position["modified_ns"])
        return cls(version, position["rows"], position["is_whole"])


class FolderSource:
    """Reads each file that is, or appears, in a folder or bucket once, by the order of their times and names.

    The kind of a file is that of its suffix.  Hidden files, which begin with ``.`` or ``_``, and those with a suffix of
    files in progress, such as ``.tmp``, are left out; subfolders are read too.  A file that is removed after it was
    read is forgotten: another one of its name is read.

    Args:
        folder: a folder, or a URI such as ``s3://bucket/orders``, as pyarrow and fsspec know them.
        pattern: the names of the files to read, such as ``orders-*.csv``; by default all.
        file_format: "jsonl", "json", "records", "csv", "text" or "parquet", whatever the suffixes are; options of CSV
            are a ``streams.Csv``, or text, as in "csv?delimiter=;".
        bad_rows: "fail" to end at a row that does not fit the topic, "continue" to log, count and leave it out.
        changed_files: "fail" to end if a file changes after it was read, "continue" to log and count it; what has
            changed is not read.
        settle_ms: how long a file has to be unchanged before it is read, in milliseconds; by default 1,000 for folders
            of this machine, and 0 for object stores, in which files appear whole.
        interval_ms: the pause between two lists of the folder, in milliseconds.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        folder: str,
        *,
        pattern: str = "",
        file_format: FormatOption = "",
        bad_rows: OnBadRow = "fail",
        changed_files: OnBadRow = "fail",
        settle_ms: int | None = None,
        interval_ms: int = 1_000,
    ) -> None:
        self._name = f"FolderSource({folder!r})"
        self._folder = folder.rstrip("/") or "/"
        self._pattern = pattern
        self._location = location_of(self._name, folder, file_format)
        _check(self._name, bad_rows, changed_files, interval_ms, settle_ms or 0)
        self._bad_rows = bad_rows
        self._changed_files = changed_files
        self._interval_ms = interval_ms
        self._settle_ms = settle_ms if settle_ms is not None else _SETTLE_MS if is_local(folder) else 0
        self._system: Any = None
        self._path = ""
        self._rows: FileRows | None = None
        #: What was read, by the name of the file.
        self._read: dict[str, _Progress] = {}
        #: Since when files have been as they are, by name.
        self._since: dict[str, tuple[_Version, int]] = {}
        self._queue: deque[tuple[str, _Version]] = deque()
        self._blocks: Iterator[SourceBlock[Any, Any]] = iter(())
        #: Files of unknown kinds, which were logged.
        self._unknown: set[str] = set()
        #: An error that came after blocks, which are written first.
        self._error: Exception | None = None
        self._clock = SystemClock()
        self._stop = SystemThreads().signal()

    def __repr__(self) -> str:
        return self._name

    # --- protocol ---------------------------------------------------------------------

    def open(self, connector: str, topic: Topic[Any, Any], positions: Mapping[str, Position]) -> None:
        """Find the file system.

        Raises:
            ConfigError: there is no such folder or file system, or the folder belongs to a table.
        """
        try:
            self._system, self._path = file_system(self._folder)
        except FileSystemError as error:
            raise ConfigError(f"{self!r}: {error}") from error
        self._rows = FileRows(topic, self._bad_rows)
        self._read = {name: _Progress.of(position) for name, position in positions.items()}
        self._queue.clear()
        self._since.clear()
        self._blocks = iter(())
        self._error = None
        if is_local(self._folder):
            from pathlib import Path

            path = Path(self._path)
            if not path.is_dir():
                what = "is a file: give its folder" if path.exists() else f"there is no such folder{nearby(path)}"
                raise ConfigError(f"{self!r}: {what}")

    def poll(self, timeout_ms: int) -> Sequence[SourceBlock[Any, Any]]:
        """Return the next rows, those of small files together.

        Raises:
            ConnectError: a file has changed after it was read, and ``changed_files`` is "fail".
            InputError: a row is bad, and ``bad_rows`` is "fail", or a file cannot be read.
        """
        if self._error is not None:
            raise self._error
        blocks: list[SourceBlock[Any, Any]] = []
        try:
            if not self._queue:
                blocks += self._look()
            while sum(map(len, blocks)) < _BATCH and (block := self._next()) is not None:
                blocks.append(block)
        except Exception as error:
            if not blocks:
                raise
            self._error = error
        if not blocks:
            self._stop.wait(min(timeout_ms, self._interval_ms))
        return blocks

    def committed(self, positions: Mapping[str, Position]) -> None:
        """Do nothing: files stay where they are."""

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error is one of the file system, other than a missing permission or a damaged file."""
        cause = error.__cause__ if isinstance(error, InputError) else error
        return type(cause) in (OSError, TimeoutError) or isinstance(cause, ConnectionError)

    def wakeup(self) -> None:
        """End the wait for files."""
        self._stop.set()

    def close(self) -> None:
        """Close the file that is read."""
        self._blocks = iter(())

    # --- files ------------------------------------------------------------------------

    def _look(self) -> list[SourceBlock[Any, Any]]:
        """List the folder, and queue the files to read; return blocks for those that are gone or changed."""
        files = self._files()
        now_ms = self._clock.monotonic_ms()
        blocks = []
        # Where nothing is found, the folder may be away, as a disk that is not mounted: nothing is forgotten then.
        for name in [name for name in self._read if name not in files] if files else ():
            progress = self._read.pop(name)
            if not progress.is_whole:
                log.warning("%r: %s was removed when %d rows of it were read", self, name, progress.rows)
            blocks.append(SourceBlock[Any, Any](name, None, [], [], lost=not progress.is_whole))
        waiting: dict[str, tuple[_Version, int]] = {}
        ready = []
        for name, version in files.items():
            progress_of = self._read.get(name)
            if progress_of is not None and progress_of.version != version:
                blocks.append(self._changed(name, progress_of, version))
            elif progress_of is not None:
                if not progress_of.is_whole:
                    ready.append((name, version))
            else:
                before = self._since.get(name)
                since = before[1] if before is not None and before[0] == version else now_ms
                waiting[name] = (version, since)
                if now_ms - since >= self._settle_ms:
                    ready.append((name, version))
        self._since = waiting
        # What was begun is read to its end first.
        self._queue.extend(sorted(ready, key=lambda it: (it[0] not in self._read, it[1].modified_ns, it[0])))
        return blocks

    def _files(self) -> dict[str, _Version]:
        """Return the files of the folder by their names, without those that are not to be read."""
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(self._path, allow_not_found=True, recursive=True)
        files = {}
        names = []
        loops = {"": False}
        for info in self._system.get_file_info(selector):
            try:
                name = info.path.removeprefix(self._path).lstrip("/")
            except UnicodeDecodeError as error:
                shown = error.object.decode(errors="backslashreplace")
                raise ConnectError(f"{self!r}: the name of {shown} is not UTF-8; rename the file") from None
            names.append(name)
            if info.type != FileType.File or is_hidden(name) or name.lower().endswith(_UNFINISHED):
                continue
            folder = name.rpartition("/")[0]
            if folder not in loops:
                loops[folder] = is_local(self._folder) and _is_in_loop(self._path, folder)
            if loops[folder]:
                continue
            if self._pattern and not fnmatchcase(name.rpartition("/")[2], self._pattern):
                continue
            if self._location.kind_of(name) is None:
                self._leave_out(name)
                continue
            files[name] = _Version(info.size, info.mtime_ns or 0)
        table = table_below(self._folder, names)
        if table is not None:
            raise ConfigError(f"{self!r}: {table.refused_as_input()}")
        return files

    def _leave_out(self, name: str) -> None:
        if name not in self._unknown:
            self._unknown.add(name)
            kinds = listed()
            log.warning("%r: %s is left out: its suffix is none of %s; give file_format= to read it", self, name, kinds)

    def _changed(self, name: str, progress: _Progress, version: _Version) -> SourceBlock[Any, Any]:
        """Say that a file has changed; return the block that remembers it.

        Raises:
            ConnectError: ``changed_files`` is "fail".
        """
        before = progress.version
        has = "" if progress.is_whole else f" {progress.rows} rows of"
        message = (
            f"{self!r}: {name} has changed after{has} it was read: it had {before.size} bytes, and has {version.size}, "
            "or another time"
        )
        if self._changed_files == "fail":
            raise ConnectError(
                f"{message}; give what is new in a file of another name, or leave it out with changed_files='continue'"
            )
        log.warning("%s; what has changed is left out", message)
        skipped = self._read[name] = _Progress(version, progress.rows, is_whole=True)
        return SourceBlock(name, skipped.position, [], [], skipped=1)

    # --- rows -------------------------------------------------------------------------

    def _next(self) -> SourceBlock[Any, Any] | None:
        """Return the next block of the file that is read, or of the next one; None if no file is queued."""
        while True:
            block = next(self._blocks, None)
            if block is not None:
                self._read[block.partition] = _Progress.of(block.position)
                return block
            if not self._queue:
                return None
            self._blocks = self._blocks_of(*self._queue.popleft())

    def _blocks_of(self, name: str, version: _Version) -> Iterator[SourceBlock[Any, Any]]:
        """Yield the rows of a file that were not read yet; the last block says that it is whole."""
        assert self._rows is not None
        path = f"{self._path.rstrip('/')}/{name}"
        begun = self._read.get(name)
        if self._version(path) != version:
            return  # The next list of the folder shows what it is now.
        rows = 0 if begun is None else begun.rows
        kind = self._location.kind_of(name)
        shown = f"{self._folder.rstrip('/')}/{name}"
        source = FileSource(shown, lambda: self._opened(path), kind=kind)
        try:
            reader = self._rows.reader(source)
        except InputError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # It was removed at this moment.
                return
            raise
        last: SourceBlock[Any, Any] | None = None
        for records in self._rows.batches(reader, rows):
            if last is not None:
                yield last
            rows = records.first_row + len(records)
            last = self._rows.block(records, name, _Progress(version, rows, is_whole=False).position)
        if self._version(path) != version:
            if last is not None:
                yield last
            return
        whole = _Progress(version, rows, is_whole=True).position
        yield SourceBlock(name, whole, [], []) if last is None else evolve(last, position=whole)

    def _version(self, path: str) -> _Version | None:
        from pyarrow.fs import FileType

        (info,) = self._system.get_file_info([path])
        return _Version(info.size, info.mtime_ns or 0) if info.type == FileType.File else None

    def _opened(self, path: str) -> Any:
        try:
            return self._system.open_input_file(path)
        except OSError as error:
            # The errors of pyarrow have long texts, and some no number.
            raise OSError(error.errno or 0, short_reason(error)) from error
