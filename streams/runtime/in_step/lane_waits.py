"""Which marks count for the lanes that a thread reads, and how long it waits for those that are behind.

A mark says that a task writes nothing below a place from now on.  It counts for a partition when everything is read
that was in the log when the mark was there: when the read position has passed the high watermark that was asked for
afterwards.  A running fetch proves nothing, since its answer may be older than the mark.  With exactly-once, the mark
is part of the transaction of the records; the read position passes the high watermark only when all transactions below
it are decided.

A lane is waited for while its task moves.  After the patience of the topic (``repartition_patience_ms``, or that of
``.repartition(patience=...)``) without movement the others go on, until the task moves again.  The time is each
task's own, so that several that do not move are waited for once.  The module imports only ``core`` from outside
``runtime``.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from attrs import define, field

from streams.core.blocks.records import TaskId, TopicPartition, task_of
from streams.core.metrics import Counter
from streams.core.notices import Notices
from streams.runtime.tasks.lane_queue import Lane, PartitionLanes
from streams.runtime.tasks.progress import UNKNOWN, Hold, LaneProgress, ProgressBoard
from streams.runtime.tasks.queues import PartitionQueue
from streams.runtime.tasks.task import Task

log = logging.getLogger(__name__)

_NOTHING: Mapping[int, LaneProgress] = {}


@define(eq=False)
class _Reading:
    """The lanes of one partition, and the marks that are to count for them."""

    task: Task
    queue: PartitionQueue
    lanes: PartitionLanes
    #: How long a lane is waited for whose task does not move, in milliseconds.
    patience_ms: int
    #: Version of the board at the last look, and what it said then.
    version: int = -1
    newest: Mapping[int, LaneProgress] = _NOTHING
    #: The marks that count, or do when everything below ``end_offset`` is read; it is None when they do.
    marks: Mapping[int, LaneProgress] = _NOTHING
    end_offset: int | None = None
    #: Monotonic time at which ``end_offset`` was asked for last.
    asked_ms: int = -1
    #: Monotonic time since which records wait, for whichever lane; None if none does.
    since_ms: int | None = None
    #: The lane that was awaited at the last look, and when its task had moved last.
    moved: tuple[int, int] | None = None

    def hold_of(self, number: int, since_ms: int) -> Hold:
        """Return since when the task of a lane has not moved, as seen by those that wait since ``since_ms``."""
        return Hold.of(number, self.newest.get(number, UNKNOWN), since_ms)

    @property
    def has_waiting(self) -> bool:
        """Whether records wait for a lane, in this partition or in another input of its task."""
        return bool(self.lanes.size or (not self.queue.size and self.task.queues.size))

    def wants_end(self, now_ms: int) -> bool:
        """Whether new marks are to count, or the wait for a task ends if all its records in the log are read."""
        if self.end_offset is not None or self.lanes.awaited is None:
            # The marks from before count first: otherwise new ones could put this off for ever.
            return False
        hold = self.lanes.held_by
        return self.newest is not self.marks or (hold is not None and hold.is_over(self.patience_ms, now_ms))


@define(eq=False)
class LaneWaits:
    """The lanes of the partitions that one thread reads."""

    _thread: str
    _board: ProgressBoard
    #: Returns high watermarks; not by the member of the group, which could lose its membership meanwhile.
    _ends: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]]
    #: Returns the patience of a repartition topic, by its name in the topology.
    _patience_ms: Callable[[str], int]
    #: Counts waits that ended without the records of a task.
    _cut: Counter
    _notices: Notices
    _readings: dict[TopicPartition, _Reading] = field(factory=dict)

    def open(self, task: Task) -> bool:
        """Add the partitions of a task that are read in step; return whether there are any."""
        for queue in task.queues:
            if queue.lanes is not None:
                patience_ms = self._patience_ms(task.inputs[queue.partition].topic)
                self._readings[queue.partition] = _Reading(task, queue, queue.lanes, patience_ms)
        return any(queue.lanes is not None for queue in task.queues)

    def expect(self, task: Task, lanes_of: Callable[[str], frozenset[int]]) -> bool:
        """Wait for the lanes of tasks that an open task's topics have by now; return whether there are new ones."""
        has_new = False
        for queue in task.queues:
            if queue.lanes is not None and queue.lanes.expect(lanes_of(task.inputs[queue.partition].topic)):
                reading = self._readings[queue.partition]
                reading.version = -1
                reading.since_ms = None
                has_new = True
        return has_new

    def close(self, task_id: TaskId) -> None:
        """Remove the partitions of a task."""
        self._readings = {key: reading for key, reading in self._readings.items() if reading.task.task_id != task_id}

    @property
    def is_waiting(self) -> bool:
        """Whether a partition waits for a lane."""
        return any(reading.lanes.awaited is not None for reading in self._readings.values())

    def look(self) -> None:
        """Take the marks of the board, and wait for tasks that are behind by now.

        Call it before fetched records are added: those that may follow may belong before them.
        """
        version = self._board.version
        outdated = [reading for reading in self._readings.values() if reading.version != version]
        # The partitions of a topic have the same lanes.
        marks = {numbers: self._board.marks(numbers) for numbers in {reading.lanes.numbers for reading in outdated}}
        for reading in outdated:
            self._look(reading, version, marks[reading.lanes.numbers])

    def step(self, now_ms: int) -> bool:
        """Let the marks count that do by now, and ask what others need; return whether any lane has changed.

        ``now_ms`` is monotonic time.

        Raises:
            RequestTimeoutError: the brokers do not tell in time how far their logs are.
        """
        if not self._readings:
            return False
        version = self._board.version
        has_changed = False
        # Marks that count now may have newer ones behind them, which nothing announces again: those are looked at too.
        while (changed := self._advance(now_ms)) and any(reading.wants_end(now_ms) for reading in changed):
            has_changed = True
        # The thread is woken by the next change of the board also if it has work now: it may sleep after it.
        is_outdated = self.is_waiting and not self._board.wait_from(self._thread, version)
        return bool(changed) or has_changed or is_outdated

    def _advance(self, now_ms: int) -> list[_Reading]:
        """Take the marks of the board, and let those count that do; return the readings whose lanes changed."""
        self.look()
        asking = [reading for reading in self._readings.values() if reading.wants_end(now_ms)]
        if asking:
            ends = self._ends([reading.queue.partition for reading in asking])
            for reading in asking:
                reading.marks = reading.newest
                reading.end_offset = ends[reading.queue.partition]
                reading.asked_ms = now_ms
        return [reading for reading in self._readings.values() if self._count(reading, now_ms)]

    def _look(self, reading: _Reading, version: int, marks: Mapping[int, LaneProgress]) -> None:
        """Take the marks of the board, and wait for tasks that are behind again."""
        reading.version = version
        lanes = reading.lanes
        if marks != reading.newest:
            reading.newest = marks
        for number, progress in marks.items():
            if lanes.passed_over.get(number) == progress.moved_ms:
                continue
            lanes.passed_over.pop(number, None)
            if progress.state.is_awaited:
                # Records may follow: this needs no proof.
                lanes.note(number, lanes.lanes[number].reached_ms, is_open=True)
        awaited = lanes.awaited
        if awaited is not None and awaited.number in marks:
            moved = awaited.number, marks[awaited.number].moved_ms
            if moved != reading.moved:
                # A task moves with those for which it waits, also if none of its records waits.
                reading.moved = moved
                reading.task.activity += 1

    def _count(self, reading: _Reading, now_ms: int) -> bool:
        """Let marks count if everything is read that they speak of, and end waits that are too long."""
        queue, lanes = reading.queue, reading.lanes
        if reading.end_offset is None:
            return self._end_wait(reading, now_ms)
        if queue.fetched is None or queue.fetched < reading.end_offset:
            # There are records on the broker, which are read, however long that takes.
            lanes.held_by = None
            return False
        reading.end_offset = None
        for number, progress in reading.marks.items():
            is_open = progress.state.is_awaited or reading.newest[number].state.is_awaited
            lanes.note(number, progress.place_ms, is_open=is_open and number not in lanes.passed_over)
        queue.merge()
        self._end_wait(reading, now_ms)
        return True

    def _end_wait(self, reading: _Reading, now_ms: int) -> bool:
        """Go on without all tasks that have not moved for too long, if one of them is awaited; return whether so."""
        lanes, patience_ms = reading.lanes, reading.patience_ms
        awaited = lanes.awaited
        if awaited is None or not reading.has_waiting:
            reading.since_ms = lanes.held_by = None
            return False
        since_ms = reading.since_ms = now_ms if reading.since_ms is None else reading.since_ms
        lanes.held_by = reading.hold_of(awaited.number, since_ms)
        if not lanes.held_by.is_over(patience_ms, now_ms):
            # Those that wait for this task are not to lose their patience earlier than it does.
            reading.task.activity += 1
            return False
        if not lanes.held_by.is_over(patience_ms, reading.asked_ms):
            # What was in the log when the patience ended is not known to be read yet.
            return False
        for number in {awaited.number, *lanes.holding}:
            if reading.hold_of(number, since_ms).is_over(patience_ms, reading.asked_ms):
                self._pass_over(reading, lanes.lanes[number], now_ms)
        lanes.held_by = None
        reading.queue.merge()
        return True

    def _pass_over(self, reading: _Reading, lane: Lane, now_ms: int) -> None:
        lanes = reading.lanes
        lanes.passed_over[lane.number] = reading.newest.get(lane.number, UNKNOWN).moved_ms
        lanes.ever_passed_over.add(lane.number)
        lanes.note(lane.number, lane.reached_ms, is_open=False)
        self._cut.value += 1
        text = (
            f"{self._thread}: task {task_of(lane.number)} has not moved for {reading.patience_ms} ms "
            f"(repartition_patience_ms, or patience of repartition()): {reading.queue.partition} is read on without "
            "its records, which may be late when they come"
        )
        self._notices.warn(log, ("wait", self._thread, lane.number), now_ms, text)
