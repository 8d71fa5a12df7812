"""What the clients of a simulated world push as metrics (KIP-714), as a receiver sees it."""

from collections import defaultdict
from collections.abc import Iterator

from attrs import define, field
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA, Metric, MetricsData, Sum

from streams.broker import PushedMetrics

CONSUMED = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"
_NS_PER_MS = 1_000_000


@define(eq=False)
class PushedTotal:
    """The consumed records of one client instance.

    Deltas with the same start replace each other: the client does not know of the earlier one that it was taken.
    """

    client_id: str
    #: Wall-clock time in milliseconds since which the client counts.
    started_ms: int
    #: The end and the value of the last delta for each start, in milliseconds.
    deltas: dict[int, tuple[int, int]] = field(factory=dict)
    is_terminated: bool = False

    @property
    def total(self) -> int:
        """The records that the client has consumed since it counts."""
        return sum(value for _, value in self.deltas.values())

    @property
    def until_ms(self) -> int:
        """When the client has read the last value."""
        return max((end_ms for end_ms, _ in self.deltas.values()), default=self.started_ms)

    def take(self, start_ms: int, end_ms: int, value: int) -> None:
        """Add a delta; one that was read before the one that is known for its start came late, and says nothing new."""
        if end_ms >= self.deltas.get(start_ms, (0, 0))[0]:
            self.deltas[start_ms] = end_ms, value

    def problem(self) -> str:
        """Return what is wrong with the deltas, or ""."""
        at_ms = self.started_ms
        for start_ms, (end_ms, value) in sorted(self.deltas.items()):
            # A delta that began before the end of another one contains its records again.
            if start_ms != at_ms:
                return f"a delta begins at {start_ms} ms, and the one before it has ended at {at_ms}"
            if value < 0 or end_ms < start_ms:
                return f"from {start_ms} to {end_ms} ms there are {value} records"
            at_ms = end_ms
        return ""


@define(eq=False)
class PushedWatch:
    """The receiver of a broker, with the totals of all client instances that have pushed."""

    instances: dict[str, PushedTotal] = field(factory=dict)
    #: The instances by client ID.
    ids: defaultdict[str, set[str]] = field(factory=lambda: defaultdict(set))
    pushes: int = 0
    #: The kinds of metrics: consumer, producer and stream.
    kinds: set[str] = field(factory=set)

    def __call__(self, pushed: PushedMetrics) -> None:
        """Take one push."""
        self.pushes += 1
        self.ids[pushed.client.client_id].add(pushed.client_instance_id)
        for metric in _metrics(pushed.metrics):
            self.kinds.add(metric.name.split(".")[3])
            if metric.name == CONSUMED:
                self._take(pushed, metric.sum)

    def _take(self, pushed: PushedMetrics, consumed: Sum) -> None:
        assert consumed.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA
        for point in consumed.data_points:
            start_ms, end_ms = point.start_time_unix_nano // _NS_PER_MS, point.time_unix_nano // _NS_PER_MS
            found = self.instances.setdefault(pushed.client_instance_id, PushedTotal(pushed.client.client_id, start_ms))
            found.take(start_ms, end_ms, point.as_int)
            found.is_terminated |= pushed.is_terminating


def _metrics(data: bytes) -> Iterator[Metric]:
    for of_client in MetricsData.FromString(data).resource_metrics:
        for scope in of_client.scope_metrics:
            yield from scope.metrics
