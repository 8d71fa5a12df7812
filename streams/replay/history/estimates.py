"""The size of the inputs of a replay, from listings, Parquet footers and a sample of rows.

No file is read as a whole: the numbers for Parquet files and archives are exact, and those for other files are
estimated from their sizes and their first rows.  The share of each partition and the range of event times are those of
a sample.
"""

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

from attrs import define, evolve, field, frozen

from streams.core.blocks.records import NO_TIMESTAMP, Block
from streams.core.clock import VirtualClock
from streams.core.errors import InputError
from streams.core.topic import Topic
from streams.files import (
    BY_SUFFIX,
    WHOLE,
    FileKind,
    FileSource,
    Kind,
    Location,
    OnBadRow,
    count_rows,
    first_content,
    input_kind,
    open_input,
)
from streams.replay.errors import ReplayError
from streams.replay.history.archive import ArchivedTopic
from streams.replay.history.ingest import source_of
from streams.replay.history.intake import PACKED_FACTOR, PART_BYTES
from streams.replay.storage.places import Place
from streams.values import plain_batch, table_columns

#: Number of threads that read footers and samples; most of them wait for the file system.
_THREADS = 32
#: Maximum number of files whose footers are read; if there are more, the footers of this many evenly spaced files.
_FOOTERS = 5_000
#: Size of the sample: number of files, and for each of them bytes of a text file or rows of a Parquet file.
_SAMPLED_FILES = 16
_SAMPLED_BYTES = 1 << 18
_SAMPLED_ROWS = 1_000


@frozen
class InputEstimate:
    """The size of one input; ``basis`` describes the source of the numbers."""

    #: Description of the input, such as ``3 files``.
    what: str
    basis: str
    #: Number of rows, None if it is not known before they are read.
    rows: int | None = None
    is_exact: bool = False
    bytes: int = 0
    files: int = 0
    #: Number of calls that read the input; archives are not read into partitions.
    calls: int = 0
    #: Number of records by partition: exact for an archive, otherwise those of the sample.
    placed: tuple[int, ...] = ()
    #: Bytes of a record as it is written for the tasks.
    record_bytes: float = 0.0
    #: Range of event times, None if there is no sample.
    times: tuple[int, int] | None = None
    #: Whether rows have no times, so that they are 1 ms apart.
    has_row_times: bool = False

    @property
    def highest_share(self) -> tuple[int, float]:
        """The partition with the most records, and its share of the records; (0, 0.0) if that is not known."""
        total = sum(self.placed)
        if not total:
            return 0, 0.0
        number = max(range(len(self.placed)), key=self.placed.__getitem__)
        return number, self.placed[number] / total


