"""Producers of a repartition topic wait for the slowest of them, so that its readers buffer a bounded number of bytes.

The reader of a partition cannot pause it: the record for which it waits may be behind those that it buffers.  So the
tasks that write to the topic must not run ahead of each other.  A task is held when it has written more than its share
of ``repartition_buffer_bytes`` behind the lowest place that another one may still write.  The slowest task is never
held, so that there is no deadlock, and nothing depends on event time.  For a task that does not move for the patience
of the topic's readers the others do not wait any more, as these do not, until it moves again.  The module is pure and
imports only ``core`` from outside ``runtime``.
"""

from collections import deque

from attrs import define, field

from streams.core.blocks.records import NO_TIMESTAMP, TaskId, lane_of
from streams.runtime.tasks.progress import UNKNOWN, Hold, LaneProgress, ProgressBoard

#: Parts into which the share of a task is divided, at whose borders its place is noted.
_PARTS = 16


@define(eq=False)
class _Output:
    """What one task has written to repartition topics."""

    #: The lanes of the other tasks that write to the same topics.
    others: frozenset[int]
    share_bytes: int
    #: How long the task is held because of one that does not move, in milliseconds.
    patience_ms: int
    #: Bytes written so far, and those of them at places that all others have passed.
    written: int = 0
    passed: int = 0
    #: Places of the task, each with the bytes written before the task went on from it; ascending.
    places: deque[tuple[int, int]] = field(factory=deque)
    #: Monotonic time since which the task is over its share, or None.
    since_ms: int | None = None
    #: The slowest task, if this one is held because of it.
    held_by: Hold | None = None
    #: Lanes of tasks because of which this one is held no more, each with the time of the last movement of its task.
    passed_over: dict[int, int] = field(factory=dict)

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

    def open(self, task_id: TaskId, writers: frozenset[int], place_ms: int, patience_ms: int) -> None:
        """Add a task, whose lane is one of those of ``writers``; ``place_ms`` is its place when it was last committed.

        What it wrote up to there counts as its whole share until the others have passed this place: otherwise readers
        would buffer a share more for each time that the task is opened.
        """
        output = _Output(writers - {lane_of(task_id)}, self._budget_bytes // len(writers), patience_ms)
        if place_ms != NO_TIMESTAMP:
            output.note(place_ms, output.share_bytes + 1)
        self._outputs[task_id] = output

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
        output.held_by = self._hold(output, now_ms) if output.is_over else None
        if not output.is_over:
            output.since_ms = None
        return output.held_by is not None

    def _hold(self, output: _Output, now_ms: int) -> Hold | None:
        """Return the slowest task that moves, if the output is over its share because of it."""
        if output.since_ms is None:
            output.since_ms = now_ms
        marks = self._board.marks(output.others)
        moving: list[tuple[LaneProgress, Hold]] = []
        for lane in output.others:
            progress = marks.get(lane, UNKNOWN)
            if not progress.state.is_awaited or output.passed_over.get(lane) == progress.moved_ms:
                continue
            hold = Hold.of(lane, progress, output.since_ms)
            if hold.is_over(output.patience_ms, now_ms):
                output.passed_over[lane] = progress.moved_ms
            else:
                moving.append((progress, hold))
        if not moving:
            return None
        slowest, hold = min(moving)
        output.pass_to(slowest.place_ms)
        return hold if output.is_over else None

    def held_by(self, task_id: TaskId) -> Hold | None:
        """Return the task for which a task is held, or None; for any thread."""
        output = self._outputs.get(task_id)
        return None if output is None else output.held_by
