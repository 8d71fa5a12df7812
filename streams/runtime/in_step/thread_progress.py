"""What one stream thread says about its tasks to those that read their lanes: when, and how often.

A mark must not be seen before the records that it speaks of.  With at-least-once it is held back until everything that
the thread sent before is acknowledged, without waiting for it; with exactly-once it is in the transaction of these
records, and is shown to the other threads of the instance after the commit.

A thread whose tasks are all at their end says nothing.  The module has no clock and does no I/O; it imports only
``core`` from outside ``runtime``.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from attrs import define, field

from streams.core.blocks.records import TaskId, lane_of
from streams.runtime.in_step.progress_records import ProgressRecord
from streams.runtime.tasks.progress import NO_GENERATION, MarkState, ProgressBoard, TaskMark

#: Shortest time between two records of a thread, unless a task comes to its end.
INTERVAL_MS: Final = 20
#: The same with exactly-once, where a record that does not come with a commit that is due costs a commit.
COMMIT_INTERVAL_MS: Final = 100
#: Most records of all threads of an application in a second, roughly; with many threads the intervals are longer.
_RECORDS_PER_S: Final = 400
#: Time for which a task that was at its end is behind before this is said: one that keeps up says nothing.
_BEHIND_MS: Final = 10
#: Shortest time between two marks that say only that a task is active.
ACTIVE_MS: Final = 250


class MarkedTask(Protocol):
    """The part of a task that tells how far it is."""

    task_id: TaskId
    #: Whether the outputs of the task are merged in a repartition topic.
    regroups: bool
    #: Grows whenever the task does something, also if its place stays.
    activity: int

    def mark(self) -> tuple[int, bool]:
        """Return the lowest place that the task may still write, and whether the task is at its end."""
        ...


@define(eq=False)
class ThreadProgress:
    """Marks of the tasks of one thread on their way to the board and to the progress topic.

    ``member`` is the name of the thread.  Times are monotonic milliseconds.
    """

    member: str
    _board: ProgressBoard
    _is_exactly_once: bool
    _generation: int = NO_GENERATION
    #: The last mark of each task that is to be said, by lane.
    _noted: dict[int, TaskMark] = field(factory=dict)
    #: Marks that wait for the acknowledgement of what was sent before: the producer's last sequence, and marks.
    _waiting: deque[tuple[int, dict[int, TaskMark]]] = field(factory=deque)
    #: Marks in the open transaction.
    _enclosed: dict[int, TaskMark] = field(factory=dict)
    #: The marks that count, as on the board.
    _shown: dict[int, TaskMark] = field(factory=dict)
    #: Those that the progress topic lacks.
    _unpublished: dict[int, TaskMark] = field(factory=dict)
    #: Whether a task has come to an end, which is said at once.
    _is_urgent: bool = False
    #: Whether all marks are to be said again: the group has a new generation, or another instance has asked.
    _owes_all: bool = False
    #: The number of questions of other instances that are answered.
    _answered: int = 0
    #: Time since which a task that was at its end is behind.
    _behind_since: dict[int, int] = field(factory=dict)
    #: The last activity of each task, and the interval in which it was.
    _active: dict[int, tuple[int, int]] = field(factory=dict)
    _next_ms: int = 0

    # --- what the thread tells ------------------------------------------------------------

    def note(
        self,
        tasks: Iterable[MarkedTask],
        generation: int,
        sequence: int,
        now_ms: int,
        *,
        restored: Callable[[TaskId], int | None] = lambda _: None,
    ) -> None:
        """Take the marks of tasks whose outputs so far were sent; call it in each iteration of the thread's loop.

        ``generation`` is that of the group, ``sequence`` that of the producer's last batch.  ``restored`` returns the
        number of records that a task has restored, or None if it does not restore.
        """
        if generation == NO_GENERATION:
            # Not a member at present: others may own the tasks.
            return
        if generation != self._generation:
            self._generation = generation
            self._board.note(self.member, generation, self._shown, now_ms)
            self._owes_all = True
        if self.is_asked:
            self._answered = self._board.asked
            self._owes_all = True
        changes: dict[int, TaskMark] = {}
        for task in tasks:
            if task.regroups:
                lane = lane_of(task.task_id)
                mark = self._mark_of(task, lane, now_ms, restored(task.task_id))
                if mark.says_more_than(self._noted.get(lane)):
                    self._noted[lane] = changes[lane] = mark
        if not changes:
            return
        self._hold(changes, now_ms)
        if self._waiting and self._waiting[-1][0] == sequence:
            self._waiting[-1][1].update(changes)
        else:
            self._waiting.append((sequence, changes))

    @property
    def is_asked(self) -> bool:
        """Whether another instance has asked since the last call of ``note``, so that a thread at rest must call it."""
        return self._answered != self._board.asked

    def forget(self, task_id: TaskId) -> None:
        """Forget a task that the thread closes, also one that it opens again: what was not said yet may be wrong."""
        lane = lane_of(task_id)
        for marks in (self._noted, self._enclosed, self._shown, self._unpublished, *(row for _, row in self._waiting)):
            marks.pop(lane, None)
        self._behind_since.pop(lane, None)
        self._active.pop(lane, None)
        self._board.close(lane)

    # --- at-least-once --------------------------------------------------------------------

    def take(self, has_acknowledged: Callable[[int], bool], now_ms: int) -> ProgressRecord | None:
        """Show the marks whose records are acknowledged, and return the record for the topic that is due, or None."""
        changes: dict[int, TaskMark] = {}
        while self._waiting and has_acknowledged(self._waiting[0][0]):
            changes |= self._waiting.popleft()[1]
        if changes:
            self._show(changes, now_ms)
            self._unpublished |= changes
            self._is_urgent = self._is_urgent or _is_urgent(changes)
        wait_ms = self.wait_ms(now_ms)
        if wait_ms is None or wait_ms > 0:
            return None
        marks = self._shown if self._owes_all else self._unpublished
        return self._published(marks, now_ms)

    def wait_ms(self, now_ms: int) -> int | None:
        """Return the time until ``take`` returns a record, or None if nothing is to be said without a commit."""
        if self._is_exactly_once:
            return None
        if not self._unpublished and not (self._owes_all and self._shown):
            return None
        return 0 if self._is_urgent else max(0, self._next_ms - now_ms)

    # --- exactly-once ---------------------------------------------------------------------

    @property
    def has_waiting(self) -> bool:
        """Whether something is to be said with the next commit."""
        return bool(self._waiting) or (self._owes_all and bool(self._shown))

    def wants_commit(self, now_ms: int) -> bool:
        """Return whether to commit now for what is to be said at once, if the commit is not due."""
        if not self._is_exactly_once or now_ms < self._next_ms or not self.has_waiting:
            return False
        return self._owes_all or any(_is_urgent(marks) for _, marks in self._waiting)

    def enclose(self, now_ms: int) -> ProgressRecord | None:
        """Return the record for the transaction that is about to be committed, or None if nothing is to be said."""
        if not self.has_waiting:
            return None
        for _, marks in self._waiting:
            self._enclosed |= marks
        self._waiting.clear()
        marks = self._shown | self._enclosed if self._owes_all else self._enclosed
        return self._published(marks, now_ms)

    def committed(self, now_ms: int) -> None:
        """Show the marks of the transaction, which is committed."""
        marks = self._enclosed
        self._enclosed = {}
        if marks:
            self._show(marks, now_ms)

    def aborted(self) -> None:
        """Forget what was to be said with a transaction that is aborted."""
        self._enclosed.clear()
        self._waiting.clear()
        self._noted = dict(self._shown)
        # The aborted record may have answered a question.
        self._owes_all = True

    # --- inside ---------------------------------------------------------------------------

    def _mark_of(self, task: MarkedTask, lane: int, now_ms: int, restored: int | None) -> TaskMark:
        """Return what is to be said about a task now, which may be what was said before."""
        place_ms, is_at_end = task.mark()
        before = self._noted.get(lane)
        if is_at_end and restored is None:
            self._behind_since.pop(lane, None)
            return TaskMark(place_ms, MarkState.AT_END)
        activity = task.activity + (restored or 0)
        if lane not in self._active or self._active[lane][0] != activity:
            self._active[lane] = activity, now_ms // ACTIVE_MS
        state = MarkState.BEHIND if restored is None else MarkState.RESTORING
        mark = TaskMark(place_ms, state, self._active[lane][1])
        if restored is not None or before is None or before.state is not MarkState.AT_END:
            return mark
        behind_ms = now_ms - self._behind_since.setdefault(lane, now_ms)
        return before if behind_ms < _BEHIND_MS else mark

    def _hold(self, marks: Mapping[int, TaskMark], now_ms: int) -> None:
        """Show at once, at their old places, that tasks are behind or active: that readers wait is never wrong."""
        held: dict[int, TaskMark] = {}
        for lane, mark in marks.items():
            shown = self._shown.get(lane)
            if shown is not None and mark.state.is_awaited and (mark.state, mark.active) != shown[1:]:
                held[lane] = mark._replace(place_ms=shown.place_ms)
        if held:
            self._show(held, now_ms)
            if not self._is_exactly_once:
                self._unpublished |= held

    def _show(self, marks: Mapping[int, TaskMark], now_ms: int) -> None:
        self._shown |= marks
        self._board.note(self.member, self._generation, marks, now_ms)

    def _published(self, marks: Mapping[int, TaskMark], now_ms: int) -> ProgressRecord:
        """Return a record with marks, and begin the interval until the next one."""
        least_ms = COMMIT_INTERVAL_MS if self._is_exactly_once else INTERVAL_MS
        self._next_ms = now_ms + max(least_ms, 1_000 * self._board.member_count // _RECORDS_PER_S)
        self._unpublished = {}
        self._is_urgent = self._owes_all = False
        return ProgressRecord(self.member, self._generation, dict(marks))


def _is_urgent(marks: Mapping[int, TaskMark]) -> bool:
    return any(not mark.state.is_awaited for mark in marks.values())
