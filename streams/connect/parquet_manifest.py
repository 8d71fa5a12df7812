"""The reader of the files that a connector has written to a folder, by their manifest.

Of the other packages, this module imports only ``lakes``; pyarrow is imported on use.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from streams.connect.errors import ConnectError
from streams.lakes import Folder, LakeWriter, Manifest, OffsetRange


@frozen
class ManifestFile:
    """A file of the manifest: its path relative to the folder, its partition and its number of rows.

    Rows with an ``offset`` below ``from_offset`` are also in an earlier file; 0 if there are none.
    """

    path: str
    partition: int
    rows: int
    from_offset: int = 0


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
        self._manifest = Manifest(self._folder)
        self._writer = LakeWriter(connector, topic, is_connector=True)

    def __repr__(self) -> str:
        return f"ParquetManifest({self._folder.path}, {self._writer.name}, {self._writer.topic})"

    def positions(self) -> dict[int, int]:
        """Return the offset after the last record of each partition."""
        positions = {partition: max(entries).next_offset for partition, entries in self._entries().items()}
        return dict(sorted(positions.items()))

    def files(self, after: Mapping[int, int] | None = None) -> list[ManifestFile]:
        """Return all files, or those with records at or after the offsets ``after``, which are by partition.

        A reader that goes on later keeps the ``positions`` from before this call, and gives them as ``after``.

        Raises:
            InputError: an earlier version has written the manifest.
        """
        return list(self._files(after or {}))

    def table(self, after: Mapping[int, int] | None = None, columns: Sequence[str] | None = None) -> Any:
        """Return the records of ``files`` as a ``pyarrow.Table``, without the columns of ``partition_by``.

        Raises:
            ConnectError: there are no files, so that the columns are not known.
            InputError: an earlier version has written the manifest.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        tables = []
        for file in self._files(after or {}):
            with self._folder.system.open_input_file(self._folder.child(file.path).path) as stream:
                rows = pq.read_table(stream)
            tables.append(rows.filter(pc.greater_equal(rows.column("offset"), file.from_offset)))
        if not tables:
            raise ConnectError(f"{self!r}: has no files")
        rows = pa.concat_tables(tables)
        return rows if columns is None else rows.select(list(columns))

    def _files(self, after: Mapping[int, int]) -> Iterator[ManifestFile]:
        for partition, entries in sorted(self._entries().items()):
            covered = after.get(partition, 0)
            for offsets, path in sorted(entries.items(), key=lambda entry: (entry[0].start, entry[0].next_offset)):
                if offsets.next_offset <= covered:
                    continue
                start = covered if offsets.start < covered else 0
                for file, rows in self._manifest.read(path).files.items():
                    yield ManifestFile(file, partition, rows, start)
                covered = offsets.next_offset

    def _entries(self) -> dict[int, dict[OffsetRange, str]]:
        entries: dict[int, dict[OffsetRange, str]] = {}
        for path in self._manifest.paths(self._writer):
            partition = int(path.split("/")[2])
            entries.setdefault(partition, {})[OffsetRange.of(path)] = path
        return entries
