"""Prometheus text: the parser of the client takes it, and names and labels are those of the JMX exporter."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streams import EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic
from streams.core.metrics import SENSORS
from streams.telemetry.prometheus import Collector, name_of, render
from tests import waiting

words, counts = Topic("words", key=str, value=str), Topic("counts", key=str, value=int)


def counting(builder: StreamsBuilder) -> None:
    builder.stream(words).filter(lambda key, word: word != '"\n\\').group_by_key().count("seen").to_stream().to(counts)


@pytest.fixture(scope="module")
def running():
    """An application that has processed three records."""
    with EmbeddedBroker() as broker:
        broker.create_topic("words")
        broker.create_topic("counts")
        with Producer(broker) as producer:
            for key in ('a"', "b\n", "c\\"):
                producer.send(words, "x", key=key, timestamp_ms=1_000)
        with Streams(
            counting, application_id="shop", broker=broker, commit_interval_ms=10, metrics_recording_level="debug"
        ) as streams:
            metrics = streams.metrics
            # The first commit may be one of the first record alone.
            waiting.until(
                lambda: metrics.get("process-total") == 3 and metrics.get("commit-total") > 0, lambda: streams.wait(5)
            )
            streams.metrics.drop('odd "reason"\n\\', task=streams.tasks()[0], node="count")
            yield streams


def samples(streams: Streams) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(render(streams.metrics).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_names_and_labels_are_those_of_the_jmx_exporter(running):
    found = samples(running)

    [(labels, value)] = found["kafka_streams_stream_thread_metrics_process_total"]
    assert (list(labels), value) == (["thread_id"], 3)
    dropped = found["kafka_streams_stream_task_metrics_dropped_records_total"]
    assert {tuple(labels) for labels, _ in dropped} == {("task_id", "thread_id")}
    assert sum(value for _, value in dropped) == 1
    stores = found["kafka_streams_stream_state_metrics_flush_latency_avg"]
    assert {labels["in_memory_state_id"] for labels, _ in stores} == {"seen"}
    assert found["kafka_streams_stream_metrics_alive_stream_threads"][0][1] == 1


def test_texts_are_labels_of_one_metric(running):
    found = samples(running)["kafka_streams_stream_metrics"]

    told = {name: text for labels, _ in found for name, text in labels.items() if name != "client_id"}
    assert told.keys() == {"version", "application_id", "state"}
    assert (told["application_id"], told["state"]) == ("shop", "RUNNING")
    assert all(value == 1 for _, value in found)


def test_a_value_is_exported_once_per_labels_and_under_a_declared_name(running):
    found = samples(running)
    declared = {name_of(spec, metric) for spec in SENSORS for metric in spec.metrics}

    types = [line for line in render(running.metrics).decode().splitlines() if line.startswith("# TYPE")]
    assert len(types) == len({*types})
    assert found.keys() <= declared
    assert all(len({*map(str, (labels for labels, _ in each))}) == len(each) for each in found.values())


def test_any_text_in_a_label_is_read_back(running):
    reasons = [
        labels.get("reason")
        for labels, _ in samples(running)["kafka_streams_stream_processor_node_metrics_dropped_records_total"]
    ]

    assert reasons == ['odd "reason"\n\\']


def test_several_applications_are_rendered_together(running):
    registry = CollectorRegistry()
    registry.register(Collector([running.metrics]))

    assert b"kafka_streams_stream_thread_metrics_process_total" in generate_latest(registry)
    assert render() == b""
