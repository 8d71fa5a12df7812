"""A sink into a folder of Parquet files, on this machine or an object store, exactly once for readers of its manifest.

A commit writes a file for each partition of the topic and folder of the partition columns; then entries of the manifest
make them visible.
Of the other packages, this module imports only ``core``, ``files`` and ``lakes``; pyarrow is imported on use.
"""

from collections.abc import Sequence
from typing import Any, Literal

from streams.connect.lakes.lake_sink import LakeSink
from streams.core.errors import ConfigError
from streams.files import PartitionColumn, table_around
from streams.lakes import Folder, LakeLog, LakeWriter, ManifestLog

#: Errors of a file system that stay.
_LASTING = (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)


class ParquetSink(LakeSink):
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

    def __init__(
        self,
        folder: str,
        *,
        partition_by: str | list[str] = "",
        compression: Literal["snappy", "zstd", "gzip", "lz4", "none"] = "snappy",
        filesystem: Any = None,
    ) -> None:
        super().__init__(folder, partition_by, "pyarrow")
        self._compression = compression
        self._folder = Folder.of(self._name, filesystem)
        around = table_around(self._folder.path) if self._folder.is_local else None
        if around is not None:
            raise ConfigError(f"{self!r}: cannot be written to: {around}; choose a folder outside of it")

    def __repr__(self) -> str:
        return f"ParquetSink(folder={self._name!r})"

    def _open_log(self, writer: LakeWriter, schema: Any, columns: Sequence[PartitionColumn]) -> LakeLog:
        return ManifestLog(self._folder, writer, columns, self._compression)

    def _is_passing(self, cause: BaseException | None) -> bool:
        return isinstance(cause, OSError) and not isinstance(cause, _LASTING)
