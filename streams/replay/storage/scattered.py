"""Rows of the lanes of a repartition topic that wait to be written together, and their division into row groups.

A task of a topology with many partitions writes a few records to each partition of a repartition topic.  They are kept
in the order in which the tasks wrote them, and sorted by lane when they are written.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attrs import define, field

from streams.core.blocks.records import Block, Headers, places_of
from streams.files import headers_array
from streams.replay.storage.columns import places_array
from streams.replay.storage.ranges import LaneRanges

#: A range with fewer rows shares a row group with its neighbours, up to this number of rows in all.
_SHARED_BELOW = 250
_SHARED_ROWS = 2_500


def row_groups(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Divide ranges of rows, given by their sizes, among row groups; yield the indexes of the ranges of each group."""
    shared: list[int] = []
    rows = 0
    for index, size in enumerate(sizes):
        if size >= _SHARED_BELOW:
            yield [index]
            continue
        if rows + size > _SHARED_ROWS:
            yield shared
            shared = []
            rows = 0
        shared.append(index)
        rows += size
    if shared:
        yield shared


def group_starts(starts: Sequence[int], size: int, most: int) -> list[int]:
    """Divide ``size`` rows among row groups of neighbouring ranges, which begin at ``starts``; return their first rows.

    A range with more than ``most`` rows is divided.

    >>> group_starts([0, 2_000, 2_400, 3_000], 13_500, 10_000)
    [0, 2400, 3000, 13000]
    """
    result = [0]
    for start, end in zip(starts, (*starts[1:], size), strict=True):
        if end - result[-1] > _SHARED_ROWS:
            result += range(start if start > result[-1] else start + most, end, most)
    return result


@define(eq=False)
class Scattered:
    """Rows of the lanes of a topic, as columns; ``next_offsets`` has the next offset of each lane."""

    next_offsets: Any
    _lanes: list[Any] = field(factory=list)
    _keys: list[bytes | None] = field(factory=list)
    _values: list[bytes | None] = field(factory=list)
    _timestamps: list[int] = field(factory=list)
    _places: list[int] = field(factory=list)
    #: None while no row has headers.
    _headers: list[Headers] | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def append(self, lanes: Any, block: Block) -> None:
        """Append rows to lanes, given as an array with the lane of each row."""
        self._lanes.append(lanes)
        if block.headers is not None and self._headers is None:
            self._headers = [()] * len(self._keys)
        self._keys += block.keys
        self._values += block.values
        self._timestamps += block.timestamps
        self._places += places_of(block)
        if self._headers is not None:
            self._headers += block.headers if block.headers is not None else [()] * len(block)

    def write(self, write_group: Callable[[Any], tuple[str, int]], most: int) -> LaneRanges:
        """Write all rows in row groups of neighbouring lanes with at most ``most`` rows, and remove them.

        ``write_group`` writes a batch as a row group, and returns its file and its number there.

        Raises:
            ReplayError: the file cannot be written.
        """
        import numpy as np

        size = len(self)
        batch, lanes, starts = self._take()
        groups = group_starts(starts.tolist(), size, most)
        places = [
            write_group(batch.slice(start, end - start)) for start, end in zip(groups, (*groups[1:], size), strict=True)
        ]
        files = {file: index for index, file in enumerate(dict.fromkeys(file for file, _ in places))}
        # A large lane has several row groups.
        firsts = np.union1d(starts, groups)
        group = np.searchsorted(groups, firsts, side="right") - 1
        columns = [
            lanes[np.searchsorted(starts, firsts, side="right") - 1],
            batch.column("offset").to_numpy()[firsts],
            np.diff(firsts, append=size),
            np.array([files[file] for file, _ in places])[group],
            np.array([number for _, number in places])[group],
            firsts - np.array(groups)[group],
        ]
        return LaneRanges(tuple(files), np.stack(columns).astype(np.int64))

    def _take(self) -> tuple[Any, Any, Any]:
        """Remove all rows, assign offsets to them, and return them as a batch sorted by lane.

        Also return the lane and the first row of each range.
        """
        import numpy as np
        import pyarrow as pa

        size = len(self._keys)
        lanes = np.concatenate(self._lanes)
        order = np.argsort(lanes, kind="stable")
        lanes = lanes[order]
        found, starts, counts = np.unique(lanes, return_index=True, return_counts=True)
        offsets = np.repeat(self.next_offsets[found] - starts, counts) + np.arange(size)
        self.next_offsets[found] += counts
        headers = headers_array(self._headers, size)
        columns = {
            "offset": pa.array(offsets),
            "key": pa.array(self._keys, pa.binary()).take(pa.array(order)),
            "value": pa.array(self._values, pa.binary()).take(pa.array(order)),
            "timestamp": pa.array(np.array(self._timestamps, dtype=np.int64)[order]),
            "headers": headers if self._headers is None else headers.take(pa.array(order)),
            "origin": pa.nulls(size, pa.int64()),
            "place": places_array(self._places, self._timestamps).take(pa.array(order)),
        }
        for column in (self._lanes, self._keys, self._values, self._timestamps, self._places):
            column.clear()
        self._headers = None
        return pa.RecordBatch.from_pydict(columns), found, starts
