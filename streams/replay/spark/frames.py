"""Reads the rows of DataFrames and tables into the partitions of a topic, by one Spark job.

Only the columns that the topic declares are read.  A first step converts rows to records: key, value, event time and
partition.  Spark's shuffle moves the records of each partition to one task, sorted by event time.  Records with equal
times are sorted by key and value, so that the order does not depend on how Spark divides the rows.  The task writes the
records to segment files.
"""

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import msgspec
from attrs import evolve

from streams.core.blocks.records import NO_TIMESTAMP, Block, Headers, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.errors import InputError
from streams.files import open_table
from streams.replay.errors import ReplayError
from streams.replay.history.inputs import Table
from streams.replay.history.since import Since
from streams.replay.history.tables import TablePlace
from streams.replay.run.through_spark import CountRows, LookAtTable, ReadTable
from streams.replay.spark.tasks import CallName, worker_task
from streams.replay.storage.segments import Extent
from streams.values import table_columns

_DAY_MS = 86_400_000
#: Runs a job, given its name and a function that creates its DataFrame, and returns the rows.
Collect = Callable[[str, Callable[[], Any]], list[Any]]

#: Records between the steps; ``headers`` are those of a record with any, in msgpack format.
_RECORDS = "partition int, time long, key binary, value binary, headers binary"
_NAMES = ("partition", "time", "key", "value", "headers")
_encode_headers = msgspec.msgpack.Encoder().encode
_decode_headers = msgspec.msgpack.Decoder(Headers).decode
#: The URI of a local file has one slash in a column, and three in a list.
_LOCAL = r"^file:/+"
#: The name of a partition column in the path of a file.
_FOLDER = re.compile("/([^/=]+)=")


def look_at_table(session: Any, call: LookAtTable, collect: Collect) -> TablePlace:
    """Check the columns of a table, and return the location of its rows.

    Raises:
        InputError: a column is missing or has another type, or there is no such table.
    """
    frame = _frame(session, call.table)
    schema = arrow_schema(frame)
    files = set(frame.inputFiles())
    try:
        table_columns(call.topic, schema, call.table.name)
    except InputError as error:
        in_folders = {name for file in files for name in _FOLDER.findall(file)}
        guessed = [name for name in in_folders if f"column {name!r} is int" in str(error)]
        if not guessed:
            raise
        raise InputError(
            f"{error}; but Spark has read {', '.join(sorted(guessed))} from names of folders, and no cast makes 007 of "
            "7: set spark.sql.sources.partitionColumnTypeInference.enabled=false, or read the folder with a schema"
        ) from error
    column = None if files else _file_column(session, call.table, frame)
    if column is not None:
        files = {row[0] for row in collect(f"files of {call.name}", lambda: frame.selectExpr(column).distinct())}
    return TablePlace(tuple(sorted(files)))


def _file_column(session: Any, table: Table, frame: Any) -> str | None:
    """Return a column with the path of each row's file, or None if Spark does not provide the paths."""
    if frame.inputFiles():
        return f"regexp_replace(_metadata.file_path, '{_LOCAL}', 'file:///')"
    if not isinstance(table.source, str) or not table.source.startswith("table:"):
        return None
    described = session.sql(f"DESCRIBE TABLE EXTENDED {table.source.removeprefix('table:')}").collect()
    providers = [str(row[1]).lower() for row in described if row[0] == "Provider"]
    return "_file" if providers == ["iceberg"] else None


