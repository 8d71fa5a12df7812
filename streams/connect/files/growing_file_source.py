"""A source of the lines of a file that grows, such as a log, exactly once and across its rotation.

Of the other packages, this module imports only ``core`` and ``files``.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from streams.connect.errors import ConnectError
from streams.connect.files.file_rows import FileRows, check_settings, location_of
from streams.connect.files.growing_file import GrowingFile, LongLineError, file_of_inode, rotated
from streams.connect.protocol import Position, SourceBlock
from streams.core.concurrency.threads import SystemThreads
from streams.core.errors import ConfigError
from streams.core.topic import Topic
from streams.files import FileInput, FileSource, FormatOption, Kind, OnBadRow, listed, nearby

log = logging.getLogger(__name__)


class GrowingFileSource:
    """Reads the lines of a file as they are written, like ``tail -F`` from the first line on.

    A line is read when it has its line end.  The position is the byte after the last line, the inode of the file, and
    a digest of what was read before it.  A file that was renamed, or copied and truncated, is read to its end before
    the new file of the name; what was rotated while the source was away is found in the folder, unless it was
    compressed or removed.

    Args:
        path: the file, which need not exist yet; its folder must.
        file_format: "jsonl", "records", "csv" or "text"; by default that of the suffix.  Options of CSV are a
            ``streams.Csv``, or text, as in "csv?delimiter=;".
        bad_rows: "fail" to end at a row that does not fit the topic, "continue" to log, count and leave it out.
        lost_lines: "fail" to end if the rest of a file cannot be found, after which lines may be missing; "continue" to
            log and count it, and go on with the file of the name.
        interval_ms: the pause after which a file without new lines is looked at again, in milliseconds.

    Raises:
        ConfigError: the path or an argument is invalid.
    """

    def __init__(
        self,
        path: str,
        *,
        file_format: FormatOption = "",
        bad_rows: OnBadRow = "fail",
        lost_lines: OnBadRow = "fail",
        interval_ms: int = 500,
    ) -> None:
        self._name = f"GrowingFileSource({path!r})"
        self._path = Path(path)
        file_kind = location_of(self._name, path, file_format).kind_of(path)
        if file_kind is None:
            raise ConfigError(f"{self._name}: the suffix names no kind of file: rename it, or give file_format=")
        if file_kind.compression or not (file_kind.kind.is_lines or file_kind.kind is Kind.CSV):
            kinds = listed(tuple(kind for kind in Kind if kind.is_lines or kind is Kind.CSV))
            raise ConfigError(f"{self._name}: only files of lines can grow: {kinds}; FolderSource reads whole files")
        if file_kind.is_whole:
            raise ConfigError(
                f"{self._name}: the lines of files in {file_kind.csv.encoding} do not end with a byte of their own; "
                "FolderSource reads whole files"
            )
        check_settings(self._name, interval_ms, bad_rows=bad_rows, lost_lines=lost_lines)
        self._kind = file_kind
        self._bad_rows = bad_rows
        self._lost_lines = lost_lines
        self._interval_ms = interval_ms
        self._csv = file_kind.csv if file_kind.kind is Kind.CSV else None
        self._rows: FileRows | None = None
        self._reader: FileInput | None = None
        self._file: GrowingFile | None = None
        #: The position at which the next file is opened; None to begin with the first line.
        self._position: Position = None
        self._is_missing = False
        self._stop = SystemThreads().signal()

    def __repr__(self) -> str:
        return self._name

    def open(self, connector: str, topic: Topic[Any, Any], positions: Mapping[str, Position]) -> None:
        """Start after the position of the file.

        Raises:
            ConfigError: the folder does not exist.
        """
        if not self._path.parent.is_dir():
            raise ConfigError(f"{self!r}: there is no such file{nearby(self._path)}")
        self._position = positions.get(str(self._path))
        self._is_missing = False
        self._rows = FileRows(topic, self._bad_rows)
        self._reader = self._rows.reader(FileSource(str(self._path), self._unopened, lines=(), kind=self._kind))

    def poll(self, timeout_ms: int) -> Sequence[SourceBlock[Any, Any]]:
        """Return the next lines.

        Raises:
            ConnectError: the rest of the file cannot be found, and ``lost_lines`` is "fail".
            InputError: a row is bad, and ``bad_rows`` is "fail".
        """
        blocks = self._opened() if self._file is None else self._next(self._file)
        if not blocks:
            self._stop.wait(min(timeout_ms, self._interval_ms))
        return blocks

    def committed(self, positions: Mapping[str, Position]) -> None:
        """Do nothing: the file stays as it is."""

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error is one of the file system, other than a missing permission."""
        return isinstance(error, OSError) and not isinstance(error, PermissionError)

    def wakeup(self) -> None:
        """End the wait for lines."""
        self._stop.set()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _unopened(self) -> Any:
        raise OSError("its lines are given")

    def _begun(self) -> GrowingFile | None:
        return GrowingFile.begin(self._path, csv=self._csv)

    def _opened(self) -> list[SourceBlock[Any, Any]]:
        """Open the file at the position, or what rotation has left of it; return a block if it is another file."""
        position = self._position
        file = self._begun() if position is None else self._resumed(position)
        lost = 0
        if file is None:
            file = self._begun()
            if file is None:
                self._miss()
                return []
            self._lose(file, position)
            lost = 1
        self._file = file
        self._position = file.position
        self._is_missing = False
        if position is None or (file.inode == position["inode"] and not lost):
            return self._next(file)
        log.info("%r: goes on in %s at line %d", self, file.path, file.line)
        return [SourceBlock(str(self._path), file.position, [], [], lost=lost)]

    def _resumed(self, position: dict[str, Any]) -> GrowingFile | None:
        """Return the file that has what was read: under its name, renamed, or copied by rotation."""
        folder = self._path.parent
        inode = position["inode"]
        paths: Iterator[Path] = file_of_inode(folder, inode)
        if position["offset"]:
            # The same beginning in another file is a copy, unless the file itself is still there.
            paths = chain(paths, [self._path], reversed(rotated(self._path)))
        files = (GrowingFile.resume(path, position, csv=self._csv) for path in paths)
        return next((file for file in files if file is not None), None)

    def _next(self, file: GrowingFile) -> list[SourceBlock[Any, Any]]:
        """Return the next rows of the open file, or go on with its successor."""
        try:
            data = file.peek()
            if not file.is_unchanged:
                return self._replaced(file)
            if not data and self._has_successor(file):
                # The writer has gone on to the successor: what is there now is all.
                data = file.peek(is_whole=True)
                if not data:
                    return self._successor(file)
        except LongLineError as error:
            limit = error.args[0]
            raise ConnectError(f"{file.path}:{file.line}: the line is longer than {limit} bytes: is it text?") from None
        return self._taken(file, data) if data else []

    def _taken(self, file: GrowingFile, data: bytes) -> list[SourceBlock[Any, Any]]:
        assert self._rows is not None
        assert self._reader is not None
        lines = data.removesuffix(b"\n").split(b"\n")
        line = file.line
        if self._csv is not None and self._csv.columns is None and file.offset:
            heading = file.heading()
            lines = [*heading, *lines]
            line = line - len(heading)
        file.take(data)
        self._position = file.position
        return self._rows.read_lines(self._reader, lines, line, str(self._path), self._position)

    def _has_successor(self, file: GrowingFile) -> bool:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return False
        # An empty file is one to which the writer has not gone on yet.
        return status.st_ino != file.inode and status.st_size > 0

    def _successor(self, file: GrowingFile) -> list[SourceBlock[Any, Any]]:
        """Open the file that was written after this one: the next that was rotated, or that of the name."""
        inodes = {file.inode, os.stat(self._path).st_ino}
        others = [(path, path.stat()) for path in rotated(self._path)]
        later = [path for path, stat in others if stat.st_mtime_ns > file.modified_ns and stat.st_ino not in inodes]
        path = later[0] if later else self._path
        successor = GrowingFile.begin(path, csv=self._csv)
        if successor is None:  # It was rotated at this moment.
            return []
        log.info("%r: goes on in %s after line %d of the file before it", self, path, file.line - 1)
        file.close()
        self._file = successor
        self._position = successor.position
        # Its first lines at once: of a file of which nothing was read, nothing shows that it was replaced.
        return [SourceBlock(str(self._path), successor.position, [], []), *self._next(successor)]

    def _replaced(self, file: GrowingFile) -> list[SourceBlock[Any, Any]]:
        """The file was truncated or written over: go on in the copy that rotation has made before, or begin again."""
        self._position = file.position
        self.close()
        return self._opened()

    def _miss(self) -> None:
        if not self._is_missing:
            log.warning("%r: there is no such file yet%s; waits for it", self, nearby(self._path))
        self._is_missing = True

    def _lose(self, file: GrowingFile, position: dict[str, Any]) -> None:
        """Say that the rest of a file cannot be found.

        Raises:
            ConnectError: ``lost_lines`` is "fail".
        """
        message = (
            f"{self!r}: line {position['line'] - 1} was read last, at byte {position['offset']}, but the file was "
            f"truncated or replaced (it has {file.size} bytes), and the folder has no uncompressed copy of what was "
            "read: lines may be missing"
        )
        if self._lost_lines == "fail":
            file.close()
            raise ConnectError(f"{message}; with lost_lines='continue' the source goes on with the file of the name")
        log.warning("%s; goes on with the file of the name", message)
