"""Cost against size: records, keys, partitions, operators in a chain; embedded broker, CPU of the whole path.

Each series is fitted: by how much a further million records, key, partition or operator costs more.
"""

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from struct import Struct

from streams import (
    EmbeddedBroker,
    StreamsBuilder,
    StreamsConfig,
    SystemClock,
    TimeWindows,
    Topic,
    TopicPartition,
    build_topology,
    time_windowed,
)
from streams.core.blocks.partitioning import partitions_for
from streams.core.blocks.records import Block
from streams.runtime.instance.instance import Instance
from streams.runtime.plan.bounded import BoundedProgress
from streams.runtime.stores.homes import home_of
from streams.runtime.threads.environment import Environment
from tests.bench.harness import machine
from tests.bench.scale_parts import note

TEN_SECONDS = timedelta(seconds=10)
START_MS = 1_790_000_000_000
#: Records per second of event time.
RATE = 10_000
_BATCH = 10_000
_long = Struct(">q").pack

events = Topic("events", key=int, value=int)
out = Topic("out", key=int, value=int)
counts = Topic("counts", key=time_windowed(int, TEN_SECONDS), value=int)

Build = Callable[[StreamsBuilder], object]


def counting(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(TEN_SECONDS, grace=timedelta(0))
    builder.stream(events).group_by_key().windowed_by(windows).count("counts").to_stream().to(counts)


def chain(operators: int) -> Build:
    """Return a topology of so many inline operators, maps and filters in turn."""

    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream(events)
        for number in range(operators):
            stream = stream.filter(lambda _, value: True) if number % 2 else stream.map_values(lambda value: value)
        stream.to(out)

    return build


def blocks(records: int, keys: int, partitions: int) -> Iterator[tuple[int, Block]]:
    """Yield records by partition, keys in turn; a key lies where a producer would put it."""
    encoded = [_long(key) for key in range(keys)]
    places = partitions_for(encoded, partitions)
    value = _long(1)
    for first in range(0, records, _BATCH * partitions):
        columns: dict[int, tuple[list[bytes], list[int]]] = {}
        for number in range(first, min(first + _BATCH * partitions, records)):
            key = number % keys
            mine, times = columns.setdefault(places[key], ([], []))
            mine.append(encoded[key])
            times.append(START_MS + number * 1000 // RATE)
        for partition, (mine, times) in columns.items():
            yield partition, Block(tuple(mine), (value,) * len(mine), tuple(times), None, range(len(mine)))


def run_once(build: Build, records: int, keys: int = 1_000, partitions: int = 4, *, on_disk: bool = False) -> float:
    """Return CPU seconds of one bounded run over so many records, which lie in the broker before."""
    with tempfile.TemporaryDirectory() as folder:
        with EmbeddedBroker(Path(folder, "log") if on_disk else None, default_partitions=partitions) as broker:
            broker.create_topic(events.name, partitions)
            for number, block in blocks(records, keys, partitions):
                broker.append(TopicPartition(events.name, number), block)
            config = StreamsConfig.of(application_id="bench")
            instance = Instance(
                build_topology(build, config),
                config,
                Environment(broker, SystemClock(), home_of(Path(folder, "state"), config), creates_topics=True),
                bounds=partial(BoundedProgress, end_offset=broker.end_offset),
            )
            gc.collect()
            begin = time.process_time()
            instance.start()
            assert instance.bounded is not None
            instance.bounded.end_topic(events.name)
            instance.bounded.done.wait()
            used = time.process_time() - begin
            instance.close()
            if instance.failure is not None:
                raise instance.failure
    return used


def slope(sizes: list[float], costs: list[float]) -> tuple[float, float]:
    """Return slope and correlation of a straight line."""
    return statistics.linear_regression(sizes, costs).slope, statistics.correlation(sizes, costs)


def series(name: str, unit: str, sizes: list[int], runs: int, cost: Callable[[int], float]) -> list[float]:
    """Measure and show one series; sizes take turns, so that a slow moment of the machine hits all of them."""
    found: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(runs):
        for size in sizes:
            found[size].append(cost(size))
    for size in sizes:
        low, middle, high = min(found[size]), statistics.median(found[size]), max(found[size])
        print(f"| {name} | {size:,} | {middle:,.0f} {unit} | {low:,.0f}-{high:,.0f} |", flush=True)
        note("cost", {"series": name, "unit": unit, "size": size, "costs": found[size]})
    return [statistics.median(found[size]) for size in sizes]


def _records(runs: int, most: int) -> None:
    sizes = [size for size in (1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000) if size <= most]
    each = series("records", "ns", sizes, runs, lambda size: run_once(counting, size, on_disk=True) / size * 1e9)
    if len(sizes) > 1:
        totals = [cost * size / 1e9 for cost, size in zip(each, sizes, strict=True)]
        per_million, fit = slope([size / 1e6 for size in sizes], totals)
        print(f"a further million records: {per_million:.2f} CPU s (correlation {fit:.4f})\n")


def _keys(runs: int, records: int) -> None:
    sizes = [10, 1_000, 10_000, 100_000, 1_000_000]
    each = series("keys", "ns", sizes, runs, lambda size: run_once(counting, records, size) / records * 1e9)
    print(f"1,000,000 keys against 1,000: {each[-1] / each[1]:.2f} times the cost of a record\n")


def _partitions(runs: int, records: int) -> None:
    sizes = [1, 4, 16, 64, 256]
    each = series(
        "partitions", "ns", sizes, runs, lambda size: run_once(counting, records, 10_000, size) / records * 1e9
    )
    per_one, fit = slope([float(size) for size in sizes], [cost * records / 1e6 for cost in each])
    print(f"a further partition: {per_one:.2f} CPU ms (correlation {fit:.4f})\n")


def _operators(runs: int, records: int) -> None:
    sizes = [0, 4, 8, 16, 32]
    each = series("operators", "ns", sizes, runs, lambda size: run_once(chain(size), records) / records * 1e9)
    per_one, fit = slope([float(size) for size in sizes], each)
    print(f"a further operator: {per_one:.0f} CPU ns a record (correlation {fit:.4f})\n")


def run(arguments: list[str]) -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.scale cost")
    options.add_argument("--most", type=int, default=20_000_000, help="records of the largest run")
    options.add_argument("--records", type=int, default=1_000_000, help="records where something else grows")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--only", default="", choices=["", "records", "keys", "partitions", "operators"])
    chosen = options.parse_args(arguments)
    print(f"{machine()}; median of {chosen.runs} runs, one thread\n")
    print("| what grows | size | CPU per record | range |\n|---|---|---|---|")
    measures = {
        "operators": lambda: _operators(chosen.runs, chosen.records),
        "keys": lambda: _keys(chosen.runs, chosen.records),
        "partitions": lambda: _partitions(chosen.runs, chosen.records),
        "records": lambda: _records(chosen.runs if chosen.most < 20_000_000 else 1, chosen.most),
    }
    for name, measure in measures.items():
        if chosen.only in ("", name):
            measure()
