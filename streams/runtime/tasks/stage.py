"""Stages: tasks that are processed together; a stage chooses the task that processes the next records.

A driver (thread, bounded run, replay, test driver) processes its tasks through stages.  The driver adds blocks of
records, calls ``step``, and sends the outputs of the task that ``step`` returns.  A policy decides how many records are
processed at once, and for which records a stage waits.  Tasks that exchange no records are separate stages; a cycle of
sub-topologies is one stage.  The module is pure: it reads no clock and performs no I/O.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Generic, Protocol, TypeVar

from attrs import define, field

from streams.core.blocks.records import Block, TaskId, TopicPartition
from streams.runtime.tasks.order import lowest_head
from streams.runtime.tasks.queues import PartitionQueue, TaskQueues
from streams.runtime.tasks.rounds import Rounds
from streams.runtime.tasks.sources import TaskInput

#: Maximum number of records in one run; bounds the delay of other tasks, of punctuations and of commits.
RUN_LIMIT = 10_000
#: Maximum number of records in one run with ``InStep``; bounds the differences between the stream times of tasks.
STEP_LIMIT = 256
#: Time for which ``InStep`` waits for records that are in the log of another task but not fetched yet.
PATIENCE_MS = 1_000


class StageTask(Protocol):
    """The interface through which a stage uses its tasks."""

    @property
    def task_id(self) -> TaskId:
        """The task id; between equal head timestamps, the task with the lower id has precedence."""
        ...

    @property
    def inputs(self) -> Mapping[TopicPartition, TaskInput]:
        """The input partitions of the task."""
        ...

    @property
    def queues(self) -> TaskQueues:
        """The records buffered for the task's inputs."""
        ...

    @property
    def is_initialized(self) -> bool:
        """Whether the task's stores are restored, so that it may process records."""
        ...

    def add(self, partition: TopicPartition, block: Block) -> None:
        """Buffer a block of records from one of the task's input partitions."""
        ...

    def process(self, now_ms: int, limit: int, queue: PartitionQueue | None = None) -> int:
        """Process consecutive records, only from ``queue`` if it is given; return the number of records processed."""
        ...

    def prepare_commit(self) -> None:
        """Forward the results of open batches and the changes buffered in the record cache, before a commit."""
        ...

    def finish_calls(self) -> None:
        """Wait for all pending calls to async functions, and forward their results."""
        ...

    def final_flush(self) -> None:
        """Forward the results buffered by operators; only the first call has an effect."""
        ...


T = TypeVar("T", bound=StageTask)

_task_id: Callable[[StageTask], TaskId] = attrgetter("task_id")
_head_ms: Callable[[tuple[int, Any]], int] = itemgetter(0)


def _by_task_id(tasks: Iterable[T]) -> list[T]:
    return sorted(tasks, key=_task_id)


class Policy(Protocol):
    """The order in which a stage processes records.

    By default, the order is that of head timestamps, and the stage does not wait for records.
    """

    #: Maximum number of records of one run.
    limit: int

    def must_wait(self, tasks: Sequence[StageTask], head_ms: int, monotonic_ms: int) -> bool:
        """Return whether to wait for a record earlier than ``head_ms``, which is the lowest head timestamp."""
        return False

    def queue_of(self, task: StageTask) -> PartitionQueue | None:
        """Return the queue from which a task processes next, or None for the queue with the lowest head timestamp."""
        return None

    def on_filled(self, queue: PartitionQueue) -> None:
        """React to records that were added to ``queue``, which was empty."""
        return

    def on_processed(self, queue: PartitionQueue) -> None:
        """React to the processing of records from ``queue``, which ``queue_of`` has returned."""
        return


@define(eq=False)
class AsTheyCome(Policy):
    """A policy that processes buffered records without waiting for others."""

    limit: int = RUN_LIMIT


@define(eq=False)
class InStep(Policy):
    """A policy that limits differences in stream time between tasks whose outputs are merged in a repartition topic.

    The outputs of each task are in order, but a downstream task reads the outputs of all of them.  If one task runs
    ahead by the records of a single fetch, the records of the other tasks are late downstream.  So the policy waits,
    for at most ``PATIENCE_MS``, for a task that has no buffered records but whose log has records.  It does not wait
    for tasks on other threads or in other processes.
    """

    limit: int = STEP_LIMIT
    _waiting_since_ms: int | None = None

    def must_wait(self, tasks: Sequence[StageTask], head_ms: int, monotonic_ms: int) -> bool:
        """Return whether a task may have an earlier record that is not fetched yet."""
        queues = (task.queues for task in tasks if task.is_initialized)
        if all(each.stream_time_ms >= head_ms or each.size or each.is_caught_up for each in queues):
            self._waiting_since_ms = None
            return False
        if self._waiting_since_ms is None:
            self._waiting_since_ms = monotonic_ms
        return monotonic_ms - self._waiting_since_ms < PATIENCE_MS


