"""The manifest of a folder of Parquet files: its entries say which files there are, and who has written them.

An entry is a JSON file, ``_manifest/NAME/TOPIC/KEY.json``: NAME is a connector or the ID of a replay.  It appears when
its files are complete; files without an entry do not count.  Of a replay the key is a slice, whose entry is replaced if
its records have changed.  Of a connector it is ``PARTITION/GROUP/NUMBER-START-NEXT``, for the offsets from START up to
NEXT, exclusive.  The records of an offset never change, so two entries with the same offset have the same record, and a
reader takes it from the first entry.  So each record is read exactly once, without locks or conditional creation of
files, which some object stores lack.  A replay that overwrites files takes them out of the entries of all others.
Of the other packages, this module imports only ``core`` and ``files``; pyarrow is imported on use.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import chain
from typing import Any, Final, Protocol
from uuid import uuid4

from attrs import define, field, frozen

from streams.core.errors import ConfigError, InputError
from streams.files import FileSystemError, file_system, whole_file
from streams.lakes.lake_log import Commit, LakeLog, LakePosition, LakeWriter
from streams.values import PartitionColumn, file_schema, folders_of

#: Folder of the entries, which readers of Parquet skip.
_MANIFEST: Final = "_manifest"
#: Entries of one folder, which is what the check before a commit lists.
_GROUP: Final = 1_000


class FilePlace(Protocol):
    """A folder or file of any file system."""

    def child(self, *names: str) -> "FilePlace":
        """Return the file or folder with this relative path in the folder."""

    def files(self) -> list[str]:
        """Return the paths of all files below the folder, relative to it; empty if there is no folder."""

    def read(self) -> bytes:
        """Return the content of the file."""

    def write(self, data: bytes) -> None:
        """Write the file atomically."""

    def delete(self) -> None:
        """Delete the file."""


@frozen(eq=False)
class Folder:
    """A folder or file in a file system of pyarrow; errors are those of the file system."""

    system: Any
    path: str

    @classmethod
    def of(cls, folder: str, system: Any = None) -> "Folder":
        """Return a folder, given by a path or URI, or by a path in a file system of pyarrow or fsspec.

        Raises:
            ConfigError: there is no such file system.
        """
        from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

        if system is None:
            try:
                system_, path = file_system(folder)
            except FileSystemError as error:
                raise ConfigError(str(error)) from error
            return cls(system_, os.path.abspath(path) if system_.type_name == "local" else path.rstrip("/"))
        if isinstance(system, FileSystem):
            return cls(system, folder.rstrip("/"))
        if not hasattr(system, "protocol"):
            raise ConfigError(f"filesystem is one of pyarrow or fsspec, not {system!r}")
        return cls(PyFileSystem(FSSpecHandler(system)), folder.rstrip("/"))

    def __str__(self) -> str:
        return self.path

    def child(self, *names: str) -> "Folder":
        return Folder(self.system, "/".join([self.path, *names]))

    def names(self, *, recursive: bool = False) -> list[str]:
        """Return the paths of what is in the folder, relative to it; empty if there is no folder."""
        from pyarrow.fs import FileSelector

        entries = self.system.get_file_info(FileSelector(self.path, recursive=recursive, allow_not_found=True))
        # Stores differ in whether a path begins with a slash.
        return [info.path.lstrip("/").removeprefix(f"{self.path}/".lstrip("/")) for info in entries]

    def files(self) -> list[str]:
        return self.names(recursive=True)

    def read(self) -> bytes:
        with self.system.open_input_stream(self.path) as stream:
            return bytes(stream.read())

    def whole_file(self) -> AbstractContextManager[Any]:
        """Open the file for writing; it appears under its name if the ``with`` block raises no exception."""
        return whole_file(self.system, self.path)

    def write(self, data: bytes) -> None:
        """Write the file atomically, and durably on this machine."""
        with self.whole_file() as stream:
            stream.write(data)

    def delete(self) -> None:
        self.system.delete_file(self.path)


@frozen(eq=False)
class ManifestEntry:
    """An entry: its path ``NAME/TOPIC/KEY``, its files by path with their numbers of rows, and what else it says."""

    path: str
    files: Mapping[str, int]
    properties: Mapping[str, Any]

    @property
    def writer(self) -> tuple[str, str]:
        """The name and topic of the writer."""
        name, topic, _ = self.path.split("/", 2)
        return name, topic


@frozen(eq=False)
class Manifest:
    """The manifest of a folder, which several connectors and replays may share."""

    folder: FilePlace

    def paths(self, writer: LakeWriter | None = None) -> list[str]:
        """Return the paths of all entries, or of those of one writer."""
        below = "" if writer is None else f"{writer.name}/{writer.topic}/"
        files = self.folder.child(*f"{_MANIFEST}/{below}".rstrip("/").split("/")).files()
        return [below + file.removesuffix(".json") for file in files if file.endswith(".json")]

    def entries(self) -> Iterator[ManifestEntry]:
        """Read all entries."""
        return map(self.read, self.paths())

    def read(self, path: str) -> ManifestEntry:
        """Read the entry with a path.

        Raises:
            InputError: an earlier version has written it.
        """
        content = json.loads(self._place(path).read())
        files = content.pop("files")
        if not isinstance(files, dict):
            raise InputError(
                f"{self.folder}: has entries of an earlier version ({_MANIFEST}/{path}.json), which list files in "
                "another form; write to another folder, and read this one with the version that wrote it"
            )
        return ManifestEntry(path, files, content)

    def write(self, entry: ManifestEntry) -> None:
        """Write an entry, or replace the one with its path."""
        self._place(entry.path).write(json.dumps({**entry.properties, "files": entry.files}, indent=1).encode())

    def delete(self, path: str) -> None:
        """Delete an entry; its files count no longer."""
        self._place(path).delete()

    def _place(self, path: str) -> FilePlace:
        return self.folder.child(_MANIFEST, f"{path}.json")


@frozen(order=True)
class OffsetRange:
    """Offsets from ``start`` up to ``next_offset``, exclusive, in the entry with a number; the last one's position."""

    next_offset: int
    start: int
    number: int

    @property
    def key(self) -> str:
        """The key of the entry without its partition."""
        return f"{self.number // _GROUP:08d}/{self.number:012d}-{self.start:020d}-{self.next_offset:020d}"

    @classmethod
    def of(cls, path: str) -> "OffsetRange":
        """Return the range parsed from the path of an entry."""
        number, start, next_offset = map(int, path.rpartition("/")[2].removesuffix(".json").split("-"))
        return cls(next_offset, start, number)


