"""Windows: which hold a time, and which cannot be made."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.event_time.windows import (
    UNLIMITED_MS,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    ("size", "advance", "timestamp", "starts"),
    [
        (10, 10, 0, [0]),
        (10, 10, 9, [0]),
        (10, 10, 10, [10]),
        (10, 5, 12, [5, 10]),
        (10, 5, 10, [5, 10]),
        (10, 5, 4, [0]),
        (12, 5, 21, [10, 15, 20]),
        (12, 5, 3, [0]),
        (10, 3, 11, [3, 6, 9]),
    ],
)
def test_time_windows_hold_a_time(size: int, advance: int, timestamp: int, starts: list[int]) -> None:
    assert TimeWindows.of(ms(size), advance=ms(advance)).windows_for(timestamp) == starts


@given(st.integers(1, 50), st.data(), st.integers(0, 1000))
def test_time_windows_are_all_those_that_hold_the_time(size: int, data: st.DataObject, timestamp: int) -> None:
    advance = data.draw(st.integers(1, size))
    expected = [start for start in range(0, timestamp + 1, advance) if start <= timestamp < start + size]

    assert TimeWindows.of(ms(size), ms(advance)).windows_for(timestamp) == expected


def test_windows_tumble_without_grace_by_default() -> None:
    assert TimeWindows.of(timedelta(seconds=1)) == TimeWindows(1000, 1000, 0)
    assert SlidingWindows.of(timedelta(seconds=1), grace=ms(5)) == SlidingWindows(1000, 5)
    assert SessionWindows.of(timedelta(0)) == SessionWindows(0, 0)
    assert hash(TimeWindows(1, 1)) == hash(TimeWindows(1, 1))


def test_unlimited_window_begins_at_its_start() -> None:
    windows = UnlimitedWindows.of(start=datetime(1970, 1, 1, 0, 0, 1))

    assert (
        windows
        == UnlimitedWindows.of(start=1000)
        == UnlimitedWindows.of(start=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    )
    assert windows.windows_for(999) == []
    assert windows.windows_for(1000) == windows.windows_for(UNLIMITED_MS) == [1000]
    assert (windows.size_ms, windows.grace_ms) == (UNLIMITED_MS, 0)


def test_join_windows_take_the_difference_unless_a_side_is_given() -> None:
    assert JoinWindows.of(ms(10)) == JoinWindows(10, 10, 0)
    assert JoinWindows.of(ms(10), before=ms(0)) == JoinWindows(0, 10)
    assert JoinWindows.of(ms(10), after=ms(-5), grace=ms(3)) == JoinWindows(10, -5, 3)
    assert JoinWindows.of(before=ms(-5), after=ms(5)).size_ms == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TimeWindows.of(ms(0)), "size must be positive"),
        (lambda: TimeWindows.of(timedelta(microseconds=900)), "size must be in whole milliseconds"),
        (lambda: TimeWindows.of(ms(10), grace=timedelta(microseconds=1)), "grace must be in whole milliseconds"),
        (lambda: SessionWindows.of(timedelta(microseconds=1)), "gap must be in whole milliseconds"),
        (lambda: JoinWindows.of(timedelta(microseconds=1)), "difference must be in whole milliseconds"),
        (lambda: TimeWindows.of(ms(10), ms(0)), "advance must be positive"),
        (lambda: TimeWindows.of(ms(10), ms(11)), "at most the window size of 10 ms"),
        (lambda: TimeWindows.of(ms(10), grace=ms(-1)), "grace must not be negative"),
        (lambda: SlidingWindows.of(ms(-1)), "difference must not be negative"),
        (lambda: SlidingWindows.of(ms(1), grace=ms(-1)), "grace must not be negative"),
        (lambda: SessionWindows.of(ms(-1)), "gap must not be negative"),
        (lambda: SessionWindows.of(ms(1), grace=ms(-1)), "grace must not be negative"),
        (lambda: UnlimitedWindows.of(start=-1), "start must not be negative"),
        (lambda: UnlimitedWindows.of(start=datetime(1969, 1, 1)), "start must not be negative"),
        (lambda: UnlimitedWindows.of(start=True), "must be a datetime"),
        (lambda: JoinWindows.of(ms(-1)), "difference must not be negative"),
        (lambda: JoinWindows.of(ms(10), before=ms(-11)), "add up to -1 ms"),
        (lambda: JoinWindows.of(ms(10), grace=ms(-1)), "grace must not be negative"),
        (lambda: JoinWindows.of(before=ms(1)), "both before and after"),
        (lambda: TimeWindows.of(cast(Any, 1000)), "must be a timedelta, not 1000"),
    ],
)
def test_impossible_windows_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
