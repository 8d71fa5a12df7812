"""Fetch sessions (KIP-227): what each client reads, and what it has been told, so that a request names only changes.

A session remembers partitions, positions and the ends of the logs that its client knows.  ``due`` has the partitions
that may have something new; all others cost nothing, neither when a fetch arrives nor when its wait ends.
Pure: the caller passes the time and reports every change of a log by ``mark``.
"""

from collections.abc import Collection, Iterable, Mapping
from random import Random
from typing import Final

from attrs import define, evolve, field

from streams.broker.logs.limits import FETCH_SESSIONS, SESSION_PLACES, SESSION_REST_MS
from streams.broker.logs.log import PartitionLog
from streams.broker.reads import fetched
from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import FINAL_EPOCH, INITIAL_EPOCH, READ_COMMITTED, Fetch, FetchedPartition, FetchResponse

_MOST: Final = 0x7FFF_FFFF


@define(eq=False)
class IncrementalSession:
    """What one client reads from this broker."""

    session_id: int
    created_ms: int
    #: Monotonic time of the last request.
    used_ms: int
    #: Whether topics are named by their IDs in all requests.
    by_id: bool = False
    #: Epoch of the next request.
    epoch: int = 1
    positions: dict[TopicPartition, int] = field(factory=dict)
    #: Partitions that may have something to tell; those that were served last are the last.
    _due: dict[TopicPartition, None] = field(factory=dict)
    _limits: dict[TopicPartition, int] = field(factory=dict)
    #: High watermark, last stable offset and log start as the client knows them.
    _told: dict[TopicPartition, tuple[int, int, int]] = field(factory=dict)
    _isolation_level: int | None = None

    def update(self, request: Fetch) -> None:
        """Take over the partitions that a request names, and drop those that it forgets."""
        for partition, position in request.positions.items():
            self.positions[partition] = position
            self._due[partition] = None
        self._limits.update(request.limits)
        for partition in request.forgotten:
            self._limits.pop(partition, None)
            self._told.pop(partition, None)
            self._due.pop(partition, None)
            self.positions.pop(partition, None)
        if request.isolation_level != self._isolation_level:
            self._isolation_level = request.isolation_level
            self._due = dict.fromkeys(self.positions)

    def mark(self, partition: TopicPartition) -> None:
        """Note that the log of a partition has changed."""
        self._due[partition] = None

    def read(
        self, logs: Mapping[TopicPartition, PartitionLog], request: Fetch, wall_ms: int
    ) -> tuple[FetchResponse, bool]:
        """Return what there is to tell, and whether it is enough to respond now; see ``reads.fetched``."""
        positions = {partition: self.positions[partition] for partition in self._due}
        return fetched(logs, evolve(request, positions=positions, limits=self._limits), wall_ms)

    def told(self, response: FetchResponse) -> FetchResponse:
        """Return the response without the partitions of which the client knows everything; it knows the others now."""
        told, due = self._told, self._due
        rows: dict[TopicPartition, FetchedPartition] = {}
        for partition, row in response.partitions.items():
            ends = row.high_watermark, row.last_stable_offset, row.log_start_offset
            has_records = bool(row.blocks or row.chunks)
            if has_records or row.error is not ErrorCode.NONE or told.get(partition) != ends:
                rows[partition] = row
                told[partition] = ends
            is_at_end = self.positions[partition] >= self._visible_end(row)
            del due[partition]
            if has_records or row.error is not ErrorCode.NONE or not is_at_end:
                # It is due again until the client names another position, but behind the others.
                due[partition] = None
        return FetchResponse(rows, session_id=self.session_id)

    def _visible_end(self, row: FetchedPartition) -> int:
        return row.last_stable_offset if self._isolation_level == READ_COMMITTED else row.high_watermark


