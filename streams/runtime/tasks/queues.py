"""Input queues of a task: records buffered by partition, and the order in which they are processed.

Batches of records are added as they are fetched, and the task takes runs of consecutive records.  The next record is
from the partition with the lowest head timestamp; of equal timestamps, the first partition has precedence (``order``).
A run is the longest sequence of records whose order is certain.  The module is pure: it reads no clock and performs no
I/O.  It implements KIP-353 and KIP-695 (idling), and KIP-258 (partition time).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from attrs import define, field

from streams.core.blocks.loops import running_max, split_by_number
from streams.core.blocks.records import NO_TIMESTAMP, Headers, Lanes, TopicPartition, places_of
from streams.core.metrics import Counter
from streams.runtime.tasks.batches import Batch, Drop
from streams.runtime.tasks.lane_queue import PartitionLanes
from streams.runtime.tasks.lateness import Disorder
from streams.runtime.tasks.order import Span, certain, lowest_head, merge
from streams.runtime.tasks.recording import OrderRecorder

#: Maximum number of records of one partition in a mixed run; bounds the work of ``take``.
_LOOK_AHEAD = 1024

#: Batches with fewer records are joined, to avoid short runs.
_JOIN_BELOW = 256

_head_ms: Callable[["PartitionQueue"], int] = attrgetter("head_ms")


@define(eq=False)
class PartitionQueue:
    """Buffered records of one input partition."""

    partition: TopicPartition
    #: Position among the inputs of the task; between equal head timestamps, the lower index has precedence.
    index: int
    batches: deque[Batch] = field(factory=deque)
    #: Index of the next record within the first batch.
    start: int = 0
    #: Records to be dropped before the first batch, when their places are reached.
    drops: deque[Drop] = field(factory=deque)
    #: Number of buffered records, including those to be dropped.
    size: int = 0
    #: Next offset to process, or None until known; with lanes, the one at which the task was opened.
    _position: int | None = None
    #: Next offset to be buffered: after the position and the buffered records.
    fetched: int | None = None
    #: Log end offset known to the consumer, or None before the first fetch.
    end_offset: int | None = None
    #: Whether ``end_offset`` is final, so that no further record will follow.
    is_ended: bool = False
    #: Whether a task of the same cycle writes this partition, so that waiting for it would block the cycle.
    is_loop: bool = False
    #: Highest timestamp taken from this partition.
    partition_time_ms: int = NO_TIMESTAMP
    #: Wall-clock deadline of the wait while the queue is empty.
    idle_deadline_ms: int | None = None
    #: Error of a record that cannot be deserialized; raised when all earlier records are processed.
    failure: Exception | None = None
    #: Measures the disorder of the records, or None if not requested.
    disorder: Disorder | None = None
    #: The lanes of a repartition partition, before whose records the order is not certain; None for other inputs.
    lanes: PartitionLanes | None = None
    #: Number of records that were dropped because they cannot be deserialized.
    dropped: int = 0

    @property
    def position(self) -> int | None:
        """The next offset to process, or None until known; with lanes, the lowest unprocessed offset."""
        if self.lanes is None or self.fetched is None:
            return self._position
        unprocessed = chain.from_iterable(self._unprocessed())
        return self.lanes.next_position(unprocessed, self.fetched)

    @position.setter
    def position(self, position: int | None) -> None:
        self._position = position

    def _unprocessed(self) -> Iterator[Iterable[int]]:
        """Yield the offsets of the buffered records whose order is certain."""
        yield (drop.offset for drop in self.drops)
        start = self.start
        for batch in self.batches:
            yield batch.offsets[start:] if start else batch.offsets
            yield (drop.offset for drop in batch.drops)
            start = 0

    @property
    def head_ms(self) -> int:
        """The place of the next record in the queue, which is its timestamp if the queue is that of a source."""
        if self.drops:
            place_ms = self.drops[0].place_ms
            assert place_ms is not None
            return place_ms
        return places_of(self.batches[0])[self.start]

    @property
    def head_offset(self) -> int:
        """The offset of the next record in the queue."""
        return self.drops[0].offset if self.drops else self.batches[0].offsets[self.start]

    @property
    def is_caught_up(self) -> bool:
        """Whether all records up to the known end offset of the partition are buffered or processed."""
        return self.end_offset is not None and self.fetched is not None and self.fetched >= self.end_offset

    @property
    def is_drained(self) -> bool:
        """Whether no record is buffered and none will follow, except from the task's own cycle."""
        return not self.size and (self.is_ended or self.is_loop) and self.is_caught_up

    @property
    def is_at_end(self) -> bool:
        """Whether all known records are processed, and none of a lane is awaited."""
        is_waiting = self.awaits_lanes or (self.lanes is not None and self.lanes.size)
        return not self.size and self.failure is None and self.is_caught_up and not is_waiting

    @property
    def awaits_lanes(self) -> bool:
        """Whether tasks may write records that are earlier than others."""
        return self.lanes is not None and self.lanes.awaited is not None

    @property
    def bound_ms(self) -> int:
        """The lowest place of the next record, as far as it is known."""
        if self.size:
            return self.head_ms
        bound_ms = None if self.lanes is None else self.lanes.bound_ms
        return self.partition_time_ms if bound_ms is None else bound_ms

    @property
    def is_certain(self) -> bool:
        """Whether the partition's next record is known: buffered, impossible to deserialize, or certainly absent."""
        return self.size > 0 or self.failure is not None or self.is_drained

    @property
    def lag(self) -> int:
        """The number of unprocessed records up to the known end offset."""
        return self.waiting + max(0, (self.end_offset or 0) - (self.fetched or 0))

    @property
    def waiting(self) -> int:
        """The number of records that were added and are not processed, including those to be dropped."""
        return self.size + (0 if self.lanes is None else self.lanes.size)

    def add(self, batch: Batch) -> None:
        """Append a batch of records; a small batch is joined with the last batch in the queue."""
        if self.lanes is None:
            self._append(batch)
        else:
            self.lanes.add(batch)
            self.merge()

    def merge(self) -> None:
        """Buffer the records of the lanes whose order has become certain."""
        assert self.lanes is not None
        while (batch := self.lanes.take()) is not None:
            self._append(batch)

    def _append(self, batch: Batch) -> None:
        self.size += len(batch) + len(batch.drops)
        if not len(batch):
            if self.batches:
                self.batches[-1].drops = [*self.batches[-1].drops, *batch.drops]
            else:
                self._reach(batch.drops)
            return
        self.idle_deadline_ms = None
        last = self.batches[-1] if self.batches else None
        if last is not None and not last.drops and len(batch) < _JOIN_BELOW and len(last) < _JOIN_BELOW:
            headers = None
            if last.headers is not None or batch.headers is not None:
                headers = [*(last.headers or [()] * len(last)), *(batch.headers or [()] * len(batch))]
            self.batches[-1] = Batch(
                [*last.keys, *batch.keys],
                [*last.values, *batch.values],
                [*last.timestamps, *batch.timestamps],
                headers,
                [*last.offsets, *batch.offsets],
                batch.drops,
                Lanes.joined([last, batch]),
            )
        else:
            self.batches.append(batch)

    def advance(self, count: int, timestamps: Iterable[int]) -> None:
        """Remove the first ``count`` records, whose timestamps are given."""
        self.partition_time_ms = max(self.partition_time_ms, max(timestamps))
        self.size -= count
        while count:
            batch = self.batches[0]
            left = len(batch) - self.start
            stop = self.start + min(count, left)
            if self.lanes is not None:
                part = slice(self.start, stop)
                self.lanes.processed(Lanes.of(batch).lanes[part], batch.offsets[part])
            if count < left:
                self.start = stop
                self.position = batch.offsets[stop - 1] + 1
                return
            self.position = batch.offsets[-1] + 1
            self.batches.popleft()
            self.start = 0
            count -= left
            self._reach(batch.drops)
        if not self.size and self.failure is None:
            # Transaction markers may follow the last record.
            self.position = self.fetched

    def _reach(self, drops: Iterable[Drop]) -> None:
        """Drop the next records, unless they wait for their places."""
        self.drops.extend(drops)
        while self.drops and self.drops[0].place_ms is None:
            self.drop()

    def drop(self) -> None:
        """Drop the next record, which is one to be dropped."""
        drop = self.drops.popleft()
        self.size -= 1
        failure = drop.effect()
        if failure is not None:
            # Continue as if nothing from the failed record on had been fetched.
            self.failure = failure
            self.fetched = drop.offset
            self.batches.clear()
            self.drops.clear()
            self.start = self.size = 0
            return
        # Transaction markers may follow, which are read by now if the record has waited for its place.
        self.position = drop.offset + 1 if self.size else max(drop.offset + 1, self.fetched or 0)
        self.dropped += 1
        if self.lanes is not None:
            self.lanes.processed([drop.lane], [drop.offset])


