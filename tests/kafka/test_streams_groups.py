"""Streams groups of a real Kafka (KIP-1071): our members alone, and together with members of Kafka Streams in Java."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from streams import ExceptionResponse, ProcessingError, Streams, StreamsBuilder, TimeWindows, Topic, TopicPartition
from streams.clients import Admin, Producer
from streams.clients.tcp import TcpCluster
from streams.core.errors import BrokerError
from streams.protocol.messages import TopicSpec
from tests.kafka.node import KafkaNode, compiled, jars
from tests.kafka.processes import Started
from tests.kafka.records import stored
from tests.kafka.word_count import ASSIGNED, WORDS, Counting, Instance, topology
from tests.waiting import WATCHDOG_S, until

pytestmark = pytest.mark.kafka

SOURCE = Path(__file__).parent / "java" / "Group.java"
GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
#: The broker sets what members set in classic groups.
SETTINGS: dict[str, str | int] = {
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.min.session.timeout.ms": 1_000,
    "group.streams.session.timeout.ms": 6_000,
    "group.streams.min.heartbeat.interval.ms": 100,
    "group.streams.heartbeat.interval.ms": 300,
}
#: A member may be removed for being slow, or killed: counts are exact nevertheless.
EXACTLY_ONCE: dict[str, Any] = {**ASSIGNED, "processing_guarantee": "exactly_once_v2", "transaction_timeout_ms": 10_000}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """A node whose streams groups miss members soon."""
    with KafkaNode(tmp_path_factory.mktemp("kafka"), settings=SETTINGS) as node:
        yield node


def shown(servers: str, *arguments: str) -> str:
    """What kafka-streams-groups.sh prints."""
    command = [
        "java",
        "-Xmx128m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        ":".join(map(str, jars("node"))),
    ]
    done = subprocess.run(
        [*command, GROUPS, "--bootstrap-server", servers, *arguments],
        capture_output=True, text=True, timeout=WATCHDOG_S, check=True,
    )  # fmt: skip
    return done.stdout


def members_with_tasks(servers: str, group: str) -> int:
    """How many members run the tasks that they are to have, and have some."""
    rows = shown(servers, "--describe", "--group", group, "--members").splitlines()
    return sum("ACTIVE:" in row for row in rows)


def test_tasks_of_a_killed_instance_move_and_every_count_is_exact(node: KafkaNode, name: str, tmp_path: Path):
    """Repartition topic and changelog are created by the broker; its tool shows the group."""
    servers, settings = node.bootstrap_servers, {**EXACTLY_ONCE}
    with Counting(TcpCluster(servers), name) as counting:
        counting.write(300)
        instances = [
            Instance(servers, name, tmp_path / f"said-{number}", settings | {"state_dir": str(tmp_path / f"{number}")})
            for number in range(2)
        ]
        killed, survivor = instances
        try:
            until(lambda: all(instance.is_running() for instance in instances))
            until(lambda: members_with_tasks(servers, name) == 2)
            counting.write(100)
            killed.kill()
            counting.write(200)
            counting.finish([survivor])
            until(lambda: members_with_tasks(servers, name) == 1)
            state = shown(servers, "--describe", "--group", name, "--state")
            assert "Stable" in state
            assert name in shown(servers, "--list")
            survivor.stop()
        finally:
            for instance in instances:
                instance.process.kill()
        counting.check_exact()
    with Admin(TcpCluster(servers)) as admin:
        topics = admin.describe_topics([f"{name}-counted-changelog", f"{name}-counted-repartition"])
        assert {len(topic.leaders) for topic in topics.values()} == {3}


# --- together with Java -------------------------------------------------------------------


def split(line: str) -> list[str]:
    return line.split()


def joined(name: str) -> Callable[[StreamsBuilder], None]:
    """The topology of Group.java."""
    lines, counts = Topic(f"{name}-lines", key=str, value=str), Topic(f"{name}-counts", key=str, value=int)
    other, output = Topic(f"{name}-table", key=str, value=str), Topic(f"{name}-joined", key=str, value=str)

    def build(builder: StreamsBuilder) -> None:
        words = builder.stream(lines).flat_map_values(split)
        counted = words.group_by(lambda _, word: word, name="words", key=str).count(name="counted").to_stream()
        counted.to(counts)
        counted.join(builder.table(other, name="table"), lambda count, value: f"{count}{value}").to(output)
        windows = TimeWindows.of(timedelta(seconds=10), grace=timedelta(seconds=5))
        grouped = words.group_by(lambda _, word: word, name="windows", key=str)
        grouped.windowed_by(windows).count("windowed", retention=timedelta(minutes=5))

    return build


@define
class Mixed:
    """One application whose members are of both kinds."""

    servers: str
    name: str
    folder: Path
    classes: Path
    counting: Counting
    _started: int = field(default=0, init=False)

    def _state_dir(self) -> Path:
        self._started += 1
        return self.folder / f"state-{self._started}"

    def java(self) -> Started:
        """Start a member of Kafka Streams."""
        state = self._state_dir()
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options.append("-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn")
        classpath = ":".join([str(self.classes), *map(str, jars("streams"))])
        arguments = ["Group", "-", self.name, self.servers, str(state), "exactly_once_v2"]
        return Started(["java", *options, "-cp", classpath, *arguments], self.folder / f"{state.name}.log")

    def ours(self) -> Streams:
        """Make a member of ours, which is started as a context manager."""
        return Streams(
            joined(self.name),
            application_id=self.name,
            bootstrap_servers=self.servers,
            state_dir=self._state_dir(),
            **EXACTLY_ONCE,
        )

    def fill_table(self) -> None:
        """Write the table, of which each word's value is its name."""
        with Producer(TcpCluster(self.servers)) as producer:
            for word in WORDS:
                producer.send(f"{self.name}-table", word, key=word, timestamp_ms=1)
        places = [TopicPartition(f"{self.name}-table", number) for number in range(self.counting.partitions)]
        with Admin(TcpCluster(self.servers)) as admin:
            filled = {place: end for place, end in admin.list_offsets(dict.fromkeys(places, -1)).items() if end}

            def is_read() -> bool:
                committed = admin.committed_offsets(self.name)
                return all(place in committed and committed[place].offset >= end for place, end in filled.items())

            until(is_read)

    def count(self) -> None:
        """Write lines, and wait until they are counted, whoever counts them."""
        self.counting.write(200)
        self.counting.finish()

    def check_joined(self) -> None:
        """Each update of a count is joined with its word, once and in order."""
        found: dict[str, list[str]] = {}
        for record in stored(self.servers, f"{self.name}-joined"):
            assert record.key is not None
            assert record.value is not None
            found.setdefault(record.key.decode(), []).append(record.value.decode())
        put = self.counting.put
        assert found == {word: [f"{number}{word}" for number in range(1, put[word] + 1)] for word in put}


