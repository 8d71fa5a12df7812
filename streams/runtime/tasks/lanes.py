"""Merging of lanes: a single order for the records that several tasks write to one partition.

A lane contains the records that one task has written to the partition.

The lane with the lowest place is always next (see ``order``), so the result depends only on the records in the
lanes, not on the speed of tasks.  The module is pure and imports only ``core`` from outside ``runtime``.
"""

from collections.abc import Iterator, Sequence

from attrs import define

from streams.core.blocks.loops import running_max
from streams.core.blocks.records import Block, places_of
from streams.runtime.tasks.order import Span, certain, merge


def merge_lanes(lanes: Sequence[Iterator[Block]]) -> Iterator[Block]:
    """Yield the records of all lanes in merged order, as blocks of records.

    If the order of two records is equal, the first lane has precedence.  A single lane keeps its blocks; otherwise
    offsets count from 0 without gaps, and blocks have no producer.  Merged records have no lanes any more.  One block
    of each lane is in memory; the next block is read when the last record of the current block has been yielded.
    """
    if len(lanes) == 1:
        yield from map(_without_lanes, lanes[0])
        return
    heads = [_Head(index, lane) for index, lane in enumerate(lanes)]
    offset = 0
    while heads := [head for head in heads if head.is_filled()]:
        spans = certain([head.span for head in heads])
        offsets = range(offset, offset := offset + sum(len(span.places) for span in spans))
        yield _block(spans, offsets)
        for span in spans:
            span.input.advance(len(span.places))


@define(eq=False)
class _Head:
    """The current block of records of a lane, starting at its next record."""

    index: int
    lane: Iterator[Block]
    block: Block | None = None
    start: int = 0
    #: Places of the remaining rows.
    places: Sequence[int] = ()

    def is_filled(self) -> bool:
        """Read the next block if the current block is exhausted; return whether the lane has more records."""
        while not self.places:
            self.block = next(self.lane, None)
            self.start = 0
            if self.block is None:
                return False
            self.places = running_max(places_of(self.block))
        return True

    @property
    def span(self) -> "Span[_Head, Block]":
        """The remaining records of the current block."""
        assert self.block is not None
        return Span(self, self.block, self.index, self.start, self.places)

    def advance(self, count: int) -> None:
        """Remove the first ``count`` records, which have been yielded."""
        self.start += count
        self.places = self.places[count:]


def _without_lanes(block: Block) -> Block:
    if block.lanes is None:
        return block
    columns = block.keys, block.values, block.timestamps, block.headers, block.offsets
    return Block(*columns, block.producer, block.compression)


def _block(spans: "Sequence[Span[_Head, Block]]", offsets: range) -> Block:
    """Return the records of all spans in merged order, as one block."""
    if len(spans) == 1:
        span = spans[0]
        block = span.columns.slice(span.start, span.stop) if len(offsets) < len(span.columns) else span.columns
        return Block(block.keys, block.values, block.timestamps, block.headers, offsets)
    merged = merge(spans)
    return Block(merged.keys, merged.values, merged.timestamps, merged.headers, offsets)
