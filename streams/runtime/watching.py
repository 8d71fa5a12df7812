"""The interface of an observer of tasks."""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from streams.runtime.task import Task


class TaskWatch(Protocol):
    """Observes tasks, for example to trace their records."""

    def opened(self, task: "Task") -> None:
        """Handle the opening of a task, whose program is bound but whose processors may not be initialized yet."""
        ...

    def store(self, task: "Task", node: str, name: str, view: Any) -> Any:
        """Return the store view that a node uses: ``view``, or a wrapper that observes calls of its methods."""
        ...
