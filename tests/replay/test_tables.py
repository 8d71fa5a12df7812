"""Outputs and stores of a replay are tables, and are written to folders by tasks, each slice exactly once."""

import errno
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import polars
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from attrs import frozen
from deltalake import DeltaTable

from streams import CountWindows, StreamsBuilder, TimeWindows, Topic, time_windowed
from streams.connect import ParquetManifest, ParquetSink, SinkBlock
from streams.core.errors import InputError
from streams.core.errors import SerializationError as NotSerializable
from streams.core.serdes.serdes import serde_for
from streams.dsl import TopologySource
from streams.replay import ReplayError, ReplayResult, replay
from streams.replay.run import writing
from streams.replay.run.lake import FolderLog
from streams.replay.run.local import LocalExecutor
from streams.replay.storage.places import Place
from streams.values import arrow_table

DAY = timedelta(days=1)
START = datetime(2026, 1, 1, tzinfo=UTC)


@frozen
class Sale:
    product: str
    price: Decimal
    at: datetime
    counts: dict[str, int]


sales = Topic("sales", key=str, value=Sale, timestamp=lambda sale: sale.at, key_from=lambda sale: sale.product)
copies = Topic("copies", key=str, value=Sale)
days = Topic("days", key=time_windowed(str, DAY), value=int)


def topology(builder: StreamsBuilder) -> None:
    source = builder.stream(sales)
    source.to(copies)
    grouped = source.select_key(lambda _, sale: sale.product).repartition("by-product").group_by_key()
    grouped.windowed_by(TimeWindows.of(DAY)).count("daily").to_stream().to(days)


def write_sales(path: Path, count: int = 200, first: int = 0) -> Path:
    with path.open("a") as file:
        for number in range(first, first + count):
            at = START + timedelta(hours=number)
            row = {"product": f"p/{number % 5}", "price": f"{number}.25", "at": at.isoformat(), "counts": {"n": number}}
            file.write(json.dumps(row) + "\n")
    return path


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return write_sales(tmp_path / "sales.jsonl")


def replayed(history: Path | str, **given: Any) -> ReplayResult:
    return replay(topology, {sales: history}, executor="local", application_id="shop", partitions=2, **given)


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    names = [name for name in table.schema.names if name in ("key", "window_start", "value", "timestamp")]
    return sorted((row["partition"], row["offset"], *map(repr, map(row.get, names))) for row in table.to_pylist())


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.glob("**/*.parquet")}


def listed_in(folder: Path) -> set[str]:
    """Return the files that the entries of the manifest have."""
    return {file for path in folder.glob("_manifest/**/*.json") for file in json.loads(path.read_text())["files"]}


def rows_in(folder: Path) -> list[tuple[Any, ...]]:
    """Return the rows that a reader of Parquet finds in a folder."""
    return rows_of(ds.dataset(folder, format="parquet").to_table())


def test_table_has_types_of_a_lake(history: Path) -> None:
    with replayed(history) as result:
        copied, counted = result.table(copies).to_arrow(), result.table(days).to_arrow()
        record = result.outputs[days]

    first = copied.to_pylist()[0]
    assert first["timestamp"] == START
    assert first["value"]["at"] == START
    assert first["value"]["price"] == Decimal("0.25")
    assert first["value"]["counts"] == [("n", 0)]
    assert counted.schema.names[:3] == ["key", "window_start", "window_end"]
    assert counted.to_pylist()[0]["window_end"] - counted.to_pylist()[0]["window_start"] == DAY
    assert record.to_pylist()[0]["key"] == {
        "key": "p/0",
        "start": int(START.timestamp() * 1000),
        "end": int((START + DAY).timestamp() * 1000),
    }
    assert record.schema.field("timestamp").type == "int64"


@pytest.mark.slow
def test_tables_go_to_polars_pandas_and_arrow_streams(history: Path) -> None:
    with replayed(history) as result:
        table = result.table(days)

        assert table.to_polars().height == table.to_pandas().shape[0] == 200
        assert polars.DataFrame(table).equals(table.to_polars())
        assert sum(batch.num_rows for batch in table.reader()) == 200


@pytest.mark.slow
def test_stores_are_tables(history: Path) -> None:
    with replayed(history) as result:
        found = result.stores["daily"].table().to_arrow().to_pylist()
        assert {(row["key"], row["window_start"]): row["value"] for row in found} == {
            (windowed.key, datetime.fromtimestamp(windowed.window.start_ms / 1000, UTC)): count
            for windowed, count in result.stores["daily"].items()
        }
        assert all(row["timestamp"] >= row["window_start"] for row in found)


