"""How much state of a thread's tasks waits for a commit.

Between the tasks, each of which knows its own, and the thread, which commits early when there is too much
(KIP-892).  Kept up run by run: asking a thousand tasks after every run would cost more than the run.  Pure.
"""

from collections.abc import Iterable

from attrs import define, field

from streams.core.records import TaskId


@define(eq=False)
class WaitingState:
    """Bytes of state that wait for a commit, over all tasks of a thread; ``max_bytes`` is the thread's to set."""

    max_bytes: int
    _bytes: int = 0
    _of: dict[TaskId, int] = field(factory=dict)

    def note(self, task_id: TaskId, waiting_bytes: int) -> bool:
        """Say what of a task waits now; return whether all of it is too much."""
        self._bytes += waiting_bytes - self._of.get(task_id, 0)
        self._of[task_id] = waiting_bytes
        return self._bytes > self.max_bytes

    def forget(self, task_ids: Iterable[TaskId]) -> None:
        """Tasks were committed or closed."""
        for task_id in task_ids:
            self._bytes -= self._of.pop(task_id, 0)
