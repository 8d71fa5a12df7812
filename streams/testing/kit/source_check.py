"""Runs the source kit: at each step, one worker fails, and another one goes on."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from random import Random
from typing import Any, Final, Literal

from attrs import define, field, frozen

from streams.broker import EmbeddedBroker
from streams.clients import Consumer, TcpCluster
from streams.connect import SourceConnector, SourceWorker
from streams.core.blocks.records import TopicPartition
from streams.core.errors import ConfigError, StreamsError
from streams.core.topic import Topic
from streams.protocol.transport import Cluster
from streams.testing.kit.source_faults import FaultyCluster, FaultySource, SourceFault, SourceStep
from streams.testing.kit.victims import PARTITIONS, Waiting, check_closing, close_worker, differences, victims

#: The topic that is written if none is given.
NUMBERS: Final = Topic("source-kit", key=str, value=int)
_NAME: Final = "source-kit"
#: Times that the system gets something new before each fault.
_ADDED: Final = 5


class SourceKitError(StreamsError, AssertionError):
    """A source is not exactly once; the message has the step, the seed, and the records."""


@frozen
class SourceReport:
    """The counts of a passed check of a source: ``faults`` by step, and the records in the topic."""

    faults: Mapping[str, int]
    records: int


def check(
    make: Callable[[], SourceConnector[Any, Any]],
    add: Callable[[int], Iterable[tuple[Any, Any]]],
    *,
    topic: Topic[Any, Any] = NUMBERS,
    kills: int = 20,
    seed: int = 0,
    by: Literal["exception", "process"] = "exception",
) -> SourceReport:
    """Kill workers of a source at each step, and compare the records of the topic with those of the system.

    Workers write a topic of an embedded broker.  At each ``SourceStep`` they fail ``kills`` times, and others go on;
    then the committed records are compared: each is there once, and those of a key are in their order.
    ``by="exception"`` ends workers in threads of this process, and makes transient errors.  ``by="process"`` ends
    processes with SIGKILL, also before and within a commit; ``make`` and ``topic`` are sent by
    cloudpickle, and the classes of the topic belong to a module that can be imported.

    The system is empty at first, and belongs to the kit.

    - ``make``: returns a new source; each worker calls it at its start.
    - ``add``: adds something to the system, and returns the records that it becomes, as (key, value); it gets the
      numbers 0, 1, 2 and so on.
    - ``topic``: the topic; by default its keys are str and its values int.
    - ``kills``: the number of faults at each step.
    - ``seed``: determines the occurrences of steps.

    Raises:
        SourceKitError: records are missing, duplicated or in another order, a worker ended with another error, or
            ``is_retriable`` returns True for errors that do not pass.
        ValueError: ``by`` is neither.
    """
    with ExitStack() as stack:
        broker, processes = stack.enter_context(victims(topic, by, SourceKitError))
        consumer = stack.enter_context(Consumer(broker, isolation_level="read_committed", enable_auto_commit=False))
        partitions = [TopicPartition(topic.name, number) for number in range(PARTITIONS)]
        consumer.assign(partitions, [topic])
        consumer.seek_to_beginning(partitions)
        run = _Run(make, add, topic, broker, consumer, Random(seed), seed)
        check_closing(make(), ("close", "close"), [ConfigError("a setting is wrong")], SourceKitError)
        for step in SourceStep:
            if step.is_error if processes is not None else step.is_of_commit:
                continue
            for _ in range(kills):
                if processes is not None:
                    work = partial(_run_victim, make, topic, run.fault(step, is_process=True), processes.servers)
                    run.more()
                    processes.killed(work, step, run.more)
                else:
                    run.fail(step)
                run.faults[step] = run.faults.get(step, 0) + 1
            run.judge(f"after {kills} faults {step}")
        return SourceReport(run.faults, len(run.expected))


def _worker(cluster: Cluster, topic: Topic[Any, Any], source: SourceConnector[Any, Any]) -> SourceWorker[Any, Any]:
    return SourceWorker(cluster, topic, source, name=_NAME, poll_ms=20, retry_backoff_ms=1)


def _run_victim(
    make: Callable[[], SourceConnector[Any, Any]], topic: Topic[Any, Any], fault: SourceFault, servers: str
) -> None:
    """Run a worker in this process, until its fault kills it."""
    _worker(FaultyCluster(TcpCluster(servers), fault), topic, FaultySource(make(), fault)).run()


@define(eq=False)
class _Run:
    """The run over all steps."""

    _make: Callable[[], SourceConnector[Any, Any]]
    _add: Callable[[int], Iterable[tuple[Any, Any]]]
    _topic: Topic[Any, Any]
    _broker: EmbeddedBroker
    _consumer: Consumer
    _rng: Random
    _seed: int
    faults: dict[str, int] = field(factory=dict, init=False)
    expected: list[tuple[Any, Any]] = field(factory=list, init=False)
    _records: list[tuple[Any, Any]] = field(factory=list, init=False)
    _added: int = field(default=0, init=False)

    def more(self) -> None:
        """Add something to the system."""
        for _ in range(_ADDED):
            self.expected += self._add(self._added)
            self._added += 1

    def fault(self, step: SourceStep, *, is_process: bool = False) -> SourceFault:
        """Return a fault at a step, at an occurrence that is drawn."""
        occurrence = 1 if "open" in step else self._rng.randint(1, 2)
        return SourceFault(step, occurrence, is_process, delay_ms=self._rng.randint(0, 12))

    def fail(self, step: SourceStep) -> None:
        """Run a worker in a thread that fails at a step, until it has ended or gone on after an error."""
        self.more()
        fault = self.fault(step)
        worker = _worker(self._broker, self._topic, FaultySource(self._make(), fault))
        worker.start()
        Waiting(SourceKitError).until(
            lambda: not worker.is_running or (fault.has_happened and step.is_error),
            f"the worker that is to fail {step}",
            self.more,
        )
        try:
            close_worker(worker, f"{step}: the worker", SourceKitError)
        except SourceKitError:
            if step.is_error or not fault.has_happened:
                raise

    def judge(self, when: str) -> None:
        """Run a worker without faults until all records are in the topic, and compare them.

        Raises:
            SourceKitError: records are missing, duplicated or in another order.
        """
        self.more()
        worker = _worker(self._broker, self._topic, self._make())
        worker.start()
        with suppress(SourceKitError):  # What is missing says more.
            Waiting(SourceKitError).until(lambda: not worker.is_running or self._has_all(), f"the worker {when}")
        close_worker(worker, f"the worker {when}", SourceKitError)
        self._has_all()
        self._compare(when)

    def _has_all(self) -> bool:
        self._records += [(record.key, record.value) for record in self._consumer.poll(0)]
        return len(self._records) >= len(self.expected)

    def _compare(self, when: str) -> None:
        problems = differences(Counter(map(repr, self.expected)), Counter(map(repr, self._records)), "records", str)
        if not problems and _by_key(self._records) != _by_key(self.expected):
            problems = ["records of a key are in another order"]
        if problems:
            raise SourceKitError(
                f"the source is not exactly once, {when}: {'; '.join(problems)} ({len(self.expected)} records, "
                f"seed={self._seed})"
            )


def _by_key(records: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    """Return the values of each key in their order; records without a key have none."""
    values: dict[Any, list[Any]] = {}
    for key, value in records:
        if key is not None:
            values.setdefault(key, []).append(value)
    return values
