"""Ours and Kafka Streams in Java share topics, read each other's results, take over each other's state.

Both run on a real Kafka, and on the embedded broker in a process of its own.  The Java side is ``java/Interop.java``.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streams import SessionWindows, Streams, StreamsBuilder, TimeWindows, Topic, session_windowed, time_windowed
from streams.clients import Admin, Producer
from streams.clients.tcp import TcpCluster
from streams.core.blocks.records import Windowed
from streams.core.clock import SystemClock
from streams.core.serdes.serdes import serde_for
from streams.protocol.messages import TopicSpec
from streams.testing import TopologyTestDriver
from tests.kafka.node import compiled, jars
from tests.kafka.processes import Started, streams_broker
from tests.kafka.records import Stored, stored
from tests.waiting import WATCHDOG_MS, until

pytestmark = pytest.mark.kafka

SIZE = timedelta(seconds=10)
#: The store of all counts, by this name on both sides.
STORE = "word-counts"
SOURCE = Path(__file__).parent / "java" / "Interop.java"
#: What is counted, and with which guarantee; all pairs work, these cover what differs.
KINDS = [("counts", "at_least_once"), ("tumbling", "exactly_once_v2"), ("sessions", "exactly_once_v2")]
#: Two kinds on a real Kafka, one of each guarantee, and one on the embedded broker; the others are left to takeovers.
SAMPLE = {("kafka", *KINDS[0]), ("kafka", *KINDS[2]), ("served", *KINDS[0])}
CASES = [
    pytest.param(*case, marks=[] if case in SAMPLE else pytest.mark.takeover)
    for case in ((broker, *kind) for broker in ("kafka", "served") for kind in KINDS)
]
each_case = pytest.mark.parametrize(("setting", "kind", "guarantee"), CASES, indirect=["setting"])

KEYS = {"counts": serde_for(str), "tumbling": time_windowed(str, SIZE), "sessions": session_windowed(str)}
#: The beginning of a window; of today, or retention would delete the changelogs of windows.
BEGIN_MS = SystemClock().now_ms() // 60_000 * 60_000 - 60_000
LINES = [
    ("all streams lead to kafka", BEGIN_MS + 1_000),
    ("hello kafka streams", BEGIN_MS + 4_000),
    ("join kafka summit", BEGIN_MS + 12_000),
    ("streams of kafka lead to streams", BEGIN_MS + 13_000),
    ("hello hello", BEGIN_MS + 19_000),
    ("all of kafka", BEGIN_MS + 40_000),
    ("kafka streams", BEGIN_MS + 41_000),
    ("to join", BEGIN_MS + 45_000),
    ("lead to lead", BEGIN_MS + 52_000),
]


# --- ours ---------------------------------------------------------------------------------


def counting(kind: str, lines: str, output: str) -> Callable[[StreamsBuilder], None]:
    """Return the topology that counts words: "counts", or those of "tumbling" windows or "sessions"."""

    def topology(builder: StreamsBuilder) -> None:
        words = (
            builder.stream(Topic(lines, value=str))
            .flat_map_values(lambda line: line.lower().split())
            .group_by(lambda _, word: word)
        )
        target: Topic[Any, int] = Topic(output, key=KEYS[kind], value=int)
        match kind:
            case "counts":
                words.count(STORE).to_stream().to(target)
            case "tumbling":
                words.windowed_by(TimeWindows.of(SIZE)).count(STORE).to_stream().to(target)
            case _:
                words.windowed_by(SessionWindows.of(SIZE)).count(STORE).to_stream().to(target)

    return topology


def reading(kind: str, counts: str, output: str) -> Callable[[StreamsBuilder], None]:
    """Return the topology that writes counts as text, under the names that Interop.java gives them too."""

    def topology(builder: StreamsBuilder) -> None:
        source: Topic[Any, int] = Topic(counts, key=KEYS[kind], value=int)
        changes = builder.table(source).to_stream() if kind == "counts" else builder.stream(source)
        changes.select_key(lambda key, _: name_of(key)).map_values(lambda count: text_of(count)).to(
            Topic(output, key=str, value=str)
        )

    return topology


def name_of(key: Any) -> str:
    return f"{key.key}@{key.window.start_ms}/{key.window.end_ms}" if isinstance(key, Windowed) else key


def text_of(count: int | None) -> str:
    return "null" if count is None else str(count)


class Setting:
    """One broker, the folder of one test, and what both kinds of applications run with."""

    def __init__(self, servers: str, classes: Path, folder: Path, name: str) -> None:
        self.servers, self._classes, self._folder, self._name = servers, classes, folder, name
        self._cluster = TcpCluster(servers)
        self._started = 0

    def topics(self, partitions: int, *names: str) -> list[str]:
        """Make topics of this test alone; return their names on the broker."""
        made = [f"{self._name}-{name}" for name in names]
        with Admin(self._cluster) as admin:
            admin.create_topics([TopicSpec(name, partitions) for name in made])
            # Not before the broker that made them also knows them.
            admin.describe_topics(made)
        return made

    def application_id(self, name: str) -> str:
        return f"{self._name}-{name}"

    def _state_dir(self) -> Path:
        # A new one each time: state comes from changelogs.
        self._started += 1
        return self._folder / f"state-{self._started}"

    @contextmanager
    def ours(self, name: str, topology: Callable[[StreamsBuilder], None], guarantee: str) -> Iterator[None]:
        """Run a topology of ours; behind it the group has no members left."""
        settings = {"commit_interval_ms": 100, "heartbeat_interval_ms": 300}
        with Streams(
            topology,
            application_id=self.application_id(name),
            bootstrap_servers=self.servers,
            state_dir=self._state_dir(),
            processing_guarantee=guarantee,
            # Members leave at their end; none may be removed for being slow, or records would be counted twice.
            session_timeout_ms=WATCHDOG_MS,
            **settings,
        ):
            yield
        self._await_empty_group(name)

    @contextmanager
    def java(self, name: str, topology: str, guarantee: str, source: str, target: str) -> Iterator[None]:
        """Run a topology of Interop.java; behind it the group has no members left."""
        classpath = ":".join([str(self._classes), *map(str, jars("streams"))])
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath]
        options.append("-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn")
        state = str(self._state_dir())
        arguments = [topology, self.application_id(name), self.servers, state, guarantee, source, target]
        with Started(["java", *options, "Interop", *arguments], self._folder / f"java-{self._started}.log") as process:
            process.line_with("state RUNNING")
            yield
            process.stop()
        self._await_empty_group(name)

    def _await_empty_group(self, name: str) -> None:
        with Admin(self._cluster) as admin:
            group = self.application_id(name)
            until(lambda: admin.describe_group(group).state == "Empty", seen=lambda: f"members in {group}")

    def put(self, topic: str, lines: Sequence[tuple[str, int]], partitions: int = 1) -> None:
        """Append lines, to the partitions in turn."""
        with Producer(self._cluster) as producer:
            for number, (line, time_ms) in enumerate(lines):
                producer.send(topic, line.encode(), timestamp_ms=time_ms, partition=number % partitions)
            producer.flush()

    def read(self, topic: str, count: int) -> list[Stored]:
        """Return all records of a topic when there are so many, none of them in an open transaction."""
        found: list[Stored] = []

        def has_all() -> bool:
            found[:] = stored(self.servers, topic)
            return len(found) >= count

        until(has_all, seen=lambda: f"not {count} records in {topic}")
        return found


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Interop.java, compiled."""
    return compiled(SOURCE, tmp_path_factory.mktemp("classes"))


