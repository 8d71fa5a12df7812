"""Outputs in tables of Spark's catalog, and topologies within Structured Streaming."""

import json
from operator import itemgetter
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import frozen

from streams import StreamsBuilder, Topic
from streams.core.errors import InputError
from streams.replay import MicroBatches, ReplayResult, replay
from tests.replay.test_tables import copies, days, replayed, rows_of, sales, topology, write_sales


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return write_sales(tmp_path / "sales.jsonl")


def on_spark(spark: Any, history: Path, **given: Any) -> ReplayResult:
    return replay(topology, {sales: history}, spark=spark, application_id="shop", partitions=2, **given)


@pytest.mark.spark
@pytest.mark.parametrize("partition_by", [(), ("day", "value.product")], ids=["plain", "partitioned"])
def test_table_has_the_rows_of_the_output_once(any_spark: Any, history: Path, partition_by: tuple[str, ...]) -> None:
    name = f"default.copies_{len(partition_by)}_{any_spark.version.replace('.', '_')}"
    any_spark.sql(f"DROP TABLE IF EXISTS {name}")
    with on_spark(any_spark, history, slices=2) as result:
        assert result.write(copies, f"table:{name}", partition_by=partition_by) == 200
        assert result.write(copies, f"table:{name}", partition_by=partition_by) == 0
        names = result.table(copies).schema.names
        expected = sorted(map(repr, result.table(copies).to_spark().collect()))
    table = any_spark.table(name)

    assert sorted(map(repr, table.select(*names).collect())) == expected
    if partition_by:
        assert table.where("day = date'2026-01-02'").count() == 24
        assert {row[0] for row in table.select("product").distinct().collect()} == {f"p/{n}" for n in range(5)}
    any_spark.sql(f"DROP TABLE {name}")


@frozen
class Note:
    """A class with columns of JSON, which Spark has as text."""

    number: int
    any: Any
    either: int | str
    items: list


notes = Topic("notes", key=str, value=Note)
copied = Topic("copied", key=str, value=Note)


def copies_notes(builder: StreamsBuilder) -> None:
    builder.stream(notes).to(copied)


