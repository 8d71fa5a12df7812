"""Three processes share the sessions of an access log, one is killed at work: the topic is that of a single run."""

import gzip
import os
import signal
import sys
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self

import pytest

from streams.bounded import run_bounded
from streams.clients import Admin, Consumer, Producer
from streams.clients.tcp import TcpCluster
from streams.core.blocks.records import Block, TopicPartition
from streams.files import open_input
from streams.group.assignment.subscriptions import decode_assignment
from streams.protocol.messages import TopicSpec
from tests.kafka.processes import Started, streams_broker
from tests.waiting import until

LOG = Path(__file__).parents[3] / "shared" / "data" / "apache_access.log.gz"
EXAMPLE = "topology_examples.02_sessions"
FILE = Path(__file__).parents[2] / "topology_examples" / "02_sessions.py"
PARTITIONS = [TopicPartition("access", number) for number in range(4)]
OUTPUTS = [TopicPartition("sessions", number) for number in range(4)]
WORKERS = 3
#: Records that are fed in one go, and in each attempt to kill a worker, of which there may have to be many.
PORTION, FEW = 250, 25
#: The shortest that a Kafka allows as it comes.
SESSION_MS = 6_000

SETTINGS = {
    "application_id": "visits",
    "processing_guarantee": "exactly_once_v2",
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


def records_of(log: Path) -> Iterator[tuple[int, list[Any]]]:
    """Return the records of the log with their partitions, by key, as Kafka's producers choose them."""
    # The offsets of a file's blocks are row numbers.
    return (
        (number, row)
        for batch in open_input(example.access, log)(len(PARTITIONS), 0)
        for _, number, row in sorted(
            (offset, number, row)
            for number, block in batch
            for offset, *row in zip(block.offsets, block.keys, block.values, block.timestamps, strict=True)
        )
    )


def portion(records: Iterator[tuple[int, list[Any]]], count: int) -> dict[TopicPartition, Block]:
    """Return the next records; {} at the end."""
    found = list(islice(records, count))
    return {
        partition: Block(*map(list, zip(*rows, strict=True)))
        for partition in PARTITIONS
        if (rows := [row for number, row in found if number == partition.partition])
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


def workers_of(run: Started) -> dict[str, int]:
    """Return the processes that it has started, by the names of their folders."""
    pid = run.process.pid
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            command = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # It has ended meanwhile.
        if "--state-dir" in command:
            found[Path(command[command.index("--state-dir") + 1]).name] = int(child)
    return found


def client_of(folder: Path, worker: str) -> str:
    """Return what the client IDs of a worker begin with."""
    (path,) = (folder / "state" / worker).rglob(".process")
    return f"visits-{path.read_text()[:8]}-"


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

    def is_done(self, numbers: Collection[int] = range(len(PARTITIONS))) -> bool:
        """Whether all that was put in, or into these partitions, is processed and committed."""
        partitions = [PARTITIONS[number] for number in numbers]
        ends = self._plain.end_offsets(partitions)
        found = self._admin.committed_offsets("visits", partitions)
        return {p: found[p].offset for p in found} == {p: end for p, end in ends.items() if end}

    def owners(self) -> dict[int, str]:
        """Return the client ID of the member that has each partition; {} while partitions change hands."""
        group = self._admin.describe_group("visits")
        owners = {
            partition.partition: member.client_id
            for member in group.members
            for partition in decode_assignment(member.assignment).partitions
        }
        return owners if group.state == "Stable" and len(owners) == len(PARTITIONS) else {}

    def open_transactions(self) -> set[int]:
        """Return the partitions of sessions that have records which a reader of committed ones does not see yet."""
        ends, stable = (consumer.end_offsets(OUTPUTS) for consumer in (self._plain, self._committed))
        return {partition.partition for partition in OUTPUTS if stable[partition] < ends[partition]}

    def sessions(self, *, with_aborted: bool = False) -> dict[int, list[Row]]:
        """Return the topic of sessions up to the first open transaction, by partition."""
        consumer = self._plain if with_aborted else self._committed
        consumer.assign(OUTPUTS)
        consumer.seek_to_beginning()
        ends = self._committed.end_offsets(OUTPUTS)
        result: dict[int, list[Row]] = {partition.partition: [] for partition in OUTPUTS}

        def has_all() -> bool:
            return all(consumer.position(partition) >= ends[partition] for partition in OUTPUTS)

        def turn() -> None:
            for record in consumer.poll(100):
                if record.offset < ends[OUTPUTS[record.partition]]:
                    result[record.partition].append(Row(record.key, record.value, record.timestamp_ms))

        until(has_all, turn, lambda: "the end of all partitions of sessions")
        return result

    def aborted(self) -> int:
        """Return the number of sessions' records that were aborted."""
        written, committed = (self.sessions(with_aborted=given) for given in (True, False))
        return sum(map(len, written.values())) - sum(map(len, committed.values()))


# --- the show -----------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks processes up in /proc")
@pytest.mark.slow
def test_sessions_of_three_workers_of_which_one_is_killed_are_those_of_one_run(
    servers: str, log: Path, single_run: dict[int, list[Row]], tmp_path: Path
):
    """Killed in an open transaction, of which there are aborted records: each update is there once, and in its place.

    A worker that has sent its commit when it is stopped is not killed in a transaction; then the next one is.
    """
    with Feed(servers) as feed, started(servers, tmp_path) as run:
        until(lambda: len(set(feed.owners().values())) == WORKERS, seen=lambda: "a share for each worker")
        records = records_of(log)
        for _ in range(12):
            feed.put(portion(records, PORTION))
        until(feed.is_done, seen=lambda: "the first part of the log")

        aborted = 0
        while not aborted:
            until(lambda: len(set(feed.owners().values())) == WORKERS, seen=lambda: "a share for each worker")
            victim = workers_of(run)["worker-2"]
            client = client_of(tmp_path, "worker-2")
            its_own = {number for number, owner in feed.owners().items() if owner.startswith(client)}
            few = portion(records, FEW)
            assert few, "no worker had an open transaction when it was stopped"
            feed.put(few)
            until(lambda: feed.is_done() or feed.open_transactions() & its_own, seen=lambda: "a transaction")  # noqa: B023
            os.kill(victim, signal.SIGSTOP)
            # The others end theirs.
            until(lambda: feed.is_done(set(range(len(PARTITIONS))) - its_own), seen=lambda: "the others")  # noqa: B023
            if not feed.open_transactions() & its_own:
                os.kill(victim, signal.SIGCONT)
                continue
            before = feed.aborted()
            os.kill(victim, signal.SIGKILL)
            until(lambda: workers_of(run).get("worker-2", victim) != victim, seen=lambda: run.said)  # noqa: B023
            until(feed.is_done, seen=lambda: "what the killed worker had")
            until(lambda: not feed.open_transactions(), seen=lambda: "the end of what the killed worker left open")
            aborted = feed.aborted() - before
        assert "worker 2 was killed by SIGKILL; another one takes its place" in run.said
        while more := portion(records, PORTION):
            feed.put(more)
        until(feed.is_done, seen=lambda: "all of the log")
        run.stop()

        assert feed.sessions() == single_run
