"""Event time in step over processes: workers and instances give what a run over files gives, also when one is killed.

All processes begin paused and go on when each has its share of the tasks, or the first one could do everything.
"""

import json
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import pytest
from attrs import evolve, field, frozen

from streams import Admin, Consumer, EmbeddedBroker, Producer, Streams, TopicPartition
from streams.protocol.messages import TopicSpec
from tests.bench.live_and_file import APPLICATION, CASES, Case, Figures, Output, blocks, from_files
from tests.kafka import paused_member
from tests.kafka.processes import Started
from tests.waiting import until
from tests.web.test_waiting import tasks_with, told

EXACTLY_ONCE = "exactly_once_v2"
AT_LEAST_ONCE = "at_least_once"


#: The shortest that a Kafka allows as it comes.
SESSION_MS = 6_000
SHORT = {"session_timeout_ms": SESSION_MS, "transaction_timeout_ms": SESSION_MS}


def expected_of(case: Case) -> Figures:
    """Return what the bounded run gives."""
    with TemporaryDirectory() as folder:
        return from_files(case, Path(folder))


@frozen
class Members:
    """One application: processes that begin paused, what they say, and what goes in and comes out."""

    servers: str
    folder: Path
    #: The name of the topology in ``paused_member``.
    topology: str
    settings: Mapping[str, Any]
    started: list[Started] = field(factory=list)
    _stack: ExitStack = field(factory=ExitStack)

    @classmethod
    def of(cls, servers: str, folder: Path, case: Case, topology: str, **settings: Any) -> Self:
        """Write the input of a case to new topics."""
        settings = {
            "application_id": APPLICATION,
            "commit_interval_ms": 100,
            "heartbeat_interval_ms": 300,
            "poll_ms": 10,
            **settings,
        }
        with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
            admin.create_topics([TopicSpec("results", 1), *(TopicSpec(each.name, 4) for each in case.inputs)])
            for topic, rows in case.inputs.items():
                for number, block in blocks(topic, rows).items():
                    producer.send_block(TopicPartition(topic.name, number), block)
        return cls(servers, folder, topology, settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, *, workers: int = 1, with_signal: str = "") -> Started:
        """Start one more instance, of several processes if it has workers."""
        command = [sys.executable, "-m", "streams", "run", f"{paused_member.__file__}:{self.topology}"]
        command += ["--bootstrap-servers", self.servers, "--workers", str(workers)]
        command += [f"--set={name}={value}" for name, value in self.settings.items()]
        variables = {paused_member.FOLDER: str(self.folder)}
        if with_signal:
            variables[paused_member.SIGNAL] = with_signal
        said = self.folder / f"said-{len(self.started)}.log"
        process = self._stack.enter_context(Started(command, said, {**os.environ, **variables}))
        self.started.append(process)
        return process

    def start_here(self) -> Streams:
        """Start one more instance in this process; it begins paused, too."""
        live = Streams(getattr(paused_member, self.topology), bootstrap_servers=self.servers, **self.settings)
        live.pause()
        return self._stack.enter_context(live)

    def go(self) -> None:
        """Let all processes go on, also those that are started later."""
        (self.folder / "go").touch()

    def reports(self) -> dict[str, dict[str, Any]]:
        """Return the newest report of each process."""
        return {path.stem: json.loads(path.read_text()) for path in self.folder.glob("*.json")}

    def tasks(self) -> list[list[str]]:
        """Return the tasks of each process."""
        return [report["tasks"] for report in self.reports().values()]

    def total(self, name: str) -> int:
        """Return the sum of a number over all processes."""
        return int(sum(report[name] for report in self.reports().values()))

    def spread(self, processes: int, *here: Streams) -> list[list[str]]:
        """Wait until so many processes have equal shares of the eight tasks, and return the tasks of each."""

        def now() -> list[list[str]]:
            return [*(sorted(map(str, each.tasks())) for each in here), *self.tasks()]

        until(lambda: sorted(map(len, now())) == [8 // processes] * processes, seen=lambda: [now(), self.said()])
        return now()

    def said(self) -> list[str]:
        """Return what the processes have said."""
        return [each.said for each in self.started]

    def stop(self) -> None:
        """End all processes as an operator does; their last commits are made."""
        for each in self.started:
            each.stop()

    def unread(self) -> int:
        """Return the number of offsets of inputs and repartition topics that are not committed."""
        client = {"bootstrap_servers": self.servers}
        with Admin(**client) as admin, Consumer(**client) as consumer:
            names = ("events", f"{APPLICATION}-by-repartition")
            partitions = [TopicPartition(name, number) for name in names for number in range(4)]
            offsets = admin.committed_offsets(APPLICATION, partitions)
            ends = consumer.end_offsets(partitions)
            return sum(end - (offsets[key].offset if key in offsets else 0) for key, end in ends.items())

    @property
    def is_exactly_once(self) -> bool:
        """Whether the guarantee is exactly-once."""
        return self.settings["processing_guarantee"] == EXACTLY_ONCE

    def has_all(self, expected: Output) -> bool:
        """Return whether all is processed; with transactions, offsets may stay before the last markers."""
        return self.results().total() >= expected.total() if self.is_exactly_once else self.unread() == 0

    def results(self) -> Output:
        """Return the committed results."""
        partition = TopicPartition("results", 0)
        rows: Output = Counter()
        client = {"bootstrap_servers": self.servers, "isolation_level": "read_committed"}
        with Consumer(**client) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning([partition])
            (end,) = consumer.end_offsets([partition]).values()
            while consumer.position(partition) < end:
                rows.update((record.key, record.value, record.timestamp_ms) for record in consumer.poll(100))
        return rows


@pytest.fixture(params=["served", pytest.param("kafka", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of an embedded broker, or of a real Kafka."""
    if request.param == "kafka":
        yield request.getfixturevalue("own_kafka").bootstrap_servers
        return
    with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0") as server:
        yield server.bootstrap_servers


@pytest.mark.slow
@pytest.mark.seeds(
    "case, workers, guarantee",
    [
        ("backlog", 2, EXACTLY_ONCE),
        ("game", 4, AT_LEAST_ONCE),
        ("backlog", 4, AT_LEAST_ONCE),
        ("game", 2, EXACTLY_ONCE),
        ("backlog", 4, EXACTLY_ONCE),
        ("game", 2, AT_LEAST_ONCE),
        ("backlog", 2, AT_LEAST_ONCE),
        ("game", 4, EXACTLY_ONCE),
    ],
)
def test_workers_give_what_a_file_gives(servers: str, case: str, workers: int, guarantee: str, tmp_path: Path) -> None:
    """All outputs are equal, and as many records are late."""
    expected = expected_of(CASES[case])
    settings = {"processing_guarantee": guarantee}
    with Members.of(servers, tmp_path, CASES[case], case, **settings) as members:
        members.start(workers=workers)
        tasks = members.spread(workers)
        members.go()
        until(lambda: members.total("processed") >= CASES[case].processed, seen=members.reports)

        assert members.tasks() == tasks
        assert members.total("dropped") == expected.dropped
        assert members.total("cut") == 0
        members.stop()
        assert members.results() == expected.output


#: At least once, a record may be counted again: there it is the highest values that must not change.
PROGRAMS = pytest.mark.seeds("topology, guarantee", [("grouped", EXACTLY_ONCE), ("peaks", AT_LEAST_ONCE)])


def expected_of_program(topology: str) -> Output:
    """Return what the bounded run gives for the backlog."""
    return expected_of(evolve(CASES["backlog"], topology=getattr(paused_member, topology))).output


def check_results(members: Members, expected: Output) -> None:
    """All outputs are those of the bounded run, at least once without repetitions.

    The value and the timestamp of a window only grow, so that equal sets have the same order.
    """
    results = members.results()
    if members.is_exactly_once:
        assert results == expected
    else:
        assert set(results) == set(expected)
        assert results >= expected


@pytest.mark.killed
@PROGRAMS
def test_a_process_that_is_killed_changes_nothing(servers: str, topology: str, guarantee: str, tmp_path: Path) -> None:
    """One of two instances kills itself in the middle of the backlog, and another one is started."""
    expected = expected_of_program(topology)
    settings = {"processing_guarantee": guarantee, **SHORT}
    with Members.of(servers, tmp_path, CASES["backlog"], topology, **settings) as members:
        live = members.start_here()
        first = members.start(with_signal="SIGKILL")
        tasks = members.spread(2, live)
        assert all(own[0] < "1" for own in tasks), tasks
        members.go()
        live.resume()
        assert first.process.wait() == -signal.SIGKILL
        assert members.unread()
        for path in tmp_path.glob("*.json"):
            path.unlink()
        members.start()
        members.spread(2, live)
        until(lambda: members.has_all(expected), seen=members.reports)

        assert live.metrics["repartition-wait-ended-total"] == 0
        check_results(members, expected)


@pytest.mark.killed
@PROGRAMS
def test_a_process_that_stops_for_longer_than_its_session_changes_nothing(
    servers: str, topology: str, guarantee: str, tmp_path: Path
) -> None:
    """The other instance has its tasks meanwhile; then it goes on with what it had in its hands."""
    expected = expected_of_program(topology)
    settings = {"processing_guarantee": guarantee, **SHORT}
    with Members.of(servers, tmp_path, CASES["backlog"], topology, **settings) as members:
        live = members.start_here()
        stopped = members.start(with_signal="SIGSTOP")
        tasks = members.spread(2, live)
        assert all(own[0] < "1" for own in tasks), tasks
        members.go()
        live.resume()
        until(lambda: len(live.tasks()) == 8, seen=live.tasks)
        until(lambda: members.has_all(expected), seen=live.tasks)
        assert live.metrics["repartition-wait-ended-total"] == 0

        stopped.process.send_signal(signal.SIGCONT)
        until(lambda: len(live.tasks()) == 4, seen=members.said)
        members.spread(2, live)
        until(lambda: members.has_all(expected), seen=members.said)
        members.stop()
        check_results(members, expected)


@pytest.mark.killed
def test_a_process_that_stops_for_longer_than_the_patience_is_not_waited_for(
    servers: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays a member.  The others say that they go on without its records, which are late when it comes back."""
    case = CASES["backlog"]
    settings = {"session_timeout_ms": 300_000, "repartition_patience_ms": 1_000}
    with (
        caplog.at_level(logging.WARNING, "streams.runtime.in_step.lane_waits"),
        Members.of(servers, tmp_path, case, "grouped", **settings) as members,
    ):
        live = members.start_here()
        stopped = members.start(with_signal="SIGSTOP")
        own, its = members.spread(2, live)
        assert own[0] < "1"
        assert its[0] < "1"
        members.go()
        live.resume()

        def passed_over() -> list[str]:
            return [row["task"] for row in tasks_with(live) if set(str(row["passed_over"]).split(", ")) & set(its)]

        until(passed_over, seen=lambda: tasks_with(live))
        (task, *_) = passed_over()
        assert any("not waited for" in told(live, task, f"g{number}") for number in range(7))
        assert live.metrics["repartition-wait-ended-total"] > 0
        stopped.process.send_signal(signal.SIGCONT)

        def processed() -> float:
            return members.total("processed") + live.metrics["process-total"]

        until(lambda: processed() == case.processed, seen=processed)
        dropped = members.total("dropped") + live.metrics["dropped-records-total"]
        members.stop()
        live.close()
        assert dropped + members.results().total() == case.processed / 2

    warnings = [record.getMessage() for record in caplog.records]
    assert any(f"task {task} has not moved for 1000 ms" in each for task in its for each in warnings), warnings
