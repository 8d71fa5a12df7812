"""The registry: recording, rates over windows, places, and what is exported."""

import gc
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from streams.core.blocks.records import TaskId
from streams.core.clock import VirtualClock
from streams.core.metrics import DropReason, MetricPlace, Metrics, RecordingLevel, table

A, B = TaskId(0, 0), TaskId(0, 1)


def exported(metrics: Metrics) -> dict[tuple[str, str], object]:
    """The exported values by name and task."""
    return {(metric.name, metric.tags.get("task-id", "")): metric.value for metric in metrics.collect()}


def test_a_counter_is_found_again_by_its_place():
    metrics = Metrics(VirtualClock())
    counter = metrics.counter(table.PROCESSED, task=A)
    counter.add(2)
    counter.value += 1
    metrics.counter(table.PROCESSED, task=B).add()

    assert metrics.counter(table.PROCESSED, task=A) is counter
    assert metrics.get("process-total", task="0_0") == metrics.get("process-total", task=A) == 3
    assert metrics.get("process-total") == metrics["process-total"] == 4
    assert metrics.get("commit-total") == 0
    assert "process-total" in metrics
    assert "commit-total" not in metrics


def test_a_rate_is_over_the_last_one_to_two_windows():
    clock = VirtualClock()
    metrics = Metrics(clock, window_ms=10_000)
    counter = metrics.counter(table.PROCESSED, task=A)
    rates = []
    for _ in range(8):
        counter.add(50)
        clock.advance(5_000)
        metrics.roll(clock.monotonic_ms())
        rates.append(metrics.get("process-rate"))
    for _ in range(8):
        clock.advance(5_000)
        metrics.roll(clock.monotonic_ms())
        rates.append(metrics.get("process-rate"))

    assert rates[:8] == [10.0] * 8
    assert rates[-1] == 0.0
    assert metrics.get("process-total") == 400


def test_extremes_and_percentiles_are_of_the_last_windows():
    clock = VirtualClock()
    metrics = Metrics(clock, window_ms=10_000)
    amounts = metrics.amounts(table.COMMITTED)
    for millis in range(1, 101):
        amounts.record(millis * 1_000_000)
    clock.advance(1_000)

    assert metrics.get("commit-latency-max") == 100
    assert metrics.get("commit-latency-avg") == 50.5
    assert metrics.get("commit-latency-p50") == pytest.approx(50, rel=1 / 16)
    assert metrics.get("commit-latency-p99") == pytest.approx(99, rel=1 / 16)
    assert metrics.get("commit-total") == 100
    assert metrics.get("commit-ratio") == 1
    for _ in range(3):
        clock.advance(10_000)
        metrics.roll(clock.monotonic_ms())
    assert "commit-latency-max" not in metrics
    assert metrics.get("commit-total") == 100


def test_an_amount_of_several_records_counts_with_their_average():
    metrics = Metrics(VirtualClock())
    amounts = metrics.amounts(table.PROCESS_LATENCY, task=A)
    amounts.record(1_000, 10)
    amounts.record(500, 1)

    assert metrics.get("process-latency-avg", task=A) == pytest.approx(1_500 / 11)
    assert metrics.get("process-latency-max", task=A) == 500


def test_sensors_above_the_level_are_not_kept():
    clock = VirtualClock()
    kept = {}
    for level in RecordingLevel:
        metrics = Metrics(clock, level)
        for spec in (table.PROCESSED, table.TASK_CREATED, table.PUNCTUATED):
            metrics.counter(spec, task=A).add()
        metrics.drop(DropReason.LATE, task=A, node="window")
        kept[level] = {name for name in metrics if name.endswith("-total")}

    always = {"process-total", "dropped-records-total"}
    assert kept == {
        RecordingLevel.OFF: always,
        RecordingLevel.INFO: always | {"task-created-total"},
        RecordingLevel.DEBUG: always | {"task-created-total", "punctuate-total"},
        RecordingLevel.TRACE: always | {"task-created-total", "punctuate-total"},
    }