@pytest.mark.slow
def test_keys_of_a_store_of_count_windows_are_whole(history: Path) -> None:
    """Its kind is key-value: the window is a part of the key, and not a pair of columns."""

    def threes(builder: StreamsBuilder) -> None:
        builder.stream(sales).group_by_key().windowed_by(CountWindows.of(30)).count("threes")

    with replay(threes, {sales: history}, executor="local", partitions=2) as result:
        found = result.stores["threes"].table().to_arrow().to_pylist()

    windows = [{"key": f"p/{product}", "start": start, "end": start + 30} for product in range(5) for start in (0, 30)]
    assert sorted(((row["key"], row["value"]) for row in found), key=str) == list(
        zip(windows, [30, 10] * 5, strict=True)
    )


@pytest.mark.slow
def test_decimals_have_their_declared_digits() -> None:
    @frozen
    class Price:
        cents: Annotated[Decimal, msgspec.Meta(extra={"precision": 5, "scale": 2})]

    prices = Topic("prices", value=Price)
    table = arrow_table(prices.value_serde, [Price(Decimal("1.5"))])

    assert str(table.schema.field("cents").type) == "decimal128(5, 2)"
    assert table.to_pylist() == [{"cents": Decimal("1.50")}]
    with pytest.raises(NotSerializable, match=r"decimal 1\.555 exceeds"):
        arrow_table(prices.value_serde, [Price(Decimal("1.555"))])


@pytest.mark.slow
def test_outputs_of_a_closed_replay_say_how_to_keep_them(history: Path) -> None:
    with replayed(history) as result:
        pass

    for read in (lambda: result.outputs[days], lambda: result.stores["daily"]["x"], lambda: result.rows(days)):
        with pytest.raises(ReplayError, match="or a directory"):
            read()