@define(eq=False)
class ManifestLog(LakeLog):
    """A folder of Parquet files, whose manifest has the position of each partition of a topic in its last entry."""

    folder: Folder
    _writer: LakeWriter
    _columns: Sequence[PartitionColumn]
    _compression: str
    #: The last entry of each partition that was read, None for none.
    _last: dict[str, OffsetRange | None] = field(factory=dict, init=False)
    #: Partitions whose last entry may not be the newest one.
    _stale: set[str] = field(factory=set, init=False)
    #: The files of a commit by partition, with their numbers of rows.
    _files: dict[str, dict[str, int]] = field(factory=dict, init=False)

    def refresh(self) -> None:
        """Read the newest entries when they are asked for."""
        self._stale.update(self._last)

    def positions(self, keys: Collection[str]) -> dict[str, LakePosition]:
        """Return the position of each partition that has an entry.

        Raises:
            InputError: an earlier version has written the first entry of a partition.
        """
        for key in keys:
            if key not in self._last:
                groups = [name for name in self._place(key).names() if name.isdigit()]
                if groups and (oldest := self._entries(key, [min(groups)])):
                    Manifest(self.folder).read(self._path(key, min(oldest, key=lambda entry: entry.number)))
                self._last[key] = self._newest(key, [max(groups)]) if groups else None
            elif key in self._stale:
                last = self._last[key]
                number = -1 if last is None else last.number
                # Whoever has written more has written the entry after the last one.
                groups = sorted({f"{max(number, 0) // _GROUP:08d}", f"{(number + 1) // _GROUP:08d}"})
                self._last[key] = self._newest(key, groups)
            self._stale.discard(key)
        return {key: LakePosition(entry.next_offset) for key in keys if (entry := self._last[key]) is not None}

    def commit(self, commit: Commit) -> None:
        """Write files, which no reader sees, and then an entry for each partition, one after the other.

        Raises:
            PositionMovedError: another writer has changed an expected position.
            InputError: a file cannot be written as Parquet.
            OSError: the file system has failed.
        """
        self._files = {key: {} for key in commit.positions}
        try:
            for key, rows in commit.rows.items():
                self._write_files(key, rows, self._files[key])
            self._check(commit.expected)
        except BaseException:
            for path in chain.from_iterable(self._files.values()):
                with suppress(OSError):  # Its writing has failed; a file that stays is in no manifest.
                    self.folder.child(path).delete()
            raise
        # From here on an entry may be there, though its writing fails, so that its files stay.
        self._write(commit)

    def _write(self, commit: Commit) -> None:
        for key, position in commit.positions.items():
            self._add(key, commit.rows[key], position.number, self._files[key])

    def _write_files(self, key: str, rows: Any, files: dict[str, int]) -> None:
        """Write rows to a file in each folder; ``files`` gets its number of rows by path, before it is written."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not rows.num_rows:
            return
        name = f"{self._writer.topic}-{int(key):05d}-{rows['offset'][0].as_py():012d}-{uuid4().hex}.parquet"
        for folder, part in folders_of(rows, self._columns, file_schema(rows.schema, self._columns)):
            path = f"{folder}{name}"
            files[path] = part.num_rows
            try:
                with self.folder.child(path).whole_file() as stream:
                    pq.write_table(part, stream, compression=self._compression)
            except pa.ArrowInvalid as error:
                raise InputError(f"{path} cannot be written: {error}") from error

    def _add(self, key: str, rows: Any, next_offset: int, files: dict[str, int]) -> None:
        last = self._last[key]
        if last is None:
            offsets = OffsetRange(next_offset, rows["offset"][0].as_py() if rows.num_rows else next_offset, 0)
        else:
            offsets = OffsetRange(next_offset, last.next_offset, last.number + 1)
        Manifest(self.folder).write(ManifestEntry(self._path(key, offsets), files, {}))
        self._last[key] = offsets

    def _path(self, key: str, offsets: OffsetRange) -> str:
        return f"{self._writer.name}/{self._writer.topic}/{int(key):05d}/{offsets.key}"

    def _place(self, key: str) -> Folder:
        return self.folder.child(_MANIFEST, self._writer.name, self._writer.topic, f"{int(key):05d}")

    def _newest(self, key: str, groups: Sequence[str]) -> OffsetRange | None:
        return max(self._entries(key, groups), default=None)

    def _entries(self, key: str, groups: Sequence[str]) -> list[OffsetRange]:
        names = [name for group in groups for name in self._place(key).child(group).names()]
        return [OffsetRange.of(name) for name in names if name.endswith(".json")]
