"""A consumer that distributes partitions over a pool of workers and keeps the order within each partition.

One thread polls, commits and maintains the membership.  Workers share the partitions, one batch at a
time, so a slow partition does not delay the others.  A failed record is retried before later records
of its partition; after the last attempt it is sent to the dead letter queue topic or ends ``run``.  Commits
cover only handled records.  ``_lock`` guards the lanes, which are the partitions with their buffered
records, and is never held while waiting.  Of the other packages, this module imports only ``core``, ``group`` and
``protocol``.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, Unpack

from attrs import define, field

from streams.clients.consumer.consumer import Consumer
from streams.clients.consumer.session import RebalanceListener
from streams.clients.consumer.topic_subscription import Topics, TopicSubscription
from streams.clients.errors import WakeupError
from streams.clients.network import Backoff
from streams.clients.producer.producer import Producer
from streams.clients.records import decode_block
from streams.core.blocks.records import Block, ConsumerRecord, TopicPartition
from streams.core.clock import Clock, SystemClock
from streams.core.concurrency.threads import Signal, SystemThreads, ThreadKilled, Threads, Worker
from streams.core.dead_letters import error_headers
from streams.core.errors import (
    BrokerError,
    ConfigError,
    ProcessingError,
    SerializationError,
    StreamsError,
    UnawaitedError,
)
from streams.core.settings.client_settings import ConsumerSettings, ParallelSettings, Security
from streams.core.settings.setting import canonical_name, changed, table_of
from streams.core.settings.settings import ParallelOptions
from streams.core.topic import Topic
from streams.core.user_code import refuse_result, refuse_unawaited
from streams.group import Assignor
from streams.protocol.transport import Cluster

log = logging.getLogger(__name__)

Record: TypeAlias = ConsumerRecord[Any, Any]

# Longest wait of the polling thread between checks of commits, retries and pauses.
_TURN_MS: Final = 50
# Longest sleep of an idle worker, which is woken for work.
_IDLE_MS: Final = 1_000


@define(eq=False)
class _Lane:
    """One partition with its buffered records, oldest first, and the next offset to commit.

    Records up to the offset ``alone_through`` are handled one by one, because their batch has failed.
    """

    partition: TopicPartition
    blocks: deque[Block] = field(factory=deque)
    waiting: int = 0
    done: int | None = None
    committed: int | None = None
    attempts: int = 0
    alone_through: int = -1
    due_ms: int = 0
    is_busy: bool = False
    is_given_up: bool = False
    is_paused: bool = False
    idle: Signal | None = None

    def take(self, limit: int) -> Block:
        """Return the next records, which stay in the lane until ``advance``."""
        block = self.blocks[0]
        if block.offsets[0] <= self.alone_through:
            limit = 1
        return block if len(block) <= limit else block.slice(0, limit)

    def advance(self, count: int) -> None:
        """Remove the first ``count`` records, which have been handled."""
        block = self.blocks.popleft()
        self.done = block.offsets[count - 1] + 1
        if count < len(block):
            self.blocks.appendleft(block.slice(count))
        self.waiting -= count
        self.attempts = 0


class _Options(ParallelOptions, total=False):
    """Options of a ``ParallelConsumer``: its settings, and the arguments that it passes to its consumer."""

    bootstrap_servers: str | Iterable[str]
    security: Security | None
    assignors: Sequence[Assignor] | None


def _split(
    options: Mapping[str, Any], topics: Topics, batch_handler: object
) -> tuple[ParallelSettings, dict[str, Any]]:
    """Separate the options into the settings of the worker pool, which are checked, and the options of the consumer."""
    passed_on = _Options.__annotations__.keys() - ParallelOptions.__annotations__.keys()
    own = table_of(ParallelSettings)
    names = {
        option: option if option in passed_on else canonical_name(option, {**table_of(ConsumerSettings), **own})
        for option in options
    }
    others = {option: value for option, value in options.items() if names[option] not in own}
    settings = changed(ParallelSettings(), {option: value for option, value in options.items() if option not in others})
    _check_settings(settings, topics, batch_handler)
    return settings, others


def _check_handlers(handler: object, batch_handler: object) -> None:
    if (handler is None) == (batch_handler is None):
        raise ConfigError("a parallel consumer needs one handler: give handler= or batch_handler=")
    refuse_unawaited(handler, "handler of a parallel consumer", error=ConfigError)
    refuse_unawaited(batch_handler, "batch_handler of a parallel consumer", error=ConfigError)


def _check_settings(settings: ParallelSettings, topics: Topics, batch_handler: object) -> None:
    if batch_handler is None and settings.batch_size != ParallelSettings().batch_size:
        raise ConfigError("batch_size is for batch_handler=: a handler= gets one record at a time")
    dead = settings.dead_letter_topic
    read = TopicSubscription()
    read.subscribe(topics, may_match_at_broker=True)
    is_read = dead in read.names or (read.pattern is not None and read.pattern.fullmatch(dead) is not None)
    if dead and is_read:
        raise ConfigError(
            f"dead_letter_topic={dead!r} is one of the topics that are read, so that its records would be sent to it "
            "again and again; give another one"
        )


class ParallelConsumer:
    """A group member that distributes its records over a pool of workers.

    Exactly one handler is given.  Order is kept only within each partition.  A record
    may be handled more than once after a crash or a failed batch (at least once).

    Args:
        topics: names, topics with their types, or one compiled pattern.
        handler: called with one record at a time.  It must not be async; if it returns a coroutine, ``run``
            ends with an error.
        batch_handler: called with up to ``batch_size`` records of one partition.
        clock: the source of time; tests pass a virtual clock.
        threads: starts the workers.
        options: single ``ParallelSettings`` by name, and arguments and settings of ``Consumer``.

    Attributes:
        handled, failed_attempts, dead_letters: counts of handled records, failed attempts, and records sent to
            the dead letter queue topic.

    Raises:
        ConfigError: a setting is unknown or invalid, or the dead letter queue topic is one of the topics.
    """

    def __init__(
        self,
        broker: Cluster | None,
        group_id: str,
        topics: Topics,
        handler: Callable[[Record], object] | None = None,
        *,
        batch_handler: Callable[[Sequence[Record]], object] | None = None,
        clock: Clock | None = None,
        threads: Threads | None = None,
        **options: Unpack[_Options],
    ) -> None:
        _check_handlers(handler, batch_handler)
        self._settings, others = _split(options, topics, batch_handler)
        self._clock = clock or SystemClock()
        self._threads = threads or SystemThreads()
        self._consumer = Consumer(broker, group_id, enable_auto_commit=False, clock=self._clock, **others)
        self._producer = self._dead_letter_producer(broker, f"{group_id}-dead-letters")
        self._topics: Topics = (topics,) if isinstance(topics, (str, Topic)) else topics
        self._typed = _typed(self._topics) if isinstance(self._topics, Sequence) else {}
        self._handler = handler
        self._batch_handler = batch_handler
        self._backoff = Backoff(self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms)
        self._lock = threading.Lock()
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._ready: deque[_Lane] = deque()
        self._workers: list[Worker] = []
        self._idle_workers: list[Signal] = []
        self._next_commit_ms = self._clock.monotonic_ms() + self._settings.commit_interval_ms
        self._failure: BaseException | None = None
        self._is_stopping = False
        self.handled = self.failed_attempts = self.dead_letters = 0

    def _dead_letter_producer(self, broker: Cluster | None, client_id: str) -> Producer | None:
        topic = self._settings.dead_letter_topic
        return Producer(broker, client_id=client_id, clock=self._clock) if topic else None

    # --- running ------------------------------------------------------------------------

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Run until ``stop`` is called or ``until`` returns True, then commit handled records and leave the group.

        ``until`` is called between polls, on this thread.

        Raises:
            UnawaitedError: a handler returned a coroutine or a generator; its record is not committed.
            ProcessingError: a record has failed all attempts and there is no dead letter queue topic; the
                committed offset is the offset of this record.
            BrokerError: a request for the group or the topics was rejected.
        """
        refuse_unawaited(until, "until of a parallel consumer", error=ConfigError)
        self._consumer.subscribe(self._topics, _Listener(self))
        self._workers += [
            self._threads.start(f"parallel-{number}", self._work) for number in range(self._settings.max_concurrency)
        ]
        try:
            while not self._is_stopping and self._failure is None and not (until is not None and _says_so(until)):
                self._turn()
        finally:
            self._close()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End ``run`` as soon as the running handlers have returned; thread-safe."""
        self._is_stopping = True
        self._consumer.wakeup()

    # --- the polling thread ---------------------------------------------------------------

    def _turn(self) -> None:
        try:
            taken = self._consumer.poll_blocks(_TURN_MS)
        except WakeupError:
            return
        with self._lock:
            for partition, blocks in taken.items():
                lane = self._lanes.setdefault(partition, _Lane(partition))
                lane.blocks.extend(blocks)
                lane.waiting += sum(map(len, blocks))
                self._offer(lane)
            now = self._clock.monotonic_ms()
            for lane in self._lanes.values():
                if lane.due_ms and now >= lane.due_ms:
                    lane.due_ms = 0
                    self._offer(lane)
        self._pause_and_resume()
        if now >= self._next_commit_ms:
            self._next_commit_ms = now + self._settings.commit_interval_ms
            self._commit(list(self._lanes.values()))

    def _pause_and_resume(self) -> None:
        """Pause partitions whose buffer is full, and resume those whose buffer is half empty."""
        with self._lock:
            lanes = list(self._lanes.values())
        for lane in lanes:
            if not lane.is_paused and lane.waiting > self._settings.max_buffered:
                lane.is_paused = True
                self._consumer.pause((lane.partition,))
            elif lane.is_paused and 2 * lane.waiting <= self._settings.max_buffered:
                lane.is_paused = False
                self._consumer.resume((lane.partition,))

    def _commit(self, lanes: Sequence[_Lane]) -> None:
        """Commit the handled records of ``lanes``; after a rejected commit they are redelivered, as after a crash."""
        with self._lock:
            due = {lane.partition: lane.done for lane in lanes if lane.done is not None and lane.done != lane.committed}
        if not due:
            return
        try:
            self._consumer.commit_sync(due)
        except BrokerError as error:
            log.warning("commit of %d partitions: %s", len(due), error)
            return
        for lane in lanes:
            if lane.partition in due:
                lane.committed = due[lane.partition]

    def give_up(self, partitions: Sequence[TopicPartition], *, is_lost: bool) -> None:
        """Release partitions; unless they are lost, first wait for running handlers and commit the handled records."""
        with self._lock:
            lanes = [self._lanes.pop(partition) for partition in partitions if partition in self._lanes]
            for lane in lanes:
                lane.is_given_up = True
        if is_lost:
            return
        until_ms = self._clock.monotonic_ms() + self._settings.drain_timeout_ms
        for lane in lanes:
            self._await_idle(lane, until_ms)
        self._commit(lanes)

    def _await_idle(self, lane: _Lane, until_ms: int) -> None:
        with self._lock:
            if not lane.is_busy:
                return
            lane.idle = signal = self._threads.signal()
        if not signal.wait(max(0, until_ms - self._clock.monotonic_ms())):
            log.warning(
                "%s: its handler still runs after %d ms; its records will be redelivered", lane.partition, until_ms
            )

    def _close(self) -> None:
        self._is_stopping = True
        self._wake_workers()
        try:
            # Leaving the group revokes all partitions, which commits their offsets.
            self._consumer.close()
        finally:
            for worker in self._workers:
                worker.join(self._settings.drain_timeout_ms)
            if self._producer is not None:
                self._producer.close()

    # --- workers ----------------------------------------------------------------------------

    def _offer(self, lane: _Lane) -> None:
        """Queue a partition's lane for a worker if it has records to handle; the caller holds the lock."""
        if not lane.blocks or lane.is_busy or lane.is_given_up or lane.due_ms:
            return
        lane.is_busy = True
        self._ready.append(lane)
        if self._idle_workers:
            self._idle_workers.pop().set()

    def _wake_workers(self) -> None:
        with self._lock:
            sleepers = self._idle_workers
            self._idle_workers = []
        for signal in sleepers:
            signal.set()

    def _work(self) -> None:
        while True:
            signal: Signal | None = None
            with self._lock:
                lane = self._ready.popleft() if self._ready else None
                if lane is None:
                    if self._is_stopping:
                        return
                    signal = self._threads.signal()
                    self._idle_workers.append(signal)
                elif self._is_stopping or lane.is_given_up:
                    self._release(lane)
                    continue
            if lane is not None:
                self._handle(lane)
            elif signal is not None:
                signal.wait(_IDLE_MS)

    def _release(self, lane: _Lane) -> None:
        """Mark a partition's lane as not being handled; the caller holds the lock."""
        lane.is_busy = False
        if lane.idle is not None:
            lane.idle.set()
            lane.idle = None

    def _handle(self, lane: _Lane) -> None:
        """Handle the next batch of a partition's lane, and release the lane even if the handler fails."""
        block = lane.take(1 if self._batch_handler is None else self._settings.batch_size)
        error: BaseException | None = None
        try:
            self._call(lane.partition, block)
        except ThreadKilled:
            raise
        except BaseException as failure:  # noqa: BLE001
            # Any exception from the user's handler is a failed attempt.
            error = failure
        try:
            is_done = error is None or self._give_up_record(lane, block, error)
        except StreamsError as fatal:
            self._fail(fatal)
            is_done = False
        with self._lock:
            if is_done:
                lane.advance(len(block))
                if error is None:
                    self.handled += len(block)
            self._release(lane)
            if self._failure is None and not self._is_stopping:
                self._offer(lane)

    def _call(self, partition: TopicPartition, block: Block) -> None:
        records, bad = decode_block(partition, block, self._typed.get(partition.topic))
        if bad is not None:
            raise bad.error
        if self._batch_handler is not None:
            refuse_result(self._batch_handler(records), "batch_handler of a parallel consumer")
        elif self._handler is not None:
            refuse_result(self._handler(records[0]), "handler of a parallel consumer")

    def _give_up_record(self, lane: _Lane, block: Block, error: BaseException) -> bool:
        """Process a failed attempt; return True if the records are done, or False if they are retried.

        Raises:
            UnawaitedError: the handler returned a coroutine or generator.
            ProcessingError: there is no dead letter queue topic.
            BrokerError: the record was rejected by the dead letter queue topic.
        """
        if isinstance(error, UnawaitedError):
            raise error  # This error is not caused by a record.
        lane.attempts += 1
        self.failed_attempts += 1
        # A retry cannot decode the records either.
        is_last = lane.attempts >= self._settings.max_attempts or isinstance(error, SerializationError)
        if not is_last:
            lane.due_ms = self._clock.monotonic_ms() + max(1, self._backoff.after(lane.attempts))
            return False
        if len(block) > 1:
            # One of the records has failed: handle each one separately.
            lane.attempts = 0
            lane.alone_through = block.offsets[-1]
            return False
        topic, number = lane.partition
        offset = block.offsets[0]
        if self._producer is None:
            raise ProcessingError(
                f"{lane.partition} at {offset}: given up after {lane.attempts} attempts: {error!r}; "
                "correct the handler, or give dead_letter_topic= to skip such records",
                topic=topic,
                partition=number,
                offset=offset,
            ) from error
        headers = () if block.headers is None else block.headers[0]
        delivery = self._producer.send(
            self._settings.dead_letter_topic,
            block.values[0],
            key=block.keys[0],
            timestamp_ms=block.timestamps[0],
            headers=headers + error_headers(error, topic, number, offset),
        )
        delivery.result()
        self.dead_letters += 1
        return True

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._consumer.wakeup()


def _says_so(until: Callable[[], bool]) -> bool:
    answer = until()
    refuse_result(answer, "until of a parallel consumer")
    return answer


def _typed(topics: Sequence[str | Topic[Any, Any]]) -> dict[str, Topic[Any, Any]]:
    return {topic.name: topic for topic in topics if isinstance(topic, Topic)}


class _Listener(RebalanceListener):
    def __init__(self, consumer: ParallelConsumer) -> None:
        self._consumer = consumer

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Wait for running handlers and commit the handled records."""
        self._consumer.give_up(partitions, is_lost=False)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Release the partitions without waiting or a commit, because another member may own them."""
        self._consumer.give_up(partitions, is_lost=True)
