"""Detection of lost records in changelogs and repartition topics, when a task opens.

The end offset of a log never decreases, since retention and compaction only remove earlier records.  So a changelog
that ends before the position of the last commit or of a store on disk has lost records, and so has a repartition topic
that ends before the committed offset.  This is an error, since the remaining records would lead to wrong results.  A
store that is ahead of its changelog may be the only copy; it is dropped only without committed offsets, that is, when
the application starts from the beginning.  The module imports only ``clients``, ``core``, ``protocol`` and ``state``
from outside ``runtime``.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import frozen

from streams.clients import Producer
from streams.core.blocks.records import Block, TaskId, TopicPartition
from streams.core.errors import LostRecordsError
from streams.core.settings.config import StreamsConfig
from streams.protocol.group_messages import OffsetAndMetadata
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.stores.fitting import misfit
from streams.runtime.stores.restore import Restorer, changelog_position
from streams.runtime.tasks.task import CHANGELOG_POSITION, number_in
from streams.state import Store

log = logging.getLogger(__name__)

#: Metadata entry of a store from which its changelog was rebuilt: the end offset after that; ``_UNFINISHED`` before.
_REBUILT = "changelog_rebuilt"
_UNFINISHED = -1

_CAUSES = "a damaged log, an older copy of the broker's data, or a deleted topic"
_START_OVER = (
    "start over with `streams reset`, with another application id, or by deleting the group with its offsets, its "
    "internal topics and its state directory"
)


@frozen
class Loss:
    """A changelog that has lost records.

    It ends before ``committed``, its end offset at the last commit, or before ``position``, the position of the local
    store.
    """

    task_id: TaskId
    store: str
    partition: TopicPartition
    end: int
    #: The changelog end offset at the last commit, or None if it was not recorded.
    committed: int | None
    #: The changelog position of the store on this instance; 0 without a persistent store.
    position: int
    #: Whether a rebuild of the changelog from the store was interrupted.
    is_rebuilding: bool = False

    @property
    def is_in_store(self) -> bool:
        """Whether the store is known to contain all records up to the committed offsets."""
        return self.position > 0 and self.position >= (self.committed or 0)

    def error(self, advice: str = "") -> LostRecordsError:
        """Return an error that describes the loss, and lists ``advice`` and the general remedies."""
        expected = max(self.committed or 0, self.position)
        is_committed = (self.committed or 0) >= self.position
        whose = "the last commit had written it" if is_committed else "the store on disk has it"
        if self.is_in_store:
            here = (
                "; or start once with lost_records=rebuild to rewrite the changelog from the store in the state "
                "directory, which is complete"
            )
        elif self.position:
            here = f" (the store in the state directory cannot replace it: it ends at {self.position})"
        else:
            here = " (the state directory of this instance has no copy of the store)"
        if not self.committed:
            whose += " (which may be the position in another topic, if topology_optimization was on before)"
        return LostRecordsError(
            f"changelog {self.partition} of store {self.store!r} of task {self.task_id} ends at offset {self.end}, but "
            f"{whose} up to {expected}: records are lost ({_CAUSES}); {advice}restore the broker's data{here}; or "
            "start "
            f"once with lost_records=accept to continue without the lost records, with wrong results; or {_START_OVER}",
            topic=self.partition.topic,
            partition=self.partition.partition,
            expected=expected,
            end=self.end,
            task_id=self.task_id,
            store=self.store,
        )


def lost_changelogs(
    task_id: TaskId,
    stores: Mapping[str, Store],
    changelogs: Mapping[str, TopicPartition],
    committed: Mapping[str, int],
    extents: Mapping[TopicPartition, range],
) -> list[Loss]:
    """Return the changelogs that have lost records; ``committed`` has their end offsets at the last commit."""
    losses = []
    for name, partition in changelogs.items():
        end = extents[partition].stop
        position = changelog_position(stores[name])
        is_rebuilding = rebuilt_end(stores[name]) == _UNFINISHED
        loss = Loss(task_id, name, partition, end, committed.get(name), position, is_rebuilding)
        if is_rebuilding or loss.end < max(loss.committed or 0, loss.position):
            losses.append(loss)
    return losses


def rebuilt_end(store: Store) -> int:
    """Return the end offset of the changelog after it was rebuilt from a store; 0 if it never was."""
    return number_in(store, _REBUILT)


@frozen
class LossGuard:
    """Handles lost records for one thread, according to the setting ``lost_records``.

    ``new_producer`` creates a producer without transactions, to rebuild a changelog.
    """

    name: str
    config: StreamsConfig
    restorer: Restorer
    new_producer: Callable[[], Producer]

    def keeps_store(self, loss: Loss, store: Store, *, has_offsets: bool, is_copy: bool = False) -> bool:
        """Handle the loss of records, and return whether the store can be kept; if not, the caller must delete it.

        ``has_offsets`` means that the task continues from committed offsets.  ``is_copy`` means that the store is a
        standby replica; the active task then handles the changelog.

        Raises:
            LostRecordsError: ``lost_records`` is ``fail``.
        """
        policy = self.config.lost_records
        if not has_offsets:
            self._warn(
                loss, "no offsets are committed, so the application starts over: the content of the store is deleted"
            )
            return False
        if is_copy and loss.is_rebuilding:
            # It goes on if the task becomes active here.
            return True
        if policy == "accept" or (is_copy and policy == "rebuild"):
            self._warn(loss, "accepted: the store has the remaining records of the changelog")
            return loss.position <= loss.end
        if loss.is_rebuilding or (policy == "rebuild" and loss.is_in_store):
            why = misfit(loss.task_id, store)
            if why is not None:
                raise loss.error(f"it cannot be rewritten from the store by this version of the topology: {why}; ")
            count = self._rebuild(loss.partition, store)
            self._warn(loss, f"rebuilt: {count} records were written from the store; delete other copies of it")
            return True
        raise loss.error()

    def on_ahead(self, task_id: TaskId, store: str, changelog: TopicPartition, offsets: range) -> None:
        """Handle a changelog with records that no committed offset covers, though both are one transaction.

        Raises:
            LostRecordsError: ``lost_records`` is not ``accept``.
        """
        self._lost_commits(
            f"changelog {changelog} of store {store!r} of task {task_id} has records from offset {offsets.start} to "
            f"{offsets.stop}, but the committed offsets, which are of the same transaction, end before them",
            task_id,
            store,
            changelog,
            offsets,
        )

    def on_lost_commits(
        self, task_id: TaskId, store: str, changelog: TopicPartition, noted: int, committed: int
    ) -> None:
        """Handle a store on disk that was written after commit number ``noted``, but ``committed`` is the last one.

        Raises:
            LostRecordsError: ``lost_records`` is not ``accept``.
        """
        self._lost_commits(
            f"store {store!r} of task {task_id} in the state directory has the changes up to commit {noted} of the "
            f"task, but the committed offsets are those of its commit {committed}",
            task_id,
            store,
            changelog,
            range(committed, noted),
        )

    def _lost_commits(self, what: str, task_id: TaskId, store: str, changelog: TopicPartition, missing: range) -> None:
        if self.config.lost_records == "accept":
            log.warning("%s: %s; accepted: their inputs are processed a second time", self.name, what)
            return
        raise LostRecordsError(
            f"{what}: commits are lost ({_CAUSES}); restore the broker's data; or start once with lost_records=accept "
            f"to process their inputs a second time, with wrong results; or {_START_OVER}",
            topic=changelog.topic,
            partition=changelog.partition,
            expected=missing.start,
            end=missing.stop,
            task_id=task_id,
            store=store,
        )

    def _warn(self, loss: Loss, what: str) -> None:
        log.warning(
            "%s: changelog %s of store %r of task %s ends at offset %s, before %s: %s",
            self.name,
            loss.partition,
            loss.store,
            loss.task_id,
            loss.end,
            max(loss.committed or 0, loss.position),
            what,
        )

    def _rebuild(self, partition: TopicPartition, store: Store) -> int:
        """Append the whole content of a store to its changelog, with tombstones for all other changelog keys.

        A rebuild that is interrupted is repeated at the next start, since the store notes that it has begun.
        """
        store.commit({_REBUILT: str(_UNFINISHED).encode()})
        others = self.restorer.live_keys(partition)
        count = 0
        with self.new_producer() as producer:
            for block in store.snapshot_blocks():
                producer.send_block(partition, block)
                producer.flush()
                count += len(block)
                for key in block.keys:
                    others.pop(key or b"", None)
            # The records of a versioned store are versions; a tombstone does not delete the other versions.
            if others and not store.spec.kind.has_versions:
                keys = list(others)
                deleted = Block(keys, [None] * len(keys), list(others.values()), None, range(len(keys)))
                producer.send_block(partition, deleted)
                producer.flush()
                count += len(deleted)
        end = self.restorer.ends([partition])[partition]
        store.commit(dict.fromkeys((CHANGELOG_POSITION, _REBUILT), str(end).encode()))
        return count

    def position(self, task_id: TaskId, partition: TopicPartition, committed: OffsetAndMetadata, extent: range) -> int:
        """Return the offset at which to continue reading a repartition topic that has the offsets ``extent``.

        Raises:
            LostRecordsError: the log ends before the committed offset, and ``lost_records`` is ``fail``.
        """
        offset = committed.offset
        start = extent.start
        end = extent.stop
        if start <= offset <= end:
            return offset
        if self.config.lost_records == "accept":
            position = min(max(offset, start), end)
            log.warning(
                "%s: %s has the offsets %s to %s, not the committed %s; accepted: task %s continues at %s",
                self.name, partition, start, end, offset, task_id, position,
            )  # fmt: skip
            return position
        raise _lost_input(task_id, partition, offset, f"from {start} to {end}", end)


def check_inputs(
    plan: ApplicationPlan,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    ends_of: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]],
) -> None:
    """Check that repartition topics reach the committed offsets of all tasks, before any task writes to them.

    A write could move the end offset beyond the committed offset again and hide the loss.

    Raises:
        LostRecordsError: a topic ends before a committed offset.
    """
    own = {
        item.partition: task_id
        for task_id in plan.groups
        for item in plan.inputs(task_id)
        if item.partition in committed and plan.is_own(item)
    }
    if not own or plan.config.lost_records == "accept":
        return
    for partition, end in ends_of(list(own)).items():
        offset = committed[partition].offset
        if offset > end:
            raise _lost_input(own[partition], partition, offset, f"up to {end}", end)


def _lost_input(task_id: TaskId, partition: TopicPartition, offset: int, extent: str, end: int) -> LostRecordsError:
    return LostRecordsError(
        f"{partition}, which the application itself writes, has offsets {extent}, but task {task_id} has committed "
        f"{offset}: records are lost ({_CAUSES}); restore the broker's data; or start once with lost_records=accept to "
        f"continue without the lost records, with incomplete results; or {_START_OVER}",
        topic=partition.topic,
        partition=partition.partition,
        expected=offset,
        end=end,
        task_id=task_id,
    )


def without_sources(changelogs: Mapping[str, TopicPartition], sources: Iterable[str]) -> dict[str, TopicPartition]:
    """Return the changelogs by store, without the stores in ``sources``, whose changelog is a source topic."""
    others = set(sources)
    return {name: partition for name, partition in changelogs.items() if name not in others}
