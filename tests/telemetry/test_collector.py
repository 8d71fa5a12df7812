"""OTLP to a real OpenTelemetry Collector, which `make collector-test` builds: it writes what it receives to its log."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams import EmbeddedBroker, Producer, Streams, Topic
from tests import waiting
from tests.ports import free_ports

pytestmark = pytest.mark.collector

PROGRAM = Path(__file__).parents[2] / ".collector" / "collector"
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CONFIG = """\
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
exporters: {{debug: {{verbosity: detailed}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    metrics: {{receivers: [otlp], exporters: [debug]}}
    traces: {{receivers: [otlp], exporters: [debug]}}
"""
words, out, last = (Topic(name, key=str, value=str) for name in ("words", "out", "last"))


class Collector:
    """The process, its address and its log."""

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        self.url, self.log = f"http://127.0.0.1:{port}", folder / "log"
        config = folder / "config.yaml"
        config.write_text(CONFIG.format(port=port))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([PROGRAM, "--config", config], stdout=log, stderr=log)

    def text(self) -> str:
        assert self.process.poll() is None, self.log.read_text()
        return self.log.read_text()


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    made = Collector(tmp_path)
    try:
        waiting.until(lambda: "Everything is ready" in made.text())
        yield made
    finally:
        made.process.terminate()
        made.process.wait()


def test_it_takes_the_metrics_and_linked_traces_of_two_applications_in_a_row(collector: Collector) -> None:
    settings: dict[str, Any] = {
        "otlp_endpoint": collector.url,
        "otlp_interval_ms": 100,
        "otlp_traces_per_million": 0,
        "commit_interval_ms": 20,
        "poll_ms": 10,
    }
    with EmbeddedBroker() as broker:
        for topic in ("words", "out", "last"):
            broker.create_topic(topic)
        with Producer(broker) as producer:
            producer.send(words, "a", key="k", headers=(("traceparent", PARENT),))
            producer.send(words, "b", key="k")
        with (
            Streams(lambda builder: builder.stream(words).to(out), application_id="first", broker=broker, **settings),
            Streams(
                lambda builder: builder.stream(out).to(last), application_id="second", broker=broker, **settings
            ) as second,
        ):
            waiting.until(lambda: second.metrics.get("process-total") == 2, lambda: second.wait(5))

    waiting.until(lambda: collector.text().count("Name           : process") == 2)
    found = collector.text()
    spans = {
        name: (trace, parent, span)
        for trace, parent, span, name in re.findall(
            r"Trace ID +: (\w+)\s+Parent ID +: (\w*)\s+ID +: (\w+)\s+Name +: (process \w+)", found
        )
    }
    assert spans["process words"][:2] == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert spans["process out"][:2] == ("0af7651916cd43dd8448eb211c80319c", spans["process words"][2])
    assert {"first", "second"} <= set(re.findall(r"service\.name: Str\((\w+)\)", found))
    names = set(re.findall(r"-> Name: (org\.apache\.kafka\.\S+)", found))
    assert {"org.apache.kafka.stream.thread.process.total", "org.apache.kafka.stream.task.records.lag"} <= names
    assert len(names) > 80
