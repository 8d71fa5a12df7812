"""Order of Kafka Streams' test driver, where several inputs, timers or outputs have the same time.

Live, bounded and replayed tasks decide ties by input, and by the order of scheduling, so that the
order is a rule.  Kafka Streams keeps the non-empty queues and the timers of a task in a
``java.util.PriorityQueue`` and puts each back after its record or call, so that equal times take
turns as that heap moves its elements.  Its test driver makes that order visible, so ours follows it:
``offer`` and ``poll`` are that heap, element by element; heapq would break ties differently.  Pure.
"""

from collections.abc import Callable
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from attrs import define, field

from streams.core.records import Block, TopicPartition
from streams.core.serdes import Serde
from streams.runtime import PartitionQueue, Policy, StageTask, TimerHeap, TimerRow, TopicColumns

T = TypeVar("T")

_head_ms: Callable[[PartitionQueue], int] = attrgetter("head_ms")
_due_ms: Callable[[TimerRow], int] = itemgetter(0)


def offer(heap: list[T], item: T, time_of: Callable[[T], int]) -> None:
    """Add an item to a heap, whose first item is one of the lowest time."""
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
    """Remove the first item of a heap, whose own time is not read."""
    first, moved = heap[0], heap.pop()
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
    """Records of a single task one by one, in the order of the reference's heap of non-empty queues."""

    limit: int = 1
    _heap: list[PartitionQueue] = field(factory=list)

    def queue_of(self, task: StageTask) -> PartitionQueue | None:
        """Return the first queue of the heap."""
        return self._heap[0] if self._heap else None

    def on_filled(self, queue: PartitionQueue) -> None:
        """Put a queue on the heap that was empty."""
        offer(self._heap, queue, _head_ms)

    def on_processed(self, queue: PartitionQueue) -> None:
        """Put a queue back by its next record."""
        poll(self._heap, _head_ms)
        if queue.size:
            offer(self._heap, queue, _head_ms)


class _FirstNoted(list[int]):
    """A column that reports its first entry."""

    def __init__(self, note: Callable[[], None]) -> None:
        super().__init__()
        self._note = note

    def append(self, item: int) -> None:
        """Append, and report it if it is the first."""
        if not self:
            self._note()
        super().append(item)


@define(eq=False)
class TopicOrder:
    """Outputs by topic, in the order of each topic's first record; ``physical`` gives a topic's name on the broker."""

    _physical: Callable[[str], str]
    _topics: list[str] = field(factory=list)

    def columns(self, topic: str, key_serde: Serde[Any], value_serde: Serde[Any]) -> TopicColumns:
        """Make the columns of a topic, as an outbox asks for them."""
        columns = TopicColumns(topic, key_serde, value_serde)
        columns.timestamps = _FirstNoted(partial(self._topics.append, topic))
        return columns

    def arranged(self, outputs: list[tuple[TopicPartition, Block]]) -> list[tuple[TopicPartition, Block]]:
        """Return what an outbox has drained in the reference's order."""
        rank = {self._physical(topic): place for place, topic in enumerate(self._topics)}
        self._topics.clear()
        return sorted(outputs, key=lambda output: rank[output[0].topic])
