"""What the service manager of a run with several workers gets of their messages."""

import os
import signal
import socket
import subprocess

import pytest

from streams.cli.worker_notices import WorkerNotices
from streams.core.clock import VirtualClock
from tests import programs
from tests.cli.test_workers import children, needs_proc
from tests.waiting import until

LIMIT_MS = 1000
READY = "READY=1\nSTATUS=running with 2 workers"


@pytest.fixture
def manager(tmp_path):
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        yield made


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def notices(manager, clock):
    """The notices of two workers that have been started."""
    manager.setblocking(False)
    environ = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": str(LIMIT_MS * 1000)}
    with WorkerNotices.opened(2, environ, clock) as made:
        yield made


def messages(manager):
    found = []
    try:
        while True:
            found.append(manager.recv(100).decode())
    except BlockingIOError:
        return found


def send(address, *texts):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for text in texts:
            sender.sendto(text.encode(), address)


def test_ready_is_sent_once_when_every_worker_has_sent_it(notices, manager):
    one, other = (notices.environment(number)["NOTIFY_SOCKET"] for number in range(2))
    send(one, "READY=1\nSTATUS=running")
    notices.look()
    assert READY not in messages(manager)
    send(other, "READY=1\nSTATUS=running")
    notices.look()
    notices.look()
    assert messages(manager).count(READY) == 1


def test_the_watchdog_is_quiet_while_one_worker_is(notices, manager, clock):
    one, other = (notices.environment(number)["NOTIFY_SOCKET"] for number in range(2))
    for _ in range(3):
        send(one, "WATCHDOG=1")
        send(other, "WATCHDOG=1")
        notices.look()
        assert messages(manager) == ["WATCHDOG=1"]
        clock.advance(LIMIT_MS // 2)
    for _ in range(9):
        send(one, "WATCHDOG=1")
        notices.look()
        clock.advance(LIMIT_MS // 2)
    assert messages(manager) == []
    send(other, "WATCHDOG=1")
    notices.look()
    assert messages(manager) == ["WATCHDOG=1"]


def test_a_worker_that_starts_counts_as_alive_and_not_as_ready(notices, manager, clock):
    one, other = (notices.environment(number)["NOTIFY_SOCKET"] for number in range(2))
    send(one, "WATCHDOG=1", "READY=1")
    send(other, "WATCHDOG=1", "READY=1")
    # What the former process of the worker has sent is not of the new one.
    assert notices.environment(1)["NOTIFY_SOCKET"] == other
    notices.look()
    assert messages(manager) == ["WATCHDOG=1"]
    clock.advance(LIMIT_MS)
    send(one, "WATCHDOG=1")
    notices.look()
    assert messages(manager) == ["WATCHDOG=1"]
    clock.advance(LIMIT_MS)
    send(other, "READY=1")
    send(one, "WATCHDOG=1")
    notices.look()
    assert messages(manager) == [READY]


def test_without_a_service_manager_workers_get_the_environment_as_it_is(clock):
    with WorkerNotices.opened(2, {}, clock) as notices:
        assert notices.environment(0) == dict(os.environ)
        notices.look()
        notices.stopping()


@needs_proc
@pytest.mark.slow
def test_the_main_process_notifies_for_its_workers_also_after_one_is_replaced(tmp_path, manager):
    manager.settimeout(300)
    script = (
        'from streams import Topic\n\n\ndef topology(builder):\n    builder.stream(Topic("a", value=str)).to("b")\n'
    )
    (tmp_path / "app.py").write_text(script)
    env = os.environ | {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "600000"}
    arguments = ["-m", "streams", "run", "app.py", "--workers", "2"]
    process = programs.start(arguments, cwd=tmp_path, env=env, stderr=subprocess.PIPE)
    seen = []

    def receive(text, count=1):
        while seen.count(text) < count:
            seen.append(manager.recv(100).decode())

    receive(READY)
    receive("WATCHDOG=1", 2)
    workers = children(process.pid)
    os.kill(workers[0], signal.SIGKILL)
    until(lambda: len(now := children(process.pid)) == 2 and now != workers)
    receive("WATCHDOG=1", seen.count("WATCHDOG=1") + 3)
    process.send_signal(signal.SIGTERM)
    receive("STOPPING=1")
    process.communicate(timeout=300)

    assert process.returncode == 0
    assert {*seen} == {READY, "WATCHDOG=1", "STOPPING=1"}
