"""What goes first in the test driver: which of several inputs, or timers, of the same time.

Live, bounded and replayed tasks decide ties by input, and by the order of scheduling, so that the
order is a rule.  Kafka Streams keeps the non-empty queues and the timers of a task in
``java.util.PriorityQueue`` and puts each back behind its record or call, which makes equal times
take turns in the way that heap moves its elements.  Its test driver shows that order, so ours
follows it: this is that heap, element by element; heapq would break ties differently.  Pure.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


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
    """Take the first item out of a heap."""
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
