"""Window definitions: the sizes, starts and grace periods of windows.

This module only does arithmetic on epoch milliseconds and record numbers; operators decide which records are late,
stored or emitted. Durations are given as ``timedelta`` and rounded down to milliseconds. This module imports no other
module of the package.
"""

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from attrs import field, frozen
from attrs.validators import ge

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

    Starts are multiples of ``advance_ms``; ends are exclusive. ``grace_ms`` is measured in stream time (KIP-328).
    """

    size_ms: int
    advance_ms: int
    grace_ms: int = 0

    def __attrs_post_init__(self) -> None:
        if self.size_ms <= 0:
            raise ValueError(f"window size must be positive, but is {self.size_ms} ms")
        if not 0 < self.advance_ms <= self.size_ms:
            raise ValueError(
                f"window advance must be positive and at most the window size of {self.size_ms} ms, "
                f"but is {self.advance_ms} ms"
            )
        _not_negative(self.grace_ms, "grace")

    @classmethod
    def of(cls, size: timedelta, advance: timedelta | None = None, grace: timedelta = _ZERO) -> "TimeWindows":
        """Create windows of ``size`` that start every ``advance`` (default: ``size``), by default without ``grace``.

        >>> TimeWindows.of(timedelta(seconds=10), advance=timedelta(seconds=5)).windows_for(12_000)
        [5000, 10000]

        Raises:
            ValueError: the size is not positive, the advance is not within (0, size], or the grace is negative.
        """
        size_ms = _milliseconds(size, "window size")
        advance_ms = size_ms if advance is None else _milliseconds(advance, "window advance")
        return cls(size_ms, advance_ms, _milliseconds(grace, "grace"))

    def windows_for(self, timestamp_ms: int) -> list[int]:
        """Return the starts of all windows that contain a time, in ascending order; no start is negative."""
        advance_ms = self.advance_ms
        if advance_ms == self.size_ms:
            return [timestamp_ms - timestamp_ms % advance_ms] if timestamp_ms >= 0 else []
        first = max(0, timestamp_ms - self.size_ms + advance_ms) // advance_ms * advance_ms
        return list(range(first, timestamp_ms + 1, advance_ms))


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

    @property
    def size_ms(self) -> int:
        """The size of the window, which is the highest 64-bit integer."""
        return UNLIMITED_MS

    @property
    def grace_ms(self) -> int:
        """The grace period, which is always 0, because the window never closes."""
        return 0


@frozen
class JoinWindows:
    """The time bounds of a join of two streams; both are inclusive.

    A record of the left stream at time t joins the records of the right stream from ``t - before_ms`` to
    ``t + after_ms``. Either bound may be negative as long as the length of the window is not.
    """

    before_ms: int
    after_ms: int
    grace_ms: int = 0

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
    ) -> "JoinWindows":
        """Create windows for records at most ``difference`` apart; ``before`` and ``after`` override one bound each.

        >>> JoinWindows.of(timedelta(seconds=5), before=timedelta(0))
        JoinWindows(before_ms=0, after_ms=5000, grace_ms=0)

        Raises:
            ValueError: the difference, the grace or the length of the window is negative, or a bound is missing.
        """
        if difference is None and (before is None or after is None):
            raise ValueError("join window needs a difference, or both before and after")
        both_ms = 0 if difference is None else _not_negative(_milliseconds(difference, "time difference"), "difference")
        return cls(
            both_ms if before is None else _milliseconds(before, "before"),
            both_ms if after is None else _milliseconds(after, "after"),
            _milliseconds(grace, "grace"),
        )

    @property
    def size_ms(self) -> int:
        """The length of the window in milliseconds, which is ``before_ms + after_ms``."""
        return self.before_ms + self.after_ms


#: Windows that do not depend on records, which have ``windows_for``.
FixedWindows: TypeAlias = TimeWindows | UnlimitedWindows
#: All windows that ``windowed_by`` accepts.
Windows: TypeAlias = TimeWindows | SlidingWindows | SessionWindows | UnlimitedWindows | CountWindows
