"""From produce to consume at a rate that no system finds hard: half and 99th percentile.

One producer and one consumer of librdkafka without linger, for all systems the same; records carry the time at
which they were produced.  The first fifth is left out.
"""

import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from attrs import frozen
from confluent_kafka import Consumer, Producer

from streams import Admin
from tests.bench.peers.lab import PROJECT, Lab
from tests.bench.peers.topics import fresh_topic

SOURCE, SINK = "lat-in", "lat-out"
#: What a system gets to start in.
_START_S = 8.0
_STOP_S = 30.0
_KEYS = 1000


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
    """Return percentiles in milliseconds, and how many records were sent and seen."""
    for topic in (SOURCE, SINK):
        fresh_topic(admin, topic)
    seen_ms: list[float] = []
    stop = threading.Event()
    reader = threading.Thread(target=_read, args=(lab.servers, SINK if probe.command else SOURCE, seen_ms, stop))
    with _running(lab, probe):
        reader.start()
        try:
            time.sleep(_START_S)
            _write(lab.servers, rate, seconds)
            time.sleep(3)
        finally:
            stop.set()
            reader.join()
    settled = sorted(seen_ms[len(seen_ms) // 5 :])
    if not settled:
        raise RuntimeError(f"{probe.system}, {probe.what}: nothing has come out")
    found = {f"p{share}": round(settled[int(len(settled) * share / 100)], 2) for share in (50, 90, 99)}
    return {"what": probe.what, "system": probe.system, "sent": rate * seconds, "got": len(seen_ms), **found}


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


def _read(servers: str, topic: str, seen_ms: list[float], stop: threading.Event) -> None:
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
                seen_ms.append((time.time() - msgspec.json.decode(value)["t"]) * 1000)
    consumer.close()


def _write(servers: str, rate: int, seconds: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    begin_s = time.perf_counter()
    for number in range(rate * seconds):
        wait_s = begin_s + number / rate - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        bid = {"auction": number, "price": 100, "t": time.time(), "pad": "x" * 80}
        producer.produce(SOURCE, msgspec.json.encode(bid), b"%d" % (number % _KEYS))
        producer.poll(0)
    producer.flush()
