"""Replay: run a topology over history, then continue live without a gap.

``replay`` runs a topology over files, archives or a Kafka topic, on Spark or in local processes.
It uses the same tasks as a live run.  The result can be read, published, or taken live.
"""

from streams.replay.api import replay
from streams.replay.calls.progress import ReplayProgress
from streams.replay.errors import HandOverError, LateRecordsError, ReplayError, ReplayTaskError, SnapshotError
from streams.replay.handover.golive import GoneLive, go_live, lay_down
from streams.replay.handover.publish import publish
from streams.replay.handover.snapshot import Snapshot
from streams.replay.history.archive import ArchivedTopic, archive_topic
from streams.replay.history.inputs import Archive, Files, KafkaTopic
from streams.replay.run.result import ReplayResult
from streams.replay.tracing import why
from streams.runtime import Late

__all__ = [
    "Archive",
    "ArchivedTopic",
    "Files",
    "GoneLive",
    "HandOverError",
    "KafkaTopic",
    "Late",
    "LateRecordsError",
    "ReplayError",
    "ReplayProgress",
    "ReplayResult",
    "ReplayTaskError",
    "Snapshot",
    "SnapshotError",
    "archive_topic",
    "go_live",
    "lay_down",
    "publish",
    "replay",
    "why",
]
