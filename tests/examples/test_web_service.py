"""The web service is killed again and again while orders come in; its answers and its table of Postgres are exact."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Semaphore

import httpx
import psycopg
import pytest

from tests.ports import free_ports
from tests.postgres import new_database, running
from tests.waiting import WATCHDOG_S, until

ROOT = Path(__file__).resolve().parents[2]
ORDERS = [
    {"id": f"o-{number}", "customer": f"c-{number % 7}", "cents": number * number % 1_009} for number in range(400)
]
#: How many orders are answered before each kill.
KILLS = (60, 150, 290)


class Service:
    """The service: one process after the other at the same address."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self.port, registry = free_ports(2)
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=WATCHDOG_S)
        self.environment = os.environ | {
            "DATABASE": dsn,
            "FOLDER": str(folder / "data"),
            "REGISTRY": f"127.0.0.1:{registry}",
            "PYTHONPATH": str(ROOT),
        }
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        command = ["-m", "uvicorn", "--app-dir", str(ROOT / "topology_examples"), "15_web_service:app"]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *command, "--port", str(self.port)],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def kill_and_restart(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


@contextmanager
def serving(folder: Path, dsn: str) -> Iterator[Service]:
    service = Service(folder, dsn)
    try:
        yield service
    finally:
        service.process.kill()
        service.process.wait()
        service.client.close()


def post(service: Service, order: dict[str, object]) -> None:
    """Send an order until it is answered, as a client does."""

    def is_answered() -> bool:
        assert service.process.poll() in (None, -signal.SIGKILL), service.log()
        try:
            return service.client.post("/orders", json=order).status_code == 201
        except httpx.TransportError:
            return False

    until(is_answered, seen=service.log)


def rows(dsn: str) -> dict[str, list[int]]:
    with psycopg.connect(dsn) as connection:
        if connection.execute("select to_regclass('revenue')").fetchone() == (None,):
            return {}
        return {key: totals for key, *totals in connection.execute("select key, orders, cents from revenue")}


@pytest.mark.killed
def test_killed_service_has_exact_answers_and_rows(tmp_path: Path) -> None:
    orders, cents = Counter[str](), Counter[str]()
    for order in ORDERS:
        orders[order["customer"]] += 1
        cents[order["customer"]] += order["cents"]
    expected = {customer: [orders[customer], cents[customer]] for customer in orders}

    with running() as postgres, new_database(postgres, "shop") as dsn, serving(tmp_path, dsn) as service:
        answered = Semaphore(0)

        def send(order: dict[str, object]) -> None:
            post(service, order)
            answered.release()

        with ThreadPoolExecutor(4) as pool:
            sent = [pool.submit(send, order) for order in ORDERS]
            done = 0
            for limit in KILLS:
                for _ in range(limit - done):
                    answered.acquire()
                done = limit
                service.kill_and_restart()
            for one in sent:
                one.result()
        until(lambda: rows(dsn) == expected, seen=lambda: (rows(dsn), service.log()))

        def answers() -> dict[str, list[int]]:
            found = {customer: service.client.get(f"/revenue/{customer}") for customer in expected}
            return {it: [r.json()["orders"], r.json()["cents"]] for it, r in found.items() if r.status_code == 200}

        assert answers() == expected
        assert service.client.get("/revenue/nobody").json() is None
        assert service.stop() in (0, -signal.SIGTERM)
        assert "Application shutdown complete" in service.log()
        assert not re.findall("Traceback|ERROR", service.log())
        assert rows(dsn) == expected
