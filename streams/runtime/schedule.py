"""How a thread's tasks are grouped into stages, and whether their inputs end.

Between the thread's loop and its stages.  ``LiveSchedule`` is that of an application, whose inputs go on;
``runtime.bounded`` has that of a run over inputs that end.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from attrs import frozen

from streams.core.records import TopicPartition
from streams.runtime.stage import InStep, Stage
from streams.runtime.task import Task

ThreadStage: TypeAlias = Stage[Task]


class Effects(Protocol):
    """What a thread does for its stages."""

    def send(self, stage: ThreadStage, task: Task) -> bool:
        """Send a task's outputs; return whether the stage reads some of them itself."""
        ...

    def flush(self) -> None:
        """Wait until what was sent is acknowledged."""
        ...

    def try_commit(self, tasks: Sequence[Task]) -> bool:
        """Commit tasks; return whether it was accepted."""
        ...


class Schedule(Protocol):
    """What a thread asks about its tasks."""

    @property
    def is_finite(self) -> bool:
        """Whether inputs end: the thread has to look for that in each turn of its loop."""
        ...

    def stages(self, tasks: Iterable[Task]) -> list[ThreadStage]:
        """Return the stages of a thread that has these tasks."""
        ...

    def note_end(self, task: Task, partition: TopicPartition) -> bool:
        """Let a task know where an input ends, where the schedule knows it; return whether it does."""
        ...

    def end(self, stages: Iterable[ThreadStage], effects: Effects) -> None:
        """End the tasks that have processed all that there will ever be."""
        ...


@frozen
class LiveSchedule:
    """Tasks are stages of their own, but for those whose outputs meet in a repartition topic."""

    is_finite: bool = False

    def stages(self, tasks: Iterable[Task]) -> list[ThreadStage]:
        """Return the stages of a thread that has these tasks."""
        result: list[ThreadStage] = []
        in_step: dict[int, list[Task]] = {}
        for task in tasks:
            if task.regroups:
                in_step.setdefault(task.task_id.sub_topology, []).append(task)
            else:
                result.append(Stage([task]))
        return [*result, *(Stage(group, InStep()) for group in in_step.values())]

    def note_end(self, task: Task, partition: TopicPartition) -> bool:
        """Return False: only the consumer knows how far a log reaches."""
        return False

    def end(self, stages: Iterable[ThreadStage], effects: Effects) -> None:
        """Do nothing: no task ends by itself."""
