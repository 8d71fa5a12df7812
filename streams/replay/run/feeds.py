"""The inputs of a task in a replay, with their unread records, and which of them are merged into one input.

A partition of a repartition topic is stored as lanes, one for each task that writes to it.
"""

from collections import deque
from collections.abc import Iterator

from attrs import define, field

from streams.core.blocks.records import Block, TopicPartition
from streams.replay.calls.work import InputWork, LanesWork, StageWork, TaskWork
from streams.replay.storage.lanes import MergedLanes
from streams.replay.storage.segments import ExtentReader
from streams.runtime import ApplicationPlan

#: Rows of a partition's lanes up to which they are merged in memory.
_MERGED_ROWS = 100_000


def joined_inputs(
    work: StageWork, item: TaskWork, plan: ApplicationPlan, *, has_watch: bool
) -> list[InputWork | LanesWork]:
    """Return the inputs of a task; the lanes of a repartition topic's partition are one input if they may be.

    A lane has the records of one producing task.  Lanes stay separate inputs if records have to be located by lane and
    offset: for a tracer or a handler, for the append times of records, within a cycle, and if the next slice makes the
    calls of functions again that are in flight.
    """
    is_apart = work.is_cycle or has_watch or plan.handlers.may_ask or work.options.wall_clock == "append_time"
    inputs: list[InputWork | LanesWork] = list(item.inputs)
    for lanes in item.lanes:
        inputs += lanes.separate() if is_apart or lanes.is_apart or lanes.rows > _MERGED_ROWS else [lanes]
    return inputs


@define(eq=False)
class Feed:
    """The records of one input partition that the task has not read yet."""

    partition: TopicPartition
    blocks: Iterator[Block]
    end: int
    is_ended: bool
    #: The records of lanes that are read as one input.
    lanes: MergedLanes | None = None
    #: The number of records that were read.
    count: int = 0
    is_done: bool = False
    #: Blocks that the stage itself has written before all ``blocks`` were read.
    later: deque[Block] = field(factory=deque)
    #: Original offsets and append times of the added records; only used for ``append_time``.
    raw: deque[tuple[int, int]] = field(factory=deque)

    @classmethod
    def of(cls, given: InputWork | LanesWork, reader: ExtentReader) -> "Feed":
        """Return the feed of an input partition, or of several lanes as one input, with the partition of the first."""
        if isinstance(given, InputWork):
            blocks = reader.blocks(given.extents, given.position, given.end)
            return cls(given.partition, blocks, max(given.position, given.end), given.is_ended)
        lanes = MergedLanes.read(reader, given.ranges, given.first, given.positions, is_ended=given.is_ended)
        return cls(given.partition, lanes.blocks(), int(given.ends.max()), given.is_ended, lanes=lanes)

    def next_block(self) -> Block | None:
        """Return the next block of records, or None if there are no more."""
        block = next(self.blocks, None)
        self.count += 0 if block is None else len(block)
        return self.later.popleft() if block is None and self.later else block
