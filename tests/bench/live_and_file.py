"""What a live run gives beside a run over the same files, and beside Kafka Streams: a table of cases in Markdown.

    python -m tests.bench.live_and_file [CASE...]

Each case is run from files, by Kafka Streams from its jars (``make kafka-jars``) and live here, with 1, 2 and 4 threads
and on two instances, all on an embedded broker that is served over TCP.  Whole outputs are compared: key, window,
value and timestamp of every record.  A live run starts paused and goes on when each of its threads has tasks, or it
would show nothing: the first thread could have done everything.  The tasks are printed to standard error.
"""

import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from signal import SIGTERM
from typing import Any, TypeAlias

from attrs import field, frozen

from streams import (
    Admin,
    EmbeddedBroker,
    Streams,
    StreamsBuilder,
    TimeWindows,
    Topic,
    TopicPartition,
    TopologyError,
    time_windowed,
)
from streams.bounded import run_bounded
from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import Block
from streams.files import open_input
from tests.kafka.node import compiled, jars
from tests.kafka.processes import Started
from tests.waiting import until

APPLICATION = "live-and-file"
HOUR = timedelta(hours=1)
SOURCE = Path(__file__).parents[1] / "kafka" / "java" / "LiveAndFile.java"
_START_MS = 1_700_000_000_000

#: Key, value and time of a record, as bytes.
Output: TypeAlias = "Counter[tuple[bytes | None, bytes | None, int]]"
#: Key, value, time.
Row: TypeAlias = tuple[str, int, int]

events = Topic("events", key=str, value=int, partitions=4)
few_events = Topic("events", key=str, value=int, partitions=2)
others = Topic("others", key=str, value=int, partitions=3)
per_hour = Topic("results", key=time_windowed(str, HOUR), value=int, partitions=1)
counts = Topic("results", key=str, value=int, partitions=1)


def backlog(builder: StreamsBuilder) -> None:
    """Seven groups by the hour."""
    windows = TimeWindows.of(HOUR, grace=timedelta(minutes=10))
    grouped = builder.stream(events).group_by(lambda _, value: f"g{value % 7}", name="by")
    grouped.windowed_by(windows).count("n").to_stream().to(per_hour)


def game(builder: StreamsBuilder) -> None:
    """Events of players by region and hour, corrected by late events."""
    windows = TimeWindows.of(HOUR, grace=timedelta(minutes=30))
    grouped = builder.stream(events).group_by(lambda _, points: f"region-{points % 5}", name="by")
    grouped.windowed_by(windows).count("n").to_stream().to(per_hour)


def alert(builder: StreamsBuilder) -> None:
    """Alert at the third event of a key."""
    builder.stream(events).group_by_key().count("n").to_stream().filter(lambda _, count: count == 3).to(counts)


def merge(builder: StreamsBuilder) -> None:
    """Count over two topics."""
    builder.stream(few_events).merge(builder.stream(others)).group_by_key().count("n").to_stream().to(counts)


def backlog_rows() -> list[Row]:
    """Records of 40 keys, 3 s apart, some of them up to 500 s out of order."""
    rng = random.Random(5)
    delays = [0, 0, 0, 60_000, 500_000]
    return [(f"p{rng.randrange(40)}", at, _START_MS + at * 3_000 - rng.choice(delays)) for at in range(20_000)]


def game_rows() -> list[Row]:
    """Events of 200 players, 12 s apart; one in ten comes up to an hour late, from a phone without a network."""
    rng = random.Random(2)

    def late_ms() -> int:
        return rng.randrange(3_600_000) if rng.random() < 0.1 else rng.randrange(30_000)

    return [
        (f"player-{rng.randrange(200)}", rng.randrange(1_000), _START_MS + at * 12_000 - late_ms())
        for at in range(3_000)
    ]


@frozen
class Case:
    """A topology and the rows of its inputs."""

    topology: Callable[[StreamsBuilder], None]
    inputs: dict[Topic[str, int], list[Row]]
    #: Number of tasks, and of records that these process, with those of repartition topics.
    tasks: int
    processed: int
    settings: dict[str, Any] = field(factory=lambda: {"commit_interval_ms": 100, "cache_max_bytes": 0})
    #: The last count of each key, where a run from files is no reference.
    counts: dict[bytes, int] = field(factory=dict)


