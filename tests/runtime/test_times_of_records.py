"""``Topic(timestamp=)`` of (key, value, headers, timestamp): the same event times from files, live, and in a replay."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streams import (
    Consumer,
    EmbeddedBroker,
    Headers,
    Producer,
    Streams,
    StreamsBuilder,
    TimeWindows,
    Topic,
    TopologyError,
)
from streams.bounded import run_bounded
from streams.core.clock import VirtualClock
from streams.files import open_input
from streams.replay import Table, replay
from streams.testing import TopologyTestDriver, simulate
from tests.waiting import until

SECOND = 1_000


def sent_at(key: str | None, value: int | None, headers: Headers, timestamp_ms: int | None) -> int | None:
    """Return the time in the headers, else that of the key, else that of the record."""
    sent = dict(headers).get("sent")
    if sent is not None:
        return int(sent)
    return int(key[2:]) * SECOND if key is not None and key.startswith("at") else timestamp_ms


clicks = Topic("clicks", key=str, value=int, timestamp=sent_at, partitions=1)
counts = Topic("counts", key=str, value=str, partitions=1)
ROWS: list[dict[str, Any]] = [
    {"key": "ann", "value": 1, "timestamp": 500},
    {"key": "ann", "value": 1, "timestamp": 600, "headers": [["sent", "7000"]]},
    {"key": "at9", "value": 1, "timestamp": 700},
]
WANTED = [("ann", "0: 1"), ("ann", "7000: 1"), ("at9", "9000: 1")]


def topology(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(timedelta(seconds=1), grace=timedelta(minutes=1))
    per_window = builder.stream(clicks).group_by_key().windowed_by(windows).count().to_stream()
    per_window.map(lambda key, count: (key.key, f"{key.window.start_ms}: {count}")).to(counts)


def headers_of(row: dict[str, Any]) -> Headers:
    return tuple((name, text.encode()) for name, text in row.get("headers", ()))


def test_driver() -> None:
    driver = TopologyTestDriver(topology)
    for row in ROWS:
        driver.pipe(clicks, row["value"], key=row["key"], timestamp_ms=row["timestamp"], headers=headers_of(row))
    assert driver.read(counts) == WANTED


def test_live() -> None:
    with EmbeddedBroker() as broker:
        for topic in (clicks, counts):
            broker.create_topic(topic)
        with Producer(broker) as producer:
            for row in ROWS:
                producer.send(
                    clicks, row["value"], key=row["key"], timestamp_ms=row["timestamp"], headers=headers_of(row)
                )
        with (
            Streams(topology, application_id="app", broker=broker, poll_ms=5, commit_interval_ms=50),
            Consumer(broker, "reader", auto_offset_reset="earliest") as consumer,
        ):
            consumer.subscribe(counts)
            read: list[tuple[Any, Any]] = []
            until(lambda: read.extend((row.key, row.value) for row in consumer.poll(50)) or len(read) == 3)
        assert read == WANTED


@pytest.mark.parametrize("kind", ["file", "table"])
def test_replay(kind: str, tmp_path: Path) -> None:
    history: Any = tmp_path / "clicks.records.jsonl"
    history.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    if kind == "table":
        names = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
        columns = {
            "key": [row["key"] for row in ROWS],
            "value": [row["value"] for row in ROWS],
            "timestamp": pa.array([row["timestamp"] for row in ROWS], pa.int64()),
            "headers": pa.array([[{"name": k, "value": v} for k, v in headers_of(row)] for row in ROWS], names),
        }
        history = Table(pa.table(columns))
    result = replay(topology, {clicks: history}, executor="local")
    assert [(row["key"], row["value"]) for row in result.outputs[counts].to_pylist()] == WANTED


def test_rows_without_a_time_have_that_of_the_key_or_are_refused(tmp_path: Path) -> None:
    """The function sees no timestamp: neither the wall clock nor -1, with which it would compute."""
    history = tmp_path / "clicks.records.jsonl"
    history.write_text('{"key": "at9", "value": 1}\n')
    result = replay(topology, {clicks: history}, executor="local")
    assert [row["value"] for row in result.outputs[counts].to_pylist()] == ["9000: 1"]
    simulate(topology, {clicks: [("at9", 1)]}, seeds=[1], storm_ms=100)

    history.write_text('{"key": "ann", "value": 1}\n')
    with pytest.raises(Exception, match=r"the row has no time, which .* topic 'clicks' needs"):
        replay(topology, {clicks: history}, executor="local")


@pytest.mark.parametrize("way", ["run", "replay"])
def test_a_function_sees_that_a_row_has_no_time_in_a_run_as_in_a_replay(way: str, tmp_path: Path) -> None:
    rows = Topic("rows", value=int, timestamp=lambda key, value, headers, timestamp_ms: timestamp_ms or 5_000)
    history = tmp_path / "rows.jsonl"
    history.write_text("1\n")

    def copying(builder: StreamsBuilder) -> None:
        builder.stream(rows).to("copies")

    if way == "replay":
        result = replay(copying, {rows: history}, executor="local")
        times = [row["timestamp"] for row in result.outputs["copies"].to_pylist()]
    else:
        with run_bounded(copying, {"rows": open_input(rows, history)}, application_id="app") as run:
            times = [time_ms for _, block in run.read_output("copies") for time_ms in block.timestamps]
    assert times == [5_000]


def test_a_row_for_which_the_function_has_no_time_has_the_present_in_a_run(tmp_path: Path) -> None:
    history = tmp_path / "clicks.records.jsonl"
    history.write_text('{"key": "ann", "value": 1}\n')
    reader = open_input(clicks, history, clock=VirtualClock(77_000))

    [[(_, block)]] = reader(1)
    assert list(block.timestamps) == [77_000]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda key, value: 0, r"takes \(key, value\); give a function of \(value\) or \(key, value, headers, timest"),
        (lambda: 0, r"takes \(\); give"),
    ],
)
def test_a_function_of_other_parameters_is_refused(function: Any, text: str) -> None:
    with pytest.raises(TopologyError, match=text):
        Topic("clicks", key=str, value=int, timestamp=function)
    with pytest.raises(TopologyError, match=r"key_from.*give a function of \(value\)"):
        Topic("clicks", key=str, value=int, key_from=function)
