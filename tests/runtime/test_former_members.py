"""Who takes over a state directory removes the members of the process before: nobody waits for their sessions."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from streams import EmbeddedBroker, State, Streams, StreamsBuilder, Topic
from streams.clients import Admin
from streams.group import CoordinatorConfig
from tests import programs
from tests.waiting import WATCHDOG_MS, until

words = Topic("words", key=str, value=str)
#: No session ends while a test waits.
SESSION_MS = 10 * WATCHDOG_MS
SESSIONS = CoordinatorConfig(
    max_session_timeout_ms=SESSION_MS, streams_session_timeout_ms=SESSION_MS, streams_max_session_timeout_ms=SESSION_MS
)
#: Runs until it is killed, and says that it has all tasks.
PROGRAM = """
import sys, threading
from streams import Streams
from tests.runtime.test_former_members import settings_of, topology

with Streams(topology, bootstrap_servers=sys.argv[1], **settings_of(*sys.argv[2:])) as app:
    while len(app.tasks()) < 2:
        app.wait(10)
    print("runs", flush=True)
    threading.Event().wait()
"""


def topology(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().count("counts")


def settings_of(folder: str, protocol: str, instance: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"application_id": "app", "state_dir": folder, "group_protocol": protocol}
    if instance:
        settings["group_instance_id"] = instance
    if protocol == "classic":
        settings["session_timeout_ms"] = SESSION_MS
    return {**settings, "poll_ms": 10}


@pytest.mark.killed
@pytest.mark.parametrize("instance", ["", "static"])
@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_members_of_a_killed_process_are_removed_at_the_start(tmp_path: Path, protocol: str, instance: str) -> None:
    """Without that, tasks would wait for a session that does not end here."""
    settings = (str(tmp_path), protocol, instance)
    with EmbeddedBroker(group_config=SESSIONS) as broker, broker.serve("127.0.0.1:0") as server:
        broker.create_topic(words, partitions=2)
        program = ["-c", PROGRAM, server.bootstrap_servers, *settings]
        with programs.start(program, stdout=subprocess.PIPE) as before:
            assert before.stdout is not None
            assert before.stdout.readline() == "runs\n"
            before.send_signal(signal.SIGKILL)

        with Streams(topology, bootstrap_servers=server.bootstrap_servers, **settings_of(*settings)) as after:
            until(lambda: len(after.tasks()) == 2)


def test_another_state_directory_removes_nobody(tmp_path: Path) -> None:
    with EmbeddedBroker(group_config=SESSIONS) as broker, Admin(broker) as admin:
        broker.create_topic(words, partitions=2)
        for protocol in ("classic", "streams"):
            apps = [
                Streams(topology, broker=broker, **settings_of(str(tmp_path / protocol / name), protocol, ""))
                for name in ("one", "two")
            ]
            with apps[0], apps[1]:
                until(lambda apps=apps: all(app.state is State.RUNNING and len(app.tasks()) == 1 for app in apps))
            admin.delete_group("app", force=True)
