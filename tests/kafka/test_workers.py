"""Three processes share the sessions of an access log, one is killed at work: the topic is that of a single run."""

import gzip
import os
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple, Self

import pytest

from streams.bounded import run_bounded
from streams.clients import Admin, Consumer, Producer
from streams.clients.tcp import TcpCluster
from streams.core.records import Block, TopicPartition
from streams.files import open_input
from streams.group.subscriptions import decode_assignment
from streams.protocol.messages import TopicSpec
from tests.kafka.processes import Started, streams_broker, until

LOG = Path(__file__).parents[3] / "shared" / "data" / "apache_access.log.gz"
EXAMPLE = "topology_examples.02_sessions"
FILE = Path(__file__).parents[2] / "topology_examples" / "02_sessions.py"
PARTITIONS = [TopicPartition("access", number) for number in range(4)]
OUTPUTS = [TopicPartition("sessions", number) for number in range(4)]
WORKERS = 3
#: Looks at a transaction that stays open, after which it is that of a process which stands still.
LOOKS = 50
#: Records that are fed in one go.
PORTION = 250
#: The shortest that a Kafka allows as it comes.
SESSION_MS = 6_000

SETTINGS = {
    "application_id": "visits",
    "processing_guarantee": "exactly_once_v2",
    "cache_max_bytes": 0,
    "commit_interval_ms": 200,
    "session_timeout_ms": SESSION_MS,
    "heartbeat_interval_ms": 300,
    "transaction_timeout_ms": SESSION_MS,
}

example = import_module(EXAMPLE)


class Row(NamedTuple):
    """A record of the topic of sessions, as bytes."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int


# --- the log, and what one run makes of it ------------------------------------------------


def lines() -> list[str]:
    """Return the access log, or one like it where that is not at hand."""
    if LOG.exists():
        return gzip.decompress(LOG.read_bytes()).decode().splitlines()
    rng, start = Random(5), datetime(2015, 5, 17, tzinfo=UTC)
    times = sorted(rng.uniform(0, 4 * 86_400) for _ in range(10_000))
    return [
        f"10.0.{rng.randrange(9)}.{rng.randrange(99)} - - "
        f'[{start + timedelta(seconds=time - rng.choice((0, 0, 0, 40))):%d/%b/%Y:%H:%M:%S %z}] "GET / HTTP/1.1" 200 9'
        for time in times
    ]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("log") / "access.log"
    path.write_text("\n".join(lines()) + "\n")
    return path


@pytest.fixture(scope="module")
def single_run(log: Path) -> dict[int, list[Row]]:
    """The topic of sessions as a single run leaves it, by partition."""
    result: dict[int, list[Row]] = {partition.partition: [] for partition in OUTPUTS}
    inputs = {"access": open_input(example.access, log)}
    with run_bounded(example.topology, inputs, application_id="visits", partitions=len(PARTITIONS)) as run:
        for number, block in run.read_output("sessions"):
            result[number] += map(Row, block.keys, block.values, block.timestamps)
    return result


def portions(log: Path) -> Iterator[dict[TopicPartition, Block]]:
    """Yield the records of the log in portions; partitions by key, as Kafka's producers choose them."""
    # The offsets of a file's blocks are row numbers.
    records = (
        (number, row)
        for batch in open_input(example.access, log)(len(PARTITIONS), 0)
        for _, number, row in sorted(
            (offset, number, row)
            for number, block in batch
            for offset, *row in zip(block.offsets, block.keys, block.values, block.timestamps, strict=True)
        )
    )
    while portion := list(islice(records, PORTION)):
        yield {
            partition: Block(*map(list, zip(*rows, strict=True)))
            for partition in PARTITIONS
            if (rows := [row for number, row in portion if number == partition.partition])
        }


# --- brokers and workers ------------------------------------------------------------------


