"""A sink into an Iceberg table, exactly once (extra ``lake``).

A commit is one snapshot, whose summary has the positions of all partitions.  It is only made on the snapshot whose
positions were checked: if another writer was faster, the worker opens the sink again.
Of the other packages, this module imports only ``core`` and ``files``; pyiceberg is imported on use.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from streams.connect.lakes.lake_rows import LakeRows, check_positions, names_of
from streams.connect.protocol import Guarantee, SinkBlock
from streams.core.errors import ConfigError, InputError
from streams.core.topic import Topic
from streams.files import created_iceberg, explained_iceberg, iceberg_catalog, without_commit_retries


class IcebergSink:
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
        ConfigError: pyiceberg is not installed, or the name has no namespace.
    """

    guarantee: Final = Guarantee.EXACTLY_ONCE

    def __init__(self, table: str, *, partition_by: str | list[str] = "") -> None:
        self._name = table
        self._partition_by = names_of(partition_by)
        _pyiceberg()
        self._catalog: Any = None
        self._within = ""
        self._property = ""
        self._rows: LakeRows | None = None
        #: Position of each partition in the table, None for none.
        self._stored: dict[int, int | None] = {}
        self._blocks: list[SinkBlock[Any, Any]] = []

    def __repr__(self) -> str:
        return f"IcebergSink(table={self._name!r})"

    # --- protocol ---------------------------------------------------------------------

    def open(self, connector: str, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        """Create or check the table, and return the positions in its snapshots.

        Raises:
            ConfigError: the table has other columns or partition fields, or the catalog is not configured.
        """
        self.abort()
        self._property = f"streams.offsets.{connector}.{topic.name}"
        self._rows = LakeRows.of(repr(self), topic, self._partition_by)
        try:
            with explained_iceberg(f"{self!r}"):
                self._close_catalog()
                self._catalog, self._within = iceberg_catalog(self._name)
                paths = [column.path for column in self._rows.columns]
                table = created_iceberg(self._catalog, self._within, self._rows.schema, paths)
        except InputError as error:
            if error.__cause__ is not None and self.is_retriable(error):
                raise
            raise ConfigError(str(error)) from error
        stored = self._positions(table)
        positions = {partition: stored[partition] for partition in partitions if partition in stored}
        self._stored = {partition: positions.get(partition) for partition in partitions}
        return positions

    def write(self, block: SinkBlock[Any, Any]) -> None:
        """Buffer a block until the next commit."""
        self._blocks.append(block)

    def commit(self) -> None:
        """Write the blocks and their positions as one snapshot.

        Raises:
            SinkFencedError: another worker has changed a stored position.
            ConnectError: a record does not fit its column.
        """
        if not self._blocks:
            return
        import pyarrow as pa
        from pyiceberg.exceptions import CommitFailedException

        assert self._rows is not None, "open comes first"
        moved = {block.partition: block.next_offset for block in self._blocks}
        rows = pa.Table.from_batches(map(self._rows.batch, self._blocks), self._rows.schema)
        table, stored = self._checked(moved)
        positions = json.dumps({str(partition): at for partition, at in sorted((stored | moved).items())})
        try:
            with without_commit_retries(table).transaction() as change:
                change.append(rows, snapshot_properties={self._property: positions})
                change.set_properties({self._property: positions})
        except CommitFailedException:
            self._checked(moved)
            raise  # It was another writer, whom it does not concern what is written here.
        self._stored.update(moved)
        self._blocks.clear()

    def abort(self) -> None:
        """Discard the blocks written since the last commit."""
        self._blocks.clear()

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error is a catalog server or storage error, or a conflict with another writer."""
        from pyiceberg.exceptions import (
            CommitFailedException,
            CommitStateUnknownException,
            ServerError,
            ServiceUnavailableError,
        )

        cause = error.__cause__ if isinstance(error, InputError) else error
        passing = (OSError, CommitFailedException, CommitStateUnknownException, ServerError, ServiceUnavailableError)
        # A catalog in a database has the errors of SQLAlchemy, such as that of a lock.
        databases = sys.modules.get("sqlalchemy.exc")
        return isinstance(cause, passing) or (databases is not None and isinstance(cause, databases.OperationalError))

    def close(self) -> None:
        """Close the connections to the catalog."""
        self._close_catalog()

    # --- inside -----------------------------------------------------------------------

    def _close_catalog(self) -> None:
        catalog = self._catalog
        self._catalog = None
        if catalog is not None:
            catalog.close()

    def _checked(self, moved: Mapping[int, int]) -> tuple[Any, dict[int, int]]:
        """Return the newest version of the table and its positions, after checking those of the commit's partitions.

        Raises:
            SinkFencedError: another worker has changed a stored position.
        """
        table = self._catalog.load_table(self._within)
        stored = self._positions(table)
        check_positions(repr(self), self._property, self._stored, stored, list(moved))
        return table, stored

    def _positions(self, table: Any) -> dict[int, int]:
        """Return the positions in the newest snapshot that contains them; a snapshot has those of all partitions."""
        snapshot = table.current_snapshot()
        while snapshot is not None:
            text = snapshot.summary and snapshot.summary.additional_properties.get(self._property)
            if text is not None:
                return _read(text)
            parent = snapshot.parent_snapshot_id
            before = None if parent is None else table.snapshot_by_id(parent)
            if before is None and (snapshot.sequence_number or 0) > 1:  # Those before it have expired.
                return _read(table.properties.get(self._property, "{}"))
            snapshot = before
        return {}


def _read(text: str) -> dict[int, int]:
    return {int(partition): int(at) for partition, at in json.loads(text).items()}


def _pyiceberg() -> Any:
    try:
        import pyiceberg
    except ImportError as error:
        raise ConfigError(f"IcebergSink needs pyiceberg ({error}): pip install 'streams[lake]'") from None
    return pyiceberg
