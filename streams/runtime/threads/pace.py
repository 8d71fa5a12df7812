"""The pace of a thread's loop: the timeouts of its polls, and iterations that do not check the tasks.

An iteration of the loop checks every task.  With a thousand tasks these checks cost more than the processing, so after
an iteration without work the tasks are not checked until records arrive or work is due.
"""

from collections.abc import Callable, Mapping, Sequence

from attrs import define

from streams.core.blocks.records import TaskId
from streams.core.clock import Clock
from streams.core.settings.config import StreamsConfig
from streams.runtime.stores.restore import Restorer
from streams.runtime.tasks.schedule import ThreadStage
from streams.runtime.tasks.task import Task

#: Poll timeout for inputs that may end without a record.
_END_POLL_MS = 5
#: Poll timeout if the log is known to have records.
_FETCH_POLL_MS = 5
#: Shortest and longest poll timeout while sent records are not acknowledged, since further requests may depend on the
#: acknowledgements; it doubles while nothing happens.
_ANSWER_POLL_MS = 5
_SLOW_ANSWER_POLL_MS = 40
#: Poll timeout of changelogs that are restored.
_RESTORE_POLL_MS = 20
_FOR_EVER_MS = 1 << 62


@define(eq=False)
class Pace:
    """Determines the poll timeouts of one thread, and when it needs to check its tasks."""

    _config: StreamsConfig
    _clock: Clock
    _tasks: Mapping[TaskId, Task]
    _restorer: Restorer
    _stages: Callable[[], Sequence[ThreadStage]]
    #: Whether inputs may end; the end of an input is not signalled by a record.
    _is_finite: bool
    #: Wall-clock time in epoch milliseconds before which nothing is due, or None if the tasks must be checked.
    _rest_until_ms: int | None = None
    _answer_poll_ms: int = _ANSWER_POLL_MS

    def timeout_ms(self, next_commit_ms: int, *, is_paused: bool, has_outstanding: bool) -> int:
        """Return the timeout of the next poll in milliseconds.

        ``has_outstanding`` means that some sent records are not acknowledged yet; the timeout is then short, because
        the producer has to be polled.
        """
        timeout_ms = self._timeout_ms(next_commit_ms, is_paused=is_paused)
        return min(timeout_ms, self._answer_poll_ms) if has_outstanding else timeout_ms

    def note_work(self, *, is_done: bool) -> None:
        """Record whether the last iteration of the loop polled or processed any records."""
        self._answer_poll_ms = _ANSWER_POLL_MS if is_done else min(2 * self._answer_poll_ms, _SLOW_ANSWER_POLL_MS)

    def _timeout_ms(self, next_commit_ms: int, *, is_paused: bool) -> int:
        if self._rest_until_ms is not None:
            return max(0, min(self._config.poll_ms, self._rest_until_ms - self._clock.now_ms()))
        if any(stage.is_waiting for stage in self._stages()):
            return _FETCH_POLL_MS
        if not self._restorer.is_idle or (not is_paused and self._has_records):
            return 0
        if self._is_finite:
            return _END_POLL_MS
        # A paused thread does none of the work that is due, but it commits.
        due_ms = self._until_commit_ms(next_commit_ms) if is_paused else self._until_due_ms(next_commit_ms)
        return min(self._config.poll_ms, due_ms)

    def restore_timeout_ms(self, *, is_paused: bool) -> int:
        """Return how long to wait for changelog records, in milliseconds: 0 while any task has records to process."""
        return 0 if self._restorer.is_idle or (not is_paused and self._has_records) else _RESTORE_POLL_MS

    @property
    def is_resting(self) -> bool:
        """Whether the tasks need no check at present, because no task has work before new records arrive."""
        return self._rest_until_ms is not None and self._clock.now_ms() < self._rest_until_ms

    def wake(self) -> None:
        """Make the next iteration check the tasks again."""
        self._rest_until_ms = None

    def rest(self, next_commit_ms: int) -> None:
        """Skip the checks of the tasks until records arrive or work is due; call it after an iteration without work."""
        is_waiting = any(stage.is_waiting for stage in self._stages())
        if not self._is_finite and self._restorer.is_idle and not is_waiting and not self._has_records:
            self._rest_until_ms = self._clock.now_ms() + self._until_due_ms(next_commit_ms)

    @property
    def _has_records(self) -> bool:
        """Whether a task can process records now, without waiting for a restore, another input or an async call."""
        return any(
            task.is_initialized
            and (queues := task.queues).size
            and not queues.awaits_fetch
            and queues.next_deadline_ms() is None
            and (task.calls is None or task.calls.room)
            for task in self._tasks.values()
        )

    def _until_due_ms(self, next_commit_ms: int) -> int:
        """Return the milliseconds until a task has work to do even if no record arrives."""
        now = self._clock.now_ms()
        tasks = self._tasks.values()
        waits = [at_ms - now for task in tasks if (at_ms := task.next_deadline_ms()) is not None]
        return max(0, min([*waits, self._until_commit_ms(next_commit_ms)]))

    def _until_commit_ms(self, next_commit_ms: int) -> int:
        """Return the milliseconds until the next commit, or a very long time if there is nothing to commit."""
        is_dirty = any(task.is_dirty for task in self._tasks.values())
        return max(0, next_commit_ms - self._clock.monotonic_ms()) if is_dirty else _FOR_EVER_MS
