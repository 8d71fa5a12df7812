"""What stands for history: paths, patterns, archives, files that only Spark reads; and what is wrong with some."""

import bz2
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streams import ConfigError, EmbeddedBroker, InputError, StreamsBuilder, Topic
from streams.files import WHOLE, OutputError, open_output
from streams.replay import Archive, Files, KafkaTopic, ReplayError, archive_topic, replay
from streams.replay.calls.work import Application
from streams.replay.history.ingest import IngestWork, Piece, run_ingest
from streams.replay.history.inputs import FileMark, input_of
from streams.replay.storage.places import NoFileSystemError, Place
from streams.replay.storage.segments import Segments

rows = Topic("rows", key=str, value=dict[str, Any], timestamp=lambda v: int(v["t"]), key_from=lambda v: v["k"] or None)
out = Topic("out", key=str, value=dict[str, Any])
LOCAL: dict[str, Any] = {"executor": "local", "processes": 1, "application_id": "app", "partitions": 2}


def topology(builder: StreamsBuilder) -> None:
    builder.stream(rows).to(out)


def lines(count: int, start: int = 0) -> str:
    """Rows with keys, every third one without; a blank line within."""
    found = [json.dumps({"t": n, "k": "" if n % 3 == 0 else f"k{n % 5}"}) for n in range(start, start + count)]
    return "\n".join([*found[:2], "", *found[2:], ""])


# --- what is given --------------------------------------------------------------------------


