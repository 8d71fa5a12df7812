"""Applications of Kafka Streams in Java go on with ours, and ours with Java, on a real Kafka.

Input comes in phases, in which a key of a topic occurs once, and each is processed before the next: so all results
are determined, though three partitions are processed in parallel.  One implementation is stopped, or killed, and the
other goes on under the same application id.  Outputs and internal topics are compared with those of an undisturbed
Java run, record for record.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest
from attrs import define, field

from streams.clients import Admin, Producer
from streams.clients.tcp import TcpCluster
from streams.core.clock import SystemClock
from streams.dsl.processing.buffered import parsed
from streams.protocol.messages import TopicSpec
from tests.kafka.node import KafkaNode, compiled, jars
from tests.kafka.processes import Started
from tests.kafka.records import NUMBERED, Stored, stored
from tests.waiting import until

pytestmark = pytest.mark.kafka

SOURCE = Path(__file__).parent / "java" / "Takeover.java"
PARTITIONS = 3
#: Of today, or retention would delete the changelogs of windows.
BEGIN_MS = SystemClock().now_ms() // 60_000 * 60_000 - 300_000

#: One phase: changes of the left topic, then of the right, as key, value and seconds since the begin.
Change: TypeAlias = tuple[str, str, str | None, int]
KEYS = [f"k{number}" for number in range(24)]


def _left(values: Callable[[int], str | None], step: int, at: int, first: int = 0) -> list[Change]:
    return [("left", KEYS[n], values(n), at + n % 5) for n in range(first, len(KEYS), step)]


def _right(at: int, **values: str | None) -> list[Change]:
    return [("right", key, value, at) for key, value in values.items()]


PHASES: list[list[Change]] = [
    _right(1, c0="R0", c1="R1", c2="R2"),
    _left(lambda n: f"c{n % 5}/a{n}", 1, 2),
    _left(lambda n: f"c{(n + 1) % 5}/b{n}", 2, 9),
    _right(12, c1="R1x", c2=None, c4="R4"),
    # Here the one ends and the other goes on.
    _left(lambda n: None if n % 2 else f"/c{n}", 3, 20),
    _left(lambda n: f"c{n % 3}/d{n}", 4, 22, 1),
    _right(31, c0=None, c3="R3", c1="R1y"),
    _left(lambda n: f"c{n % 6}/e{n}", 1, 33),
    _left(lambda n: f"c{n % 6}/e{n}", 3, 15),
    _right(48, c0="R0z", c1=None, c2="R2z", c5="R5"),
]
CUT = 4
#: Topologies that read the right topic too; in those of the second line its keys are some of the left topic's.
FOREIGN_KEYS = ("fk-inner", "fk-left")
SAME_KEYS = ("grace", "outer", "left")
#: Topologies whose changelogs are compared by their last entries: Kafka Streams also logs records that are too late
#: to be stored, and gives deletions other times.
BUFFERED = (*SAME_KEYS, "suppressed")
#: Ends of changelogs whose values have the place of a record in its topic.
WITH_ORIGIN = ("-Buffer-changelog", "held-store-changelog")


def phases_of(topology: str) -> list[list[Change]]:
    """Return the phases for a topology."""
    if topology not in SAME_KEYS:
        return PHASES

    def of_left(change: Change) -> Change:
        part, key, value, seconds = change
        return (part, f"k{4 * int(key[1:])}", value, seconds) if part == "right" else change

    return [[of_left(change) for change in phase] for phase in PHASES]


def settings() -> list[str]:
    """Return the command of Java's side, without its arguments."""
    classpath = ":".join(map(str, jars("streams")))
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath]
    return ["java", *options, "-Dorg.slf4j.simpleLogger.log.org.apache.kafka=warn"]


#: A record as it is compared: what changes it, and its time.
Entry: TypeAlias = tuple[bytes | None, int]


class Difference(NamedTuple):
    """How two topics differ: numbers of records, and keys whose records, last values or last times differ."""

    had: int
    has: int
    keys: int
    last_values: int
    last_times: int

    @classmethod
    def of(cls, one: Sequence[Stored], two: Sequence[Stored], *, is_ordered: bool) -> "Difference":
        """Return the difference of the second from the first; the order within a key counts if it is determined."""
        tables: list[dict[tuple[int, bytes | None], list[Entry]]] = []
        for records in (one, two):
            table: dict[tuple[int, bytes | None], list[Entry]] = defaultdict(list)
            for record in records:
                # Java's producer chooses any partition for a record without a key.
                partition = -1 if record.key is None else record.partition
                table[partition, record.key].append((record.value, record.timestamp_ms))
            if not is_ordered:
                for entries in table.values():
                    entries.sort(key=repr)
            tables.append(table)
        first, second = tables
        keys = first.keys() | second.keys()
        nothing: list[Entry] = [(None, -1)]
        last = [(first.get(key, nothing)[-1], second.get(key, nothing)[-1]) for key in keys]
        return cls(
            len(one),
            len(two),
            sum(first.get(key) != second.get(key) for key in keys),
            sum(was[0] != now[0] for was, now in last),
            sum(was[1] != now[1] for was, now in last),
        )

    @property
    def is_equal(self) -> bool:
        """Whether there is none."""
        return self.had == self.has and not self.keys


