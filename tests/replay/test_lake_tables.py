"""Delta Lake and Iceberg tables as inputs and outputs, without Spark; witnesses are the readers of the formats."""

import contextlib
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.utils.config import Config

from streams import StreamsBuilder, Topic
from streams.core.errors import InputError, StreamsError
from streams.replay import Plan, ReplayError, explain, replay
from streams.replay.run.local import LocalExecutor
from tests.replay import table_cases
from tests.replay import test_daily as daily_job
from tests.replay.test_tables import START, Sale, copies, days, replayed, rows_of, write_sales

#: Where a write is killed.
PHASES = ("first call", "last call", "before the commit", "after the commit")


class Lake:
    """Tables of one format in a folder, written and read by the library of the format alone."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder

    def name(self, table: str) -> str:
        """What the user gives."""
        return f"delta:{self.folder / table}" if self.kind == "delta" else f"iceberg:shop.lake.{table}"

    def read(self, table: str) -> Any:
        if self.kind == "delta":
            from deltalake import DeltaTable

            return DeltaTable(self.folder / table).to_pyarrow_table()
        return self._iceberg(table).scan().to_arrow()

    def versions(self, table: str) -> list[Any]:
        """The versions with rows, oldest first."""
        if self.kind == "delta":
            from deltalake import DeltaTable

            return [found["version"] for found in reversed(DeltaTable(self.folder / table).history())]
        return [entry.snapshot_id for entry in self._iceberg(table).history()]

    def append(self, table: str, rows: Any) -> None:
        if self.kind == "delta":
            from deltalake import write_deltalake

            write_deltalake(self.folder / table, rows, mode="append")
            return
        from pyiceberg.exceptions import NamespaceAlreadyExistsError

        catalog = self._catalog()
        with contextlib.suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace("lake")
        catalog.create_table_if_not_exists(f"lake.{table}", rows.schema).append(rows)

    def delete(self, table: str, column: str, value: str) -> None:
        if self.kind == "delta":
            from deltalake import DeltaTable

            DeltaTable(self.folder / table).delete(f"{column} = '{value}'")
        else:
            self._iceberg(table).delete(f"{column} == '{value}'")

    def compact(self, table: str) -> None:
        if self.kind == "delta":
            from deltalake import DeltaTable

            DeltaTable(self.folder / table).optimize.compact()
        else:
            self._replace(self._iceberg(table))

    def _replace(self, table: Any) -> None:
        """Write all rows to one file, as ``rewrite_data_files`` does; pyiceberg has no such operation."""
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        files = [task.file for task in table.scan().plan_files()]
        rows = table.scan().to_arrow()
        with table.transaction() as change, change.update_snapshot().overwrite() as snapshot:
            for file in files:
                snapshot.delete_data_file(file)
            for file in _dataframe_to_data_files(table.metadata, rows, table.io):
                snapshot.append_data_file(file)
        metadata = Path(table.metadata_location.removeprefix("file://"))
        content = json.loads(metadata.read_text())
        (last,) = (it for it in content["snapshots"] if it["snapshot-id"] == content["current-snapshot-id"])
        last["summary"]["operation"] = "replace"
        metadata.write_text(json.dumps(content))

    def overwrite(self, table: str) -> None:
        rows = self.read(table)
        if self.kind == "delta":
            from deltalake import write_deltalake

            write_deltalake(self.folder / table, rows, mode="overwrite")
        else:
            self._iceberg(table).overwrite(rows)

    def vacuum(self, table: str) -> None:
        """Delete the files that the newest version has not; Iceberg's snapshots keep theirs until they expire."""
        if self.kind == "delta":
            from deltalake import DeltaTable

            DeltaTable(self.folder / table).vacuum(0, dry_run=False, enforce_retention_duration=False)

    def _catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("shop")

    def _iceberg(self, table: str) -> Any:
        return self._catalog().load_table(f"lake.{table}")


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    folder = tmp_path / "lake"
    folder.mkdir()
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{folder}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__WAREHOUSE", f"file://{folder}")
    # The package reads its settings once.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return Lake(request.param, folder)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return write_sales(tmp_path / "sales.jsonl")


# --- outputs --------------------------------------------------------------------------------


@pytest.mark.case
@pytest.mark.parametrize("partition_by", [(), ("day", "value.product")], ids=["plain", "partitioned"])
def test_table_has_each_row_of_the_output_once(lake: Lake, history: Path, partition_by: tuple[str, ...]) -> None:
    with replayed(history, slices=3) as result:
        assert result.write(copies, lake.name("copies"), partition_by=partition_by) == 200
        assert result.write(copies, lake.name("copies"), partition_by=partition_by) == 0
        expected = rows_of(result.table(copies).to_arrow())
    found = lake.read("copies")

    assert rows_of(found) == expected
    row = found.slice(0, 1).to_pylist()[0]
    assert isinstance(row["value"]["price"], Decimal)
    assert row["timestamp"].tzinfo is not None
    if partition_by and lake.kind == "delta":
        assert row["day"] == row["timestamp"].date()
        assert row["product"] == row["value"]["product"]


