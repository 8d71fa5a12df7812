"""The manifest of a folder of Parquet files: which files have which offsets of a partition.

An entry is one file, written atomically: ``_manifest/CONNECTOR/TOPIC/PARTITION/GROUP/NUMBER-START-NEXT.json``, for
the offsets from START up to NEXT, exclusive.  The records of an offset never change, so two entries with the same
offset have the same record, and a reader takes it from the first entry.  So each record is read exactly once, without
locks or conditional creation of files, which some object stores lack.
Of the other packages, this module imports only ``core`` and ``files``; pyarrow is imported on use.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from attrs import field, frozen

from streams.connect.errors import ConnectError
from streams.core.errors import ConfigError
from streams.files import FileSystemError, file_system

#: Entries of one folder, which is what the check before a commit lists.
_GROUP: Final = 1_000


@frozen
class ManifestFile:
    """A file of the manifest: its path relative to the folder, its partition and its number of rows.

    Rows with an ``offset`` below ``from_offset`` are also in an earlier file; 0 if there are none.
    """

    path: str
    partition: int
    rows: int
    from_offset: int = 0


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


class ParquetManifest:
    """Reads the folder of a ``ParquetSink``: each record exactly once, while the sink goes on writing.

    Args:
        folder: the folder of the sink: a path or a URI, or a path in ``filesystem``.
        connector: the name of the worker.
        topic: the name of the topic.
        filesystem: a file system of pyarrow or fsspec; by default the one of the URI.

    Raises:
        ConfigError: there is no such file system.
    """

    def __init__(self, folder: str, connector: str, topic: str, *, filesystem: Any = None) -> None:
        self._folder = Folder.of(str(folder), filesystem)
        self._root = f"_manifest/{connector}/{topic}"

    def __repr__(self) -> str:
        return f"ParquetManifest({self._folder.path}/{self._root})"

    def positions(self) -> dict[int, int]:
        """Return the offset after the last record of each partition."""
        positions = {partition: max(entries).next_offset for partition, entries in self._entries().items()}
        return dict(sorted(positions.items()))

    def files(self, after: Mapping[int, int] | None = None) -> list[ManifestFile]:
        """Return all files, or those with records at or after the offsets ``after``, which are by partition.

        A reader that goes on later keeps the ``positions`` from before this call, and gives them as ``after``.
        """
        return list(self._files(after or {}))

    def table(self, after: Mapping[int, int] | None = None, columns: Sequence[str] | None = None) -> Any:
        """Return the records of ``files`` as a ``pyarrow.Table``, without the columns of ``partition_by``.

        Raises:
            ConnectError: there are no files, so that the columns are not known.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        tables = []
        for file in self._files(after or {}):
            with self._folder.system.open_input_file(f"{self._folder.path}/{file.path}") as stream:
                rows = pq.read_table(stream)
            tables.append(rows.filter(pc.greater_equal(rows.column("offset"), file.from_offset)))
        if not tables:
            raise ConnectError(f"{self!r}: has no files")
        rows = pa.concat_tables(tables)
        return rows if columns is None else rows.select(list(columns))

    def _files(self, after: Mapping[int, int]) -> Iterator[ManifestFile]:
        for partition, entries in sorted(self._entries().items()):
            covered = after.get(partition, 0)
            for entry in sorted(entries, key=lambda entry: (entry.start, entry.next_offset)):
                if entry.next_offset <= covered:
                    continue
                listed = json.loads(self._folder.read(f"{self._root}/{partition:05d}/{entry.path}"))
                start = covered if entry.start < covered else 0
                for file in listed["files"]:
                    yield ManifestFile(file["path"], partition, file["rows"], start)
                covered = entry.next_offset

    def _entries(self) -> dict[int, list[Entry]]:
        entries: dict[int, list[Entry]] = {}
        for path in self._folder.names(self._root, recursive=True):
            if path.endswith(".json"):
                entries.setdefault(int(path.partition("/")[0]), []).append(Entry.of(path))
        return entries


@frozen(eq=False)
class ManifestWriter:
    """Adds entries to the manifest of a topic."""

    folder: Folder
    connector: str
    topic: str
    _last: dict[int, Entry | None] = field(factory=dict, init=False)

    def open(self, partitions: Sequence[int]) -> dict[int, int]:
        """Read the last entry of each partition, and return the positions."""
        self._last.clear()
        for partition in partitions:
            groups = [name for name in self.folder.names(self._place(partition)) if name.isdigit()]
            self._last[partition] = self._newest(partition, [max(groups)]) if groups else None
        return {partition: entry.next_offset for partition, entry in self._last.items() if entry is not None}

    def position(self, partition: int) -> int | None:
        """Return the last read or written position of a partition; None if the partition has no entry."""
        entry = self._last[partition]
        return None if entry is None else entry.next_offset

    def found(self, partition: int) -> int | None:
        """Read the position of a partition from the file system and return it; None if the partition has no entry."""
        last = self._last[partition]
        number = -1 if last is None else last.number
        # Whoever has written more has written the entry after the last one.
        groups = sorted({max(number, 0) // _GROUP, (number + 1) // _GROUP})
        entry = self._newest(partition, [f"{group:08d}" for group in groups])
        return None if entry is None else entry.next_offset

    def add(self, partition: int, first: int, next_offset: int, files: Sequence[tuple[str, int]]) -> None:
        """Add an entry for files, each a path and its number of rows; ``first`` is the offset of the first record."""
        last = self._last[partition]
        number, start = (0, first) if last is None else (last.number + 1, last.next_offset)
        entry = Entry(next_offset, start, number)
        listed = [{"path": path, "rows": rows} for path, rows in files]
        content = json.dumps({"start": start, "next_offset": next_offset, "files": listed}).encode()
        self.folder.write(f"{self._place(partition)}/{entry.path}", lambda stream: stream.write(content))
        self._last[partition] = entry

    def _place(self, partition: int) -> str:
        return f"_manifest/{self.connector}/{self.topic}/{partition:05d}"

    def _newest(self, partition: int, groups: Sequence[str]) -> Entry | None:
        names = [name for group in groups for name in self.folder.names(f"{self._place(partition)}/{group}")]
        return max((Entry.of(name) for name in names if name.endswith(".json")), default=None)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
