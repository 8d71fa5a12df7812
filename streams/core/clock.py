"""The clock: the only place of the project that reads the time.

Whoever needs the time gets a clock or the time as an argument.  Imports nothing of ours.
"""

import time
from typing import Protocol

from attrs import define


class Clock(Protocol):
    """Two times in milliseconds."""

    def now_ms(self) -> int:
        """Wall-clock time since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Time that never goes back, from any origin; for deadlines."""
        ...


@define
class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Wall-clock time since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Time since some moment before the start of the process."""
        return time.monotonic_ns() // 1_000_000


@define(eq=False)
class VirtualClock:
    """A clock that moves only when told to: for tests, simulation and replay.

    >>> clock = VirtualClock(1_000)
    >>> clock.advance(500)
    >>> clock.now_ms(), clock.monotonic_ms()
    (1500, 500)
    """

    _now_ms: int = 0
    _monotonic_ms: int = 0

    def now_ms(self) -> int:
        """Wall-clock time since the epoch."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Sum of all advances."""
        return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        """Move both times forward.

        Raises:
            ValueError: the step is negative.
        """
        if by_ms < 0:
            raise ValueError(f"a clock cannot be advanced by {by_ms} ms; use jump_to for the wall clock")
        self._now_ms += by_ms
        self._monotonic_ms += by_ms

    def advance_to(self, now_ms: int) -> None:
        """Advance until the wall clock shows a time; nothing if it is past it."""
        self.advance(max(0, now_ms - self._now_ms))

    def jump_to(self, now_ms: int) -> None:
        """Set the wall clock alone, backwards too, as an operator of the machine might."""
        self._now_ms = now_ms
