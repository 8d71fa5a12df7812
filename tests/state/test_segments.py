"""Bounds of a store's time: moved step by step they are those of the time that was reached."""

from attrs import asdict
from hypothesis import given
from hypothesis import strategies as st

from streams.state.views.segments import TimeBounds

lengths = st.integers(1, 100)


@given(st.integers(0, 300), lengths, st.booleans(), st.lists(st.integers(-1, 1_000)))
def test_bounds_do_not_depend_on_the_way_of_time(retention_ms: int, interval_ms: int, is_exact: bool, times: list[int]):
    interval_ms = 1 if is_exact else interval_ms
    bounds, reached_ms = TimeBounds(retention_ms, interval_ms, is_exact), -1
    for time_ms in times:
        first_live, reached_ms = bounds.first_live, max(reached_ms, time_ms)

        is_dying = bounds.observe(time_ms)

        assert asdict(bounds) == asdict(TimeBounds(retention_ms, interval_ms, is_exact, reached_ms))
        assert is_dying == (bounds.first_live != first_live)


@given(lengths, st.lists(st.integers(-100, 1_000)))
def test_segments_of_many_times_are_those_of_each(interval_ms: int, times: list[int]):
    bounds = TimeBounds(10, interval_ms)

    assert bounds.segments(times) == [bounds.segment(time_ms) for time_ms in times]
