"""Clients record their metrics under the names of Kafka's clients, over both transports."""

import pytest

from streams import Consumer, EmbeddedBroker, Producer, Topic, TopicPartition
from streams.core.metrics import Metrics, RecordingLevel
from tests import waiting

words = Topic("words", key=str, value=str)


@pytest.fixture(params=["embedded", "tcp"])
def cluster(request):
    with EmbeddedBroker() as broker:
        broker.create_topic("words", 2)
        if request.param == "embedded":
            yield {"broker": broker}
        else:
            with broker.serve("127.0.0.1:0") as server:
                yield {"bootstrap_servers": server.bootstrap_servers}


def test_counts_are_those_of_the_records_and_stop_when_the_client_closes(cluster):
    metrics = Metrics()
    with Producer(**cluster, client_id="writer", linger_ms=5) as producer:
        producer.record_metrics(metrics)
        for number in range(1_000):
            producer.send(words, key=f"{number:03}", value="some", partition=number % 2)
        producer.flush()
        sent = {metric.name: metric.value for metric in metrics.collect()}

    assert sent["record-send-total"] == 1_000
    assert sent["record-retry-total"] == sent["record-error-total"] == 0
    assert 0 < sent["request-latency-avg"] <= sent["request-latency-max"]
    assert 1 <= sent["records-per-request-avg"] <= 1_000
    assert sent["batch-size-avg"] > 7
    assert sent["buffer-available-bytes"] == sent["buffer-total-bytes"]
    assert metrics.collect() == []

    with Consumer(**cluster, group_id="readers", client_id="reader", auto_offset_reset="earliest") as consumer:
        consumer.record_metrics(metrics)
        consumer.subscribe([words])
        total = "records-consumed-total"
        waiting.until(
            lambda: metrics.get(total, client="reader") == 1_000, lambda: consumer.poll_blocks(50, max_records=100)
        )
        consumer.commit_sync()

        assert metrics.get("bytes-consumed-total", client="reader") == 1_000 * 7
        assert metrics.get("records-lag-max") == 500 - 100
        assert metrics.get("fetch-latency-max", client="reader") > 0
        assert metrics.get("fetch-total", client="reader") >= 1
        assert metrics.get("commit-total", client="reader") >= 1
        assert metrics.get("commit-latency-avg", client="reader") > 0


def test_level_off_registers_nothing(cluster):
    metrics = Metrics(level=RecordingLevel.OFF)
    with Producer(**cluster) as producer, Consumer(**cluster) as consumer:
        producer.record_metrics(metrics)
        consumer.record_metrics(metrics)
        producer.send(words, key="a", value="b", partition=0)
        producer.flush()
        consumer.assign([TopicPartition("words", 0)])
        consumer.seek(TopicPartition("words", 0), 0)
        taken = []
        waiting.until(lambda: bool(taken), lambda: taken.extend(consumer.poll_blocks(50)))

        assert metrics.collect() == []
