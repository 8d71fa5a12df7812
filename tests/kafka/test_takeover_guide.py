"""The page about takeovers, step by step: its program in Java, its commands and what they print, on a real Kafka."""

import doctest
import re
import shlex
import sys
from pathlib import Path

import pytest

from streams import Producer, Topic
from streams.clients import Admin
from streams.clients.tcp import TcpCluster
from streams.protocol.messages import TopicSpec
from tests import programs
from tests.kafka.node import KafkaNode, compiled, jars
from tests.kafka.processes import Started
from tests.kafka.records import stored
from tests.waiting import until

pytestmark = pytest.mark.kafka

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "takeover.md"
WORDS = [f"word-{number}" for number in range(12)]
#: The status of a JVM that SIGTERM has ended.
TERMINATED = 143
words = Topic("words", key=str, value=str)


class Steps:
    """The page's files in a folder, its application in Java, and its commands in their order."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.folder, self.servers = folder, servers
        self.cluster, self.sent, self._starts = TcpCluster(servers), 0, 0
        text = PAGE.read_text()
        for title, source in re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', text, re.M | re.S):
            (folder / title).write_text(source)
        longs = (folder / "counts.py").read_text().replace("key=str", "key=int")
        (folder / "longs.py").write_text(longs)
        self._commands = re.findall(r"^```text\n\$ streams (takeover [^\n]*)\n(.*?)^```$", text, re.M | re.S)
        compiled(folder / "Counts.java", folder)
        with Admin(self.cluster) as admin:
            admin.create_topics([TopicSpec(name, 3) for name in ("words", "totals")])
            admin.describe_topics(["words", "totals"])

    def count(self, number: int) -> None:
        """Send words, and wait until they are committed."""
        with Producer(self.cluster) as producer:
            for index in range(self.sent, self.sent + number):
                producer.send(words, "x", key=WORDS[index % len(WORDS)])
            producer.flush()
        self.sent += number
        with Admin(self.cluster) as admin:

            def committed() -> int:
                return sum(item.offset for item in admin.committed_offsets("shop").values())

            until(lambda: committed() == self.sent, seen=lambda: f"{committed()} of {self.sent}")

    def java(self) -> Started:
        """Start the program in Java; each time with an empty state directory."""
        self._starts += 1
        classpath = ":".join([str(self.folder), *map(str, jars("streams"))])
        command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath, "Counts"]
        state = str(self.folder / f"state-{self._starts}")
        return Started([*command, self.servers, state], self.folder / f"java-{self._starts}.txt")

    def await_empty(self) -> None:
        """Wait until the group has no members."""
        with Admin(self.cluster) as admin:
            until(lambda: admin.describe_group("shop").state == "Empty", seen=lambda: "members are left")

    def java_counts(self, number: int) -> None:
        """Run the program in Java for some words."""
        with self.java() as running:
            self.count(number)
            running.stop(status=TERMINATED)
        self.await_empty()

    def command(self) -> tuple[list[str], str]:
        """Return the next command of the page, and what it prints there."""
        text, printed = self._commands.pop(0)
        return shlex.split(text.replace("localhost:9092", self.servers)), printed

    def run(self, status: int = 0) -> None:
        """Run the next command, and compare what it prints, if the page shows it."""
        command, printed = self.command()
        done = programs.run(["-m", "streams", *command], cwd=self.folder)
        assert done.returncode == status, done.stderr
        assert not printed or doctest.OutputChecker().check_output(printed, done.stdout, doctest.ELLIPSIS), done.stdout

    def ours_counts(self, number: int) -> None:
        """Run the next command, which starts the application here, for some words."""
        command, _ = self.command()
        with Started([sys.executable, "-m", "streams", *self._in_folder(command)], self.folder / "ours.log") as running:
            running.line_with("runs on")
            self.count(number)
            running.stop(status=0)
        self.await_empty()

    def _in_folder(self, command: list[str]) -> list[str]:
        return [str(self.folder / part) if (self.folder / part).exists() else part for part in command]

    def last_counts(self) -> dict[str, int]:
        """Return the last result of each word."""
        last = {record.key: record.value for record in stored(self.servers, "totals")}
        return {key.decode(): int.from_bytes(value or b"", "big") for key, value in last.items() if key is not None}


def test_the_steps_of_the_page(own_kafka: KafkaNode, tmp_path: Path):
    steps = Steps(tmp_path, own_kafka.bootstrap_servers)

    steps.java_counts(300)
    (tmp_path / "java.txt").write_text((tmp_path / "java-1.txt").read_text())
    steps.run()
    steps.run(status=1)
    steps.run()
    steps.java_counts(60)
    steps.run()
    steps.ours_counts(0)
    steps.run()
    steps.java_counts(60)

    assert steps.last_counts() == dict.fromkeys(WORDS, 420 // len(WORDS))


@pytest.mark.takeover
def test_a_running_group_whose_tasks_the_broker_assigns_is_no_stopped_one(own_kafka: KafkaNode, tmp_path: Path):
    """It is "Dead" to who describes it as a group of the classic protocol."""
    steps = Steps(tmp_path, own_kafka.bootstrap_servers)
    source = (tmp_path / "Counts.java").read_text()
    line = "    KafkaStreams streams ="
    setting = 'settings.put("group.protocol", "streams");'
    (tmp_path / "Counts.java").write_text(source.replace(line, f"    {setting}\n{line}"))
    compiled(tmp_path / "Counts.java", tmp_path)
    command = ["-m", "streams", "takeover", "counts.py", "--application-id", "shop"]
    command += ["--bootstrap-servers", steps.servers]

    with steps.java() as running:
        steps.count(12)
        done = programs.run(command, cwd=tmp_path)
        assert (done.returncode, "cannot: group shop: is Stable" in done.stdout) == (1, True), done.stdout
        running.stop(status=TERMINATED)
    with Admin(steps.cluster) as admin:
        until(lambda: [group.state for group in admin.list_groups() if group.group_id == "shop"] == ["Empty"])

    assert programs.run(command, cwd=tmp_path).stdout.startswith("shop: can go on here")
