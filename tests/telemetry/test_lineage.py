"""OpenLineage: events of an application to a collector over HTTP."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from streams import EmbeddedBroker, ProcessingError, Producer, Streams, StreamsBuilder, Topic
from streams.cli.program import main
from streams.replay import ReplayTaskError, replay
from streams.telemetry import lineage
from tests import waiting


@dataclass(frozen=True)
class Order:
    customer: str
    cents: int


orders, totals = Topic("orders", key=str, value=Order), Topic("totals", key=str, value=int)
FAST: dict[str, Any] = {"poll_ms": 10, "heartbeat_interval_ms": 10}


def topology(builder: StreamsBuilder) -> None:
    cents = builder.stream(orders).map_values(lambda order: 100 // order.cents)
    cents.group_by(lambda _, cents: str(cents)).reduce(max, name="largest").to_stream().to(totals)


class Collector:
    """A collector that takes events, or answers with an error."""

    def __init__(self, status: int) -> None:
        self.events: list[dict[str, Any]] = []
        self.paths: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.paths.add(self.path)
                collector.events.append(json.loads(body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)


@pytest.fixture
def collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    made = Collector(getattr(request, "param", 201))
    made.thread.start()
    yield made
    made.server.shutdown()
    made.thread.join()
    made.server.server_close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector is waited for however slow the machine is."""
    monkeypatch.setattr(lineage, "_TIMEOUT_S", waiting.WATCHDOG_S)
    monkeypatch.setattr(lineage, "CLOSE_MS", waiting.WATCHDOG_MS)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        for topic in (orders, totals):
            made.create_topic(topic, partitions=1)
        yield made


def application(broker: EmbeddedBroker, url: str) -> Streams:
    return Streams(
        topology, application_id="shop", broker=broker, openlineage_url=url, openlineage_namespace="sales", **FAST
    )