@define(eq=False)
class Run:
    """One application id on the node, and its topics."""

    servers: str
    classes: Path
    folder: Path
    application_id: str
    topology: str
    guarantee: str
    _starts: int = field(init=False, default=0)
    _cluster: TcpCluster = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._cluster = TcpCluster(self.servers)
        with Admin(self._cluster) as admin:
            names = [f"{self.application_id}-{part}" for part in ("left", "right", "output")]
            admin.create_topics([TopicSpec(name, PARTITIONS) for name in names])
            # Not before the broker that made them also knows them.
            admin.describe_topics(names)

    def start(self, whose: str) -> Started:
        """Start "java" or "ours"; return when it runs."""
        self._starts += 1
        # A new folder each time: state comes from changelogs.
        state = str(self.folder / f"{self.application_id}-state-{self._starts}")
        arguments = [self.topology, self.application_id, self.servers, state, self.guarantee]
        if whose == "java":
            command = settings()
            command[command.index("-cp") + 1] += f":{self.classes}"
            command.append("Takeover")
        else:
            command = [sys.executable, "-m", "tests.kafka.takeover"]
        process = Started([*command, *arguments], self.folder / f"{self.application_id}-{self._starts}.log")
        try:
            process.line_with("state RUNNING")
        except BaseException:
            process.kill()
            raise
        return process

    def put(self, phase: Sequence[Change]) -> None:
        """Append the changes of a phase."""
        with Producer(self._cluster) as producer:
            for part, key, value, seconds in phase:
                time_ms = BEGIN_MS + 1_000 * seconds
                data = None if value is None else value.encode()
                producer.send(f"{self.application_id}-{part}", data, key=key.encode(), timestamp_ms=time_ms)
            producer.flush()

    def await_processed(self, process: Started) -> None:
        """Wait until all input is committed, then all that was made of it in internal topics, and so on."""
        inputs = [f"{self.application_id}-left"]
        if self.topology in FOREIGN_KEYS + SAME_KEYS:
            inputs.append(f"{self.application_id}-right")
            # In the order in which records pass them.
            inner = self.internal()
            inputs += sorted((name for name in inner if name.endswith("-topic")), key=lambda name: "RESPONSE" in name)
        with Admin(self._cluster) as admin:
            for topic in inputs:
                ends: dict[int, int] = {}
                for record in stored(self.servers, topic):
                    ends[record.partition] = record.offset + 1

                def has_all(topic: str = topic, ends: dict[int, int] = ends) -> bool:
                    assert process.process.poll() is None, process.said
                    committed = admin.committed_offsets(self.application_id)
                    found = {at.partition: item.offset for at, item in committed.items() if at.topic == topic}
                    return all(found.get(partition, 0) >= end for partition, end in ends.items())

                until(has_all, seen=lambda topic=topic: f"not all of {topic} is processed: {process.said[-2000:]}")

    def internal(self) -> list[str]:
        """Return the names of the internal topics."""
        with Admin(self._cluster) as admin:
            own = [name for name in admin.list_topics() if name.startswith(f"{self.application_id}-")]
        return sorted(name for name in own if name.endswith(("-changelog", "-topic", "-repartition")))

    def await_no_members(self) -> None:
        """Wait until the group has no members."""
        with Admin(self._cluster) as admin:
            until(lambda: admin.describe_group(self.application_id).state == "Empty", seen=lambda: "members are left")

    def contents(self) -> dict[str, list[Stored]]:
        """Return the records of the output and of all internal topics, by their names without the application id."""
        topics = [f"{self.application_id}-output", *self.internal()]
        found = {topic.replace(f"{self.application_id}-", ""): stored(self.servers, topic) for topic in topics}
        for topic in filter(lambda name: name.endswith(NUMBERED), found):
            found[topic] = [record._replace(key=(record.key or b"")[:-4]) for record in found[topic]]
        for topic in filter(lambda name: name.endswith(WITH_ORIGIN), found):
            found[topic] = [record._replace(value=self._without_topic(record.value)) for record in found[topic]]
        for topic in filter(lambda name: name == "headed-changelog", found):
            # Their headers are content.
            found[topic] = [
                record._replace(value=record.value and repr((record.value, record.headers)).encode())
                for record in found[topic]
            ]
        return found

    def _without_topic(self, value: bytes | None) -> bytes | None:
        """Return a buffered record without the name of its topic, which is another in each run."""
        if value is None:
            return None
        origin, *rest = parsed(value)
        assert origin.topic.startswith(self.application_id)
        return repr((origin.partition, origin.offset, rest)).encode()

    def all_by(self, first: str, second: str, end: str) -> dict[str, list[Stored]]:
        """Run all phases, the second half by ``second``; ``first`` is stopped, or killed within a phase."""
        with ExitStack() as stack:
            process = stack.enter_context(self.start(first))
            for number, phase in enumerate(phases_of(self.topology)):
                if number == CUT and end:
                    if end == "killed":
                        self.put(phase)
                        process.kill()
                    else:
                        process.stop()
                    self.await_no_members()
                    process = stack.enter_context(self.start(second))
                if not (number == CUT and end == "killed"):
                    self.put(phase)
                self.await_processed(process)
            process.stop()
        self.await_no_members()
        return self.contents()


