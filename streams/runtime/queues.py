"""Order in which a task takes its buffered records.

Between the consumer, which adds batches, and the task, which takes runs.  The next record is
always that of the partition with the lowest head timestamp, ties by partition; a run is the
longest sequence whose order is certain.  Pure: no clock, no I/O; imports core only.
KIP-353 and KIP-695 (idling), KIP-258 (partition time).
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from attrs import define, field, frozen

from streams.core.loops import head_places, rows_by_number
from streams.core.records import NO_TIMESTAMP, Headers, TopicPartition
from streams.runtime.arrival import offer, poll
from streams.runtime.lateness import Disorder

#: Records of one partition that are looked at for one mixed run: bounds the work of a take.
_LOOK_AHEAD = 1024

#: Small batches are joined up to this size, so that runs do not get short.
_JOIN_BELOW = 256

_head_ms: Callable[["PartitionQueue"], int] = attrgetter("head_ms")


@frozen
class Drop:
    """A record that cannot be read and is left out.

    It is dropped when it is its turn, not when it is read: what was read ahead of a stop is read again.
    """

    offset: int
    #: Has its handler asked and counts it; returns the error if the task must fail.
    effect: Callable[[], Exception | None]


@define(eq=False)
class Batch:
    """Deserialized records of one partition, as columns of equal length; without any, only its drops count."""

    keys: Sequence[Any]
    values: Sequence[Any]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None
    offsets: Sequence[int]
    #: Right behind the last record.  A run ends here, so that dead letters are in the order of records.
    drops: Sequence[Drop] = ()

    def __len__(self) -> int:
        return len(self.timestamps)


@define(eq=False)
class PartitionQueue:
    """Buffered records of one input partition."""

    partition: TopicPartition
    #: Order among the inputs of the task: ties between head timestamps go to the lower one.
    index: int
    batches: deque[Batch] = field(factory=deque)
    #: Index of the head within the first batch.
    start: int = 0
    size: int = 0
    #: Next offset to process; None until known.
    position: int | None = None
    #: Next offset to be added: position plus what is buffered.
    fetched: int | None = None
    #: End of the log as far as the consumer knows; None until a first fetch told it.
    end_offset: int | None = None
    #: Nothing will ever come after ``end_offset``: the input of a bounded run is read.
    is_ended: bool = False
    #: Written by a cycle that the task is part of: waiting for it would wait for oneself.
    is_loop: bool = False
    #: Highest timestamp taken from this partition.
    partition_time_ms: int = NO_TIMESTAMP
    #: Wall-clock time until which an empty queue is waited for.
    idle_deadline_ms: int | None = None
    #: Error of a record that could not be read, raised when all before it are taken.
    failure: Exception | None = None
    #: Measures how far history is out of order, where a run is over history.
    disorder: Disorder | None = None

    @property
    def head_ms(self) -> int:
        """Timestamp of the next record."""
        return self.batches[0].timestamps[self.start]

    @property
    def is_caught_up(self) -> bool:
        """Whether everything in the log is here or done, as far as known."""
        return self.end_offset is not None and self.fetched is not None and self.fetched >= self.end_offset

    def add(self, batch: Batch) -> None:
        """Append a batch; small ones are joined with the last."""
        if not len(batch):
            if self.batches:
                self.batches[-1].drops = [*self.batches[-1].drops, *batch.drops]
            else:
                self._drop(batch.drops)
            return
        self.size += len(batch)
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
            )
        else:
            self.batches.append(batch)

    def advance(self, count: int, timestamps: Iterable[int]) -> None:
        """Take ``count`` records, which had these timestamps."""
        self.partition_time_ms = max(self.partition_time_ms, max(timestamps))
        self.size -= count
        while count:
            batch = self.batches[0]
            left = len(batch) - self.start
            if count < left:
                self.start += count
                self.position = batch.offsets[self.start - 1] + 1
                return
            self.position = batch.offsets[-1] + 1
            self.batches.popleft()
            self.start = 0
            count -= left
            self._drop(batch.drops)
        if not self.batches and self.failure is None:
            # Markers of transactions may lie behind the last record.
            self.position = self.fetched

    def _drop(self, drops: Iterable[Drop]) -> None:
        for drop in drops:
            failure = drop.effect()
            if failure is not None:
                # As if nothing had been read beyond it.
                self.failure, self.fetched = failure, drop.offset
                self.batches.clear()
                self.start = self.size = 0
                return
            self.position = drop.offset + 1


@define(eq=False)
class Run:
    """Records in the order of processing, as columns of equal length.

    ``queues`` says for each record where it came from; a single queue if all came from one.
    """

    queues: PartitionQueue | list[PartitionQueue]
    keys: Sequence[Any]
    values: Sequence[Any]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None
    offsets: Sequence[int]

    def __len__(self) -> int:
        return len(self.timestamps)

    def queue_of(self, index: int) -> PartitionQueue:
        """Return the queue that a record came from."""
        return self.queues if isinstance(self.queues, PartitionQueue) else self.queues[index]


class TaskQueues:
    """All input queues of one task.

    ``max_idle_ms`` -1 never waits for an empty partition; 0 waits while the log is known or
    may be to have more; above 0 also that long for a producer that is behind.  With
    ``is_bounded`` an empty partition is waited for until its input has ended.
    """

    def __init__(
        self,
        partitions: Sequence[TopicPartition],
        *,
        max_idle_ms: int = 0,
        is_bounded: bool = False,
        max_buffered: int = 1000,
        max_ahead_ms: int | None = None,
        follows_arrival: bool = False,
    ) -> None:
        self._queues = {partition: PartitionQueue(partition, index) for index, partition in enumerate(partitions)}
        self._ordered = list(self._queues.values())
        self._max_idle_ms = max_idle_ms
        self._is_bounded = is_bounded
        self._max_buffered = max_buffered
        self._max_ahead_ms = max_ahead_ms
        #: The heap of non-empty queues that decides ties in the test driver, which takes one record at a time.
        self._arrival: list[PartitionQueue] | None = [] if follows_arrival else None
        #: Highest timestamp taken by the task.
        self.stream_time_ms = NO_TIMESTAMP

    def __getitem__(self, partition: TopicPartition) -> PartitionQueue:
        return self._queues[partition]

    def __iter__(self) -> Any:
        return iter(self._ordered)

    def add(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Buffer a batch of one of the queues; return whether the task can go on behind it."""
        was_empty = not queue.size
        queue.add(batch)
        if queue.disorder is not None:
            queue.disorder.observe(batch.timestamps)
        if was_empty and queue.size and self._arrival is not None:
            offer(self._arrival, queue, _head_ms)
        return queue.failure is None

    def attach(self, partition: TopicPartition) -> None:
        """Add a partition behind the others."""
        queue = PartitionQueue(partition, len(self._ordered))
        self._queues[partition] = queue
        self._ordered.append(queue)

    @property
    def partitions(self) -> Mapping[TopicPartition, PartitionQueue]:
        """Queues by partition, in input order."""
        return self._queues

    @property
    def size(self) -> int:
        """Number of buffered records."""
        return sum(queue.size for queue in self._ordered)

    def paused(self) -> list[TopicPartition]:
        """Return partitions that should not be fetched now: their buffer is full or far ahead."""
        lowest = min((queue.head_ms for queue in self._ordered if queue.size), default=0)
        return [
            queue.partition
            for queue in self._ordered
            if queue.size > self._max_buffered
            or (self._max_ahead_ms is not None and queue.size and queue.head_ms - lowest > self._max_ahead_ms)
        ]

    def take(self, now_ms: int, limit: int, until_stream_time_ms: int | None = None) -> Run | None:
        """Return the longest run whose order is certain, of at most ``limit`` records.

        The run ends with the record that brings stream time to ``until_stream_time_ms``.  None
        if nothing may be processed now.  The records stay until ``done`` is told how many were
        processed.

        Raises:
            StreamsError: the next record could not be read, and its handler says fail.
        """
        filled = []
        for queue in self._ordered:
            if queue.size:
                queue.idle_deadline_ms = None
                filled.append(queue)
            elif queue.failure is not None:
                raise queue.failure
        if not filled or not self._may_start(now_ms):
            return None
        if self._arrival is not None:
            return self._single(self._arrival[0], 1)
        run = self._single(filled[0], limit) if len(self._ordered) == 1 else self._mixed(filled, limit)
        if until_stream_time_ms is not None:
            run = self._cut(run, until_stream_time_ms)
        return run

    def done(self, run: Run, count: int) -> None:
        """Take the first ``count`` records of a run out of the queues."""
        if not count:
            return
        timestamps = run.timestamps if count == len(run) else run.timestamps[:count]
        self.stream_time_ms = max(self.stream_time_ms, max(timestamps))
        if isinstance(run.queues, PartitionQueue):
            if self._arrival is not None:
                poll(self._arrival, _head_ms)
            run.queues.advance(count, timestamps)
            if self._arrival is not None and run.queues.size:
                offer(self._arrival, run.queues, _head_ms)
            return
        taken = rows_by_number([queue.index for queue in run.queues[:count]])
        for index, rows in taken.items():
            self._ordered[index].advance(len(rows), [timestamps[row] for row in rows])

    @property
    def head_ms(self) -> int | None:
        """Return the lowest head timestamp, None if nothing is buffered."""
        return min((queue.head_ms for queue in self._ordered if queue.size), default=None)

    def next_deadline_ms(self) -> int | None:
        """Return when waiting for an empty partition ends, if that alone holds the task."""
        deadlines = [queue.idle_deadline_ms for queue in self._ordered if queue.idle_deadline_ms is not None]
        return max(deadlines) if deadlines and self.size else None

    @property
    def is_ended(self) -> bool:
        """Whether every input has ended and all its records are taken."""
        return all(queue.is_ended and not queue.size and queue.is_caught_up for queue in self._ordered)

    @property
    def is_caught_up(self) -> bool:
        """Whether all that the logs have is here or done, as far as known."""
        return all(queue.is_caught_up for queue in self._ordered)

    def _may_start(self, now_ms: int) -> bool:
        """Check whether every empty partition may be left behind (KIP-695).

        Partitions are waited for one after the other: the wait for the next begins when that for
        the one before it has ended, or when it has records.
        """
        for queue in self._ordered:
            if queue.size or queue.is_loop or (self._max_idle_ms < 0 and not self._is_bounded):
                continue
            if self._is_bounded:
                if not (queue.is_ended and queue.is_caught_up):
                    return False
            elif not queue.is_caught_up:
                return False
            else:
                if queue.idle_deadline_ms is None:
                    queue.idle_deadline_ms = now_ms + self._max_idle_ms
                if now_ms < queue.idle_deadline_ms:
                    return False
        return True

    def _must_wait(self, queue: PartitionQueue) -> bool:
        """Check whether the task has to stop when this queue runs empty."""
        if queue.is_loop:
            return False
        if self._is_bounded:
            return not (queue.is_ended and queue.is_caught_up)
        if queue.failure is not None:
            return True
        return self._max_idle_ms > 0 or (self._max_idle_ms == 0 and not queue.is_caught_up)

    def _single(self, queue: PartitionQueue, limit: int) -> Run:
        batch, start = queue.batches[0], queue.start
        stop = min(len(batch), start + limit)
        if start == 0 and stop == len(batch):
            return Run(queue, batch.keys, batch.values, batch.timestamps, batch.headers, batch.offsets)
        part = slice(start, stop)
        headers = None if batch.headers is None else batch.headers[part]
        return Run(queue, batch.keys[part], batch.values[part], batch.timestamps[part], headers, batch.offsets[part])

    def _mixed(self, filled: list[PartitionQueue], limit: int) -> Run:
        """Merge by lowest head timestamp, ties by input.

        Taking the lowest head first is the same as sorting by the running maximum of each
        partition's timestamps: a record behind a higher one of its partition waits for it.
        """
        width = len(self._ordered)
        look = min(limit, _LOOK_AHEAD)
        parts: list[tuple[PartitionQueue, slice, list[int]]] = []
        certain: int | None = None
        for queue in filled:
            batch = queue.batches[0]
            part = slice(queue.start, min(len(batch), queue.start + look))
            order = head_places(batch.timestamps[part], width, queue.index)
            is_whole = part.stop == len(batch) and len(queue.batches) == 1 and not batch.drops
            if (not is_whole or self._must_wait(queue)) and (certain is None or order[-1] < certain):
                certain = order[-1]
            parts.append((queue, part, order))
        if certain is not None:
            parts = [
                (queue, slice(part.start, part.start + count), order[:count])
                for queue, part, order in parts
                if (count := bisect_right(order, certain))
            ]
        if len(parts) == 1:
            queue, part, _ = parts[0]
            return self._single(queue, part.stop - part.start)
        return _merge(parts, limit)

    def _cut(self, run: Run, until_ms: int) -> Run:
        """Shorten a run to the record that brings stream time to ``until_ms``."""
        if max(run.timestamps) < until_ms:
            return run
        count = next(index for index, time in enumerate(run.timestamps) if time >= until_ms) + 1
        return _head(run, count)


