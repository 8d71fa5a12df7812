"""One order for a partition that several tasks write, each into a lane of its own.

The next record is always that of the lane with the lowest head timestamp, ties by lane; each lane
keeps its own order.  So the order depends on what is in the lanes, never on who was faster.
``TaskQueues`` takes its inputs by the same rule.  Pure; imports core only.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import itemgetter

from attrs import define, field

from streams.core.records import NO_TIMESTAMP, Block, Headers


def merge_lanes(lanes: Sequence[Iterator[Block]]) -> Iterator[Block]:
    """Yield the records of all lanes in their one order, in blocks.

    Lanes come in the order that decides ties.  Taking the lowest head first is the same as sorting by
    the highest timestamp so far of each lane.  A single lane passes through as it is; otherwise
    offsets count from 0 without gaps, and blocks name no producer.  Of each lane one block is held;
    the next one is asked for when its last record has been yielded.
    """
    if len(lanes) == 1:
        yield from lanes[0]
        return
    heads = [_Head(index, lane, len(lanes)) for index, lane in enumerate(lanes)]
    offset = 0
    while heads := [head for head in heads if head.is_filled()]:
        # Behind the last record of a block may come one of the same key, but none of a lower one.
        certain = min(head.order[-1] for head in heads)
        parts = [part for head in heads if (part := head.take(certain)) is not None]
        block = _joined(parts, offset)
        offset += len(block)
        yield block


@define(eq=False)
class _Head:
    """The block at the head of a lane; ``order`` tells where its records come among those of all lanes."""

    index: int
    lane: Iterator[Block]
    width: int
    block: Block | None = None
    #: Highest timestamp so far times the number of lanes, plus the lane's own number.
    order: list[int] = field(factory=list)
    start: int = 0
    _highest_ms: int = NO_TIMESTAMP

    def is_filled(self) -> bool:
        """Fetch the next block if this one is done; return whether the lane has one."""
        while self.block is None or self.start == len(self.block):
            self.block = next(self.lane, None)
            if self.block is None:
                return False
            self.start = 0
            times = list(accumulate(self.block.timestamps, max, initial=self._highest_ms))
            self._highest_ms = times[-1]
            width, index = self.width, self.index
            self.order = [time * width + index for time in times[1:]]
        return True

    def take(self, certain: int) -> "tuple[Block, list[int]] | None":
        """Return the records up to a place in the order, with their own places; None if there are none."""
        assert self.block is not None
        start, stop = self.start, bisect_right(self.order, certain, self.start)
        if start == stop:
            return None
        self.start = stop
        if start == 0 and stop == len(self.block):
            return self.block, self.order
        return self.block.slice(start, stop), self.order[start:stop]


def _joined(parts: "Sequence[tuple[Block, list[int]]]", offset: int) -> Block:
    """Return the records of all parts, sorted by their places."""
    if len(parts) == 1:
        block = parts[0][0]
        return Block(block.keys, block.values, block.timestamps, block.headers, range(offset, offset + len(block)))
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    timestamps: list[int] = []
    order: list[int] = []
    headers: list[Headers] | None = [] if any(block.headers is not None for block, _ in parts) else None
    for block, places in parts:
        keys += block.keys
        values += block.values
        timestamps += block.timestamps
        order += places
        if headers is not None:
            headers += block.headers if block.headers is not None else [()] * len(block)
    pick = itemgetter(*sorted(range(len(order)), key=order.__getitem__))
    return Block(
        pick(keys),
        pick(values),
        pick(timestamps),
        None if headers is None else pick(headers),
        range(offset, offset + len(order)),
    )
