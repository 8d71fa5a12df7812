"""All share partitions of a broker, and their records in the ``__share_group_state`` log."""

from collections.abc import Callable, Iterable, Sequence

from attrs import define, field

from streams.broker.config import SHARES_TOPIC
from streams.broker.log import PartitionLog
from streams.broker.shares.partition import SharePartition
from streams.broker.shares.state_log import (
    RECORDS_BEHIND_SNAPSHOT,
    UPDATES_PER_SNAPSHOT,
    ShareKey,
    StoredShare,
    key_bytes,
    loaded,
    snapshot_value,
    update_value,
)
from streams.core.errors import BrokerError
from streams.core.records import Block, TopicPartition

SHARES_PARTITION = TopicPartition(SHARES_TOPIC, 0)
#: Records that may be deleted before it is done, since each deletion costs a write.
_WORTH_DELETING = 1_000


@define(eq=False)
class ShareStore:
    """Share partitions by key.

    - ``log``: returns the log of an internal partition, which is created if it does not exist.
    - ``append_internal``: appends blocks to an internal partition, given the monotonic time.
    - ``wall_ms``: turns monotonic time into epoch time.
    """

    log: Callable[[TopicPartition], PartitionLog]
    append_internal: Callable[[TopicPartition, Sequence[Block], int], None]
    wall_ms: Callable[[int], int]
    #: That whose last snapshot is the oldest comes first.
    _by_key: dict[ShareKey, StoredShare] = field(factory=dict, init=False)
    _deleted_before: int = field(default=0, init=False)

    def load(self, blocks: Iterable[Block]) -> None:
        """Rebuild all share partitions from blocks of the log, in order."""
        rows = ((offset, key, value) for block in blocks for offset, key, value, _, _ in block.rows())
        self._by_key = loaded((offset, key, value) for offset, key, value in rows if key is not None)

    def get(self, key: ShareKey) -> StoredShare | None:
        """Return a share partition, or None if the group has not begun to read the partition."""
        return self._by_key.get(key)

    def of_group(self, group_id: str) -> list[ShareKey]:
        """Return the keys of a group."""
        return [key for key in self._by_key if key.group_id == group_id]

    def of_topic(self, topic_id: bytes) -> list[ShareKey]:
        """Return the keys of a topic."""
        return [key for key in self._by_key if key.topic_id == topic_id]

    def begin(self, starts: Iterable[tuple[ShareKey, int]], now_ms: int) -> None:
        """Let groups begin at these offsets, whatever they have done before.

        Raises:
            BrokerError, OSError: the log could not be written; nothing is changed.
        """
        before: dict[ShareKey, StoredShare | None] = {}
        for key, start_offset in starts:
            known = before[key] = self._by_key.pop(key, None)
            self._by_key[key] = StoredShare(
                SharePartition(start_offset),
                0 if known is None else known.state_epoch + 1,
                -1 if known is None else known.snapshot_epoch,
                created_ms=self.wall_ms(now_ms),
            )
        try:
            self.store(list(before), now_ms)
        except (BrokerError, OSError):
            for key, known in before.items():
                del self._by_key[key]
                if known is not None:
                    self._by_key[key] = known
            raise

    def store(self, keys: Iterable[ShareKey], now_ms: int) -> None:
        """Write what has changed in share partitions.

        Raises:
            BrokerError, OSError: the log could not be written; all of it is written the next time.
        """
        rows: list[tuple[bytes, bytes | None]] = []
        written: list[tuple[ShareKey, StoredShare, bool]] = []
        for key in keys:
            share = self._by_key[key]
            changed = share.state.take_changes()
            if changed is None:
                continue
            is_snapshot = share.snapshot_offset < 0 or share.updates >= UPDATES_PER_SNAPSHOT
            written.append((key, share, is_snapshot))
            if is_snapshot:
                rows.append(self._snapshot(key, share, now_ms))
            else:
                share.updates += 1
                rows.append((key_bytes(key, is_update=True), update_value(share, changed)))
        if not rows:
            return
        try:
            base = self._append(rows, now_ms)
        except (BrokerError, OSError):
            for _, share, _ in written:
                share.updates = UPDATES_PER_SNAPSHOT
            raise
        for place, (key, share, is_snapshot) in enumerate(written):
            if is_snapshot:
                self._put_last(key, share, base + place)
        self._clean(base + len(rows), now_ms)

    def forget(self, keys: Sequence[ShareKey], now_ms: int) -> None:
        """Forget share partitions.

        Raises:
            BrokerError, OSError: the log could not be written; nothing is changed.
        """
        if keys:
            self._append([(key_bytes(key), None) for key in keys], now_ms)
            for key in keys:
                del self._by_key[key]

    def _append(self, rows: Sequence[tuple[bytes, bytes | None]], now_ms: int) -> int:
        """Append records to the log, and return the offset of the first."""
        base = self.log(SHARES_PARTITION).high_watermark
        keys, values = zip(*rows, strict=True)
        self.append_internal(SHARES_PARTITION, [Block(keys, values, [self.wall_ms(now_ms)] * len(rows))], now_ms)
        return base

    def _snapshot(self, key: ShareKey, share: StoredShare, now_ms: int) -> tuple[bytes, bytes]:
        share.snapshot_epoch += 1
        share.updates = 0
        return key_bytes(key), snapshot_value(share, self.wall_ms(now_ms))

    def _put_last(self, key: ShareKey, share: StoredShare, offset: int) -> None:
        share.snapshot_offset = offset
        del self._by_key[key]
        self._by_key[key] = share

    def _clean(self, end_offset: int, now_ms: int) -> None:
        """Write snapshots that have become old again, and delete what lies before the oldest."""
        while True:
            key, share = next(iter(self._by_key.items()))
            if end_offset - share.snapshot_offset <= RECORDS_BEHIND_SNAPSHOT:
                break
            self._put_last(key, share, self._append([self._snapshot(key, share, now_ms)], now_ms))
            end_offset = share.snapshot_offset + 1
        if share.snapshot_offset - self._deleted_before >= _WORTH_DELETING:
            self.log(SHARES_PARTITION).delete_records(share.snapshot_offset)
            self._deleted_before = share.snapshot_offset
