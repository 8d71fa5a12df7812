"""Replay: run a topology over history, then continue live without a gap.

``replay`` runs a topology over files, archives or a Kafka topic, on Spark or in local processes.
It uses the same tasks as a live run.  The result can be read, published, or taken live.
"""

from streams.replay.api import replay
from streams.replay.calls import ReplayProgress
from streams.replay.errors import HandOverError, LateRecordsError, ReplayError, ReplayTaskError, SnapshotError
from streams.replay.handover import GoneLive, Snapshot, go_live, lay_down, publish
from streams.replay.history import Archive, ArchivedTopic, Files, KafkaTopic, archive_topic
from streams.replay.run import ReplayResult
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
]
