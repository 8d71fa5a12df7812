"""State bigger than memory: a tumbling count over many distinct keys, within one budget.

The broker (files) and the application are processes of their own, so that the memory of the application is its
own.  One record in five updates a window picked uniformly among all that were made before: reads go all over the
state.  Memory is what the process has resident above the same application over a thousand keys.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple, cast

from streams import Admin, Producer, Streams, StreamsBuilder, TimeWindows, Topic, TopicPartition, time_windowed
from streams.core.blocks.records import Block
from streams.protocol.messages import TopicSpec
from tests.bench.harness import machine
from tests.bench.scale_parts import cpu_s, note, resident_bytes, served

PARTITIONS = 4
TEN_SECONDS = timedelta(seconds=10)
START_MS = 1_790_000_000_000
#: Event time of all records together; the grace keeps all windows alive.
SPAN_MS = 3_600_000
#: One record in so many goes to a window made before.
AGAIN = 5
_BATCH = 10_000
_PATIENCE_S = 3_600
_MIB = 1 << 20
_long = Struct(">q").pack

events = Topic("events", key=int, value=int)
counts = Topic("counts", key=time_windowed(int, TEN_SECONDS), value=int)


def topology(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(TEN_SECONDS, grace=timedelta(days=1))
    builder.stream(events).group_by_key().windowed_by(windows).count("counts").to_stream().to(counts)


def blocks(keys: int, distinct: int, span_ms: int, seed: int = 1) -> Iterator[tuple[int, Block]]:
    """Yield ``keys`` first records of windows, and every fifth record one of a window before; by partition."""
    pick = random.Random(seed).randrange
    # A step without a common factor visits every key once, in no order that an engine could use.
    step = 2_654_435_761
    value = _long(1)
    rows: list[tuple[list[bytes], list[int]]] = [([], []) for _ in range(PARTITIONS)]
    size = made = 0
    for number in range(keys + keys // (AGAIN - 1)):
        if number % AGAIN == AGAIN - 1:
            chosen = pick(made)
        else:
            chosen = made
            made += 1
        key = chosen * step % distinct
        columns = rows[key % PARTITIONS]
        columns[0].append(_long(key))
        columns[1].append(START_MS + chosen * span_ms // keys)
        size += 1
        if size == _BATCH * PARTITIONS:
            yield from _flushed(rows, value)
            size = 0
    yield from _flushed(rows, value)


def _flushed(rows: list[tuple[list[bytes], list[int]]], value: bytes) -> Iterator[tuple[int, Block]]:
    for number, (keys, times) in enumerate(rows):
        if keys:
            yield number, Block(tuple(keys), (value,) * len(keys), tuple(times), None, range(len(keys)))
        rows[number] = ([], [])


class Sample(NamedTuple):
    """The application at a moment."""

    wall_s: float
    cpu_s: float
    records: int
    resident_bytes: int


def fill(servers: str, keys: int, distinct: int, span_ms: int) -> int:
    """Let the broker have the input; return the number of records."""
    count = 0
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([TopicSpec(name, PARTITIONS) for name in (events.name, counts.name)])
    producer = Producer(bootstrap_servers=servers, linger_ms=5, batch_size_bytes=1 << 20)
    for number, block in blocks(keys, distinct, span_ms):
        producer.send_block(TopicPartition(events.name, number), block)
        count += len(block)
    producer.close()
    return count


def follow(servers: str, records: int, settings: dict[str, str]) -> None:
    """Be the application: say how it does twice a second, in lines of JSON."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("LAB")) as folder:
        with Streams(
            topology, application_id="scale", bootstrap_servers=servers, state_dir=folder, **cast("Any", settings)
        ) as streams:
            done, began = 0, time.monotonic()
            while done < records:
                if streams.wait(500):
                    raise RuntimeError("it has ended before its input has")
                if time.monotonic() - began > _PATIENCE_S:
                    raise TimeoutError(f"{done} of {records} records after {_PATIENCE_S} s")
                done = streams.metrics.get("process-total")
                used = resource.getrusage(resource.RUSAGE_SELF)
                _say(Sample(time.monotonic(), used.ru_utime + used.ru_stime, done, resident_bytes(os.getpid())))
        _say(Sample(time.monotonic(), cpu_s(os.getpid()), done, resident_bytes(os.getpid())))
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        print(json.dumps({"disk_bytes": size}), flush=True)


def _say(sample: Sample) -> None:
    print(json.dumps(sample), flush=True)


def measure(keys: int, distinct: int, span_ms: int, settings: list[str]) -> tuple[list[Sample], int]:
    """Return how the application did, and the bytes of its state on disk."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("LAB")) as folder, served("--data", folder) as broker:
        records = fill(broker.address, keys, distinct, span_ms)
        command = [sys.executable, "-m", "tests.bench.scale_state", "--follow", broker.address, str(records)]
        command += [part for setting in settings for part in ("--set", setting)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [json.loads(line) for line in process.stdout]
        if process.returncode:
            raise RuntimeError(f"the application ended with {process.returncode}")
    return [Sample(*line) for line in lines[:-1]], int(lines[-1]["disk_bytes"])


def rates(samples: list[Sample], share: float) -> tuple[float, float, float, float]:
    """Return the rates over the first and the last share of the records: by wall clock, by CPU."""
    first = next(sample for sample in samples if sample.records)
    last = samples[-2]
    low = first.records + (last.records - first.records) * share
    high = last.records - (last.records - first.records) * share
    early = next(sample for sample in samples if sample.records >= low)
    late = next(sample for sample in samples if sample.records >= high)
    found = []
    for begin, end in ((first, early), (late, last)):
        records = end.records - begin.records
        found += [records / (end.wall_s - begin.wall_s), records / (end.cpu_s - begin.cpu_s)]
    return found[0], found[2], found[1], found[3]


def run(arguments: list[str]) -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.scale state")
    options.add_argument("--keys", type=int, default=20_000_000, help="distinct keys (default 20 million)")
    options.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting")
    chosen = options.parse_args(arguments)
    few, _ = measure(min(1_000_000, chosen.keys), 1_000, 10_000, chosen.set)
    base = max(sample.resident_bytes for sample in few)
    samples, disk = measure(chosen.keys, chosen.keys, SPAN_MS, chosen.set)
    peak = max(sample.resident_bytes for sample in samples)
    first, last, first_cpu, last_cpu = rates(samples, 0.1)
    print(f"{machine()}; {chosen.keys:,} keys, {samples[-1].records:,} records, {' '.join(chosen.set) or 'defaults'}")
    print(
        f"state on disk {disk / _MIB:,.0f} MiB; resident {peak / _MIB:,.0f} MiB, with few keys {base / _MIB:,.0f} MiB"
    )
    print(f"memory of the state {(peak - base) / _MIB:,.0f} MiB")
    print(f"records/s, first and last tenth: {first:,.0f} and {last:,.0f}: {last / first:.2f}")
    print(f"records per CPU second: {first_cpu:,.0f} and {last_cpu:,.0f}: {last_cpu / first_cpu:.2f}")
    note(
        "state",
        {
            "keys": chosen.keys,
            "settings": chosen.set,
            "disk_bytes": disk,
            "base_bytes": base,
            "samples": samples[:: max(1, len(samples) // 200)],
        },
    )


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.scale_state")
    options.add_argument("--follow", nargs=2, metavar=("SERVERS", "RECORDS"), required=True)
    options.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    chosen = options.parse_args()
    follow(chosen.follow[0], int(chosen.follow[1]), dict(setting.split("=", 1) for setting in chosen.set))


if __name__ == "__main__":
    main()