@pytest.mark.spark
def test_columns_of_json_are_text_in_frames_and_tables_of_spark(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "notes.records.jsonl"
    path.write_text('{"key":"a","value":{"number":1,"any":{"b":[1]},"either":"x","items":[1,"y"]},"timestamp":0}\n')
    columns = (1, '{"b":[1]}', '"x"', '[1,"y"]')
    spark.sql("DROP TABLE IF EXISTS default.copied_notes")

    with replay(copies_notes, {notes: path}, spark=spark, application_id="notes") as result:
        assert tuple(result.outputs[copied].collect()[0].value) == columns
        assert tuple(result.table(copied).to_spark().collect()[0].value) == columns
        assert result.write(copied, "table:default.copied_notes") == 1

    assert tuple(spark.table("default.copied_notes").collect()[0].value) == columns
    spark.sql("DROP TABLE default.copied_notes")


@pytest.mark.spark
def test_table_of_another_format_or_with_other_partitions_or_columns_is_refused(spark: Any, history: Path) -> None:
    spark.sql("DROP TABLE IF EXISTS default.in_orc")
    spark.sql("CREATE TABLE default.in_orc (key STRING) USING orc")
    with on_spark(spark, history) as result:
        with pytest.raises(InputError, match=r"table default\.in_orc: has the format orc"):
            result.write(copies, "table:default.in_orc")
        result.write(days, "table:default.by_day", partition_by="day")
        with pytest.raises(InputError, match="is partitioned by day, partition_by is nothing"):
            result.write(days, "table:default.by_day")
        with pytest.raises(InputError, match=r"table nowhere.by_day: cannot be created by Spark: \[SCHEMA_NOT_FOUND\]"):
            result.write(days, "table:nowhere.by_day")
        with pytest.raises(InputError, match=r"has column window_end, which .*column value is int64, but struct<"):
            result.write(copies, "table:default.by_day", partition_by="day")
    assert spark.table("default.by_day").count() == 200
    spark.sql("DROP TABLE default.in_orc")
    spark.sql("DROP TABLE default.by_day")


class Shop(TypedDict):
    """A row of a folder that is partitioned by region."""

    at: int
    region: str


@pytest.mark.spark
def test_partition_columns_that_spark_has_guessed_are_read_with_its_setting(spark: Any, tmp_path: Path) -> None:
    """Spark makes the number 7 of a folder region=007, of which no cast makes the text again."""
    shop = Topic("shop", value=Shop, timestamp=itemgetter("at"))

    def regions() -> list[str]:
        with replay(copy, {shop: spark.read.parquet(str(tmp_path))}, spark=spark, application_id="a") as result:
            return [row.value["region"] for row in result.rows("regions")]

    def copy(builder: StreamsBuilder) -> None:
        builder.stream(shop).to(Topic("regions", value=Shop))

    pq.write_to_dataset(pa.table({"at": [1], "region": ["007"]}), tmp_path, partition_cols=["region"])
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    with pytest.raises(InputError, match=f"column 'region' is int32.* read region from names of folders.* {setting}="):
        regions()
    spark.conf.set(setting, "false")
    try:
        assert regions() == ["007"]
    finally:
        spark.conf.unset(setting)


@pytest.mark.spark
def test_micro_batches_give_what_one_replay_gives(spark: Any, tmp_path: Path) -> None:
    """The query is stopped and started again, and the last batch is repeated, before and after its outputs."""
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    seen: list[int] = []

    def written(result: ReplayResult) -> None:
        result.write(copies, out)
        seen.append(result.records["copies"])

    bridge = MicroBatches(
        topology, sales, tmp_path / "work", written, {"application_id": "shop", "executor": "local", "partitions": 2}
    )
    write_sales(source / "1.json", 60)
    _run(spark, source, tmp_path / "checkpoint", bridge)
    write_sales(source / "2.json", 40, first=60)

    def dying(frame: Any, batch_id: int) -> None:
        bridge(frame, batch_id)
        raise RuntimeError("killed after its outputs")

    with pytest.raises(Exception, match="killed after its outputs"):
        _run(spark, source, tmp_path / "checkpoint", dying)
    _run(spark, source, tmp_path / "checkpoint", bridge)

    assert seen == [60, 100, 100]
    import pyarrow.dataset as ds

    whole = tmp_path / "whole.jsonl"
    whole.write_text((source / "1.json").read_text() + (source / "2.json").read_text())
    with replayed(whole) as result:
        expected = rows_of(result.table(copies).to_arrow())
    assert rows_of(ds.dataset(out, format="parquet").to_table()) == expected


@pytest.mark.spark
def test_rows_of_a_batch_that_cannot_be_read_are_not_kept(spark: Any, tmp_path: Path) -> None:
    """The query is mended and repeats the batch."""
    seen: list[int] = []
    given = {"application_id": "shop", "executor": "local", "partitions": 2}
    bridge = MicroBatches(
        topology, sales, tmp_path / "work", lambda result: seen.append(result.records["copies"]), given
    )
    rows = spark.read.json(str(write_sales(tmp_path / "sales.json", 20)))
    bridge(rows.limit(10), 0)

    with pytest.raises(InputError, match=r"column 'price' .* is missing; rename 'prise'"):
        bridge(rows.withColumnRenamed("price", "prise"), 1)
    bridge(rows, 1)

    assert seen == [10, 30]


def _run(spark: Any, source: Path, checkpoint: Path, function: Any) -> None:
    schema = "product string, price string, at timestamp, counts struct<n:bigint>"
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(source))
    query = (
        frame.coalesce(1)
        .writeStream.foreachBatch(function)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_options_that_batches_set_are_refused(tmp_path: Path) -> None:
    from streams import ConfigError

    with pytest.raises(ConfigError, match="option 'resume' of a replay in micro-batches"):
        MicroBatches(topology, sales, tmp_path, json.dumps, {"resume": True})  # type: ignore[arg-type]
