"""Stages: tasks that are processed together, one run at a time; a stage chooses the next task.

Between a driver (thread, bounded run, replay, test driver) and its tasks.  The driver adds blocks, asks for
steps, and sends what the task of each step has written; the stage chooses the task.  A policy says how many
records are processed at once and what is waited for.  Tasks that never meet are stages of their own; a cycle
of sub-topologies is one stage.  Pure: no clock, no I/O.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Generic, Protocol, TypeVar

from attrs import define, field

from streams.core.records import Block, TaskId, TopicPartition
from streams.runtime.order import lowest_head
from streams.runtime.queues import PartitionQueue, TaskQueues
from streams.runtime.rounds import Rounds
from streams.runtime.task import TaskInput

#: Maximum number of records of one run; bounds the delay of other tasks and of the clock.
RUN_LIMIT = 10_000
#: The same for tasks kept in step; bounds their lead over each other.
STEP_LIMIT = 256
#: How long tasks in step wait for records that the log of another one has and the consumer has not fetched.
PATIENCE_MS = 1_000


class StageTask(Protocol):
    """The interface of a task for its stage."""

    @property
    def task_id(self) -> TaskId:
        """Decides ties: the lower one is next."""
        ...

    @property
    def inputs(self) -> Mapping[TopicPartition, TaskInput]:
        """The inputs of the task."""
        ...

    @property
    def queues(self) -> TaskQueues:
        """The buffered records of its inputs."""
        ...

    @property
    def is_initialized(self) -> bool:
        """Whether its stores are restored."""
        ...

    def add(self, partition: TopicPartition, block: Block) -> None:
        """Buffer a block of an input."""
        ...

    def process(self, now_ms: int, limit: int, queue: PartitionQueue | None = None) -> int:
        """Process a run, of one queue if it is given; return the number of records."""
        ...

    def flush_caches(self) -> None:
        """Forward what the record cache holds back."""
        ...

    def final_flush(self) -> None:
        """Forward what operators hold back, once."""
        ...


T = TypeVar("T", bound=StageTask)

_task_id: Callable[[StageTask], TaskId] = attrgetter("task_id")
_head_ms: Callable[[tuple[int, Any]], int] = itemgetter(0)


def _by_task_id(tasks: Iterable[T]) -> list[T]:
    return sorted(tasks, key=_task_id)


class Policy(Protocol):
    """The order in which a stage takes records: by default as they come."""

    #: Maximum number of records of one run.
    limit: int

    def must_wait(self, tasks: Sequence[StageTask], head_ms: int, monotonic_ms: int) -> bool:
        """Whether an earlier record than that of the lowest head is still awaited."""
        return False

    def queue_of(self, task: StageTask) -> PartitionQueue | None:
        """Return the queue that a task's next run is taken from; None: by the lowest head."""
        return None

    def on_filled(self, queue: PartitionQueue) -> None:
        """An empty queue has got records."""
        return

    def on_processed(self, queue: PartitionQueue) -> None:
        """The run of a queue was processed that ``queue_of`` has returned."""
        return


@define(eq=False)
class AsTheyCome(Policy):
    """Buffered records are processed without waiting."""

    limit: int = RUN_LIMIT


@define(eq=False)
class InStep(Policy):
    """Tasks whose outputs meet again in a repartition topic are kept in step by event time.

    Each of their outputs is in order, but one task reads what all of them have written: a task that runs
    ahead by what one fetch brings makes the records of the others late there.  So a task without records,
    whose log has some, is waited for, but not longer than ``PATIENCE_MS``.  Tasks of other threads and
    processes are not waited for.
    """

    limit: int = STEP_LIMIT
    _waiting_since_ms: int | None = None

    def must_wait(self, tasks: Sequence[StageTask], head_ms: int, monotonic_ms: int) -> bool:
        """Whether a task may have an earlier record that is not fetched yet."""
        queues = (task.queues for task in tasks if task.is_initialized)
        if all(each.stream_time_ms >= head_ms or each.size or each.is_caught_up for each in queues):
            self._waiting_since_ms = None
            return False
        if self._waiting_since_ms is None:
            self._waiting_since_ms = monotonic_ms
        return monotonic_ms - self._waiting_since_ms < PATIENCE_MS


