"""``python -m tests.bench.replay_month [--rows N] [--folder DIR]``: a month of a company's orders, through Spark.

DuckDB writes 30 days of orders as Parquet, a file for each day whose rows are in no order: with a struct that may be
null, numbers that may be null, and a column that the first half of the month does not have.  They are replayed on
``local[2]`` as a table of Spark (``--input table``) or as a folder (``--input folder``): through a repartition topic to
sums by product and hour, with every update.  The last sum of each product and hour must be the one of DuckDB, and for
some products the one of a live application on an embedded broker.  Prints a JSON object with seconds and MiB.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from attrs import frozen

from streams import Consumer, EmbeddedBroker, Producer, Streams, StreamsBuilder, TimeWindows, Topic, time_windowed
from streams.replay import replay
from tests.bench.replay_processes import PeakMemory, below, cpu_used

DAYS = 30
PARTITIONS = 8
PRODUCTS = 1000
HOUR = timedelta(hours=1)
#: The live application gets the orders of each product whose number is a multiple of this.
_SAMPLE = 500
_FIRST = datetime(2026, 6, 1, tzinfo=UTC)


@frozen
class Buyer:
    number: int
    country: str | None


@frozen
class Order:
    """An order; ``coupon`` is the column of the second half of the month."""

    number: int
    product: str
    cents: int | None
    buyer: Buyer | None
    at: datetime
    coupon: str | None = None


@frozen
class Sold:
    """What was sold of a product in an hour."""

    orders: int
    cents: int
    abroad: int
    coupons: int


orders = Topic(
    "orders",
    key=int,
    value=Order,
    timestamp=lambda order: order.at,
    key_from=lambda order: order.number,
    partitions=PARTITIONS,
)
sums = Topic("sums", key=time_windowed(str, HOUR), value=Sold)

#: The same sums in SQL; without the order of the updates.
_IN_SQL = """
    SELECT product, date_trunc('hour', "at") AS hour, count(*) AS orders, sum(cents)::BIGINT AS cents,
        count(*) FILTER (buyer.country <> 'DE') AS abroad, count(coupon) AS coupons
    FROM read_parquet('{folder}/*.parquet', union_by_name => true)
    WHERE cents IS NOT NULL {where}
    GROUP BY ALL
