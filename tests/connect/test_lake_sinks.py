"""The sinks into Delta and Iceberg tables: rows of every type, partitions, other writers, and what is refused."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from attrs import define, frozen
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CreateTableTransaction, Table
from pyiceberg.utils.config import Config

from streams.broker import EmbeddedBroker
from streams.clients import Producer
from streams.connect import ConnectError, DeltaSink, IcebergSink, SinkBlock, SinkFencedError, SinkWorker
from streams.core.blocks.records import Window, Windowed
from streams.core.errors import ConfigError
from streams.core.serdes.serdes import time_windowed
from streams.core.topic import Topic
from tests.waiting import until


@frozen
class Sale:
    country: str
    amount: Decimal
    lines: list[str]


SALES = Topic("sales", key=str, value=Sale)
TOTALS = Topic("totals", key=str, value=int)
DAY_MS = 86_400_000


@define
class Delta:
    """Delta tables in a folder."""

    folder: Path

    def sink(self, name: str, **options: Any) -> DeltaSink:
        return DeltaSink(str(self.folder / name), **options)

    def rows(self, name: str) -> list[dict[str, Any]]:
        return DeltaTable(str(self.folder / name)).to_pyarrow_table().to_pylist()

    def append(self, name: str, number: int) -> None:
        table = DeltaTable(str(self.folder / name))
        rows = table.to_pyarrow_table().slice(0, 0)
        one = dict.fromkeys(rows.column_names) | {"key": "other", "value": number}
        write_deltalake(table, pa.Table.from_pylist([one], rows.schema), mode="append")


@define
class Iceberg:
    """Tables of a catalog in a folder."""

    def sink(self, name: str, **options: Any) -> IcebergSink:
        return IcebergSink(f"shop.web.{name}", **options)

    def table(self, name: str) -> Any:
        return load_catalog("shop").load_table(f"web.{name}")

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self.table(name).scan().to_arrow().to_pylist()

    def append(self, name: str, number: int) -> None:
        table = self.table(name)
        schema = table.schema().as_arrow()
        one = dict.fromkeys(schema.names) | {"key": "other", "value": number}
        table.append(pa.Table.from_pylist([one], schema))


@pytest.fixture
def iceberg(tmp_path, monkeypatch) -> Iceberg:
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__WAREHOUSE", f"file://{tmp_path}")
    # The package reads its settings once.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return Iceberg()


@pytest.fixture(params=["delta", "iceberg"])
def lake(request, tmp_path) -> Delta | Iceberg:
    return Delta(tmp_path) if request.param == "delta" else request.getfixturevalue("iceberg")


def written(topic, records, sink, *, name="to-lake"):
    """Write records, each a (key, value, timestamp), to a new topic of 2 partitions, and all of it through the sink."""
    with EmbeddedBroker() as broker:
        broker.create_topic(topic.name, 2)
        with Producer(broker) as producer:
            for key, value, at in records:
                producer.send(topic, value, key=key, timestamp_ms=at)
        with SinkWorker(broker, topic, sink, name=name, batch_ms=5) as worker:
            until(lambda: worker.progress.lag == 0 or not worker.is_running, seen=lambda: worker.progress)


def before_commit(monkeypatch, lake, action):
    """Do something right before the next commit to the log of a table."""
    name = "deltalake.write_deltalake" if isinstance(lake, Delta) else "pyiceberg.table.Table._do_commit"
    original = deltalake.write_deltalake if isinstance(lake, Delta) else Table._do_commit

    def interrupted(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(name, original)
        action()
        return original(*given, **options)

    monkeypatch.setattr(name, interrupted)


def block(topic, at, *values, key="a"):
    """A block of partition 0 with these values, at offsets from ``at``."""
    size = len(values)
    return SinkBlock(topic, 0, range(at, at + size), [key] * size, values, [0] * size, None, at + size)


@pytest.mark.case
def test_each_record_is_a_row_in_the_partition_of_its_day_and_country(lake):
    records = [
        ("a", Sale("no", Decimal("1.5"), ["x"]), 0),
        ("b", Sale("dk", Decimal("2"), []), DAY_MS),
        ("a", Sale("no", Decimal("3"), ["y", "z"]), DAY_MS),
    ]
    written(SALES, records, lake.sink("sales", partition_by=["day", "value.country"]))

    rows = lake.rows("sales")
    found = sorted((row["timestamp"].date(), row["key"], row["value"]["amount"], row["value"]["lines"]) for row in rows)
    assert found == [
        (date(1970, 1, 1), "a", Decimal("1.5"), ["x"]),
        (date(1970, 1, 2), "a", Decimal("3"), ["y", "z"]),
        (date(1970, 1, 2), "b", Decimal("2"), []),
    ]
    if isinstance(lake, Delta):
        assert {(row["day"], row["country"]) for row in rows} == {
            (date(1970, 1, 1), "no"),
            (date(1970, 1, 2), "no"),
            (date(1970, 1, 2), "dk"),
        }


@pytest.mark.case
def test_tombstones_and_windows_are_rows(lake):
    counts = Topic("counts", key=time_windowed(str, timedelta(seconds=1)), value=int)
    key = Windowed("a", Window(0, 1_000))
    written(counts, [(key, 1, 0), (key, None, 5)], lake.sink("counts"))

    rows = sorted(lake.rows("counts"), key=lambda row: row["offset"])
    assert [(row["key"], row["value"]) for row in rows] == [("a", 1), ("a", None)]
    assert rows[0]["window_end"].replace(tzinfo=None) == datetime(1970, 1, 1, 0, 0, 1)


@pytest.mark.case
def test_a_sink_that_was_overtaken_is_fenced_and_others_are_not(lake):
    first, second, other = lake.sink("totals"), lake.sink("totals"), lake.sink("totals")
    assert first.open("to-lake", TOTALS, [0]) == {}
    assert second.open("to-lake", TOTALS, [0, 1]) == {}
    assert other.open("another", TOTALS, [0]) == {}
    first.write(block(TOTALS, 0, 1))
    second.write(block(TOTALS, 0, 1, 2))
    other.write(block(TOTALS, 0, 7))
    second.commit()
    other.commit()

    with pytest.raises(SinkFencedError, match=r"totals.* is 2, no longer None: another worker has written there"):
        first.commit()
    assert first.open("to-lake", TOTALS, [0, 1]) == {0: 2}
    first.write(block(TOTALS, 2, 3))
    first.write(block(TOTALS, 3, 4))
    lake.append("totals", 8)
    first.commit()
    assert sorted(row["value"] for row in lake.rows("totals")) == [1, 2, 3, 4, 7, 8]
    assert second.open("to-lake", TOTALS, [0, 1]) == {0: 4}
    for sink in (first, second, other):
        sink.close()


def test_a_worker_that_commits_within_the_commit_of_another_fences_it(lake, monkeypatch):
    """The second one commits after the first has checked the positions, and before it writes the table's log."""
    first, second = lake.sink("totals"), lake.sink("totals")
    for sink in (first, second):
        sink.open("to-lake", TOTALS, [0])
        sink.write(block(TOTALS, 0, 1))
    before_commit(monkeypatch, lake, second.commit)

    with pytest.raises(SinkFencedError, match="is 1, no longer None"):
        first.commit()
    assert [row["value"] for row in lake.rows("totals")] == [1]


