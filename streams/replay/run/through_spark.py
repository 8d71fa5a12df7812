"""What only Spark can reach, asked for as values: files of its file systems, topics of Kafka.

The driver of a replay yields these like other calls; the Spark executor performs them with its
session (``spark.ingest``), any other refuses them.  What comes back are segments, as from ``ingest``.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import field, frozen

from streams.core.errors import InputError
from streams.core.records import TopicPartition
from streams.replay.calls import StageReport
from streams.replay.errors import ReplayError
from streams.replay.history import FileMark, IngestReport, IngestWork, KafkaTopic, TopicFiles
from streams.replay.storage import Extent, Place


@frozen
class ListFiles:
    """Find the files that paths, folders and patterns name."""

    paths: tuple[str, ...]
    size: tuple[int, int] = (0, 0)
    stage: int = -2

    @property
    def name(self) -> str:
        """Name for people."""
        return self.paths[0]


@frozen
class FoundFile:
    """A file as Spark sees it."""

    path: str
    #: Its name in rows of Spark.
    uri: str
    size: int
    modified_ms: int

    @property
    def mark(self) -> FileMark:
        """What tells whether it is still the same."""
        return FileMark.by_time(self.path, self.size, self.modified_ms)


@frozen
class ReadFiles:
    """Read files into the partitions of a topic; ``work`` says how, its pieces and number aside."""

    work: IngestWork
    files: tuple[FoundFile, ...]
    size: tuple[int, int] = (0, 0)
    stage: int = -2

    @property
    def name(self) -> str:
        """Name for people."""
        return self.work.topic


@frozen
class ReadTopic:
    """Read a topic of Kafka from ``starts``, its beginning by default, to its present end."""

    topic: KafkaTopic
    root: Place
    folder: str
    #: Next offset of each partition, for all of them if for any; -1 = the earliest there is.
    starts: Mapping[int, int] = field(factory=dict)
    size: tuple[int, int] = (0, 0)
    stage: int = -2

    @property
    def name(self) -> str:
        """Name for people."""
        return f"kafka://{self.topic.bootstrap_servers}/{self.topic.topic}"


#: Calls that an executor needs a Spark session for.
SparkCall: TypeAlias = ListFiles | ReadFiles | ReadTopic
SPARK_CALLS = (ListFiles, ReadFiles, ReadTopic)


@frozen
class SparkReport(StageReport):
    """The answer to such a call."""

    found: tuple[FoundFile, ...] = ()
    #: What was read, in the order of the files.
    parts: tuple[IngestReport, ...] = ()
    #: Of a topic: how many partitions it has, and what was read, by partition and offset.
    partitions: int = 0
    written: tuple[tuple[TopicPartition, Extent], ...] = ()

    @property
    def records_in(self) -> int:
        """Records that were read."""
        return sum(part.records_in for part in self.parts) + sum(extent.rows for _, extent in self.written)


def find_files(
    paths: Sequence[str], known: Sequence[FileMark], topic: str
) -> Generator[list[Any], list[Any], tuple[FoundFile, ...]]:
    """Return the files behind those that were read already.

    Raises:
        InputError: there are none.
        ReplayError: one that was read is another now, or others come before it.
    """
    (report,) = yield [ListFiles(tuple(paths))]
    found: tuple[FoundFile, ...] = report.found
    if not found:
        raise InputError(f"{', '.join(paths)}: Spark finds no file there")
    for mark, file in zip(known, (*found, *[None] * len(known)), strict=False):
        own = None if file is None else file.mark
        if own is None or (own.path, own.size, own.head) != (mark.path, mark.size, mark.head):
            raise ReplayError(
                f"topic {topic!r}: {mark.path} was read before, but has changed or other files come in its place; "
                "what is read through Spark may grow by files behind it only, else start anew in another folder"
            )
    return found[len(known) :]


def read_found(
    work: IngestWork, files: Sequence[FoundFile], topic: TopicFiles
) -> Generator[list[Any], list[Any], None]:
    """Read files; afterwards ``topic`` has what was read.

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
        # Counts are places in a file: the last of its parts has the number of its rows.
        rows[part.name] = max(rows[part.name], piece[0])
    topic.rows = list(rows.values())


def read_topic(
    topic: KafkaTopic, root: Place, folder: str, ends: Mapping[int, int], extents: dict[int, list[Extent]]
) -> Generator[list[Any], list[Any], int]:
    """Read what a topic has behind ``ends``; add it to ``extents``, and return the number of its partitions.

    ``ends`` has all partitions if it has any: it says how many there must be.

    Raises:
        ReplayError: records are gone that come next, or Spark cannot read the topic.
    """
    starts = {number: end or -1 for number, end in ends.items()}
    (report,) = yield [ReadTopic(topic, root, folder, starts)]
    for partition, extent in report.written:
        extents.setdefault(partition.partition, []).append(extent)
    count: int = report.partitions
    return count
