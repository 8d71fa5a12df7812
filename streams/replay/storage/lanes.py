"""Lanes of a repartition topic: ranges of their records, located in columns, and rows that wait to be written.

A partition of a repartition topic is stored as lanes, one for each producing task.  The number of lanes grows as the
square of the number of partitions, and most have few records, so one object for each would cost more than the records.
A lane's number is that of its partition times the number of producing tasks, plus the index of the task.

Rows wait in the order in which the tasks wrote them, and are sorted by lane when they are written together.
"""

import zlib
from base64 import b85decode, b85encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from attrs import define, field, frozen

from streams.core.blocks.records import Block, Headers, places_of
from streams.replay.storage.columns import places_array
from streams.values import headers_array


def _no_columns() -> Any:
    import numpy as np

    return np.zeros((6, 0), dtype=np.int64)


def _no_offsets() -> Any:
    import numpy as np

    return np.zeros(0, dtype=np.int64)


@frozen(eq=False)
class LaneRanges:
    """Ranges of records of the lanes of one topic, sorted by lane; those of a lane are in the order of their offsets.

    ``columns`` are the rows of an array of integers: lane, offset of the first record, number of records (whose offsets
    have no gaps), index of the file in ``files``, row group, and index of the first record within the row group.
    """

    files: tuple[str, ...] = ()
    columns: Any = field(factory=_no_columns)

    @classmethod
    def joined(cls, parts: Sequence["LaneRanges"]) -> "LaneRanges":
        """Return the ranges of all parts; of a lane, those of earlier parts come first."""
        import numpy as np

        if len(parts) == 1:
            return parts[0]
        files: dict[str, int] = {}
        tables = [_no_columns()]
        for part in parts:
            columns = part.columns.copy()
            numbers = np.array([files.setdefault(file, len(files)) for file in part.files], dtype=np.int64)
            columns[3] = numbers[columns[3]]
            tables.append(columns)
        columns = np.concatenate(tables, axis=1)
        return cls(tuple(files), columns[:, np.argsort(columns[0], kind="stable")])

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    @property
    def rows(self) -> int:
        """The number of records."""
        return int(self.columns[2].sum())

    @property
    def ends(self) -> Any:
        """The offset after the last record of each range."""
        return self.columns[1] + self.columns[2]

    def split(self, bounds: Any) -> list["LaneRanges"]:
        """Divide the ranges at numbers of lanes, given in ascending order; return the ranges between each two."""
        import numpy as np

        places = np.searchsorted(self.columns[0], bounds).tolist()
        return [LaneRanges(self.files, self.columns[:, start:end]) for start, end in pairwise(places)]

    def where(self, chosen: Any) -> "LaneRanges":
        """Return the ranges for which an array of booleans is true, with the files that they need."""
        import numpy as np

        columns = self.columns[:, chosen]
        used, columns[3] = np.unique(columns[3], return_inverse=True)
        return LaneRanges(tuple(self.files[index] for index in used.tolist()), columns)

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_packed, (self.files, packed(self.columns))


def _of_packed(files: tuple[str, ...], data: bytes) -> LaneRanges:
    return LaneRanges(files, unpacked(data, 6))