@define
class _Sample:
    """The first records of some files."""

    placed: Counter[int] = field(factory=Counter)
    rows: int = 0
    bytes: int = 0
    times: list[int] = field(factory=list)

    def take(self, blocks: Sequence[tuple[int, Block]]) -> None:
        """Add records, and measure the bytes that they take when they are written."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        for number, block in blocks:
            self.placed[number] += len(block)
            self.rows += len(block)
            times = [time for time in block.timestamps if time >= 0]
            self.times += [min(times), max(times)] if times else []
            columns = {
                "key": pa.array(block.keys, pa.binary()),
                "value": pa.array(block.values, pa.binary()),
                "timestamp": pa.array(block.timestamps, pa.int64()),
            }
            table = pa.table(columns)
            stream = io.BytesIO()
            pq.write_table(table, stream, compression="snappy")
            self.bytes += sum(
                pq.read_metadata(io.BytesIO(stream.getvalue())).row_group(0).column(column).total_compressed_size
                for column in range(len(columns))
            )

    def added_to(self, estimate: InputEstimate, partitions: int) -> InputEstimate:
        """Return an estimate with the shares of partitions, the size of a record, and the times of the sample."""
        return evolve(
            estimate,
            placed=tuple(self.placed[number] for number in range(partitions)),
            record_bytes=self.bytes / max(1, self.rows),
            times=(min(self.times), max(self.times)) if self.times else None,
        )


@frozen
class _CountedRows:
    """The known or sampled number of rows of a file, and the number of bytes that contain these rows."""

    rows: int
    of_bytes: int


def estimate_files(
    paths: Sequence[str],
    topic: Topic[Any, Any],
    partitions: int,
    on_bad_row: OnBadRow = "fail",
    location: Location = BY_SUFFIX,
    needs_time: str = "",
) -> InputEstimate:
    """Return the size of files: from footers for Parquet files, otherwise from file sizes and a sample of rows.

    Raises:
        InputError: a file cannot be read, or a row of the sample is no valid record of the topic.
    """
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="streams-estimate") as pool:
        sizes = list(pool.map(_size, paths))
        of_rows = all((kind := location.kind_of(path)) is not None and kind.kind is Kind.PARQUET for path in paths)
        indexes = _spread(len(paths), _FOOTERS if of_rows else _SAMPLED_FILES)
        counted = list(pool.map(lambda index: _count_rows(source_of(paths[index], location), sizes[index]), indexes))
        sampled = _spread(len(paths), _SAMPLED_FILES)
        heads = list(pool.map(lambda index: _head(source_of(paths[index], location)), sampled))
    sample = _Sample()
    clock = VirtualClock(NO_TIMESTAMP)
    for head in heads:
        reader = open_input(topic, head, on_bad_row=on_bad_row, clock=clock, needs_time=needs_time)
        for batch in islice(reader(partitions, 0), 1 if reader.kind.is_whole else None):
            sample.take(batch)
    counted_bytes = sum(file.of_bytes for file in counted)
    counted_rows = sum(file.rows for file in counted)
    is_exact = of_rows and len(indexes) == len(paths)
    rows = counted_rows if is_exact else round(sum(sizes) * counted_rows / max(1, counted_bytes))
    sampled_text = f"a sample of {_count(sample.rows, 'row')}"
    if is_exact:
        basis = f"rows from footers; shares of partitions and times from {sampled_text}"
    elif of_rows:
        basis = f"estimated from {len(indexes):,} footers, sizes, and {sampled_text}"
    else:
        basis = f"estimated from sizes and {sampled_text}"
    calls = sum(_weights(paths, sizes, location))
    estimate = InputEstimate(_count(len(paths), "file"), basis, rows, is_exact, sum(sizes), len(paths), calls)
    estimate = sample.added_to(estimate, partitions)
    return evolve(estimate, has_row_times=not needs_time and bool(sample.rows) and not sample.times)


def estimate_table(
    log: InputEstimate,
    samples: Iterable[Any],
    topic: Topic[Any, Any],
    partitions: int,
    on_bad_row: OnBadRow = "fail",
    needs_time: str = "",
) -> InputEstimate:
    """Return the size of a table: what its ``log`` says, and a sample of its rows, given as Arrow batches.

    Raises:
        InputError: a row of the sample is no valid record of the topic.
    """
    sample = _Sample()
    for batch in samples:
        data = _as_file(plain_batch(batch.select(list(table_columns(topic, batch.schema, log.what)))))
        head = FileSource(f"{log.what}.parquet", partial(io.BytesIO, data))
        for blocks in open_input(topic, head, on_bad_row=on_bad_row, needs_time=needs_time)(partitions, 0):
            sample.take(blocks)
    return sample.added_to(
        evolve(log, basis=f"{log.basis}; the rest from a sample of {_count(sample.rows, 'row')}"), partitions
    )


def estimate_archive(archive: ArchivedTopic) -> InputEstimate:
    """Return the size of an archived topic, which is recorded in the manifest."""
    extents = [extent for ranges in archive.extents.values() for extent in ranges]
    times = [time for extent in extents for time in (extent.lowest_ms, extent.highest_ms) if time >= 0]
    files = sorted({extent.file for extent in extents})
    size = sum(Place(file).size() for file in files)
    return InputEstimate(
        f"archive of {_count(len(files), 'file')}",
        "from its manifest",
        archive.records,
        True,
        size,
        len(files),
        placed=tuple(
            sum(extent.rows for extent in archive.extents.get(number, ())) for number in range(archive.partitions)
        ),
        record_bytes=size / max(1, archive.records),
        times=(min(times), max(times)) if times else None,
    )


def _size(path: str) -> int:
    try:
        return Place(path).size()
    except ReplayError as error:
        raise InputError(str(error)) from error


def _spread(count: int, most: int) -> list[int]:
    """Return at most ``most`` evenly spaced indexes below ``count``, with the first and the last.

    >>> _spread(3, 5), _spread(10, 4)
    ([0, 1, 2], [0, 3, 6, 9])
    """
    if count <= most:
        return list(range(count))
    return sorted({index * (count - 1) // (most - 1) for index in range(most)})


def _count_rows(source: FileSource, size_bytes: int) -> _CountedRows:
    """Return the rows of a Parquet file, or of the first part of another file.

    Raises:
        InputError: the file cannot be read, or its kind is not known.
    """
    kind = input_kind(source)
    if kind.is_whole:
        return _CountedRows(count_rows(source, kind, WHOLE)[0], size_bytes)
    lines, read = _lines(source, kind)
    return _CountedRows(max(0, lines.count(b"\n") - (kind.kind is Kind.CSV)), read)


def _lines(source: FileSource, kind: FileKind) -> tuple[bytes, int]:
    """Return the complete lines at the start of a file, and the number of bytes of the file that contain them.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with source.opened() as stream:
            read = stream.read(_SAMPLED_BYTES)
            is_whole = not stream.read(1)
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error}") from error
    data = first_content(FileSource(source.name, lambda: io.BytesIO(read)), kind, is_whole=is_whole)
    if is_whole and not kind.compression:
        return data if data.endswith(b"\n") or not data else data + b"\n", len(read)
    lines = data[: data.rfind(b"\n") + 1]
    return lines, round(len(read) * len(lines) / max(1, len(data))) if lines else len(read)


