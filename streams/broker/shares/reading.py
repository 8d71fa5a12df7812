"""Reads records of a partition for a share group: those that readers see, in a range of offsets."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from attrs import define, field

from streams.broker.log import PartitionLog
from streams.broker.topics import Topics
from streams.core.records import Block
from streams.protocol.messages import READ_COMMITTED
from streams.protocol.wire.encoded import fetched


@define(eq=False)
class TopicNames:
    """The names of the topics of a broker by topic ID."""

    topics: Topics
    _names: dict[bytes, str] = field(factory=dict, init=False)
    _version: int = field(default=-1, init=False)

    def find(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, or None if no topic has this ID."""
        if self._version != self.topics.version:
            self._names = {topic.topic_id: topic.name for topic in self.topics}
            self._version = self.topics.version
        return self._names.get(topic_id)


class FoundRecords(NamedTuple):
    """Records from ``first`` up to ``upto``, exclusive; ``visible`` has their offsets as ranges, in order."""

    first: int
    upto: int
    visible: Sequence[tuple[int, int]]
    blocks: Sequence[Block]
    size: int

    @property
    def length(self) -> int:
        """The number of records."""
        return sum(map(len, self.blocks))


def found_records(
    log: PartitionLog, first: int, last: int, max_bytes: int, isolation_level: int, wall_ms: int
) -> FoundRecords | None:
    """Return what a log has between two offsets, both inclusive; None if it has nothing yet.

    The first batch is read even if it is larger than ``max_bytes``.  With ``READ_COMMITTED``, records of open
    transactions are not read yet, and those of aborted ones are left out.

    Raises:
        BrokerError: the log is damaged, or the storage failed.
    """
    run = log.fetch_encoded(first, max_bytes, wall_ms, isolation_level, is_first=True)
    if not run.chunks:
        return None
    blocks: list[Block] = []
    for block in fetched(b"".join(run.chunks), verify=False):
        is_control = block.producer is not None and block.producer.is_control
        if is_control or (isolation_level == READ_COMMITTED and log.producers.is_aborted(block)):
            continue
        low, high = bisect_left(block.offsets, first), bisect_right(block.offsets, last)
        if low < high:
            blocks.append(block if (low, high) == (0, len(block)) else block.slice(low, high))
    visible = [found for block in blocks for found in _ranges(block.offsets)]
    return FoundRecords(first, min(last + 1, run.next_offset), visible, blocks, run.size)


def _ranges(offsets: Sequence[int]) -> list[tuple[int, int]]:
    if isinstance(offsets, range):
        return [(offsets[0], offsets[-1])]
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] + 1 == offset:
            found[-1] = found[-1][0], offset
        else:
            found.append((offset, offset))
    return found