def test_paths_patterns_and_folders_name_files_in_their_order(tmp_path: Path):
    for name in ("b.jsonl", "a.jsonl", "sub/c.jsonl", "_SUCCESS", ".hidden.jsonl", "sub/_temporary/0.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(lines(1))

    def names(given: Any) -> list[str]:
        found = input_of(given)
        assert isinstance(found, Files)
        return [str(Path(path).relative_to(tmp_path)) for path in found.paths]

    assert names(tmp_path / "b.jsonl") == ["b.jsonl"]
    assert names(f"file://{tmp_path}/b.jsonl") == ["b.jsonl"]
    assert names(str(tmp_path / "*.jsonl")) == ["a.jsonl", "b.jsonl"]
    assert names(str(tmp_path / "**" / "*.jsonl"))[-1] != "b.jsonl"
    assert names(tmp_path) == ["a.jsonl", "b.jsonl", "sub/c.jsonl"]
    assert names([tmp_path / "sub", tmp_path / "a.jsonl"]) == ["sub/c.jsonl", "a.jsonl"]


def test_archive_is_known_by_its_folder(tmp_path: Path):
    with EmbeddedBroker() as broker:
        broker.create_topic("rows", 1)
        archive_topic(broker, "rows", tmp_path)

    assert input_of(tmp_path) == Archive(tmp_path)
    with pytest.raises(InputError, match="is an archive; give it alone"):
        input_of([tmp_path, tmp_path])


def test_topic_of_kafka_is_given_by_its_address():
    assert input_of("kafka://b1:9092,b2:9092/rows") == KafkaTopic("b1:9092,b2:9092", "rows")
    for wrong in ("kafka://b1:9092", "kafka:///rows"):
        with pytest.raises(InputError, match="give kafka://HOST:PORT/TOPIC"):
            input_of(wrong)


def test_file_systems_that_python_does_not_know_are_left_to_spark():
    assert input_of("wasbs://box@host/rows/*.jsonl") == Files(("wasbs://box@host/rows/*.jsonl",), through_spark=True)
    assert input_of(["dbfs:/a", "dbfs:/b"]) == Files(("dbfs:/a", "dbfs:/b"), through_spark=True, is_folder=True)
    with pytest.raises(InputError, match="can be read through Spark only; give the other paths with their schemes too"):
        input_of(["dbfs:/a", "b.jsonl"])


@pytest.mark.parametrize("given", [Files(("dbfs:/a.jsonl",), through_spark=True), KafkaTopic("127.0.0.1:1", "rows")])
def test_what_needs_spark_is_refused_without_it(given: Any):
    with pytest.raises(ReplayError, match="can be read through Spark only; give executor='spark'"):
        replay(topology, {rows: given}, **LOCAL)


# --- mistakes -------------------------------------------------------------------------------


def refused(given: Any) -> str:
    with pytest.raises((InputError, ReplayError)) as caught:
        replay(topology, {rows: given}, **LOCAL)
    return str(caught.value)


def test_missing_files_are_refused(tmp_path: Path):
    (tmp_path / "orders.jsonl").write_text(lines(1))

    assert "order.jsonl: there is no such file; did you mean" in refused(tmp_path / "order.jsonl")
    assert "no file matches this pattern" in refused(str(tmp_path / "*.csv"))
    (tmp_path / "empty").mkdir()
    assert "this folder has no files" in refused(tmp_path / "empty")
    assert "an input needs at least one file" in refused([])
    (tmp_path / "rows.avro").write_bytes(b"x")
    assert "rows.avro: its suffix is not of a known kind of file" in refused(tmp_path / "rows.avro")


def test_rows_of_another_schema_are_refused_with_their_place(tmp_path: Path):
    (tmp_path / "a.csv").write_text("t,user\n1,ann\n")
    pq.write_table(pa.table({"when": [1, 2]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_text("not Parquet")
    (tmp_path / "a.jsonl").write_text(lines(2) + "[1]\n")

    assert "a.csv:2: key_from of topic 'rows' failed: KeyError: 'k'" in refused(tmp_path / "a.csv")
    assert "a.parquet: row 1: key_from of topic 'rows' failed: KeyError" in refused(tmp_path / "a.parquet")
    assert "b.parquet: not a whole Parquet file" in refused(tmp_path / "b.parquet")
    assert "a.jsonl:4: the row does not match topic 'rows'" in refused(tmp_path / "a.jsonl")


def test_marks_tell_whether_a_file_has_grown_or_is_another(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text("1\n2\n")
    mark = FileMark.of(str(path))

    path.write_text("1\n2\n3\n")
    assert mark.is_in(str(path))
    path.write_text("1\n3\n3\n")
    assert not mark.is_in(str(path))
    path.write_text("1\n")
    assert not mark.is_in(str(path))


# --- through Spark --------------------------------------------------------------------------


@pytest.fixture
def cut_spark(any_spark: Any) -> Iterator[Any]:
    """A session that cuts files into stretches of a few lines."""
    for name, value in (("maxPartitionBytes", "60"), ("openCostInBytes", "0")):
        any_spark.conf.set(f"spark.sql.files.{name}", value)
    yield any_spark
    for name in ("maxPartitionBytes", "openCostInBytes"):
        any_spark.conf.unset(f"spark.sql.files.{name}")


def write_all_kinds(folder: Path) -> None:
    folder.mkdir()
    (folder / "a b%.jsonl").write_bytes(b"\xef\xbb\xbf" + lines(10).replace("\n", "\r\n").encode())
    (folder / "b.records.jsonl").write_text(
        "".join(
            f'{{"key": "k{n}", "value": {{"t": {n}}}, "timestamp": {n}, "headers": [["n", null]]}}\n' for n in range(9)
        )
    )
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(lines(5, 20).encode()))
    (folder / "d.csv").write_text('t,k,note\n1,a,"x\ny"\n2,,b\n3,c,d\n')
    (folder / "e.csv.gz").write_bytes(gzip.compress(b"t,k\n4,a\n5,\n"))
    pq.write_table(pa.table({"t": [7, 8, 9], "k": ["a", "", "b"]}), folder / "f.parquet")
    (folder / "g.jsonl").write_text("")
    (folder / "h.jsonl").write_text(lines(4, 30).rstrip())
    (folder / "i.json.zst").write_bytes(pa.compress(b'[{"t":40,"k":"a"},{"t":41,"k":"b"}]', "zstd", asbytes=True))
    (folder / "j=St.%20%C3%A4").mkdir()
    (folder / "j=St.%20%C3%A4" / "j.jsonl.bz2").write_bytes(bz2.compress(lines(3, 50).encode()))
    (folder / "j=St.%20%C3%A4" / "k.jsonl").write_text(lines(2, 60) + "\ufeff" + lines(2, 62) + "\ufeff\n")


def table(result: Any) -> list[Any]:
    return [(number, *row) for number, block in result.read(out) for row in block.rows()]


@pytest.mark.spark
def test_files_through_spark_are_the_same_records(tmp_path: Path, cut_spark: Any):
    """All kinds in one folder: every row in its partition and place, and with its origin."""
    write_all_kinds(tmp_path / "in")

    with replay(topology, {rows: tmp_path / "in"}, **LOCAL) as result:
        wanted, origins = table(result), {}
        for number, extents in result.session.inputs.histories["rows"].extents.items():
            for extent in extents:
                for offset in range(extent.first, extent.last + 1):
                    place = result.session.inputs.origin(_at(number), offset)
                    assert place is not None
                    origins[number, offset] = (Path(place[0]).name, place[1])
    given = Files((f"file://{tmp_path}/in",), through_spark=True, is_folder=True)
    with replay(topology, {rows: given}, **SPARK, spark=cut_spark) as result:
        assert table(result) == wanted
        for (number, offset), place in origins.items():
            found = result.session.inputs.origin(_at(number), offset)
            assert found is not None
            assert (Path(found[0]).name, found[1]) == place
        assert sum(len(found) for found in result.session.inputs.histories["rows"].extents.values()) > 2 * 8


@pytest.mark.spark
def test_csv_of_another_dialect_is_read_through_spark(tmp_path: Path, spark: Any):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.dat").write_text("t;k\n1;\xe4\n", encoding="latin-1")
    csv = "csv?delimiter=;&encoding=latin-1"
    given = Files((f"file://{tmp_path}/in",), through_spark=True, is_folder=True, file_format=csv)

    with replay(topology, {rows: given}, **SPARK, spark=spark) as result:
        assert [json.loads(row[3]) for row in table(result)] == [{"t": "1", "k": "\xe4"}]


def _at(number: int) -> Any:
    from streams.core.blocks.records import TopicPartition

    return TopicPartition("rows", number)


SPARK = LOCAL | {"executor": "spark"}
del SPARK["processes"]


@pytest.mark.spark
def test_files_that_came_are_read_through_spark_behind_those_known(tmp_path: Path, spark: Any):
    folder, options = tmp_path / "in", {**SPARK, "spark": spark, "directory": tmp_path / "replay", "slices": 2}
    folder.mkdir()
    given = Files((f"file://{folder}/*.jsonl",), through_spark=True)
    (folder / "a.jsonl").write_text(lines(5))
    replay(topology, {rows: given}, **options)
    (folder / "b.jsonl").write_text(lines(4, 5))

    with replay(topology, {rows: given}, resume=True, **options) as result:
        assert sorted(row[4] for row in table(result)) == list(range(9))
    (folder / "a.jsonl").write_text(lines(6))
    with pytest.raises(ReplayError, match=r"a\.jsonl was read before, but has changed or has other files in its place"):
        replay(topology, {rows: given}, resume=True, **options)


@pytest.mark.spark
def test_mistakes_in_files_through_spark_are_named_by_file_and_line(tmp_path: Path, cut_spark: Any):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text(lines(9) + "{never}\n" + lines(3) + "{nor}\n")
    (folder / "b.csv").write_text("t,user\n1,ann\n")

    def message(path: str) -> str:
        with pytest.raises((InputError, ReplayError)) as caught:
            replay(topology, {rows: Files((path,), through_spark=True)}, **SPARK, spark=cut_spark)
        return str(caught.value)

    assert f"{folder}/a.jsonl:11: not JSON" in message(f"file://{folder}/a.jsonl")
    assert f"{folder}/b.csv:2: key_from of topic 'rows' failed: KeyError" in message(f"file://{folder}/b.csv")
    assert "Path does not exist" in message(f"file://{folder}/c.csv")
    (folder / "empty").mkdir()
    assert "Spark finds no file there" in message(f"file://{folder}/empty")


@pytest.mark.spark
def test_tables_of_a_lake_are_found_through_spark(tmp_path: Path, spark: Any):
    table = lake(tmp_path / "warehouse" / "orders", "delta")
    iceberg = lake(tmp_path / "bills", "iceberg")

    def message(path: str) -> str:
        with pytest.raises(InputError) as caught:
            replay(topology, {rows: Files((path,), through_spark=True)}, **SPARK, spark=spark)
        return str(caught.value)

    for path in (f"file://{table}", f"file://{table}/*.parquet", f"file://{tmp_path}/warehouse"):
        assert f"{table}: is a table of Delta Lake" in message(path)
    assert f"{iceberg}: is a table of Apache Iceberg" in message(f"file://{iceberg}/data/part-0.parquet")


# --- tables of a lake ------------------------------------------------------------------------


def lake(folder: Path, kind: str) -> Path:
    """A table of a format: a file that counts, one that was removed, and what tells the format."""
    data = folder / "data" if kind == "iceberg" else folder
    data.mkdir(parents=True)
    for name in ("part-0", "part-1"):
        pq.write_table(pa.table({"t": [1, 2], "k": ["a", "b"]}), data / f"{name}.parquet")
    mark = {
        "delta": "_delta_log/00000000000000000000.json",
        "iceberg": "metadata/00001-abc.metadata.json",
        "hudi": ".hoodie/hoodie.properties",
    }[kind]
    (folder / mark).parent.mkdir()
    (folder / mark).write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("kind", "name"), [("delta", "Delta Lake"), ("iceberg", "Apache Iceberg"), ("hudi", "Apache Hudi")]
)
def test_tables_of_a_lake_are_refused_however_they_are_named(kind: str, name: str, tmp_path: Path):
    table = lake(tmp_path / "warehouse" / "orders", kind)
    own = next(table.rglob("part-0.parquet"))
    given: list[Any] = [
        table,
        f"file://{table}",
        tmp_path / "warehouse",
        own,
        [own],
        str(own.parent / "*.parquet"),
        str(tmp_path / "*" / "*" / "**" / "*.parquet"),
        Files((str(own),)),
    ]

    for one in given:
        said = refused(one)
        assert f"{table}: is a table of {name}" in said
        assert "its files contain rows that were deleted from the table" in said


def test_folder_called_metadata_is_no_table(tmp_path: Path):
    folder = tmp_path / "metadata"
    folder.mkdir()
    (folder / "rows.jsonl").write_text(lines(3))

    assert input_of(tmp_path) == Files((str(folder / "rows.jsonl"),), is_folder=True)


def test_nothing_is_written_into_a_table(tmp_path: Path):
    table = lake(tmp_path / "orders", "delta")
    (tmp_path / "rows.jsonl").write_text(lines(3))

    with pytest.raises(ReplayError, match=r"cannot be written to: .*is a table of Delta Lake"):
        replay(topology, {rows: tmp_path / "rows.jsonl"}, directory=table / "work", **LOCAL)
    with (
        replay(topology, {rows: tmp_path / "rows.jsonl"}, **LOCAL) as result,
        pytest.raises(ReplayError, match=r"cannot be written to: .*is a table of Delta Lake"),
    ):
        result.save(table)
    with EmbeddedBroker() as broker, pytest.raises(ReplayError, match="is a table of Delta Lake"):
        broker.create_topic("rows", 1)
        archive_topic(broker, "rows", table / "archive")
    with pytest.raises(OutputError, match="is a table of Delta Lake"):
        open_output(out, table / "out.parquet")


@pytest.mark.parametrize(
    "option",
    ["startingTimestamp", "startingOffsetsByTimestamp", "endingtimestamp", "endingOffsets", "minPartitions", "assign"],
)
def test_options_of_spark_that_say_what_is_read_are_refused(option: str):
    with pytest.raises(ConfigError, match=f"KafkaTopic 'rows': option '{option}' is not allowed: .*; leave it out"):
        KafkaTopic("127.0.0.1:1", "rows", {"kafka.security.protocol": "SSL", option: "1"})


# --- what cannot be an input, and other file systems ------------------------------------------


class DataFrame:
    """Stands for what has columns to iterate over."""

    def __iter__(self) -> Iterator[str]:
        return iter(["t", "k"])


@pytest.mark.parametrize("given", [DataFrame(), 7, None, [1, 2], {"a": 1}])
def test_other_values_are_refused(given: Any):
    assert "or an object with Arrow data; not a" in refused(given)


def test_a_missing_file_may_be_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    for name in ("lake.orders", "main.lake.orders"):
        assert f"if it is a table of Spark's catalog, give table:{name}" in refused(name)


def test_remote_file_that_is_missing_is_told_and_so_is_a_pattern():
    assert refused("mock://bucket/rows.jsonl") == "mock://bucket/rows.jsonl: there is no such file or folder"
    assert "patterns are for files of this machine; give the folder" in refused("mock://bucket/rows/*.jsonl")
    with pytest.raises(ReplayError, match=r"mock://bucket/rows\.jsonl: there is no such file"):
        Place("mock://bucket/rows.jsonl").size()


def test_what_a_file_system_says_is_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    with pytest.raises(NoFileSystemError) as caught:
        Place("hdfs://127.0.0.1:1/replay").exists()
    assert "libhdfs of a Hadoop installation is needed, by the driver and every worker" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert refused("abfs://box/rows").startswith("abfs://box/rows: cannot be reached: ")


def test_relative_inputs_are_those_of_the_driver_wherever_a_call_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As executors of a cluster work in folders of their own."""
    for name in ("driver", "executor"):
        (tmp_path / name).mkdir()
    (tmp_path / "driver" / "rows.jsonl").write_text(lines(5))
    monkeypatch.chdir(tmp_path / "driver")
    application = Application.of(topology, {"application_id": "app"}, {"rows": 1, "out": 1})
    work = IngestWork(
        application, "rows", (Piece("rows.jsonl", WHOLE),), 1, Segments(Place(str(tmp_path / "work"))), "inputs"
    )
    monkeypatch.chdir(tmp_path / "executor")

    assert run_ingest(work).records_in == 5
    (tmp_path / "driver" / "rows.jsonl").unlink()
    assert "the driver sees this file, but this process does not" in (run_ingest(work).failure or "")


def test_pattern_that_no_input_matches_is_told_and_holds_nothing_up(tmp_path: Path, caplog: Any) -> None:
    words, copies = Topic("words", key=str, value=str), Topic("copies", key=str, value=str)

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).to(copies)
        builder.stream(re.compile("more-.*"), key=str, value=str).group_by(lambda _, word: word).count("counts")

    file = tmp_path / "words.records.jsonl"
    file.write_text('{"key": "a", "value": "x", "timestamp": 1}\n')

    result = replay(topology, {words: str(file)}, executor="local", processes=1, application_id="app")

    assert result.outputs[copies].column("value").to_pylist() == ["x"]
    assert "no topic matches the pattern 'more-.*'" in caplog.text
