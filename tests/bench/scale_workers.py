"""Scaling over processes: ``streams run --workers N`` over a broker that has a core of its own.

The broker is pinned to the first core, each number of workers to as many further ones.  Rates are of the middle
of a run, from the first to the last tenth of the records, as the outputs show them; beside the wall clock the CPU
of all workers, which is what to compare where others use the machine too.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct

from streams import Admin, Producer, TopicPartition
from streams.core.blocks.partitioning import partitions_for
from streams.core.blocks.records import Block
from streams.protocol.messages import LATEST_TIMESTAMP, TopicSpec
from tests.bench.harness import machine
from tests.bench.scale_parts import cpu_s, note, served

PARTITIONS = 12
_BATCH = 20_000
_PATIENCE_S = 600
_long = Struct(">q").pack

PROGRAM = '''\
"""A count by key with every update, as users write it."""

from datetime import timedelta

from streams import StreamsBuilder, TimeWindows, Topic, time_windowed

TEN_SECONDS = timedelta(seconds=10)
events = Topic("events", key=int, value=int)
counts = Topic("counts", key=time_windowed(int, TEN_SECONDS), value=int)


def topology(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(TEN_SECONDS)
    builder.stream(events).group_by_key().windowed_by(windows).count("counts").to_stream().to(counts)
'''


def fill(servers: str, records: int) -> None:
    """Let the broker have the input: 10,000 keys, a second of event time for as many records."""
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([TopicSpec("events", PARTITIONS)])
    keys = [_long(key) for key in range(10_000)]
    places = partitions_for(keys, PARTITIONS)
    with Producer(bootstrap_servers=servers, batch_size_bytes=256 * 1024) as producer:
        for first in range(0, records, _BATCH):
            columns: list[tuple[list[bytes], list[int]]] = [([], []) for _ in range(PARTITIONS)]
            for number in range(first, min(first + _BATCH, records)):
                mine, times = columns[places[number % len(keys)]]
                mine.append(keys[number % len(keys)])
                times.append(1_790_000_000_000 + number // 10)
            for place, (mine, times) in enumerate(columns):
                block = Block(tuple(mine), (_long(1),) * len(mine), tuple(times), None, range(len(mine)))
                producer.send_block(TopicPartition("events", place), block)


@contextmanager
def workers(servers: str, folder: Path, count: int, cores: list[int]) -> Iterator[int]:
    """Run the program; yield the number of the process whose children the workers are."""
    script = folder / "program.py"
    script.write_text(PROGRAM)
    state = folder / f"state-{uuid.uuid4().hex[:6]}"
    command = [sys.executable, "-m", "streams", "run", str(script), "--bootstrap-servers", servers]
    command += ["--state-dir", str(state), "--workers", str(count)]
    command += ["--set", f"application_id=workers-{uuid.uuid4().hex[:6]}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        os.sched_setaffinity(process.pid, cores)
        try:
            yield process.pid
        finally:
            process.terminate()


def family(pid: int) -> list[int]:
    """Return a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [pid, *(child for text in children.read_text().split() for child in family(int(text)))]


def measure(servers: str, folder: Path, records: int, count: int, cores: list[int]) -> tuple[float, float]:
    """Return records a second in the middle of the run, and CPU seconds of the workers for a million of them."""
    with Admin(bootstrap_servers=servers) as admin:
        # A topic of its own for the outputs, whose end says how far the run is.
        if "counts" in admin.list_topics():
            admin.delete_topics(["counts"])
        admin.create_topics([TopicSpec("counts", PARTITIONS)])
        places = [TopicPartition("counts", number) for number in range(PARTITIONS)]
        with workers(servers, folder, count, cores) as pid:
            samples: list[tuple[float, int, float]] = []
            began, done = time.monotonic(), 0
            while done < records * 0.95:
                if time.monotonic() - began > _PATIENCE_S:
                    raise TimeoutError(f"{done} of {records} records after {_PATIENCE_S} s")
                done = sum(admin.list_offsets(dict.fromkeys(places, LATEST_TIMESTAMP)).values())
                samples.append((time.monotonic(), done, sum(cpu_s(each) for each in family(pid))))
                time.sleep(0.2)
    first = next(sample for sample in samples if sample[1] >= records * 0.1)
    last = next(sample for sample in samples if sample[1] >= records * 0.9)
    made = last[1] - first[1]
    return made / (last[0] - first[0]), (last[2] - first[2]) / made * 1e6


def run(arguments: list[str]) -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.scale workers")
    options.add_argument("--records", type=int, default=4_000_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--most", type=int, default=(os.cpu_count() or 2) - 1, help="workers; a core each")
    chosen = options.parse_args(arguments)
    cores = sorted(os.sched_getaffinity(0))
    found: dict[int, list[tuple[float, float]]] = {count: [] for count in range(1, chosen.most + 1)}
    with tempfile.TemporaryDirectory(dir=os.environ.get("LAB")) as folder, served() as broker:
        os.sched_setaffinity(broker.pid, cores[:1])
        fill(broker.address, chosen.records)
        for _ in range(chosen.rounds):
            for count, runs in found.items():
                mine = cores[1 : 1 + count]
                before, began = cpu_s(broker.pid), time.monotonic()
                runs.append(measure(broker.address, Path(folder), chosen.records, count, mine))
                busy = (cpu_s(broker.pid) - before) / (time.monotonic() - began)
                print(f"{count} workers: {runs[-1][0]:,.0f} records/s, the broker's core {busy:.0%} busy", flush=True)
    one = statistics.median(rate for rate, _ in found[1])
    print(f"\n{machine()}; {chosen.records:,} records, {PARTITIONS} partitions; median of {chosen.rounds} rounds\n")
    print("| workers | records/s | of N times one | CPU s per million |\n|---|---|---|---|")
    for count, runs in found.items():
        rate, cpu = (statistics.median(each) for each in zip(*runs, strict=True))
        print(f"| {count} | {rate:,.0f} | {rate / one / count:.2f} | {cpu:.2f} |")
        note("workers", {"workers": count, "runs": runs})
