"""Stores keep the headers of records beside their values, and changelogs have them in their records (KIP-1271)."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    EmbeddedBroker,
    Headers,
    KeyQuery,
    Processor,
    Producer,
    Record,
    SerializationError,
    State,
    StoreError,
    Streams,
    StreamsBuilder,
    TimestampedKeyQuery,
    Topic,
    ValueAndHeaders,
    ValueTimestampHeaders,
    Window,
    Windowed,
    WindowRangeQuery,
    session_store_with_headers,
    timestamped_key_value_store,
    timestamped_key_value_store_with_headers,
    timestamped_window_store_with_headers,
)
from streams.core.blocks.records import Block, TopicPartition
from streams.core.serdes.serdes import LONG, STRING
from streams.protocol.wire import EncodedBlock
from streams.replay import go_live, replay
from streams.state import StoreSpec, kinds, open_store
from streams.state.views.headers import headed, headers_bytes, read_headers
from streams.testing import TopologyTestDriver, simulate
from tests.waiting import until

texts = Topic("texts", key=str, value=str, partitions=2)
said = Topic("said", key=str, value=str, partitions=2)
SECOND = timedelta(seconds=1)


class Tagging(Processor[str, str, str, str]):
    """Forwards what the stores had for a key, and keeps the record with its headers."""

    last = timestamped_key_value_store_with_headers(str, str)
    windows = timestamped_window_store_with_headers(str, str, size=SECOND, retention=60 * SECOND)
    sessions = session_store_with_headers(str, str, retention=60 * SECOND)

    def process(self, record: Record[str, str]) -> None:
        key, at = record.key, record.timestamp_ms
        tags: Headers = (*record.headers, ("from", record.value.encode()), ("none", None))
        window = at // 1_000 * 1_000
        found = self.last.get(key), self.windows.fetch(key, window), [*self.sessions.fetch(key)]
        row = None if record.value == "gone" else ValueTimestampHeaders(record.value, at, tags)
        self.last.put(key, row)
        self.windows.put(key, row, window)
        if row is not None:
            self.sessions.put(Windowed(key, Window(at, at)), ValueAndHeaders(record.value, tags))
        self.context.forward(key, repr(found))


def topology(builder: StreamsBuilder) -> None:
    builder.stream(texts).process(Tagging).to(said)


#: Key, value and time of the inputs; each key has its partition to itself in the order of the times.
ROWS = [("a", "one", 5), ("b", "two", 7), ("a", "three", 900), ("a", "gone", 1_100), ("b", "four", 1_300)]
ROWS += [("a", "five", 1_400), ("b", "six", 1_500)]


def by_key(rows: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the values of each key in their order."""
    found: dict[str, list[str]] = {}
    for key, value in rows:
        found.setdefault(key, []).append(value)
    return found


def driven() -> dict[str, list[str]]:
    """Return what the test driver gives."""
    with TopologyTestDriver(topology) as driver:
        for key, value, at in ROWS:
            driver.pipe(texts, value, key=key, timestamp_ms=at)
        return by_key(driver.read(said))


def test_bytes_are_those_of_kafka_streams() -> None:
    """A header h=h1, as Kafka Streams 4.4 writes it: the size, the number, name and value with their sizes."""
    assert headers_bytes((("h", b"h1"),)).hex() == "0c02026804" + b"h1".hex()
    assert headed(STRING).serialize(ValueAndHeaders("v")) == b"\x00v"
    assert read_headers(bytes.fromhex("0802026e01") + b"v") == ((("n", None),), 5)


@pytest.mark.world
@given(st.lists(st.tuples(st.text(), st.none() | st.binary(max_size=200)), max_size=5), st.text())
def test_what_is_written_is_read(headers: list[tuple[str, bytes | None]], value: str) -> None:
    serde, pair = headed(STRING), ValueAndHeaders(value, tuple(headers))

    assert serde.deserialize(serde.serialize(pair)) == pair


@given(st.binary(max_size=30))
def test_other_bytes_are_an_error_or_read_whole(data: bytes) -> None:
    try:
        pair = headed(STRING).deserialize(data)
    except SerializationError:
        return
    assert pair is not None
    assert headed(STRING).deserialize(headed(STRING).serialize(pair)) == pair


@pytest.mark.parametrize("value", ["plain", ("a", 1), ("a", (("h", "text"),)), (1, ()), (None, ())])
def test_what_is_no_value_with_headers_is_refused(value: Any) -> None:
    with pytest.raises(SerializationError, match="cannot write"):
        headed(STRING).serialize(value)


class _Keeping(Processor[str, str, str, str]):
    kv = timestamped_key_value_store_with_headers(str, str)
    windows = timestamped_window_store_with_headers(str, str, size=SECOND, retention=60 * SECOND)
    sessions = session_store_with_headers(str, str, retention=60 * SECOND)

    def process(self, record: Record[str, str]) -> None:
        row = ValueTimestampHeaders(record.value, record.timestamp_ms, record.headers)
        self.kv.put(record.key, row)
        self.windows.put(record.key, row, record.timestamp_ms)
        window = Window(record.timestamp_ms, record.timestamp_ms)
        self.sessions.put(Windowed(record.key, window), ValueAndHeaders(record.value, record.headers))
        self.context.commit()


