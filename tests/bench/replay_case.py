"""One case of the replay benchmark in a process of its own, told by its name; prints what it measured as JSON.

    QUERY/ROUTE[-CORES[-INPUT]]: count/task, count/bare, join/local-2, count/spark-1-archive,
    join/spark-4-lines, count/sql-1, count/pandas-4, count/heap

Spark's session is started, and everything is warmed up with a small history, before the clock starts.
"""

import argparse
import hashlib
import json
import os
import shutil
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field
from msgspec import Struct

from streams import JoinWindows, StreamsBuilder, TimeWindows, Topic, time_windowed
from streams.replay import Archive, replay
from streams.replay.run.drive import run_work
from streams.replay.run.request import Request
from streams.replay.run.session import ReplaySession
from streams.replay.storage.places import Place
from tests.bench.replay_baselines import pandas_count, sql_count, task_alone
from tests.bench.replay_history import PARTITIONS, History
from tests.bench.replay_processes import Cpu, PeakMemory, cpu_used
from topology_examples.nexmark import Auction, Bid, auctions, bids

TEN_SECONDS = timedelta(seconds=10)
GRACE = timedelta(seconds=5)
#: Of the JVM in the case of a partition larger than it; Spark starts with no less.
HEAP_MB = 512


class Pair(Struct, frozen=True):
    """A bid and what it was for."""

    auction: int
    bidder: int
    price: int
    seller: int
    category: int


counts = Topic("counts", key=time_windowed(int, TEN_SECONDS), value=int)
pairs = Topic("pairs", key=int, value=Pair)


