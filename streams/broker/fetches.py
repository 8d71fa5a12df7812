"""Fetches: answered at once, or waiting for records (Kafka's fetch purgatory), by partition and by deadline.

The caller passes the current time, and reports every change of a log.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from attrs import define, field

from streams.broker.fetch_sessions import FetchSessions, IncrementalSession
from streams.broker.logs.limits import MAX_WAIT_MS, WAITING_PLACES
from streams.broker.reads import fetched
from streams.broker.topics import Topics
from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import Fetch, FetchResponse
from streams.protocol.request import Response

#: Callback for the response to one request; called once, immediately or later.
Answer: TypeAlias = Callable[[Response], None]

# Finished fetches stay in the heap until they exceed the waiting ones by this number.
_IDLE_ENTRIES: Final = 64


class PendingFetch(NamedTuple):
    """A fetch request, the callback that receives the response, and the fetch session, if it belongs to one."""

    request: Fetch
    answer: Answer
    session: IncrementalSession | None = None

    @property
    def places(self) -> int:
        """The number of partitions by which the fetch is found; one of a session is found by its session."""
        return 0 if self.session is not None else len(self.request.positions)


@define(eq=False)
class WaitingFetch:
    """A fetch request that waits for records until its deadline; ``number`` is the order of arrival."""

    number: int
    #: None once the fetch is answered or dropped, so that a remaining heap entry keeps no request in memory.
    asked: PendingFetch | None


@define(eq=False)
class WaitingFetches:
    """Waiting fetches by partition and by deadline.

    ``max_places`` limits the total number of partitions in all waiting fetches; fetch sessions have a limit of their
    own.
    """

    max_places: int = WAITING_PLACES
    _by_partition: dict[TopicPartition, dict[int, WaitingFetch]] = field(factory=dict, init=False)
    _by_session: dict[IncrementalSession, WaitingFetch] = field(factory=dict, init=False)
    _by_deadline: list[tuple[int, int, WaitingFetch]] = field(factory=list, init=False)
    _arrived: int = field(default=0, init=False)
    _live: int = field(default=0, init=False)
    _places: int = field(default=0, init=False)

    def __len__(self) -> int:
        return self._live

    @property
    def size(self) -> int:
        """The number of entries in the deadline heap, including finished fetches that have not been removed yet."""
        return len(self._by_deadline)

    def add(self, asked: PendingFetch, deadline_ms: int) -> WaitingFetch:
        """Add a fetch that waits until ``deadline_ms`` (monotonic time), and return it."""
        self._arrived += 1
        fetch = WaitingFetch(self._arrived, asked)
        if asked.session is not None:
            self._by_session[asked.session] = fetch
        else:
            for partition in asked.request.positions:
                self._by_partition.setdefault(partition, {})[fetch.number] = fetch
        heapq.heappush(self._by_deadline, (deadline_ms, fetch.number, fetch))
        self._live += 1
        self._places += asked.places
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

    def waiting(
        self, partitions: Iterable[TopicPartition], sessions: Iterable[IncrementalSession] = ()
    ) -> list[WaitingFetch]:
        """Return the fetches that wait for any of these partitions, or in these sessions, in order of arrival."""
        fetches: dict[int, WaitingFetch] = {}
        for session in sessions:
            fetch = self._by_session.get(session)
            if fetch is not None:
                fetches[fetch.number] = fetch
        if self._by_partition:
            for partition in partitions:
                fetches.update(self._by_partition.get(partition, {}))
        return [fetches[number] for number in sorted(fetches)]

    def finish_session(self, session: IncrementalSession) -> tuple[PendingFetch, ...]:
        """Remove the fetch that waits in a session, like ``finish``."""
        fetch = self._by_session.get(session)
        return () if fetch is None else self.finish(fetch)

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
        self._places -= asked.places
        if asked.session is not None:
            del self._by_session[asked.session]
        for partition in asked.request.positions if asked.session is None else ():
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
    return 0 if fetch.asked is None else fetch.asked.places


@define(eq=False)
class Fetches:
    """All fetches of a broker from the logs of its topics; ``wall_ms`` turns monotonic time into epoch time."""

    topics: Topics
    sessions: FetchSessions
    wall_ms: Callable[[int], int]
    waiting: WaitingFetches = field(factory=WaitingFetches, init=False)

    def handle(self, request: Fetch, now_ms: int, answer: Answer) -> WaitingFetch | None:
        """Handle a fetch; see ``Broker.fetch``."""
        session = self.sessions.session_of(request, now_ms)
        if isinstance(session, ErrorCode):
            answer(FetchResponse({}, session))
            return None
        asked = PendingFetch(request, answer, session)
        if session is not None:
            # A client that sends the next request waits for the previous response no longer.
            self._answer(self.waiting.finish_session(session), now_ms)
        response, is_ready = self._read(asked, now_ms)
        if is_ready or request.max_wait_ms <= 0 or (session is None and not request.positions):
            _respond(asked, response)
            return None
        fetch = self.waiting.add(asked, now_ms + min(request.max_wait_ms, MAX_WAIT_MS))
        self._answer(self.waiting.take_surplus(), now_ms)
        return fetch

    def next_deadline_ms(self) -> int | None:
        """Return the monotonic time at which ``answer_due`` is due next, or None if no fetch is waiting."""
        return self.waiting.next_deadline_ms()

    def answer_due(self, now_ms: int) -> None:
        """Respond to the fetches whose wait has ended."""
        self._answer(self.waiting.take_due(now_ms), now_ms)

    def forget(self, fetch: WaitingFetch) -> None:
        """Drop a waiting fetch whose client has disconnected."""
        self.waiting.finish(fetch)

    def wake(self, partitions: Sequence[TopicPartition], now_ms: int) -> None:
        """Respond to the fetches for which the logs of these partitions, which have changed, have enough records."""
        topics = self.topics.by_name
        by_id = [topics[name].by_id(number) for name, number in partitions if name in topics]
        partitions = [*partitions, *by_id]
        for fetch in self.waiting.waiting(partitions, self.sessions.mark(partitions)):
            asked = fetch.asked
            if asked is None:
                continue  # The response to another fetch has closed the connection of this one.
            response, is_ready = self._read(asked, now_ms)
            if is_ready:
                self.waiting.finish(fetch)
                _respond(asked, response)

    def _read(self, asked: PendingFetch, now_ms: int) -> tuple[FetchResponse, bool]:
        """Return what a fetch can be told now, and whether that is enough to respond."""
        read = fetched if asked.session is None else asked.session.read
        logs = self.topics.logs_by_id if asked.request.by_id else self.topics.logs
        return read(logs, asked.request, self.wall_ms(now_ms))

    def _answer(self, ended: Sequence[PendingFetch], now_ms: int) -> None:
        """Respond to waiting fetches that have timed out or exceed the limit, with the available records."""
        for asked in ended:
            _respond(asked, self._read(asked, now_ms)[0])


def _respond(asked: PendingFetch, response: FetchResponse) -> None:
    asked.answer(response if asked.session is None else asked.session.told(response))