@pytest.fixture(scope="session")
def takeover_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Takeover.java, compiled."""
    return compiled(SOURCE, tmp_path_factory.mktemp("takeover-classes"))


class Reference:
    """The undisturbed runs of Java, each made once."""

    def __init__(self, servers: str, classes: Path, folder: Path) -> None:
        self._place = (servers, classes, folder)
        self._found: dict[tuple[str, str, str], dict[str, list[Stored]]] = {}

    def run(self, name: str, topology: str, guarantee: str) -> Run:
        """Return a run under an application id of its own."""
        return Run(*self._place, name, topology, guarantee)

    def of(self, topology: str, guarantee: str, end: str = "") -> dict[str, list[Stored]]:
        """Return what Java alone has left: undisturbed, or stopped or killed in the middle and started again."""
        case = topology, guarantee, end
        if case not in self._found:
            run = self.run("-".join(filter(None, ("java", *case))).replace("_", "-"), topology, guarantee)
            self._found[case] = run.all_by("java", "java", end)
        return self._found[case]


@pytest.fixture(scope="session")
def reference(kafka: KafkaNode, takeover_classes: Path, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(kafka.bootstrap_servers, takeover_classes, tmp_path_factory.mktemp("takeover"))


def differences(wanted: dict[str, list[Stored]], found: dict[str, list[Stored]]) -> dict[str, Difference]:
    """Return how each topic differs."""
    # Left rows of several partitions refer to one right row: their subscriptions come in any order.
    return {
        topic: Difference.of(wanted.get(topic, []), found.get(topic, []), is_ordered="REGISTRATION" not in topic)
        for topic in sorted(wanted.keys() | found.keys())
    }


ORDERS = ("java-ours", "ours-java")
#: Topology, guarantee, how the first ends, and which is the first.
CASES = [
    ("fk-inner", "exactly_once_v2", "killed", "java-ours"),
    ("sessions", "exactly_once_v2", "killed", "ours-java"),
    *(
        pytest.param(*case, order, marks=pytest.mark.takeover)
        for order in ORDERS
        for case in (
            ("fk-inner", "at_least_once", "stopped"),
            ("fk-left", "at_least_once", "killed"),
            *(("fk-left", "exactly_once_v2", end) for end in ("stopped", "killed")),
            *((topology, "exactly_once_v2", "killed") for topology in ("counts", "tumbling", "seen", "headed")),
            *((topology, "exactly_once_v2", "killed") for topology in ("suppressed", "grace", "outer", "left")),
        )
    ),
    pytest.param("fk-inner", "exactly_once_v2", "killed", "ours-java", marks=pytest.mark.takeover),
    pytest.param("sessions", "exactly_once_v2", "killed", "java-ours", marks=pytest.mark.takeover),
    *(pytest.param("versioned", "exactly_once_v2", "killed", order, marks=pytest.mark.takeover) for order in ORDERS),
]


@pytest.mark.parametrize(("topology", "guarantee", "end", "order"), CASES)
def test_one_goes_on_with_the_state_of_the_other(
    reference: Reference, name: str, topology: str, guarantee: str, end: str, order: str
) -> None:
    first, second = order.split("-")
    # A grace buffer that Kafka Streams has restored joins its records at other times, whoever wrote it.
    wanted = reference.of(topology, guarantee, end if topology == "grace" and order == "ours-java" else "")

    found = reference.run(name.replace("_", "-"), topology, guarantee).all_by(first, second, end)

    compared = differences(wanted, found)
    print(topology, guarantee, end, order, *compared.items(), sep="\n  ")
    assert found.keys() == wanted.keys()
    if end == "killed" and guarantee == "at_least_once":
        # Repeated results are allowed, other last values are not.
        assert not any(item.last_values for item in compared.values()), compared
    elif topology in BUFFERED:
        assert compared.pop("output").is_equal, compared
        assert not any(item.last_values for item in compared.values()), compared
    else:
        assert all(item.is_equal for item in compared.values()), compared
