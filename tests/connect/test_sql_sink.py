"""The sink into a database of SQLAlchemy, with SQLite and, through its driver, Postgres."""

import re
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pydantic
import pytest
import sqlalchemy

from streams.connect import ConnectError, SinkBlock, SinkFencedError
from streams.connect.sql_sink import SqlSink
from streams.connect.table_columns import table_shape
from streams.core.errors import ConfigError
from streams.core.topic import Topic
from tests.connect.test_postgres_sink import rows as postgres_rows
from tests.connect.test_postgres_sink import written
from tests.waiting import WATCHDOG_S, until


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


@dataclass
class Counted:
    number: int


@dataclass
class Cases:
    a: int
    A: int


@dataclass
class Visit:
    id: UUID
    at: datetime
    hour: time
    day: date
    price: Decimal


ID = UUID(int=5)
EAST = timezone(timedelta(hours=2))
VISIT = Visit(ID, datetime(2024, 1, 2, 12, tzinfo=EAST), time(1, 2), date(2024, 1, 2), Decimal("1.10"))


def test_sqlite_has_times_in_utc_and_ids(tmp_path):
    """It has no zones: noon in the east is ten o'clock."""
    path = tmp_path / "visits.db"
    written(Topic("visits", key=UUID, value=Visit), [(ID, VISIT)], SqlSink(f"sqlite:///{path}", "visits", create=True))

    ((key, found, at, hour, day, price),) = rows(path, "select * from visits")
    assert (key, found, at) == (ID.hex, ID.hex, "2024-01-02 10:00:00.000000")
    assert (hour, day, price) == ("01:02:00.000000", "2024-01-02", 1.1)


def test_columns_of_text_have_values_of_any_type_as_they_are(tmp_path):
    path = tmp_path / "visits.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table visits (id text, at text, hour text, day text, price text)")
    visit = replace(VISIT, price=Decimal("12345678901234567.123456789"))
    written(Topic("visits", value=Visit), [(None, visit)], SqlSink(f"sqlite:///{path}", "visits", mode="append"))

    assert rows(path, "select * from visits") == [
        (str(ID), "2024-01-02T10:00:00+00:00", "01:02:00", "2024-01-02", "12345678901234567.123456789")
    ]


@pytest.mark.parametrize(
    ("form", "value", "message"),
    [
        (Decimal, Decimal("12345678901234567.123456789"), "column 'value': SQLite holds numbers as floats"),
        (float, float("nan"), "column 'value': SQLite has no NaN"),
        (time, time(1, 2, tzinfo=EAST), "has no zones, and would change 01:02:00.02:00"),
        (Counted, Counted(2**63), "the driver of the database rejects the rows: .* too large"),
    ],
    ids=str,
)
def test_a_value_that_sqlite_would_change_is_refused(tmp_path, form, value, message):
    sink = SqlSink(f"sqlite:///{tmp_path / 'values.db'}", "rows", mode="append", create=True)
    with pytest.raises(ConnectError, match=message):
        written(Topic("values", value=form), [(None, value)], sink)


def test_a_number_is_not_rounded_to_the_scale_of_its_column(postgres, database):
    engine = sqlalchemy.create_engine(postgres.url_of(database.rpartition("=")[2]))
    prices = Topic("prices", value=Decimal)
    big = [(None, Decimal("12345678901234567890.10")), (None, Decimal("1E+3"))]
    written(prices, big, SqlSink(engine, "prices", mode="append", create=True))
    with pytest.raises(ConnectError, match="more than the 18 digits after the point"):
        written(prices, [(None, Decimal("1E-19"))], SqlSink(engine, "prices", mode="append"), name="more")
    engine.dispose()

    assert [row[0] for row in postgres_rows(database, "select * from prices")] == [value for _, value in big]


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


def once(engine: sqlalchemy.Engine, moment: str, beginning: str, action: Callable[[], object]) -> None:
    """Do something once, before or after the first statement with this beginning."""
    left = [action]

    def listen(_connection, _cursor, statement, *_rest):
        if left and statement.split()[: len(beginning.split())] == beginning.split():
            left.pop()()

    sqlalchemy.event.listen(engine, f"{moment}_cursor_execute", listen)


@pytest.mark.parametrize("table", ["streams_positions", "totals"])
def test_a_table_that_another_sink_creates_meanwhile_is_used(tmp_path, table):
    address = f"sqlite:///{tmp_path / 'totals.db'}"
    first_engine = sqlalchemy.create_engine(address)
    first, second = SqlSink(first_engine, "totals", create=True), SqlSink(address, "totals", create=True)
    once(first_engine, "before", f"CREATE TABLE {table}", lambda: second.open("second", TOTALS, [0]))
    assert first.open("first", TOTALS, [0]) == {}
    first.write(SinkBlock(TOTALS, 0, [0], ["a"], [1], [0], None, 1))
    first.commit()
    first_engine.dispose()

    assert rows(tmp_path / "totals.db", "select * from totals") == [("a", 1)]


