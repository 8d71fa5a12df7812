"""Replay on Spark gives what a bounded live run gives, record for record, in classic sessions and in Connect."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams import StreamsBuilder, Topic
from streams.replay import Plan, ReplayError, ReplayProgress, ReplayResult, replay
from streams.replay.spark.output_tables import task_frame
from tests.replay.spark_cases import APPLICATION, PARTITIONS, Rows, live, orders, per_item, replayed, write_orders
from tests.replay.spark_cases import topology as both
from tests.waiting import until

words = Topic("words", key=str, value=str, timestamp=lambda _: 0, key_from=lambda word: word)
lengths = Topic("lengths", key=str, value=int)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_orders(tmp_path_factory.mktemp("history") / "orders.jsonl")


@pytest.fixture(scope="module")
def expected(history: Path) -> tuple[Rows, int]:
    found = live(history)
    assert found[1] > 0, "some records are late"
    assert all(len(rows) > 100 for rows in found[0].values())
    assert len({row[0] for row in found[0]["per-item"]}) > 1
    return found


@pytest.fixture(scope="module")
def told() -> list[ReplayProgress]:
    return []


@pytest.fixture(scope="module")
def one_pass(any_spark: Any, history: Path, told: list[ReplayProgress]) -> Iterator[ReplayResult]:
    """The whole history in one replay, in each kind of session, with a call for each task."""
    del told[:]
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("streams.replay.calls.schedule.TASK_CALL_ROWS", 0)
        result = replay(
            both,
            {orders: history},
            spark=any_spark,
            partitions=PARTITIONS,
            application_id=APPLICATION,
            plan=Plan(progress=told.append),
        )
    with result:
        yield result


@pytest.mark.case
def test_replay_in_one_pass_equals_the_live_run(one_pass: ReplayResult, expected: tuple[Rows, int]) -> None:
    assert replayed(one_pass) == expected


@pytest.mark.spark
def test_outputs_are_dataframes_of_the_topics_types(one_pass: ReplayResult, expected: tuple[Rows, int]) -> None:
    frame = one_pass.outputs[per_item]
    rows = [(*row[:3], *row[4:]) for row in frame.collect()]
    local = [(row.key, row.value, row.timestamp_ms) for row in one_pass.rows(per_item)]

    assert frame.dtypes == [
        ("key", "string"),
        ("value", "bigint"),
        ("timestamp", "bigint"),
        ("headers", "array<struct<name:string,value:binary>>"),
        ("partition", "int"),
        ("offset", "bigint"),
    ]
    # As the topic has them: partition by partition, by offset.
    assert [row[:3] for row in rows] == local
    assert [row[3:] for row in rows] == [(row[0], row[1]) for row in expected[0]["per-item"]]
    # Every action reads again, and gives the same.
    assert frame.where("value > 3").count() == sum(value > 3 for _, value, _ in local)


@pytest.mark.spark
def test_progress_is_told_as_tasks_end(one_pass: ReplayResult, told: list[ReplayProgress]) -> None:
    done = [progress.tasks_done for progress in told if progress.tasks == PARTITIONS]

    assert {1, 2, 3} <= set(done)
    assert told[-1].records == one_pass.records_in + told[-1].records_total  # Reading the file counts too.


@pytest.mark.spark
def test_replay_in_three_slices_equals_the_live_run(spark: Any, history: Path, expected: tuple[Rows, int]) -> None:
    with replay(
        both, {orders: history}, spark=spark, partitions=PARTITIONS, application_id=APPLICATION, slices=3
    ) as result:
        assert result.slices == 3
        assert replayed(result) == expected


@pytest.mark.spark
def test_replay_in_ten_slices_equals_the_live_run(spark: Any, history: Path, expected: tuple[Rows, int]) -> None:
    """State stays in memory: what is tried here is how it travels."""
    with replay(
        both,
        {orders: history},
        spark=spark,
        partitions=PARTITIONS,
        application_id=APPLICATION,
        slices=10,
        plan=Plan(store="in_memory"),
    ) as result:
        assert result.slices == 10
        assert replayed(result) == expected


@pytest.mark.spark
def test_output_without_records_is_an_empty_dataframe(any_spark: Any, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a\nb\n")

    with replay(_nothing, {words: tmp_path / "words.txt"}, spark=any_spark) as result:
        frame = result.outputs[lengths]

        assert frame.columns == ["key", "value", "timestamp", "headers", "partition", "offset"]
        assert frame.collect() == []


@pytest.mark.spark
def test_each_call_is_one_task_whatever_the_session_is_set_to(any_spark: Any) -> None:
    """However small the tasks are, adaptive execution joins none."""

    def ids(batches: Any) -> Any:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            size = batch.num_rows
            numbers = batch.column(0).cast(pa.int32())
            yield pa.record_batch([numbers, pa.array([context.partitionId()] * size, pa.int32())], ["a", "b"])

    before = any_spark.conf.get("spark.sql.adaptive.enabled")
    any_spark.conf.set("spark.sql.adaptive.enabled", "true")
    found = task_frame(any_spark, 7).mapInArrow(ids, "a int, b int").collect()
    any_spark.conf.set("spark.sql.adaptive.enabled", before)

    assert sorted(map(tuple, found)) == [(number, number) for number in range(7)]


@pytest.mark.spark
def test_settings_of_the_users_session_stay_during_a_replay(spark: Any, tmp_path: Path) -> None:
    """At each report of progress, so also while jobs run."""
    before = dict(spark.conf.getAll)
    (tmp_path / "words.txt").write_text("a\nbb\n")
    seen: list[bool] = []

    def look(progress: ReplayProgress) -> None:
        seen.append(dict(spark.conf.getAll) == before)

    with replay(_lengths, {words: tmp_path / "words.txt"}, spark=spark, plan=Plan(progress=look)):
        pass

    assert seen
    assert all(seen)


@pytest.mark.spark
def test_jobs_are_named_by_application_slice_and_topics(spark: Any, history: Path, tmp_path: Path) -> None:
    with replay(both, {orders: history}, spark=spark, partitions=2, application_id="shop", slices=2) as result:
        result.write(per_item, tmp_path / "out")

    def names() -> set[str]:
        jvm = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
        found = [jvm.apply(number).description() for number in range(jvm.size())]
        return {str(name.get()) for name in found if name.isDefined()}

    # Spark notes its jobs in a thread of its own.
    kinds = {"shop: reading orders", "shop: writing per-item"}
    until(lambda: kinds <= {name.rpartition(",")[0] for name in names()}, seen=names)
    until(lambda: any(name.startswith("shop: slices 1 to 2 of 3, per-item, pairs") for name in names()), seen=names)


@pytest.mark.spark
def test_table_form_and_written_folder_are_the_same_on_spark(one_pass: ReplayResult, tmp_path: Path) -> None:
    frame = one_pass.table(per_item).to_spark()
    written = one_pass.write(per_item, tmp_path / "out", partition_by="day")

    assert dict(frame.dtypes)["timestamp"] == "timestamp"
    assert frame.count() == written == one_pass.records["per-item"]
    read = frame.sparkSession.read.parquet(str(tmp_path / "out"))
    names = frame.columns
    assert sorted(map(repr, read.select(*names).collect())) == sorted(map(repr, frame.collect()))


@pytest.mark.spark
def test_outputs_of_a_closed_replay_on_spark_say_how_to_keep_them(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a\nbb\n")
    with replay(_lengths, {words: tmp_path / "words.txt"}, spark=spark) as result:
        frame = result.outputs[lengths]
        assert frame.count() == 2

    with pytest.raises(ReplayError, match="or a directory"):
        result.outputs[lengths]
    with pytest.raises(Exception, match="or a directory"):
        frame.collect()
    with replay(_lengths, {words: tmp_path / "words.txt"}, spark=spark, directory=tmp_path / "kept") as result:
        frame = result.outputs[lengths]
    assert frame.count() == 2


@pytest.mark.spark
def test_workers_are_used_again_and_keep_nothing_of_a_task(spark: Any, tmp_path: Path) -> None:
    """Two topologies of one name after each other, in fewer processes than there are tasks."""
    (tmp_path / "words.txt").write_text("a\nbb\nccc\ndddd\n")
    processes: set[int] = set()
    for _ in range(3):
        with replay(_lengths, {words: tmp_path / "words.txt"}, spark=spark, application_id="app") as result:
            assert [row.value for row in result.rows(lengths)] == [1, 2, 3, 4]
        with replay(
            _processes, {words: tmp_path / "words.txt"}, spark=spark, application_id="app", partitions=4
        ) as result:
            processes |= {row.value for row in result.rows(lengths)}

    # Spark ends one that was idle for a minute.
    assert len(processes) < 3 * 4
    assert os.getpid() not in processes


def _nothing(builder: StreamsBuilder) -> None:
    builder.stream(words).filter(lambda _, word: False).map_values(len).to(lengths)


def _lengths(builder: StreamsBuilder) -> None:
    builder.stream(words).map_values(len).to(lengths)


def _processes(builder: StreamsBuilder) -> None:
    builder.stream(words).map_values(lambda word: os.getpid()).to(lengths)
