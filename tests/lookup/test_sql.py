"""Look-ups by a query: through a DBAPI connection, or an engine of SQLAlchemy."""

import pickle
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams import ConfigError, EmbeddedBroker, Producer, Streams, StreamsBuilder, StreamsError, Topic
from streams.lookup import SqlLookUp
from streams.testing import TopologyTestDriver
from tests.waiting import until

ORDERS = Topic("orders", key=str, value=int)
FOUND = Topic("found", key=str, value=str)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "shop.db"
    with sqlite3.connect(file) as database:
        database.execute("create table customers (id, name, city)")
        rows = [("ann", "Ann", "Oslo"), ("bob", "Bob", "Rome"), ("two", "a", "x"), ("two", "b", "y")]
        database.executemany("insert into customers values (?, ?, ?)", rows)
    database.close()
    return file


class Opener:
    """Opens connections, and has those that it opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: list[sqlite3.Connection] = []

    def __call__(self) -> sqlite3.Connection:
        self.opened.append(sqlite3.connect(self.path, check_same_thread=False))
        return self.opened[-1]


def test_columns_of_the_row_make_the_answer_and_no_row_is_not_found(path: Path) -> None:
    look_up = SqlLookUp(
        "select name, city from customers where id = ?", Opener(path), row=lambda name, city: f"{name}, {city}"
    )

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).look_up(look_up).map_pairs(lambda amount, answer: f"{amount} {answer}").to(FOUND)

    with TopologyTestDriver(topology) as driver:
        driver.pipe_all(ORDERS, [("ann", 1, 0), ("eve", 2, 1)])
        assert driver.read(FOUND) == [("ann", "1 Ann, Oslo"), ("eve", "2 None")]


def test_several_rows_are_an_error(path: Path) -> None:
    with pytest.raises(StreamsError, match=r"SqlLookUp\('select name.*more than one row for 'two': make it unique"):
        SqlLookUp("select name from customers where id = ?", Opener(path), row=str)("two")


def test_parameters_may_be_several_and_named(path: Path) -> None:
    query = "select city from customers where id = :id and name = :name"
    look_up = SqlLookUp(
        query, Opener(path), row=str, parameters=lambda key: dict(zip(("id", "name"), key, strict=True))
    )
    assert look_up(("two", "b")) == "y"


def test_failed_query_closes_its_connection_and_the_next_call_opens_another(path: Path) -> None:
    opener = Opener(path)
    look_up = SqlLookUp("select city from customers where id = ?", opener, row=str)
    assert look_up("ann") == "Oslo"
    opener.opened[0].close()

    with pytest.raises(sqlite3.ProgrammingError):
        look_up("ann")
    assert look_up("ann") == "Oslo"
    assert len(opener.opened) == 2


def test_each_query_sees_what_others_have_committed(path: Path) -> None:
    look_up = SqlLookUp("select city from customers where id = ?", Opener(path), row=str)
    assert look_up("ann") == "Oslo"
    with sqlite3.connect(path) as database:
        database.execute("update customers set city = 'Bergen' where id = 'ann'")
    database.close()
    assert look_up("ann") == "Bergen"


def test_threads_of_a_live_application_have_a_connection_each(path: Path) -> None:
    opener, both = Opener(path), threading.Barrier(2)

    def city(name: str) -> str:
        both.wait()
        return name

    look_up = SqlLookUp("select city from customers where id = ?", opener, row=city)

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).look_up(look_up).map_pairs(lambda _, answer: str(answer)).to(FOUND)

    with EmbeddedBroker() as broker, Producer(broker) as producer:
        for key in ("ann", "bob"):
            producer.send(ORDERS, 0, key=key)
        with Streams(topology, application_id="app", broker=broker) as app:
            until(lambda: app.metrics.get("process") == 2)
            until(lambda: len(opener.opened) == 2)


def test_look_up_is_pickled_without_its_connections(path: Path) -> None:
    look_up = SqlLookUp("select city from customers where id = ?", Opener(path), row=str)
    assert pickle.loads(pickle.dumps(look_up))("bob") == "Rome"


def test_engine_of_sqlalchemy(path: Path) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    look_up = SqlLookUp("select city from customers where id = :key", engine, row=str)
    assert (look_up("ann"), look_up("eve")) == ("Oslo", None)
    with pytest.raises(StreamsError, match="more than one row for 'two'"):
        look_up("two")
    engine.dispose()


def test_missing_sqlalchemy_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[sql\]'"):
        SqlLookUp("select 1", object(), row=str)


@pytest.mark.parametrize("source", [sqlite3.connect(":memory:"), "sqlite://", None])
def test_source_that_opens_no_connection_is_refused(source: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", SimpleNamespace(text=str))
    with pytest.raises(ConfigError, match="source must be a function that opens a DBAPI connection, or an SQLAlchemy"):
        SqlLookUp("select 1", source, row=str)


@pytest.mark.parametrize("name", ["source", "row", "parameters"])
def test_async_functions_are_refused(name: str) -> None:
    async def function(value: object = None) -> Any: ...

    functions: Any = {"source": sqlite3.connect, "row": str, name: function}
    with pytest.raises(ConfigError, match=rf"{name}=? of SqlLookUp.* is async"):
        SqlLookUp("select 1", functions.pop("source"), **functions)


@pytest.mark.parametrize("returned", [None, 5])
def test_source_that_returns_no_connection_is_named(returned: Any) -> None:
    def opened() -> Any:
        return returned

    look_up: SqlLookUp[str, str] = SqlLookUp("select 1", opened, row=str)
    with pytest.raises(ConfigError, match=rf"opened' \(.*\) must return a DBAPI connection, but returned {returned}"):
        look_up("ann")
