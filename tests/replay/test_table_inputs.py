"""The rows of a DataFrame in any order give what a live run gives that reads them in order of time."""

import logging
from pathlib import Path
from typing import Any

import pytest

from streams import StreamsBuilder, Topic
from streams.core.errors import InputError
from streams.replay import Plan, ReplayError, Table, replay
from tests.replay.table_cases import APPLICATION, PARTITIONS, hours, live, orders, replayed, rows, table, topology


def run(given: Any, spark: Any, **options: Any) -> Any:
    options = {"application_id": APPLICATION, "partitions": PARTITIONS, "plan": Plan(store="in_memory")} | options
    return replay(topology, {orders: given}, spark=spark, **options)


@pytest.mark.spark
def test_dataframe_gives_what_a_live_run_of_its_rows_in_order_gives(any_spark: Any, tmp_path: Path) -> None:
    frame = any_spark.createDataFrame(table(rows())).repartition(3)
    with run(frame, any_spark) as result:
        assert replayed(result) == live(rows(), tmp_path)
        assert not result.dropped


@pytest.mark.spark
def test_tables_and_queries_of_the_catalog_are_inputs(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(table(rows()))
    frame.write.partitionBy("product").mode("overwrite").saveAsTable("shop_orders")
    try:
        with run("table:shop_orders", spark) as result:
            assert replayed(result) == live(rows(), tmp_path)
        with run("sql:SELECT * FROM shop_orders WHERE number < 100", spark) as result:
            assert replayed(result) == live(rows(100), tmp_path)
    finally:
        spark.sql("DROP TABLE shop_orders")


@pytest.mark.spark
def test_outputs_of_a_replay_are_records_for_another(spark: Any) -> None:
    again = Topic("again", key=hours.key_serde, value=int)

    def doubling(builder: StreamsBuilder) -> None:
        builder.stream(hours).map_values(lambda count: count * 2).to(again)

    options: dict[str, Any] = {"application_id": APPLICATION, "partitions": PARTITIONS, "plan": Plan(store="in_memory")}
    with run(spark.createDataFrame(table(rows(100))), spark) as first:
        given = first.outputs[hours]
        with replay(doubling, {hours: given}, spark=spark, **options) as second:
            found, expected = ([tuple(row) for row in frame.collect()] for frame in (second.outputs[again], given))
            position, value = given.columns.index("offset"), given.columns.index("value")

    # Records of one time have no order in a table, so only their offsets may differ.
    assert sorted((*row[:value], row[value] // 2, *row[value + 1 : position]) for row in found) == sorted(
        row[:position] for row in expected
    )


@pytest.mark.spark
def test_added_files_of_a_table_are_its_new_rows(spark: Any, tmp_path: Path) -> None:
    data, work = str(tmp_path / "a table"), tmp_path / "work"
    spark.createDataFrame(table(rows(300))).repartition(2).write.parquet(data)
    with run(spark.read.parquet(data).where("number >= 0"), spark, directory=work) as result:
        assert replayed(result) == live(rows(300), tmp_path)
    spark.createDataFrame(table(rows(300, 300))).coalesce(1).write.mode("append").parquet(data)
    with run(spark.read.parquet(data), spark, directory=work, resume=True) as result:
        assert result.records["totals"] == 600
        assert replayed(result) == live([*rows(300), *rows(300, 300)], tmp_path)
    with run(spark.read.parquet(data), spark, directory=work, resume=True) as result:
        assert result.records["totals"] == 600
    spark.createDataFrame(table(rows(300))).write.mode("overwrite").parquet(data)
    with pytest.raises(ReplayError, match=r"a file of DataFrame, was read before, and is no longer part of it"):
        run(spark.read.parquet(data), spark, directory=work, resume=True)


@pytest.mark.spark
def test_resume_with_another_condition_on_files_that_were_read_is_refused(spark: Any, tmp_path: Path) -> None:
    data, work = str(tmp_path / "table"), tmp_path / "work"
    spark.createDataFrame(table(rows(100))).coalesce(1).write.parquet(data)
    run(spark.read.parquet(data).where("number < 30"), spark, directory=work).close()
    with pytest.raises(ReplayError, match=r"30 rows of DataFrame were read before, and the same files have 60 now"):
        run(spark.read.parquet(data).where("number < 60"), spark, directory=work, resume=True)
    spark.createDataFrame(table(rows(100, 100))).coalesce(1).write.mode("append").parquet(data)
    with pytest.raises(ReplayError, match=r"30 rows of DataFrame were read before, and the same files have 100 now"):
        run(spark.read.parquet(data).where("number < 150"), spark, directory=work, resume=True)


@pytest.mark.spark
def test_a_streaming_dataframe_and_a_column_are_refused(spark: Any) -> None:
    with pytest.raises(InputError, match="is a streaming DataFrame, which has no end"):
        run(spark.readStream.format("rate").load(), spark)
    with pytest.raises(InputError, match=r"an input is a file.*; not a pyspark"):
        run(spark.range(1).id, spark)


@pytest.mark.spark
def test_new_rows_that_are_older_than_the_history_are_told(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, work = str(tmp_path / "table"), tmp_path / "work"
    spark.createDataFrame(table(rows(100, 100))).coalesce(1).write.parquet(data)
    run(spark.read.parquet(data), spark, directory=work).close()
    spark.createDataFrame(table(rows(100))).coalesce(1).write.mode("append").parquet(data)
    with caplog.at_level(logging.WARNING):
        run(spark.read.parquet(data), spark, directory=work, resume=True).close()
    assert "topic 'orders': 100 rows are older than rows that were read before, which reach" in caplog.text


@pytest.mark.spark
def test_a_table_follows_a_snapshot_of_its_first_files(spark: Any, tmp_path: Path) -> None:
    data = str(tmp_path / "table")
    spark.createDataFrame(table(rows(300))).write.parquet(data)
    with run(spark.read.parquet(data), spark) as result:
        saved = result.save(tmp_path / "saved")
    new = spark.createDataFrame(table(rows(300, 300)))
    new.write.mode("append").parquet(data)
    expected = live([*rows(300), *rows(300, 300)], tmp_path)
    for given in (new, spark.read.parquet(data)):
        with run(given, spark, state_from=saved.root.uri) as result:
            assert [found[-1][2:] for found in replayed(result)] == [found[-1][2:] for found in expected]
            assert result.records["totals"] == 300


@pytest.mark.spark
def test_resume_is_refused_where_new_rows_are_not_known(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(table(rows(20)))
    run(frame, spark, directory=tmp_path / "plain").close()
    with pytest.raises(ReplayError, match=r"which of its rows are new is not known: .*state_from"):
        run(frame, spark, directory=tmp_path / "plain", resume=True)
    run(Table(frame, "7"), spark, directory=tmp_path / "version").close()
    with run(Table(frame, "7"), spark, directory=tmp_path / "version", resume=True) as result:
        assert result.records["totals"] == 20
    with pytest.raises(ReplayError, match="is now version 8"):
        run(Table(frame, "8"), spark, directory=tmp_path / "version", resume=True)


@pytest.mark.spark
def test_columns_that_do_not_fit_are_an_error_before_a_task_starts(any_spark: Any, tmp_path: Path) -> None:
    frame = any_spark.createDataFrame(table(rows(20))).withColumnRenamed("price", "prise")
    with pytest.raises(InputError, match=r"column 'price' .Decimal. is missing; rename 'prise'"):
        run(frame, any_spark, directory=tmp_path / "work")
    assert not (tmp_path / "work" / "progress").exists()
    with pytest.raises(InputError, match=r"table:nix: cannot be read by Spark: .TABLE_OR_VIEW_NOT_FOUND"):
        run("table:nix", any_spark)


@pytest.mark.spark
def test_columns_that_no_field_declares_may_have_types_that_arrow_lacks(any_spark: Any) -> None:
    frame = any_spark.createDataFrame(table(rows(20)))
    with run(frame.selectExpr("*", "interval '1' year AS age"), any_spark) as result:
        assert result.records["totals"] == 20
    with pytest.raises(InputError, match=r"column 'product' is .*interval year.* but is declared as str; cast it"):
        run(frame.drop("product").selectExpr("*", "interval '1' year AS product"), any_spark)


@pytest.mark.spark
def test_a_bad_row_is_shown_or_dropped_and_counted(spark: Any) -> None:
    bad = [*rows(20), {**rows(1)[0], "number": 99, "product": None}]
    with pytest.raises(InputError, match=r'DataFrame: row \{"number":"99".*: the row does not match topic .orders.'):
        run(spark.createDataFrame(table(bad)), spark)
    with run(spark.createDataFrame(table(bad)), spark, deserialization_handler="continue") as result:
        assert result.records["totals"] == 20
        assert sum(result.dropped.values()) == 1


@pytest.mark.spark
def test_a_dataframe_needs_the_spark_executor(spark: Any) -> None:
    with pytest.raises(ReplayError, match="give executor='spark'"):
        run(spark.createDataFrame(table(rows(1))), None, executor="local")


@pytest.mark.spark
@pytest.mark.parametrize(
    "text",
    ["DROP TABLE kept", "SELECT * FROM kept; DROP TABLE kept", "INSERT INTO kept VALUES (1)", "SELECT * FROM kept;"],
)
def test_text_that_is_no_query_is_refused_and_not_executed(spark: Any, text: str) -> None:
    spark.sql("CREATE TABLE IF NOT EXISTS kept (id INT) USING parquet")
    try:
        with pytest.raises(InputError, match="give one query, without a semicolon: nothing was executed"):
            run(f"sql:{text}", spark)
        assert spark.table("kept").count() == 0
    finally:
        spark.sql("DROP TABLE kept")
