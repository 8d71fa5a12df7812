"""The producer: appends records and blocks to topics, asynchronously and in order.

Any thread may send.  Whoever sends, flushes or waits for a result drives the connection, one
thread at a time; with ``linger_ms`` a background thread does it as well.  Two locks: ``_lock``
guards the accumulator and is held for moments; ``_io_lock`` belongs to the thread that drives
and is taken first.  Imports protocol and core.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, overload

from streams.clients.accumulator import Accumulator, Batch
from streams.clients.catalog import Catalog
from streams.clients.delivery import Delivery
from streams.clients.errors import RETRIABLE, PartitionerError, RequestTimeoutError, error_for
from streams.clients.network import ANY_NODE, Network, Patience
from streams.core.clock import Clock, SystemClock
from streams.core.errors import BrokerError, ClientClosedError, ConfigError, SerializationError
from streams.core.partitioning import murmur2, partition_for
from streams.core.records import Block, TopicPartition
from streams.core.topic import Topic
from streams.protocol.messages import ErrorCode, Metadata, MetadataResponse, Produce, ProduceResponse, Response
from streams.protocol.transport import Cluster

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

#: Chooses a partition: topic, key, value (bytes) and partition count -> number of the partition.
Partitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]

# How long the driving thread waits for answers before it lets others have a turn.
_TURN_MS: Final = 50


class Producer:
    """Sends records to topics.

    Records with a key go by murmur2 of its bytes, as with every Kafka client; those without
    stay on one partition until its batch is full or sent.  Times are milliseconds.

    Args:
        broker: the embedded broker, or whatever else opens connections.
        linger_ms: how long a batch may wait for more records; above 0 a thread sends it then.
        batch_size: bytes of a batch that is sent at once.
        max_in_flight: requests that wait for an answer, at most one of each partition.
        delivery_timeout_ms: when a record that cannot be sent fails.

    Raises:
        ConfigError: a setting is unknown or does not fit.
    """

    def __init__(
        self,
        broker: Cluster | None = None,
        *,
        client_id: str = "producer",
        linger_ms: int = 0,
        batch_size: int = 16_384,
        max_in_flight: int = 5,
        acks: int = -1,
        partitioner: Partitioner | None = None,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300_000,
        clock: Clock | None = None,
    ) -> None:
        if broker is None:
            raise ConfigError("a producer needs a broker to write to; pass broker=EmbeddedBroker() or another cluster")
        if linger_ms < 0 or batch_size < 1 or max_in_flight < 1:
            raise ConfigError("linger_ms must not be negative, batch_size and max_in_flight at least 1")
        self._clock: Clock = SystemClock() if clock is None else clock
        self._network = Network(broker.connect(client_id), self._clock, request_timeout_ms=request_timeout_ms)
        self._max_in_flight = max_in_flight
        self._acks = acks
        self._partitioner = partitioner
        self._request_timeout_ms = request_timeout_ms
        self._delivery_timeout_ms = delivery_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._metadata_max_age_ms = metadata_max_age_ms
        self._catalog = Catalog()
        self._known_since_ms: dict[str, int] = {}
        self._sticky: dict[str, int] = {}
        self._sticky_start = murmur2(client_id.encode()) & 0x7FFFFFFF
        self._accumulator = Accumulator(linger_ms=linger_ms, batch_size=batch_size)
        self._in_flight = 0
        self._failure: BrokerError | None = None
        self._is_closed = False
        self._lock = threading.RLock()
        self._io_lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        # Only real time passes by itself: under another clock its owner drives.
        if linger_ms and isinstance(self._clock, SystemClock):
            self._thread = threading.Thread(target=self._run, name=f"{client_id}-sender", daemon=True)
            self._thread.start()

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
            SerializationError: key or value do not fit the topic.
            PartitionerError: the partitioner chose a partition that does not exist.
        """
        self._check_open()
        if isinstance(topic, Topic):
            name, suffix = topic.name, topic.key_serde.key_suffix
            key, value = topic.key_serde.serialize(key), topic.value_serde.serialize(value)
        else:
            name, suffix = topic, 0
            if not isinstance(key, (bytes, type(None))) or not isinstance(value, (bytes, type(None))):
                raise SerializationError(
                    f"topic {name!r} is given by name: key and value must be bytes; pass a Topic for other types"
                )
        count = self.partition_count(name)
        timestamp_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        now = self._clock.monotonic_ms()
        with self._lock:
            target = TopicPartition(name, self._choose(name, key, value, count, partition, suffix))
            delivery, is_due = self._accumulator.add_record(
                target, key, value, timestamp_ms, tuple(headers), now, partial(Delivery, self, target)
            )
            if is_due and self._thread is not None:
                self._work.notify_all()
        if self._thread is None:
            self._drive_if_due()
        return delivery

    def send_block(self, partition: TopicPartition, block: Block) -> Delivery:
        """Send a block as it is, offsets aside; the result is the place of its first record.

        The block belongs to the producer from here on.
        """
        self._check_open()
        with self._lock:
            delivery = Delivery(self, partition, self._accumulator.last_sequence + 1)
            if not len(block):
                delivery.fulfil(-1)
                return delivery
            self._accumulator.add_block(partition, block, delivery, self._clock.monotonic_ms())
            if self._thread is not None:
                self._work.notify_all()
        if self._thread is None:
            self._drive_if_due()
        return delivery

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has; asks where that is not known or old.

        Raises:
            UnknownTopicError: it does not exist.
        """
        now = self._clock.monotonic_ms()
        since = self._known_since_ms.get(topic)
        count = self._catalog.partition_count(topic)
        if count is None or since is None or now - since > self._metadata_max_age_ms:
            with self._io_lock:
                response = self._network.request(ANY_NODE, Metadata((topic,)), MetadataResponse)
                self._catalog.update(response, (topic,))
            count = self._catalog.partition_count(topic)
            if count is None:
                raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r}")
            self._known_since_ms[topic] = now
        return count

    def poll(self, timeout_ms: int = 0) -> None:
        """Send what is due and take what has been answered, waiting up to the timeout; ``flush`` does it too."""
        self._check_open()
        with self._io_lock:
            self._drive(timeout_ms)

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
        """Flush and close; harmless when repeated.

        Raises:
            BrokerError: as ``flush``; the producer is closed all the same.
        """
        if self._is_closed:
            return
        try:
            self.flush(timeout_ms)
        finally:
            with self._lock:
                self._is_closed = True
                self._work.notify_all()
            self._network.wakeup()
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join()
            with self._io_lock:
                self._network.close()
            with self._lock:
                for batch in self._accumulator.take_all():
                    batch.fail(BrokerError(f"{batch.partition}: the producer was closed before this was sent"))

    def await_delivery(self, delivery: Delivery, timeout_ms: int | None) -> None:
        """Send and receive until a delivery is done; what ``Delivery.result`` does."""
        self._await(delivery.sequence, timeout_ms, delivery)

    def __enter__(self) -> "Producer":
        """Return the producer; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    # --- inside: choosing -------------------------------------------------------------

    def _choose(
        self, topic: str, key: bytes | None, value: bytes | None, count: int, wanted: int | None, suffix: int
    ) -> int:
        if wanted is not None:
            if not 0 <= wanted < count:
                raise error_for(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{wanted}", f"the topic has {count} partitions"
                )
            return wanted
        if self._partitioner is not None:
            chosen = self._partitioner(topic, key, value, count)
            if type(chosen) is not int or not 0 <= chosen < count:
                raise PartitionerError(
                    f"the partitioner chose {chosen!r} for a record of topic {topic!r}, "
                    f"which has {count} partitions; it must return an int from 0 to {count - 1}"
                )
            return chosen
        if key is not None:
            return partition_for(key[: len(key) - suffix] if suffix else key, count)
        current = self._sticky.get(topic, self._sticky_start) % count
        if not self._accumulator.open_size(TopicPartition(topic, current)):
            # Its batch is full or gone: time for the next partition.
            current = (current + 1) % count
        self._sticky[topic] = current
        return current

    # --- inside: driving --------------------------------------------------------------

    def _run(self) -> None:
        """Send what has lingered enough, until closed."""
        while True:
            with self._lock:
                if self._is_closed:
                    return
                now = self._clock.monotonic_ms()
                ready_at_ms = self._accumulator.ready_at_ms(now)
                if not self._in_flight and (ready_at_ms is None or ready_at_ms > now):
                    self._work.wait(None if ready_at_ms is None else (ready_at_ms - now) / 1000)
                    continue
            try:
                with self._io_lock:
                    self._drive(_TURN_MS)
            except Exception:
                # A user's callback has raised; the others' records must not wait for ever.
                log.exception("a delivery callback has failed")

    def _drive_if_due(self) -> None:
        """Send what is due unless another thread drives: it looks again before it stops."""
        while self._is_due() and self._io_lock.acquire(blocking=False):
            try:
                self._drive(0)
                if self._in_flight >= self._max_in_flight:
                    return
            finally:
                self._io_lock.release()

    def _is_due(self) -> bool:
        with self._lock:
            now = self._clock.monotonic_ms()
            return self._accumulator.ready_at_ms(now) == now

    def _await(self, sequence: int, timeout_ms: int | None, delivery: Delivery | None = None) -> None:
        timeout_ms = self._delivery_timeout_ms + self._request_timeout_ms if timeout_ms is None else timeout_ms
        patience = Patience(self._clock, self._clock.monotonic_ms() + timeout_ms)
        with self._lock:
            self._accumulator.request_flush(sequence)
            self._work.notify_all()
        has_progress = True
        while not (delivery.done() if delivery is not None else self._accumulator.is_finished_through(sequence)):
            remaining_ms = patience.remaining_ms(has_progress=has_progress)
            if not remaining_ms and not has_progress:
                raise RequestTimeoutError("not everything sent is acknowledged in time; is the broker there?")
            with self._io_lock:
                has_progress = self._drive(min(remaining_ms, _TURN_MS))

    def _drive(self, timeout_ms: int) -> bool:
        """Send what is due, take answers; the caller holds ``_io_lock``."""
        now = self._clock.monotonic_ms()
        with self._lock:
            expired = self._accumulator.take_expired(now - self._delivery_timeout_ms)
            drained = self._accumulator.drain(now) if self._in_flight < self._max_in_flight else {}
            next_ms = self._accumulator.ready_at_ms(now)
        for batch in expired:
            self._fail(batch, RequestTimeoutError(f"{batch.partition}: not sent in time; is the broker there?"))
        if drained:
            self._send(drained)
        if next_ms is not None:
            timeout_ms = min(timeout_ms, max(0, next_ms - now)) if next_ms > now else timeout_ms
        return self._network.poll(timeout_ms) > 0 or bool(drained)

    def _send(self, drained: dict[TopicPartition, list[Batch]]) -> None:
        by_node: dict[int, dict[TopicPartition, list[Batch]]] = {}
        for partition, batches in drained.items():
            node = self._leader(partition, batches)
            if node is not None:
                by_node.setdefault(node, {})[partition] = batches
        for node, group in by_node.items():
            request = Produce({p: tuple(batch.block for batch in batches) for p, batches in group.items()}, self._acks)
            self._in_flight += 1
            self._network.send(node, request, partial(self._receive, group))

    def _leader(self, partition: TopicPartition, batches: Sequence[Batch]) -> int | None:
        """Return where to send; without a leader fail what does not exist, and retry the rest."""
        try:
            if self._catalog.leader(partition) is None:
                self._known_since_ms.pop(partition.topic, None)
                count = self.partition_count(partition.topic)
                if not 0 <= partition.partition < count:
                    raise error_for(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition), f"the topic has {count} partitions"
                    )
        except BrokerError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._finish(partition, batches, error)
            else:
                self._retry(partition, batches)
            return None
        node = self._catalog.leader(partition)
        if node is None:
            self._retry(partition, batches)
        return node

    def _receive(self, group: dict[TopicPartition, list[Batch]], response: Response | Exception) -> None:
        self._in_flight -= 1
        for partition, batches in group.items():
            if not isinstance(response, ProduceResponse):
                log.debug("produce to %s: %s; will be tried again", partition, response)
                self._catalog.topics.pop(partition.topic, None)
                self._retry(partition, batches)
                continue
            code, base_offset, detail = response.partitions[partition]
            if code is ErrorCode.NONE:
                self._acknowledge(partition, batches, base_offset)
            elif code in RETRIABLE:
                self._retry(partition, batches)
            elif code is ErrorCode.MESSAGE_TOO_LARGE and self._split(partition, batches):
                continue
            else:
                if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._catalog.topics.pop(partition.topic, None)
                self._finish(partition, batches, error_for(code, f"produce to {partition}", detail))

    def _acknowledge(self, partition: TopicPartition, batches: Sequence[Batch], base_offset: int) -> None:
        with self._lock:
            self._accumulator.finish(partition, batches)
        for batch in batches:
            batch.acknowledge(base_offset)
            base_offset += len(batch.block)

    def _finish(self, partition: TopicPartition, batches: Sequence[Batch], error: BrokerError) -> None:
        with self._lock:
            self._accumulator.finish(partition, batches)
        for batch in batches:
            self._fail(batch, error)

    def _fail(self, batch: Batch, error: BrokerError) -> None:
        if self._failure is None:
            self._failure = error
        batch.fail(error)

    def _retry(self, partition: TopicPartition, batches: Sequence[Batch]) -> None:
        with self._lock:
            self._accumulator.retry(partition, batches, self._clock.monotonic_ms() + self._retry_backoff_ms)

    def _split(self, partition: TopicPartition, batches: Sequence[Batch]) -> bool:
        """Send the refused batches apart, then their halves: only the record at fault shall fail."""
        with self._lock:
            if len(batches) == 1:
                parts = self._accumulator.split(batches[0])
                if len(parts) == 1:
                    return False
            else:
                parts = list(batches)
            self._accumulator.retry_apart(partition, parts)
        return True

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the producer is closed; make a new one")
