"""The sink into Postgres: rows of every type, upserts and deletions, and what is refused."""

import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Literal, TypedDict

import psycopg
import pytest
from pydantic import BaseModel

from streams.broker import EmbeddedBroker
from streams.clients import Producer
from streams.connect import ConnectError, SinkFencedError, SinkWorker
from streams.connect.postgres.postgres_sink import PostgresSink
from streams.core.blocks.records import Window, Windowed
from streams.core.errors import ConfigError
from streams.core.serdes.serdes import time_windowed
from streams.core.topic import Topic
from tests.waiting import until

TOKEN = uuid.UUID(int=7)


class Color(Enum):
    RED = "red"


@dataclass
class Line:
    sku: str
    count: int


@dataclass
class Order:
    id: int
    text: str | None = "a\tb\\c\nd"
    amount: Decimal = Decimal("12345678901234567890.123456789")
    at: datetime = datetime(2024, 1, 2, 3, 4, 5, 678901)
    aware: datetime = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    day: date = date(2024, 1, 2)
    hour: time = time(3, 4, 5)
    token: uuid.UUID = TOKEN
    is_paid: bool = True
    ratio: float = 0.1
    data: bytes = b"\x00\xff\\"
    color: Color = Color.RED
    kind: Literal["big", "small"] = "big"
    lasts: timedelta = timedelta(hours=1)
    lines: list[Line] = field(default_factory=lambda: [Line("x", 1)])
    tags: dict[str, int] = field(default_factory=lambda: {"a": 1})


def rows(dsn: str, query: str) -> list[tuple]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query).fetchall()


def written(topic, records, sink, *, partitions=1, name="to-postgres"):
    """Write records, each a (key, value), to a new topic, and all of it through the sink."""
    with EmbeddedBroker() as broker:
        broker.create_topic(topic.name, partitions)
        with Producer(broker) as producer:
            for key, value in records:
                producer.send(topic, value, key=key, timestamp_ms=1_000)
        with SinkWorker(broker, topic, sink, name=name, batch_ms=5) as worker:
            until(lambda: worker.progress.lag == 0 or not worker.is_running, seen=lambda: worker.progress)
        return worker.progress


def test_values_of_every_type_are_columns(database):
    orders = Topic("orders", key=str, value=Order)
    written(orders, [("a", Order(1))], PostgresSink(database, "orders", create=True))

    ((key, *values),) = rows(database, "select * from orders")
    assert key == "a"
    one = Order(1)
    assert values[:4] == [1, one.text, one.amount, one.at.replace(tzinfo=UTC)]
    assert values[4:10] == [one.aware, one.day, one.hour, one.token, True, 0.1]
    assert values[10:14] == [one.data, "red", "big", "PT3600S"]
    assert values[14:] == [[{"sku": "x", "count": 1}], {"a": 1}]


def test_an_empty_text_alone_is_a_row(database):
    """Its COPY has one empty line."""
    written(Topic("notes", value=str), [(None, "")], PostgresSink(database, "notes", mode="append", create=True))

    assert rows(database, "select * from notes") == [("",)]


def test_the_last_record_of_a_key_is_its_row_and_a_tombstone_deletes_it(database):
    totals = Topic("totals", key=str, value=int)
    records = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", None), ("d", 5), ("d", None), ("d", 6)]
    written(totals, records, PostgresSink(database, "totals", create=True), partitions=3)

    assert rows(database, "select * from totals order by key") == [("a", 3), ("c", 4), ("d", 6)]


def test_an_append_has_a_row_per_record_with_its_time(database):
    totals = Topic("totals", key=str, value=int)
    sink = PostgresSink(database, "public.totals", mode="append", key="name", timestamp="at", create=True)
    written(totals, [("a", 1), (None, 2), ("a", None)], sink)

    at = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert rows(database, "select * from totals") == [("a", 1, at), (None, 2, at), ("a", None, at)]


def test_a_windowed_key_has_the_columns_of_its_window(database):
    counts = Topic("counts", key=time_windowed(str, timedelta(seconds=1)), value=int)
    records = [(Windowed("a", Window(0, 1_000)), 1), (Windowed("a", Window(1_000, 2_000)), 1)]
    written(counts, records, PostgresSink(database, "counts", create=True))

    found = rows(database, "select key, extract(epoch from window_start)::int, value from counts order by 2")
    assert found == [("a", 0, 1), ("a", 1, 1)]


class City(BaseModel):
    name: str


class Guest(BaseModel):
    name: str
    home: City


def test_models_of_pydantic_are_columns(database):
    guests = Topic("guests", key=int, value=Guest)
    sink = PostgresSink(database, "guests", key="id", create=True)
    written(guests, [(1, Guest(name="Ann", home=City(name="Oslo")))], sink)

    assert rows(database, "select id, name, home from guests") == [(1, "Ann", {"name": "Oslo"})]


class Place(TypedDict):
    country: str
    city: str


class Visit(TypedDict):
    city: str
    visitors: int


