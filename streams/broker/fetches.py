"""Fetches that wait for data: who waits for which partition, and until when.

Pure: the time is an argument.  Under ``service``, which reads the logs and answers.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from attrs import define, field

from streams.broker.reads import EncodedFetch
from streams.core.records import TopicPartition
from streams.protocol.messages import Fetch, Response

#: Takes the answer to one request; called once, at once or later.
Answer: TypeAlias = Callable[[Response], None]


@define(eq=False)
class WaitingFetch:
    """A fetch that found too little yet; ``number`` is its place in the order of arrival."""

    number: int
    request: Fetch | EncodedFetch
    answer: Callable[[Any], None]
    is_done: bool = field(default=False, init=False)


@define(eq=False)
class WaitingFetches:
    """Waiting fetches by partition and by deadline."""

    _by_partition: dict[TopicPartition, dict[int, WaitingFetch]] = field(factory=dict, init=False)
    _by_deadline: list[tuple[int, int, WaitingFetch]] = field(factory=list, init=False)
    _arrived: int = field(default=0, init=False)

    def __len__(self) -> int:
        return sum(1 for _, _, fetch in self._by_deadline if not fetch.is_done)

    def add(self, request: Fetch | EncodedFetch, answer: Callable[[Any], None], deadline_ms: int) -> WaitingFetch:
        """Let a fetch wait."""
        self._arrived += 1
        fetch = WaitingFetch(self._arrived, request, answer)
        for partition in request.positions:
            self._by_partition.setdefault(partition, {})[fetch.number] = fetch
        heapq.heappush(self._by_deadline, (deadline_ms, fetch.number, fetch))
        return fetch

    def waiting(self, partitions: Iterable[TopicPartition]) -> list[WaitingFetch]:
        """Return the fetches that wait for any of the partitions, in order of arrival."""
        if not self._by_partition:
            return []
        found: dict[int, WaitingFetch] = {}
        for partition in partitions:
            found.update(self._by_partition.get(partition, {}))
        return [found[number] for number in sorted(found)]

    def take_due(self, now_ms: int) -> list[WaitingFetch]:
        """Remove and return the fetches whose time is over."""
        due: list[WaitingFetch] = []
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            _, _, fetch = heapq.heappop(self._by_deadline)
            self.finish(fetch)
            due.append(fetch)
        return due

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline of a fetch that still waits."""
        heap = self._by_deadline
        while heap and heap[0][2].is_done:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def finish(self, fetch: WaitingFetch) -> None:
        """Forget a fetch that is answered, or for which nobody waits any more."""
        fetch.is_done = True
        for partition in fetch.request.positions:
            waiting = self._by_partition.get(partition)
            if waiting is not None:
                waiting.pop(fetch.number, None)
                if not waiting:
                    del self._by_partition[partition]
