"""``python -m tests.bench.replay_grid [--rows N] [--partitions 8,512] [--slices 1,50]``: cost of partitions and slices.

Flat rows of a Parquet file go through a repartition topic to a windowed sum (``sum``), or through that to a windowed
count, with a windowed join and a count of many keys beside it (``stores``).  All calls run in this process, one after
the other; each case is a process of its own.  Prints CPU seconds by phase, calls, files, and bytes of manifests.
"""

import argparse
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from attrs import frozen

from streams import JoinWindows, StreamsBuilder, TimeWindows, Topic, time_windowed
from streams.replay.run.drive import run_work
from streams.replay.run.request import Plan, Request
from streams.replay.run.session import ReplaySession
from streams.replay.storage.places import Place
from tests.bench.harness import machine

HOUR = timedelta(hours=1)
_START = datetime(2026, 1, 1, tzinfo=UTC)


@frozen
class Order:
    """An order without parts."""

    customer: str
    product: int
    cents: int
    at: datetime


orders = Topic("orders", key=str, value=Order, timestamp=lambda order: order.at, key_from=lambda order: order.customer)
sums = Topic("sums", key=time_windowed(int, HOUR), value=int)
pairs = Topic("pairs", key=str, value=int)
totals = Topic("totals", key=str, value=int)


def windowed_sum(builder: StreamsBuilder) -> None:
    sold = builder.stream(orders).select_key(lambda _, order: order.product).repartition("by-product")
    hours = sold.group_by_key().windowed_by(TimeWindows.of(HOUR))
    hours.aggregate(lambda: 0, lambda _, order, sum_: sum_ + order.cents, name="of-the-hour").to_stream().to(sums)


def many_stores(builder: StreamsBuilder) -> None:
    stream = builder.stream(orders)
    sold = stream.select_key(lambda _, order: order.product).repartition("by-product")
    sold.group_by_key().windowed_by(TimeWindows.of(HOUR)).count("of-the-hour").to_stream().to(sums)
    cheap, dear = (stream.filter(test) for test in (_is_cheap, _is_dear))
    minute = JoinWindows.of(timedelta(minutes=1))
    cheap.join(dear, lambda one, other: one.cents + other.cents, minute).to(pairs)
    stream.group_by_key().count("of-customers").to_stream().to(totals)


def _is_cheap(_: Any, order: Order) -> bool:
    return order.cents < 50_000


def _is_dear(_: Any, order: Order) -> bool:
    return order.cents >= 50_000


TOPOLOGIES: dict[str, Callable[[StreamsBuilder], None]] = {"sum": windowed_sum, "stores": many_stores}


def write(path: Path, count: int) -> None:
    """Write orders of 20,000 customers and 1,000 products, in order of time, as a Parquet file."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(5)
    names = pa.array([f"customer-{number}" for number in range(20_000)])
    first = int(_START.timestamp() * 1_000_000)
    times = pa.array(first + 137_000 * np.arange(count, dtype=np.int64), pa.timestamp("us", "UTC"))
    columns = {
        "customer": names.take(pa.array(chance.integers(0, 20_000, count))),
        "product": pa.array(chance.integers(0, 1_000, count)),
        "cents": pa.array(chance.integers(0, 100_000, count)),
        "at": times,
    }
    pq.write_table(pa.table(columns), path, row_group_size=100_000)


def run_case(topology: str, rows: int, partitions: int, slices: int, folder: Path) -> dict[str, Any]:
    """Run a replay, and return what it took and what it gave."""
    write(folder / "orders.parquet", rows)
    settings = {"application_id": "grid"}
    inputs = {"orders": str(folder / "orders.parquet")}
    plan = Plan(partitions=partitions, slices=slices if slices > 1 else None)
    request = Request(TOPOLOGIES[topology], inputs, settings, plan)
    session = ReplaySession(request, Place(str(folder / "replay")))
    calls: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    start = time.process_time()
    steps = session.steps()
    works = next(steps)
    while True:
        reports = []
        for work in works:
            before = time.process_time()
            reports.append(run_work(work))
            phase = "ingest" if work.stage < 0 else f"stage {work.stage}"
            spent[phase] += time.process_time() - before
            calls[phase] += 1
        try:
            works = steps.send(reports)
        except StopIteration:
            break
    total = time.process_time() - start
    spent["driver"] = total - sum(spent.values())
    manifests = [path.stat().st_size for path in (folder / "replay").rglob("MANIFEST.json")]
    written = {file for _, _, report in session.reports for file in report.files}
    out = sum(extent.rows for extents in session.outputs.values() for extent in extents)
    return {
        "cpu": total,
        "phases": {name: spent[name] for name in sorted(spent)},
        "calls": dict(calls),
        "files": len(written),
        "manifests": max(manifests),
        "out": out,
    }


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.replay_grid")
    options.add_argument("--rows", type=int, default=500_000)
    options.add_argument("--partitions", default="8,512", help="numbers of partitions, with one slice")
    options.add_argument("--slices", default="50", help="numbers of slices, with the first number of partitions")
    options.add_argument("--topology", default="sum", choices=TOPOLOGIES)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--profile", type=int, metavar="LINES", help="print a profile instead")
    options.add_argument("--one", action="store_true", help="run the first case in this process, and print JSON")
    chosen = options.parse_args()
    partitions = [int(text) for text in chosen.partitions.split(",")]
    slices = [int(text) for text in chosen.slices.split(",") if text]
    if chosen.one:
        with tempfile.TemporaryDirectory() as folder:
            profile = cProfile.Profile(time.process_time)
            if chosen.profile:
                profile.enable()
            found = run_case(chosen.topology, chosen.rows, partitions[0], slices[0], Path(folder))
            profile.disable()
        if chosen.profile:
            pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(chosen.profile)
        print(json.dumps(found))
        return
    print(f"{machine()}; {datetime.now(UTC):%Y-%m-%d}; {chosen.topology}, {chosen.rows:,} rows", flush=True)
    print("| partitions, slices | CPU s | of the first | phases | calls | files | largest manifest, KB | load |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for _ in range(chosen.rounds):
        first = 0.0
        for case in [*((number, 1) for number in partitions), *((partitions[0], number) for number in slices)]:
            command = [sys.executable, "-m", "tests.bench.replay_grid", "--one", "--rows", str(chosen.rows)]
            command += ["--partitions", str(case[0]), "--slices", str(case[1]), "--topology", chosen.topology]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found = json.loads(done.stdout)
            first = first or found["cpu"]
            phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found["phases"].items())
            print(
                f"| {case[0]}, {case[1]} | {found['cpu']:.1f} | {found['cpu'] / first:.2f} | {phases} "
                f"| {sum(found['calls'].values())} | {found['files']} | {found['manifests'] / 1000:.0f} "
                f"| {os.getloadavg()[0]:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
