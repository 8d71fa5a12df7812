"""Queries to random instances under load, while one instance is killed and another joins; figures as JSON.

    python -m tests.kafka.moves [--bootstrap-servers HOST:PORT] [--queries N]

Every answer has a position, so it can be checked exactly: the count of a key is the number of its records up to that
offset.  The application runs with exactly-once, in processes of their own, on the embedded broker over TCP or a Kafka.
"""

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from streams import Admin, EmbeddedBroker, Producer, Topic
from streams.clients.tcp import TcpCluster
from streams.core.blocks.partitioning import partition_for
from streams.protocol.messages import TopicSpec
from tests import waiting
from tests.kafka.processes import Started

PARTITIONS = 12
KEYS = [f"customer-{number}" for number in range(600)]
ASKERS = 4
#: A key of each partition.
ONE_OF_EACH = list({partition_for(key.encode(), PARTITIONS): key for key in KEYS}.values())
SCRIPT = """\
from streams import StreamsBuilder, Topic

orders = Topic("orders", key=str, value=int, partitions=12)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(orders).group_by_key().count("orders-of")
"""
SETTINGS: dict[str, str | int] = {
    "processing_guarantee": "exactly_once_v2",
    "commit_interval_ms": 100,
    "session_timeout_ms": 6000,
    "heartbeat_interval_ms": 300,
    "transaction_timeout_ms": 6000,
    "num_standby_replicas": 1,
}
orders = Topic("orders", key=str, value=int, partitions=PARTITIONS)


class Asked(NamedTuple):
    """A question and its answer."""

    at: float
    took_s: float
    url: str
    key: str
    status: int
    body: dict[str, Any]


class Load:
    """Sends orders as fast as they are taken, and remembers which key is at which offset."""

    def __init__(self, servers: str) -> None:
        self.keys: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self._servers = servers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        chosen = random.Random(1)
        with Producer(bootstrap_servers=self._servers) as producer:
            while not self._stop.is_set():
                for key in chosen.choices(KEYS, k=100):
                    self.keys[partition_for(key.encode(), PARTITIONS)].append(key)
                    producer.send(orders, 1, key=key)
                producer.flush()
                self._stop.wait(0.02)

    def count(self, key: str, position: str) -> int:
        """Return how many records a key has up to a position."""
        _, partition, offset = position.rsplit(":", 2)
        return self.keys[int(partition)][: int(offset) + 1].count(key)


class Instance:
    """A process that runs the application."""

    def __init__(self, folder: Path, servers: str, number: int, settings: Mapping[str, int]) -> None:
        command = [sys.executable, "-m", "streams", "run", str(folder / "app.py"), "--bootstrap-servers", servers]
        command += ["--http", "127.0.0.1:0"]
        command += [f"--set={name}={value}" for name, value in (SETTINGS | settings).items()]
        self.started = Started(command, folder / f"said-{number}.log")
        self.url = self.started.line_with("serves the live page").split()[1]


def asked(client: httpx.Client, url: str, key: str) -> Asked:
    """Ask an instance for a key; status 0 if it cannot be reached."""
    at = time.perf_counter()
    try:
        found = client.get(f"{url}/stores/orders-of/keys/{key}")
        status, body = found.status_code, found.json()
    except httpx.TransportError as error:
        status, body = 0, {"error": type(error).__name__}
    return Asked(at, time.perf_counter() - at, url, key, status, body)