def test_start_and_end_with_topics_and_types(collector, broker):
    with application(broker, collector.url):
        waiting.until(lambda: collector.events)
        assert [event["eventType"] for event in collector.events] == ["START"]

    start, end = collector.events
    assert collector.paths == {"/api/v1/lineage"}
    assert end["eventType"] == "COMPLETE"
    assert start["run"]["runId"] == end["run"]["runId"]
    assert start["eventTime"] <= end["eventTime"]
    assert (start["job"]["namespace"], start["job"]["name"]) == ("sales", "shop")
    assert start["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert [(it["namespace"], it["name"]) for it in start["inputs"]] == [("kafka://embedded", "orders")]
    assert [it["name"] for it in start["outputs"]] == ["totals"]
    fields = start["inputs"][0]["facets"]["schema"]["fields"]
    assert [(it["name"], it["type"]) for it in fields[2:]] == [("value.customer", "str"), ("value.cents", "int")]
    assert "errorMessage" not in end["run"]["facets"]


@pytest.mark.slow
def test_a_replay_tells_its_files_and_how_it_ends(collector, tmp_path):
    (tmp_path / "orders.jsonl").write_text('{"customer": "ann", "cents": 5}\n{"customer": "bob", "cents": 0}\n')
    (tmp_path / "good.jsonl").write_text('{"customer": "ann", "cents": 5}\n')
    keyless = Topic("orders", value=Order, timestamp=lambda order: order.cents)

    def of_history(builder: StreamsBuilder) -> None:
        builder.stream(keyless).map_values(lambda order: 100 // order.cents).to("shares")

    def told(name: str) -> None:
        replay(
            of_history,
            {keyless: tmp_path / name},
            application_id="shop",
            executor="local",
            processes=1,
            directory=tmp_path / f"of-{name}",
            openlineage_url=collector.url,
        ).close()

    told("good.jsonl")
    with pytest.raises(ReplayTaskError, match="ZeroDivisionError"):
        told("orders.jsonl")

    assert [event["eventType"] for event in collector.events] == ["START", "COMPLETE", "START", "FAIL"]
    start, end, _, failed = collector.events
    assert start["run"]["runId"] == end["run"]["runId"] != failed["run"]["runId"]
    assert start["job"]["facets"]["jobType"] | {"_producer": "", "_schemaURL": ""} == {
        "processingType": "BATCH", "integration": "STREAMS", "jobType": "REPLAY", "_producer": "", "_schemaURL": "",
    }  # fmt: skip
    assert [(it["namespace"], it["name"]) for it in end["inputs"]] == [("file", str(tmp_path / "good.jsonl"))]
    assert [(it["namespace"], it["name"]) for it in end["outputs"]] == [
        ("file", str(tmp_path / "of-good.jsonl/shares"))
    ]
    assert "value.cents" in [it["name"] for it in end["inputs"][0]["facets"]["schema"]["fields"]]
    assert "ZeroDivisionError" in failed["run"]["facets"]["errorMessage"]["message"]


SCRIPT = """
from streams import StreamsBuilder, Topic

rows = Topic("rows", value=int, timestamp=lambda value: value)

def topology(builder: StreamsBuilder) -> None:
    builder.stream(rows).map_values(lambda value: 100 // value).to(Topic("shares", value=int))
"""


def test_a_run_over_files_tells_its_files_and_how_it_ends(collector, tmp_path):
    (tmp_path / "shares.py").write_text(SCRIPT)
    (tmp_path / "good.jsonl").write_text("5\n4\n")
    (tmp_path / "bad.jsonl").write_text("5\n0\n")

    def run(name: str) -> int:
        given = [str(tmp_path / "shares.py"), "--input", f"rows={tmp_path / name}"]
        written = ["--output", f"shares={tmp_path / 'out.jsonl'}", "--set", f"openlineage_url={collector.url}"]
        return main(["run", *given, *written])

    assert run("good.jsonl") == 0
    assert run("bad.jsonl") != 0

    assert [event["eventType"] for event in collector.events] == ["START", "COMPLETE", "START", "FAIL"]
    start, end, _, failed = collector.events
    assert start["run"]["runId"] == end["run"]["runId"] != failed["run"]["runId"]
    assert start["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert [(it["namespace"], it["name"]) for it in end["inputs"]] == [("file", str(tmp_path / "good.jsonl"))]
    assert [(it["namespace"], it["name"]) for it in end["outputs"]] == [("file", str(tmp_path / "out.jsonl"))]
    assert "ZeroDivisionError" in failed["run"]["facets"]["errorMessage"]["message"]


def test_inputs_of_a_replay_have_the_names_of_their_places():
    from streams.replay.history.inputs import Archive, Files, input_of
    from streams.replay.run.lineage import datasets_of

    given = [
        (Files(("s3://lake/orders/2026",)), ("s3://lake", "orders/2026")),
        (Archive("/archives/shop"), ("file", "/archives/shop")),
        (input_of("kafka://one:9092/orders"), ("kafka://one:9092", "orders")),
        (input_of("table:lake.orders"), ("spark", "lake.orders")),
    ]
    for history, expected in given:
        (found,) = datasets_of("orders", history)
        assert (found.namespace, found.name, found.topic) == (*expected, "orders")


def test_each_start_is_a_run_of_its_own_and_closing_again_sends_nothing(collector, broker):
    for _ in range(2):
        streams = application(broker, collector.url)
        streams.start()
        streams.close()
        streams.close()

    assert [event["eventType"] for event in collector.events] == ["START", "COMPLETE"] * 2
    assert len({event["run"]["runId"] for event in collector.events}) == 2


def test_a_failure_is_told(collector, broker):
    with pytest.raises(ProcessingError), application(broker, collector.url) as streams:
        with Producer(broker) as producer:
            producer.send(orders, Order("ann", 0), key="ann")
        streams.wait()

    end = collector.events[-1]
    assert end["eventType"] == "FAIL"
    assert "ZeroDivisionError" in end["run"]["facets"]["errorMessage"]["message"]


def test_an_address_over_tcp_is_the_namespace_of_its_topics(collector, broker):
    with broker.serve("127.0.0.1:0") as server:
        streams = Streams(
            topology,
            application_id="shop",
            bootstrap_servers=server.bootstrap_servers,
            openlineage_url=collector.url,
            **FAST,
        )
        with streams:
            pass

    assert collector.events[0]["inputs"][0]["namespace"] == f"kafka://{server.bootstrap_servers}"


@pytest.mark.parametrize("collector", [400], indirect=True)
def test_an_event_that_is_not_taken_is_logged_and_the_application_goes_on(collector, broker, caplog):
    with application(broker, collector.url) as streams:
        waiting.until(lambda: streams.state.name == "RUNNING")

    said = [record.message for record in caplog.records if record.name == "streams.telemetry.lineage"]
    assert [text.partition(" of run")[0] for text in said] == ["OpenLineage: START", "OpenLineage: COMPLETE"]
    assert all(f"is not sent to {collector.url}" in text for text in said)
