"""Expiry: what it costs to let one bucket of windows go, while ever more other windows are alive."""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from streams.core.serdes.serdes import LONG
from streams.state import StoreSpec, kinds, open_store
from tests.bench.harness import machine
from tests.bench.scale_parts import note

SEGMENT_MS = 60_000
#: Windows in the bucket that goes.
DYING = 10_000
_ROUNDS = 5
SPEC = StoreSpec(
    "w", kinds.TIMESTAMPED_WINDOW, LONG, LONG, retention_ms=2 * SEGMENT_MS, window_size_ms=1000, has_changelog=False
)


def filled(engine: Any, folder: Path, alive: int) -> Any:
    """Return a store with a bucket that is about to go and so many other windows, committed and known by heart."""
    store = open_store(SPEC, folder / "store", default_engine=engine)
    for key in range(DYING):
        store.put_pair(key, 1, key, 0)
    for number in range(alive):
        time_ms = SEGMENT_MS + number % (2 * SEGMENT_MS)
        store.put_pair(number, 1, time_ms, time_ms)
        if number % 100_000 == 0:
            store.commit({})
    store.commit({})
    store.pairs_in_range(1, 0, 1)
    # A full read cache turns its generations with the next commit; that is not expiry.
    store.put_pair(0, 1, SEGMENT_MS, SEGMENT_MS)
    store.commit({})
    return store


def expire(store: Any) -> tuple[float, float]:
    """Return CPU milliseconds of the record by which the bucket goes, and of the commit behind it."""
    begin = time.process_time()
    store.put_pair(0, 1, 3 * SEGMENT_MS, 3 * SEGMENT_MS)
    processed = time.process_time()
    store.commit({})
    return (processed - begin) * 1e3, (time.process_time() - processed) * 1e3


def run(arguments: list[str]) -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.scale expiry")
    options.add_argument("--most", type=int, default=1_000_000, help="windows that are alive (default a million)")
    chosen = options.parse_args(arguments)
    print(f"{machine()}; a bucket of {DYING:,} windows expires; median of {_ROUNDS}\n")
    print("| engine | windows alive | record, CPU ms | commit, CPU ms |")
    print("|---|---|---|---|")
    for engine in ("in_memory", "rocksdb"):
        alive = 10_000
        while alive <= chosen.most:
            rounds = []
            for _ in range(_ROUNDS):
                with tempfile.TemporaryDirectory() as folder:
                    store = filled(engine, Path(folder), alive)
                    rounds.append(expire(store))
                    store.close()
            record, commit = (statistics.median(each) for each in zip(*rounds, strict=True))
            print(f"| {engine} | {alive:,} | {record:.2f} | {commit:.2f} |", flush=True)
            note("expiry", {"engine": engine, "alive": alive, "record_ms": record, "commit_ms": commit})
            alive *= 10
