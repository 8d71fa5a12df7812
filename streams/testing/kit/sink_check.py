"""Runs the sink kit: at each step, one worker fails, and another one continues."""

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any, Literal

from attrs import define, evolve, field, frozen

from streams.broker import EmbeddedBroker
from streams.clients import Producer, TcpCluster
from streams.connect import Guarantee, SinkConnector, SinkWorker
from streams.core.topic import Topic
from streams.protocol.transport import Cluster
from streams.testing.kit.sink_contract import NAME, check_ends, check_positions
from streams.testing.kit.sink_faults import FaultySink, SinkFault, SinkStep
from streams.testing.kit.sink_rows import Judge, SinkKitError, SinkReport
from streams.testing.kit.victims import PARTITIONS, Processes, Waiting, close_worker, victims

#: The topic that is written if none is given.
NUMBERS = Topic("sink-kit", key=str, value=int)
_SESSION_MS = 1_000
#: Records before each fault.
_RECORDS = 40
_NEVER = 1 << 60
_WAITING = Waiting(SinkKitError)
#: Steps of a process that ends; the others leave it alive.
_OF_PROCESSES = (
    SinkStep.BEFORE_OPEN,
    SinkStep.AFTER_OPEN,
    SinkStep.BEFORE_WRITE,
    SinkStep.AFTER_WRITE,
    SinkStep.BEFORE_COMMIT,
    SinkStep.WITHIN_COMMIT,
    SinkStep.AFTER_COMMIT,
    SinkStep.BEFORE_ABORT,
    SinkStep.AFTER_ABORT,
)


def check(
    make: Callable[[], SinkConnector[Any, Any]],
    read: Callable[[], Iterable[Any]],
    *,
    topic: Topic[Any, Any] = NUMBERS,
    record: Callable[[int], tuple[Any, Any]] | None = None,
    is_keyed: bool = False,
    kills: int = 20,
    seed: int = 0,
    by: Literal["exception", "process"] = "exception",
) -> SinkReport:
    """Kill workers of a sink at each step, and check the rows of its target against its guarantee.

    Workers read a topic of an embedded broker.  At each ``SinkStep`` they fail ``kills`` times, and others go on;
    then the rows are compared with the records.  ``by="exception"`` ends workers in threads of this process, makes
    transient errors, replaces workers and lets a second one join.  ``by="process"`` ends processes with SIGKILL, also
    within a commit; it takes about two seconds a kill, and ``make`` is sent to the processes by cloudpickle.

    The target is empty at first, and belongs to the kit.  A sink that is exactly once has each record once; one that is
    idempotent, or with ``is_keyed``, has the last value of each key, and no tombstones; one that is at least once has
    each record, some more than once.

    - ``make``: returns a new sink for the target; each worker calls it at its start.
    - ``read``: returns the rows of the target as (key, value); they are hashable.
    - ``topic``: the topic; by default its keys are str and its values int.
    - ``record``: returns the record with a number, from 0, as (key, value); values differ.  By default there are 17
      keys, and with ``is_keyed`` every 7th value is None.
    - ``is_keyed``: whether the target has one row per key.
    - ``kills``: the number of faults at each step.
    - ``seed``: determines the sizes of batches and the occurrences of steps.

    Raises:
        SinkKitError: the rows are not those of the guarantee, an overtaken sink did not raise ``SinkFencedError``, a
            worker ended with another error, or a method does not do what the protocol says.
    """
    make_record = record or (_keyed if is_keyed else _numbered)
    guarantee = check_ends(make)
    judge = Judge(guarantee, is_keyed or guarantee is Guarantee.IDEMPOTENT, seed)
    judge.judge(read(), "before any record")
    with victims(topic, by, SinkKitError) as (broker, processes), Producer(broker) as producer:
        run = _Run(make, topic, make_record, judge, broker, producer, Random(seed), processes)
        for step in SinkStep:
            if (step in _OF_PROCESSES) if processes else (step is not SinkStep.WITHIN_COMMIT):
                for _ in range(kills):
                    run.fail(step)
                run.drain(step)
                judge.judge(read(), f"after {kills} faults {step}")
        check_positions(make, topic, make_record(0))
        judge.judge(read(), "after a block without records, and one that was aborted")
        return SinkReport(guarantee, run.faults, len(judge.records), judge.duplicates, run.fenced)


@frozen
class _Work:
    """The parameters of one run of a worker of the sink kit."""

    make: Callable[[], SinkConnector[Any, Any]]
    topic: Topic[Any, Any]
    name: str
    fault: SinkFault
    batch_records: int


def _faulty_worker(cluster: Cluster, work: _Work) -> tuple[SinkWorker[Any, Any], FaultySink]:
    """Return a worker with a ``FaultySink``, not started, and the sink."""
    sink = FaultySink(work.make(), work.fault, work.make)
    worker = SinkWorker(
        cluster,
        work.topic,
        sink,
        name=work.name,
        batch_records=work.batch_records,
        batch_ms=1,
        retry_backoff_ms=1,
        session_timeout_ms=_SESSION_MS,
    )
    return worker, sink


