"""``python -m tests.bench.query_cost``: CPU time of a query by key, answered by its own instance or by another one.

Two instances in processes of their own have counted orders, and have nothing else to do.  The first one is asked for
keys that it has, and for keys that the second one has.  CPU time is that of each process: of the applications, and of
their HTTP processes, which read requests and write responses.  A share that is there without queries is left out.
"""

import argparse
import asyncio
import os
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx

from streams import Admin, EmbeddedBroker, Producer
from streams.clients.tcp import TcpCluster
from streams.protocol.messages import TopicSpec
from tests import waiting
from tests.bench.harness import machine
from tests.bench.queries import KEYS, PARTITIONS, Instance, orders

RECORDS = 6_000
CONNECTIONS = 50
IDLE_S = 3.0


def cpu_s(process: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def http_process_of(process: int) -> int:
    """Return the HTTP process of an application, which is its only child."""
    (child,) = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return int(child)


async def ask(url: str, keys: Sequence[str], queries: int, rate: int) -> None:
    """Ask for random keys at a rate, each of which must be found."""
    host, _, port = url.removeprefix("http://").rpartition(":")

    async def one(number: int) -> None:
        chosen = random.Random(number)
        reader, writer = await asyncio.open_connection(host, int(port))
        loop = asyncio.get_running_loop()
        due = loop.time() + chosen.random() * CONNECTIONS / rate
        for _ in range(queries // CONNECTIONS):
            await asyncio.sleep(max(0.0, due - loop.time()))
            due += CONNECTIONS / rate
            path = f"/stores/orders-of/keys/{chosen.choice(keys)}"
            writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        writer.close()

    await asyncio.gather(*(one(number) for number in range(CONNECTIONS)))


def partition_of(url: str, key: str) -> int:
    """Return the partition of a key, once the instances know each other."""
    while (found := httpx.get(f"{url}/stores/orders-of/keys/{key}")).status_code != 200:
        time.sleep(0.1)
    return int(found.json()["partition"])


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(machine())
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker())
        servers = stack.enter_context(broker.serve("127.0.0.1:0")).bootstrap_servers
        with Admin(TcpCluster(servers)) as admin:
            admin.create_topics([TopicSpec("orders", PARTITIONS)])
        with Producer(bootstrap_servers=servers) as producer:
            for number in range(RECORDS):
                producer.send(orders, 1, key=KEYS[number % len(KEYS)])
        instances = [Instance(servers) for _ in range(2)]
        for instance in instances:
            stack.callback(instance.close)
        half = PARTITIONS // 2
        waiting.until(lambda: [one.tell("figures")["tasks"] for one in instances] == [half, half])
        waiting.until(lambda: sum(one.tell("figures")["processed"] for one in instances) >= RECORDS)
        url = instances[0].url
        partition_by_key = {key: partition_of(url, key) for key in KEYS}
        places = httpx.get(f"{url}/stores/orders-of").json()["partitions"]
        own = {place["partition"] for place in places if place["active"]["is_local"]}
        processes = [process for one in instances for process in (one.process.pid, http_process_of(one.process.pid))]
        for _ in range(options.rounds):
            for is_local in (True, False):
                keys = [key for key, partition in partition_by_key.items() if (partition in own) is is_local]
                figures = measure(url, keys, options.queries, options.rate, processes)
                print("local" if is_local else "forwarded", *(f"{one:.0f}" for one in figures), flush=True)
        print("in us a query: the asked application, its HTTP process, the other application, its HTTP process")


def measure(url: str, keys: Sequence[str], queries: int, rate: int, processes: Sequence[int]) -> list[float]:
    """Return the CPU time in us that a query costs each process."""
    asyncio.run(ask(url, keys, CONNECTIONS * 4, rate))
    before = [cpu_s(process) for process in processes]
    begun = time.perf_counter()
    asyncio.run(ask(url, keys, queries, rate))
    seconds = time.perf_counter() - begun
    spent = [cpu_s(process) - earlier for process, earlier in zip(processes, before, strict=True)]
    before = [cpu_s(process) for process in processes]
    time.sleep(IDLE_S)
    idle = [(cpu_s(process) - earlier) / IDLE_S for process, earlier in zip(processes, before, strict=True)]
    return [(one - other * seconds) / queries * 1e6 for one, other in zip(spent, idle, strict=True)]


if __name__ == "__main__":
    main()
