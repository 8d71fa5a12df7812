"""The producer that writes the inputs of a world, with the production client."""

from attrs import define, field

from streams.clients import Delivery, Producer
from streams.protocol.wire.framing import MAX_FRAME_BYTES
from streams.testing.simulation.conditions import Conditions, Row, Scenario
from streams.testing.simulation.network import RECORD_BYTES, SimNetwork
from streams.testing.simulation.report import SpinError
from streams.testing.simulation.scheduler import SimProcess, SimThreads, SpinDetector


@define(eq=False)
class InputWriter:
    """Writes the inputs of a world: at even intervals, or in bursts with gaps between them."""

    _scenario: Scenario
    _conditions: Conditions
    _network: SimNetwork
    _process: SimProcess = field(init=False)
    #: The sent records, each with its delivery.
    deliveries: list[tuple[Row, Delivery]] = field(factory=list)
    has_written: bool = False
    failure: Exception | None = None

    def __attrs_post_init__(self) -> None:
        spins = SpinDetector(lambda: len(self.deliveries), self._on_spin)
        self._process = SimProcess(self._network.scheduler, "writer", spins)

    def start(self, timeout_ms: int) -> None:
        """Start to write; it is a failure if records are not acknowledged within ``timeout_ms`` after the last one."""
        self._process.spawn(lambda: self._run(timeout_ms))

    def _run(self, timeout_ms: int) -> None:
        try:
            self._write(timeout_ms)
        except Exception as error:  # noqa: BLE001 - the world reports it.
            self.failure = error

    def _on_spin(self) -> None:
        self.failure = SpinError("the producer polls on without a pause, though nothing arrives or is sent")

    def _write(self, timeout_ms: int) -> None:
        scheduler = self._network.scheduler
        rows = self._conditions.arrival.arranged(self._scenario.rows)
        producer = Producer(
            self._network.cluster(self._process, self._max_request_bytes()),
            client_id="writer",
            request_timeout_ms=2_000,
            metadata_max_age_ms=2_000,
            delivery_timeout_ms=timeout_ms,
            background_sender=False,
            clock=scheduler.clock,
            threads=SimThreads(self._process),
        )
        pause = SimThreads(self._process).signal()
        for index, row in enumerate(rows):
            due_ms = self._due_ms(index, len(rows))
            if due_ms > scheduler.now_ms:
                producer.poll(0)
                pause.wait(due_ms - scheduler.now_ms)
            topic, key, value, time_ms = row
            self.deliveries.append((row, producer.send(topic, value, key=key, timestamp_ms=time_ms)))
        producer.flush(timeout_ms)
        self.has_written = True

    def _due_ms(self, index: int, count: int) -> int:
        """Return the virtual time at which to send record ``index``; all are due within 90 % of ``storm_ms``."""
        bursts = self._conditions.bursts or count
        return index * bursts // count * self._scenario.storm_ms * 9 // (10 * bursts)

    def _max_request_bytes(self) -> int:
        """Return the brokers' limit for a producer request: the size of a few of the largest records per partition."""
        if not self._conditions.limits_requests:
            return MAX_FRAME_BYTES
        rows, partitions = self._scenario.rows, self._scenario.partitions
        sizes = (
            len(topic.key_serde.serialize(key) or b"") + len(topic.value_serde.serialize(value) or b"")
            for topic, key, value, _ in rows
        )
        count = sum(partitions[name] for name in {row[0].name for row in rows})
        return (RECORD_BYTES + max(sizes)) * 6 * count
