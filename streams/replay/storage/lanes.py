"""Merges the lanes of a repartition topic's partition into one input of a task.

A lane contains the records of one producing task.  With many partitions most lanes have few records, and a separate
input costs as much as some hundred records.  The order is that of a task which has the lanes as separate inputs: the
record with the lowest head timestamp is next; of equal timestamps, the first lane has precedence (``runtime.order``).
"""

from collections.abc import Iterable, Iterator
from typing import Any

from streams.core.records import NO_TIMESTAMP, Block
from streams.replay.storage.ranges import LaneRanges
from streams.replay.storage.segments import Extent, ExtentReader, block_of

#: Records of one block of merged lanes.
_BLOCK_ROWS = 10_000


def ranges_of(items: Iterable[tuple[int, Extent]]) -> LaneRanges:
    """Return the ranges of extents, given with their lanes."""
    import numpy as np

    files: dict[str, int] = {}
    rows = [
        (lane, extent.first, extent.rows, files.setdefault(extent.file, len(files)), extent.group, extent.start)
        for lane, extent in items
    ]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    return LaneRanges(tuple(files), columns[:, np.argsort(columns[0], kind="stable")])


def extents_of(ranges: LaneRanges) -> dict[int, list[Extent]]:
    """Return ranges as extents, whose times are not known, by lane."""
    result: dict[int, list[Extent]] = {}
    for lane, first, rows, file, group, start in ranges.columns.T.tolist():
        place = ranges.files[file], group
        extent = Extent(*place, first, first + rows - 1, rows, NO_TIMESTAMP, NO_TIMESTAMP, start)
        result.setdefault(lane, []).append(extent)
    return result


def merged_lanes(reader: ExtentReader, ranges: LaneRanges, first: int, positions: Any) -> Iterator[Block]:
    """Yield the unread records of neighbouring lanes in the order of processing.

    A lane contains the records of one producing task.  ``positions`` has the next offset to read of each lane, and
    ``first`` is the number of the first lane.  All records are in memory.  Offsets are those of the lanes, so they are
    not ascending.

    Raises:
        ReplayError: a file is missing or damaged.
    """
    import pyarrow as pa

    if not len(ranges):
        return
    table = _table(reader, ranges)
    order = pa.array(_order(table, ranges, first, positions))
    for start in range(0, len(order), _BLOCK_ROWS):
        yield block_of(table.take(order[start : start + _BLOCK_ROWS]))


def _table(reader: ExtentReader, ranges: LaneRanges) -> Any:
    """Return the records of ranges as one Arrow table, in their order."""
    import numpy as np
    import pyarrow as pa

    _, _, sizes, file, group, start = ranges.columns
    # Ranges that are next to each other in a row group are read together.
    is_next = (file[1:] == file[:-1]) & (group[1:] == group[:-1]) & (start[1:] == start[:-1] + sizes[:-1])
    firsts = np.concatenate([[0], np.flatnonzero(~is_next) + 1])
    rows = np.add.reduceat(sizes, firsts).tolist()
    places = zip(file[firsts].tolist(), group[firsts].tolist(), start[firsts].tolist(), rows, strict=True)
    return pa.concat_tables([reader.section(ranges.files[at], *place) for at, *place in places])


def _order(table: Any, ranges: LaneRanges, first: int, positions: Any) -> Any:
    """Return the indexes of the unread rows of a table in processing order."""
    import numpy as np

    lane = np.repeat(ranges.columns[0] - first, ranges.columns[2])
    times = table.column("timestamp").to_numpy()
    rows = np.arange(len(lane))
    if positions.any():
        is_unread = table.column("offset").to_numpy() >= positions[lane]
        lane, times, rows = lane[is_unread], times[is_unread], rows[is_unread]
    # The place of a record is the highest time of its lane so far.
    is_late = (times[1:] < times[:-1]) & (lane[1:] == lane[:-1])
    if is_late.any():
        times = times.copy()
        for late in np.unique(lane[1:][is_late]):
            own = lane == late
            times[own] = np.maximum.accumulate(times[own])
    return rows[np.argsort(times, kind="stable")]
