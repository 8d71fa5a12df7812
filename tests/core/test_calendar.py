"""Calendars: where windows start and end, in all zones, and which cannot be made."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from importlib import resources
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streams import CalendarWindows
from streams.core.event_time.calendar import Calendar, noted_windows, time_zone, tzdata_version

HOUR = 3_600_000
DAY = 24 * HOUR
ZONES = sorted((resources.files("tzdata") / "zones").read_text().split())
_2037 = 2_145_916_800


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def text(time_ms: int, zone: str) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).astimezone(time_zone(zone)).isoformat()


@pytest.mark.parametrize(
    ("windows", "at", "start", "end"),
    [
        # The clock in New York goes from 02:00 to 03:00, and from 02:00 back to 01:00.
        (CalendarWindows.hours("America/New_York"), "2026-03-08T01:59-05:00", "01:00:00-05:00", "03:00:00-04:00"),
        (CalendarWindows.hours("America/New_York"), "2026-03-08T03:00-04:00", "03:00:00-04:00", "04:00:00-04:00"),
        (CalendarWindows.hours("America/New_York"), "2026-11-01T01:30-04:00", "01:00:00-04:00", "01:00:00-05:00"),
        (CalendarWindows.hours("America/New_York"), "2026-11-01T01:30-05:00", "01:00:00-05:00", "02:00:00-05:00"),
        (CalendarWindows.days("America/New_York"), "2026-03-08T12:00-04:00", "00:00:00-05:00", "00:00:00-04:00"),
        (CalendarWindows.days("Australia/Sydney"), "2026-04-05T12:00+10:00", "00:00:00+11:00", "00:00:00+10:00"),
        (CalendarWindows.days("Australia/Sydney"), "2026-10-04T12:00+11:00", "00:00:00+10:00", "00:00:00+11:00"),
        (CalendarWindows.days("Europe/Paris"), "2026-03-29T01:30+01:00", "00:00:00+01:00", "00:00:00+02:00"),
        (CalendarWindows.days("Europe/Paris"), "2026-10-25T23:59+01:00", "00:00:00+02:00", "00:00:00+01:00"),
        # 02:00 does not exist: the day starts at the skip; it exists twice: the day starts at the first.
        (CalendarWindows.days("Europe/Copenhagen", start=time(2)), "2026-03-29T03:00+02:00", "03:00:00+02:00", None),
        (CalendarWindows.days("Europe/Copenhagen", start=time(2)), "2026-03-29T01:59+01:00", None, "03:00:00+02:00"),
        (CalendarWindows.days("Europe/Copenhagen", start=time(2)), "2026-10-25T02:00+02:00", "02:00:00+02:00", None),
        (CalendarWindows.days("Europe/Copenhagen", start=time(2)), "2026-10-25T02:00+01:00", "02:00:00+02:00", None),
        (CalendarWindows.days("Asia/Kolkata"), "2026-01-01T00:00+05:30", "00:00:00+05:30", "00:00:00+05:30"),
        (CalendarWindows.hours("Asia/Kolkata"), "2026-01-01T12:10+05:30", "12:00:00+05:30", "13:00:00+05:30"),
        (CalendarWindows.hours("UTC", start=time(0, 15)), "2026-01-01T12:10+00:00", "11:15:00+00:00", "12:15:00+00:00"),
        (CalendarWindows.hours("Asia/Kathmandu"), "2026-01-01T12:10+05:45", "12:00:00+05:45", "13:00:00+05:45"),
        # Half an hour is put back at Lord Howe: the hour from 01:00 lasts 90 minutes; and put forward: 30 minutes.
        (CalendarWindows.hours("Australia/Lord_Howe"), "2026-04-05T01:45+10:30", "01:00:00+11:00", "02:00:00+10:30"),
        (CalendarWindows.hours("Australia/Lord_Howe"), "2026-10-04T02:45+11:00", "02:30:00+11:00", "03:00:00+11:00"),
        # Midnight does not exist in Beirut, is there twice in Havana, and all of 2011-12-30 is missing in Samoa.
        (CalendarWindows.days("Asia/Beirut"), "2024-03-31T02:00+03:00", "01:00:00+03:00", "00:00:00+03:00"),
        (CalendarWindows.days("America/Havana"), "2024-11-03T00:30-05:00", "00:00:00-04:00", "00:00:00-05:00"),
        (CalendarWindows.days("Pacific/Apia"), "2011-12-29T23:00-10:00", "00:00:00-10:00", "00:00:00+14:00"),
        (CalendarWindows.weeks("Europe/Berlin"), "2026-03-29T12:00+02:00", "2026-03-23T", "2026-03-30T00:00:00+02"),
        (CalendarWindows.weeks("UTC", first_day=6), "2026-03-29T12:00+00:00", "2026-03-29T", "2026-04-05T"),
        (CalendarWindows.months("UTC", first_day=25), "2026-03-24T12:00+00:00", "2026-02-25T", "2026-03-25T"),
        (CalendarWindows.quarters("UTC", first_month=2), "2026-01-31T23:00+00:00", "2025-11-01T", "2026-02-01T"),
        (CalendarWindows.years("Europe/London", first_month=4, first_day=6), "2026-04-05T12:00+01:00",
         "2025-04-06T00:00:00+01:00", "2026-04-06T00:00:00+01:00"),
        (CalendarWindows.days("Europe/Berlin"), "1969-12-31T23:30+01:00", "1969-12-31T00:00", "1970-01-01T00:00"),
        (CalendarWindows.days("America/New_York"), "1918-03-31T12:00-04:00", "00:00:00-05:00", "00:00:00-04:00"),
    ],
)  # fmt: skip
def test_window_of_a_time(windows: CalendarWindows, at: str, start: str | None, end: str | None) -> None:
    """The cases of public reports of bugs in other systems."""
    window = windows.calendar.window_of(ms(at))

    assert window is not None
    for bound, expected in ((window.start_ms, start), (window.end_ms, end)):
        assert expected is None or expected in text(bound, windows.calendar.zone)


def test_no_window_starts_before_1970_and_none_is_after_the_last_year() -> None:
    days = CalendarWindows.days("America/New_York")

    assert days.calendar.window_of(0) == (0, 5 * HOUR)
    assert (days.windows_for(0), days.windows_for(-1), days.windows_for(1 << 62)) == ([0], [], [])
    assert days.calendar.window_of(-1) == (-19 * HOUR, 5 * HOUR)


def transitions(zone: str) -> list[tuple[int, int]]:
    """Return the transitions of a zone, each with the offset from then on, in seconds: from a look at each half day."""

    def offset(at: int) -> int:
        return int(datetime.fromtimestamp(at, clock).utcoffset().total_seconds())

    clock = time_zone(zone)
    changes = [(-1 << 40, offset(-_2037 // 16))]
    for at in range(-_2037 // 16, _2037 + _2037 // 16, 43_200):
        if offset(at) != changes[-1][1]:
            before, after = at - 43_200, at
            while after - before > 1:
                middle = (before + after) // 2
                before, after = (middle, after) if offset(middle) == changes[-1][1] else (before, middle)
            changes.append((after, offset(after)))
    return changes


def first_shown(changes: list[tuple[int, int]], wall: int, *, is_each: bool = False) -> list[int]:
    """Return the first second at which a clock shows a time or a later one, by trying all offsets that it has had.

    With ``is_each``, return all seconds at which the clock is set to a later time, or shows the time.
    """
    ends = [at for at, _ in changes[1:]] + [1 << 40]
    shown = [max(at, wall - offset) for (at, offset), end in zip(changes, ends, strict=True) if wall - offset < end]
    if not is_each:
        return [min(shown)]
    each = {wall - offset for (at, offset), end in zip(changes, ends, strict=True) if at <= wall - offset < end}
    return sorted({min(shown)} | each)


#: Starts by the clock, in seconds since 1970, that are between two of them.
def _days(first: int, last: int, at: int = 0) -> Iterator[int]:
    yield from range(first // 86_400 * 86_400 + at, last, 86_400)


def _months(first: int, last: int, months: tuple[int, ...] = tuple(range(1, 13))) -> Iterator[int]:
    for number in range(1965 * 12, 2041 * 12):
        day = (date(number // 12, number % 12 + 1, 1) - date(1970, 1, 1)).days * 86_400
        if first <= day <= last and number % 12 + 1 in months:
            yield day


_CALENDARS: dict[str, tuple[Any, Any, int]] = {
    "days": (CalendarWindows.days, _days, 3),
    "days from 02:30": (
        lambda zone: CalendarWindows.days(zone, start=time(2, 30)),
        lambda first, last: _days(first, last, 9_000),
        3,
    ),
    "hours": (CalendarWindows.hours, lambda first, last: range(first // 3600 * 3600, last, 3600), 1),
    "weeks": (
        CalendarWindows.weeks,
        lambda first, last: (day for day in _days(first, last) if day // 86_400 % 7 == 4),
        16,
    ),
    "months": (CalendarWindows.months, _months, 70),
    "quarters": (CalendarWindows.quarters, lambda first, last: _months(first, last, (1, 4, 7, 10)), 200),
    "years": (CalendarWindows.years, lambda first, last: _months(first, last, (1,)), 800),
}


@pytest.mark.case(120)
@pytest.mark.parametrize("first", range(120))
def test_windows_around_each_transition_are_those_of_an_oracle(first: int) -> None:
    """Each zone from 1970 to 2037: starts are looked for among all offsets that it has had."""
    checked = 0
    for zone in ZONES[first::120]:
        changes = transitions(zone)
        for name, (windows, starts, days) in _CALENDARS.items():
            window_of = windows(zone).calendar.window_of
            for at, _ in changes[1:]:
                if not 0 <= at < _2037:
                    continue
                margin = days * 86_400
                walls = starts(at - margin - 86_400, at + margin + 86_400)
                each = [first_shown(changes, wall, is_each=name == "hours") for wall in walls]
                bounds = sorted({shown for group in each for shown in group})
                for start, end in pairwise(bounds):
                    if start <= at + 2 * 86_400 and end > max(at - 2 * 86_400, 0):
                        expected = max(start, 0) * 1000, end * 1000
                        assert window_of(max(start, 0) * 1000) == window_of(end * 1000 - 1) == expected, (
                            zone,
                            name,
                            at,
                        )
                        checked += 1
    assert checked


_units = st.one_of(
    st.builds(lambda m: {"start": time(0, m)}, st.integers(0, 59)).map(lambda kw: (CalendarWindows.hours, kw)),
    st.builds(lambda at: (CalendarWindows.days, {"start": at.replace(microsecond=0)}), st.times()),
    st.builds(lambda day: (CalendarWindows.weeks, {"first_day": day}), st.integers(0, 6)),
    st.builds(lambda day: (CalendarWindows.months, {"first_day": day}), st.integers(1, 28)),
    st.builds(lambda month: (CalendarWindows.quarters, {"first_month": month}), st.integers(1, 12)),
    st.builds(lambda month, day: (CalendarWindows.years, {"first_month": month, "first_day": day}),
              st.integers(1, 12), st.integers(1, 28)),
)  # fmt: skip


@given(_units, st.sampled_from(ZONES), st.integers(-DAY * 30_000, DAY * 60_000))
@example((CalendarWindows.days, {}), "Pacific/Apia", ms("2011-12-30T10:00+00:00"))
def test_windows_follow_each_other_without_gaps_and_overlaps(unit: Any, zone: str, time_ms: int) -> None:
    make, arguments = unit
    windows = make(zone, **arguments)
    window = windows.calendar.window_of(time_ms)

    assert window is not None
    start_ms, end_ms = window
    if start_ms < 0 < end_ms:
        return  # In its part from 1970 on it starts there.
    assert start_ms <= time_ms < end_ms <= start_ms + windows.size_ms
    assert windows.calendar.window_of(start_ms) == windows.calendar.window_of(end_ms - 1) == window
    assert windows.calendar.window_of(end_ms).start_ms == end_ms
    if start_ms:
        assert windows.calendar.window_of(start_ms - 1).end_ms == start_ms
    if time_ms >= 0:
        assert windows.windows_for(time_ms) == [start_ms]
        assert (windows.end_of(start_ms), windows.open_from(time_ms)) == (end_ms, start_ms)


OPENINGS = [
    (datetime(2026, 3, 6, 9, 30), datetime(2026, 3, 6, 16)),
    (datetime(2026, 3, 9, 9, 30), datetime(2026, 3, 9, 16)),
    (datetime(2026, 3, 10, 9, 30), datetime(2026, 3, 10, 13)),
]


def test_openings_are_windows_with_gaps() -> None:
    windows = CalendarWindows.openings("America/New_York", OPENINGS)
    before, at, after = (ms(f"2026-03-{at}") for at in ("09T13:29+00:00", "09T13:30+00:00", "09T20:00+00:00"))

    assert [windows.windows_for(time_ms) for time_ms in (before, at, after)] == [[], [at], []]
    assert (windows.end_of(at), windows.open_from(before), windows.open_from(after)) == (after, before, after)
    assert windows.windows_for(ms("2026-04-01T00:00+00:00")) == []


@pytest.mark.parametrize(("fold", "hours"), [(0, 1), (1, 2)])
def test_an_opening_ends_at_the_hour_that_its_fold_says(fold: int, hours: int) -> None:
    row = datetime(2026, 10, 25, 1, 30), datetime(2026, 10, 25, 2, 30, fold=fold)
    ((start_ms, end_ms),) = CalendarWindows.openings("Europe/Berlin", [row]).calendar.table

    assert end_ms - start_ms == hours * HOUR


@pytest.mark.parametrize(
    ("windows", "name"),
    [
        (CalendarWindows.weeks("UTC", first_day=6), "weeks of UTC from day 6"),
        (CalendarWindows.months("UTC", first_day=3), "months of UTC from day 3"),
        (CalendarWindows.quarters("UTC", first_month=2), "quarters of UTC from 2-1"),
    ],
)
def test_a_calendar_is_named_by_its_start(windows: CalendarWindows, name: str) -> None:
    assert str(windows.calendar) == name


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CalendarWindows.days("Europe/Berln"), r"no time zone 'Europe/Berln' in tzdata .*'Europe/Berlin'"),
        (lambda: CalendarWindows.days("CEST"), "no time zone 'CEST'"),
        (lambda: CalendarWindows.days("UTC", start=2), r"start of days must be a time .* such as time\(2, 30\), not 2"),
        (lambda: CalendarWindows.days("UTC", start=time(2, tzinfo=UTC)), "start of days must be a time"),
        (lambda: CalendarWindows.hours("UTC", start=time(2)), "start of hours must be before 01:00"),
        (lambda: CalendarWindows.weeks("UTC", first_day=7), "from 0 to 6, not 7"),
        (lambda: CalendarWindows.months("UTC", first_day=31), "from 1 to 28, not 31"),
        (lambda: CalendarWindows.years("UTC", first_month=0), "from 1 to 12, not 0"),
        (lambda: CalendarWindows.days("UTC", grace=timedelta(-1)), "grace must not be negative"),
        (lambda: CalendarWindows.openings("UTC", []), "is empty"),
        (lambda: CalendarWindows.openings("UTC", OPENINGS[::-1]), "opening 2 of UTC starts at .*before the end"),
        (lambda: CalendarWindows.openings("UTC", [OPENINGS[0], OPENINGS[0]]), "sort, or merge them"),
        (lambda: CalendarWindows.openings("UTC", [OPENINGS[0][::-1]]), "opening 1 of UTC .* must end after its start"),
        (lambda: CalendarWindows.openings("Europe/Berlin", [(datetime.min, datetime(2026, 1, 1))]), "beyond the years"),
        (lambda: CalendarWindows.openings("UTC", [("09:30", "16:00")]), "must be a start and an end, both a datetime"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_table_of_openings_may_grow_but_keeps_the_windows_that_a_store_has() -> None:
    calendars = [CalendarWindows.openings("UTC", rows).calendar for rows in (OPENINGS[:2], OPENINGS, OPENINGS[1:])]
    first_ms, second_ms = (start_ms for start_ms, _ in calendars[0].table)
    noted = noted_windows(calendars[0], second_ms)

    assert [calendar.difference(noted, first_ms) for calendar in calendars[:2]] == [None, None]
    difference = calendars[2].difference(noted, first_ms) or ""
    assert "has a window from 2026-03-06T09:30:00Z" in difference
    assert difference.endswith(
        f"tzdata {tzdata_version()}: restore the calendar that it had, or give the store another name"
    )
    assert calendars[2].difference(noted, second_ms) is None


@pytest.mark.parametrize(
    "windows", [CalendarWindows.days("UTC", start=time(2)), CalendarWindows.openings("UTC", OPENINGS)]
)
def test_calendar_of_a_snapshot_has_the_same_windows(windows: CalendarWindows) -> None:
    described = json.loads(json.dumps([windows.calendar.described(), windows.calendar.table]))

    assert Calendar.of_description(*described) == windows.calendar


def test_version_of_the_database() -> None:
    assert tzdata_version()[:4].isdigit()
