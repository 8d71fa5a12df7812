"""A stream thread: one consumer, one committer, and the assigned tasks.

The thread alone polls, processes records, sends outputs, fires punctuations and commits, so no task needs a lock.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from attrs import define, field

from streams.clients import Consumer, NoOffsetError, RebalanceListener, RequestTimeoutError, WakeupError
from streams.core.blocks.records import Block, TaskId, TopicPartition
from streams.core.clock import Clock
from streams.core.concurrency.calls import PolledLoop
from streams.core.concurrency.threads import Answer, Signal, copied
from streams.core.errors import (
    ClientClosedError,
    MemberFencedError,
    ProducerFencedError,
    RebalanceInProgressError,
    TransactionError,
)
from streams.core.folders import full_disk
from streams.core.metrics import MetricPlace, Reading, table
from streams.core.settings.config import StreamsConfig
from streams.protocol.error_codes import ErrorCode
from streams.runtime.assignment.assignment import TaskAssignment
from streams.runtime.in_step.backpressure import Backpressure
from streams.runtime.in_step.lane_waits import LaneWaits
from streams.runtime.plan.facts import MemberFacts, PartitionLayout
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.stores.restore import Restorer
from streams.runtime.tasks.call_ending import finish_in_time
from streams.runtime.tasks.readings import of_task
from streams.runtime.tasks.schedule import Schedule, ThreadStage
from streams.runtime.tasks.task import Task
from streams.runtime.threads.call_queue import CallQueue
from streams.runtime.threads.committing import Committer
from streams.runtime.threads.environment import SharedParts, ThreadEvents
from streams.runtime.threads.pace import Pace
from streams.runtime.threads.patience import Patience
from streams.runtime.threads.task_set import TaskSet
from streams.runtime.threads.thread_metrics import ThreadMetrics
from streams.runtime.threads.uncommitted import UncommittedState
from streams.state import MemoryBudget

log = logging.getLogger(__name__)

#: Time after the longest wait of a fetch within which brokers are expected to answer.
_ANSWER_DELAY_MS = 1_000

#: Time for which a stage processes records before marks, commits and polls have their turn.
_PROCESS_NS = 100_000_000

#: Number of heartbeat intervals after which a rebalance is requested if tasks are still withheld for their old owners.
_FINAL_HEARTBEATS = 3

#: Time in milliseconds for which commits may be rejected before it is told.
_LONG_MS = 60_000

#: Number of assignments within a minute from which on a group rebalances again and again. A restart of an instance
#: costs each other thread three (it leaves, it is back, tasks have moved to it); four within a minute are an upgrade.
_MANY_REBALANCES = 13

#: Errors after which the thread is no longer in the group, or its transaction state is unknown; its tasks are reopened.
_DISPLACED = (MemberFencedError, ProducerFencedError, TransactionError)


#: The ordinals of the thread states in Kafka Streams.
_STARTING = 1
_ASSIGNED = 3
_RUNNING = 4
_STOPPING = 5


@define(eq=False, repr=False)
class StreamThread(RebalanceListener):
    """A stream thread: ``run`` loops until the thread is stopped, or raises the error that ended the loop."""

    name: str
    shared: SharedParts
    assignment: TaskAssignment
    committer: Committer
    task_set: TaskSet
    events: ThreadEvents
    waits: LaneWaits
    backpressure: Backpressure
    config: StreamsConfig = field(init=False)
    clock: Clock = field(init=False)
    consumer: Consumer = field(init=False)
    restorer: Restorer = field(init=False)
    schedule: Schedule = field(init=False)
    #: Set to stop the loop.
    stopping: Signal = field(init=False)
    #: Whether processing is paused; records are still buffered.
    is_paused: bool = False
    #: Whether to request the shutdown of the whole application from the leader at the next rebalance.
    wants_shutdown: bool = False
    #: Tracks the size of uncommitted state; above its bound all tasks are committed early.
    uncommitted: UncommittedState = field(factory=lambda: UncommittedState(MemoryBudget().uncommitted_bytes))
    #: Monotonic time at which the current iteration of the loop began, or None before the first one.
    iteration_ms: int | None = None
    _is_settled: bool = False
    _is_ready: bool = False
    #: Whether tasks have been opened whose end offsets are not set yet.
    _has_new_tasks: bool = False
    _pace: Pace = field(init=False)
    #: Partitions that are paused in the consumer.
    _paused: set[TopicPartition] = field(factory=set)
    #: None if tasks have been opened or closed since the stages were computed.
    _stages: list[ThreadStage] | None = None
    _next_commit_ms: int = 0
    #: Monotonic time of the next probing rebalance, or None.
    _probe_at_ms: int | None = None
    #: Since when commits are rejected, in monotonic milliseconds, None if the last was not.
    _refused_since_ms: int | None = None
    _has_reported_warmup: bool = False
    _has_reported_growth: bool = False
    sensors: ThreadMetrics = field(init=False)
    _patience: Patience = field(init=False)
    _calls: "CallQueue[StreamThread]" = field(init=False)
    #: Runs the calls of async functions.
    call_loop: PolledLoop = field(init=False)

    def __attrs_post_init__(self) -> None:
        shared = self.shared
        self.config = shared.config
        self.schedule = shared.schedule
        self.clock = shared.environment.clock
        self.consumer = self.task_set.consumer
        self.restorer = self.task_set.restorer
        self.task_set.owner = self
        self.assignment.serve(self)
        self.stopping = shared.environment.threads.signal()
        self._calls = CallQueue(shared.environment.threads, self.wake)
        self._patience = Patience(self.name, self.clock, self.config.task_timeout_ms, shared.metrics.notices)
        self.sensors = ThreadMetrics(shared.metrics)
        self.call_loop = shared.environment.call_loop(self.wake)
        self.task_set.call_loop = None if self.schedule.is_finite else self.call_loop
        self._pace = Pace(
            self.config, self.clock, self.tasks, self.restorer, lambda: self.stages, self.schedule.is_finite
        )

    @property
    def is_ready(self) -> bool:
        """Whether all assigned tasks are open and restored, and the assignment is final.

        The assignment is not final while a task is withheld until its previous owner has revoked it, because another
        rebalance follows.
        """
        return self._is_ready

    @property
    def tasks(self) -> dict[TaskId, Task]:
        """The thread's active tasks."""
        return self.task_set.active

    @property
    def stages(self) -> list[ThreadStage]:
        """The stages into which the active tasks are grouped for processing."""
        if self._stages is None:
            self._stages = self.schedule.stages(self.tasks.values())
            for stage in self._stages if self.shared.progress is not None else ():
                stage.holds = self._holds
        return self._stages

    def _holds(self, task: Task) -> bool:
        is_held = self.backpressure.holds(task.task_id, self.clock.monotonic_ms())
        if is_held:
            # A held task counts as active, so that its readers do not give up on it.
            task.activity += 1
        return is_held

    def run(self) -> None:
        """Run the loop until ``stopping`` is set, then commit and close everything.

        Raises:
            StreamsError: a task, the broker or a store failed; uncommitted work is discarded.
        """
        self._next_commit_ms = self.clock.monotonic_ms() + self.config.commit_interval_ms
        self.shared.metrics.watch(partial(readings, self))
        try:
            while not self.stopping.is_set():
                try:
                    self.run_once()
                    self._patience.note_answer()
                except WakeupError:
                    continue
                except _DISPLACED as error:
                    self.restart(error)
                except RequestTimeoutError as error:
                    self._patience.note_timeout(error)
            self._commit_at_last()
        except BaseException as error:
            self._abandon(error)
            raise
        else:
            self.task_set.close_all()
            self._close_clients()
        finally:
            self.call_loop.close()

    def ask(self, function: "Callable[[StreamThread], Any]", *, is_read: bool = False) -> Answer[Any]:
        """Submit a function that the loop calls with this thread, between two iterations; return an ``Answer``."""
        return self._calls.submit(function, is_read=is_read)

    def wake(self) -> None:
        """Wake up a blocked poll of the consumer."""
        self.consumer.wakeup()

    def run_once(self) -> int:
        """Run one iteration of the loop; return the number of processed records."""
        self.iteration_ms = self.sensors.begin_iteration()
        if self.shared.bounded is None:
            self.shared.losses.look(self.iteration_ms)
        if self._calls.run(self):
            # The functions may have changed the state of tasks.
            self._pace.wake()
        if not self._is_settled:
            self._reconcile()
            self._has_new_tasks = True
        timeout_ms = self._pace.timeout_ms(
            self._next_commit_ms, is_paused=self.is_paused, has_outstanding=self.committer.has_outstanding
        )
        try:
            with self.sensors.poll:
                polled = self._poll(timeout_ms)
        except WakeupError:
            if self.stopping.is_set() or not self._is_settled:
                raise
            # Frequent calls would otherwise prevent processing, and frequent marks on the board would prevent reading.
            polled = {}
            with suppress(WakeupError):
                polled = self._poll(0)
        self._calls.may_wait = False
        self.sensors.note_polled(polled)
        self.waits.look()
        for partition, blocks in polled.items():
            task = self.task_set.owner_of.get(partition)
            if task is not None:
                for block in blocks:
                    task.add(partition, block)
        self.call_loop.step()
        has_news = self._note_ends() | self.call_loop.take_news()
        has_news |= self.waits.step(self.clock.monotonic_ms()) | self.committer.is_asked
        self.restorer.poll(self._pace.restore_timeout_ms(is_paused=self.is_paused))
        self._look_after_warmups()
        try:
            if self._pace.is_resting and not polled and not has_news:
                self._commit_if_due(())
                return 0
            self._pace.wake()
            self._initialize_restored()
            self._pause_and_resume()
            processed = self._work()
        except RequestTimeoutError as error:
            # The error occurred between processing and commit; reopening the tasks discards the partial work.
            self.restart(error)
            raise
        # What arrives in a pause, as the results of calls, is found when it ends: nothing announces it again.
        is_resting = not processed and self._is_settled and not self.is_paused and not self._is_in_step
        if is_resting and not any(task.wants_commit for task in self.tasks.values()):
            self._pace.rest(self._next_commit_ms)
        self._pace.note_work(is_done=bool(processed or polled))
        return processed

    @property
    def _is_in_step(self) -> bool:
        """Whether the thread waits for lanes, or others may wait for what its tasks have to say."""
        return self.waits.is_waiting or self.committer.owes_progress

    def _poll(self, timeout_ms: int) -> dict[TopicPartition, list[Block]]:
        try:
            return self.consumer.poll_blocks(self.call_loop.wait_ms(timeout_ms))
        except NoOffsetError:
            # The task set determines the start positions when it opens a task, and raises this error if there is none.
            return {}

    def _work(self) -> int:
        """Process available records, and commit if a commit is due."""
        processed = 0 if self.is_paused else self._process()
        self.committer.note_progress(self.tasks.values(), restored=self.restorer.restored)
        self._pause_and_resume()
        self.schedule.end(self.stages, self)
        wanting = [task for task in self.tasks.values() if task.wants_commit]
        if self.committer.progress_wants_commit:
            wanting = list(self.tasks.values())
        self._commit_if_due(wanting)
        return processed

    def announce(self) -> None:
        """Join the consumer group, so that the leader receives this thread's user data, then leave the group."""
        deadline_ms = self.clock.monotonic_ms() + self.config.consumer.session_timeout_ms
        try:
            while self.assignment.directive is None and self.clock.monotonic_ms() < deadline_ms:
                with suppress(WakeupError):
                    self._poll(self.config.poll_ms)
        finally:
            self._close_clients()

    def _note_ends(self) -> bool:
        """Pass new positions and end offsets of inputs from the consumer to the tasks; return whether any are new."""
        consumer = self.consumer
        owner_of = self.task_set.owner_of
        news = consumer.take_news()
        if self._has_new_tasks or self.schedule.is_finite:
            news |= owner_of.keys()
            self._has_new_tasks = False
        for partition in news:
            task = owner_of.get(partition)
            if task is None:
                continue
            position = consumer.known_position(partition)
            if position is not None:
                task.note_position(partition, position)
            if self.schedule.note_end(task, partition):
                continue
            end = consumer.known_end(partition)
            if end is not None:
                task.note_end(partition, end)
        return bool(news)

    def _initialize_restored(self) -> None:
        """Initialize the tasks whose stores are restored, and report readiness once all tasks are initialized."""
        for task in self.tasks.values():
            if not task.is_initialized and not self.restorer.is_restoring(task.task_id):
                task.initialize()
        if self._is_settled and not self._is_ready:
            directive = self.assignment.directive
            is_whole = directive is not None and directive.is_final
            if is_whole and all(task.is_initialized for task in self.tasks.values()):
                self._is_ready = True
                self.events.readiness()

    def _process(self) -> int:
        """Process buffered records, stage by stage, and send the outputs; return the number of processed records."""
        total = 0
        sensors = self.sensors
        now = self.clock.now_ms()
        monotonic = self.clock.monotonic_ms()
        start_ns = self.clock.monotonic_ns()
        end_ns = start_ns + _PROCESS_NS
        feeding = (task.task_id.sub_topology for task in self.tasks.values() if task.feeds_idle and task.has_work)
        busy = self.shared.board.note_busy(self.name, feeding)
        for stage in self.stages:
            while (task := stage.step(now, monotonic)) is not None:
                total += stage.count
                self.send(stage, task)
                start_ns = sensors.note_run(task, stage.count, start_ns)
                if self.uncommitted.note(task.task_id, task.uncommitted_bytes):
                    self.try_commit(list(self.tasks.values()))
                elif task.wants_commit:
                    self.try_commit([task])
                if start_ns > end_ns:
                    break
            for task in stage.tasks:
                if task.is_initialized and task.punctuate(now) + self._close_idle(task, now, monotonic, busy):
                    self.send(stage, task)
                    start_ns = sensors.note_punctuated(start_ns)
        sensors.note_iteration(total)
        return total

    def _close_idle(self, task: Task, now_ms: int, monotonic_ms: int, busy: frozenset[int]) -> int:
        """Advance the idle operators of a task, but not while brokers do not respond, as they may have more records."""
        oldest_ms = monotonic_ms - self.config.consumer.fetch_max_wait_ms - _ANSWER_DELAY_MS
        if task.idle is None or task.idle.waits_for_answers(self.consumer, oldest_ms, now_ms):
            return 0
        return task.close_idle(now_ms, busy)

    def send(self, stage: ThreadStage, task: Task) -> bool:
        """Send a task's outputs, and return whether the stage itself reads some of them, which are then fetchable."""
        sent = self.committer.send(task, has_more=stage.has_short_runs)
        self.backpressure.note(task.task_id, task.outbox.place_ms, task.outbox.take_laned_bytes())
        if sent.isdisjoint(stage.loops):
            return False
        self.flush()
        if self.committer.is_exactly_once:
            self.try_commit(list(self.tasks.values()))
        self._note_loops()
        return True

    def _note_loops(self) -> None:
        """Set the end offsets of inputs that their own stage writes, so that the stage waits for its own outputs."""
        for stage in self._stages or ():
            for partition, task in stage.loops.items():
                self.schedule.note_end(task, partition)

    def flush(self) -> None:
        self.committer.flush()

    def _pause_and_resume(self) -> None:
        assigned = self.consumer.assignment()
        paused = {partition for task in self.tasks.values() for partition in task.queues.to_pause()}
        for task in self.tasks.values():
            if self.restorer.is_restoring(task.task_id):
                paused.update(task.inputs)
        # Records of partitions without an open task cannot be buffered.
        paused = (paused & assigned) | (assigned - self.task_set.owner_of.keys())
        if paused != self._paused:
            self.consumer.pause(paused - self._paused)
            self.consumer.resume((self._paused - paused) & assigned)
            self._paused = paused

    def _look_after_warmups(self) -> None:
        """Request a rebalance if a warm-up replica has caught up, or if a probing rebalance is due."""
        directive = self.assignment.directive
        if directive is not None and directive.warmup and not self._has_reported_warmup:
            lags = [self.restorer.lag(task_id) for task_id in directive.warmup if task_id in self.task_set.copies]
            if any(lag is not None and lag <= self.assignment.acceptable_lag for lag in lags):
                self._has_reported_warmup = True
                self.ask_rebalance("a warm-up replica has caught up")
        if self._probe_at_ms is not None and self.clock.monotonic_ms() >= self._probe_at_ms:
            self._probe_at_ms = None
            self.ask_rebalance("tasks that wait for a replica or their previous owner may be ready")

    def _compare_layout(self) -> None:
        """Request a rebalance if topics have more partitions than when the tasks were assigned.

        Usually the consumer of the leader detects this.  But a static leader that was restarted while a topic was being
        expanded does not have the previous partition counts.
        """
        directive = self.assignment.directive
        if directive is None or not self._is_settled or self._has_reported_growth:
            return
        for topic, count in directive.layout.partitions.items():
            if topic not in self.task_set.plan.topology.internal_topics and count < (
                self.consumer.known_partition_count(topic) or 0
            ):
                self._has_reported_growth = True
                self.ask_rebalance(f"topic {topic!r} has grown")
                return

    # --- committing -----------------------------------------------------------------------

    def _commit_if_due(self, wanting: Sequence[Task]) -> None:
        now = self.clock.monotonic_ms()
        if now >= self._next_commit_ms:
            self._next_commit_ms = now + self.config.commit_interval_ms
            wanting = list(self.tasks.values())
            self._compare_layout()
        if wanting:
            self.try_commit(wanting)
        self.committer.poll()

    def commit(self, tasks: Iterable[Task]) -> None:
        """Commit the tasks that have changes; with exactly-once, the transaction covers all tasks of the thread."""
        chosen = self.tasks.values() if self.committer.is_exactly_once else tasks
        dirty = [task for task in chosen if task.is_dirty and not self.restorer.is_restoring(task.task_id)]
        self.committer.commit(dirty)
        self._note_loops()
        self.uncommitted.forget(task.task_id for task in dirty)

    def partition_counts(self, topics: Sequence[str]) -> Sequence[int]:
        """Return the partition counts of topics that are missing in the plan, since they were chosen for a record."""
        counts = self.committer.producer.partition_counts(topics)
        for topic, count in zip(topics, counts, strict=True):
            self.events.new_topic(topic, count)
        return counts

    def opened(self, task: Task) -> None:
        """Wait for the lanes that a task reads; other instances are asked how far the tasks are that write them."""
        if self.waits.open(task) and self.shared.progress is not None:
            self.shared.progress.ask()
        self._note_writers(task, self.task_set.plan)

    def _note_writers(self, task: Task, plan: ApplicationPlan) -> None:
        topics = plan.written_in_step(task.task_id)
        if topics:
            writers = frozenset[int]().union(*map(plan.lane_numbers, topics))
            # The reader that gives up first is not to wait for those that are held.
            patience_ms = min(map(plan.patience_ms, topics))
            self.backpressure.open(task.task_id, writers, task.outbox.place_ms, patience_ms)

    def _expect_lanes(self, plan: ApplicationPlan) -> None:
        """Wait for the tasks of partitions that topics upstream have got while tasks are open."""
        has_new = False
        for task in self.tasks.values():
            has_new |= self.waits.expect(task, plan.lane_numbers)
            self._note_writers(task, plan)
        if has_new and self.shared.progress is not None:
            self.shared.progress.ask()

    def forget(self, task_id: TaskId) -> None:
        """Discard the pending changes of a task that is closed, possibly without a commit."""
        self.waits.close(task_id)
        self.backpressure.close(task_id)
        self.committer.forget(task_id)
        self.uncommitted.forget([task_id])

    def try_commit(self, tasks: Sequence[Task]) -> bool:
        """Commit tasks; return False if the group is rebalancing, in which case the commit must be retried later."""
        try:
            self.commit(tasks)
        except RebalanceInProgressError as error:
            now_ms = self.clock.monotonic_ms()
            text = f"{self.name}: commit rejected, retried after the rebalance: {error}"
            if self._refused_since_ms is None:
                self._refused_since_ms = now_ms
                log.info("%s", text)
            elif now_ms - self._refused_since_ms >= _LONG_MS:
                _warn(self, "commit", text)
            return False
        self._refused_since_ms = None
        return True

    def _commit_at_last(self) -> None:
        """Commit all tasks before the thread ends, waiting at most the session timeout for a rebalance in progress."""
        deadline_ms = self.clock.monotonic_ms() + self.config.consumer.session_timeout_ms
        try:
            timeout_ms = self.config.async_close_timeout_ms
            finish_in_time(self.tasks, self.call_loop, self.clock, timeout_ms, self.committer.send, self._poll)
            while not self.try_commit(list(self.tasks.values())):
                if self.clock.monotonic_ms() > deadline_ms:
                    log.warning("%s: ends without a final commit: the rebalance did not complete in time", self.name)
                    return
                # The polled records are not processed; the committed positions are those of the tasks.
                with suppress(WakeupError):
                    self._poll(self.config.poll_ms)
        except (*_DISPLACED, RequestTimeoutError) as error:
            log.warning(
                "%s: ends without a final commit; records after the previous one are processed again: %s",
                self.name,
                error,
            )

    # --- rebalances -----------------------------------------------------------------------

    def facts(self) -> MemberFacts:
        """Return the user data for this thread's subscription, with the state positions of its process."""
        task_set = self.task_set
        active = tuple(sorted(task_set.active))
        copies = tuple(sorted(task_set.copies))
        process_id = task_set.home.process_id
        positions = task_set.positions()
        endpoint = self.shared.endpoint()
        return MemberFacts(
            process_id, active, copies, positions, self.wants_shutdown, self.name, endpoint, self.config.tags
        )

    def changelog_ends(self, layout: PartitionLayout, tasks: Collection[TaskId]) -> Mapping[TaskId, int]:
        plan = self.shared.plans.of(layout)
        partitions = {
            task_id: list(plan.changelogs(task_id, [spec.name for spec in plan.stores_of(task_id)]).values())
            for task_id in tasks
        }
        ends = self.consumer.end_offsets(sorted({partition for group in partitions.values() for partition in group}))
        return {task_id: sum(ends[partition] for partition in group) for task_id, group in partitions.items()}

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Schedule the opening of the assigned tasks in the next iteration; their partitions are paused until then."""
        self.consumer.pause(partitions)
        self._paused.update(partitions)
        self._paused &= self.consumer.assignment()
        self._unsettle()
        # This ends the poll that has called the listener.
        self.consumer.wakeup()

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit and close the tasks that read these partitions."""
        self._give_up(partitions, is_lost=False)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Close the tasks that read these partitions, without a commit."""
        self._give_up(partitions, is_lost=True)

    def _give_up(self, partitions: Sequence[TopicPartition], *, is_lost: bool) -> None:
        """Close the tasks that read these partitions, after a commit unless the partitions are lost."""
        gone = {
            self.task_set.owner_of[partition].task_id for partition in partitions if partition in self.task_set.owner_of
        }
        tasks = [self.tasks[task_id] for task_id in sorted(gone)]
        if is_lost:
            log.warning("%s: lost tasks %s: the group has rebalanced without this member", self.name, _names(gone))
        elif gone:
            log.info("%s: closes revoked tasks %s", self.name, _names(gone))
        is_kept = False
        if not is_lost:
            try:
                self.commit(tasks)
                is_kept = True
            except (*_DISPLACED, RebalanceInProgressError, RequestTimeoutError) as error:
                log.warning("%s: tasks %s are closed without a commit: %s", self.name, _names(gone), error)
        if not is_kept and self.committer.is_exactly_once:
            # One transaction covers all tasks, so all of them are reopened at their last commit.
            tasks = list(self.tasks.values())
            self.committer.renew()
        directive = self.assignment.directive
        followed = {*directive.standby, *directive.warmup} if directive is not None and is_kept else set()
        for task in tasks:
            self.task_set.close(task, keeps_stores=task.task_id in followed)
        self._unsettle()

    def ask_rebalance(self, reason: str) -> None:
        """Request a rebalance, in which the leader also gets the current facts of this member."""
        log.info("%s: requests a rebalance: %s", self.name, reason)
        self.consumer.enforce_rebalance(reason)

    def _unsettle(self) -> None:
        self._is_settled = False
        self._stages = None
        self._pace.wake()
        self._probe_at_ms = None
        if self._is_ready:
            self._is_ready = False
            self.events.readiness()

    def restart(self, error: Exception) -> None:
        """Close all tasks dirty; tasks that are still assigned are reopened at their last commit.

        The thread was fenced or timed out, so other members may already own its tasks.

        Raises:
            MemberFencedError: another member has the same ``group_instance_id``.
        """
        if isinstance(error, MemberFencedError) and error.code == ErrorCode.FENCED_INSTANCE_ID:
            raise error
        _warn(self, "reopen", f"{self.name}: reopens its tasks: {error}")
        self.shared.metrics.counter(table.FENCED).value += 1
        if self.committer.is_exactly_once:
            self.committer.renew()
        for task in list(self.tasks.values()):
            self.task_set.close(task)
        self._unsettle()
        if isinstance(error, MemberFencedError | ProducerFencedError):
            self.ask_rebalance("this member was fenced")

    def _reconcile(self) -> None:
        """Open and close tasks and standby replicas to match the group's assignment."""
        directive = self.assignment.directive
        if directive is None:
            return
        if directive.is_shutdown:
            self.events.shutdown()
            return
        plan = self.shared.plans.of(directive.layout)
        groups = plan.bundles()
        if self.consumer.assignment() != {tp for task_id in directive.active for tp in groups[task_id]}:
            # The leader's directive is received before the assigned partitions are complete.
            return
        self.committer.prepare()
        if self.committer.plan is not plan:
            self.committer.plan = plan
            self._expect_lanes(plan)
        before = list(self.tasks.values())
        try:
            is_complete = self.task_set.reconcile(plan, directive)
        finally:
            # Stages know for what they wait, and since when: they stay while a task is still open elsewhere.
            if list(self.tasks.values()) != before:
                self._stages = None
        if not is_complete:
            return
        self._is_settled = True
        self._has_reported_warmup = self._has_reported_growth = False
        copies = self.task_set.copies
        log.info("%s: assigned tasks %s; replicas of %s", self.name, _names(self.tasks), _names(copies))
        _warn(self, "rebalance", f"{self.name}: the group rebalances again and again", least=_MANY_REBALANCES)
        if not directive.is_final:
            # A member that has revoked tasks rejoins; but it may fail before, and return as a static member.
            pause_ms = _FINAL_HEARTBEATS * self.config.consumer.heartbeat_interval_ms
            self._probe_at_ms = self.clock.monotonic_ms() + pause_ms
        elif self.assignment.awaits_warmups:
            self._probe_at_ms = self.clock.monotonic_ms() + self.config.probing_rebalance_interval_ms

    # --- closing ----------------------------------------------------------------------------

    def _close_clients(self) -> None:
        for part in (self.consumer, self.committer, self.restorer, self.shared.metrics):
            part.close()
        self.shared.board.leave(self.name)
        self._calls.close(ClientClosedError(f"thread {self.name} has ended"))

    def _abandon(self, failure: BaseException) -> None:
        """Close all tasks and clients without a commit, after a failure; errors while closing are only logged."""
        steps = (self._send_last_words, self.committer.abort, self.task_set.close_all, self._close_clients)
        for close in steps:
            try:
                close()
            except Exception as error:
                # A full disk fails every write: the failure says it once, and has the traceback.
                level = logging.DEBUG if full_disk(error) and full_disk(failure) else logging.ERROR
                text = "%s: closing after a failure failed as well: %s: %s"
                log.log(level, text, self.name, type(error).__name__, error)

    def _send_last_words(self) -> None:
        """Send the dead letters of a handler that returned "fail"; an exactly-once transaction is aborted with them."""
        for task in self.tasks.values():
            if task.handlers.has_last_words and not self.schedule.is_finite:
                self.committer.send(task)
                self.committer.flush()


