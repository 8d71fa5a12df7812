"""Producers of a repartition topic wait for the slowest of them, so that its readers buffer a bounded number of bytes.

The reader of a partition cannot pause it: the record for which it waits may be behind those that it buffers.  So the
tasks that write to the topic must not run ahead of each other.  A task is held when it has written more than its share
of ``repartition_buffer_bytes`` behind the lowest place that another one may still write.  The slowest task is never
held, so that there is no deadlock, and nothing depends on event time.  If the slowest task does not move for
the patience of the topic's readers, the others go on, as these do.  The module is pure and imports only ``core`` from
outside ``runtime``.
"""

from collections import deque

from attrs import define, field

from streams.core.records import NO_TIMESTAMP, TaskId
from streams.runtime.progress import Hold, LaneProgress, MarkState, ProgressBoard

#: Parts into which the share of a task is divided, at whose borders its place is noted.
_PARTS = 16


@define(eq=False)
class _Output:
    """What one task has written to repartition topics."""

    #: The lanes of the other tasks that write to the same topics.
    others: frozenset[int]
    share_bytes: int
    #: How long the task is held while the slowest one does not move, in milliseconds.
    patience_ms: int
    #: Bytes written so far, and those of them at places that all others have passed.
    written: int = 0
    passed: int = 0
    #: Places of the task, each with the bytes written before the task went on from it; ascending.
    places: deque[tuple[int, int]] = field(factory=deque)
    #: The slowest task, if this one is over its share because of it.
    held_by: Hold | None = None
    #: Whether the task is held; not when the slowest one has not moved for ``patience_ms``.
    is_held: bool = False

    def note(self, place_ms: int, size: int) -> None:
        """Note that the task has written ``size`` bytes, all at places up to ``place_ms``."""
        self.written += size
        last = self.places[-1][1] if self.places else self.passed
        if self.written - last > self.share_bytes // _PARTS:
            self.places.append((place_ms, self.written))

    def pass_to(self, place_ms: int) -> None:
        """Note that all others have passed a place."""
        while self.places and self.places[0][0] <= place_ms:
            _, self.passed = self.places.popleft()

    @property
    def is_over(self) -> bool:
        """Whether the task has written more than its share at places that another task has not passed."""
        return self.written - self.passed > self.share_bytes


@define(eq=False)
class Backpressure:
    """The outputs of one thread's tasks to topics that are read in step."""

    _board: ProgressBoard
    _budget_bytes: int
    _outputs: dict[TaskId, _Output] = field(factory=dict)

    def open(self, task_id: TaskId, writers: frozenset[int], lane: int, patience_ms: int) -> None:
        """Add a task, whose lane is one of those of ``writers``."""
        self._outputs[task_id] = _Output(writers - {lane}, self._budget_bytes // len(writers), patience_ms)

    def close(self, task_id: TaskId) -> None:
        """Remove a task."""
        self._outputs.pop(task_id, None)

    def note(self, task_id: TaskId, place_ms: int, size: int) -> None:
        """Note that a task has written ``size`` bytes, all at places up to ``place_ms``."""
        output = self._outputs.get(task_id)
        if output is not None:
            output.note(place_ms, size)

    def holds(self, task_id: TaskId, now_ms: int) -> bool:
        """Return whether a task must not process records now; ``now_ms`` is monotonic time."""
        output = self._outputs.get(task_id)
        if output is None:
            return False
        output.is_held = self._must_wait(output, now_ms)
        return output.is_held

    def _must_wait(self, output: _Output, now_ms: int) -> bool:
        if not output.is_over:
            output.held_by = None
            return False
        slowest = self._slowest(output.others)
        if slowest is not None:
            output.pass_to(slowest[0].place_ms)
        if slowest is None or not output.is_over:
            output.held_by = None
            return False
        progress, lane = slowest
        output.held_by = Hold.after(output.held_by, lane, now_ms)
        return not output.held_by.is_over(progress.moved_ms, output.patience_ms, now_ms)

    def held_by(self, task_id: TaskId) -> Hold | None:
        """Return the task for which a task is held, or None; for any thread."""
        output = self._outputs.get(task_id)
        return output.held_by if output is not None and output.is_held else None

    def _slowest(self, lanes: frozenset[int]) -> tuple[LaneProgress, int] | None:
        """Return the progress and the lane of the task that is behind the most, or None if all are at their end."""
        marks = self._board.marks(lanes)
        if len(marks) < len(lanes):
            return _UNKNOWN, min(lanes - marks.keys())
        return min(((mark, lane) for lane, mark in marks.items() if mark.state.is_awaited), default=None)


_UNKNOWN = LaneProgress(NO_TIMESTAMP, MarkState.BEHIND, 0)
