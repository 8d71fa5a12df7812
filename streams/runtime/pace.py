"""Poll timeouts of a thread, and idle iterations in which tasks need no check.

An iteration of the loop checks every task.  With a thousand tasks these checks cost more than the work itself, so
after an iteration without work the tasks are not checked until records arrive or work is due.
"""

from collections.abc import Callable, Mapping, Sequence

from attrs import define

from streams.core.clock import Clock
from streams.core.config import StreamsConfig
from streams.core.records import TaskId
from streams.runtime.restore import Restorer
from streams.runtime.schedule import ThreadStage
from streams.runtime.task import Task

#: Poll timeout for inputs that may end without a record.
_END_POLL_MS = 5
#: Poll timeout if the log is known to have records.
_FETCH_POLL_MS = 5
_FOR_EVER_MS = 1 << 62


@define(eq=False)
class Pace:
    """The poll timeouts of one thread."""

    _config: StreamsConfig
    _clock: Clock
    _tasks: Mapping[TaskId, Task]
    _restorer: Restorer
    _stages: Callable[[], Sequence[ThreadStage]]
    #: Whether inputs may end; no record indicates that an input has ended.
    _is_finite: bool
    #: Wall-clock time before which nothing is due, or None if the tasks must be checked.
    _rest_until_ms: int | None = None

    def timeout_ms(self, next_commit_ms: int, *, is_paused: bool) -> int:
        """Return the timeout of the next poll in milliseconds."""
        if self._rest_until_ms is not None:
            return max(0, min(self._config.poll_ms, self._rest_until_ms - self._clock.now_ms()))
        if any(stage.is_waiting for stage in self._stages()):
            return _FETCH_POLL_MS
        if not self._restorer.is_idle or (not is_paused and self._has_records):
            return 0
        return _END_POLL_MS if self._is_finite else min(self._config.poll_ms, self._until_due_ms(next_commit_ms))

    @property
    def is_resting(self) -> bool:
        """Return whether no task has work unless records have arrived."""
        return self._rest_until_ms is not None and self._clock.now_ms() < self._rest_until_ms

    def wake(self) -> None:
        """Have the tasks checked in the next iteration."""
        self._rest_until_ms = None

    def rest(self, next_commit_ms: int) -> None:
        """Skip the tasks until records arrive or work is due, after an iteration without work."""
        is_waiting = any(stage.is_waiting for stage in self._stages())
        if not self._is_finite and self._restorer.is_idle and not is_waiting and not self._has_records:
            self._rest_until_ms = self._clock.now_ms() + self._until_due_ms(next_commit_ms)

    @property
    def _has_records(self) -> bool:
        """Return whether a task has records that do not wait for those of another input (``max_task_idle_ms``)."""
        queues = (task.queues for task in self._tasks.values())
        return any(each.size and each.next_deadline_ms() is None for each in queues)

    def _until_due_ms(self, next_commit_ms: int) -> int:
        """Return the time in milliseconds until work is due even without new records."""
        now, tasks = self._clock.now_ms(), self._tasks.values()
        waits = [at_ms - now for task in tasks if (at_ms := task.next_deadline_ms()) is not None]
        # The commit interval does not matter without pending changes.
        if any(task.is_dirty for task in tasks):
            waits.append(next_commit_ms - self._clock.monotonic_ms())
        return max(0, min(waits, default=_FOR_EVER_MS))