@pytest.mark.case
def test_another_writer_within_a_commit_is_no_reason_to_lose_or_repeat_rows(lake, monkeypatch):
    sink = lake.sink("totals")
    sink.open("to-lake", TOTALS, [0])
    sink.write(block(TOTALS, 0, 1))
    before_commit(monkeypatch, lake, lambda: lake.append("totals", 8))
    if isinstance(lake, Iceberg):
        # It has no way to say that only these positions have to be the same.
        with pytest.raises(CommitFailedException) as conflict:
            sink.commit()
        assert sink.is_retriable(conflict.value)
        sink.abort()
        assert sink.open("to-lake", TOTALS, [0]) == {}
        sink.write(block(TOTALS, 0, 1))
    sink.commit()

    assert sorted(row["value"] for row in lake.rows("totals")) == [1, 8]


@pytest.mark.case
def test_what_does_not_fit_is_refused_with_its_place(lake):
    with pytest.raises(ConfigError, match=r"partition_by 'value.town': there is no such column; give day, key"):
        written(SALES, [], lake.sink("sales", partition_by="value.town"))
    with pytest.raises(ConnectError, match=r"sales-\d, offsets from 0 to 0: .*does not fit"):
        written(SALES, [("a", Sale("no", Decimal("1e-30"), []), 0)], lake.sink("sales"))
    with pytest.raises(ConfigError, match="is partitioned by nothing, partition_by is day"):
        written(SALES, [], lake.sink("sales", partition_by="day"))
    with pytest.raises(ConfigError, match="has no column window_"):
        windowed = Topic("sales", key=time_windowed(str, timedelta(seconds=1)), value=Sale)
        written(windowed, [], lake.sink("sales"))


def test_positions_of_an_expired_snapshot_are_those_of_the_table(iceberg):
    sink = iceberg.sink("totals")
    sink.open("to-lake", TOTALS, [0])
    sink.write(block(TOTALS, 0, 1))
    sink.commit()
    iceberg.append("totals", 8)
    table = iceberg.table("totals")
    table.maintenance.expire_snapshots().by_id(table.history()[0].snapshot_id).commit()

    assert sink.open("to-lake", TOTALS, [0]) == {0: 1}
    sink.close()


def test_two_sinks_that_create_a_table_at_once_make_one_with_its_partitions(iceberg, monkeypatch):
    first, second = (iceberg.sink("totals", partition_by="day") for _ in range(2))
    original = CreateTableTransaction.commit_transaction

    def overtaken(creation):
        monkeypatch.setattr(CreateTableTransaction, "commit_transaction", original)
        second.open("another", TOTALS, [0])
        return original(creation)

    monkeypatch.setattr(CreateTableTransaction, "commit_transaction", overtaken)
    first.open("to-lake", TOTALS, [0])
    first.write(block(TOTALS, 0, 1))
    first.commit()

    assert [field.name for field in iceberg.table("totals").spec().fields] == ["day"]
    assert [row["value"] for row in iceberg.rows("totals")] == [1]
    for sink in (first, second):
        sink.close()