def test_drops_are_kept_by_node_and_reason_with_the_first_record():
    metrics = Metrics(VirtualClock())
    metrics.drop(DropReason.NULL_KEY, task=A, node="count", example="offset 3")
    metrics.drop(DropReason.NULL_KEY, task=B, node="count", example="offset 9")
    metrics.drop(DropReason.LATE, 2, task=B, node="count")

    assert metrics.get("dropped-records-total") == 4
    assert metrics.get("dropped-records-total", task=B) == 3
    assert metrics.get("dropped-records-total", node="count", reason="null key") == 2
    assert {str(found) for found in metrics.drops()} == {
        "2 records were dropped at count: null key (the first: offset 3)",
        "2 records were dropped at count: late",
    }


def test_what_is_closed_is_no_longer_exported_but_counts():
    metrics = Metrics(VirtualClock())
    one = metrics.of_thread("one")
    one.counter(table.PROCESSED, task=A).add(5)
    one.counter(table.TASK_CREATED).add()
    one.watch(lambda now_ms: [(table.LAG, MetricPlace("one", A), 7)])

    assert exported(metrics)["process-total", "0_0"] == 5
    assert metrics.get("records-lag", task=A) == 7
    one.close(A)
    assert ("process-total", "0_0") not in exported(metrics)
    one.open(A)
    assert exported(metrics)["process-total", "0_0"] == 5
    one.close()
    assert exported(metrics) == {}
    assert (metrics.get("process-total"), metrics.get("task-created-total")) == (5, 1)


def test_a_wrong_name_or_place_is_refused():
    metrics = Metrics(VirtualClock())
    with pytest.raises(KeyError, match="no metric 'processed'"):
        metrics.get("processed")
    with pytest.raises(KeyError, match="no place 'colour'"):
        metrics.get("process-total", colour="red")
    with pytest.raises(KeyError, match=r"'commit-total' is not kept by task; it is kept by client or thread"):
        metrics.get("commit-total", task=A)


def test_the_tags_are_those_of_kafka_streams():
    metrics = Metrics(VirtualClock(), RecordingLevel.DEBUG).of_thread("t")
    metrics.amounts(table.FLUSHED, task=A, store="counts", store_type="rocksdb-window").record(1)
    metrics.amounts(table.CONSUMED, task=A, node="source", topic="words").record(10)

    assert {tuple(metric.tags.items()) for metric in metrics.collect()} == {
        (("thread-id", "t"), ("task-id", "0_0"), ("rocksdb-window-state-id", "counts")),
        (("thread-id", "t"), ("task-id", "0_0"), ("processor-node-id", "source"), ("topic", "words")),
    }
    assert {metric.group for metric in metrics.collect()} == {"stream-state-metrics", "stream-topic-metrics"}


def test_metrics_print_as_a_table():
    metrics = Metrics(VirtualClock())
    metrics.counter(table.PROCESSED, task=A).add(1_234)

    assert "process-total      1,234  thread-id= task-id=0_0" in repr(metrics)


@pytest.fixture
def meanwhile() -> Iterator[list[Any]]:
    """Functions that are called when the garbage collector runs, at an allocation that it counts; each at most once."""
    called: list[Any] = []
    threshold = gc.get_threshold()

    def call(phase: str, info: dict[str, int]) -> None:
        if called:
            called.pop()()

    gc.callbacks.append(call)
    gc.set_threshold(1, 1_000, 1_000)
    yield called
    gc.set_threshold(*threshold)
    gc.callbacks.remove(call)


def test_metrics_are_read_while_another_thread_opens_tasks(meanwhile):
    metrics = Metrics(VirtualClock(), RecordingLevel.DEBUG)
    numbers = count()

    def open_task() -> None:
        task = TaskId(0, next(numbers))
        metrics.counter(table.PROCESSED, task=task).add()
        metrics.amounts(table.PROCESS_LATENCY, task=task).record(5)
        metrics.drop(DropReason.NULL_KEY, task=task, node="filter")

    def grow() -> None:
        latency.record(1 << next(numbers) % 1_000)

    for _ in range(100):
        open_task()
    latency = metrics.amounts(table.PROCESS_LATENCY, task=A)
    for read in (
        lambda: metrics.get("process-total"),
        lambda: metrics.get("process-latency-p99", task=A),
        metrics.collect,
        metrics.sensors,
        metrics.tallies,
    ):
        meanwhile += [open_task, grow] * 20
        assert read()
        meanwhile.clear()