@define(eq=False)
class Run:
    """Consecutive records in processing order, as columns of equal length.

    ``queues`` has the queue of each record, or a single queue for all records.
    """

    queues: PartitionQueue | list[PartitionQueue]
    keys: Sequence[Any]
    values: Sequence[Any]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None
    offsets: Sequence[int]
    places: Sequence[int]

    def __len__(self) -> int:
        return len(self.timestamps)

    def head(self, count: int) -> "Run":
        """Return a run of the first ``count`` records of this run."""
        return Run(
            self.queues if isinstance(self.queues, PartitionQueue) else self.queues[:count],
            self.keys[:count],
            self.values[:count],
            self.timestamps[:count],
            None if self.headers is None else self.headers[:count],
            self.offsets[:count],
            self.places[:count],
        )

    def part(self, start: int, stop: int | None = None) -> "Run":
        """Return a run of the records from ``start`` up to ``stop``, exclusive (by default the end), of one queue."""
        part = slice(start, stop)
        headers = None if self.headers is None else self.headers[part]
        columns = self.keys[part], self.values[part], self.timestamps[part], headers, self.offsets[part]
        return Run(self.queues, *columns, self.places[part])

    def queue_of(self, index: int) -> PartitionQueue:
        """Return the queue of the record at ``index`` in the run."""
        return self.queues if isinstance(self.queues, PartitionQueue) else self.queues[index]


