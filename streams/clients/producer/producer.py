"""The producer, which appends records and blocks of records asynchronously, in order, optionally in transactions.

The producer is thread-safe.  Threads that send, flush or wait for a result drive the sender, one at a time; a
background thread does so while records are outstanding that no call waits for.  The lock rules are in
``sender_driver``.
Of the other packages, this module imports only ``core`` and ``protocol``.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar, Unpack, overload
from weakref import finalize, ref

from streams.clients.errors import error_for
from streams.clients.network import Network
from streams.clients.producer.accumulator import block_size, record_size
from streams.clients.producer.async_producer import AsyncProducer
from streams.clients.producer.delivery import Delivery
from streams.clients.producer.partitioners import Partitioning
from streams.clients.producer.sender import Sender
from streams.clients.producer.sender_driver import SenderDriver
from streams.clients.producer.transaction import TransactionPhase
from streams.clients.producer.transactor import Transactor
from streams.clients.records import GroupMetadata
from streams.clients.tcp import cluster_of
from streams.core.arguments import NOT_GIVEN, checked_headers, checked_time
from streams.core.blocks.partitioning import Partitioner, murmur2
from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import Clock, SystemClock
from streams.core.closeable import Closeable
from streams.core.concurrency.forks import DISOWNED, stays_in_process
from streams.core.concurrency.threads import SystemThreads, Threads
from streams.core.errors import (
    BrokerError,
    ClientClosedError,
    ConfigError,
    RecordTooLargeError,
    SerializationError,
    StreamsError,
)
from streams.core.metrics import Metrics
from streams.core.settings.client_settings import ProducerSettings, Security
from streams.core.settings.setting import changed
from streams.core.settings.settings import ProducerOptions
from streams.core.topic import Topic, topic_name
from streams.core.user_code import refuse_unawaited
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.messages import TopicMetadata
from streams.protocol.transport import Cluster

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")


# Blocks sent with ``has_more`` are queued until their total size reaches this limit, so that they share a request.
_SHARED_BYTES: Final = 256 * 1024


class Producer(Closeable):
    """A producer of records to topics.

    Records with a key are partitioned by murmur2, as with Kafka's Java clients.  Records without a key use one
    partition until its batch is full or sent (KIP-480).  With an idempotent producer, records are appended
    exactly once and in order despite retries.  Times are milliseconds.

    Args:
        broker: the embedded broker, or another ``Cluster``.
        bootstrap_servers: Kafka brokers as "host:port", instead of ``broker``; ``security`` configures TLS and SASL.
        partitioner: chooses the partition for records without an explicit partition.
        clock: the source of time; tests pass a virtual clock.
        threads: starts the thread of ``background_sender`` and ``linger_ms``.
        settings: the base ``ProducerSettings``, by default Kafka's defaults.
        options: single settings by name, such as ``linger_ms=5``; see the settings reference.

    Raises:
        ConfigError: a setting is unknown or invalid.
    """

    _async: AsyncProducer | None = None
    _why_closed = "is closed; make a new one"

    def __init__(
        self,
        broker: Cluster | str | None = None,
        *,
        bootstrap_servers: str | Iterable[str] = "",
        security: Security | None = None,
        partitioner: Partitioner | None = None,
        clock: Clock | None = None,
        threads: Threads | None = None,
        settings: ProducerSettings | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        broker = cluster_of(broker, bootstrap_servers, security, "a producer")
        refuse_unawaited(partitioner, "partitioner of a producer", error=ConfigError)
        settings = self._settings = changed(settings or ProducerSettings(), options)
        client_id = settings.client_id
        self._clock = clock or SystemClock()
        network = Network(broker.connect(client_id), self._clock, request_timeout_ms=settings.client.request_timeout_ms)
        self._sender = Sender(network, self._clock, settings)
        self._accumulator = self._sender.accumulator
        self._lock = self._sender.lock
        self._driver = self._driver_of(threads)
        self._partitioning = Partitioning(partitioner, murmur2(client_id.encode()) & 0x7FFFFFFF)
        self._transaction = self._sender.transaction
        self._transactor: Transactor | None = None
        if self._transaction is not None:
            self._transactor = Transactor(self._transaction, self._sender, self._driver.run_once)
        self._is_closed = False
        #: Total bytes of the blocks that are queued to share a request.
        self._batched_bytes = 0
        stays_in_process(self)

    def _driver_of(self, threads: Threads | None) -> SenderDriver:
        # Under a virtual clock there is no background thread unless ``threads`` is given.
        may_start = threads is not None or isinstance(self._clock, SystemClock)
        driver = SenderDriver(
            self._sender,
            threads or SystemThreads(),
            has_thread=may_start and self._settings.linger_ms > 0,
            may_start=may_start and self._settings.background_sender,
        )
        # A producer that is dropped without close() leaves no thread behind.  A strong reference to the driver would
        # keep the producer for ever if something that the driver uses refers to the producer.
        finalize(self, _orphan, ref(driver)).atexit = False
        return driver

    def record_metrics(self, metrics: Metrics) -> None:
        """Start recording this producer's metrics, such as ``record-send-rate``, in a registry."""
        settings = self._settings
        self._sender.notices = metrics.notices
        self._sender.sensors.record(metrics, settings.client_id, self._accumulator, settings.buffer_memory_bytes)

    # --- sending ----------------------------------------------------------------------

    @overload
    def send(
        self,
        topic: Topic[K, V],
        value: V | None,
        *,
        key: K | None = NOT_GIVEN,
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
        key: Any = NOT_GIVEN,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> Delivery:
        """Send a record.

        The key and value have the types of ``topic``, or are bytes if ``topic`` is a name.  ``key`` defaults to that
        of ``Topic(key_from=...)``, which ``key=None`` suppresses, or else to None.  ``timestamp_ms`` defaults to the
        current time.

        Raises:
            UnknownTopicError: the topic or the partition does not exist.
            ConfigError: ``topic`` is neither a Topic nor a name, or ``partition`` is no int.
            SerializationError: ``key_from`` failed, the key or value does not fit the topic's types, the headers are no
                pairs of text and bytes, or ``timestamp_ms`` is no int.
            PartitionerError: the partitioner chose a partition that does not exist.
            RecordTooLargeError: the record exceeds ``max_request_bytes``.
            RequestTimeoutError: the buffer has no room for the record within ``max_block_ms``.
            TransactionError: the transaction has to be aborted.
            ProducerFencedError: the producer has to be closed.
        """
        self._check_open()
        self._check_transaction()
        if isinstance(topic, Topic):
            name = topic.name
            suffix = topic.key_serde.key_suffix
            key = topic.key_serde.serialize(topic.key_of(value, key))
            value = topic.value_serde.serialize(value)
        else:
            name = topic_name(topic, "send()", ConfigError)
            suffix = 0
            key = None if key is NOT_GIVEN else key
            if not isinstance(key, (bytes, type(None))) or not isinstance(value, (bytes, type(None))):
                raise SerializationError(
                    f"topic {name!r} is given by name: key and value must be bytes; pass a Topic for other types"
                )
        pairs = checked_headers(headers, f"topic {name!r}: headers", SerializationError) if headers else ()
        if partition is not None and (isinstance(partition, bool) or not isinstance(partition, int)):
            raise ConfigError(f"topic {name!r}: partition must be an int, not {partition!r}")
        if timestamp_ms is not None:
            timestamp_ms = checked_time(timestamp_ms, f"topic {name!r}: timestamp_ms", SerializationError)
        size_bytes = record_size(key, value, pairs)
        if size_bytes > self._settings.max_request_bytes:
            raise RecordTooLargeError(
                f"record of {size_bytes} bytes for topic {name!r}: above "
                f"max_request_bytes={self._settings.max_request_bytes}; "
                "send less, or raise it",
                code=ErrorCode.MESSAGE_TOO_LARGE,
            )
        (described,) = self._described([name])
        timestamp_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        now = self._clock.monotonic_ms()
        if self._accumulator.used_bytes + size_bytes > self._settings.buffer_memory_bytes:
            self._driver.await_room(size_bytes)
            self._check_open()
        with self._lock:
            target = TopicPartition(name, self._choose(described, key, value, partition, suffix))
            delivery, is_due = self._accumulator.add_record(
                target, key, value, timestamp_ms, pairs, now, size_bytes, partial(Delivery, self._driver, target)
            )
        self._driver.send_due(is_due=is_due)
        return delivery

    def send_block(
        self,
        partition: TopicPartition,
        block: Block,
        *,
        has_more: bool = False,
        on_refused: Callable[[Block, BrokerError], None] | None = None,
    ) -> Delivery:
        """Send a block of records unchanged, except for its offsets, which are ignored.

        The returned delivery resolves to the offset of the first record.  The producer takes ownership of the
        block's columns.  Pass ``has_more`` if further blocks or a ``poll`` will follow, so that blocks share
        requests.  ``on_refused`` is called, on the thread that drives the producer, with each record that the broker
        rejects (too large, or a timestamp out of bounds) or does not accept in time.  The delivery completes without
        these records.

        Raises:
            RequestTimeoutError: the buffer has no room for the block within ``max_block_ms``.
            TransactionError: the transaction has to be aborted.
            ProducerFencedError: the producer has to be closed.
        """
        self._check_open()
        self._check_transaction()
        size_bytes = block_size(block)
        if self._accumulator.used_bytes + size_bytes > self._settings.buffer_memory_bytes:
            self._driver.await_room(size_bytes)
            self._check_open()
        with self._lock:
            delivery = Delivery(self._driver, partition, self._accumulator.last_sequence + 1, on_refused)
            if not len(block):
                delivery.fulfil(-1)
                return delivery
            self._accumulator.add_block(partition, block, delivery, self._clock.monotonic_ms(), size_bytes)
        self._batched_bytes = self._batched_bytes + size_bytes if has_more else 0
        if self._batched_bytes and self._batched_bytes < _SHARED_BYTES:
            return delivery
        self._batched_bytes = 0
        self._driver.send_due()
        return delivery

    def partition_count(self, topic: str) -> int:
        """Return the partition count of a topic, sending a request if the cached count is missing or stale.

        Raises:
            UnknownTopicError: the topic does not exist.
            RequestTimeoutError: no response came within ``max_block_ms``.
        """
        return self.partition_counts([topic])[0]

    def partition_counts(self, topics: Sequence[str]) -> list[int]:
        """Return the partition count of each topic, with one request for all whose cached count is missing or stale.

        Raises:
            UnknownTopicError: a topic does not exist.
            RequestTimeoutError: no response came within ``max_block_ms``.
        """
        return [len(described.leaders) for described in self._described(topics)]

    def _described(self, topics: Sequence[str]) -> list[TopicMetadata]:
        described = {topic: cached for topic in topics if (cached := self._cached(topic)) and not self._is_old(topic)}
        while missing := [topic for topic in topics if topic not in described]:
            answers: list[BrokerError | None] = []
            for topic in missing:
                self._sender.look_up(topic, answers.append)
            names = ", ".join(map(repr, missing))
            self._driver.wait(
                partial(self._has_all, answers, len(missing)),
                self._settings.max_block_ms,
                f"topic{'s' * (len(missing) > 1)} {names}: no metadata in time",
            )
            for error in answers:
                if error is not None:
                    raise error
            described |= {topic: cached for topic in missing if (cached := self._cached(topic))}
        return [described[topic] for topic in topics]

    def _cached(self, topic: str) -> TopicMetadata | None:
        # The sender's thread forgets a topic whenever its leader is lost, so it is read once, not tested first.
        return self._sender.metadata.topics.get(topic)

    @staticmethod
    def _has_all(answers: Sequence[object], count: int) -> bool:
        return len(answers) == count

    def _is_old(self, topic: str) -> bool:
        """Whether the metadata of a topic has to be looked up again."""
        since = self._sender.known_since_ms.get(topic)
        return since is None or self._clock.monotonic_ms() - since > self._settings.client.metadata_max_age_ms

    def poll(self, timeout_ms: int = 0) -> None:
        """Send due requests and process responses, waiting up to ``timeout_ms``; ``flush`` does this too."""
        self._check_open()
        self._driver.run_once(timeout_ms)

    @property
    def has_outstanding(self) -> bool:
        """Whether records are queued or requests are in flight."""
        return self._driver.has_outstanding

    @property
    def storage_failures(self) -> list[str]:
        """What brokers said of the partitions that they cannot write now; thread-safe."""
        return list(self._sender.storage_failures.values())

    @property
    def last_sequence(self) -> int:
        """The number of the newest batch; pass it to ``has_acknowledged`` to ask about everything sent so far."""
        return self._accumulator.last_sequence

    def has_acknowledged(self, sequence: int) -> bool:
        """Return whether all batches up to number ``sequence`` are acknowledged, without waiting.

        It is False from the failure of a record, which was not written, until ``flush`` raises its error.
        """
        return self._driver.has_acknowledged(sequence)

    def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until all records sent so far are acknowledged.

        Raises:
            BrokerError: a record has failed since the last flush; its delivery has the same error.
            RequestTimeoutError: a record was not acknowledged in time.
        """
        self._check_open()
        self._driver.flush(timeout_ms)
        failure = self._driver.take_failure()
        if failure is not None:
            raise failure

    def __repr__(self) -> str:
        return f"<Producer {self._settings.client_id!r}>"

    def close(self, timeout_ms: int | None = None) -> None:
        """Flush and close; a transactional producer aborts its open transaction instead of flushing.

        Closing again has no effect.

        Raises:
            BrokerError: see ``flush``; the producer is closed nevertheless.
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
        """Close immediately; unacknowledged records fail.

        An open transaction is ended by the next producer with this transactional id, or after its timeout.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._driver.close()
        self._sender.sensors.close()

    def disown(self) -> None:
        """Refuse all further use in a forked process: it would number its records as the parent does."""
        self._is_closed = True
        self._why_closed = f"{DISOWNED}; make a new one here"

    async def __aenter__(self) -> AsyncProducer:
        """Return the producer for coroutines, which is closed at the end of the ``async with`` block."""
        # Only the background thread drives the producer, so that no send in the event loop does.
        self._driver.ensure_driven()
        self._async = AsyncProducer(self, self._may_block, self._settings.client_id)
        return self._async

    async def __aexit__(self, *_: object) -> None:
        """Close the producer without blocking the event loop."""
        assert self._async is not None
        await self._async.close()

    def _may_block(self, topic: str) -> bool:
        """Whether sending to a topic may wait: for its metadata, or for room in the buffer."""
        settings = self._settings
        is_full = self._accumulator.used_bytes + settings.max_request_bytes > settings.buffer_memory_bytes
        return is_full or topic not in self._sender.metadata.topics or self._is_old(topic)

    # --- transactions -----------------------------------------------------------------

    def init_transactions(self) -> None:
        """Take over the transactional id, fencing its previous owner and ending the previous owner's open transaction.

        Raises:
            ConfigError: the producer has no transactional id.
            RequestTimeoutError: no coordinator responds within ``max_block_ms``; retry.
        """
        self._transactional("init_transactions").initialize()

    def begin_transaction(self) -> None:
        """Begin a transaction, which includes all records sent until it is committed or aborted.

        Raises:
            StreamsError: a transaction is open, or ``init_transactions`` was not called.
            ProducerFencedError: another producer has this transactional id now.
        """
        self._transactional("begin_transaction")
        self._sender.begin_transaction()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_metadata: GroupMetadata
    ) -> None:
        """Commit a consumer's offsets with the transaction; get ``group_metadata`` from ``Consumer.group_metadata``.

        Raises:
            TransactionError: the group rejected the offsets, for example because the consumer is no longer a
                member; abort.  The original error is the cause.
            ProducerFencedError: another producer has this transactional id now.
            RequestTimeoutError: no response came within ``max_block_ms``; retry or abort.
        """
        self._transactional("send_offsets_to_transaction").send_offsets(offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Wait until all sent records are acknowledged, and commit the transaction.

        Raises:
            TransactionError: a record could not be written; abort the transaction.
            ProducerFencedError: another producer has this transactional id now.
            RequestTimeoutError: no response came in time, so the outcome is unknown; retry.
        """
        transactor = self._transactional("commit_transaction")
        transactor.commit(self._driver.flush)

    def abort_transaction(self) -> None:
        """Abort the transaction; unsent records fail.

        Raises:
            ProducerFencedError: another producer has this transactional id now.
            RequestTimeoutError: no response came in time; retry.
        """
        self._transactional("abort_transaction").abort()
        self._driver.take_failure()

    @contextmanager
    def transaction(self) -> Iterator["Producer"]:
        """Begin a transaction; commit it at the end of the ``with`` block, or abort it if the block raises.

        Raises:
            TransactionError: the transaction could not be committed and was aborted.
            ProducerFencedError, RequestTimeoutError: see ``commit_transaction``.
        """
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException as error:
            assert self._transaction is not None
            if self._transaction.state in (TransactionPhase.IN_TRANSACTION, TransactionPhase.ABORTABLE):
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
        if transaction is not None and transaction.state is not TransactionPhase.IN_TRANSACTION:
            transaction.require("send", TransactionPhase.IN_TRANSACTION)

    def _abort_quietly(self) -> None:
        """Abort an open transaction on close; if that fails, the broker aborts it after the transaction timeout."""
        assert self._transaction is not None
        if self._transaction.state in (TransactionPhase.IN_TRANSACTION, TransactionPhase.ABORTABLE):
            try:
                self.abort_transaction()
            except StreamsError as error:
                log.warning("closing with an open transaction: %s", error)

    # --- inside: choosing -------------------------------------------------------------

    def _choose(
        self, described: TopicMetadata, key: bytes | None, value: bytes | None, partition: int | None, suffix: int
    ) -> int:
        if partition is not None:
            count = len(described.leaders)
            if not 0 <= partition < count:
                raise error_for(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"{described.name}-{partition}",
                    f"the topic has {count} partitions",
                )
            return partition
        return self._partitioning.choose(
            described,
            key,
            value,
            suffix,
            lambda number: bool(self._accumulator.open_size(TopicPartition(described.name, number))),
        )

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError(f"the producer {self._why_closed}")


def _orphan(driver: "ref[SenderDriver]") -> None:
    """Let the background thread of a producer that is no longer referenced end, if there is one."""
    there = driver()
    if there is not None:
        there.orphan()
