"""Metrics over HTTP, as Prometheus scrapes them."""

from prometheus_client.parser import text_string_to_metric_families

from tests.web.conftest import running


def test_metrics_are_prometheus_text(broker, client):
    with running(broker) as streams, streams.serve("127.0.0.1:0") as server:
        answer = client.get(f"{server.url}/metrics")
        names = {family.name for family in text_string_to_metric_families(answer.text)}

    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert {"kafka_streams_stream_metrics", "kafka_streams_stream_thread_metrics_process"} <= names
