"""Pending offset commits of open transactions, which take effect with the commit marker (KIP-447).

They are part of the coordinator's state, which is rebuilt from the ``__consumer_offsets`` log.
This module performs no I/O.
"""

from collections.abc import Collection, Iterator, Mapping

from attrs import define, field

from streams.core.blocks.records import TopicPartition
from streams.protocol.group_messages import OffsetAndMetadata


@define(eq=False)
class PendingOffsets:
    """Pending offsets by producer and group, in the order of the commits."""

    _open: dict[int, dict[str, dict[TopicPartition, OffsetAndMetadata]]] = field(factory=dict)

    def add(self, producer_id: int, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Add the offsets of a TxnOffsetCommit, which are pending until the producer's transaction ends."""
        self._open.setdefault(producer_id, {}).setdefault(group_id, {}).update(offsets)

    def end(self, producer_id: int) -> Iterator[tuple[str, Mapping[TopicPartition, OffsetAndMetadata]]]:
        """Remove and return the offsets in a producer's transaction, by group, because the transaction has ended."""
        yield from self._open.pop(producer_id, {}).items()

    def is_unstable(self, group_id: str, partitions: Collection[TopicPartition] | None) -> bool:
        """Whether an open transaction commits offsets of a group for any of ``partitions`` (None for all)."""
        for groups in self._open.values():
            offsets = groups.get(group_id)
            if offsets and (partitions is None or any(partition in offsets for partition in partitions)):
                return True
        return False

    def supersede(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        """Drop pending offsets that a later regular commit supersedes, even if their transaction ends after it."""
        for groups in self._open.values():
            offsets = groups.get(group_id)
            if offsets:
                for partition in partitions:
                    offsets.pop(partition, None)

    def forget_group(self, group_id: str) -> None:
        """Drop the offsets of a deleted group."""
        for groups in self._open.values():
            groups.pop(group_id, None)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Drop the offsets of deleted topics."""
        for groups in self._open.values():
            for offsets in groups.values():
                for partition in [partition for partition in offsets if partition.topic in topics]:
                    del offsets[partition]
