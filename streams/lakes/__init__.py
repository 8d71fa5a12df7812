"""Tables of Delta Lake and Apache Iceberg, and folders of Parquet files, as logs of commits with positions.

A commit has rows or files, and the positions of the one who writes them: of a connector the next offset of each
partition, of a replay the digest of each slice.  So it can see what the table already has.
Of the other packages, this package imports only ``core`` and ``files``.
"""

from streams.lakes.delta_log import DeltaLog as DeltaLog
from streams.lakes.delta_log import delta_changes as delta_changes
from streams.lakes.delta_log import delta_rows as delta_rows
from streams.lakes.delta_log import delta_state as delta_state
from streams.lakes.iceberg_log import IcebergLog as IcebergLog
from streams.lakes.iceberg_log import iceberg_changes as iceberg_changes
from streams.lakes.iceberg_log import iceberg_rows as iceberg_rows
from streams.lakes.iceberg_log import iceberg_state as iceberg_state
from streams.lakes.lake_log import LAKE_PREFIXES as LAKE_PREFIXES
from streams.lakes.lake_log import Commit as Commit
from streams.lakes.lake_log import DataFile as DataFile
from streams.lakes.lake_log import LakeChange as LakeChange
from streams.lakes.lake_log import LakeLog as LakeLog
from streams.lakes.lake_log import LakeName as LakeName
from streams.lakes.lake_log import LakePosition as LakePosition
from streams.lakes.lake_log import LakeState as LakeState
from streams.lakes.lake_log import LakeWriter as LakeWriter
from streams.lakes.lake_log import LogErrors as LogErrors
from streams.lakes.lake_log import Partition as Partition
from streams.lakes.lake_log import PositionMovedError as PositionMovedError
from streams.lakes.lake_log import TableLog as TableLog
from streams.lakes.lake_log import check_table as check_table
from streams.lakes.lake_log import column_problems as column_problems
from streams.lakes.manifest import Folder as Folder
from streams.lakes.manifest import Manifest as Manifest
from streams.lakes.manifest import ManifestEntry as ManifestEntry
from streams.lakes.manifest import ManifestLog as ManifestLog
from streams.lakes.manifest import OffsetRange as OffsetRange
