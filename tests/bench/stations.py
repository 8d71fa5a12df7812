"""``python -m tests.bench.stations [--events N] [--bootstrap-servers HOST:PORT]``: where the time of a record goes.

Applications over TCP, on a broker in a process of its own (ours, or one that is there); their stream thread is
timed at the doors between stations, each station without those it calls.  What timing costs is measured at a door
with nothing behind it and taken off; the store feels it most, for it alone is entered for each record.
"""

import argparse
import statistics
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from typing import Any

from attrs import define, field

from streams import Admin, Producer, SessionWindows, State, Streams, StreamsBuilder, Topic, TopicPartition
from streams.clients.consumer.consumer import Consumer
from streams.protocol import batch
from streams.protocol.messages import TopicSpec
from streams.runtime import tuned_collector
from streams.runtime.tasks.outbox import Outbox
from streams.runtime.tasks.queues import TaskQueues
from streams.runtime.tasks.sources import SourceReader
from streams.runtime.tasks.stage import Stage
from streams.runtime.tasks.task import Task
from streams.runtime.threads.committing import Committer
from streams.state.views.session import SessionStore
from streams.state.views.window import TimestampedWindowStore, WindowStore
from tests.bench.__main__ import auctions, bids, stateless, tumbling, windowed_join
from tests.bench.figures import Table, add_write_option
from tests.bench.harness import PARTITIONS, blocks_of, machine
from tests.bench.wire import ours

sessions_out = Topic("sessions", key=int, value=int)


def sessions(builder: StreamsBuilder) -> None:
    """Count the bids of each bidder's sessions, behind a repartition topic."""
    windows = SessionWindows.of(timedelta(seconds=10), grace=timedelta(seconds=5))
    by_bidder = builder.stream(bids).group_by(lambda _, bid: bid.bidder)
    counted = by_bidder.windowed_by(windows).count("sessions").to_stream(lambda key, _: key.key)
    counted.to(sessions_out)


QUERIES: dict[str, tuple[Callable[[StreamsBuilder], None], list[Topic[Any, Any]], str, int]] = {
    "Q0, mapped": (stateless, [bids], "out", 1),
    "W1": (tumbling, [bids], "counts", 1),
    "S1": (sessions, [bids], "sessions", 2),
    "J1": (windowed_join, [auctions, bids], "pairs", 1),
}
"""Topology, inputs, output and tasks that each record goes through."""

DOORS: list[tuple[Any, str, str]] = [
    (Consumer, "poll_blocks", "poll"),
    (batch, "decode", "decode batch"),
    (SourceReader, "read", "deserialize"),
    (TaskQueues, "take", "queue"),
    (TaskQueues, "done", "queue"),
    (Stage, "step", "queue"),
    (Task, "process", "program"),
    (TimestampedWindowStore, "fetch_pair", "store"),
    (TimestampedWindowStore, "put_pair", "store"),
    (WindowStore, "put", "store"),
    (WindowStore, "rows_in_range", "store"),
    (SessionStore, "sessions_of", "store"),
    (SessionStore, "put_at", "store"),
    (SessionStore, "remove_at", "store"),
    (Outbox, "drain", "partition"),
    (Committer, "send", "send"),
    (batch, "encode_records", "encode batch"),
    (Task, "take_changes", "changelog"),
    (Task, "write_state", "engine"),
    (Committer, "commit", "commit"),
]
STATIONS = list(dict.fromkeys(station for _, _, station in DOORS))


@define(eq=False)
class Clock:
    """Time of one thread by station."""

    spent_ns: "Counter[str]" = field(factory=Counter)
    entered: "Counter[str]" = field(factory=Counter)
    #: Doors passed from within a station.
    passed: "Counter[str]" = field(factory=Counter)
    _stack: list[str] = field(factory=list)
    _since_ns: int = 0

    def enter(self, station: str) -> None:
        now = time.thread_time_ns()
        if self._stack:
            self.spent_ns[self._stack[-1]] += now - self._since_ns
            self.passed[self._stack[-1]] += 1
        self._stack.append(station)
        self.entered[station] += 1
        self._since_ns = now

    def leave(self) -> None:
        now = time.thread_time_ns()
        self.spent_ns[self._stack.pop()] += now - self._since_ns
        self._since_ns = now