@pytest.mark.slow
def test_kept_outputs_can_be_read_after_the_block_and_are_deleted_at_exit(history: Path) -> None:
    program = f"""
from pathlib import Path
from streams.replay import Plan
from tests.replay.test_tables import days, replayed
if __name__ == "__main__":
    with replayed(Path({str(history)!r}), plan=Plan(keep=True)) as result:
        pass
    print(result.outputs[days].num_rows, result.session.root)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    count, root = run.stdout.split()

    assert count == "200"
    assert not Path(root).exists()


@pytest.mark.slow
@pytest.mark.parametrize("slices", [None, 3])
def test_written_folder_has_the_rows_of_the_output(history: Path, tmp_path: Path, slices: int | None) -> None:
    with replayed(history, slices=slices) as result:
        assert result.write(copies, tmp_path / "copies", partition_by=["day", "value.product"]) == 200
        assert result.write(days, f"parquet:{tmp_path / 'days'}") == 200

        assert rows_in(tmp_path / "copies") == rows_of(result.table(copies).to_arrow())
        assert rows_in(tmp_path / "days") == rows_of(result.table(days).to_arrow())
    found = ds.dataset(tmp_path / "copies", format="parquet", partitioning="hive").to_table().to_pylist()
    assert all(row["product"] == row["value"]["product"] for row in found)
    assert {date.fromisoformat(row["day"]) for row in found} == {row["timestamp"].date() for row in found}


@pytest.mark.slow
def test_slice_is_written_once_and_its_commit_names_it(history: Path, tmp_path: Path) -> None:
    with replayed(history, slices=3) as result:
        assert result.write(copies, tmp_path / "out") == 200
        before = rows_in(tmp_path / "out")
        assert result.write(copies, tmp_path / "out") == 0

        entries = sorted(tmp_path.glob("out/_manifest/*/copies/*.json"))
        assert [entry.stem for entry in entries] == ["00000", "00001", "00002", "end"]
        assert {entry.parts[-3] for entry in entries} == {result.session.id}
        assert sum(sum(json.loads(entry.read_text())["files"].values()) for entry in entries) == 200
    assert rows_in(tmp_path / "out") == before


class _Killed(BaseException):
    """The end of the process."""


def _die(*_: Any) -> None:
    raise _Killed


def _killing(after: int) -> Callable[..., Any]:
    """Return a ``run`` of an executor that is killed after a number of calls, all of which have written."""
    run_all = LocalExecutor.run

    def run(self: LocalExecutor, works: list[Any], *_: Any) -> list[Any]:
        run_all(self, works[:after])
        raise _Killed

    return run


@pytest.mark.case
@pytest.mark.parametrize("after", [0, 1, 3, 8])
@pytest.mark.parametrize("is_resumed", [True, False], ids=["resumed", "again"])
def test_write_that_is_killed_leaves_no_row_twice(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, is_resumed: bool
) -> None:
    """In its folder, or in a new one with other slices: the same replay has the same files."""
    out = tmp_path / "out"
    with replayed(history, slices=3, directory=tmp_path / "work") as result:
        with monkeypatch.context() as patch, pytest.raises(_Killed):
            patch.setattr(LocalExecutor, "run", _killing(after))
            result.write(copies, out, partition_by="day")
    given: dict[str, Any] = {"directory": tmp_path / "work", "resume": True} if is_resumed else {}
    with replayed(history, slices=3 if is_resumed else None, **given) as result:
        assert result.write(copies, out, partition_by="day") == 200
        assert rows_in(out) == rows_of(result.table(copies).to_arrow())


@pytest.mark.slow
def test_history_that_has_grown_adds_its_rows(history: Path, tmp_path: Path) -> None:
    """The end of the shorter history is replaced: its records are now in slices."""
    out = tmp_path / "out"
    given: dict[str, Any] = {"slices": "2d", "directory": tmp_path / "work"}
    with replayed(history, **given) as result:
        result.write(copies, out)
    write_sales(history, 50, first=200)
    with replayed(history, **given, resume=True) as result:
        assert 50 <= result.write(copies, out) < 250
        assert len(rows_in(out)) == 250
        assert rows_in(out) == rows_of(result.table(copies).to_arrow())


@pytest.mark.slow
def test_overwrite_replaces_touched_partitions_only(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with replayed(write_sales(tmp_path / "a.jsonl", 72)) as result:
        result.write(copies, out, partition_by="day")
        first = result.session.id
    with replayed(write_sales(tmp_path / "b.jsonl", 10, first=30)) as result:
        assert result.session.id != first
        result.write(copies, out, partition_by="day", mode="overwrite")

    assert [len(rows_in(folder)) for folder in sorted(out.glob("day=*"))] == [24, 10, 24]
    assert listed_in(out) == files_in(out), "entries have all files that are left, and no others"

    with replayed(tmp_path / "a.jsonl") as result:
        assert result.session.id == first
        assert result.write(copies, out, partition_by="day", mode="overwrite") == 72, "it has lost rows"
    assert [len(rows_in(folder)) for folder in sorted(out.glob("day=*"))] == [24, 24, 24]
    assert listed_in(out) == files_in(out)


@pytest.mark.parametrize("is_killed", [False, True])
def test_overwrite_takes_rows_of_a_sink_only_in_the_touched_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    out = tmp_path / "out"
    sink = ParquetSink(str(out), partition_by="day")
    sale = Sale("p/1", Decimal("1.25"), START, {"n": 1})
    first_ms = int(START.timestamp() * 1_000)
    day_ms = 86_400_000
    for begin in (0, 20):
        sink.open("to-lake", copies, [0])
        times = [first_ms + at % 2 * day_ms for at in range(begin, begin + 20)]
        block = SinkBlock(copies, 0, list(range(begin, begin + 20)), ["p/1"] * 20, [sale] * 20, times, None, begin + 20)
        sink.write(block)
        sink.commit()

    manifest = ParquetManifest(str(out), "to-lake", "copies")
    with replayed(write_sales(tmp_path / "b.jsonl", 10, first=30)) as result:
        if is_killed:
            with monkeypatch.context() as patch, pytest.raises(_Killed):
                patch.setattr(Place, "delete", _die)
                result.write(copies, out, partition_by="day", mode="overwrite")
            assert manifest.table().num_rows == 20, "no entry names a file that may be gone"
        result.write(copies, out, partition_by="day", mode="overwrite")

    assert [len(rows_in(folder)) for folder in sorted(out.glob("day=*"))] == [20, 10]
    assert listed_in(out) == files_in(out)
    assert sink.open("to-lake", copies, [0]) == manifest.positions() == {0: 40}
    assert manifest.table()["offset"].to_pylist() == list(range(0, 40, 2))
    assert manifest.table({0: 20})["offset"].to_pylist() == list(range(20, 40, 2))


@pytest.mark.slow
def test_rows_that_an_overwrite_has_left_are_still_those_of_their_replay(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first, second = (write_sales(tmp_path / f"{name}.jsonl", 24, first=at) for name, at in (("a", 0), ("b", 24)))
    with replayed(str(tmp_path / "?.jsonl")) as result:
        result.write(copies, out, partition_by="day")
    with replayed(second) as result:
        result.write(copies, out, partition_by="day", mode="overwrite")
    with replayed(first) as result:
        with pytest.raises(InputError, match=r"has the rows of another replay of .*a\.jsonl"):
            result.write(copies, out, partition_by="day")
        assert result.write(copies, out, partition_by="day", mode="overwrite") == 24
    with replayed(str(tmp_path / "?.jsonl")) as result:
        with pytest.raises(InputError, match="has the rows of another replay of"):
            result.write(copies, out, partition_by="day")
    assert len(rows_in(out)) == 48


@pytest.mark.slow
def test_append_adds_the_rows_of_another_replay(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name, first in (("a", 0), ("b", 10)):
        with replayed(write_sales(tmp_path / f"{name}.jsonl", 10, first=first)) as result:
            if first:
                with pytest.raises(InputError, match="partitioned by nothing, partition_by is day; give the same"):
                    result.write(copies, out, partition_by="day")
            result.write(copies, out)

    assert len(rows_in(out)) == 20


def test_a_folder_is_shared_with_a_sink_and_refused_with_files_of_others(tmp_path: Path) -> None:
    """Each accepts what the manifest names of the other."""
    out = tmp_path / "out"
    sink = ParquetSink(str(out))
    sale = Sale("p/1", Decimal("1.25"), START, {"n": 1})
    for number, (name, first) in enumerate((("a", 0), ("b", 10))):
        with replayed(write_sales(tmp_path / f"{name}.jsonl", 10, first=first)) as result:
            assert result.write(copies, out) == 10
            assert result.write(copies, out) == 0
        assert sink.open("to-lake", copies, [0]) == ({0: number} if number else {})
        sink.write(SinkBlock(copies, 0, [number], ["p/1"], [sale], [0], None, number + 1))
        sink.commit()
    assert len(rows_in(out)) == 22
    assert ParquetManifest(str(out), "to-lake", "copies").table().num_rows == 2

    shutil.copy(next(out.glob("*-copies-*-p0*.parquet")), out / "0123456789ab-00000.parquet")
    with replayed(write_sales(tmp_path / "c.jsonl", 10, first=20)) as result:
        with pytest.raises(InputError, match="has files that no replay has written"):
            result.write(copies, out)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_folder_that_an_earlier_version_wrote_is_refused_as_that(tmp_path: Path, is_own: bool) -> None:
    """Its commits are in `_streams`; also in a table of a catalog its rows would be there twice."""
    out = tmp_path / "out"
    with replayed(write_sales(tmp_path / "a.jsonl", 10)) as result:
        result.write(copies, out)
        name = result.session.id
        for file in list(out.glob("*.parquet")):
            file.rename(out / re.sub("-[0-9a-f]+-p", "-p", file.name))
        (out / "_manifest").rename(out / "_streams")
        with pytest.raises(InputError, match=f"an earlier version has written it .*{name}-.*; .*another folder or"):
            FolderLog.opened(Place(str(out)), result.session, "copies", (), "append", is_own=is_own)
        assert result.write(copies, out, mode="overwrite") == 10
        assert result.write(copies, out) == 0, "none of its files is left"
        assert len(rows_in(out)) == 10


def test_a_folder_with_entries_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    entry = tmp_path / "out" / "_manifest" / "to-lake" / "copies" / "00000" / "00000000" / "0-0-1.json"
    entry.parent.mkdir(parents=True)
    entry.write_text(json.dumps({"start": 0, "next_offset": 1, "files": [{"path": "x.parquet", "rows": 1}]}))
    with replayed(write_sales(tmp_path / "a.jsonl", 10)) as result:
        with pytest.raises(InputError, match=r"out: has entries of an earlier version \(_manifest/.*another folder"):
            result.write(copies, tmp_path / "out")


def scaled(factor: int) -> TopologySource:
    """Return a topology that is equal in structure and code for each factor."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(sales).map_values(lambda sale: int(sale.price) * factor).to("prices")

    return topology


