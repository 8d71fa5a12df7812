"""The base of sinks into lakes: blocks as tables of Arrow, which are committed with the positions after them.

The columns are those that a replay gives a table of the topic, so a sink can continue a table that a replay has
written, and a replay one that a sink has written.
Of the other packages, this module imports only ``core``, ``files`` and ``lakes``; pyarrow is imported on use.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from streams.connect.buffered_sink import BufferedSink
from streams.connect.errors import ConnectError
from streams.connect.protocol import SinkBlock
from streams.core.blocks.records import Block
from streams.core.errors import ConfigError, InputError, SerializationError
from streams.core.topic import Topic
from streams.files import ArrowRecords, PartitionColumn, arrow_column, partition_columns
from streams.lakes import Commit, LakeLog, LakePosition, LakeWriter, PositionMovedError


class LakeSink(BufferedSink):
    """Appends a topic to a table; a row has ``key``, ``value``, ``timestamp``, ``headers``, ``partition``, ``offset``.

    A windowed key is ``key``, ``window_start`` and ``window_end``.
    """

    def __init__(self, table: str, partition_by: str | list[str], library: str) -> None:
        try:
            import_module(library)
        except ImportError as error:
            raise ConfigError(f"{type(self).__name__} needs {library} ({error}): pip install 'streams[lake]'") from None
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
        """Close the connections to a catalog."""
        if self._log is not None:
            self._log.close()
            self._log = None

    @abstractmethod
    def _open_log(self, writer: LakeWriter, schema: Any, columns: Sequence[PartitionColumn]) -> LakeLog:
        """Create or check the table for rows with this Arrow schema.

        Raises:
            InputError: the table does not fit, or cannot be created.
        """

    @abstractmethod
    def _is_passing(self, cause: BaseException | None) -> bool:
        """Whether an error of a library may pass."""

    def _opened(self, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        self.close()
        self._records = ArrowRecords(topic, as_table=True)
        schema = self._records.schema
        try:
            columns = partition_columns(schema, self._partition_by)
            self._log = self._open_log(LakeWriter(self._connector, topic.name, is_connector=True), schema, columns)
        except InputError as error:
            if self.is_retriable(error):
                raise
            raise ConfigError(f"{self!r}: {error}") from error
        positions = self._log.positions([str(partition) for partition in partitions])
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
