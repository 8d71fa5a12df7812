"""Which marks count for the lanes that a thread reads, and how long it waits for those that are behind.

A mark says that a task writes nothing below a place from now on.  It counts for a partition when everything is read
that was in the log when the mark was there: when the read position has passed the high watermark that was asked for
afterwards.  A running fetch proves nothing, since its answer may be older than the mark.  With exactly-once, the mark
is part of the transaction of the records; the read position passes the high watermark only when all transactions below
it are decided.

A lane is waited for while its task moves.  After the patience of the topic (``repartition_patience_ms``, or that of
``.repartition(patience=...)``) without movement the others go on, until the task moves again.  The module imports only
``core`` from outside ``runtime``.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from attrs import define, field

from streams.core.metrics import Counter
from streams.core.records import TaskId, TopicPartition, task_of
from streams.runtime.lane_queue import Lane, PartitionLanes
from streams.runtime.progress import Hold, LaneProgress, ProgressBoard
from streams.runtime.queues import PartitionQueue
from streams.runtime.task import Task

log = logging.getLogger(__name__)


@define(eq=False)
class _Reading:
    """The lanes of one partition, and the marks that are to count for them."""

    task: Task
    queue: PartitionQueue
    lanes: PartitionLanes
    #: How long a lane is waited for whose task does not move, in milliseconds.
    patience_ms: int
    #: Version of the board when ``marks`` were taken.
    version: int = -1
    marks: Mapping[int, LaneProgress] = field(factory=dict)
    #: Lanes whose tasks are behind by what the board says now; it may be newer than ``marks``.
    behind: frozenset[int] = frozenset()
    #: The marks count when everything below this offset is read; None when they do.
    end_offset: int | None = None


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
    _readings: dict[TopicPartition, _Reading] = field(factory=dict)
    #: Monotonic time of the last warning about each lane.
    _warned_ms: dict[int, int] = field(factory=dict)

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
                self._readings[queue.partition].version = -1
                has_new = True
        return has_new

    def close(self, task_id: TaskId) -> None:
        """Remove the partitions of a task."""
        self._readings = {key: reading for key, reading in self._readings.items() if reading.task.task_id != task_id}

    @property
    def is_waiting(self) -> bool:
        """Whether a partition waits for a lane."""
        return any(reading.lanes.awaited is not None for reading in self._readings.values())

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
        while (changed := self._advance(version, now_ms)) and any(reading.version != version for reading in changed):
            has_changed = True
        # The thread is woken by the next change of the board also if it has work now: it may sleep after it.
        is_outdated = self.is_waiting and not self._board.wait_from(self._thread, version)
        return bool(changed) or has_changed or is_outdated

    def _advance(self, version: int, now_ms: int) -> list[_Reading]:
        """Take the marks of the board, and let those count that do; return the readings whose lanes changed."""
        outdated = [reading for reading in self._readings.values() if reading.version != version]
        # The partitions of a topic have the same lanes.
        marks = {numbers: self._board.marks(numbers) for numbers in {reading.lanes.numbers for reading in outdated}}
        asking = [reading for reading in outdated if self._look(reading, version, marks[reading.lanes.numbers])]
        if asking:
            ends = self._ends([reading.queue.partition for reading in asking])
            for reading in asking:
                reading.end_offset = ends[reading.queue.partition]
        return [reading for reading in self._readings.values() if self._count(reading, now_ms)]

    def _look(self, reading: _Reading, version: int, marks: Mapping[int, LaneProgress]) -> bool:
        """Take the marks of the board; return whether the end of the partition is needed before they count."""
        reading.behind = frozenset(number for number, progress in marks.items() if progress.state.is_awaited)
        for number, progress in marks.items():
            if reading.lanes.passed_over.get(number) == progress.moved_ms:
                continue
            reading.lanes.passed_over.pop(number, None)
            if number in reading.behind:
                # Records may follow: this needs no proof.
                reading.lanes.note(number, reading.lanes.lanes[number].reached_ms, is_open=True)
        if reading.end_offset is not None:
            # The marks from before count first: otherwise new ones could put this off for ever.
            return False
        reading.version = version
        if reading.lanes.awaited is None or marks == reading.marks:
            return False
        reading.marks = marks
        return True

    def _count(self, reading: _Reading, now_ms: int) -> bool:
        """Let marks count if everything is read that they speak of; otherwise end a wait that is too long."""
        queue, lanes = reading.queue, reading.lanes
        if reading.end_offset is not None and queue.fetched is not None and queue.fetched >= reading.end_offset:
            reading.end_offset = lanes.held_by = None
            for number, progress in reading.marks.items():
                is_open = progress.state.is_awaited or number in reading.behind
                lanes.note(number, progress.place_ms, is_open=is_open and number not in lanes.passed_over)
            queue.merge()
            return True
        awaited = lanes.awaited
        if awaited is None or reading.end_offset is not None or not (lanes.size or reading.task.queues.size):
            # Nothing waits; or there are records on the broker, which are read, however long that takes.
            lanes.held_by = None
            return False
        lanes.held_by = Hold.after(lanes.held_by, awaited.number, now_ms)
        mark = reading.marks.get(awaited.number)
        moved_ms = -1 if mark is None else mark.moved_ms
        if not lanes.held_by.is_over(moved_ms, reading.patience_ms, now_ms):
            return False
        self._pass_over(reading, awaited, moved_ms, now_ms)
        queue.merge()
        return True

    def _pass_over(self, reading: _Reading, lane: Lane, moved_ms: int, now_ms: int) -> None:
        lanes = reading.lanes
        lanes.passed_over[lane.number] = moved_ms
        lanes.ever_passed_over.add(lane.number)
        lanes.held_by = None
        lanes.note(lane.number, lane.reached_ms, is_open=False)
        self._cut.value += 1
        warned_ms = self._warned_ms.get(lane.number)
        if warned_ms is None or now_ms - warned_ms >= reading.patience_ms:
            self._warned_ms[lane.number] = now_ms
            log.warning(
                "%s: task %s has not moved for %d ms (repartition_patience_ms, or patience of repartition()): %s is "
                "read on without its records, which may be late when they come",
                self._thread,
                task_of(lane.number),
                reading.patience_ms,
                reading.queue.partition,
            )
