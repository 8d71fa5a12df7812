"""The sender of a producer: looks up metadata, sends due batches and processes responses.

One thread at a time drives the sender by ``run_once``, which waits only while it polls the network.  Finished
batches (``Parcel``) are left in ``finished``, because user callbacks run outside the lock.  The producer's lock guards
the accumulator and the sender, and is never held while the network is polled. Of the other packages, this module
imports only ``core`` and ``protocol``.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Final

from attrs import define, field

from streams.clients.errors import LEADER_MOVED, RequestTimeoutError, as_error, error_for, is_final, is_transient
from streams.clients.metadata import MetadataCache
from streams.clients.network import Backoff, Callback, Network
from streams.clients.producer.accumulator import REFUSED_RECORDS, Accumulator, Parcel, PartitionBatches
from streams.clients.producer.transaction import FENCED, Identity, Transaction
from streams.clients.sensors import ProducerSensors
from streams.clients.settings import required_acks_of
from streams.core.blocks.chunking import chunks_by_size
from streams.core.blocks.records import ProducerStamp, TopicPartition
from streams.core.clock import Clock
from streams.core.errors import BrokerError, RecordTooLargeError, TransactionError
from streams.core.notices import Notices
from streams.core.settings.client_settings import ProducerSettings
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    COORDINATOR_TRANSACTION,
    AddPartitionsToTxnResponse,
    FindCoordinator,
    FindCoordinatorResponse,
    InitProducerId,
    InitProducerIdResponse,
    Metadata,
    MetadataResponse,
    Produce,
    ProduceResponse,
)
from streams.protocol.request import Request, Response
from streams.protocol.transport import ANY_NODE

log = logging.getLogger(__name__)

#: Called after the look-up of a topic, with an error or None.
LookUp = Callable[[BrokerError | None], None]

# Sequence numbers wrap at this value.
_SEQUENCE_MASK: Final = 0x7FFFFFFF

# Larger requests are split by partition, because brokers close the connection on a request above 100 MiB.
_REQUEST_BYTES: Final = 32 << 20

# Initial backoff while the broker writes the markers of the previous transaction.
_MARKERS_MS: Final = 5

# After these errors the broker has lost the producer's state; the sequence restarts in a new epoch (KIP-360).
_LOST_STATE: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


@define(eq=False)
class _Question:
    """A look-up that is needed before records can be sent: one request at a time, retried after a backoff."""

    is_asking: bool = False
    failures: int = 0
    retry_at_ms: int = 0

    def is_due(self, now_ms: int) -> bool:
        """Whether the look-up's request is to be sent now."""
        return not self.is_asking and now_ms >= self.retry_at_ms

    def settle(self, now_ms: int, backoff: Backoff, *, is_answered: bool) -> None:
        """Mark the request as completed; if it was not answered, schedule a retry."""
        self.is_asking = False
        self.failures = 0 if is_answered else self.failures + 1
        self.retry_at_ms = now_ms if is_answered else now_ms + backoff.after(self.failures)


