"""Schedules, which group the tasks of a thread into stages (sets of tasks processed together) and end them.

A thread uses a schedule to process its stages.  ``LiveSchedule`` is for live applications, whose inputs do not end;
``runtime.plan.bounded`` has the schedule for bounded runs.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from attrs import frozen

from streams.core.blocks.records import TopicPartition
from streams.runtime.tasks.stage import InStep, Stage
from streams.runtime.tasks.task import Task

ThreadStage: TypeAlias = Stage[Task]


class ThreadOperations(Protocol):
    """The operations of a stream thread that a schedule requires to end tasks."""

    def send(self, stage: ThreadStage, task: Task) -> bool:
        """Send the outputs of a task, and return whether tasks of the same stage read some of these outputs."""
        ...

    def flush(self) -> None:
        """Wait until all sent records are acknowledged."""
        ...

    def try_commit(self, tasks: Sequence[Task]) -> bool:
        """Commit tasks; return False if the commit must be retried later."""
        ...


class Schedule(Protocol):
    """Groups the tasks of a thread into stages, and ends stages whose inputs have ended."""

    @property
    def is_finite(self) -> bool:
        """Whether inputs may end, in which case the thread checks for ended inputs in each iteration of its loop."""
        ...

    def stages(self, tasks: Iterable[Task]) -> list[ThreadStage]:
        """Group the tasks of a thread into stages."""
        ...

    def note_end(self, task: Task, partition: TopicPartition) -> bool:
        """Set the end offset of a task input; return whether the schedule, not the consumer, determines this offset."""
        ...

    def end(self, stages: Iterable[ThreadStage], operations: ThreadOperations) -> None:
        """End the tasks that have processed all their input."""
        ...


@frozen
class LiveSchedule:
    """The schedule of live runs: one stage per task, or per sub-topology that writes to a repartition topic."""

    is_finite: bool = False

    def stages(self, tasks: Iterable[Task]) -> list[ThreadStage]:
        result: list[ThreadStage] = []
        in_step: dict[int, list[Task]] = {}
        for task in tasks:
            if task.regroups:
                in_step.setdefault(task.task_id.sub_topology, []).append(task)
            else:
                result.append(Stage([task]))
        return [*result, *(Stage(group, InStep()) for group in in_step.values())]

    def note_end(self, task: Task, partition: TopicPartition) -> bool:
        """Return False, because in a live run the consumer determines the end offset."""
        return False

    def end(self, stages: Iterable[ThreadStage], operations: ThreadOperations) -> None:
        """Do nothing, because live tasks end only when they are closed."""
