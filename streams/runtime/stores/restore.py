"""Restore of stores from changelogs when a task opens, and updates of standby replicas.

A store is restored from the changelog position stored with its data, or from the log start offset if it has no
position, up to the end offset that the changelog had when the restore began.  A standby replica is updated
continuously, except while a task of the same thread is being restored.  Memory is bounded: restored state is written
together with its position.  The module imports only ``clients``, ``core``, ``protocol`` and ``state`` from outside
``runtime``.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from attrs import define, field

from streams.clients import Consumer
from streams.core.blocks.marks import REMEDY, format_of
from streams.core.blocks.records import Block, TaskId, TopicPartition
from streams.core.errors import ForeignFormatError, StoreError, StreamsError
from streams.core.metrics import Metrics, table
from streams.core.notices import alone
from streams.core.user_code import refuse_result
from streams.protocol.messages import READ_COMMITTED, READ_UNCOMMITTED
from streams.runtime.tasks.task import CHANGELOG_POSITION, number_in
from streams.state import Store, check_restored, entries_with_headers

log = logging.getLogger(__name__)

#: Uncommitted restored state in bytes above which it is written to the stores.
_MAX_UNCOMMITTED_BYTES = 64 << 20
#: Poll timeout while reading a changelog to its end.
_READ_POLL_MS = 100
#: Offsets to restore above which a store is prepared for bulk writes.
_LONG = 50_000
#: Time in milliseconds after which a restore is told of.
_LONG_MS = 60_000

#: A function that is called with (task, store, offsets restored so far, offsets to restore).
RestoreListener = Callable[[TaskId, str, int, int], None]


def changelog_position(store: Store) -> int:
    """Return the first changelog offset that is not contained in the committed state of a store."""
    return number_in(store, CHANGELOG_POSITION)


@define(eq=False)
class _Restoring:
    """A store being restored up to the offset ``end``, or a standby replica, which has no ``end``."""

    task_id: TaskId
    store: Store
    start: int
    position: int
    end: int | None
    #: Monotonic time at which the restore began.
    started_ms: int
    upgrade: Callable[[Block], Block] | None
    #: The offsets at which a record would be ahead of the committed offsets.
    ahead: range = range(0)
    #: Whether it was said that headers of entries are not kept.
    has_warned: bool = False
    #: Number of applied records; it may be less than the difference of the offsets, which have gaps.
    count: int = 0


@define(eq=False)
class Restorer:
    """Applies changelog records to the stores of a thread's new tasks and standby replicas."""

    _consumer: Consumer
    _max_records: int
    _listener: RestoreListener | None = None
    _metrics: Metrics = field(factory=Metrics)
    _open: dict[TopicPartition, _Restoring] = field(factory=dict)
    _read: tuple[TopicPartition, ...] = ()
    #: Maximum uncommitted state of all stores being restored.
    max_uncommitted_bytes: int = _MAX_UNCOMMITTED_BYTES
    #: Called with task, store, changelog and offsets if a changelog is ahead of the committed offsets.
    on_ahead: Callable[[TaskId, str, TopicPartition, range], None] = lambda *_: None

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return log end offsets, which include the records of open transactions; a restore waits for these to end."""
        asked = list(partitions)
        return self._consumer.end_offsets(asked, isolation_level=READ_UNCOMMITTED) if asked else {}

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets before which all transactions are decided."""
        decided = list(partitions)
        return self._consumer.end_offsets(decided, isolation_level=READ_COMMITTED) if decided else {}

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        asked = list(partitions)
        return self._consumer.beginning_offsets(asked) if asked else {}

    def live_keys(self, partition: TopicPartition) -> dict[bytes, int]:
        """Read a changelog to its end, and return its live keys, each with the timestamp of its last record."""
        keys: dict[bytes, int] = {}
        position = self.starts([partition])[partition]
        end = self.ends([partition])[partition]
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

    def begin(
        self,
        task_id: TaskId,
        stores: Mapping[str, Store],
        partitions: Mapping[str, TopicPartition],
        limits: Mapping[str, int],
        ahead: Mapping[str, range],
        extents: Mapping[TopicPartition, range],
    ) -> None:
        """Start restoring a task's stores; ``partitions`` contains the changelog partition of each logged store.

        ``limits`` contains the end offsets for stores whose changelog is a source topic.  ``ahead`` contains, by store,
        the changelog offsets from the last commit on: a record there is passed to ``on_ahead``, also if the store has
        it already.  ``extents`` contains the offsets that each changelog has.
        """
        now_ms = self._metrics.clock.monotonic_ms()
        for name, partition in partitions.items():
            first = extents[partition].start
            end = extents[partition].stop
            end = min(end, limits.get(name, end))
            start = max(changelog_position(stores[name]), first)
            if ahead.get(name):
                start = min(start, max(ahead[name].start, first))
            if start < end:
                stores[name].set_restoring(end - start >= _LONG)
                self._add(partition, task_id, stores[name], start, end, now_ms)
                self._open[partition].ahead = ahead.get(name, range(0))
                text = "task %s: restoring store %r from %s, offsets %d to %d"
                log.info(text, task_id, name, partition, start, end)
        self._assign()

    def follow(
        self,
        task_id: TaskId,
        stores: Mapping[str, Store],
        partitions: Mapping[str, TopicPartition],
        starts: Mapping[TopicPartition, int],
    ) -> None:
        """Start to update the standby replicas of a task's stores, until ``forget`` is called.

        ``starts`` contains the log start offset of each changelog.
        """
        now_ms = self._metrics.clock.monotonic_ms()
        for name, partition in partitions.items():
            start = max(changelog_position(stores[name]), starts[partition])
            # The task may have been revoked while its store was being restored.
            stores[name].set_restoring(False)
            self._add(partition, task_id, stores[name], start, None, now_ms)
        self._assign()

    def _add(
        self, partition: TopicPartition, task_id: TaskId, store: Store, start: int, end: int | None, now_ms: int
    ) -> None:
        upgrades = store.spec.upgrades
        upgrade = None if upgrades is None else upgrades(partition)
        self._open[partition] = _Restoring(task_id, store, start, start, end, now_ms, upgrade)

    def is_restoring(self, task_id: TaskId) -> bool:
        """Return whether a store of the task is still being restored."""
        return any(item.task_id == task_id and item.end is not None for item in self._open.values())

    def restored(self, task_id: TaskId) -> int | None:
        """Return how many changelog offsets of a task are restored so far, or None if none is being restored."""
        stores = [item for item in self._open.values() if item.task_id == task_id and item.end is not None]
        return sum(item.position - item.start for item in stores) if stores else None

    @property
    def is_idle(self) -> bool:
        """Whether no store is being restored."""
        return all(item.end is None for item in self._open.values())

    def lag(self, task_id: TaskId) -> int | None:
        """Return the lag of a standby replica in records as of its last fetch, or None before its first fetch."""
        total = 0
        for partition, item in self._open.items():
            if item.task_id == task_id:
                end = self._consumer.known_end(partition) if partition in self._read else None
                if end is None:
                    return None
                total += max(0, end - item.position)
        return total

    def progress(self) -> list[tuple[TaskId, int, int | None]]:
        """Return the tasks being restored, each with its remaining offsets and remaining milliseconds; thread-safe.

        The milliseconds are an estimate from the rate so far, or None if nothing has been restored yet.
        """
        now_ms = self._metrics.clock.monotonic_ms()
        remaining: dict[TaskId, int] = {}
        etas: dict[TaskId, int | None] = {}
        for item in list(self._open.values()):
            if item.end is not None:
                left = max(0, item.end - item.position)
                done = item.position - item.start
                eta_ms = left * (now_ms - item.started_ms) // done if done else None
                before = etas.get(item.task_id, 0)
                etas[item.task_id] = None if eta_ms is None or before is None else max(before, eta_ms)
                remaining[item.task_id] = remaining.get(item.task_id, 0) + left
        return [(task_id, left, etas[task_id]) for task_id, left in remaining.items()]

    def fresh_at_ms(self, task_id: TaskId) -> int | None:
        """Return the monotonic time at which a standby replica was last known to be caught up, or None if it lags."""
        times: list[int] = []
        consumer = self._consumer
        for partition, item in self._open.items():
            if item.task_id == task_id:
                end = consumer.known_end(partition)
                known_ms = consumer.end_known_ms(partition)
                # Transactions leave gaps before the end.
                position = max(item.position, consumer.known_position(partition) or 0)
                if item.end is not None or end is None or known_ms is None or position < end:
                    return None
                times.append(known_ms)
        return min(times, default=None)

    def forget(self, task_id: TaskId) -> None:
        """Stop the restore or update of a task's stores."""
        gone = [partition for partition, item in self._open.items() if item.task_id == task_id]
        for partition in gone:
            del self._open[partition]
            self._metrics.notices.forget(("restore", partition))
        if gone:
            self._assign()

    def poll(self, timeout_ms: int = 0) -> int:
        """Apply fetched changelog records, and return how many records were applied."""
        if not self._open:
            return 0
        count = 0
        start_ns = self._metrics.clock.monotonic_ns()
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
        self._tell_of_long()
        self._write_back()
        is_idle = self.is_idle
        self._finish()
        polled = self._metrics.amounts(table.STANDBY_POLLED if is_idle else table.RESTORE_POLLED)
        polled.record(self._metrics.clock.monotonic_ns() - start_ns)
        return count

    def close(self) -> None:
        """Close the consumer that reads changelogs."""
        self._consumer.close()

    def _apply(self, partition: TopicPartition, item: _Restoring, block: Block) -> int:
        end = item.end
        if end is not None and block.offsets[-1] >= end:
            block = block.slice(0, sum(1 for offset in block.offsets if offset < end))
        if len(block):
            self._check_ahead(partition, item, block)
            if item.upgrade is not None:
                block = item.upgrade(block)
            _check_format(item, partition, block)
            _warn_of_headers(item, partition, block)
            start_ns = self._metrics.clock.monotonic_ns()
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
                    "start over with another application id (or state directory)"
                ) from error
            item.position = block.offsets[-1] + 1
            item.count += len(block)
            self._record(item, len(block), start_ns)
        elif end is not None:
            item.position = end
        return len(block)

    def _check_ahead(self, partition: TopicPartition, item: _Restoring, block: Block) -> None:
        if item.ahead and block.offsets[-1] >= item.ahead.start and block.offsets[0] < item.ahead.stop:
            self.on_ahead(item.task_id, item.store.spec.name, partition, item.ahead)
            item.ahead = range(0)

    def _record(self, item: _Restoring, count: int, start_ns: int) -> None:
        metrics = self._metrics
        task_id = item.task_id
        spec = item.store.spec
        if item.end is None:
            metrics.counter(table.UPDATED, task=task_id).value += count
            return
        metrics.counter(table.RESTORED, task=task_id).value += count
        metrics.counter(table.RESTORED_BY_THREAD).value += count
        took_ns = metrics.clock.monotonic_ns() - start_ns
        restored = metrics.amounts(table.STORE_RESTORED, task=task_id, store=spec.name, store_type=item.store.type_name)
        restored.record(took_ns, count)

    def _write_back(self) -> None:
        """Write restored state to the stores when it exceeds the memory bound.

        The written state is a prefix of the changelog.  It is written together with its position, at which the next
        restore continues.  With exactly-once it has only records of committed transactions.
        """
        restoring = [item for item in self._open.values() if item.end is not None]
        if sum(item.store.approximate_uncommitted_bytes for item in restoring) <= self.max_uncommitted_bytes:
            return
        for item in restoring:
            item.store.commit({CHANGELOG_POSITION: str(item.position).encode()})

    def _finish(self) -> None:
        """Complete the restore of the stores that have reached their end offsets."""
        done: dict[TaskId, None] = {}
        for partition in self._read:
            item = self._open.get(partition)
            if item is None or item.end is None:
                continue
            # Compaction and transactions leave gaps: the last record may be well before the end offset.
            if item.position >= item.end or (self._consumer.known_position(partition) or 0) >= item.end:
                check_restored(item.store)
                item.store.commit({CHANGELOG_POSITION: str(item.end).encode()})
                item.store.set_restoring(False)
                text = f"task {item.task_id}: restored store {item.store.spec.name!r}, {item.count:,} records"
                now_ms = self._metrics.clock.monotonic_ms()
                if not self._metrics.notices.end(log, ("restore", partition), now_ms, text):
                    log.info("%s", text)
                del self._open[partition]
                done[item.task_id] = None
        if done:
            self._metrics.counter(table.TASKS_RESTORED).value += sum(not self.is_restoring(task_id) for task_id in done)
            self._assign()

    def _tell_of_long(self) -> None:
        """Tell of restores that take longer than a minute, once a minute."""
        now_ms = self._metrics.clock.monotonic_ms()
        for partition, item in self._open.items():
            took_ms = now_ms - item.started_ms
            if item.end is not None and took_ms >= _LONG_MS:
                left = max(0, item.end - item.position)
                done = item.position - item.start
                rest = f"about {left * took_ms // done // 1000:,} s" if done else "unknown time"
                text = (
                    f"task {item.task_id}: restoring store {item.store.spec.name!r} from {partition} for "
                    f"{took_ms // 1000:,} s: {left:,} records left, {rest}"
                )
                self._metrics.notices.last(log, ("restore", partition), now_ms, alone(text), since_ms=item.started_ms)

    def _report(self, item: _Restoring) -> None:
        if self._listener is not None and item.end is not None:
            answer: object = self._listener(
                item.task_id, item.store.spec.name, item.position - item.start, item.end - item.start
            )
            refuse_result(answer, "on_restore")

    def _assign(self) -> None:
        """Assign the changelogs of stores being restored or, if there are none, of the standby replicas."""
        restoring = [partition for partition, item in self._open.items() if item.end is not None]
        partitions = tuple(restoring or self._open)
        if partitions == self._read:
            return
        self._read = partitions
        self._consumer.assign(partitions)
        for partition in partitions:
            self._consumer.seek(partition, self._open[partition].position)


