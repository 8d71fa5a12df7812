"""Fetching: one response is prefetched for each fetchable partition, and blocks of records are returned round-robin.

A partition is fetched while it has a position, is not paused, and has nothing prefetched or in
flight, so a slow partition does not delay the others.  The position moves when records are
returned, not when they arrive.  Fetches are in sessions (KIP-227), so that partitions without new records cost
nothing.  Of the other packages, this module imports only ``core`` and ``protocol``.
"""

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from operator import attrgetter

from attrs import define, field

from streams.clients.consumer.consumer_parts import ConsumerParts
from streams.clients.consumer.fetch_session import Asked, ConsumerSessions, FetchChanges, FetchSession
from streams.clients.consumer.subscription import Confirmation, PartitionState
from streams.clients.errors import as_error, error_for, is_final
from streams.clients.settings import isolation_level_of
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import BrokerError, UnreadableBatchError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import READ_COMMITTED, AbortedTransaction, Fetch, FetchedPartition, FetchResponse
from streams.protocol.request import Response
from streams.protocol.wire import EncodedBlock

log = logging.getLogger(__name__)

#: Maximum wait of a fetch request while other partitions have records, in milliseconds.
_SHORT_WAIT_MS = 5
_OF_SESSIONS = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
#: Time after the last records until a consumer counts as idle, in milliseconds.
_IDLE_AFTER_MS = 500


@define(eq=False)
class _Prefetched:
    """The prefetched blocks of records of a partition from ``position`` on; ``ends`` has the position after each block.

    An end may be beyond the offset after the last record, since control and aborted records are omitted.
    """

    state: PartitionState
    position: int
    blocks: deque[Block]
    ends: deque[int] = field(factory=deque)


