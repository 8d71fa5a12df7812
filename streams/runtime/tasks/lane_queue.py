"""The lanes of a repartition partition in a live run: records wait here until their order is certain.

A lane contains the records that one task has written to the partition.  The records of all lanes are taken by place,
then by lane, as in a bounded run (``order``).  A bounded run reads each lane from a log of its own, and knows where it
ends.  Here the lanes share one log, and a record is certain when no lane can bring an earlier one: each open lane has
reached its place, by a record or by a mark that its task has published.

Records are therefore not processed in the order of their offsets.  A commit has the lowest unprocessed offset, and how
far each lane is ahead of it; the records of a lane are processed in the order of their offsets, so that this is
everything.  The module is pure: it reads no clock and performs no I/O.
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from attrs import define, evolve, field

from streams.core.blocks.loops import (
    int64,
    interleaved,
    last_by_number,
    look_up,
    merge_order,
    split_by_number,
    take_rows,
)
from streams.core.blocks.records import NO_LANE, NO_TIMESTAMP, Headers, Lanes
from streams.runtime.tasks.batches import Batch, Drop
from streams.runtime.tasks.order import count_certain
from streams.runtime.tasks.progress import Hold


@define(eq=False)
class Lane:
    """The records of one task that are read and not certain yet, and what is known of those that follow.

    The columns begin with ``start`` records that have been taken.
    """

    #: Of equal places, the record of the lane with the lower number is first.
    number: int
    places: "array[int]" = field(factory=lambda: array("q"))
    #: Where the records are (``_Records``).
    rows: "array[int]" = field(factory=lambda: array("q"))
    start: int = 0
    #: Records to be dropped, each with its place and the number of records before it that are not taken yet.
    drops: deque[tuple[int, int, Drop]] = field(factory=deque)
    #: The lowest place that a record may have which is not read yet.
    reached_ms: int = NO_TIMESTAMP
    #: The next offset to process; records below it were processed before a restart.
    next_offset: int = 0

    @property
    def size(self) -> int:
        """The number of records."""
        return len(self.rows) - self.start

    @property
    def bound(self) -> tuple[int, int]:
        """The lowest place that a record may have which is not read yet, and the number of the lane."""
        return self.reached_ms, self.number

    def count_certain(self, bound: tuple[int, int] | None) -> int:
        """Return how many of the records are before the next one to be dropped, and before a bound if there is one."""
        count = self.drops[0][1] if self.drops else self.size
        if bound is None:
            return count
        return min(count, count_certain(self.places, self.number, bound, self.start) - self.start)

    def add(self, rows: Sequence[int], places: Sequence[int]) -> None:
        """Append records, whose places do not descend."""
        if places[0] < self.reached_ms:
            # A task that was started again repeats records.
            places = [max(place, self.reached_ms) for place in places]
        self.rows.extend(rows)
        self.places.extend(places)
        self.reached_ms = places[-1]

    def advance(self, count: int) -> None:
        """Remove the first ``count`` records."""
        self.start += count
        if self.drops:
            self.drops = deque((place_ms, before - count, drop) for place_ms, before, drop in self.drops)

    def move_to(self, first: int) -> None:
        """Note that the records are now at consecutive rows from ``first`` on."""
        del self.places[: self.start]
        self.rows = int64(range(first, first + len(self.places)))
        self.start = 0


@define(eq=False)
class _Records:
    """The records of all lanes, as columns with their rows in the order of their offsets."""

    keys: list[Any] = field(factory=list)
    values: list[Any] = field(factory=list)
    timestamps: list[int] = field(factory=list)
    #: None while no record has headers.
    headers: list[Headers] | None = None
    offsets: "array[int]" = field(factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, batch: Batch) -> None:
        if batch.headers is not None and self.headers is None:
            self.headers = [()] * len(self)
        if self.headers is not None:
            self.headers += batch.headers if batch.headers is not None else [()] * len(batch)
        self.keys += batch.keys
        self.values += batch.values
        self.timestamps += batch.timestamps
        self.offsets.extend(int64(batch.offsets))

    def take(self, rows: Sequence[int]) -> Batch:
        """Return the records at these rows, which are empty then."""
        return Batch(
            take_rows(self.keys, rows),
            take_rows(self.values, rows),
            take_rows(self.timestamps, rows),
            None if self.headers is None else take_rows(self.headers, rows),
            look_up(rows, self.offsets),
        )


_bound: Callable[[Lane], tuple[int, int]] = attrgetter("bound")


@define(eq=False)
class PartitionLanes:
    """The lanes of one repartition partition, by number.

    ``numbers`` are the lanes of the tasks that may write to the partition.  Records of other producers, and those of
    tasks that the plan does not have, are taken as they come.
    """

    numbers: frozenset[int]
    #: Number of records that are read and not certain, including those to be dropped.
    size: int = 0
    #: In the order of their numbers.
    lanes: dict[int, Lane] = field(init=False)
    #: The open lanes; none when all tasks are at their ends.
    _open: dict[int, Lane] = field(init=False)
    _records: _Records = field(factory=_Records)
    #: Certain records that were added as a batch, and need not be copied.
    _whole: Batch | None = None
    #: Whether records may come again that were processed before a restart.
    _resumes: bool = False
    #: The task that holds back the records of others, or None: for other threads to look at.
    held_by: Hold | None = None
    #: Lanes that are not waited for any more, each with the time of the last movement of its task.
    passed_over: dict[int, int] = field(factory=dict)
    #: Lanes that were passed over at any time: records of theirs may have come too late.
    ever_passed_over: set[int] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.lanes = {number: Lane(number) for number in sorted({NO_LANE, *self.numbers})}
        self._open = {number: self.lanes[number] for number in self.numbers}

    def start_at(self, position: int, ahead: Mapping[int, int]) -> None:
        """Set the committed offset, and by how many offsets lanes were ahead of it; before any record is added."""
        for number in ahead.keys() - self.lanes.keys():
            self._lane(number)
        for number, lane in self.lanes.items():
            lane.next_offset = position + ahead.get(number, 0)
        self._resumes = bool(ahead)

    def add(self, batch: Batch) -> None:
        """Add records in the order of their offsets, without those that were processed before a restart."""
        rows = Lanes.of(batch)
        first = len(self._records)
        parts = split_by_number(rows.lanes, (range(first, first + len(batch)), rows.places, batch.offsets))
        if len(parts) == 1 and self._passes(batch, rows):
            self._whole = batch
            return
        self._records.add(batch)
        for number, (own, places, offsets) in parts.items():
            lane = self._lane(number)
            skipped = bisect_left(offsets, lane.next_offset) if self._resumes else 0
            if skipped < len(own):
                lane.add(own[skipped:], places[skipped:])
                self.size += len(own) - skipped
        for drop in batch.drops:
            lane = self._lane(drop.lane)
            if drop.offset >= lane.next_offset:
                if drop.lane != NO_LANE and drop.place_ms is not None:
                    lane.reached_ms = max(lane.reached_ms, drop.place_ms)
                lane.drops.append((lane.reached_ms, lane.size, evolve(drop, place_ms=lane.reached_ms)))
                self.size += 1

    def _passes(self, batch: Batch, rows: Lanes) -> bool:
        """Whether records of one lane are certain as they come; then their lane has reached the last one."""
        if self._resumes or self.size or batch.drops:
            return False
        lane = self._lane(rows.lanes[0])
        others = min((other.bound for other in self._open.values() if other is not lane), default=None)
        last = rows.places[-1], lane.number
        if rows.places[0] < lane.reached_ms or (others is not None and others < last):
            return False
        lane.reached_ms = rows.places[-1]
        return True

    def _lane(self, number: int) -> Lane:
        """Return a lane; that of a task that the plan does not have is added, but nothing waits for it."""
        lane = self.lanes.get(number)
        if lane is None:
            lane = Lane(number)
            self.lanes = dict(sorted({**self.lanes, number: lane}.items()))
        return lane

    def expect(self, numbers: frozenset[int]) -> bool:
        """Wait for the lanes of further tasks too, from now on; return whether there are any."""
        added = numbers - self.numbers
        for number in sorted(added):
            self._open[number] = self._lane(number)
        self.numbers |= added
        return bool(added)

    def note(self, number: int, place_ms: int, *, is_open: bool) -> None:
        """Set the lowest place of the records that may follow in a lane; without ``is_open`` none is waited for."""
        lane = self.lanes.get(number)
        if lane is not None:
            lane.reached_ms = max(lane.reached_ms, place_ms)
            if is_open:
                self._open[number] = lane
            else:
                self._open.pop(number, None)

    @property
    def holding(self) -> list[int]:
        """The numbers of the open lanes that hold back records of others, in ascending order."""
        last = max(((lane.places[-1], lane.number) for lane in self.lanes.values() if lane.size), default=None)
        return [number for number, lane in sorted(self._open.items()) if last is not None and lane.bound < last]

    @property
    def bound_ms(self) -> int | None:
        """The lowest place that a record not certain yet may have, or None if no lane is open."""
        awaited = self.awaited
        return None if awaited is None else awaited.reached_ms

    @property
    def awaited(self) -> Lane | None:
        """The open lane that holds back the others, or None if no lane is open.

        A lane is open while records may follow for which others wait: its task is behind, or nothing is known of it.
        """
        return min(self._open.values(), key=_bound, default=None) if self._open else None

    def take(self) -> Batch | None:
        """Remove the next certain records, and return them in the order of processing; call it until there are none."""
        if self._whole is not None:
            batch = self._whole
            self._whole = None
            return batch
        waiting = [lane for lane in self.lanes.values() if lane.drops or lane.size]
        if not waiting:
            return None
        awaited = self.awaited
        bound = None if awaited is None else awaited.bound
        dropping: Lane | None = None
        for lane in waiting:
            if lane.drops and (bound is None or (lane.drops[0][0], lane.number) <= bound):
                bound = (lane.drops[0][0], lane.number)
                dropping = lane
        counts = [lane.count_certain(bound) for lane in waiting]
        if not any(counts):
            if dropping is None:
                return None
            # No certain record is before the one to be dropped.
            self.size -= 1
            return Batch([], [], [], None, [], [dropping.drops.popleft()[2]])
        starts = [lane.start for lane in waiting]
        order = merge_order(
            [lane.places[lane.start : lane.start + count] for lane, count in zip(waiting, counts, strict=True)]
        )
        batch = self._records.take(interleaved(order, [lane.rows for lane in waiting], starts))
        places = interleaved(order, [lane.places for lane in waiting], starts)
        numbers = look_up(order, [lane.number for lane in waiting])
        if counts[0] and waiting[0].number == NO_LANE:
            # They were taken as they come; but a place is expected of them in what follows.
            rows = zip(numbers, places, batch.timestamps, strict=True)
            places = int64(time if number == NO_LANE else place for number, place, time in rows)
        batch.lanes = Lanes(numbers, places)
        for lane, count in zip(waiting, counts, strict=True):
            lane.advance(count)
        self.size -= len(batch)
        if 2 * self.size <= len(self._records):
            self._compact()
        return batch

    def uncertain(self) -> Iterator[tuple[Any, int]]:
        """Yield the key and the offset of each record that is not certain."""
        for lane in self.lanes.values():
            for row in lane.rows[lane.start :]:
                yield self._records.keys[row], self._records.offsets[row]

    def _compact(self) -> None:
        """Move the remaining records, which are at most as many as have been taken since the last call."""
        before = self._records
        self._records = _Records()
        for lane in self.lanes.values():
            first = len(self._records)
            if lane.size:
                self._records.add(before.take(lane.rows[lane.start :]))
            lane.move_to(first)

    def processed(self, lanes: Sequence[int], offsets: Sequence[int]) -> None:
        """Note that records with these lanes and offsets, in the order of processing, are processed or dropped."""
        for number, offset in last_by_number(lanes, offsets).items():
            self.lanes[number].next_offset = offset + 1

    def next_position(self, certain_offsets: Iterable[int], following: int) -> int:
        """Return the lowest unprocessed offset.

        ``certain_offsets`` are those of the records that were taken and are not processed; ``following`` is the next
        offset to read.
        """
        lanes = self.lanes.values()
        waiting = (self._records.offsets[lane.rows[lane.start]] for lane in lanes if lane.size)
        dropped = (drop.offset for lane in lanes for _, _, drop in lane.drops)
        return min((*waiting, *dropped, *certain_offsets), default=following)

    def ahead_of(self, position: int) -> dict[int, int]:
        """Return how many offsets each lane is ahead of a position; lanes that are not ahead are left out."""
        return {lane.number: lane.next_offset - position for lane in self.lanes.values() if lane.next_offset > position}
