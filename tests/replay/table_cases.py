"""Orders as rows of a table: with nested columns, in no order, and the topology that reads them."""

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from attrs import frozen

from streams import StreamsBuilder, TimeWindows, Topic, time_windowed
from streams.bounded import run_bounded
from streams.files import open_input

APPLICATION = "tables-app"
PARTITIONS = 3


@frozen
class Customer:
    name: str | None
    city: str = "Rome"


@frozen
class Order:
    number: int
    customer: Customer | None
    product: str
    price: Decimal
    at: datetime
    tags: list[str]
    counts: dict[str, int]


orders = Topic(
    "orders",
    key=str,
    value=Order,
    timestamp=lambda order: order.at,
    key_from=lambda order: order.customer.name if order.customer is not None else f"nobody-{order.number}",
)
totals = Topic("totals", key=str, value=str)
hours = Topic("hours", key=time_windowed(str, timedelta(hours=1)), value=int)

START = datetime(2026, 3, 1, tzinfo=UTC)


def topology(builder: StreamsBuilder) -> None:
    """A sum behind a repartition topic, and a windowed count, which drops late records."""
    sold = builder.stream(orders).select_key(lambda _, order: order.product).repartition("by-product").group_by_key()
    sold.aggregate(lambda: "0", lambda _, order, total: str(Decimal(total) + order.price), name="sums").to_stream().to(
        totals
    )
    sold.windowed_by(TimeWindows.of(timedelta(hours=1))).count("of-the-hour").to_stream().to(hours)


def rows(count: int = 600, first: int = 0) -> list[dict[str, Any]]:
    """Return rows in order of time, each with a time of its own."""
    chance = random.Random(first)
    return [
        {
            "number": number,
            "customer": None if number % 7 == 0 else {"name": f"c{chance.randrange(9)}", "city": "Köln"},
            "product": f"p{chance.randrange(5)}",
            "price": Decimal(chance.randrange(10_000)).scaleb(-2),
            "at": START + timedelta(seconds=37 * number),
            "tags": ["a"] * (number % 3),
            "counts": {"x": number},
            "unread": "x" * 20,
        }
        for number in range(first, first + count)
    ]


def table(rows: Iterable[dict[str, Any]], *, seed: int = 5) -> Any:
    """Return rows as an Arrow table, shuffled."""
    import pyarrow as pa

    mixed = list(rows)
    random.Random(seed).shuffle(mixed)
    types = {
        "number": pa.decimal128(20, 0),
        "customer": pa.struct({"name": pa.string(), "city": pa.string()}),
        "product": pa.string(),
        "price": pa.decimal128(9, 2),
        "at": pa.timestamp("us", "UTC"),
        "tags": pa.list_(pa.string()),
        "counts": pa.map_(pa.string(), pa.int64()),
        "unread": pa.string(),
    }
    return pa.Table.from_pylist(mixed, pa.schema(types))


def live(rows: Iterable[dict[str, Any]], folder: Path) -> list[list[tuple[Any, ...]]]:
    """Return what a bounded live run writes that reads rows from JSON lines, in the given order."""
    path = folder / "live.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    reader = {orders.name: open_input(orders, path)}
    with run_bounded(topology, reader, application_id=APPLICATION, partitions=PARTITIONS) as run:
        return [shown(run.read_output(topic.name)) for topic in (totals, hours)]


def shown(blocks: Any) -> list[tuple[Any, ...]]:
    """Return records as (partition, offset, key, value, timestamp)."""
    return [
        (number, offset, key, value, timestamp)
        for number, block in blocks
        for offset, key, value, timestamp in zip(block.offsets, block.keys, block.values, block.timestamps, strict=True)
    ]


def replayed(result: Any) -> list[list[tuple[Any, ...]]]:
    """Return what a replay wrote."""
    return [shown(result.read(topic)) for topic in (totals, hours)]
