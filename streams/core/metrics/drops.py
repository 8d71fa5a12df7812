"""Numbers of dropped records by node and reason, and the counts that are kept in runs over historical data."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from attrs import frozen

from streams.core.metrics.declared import Stat
from streams.core.metrics.table import DISORDER, DROPPED_FOR, KEYS_MISPLACED, KEYS_SAMPLED, LATE, PROCESSED

#: Times in milliseconds below which lateness is counted; above the last one they double.
_LATE_MS = tuple(
    round(seconds * 1000)
    for seconds in (0.1, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400)
)
#: The key of the description of a topic's misplaced keys, with the topic, among those of dropped records.
MISPLACED = "misplaced keys"


def late_bound(late_ms: int) -> int:
    """Return the time below which a lateness in milliseconds is counted: a grace longer by it keeps the record.

    >>> late_bound(0), late_bound(999), late_bound(1_000), late_bound(40 * 86_400_000) // 86_400_000
    (100, 1000, 5000, 60)
    """
    place = bisect_right(_LATE_MS, late_ms)
    return _LATE_MS[place] if place < len(_LATE_MS) else _LATE_MS[-1] << (late_ms // _LATE_MS[-1]).bit_length()


class Tally(NamedTuple):
    """The key of a count over all tasks of a run: the metric name, its node, topic or sub-topology, and the reason."""

    name: str
    place: str
    reason: str = ""

    def merged(self, one: int, other: int) -> int:
        """Return the sum of two counts with this key, or the larger of two out-of-orderness values."""
        return max(one, other) if self.is_disorder else one + other

    @property
    def is_disorder(self) -> bool:
        """Whether the count is the maximum out-of-orderness of an input topic."""
        return self.name == DISORDER.metric(Stat.VALUE).name

    @property
    def is_read(self) -> bool:
        """Whether the count is the number of records that the tasks of a sub-topology have read."""
        return self.name == PROCESSED.metric(Stat.TOTAL).name

    @property
    def is_drop(self) -> bool:
        """Whether the count is a number of dropped records."""
        return self.name == DROPPED_FOR.metric(Stat.TOTAL).name

    @property
    def is_late(self) -> bool:
        """Whether the count is a number of late records, by less than ``reason`` milliseconds."""
        return self.name == LATE.metric(Stat.TOTAL).name


@frozen
class Dropped:
    """The number of records dropped at one node for one reason; ``example`` describes the first one, if known."""

    node: str
    reason: str
    count: int
    example: str = ""

    def __str__(self) -> str:
        records = "record was" if self.count == 1 else "records were"
        first = f" ({'' if self.count == 1 else 'the first: '}{self.example})" if self.example else ""
        return f"{self.count:,} {records} dropped at {self.node}: {self.reason}{first}"


def dropped(tallies: Mapping[Tally, int], examples: Mapping[tuple[str, str], str]) -> list[Dropped]:
    """Return the dropped records by node and reason; ``examples`` maps (node, reason) to a description."""
    return [
        Dropped(tally.place or "unknown node", tally.reason, count, examples.get((tally.place, tally.reason), ""))
        for tally, count in tallies.items()
        if count and tally.is_drop
    ]


def dropped_by_node(drops: Iterable[Dropped]) -> dict[str, int]:
    """Return the total number of dropped records for each node."""
    result: dict[str, int] = {}
    for drop in drops:
        result[drop.node] = result.get(drop.node, 0) + drop.count
    return result


@frozen
class Misplaced:
    """The sampled keys of a topic that are not in their partition; ``example`` tells of the first one, and why it is.

    Records of such keys were processed; but joins may have found no partner for them, and aggregates may be apart.
    """

    topic: str
    count: int
    sampled: int
    example: str = ""

    def __str__(self) -> str:
        return f"{self.count:,} of {self.sampled:,} sampled keys are misplaced; {self.example}"


def misplaced(tallies: Mapping[Tally, int], examples: Mapping[tuple[str, str], str]) -> list[Misplaced]:
    """Return the misplaced keys by topic; ``examples`` also has the descriptions of dropped records."""
    counts: dict[str, int] = {}
    for tally, count in tallies.items():
        if tally.name == KEYS_MISPLACED.metric(Stat.TOTAL).name:
            counts[tally.place] = counts.get(tally.place, 0) + count
    sampled = KEYS_SAMPLED.metric(Stat.TOTAL).name
    return [
        Misplaced(topic, count, tallies.get(Tally(sampled, topic), count), examples.get((topic, MISPLACED), ""))
        for topic, count in sorted(counts.items())
    ]
