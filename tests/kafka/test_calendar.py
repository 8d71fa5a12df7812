"""Windows of a calendar on each kind of broker: state that moves, goes live, or is restored; and Java reads the keys.

Two tables of the same calendar are joined and held until their windows close; the results are those of the test driver.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streams import (
    CalendarWindows,
    Consumer,
    DropNote,
    Streams,
    StreamsBuilder,
    Suppressed,
    Topic,
    TopicPartition,
    session_windowed,
)
from streams.clients import Admin, Producer
from streams.clients.tcp import TcpCluster
from streams.core.blocks.partitioning import partition_for
from streams.protocol.messages import TopicSpec
from streams.protocol.transport import Cluster
from streams.replay import Snapshot, go_live, publish, replay
from streams.replay.storage.places import Place
from streams.testing import TopologyTestDriver
from tests.kafka.node import compiled, jars
from tests.kafka.processes import Started
from tests.kafka.records import Stored, stored
from tests.waiting import WATCHDOG_MS, until

PARTITIONS = 2
#: Each has a partition of its own.
KEYS = ("ann", "dan")
#: On 29 March 2026 summer time starts in Berlin.
DAYS = [datetime(2026, 3, 27) + timedelta(days=number) for number in range(5)]
GRACE = timedelta(hours=1)
CALENDARS = {
    "days": CalendarWindows.days("Europe/Berlin", start=time(2), grace=GRACE),
    "hours": CalendarWindows.hours("Asia/Kolkata", start=time(0, 15), grace=GRACE),
    "openings": CalendarWindows.openings(
        "Europe/Berlin", [(day.replace(hour=9), day.replace(hour=17, minute=30)) for day in DAYS], grace=GRACE
    ),
}


def rows(begin: int, end: int) -> list[tuple[str, int, int]]:
    """Return records of two keys, a third of an hour apart; each seventh is three hours late."""
    first_ms = round(DAYS[0].replace(tzinfo=UTC).timestamp() * 1000)
    return [
        (key, number, first_ms + number * 1_200_000 - (3 * 3_600_000 if number % 7 == 6 else 0))
        for number in range(begin, end)
        for key in KEYS
    ]


PLACES = {key: partition_for(key.encode(), PARTITIONS) for key in KEYS}
CUT, END = 150, 320


def topics_of(name: str) -> list[Topic[Any, int]]:
    keys = {"sales": str, "joined": session_windowed(str), "late": str}
    return [Topic(f"{name}-{part}", key=key, value=int, partitions=PARTITIONS) for part, key in keys.items()]


def build(name: str, kind: str, builder: StreamsBuilder) -> None:
    """Join two tables of the same calendar, and emit rows of windows that have closed."""
    sales, joined, late = topics_of(name)
    kept = timedelta(days=400)
    windowed = builder.stream(sales).group_by_key().windowed_by(CALENDARS[kind])
    sums = windowed.reduce(int.__add__, name="sums", retention=kept)
    counts = windowed.count("counts", retention=kept)
    table = sums.join(counts, lambda total, count: total * 1000 + count, "both")
    table.suppress(Suppressed.until_window_closes(), name="held").to_stream().to(joined)
    windowed.late().to(late)


class App:
    """The topics and the application of one test on one broker."""

    def __init__(self, cluster: Cluster, name: str, kind: str, folder: Path) -> None:
        self.cluster, self.name, self.folder = cluster, name, folder
        self.topology = partial(build, name, kind)
        self.sales, self.joined, self.late = topics_of(name)
        self._sent = 0

    def create(self) -> None:
        topics = (self.sales, self.joined, self.late)
        with Admin(self.cluster) as admin:
            admin.create_topics([TopicSpec(topic.name, PARTITIONS) for topic in topics])
            admin.describe_topics([topic.name for topic in topics])

    def send(self, end: int) -> None:
        """Send the records up to this number; each key has a partition of its own."""
        with Producer(self.cluster) as producer:
            for key, value, time_ms in rows(self._sent, end):
                producer.send(self.sales, value, key=key, timestamp_ms=time_ms, partition=PLACES[key])
            producer.flush()
        self._sent = end

    def instance(self, number: int) -> Streams:
        return Streams(
            self.topology,
            application_id=self.name,
            broker=self.cluster,
            state_dir=str(self.folder / f"state-{number}"),
            commit_interval_ms=50,
            heartbeat_interval_ms=100,
            session_timeout_ms=WATCHDOG_MS,
        )

    def await_processed(self) -> None:
        """Wait until all that was sent is committed."""
        sources = [TopicPartition(self.sales.name, number) for number in range(PARTITIONS)]
        with Admin(self.cluster) as admin:

            def is_done() -> bool:
                committed = admin.committed_offsets(self.name)
                return all(at in committed and committed[at].offset == self._sent for at in sources)

            until(is_done)

    def results(self) -> tuple[dict[str, list[Any]], dict[str, list[int]]]:
        """Return the joined sums of each key, and what was late of it."""
        topics = (self.joined, self.late)
        places = [TopicPartition(topic.name, number) for topic in topics for number in range(PARTITIONS)]
        with Admin(self.cluster) as admin, Consumer(self.cluster, auto_offset_reset="earliest") as consumer:
            ends = admin.list_offsets(dict.fromkeys(places, -1))
            consumer.assign(places, list(topics))
            joined: dict[str, list[Any]] = {key: [] for key in KEYS}
            late: dict[str, list[int]] = {key: [] for key in KEYS}

            def turn() -> None:
                for record in consumer.poll(20):
                    if record.topic == self.late.name:
                        assert DropNote.of(record.headers).reason.value == "late"
                        late[record.key].append(record.value)
                    else:
                        joined[record.key.key].append((tuple(record.key.window), record.value))

            until(lambda: all(consumer.position(at) >= ends[at] for at in places), turn)
        return joined, late

    def expected(self) -> tuple[dict[str, list[Any]], dict[str, list[int]]]:
        """Return what the test driver makes of the same records."""
        joined: dict[str, list[Any]] = {key: [] for key in KEYS}
        late: dict[str, list[int]] = {key: [] for key in KEYS}
        with TopologyTestDriver(self.topology) as driver:
            for key, value, time_ms in rows(0, END):
                driver.pipe(self.sales, value, key=key, timestamp_ms=time_ms, partition=PLACES[key])
            for key, value in driver.read(self.joined):
                joined[key.key].append((tuple(key.window), value))
            for key, value in driver.read(self.late):
                late[key].append(value)
        return joined, late


def handed_over(app: App) -> None:
    """A second instance joins, and the first leaves: its tasks are restored from changelogs."""
    app.send(CUT)
    with app.instance(2) as second:
        with app.instance(1) as first:
            until(lambda: len(first.tasks()) == len(second.tasks()) == 1)
            app.await_processed()
        until(lambda: len(second.tasks()) == PARTITIONS)
        app.send(END)
        app.await_processed()


def restored(app: App) -> None:
    """A new state directory: all state comes from changelogs."""
    for number, end in enumerate((CUT, END)):
        app.send(end)
        with app.instance(number):
            app.await_processed()


def gone_live(app: App) -> None:
    """A replay over the first part, then live from its snapshot."""
    app.send(CUT)
    history = app.folder / "sales.records.jsonl"
    lines = [
        {"key": key, "value": value, "timestamp": time_ms, "partition": PLACES[key]}
        for key, value, time_ms in rows(0, CUT)
    ]
    history.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with replay(
        app.topology, {app.sales: str(history)}, executor="local", processes=1, partitions=PARTITIONS,
        application_id=app.name,
    ) as result:  # fmt: skip
        result.save(app.folder / "snapshot")
    snapshot = Snapshot.open(Place(str(app.folder / "snapshot")))
    publish(snapshot, app.cluster)
    go_live(snapshot, app.cluster)
    app.send(END)
    with app.instance(0):
        app.await_processed()


def read_by_java(app: App) -> set[str]:
    """Return the keys as KEY@START/END and the values of the results, as Kafka Streams reads keys of sessions."""
    assert isinstance(app.cluster, TcpCluster)
    servers, texts = str(app.cluster.bootstrap[0]), f"{app.name}-texts"
    with Admin(app.cluster) as admin:
        admin.create_topics([TopicSpec(texts, PARTITIONS)])
        admin.describe_topics([texts])
    classes = compiled(Path(__file__).parent / "java" / "Interop.java", app.folder / "classes")
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
    command += [":".join([str(classes), *map(str, jars("streams"))]), "Interop", "read-sessions", f"{app.name}-java"]
    command += [servers, str(app.folder / "java"), "at_least_once", app.joined.name, texts]
    rows: list[Stored] = []

    def has_all() -> bool:
        rows[:] = stored(servers, texts)
        return len(rows) >= len(stored(servers, app.joined.name))

    with Started(command, app.folder / "java.log") as java:
        until(has_all, seen=lambda: java.said)
    return {f"{(row.key or b'').decode()} {(row.value or b'').decode()}" for row in rows}


@pytest.mark.parametrize("way", [handed_over, restored, gone_live])
@pytest.mark.parametrize("kind", [*CALENDARS])
def test_windows_of_a_calendar_are_those_of_the_driver(
    cluster: Cluster, name: str, tmp_path: Path, kind: str, way: Callable[[App], None], request: pytest.FixtureRequest
) -> None:
    app = App(cluster, name, kind, tmp_path)
    app.create()

    way(app)

    joined, late = app.results()
    wanted, too_late = app.expected()
    assert late == too_late
    assert all(late.values()) or kind == "openings"
    assert joined == wanted
    if isinstance(cluster, TcpCluster) and way is restored and "kafka" in request.fixturenames:
        assert read_by_java(app) == {
            f"{key}@{start_ms}/{end_ms} {total}" for key, sums in joined.items() for (start_ms, end_ms), total in sums
        }
