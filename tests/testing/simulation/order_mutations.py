"""Deliberate bugs of the order behind repartition topics, each put in for the time of a ``with`` block.

Expected results are those of the bounded run without the bug.  What is raised by the lines of a bug itself, rather than
by the product under it, is no symptom: it is noted in ``BROKEN``, and a bug that breaks so is not found.
"""

from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from functools import wraps
from itertools import accumulate
from typing import Any

from streams.clients.producer.accumulator import Parcel
from streams.core.blocks.records import Lanes
from streams.runtime.in_step.backpressure import Backpressure, _Output
from streams.runtime.tasks.lane_queue import PartitionLanes
from streams.runtime.tasks.outbox import Outbox
from streams.runtime.tasks.progress import Hold, ProgressBoard, _Entry
from streams.runtime.tasks.task import Task
from streams.runtime.threads.committing import Committer
from streams.runtime.threads.thread import StreamThread
from tests.runtime import test_progress
from tests.testing.simulation import mutations

#: What the bugs of this module have raised themselves.
BROKEN: list[Exception] = []


def _replaced(owner, name, function):
    """Replace a function; note what its own lines raise."""

    @wraps(function)
    def noting(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            place = error.__traceback__
            while place.tb_next is not None:
                place = place.tb_next
            if place.tb_frame.f_code.co_filename == __file__:
                BROKEN.append(error)
            raise

    return mutations._replaced(owner, name, noting)


def marks_before_acknowledgements():
    """A mark is sent before the records that it speaks of are acknowledged."""
    return _replaced(Committer, "_has_written", lambda self, sequence: True)


def marks_count_at_once():
    """A mark counts without the high watermark that was asked for after it."""

    def attach(self):
        original(self)
        self.waits._ends = lambda partitions: dict.fromkeys(partitions, 0)

    original = StreamThread.__attrs_post_init__
    return _replaced(StreamThread, "__attrs_post_init__", attach)


def stable_offsets_count():
    """A mark counts at the last stable offset, not at the high watermark."""

    def attach(self):
        original(self)
        self.waits._ends = self.consumer.end_offsets

    original = StreamThread.__attrs_post_init__
    return _replaced(StreamThread, "__attrs_post_init__", attach)


def lane_positions_are_not_committed():
    """A commit does not say how far lanes are ahead."""
    return _replaced(PartitionLanes, "ahead_of", lambda self, position: {})


def highest_offset_is_committed():
    """A commit has the offset after the highest processed one."""

    def next_position(self, certain_offsets, following):
        lowest = original(self, certain_offsets, following)
        return max((lowest, *(lane.next_offset for lane in self.lanes.values())))

    original = PartitionLanes.next_position
    return _replaced(PartitionLanes, "next_position", next_position)


def positions_of_other_lanes():
    """Lane positions are applied to the wrong lanes."""

    def start_at(self, position, ahead):
        numbers = sorted(self.numbers)
        after = dict(zip(numbers, [*numbers[1:], *numbers[:1]], strict=True))
        original(self, position, {after.get(number, number): count for number, count in ahead.items()})

    original = PartitionLanes.start_at
    return _replaced(PartitionLanes, "start_at", start_at)


def places_are_timestamps():
    """The place of a record is its own timestamp."""

    def add(self, batch):
        batch.lanes = Lanes(Lanes.of(batch).lanes, list(accumulate(batch.timestamps, max)))
        original(self, batch)

    original = PartitionLanes.add
    return _replaced(PartitionLanes, "add", add)


def ties_by_arrival():
    """Of records with equal places, the one that has come first is processed first."""

    def take(self):
        waiting = [lane for lane in self.lanes.values() if lane.size]
        offset = {lane.number: self._records.offsets[lane.rows[lane.start]] for lane in waiting}
        self.lanes = dict(sorted(self.lanes.items(), key=lambda item: offset.get(item[0], 0)))
        return original(self)

    original = PartitionLanes.take
    return _replaced(PartitionLanes, "take", take)


def old_ends_are_trusted():
    """That a task was at its end counts although it was said before this instance has asked."""

    def shown(self, generation):
        self.is_current = True
        return original(self, generation)

    original = _Entry.shown
    return _replaced(_Entry, "shown", shown)


def generations_are_ignored():
    """Marks of a thread that has lost its tasks count."""

    def add(self, member, generation, marks, now_ms, *, is_own):
        original(self, member, 1, marks, now_ms, is_own=is_own)

    original = ProgressBoard._add
    return _replaced(ProgressBoard, "_add", add)


def held_tasks_are_at_their_end():
    """A task that waits for the slowest one says that it is at its end."""
    held: set[Any] = set()

    def holds(self, task_id, now_ms):
        is_held = original(self, task_id, now_ms)
        (held.add if is_held else held.discard)((id(self._board), task_id))
        return is_held

    def mark(self):
        place_ms, is_at_end = original_mark(self)
        return place_ms, is_at_end or any(task_id == self.task_id for _, task_id in held)

    original, original_mark = Backpressure.holds, Task.mark
    return _both((Backpressure, "holds", holds), (Task, "mark", mark))


def slowest_task_is_held():
    """The task that is behind the most waits too when it has written more than its share."""
    return _replaced(_Output, "pass_to", lambda self, place_ms: None)


def drops_when_fetched():
    """A record that cannot be deserialized is dropped when it is fetched, not at its place."""

    def add(self, batch):
        for drop in batch.drops:
            drop.effect()
        batch.drops = ()
        if len(batch):
            original(self, batch)

    original = PartitionLanes.add
    return _replaced(PartitionLanes, "add", add)


def lanes_lost_by_halves():
    """The second half of a request that was too large has no lanes."""

    def halves(self):
        parts = original(self)
        if parts is not None:
            parts[1].block.lanes = None
        return parts

    original = Parcel.halves
    return _replaced(Parcel, "halves", halves)


def filtered_rows_do_not_count():
    """A task whose records are filtered says the place of the last record that it has written."""

    def mark(self):
        place_ms, is_at_end = original(self)
        return (place_ms if is_at_end else self.outbox.last_written_ms), is_at_end

    def note(self):
        drained = original_drain(self)
        for each in drained:
            if each.places:
                self.last_written_ms = max(self.last_written_ms, each.places[-1])
        return drained

    original, original_drain = Task.mark, Outbox.drain_topics
    Outbox.last_written_ms = -1
    return _both((Task, "mark", mark), (Outbox, "drain_topics", note))


def patience_is_not_reset():
    """A task is waited for as long as the patience says in all, whether it moves or not."""
    return _replaced(Hold, "of", lambda lane, progress, since_ms: Hold(lane, since_ms))


@contextmanager
def _both(*replacements):
    with ExitStack() as stack:
        for each in replacements:
            stack.enter_context(_replaced(*each))
        yield


ALL: dict[str, Callable[[], Any]] = {
    made.__name__: made
    for made in (
        marks_before_acknowledgements,
        marks_count_at_once,
        stable_offsets_count,
        lane_positions_are_not_committed,
        highest_offset_is_committed,
        positions_of_other_lanes,
        places_are_timestamps,
        ties_by_arrival,
        old_ends_are_trusted,
        generations_are_ignored,
        held_tasks_are_at_their_end,
        slowest_task_is_held,
        drops_when_fetched,
        lanes_lost_by_halves,
        filtered_rows_do_not_count,
        patience_is_not_reset,
    )
}

#: Those that no world shows, with the tests that find them: they matter only where the input of a task grows while
#: nobody runs it, and in these worlds all inputs are there before.
ELSEWHERE: dict[str, Callable[[], None]] = {
    "old_ends_are_trusted": test_progress.test_end_counts_only_behind_the_own_question,
    "generations_are_ignored": test_progress.test_marks_of_an_older_generation_of_the_task_are_ignored,
}
#: The first world that finds each of the others.
FOUND: dict[str, int] = {
    "marks_before_acknowledgements": 20,
    "marks_count_at_once": 0,
    "stable_offsets_count": 7,
    "lane_positions_are_not_committed": 10,
    "highest_offset_is_committed": 10,
    "positions_of_other_lanes": 10,
    "places_are_timestamps": 10,
    "ties_by_arrival": 10,
    "held_tasks_are_at_their_end": 11,
    "slowest_task_is_held": 12,
    "drops_when_fetched": 150,
    "lanes_lost_by_halves": 5,
    "filtered_rows_do_not_count": 4,
    "patience_is_not_reset": 4,
}
