"""Replay: run a topology over history, then continue live without a gap.

``replay`` runs a topology over files, archives or a Kafka topic, on Spark or in local processes.
It uses the same tasks as a live run.  The result can be read, published to topics, or continued by a live run.
"""

from streams.replay.api import explain as explain
from streams.replay.api import replay as replay
from streams.replay.calls.progress import ReplayProgress as ReplayProgress
from streams.replay.errors import ExpectationError as ExpectationError
from streams.replay.errors import FolderLockedError as FolderLockedError
from streams.replay.errors import HandOverError as HandOverError
from streams.replay.errors import LateRecordsError as LateRecordsError
from streams.replay.errors import ReplayError as ReplayError
from streams.replay.errors import ReplayTaskError as ReplayTaskError
from streams.replay.errors import SnapshotError as SnapshotError
from streams.replay.handover.golive import GoneLive as GoneLive
from streams.replay.handover.golive import go_live as go_live
from streams.replay.handover.golive import lay_down as lay_down
from streams.replay.handover.publish import publish as publish
from streams.replay.handover.snapshot import Snapshot as Snapshot
from streams.replay.history.archive import ArchivedTopic as ArchivedTopic
from streams.replay.history.archive import archive_topic as archive_topic
from streams.replay.history.inputs import Archive as Archive
from streams.replay.history.inputs import Files as Files
from streams.replay.history.inputs import KafkaTopic as KafkaTopic
from streams.replay.history.inputs import Table as Table
from streams.replay.history.late_rows import ClosedWindows as ClosedWindows
from streams.replay.history.late_rows import LateRows as LateRows
from streams.replay.micro_batches import MicroBatches as MicroBatches
from streams.replay.run.explaining import Explanation as Explanation
from streams.replay.run.repair import Repair as Repair
from streams.replay.run.request import Plan as Plan
from streams.replay.run.result import ReplayResult as ReplayResult
from streams.replay.run.result import ResultTable as ResultTable
from streams.replay.tracing import why as why
from streams.runtime import Late as Late
