"""A topology that needs all of replay, its history, and what a bounded live run makes of it."""

import json
import random
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

from streams import JoinWindows, StreamsBuilder, TimeWindows, Topic
from streams.bounded import run_bounded
from streams.files import open_input
from streams.replay import ReplayResult

APPLICATION = "orders-app"
#: One of them gets no rows.
PARTITIONS = 3

orders = Topic("orders", key=str, value=dict, timestamp=lambda order: order["at"], key_from=lambda order: order["user"])
per_item = Topic("per-item", key=str, value=int)
pairs = Topic("pairs", key=str, value=str)

#: Topic -> (partition, offset, key, value, timestamp) of each record.
Rows: TypeAlias = Mapping[str, list[tuple[Any, ...]]]


def topology(builder: StreamsBuilder) -> None:
    """A windowed count, and a join of two streams, each behind repartition topics."""
    source = builder.stream(orders)
    (
        source.group_by(lambda _, order: order["item"], key=str)
        .windowed_by(TimeWindows.of(timedelta(seconds=10), grace=timedelta(seconds=5)))
        .count("item-counts", key=str)
        .to_stream()
        .map(lambda windowed, count: (windowed.key, count))
        .to(per_item)
    )
    items = source.select_key(lambda _, order: order["item"])
    left = items.map_values(lambda order: order["item"]).repartition("left", key=str, value=str)
    right = items.map_values(lambda order: order["user"]).repartition("right", key=str, value=str)
    left.join(right, lambda item, user: f"{item} {user}", JoinWindows.of(timedelta(milliseconds=300))).to(pairs)


def write_orders(path: Path, count: int = 400, users: int = 2) -> Path:
    """Write orders, some of which come late."""
    chance = random.Random(4)
    at = 100_000
    with path.open("w") as file:
        for _ in range(count):
            at += chance.randint(0, 200)
            late = chance.randint(0, 20_000) if chance.random() < 0.1 else 0
            order = {"at": at - late, "user": f"u{chance.randrange(users)}", "item": f"i{chance.randrange(5)}"}
            file.write(json.dumps(order) + "\n")
    return path


def live(path: Path, topics: tuple[Topic[Any, Any], ...] = (per_item, pairs)) -> tuple[Rows, int]:
    """Return what a bounded live run writes, and how many records it drops."""
    reader = {orders.name: open_input(orders, path)}
    with run_bounded(topology, reader, application_id=APPLICATION, partitions=PARTITIONS) as run:
        found = {topic.name: _rows(run.read_output(topic.name)) for topic in topics}
        return found, sum(run.dropped.values())


def replayed(result: ReplayResult, topics: tuple[Topic[Any, Any], ...] = (per_item, pairs)) -> tuple[Rows, int]:
    """Return what a replay wrote, and how many records it dropped."""
    return {topic.name: _rows(result.read(topic)) for topic in topics}, sum(result.dropped.values())


def _rows(blocks: Any) -> list[tuple[Any, ...]]:
    return [
        (number, offset, key, value, timestamp)
        for number, block in blocks
        for offset, key, value, timestamp in zip(block.offsets, block.keys, block.values, block.timestamps, strict=True)
    ]