def _check_format(item: _Restoring, partition: TopicPartition, block: Block) -> None:
    """Check that changelog records have the format of the store, for keys and values with a format of their own.

    Raises:
        ForeignFormatError: another program, or another release, has written the changelog.
    """
    spec = item.store.spec
    for own, column in ((spec.kind.family.key_format, block.keys), (format_of(spec.value_serde), block.values)):
        foreign = None if own is None else own.first_foreign(column)
        if own is not None and foreign is not None:
            _refuse(item, partition, block, *foreign)


def _warn_of_headers(item: _Restoring, partition: TopicPartition, block: Block) -> None:
    """Log once that entries have headers, which stores do not keep.

    A source topic that serves as changelog has the headers of its records anyway.
    """
    spec = item.store.spec
    name = spec.name
    if (
        item.has_warned
        or block.headers is None
        or not spec.loses_headers
        or not partition.topic.endswith(f"-{name}-changelog")
    ):
        return
    if count := entries_with_headers(block):
        item.has_warned = True
        log.warning(
            "store %r of task %s: entries of its changelog %s have headers (%d from offset %d on), as Kafka Streams "
            "writes them for stores with headers; values are read, headers are not kept: a processor keeps them in a "
            "store declared with headers, such as timestamped_key_value_store_with_headers",
            name,
            item.task_id,
            partition,
            count,
            block.offsets[0],
        )


def _refuse(item: _Restoring, partition: TopicPartition, block: Block, row: int, error: ForeignFormatError) -> NoReturn:
    """Raise the error for a changelog record that does not have the format of the store."""
    spec = item.store.spec
    offset = block.offsets[row]
    raise ForeignFormatError(
        f"store {spec.name!r} of task {item.task_id} cannot be restored from {partition}, offset {offset}: {error}; "
        f"{REMEDY}",
        what=error.what,
        store=spec.name,
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
    )
