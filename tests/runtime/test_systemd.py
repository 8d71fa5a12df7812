"""Notifications of a service manager: ready, alive, stopping."""

import logging
import os
import signal
import socket
import subprocess

import pytest

from streams import EmbeddedBroker, State, Streams, StreamsBuilder, Topic
from streams.core.clock import VirtualClock
from streams.runtime.instance.systemd import Notifier
from tests import programs, waiting

words = Topic("words", key=str, value=str)
SCRIPT = """
from streams import StreamsBuilder, Topic

def topology(builder: StreamsBuilder) -> None:
    builder.stream(Topic("words", key=str, value=str)).to("out")
"""


def topology(builder: StreamsBuilder) -> None:
    builder.stream(words).to("out")


@pytest.fixture
def manager(tmp_path):
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.settimeout(300)
        yield made


@pytest.mark.case
@pytest.mark.parametrize("how", ["streams run", "run()"])
def test_a_service_is_ready_when_it_runs_alive_while_it_turns_and_stopping_at_a_signal(manager, tmp_path, how):
    (tmp_path / "script.py").write_text(
        SCRIPT + '\nif __name__ == "__main__":\n    from streams import run\n    run(topology, application_id="app")\n'
    )
    arguments = ["-m", "streams", "run", "script.py"] if how == "streams run" else ["script.py"]
    env = os.environ | {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "400000"}
    process = programs.start(arguments, cwd=tmp_path, env=env, stderr=subprocess.PIPE)
    told = [manager.recv(100).decode()]
    while told.count("WATCHDOG=1") < 2:
        told.append(manager.recv(100).decode())
    process.send_signal(signal.SIGTERM)
    while told[-1] != "STOPPING=1":
        told.append(manager.recv(100).decode())
    process.communicate(timeout=300)

    assert process.returncode == 0
    assert told.count("READY=1\nSTATUS=running") == 1
    assert {*told} == {"READY=1\nSTATUS=running", "WATCHDOG=1", "STOPPING=1"}


def test_a_loop_that_does_not_turn_keeps_the_watchdog_quiet(manager):
    manager.setblocking(False)
    with EmbeddedBroker() as broker, Streams(topology, application_id="app", broker=broker, poll_ms=10) as streams:
        waiting.until(lambda: streams.state is State.RUNNING, lambda: streams.wait(5))
        environ = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "500000"}
        notifier = Notifier.of(streams.instance, environ)
        stuck = VirtualClock()
        # Long after all turns, as if they had been the last ones.
        stuck.advance(streams.instance.environment.clock.monotonic_ms() + 1_000_000)
        notifier._clock = stuck
        notifier.look()

    assert manager.recv(100) == b"READY=1\nSTATUS=running"
    with pytest.raises(BlockingIOError):
        manager.recv(100)


def test_a_manager_that_is_gone_is_logged_once_and_ends_nothing(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "streams")
    with EmbeddedBroker() as broker, Streams(topology, application_id="app", broker=broker) as streams:
        notifier = Notifier.of(streams.instance, {"NOTIFY_SOCKET": str(tmp_path / "gone")})
        notifier.stopping()
        notifier.stopping()

    assert len([record for record in caplog.records if "cannot be notified" in record.getMessage()]) == 1


def test_nothing_is_sent_without_a_manager():
    with EmbeddedBroker() as broker, Streams(topology, application_id="app", broker=broker) as streams:
        Notifier.of(streams.instance, {}).look()
        Notifier.of(streams.instance, {}).stopping()
