"""Reads inputs that only Spark can reach, and writes them to segment files in its tasks.

Spark splits text files into blocks, which are identified by their first byte; the rows of blocks are
counted before they are read.  Other kinds of files are read as a whole, one after the other.  Each partition
of a Kafka topic becomes one partition of the job, with the records ordered by offset.
"""

import io
import json
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import uuid4

from attrs import evolve

from streams.core.blocks.records import Block, Headers, TopicPartition
from streams.core.clock import SystemClock
from streams.core.errors import InputError
from streams.files import FORMATS, FileKind, FileSource, LakeTable, Location, Part, kind_of
from streams.replay.calls.failures import packed
from streams.replay.errors import ReplayError
from streams.replay.history.ingest import IngestReport, IngestWork, Piece, run_ingest
from streams.replay.run.through_spark import (
    CountRows,
    FoundFile,
    ListFiles,
    LookAtTable,
    ReadFiles,
    ReadTable,
    ReadTopic,
    SparkCall,
    SparkReport,
)
from streams.replay.spark.frames import Collect, count_rows, look_at_table, read_table
from streams.replay.spark.tasks import CallName, worker_task
from streams.replay.storage.segments import Extent

#: The start of a block of a file: its name in the ``file_path`` column, and the first byte.
Stretch = tuple[str, int]

#: A partition number that no topic has.
_NO_PARTITION = 1 << 30


def run_through_spark(session: Any, call: SparkCall, collect: Collect) -> SparkReport:
    """Execute a call that needs a Spark session.

    Raises:
        InputError: a file cannot be read.
        ReplayError: Spark cannot read the input, or a file changed while it was read.
    """
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    if isinstance(call, ListFiles):
        result: dict[str, Any] = {"listed": _listed(session, call, collect)}
    elif isinstance(call, ReadFiles):
        result = {"parts": tuple(_read_files(session, call, collect))}
    elif isinstance(call, LookAtTable):
        result = {"table": look_at_table(session, call, collect)}
    elif isinstance(call, CountRows):
        result = {"count": count_rows(session, call, collect)}
    elif isinstance(call, ReadTable):
        result = {"partitions": call.partitions, "written": tuple(read_table(session, call, collect))}
    else:
        count, written = _read_topic(session, call, collect)
        result = {"partitions": count, "written": tuple(written)}
    return SparkReport(call.name, (), {}, clock.monotonic_ms() - started_ms, 0, 0, **result)


# --- files --------------------------------------------------------------------------------


def _listed(session: Any, call: ListFiles, collect: Collect) -> tuple[FoundFile, ...]:
    # SQL text for all expressions: it means the same in a classic session and in Connect.
    def frame() -> Any:
        reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
        columns = ("path", "_metadata.file_path", "length", "unix_millis(modificationTime)")
        return reader.load(list(call.paths)).selectExpr(*columns)

    for pattern in dict.fromkeys(pattern for path in call.paths for pattern in _mark_patterns(path)):
        _refuse_table(session, pattern, collect)
    return tuple(FoundFile(*row) for row in sorted(collect("look for files", frame)))


def _mark_patterns(path: str) -> Iterator[str]:
    """Yield patterns of the marker files of lakehouse tables, for the folder, its parents and two levels below.

    Spark skips names that begin with a dot or underscore unless a pattern names them.
    """
    scheme, separator, rest = path.partition("://")
    authority, _, rest = rest.partition("/") if separator else ("", "", path)
    folders = [f"{scheme}{separator}{authority}", *rest.strip("/").split("/")] if separator else path.split("/")
    is_file = kind_of(path) is not None
    folders = folders[:-1] if is_file else folders
    marks = "{" + ",".join(kind.mark for kind in FORMATS) + "}"
    around = [folders[:count] for count in range(2 if separator else 1, len(folders) + 1)]
    below = [] if is_file else [[*folders, "*"], [*folders, "*", "*"]]
    for folder in [*around, *below]:
        yield "/".join([*folder, marks])


