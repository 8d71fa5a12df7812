"""Java's ``KafkaShareConsumer`` in share groups (KIP-932) of the embedded broker, and Kafka's tools beside it.

The broker runs in a process of its own, as do the members, which are told on their input what to do.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import define, field

from streams.clients import Producer
from streams.clients.tcp import TcpCluster
from streams.core.records import Block, TopicPartition
from tests.kafka.node import compiled, jars
from tests.kafka.processes import Started
from tests.kafka.records import create_topic
from tests.waiting import WATCHDOG_S, until

pytestmark = pytest.mark.kafka

SOURCE = Path(__file__).parent / "java" / "ShareReader.java"
SHARES, CONFIGS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand", "org.apache.kafka.tools.ConfigCommand"
GROUP, TOPIC = "readers", "work"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled member."""
    return compiled(SOURCE, tmp_path_factory.mktemp("classes"))


class Member:
    """A Java member in a process of its own; ``records`` has the values that it got, with offset and delivery count."""

    def __init__(self, command: list[str], said: Path) -> None:
        self._said = said
        with said.open("wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
        self._told = 0

    @property
    def lines(self) -> list[str]:
        """What it has said until now."""
        return self._said.read_text().splitlines()

    @property
    def records(self) -> list[tuple[str, int, int]]:
        """All records in the order in which it got them."""
        rows = [line.split() for line in self.lines if line.startswith("record ")]
        return [(value, int(offset), int(count)) for _, value, offset, count in rows]

    def tell(self, line: str) -> None:
        """Have it do something, and wait until it is done."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        self._told += 1

        def ended() -> int:
            assert self.process.poll() is None, self._said.read_text()
            return sum(found.startswith(("done ", "failed ")) for found in self.lines)

        until(lambda: ended() == self._told)

    def poll_until(self, count: int) -> list[tuple[str, int, int]]:
        """Poll until it has got ``count`` records in all; return them."""
        until(lambda: len(self.records) >= count, lambda: self.tell("poll"))
        return self.records

    def close(self) -> None:
        """End it as a user does."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(WATCHDOG_S) == 0, self._said.read_text()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()


@define(eq=False)
class Place:
    """A broker in a process, its topic of one partition, and the members of one group."""

    folder: Path
    address: str
    classes: Path
    _members: list[Member] = field(factory=list)

    def member(self, mode: str = "explicit", most: int = 500) -> Member:
        """Start a member."""
        path = ":".join(map(str, (self.classes, *jars("streams"))))
        command = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, "ShareReader"]
        command += [self.address, GROUP, TOPIC, mode, str(most)]
        member = Member(command, self.folder / f"member-{len(self._members)}.log")
        self._members.append(member)
        return member

    def write(self, *values: str) -> None:
        """Write records."""
        block = Block([None] * len(values), [value.encode() for value in values], [1] * len(values))
        with Producer(TcpCluster(self.address)) as producer:
            producer.send_block(TopicPartition(TOPIC, 0), block)

    def tool(self, main: str, *arguments: str) -> str:
        """Run a tool of Kafka, and return what it prints."""
        path = ":".join(map(str, jars("node")))
        command = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, main]
        command += ["--bootstrap-server", self.address, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def end(self) -> None:
        """End the members that are left."""
        for member in self._members:
            if member.process.poll() is None:
                member.kill()


@contextmanager
def served(folder: Path, classes: Path, *settings: str) -> Iterator[Place]:
    """A broker with these settings; its group reads from the beginning."""
    command = [sys.executable, "-m", "streams", "broker", "--listen", "127.0.0.1:0", "--data", str(folder / "data")]
    for setting in settings:
        command += ["--set", setting]
    with Started(command, folder / "broker.log") as broker:
        address = broker.line_with("listens on ").partition("listens on ")[2].partition(",")[0]
        place = Place(folder, address, classes)
        create_topic(address, TOPIC, 1)
        place.tool(
            CONFIGS, "--alter", "--entity-type", "groups", "--entity-name", GROUP, "--add-config",
            "share.auto.offset.reset=earliest",
        )  # fmt: skip
        try:
            yield place
        finally:
            place.end()
        broker.stop()


def test_records_are_accepted_released_and_rejected_and_a_tool_sees_it(tmp_path: Path, classes: Path):
    """Explicitly: what is released comes again, with its count; a killed member gives back what it had at once."""
    # So that the broker soon knows that a member was killed.
    sessions = ("group.share.session.timeout.ms=6000", "group.share.heartbeat.interval.ms=1000")
    with served(tmp_path, classes, *sessions) as place:
        place.write("a", "b", "c", "d")
        one = place.member()
        assert one.poll_until(4) == [("a", 0, 1), ("b", 1, 1), ("c", 2, 1), ("d", 3, 1)]
        for line in ("accept 0", "release 1", "reject 2", "accept 3", "commit"):
            one.tell(line)
        assert any(line.startswith("committed ") and line.endswith(" well") for line in one.lines), one.lines
        assert one.poll_until(5)[4:] == [("b", 1, 2)]

        listed = place.tool(SHARES, "--list", "--state")
        assert [row.split() for row in listed.splitlines() if GROUP in row] == [[GROUP, "Stable"]]
        members = place.tool(SHARES, "--describe", "--group", GROUP, "--members")
        assert f"{TOPIC}:0" in members

        one.kill()
        other = place.member()
        assert other.poll_until(1) == [("b", 1, 3)]
        other.tell("accept 1")
        other.tell("commit")
        other.close()

        described = place.tool(SHARES, "--describe", "--group", GROUP)
        row = next(line.split() for line in described.splitlines() if TOPIC in line)
        assert row[:4] == [GROUP, TOPIC, "0", "4"], described
        until(lambda: [GROUP, "Empty"] in map(str.split, place.tool(SHARES, "--list", "--state").splitlines()))
        place.tool(SHARES, "--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-earliest", "--execute")
        again = place.member()
        assert again.poll_until(4) == [("a", 0, 1), ("b", 1, 1), ("c", 2, 1), ("d", 3, 1)]
        again.close()
        place.tool(SHARES, "--delete-offsets", "--group", GROUP, "--topic", TOPIC)
        place.tool(SHARES, "--delete", "--group", GROUP)
        assert GROUP not in place.tool(SHARES, "--list")


def test_two_members_share_a_partition_and_the_next_poll_accepts(tmp_path: Path, classes: Path):
    """Implicitly: each of 200 records is got by one of both, once, while both take part."""
    with served(tmp_path, classes) as place:
        one, two = place.member("implicit", 10), place.member("implicit", 10)
        for member in (one, two):
            member.tell("poll")
        place.write(*(f"r{number}" for number in range(200)))

        def turn() -> None:
            one.tell("poll")
            two.tell("poll")

        until(lambda: len(one.records) + len(two.records) >= 200, turn)
        one.close()
        two.close()
        got = sorted(offset for member in (one, two) for _, offset, _ in member.records)
        assert got == list(range(200))
        assert one.records
        assert two.records


def test_locks_end_and_a_record_is_delivered_as_often_as_the_limit_says(tmp_path: Path, classes: Path):
    """A record whose lock ends comes again, twice at most; the next one is not held up by it."""
    # Long enough for a member on a slow machine that has the record and is about to say so.
    limits = ("group.share.record.lock.duration.ms=8000", "group.share.delivery.count.limit=2")
    with served(tmp_path, classes, *limits) as place:
        place.write("bad")
        one, two = place.member(), place.member()
        assert one.poll_until(1) == [("bad", 0, 1)]
        # The first one does nothing with it.
        assert two.poll_until(1) == [("bad", 0, 2)]
        two.tell("release 0")
        two.tell("commit")
        place.write("good")
        assert two.poll_until(2)[1:] == [("good", 1, 1)]
        two.tell("accept 1")
        two.tell("commit")
        assert len(one.records) == 1
