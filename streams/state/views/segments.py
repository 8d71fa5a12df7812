"""Time segments, which are the namespaces of a windowed store: their selection and expiry.

A store keeps entries in segments of equal length and drops whole segments. Persistent stores of Kafka Streams use
long segments (half the retention, at least a minute), in which entries are sorted by key. Its in-memory stores
sort by time first, which is equivalent to one segment per millisecond. This module imports no other module of the
package.
"""

from collections.abc import Iterable

from attrs import define, field

NO_TIME = -1
MIN_SEGMENT_MS = 60_000
#: Additional retention of a windowed changelog, beyond that of its store: one day, as in Kafka Streams.
_CHANGELOG_ADDITIONAL_MS = 86_400_000
#: Maximum duration in Kafka, in milliseconds.
_LONGEST_MS = (1 << 63) - 1


def topic_retention_ms(kept_ms: int) -> str:
    """Return the changelog topic setting ``retention.ms`` for a store that keeps records for ``kept_ms``."""
    return str(min(kept_ms + _CHANGELOG_ADDITIONAL_MS, _LONGEST_MS))


def segment_interval_ms(retention_ms: int) -> int:
    """Return the segment length of a persistent windowed store in milliseconds."""
    return max(retention_ms // 2, MIN_SEGMENT_MS)


def versioned_segment_interval_ms(history_ms: int) -> int:
    """Return the segment length of a versioned store in milliseconds; longer histories have more segments."""
    if history_ms <= 60_000:
        return max(history_ms // 3, 2_000)
    if history_ms <= 300_000:
        return max(history_ms // 5, 20_000)
    if history_ms <= 3_600_000:
        return max(history_ms // 12, 60_000)
    return max(history_ms // 24, 300_000)


@define(eq=False)
class TimeBounds:
    """The bounds on reads, writes and expiry that follow from the observed stream time.

    ``observed_ms`` is the highest window start (or session end) that was put so far, initially -1.
    """

    retention_ms: int
    interval_ms: int
    #: True for in-memory semantics, in which a record exactly at the retention limit is also dropped.
    is_exact: bool = False
    observed_ms: int = NO_TIME
    #: Entries that start (or end, for sessions) earlier are not visible to reads.
    visible_from_ms: int = field(init=False)
    #: Entries that start (or end, for sessions) earlier are dropped.
    accepted_from_ms: int = field(init=False)
    #: Segments with lower numbers are dropped.
    first_live: int = field(init=False)
    #: The observed time at which the first live segment expires.
    _next_death_ms: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._update()

    def _update(self) -> None:
        horizon = self.observed_ms - self.retention_ms
        self.visible_from_ms = horizon + 1
        self.first_live = self.segment(horizon + 1 if self.is_exact else horizon)
        self._next_death_ms = (self.first_live + 1) * self.interval_ms + self.retention_ms - self.is_exact
        # There is no bound before time 0, because there are no earlier segments.
        self.accepted_from_ms = self.first_live * self.interval_ms if self.first_live > 0 else NO_TIME

    def observe(self, time_ms: int) -> bool:
        """Advance the observed stream time; return whether any segments expire."""
        if time_ms <= self.observed_ms:
            return False
        self.observed_ms = time_ms
        if time_ms < self._next_death_ms:
            self.visible_from_ms = time_ms - self.retention_ms + 1
            return False
        self._update()
        return True

    def segment(self, time_ms: int) -> int:
        """Return the number of the segment that contains a time; times before 0 are in the first segment."""
        return time_ms // self.interval_ms if time_ms > 0 else 0

    def segments(self, times: Iterable[int]) -> list[int]:
        """Return the number of the segment for each of several times."""
        interval_ms = self.interval_ms
        return [time_ms // interval_ms if time_ms > 0 else 0 for time_ms in times]
