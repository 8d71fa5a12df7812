r"""A shop's orders of half a year, replayed in seconds; then its statistics go on live where history ended.

The topology knows nothing of that: it adds up what each product sells, and counts its orders by day.
History lies in files, one for each month.  The replay runs the topology over them and saves a snapshot, from which
the live application begins: with all totals, and with a day that is half over.  The first order that it
reads is the one behind the last of history.

    python topology_examples/14_replay.py
    python topology_examples/14_replay.py --executor spark

The same from the command line:

    python topology_examples/14_replay.py --write shop
    streams replay topology_examples/14_replay.py --input orders=shop/history --output totals=totals.parquet \
        --partitions 4 --executor local --snapshot shop/snapshot
    streams run topology_examples/14_replay.py --from-snapshot shop/snapshot --input orders=shop/later.jsonl \
        --output totals=-
"""

import argparse
import random
import tempfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeVar

from attrs import frozen

from streams import (
    Consumer,
    EmbeddedBroker,
    Producer,
    Streams,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    time_windowed,
)
from streams.replay import Snapshot, lay_down, replay

K = TypeVar("K")
V = TypeVar("V")

DAY = timedelta(days=1)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
#: History ends at noon, so that a day is open.
LAST = datetime(2026, 6, 30, 12, tzinfo=UTC)
PRODUCTS = {"bread": 420, "cheese": 890, "coffee": 1250, "honey": 760, "olives": 510, "tea": 640}


@frozen
class Order:
    """An order of one product by the customer whose id is ``customer``."""

    number: int
    customer: str
    product: str
    cents: int
    at: datetime


@frozen
class Sales:
    """What was sold of a product."""

    orders: int
    cents: int


orders = Topic("orders", key=str, value=Order, timestamp=lambda order: order.at, key_from=lambda order: order.customer)
totals = Topic("totals", key=str, value=Sales)
days = Topic("days", key=time_windowed(str, DAY), value=int)


def add(_: str, order: Order, sales: Sales) -> Sales:
    """Return the sales with one more order."""
    return Sales(sales.orders + 1, sales.cents + order.cents)


def topology(builder: StreamsBuilder) -> None:
    """Add up what each product sells, and count its orders by day, written once, when the day is over."""
    sold = builder.stream(orders).select_key(lambda _, order: order.product).repartition("by-product").group_by_key()
    sold.aggregate(lambda: Sales(0, 0), add, name="sales").to_stream().to(totals)
    (
        sold.windowed_by(TimeWindows.of(DAY))
        .count("orders-of-the-day")
        .suppress(Suppressed.until_window_closes())
        .to_stream()
        .to(days)
    )


# --- orders -------------------------------------------------------------------------------


def history(count: int) -> Iterator[Order]:
    """Yield orders, evenly spread over half a year; always the same ones."""
    rng = random.Random(14)
    products = list(PRODUCTS)
    step = (LAST - FIRST) / count
    for number in range(count):
        product = rng.choice(products)
        cents = PRODUCTS[product] * rng.randint(1, 3)
        yield Order(number, f"c{rng.randrange(5000)}", product, cents, FIRST + number * step)


def one_of_each(at: datetime, first: int) -> list[Order]:
    """Return an order of each product."""
    return [Order(first + index, f"c{index}", *item, at) for index, item in enumerate(PRODUCTS.items())]


def write(path: Path, found: Iterable[Order]) -> None:
    """Write orders to a file of JSON lines."""
    with path.open("w") as file:
        for order in found:
            file.write(
                f'{{"number":{order.number},"customer":"{order.customer}","product":"{order.product}",'
                f'"cents":{order.cents},"at":"{order.at.isoformat()}"}}\n'
            )


def write_shop(folder: Path, count: int) -> None:
    """Write a file of orders for each month to ``history``, and the orders of the next hours to ``later.jsonl``."""
    (folder / "history").mkdir(parents=True, exist_ok=True)
    for month, found in groupby(history(count), key=lambda order: f"{order.at:%Y-%m}"):
        write(folder / "history" / f"{month}.jsonl", found)
    write(folder / "later.jsonl", one_of_each(LAST + timedelta(hours=3), count))


# --- from history to live -----------------------------------------------------------------


def replayed(folder: Path, executor: Literal["spark", "local"]) -> Snapshot:
    """Replay the history, print what was sold, and return the snapshot."""
    inputs = {orders: folder / "history"}
    with replay(topology, inputs, application_id="shop", executor=executor, partitions=4) as result:
        print(f"{'product':8} {'orders':>7} {'revenue':>14}")
        for product, sales in sorted(result.stores["sales"].items()):
            print(f"{product:8} {sales.orders:7,} {sales.cents / 100:14,.2f}")
        print(f"{result.records['totals']:,} updates, {result.records['days']:,} days written, one is open")
        return result.save(folder / "snapshot")


def go_on_live(snapshot: Snapshot, folder: Path, count: int) -> None:
    """Start the application from the snapshot and let orders arrive: in the afternoon, and behind midnight."""
    lay_down(snapshot, folder)
    afternoon, tomorrow = LAST + timedelta(hours=3), LAST + timedelta(hours=13)
    settings: dict[str, Any] = {"commit_interval_ms": 10, "state_dir": str(folder / "state")}
    with (
        EmbeddedBroker(folder / "broker") as broker,
        Streams(topology, application_id="shop", broker=broker, **settings),
        Producer(broker) as producer,
        Consumer(broker, "reader", auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe([totals, days])

        def answers(at: datetime, topic: Topic[K, V]) -> list[tuple[K, V]]:
            """Let an order of each product arrive; return what is written to a topic for each, sorted by key."""
            for order in one_of_each(at, count):
                producer.send(orders, order, key=order.customer)
            producer.flush()
            found: dict[K, V] = {}
            while len(found) < len(PRODUCTS):
                found |= {record.key: record.value for record in consumer.poll(1000) if record.topic == topic.name}
            return sorted(found.items())

        print(f"live, {afternoon:%d %B %H:%M}: an order of each product")
        for product, sales in answers(afternoon, totals):
            print(f"{product:8} {sales.orders:7,} {sales.cents / 100:14,.2f}")
        print(f"live, {tomorrow:%d %B %H:%M}: the day is over")
        for window, number in answers(tomorrow, days):
            print(f"{window.key:8} {number:7,} orders on {LAST:%d %B}")


def main() -> None:
    """Write a history, replay it, and go live."""
    parser = argparse.ArgumentParser(description="Half a year of orders, replayed, then live.")
    parser.add_argument("--write", type=Path, metavar="DIR", help="only write the orders to files in this folder")
    parser.add_argument("--orders", type=int, default=200_000, metavar="N", help="orders in half a year")
    parser.add_argument("--executor", choices=("local", "spark"), default="local")
    options = parser.parse_args()
    if options.write:
        write_shop(options.write, options.orders)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shop(folder, options.orders)
        go_on_live(replayed(folder, options.executor), folder / "live", options.orders)


if __name__ == "__main__":
    main()
