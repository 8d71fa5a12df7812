"""A word count as a process of its own: ``python -m tests.kafka.word_count SERVERS APPLICATION [NAME=VALUE ...]``.

Reads APPLICATION-lines, writes APPLICATION-counts, each update of a count; says on standard output what state it
is in, and ends with SIGTERM.  Beside it: how tests start it and check what it has done.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from attrs import define, field

from streams import State, StreamsBuilder, Topic, run
from streams.clients import Admin, Consumer, Producer
from streams.core.blocks.records import Block, TopicPartition
from streams.protocol.messages import TopicSpec
from streams.protocol.transport import Cluster
from tests.waiting import WATCHDOG_MS, WATCHDOG_S, until

WORDS = [b"w%d" % number for number in range(20)]
#: Of processes that may be killed, and have to be missed soon.
KILLED: dict[str, Any] = {"session_timeout_ms": 6_000}
#: Nobody is removed from the group for being slow: records would be counted twice.
SETTINGS: dict[str, Any] = {
    "commit_interval_ms": 100,
    "session_timeout_ms": WATCHDOG_MS,
    "heartbeat_interval_ms": 300,
    "metadata_max_age_ms": 500,
    "linger_ms": 0,
}


#: What the broker sets if it assigns the tasks.
OF_BROKER = ("session_timeout_ms", "heartbeat_interval_ms")
#: Settings of members of streams groups.
ASSIGNED = {"group_protocol": "streams"} | {name: SETTINGS[name] for name in SETTINGS if name not in OF_BROKER}


def topology(name: str) -> Callable[[StreamsBuilder], None]:
    """Count words; a repartition topic lies between lines and counts."""
    lines = Topic(f"{name}-lines", key=str, value=str)
    counts = Topic(f"{name}-counts", key=str, value=int)

    def build(builder: StreamsBuilder) -> None:
        words = builder.stream(lines).flat_map_values(lambda line: line.split())
        words.group_by(lambda _, word: word).count(name="counted").to_stream().to(counts)

    return build


def main(servers: str, name: str, *settings: str) -> None:
    """Run until SIGTERM."""
    own = dict(setting.split("=", 1) for setting in settings)
    given = {**(ASSIGNED if own.get("group_protocol") == "streams" else {**SETTINGS, **KILLED}), **own}

    def on_state(now: State, before: State) -> None:
        print(now.value, flush=True)

    run(topology(name), application_id=name, bootstrap_servers=servers, on_state=on_state, **given)


@define(eq=False)
class Instance:
    """A running process of the word count; what it says goes to ``log``."""

    servers: str
    name: str
    folder: Path
    settings: dict[str, Any] = field(factory=dict)
    process: "subprocess.Popen[bytes]" = field(init=False)
    log: Path = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / f"said-{len(list(self.folder.iterdir()))}.log"
        words = [f"{name}={value}" for name, value in self.settings.items()]
        command = [sys.executable, "-m", "tests.kafka.word_count", self.servers, self.name, *words]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=Path(__file__).parents[2]
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def is_running(self) -> bool:
        """Whether it has tasks by now.

        Raises:
            AssertionError: it has ended.
        """
        assert self.process.poll() is None, self.said()
        return "running" in self.said().split()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Let it end itself, once it has begun: before, a signal ends any process.

        Raises:
            AssertionError: it does not, or says that it has failed.
        """
        until(self.is_running)
        self.process.terminate()
        assert self.process.wait(WATCHDOG_S) == 0, self.said()


@define(eq=False)
class Counting:
    """The topics of one word count, what was put into them, and what has come out."""

    cluster: Cluster
    name: str
    partitions: int = 3
    #: Whether somebody else has made the topics.
    are_there: bool = False
    put: "Counter[str]" = field(factory=Counter)
    #: Updates of each word's count, in order.
    seen: dict[str, list[int]] = field(factory=dict)
    _producer: Producer = field(init=False)
    _consumer: Consumer = field(init=False)
    _lines: int = 0

    def __attrs_post_init__(self) -> None:
        counts = f"{self.name}-counts"
        if not self.are_there:
            with Admin(self.cluster) as admin:
                admin.create_topics([TopicSpec(f"{self.name}-lines", self.partitions), TopicSpec(counts, 2)])
        self._producer = Producer(self.cluster)
        self._consumer = Consumer(self.cluster, auto_offset_reset="earliest", isolation_level="read_committed")
        topic = Topic(counts, key=str, value=int)
        self._consumer.assign([TopicPartition(counts, number) for number in range(2)], [topic])

    def __enter__(self) -> "Counting":
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()
        self._consumer.close()

    def write(self, lines: int) -> None:
        """Write so many lines of ten words each, to all partitions in turn."""
        by_partition: dict[int, list[bytes]] = {}
        for _ in range(lines):
            number, self._lines = self._lines, self._lines + 1
            words = [WORDS[(number * 7 + index * index) % len(WORDS)] for index in range(10)]
            self.put.update(word.decode() for word in words)
            by_partition.setdefault(number % self.partitions, []).append(b" ".join(words))
        for number, rows in by_partition.items():
            block = Block([None] * len(rows), rows, [self._lines] * len(rows))
            self._producer.send_block(TopicPartition(f"{self.name}-lines", number), block)
        self._producer.flush()

    def put_line(self, line: bytes) -> None:
        """Write one line, which is not counted."""
        self._producer.send(f"{self.name}-lines", line, partition=0).result()

    def read(self, timeout_ms: int = 100) -> None:
        """Take in what has come out."""
        for record in self._consumer.poll(timeout_ms):
            self.seen.setdefault(record.key, []).append(record.value)

    @property
    def is_complete(self) -> bool:
        """Whether the last update of each count is at least what was put in."""
        return all(self.seen.get(word, [0])[-1] >= count for word, count in self.put.items())

    def finish(self, instances: Iterable[Instance] = ()) -> None:
        """Read until all is counted.

        Raises:
            AssertionError: it never is, or an instance has ended.
        """

        def turn() -> None:
            for instance in instances:
                assert instance.process.poll() is None, instance.said()
            self.read()

        until(lambda: self.is_complete, turn)

    def check_exact(self) -> None:
        """Each word's updates are 1, 2, 3 ... up to its number."""
        assert self.seen == {word: list(range(1, count + 1)) for word, count in self.put.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
