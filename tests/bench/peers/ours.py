"""``python -m tests.bench.peers.ours QUERY BIDS [--cache] [--bootstrap-servers ...]``: one query by streams.

One process, one stream thread, state in RocksDB, changelogs, the settings' defaults; without ``--cache`` every
update is sent.  Says one line of JSON, with what its peers say of themselves.
"""

import argparse
import cProfile
import os
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streams import Admin, State, Streams
from streams.core.concurrency.threads import SystemThreads, Worker
from streams.runtime import tuned_collector
from tests.bench.peers.meter import Meter
from tests.bench.peers.queries import QUERIES, records_in, records_processed
from tests.bench.peers.topics import drop_topics, fresh_topic, records_of

#: How often it is looked how far the tasks are.
LOOK_MS = 10
PATIENCE_MS = 400_000


class ProfiledThreads(SystemThreads):
    """Stream threads under a profiler; figures of time are then too high, calls weigh too much."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def start(self, name: str, target: Callable[[], None]) -> Worker:
        def profiled() -> None:
            profile = cProfile.Profile()
            profile.runcall(target)
            profile.dump_stats(self._path)

        return super().start(name, profiled if "thread-" in name else target)


def measure(query: str, bids: int, application: str, settings: dict[str, Any], profile: Path | None) -> Meter:
    """Run a query over all of its input, and close it."""
    meter = Meter(records_in(query, bids))

    def on_state(state: State, _: State) -> None:
        if state is State.RUNNING and not meter.moments:
            meter.mark()

    threads = SystemThreads() if profile is None else ProfiledThreads(profile)
    with (
        tuned_collector(),
        Streams(QUERIES[query], application_id=application, on_state=on_state, threads=threads, **settings) as streams,
    ):
        follow(streams, meter, records_processed(query, bids))
    meter.mark()
    meter.dropped = streams.metrics.get("dropped-records-total")
    if streams.failure is not None:
        raise streams.failure
    return meter


def follow(streams: Streams, meter: Meter, expected: int) -> None:
    """Mark the half and the end of what is to be processed."""
    for _ in range(PATIENCE_MS // LOOK_MS):
        if streams.wait(LOOK_MS):
            raise RuntimeError("it has ended before its inputs have")
        done = streams.metrics.get("process-total")
        if meter.half is None and done * 2 >= expected:
            meter.mark_half(done)
        if done >= expected:
            meter.mark(done)
            return
    raise TimeoutError(f"{done} of {expected} records after {PATIENCE_MS} ms")


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.peers.ours")
    options.add_argument("query", choices=sorted(QUERIES))
    options.add_argument("bids", type=int)
    options.add_argument("--cache", action="store_true", help="with the record cache: not every update is sent")
    options.add_argument("--bootstrap-servers", default=os.environ.get("BOOTSTRAP", "127.0.0.1:19092"))
    options.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the application"
    )
    options.add_argument("--profile", type=Path, help="file for the profile of the stream thread (cProfile)")
    chosen = options.parse_args()
    query, servers = chosen.query, chosen.bootstrap_servers
    application = f"ours-{query}-{uuid.uuid4().hex[:8]}"
    settings: dict[str, Any] = {"bootstrap_servers": servers}
    if chosen.cache:
        settings["cache_max_bytes"] = 10 << 20  # As much as Kafka Streams has by default.
    settings |= dict(setting.split("=", 1) for setting in chosen.set)
    with tempfile.TemporaryDirectory(dir=os.environ.get("LAB")) as folder, Admin(bootstrap_servers=servers) as admin:
        fresh_topic(admin, "out")
        try:
            meter = measure(query, chosen.bids, application, {**settings, "state_dir": folder}, chosen.profile)
            facts = {"sys": "ours", "q": query, "cache": "on" if chosen.cache else "off", "dropped": meter.dropped}
            print(meter.line(facts, records_of(admin, "out")), flush=True)
        finally:
            drop_topics(admin, application)


if __name__ == "__main__":
    main()
