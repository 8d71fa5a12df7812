"""Blocks of a sink as Arrow batches, with the columns that a replay gives a table of the topic.

Therefore a sink can continue a table that a replay has written, and a replay one that a sink has written.
Of the other packages, this module imports only ``core`` and ``files``; pyarrow is imported on use.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from streams.connect.errors import ConnectError, SinkFencedError
from streams.connect.protocol import SinkBlock
from streams.core.blocks.records import Block
from streams.core.errors import ConfigError, InputError, SerializationError
from streams.core.topic import Topic
from streams.files import ArrowRecords, PartitionColumn, arrow_column, file_schema, folders_of


@frozen(eq=False)
class LakeRows:
    """The rows of a topic: ``key``, ``value``, ``timestamp``, ``headers``, ``partition`` and ``offset``.

    A windowed key is ``key``, ``window_start`` and ``window_end``.  ``columns`` are those of ``partition_by``.
    """

    sink: str
    topic: Topic[Any, Any]
    columns: tuple[PartitionColumn, ...]

    @classmethod
    def of(cls, sink: str, topic: Topic[Any, Any], partition_by: Sequence[str]) -> "LakeRows":
        """Return the ``LakeRows`` of a topic; ``sink`` is the name of the sink in error messages.

        Raises:
            ConfigError: ``partition_by`` names an unknown column, or one whose type cannot partition a table.
        """
        schema = ArrowRecords(topic, as_table=True).schema
        try:
            columns = tuple(PartitionColumn.of(name, schema) for name in partition_by)
        except InputError as error:
            raise ConfigError(f"{sink}: {error}") from None
        return cls(sink, topic, columns)

    @property
    def schema(self) -> Any:
        """The Arrow schema of ``batch``."""
        return ArrowRecords(self.topic, as_table=True).schema

    @property
    def wide_schema(self) -> Any:
        """The Arrow schema of ``wide_batch``: the columns of the files, and then the partition columns."""
        import pyarrow as pa

        parts = [pa.field(column.name, column.type_in(self.schema)) for column in self.columns]
        return pa.schema([*file_schema(self.schema, self.columns), *parts])

    def batch(self, block: SinkBlock[Any, Any]) -> Any:
        """Return the records of a block as an Arrow batch.

        Raises:
            ConnectError: a key or value does not fit its column.
        """
        import pyarrow as pa

        nothing = [None] * len(block)
        places = Block(nothing, nothing, block.timestamps_ms, block.headers, block.offsets)
        try:
            keys = arrow_column(self.topic.key_serde).of_objects(block.keys)
            values = arrow_column(self.topic.value_serde).of_objects(block.values)
            return ArrowRecords(self.topic, as_table=True).batch_of(block.partition, places, keys, values)
        except (SerializationError, pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise ConnectError(
                f"{self.sink}: {block.topic.name}-{block.partition}, offsets from {block.offsets[0]} to "
                f"{block.offsets[-1]}: a record does not fit the columns: {error}"
            ) from error

    def wide_batch(self, block: SinkBlock[Any, Any]) -> Any:
        """Return the records of a block and the partition columns as an Arrow batch."""
        import pyarrow as pa

        batch = self.batch(block)
        schema = self.wide_schema
        added = {column.name: column.array(batch) for column in self.columns}
        arrays = [added[name] if name in added else batch.column(name) for name in schema.names]
        return pa.record_batch(arrays, schema=schema)

    def by_folder(self, block: SinkBlock[Any, Any]) -> Iterator[tuple[str, Any]]:
        """Yield the rows of a block by the folder of their partition, with the columns of the files."""
        yield from folders_of(self.batch(block), self.columns, file_schema(self.schema, self.columns))


def names_of(partition_by: str | Sequence[str]) -> list[str]:
    """Return the column names in ``partition_by``: a name or a list of names; an empty name means none."""
    names = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    return [name for name in names if name]


def check_positions(
    sink: str, where: str, expected: Mapping[int, int | None], stored: Mapping[int, int], partitions: Sequence[int]
) -> None:
    """Check that the stored position of each partition is the one from which the sink started.

    Raises:
        SinkFencedError: another worker has changed a stored position.
    """
    for partition in partitions:
        if stored.get(partition) != expected[partition]:
            raise SinkFencedError(
                f"{sink}: the position of {where}-{partition} is {stored.get(partition)}, no longer "
                f"{expected[partition]}: another worker has written there"
            )
