"""Polled records that iteration over the consumer has not returned yet.

Of the other packages, this module imports only ``core``.
"""

from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

from streams.core.blocks.records import ConsumerRecord, TopicPartition


class Unconsumed:
    """Records that were polled but not yet returned by iteration; positions and commits exclude them."""

    def __init__(self) -> None:
        self._records: deque[ConsumerRecord[Any, Any]] = deque()

    def __bool__(self) -> bool:
        return bool(self._records)

    def add(self, records: Iterable[ConsumerRecord[Any, Any]]) -> None:
        """Append polled records."""
        self._records.extend(records)

    def next(self) -> ConsumerRecord[Any, Any]:
        """Remove and return the next record."""
        return self._records.popleft()

    def take_all(self) -> list[ConsumerRecord[Any, Any]]:
        """Remove and return all records."""
        records = list(self._records)
        self._records.clear()
        return records

    def offset(self, partition: TopicPartition) -> int | None:
        """Return the offset of the first record of a partition, or None if there is none."""
        return next((r.offset for r in self._records if (r.topic, r.partition) == partition), None)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the records of these partitions."""
        if self._records:
            self._records = deque(r for r in self._records if TopicPartition(r.topic, r.partition) not in partitions)

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the records of all partitions except these, because another member may own the other partitions."""
        if self._records:
            self._records = deque(r for r in self._records if TopicPartition(r.topic, r.partition) in partitions)

    def hold_back(self, positions: dict[TopicPartition, int]) -> None:
        """Move ``positions`` back to the first record of each partition that iteration has not returned."""
        for record in reversed(self._records):
            partition = TopicPartition(record.topic, record.partition)
            if partition in positions:
                positions[partition] = record.offset
