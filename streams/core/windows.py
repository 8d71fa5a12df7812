"""Windows as values: which windows contain a time.

Pure arithmetic on epoch milliseconds; operators decide what is late, stored or emitted.  Durations
are ``timedelta``, rounded down to milliseconds.  Imports no module of ours.
"""

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from attrs import field, frozen
from attrs.validators import ge

#: End of an unlimited window (Long.MAX_VALUE of Java).
UNLIMITED_MS = (1 << 63) - 1

_MS = timedelta(milliseconds=1)
_ZERO = timedelta(0)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _milliseconds(duration: timedelta, name: str) -> int:
    if not isinstance(duration, timedelta):
        raise ValueError(f"{name} must be a timedelta, not {duration!r} of type {type(duration).__qualname__}")
    return duration // _MS


def _not_negative(value_ms: int, name: str) -> int:
    if value_ms < 0:
        raise ValueError(f"{name} must not be negative, but is {value_ms} ms")
    return value_ms


@frozen
class TimeWindows:
    """Windows of equal size; tumbling if they advance by the size, hopping if by less.

    Starts are multiples of ``advance_ms``, ends are exclusive.  ``grace_ms`` is measured in
    stream time (KIP-328).
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
        """Windows of ``size``, one every ``advance`` (default: the size); ``grace`` default none.

        >>> TimeWindows.of(timedelta(seconds=10), advance=timedelta(seconds=5)).windows_for(12_000)
        [5000, 10000]

        Raises:
            ValueError: the size is not positive, the advance not within (0, size], the grace negative.
        """
        size_ms = _milliseconds(size, "window size")
        advance_ms = size_ms if advance is None else _milliseconds(advance, "window advance")
        return cls(size_ms, advance_ms, _milliseconds(grace, "grace"))

    def windows_for(self, timestamp_ms: int) -> list[int]:
        """Return the starts of all windows that contain a time, ascending; none is negative."""
        advance_ms = self.advance_ms
        if advance_ms == self.size_ms:
            return [timestamp_ms - timestamp_ms % advance_ms] if timestamp_ms >= 0 else []
        first = max(0, timestamp_ms - self.size_ms + advance_ms) // advance_ms * advance_ms
        return list(range(first, timestamp_ms + 1, advance_ms))


@frozen
class SlidingWindows:
    """Windows around each record, of records at most ``difference_ms`` apart; both ends inclusive (KIP-450)."""

    difference_ms: int
    grace_ms: int = 0

    def __attrs_post_init__(self) -> None:
        _not_negative(self.difference_ms, "time difference")
        _not_negative(self.grace_ms, "grace")

    @classmethod
    def of(cls, difference: timedelta, *, grace: timedelta = _ZERO) -> "SlidingWindows":
        """Windows of records at most ``difference`` apart; ``grace`` default none.

        Raises:
            ValueError: a duration is negative.
        """
        return cls(_milliseconds(difference, "time difference"), _milliseconds(grace, "grace"))

    @property
    def size_ms(self) -> int:
        """End minus start of a window, in milliseconds."""
        return self.difference_ms


@frozen
class SessionWindows:
    """Windows that grow as long as records of a key are at most ``gap_ms`` apart; both ends inclusive (KIP-94)."""

    gap_ms: int
    grace_ms: int = 0

    def __attrs_post_init__(self) -> None:
        _not_negative(self.gap_ms, "session gap")
        _not_negative(self.grace_ms, "grace")

    @classmethod
    def of(cls, gap: timedelta, *, grace: timedelta = _ZERO) -> "SessionWindows":
        """Sessions that end after ``gap`` without a record; ``grace`` default none.

        Raises:
            ValueError: a duration is negative.
        """
        return cls(_milliseconds(gap, "session gap"), _milliseconds(grace, "grace"))


@frozen
class UnlimitedWindows:
    """One window from ``start_ms``, without end; earlier records are in no window."""

    start_ms: int = field(default=0, validator=ge(0))

    @classmethod
    def of(cls, *, start: datetime | int = 0) -> "UnlimitedWindows":
        """One window from ``start``: epoch milliseconds or a datetime (naive = UTC); default 0.

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
        """Return the start of the window if it contains the time."""
        return [self.start_ms] if timestamp_ms >= self.start_ms else []

    @property
    def size_ms(self) -> int:
        """Size of the window: the highest 64-bit integer."""
        return UNLIMITED_MS

    @property
    def grace_ms(self) -> int:
        """Always 0: it never closes."""
        return 0


@frozen
class JoinWindows:
    """The maximum time of the other record of a join before and after this one; both inclusive.

    A record at t joins those of the other side from ``t - before_ms`` to ``t + after_ms``.  One of
    the two may be negative if the length of the window is not.
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
        """Pairs at most ``difference`` apart; ``before`` and ``after`` replace it on one side.

        >>> JoinWindows.of(timedelta(seconds=5), before=timedelta(0))
        JoinWindows(before_ms=0, after_ms=5000, grace_ms=0)

        Raises:
            ValueError: the difference, the grace or the length of the window is negative, or a side is missing.
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
        """Length of the window: before and after together."""
        return self.before_ms + self.after_ms


#: Windows that do not depend on records: those with ``windows_for``.
FixedWindows: TypeAlias = TimeWindows | UnlimitedWindows
#: All windows that ``windowed_by`` accepts.
Windows: TypeAlias = TimeWindows | SlidingWindows | SessionWindows | UnlimitedWindows
