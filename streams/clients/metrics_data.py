"""The metrics of a client as OpenTelemetry's ``MetricsData`` (protobuf), which brokers take (KIP-714).

Needs ``opentelemetry-proto``, which the extra ``otel`` installs.  Imported on first use, because the import takes long.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from attrs import define, field
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    MetricsData,
    NumberDataPoint,
)

from streams.core.metrics import Metric, Stat

_NS_PER_MS = 1_000_000
#: Tags that the broker knows from the connection.
_KNOWN_TAGS = frozenset({"client-id"})

_Series: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


def _attributes(labels: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in labels.items()]


@define(eq=False)
class MetricsEncoder:
    """Encodes the metrics of one client, and remembers the sums that a broker has taken."""

    #: Wall-clock time in milliseconds since which the sums have been counted.
    started_ms: int
    #: Describes the client, such as by its group.
    labels: Callable[[], Mapping[str, str]]
    #: The sums that a broker has taken, and when they were read.
    _taken: dict[_Series, float] = field(factory=dict)
    _taken_ms: int | None = None
    #: Those of the last call of ``encoded``.
    _sums: dict[_Series, float] = field(factory=dict)
    _read_ms: int = 0

    def encoded(self, metrics: Iterable[Metric], now_ms: int, *, is_delta: bool) -> bytes:
        """Return the encoded metrics.

        ``now_ms`` is the wall-clock time.  With ``is_delta``, sums are those since a broker has taken metrics.
        """
        self._sums, self._read_ms = {}, now_ms
        data = MetricsData()
        of_client = data.resource_metrics.add()
        of_client.resource.attributes.extend(_attributes(self.labels()))
        scope = of_client.scope_metrics.add()
        for metric in metrics:
            if isinstance(metric.value, str):
                continue
            labels = {tag.replace("-", "_"): text for tag, text in metric.tags.items() if tag not in _KNOWN_TAGS}
            found = scope.metrics.add(
                name=metric.telemetry_name, description=metric.spec.description, unit=metric.spec.unit
            )
            value, start_ms = metric.value, self.started_ms
            if metric.spec.stat not in (Stat.TOTAL, Stat.SUM):
                _fill(found.gauge.data_points.add(), value, labels, now_ms)
                continue
            found.sum.is_monotonic = True
            found.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
            if is_delta:
                series = metric.telemetry_name, tuple(labels.items())
                found.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
                start_ms = self.started_ms if self._taken_ms is None else self._taken_ms
                value = metric.value - self._taken.get(series, 0)
                self._sums[series] = metric.value
            point = found.sum.data_points.add()
            point.start_time_unix_nano = start_ms * _NS_PER_MS
            _fill(point, value, labels, now_ms)
        return bytes(data.SerializeToString())

    def note_taken(self) -> None:
        """Note that a broker has taken what was encoded last; if it was not, the next sums contain it again."""
        self._taken.update(self._sums)
        self._taken_ms = self._read_ms


def _fill(point: NumberDataPoint, value: float, labels: Mapping[str, str], now_ms: int) -> None:
    point.time_unix_nano = now_ms * _NS_PER_MS
    point.attributes.extend(_attributes(labels))
    if isinstance(value, int):
        point.as_int = value
    else:
        point.as_double = value
