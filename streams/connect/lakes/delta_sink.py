"""A sink into a Delta table, exactly once (extra ``lake``).

A commit is one version of the table: the rows, and for each partition an application transaction with the position
after them.  Delta rejects a commit if another one has written the same application transaction meanwhile.
Of the other packages, this module imports only ``core`` and ``files``; deltalake is imported on use.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from streams.connect.errors import ConnectError
from streams.connect.lakes.lake_rows import LakeRows, check_positions, names_of
from streams.connect.protocol import Guarantee, SinkBlock
from streams.core.errors import ConfigError, InputError
from streams.core.topic import Topic
from streams.files import created_delta


class DeltaSink:
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

    guarantee: Final = Guarantee.EXACTLY_ONCE

    def __init__(self, table: str, *, partition_by: str | list[str] = "") -> None:
        _deltalake()
        self._uri = str(table)
        self._partition_by = names_of(partition_by)
        self._connector = ""
        self._rows: LakeRows | None = None
        self._table: Any = None
        #: Position of each partition in the table, None for none.
        self._stored: dict[int, int | None] = {}
        self._blocks: list[SinkBlock[Any, Any]] = []

    def __repr__(self) -> str:
        return f"DeltaSink(table={self._uri!r})"

    # --- protocol ---------------------------------------------------------------------

    def open(self, connector: str, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        """Create or check the table, and return the positions in its log.

        Raises:
            ConfigError: the table has other columns or partition columns.
        """
        self.abort()
        self._connector = connector
        self._rows = LakeRows.of(repr(self), topic, self._partition_by)
        try:
            names = [column.name for column in self._rows.columns]
            self._table = created_delta(self._uri, self._rows.wide_schema, names)
        except InputError as error:
            if error.__cause__ is not None and self.is_retriable(error):
                raise
            raise ConfigError(f"{self!r}: {error}") from error
        positions = self._found(partitions)
        self._stored = {partition: positions.get(partition) for partition in partitions}
        return positions

    def write(self, block: SinkBlock[Any, Any]) -> None:
        """Buffer a block until the next commit."""
        self._blocks.append(block)

    def commit(self) -> None:
        """Write the blocks and their positions as one version of the table.

        Raises:
            SinkFencedError: another worker has changed a stored position.
            ConnectError: a record does not fit its column, or the table was given other columns meanwhile.
        """
        if not self._blocks:
            return
        import pyarrow as pa
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError, SchemaMismatchError

        assert self._rows is not None, "open comes first"
        moved = {block.partition: block.next_offset for block in self._blocks}
        rows = pa.Table.from_batches(map(self._rows.wide_batch, self._blocks), self._rows.wide_schema)
        self._check(moved)
        properties = CommitProperties(
            custom_metadata={"streams.connector": self._connector, "streams.topic": self._rows.topic.name},
            app_transactions=[Transaction(self._app_id(partition), at) for partition, at in moved.items()],
        )
        try:
            write_deltalake(self._table, rows, mode="append", commit_properties=properties)
        except CommitFailedError:
            self._check(moved)
            raise  # It was in conflict with another writer, whom it does not concern what is written here.
        except SchemaMismatchError as error:
            raise ConnectError(f"{self!r}: the columns of the table were changed: {error}") from error
        self._stored.update(moved)
        self._blocks.clear()

    def abort(self) -> None:
        """Discard the blocks written since the last commit."""
        self._blocks.clear()

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error is a storage error, or a conflict with another writer."""
        from deltalake.exceptions import CommitFailedError

        cause = error.__cause__ if isinstance(error, InputError) else error
        return isinstance(cause, OSError | CommitFailedError)

    def close(self) -> None:
        """Drop the reference to the table."""
        self._table = None

    # --- inside -----------------------------------------------------------------------

    def _app_id(self, partition: int) -> str:
        assert self._rows is not None, "open comes first"
        return f"streams/{self._connector}/{self._rows.topic.name}/{partition}"

    def _found(self, partitions: Sequence[int]) -> dict[int, int]:
        versions = {partition: self._table.transaction_version(self._app_id(partition)) for partition in partitions}
        return {partition: int(at) for partition, at in versions.items() if at is not None}

    def _check(self, moved: Mapping[int, int]) -> None:
        """Read the newest version of the table, and check the positions of the partitions in the commit.

        Raises:
            SinkFencedError: another worker has changed a stored position.
        """
        assert self._rows is not None, "open comes first"
        self._table.update_incremental()
        where = f"{self._connector!r} in {self._rows.topic.name}"
        check_positions(repr(self), where, self._stored, self._found(list(moved)), list(moved))


def _deltalake() -> Any:
    try:
        import deltalake
    except ImportError as error:
        raise ConfigError(f"DeltaSink needs deltalake ({error}): pip install 'streams[lake]'") from None
    return deltalake
