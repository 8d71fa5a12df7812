"""Kafka Streams in Java as members of a streams group (KIP-1071) of the embedded broker, and Kafka's tools beside it.

The broker runs in a process of its own, as do both members; all are those of `kafka-streams-groups.sh` and of an
application with `group.protocol=streams`, without a change.
"""

import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import define, field

from streams.clients import Admin
from streams.clients.tcp import TcpCluster
from streams.protocol.group_messages import LEAVE_STATIC_EPOCH
from streams.protocol.streams_group_messages import Endpoint
from tests.group.test_streams_groups import Client, Desk, settle
from tests.kafka.node import compiled, jars
from tests.kafka.processes import Started, streams_broker
from tests.kafka.records import Stored, create_topic, put, stored
from tests.waiting import WATCHDOG_S, until

pytestmark = pytest.mark.kafka

SOURCE = Path(__file__).parent / "java" / "WordCount.java"
GROUPS, CONFIGS = "org.apache.kafka.tools.streams.StreamsGroupCommand", "org.apache.kafka.tools.ConfigCommand"
PARTITIONS = 3
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@define(eq=False)
class Application:
    """A word count of several Java processes, and what it must have counted."""

    folder: Path
    address: str
    classes: Path
    sent: int = 0
    expected: Counter[str] = field(factory=Counter)

    def start(self, name: str) -> Started:
        """Start a member with one thread."""
        path = ":".join(map(str, (self.classes, *jars("streams"))))
        command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, "WordCount"]
        state = str(self.folder / f"state-{name}")
        command += ["lines", "words", self.address, state, "exactly_once_v2", "counts"]
        return Started(command, self.folder / f"{name}.log")

    def tool(self, main: str, *arguments: str) -> str:
        """Run a tool of Kafka, and return what it prints."""
        path = ":".join(map(str, jars("node")))
        command = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, main]
        command += ["--bootstrap-server", self.address, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def send(self) -> None:
        """Send a line of all words to each partition, and wait until they are counted."""
        for partition in range(PARTITIONS):
            line = Stored(partition, self.sent, 1_000 + self.sent, None, " ".join(WORDS).encode())
            put(self.address, "lines", [line])
            self.expected.update(WORDS)
        self.sent += 1
        until(lambda: len(self.counted()) >= self.expected.total(), seen=lambda: f"{self.counted()}")

    def counted(self) -> list[tuple[str, int]]:
        """All results so far, those of a word in order."""
        rows = stored(self.address, "counts")
        return [((row.key or b"").decode(), struct.unpack(">q", row.value or b"")[0]) for row in rows]

    def check(self) -> None:
        """Check that each word was counted once for each time that it was sent."""
        found: dict[str, list[int]] = {}
        for word, count in self.counted():
            found.setdefault(word, []).append(count)
        assert found == {word: list(range(1, count + 1)) for word, count in self.expected.items()}


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Application]:
    with streams_broker(tmp_path, "--set", "group.streams.min.heartbeat.interval.ms=300") as address:
        create_topic(address, "lines", PARTITIONS)
        create_topic(address, "counts", 2)
        yield Application(tmp_path, address, compiled(SOURCE, tmp_path / "classes"))


def test_java_members_share_tasks_and_go_on_alone_and_tools_see_them(application: Application) -> None:
    run = application.tool
    settings = "streams.heartbeat.interval.ms=300,streams.num.standby.replicas=1"
    run(CONFIGS, "--alter", "--entity-type", "groups", "--entity-name", "words", "--add-config", settings)
    shown = run(CONFIGS, "--describe", "--entity-type", "groups", "--entity-name", "words")
    assert "streams.num.standby.replicas=1" in shown

    with Admin(TcpCluster(application.address)) as admin, application.start("one") as one:

        def settled(members: int) -> Callable[[], bool]:
            def is_so() -> bool:
                found = admin.describe_group("words")
                return (found.state, len(found.members)) == ("Stable", members)

            return is_so

        until(settled(1), seen=lambda: one.said)
        application.send()
        with application.start("two") as two:
            until(settled(2), seen=lambda: two.said)
            application.send()
            assert "words" in run(GROUPS, "--list")
            rows = [line.split() for line in run(GROUPS, "--describe", "--members", "--group", "words").splitlines()]
            assert len([row for row in rows if row and row[0] == "words"]) == 2
            offsets = run(GROUPS, "--describe", "--group", "words")
            assert "words-counts-repartition" in offsets
            assert "Stable" in run(GROUPS, "--describe", "--state", "--group", "words")
            one.stop()
            until(settled(1), seen=lambda: two.said)
            application.send()
            two.stop()
        until(lambda: admin.describe_group("words").state == "Empty")
        counts = {found.name: len(found.leaders) for found in admin.all_topics() if found.name.startswith("words-")}
        assert counts == {"words-counts-repartition": PARTITIONS, "words-counts-changelog": PARTITIONS}
    application.check()
    run(GROUPS, "--delete", "--group", "words")
    assert "words" not in run(GROUPS, "--list")


def test_kafka_reads_the_records_of_a_group_and_writes_the_same_bytes() -> None:
    """All kinds of records, with tasks that are assigned, copied and revoked, and their ends."""
    desk = Desk()
    desk.configure(streams_num_standby_replicas="1")
    one = Client(desk, "one", endpoint=Endpoint("host", 65_535))
    two = Client(desk, "two", instance="i")
    settle(one)
    two.beat()
    settle(one, two)
    two.leave(LEAVE_STATIC_EPOCH)
    one.leave()
    # Keys with higher versions are this library's own; Kafka's tools skip them.
    rows = [(key.hex(), "-" if value is None else value.hex()) for key, value in desk.log if key < b"\x01"]
    path = ":".join(map(str, jars("node")))
    command = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-cp", path, str(SOURCE.parent / "GroupRecords.java")]
    text = "\n".join(map(" ".join, rows))

    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=WATCHDOG_S)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == text.split("\n")
    assert {key[:4] for key, _ in rows} == {f"{version:04x}" for version in (17, 19, 20, 21, 22, 23)}
