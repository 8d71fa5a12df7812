"""Sensors: counters, and amounts with their averages, extremes and percentiles.

The owner of a sensor records without a lock; readers see recent values. Statistics over time are computed from the
state that the registry saves at the end of each sample window, so recording does not read the clock. This module
imports only ``core.metrics.declared`` and ``core.concurrency.threads``.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import define, field

from streams.core.concurrency.threads import copied
from streams.core.metrics.declared import Stat

#: Percentiles keep this many leading binary digits of an amount, so that they are exact to 1/16.
_DIGITS = 4
#: Initial minimum of a window; its negative is the initial maximum.
_HUGE = 1 << 80


class Sensor(Protocol):
    """A recorded quantity, from which statistics are computed."""

    def read(self, stat: Stat, now_ms: int) -> float | None:
        """Return a statistic at the monotonic time ``now_ms``, or None if the sample windows have no event."""
        ...

    def roll(self, now_ms: int) -> None:
        """End the current sample window at the monotonic time ``now_ms``."""
        ...


@define(eq=False)
class _Marks:
    """The time, count and sum at the start of the previous and of the current sample window."""

    before: tuple[int, int, int]
    last: tuple[int, int, int]

    def roll(self, now_ms: int, count: int, total: int) -> None:
        """Start a new sample window with the current count and sum."""
        self.before = self.last
        self.last = (now_ms, count, total)

    def since(self, now_ms: int, count: int, total: int) -> tuple[float, int, int]:
        """Return seconds (at least 1), count and sum since the start of the previous sample window."""
        start_ms, count_before, total_before = self.before
        return max(1.0, (now_ms - start_ms) / 1000), count - count_before, total - total_before


@define(eq=False)
class Counter:
    """A sensor that counts events; its owner may increment ``value`` directly."""

    value: int = 0
    _marks: _Marks = field(kw_only=True, factory=lambda: _Marks((0, 0, 0), (0, 0, 0)))

    @classmethod
    def since(cls, now_ms: int) -> "Counter":
        """Return a counter whose first sample window starts at the monotonic time ``now_ms``."""
        return cls(marks=_Marks((now_ms, 0, 0), (now_ms, 0, 0)))

    def add(self, count: int = 1) -> None:
        """Add ``count`` events."""
        self.value += count

    def read(self, stat: Stat, now_ms: int) -> float:
        """Return the total number of events, or their rate per second."""
        if stat is not Stat.RATE:
            return self.value
        seconds, count, _ = self._marks.since(now_ms, self.value, 0)
        return count / seconds

    def roll(self, now_ms: int) -> None:
        self._marks.roll(now_ms, self.value, 0)


@define(eq=False)
class Amounts:
    """A sensor of events that have an amount each, such as a duration in nanoseconds."""

    #: Rounded amounts of the current window with their counts, or None without percentiles.
    _sizes: dict[int, int] | None
    _marks: _Marks
    count: int = 0
    total: int = 0
    _lowest: int = _HUGE
    _highest: int = -_HUGE
    _sizes_before: dict[int, int] = field(factory=dict)
    _extremes_before: tuple[int, int] = (_HUGE, -_HUGE)
    #: Events that were counted without their amount: they are part of rates and totals only.
    untimed: Counter = field(factory=Counter)

    @classmethod
    def since(cls, now_ms: int, *, has_percentiles: bool) -> "Amounts":
        """Return a sensor whose first sample window starts at the monotonic time ``now_ms``."""
        marks = _Marks((now_ms, 0, 0), (now_ms, 0, 0))
        untimed = Counter.since(now_ms)
        return cls({} if has_percentiles else None, marks, untimed=untimed)

    def record(self, amount: int, count: int = 1) -> None:
        """Record ``count`` events with a total of ``amount``; each event counts with their average."""
        each = amount if count == 1 else amount // count
        self.record_spread(amount, count, each, each)

    def record_spread(self, amount: int, count: int, lowest: int, highest: int) -> None:
        """Record ``count`` events with a total of ``amount``, of which the lowest and the highest amount are known.

        For percentiles, each event counts with their average.
        """
        self.count += count
        self.total += amount
        if highest > self._highest:
            self._highest = highest
        if lowest < self._lowest:
            self._lowest = lowest
        sizes = self._sizes
        if sizes is not None:
            each = amount // count
            digits = each.bit_length() - _DIGITS
            size = each if digits <= 0 else each >> digits << digits
            sizes[size] = sizes.get(size, 0) + count

    def record_each(self, amounts: Sequence[int]) -> None:
        """Record one event for each amount; there must be at least one."""
        self.count += len(amounts)
        self.total += sum(amounts)
        self._highest = max(self._highest, max(amounts))
        self._lowest = min(self._lowest, min(amounts))
        sizes = self._sizes
        if sizes is not None:
            for each in amounts:
                digits = each.bit_length() - _DIGITS
                size = each if digits <= 0 else each >> digits << digits
                sizes[size] = sizes.get(size, 0) + 1

    def read(self, stat: Stat, now_ms: int) -> float | None:
        """Return a statistic of the recorded amounts, or None if the sample windows have no event."""
        if stat is Stat.TOTAL:
            return self.count + self.untimed.value
        if stat is Stat.SUM:
            return self.total
        seconds, count, total = self._marks.since(now_ms, self.count, self.total)
        if stat is Stat.RATE:
            return count / seconds + self.untimed.read(Stat.RATE, now_ms)
        if stat is Stat.RATIO:
            # An event that is longer than the window is counted when it ends.
            return min(1.0, total / (seconds * 1e9))
        if stat is Stat.AVG:
            return total / count if count else None
        if stat is Stat.MIN:
            lowest = min(self._extremes_before[0], self._lowest)
            return None if lowest == _HUGE else lowest
        if stat is Stat.MAX:
            highest = max(self._extremes_before[1], self._highest)
            return None if highest == -_HUGE else highest
        return self._percentile(0.5 if stat is Stat.P50 else 0.99)

    def recent(self) -> int:
        """Return the sum of the amounts since the start of the previous sample window."""
        return self.total - self._marks.before[2]

    def _percentile(self, share: float) -> float | None:
        merged = dict(self._sizes_before)
        for size, count in copied(self._sizes or {}).items():
            merged[size] = merged.get(size, 0) + count
        rank = share * sum(merged.values())
        for size in sorted(merged):
            rank -= merged[size]
            if rank <= 0:
                # The midpoint of the amounts that are rounded to this size.
                digits = size.bit_length() - _DIGITS
                return size + ((1 << digits) - 1) / 2 if digits > 0 else size
        return None

    def roll(self, now_ms: int) -> None:
        self._marks.roll(now_ms, self.count, self.total)
        self.untimed.roll(now_ms)
        self._extremes_before = (self._lowest, self._highest)
        self._lowest = _HUGE
        self._highest = -_HUGE
        if self._sizes is not None:
            self._sizes_before = self._sizes
            self._sizes = {}


@define(eq=False)
class Stopwatch:
    """Records the duration of a ``with`` block, in nanoseconds, in a sensor."""

    amounts: Amounts
    _monotonic_ns: Callable[[], int]
    _start_ns: int = 0

    def __enter__(self) -> None:
        self._start_ns = self._monotonic_ns()

    def __exit__(self, *_: object) -> None:
        self.amounts.record(self._monotonic_ns() - self._start_ns)
