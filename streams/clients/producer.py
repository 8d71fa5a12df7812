"""The producer: appends records and blocks to topics, asynchronously and in order, in transactions if wanted.

Any thread may send.  Whoever sends, flushes or waits for a result drives the sender, one thread
at a time; with ``linger_ms`` a background thread does it as well.

Locking, stated here and nowhere else: ``_lock`` guards the accumulator and the sender, is held
for moments and never while anything is waited for.  Who drives is a flag under it, so that nobody
waits for a lock that a waiting thread holds; the others wait for a signal that is raised after
each turn.  Callbacks run after a turn, with neither.  Imports protocol and core.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar, overload

from streams.clients.accumulator import Accumulator, block_size, record_size
from streams.clients.catalog import Catalog
from streams.clients.delivery import Delivery
from streams.clients.errors import RequestTimeoutError, error_for
from streams.clients.network import Backoff, Network, Patience
from streams.clients.partitioners import Partitioning
from streams.clients.records import GroupMetadata
from streams.clients.sender import Sender
from streams.clients.settings import is_idempotent
from streams.clients.tcp import Security, cluster_of
from streams.clients.transaction import Identity, Transaction, TransactionState
from streams.clients.transactor import Transactor
from streams.core.clock import Clock, SystemClock
from streams.core.errors import (
    BrokerError,
    ClientClosedError,
    ConfigError,
    RecordTooLargeError,
    SerializationError,
    StreamsError,
)
from streams.core.partitioning import Partitioner, murmur2
from streams.core.records import Block, TopicPartition
from streams.core.threads import Signal, SystemThreads, Threads, Worker
from streams.core.topic import Topic, topic_name
from streams.core.user_code import refuse_unawaited
from streams.protocol.compression import codec_number
from streams.protocol.messages import ErrorCode, OffsetAndMetadata, TopicMetadata
from streams.protocol.transport import Cluster

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")


# How long the driving thread waits for answers before it looks again.
_TURN_MS: Final = 50

# How long the background thread sleeps where nothing is due: it is woken for more.
_IDLE_MS: Final = 60_000

# What blocks that share a request may hold back.
_SHARED_BYTES: Final = 256 * 1024


class Producer:
    """Sends records to topics.

    Records with a key go by murmur2 of its bytes, as with every Kafka client; those without
    stay on one partition until its batch is full or sent.  Times are milliseconds.  An
    idempotent producer's records are appended once and in order, however often they are sent.

    Args:
        broker: the embedded broker, or whatever else opens connections.
        bootstrap_servers: in its place, host:port of brokers of a Kafka cluster; ``security`` says how to connect.
        linger_ms: how long a batch may wait for more records; above 0 a thread sends it then.
        batch_size: bytes of a batch that is sent at once.
        max_in_flight: requests that wait for an answer; at most 5 for an idempotent producer.
        acks: -1 all, 1 the leader, 0 none.
        enable_idempotence: None = where acks and max_in_flight allow it.
        transactional_id: whose transactions these are; one producer at a time has it.
        transaction_timeout_ms: after which the broker aborts a transaction by itself.
        buffer_memory_bytes: above it ``send`` waits until some is acknowledged.
        max_block_ms: how long ``send`` waits for room or metadata, and a transaction for its coordinator.
        max_request_size: bytes that a record may have.
        compression_type: none, gzip, snappy, lz4 or zstd: the codec where records become bytes.
        delivery_timeout_ms: when a record that cannot be sent fails.
        retry_backoff_ms: the wait before a first retry, doubled for each up to ``retry_backoff_max_ms``.

    Raises:
        ConfigError: a setting is unknown or does not fit.
    """

    def __init__(
        self,
        broker: Cluster | None = None,
        *,
        bootstrap_servers: str | Iterable[str] = "",
        security: Security | None = None,
        client_id: str = "producer",
        linger_ms: int = 0,
        batch_size: int = 16_384,
        max_in_flight: int = 5,
        acks: int = -1,
        enable_idempotence: bool | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        buffer_memory_bytes: int = 33_554_432,
        max_block_ms: int = 60_000,
        max_request_size: int = 1_048_576,
        compression_type: str = "none",
        partitioner: Partitioner | None = None,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1_000,
        metadata_max_age_ms: int = 300_000,
        clock: Clock | None = None,
        threads: Threads | None = None,
    ) -> None:
        broker = cluster_of(broker, bootstrap_servers, security, "a producer")
        if linger_ms < 0 or batch_size < 1 or max_in_flight < 1 or buffer_memory_bytes < 1:
            raise ConfigError(
                "linger_ms must not be negative, batch_size, max_in_flight and buffer_memory_bytes at least 1"
            )
        refuse_unawaited(partitioner, "partitioner of a producer", error=ConfigError)
        codec_number(compression_type)
        has_identity = is_idempotent(enable_idempotence, transactional_id, acks, max_in_flight)
        self._clock: Clock = SystemClock() if clock is None else clock
        self._threads: Threads = SystemThreads() if threads is None else threads
        self._network = Network(broker.connect(client_id), self._clock, request_timeout_ms=request_timeout_ms)
        self._partitioning = Partitioning(partitioner, murmur2(client_id.encode()) & 0x7FFFFFFF)
        self._request_timeout_ms = request_timeout_ms
        self._delivery_timeout_ms = delivery_timeout_ms
        self._max_block_ms = max_block_ms
        self._max_request_size = max_request_size
        self._buffer_memory_bytes = buffer_memory_bytes
        self._metadata_max_age_ms = metadata_max_age_ms
        self._catalog = Catalog()
        self._accumulator = Accumulator(
            linger_ms=linger_ms,
            batch_size=batch_size,
            max_in_flight=max_in_flight if has_identity else 1,
            max_request_size=max_request_size,
        )
        self._lock = threading.RLock()
        identity = Identity() if has_identity else None
        self._transaction: Transaction | None = None
        if transactional_id is not None and identity is not None:
            self._transaction = Transaction(transactional_id, identity)
        self._sender = Sender(
            self._network,
            self._clock,
            self._accumulator,
            self._catalog,
            self._lock,
            identity,
            self._transaction,
            acks,
            max_in_flight,
            delivery_timeout_ms,
            Backoff(retry_backoff_ms, retry_backoff_max_ms),
            compression_type,
        )
        self._transactor: Transactor | None = None
        if self._transaction is not None:
            self._transactor = Transactor(
                self._transaction, self._sender, self._clock, self._turn, max_block_ms, transaction_timeout_ms
            )
        self._failure: BrokerError | None = None
        self._is_closed = False
        self._is_driven = False
        #: Of blocks that wait for others to share their request.
        self._held_bytes = 0
        self._waiters: list[Signal] = []
        self._worker: Worker | None = None
        # Only real time passes by itself: under another clock its owner drives, or gives the threads.
        if linger_ms and (threads is not None or isinstance(self._clock, SystemClock)):
            self._worker = self._threads.start(f"{client_id}-sender", self._run)

    # --- sending ----------------------------------------------------------------------

    @overload
    def send(
        self,
        topic: Topic[K, V],
        value: V | None,
        *,
        key: K | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> Delivery: ...
    @overload
    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> Delivery: ...
    def send(
        self,
        topic: Topic[Any, Any] | str,
        value: Any,
        *,
        key: Any = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> Delivery:
        """Send a record: typed for a Topic, bytes for a name; ``timestamp_ms`` defaults to now.

        Raises:
            UnknownTopicError: the topic or the partition does not exist.
            ConfigError: what is given is neither a Topic nor a name.
            SerializationError: key or value do not fit the topic.
            PartitionerError: the partitioner chose a partition that does not exist.
            RecordTooLargeError: it is above ``max_request_size``.
            RequestTimeoutError: there is no room for it within ``max_block_ms``.
            TransactionError, ProducerFencedError: the transaction has to be aborted, the producer closed.
        """
        self._check_open()
        self._check_transaction()
        if isinstance(topic, Topic):
            name, suffix = topic.name, topic.key_serde.key_suffix
            key, value = topic.key_serde.serialize(key), topic.value_serde.serialize(value)
        else:
            name, suffix = topic_name(topic, "send()", ConfigError), 0
            if not isinstance(key, (bytes, type(None))) or not isinstance(value, (bytes, type(None))):
                raise SerializationError(
                    f"topic {name!r} is given by name: key and value must be bytes; pass a Topic for other types"
                )
        given = tuple(headers)
        size_bytes = record_size(key, value, given)
        if size_bytes > self._max_request_size:
            raise RecordTooLargeError(
                f"record of {size_bytes} bytes for topic {name!r}: above max_request_size={self._max_request_size}; "
                "send less, or raise it",
                code=ErrorCode.MESSAGE_TOO_LARGE,
            )
        described = self._described(name)
        timestamp_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        now = self._clock.monotonic_ms()
        if self._accumulator.used_bytes + size_bytes > self._buffer_memory_bytes:
            self._await_room(size_bytes)
        with self._lock:
            target = TopicPartition(name, self._choose(described, key, value, partition, suffix))
            delivery, is_due = self._accumulator.add_record(
                target, key, value, timestamp_ms, given, now, size_bytes, partial(Delivery, self, target)
            )
        if self._worker is None:
            self._drive_if_due()
        elif is_due:
            self._network.wakeup()
        return delivery

    def send_block(
        self,
        partition: TopicPartition,
        block: Block,
        *,
        has_more: bool = False,
        on_refused: Callable[[Block, BrokerError], None] | None = None,
    ) -> Delivery:
        """Send a block as it is, offsets aside; the result is the place of its first record.

        The block's columns belong to the producer from here on.  With ``has_more`` the caller is about to send
        others, or to ``poll``: they share requests.  ``on_refused`` takes each record that the broker will never take
        (too large, a timestamp out of bounds) and what it does not take in time, on whichever thread drives the
        producer; the delivery is done without them.

        Raises:
            RequestTimeoutError: there is no room for it within ``max_block_ms``.
            TransactionError, ProducerFencedError: the transaction has to be aborted, the producer closed.
        """
        self._check_open()
        self._check_transaction()
        size_bytes = block_size(block)
        if self._accumulator.used_bytes + size_bytes > self._buffer_memory_bytes:
            self._await_room(size_bytes)
        with self._lock:
            delivery = Delivery(self, partition, self._accumulator.last_sequence + 1, on_refused)
            if not len(block):
                delivery.fulfil(-1)
                return delivery
            self._accumulator.add_block(partition, block, delivery, self._clock.monotonic_ms(), size_bytes)
        self._held_bytes = self._held_bytes + size_bytes if has_more else 0
        if self._held_bytes and self._held_bytes < _SHARED_BYTES:
            return delivery
        self._held_bytes = 0
        if self._worker is None:
            self._drive_if_due()
        else:
            self._network.wakeup()
        return delivery

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has; asks where that is not known or old.

        Raises:
            UnknownTopicError: it does not exist.
            RequestTimeoutError: nobody answers within ``max_block_ms``.
        """
        return len(self._described(topic).leaders)

    def _described(self, topic: str) -> TopicMetadata:
        since = self._sender.known_since_ms.get(topic)
        found = self._catalog.topics.get(topic)
        is_old = since is None or self._clock.monotonic_ms() - since > self._metadata_max_age_ms
        while found is None or is_old:
            heard: list[BrokerError | None] = []
            self._sender.look_up(topic, heard.append)
            self._wait(partial(bool, heard), self._max_block_ms, f"topic {topic!r}: nothing is known of it in time")
            if heard[0] is not None:
                raise heard[0]
            # A leader that was lost in the same moment makes it unknown again.
            found, is_old = self._catalog.topics.get(topic), False
        return found

    def poll(self, timeout_ms: int = 0) -> None:
        """Send what is due and take what has been answered, waiting up to the timeout; ``flush`` does it too."""
        self._check_open()
        self._turn(timeout_ms)

    @property
    def has_outstanding(self) -> bool:
        """Whether something waits to be sent, or for an answer."""
        return self._sender.in_flight > 0 or not self._accumulator.is_empty

    def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until everything sent so far is acknowledged.

        Raises:
            BrokerError: the first failure since the last flush; its delivery says the same.
            RequestTimeoutError: something is not acknowledged in time.
        """
        self._check_open()
        self._await(self._accumulator.last_sequence, timeout_ms)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self, timeout_ms: int | None = None) -> None:
        """Flush and close; an open transaction is aborted; harmless when repeated.

        Raises:
            BrokerError: as ``flush``; the producer is closed all the same.
        """
        if self._is_closed:
            return
        try:
            if self._transaction is None:
                self.flush(timeout_ms)
            else:
                self._abort_quietly()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close at once: what is not sent fails, and an open transaction is left to the producer's successor."""
        if self._is_closed:
            return
        self._is_closed = True
        self._network.wakeup()
        worker = self._worker
        if worker is not None and not worker.is_current:
            worker.join(2 * _TURN_MS + self._request_timeout_ms)
        self._network.close()
        self._sender.drop_all(BrokerError("the producer was closed before this was sent"))
        self._settle()

    def await_delivery(self, delivery: Delivery, timeout_ms: int | None) -> None:
        """Send and receive until a delivery is done; what ``Delivery.result`` does."""
        self._await(delivery.sequence, timeout_ms, delivery)

    def __enter__(self) -> "Producer":
        """Return the producer; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    # --- transactions -----------------------------------------------------------------

    def init_transactions(self) -> None:
        """Take the transactional id over: its earlier owner is fenced, what that one left open is ended.

        Raises:
            ConfigError: the producer has no transactional id.
            RequestTimeoutError: there is no coordinator within ``max_block_ms``; try again.
        """
        self._transactional("init_transactions").initialize()

    def begin_transaction(self) -> None:
        """Let what is sent from here on belong to a new transaction.

        Raises:
            StreamsError: a transaction is open, or ``init_transactions`` was not called.
            ProducerFencedError: another producer has this transactional id now.
        """
        self._transactional("begin_transaction")
        self._sender.begin_transaction()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_metadata: GroupMetadata
    ) -> None:
        """Commit a consumer's offsets with the transaction; ``group_metadata`` is the consumer's.

        Raises:
            TransactionError: the group has gone on without the consumer, or refused for another
                reason, which is its cause; abort.
            ProducerFencedError: another producer has this transactional id now.
            RequestTimeoutError: no answer within ``max_block_ms``; try again or abort.
        """
        self._transactional("send_offsets_to_transaction").send_offsets(offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Wait until everything sent is acknowledged, and let it count, all at once.

        Raises:
            TransactionError: something could not be written; abort.
            ProducerFencedError: another producer has this transactional id now.
            RequestTimeoutError: no answer in time; it is open whether it was committed: call it again.
        """
        transactor = self._transactional("commit_transaction")
        transactor.commit(lambda: self._await(self._accumulator.last_sequence, None))

    def abort_transaction(self) -> None:
        """Let nothing of the transaction count; what was not sent yet fails.

        Raises:
            ProducerFencedError: another producer has this transactional id now.
            RequestTimeoutError: no answer in time; call it again.
        """
        self._transactional("abort_transaction").abort()
        self._failure = None

    @contextmanager
    def transaction(self) -> Iterator["Producer"]:
        """Begin a transaction; commit at the end of the block, abort when it raises.

        Raises:
            TransactionError: it could not be committed, and was aborted.
            ProducerFencedError, RequestTimeoutError: as ``commit_transaction``.
        """
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException as error:
            assert self._transaction is not None
            if self._transaction.state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE):
                try:
                    self.abort_transaction()
                except StreamsError as failure:
                    error.add_note(f"and the transaction could not be aborted: {failure}")
            raise

    def _transactional(self, verb: str) -> Transactor:
        self._check_open()
        if self._transactor is None:
            raise ConfigError(f"{verb} needs a transactional producer: make it with transactional_id=...")
        return self._transactor

    def _check_transaction(self) -> None:
        transaction = self._transaction
        if transaction is not None and transaction.state is not TransactionState.IN_TRANSACTION:
            transaction.require("send", TransactionState.IN_TRANSACTION)

    def _abort_quietly(self) -> None:
        """Abort what is open when the producer is closed; the broker does it otherwise, after the timeout."""
        assert self._transaction is not None
        if self._transaction.state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE):
            try:
                self.abort_transaction()
            except StreamsError as error:
                log.warning("closing with an open transaction: %s", error)

    # --- inside: choosing -------------------------------------------------------------

    def _choose(
        self, described: TopicMetadata, key: bytes | None, value: bytes | None, wanted: int | None, suffix: int
    ) -> int:
        if wanted is not None:
            count = len(described.leaders)
            if not 0 <= wanted < count:
                raise error_for(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"{described.name}-{wanted}",
                    f"the topic has {count} partitions",
                )
            return wanted
        return self._partitioning.choose(
            described,
            key,
            value,
            suffix,
            lambda number: bool(self._accumulator.open_size(TopicPartition(described.name, number))),
        )

    # --- inside: driving --------------------------------------------------------------

    def _run(self) -> None:
        """Send what has lingered enough, until closed."""
        while not self._is_closed:
            try:
                self._turn(self._linger_turn_ms())
            except ClientClosedError:
                return
            except Exception:
                # Nobody else would tell; the others' records must not wait for ever.
                log.exception("a turn of the sender has failed")

    def _linger_turn_ms(self) -> int:
        now = self._clock.monotonic_ms()
        next_ms = self._sender.next_ms(now)
        # Whoever adds something wakes the network up.
        return _IDLE_MS if next_ms is None else max(0, min(_IDLE_MS, next_ms - now))

    def _turn(self, timeout_ms: int) -> bool:
        """Drive the sender, or wait while another thread does; return whether something may have changed."""
        with self._lock:
            is_mine = not self._is_driven
            if is_mine:
                self._is_driven = True
            else:
                signal = self._threads.signal()
                self._waiters.append(signal)
        if not is_mine:
            # Whoever drives may sleep for longer than what is due now.
            self._network.wakeup()
            return signal.wait(min(max(1, timeout_ms), _TURN_MS))
        try:
            has_progress = self._sender.turn(timeout_ms)
        finally:
            with self._lock:
                self._is_driven = False
                waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.set()
        return self._settle() or has_progress

    def _settle(self) -> bool:
        """Fulfil or fail what is finished; whoever waits for it may do so in its callback."""
        finished = self._sender.finished
        has_any = False
        while finished:
            try:
                parcel, base_offset, error = finished.popleft()
            except IndexError:
                break
            has_any = True
            if error is None:
                parcel.acknowledge(base_offset)
            elif not parcel.gives_back(error):
                if self._failure is None:
                    self._failure = error
                parcel.fail(error)
        return has_any

    def _drive_if_due(self) -> None:
        """Send what is due unless another thread drives: it looks again before it stops."""
        while True:
            with self._lock:
                now = self._clock.monotonic_ms()
                if self._is_driven or self._sender.in_flight >= self._sender.max_in_flight:
                    return
                if self._sender.next_ms(now) != now:
                    return
            if not self._turn(0):
                return

    def _await(self, sequence: int, timeout_ms: int | None, delivery: Delivery | None = None) -> None:
        timeout_ms = self._delivery_timeout_ms + self._request_timeout_ms if timeout_ms is None else timeout_ms
        with self._lock:
            self._accumulator.request_flush(sequence)
        self._wait(
            delivery.done if delivery is not None else partial(self._is_settled, sequence),
            timeout_ms,
            "not everything sent is acknowledged in time; is the broker there?",
        )

    def _is_settled(self, sequence: int) -> bool:
        return self._accumulator.is_finished_through(sequence) and not self._sender.finished

    def _await_room(self, size_bytes: int) -> None:
        """Wait until the buffer has room for so much, or is empty."""

        def has_room() -> bool:
            used_bytes = self._accumulator.used_bytes
            return not used_bytes or used_bytes + size_bytes <= self._buffer_memory_bytes

        with self._lock:
            self._accumulator.request_flush(self._accumulator.last_sequence)
        self._wait(
            has_room,
            self._max_block_ms,
            f"no room for {size_bytes} bytes within max_block_ms={self._max_block_ms}: "
            f"buffer_memory_bytes={self._buffer_memory_bytes} are waiting to be acknowledged",
        )
        self._check_open()

    def _wait(self, is_done: Callable[[], bool], timeout_ms: int, complaint: str) -> None:
        """Drive until something is so."""
        patience = Patience(self._clock, self._clock.monotonic_ms() + timeout_ms)
        has_progress = True
        while not is_done():
            remaining_ms = patience.remaining_ms(has_progress=has_progress)
            if not remaining_ms and not has_progress:
                raise RequestTimeoutError(complaint)
            has_progress = self._turn(min(remaining_ms, _TURN_MS))

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the producer is closed; make a new one")
