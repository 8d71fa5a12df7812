"""Writes output topics to tables of a Spark catalog.

The table must consist of Parquet files.  They are written like those of a folder (``run.commits``), with the same
guarantees; afterwards new partitions are added to the catalog.
"""

import re
from collections.abc import Sequence
from typing import Any

from streams.core.errors import InputError
from streams.files import PartitionColumn, wide_schema
from streams.lakes import check_table
from streams.replay.calls.columns import output_schema
from streams.replay.run.commits import Mode, Run, SliceWriter
from streams.replay.run.lake import FolderLog, lake_log
from streams.replay.run.session import ReplaySession
from streams.replay.spark.frames import arrow_schema
from streams.replay.storage.places import Place


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
    wide = wide_schema(output_schema(session.topology, topic), columns)
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
    declared = from_arrow_schema(wide_schema(schema, columns))
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
