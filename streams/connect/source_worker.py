"""The worker of a source: writes each block and its position to the cluster in one transaction.

The positions are in the compacted topic ``<name>-positions``.  A worker that starts fences its predecessor, and
reads the positions to the end.
Of the other packages, this module imports only ``clients``, ``core`` and ``protocol``.
"""

import json
import logging
from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

from streams.clients import Admin, Consumer, Producer, block_size, is_transient
from streams.connect.errors import ConnectError
from streams.connect.lifecycle import ConnectWorker
from streams.connect.protocol import Position, SourceBlock, SourceConnector
from streams.connect.worker_settings import SourceSettings
from streams.core.blocks.partitioning import partitions_for
from streams.core.blocks.records import Block, Headers, TopicPartition
from streams.core.errors import BrokerError, ConfigError, ProducerFencedError
from streams.core.event_time.timestamps import to_milliseconds
from streams.protocol.messages import TopicSpec

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

_POSITIONS: Final = "-positions"


class _StoppedError(Exception):
    """The worker was told to stop within a transaction, which is aborted."""


class SourceWorker(ConnectWorker[K, V, SourceConnector[K, V], SourceSettings]):
    """Writes what a source reads to a topic, exactly once.

    At most one worker per name is active: a new one fences its predecessor.  The topic must exist; the positions are in
    the topic ``<name>-positions``, which is created.  ``run`` works in the caller's thread; ``start``, ``wait`` and
    ``close``, or a ``with`` block, in a thread of its own.
    """

    #: Partition of the next block without keys.
    _home = 0

    @property
    def _positions_topic(self) -> TopicPartition:
        return TopicPartition(self.name + _POSITIONS, 0)

    def _default_settings(self) -> SourceSettings:
        return SourceSettings()

    def _wakeup(self) -> None:
        self._connector.wakeup()

    def _work(self) -> None:
        while not self._is_stopping:
            try:
                self._session()
            except Exception as error:  # noqa: BLE001 - errors that are not passing are raised again.
                self._recover(error)

    def _recover(self, error: Exception) -> None:
        self._note(error)
        if isinstance(error, ProducerFencedError):
            raise ProducerFencedError(
                f"source {self.name!r}: another worker with this name was started: {error}",
                code=error.code,
                transactional_id=error.transactional_id,
            ) from error
        cause = error.__cause__ if isinstance(error, BrokerError) and isinstance(error.__cause__, Exception) else error
        is_passing = is_transient(cause) if isinstance(error, BrokerError) else self._connector.is_retriable(error)
        if not is_passing:
            raise error
        pause_ms = self._retries.after(error, f"source {self.name!r}")
        self._count(retries=1)
        log.warning("source %r: tried again in %d ms: %s", self.name, pause_ms, error)
        self._stop.wait(pause_ms)

    def _session(self) -> None:
        """Fence the previous worker, start after the stored positions, and write blocks until told to stop."""
        settings = self._settings
        name = self.name
        self._create_positions()
        with Producer(
            self._cluster,
            client_id=f"{name}-source",
            transactional_id=name,
            transaction_timeout_ms=settings.transaction_timeout_ms,
            clock=self._clock,
        ) as producer:
            producer.init_transactions()
            producer.partition_count(self._topic.name)
            try:
                self._connector.open(name, self._topic, self._stored())
                while not self._is_stopping:
                    blocks = self._connector.poll(settings.poll_ms)
                    self._retries.succeeded()
                    if blocks:
                        self._write(producer, blocks)
            except _StoppedError:
                log.info("source %r: stopped within a transaction, which is read again at the next start", name)
            finally:
                self._connector.close()

    def _create_positions(self) -> None:
        with Admin(self._cluster) as admin:
            spec = TopicSpec(self._positions_topic.topic, 1, {"cleanup.policy": "compact"})
            admin.create_topics([spec], exist_ok=True)

    def _stored(self) -> dict[str, Position]:
        """Return the committed positions, read from the positions topic."""
        partition = self._positions_topic
        positions: dict[str, Position] = {}
        with Consumer(
            self._cluster,
            clock=self._clock,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            allow_auto_create_topics=False,
        ) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning([partition])
            end = consumer.end_offsets([partition])[partition]
            while (consumer.known_position(partition) or 0) < end:
                for block in (block for blocks in consumer.poll_blocks(100).values() for block in blocks):
                    for key, value in zip(block.keys, block.values, strict=True):
                        positions[(key or b"").decode()] = None if value is None else json.loads(value)
        return {name: position for name, position in positions.items() if position is not None}

    def _write(self, producer: Producer, blocks: Sequence[SourceBlock[K, V]]) -> None:
        """Write blocks and their positions in one transaction, with the blocks that follow if they belong to it."""
        positions: dict[str, Position] = {}
        count = producer.partition_count(self._topic.name)
        size = records = skipped = lost = 0
        with producer.transaction():
            while True:
                parts = [part for block in blocks for part in self._parts(block, count)]
                for partition, part in parts:
                    producer.send_block(partition, part, has_more=True)
                positions |= {block.partition: block.position for block in blocks}
                size += sum(block_size(part) for _, part in parts)
                records += sum(map(len, blocks))
                skipped += sum(block.skipped for block in blocks)
                lost += sum(block.lost for block in blocks)
                if not blocks[-1].has_more:
                    break
                blocks = self._more()
            for key, position in positions.items():
                producer.send(self._positions_topic.topic, self._noted(position), key=key.encode(), partition=0)
        self._count(records=records, bytes=size, batches=1, skipped=skipped, lost=lost)
        self._connector.committed(positions)

    def _more(self) -> Sequence[SourceBlock[K, V]]:
        """Return the next blocks of a transaction.

        Raises:
            _StoppedError: the worker was told to stop.
        """
        blocks: Sequence[SourceBlock[K, V]] = ()
        while not blocks:
            if self._is_stopping:
                raise _StoppedError
            blocks = self._connector.poll(self._settings.poll_ms)
        return blocks

    def _noted(self, position: Position) -> bytes | None:
        if position is None:
            return None
        try:
            return json.dumps(position).encode()
        except (TypeError, ValueError) as error:
            raise ConnectError(f"source {self.name!r}: its position {position!r:.100} is not JSON: {error}") from error

    def _parts(self, block: SourceBlock[K, V], count: int) -> list[tuple[TopicPartition, Block]]:
        """Return the records of a block as serialized blocks by partition."""
        size = len(block)
        if not size:
            return []
        topic = self._topic
        headers = block.headers
        timestamps = self._timestamps(block)
        if not (len(block.keys) == len(timestamps) == size and (headers is None or len(headers) == size)):
            raise ConfigError(f"source {self.name!r}: the columns of a block have different lengths")
        keys, values = self._serialized(block)
        rows: dict[int, list[int]] = {}
        for index, partition in enumerate(self._partitions(keys, count)):
            rows.setdefault(partition, []).append(index)
        parts = []
        for partition, indexes in rows.items():
            chosen: list[Headers] | None = None if headers is None else [headers[index] for index in indexes]
            part = Block(
                [keys[index] for index in indexes],
                [values[index] for index in indexes],
                [timestamps[index] for index in indexes],
                chosen,
                range(len(indexes)),
            )
            parts.append((TopicPartition(topic.name, partition), part))
        return parts

    def _serialized(self, block: SourceBlock[K, V]) -> tuple[Sequence[bytes | None], Sequence[bytes | None]]:
        if block.is_serialized:
            return cast("Sequence[bytes | None]", block.keys), cast("Sequence[bytes | None]", block.values)
        return self._topic.key_serde.serialize_all(block.keys), self._topic.value_serde.serialize_all(block.values)

    def _timestamps(self, block: SourceBlock[K, V]) -> Sequence[int]:
        if block.timestamps_ms is not None:
            return block.timestamps_ms
        now_ms = self._clock.now_ms()
        time_of = self._topic.value_time
        if time_of is None:
            return [now_ms] * len(block)
        values: Sequence[Any] = block.values
        if block.is_serialized:
            values = self._topic.value_serde.deserialize_all(cast("Sequence[bytes | None]", values))
        return [now_ms if value is None else to_milliseconds(time_of.function(value)) for value in values]

    def _partitions(self, keys: Sequence[bytes | None], count: int) -> list[int]:
        """Return the partition of each record: by its key, as Kafka's Java clients; one for all without a key."""
        self._home = (self._home + 1) % count
        present = [key for key in keys if key is not None]
        own = iter(partitions_for(present, count, self._topic.key_serde.key_suffix))
        return [self._home if key is None else next(own) for key in keys]
