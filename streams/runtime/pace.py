"""The poll timeouts of a thread, and idle iterations, in which the tasks are not checked.

An iteration of the loop checks every task.  With a thousand tasks these checks cost more than the processing, so after
an iteration without work the tasks are not checked until records arrive or work is due.
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
    #: Whether inputs may end; the end of an input is not signalled by a record.
    _is_finite: bool
    #: Wall-clock time in epoch milliseconds before which nothing is due, or None if the tasks must be checked.
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
        """Whether no task has work, unless records arrive."""
        return self._rest_until_ms is not None and self._clock.now_ms() < self._rest_until_ms

    def wake(self) -> None:
        """Check the tasks again in the next iteration."""
        self._rest_until_ms = None

    def rest(self, next_commit_ms: int) -> None:
        """After an iteration without work, skip the checks of tasks until records arrive or work is due."""
        is_waiting = any(stage.is_waiting for stage in self._stages())
        if not self._is_finite and self._restorer.is_idle and not is_waiting and not self._has_records:
            self._rest_until_ms = self._clock.now_ms() + self._until_due_ms(next_commit_ms)

    @property
    def _has_records(self) -> bool:
        """Whether a task has records to process that are not delayed by an empty input (``max_task_idle_ms``)."""
        queues = (task.queues for task in self._tasks.values())
        return any(each.size and each.next_deadline_ms() is None for each in queues)

    def _until_due_ms(self, next_commit_ms: int) -> int:
        """Return the milliseconds until work is due even if no record arrives."""
        now, tasks = self._clock.now_ms(), self._tasks.values()
        waits = [at_ms - now for task in tasks if (at_ms := task.next_deadline_ms()) is not None]
        # Without pending changes nothing must be committed.
        if any(task.is_dirty for task in tasks):
            waits.append(next_commit_ms - self._clock.monotonic_ms())
        return max(0, min(waits, default=_FOR_EVER_MS))
