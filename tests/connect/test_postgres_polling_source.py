"""The source of rows of a table of Postgres by polling: nothing is missed, whenever a transaction commits."""

from contextlib import ExitStack
from datetime import UTC, datetime
from threading import Thread

import psycopg
import pytest
from attrs import frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams.connect import PostgresPollingSource, SourceWorker
from streams.core.errors import ConfigError
from streams.core.topic import Topic
from tests.connect.topics import records_of
from tests.waiting import until


@frozen
class Order:
    id: int
    text: str
    at: datetime


ORDERS = Topic("orders", key=int, value=Order)
TABLE = """
create table orders (
    id bigint generated always as identity primary key, text text, at timestamptz not null default now()
)
"""


@pytest.fixture
def table(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLE)
        yield connection


def source(database, **options):
    return PostgresPollingSource(database, "orders", **{"interval_ms": 1, "delay_ms": 0, "batch_records": 3, **options})


def opened(database, positions=None, **options):
    made = source(database, **options)
    made.open("orders-in", ORDERS, positions or {})
    return made


def texts(made):
    """What one poll returns, after which it may need more of them."""
    return [ORDERS.value_serde.deserialize(value).text for block in made.poll(0) for value in block.values]


def all_texts(made, turns=12):
    return [text for _ in range(turns) for text in texts(made)]


def insert(connection, text):
    connection.execute("insert into orders (text) values (%s)", [text])


def update(connection, old, new):
    connection.execute("update orders set text = %s, at = now() where text = %s", [new, old])


@pytest.mark.slow
def test_rows_are_in_the_topic_once_with_their_key_and_time(broker, database, table):
    for text in "abcdefgh":
        insert(table, text)
    with SourceWorker(broker, ORDERS, source(database, updated_at="at"), name="orders-in", poll_ms=5) as running:
        until(lambda: running.progress.records == 8 or running.wait(0), seen=lambda: running.progress)
        update(table, "b", "B")
        until(lambda: running.progress.records == 9 or running.wait(0), seen=lambda: running.progress)
    insert(table, "i")
    with SourceWorker(broker, ORDERS, source(database, updated_at="at"), name="orders-in", poll_ms=5) as running:
        until(lambda: running.progress.records == 1 or running.wait(0), seen=lambda: running.progress)

    found = records_of(broker, ORDERS)
    assert [(record.key, record.value.text) for record in found] == [
        *enumerate("abcdefgh", 1),
        (2, "B"),
        (9, "i"),
    ]
    assert all(record.timestamp_ms == int(record.value.at.timestamp() * 1000) for record in found)


@pytest.mark.case
@pytest.mark.parametrize("columns", [{}, {"updated_at": "at"}], ids=["id", "time"])
def test_a_transaction_that_commits_late_is_waited_for(database, table, columns):
    made = opened(database, **columns)
    with psycopg.connect(database) as late, psycopg.connect(database) as idle:
        late.execute("select nextval('orders_id_seq')")  # It has taken an id, and no lock of the table.
        insert(late, "late")
        insert(table, "early")
        assert all_texts(made) == []
        insert(table, "later")
        idle.execute("select 1")  # It has begun after the bound, so that it is not waited for.
        late.commit()
        assert all_texts(made) == ["late", "early"]
        idle.rollback()
        assert all_texts(made) == ["later"]
    made.close()


@pytest.mark.slow
def test_a_prepared_transaction_is_waited_for_and_another_database_is_not(database, table, postgres):
    made = opened(database)
    with psycopg.connect(postgres.dsn) as elsewhere:
        elsewhere.execute("select 1")
        insert(table, "a")
        assert all_texts(made) == ["a"]
    table.execute("begin")
    insert(table, "prepared")
    table.execute("prepare transaction 'two'")
    insert(table, "b")
    assert all_texts(made) == []
    table.execute("commit prepared 'two'")
    assert all_texts(made) == ["prepared", "b"]
    made.close()


@pytest.mark.slow
def test_a_batch_ends_within_rows_of_one_time(database, table):
    with table.transaction():
        for text in "abcdefg":
            insert(table, text)
    made, positions, found = opened(database, updated_at="at"), {}, []
    while len(found) < 7:
        blocks = made.poll(0)
        positions |= {block.partition: block.position for block in blocks}
        found += [ORDERS.value_serde.deserialize(value).text for block in blocks for value in block.values]
        made.close()
        made = opened(database, positions, updated_at="at")
    assert found == list("abcdefg")
    assert positions["orders"]["id"] == "7"
    assert all_texts(made) == []
    made.close()


@pytest.mark.slow
def test_a_row_is_read_when_its_time_is_as_old_as_the_delay(database, table):
    insert(table, "new")
    table.execute("insert into orders (text, at) values ('old', now() - interval '1 hour')")
    made = opened(database, updated_at="at", delay_ms=600_000)
    assert all_texts(made) == ["old"]
    made.close()


