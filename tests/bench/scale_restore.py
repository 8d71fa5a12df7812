"""Restoring a store from its changelog on a real Kafka: ours and Kafka Streams in turn, RocksDB on both sides.

The changelog has one record per key and is the same for both.  Wall time runs from the start of the application
to the moment at which all its tasks have their stores; CPU is the process's up to then, imports and JVM included.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from struct import Struct

from streams import Admin, Producer, State, Streams, StreamsBuilder, Topic, TopicPartition
from streams.core.blocks.partitioning import partitions_for
from streams.core.blocks.records import Block
from streams.protocol.messages import TopicSpec
from tests.bench.harness import machine
from tests.bench.scale_parts import note
from tests.kafka.node import KafkaNode, jars

PARTITIONS = 4
APPLICATION = "restore"
_SOURCE = Path(__file__).parents[1] / "kafka" / "java" / "Restore.java"
_BATCH = 50_000
_PATIENCE_MS = 600_000
_long = Struct(">q").pack

events = Topic("restore-events", key=int, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(events).group_by_key().count("counts")


def fill(servers: str, entries: int) -> None:
    """Make the topics, and a changelog of so many keys."""
    changelog = f"{APPLICATION}-counts-changelog"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(
            [
                TopicSpec(events.name, PARTITIONS),
                TopicSpec(changelog, PARTITIONS, {"cleanup.policy": "compact"}),
            ]
        )
    with Producer(bootstrap_servers=servers, batch_size_bytes=256 * 1024, linger_ms=20) as producer:
        for first in range(0, entries, _BATCH):
            # In no order of the keys, as changelogs are.
            keys = [_long(number * 2_654_435_761 % (1 << 40)) for number in range(first, min(first + _BATCH, entries))]
            columns: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
            for key, place in zip(keys, partitions_for(keys, PARTITIONS), strict=True):
                columns[place].append(key)
            for number, mine in enumerate(columns):
                block = Block(tuple(mine), (_long(first),) * len(mine), (first,) * len(mine), None, range(len(mine)))
                producer.send_block(TopicPartition(changelog, number), block)


def restore(servers: str, entries: int) -> None:
    """Be our application; say wall and CPU milliseconds in a line."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("LAB")) as folder:
        begin = time.perf_counter()
        with Streams(topology, application_id=APPLICATION, bootstrap_servers=servers, state_dir=folder) as streams:
            while streams.state is not State.RUNNING or streams.metrics.get("restored-tasks-total") < PARTITIONS:
                if streams.wait(5) or time.perf_counter() - begin > _PATIENCE_MS / 1000:
                    raise RuntimeError("the stores have not been restored")
            wall_s = time.perf_counter() - begin
            used = resource.getrusage(resource.RUSAGE_SELF)
            found = streams.store("counts").approximate_num_entries()
            # RocksDB's own count is an estimate.
            if not 0.9 * entries <= found <= 1.1 * entries:
                raise RuntimeError(f"{found} entries were restored of {entries}")
        print(json.dumps([wall_s * 1e3, (used.ru_utime + used.ru_stime) * 1e3, used.ru_maxrss // 1024]))


def run_ours(servers: str, entries: int) -> tuple[float, float]:
    command = [sys.executable, "-m", "tests.bench.scale_restore", servers, str(entries)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    wall_ms, cpu_ms, _ = json.loads(done.stdout)
    return wall_ms / 1e3, cpu_ms / 1e3


def run_java(servers: str, classes: Path) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("LAB")) as folder:
        class_path = os.pathsep.join([str(classes), *map(str, jars("streams"))])
        command = ["java", "-Xmx1g", "-cp", class_path, "Restore", APPLICATION, servers, folder, events.name]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    wall_ms, cpu_ms = map(float, done.stdout.split())
    return wall_ms / 1e3, cpu_ms / 1e3


def run(arguments: list[str]) -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.scale restore")
    options.add_argument("--entries", type=int, default=5_000_000)
    options.add_argument("--rounds", type=int, default=3)
    chosen = options.parse_args(arguments)
    found: dict[str, list[tuple[float, float]]] = {"ours": [], "Kafka Streams": []}
    with tempfile.TemporaryDirectory(dir=os.environ.get("LAB")) as folder:
        classes = Path(folder, "classes")
        class_path = os.pathsep.join(map(str, jars("streams")))
        subprocess.run(["javac", "-cp", class_path, "-d", str(classes), str(_SOURCE)], check=True)
        with KafkaNode(Path(folder, "node"), heap_mib=1024) as node:
            fill(node.bootstrap_servers, chosen.entries)
            for _ in range(chosen.rounds):
                found["ours"].append(run_ours(node.bootstrap_servers, chosen.entries))
                found["Kafka Streams"].append(run_java(node.bootstrap_servers, classes))
    print(f"{machine()}; {chosen.entries:,} entries, {PARTITIONS} partitions, Kafka 4.1.1, {chosen.rounds} rounds\n")
    print("| who | wall s, median (range) | CPU s, median (range) |\n|---|---|---|")
    for name, runs in found.items():
        cells = [f"{statistics.median(each):.1f} ({min(each):.1f}-{max(each):.1f})" for each in zip(*runs, strict=True)]
        print(f"| {name} | {' | '.join(cells)} |")
        note("restore", {"who": name, "entries": chosen.entries, "runs": runs})


if __name__ == "__main__":
    restore(sys.argv[1], int(sys.argv[2]))
