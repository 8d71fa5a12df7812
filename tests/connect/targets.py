"""The targets of all sinks, empty ones: how to make a sink, and how to read the rows back.

``python -m tests.connect.targets NAME KILLS [exception] [process]`` runs the kit on one of them, or in both ways.
"""

import json
import logging
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from attrs import define, field, frozen

from streams.connect import (
    DeltaSink,
    HttpSink,
    IcebergSink,
    ParquetManifest,
    ParquetSink,
    PostgresSink,
    SinkConnector,
    SqlSink,
)
from streams.core.clock import SystemClock
from streams.testing import sink_kit
from tests.connect.notebook import NotebookSink, rows_in
from tests.postgres import new_database, running

#: The names of the topic and of the connector of the kit.
TOPIC = NAME = "sink-kit"


@frozen
class Target:
    """A target; ``make`` can be sent to another process."""

    make: Callable[[], SinkConnector[Any, Any]]
    read: Callable[[], Iterable[Any]]
    is_keyed: bool = False


@contextmanager
def target(name: str, folder: Path) -> Iterator[Target]:
    """Yield a target by its name; ``folder`` is empty."""
    if name.startswith("postgres"):
        with running() as server, new_database(server, "kit") as dsn:
            yield postgres(dsn, "upsert" if name.endswith("upsert") else "append")
    elif name == "http":
        with receiver() as received:
            yield Target(partial(HttpSink, received.url, batch_records=10), received.rows)
    elif name == "iceberg":
        # The package reads its settings at its import, in each process.
        os.environ["PYICEBERG_CATALOG__SHOP__TYPE"] = "sql"
        os.environ["PYICEBERG_CATALOG__SHOP__URI"] = f"sqlite:///{folder}/catalog.db"
        os.environ["PYICEBERG_CATALOG__SHOP__WAREHOUSE"] = f"file://{folder}"
        import pyiceberg.catalog
        from pyiceberg.utils.config import Config

        pyiceberg.catalog._ENV_CONFIG = Config()
        yield Target(partial(IcebergSink, "shop.web.kit"), iceberg_rows)
    else:
        yield FOLDERS[name](folder)


def postgres(dsn: str, mode: str) -> Target:
    import psycopg

    def rows() -> list[Any]:
        with psycopg.connect(dsn) as connection:
            if connection.execute("select to_regclass('kit')").fetchall() == [(None,)]:
                return []
            return connection.execute("select key, value from kit").fetchall()

    return Target(partial(PostgresSink, dsn, "kit", mode=mode, create=True), rows, mode == "upsert")


def sql(folder: Path) -> Target:
    def rows() -> list[Any]:
        database = sqlite3.connect(folder / "kit.db")
        try:
            found = database.execute("select * from sqlite_master where name = 'kit'").fetchall()
            return database.execute("select key, value from kit").fetchall() if found else []
        finally:
            database.close()

    return Target(partial(SqlSink, f"sqlite:///{folder / 'kit.db'}", "kit", create=True), rows, is_keyed=True)


def notebook(folder: Path) -> Target:
    path = folder / "notes.db"
    # The kit lets another sink write while the thread of this one holds the lock: it must not wait for it.
    return Target(partial(NotebookSink, path, lock_timeout_s=0.1), lambda: [row[2:] for row in rows_in(path)])


def delta(folder: Path) -> Target:
    from deltalake import DeltaTable

    def rows() -> list[Any]:
        path = str(folder / "kit")
        return _pairs(DeltaTable(path).to_pyarrow_table()) if DeltaTable.is_deltatable(path) else []

    return Target(partial(DeltaSink, str(folder / "kit")), rows)


def iceberg_rows() -> list[Any]:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("shop")
    try:
        return _pairs(catalog.load_table("web.kit").scan().to_arrow()) if catalog.table_exists("web.kit") else []
    finally:
        catalog.close()


def parquet(folder: Path) -> Target:
    manifest = ParquetManifest(str(folder / "kit"), NAME, TOPIC)
    return Target(
        partial(ParquetSink, str(folder / "kit"), partition_by="day"),
        lambda: _pairs(manifest.table()) if manifest.files() else [],
    )


FOLDERS = {"notebook": notebook, "sql": sql, "delta": delta, "parquet": parquet}
NAMES = ("notebook", "postgres-append", "postgres-upsert", "sql", "delta", "iceberg", "parquet", "http")


def _pairs(table: Any) -> list[Any]:
    return list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


@define
class Received:
    """Records that an HTTP server has received."""

    url: str = ""
    bodies: list[bytes] = field(factory=list)

    def rows(self) -> list[Any]:
        records = [record for body in self.bodies for record in json.loads(body)["records"]]
        return [(record["key"], record["value"]) for record in records]


@contextmanager
def receiver() -> Iterator[Received]:
    """Run an HTTP server that accepts everything."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            body = self.rfile.read(size)
            if len(body) < size:  # The client was killed within the request.
                self.close_connection = True
                return
            received.bodies.append(body)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that was killed is none."""

    with Server(("127.0.0.1", 0), Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_address[1]}/records"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


def main(name: str, kills: int, ways: Sequence[str]) -> None:
    clock = SystemClock()
    for by in ways:
        with tempfile.TemporaryDirectory() as folder, target(name, Path(folder)) as found:
            began = clock.monotonic_ms()
            report = sink_kit.check(found.make, found.read, is_keyed=found.is_keyed, kills=kills, by=by)
            print(
                f"{name} by {by}: {sum(report.faults.values())} faults at {len(report.faults)} steps, "
                f"{report.records} records, {report.duplicates} duplicates, {report.fenced} fenced, "
                f"{(clock.monotonic_ms() - began) / 1000:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:] or ("exception", "process"))
