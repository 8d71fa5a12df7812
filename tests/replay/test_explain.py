"""What a replay would read, run and write, compared with what it does."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streams import ConfigError, EmbeddedBroker, InputError, StreamsBuilder, Topic
from streams.replay import Archive, Plan, archive_topic, explain, replay

DAY = 86_400_000
rows = Topic("rows", key=str, value=dict[str, Any], timestamp=lambda v: int(v["t"]), key_from=lambda v: v["k"])
totals = Topic("totals", key=str, value=int)
LOCAL: dict[str, Any] = {"executor": "local", "processes": 1, "application_id": "app", "partitions": 4}


def topology(builder: StreamsBuilder) -> None:
    again = builder.stream(rows).select_key(lambda _, row: str(row["n"] % 50)).repartition("by-number")
    again.map_values(lambda row: row["n"]).group_by_key().reduce(lambda a, b: a + b, name="sums").to_stream().to(totals)


def never(builder: StreamsBuilder) -> None:
    builder.stream(rows).map_values(pytest.fail).to(totals)


def history(folder: Path, *, files: int = 4, of_file: int = 500, ending: str = ".jsonl", key: str = "") -> Path:
    """Files with a row every two hours, and names of different lengths."""
    folder.mkdir()
    for number in range(files):
        found = [
            {"k": key or f"key-{n % 97}", "n": n, "t": n * DAY // 12, "text": "word " * (n % 7)}
            for n in range(number * of_file, (number + 1) * of_file)
        ]
        path = folder / f"part-{number:03}{ending}"
        if ending == ".parquet":
            pq.write_table(pa.Table.from_pylist(found), path)
        elif ending == ".csv":
            path.write_text("k,n,t,text\n" + "".join(",".join(map(str, row.values())) + "\n" for row in found))
        else:
            text = "".join(json.dumps(row) + "\n" for row in found).encode()
            codec = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
            path.write_bytes(pa.compress(text, codec, asbytes=True) if codec else text)
    return folder


@pytest.mark.case
@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".json.zst", ".parquet"])
def test_numbers_are_those_of_the_replay(tmp_path: Path, ending: str):
    path = history(tmp_path / "rows", ending=ending)

    found = explain(topology, {rows: path}, slices="90d", **LOCAL)
    with replay(topology, {rows: path}, slices="90d", directory=tmp_path / "work", **LOCAL) as result:
        given = found.inputs["rows"]
        assert given.rows is not None
        assert abs(given.rows - 2_000) <= (0 if ending == ".parquet" else 40)
        assert given.is_exact == (ending == ".parquet")
        assert found.slices == result.slices
        assert given.times == (0, 1_999 * DAY // 12)
        assert len(given.placed) == 4
        extents = result.session.inputs.histories["rows"].extents
        assert list(given.placed) == [sum(extent.rows for extent in extents[number]) for number in range(4)]
    text = str(found)
    assert "replay of app: " in text
    assert "reads by-number-repartition, 4 partitions: shuffle by key, 4 lanes each" in text
    assert "calls: 1 that read inputs, 1 that sort them, at most, 16 that run tasks, at most" in text


def test_only_the_first_rows_of_large_files_are_read(tmp_path: Path):
    path = history(tmp_path / "rows", files=1, of_file=20_000)

    given = explain(never, {rows: path}, **LOCAL).inputs["rows"]

    assert given.rows is not None
    assert 19_000 < given.rows < 21_000
    assert sum(given.placed) < 5_000
    assert "estimated from sizes and a sample of" in given.basis


def test_bytes_of_input_records_are_near_to_those_that_are_written(tmp_path: Path):
    path = history(tmp_path / "rows", files=2, of_file=10_000)

    found = explain(topology, {rows: path}, **LOCAL)
    with replay(topology, {rows: path}, directory=tmp_path / "work", order="as_given", **LOCAL):
        written = sum(file.stat().st_size for file in (tmp_path / "work" / "inputs").rglob("*.parquet"))

    assert written / 2 < found.written["records of inputs"] < written * 2


def test_nothing_runs_and_nothing_is_written(tmp_path: Path):
    explain(never, {rows: history(tmp_path / "rows")}, directory=tmp_path / "work", **LOCAL)

    assert not (tmp_path / "work").exists()


def test_numbers_of_an_archive_are_exact(tmp_path: Path):
    with EmbeddedBroker() as broker:
        from streams import Producer

        broker.create_topic("rows", 3)
        with Producer(broker) as producer:
            for n in range(60):
                producer.send(rows, {"k": f"{n % 5}", "n": n, "t": n})
        archive_topic(broker, "rows", tmp_path / "archive")

    found = explain(topology, {rows: Archive(tmp_path / "archive")}, **LOCAL | {"partitions": None})

    given = found.inputs["rows"]
    assert (given.rows, given.is_exact, sum(given.placed), len(given.placed)) == (60, True, 60, 3)
    assert given.calls == 0
    assert "from its manifest" in str(found)


def test_uneven_partitions_and_missing_memory_are_told(tmp_path: Path):
    path = history(tmp_path / "rows", key="the same")

    found = explain(topology, {rows: path}, **LOCAL | {"processes": 1_000_000})

    assert [problem.partition(":")[0] for problem in found.problems] == [
        f"partition {found.inputs['rows'].highest_share[0]} of topic 'rows' has 100% of the records",
        found.problems[1].partition(":")[0],
    ]
    assert found.problems[1].startswith("1000000 processes need about")
    assert "  warning: partition" in str(found)


def test_resumed_replay_reads_what_is_new(tmp_path: Path):
    path = history(tmp_path / "rows")
    with replay(topology, {rows: path}, directory=tmp_path / "work", **LOCAL):
        pass
    (history(tmp_path / "more", files=5) / "part-004.jsonl").rename(path / "part-004.jsonl")

    found = explain(topology, {rows: path}, directory=tmp_path / "work", resume=True, **LOCAL)

    assert (found.inputs["rows"].files, found.inputs["rows"].rows) == (1, 500)


def test_a_repair_is_not_explained(tmp_path: Path):
    plan = Plan(directory=tmp_path / "work", resume=True, repair=True)
    with pytest.raises(ConfigError, match="explain makes no plan of a repair"):
        explain(never, {rows: history(tmp_path / "in")}, plan, **LOCAL)


def test_number_of_slices(tmp_path: Path):
    path = history(tmp_path / "rows")
    for slices, count in [(None, 1), (7, 7), (1_500, 2), ("1000", 1_000), (timedelta(days=30), 6), ("1d", 167)]:
        assert explain(topology, {rows: path}, slices=slices, **LOCAL).slices == count
    with pytest.raises(ConfigError, match="give a span of event time"):
        explain(topology, {rows: path}, slices="soon", **LOCAL)


def test_bad_row_of_the_sample_is_told(tmp_path: Path):
    path = history(tmp_path / "rows")
    (path / "part-002.jsonl").write_text('{"k": "a", "n": 1}\n')

    with pytest.raises(InputError, match=r"part-002.jsonl:1: .*'t'"):
        explain(topology, {rows: path}, **LOCAL)


def test_tables_without_spark(tmp_path: Path):
    table = pa.table({"k": ["a", "b"], "n": [1, 2], "t": [0, DAY]})

    assert explain(topology, {rows: table}, **LOCAL).inputs["rows"].rows == 2
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    found = explain(topology, {rows: stream}, **LOCAL)
    assert found.inputs["rows"].rows is None
    assert "an unknown number of rows" in str(found)
    assert stream.read_all().num_rows == 2


@pytest.mark.spark
@pytest.mark.slow
def test_tables_of_spark_are_counted(spark: Any):
    frame = spark.range(120).selectExpr("cast(id % 3 as string) k", "id n", "id * 1000 t")

    found = explain(topology, {rows: frame}, spark=spark, application_id="app", partitions=2)

    assert found.rows == 120
    json.dumps(found.to_json())
