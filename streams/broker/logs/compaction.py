"""Compaction of blocks of records: keep the newest record per key, and keep tombstones for ``delete.retention.ms``.

Offsets never change.  The caller passes the blocks and the current time.
"""

from collections.abc import Callable, Collection, Iterable

from attrs import define, field

from streams.broker.logs.expiry import expires_ms
from streams.broker.logs.storage import picked
from streams.core.blocks.records import Block


@define
class Cleaner:
    """One compaction pass over a log.

    ``last_offset`` is the last offset of the log.  Its record is always kept, because a reader
    would otherwise never reach the end.  The records at ``producer_offsets``, the last of each producer, are kept
    though a later one has their key: a restarted broker reads the producer's sequence from them (Kafka keeps an empty
    batch).  ``newest`` maps each key of the dirty part to its latest
    offset; ``horizons`` has the delete horizons (epoch milliseconds) of tombstones from earlier passes, by offset.
    With ``record_ttl_ms``, expired records are removed as well; ``next_expiry_ms`` is the time at
    which the next remaining record expires.
    """

    now_ms: int
    delete_retention_ms: int
    last_offset: int
    producer_offsets: Collection[int]
    horizons: dict[int, int]
    record_ttl_ms: int | None = None
    #: Whether a block belongs to an aborted transaction; such blocks are removed.
    is_aborted: Callable[[Block], bool] = lambda _: False
    newest: dict[bytes | None, int] = field(factory=dict)
    kept_horizons: dict[int, int] = field(factory=dict, init=False)
    next_expiry_ms: int | None = field(default=None, init=False)

    def learn(self, blocks: Iterable[Block]) -> None:
        """Record the latest offset of each key; the blocks must be in offset order."""
        for block in blocks:
            if not _is_control(block) and not self.is_aborted(block):
                self.newest.update(zip(block.keys, block.offsets, strict=True))

    def keep(self, block: Block) -> Block | None:
        """Return a block with the records that compaction keeps, or None if it keeps none.

        If all records are kept, the same block is returned.
        """
        if _is_control(block):
            # A marker has a delete horizon like a tombstone: readers in the middle of the transaction still need it.
            return block if self._keeps_tombstone(block.offsets[0]) else None
        if self.is_aborted(block) and block.offsets[-1] != self.last_offset:
            return None
        newest = self.newest
        producer_offsets = self.producer_offsets
        columns = zip(block.keys, block.values, block.offsets, strict=True)
        indexes = [
            index
            for index, (key, value, offset) in enumerate(columns)
            if (key is None or newest.get(key, -1) <= offset or offset in producer_offsets)
            and (value is not None or self._keeps_tombstone(offset))
        ]
        if self.record_ttl_ms is not None:
            indexes = [index for index in indexes if self._is_live(block, index)]
        if len(indexes) == len(block):
            return block
        return picked(block, indexes) if indexes else None

    def _is_live(self, block: Block, index: int) -> bool:
        assert self.record_ttl_ms is not None
        headers = () if block.headers is None else block.headers[index]
        due_ms = expires_ms(block.timestamps[index], headers, self.record_ttl_ms)
        if due_ms is None or block.offsets[index] == self.last_offset:
            return True
        if due_ms <= self.now_ms:
            return False
        self.next_expiry_ms = due_ms if self.next_expiry_ms is None else min(due_ms, self.next_expiry_ms)
        return True

    def _keeps_tombstone(self, offset: int) -> bool:
        # The retention of a tombstone starts when a pass first sees it, so that every reader has time to read it.
        horizon_ms = self.horizons.get(offset, self.now_ms + self.delete_retention_ms)
        if horizon_ms <= self.now_ms and offset in self.horizons and offset != self.last_offset:
            return False
        self.kept_horizons[offset] = horizon_ms
        return True


def _is_control(block: Block) -> bool:
    return block.producer is not None and block.producer.is_control