@pytest.mark.slow
@pytest.mark.parametrize("target", ["parquet", "delta"])
def test_a_run_with_other_functions_replaces_the_rows_of_the_run_before(
    history: Path, tmp_path: Path, target: str
) -> None:
    """Both have the same topology and code, so they are the same replay."""
    given: Any = {"executor": "local", "application_id": "shop", "partitions": 2}
    for factor in (1, 10):
        with replay(scaled(factor), {sales: history}, **given) as result:
            assert result.write("prices", f"{target}:{tmp_path / 'out'}") == 200
            assert result.write("prices", f"{target}:{tmp_path / 'out'}") == 0
            expected = sorted(result.outputs["prices"]["value"].to_pylist())
        if target == "delta":
            found = DeltaTable(tmp_path / "out").to_pyarrow_table()
        else:
            found = ds.dataset(tmp_path / "out", format="parquet").to_table()
        assert sorted(found["value"].to_pylist()) == expected


@pytest.mark.slow
def test_rows_that_were_corrected_are_another_history(tmp_path: Path) -> None:
    """The files have the same number of rows with the same times."""
    path, ids = tmp_path / "sales.jsonl", []
    write_sales(path)
    for wrong, right in (("", ""), ("100.25", "999.25")):
        path.write_text(path.read_text().replace(wrong, right))
        with replayed(path) as result:
            ids.append(result.session.id)
            result.write(copies, tmp_path / "out", mode="overwrite")
            assert rows_in(tmp_path / "out") == rows_of(result.table(copies).to_arrow())
    assert ids[0] != ids[1]


