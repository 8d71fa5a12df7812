"""Late records in a run over historical data: how many each node drops, and how far the inputs are out of order.

In a live run late records are expected.  In files they mostly reflect how the files were written: if a job writes the
records of a day unsorted, nearly all of them are late.  A run over files reports the dropped share and its cause.  The
module is pure and imports only ``core`` and ``topology``.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from operator import sub

from attrs import define, frozen

from streams.core.bars import Bars, Charts
from streams.core.blocks.records import NO_TIMESTAMP, TaskId
from streams.core.errors import ConfigError
from streams.core.event_time.time_texts import span_text
from streams.core.metrics import LATE_REASONS, Counter, Tally, late_bound
from streams.topology import Topology, sub_topologies


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
    #: Numbers of records by the time in milliseconds by which a longer grace keeps them, ascending.
    by_grace: tuple[tuple[int, int], ...] = ()
    #: Whether the rows of each run over the topic were sorted, so that those of a later run are out of order.
    is_sorted: bool = False

    @property
    def share(self) -> float:
        """The ratio of dropped records to records read."""
        return self.count / self.read if self.read else 1.0

    def __str__(self) -> str:
        share = f"{self.share:.0%}" if self.share >= 0.1 else f"{self.share:.2%}"
        many = f"{self.count:,} of {self.read:,} records" if self.count <= self.read else f"{self.count:,} records"
        text = f"{self.node}: {many} dropped as late ({share})"
        if not self.disorder_ms:
            return f"{text}: their windows were already closed; increase grace{self._kept()}"
        if self.is_sorted:
            return (
                f"{text}: rows of topic {self.topic!r} came in a later run than rows that are newer by up to "
                f"{span_text(self.disorder_ms)}; sort them in with repair=True (--repair), or set grace to that"
            )
        return (
            f"{text}: history of topic {self.topic!r} is out of order by up to {span_text(self.disorder_ms)}; "
            "sort it by time (`streams replay --order event-time`), or set grace to that"
        )

    def bars(self) -> Bars:
        """Return the records by the time by which a grace would have to be longer, with the share that it keeps."""
        counts = dict(self.by_grace)
        total = sum(counts.values())
        last_ms = max(counts)
        bound_ms = min(counts)
        while bound_ms < last_ms:
            # The next one: no gap says that there is nothing between.
            bound_ms = late_bound(bound_ms)
            counts.setdefault(bound_ms, 0)
        rows = sorted(counts.items())
        sums = accumulate(count for _, count in rows)
        return Bars(
            f"{self.node}: {total:,} late records, by how much longer grace keeps them",
            tuple(
                (span_text(more_ms), count, f"(keeps {reached / total:.1%})")
                for (more_ms, count), reached in zip(rows, sums, strict=True)
            ),
        )

    def _kept(self) -> str:
        """Return which longer grace keeps half of the records or more, and which all."""
        total = sum(count for _, count in self.by_grace)
        reached = list(accumulate(count for _, count in self.by_grace))
        some = next((place for place, kept in enumerate(reached) if kept * 2 >= total), 0)
        if not total:
            return ""
        half = f"by {span_text(self.by_grace[some][0])} keeps {reached[some] / total:.0%} of them, "
        return f" ({half if reached[some] < total else ''}by {span_text(self.by_grace[-1][0])} all)"


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
    by_grace: dict[str, list[tuple[int, int]]] = {}
    for tally, count in tallies.items():
        if tally.is_drop:
            if tally.reason in LATE_REASONS:
                late[tally.place] = late.get(tally.place, 0) + count
        elif tally.is_late:
            by_grace.setdefault(tally.place, []).append((int(tally.reason), count))
        elif tally.is_disorder:
            disorder[tally.place] = count
        elif tally.is_read:
            read[tally.place] = count
    topic, most = max(disorder.items(), key=lambda item: item[1], default=("", 0))
    nodes = [
        Late(node, count, read.get(place_of.get(node, ""), 0), topic, most, tuple(sorted(by_grace.get(node, ()))))
        for node, count in late.items()
    ]
    return sorted(nodes, key=lambda one: (-one.count, one.node))


def charts_of(late: Iterable[Late], processed: Mapping[TaskId, int]) -> Charts:
    """Return how late records were by node, and how many records each partition of a sub-topology had, as bars."""
    bars = [one.bars() for one in late if one.by_grace]
    by_sub: dict[int, dict[int, int]] = {}
    for task, count in sorted(processed.items()):
        by_sub.setdefault(task.sub_topology, {})[task.partition] = count
    for sub_topology, counts in by_sub.items():
        total = sum(counts.values())
        if len(counts) > 1 and total:
            most = max(counts.values()) * len(counts) / total
            rows = tuple((str(partition), count, f"({count / total:.0%})") for partition, count in counts.items())
            title = f"sub-topology {sub_topology}: records by partition, the largest {most:.1f} times the average"
            bars.append(Bars(title, rows))
    return Charts(tuple(bars), "no record was late, and no sub-topology has records in several partitions")
