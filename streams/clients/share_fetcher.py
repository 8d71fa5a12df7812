"""Fetches and acknowledgements of a share consumer: one request at a time for each broker.

Acknowledgements go with the next fetch of the broker that holds the locks, or by themselves if they are urgent, if
locks are renewed, or if their partition is no longer fetched.  Records that arrive are kept until a poll takes them;
what nobody has taken when its locks end is dropped, because the broker delivers it to another consumer.
Of the other packages, this module imports only ``core`` and ``protocol``.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from attrs import define, field

from streams.clients.errors import LEADER_MOVED, as_error, error_for, is_final
from streams.clients.share_decoding import Received
from streams.clients.share_parts import ShareParts
from streams.clients.share_records import AcknowledgementParcel, AcknowledgeType, ShareOrigin, batches_of
from streams.clients.share_session import SESSION_LOST, ClientShareSession
from streams.core.clock import Deadline
from streams.core.errors import BrokerError
from streams.core.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import FINAL_EPOCH
from streams.protocol.request import Request, Response
from streams.protocol.share_group_messages import (
    AcknowledgementBatch,
    ShareAcknowledge,
    ShareAcknowledgeResponse,
    SharedPartition,
    ShareFetch,
    ShareFetchResponse,
    TopicIdPartition,
)

log = logging.getLogger(__name__)

_ACQUIRE_MODES: Final = {"batch_optimized": 0, "record_limit": 1}
#: Stands for the duration of locks if a broker does not tell it.
_UNTOLD_MS: Final = 1 << 40
#: Errors of a partition after which its metadata are refreshed.
_UNKNOWN: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)


@define(eq=False)
class _Node:
    """The share session with one broker, and the acknowledgements that are to be sent to it."""

    session: ClientShareSession = field(factory=ClientShareSession)
    waiting: list[AcknowledgementParcel] = field(factory=list)
    is_urgent: bool = False
    is_busy: bool = False
    retry_at_ms: int = 0


class ShareFetcher:
    """The requests of one share consumer to the leaders of its partitions.

    ``on_done`` is called with acknowledgements that are done, inside the network's ``poll``.
    """

    def __init__(
        self, parts: ShareParts, member_id: Callable[[], str], on_done: Callable[[AcknowledgementParcel], None]
    ) -> None:
        settings = parts.settings
        self._parts, self._settings, self._network, self._clock = parts, settings, parts.network, parts.clock
        self._metadata, self._group_id, self._sensors = parts.metadata, parts.group_id, parts.sensors
        self._member_id, self._on_done = member_id, on_done
        self._is_limited = settings.share_acquire_mode == "record_limit"
        self._nodes: dict[int, _Node] = {}
        self._received: deque[Received] = deque()
        self._errors: deque[BrokerError] = deque()
        #: The broker that was fetched from last, with record_limit.
        self._last_node = -1
        self.needs_metadata = False
        #: Duration of the locks in milliseconds, as told by the last response, or None.
        self.lock_timeout_ms: int | None = None

    # --- records ----------------------------------------------------------------------

    @property
    def has_records(self) -> bool:
        """Whether records or an error can be taken."""
        self._drop_expired()
        return bool(self._received or self._errors)

    def take(self) -> Received | None:
        """Return the records of one partition, or None if there are none.

        Raises:
            BrokerError: records cannot be fetched; each error is raised once.
        """
        if self._errors:
            raise self._errors.popleft()
        self._drop_expired()
        return self._received.popleft() if self._received else None

    def take_all(self) -> list[Received]:
        """Return all records that have not been taken."""
        self._drop_expired()
        received, self._received = list(self._received), deque()
        return received

    def _drop_expired(self) -> None:
        now_ms = self._clock.monotonic_ms()
        while self._received and self._received[0].locked_until_ms <= now_ms:
            received = self._received.popleft()
            log.info("%s: records were not polled before their locks ended, and are dropped", received.origin.partition)

    # --- sending ----------------------------------------------------------------------

    def add(self, parcels: Iterable[AcknowledgementParcel], *, is_urgent: bool = False) -> None:
        """Add acknowledgements; those that are not urgent wait for the next fetch from their broker."""
        for parcel in parcels:
            node = self._nodes.setdefault(parcel.origin.node, _Node())
            node.waiting.append(parcel)
            node.is_urgent = node.is_urgent or is_urgent

    def send(self, assigned: Sequence[TopicPartition], *, is_fetching: bool) -> int:
        """Send what is due, with ``is_fetching`` also fetches of the assigned partitions; return how many requests."""
        wanted = self._wanted(assigned) if is_fetching else {}
        now_ms, sent = self._clock.monotonic_ms(), 0
        for node_id in list(dict.fromkeys((*self._nodes, *wanted))):
            node = self._nodes.setdefault(node_id, _Node())
            if node.is_busy or now_ms < node.retry_at_ms:
                continue
            if node.waiting and not node.session.is_open:
                self._fail(node, error_for(ErrorCode.SHARE_SESSION_NOT_FOUND, f"acknowledgement at broker {node_id}"))
            sources = wanted.get(node_id, {})
            if node.waiting and (node.is_urgent or not self._fits(node, sources)):
                self._acknowledge(node_id, node, node.session.epoch)
                sent += 1
            elif sources and self._may_fetch(node_id, wanted):
                self._fetch(node_id, node, sources)
                sent += 1
        return sent

    def next_retry_ms(self, now_ms: int) -> int | None:
        """Return when a broker that failed may be contacted again, in monotonic milliseconds, or None."""
        return min((node.retry_at_ms for node in self._nodes.values() if node.retry_at_ms > now_ms), default=None)

    def close(self, deadline: Deadline) -> None:
        """Send what waits, and end all sessions, so that the brokers release the records that are still locked."""
        has_progress = True
        # A fetch that is answered after its session has ended would lock records for nobody.
        while any(node.is_busy for node in self._nodes.values()):
            remaining_ms = deadline.remaining_ms(has_progress=has_progress)
            if not remaining_ms and not has_progress:
                break
            has_progress = self._network.poll(remaining_ms) > 0
        done: list[object] = []
        count = 0
        for node_id, node in self._nodes.items():
            if node.session.is_open and not node.is_busy:
                self._acknowledge(node_id, node, FINAL_EPOCH, lambda: done.append(None))
                count += 1
        for _ in range(count):
            if not self._network.wait(done, deadline):
                break
            done.pop()
        for node_id, node in self._nodes.items():
            self._fail(node, error_for(ErrorCode.SHARE_SESSION_NOT_FOUND, f"acknowledgement at broker {node_id}"))

    # --- inside -----------------------------------------------------------------------

    def _wanted(self, assigned: Sequence[TopicPartition]) -> dict[int, dict[TopicIdPartition, ShareOrigin]]:
        """Return the partitions to fetch by broker."""
        wanted: dict[int, dict[TopicIdPartition, ShareOrigin]] = {}
        for partition in assigned:
            node, topic = self._metadata.leader(partition), self._metadata.topics.get(partition.topic)
            if node is None or topic is None:
                self.needs_metadata = True
                continue
            origin = ShareOrigin(partition, topic.topic_id, node)
            wanted.setdefault(node, {})[origin.by_id] = origin
        return wanted

    def _may_fetch(self, node_id: int, wanted: Mapping[int, object]) -> bool:
        """Whether a broker may be fetched from; with record_limit, one at a time, in turns."""
        if not self._is_limited:
            return True
        if any(node.is_busy for node in self._nodes.values()):
            return False
        now_ms = self._clock.monotonic_ms()
        ready = [one for one in sorted(wanted) if one not in self._nodes or self._nodes[one].retry_at_ms <= now_ms]
        return node_id == next((one for one in ready if one > self._last_node), ready[0])

    @staticmethod
    def _fits(node: _Node, sources: Mapping[TopicIdPartition, ShareOrigin]) -> bool:
        """Whether all waiting acknowledgements may go with a fetch of these partitions."""
        return all(parcel.origin.by_id in sources and not parcel.has_renewals for parcel in node.waiting)

    def _fetch(self, node_id: int, node: _Node, sources: Mapping[TopicIdPartition, ShareOrigin]) -> None:
        settings, parcels = self._settings, self._taken(node)
        self._last_node = node_id
        changes = node.session.begin_fetch(list(sources))
        batches = _batches(parcels)
        request = ShareFetch(
            self._group_id,
            self._member_id(),
            changes.epoch,
            settings.fetch_max_wait_ms,
            settings.fetch_min_bytes,
            settings.fetch_max_bytes,
            settings.max_poll_records,
            settings.max_poll_records,
            _ACQUIRE_MODES[settings.share_acquire_mode],
            partitions={
                partition: batches.get(partition, ()) for partition in dict.fromkeys((*changes.added, *batches))
            },
            forgotten=changes.forgotten,
        )
        sent_ms, sent_ns = self._clock.monotonic_ms(), self._clock.monotonic_ns()

        def receive(response: Response | Exception) -> None:
            self._sensors.fetched.record(self._clock.monotonic_ns() - sent_ns)
            node.is_busy = False
            if not isinstance(response, ShareFetchResponse):
                self._on_failure(node_id, node, parcels, response)
                return
            if not self._is_taken(node_id, node, parcels, response.error, response.message):
                return
            self._note_lock_timeout(response.lock_timeout_ms)
            until_ms = sent_ms + (self.lock_timeout_ms or _UNTOLD_MS)
            answers = {
                partition: (found.acknowledge_error, found.acknowledge_message)
                for partition, found in response.partitions.items()
            }
            for partition, found in response.partitions.items():
                if (origin := sources.get(partition)) is not None:
                    self._receive(node, origin, found, until_ms)
            self._finish(node_id, node, parcels, answers)

        self._send(node_id, node, request, receive)

    def _acknowledge(self, node_id: int, node: _Node, epoch: int, on_answer: Callable[[], None] = lambda: None) -> None:
        parcels = self._taken(node)
        is_renewal = any(parcel.has_renewals for parcel in parcels)
        request = ShareAcknowledge(
            self._group_id, self._member_id(), epoch, is_renewal=is_renewal, partitions=_batches(parcels)
        )

        def receive(response: Response | Exception) -> None:
            node.is_busy = False
            if not isinstance(response, ShareAcknowledgeResponse):
                self._on_failure(node_id, node, parcels, response)
            elif self._is_taken(node_id, node, parcels, response.error, response.message):
                self._note_lock_timeout(response.lock_timeout_ms)
                self._finish(node_id, node, parcels, response.errors)
            if epoch == FINAL_EPOCH:
                node.session.on_failure()
            on_answer()

        self._send(node_id, node, request, receive)

    def _send(
        self, node_id: int, node: _Node, request: Request, receive: Callable[[Response | Exception], None]
    ) -> None:
        node.is_busy, node.retry_at_ms = True, 0
        self._network.send(node_id, request, receive)

    @staticmethod
    def _taken(node: _Node) -> list[AcknowledgementParcel]:
        parcels, node.waiting, node.is_urgent = node.waiting, [], False
        return parcels

    # --- responses --------------------------------------------------------------------

    def _on_failure(self, node_id: int, node: _Node, parcels: list[AcknowledgementParcel], failure: object) -> None:
        """Handle a request without a response: whether the broker has performed it is unknown."""
        node.session.on_failure()
        self._retry_later(node)
        assert isinstance(failure, Exception)
        error = as_error(failure, f"share session with broker {node_id}")
        if is_final(failure):
            self._errors.append(error)
        self._done(parcels, error)

    def _is_taken(
        self, node_id: int, node: _Node, parcels: list[AcknowledgementParcel], code: ErrorCode, message: str
    ) -> bool:
        """Note the error code of a whole response; return whether the broker has performed the request."""
        node.session.on_response(code)
        if code is ErrorCode.NONE:
            return True
        error = error_for(code, f"share session of group {self._group_id!r} with broker {node_id}", message)
        if code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            log.warning("%s", error)
            self._retry_later(node)
        elif code in SESSION_LOST:
            # The next fetch begins another session at once.
            log.info("%s", error)
        else:
            self._retry_later(node)
            # The heartbeats of a member join its group again.
            if not self._is_passing(code) and code is not ErrorCode.GROUP_ID_NOT_FOUND:
                self._errors.append(error)
        self._done(parcels, error)
        return False

    def _receive(self, node: _Node, origin: ShareOrigin, found: SharedPartition, until_ms: int) -> None:
        code = found.error
        if code is ErrorCode.NONE:
            if found.acquired:
                self._received.append(Received(origin, found.blocks, found.acquired, until_ms))
        elif self._is_passing(code):
            self._retry_later(node)
        else:
            if code is ErrorCode.CORRUPT_MESSAGE:
                # Nobody can read these records: the group must not wait for them.
                ranges = (range(one.first_offset, one.last_offset + 1) for one in found.acquired)
                rejected = dict.fromkeys((offset for each in ranges for offset in each), int(AcknowledgeType.REJECT))
                self.add([AcknowledgementParcel(origin, rejected)] if rejected else [])
            self._retry_later(node)
            what = f"fetch of {origin.partition} for share group {self._group_id!r}"
            self._errors.append(error_for(code, what, found.message))

    def _finish(
        self,
        node_id: int,
        node: _Node,
        parcels: list[AcknowledgementParcel],
        answers: Mapping[TopicIdPartition, tuple[ErrorCode, str]],
    ) -> None:
        now_ms = self._clock.monotonic_ms()
        for parcel in parcels:
            origin = parcel.origin
            code, message = answers.get(
                origin.by_id, (ErrorCode.INVALID_RECORD_STATE, "the broker has not answered for this partition")
            )
            if code in LEADER_MOVED or code in _UNKNOWN:
                self.needs_metadata = True
            if code in self._network.traits.retriable and code not in LEADER_MOVED and now_ms < parcel.retry_until_ms:
                self._retry_later(node)
                self.add([parcel], is_urgent=True)
                continue
            error = None
            if code is not ErrorCode.NONE:
                error = error_for(code, f"acknowledgement of {origin.partition} at broker {node_id}", message)
            self._done([parcel], error)

    def _done(self, parcels: list[AcknowledgementParcel], error: BrokerError | None) -> None:
        for parcel in parcels:
            parcel.is_done, parcel.error = True, error
            if self._sensors.is_on:
                count = len(parcel.offsets())
                self._sensors.acknowledged.value += count
                self._sensors.failed.value += 0 if error is None else count
            self._on_done(parcel)

    def _fail(self, node: _Node, error: BrokerError) -> None:
        self._done(self._taken(node), error)

    def _is_passing(self, code: ErrorCode) -> bool:
        return code in _UNKNOWN or (code in self._network.traits.retriable and code is not ErrorCode.CORRUPT_MESSAGE)

    def _retry_later(self, node: _Node) -> None:
        self.needs_metadata = True
        node.retry_at_ms = self._clock.monotonic_ms() + self._settings.client.retry_backoff_ms

    def _note_lock_timeout(self, timeout_ms: int) -> None:
        if timeout_ms > 0:
            self.lock_timeout_ms = timeout_ms


def _batches(parcels: Iterable[AcknowledgementParcel]) -> dict[TopicIdPartition, Sequence[AcknowledgementBatch]]:
    """Return the acknowledgements of a request by partition, in the order of their offsets."""
    types: dict[TopicIdPartition, dict[int, int]] = {}
    for parcel in parcels:
        types.setdefault(parcel.origin.by_id, {}).update(parcel.types)
    return {partition: batches_of(dict(sorted(found.items()))) for partition, found in types.items()}
