"""A sink into a Delta table, exactly once (extra ``lake``).

A commit is one version of the table: the rows, and for each partition an application transaction with the position
after them.  Delta rejects a commit if another one has written the same application transaction meanwhile.
Of the other packages, this module imports only ``files`` and ``lakes``; deltalake is imported on use.
"""

from collections.abc import Sequence
from typing import Any

from streams.connect.lakes.lake_sink import LakeSink
from streams.files import PartitionColumn
from streams.lakes import DeltaLog, LakeLog, LakeName, LakeWriter


class DeltaSink(LakeSink):
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

    def __init__(self, table: str, *, partition_by: str | list[str] = "") -> None:
        super().__init__(table, partition_by, "deltalake")

    def _open_log(self, writer: LakeWriter, schema: Any, columns: Sequence[PartitionColumn]) -> LakeLog:
        return DeltaLog.opened(LakeName("delta", self._name), writer, schema, columns)

    def _is_passing(self, cause: BaseException | None) -> bool:
        return isinstance(cause, DeltaLog.passing())