@pytest.mark.slow
def test_rows_of_corrected_files_are_not_added_to_those_of_before(tmp_path: Path) -> None:
    """Old and new rows would stand side by side without a word."""
    out, days = tmp_path / "out", tmp_path / "days"
    days.mkdir()
    for name, first in (("a", 0), ("b", 30)):
        write_sales(days / f"{name}.jsonl", 20, first=first)
    with replayed(days, slices=2) as result:
        result.write(copies, out)
    before = rows_in(out)
    path = days / "b.jsonl"
    path.write_text(path.read_text().replace("40.25", "99.25"))

    with replayed(days, slices=2) as result:
        with pytest.raises(InputError, match=r"has the rows of another replay of .*/days/[ab].jsonl, .*--overwrite"):
            result.write(copies, out)
        assert rows_in(out) == before
        result.write(copies, out, mode="overwrite")
        assert rows_in(out) == rows_of(result.table(copies).to_arrow())
        assert result.write(copies, out) == 0


@pytest.mark.slow
def test_a_file_of_later_rows_may_have_the_name_of_one_before(tmp_path: Path) -> None:
    """A job that replays ``today.jsonl`` each day adds the rows of its day."""
    out = tmp_path / "out"
    for first in (0, 20):
        with replayed(write_sales(tmp_path / "today.jsonl", 10, first=first)) as result:
            result.write(copies, out)
        (tmp_path / "today.jsonl").unlink()

    assert len(rows_in(out)) == 20


@pytest.mark.slow
def test_outputs_with_other_columns_are_not_mixed_in_a_folder(history: Path, tmp_path: Path) -> None:
    with replayed(history) as result:
        result.write(copies, tmp_path / "out")
        with pytest.raises(InputError, match=r"has no column window_end, .*column value is struct<.*, but int64"):
            result.write(days, tmp_path / "out")
        result.write(days, tmp_path / "out", mode="overwrite")
        assert rows_in(tmp_path / "out") == rows_of(result.table(days).to_arrow())


@pytest.mark.slow
def test_append_to_a_folder_with_files_of_others_is_refused(history: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "_SUCCESS").touch()
    (out / "part-00000.parquet").write_bytes(b"of another job")

    with replayed(history) as result:
        with pytest.raises(InputError, match=r"no replay has written \(part-00000.parquet\).*; choose another folder"):
            result.write(copies, out)
        assert sorted(path.name for path in out.iterdir()) == ["_SUCCESS", "part-00000.parquet"]
        (out / "part-00000.parquet").unlink()
        assert result.write(copies, out) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["value.colour"], "there is no such column; give day, key, value, timestamp.*value.product"),
        (["value"], "has type struct"),
        (["value.product", "value.product"], "two columns of the table would have the same name"),
    ],
)
def test_partition_columns_are_checked(history: Path, tmp_path: Path, columns: list[str], message: str) -> None:
    with replayed(history) as result, pytest.raises(InputError, match=message):
        result.write(copies, tmp_path / "out", partition_by=columns)