class TaskQueues:
    """All input queues of one task.

    ``max_idle_ms`` controls the wait for an empty partition (``max.task.idle.ms``):

    - -1: the task does not wait.
    - 0: the task waits while the partition's log has, or may have, records that are not fetched.
    - Above 0: the task waits this many milliseconds longer, for a slow producer.
    - None: the task waits until the input has ended.
    """

    def __init__(
        self,
        partitions: Sequence[TopicPartition],
        *,
        max_idle_ms: int | None = 0,
        max_buffered: int = 1000,
        max_ahead_ms: int | None = None,
        lanes: Mapping[TopicPartition, PartitionLanes] | None = None,
    ) -> None:
        self._queues = {partition: PartitionQueue(partition, index) for index, partition in enumerate(partitions)}
        self._ordered = list(self._queues.values())
        for partition, own in (lanes or {}).items():
            self._queues[partition].lanes = own
        self._max_idle_ms = max_idle_ms
        self._max_buffered = max_buffered
        self._max_ahead_ms = max_ahead_ms
        #: Highest timestamp processed by the task.
        self.stream_time_ms = NO_TIMESTAMP
        #: The empty partition for which the task waits although others have records, with the start time (wall clock).
        self.awaited: tuple[PartitionQueue, int] | None = None
        #: Counts expired waits for an empty partition, after which a run is taken without it (enforced processing).
        self.enforced = Counter()
        #: Records the order of processing, or None without a flight recorder.
        self.recorder: OrderRecorder | None = None

    def __getitem__(self, partition: TopicPartition) -> PartitionQueue:
        return self._queues[partition]

    def __iter__(self) -> Iterator[PartitionQueue]:
        return iter(self._ordered)

    def add(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Buffer a batch in a queue; return whether more batches may be added to this queue."""
        queue.add(batch)
        if queue.disorder is not None:
            queue.disorder.observe(batch.timestamps)
        return queue.failure is None

    def attach(self, partition: TopicPartition) -> None:
        """Add an input partition after the existing input partitions."""
        queue = PartitionQueue(partition, len(self._ordered))
        self._queues[partition] = queue
        self._ordered.append(queue)

    @property
    def dropped(self) -> int:
        """The number of records of all queues that were dropped because they cannot be deserialized."""
        return sum(queue.dropped for queue in self._ordered)

    @property
    def partitions(self) -> Mapping[TopicPartition, PartitionQueue]:
        """The queues by partition, in the order of the task's inputs."""
        return self._queues

    @property
    def size(self) -> int:
        """The number of buffered records in all queues."""
        return sum(queue.size for queue in self._ordered)

    def to_pause(self) -> list[TopicPartition]:
        """Return the partitions to pause, because their queue is full or too far ahead of the lowest head timestamp."""
        lowest = self.head_ms or 0
        return [
            queue.partition
            for queue in self._ordered
            if queue.size > self._max_buffered
            or (self._max_ahead_ms is not None and queue.size and queue.head_ms - lowest > self._max_ahead_ms)
        ]

    def take(
        self, now_ms: int, limit: int, until_stream_time_ms: int | None = None, chosen: PartitionQueue | None = None
    ) -> Run | None:
        """Return the longest run of consecutive records whose order is certain, at most ``limit`` records.

        Records before it that are to be dropped at their places are dropped now, and count.

        The run ends with the record that advances stream time to ``until_stream_time_ms``.  The result is None if
        nothing may be processed now.  The records stay in the queues until ``done`` is called with the number of
        processed records.  With ``chosen``, the run is taken from that queue even if another queue has the lowest head
        timestamp.

        Raises:
            StreamsError: the next record cannot be deserialized, and the handler returned "fail".
        """
        if self.recorder is not None:
            self.recorder.now_ms = now_ms
        while limit:
            following = self._next(now_ms, limit, chosen)
            if following is None:
                return None
            if isinstance(following, Run):
                return following if until_stream_time_ms is None else self._cut(following, until_stream_time_ms)
            following.drop()
            limit -= 1
        return None

    def _next(self, now_ms: int, limit: int, chosen: PartitionQueue | None) -> Run | PartitionQueue | None:
        """Return the next run, or the queue whose next record is to be dropped first, or None if the task waits."""
        filled = []
        for queue in self._ordered:
            if queue.size:
                queue.idle_deadline_ms = None
                filled.append(queue)
            elif queue.failure is not None:
                raise queue.failure
        if not filled:
            self.awaited = None
            return None
        blocking = self._blocking(now_ms)
        if blocking is not None:
            self._await(blocking, now_ms)
            return None
        following: Run | PartitionQueue | None
        if chosen is not None:
            following = self._single(chosen, limit) if chosen.size else None
        else:
            following = self._single(filled[0], limit) if len(self._ordered) == 1 else self._mixed(filled, limit)
            if following is None:
                blocking = next(queue for queue in self._ordered if queue.awaits_lanes and not queue.size)
                self._await(blocking, now_ms)
                return None
        self.awaited = None
        return following

    def _await(self, blocking: PartitionQueue, now_ms: int) -> None:
        if self.awaited is None or self.awaited[0] is not blocking:
            self.awaited = (blocking, now_ms)

    def done(self, run: Run, count: int) -> list[tuple[PartitionQueue, Sequence[int]]]:
        """Remove the first ``count`` records of a run from the queues, and return the removed timestamps by queue."""
        if not count:
            return []
        timestamps = run.timestamps if count == len(run) else run.timestamps[:count]
        self.stream_time_ms = max(self.stream_time_ms, max(timestamps))
        if isinstance(run.queues, PartitionQueue):
            run.queues.advance(count, timestamps)
            if self.recorder is not None:
                self.recorder.took(run.queues.index, count)
            return [(run.queues, timestamps)]
        result: list[tuple[PartitionQueue, Sequence[int]]] = []
        indices = [queue.index for queue in run.queues[:count]]
        if self.recorder is not None:
            self.recorder.took_mixed(indices, len(self._ordered))
        for index, (times,) in split_by_number(indices, [timestamps]).items():
            queue = self._ordered[index]
            queue.advance(len(times), times)
            result.append((queue, times))
        return result

    @property
    def head(self) -> PartitionQueue | None:
        """The queue with the lowest head timestamp, or None if nothing is buffered."""
        return lowest_head((queue for queue in self._ordered if queue.size), _head_ms)

    @property
    def head_ms(self) -> int | None:
        """The lowest head timestamp, or None if nothing is buffered."""
        queue = self.head
        return None if queue is None else queue.head_ms

    @property
    def has_failed(self) -> bool:
        """Whether the next record of any partition fails the task, because it cannot be deserialized."""
        return any(queue.failure is not None and not queue.size for queue in self._ordered)

    def next_deadline_ms(self) -> int | None:
        """Return the time until which the task waits for records of empty partitions, or None if it does not wait.

        A wait for records that are not fetched yet has no deadline.
        """
        if self.awaits_fetch:
            return None
        deadlines = [queue.idle_deadline_ms for queue in self._ordered if queue.idle_deadline_ms is not None]
        return max(deadlines) if deadlines and self.size else None

    @property
    def awaits_fetch(self) -> bool:
        """Whether the last attempt to process had to wait for records of an empty partition: fetched ones, or lanes."""
        if self.awaited is None:
            return False
        queue, _ = self.awaited
        return not (queue.size or queue.failure or (queue.is_caught_up and not queue.awaits_lanes))

    @property
    def is_certain(self) -> bool:
        """Whether the next record of each partition is known, so that the order of processing is certain."""
        return all(queue.is_certain for queue in self._ordered)

    @property
    def is_drained(self) -> bool:
        """Whether no record is buffered and none will follow, except from the task's own cycle."""
        return all(queue.is_drained for queue in self._ordered)

    @property
    def is_caught_up(self) -> bool:
        """Whether all records up to the known end offsets are buffered or processed."""
        return all(queue.is_caught_up for queue in self._ordered)

    def _blocking(self, now_ms: int) -> PartitionQueue | None:
        """Return the empty partition for which the task must wait, or None (KIP-695).

        The task waits for one partition after the other: the wait for a partition begins when the previous partition
        has records or its wait has expired.
        """
        max_idle_ms = self._max_idle_ms
        for queue in self._ordered:
            if queue.size or queue.is_loop or max_idle_ms == -1:
                continue
            if queue.awaits_lanes:
                # Earlier records of the other inputs need not wait (``_mixed``).
                continue
            if not queue.is_caught_up:
                return queue
            if max_idle_ms is None:
                if not queue.is_ended:
                    return queue
                continue
            if queue.idle_deadline_ms is None:
                queue.idle_deadline_ms = now_ms + max_idle_ms
            if now_ms < queue.idle_deadline_ms:
                return queue
            if max_idle_ms:
                self.enforced.value += 1
        return None

    def _must_wait(self, queue: PartitionQueue) -> bool:
        """Return whether the task must wait for this queue once it is empty."""
        if queue.is_loop:
            return False
        if queue.awaits_lanes:
            return True
        if self._max_idle_ms is None:
            return not (queue.is_ended and queue.is_caught_up)
        if queue.failure is not None:
            return True
        return self._max_idle_ms > 0 or (self._max_idle_ms == 0 and not queue.is_caught_up)

    def _single(self, queue: PartitionQueue, limit: int) -> Run | PartitionQueue:
        """Return a run of one queue, or the queue if its next record is to be dropped."""
        if queue.drops:
            return queue
        batch = queue.batches[0]
        start = queue.start
        stop = min(len(batch), start + limit)
        if start == 0 and stop == len(batch):
            return Run(
                queue, batch.keys, batch.values, batch.timestamps, batch.headers, batch.offsets, places_of(batch)
            )
        part = slice(start, stop)
        headers = None if batch.headers is None else batch.headers[part]
        timestamps = batch.timestamps[part]
        places = timestamps if batch.lanes is None else batch.lanes.places[part]
        return Run(queue, batch.keys[part], batch.values[part], timestamps, headers, batch.offsets[part], places)

    def _mixed(self, filled: list[PartitionQueue], limit: int) -> Run | PartitionQueue | None:
        """Merge the records of several queues whose order is certain, and return them as a run.

        The run has at most ``limit`` records.  The result is a queue if its next record is to be dropped before all
        others, and None if the lanes of a queue may have an earlier record.
        """
        look = min(limit, _LOOK_AHEAD)
        spans = []
        for queue in filled:
            if queue.drops:
                continue
            batch = queue.batches[0]
            start = queue.start
            stop = min(len(batch), start + look)
            is_whole = stop == len(batch) and len(queue.batches) == 1 and not batch.drops
            places = running_max(places_of(batch)[start:stop])
            spans.append(Span(queue, batch, queue.index, start, places, not is_whole or self._must_wait(queue)))
        bounds = [(queue.head_ms, queue.index) for queue in filled if queue.drops]
        bounds += (
            (bound_ms, queue.index)
            for queue in self._ordered
            if not queue.size and queue.lanes is not None and (bound_ms := queue.lanes.bound_ms) is not None
        )
        spans = certain(spans, bounds)
        if not spans:
            first = self._ordered[min(bounds)[1]]
            return first if first.drops else None
        if len(spans) == 1:
            return self._single(spans[0].input, len(spans[0].places))
        merged = merge(spans)
        run = Run(
            list(map([span.input for span in spans].__getitem__, merged.order)),
            merged.keys,
            merged.values,
            merged.timestamps,
            merged.headers,
            merged.offsets,
            merged.places,
        )
        return run if len(run) <= limit else run.head(limit)

    def _cut(self, run: Run, until_ms: int) -> Run:
        """Return a run that ends with the record that advances stream time to ``until_ms``."""
        if max(run.timestamps) < until_ms:
            return run
        count = next(index for index, time in enumerate(run.timestamps) if time >= until_ms) + 1
        return run.head(count)