def _frame(session: Any, table: Table) -> Any:
    """Return a table as a DataFrame.

    Raises:
        InputError: the table does not exist in Spark, or Spark cannot analyze it.
    """
    from pyspark.errors import PySparkException

    source = table.source
    try:
        if not isinstance(source, str):
            frame = source
        elif source.startswith("table:"):
            frame = session.table(source.removeprefix("table:"))
        else:
            # As a subquery: Spark executes commands such as DROP TABLE when it is given them, and rejects them here.
            frame = session.sql(f"SELECT * FROM (\n{source.removeprefix('sql:')}\n)")
        schema = frame.schema  # Connect analyzes the DataFrame here.
        if frame.isStreaming:
            raise InputError(
                f"{table.name}: is a streaming DataFrame, which has no end; process its micro-batches by "
                "streams.replay.MicroBatches, or give the table that it reads"
            )
        return frame if table.since is None else frame.where(_since(table.since, schema, table.name))
    except PySparkException as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        hint = "; give one query, without a semicolon: nothing was executed" if "PARSE_SYNTAX_ERROR" in reason else ""
        raise InputError(f"{table.name}: cannot be read by Spark: {reason}{hint}") from error


def _since(since: Since, schema: Any, name: str) -> str:
    """Return the lower bound of event times as an SQL condition, which Spark passes to the source of the rows.

    Raises:
        InputError: the column has another type, or does not exist.
    """
    kind: Any = schema
    for part in since.path:
        fields = {} if not hasattr(kind, "fields") else {member.name: member.dataType for member in kind.fields}
        if part not in fields:
            raise since.refused(name, None)
        kind = fields[part]
    column = ".".join(f"`{part.replace('`', '``')}`" for part in since.path)
    text = since.time.replace(tzinfo=None).isoformat(" ")
    least = {
        "timestamp": f"timestamp_millis({since.time_ms})",
        "timestamp_ntz": f"timestamp_ntz'{text}'",
        "date": f"date'{text[:10]}'",
        "bigint": str(since.time_ms),
    }.get(kind.simpleString())
    if least is None:
        raise since.refused(name, kind.simpleString())
    is_within_day = kind.simpleString() == "date" and since.time_ms % _DAY_MS
    return f"{column} {'>' if is_within_day else '>='} {least}"


def arrow_schema(frame: Any) -> Any:
    """Return the columns of a DataFrame as an Arrow schema, with times in UTC.

    A column of a type that Spark cannot convert, such as an interval of months, or of VARIANT, is one of Arrow's
    opaque type.
    """
    from inspect import signature

    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    # Older PySpark has no such argument: the time zone is UTC.
    options: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    fields = []
    for part in frame.schema:
        if "variant" in part.dataType.simpleString():
            # Arrow has the bytes of its parts, which nobody wants to read.
            fields.append(pa.field(part.name, pa.opaque(pa.null(), part.dataType.simpleString(), "Spark")))
            continue
        try:
            fields += list(to_arrow_schema(StructType([part]), **options))
        except PySparkException:
            fields.append(pa.field(part.name, pa.opaque(pa.null(), part.dataType.simpleString(), "Spark")))
    return pa.schema(fields)


def count_rows(session: Any, call: CountRows, collect: Collect) -> int | None:
    """Return how many rows of a table are in the given files, or None if Spark cannot determine it."""
    frame = _frame(session, call.table)

    def counted() -> Any:
        rows = _of_files(session, call.table, frame, call.files)
        return rows.groupBy().count()

    try:
        return int(collect(f"count {call.name}", counted)[0][0])
    except ReplayError as error:
        if call.files and "_metadata" in str(error.__cause__ or error):
            return None
        raise


def _of_files(session: Any, table: Table, frame: Any, files: Sequence[str]) -> Any:
    """Return the rows of the given files, or all rows if no files are given."""
    if not files:
        return frame
    paths = ", ".join(f"'{_quoted(file)}'" for file in files)
    return frame.where(f"{_file_column(session, table, frame)} IN ({paths})")


