"""How long a thread may wait for records, and when it need not look at its tasks.

Between the thread's loop and its tasks.  A turn looks at every task: of a thousand that takes longer than
what is to be done.  After a turn that found nothing, the tasks are left alone until something arrives or is
due.
"""

from collections.abc import Callable, Mapping, Sequence

from attrs import define

from streams.core.clock import Clock
from streams.core.config import StreamsConfig
from streams.core.records import TaskId
from streams.runtime.restore import Restorer
from streams.runtime.schedule import ThreadStage
from streams.runtime.task import Task

#: Wait for inputs that may end without a record.
_END_POLL_MS = 5
#: Wait for what the log is known to have.
_FETCH_POLL_MS = 5
_FOR_EVER_MS = 1 << 62


@define(eq=False)
class Pace:
    """Waits of one thread."""

    _config: StreamsConfig
    _clock: Clock
    _tasks: Mapping[TaskId, Task]
    _restorer: Restorer
    _stages: Callable[[], Sequence[ThreadStage]]
    #: Inputs end, which no record says.
    _is_finite: bool
    #: Wall-clock time up to which nothing is due; None: the tasks have to be looked at.
    _rest_until_ms: int | None = None

    def timeout_ms(self, next_commit_ms: int, *, is_paused: bool) -> int:
        """Return how long a poll may wait."""
        if self._rest_until_ms is not None:
            return max(0, min(self._config.poll_ms, self._rest_until_ms - self._clock.now_ms()))
        if any(stage.is_waiting for stage in self._stages()):
            return _FETCH_POLL_MS
        if not self._restorer.is_idle or (not is_paused and self._has_records):
            return 0
        return _END_POLL_MS if self._is_finite else min(self._config.poll_ms, self._until_due_ms(next_commit_ms))

    @property
    def is_resting(self) -> bool:
        """Whether no task has anything to do unless something has arrived."""
        return self._rest_until_ms is not None and self._clock.now_ms() < self._rest_until_ms

    def wake(self) -> None:
        """Have the tasks looked at in the next turn."""
        self._rest_until_ms = None

    def rest(self, next_commit_ms: int) -> None:
        """Leave the tasks alone while nothing arrives and nothing is due: a turn has found nothing to do."""
        is_waiting = any(stage.is_waiting for stage in self._stages())
        if not self._is_finite and self._restorer.is_idle and not is_waiting and not self._has_records:
            self._rest_until_ms = self._clock.now_ms() + self._until_due_ms(next_commit_ms)

    @property
    def _has_records(self) -> bool:
        return any(task.queues.size for task in self._tasks.values())

    def _until_due_ms(self, next_commit_ms: int) -> int:
        """Return how long nothing is due by itself."""
        now, tasks = self._clock.now_ms(), self._tasks.values()
        waits = [at_ms - now for task in tasks if (at_ms := task.next_deadline_ms()) is not None]
        # Who has nothing to commit need not wake for it.
        if any(task.is_dirty for task in tasks):
            waits.append(next_commit_ms - self._clock.monotonic_ms())
        return max(0, min(waits, default=_FOR_EVER_MS))
