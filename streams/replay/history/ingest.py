"""Reads files of rows into the partitions of topics; archives are already partitioned.

Every row becomes the record that a live run would produce, in the same partition.  A call reads several
files or a part of one, and writes the records of each partition with offsets from 0, in the order of their rows
or sorted by event time.  The driver concatenates the results (``intake``); ``sorting`` merges sorted ones.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attrs import field, frozen

from streams.core.blocks.records import NO_TIMESTAMP
from streams.core.clock import VirtualClock
from streams.core.errors import InputError
from streams.core.topic import Topic
from streams.files import FileSource, Part, Records, count_rows, input_kind, open_input
from streams.replay.calls.application import Application
from streams.replay.calls.work import CallMeter, StageReport
from streams.replay.errors import ReplayError
from streams.replay.history.inputs import declared_topic
from streams.replay.storage.extents import PartitionExtents
from streams.replay.storage.ordered import PartitionWriter
from streams.replay.storage.places import Place
from streams.replay.storage.segments import GroupWriter


@frozen
class Piece:
    """A file of rows, or a part of one."""

    file: str
    part: Part


@frozen
class IngestWork:
    """A call to an executor that reads pieces of a topic's files into its partitions, or counts their rows.

    A piece that does not start at the beginning of its file is the only piece of its call.  ``number`` is the
    index of the call within the topic, ``rows_before`` the number of rows of the topic before the first file, and
    ``skip_rows`` the number of rows of that file that were read before.
    """

    application: Application = field(repr=False)
    topic: str
    pieces: tuple[Piece, ...]
    partitions: int
    root: Place
    folder: str
    number: int = 0
    rows_before: int = 0
    skip_rows: int = 0
    on_bad_row: str = "fail"
    #: Whether runs of records are sorted by event time.
    by_time: bool = False
    counts_only: bool = False
    #: Approximate bytes to read from disk.
    size_bytes: int = 0
    #: Folder that paths are relative to: the working folder of the driver, wherever the call runs.
    base: str = field(factory=os.getcwd)
    stage: int = -2

    @property
    def name(self) -> str:
        """The name of this call to an executor, for messages and file names."""
        return f"{'rows' if self.counts_only else 'input'}-{safe_name(self.topic)}-{self.number:05d}"

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of records and bytes that the call has to read, as far as they are known."""
        return 0, self.size_bytes

    @property
    def failures(self) -> Place:
        """The folder with markers of failed calls, so that later calls for the topic can stop."""
        return self.root.child(self.folder, f"failed-{safe_name(self.topic)}")


@frozen
class IngestReport(StageReport):
    """The result of an ``IngestWork``, which may be a failure to read a file or row."""

    #: (rows, lines) of each piece if the call counts; otherwise both numbers are the rows of the file up to the end
    #: of the piece.
    counts: tuple[tuple[int, int], ...] = ()
    written: PartitionExtents = field(factory=lambda: PartitionExtents.of(()))
    failure: str | None = None

    @property
    def records_in(self) -> int:
        """The number of records that the call has read; 0 if it only counted rows."""
        return self.written.extents.rows


def source_of(path: str, base: str = "") -> FileSource:
    """Return a local or remote file as a source for file readers; a local path is relative to ``base``."""
    place = Place(path)
    if not place.is_local:
        return FileSource(path, place.open_input)
    own = os.path.join(base, place.uri)
    return FileSource(place.uri, lambda: open(own, "rb"))


def run_ingest(work: IngestWork, opened: Callable[[str], FileSource] | None = None) -> IngestReport:
    """Read or count the pieces of a call; ``opened`` opens a file by path.

    Raises:
        ReplayError: nothing can be written, or the call needs Spark.
    """
    import pyarrow as pa

    if not isinstance(work, IngestWork):
        raise ReplayError(f"{work.name}: can be read through Spark only; give executor='spark'")
    meter = CallMeter(work)
    opened = opened or partial(_seen, work.base)
    try:
        if work.counts_only:
            counts = tuple(_count(piece, opened(piece.file)) for piece in work.pieces)
            return meter.report(IngestReport, counts=counts)
        return _read(work, meter, opened)
    except (InputError, pa.ArrowException) as error:
        if work.root.is_local:
            work.failures.child(str(work.number)).write(b"")
        # Errors that remote file systems raise during a read do not name the file.
        files = "" if isinstance(error, InputError) else f"{', '.join(piece.file for piece in work.pieces)}: "
        return meter.report(IngestReport, failure=f"{files}{error}")


def _seen(base: str, path: str) -> FileSource:
    """Return a file as a source, after checking that this process can access the file that the driver has listed.

    Raises:
        InputError: this process cannot access the file.
    """
    place = Place(path)
    if place.is_local and not os.path.exists(os.path.join(base, place.uri)):
        raise InputError(
            f"{path}: the driver sees this file, but this process does not: on a cluster inputs must be in a folder "
            "that all executors share, or on a file system such as S3"
        )
    return source_of(path, base)


def _count(piece: Piece, source: FileSource) -> tuple[int, int]:
    return count_rows(source, input_kind(source), piece.part)


def _read(work: IngestWork, meter: CallMeter, opened: Callable[[str], FileSource]) -> IngestReport:
    topic = declared_topic(work.application.plan(VirtualClock(NO_TIMESTAMP)).topology, work.topic)
    name = f"{work.folder}/{work.name}-{meter.attempt}.parquet"
    counts: list[tuple[int, int]] = []
    before = work.rows_before
    skip = work.skip_rows
    file = GroupWriter(work.root, name)
    with PartitionWriter(file, work.topic, work.by_time) as writer, meter:
        for piece in work.pieces:
            position = max(skip, piece.part.first_row)
            source = opened(piece.file)
            for records in _records(work, topic, source, piece.part, before, skip):
                writer.append(records)
                position += len(records)
                meter.beat(before + position - work.rows_before)
            counts.append((position, position))
            before = before + position
            skip = 0
    written = PartitionExtents.of((partition, extent) for _, partition, extent in file.written)
    files = written.extents.file_names
    return meter.report(IngestReport, files=files, counts=tuple(counts), written=written)


def _records(
    work: IngestWork, topic: Topic[Any, Any], source: FileSource, part: Part, before: int, skip: int
) -> Iterator[Records]:
    """Yield the records of a piece."""
    on_bad_row: Any = work.on_bad_row
    reader = open_input(
        topic,
        source,
        part=part,
        on_bad_row=on_bad_row,
        # Rows that cannot be read get no time, so that they do not count as the latest records.
        clock=VirtualClock(NO_TIMESTAMP),
        needs_time=True,
        rows_before=before,
    )
    for records in reader.records(work.partitions, skip):
        if any(int(number) < work.number for number in (work.failures.files() if work.root.is_local else ())):
            raise InputError(f"{source}: not read further: an earlier row cannot be read")
        yield records


def safe_name(topic: str) -> str:
    """Return the name of a topic for use in file names: other characters are replaced by ``-``."""
    return "".join(char if char.isalnum() or char in "._-" else "-" for char in topic)
