"""Records on disk: Parquet files whose row groups hold ranges of one partition, or of several small partitions.

All data of a replay is written in this form: archives, records for sinks and repartition topics, and
the contents of stores.  A call writes one file per pass.  An ``Extent`` locates one range; a partition is a list of
extents.  Ranges with few rows share row groups, partition by
partition: reading or writing a row group costs as much as some hundred rows.

The lanes of one partition of a repartition topic are merged into one input of a task: with many partitions most lanes
have few records, and a separate input costs as much as some hundred records.  The order is that of a task which has the
lanes as separate inputs: the record with the lowest place is next; of equal places, the first lane has precedence
(``runtime.tasks.order``).
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeAlias

from attrs import define, evolve, field, frozen

from streams.core.blocks.records import NO_TIMESTAMP, Block, Headers, TopicPartition, places_of
from streams.replay.errors import ReplayError
from streams.replay.storage.columns import block_of, places_array, places_in, schema
from streams.replay.storage.lanes import LaneRanges, Scattered, row_groups
from streams.replay.storage.places import Place, check_seal, is_elsewhere
from streams.runtime import merge_lanes
from streams.values import headers_array

#: Origin of a row group: a source topic, a sink, a repartition topic, a topic that the topology both writes
#: and reads, or a store.
Kind: TypeAlias = Literal["source", "sink", "repartition", "through", "store"]

#: Maximum number of rows in one row group, and in all buffers together.
GROUP_ROWS = 10_000
_WAITING_ROWS = 100_000
#: Rows in the row groups of a partition's lanes, one of each; and a size below which a row group costs too much.
_LANES_ROWS = 320_000
_LEAST_GROUP_ROWS = 1_000
#: Rows of shared row groups that a reader keeps in memory, and the number of files and of their row groups up to which
#: it keeps files open.
_KEPT_ROWS = 100_000
_OPEN_FILES = 64
_OPEN_GROUPS = 4_000
#: The same for Arrow tables, which need less memory than objects.
_SECTION_ROWS = 400_000
#: Maximum number of row groups in one file; reading or writing a file needs 14 KiB of memory per row group.
GROUPS_PER_FILE = 500
_COLUMNS = ("offset", "key", "value", "timestamp", "headers", "place")


def lane_group_rows(width: int) -> int:
    """Return the maximum number of rows of a row group of a partition with ``width`` lanes.

    >>> lane_group_rows(8), lane_group_rows(64), lane_group_rows(1_000)
    (10000, 5000, 1000)
    """
    return max(_LEAST_GROUP_ROWS, min(GROUP_ROWS, _LANES_ROWS // width))


class Extent(NamedTuple):
    """A range of one partition, stored as one row group of one file, or as a part of it."""

    #: Path relative to the folder that holds the list of extents, or an absolute path or URI.
    file: str
    group: int
    #: Offsets of the first and the last record; there may be gaps between them.  Without gaps they override the
    #: offsets in the file, since the writer of a part of a partition does not know the offset where it starts.
    first: int
    last: int
    rows: int
    lowest_ms: int
    highest_ms: int
    #: Index of the first record within the row group.
    start: int = 0

    def shifted(self, by: int) -> "Extent":
        """Return the extent with its offsets increased by ``by``; they must have no gaps."""
        assert self.is_dense, "the offsets of an extent with gaps are in its file"
        return self._replace(first=self.first + by, last=self.last + by)

    @property
    def is_dense(self) -> bool:
        """Whether the offsets have no gaps."""
        return self.last - self.first + 1 == self.rows


#: A producer's records of one partition: (kind, partition, producer).
Source: TypeAlias = tuple[Kind, TopicPartition, str]


@define(eq=False)
class _Lane:
    """Records of one producer for one partition that have not been written to the file yet."""

    next_offset: int = 0
    offsets: list[int] = field(factory=list)
    keys: list[bytes | None] = field(factory=list)
    values: list[bytes | None] = field(factory=list)
    timestamps: list[int] = field(factory=list)
    #: Empty unless the file has places.
    places: list[int] = field(factory=list)
    headers: list[Headers] | None = None


@define(eq=False)
class GroupWriter:
    """Writes row groups to one file or, if there are many, to several; each attempt must use another name.

    The writer is a context manager: the last file appears under its name when the block ends without an error.
    Without row groups, no file is written.  Further files are named NAME-1.parquet, NAME-2.parquet and so on.
    """

    _folder: Place
    _first_name: str
    _has_places: bool = field(default=False, kw_only=True)
    #: Written row groups, in order.
    written: list[tuple[Kind, TopicPartition, Extent]] = field(factory=list, init=False)
    _name: str = field(init=False)
    _place: Place = field(init=False)
    _files: int = field(default=0, init=False)
    _groups: int = field(default=0, init=False)
    _stream: Any = field(default=None, init=False)
    _writer: Any = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._name = self._first_name
        self._place = self._folder.child(self._first_name)

    def write(self, kind: Kind, partition: TopicPartition, offsets: Any, columns: Sequence[Any]) -> None:
        """Write a row group of a partition; the Arrow ``columns`` are those of ``schema`` after the offset.

        Raises:
            ReplayError: the file cannot be written.
        """
        self.write_ranges([(kind, partition, "")], [len(offsets)], offsets, columns)

    def write_ranges(
        self, sources: Sequence[Source], sizes: Sequence[int], offsets: Sequence[int], columns: Sequence[Any]
    ) -> list[Extent]:
        """Write a row group with the ranges of one or more partitions, which have ``sizes`` rows each.

        Return the extents of the ranges.

        Raises:
            ReplayError: the file cannot be written.
        """
        import numpy as np
        import pyarrow as pa

        times = columns[2]
        numbers = np.asarray(offsets, dtype=np.int64)
        name, number = self.write_group(pa.record_batch([pa.array(numbers), *columns], schema=self._schema))
        starts = np.cumsum([0, *sizes[:-1]])
        lowest, highest = _time_bounds(times.to_numpy(zero_copy_only=False), starts)
        firsts = numbers[starts].tolist()
        lasts = numbers[starts + sizes - 1].tolist()
        place = repeat(name), repeat(number)
        extents = list(map(Extent, *place, firsts, lasts, sizes, lowest, highest, starts.tolist()))
        self.written += (
            (kind, partition, extent) for (kind, partition, _), extent in zip(sources, extents, strict=True)
        )
        return extents

    def write_group(self, batch: Any) -> tuple[str, int]:
        """Write a batch with the columns of ``schema`` as a row group; return its file and its number there.

        Raises:
            ReplayError: the file cannot be written.
        """
        if self._writer is None:
            self._open()
        place = self._name, self._groups
        try:
            self._writer.write_batch(batch, row_group_size=batch.num_rows)
        except OSError as error:
            raise ReplayError(
                f"{self._place}: cannot be written: {error.strerror or error}; make room or choose another place"
            ) from error
        self._groups += 1
        if self._groups == GROUPS_PER_FILE:
            self._finish()
        return place

    @property
    def _schema(self) -> Any:
        return schema(has_places=self._has_places)

    def __enter__(self) -> "GroupWriter":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._writer is not None:
            self._finish(kind, error, trace)

    def _finish(self, kind: Any = None, error: Any = None, trace: Any = None) -> None:
        """Close the current file; the next row group starts a new one."""
        writer = self._writer
        self._writer = None
        try:
            if error is None:
                writer.close()
        except OSError as failure:
            kind = type(failure)
            error = failure
            trace = failure.__traceback__
            raise ReplayError(f"{self._place}: cannot be written: {failure.strerror or failure}") from failure
        finally:
            writer.is_open = False  # Otherwise its finalizer would try again, and report that the file is closed.
            self._stream.__exit__(kind, error, trace)

    def _open(self) -> None:
        import pyarrow.parquet as pq

        if self._files:
            self._name = f"{self._first_name.removesuffix('.parquet')}-{self._files}.parquet"
            self._place = self._folder.child(self._name)
        self._files += 1
        self._groups = 0
        self._stream = self._place.whole_file()
        stream = self._stream.__enter__()
        self._writer = pq.ParquetWriter(
            stream,
            self._schema,
            compression="snappy",
            use_dictionary=False,
            write_page_checksum=True,
            write_statistics=["timestamp", "offset"],
        )


class SegmentWriter:
    """Writes records to the files of a ``GroupWriter``, with a few row groups of each partition in memory.

    Several producers, such as the tasks of a call, may write to the same files.  With ``has_places``, the files have
    the places of records, by which the records of several tasks are merged.  The writer is a context manager: the files
    are complete when the block ends without an error.
    """

    def __init__(self, folder: Place, name: str, *, has_places: bool = False) -> None:
        self._file = GroupWriter(folder, name, has_places=has_places)
        self._has_places = has_places
        self._lanes: dict[Source, _Lane] = {}
        self._starts: dict[Source, int] = {}
        self._scattered: dict[str, Scattered] = {}
        self._ranges: dict[str, list[LaneRanges]] = {}
        self._waiting = 0
        self._written: dict[str, list[tuple[Kind, TopicPartition, Extent]]] = {}

    @property
    def written(self) -> Sequence[tuple[Kind, TopicPartition, Extent]]:
        """The ranges that have been written; the ranges of each partition are in order."""
        return self._file.written

    def written_by(self, producer: str) -> Sequence[tuple[Kind, TopicPartition, Extent]]:
        """Return the ranges of a producer that have been written; the ranges of each partition are in order."""
        return self._written.get(producer, [])

    def start_at(self, kind: Kind, partition: TopicPartition, offset: int, producer: str = "") -> None:
        """Set the offset of the first record of a partition (default 0)."""
        self._starts[kind, partition, producer] = offset

    def next_offset(self, kind: Kind, partition: TopicPartition, producer: str = "") -> int:
        """Return the offset that the next record of a partition will get."""
        return self._lane(kind, partition, producer).next_offset

    def append(
        self,
        kind: Kind,
        partition: TopicPartition,
        block: Block,
        producer: str = "",
        *,
        keeps_offsets: bool = False,
    ) -> None:
        """Append records, which are assigned the next offsets of the partition unless ``keeps_offsets``.

        Raises:
            ReplayError: the file cannot be written.
        """
        lane = self._lane(kind, partition, producer)
        size = len(block)
        if not size:
            return
        if keeps_offsets:
            offsets: Sequence[int] = block.offsets
        else:
            offsets = range(lane.next_offset, lane.next_offset + size)
        lane.next_offset = offsets[-1] + 1
        if block.headers is not None and lane.headers is None:
            lane.headers = [()] * len(lane.keys)
        lane.offsets += offsets
        lane.keys += block.keys
        lane.values += block.values
        lane.timestamps += block.timestamps
        if self._has_places:
            lane.places += places_of(block)
        if lane.headers is not None:
            lane.headers += block.headers if block.headers is not None else [()] * size
        self._waiting += size
        while len(lane.keys) >= GROUP_ROWS:
            self._write([((kind, partition, producer), lane)])
        if self._waiting > _WAITING_ROWS:
            self._write_all()

    def start_lanes(self, topic: str, count: int, width: int) -> Any:
        """Return the array of the next offsets of the ``count`` lanes of a topic, to be set before any is written.

        A reader has a row group of each of the ``width`` lanes of a partition in memory.
        """
        if topic not in self._scattered:
            import numpy as np

            self._scattered[topic] = Scattered(np.zeros(count, dtype=np.int64), lane_group_rows(width))
        return self._scattered[topic].next_offsets

    def scatter(self, topic: str, lanes: Any, block: Block) -> None:
        """Append records of a task with their places to lanes of a topic; ``lanes`` is an array with the lane of each.

        Only this task writes to these lanes.  Records are assigned the next offsets of their lanes.

        Raises:
            ReplayError: the file cannot be written.
        """
        self._scattered[topic].append(lanes, block)
        self._waiting += len(block)
        if self._waiting > _WAITING_ROWS:
            self._write_all()

    def lanes(self) -> dict[str, LaneRanges]:
        """Return the ranges of lanes that have been written, by topic."""
        return {topic: LaneRanges.joined(parts) for topic, parts in self._ranges.items()}

    def __enter__(self) -> "SegmentWriter":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            self._file.__exit__(kind, error, trace)
            return
        with self._file:
            self._write_all()

    def _lane(self, kind: Kind, partition: TopicPartition, producer: str) -> _Lane:
        lane = self._lanes.get((kind, partition, producer))
        if lane is None:
            lane = self._lanes[kind, partition, producer] = _Lane(self._starts.get((kind, partition, producer), 0))
        return lane

    def _write_all(self) -> None:
        """Write all rows, partition by partition."""
        waiting = sorted((item for item in self._lanes.items() if item[1].keys), key=itemgetter(0))
        for group in row_groups([len(lane.keys) for _, lane in waiting]):
            self._write([waiting[index] for index in group])
        for topic, rows in sorted(self._scattered.items()):
            if size := len(rows):
                self._ranges.setdefault(topic, []).append(rows.write(self._file.write_group))
                self._waiting -= size

    def _note(self, sources: Iterable[Source], extents: Iterable[Extent]) -> None:
        for (kind, partition, producer), extent in zip(sources, extents, strict=True):
            self._written.setdefault(producer, []).append((kind, partition, extent))

    def _write(self, waiting: Sequence[tuple[Source, _Lane]]) -> None:
        """Write the first rows of several partitions as one row group."""
        import pyarrow as pa

        lanes = [lane for _, lane in waiting]
        sizes = [min(len(lane.keys), GROUP_ROWS) for lane in lanes]
        size = sum(sizes)
        headers: list[Headers] | None = None
        if any(lane.headers is not None for lane in lanes):
            headers = [
                record
                for lane, count in zip(lanes, sizes, strict=True)
                for record in (lane.headers[:count] if lane.headers is not None else [()] * count)
            ]
        columns = [
            pa.array(_joined([lane.keys for lane in lanes], sizes), pa.binary()),
            pa.array(_joined([lane.values for lane in lanes], sizes), pa.binary()),
            pa.array(_joined([lane.timestamps for lane in lanes], sizes), pa.int64()),
            headers_array(headers, size),
            pa.nulls(size, pa.int64()),
        ]
        if self._has_places:
            timestamps = _joined([lane.timestamps for lane in lanes], sizes)
            columns.append(places_array(_joined([lane.places for lane in lanes], sizes), timestamps))
        offsets = _joined([lane.offsets for lane in lanes], sizes)
        sources = [source for source, _ in waiting]
        self._note(sources, self._file.write_ranges(sources, sizes, offsets, columns))
        for lane, count in zip(lanes, sizes, strict=True):
            for column in (lane.offsets, lane.keys, lane.values, lane.timestamps, lane.places, lane.headers):
                if column is not None:
                    del column[:count]
        self._waiting -= size


def _time_bounds(times: Any, starts: Any) -> tuple[list[int], list[int]]:
    """Return the lowest and the highest time of each range, ignoring rows without a time, which could not be read."""
    import numpy as np

    never = np.iinfo(np.int64).max
    lowest = np.minimum.reduceat(np.where(times < 0, never, times), starts)
    highest = np.maximum.reduceat(np.where(times < 0, NO_TIMESTAMP, times), starts)
    return np.where(lowest == never, NO_TIMESTAMP, lowest).tolist(), highest.tolist()


def _joined(columns: Sequence[list[Any]], sizes: Sequence[int]) -> list[Any]:
    """Concatenate the first values of columns; ``sizes`` has the number of values of each."""
    return [value for column, size in zip(columns, sizes, strict=True) for value in column[:size]]


class ExtentReader:
    """Reads the records of extents (ranges of row groups), and keeps some files open.

    Shared row groups are kept in memory, since the ranges of a reader are next to each other.  With ``keeps_open``
    files stay open until ``close`` is called, so that one reader can serve several inputs; otherwise until all blocks
    are read.
    """

    def __init__(self, segments: "Segments", *, keeps_open: bool = False) -> None:
        self._segments = segments
        self._keeps_open = keeps_open
        self._files: dict[str, tuple[Any, Any]] = {}
        self._shared: dict[tuple[str, int], Block] = {}
        self._shared_rows = 0
        self._sections: dict[tuple[str, int], Any] = {}
        self._section_rows = 0

    def blocks(
        self, extents: Iterable[Extent], position: int = 0, end: int | None = None, most: int = GROUP_ROWS
    ) -> Iterator[Block]:
        """Yield the records from offset ``position`` up to ``end`` (exclusive; None reads all), ``most`` at a time.

        Raises:
            ReplayError: a file is missing or damaged.
        """
        try:
            for extent in extents:
                if extent.last < position or (end is not None and extent.first >= end):
                    continue
                yield from self._read(extent, position, end, most)
        finally:
            if not self._keeps_open:
                self.close()

    def origin(self, extent: Extent, offset: int) -> int | None:
        """Return the row number of a record in its input file, or None if it is not known."""
        table = self.table(extent, ["offset", "origin"])
        for number, origin in zip(_offsets(extent, table), table.column("origin").to_pylist(), strict=True):
            if number == offset:
                return None if origin is None else int(origin)
        return None

    def timestamps(self, extent: Extent) -> tuple[list[int], list[int]]:
        """Return the offsets and timestamps of the records of an extent."""
        table = self.table(extent, ["offset", "timestamp"])
        return list(_offsets(extent, table)), table.column("timestamp").to_pylist()

    def close(self) -> None:
        while self._files:
            self._close(next(iter(self._files)))
        self._shared.clear()
        self._sections.clear()
        self._shared_rows = self._section_rows = 0

    def _close(self, name: str) -> None:
        for opened in reversed(self._files.pop(name)):
            if opened is not None:  # A damaged file has no reader, but is still open.
                opened.close()

    def _read(self, extent: Extent, position: int, end: int | None, most: int) -> Iterator[Block]:
        """Yield the records of an extent from offset ``position`` up to ``end``, ``most`` at a time."""
        if (extent.file, extent.group) not in self._shared:
            table = self._whole(extent, _COLUMNS)
            if table.num_rows == extent.rows:
                offsets = _offsets(extent, table)
                # Only these rows become objects: a slice may be a small part of a row group.
                for start, stop in _parts(*_between(offsets, position, end), most):
                    yield evolve(block_of(table.slice(start, stop - start)), offsets=offsets[start:stop])
                return
            self._keep(extent, block_of(table))
        block = self.rows(extent)
        if extent.is_dense:
            block = evolve(block, offsets=range(extent.first, extent.last + 1))
        for start, stop in _parts(*_between(block.offsets, position, end), most):
            yield block if stop - start == len(block) else block.slice(start, stop)

    def rows(self, extent: Extent) -> Block:
        """Return the records of an extent with the offsets that the file contains.

        Raises:
            ReplayError: a file is missing or damaged.
        """
        group = self._shared.get((extent.file, extent.group))
        if group is None:
            group = block_of(self._whole(extent, _COLUMNS))
            if len(group) == extent.rows:
                return group
            self._keep(extent, group)
        return group.slice(extent.start, extent.start + extent.rows)

    def _keep(self, extent: Extent, group: Block) -> None:
        """Keep a shared row group in memory; if there are too many rows, remove the groups that were read first."""
        self._shared[extent.file, extent.group] = group
        self._shared_rows += len(group)
        while self._shared_rows > _KEPT_ROWS and len(self._shared) > 1:
            self._shared_rows -= len(self._shared.pop(next(iter(self._shared))))

    def section(self, file: str, group: int, start: int, rows: int) -> Any:
        """Return rows of a row group as an Arrow table; the group is kept in memory, since others read its other rows.

        Raises:
            ReplayError: the file is missing or damaged.
        """
        table = self._sections.get((file, group))
        if table is None:
            table = self._sections[file, group] = self._group(file, group, start + rows, _COLUMNS)
            self._section_rows += table.num_rows
            while self._section_rows > _SECTION_ROWS and len(self._sections) > 1:
                self._section_rows -= self._sections.pop(next(iter(self._sections))).num_rows
        return table.slice(start, rows)

    def table(self, extent: Extent, columns: Sequence[str]) -> Any:
        """Return some columns of an extent as an Arrow table.

        Raises:
            ReplayError: the file is missing or damaged.
        """
        table = self._whole(extent, columns)
        return table if table.num_rows == extent.rows else table.slice(extent.start, extent.rows)

    def _whole(self, extent: Extent, columns: Sequence[str]) -> Any:
        """Return some columns of the row group that contains an extent."""
        return self._group(extent.file, extent.group, extent.start + extent.rows, columns)

    def _group(self, file: str, group: int, rows: int, columns: Sequence[str]) -> Any:
        """Return some columns of a row group, which must have at least ``rows`` rows."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        place = self._segments.place(file)
        try:
            if file not in self._files:
                while self._files and self._is_full():
                    self._close(next(iter(self._files)))
                check_seal(place)
                stream = place.open_input()
                self._files[file] = stream, None
                self._files[file] = stream, pq.ParquetFile(stream, page_checksum_verification=True)
            table = self._files[file][1].read_row_group(group, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise ReplayError(f"{place}: is damaged or no file of a replay: {error}") from error
        if table.num_rows < rows:
            raise ReplayError(
                f"{place}: row group {group} has {table.num_rows} rows, but {rows} were written; the file was changed"
            )
        return table

    def _is_full(self) -> bool:
        groups = sum(file.num_row_groups for _, file in self._files.values() if file is not None)
        return len(self._files) >= _OPEN_FILES or groups >= _OPEN_GROUPS


def _between(offsets: Sequence[int], position: int, end: int | None) -> tuple[int, int]:
    """Return the indexes of the first offset at or after ``position``, and of the first at or after ``end``."""
    start = 0 if offsets[0] >= position else bisect_left(offsets, position)
    stop = len(offsets) if end is None or offsets[-1] < end else bisect_left(offsets, end)
    return start, stop


def _parts(start: int, stop: int, most: int) -> Iterator[tuple[int, int]]:
    """Divide a range into parts of at most ``most``; an empty one is one part.

    >>> list(_parts(2, 9, 4)), list(_parts(3, 3, 4))
    ([(2, 6), (6, 9)], [(3, 3)])
    """
    for first in range(start, max(stop, start + 1), most):
        yield first, min(first + most, stop)


def _offsets(extent: Extent, table: Any) -> Sequence[int]:
    offsets: Sequence[int] = (
        range(extent.first, extent.last + 1) if extent.is_dense else table.column("offset").to_pylist()
    )
    return offsets


#: Records of one block of merged lanes.
_BLOCK_ROWS = 10_000


def ranges_of(items: Iterable[tuple[int, Extent]]) -> LaneRanges:
    """Return the ranges of extents, given with their lanes."""
    import numpy as np

    files: dict[str, int] = {}
    rows = [
        (lane, extent.first, extent.rows, files.setdefault(extent.file, len(files)), extent.group, extent.start)
        for lane, extent in items
    ]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    return LaneRanges(tuple(files), columns[:, np.argsort(columns[0], kind="stable")])


def extents_of(ranges: LaneRanges) -> dict[int, list[Extent]]:
    """Return ranges as extents, whose times are not known, by lane."""
    result: dict[int, list[Extent]] = {}
    for lane, first, rows, file, group, start in ranges.columns.T.tolist():
        place = ranges.files[file], group
        extent = Extent(*place, first, first + rows - 1, rows, NO_TIMESTAMP, NO_TIMESTAMP, start)
        result.setdefault(lane, []).append(extent)
    return result


@define(eq=False)
class MergedLanes:
    """The unread records of neighbouring lanes, which hold the records of one producing task each, as one input.

    Unless the lanes end here, only the records are read whose order is certain: after the last known record of a lane,
    any record of this lane may follow.  All records are in memory.
    """

    #: The next offset to read of each lane.
    _positions: Any
    #: The records, with the indexes of the certain ones in the order of processing, and the lanes of these.
    _table: Any
    _order: Any
    _lanes: Any

    @classmethod
    def read(
        cls, reader: ExtentReader, ranges: LaneRanges, first: int, positions: Any, *, is_ended: bool = True
    ) -> "MergedLanes":
        """Read the ranges of lanes, of which ``first`` is the number of the first one.

        Raises:
            ReplayError: a file is missing or damaged.
        """
        import numpy as np

        if not len(ranges):
            return cls(positions, None, np.zeros(0, np.int64), np.zeros(0, np.int64))
        table = _table(reader, ranges)
        lane = np.repeat(ranges.columns[0] - first, ranges.columns[2])
        order = _order(table, lane, positions)
        if not is_ended:
            order = order[: _certain(lane[order], len(positions))]
        return cls(positions, table, order, lane[order])

    def __len__(self) -> int:
        return len(self._order)

    def blocks(self) -> Iterator[Block]:
        """Yield the records; their offsets are those of the lanes, so they are not ascending."""
        import pyarrow as pa

        for start in range(0, len(self), _BLOCK_ROWS):
            yield block_of(self._table.take(pa.array(self._order[start : start + _BLOCK_ROWS])))

    def positions_after(self, count: int) -> Any:
        """Return the next offset to read of each lane after the first ``count`` records."""
        import numpy as np

        positions = self._positions.copy()
        if count:
            offsets = self._table.column("offset").to_numpy()[self._order[:count]]
            np.maximum.at(positions, self._lanes[:count], offsets + 1)
        return positions


def _table(reader: ExtentReader, ranges: LaneRanges) -> Any:
    """Return the records of ranges as one Arrow table, in their order."""
    import numpy as np
    import pyarrow as pa

    _, _, sizes, file, group, start = ranges.columns
    # Ranges that are next to each other in a row group are read together.
    is_next = (file[1:] == file[:-1]) & (group[1:] == group[:-1]) & (start[1:] == start[:-1] + sizes[:-1])
    firsts = np.concatenate([[0], np.flatnonzero(~is_next) + 1])
    rows = np.add.reduceat(sizes, firsts).tolist()
    places = zip(file[firsts].tolist(), group[firsts].tolist(), start[firsts].tolist(), rows, strict=True)
    table = pa.concat_tables([reader.section(ranges.files[at], *place) for at, *place in places])
    if table.column("headers").null_count == table.num_rows:
        # To take rows of this nested column costs as much as all others.
        table = table.set_column(table.column_names.index("headers"), "headers", pa.nulls(table.num_rows))
    return table


def _order(table: Any, lane: Any, positions: Any) -> Any:
    """Return the indexes of the unread rows of a table in processing order; ``lane`` has the lane of each row."""
    import numpy as np

    column = places_in(table)
    places = (table.column("timestamp") if column is None else column).to_numpy()
    rows = np.arange(len(lane))
    if positions.any():
        is_unread = table.column("offset").to_numpy() >= positions[lane]
        places = places[is_unread]
        rows = rows[is_unread]
    # The places of a lane never descend.
    return rows[np.argsort(places, kind="stable")]


def _certain(lanes: Any, count: int) -> int:
    """Return how many records can have no further record before them, given their lanes in processing order.

    These are the records up to the last one of the lane that ends first; none, if one of ``count`` lanes has no record.
    """
    import numpy as np

    last = np.full(count, -1)
    np.maximum.at(last, lanes, np.arange(len(lanes)))
    return int(last.min()) + 1


@frozen
class Segments:
    """The files with the records of a replay, an archive or a snapshot, which extents name relative to a folder."""

    root: Place

    def place(self, file: str) -> Place:
        """Return the location of an extent's file, which may belong to another replay."""
        return Place(file) if is_elsewhere(file) else self.root.child(file)

    def reader(self, *, keeps_open: bool = False) -> ExtentReader:
        """Return a reader, which closes its files after each partition unless it ``keeps_open``."""
        return ExtentReader(self, keeps_open=keeps_open)

    def blocks(self, extents: Iterable[Extent], position: int = 0, end: int | None = None) -> Iterator[Block]:
        """Yield the records of extents from offset ``position`` up to ``end`` (exclusive; None reads all).

        Raises:
            ReplayError: a file is missing or damaged.
        """
        return self.reader().blocks(extents, position, end)

    def merged(self, lanes: Iterable[Iterable[Extent]], first: int | None = None) -> Iterator[Block]:
        """Merge the records that several tasks wrote to a partition, by their places.

        Their offsets are consecutive from ``first`` on; None keeps those of the merge, which begin with 0.

        Raises:
            ReplayError: a file is missing or damaged.
        """
        for block in merge_lanes([self.blocks(extents) for extents in lanes]):
            if first is None:
                yield block
            else:
                yield evolve(block, offsets=range(first, first := first + len(block)))

    def writer(self, name: str, *, has_places: bool = False) -> SegmentWriter:
        """Return a writer of records to the file ``name``, and to further ones if there are many."""
        return SegmentWriter(self.root, name, has_places=has_places)

    def group_writer(self, name: str) -> GroupWriter:
        """Return a writer of row groups to the file ``name``, and to further ones if there are many."""
        return GroupWriter(self.root, name)
