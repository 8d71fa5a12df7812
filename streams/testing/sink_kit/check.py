"""Runs the sink kit: at each step, one worker fails, and another one continues."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import Any, Literal

from attrs import define, evolve, field

from streams.broker import EmbeddedBroker
from streams.clients import Producer
from streams.connect import Guarantee, SinkConnector
from streams.core.topic import Topic
from streams.testing.sink_kit.contract import NAME, check_ends, check_positions
from streams.testing.sink_kit.faults import SinkFault, SinkStep
from streams.testing.sink_kit.judgement import Judge, SinkKitError, SinkReport
from streams.testing.sink_kit.victims import Work, ended_as_meant, faulty_worker, killed_here, run_victim
from streams.testing.victims import Processes, Waiting

#: The topic that is written if none is given.
NUMBERS = Topic("sink-kit", key=str, value=int)
_PARTITIONS = 3
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
    if by not in ("exception", "process"):
        raise ValueError(f"by is 'exception' or 'process', not {by!r}")
    make_record = record or (_keyed if is_keyed else _numbered)
    guarantee = check_ends(make)
    judge = Judge(guarantee, is_keyed or guarantee is Guarantee.IDEMPOTENT, seed)
    judge.judge(read(), "before any record")
    with EmbeddedBroker() as broker, ExitStack() as stack:
        broker.create_topic(topic.name, _PARTITIONS)
        producer = stack.enter_context(Producer(broker))
        processes = None
        servers = ""
        if by == "process":
            servers = stack.enter_context(broker.serve("127.0.0.1:0")).bootstrap_servers
            processes = stack.enter_context(Processes(SinkKitError))
        run = _Run(make, topic, make_record, judge, broker, producer, Random(seed), processes, servers=servers)
        for step in SinkStep:
            if (step in _OF_PROCESSES) if processes else (step is not SinkStep.WITHIN_COMMIT):
                for _ in range(kills):
                    run.fail(step)
                run.drain(step)
                judge.judge(read(), f"after {kills} faults {step}")
        check_positions(make, topic, make_record(0))
        judge.judge(read(), "after a block without records, and one that was aborted")
        return SinkReport(guarantee, run.faults, len(judge.records), judge.duplicates, run.fenced)


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
    _servers: str = field(kw_only=True)
    faults: dict[str, int] = field(factory=dict, init=False)
    fenced: int = field(default=0, init=False)

    def fail(self, step: SinkStep) -> None:
        """Run a worker that fails at a step."""
        self._produce()
        opening = "open" in step
        fault = SinkFault(
            step, 1 if opening else self._rng.randint(1, 4), self._rng.uniform(0, 1.5), self._processes is not None
        )
        work = Work(self._make, self._topic, NAME, fault, self._rng.randint(3, 20))
        if self._processes is not None:
            self._processes.killed(partial(run_victim, work, self._servers), step, self._produce)
        elif step is SinkStep.REASSIGNED:
            self._reassign(work)
        else:
            sink = killed_here(self._broker, work, self._produce)
            if step.is_takeover and not sink.was_locked:
                self._check_fence(was_fenced=sink.was_fenced)
        self.faults[step] = self.faults.get(step, 0) + 1

    def drain(self, step: SinkStep) -> None:
        """Run a worker without faults until it has written the remaining records."""
        self._produce()
        never = Work(self._make, self._topic, NAME, SinkFault(step, _NEVER, 0), 1_000)
        worker, sink = faulty_worker(self._broker, never)
        worker.start()
        _WAITING.until(
            lambda: not worker.is_running or (len(sink.partitions) == _PARTITIONS and worker.progress.lag == 0),
            f"the worker after the faults {step}",
        )
        try:
            worker.close()
        except Exception as error:
            raise SinkKitError(
                f"the worker after the faults {step} has ended with {type(error).__name__}: {error}"
            ) from error

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

    def _reassign(self, work: Work) -> None:
        """Let a second worker join the group, and kill the first one before a commit, while both own partitions."""
        first, sink = faulty_worker(self._broker, work)
        sink.is_armed = False
        never = evolve(work.fault, occurrence=_NEVER)
        second, other = faulty_worker(self._broker, evolve(work, fault=never))
        first.start()
        _WAITING.until(lambda: not first.is_running or bool(sink.partitions), "the first worker")
        second.start()

        def is_shared() -> bool:
            parts = (len(sink.partitions), len(other.partitions))
            return not (first.is_running and second.is_running) or (min(parts) > 0 and sum(parts) == _PARTITIONS)

        _WAITING.until(is_shared, "the rebalance", self._produce)
        sink.is_armed = True
        self._produce()
        _WAITING.until(lambda: not (first.is_running and second.is_running), "the first worker", self._produce)
        _WAITING.until(
            lambda: not second.is_running or (len(other.partitions) == _PARTITIONS and second.progress.lag == 0),
            "the second worker",
        )
        ended_as_meant(first, sink)
        ended_as_meant(second, other)
