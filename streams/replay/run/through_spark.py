"""Calls that only Spark can perform: reading Kafka topics, and files on file systems that only Spark supports.

The driver of a replay yields these like other calls.  The Spark executor performs them with its
session (``spark.ingest``); other executors reject them.  The results are segments, as from ``ingest``.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import field, frozen

from streams.core.errors import InputError
from streams.core.records import TopicPartition
from streams.replay.calls.work import StageReport
from streams.replay.errors import ReplayError
from streams.replay.history.ingest import IngestReport, IngestWork
from streams.replay.history.inputs import FileMark, KafkaTopic
from streams.replay.history.intake import TopicFiles
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent


@frozen
class ListFiles:
    """A call that lists the files of paths, folders and patterns."""

    paths: tuple[str, ...]
    size: tuple[int, int] = (0, 0)
    stage: int = -2

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.paths[0]


@frozen
class FoundFile:
    """A file listed by Spark."""

    path: str
    #: Name of the file in the ``file_path`` column.
    uri: str
    size: int
    modified_ms: int

    @property
    def mark(self) -> FileMark:
        """The path, size and modification time of the file, to detect changes."""
        return FileMark.by_time(self.path, self.size, self.modified_ms)


@frozen
class ReadFiles:
    """A call that reads files into the partitions of a topic; ``work`` is a template without pieces or number."""

    work: IngestWork
    files: tuple[FoundFile, ...]
    size: tuple[int, int] = (0, 0)
    stage: int = -2

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.work.topic


@frozen
class ReadTopic:
    """A call that reads a Kafka topic from ``starts`` to its current end."""

    topic: KafkaTopic
    root: Place
    folder: str
    #: Next offset of each partition, -1 = the earliest; empty = all partitions from the earliest.
    starts: Mapping[int, int] = field(factory=dict)
    size: tuple[int, int] = (0, 0)
    stage: int = -2

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"kafka://{self.topic.bootstrap_servers}/{self.topic.topic}"


#: Calls that need a Spark session.
SparkCall: TypeAlias = ListFiles | ReadFiles | ReadTopic
SPARK_CALLS = (ListFiles, ReadFiles, ReadTopic)


@frozen
class SparkReport(StageReport):
    """The result of a call that only Spark can perform."""

    found: tuple[FoundFile, ...] = ()
    #: Results of ``ReadFiles``, in the order of the files.
    parts: tuple[IngestReport, ...] = ()
    #: Result of ``ReadTopic``: partition count, and extents by partition and offset.
    partitions: int = 0
    written: tuple[tuple[TopicPartition, Extent], ...] = ()

    @property
    def records_in(self) -> int:
        """Number of records read."""
        return sum(part.records_in for part in self.parts) + sum(extent.rows for _, extent in self.written)


def find_files(
    paths: Sequence[str], known: Sequence[FileMark], topic: str
) -> Generator[list[Any], list[Any], tuple[FoundFile, ...]]:
    """Return the files that have not been read yet.

    Raises:
        InputError: no files were found.
        ReplayError: a file that was read before has changed, or new files come before it.
    """
    (report,) = yield [ListFiles(tuple(paths))]
    found: tuple[FoundFile, ...] = report.found
    if not found:
        raise InputError(f"{', '.join(paths)}: Spark finds no file there")
    for mark, file in zip(known, (*found, *[None] * len(known)), strict=False):
        own = None if file is None else file.mark
        if own is None or (own.path, own.size, own.head) != (mark.path, mark.size, mark.head):
            raise ReplayError(
                f"topic {topic!r}: {mark.path} was read before, but has changed or has other files in its place; "
                "inputs read through Spark may only grow by later files; else start in another folder"
            )
    return found[len(known) :]


def read_found(
    work: IngestWork, files: Sequence[FoundFile], topic: TopicFiles
) -> Generator[list[Any], list[Any], None]:
    """Read files and add the results to ``topic``.

    Raises:
        InputError: a file or row cannot be read.
    """
    work.failures.delete()
    (report,) = yield [ReadFiles(work, tuple(files))]
    work.failures.delete()
    topic.take(report.parts)
    rows = dict.fromkeys((file.path for file in files), 0)
    for part in report.parts:
        (piece,) = part.counts
        # Counts are row numbers within a file, so the count of the last part is the number of rows.
        rows[part.name] = max(rows[part.name], piece[0])
    topic.rows = list(rows.values())


def read_topic(
    topic: KafkaTopic, root: Place, folder: str, ends: Mapping[int, int], extents: dict[int, list[Extent]]
) -> Generator[list[Any], list[Any], int]:
    """Read the records of a topic after ``ends``, add them to ``extents``, and return the partition count.

    ``ends`` has all partitions of the topic, or none.

    Raises:
        ReplayError: the next records were deleted, or Spark cannot read the topic.
    """
    starts = {number: end or -1 for number, end in ends.items()}
    (report,) = yield [ReadTopic(topic, root, folder, starts)]
    for partition, extent in report.written:
        extents.setdefault(partition.partition, []).append(extent)
    count: int = report.partitions
    return count
