"""Reads files of rows into the partitions of topics; archives are already partitioned.

Every row becomes the record that a live run would produce, in the same partition.  A call reads several
files or a part of one, and writes the records of each partition with offsets from 0, in the order of their rows
or sorted by event time.  Rows are collected as Arrow columns, and sorted by partition before they are written: a run
has few row groups of each partition, next to each other, and no Python objects.  The driver concatenates the results
(``intake``).

A topic that is sorted by event time has the order of (event time, row number), however its files were divided.  The
calls write sorted runs, of which the driver only compares the times: runs that do not overlap are in order already and
stay where they are, the others are merged by one call for each partition.  A merge reads a row group when the order
reaches its lowest time, so only row groups whose times overlap are in memory.
"""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, pairwise
from typing import Any

from attrs import define, evolve, field, frozen

from streams.core.blocks.records import NO_TIMESTAMP, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.errors import InputError
from streams.core.topic import Topic
from streams.files import BY_SUFFIX, FileSource, Location, Part, Records, count_rows, input_kind, open_input
from streams.replay.calls.work import Application, CallMeter, StageReport
from streams.replay.errors import ReplayError
from streams.replay.storage.extents import Extents, FileNames, PartitionExtents, by_partition
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent, ExtentReader, GroupWriter, Segments
from streams.values import headers_array


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
    segments: Segments
    folder: str
    number: int = 0
    rows_before: int = 0
    skip_rows: int = 0
    on_bad_row: str = "fail"
    #: What needs the times of rows; if it is empty, rows without one are 1 ms apart.
    needs_time: str = ""
    #: Whether runs of records are sorted by event time.
    by_time: bool = False
    counts_only: bool = False
    #: Approximate bytes to read from disk.
    size_bytes: int = 0
    #: Folder that paths are relative to: the working folder of the driver, wherever the call runs.
    base: str = field(factory=os.getcwd)
    location: Location = BY_SUFFIX
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
        return self.segments.root.child(self.folder, f"failed-{safe_name(self.topic)}")


@frozen
class IngestReport(StageReport):
    """The result of an ``IngestWork``, which may be a failure to read a file or row."""

    #: (rows, lines) of each piece if the call counts; otherwise both numbers are the rows of the file up to the end
    #: of the piece.
    counts: tuple[tuple[int, int], ...] = ()
    written: PartitionExtents = field(factory=lambda: PartitionExtents.of(()))
    failure: str | None = None
    #: Number of rows without a time of their own.
    untimed: int = 0

    @property
    def records_in(self) -> int:
        """The number of records that the call has read; 0 if it only counted rows."""
        return self.written.extents.rows


def source_of(path: str, location: Location, base: str = "") -> FileSource:
    """Return a local or remote file as a source for file readers; a local path is relative to ``base``."""
    place = Place(path)
    kind = location.kind_of(path)
    if not place.is_local:
        return FileSource(path, place.open_input, kind=kind)
    own = os.path.join(base, place.uri)
    return FileSource(place.uri, lambda: open(own, "rb"), kind=kind)


def run_ingest(work: IngestWork, opened: Callable[[str], FileSource] | None = None) -> IngestReport:
    """Read or count the pieces of a call; ``opened`` opens a file by path.

    Raises:
        ReplayError: nothing can be written, or the call needs Spark.
    """
    import pyarrow as pa

    if not isinstance(work, IngestWork):
        raise ReplayError(f"{work.name}: can be read through Spark only; give executor='spark'")
    meter = CallMeter(work)
    opened = opened or partial(_seen, work.location, work.base)
    try:
        if work.counts_only:
            counts = tuple(_count(piece, opened(piece.file)) for piece in work.pieces)
            return meter.report(IngestReport, counts=counts)
        return _read(work, meter, opened)
    except (InputError, pa.ArrowException) as error:
        if work.segments.root.is_local:
            work.failures.child(str(work.number)).write(b"")
        # Errors that remote file systems raise during a read do not name the file.
        files = "" if isinstance(error, InputError) else f"{', '.join(piece.file for piece in work.pieces)}: "
        return meter.report(IngestReport, failure=f"{files}{error}")


def _seen(location: Location, base: str, path: str) -> FileSource:
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
    return source_of(path, location, base)


def _count(piece: Piece, source: FileSource) -> tuple[int, int]:
    return count_rows(source, input_kind(source), piece.part)


