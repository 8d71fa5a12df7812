"""Merges the lanes of a repartition topic's partition into one input of a task.

A lane contains the records of one producing task.  With many partitions most lanes have few records, and a separate
input costs as much as some hundred records.  The order is that of a task which has the lanes as separate inputs: the
record with the lowest head timestamp is next; of equal timestamps, the first lane has precedence (``runtime.order``).
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from streams.core.records import Block
from streams.replay.storage.segments import Extent, ExtentReader

#: Records of one block of merged lanes.
_BLOCK_ROWS = 10_000


def merged_lanes(reader: ExtentReader, lanes: Sequence[tuple[Sequence[Extent], int]]) -> Iterator[Block]:
    """Yield the records of lanes, each given as (extents, position of the next record), in the order of processing.

    A lane contains the records of one producing task.  All records are in memory.  Offsets are those of the lanes, so
    they are not ascending.

    Raises:
        ReplayError: a file is missing or damaged.
    """
    extents = [(number, extent) for number, (found, _) in enumerate(lanes) for extent in found]
    if not extents:
        return
    block = _joined(reader, [extent for _, extent in extents])
    order = _order(block, extents, [position for _, position in lanes])
    for start in range(0, len(order), _BLOCK_ROWS):
        yield _picked(block, order[start : start + _BLOCK_ROWS])


def _joined(reader: ExtentReader, extents: Iterable[Extent]) -> Block:
    """Return the records of all extents as one block, in the order of the extents, with the offsets in the files."""
    blocks = [reader.rows(extent) for extent in _adjoining(extents)]
    if len(blocks) == 1:
        return blocks[0]
    has_headers = any(block.headers is not None for block in blocks)
    keys, values, times, offsets = (
        [item for block in blocks for item in column(block)]
        for column in (attrgetter("keys"), attrgetter("values"), attrgetter("timestamps"), attrgetter("offsets"))
    )
    headers = [item for block in blocks for item in (block.headers or [()] * len(block))] if has_headers else None
    return Block(keys, values, times, headers, offsets)


def _adjoining(extents: Iterable[Extent]) -> Iterator[Extent]:
    """Yield extents; those that are adjacent in a row group are combined."""
    last: Extent | None = None
    for extent in extents:
        if last is not None:
            end = last.start + last.rows
            if (last.file, last.group, end) == (extent.file, extent.group, extent.start):
                last = last._replace(rows=last.rows + extent.rows)
                continue
            yield last
        last = extent
    if last is not None:
        yield last


def _order(block: Block, extents: Sequence[tuple[int, Extent]], positions: Sequence[int]) -> list[int]:
    """Return the indexes of the unread rows of a block in processing order; ``extents`` has each extent's lane."""
    import numpy as np

    lane = np.repeat([number for number, _ in extents], [extent.rows for _, extent in extents])
    times = np.array(block.timestamps, dtype=np.int64)
    rows = np.arange(len(lane))
    if any(extent.first < positions[number] for number, extent in extents):
        rows = rows[np.array(block.offsets, dtype=np.int64) >= np.array(positions, dtype=np.int64)[lane]]
        lane, times = lane[rows], times[rows]
    # The place of a record is the highest time of its lane so far.
    for late in np.unique(lane[1:][(times[1:] < times[:-1]) & (lane[1:] == lane[:-1])]):
        own = lane == late
        times[own] = np.maximum.accumulate(times[own])
    found: list[int] = rows[np.argsort(times, kind="stable")].tolist()
    return found


def _picked(block: Block, rows: Sequence[int]) -> Block:
    # An additional index, so that the result is a tuple for a single record too.
    pick: Any = itemgetter(*rows, 0)
    return Block(
        pick(block.keys)[:-1],
        pick(block.values)[:-1],
        pick(block.timestamps)[:-1],
        None if block.headers is None else pick(block.headers)[:-1],
        pick(block.offsets)[:-1],
    )