@pytest.mark.slow
def test_windowed_keys_are_columns(lake: Lake, history: Path) -> None:
    with replayed(history) as result:
        result.write(days, lake.name("days"), partition_by="day")
        expected = rows_of(result.table(days).to_arrow())

    assert rows_of(lake.read("days")) == expected
    assert {"key", "window_start", "window_end"} <= set(lake.read("days").schema.names)


@pytest.mark.case
@pytest.mark.parametrize("phase", PHASES)
def test_killed_write_is_completed_by_the_next_one(
    lake: Lake, history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """Readers never see a part of a write; the next one, in a resumed replay, writes each row once."""
    given: dict[str, Any] = {"slices": 3, "directory": tmp_path / "work"}
    target = lake.name("copies")
    with replayed(history, **given) as result, monkeypatch.context() as patch:
        _die(patch, phase)
        with pytest.raises(KeyboardInterrupt):
            result.write(copies, target, partition_by="day")
    if phase != "after the commit":
        assert lake.read("copies").num_rows == 0

    with replayed(history, **given, resume=True) as result:
        assert result.write(copies, target, partition_by="day") == (0 if phase == "after the commit" else 200)
        expected = rows_of(result.table(copies).to_arrow())
    assert rows_of(lake.read("copies")) == expected


#: Rows of a file of a large table.
_FILE_ROWS = 25_000


@pytest.mark.slow
def test_large_tables_are_exact_after_a_kill_in_each_phase(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 rows in four files and four slices: the replay, then each write of its output, is killed and resumed."""
    for number in range(4):
        lake.append("sales", _large(number))
    given: dict[str, Any] = {"slices": 4, "directory": tmp_path / "work"}
    for phase in ("first call", "last call"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            _die(patch, phase)
            replayed(lake.name("sales"), resume=True, **given)

    for table, phase in enumerate(PHASES):
        target = lake.name(f"copies_{table}")
        with replayed(lake.name("sales"), resume=True, **given) as result:
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                _die(patch, phase)
                result.write(copies, target, partition_by="day")
            assert lake.read(f"copies_{table}").num_rows == (4 * _FILE_ROWS if phase == "after the commit" else 0)
        with replayed(lake.name("sales"), resume=True, **given) as result:
            assert result.write(copies, target, partition_by="day") == (0 if phase == "after the commit" else 100_000)
            expected = _sorted(result.table(copies).to_arrow())
        found = _sorted(lake.read(f"copies_{table}"))

        assert found.equals(expected.cast(found.schema))
        assert sorted(found.column("timestamp").to_pylist()) == [_time(number) for number in range(4 * _FILE_ROWS)]


def _time(number: int) -> datetime:
    return START + timedelta(seconds=20 * number)


def _large(file: int) -> Any:
    import pyarrow as pa

    numbers = range(file * _FILE_ROWS, (file + 1) * _FILE_ROWS)
    return pa.table(
        {
            "product": [f"p{number % 50}" for number in numbers],
            "price": pa.array([Decimal(number).scaleb(-2) for number in numbers], pa.decimal128(12, 2)),
            "at": pa.array(map(_time, numbers), pa.timestamp("us", "UTC")),
            "counts": pa.array([{"n": number} for number in numbers], pa.map_(pa.string(), pa.int64())),
        }
    )


def _sorted(table: Any) -> Any:
    names = ["partition", "offset", "timestamp", "value"]
    return table.select(names).sort_by([("partition", "ascending"), ("offset", "ascending")]).combine_chunks()


def _die(patch: pytest.MonkeyPatch, phase: str) -> None:
    from streams.lakes import DeltaLog, IcebergLog

    run = LocalExecutor.run

    def dying_run(self: Any, works: Any, *rest: Any) -> Any:
        run(self, works[: 1 if phase == "first call" else -1], *rest)
        raise KeyboardInterrupt

    if phase.endswith("call"):
        patch.setattr(LocalExecutor, "run", dying_run)
        return
    for kind in (DeltaLog, IcebergLog):
        commit = kind.commit

        def dying_commit(self: Any, given: Any, commit: Any = commit) -> None:
            if phase == "after the commit":
                commit(self, given)
            raise KeyboardInterrupt

        patch.setattr(kind, "commit", dying_commit)


@pytest.mark.slow
def test_of_two_writes_at_the_same_time_one_fails(lake: Lake, history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second write begins and ends while the first one is about to commit the same slices."""
    from streams.lakes import DeltaLog, IcebergLog

    target = lake.name("copies")
    with replayed(history) as one, replayed(history) as two:
        for kind in (DeltaLog, IcebergLog):
            commit = kind.commit

            def late_commit(self: Any, given: Any, commit: Any = commit, kind: Any = kind) -> None:
                monkeypatch.setattr(kind, "commit", commit)
                assert two.write(copies, target) == 200
                commit(self, given)

            monkeypatch.setattr(kind, "commit", late_commit)
        with pytest.raises(ReplayError, match="cannot be committed"):
            one.write(copies, target)
        expected = rows_of(two.table(copies).to_arrow())

    assert rows_of(lake.read("copies")) == expected


@pytest.mark.slow
def test_grown_history_replaces_the_end_of_the_shorter_one(lake: Lake, history: Path, tmp_path: Path) -> None:
    """What the final pass has written is not in the table twice, even if the rows of slices were compacted."""
    given: dict[str, Any] = {"slices": "1d", "directory": tmp_path / "work"}
    with replayed(history, **given) as result:
        result.write(days, lake.name("days"), partition_by="day")
    write_sales(history, 100, first=200)
    with replayed(history, **given, resume=True) as result:
        assert result.write(days, lake.name("days"), partition_by="day")
        expected = rows_of(result.table(days).to_arrow())

    assert rows_of(lake.read("days")) == expected
    assert len(expected) == 300


def _last_of(table: Any) -> list[tuple[Any, ...]]:
    """The rows with the last value of each key and window."""
    names = table.schema.names
    last = {tuple(row[name] for name in names if name in ("key", "window_start")): row for row in table.to_pylist()}
    return rows_of(pa.Table.from_pylist(list(last.values()), table.schema))


@pytest.mark.case
@pytest.mark.parametrize("phase", [None, "before the commit", "after the commit"])
def test_last_values_take_the_place_of_those_of_the_night_before(
    lake: Lake, history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str | None
) -> None:
    given: dict[str, Any] = {"slices": 3, "directory": tmp_path / "work"}
    target = lake.name("days")
    with replayed(history, **given) as result:
        assert 0 < result.write(days, target, mode="last", partition_by="day") < 200
        assert result.write(days, target, mode="last", partition_by="day") == 0
        assert rows_of(lake.read("days")) == _last_of(result.table(days).to_arrow())
    write_sales(history, 100, first=200)
    with replayed(history, **given, resume=True) as result:
        if phase is not None:
            with monkeypatch.context() as patch:
                _die(patch, phase)
                with pytest.raises(KeyboardInterrupt):
                    result.write(days, target, mode="last", partition_by="day")
        result.write(days, target, mode="last", partition_by="day")
        expected = _last_of(result.table(days).to_arrow())
        assert rows_of(lake.read("days")) == expected
        every = rows_of(result.table(days).to_arrow())
        result.write(days, target, partition_by="day")

    assert rows_of(lake.read("days")) == every  # Each update again.


@pytest.mark.parametrize("kind", ["table", "folder"])
def test_last_values_do_not_stand_beside_those_of_another_replay(
    lake: Lake, history: Path, tmp_path: Path, kind: str
) -> None:
    """Their keys would be there twice; the same history again has the same ID, and takes their place."""
    target = lake.name("days") if kind == "table" else str(tmp_path / "days")
    for _ in range(2):
        with replayed(history) as result:
            assert result.write(days, target, mode="last") > 0
    write_sales(history, 100, first=200)

    with replayed(history) as result, pytest.raises(StreamsError, match=r"has (the )?rows of .*another replay"):
        result.write(days, target, mode="last")


def test_last_values_of_a_folder_are_without_tombstones_and_need_keys(tmp_path: Path) -> None:
    words = Topic("words", key=str, value=str)
    out = Topic("out", key=str, value=str)
    history = tmp_path / "words.records.jsonl"
    lines = [("a", "1"), ("b", "1"), ("a", "2"), ("b", None), ("c", "1")]
    records = [{"key": key, "value": value, "timestamp": number} for number, (key, value) in enumerate(lines)]
    history.write_text("".join(json.dumps(record) + "\n" for record in records))

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).to(out)

    given: dict[str, Any] = {"executor": "local", "application_id": "a"}
    with replay(topology, {words: history}, **given) as result:
        assert result.write(out, tmp_path / "out", mode="last") == 2
    found = pq.read_table(tmp_path / "out").to_pylist()
    assert [(row["key"], row["value"], row["offset"]) for row in found] == [("a", "2", 2), ("c", "1", 4)]
    history.write_text(json.dumps({"key": None, "value": "1", "timestamp": 1}) + "\n")
    with (
        replay(topology, {words: history}, **given) as result,
        pytest.raises(InputError, match=r"out-0: the record at offset 0 has no key"),
    ):
        result.write(out, tmp_path / "other", mode="last")


@pytest.mark.slow
def test_overwrite_replaces_the_partitions_that_get_rows(lake: Lake, tmp_path: Path) -> None:
    """Those of other days, and rows of this replay, stay."""
    name = lake.name("copies")
    with replayed(write_sales(tmp_path / "january.jsonl", 48)) as result:
        result.write(copies, name, partition_by="day")
    with replayed(write_sales(tmp_path / "again.jsonl", 24, first=24)) as result:
        result.write(copies, name, partition_by="day", mode="overwrite")
        assert result.write(copies, name, partition_by="day", mode="overwrite") == 0
    found = lake.read("copies")

    assert found.num_rows == 48
    assert (
        sorted(time.date() for time in found["timestamp"].to_pylist())
        == [date(2026, 1, 1)] * 24 + [date(2026, 1, 2)] * 24
    )


@pytest.mark.slow
def test_append_keeps_the_rows_of_others(lake: Lake, tmp_path: Path) -> None:
    for number, name in enumerate(("a.jsonl", "b.jsonl")):
        with replayed(write_sales(tmp_path / name, 24, first=24 * number)) as result:
            result.write(copies, lake.name("copies"))

    assert lake.read("copies").num_rows == 48


@pytest.mark.slow
def test_compacted_table_goes_on_unless_its_end_has_to_be_replaced(lake: Lake, history: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"slices": "1d", "directory": tmp_path / "work"}
    with replayed(history, **given) as result:
        result.write(days, lake.name("days"))
        expected = rows_of(result.table(days).to_arrow())
        lake.compact("days")
        assert result.write(days, lake.name("days")) == 0
    assert rows_of(lake.read("days")) == expected
    write_sales(history, 100, first=200)
    with replayed(history, **given, resume=True) as result:
        with pytest.raises(ReplayError, match=r"of 'days' from the end of a shorter history.*compacted"):
            result.write(days, lake.name("days"))
    assert rows_of(lake.read("days")) == expected


@pytest.mark.case
def test_other_partitions_and_columns_are_refused(lake: Lake, history: Path) -> None:
    with replayed(history) as result:
        result.write(days, lake.name("days"), partition_by="day")
        with pytest.raises(InputError, match=r"is partitioned by day.*partition_by is nothing"):
            result.write(days, lake.name("days"))
        with pytest.raises(InputError, match=r"has no column|has column window_end"):
            result.write(copies, lake.name("days"), partition_by="day")
        with pytest.raises(InputError, match="a version is for inputs"):
            result.write(days, lake.name("days") + "@7")


@pytest.mark.case
def test_columns_of_other_types_are_refused(lake: Lake, history: Path) -> None:
    with replayed(history) as result:
        table = result.table(copies).to_arrow()
        price, counts = pa.array([1.5] * table.num_rows), table["value"].combine_chunks().field("counts")
        values = pa.StructArray.from_arrays([price, counts], ["price", "counts"])
        lake.append("copies", table.set_column(table.schema.get_field_index("value"), "value", values))
        before = lake.read("copies").num_rows
        message = r"has no field value.product, column value.price is double, but decimal128\(38, 18\) in the output"
        with pytest.raises(InputError, match=message):
            result.write(copies, lake.name("copies"))
        assert lake.read("copies").num_rows == before


#: Texts that folders, URIs or the log of a table encode.
TEXTS = ("St. Gallen", "a / b", "a=b", "100%", "a%2Fb", "a:b", "a+b", "Köln", "東京", "it's", '"', "#?&\\\n", "..", " ")
copied = Topic("copied", key=str, value=Sale)


def _sold(products: Sequence[str], first: int = 0) -> Any:
    rows = [
        {"product": product, "price": "1.5", "at": START + timedelta(hours=number)}
        for number, product in enumerate(products, first)
    ]
    return pa.Table.from_pylist(rows).append_column("counts", pa.array([[]] * len(rows), pa.map_("string", "int64")))


def _products_of(name: str, since: datetime | None = None, **given: Any) -> list[str]:
    """Return the products of a table of records, as an input of a replay."""

    def again(builder: StreamsBuilder) -> None:
        builder.stream(copies).to(copied)

    plan = Plan(since=since, executor="local")
    with replay(again, {copies: name}, plan, application_id="again", partitions=2, **given) as result:
        return [row.value.product for row in sorted(result.rows(copied), key=lambda row: row.value.at)]


@pytest.mark.case
def test_partitions_of_any_text_are_read_at_a_version_since_a_time_and_resumed(lake: Lake, tmp_path: Path) -> None:
    name = lake.name("copies")
    with replayed(_sold(TEXTS[:9])) as result:
        assert result.write(copies, name, partition_by="value.product") == 9
    first = f"{name}@{lake.versions('copies')[-1]}"
    resumed: dict[str, Any] = {"directory": tmp_path / "work", "slices": 2}
    assert _products_of(first, **resumed) == list(TEXTS[:9])
    with replayed(_sold(TEXTS[9:], 9)) as result:
        result.write(copies, name, partition_by="value.product")

    assert _products_of(name, **resumed, resume=True) == list(TEXTS)
    assert _products_of(first) == list(TEXTS[:9])
    assert _products_of(name) == list(TEXTS)
    assert _products_of(name, since=START + timedelta(hours=7)) == list(TEXTS[7:])
    assert sorted(row["product"] for row in lake.read("copies")["value"].to_pylist()) == sorted(TEXTS)


@pytest.mark.case
def test_an_empty_partition_value_is_kept_apart_from_null_or_refused(lake: Lake, tmp_path: Path) -> None:
    """Delta reads an empty text as null; a folder of Parquet files has no folder for it that Spark reads."""
    empty = "which a table partitioned by it does not keep apart from null"
    with replayed(_sold(["a", ""])) as result:
        with pytest.raises(InputError, match=f"partition ., offset .: value.product is '', {empty}"):
            result.write(copies, str(tmp_path / "folder"), partition_by="value.product")
        if lake.kind == "delta":
            with pytest.raises(InputError, match=empty):
                result.write(copies, lake.name("copies"), partition_by="value.product")
        else:
            result.write(copies, lake.name("copies"), partition_by="value.product")
            assert lake._iceberg("copies").scan("value.product = ''").count() == 1
    with replayed(_sold(["__HIVE_DEFAULT_PARTITION__"])) as result, pytest.raises(InputError, match=empty):
        result.write(copies, lake.name("other"), partition_by="value.product")


# --- inputs ---------------------------------------------------------------------------------


def _values_of(folder: Path, **fields: Any) -> list[dict[str, Any]]:
    kind = TypedDict("kind", {"at": datetime, **fields})
    rows = Topic("rows", value=kind, timestamp=itemgetter("at"))

    def copy(builder: StreamsBuilder) -> None:
        builder.stream(rows).to(Topic("out", value=kind))

    with replay(copy, {rows: f"delta:{folder}"}, executor="local", application_id="a", partitions=1) as result:
        return [row.value for row in result.rows("out")]


@pytest.mark.case
def test_partition_values_of_each_type_are_those_of_deltalake(tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    at = [START + timedelta(hours=number, microseconds=1) for number in range(len(TEXTS))]
    numbers = range(len(TEXTS))
    columns = {
        "at": pa.array(at, pa.timestamp("us", "UTC")),
        "text": pa.array(TEXTS),
        "naive": pa.array([time.replace(tzinfo=None) for time in at], pa.timestamp("us")),
        "day": pa.array([time.date() for time in at]),
        "price": pa.array([Decimal(number).scaleb(-2) for number in numbers], pa.decimal128(9, 2)),
        "share": pa.array([number / 7 for number in numbers]),
        "is_odd": pa.array([number % 2 == 1 for number in numbers]),
        "count": pa.array([None, *numbers[1:]], pa.int16()),
    }
    write_deltalake(tmp_path, pa.table({**columns, "n": numbers}), partition_by=list(columns))
    expected = DeltaTable(tmp_path).to_pyarrow_table().sort_by("n").to_pylist()

    kinds = {"text": str, "naive": datetime, "day": date, "price": Decimal, "share": float, "is_odd": bool}
    found = _values_of(tmp_path, **kinds, count=int | None, n=int)

    assert [row["text"] for row in found] == list(TEXTS)
    assert found == expected


@pytest.mark.case
def test_features_that_arrow_does_not_see_are_refused_by_name(tmp_path: Path) -> None:
    """Without the check, columns are null, and deleted rows are there."""
    from deltalake import DeltaTable, Field, Schema, write_deltalake
    from deltalake.schema import PrimitiveType, VariantType

    row = pa.table({"at": pa.array([START]), "n": [1]})
    mapping, vectors = {"delta.columnMapping.mode": "name"}, {"delta.enableDeletionVectors": "true"}
    for name, settings in (("columnMapping", mapping), ("deletionVectors", vectors)):
        write_deltalake(tmp_path / name, row, configuration=settings)
        with pytest.raises(InputError, match=rf"has {name}, .*DROP FEATURE.* or let Spark read the table"):
            _values_of(tmp_path / name)
    with replayed(_sold(["a"])) as result:
        DeltaTable.create(tmp_path / "out", result.table(copies).to_arrow().schema, configuration=mapping)
        with pytest.raises(InputError, match="has columnMapping"):
            result.write(copies, f"delta:{tmp_path / 'out'}")

    DeltaTable.create(tmp_path / "v", Schema([Field("at", PrimitiveType("timestamp")), Field("v", VariantType())]))
    parts = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
    variant = pa.array([{"metadata": b"\1\0\0", "value": b"\x0c\1"}], parts)
    write_deltalake(tmp_path / "v", pa.table({"at": pa.array([START]), "v": variant}), mode="append")
    with pytest.raises(InputError, match=r"column 'v' is variant, .*to_json\(v\)"):
        _values_of(tmp_path / "v", v=dict)
    write_deltalake(tmp_path / "b", row.append_column("b", pa.array([b"x"])), partition_by=["b"])
    with pytest.raises(InputError, match="column 'b' is binary"):
        _values_of(tmp_path / "b", b=bytes)


@pytest.mark.slow
def test_table_is_read_at_a_version_and_resumed_with_what_is_new(lake: Lake, tmp_path: Path) -> None:
    """Results are those of a live run in order of time over the rows of all versions."""
    rows = table_cases.rows()
    lake.append("orders", table_cases.table(rows[:400]))
    first = lake.versions("orders")[-1]
    lake.append("orders", table_cases.table(rows[400:], seed=6))
    name = lake.name("orders")

    def run(table: str, **given: Any) -> Any:
        inputs = {table_cases.orders: table}
        return replay(
            table_cases.topology,
            inputs,
            application_id=table_cases.APPLICATION,
            executor="local",
            partitions=table_cases.PARTITIONS,
            **given,
        )

    with run(f"{name}@{first}", directory=tmp_path / "work", slices=2) as result:
        assert result.records["totals"] == 400
    with run(f"{name}@{first}", directory=tmp_path / "work", slices=2, resume=True) as result:
        assert result.records["totals"] == 400
    with run(name, directory=tmp_path / "work", slices=2, resume=True) as result:
        assert result.records["totals"] == 600
        resumed = table_cases.replayed(result)
    with run(name) as result:
        assert table_cases.replayed(result) == table_cases.live(rows, tmp_path)
        whole = table_cases.replayed(result)
    assert sorted(map(repr, whole)) == sorted(map(repr, resumed))


def test_what_only_writes_rows_again_is_passed_over_by_a_resumed_replay(lake: Lake, tmp_path: Path) -> None:
    """Compaction moves rows that were read, and rows that were not, into one file; VACUUM deletes what was read."""
    rows = table_cases.rows(150)
    given: dict[str, Any] = {"executor": "local", "application_id": "a", "resume": True}
    inputs = {table_cases.orders: lake.name("orders")}

    def nightly(count: int, **more: Any) -> Any:
        with replay(table_cases.topology, inputs, **given, directory=tmp_path / "work", **more) as result:
            assert result.records["totals"] == count
            return table_cases.replayed(result)

    lake.append("orders", table_cases.table(rows[:50]))
    nightly(50)
    lake.append("orders", table_cases.table(rows[50:100]))
    lake.compact("orders")
    nightly(100)
    lake.compact("orders")
    lake.vacuum("orders")
    nightly(100)
    lake.append("orders", table_cases.table(rows[100:]))
    found = nightly(150)
    with replay(table_cases.topology, inputs, executor="local", application_id="a") as result:
        assert sorted(map(repr, found)) == sorted(map(repr, table_cases.replayed(result)))


def test_compacted_table_goes_on_from_a_snapshot(lake: Lake, tmp_path: Path) -> None:
    rows = table_cases.rows(100)
    inputs = {table_cases.orders: lake.name("orders")}
    given: dict[str, Any] = {"executor": "local", "application_id": "a"}
    lake.append("orders", table_cases.table(rows[:50]))
    replay(table_cases.topology, inputs, **given, snapshot=tmp_path / "first").close()
    lake.compact("orders")
    lake.append("orders", table_cases.table(rows[50:]))

    with replay(table_cases.topology, inputs, **given, state_from=tmp_path / "first") as result:
        assert result.records["totals"] == 50


def test_new_rows_that_were_compacted_and_deleted_before_they_were_read_are_an_error(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    inputs = {table_cases.orders: lake.name("orders")}
    given: dict[str, Any] = {"executor": "local", "directory": tmp_path / "work", "resume": True, "application_id": "a"}
    lake.append("orders", table_cases.table(table_cases.rows(50)))
    replay(table_cases.topology, inputs, **given).close()
    lake.append("orders", table_cases.table(table_cases.rows(10, 50)))
    lake.compact("orders")
    lake.vacuum("orders")

    with pytest.raises(InputError, match=r"VACUUM has deleted it before it was read; resume within the retention"):
        replay(table_cases.topology, inputs, **given)


@pytest.mark.case(2)
@pytest.mark.parametrize("change", ["overwrite", "delete"])
def test_rows_that_were_changed_after_they_were_read_are_an_error(lake: Lake, tmp_path: Path, change: str) -> None:
    rows = table_cases.rows(100)
    for part in (rows[:50], rows[50:]):
        lake.append("orders", table_cases.table(part))
    given: dict[str, Any] = {"executor": "local", "directory": tmp_path / "work", "slices": 2, "application_id": "a"}
    inputs = {table_cases.orders: lake.name("orders")}
    replay(table_cases.topology, inputs, **given).close()
    if change == "overwrite":
        lake.overwrite("orders")
    else:
        lake.delete("orders", "product", "p1")

    with pytest.raises(
        ReplayError,
        match=r"were deleted or changed after they were read at version \d+: (?i:delete|overwrite|write) in ",
    ):
        replay(table_cases.topology, inputs, **given, resume=True)


@pytest.mark.case
@pytest.mark.parametrize("kills", [None, 1, 2])
def test_changed_rows_of_a_table_are_repaired(lake: Lake, tmp_path: Path, kills: int | None) -> None:
    """Results are those of one replay over the table as it is, also if the repair is killed."""
    rows = table_cases.rows(300)
    rows[170]["product"] = "gone"
    given: dict[str, Any] = {"executor": "local", "processes": 1, "application_id": "a", "partitions": 2}
    inputs = {table_cases.orders: lake.name("orders")}

    def nightly(*, repair: bool = True) -> Any:
        plan = Plan(store="in_memory", repair=repair)
        return replay(table_cases.topology, inputs, plan, **given, directory=tmp_path / "work", resume=True)

    for first in range(0, 200, 50):
        lake.append("orders", table_cases.table(rows[first : first + 50]))
        nightly().close()
    lake.append("orders", table_cases.table(rows[200:]))
    lake.compact("orders")
    lake.delete("orders", "product", "gone")
    if kills is not None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalExecutor, "run", killed_after(kills))
            with pytest.raises(KeyboardInterrupt):
                nightly()
    with nightly() as result:
        assert result.late_rows == []
        if kills is None:
            assert result.repaired is not None
            assert result.repaired.slices_kept == 3
            assert "since the oldest change is of" in str(result.repaired)
        repaired = table_cases.replayed(result)
    with replay(table_cases.topology, inputs, **given) as result:
        whole = table_cases.replayed(result)
    assert repaired == whole
    lake.overwrite("orders")  # With the same rows.
    with nightly() as result:
        assert result.repaired is None
        assert table_cases.replayed(result) == whole


@pytest.mark.case
def test_a_table_that_was_emptied_is_repaired_and_grows_again(lake: Lake, tmp_path: Path) -> None:
    rows = table_cases.rows(100)
    for row in rows[:50]:
        row["product"] = "gone"
    plan = Plan(executor="local", processes=1, directory=tmp_path / "work", resume=True, repair=True)

    def records() -> int:
        with replay(
            table_cases.topology, {table_cases.orders: lake.name("orders")}, plan, application_id="a"
        ) as result:
            return result.source_records

    lake.append("orders", table_cases.table(rows[:50]))
    assert records() == 50
    lake.delete("orders", "product", "gone")
    assert records() == 0
    assert records() == 0
    lake.append("orders", table_cases.table(rows[50:]))
    assert records() == 50


def killed_after(calls: int) -> Any:
    """Return a method of an executor that is killed when it has run so many times."""
    real = LocalExecutor.run
    runs = iter(range(calls))

    def run(self: LocalExecutor, *arguments: Any) -> Any:
        if next(runs, None) is None:
            raise KeyboardInterrupt
        return real(self, *arguments)

    return run


@pytest.mark.slow
def test_names_are_checked(lake: Lake, tmp_path: Path) -> None:
    for name in (lake.name("missing"), lake.name("missing") + "@7"):
        with pytest.raises(InputError, match="missing"):
            replay(table_cases.topology, {table_cases.orders: name}, executor="local", application_id="a")
    with pytest.raises(InputError, match="'x' is neither a version"):
        replay(table_cases.topology, {table_cases.orders: "delta:orders@x"}, executor="local", application_id="a")


@pytest.mark.slow
def test_time_selects_a_version(lake: Lake, tmp_path: Path) -> None:
    lake.append("orders", table_cases.table(table_cases.rows(10)))
    inputs = {table_cases.orders: f"{lake.name('orders')}@{datetime(2999, 1, 1, tzinfo=UTC).isoformat()}"}
    with replay(table_cases.topology, inputs, executor="local", application_id="a") as result:
        assert result.records["totals"] == 10


@pytest.mark.slow
def test_since_selects_rows_at_the_source(lake: Lake, tmp_path: Path) -> None:
    rows = table_cases.rows(100)
    lake.append("orders", table_cases.table(rows))
    inputs = {table_cases.orders: lake.name("orders")}
    since = rows[40]["at"]
    given: dict[str, Any] = {"executor": "local", "application_id": table_cases.APPLICATION, "partitions": 3}
    with replay(table_cases.topology, inputs, Plan(since=since), **given) as result:
        assert table_cases.replayed(result) == table_cases.live(rows[40:], tmp_path)


def test_since_needs_a_column_of_a_table(tmp_path: Path) -> None:
    import pyarrow as pa

    from streams import StreamsBuilder, Topic

    computed = Topic("orders", value=dict, timestamp=lambda order: order["at"] * 1000)
    plain = Topic("orders", value=dict, timestamp=lambda order: order["at"])

    def first_of(first: Any, second: Any) -> Any:
        return second if first is None else first

    def run(topic: Topic[Any, Any], given: Any, until: str | None = None) -> None:
        def topology(builder: StreamsBuilder) -> None:
            builder.stream(topic).to(Topic("out", value=dict))

        given = {topic: given}
        plan = Plan(executor="local", since="2026-01-01", until=until)
        replay(topology, given, plan, application_id="a").close()

    with pytest.raises(InputError, match="the event time of topic 'orders' is computed"):
        run(computed, pa.table({"at": [1]}))
    for first in (
        lambda order: order["at"] if order["at"] is not None else order["due"],
        lambda order: order["at"] or order["due"],
        lambda order: first_of(order["at"], order["due"]),
    ):
        with pytest.raises(InputError, match="the event time of topic 'orders' is computed"):
            run(Topic("orders", value=dict, timestamp=first), pa.table({"at": [None, 1], "due": [1, 2]}))
    with pytest.raises(InputError, match="since 2026-01-01T00:00:00Z is not before until 2025-12-31T00:00:00Z"):
        run(plain, pa.table({"at": [1]}), until="2025-12-31")
    with pytest.raises(InputError, match=r"since needs a column 'at' with timestamps.*but it is string"):
        run(plain, pa.table({"at": ["2026-01-01"]}))
    path = tmp_path / "orders.jsonl"
    path.write_text('{"at": 1}\n')
    with pytest.raises(InputError, match="the input of topic 'orders' is not a table"):
        run(plain, path)


def test_explain_reads_the_log_and_a_sample(lake: Lake, tmp_path: Path) -> None:
    """Bytes, shares and times are estimated as for files, and with resume only what is new."""
    rows = table_cases.rows(3000)
    lake.append("orders", table_cases.table(rows[:2000]))
    name = lake.name("orders")
    inputs = {table_cases.orders: name}
    given: dict[str, Any] = {"executor": "local", "processes": 1, "application_id": "a", "directory": tmp_path / "work"}
    found = explain(table_cases.topology, inputs, **given)

    assert f"{name}, version {lake.versions('orders')[-1]}, 1 file, 2,000 rows" in str(found)
    assert "takes about 1 s of CPU, and 1 s to write the outputs to tables" in str(found)
    assert found.inputs["orders"].times is not None
    replay(table_cases.topology, inputs, **given).close()
    size = sum(file.stat().st_size for file in (tmp_path / "work" / "inputs").rglob("*.parquet"))
    assert size / 2 < found.written["records of inputs"] < size * 2
    lake.append("orders", table_cases.table(rows[2000:]))
    assert explain(table_cases.topology, inputs, **given, resume=True).rows == 1000


@pytest.mark.slow
@pytest.mark.parametrize("source", [daily_job.topology, daily_job.counted])
def test_repaired_slices_replace_those_before(lake: Lake, tmp_path: Path, source: Any) -> None:
    folder = tmp_path / "daily"
    (folder / "rows").mkdir(parents=True)
    for day in range(3):
        daily_job.day_of(folder, day)
        with daily_job.daily(folder, source, slices="1d") as result:
            result.write("hours", lake.name("hours"), partition_by="day")
    daily_job.write(folder, 1, [daily_job.DAY + daily_job.HOUR])
    for day in range(3, 6):
        with daily_job.daily(folder, source, repair=True) as result:
            result.write("hours", lake.name("hours"), partition_by="day")
            expected = rows_of(result.table("hours").to_arrow())

        assert rows_of(lake.read("hours")) == expected
        daily_job.day_of(folder, day)
