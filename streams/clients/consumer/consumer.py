"""The consumer, which reads topics alone or as a member of a group; all work happens inside ``poll``.

The polling thread handles membership, heartbeats, metadata, fetches and commits; only ``wakeup``
may be called while it does, from another thread.  The rules for the background heartbeat are in ``heartbeat``.
Of the other packages, this module imports only ``core``, ``group`` and ``protocol``.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, Unpack

from streams.clients.arguments import checked_offset, checked_partitions, checked_times
from streams.clients.consumer.async_consumer import AsyncConsumer
from streams.clients.consumer.auto_commit import AutoCommit
from streams.clients.consumer.consumer_parts import ConsumerParts
from streams.clients.consumer.fetcher import Fetcher
from streams.clients.consumer.heartbeat import BackgroundHeartbeat, ConsumerLock, exclusive
from streams.clients.consumer.positions import Positions
from streams.clients.consumer.session import CommitCallback, GroupSession, RebalanceListener, checked_listener
from streams.clients.consumer.subscription import PartitionState
from streams.clients.consumer.topic_subscription import Topics, TopicSubscription
from streams.clients.consumer.unconsumed import Unconsumed
from streams.clients.errors import RequestTimeoutError, WakeupError, error_for
from streams.clients.offsets import list_offsets, partitions_of, with_metadata
from streams.clients.records import BadRecord, GroupMetadata, OffsetAndTimestamp, decode_block
from streams.clients.settings import isolation_level_of
from streams.clients.tcp import cluster_of
from streams.clients.watch import TopicWatch
from streams.core.blocks.records import Block, ConsumerRecord, TopicPartition
from streams.core.clock import Clock, Deadline, SystemClock
from streams.core.closeable import Closeable
from streams.core.concurrency.threads import SystemThreads, Threads
from streams.core.errors import BrokerError, ClientClosedError, ConfigError, StreamsError
from streams.core.metrics import Metrics
from streams.core.settings.client_settings import ConsumerSettings, Security
from streams.core.settings.setting import changed
from streams.core.settings.settings import ConsumerOptions
from streams.core.topic import Topic
from streams.core.user_code import refuse_unawaited
from streams.group import Assignor, CooperativeStickyAssignor, RangeAssignor, TaskHost
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, READ_COMMITTED
from streams.protocol.transport import Cluster, Outage

#: Offsets to commit; an int is an offset without metadata.
OffsetsToCommit: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata]


class Consumer(Closeable):
    """A consumer that reads records from topics.

    Without ``group_id``, partitions are assigned manually and nothing is committed.

    Args:
        broker: the embedded broker, or another ``Cluster``.
        group_id: the consumer group to join.
        bootstrap_servers: Kafka brokers as "host:port", instead of ``broker``; ``security`` configures TLS and SASL.
        assignors: the assignors in order of preference, by default range and cooperative-sticky; all members of a
            group need one in common.  A ``TaskHost`` makes this the consumer of a stream thread in a streams group.
        clock: the source of time; tests pass a virtual clock.
        threads: starts the thread for ``background_heartbeat``.
        settings: the base ``ConsumerSettings``, by default Kafka's defaults.
        options: single settings by name, such as ``max_poll_records=100``; see the settings reference.

    Raises:
        ConfigError: a setting is unknown or invalid.
    """

    _async: AsyncConsumer | None = None
    _heartbeat: BackgroundHeartbeat | None = None

    def __init__(
        self,
        broker: Cluster | str | None = None,
        group_id: str | None = None,
        *,
        bootstrap_servers: str | Iterable[str] = "",
        security: Security | None = None,
        assignors: Sequence[Assignor] | TaskHost | None = None,
        clock: Clock | None = None,
        threads: Threads | None = None,
        settings: ConsumerSettings | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        broker = cluster_of(broker, bootstrap_servers, security, "a consumer")
        settings = changed(settings or ConsumerSettings(), options)
        parts = self._parts = ConsumerParts.of(broker, group_id, settings, clock or SystemClock())
        self._settings = settings
        self._network = parts.network
        self._clock = parts.clock
        self._state = parts.subscription
        self._metadata = parts.metadata
        self._fetcher = Fetcher(parts)
        self._session = None if group_id is None else self._member_of_group(assignors)
        self._positions = Positions(parts, self._session)
        self._watch = TopicWatch(parts, self._on_metadata)
        self._topics = TopicSubscription()
        self._unconsumed = Unconsumed()
        self._threads = threads or SystemThreads()
        self._timeout_ms = settings.default_api_timeout_ms
        self._lock = ConsumerLock(self._threads)
        self._auto_commit = AutoCommit(settings, self._clock.monotonic_ms())
        self._absent: list[TopicPartition] = []
        self._settled_ms = 0  # Until then a broker may lack metadata of the assigned partitions.
        self._is_woken = self._is_closed = False
        self._late_callbacks: deque[Callable[[], None]] = deque()
        self._start_heartbeat(is_wanted=settings.background_heartbeat)

    def reset_by_topic(self, of_topic: Callable[[str], str | None]) -> None:
        """Use other reset policies than ``auto_offset_reset`` for the topics for which ``of_topic`` returns one."""
        self._parts.resets.of_topic = of_topic

    def record_metrics(self, metrics: Metrics) -> None:
        """Start recording this consumer's metrics, such as ``records-lag-max``, in a registry."""
        self._parts.sensors.record(metrics, self._settings.client_id)

    # --- subscription and assignment --------------------------------------------------

    @exclusive
    def subscribe(self, topics: Topics, listener: RebalanceListener | None = None) -> None:
        """Subscribe to topics as a member of the group, replacing the previous subscription.

        ``topics`` are names, or ``Topic`` objects, whose types ``poll`` uses to decode records, or one compiled
        pattern, which is matched against the full names of all topics, including topics created later, or one
        ``SubscriptionPattern``, which the broker matches.

        Raises:
            ConfigError: there is no group id, ``topics`` is empty, a method of the listener is async, or the broker
                matches no pattern in groups of this ``group_protocol``.
        """
        session = self._require_session("subscribe")
        self._topics.subscribe(topics, may_match_at_broker=self._settings.group_protocol == "consumer")
        if session.is_manual:
            self._state.replace(())
        session.listener = checked_listener(listener)
        self._watch.refresh()
        if self._topics.pattern is None:
            session.subscribe(self._topics.names, self._topics.broker_pattern)

    @exclusive
    def assign(self, partitions: Iterable[TopicPartition], topics: Iterable[Topic[Any, Any]] = ()) -> None:
        """Assign partitions manually, without group membership; records are decoded with the types of ``topics``.

        Raises:
            ConfigError: topics are subscribed to (unsubscribe first), or ``partitions`` are no TopicPartitions.
        """
        self._check_open()
        if self._session is not None and not self._session.is_manual:
            raise ConfigError("partitions cannot be assigned while topics are subscribed to; call unsubscribe() first")
        self._topics.know(topics)
        self._state.replace(dict.fromkeys(checked_partitions(partitions, "assign()")))
        self._unconsumed.take_all()
        self._watch.refresh()
        self._settled_ms = self._clock.monotonic_ms() + self._network.traits.settling_ms

    @exclusive
    def unsubscribe(self) -> None:
        """Release all partitions and leave the group."""
        self._check_open()
        if self._session is not None and not self._session.is_manual:
            self._session.leave(self._deadline(None))
        self._state.replace(())
        self._unconsumed.take_all()
        self._topics.unsubscribe()

    def subscription(self) -> frozenset[str]:
        """Return the names of the subscribed topics."""
        return frozenset(self._topics.names)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        return frozenset(self._state.partitions)

    @exclusive
    def enforce_rebalance(self, reason: str = "requested by the application") -> None:
        """Rejoin the group at the next ``poll``, so that all partitions are assigned again."""
        self._require_session("enforce_rebalance").member.request_rejoin(reason)

    @property
    @exclusive
    def group_metadata(self) -> GroupMetadata:
        """The current group metadata, to pass to ``Producer.send_offsets_to_transaction``."""
        session = self._require_session("group_metadata")
        member = session.member
        config = member.config
        return GroupMetadata(config.group_id, member.generation_id, member.member_id, config.group_instance_id)

    @property
    def alive_until_ms(self) -> int:
        """The monotonic time until which the group has certainly not removed this member; 0 if it is not a member."""
        return self._require_session("alive_until_ms").member.alive_until_ms

    # --- reading ----------------------------------------------------------------------

    @exclusive
    def poll_blocks(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[TopicPartition, list[Block]]:
        """Return raw blocks of records by partition as soon as there are any, and prefetch the next ones.

        Raises:
            WakeupError: ``wakeup`` was called.
            MemberFencedError: another process uses this group instance id.
            OffsetOutOfRangeError, NoOffsetError: a position is not in the log and no reset policy applies.
            UnknownTopicError: an assigned partition does not exist.
        """
        self._check_open()
        limit = self._settings.max_poll_records if max_records is None else max_records
        deadline = Deadline(self._clock, self._clock.monotonic_ms() + max(0, timeout_ms))
        has_progress = True
        self._check_wakeup()
        self._network.poll(0)
        while True:
            has_progress = self._work() or has_progress
            taken = self._fetcher.take(limit)
            has_progress = self._fetcher.send() > 0 or has_progress
            if taken:
                return taken
            remaining_ms = deadline.remaining_ms(has_progress=has_progress)
            if not remaining_ms and not has_progress:
                return {}
            # New requests may be answered immediately, so poll once more before returning.
            has_progress = self._network.poll(self._wait_ms(remaining_ms)) > 0
            self._check_wakeup()

    @exclusive
    def poll(self, timeout_ms: int = 0) -> list[ConsumerRecord[Any, Any]]:
        """Return records as soon as there are any; they are decoded if the subscription has types for the topic.

        Raises:
            ConfigError: no topic is subscribed to, and no partition is assigned.
            SerializationError: the next record cannot be decoded; the position stays at this record.
            WakeupError, BrokerError: see ``poll_blocks``.
        """
        self._check_open()
        if not self._state.partitions and self._topics.is_empty:
            # It would wait for ever.
            raise ConfigError("poll() without a subscription or an assignment; call subscribe() or assign() first")
        self._unconsumed.keep(self._state.partitions)
        if self._unconsumed:
            return self._unconsumed.take_all()
        records: list[ConsumerRecord[Any, Any]] = []
        bad: BadRecord | None = None
        for partition, blocks in self.poll_blocks(timeout_ms).items():
            for block in blocks:
                decoded, bad = decode_block(partition, block, self._topics.typed.get(partition.topic))
                records += decoded
                if bad is not None:
                    self.seek(partition, bad.offset)
                    break
        if bad is not None and not records:
            raise bad.error
        return records

    def __iter__(self) -> Iterator[ConsumerRecord[Any, Any]]:
        """Iterate over records indefinitely; a record counts as consumed when the next one is requested."""
        return self

    def __next__(self) -> ConsumerRecord[Any, Any]:
        """Wait for the next record and return it."""
        while (record := self.next_record()) is None:
            if self._is_closed:
                raise StopIteration
            self.read_ahead(self._timeout_ms)
        return record

    def next_record(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next record that ``read_ahead`` or iteration has polled, or None; without waiting."""
        self._unconsumed.keep(self._state.partitions)
        return self._unconsumed.next() if self._unconsumed else None

    @exclusive
    def read_ahead(self, timeout_ms: int) -> None:
        """Poll records for ``next_record``, unless there are some; they count as consumed when they are returned."""
        self._unconsumed.keep(self._state.partitions)
        if not self._unconsumed:
            self._unconsumed.add(self.poll(timeout_ms))

    @exclusive
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop returning records from these partitions until ``resume``; the partitions stay assigned."""
        for partition in partitions:
            self._assigned(partition).is_paused = True

    @exclusive
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records from these paused partitions again."""
        for partition in partitions:
            self._assigned(partition).is_paused = False

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return frozenset(partition for partition, state in self._state.partitions.items() if state.is_paused)

    # --- positions --------------------------------------------------------------------

    @exclusive
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position in a partition; the next ``poll`` continues at this offset."""
        self._assigned(partition).seek(checked_offset(offset, f"seek of {partition}"))
        self._unconsumed.drop((partition,))

    @exclusive
    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue at the log start of the given partitions, by default all assigned ones."""
        self._request_reset(partitions, EARLIEST_TIMESTAMP)

    @exclusive
    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue at the log end of the given partitions, by default all assigned ones."""
        self._request_reset(partitions, LATEST_TIMESTAMP)

    @exclusive
    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record, waiting until it is known."""
        state = self._assigned(partition)
        deadline = self._deadline(timeout_ms)
        has_progress = True
        while state.position is None:
            self._check_wakeup()
            has_progress = self._work() or has_progress
            remaining_ms = deadline.remaining_ms(has_progress=has_progress)
            if not remaining_ms and not has_progress:
                raise RequestTimeoutError(f"position of {partition}: not known in time; does the topic exist?")
            has_progress = self._network.poll(self._wait_ms(remaining_ms)) > 0
            state = self._assigned(partition)
        unread = self._unconsumed.offset(partition)
        return state.position if unread is None else unread

    def end_known_ms(self, partition: TopicPartition) -> int | None:
        """Return the monotonic time at which ``known_end`` was received, or None before the first fetch."""
        return None if (state := self._state.partitions.get(partition)) is None else state.end_known_ms

    def known_end(self, partition: TopicPartition) -> int | None:
        """Return the end offset from the last fetch response, without a request, or None before the first response."""
        return None if (state := self._state.partitions.get(partition)) is None else state.known_end

    def take_news(self) -> set[TopicPartition]:
        """Return the partitions whose known end offset or position was changed by a fetch since the last call."""
        return self._fetcher.take_news()

    def known_partition_count(self, topic: str) -> int | None:
        """Return the partition count of a topic from the cached metadata, without a request."""
        return self._metadata.partition_count(topic)

    def known_position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record without waiting, or None while the offset is unknown."""
        return None if (state := self._state.partitions.get(partition)) is None else state.position

    @exclusive
    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        timed_offsets = self._list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP), timeout_ms)
        return {partition: offset for partition, (_, offset) in timed_offsets.items()}

    @exclusive
    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None, *, isolation_level: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the end offset of each partition, by default at this consumer's isolation level.

        The end offset is the high watermark, or with READ_COMMITTED the last stable offset.
        """
        timed_offsets = self._list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP), timeout_ms, isolation_level)
        return {partition: offset for partition, (_, offset) in timed_offsets.items()}

    @exclusive
    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after each time (epoch milliseconds), or None if there is no such record."""
        timed_offsets = self._list_offsets(checked_times(times), timeout_ms)
        return {
            partition: None if offset < 0 else OffsetAndTimestamp(offset, timestamp_ms)
            for partition, (timestamp_ms, offset) in timed_offsets.items()
        }

    @exclusive
    def partitions_for(self, topic: str, timeout_ms: int | None = None) -> list[TopicPartition]:
        """Return the partitions of a topic; the list is empty if the topic does not exist."""
        self._check_open()
        deadline = self._deadline(timeout_ms)
        is_allowed = self._settings.allow_auto_create_topics
        return partitions_of(self._network, self._metadata, topic, deadline, allow_auto_create=is_allowed)

    # --- commits ----------------------------------------------------------------------

    @exclusive
    def commit_sync(self, offsets: OffsetsToCommit | None = None, timeout_ms: int | None = None) -> None:
        """Commit offsets, by default the positions, and wait for the response.

        Raises:
            MemberFencedError: the consumer is no longer in the group; another member may own its partitions.
            RebalanceInProgressError: the group is rebalancing; poll, then retry.
        """
        session = self._require_session("commit_sync")
        session.commit_now(self._to_commit(offsets), self._deadline(timeout_ms))

    @exclusive
    def commit_async(self, offsets: OffsetsToCommit | None = None, callback: CommitCallback | None = None) -> None:
        """Commit offsets, by default the positions, without waiting; ``callback`` is called inside a later ``poll``."""
        session = self._require_session("commit_async")
        refuse_unawaited(callback, "callback of commit_async", error=ConfigError)
        due = self._to_commit(offsets)

        def done(error: BrokerError | None) -> None:
            if callback is not None and self._lock.is_background:
                self._late_callbacks.append(partial(callback, due, error))
            elif callback is not None:
                callback(due, error)

        if session.member.coordinator is None:
            session.ensure_coordinator(self._deadline(None))
        session.commit(due, done)

    @exclusive
    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without a committed offset are absent.

        With the isolation level "read_committed", the call waits for open transactions that commit any of these offsets
        (KIP-447).
        """
        session = self._require_session("committed")
        is_stable = isolation_level_of(self._settings) == READ_COMMITTED
        return session.fetch_committed(tuple(partitions), self._deadline(timeout_ms), require_stable=is_stable)

    # --- closing ----------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the current or next ``poll`` raise WakeupError; this is thread-safe."""
        self._is_woken = True
        self._network.wakeup()

    @property
    def outage(self) -> Outage | None:
        """The outage of all brokers, None if one can be reached; thread-safe."""
        return self._network.outage

    def __repr__(self) -> str:
        group = "" if self._session is None else f" of group {self._session.member.config.group_id!r}"
        return f"<Consumer {self._settings.client_id!r}{group}>"

    def close(self, timeout_ms: int = 30_000) -> None:
        """Commit if auto-commit is enabled, release all partitions, and leave the group unless the member is static.

        Closing again has no effect.
        """
        if self._is_closed:
            return
        if self._heartbeat is not None:
            self._heartbeat.close()
        self._timeout_ms = timeout_ms
        try:
            if self._session is not None and not self._session.is_manual:
                self._session.leave(self._deadline(timeout_ms))
            else:
                self._before_revoke()
        finally:
            self._is_closed = True
            self._state.replace(())
            self._fetcher.close()
            self._network.close()
            self._parts.sensors.close()

    async def __aenter__(self) -> AsyncConsumer:
        """Return the consumer for coroutines, which is closed at the end of the ``async with`` block."""
        self._start_heartbeat()
        self._async = AsyncConsumer(self, self._settings.client_id)
        return self._async

    async def __aexit__(self, *_: object) -> None:
        """Close the consumer without blocking the event loop."""
        assert self._async is not None
        await self._async.close()

    # --- inside -----------------------------------------------------------------------

    def _member_of_group(self, assignors: Sequence[Assignor] | TaskHost | None) -> GroupSession:
        host = None if assignors is None or isinstance(assignors, Sequence) else assignors
        assignors = assignors if isinstance(assignors, Sequence) else ()
        if assignors and self._settings.group_protocol == "consumer":
            raise ConfigError("group_protocol='consumer' and assignors=: the broker assigns; use group_remote_assignor")
        assignors = assignors or (RangeAssignor(), CooperativeStickyAssignor())
        session = GroupSession(self._parts, self._fetcher, assignors, host)
        session.before_revoke = self._before_revoke
        return session

    def _start_heartbeat(self, *, is_wanted: bool = True) -> None:
        if is_wanted and self._session is not None and self._heartbeat is None:
            name = f"{self._settings.client_id}-heartbeat"
            self._heartbeat = BackgroundHeartbeat(self._threads, self._lock, self._session.keep_alive, name)

    def _work(self) -> bool:
        """Do due work except fetching (callbacks, metadata, group, positions, commits); return whether any was due."""
        now = self._clock.monotonic_ms()
        while self._late_callbacks:
            self._late_callbacks.popleft()()
        lacks_names = self._session is not None and self._session.needs_metadata
        if self._fetcher.needs_metadata or self._positions.needs_metadata or lacks_names:
            self._fetcher.needs_metadata = self._positions.needs_metadata = False
            self._watch.expedite()
        has_progress = self._watch.poll(self._topics_of_interest())
        if self._absent:
            absent = self._absent
            self._absent = []
            names = ", ".join(str(p) for p in absent if p in self._state.partitions)
            if names:
                raise error_for(self._metadata.why_unknown(absent[0].topic), f"assigned {names}")
        if self._session is not None:
            has_progress = self._session.poll() or has_progress
        has_progress = self._positions.update() or has_progress
        if self._session is not None and self._auto_commit.is_due(now):
            self._auto_commit.commit(self._session, self._to_commit(None))
        return has_progress

    def _wait_ms(self, remaining_ms: int) -> int:
        """Return how many milliseconds to wait for responses, at most until the next timer is due."""
        now = self._clock.monotonic_ms()
        due = [self._fetcher.next_retry_ms(now), self._positions.next_retry_ms(now)]
        if self._session is not None:
            due.append(self._session.next_deadline_ms())
        if self._topics_of_interest() != frozenset():
            due.append(self._watch.next_deadline_ms())
        return max(0, min([remaining_ms, *(at - now for at in due if at is not None)]))

    def _topics_of_interest(self) -> frozenset[str] | None:
        """Return the topics whose metadata is needed, or None for all topics."""
        lacks_names = self._session is not None and self._session.needs_metadata
        if self._topics.pattern is not None or (self._topics.broker_pattern and lacks_names):
            return None
        topics = self._state.topics().union(self._topics.names)
        return topics if self._session is None else topics | self._session.group_topics

    def _on_metadata(self) -> None:
        session = self._session
        interest = self._topics
        if session is None or (session.is_manual and interest.pattern is None):
            # Group members wait until their topics are created; manually assigned partitions have to exist.
            if self._clock.monotonic_ms() >= self._settled_ms:
                self._absent = [p for p in self._state.partitions if not self._metadata.exists(p)]
            return
        if interest.pattern is not None:
            interest.match(self._metadata)
            session.subscribe(interest.names)
        session.check_topics()

    def _before_revoke(self) -> None:
        if self._session is not None and self._settings.enable_auto_commit:
            self._session.commit_quietly(self._to_commit(None), self._deadline(None))
        self._unconsumed.drop([partition for partition, state in self._state.partitions.items() if state.is_leaving])

    def _to_commit(self, offsets: OffsetsToCommit | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            offsets = positions = self._state.positions()
            self._unconsumed.hold_back(positions)
        return with_metadata(offsets)

    def _list_offsets(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None, isolation_level: int | None = None
    ) -> dict[TopicPartition, tuple[int, int]]:
        self._check_open()
        level = isolation_level_of(self._settings) if isolation_level is None else isolation_level
        return list_offsets(self._network, self._metadata, times, self._deadline(timeout_ms), level)

    def _request_reset(self, partitions: Iterable[TopicPartition], to: int) -> None:
        chosen = list(partitions) or list(self._state.partitions)
        for partition in chosen:
            self._assigned(partition).request_reset(to)
        self._unconsumed.drop(chosen)

    def _assigned(self, partition: TopicPartition) -> PartitionState:
        self._check_open()
        state = self._state.partitions.get(partition)
        if state is None:
            raise StreamsError(f"{partition} is not assigned to this consumer; it has {sorted(self._state.partitions)}")
        return state

    def _require_session(self, verb: str) -> GroupSession:
        self._check_open()
        if self._session is None:
            raise ConfigError(f"{verb} needs a group: make the consumer with group_id=..., or use assign()")
        return self._session

    def _deadline(self, timeout_ms: int | None) -> Deadline:
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        return Deadline(self._clock, self._clock.monotonic_ms() + timeout_ms)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the consumer is closed; make a new one")

    def _check_wakeup(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called while the consumer polled")
