"""A sink into a folder of Parquet files, on this machine or an object store, exactly once for readers of its manifest.

A block becomes a file for each folder of the partition columns; then an entry of the manifest makes them visible.
Of the other packages, this module imports only ``core`` and ``files``; pyarrow is imported on use.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal
from uuid import uuid4

from attrs import frozen

from streams.connect.errors import ConnectError
from streams.connect.lakes.lake_rows import LakeRows, check_positions, names_of
from streams.connect.lakes.parquet_manifest import Folder, ManifestWriter
from streams.connect.protocol import Guarantee, SinkBlock
from streams.core.errors import ConfigError
from streams.core.topic import Topic
from streams.files import table_around

#: Errors of a file system that stay.
_LASTING = (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)


@frozen(eq=False)
class _Written:
    """The files of a block."""

    partition: int
    first: int
    next_offset: int
    files: Sequence[tuple[str, int]]


class ParquetSink:
    """Appends a topic to a folder of Parquet files, exactly once for readers that use ``ParquetManifest``.

    Each record is a row, and the value of a tombstone is null.  Rows have the columns that a replay writes.  A worker
    that is killed leaves files that are not in the manifest; they may be deleted when they are a day old.

    Each batch creates a file per partition and folder, so give the worker large batches: ``batch_ms=60_000``.

    Args:
        folder: a path, or a URI such as ``s3://bucket/orders``; with ``filesystem``, a path in that.
        partition_by: columns that make folders: ``day`` for the UTC day of the event time, a column, or a field such
            as ``value.country``; none by default.
        compression: the codec of the files.
        filesystem: a file system of pyarrow or fsspec; by default the one of the URI.

    Raises:
        ConfigError: there is no such file system, or the folder is within a lake table.
    """

    guarantee: Final = Guarantee.EXACTLY_ONCE

    def __init__(
        self,
        folder: str,
        *,
        partition_by: str | list[str] = "",
        compression: Literal["snappy", "zstd", "gzip", "lz4", "none"] = "snappy",
        filesystem: Any = None,
    ) -> None:
        self._name = str(folder)
        self._partition_by = names_of(partition_by)
        self._compression = compression
        self._folder = Folder.of(self._name, filesystem)
        around = table_around(self._folder.path) if self._folder.is_local else None
        if around is not None:
            raise ConfigError(f"{self!r}: cannot be written to: {around}; choose a folder outside of it")
        self._rows: LakeRows | None = None
        self._manifest = ManifestWriter(self._folder, "", "")
        self._waiting: list[_Written] = []

    def __repr__(self) -> str:
        return f"ParquetSink(folder={self._name!r})"

    # --- protocol ---------------------------------------------------------------------

    def open(self, connector: str, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        """Return the positions in the manifest.

        Raises:
            ConfigError: ``partition_by`` does not fit the topic.
        """
        self.abort()
        self._rows = LakeRows.of(repr(self), topic, self._partition_by)
        self._manifest = ManifestWriter(self._folder, connector, topic.name)
        return self._manifest.open(partitions)

    def write(self, block: SinkBlock[Any, Any]) -> None:
        """Write the files of a block; readers do not see them before ``commit``.

        Raises:
            ConnectError: a record does not fit its column.
        """
        assert self._rows is not None, "open comes first"
        files: list[tuple[str, int]] = []
        first = block.offsets[0] if len(block) else block.next_offset
        # Listed first, so that abort deletes what is there of them.
        self._waiting.append(_Written(block.partition, first, block.next_offset, files))
        if not len(block):
            return
        name = f"{block.topic.name}-{block.partition:05d}-{first:012d}-{uuid4().hex}.parquet"
        for folder, rows in self._rows.by_folder(block):
            files.append((f"{folder}{name}", rows.num_rows))
            self._write_file(files[-1][0], rows)

    def commit(self) -> None:
        """Add the files and the position of each partition to the manifest, one partition after the other.

        Raises:
            SinkFencedError: another worker has changed a stored position.
        """
        if not self._waiting:
            return
        partitions = sorted({written.partition for written in self._waiting})
        expected = {partition: self._manifest.position(partition) for partition in partitions}
        stored = {partition: at for partition in partitions if (at := self._manifest.found(partition)) is not None}
        check_positions(repr(self), "the manifest", expected, stored, partitions)
        # From here on an entry may be there, though its writing fails, so abort must not delete its files.
        waiting = self._waiting
        self._waiting = []
        for written in waiting:
            self._manifest.add(written.partition, written.first, written.next_offset, written.files)

    def abort(self) -> None:
        """Delete the written files that are not in the manifest."""
        waiting = self._waiting
        self._waiting = []
        for written in waiting:
            for path, _ in written.files:
                with suppress(FileNotFoundError):  # Its writing has failed.
                    self._folder.delete(path)

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error is a file system error, other than a missing permission."""
        return isinstance(error, OSError) and not isinstance(error, _LASTING)

    def close(self) -> None:
        """Delete the written files that are not in the manifest."""
        self.abort()

    # --- inside -----------------------------------------------------------------------

    def _write_file(self, path: str, rows: Any) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_batches([rows])
        try:
            self._folder.write(path, lambda stream: pq.write_table(table, stream, compression=self._compression))
        except pa.ArrowInvalid as error:
            raise ConnectError(f"{self!r}: {path} cannot be written: {error}") from error
