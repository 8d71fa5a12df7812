"""The lanes of a repartition partition in a live run: records wait here until their order is certain.

A lane contains the records that one task has written to the partition.  The records of all lanes are taken by place,
then by lane, as in a bounded run (``order``).  A bounded run reads each lane from a log of its own, and knows where it
ends.  Here the lanes share one log, and a record is certain when no lane can bring an earlier one: each open lane has
reached its place, by a record or by a mark that its task has published.

Records are therefore not processed in the order of their offsets.  A commit has the lowest unprocessed offset, and how
far each lane is ahead of it; the records of a lane are processed in the order of their offsets, so that this is
everything.  The module is pure: it reads no clock and performs no I/O.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from attrs import define, field

from streams.core.loops import head_places, rows_by_number
from streams.core.records import NO_LANE, NO_TIMESTAMP, Lanes
from streams.runtime.batches import Batch
from streams.runtime.order import Span, merge


@define(eq=False)
class Lane:
    """The records of one task that are read and not certain yet, and what is known of those that follow."""

    number: int
    #: Position among the lanes of the partition; of equal places, the record of the lower one is first.
    index: int
    #: Batches, each with the sort keys of its records.
    batches: deque[tuple[Batch, list[int]]] = field(factory=deque)
    #: Index of the next record within the first batch.
    start: int = 0
    #: The lowest place that a record may have which is not read yet.
    reached_ms: int = NO_TIMESTAMP
    #: The next offset to process; records below it were processed before a restart.
    next_offset: int = 0

    @property
    def first_offset(self) -> int:
        """The offset of the next record that is not certain, or of the next one to be dropped; there must be one."""
        batch, _ = self.batches[0]
        return batch.offsets[self.start] if len(batch) else batch.drops[0].offset


@define(eq=False)
class PartitionLanes:
    """The lanes of one repartition partition, by number.

    ``numbers`` are the lanes of the tasks that may write to the partition.  Records of other producers, and those of
    tasks that the plan does not have, are taken as they come.
    """

    numbers: frozenset[int]
    #: Number of records that are read and not certain.
    size: int = 0
    lanes: dict[int, Lane] = field(init=False)
    #: The open lanes; none when all tasks are at their ends.
    _open: dict[int, Lane] = field(init=False)
    #: Whether records may come again that were processed before a restart.
    _resumes: bool = False
    #: The lane that holds back others, and since when (monotonic milliseconds), or None: for other threads to look at.
    held_by: tuple[int, int] | None = None
    #: Lanes that are not waited for any more, each with the time of the last movement of its task.
    passed_over: dict[int, int] = field(factory=dict)
    #: Lanes that were passed over at any time: records of theirs may have come too late.
    ever_passed_over: set[int] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        numbers = sorted({NO_LANE, *self.numbers})
        self.lanes = {number: Lane(number, index) for index, number in enumerate(numbers)}
        self._open = {number: self.lanes[number] for number in self.numbers}

    def start_at(self, position: int, ahead: Mapping[int, int]) -> None:
        """Set the committed offset, and by how many offsets lanes were ahead of it; before any record is added."""
        for number in ahead.keys() - self.lanes.keys():
            self._new_lane(number)
        for number, lane in self.lanes.items():
            lane.next_offset = position + ahead.get(number, 0)
        self._resumes = bool(ahead)

    def add(self, batch: Batch) -> None:
        """Add records in the order of their offsets, without those that were processed before a restart."""
        lanes = Lanes.of(batch).lanes
        if not batch.drops and lanes.count(lanes[0]) == len(batch):
            self._append(lanes[0], batch)
            return
        for number, indexes in rows_by_number(lanes).items():
            self._append(number, batch.pick(indexes))
        for drop in batch.drops:
            # In a batch of its own, which becomes the next one of its lane.
            self._append(drop.lane, Batch([], [], [], None, [], [drop], Lanes.none(0)))

    def _append(self, number: int, batch: Batch) -> None:
        lane = self.lanes.get(number) or self._new_lane(number)
        if self._resumes:
            first = bisect_left(batch.offsets, lane.next_offset)
            batch.drops = [drop for drop in batch.drops if drop.offset >= lane.next_offset]
            if first and first < len(batch):
                batch = batch.slice(first, len(batch), batch.drops)
            elif first or not (len(batch) or batch.drops):
                return
        rows = Lanes.of(batch)
        if len(batch) and rows.places[0] < lane.reached_ms:
            # A task that was started again repeats records.
            batch.lanes = Lanes(rows.lanes, list(accumulate(rows.places, max, initial=lane.reached_ms))[1:])
        keys = self._keys(lane, batch)
        if keys:
            lane.reached_ms = keys[-1] // self._width
        lane.batches.append((batch, keys))
        self.size += len(batch)

    def _keys(self, lane: Lane, batch: Batch) -> list[int]:
        places = Lanes.of(batch).places or [max(lane.reached_ms, drop.place_ms) for drop in batch.drops]
        return head_places(places, self._width, lane.index)

    def _new_lane(self, number: int) -> Lane:
        """Add the lane of a task that the plan does not have: its records are taken, but nothing waits for it."""
        lane = self.lanes[number] = Lane(number, 0)
        for index, (_, own) in enumerate(sorted(self.lanes.items())):
            own.index = index
            own.batches = deque((batch, self._keys(own, batch)) for batch, _ in own.batches)
        return lane

    def expect(self, numbers: frozenset[int]) -> bool:
        """Wait for the lanes of further tasks too, from now on; return whether there are any."""
        added = numbers - self.numbers
        for number in sorted(added):
            self._open[number] = self.lanes.get(number) or self._new_lane(number)
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
    def bound_ms(self) -> int | None:
        """The lowest place that a record not certain yet may have, or None if no lane is open."""
        awaited = self.awaited
        return None if awaited is None else awaited.reached_ms

    @property
    def awaited(self) -> Lane | None:
        """The open lane that holds back the others, or None if no lane is open.

        A lane is open while records may follow for which others wait: its task is behind, or nothing is known of it.
        """
        return min(self._open.values(), key=self._bound, default=None) if self._open else None

    def _bound(self, lane: Lane) -> int:
        return lane.reached_ms * self._width + lane.index

    def take(self) -> Batch | None:
        """Remove the next certain records, and return them in the order of processing; call it until there are none."""
        waiting = [lane for lane in self.lanes.values() if lane.batches]
        if not waiting:
            return None
        awaited = self.awaited
        limits = [] if awaited is None else [self._bound(awaited)]
        for lane in waiting:
            batch, keys = lane.batches[0]
            if len(lane.batches) > 1 or batch.drops:
                limits.append(keys[-1])
        limit = min(limits, default=None)
        spans: list[Span[Lane, Batch]] = []
        dropping: Lane | None = None
        for lane in waiting:
            batch, keys = lane.batches[0]
            stop = len(keys) if limit is None else bisect_right(keys, limit, lane.start)
            if batch.drops:
                dropping = lane if stop else dropping
            elif stop > lane.start:
                spans.append(Span(lane, batch, lane.start, keys[lane.start : stop]))
        if not spans:
            # No certain record is before the one to be dropped.
            return None if dropping is None else self._taken(dropping, 0)
        if len(spans) == 1:
            return self._taken(spans[0].input, len(spans[0].places))
        merged = merge(spans)
        offsets: list[int] = []
        lanes: list[int] = []
        places: list[int] = []
        for span in spans:
            part = slice(span.start, span.stop)
            rows = Lanes.of(span.columns)
            offsets += span.columns.offsets[part]
            lanes += rows.lanes[part]
            places += rows.places[part]
            self._taken(span.input, len(span.places))
        pick = merged.pick
        return Batch(
            merged.keys,
            merged.values,
            merged.timestamps,
            merged.headers,
            pick(offsets),
            lanes=Lanes(pick(lanes), pick(places)),
        )

    def _taken(self, lane: Lane, count: int) -> Batch:
        """Remove the first ``count`` records of the first batch of a lane, and return them."""
        batch, _ = lane.batches[0]
        start, stop = lane.start, lane.start + count
        self.size -= count
        if stop == len(batch):
            lane.batches.popleft()
            lane.start = 0
            return batch.slice(start, stop) if start else batch
        lane.start = stop
        return batch.slice(start, stop)

    def processed(self, lanes: Sequence[int], offsets: Sequence[int]) -> None:
        """Note that records with these lanes and offsets, in the order of processing, are processed or dropped."""
        for number, offset in dict(zip(lanes, offsets, strict=True)).items():
            self.lanes[number].next_offset = offset + 1

    def next_position(self, certain_offsets: Iterable[int], following: int) -> int:
        """Return the lowest unprocessed offset.

        ``certain_offsets`` are those of the records that were taken and are not processed; ``following`` is the next
        offset to read.
        """
        waiting = (lane.first_offset for lane in self.lanes.values() if lane.batches)
        return min((*waiting, *certain_offsets), default=following)

    def ahead_of(self, position: int) -> dict[int, int]:
        """Return how many offsets each lane is ahead of a position; lanes that are not ahead are left out."""
        return {lane.number: lane.next_offset - position for lane in self.lanes.values() if lane.next_offset > position}

    @property
    def _width(self) -> int:
        return len(self.lanes)