def _merge(parts: list[tuple[PartitionQueue, slice, list[int]]], limit: int) -> Run:
    keys: list[Any] = []
    values: list[Any] = []
    timestamps: list[int] = []
    offsets: list[int] = []
    queues: list[PartitionQueue] = []
    order: list[int] = []
    has_headers = any(queue.batches[0].headers is not None for queue, _, _ in parts)
    headers: list[Headers] | None = [] if has_headers else None
    for queue, part, positions in parts:
        batch = queue.batches[0]
        keys += batch.keys[part]
        values += batch.values[part]
        timestamps += batch.timestamps[part]
        offsets += batch.offsets[part]
        queues += [queue] * len(positions)
        order += positions
        if headers is not None:
            headers += batch.headers[part] if batch.headers is not None else [()] * len(positions)
    pick = itemgetter(*sorted(range(len(order)), key=order.__getitem__))
    run = Run(
        list(pick(queues)),
        pick(keys),
        pick(values),
        pick(timestamps),
        None if headers is None else pick(headers),
        pick(offsets),
    )
    return run if len(run) <= limit else _head(run, limit)


def _head(run: Run, count: int) -> Run:
    return Run(
        run.queues if isinstance(run.queues, PartitionQueue) else run.queues[:count],
        run.keys[:count],
        run.values[:count],
        run.timestamps[:count],
        None if run.headers is None else run.headers[:count],
        run.offsets[:count],
    )
