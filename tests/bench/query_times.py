"""``python -m tests.bench.query_times``: how long queries by key take while the application processes records.

One application counts orders in one process, and is asked for random keys over HTTP at a rate.  In each round it first
processes records that come at a rate, and then as many as it can.  A time counts from when the query was due, so a late
answer also counts for the queries that it delays.  Broker and queries have processes of their own: three on two cores.

The variants take turns: the switch interval of the interpreter while a server runs, in milliseconds; 5 is the
interpreter's own.  With other work on the machine the times say nothing: a line begins with the load.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from typing import Any

from streams import Admin, EmbeddedBroker, Producer
from streams.clients.tcp import TcpCluster
from streams.protocol.messages import TopicSpec
from streams.web import switching
from tests import waiting
from tests.bench.harness import machine
from tests.bench.queries import KEYS, PARTITIONS, Instance, orders, run_instance

CONNECTIONS = 50


async def ask(url: str, rate: int, seconds: float) -> None:
    """Ask for random keys at a rate; print status counts and times in milliseconds."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    took: list[float] = []
    statuses: dict[int, int] = {}

    async def one(number: int) -> None:
        chosen = random.Random(number)
        reader, writer = await asyncio.open_connection(host, int(port))
        due = loop.time() + chosen.random() * CONNECTIONS / rate
        while due < end:
            await asyncio.sleep(max(0.0, due - loop.time()))
            path = f"/stores/orders-of/keys/{chosen.choice(KEYS)}"
            writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            took.append((loop.time() - due) * 1000)
            status = int(head.split(b" ", 2)[1])
            statuses[status] = statuses.get(status, 0) + 1
            due += CONNECTIONS / rate
        writer.close()

    await asyncio.gather(*map(one, range(CONNECTIONS)))
    took.sort()
    at = {name: round(took[int(len(took) * part)], 1) for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))}
    print(json.dumps({"queries": len(took), "statuses": statuses} | at))


def produce(servers: str, records: int, per_s: int | None, is_over: threading.Event) -> None:
    """Send records, so many a second or at once."""
    with Producer(bootstrap_servers=servers, linger_ms=5) as producer:
        begun = time.monotonic()
        for number in range(records):
            if per_s is not None and number % 100 == 0:
                early_s = begun + number / per_s - time.monotonic()
                if is_over.wait(max(0.0, early_s)):
                    return
            producer.send(orders, 1, key=KEYS[number % len(KEYS)])


def measure(instance: Instance, servers: str, options: argparse.Namespace, per_s: int | None) -> dict[str, Any]:
    """Return the figures of queries while records come at a rate, or while there are more than can be processed."""
    is_over = threading.Event()
    producing = threading.Thread(target=produce, args=(servers, options.records, per_s, is_over))
    if per_s is None:
        instance.tell("pause")
        produce(servers, options.records, None, is_over)
    else:
        producing.start()
    command = [sys.executable, "-m", "tests.bench.query_times", "--rate", str(options.rate)]
    asking = subprocess.Popen(
        [*command, "--seconds", str(options.seconds), "--ask", instance.url], stdout=subprocess.PIPE, text=True
    )
    before = instance.tell("resume")
    begun = time.monotonic()
    figures = json.loads(asking.communicate()[0])
    after = instance.tell("figures")
    seconds = time.monotonic() - begun
    is_over.set()
    if per_s is not None:
        producing.join()
    figures["records_per_s"] = round((after["processed"] - before["processed"]) / seconds)
    figures["cpu"] = round((after["cpu_s"] - before["cpu_s"]) / seconds, 2)
    return dict(figures)


def run_variant(servers: str, interval_ms: str) -> None:
    """Run the application with a switch interval."""
    switching.SWITCH_S = float(interval_ms) / 1000  # type: ignore[misc]
    run_instance(servers)


def measure_both(options: argparse.Namespace, variant: str) -> None:
    """Print the figures of one application on a broker of its own."""
    with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0") as listener:
        servers = listener.bootstrap_servers
        with Admin(TcpCluster(servers)) as admin:
            admin.create_topics([TopicSpec("orders", PARTITIONS)])
        instance = Instance(servers, "tests.bench.query_times", "--variant", variant)
        try:
            waiting.until(lambda: instance.tell("figures")["tasks"] == PARTITIONS)
            for per_s in (options.records_per_s, None):
                load = os.getloadavg()[0]
                figures = measure(instance, servers, options, per_s)
                what = "all that it can" if per_s is None else f"{per_s:,} records/s"
                print(f"load {load:.0f}, {variant} ms, {what}: {json.dumps(figures)}", flush=True)
        finally:
            instance.close()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=500, help="queries a second")
    parser.add_argument("--seconds", type=float, default=8.0, help="time of queries in one measurement")
    parser.add_argument("--records-per-s", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=2_000_000, help="more than are processed in that time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variants", nargs="+", default=["0.3", "5"])
    parser.add_argument("--instance", help=argparse.SUPPRESS)
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.instance:
        run_variant(options.instance, options.variant)
    elif options.ask:
        asyncio.run(ask(options.ask, options.rate, options.seconds))
    else:
        print(machine())
        for _ in range(options.rounds):
            for variant in options.variants:
                measure_both(options, variant)


if __name__ == "__main__":
    main()