def test_a_field_with_the_name_of_a_key_column_is_that_column(database):
    visits = Topic("visits", key=Place, value=Visit)
    sink = PostgresSink(database, "visits", create=True)
    written(visits, [(Place(country="no", city="Oslo"), Visit(city="Oslo", visitors=3))], sink)
    assert rows(database, "select country, city, visitors from visits") == [("no", "Oslo", 3)]

    with pytest.raises(ConnectError, match=r"offset 0: column 'city' is 'Oslo' in the key and 'Rome' in the value"):
        records = [(Place(country="no", city="Oslo"), Visit(city="Rome", visitors=3))]
        written(visits, records, PostgresSink(database, "visits"), name="another")


def test_values_without_fixed_columns_are_json(database):
    events = Topic("events", key=str, value=dict)
    written(events, [("a", {"x": [1, None]})], PostgresSink(database, "events", create=True))

    assert rows(database, "select key, value from events") == [("a", {"x": [1, None]})]


TOTALS = Topic("totals", key=str, value=int)


def test_what_does_not_fit_the_table_is_refused_with_a_remedy(database):
    with pytest.raises(ConfigError, match="the table does not exist; create it, or give create=True"):
        written(TOTALS, [], PostgresSink(database, "totals"))
    with psycopg.connect(database) as connection:
        connection.execute("create table totals (key text)")
    with pytest.raises(ConfigError, match="ALTER TABLE totals ADD COLUMN value bigint"):
        written(TOTALS, [], PostgresSink(database, "totals"))
    with psycopg.connect(database) as connection:
        connection.execute("alter table totals add column value bigint")
    with pytest.raises(ConfigError, match=r"CREATE UNIQUE INDEX totals_key ON totals \(key\)"):
        written(TOTALS, [], PostgresSink(database, "totals"))
    with pytest.raises(ConfigError, match="names 2 columns, but a key has 1: key"):
        written(TOTALS, [], PostgresSink(database, "totals", key=["a", "b"]))
    with pytest.raises(ConfigError, match="has no keys"):
        written(Topic("keyless", value=int), [(None, 1)], PostgresSink(database, "totals"))
    with pytest.raises(ConfigError, match='database "nowhere" does not exist'):
        written(TOTALS, [], PostgresSink(database + "x".replace("x", " dbname=nowhere"), "totals"))


def test_table_that_is_lost_is_not_made_anew_at_the_old_position(database):
    """The rows before the position would be missing without a word."""
    written(TOTALS, [("a", 1)], PostgresSink(database, "totals", create=True))
    with psycopg.connect(database) as connection:
        connection.execute("drop table totals")
    with pytest.raises(ConfigError, match="the connector 'to-postgres' has positions in topic 'totals'") as caught:
        written(TOTALS, [("a", 1)], PostgresSink(database, "totals", create=True))
    remedy = str(caught.value).partition("to write all rows again: ")[2].partition(";")[0]
    with psycopg.connect(database) as connection:
        connection.execute(remedy)
    written(TOTALS, [("a", 1)], PostgresSink(database, "totals", create=True))

    assert rows(database, "select * from totals") == [("a", 1)]


def test_rows_that_the_database_rejects_end_the_worker_with_its_words(database):
    with psycopg.connect(database) as connection:
        connection.execute("create table totals (key text primary key, value bigint check (value > 0))")

    with pytest.raises(ConnectError, match=r"rejects the rows: .*violates check constraint"):
        written(TOTALS, [("a", 1), ("b", -1)], PostgresSink(database, "totals"))
    with pytest.raises(ConnectError, match=r"totals-0, offset 0: the record has no key"):
        written(TOTALS, [(None, 1)], PostgresSink(database, "totals"), name="another")
    assert rows(database, "select * from totals") == []


def test_a_sink_that_was_overtaken_is_fenced_and_writes_nothing(database):
    from streams.connect import SinkBlock

    first, second = PostgresSink(database, "totals", create=True), PostgresSink(database, "totals")
    for number, sink in enumerate((first, second)):
        assert sink.open("to-postgres", TOTALS, [0]) == {}
        sink.write(SinkBlock(TOTALS, 0, [0], ["a"], [number], [0], None, 1))
    second.commit()

    with pytest.raises(SinkFencedError, match="the position of 'to-postgres' in totals-0 is no longer None"):
        first.commit()
    assert first.open("to-postgres", TOTALS, [0]) == {0: 1}
    first.write(SinkBlock(TOTALS, 0, [1], ["a"], [2], [0], None, 2))
    first.commit()
    first.close()
    second.close()
    assert rows(database, "select * from totals") == [("a", 2)]


def test_a_connection_that_is_cut_is_made_again(database):
    with EmbeddedBroker() as broker:
        broker.create_topic("totals", 1)
        sink = PostgresSink(database, "totals", mode="append", create=True)
        with SinkWorker(broker, TOTALS, sink, name="to-postgres", batch_ms=5, retry_backoff_ms=1) as worker:
            for number in range(3):
                with Producer(broker) as producer:
                    producer.send(TOTALS, number, key="a")
                until(lambda number=number: worker.progress.records == number + 1, seen=lambda: worker.progress)
                query = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'streams %'"
                assert rows(database, query)

    assert rows(database, "select value from totals") == [(0,), (1,), (2,)]
    assert worker.progress.retries >= 2
