"""Calls that only Spark can execute: reading Kafka topics, tables, and files that only Spark can reach.

A replay yields these like other calls.  The Spark executor executes them with its
session (``spark.rows``); other executors reject them.  The results are segment files, like those of ``ingest``.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import evolve, field, frozen

from streams.core.blocks.records import TopicPartition
from streams.core.errors import InputError
from streams.core.topic import Topic
from streams.replay.calls.work import Application, StageReport, declared_topic
from streams.replay.errors import ReplayError
from streams.replay.history.growth import History
from streams.replay.history.ingest import IngestReport, IngestWork
from streams.replay.history.inputs import FileMark, Input, KafkaTopic, Table
from streams.replay.history.intake import TopicFiles
from streams.replay.history.tables import TablePlace, check_rows, new_rows
from streams.replay.storage.segments import Extent, Segments
from streams.topology import Topology


@frozen
class ListFiles:
    """A call to the executor that lists the files that match paths, folders and patterns."""

    paths: tuple[str, ...]
    size: tuple[int, int] = (0, 0)
    stage: int = -2

    @property
    def name(self) -> str:
        """The name of this call to an executor, for messages."""
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
    """A call to the executor that reads files into the partitions of a topic.

    ``work`` is a template of the calls that read the files, in which the pieces of files and the number are not set.
    """

    work: IngestWork
    files: tuple[FoundFile, ...]
    size: tuple[int, int] = (0, 0)
    stage: int = -2

    @property
    def name(self) -> str:
        """The name of this call to an executor, for messages."""
        return self.work.topic


@frozen
class ReadTopic:
    """A call to the executor that reads a Kafka topic from the offsets in ``starts`` to its current end."""

    topic: KafkaTopic
    segments: Segments
    folder: str
    #: Next offset of each partition, -1 = the earliest; empty = all partitions from the earliest.
    starts: Mapping[int, int] = field(factory=dict)
    size: tuple[int, int] = (0, 0)
    stage: int = -2

    @property
    def name(self) -> str:
        """The name of this call to an executor, for messages."""
        return f"kafka://{self.topic.bootstrap_servers}/{self.topic.topic}"


@frozen
class LookAtTable:
    """A call to the executor that checks the columns of a table against a topic, and locates its rows."""

    table: Table
    topic: Topic[Any, Any]
    size: tuple[int, int] = (0, 0)
    stage: int = -2

    @property
    def name(self) -> str:
        """The name of this call to an executor, for messages."""
        return self.table.name


@frozen
class CountRows:
    """A call to the executor that counts the rows of a table in ``files``, or all its rows if there are none."""

    table: Table
    files: tuple[str, ...] = ()
    size: tuple[int, int] = (0, 0)
    stage: int = -2

    @property
    def name(self) -> str:
        """The name of this call to an executor, for messages."""
        return self.table.name


@frozen
class ReadTable:
    """A call to the executor that reads the rows of a table into the partitions of a topic, sorted by event time.

    Only rows of ``files`` are read, or all rows if there are none; ``starts`` has the next offset of each partition.
    """

    table: Table
    application: Application = field(repr=False)
    topic: str
    partitions: int
    segments: Segments
    folder: str
    starts: Mapping[int, int]
    files: tuple[str, ...] = ()
    on_bad_row: str = "fail"
    size: tuple[int, int] = (0, 0)
    stage: int = -2

    @property
    def name(self) -> str:
        """The name of this call to an executor, for messages."""
        return f"{self.table.name} as {self.topic}"


#: Calls that need a Spark session.
SparkCall: TypeAlias = ListFiles | ReadFiles | ReadTopic | LookAtTable | CountRows | ReadTable
SPARK_CALLS = (ListFiles, ReadFiles, ReadTopic, LookAtTable, CountRows, ReadTable)


@frozen
class SparkReport(StageReport):
    """The result of a call that only Spark can execute."""

    listed: tuple[FoundFile, ...] = ()
    #: Results of ``ReadFiles``, in the order of the files.
    parts: tuple[IngestReport, ...] = ()
    #: Result of ``LookAtTable``.
    table: TablePlace = field(factory=TablePlace)
    #: Result of ``CountRows``; None if Spark cannot tell.
    count: int | None = None
    #: Results of ``ReadTopic`` and ``ReadTable``: partition count, and extents by partition and offset.
    partitions: int = 0
    written: tuple[tuple[TopicPartition, Extent], ...] = ()

    @property
    def records_in(self) -> int:
        return sum(part.records_in for part in self.parts) + sum(extent.rows for _, extent in self.written)


def find_files(
    paths: Sequence[str], marks: Sequence[FileMark], topic: str
) -> Generator[list[Any], list[Any], tuple[FoundFile, ...]]:
    """Return the files that have not been read yet.

    Raises:
        InputError: no files were found.
        ReplayError: a file that was read before has changed, or new files precede it.
    """
    (report,) = yield [ListFiles(tuple(paths))]
    files: tuple[FoundFile, ...] = report.listed
    if not files:
        raise InputError(f"{', '.join(paths)}: Spark finds no file there")
    for mark, file in zip(marks, (*files, *[None] * len(marks)), strict=False):
        own = None if file is None else file.mark
        if own is None or (own.path, own.size, own.head) != (mark.path, mark.size, mark.head):
            raise ReplayError(
                f"topic {topic!r}: {mark.path} was read before, but has changed or has other files in its place; "
                "inputs read through Spark may only grow by later files; else start in another folder"
            )
    return files[len(marks) :]


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
    topic: KafkaTopic, segments: Segments, folder: str, ends: Mapping[int, int], history: History
) -> Generator[list[Any], list[Any], None]:
    """Read the records of a topic from offsets ``ends`` on, add them to ``history``, and set its partition count.

    ``ends`` has all partitions of the topic, or none to read them from the start.

    Raises:
        ReplayError: the next records were deleted, or Spark cannot read the topic.
    """
    starts = {number: end or -1 for number, end in ends.items()}
    (report,) = yield [ReadTopic(topic, segments, folder, starts)]
    history.add(_by_partition(report.written))
    history.partitions = report.partitions


def _by_partition(written: Iterable[tuple[TopicPartition, Extent]]) -> dict[int, list[Extent]]:
    extents: dict[int, list[Extent]] = {}
    for partition, extent in written:
        extents.setdefault(partition.partition, []).append(extent)
    return extents


def look_at_tables(
    inputs: Mapping[str, Input], topology: Topology
) -> Generator[list[Any], list[Any], dict[str, TablePlace]]:
    """Check the columns of the tables among the inputs, and return the locations of their rows, by topic.

    Raises:
        InputError: a column is missing or has another type, or there is no such table.
    """
    calls = {
        name: LookAtTable(source, declared_topic(topology, name))
        for name, source in inputs.items()
        if isinstance(source, Table) and not source.is_arrow
    }
    reports = (yield list(calls.values())) if calls else []
    return {name: report.table for name, report in zip(calls, reports, strict=True)}


def read_new_rows(call: ReadTable, place: TablePlace, history: History) -> Generator[list[Any], list[Any], bool]:
    """Read the rows of a table that are not in ``history``, add them to it, and return whether there are any.

    Raises:
        InputError: a row cannot be read.
        ReplayError: it is not known which rows are new, the table has other rows in the files that were read before, or
            Spark cannot read it.
    """
    new = new_rows(call.topic, call.table, place, history)
    if history.marks and place.files and call.table.version is None:
        paths = tuple(mark.path for mark in history.marks)
        (counted,) = yield [CountRows(call.table, paths if new else ())]
        check_rows(call.topic, call.table, history, counted.count)
    if new is None:
        return False
    (report,) = yield [evolve(call, files=tuple(new.files))]
    history.add(_by_partition(report.written))
    history.marks += new.read(sum(extent.rows for _, extent in report.written))
    return True
