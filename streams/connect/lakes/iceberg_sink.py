"""A sink into an Iceberg table, exactly once (extra ``lake``).

A commit is one snapshot, whose summary has the positions of all partitions.  It is only made on the snapshot whose
positions were checked: if another writer was faster, the worker opens the sink again.
Of the other packages, this module imports only ``files`` and ``lakes``; pyiceberg is imported on use.
"""

from collections.abc import Sequence
from typing import Any

from streams.connect.lakes.lake_sink import LakeSink
from streams.files import PartitionColumn
from streams.lakes import IcebergLog, LakeLog, LakeName, LakeWriter


class IcebergSink(LakeSink):
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

    def __init__(self, table: str, *, partition_by: str | list[str] = "") -> None:
        super().__init__(table, partition_by, "pyiceberg")

    def _open_log(self, writer: LakeWriter, schema: Any, columns: Sequence[PartitionColumn]) -> LakeLog:
        return IcebergLog.opened(LakeName("iceberg", self._name), writer, schema, columns)

    def _is_passing(self, cause: BaseException | None) -> bool:
        return isinstance(cause, IcebergLog.passing())
