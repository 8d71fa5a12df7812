"""The clock: the only module that reads the time.

All other code receives a clock, or the time, as an argument. This module imports no other module of the package.
"""

import time
from operator import index
from typing import Final, Protocol

from attrs import define, field

# Waiting takes no time under a virtual clock; after this many polls without progress no response is expected.
_FRUITLESS_LIMIT: Final = 100


class Clock(Protocol):
    """Wall-clock time and monotonic time."""

    def now_ms(self) -> int:
        """Wall-clock time in epoch milliseconds."""
        ...

    def monotonic_ms(self) -> int:
        """Monotonic time in milliseconds from an arbitrary origin, for deadlines."""
        ...

    def monotonic_ns(self) -> int:
        """Monotonic time in nanoseconds, to measure durations."""
        ...


@define
class SystemClock:
    """Reads the time of the machine; the only place that does.

    Monotonic time is read in a way that ``freezegun`` does not freeze: in a test, the wall clock stands still, and
    waits still end.
    """

    def now_ms(self) -> int:
        """Wall-clock time in epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Monotonic time in milliseconds from an arbitrary origin."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000

    def monotonic_ns(self) -> int:
        """Monotonic time in nanoseconds."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


@define(eq=False)
class VirtualClock:
    """A clock that advances only by calls of its methods, for tests, simulation and replay.

    >>> clock = VirtualClock(1_000)
    >>> clock.advance(500)
    >>> clock.now_ms(), clock.monotonic_ms()
    (1500, 500)

    Raises:
        TypeError: a time is no int: records have their times from clocks.
    """

    _now_ms: int = field(default=0, converter=index)
    _monotonic_ms: int = field(default=0, init=False)

    def now_ms(self) -> int:
        """Wall-clock time in epoch milliseconds."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """The sum of all advances in milliseconds, as monotonic time."""
        return self._monotonic_ms

    def monotonic_ns(self) -> int:
        """The sum of all advances in nanoseconds, as monotonic time."""
        return self._monotonic_ms * 1_000_000

    def advance(self, by_ms: int) -> None:
        """Advance wall-clock and monotonic time by ``by_ms`` milliseconds.

        Raises:
            TypeError: ``by_ms`` is no int.
            ValueError: ``by_ms`` is negative.
        """
        by_ms = index(by_ms)
        if by_ms < 0:
            raise ValueError(f"a clock cannot be advanced by {by_ms} ms; use jump_to for the wall clock")
        self._now_ms += by_ms
        self._monotonic_ms += by_ms

    def advance_to(self, now_ms: int) -> None:
        """Advance both times until the wall clock is at ``now_ms``; do nothing if the wall clock is already later."""
        self.advance(max(0, now_ms - self._now_ms))

    def jump_to(self, now_ms: int) -> None:
        """Set only the wall clock, possibly to an earlier time, as a correction of the system time does."""
        self._now_ms = index(now_ms)


@define(eq=False)
class Deadline:
    """The deadline of a wait, which also ends if there is no progress while a virtual clock stands still."""

    _clock: Clock
    deadline_ms: int
    _seen_ms: int = -1
    _fruitless: int = 0

    def remaining_ms(self, *, has_progress: bool) -> int:
        """Return the remaining milliseconds, or 0 when the wait is over."""
        now = self._clock.monotonic_ms()
        if has_progress or now != self._seen_ms:
            self._fruitless = 0
            self._seen_ms = now
        else:
            self._fruitless += 1
            if self._fruitless >= _FRUITLESS_LIMIT:
                return 0
        return max(0, self.deadline_ms - now)
