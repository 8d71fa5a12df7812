"""``python -m tests.bench.wire [--records N] [--runs N] [--kafka]``: the broker over TCP, with the clients of others.

Records per second, and CPU seconds per million records of the broker's process and of the client's; the real
node (``make kafka-jars``) beside it with ``--kafka``.  Client and broker share the machine.
"""

import argparse
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench.figures import Table, add_write_option
from tests.bench.harness import machine
from tests.kafka.node import KafkaNode

PARTITIONS = 4
COLUMNS = ("broker", "client", "records/s", "broker CPU s per million", "client CPU s per million", "spread")
VALUE = b"v" * 100
# Else librdkafka pauses for a second where it has fetched more than it thinks good.
EAGER = {"queued.min.messages": 10_000_000, "queued.max.messages.kbytes": 2_000_000}


class Served(NamedTuple):
    """A broker in a process of its own."""

    name: str
    address: str
    pid: int

    def cpu_s(self) -> float:
        """CPU seconds that it has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Run(NamedTuple):
    """One measurement."""

    wall_s: float
    broker_s: float
    client_s: float


@contextmanager
def ours(name: str, *options: str) -> Iterator[Served]:
    """Serve our broker."""
    command = [sys.executable, "-m", "streams", "broker", "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.search(r"listens on (\S+),", process.stderr.readline())
        assert found is not None
        try:
            yield Served(name, found[1], process.pid)
        finally:
            process.terminate()


@contextmanager
def real(folder: Path) -> Iterator[Served]:
    """Start Apache Kafka."""
    with KafkaNode(folder, heap_mib=1024) as node:
        assert node._process is not None
        yield Served("Apache Kafka", node.bootstrap_servers, node._process.pid)


def new_topic(address: str) -> str:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(20)
    return name


def produce_confluent(address: str, topic: str, count: int) -> None:
    settings = {
        "bootstrap.servers": address,
        "linger.ms": 5,
        "acks": "all",
        "queue.buffering.max.messages": 1_000_000,
    }
    producer = Producer(settings)
    send, poll = producer.produce, producer.poll
    for number in range(count):
        try:
            send(topic, VALUE, partition=number % PARTITIONS)
        except BufferError:
            poll(0.05)
            send(topic, VALUE, partition=number % PARTITIONS)
        if not number % 1000:
            poll(0)
    assert producer.flush(60) == 0


def consume_confluent(address: str, topic: str, count: int) -> None:
    settings = {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False, **EAGER}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    seen = 0
    while seen < count:
        messages = consumer.consume(10_000, 1.0)
        assert messages, f"{seen} of {count} records, and no more"
        seen += len(messages)
    consumer.close()


def produce_kcat(address: str, topic: str, count: int) -> None:
    lines = (VALUE + b"\n") * count
    command = ["kcat", "-b", address, "-P", "-t", topic, "-X", "linger.ms=5", "-X", "acks=all"]
    subprocess.run(command, input=lines, check=True)


def consume_kcat(address: str, topic: str, count: int) -> None:
    command = ["kcat", "-b", address, "-C", "-t", topic, "-o", "beginning", "-c", str(count), "-q", "-f", "%o\n"]
    command += [item for name, value in EAGER.items() for item in ("-X", f"{name}={value}")]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def client_cpu_s() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def timed(broker: Served, act: Callable[[], None]) -> Run:
    wall_s, broker_s, client_s = time.perf_counter(), broker.cpu_s(), client_cpu_s()
    act()
    return Run(time.perf_counter() - wall_s, broker.cpu_s() - broker_s, client_cpu_s() - client_s)


def report(table: Table, broker: Served, what: str, runs: list[Run], count: int) -> None:
    wall_s = statistics.median(run.wall_s for run in runs)
    spread = (max(run.wall_s for run in runs) - min(run.wall_s for run in runs)) / wall_s
    million = count / 1e6
    broker_s = statistics.median(run.broker_s for run in runs) / million
    client_s = statistics.median(run.client_s for run in runs) / million
    table.add([broker.name, what, f"{count / wall_s:,.0f}", f"{broker_s:.2f}", f"{client_s:.2f}", f"{spread:.0%}"])


def measure(table: Table, broker: Served, count: int, runs: int, only: str) -> None:
    clients = {"confluent": (produce_confluent, consume_confluent)}
    if shutil.which("kcat"):
        clients["kcat"] = (produce_kcat, consume_kcat)
    for name, (produce, consume) in clients.items():
        if only not in name:
            continue
        produced, consumed = [], []
        # One more at first: a JVM has to warm up.
        for number in range(runs + 1):
            topic = new_topic(broker.address)
            first = timed(broker, partial(produce, broker.address, topic, count))
            second = timed(broker, partial(consume, broker.address, topic, count))
            if number:
                produced.append(first)
                consumed.append(second)
        report(table, broker, f"{name} produces", produced, count)
        report(table, broker, f"{name} consumes", consumed, count)


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.bench.wire")
    options.add_argument("--records", type=int, default=500_000)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--only", default="", help="clients whose name has this in it")
    options.add_argument("--kafka", action="store_true", help="the real node too")
    add_write_option(options)
    chosen = options.parse_args()
    size = f"{len(VALUE)} bytes each, {PARTITIONS} partitions, acks=all, linger 5 ms"
    conditions = f"{machine()}; {chosen.records:,} records of {size}; median of {chosen.runs} runs"
    table = Table("wire", COLUMNS, conditions)
    table.open()
    with tempfile.TemporaryDirectory() as folder:
        with ours("ours, memory") as broker:
            measure(table, broker, chosen.records, chosen.runs, chosen.only)
        with ours("ours, files", "--data", f"{folder}/ours") as broker:
            measure(table, broker, chosen.records, chosen.runs, chosen.only)
        if chosen.kafka:
            with real(Path(folder) / "kafka") as broker:
                measure(table, broker, chosen.records, chosen.runs, chosen.only)
    if chosen.write:
        table.write()


if __name__ == "__main__":
    main()