@define(eq=False)
class WhenCertain(Policy):
    """A policy for inputs that end: a record is processed alone, and only when no earlier record can arrive."""

    limit: int = 1

    def must_wait(self, tasks: Sequence[StageTask], head_ms: int, monotonic_ms: int) -> bool:
        """Return whether the next record of any input is not fetched yet."""
        return not all(task.is_initialized and task.queues.is_certain for task in tasks)


@define(eq=False)
class Stage(Generic[T]):
    """Tasks that are processed together; ``rounds`` stops a cycle that would never end."""

    tasks: list[T] = field(converter=_by_task_id)
    policy: Policy = field(factory=AsTheyCome)
    rounds: Rounds = field(factory=lambda: Rounds(0))
    #: Number of records processed by the last step.
    count: int = 0
    #: Whether the stage has buffered records, but awaits an earlier one.
    is_waiting: bool = False
    #: Whether a task must not process records now, because it is too far ahead of the tasks of other threads.
    holds: Callable[[T], bool] | None = None
    #: The reading task of each partition to which the stage itself writes.
    loops: dict[TopicPartition, T] = field(init=False)
    #: Tasks with records that may not be processed until another input of the task has records.
    _blocked: set[TaskId] = field(factory=set)
    #: Number of records processed since the rounds were last counted.
    _uncounted: int = 0

    def __attrs_post_init__(self) -> None:
        self.loops = {queue.partition: task for task in self.tasks for queue in task.queues if queue.is_loop}

    def take_in(self, task: T) -> None:
        """Add a newly opened task to the stage."""
        self.tasks = [*self.tasks, task]

    def add(self, task: T, partition: TopicPartition, block: Block) -> None:
        queue = task.queues[partition]
        was_empty = not queue.size
        task.add(partition, block)
        if was_empty and queue.size:
            self.policy.on_filled(queue)

    def step(self, now_ms: int, monotonic_ms: int = 0) -> T | None:
        """Let the next task process records, and return this task, or None if nothing may be processed now.

        The driver must send the outputs of the task before it calls ``step`` again.

        Raises:
            ProcessingError: user code failed or a record cannot be deserialized, and the handler returned "fail".
            TopologyError: a cycle exceeds the maximum number of rounds, or grows endlessly.
        """
        if self._uncounted:
            counted = self._uncounted
            self._uncounted = 0
            self.rounds.note(counted, self._lag, self._topics)
        while (task := self._next(monotonic_ms)) is not None:
            queue = self.policy.queue_of(task)
            count = task.process(now_ms, self.policy.limit, queue)
            if count:
                if queue is not None:
                    self.policy.on_processed(queue)
                self.count = self._uncounted = count
                return task
            self._blocked.add(task.task_id)
        self._blocked.clear()
        return None

    @property
    def has_short_runs(self) -> bool:
        """Whether each step processes few records, so that the outputs of several steps should be sent together."""
        return self.policy.limit < RUN_LIMIT

    def flush(self, *, is_final: bool) -> None:
        """Finish async calls, process open batches and flush the record caches.

        With ``is_final``, the results that operators buffer are forwarded too; only the first such call forwards them.
        """
        for task in self.tasks:
            task.finish_calls()
            if is_final:
                task.final_flush()
            task.prepare_commit()

    @property
    def is_ended(self) -> bool:
        """Whether all inputs have ended and all records are processed, including those that the stage itself wrote."""
        return all(task.queues.is_drained for task in self.tasks)

    def _next(self, monotonic_ms: int) -> T | None:
        """Return the task with the lowest head, and note in ``is_waiting`` whether a record must be awaited first."""
        heads: list[tuple[int, T]] = []
        is_held = False
        for task in self.tasks:
            if task.is_initialized and task.task_id not in self._blocked:
                head_ms = task.queues.head_ms
                if head_ms is not None and self.holds is not None and self.holds(task):
                    is_held = True
                elif head_ms is not None:
                    heads.append((head_ms, task))
                elif task.queues.has_failed:
                    return task  # Processing raises its failure.
        head = lowest_head(heads, _head_ms)
        if head is None:
            self.is_waiting = is_held
            return None
        self.is_waiting = self.policy.must_wait(self.tasks, head[0], monotonic_ms)
        return None if self.is_waiting else head[1]

    def _lag(self) -> int:
        """Return the number of unprocessed records, or 0 until all inputs from outside of the stage have ended."""
        queues = [queue for task in self.tasks for queue in task.queues]
        if any(not queue.is_loop and not queue.is_ended for queue in queues):
            return 0
        return sum(queue.lag for queue in queues)

    def _topics(self) -> set[str]:
        """Return the topics that the stage both writes and reads or, if unknown, the topics of buffered records."""
        if self.loops:
            return {task.inputs[partition].topic for partition, task in self.loops.items()}
        return {task.inputs[queue.partition].topic for task in self.tasks for queue in task.queues if queue.size}