_FEW = [(f"k{number % 8}", number, _START_MS + number) for number in range(80)]
CASES = {
    "backlog": Case(backlog, {events: backlog_rows()}, tasks=8, processed=40_000),
    "game": Case(game, {events: game_rows()}, tasks=8, processed=6_000),
    # With the settings that an application has which sets none.
    "alert": Case(alert, {events: _FEW[:40]}, tasks=4, processed=40, settings={}),
    "merge": Case(
        merge,
        {few_events: _FEW, others: _FEW},
        tasks=3,
        processed=160,
        counts={f"k{number}".encode(): 20 for number in range(8)},
    ),
}


@frozen
class Figures:
    """What a run gave: its output and the number of dropped records; or why there is none."""

    output: Output
    dropped: int = 0
    refusal: str = ""

    def beside(self, reference: "Figures", counts_: Mapping[bytes, int]) -> str:
        """Return the cell of the table, with the number of records of the reference that this run does not have."""
        if self.refusal:
            return f"refused ({self.refusal})"
        counted = f"{self.dropped:,} dropped, {self.output.total():,} records"
        if counts_:
            highest: dict[bytes | None, int] = {}
            for key, value, _ in self.output:
                highest[key] = max(highest.get(key, 0), int.from_bytes(value or b"", "big"))
            wrong = sum(highest.get(key) != count for key, count in counts_.items())
            return f"{counted}, {wrong} of {len(counts_)} keys wrong"
        if self is reference or reference.refusal:
            return counted
        if self.output == reference.output:
            return f"{counted}, equal"
        return f"{counted}, {(reference.output - self.output).total():,} of {reference.output.total():,} missing"


def _output_of(blocks: Iterable[Block]) -> Output:
    found: Output = Counter()
    for block in blocks:
        found.update(zip(block.keys, block.values, block.timestamps, strict=True))
    return found


def from_files(case: Case, folder: Path) -> Figures:
    """Run a case over files."""
    readers = {}
    for topic, rows in case.inputs.items():
        path = folder / f"{topic.name}.records.jsonl"
        lines = [json.dumps({"key": key, "value": value, "timestamp": time_ms}) for key, value, time_ms in rows]
        path.write_text("\n".join(lines))
        readers[topic.name] = open_input(topic, path)
    try:
        with run_bounded(case.topology, readers, application_id=APPLICATION) as run:
            output = _output_of(block for _, block in run.read_output("results"))
            return Figures(output, sum(run.dropped.values()))
    except TopologyError as error:
        return Figures(Counter(), refusal=type(error).__name__)


def with_topics(case: Case) -> EmbeddedBroker:
    """Return a broker with the topics of a case."""
    broker = EmbeddedBroker()
    for topic in (counts, *case.inputs):
        broker.create_topic(topic)
    return broker


def fill(broker: EmbeddedBroker, case: Case) -> None:
    """Write the rows of a case to its topics."""
    for topic, rows in case.inputs.items():
        for number, block in blocks(topic, rows).items():
            broker.append(TopicPartition(topic.name, number), block)


def blocks(topic: Topic[str, int], rows: Iterable[Row]) -> dict[int, Block]:
    """Return rows by the partition of their key."""
    by_partition: dict[int, list[tuple[bytes, bytes, int]]] = {}
    for text, value, time_ms in rows:
        key = text.encode()
        number = partition_for(key, topic.partitions or 1)
        by_partition.setdefault(number, []).append((key, topic.value_serde.serialize(value), time_ms))
    return {number: Block(*map(list, zip(*own, strict=True))) for number, own in by_partition.items()}


def results(broker: EmbeddedBroker) -> Output:
    """Return what was written to the output topic."""
    partition = TopicPartition("results", 0)
    blocks: list[Block] = []
    while (position := blocks[-1].offsets[-1] + 1 if blocks else 0) < broker.end_offset(partition):
        blocks += broker.read(partition, position)
    return _output_of(blocks)


