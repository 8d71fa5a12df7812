"""Output topics as DataFrames, and in tables of a Spark catalog.

Each worker reads one partition of an output topic.  Every action on the DataFrame of a topic reads the files of
the replay again; nothing else is recomputed.

A table of the catalog must consist of Parquet files, or be a Delta table.  Files are written like those of a folder
(``run.commits``), with the same guarantees; afterwards new partitions are added to the catalog.
"""

import pickle
import re
from collections.abc import Sequence
from typing import Any

from streams.core.errors import InputError
from streams.lakes import check_table
from streams.replay.calls.outputs import OutputPart
from streams.replay.calls.work import output_schema, output_topic
from streams.replay.run.commits import Mode, Run, SliceWriter
from streams.replay.run.lake import FolderLog, lake_log
from streams.replay.run.session import ReplaySession
from streams.replay.spark.frames import arrow_schema
from streams.replay.spark.tasks import worker_task
from streams.replay.spark.worker import Items, read_parts
from streams.replay.storage.places import Place
from streams.values import ArrowRecords, PartitionColumn, stored_schema, wide_schema

#: The folder, below that of the replay, of the partitions that DataFrames read.
_FRAMES = "frames"


def task_frame(session: Any, count: int) -> Any:
    """Return a DataFrame with the numbers from 0 to ``count`` - 1, one in each partition."""
    return session.range(0, count, 1, count)


def output_frame(
    spark: Any, session: ReplaySession, name: str, parts: Sequence[OutputPart], *, as_table: bool = False
) -> Any:
    """Return partitions of an output topic as a DataFrame, with the columns of records or of a data lake table.

    Each partition of the topic is one partition of the DataFrame, with the rows ordered by offset.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(ArrowRecords(output_topic(session.topology, name), as_table, has_json=False).schema)
    if not parts:
        return spark.createDataFrame([], schema)
    assert session.schedule is not None
    items = Items.write(session.root.child(_FRAMES), list(map(pickle.dumps, parts)))
    # The user's own jobs read the frame, so errors are shown as they are.
    reading = worker_task(None, read_parts, items, session.segments, session.schedule.application, name, as_table)
    return task_frame(spark, len(items)).mapInArrow(reading, schema)


def write_table(
    spark: Any,
    session: ReplaySession,
    topic: str,
    name: str,
    columns: Sequence[PartitionColumn],
    mode: Mode,
    run: Run,
) -> int:
    """Write an output topic to a table, which is created if it does not exist; return the number of records written.

    Raises:
        InputError: Spark cannot create the table, or it does not consist of Parquet files, or has other columns or
            partition columns.
        ReplayError: the table cannot be written.
    """
    from pyspark.errors import PySparkException

    try:
        if not spark.catalog.tableExists(name):
            _create(spark, session, topic, name, columns)
    except PySparkException as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(f"table {name}: cannot be created by Spark: {reason}") from error
    place, partitions, provider = _described(spark, name)
    if provider == "delta":
        log = lake_log(f"delta:{place}", session, topic, columns)
        return SliceWriter(session, topic, log, mode).write(run)
    # Spark has no type of JSON: it has text in its place.
    wide = stored_schema(wide_schema(output_schema(session.topology, topic), columns))
    names = [column.name for column in columns]
    check_table(f"table {name}", arrow_schema(spark.table(name)), wide, partitions, names)
    folder = FolderLog.opened(place, session, topic, columns, mode, is_own=False)
    count = SliceWriter(session, topic, folder, mode).write(run)
    if partitions:
        spark.sql(f"MSCK REPAIR TABLE {name}")
    spark.catalog.refreshTable(name)
    return count


def _create(spark: Any, session: ReplaySession, topic: str, name: str, columns: Sequence[PartitionColumn]) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = output_schema(session.topology, topic)
    declared = from_arrow_schema(stored_schema(wide_schema(schema, columns)))
    writer = spark.createDataFrame([], declared).write.format("parquet")
    if columns:
        writer = writer.partitionBy(*(column.name for column in columns))
    writer.saveAsTable(name)


def _described(spark: Any, name: str) -> tuple[Place, list[str], str]:
    """Return the folder of a table, its partition columns, and its format.

    Raises:
        InputError: the table has neither Parquet files nor a Delta log.
    """
    rows = [(row[0], row[1]) for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()]
    properties = dict(rows)
    provider = str(properties.get("Provider", "")).lower()
    if provider == "iceberg":
        raise InputError(
            f"table {name}: has the format iceberg; give iceberg:[CATALOG.]NAMESPACE.TABLE, with the catalog as it is "
            "configured for pyiceberg, or use result.table(topic).to_spark() and the writer of the format"
        )
    if provider not in ("parquet", "delta") or "Location" not in properties:
        raise InputError(
            f"table {name}: has the format {provider or 'unknown'}; tables of Parquet files, Delta Lake and Iceberg "
            "are written exactly once; for others use result.table(topic).to_spark() and the writer of the format"
        )
    partitions: list[str] = []
    if ("# Partition Information", "") in rows:
        for column, _ in rows[rows.index(("# Partition Information", "")) + 2 :]:
            if not column or column.startswith("#"):
                break
            partitions.append(column)
    return Place(re.sub(r"^file:/+", "/", str(properties["Location"]))), partitions, provider
