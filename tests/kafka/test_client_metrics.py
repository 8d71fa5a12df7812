"""Clients push their metrics (KIP-714): Java's to the embedded broker, and ours to a real one."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from streams import Consumer, EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic
from streams.broker import PushedMetrics
from tests.kafka.node import KafkaNode, compiled, jars
from tests.kafka.records import create_topic
from tests.waiting import WATCHDOG_S, until

pytestmark = pytest.mark.kafka

TOOL = "org.apache.kafka.tools.ClientMetricsCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
WORDS = Topic("words", key=str, value=str)


def command(address: str, tool: str, *arguments: str) -> list[str]:
    """The command of a tool of Kafka."""
    path = ":".join(map(str, jars("node")))
    java = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, tool]
    return [*java, "--bootstrap-server", address, *arguments]


def run(address: str, tool: str, *arguments: str) -> str:
    """Run a tool of Kafka; return what it prints."""
    done = subprocess.run(command(address, tool, *arguments), capture_output=True, text=True, timeout=WATCHDOG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def names(metrics: bytes) -> set[str]:
    """The names of pushed metrics."""
    data = MetricsData.FromString(metrics)
    return {
        metric.name
        for of_client in data.resource_metrics
        for scope in of_client.scope_metrics
        for metric in scope.metrics
    }


def test_java_clients_push_to_the_embedded_broker() -> None:
    taken: list[PushedMetrics] = []
    with EmbeddedBroker(metrics_receiver=taken.append) as broker, broker.serve("127.0.0.1:0") as server:
        address = server.bootstrap_servers
        broker.create_topic("words")
        match = ["--match", "client_software_name=apache-kafka-java,client_id=pushing.*"]
        run(address, TOOL, "--alter", "--name", "java", "--metrics", "org.apache.kafka.", "--interval", "200", *match)
        assert run(address, TOOL, "--list").split() == ["java"]
        shown = run(address, TOOL, "--describe", "--name", "java").split()
        assert {"interval.ms=200", "metrics=org.apache.kafka."} <= set(shown)

        def has_pushed(client_id: str) -> bool:
            return any(pushed.client.client_id == client_id for pushed in list(taken))

        produce = command(address, PRODUCER, "--topic", "words", "--command-property", "client.id=pushing-p")
        with subprocess.Popen(produce, stdin=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            process.stdin.write("a\nb\nc\n")
            process.stdin.flush()
            until(lambda: has_pushed("pushing-p"))
        read = ["--topic", "words", "--from-beginning", "--max-messages", "3", "--command-property"]
        run(address, CONSUMER, *read, "client.id=pushing-c")
        run(address, CONSUMER, *read, "client.id=silent")
        run(address, TOOL, "--delete", "--name", "java")
        assert run(address, TOOL, "--list").split() == []

    # The last push of each client.
    by_client = {pushed.client.client_id: pushed for pushed in taken}
    assert set(by_client) == {"pushing-p", "pushing-c"}
    assert all(pushed.client.software_version == "4.4.0" for pushed in taken)
    assert by_client["pushing-p"].is_terminating
    assert "org.apache.kafka.producer.connection.creation.total" in names(by_client["pushing-p"].metrics)
    assert "org.apache.kafka.consumer.connection.creation.total" in names(by_client["pushing-c"].metrics)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KafkaNode]:
    classes = compiled(Path(__file__).parent / "java" / "PushedMetrics.java", tmp_path / "classes")
    settings = {"metric.reporters": "PushedMetrics", "pushed.metrics.file": str(tmp_path / "pushed")}
    with KafkaNode(tmp_path / "kafka", settings=settings, classes=classes) as found:
        yield found


def count(builder: StreamsBuilder) -> None:
    builder.stream(WORDS).group_by_key().count("counts")


def test_clients_push_to_a_real_broker(node: KafkaNode, tmp_path: Path) -> None:
    address = node.bootstrap_servers
    create_topic(address, "words", partitions=1)
    run(address, TOOL, "--alter", "--name", "all", "--metrics", "org.apache.kafka.", "--interval", "200")

    def pushed() -> dict[str, list[tuple[str, bool, set[str]]]]:
        found: dict[str, list[tuple[str, bool, set[str]]]] = {}
        text = (tmp_path / "pushed").read_text() if (tmp_path / "pushed").exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                client_id, instance_id, is_last, metrics = line.rstrip("\n").split(" ")
                found.setdefault(client_id, []).append((instance_id, is_last == "true", names(bytes.fromhex(metrics))))
        return found

    with Producer(bootstrap_servers=address, client_id="ours-p") as producer:
        instance_id = producer.client_instance_id()
        until(lambda: "ours-p" in pushed(), turn=lambda: producer.send(WORDS, "x", key="k").result())
    with Consumer(
        bootstrap_servers=address, group_id="g", client_id="ours-c", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([WORDS])
        until(lambda: "ours-c" in pushed(), turn=lambda: consumer.poll(100))
    with Streams(count, application_id="ours", bootstrap_servers=address) as streams:
        ids = streams.client_instance_ids()
        (name,) = (found for found in ids.consumers if found.endswith("thread-1"))
        until(lambda: ids.consumers[name] in {row[0] for row in pushed().get(name, ())})

    found = pushed()
    assert {row[0] for row in found["ours-p"]} == {instance_id}
    assert found["ours-p"][-1][1]
    assert "org.apache.kafka.producer.record.send.total" in found["ours-p"][-1][2]
    assert "org.apache.kafka.consumer.fetch.manager.records.consumed.total" in found["ours-c"][0][2]
    # The producer of the thread has the same client id.
    (of_thread, *_) = (row for row in found[name] if row[0] == ids.consumers[name])
    assert "org.apache.kafka.stream.thread.poll.total" in of_thread[2]
