"""The tasks and standby replicas of a thread, opened and closed to match the group's assignment.

Active tasks process records.  A standby replica (copy) only applies the changelogs of a task that runs elsewhere, so
that the task can be taken over quickly.  When an active task becomes a standby replica, or a replica becomes active,
its stores stay open.  The module imports only ``clients``, ``core``, ``protocol`` and ``state`` from outside
``runtime``.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from attrs import define, field, frozen

from streams.clients import Consumer, NoOffsetError, RequestTimeoutError
from streams.core.calls import CallLoop
from streams.core.errors import StateLockedError, StoreError, TopologyError
from streams.core.metrics import table
from streams.core.offset_reset import LATEST, NONE, duration_ms
from streams.core.records import TaskId, TopicPartition
from streams.protocol.group_messages import OffsetAndMetadata
from streams.runtime.assignment import tasks_of
from streams.runtime.checkpoint import Checkpoint, is_of_others
from streams.runtime.environment import SharedParts
from streams.runtime.facts import Directive
from streams.runtime.fitting import check_changelogs, loss_of_fields, misfit
from streams.runtime.homes import StateHome
from streams.runtime.losses import LossGuard, lost_changelogs, without_sources
from streams.runtime.plan import ApplicationPlan
from streams.runtime.recording import Opening, OrderRecorder
from streams.runtime.restore import Restorer, changelog_position
from streams.runtime.sampling import TaskSampling
from streams.runtime.task import Task
from streams.runtime.task_parts import TaskState
from streams.state import RecordCache

log = logging.getLogger(__name__)


class TaskOwner(Protocol):
    """The interface through which a task set uses its stream thread."""

    def commit(self, tasks: Iterable[Task]) -> None:
        """Commit the state, outputs and offsets of tasks."""
        ...

    def restart(self, error: Exception) -> None:
        """Close all tasks dirty after a commit that may have failed; they are reopened at their last commit."""
        ...

    def opened(self, task: Task) -> None:
        """Wait for the lanes of a task that is open and has its positions."""
        ...

    def forget(self, task_id: TaskId) -> None:
        """Discard the data that the thread keeps for a task; called before the task's stores are closed."""
        ...

    def partition_counts(self, topics: Sequence[str]) -> Sequence[int]:
        """Return the partition counts of topics that a sink or handler has chosen, and that are missing in the plan."""
        ...


