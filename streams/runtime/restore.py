"""Restoring of stores from their changelogs, while the thread goes on polling.

A store starts from the changelog position kept with its data, or from the start of the
changelog if it has none.  Imports clients and state.
"""

import logging
from collections.abc import Callable, Mapping

from attrs import define, field

from streams.clients.consumer import Consumer
from streams.core.records import TaskId, TopicPartition
from streams.runtime.task import CHANGELOG_POSITION
from streams.state.lifecycle import Store

log = logging.getLogger(__name__)

#: Called with (task, store, records restored so far, records to restore).
RestoreListener = Callable[[TaskId, str, int, int], None]


def _position(store: Store) -> int:
    """Return the next changelog offset that the committed state of a store does not hold."""
    return int(store.metadata().get(CHANGELOG_POSITION, b"0"))


@define(eq=False)
class _Restoring:
    """One store on its way to the end of its changelog."""

    task_id: TaskId
    store: Store
    start: int
    position: int
    end: int


@define(eq=False)
class Restorer:
    """Feeds changelogs into the stores of a thread's new tasks."""

    _consumer: Consumer
    _max_records: int
    _listener: RestoreListener | None = None
    _open: dict[TopicPartition, _Restoring] = field(factory=dict)

    def stale(self, stores: Mapping[str, Store], partitions: Mapping[str, TopicPartition]) -> list[str]:
        """Return the stores that claim to hold more than their changelog has: it is not theirs any more."""
        kept = {name: _position(stores[name]) for name in partitions}
        if not any(kept.values()):
            return []
        ends = self._consumer.end_offsets(partitions.values())
        return [name for name, partition in partitions.items() if kept[name] > ends[partition]]

    def begin(
        self,
        task_id: TaskId,
        stores: Mapping[str, Store],
        partitions: Mapping[str, TopicPartition],
        limits: Mapping[str, int],
    ) -> None:
        """Start restoring a task's stores; ``partitions`` has the changelog partition of each logged store.

        ``limits`` names stores that must not be read beyond an offset (their changelog is a
        source topic).
        """
        if not partitions:
            return
        ends = self._consumer.end_offsets(partitions.values())
        starts = self._consumer.beginning_offsets(partitions.values())
        for name, partition in partitions.items():
            end = min(ends[partition], limits.get(name, ends[partition]))
            start = max(_position(stores[name]), starts[partition])
            if start < end:
                self._open[partition] = _Restoring(task_id, stores[name], start, start, end)
        self._assign()

    def is_restoring(self, task_id: TaskId) -> bool:
        """Whether a store of the task is not at the end of its changelog yet."""
        return any(item.task_id == task_id for item in self._open.values())

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to restore."""
        return not self._open

    def forget(self, task_id: TaskId) -> None:
        """Stop restoring a task that is given up."""
        gone = [partition for partition, item in self._open.items() if item.task_id == task_id]
        for partition in gone:
            del self._open[partition]
        if gone:
            self._assign()

    def poll(self, timeout_ms: int = 0) -> int:
        """Restore what has arrived; return the number of records."""
        if not self._open:
            return 0
        count = 0
        done = False
        for partition, blocks in self._consumer.poll_blocks(timeout_ms, self._max_records).items():
            item = self._open.get(partition)
            if item is None:
                continue
            for block in blocks:
                if block.offsets[-1] >= item.end:
                    block = block.slice(0, sum(1 for offset in block.offsets if offset < item.end))
                if len(block):
                    item.store.restore(block)
                    item.position = block.offsets[-1] + 1
                    count += len(block)
                else:
                    item.position = item.end
            self._report(item)
        for partition, item in list(self._open.items()):
            # Compaction leaves holes: the log may end before the offset that was its end.
            if item.position >= item.end or self._consumer.position(partition) >= item.end:
                item.store.commit({CHANGELOG_POSITION: str(item.end).encode()})
                del self._open[partition]
                done = True
        if done:
            self._assign()
        return count

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _report(self, item: _Restoring) -> None:
        if self._listener is not None:
            self._listener(item.task_id, item.store.spec.name, item.position - item.start, item.end - item.start)

    def _assign(self) -> None:
        self._consumer.assign(self._open)
        for partition, item in self._open.items():
            self._consumer.seek(partition, item.position)
