"""Answers the members of share groups: gives them records, takes acknowledgements, and frees what they leave locked.

A fetch that finds nothing waits for records: new ones, or those that others give back.  The caller passes the time.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from attrs import define, field

from streams.broker.fetches import Answer
from streams.broker.limits import FETCH_BYTES, MAX_WAIT_MS
from streams.broker.log import PartitionLog
from streams.broker.refusals import error_of
from streams.broker.shares.partition import RENEW
from streams.broker.shares.reading import FoundRecords, TopicNames, found_records
from streams.broker.shares.sessions import ShareSession, ShareSessions
from streams.broker.shares.state_log import ShareKey, StoredShare
from streams.broker.shares.store import ShareStore
from streams.broker.topics import Topics
from streams.core.errors import BrokerError
from streams.core.offset_reset import EARLIEST, LATEST, duration_ms
from streams.core.records import TopicPartition
from streams.group import Coordinator
from streams.group.group_configs import READ_COMMITTED_WORD, GroupConfigs
from streams.group.timers import Timers
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    EARLIEST_TIMESTAMP,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    LATEST_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
)
from streams.protocol.request import Request
from streams.protocol.share_group_messages import (
    AcknowledgementBatch,
    AcquiredRecords,
    ShareAcknowledge,
    ShareAcknowledgeResponse,
    SharedPartition,
    ShareFetch,
    ShareFetchResponse,
    TopicIdPartition,
)

_LOGGER = logging.getLogger(__name__)

_TYPES: Final = frozenset(range(RENEW + 1))


class _Outcome(NamedTuple):
    code: ErrorCode
    message: str = ""


_DONE: Final = _Outcome(ErrorCode.NONE)


@define(eq=False)
class _Wait:
    """A fetch that waits for records; ``places`` are those of its session when it came."""

    session: ShareSession
    request: ShareFetch
    answer: Answer
    places: Sequence[TopicIdPartition]


class _Find(NamedTuple):
    place: TopicIdPartition
    share: StoredShare
    records: FoundRecords


@define(eq=False)
class ShareDesk:
    """What members of share groups ask of a broker.

    - ``coordinator``: knows the share groups and their settings.
    - ``wall_ms``: turns monotonic time into epoch time.
    """

    coordinator: Coordinator
    topics: Topics
    store: ShareStore
    wall_ms: Callable[[int], int]
    configs: GroupConfigs = field(init=False)
    _names: TopicNames = field(init=False)
    sessions: ShareSessions = field(factory=ShareSessions, init=False)
    # The session of a fetch that waits, or the share partition that has locked records.
    _timers: Timers[ShareSession | ShareKey] = field(factory=Timers, init=False)
    _waiting: dict[ShareSession, _Wait] = field(factory=dict, init=False)
    _by_place: dict[TopicIdPartition, dict[ShareSession, None]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.configs = self.coordinator.configs
        self._names = TopicNames(self.topics)

    # --- requests -----------------------------------------------------------------------------

    def handlers(self) -> dict[type, Callable[..., None]]:
        """Return the handlers of what members ask."""
        return {ShareFetch: self.fetch, ShareAcknowledge: self.acknowledge}

    def fetch(self, request: ShareFetch, now_ms: int, answer: Answer) -> None:
        """Handle a fetch; ``answer`` is called once, now or later."""
        try:
            self._check(request)
            session = self._session_of(request)
        except BrokerError as error:
            answer(ShareFetchResponse(*error_of(error)))
            return
        self._answer_waiting(session, now_ms)
        outcomes = self._acknowledge_all(session, request, now_ms)
        if request.session_epoch == FINAL_EPOCH:
            self._end(session, now_ms)
        is_over = request.session_epoch == FINAL_EPOCH or request.is_renewal
        rows = {} if is_over else self._acquired(session, request, now_ms, is_last=bool(outcomes))
        if rows or outcomes or is_over or request.max_wait_ms <= 0:
            answer(self._response(session, rows, outcomes))
        else:
            self._wait(_Wait(session, request, answer, tuple(session.partitions)), now_ms)
        self._wake(outcomes, now_ms)

    def acknowledge(self, request: ShareAcknowledge, now_ms: int, answer: Answer) -> None:
        """Handle acknowledgements, and perhaps the end of a session."""
        try:
            self._check(request)
            session = self.sessions.of_acknowledgement(request)
        except BrokerError as error:
            answer(ShareAcknowledgeResponse(*error_of(error)))
            return
        outcomes = self._acknowledge_all(session, request, now_ms)
        if request.session_epoch == FINAL_EPOCH:
            self._answer_waiting(session, now_ms)
            self._end(session, now_ms)
        answer(ShareAcknowledgeResponse(ErrorCode.NONE, "", self._lock_ms(session.group_id), outcomes))
        self._wake(outcomes, now_ms)

    def begun_by(self, requests: Iterable[Request]) -> dict[tuple[str, str], ShareSession]:
        """Return the sessions that these requests have begun, by group and member ID."""
        keys = (
            (request.group_id, request.member_id)
            for request in requests
            if isinstance(request, ShareFetch) and request.session_epoch == INITIAL_EPOCH
        )
        found = ((key, self.sessions.get(*key)) for key in keys)
        return {key: session for key, session in found if session is not None}

    def disconnect(self, sessions: Iterable[ShareSession], now_ms: int) -> None:
        """End the sessions of a connection that has ended: what they have locked is available again."""
        for session in sessions:
            self._drop_waiting(session)
            self._end(session, now_ms)

    def _check(self, request: ShareFetch | ShareAcknowledge) -> None:
        """Check a request.

        Raises:
            BrokerError: there is no such group (``GROUP_ID_NOT_FOUND``), or the request is invalid.
        """
        if not request.member_id:
            raise BrokerError("MemberId can't be empty.", code=ErrorCode.INVALID_REQUEST)
        group = self.coordinator.group(request.group_id)
        if group is None or group.share is None:
            raise BrokerError(f"Share group {request.group_id} not found.", code=ErrorCode.GROUP_ID_NOT_FOUND)
        if not isinstance(request, ShareFetch) or not request.is_renewal:
            return
        if request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records:
            raise BrokerError(
                "A fetch that renews locks gets no records: its wait, bytes and records must be 0.",
                code=ErrorCode.INVALID_REQUEST,
            )

    def _session_of(self, request: ShareFetch) -> ShareSession:
        before = self.sessions.get(request.group_id, request.member_id)
        session = self.sessions.of_fetch(request, self.configs.defaults.share_max_share_sessions)
        if before is not None and before is not session:
            self._drop_waiting(before)
        return session

    def _response(
        self,
        session: ShareSession,
        rows: Mapping[TopicIdPartition, SharedPartition],
        outcomes: Mapping[TopicIdPartition, _Outcome],
    ) -> ShareFetchResponse:
        partitions = dict(rows)
        for place, (code, message) in outcomes.items():
            row = partitions.get(place, SharedPartition())
            partitions[place] = SharedPartition(row.error, row.message, code, message, row.blocks, row.acquired)
        return ShareFetchResponse(ErrorCode.NONE, "", self._lock_ms(session.group_id), partitions)

    # --- acknowledgements ---------------------------------------------------------------------

    def _acknowledge_all(
        self, session: ShareSession, request: ShareFetch | ShareAcknowledge, now_ms: int
    ) -> dict[TopicIdPartition, _Outcome]:
        """Take the acknowledgements of a request; return what has become of those of each partition that has any."""
        return {
            place: self._acknowledge(session, place, batches, now_ms, is_renewal=request.is_renewal)
            for place, batches in request.partitions.items()
            if batches
        }

    def _acknowledge(
        self,
        session: ShareSession,
        place: TopicIdPartition,
        batches: Sequence[AcknowledgementBatch],
        now_ms: int,
        *,
        is_renewal: bool,
    ) -> _Outcome:
        group_id = session.group_id
        key = ShareKey(group_id, *place)
        share = self.store.get(key)
        if share is None:
            return _Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The group has no records of this partition.")
        renews = is_renewal and self.configs.word(group_id, "share.renew.acknowledge.enable") == "true"
        if problem := _problem(batches, renews=renews):
            return _Outcome(ErrorCode.INVALID_REQUEST, problem)
        before = share.state.saved()
        until_ms = now_ms + self._lock_ms(group_id)
        try:
            share.state.acknowledge(session.member_id, batches, self._limit(group_id), until_ms)
            self.store.store((key,), now_ms)
        except (BrokerError, OSError) as error:
            share.state.restore(before)
            return _Outcome(*error_of(error))
        self._set_timer(key, share)
        return _DONE

    def _end(self, session: ShareSession, now_ms: int) -> None:
        """End a session and release what it has locked, unless the member has another one by now."""
        if not self.sessions.end(session):
            return
        freed = []
        for key in self.store.of_group(session.group_id):
            share = self.store.get(key)
            if share is not None and share.state.release(session.member_id, self._limit(session.group_id)):
                freed.append(key)
        self._freed(freed, now_ms)

    def _freed(self, keys: Sequence[ShareKey], now_ms: int) -> None:
        """Store that records were released, and give them to those that wait."""
        try:
            self.store.store(keys, now_ms)
        except (BrokerError, OSError) as error:
            # After a restart they are available as well, because locks are not stored.
            _LOGGER.error("storing released records of share groups failed: %s", error)
        for key in keys:
            share = self.store.get(key)
            if share is not None:
                self._set_timer(key, share)
        self._wake([TopicIdPartition(key.topic_id, key.partition) for key in keys], now_ms)

    # --- records ------------------------------------------------------------------------------

    def _acquired(
        self, session: ShareSession, request: ShareFetch, now_ms: int, *, is_last: bool
    ) -> dict[TopicIdPartition, SharedPartition]:
        """Lock records for a member, and return them by partition, with the partitions that have an error.

        Unless ``is_last``, nothing is locked while there is less than the request's ``min_bytes``.
        """
        rows: dict[TopicIdPartition, SharedPartition] = {}
        finds: list[_Find] = []
        room, records = min(request.max_bytes, FETCH_BYTES), request.max_records
        for place in session.partitions:
            if room <= 0 or records <= 0:
                break
            try:
                for find in self._finds(session, place, room, records, now_ms):
                    finds.append(find)
                    room -= find.records.size
                    records -= find.records.length
            except (BrokerError, OSError) as error:
                code, message = error_of(error)
                rows[place] = SharedPartition(code, message)
        if not is_last and not rows and sum(find.records.size for find in finds) < request.min_bytes:
            return rows
        until_ms = now_ms + self._lock_ms(session.group_id)
        acquired: dict[TopicIdPartition, tuple[list[FoundRecords], list[AcquiredRecords]]] = {}
        for place, share, found in finds:
            parts, ranges = acquired.setdefault(place, ([], []))
            ranges += share.state.acquire(found.first, found.upto, found.visible, session.member_id, until_ms)
            parts.append(found)
            self._set_timer(ShareKey(session.group_id, *place), share)
        for place, (parts, ranges) in acquired.items():
            if ranges:
                blocks = tuple(block for part in parts for block in part.blocks)
                rows[place] = SharedPartition(blocks=blocks, acquired=ranges)
                # The others come first the next time.
                del session.partitions[place]
                session.partitions[place] = None
        return rows

    def _finds(
        self, session: ShareSession, place: TopicIdPartition, room: int, records: int, now_ms: int
    ) -> list[_Find]:
        group_id = session.group_id
        log = self._log(place)
        share = self._opened(ShareKey(group_id, *place), log, now_ms)
        max_locks = self.configs.value(group_id, "share.partition.max.record.locks")
        isolation_level, wall_ms = self._isolation_level(group_id), self.wall_ms(now_ms)
        offset, finds = share.state.start_offset, []
        while room > 0 and records > 0:
            wanted = share.state.next_range(offset, records, max_locks)
            found = None if wanted is None else found_records(log, *wanted, room, isolation_level, wall_ms)
            if found is None:
                break
            finds.append(_Find(place, share, found))
            offset = found.upto
            room -= found.size
            records -= found.length
        return finds

    def _log(self, place: TopicIdPartition) -> PartitionLog:
        name = self._names.find(place.topic_id)
        if name is None:
            raise BrokerError(f"No topic has the ID {place.topic_id.hex()}.", code=ErrorCode.UNKNOWN_TOPIC_ID)
        return self.topics.log(TopicPartition(name, place.partition))

    def _opened(self, key: ShareKey, log: PartitionLog, now_ms: int) -> StoredShare:
        """Return a share partition; the first time, the group's ``share.auto.offset.reset`` says where it begins."""
        share = self.store.get(key)
        if share is None:
            self.store.begin([(key, self._first_offset(key.group_id, log, now_ms))], now_ms)
            share = self.store.get(key)
            assert share is not None
        share.state.truncate(log.start_offset)
        if share.state.end_offset > log.high_watermark:
            share.state.cut(log.high_watermark)
        return share

    def _first_offset(self, group_id: str, log: PartitionLog, now_ms: int) -> int:
        reset = self.configs.word(group_id, "share.auto.offset.reset")
        if reset == EARLIEST:
            return log.offset_for(EARLIEST_TIMESTAMP)[1]
        if reset != LATEST:
            offset = log.offset_for(max(0, self.wall_ms(now_ms) - (duration_ms(reset) or 0)))[1]
            if offset >= 0:
                return offset
        return log.offset_for(LATEST_TIMESTAMP, self._isolation_level(group_id))[1]

    def _isolation_level(self, group_id: str) -> int:
        is_committed = self.configs.word(group_id, "share.isolation.level") == READ_COMMITTED_WORD
        return READ_COMMITTED if is_committed else READ_UNCOMMITTED

    def _lock_ms(self, group_id: str) -> int:
        return self.configs.value(group_id, "share.record.lock.duration.ms")

    def _limit(self, group_id: str) -> int:
        return self.configs.value(group_id, "share.delivery.count.limit")

    # --- waiting ------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """Return the monotonic time at which ``tick`` is due next, or None if nothing waits and nothing is locked."""
        return self._timers.next_ms()

    def tick(self, now_ms: int) -> None:
        """Answer the fetches whose wait has ended, and free the records whose locks have ended."""
        while (due := self._timers.pop_due(now_ms)) is not None:
            if isinstance(due, ShareSession):
                self._answer_waiting(due, now_ms)
                continue
            share = self.store.get(due)
            if share is None:
                continue
            if share.state.expire(now_ms, self._limit(due.group_id)):
                self._freed([due], now_ms)
            else:
                self._set_timer(due, share)

    def wake(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Answer the fetches for which the logs of these partitions, which have changed, have records."""
        if self._waiting:
            topics = self.topics.by_name
            self._wake(
                [
                    TopicIdPartition(topics[partition.topic].topic_id, partition.partition)
                    for partition in partitions
                    if partition.topic in topics
                ],
                now_ms,
            )

    def _wake(self, places: Iterable[TopicIdPartition], now_ms: int) -> None:
        for place in places:
            for session in list(self._by_place.get(place, ())):
                wait = self._waiting.get(session)
                if wait is None:
                    continue
                rows = self._acquired(session, wait.request, now_ms, is_last=False)
                if rows:
                    self._drop_waiting(session)
                    wait.answer(self._response(session, rows, {}))

    def _wait(self, wait: _Wait, now_ms: int) -> None:
        self._waiting[wait.session] = wait
        for place in wait.places:
            self._by_place.setdefault(place, {})[wait.session] = None
        self._timers.set(wait.session, now_ms + min(wait.request.max_wait_ms, MAX_WAIT_MS))

    def _answer_waiting(self, session: ShareSession, now_ms: int) -> None:
        """Answer the fetch that waits in a session, if one does, with what there is."""
        if (wait := self._drop_waiting(session)) is not None:
            rows = self._acquired(session, wait.request, now_ms, is_last=True)
            wait.answer(self._response(session, rows, {}))

    def _drop_waiting(self, session: ShareSession) -> _Wait | None:
        wait = self._waiting.pop(session, None)
        if wait is not None:
            self._timers.cancel(session)
            for place in wait.places:
                sessions = self._by_place[place]
                del sessions[session]
                if not sessions:
                    del self._by_place[place]
        return wait

    def _set_timer(self, key: ShareKey, share: StoredShare) -> None:
        deadline_ms = share.state.next_deadline_ms()
        if deadline_ms is None:
            self._timers.cancel(key)
        else:
            self._timers.set(key, deadline_ms)

    # --- the end of groups and topics -----------------------------------------------------------

    def forget_group(self, group_id: str, now_ms: int) -> None:
        """Forget where a group was that has been deleted."""
        self._forget(self.store.of_group(group_id), now_ms)

    def forget_topic(self, topic_id: bytes, now_ms: int) -> None:
        """Forget where groups were in a topic that has been deleted."""
        self._forget(self.store.of_topic(topic_id), now_ms)

    def _forget(self, keys: Sequence[ShareKey], now_ms: int) -> None:
        for key in keys:
            self._timers.cancel(key)
        try:
            self.store.forget(keys, now_ms)
        except (BrokerError, OSError) as error:
            _LOGGER.error("forgetting share partitions failed: %s", error)


def _problem(batches: Sequence[AcknowledgementBatch], *, renews: bool) -> str:
    """Return what is wrong with acknowledgements, or ""."""
    end = -1
    for first, last, types in batches:
        if first > last or first <= end:
            return f"Acknowledgements of {first} to {last} after {end}: batches must be ascending and not empty."
        if len(types) not in (1, last - first + 1):
            return f"{len(types)} acknowledge types for the records {first} to {last}."
        if not _TYPES.issuperset(types):
            return f"The acknowledge types of the records {first} to {last} are not all known."
        if RENEW in types and not renews:
            return "The request does not say that it renews locks, or share.renew.acknowledge.enable is false."
        end = last
    return ""