@frozen
class _LastCommit:
    """The last commit of a task: the offsets with their metadata, the checkpoint, and the changelog of each store."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    checkpoint: Checkpoint
    changelogs: Mapping[str, TopicPartition]


@define(eq=False)
class TaskSet:
    """The open tasks and standby replicas of one thread."""

    name: str
    plan: ApplicationPlan
    shared: SharedParts
    consumer: Consumer
    restorer: Restorer
    losses: LossGuard
    cache: RecordCache | None
    owner: TaskOwner = field(init=False)
    #: The event loop of the thread; None in a bounded run, where tasks wait for their calls.
    call_loop: CallLoop | None = None
    active: dict[TaskId, Task] = field(factory=dict)
    #: Stores of standby replicas, whose tasks run on other threads.
    copies: dict[TaskId, dict[str, Any]] = field(factory=dict)
    owner_of: dict[TopicPartition, Task] = field(factory=dict)
    #: Number of recorded tasks that were opened.
    _opened: int = 0
    #: Stores of which a warning was logged that their class has lost fields.
    _losing: set[str] = field(factory=set)

    @property
    def home(self) -> StateHome:
        """The storage of the instance's local stores: a state directory, or memory."""
        return self.shared.environment.home

    def reconcile(self, plan: ApplicationPlan, directive: Directive) -> bool:
        """Open and close tasks to match the assignment; return False if another thread still has one of these open."""
        self.plan = plan
        wanted = tasks_of(plan.partition_groups(), self.consumer.assignment())
        followed = [task for task in (*directive.standby, *directive.warmup) if task not in wanted]
        self._close_changed(wanted)
        for task_id in [task_id for task_id in self.copies if task_id not in wanted and task_id not in followed]:
            self.close_copy(task_id)
        is_complete = True
        for open_one, task_ids in ((self._open, wanted), (self._open_copy, followed)):
            for task_id in task_ids:
                try:
                    open_one(task_id)
                except StateLockedError:
                    # Another thread of this process has not closed the task yet.
                    is_complete = False
        return is_complete

    def positions(self) -> dict[TaskId, int]:
        """Return, for each task whose local state may lag behind its changelogs, the sum of its changelog positions."""
        positions = dict(self.home.positions())
        for task_id, task in self.active.items():
            if self.restorer.is_restoring(task_id):
                positions[task_id] = _position_sum(task.stores)
        return positions | {task_id: _position_sum(stores) for task_id, stores in self.copies.items()}

    def _close_changed(self, wanted: Sequence[TaskId]) -> None:
        """Commit and close tasks that are no longer assigned, or must be reopened because their inputs have changed."""
        groups = self.plan.partition_groups()
        changed = [
            task
            for task_id, task in self.active.items()
            if task_id not in wanted or tuple(task.inputs) != tuple(groups[task_id])
        ]
        if not changed:
            return
        try:
            self.owner.commit(changed)
        except RequestTimeoutError as error:
            # Whether a transaction was committed is unknown: its producer cannot send anything more.
            self.owner.restart(error)
            raise
        for task in changed:
            self.close(task)

    def _open(self, task_id: TaskId) -> None:
        if task_id in self.active:
            return
        plan = self.plan
        copied = self.copies.pop(task_id, None)
        if copied is None:
            stores = self.home.open_task(task_id, plan.stores_of(task_id), self)
        else:
            stores = copied
            self.restorer.forget(task_id)
            self.shared.metrics.counter(table.TAKEN_OVER).value += 1
            log.info("%s: task %s continues from its standby replica", self.name, task_id)
        try:
            log_starts = self._log_starts(task_id)
            changelog_ends = self._changelog_ends(task_id)
            last = self._last_commit(task_id)
            has_lost = self._check_stores(task_id, stores, last, is_on_disk=copied is None)
            starts = self._positions(task_id, last.offsets, log_starts)
            limits = {
                name: last.offsets[tp].offset if tp in last.offsets else 0
                for name, tp in last.changelogs.items()
                if name in plan.topology.source_changelogs
            }
            self.restorer.begin(task_id, stores, last.changelogs, limits, self._ahead(last, changelog_ends))
            task = plan.open_task(
                task_id,
                TaskState(
                    stores,
                    self.shared.global_stores,
                    last.checkpoint,
                    is_complete=not self.restorer.is_restoring(task_id),
                    carries_cancelled=self.shared.bounded is not None,
                    is_timed=self.shared.bounded is None,
                    call_loop=self.call_loop,
                ),
                self.shared.metrics,
                chosen_counts=self.owner.partition_counts,
                cache=self._cache_of(),
                is_bounded=self.shared.bounded is not None,
            )
        except BaseException:
            self.restorer.forget(task_id)
            self._release(task_id, stores)
            raise
        self.shared.keys.attach(task, plan)
        if self._is_recorded:
            self._record(task, starts, last.checkpoint)
        for item in plan.inputs(task_id):
            position = starts[item.partition]
            task.seek(item.partition, position)
            self.consumer.seek(item.partition, position)
            task.queues[item.partition].is_loop = self.shared.bounded is not None and self.shared.bounded.is_loop(
                task_id, item
            )
            self.owner_of[item.partition] = task
        # Accepted or repaired losses take effect with the next commit.
        task.is_dirty = task.wants_commit = has_lost
        self.active[task_id] = task
        self.owner.opened(task)
        self.shared.metrics.counter(table.TASK_CREATED).value += 1
        if self.shared.environment.spans is not None:
            task.sampling = TaskSampling(self.shared.environment.spans, task_id, task.outbox, task.inputs)

    @property
    def _is_recorded(self) -> bool:
        return self.shared.config.flight_recorder and self.shared.bounded is None

    def _cache_of(self) -> RecordCache | None:
        """Return the record cache for a task.

        A task with a flight recorder has a separate cache of a fixed size, because evictions must not depend on other
        tasks.
        """
        if self.cache is None or not self._is_recorded:
            return self.cache
        return RecordCache(max(1, self.shared.config.cache_max_bytes // len(self.plan.groups)))

    def _record(self, task: Task, starts: Mapping[TopicPartition, int], checkpoint: Checkpoint) -> None:
        """Attach a flight recorder to a task.

        Raises:
            TopologyError: the task calls async functions; the recorder does not record when calls finish.
        """
        if task.calls is not None:
            raise TopologyError(
                f"task {task.task_id} calls async functions, whose results come at times that the flight recorder does "
                "not record; set flight_recorder=False"
            )
        self._opened += 1
        # Changelog positions are added before the first frame, when the stores are restored.
        opening = Opening(task.now_ms, dict(starts), checkpoint.to_json(), {})
        run = f"{self.name}/{self._opened}/{task.now_ms}"
        cache_bytes = 0 if task.cache is None else task.cache.max_bytes
        task.record_order(OrderRecorder(task.task_id, run, opening, cache_bytes))

    def _drop_misfits(self, task_id: TaskId, stores: dict[str, Any]) -> None:
        """Delete and reopen the stores whose layout was written by an earlier version of the topology.

        Raises:
            StoreError: the content of a store is incompatible with the topology, or cannot be restored.
        """
        for name, store in list(stores.items()):
            why = misfit(task_id, store)
            if why is not None:
                log.warning("%s: store %r of task %s is rebuilt from its changelog: %s", self.name, name, task_id, why)
                store.close()
                stores[name] = self.home.renew_store(task_id, self.plan.topology.stores[name])
            elif name not in self._losing and (loss := loss_of_fields(store)) is not None:
                self._losing.add(name)
                log.warning("%s: %s", self.name, loss)

    def _last_commit(self, task_id: TaskId) -> _LastCommit:
        """Return the last commit of a task; log a warning for offsets that another client has committed."""
        inputs, stores = self.plan.inputs(task_id), [spec.name for spec in self.plan.stores_of(task_id)]
        committed = self.consumer.committed([item.partition for item in inputs])
        for partition, found in committed.items():
            if is_of_others(found.metadata):
                log.warning(
                    "%s: the committed offset of %s has metadata of another client (%.60r): its stream time restarts",
                    self.name,
                    partition,
                    found.metadata,
                )
        checkpoint = Checkpoint.from_metadata({partition: found.metadata for partition, found in committed.items()})
        return _LastCommit(committed, checkpoint, self.plan.changelogs(task_id, stores))

    def _check_stores(
        self,
        task_id: TaskId,
        stores: dict[str, Any],
        last: _LastCommit,
        *,
        is_on_disk: bool = True,
        is_copy: bool = False,
    ) -> bool:
        """Check stores against the last commit; return whether records were lost and the loss was handled.

        Raises:
            LostRecordsError: a changelog has lost records, and ``lost_records`` is ``fail``.
            StoreError: the content of a store or of its changelog is incompatible with the topology.
        """
        has_lost = self._check_losses(task_id, stores, last, is_copy=is_copy)
        # Stores are restored from changelogs, and read in the formats of the topology, only if nothing is lost.
        if is_on_disk:
            self._drop_misfits(task_id, stores)
        self._check_changelogs(task_id, stores, last)
        return has_lost

    def _check_changelogs(self, task_id: TaskId, stores: Mapping[str, Any], last: _LastCommit) -> None:
        """Check that the changelog formats recorded in the last commit are compatible with the topology.

        Raises:
            StoreError: a changelog has another format.
        """
        found = check_changelogs(task_id, stores, last.changelogs, last.checkpoint.contents)
        for name in self.restorer.without_records({name: last.changelogs[name] for name in found}):
            # The records have been deleted since that commit, so nothing can be misread.
            del found[name]
        for message in found.values():
            raise StoreError(message)

    def _check_losses(self, task_id: TaskId, stores: dict[str, Any], last: _LastCommit, *, is_copy: bool) -> bool:
        """Check that changelogs have all committed records; return whether records were lost and the loss was handled.

        Raises:
            LostRecordsError: a changelog has lost records, and ``lost_records`` is ``fail``.
        """
        own = without_sources(last.changelogs, self.plan.topology.source_changelogs)
        ends = self.restorer.ends(own.values())
        lost = lost_changelogs(task_id, stores, own, last.checkpoint.changelog_ends, ends)
        for loss in lost:
            spec = self.plan.topology.stores[loss.store]
            if self.losses.keeps_store(loss, stores[loss.store], has_offsets=bool(last.offsets), is_copy=is_copy):
                continue
            stores[loss.store].close()
            stores[loss.store] = self.home.renew_store(task_id, spec)
        return bool(lost)

    def _log_starts(self, task_id: TaskId) -> dict[TopicPartition, int]:
        """Return the log start offsets of the inputs that only the application writes.

        They must be read before the committed offsets.  A member that does not know that the group has removed it may
        open a task that another member owns by now; that member commits offsets, then deletes the records before them.
        If start offsets are read first, the committed offset is at or after the log start unless records are lost.
        """
        return self.restorer.starts([item.partition for item in self.plan.inputs(task_id) if self.plan.is_own(item)])

    def _changelog_ends(self, task_id: TaskId) -> dict[str, int]:
        """Return the end offset of each changelog of a task that commits with exactly-once.

        They are read before the committed offsets, for the same reason as log start offsets: records that another
        member commits meanwhile are not ahead of its offsets.  Records of open transactions do not count, since their
        offsets may be committed later.
        """
        if not self.shared.config.is_exactly_once:
            return {}
        changelogs = self.plan.changelogs(task_id, [spec.name for spec in self.plan.stores_of(task_id)])
        own = without_sources(changelogs, self.plan.topology.source_changelogs)
        ends = self.restorer.stable_ends(own.values())
        return {name: ends[partition] for name, partition in own.items()}

    def _ahead(self, last: _LastCommit, ends: Mapping[str, int]) -> dict[str, range]:
        """Return by store the changelog offsets up to ``ends`` that no commit covers; a record there is a lost commit.

        In a bounded run the state directory is the application's alone: without any committed offset all are lost.
        """
        begins: Mapping[str, int] = {}
        if last.checkpoint.is_exactly_once:
            begins = last.checkpoint.changelog_ends
        elif self.shared.bounded is not None and not last.offsets and any(ends.values()):
            inputs = [item.partition for task_id in self.plan.groups for item in self.plan.inputs(task_id)]
            begins = {} if self.consumer.committed(inputs) else dict.fromkeys(ends, 0)
        return {name: range(begins.get(name, end), end) for name, end in ends.items()}

    def _positions(
        self,
        task_id: TaskId,
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        log_starts: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return the start position for each input of a task; ``log_starts`` is the result of ``_log_starts``.

        Raises:
            LostRecordsError: the log of a topic that only the application writes does not reach the committed offset.
        """
        plan = self.plan
        inputs = plan.inputs(task_id)
        ends = self.restorer.ends([partition for partition in log_starts if partition in committed])
        result = {}
        for item in inputs:
            partition = item.partition
            if partition in ends:
                found = committed[partition]
                result[partition] = self.losses.position(
                    task_id, partition, found, log_starts[partition], ends[partition]
                )
            elif partition in committed:
                result[partition] = committed[partition].offset
            else:
                result[partition] = self._start_position(partition)
        return result

    def _start_position(self, partition: TopicPartition) -> int:
        """Return the start position for a partition without a committed offset.

        With the reset policy "latest", a partition that was added to a topic which the application already reads is
        read from the beginning, since none of its records can have been read.

        Raises:
            NoOffsetError: the reset policy is "none".
        """
        policy = self.plan.topology.offset_reset(partition.topic) or self.shared.config.consumer.auto_offset_reset
        # Repartition topics, and all inputs of a bounded run, are read from the beginning.
        if self.shared.bounded is None and partition.topic not in self.plan.repartition_topics():
            if policy == NONE:
                raise NoOffsetError(
                    f"{partition}: application {self.shared.config.application_id!r} has no committed offset, and its "
                    "offset_reset (auto_offset_reset) is none; give 'earliest' or 'latest', or set it with "
                    "`streams groups rewind`",
                    (partition,),
                )
            back_ms = duration_ms(policy)
            if back_ms is not None:
                from_ms = max(0, self.shared.environment.clock.now_ms() - back_ms)
                found = self.consumer.offsets_for_times({partition: from_ms})[partition]
                return self.consumer.end_offsets([partition])[partition] if found is None else found.offset
            if policy == LATEST:
                others = [tp for tp in self.consumer.partitions_for(partition.topic) if tp != partition]
                if not self.consumer.committed(others):
                    return self.consumer.end_offsets([partition])[partition]
        return self.consumer.beginning_offsets([partition])[partition]

    def _open_copy(self, task_id: TaskId) -> None:
        if task_id in self.copies or task_id in self.active:
            return
        stores = self.home.open_task(task_id, self.plan.stores_of(task_id), self)
        try:
            self._check_stores(task_id, stores, self._last_commit(task_id), is_copy=True)
            self._follow(task_id, stores)
        except BaseException:
            self._release(task_id, stores)
            raise

    def _follow(self, task_id: TaskId, stores: dict[str, Any]) -> None:
        # A store whose changelog is a source topic must not get ahead of commits, so it is restored at takeover.
        changelogs = self.plan.changelogs(task_id, stores)
        self.restorer.follow(task_id, stores, without_sources(changelogs, self.plan.topology.source_changelogs))
        self.copies[task_id] = stores

    def close(self, task: Task, *, keeps_stores: bool = False) -> None:
        """Close a task without a commit; with ``keeps_stores``, its stores remain open as a standby replica."""
        task_id = task.task_id
        self.restorer.forget(task_id)
        self.owner.forget(task_id)
        for partition in task.inputs:
            self.owner_of.pop(partition, None)
        del self.active[task_id]
        self.shared.metrics.counter(table.TASK_CLOSED).value += 1
        self.shared.metrics.close(task_id)
        try:
            task.close_processors()
        except BaseException:
            self._release(task_id, task.stores)
            raise
        if keeps_stores:
            self._follow(task_id, dict(task.stores))
        else:
            self._release(task_id, task.stores)

    def close_copy(self, task_id: TaskId) -> None:
        """Close the standby replica of a task."""
        self.restorer.forget(task_id)
        self._release(task_id, self.copies.pop(task_id))

    def close_all(self) -> None:
        """Close all active tasks and standby replicas, without a commit."""
        for task in list(self.active.values()):
            self.close(task)
        for task_id in list(self.copies):
            self.close_copy(task_id)

    def _release(self, task_id: TaskId, stores: Mapping[str, Any]) -> None:
        position = _position_sum(stores)
        try:
            for store in stores.values():
                store.close()
        finally:
            self.home.release_task(task_id, self, position)


def _position_sum(stores: Mapping[str, Any]) -> int:
    """Return the sum of the changelog positions of a task's stores (KIP-441's task offset sum)."""
    return sum(changelog_position(store) for store in stores.values() if store.spec.has_changelog)
