"""``python -m tests.bench.queries``: what queries cost an application, and how long they take.

Three instances in processes of their own count orders of 12 partitions, each time from a topic that has all records
already, once without queries and once under 1,000 queries by key per second to random instances. The rounds alternate.
Throughput is by the clock, and as CPU time of the instances per record, which other load on the machine changes less.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from streams import Admin, EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic
from streams.clients.tcp import TcpCluster
from streams.protocol.messages import TopicSpec
from tests import waiting
from tests.bench.harness import machine

PARTITIONS = 12
KEYS = [f"customer-{number}" for number in range(600)]
#: Connections of the asking process, over which the queries are spread.
CONNECTIONS = 240
orders = Topic("orders", key=str, value=int, partitions=PARTITIONS)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(orders).group_by_key().count("orders-of")


# --- the instance -----------------------------------------------------------------------------


def run_instance(servers: str) -> None:
    """Run the application; pause, resume, and report figures as told by lines on standard input."""
    streams = Streams(topology, application_id="shop", bootstrap_servers=servers, poll_ms=10)
    server = streams.serve("127.0.0.1:0")
    with streams:
        print(json.dumps({"url": server.url}), flush=True)
        for line in sys.stdin:
            match line.strip():
                case "pause":
                    streams.pause()
                case "resume":
                    streams.resume()
            figures = {
                "tasks": len(streams.tasks()),
                "processed": streams.metrics.get("process-total"),
                "cpu_s": time.process_time(),
            }
            print(json.dumps(figures), flush=True)


class Instance:
    """A process that runs the application: the module ``program``, with further arguments."""

    def __init__(self, servers: str, program: str = "tests.bench.queries", *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", program, "--instance", servers, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url: str = self._read()["url"]

    def tell(self, word: str) -> dict[str, Any]:
        """Send a word, and return the figures."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        """Close the application, and wait until the process has ended."""
        self.process.communicate()


# --- the queries ------------------------------------------------------------------------------


async def ask(urls: Sequence[str], rate: int) -> None:
    """Ask for random keys at a rate until standard input ends; print status counts and times."""
    took: list[float] = []
    statuses: dict[int, int] = {}
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print("asks", flush=True)

    async def one(number: int) -> None:
        chosen = random.Random(number)
        host, _, port = urls[number % len(urls)].removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        loop = asyncio.get_running_loop()
        due = loop.time() + chosen.random() * CONNECTIONS / rate
        while not ended.done():
            await asyncio.sleep(max(0.0, due - loop.time()))
            due += CONNECTIONS / rate
            begun = time.perf_counter()
            path = f"/stores/orders-of/keys/{chosen.choice(KEYS)}"
            writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            took.append(time.perf_counter() - begun)
            status = int(head.split(b" ", 2)[1])
            statuses[status] = statuses.get(status, 0) + 1
        writer.close()

    await asyncio.gather(*(one(number) for number in range(CONNECTIONS)))
    took.sort()
    figures = {"queries": len(took), "statuses": statuses}
    if took:
        figures |= {"p50_ms": took[len(took) // 2] * 1000, "p99_ms": took[int(len(took) * 0.99)] * 1000}
    print(json.dumps(figures))


# --- the measurement --------------------------------------------------------------------------


def measure(instances: Sequence[Instance], servers: str, records: int, rate: int) -> dict[str, Any]:
    """Process so many records while queries come at a rate; return the figures."""
    before = [instance.tell("pause") for instance in instances]
    with Producer(bootstrap_servers=servers, linger_ms=5) as producer:
        for number in range(records):
            producer.send(orders, 1, key=KEYS[number % len(KEYS)])
    wanted = sum(found["processed"] for found in before) + records
    asking = None
    if rate:
        command = [sys.executable, "-m", "tests.bench.queries", "--rate", str(rate), "--ask"]
        asking = subprocess.Popen(
            [*command, *(instance.url for instance in instances)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert asking.stdout is not None
        asking.stdout.readline()
    before = [instance.tell("resume") for instance in instances]
    begun = time.perf_counter()
    while sum(instance.tell("figures")["processed"] for instance in instances) < wanted:
        time.sleep(0.02)
    seconds = time.perf_counter() - begun
    after = [instance.tell("figures") for instance in instances]
    cpu_s = sum(found["cpu_s"] for found in after) - sum(found["cpu_s"] for found in before)
    answers = {} if asking is None else json.loads(asking.communicate()[0])
    return {"per_s": records / seconds, "cpu_us": cpu_s / records * 1e6, "seconds": seconds, "cpu_s": cpu_s} | answers


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers")
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--records", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--instance", help=argparse.SUPPRESS)
    parser.add_argument("--ask", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.instance:
        run_instance(options.instance)
    elif options.ask:
        asyncio.run(ask(options.ask, options.rate))
    else:
        compare(options)


def compare(options: argparse.Namespace) -> None:
    """Run the rounds, and print the figures."""
    print(machine())
    with ExitStack() as stack:
        servers = options.bootstrap_servers
        if servers is None:
            broker = stack.enter_context(EmbeddedBroker())
            servers = stack.enter_context(broker.serve("127.0.0.1:0")).bootstrap_servers
        with Admin(TcpCluster(servers)) as admin:
            admin.create_topics([TopicSpec("orders", PARTITIONS)])
        instances = [Instance(servers) for _ in range(options.instances)]
        for instance in instances:
            stack.callback(instance.close)
        waiting.until(lambda: sum(one.tell("figures")["tasks"] for one in instances) == PARTITIONS)
        measure(instances, servers, 50_000, 0)
        rounds = []
        for _ in range(options.rounds):
            without = measure(instances, servers, options.records, 0)
            under = measure(instances, servers, options.records, options.rate)
            rounds.append((without, under))
            print(json.dumps({"without": without, "under": under}), flush=True)
        for name in ("per_s", "cpu_us"):
            ratio = statistics.median(under[name] / without[name] for without, under in rounds)
            middle = [statistics.median(found[name] for found in side) for side in zip(*rounds, strict=True)]
            print(f"{name}: without {middle[0]:.2f}, under {middle[1]:.2f}, median of ratios {ratio:.3f}")


if __name__ == "__main__":
    main()
