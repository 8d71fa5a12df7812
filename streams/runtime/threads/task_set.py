"""The tasks and standby replicas of a thread, opened and closed to match the group's assignment.

Active tasks process records.  A standby replica (copy) only applies the changelogs of a task that runs elsewhere, so
that the task can be taken over quickly.  When an active task becomes a standby replica, or a replica becomes active,
its stores stay open.  The module imports only ``clients``, ``core``, ``protocol`` and ``state`` from outside
``runtime``.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from attrs import define, field

from streams.clients import Consumer, RequestTimeoutError
from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.concurrency.calls import CallLoop
from streams.core.errors import StateLockedError, StoreFormatError, TopologyError
from streams.core.metrics import table
from streams.runtime.assignment.assignment import tasks_of
from streams.runtime.plan.facts import Directive
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.stores.fitting import check_changelogs, loss_of_fields, misfit
from streams.runtime.stores.homes import StateHome
from streams.runtime.stores.losses import LossGuard, lost_changelogs, rebuilt_end, without_sources
from streams.runtime.stores.restore import Restorer, changelog_position
from streams.runtime.stores.task_logs import LastCommit, TaskLogReader, TaskLogs
from streams.runtime.tasks.checkpoint import Checkpoint
from streams.runtime.tasks.recording import Opening, OrderRecorder
from streams.runtime.tasks.sampling import TaskSampling
from streams.runtime.tasks.task import Task, TaskState, commits_of
from streams.runtime.threads.environment import SharedParts
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
    _reader: TaskLogReader = field(init=False)

    def __attrs_post_init__(self) -> None:
        shared = self.shared
        self._reader = TaskLogReader(
            self.name,
            self.consumer,
            self.restorer,
            shared.config,
            shared.environment.clock,
            is_bounded=shared.bounded is not None,
        )

    @property
    def home(self) -> StateHome:
        """The storage of the instance's local stores: a state directory, or memory."""
        return self.shared.environment.home

    def reconcile(self, plan: ApplicationPlan, directive: Directive) -> bool:
        """Open and close tasks to match the assignment; return False if another thread still has one of these open."""
        self.plan = plan
        assigned = tasks_of(plan.partition_groups(), self.consumer.assignment())
        followed = [task for task in (*directive.standby, *directive.warmup) if task not in assigned]
        self._close_changed(assigned)
        for task_id in [task_id for task_id in self.copies if task_id not in assigned and task_id not in followed]:
            self.close_copy(task_id)
        tasks = [task_id for task_id in assigned if task_id not in self.active]
        copies = [task_id for task_id in followed if task_id not in self.copies]
        locked: dict[TaskId, dict[str, Any]] = {}
        is_complete = True
        try:
            for task_id in (*tasks, *copies):
                try:
                    if task_id not in self.copies:
                        locked[task_id] = self.home.open_task(task_id, plan.stores_of(task_id), self)
                except StateLockedError:
                    # Another thread of this process has not closed the task yet.
                    is_complete = False
            self._open_all(
                [task_id for task_id in tasks if task_id in locked or task_id in self.copies],
                [task_id for task_id in copies if task_id in locked],
                locked,
            )
        except BaseException:
            for task_id, stores in locked.items():
                self.restorer.forget(task_id)
                self._release(task_id, stores)
            raise
        return is_complete

    def _open_all(
        self, tasks: Sequence[TaskId], copies: Sequence[TaskId], locked: dict[TaskId, dict[str, Any]]
    ) -> None:
        """Open tasks and standby replicas; their stores are removed from ``locked`` once they are open."""
        if not tasks and not copies:
            return
        logs = self._reader.read(self.plan, tasks, copies)
        for task_id in tasks:
            is_copied = task_id in self.copies
            if is_copied:
                locked[task_id] = self.copies.pop(task_id)
                self.restorer.forget(task_id)
                self.shared.metrics.counter(table.TAKEN_OVER).value += 1
                log.info("%s: task %s continues from its standby replica", self.name, task_id)
            self._open(task_id, locked[task_id], logs, is_on_disk=not is_copied)
            del locked[task_id]
        for task_id in copies:
            self._check_stores(task_id, locked[task_id], logs, is_copy=True)
            self._follow(task_id, locked[task_id], logs.extents)
            del locked[task_id]

    def positions(self) -> dict[TaskId, int]:
        """Return, for each task whose local state may lag behind its changelogs, the sum of its changelog positions."""
        positions = dict(self.home.positions())
        for task_id, task in self.active.items():
            if self.restorer.is_restoring(task_id):
                positions[task_id] = _position_sum(task.stores)
        return positions | {task_id: _position_sum(stores) for task_id, stores in self.copies.items()}

    def _close_changed(self, assigned: Sequence[TaskId]) -> None:
        """Commit and close tasks that are no longer assigned, or must be reopened because their inputs have changed."""
        groups = self.plan.partition_groups()
        changed = [
            task
            for task_id, task in self.active.items()
            if task_id not in assigned or tuple(task.inputs) != tuple(groups[task_id])
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

    def _open(self, task_id: TaskId, stores: dict[str, Any], logs: TaskLogs, *, is_on_disk: bool) -> None:
        plan = self.plan
        last = logs.commits[task_id]
        has_lost = self._check_stores(task_id, stores, logs, is_on_disk=is_on_disk)
        starts = self._positions(task_id, logs)
        limits = {
            name: last.offsets[tp].offset if tp in last.offsets else 0
            for name, tp in last.changelogs.items()
            if name in plan.topology.source_changelogs
        }
        self.restorer.begin(task_id, stores, last.changelogs, limits, self._ahead(stores, last, logs), logs.extents)
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

    def _check_stores(
        self,
        task_id: TaskId,
        stores: dict[str, Any],
        logs: TaskLogs,
        *,
        is_on_disk: bool = True,
        is_copy: bool = False,
    ) -> bool:
        """Check stores against the last commit; return whether records were lost and the loss was handled.

        Raises:
            LostRecordsError: a changelog has lost records, and ``lost_records`` is ``fail``.
            StoreError: the content of a store or of its changelog is incompatible with the topology.
        """
        has_lost = self._check_losses(task_id, stores, logs, is_copy=is_copy)
        if not is_copy:
            self._check_commits(task_id, stores, logs.commits[task_id])
        # Stores are restored from changelogs, and read in the formats of the topology, only if nothing is lost.
        if is_on_disk:
            self._drop_misfits(task_id, stores)
        self._check_changelogs(task_id, stores, logs)
        return has_lost

    def _check_changelogs(self, task_id: TaskId, stores: Mapping[str, Any], logs: TaskLogs) -> None:
        """Check that the changelog formats recorded in the last commit are compatible with the topology.

        Raises:
            StoreFormatError: a changelog has another format.
        """
        last = logs.commits[task_id]
        for name, message in check_changelogs(task_id, stores, last.changelogs, last.checkpoint.contents).items():
            # If the records have been deleted since that commit, nothing can be misread.
            if logs.extents[last.changelogs[name]]:
                raise StoreFormatError(message)

    def _check_losses(self, task_id: TaskId, stores: dict[str, Any], logs: TaskLogs, *, is_copy: bool) -> bool:
        """Check that changelogs have all committed records; return whether records were lost and the loss was handled.

        Raises:
            LostRecordsError: a changelog has lost records, and ``lost_records`` is ``fail``.
        """
        last = logs.commits[task_id]
        own = without_sources(last.changelogs, self.plan.topology.source_changelogs)
        lost = lost_changelogs(task_id, stores, own, last.checkpoint.changelog_ends, logs.extents)
        for loss in lost:
            spec = self.plan.topology.stores[loss.store]
            if self.losses.keeps_store(loss, stores[loss.store], has_offsets=bool(last.offsets), is_copy=is_copy):
                continue
            stores[loss.store].close()
            stores[loss.store] = self.home.renew_store(task_id, spec)
        # A rebuild takes effect with the next commit, without which the process may have ended.
        ends = last.checkpoint.changelog_ends
        return bool(lost) or any(rebuilt_end(stores[name]) > ends.get(name, 0) for name in own)

    def _check_commits(self, task_id: TaskId, stores: Mapping[str, Any], last: LastCommit) -> None:
        """Check that no store was written after a later commit than the last one.

        Offsets that another client has set have no number of a commit, and go back if it wants so.  In a bounded run
        the state directory is the application's alone: there, that would be a loss.

        Raises:
            LostRecordsError: commits are lost, and ``lost_records`` is not ``accept``.
        """
        committed = last.checkpoint.commits
        if committed or (self.shared.bounded is not None and not last.offsets):
            for name, store in stores.items():
                if commits_of(store) > committed:
                    self.losses.on_lost_commits(task_id, name, last.changelogs[name], commits_of(store), committed)

    def _ahead(self, stores: Mapping[str, Any], last: LastCommit, logs: TaskLogs) -> dict[str, range]:
        """Return by store the changelog offsets that no commit covers; a record there is a lost commit.

        What a rebuild has written is covered by the next commit; until then, the store notes its end.
        In a bounded run the state directory is the application's alone: without any committed offset all are lost.
        """
        ends = {name: logs.stable_ends[log] for name, log in last.changelogs.items() if log in logs.stable_ends}
        begins: Mapping[str, int] = {}
        if last.checkpoint.is_exactly_once:
            begins = last.checkpoint.changelog_ends
        elif self.shared.bounded is not None and not last.offsets and any(ends.values()):
            inputs = [item.partition for task_id in self.plan.groups for item in self.plan.inputs(task_id)]
            begins = {} if self.consumer.committed(inputs) else dict.fromkeys(ends, 0)
        return {name: range(max(begins.get(name, end), rebuilt_end(stores[name])), end) for name, end in ends.items()}

    def _positions(self, task_id: TaskId, logs: TaskLogs) -> dict[TopicPartition, int]:
        """Return the start position for each input of a task.

        Raises:
            LostRecordsError: the log of a topic that only the application writes does not reach the committed offset.
        """
        result = {}
        for item in self.plan.inputs(task_id):
            partition = item.partition
            committed = logs.commits[task_id].offsets.get(item.partition)
            if committed is None:
                result[partition] = logs.begins[partition]
            elif self.plan.is_own(item):
                result[partition] = self.losses.position(task_id, partition, committed, logs.extents[partition])
            else:
                result[partition] = committed.offset
        return result

    def _follow(self, task_id: TaskId, stores: dict[str, Any], extents: Mapping[TopicPartition, range] | None) -> None:
        # A store whose changelog is a source topic must not get ahead of commits, so it is restored at takeover.
        changelogs = without_sources(self.plan.changelogs(task_id, stores), self.plan.topology.source_changelogs)
        starts = (
            self.restorer.starts(changelogs.values())
            if extents is None
            else {partition: extents[partition].start for partition in changelogs.values()}
        )
        self.restorer.follow(task_id, stores, changelogs, starts)
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
            self._follow(task_id, dict(task.stores), None)
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