"""


def add(_: str, order: Order, sold: Sold) -> Sold:
    assert order.cents is not None
    country = None if order.buyer is None else order.buyer.country
    return Sold(
        sold.orders + 1,
        sold.cents + order.cents,
        sold.abroad + (country is not None and country != "DE"),
        sold.coupons + (order.coupon is not None),
    )


def topology(builder: StreamsBuilder) -> None:
    paid = builder.stream(orders).filter(lambda _, order: order.cents is not None)
    sold = paid.select_key(lambda _, order: order.product).repartition("by-product").group_by_key()
    hours = sold.windowed_by(TimeWindows.of(HOUR, grace=HOUR))
    hours.aggregate(lambda: Sold(0, 0, 0, 0), add, name="sold").to_stream().to(sums)


def write_orders(folder: Path, rows: int) -> None:
    """Write a file for each day.  The time of a row is a hash of its number, so rows are in no order."""
    import duckdb

    folder.mkdir(parents=True)
    of_day = rows // DAYS
    for day in range(DAYS):
        first = day * of_day
        start = _FIRST + timedelta(days=day)
        coupon = ", CASE WHEN hash(i, 6) % 5 = 0 THEN 'SUMMER' END AS coupon" if day >= DAYS // 2 else ""
        duckdb.sql(f"""
            COPY (
                SELECT i AS number, 'p' || (hash(i, 1) % {PRODUCTS}) AS product,
                    CASE WHEN hash(i, 2) % 50 > 0 THEN (hash(i, 2) % 100000)::BIGINT END AS cents,
                    CASE WHEN hash(i, 3) % 10 > 0 THEN {{
                        'number': (hash(i, 3) % 1000000)::BIGINT,
                        'country': ['DE', 'FR', 'PL', NULL][1 + (hash(i, 4) % 4)::BIGINT]
                    }} END AS buyer,
                    make_timestamptz({int(start.timestamp())}000000::BIGINT
                        + (hash(i, 5) % 86400000)::BIGINT * 1000) AS "at" {coupon}
                FROM range({first}, {first + of_day}) AS numbers(i)
            ) TO '{folder}/{start:%Y-%m-%d}.parquet' (ROW_GROUP_SIZE 500000, COMPRESSION zstd)
        """)


def in_sql(folder: Path, where: str = "") -> dict[tuple[str, int], tuple[int, ...]]:
    """Return the sums of DuckDB by product and start of the hour in epoch milliseconds."""
    import duckdb

    query = _IN_SQL.format(folder=folder, where=where)
    found = duckdb.sql(f"SELECT product, epoch_ms(hour), orders, cents, abroad, coupons FROM ({query})").fetchall()
    return {(product, hour): tuple(rest) for product, hour, *rest in found}


def last_sums(updates: Any) -> dict[tuple[str, int], tuple[int, ...]]:
    """Return the last sum of each product and hour from the output as a DataFrame."""
    from pyspark.sql import functions

    last = updates.groupBy("key").agg(functions.max_by("value", "offset").alias("value"))
    fields = ("key.key", "key.start", "value.orders", "value.cents", "value.abroad", "value.coupons")
    return {
        (product, start): tuple(rest)
        for product, start, *rest in zip(
            *(column.to_pylist() for column in last.select(*fields).toArrow().columns), strict=True
        )
    }


def lived(folder: Path, where: str) -> dict[tuple[str, int], tuple[int, ...]]:
    """Return the last sums of a live application that gets the orders of some products hour by hour."""
    import duckdb

    found: dict[tuple[str, int], tuple[int, ...]] = {}
    query = f"FROM read_parquet('{folder}/*.parquet', union_by_name => true) WHERE true {where} ORDER BY \"at\", number"
    rows = duckdb.sql(f"SELECT * {query}").to_arrow_table().to_pylist()
    settings: dict[str, Any] = {"commit_interval_ms": 10}
    with (
        tempfile.TemporaryDirectory() as state,
        EmbeddedBroker() as broker,
        Producer(broker) as producer,
        Consumer(broker, "reader", auto_offset_reset="earliest") as consumer,
    ):
        broker.create_topic(orders.name, partitions=PARTITIONS)
        with Streams(topology, application_id="live", broker=broker, state_dir=state, **settings):
            consumer.subscribe([sums])
            for _, hour in groupby(rows, key=lambda row: (row["at"].date(), row["at"].hour)):
                waiting = 0
                for row in hour:
                    buyer = row.pop("buyer")
                    order = Order(**row, buyer=None if buyer is None else Buyer(**buyer))
                    producer.send(orders, order, key=order.number)
                    waiting += order.cents is not None
                producer.flush()
                while waiting:
                    for record in consumer.poll(1000):
                        sold = record.value
                        key = (record.key.key, record.key.window.start_ms)
                        found[key] = (sold.orders, sold.cents, sold.abroad, sold.coupons)
                        waiting -= 1
    return found


@contextmanager
def measured(figures: dict[str, Any], name: str) -> Iterator[None]:
    """Note wall time, CPU time of all processes, and the highest memory of each kind of process."""
    before, start = cpu_used(), time.monotonic()
    already = sum(process.own_s for process in below() if process.name != "java" and process.pid != os.getpid())
    with PeakMemory() as peak:
        yield
    cpu = (cpu_used() - before)._replace(workers=sum(peak.worker_cpu_s.values()) - already)
    figures[name] = {
        "wall s": round(time.monotonic() - start, 1),
        "CPU s: driver, JVM, workers": [round(part, 1) for part in cpu],
        "peak MiB: driver, JVM, largest worker": [peak.driver, peak.jvm, peak.worker],
    }
    print(name, figures[name], flush=True)


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Write, replay and compare; return the figures.

    Raises:
        SystemExit: results differ.
    """
    from pyspark.sql import SparkSession

    history, work = options.folder / f"orders-{options.rows}", options.folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    if not history.exists():
        making = history.with_suffix(".part")
        shutil.rmtree(making, ignore_errors=True)
        write_orders(making, options.rows)
        making.rename(history)
    figures: dict[str, Any] = {"rows": options.rows, "input": options.input, "history MiB": bytes_of(history) >> 20}
    conf = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(work / "spark"),
        "spark.driver.memory": options.heap,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    spark = SparkSession.builder.master(options.master).config(map=conf).getOrCreate()
    try:
        given: Any = history
        if options.input == "table":
            given = spark.read.option("mergeSchema", "true").parquet(str(history))
        with measured(figures, "replay"):
            result = replay(
                topology,
                {orders: given},
                application_id="month",
                partitions=PARTITIONS,
                spark=spark,
                slices=options.slices,
                directory=work / "replay",
            )
        with result:
            figures["records out"] = result.records[sums.name]
            figures["dropped"] = [str(late) for late in result.late]
            figures["written MiB"] = bytes_of(work) >> 20
            with measured(figures, "last sums, by Spark from all updates"):
                ours = last_sums(result.outputs[sums])
    finally:
        spark.stop()
    with measured(figures, "DuckDB"):
        theirs = in_sql(history)
    check("DuckDB", ours, theirs)
    figures["sums equal to those of DuckDB"] = len(theirs)
    products = {f"p{number}" for number in range(0, PRODUCTS, _SAMPLE)}
    where = f"AND product[2:]::INT % {_SAMPLE} = 0"
    with measured(figures, "live application"):
        live = lived(history, where)
    check("the live application", {key: found for key, found in ours.items() if key[0] in products}, live)
    figures["sums equal to those of the live application"] = len(live)
    shutil.rmtree(work)
    return figures


def check(other: str, ours: dict[Any, Any], theirs: dict[Any, Any]) -> None:
    """Compare.

    Raises:
        SystemExit: they differ.
    """
    if ours != theirs:
        wrong = [
            (key, ours.get(key), theirs.get(key)) for key in ours.keys() | theirs if ours.get(key) != theirs.get(key)
        ]
        raise SystemExit(
            f"{len(wrong)} of {len(theirs)} sums differ from those of {other}, such as {sorted(wrong)[:3]}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.replay_month")
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "streams-bench")
    parser.add_argument("--input", choices=("table", "folder"), default="table")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--heap", default="2g", help="heap of the JVM")
    parser.add_argument("--slices", help="slices of the replay, such as 1d")
    print(json.dumps(run(parser.parse_args()), indent=1))


if __name__ == "__main__":
    main()
