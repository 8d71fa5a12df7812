"""The sink into a database of SQLAlchemy, with SQLite and, through its driver, Postgres."""

import sqlite3
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import pytest
import sqlalchemy

from streams.connect import ConnectError, SinkBlock, SinkFencedError
from streams.connect.sql_sink import SqlSink
from streams.core.errors import ConfigError
from streams.core.topic import Topic
from tests.connect.test_postgres_sink import rows as postgres_rows
from tests.connect.test_postgres_sink import written


@dataclass
class Sale:
    amount: Decimal
    at: datetime
    items: list[str]


TOTALS = Topic("totals", key=str, value=int)
RECORDS = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", None), ("d", 5), ("d", None), ("d", 6)]


def rows(path, query):
    database = sqlite3.connect(path)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def test_the_last_record_of_a_key_is_its_row(tmp_path):
    path = tmp_path / "totals.db"
    written(TOTALS, RECORDS, SqlSink(f"sqlite:///{path}", "totals", create=True), partitions=3)

    assert rows(path, "select * from totals order by key") == [("a", 3), ("c", 4), ("d", 6)]


def test_an_engine_of_postgres_gets_the_same_rows(postgres, database):
    name = database.rpartition("=")[2]
    engine = sqlalchemy.create_engine(postgres.url_of(name))
    written(TOTALS, RECORDS, SqlSink(engine, "public.totals", create=True))
    engine.dispose()

    assert postgres_rows(database, "select * from totals order by key") == [("a", 3), ("c", 4), ("d", 6)]


def test_a_database_without_upserts_gets_deletions_and_insertions(tmp_path, monkeypatch):
    path = tmp_path / "totals.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    monkeypatch.setattr(engine.dialect, "name", "another")
    written(TOTALS, RECORDS, SqlSink(engine, "totals", create=True))
    engine.dispose()

    assert rows(path, "select * from totals order by key") == [("a", 3), ("c", 4), ("d", 6)]


def test_an_append_has_a_row_per_record_and_nested_values_are_json(tmp_path):
    path = tmp_path / "sales.db"
    sales = Topic("sales", key=str, value=Sale)
    records = [("a", Sale(Decimal("1.5"), datetime(2024, 1, 2, 3, 4), ["x"])), ("a", None)]
    written(sales, records, SqlSink(f"sqlite:///{path}", "sales", mode="append", create=True))

    assert rows(path, "select key, amount, at, items from sales") == [
        ("a", 1.5, "2024-01-02 03:04:00.000000", '["x"]'),
        ("a", None, None, None),
    ]


def test_a_sink_that_was_overtaken_is_fenced(tmp_path):
    address = f"sqlite:///{tmp_path / 'totals.db'}"
    first, second = SqlSink(address, "totals", create=True), SqlSink(address, "totals", create=True)
    for at in range(2):
        for number, sink in enumerate((first, second)):
            assert sink.open("to-sqlite", TOTALS, [0]) == ({0: 1} if at else {})
            sink.write(SinkBlock(TOTALS, 0, [at], ["a"], [number], [0], None, at + 1))
        second.commit()
        with pytest.raises(SinkFencedError, match="in totals-0 is no longer"):
            first.commit()

    assert rows(tmp_path / "totals.db", "select * from totals") == [("a", 1)]


def test_what_does_not_fit_is_refused_with_a_remedy(tmp_path):
    address = f"sqlite:///{tmp_path / 'totals.db'}"
    database = sqlite3.connect(tmp_path / "totals.db")
    with pytest.raises(ConfigError, match="the table does not exist"):
        written(TOTALS, [], SqlSink(address, "totals"))
    database.execute("create table totals (key text)")
    with pytest.raises(ConfigError, match="has no column 'value'; add value"):
        written(TOTALS, [], SqlSink(address, "totals"))
    database.execute("alter table totals add column value integer check (value > 0)")
    with pytest.raises(ConfigError, match="an upsert needs a primary key, or a unique index, of the columns key"):
        written(TOTALS, [], SqlSink(address, "totals"))
    with pytest.raises(ConnectError, match="rejects the rows: CHECK constraint failed"):
        written(TOTALS, [("a", -1)], SqlSink(address, "totals", mode="append"))
    with pytest.raises(ConfigError, match="Can't load plugin"):
        SqlSink("nonsense://x", "totals")
    database.close()
