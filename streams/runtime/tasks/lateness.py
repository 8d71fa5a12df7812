"""Late records in a run over historical data: how many each node drops, and how far the inputs are out of order.

In a live run late records are expected.  In files they mostly reflect how the files were written: if a job writes the
records of a day unsorted, nearly all of them are late.  A run over files reports the dropped share and its cause.  The
module is pure and imports only ``core`` and ``topology``.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from operator import sub

from attrs import define, frozen

from streams.core.blocks.records import NO_TIMESTAMP
from streams.core.errors import ConfigError
from streams.core.metrics import LATE_REASONS, Counter, Tally
from streams.topology import Topology, sub_topologies

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))


@define(eq=False)
class Disorder:
    """The disorder of a partition: the maximum time by which a record is older than a record with a lower offset."""

    counter: Counter
    _highest_ms: int = NO_TIMESTAMP

    def observe(self, times: Sequence[int]) -> None:
        """Add the timestamps of the next records."""
        if not times:
            return
        ordered = sorted(times)  # If the times are in order, this is faster than finding the minimum.
        lowest = ordered[0]
        highest = ordered[-1]
        # Records are skipped if they cannot change the result: a larger lag is already known, or all are in order.
        if max(highest, self._highest_ms) - lowest > self.counter.value and (
            lowest < self._highest_ms or ordered != times
        ):
            reached = accumulate(times, max, initial=self._highest_ms)
            next(reached)
            self.counter.value = max(self.counter.value, *map(sub, reached, times))
        self._highest_ms = max(self._highest_ms, highest)


@frozen
class Late:
    """Records that were dropped at one node because they were late.

    ``read`` is the number of records that the tasks of the node have read.  As in Kafka Streams, a record is counted
    once for each window for which it is late, so ``count`` may exceed ``read``.
    """

    node: str
    count: int
    read: int
    #: The input topic with the largest disorder, and that disorder in milliseconds; "" and 0 without disorder.
    topic: str = ""
    disorder_ms: int = 0

    @property
    def share(self) -> float:
        """The ratio of dropped records to records read."""
        return self.count / self.read if self.read else 1.0

    def __str__(self) -> str:
        share = f"{self.share:.0%}" if self.share >= 0.1 else f"{self.share:.2%}"
        many = f"{self.count:,} of {self.read:,} records" if self.count <= self.read else f"{self.count:,} records"
        text = f"{self.node}: {many} dropped as late ({share})"
        if not self.disorder_ms:
            return f"{text}: their windows were already closed; increase grace"
        return (
            f"{text}: history of topic {self.topic!r} is out of order by up to {span_text(self.disorder_ms)}; "
            "sort it by time (order event_time of a replay), or set grace to that"
        )


@frozen
class DropLimit:
    """The limit on records that one node may drop as late: a share of the records read by its tasks, or a count.

    A share may be above 100 %, since a record counts once for each window for which it is late.
    """

    text: str
    share: float | None = None
    count: int = 0

    @classmethod
    def of(cls, limit: str | int) -> "DropLimit":
        """Parse a limit such as ``1%`` or ``1000``.

        Raises:
            ConfigError: ``limit`` is neither a share nor a number of records.
        """
        text = str(limit).strip()
        try:
            is_share = text.endswith("%")
            parsed = cls(text, share=float(text[:-1]) / 100) if is_share else cls(text, count=int(text))
            if parsed.count < 0 or not 0 <= (parsed.share or 0) < float("inf"):
                raise ValueError(text)
        except ValueError:
            raise ConfigError(f"max_dropped {limit!r}: give a share such as 1%, or a number of records") from None
        return parsed

    def exceeded(self, late: Iterable[Late]) -> list[Late]:
        """Return the elements of ``late`` that exceed the limit."""
        return [one for one in late if (one.share > self.share if self.share is not None else one.count > self.count)]


def late_of(topology: Topology, tallies: Mapping[Tally, int]) -> list[Late]:
    """Return the late records by node, the largest count first, each with the topic of the largest disorder."""
    place_of = {name: str(sub.id) for sub in sub_topologies(topology) for name in (*sub.nodes, *sub.stores)}
    late: dict[str, int] = {}
    read: dict[str, int] = {}
    disorder: dict[str, int] = {}
    for tally, count in tallies.items():
        if tally.is_drop:
            if tally.reason in LATE_REASONS:
                late[tally.place] = late.get(tally.place, 0) + count
        elif tally.is_disorder:
            disorder[tally.place] = count
        elif tally.is_read:
            read[tally.place] = count
    topic, most = max(disorder.items(), key=lambda item: item[1], default=("", 0))
    found = [Late(node, count, read.get(place_of.get(node, ""), 0), topic, most) for node, count in late.items()]
    return sorted(found, key=lambda one: (-one.count, one.node))


def span_text(span_ms: int) -> str:
    """Format a duration in milliseconds with its two largest units.

    >>> span_text(350), span_text(86_399_000), span_text(3_600_000)
    ('350 ms', '23 h 59 min', '1 h')
    """
    parts: list[str] = []
    for size, unit in _UNITS:
        if span_ms >= size and len(parts) < 2:
            parts.append(f"{span_ms // size} {unit}")
            span_ms %= size
        elif parts:
            break
    return " ".join(parts) or "0 ms"
