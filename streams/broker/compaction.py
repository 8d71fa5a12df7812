"""What compaction leaves of a block: the newest record per key, tombstones for their time.

Pure: blocks and the time in, blocks out.  Offsets never change.  Under ``log``.
"""

from collections.abc import Iterable

from attrs import define, field

from streams.broker.storage import advanced
from streams.core.records import Block


@define
class Cleaner:
    """One pass over a log.

    ``last_offset`` is the log's last: its record always stays, or a reader before it would
    never get to the end.  ``newest`` has the latest offset of each key of the part that no pass has seen yet;
    ``horizons`` the time from which each tombstone seen by an earlier pass may go.
    """

    now_ms: int
    delete_retention_ms: int
    last_offset: int
    horizons: dict[int, int]
    newest: dict[bytes | None, int] = field(factory=dict)
    kept_horizons: dict[int, int] = field(factory=dict, init=False)

    def learn(self, blocks: Iterable[Block]) -> None:
        """Take note of the keys of blocks that come in offset order."""
        for block in blocks:
            self.newest.update(zip(block.keys, block.offsets, strict=True))

    def keep(self, block: Block) -> Block | None:
        """Return what stays of a block, the block itself where nothing goes."""
        if block.producer is not None and block.producer.is_control:
            return block
        newest = self.newest
        columns = zip(block.keys, block.values, block.offsets, strict=True)
        indexes = [
            index
            for index, (key, value, offset) in enumerate(columns)
            if (key is None or newest.get(key, -1) <= offset) and (value is not None or self._keeps_tombstone(offset))
        ]
        if len(indexes) == len(block):
            return block
        if not indexes:
            return None
        return Block(
            [block.keys[index] for index in indexes],
            [block.values[index] for index in indexes],
            [block.timestamps[index] for index in indexes],
            None if block.headers is None else [block.headers[index] for index in indexes],
            [block.offsets[index] for index in indexes],
            None if block.producer is None else advanced(block.producer, block.offsets[indexes[0]] - block.offsets[0]),
            block.compression,
        )

    def _keeps_tombstone(self, offset: int) -> bool:
        # Its time begins when a pass first sees it: every reader can have met it by then.
        horizon_ms = self.horizons.get(offset, self.now_ms + self.delete_retention_ms)
        if horizon_ms <= self.now_ms and offset in self.horizons and offset != self.last_offset:
            return False
        self.kept_horizons[offset] = horizon_ms
        return True