def _refuse_table(session: Any, pattern: str, collect: Collect) -> None:
    """Check that a path neither is within a lakehouse table nor contains one.

    Raises:
        InputError: a marker file of a lakehouse table was found.
    """

    def frame() -> Any:
        reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
        return reader.load(pattern).selectExpr("path").limit(1)

    try:
        rows = collect("look for tables", frame)
    except ReplayError as error:
        if "PATH_NOT_FOUND" in _text(error):
            return
        raise
    for (path,) in rows:
        for kind in FORMATS:
            mark = kind.mark.partition("/")[0]
            if f"/{mark}/" in path:
                raise LakeTable(path.partition(f"/{mark}/")[0], kind).refused_as_input()


def _read_files(session: Any, call: ReadFiles, collect: Collect) -> Iterator[IngestReport]:
    """Read files; yield one report per block of each file, in order, with the path of the file as its name."""
    location = call.work.location
    by_lines = [file for file in call.files if _has_lines(location.kind_of(file.path))]
    whole = [file for file in call.files if file not in by_lines]
    counts: dict[Stretch, tuple[int, int]] = {}
    if by_lines:
        counts |= _line_counts(session, by_lines, location, collect)
    if whole:
        counting = {(file.uri, 0): _work(call.work, file, Part(), counts_only=True) for file in whole}
        for stretch, report in _whole_files(session, whole, counting, collect).items():
            if report.failure is not None:
                raise InputError(report.failure)
            counts[stretch] = report.counts[0]
    works = _placed(call, counts)
    reports: dict[Stretch, IngestReport] = {}
    if by_lines:
        reports |= _lines(session, by_lines, works, collect)
    if whole:
        reports |= _whole_files(session, whole, works, collect)
    for stretch, work in works.items():
        (piece,) = work.pieces
        rows = piece.part.first_row + counts[stretch][0]
        result = reports.get(stretch)
        if result is None or (result.failure is None and result.counts[0][0] != rows):
            raise ReplayError(f"{piece.file}: has changed while it was read; read it when it is complete")
        yield evolve(result, name=piece.file)


def _placed(call: ReadFiles, counts: Mapping[Stretch, tuple[int, int]]) -> dict[Stretch, IngestWork]:
    """Return the ingestion work for each non-empty block, by file and position."""
    works: dict[Stretch, IngestWork] = {}
    before = call.work.rows_before
    for file in call.files:
        rows = lines = 0
        for stretch in sorted(place for place in counts if place[0] == file.uri):
            part = Part(stretch[1], first_row=rows, first_line=lines + 1)
            if counts[stretch][0]:
                works[stretch] = evolve(_work(call.work, file, part), number=len(works), rows_before=before)
            rows = rows + counts[stretch][0]
            lines = lines + counts[stretch][1]
        before += rows
    return works


def _work(template: IngestWork, file: FoundFile, part: Part, *, counts_only: bool = False) -> IngestWork:
    return evolve(template, pieces=(Piece(file.path, part),), counts_only=counts_only)


def _has_lines(kind: FileKind | None) -> bool:
    # Spark decompresses files with the suffix of gzip for certain.
    return kind is not None and kind.kind.is_lines and kind.compression in ("", ".gz")


def _line_frame(session: Any, files: Sequence[FoundFile]) -> Any:
    # Split at line feeds, as our readers do; Spark would also split at carriage returns.
    lines = session.read.option("lineSep", "\n").text([file.path for file in files])
    return lines.selectExpr("value", "_metadata.file_path", "_metadata.file_block_start")


def _line_counts(
    session: Any, files: Sequence[FoundFile], location: Location, collect: Collect
) -> dict[Stretch, tuple[int, int]]:
    texts = {file.uri for file in files if (kind := location.kind_of(file.path)) is not None and kind.kind.is_text}

    def frame() -> Any:
        lines = _line_frame(session, files)
        marked = lines.selectExpr(
            "file_path", "file_block_start", r"int(NOT value RLIKE r'^\x{FEFF}?\s*$') AS row", "1 AS line"
        )
        counted = marked.groupBy("file_path", "file_block_start").agg({"row": "sum", "line": "sum"})
        return counted.selectExpr("file_path", "file_block_start", "`sum(row)`", "`sum(line)`")

    return {
        (uri, start): (lines if uri in texts else rows, lines)
        for uri, start, rows, lines in collect("count rows", frame)
    }


