"""Merges the lanes of a repartition topic's partition into one input of a task.

A lane contains the records of one producing task.  With many partitions most lanes have few records, and a separate
input costs as much as some hundred records.  The order is that of a task which has the lanes as separate inputs: the
record with the lowest place is next; of equal places, the first lane has precedence (``runtime.tasks.order``).
"""

from collections.abc import Iterable, Iterator
from typing import Any

from attrs import define

from streams.core.blocks.records import NO_TIMESTAMP, Block
from streams.replay.storage.columns import block_of, places_in
from streams.replay.storage.ranges import LaneRanges
from streams.replay.storage.segments import Extent, ExtentReader

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


@define(eq=False)
class MergedLanes:
    """The unread records of neighbouring lanes, which hold the records of one producing task each, as one input.

    Unless the lanes end here, only the records are read whose order is certain: after the last known record of a lane,
    any record of this lane may follow.  All records are in memory.
    """

    #: The next offset to read of each lane.
    _positions: Any
    #: The records, with the indexes of the certain ones in the order of processing, and the lanes of these.
    _table: Any
    _order: Any
    _lanes: Any

    @classmethod
    def read(
        cls, reader: ExtentReader, ranges: LaneRanges, first: int, positions: Any, *, is_ended: bool = True
    ) -> "MergedLanes":
        """Read the ranges of lanes, of which ``first`` is the number of the first one.

        Raises:
            ReplayError: a file is missing or damaged.
        """
        import numpy as np

        if not len(ranges):
            return cls(positions, None, np.zeros(0, np.int64), np.zeros(0, np.int64))
        table = _table(reader, ranges)
        lane = np.repeat(ranges.columns[0] - first, ranges.columns[2])
        order = _order(table, lane, positions)
        if not is_ended:
            order = order[: _certain(lane[order], len(positions))]
        return cls(positions, table, order, lane[order])

    def __len__(self) -> int:
        return len(self._order)

    def blocks(self) -> Iterator[Block]:
        """Yield the records; their offsets are those of the lanes, so they are not ascending."""
        import pyarrow as pa

        for start in range(0, len(self), _BLOCK_ROWS):
            yield block_of(self._table.take(pa.array(self._order[start : start + _BLOCK_ROWS])))

    def positions_after(self, count: int) -> Any:
        """Return the next offset to read of each lane after the first ``count`` records."""
        import numpy as np

        positions = self._positions.copy()
        if count:
            offsets = self._table.column("offset").to_numpy()[self._order[:count]]
            np.maximum.at(positions, self._lanes[:count], offsets + 1)
        return positions


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
    table = pa.concat_tables([reader.section(ranges.files[at], *place) for at, *place in places])
    if table.column("headers").null_count == table.num_rows:
        # To take rows of this nested column costs as much as all others.
        table = table.set_column(table.column_names.index("headers"), "headers", pa.nulls(table.num_rows))
    return table


def _order(table: Any, lane: Any, positions: Any) -> Any:
    """Return the indexes of the unread rows of a table in processing order; ``lane`` has the lane of each row."""
    import numpy as np

    column = places_in(table)
    places = (table.column("timestamp") if column is None else column).to_numpy()
    rows = np.arange(len(lane))
    if positions.any():
        is_unread = table.column("offset").to_numpy() >= positions[lane]
        places = places[is_unread]
        rows = rows[is_unread]
    # The places of a lane never descend.
    return rows[np.argsort(places, kind="stable")]


def _certain(lanes: Any, count: int) -> int:
    """Return how many records can have no further record before them, given their lanes in processing order.

    These are the records up to the last one of the lane that ends first; none, if one of ``count`` lanes has no record.
    """
    import numpy as np

    last = np.full(count, -1)
    np.maximum.at(last, lanes, np.arange(len(lanes)))
    return int(last.min()) + 1