@define(eq=False)
class Sender:
    """Sends the requests of one producer."""

    network: Network
    clock: Clock
    settings: ProducerSettings
    #: Guards the accumulator and this object.
    lock: threading.RLock = field(init=False, factory=threading.RLock)
    accumulator: Accumulator = field(init=False)
    metadata: MetadataCache = field(init=False, factory=MetadataCache)
    #: None for a producer that is not idempotent.
    identity: Identity | None = field(init=False)
    transaction: Transaction | None = field(init=False, default=None)
    max_in_flight: int = field(init=False)
    backoff: Backoff = field(init=False)
    _acks: int = field(init=False)
    #: Finished parcels with base offset or error.
    finished: deque[tuple[Parcel, int, BrokerError | None]] = field(factory=deque)
    in_flight: int = 0
    #: What brokers said of partitions that they cannot write now, because a disk is full, for example.
    storage_failures: dict[TopicPartition, str] = field(factory=dict)
    notices: Notices = field(factory=Notices)
    sensors: ProducerSensors = field(factory=ProducerSensors)
    known_since_ms: dict[str, int] = field(factory=dict)
    coordinator: int | None = None
    _outgoing: deque[tuple[int, Request, Callback]] = field(factory=deque)
    _look_ups: dict[str, list[LookUp]] = field(factory=dict)
    #: Time of the first failed look-up of each unknown topic.
    _settling: dict[str, int] = field(factory=dict)
    _metadata_lookup: _Question = field(factory=_Question)
    _producer_id: _Question = field(factory=_Question)
    _partitions: _Question = field(factory=_Question)
    _finding: _Question = field(factory=_Question)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        self.accumulator = Accumulator(settings)
        self.identity = Identity() if settings.is_idempotent else None
        if settings.transactional_id and self.identity is not None:
            self.transaction = Transaction(settings.transactional_id, self.identity)
        self.max_in_flight = settings.max_in_flight_requests
        self.backoff = Backoff(settings.client.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._acks = required_acks_of(settings.acks)

    # --- called from any thread ---------------------------------------------------------

    def post(self, node_id: int, request: Request, on_done: Callback) -> None:
        """Queue a request, which the thread that drives the sender will send."""
        with self.lock:
            self._outgoing.append((node_id, request, on_done))

    def look_up(self, topic: str, on_done: LookUp) -> None:
        """Queue a metadata look-up of a topic, which the thread that drives the sender will make."""
        with self.lock:
            self._look_ups.setdefault(topic, []).append(on_done)

    def next_ms(self, now_ms: int) -> int | None:
        """Return when the next work is due, at the earliest ``now_ms``, or None if nothing is scheduled."""
        with self.lock:
            if self._outgoing:
                return now_ms
            times: list[int] = []
            if self.in_flight < self.max_in_flight:
                ready_ms = self.accumulator.ready_at_ms(now_ms)
                if ready_ms is not None:
                    times.append(ready_ms)
            times += (question.retry_at_ms for question in self._questions())
            return max(now_ms, min(times)) if times else None

    def _questions(self) -> list[_Question]:
        """Return the look-ups that are needed and have no request in flight."""
        due: list[_Question] = []
        if self._look_ups and not self._metadata_lookup.is_asking:
            due.append(self._metadata_lookup)
        if self.transaction is None:
            if self._needs_producer_id() and not self._producer_id.is_asking:
                due.append(self._producer_id)
        elif self.transaction.add_request() is not None:
            question = self._finding if self.coordinator is None else self._partitions
            if not question.is_asking:
                due.append(question)
        return due

    # --- driving --------------------------------------------------------------------------

    def run_once(self, timeout_ms: int) -> bool:
        """Send due requests and process responses, waiting up to the timeout; return whether there were any."""
        now = self.clock.monotonic_ms()
        with self.lock:
            outgoing = list(self._outgoing)
            self._outgoing.clear()
            failures = dict(self.storage_failures)
            outage = self.network.outage
            for parcel in self.accumulator.take_expired(now - self.settings.delivery_timeout_ms):
                why = failures.get(parcel.partition) or (outage and outage.reason)
                error = RequestTimeoutError(f"{parcel.partition}: not sent in time; {why or 'is the broker running?'}")
                self._give_up(parcel, error)
            self._restart_partitions()
            has_sent = self._produce(now)
            self._ask(now)
            next_ms = self.next_ms(now)
        for node_id, request, on_done in outgoing:
            self.network.send(node_id, request, on_done)
        if next_ms is not None:
            # Due parcels that could not be sent become sendable with a response.
            timeout_ms = min(timeout_ms, max(0, next_ms - now))
        return self.network.poll(timeout_ms) > 0 or has_sent or bool(outgoing)

    def _produce(self, now: int) -> bool:
        by_node: dict[int, list[Parcel]] = {}
        if self.in_flight >= self.max_in_flight:
            return False
        for partition, parcel in self.accumulator.drain(now, self._may_go, self._stamp).items():
            node = self.metadata.leader(partition)
            assert node is not None, "held until its leader is known"
            by_node.setdefault(node, []).append(parcel)
        transaction = self.transaction
        transactional_id = None if transaction is None else transaction.transactional_id
        is_adding = transaction is not None and transaction.is_second_version
        if transaction is not None and is_adding and by_node:
            transaction.is_started = True
        for node, node_parcels in by_node.items():
            for parcels in chunks_by_size(node_parcels, attrgetter("size_bytes"), _REQUEST_BYTES):
                blocks = {parcel.partition: (parcel.block,) for parcel in parcels}
                self.in_flight += 1
                request = Produce(blocks, self._acks, transactional_id, is_adding)
                for parcel in parcels:
                    self.sensors.batches.record(parcel.size_bytes)
                count = sum(len(parcel.block) for parcel in parcels)
                self.sensors.sent.value += count
                self.sensors.requests.record(count)
                self.network.send(node, request, partial(self._receive, parcels, self.clock.monotonic_ns()))
        return bool(by_node)

    def _may_go(self, partition: TopicPartition) -> bool:
        """Whether records of a partition can be sent now; if not, start the missing look-up."""
        if self.metadata.leader(partition) is None:
            self._look_ups.setdefault(partition.topic, [])
            return False
        if self.transaction is not None:
            return self.transaction.admits(partition)
        return not self._needs_producer_id()

    def _needs_producer_id(self) -> bool:
        return self.identity is not None and not self.identity.is_known and not self.accumulator.is_empty

    def _stamp(self, queue: PartitionBatches, parcel: Parcel) -> None:
        identity = self.identity
        if identity is None:
            parcel.stamp(None, self.settings.compression_type)
            return
        if queue.identity != identity.pair and not queue.parcels:
            queue.adopt(identity.pair)
        producer_id, epoch = queue.identity
        stamp = ProducerStamp(producer_id, epoch, queue.next_sequence, self.transaction is not None)
        parcel.stamp(stamp, self.settings.compression_type)
        queue.next_sequence = (queue.next_sequence + len(parcel.block)) & _SEQUENCE_MASK

    def _restart_partitions(self) -> None:
        """Restart partitions' sequence numbers at 0 in a new epoch, which fences late requests of the old epoch."""
        identity = self.identity
        if identity is None or self.transaction is not None or not identity.is_known:
            return
        for partition, queue in self.accumulator.restartable():
            if queue.identity == identity.pair and not identity.bump():
                # After the last epoch, request a new producer id.
                return
            queue.adopt(identity.pair)
            for parcel in queue.parcels:
                self._stamp(queue, parcel)
            self.accumulator.restarted(partition)

    # --- responses to produce requests ----------------------------------------------------

    def _receive(self, parcels: list[Parcel], sent_ns: int, response: Response | Exception) -> None:
        self.sensors.answered.record(self.clock.monotonic_ns() - sent_ns)
        with self.lock:
            self.in_flight -= 1
            for parcel in parcels:
                if parcel.is_abandoned:
                    continue
                self.accumulator.land(parcel)
                if isinstance(response, ProduceResponse):
                    produced = response.partitions[parcel.partition]
                    self._take(parcel, produced.error, produced.base_offset, produced.message)
                elif isinstance(response, RecordTooLargeError):
                    is_split = self.accumulator.split(parcel)
                    if not is_split and len(parcels) > 1:
                        # The parcel was too large only in combination with others.
                        self._retry(parcel)
                    elif not is_split:
                        self.accumulator.finish(parcel)
                        reason = f"produce to {parcel.partition}: {response}"
                        self._give_up(parcel, RecordTooLargeError(reason, code=ErrorCode.MESSAGE_TOO_LARGE))
                elif isinstance(response, Exception) and is_final(response):
                    self.accumulator.finish(parcel)
                    self._give_up(parcel, as_error(response, f"produce to {parcel.partition}"))
                else:
                    log.debug("produce to %s: %s; will be retried", parcel.partition, response)
                    self.metadata.topics.pop(parcel.partition.topic, None)
                    self._retry(parcel)

    def _take(self, parcel: Parcel, code: ErrorCode, base_offset: int, detail: str) -> None:
        partition = parcel.partition
        if code is ErrorCode.STORAGE_ERROR:
            text = self.storage_failures[partition] = str(error_for(code, f"produce to {partition}", detail))
            if code in self.network.traits.retriable:
                # Otherwise the error is told by who sends.
                self.notices.last(log, code, self.clock.monotonic_ms(), text)
        elif code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # That is said of the batches behind the one that was not written.
            self.storage_failures.pop(partition, None)
            if code is ErrorCode.NONE and not self.storage_failures:
                self.notices.end(log, ErrorCode.STORAGE_ERROR, self.clock.monotonic_ms(), "brokers write again")
        if code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self.accumulator.finish(parcel, is_acknowledged=True)
            self.finished.append((parcel, base_offset if code is ErrorCode.NONE else -1, None))
        elif (
            code in self.network.traits.retriable
            or code is ErrorCode.CONCURRENT_TRANSACTIONS
            or (code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not parcel.was_next)
            # The leader may not have the metadata yet that another broker has given to this client.
            or (code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self.network.traits.settling_ms)
        ):
            if code in LEADER_MOVED or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.metadata.topics.pop(partition.topic, None)
            # The parcel is out of order because an earlier one is to be retried; send it after the earlier one.
            self._retry(parcel, code)
        elif code in REFUSED_RECORDS and self.accumulator.split(parcel):
            return
        elif (code in _LOST_STATE or code in FENCED) and self.identity is not None and self.transaction is None:
            log.warning("produce to %s: %s; its sequence numbers restart", partition, code.name)
            self.accumulator.restart(partition)
            self._retry(parcel)
        else:
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.metadata.topics.pop(partition.topic, None)
            self.accumulator.finish(parcel)
            self._give_up(parcel, error_for(code, f"produce to {partition}", detail))

    def _retry(self, parcel: Parcel, code: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> None:
        transaction = self.transaction
        if transaction is not None and transaction.is_failed:
            self.accumulator.finish(parcel)
            self._give_up(parcel, transaction.error or BrokerError(f"{parcel.partition}: the transaction is aborted"))
            return
        self.sensors.retried.value += len(parcel.block)
        self.accumulator.retry(parcel, self.clock.monotonic_ms() + self.pause_ms(code, parcel.attempts))

    def _give_up(self, parcel: Parcel, error: BrokerError) -> None:
        """Fail a parcel that was removed from the accumulator; its sequence numbers, if any, will never be sent."""
        if parcel.block.producer is not None and self.transaction is None:
            self.accumulator.restart(parcel.partition)
        elif parcel.block.producer is not None and self.transaction is not None:
            self.transaction.needs_new_epoch = True
        self.sensors.failed.value += len(parcel.block)
        self.finished.append((parcel, -1, error))
        if parcel.partition not in self.accumulator.waiting_partitions(parcel.partition.topic):
            # Nothing is left that the broker could not write.
            self.storage_failures.pop(parcel.partition, None)
        if self.transaction is not None and not self.transaction.is_failed:
            self.fail_transaction(error, f"{parcel.partition} could not be written")

    def fail_transaction(self, cause: BrokerError, what: str) -> BrokerError:
        """Fail the open transaction and its queued records; return the error."""
        assert self.transaction is not None
        with self.lock:
            error = self.transaction.fail(cause, what)
            self.drop_waiting(error)
            return error

    def drop_waiting(self, error: BrokerError) -> None:
        """Fail all records that are not in flight."""
        with self.lock:
            for parcel in self.accumulator.take_waiting():
                self._give_up(parcel, error)

    def drop_all(self, error: BrokerError) -> None:
        """Fail all records, whether in flight or not, without waiting for responses."""
        with self.lock:
            for parcel in self.accumulator.take_all():
                self._give_up(parcel, error)

    def abandon(self) -> None:
        """Fail all records of the transaction; responses to requests in flight will be ignored."""
        assert self.transaction is not None
        error = TransactionError(
            f"producer {self.transaction.transactional_id!r}: the transaction is aborted: no response in time",
            transactional_id=self.transaction.transactional_id,
        )
        self.drop_all(error)

    def begin_transaction(self) -> None:
        """Begin a transaction, to which no partitions have been added yet."""
        with self.lock:
            assert self.transaction is not None
            self.transaction.begin()
            self._partitions = _Question()

    def pause_ms(self, code: ErrorCode, failures: int) -> int:
        """Return the backoff before a request is retried, in milliseconds."""
        pause_ms = self.backoff.after(failures)
        if code is ErrorCode.CONCURRENT_TRANSACTIONS:
            # The markers of the previous transaction are being written, which takes milliseconds.
            pause_ms = min(pause_ms, _MARKERS_MS << min(failures - 1, 5))
        return pause_ms

    @property
    def is_adding(self) -> bool:
        """Whether a request to add partitions to the transaction is in flight or will be retried."""
        return self._partitions.is_asking or self._partitions.failures > 0

    # --- look-ups -------------------------------------------------------------------------

    def _ask(self, now: int) -> None:
        for question in self._questions():
            if not question.is_due(now):
                continue
            question.is_asking = True
            if question is self._metadata_lookup:
                topics = tuple(self._look_ups)
                self.network.send(ANY_NODE, Metadata(topics), partial(self._on_metadata, topics))
            elif question is self._producer_id:
                self.network.send(ANY_NODE, InitProducerId(), self._on_producer_id)
            elif question is self._finding:
                assert self.transaction is not None
                find = FindCoordinator(self.transaction.transactional_id, COORDINATOR_TRANSACTION)
                self.network.send(ANY_NODE, find, self._on_coordinator)
            else:
                assert self.transaction is not None
                assert self.coordinator is not None
                add = self.transaction.add_request()
                assert add is not None
                self.transaction.is_started = True
                on_done = partial(self._on_partitions, self.transaction.serial, question)
                self.network.send(self.coordinator, add, on_done)

    def _settle(self, question: _Question, *, is_answered: bool) -> None:
        question.settle(self.clock.monotonic_ms(), self.backoff, is_answered=is_answered)
        if is_answered:
            self.accumulator.release()

    def _on_metadata(self, topics: tuple[str, ...], response: Response | Exception) -> None:
        with self.lock:
            if not isinstance(response, MetadataResponse):
                self._settle(self._metadata_lookup, is_answered=False)
                if not isinstance(response, Exception) or (is_transient(response) and not is_final(response)):
                    # The callers wait for the response to the retry.
                    return
                error = as_error(response, "metadata")
                for topic in topics:
                    callbacks = self._look_ups[topic]
                    self._look_ups[topic] = []
                    for callback in callbacks:
                        callback(error)
                return
            self.metadata.update(response, topics)
            unsettled = {topic for topic in topics if self._may_come(topic)}
            self._settle(self._metadata_lookup, is_answered=not unsettled)
            for topic in topics:
                if topic not in unsettled:
                    self._on_topic(topic)

    def _may_come(self, topic: str) -> bool:
        """Whether what is unknown of a topic may exist soon: it is being created, or a broker lacks its metadata.

        That is the topic, or a partition with records to send.
        """
        count = self.metadata.partition_count(topic)
        waiting = self.accumulator.waiting_partitions(topic)
        if count is not None and all(partition.partition < count for partition in waiting):
            self._settling.pop(topic, None)
            return False
        code = self.metadata.why_unknown(topic) if count is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code in self.network.traits.retriable:
            return True
        if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        now = self.clock.monotonic_ms()
        since_ms = self._settling.setdefault(topic, now)
        if now - since_ms < self.network.traits.settling_ms:
            return True
        del self._settling[topic]
        return False

    def _on_topic(self, topic: str) -> None:
        callbacks = self._look_ups.pop(topic, [])
        count = self.metadata.partition_count(topic)
        error: BrokerError | None = None
        if count is None:
            error = error_for(self.metadata.why_unknown(topic), f"topic {topic!r}")
        else:
            self.known_since_ms[topic] = self.clock.monotonic_ms()
        for callback in callbacks:
            callback(error)
        for partition in self.accumulator.waiting_partitions(topic):
            if count is None or not 0 <= partition.partition < count:
                detail = "" if count is None else f"the topic has {count} partitions"
                code = self.metadata.why_unknown(topic) if count is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                refused = error_for(code, str(partition), detail)
                for parcel in self.accumulator.take_waiting((partition,)):
                    self._give_up(parcel, refused)
            elif self.metadata.leader(partition) is None:
                # The partition has no leader at the moment.
                self._metadata_lookup.settle(self.clock.monotonic_ms(), self.backoff, is_answered=False)

    def _on_producer_id(self, response: Response | Exception) -> None:
        with self.lock:
            assert self.identity is not None
            is_answered = isinstance(response, InitProducerIdResponse) and response.error is ErrorCode.NONE
            if isinstance(response, InitProducerIdResponse) and is_answered:
                self.identity.set(response.producer_id, response.producer_epoch)
            elif isinstance(response, InitProducerIdResponse) and response.error not in self.network.traits.retriable:
                error = error_for(response.error, "producer id")
                self.drop_waiting(error)
            elif isinstance(response, Exception) and is_final(response):
                self.drop_waiting(as_error(response, "producer id"))
            self._settle(self._producer_id, is_answered=is_answered)

    def _on_coordinator(self, response: Response | Exception) -> None:
        with self.lock:
            is_found = isinstance(response, FindCoordinatorResponse) and response.error is ErrorCode.NONE
            if isinstance(response, FindCoordinatorResponse) and is_found:
                self.coordinator = response.node_id
            self._settle(self._finding, is_answered=is_found)

    def _on_partitions(self, serial: int, question: _Question, response: Response | Exception) -> None:
        with self.lock:
            transaction = self.transaction
            assert transaction is not None
            if serial != transaction.serial:
                # The response belongs to a finished transaction.
                return
            if not isinstance(response, AddPartitionsToTxnResponse):
                self.coordinator = None
                self._settle(question, is_answered=False)
                if isinstance(response, Exception) and is_final(response):
                    self.fail_transaction(as_error(response, "adding partitions"), "partitions could not be added")
                return
            refused = {p: code for p, code in response.errors.items() if code is not ErrorCode.NONE}
            if not refused:
                transaction.on_added(response.errors)
                self._settle(question, is_answered=True)
                return
            self._settle(question, is_answered=False)
            codes = [code for code in refused.values() if code is not ErrorCode.OPERATION_NOT_ATTEMPTED]
            code = codes[0] if codes else ErrorCode.OPERATION_NOT_ATTEMPTED
            if code in self.network.traits.retriable:
                self.coordinator = None
            elif code is ErrorCode.CONCURRENT_TRANSACTIONS:
                question.retry_at_ms = self.clock.monotonic_ms() + self.pause_ms(code, question.failures)
            else:
                names = ", ".join(f"{partition}" for partition, refusal in refused.items() if refusal is code)
                self.fail_transaction(error_for(code, f"adding {names}"), "partitions could not be added")