def _read(work: IngestWork, meter: CallMeter, opened: Callable[[str], FileSource]) -> IngestReport:
    topic = work.application.source_topic(work.topic)
    name = f"{work.folder}/{work.name}-{meter.attempt}.parquet"
    counts: list[tuple[int, int]] = []
    before = work.rows_before
    skip = work.skip_rows
    untimed = 0
    file = work.segments.group_writer(name)
    with PartitionWriter(file, work.topic, work.by_time) as writer, meter:
        for piece in work.pieces:
            position = max(skip, piece.part.first_row)
            source = opened(piece.file)
            for records in _records(work, topic, source, piece.part, before, skip):
                writer.append(records)
                untimed += records.untimed
                position += len(records)
                meter.beat(before + position - work.rows_before)
            counts.append((position, position))
            before = before + position
            skip = 0
    written = PartitionExtents.of((partition, extent) for _, partition, extent in file.written)
    files = written.extents.file_names
    return meter.report(IngestReport, files=files, counts=tuple(counts), written=written, untimed=untimed)


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
        needs_time=work.needs_time,
        rows_before=before,
    )
    for records in evolve(reader, has_row_times=True).records(work.partitions, skip):
        if any(int(number) < work.number for number in (work.failures.files() if work.segments.root.is_local else ())):
            raise InputError(f"{source}: not read further: an earlier row cannot be read")
        yield records


def safe_name(topic: str) -> str:
    """Return the name of a topic for use in file names: other characters are replaced by ``-``."""
    return "".join(char if char.isalnum() or char in "._-" else "-" for char in topic)


#: Maximum number of rows in one row group of an input: less than elsewhere, because a slice reads a row group whole.
INPUT_GROUP_ROWS = 2_500
#: Maximum size of a run in bytes of Arrow data; sorting and writing it needs the same amount again.
RUN_BYTES = 64 << 20
#: Number of rows in memory above which a merge writes the rows whose order is certain.
_MERGE_ROWS = 100_000
#: Open files of a merge.
_OPEN_FILES = 32
#: Columns of a row group that a merge copies.
_COPIED = ("key", "value", "timestamp", "headers", "origin")


@define(eq=False)
class PartitionWriter:
    """Writes the rows of one topic partition by partition; the offsets of each partition start at 0.

    The writer is a context manager: the files are complete when the block ends without an error.
    """

    _file: GroupWriter
    _topic: str
    _by_time: bool = False
    _ends: dict[int, int] = field(factory=dict)
    _batches: list[Any] = field(factory=list)
    _bytes: int = 0

    def append(self, records: Records) -> None:
        """Append records; the row number of each record is stored as its origin.

        Raises:
            ReplayError: the file cannot be written.
        """
        import pyarrow as pa

        size = len(records)
        first = records.first_row
        columns = {
            "partition": pa.array(records.partitions, pa.int32()),
            "key": _binary(records.keys),
            "value": _binary(records.values),
            "timestamp": pa.array(records.timestamps, pa.int64()),
            "headers": headers_array(records.headers if any(records.headers or ()) else None, size),
            "origin": pa.array(range(first, first + size), pa.int64()),
        }
        batch = pa.record_batch(columns)
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= RUN_BYTES:
            self._write_run()

    def __enter__(self) -> "PartitionWriter":
        self._file.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            self._file.__exit__(kind, error, trace)
            return
        with self._file:
            self._write_run()

    def _write_run(self) -> None:
        """Write the collected batches, sorted by partition."""
        import pyarrow as pa

        if not self._batches:
            return
        rows = pa.concat_batches(self._batches)
        self._batches = []
        self._bytes = 0
        order, counts = self._order(rows)
        # One call for all partitions: each one for a part costs as much as some hundred rows.
        rows = rows.take(order)
        start = 0
        for number, count in counts:
            first = self._ends.get(number, 0)
            self._ends[number] = first + count
            for offset in range(0, count, INPUT_GROUP_ROWS):
                size = min(INPUT_GROUP_ROWS, count - offset)
                group = rows.slice(start + offset, size)
                offsets = range(first + offset, first + offset + size)
                columns = [group.column(name) for name in _COPIED]
                self._file.write("source", TopicPartition(self._topic, number), offsets, columns)
            start += count

    def _order(self, rows: Any) -> tuple[Any, list[tuple[int, int]]]:
        """Return the order of rows by partition, and the number of rows of each partition."""
        import pyarrow.compute as pc

        names = ("partition", "timestamp", "origin") if self._by_time else ("partition", "origin")
        order = pc.sort_indices(rows, [(name, "ascending") for name in names])
        counts = {item["values"]: item["counts"] for item in pc.value_counts(rows.column("partition")).to_pylist()}
        return order, sorted(counts.items())


