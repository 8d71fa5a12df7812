"""A stream thread: one consumer, one producer, and the tasks that it was given.

The loop polls, adds, processes, sends, punctuates and commits; all of it in one thread, so no
task needs a lock.  Imports clients.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import define, field

from streams.clients.consumer import Consumer
from streams.clients.delivery import Delivery
from streams.clients.errors import WakeupError
from streams.clients.producer import Producer
from streams.clients.session import RebalanceListener
from streams.core.clock import Clock
from streams.core.config import StreamsConfig
from streams.core.errors import MemberFencedError, RebalanceInProgressError
from streams.core.metrics import Metrics
from streams.core.records import TaskId, TopicPartition
from streams.core.threads import Answer, Signal, SystemThreads, Threads
from streams.protocol.messages import ErrorCode, OffsetAndMetadata
from streams.runtime.assignment import tasks_of
from streams.runtime.bounded import BoundedProgress
from streams.runtime.checkpoint import Checkpoint
from streams.runtime.homes import StateHome
from streams.runtime.plan import ApplicationPlan
from streams.runtime.restore import Restorer
from streams.runtime.task import Task, TaskState
from streams.state import RecordCache

log = logging.getLogger(__name__)

#: Records of one run, at most: bounds how long a task keeps others and the clock waiting.
RUN_LIMIT = 10_000
#: Wait of a bounded run for inputs that may end without a record.
_BOUNDED_POLL_MS = 5
#: State that waits for a commit, above which one is made early.
_MAX_UNCOMMITTED_BYTES = 64 << 20


@define(eq=False)
class StreamThread:
    """The loop of one thread.  ``run`` returns when asked to stop, or raises what ended it."""

    name: str
    plan: ApplicationPlan
    config: StreamsConfig
    clock: Clock
    consumer: Consumer
    producer: Producer
    restorer: Restorer
    home: StateHome
    global_stores: Mapping[str, Any]
    metrics: Metrics
    cache: RecordCache | None
    bounded: BoundedProgress | None
    on_rebalance: Callable[[], None]
    threads: Threads = field(factory=SystemThreads)
    tasks: dict[TaskId, Task] = field(factory=dict)
    #: Set to end the loop.
    stopping: Signal = field(init=False)
    #: Positions of tasks that have been given up cannot be committed any more.
    _owner_of: dict[TopicPartition, Task] = field(factory=dict)
    _paused: set[TopicPartition] = field(factory=set)
    #: Tasks of a bounded run whose final flush is done.
    _flushed: set[TaskId] = field(factory=set)
    #: Changelog blocks sent since a task's last commit, by store: delivery and size of the last one.
    _changes_sent: dict[TaskId, dict[str, tuple[Delivery, int]]] = field(factory=dict)
    _next_commit_ms: int = 0
    #: Functions that other threads want run here, between two turns.
    _questions: "deque[tuple[Callable[[StreamThread], Any], Answer[Any]]]" = field(factory=deque)

    def __attrs_post_init__(self) -> None:
        self.stopping = self.threads.signal()

    def run(self) -> None:
        """Work until ``stopping`` is set; then commit and close everything.

        Raises:
            StreamsError: a task, the broker or a store failed; nothing after the last commit is kept.
        """
        self._next_commit_ms = self.clock.monotonic_ms() + self.config.commit_interval_ms
        try:
            while not self.stopping.is_set():
                try:
                    self.run_once()
                except WakeupError:
                    continue
                except MemberFencedError as error:
                    self._rejoin(error)
            self._commit_at_last()
        except BaseException:
            self._abandon()
            raise
        self._close_all()
        self._close_clients()

    def ask(self, question: "Callable[[StreamThread], Any]") -> Answer[Any]:
        """Have a function run on this thread between two turns of its loop."""
        answer: Answer[Any] = Answer(self.threads)
        self._questions.append((question, answer))
        self.wake()
        return answer

    def wake(self) -> None:
        """End a waiting poll."""
        self.consumer.wakeup()

    def _answer(self) -> None:
        while self._questions:
            question, answer = self._questions.popleft()
            answer.settle(partial(question, self))

    def run_once(self) -> int:
        """Do one turn of the loop; return the number of records processed."""
        self._answer()
        is_busy = any(task.queues.size for task in self.tasks.values()) or not self.restorer.is_idle
        timeout_ms = 0 if is_busy else self._poll_ms()
        for partition, blocks in self.consumer.poll_blocks(timeout_ms).items():
            task = self._owner_of.get(partition)
            if task is not None:
                for block in blocks:
                    task.add(partition, block)
        self._note_ends()
        self.restorer.poll()
        processed = self._process()
        self._pause_and_resume()
        if self.bounded is not None:
            self._end_tasks(self.bounded)
        self._commit_if_due()
        return processed

    # --- one turn -----------------------------------------------------------------------

    def _poll_ms(self) -> int:
        if self.bounded is not None:
            return _BOUNDED_POLL_MS
        now = self.clock.now_ms()
        deadlines = [deadline for task in self.tasks.values() if (deadline := task.next_deadline_ms()) is not None]
        commit_in = self._next_commit_ms - self.clock.monotonic_ms()
        return max(0, min([self.config.poll_ms, commit_in, *(deadline - now for deadline in deadlines)]))

    def _note_ends(self) -> None:
        """Tell the tasks how far their inputs reach, as far as the consumer knows."""
        bounded = self.bounded
        for partition, task in self._owner_of.items():
            end = self.consumer.high_watermark(partition)
            if bounded is not None:
                item = task.inputs[partition]
                final = bounded.end_of(task.task_id, item.topic, partition)
                if final is not None:
                    task.note_end(partition, final, is_ended=True)
                    continue
            if end is not None:
                task.note_end(partition, end)

    def _process(self) -> int:
        total = 0
        now = self.clock.now_ms()
        for task in list(self.tasks.values()):
            if self.restorer.is_restoring(task.task_id) or self._in_cycle(task):
                continue
            while count := task.process(now, RUN_LIMIT):
                total += count
                self._send(task)
                if task.wants_commit or task.uncommitted_bytes > _MAX_UNCOMMITTED_BYTES:
                    self._try_commit([task])
            if task.punctuate(now):
                self._send(task)
        return total + (self._process_cycles(self.bounded, now) if self.bounded is not None else 0)

    def _in_cycle(self, task: Task) -> bool:
        return self.bounded is not None and self.bounded.cycle_of(task.task_id) is not None

    def _process_cycles(self, bounded: BoundedProgress, now: int) -> int:
        """Process the tasks of each cycle as one stage: always the lowest head over all of them.

        What a record sends around the cycle is taken in before the next one is chosen.
        """
        total = 0
        stages: dict[tuple[int, ...], list[Task]] = {}
        for task in self.tasks.values():
            stage = bounded.cycle_of(task.task_id)
            if stage is not None:
                stages.setdefault(stage, []).append(task)
        for tasks in stages.values():
            if any(self.restorer.is_restoring(task.task_id) for task in tasks):
                continue
            total += self._process_cycle(bounded, tasks, now)
        return total

    def _process_cycle(self, bounded: BoundedProgress, tasks: Sequence[Task], now: int) -> int:
        loops = {queue.partition for task in tasks for queue in task.queues if queue.is_loop}
        for task in tasks:
            if not bounded.is_settled(task):
                return 0
        for total in range(RUN_LIMIT):
            heads = [(task.queues.head_ms, task.task_id, task) for task in tasks if task.queues.size]
            if not heads:
                return total
            task = min(heads)[2]
            if not task.process(now, 1):
                return total
            if self._send(task) & loops:
                self.producer.flush()
                return total + 1
            if not bounded.is_settled(task):
                return total + 1
        return RUN_LIMIT

    def _pause_and_resume(self) -> None:
        wanted = {partition for task in self.tasks.values() for partition in task.queues.paused()}
        wanted |= {
            partition
            for task in self.tasks.values()
            if self.restorer.is_restoring(task.task_id)
            for partition in task.inputs
        }
        wanted &= self.consumer.assignment()
        if wanted != self._paused:
            self.consumer.pause(wanted - self._paused)
            self.consumer.resume((self._paused - wanted) & self.consumer.assignment())
            self._paused = wanted

    def _end_tasks(self, bounded: BoundedProgress) -> None:
        for task in list(self.tasks.values()):
            if bounded.has_ended(task.task_id) or self.restorer.is_restoring(task.task_id):
                continue
            self.producer.flush()
            if not bounded.report(task, task.inputs):
                continue
            if bounded.final_flush and task.task_id not in self._flushed:
                self._flushed.add(task.task_id)
                task.final_flush()
            if self._try_commit([task]):
                bounded.end_task(task.task_id)

    # --- sending and committing -----------------------------------------------------------

    def _send(self, task: Task) -> set[TopicPartition]:
        """Send a task's outputs; return the partitions that got some."""
        outputs = task.take_outputs()
        for partition, block in outputs:
            self.producer.send_block(partition, block)
        return {partition for partition, _ in outputs}

    def _commit_if_due(self) -> None:
        now = self.clock.monotonic_ms()
        wanting = [task for task in self.tasks.values() if task.wants_commit]
        if now >= self._next_commit_ms:
            self._next_commit_ms = now + self.config.commit_interval_ms
            wanting = list(self.tasks.values())
        if wanting:
            self._try_commit(wanting)

    def _commit(self, tasks: Sequence[Task]) -> None:
        """Commit tasks, in the one order that loses nothing when it stops between two steps.

        Cache flush (may forward) -> outputs and changelog sent -> producer flush -> offsets ->
        one engine batch per store, which also holds the changelog position.  Changelog behind
        offsets would lose state; offsets behind changelog only repeat, which at-least-once allows.
        """
        due = [task for task in tasks if task.is_dirty and not self.restorer.is_restoring(task.task_id)]
        if not due:
            return
        for task in due:
            task.flush_caches()
            self._send(task)
            sent = self._changes_sent.setdefault(task.task_id, {})
            for name, block in task.take_changes():
                if name not in self.plan.topology.source_changelogs:
                    partition = TopicPartition(self.plan.changelog(name), task.task_id.partition)
                    sent[name] = (self.producer.send_block(partition, block), len(block))
        self.producer.flush()
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for task in due:
            positions = task.positions()
            notes = task.checkpoint().notes(list(positions))
            offsets |= {tp: OffsetAndMetadata(offset, notes[tp]) for tp, offset in positions.items()}
        self.consumer.commit_sync(offsets)
        for task in due:
            changes = self._changes_sent.pop(task.task_id)
            done = {name: delivery.base_offset() + size for name, (delivery, size) in changes.items()}
            done |= self._source_positions(task)
            task.write_state(done)
            self.metrics.counter("commit-total", task=task.task_id).value += 1

    def _try_commit(self, tasks: Sequence[Task]) -> bool:
        """Commit unless the group is rebalancing: then what was sent waits for the next attempt."""
        try:
            self._commit(tasks)
        except RebalanceInProgressError:
            return False
        return True

    def _commit_at_last(self) -> None:
        """Commit everything before the end, through a rebalance if there is one."""
        deadline_ms = self.clock.monotonic_ms() + self.config.session_timeout_ms
        while not self._try_commit(list(self.tasks.values())):
            if self.clock.monotonic_ms() > deadline_ms:
                log.warning("%s: ends without a last commit: the group did not settle in time", self.name)
                return
            # What this brings is not processed: positions are the tasks'.
            self.consumer.poll_blocks(self.config.poll_ms)

    def _source_positions(self, task: Task) -> dict[str, int]:
        """Return positions of stores whose changelog is a source topic: those of the input."""
        by_topic = {item.topic: partition for partition, item in task.inputs.items()}
        positions = task.positions()
        return {
            store: positions[by_topic[topic]]
            for store, topic in self.plan.topology.source_changelogs.items()
            if store in task.stores and topic in by_topic and by_topic[topic] in positions
        }

    # --- rebalances -----------------------------------------------------------------------

    def listener(self) -> RebalanceListener:
        """Return what the consumer calls when tasks come and go."""
        return _Listener(self)

    def take_over(self, partitions: Sequence[TopicPartition]) -> None:
        """Open the tasks whose partition groups are now complete."""
        assigned = self.consumer.assignment()
        groups = {task_id: [item.partition for item in self.plan.inputs(task_id)] for task_id in self.plan.groups}
        for task_id in tasks_of(groups, assigned):
            if task_id not in self.tasks:
                self._open(task_id)
        self._paused &= assigned
        self.on_rebalance()

    def give_up(self, partitions: Sequence[TopicPartition], *, is_lost: bool) -> None:
        """Commit (unless lost) and close the tasks of these partitions."""
        gone = {self._owner_of[partition].task_id for partition in partitions if partition in self._owner_of}
        tasks = [self.tasks[task_id] for task_id in sorted(gone)]
        if not is_lost:
            try:
                self._commit(tasks)
            except (MemberFencedError, RebalanceInProgressError) as error:
                log.warning("%s: tasks %s are given up without a commit: %s", self.name, gone, error)
        for task in tasks:
            self._close(task)
        self.on_rebalance()

    def _rejoin(self, error: MemberFencedError) -> None:
        """The group has gone on without this thread: its tasks may be others' already, so they are dropped."""
        if error.code == ErrorCode.FENCED_INSTANCE_ID:
            raise error
        log.warning("%s: out of the group, joins again: %s", self.name, error)
        self.give_up(list(self._owner_of), is_lost=True)
        self.consumer.enforce_rebalance("this member was out of the group")

    def _open(self, task_id: TaskId) -> None:
        plan = self.plan
        stores = self.home.open_task(task_id, plan.stores_of(task_id), self)
        changelogs = {
            name: TopicPartition(plan.changelog(name), task_id.partition)
            for name, store in stores.items()
            if store.spec.has_changelog
        }
        for name in self.restorer.stale(stores, changelogs):
            log.warning(
                "%s: store %r of task %s is ahead of its changelog, which was made anew: its content is dropped",
                self.name,
                name,
                task_id,
            )
            stores[name].close()
            stores[name] = self.home.renew_store(task_id, plan.topology.stores[name])
        inputs = plan.inputs(task_id)
        partitions = [item.partition for item in inputs]
        committed = self.consumer.committed(partitions)
        checkpoint = Checkpoint.from_notes({tp: found.metadata for tp, found in committed.items()})
        task = plan.open_task(
            task_id,
            TaskState(stores, self.global_stores, checkpoint),
            self.metrics,
            partitions_of=lambda topic: plan.partition_count(topic) or self.producer.partition_count(topic),
            cache=self.cache,
            is_bounded=self.bounded is not None,
        )
        for item in inputs:
            found = committed.get(item.partition)
            position = found.offset if found is not None else self._start_position(item.partition)
            task.seek(item.partition, position)
            task.queues[item.partition].is_loop = self.bounded is not None and self.bounded.is_loop(task_id, item.topic)
            self._owner_of[item.partition] = task
        self.tasks[task_id] = task
        limits = {
            name: committed[tp].offset if tp in committed else 0
            for name, tp in changelogs.items()
            if name in plan.topology.source_changelogs
        }
        self.restorer.begin(task_id, stores, changelogs, limits)

    def _start_position(self, partition: TopicPartition) -> int:
        if self.config.auto_offset_reset == "latest":
            return self.consumer.end_offsets([partition])[partition]
        return self.consumer.beginning_offsets([partition])[partition]

    def _close(self, task: Task) -> None:
        self.restorer.forget(task.task_id)
        self._changes_sent.pop(task.task_id, None)
        for partition in task.inputs:
            self._owner_of.pop(partition, None)
            self._paused.discard(partition)
        del self.tasks[task.task_id]
        try:
            task.close()
        finally:
            self.home.release_task(task.task_id, self)

    def _close_all(self) -> None:
        for task in list(self.tasks.values()):
            self._close(task)

    def _close_clients(self) -> None:
        self.consumer.close()
        self.producer.close()
        self.restorer.close()

    def _abandon(self) -> None:
        """Close after a failure, without a commit; the failure itself is what gets raised."""
        for close in (self._close_all, self._close_clients):
            try:
                close()
            except Exception:
                log.exception("%s: closing after a failure went wrong too", self.name)


class _Listener(RebalanceListener):
    """Rebalances of a thread's consumer, as tasks that come and go."""

    def __init__(self, thread: StreamThread) -> None:
        self._thread = thread

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Open new tasks."""
        self._thread.take_over(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit and close tasks."""
        self._thread.give_up(partitions, is_lost=False)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Close tasks that are somebody else's already."""
        self._thread.give_up(partitions, is_lost=True)