@define(eq=False)
class LaneTable:
    """The lanes of a repartition topic in a replay: the ranges that were not read yet, and the offsets of all lanes."""

    #: Next offset to write, and to read, by lane; lanes after the last one have 0.
    ends: Any = field(factory=_no_offsets)
    positions: Any = field(factory=_no_offsets)
    _parts: list[LaneRanges] = field(factory=list)

    def copy(self) -> "LaneTable":
        """Return an independent copy."""
        return LaneTable(self.ends.copy(), self.positions.copy(), list(self._parts))

    @property
    def ranges(self) -> LaneRanges:
        """The ranges with records that were not read yet."""
        self._parts = [LaneRanges.joined(self._parts)]
        return self._parts[0]

    def add(self, ranges: LaneRanges) -> None:
        """Add ranges of records after those of the same lanes."""
        import numpy as np

        if len(ranges):
            self._parts.append(ranges)
            lanes = ranges.columns[0]
            self.ends = _grown(self.ends, int(lanes[-1]) + 1)
            np.maximum.at(self.ends, lanes, ranges.ends)

    def read(self, first: int, positions: Any) -> None:
        """Set the next offsets to read of consecutive lanes, of which ``first`` is the first."""
        self.positions = _grown(self.positions, first + len(positions))
        self.positions[first : first + len(positions)] = positions

    def positions_of(self, first: int, count: int) -> Any:
        """Return the next offsets to read of consecutive lanes."""
        return _grown(self.positions[first : first + count], count)

    def ends_of(self, first: int, width: int) -> Any:
        """Return the next offsets to write of every ``width``-th lane."""
        return self.ends[first::width].copy()

    def forget_read(self) -> None:
        """Drop the ranges that were read."""
        ranges = self.ranges
        if len(ranges):
            lanes = ranges.columns[0]
            is_left = ranges.ends > _grown(self.positions, int(lanes[-1]) + 1)[lanes]
            if not is_left.all():
                self._parts = [ranges.where(is_left)]

    def moved(self, files: Mapping[str, str]) -> "LaneTable":
        """Return a copy whose files have other names."""
        ranges = self.ranges
        names = tuple(files[file] for file in ranges.files)
        return LaneTable(self.ends.copy(), self.positions.copy(), [LaneRanges(names, ranges.columns)])

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON-compatible values."""
        import numpy as np

        size = max(len(self.ends), len(self.positions))
        # Nearly all lanes were read to their ends.
        offsets = np.stack([_grown(self.positions, size), _grown(self.ends, size) - _grown(self.positions, size)])
        return {
            "files": list(self.ranges.files),
            "ranges": b85encode(packed(self.ranges.columns)).decode(),
            "offsets": b85encode(packed(offsets)).decode(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "LaneTable":
        """Return the table from the values of ``to_json``."""
        positions, unread = unpacked(b85decode(data["offsets"]), 2)
        ranges = LaneRanges(tuple(data["files"]), unpacked(b85decode(data["ranges"]), 6))
        return cls(positions + unread, positions, [ranges])


def _grown(array: Any, size: int) -> Any:
    """Return an array with zeros at its end, so that it has at least ``size`` values."""
    import numpy as np

    return array if len(array) >= size else np.concatenate([array, np.zeros(size - len(array), dtype=np.int64)])


def packed(rows: Any) -> bytes:
    """Compress the rows of a two-dimensional array of integers, which may be ascending or repeat themselves."""
    import numpy as np

    steps = np.diff(rows, axis=1, prepend=0)
    # Small steps in either direction become small numbers, whose higher bytes are zeros and are stored together.
    small = ((steps << 1) ^ (steps >> 63)).astype("<i8")
    count, size = small.shape
    planes = np.ascontiguousarray(small).view(np.uint8).reshape(count, size, 8).transpose(0, 2, 1)
    return zlib.compress(planes.tobytes(), 1)


def unpacked(data: bytes, count: int) -> Any:
    """Return the array with ``count`` rows that ``packed`` has compressed."""
    import numpy as np

    planes = np.frombuffer(zlib.decompress(data), dtype=np.uint8).reshape(count, 8, -1)
    small = np.ascontiguousarray(planes.transpose(0, 2, 1)).view("<i8").reshape(count, -1).astype(np.int64)
    return np.cumsum((small >> 1) & 0x7FFF_FFFF_FFFF_FFFF ^ -(small & 1), axis=1)


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
    #: Maximum number of rows in one row group.
    _most: int
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

    def write(self, write_group: Callable[[Any], tuple[str, int]]) -> LaneRanges:
        """Write all rows in row groups of neighbouring lanes, and remove them.

        ``write_group`` writes a batch as a row group, and returns its file and its number there.

        Raises:
            ReplayError: the file cannot be written.
        """
        import numpy as np

        size = len(self)
        batch, lanes, starts = self._take()
        groups = group_starts(starts.tolist(), size, self._most)
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
        numbers, starts, counts = np.unique(lanes, return_index=True, return_counts=True)
        offsets = np.repeat(self.next_offsets[numbers] - starts, counts) + np.arange(size)
        self.next_offsets[numbers] += counts
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
        return pa.RecordBatch.from_pydict(columns), numbers, starts