def test_changelogs_are_those_of_kafka_streams() -> None:
    """What the same processor in Java has written, with Kafka Streams 4.4.0: keys, values, times and headers."""
    tags: Headers = (("trace", b"t0"), ("none", None), ("empty", b""))

    with TopologyTestDriver(lambda builder: builder.stream(texts).process(_Keeping), application_id="app") as driver:
        driver.pipe(texts, "v0", key="k0", timestamp_ms=0, headers=tags)
        driver.pipe(texts, "v1", key="k1", timestamp_ms=10)
        found = {
            name: [(row.key, row.value, row.timestamp_ms, row.headers) for row in driver.read_bytes(name)]
            for name in ("app-kv-changelog", "app-windows-changelog", "app-sessions-changelog")
        }

    keys = {"kv": ("6b30", "6b31")}
    keys["windows"] = ("6b30000000000000000000000000", "6b31000000000000000a00000000")
    keys["sessions"] = ("6b3000000000000000000000000000000000", "6b31000000000000000a000000000000000a")
    for name, (first, second) in keys.items():
        assert found[f"app-{name}-changelog"] == [
            (bytes.fromhex(first), b"v0", 0, tags),
            (bytes.fromhex(second), b"v1", 10, ()),
        ]


def test_what_is_no_row_of_the_store_is_refused_and_a_value_of_none_deletes() -> None:
    store = open_store(SPECS[0])
    with pytest.raises(StoreError, match=r"ValueTimestampHeaders\(value, timestamp_ms, headers\), not \(1, 5\)"):
        store.view.put("a", (1, 5))
    store.view.put("a", ValueTimestampHeaders(1, 5))
    store.view.put("a", ValueTimestampHeaders(None, 6))

    assert store.view.get("a") is None


SPECS = [
    StoreSpec("s", kinds.TIMESTAMPED_KEY_VALUE_WITH_HEADERS, STRING, LONG),
    StoreSpec("s", kinds.TIMESTAMPED_WINDOW_WITH_HEADERS, STRING, LONG, window_size_ms=10, retention_ms=1_000),
    StoreSpec("s", kinds.SESSION_WITH_HEADERS, STRING, LONG, retention_ms=1_000),
]


def _put(store: Any, number: int, headers: Headers) -> None:
    key = f"k{number % 3}"
    if store.spec.kind == kinds.SESSION_WITH_HEADERS:
        store.view.put(Windowed(key, Window(number, number)), ValueAndHeaders(number, headers))
    elif store.spec.kind == kinds.TIMESTAMPED_WINDOW_WITH_HEADERS:
        store.view.put(key, ValueTimestampHeaders(number, number, headers), number)
    else:
        store.view.put(key, ValueTimestampHeaders(number, number, headers))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind.name)
def test_changelog_has_plain_values_and_the_headers_and_restores_both(spec: StoreSpec) -> None:
    store = open_store(spec)
    for number in range(6):
        _put(store, number, (("n", b"%d" % number), ("none", None)) if number != 4 else ())
    changes = store.drain_changes()
    assert changes is not None
    assert changes.headers is not None
    plain = LONG.deserialize_all(changes.values)
    assert [(("n", b"%d" % number), ("none", None)) if number != 4 else () for number in plain] == list(changes.headers)

    again, copied = open_store(spec), open_store(spec)
    # As a consumer of a broker on the network has it.
    again.restore(EncodedBlock.of(changes, 0))
    for block in store.snapshot_blocks():
        copied.restore(block)

    wanted = dict(spec.kind.contents(store))
    assert dict(spec.kind.contents(again)) == dict(spec.kind.contents(copied)) == wanted
    assert {value.headers for _, value in _pairs(wanted)} > {()}


def _pairs(found: dict[Any, Any]) -> Iterator[tuple[Any, ValueAndHeaders[Any]]]:
    yield from found.items()


def test_a_changelog_of_a_store_without_headers_is_read_and_the_other_way_round() -> None:
    """The values of both are plain: an application may begin to keep headers, and cease to."""
    plain = evolve(SPECS[0], kind=kinds.TIMESTAMPED_KEY_VALUE)
    changes = Block([b"a", b"b"], LONG.serialize_all([1, 2]), [5, 6], [(("h", b"x"),), ()], range(2))
    with_headers, without = open_store(SPECS[0]), open_store(plain)
    for store in (with_headers, without):
        store.restore(changes)

    assert with_headers.view.get("a") == ValueTimestampHeaders(1, 5, (("h", b"x"),))
    assert with_headers.view.get("b") == ValueTimestampHeaders(2, 6, ())
    assert without.view.get("a") == (1, 5)


