"""Records on disk: Parquet files in which each row group holds a range of one partition.

All data of a replay is written in this form: archives, records for sinks and repartition topics, and
the contents of stores.  A task writes one file per pass.  Row groups are tagged with kind, topic
and partition.  An ``Extent`` locates one row group; a partition is a list of extents.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from attrs import define, field

from streams.core.records import NO_TIMESTAMP, Block, Headers, TopicPartition
from streams.replay.errors import ReplayError
from streams.replay.storage.places import Place

#: Origin of a row group: a source topic, a sink, a repartition topic, a topic that the topology both writes
#: and reads, or a store.
Kind: TypeAlias = Literal["source", "sink", "repartition", "through", "store"]

#: Maximum number of rows in one row group, and in all buffers together.
GROUP_ROWS = 10_000
_WAITING_ROWS = 100_000
#: Maximum number of row groups in one file; reading or writing a file needs 14 KiB of memory per row group.
GROUPS_PER_FILE = 500
_COLUMNS = ("offset", "key", "value", "timestamp", "headers")


#: The names of permanent files contain a digest of the content, which readers check.
_SEALED = re.compile(r"-([0-9a-f]{32})\.b2\.parquet$")


class Extent(NamedTuple):
    """A range of one partition, stored as one row group of one file."""

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

    def shifted(self, by: int) -> "Extent":
        """Return the extent, which must be dense, with shifted offsets."""
        assert self.is_dense, "the offsets of an extent with gaps are in its file"
        return self._replace(first=self.first + by, last=self.last + by)

    @property
    def is_dense(self) -> bool:
        """Whether the offsets have no gaps."""
        return self.last - self.first + 1 == self.rows


@define(eq=False)
class _Lane:
    """Buffered rows of one partition."""

    next_offset: int = 0
    offsets: list[int] = field(factory=list)
    keys: list[bytes | None] = field(factory=list)
    values: list[bytes | None] = field(factory=list)
    timestamps: list[int] = field(factory=list)
    headers: list[Headers] | None = None
    origins: list[int] | None = None


def schema() -> Any:
    """Return the columns of a file.

    ``origin`` is the row number of the record in its input file.
    """
    import pyarrow as pa

    header = pa.struct({"name": pa.string(), "value": pa.binary()})
    return pa.schema(
        {
            "kind": pa.string(),
            "topic": pa.string(),
            "partition": pa.int32(),
            "producer": pa.string(),
            "offset": pa.int64(),
            "key": pa.binary(),
            "value": pa.binary(),
            "timestamp": pa.int64(),
            "headers": pa.list_(header),
            "origin": pa.int64(),
        }
    )


class SegmentWriter:
    """Writes one file, or several if there are many row groups; the name has to be unique to the attempt.

    The writer is a context manager: the last file appears under its name when the block ends without an error.
    Without records, no file is written.  Further files are named NAME-1.parquet, NAME-2.parquet and so on.
    """

    def __init__(self, folder: Place, name: str, producer: str = "") -> None:
        self._folder = folder
        self._first_name = self._name = name
        self._place = folder.child(name)
        self._files = 0
        self._producer = producer
        self._lanes: dict[tuple[Kind, TopicPartition], _Lane] = {}
        self._waiting = 0
        self._file: Any = None
        self._writer: Any = None
        self._groups = 0
        self._schema: Any = None
        #: Written row groups, in order.
        self.written: list[tuple[Kind, TopicPartition, Extent]] = []

    def start_at(self, kind: Kind, partition: TopicPartition, offset: int) -> None:
        """Set the offset of the first record of a partition (default 0)."""
        self._lane(kind, partition).next_offset = offset

    def next_offset(self, kind: Kind, partition: TopicPartition) -> int:
        """Return the next offset of a partition."""
        return self._lane(kind, partition).next_offset

    def append(
        self,
        kind: Kind,
        partition: TopicPartition,
        block: Block,
        *,
        keeps_offsets: bool = False,
        origins: Sequence[int] | None = None,
    ) -> None:
        """Append records, which are assigned the next offsets of the partition unless ``keeps_offsets``.

        Raises:
            ReplayError: the file cannot be written.
        """
        lane = self._lane(kind, partition)
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
        if origins is not None and lane.origins is None:
            lane.origins = []
        lane.offsets += offsets
        lane.keys += block.keys
        lane.values += block.values
        lane.timestamps += block.timestamps
        if lane.headers is not None:
            lane.headers += block.headers if block.headers is not None else [()] * size
        if lane.origins is not None:
            assert origins is not None
            lane.origins += origins
        self._waiting += size
        while len(lane.keys) >= GROUP_ROWS:
            self._write(kind, partition, lane)
        if self._waiting > _WAITING_ROWS:
            (kind, partition), lane = max(self._lanes.items(), key=lambda item: len(item[1].keys))
            self._write(kind, partition, lane)

    def __enter__(self) -> "SegmentWriter":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            for (what, partition), lane in self._lanes.items():
                while lane.keys:
                    self._write(what, partition, lane)
        if self._writer is not None:
            self._finish(kind, error, trace)

    def _finish(self, kind: Any = None, error: Any = None, trace: Any = None) -> None:
        """Close the current file; the next row group starts a new one."""
        writer, self._writer = self._writer, None
        try:
            if error is None:
                writer.close()
        except OSError as failure:
            kind, error, trace = type(failure), failure, failure.__traceback__
            raise ReplayError(f"{self._place}: cannot be written: {failure.strerror or failure}") from failure
        finally:
            writer.is_open = False  # Otherwise its finalizer would try again, and report that the file is closed.
            self._file.__exit__(kind, error, trace)

    def _lane(self, kind: Kind, partition: TopicPartition) -> _Lane:
        found = self._lanes.get((kind, partition))
        if found is None:
            found = self._lanes[kind, partition] = _Lane()
        return found

    def _write(self, kind: Kind, partition: TopicPartition, lane: _Lane) -> None:
        """Write the first rows of a partition as one row group."""
        import pyarrow as pa

        size = min(len(lane.keys), GROUP_ROWS)
        if self._writer is None:
            self._open()
        names = self._schema
        times = lane.timestamps[:size]
        headers = None if lane.headers is None else lane.headers[:size]
        columns = [
            pa.repeat(kind, size),
            pa.repeat(partition.topic, size),
            pa.repeat(pa.scalar(partition.partition, pa.int32()), size),
            pa.repeat(self._producer, size),
            pa.array(lane.offsets[:size], pa.int64()),
            pa.array(lane.keys[:size], pa.binary()),
            pa.array(lane.values[:size], pa.binary()),
            pa.array(times, pa.int64()),
            headers_array(headers, size),
            pa.nulls(size, pa.int64()) if lane.origins is None else pa.array(lane.origins[:size], pa.int64()),
        ]
        # Rows that cannot be read have no timestamp.
        seen = times if min(times) >= 0 else [time for time in times if time >= 0] or [NO_TIMESTAMP]
        extent = Extent(self._name, self._groups, lane.offsets[0], lane.offsets[size - 1], size, min(seen), max(seen))
        try:
            self._writer.write_batch(pa.record_batch(columns, schema=names), row_group_size=size)
        except OSError as error:
            raise ReplayError(
                f"{self._place}: cannot be written: {error.strerror or error}; make room or choose another place"
            ) from error
        self._groups += 1
        self._waiting -= size
        self.written.append((kind, partition, extent))
        for column in (lane.offsets, lane.keys, lane.values, lane.timestamps, lane.headers, lane.origins):
            if column is not None:
                del column[:size]
        if self._groups == GROUPS_PER_FILE:
            self._finish()

    def _open(self) -> None:
        import pyarrow.parquet as pq

        if self._files:
            self._name = f"{self._first_name.removesuffix('.parquet')}-{self._files}.parquet"
            self._place = self._folder.child(self._name)
        self._files += 1
        self._groups = 0
        self._schema = schema()
        self._file = self._place.whole_file()
        stream = self._file.__enter__()
        self._writer = pq.ParquetWriter(
            stream,
            self._schema,
            compression="snappy",
            use_dictionary=["kind", "topic", "producer"],
            write_page_checksum=True,
            write_statistics=["kind", "topic", "partition", "timestamp", "offset"],
        )


def headers_array(headers: Sequence[Headers] | None, size: int) -> Any:
    """Return the column of headers, which is null for a block without headers."""
    import pyarrow as pa

    kind = schema().field("headers").type
    if headers is None:
        return pa.nulls(size, kind)
    return pa.array([[{"name": name, "value": data} for name, data in record] for record in headers], kind)


def headers_of(column: Any) -> list[Headers] | None:
    """Return the headers in a column, None if no record has headers."""
    if column.null_count == len(column):
        return None
    return [
        () if record is None else tuple((header["name"], header["value"]) for header in record)
        for record in column.to_pylist()
    ]


class ExtentReader:
    """Reads extents and keeps the current file open."""

    def __init__(self, root: Place) -> None:
        self._root = root
        self._name = ""
        self._stream: Any = None
        self._file: Any = None

    def blocks(self, extents: Iterable[Extent], position: int = 0, end: int | None = None) -> Iterator[Block]:
        """Yield the records from ``position`` up to ``end`` (exclusive; None reads all).

        Raises:
            ReplayError: a file is missing or damaged.
        """
        try:
            for extent in extents:
                if extent.last < position or (end is not None and extent.first >= end):
                    continue
                block = self._read(extent)
                start = 0 if extent.first >= position else bisect_left(block.offsets, position)
                stop = None if end is None or extent.last < end else bisect_left(block.offsets, end)
                yield block if not start and stop is None else block.slice(start, stop)
        finally:
            self.close()

    def origin(self, extent: Extent, offset: int) -> int | None:
        """Return the row number of a record in its input file, None if it is not known."""
        table = self._table(extent, ["offset", "origin"])
        for number, origin in zip(_offsets(extent, table), table.column("origin").to_pylist(), strict=True):
            if number == offset:
                return None if origin is None else int(origin)
        return None

    def timestamps(self, extent: Extent) -> tuple[list[int], list[int]]:
        """Return the offsets and timestamps of an extent."""
        table = self._table(extent, ["offset", "timestamp"])
        return list(_offsets(extent, table)), table.column("timestamp").to_pylist()

    def close(self) -> None:
        """Close the current file."""
        for opened in (self._file, self._stream):
            if opened is not None:  # A damaged file has no reader, but is still open.
                opened.close()
        self._name, self._stream, self._file = "", None, None

    def _read(self, extent: Extent) -> Block:
        names = [name for name in _COLUMNS if name != "offset" or not extent.is_dense]
        table = self._table(extent, names)
        keys = table.column("key")
        size = extent.rows
        return Block(
            [None] * size if keys.null_count == size else keys.to_pylist(),
            table.column("value").to_pylist(),
            table.column("timestamp").to_pylist(),
            headers_of(table.column("headers")),
            _offsets(extent, table),
        )

    def _table(self, extent: Extent, columns: list[str]) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            if extent.file != self._name:
                self.close()
                place = place_of(self._root, extent.file)
                check_seal(place)
                self._stream = place.open_input()
                self._file = pq.ParquetFile(self._stream, page_checksum_verification=True)
                self._name = extent.file
            table = self._file.read_row_group(extent.group, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise ReplayError(
                f"{place_of(self._root, extent.file)}: is damaged or no file of a replay: {error}"
            ) from error
        if table.num_rows != extent.rows:
            raise ReplayError(
                f"{place_of(self._root, extent.file)}: row group {extent.group} has {table.num_rows} rows, "
                f"but {extent.rows} were written; the file was changed"
            )
        return table


def _offsets(extent: Extent, table: Any) -> Sequence[int]:
    offsets: Sequence[int] = (
        range(extent.first, extent.last + 1) if extent.is_dense else table.column("offset").to_pylist()
    )
    return offsets


def sealed_name(name: str, digest: str) -> str:
    """Return the name of a file with its digest.

    >>> sealed_name("0_1-ab.parquet", "0" * 32)
    '0_1-ab-00000000000000000000000000000000.b2.parquet'
    """
    return f"{_SEALED.sub('', name).removesuffix('.parquet')}-{digest}.b2.parquet"


def check_seal(place: Place) -> None:
    """Check a file against the digest in its name, if it has one; once per file and process.

    Raises:
        ReplayError: the file has changed since it was written, or cannot be read.
    """
    sealed = _SEALED.search(place.uri)
    if sealed is not None:
        _check_content(place, sealed[1], place.state())


@cache
def _check_content(place: Place, digest: str, _state: tuple[str, int, int]) -> None:
    """Check the digest of a file, only once per process for the same size and modification time."""
    if place.digest() != digest:
        raise ReplayError(
            f"{place}: is damaged: its bytes are not those that were written; restore a copy, or create it again"
        )


def place_of(root: Place, file: str) -> Place:
    """Return the place of an extent's file."""
    return Place(file) if "://" in file or file.startswith("/") else root.child(file)