def timed(function: Callable[..., Any], station: str, clock_of: Callable[[], Clock | None]) -> Callable[..., Any]:
    """Return the function with its time noted by the clock of its thread, if that has one."""

    @wraps(function)
    def passing(*args: Any, **named: Any) -> Any:
        clock = clock_of()
        if clock is None:
            return function(*args, **named)
        clock.enter(station)
        try:
            return function(*args, **named)
        finally:
            clock.leave()

    return passing


@contextmanager
def doors(clock_of: Callable[[], Clock | None]) -> Iterator[None]:
    """Time the doors of threads that have a clock."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in DOORS]
    for owner, name, station in DOORS:
        setattr(owner, name, timed(getattr(owner, name), station, clock_of))
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def price_of_a_door(clock_of: Callable[[], Clock | None], clock: Clock) -> tuple[float, float]:
    """Return the nanoseconds that timing a station adds to it, and those that it adds to its caller."""

    def nothing(one: int, other: int) -> None:
        pass

    empty = timed(nothing, "empty", clock_of)
    count = 100_000
    clock.enter("plain caller")
    for number in range(count):
        nothing(number, number)
    clock.leave()
    clock.enter("caller")
    for number in range(count):
        empty(number, number)
    clock.leave()
    inside = clock.spent_ns["empty"] / count
    return inside, (clock.spent_ns["caller"] - clock.spent_ns["plain caller"]) / count


def load(servers: str, events: int) -> None:
    """Write the events to topics of the broker."""
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        names = ["bids", "auctions", *(output for _, _, output, _ in QUERIES.values())]
        admin.create_topics([TopicSpec(name, PARTITIONS) for name in names])
        for topic in (bids, auctions):
            for number, block in blocks_of(topic, events):
                producer.send_block(TopicPartition(topic.name, number), block)
        producer.flush()


def profile(name: str, servers: str, events: int) -> dict[str, float]:
    """Return the nanoseconds of an input record by station."""
    topology, inputs, _, steps = QUERIES[name]
    records = sum(len(block) for topic in inputs for _, block in blocks_of(topic, events))
    clock = Clock()
    clocks: dict[int, Clock] = {}

    def clock_of() -> Clock | None:
        return clocks.get(threading.get_ident())

    def on_state(state: State, _: State) -> None:
        clocks.update({thread.ident or 0: clock for thread in threading.enumerate() if "thread-1" in thread.name})

    settings = {"bootstrap_servers": servers, "on_state": on_state}
    application = f"stations-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as folder, doors(clock_of):
        used = time.process_time_ns()
        with tuned_collector(), Streams(topology, application_id=application, state_dir=folder, **settings) as streams:
            while streams.metrics.get("process-total") < records * steps:
                assert not streams.wait(20)
        used = time.process_time_ns() - used
        if streams.failure is not None:
            raise streams.failure
    mine = Clock()
    inside_ns, outside_ns = price_of_a_door(lambda: mine, mine)
    figures = {}
    for station in STATIONS:
        spent = clock.spent_ns[station] - clock.entered[station] * inside_ns - clock.passed[station] * outside_ns
        figures[station] = max(0.0, spent / records)
    doors_ns = clock.entered.total() * (inside_ns + outside_ns) / records
    figures["rest"] = max(0.0, used / records - sum(figures.values()) - doors_ns)
    return figures


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.stations")
    options.add_argument("--events", type=int, default=300_000, help="Nexmark events, 46 of 50 of them bids")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--bootstrap-servers", help="a broker without the topics of these events")
    add_write_option(options)
    chosen = options.parse_args()
    conditions = f"{machine()}; {chosen.events:,} Nexmark events; CPU ns per input record, median of {chosen.runs} runs"
    table = Table("stations", ["station", *QUERIES], conditions)
    if chosen.bootstrap_servers:
        fill(table, chosen.bootstrap_servers, chosen.events, chosen.runs)
    else:
        with ours("ours, memory") as served:
            fill(table, served.address, chosen.events, chosen.runs)
    if chosen.write:
        table.write()


def fill(table: Table, servers: str, events: int, runs: int) -> None:
    load(servers, events)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in QUERIES}
    for _ in range(runs):
        for name in QUERIES:
            found[name].append(profile(name, servers, events))
    table.open()
    for station in [*STATIONS, "rest"]:
        cells = [f"{statistics.median(run[station] for run in found[name]):,.0f}" for name in QUERIES]
        table.add([station, *cells])
    sums = [f"{statistics.median(sum(run.values()) for run in found[name]):,.0f}" for name in QUERIES]
    table.add(["all", *sums])


if __name__ == "__main__":
    main()
