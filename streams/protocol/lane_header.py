"""The header that carries the lanes of a record batch: the producing tasks and the places of its records.

The header is on the first record of a batch, behind the headers of the record itself.  ``batch.encode`` adds it and
``batch.decode`` removes it, so that neither users nor operators see it, and splits and retries of a producer keep it.
Its value has a version byte (1), and for each run of records of one lane zigzag varints: the number of records, the
lane, the number of places that follow, which is that of the records or 0, and these places.  A place is the difference
from what is expected: the higher one of the place before it in the run and the timestamp of the record.  Without
places, all are as expected.  The module is pure.
"""

from array import array
from collections.abc import Sequence

from attrs import evolve

from streams.core.blocks.loops import decoded_places, encoded_places, runs_of
from streams.core.blocks.records import Block, Headers, Lanes
from streams.core.serdes.varints import read_varint, varint

#: Name of the header.  Other clients see it on the first record of a batch of a repartition topic.
LANE_HEADER = "__streams.lane"

_VERSION = 1


def with_lanes(block: Block) -> Block:
    """Return the block with its lanes as a header of its first record, for the encoder."""
    assert block.lanes is not None
    headers: list[Headers] = [()] * len(block) if block.headers is None else list(block.headers)
    headers[0] = (*headers[0], (LANE_HEADER, _encoded(block.lanes, block.timestamps)))
    return evolve(block, headers=headers, lanes=None)


def without_lanes(
    headers: list[Headers] | None, timestamps: Sequence[int]
) -> tuple[list[Headers] | None, Lanes | None]:
    """Return the headers of a batch without the header of the lanes, and the lanes, or None if there are none.

    A header that does not match the batch stays a header of its record: a tool has copied the records to other batches,
    and their lanes are not known any more.
    """
    if headers is None or not headers[0] or headers[0][-1][0] != LANE_HEADER:
        return headers, None
    content = headers[0][-1][1]
    lanes = None if content is None else _decoded(content, timestamps)
    if lanes is None:
        return headers, None
    headers[0] = headers[0][:-1]
    return (headers if any(headers) else None), lanes


def _encoded(rows: Lanes, timestamps: Sequence[int]) -> bytes:
    out = bytearray([_VERSION])
    start = 0
    for lane, count in runs_of(rows.lanes):
        stop = start + count
        differences = encoded_places(rows.places[start:stop], timestamps[start:stop])
        out += b"".join(map(varint, (count, lane, count if differences else 0))) + differences
        start = stop
    return bytes(out)


def _decoded(content: bytes, timestamps: Sequence[int]) -> Lanes | None:
    """Return the lanes of records with these timestamps, or None if ``content`` is not about them."""
    lanes, places = array("q"), array("q")
    try:
        if content[0] != _VERSION:
            return None
        position = 1
        while position < len(content):
            count, position = read_varint(content, position)
            lane, position = read_varint(content, position)
            size, position = read_varint(content, position)
            if size not in (0, count) or not 0 < count <= len(timestamps) - len(lanes):
                return None
            times = timestamps[len(lanes) : len(lanes) + count]
            own, position = decoded_places(content, position, times, size > 0)
            places += own
            lanes += array("q", [lane]) * count
    except (IndexError, OverflowError):
        return None
    return Lanes(lanes, places) if len(lanes) == len(timestamps) else None
