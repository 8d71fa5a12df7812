"""Sinks into Delta and Iceberg tables and folders of Parquet files, exactly once.

Blocks are committed as tables of Arrow, with the positions after them.  The columns are those that a replay gives a
table of the topic, so a sink can continue what a replay has written, and a replay what a sink has written.
Of the other packages, this module imports only ``core``, ``files``, ``lakes`` and ``values``; their libraries are
imported on use.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from streams.connect.buffered_sink import BufferedSink
from streams.connect.errors import ConnectError
from streams.connect.protocol import SinkBlock
from streams.core.blocks.records import Block
from streams.core.errors import ConfigError, InputError, SerializationError
from streams.core.topic import Topic
from streams.files import table_around
from streams.lakes import (
    Commit,
    DeltaLog,
    Folder,
    IcebergLog,
    LakeLog,
    LakeName,
    LakePosition,
    LakeWriter,
    ManifestLog,
    PositionMovedError,
)
from streams.values import ArrowRecords, PartitionColumn, arrow_column, partition_columns

#: Errors of a file system that stay.
_LASTING = (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)


class LakeSink(BufferedSink):
    """Appends a topic to a table; a row has ``key``, ``value``, ``timestamp``, ``headers``, ``partition``, ``offset``.

    A windowed key is ``key``, ``window_start`` and ``window_end``.
    """

    def __init__(self, table: str, partition_by: str | list[str]) -> None:
        super().__init__()
        self._name = str(table)
        self._partition_by = partition_by
        self._records = ArrowRecords(None, as_table=True)
        self._log: LakeLog | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(table={self._name!r})"

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error is one of storage or of a catalog's server, or a conflict with another writer."""
        cause = error.__cause__ if isinstance(error, InputError) else error
        return self._is_passing(cause)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    @abstractmethod
    def _is_passing(self, cause: BaseException | None) -> bool:
        """Whether an error of a library or file system may pass."""

    @abstractmethod
    def _open_log(self, writer: LakeWriter, schema: Any, columns: Sequence[PartitionColumn]) -> LakeLog:
        """Create or check the table for rows with this Arrow schema.

        Raises:
            InputError: the table does not fit, or cannot be created.
        """

    def _opened(self, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        self.close()
        self._records = ArrowRecords(topic, as_table=True)
        schema = self._records.schema
        try:
            columns = partition_columns(schema, self._partition_by)
            self._log = self._open_log(LakeWriter(self._connector, topic.name, is_connector=True), schema, columns)
            positions = self._log.positions([str(partition) for partition in partitions])
        except InputError as error:
            if self.is_retriable(error):
                raise
            raise ConfigError(f"{self!r}: {error}") from error
        return {int(key): position.number for key, position in positions.items()}

    def _commit(self, blocks: Sequence[SinkBlock[Any, Any]], moves: Mapping[int, int]) -> None:
        import pyarrow as pa

        assert self._log is not None, "open comes first"
        batches: dict[str, list[Any]] = {}
        for block in blocks:
            batches.setdefault(str(block.partition), []).append(self._batch(block))
        commit = Commit(
            {str(partition): LakePosition(next_offset) for partition, next_offset in moves.items()},
            {"streams.connector": self._connector, "streams.topic": self._topic},
            {key: pa.Table.from_batches(rows) for key, rows in batches.items()},
            expected={str(partition): self._stored[partition] for partition in moves},
        )
        try:
            self._log.commit(commit)
        except PositionMovedError as error:
            raise self._fenced(int(error.key), f"{error.number}, ") from error
        except InputError as error:
            raise ConnectError(f"{self!r}: {error}") from error

    def _batch(self, block: SinkBlock[Any, Any]) -> Any:
        """Return the records of a block as an Arrow batch.

        Raises:
            ConnectError: a key or value does not fit its column.
        """
        import pyarrow as pa

        nothing = [None] * len(block)
        places = Block(nothing, nothing, block.timestamps_ms, block.headers, block.offsets)
        try:
            keys = arrow_column(block.topic.key_serde).of_objects(block.keys)
            values = arrow_column(block.topic.value_serde).of_objects(block.values)
            return self._records.batch_of(block.partition, places, keys, values)
        except (SerializationError, pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise ConnectError(
                f"{self!r}: {block.topic.name}-{block.partition}, offsets from {block.offsets[0]} to "
                f"{block.offsets[-1]}: a record does not fit the columns: {error}"
            ) from error


class TableSink(LakeSink):
    """Appends a topic to a table of a format."""

    _kind: ClassVar[type[DeltaLog] | type[IcebergLog]]

    def __init__(self, table: str, *, partition_by: str | list[str] = "") -> None:
        self._kind.errors()  # So a library that is missing is an error from the start.
        super().__init__(table, partition_by)

    def _is_passing(self, cause: BaseException | None) -> bool:
        return isinstance(cause, self._kind.errors().passing)

    def _open_log(self, writer: LakeWriter, schema: Any, columns: Sequence[PartitionColumn]) -> LakeLog:
        return self._kind.opened(LakeName(self._kind.format, self._name), writer, schema, columns)


class DeltaSink(TableSink):
    """Appends a topic to a Delta table, exactly once: the positions are in the commit of the rows.

    Each record is a row, and the value of a tombstone is null.  The table is created if it is missing.  It may be one
    that a replay has written with ``delta:FOLDER``.  Other writers may append to it, compact and vacuum it meanwhile.

    Args:
        table: the folder, or a URI such as ``s3://bucket/orders``; credentials are those of the environment.
        partition_by: columns that partition the table: ``day`` for the UTC day of the event time, a column, or a field
            such as ``value.country``; none by default.

    Raises:
        ConfigError: deltalake is not installed.
    """

    _kind = DeltaLog


class IcebergSink(TableSink):
    """Appends a topic to an Iceberg table, exactly once: the positions are in the snapshot of the rows.

    Each record is a row, and the value of a tombstone is null.  The table is created if it is missing.  It may be one
    that a replay has written with ``iceberg:NAME``.  The positions are the summary property
    ``streams.offsets.CONNECTOR.TOPIC`` of a snapshot, and a table property of the same name for the time after which
    that snapshot has expired.  A rollback of the table also resets the positions.

    Args:
        table: ``[CATALOG.]NAMESPACE.TABLE``, with the catalogs of pyiceberg's configuration.
        partition_by: columns that partition the table: ``day`` for the UTC day of the event time, a column, or a field
            such as ``value.country``; none by default.

    Raises:
        ConfigError: pyiceberg is not installed.
    """

    _kind = IcebergLog


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
        super().__init__(folder, partition_by)
        self._compression = compression
        self._folder = Folder.of(self._name, filesystem)
        around = table_around(self._folder.path) if self._folder.system.type_name == "local" else None
        if around is not None:
            raise ConfigError(f"{self!r}: cannot be written to: {around}; choose a folder outside of it")

    def __repr__(self) -> str:
        return f"ParquetSink(folder={self._name!r})"

    def _open_log(self, writer: LakeWriter, schema: Any, columns: Sequence[PartitionColumn]) -> LakeLog:
        return ManifestLog(self._folder, writer, columns, self._compression)

    def _is_passing(self, cause: BaseException | None) -> bool:
        return isinstance(cause, OSError) and not isinstance(cause, _LASTING)
