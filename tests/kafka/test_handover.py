"""An application of Kafka Streams in Java is gone on with by ours in the middle of its input, and the other way round.

Both run under the same application id on a real Kafka, from three partitions.  Results and changelogs must be those of
an undisturbed run of the Java application (``java/Handover.java``).
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from attrs import field, frozen

from streams import (
    EmitStrategy,
    JoinWindows,
    KTable,
    SessionWindows,
    SlidingWindows,
    Streams,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    TopicPartition,
)
from streams.clients import Admin, Producer
from streams.clients.tcp import TcpCluster
from streams.core.clock import SystemClock
from streams.protocol.messages import TopicSpec
from tests.kafka.node import KafkaNode, compiled, jars
from tests.kafka.processes import Started
from tests.kafka.records import NUMBERED, stored
from tests.waiting import WATCHDOG_MS, until

pytestmark = pytest.mark.kafka

SOURCE = Path(__file__).parent / "java" / "Handover.java"
SIZE, GRACE = timedelta(seconds=10), timedelta(seconds=5)
#: Retention of windows.  Kafka Streams never emits a window that the next record makes older than that.
KEPT = timedelta(minutes=5)
PARTITIONS = 3
#: The beginning of a window; of today, or retention would delete the changelogs of windows.
BEGIN_MS = SystemClock().now_ms() // 60_000 * 60_000 - 300_000
#: Records of one input in one half, and its length.
COUNT, HALF_MS = 150, 60_000


# --- ours ---------------------------------------------------------------------------------


def _written(counts: KTable[Any, int], output: Topic[str, str]) -> None:
    def named(key: Any, count: int) -> tuple[str, str]:
        return f"{key.key}@{key.window.start_ms}/{key.window.end_ms}", str(count)

    counts.to_stream().map(named).to(output)


def topology(kind: str, left: str, right: str, target: str) -> Callable[[StreamsBuilder], None]:
    """Return the topology that Handover.java has by this name."""
    output = Topic(target, key=str, value=str)

    def finals(builder: StreamsBuilder) -> None:
        grouped, close = builder.stream(Topic(left, key=str, value=str)).group_by_key(), EmitStrategy.ON_WINDOW_CLOSE
        if kind == "final-sessions":
            sessions = grouped.windowed_by(SessionWindows.of(SIZE, grace=GRACE)).emit_strategy(close)
            _written(sessions.count("counts", retention=KEPT), output)
            return
        windows = {
            "final-tumbling": TimeWindows.of(SIZE, grace=GRACE),
            "final-hopping": TimeWindows.of(SIZE, SIZE / 4, grace=GRACE),
            "final-sliding": SlidingWindows.of(SIZE, grace=GRACE),
        }
        windowed = grouped.windowed_by(windows[kind]).emit_strategy(close)
        _written(windowed.count("counts", retention=KEPT), output)

    def suppressed(builder: StreamsBuilder) -> None:
        grouped = builder.stream(Topic(left, key=str, value=str)).group_by_key()
        until_close = Suppressed.until_window_closes()
        match kind:
            case "until-close":
                counts = grouped.windowed_by(TimeWindows.of(SIZE, grace=GRACE)).count("counts")
                _written(counts.suppress(until_close, name="held"), output)
            case "until-session-close":
                counts = grouped.windowed_by(SessionWindows.of(SIZE, grace=GRACE)).count("counts")
                _written(counts.suppress(until_close, name="held"), output)
            case _:
                latest = grouped.reduce(lambda one, two: two, name="latest")
                limit = Suppressed.until_time_limit(SIZE, max_records=20)
                latest.suppress(limit, name="held").to_stream().to(output)

    def joined(builder: StreamsBuilder) -> None:
        records, other = builder.stream(Topic(left, key=str, value=str)), Topic(right, key=str, value=str)
        if kind == "grace":
            table = builder.table(other, name="versions", history=timedelta(hours=1))
            records.left_join(table, both, grace=GRACE, name="late").to(output)
            return
        windows, others = JoinWindows.of(SIZE, grace=GRACE), builder.stream(other)
        join = records.outer_join if kind == "outer" else records.left_join
        join(others, both, windows, name="pairs", store="pairs").to(output)

    return finals if kind.startswith("final-") else suppressed if kind.startswith("until-") else joined


def both(left: str | None, right: str | None) -> str:
    # As Java writes what is missing.
    return "+".join("null" if value is None else value for value in (left, right))


# --- input --------------------------------------------------------------------------------


class Sent(NamedTuple):
    """A record to send; its partition is that of its key."""

    key: str
    value: str | None
    time_ms: int


def half(kind: str, number: int, side: str) -> list[Sent]:
    """Return the records of one input in one half of the time, out of order by less than grace.

    With two inputs, the second half is later than the first, so that both are merged in the same order in any case.
    """
    draw = random.Random(f"{kind} {number} {side}")
    begin_ms = BEGIN_MS + number * HALF_MS
    has_two = not kind.startswith(("final-", "until-"))
    keys = 75 if kind in ("final-sessions", "until-session-close", "until-limit") else 9
    records = []
    for index in range(COUNT):
        time_ms = begin_ms + index * HALF_MS // COUNT - draw.randrange(4_000)
        if has_two:
            # No ties: which of two inputs is taken first then depends on what happened before.
            time_ms = max(time_ms, begin_ms + index) // 2 * 2 + (side == "right")
        is_deletion = kind == "grace" and side == "right" and draw.random() < 0.1
        records.append(Sent(f"k{draw.randrange(keys)}", None if is_deletion else f"{side[0]}{number}.{index}", time_ms))
    return records


# --- applications -------------------------------------------------------------------------


@frozen
class Stage:
    """One broker, and the topics and applications of one test."""

    servers: str
    classes: Path
    folder: Path
    name: str
    kind: str
    guarantee: str
    _folders: list[Path] = field(factory=list, init=False)

    @property
    def inputs(self) -> list[str]:
        """The topics that are read."""
        sides = ("left",) if self.kind.startswith(("final-", "until-")) else ("left", "right")
        return [f"{self.name}-{side}" for side in sides]

    def output(self, application: str) -> str:
        """Return the topic that an application writes; all have names of the same length."""
        return f"{self.name}-{application}-output"

    def create(self, applications: list[str]) -> None:
        """Create the topics."""
        names = [*self.inputs, *(self.output(application) for application in applications)]
        with Admin(TcpCluster(self.servers)) as admin:
            admin.create_topics([TopicSpec(name, PARTITIONS) for name in names])
            # Not before the broker that made them also knows them.
            admin.describe_topics(names)

    def send(self, number: int) -> None:
        """Send one half of the input."""
        with Producer(TcpCluster(self.servers)) as producer:
            for topic in self.inputs:
                for key, value, time_ms in half(self.kind, number, topic.rpartition("-")[2]):
                    partition = int(key[1:]) % PARTITIONS
                    data = None if value is None else value.encode()
                    producer.send(topic, data, key=key.encode(), timestamp_ms=time_ms, partition=partition)
            producer.flush()

    def _state_dir(self) -> Path:
        # A new one each time: state comes from changelogs.
        self._folders.append(self.folder / f"state-{len(self._folders)}")
        return self._folders[-1]

    def _topics(self, application: str) -> list[str]:
        return [f"{self.name}-left", f"{self.name}-right", self.output(application)]

    @contextmanager
    def java(self, application: str) -> Iterator[None]:
        """Run the Java application."""
        state = self._state_dir()
        classpath = ":".join([str(self.classes), *map(str, jars("streams"))])
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath]
        options.append("-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn")
        command = ["java", *options, "Handover", self.kind, f"{self.name}-{application}", self.servers, str(state)]
        log = self.folder / f"java-{state.name}.log"
        with Started([*command, self.guarantee, *self._topics(application)], log) as process:
            yield
            # Before that, a join of the group might go on without it.
            process.line_with("state RUNNING")
            process.stop()
        self._await_empty_group(application)

    @contextmanager
    def ours(self, application: str) -> Iterator[None]:
        """Run the application of ours."""
        with Streams(
            topology(self.kind, *self._topics(application)),
            application_id=f"{self.name}-{application}",
            bootstrap_servers=self.servers,
            state_dir=self._state_dir(),
            processing_guarantee=self.guarantee,
            # Members leave at their end; none may be removed for being slow, or records would be processed twice.
            session_timeout_ms=WATCHDOG_MS,
            commit_interval_ms=100,
            heartbeat_interval_ms=300,
        ):
            yield
        self._await_empty_group(application)

    def _await_empty_group(self, application: str) -> None:
        with Admin(TcpCluster(self.servers)) as admin:
            group = f"{self.name}-{application}"
            until(lambda: admin.describe_group(group).state == "Empty", seen=lambda: f"members in {group}")

    def await_end(self, *applications: str) -> None:
        """Wait until applications have committed all that was sent."""
        at = [TopicPartition(topic, number) for topic in self.inputs for number in range(PARTITIONS)]
        with Admin(TcpCluster(self.servers)) as admin:
            ends = admin.list_offsets(dict.fromkeys(at, -1))
            for application in applications:
                group, seen = f"{self.name}-{application}", dict[TopicPartition, int]()

                def is_done(group: str = group, seen: dict[TopicPartition, int] = seen) -> bool:
                    seen.update({at: found.offset for at, found in admin.committed_offsets(group).items()})
                    return all(seen.get(at, 0) >= end for at, end in ends.items())

                until(is_done, seen=lambda seen=seen: f"{seen} of {ends}")

    def results(self, application: str) -> dict[bytes, list[tuple[Any, ...]]]:
        """Return the output of each key of the input in its order; those of several tasks are mixed in a partition."""
        found: dict[bytes, list[tuple[Any, ...]]] = defaultdict(list)
        for record in stored(self.servers, self.output(application)):
            assert record.key is not None
            row = record.partition, record.key, record.value, record.timestamp_ms
            found[record.key.partition(b"@")[0]].append(row)
        return dict(found)

    def changelogs(self, application: str) -> dict[str, list[tuple[Any, ...]]]:
        """Return what each changelog has at last: partition, key, value and headers.

        Sequence numbers are left out.
        """
        prefix, found = f"{self.name}-{application}-", {}
        with Admin(TcpCluster(self.servers)) as admin:
            topics = [name for name in admin.list_topics() if name.startswith(prefix) and name.endswith("-changelog")]
        for topic in topics:
            last = {(item.partition, item.key): (item.value, item.headers) for item in stored(self.servers, topic)}
            kept = [(*place, *row) for place, row in last.items() if row[0] is not None]
            if topic.endswith(NUMBERED):
                kept = [(partition, key[:-4], *row) for partition, key, *row in kept]
            found[topic.removeprefix(prefix)] = sorted(kept)
        return found


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Handover.java, compiled."""
    return compiled(SOURCE, tmp_path_factory.mktemp("classes"))


