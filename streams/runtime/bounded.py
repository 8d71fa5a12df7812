"""Bounded runs: which inputs have ended, what a thread does about it, and when all is done.

``BoundedProgress`` is shared by the threads of the run.  A source topic ends when its reader says so, and
with it the lane of its records where tasks write to it too; any other lane ends with the task that writes
it.  The lanes within a cycle of sub-topologies end together, when nothing is left in any of them: such a
cycle is one stage, on one thread.
"""

import threading
from collections.abc import Callable, Iterable

from attrs import define, field, frozen

from streams.core.records import TaskId, TopicPartition
from streams.core.threads import Signal, SystemSignal
from streams.runtime.plan import ApplicationPlan
from streams.runtime.rounds import Rounds
from streams.runtime.schedule import Effects, ThreadStage
from streams.runtime.stage import Stage, WhenCertain
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
    _lock: threading.Lock = field(factory=threading.Lock)
    _cycles: dict[int, tuple[int, ...]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._cycles = self.plan.cycles()

    def end_topic(self, topic: str) -> None:
        """State that nothing more will come from outside to a source topic."""
        with self._lock:
            self._ended_topics.add(topic)

    def cycle_of(self, task_id: TaskId) -> tuple[int, ...] | None:
        """Return the sub-topologies of the cycle that a task belongs to, None if to none."""
        return self._cycles.get(task_id.sub_topology)

    def members(self, cycle: tuple[int, ...]) -> int:
        """Return the number of tasks that a cycle has."""
        return sum(task_id.sub_topology in cycle for task_id in self.plan.groups)

    def is_loop(self, task_id: TaskId, item: TaskInput) -> bool:
        """Whether an input is a lane that is written within the cycle which its reader belongs to."""
        producer = self.plan.producer_of(item.topic, item.partition)
        return producer is not None and producer.sub_topology in self._cycles.get(task_id.sub_topology, ())

    def is_ended(self, topic: str, partition: TopicPartition) -> bool:
        """Whether an input has ended: its end offset is its last."""
        with self._lock:
            producer = self.plan.producer_of(topic, partition)
            return topic in self._ended_topics if producer is None else producer in self._ended_tasks

    def end_task(self, task_id: TaskId) -> None:
        """State that a task has processed and committed everything it will ever read."""
        with self._lock:
            self._ended_tasks.add(task_id)
            if len(self._ended_tasks) == len(self.plan.groups):
                self.done.set()

    def has_ended(self, task_id: TaskId) -> bool:
        """Whether a task has ended."""
        return task_id in self._ended_tasks


@frozen
class BoundedSchedule:
    """Schedule of a thread in a bounded run; see ``runtime.schedule``."""

    progress: BoundedProgress
    is_finite: bool = True

    def stages(self, tasks: Iterable[Task]) -> list[ThreadStage]:
        """Return the stages of a thread that has these tasks; a cycle is one as soon as all its tasks are there."""
        result: list[ThreadStage] = []
        cycles: dict[tuple[int, ...], list[Task]] = {}
        for task in tasks:
            cycle = self.progress.cycle_of(task.task_id)
            if cycle is None:
                result.append(Stage([task]))
            else:
                cycles.setdefault(cycle, []).append(task)
        limit = self.progress.plan.config.max_cycle_rounds
        for cycle, members in cycles.items():
            if len(members) == self.progress.members(cycle):
                result.append(Stage(members, WhenCertain(), Rounds(limit)))
        return result

    def note_end(self, task: Task, partition: TopicPartition) -> bool:
        """Let a task know where an input ends for good, and how far one reaches that its own stage writes."""
        progress = self.progress
        is_ended = progress.is_ended(task.inputs[partition].topic, partition)
        if not is_ended and not task.queues[partition].is_loop:
            return False
        task.note_end(partition, progress.end_offset(partition), is_ended=is_ended)
        return True

    def end(self, stages: Iterable[ThreadStage], effects: Effects) -> None:
        """End the stages whose inputs have ended, when all is processed, flushed and committed."""
        for stage in stages:
            if not all(task.is_initialized and not self.progress.has_ended(task.task_id) for task in stage.tasks):
                continue
            if stage.loops:
                effects.flush()
                for partition, task in stage.loops.items():
                    self.note_end(task, partition)
            if not stage.is_ended:
                continue
            stage.flush(is_final=self.progress.final_flush)
            has_more = False
            for task in stage.tasks:
                has_more |= effects.send(stage, task)
            if not has_more and effects.try_commit(stage.tasks):
                for task in stage.tasks:
                    self.progress.end_task(task.task_id)
