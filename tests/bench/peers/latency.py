"""From produce to consume at a rate that no system finds hard: half and 99th percentile.

One producer and one consumer of librdkafka without linger, for all systems the same; records carry the time at
which they were produced.  They count once the system has kept up with the rate for a while.
"""

import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from attrs import frozen
from confluent_kafka import Consumer, Producer

from streams import Admin
from tests.bench.peers.lab import PROJECT, Lab
from tests.bench.peers.topics import fresh_topic

SOURCE, SINK = "lat-in", "lat-out"
#: What a system gets until it keeps up.
_START_S = 60.0
#: What it has been sent before its records count, and how late the last of them may have been.
_WARM_S = 8.0
_LATE_S = 1.0
#: For the last records to come out.
_DRAIN_S = 3.0
_STOP_S = 30.0
_KEYS = 1000


class Seen(NamedTuple):
    """A record that came out: when it was produced, and how long it took."""

    sent_s: float
    late_s: float


@frozen
class Probe:
    """One thing whose latency is measured; without a command it is the broker's alone."""

    what: str
    system: str
    command: Sequence[str] = ()


def probes(lab: Lab) -> list[Probe]:
    python = [lab.python("python"), "-W", "ignore"]
    java = ["java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", lab.class_path]
    ours = [sys.executable, "-m", "tests.bench.peers.latency_app"]
    own = f"{PROJECT}/tests/bench/peers/quix_windowed.py"
    return [
        Probe("stateless", "broker alone"),
        Probe("stateless", "streams", [*ours, "stateless", SOURCE, SINK]),
        Probe("stateless", "hand-fused", [*python, f"{lab.peers}/lat_app.py", "proto", SOURCE, SINK]),
        Probe("stateless", "Kafka Streams, linger 0", [*java, "KsLat", SOURCE, SINK]),
        Probe("stateless", "Quix", [*python, f"{lab.peers}/lat_app.py", "quix", SOURCE, SINK]),
        Probe("windowed count", "streams", [*ours, "windowed", SOURCE, SINK]),
        Probe("windowed count", "Kafka Streams, linger 0", [*java, "KsLatWindowed", SOURCE, SINK]),
        Probe("windowed count", "Quix", [*python, own, SOURCE, SINK]),
    ]


def measure(lab: Lab, admin: Admin, probe: Probe, rate: int, seconds: int) -> dict[str, Any]:
    """Return percentiles in milliseconds, and how many records were sent and seen.

    Raises:
        RuntimeError: nothing comes out, or less than is due.
    """
    for topic in (SOURCE, SINK):
        fresh_topic(admin, topic)
    seen: list[Seen] = []
    stop = threading.Event()
    reader = threading.Thread(target=_read, args=(lab.servers, SINK if probe.command else SOURCE, seen, stop))
    with _running(lab, probe):
        reader.start()
        try:
            begin_s = _write(lab.servers, rate, seconds, seen)
            time.sleep(_DRAIN_S)
        finally:
            stop.set()
            reader.join()
    settled = sorted(found.late_s * 1000 for found in seen if found.sent_s >= begin_s)
    if not begin_s or len(settled) < rate * seconds:
        raise RuntimeError(f"{probe.system}, {probe.what}: {len(settled)} of {rate * seconds} records have come out")
    percentiles = {f"p{share}": round(settled[int(len(settled) * share / 100)], 2) for share in (50, 90, 99)}
    return {"what": probe.what, "system": probe.system, "sent": rate * seconds, "got": len(settled), **percentiles}


@contextmanager
def _running(lab: Lab, probe: Probe) -> Iterator[None]:
    if not probe.command:
        yield
        return
    state = lab.scratch / "state" / "latency"
    variables = lab.environment({"LINGER": "0", "STATE": str(state)})
    process = subprocess.Popen(probe.command, env=variables, cwd=PROJECT, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(state, ignore_errors=True)


def _read(servers: str, topic: str, seen: list[Seen], stop: threading.Event) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": f"lat-{random.getrandbits(32)}",
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while not stop.is_set():
        for message in consumer.consume(100, 0.01):
            if message.error() is None and (value := message.value()) is not None:
                sent_s = msgspec.json.decode(value)["t"]
                seen.append(Seen(sent_s, time.time() - sent_s))
    consumer.close()


def _write(servers: str, rate: int, seconds: int, seen: list[Seen]) -> float:
    """Send at the rate until the system has been answering for a while, and then what counts; return since when."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    begin_s, number, counted_s, last = time.perf_counter(), 0, 0.0, 0
    while not counted_s or number < last:
        wait_s = begin_s + number / rate - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        if not counted_s and seen and seen[-1].sent_s - seen[0].sent_s > _WARM_S and seen[-1].late_s < _LATE_S:
            counted_s, last = time.time(), number + rate * seconds
        elif not counted_s and number > rate * _START_S:
            break
        bid = {"auction": number, "price": 100, "t": time.time(), "pad": "x" * 80}
        producer.produce(SOURCE, msgspec.json.encode(bid), b"%d" % (number % _KEYS))
        producer.poll(0)
        number += 1
    producer.flush()
    return counted_s
