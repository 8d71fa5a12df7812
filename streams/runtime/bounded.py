"""What a bounded run knows: which inputs have ended, and when all is done.

Shared by the threads of the run.  A source topic ends when its reader says so, and with it the lane
that holds its records where tasks write to it too; any other lane when the task that writes it has
ended.  The lanes within a cycle of sub-topologies end together, when nothing is left in any of them.
"""

import threading
from collections.abc import Callable, Iterable, Sequence

from attrs import define, field

from streams.core.records import TaskId, TopicPartition
from streams.core.threads import Signal, SystemSignal
from streams.runtime.plan import ApplicationPlan
from streams.runtime.rounds import Rounds
from streams.runtime.task import Task, TaskInput


@define(eq=False)
class BoundedProgress:
    """Ends of inputs and tasks.  ``end_offset`` asks the broker for the end of a partition."""

    plan: ApplicationPlan
    end_offset: Callable[[TopicPartition], int]
    final_flush: bool = False
    #: Set when every task has ended, or the run must stop.
    done: Signal = field(factory=SystemSignal)
    _ended_topics: set[str] = field(factory=set)
    _ended_tasks: set[TaskId] = field(factory=set)
    #: Tasks of cycles that have nothing buffered, with their positions.
    _quiet: dict[TaskId, dict[TopicPartition, int]] = field(factory=dict)
    _lock: threading.Lock = field(factory=threading.Lock)
    _cycles: dict[int, tuple[int, ...]] = field(init=False)
    #: By cycle.
    _rounds: dict[tuple[int, ...], Rounds] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._cycles = self.plan.cycles()
        self._rounds = {cycle: Rounds(self.plan.config.max_cycle_rounds) for cycle in self._cycles.values()}

    def end_topic(self, topic: str) -> None:
        """State that nothing more will come from outside to a source topic."""
        with self._lock:
            self._ended_topics.add(topic)

    def cycle_of(self, task_id: TaskId) -> tuple[int, ...] | None:
        """Return the sub-topologies of the cycle that a task belongs to, None if to none."""
        return self._cycles.get(task_id.sub_topology)

    def is_settled(self, task: Task) -> bool:
        """Whether a task of a cycle has at hand all that could come before its next record.

        What is behind the head of a queue cannot come before it; a queue that is full is not read
        further, so it must not be waited for.
        """
        for queue in task.queues:
            if queue.size:
                continue
            if queue.is_loop:
                if (queue.fetched or 0) < self.end_offset(queue.partition):
                    return False
            elif not (queue.is_ended and queue.is_caught_up):
                return False
        return True

    def note_rounds(self, cycle: tuple[int, ...], tasks: Sequence[Task], processed: int) -> None:
        """Take note of records that the tasks of a cycle, all on one thread, have processed.

        Raises:
            TopologyError: the records go round without end.
        """
        queues = [queue for task in tasks for queue in task.queues]

        def left() -> int:
            if any(not queue.is_loop and not queue.is_ended for queue in queues):
                return 0
            return sum(self.end_offset(queue.partition) - (queue.position or 0) for queue in queues)

        def topics() -> set[str]:
            return {
                item.topic for task in tasks for item in task.inputs.values() if task.queues[item.partition].is_loop
            }

        self._rounds[cycle].note(processed, left, topics)

    def is_loop(self, task_id: TaskId, item: TaskInput) -> bool:
        """Whether an input is a lane that is written within the cycle which its reader belongs to."""
        producer = self.plan.producer_of(item.topic, item.partition)
        return producer is not None and producer.sub_topology in self._cycles.get(task_id.sub_topology, ())

    def end_of(self, task_id: TaskId, topic: str, partition: TopicPartition) -> int | None:
        """Return where an input ends for good, None while it may grow."""
        with self._lock:
            producer = self.plan.producer_of(topic, partition)
            if producer is None:
                is_ended = topic in self._ended_topics
            else:
                is_ended = producer in self._ended_tasks
        return self.end_offset(partition) if is_ended else None

    def report(self, task: Task, partitions: Iterable[TopicPartition]) -> bool:
        """Take note of how far a task came, all its outputs sent; return whether it has ended now."""
        task_id = task.task_id
        cycle = self._cycles.get(task_id.sub_topology)
        with self._lock:
            if task_id in self._ended_tasks:
                return True
            if cycle is None:
                return task.queues.is_ended
            if task.queues.size:
                self._quiet.pop(task_id, None)
                return False
            self._quiet[task_id] = task.positions()
            members = [other for other in self.plan.groups if other.sub_topology in cycle]
            if any(other not in self._quiet for other in members):
                return False
            return all(self._is_at_end(other) for other in members)

    def _is_at_end(self, task_id: TaskId) -> bool:
        positions = self._quiet[task_id]
        for item in self.plan.inputs(task_id):
            producer = self.plan.producer_of(item.topic, item.partition)
            if not self.is_loop(task_id, item):
                ended = item.topic in self._ended_topics if producer is None else producer in self._ended_tasks
                if not ended:
                    return False
            if positions.get(item.partition, 0) < self.end_offset(item.partition):
                return False
        return True

    def end_task(self, task_id: TaskId) -> None:
        """State that a task has processed and committed everything it will ever see."""
        with self._lock:
            self._ended_tasks.add(task_id)
            if len(self._ended_tasks) == len(self.plan.groups):
                self.done.set()

    def has_ended(self, task_id: TaskId) -> bool:
        """Whether a task has ended."""
        return task_id in self._ended_tasks
