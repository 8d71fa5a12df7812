"""OpenTelemetry: metrics and sampled traces, to the SDK in memory and to a collector over HTTP."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from streams import ConfigError, Consumer, EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic
from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.metrics import Metrics, table
from streams.runtime.tasks.sampling import TaskSampling
from streams.telemetry import otel
from streams.telemetry.otel import MetricExport, TraceExport
from streams.testing import TopologyTestDriver
from tests import waiting

words, out = Topic("words", key=str, value=str), Topic("out", key=str, value=str)
FAST: dict[str, Any] = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10}
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOT_SAMPLED = PARENT[:-1] + b"0"


def topology(builder: StreamsBuilder) -> None:
    builder.stream(words).map_values(lambda word: word.upper() if word != "bad" else 1 / 0).to(out)


# --- metrics --------------------------------------------------------------------------------


def points(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    data = reader.get_metrics_data()
    found = data.resource_metrics if data is not None else ()
    return {
        metric.name: list(metric.data.data_points)
        for resource in found
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_metrics_are_read_anew_each_time_under_the_names_of_kafkas_clients():
    metrics = Metrics(VirtualClock()).of_thread("one")
    reader = InMemoryMetricReader()
    export = MetricExport(metrics, "shop", reader)
    counter = metrics.counter(table.PROCESSED, task=TaskId(0, 1))
    seen = []
    for _ in range(3):
        counter.add(5)
        [point] = points(reader)["org.apache.kafka.stream.task.process.total"]
        seen.append(point.value)
    export.close()

    assert seen == [5, 10, 15]
    assert dict(point.attributes) == {"thread_id": "one", "task_id": "0_1"}


# --- traces ---------------------------------------------------------------------------------


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def traced(driver: TopologyTestDriver, spans: InMemorySpanExporter, per_million: int) -> None:
    source = TraceExport("shop", driver.clock, SimpleSpanProcessor(spans), per_million)
    for task in driver._tasks:
        task.sampling = TaskSampling(source, task.task_id, task.outbox, task.inputs)


def test_a_sampled_record_has_a_span_with_its_parent_and_its_results_name_the_span(spans):
    with TopologyTestDriver(topology, now_ms=5_000) as driver:
        traced(driver, spans, 0)
        for headers in [(("traceparent", PARENT), ("kind", b"x")), (("traceparent", NOT_SAMPLED),), ()]:
            driver.pipe(words, "a", key="k", timestamp_ms=1_000, headers=headers)
        results = driver.read_records(out)
    [span] = spans.get_finished_spans()

    assert (span.name, span.kind.name) == ("process words", "CONSUMER")
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert f"{span.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert span.attributes["messaging.kafka.offset"] == 0
    assert span.start_time == 5_000_000_000
    assert [dict(record.headers).get("traceparent") for record in results] == [
        f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01".encode(), NOT_SAMPLED, None,
    ]  # fmt: skip
    assert dict(results[0].headers)["kind"] == b"x"


@pytest.mark.parametrize("blocks", [[100], [3, 40, 57], [1] * 100])
@pytest.mark.parametrize("has_headers", [False, True])
def test_each_nth_record_is_sampled_however_records_come(spans, blocks, has_headers):
    with EmbeddedBroker() as broker, TopologyTestDriver(topology) as driver:
        traced(driver, spans, 100_000)
        [task] = driver._tasks
        partition = TopicPartition("words", 0)
        broker.create_topic("words", 1)
        with Producer(broker) as producer:
            for number in range(100):
                headers = (("a", b"b"),) if has_headers else ()
                producer.send(words, str(number), key="k", timestamp_ms=number, headers=headers)
        rows = list(broker.read(partition, 0))
        offset = 0
        for size in blocks:
            for block in rows:
                first = block.offsets[0]
                low, high = max(0, offset - first), min(len(block), offset + size - first)
                if low < high:
                    task.add(partition, block.slice(low, high))
            offset += size
            while task.process(0, 1_000):
                pass
        values = [value for _, block in task.take_outputs() for value in block.values]

    assert [span.attributes["messaging.kafka.offset"] for span in spans.get_finished_spans()] == [*range(9, 100, 10)]
    assert values == [str(number).encode() for number in range(100)]


def test_a_failure_is_in_the_span(spans):
    with TopologyTestDriver(topology) as driver:
        traced(driver, spans, 1_000_000)
        with pytest.raises(Exception, match="division by zero"):
            driver.pipe(words, "bad", key="k", timestamp_ms=0)
    [span] = spans.get_finished_spans()

    assert span.status.status_code.name == "ERROR"
    assert span.events[0].attributes["exception.type"].endswith("ProcessingError")


@pytest.mark.parametrize("text", [b"", b"00", PARENT[:-2] + b"zz", b"x" * 55, b"\xff" * 60])
def test_a_header_that_is_no_traceparent_is_none(spans, text):
    with TopologyTestDriver(topology) as driver:
        traced(driver, spans, 0)
        driver.pipe(words, "a", key="k", timestamp_ms=0, headers=(("traceparent", text),))

    assert spans.get_finished_spans() == ()


# --- over HTTP ------------------------------------------------------------------------------


#: When a collector that takes nothing wants to be asked again: longer than any test takes.
_LATER_S = 36_000


class Collector(HTTPServer):
    """A collector on a loopback port, which keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.traces: list[ExportTraceServiceRequest] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/metrics":
            self.server.metrics.append(ExportMetricsServiceRequest.FromString(body))
        elif self.path == "/v1/traces":
            self.server.traces.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(self.server.status)
        if self.server.status == 503:
            self.send_header("Retry-After", str(_LATER_S))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is exported at the end arrives however slow the machine is."""
    monkeypatch.setattr(otel, "CLOSE_MS", waiting.WATCHDOG_MS)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_a_collector_gets_metrics_and_linked_traces_of_two_applications_in_a_row(collector):
    last = Topic("last", key=str, value=str)
    settings = FAST | {"otlp_endpoint": collector.url, "otlp_interval_ms": 50, "otlp_traces_per_million": 0}
    second = lambda builder: builder.stream(out).to(last)  # noqa: E731
    with EmbeddedBroker() as broker:
        with Producer(broker) as producer:
            producer.send(words, "a", key="k", timestamp_ms=0, headers=(("traceparent", PARENT),))
            producer.send(words, "b", key="k", timestamp_ms=1)
        with (
            Streams(topology, application_id="first", broker=broker, **settings),
            Streams(second, application_id="second", broker=broker, **settings) as streams,
        ):
            waiting.until(lambda: streams.metrics.get("process-total") == 2, lambda: streams.wait(5))
        with Consumer(broker, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("last", number) for number in range(broker.topics()["last"])], [last])
            found = []
            waiting.until(lambda: len(found) == 2, lambda: found.extend(consumer.poll(50)))

    spans = {
        span.name: span
        for request in collector.traces
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    assert spans.keys() == {"process words", "process out"}
    assert spans["process words"].parent_span_id.hex() == "b7ad6b7169203331"
    assert spans["process out"].parent_span_id == spans["process words"].span_id
    told = [
        dict(record.headers).get("traceparent", b"") for record in sorted(found, key=lambda record: record.timestamp_ms)
    ]
    assert told == [f"00-{PARENT[3:35].decode()}-{spans['process out'].span_id.hex()}-01".encode(), b""]
    names = {
        (resource.resource.attributes[-1].value.string_value, metric.name)
        for request in collector.metrics
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert any(name == "org.apache.kafka.stream.thread.process.total" for _, name in names)


def test_a_collector_that_takes_nothing_does_not_hold_up_the_end(collector, monkeypatch):
    """The SDK waits for as long as the collector says, here for hours; the limit ends both waits."""
    monkeypatch.setattr(otel, "CLOSE_MS", 50)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", str(10 * _LATER_S))
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    collector.status = 503
    settings = FAST | {"otlp_endpoint": collector.url, "otlp_interval_ms": 10, "otlp_traces_per_million": 0}
    with EmbeddedBroker() as broker:
        with Producer(broker) as producer:
            producer.send(words, "a", key="k", timestamp_ms=0, headers=(("traceparent", PARENT),))
        with Streams(topology, application_id="app", broker=broker, **settings) as streams:
            # Both exporters have had their answer, or are about to.
            waiting.until(lambda: collector.metrics and collector.traces, lambda: streams.wait(5))
        assert streams.failure is None


def test_nothing_is_traced_without_the_setting(collector):
    settings = FAST | {"otlp_endpoint": collector.url, "otlp_interval_ms": 3_600_000}
    with EmbeddedBroker() as broker:
        with Producer(broker) as producer:
            producer.send(words, "a", key="k", timestamp_ms=0, headers=(("traceparent", PARENT),))
        with Streams(topology, application_id="app", broker=broker, **settings) as streams:
            waiting.until(lambda: streams.metrics.get("process-total") == 1, lambda: streams.wait(5))
            assert streams.instance.ask(lambda thread: [task.sampling for task in thread.tasks.values()]) != []

    assert collector.traces == []
    assert len(collector.metrics) == 1


def test_wrong_ratio_is_refused():
    with pytest.raises(ConfigError, match="otlp_traces_per_million"):
        Streams(topology, application_id="app", otlp_traces_per_million=2_000_000)
