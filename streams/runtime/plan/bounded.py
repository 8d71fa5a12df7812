"""Bounded runs: when their inputs, their tasks and the run itself end.

``BoundedProgress`` is shared by the threads of the run.  A source topic ends when its reader reports the end.  Some
topics are divided into lanes; a lane contains the records of one producer.  If tasks also write to a source topic, the
lane for its external records ends with the topic.  Any other lane ends with the task that writes it.  The lanes within
a cycle of sub-topologies end together, when all of them are empty: such a cycle is one stage, on one thread.
"""

import threading
from collections.abc import Callable, Iterable

from attrs import define, field, frozen

from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.concurrency.threads import Signal, SystemSignal
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.tasks.rounds import Rounds
from streams.runtime.tasks.schedule import ThreadOperations, ThreadStage
from streams.runtime.tasks.sources import TaskInput
from streams.runtime.tasks.stage import Stage, WhenCertain
from streams.runtime.tasks.task import Task


@define(eq=False)
class BoundedProgress:
    """The inputs and tasks of a bounded run that have ended.

    ``end_offset`` returns the log end offset of a partition.
    """

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
        """Mark a source topic as ended: no more external records follow."""
        with self._lock:
            self._ended_topics.add(topic)

    def cycle_of(self, task_id: TaskId) -> tuple[int, ...] | None:
        """Return the sub-topologies in the cycle of a task, or None if it is in no cycle."""
        return self._cycles.get(task_id.sub_topology)

    def members(self, cycle: tuple[int, ...]) -> int:
        """Return the number of tasks in a cycle of sub-topologies."""
        return sum(task_id.sub_topology in cycle for task_id in self.plan.groups)

    def is_loop(self, task_id: TaskId, item: TaskInput) -> bool:
        """Return whether an input is written by one task that is in the same cycle as the reading task ``task_id``."""
        producer = self.plan.producer_of(item.topic, item.partition)
        return producer is not None and producer.sub_topology in self._cycles.get(task_id.sub_topology, ())

    def is_ended(self, topic: str, partition: TopicPartition) -> bool:
        """Return whether an input has ended, so that its end offset is final."""
        with self._lock:
            producer = self.plan.producer_of(topic, partition)
            return topic in self._ended_topics if producer is None else producer in self._ended_tasks

    def end_task(self, task_id: TaskId) -> None:
        """Mark a task as ended: it has processed all its input and committed its offsets."""
        with self._lock:
            self._ended_tasks.add(task_id)
            if len(self._ended_tasks) == len(self.plan.groups):
                self.done.set()

    def has_ended(self, task_id: TaskId) -> bool:
        """Return whether a task has ended."""
        return task_id in self._ended_tasks


@frozen
class BoundedSchedule:
    """The schedule of a thread in a bounded run; implements ``runtime.schedule.Schedule``."""

    progress: BoundedProgress
    is_finite: bool = True

    def stages(self, tasks: Iterable[Task]) -> list[ThreadStage]:
        """Return the stages of a thread's tasks; a cycle is one stage once all its tasks are open."""
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
        """Set the end offset of a task input, if the input has ended or is written by the stage of the task."""
        progress = self.progress
        is_ended = progress.is_ended(task.inputs[partition].topic, partition)
        if not is_ended and not task.queues[partition].is_loop:
            return False
        task.note_end(partition, progress.end_offset(partition), is_ended=is_ended)
        return True

    def end(self, stages: Iterable[ThreadStage], operations: ThreadOperations) -> None:
        """End the stages whose inputs have ended, once all records are processed, flushed and committed."""
        for stage in stages:
            if not all(task.is_initialized and not self.progress.has_ended(task.task_id) for task in stage.tasks):
                continue
            if stage.loops:
                operations.flush()
                for partition, task in stage.loops.items():
                    self.note_end(task, partition)
            if not stage.is_ended:
                continue
            stage.flush(is_final=self.progress.final_flush)
            has_more = False
            for task in stage.tasks:
                has_more |= operations.send(stage, task)
            if not has_more and operations.try_commit(stage.tasks):
                for task in stage.tasks:
                    self.progress.end_task(task.task_id)