def _warn(thread: StreamThread, cause: str, text: str, *, least: int = 1) -> None:
    """Log what goes on in the thread, once a minute."""
    thread.shared.metrics.notices.warn(log, (cause, thread.name), thread.clock.monotonic_ms(), text, least=least)


def _names(tasks: Iterable[TaskId]) -> str:
    """Format task ids for a log line."""
    return ", ".join(map(str, sorted(tasks))) or "none"


def readings(thread: StreamThread, now_ms: int) -> Iterator[Reading]:
    """Yield the current values of metrics of the thread and its tasks; other threads call it: it never blocks."""
    copies = thread.task_set.copies
    place = MetricPlace(thread.name)
    state = _STOPPING if thread.stopping.is_set() else _RUNNING if thread.is_ready else _STARTING
    tasks = copied(thread.tasks)
    yield table.THREAD_STATE, place, _ASSIGNED if state == _STARTING and tasks else state
    yield table.START_TIME, place, thread.sensors.started_ms
    if thread.iteration_ms is not None:
        yield table.LAST_POLL, place, (thread.clock.monotonic_ms() - thread.iteration_ms) // 1000
    outage = thread.consumer.outage
    yield table.BROKER_AWAY, place, 0 if outage is None else thread.clock.monotonic_ms() - outage.since_ms
    yield table.UNWRITABLE, place, len(thread.committer.producer.storage_failures)
    restores = thread.restorer.progress()
    yield table.RESTORING_TASKS, place, len({task_id for task_id, remaining, _ in restores})
    yield table.PAUSED_RESTORES, place, len(restores) if thread.is_paused else 0
    yield table.UPDATING_TASKS, place, 0 if restores else len(copies)
    yield table.PAUSED_STANDBYS, place, len(copies) if restores else 0
    for task_id, remaining, eta_ms in restores:
        place = MetricPlace(thread.name, task_id)
        yield table.RESTORE_REMAINING, place, remaining
        yield table.RESTORE_ETA, place, eta_ms
    busy = thread.sensors.processed.recent()
    for task_id, task in tasks.items():
        place = MetricPlace(thread.name, task_id)
        yield table.PROCESS_RATIO, place, task.sensors.latency.recent() / busy if busy else 0.0
        yield from of_task(task, place, now_ms)
