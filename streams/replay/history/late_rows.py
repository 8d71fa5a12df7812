"""Late rows: rows of a history sorted by event time that were read after newer rows of their partition.

Each run sorts only the rows that it reads, so rows of a later run may be older than rows of an earlier run.  These late
rows stay after the earlier rows, as in a live run, until the history is repaired (``run.repair``).  An extent is
sorted, so its late rows are the rows that are older than the newest row of the preceding extents.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from attrs import define, field, frozen

from streams.core.blocks.records import NO_TIMESTAMP
from streams.core.event_time.time_texts import time_text
from streams.replay.history.growth import History
from streams.replay.storage.extents import Extents
from streams.replay.storage.segments import Extent, Segments
from streams.topology import Topology, sub_topologies

#: Maximum number of days, and of files, that a message names.
_NAMED = 5
DAY_MS = 86_400_000


@frozen
class ClosedWindows:
    """Windows of one node that had closed before late rows for them were read.

    ``count`` is the number of distinct windows over all keys, or None if windows depend on the records, as sessions do.
    ``start_ms`` and ``end_ms`` are the lowest start and the highest end of these windows, in epoch milliseconds.
    """

    node: str
    count: int | None
    start_ms: int
    end_ms: int

    def __str__(self) -> str:
        if self.count == 1:
            return f"{self.node}: the window {time_text(self.start_ms)} to {time_text(self.end_ms)}"
        many = "windows" if self.count is None else f"{self.count:,} windows"
        return f"{self.node}: {many} from {time_text(self.start_ms)} to {time_text(self.end_ms)}"


@frozen
class LateRows:
    """The late rows of an input: rows that are older than a row of the same partition that an earlier run has read.

    Times are epoch milliseconds.  ``days`` and ``files`` have the number of late rows by UTC day and by file.
    """

    topic: str
    count: int
    lowest_ms: int
    highest_ms: int
    #: The time of the newest row that was read before the late rows.
    read_up_to_ms: int
    days: Mapping[str, int]
    files: Mapping[str, int] = field(factory=dict)
    windows: tuple[ClosedWindows, ...] = ()

    def __str__(self) -> str:
        rows = "1 row is" if self.count == 1 else f"{self.count:,} rows are"
        text = f"topic {self.topic!r}: {rows} older than rows that were read before, which reach "
        text += f"{time_text(self.read_up_to_ms)}: {_listed(self.days, 'of')}"
        if self.files:
            text += f"; {_listed(self.files, 'in')}"
        if self.windows:
            text += f"; closed before: {'; '.join(map(str, self.windows))}"
        return text

    def to_json(self) -> dict[str, Any]:
        """Return the late rows as JSON-compatible values, with times as ISO 8601 text."""
        return {
            "topic": self.topic,
            "count": self.count,
            "first": time_text(self.lowest_ms),
            "last": time_text(self.highest_ms),
            "read_up_to": time_text(self.read_up_to_ms),
            "days": dict(self.days),
            "files": dict(self.files),
            "closed_windows": [
                {
                    "node": window.node,
                    "count": window.count,
                    "start": time_text(window.start_ms),
                    "end": time_text(window.end_ms),
                }
                for window in self.windows
            ],
        }


def _listed(counts: Mapping[str, int], word: str) -> str:
    named = [f"{count:,} {word} {name}" for name, count in list(counts.items())[:_NAMED]]
    rest = len(counts) - _NAMED
    return ", ".join(named) + (f" and {rest:,} more" if rest > 0 else "")


def late_extents(extents: Extents, reached_ms: int = NO_TIMESTAMP) -> Iterator[tuple[Extent, int]]:
    """Yield the extents of a partition that have late rows, each with the time of the newest row before it.

    ``reached_ms`` is the time of the newest row before all of ``extents``.
    """
    import numpy as np

    before_ms = np.maximum.accumulate(np.concatenate([[reached_ms], extents.highest_ms]))[:-1]
    for index in np.flatnonzero((extents.lowest_ms >= 0) & (extents.lowest_ms < before_ms)).tolist():
        yield extents[index], int(before_ms[index])


def find_late_rows(
    segments: Segments, topic: str, history: History, reached_ms: int, topology: Topology
) -> LateRows | None:
    """Return the late rows of a sorted history, or None if there are none.

    ``reached_ms`` is the time of the newest row before this history.

    Raises:
        ReplayError: a file is missing or damaged.
    """
    import pyarrow.compute as pc

    reader = segments.reader()
    times: Counter[tuple[int, int]] = Counter()
    files: Counter[str] = Counter()
    try:
        for extents in history.extents.values():
            for extent, before_ms in late_extents(extents, reached_ms):
                table = reader.table(extent, ["timestamp", "origin"])
                late = table.filter(pc.less(table.column("timestamp"), before_ms))
                times.update((time_ms, before_ms) for time_ms in late.column("timestamp").to_pylist() if time_ms >= 0)
                rows = (row for row in late.column("origin").to_pylist() if row is not None)
                files.update(place[0] for row in rows if (place := history.file_of(row)) is not None)
    finally:
        reader.close()
    if not times:
        return None
    days: Counter[str] = Counter()
    for (time_ms, _), count in sorted(times.items()):
        days[_day(time_ms)] += count
    times_ms = [time_ms for time_ms, _ in times]
    return LateRows(
        topic,
        times.total(),
        min(times_ms),
        max(times_ms),
        max(before_ms for _, before_ms in times),
        dict(days),
        dict(files.most_common()),
        tuple(_closed_windows(topology, topic, times)),
    )


def _day(time_ms: int) -> str:
    """Return the UTC day of an event time.

    >>> _day(0), _day(1 << 62)
    ('1970-01-01', '4611686018427387904 ms')
    """
    try:
        return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d}"
    except (OverflowError, ValueError, OSError):  # Outside the range of datetime.
        return f"{time_ms} ms"


@define
class _Bounds:
    """The time range and number of the windows of a node that were closed before late rows were read."""

    starts: set[int] = field(factory=set)
    lowest_ms: int = 1 << 62
    highest_ms: int = 0

    def add(self, start_ms: int, end_ms: int) -> None:
        self.lowest_ms = min(self.lowest_ms, start_ms)
        self.highest_ms = max(self.highest_ms, end_ms)


def _closed_windows(topology: Topology, topic: str, times: Iterable[tuple[int, int]]) -> Iterator[ClosedWindows]:
    """Yield the windows that had closed before the late records that belong to them were read, by node.

    ``times`` has the time of each late record, and that of the newest record before it.
    """
    late = list(times)
    for name in _nodes_below(topology, topic):
        windows: Any = getattr(getattr(topology.nodes[name], "operator", None), "windows", None)
        grace_ms = getattr(windows, "grace_ms", None)
        if grace_ms is None:
            continue  # Windows without a grace period, such as count windows, do not close by time.
        is_fixed = hasattr(windows, "windows_for")
        size_ms: int = windows.gap_ms if hasattr(windows, "gap_ms") else windows.size_ms
        end_of = windows.end_of if is_fixed else size_ms.__add__
        bounds = _Bounds()
        for time_ms, before_ms in late:
            starts: Sequence[int] = windows.windows_for(time_ms) if is_fixed else [time_ms]
            for start_ms in starts:
                if end_of(start_ms) + grace_ms <= before_ms:
                    bounds.starts.add(start_ms)
                    bounds.add(start_ms, end_of(start_ms) if is_fixed else start_ms)
        if bounds.starts:
            count = len(bounds.starts) if is_fixed else None
            yield ClosedWindows(name, count, bounds.lowest_ms, bounds.highest_ms)


def _nodes_below(topology: Topology, topic: str) -> list[str]:
    """Return the nodes that records of a topic may reach, also through repartition topics."""
    reached = {topic}
    nodes: dict[str, None] = {}
    subs = sub_topologies(topology, [topic])
    has_more = True
    while has_more:
        has_more = False
        for sub in subs:
            if reached.isdisjoint(sub.source_topics) or sub.nodes[0] in nodes:
                continue
            nodes |= dict.fromkeys(sub.nodes)
            reached |= set(sub.sink_topics)
            has_more = True
    return list(nodes)