def read_table(session: Any, call: ReadTable, collect: Collect) -> list[tuple[TopicPartition, Extent]]:
    """Read the new rows of a table, and return its records as extents by partition.

    Raises:
        InputError: the columns are incompatible with the topic.
        ReplayError: Spark cannot read the table, or cannot determine its new rows.
    """
    frame = _frame(session, call.table)
    topic = call.application.source_topic(call.topic)
    columns = table_columns(topic, arrow_schema(frame), call.table.name)
    sent = evolve(call, table=Table(call.table.name))
    convert, write = (worker_task(CallName(call.name), step, sent) for step in (convert_rows, write_records))

    def made() -> Any:
        rows = _of_files(session, call.table, frame, call.files)
        rows = rows.select(*(f"`{name.replace('`', '``')}`" for name in columns))
        records = rows.mapInArrow(convert, _RECORDS)
        # Before PySpark 4.1, by hash: a task may then have several partitions, or none.
        by_id = getattr(records, "repartitionById", records.repartition)
        records = by_id(call.partitions, "partition")
        records = records.sortWithinPartitions("partition", "time", "key", "value", "headers")
        return records.mapInArrow(write, "report binary")

    try:
        answers = collect(f"read {call.name}", made)
    except ReplayError as error:
        if call.files and "_metadata" in str(error.__cause__ or error):
            raise ReplayError(
                f"{call.name}: its new rows are not known, since it is computed of the rows of files (an aggregate, a "
                "join); give the new rows alone with state_from (--state-from), or start in another folder"
            ) from error
        raise
    written = [item for row in answers for item in pickle.loads(row[0])]
    return sorted(written, key=lambda item: (item[0], item[1].first))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


# --- in workers -----------------------------------------------------------------------------


def convert_rows(call: ReadTable, batches: Iterator[Any]) -> Iterator[Any]:
    """Convert rows to records; yield Arrow batches with partition, timestamp, key, value and headers."""
    import pyarrow as pa

    topic = call.application.source_topic(call.topic)
    clock = VirtualClock(NO_TIMESTAMP)
    on_bad_row: Any = call.on_bad_row
    reader = open_table(topic, call.table.name, batches, on_bad_row=on_bad_row, clock=clock)
    types = (pa.int32(), pa.int64(), pa.binary(), pa.binary(), pa.binary())
    for records in reader.records(call.partitions):
        headers = [_encode_headers(own) if own else None for own in records.headers or [()] * len(records)]
        columns = (records.partitions, records.timestamps, records.keys, records.values, headers)
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, kind)
            for column, kind in zip(columns, types, strict=True)
        ]
        yield pa.record_batch(arrays, list(_NAMES))


def write_records(call: ReadTable, batches: Iterator[Any]) -> Iterator[Any]:
    """Write records, which are sorted by partition, to segment files, and yield a report."""
    import pyarrow as pa

    name = f"{call.folder}/table-{uuid4().hex[:12]}.parquet"
    with call.segments.writer(name) as writer:
        begun: set[int] = set()
        for batch in batches:
            number_of = batch.column(0)
            start = 0
            while start < batch.num_rows:
                number = number_of[start].as_py()
                size = _same(number_of, start)
                partition = TopicPartition(call.topic, number)
                if number not in begun:
                    begun.add(number)
                    writer.start_at("source", partition, call.starts.get(number, 0))
                writer.append("source", partition, _block(batch.slice(start, size)))
                start += size
    written = [(partition, extent) for _, partition, extent in writer.written]
    yield pa.record_batch([pa.array([pickle.dumps(written)], pa.binary())], ["report"])


def _same(numbers: Any, start: int) -> int:
    """Return the number of consecutive rows, from ``start`` on, that belong to the same partition."""
    import pyarrow.compute as pc

    if numbers[start] == numbers[len(numbers) - 1]:
        return len(numbers) - start
    return int(pc.index(pc.not_equal(numbers.slice(start), numbers[start]), True).as_py())


def _block(batch: Any) -> Block:
    headers: list[Headers] | None = None
    packed_headers = batch.column(4)
    if packed_headers.null_count < len(packed_headers):
        headers = [() if data is None else _decode_headers(data) for data in packed_headers.to_pylist()]
    keys, values, times = (batch.column(index).to_pylist() for index in (2, 3, 1))
    return Block(keys, values, times, headers, range(batch.num_rows))