def _killed_here(broker: EmbeddedBroker, work: _Work, more: Callable[[], None]) -> FaultySink:
    """Run a worker in a thread until its fault has killed it, or until it has recovered from the fault."""
    worker, sink = _faulty_worker(broker, work)
    worker.start()

    def is_over() -> bool:
        return not worker.is_running or (
            sink.fault.has_happened and worker.progress.lag == 0 and not sink.fault.is_dead
        )

    def more_before() -> None:
        # A slow sink would never write all that comes.
        if not sink.fault.has_happened:
            more()

    _WAITING.until(is_over, f"the worker that is to fail {work.fault.step}", more_before)
    _ended_as_meant(worker, sink)
    return sink


def _ended_as_meant(worker: SinkWorker[Any, Any], sink: FaultySink) -> None:
    """Close a worker, and check that it has failed only if it was killed.

    Raises:
        SinkKitError: the worker was not killed, and has ended with an error.
    """
    try:
        close_worker(worker, f"{sink.fault.step}: the worker", SinkKitError)
    except SinkKitError:
        if not sink.fault.is_dead:
            raise


def _run_victim(work: _Work, bootstrap_servers: str) -> None:
    """Run a worker in this process, until its fault kills it."""
    worker, _ = _faulty_worker(TcpCluster(bootstrap_servers), work)
    worker.run()


def _numbered(number: int) -> tuple[str, int | None]:
    return f"key-{number % 17}", number


def _keyed(number: int) -> tuple[str, int | None]:
    return f"key-{number % 17}", None if number % 7 == 6 else number


@define(eq=False)
class _Run:
    """The run over all steps."""

    _make: Callable[[], SinkConnector[Any, Any]]
    _topic: Topic[Any, Any]
    _record: Callable[[int], tuple[Any, Any]]
    _judge: Judge
    _broker: EmbeddedBroker
    _producer: Producer
    _rng: Random
    _processes: Processes | None
    faults: dict[str, int] = field(factory=dict, init=False)
    fenced: int = field(default=0, init=False)

    def fail(self, step: SinkStep) -> None:
        """Run a worker that fails at a step."""
        self._produce()
        opening = "open" in step
        occurrence = 1 if opening else self._rng.randint(1, 4)
        fault = SinkFault(step, occurrence, self._processes is not None, fraction=self._rng.uniform(0, 1.5))
        work = _Work(self._make, self._topic, NAME, fault, self._rng.randint(3, 20))
        if self._processes is not None:
            self._processes.killed(partial(_run_victim, work, self._processes.servers), step, self._produce)
        elif step is SinkStep.REASSIGNED:
            self._reassign(work)
        else:
            sink = _killed_here(self._broker, work, self._produce)
            if step.is_takeover and not sink.was_locked:
                self._check_fence(was_fenced=sink.was_fenced)
        self.faults[step] = self.faults.get(step, 0) + 1

    def drain(self, step: SinkStep) -> None:
        """Run a worker without faults until it has written the remaining records."""
        self._produce()
        never = _Work(self._make, self._topic, NAME, SinkFault(step, _NEVER), 1_000)
        worker, sink = _faulty_worker(self._broker, never)
        worker.start()
        _WAITING.until(
            lambda: not worker.is_running or (len(sink.partitions) == PARTITIONS and worker.progress.lag == 0),
            f"the worker after the faults {step}",
        )
        close_worker(worker, f"the worker after the faults {step}", SinkKitError)

    def _produce(self) -> None:
        for _ in range(_RECORDS):
            key, value = self._record(len(self._judge.records))
            self._producer.send(self._topic, value, key=key)
            self._judge.records.append((key, value))
        self._producer.flush()

    def _check_fence(self, *, was_fenced: bool) -> None:
        if was_fenced:
            self.fenced += 1
        elif self._judge.guarantee is Guarantee.EXACTLY_ONCE:
            raise SinkKitError(
                "a sink committed blocks that another one of the same connector had committed since its open(): an "
                "exactly-once sink raises SinkFencedError, since the stored position is no longer its own"
            )

    def _reassign(self, work: _Work) -> None:
        """Let a second worker join the group, and kill the first one before a commit, while both own partitions."""
        first, sink = _faulty_worker(self._broker, work)
        sink.fault.is_armed = False
        never = evolve(work.fault, occurrence=_NEVER)
        second, other = _faulty_worker(self._broker, evolve(work, fault=never))
        first.start()
        _WAITING.until(lambda: not first.is_running or bool(sink.partitions), "the first worker")
        second.start()

        def is_shared() -> bool:
            parts = (len(sink.partitions), len(other.partitions))
            return not (first.is_running and second.is_running) or (min(parts) > 0 and sum(parts) == PARTITIONS)

        _WAITING.until(is_shared, "the rebalance", self._produce)
        sink.fault.is_armed = True
        self._produce()
        _WAITING.until(lambda: not (first.is_running and second.is_running), "the first worker", self._produce)
        _WAITING.until(
            lambda: not second.is_running or (len(other.partitions) == PARTITIONS and second.progress.lag == 0),
            "the second worker",
        )
        _ended_as_meant(first, sink)
        _ended_as_meant(second, other)
