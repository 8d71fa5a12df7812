"""The manifest of a folder of Parquet files: which files have which offsets of a partition.

An entry is one file, written atomically: ``_manifest/CONNECTOR/TOPIC/PARTITION/GROUP/NUMBER-START-NEXT.json``, for
the offsets from START up to NEXT, exclusive.  The records of an offset never change, so two entries with the same
offset have the same record, and a reader takes it from the first entry.  So each record is read exactly once, without
locks or conditional creation of files, which some object stores lack.
Of the other packages, this module imports only ``core`` and ``files``; pyarrow is imported on use.
"""

import json
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final
from uuid import uuid4

from attrs import define, field, frozen

from streams.core.errors import ConfigError, InputError
from streams.files import FileSystemError, PartitionColumn, file_schema, file_system, folders_of
from streams.lakes.lake_log import Commit, LakeLog, LakePosition, LakeWriter

#: Entries of one folder, which is what the check before a commit lists.
_GROUP: Final = 1_000


def manifest_folder(connector: str, topic: str) -> str:
    """Return the folder with the manifest of a topic, relative to the folder of the files."""
    return f"_manifest/{connector}/{topic}"


@frozen(order=True)
class Entry:
    """A manifest entry for offsets from ``start`` up to ``next_offset``, exclusive; the last entry has the position."""

    next_offset: int
    start: int
    number: int

    @property
    def path(self) -> str:
        """The path below the folder of the partition."""
        return f"{self.number // _GROUP:08d}/{self.number:012d}-{self.start:020d}-{self.next_offset:020d}.json"

    @classmethod
    def of(cls, path: str) -> "Entry":
        """Return the entry parsed from a path."""
        number, start, next_offset = map(int, path.rpartition("/")[2].removesuffix(".json").split("-"))
        return cls(next_offset, start, number)


@frozen(eq=False)
class Folder:
    """A folder in a file system of pyarrow."""

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

    @property
    def is_local(self) -> bool:
        """Whether the folder is on this machine's file system."""
        return bool(self.system.type_name == "local")

    def names(self, path: str, *, recursive: bool = False) -> list[str]:
        """Return the paths of the contents of a subfolder, relative to it; empty if the subfolder does not exist."""
        from pyarrow.fs import FileSelector

        base = f"{self.path}/{path}"
        entries = self.system.get_file_info(FileSelector(base, recursive=recursive, allow_not_found=True))
        # Stores differ in whether a path begins with a slash.
        return [info.path.lstrip("/").removeprefix(f"{base}/".lstrip("/")) for info in entries]

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        with self.system.open_input_stream(f"{self.path}/{path}") as stream:
            return bytes(stream.read())

    def write(self, path: str, content: Callable[[Any], None]) -> None:
        """Write a file atomically and durably; ``content`` is called with the stream to write to."""
        whole = f"{self.path}/{path}"
        if not self.is_local:
            with self.system.open_output_stream(whole) as stream:
                content(stream)
            return
        parent = os.path.dirname(whole)
        os.makedirs(parent, exist_ok=True)
        part = f"{whole}.{uuid4().hex}.part"
        with self.system.open_output_stream(part) as stream:
            content(stream)
        _sync(part)
        os.replace(part, whole)
        _sync(parent)

    def delete(self, path: str) -> None:
        """Delete a file."""
        self.system.delete_file(f"{self.path}/{path}")


@define(eq=False)
class ManifestLog(LakeLog):
    """A folder of Parquet files, whose manifest has the position of each partition of a topic in its last entry."""

    folder: Folder
    _writer: LakeWriter
    _columns: Sequence[PartitionColumn]
    _compression: str
    #: The last entry of each partition that was read, None for none.
    _last: dict[str, Entry | None] = field(factory=dict, init=False)
    #: Partitions whose last entry may not be the newest one.
    _stale: set[str] = field(factory=set, init=False)

    def refresh(self) -> None:
        """Read the newest entries when they are asked for."""
        self._stale.update(self._last)

    def positions(self, keys: Collection[str]) -> dict[str, LakePosition]:
        """Return the position of each partition that has an entry."""
        for key in keys:
            if key not in self._last:
                groups = [name for name in self.folder.names(self._place(key)) if name.isdigit()]
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
        files: dict[str, list[tuple[str, int]]] = {key: [] for key in commit.positions}
        try:
            for key, rows in commit.rows.items():
                self._write_files(key, rows, files[key])
            self._check(commit.expected)
        except BaseException:
            for path, _ in chain.from_iterable(files.values()):
                with suppress(OSError):  # Its writing has failed; a file that stays is in no manifest.
                    self.folder.delete(path)
            raise
        # From here on an entry may be there, though its writing fails, so that its files stay.
        for key, position in commit.positions.items():
            self._add(key, _first_offset(commit.rows[key], position), position.number, files[key])

    def _write_files(self, key: str, rows: Any, files: list[tuple[str, int]]) -> None:
        """Write rows to a file in each folder; ``files`` gets its path before it is written, and its number of rows."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not rows.num_rows:
            return
        first = rows["offset"][0].as_py()
        name = f"{self._writer.topic}-{int(key):05d}-{first:012d}-{uuid4().hex}.parquet"
        for folder, part in folders_of(rows, self._columns, file_schema(rows.schema, self._columns)):
            path = f"{folder}{name}"
            files.append((path, part.num_rows))
            write = partial(pq.write_table, part, compression=self._compression)
            try:
                self.folder.write(path, write)
            except pa.ArrowInvalid as error:
                raise InputError(f"{path} cannot be written: {error}") from error

    def _add(self, key: str, first: int, next_offset: int, files: Sequence[tuple[str, int]]) -> None:
        last = self._last[key]
        number, start = (0, first) if last is None else (last.number + 1, last.next_offset)
        entry = Entry(next_offset, start, number)
        listed = [{"path": path, "rows": rows} for path, rows in files]
        content = json.dumps({"start": start, "next_offset": next_offset, "files": listed}).encode()
        self.folder.write(f"{self._place(key)}/{entry.path}", lambda stream: stream.write(content))
        self._last[key] = entry

    def _place(self, key: str) -> str:
        return f"{manifest_folder(self._writer.name, self._writer.topic)}/{int(key):05d}"

    def _newest(self, key: str, groups: Sequence[str]) -> Entry | None:
        names = [name for group in groups for name in self.folder.names(f"{self._place(key)}/{group}")]
        return max((Entry.of(name) for name in names if name.endswith(".json")), default=None)


def _first_offset(rows: Any, position: LakePosition) -> int:
    first: int = rows["offset"][0].as_py() if rows.num_rows else position.number
    return first


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
