"""Writes the rows of files partition by partition, and merges the partitions of several calls by event time.

Rows are collected as Arrow columns, and sorted by partition before they are written: a run has few row groups of each
partition, next to each other, and no Python objects.  With ``by_time`` each partition of a run is sorted by (event
time, row number).  ``merged`` makes one order of the runs of a partition; it reads a row group when the order reaches
its lowest time, so only row groups whose times overlap are in memory.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from attrs import define, field

from streams.core.blocks.records import TopicPartition
from streams.files import Records, headers_array
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent, ExtentReader, GroupWriter

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


def merged(root: Place, group: Iterable[Extent]) -> Iterator[Any]:
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
            pending.append(_reader(readers, root, extent).table(extent, _COPIED))
            size += extent.rows
        yield _by_time(pa.concat_tables(pending))
    finally:
        for reader in readers.values():
            reader.close()


def _reader(readers: dict[str, ExtentReader], root: Place, extent: Extent) -> ExtentReader:
    """Return the reader of an extent's file; if too many files are open, the one opened first is closed."""
    if extent.file not in readers:
        for file in list(islice(readers, max(0, len(readers) - _OPEN_FILES + 1))):
            readers.pop(file).close()
        readers[extent.file] = ExtentReader(root)
    return readers[extent.file]


def _by_time(table: Any) -> Any:
    import pyarrow.compute as pc

    return table.take(pc.sort_indices(table, [("timestamp", "ascending"), ("origin", "ascending")]))
