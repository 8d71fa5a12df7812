"""The source of changes of a table of Postgres: the snapshot, changes, and what the server is not ready for."""

from datetime import UTC, datetime
from decimal import Decimal

import psycopg
import pytest
from attrs import frozen

from streams.connect import ConnectError, SourceWorker
from streams.connect.postgres.postgres_source import PostgresSource
from streams.core.errors import ConfigError
from streams.core.topic import Topic
from tests.connect.topics import last_positions, records_of
from tests.waiting import until


@frozen
class Order:
    id: int
    customer: str | None
    amount: Decimal = Decimal(0)
    at: datetime | None = None
    tags: list[str] | None = None
    note: dict | None = None


ORDERS = Topic("orders", key=int, value=Order)
TABLE = """
create table orders (
    id bigint primary key, customer text, amount numeric default 0, at timestamptz, tags text[], note jsonb
)
"""


@pytest.fixture
def table(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLE)
        yield connection
        connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")


def pairs(broker):
    return [(record.key, record.value and record.value.customer) for record in records_of(broker, ORDERS)]


def source(database, **options):
    return PostgresSource(database, "orders", interval_ms=5, **options)


def worker(broker, database, topic=ORDERS, name="orders-in", **options):
    return SourceWorker(broker, topic, source(database, **options), name=name, poll_ms=20, retry_backoff_ms=1)


def test_a_snapshot_and_then_every_change_are_in_the_topic_once(broker, database, table):
    table.execute("insert into orders (id, customer) select n, 'old' from generate_series(1, 5) n")
    with worker(broker, database, batch_records=2) as running:
        until(lambda: running.progress.records == 5, seen=lambda: running.progress)
        table.execute("insert into orders values (6, 'ann', 1.50, '2026-01-02 03:04:05.678+00', '{a,b}', '{\"x\": 1}')")
        table.execute("update orders set customer = 'bob' where id = 1")
        table.execute("delete from orders where id = 2")
        table.execute("update orders set id = 7 where id = 3")
        until(lambda: running.progress.records == 10, seen=lambda: running.progress)
    table.execute("insert into orders (id, customer) values (8, 'while it was away')")
    with worker(broker, database) as running:
        until(lambda: running.progress.records == 1, seen=lambda: running.progress)

    found = records_of(broker, ORDERS)
    assert [(record.key, record.value and record.value.customer) for record in found] == [
        *((number, "old") for number in range(1, 6)),
        (6, "ann"),
        (1, "bob"),
        (2, None),
        (3, None),
        (7, "old"),
        (8, "while it was away"),
    ]
    at = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    assert found[5].value == Order(6, "ann", Decimal("1.50"), at, ["a", "b"], {"x": 1})
    # What was committed is confirmed, so that the server can remove its log.
    query = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots"
    assert table.execute(query, [last_positions(broker, "orders-in")["orders"]["lsn"]]).fetchall() == [(True,)]


@pytest.mark.slow
def test_a_transaction_of_the_database_is_one_of_the_topic_and_one_that_fails_is_none(broker, database, table):
    with worker(broker, database, snapshot="never", batch_records=10) as running:
        until(lambda: running.progress.batches >= 2, seen=lambda: running.progress)
        before = running.progress.batches
        with psycopg.connect(database) as other:
            other.execute("insert into orders (id, customer) select n, 'gone' from generate_series(1000, 1100) n")
            other.rollback()
            other.execute("insert into orders (id, customer) select n, 'x' from generate_series(1, 5000) n")
        until(lambda: running.progress.records == 5000, seen=lambda: running.progress)
        assert running.progress.batches == before + 1

    assert pairs(broker) == [(number, "x") for number in range(1, 5001)]