def windowed_count(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(TEN_SECONDS, grace=GRACE)
    builder.stream(bids).group_by_key().windowed_by(windows).count("counts").to_stream().to(counts)


def pair(auction: Auction, bid: Bid) -> Pair:
    return Pair(bid.auction, bid.bidder, bid.price, auction.seller, auction.category)


def windowed_join(builder: StreamsBuilder) -> None:
    windows = JoinWindows.of(TEN_SECONDS, grace=GRACE)
    builder.stream(auctions).join(builder.stream(bids), pair, windows).to(pairs)


QUERIES: dict[str, tuple[Any, list[Topic[Any, Any]], Topic[Any, Any]]] = {
    "count": (windowed_count, [bids], counts),
    "join": (windowed_join, [auctions, bids], pairs),
}


@define
class Outcome:
    """What one run gave; seconds, MiB."""

    records_in: int
    records_out: int = 0
    wall_s: float = 0.0
    cpu: Cpu = field(factory=Cpu)
    peak_driver: int = 0
    peak_jvm: int = 0
    peak_worker: int = 0
    #: All output records, in order.
    exact: str = ""
    #: Last count of each window and key.
    final: str = ""
    state_rows: int = 0
    state_bytes: int = 0
    #: Longest task and what all took in CPU, by stage.
    stages: dict[int, tuple[float, float]] = field(factory=dict)
    load: float = 0.0


def run_case(name: str, history: History, single: Path | None, work: Path, spark: Any) -> Outcome:
    """Run a case once."""
    query, _, route = name.partition("/")
    kind, _, rest = route.partition("-")
    cores, _, form = rest.partition("-")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    if kind == "task":
        watch, count = task_alone(session_of(query, history, work / "replay"))
        return Outcome(count, wall_s=watch.wall, cpu=Cpu(watch.cpu), load=os.getloadavg()[0])
    if kind in ("sql", "pandas"):
        outcome = clocked(
            lambda: (sql_count if kind == "sql" else pandas_count)(spark, str(history.archive), f"{work}/out")
        )
        table = read_frames(work / "out")
        outcome.records_in, outcome.records_out, outcome.final = history.bids, len(table[0]), digest_of_counts(*table)
        return outcome
    if kind == "bare":
        return bare(query, history, work)
    return replayed(query, kind, int(cores or 1), form, history, single, work, spark)


def clocked(call: Any) -> Outcome:
    """Call, and take the time and what processes use."""
    before = cpu_used()
    with PeakMemory() as peak:
        start = time.perf_counter()
        call()
        wall = time.perf_counter() - start
    cpu = cpu_used() - before
    return Outcome(0, 0, wall, cpu, peak.driver, peak.jvm, peak.worker, load=os.getloadavg()[0])


def inputs_of(query: str, history: History, form: str, single: Path | None) -> dict[str, Any]:
    """Return the inputs of a query in one of their forms."""
    topics = QUERIES[query][1]
    if form == "lines":
        return {topic.name: str(history.lines / f"{topic.name}.jsonl") for topic in topics}
    return {topic.name: Archive(str(single or history.archive)) for topic in topics}


def session_of(query: str, history: History, folder: Path) -> ReplaySession:
    settings = {"application_id": "bench"}
    request = Request(QUERIES[query][0], inputs_of(query, history, "archive", None), settings=settings)
    return ReplaySession(request, Place(str(folder)))


def bare(query: str, history: History, work: Path) -> Outcome:
    """Run the calls of a replay one after the other in this process, nothing around them."""
    session = session_of(query, history, work / "replay")
    steps = session.steps()
    calls = next(steps)
    reports: list[Any] = []
    outcome = clocked(lambda: reports.extend(run_work(call) for call in calls))
    with suppress(StopIteration):
        steps.send(reports)
    return taken(outcome, session, query)


def replayed(
    query: str, kind: str, cores: int, form: str, history: History, single: Path | None, work: Path, spark: Any
) -> Outcome:
    found: list[Any] = []

    def run() -> None:
        found.append(
            replay(
                QUERIES[query][0],
                inputs_of(query, history, form, single if kind == "heap" else None),
                application_id="bench",
                executor="local" if kind == "local" else "spark",
                spark=None if kind == "local" else spark,
                processes=cores if kind == "local" else None,
                partitions=PARTITIONS if form == "lines" else None,
                directory=work / "replay",
            )
        )

    outcome = clocked(run)
    with found[0] as result:
        return taken(outcome, result.session, query)


def taken(outcome: Outcome, session: ReplaySession, query: str) -> Outcome:
    """Add what a session tells, and digests of what it wrote."""
    output = QUERIES[query][2]
    stages: dict[int, tuple[float, float]] = {}
    for _, number, report in session.reports:
        longest, cpu = stages.get(number, (0.0, 0.0))
        stages[number] = (max(longest, report.elapsed_ms / 1000), cpu + report.cpu_ms / 1000)
        outcome.records_in += report.records_in
        for task in report.tasks:
            outcome.records_out += task.records_out
            extents = [extent for ref in task.stores.values() for extent in ref.extents]
            outcome.state_rows = max(outcome.state_rows, sum(extent.rows for extent in extents))
            outcome.state_bytes = max(outcome.state_bytes, _bytes_of(session.root, extents))
    outcome.stages = stages
    outcome.exact, outcome.final = digests(session, output.name, is_counts=query == "count")
    return outcome


def _bytes_of(root: Place, extents: list[Any]) -> int:
    import pyarrow.parquet as pq

    total = 0
    for file in {extent.file for extent in extents}:
        metadata = pq.read_metadata(root.child(file).path)
        groups = {extent.group for extent in extents if extent.file == file}
        total += sum(metadata.row_group(group).total_byte_size for group in groups)
    return total


def digests(session: ReplaySession, topic: str, *, is_counts: bool) -> tuple[str, str]:
    """Return digests of all records of an output topic in order, and of the last count of each window and key."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    exact = hashlib.blake2b(digest_size=8)
    columns: list[Any] = []
    for (at, _), extents in sorted(session.outputs.items()):
        if at.topic != topic:
            continue
        files = {extent.file: pq.ParquetFile(session.root.child(extent.file).path) for extent in extents}
        for extent in extents:
            table = files[extent.file].read_row_group(extent.group, columns=["key", "value", "timestamp"])
            table = table.slice(extent.start, extent.rows)
            key, value = (table.column(name).combine_chunks() for name in ("key", "value"))
            times = table.column("timestamp").to_numpy()
            for part in (key, value):
                offsets = np.frombuffer(part.buffers()[1], np.int32)[part.offset : part.offset + len(part) + 1]
                exact.update(np.diff(offsets).tobytes())
                exact.update(memoryview(part.buffers()[2])[offsets[0] : offsets[-1]])
            exact.update(times.tobytes())
            if is_counts:
                windowed = np.frombuffer(key.buffers()[2], ">i8", 2 * len(key)).reshape(-1, 2).astype(np.int64)
                counted = np.frombuffer(value.buffers()[2], ">i8", len(value)).astype(np.int64)
                batch = pa.table([windowed[:, 0], windowed[:, 1], counted], ["auction", "window", "count"])
                columns.append(batch.group_by(["auction", "window"]).aggregate([("count", "max")]))
    if not is_counts:
        return exact.hexdigest(), ""
    found = pa.concat_tables(columns)
    names = ("auction", "window", "count_max")
    return exact.hexdigest(), digest_of_counts(*(found.column(name).to_numpy() for name in names))


def digest_of_counts(auction: Any, window: Any, count: Any) -> str:
    """Return a digest of the highest count of each window and key, which is the last one."""
    import pyarrow as pa

    rows = pa.table([auction, window, count], ["auction", "window", "count"])
    last = (
        rows.group_by(["auction", "window"])
        .aggregate([("count", "max")])
        .sort_by([("window", "ascending"), ("auction", "ascending")])
    )
    state = hashlib.blake2b(digest_size=8)
    for name in ("auction", "window", "count_max"):
        state.update(last.column(name).to_numpy().astype(np.int64).tobytes())
    return state.hexdigest()


def read_frames(folder: Path) -> list[Any]:
    import pyarrow.parquet as pq

    table = pq.read_table(folder)
    return [table.column(name).to_numpy() for name in ("auction", "window", "count")]


def session_for(name: str) -> Any:
    """Return the Spark session of a case, None if it has none."""
    route = name.partition("/")[2]
    kind, _, rest = route.partition("-")
    if kind not in ("spark", "sql", "pandas", "heap"):
        return None
    from streams.replay.spark.sessions import start_session

    cores = rest.partition("-")[0] or "1"
    memory = f"{HEAP_MB}m" if kind == "heap" else "3g"
    return start_session(
        f"local[{cores}]", settings={"spark.driver.memory": memory, "spark.sql.shuffle.partitions": "32"}
    )


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.replay_case")
    options.add_argument("case")
    options.add_argument("--history", type=Path, required=True)
    options.add_argument("--bids", type=int, required=True)
    options.add_argument("--warm", type=Path, required=True)
    options.add_argument("--warm-bids", type=int, required=True)
    options.add_argument("--single", type=Path)
    options.add_argument("--work", type=Path, required=True)
    chosen = options.parse_args()
    spark = session_for(chosen.case)
    try:
        run_case(chosen.case, History(chosen.warm, chosen.warm_bids), None, chosen.work, spark)
        outcome = run_case(chosen.case, History(chosen.history, chosen.bids), chosen.single, chosen.work, spark)
    finally:
        shutil.rmtree(chosen.work, ignore_errors=True)
        if spark is not None:
            spark.stop()
    print(json.dumps({name: getattr(outcome, name) for name in Outcome.__slots__ if not name.startswith("__")}))


if __name__ == "__main__":
    main()