def live(case: Case, *, threads: int = 1, instances: int = 1) -> Figures:
    """Run a case live, on instances that share an embedded broker, until all records are processed."""
    with with_topics(case) as broker, ExitStack() as stack:
        fill(broker, case)
        try:
            members = [
                Streams(
                    case.topology,
                    application_id=APPLICATION,
                    broker=broker,
                    auto_offset_reset="earliest",
                    num_stream_threads=threads,
                    **case.settings,
                )
                for _ in range(instances)
            ]
            for member in members:
                member.pause()
                stack.enter_context(member)
        except TopologyError as error:
            return Figures(Counter(), refusal=type(error).__name__)
        runs_on = await_spread(case, members)
        print(f"ours, {threads} threads, {instances} instances: {runs_on}", file=sys.stderr)
        for member in members:
            member.resume()

        def total(name: str) -> int:
            return int(sum(member.metrics[name] for member in members))

        until(lambda: total("process-total") >= case.processed, seen=lambda: f"{total('process-total'):,} processed")
        dropped = total("dropped-records-total")
        # The last commits write what a cache has.
        stack.close()
        return Figures(results(broker), dropped)


def await_spread(case: Case, members: Sequence[Streams]) -> list[list[str]]:
    """Wait until all tasks are assigned, to each thread some, and return them by thread."""

    def by_thread() -> list[list[str]]:
        return [sorted(map(str, thread.tasks)) for member in members for thread in member.instance.stream_threads]

    def is_spread() -> bool:
        tasks = by_thread()
        return sum(map(len, tasks)) == case.tasks and all(tasks)

    until(is_spread, seen=by_thread)
    return by_thread()


def kafka_streams(name: str, case: Case, classes: Path, *, threads: int) -> Figures:
    """Run a case by Kafka Streams, on an embedded broker over TCP, until its group has committed all records."""
    with with_topics(case) as broker, broker.serve("127.0.0.1:0") as server, tempfile.TemporaryDirectory() as folder:
        classpath = ":".join(map(str, (classes, *jars("streams"))))
        options = ["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classpath]
        arguments = [name, server.bootstrap_servers, folder, str(threads), str(case.tasks)]
        with (
            Admin(broker) as admin,
            Started(["java", *options, "LiveAndFile", *arguments], Path(folder) / "said.txt") as java,
        ):
            print(f"Kafka Streams, {threads} threads: {java.line_with('spread ')}", file=sys.stderr)
            fill(broker, case)
            Path(folder, "filled").touch()

            def unread() -> int:
                committed = admin.committed_offsets(APPLICATION)
                read = [topic for topic in broker.topics() if topic != "results" and not topic.endswith("-changelog")]
                places = [
                    TopicPartition(topic, number)
                    for topic in read
                    if not topic.startswith("__")
                    for number in range(broker.topics()[topic])
                ]
                return sum(broker.end_offset(at) - (committed[at].offset if at in committed else 0) for at in places)

            until(lambda: unread() == 0, seen=unread)
            java.process.send_signal(SIGTERM)
            java.process.wait()
            dropped = int(java.line_with("dropped ").split()[1])
        return Figures(results(broker), dropped)


def version() -> str:
    """Return the version of Kafka Streams' jar."""
    (jar,) = (path for path in jars("streams") if path.name.startswith("kafka-streams-"))
    return jar.stem.rpartition("-")[2]


def table(names: Sequence[str]) -> str:
    """Return the table of some cases in Markdown."""
    streams = f"Kafka Streams {version()}"
    heads = ["from files", f"{streams}, 1 thread", "2 threads", "live, 1 thread", "2", "4", "2 instances"]
    lines = [f"| case | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    with tempfile.TemporaryDirectory() as folder:
        classes = compiled(SOURCE, Path(folder))
        for name in names:
            case = CASES[name]
            reference = from_files(case, Path(folder))
            found = [
                reference,
                *(kafka_streams(name, case, classes, threads=threads) for threads in (1, 2)),
                *(live(case, threads=threads) for threads in (1, 2, 4)),
                live(case, instances=2),
            ]
            cells = [figures.beside(reference, case.counts) for figures in found]
            lines.append(f"| {name}: {(case.topology.__doc__ or '').rstrip('.')} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(sys.argv[1:] or list(CASES)))