def _head(source: FileSource) -> FileSource:
    """Return the first rows of a file as a file of the same kind in memory, or the file if it is read as a whole.

    Raises:
        InputError: the file cannot be read.
    """
    import pyarrow as pa

    kind = input_kind(source)
    if kind.is_whole and (kind.compression or kind.kind is not Kind.PARQUET):
        return source
    try:
        data = _first_rows(source) if kind.kind is Kind.PARQUET else _lines(source, kind)[0]
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{source}: cannot be read: {error}") from error
    return FileSource(source.name, lambda: io.BytesIO(data), kind=evolve(kind, compression=""))


def _as_file(rows: Any) -> bytes:
    """Return Arrow batches or a table as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = io.BytesIO()
    pq.write_table(pa.table(rows), target)
    return target.getvalue()


def _first_rows(source: FileSource) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with source.opened() as stream:
        # With a buffer, only the first pages of each column are read.
        file = pq.ParquetFile(stream, buffer_size=1 << 16, pre_buffer=False, coerce_int96_timestamp_unit="us")
        batch = next(iter(file.iter_batches(batch_size=_SAMPLED_ROWS)), None)
        return _as_file(pa.Table.from_batches([] if batch is None else [batch], file.schema_arrow))


def _weights(paths: Sequence[str], sizes: Sequence[int], location: Location) -> Iterator[int]:
    waiting = 0
    for path, size in zip(paths, sizes, strict=True):
        kind = location.kind_of(path)
        weight = size * (PACKED_FACTOR if kind is not None and kind.compression else 1)
        can_be_divided = kind is not None and not kind.compression and (kind.kind.is_lines or kind.kind is Kind.PARQUET)
        if waiting and waiting + weight > PART_BYTES:
            yield 1
            waiting = 0
        if can_be_divided and size > PART_BYTES:
            yield max(1, round(size / PART_BYTES))
        else:
            waiting += weight
    if waiting:
        yield 1


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
