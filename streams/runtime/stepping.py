"""Tasks whose outputs meet again in a repartition topic, kept in step by event time.

Between a thread and those of its tasks that regroup records.  Each of their outputs is in order,
but behind the repartition topic one task reads what all of them have written: a task that runs
ahead by what one fetch brings makes records late there.  So the one that is furthest behind is
always next, for a short run.  Tasks of other threads and processes are not waited for.  Pure: no
I/O.
"""

from collections.abc import Callable, Iterable

from attrs import define

from streams.runtime.task import Task

#: Records of one run, at most: how far a task gets ahead of the others.
STEP = 256
#: How long the others wait for records that the log has of a task and the consumer has not fetched.
PATIENCE_MS = 1_000


@define(eq=False)
class Stepper:
    """Chooses which task of a sub-topology is next on one thread."""

    #: Whether tasks have records which they hold until those of another task are fetched.
    is_waiting: bool = False
    #: Since when a task with an empty queue is behind the others, None if none is.
    _behind_since_ms: int | None = None

    def process(self, tasks: Iterable[Task], monotonic_ms: int, run: Callable[[Task, int], int]) -> int:
        """Process what tasks of one sub-topology have; return the number of records.

        ``run`` processes so many records of a task, at most, and returns their number.
        """
        tasks = list(tasks)
        total = 0
        while True:
            ready = [task for task in tasks if task.queues.size]
            if not ready:
                self.is_waiting = False
                return total
            task = min(ready, key=_head_of)
            self.is_waiting = self._must_wait(tasks, _head_of(task)[0], monotonic_ms)
            if self.is_waiting:
                return total
            count = run(task, STEP)
            if count:
                total += count
            else:
                # It waits for another of its own inputs; the others go on.
                tasks.remove(task)

    def _must_wait(self, tasks: Iterable[Task], head_ms: int, monotonic_ms: int) -> bool:
        """Whether a task may have records from before ``head_ms`` that are not here yet."""
        is_behind = any(
            not task.queues.size and task.queues.stream_time_ms < head_ms and not task.queues.is_caught_up
            for task in tasks
        )
        if not is_behind:
            self._behind_since_ms = None
            return False
        if self._behind_since_ms is None:
            self._behind_since_ms = monotonic_ms
        return monotonic_ms - self._behind_since_ms < PATIENCE_MS


def _head_of(task: Task) -> tuple[int, int]:
    head_ms = task.queues.head_ms
    assert head_ms is not None
    return head_ms, task.task_id.partition
