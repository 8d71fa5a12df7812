"""History as input: files, archives, Kafka topics and tables, ingested into partitions."""

from streams.replay.history.archive import (
    ArchivedTopic,
    archive_offline,
    archive_topic,
    archived_topics,
    broker_source,
    read_archive,
    write_archive,
)
from streams.replay.history.growth import ArchiveMark, History, archive_mark, check_archive
from streams.replay.history.ingest import IngestReport, IngestWork, Piece, run_ingest
from streams.replay.history.inputs import Archive, FileMark, Files, Input, KafkaTopic, declared_topic, input_of
from streams.replay.history.intake import TopicFiles, read_files
from streams.replay.history.slicing import Cut, cut_at, cuts

__all__ = [
    "Archive",
    "ArchiveMark",
    "ArchivedTopic",
    "Cut",
    "FileMark",
    "Files",
    "History",
    "IngestReport",
    "IngestWork",
    "Input",
    "KafkaTopic",
    "Piece",
    "TopicFiles",
    "archive_mark",
    "archive_offline",
    "archive_topic",
    "archived_topics",
    "broker_source",
    "check_archive",
    "cut_at",
    "cuts",
    "declared_topic",
    "input_of",
    "read_archive",
    "read_files",
    "run_ingest",
    "write_archive",
]