class Fetcher:
    """The fetch requests of one consumer, and its prefetched blocks of records."""

    def __init__(self, parts: ConsumerParts) -> None:
        settings = parts.settings
        self._network = parts.network
        self._sensors = parts.sensors
        self._clock = parts.clock
        self._subscription = parts.subscription
        self._metadata = parts.metadata
        self._max_wait_ms = settings.fetch_max_wait_ms
        self._max_records = settings.fetch_max_records
        self._bytes = settings.fetch_max_bytes, settings.max_partition_fetch_bytes
        self._rack = settings.client_rack
        self._retry_backoff_ms = settings.client.retry_backoff_ms
        self._replica_ms = settings.client.metadata_max_age_ms
        self._resets = parts.resets
        self._isolation_level = isolation_level_of(settings)
        self._prefetched: dict[TopicPartition, _Prefetched] = {}
        self._sessions = ConsumerSessions()
        #: Whether at the last look a partition was paused, prefetched or in flight, and whether any is read from a
        #: replica, which ends with time.
        self._has_others = self._has_replicas = False
        self._retry_at_ms: dict[int, int] = {}
        #: Until this time the consumer counts as busy, because records have arrived recently.
        self._busy_until_ms = 0
        self._errors: list[tuple[TopicPartition, PartitionState, int, BrokerError]] = []
        self._news: set[TopicPartition] = set()
        #: The subscription's change count at which there was nothing to fetch, or None.
        self._resting_at: int | None = None
        self.needs_metadata = False

    def take_news(self) -> set[TopicPartition]:
        """Return the partitions whose position or known end offset has changed since the last call."""
        news = self._news
        self._news = set()
        return news

    def send(self) -> int:
        """Fetch the next records of every fetchable partition; return the number of requests sent."""
        changes = self._subscription.changes.count
        now_ms = self._clock.monotonic_ms()
        # A connection answers in order: a long wait at the end of one partition would delay the next fetch of the
        # others.
        is_busy = now_ms < self._busy_until_ms
        others_wait_ms = min(self._max_wait_ms, _SHORT_WAIT_MS) if is_busy else self._max_wait_ms
        if self._resting_at == changes:
            return self._renew(others_wait_ms if self._has_others else self._max_wait_ms)
        self._sessions.quiet.clear()
        by_node: dict[int, dict[TopicPartition, Asked]] = {}
        self._has_others = self._has_replicas = False
        is_complete = not self._retry_at_ms
        for partition, state in self._subscription.partitions.items():
            position = state.position
            if position is None or state.is_leaving:
                continue
            if (
                state.is_paused
                or self._sessions.wait_for(partition, state, position)
                or self._has_prefetched(partition, state)
            ):
                self._has_others = True
                continue
            node = self._node_of(partition, state, now_ms)
            if node is None:
                self.needs_metadata = True
                is_complete = False
            else:
                by_node.setdefault(node, {})[partition] = Asked(state, position)
        sent = 0
        for node, partitions in by_node.items():
            if now_ms >= self._retry_at_ms.get(node, 0):
                self._send(node, partitions, others_wait_ms if self._has_others else self._max_wait_ms)
                sent += 1
        self._resting_at = changes if is_complete else None
        return sent

    def close(self) -> None:
        """End the fetch sessions, so that brokers do not keep them until others need their place."""
        for node, session_id in self._sessions.idle():
            self._network.send(node, Fetch({}, 0, session_id=session_id))

    def take(self, limit: int) -> dict[TopicPartition, list[Block]]:
        """Return blocks with up to ``limit`` records in total, and move the positions past them.

        Raises:
            BrokerError: a partition cannot be fetched; each error is raised once.
        """
        while self._errors:
            partition, state, position, error = self._errors.pop(0)
            if self._is_current(partition, state, position):
                raise error
        taken: dict[TopicPartition, list[Block]] = {}
        for partition in list(self._prefetched):
            if limit <= 0:
                break
            entry = self._prefetched.pop(partition)
            self._resting_at = None
            if not self._is_current(partition, entry.state, entry.position):
                continue
            if entry.state.is_fetchable:
                blocks, limit = self._take_from(partition, entry, limit)
                taken[partition] = blocks
                self._news.add(partition)
            if entry.blocks:
                # Move the partition to the end of the queue, so that the other partitions are served first.
                self._prefetched[partition] = entry
        if self._sensors.is_on:
            self._sensors.note(taken, self._subscription.partitions)
        return taken

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the prefetched records of these partitions."""
        self._resting_at = None
        for partition in partitions:
            self._prefetched.pop(partition, None)

    def next_retry_ms(self, now_ms: int) -> int | None:
        """Return when a broker that failed may be contacted again, in monotonic milliseconds, or None."""
        return min((at for at in self._retry_at_ms.values() if at > now_ms), default=None)

    # --- inside -----------------------------------------------------------------------

    def _node_of(self, partition: TopicPartition, state: PartitionState, now_ms: int) -> int | None:
        """Return the broker to fetch from: the replica that the leader has named for a while, otherwise the leader."""
        replica = state.read_replica
        if replica is not None and now_ms < state.read_replica_until_ms and replica in self._metadata.brokers:
            self._has_replicas = True
            return replica
        state.read_replica = None
        return self._metadata.leader(partition)

    def _has_prefetched(self, partition: TopicPartition, state: PartitionState) -> bool:
        entry = self._prefetched.get(partition)
        return entry is not None and entry.state is state and entry.position == state.position

    def _is_current(self, partition: TopicPartition, state: PartitionState, position: int) -> bool:
        return self._subscription.partitions.get(partition) is state and state.position == position

    def _take_from(self, partition: TopicPartition, entry: _Prefetched, limit: int) -> tuple[list[Block], int]:
        blocks: list[Block] = []
        while entry.blocks and limit > 0:
            block = entry.blocks.popleft()
            error = _decoding_error(partition, block, entry.ends[0])
            if error is not None:
                # Earlier blocks are returned.  The bad one is fetched and reported until the application seeks past it.
                entry.blocks.clear()
                self._errors.append((partition, entry.state, entry.position, error))
                break
            if len(block) > limit:
                entry.blocks.appendleft(block.slice(limit))
                block = block.slice(0, limit)
                entry.position = block.offsets[-1] + 1
            else:
                entry.position = entry.ends.popleft()
            blocks.append(block)
            limit -= len(block)
        entry.state.position = entry.position
        return blocks, limit

    def _send(self, node: int, partitions: dict[TopicPartition, Asked], max_wait_ms: int) -> None:
        session, changes = self._sessions.begin(node, partitions)
        session.wanted_at = self._subscription.changes.count
        self._retry_at_ms.pop(node, None)
        self._resting_at = None
        self._request(node, session, changes, max_wait_ms)

    def _renew(self, max_wait_ms: int) -> int:
        """Repeat the fetches that brought nothing, without a look at their partitions, because nothing has changed."""
        quiet = self._sessions.quiet
        self._sessions.quiet = []
        for node, session in quiet:
            self._request(node, session, session.again(), max_wait_ms)
        return len(quiet)

    def _request(self, node: int, session: FetchSession, changes: FetchChanges, max_wait_ms: int) -> None:
        request = Fetch(
            changes.positions,
            max_wait_ms,
            self._max_records,
            self._isolation_level,
            *self._bytes,
            rack_id=self._rack,
            session_id=changes.session_id,
            session_epoch=changes.session_epoch,
            forgotten=changes.forgotten,
        )
        self._network.send(node, request, self._receiver(node, session))

    def _receiver(self, node: int, session: FetchSession) -> Callable[[Response | Exception], None]:
        sent_ns = self._clock.monotonic_ns()

        def receive(response: Response | Exception) -> None:
            now_ms = self._clock.monotonic_ms()
            self._sensors.fetched.record(self._clock.monotonic_ns() - sent_ns)
            if not isinstance(response, FetchResponse):
                session.on_failure()
                self._fail(node, session, response)
                return
            session.on_response(response, now_ms)
            if response.error in _OF_SESSIONS:
                # The next fetch names everything again.
                self._resting_at = None
                return
            if response.error is not ErrorCode.NONE:
                self._fail(node, session, error_for(response.error, f"fetch from broker {node}"))
                return
            for partition, fetched in response.partitions.items():
                asked = session.asked.get(partition)
                if asked is not None:
                    self._receive(node, partition, asked, fetched, session.confirmation)
            self._note_omitted(session, response.partitions)
            is_quiet = not (response.partitions or self._has_replicas) and session.session_id != 0
            if is_quiet and self._resting_at == session.wanted_at == self._subscription.changes.count:
                self._sessions.quiet.append((node, session))
            else:
                self._resting_at = None

        return receive

    def _fail(self, node: int, session: FetchSession, failure: object) -> None:
        self._resting_at = None
        self._retry_later(node)
        for state, _ in session.asked.values():
            state.read_replica = None
        if isinstance(failure, Exception) and is_final(failure):
            partition, (state, position) = next(iter(session.asked.items()))
            error = as_error(failure, f"fetch of {partition} at {position}")
            self._errors.append((partition, state, position, error))

    def _note_omitted(self, session: FetchSession, answered: Container[TopicPartition]) -> None:
        """Report the new position of partitions that the request named and of which there is nothing else to tell."""
        for partition, position in session.named.items():
            if partition not in answered:
                state = session.asked[partition].state
                if self._is_current(partition, state, position) and state.told_at != position:
                    state.told_at = position
                    self._news.add(partition)

    def _receive(
        self,
        node: int,
        partition: TopicPartition,
        asked: Asked,
        fetched: FetchedPartition,
        confirmation: Confirmation,
    ) -> None:
        state, position = asked
        known_end = state.known_end
        if fetched.error is ErrorCode.NONE:
            # The ends are facts whatever the position is now, and the broker tells them once in a session.
            is_committed_only = self._isolation_level == READ_COMMITTED and fetched.last_stable_offset >= 0
            end = fetched.last_stable_offset if is_committed_only else fetched.high_watermark
            state.know_end(end, self._clock.monotonic_ms(), confirmation)
            state.log_start_offset = fetched.log_start_offset
        # Since the request, the partition may have been revoked or its position changed.
        if not self._is_current(partition, state, position):
            return
        if fetched.error is ErrorCode.NONE:
            if fetched.preferred_read_replica >= 0:
                state.read_replica = fetched.preferred_read_replica
                state.read_replica_until_ms = self._clock.monotonic_ms() + self._replica_ms
            entry = _Prefetched(state, position, deque())
            for block, end, is_read in _marked(_from_position(partition, fetched.blocks, position), fetched.aborted):
                if is_read:
                    entry.blocks.append(block)
                    entry.ends.append(end)
                elif entry.ends:
                    entry.ends[-1] = end
                else:
                    # There is nothing to return, so the position moves past the block immediately.
                    entry.position = state.position = end
            if entry.blocks:
                self._prefetched[partition] = entry
                self._busy_until_ms = self._clock.monotonic_ms() + _IDLE_AFTER_MS
            if state.known_end != known_end or state.told_at != state.position:
                state.told_at = state.position
                self._news.add(partition)
        elif state.read_replica is not None and self._is_of_replica(fetched.error):
            # The leader may have what a replica does not have yet, or no longer.
            state.read_replica = None
            self.needs_metadata = True
        elif fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            reset_to = self._resets.timestamp(partition.topic)
            if reset_to is not None:
                log.warning(
                    "the log of %s does not hold offset %s; the reset policy decides where to continue",
                    partition,
                    position,
                )
                state.request_reset(reset_to)
            else:
                error = error_for(fetched.error, f"fetch of {partition} at {position}")
                self._errors.append((partition, state, position, error))
        elif fetched.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or self._is_passing(fetched.error):
            self._retry_later(node)
        else:
            self._retry_later(node)
            error = error_for(fetched.error, f"fetch of {partition} at {position}")
            self._errors.append((partition, state, position, error))

    def _is_of_replica(self, code: ErrorCode) -> bool:
        is_passing = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or self._is_passing(code)
        return is_passing or code is ErrorCode.OFFSET_OUT_OF_RANGE

    def _is_passing(self, code: ErrorCode) -> bool:
        """Whether a retry or another replica may succeed after this error; a retry cannot repair corrupt records."""
        return code in self._network.traits.retriable and code is not ErrorCode.CORRUPT_MESSAGE

    def _retry_later(self, node: int) -> None:
        self.needs_metadata = True
        self._retry_at_ms[node] = self._clock.monotonic_ms() + self._retry_backoff_ms


def _decoding_error(partition: TopicPartition, block: Block, end: int) -> UnreadableBatchError | None:
    """Decode the columns of an encoded block of records; return the error if it cannot be decoded, or None."""
    if not isinstance(block, EncodedBlock):
        return None
    try:
        _ = block.values
    except BrokerError as error:
        offset = block.header.base_offset
        return UnreadableBatchError(
            f"{partition}: the records from offset {offset} up to {end - 1} cannot be read: {error}. Every consumer "
            f"stops there; to skip them seek to {end}, commit {end} for the group, or delete the "
            f"records below {end}",
            code=error.code,
            partition=partition,
            offset=offset,
            next_offset=end,
        )
    return None


def _end_of(block: Block) -> int:
    """Return the next offset after a block, which is after any records at its end that compaction has removed."""
    if isinstance(block, EncodedBlock):
        return block.next_offset
    return block.offsets[-1] + 1 if len(block) else 0


def _from_position(partition: TopicPartition, blocks: Iterable[Block], position: int) -> Iterable[tuple[Block, int]]:
    """Yield each block and its end offset, without records before ``position``, which a stored batch may contain."""
    for block in blocks:
        end = _end_of(block)
        if end <= position:
            continue
        if len(block) and block.offsets[0] < position and _decoding_error(partition, block, end) is None:
            block = block.slice(bisect_left(block.offsets, position))
        yield block, end


def _marked(
    blocks: Iterable[tuple[Block, int]], aborted: Sequence[AbortedTransaction]
) -> Iterable[tuple[Block, int, bool]]:
    """Yield each block, its end offset, and whether to return it; markers and aborted records are skipped (KIP-98)."""
    due = deque(sorted(aborted, key=attrgetter("first_offset")))
    open_ids: set[int] = set()
    for block, end in blocks:
        stamp = block.producer
        if stamp is None:
            yield block, end, bool(len(block))
            continue
        while due and due[0].first_offset < end:
            open_ids.add(due.popleft().producer_id)
        if stamp.is_control:
            # Only abort markers matter: at any other marker the producer has no aborted records here.
            open_ids.discard(stamp.producer_id)
        is_aborted = stamp.is_transactional and stamp.producer_id in open_ids
        yield block, end, bool(len(block)) and not stamp.is_control and not is_aborted
