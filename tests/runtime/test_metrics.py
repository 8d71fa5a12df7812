"""The metrics of running applications: threads, tasks, inputs, topics, restores, in all drivers."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streams import (
    EmbeddedBroker,
    Processor,
    Producer,
    Record,
    State,
    Streams,
    StreamsBuilder,
    TimeWindows,
    Topic,
    TopicPartition,
    key_value_store,
)
from streams.core.blocks.records import Block
from streams.core.metrics import Metrics, SensorSpec, Stat, table
from streams.testing import TopologyTestDriver

words, counts = Topic("words", key=str, value=str), Topic("counts", key=str, value=int)
FAST: dict[str, Any] = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10}


def counting(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().count("seen").to_stream().to(counts)


def until(streams: Streams, is_true: Callable[[], bool]) -> None:
    while not is_true():
        assert not streams.wait(20)


@pytest.fixture
def broker():
    with EmbeddedBroker() as found:
        found.create_topic("words", 2)
        found.create_topic("counts", 2)
        yield found


def produce(broker: EmbeddedBroker, count: int, topic: Topic[str, str] = words, first_ms: int = 1_000) -> None:
    with Producer(broker) as producer:
        for number in range(count):
            producer.send(topic, key=str(number), value="some", timestamp_ms=first_ms + number)


def by_name(metrics: Metrics, group: str) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for metric in metrics.collect():
        if metric.group == group:
            found.setdefault(metric.name, []).append(metric.value)
    return found


def test_a_live_application_has_metrics_of_each_level(broker):
    settings = FAST | {"metrics_recording_level": "debug"}
    with Streams(counting, application_id="app", broker=broker, num_stream_threads=2, **settings) as streams:
        metrics = streams.metrics
        # Else the first thread might have processed all before the second one has a task.
        until(streams, lambda: streams.instance.ask(lambda thread: len(thread.tasks) * thread.is_ready) == [1, 1])
        until(streams, lambda: streams.state is State.RUNNING)
        produce(broker, 1_000)
        until(streams, lambda: metrics.get("process-total") == 1_000 and metrics.get("commit-total") > 1)
        client, thread = by_name(metrics, "stream-metrics"), by_name(metrics, "stream-thread-metrics")

        assert (client["state"], client["client-state"]) == (["RUNNING"], [2])
        assert (client["alive-stream-threads"], client["failed-stream-threads"]) == ([2], [0])
        assert client["application-id"] == ["app"]
        assert "seen" in client["topology-description"][0]
        assert sum(thread["process-total"]) == 1_000
        assert all(age < 60 for age in thread["last-poll-seconds-ago"])
        assert thread["thread-state"] == [4, 4]
        assert {"poll-rate", "process-latency-avg", "process-latency-p99", "commit-latency-max", "process-ratio"} <= {
            *thread
        }
        assert metrics.get("process-total", task="0_0") + metrics.get("process-total", task="0_1") == 1_000
        assert metrics.get("stream-time-ms", task="0_0") + metrics.get("stream-time-ms", task="0_1") < 2 * 2_000
        assert metrics.get("records-lag") == 0
        assert metrics.get("records-consumed-total", topic="words") == 1_000
        assert metrics.get("bytes-consumed-total", topic="words") == pytest.approx(4_000 + 2_890, rel=0.05)
        nodes = {
            metric.tags["processor-node-id"] for metric in metrics.collect() if metric.name == "record-e2e-latency-max"
        }
        assert {node.partition("-0")[0] for node in nodes} == {"KSTREAM-SOURCE", "KSTREAM-SINK"}
        assert metrics.get("record-e2e-latency-min") > 1_000_000
        assert metrics.get("process-latency-avg", task="0_0") > 0
        assert 0 < metrics.get("active-process-ratio", task="0_0") <= 1
        store = by_name(metrics, "stream-state-metrics")
        assert "flush-latency-avg" in store
        threads = {metric.tags["thread-id"] for metric in metrics.collect() if "thread-id" in metric.tags}
    assert len(threads) == 2
    assert metrics.get("process-total") == 1_000
    assert by_name(metrics, "stream-task-metrics") == {}


def test_a_task_tells_which_partition_it_waits_for(broker):
    broker.create_topic("left", 1)
    broker.create_topic("right", 1)
    left, right = Topic("left", key=str, value=str), Topic("right", key=str, value=str)

    def both(builder: StreamsBuilder) -> None:
        builder.stream(left).merge(builder.stream(right)).to(out)

    out = Topic("out", key=str, value=str)
    broker.create_topic("out", 1)
    produce(broker, 5, left)
    with Streams(both, application_id="app", broker=broker, max_task_idle_ms=600_000, **FAST) as streams:
        metrics = streams.metrics
        until(streams, lambda: metrics.get("input-waited-for-ms", topic="right") > 0)

        assert metrics.get("input-waited-for-ms", topic="left") == 0
        assert metrics.get("input-records-lag", topic="left") == metrics.get("records-lag") == 5
        produce(broker, 1, right)
        until(streams, lambda: metrics.get("process-total") >= 1)


def test_a_restore_counts_its_records(broker):
    produce(broker, 500)
    with Streams(counting, application_id="app", broker=broker, **FAST) as streams:
        until(streams, lambda: streams.metrics.get("process-total") == 500)
    with Streams(counting, application_id="app", broker=broker, **FAST) as streams:
        metrics = streams.metrics
        until(streams, lambda: metrics.get("restored-tasks-total") == 2)

        assert metrics.get("restore-total") == 500
        assert metrics.get("active-restoring-tasks") == metrics.get("restore-remaining-records-total") == 0


def test_the_test_driver_has_metrics_on_its_virtual_clock():
    with TopologyTestDriver(counting, now_ms=10_000) as driver:
        for number in range(60):
            driver.pipe(words, "a", key="k", timestamp_ms=10_000 + number * 1_000)
            driver.advance_wall_clock(1_000)
        metrics = driver.metrics

        assert metrics.get("process-total", task="0_0") == 60
        assert metrics.get("process-rate", task="0_0") == pytest.approx(1, rel=0.05)
        assert metrics.get("stream-time-ms") == 69_000
        assert metrics.get("stream-time-age-ms") == 1_000
        assert metrics.get("records-produced-total", topic="counts") == 60


def events(metrics: Metrics, *specs: SensorSpec) -> list[int]:
    """Return the events that sensors have recorded at all places."""
    return [
        sum(sensor.read(Stat.TOTAL, 0) for found, _, sensor in metrics.sensors() if found is spec) for spec in specs
    ]


def test_calls_of_stores_are_measured_at_debug_by_operators_and_processors():
    class Last(Processor[str, str, str, str]):
        seen = key_value_store(str, str)

        def process(self, record: Record[str, str]) -> None:
            self.seen.put_if_absent(record.key, record.value)
            self.seen.put(record.key, record.value)
            assert len(list(self.seen.all())) == len(list(self.seen.range("a", "z"))) == 1
            self.context.forward(record.key, record.value)

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(words)
        stream.process(Last).to(out)
        stream.group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1))).count("windows")
        stream.group_by_key().count("counted")

    out = Topic("out", key=str, value=str)
    wanted = {"put": 3 * 3, "put-if-absent": 3, "get": 3, "fetch": 3, "all": 3, "range": 3, "delete": 0}
    for level, factor in (("debug", 1), ("info", 0)):
        with TopologyTestDriver(topology, metrics_recording_level=level) as driver:
            for _ in range(3):
                driver.pipe(words, "a", key="k", timestamp_ms=0)
            counted = dict(zip(wanted, events(driver.metrics, *(table.CALLS[call] for call in wanted)), strict=True))

            assert counted == {call: factor * count for call, count in wanted.items()}
            assert [row.value for row in driver.read_records(out)] == ["a"] * 3


def test_hit_ratio_of_a_record_cache_is_recorded_by_flush_at_debug(broker):
    with Producer(broker) as producer:
        for _ in range(100):
            producer.send(words, key="a", value="some", partition=0)
    settings = FAST | {"metrics_recording_level": "debug", "cache_max_bytes": 10_000}
    with Streams(counting, application_id="app", broker=broker, **settings) as streams:
        metrics = streams.metrics
        until(streams, lambda: metrics.get("hit-ratio-max", store="seen") > 0.5)

        assert metrics.get("hit-ratio-avg") <= metrics.get("hit-ratio-max") < 1


def test_statistics_of_rocksdb_are_recorded_at_commits(broker, tmp_path):
    produce(broker, 500)
    settings = FAST | {"metrics_recording_level": "debug", "state_dir": tmp_path, "default_store": "rocksdb"}
    with Streams(counting, application_id="app", broker=broker, **settings) as streams:
        metrics = streams.metrics
        until(streams, lambda: metrics.get("process-total") == 500 and metrics.get("bytes-written-total") > 500 * 10)
        written = metrics.get("bytes-written-total")
        names = set(by_name(metrics, "stream-state-metrics"))

    assert written < 500 * 200
    assert {"bytes-written-rate", "bytes-read-compaction-rate", "number-file-errors-total", "put-rate"} <= names


def test_nothing_but_totals_of_records_is_recorded_when_off():
    with TopologyTestDriver(counting, metrics_recording_level="off") as driver:
        driver.pipe(words, "a", key="k", timestamp_ms=0)

        assert {metric.name for metric in driver.metrics.collect()} == {
            "process-total", "process-rate", "dropped-records-total", "dropped-records-rate",
        }  # fmt: skip


def test_loops_turn_also_without_records(broker):
    with Streams(counting, application_id="app", broker=broker, num_stream_threads=2, **FAST) as streams:
        until(streams, lambda: streams.state.name == "RUNNING")
        before = streams.instance.iterations_ms()
        until(streams, lambda: all(at > before[name] for name, at in streams.instance.iterations_ms().items()))

    assert len(before) == 2
    assert streams.instance.iterations_ms() == {}


def test_stores_on_disk_have_the_properties_of_rocksdb(broker, tmp_path):
    produce(broker, 100)
    with Streams(counting, application_id="app", broker=broker, state_dir=str(tmp_path), **FAST) as streams:
        metrics = streams.metrics
        until(streams, lambda: metrics.get("estimate-num-keys", store="seen") >= 100)
        store = by_name(metrics, "stream-state-metrics")
        tags = {tag for metric in metrics.collect() if metric.name == "block-cache-usage" for tag in metric.tags}

    assert store.keys() >= {*table.PROPERTIES}
    assert min(store["block-cache-capacity"]) > 0
    assert tags == {"thread-id", "task-id", "rocksdb-state-id"}
    assert by_name(metrics, "stream-state-metrics") == {}


def test_a_task_that_has_moved_away_is_no_longer_exported_but_counts(broker):
    produce(broker, 100)
    with Streams(counting, application_id="app", broker=broker, **FAST) as one:
        until(one, lambda: one.metrics.get("process-total") == 100)
        with Streams(counting, application_id="app", broker=broker, **FAST) as two:
            until(two, lambda: len(one.tasks()) == len(two.tasks()) == 1)
            tags = {
                metric.tags["task-id"]
                for metric in one.metrics.collect()
                if metric.name == "process-total" and "task-id" in metric.tags
            }

            assert tags == {str(task) for task in one.tasks()}
            assert one.metrics.get("process-total") == 100
            assert sum(one.metrics.get("process-total", task=task) for task in ("0_0", "0_1")) == 100


def test_lag_in_event_time_is_to_the_newest_record_and_to_now_while_that_is_not_fetched():
    with TopologyTestDriver(counting) as driver:
        [task] = driver._tasks
        partition, seen = TopicPartition("words", 0), []

        def look() -> None:
            seen.append((driver.metrics.get("input-event-time-lag-ms"), driver.metrics.get("input-records-lag")))

        task.note_end(partition, 2)
        task.add(partition, Block([b"k", b"k"], [b"v", b"v"], [1_000, 1_050], None, [0, 1]))
        look()
        task.process(0, 1)
        look()
        task.note_end(partition, 9)
        driver.clock.advance(60_000)
        look()

    # Unknown before the first record, 50 ms to the second, and seven more that are on the broker only.
    assert seen == [(0, 2), (50, 1), (60_000 - 1_000, 8)]
