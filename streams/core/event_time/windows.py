"""Window definitions: the sizes, starts and grace periods of windows.

This module only does arithmetic on epoch milliseconds and record numbers; operators decide which records are late,
stored or emitted. Durations are given as ``timedelta`` and rounded down to milliseconds. Of the package, this module
imports only ``calendar`` and ``core.arguments``.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import TypeAlias

from attrs import field, frozen
from attrs.validators import ge

from streams.core.arguments import check_flag
from streams.core.event_time.calendar import Calendar, instants, time_zone

#: End of an unlimited window (Java's Long.MAX_VALUE).
UNLIMITED_MS = (1 << 63) - 1

_MS = timedelta(milliseconds=1)
_ZERO = timedelta(0)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _milliseconds(duration: timedelta, name: str) -> int:
    if not isinstance(duration, timedelta):
        raise ValueError(f"{name} must be a timedelta, not {duration!r} of type {type(duration).__qualname__}")
    if _ZERO < duration < _MS:
        raise ValueError(f"{name} must be in whole milliseconds: {duration} is less than 1 ms")
    return duration // _MS


def _not_negative(value_ms: int, name: str) -> int:
    if value_ms < 0:
        raise ValueError(f"{name} must not be negative, but is {value_ms} ms")
    return value_ms


@frozen
class TimeWindows:
    """Windows of equal size: tumbling if they advance by their size, hopping if they advance by less.

    Starts are multiples of ``advance_ms``, plus ``offset_ms``; ends are exclusive. ``grace_ms`` is measured in stream
    time (KIP-328).
    """

    size_ms: int
    advance_ms: int
    grace_ms: int = 0
    offset_ms: int = 0

    def __attrs_post_init__(self) -> None:
        if self.size_ms <= 0:
            raise ValueError(f"window size must be positive, but is {self.size_ms} ms")
        if not 0 < self.advance_ms <= self.size_ms:
            raise ValueError(
                f"window advance must be positive and at most the window size of {self.size_ms} ms, "
                f"but is {self.advance_ms} ms"
            )
        _not_negative(self.grace_ms, "grace")
        if not 0 <= self.offset_ms < self.advance_ms:
            raise ValueError(
                f"window offset must be less than the advance of {self.advance_ms} ms: {self.offset_ms} ms"
            )

    @classmethod
    def of(
        cls,
        size: timedelta,
        advance: timedelta | None = None,
        grace: timedelta = _ZERO,
        *,
        offset: timedelta = _ZERO,
    ) -> "TimeWindows":
        """Create windows of ``size`` that start every ``advance`` (default: ``size``), by default without ``grace``.

        Starts are counted from 1970-01-01T00:00Z plus ``offset``, which may be negative.  No start is before 1970; a
        record before the first start is in no window.

        >>> TimeWindows.of(timedelta(seconds=10), advance=timedelta(seconds=5)).windows_for(12_000)
        [5000, 10000]
        >>> TimeWindows.of(timedelta(seconds=10), offset=timedelta(seconds=3)).windows_for(12_000)
        [3000]

        Raises:
            ValueError: the size is not positive, the advance is not within (0, size], or the grace is negative.
        """
        size_ms = _milliseconds(size, "window size")
        advance_ms = size_ms if advance is None else _milliseconds(advance, "window advance")
        offset_ms = _milliseconds(offset, "window offset") % advance_ms if advance_ms > 0 else 0
        return cls(size_ms, advance_ms, _milliseconds(grace, "grace"), offset_ms)

    def windows_for(self, timestamp_ms: int) -> list[int]:
        """Return the starts of all windows that contain a time, in ascending order; no start is negative."""
        advance_ms, offset_ms = self.advance_ms, self.offset_ms
        first_ms = max(0, timestamp_ms - offset_ms - self.size_ms + advance_ms) // advance_ms * advance_ms
        return list(range(first_ms + offset_ms, timestamp_ms + 1, advance_ms))

    def end_of(self, start_ms: int) -> int:
        """Return the end of the window with this start."""
        return min(start_ms + self.size_ms, UNLIMITED_MS)

    def open_from(self, time_ms: int) -> int:
        """Return a time such that windows with earlier starts end at ``time_ms`` or before, and the others later."""
        advance_ms, offset_ms = self.advance_ms, self.offset_ms
        return (time_ms - self.size_ms - offset_ms) // advance_ms * advance_ms + advance_ms + offset_ms


@frozen
class SlidingWindows:
    """Windows of records that are at most ``difference_ms`` apart; both ends are inclusive (KIP-450)."""

    difference_ms: int
    grace_ms: int = 0

    def __attrs_post_init__(self) -> None:
        _not_negative(self.difference_ms, "time difference")
        _not_negative(self.grace_ms, "grace")

    @classmethod
    def of(cls, difference: timedelta, *, grace: timedelta = _ZERO) -> "SlidingWindows":
        """Create windows of records at most ``difference`` apart, by default without ``grace``.

        Raises:
            ValueError: a duration is negative.
        """
        return cls(_milliseconds(difference, "time difference"), _milliseconds(grace, "grace"))

    @property
    def size_ms(self) -> int:
        """The length of a window (end minus start) in milliseconds."""
        return self.difference_ms


@frozen
class SessionWindows:
    """Windows that grow while records of a key are at most ``gap_ms`` apart; both ends are inclusive (KIP-94)."""

    gap_ms: int
    grace_ms: int = 0

    def __attrs_post_init__(self) -> None:
        _not_negative(self.gap_ms, "session gap")
        _not_negative(self.grace_ms, "grace")

    @classmethod
    def of(cls, gap: timedelta, *, grace: timedelta = _ZERO) -> "SessionWindows":
        """Create session windows with the inactivity gap ``gap``, by default without grace.

        Raises:
            ValueError: a duration is negative.
        """
        return cls(_milliseconds(gap, "session gap"), _milliseconds(grace, "grace"))


def _whole(value: int, name: str) -> int:
    if type(value) is not int:
        raise ValueError(f"{name} must be a number of records, not {value!r}")
    return value


@frozen
class CountWindows:
    """Windows of ``size`` consecutive records of a key: tumbling if they advance by their size, otherwise hopping.

    The records of a key are numbered from 0 as they arrive.  A window starts with every ``advance``-th record; its
    bounds are record numbers, and its end is exclusive.
    """

    size: int
    advance: int

    def __attrs_post_init__(self) -> None:
        if _whole(self.size, "window size") < 1:
            raise ValueError(f"window size must be at least 1 record, but is {self.size}")
        if not 0 < _whole(self.advance, "window advance") <= self.size:
            raise ValueError(
                f"window advance must be positive and at most the window size of {self.size} records, "
                f"but is {self.advance}"
            )

    @classmethod
    def of(cls, size: int, advance: int | None = None) -> "CountWindows":
        """Create windows of ``size`` records that start with every ``advance``-th record (default: ``size``).

        >>> CountWindows.of(10, advance=5).windows_for(12)
        range(5, 13, 5)

        Raises:
            ValueError: the size is not a positive number of records, or the advance is not from 1 to the size.
        """
        return cls(size, size if advance is None else advance)

    def windows_for(self, number: int) -> range:
        """Return the starts of the count windows that contain record ``number`` of a key, in ascending order."""
        first = max(0, number - self.size + self.advance) // self.advance * self.advance
        return range(first, number + 1, self.advance)


@frozen
class UnlimitedWindows:
    """A single window from ``start_ms`` that never ends; earlier records are in no window."""

    start_ms: int = field(default=0, validator=ge(0))

    @classmethod
    def of(cls, *, start: datetime | int = 0) -> "UnlimitedWindows":
        """Create a window from ``start`` on, given as epoch milliseconds or a datetime (naive = UTC); default 0.

        Raises:
            ValueError: the start is before 1970.
        """
        if isinstance(start, datetime):
            aware = start.replace(tzinfo=UTC) if start.tzinfo is None else start
            start = (aware - _EPOCH) // _MS
        elif not isinstance(start, int) or isinstance(start, bool):
            raise ValueError(f"window start must be a datetime or epoch milliseconds, not {start!r}")
        return cls(_not_negative(start, "window start"))

    def windows_for(self, timestamp_ms: int) -> list[int]:
        """Return a list with the start of the window, which is empty if the window does not contain the time."""
        return [self.start_ms] if timestamp_ms >= self.start_ms else []

    def end_of(self, start_ms: int) -> int:
        """Return the end of the window, which is the highest 64-bit integer."""
        return UNLIMITED_MS

    def open_from(self, time_ms: int) -> int:
        """Return the start of the window, because it never ends."""
        return self.start_ms

    @property
    def size_ms(self) -> int:
        """The size of the window, which is the highest 64-bit integer."""
        return UNLIMITED_MS

    @property
    def grace_ms(self) -> int:
        """The grace period, which is always 0, because the window never closes."""
        return 0


@frozen
class CalendarWindows:
    """Windows by the clock and calendar of a time zone, which follow each other without gaps, or a table of openings.

    A window starts at the first instant at which the clock shows the start; if the clock skips the start, at the
    instant of the skip.  ``start`` is a time of whole seconds.  The keys of the results have start and end, and the
    serde ``session_windowed``.  Zones are those of the package ``tzdata``.  ``grace`` is measured in stream time.
    """

    calendar: Calendar
    grace_ms: int = 0

    def __attrs_post_init__(self) -> None:
        _not_negative(self.grace_ms, "grace")

    @classmethod
    def hours(cls, zone: str, *, start: time = time(0), grace: timedelta = _ZERO) -> "CalendarWindows":
        """Create windows of hours by the clock; ``start`` is the time of the day's first, such as ``time(0, 15)``.

        Of a clock that is put back, each repeated hour is two windows.

        Raises:
            ValueError: the zone does not exist, the start is not within the hour, or the grace is negative.
        """
        if isinstance(start, time) and start.hour:
            raise ValueError(f"start of hours must be before 01:00, such as time(0, 15), but is {start}")
        return cls._of("hours", zone, start, grace)

    @classmethod
    def days(cls, zone: str, *, start: time = time(0), grace: timedelta = _ZERO) -> "CalendarWindows":
        """Create windows of days from ``start`` (default: midnight) to the next day's.

        >>> day = CalendarWindows.days("Europe/Berlin").calendar.window_of(1_774_746_000_000)
        >>> (day.end_ms - day.start_ms) / 3_600_000  # Summer time starts.
        23.0

        Raises:
            ValueError: the zone does not exist, the start is not a time, or the grace is negative.
        """
        return cls._of("days", zone, start, grace)

    @classmethod
    def weeks(
        cls, zone: str, *, first_day: int = 0, start: time = time(0), grace: timedelta = _ZERO
    ) -> "CalendarWindows":
        """Create windows of weeks from ``start`` of their ``first_day``, such as ``calendar.SUNDAY`` (default: Monday).

        Raises:
            ValueError: the zone does not exist, the start or first day is out of range, or the grace is negative.
        """
        return cls._of("weeks", zone, start, grace, _within(first_day, 0, 6, "first day of weeks (0 is Monday)"))

    @classmethod
    def months(
        cls, zone: str, *, first_day: int = 1, start: time = time(0), grace: timedelta = _ZERO
    ) -> "CalendarWindows":
        """Create windows of months from ``start`` of their ``first_day`` (1 to 28).

        Raises:
            ValueError: the zone does not exist, the start or first day is out of range, or the grace is negative.
        """
        return cls._of("months", zone, start, grace, _day_of_month(first_day))

    @classmethod
    def quarters(
        cls, zone: str, *, first_month: int = 1, first_day: int = 1, start: time = time(0), grace: timedelta = _ZERO
    ) -> "CalendarWindows":
        """Create windows of three months, one of which starts with ``first_month`` (1 to 12).

        Raises:
            ValueError: the zone does not exist, the start, day or month is out of range, or the grace is negative.
        """
        return cls._of("quarters", zone, start, grace, _day_of_month(first_day), _month(first_month))

    @classmethod
    def years(
        cls, zone: str, *, first_month: int = 1, first_day: int = 1, start: time = time(0), grace: timedelta = _ZERO
    ) -> "CalendarWindows":
        """Create windows of years that start in ``first_month`` (1 to 12) on its ``first_day`` (1 to 28).

        >>> tax_years = CalendarWindows.years("Europe/London", first_month=4, first_day=6)

        Raises:
            ValueError: the zone does not exist, the start, day or month is out of range, or the grace is negative.
        """
        return cls._of("years", zone, start, grace, _day_of_month(first_day), _month(first_month))

    @classmethod
    def openings(
        cls, zone: str, table: Iterable[tuple[datetime, datetime]], *, grace: timedelta = _ZERO
    ) -> "CalendarWindows":
        """Create a window from each start to its end in ``table``, such as business hours or trading sessions.

        Times without a zone are those of the clock of ``zone``; of one that it shows twice, ``fold=1`` is the second.
        A record outside of all openings is in no window.

        >>> monday = datetime(2026, 3, 9, 9, 30), datetime(2026, 3, 9, 16)
        >>> CalendarWindows.openings("America/New_York", [monday]).calendar.table
        ((1773063000000, 1773086400000),)

        Raises:
            ValueError: the zone does not exist, the table is empty, a row is not two times in order, starts before
                the end of the row before it, or before 1970, or the grace is negative.
        """
        clock = time_zone(zone)
        rows: list[tuple[int, int]] = []
        for number, row in enumerate(table, 1):
            what = f"opening {number} of {zone}"
            if not isinstance(row, Sequence) or len(row) != 2 or not all(isinstance(bound, datetime) for bound in row):
                raise ValueError(f"{what} must be a start and an end, both a datetime, not {row!r}")
            try:
                start_ms, end_ms = (
                    ((bound if bound.tzinfo else instants(bound, clock)[-bound.fold].replace(tzinfo=UTC)) - _EPOCH)
                    // _MS
                    for bound in row
                )
            except OverflowError:
                raise ValueError(f"{what} from {row[0]} to {row[1]} is beyond the years of a datetime") from None
            if not 0 <= start_ms < end_ms:
                raise ValueError(f"{what} from {row[0]} to {row[1]} must end after its start, and not be before 1970")
            if rows and start_ms < rows[-1][1]:
                raise ValueError(
                    f"{what} starts at {row[0]}, before the end of opening {number - 1}: sort, or merge them"
                )
            rows.append((start_ms, end_ms))
        if not rows:
            raise ValueError(f"the table of openings of {zone} is empty; give rows of start and end")
        return cls(Calendar("openings", zone, table=tuple(rows)), _milliseconds(grace, "grace"))

    @classmethod
    def _of(
        cls, unit: str, zone: str, start: time, grace: timedelta, first_day: int = 0, first_month: int = 1
    ) -> "CalendarWindows":
        time_zone(zone)
        if type(start) is not time or start.tzinfo or start.microsecond:
            raise ValueError(f"start of {unit} must be a time of whole seconds, such as time(2, 30), not {start!r}")
        return cls(Calendar(unit, zone, start, first_day, first_month), _milliseconds(grace, "grace"))

    def windows_for(self, timestamp_ms: int) -> list[int]:
        """Return a list with the start of the window that contains a time; it is empty before 1970 and in a gap."""
        window = self.calendar.window_of(timestamp_ms) if timestamp_ms >= 0 else None
        return [] if window is None else [window.start_ms]

    def end_of(self, start_ms: int) -> int:
        """Return the end of the window with this start."""
        window = self.calendar.window_of(start_ms)
        return start_ms if window is None else window.end_ms

    def open_from(self, time_ms: int) -> int:
        """Return a time such that windows with earlier starts end at ``time_ms`` or before, and the others later."""
        window = self.calendar.window_of(time_ms)
        return time_ms if window is None else window.start_ms

    @property
    def size_ms(self) -> int:
        """An upper bound of the lengths of the windows in milliseconds."""
        return self.calendar.longest_ms


def _within(number: int, first: int, last: int, name: str) -> int:
    if type(number) is not int or not first <= number <= last:
        raise ValueError(f"{name} must be from {first} to {last}, not {number!r}")
    return number


def _day_of_month(day: int) -> int:
    return _within(day, 1, 28, "first day (one that each month has)")


def _month(month: int) -> int:
    return _within(month, 1, 12, "first month")


@frozen
class JoinWindows:
    """The time bounds of a join of two streams; both are inclusive.

    A record of the left stream at time t joins the records of the right stream from ``t - before_ms`` to
    ``t + after_ms``. Either bound may be negative as long as the length of the window is not. With ``is_eager``, a left
    or outer join emits a result without a match at once.
    """

    before_ms: int
    after_ms: int
    grace_ms: int = 0
    is_eager: bool = False

    def __attrs_post_init__(self) -> None:
        if self.before_ms + self.after_ms < 0:
            raise ValueError(
                f"join window must not be negative, but before ({self.before_ms} ms) and after "
                f"({self.after_ms} ms) add up to {self.before_ms + self.after_ms} ms"
            )
        _not_negative(self.grace_ms, "grace")

    @classmethod
    def of(
        cls,
        difference: timedelta | None = None,
        *,
        before: timedelta | None = None,
        after: timedelta | None = None,
        grace: timedelta = _ZERO,
        eager: bool = False,
    ) -> "JoinWindows":
        """Create windows for records at most ``difference`` apart; ``before`` and ``after`` override one bound each.

        In a left or outer join, a result without a match waits until the window and ``grace`` have passed.  With
        ``eager``, it is emitted at once if no match is there yet, and one that comes later is emitted as well.

        This is ``ofTimeDifferenceAndGrace`` of Java.  Java's deprecated ``JoinWindows.of(d)``, which ksqlDB uses for
        joins without a grace period, is ``JoinWindows.of(d, grace=timedelta(days=1) - 2 * d, eager=True)``.

        >>> JoinWindows.of(timedelta(seconds=5), before=timedelta(0))
        JoinWindows(before_ms=0, after_ms=5000, grace_ms=0, is_eager=False)

        Raises:
            ValueError: the difference, the grace or the length of the window is negative, or a bound is missing.
            TopologyError: ``eager`` is no flag.
        """
        if difference is None and (before is None or after is None):
            raise ValueError("join window needs a difference, or both before and after")
        both_ms = 0 if difference is None else _not_negative(_milliseconds(difference, "time difference"), "difference")
        return cls(
            both_ms if before is None else _milliseconds(before, "before"),
            both_ms if after is None else _milliseconds(after, "after"),
            _milliseconds(grace, "grace"),
            check_flag(eager, "eager= of JoinWindows"),
        )

    @property
    def size_ms(self) -> int:
        """The length of the window in milliseconds, which is ``before_ms + after_ms``."""
        return self.before_ms + self.after_ms


#: Windows that do not depend on records, which have ``windows_for``.
FixedWindows: TypeAlias = TimeWindows | UnlimitedWindows | CalendarWindows
#: All windows that ``windowed_by`` accepts.
Windows: TypeAlias = TimeWindows | SlidingWindows | SessionWindows | UnlimitedWindows | CountWindows | CalendarWindows
