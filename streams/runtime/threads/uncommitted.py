"""The size of the uncommitted state of all tasks of a thread.

The thread commits early when the size exceeds a bound (KIP-892).  The total is updated for one task at a time, since
adding up the sizes of a thousand tasks would cost more than the processing.  The module is pure.
"""

from collections.abc import Iterable

from attrs import define, field

from streams.core.blocks.records import TaskId


@define(eq=False)
class UncommittedState:
    """The size of the uncommitted state of all tasks of a thread; ``max_bytes`` is its bound."""

    max_bytes: int
    _bytes: int = 0
    _of: dict[TaskId, int] = field(factory=dict)

    def note(self, task_id: TaskId, uncommitted_bytes: int) -> bool:
        """Set the uncommitted bytes of a task; return whether the sum exceeds the bound."""
        self._bytes += uncommitted_bytes - self._of.get(task_id, 0)
        self._of[task_id] = uncommitted_bytes
        return self._bytes > self.max_bytes

    def forget(self, task_ids: Iterable[TaskId]) -> None:
        """Remove the sizes of tasks that have been committed or closed."""
        for task_id in task_ids:
            self._bytes -= self._of.pop(task_id, 0)