@define(eq=False)
class WhenCertain(Policy):
    """One record at a time, once no earlier one can come: the order of inputs that end."""

    limit: int = 1

    def must_wait(self, tasks: Sequence[StageTask], head_ms: int, monotonic_ms: int) -> bool:
        """Whether the next record of any input is not known yet."""
        return not all(task.is_initialized and task.queues.is_certain for task in tasks)


@define(eq=False)
class Stage(Generic[T]):
    """Tasks that are processed together; ``rounds`` ends a cycle that would not end by itself."""

    tasks: list[T] = field(converter=_by_task_id)
    policy: Policy = field(factory=AsTheyCome)
    rounds: Rounds = field(factory=lambda: Rounds(0))
    #: Records processed by the last step.
    count: int = 0
    #: Whether there are records, but an earlier one is awaited.
    is_waiting: bool = False
    #: The reading task of each partition that the stage writes itself.
    loops: dict[TopicPartition, T] = field(init=False)
    #: Tasks with records that wait for another of their own inputs.
    _blocked: set[TaskId] = field(factory=set)
    #: Records processed since the rounds were counted: the outputs of the last step count too.
    _uncounted: int = 0

    def __attrs_post_init__(self) -> None:
        self.loops = {queue.partition: task for task in self.tasks for queue in task.queues if queue.is_loop}

    def take_in(self, task: T) -> None:
        """Add a task to the stage."""
        self.tasks = [*self.tasks, task]

    def add(self, task: T, partition: TopicPartition, block: Block) -> None:
        """Buffer a block of one of the inputs of a task."""
        queue = task.queues[partition]
        was_empty = not queue.size
        task.add(partition, block)
        if was_empty and queue.size:
            self.policy.on_filled(queue)

    def step(self, now_ms: int, monotonic_ms: int = 0) -> T | None:
        """Process a run of the task that is next; return that task, None if nothing can be processed now.

        The driver sends the task's outputs before it asks for the next step.

        Raises:
            ProcessingError: user code failed, or a record could not be read, and the handler is fail.
            TopologyError: records go round a cycle too often.
        """
        if self._uncounted:
            counted, self._uncounted = self._uncounted, 0
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
        """Return whether the outputs of several steps should be sent together."""
        return self.policy.limit < RUN_LIMIT

    def flush(self, *, is_final: bool) -> None:
        """Flush the tasks' record caches; if final, also forward buffered results of operators, once."""
        for task in self.tasks:
            if is_final:
                task.final_flush()
            task.flush_caches()

    @property
    def is_ended(self) -> bool:
        """Return whether all inputs have ended and all records are processed, including those of loops."""
        return all(task.queues.is_drained for task in self.tasks)

    def _next(self, monotonic_ms: int) -> T | None:
        heads: list[tuple[int, T]] = []
        for task in self.tasks:
            if task.is_initialized and task.task_id not in self._blocked:
                head_ms = task.queues.head_ms
                if head_ms is not None:
                    heads.append((head_ms, task))
                elif task.queues.has_failed:
                    return task  # To raise its failure.
        head = lowest_head(heads, _head_ms)
        self.is_waiting = head is not None and self.policy.must_wait(self.tasks, head[0], monotonic_ms)
        return None if head is None or self.is_waiting else head[1]

    def _lag(self) -> int:
        """Return the number of records that the stage has to process, 0 while its inputs go on."""
        queues = [queue for task in self.tasks for queue in task.queues]
        if any(not queue.is_loop and not queue.is_ended for queue in queues):
            return 0
        return sum(queue.lag for queue in queues)

    def _topics(self) -> set[str]:
        """Return the topics that the stage writes itself; where that is not known, those with records."""
        if self.loops:
            return {task.inputs[partition].topic for partition, task in self.loops.items()}
        return {task.inputs[queue.partition].topic for task in self.tasks for queue in task.queues if queue.size}
