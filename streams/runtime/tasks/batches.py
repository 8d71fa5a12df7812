"""Deserialized records of one input partition, as columns.  The module is pure and imports only ``core``."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, frozen

from streams.core.blocks.records import NO_LANE, Headers, Lanes


@frozen
class Drop:
    """A record that cannot be deserialized, to be dropped.

    It is dropped when its position is reached, not when it is fetched, because records buffered after the position are
    fetched again after a restart.
    """

    offset: int
    #: Calls the handler and counts the record as dropped; returns the error if the task must fail.
    effect: Callable[[], Exception | None]
    lane: int = NO_LANE
    #: The place of the record, at which it is dropped, if the records of its partition are merged by place; with None
    #: it is dropped as soon as it is the next one of its partition, as in Kafka Streams.
    place_ms: int | None = None


@define(eq=False)
class Batch:
    """Deserialized records of one partition, as columns of equal length; a batch may consist of drops only."""

    keys: Sequence[Any]
    values: Sequence[Any]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None
    offsets: Sequence[int]
    #: Drops directly after the last record; a run ends with them, so that dead letters are in the order of the records.
    drops: Sequence[Drop] = ()
    #: The lane and the place of each record, or None for a source, where places follow from the timestamps.
    lanes: Lanes | None = None

    def __len__(self) -> int:
        return len(self.timestamps)
