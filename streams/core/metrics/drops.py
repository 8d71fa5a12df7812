"""Numbers of dropped records by node and reason, and the counts that are kept in runs over historical data."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from attrs import frozen

from streams.core.metrics.declared import Stat
from streams.core.metrics.table import DISORDER, DROPPED_FOR


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
    def is_drop(self) -> bool:
        """Whether the count is a number of dropped records."""
        return self.name == DROPPED_FOR.metric(Stat.TOTAL).name


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


def dropped_by_node(found: Iterable[Dropped]) -> dict[str, int]:
    """Return the total number of dropped records for each node."""
    result: dict[str, int] = {}
    for drop in found:
        result[drop.node] = result.get(drop.node, 0) + drop.count
    return result