def tasks_of(*instances: Streams) -> int:
    """The number of tasks that run on our members."""
    return sum(len(thread.tasks) for instance in instances for thread in instance.instance.stream_threads)


@contextmanager
def mixed(node: KafkaNode, name: str, folder: Path) -> Iterator[Mixed]:
    servers, partitions = node.bootstrap_servers, 4
    with Counting(TcpCluster(servers), name, partitions) as counting:
        with Admin(TcpCluster(servers)) as admin:
            names = [f"{name}-table", f"{name}-joined"]
            admin.create_topics([TopicSpec(topic, partitions) for topic in names])
            admin.describe_topics(names)
        yield Mixed(servers, name, folder, compiled(SOURCE, folder), counting)


def test_members_of_java_and_of_ours_share_the_tasks_of_one_application(node: KafkaNode, name: str, tmp_path: Path):
    """Two of each, with load; tasks move from Java to ours and back, and every result is there once."""
    with mixed(node, name, tmp_path) as group, ExitStack() as stack:
        first, second = (stack.enter_context(group.java()) for _ in range(2))
        first.line_with("state RUNNING")
        group.fill_table()
        one = stack.enter_context(group.ours())
        group.count()
        with group.ours() as two:
            until(lambda: members_with_tasks(group.servers, name) == 4, group.count)
            assert tasks_of(one)
            assert tasks_of(two)
            before = tasks_of(one, two)
            first.stop()
            until(lambda: tasks_of(one, two) > before, group.count)
        second.line_with("state RUNNING")
        until(lambda: members_with_tasks(group.servers, name) == 2, group.count)
        one.close()
        # What is counted now, Java has counted.
        group.count()
        with group.ours() as three:
            until(lambda: members_with_tasks(group.servers, name) == 2, group.count)
            second.stop()
            until(lambda: tasks_of(three) == 12, group.count)
        group.counting.check_exact()
        group.check_joined()


def test_java_joins_a_group_of_ours(node: KafkaNode, name: str, tmp_path: Path):
    """The topology that the group keeps is that of Java, whoever has sent it."""
    with mixed(node, name, tmp_path) as group:
        with group.ours():
            group.fill_table()
            group.count()
            with group.java() as java:
                until(lambda: members_with_tasks(group.servers, name) == 2, group.count)
                java.stop()
            group.count()
        group.counting.check_exact()
        group.check_joined()