@define(eq=False)
class FetchSessions:
    """All fetch sessions of a broker; ids are drawn, so that none of before a restart is taken for a new one.

    At most ``max_sessions`` sessions with ``max_places`` partitions together are kept.  For a new one, the session
    that has not been used for the longest time ends, if that is at least ``rest_ms``.
    """

    rng: Random = field(factory=Random)
    max_sessions: int = FETCH_SESSIONS
    max_places: int = SESSION_PLACES
    rest_ms: int = SESSION_REST_MS
    _by_id: dict[int, IncrementalSession] = field(factory=dict, init=False)
    _by_partition: dict[TopicPartition, dict[int, IncrementalSession]] = field(factory=dict, init=False)
    _places: int = field(default=0, init=False)

    def __len__(self) -> int:
        return len(self._by_id)

    def session_of(self, request: Fetch, now_ms: int) -> IncrementalSession | ErrorCode | None:
        """Return the session of a request, brought up to date; None for a request without one, or the error.

        A full request (epoch 0) begins a session, unless there are too many; like one without a session
        (epoch -1), it ends the session that it names.
        """
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._end(self._by_id.get(request.session_id))
            if request.session_epoch == FINAL_EPOCH or not request.positions:
                return None
            return self._begun(request, now_ms)
        session = self._by_id.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id is not request.by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.used_ms = now_ms
        session.epoch = 1 if session.epoch == _MOST else session.epoch + 1
        # The session in use is the last, so that the first is the one that has rested for longest.
        self._by_id[session.session_id] = self._by_id.pop(session.session_id)
        added = sum(partition not in session.positions for partition in request.positions)
        if added and not self._has_room(0, added, now_ms, session):
            self._end(session)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        self._update(session, request)
        if not session.positions:
            self._end(session)
            return None
        return session

    def partitions_of(self, session_id: int) -> frozenset[TopicPartition]:
        """Return the partitions of a session; none if it does not exist."""
        session = self._by_id.get(session_id)
        return frozenset() if session is None else frozenset(session.positions)

    def mark(self, partitions: Iterable[TopicPartition]) -> Collection[IncrementalSession]:
        """Note that the logs of these partitions have changed; return the sessions that read one of them."""
        marked: dict[IncrementalSession, None] = {}
        for partition in partitions:
            for session in self._by_partition.get(partition, {}).values():
                session.mark(partition)
                marked[session] = None
        return marked

    def _begun(self, request: Fetch, now_ms: int) -> IncrementalSession | None:
        if not self._has_room(1, len(request.positions), now_ms, None):
            return None
        session_id = 0
        while not session_id or session_id in self._by_id:
            session_id = self.rng.randint(1, _MOST)
        session = self._by_id[session_id] = IncrementalSession(session_id, now_ms, now_ms, request.by_id)
        self._update(session, request)
        return session

    def _has_room(self, sessions: int, places: int, now_ms: int, asking: IncrementalSession | None) -> bool:
        """Whether so many sessions and partitions more may be kept, perhaps after sessions that rest have ended."""
        while len(self._by_id) + sessions > self.max_sessions or self._places + places > self.max_places:
            eldest = next(iter(self._by_id.values()), None)
            if eldest is None or eldest is asking or now_ms - eldest.used_ms < self.rest_ms:
                return False
            self._end(eldest)
        return True

    def _update(self, session: IncrementalSession, request: Fetch) -> None:
        before = len(session.positions)
        for partition in request.positions:
            if partition not in session.positions:
                self._by_partition.setdefault(partition, {})[session.session_id] = session
        gone = [partition for partition in request.forgotten if partition in session.positions]
        session.update(request)
        self._drop(session, gone)
        self._places += len(session.positions) - before

    def _end(self, session: IncrementalSession | None) -> None:
        if session is not None:
            del self._by_id[session.session_id]
            self._drop(session, session.positions)
            self._places -= len(session.positions)

    def _drop(self, session: IncrementalSession, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            sessions = self._by_partition[partition]
            del sessions[session.session_id]
            if not sessions:
                del self._by_partition[partition]