@pytest.mark.slow
def test_rows_that_change_while_they_are_copied_are_exact(broker, database, table):
    """A writer goes on during the snapshot; in the end the topic has the rows of the table."""
    table.execute("insert into orders (id, customer) select n, '0' from generate_series(0, 499) n")
    with worker(broker, database, batch_records=50) as running:
        for number in range(1, 200):
            table.execute("update orders set customer = %s where id = %s", [str(number), number % 50])
            table.execute("delete from orders where id = %s", [200 + number])
        until(lambda: running.progress.batches > 1, seen=lambda: running.progress)
        table.execute("insert into orders (id, customer) values (1000, 'end')")
        until(lambda: records_of(broker, ORDERS)[-1].key == 1000, seen=lambda: running.progress)

    last = {}
    for key, customer in pairs(broker):
        last[key] = customer
    expected = dict(table.execute("select id, customer from orders").fetchall())
    assert {key: customer for key, customer in last.items() if customer is not None} == expected


@pytest.mark.slow
def test_a_large_value_that_an_update_does_not_touch_needs_the_full_identity(broker, database, table):
    big = "".join(str(number) for number in range(20_000))
    table.execute("alter table orders alter customer set storage external")
    table.execute("insert into orders (id, customer) values (1, %s)", [big])
    with pytest.raises(ConnectError, match=r"not touched column 'customer'.* REPLICA IDENTITY FULL"):
        with worker(broker, database) as running:
            until(lambda: running.progress.records == 1, seen=lambda: running.progress)
            table.execute("update orders set amount = 2")
            running.wait()

    table.execute("alter table orders replica identity full")
    with worker(broker, database, name="again") as running:
        until(lambda: running.progress.records == 1, seen=lambda: running.progress)
        table.execute("update orders set amount = 3")
        until(lambda: running.progress.records == 2, seen=lambda: running.progress)
    assert records_of(broker, ORDERS)[-1].value == Order(1, big, Decimal(3))


@pytest.mark.slow
def test_what_is_not_ready_is_refused_with_a_remedy(broker, database, table):
    def refused(error, match, topic=ORDERS, name="orders-in", **options):
        with pytest.raises(error, match=match):
            worker(broker, database, topic, name=name, **options).run()

    table.execute("create table bare (id bigint)")
    bare = SourceWorker(broker, ORDERS, PostgresSource(database, "bare"), name="bare")
    with pytest.raises(ConfigError, match="has no primary key: name the key columns with key="):
        bare.run()
    bare = SourceWorker(broker, ORDERS, PostgresSource(database, "bare", key="id"), name="bare")
    with pytest.raises(ConfigError, match="ALTER TABLE bare REPLICA IDENTITY FULL"):
        bare.run()
    refused(ConfigError, "key='name' is none of the columns: id, customer", key="name")
    refused(ConfigError, "declares no keys", Topic("orders", value=Order))
    table.execute("create publication other")
    refused(ConfigError, "ALTER PUBLICATION other ADD TABLE orders", publication="other")
    table.execute("select pg_create_logical_replication_slot('mine', 'pgoutput')")
    refused(ConfigError, r"slot 'mine' exists.*SELECT pg_drop_replication_slot\('mine'\)", slot="mine")
    table.execute("insert into orders (id) values (1)")
    numbers = Topic("orders", key=int, value=int)
    refused(ConnectError, "the row with id=1 does not fit the value of topic 'orders'", numbers)
    with worker(broker, database) as running:
        until(lambda: running.progress.records == 1, seen=lambda: running.progress)
    table.execute("select pg_drop_replication_slot('streams_orders_in')")
    refused(ConnectError, "slot 'streams_orders_in' does not exist any more: changes after .* are lost")


def test_a_connection_that_is_cut_is_made_again(broker, database, table):
    with worker(broker, database) as running:
        for number in range(3):
            table.execute("insert into orders (id) values (%s)", [number])
            until(lambda number=number: running.progress.records == number + 1, seen=lambda: running.progress)
            table.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'streams %'"
            )
    assert [key for key, _ in pairs(broker)] == [0, 1, 2]
