"""The broker in this process: what ``broker=`` takes, and needs nothing installed.

Answers requests without serialization, for clients in any number of threads.

Locking, stated here and nowhere else:

- One lock guards the machine: topics, logs, groups, timers, and who waits.  Every request
  and every helper runs under it from beginning to end.
- Each connection has a condition that guards its inbox.  It is taken while the broker's
  lock is held (to deliver), never the other way round, so the two cannot deadlock.
- There is no thread of the broker's own.  Timers are driven by whoever polls: one of the
  waiting connections is the *keeper*; it sleeps no longer than until the machine's next
  deadline, is nudged when that comes nearer, and hands the duty on when it returns.
"""

import fcntl
import os
import threading
from collections import deque
from collections.abc import Mapping
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from streams.broker.config import PARTITIONER, RECORD_TTL
from streams.broker.file import FsyncPolicy
from streams.broker.serialization import Serialization
from streams.broker.service import Broker, BrokerConfig
from streams.broker.topics import StorageChoice, Storages, Topics
from streams.clients.partitioners import Strategy
from streams.core.clock import Clock, SystemClock, VirtualClock
from streams.core.errors import BrokerError, ClientClosedError, StateLockedError
from streams.core.partitioning import Partitioner
from streams.core.records import Block, TopicPartition
from streams.group.coordinator import Coordinator, CoordinatorConfig
from streams.protocol.messages import ErrorCode, Request, Response, TopicMetadata

#: Whoever holds the lock on it has the data directory.
LOCK_FILE = "broker.lock"