def _binary(column: Any) -> Any:
    import pyarrow as pa

    return column if isinstance(column, pa.Array) else pa.array(column, pa.binary())


def write_rows(file: GroupWriter, partition: TopicPartition, first: int, table: Any) -> None:
    """Write rows of a partition as row groups; the first row gets the offset ``first``.

    Raises:
        ReplayError: the file cannot be written.
    """
    for start in range(0, table.num_rows, INPUT_GROUP_ROWS):
        rows = table.slice(start, INPUT_GROUP_ROWS).combine_chunks()
        columns = [_column(rows, name) for name in _COPIED]
        file.write("source", partition, range(first + start, first + start + rows.num_rows), columns)


def _column(table: Any, name: str) -> Any:
    import pyarrow as pa

    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def merged(segments: Segments, group: Iterable[Extent]) -> Iterator[Any]:
    """Yield the rows of extents, whose rows are sorted, as tables in the order of (event time, row number).

    Raises:
        ReplayError: a file is missing or damaged.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    readers: dict[str, ExtentReader] = {}
    pending: list[Any] = []
    size = 0
    limit = _MERGE_ROWS
    try:
        for extent in sorted(group, key=lambda extent: extent.lowest_ms):
            if size > limit:
                table = pa.concat_tables(pending)
                is_certain = pc.less(table.column("timestamp"), extent.lowest_ms)
                yield _by_time(table.filter(is_certain))
                pending = [table.filter(pc.invert(is_certain)).combine_chunks()]
                size = pending[0].num_rows
                limit = max(_MERGE_ROWS, 2 * size)
            pending.append(_reader(readers, segments, extent).table(extent, _COPIED))
            size += extent.rows
        yield _by_time(pa.concat_tables(pending))
    finally:
        for reader in readers.values():
            reader.close()


def _reader(readers: dict[str, ExtentReader], segments: Segments, extent: Extent) -> ExtentReader:
    """Return the reader of an extent's file; if too many files are open, the one opened first is closed."""
    if extent.file not in readers:
        for file in list(islice(readers, max(0, len(readers) - _OPEN_FILES + 1))):
            readers.pop(file).close()
        readers[extent.file] = segments.reader()
    return readers[extent.file]


def _by_time(table: Any) -> Any:
    import pyarrow.compute as pc

    return table.take(pc.sort_indices(table, [("timestamp", "ascending"), ("origin", "ascending")]))


#: Rows from which a call that merges partitions takes no further one.
MERGE_CALL_ROWS = 500_000