@pytest.mark.parametrize(
    ("kind", "guarantee"),
    [
        pytest.param("final-tumbling", "exactly_once_v2", marks=pytest.mark.takeover),
        pytest.param("final-hopping", "at_least_once", marks=pytest.mark.takeover),
        pytest.param("final-sliding", "at_least_once", marks=pytest.mark.takeover),
        pytest.param("final-sessions", "exactly_once_v2", marks=pytest.mark.takeover),
        ("until-close", "exactly_once_v2"),
        pytest.param("until-session-close", "at_least_once", marks=pytest.mark.takeover),
        pytest.param("until-limit", "at_least_once", marks=pytest.mark.takeover),
        ("grace", "exactly_once_v2"),
        pytest.param("outer", "at_least_once", marks=pytest.mark.takeover),
    ],
)
def test_results_and_changelogs_are_those_of_an_undisturbed_java_run(
    kafka: KafkaNode, classes: Path, tmp_path: Path, name: str, kind: str, guarantee: str
):
    """A grace buffer that Kafka Streams has restored joins its records at other times, or never, whoever wrote it.

    What it makes of a buffer of ours is what it makes of its own.
    """
    stage = Stage(kafka.bootstrap_servers, classes, tmp_path, name, kind, guarantee)
    restarted = ["java-java"] if kind == "grace" else []
    stage.create(["java-ours", "ours-java", "undisturb", *restarted])
    stage.send(0)
    with ExitStack() as stack:
        stack.enter_context(stage.ours("ours-java"))
        for application in ("java-ours", *restarted):
            stack.enter_context(stage.java(application))
        stage.await_end("java-ours", "ours-java", *restarted)
    stage.send(1)
    with ExitStack() as stack:
        stack.enter_context(stage.ours("java-ours"))
        for application in ("undisturb", "ours-java", *restarted):
            stack.enter_context(stage.java(application))
        stage.await_end("undisturb", "java-ours", "ours-java", *restarted)

    for application, like in (("java-ours", "undisturb"), ("ours-java", (*restarted, "undisturb")[0])):
        wanted, logs = stage.results(like), stage.changelogs(like)
        assert sum(map(len, wanted.values()))
        assert any(logs.values())
        assert stage.results(application) == wanted, application
        assert stage.changelogs(application) == logs, application
