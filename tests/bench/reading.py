"""``python -m tests.bench.reading [--rows N] [--only REGEX]``: CPU time of reading history, by form of the input.

Orders, flat and nested, are read into the partitions of a topic by the calls of a replay in this process, from JSON
lines, Parquet files and Arrow tables, as they come and sorted by event time.  A replay needs this time above that of
an archive, which the task itself reads; the last column has the time of that.
"""

import argparse
import re
import resource
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from attrs import frozen

from streams import StreamsBuilder, Topic
from streams.replay.calls.work import StageWork
from streams.replay.history.ingest import MergeWork
from streams.replay.run.drive import run_work
from streams.replay.run.request import Plan, Request
from streams.replay.run.session import ReplaySession
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Segments
from tests.bench.harness import machine

PARTITIONS = 8
_START = datetime(2026, 1, 1, tzinfo=UTC)


@frozen
class Flat:
    """An order without parts."""

    customer: str
    product: int
    cents: int
    at: datetime


@frozen
class Customer:
    name: str
    city: str | None
    age: int | None


@frozen
class Line:
    product: str
    price: Decimal
    count: int


@frozen
class Nested:
    """An order with a customer, who may be missing, and lines."""

    number: int
    customer: Customer | None
    note: str | None
    weight: float
    at: datetime
    lines: list[Line]
    labels: dict[str, str]


flat = Topic("flat", key=str, value=Flat, timestamp=lambda order: order.at, key_from=lambda order: order.customer)
nested = Topic(
    "nested",
    key=str,
    value=Nested,
    timestamp=lambda order: order.at,
    key_from=lambda order: None if order.customer is None else order.customer.name,
)
TOPICS: dict[str, Topic[Any, Any]] = {"flat": flat, "nested": nested}


def topology(topic: Topic[Any, Any], builder: StreamsBuilder) -> None:
    builder.stream(topic).for_each(lambda key, value: None)


def rows(kind: str, count: int) -> Iterator[dict[str, Any]]:
    """Yield orders in order of time."""
    chance = np.random.default_rng(5)
    draws = chance.integers(0, 1 << 30, (count, 4)).tolist()
    for number, (a, b, c, d) in enumerate(draws):
        at = _START + timedelta(milliseconds=137 * number)
        if kind == "flat":
            yield {"customer": f"customer-{a % 50_000}", "product": b % 1000, "cents": c % 100_000, "at": at}
            continue
        customer = {"name": f"customer-{a % 50_000}", "city": None if c % 9 == 0 else "Köln", "age": d % 90 or None}
        line = {"product": f"product-{b % 1000}", "price": Decimal(c % 100_000).scaleb(-2), "count": d % 5}
        yield {
            "number": number,
            "customer": None if a % 20 == 0 else customer,
            "note": None if b % 3 else "please ring twice",
            "weight": (c % 1000) / 8,
            "at": at,
            "lines": [line] * (d % 3),
            "labels": {"channel": "web", "shop": f"s{a % 20}"},
        }


def write(kind: str, count: int, folder: Path, *, shuffled: bool) -> dict[str, Any]:
    """Write orders as JSON lines and as Parquet, and return the inputs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    customer = pa.struct({"name": pa.string(), "city": pa.string(), "age": pa.int32()})
    line = pa.struct({"product": pa.string(), "price": pa.decimal128(9, 2), "count": pa.int64()})
    time_type = pa.timestamp("us", "UTC")
    types: dict[str, Any] = {"customer": pa.string(), "product": pa.int64(), "cents": pa.int64(), "at": time_type}
    if kind == "nested":
        types = {"number": pa.int64(), "customer": customer, "note": pa.string(), "weight": pa.float64()}
        types |= {"at": time_type, "lines": pa.list_(line), "labels": pa.map_(pa.string(), pa.string())}
    made = list(rows(kind, count))
    if shuffled:
        made = [made[index] for index in np.random.default_rng(1).permutation(count)]
    lines, parquet = folder / f"{kind}.jsonl", folder / f"{kind}.parquet"
    lines.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in made))
    table = pa.Table.from_pylist(made, pa.schema(types))
    pq.write_table(table, parquet, row_group_size=100_000)
    return {"lines": str(lines), "parquet": str(parquet), "table": table}


def read(kind: str, given: Any, folder: Path, order: Any) -> dict[str, float]:
    """Read an input, and return the CPU seconds of the calls that read rows, of those that merge, and of the driver.

    Also return those of a task that reads the partitions, as it reads those of an archive: from files to records.
    """
    request = Request(
        partial(topology, TOPICS[kind]),
        {kind: given},
        {"application_id": "b"},
        Plan(partitions=PARTITIONS, order=order),
    )
    spent = {"read": 0.0, "merge": 0.0}
    start = time.process_time()
    root = Place(str(folder / "replay"))
    session = ReplaySession(request, root)
    steps = session.steps()
    calls = next(steps)
    # Until the first call that runs tasks.
    while not isinstance(calls[0], StageWork):
        reports = []
        for call in calls:
            before = time.process_time()
            reports.append(run_work(call))
            spent["merge" if isinstance(call, MergeWork) else "read"] += time.process_time() - before
        calls = steps.send(reports)
    spent["driver"] = time.process_time() - start - sum(spent.values())
    start = time.process_time()
    reader = Segments(root).reader(keeps_open=True)
    for extents in session.inputs.histories[kind].extents.values():
        for _ in reader.blocks(extents):
            pass
    return spent | {"archive": time.process_time() - start}


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.reading")
    options.add_argument("--rows", type=int, default=400_000)
    options.add_argument("--only", default="", help="regular expression of the cases, such as nested/parquet")
    chosen = options.parse_args()
    print(f"{machine()}; {datetime.now(UTC):%Y-%m-%d}; {chosen.rows:,} rows", flush=True)
    print("| case | CPU us a row: read | merge | driver | archive |\n|---|---|---|---|---|")
    for kind in TOPICS:
        for order in ("as_given", "event_time"):
            with tempfile.TemporaryDirectory() as folder:
                found = write(kind, chosen.rows, Path(folder), shuffled=order == "event_time")
                for form, given in found.items():
                    name = f"{kind}/{form}/{order}"
                    if re.search(chosen.only, name):
                        spent = read(kind, given, Path(folder, form), order)
                        shown = " | ".join(f"{seconds / chosen.rows * 1e6:.2f}" for seconds in spent.values())
                        print(f"| {name} | {shown} |", flush=True)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")


if __name__ == "__main__":
    main()
