"""Virtual clock and counters."""

import pytest

from streams.core.clock import Clock, SystemClock, VirtualClock
from streams.core.metrics import MetricKey, Metrics


def test_virtual_clock_moves_only_when_told() -> None:
    clock = VirtualClock(now_ms=100)
    typed: Clock = clock

    assert (typed.now_ms(), typed.monotonic_ms()) == (100, 0)
    clock.advance(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (105, 5)
    clock.advance_to(50)
    assert clock.now_ms() == 105
    clock.advance_to(110)
    assert (clock.now_ms(), clock.monotonic_ms()) == (110, 10)
    with pytest.raises(ValueError, match="-1 ms"):
        clock.advance(-1)


def test_jump_of_the_wall_clock_leaves_the_monotonic_time() -> None:
    clock = VirtualClock(100)

    clock.jump_to(10)

    assert (clock.now_ms(), clock.monotonic_ms()) == (10, 0)


def test_system_clock_counts_milliseconds() -> None:
    clock = SystemClock()
    first = clock.monotonic_ms()

    assert clock.now_ms() > 1_700_000_000_000
    assert clock.monotonic_ms() >= first


def test_counters_are_kept_per_task_and_node() -> None:
    metrics = Metrics()
    counter = metrics.counter("dropped-records", task="0_0", node="a")
    counter.add(2)
    counter.value += 1
    metrics.counter("dropped-records", task="0_1", node="a").add()
    metrics.counter("process-total").add(9)

    assert metrics.counter("dropped-records", task="0_0", node="a") is counter
    assert metrics.get("dropped-records", task="0_0", node="a") == 3
    assert metrics.get("dropped-records") == 0
    assert metrics.sum("dropped-records") == 4
    assert metrics.sum("dropped-records", task="0_1") == 1
    assert metrics.snapshot()[MetricKey(None, None, "process-total")] == 9