@pytest.mark.parametrize("table", ["streams_positions", "totals"])
def test_a_sink_waits_for_another_one_that_is_creating_the_table(postgres, database, table):
    address = postgres.url_of(database.rpartition("=")[2])
    first_engine, second_engine = sqlalchemy.create_engine(address), sqlalchemy.create_engine(address)
    second = SqlSink(second_engine, "totals", create=True)
    opened: list[Future[object]] = []
    waiting = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"

    with ThreadPoolExecutor() as threads:

        def open_second() -> None:
            opened.append(threads.submit(second.open, "second", TOTALS, [0]))
            until(lambda: postgres_rows(database, waiting))

        once(first_engine, "after", f"CREATE TABLE {table}", open_second)
        assert SqlSink(first_engine, "totals", create=True).open("first", TOTALS, [0]) == {}
        assert opened[0].result(WATCHDOG_S) == {}
    first_engine.dispose()
    second_engine.dispose()


def test_a_sink_that_may_not_create_its_table_says_why(postgres, database):
    engine = sqlalchemy.create_engine(postgres.url_of(database.rpartition("=")[2]))
    with pytest.raises(sqlalchemy.exc.ProgrammingError, match='schema "nowhere" does not exist'):
        SqlSink(engine, "nowhere.totals", create=True).open("to-postgres", TOTALS, [0])
    engine.dispose()


@pytest.mark.parametrize("creates", [True, False])
def test_table_that_is_lost_is_not_made_anew_at_the_old_position(tmp_path, creates):
    """The rows before the position would be missing without a word."""
    path = tmp_path / "totals.db"
    written(TOTALS, RECORDS, SqlSink(f"sqlite:///{path}", "totals", create=True))
    sink = SqlSink(f"sqlite:///{path}", "totals", create=creates)
    with closing(sqlite3.connect(path)) as database:
        database.execute("drop table totals")
        with pytest.raises(ConfigError, match="the connector 'to-postgres' has positions in topic 'totals'") as caught:
            written(TOTALS, RECORDS, sink)
        assert rows(path, "select name from sqlite_master where type = 'table'") == [("streams_positions",)]

        remedy = str(caught.value).partition("to write all rows again: ")[2].partition(";")[0]
        database.execute(remedy)
        database.commit()
    written(TOTALS, RECORDS, SqlSink(f"sqlite:///{path}", "totals", create=True))

    assert rows(path, "select * from totals order by key") == [("a", 3), ("c", 4), ("d", 6)]


def test_a_key_column_that_is_missing_can_be_added_as_the_error_says(tmp_path):
    sink = SqlSink(f"sqlite:///{tmp_path / 'totals.db'}", "totals")
    with closing(sqlite3.connect(tmp_path / "totals.db")) as database:
        database.execute("create table totals (value integer)")
        for message in ("the table has no column 'key'; (ALTER TABLE .*)", "the columns key: (CREATE UNIQUE INDEX .*)"):
            with pytest.raises(ConfigError, match=message) as caught:
                sink.open("to-sqlite", TOTALS, [0])
            remedy = re.search(message, str(caught.value))
            assert remedy is not None
            database.execute(remedy[1])
    assert sink.open("to-sqlite", TOTALS, [0]) == {}


@pytest.mark.parametrize(
    ("dialect", "addition"),
    [
        ("mssql", "ADD value BIGINT NULL"),
        ("oracle", "ADD value NUMBER(19)"),
        ("mysql", "ADD COLUMN value BIGINT"),
        ("sqlite", "ADD COLUMN value BIGINT"),
    ],
)
def test_a_column_is_added_as_the_dialect_says(dialect, addition):
    sink = SqlSink(sqlalchemy.create_mock_engine(f"{dialect}://", print), "totals")

    assert sink._addition(table_shape(TOTALS).values[0]) == addition


class Colour(Enum):
    RED = "red"


def test_choices_and_bytes_of_a_model_are_the_texts_that_they_are_in_json():
    class Order(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(use_enum_values=True)
        colour: Colour
        note: bytes = b"ab"

    columns = table_shape(Topic("orders", key=str, value=Order)).values

    assert [column.values([Order(colour=Colour.RED), None]) for column in columns] == [["red", None], ["ab", None]]


def test_what_does_not_fit_is_refused_with_a_remedy(tmp_path):
    address = f"sqlite:///{tmp_path / 'totals.db'}"
    database = sqlite3.connect(tmp_path / "totals.db")
    with pytest.raises(ConfigError, match="the table does not exist"):
        written(TOTALS, [], SqlSink(address, "totals"))
    database.execute("create table totals (key text)")
    with pytest.raises(ConfigError, match="has no column 'value'; ALTER TABLE totals ADD COLUMN value BIGINT"):
        written(TOTALS, [], SqlSink(address, "totals"))
    database.execute("alter table totals add column value integer check (value > 0)")
    with pytest.raises(ConfigError, match="an upsert needs a primary key, or a unique index, of the columns key"):
        written(TOTALS, [], SqlSink(address, "totals"))
    with pytest.raises(ConnectError, match="rejects the rows: CHECK constraint failed"):
        written(TOTALS, [("a", -1)], SqlSink(address, "totals", mode="append"))
    with pytest.raises(ConfigError, match="apart that differ by case alone: key, a, A"):
        written(Topic("cases", key=str, value=Cases), [], SqlSink(address, "cases", create=True))
    with pytest.raises(ConfigError, match="Can't load plugin"):
        SqlSink("nonsense://x", "totals")
    database.close()
