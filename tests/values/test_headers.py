"""Headers survive every way through: empty and missing values, doubled and empty names, bytes, their order."""

import ast
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from streams import (
    Consumer,
    EmbeddedBroker,
    Processor,
    Producer,
    Record,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Topic,
    TopicPartition,
    ValueTimestampHeaders,
    timestamped_key_value_store_with_headers,
)
from streams.capsule import Capsule, Reproduction, capture
from streams.clients import Admin, DeadLetters
from streams.comparison import TIMES, compare
from streams.connect import DeltaSink, FolderSource, HttpSink, ParquetSink, SinkWorker, SourceWorker
from streams.dsl import build_topology
from streams.replay import Archive, replay, why
from streams.replay.history.archive import archive_topic
from streams.takeover.marks import PositionMark, block_of
from streams.testing import TopologyTestDriver
from tests import programs, waiting

Headers = tuple[tuple[str, bytes | None], ...]

HEADERS: Headers = (
    ("a", b"1"),
    ("empty", b""),
    ("null", None),
    ("a", b"2"),
    ("bytes", b"\xff\x00"),
    ("", b"no name"),
    ("\u00e4", "\u00fc \u2028".encode()),
    ("a", b"1"),
)
ins: Topic[str, str] = Topic("ins", key=str, value=str, partitions=1)
outs: Topic[str, str] = Topic("outs", key=str, value=str, partitions=1)


def copied(builder: StreamsBuilder) -> None:
    builder.stream(ins).map_values(str.upper).to(outs)


def headers_on(broker: EmbeddedBroker, topic: str = "outs") -> list[Headers]:
    blocks = broker.read(TopicPartition(topic, 0), 0)
    return [tuple(headers) for block in blocks for headers in (block.headers or [()] * len(block))]


def sent(broker: EmbeddedBroker) -> None:
    broker.create_topic("ins", 1)
    with Producer(broker) as producer:
        producer.send(ins, "v", key="k", timestamp_ms=5, headers=HEADERS)


# --- through topics and operators -----------------------------------------------------------


def in_process(folder: Path) -> list[Headers]:
    with EmbeddedBroker() as broker:
        sent(broker)
        with Consumer(broker, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("ins", 0)])
            return [tuple(record.headers) for record in consumer.poll(1000)]


def over_tcp(folder: Path) -> list[Headers]:
    with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0") as server:
        broker.create_topic("ins", 1)
        with Producer(bootstrap_servers=server.address, compression_type="gzip") as producer:
            producer.send(ins, "v", key="k", headers=HEADERS)
        with Consumer(bootstrap_servers=server.address, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("ins", 0)])
            while not (records := list(consumer.poll(50))):
                pass
            return [tuple(record.headers) for record in records]


def on_disk(folder: Path) -> list[Headers]:
    with EmbeddedBroker(folder) as broker:
        sent(broker)
    with EmbeddedBroker(folder) as broker:
        return headers_on(broker, "ins")


def driven(topology: Callable[[StreamsBuilder], None], **settings: Any) -> list[Headers]:
    with TopologyTestDriver(topology, **settings) as driver:
        driver.pipe(ins, "v", key="k", timestamp_ms=5, headers=HEADERS)
        return [tuple(record.headers) for record in driver.read_records(outs)]


def operators(folder: Path) -> list[Headers]:
    return driven(lambda builder: builder.stream(ins).filter(lambda k, v: True).map(lambda k, v: (v, k)).to(outs))


def repartition(folder: Path) -> list[Headers]:
    return driven(lambda builder: builder.stream(ins).select_key(lambda k, v: v).repartition().to(outs))


def table(folder: Path) -> list[Headers]:
    return driven(lambda builder: builder.table(ins, name="rows").to_stream().to(outs))


class Forwarding(Processor[str, str, str, str]):
    """Forwards what is in the store with its headers, and puts the record there."""

    key_value = timestamped_key_value_store_with_headers(str, str, "key-value")

    def process(self, record: Record[str, str]) -> None:
        if (before := self.key_value.get("k")) is not None:
            self.context.forward("k", "v", headers=before.headers)
        self.key_value.put("k", ValueTimestampHeaders(record.value, record.timestamp_ms, record.headers))


def stored(folder: Path) -> list[Headers]:
    """Restored from the changelog: the second instance has no state of its own."""
    builder = StreamsBuilder()
    builder.stream(ins).process(Forwarding).to(outs)
    with EmbeddedBroker() as broker:
        for topic in ("ins", "outs"):
            broker.create_topic(topic, 1)
        for number in range(2):
            with (
                Streams(builder.build(), application_id="a", broker=broker, state_dir=folder / str(number)) as app,
                Producer(broker) as producer,
            ):
                producer.send(ins, "v", key="k", headers=HEADERS if not number else ())
                producer.flush()
                waiting.until(lambda: app.metrics.get("process-total") >= 1)
        return headers_on(broker)


# --- dead letters ---------------------------------------------------------------------------


def failing(value: str) -> str:
    raise ValueError(value)