@frozen
class MergeWork:
    """A call to an executor that merges the sorted runs of some partitions of a topic."""

    topic: str
    #: (partition, extents that overlap in time), by partition and time.
    groups: tuple[tuple[int, Extents], ...]
    segments: Segments
    folder: str
    number: int
    stage: int = -2

    @property
    def name(self) -> str:
        """The name of this call to an executor, for messages and file names."""
        return f"sorted-{safe_name(self.topic)}-{self.number:05d}"

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of records and bytes that the call has to read, as far as they are known."""
        return sum(group.rows for _, group in self.groups), 0


def run_merge(work: MergeWork) -> IngestReport:
    """Merge the runs of a call; the offsets of each partition start at 0.

    Raises:
        ReplayError: a file is damaged, or nothing can be written.
    """
    meter = CallMeter(work)
    name = f"{work.folder}/{work.name}-{meter.attempt}.parquet"
    done = 0
    ends: dict[int, int] = {}
    with work.segments.group_writer(name) as file, meter:
        for number, group in work.groups:
            for table in merged(work.segments, group):
                end = ends.get(number, 0)
                write_rows(file, TopicPartition(work.topic, number), end, table)
                ends[number] = end + table.num_rows
                done += table.num_rows
                meter.beat(done)
    written = PartitionExtents.of((partition, extent) for _, partition, extent in file.written)
    return meter.report(IngestReport, files=written.extents.file_names, written=written)


@define
class SortedTopic:
    """The new records of a topic, to be sorted by event time.

    Before sorting, ``extents`` has the sorted runs of each partition in the order of their rows; after sorting, it has
    the extents of the sorted partitions.  ``starts`` has the next offset of each partition.
    """

    topic: str
    extents: dict[int, Extents]
    starts: Mapping[int, int] = field(factory=dict)


@frozen(eq=False)
class _Groups:
    """The sorted runs of a partition by time, divided into groups whose times do not overlap.

    The rows of each run are sorted, so a group with one run need not be merged.
    """

    runs: Extents
    #: Index of the first run of each group, and the number of runs.
    borders: Any

    @classmethod
    def of(cls, extents: Extents) -> "_Groups":
        """Divide extents, which are given in the order of their rows."""
        import numpy as np

        size = len(extents)
        order = np.lexsort((np.arange(size), extents.lowest_ms))
        runs = extents.taken(order)
        # The places of the first and of the last possible record of each run in the order of (event time, run).
        times = np.concatenate([runs.lowest_ms, runs.highest_ms])
        number = np.concatenate([order, order])
        places = np.empty(2 * size, dtype=np.int64)
        places[np.lexsort((number, times))] = np.arange(2 * size)
        is_first = places[1:size] > np.maximum.accumulate(places[size:])[:-1]
        return cls(runs, np.concatenate([[0][:size], np.flatnonzero(is_first) + 1, [size]]))

    @property
    def _sizes(self) -> Any:
        """The number of runs of each group."""
        import numpy as np

        return np.diff(self.borders)

    @property
    def overlapping(self) -> list[Extents]:
        """The groups of several runs."""
        return [self.runs[start:end] for start, end in pairwise(self.borders.tolist()) if end - start > 1]

    def merged(self, results: Extents | None, names: FileNames) -> Extents:
        """Return the extents of the sorted partition, with ``results`` in place of the groups of several runs."""
        import numpy as np

        sizes = self._sizes
        group = np.repeat(np.arange(len(sizes)), sizes)
        is_alone = sizes[group] == 1
        alone = self.runs.taken(np.flatnonzero(is_alone)).renamed(names)
        if results is None:
            return alone
        # Groups are merged in their order, and the row groups of each have as many rows as the group.
        several = np.flatnonzero(sizes > 1)
        ends = np.cumsum(np.add.reduceat(self.runs.sizes, self.borders[:-1], dtype=np.int64)[several])
        places = several[np.searchsorted(ends, np.cumsum(results.sizes, dtype=np.int64))]
        order = np.argsort(np.concatenate([group[is_alone], places]), kind="stable")
        return Extents.all_of([alone, results.renamed(names)], names).taken(order)


def sort_topics(
    topics: Sequence[SortedTopic], segments: Segments, folder: str, call_rows: int = MERGE_CALL_ROWS
) -> Generator[list[MergeWork], list[IngestReport], None]:
    """Yield the calls that merge the sorted runs of topics, if any overlap, and set the extents of ``topics``.

    Raises:
        ReplayError: a file is damaged, or nothing can be written.
    """
    groups_of = [{number: _Groups.of(extents) for number, extents in topic.extents.items()} for topic in topics]
    works = [
        work
        for topic, groups in zip(topics, groups_of, strict=True)
        for work in _merges(topic.topic, groups, segments, folder, call_rows)
    ]
    reports = (yield works) if works else []
    for topic, groups in zip(topics, groups_of, strict=True):
        results = by_partition(
            report.written for work, report in zip(works, reports, strict=True) if work.topic == topic.topic
        )
        names = FileNames()
        for number, own in groups.items():
            extents = own.merged(results.get(number), names)
            topic.extents[number] = extents.numbered(topic.starts.get(number, 0))


def _merges(
    topic: str, groups: Mapping[int, _Groups], segments: Segments, folder: str, call_rows: int
) -> list[MergeWork]:
    """Return calls that merge overlapping runs of a topic; each partition is merged by one call."""
    calls: list[list[tuple[int, Extents]]] = []
    size = call_rows
    for number, runs in sorted(groups.items()):
        own = [(number, group) for group in runs.overlapping]
        if own and size >= call_rows:
            calls.append([])
            size = 0
        for item in own:
            calls[-1].append(item)
            size += item[1].rows
    return [MergeWork(topic, tuple(call), segments, folder, number) for number, call in enumerate(calls)]
