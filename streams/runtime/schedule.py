"""Schedules: the grouping of a thread's tasks into stages, and the ends of their inputs.

Between the thread's loop and its stages.  ``LiveSchedule`` is for live applications, whose inputs do not end;
``runtime.bounded`` has the schedule of bounded runs.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from attrs import frozen

from streams.core.records import TopicPartition
from streams.runtime.stage import InStep, Stage
from streams.runtime.task import Task

ThreadStage: TypeAlias = Stage[Task]


class Effects(Protocol):
    """The effects that a thread performs for its stages."""

    def send(self, stage: ThreadStage, task: Task) -> bool:
        """Send a task's outputs; return whether the stage reads some of them itself."""
        ...

    def flush(self) -> None:
        """Wait until all sent records are acknowledged."""
        ...

    def try_commit(self, tasks: Sequence[Task]) -> bool:
        """Commit tasks; return whether it was accepted."""
        ...


class Schedule(Protocol):
    """The grouping of a thread's tasks, and their ends."""

    @property
    def is_finite(self) -> bool:
        """Whether inputs end, for which the thread has to check in each iteration of its loop."""
        ...

    def stages(self, tasks: Iterable[Task]) -> list[ThreadStage]:
        """Return the stages of a thread's tasks."""
        ...

    def note_end(self, task: Task, partition: TopicPartition) -> bool:
        """Set the end of a task's input, if the schedule knows it; return whether it does."""
        ...

    def end(self, stages: Iterable[ThreadStage], effects: Effects) -> None:
        """End the tasks that have processed all their input."""
        ...


@frozen
class LiveSchedule:
    """The schedule of live runs: one stage per task, except for tasks that write to a common repartition topic."""

    is_finite: bool = False

    def stages(self, tasks: Iterable[Task]) -> list[ThreadStage]:
        """Return the stages of a thread's tasks."""
        result: list[ThreadStage] = []
        in_step: dict[int, list[Task]] = {}
        for task in tasks:
            if task.regroups:
                in_step.setdefault(task.task_id.sub_topology, []).append(task)
            else:
                result.append(Stage([task]))
        return [*result, *(Stage(group, InStep()) for group in in_step.values())]

    def note_end(self, task: Task, partition: TopicPartition) -> bool:
        """Return False: only the consumer knows the end offset."""
        return False

    def end(self, stages: Iterable[ThreadStage], effects: Effects) -> None:
        """Do nothing: no task ends by itself."""
