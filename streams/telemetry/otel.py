"""Export of metrics and sampled traces to OpenTelemetry (OTLP over HTTP). Needs the extra ``otel``.

Metric names follow Kafka's client telemetry (KIP-714, KIP-1076): ``org.apache.kafka.`` + group + name.
"""

from collections.abc import Callable, Iterable
from typing import Any

from attrs import define, field

from streams.core.blocks.records import TaskId
from streams.core.clock import Clock
from streams.core.concurrency.threads import SystemThreads
from streams.core.errors import ConfigError
from streams.core.installation import pip_install
from streams.core.metrics import SENSORS, Metric, Metrics, MetricSpec, Stat, telemetry_name
from streams.core.settings.config import StreamsConfig

try:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ConfigError(f"OpenTelemetry needs its SDK ({error}): {pip_install('otel')}") from None

#: Maximum time in milliseconds for the last export of the metrics, and for that of the spans.
CLOSE_MS = 2_000

_LIBRARY = "streams"
_MILLION = 1_000_000


def _resource(application_id: str) -> Resource:
    return Resource.create({"service.name": application_id})


@define(eq=False)
class MetricExport:
    """Exports the metrics of an application through a ``MetricReader`` of the SDK."""

    _metrics: Metrics
    _application_id: str
    _reader: MetricReader
    _provider: MeterProvider = field(init=False)
    _collected: dict[MetricSpec, list[Metric]] = field(init=False, factory=dict)
    #: Metrics that the SDK has read since the last collection.
    _read: set[MetricSpec] = field(init=False, factory=set)

    def __attrs_post_init__(self) -> None:
        self._provider = MeterProvider([self._reader], _resource(self._application_id))
        meter = self._provider.get_meter(_LIBRARY)
        for spec in SENSORS:
            for metric in spec.metrics:
                if metric.stat is not Stat.TEXT:
                    is_sum = metric.stat in (Stat.TOTAL, Stat.SUM)
                    create = meter.create_observable_counter if is_sum else meter.create_observable_gauge
                    create(
                        telemetry_name(spec.scope, metric.name),
                        [self._observer(metric)],
                        metric.unit,
                        metric.description,
                    )

    def close(self) -> None:
        """Export the metrics a last time, within ``CLOSE_MS``, and shut down."""
        self._provider.shutdown(CLOSE_MS)

    def _observer(self, spec: MetricSpec) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            # The SDK reads the metrics one by one; reading one of them a second time starts a new collection.
            if not self._collected or spec in self._read:
                self._collect()
            self._read.add(spec)
            return [
                Observation(metric.value, {tag.replace("-", "_"): text for tag, text in metric.tags.items()})
                for metric in self._collected.get(spec, ())
                if not isinstance(metric.value, str)
            ]

        return observe

    def _collect(self) -> None:
        self._collected = {}
        self._read = set()
        for metric in self._metrics.collect():
            self._collected.setdefault(metric.spec, []).append(metric)


@define(eq=False)
class _RecordSpan:
    """An OpenTelemetry span for one record; implements ``runtime.sampling.RecordSpan``."""

    _span: Span
    _start_ns: int
    _clock: Clock
    _monotonic_ns: int

    @property
    def traceparent(self) -> bytes:
        """The W3C ``traceparent`` header with this span as parent."""
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()

    def end(self, error: BaseException | None = None) -> None:
        """End the span; ``error`` is the exception that processing raised, if any."""
        if error is not None:
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._span.end(self._start_ns + self._clock.monotonic_ns() - self._monotonic_ns)


@define(eq=False)
class TraceExport:
    """Creates the spans of sampled records; implements ``runtime.sampling.SpanSource``."""

    _application_id: str
    _clock: Clock
    _processor: SpanProcessor
    _per_million: int
    every: int = field(init=False)
    _provider: TracerProvider = field(init=False)
    _tracer: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.every = _MILLION // self._per_million if self._per_million else 0
        self._provider = TracerProvider(resource=_resource(self._application_id), shutdown_on_exit=False)
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer(_LIBRARY)

    def start(self, task_id: TaskId, topic: str, partition: int, offset: int, parent: bytes | None) -> _RecordSpan:
        """Start the span of a record; attributes follow OpenTelemetry's semantic conventions for messaging."""
        carrier = {} if parent is None else {"traceparent": parent.decode(errors="replace")}
        start_ns = self._clock.now_ms() * _MILLION
        span = self._tracer.start_span(
            f"process {topic}",
            TraceContextTextMapPropagator().extract(carrier),
            SpanKind.CONSUMER,
            {
                "messaging.system": "kafka",
                "messaging.operation.type": "process",
                "messaging.destination.name": topic,
                "messaging.destination.partition.id": str(partition),
                "messaging.kafka.offset": offset,
                "messaging.consumer.group.name": self._application_id,
                "streams.task.id": str(task_id),
            },
            start_time=start_ns,
        )
        return _RecordSpan(span, start_ns, self._clock, self._clock.monotonic_ns())

    def close(self) -> None:
        """Export the remaining spans, and shut down."""
        self._provider.shutdown()


@define(eq=False)
class Otlp:
    """The exporters of an application to one collector: traces are exported at once, metrics only after ``start``."""

    _config: StreamsConfig
    traces: TraceExport | None
    _spans: OTLPSpanExporter | None
    _metrics: MetricExport | None = None

    @classmethod
    def of(cls, config: StreamsConfig, clock: Clock) -> "Otlp":
        """Return the exporters to the collector at ``otlp_endpoint``; metrics are exported only after ``start``."""
        traces = exporter = None
        if config.otlp_traces_per_million >= 0:
            exporter = OTLPSpanExporter(f"{config.otlp_endpoint.rstrip('/')}/v1/traces")
            processor = BatchSpanProcessor(exporter)
            traces = TraceExport(config.application_id, clock, processor, config.otlp_traces_per_million)
        return cls(config, traces, exporter)

    def start(self, metrics: Metrics) -> None:
        """Start to export the metrics every ``otlp_interval_ms`` milliseconds."""
        exporter = OTLPMetricExporter(f"{self._config.otlp_endpoint.rstrip('/')}/v1/metrics")
        reader = PeriodicExportingMetricReader(exporter, self._config.otlp_interval_ms)
        self._metrics = MetricExport(metrics, self._config.application_id, reader)

    def stop_metrics(self) -> None:
        """Export the metrics a last time, while the stream threads still run, and stop; a second call has no effect."""
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None

    def close(self) -> None:
        """Export the remaining spans, within ``CLOSE_MS``, and shut down; a second call has no effect."""
        if self.traces is None or self._spans is None:
            return
        # The SDK limits this to 30 s only, and a collector that cannot be reached is tried again for 10 s.
        closing = SystemThreads().start("otlp-close", self.traces.close)
        if not closing.join(CLOSE_MS):
            # Ends the attempts; the SDK logs that the spans are lost.
            self._spans.shutdown()  # type: ignore[no-untyped-call]
            closing.join(CLOSE_MS)
        self.traces = None
