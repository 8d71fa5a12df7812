"""Waiting fetches (Kafka's fetch purgatory), by partition and by deadline.

The caller reads the logs, responds to the fetches, and passes the current time.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from attrs import define, field

from streams.broker.limits import WAITING_PLACES
from streams.core.records import TopicPartition
from streams.protocol.messages import Fetch
from streams.protocol.request import Response

#: Callback for the response to one request; called once, immediately or later.
Answer: TypeAlias = Callable[[Response], None]

# Finished fetches stay in the heap until they exceed the waiting ones by this number.
_IDLE_ENTRIES: Final = 64


class PendingFetch(NamedTuple):
    """A fetch request, and the callback that receives the response."""

    request: Fetch
    answer: Answer


@define(eq=False)
class WaitingFetch:
    """A fetch request that waits for records until its deadline; ``number`` is the order of arrival."""

    number: int
    #: None once the fetch is answered or dropped, so that a remaining heap entry keeps no request in memory.
    asked: PendingFetch | None


@define(eq=False)
class WaitingFetches:
    """Waiting fetches by partition and by deadline.

    ``max_places`` limits the total number of partitions in all waiting fetches.
    """

    max_places: int = WAITING_PLACES
    _by_partition: dict[TopicPartition, dict[int, WaitingFetch]] = field(factory=dict, init=False)
    _by_deadline: list[tuple[int, int, WaitingFetch]] = field(factory=list, init=False)
    _arrived: int = field(default=0, init=False)
    _live: int = field(default=0, init=False)
    _places: int = field(default=0, init=False)

    def __len__(self) -> int:
        return self._live

    @property
    def kept(self) -> int:
        """The number of entries in the deadline heap, including finished fetches that have not been removed yet."""
        return len(self._by_deadline)

    def add(self, request: Fetch, answer: Answer, deadline_ms: int) -> WaitingFetch:
        """Add a fetch that waits until ``deadline_ms`` (monotonic time), and return it."""
        self._arrived += 1
        fetch = WaitingFetch(self._arrived, PendingFetch(request, answer))
        for partition in request.positions:
            self._by_partition.setdefault(partition, {})[fetch.number] = fetch
        heapq.heappush(self._by_deadline, (deadline_ms, fetch.number, fetch))
        self._live += 1
        self._places += len(request.positions)
        return fetch

    def take_surplus(self) -> list[PendingFetch]:
        """Remove and return fetches until the others are within ``max_places``.

        The fetches with the most partitions are removed first.
        """
        surplus: list[PendingFetch] = []
        if self._places > self.max_places:
            live = [fetch for _, _, fetch in self._by_deadline if fetch.asked is not None]
            for fetch in sorted(live, key=_places, reverse=True):
                surplus += self.finish(fetch)
                if self._places <= self.max_places:
                    break
        return surplus

    def waiting(self, partitions: Iterable[TopicPartition]) -> list[WaitingFetch]:
        """Return the fetches that wait for any of these partitions, in order of arrival."""
        if not self._by_partition:
            return []
        found: dict[int, WaitingFetch] = {}
        for partition in partitions:
            found.update(self._by_partition.get(partition, {}))
        return [found[number] for number in sorted(found)]

    def take_due(self, now_ms: int) -> list[PendingFetch]:
        """Remove and return the fetches whose deadline has passed."""
        due: list[PendingFetch] = []
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            due += self.finish(heapq.heappop(self._by_deadline)[2])
        return due

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline of the waiting fetches in monotonic time, or None if no fetch is waiting."""
        heap = self._by_deadline
        while heap and heap[0][2].asked is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def finish(self, fetch: WaitingFetch) -> tuple[PendingFetch, ...]:
        """Remove a fetch, and return its request in a tuple; the tuple is empty if the fetch was already removed."""
        asked = fetch.asked
        if asked is None:
            return ()
        fetch.asked = None
        self._live -= 1
        self._places -= len(asked.request.positions)
        for partition in asked.request.positions:
            waiting = self._by_partition.get(partition)
            if waiting is not None:
                waiting.pop(fetch.number, None)
                if not waiting:
                    del self._by_partition[partition]
        if len(self._by_deadline) > 2 * self._live + _IDLE_ENTRIES:
            # Only finished fetches at the top of the heap are removed one by one: remove all if there are too many.
            self._by_deadline = [entry for entry in self._by_deadline if entry[2].asked is not None]
            heapq.heapify(self._by_deadline)
        return (asked,)


def _places(fetch: WaitingFetch) -> int:
    return 0 if fetch.asked is None else len(fetch.asked.request.positions)