@pytest.fixture
def setting(request: pytest.FixtureRequest, classes: Path, tmp_path: Path, name: str) -> Iterator[Setting]:
    if request.param == "kafka":
        yield Setting(request.getfixturevalue("kafka").bootstrap_servers, classes, tmp_path, name)
        return
    with streams_broker(tmp_path) as servers:
        yield Setting(servers, classes, tmp_path, name)


def updates(records: Sequence[Stored], kind: str) -> dict[Any, list[int | None]]:
    """Return the counts of each key, in their order."""
    count_of = serde_for(int).deserialize
    result: dict[Any, list[int | None]] = defaultdict(list)
    for record in records:
        result[name_of(KEYS[kind].deserialize(record.key))].append(count_of(record.value))
    return dict(result)


def expected(kind: str, lines: Sequence[tuple[str, int]] = LINES) -> dict[Any, list[int | None]]:
    """Return what the test driver makes of the lines: the counts of each key, in their order."""
    driver = TopologyTestDriver(counting(kind, "lines", "counts"))
    for line, time_ms in lines:
        driver.pipe(Topic("lines", value=str), line, timestamp_ms=time_ms)
    result: dict[Any, list[int | None]] = defaultdict(list)
    for key, count in driver.read(Topic("counts", key=KEYS[kind], value=int)):
        result[name_of(key)].append(count)
    return dict(result)


def size(table: Mapping[Any, list[Any]]) -> int:
    return sum(map(len, table.values()))


# --- topics that both share ---------------------------------------------------------------


@each_case
def test_each_counts_the_same_lines_and_reads_the_counts_of_the_other(setting: Setting, kind: str, guarantee: str):
    """Equal bytes, times and partitions of all counts; what each reads of the other is what that wrote."""
    (lines,) = setting.topics(1, "lines")
    ours, theirs, our_text, their_text = setting.topics(2, "ours", "theirs", "our-text", "their-text")
    reader = "table" if kind == "counts" else f"read-{kind}"
    with (
        setting.java("java", kind, guarantee, lines, theirs),
        setting.java("java-reader", reader, guarantee, ours, their_text),
        setting.ours("python", counting(kind, lines, ours), guarantee),
        setting.ours("python-reader", reading(kind, theirs, our_text), guarantee),
    ):
        setting.put(lines, LINES)
        wanted = expected(kind)
        made = {topic: setting.read(topic, size(wanted)) for topic in (ours, theirs, our_text, their_text)}

    def parts(topic: str) -> list[tuple[Any, ...]]:
        return [(record.partition, record.key, record.value, record.timestamp_ms) for record in made[topic]]

    assert updates(made[ours], kind) == wanted
    assert updates(made[theirs], kind) == wanted
    assert parts(ours) == parts(theirs)
    for text in (our_text, their_text):
        read = defaultdict(list)
        for record in made[text]:
            read[record.key.decode()].append(record.value.decode())
        assert read == {key: list(map(text_of, counts)) for key, counts in wanted.items()}


# --- state that goes from one to the other ------------------------------------------------