@pytest.mark.slow
def test_table_of_a_catalog_needs_spark(history: Path) -> None:
    with replayed(history) as result, pytest.raises(InputError, match="a table needs executor 'spark'"):
        result.write(copies, "table:shop.copies")


@pytest.mark.slow
def test_slices_of_another_size_are_written_again(history: Path, tmp_path: Path) -> None:
    """The commit of a slice counts for the same records only."""
    out = tmp_path / "out"
    for slices in (3, None, 2):
        with replayed(history, slices=slices) as result:
            assert result.write(copies, out) == 200
            assert rows_in(out) == rows_of(result.table(copies).to_arrow())


@pytest.mark.slow
def test_more_folders_than_open_files_lose_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_OPEN_FILES", 2)
    monkeypatch.setattr(writing, "_GROUP_ROWS", 7)
    with replayed(write_sales(tmp_path / "sales.jsonl", 24 * 10)) as result:
        assert result.write(copies, tmp_path / "out", partition_by="value.product") == 240

        assert rows_in(tmp_path / "out") == rows_of(result.table(copies).to_arrow())


@pytest.mark.slow
def test_keys_of_maps_are_texts_as_in_json() -> None:
    class Calendar(msgspec.Struct):
        days: dict[date, int]
        times: dict[datetime, dict[Decimal, int]]

    found = arrow_table(serde_for(Calendar), [Calendar({date(2026, 1, 2): 1}, {START: {Decimal("1.5"): 2}})])

    assert found.to_pylist() == [{"days": [("2026-01-02", 1)], "times": [("2026-01-01T00:00:00Z", [("1.5", 2)])]}]


@pytest.mark.slow
def test_number_of_more_than_64_bits_is_an_error_of_the_column() -> None:
    class Count(msgspec.Struct):
        count: int

    with pytest.raises(
        NotSerializable, match=r"a value does not fit into the column value, struct<count: int64>: .*Dec"
    ):
        arrow_table(serde_for(Count), [Count(2**63)])


class Size(NamedTuple):
    width: int
    price: Decimal | None = None


class Parcel(msgspec.Struct):
    name: str
    sizes: list[Size]


@pytest.mark.slow
def test_named_tuples_have_a_column_for_each_field_alone_and_within_others() -> None:
    alone = arrow_table(serde_for(Size), [Size(3, Decimal("1.5")), Size(4)])
    within = arrow_table(serde_for(Parcel), [Parcel("a", [Size(3)])])

    assert alone.to_pylist() == [{"width": 3, "price": Decimal("1.5")}, {"width": 4, "price": None}]
    assert within.to_pylist() == [{"name": "a", "sizes": [{"width": 3, "price": None}]}]


class Status(Enum):
    OPEN = "open"
    PAID = "paid"


class Level(Enum):
    LOW = 1


class Invoice(msgspec.Struct):
    status: Status
    level: Level
    kind: Literal["web", "shop"] | None
    due: timedelta


@pytest.mark.slow
def test_enums_literals_and_durations_are_texts_and_numbers_that_are_read_again(tmp_path: Path) -> None:
    """A topic and a table of them have the same values."""
    invoices, copied = (Topic(name, key=Status, value=Invoice) for name in ("invoices", "copied"))
    row = {"status": "paid", "level": 1, "kind": "web", "due": "PT90S"}
    file = tmp_path / "invoices.records.jsonl"
    file.write_text(json.dumps({"key": "open", "value": row, "timestamp": 1}) + "\n")
    found = []
    for number, source in enumerate((file, tmp_path / "0.parquet")):
        with replay(
            lambda builder: builder.stream(invoices).to(copied), {invoices: source}, executor="local"
        ) as result:
            found += result.outputs[copied].select(["key", "value"]).to_pylist()
            result.write(copied, str(tmp_path / f"{number}.parquet"))

    assert found == [{"key": "open", "value": row}] * 2


@pytest.mark.parametrize("method", ["write_table", "close"])
def test_full_disk_of_an_output_is_told_with_its_file(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Parquet's writer has the rows of a small file until it is closed."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with replayed(history) as result:
        monkeypatch.setattr(pq.ParquetWriter, method, full)
        with pytest.raises(
            ReplayError, match=r"copies/product=.*\.parquet: cannot be written: No space left on device; make room"
        ):
            result.write(copies, tmp_path / "copies", partition_by="value.product")
    assert not list((tmp_path / "copies").rglob("*.parquet*"))
