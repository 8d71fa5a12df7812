"""Which of several inputs with equal head timestamps goes first in the test driver.

Live, bounded and replayed tasks decide ties by input, so that the order is a rule.  Kafka
Streams keeps the non-empty queues of a task in a ``java.util.PriorityQueue`` and puts each back
after a record, which makes equal heads take turns in the way that heap moves its elements.  Its
test driver shows that order, so ours follows it: this is that heap, element by element.  Pure.
"""

from typing import Protocol

from attrs import define, field


class HasHead(Protocol):
    """A queue with a next record."""

    @property
    def head_ms(self) -> int:
        """Timestamp of the next record."""
        ...


@define(eq=False)
class ArrivalHeap:
    """The non-empty queues of a task, lowest head first; heapq would break ties differently."""

    _queues: list[HasHead] = field(factory=list)

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def first(self) -> HasHead:
        """The queue whose record is next."""
        return self._queues[0]

    def offer(self, queue: HasHead) -> None:
        """Add a queue that has become non-empty, or still is after a record was taken."""
        queues = self._queues
        queues.append(queue)
        place = len(queues) - 1
        while place:
            above = (place - 1) >> 1
            if queue.head_ms >= queues[above].head_ms:
                break
            queues[place] = queues[above]
            place = above
        queues[place] = queue

    def poll(self) -> None:
        """Take the first queue out."""
        queues = self._queues
        moved = queues.pop()
        size = len(queues)
        if not size:
            return
        place = 0
        while place < size >> 1:
            below = 2 * place + 1
            if below + 1 < size and queues[below].head_ms > queues[below + 1].head_ms:
                below += 1
            if moved.head_ms <= queues[below].head_ms:
                break
            queues[place] = queues[below]
            place = below
        queues[place] = moved
