"""Rows per second of each source, `python -m tests.bench.sources [NAME ...]`.

One worker reads what a system has, rows with a key and four fields, and writes them to a topic of 3 partitions of an
embedded broker: the seconds from the start of the worker until it has committed them.  Median of several runs.
Servers of HTTP, and senders to the webhook, are processes of their own.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
from attrs import frozen

from streams.broker import EmbeddedBroker
from streams.connect import (
    FolderSource,
    GrowingFileSource,
    HttpSource,
    PostgresPollingSource,
    PostgresSource,
    SourceConnector,
    SourceWorker,
    WebhookSource,
)
from streams.core.topic import Topic
from tests.bench.harness import machine
from tests.postgres import new_database, running
from tests.waiting import until

#: Items of a page, and of a request with many.
_ITEMS = 500
#: Connections of senders to the webhook.
_SENDERS = 16


@frozen
class Order:
    id: int
    customer: str
    product: int
    amount: float
    is_paid: bool


KEYED = Topic("orders", key=int, value=Order)
FROM_VALUE = Topic("orders", key=int, value=Order, key_from=lambda order: order.id)


@frozen
class Origin:
    """A system that has the rows, or gets them when ``add`` is called after the worker has started."""

    make: Callable[[], SourceConnector[Any, Any]]
    topic: Topic[Any, Any] = KEYED
    add: Callable[[SourceConnector[Any, Any]], object] = lambda source: None


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": f"customer-{number % 1000}",
        "product": number % 77,
        "amount": number / 4,
        "is_paid": number % 3 == 0,
    }


def lines(numbers: range) -> str:
    return "".join(json.dumps(row(number)) + "\n" for number in numbers)


@contextmanager
def file(folder: Path, records: int) -> Iterator[Origin]:
    """One file that grows."""
    path = folder / "orders.jsonl"
    path.write_text(lines(range(records)))
    yield Origin(lambda: GrowingFileSource(str(path)), FROM_VALUE)


@contextmanager
def files(folder: Path, records: int) -> Iterator[Origin]:
    """A folder with 20 files."""
    size = records // 20
    for number in range(20):
        (folder / f"{number:02}.jsonl").write_text(lines(range(number * size, (number + 1) * size)))
    yield Origin(lambda: FolderSource(str(folder), settle_ms=0), FROM_VALUE)


class Pages(BaseHTTPRequestHandler):
    """Answers ``?after=N`` with the next items, which were encoded before."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    bodies: dict[int, bytes]

    def do_GET(self) -> None:
        body = self.bodies.get(int(parse_qs(urlsplit(self.path).query).get("after", ["-1"])[0]) + 1, b"[]")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def serve_pages(records: int, pipe: "Connection") -> None:
    """Run a server of pages in this process, until it is killed."""
    Pages.bodies = {
        first: json.dumps([row(number) for number in range(first, first + _ITEMS)]).encode()
        for first in range(0, records, _ITEMS)
    }
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        pipe.send(server.server_port)
        server.serve_forever()


@contextmanager
def http(folder: Path, records: int) -> Iterator[Origin]:
    """A server that has pages of 500 items."""
    mine, its = get_context("spawn").Pipe()
    server = get_context("spawn").Process(target=serve_pages, args=(records, its), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{mine.recv()}/orders"
    try:
        yield Origin(lambda: HttpSource(url, key="id", last="id", last_param="after"))
    finally:
        server.kill()
        server.join()


def send(url: str, bodies: list[bytes]) -> None:
    """Send requests over several connections, each after the answer to the one before."""
    parts = urlsplit(url)

    def sender(first: int) -> None:
        connection = HTTPConnection(parts.netloc)
        for body in bodies[first::_SENDERS]:
            connection.request("POST", parts.path, body)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
        connection.close()

    with ThreadPoolExecutor(_SENDERS) as pool:
        list(pool.map(sender, range(_SENDERS)))


def _webhook(bodies: list[bytes], items: str) -> Origin:
    def add(source: Any) -> None:
        until(lambda: not source.url.startswith("http://127.0.0.1:0/"))
        get_context("fork").Process(target=send, args=(source.url, bodies), daemon=True).start()

    return Origin(lambda: WebhookSource("127.0.0.1:0", key="id", items=items), add=add)


@contextmanager
def webhook(folder: Path, records: int) -> Iterator[Origin]:
    """Requests with one record, over 16 connections."""
    yield _webhook([json.dumps(row(number)).encode() for number in range(records)], "")


@contextmanager
def webhook_items(folder: Path, records: int) -> Iterator[Origin]:
    """Requests with 500 items, over 16 connections."""
    firsts = range(0, records, _ITEMS)
    yield _webhook([json.dumps([row(n) for n in range(first, first + _ITEMS)]).encode() for first in firsts], ".")


@contextmanager
def _postgres(records: int, make: Callable[[str], SourceConnector[Any, Any]], *, is_before: bool) -> Iterator[Origin]:
    with running() as server, new_database(server, "bench") as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "create table orders (id bigint primary key, customer text, product int, amount float8, is_paid bool)"
            )

            def insert(source: Any = None) -> None:
                if not is_before:
                    # The source reads changes from here on.
                    slots = "select count(*) from pg_replication_slots where active"
                    until(lambda: connection.execute(slots).fetchone() == (1,))
                with connection.transaction():
                    for first in range(0, records, 1_000):
                        with connection.cursor().copy("copy orders from stdin") as copy:
                            for number in range(first, min(first + 1_000, records)):
                                copy.write_row(list(row(number).values()))

            if is_before:
                insert()
            yield Origin(lambda: make(dsn), add=(lambda source: None) if is_before else insert)
            connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")


@contextmanager
def postgres_polling(folder: Path, records: int) -> Iterator[Origin]:
    """A table that is full at the start, by queries."""
    with _postgres(records, lambda dsn: PostgresPollingSource(dsn, "orders"), is_before=True) as found:
        yield found


@contextmanager
def postgres_snapshot(folder: Path, records: int) -> Iterator[Origin]:
    """A table that is full at the start, by the copy with which replication begins."""
    with _postgres(records, lambda dsn: PostgresSource(dsn, "orders"), is_before=True) as found:
        yield found


@contextmanager
def postgres_changes(folder: Path, records: int) -> Iterator[Origin]:
    """Rows that one transaction inserts, by replication; from the start of the transaction."""
    with _postgres(records, lambda dsn: PostgresSource(dsn, "orders"), is_before=False) as found:
        yield found


SOURCES = {
    it.__name__: it
    for it in (file, files, http, webhook, webhook_items, postgres_polling, postgres_snapshot, postgres_changes)
}


def seconds(name: str, records: int) -> float:
    """Return the time that a worker takes until all rows are in the topic."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SOURCES[name](Path(folder), records) as origin,
        EmbeddedBroker(auto_create_topics=False) as broker,
    ):
        broker.create_topic("orders", 3)
        source = origin.make()
        start = time.perf_counter()
        with SourceWorker(broker, origin.topic, source, name=name) as worker:
            origin.add(source)
            until(lambda: worker.progress.records >= records or not worker.is_running)
            taken = time.perf_counter() - start
        assert worker.progress.records == records
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SOURCES))
    parser.add_argument("--records", type=int, default=200_000, help="a tenth of them, one a request")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    print(machine())
    for name in given.names:
        records = given.records // 10 if name == "webhook" else given.records
        taken = [seconds(name, records) for _ in range(given.runs)]
        median = statistics.median(taken)
        print(
            f"{name:<18} {records / median:>9,.0f} rows/s, from {records / max(taken):,.0f} to "
            f"{records / min(taken):,.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
