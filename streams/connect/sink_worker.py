"""The worker of a sink: reads a topic as a member of a group, and writes it to the sink in batches.

Records wait as raw blocks until a batch is complete; then they are deserialized column by column, written with one
call per partition, and committed.  After a transient error the sink is opened again, and reading goes on at the
positions that are stored in the target.
Of the other packages, this module imports only ``clients``, ``core`` and ``protocol``.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from attrs import evolve

from streams.clients import Consumer, Producer, RebalanceListener, WakeupError, block_size, is_transient
from streams.connect.columns import Unreadable, joined, readable
from streams.connect.errors import ConnectError, SinkFencedError
from streams.connect.lifecycle import ConnectWorker
from streams.connect.protocol import SinkBlock, SinkConnector
from streams.connect.worker_settings import SinkSettings
from streams.core.blocks.records import Block, TopicPartition
from streams.core.dead_letters import error_headers
from streams.core.errors import (
    BrokerError,
    ConfigError,
    MemberFencedError,
    RebalanceInProgressError,
    SerializationError,
)

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

_POLL_MS = 500


class SinkWorker(ConnectWorker[K, V, SinkConnector[K, V], SinkSettings], RebalanceListener):
    """Writes a topic to a sink.

    Workers with the same name share the partitions of the topic, in one program or in several.  ``run`` works in the
    caller's thread; ``start``, ``wait`` and ``close``, or a ``with`` block, in a thread of its own.
    """

    _consumer: Consumer | None = None
    #: Records and their bytes that were read and not written, and when they are due.
    _records = 0
    _bytes = 0
    _due_ms = 0
    _dead_letters: Producer | None = None
    _is_open = False
    #: Whether the group has assigned partitions, or told that there are none for this worker.
    _is_assigned = False
    #: Whether the worker was fenced and has not committed since then.
    _was_fenced = False
    #: An error in a callback of the group, which the next turn handles.
    _failure: Exception | None = None
    #: Monotonic time of the next attempt after a passing error.
    _resume_at_ms = 0

    def _default_settings(self) -> SinkSettings:
        return SinkSettings()

    def _wakeup(self) -> None:
        if self._consumer is not None:
            self._consumer.wakeup()

    def _work(self) -> None:
        self._empty()
        settings = self._settings
        name = self.name
        consumer = Consumer(
            self._cluster,
            name,
            client_id=f"{name}-sink",
            auto_offset_reset="none",
            enable_auto_commit=False,
            isolation_level="read_committed",
            allow_auto_create_topics=False,
            background_heartbeat=True,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=max(1, min(3_000, settings.session_timeout_ms // 3)),
            max_poll_interval_ms=settings.max_poll_interval_ms,
            clock=self._clock,
            threads=self._threads,
        )
        self._consumer = consumer
        log.info("sink %r: %s, reads topic %r", name, self._connector.guarantee, self._topic.name)
        try:
            with consumer:
                if not consumer.partitions_for(self._topic.name):
                    log.warning("sink %r: topic %r does not exist; waiting until it is created", name, self._topic.name)
                consumer.subscribe([self._topic], self)
                try:
                    while not self._is_stopping:
                        self._attempt(consumer)
                    self._flush(consumer)
                except KeyboardInterrupt:
                    self._flush(consumer)
                    raise
                finally:
                    # What is left was not committed, so the listener must not write it while the consumer closes.
                    self._drop()
        finally:
            self._connector.close()
            if self._dead_letters is not None:
                self._dead_letters.close()

    # --- turns ------------------------------------------------------------------------

    def _attempt(self, consumer: Consumer) -> None:
        try:
            self._turn(consumer)
        except WakeupError:
            pass  # The worker was told to stop, or partitions were assigned.
        except Exception as error:  # noqa: BLE001 - errors that are not passing are raised again.
            self._recover(consumer, error)

    def _turn(self, consumer: Consumer) -> None:
        if self._failure is not None:
            failure = self._failure
            self._failure = None
            raise failure
        pause_ms = self._resume_at_ms - self._clock.monotonic_ms()
        if pause_ms > 0:
            # A poll without records keeps the membership of the group.
            consumer.poll_blocks(pause_ms)
            return
        if not self._is_open and consumer.assignment():
            self._open(consumer)
        settings = self._settings
        wait_ms = _POLL_MS
        if self._pending:
            wait_ms = max(0, min(_POLL_MS, self._due_ms - self._clock.monotonic_ms()))
        for partition, blocks in consumer.poll_blocks(wait_ms, settings.batch_records).items():
            self._take(consumer, partition, blocks)
        is_due = self._pending and self._clock.monotonic_ms() >= self._due_ms
        if is_due or self._records >= settings.batch_records or self._bytes >= settings.batch_bytes:
            self._flush(consumer)
        self._progress = evolve(self._progress, lag=self._lag(consumer))

    def _take(self, consumer: Consumer, partition: TopicPartition, blocks: Sequence[Block]) -> None:
        if not self._pending:
            self._due_ms = self._clock.monotonic_ms() + self._settings.batch_ms
        self._pending.setdefault(partition, []).extend(blocks)
        self._records += sum(map(len, blocks))
        self._bytes += sum(map(block_size, blocks))
        last = max(int(block.offsets[-1]) for block in blocks) + 1
        # Transaction markers have offsets too, so the position can be further.
        self._next[partition] = max(last, consumer.known_position(partition) or 0)

    def _flush(self, consumer: Consumer) -> None:
        """Write and commit the records that were read."""
        if not self._pending:
            return
        skipped = 0
        for partition, blocks in self._pending.items():
            block, unreadable = self._columns(partition, blocks)
            skipped += len(unreadable)
            self._bury(partition, unreadable)
            self._connector.write(block)
        if self._dead_letters is not None:
            self._dead_letters.flush()
        self._connector.commit()
        positions = self._next
        records = self._records
        size = self._bytes
        self._empty()
        self._count(records=records - skipped, bytes=size, batches=1, skipped=skipped)
        self._retries.succeeded()
        self._was_fenced = False
        try:
            consumer.commit_sync(positions)
        except (MemberFencedError, RebalanceInProgressError) as error:
            # The rows are there; a sink that is not exactly-once gets them again from the next owner.
            self._note(error)
            log.warning("sink %r: %s", self.name, error)

    def _columns(
        self, partition: TopicPartition, blocks: Sequence[Block]
    ) -> tuple[SinkBlock[K, V], Sequence[Unreadable]]:
        raw = joined(blocks)
        keys, values, unreadable = readable(self._topic, raw)
        if unreadable:
            first = unreadable[0]
            if self._settings.deserialization_handler == "fail":
                raise SerializationError(
                    f"sink {self.name!r}: {partition}, offset {first.offset}: {first.error}; fix the type of the "
                    "topic, or skip such records with deserialization_handler=continue"
                ) from first.error
            for bad in unreadable:
                log.warning("sink %r: %s, offset %d is skipped: %s", self.name, partition, bad.offset, bad.error)
            raw = raw.without({bad.index for bad in unreadable})
        block = SinkBlock(
            self._topic,
            partition.partition,
            raw.offsets,
            keys,
            values,
            raw.timestamps_ms,
            raw.headers,
            self._next[partition],
        )
        return block, unreadable

    def _bury(self, partition: TopicPartition, unreadable: Sequence[Unreadable]) -> None:
        """Send unreadable records to the dead letter topic, if there is one."""
        topic = self._settings.errors_dead_letter_queue_topic_name
        if not topic or not unreadable:
            return
        if self._dead_letters is None:
            self._dead_letters = Producer(self._cluster, clock=self._clock, client_id=f"{self.name}-dead-letters")
        for bad in unreadable:
            why = error_headers(bad.error, partition.topic, partition.partition, bad.offset, self.name)
            self._dead_letters.send(
                topic, bad.value, key=bad.key, timestamp_ms=bad.timestamp_ms, headers=(*bad.headers, *why)
            )

    # --- opening and errors -----------------------------------------------------------

    def _open(self, consumer: Consumer) -> None:
        """Open the sink for the assigned partitions, and seek to the positions stored in the target or the group."""
        assigned = sorted(consumer.assignment())
        self._empty()
        positions = self._connector.open(self.name, self._topic, [partition.partition for partition in assigned])
        begins = consumer.beginning_offsets(assigned)
        ends = consumer.end_offsets(assigned)
        committed = consumer.committed([it for it in assigned if it.partition not in positions])
        for partition in assigned:
            stored = positions.get(partition.partition)
            if stored is None and partition in committed:
                stored = committed[partition].offset
            if stored is None:
                is_first = self._settings.auto_offset_reset == "earliest"
                stored = begins[partition] if is_first else ends[partition]
            consumer.seek(partition, self._checked(partition, stored, begins[partition], ends[partition]))
        consumer.resume(assigned)
        self._is_open = True

    def _checked(self, partition: TopicPartition, stored: int, begin: int, end: int) -> int:
        """Return the offset to start from: the stored position, checked against the start and end of the log."""
        name = self.name
        if stored > end:
            raise ConfigError(
                f"sink {name!r}: its position in {partition} is {stored}, but the log ends at {end}: the topic was "
                "created anew, or it is the topic of another cluster; delete the position, or give another name"
            )
        if stored >= begin:
            return stored
        if self._settings.lost_records == "fail":
            raise ConnectError(
                f"sink {name!r}: its position in {partition} is {stored}, but the log begins at {begin}: "
                f"{begin - stored} offsets were deleted before they were written; lost_records=continue goes on there"
            )
        self._count(lost=begin - stored)
        log.warning("sink %r: %d offsets of %s were deleted before they were written", name, begin - stored, partition)
        return begin

    def _recover(self, consumer: Consumer, error: Exception) -> None:
        """Discard uncommitted records, and pause before the next attempt; raise errors that are not transient."""
        self._note(error)
        self._drop()
        if isinstance(error, SinkFencedError) and not self._was_fenced:
            # A worker that was suspended for long finds out here that others have its partitions: it joins anew.
            self._was_fenced = True
            self._count(fenced=1)
            log.warning("sink %r: %s", self.name, error)
            consumer.enforce_rebalance("another worker has written to the sink")
            return
        is_passing = is_transient(error) if isinstance(error, BrokerError) else self._connector.is_retriable(error)
        if isinstance(error, SinkFencedError) or not is_passing:
            raise error
        pause_ms = self._retries.after(error, f"sink {self.name!r}")
        self._count(retries=1)
        log.warning("sink %r: tried again in %d ms: %s", self.name, pause_ms, error)
        assigned = consumer.assignment()
        consumer.pause(assigned)
        for partition in assigned:
            if consumer.known_position(partition) is None:
                # The first start, if the sink could not be opened.  Without a position, the polls of the pause would
                # ask the group for one, which has none; ``_open`` seeks to the right one.
                consumer.seek(partition, 0)
        self._resume_at_ms = self._clock.monotonic_ms() + pause_ms

    def _drop(self) -> None:
        """Discard the records that were read and not committed."""
        self._empty()
        self._is_open = False
        try:
            self._connector.abort()
        except Exception as error:  # noqa: BLE001 - the target drops it, too; the first error is the one to tell.
            log.warning("sink %r: abort: %s", self.name, error)

    def _empty(self) -> None:
        self._pending: dict[TopicPartition, list[Block]] = {}
        self._next: dict[TopicPartition, int] = {}
        self._records = 0
        self._bytes = 0
        self._due_ms = 0

    def _lag(self, consumer: Consumer) -> int | None:
        if not self._is_assigned:
            return None
        lag = 0
        for partition in consumer.assignment():
            end = consumer.known_end(partition)
            position = consumer.known_position(partition)
            if end is None or position is None or not self._is_open:
                return None
            lag += max(0, end - position)
        return lag + self._records

    # --- callbacks of the group -------------------------------------------------------

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Pause the partitions until the sink is open for them."""
        consumer = self._consumer
        assert consumer is not None, "the consumer calls"
        self._guarded(partial(self._flush, consumer))
        self._is_open = False
        self._is_assigned = True
        consumer.pause(consumer.assignment())
        consumer.wakeup()

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Write and commit the records that were read, before the partitions are assigned to other members."""
        assert self._consumer is not None, "the consumer calls"
        self._guarded(partial(self._flush, self._consumer))
        self._is_open = False

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Discard the records that were read: other members may own the partitions."""
        self._drop()

    def _guarded(self, step: "partial[None]") -> None:
        """Call ``step``; store its error, which the poll loop raises or retries."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the next turn raises or retries it.
            self._failure = error
            self._empty()
