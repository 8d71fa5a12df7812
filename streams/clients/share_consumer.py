"""The share consumer (KIP-932): members of a share group get records of the same partitions, and acknowledge each.

All work happens inside ``poll`` and the commits, on the application's thread; only ``wakeup`` may be called from
another thread.  The rules for the background heartbeat are in ``heartbeat``.
Of the other packages, this module imports only ``core``, ``group`` and ``protocol``.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, Unpack

from streams.clients.errors import RequestTimeoutError, UnacknowledgedError, WakeupError
from streams.clients.heartbeat import BackgroundHeartbeat, ConsumerLock, exclusive
from streams.clients.settings import check_group_id
from streams.clients.share_decoding import DecodedRecords, deliver
from streams.clients.share_fetcher import ShareFetcher
from streams.clients.share_membership import ShareMembership
from streams.clients.share_parts import ShareParts
from streams.clients.share_records import AcknowledgementParcel, AcknowledgeType, Deliveries, ShareRecord
from streams.clients.tcp import cluster_of
from streams.clients.topic_subscription import SubscriptionPattern, TopicSubscription
from streams.clients.watch import TopicWatch
from streams.core.client_settings import Security, ShareConsumerSettings
from streams.core.clock import Clock, Deadline, SystemClock
from streams.core.errors import BrokerError, ClientClosedError, ConfigError, StreamsError
from streams.core.metrics import Metrics
from streams.core.records import TopicPartition
from streams.core.setting import changed
from streams.core.settings import ShareConsumerOptions
from streams.core.threads import SystemThreads, Threads
from streams.core.topic import Topic
from streams.core.user_code import refuse_unawaited
from streams.protocol.transport import Cluster

#: Called when acknowledgements are done, with their offsets by partition, and the error or None.
AcknowledgementCommitCallback: TypeAlias = Callable[[Mapping[TopicPartition, Sequence[int]], BrokerError | None], None]


class Acknowledgeable(Protocol):
    """A record of a share group, of which partition and offset are enough."""

    @property
    def topic(self) -> str:
        """The topic."""
        ...

    @property
    def partition(self) -> int:
        """The partition number."""
        ...

    @property
    def offset(self) -> int:
        """The offset."""
        ...


class ShareConsumer:
    """A member of a share group, which gets records of topics that it shares with the other members.

    Each record is locked for the member that gets it, for the duration of the group's locks (30 seconds by default).
    With implicit acknowledgements the next poll or commit accepts all records of the last poll; with explicit ones the
    application acknowledges each record.  A record that is released, or whose lock ends, is delivered again.

    Args:
        broker: the embedded broker, or another ``Cluster``.
        group_id: the share group to join.
        bootstrap_servers: Kafka brokers as "host:port", instead of ``broker``; ``security`` configures TLS and SASL.
        clock: the source of time; tests pass a virtual clock.
        threads: starts the thread for ``background_heartbeat``.
        settings: the base ``ShareConsumerSettings``, by default Kafka's defaults.
        options: single settings by name, such as ``max_poll_records=100``; see the settings reference.

    Raises:
        ConfigError: a setting is unknown or invalid, or the group id is empty.
    """

    _heartbeat: BackgroundHeartbeat | None = None

    def __init__(
        self,
        broker: Cluster | None = None,
        group_id: str = "",
        *,
        bootstrap_servers: str | Iterable[str] = "",
        security: Security | None = None,
        clock: Clock | None = None,
        threads: Threads | None = None,
        settings: ShareConsumerSettings | None = None,
        **options: Unpack[ShareConsumerOptions],
    ) -> None:
        check_group_id(group_id)
        broker = cluster_of(broker, bootstrap_servers, security, "a share consumer")
        settings = self._settings = changed(settings or ShareConsumerSettings(), options)
        parts = self._parts = ShareParts.of(broker, group_id, settings, clock or SystemClock())
        self._network, self._clock, self._metadata = parts.network, parts.clock, parts.metadata
        self._is_explicit = settings.share_acknowledgement_mode == "explicit"
        self._membership, self._deliveries, self._topics = ShareMembership(parts), Deliveries(), TopicSubscription()
        self._fetcher = ShareFetcher(parts, self._member_id, self._on_done)
        self._watch = TopicWatch(parts, lambda: None)
        self._unreadable: deque[DecodedRecords] = deque()
        self._callback: AcknowledgementCommitCallback | None = None
        self._finished: deque[AcknowledgementParcel] = deque()
        self._is_woken = self._is_closed = self._is_in_callback = False
        threads = threads or SystemThreads()
        self._lock = ConsumerLock(threads)
        self._start_heartbeat(threads)

    def record_metrics(self, metrics: Metrics) -> None:
        """Start recording the metrics of this consumer, such as ``records-consumed-total``, in a registry."""
        self._parts.sensors.record(metrics, self._settings.client_id)

    def _member_id(self) -> str:
        return self._membership.member.member_id

    # --- subscription -----------------------------------------------------------------

    @exclusive
    def subscribe(self, topics: Iterable[str | Topic[Any, Any]]) -> None:
        """Subscribe to topics, replacing the previous subscription.

        ``topics`` are names, or ``Topic`` objects, whose types ``poll`` uses to decode records.

        Raises:
            ConfigError: ``topics`` is empty, or a regular expression, which share groups do not have.
        """
        self._check_open()
        given: object = topics
        if isinstance(given, re.Pattern | SubscriptionPattern):
            raise ConfigError("subscribe() got a regular expression; a share group subscribes to names of topics")
        self._topics.subscribe(topics)
        self._membership.subscribe(self._topics.names)
        self._watch.refresh()

    @exclusive
    def unsubscribe(self) -> None:
        """Leave the group, and release the records that no poll has returned.

        Records that were returned can still be acknowledged and committed.
        """
        self._check_open()
        for received in self._fetcher.take_all():
            self._release(deliver(received, None))
        self._fetcher.add(self._deliveries.take(), is_urgent=True)
        self._fetcher.send((), is_fetching=False)
        self._topics.unsubscribe()
        self._membership.leave(self._parts.deadline(None))

    def subscription(self) -> frozenset[str]:
        """Return the names of the subscribed topics."""
        return frozenset(self._topics.names)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions of which the group lets this member get records; other members may have them too."""
        return frozenset(self._membership.assigned)

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The duration of the locks in milliseconds, or None before the first response."""
        return self._fetcher.lock_timeout_ms

    # --- reading ----------------------------------------------------------------------

    @exclusive
    def poll(self, timeout_ms: int = 0) -> list[ShareRecord[Any, Any]]:
        """Return records as soon as there are any; they are decoded if the subscription has types for the topic.

        With implicit acknowledgements, all records of the last poll are accepted.  Records that are being renewed are
        waited for and returned first.

        Raises:
            ConfigError: no topics are subscribed to.
            UnacknowledgedError: acknowledgements are explicit, and a record of the last poll has none.
            SerializationError: a record cannot be decoded; it will be released.
            WakeupError: ``wakeup`` was called.
            BrokerError: the group or a topic cannot be read.
        """
        self._check_open()
        if not self._topics.names:
            raise ConfigError("poll() without a subscription; call subscribe() first")
        self._settle()
        self._fetcher.add(self._deliveries.take())
        if self._unreadable:
            raise self._next_unreadable()
        deadline = Deadline(self._clock, self._clock.monotonic_ms() + max(0, timeout_ms))
        has_progress = True
        self._check_wakeup()
        self._network.poll(0)
        while True:
            has_progress = self._work() or has_progress
            records = self._next_records()
            is_fetching = not (records or self._deliveries.is_renewing or self._fetcher.has_records)
            has_progress = self._fetcher.send(self._membership.assigned, is_fetching=is_fetching) > 0 or has_progress
            if records:
                return records
            if self._unreadable:
                raise self._next_unreadable()
            remaining_ms = deadline.remaining_ms(has_progress=has_progress)
            if not remaining_ms and not has_progress:
                return []
            # New requests may be answered immediately, so poll once more before returning.
            has_progress = self._network.poll(self._wait_ms(remaining_ms)) > 0
            self._check_wakeup()

    # --- acknowledgements -------------------------------------------------------------

    @exclusive
    def acknowledge(self, record: Acknowledgeable, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge a record of the last poll; the next poll or commit sends it, and until then it can be changed.

        Raises:
            ConfigError: acknowledgements are implicit.
            UndeliveredError: this consumer does not have the record, or has committed its acknowledgement.
        """
        self.acknowledge_offset(TopicPartition(record.topic, record.partition), record.offset, kind)

    @exclusive
    def acknowledge_offset(
        self, partition: TopicPartition, offset: int, kind: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledge a record by its offset, also one that poll could not decode; see ``acknowledge``."""
        self._check_open()
        if not self._is_explicit:
            raise ConfigError(
                "acknowledge() with implicit acknowledgements, where the next poll or commit accepts all records; set "
                "share_acknowledgement_mode='explicit'"
            )
        self._deliveries.acknowledge(partition, offset, AcknowledgeType(kind))

    @exclusive
    def commit_sync(self, timeout_ms: int | None = None) -> dict[TopicPartition, BrokerError | None]:
        """Send all acknowledgements and wait; return the error of each partition, or None for success.

        With implicit acknowledgements, all records of the last poll are accepted.  After an error the records are
        delivered again, unless the broker has performed a request whose response was lost.

        Raises:
            WakeupError: ``wakeup`` was called.
        """
        parcels = self._commit()
        deadline = self._parts.deadline(timeout_ms)
        for parcel in parcels:
            parcel.retry_until_ms = deadline.deadline_ms
        has_progress = True
        while any(not parcel.is_done for parcel in parcels):
            has_progress = self._work() or has_progress
            has_progress = self._fetcher.send((), is_fetching=False) > 0 or has_progress
            remaining_ms = deadline.remaining_ms(has_progress=has_progress)
            if not remaining_ms and not has_progress:
                break
            has_progress = self._network.poll(self._wait_ms(remaining_ms)) > 0
            self._check_wakeup()
        self._run_callbacks()
        results: dict[TopicPartition, BrokerError | None] = {}
        for parcel in parcels:
            partition = parcel.origin.partition
            late = RequestTimeoutError(f"acknowledgement of {partition}: no answer in time; it may still be performed")
            results[partition] = results.get(partition) or (parcel.error if parcel.is_done else late)
        return results

    @exclusive
    def commit_async(self) -> None:
        """Send all acknowledgements without waiting; the acknowledgement commit callback is told the outcome.

        With implicit acknowledgements, all records of the last poll are accepted.
        """
        self._commit()
        self._fetcher.send((), is_fetching=False)

    @exclusive
    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCommitCallback | None) -> None:
        """Set the function that is called inside poll, commit and close with acknowledgements that are done.

        Its arguments are the offsets by partition, and the error or None.  It must not call this consumer.

        Raises:
            ConfigError: the function is async or a generator function, which would never run.
        """
        self._check_open()
        refuse_unawaited(callback, "acknowledgement commit callback", error=ConfigError)
        self._callback = callback

    # --- closing ----------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the current or next ``poll`` or ``commit_sync`` raise WakeupError; only this is thread-safe."""
        self._is_woken = True
        self._network.wakeup()

    def __repr__(self) -> str:
        return f"<ShareConsumer {self._settings.client_id!r} of share group {self._parts.group_id!r}>"

    def close(self, timeout_ms: int = 30_000) -> None:
        """Send the acknowledgements, release all other records, and leave the group; closing again has no effect.

        With implicit acknowledgements the records of the last poll are released unless they were committed.
        """
        if self._is_closed:
            return
        if self._heartbeat is not None:
            self._heartbeat.close()
        deadline = self._parts.deadline(timeout_ms)
        try:
            self._fetcher.add(self._deliveries.take(), is_urgent=True)
            self._fetcher.close(deadline)
            self._run_callbacks()
            self._membership.leave(deadline)
        finally:
            self._is_closed = True
            self._network.close()
            self._parts.sensors.close()

    def __enter__(self) -> "ShareConsumer":
        """Return the consumer, which is closed at the end of the ``with`` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the consumer."""
        self.close()

    # --- inside -----------------------------------------------------------------------

    def _start_heartbeat(self, threads: Threads) -> None:
        if self._settings.background_heartbeat:
            name = f"{self._settings.client_id}-heartbeat"
            self._heartbeat = BackgroundHeartbeat(threads, self._lock, self._membership.keep_alive, name)

    def _settle(self) -> None:
        """Accept the delivered records if acknowledgements are implicit; otherwise check that each has one."""
        if not self._is_explicit:
            self._deliveries.accept_all()
            return
        left: dict[TopicPartition, list[int]] = {}
        for partition, offset in self._deliveries.unacknowledged():
            left.setdefault(partition, []).append(offset)
        if left:
            partition, offsets = next(iter(left.items()))
            count = sum(map(len, left.values()))
            raise UnacknowledgedError(
                f"poll() with {count} records that have no acknowledgement, such as {partition} at {offsets[0]}; "
                "acknowledge each record of the last poll, or set share_acknowledgement_mode='implicit'",
                left,
            )

    def _commit(self) -> list[AcknowledgementParcel]:
        self._check_open()
        if not self._is_explicit:
            self._deliveries.accept_all()
        parcels = self._deliveries.take()
        self._fetcher.add(parcels, is_urgent=True)
        return parcels

    def _next_records(self) -> list[ShareRecord[Any, Any]]:
        """Return renewed records, or else those that have arrived, up to max_poll_records and whole partitions."""
        records = self._deliveries.deliver_renewed()
        if records or self._deliveries.is_renewing:
            return records
        while len(records) < self._settings.max_poll_records and not self._unreadable:
            if records and not self._fetcher.has_records:
                break
            received = self._fetcher.take()
            if received is None:
                break
            delivery = deliver(received, self._topics.typed.get(received.origin.partition.topic))
            self._deliveries.add(delivery.acquisition)
            records += delivery.records
            if delivery.error is not None:
                self._unreadable.append(delivery)
        self._note(records)
        return records

    def _note(self, records: Sequence[ShareRecord[Any, Any]]) -> None:
        if self._parts.sensors.is_on:
            self._parts.sensors.records.value += len(records)

    def _next_unreadable(self) -> StreamsError:
        """Return the error of records that could not be decoded; from now on they can be acknowledged."""
        delivery = self._unreadable.popleft()
        self._deliveries.add(delivery.unreadable)
        assert delivery.error is not None
        return delivery.error

    def _release(self, delivery: DecodedRecords) -> None:
        """Release the records of a response that nobody has got."""
        acquisition = delivery.acquisition
        acquisition.types.update(dict.fromkeys(list(acquisition.unacknowledged()), AcknowledgeType.RELEASE))
        self._deliveries.add(acquisition)
        self._deliveries.add(delivery.unreadable)

    def _work(self) -> bool:
        """Do due work except fetching (callbacks, metadata, group); return whether any was due."""
        self._run_callbacks()
        if self._fetcher.needs_metadata or self._membership.needs_metadata:
            self._fetcher.needs_metadata = False
            self._watch.expedite()
        has_progress = self._watch.poll(self._topics_of_interest())
        return self._membership.poll() or has_progress

    def _topics_of_interest(self) -> frozenset[str]:
        return frozenset(self._topics.names).union(partition.topic for partition in self._membership.assigned)

    def _wait_ms(self, remaining_ms: int) -> int:
        """Return how many milliseconds to wait for responses, at most until the next timer is due."""
        now = self._clock.monotonic_ms()
        due = [self._fetcher.next_retry_ms(now), self._membership.next_deadline_ms()]
        if self._topics.names:
            due.append(self._watch.next_deadline_ms())
        return max(0, min([remaining_ms, *(at - now for at in due if at is not None)]))

    def _on_done(self, parcel: AcknowledgementParcel) -> None:
        self._deliveries.finish(parcel)
        self._finished.append(parcel)

    def _run_callbacks(self) -> None:
        """Call the callback with acknowledgements that are done, outside of the handling of responses."""
        while self._finished:
            parcel = self._finished.popleft()
            offsets = parcel.offsets()
            if self._callback is None or not offsets:
                continue
            self._is_in_callback = True
            try:
                self._callback({parcel.origin.partition: offsets}, parcel.error)
            finally:
                self._is_in_callback = False

    def _check_open(self) -> None:
        if self._is_in_callback:
            raise StreamsError("the acknowledgement commit callback must not call its consumer; note what it got")
        if self._is_closed:
            raise ClientClosedError("the share consumer is closed; make a new one")

    def _check_wakeup(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called while the share consumer waited")