def show(servers: str, folder: Path, queries: int, **settings: int) -> dict[str, Any]:
    """Run the application and the questions; return the figures."""
    (folder / "app.py").write_text(SCRIPT)
    with Admin(TcpCluster(servers)) as admin:
        admin.create_topics([TopicSpec("orders", PARTITIONS)])
    answers: list[Asked] = []
    moves: dict[str, float] = {}
    with ExitStack() as stack:
        instances = [Instance(folder, servers, number, settings) for number in range(3)]
        for instance in instances:
            stack.enter_context(instance.started)
        load = stack.enter_context(Load(servers))
        client = stack.enter_context(httpx.Client(timeout=waiting.WATCHDOG_S))

        def owners_of(url: str) -> dict[int, str]:
            found = client.get(f"{url}/stores/orders-of").json().get("partitions", ())
            return {one["partition"]: f"http://{(one['active'] or {}).get('endpoint')}" for one in found}

        def is_settled(urls: list[str]) -> bool:
            """Whether each instance has its share of the partitions, and answers for all of them."""
            shares = Counter(owners_of(urls[0]).values())
            return shares == dict.fromkeys(urls, PARTITIONS // len(urls)) and all(
                asked(client, url, key).status == 200 for url in urls for key in ONE_OF_EACH
            )

        waiting.until(lambda: is_settled([one.url for one in instances]), lambda: time.sleep(0.1))
        waiting.until(lambda: all(asked(client, instances[0].url, key).status == 200 for key in KEYS))
        urls = [instance.url for instance in instances]
        owners = owners_of(urls[0])
        begun = time.perf_counter()

        #: Number of answers after which no more is asked; known once the group has settled.
        wanted = [1 << 60]

        def ask(number: int) -> None:
            chosen = random.Random(number)
            with httpx.Client(timeout=waiting.WATCHDOG_S) as own:
                while len(answers) < max(queries, wanted[0]):
                    answers.append(asked(own, chosen.choice(urls), chosen.choice(KEYS)))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(ASKERS)]
        for thread in threads:
            thread.start()
        waiting.until(lambda: len(answers) > queries // 3, lambda: time.sleep(0.01))
        moves["killed"] = time.perf_counter()
        instances[0].started.process.kill()
        urls.remove(instances[0].url)
        waiting.until(lambda: len(answers) > queries // 2, lambda: time.sleep(0.01))
        moves["joins"] = time.perf_counter()
        fourth = Instance(folder, servers, 3, settings)
        stack.enter_context(fourth.started)
        urls.append(fourth.url)
        waiting.until(lambda: is_settled(list(urls)), lambda: time.sleep(0.1))
        moves["settled"] = time.perf_counter()
        wanted[0] = len(answers) + queries // 10
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - begun
    return figures(answers, load, owners, moves, seconds)


def figures(
    answers: list[Asked], load: Load, owners: dict[int, str], moves: dict[str, float], seconds: float
) -> dict[str, Any]:
    """Check all answers, and return what a reader wants to know."""
    killed = moves["killed"]
    right = [one for one in answers if one.status == 200]
    wrong = [one for one in right if one.body["value"] != load.count(one.key, one.body["position"])]
    before = [one for one in right if one.at < killed]
    local = [one.took_s for one in before if owners[one.body["partition"]] == one.url]
    forwarded = [one.took_s for one in before if owners[one.body["partition"]] != one.url]
    refused = [one for one in answers if one.status == 503]

    def p99_ms(times: list[float]) -> float:
        return round(sorted(times)[int(len(times) * 0.99)] * 1000, 1) if times else 0.0

    return {
        "queries": len(answers),
        "seconds": round(seconds, 1),
        "records": sum(map(len, load.keys)),
        "statuses": dict(Counter(str(one.status) for one in answers)),
        "reasons": dict(Counter(one.body.get("error") for one in answers if one.status != 200)),
        "wrong": [one._asdict() for one in wrong[:3]],
        "empty": sum(one.status == 404 for one in answers),
        # The first refusal that was given, and the last question that got one.
        "refused_from_s": round(min((one.at + one.took_s for one in refused), default=killed) - killed, 2),
        "refused_until_s": round(max((one.at for one in refused), default=killed) - killed, 2),
        "settled_after_s": round(moves["settled"] - killed, 2),
        "after_settled": dict(Counter(str(one.status) for one in answers if one.at > moves["settled"])),
        "p99_local_ms": p99_ms(local),
        "p99_forwarded_ms": p99_ms(forwarded),
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-servers")
    parser.add_argument("--queries", type=int, default=10_000)
    options = parser.parse_args()
    with ExitStack() as stack:
        servers = options.bootstrap_servers
        if servers is None:
            broker = stack.enter_context(EmbeddedBroker())
            servers = stack.enter_context(broker.serve("127.0.0.1:0")).bootstrap_servers
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        print(json.dumps(show(servers, folder, options.queries), indent=2))


if __name__ == "__main__":
    main()
