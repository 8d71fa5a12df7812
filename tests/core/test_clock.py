"""Virtual clock and system clock."""

import pytest

from streams.core.clock import Clock, SystemClock, VirtualClock


def test_virtual_clock_moves_only_when_told() -> None:
    clock = VirtualClock(now_ms=100)
    typed: Clock = clock

    assert (typed.now_ms(), typed.monotonic_ms(), typed.monotonic_ns()) == (100, 0, 0)
    clock.advance(5)
    assert (clock.now_ms(), clock.monotonic_ms(), clock.monotonic_ns()) == (105, 5, 5_000_000)
    clock.advance_to(50)
    assert clock.now_ms() == 105
    clock.advance_to(110)
    assert (clock.now_ms(), clock.monotonic_ms()) == (110, 10)
    with pytest.raises(ValueError, match="-1 ms"):
        clock.advance(-1)


@pytest.mark.parametrize("time", [1.0, "1", None])
def test_time_of_another_type_is_refused_where_it_is_given(time) -> None:
    clock = VirtualClock(100)
    for call in (VirtualClock, clock.advance, clock.jump_to):
        with pytest.raises(TypeError):
            call(time)
    assert clock.now_ms() == 100


def test_jump_of_the_wall_clock_leaves_the_monotonic_time() -> None:
    clock = VirtualClock(100)

    clock.jump_to(10)

    assert (clock.now_ms(), clock.monotonic_ms()) == (10, 0)


def test_system_clock_counts_milliseconds() -> None:
    clock = SystemClock()
    first = clock.monotonic_ms()

    assert clock.now_ms() > 1_700_000_000_000
    assert clock.monotonic_ms() >= first
    assert clock.monotonic_ns() >= first * 1_000_000