def test_another_topology_is_refused_with_a_reason(node: KafkaNode, name: str):
    """A group keeps the topology of its first member."""
    servers = node.bootstrap_servers
    settings: dict[str, Any] = {"application_id": name, "bootstrap_servers": servers, **ASSIGNED}
    with Counting(TcpCluster(servers), name) as counting, Streams(topology(name), **settings):
        counting.write(10)
        counting.finish()

        def other(builder: StreamsBuilder) -> None:
            builder.stream(Topic(f"{name}-lines", key=str, value=str)).to(Topic(f"{name}-counts", key=str, value=str))

        refused = Streams(other, **settings)
        refused.start()
        with pytest.raises(BrokerError, match="all members of a group need the same topology"):
            refused.wait()
        with pytest.raises(BrokerError):
            refused.close()


def test_offsets_and_state_stay_when_the_protocol_changes(node: KafkaNode, name: str, tmp_path: Path):
    """From the classic protocol to that of streams groups and back, each time with no member left."""
    with Counting(TcpCluster(node.bootstrap_servers), name) as counting:
        for protocol in ("classic", "streams", "classic"):
            counting.write(100)
            settings: dict[str, Any] = {**EXACTLY_ONCE, "group_protocol": protocol}
            with Streams(
                topology(name),
                application_id=name,
                bootstrap_servers=node.bootstrap_servers,
                state_dir=tmp_path / "state",
                **settings,
            ):
                counting.finish()
        counting.check_exact()


def copied(name: str) -> Callable[[StreamsBuilder], None]:
    """The topology of Shutdown.java; a line "we fail" makes it fail here."""
    lines, copies = Topic(f"{name}-lines", key=str, value=str), Topic(f"{name}-counts", key=str, value=str)

    def check(line: str) -> None:
        if line == "we fail":
            raise ValueError(line)

    def build(builder: StreamsBuilder) -> None:
        builder.stream(lines).peek(lambda _, line: check(line)).to(copies)

    return build


def copying(servers: str, name: str) -> Streams:
    """A member that asks all members to shut down when it fails."""
    return Streams(
        copied(name),
        on_exception=lambda _: ExceptionResponse.SHUTDOWN_APPLICATION,
        application_id=name,
        bootstrap_servers=servers,
        **ASSIGNED,
    )


def test_request_for_a_shutdown_reaches_all_members(node: KafkaNode, name: str):
    """The one that fails asks for it, through the broker."""
    servers = node.bootstrap_servers
    with Counting(TcpCluster(servers), name) as counting:
        instances = [copying(servers, name) for _ in range(2)]
        for instance in instances:
            instance.start()
        until(lambda: all(tasks_of(instance) for instance in instances))
        counting.put_line(b"we fail")
        until(lambda: all(instance.instance.supervisor.ended.is_set() for instance in instances))
        failed = [instance for instance in instances if instance.failure is not None]
        assert len(failed) == 1
        for instance in instances:
            with suppress(ProcessingError):
                instance.close()


@pytest.mark.parametrize("line", ["we fail", "java fails"])
def test_request_for_a_shutdown_passes_between_java_and_us(node: KafkaNode, name: str, tmp_path: Path, line: str):
    """One of each; the line is in all partitions, so whoever fails at it reads it."""
    servers = node.bootstrap_servers
    arguments = ["Shutdown", "-", name, servers, str(tmp_path / "state"), "at_least_once"]
    classpath = ":".join(map(str, [compiled(SOURCE.parent / "Shutdown.java", tmp_path), *jars("streams")]))
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    with (
        Counting(TcpCluster(servers), name) as counting,
        Started(["java", *options, "-cp", classpath, *arguments], tmp_path / "java.log") as java,
    ):
        java.line_with("state RUNNING")
        ours = copying(servers, name)
        ours.start()
        until(lambda: tasks_of(ours) and members_with_tasks(servers, name) == 2)
        with Producer(TcpCluster(servers)) as producer:
            for number in range(counting.partitions):
                producer.send(f"{name}-lines", line.encode(), partition=number)
        until(ours.instance.supervisor.ended.is_set, seen=lambda: java.said)
        java.line_with("state ERROR")
        assert java.process.wait(WATCHDOG_S) == 0, java.said
        assert ("asks for a shutdown" in java.said) == (line == "java fails")
        assert (ours.failure is not None) == (line == "we fail")
        with suppress(ProcessingError):
            ours.close()