@pytest.mark.slow
def test_times_without_a_zone_are_in_utc(broker, database, table):
    table.execute("alter table orders alter at type timestamp using at at time zone 'UTC'")
    table.execute("insert into orders (text, at) values ('a', '2026-01-02 03:04:05.678')")

    @frozen
    class Plain:
        at: datetime

    topic = Topic("orders", key=int, value=Plain)
    with SourceWorker(broker, topic, source(database, updated_at="at"), name="orders-in", poll_ms=5) as running:
        until(lambda: running.progress.records == 1 or running.wait(0), seen=lambda: running.progress)
    (record,) = records_of(broker, topic)
    assert record.timestamp_ms == datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC).timestamp() * 1000


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["begin", "insert", "update", "commit", "rollback", "poll", "restart"])
    ),
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
@pytest.mark.parametrize("columns", [{}, {"updated_at": "at"}], ids=["id", "time"])
def test_whatever_writers_do_between_polls_every_committed_row_is_read(steps, columns, database):
    """Four writers with transactions that overlap, and a source that is opened again at its position at any moment."""
    with ExitStack() as stack:
        admin = stack.enter_context(psycopg.connect(database, autocommit=True))
        admin.execute("drop table if exists orders")
        admin.execute(TABLE)
        writers = [stack.enter_context(psycopg.connect(database)) for _ in range(4)]
        read, positions, made = [], {}, opened(database, **columns)

        def poll():
            for block in made.poll(0):
                read.extend(ORDERS.value_serde.deserialize(value) for value in block.values)
                positions[block.partition] = block.position

        for number, (index, step) in enumerate(steps):
            writer = writers[index]
            if step == "begin":
                writer.execute("select now(), nextval('orders_id_seq')")
            elif step == "insert":
                insert(writer, str(number))
            elif step == "update":
                # Rows that another transaction has updated would be waited for.
                ids = "select id from orders order by id desc limit 1 for update skip locked"
                writer.execute(f"update orders set text = %s, at = now() where id in ({ids})", [f"{number}'"])
            elif step == "commit":
                writer.commit()
            elif step == "rollback":
                writer.rollback()
            elif step == "poll":
                poll()
            else:
                made.close()
                made = opened(database, positions, **columns)
        for writer in writers:
            writer.commit()
        rows = dict(admin.execute("select id, text from orders").fetchall())
        for _ in range(len(steps) + 5):
            poll()
        made.close()

        ids = [order.id for order in read]
        if columns:
            assert {order.id: order.text for order in read} == rows
        else:
            assert ids == sorted(rows)


@pytest.mark.slow
def test_many_writers_at_once_and_nothing_is_missed(broker, database, table):
    """Threads with transactions of random length; the table has a row for each record."""

    def write(seed):
        import random

        chosen = random.Random(seed)
        with psycopg.connect(database) as connection:
            for number in range(60):
                insert(connection, f"{seed}-{number}")
                if chosen.random() < 0.5:
                    connection.execute("select count(*) from generate_series(1, %s)", [chosen.randrange(20_000)])
                if chosen.random() < 0.5:
                    (connection.rollback if chosen.random() < 0.2 else connection.commit)()

    writers = [Thread(target=write, args=[seed]) for seed in range(4)]
    made = source(database, batch_records=50)
    with SourceWorker(broker, ORDERS, made, name="orders-in", poll_ms=5) as running:
        for thread in writers:
            thread.start()
        for thread in writers:
            thread.join()
        (count,) = table.execute("select count(*) from orders").fetchone()
        until(lambda: running.progress.records >= count or running.wait(0), seen=lambda: running.progress)
    assert [record.key for record in records_of(broker, ORDERS)] == [
        number for (number,) in table.execute("select id from orders order by id")
    ]


@pytest.mark.slow
def test_what_rows_could_be_missed_by_is_refused(database, table):
    def refused(match, **options):
        with pytest.raises(ConfigError, match=match):
            opened(database, **options)

    refused("updated_at='changed' is none of the columns: id, text, at", updated_at="changed")
    refused("updated_at='text' may be null.* ALTER TABLE orders ALTER text SET NOT NULL", updated_at="text")
    refused("updated_at='id' is no timestamp, but bigint", updated_at="id")
    refused("id='at' is not unique", id="at")
    table.execute("alter table orders alter id set cache 10")
    refused("sequence orders_id_seq of id='id' has CACHE 10.*ALTER SEQUENCE orders_id_seq CACHE 1")
    opened(database, updated_at="at").close()
    insert(table, "a")
    table.execute("alter table orders alter id set cache 1")
    made = opened(database)
    (block,) = made.poll(0)
    made.close()
    position = {block.partition: block.position}
    assert position == {"orders": {"id": "1"}}
    refused("the position of 'orders-in' is one in id, not in at, id", updated_at="at", positions=position)
    table.execute("alter table orders drop constraint orders_pkey")
    with pytest.raises(ConfigError, match="has no primary key"):
        opened(database)
    table.execute("alter table orders alter id drop identity, add u uuid not null unique default gen_random_uuid()")
    with pytest.raises(ConfigError, match="has no primary key"):
        opened(database, id="u")
    table.execute("alter table orders add primary key (id)")
    refused("id='u' is no whole number, but uuid", id="u")