@pytest.fixture(params=["served", pytest.param("kafka", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of `streams broker` in a process of its own, or of a real Kafka."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka").bootstrap_servers
        return
    with streams_broker(tmp_path) as address:
        yield address


def started(servers: str, folder: Path) -> Started:
    """Start the workers, as a user does."""
    command = [sys.executable, "-m", "streams", "run", str(FILE), "--bootstrap-servers", servers]
    command += ["--state-dir", str(folder / "state"), "--workers", str(WORKERS)]
    for name, value in SETTINGS.items():
        command += ["--set", f"{name}={value}"]
    return Started(command, folder / "said.log")


def workers_of(run: Started) -> list[int]:
    """Return the processes that it has started."""
    pid = run.process.pid
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Feed:
    """What is put into the topic of accesses, and what has come of it."""

    def __init__(self, servers: str) -> None:
        cluster = TcpCluster(servers)
        self._admin, self._producer = Admin(cluster), Producer(cluster)
        self._plain, self._committed = (
            Consumer(cluster, isolation_level=level) for level in ("read_uncommitted", "read_committed")
        )
        self._admin.create_topics([TopicSpec(name, len(PARTITIONS)) for name in ("access", "sessions")])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in (self._admin, self._producer, self._plain, self._committed):
            client.close()

    def put(self, portion: dict[TopicPartition, Block]) -> None:
        """Append records, and wait until they are there."""
        for partition, block in portion.items():
            self._producer.send_block(partition, block)
        self._producer.flush()

    def is_done(self) -> bool:
        """Whether all that was put in is processed and committed."""
        ends = self._plain.end_offsets(PARTITIONS)
        found = self._admin.committed_offsets("visits", PARTITIONS)
        return {p: found[p].offset for p in found} == {p: end for p, end in ends.items() if end}

    def owners(self) -> dict[int, str]:
        """Return the member that has each partition; {} while partitions change hands."""
        group = self._admin.describe_group("visits")
        owners = {
            partition.partition: member.member_id
            for member in group.members
            for partition in decode_assignment(member.assignment).partitions
        }
        return owners if group.state == "Stable" and len(owners) == len(PARTITIONS) else {}

    def open_transactions(self) -> list[int]:
        """Return the partitions of sessions that have records which nobody may see yet."""
        ends, stable = (consumer.end_offsets(OUTPUTS) for consumer in (self._plain, self._committed))
        return [partition.partition for partition in OUTPUTS if stable[partition] < ends[partition]]

    def is_held(self) -> bool:
        """Whether a transaction stays open though all but one worker go on."""
        held = set(self.open_transactions())
        for _ in range(LOOKS):
            held &= set(self.open_transactions())
            if not held:
                return False
        return True

    def sessions(self) -> dict[int, list[Row]]:
        """Return the topic of sessions, by partition."""
        self._committed.assign(OUTPUTS)
        self._committed.seek_to_beginning()
        ends = self._committed.end_offsets(OUTPUTS)
        result: dict[int, list[Row]] = {partition.partition: [] for partition in OUTPUTS}

        def has_all() -> bool:
            for record in self._committed.poll(100):
                result[record.partition].append(Row(record.key, record.value, record.timestamp_ms))
            return all(self._committed.position(partition) >= ends[partition] for partition in OUTPUTS)

        until(has_all, "the end of all partitions of sessions")
        return result


# --- the show -----------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks processes up in /proc")
@pytest.mark.slow
def test_sessions_of_three_workers_of_which_one_is_killed_are_those_of_one_run(
    servers: str, log: Path, single_run: dict[int, list[Row]], tmp_path: Path
):
    """Killed in an open transaction: each update is there once, and in its place."""
    with Feed(servers) as feed, started(servers, tmp_path) as run:
        until(lambda: len(set(feed.owners().values())) == WORKERS, "a share for each worker")
        rest = portions(log)
        for portion in islice(rest, 12):
            feed.put(portion)
        until(feed.is_done, "the first part of the log")

        victim = workers_of(run)[1]
        while True:
            # Stopped in its open transaction, unless that is over by now.
            feed.put(next(rest))
            until(lambda: feed.is_done() or bool(feed.open_transactions()), "an open transaction")
            os.kill(victim, signal.SIGSTOP)
            if feed.is_held():
                break
            os.kill(victim, signal.SIGCONT)
        os.kill(victim, signal.SIGKILL)
        run.line_with("was killed by SIGKILL; another one takes its place")
        for portion in rest:
            feed.put(portion)
        until(feed.is_done, "all of the log")
        until(lambda: not feed.open_transactions(), "the end of what the killed worker left open")
        assert victim not in workers_of(run)
        run.stop()

        assert feed.sessions() == single_run