class EmbeddedBroker:
    """A broker in this process; a context manager, and a ``Cluster`` to connect to.

    Without ``data_dir`` everything is in memory and gone at the end.  With it, topics,
    records, committed offsets and groups are found again when a broker is opened on the
    same directory; two at once are refused.

    - ``storage``: where records lie: "array" (memory; the default without ``data_dir``),
      "linked" (memory), "file" (the default with it), or a factory of the user's; ``storages``
      by topic.
    - ``serializations``, ``partitioners``: the user's own objects by topic; those that topics
      in ``data_dir`` were created with have to be given again.
    - ``fsync``: when files are forced to disk: "never" (a killed process loses nothing, a
      power failure may), "commit" (with every commit of offsets), "always".
    - ``auto_create_topics``: clients that ask for an unknown topic create it, with
      ``default_partitions``.  True, as in Kafka; programs that declare their topics and
      want typing errors found pass False.
    - ``maintenance_interval_ms``: how often retention and compaction run while clients
      poll; None = only by ``maintain``.
    - ``clock``: with a ``VirtualClock`` a poll never waits: it returns what is there at
      that time, and whoever drives the clock polls again.

    Raises:
        StateLockedError: another broker uses the directory.
        ConfigError: the directory or a storage cannot be used.

    >>> with EmbeddedBroker() as broker:
    ...     broker.create_topic("words", partitions=2)
    ...     broker.append(TopicPartition("words", 0), Block([None], [b"hello"], [0]))
    ...     broker.end_offset(TopicPartition("words", 0))
    0
    1
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        clock: Clock | None = None,
        default_partitions: int = 1,
        storage: StorageChoice | None = None,
        storages: Mapping[str, StorageChoice] | None = None,
        serializations: Mapping[str, Serialization] | None = None,
        partitioners: Mapping[str, Partitioner] | None = None,
        fsync: FsyncPolicy = "never",
        auto_create_topics: bool = True,
        maintenance_interval_ms: int | None = 300_000,
        group_config: CoordinatorConfig | None = None,
        rng: Random | None = None,
    ) -> None:
        directory = None if data_dir is None else Path(data_dir)
        if storage is None:
            storage = "array" if directory is None else "file"
        self._clock = SystemClock() if clock is None else clock
        self._never_waits = isinstance(self._clock, VirtualClock)
        self._last_ms = self._clock.now_ms()
        self._last_monotonic_ms = self._clock.monotonic_ms()
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._waiting: dict[_Connection, None] = {}
        self._keeper: _Connection | None = None
        self._armed_ms: int | None = None
        self._is_closed = False
        self._config = BrokerConfig(
            auto_create_topics=auto_create_topics,
            default_partitions=default_partitions,
            maintenance_interval_ms=maintenance_interval_ms,
        )
        own = Storages(storage, dict(storages or {}), directory, fsync, serializations or {}, partitioners or {})
        self._machine = Broker(
            Topics(own),
            Coordinator(group_config or CoordinatorConfig(), rng or Random()),
            self._config,
        )
        self._lock_descriptor = None if directory is None else _locked(directory)
        try:
            self._machine.load(self._last_ms)
        except BaseException:
            self._unlock()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect(self, client_id: str) -> "_Connection":
        """Open a connection for one client.

        Raises:
            BrokerError: the broker is closed.
        """
        with self._lock:
            self._check_open()
            connection = _Connection(self, client_id)
            self._connections.add(connection)
            return connection

    def close(self) -> None:
        """Flush and close everything; requests that still wait are answered with an error."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._machine.close()
            finally:
                self._unlock()
                for connection in self._connections:
                    connection._fail_pending(_closed_error())

    # --- for drivers and tests: the verbs without a connection ------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, str] | None = None,
        *,
        storage: StorageChoice | None = None,
        partitioner: Strategy | Partitioner | None = None,
        serialization: Serialization | None = None,
        ttl_ms: int | None = None,
    ) -> None:
        """Create a topic; ``partitions`` None = the broker's default, ``config`` has Kafka's names.

        - ``storage``: "array", "linked", "file", or a factory of the user's; None = the broker's.
        - ``partitioner``: how producers without one of their own choose: "default" (murmur2 of
          the key, sticky without), "round_robin", "explicit" (only where the sender names the
          partition), or a function of topic, key, value and number of partitions.
        - ``serialization``: a codec of the user's for what the storage keeps.
        - ``ttl_ms``: how long a record lives after its timestamp, unless its header says
          otherwise (``ttl_header``); -1 = for ever unless it does; None = headers mean nothing.

        These go before what ``config`` says.  A factory, function or codec of the user's must be
        given again (``storages=``, ``partitioners=``, ``serializations=``) when the broker reopens.

        Raises:
            BrokerError: its name is taken or illegal, the count is below 1, a setting is wrong,
                or the user's storage failed.
            ConfigError: its storage cannot be had.
        """
        given = dict(config or {})
        if partitioner is not None:
            given[PARTITIONER] = "custom" if callable(partitioner) else partitioner
        if ttl_ms is not None:
            given[RECORD_TTL] = str(ttl_ms)
        function = partitioner if callable(partitioner) else None
        with self._lock:
            self._check_open()
            count_ = self._config.default_partitions if partitions is None else partitions
            self._machine.topics.create(name, count_, given, storage, serialization, function)

    def begin_at(self, partition: TopicPartition, offset: int) -> None:
        """Let an empty partition begin at an offset, for who goes on with a log from elsewhere.

        Raises:
            UnknownTopicError: there is no such partition.
            BrokerError: it has records, or the user's storage failed.
        """
        with self._lock:
            self._check_open()
            log = self._machine.topics.log(partition)
            if log.high_watermark > log.start_offset:
                raise BrokerError(f"partition {partition} has records already, so it cannot begin at {offset}")
            log.storage.truncate_before(offset)

    def add_partitions(self, name: str, partitions: int) -> None:
        """Raise the number of a topic's partitions to ``partitions``; groups take the new ones up.

        Raises:
            UnknownTopicError: there is no such topic.
            BrokerError: it has that many already.
        """
        with self._lock:
            self._check_open()
            self._machine.add_partitions(name, partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and what groups have committed for it.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        with self._lock:
            self._check_open()
            self._machine.delete_topic(name, self._now_ms())

    def topics(self, *, include_internal: bool = False) -> dict[str, int]:
        """Return the number of partitions per topic."""
        with self._lock:
            self._check_open()
            topics = self._machine.topics
            return {topic.name: len(topic.logs) for topic in topics if include_internal or not topic.is_internal}

    def describe_topic(self, name: str) -> TopicMetadata:
        """Return partitions and settings of a topic.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        with self._lock:
            self._check_open()
            return self._machine.describe_topic(name)

    def append(self, partition: TopicPartition, block: Block) -> int:
        """Append a block as it is, without a copy, and return the offset of its first record.

        The block's columns belong to the log from then on: they are not to be changed.

        Raises:
            UnknownTopicError: there is no such partition.
            RecordTooLargeError: a record is above ``max.message.bytes``; nothing was appended.
        """
        with self._lock:
            self._check_open()
            base = self._machine.append(partition, (block,), self._now_ms())
            self._nudge_keeper()
            return base

    def read(
        self, partition: TopicPartition, offset: int, max_records: int = 10_000, *, committed_only: bool = False
    ) -> list[Block]:
        """Return up to ``max_records`` records from ``offset`` on; [] at the end.

        Expired records are left out, as are the ends of transactions; with ``committed_only`` also
        the records of transactions that were aborted, and all from the first open one on.

        Raises:
            UnknownTopicError: there is no such partition.
            OffsetOutOfRangeError: the offset lies below the start or behind the end.
        """
        with self._lock:
            self._check_open()
            log = self._machine.topics.log(partition)
            while blocks := log.fetch(offset, max_records, self._now_ms()):
                records = [block for block in blocks if block.producer is None or not block.producer.is_control]
                if committed_only:
                    records = list(log.committed(records))
                if records:
                    return records
                offset = blocks[-1].offsets[-1] + 1
            return []

    def start_offset(self, partition: TopicPartition) -> int:
        """Return the lowest offset that can be read."""
        with self._lock:
            self._check_open()
            return self._machine.topics.log(partition).start_offset

    def end_offset(self, partition: TopicPartition) -> int:
        """Return the offset that the next record gets."""
        with self._lock:
            self._check_open()
            return self._machine.topics.log(partition).high_watermark

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """Return the offset of the first record at or after a time; None where there is none.

        Raises:
            UnknownTopicError: there is no such partition.
            BrokerError: the time is negative.
        """
        with self._lock:
            self._check_open()
            if timestamp_ms < 0:
                raise BrokerError(f"time {timestamp_ms} for offsets of {partition}: use epoch milliseconds")
            offset = self._machine.topics.log(partition).offset_for(timestamp_ms)[1]
            return None if offset < 0 else offset

    def delete_records(self, partition: TopicPartition, offset: int) -> int:
        """Delete the records below an offset, -1 = all; return the lowest offset left.

        Raises:
            UnknownTopicError: there is no such partition.
            OffsetOutOfRangeError: the offset lies behind the end.
        """
        with self._lock:
            self._check_open()
            return self._machine.topics.log(partition).delete_records(offset)

    def maintain(self, now_ms: int | None = None) -> None:
        """Apply retention and compaction; ``now_ms`` None = by the clock."""
        with self._lock:
            self._check_open()
            self._machine.maintain(self._now_ms() if now_ms is None else now_ms)

    def flush(self) -> None:
        """Force files to disk, unless ``fsync`` is "never"."""
        with self._lock:
            self._check_open()
            self._machine.topics.flush()

    # --- for connections ----------------------------------------------------------------------

    def _handle(self, connection: "_Connection", correlation_id: int, node_id: int, request: Request) -> None:
        with self._lock:
            if self._is_closed:
                connection._deliver(correlation_id, _closed_error())
                return
            connection._pending.add(correlation_id)
            try:
                if node_id not in (-1, self._config.node_id):
                    raise BrokerError(f"node {node_id} is unknown: the embedded broker is node {self._config.node_id}")
                now_ms = self._now_ms()
                self._run_due(now_ms)
                self._machine.handle(request, now_ms, partial(connection._deliver, correlation_id))
            except Exception as error:  # noqa: BLE001
                # The client learns of it where it waits for the answer, as over a network.
                connection._deliver(correlation_id, error)
            self._nudge_keeper()

    def _tick(self) -> None:
        """Run what is due."""
        with self._lock:
            if not self._is_closed:
                self._run_due(self._now_ms())

    def _enter_wait(self, connection: "_Connection", remaining_ms: int) -> int:
        """Note that a connection waits; return for how long it may sleep."""
        with self._lock:
            self._waiting[connection] = None
            if self._keeper is None:
                self._keeper = connection
            if self._keeper is not connection:
                return remaining_ms
            self._armed_ms = None if self._is_closed else self._machine.next_deadline_ms()
            if self._armed_ms is None:
                return remaining_ms
            return max(0, min(remaining_ms, self._armed_ms - self._now_ms()))

    def _leave_wait(self, connection: "_Connection") -> None:
        """Note that a connection's poll returns; another one takes over the timers."""
        with self._lock:
            self._waiting.pop(connection, None)
            if self._keeper is connection:
                self._keeper = None
                for other in self._waiting:
                    other._nudge()
                    break

    def _forget(self, connection: "_Connection") -> None:
        with self._lock:
            self._connections.discard(connection)

    # --- inside, under the lock ---------------------------------------------------------------

    def _run_due(self, now_ms: int) -> None:
        deadline_ms = self._machine.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= now_ms:
            self._machine.tick(now_ms)

    def _nudge_keeper(self) -> None:
        """Wake the keeper when a deadline comes before the one it sleeps for."""
        if self._keeper is None:
            return
        deadline_ms = self._machine.next_deadline_ms()
        if deadline_ms is not None and (self._armed_ms is None or deadline_ms < self._armed_ms):
            self._armed_ms = deadline_ms
            self._keeper._nudge()

    def _now_ms(self) -> int:
        """Return the wall-clock time, going on evenly where that is set back.

        One time serves timestamps and deadlines; a clock set back must not stretch the latter.
        """
        monotonic_ms = self._clock.monotonic_ms()
        steady_ms = self._last_ms + monotonic_ms - self._last_monotonic_ms
        self._last_ms = max(steady_ms, self._clock.now_ms())
        self._last_monotonic_ms = monotonic_ms
        return self._last_ms

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closed_error()

    def _unlock(self) -> None:
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None


class _Connection:
    """One client's way to the embedded broker; see ``protocol.transport.Connection``."""

    def __init__(self, broker: EmbeddedBroker, client_id: str) -> None:
        self.client_id = client_id
        self._broker = broker
        self._ids = count()
        self._condition = threading.Condition(threading.Lock())
        self._inbox: deque[tuple[int, Response | Exception]] = deque()
        self._is_woken = False
        self._is_nudged = False
        self._is_closed = False
        # Changed under the broker's lock only.
        self._pending: set[int] = set()

    def send(self, node_id: int, request: Request) -> int:
        """Perform a request and return its correlation id; the answer waits in ``poll``.

        Raises:
            ClientClosedError: the connection is closed.
        """
        if self._is_closed:
            raise self._closed_error()
        correlation_id = next(self._ids)
        self._broker._handle(self, correlation_id, node_id, request)
        return correlation_id

    def poll(self, timeout_ms: int) -> list[tuple[int, Response | Exception]]:
        """Return the answers that have come, waiting for the first up to the timeout.

        Raises:
            ClientClosedError: the connection is closed.
        """
        broker, clock = self._broker, self._broker._clock
        answers = self._take()
        if answers is not None:
            return answers
        until_ms = clock.monotonic_ms() + timeout_ms
        has_entered = False
        try:
            while True:
                broker._tick()
                answers = self._take()
                remaining_ms = until_ms - clock.monotonic_ms()
                if answers is not None:
                    return answers
                if remaining_ms <= 0 or broker._never_waits:
                    return []
                has_entered = True
                self._sleep(broker._enter_wait(self, remaining_ms))
        finally:
            if has_entered:
                broker._leave_wait(self)

    def wakeup(self) -> None:
        """End a waiting ``poll``, or the next one, from another thread."""
        with self._condition:
            self._is_woken = True
            self._condition.notify()

    def close(self) -> None:
        """Drop the connection; what is pending is never answered."""
        with self._condition:
            self._is_closed = True
            self._inbox.clear()
            self._condition.notify()
        self._broker._forget(self)

    def _take(self) -> list[tuple[int, Response | Exception]] | None:
        """Return what is in the inbox, [] after a wakeup, None if the poll is to go on."""
        with self._condition:
            if self._is_closed:
                raise self._closed_error()
            if not self._inbox and not self._is_woken:
                return None
            self._is_woken = False
            answers = list(self._inbox)
            self._inbox.clear()
            return answers

    def _sleep(self, for_ms: int) -> None:
        with self._condition:
            # All that may have come since the last look is checked once more under the condition.
            if not (self._inbox or self._is_woken or self._is_nudged or self._is_closed) and for_ms > 0:
                self._condition.wait(for_ms / 1000)
            self._is_nudged = False

    def _deliver(self, correlation_id: int, answer: Response | Exception) -> None:
        self._pending.discard(correlation_id)
        with self._condition:
            if not self._is_closed:
                self._inbox.append((correlation_id, answer))
                self._condition.notify()

    def _nudge(self) -> None:
        with self._condition:
            self._is_nudged = True
            self._condition.notify()

    def _fail_pending(self, error: Exception) -> None:
        for correlation_id in sorted(self._pending):
            self._deliver(correlation_id, error)

    def _closed_error(self) -> ClientClosedError:
        return ClientClosedError(f"connection of client {self.client_id!r} is closed: open another one")


def _closed_error() -> BrokerError:
    return BrokerError("the embedded broker is closed: open another one", code=ErrorCode.UNKNOWN_SERVER_ERROR)


def _locked(directory: Path) -> int:
    """Take the directory for this broker; the lock goes with the process, however that ends."""
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StateLockedError(
            f"data directory {directory} is in use by another broker, in this process or another one: "
            "close that one or choose another directory"
        ) from error
    return descriptor