@pytest.mark.world
def test_driver_application_simulation_and_replay_give_the_same_headers(tmp_path: Path) -> None:
    wanted = driven()
    assert "('from', b'five')" not in wanted["a"][-1]
    assert wanted["b"][-1].count("('from', b'four')") == 3

    file = tmp_path / "texts.records.jsonl"
    file.write_text("".join(json.dumps({"key": k, "value": v, "timestamp": at}) + "\n" for k, v, at in ROWS))
    settings: dict[str, Any] = {"application_id": "app", "executor": "local", "partitions": 2}
    with replay(topology, {texts: file}, slices=3, **settings) as result:
        rows = [(record.key, record.value) for record in result.rows(said)]
        kept = dict(result.stores["last"])
        snapshot = result.save(tmp_path / "snapshot")
    assert by_key(rows) == wanted
    assert kept["a"] == ValueAndHeaders("five", (("from", b"five"), ("none", None)))

    with EmbeddedBroker() as broker:
        for topic in (texts, said):
            broker.create_topic(topic.name, 2)
        with Producer(broker) as producer:
            for key, value, at in ROWS:
                producer.send(texts, value, key=key, timestamp_ms=at)
        go_live(snapshot, broker)
        with Streams(topology, application_id="app", broker=broker, commit_interval_ms=20, poll_ms=10) as streams:
            until(lambda: streams.state is State.RUNNING)
            assert streams.store("last").get("a") == ValueTimestampHeaders("five", 1_400, kept["a"].headers)

    report = simulate(topology, {texts: ROWS}, seeds=range(4), processing_guarantee="exactly_once_v2")
    assert report.restores


def test_queries_return_headers_and_another_instance_restores_them() -> None:
    def app(broker: EmbeddedBroker) -> Streams:
        return Streams(topology, application_id="app", broker=broker, commit_interval_ms=20, poll_ms=10)

    def send(broker: EmbeddedBroker, rows: list[tuple[str, str, int]]) -> None:
        with Producer(broker) as producer:
            for key, value, at in rows:
                producer.send(texts, value, key=key, timestamp_ms=at, headers=(("trace", b"t"),))

    tags = (("trace", b"t"), ("from", b"six"), ("none", None))
    with EmbeddedBroker() as broker:
        with app(broker) as first:
            send(broker, ROWS)
            until(lambda: first.state is State.RUNNING and first.metrics.get("process-total") == len(ROWS))
            assert first.store("last").get("b") == ValueTimestampHeaders("six", 1_500, tags)
        with app(broker) as second:
            until(lambda: second.state is State.RUNNING)
            changes = second.changes("last")
            send(broker, [("c", "more", 1_600)])
            until(lambda: second.metrics.get("process-total") == 1)
            last = second.store("last")
            assert last.get("b") == ValueTimestampHeaders("six", 1_500, tags)
            asked = second.query("last", TimestampedKeyQuery[str, str]("b")).value
            assert asked == ValueTimestampHeaders("six", 1_500, tags)
            assert second.query("last", KeyQuery[str, str]("b")).value == "six"
            windows = second.query("windows", WindowRangeQuery[str, str]()).value
            [found] = [row for key, row in windows if key.key == "c"]
            assert found.headers == (("trace", b"t"), ("from", b"more"), ("none", None))
            assert second.store("sessions").fetch("c")[0][1].value == "more"
            change = next(changes)
            assert (change.entry.key, change.entry.headers) == ("c", found.headers)


def test_a_store_on_disk_is_restored_when_it_begins_to_keep_headers(tmp_path: Path) -> None:
    class Plain(Processor[str, str, str, str]):
        last = timestamped_key_value_store(str, str)

        def process(self, record: Record[str, str]) -> None:
            self.last.put(record.key, (record.value, record.timestamp_ms))

    class Headed(Processor[str, str, str, str]):
        last = timestamped_key_value_store_with_headers(str, str)

        def process(self, record: Record[str, str]) -> None:
            self.context.forward(record.key, repr(self.last.get(record.key)))

    def app(broker: EmbeddedBroker, supplier: Any) -> Streams:
        def build(builder: StreamsBuilder) -> None:
            builder.stream(texts).process(supplier, name="keep").to(said)

        settings: dict[str, Any] = {"commit_interval_ms": 20, "poll_ms": 10, "state_dir": tmp_path}
        return Streams(build, application_id="app", broker=broker, **settings)

    with EmbeddedBroker() as broker:
        for supplier in (Plain, Headed):
            with app(broker, supplier) as streams, Producer(broker) as producer:
                producer.send(texts, "x", key="a", timestamp_ms=3).result()
                until(lambda streams=streams: streams.metrics.get("process-total") == 1)
        found = [
            value
            for number in (0, 1)
            for block in broker.read(TopicPartition("said", number), 0, 1_000_000)
            for value in block.values
        ]
    assert [said.value_serde.deserialize(value) for value in found] == [repr(ValueTimestampHeaders("x", 3, ()))]