def own(headers: Headers) -> Headers:
    return tuple((name, content) for name, content in headers if not name.startswith("__streams."))


def letter_and_redrive(folder: Path) -> list[Headers]:
    settings = {"processing_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}
    builder = StreamsBuilder()
    builder.stream(ins).map_values(failing).to(outs)
    with EmbeddedBroker() as broker:
        broker.create_topic("dead", 1)
        broker.create_topic("outs", 1)
        sent(broker)
        with Streams(builder.build(), application_id="a", broker=broker, state_dir=folder, **settings):
            waiting.until(lambda: headers_on(broker, "dead"))
        DeadLetters(broker, "dead").redrive()
        return [own(headers) for headers in (*headers_on(broker, "dead"), *headers_on(broker, "ins")[1:])]


# --- files, tables and commands -------------------------------------------------------------

SCRIPT = """\
from streams import StreamsBuilder, Topic

ins = Topic("ins", key=str, value=str, partitions=1)
outs = Topic("outs", key=str, value=str, partitions=1)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(ins).to(outs)
"""


def json_headers(headers: Headers) -> list[list[Any]]:
    """As files of whole records have them."""

    def text(content: bytes) -> Any:
        try:
            return content.decode()
        except UnicodeDecodeError:
            return {"$hex": content.hex()}

    return [[name, None if content is None else text(content)] for name, content in headers]


def write_records(folder: Path) -> Path:
    row = {"key": "k", "value": "v", "timestamp": 5, "headers": json_headers(HEADERS)}
    (folder / "ins.records.jsonl").write_text(json.dumps(row) + "\n")
    return folder / "ins.records.jsonl"


def of_json(path: Path) -> list[Headers]:
    def content(text: Any) -> bytes | None:
        return bytes.fromhex(text["$hex"]) if isinstance(text, dict) else None if text is None else text.encode()

    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [tuple((name, content(text)) for name, text in row["headers"]) for row in rows]


def of_rows(table: Any) -> list[Headers]:
    return [tuple((pair["name"], pair["value"]) for pair in row or ()) for row in table.column("headers").to_pylist()]


def command(folder: Path, *arguments: str) -> str:
    (folder / "app.py").write_text(SCRIPT)
    done = programs.run(["-m", "streams", *arguments], cwd=folder)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def lines(folder: Path) -> list[Headers]:
    write_records(folder)
    command(folder, "run", "app.py", "--input", "ins=ins.records.jsonl", "--output", "outs=a.parquet")
    command(folder, "run", "app.py", "--input", "ins=a.parquet", "--output", "outs=b.records.jsonl")
    return [*of_rows(pq.read_table(folder / "a.parquet")), *of_json(folder / "b.records.jsonl")]


def commands(folder: Path) -> list[Headers]:
    """``produce`` from a file, and ``consume``."""
    write_records(folder)
    with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0") as server:
        broker.create_topic("ins", 1)
        address = ("--bootstrap-servers", server.address)
        command(folder, "produce", "app.py:ins", "ins.records.jsonl", *address)
        texts = [
            command(folder, "consume", topic, "--from-beginning", "--max", "1", "--format", "json", *address)
            for topic in ("app.py:ins", "ins")
        ]
        (folder / "consumed.records.jsonl").write_text("".join(texts))
        command(folder, "produce", "app.py:ins", "consumed.records.jsonl", *address)
        return [*headers_on(broker, "ins"), *of_json(folder / "consumed.records.jsonl")]


def replayed(folder: Path) -> list[Headers]:
    """From a file, and from the archive of a topic, into Parquet, Delta and Iceberg, and from these again."""
    found: list[Headers] = []
    with EmbeddedBroker() as broker:
        sent(broker)
        archive_topic(broker, "ins", folder / "archive")
    histories: list[Any] = [str(write_records(folder)), Archive(folder / "archive")]
    for number, history in enumerate(histories):
        with replay(copied, {ins: history}, executor="local", application_id="a") as result:
            result.write(outs, folder / f"parquet-{number}")
            result.write(outs, f"delta:{folder / f'delta-{number}'}")
            result.write(outs, f"iceberg:shop.lake.t{number}")
            found += of_rows(result.outputs[outs])
        lakes = [f"{folder}/parquet-{number}", f"delta:{folder}/delta-{number}", f"iceberg:shop.lake.t{number}"]
        histories += lakes if number < 2 else []
        found += of_rows(pq.read_table(folder / f"parquet-{number}"))
        found += of_rows(DeltaTable(str(folder / f"delta-{number}")).to_pyarrow_table())
        found += of_rows(load_catalog("shop").load_table(f"lake.t{number}").scan().to_arrow())
    return found


class Told(Processor[str, str, str, str]):
    """Makes the headers the value."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.key, repr(record.headers))


def told(builder: StreamsBuilder) -> None:
    builder.stream(ins).process(Told).to(outs)


def explained(folder: Path) -> list[Headers]:
    """``why``, which runs the history again."""
    story = why(told, {ins: str(write_records(folder))}, "k", outs)
    return [tuple(ast.literal_eval(output.value)) for output in story.outputs]


def captured(folder: Path) -> list[Headers]:
    """A capsule, and its reproduction."""
    topology = build_topology(copied)
    settings: dict[str, Any] = {"application_id": "a", "flight_recorder": True}
    with EmbeddedBroker() as broker, Admin(broker) as admin:
        sent(broker)
        broker.create_topic("outs", 1)
        with Streams(topology, broker=broker, state_dir=folder / "state", **settings):
            waiting.until(lambda: headers_on(broker))
        counts = {topic.name: len(topic.leaders) for topic in admin.all_topics()}
        capture(broker, topology, StreamsConfig.of(**settings), counts).write(folder / "capsule")
    capsule = Capsule.read(folder / "capsule")
    found = Reproduction(capsule, topology, StreamsConfig.of(**settings)).compare()
    assert (found.is_same, found.outputs) == (True, 1)
    return [tuple(headers) for block in capsule.records.values() for headers in (block.headers or [()] * len(block))]


def taken_over(folder: Path) -> list[Headers]:
    """Records of internal topics in a mark of a stopped application."""
    at = TopicPartition("ins", 0)
    PositionMark("a", pending={at: block_of([(b"k", b"v", 5, HEADERS)])}).write(folder / "mark")
    return list(PositionMark.read(folder / "mark").pending[at].headers or ())


class Changing(Processor[str, str, str, str]):
    """Changes the headers in one place."""

    place = 0

    def process(self, record: Record[str, str]) -> None:
        changed = {0: (*HEADERS[1:], HEADERS[0]), 1: HEADERS[:2], 2: (HEADERS[0], ("empty", None), *HEADERS[2:])}
        self.context.forward(record.key, record.value, headers=changed[self.place])


@pytest.mark.parametrize("place", range(3), ids=["order", "fewer", "null for empty"])
def test_diff_tells_of_other_headers(place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Changing, "place", place)
    history = {ins: str(write_records(tmp_path))}
    arguments: dict[str, Any] = {"application_id": "a", "executor": "local", "processes": 1}

    def changing(builder: StreamsBuilder) -> None:
        builder.stream(ins).map_values(str.upper).process(Changing).to(outs)

    one, same, other = (replay(topology, history, **arguments) for topology in (copied, copied, changing))
    with one, same, other:
        assert compare(one, same).is_same
        assert [topic.keys for topic in compare(one, other).topics] == [{TIMES: 1}]


@pytest.mark.spark
def test_headers_of_a_replay_on_spark_are_those_that_were_sent(spark: Any, tmp_path: Path) -> None:
    """From a file, and from the rows of a DataFrame."""
    with replay(copied, {ins: str(write_records(tmp_path))}, spark=spark, application_id="a") as result:
        result.write(outs, tmp_path / "out")
        found = of_rows(result.outputs[outs].toArrow()) + of_rows(pq.read_table(tmp_path / "out"))
        with replay(copied, {ins: result.outputs[outs]}, spark=spark, application_id="b") as again:
            found += of_rows(again.outputs[outs].toArrow())

    assert found == [HEADERS] * 3


# --- connectors -----------------------------------------------------------------------------


def sinks(folder: Path) -> list[Headers]:
    with EmbeddedBroker() as broker:
        sent(broker)
        for sink in (DeltaSink(str(folder / "delta")), ParquetSink(str(folder / "parquet"))):
            with SinkWorker(broker, ins, sink, name=type(sink).__name__) as worker:
                waiting.until(lambda worker=worker: worker.progress.lag == 0)
    return [*of_rows(DeltaTable(str(folder / "delta")).to_pyarrow_table()), *of_rows(pq.read_table(folder / "parquet"))]


def http_sink(folder: Path) -> list[Headers]:
    bodies: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, EmbeddedBroker() as broker:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        sent(broker)
        with SinkWorker(broker, ins, HttpSink(f"http://127.0.0.1:{server.server_port}"), name="http") as worker:
            waiting.until(lambda: worker.progress.lag == 0)
        server.shutdown()
    (folder / "posted.records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in bodies[0]["records"]))
    return of_json(folder / "posted.records.jsonl")


def files(folder: Path) -> list[Headers]:
    (folder / "in").mkdir()
    write_records(folder).rename(folder / "in" / "a.records.jsonl")
    with EmbeddedBroker() as broker:
        broker.create_topic("ins", 1)
        with SourceWorker(
            broker, ins, FolderSource(str(folder / "in"), interval_ms=1, settle_ms=0), name="in", poll_ms=5
        ):
            waiting.until(lambda: headers_on(broker, "ins"))
        return headers_on(broker, "ins")


WAYS = (
    *(in_process, over_tcp, on_disk, operators, repartition, table, stored, letter_and_redrive),
    *(lines, commands, replayed, explained, captured, taken_over, sinks, http_sink, files),
)


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
def test_headers_are_those_that_were_sent(way: Callable[[Path], list[Headers]], iceberg: None, tmp_path: Path) -> None:
    found = way(tmp_path)

    assert found
    assert found == [HEADERS] * len(found)