def _lines(
    session: Any, files: Sequence[FoundFile], works: Mapping[Stretch, IngestWork], collect: Collect
) -> dict[Stretch, IngestReport]:
    task = worker_task(CallName("read lines"), read_stretches, _works_of(files, works))
    rows = collect("read lines", lambda: _line_frame(session, files).mapInArrow(task, _ANSWERS))
    return {(row[0], row[1]): pickle.loads(row[2]) for row in rows}


def _whole_files(
    session: Any, files: Sequence[FoundFile], works: Mapping[Stretch, IngestWork], collect: Collect
) -> dict[Stretch, IngestReport]:
    task = worker_task(CallName("read files"), read_contents, _works_of(files, works))

    def frame() -> Any:
        # A row is a file; a batch ends with the row that reaches 64 MiB.
        loaded = session.read.format("binaryFile").load([file.path for file in files])
        return loaded.selectExpr("content", "_metadata.file_path").mapInArrow(task, _ANSWERS)

    return {(row[0], row[1]): pickle.loads(row[2]) for row in collect("read files", frame)}


def _works_of(files: Sequence[FoundFile], works: Mapping[Stretch, IngestWork]) -> dict[Stretch, IngestWork]:
    own = {file.uri for file in files}
    return {stretch: work for stretch, work in works.items() if stretch[0] in own}


# --- topics -------------------------------------------------------------------------------


def _read_topic(session: Any, call: ReadTopic, collect: Collect) -> tuple[int, Sequence[tuple[TopicPartition, Extent]]]:
    """Read a topic; return its partition count, and its new records as extents by partition."""
    starts = dict(call.starts) or dict.fromkeys(range(_partition_count(session, call, collect)), -1)
    task = worker_task(CallName(call.name), read_records, call)

    def frame() -> Any:
        columns = ("partition", "offset", "key", "value", "unix_millis(timestamp)", "headers")
        return _topic_frame(session, call, starts).selectExpr(*columns).mapInArrow(task, "report binary")

    try:
        rows = collect(f"read {call.name}", frame)
    except ReplayError as error:
        raise _explained(call, error) from error
    written = [item for row in rows for item in pickle.loads(row[0])]
    return len(starts), sorted(written, key=lambda item: (item[0], item[1].first))


def _topic_frame(session: Any, call: ReadTopic, starts: Mapping[int, int]) -> Any:
    """Return the records of a topic from the given offsets (-1 = earliest), which must include all partitions."""
    topic = call.topic
    # Spark's number for the earliest offset is -2.
    offsets = {str(number): -2 if offset < 0 else offset for number, offset in starts.items()}
    options = {
        "kafka.isolation.level": "read_committed",
        **topic.options,
        "kafka.bootstrap.servers": topic.bootstrap_servers,
        "subscribe": topic.topic,
        "includeHeaders": "true",
        # Deleted records are an error, not a gap.
        "failOnDataLoss": "true",
        "startingOffsets": json.dumps({topic.topic: offsets}),
        # The end offsets when the job is planned.
        "endingOffsets": "latest",
    }
    return session.read.format("kafka").options(**options).load()


def _partition_count(session: Any, call: ReadTopic, collect: Collect) -> int:
    """Return the partition count of a topic, without reading records.

    Spark lists the partitions only in an error message, so a partition that does not exist is requested.
    """
    try:
        collect(f"look at {call.name}", lambda: _topic_frame(session, call, {_NO_PARTITION: -1}))
    except ReplayError as error:
        assigned = re.search(r"Assigned: Set\(([^)]*)\)", _text(error))
        if assigned is None:
            raise _explained(call, error) from error
        return len(assigned[1].split(","))
    raise ReplayError(f"{call.name}: its partition count is unknown; give KafkaTopic(..., partitions=)")


