"""Stores and their changelogs: restored when a task opens, followed while it stands by.

A store starts from the changelog position kept with its data, or from the start of the
changelog if it has none.  Restoring ends at the end that the changelog had; a standby copy goes
on for ever, and waits while a task of the same thread restores.  Memory is bounded: what is
restored so far is written with its position.  Imports clients and state.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from attrs import define, field

from streams.clients import Consumer
from streams.core.errors import ForeignFormatError, StoreError, StreamsError
from streams.core.marks import REMEDY, format_of
from streams.core.metrics import Counter
from streams.core.records import Block, TaskId, TopicPartition
from streams.core.user_code import refuse_result
from streams.protocol.messages import READ_UNCOMMITTED
from streams.runtime.task import CHANGELOG_POSITION
from streams.state import Store

log = logging.getLogger(__name__)

#: Restored state that waits to be written, above which it is.
_MAX_UNCOMMITTED_BYTES = 64 << 20
#: How long a poll waits that reads a changelog to its end.
_READ_POLL_MS = 100
#: A store that is so many records behind is prepared for it.
_LONG = 50_000

#: Called with (task, store, records restored so far, records to restore).
RestoreListener = Callable[[TaskId, str, int, int], None]


def changelog_position(store: Store) -> int:
    """Return the next changelog offset that the committed state of a store does not hold."""
    return int(store.metadata().get(CHANGELOG_POSITION, b"0"))


@define(eq=False)
class _Restoring:
    """One store on its way to the end of its changelog; ``end`` None: it follows for ever."""

    task_id: TaskId
    store: Store
    start: int
    position: int
    end: int | None
    #: Records applied; offsets have holes.
    count: int = 0


@define(eq=False)
class Restorer:
    """Feeds changelogs into the stores of a thread's new tasks and of its standby copies."""

    _consumer: Consumer
    _max_records: int
    _listener: RestoreListener | None = None
    #: Counts the tasks that were restored to the end.
    _restored: Counter = field(factory=Counter)
    _open: dict[TopicPartition, _Restoring] = field(factory=dict)
    _read: tuple[TopicPartition, ...] = ()
    #: Over all stores that are restored at a time.
    max_uncommitted_bytes: int = _MAX_UNCOMMITTED_BYTES

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where logs end; what an open transaction has written counts too: who restores waits for its end."""
        wanted = list(partitions)
        return self._consumer.end_offsets(wanted, isolation_level=READ_UNCOMMITTED) if wanted else {}

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where logs begin."""
        wanted = list(partitions)
        return self._consumer.beginning_offsets(wanted) if wanted else {}

    def live_keys(self, partition: TopicPartition) -> dict[bytes, int]:
        """Read a changelog to its end; return the keys that have a value, each with the time of its last record."""
        keys: dict[bytes, int] = {}
        position, end = self.starts([partition])[partition], self.ends([partition])[partition]
        self._read = (partition,)
        self._consumer.assign([partition])
        self._consumer.seek(partition, position)
        while position < end:
            for block in self._consumer.poll_blocks(_READ_POLL_MS, self._max_records).get(partition, ()):
                for key, value, time_ms in zip(block.keys, block.values, block.timestamps, strict=True):
                    if key is not None and value is None:
                        keys.pop(key, None)
                    elif key is not None:
                        keys[key] = time_ms
            position = self._consumer.known_position(partition) or 0
        self._assign()
        return keys

    def without_records(self, partitions: Mapping[str, TopicPartition]) -> list[str]:
        """Return the stores whose changelogs have no record."""
        if not partitions:
            return []
        starts, ends = self.starts(partitions.values()), self.ends(partitions.values())
        return [name for name, partition in partitions.items() if starts[partition] == ends[partition]]

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
        starts, ends = self.starts(partitions.values()), self.ends(partitions.values())
        for name, partition in partitions.items():
            end = min(ends[partition], limits.get(name, ends[partition]))
            start = max(changelog_position(stores[name]), starts[partition])
            if start < end:
                stores[name].set_restoring(end - start >= _LONG)
                self._open[partition] = _Restoring(task_id, stores[name], start, start, end)
                text = "task %s: restores store %r from %s, offsets %d to %d"
                log.info(text, task_id, name, partition, start, end)
        self._assign()

    def follow(self, task_id: TaskId, stores: Mapping[str, Store], partitions: Mapping[str, TopicPartition]) -> None:
        """Keep copies of a task's stores up to date until ``forget``."""
        starts = self.starts(partitions.values())
        for name, partition in partitions.items():
            start = max(changelog_position(stores[name]), starts[partition])
            # It may come from a task that was given up while it was restored.
            stores[name].set_restoring(False)
            self._open[partition] = _Restoring(task_id, stores[name], start, start, None)
        self._assign()

    def is_restoring(self, task_id: TaskId) -> bool:
        """Whether a store of the task is not at the end of its changelog yet."""
        return any(item.task_id == task_id and item.end is not None for item in self._open.values())

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to restore."""
        return all(item.end is None for item in self._open.values())

    def lag(self, task_id: TaskId) -> int | None:
        """Return how many records a standby copy is behind, as far as fetches have told; None before the first."""
        total = 0
        for partition, item in self._open.items():
            if item.task_id == task_id:
                end = self._consumer.known_end(partition) if partition in self._read else None
                if end is None:
                    return None
                total += max(0, end - item.position)
        return total

    def forget(self, task_id: TaskId) -> None:
        """Leave the stores of a task alone from now on."""
        gone = [partition for partition, item in self._open.items() if item.task_id == task_id]
        for partition in gone:
            del self._open[partition]
        if gone:
            self._assign()

    def poll(self, timeout_ms: int = 0) -> int:
        """Apply what has arrived; return the number of records."""
        if not self._open:
            return 0
        count = 0
        for partition, blocks in self._consumer.poll_blocks(timeout_ms, self._max_records).items():
            item = self._open.get(partition)
            if item is None:
                continue
            for block in blocks:
                count += self._apply(partition, item, block)
            if item.end is None:
                item.store.commit({CHANGELOG_POSITION: str(item.position).encode()})
            else:
                self._report(item)
        self._write_back()
        self._finish()
        return count

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _apply(self, partition: TopicPartition, item: _Restoring, block: Block) -> int:
        end = item.end
        if end is not None and block.offsets[-1] >= end:
            block = block.slice(0, sum(1 for offset in block.offsets if offset < end))
        if len(block):
            _check_format(item, partition, block)
            try:
                item.store.restore(block)
            except StreamsError:
                raise
            except Exception as error:
                spec = item.store.spec
                raise StoreError(
                    f"store {spec.name!r} of task {item.task_id} cannot be restored from {partition}, offset "
                    f"{block.offsets[0]} and on: its records are not those of a store of kind {spec.kind.name} "
                    f"({type(error).__name__}: {error}); give the store another name, so that it starts empty, or "
                    "start anew with another application id (or state directory)"
                ) from error
            item.position = block.offsets[-1] + 1
            item.count += len(block)
        elif end is not None:
            item.position = end
        return len(block)

    def _write_back(self) -> None:
        """Write what is restored so far when it takes much memory.

        What is written is a beginning of the changelog, with its position: whoever opens the store next
        goes on from there.  It holds nothing that might be undone: with exactly-once only records of
        committed transactions are read.
        """
        restoring = [item for item in self._open.values() if item.end is not None]
        if sum(item.store.approximate_uncommitted_bytes for item in restoring) <= self.max_uncommitted_bytes:
            return
        for item in restoring:
            item.store.commit({CHANGELOG_POSITION: str(item.position).encode()})

    def _finish(self) -> None:
        """End the restoring of stores that are at the end."""
        done: dict[TaskId, None] = {}
        for partition in self._read:
            item = self._open.get(partition)
            if item is None or item.end is None:
                continue
            # Compaction and transactions leave holes: the log may end before the offset that was its end.
            if item.position >= item.end or (self._consumer.known_position(partition) or 0) >= item.end:
                item.store.commit({CHANGELOG_POSITION: str(item.end).encode()})
                item.store.set_restoring(False)
                log.info("task %s: restored store %r, %d records", item.task_id, item.store.spec.name, item.count)
                del self._open[partition]
                done[item.task_id] = None
        if done:
            self._restored.value += sum(not self.is_restoring(task_id) for task_id in done)
            self._assign()

    def _report(self, item: _Restoring) -> None:
        if self._listener is not None and item.end is not None:
            answer: object = self._listener(
                item.task_id, item.store.spec.name, item.position - item.start, item.end - item.start
            )
            refuse_result(answer, "on_restore")

    def _assign(self) -> None:
        """Read the changelogs of tasks that restore; with none, those of the standby copies."""
        restoring = [partition for partition, item in self._open.items() if item.end is not None]
        wanted = tuple(restoring or self._open)
        if wanted == self._read:
            return
        self._read = wanted
        self._consumer.assign(wanted)
        for partition in wanted:
            self._consumer.seek(partition, self._open[partition].position)


def _check_format(item: _Restoring, partition: TopicPartition, block: Block) -> None:
    """Check that what a store of ours alone reads was written in its format.

    Raises:
        ForeignFormatError: another program, or another release, has written the changelog.
    """
    spec = item.store.spec
    own = format_of(spec.value_serde)
    found = None if own is None else own.first_foreign(block.values)
    if own is None or found is None:
        return
    row, error = found
    offset = block.offsets[row]
    raise ForeignFormatError(
        f"store {spec.name!r} of task {item.task_id} cannot be restored from {partition}, offset {offset}: {error}; "
        f"{REMEDY}",
        what=own.what,
        store=spec.name,
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
    )
