"""Receivers of the metrics that clients push to a broker: lines of JSON, and an OTLP collector."""

import io
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from streams.broker import PushedMetrics
from streams.core.clock import VirtualClock
from streams.core.errors import StreamsError
from streams.protocol.telemetry_messages import ClientInformation
from streams.telemetry.pushed import CollectorForward, MetricsLines

CLIENT = ClientInformation("app", "/10.0.0.7", 40_001, "apache-kafka-java", "4.4.0")


def pushed(name: str = "org.apache.kafka.consumer.fetch.manager.fetch.total") -> PushedMetrics:
    data = MetricsData()
    data.resource_metrics.add().scope_metrics.add().metrics.add(name=name)
    return PushedMetrics("hOnY54KXSFJ-XxiqQpnX2Q", CLIENT, False, data.SerializeToString())


def labels(data: MetricsData) -> dict[str, str]:
    return {row.key: row.value.string_value for row in data.resource_metrics[0].resource.attributes}


def test_a_line_has_the_metrics_and_what_the_broker_knows_of_the_client():
    file = io.StringIO()
    MetricsLines(file, VirtualClock(1_700_000_000_000))(pushed())
    row = json.loads(file.getvalue())
    assert row["time_ms"] == 1_700_000_000_000
    assert row["is_terminating"] is False
    (of_client,) = row["resourceMetrics"]
    assert {item["key"]: item["value"]["stringValue"] for item in of_client["resource"]["attributes"]} == {
        "client_instance_id": "hOnY54KXSFJ-XxiqQpnX2Q",
        "client_id": "app",
        "client_software_name": "apache-kafka-java",
        "client_software_version": "4.4.0",
        "client_source_address": "10.0.0.7",
        "client_source_port": "40001",
    }
    assert of_client["scopeMetrics"][0]["metrics"][0]["name"].endswith("fetch.total")


def test_a_collector_gets_each_push():
    bodies: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        forward = CollectorForward(f"http://127.0.0.1:{server.server_port}/")
        forward(pushed("a"))
        forward(pushed("b"))
        forward.close()
        server.shutdown()
    assert [path for path, _ in bodies] == ["/v1/metrics"] * 2
    found = [MetricsData.FromString(body) for _, body in bodies]
    assert [data.resource_metrics[0].scope_metrics[0].metrics[0].name for data in found] == ["a", "b"]
    assert labels(found[0])["client_id"] == "app"


def test_a_collector_that_cannot_be_reached_is_logged(caplog):
    def fail(url: str, body: bytes) -> None:
        raise ConnectionRefusedError("refused")

    forward = CollectorForward("http://127.0.0.1:9", fail)
    forward(pushed())
    forward.close()
    assert "were not sent to http://127.0.0.1:9/v1/metrics: refused" in caplog.text


def test_a_collector_that_is_too_slow_is_an_error_for_the_client():
    from threading import Event

    released = Event()
    forward = CollectorForward("http://127.0.0.1:9", lambda url, body: released.wait() and None)
    with pytest.raises(StreamsError, match=r"1000 pushes wait for .*: the collector is too slow"):
        for _ in range(1_002):
            forward(pushed())
    released.set()
    forward.close()


def test_what_is_no_metrics_is_an_error():
    with pytest.raises(Exception, match="Error parsing message"):
        MetricsLines(io.StringIO())(PushedMetrics("id", CLIENT, False, b"\xff\xff"))