def _explained(call: ReadTopic, error: ReplayError) -> ReplayError:
    """Return an error with a readable message for a Spark error about a topic."""
    text = _text(error)
    if "Failed to find data source: kafka" in text or "Please deploy the application as per" in text:
        return ReplayError(
            f"{call.name}: this Spark has no source for Kafka; start it with the package "
            "org.apache.spark:spark-sql-kafka-0-10 that matches its version (see the guide to replay)"
        )
    if "UnknownTopicOrPartition" in text:
        return ReplayError(f"{call.name}: there is no such topic")
    if assigned := re.search(r"Assigned: Set\(([^)]*)\)", text):
        return ReplayError(
            f"{call.name}: has {len(assigned[1].split(','))} partitions, not {len(call.starts)}; declare as many, or, "
            "if it had fewer when it was read before, replay from the start: its keys have moved"
        )
    if "data may have been lost" in text or "greater than the resolved end offset" in text:
        return ReplayError(f"{call.name}: the next records to read were deleted, a gap: {_lost(text)}")
    return ReplayError(f"{call.name}: {error}")


def _text(error: ReplayError) -> str:
    return f"{error.__cause__ or error}"


def _lost(text: str) -> str:
    match = re.search(r"Could not read records in offset [^\n]*|The resolved start offset [^\n]*", text)
    return "" if match is None else match[0]


# --- in workers -----------------------------------------------------------------------------

_ANSWERS = "uri string, start long, report binary"


def read_stretches(works: Mapping[Stretch, IngestWork], batches: Iterator[Any]) -> Iterator[Any]:
    """Ingest blocks of text lines, and yield a report for each; the rows of a block must be consecutive."""
    for stretch, group in groupby(_runs(batches), itemgetter(0)):
        work = works.get(stretch)
        if work is not None:
            name = work.pieces[0].file
            kind = work.location.kind_of(name)
            source = FileSource(name, _not_by_bytes, (lines for _, lines in group), kind)
            yield _answer(stretch, work, source)


def _runs(batches: Iterator[Any]) -> Iterator[tuple[Stretch, list[bytes]]]:
    """Yield each block of a text file with its lines; in ``batches``, the lines of a block are consecutive."""
    import pyarrow as pa

    for batch in batches:
        lines = batch.column(0).cast(pa.binary()).to_pylist()
        places = list(zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True))
        start = 0
        for stretch, members in groupby(places):
            end = start + sum(1 for _ in members)
            yield stretch, lines[start:end]
            start = end


def read_contents(works: Mapping[Stretch, IngestWork], batches: Iterator[Any]) -> Iterator[Any]:
    """Ingest whole files, and yield a report for each."""
    for batch in batches:
        for content, uri in zip(batch.column(0), batch.column(1).to_pylist(), strict=True):
            work = works.get((uri, 0))
            if work is not None:
                name = work.pieces[0].file
                source = FileSource(name, partial(io.BytesIO, content.as_buffer()), kind=work.location.kind_of(name))
                yield _answer((uri, 0), work, source)


def _answer(stretch: Stretch, work: IngestWork, source: FileSource) -> Any:
    import pyarrow as pa

    try:
        report = pickle.dumps(run_ingest(work, lambda _: source))
    except Exception as error:
        raise packed(work, error) from error
    columns = [pa.array([stretch[0]]), pa.array([stretch[1]], pa.int64()), pa.array([report], pa.binary())]
    return pa.record_batch(columns, ["uri", "start", "report"])


def read_records(call: ReadTopic, batches: Iterator[Any]) -> Iterator[Any]:
    """Write the records of one partition of a topic to segment files, and yield a report."""
    import pyarrow as pa

    name = f"{call.folder}/kafka-{uuid4().hex[:12]}.parquet"
    with call.segments.writer(name) as writer:
        for batch in batches:
            for number, block in _blocks(batch):
                writer.append("source", TopicPartition(call.topic.topic, number), block, keeps_offsets=True)
    written = [(partition, extent) for _, partition, extent in writer.written]
    yield pa.record_batch([pa.array([pickle.dumps(written)], pa.binary())], ["report"])


def _blocks(batch: Any) -> Iterator[tuple[int, Block]]:
    numbers, offsets, keys, values, times, headers = (column.to_pylist() for column in batch.columns)
    named: list[Headers] | None = None
    if any(headers):
        named = [tuple((header["key"], header["value"]) for header in own or ()) for own in headers]
    start = 0
    for number, members in groupby(numbers):
        end = start + sum(1 for _ in members)
        block = Block(keys, values, times, named, offsets)
        yield number, block if end - start == len(numbers) else block.slice(start, end)
        start = end


def _not_by_bytes() -> Any:
    raise OSError("its lines come from Spark")
