"""What a thread does in a bounded run beside its usual turns: cycles as one stage, and the end of tasks.

Between the thread's loop and the progress of the run.  See ``runtime.bounded`` and ``runtime.lanes``.
"""

from collections.abc import Callable, Mapping, Sequence

from attrs import define, field

from streams.core.records import TaskId, TopicPartition
from streams.runtime.bounded import BoundedProgress
from streams.runtime.committing import Committer
from streams.runtime.restore import Restorer
from streams.runtime.task import Task

#: Records of one stage in a turn, at most.
_STAGE_LIMIT = 10_000


@define(eq=False)
class BoundedTurns:
    """The part of one thread in a bounded run; ``commit`` says whether it was taken."""

    _bounded: BoundedProgress
    _tasks: Mapping[TaskId, Task]
    _committer: Committer
    _restorer: Restorer
    _commit: Callable[[Sequence[Task]], bool]
    #: Tasks whose final flush is done.
    _flushed: set[TaskId] = field(factory=set)

    def is_in_cycle(self, task: Task) -> bool:
        """Whether a task is processed with others of its cycle."""
        return self._bounded.cycle_of(task.task_id) is not None

    def process_cycles(self, now: int) -> int:
        """Process the tasks of each cycle as one stage: always the lowest head over all of them.

        What a record sends around the cycle is taken in before the next one is chosen.
        """
        total = 0
        stages: dict[tuple[int, ...], list[Task]] = {}
        for task in self._tasks.values():
            cycle = self._bounded.cycle_of(task.task_id)
            if cycle is not None:
                stages.setdefault(cycle, []).append(task)
        for stage, tasks in stages.items():
            if any(self._restorer.is_restoring(task.task_id) for task in tasks):
                continue
            processed = self._process_cycle(tasks, now)
            self._bounded.note_rounds(stage, tasks, processed)
            total += processed
        return total

    def _process_cycle(self, tasks: Sequence[Task], now: int) -> int:
        loops = {queue.partition for task in tasks for queue in task.queues if queue.is_loop}
        for task in tasks:
            if not self._bounded.is_settled(task):
                return 0
        for total in range(_STAGE_LIMIT):
            heads = [(task.queues.head_ms, task.task_id, task) for task in tasks if task.queues.size]
            if not heads:
                return total
            task = min(heads)[2]
            if not task.process(now, 1):
                return total
            if self._committer.send(task) & loops:
                self._make_visible()
                return total + 1
            if not self._bounded.is_settled(task):
                return total + 1
        return _STAGE_LIMIT

    def _make_visible(self) -> None:
        """Let readers see what was sent."""
        if self._committer.is_exactly_once:
            self._commit(list(self._tasks.values()))
        else:
            self._committer.flush()

    def end_tasks(self) -> None:
        """End the tasks that have processed all that there will ever be."""
        for task in list(self._tasks.values()):
            if self._bounded.has_ended(task.task_id) or self._restorer.is_restoring(task.task_id):
                continue
            self._committer.flush()
            if not self._bounded.report(task, task.inputs):
                continue
            stage = self._stage_of(task)
            for member in stage:
                if self._bounded.final_flush and member.task_id not in self._flushed:
                    self._flushed.add(member.task_id)
                    member.final_flush()
            if self._gives_out(stage):
                continue
            if self._commit(stage):
                for member in stage:
                    self._bounded.end_task(member.task_id)

    def _stage_of(self, task: Task) -> list[Task]:
        """Return the tasks that end together with this one: those of its cycle."""
        cycle = self._bounded.cycle_of(task.task_id)
        if cycle is None:
            return [task]
        return [other for other in self._tasks.values() if self._bounded.cycle_of(other.task_id) == cycle]

    def _gives_out(self, stage: Sequence[Task]) -> bool:
        """Send what caches and final flushes give out; return whether the stage has to go on with it."""
        loops = {queue.partition for task in stage for queue in task.queues if queue.is_loop}
        sent: set[TopicPartition] = set()
        for task in stage:
            task.flush_caches()
            sent |= self._committer.send(task)
        if not sent & loops:
            return False
        self._make_visible()
        return True
