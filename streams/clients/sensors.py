"""The metrics of consumers and producers, with the names of Kafka's clients, recorded per request and per block.

A client records nothing until ``record`` connects its sensors to a registry.
Of the other packages, this module imports only ``core``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from streams.clients.consumer.subscription import PartitionState
from streams.core.blocks.records import Block, TopicPartition
from streams.core.metrics import (
    Amounts,
    Counter,
    MetricPlace,
    Metrics,
    Reading,
    RecordingLevel,
    bytes_in,
    table,
)

if TYPE_CHECKING:
    from streams.clients.producer.accumulator import Accumulator


def _nowhere() -> Metrics:
    return Metrics(level=RecordingLevel.OFF)


@define(eq=False)
class ConsumerSensors:
    """The sensors that record the metrics of one consumer."""

    _metrics: Metrics = field(factory=_nowhere)
    is_on: bool = False
    records: Counter = field(init=False)
    bytes: Counter = field(init=False)
    #: Times from a fetch to its response, in nanoseconds.
    fetched: Amounts = field(init=False)
    committed: Amounts = field(init=False)
    _lag: Amounts = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._open("")

    def record(self, metrics: Metrics, client_id: str) -> None:
        """Start recording this consumer's metrics in a registry."""
        self._metrics = metrics.of_thread(client_id)
        # All of these sensors are recorded at the same level.
        self.is_on = metrics.records(table.FETCHED)
        self._open(client_id)

    def close(self) -> None:
        """Stop exporting the consumer's metrics."""
        self._metrics.close()

    def _open(self, client_id: str) -> None:
        metrics = self._metrics
        self.records = metrics.counter(table.CONSUMED_BY_CLIENT, client=client_id)
        self.bytes = metrics.counter(table.BYTES_CONSUMED, client=client_id)
        self.fetched = metrics.amounts(table.FETCHED, client=client_id)
        self.committed = metrics.amounts(table.OFFSETS_COMMITTED, client=client_id)
        self._lag = metrics.amounts(table.CLIENT_LAG, client=client_id)

    def note(
        self, taken: Mapping[TopicPartition, Sequence[Block]], partitions: Mapping[TopicPartition, PartitionState]
    ) -> None:
        """Record the blocks that a poll returns, and the largest lag after that poll."""
        for partition, blocks in taken.items():
            for block in blocks:
                self.records.value += len(block)
                self.bytes.value += bytes_in(block.keys, block.values)
            state = partitions[partition]
            if state.known_end is not None and state.position is not None:
                self._lag.record(max(0, state.known_end - state.position))


@define(eq=False)
class ProducerSensors:
    """The sensors that record the metrics of one producer."""

    _metrics: Metrics = field(factory=_nowhere)
    is_on: bool = False
    sent: Counter = field(init=False)
    retried: Counter = field(init=False)
    failed: Counter = field(init=False)
    #: Sizes of batches in bytes, and records of requests.
    batches: Amounts = field(init=False)
    requests: Amounts = field(init=False)
    #: Times from a produce request to its response, in nanoseconds.
    answered: Amounts = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._open("")

    def record(self, metrics: Metrics, client_id: str, accumulator: "Accumulator", buffer_bytes: int) -> None:
        """Start recording this producer's metrics in a registry; ``buffer_bytes`` is the size of its buffer."""
        self._metrics = metrics.of_thread(client_id)
        self.is_on = metrics.records(table.RECORDS_SENT)
        place = MetricPlace(client_id, client=client_id)

        def readings(_: int) -> Iterator[Reading]:
            yield table.BUFFER_AVAILABLE, place, max(0, buffer_bytes - accumulator.used_bytes)
            yield table.BUFFER_TOTAL, place, buffer_bytes

        self._metrics.watch(readings)
        self._open(client_id)

    def close(self) -> None:
        """Stop exporting the producer's metrics."""
        self._metrics.close()

    def _open(self, client_id: str) -> None:
        metrics = self._metrics
        self.sent = metrics.counter(table.RECORDS_SENT, client=client_id)
        self.retried = metrics.counter(table.RECORDS_RETRIED, client=client_id)
        self.failed = metrics.counter(table.RECORDS_FAILED, client=client_id)
        self.batches = metrics.amounts(table.BATCHES, client=client_id)
        self.requests = metrics.amounts(table.RECORDS_PER_REQUEST, client=client_id)
        self.answered = metrics.amounts(table.REQUESTS, client=client_id)
