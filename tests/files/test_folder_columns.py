"""Folders whose names have columns, as pandas, Hive, Spark and polars write them."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import frozen

from streams import InputError, StreamsBuilder, Topic
from streams.files import folder_cells, is_hidden, local_sources
from streams.replay import Files, explain, replay
from tests.files.test_reader import records


@frozen
class Sale:
    """A row with columns of folders of each type."""

    id: int
    region: str
    day: date
    n: int = 0
    price: Decimal | None = Decimal(1)
    is_new: bool = False


FOLDERS = "region=St.%20G%C3%A4llen/day=2026-01-01/n=007/price=__HIVE_DEFAULT_PARTITION__/is_new=true/_year=2026"
SALE = Sale(1, "St. Gällen", date(2026, 1, 1), 7, None, True)
TOPIC = Topic("sales", value=Sale, timestamp=lambda sale: datetime(2026, 1, 1, sale.id, tzinfo=UTC))


def write(folder: Path, suffix: str, rows: list[dict[str, Any]], kind: Any = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"part-0{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows, kind), path)
    elif suffix == ".csv":
        lines = [rows[0], *(row.values() for row in rows)]
        path.write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    else:
        path.write_text(json.dumps(rows) if suffix == ".json" else "".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path, topic: Topic[Any, Any] = TOPIC) -> list[Any]:
    return [
        topic.value_serde.deserialize(value)
        for source in local_sources(str(path))
        for _, _, value, _ in records(topic, source)
    ]


SUFFIXES = pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".json"])


@SUFFIXES
def test_columns_of_folders_are_columns_of_the_rows(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / FOLDERS, suffix, [{"id": 1}, {"id": 2}])
    sales = [SALE, Sale(2, *list(vars_of(SALE).values())[1:])]

    assert read(tmp_path) == sales
    assert read(path) == sales
    undeclared = {"region": "St. Gällen", "day": "2026-01-01", "n": "007", "price": None, "is_new": "true"}
    id_ = "1" if suffix == ".csv" else 1
    assert read(path, Topic("t", value=dict))[0] == {"id": id_, **undeclared, "_year": "2026"}


def vars_of(sale: Sale) -> dict[str, Any]:
    return {name: getattr(sale, name) for name in ("id", "region", "day", "n", "price", "is_new")}


@SUFFIXES
def test_a_cell_of_a_folder_that_does_not_fit_is_refused(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / "region=eu/day=20260101", suffix, [{"id": 1}])

    with pytest.raises(InputError, match=r"part-0.*(day|date)"):
        read(tmp_path)


@SUFFIXES
@pytest.mark.parametrize("region", ["eu", "us"])
def test_a_column_that_the_file_has_too_is_the_same_or_refused(tmp_path: Path, suffix: str, region: str) -> None:
    write(tmp_path / "region=eu/day=2026-01-01/n=7", suffix, [{"id": 1, "region": region, "n": 7}])

    if region == "eu":
        assert read(tmp_path) == [Sale(1, "eu", date(2026, 1, 1), 7)]
    else:
        with pytest.raises(InputError, match=r"column 'region' is .*, but 'eu' in the name of the folder"):
            read(tmp_path)


def test_names_of_folders() -> None:
    assert folder_cells("a=b=c/x%3D=%25/=z/w/part=1.csv") == {"a": "b=c", "x=": "%"}
    assert not is_hidden("_year=2026/a.csv")
    assert is_hidden("_temporary/a.csv")


def copied(builder: StreamsBuilder) -> None:
    builder.stream(TOPIC).to(Topic("out", value=Sale))


def test_a_replay_reads_the_columns_and_goes_on_by_files(tmp_path: Path) -> None:
    write(tmp_path / "sales" / FOLDERS, ".parquet", [{"id": 1}])
    options: dict[str, Any] = {"executor": "local", "directory": tmp_path / "work", "application_id": "app"}

    sales = {TOPIC: tmp_path / "sales"}
    assert explain(copied, sales, executor="local", application_id="app").inputs["sales"].rows == 1
    with replay(copied, sales, **options) as result:
        assert [record.value for record in result.rows("out")] == [SALE]
    write(tmp_path / "sales" / "region=us/day=2026-01-02", ".parquet", [{"id": 2}])
    with replay(copied, sales, resume=True, **options) as result:
        assert [record.value for record in result.rows("out")] == [SALE, Sale(2, "us", date(2026, 1, 2))]


@pytest.mark.parametrize("by_text", [True, False])
def test_a_replay_reads_csv_of_another_dialect(tmp_path: Path, by_text: bool) -> None:
    path = write(tmp_path / "region=eu/day=2026-01-01", ".csv", [{"id": 1}])
    path.write_text("id;n\n1;5\n", encoding="utf-16")
    options = "delimiter=;&encoding=utf-16"
    name = f"csv:{tmp_path}?{options}" if by_text else Files((str(path),), file_format=f"csv?{options}")

    assert explain(copied, {TOPIC: name}, executor="local", application_id="app").inputs["sales"].rows == 1
    with replay(copied, {TOPIC: name}, executor="local", directory=tmp_path / "work", application_id="app") as result:
        assert [record.value for record in result.rows("out")] == [Sale(1, "eu", date(2026, 1, 1), 5)]


@pytest.mark.parametrize("suffix", [".records.jsonl", ".parquet"])
def test_a_whole_record_has_the_fields_of_its_folders_or_is_refused(tmp_path: Path, suffix: str) -> None:
    """The default of ``n`` stood in."""
    value = {"id": 1, "region": "eu", "day": "2026-01-01"}
    at = datetime(2026, 1, 1, tzinfo=UTC) if suffix == ".parquet" else 5
    rows: list[dict[str, Any]] = [{"value": {**value, "n": 7}, "timestamp": at}]
    own = write(tmp_path / "n=7/hour=5", suffix, rows)
    other = write(tmp_path / "n=8/hour=5", suffix, [{**rows[0], "value": value}])

    sales = Topic("sales", value=Sale)
    assert [sale.n for sale in read(own, sales)] == [7]
    with pytest.raises(InputError, match=r"n=8/hour=5/part-0.*field 'n' is in the name of the folder, but not in the"):
        read(other, sales)
    if suffix == ".records.jsonl":  # A record of a dict is as it is, and a tombstone has no fields.
        assert read(other, Topic("t", value=dict)) == [value]
        assert read(write(tmp_path / "n=9", suffix, [{"value": None, "timestamp": 5}]), sales) == [None]
