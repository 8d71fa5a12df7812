"""The order of inputs, punctuations and outputs with equal times, as in the test driver of Kafka Streams.

Live, bounded and replayed tasks decide between equal times by input and by order of scheduling. Kafka Streams keeps the
non-empty queues and the punctuations of a task in a ``java.util.PriorityQueue``, and reinserts each after its record or
call, so the heap determines the order. Because the test driver of Kafka Streams makes this order visible, our driver
implements the same heap with ``offer`` and ``poll``; ``heapq`` would give a different order.
"""

from collections.abc import Callable
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from attrs import define, field

from streams.core.blocks.records import Block, TopicPartition
from streams.core.serdes.serdes import Serde
from streams.runtime import PartitionQueue, Policy, StageTask, TimerHeap, TimerRow, TopicColumns

T = TypeVar("T")

_head_ms: Callable[[PartitionQueue], int] = attrgetter("head_ms")
_due_ms: Callable[[TimerRow], int] = itemgetter(0)


def offer(heap: list[T], item: T, time_of: Callable[[T], int]) -> None:
    """Add an item to a heap, as ``PriorityQueue.offer`` in Java; the first item has the lowest time."""
    time_ms = time_of(item)
    heap.append(item)
    place = len(heap) - 1
    while place:
        above = (place - 1) >> 1
        if time_ms >= time_of(heap[above]):
            break
        heap[place] = heap[above]
        place = above
    heap[place] = item


def poll(heap: list[T], time_of: Callable[[T], int]) -> T:
    """Remove and return the first item of a heap, as ``PriorityQueue.poll`` in Java; its time is not read."""
    first = heap[0]
    moved = heap.pop()
    size = len(heap)
    if not size:
        return first
    time_ms = time_of(moved)
    place = 0
    while place < size >> 1:
        below = 2 * place + 1
        if below + 1 < size and time_of(heap[below]) > time_of(heap[below + 1]):
            below += 1
        if time_ms <= time_of(heap[below]):
            break
        heap[place] = heap[below]
        place = below
    heap[place] = moved
    return first


TIMERS = TimerHeap(partial(offer, time_of=_due_ms), partial(poll, time_of=_due_ms))
"""Timers of a task in the reference's order."""


@define(eq=False)
class ReferenceOrder(Policy):
    """The processing order of a single task, with Kafka Streams' heap of non-empty queues."""

    limit: int = 1
    _heap: list[PartitionQueue] = field(factory=list)

    def queue_of(self, task: StageTask) -> PartitionQueue | None:
        """Return the input queue whose record is processed next, None if all queues are empty."""
        return self._heap[0] if self._heap else None

    def on_filled(self, queue: PartitionQueue) -> None:
        """Add an input queue, which was empty before, to the heap."""
        offer(self._heap, queue, _head_ms)

    def on_processed(self, queue: PartitionQueue) -> None:
        """Reinsert the first queue, whose record was processed, by the timestamp of its next record."""
        poll(self._heap, _head_ms)
        if queue.size:
            offer(self._heap, queue, _head_ms)


class _FirstNoted(list[int]):
    """A column of an output topic that calls a function when its first entry is appended."""

    def __init__(self, note: Callable[[], None]) -> None:
        super().__init__()
        self._note = note

    def append(self, item: int) -> None:
        """Append an entry; before the first entry, call the function."""
        if not self:
            self._note()
        super().append(item)


@define(eq=False)
class TopicOrder:
    """The order of the output topics of a task, by their first records since the last commit.

    ``physical`` returns the name of a topic on the broker.
    """

    _physical: Callable[[str], str]
    _topics: list[str] = field(factory=list)

    def columns(self, topic: str, key_serde: Serde[Any], value_serde: Serde[Any]) -> TopicColumns:
        """Return columns for the output records of a topic, whose first record sets its place in the order."""
        columns = TopicColumns(topic, key_serde, value_serde)
        columns.timestamps = _FirstNoted(partial(self._topics.append, topic))
        return columns

    def arranged(self, outputs: list[tuple[TopicPartition, Block]]) -> list[tuple[TopicPartition, Block]]:
        """Return the output records of a task, sorted by topic in this order, and start a new order."""
        rank = {self._physical(topic): place for place, topic in enumerate(self._topics)}
        self._topics.clear()
        return sorted(outputs, key=lambda output: rank[output[0].topic])
