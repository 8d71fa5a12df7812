"""A stream thread: one consumer, one committer, and the tasks that it was given.

The loop polls, adds, processes, sends, punctuates and commits; all of it in one thread, so no
task needs a lock.  The group says what the thread should have; ``_reconcile`` opens and closes
tasks and copies until it has just that.  Imports clients.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from attrs import define, field

from streams.clients import Consumer, RebalanceListener, RequestTimeoutError, WakeupError
from streams.core.clock import Clock
from streams.core.config import StreamsConfig
from streams.core.errors import (
    ClientClosedError,
    MemberFencedError,
    ProducerFencedError,
    RebalanceInProgressError,
    TransactionError,
)
from streams.core.records import TaskId, TopicPartition
from streams.core.threads import Answer, Signal
from streams.protocol.messages import ErrorCode
from streams.runtime.assignment import StreamsAssignor
from streams.runtime.committing import Committer
from streams.runtime.environment import SharedParts
from streams.runtime.facts import MemberFacts, PartitionLayout
from streams.runtime.pace import Pace
from streams.runtime.questions import Questions
from streams.runtime.restore import Restorer
from streams.runtime.schedule import Schedule, ThreadStage
from streams.runtime.task import Task
from streams.runtime.task_set import TaskSet
from streams.runtime.waiting import WaitingState
from streams.state import MemoryBudget

log = logging.getLogger(__name__)

#: Wait for records while answers to what was sent are on their way: what comes after it may wait for them.
_ANSWER_POLL_MS = 5

#: After so many heartbeats tasks that wait for their old owners are asked after.
_FINAL_HEARTBEATS = 3

#: Whoever gets these has lost its place, or knows nothing of its transaction: its tasks begin anew.
_DISPLACED = (MemberFencedError, ProducerFencedError, TransactionError)


@define(eq=False)
class ThreadEvents:
    """Callbacks of a thread to its instance."""

    #: All tasks are open and restored, or not any more.
    readiness: Callable[[], None]
    #: A member has asked for the end of the whole application.
    shutdown: Callable[[], None]
    #: A task writes to a topic that no plan knows; called with its partition count.
    new_topic: Callable[[str, int], None]


@define(eq=False)
class StreamThread:
    """The loop of one thread.  ``run`` returns when asked to stop, or raises what ended it."""

    name: str
    shared: SharedParts
    assignor: StreamsAssignor
    committer: Committer
    task_set: TaskSet
    events: ThreadEvents
    config: StreamsConfig = field(init=False)
    clock: Clock = field(init=False)
    consumer: Consumer = field(init=False)
    restorer: Restorer = field(init=False)
    schedule: Schedule = field(init=False)
    #: Set to end the loop.
    stopping: Signal = field(init=False)
    #: Records are taken in but not processed.
    is_paused: bool = False
    #: Told to the leader at the next rebalance: the whole application is to end.
    wants_shutdown: bool = False
    #: State that waits for a commit; above its bound all tasks are committed early.
    waiting: WaitingState = field(factory=lambda: WaitingState(MemoryBudget().waiting_bytes))
    _is_settled: bool = False
    _is_ready: bool = False
    #: Tasks have been opened that know nothing yet of how far their inputs reach.
    _has_new_tasks: bool = False
    _pace: Pace = field(init=False)
    #: Partitions that the consumer is not to read for now.
    _held: set[TopicPartition] = field(factory=set)
    #: None when tasks have come or gone since.
    _stages: list[ThreadStage] | None = None
    _next_commit_ms: int = 0
    #: When a leader looks again whether warm-up copies are complete.
    _probe_at_ms: int | None = None
    #: The last attempt to commit was refused, and that was said.
    _is_commit_refused: bool = False
    _has_reported_warmup: bool = False
    _has_reported_growth: bool = False
    #: Since when the broker does not answer.
    _unanswered_since_ms: int | None = None
    _questions: "Questions[StreamThread]" = field(init=False)

    def __attrs_post_init__(self) -> None:
        shared = self.shared
        self.config, self.schedule, self.clock = shared.config, shared.schedule, shared.environment.clock
        self.consumer, self.restorer = self.task_set.consumer, self.task_set.restorer
        self.assignor.member = self.task_set.owner = self
        self.stopping = shared.environment.threads.signal()
        self._questions = Questions(shared.environment.threads)
        self._pace = Pace(
            self.config, self.clock, self.tasks, self.restorer, lambda: self.stages, self.schedule.is_finite
        )

    @property
    def is_ready(self) -> bool:
        """Whether all tasks that the group has given are open and restored, and it has no more to give.

        It has while a task waits for its old owner to give it up: everybody meets again then.
        """
        return self._is_ready

    @property
    def tasks(self) -> dict[TaskId, Task]:
        """The active tasks."""
        return self.task_set.active

    @property
    def stages(self) -> list[ThreadStage]:
        """The active tasks as they are processed."""
        if self._stages is None:
            self._stages = self.schedule.stages(self.tasks.values())
        return self._stages

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
                    self._note_answer()
                except WakeupError:
                    continue
                except _DISPLACED as error:
                    self._start_anew(error)
                except RequestTimeoutError as error:
                    self._check_patience(error)
            self._commit_at_last()
        except BaseException:
            self._abandon()
            raise
        self.task_set.close_all()
        self._close_clients()

    def ask(self, question: "Callable[[StreamThread], Any]") -> Answer[Any]:
        """Run a function on this thread between two iterations of its loop."""
        answer = self._questions.ask(question)
        self.wake()
        return answer

    def wake(self) -> None:
        """End a waiting poll."""
        self.consumer.wakeup()

    def run_once(self) -> int:
        """Run one iteration of the loop; return the number of processed records."""
        if self._questions.answer(self):
            # They may have changed anything.
            self._pace.wake()
        if not self._is_settled:
            self._reconcile()
            self._has_new_tasks = True
        timeout_ms = self._pace.timeout_ms(self._next_commit_ms, is_paused=self.is_paused)
        if self.committer.has_outstanding:
            timeout_ms = min(timeout_ms, _ANSWER_POLL_MS)
        try:
            polled = self.consumer.poll_blocks(timeout_ms)
        except WakeupError:
            if self.stopping.is_set() or not self._is_settled:
                raise
            # Whoever asks without a pause must not keep the tasks from their work.
            polled = {}
        for partition, blocks in polled.items():
            task = self.task_set.owner_of.get(partition)
            if task is not None:
                for block in blocks:
                    task.add(partition, block)
        has_news = self._note_ends()
        self.restorer.poll()
        self._look_after_warmups()
        try:
            if self._pace.is_resting and not polled and not has_news:
                self._commit_if_due()
                return 0
            self._pace.wake()
            self._initialize_restored()
            self._pause_and_resume()
            processed = self._work()
        except RequestTimeoutError as error:
            # Somewhere between processing and commit: what is half done is undone by beginning anew.
            self._start_anew(error)
            raise
        if not processed and self._is_settled:
            self._pace.rest(self._next_commit_ms)
        return processed

    def _work(self) -> int:
        """Process available records, and commit if due."""
        processed = 0 if self.is_paused else self._process()
        self._pause_and_resume()
        self.schedule.end(self.stages, self)
        self._commit_if_due()
        return processed

    def announce(self) -> None:
        """Join the group to send this thread's user data to its leader, then leave."""
        deadline_ms = self.clock.monotonic_ms() + self.config.consumer.session_timeout_ms
        try:
            while self.assignor.directive is None and self.clock.monotonic_ms() < deadline_ms:
                try:
                    self.consumer.poll_blocks(self.config.poll_ms)
                except WakeupError:
                    continue
        finally:
            self._close_clients()

    # --- one turn -----------------------------------------------------------------------

    def _note_ends(self) -> bool:
        """Let the tasks know how far their inputs reach and are read; return whether the consumer had news of that."""
        consumer, owner_of = self.consumer, self.task_set.owner_of
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
        """Let tasks prepare whose stores are complete now: what they read in them is what was committed."""
        for task in self.tasks.values():
            if not task.is_initialized and not self.restorer.is_restoring(task.task_id):
                task.initialize()
        if self._is_settled and not self._is_ready:
            directive = self.assignor.directive
            is_whole = directive is not None and directive.is_final
            if is_whole and all(task.is_initialized for task in self.tasks.values()):
                self._is_ready = True
                self.events.readiness()

    def _process(self) -> int:
        """Process what is buffered, stage by stage, and send the outputs; return the number of records."""
        total = 0
        now, monotonic = self.clock.now_ms(), self.clock.monotonic_ms()
        for stage in self.stages:
            while (task := stage.step(now, monotonic)) is not None:
                total += stage.count
                self.send(stage, task)
                if self.waiting.note(task.task_id, task.uncommitted_bytes):
                    self.try_commit(list(self.tasks.values()))
                elif task.wants_commit:
                    self.try_commit([task])
            for task in stage.tasks:
                if task.is_initialized and task.punctuate(now):
                    self.send(stage, task)
        return total

    def send(self, stage: ThreadStage, task: Task) -> bool:
        """Send a task's outputs; return whether the stage reads some of them itself: these can be fetched then."""
        sent = self.committer.send(task, has_more=stage.has_short_runs)
        if sent.isdisjoint(stage.loops):
            return False
        self.flush()
        if self.committer.is_exactly_once:
            self.try_commit(list(self.tasks.values()))
        self._note_loops()
        return True

    def _note_loops(self) -> None:
        """Let stages know what they have sent to themselves, so that it is awaited before the next record."""
        for stage in self._stages or ():
            for partition, task in stage.loops.items():
                self.schedule.note_end(task, partition)

    def flush(self) -> None:
        """Wait until all sent records are acknowledged."""
        self.committer.flush()

    def _pause_and_resume(self) -> None:
        assigned = self.consumer.assignment()
        wanted = {partition for task in self.tasks.values() for partition in task.queues.paused()}
        for task in self.tasks.values():
            if self.restorer.is_restoring(task.task_id):
                wanted.update(task.inputs)
        # What has no task yet would be read in vain.
        wanted |= assigned - self.task_set.owner_of.keys()
        wanted &= assigned
        if wanted != self._held:
            self.consumer.pause(wanted - self._held)
            self.consumer.resume((self._held - wanted) & assigned)
            self._held = wanted

    def _look_after_warmups(self) -> None:
        """Have the tasks shared out again when a copy is complete, or when the leader is to look."""
        directive = self.assignor.directive
        if directive is not None and directive.warmup and not self._has_reported_warmup:
            lags = [self.restorer.lag(task_id) for task_id in directive.warmup if task_id in self.task_set.copies]
            if any(lag is not None and lag <= self.config.acceptable_recovery_lag for lag in lags):
                self._has_reported_warmup = True
                self._ask_rebalance("a warm-up copy has caught up")
        if self._probe_at_ms is not None and self.clock.monotonic_ms() >= self._probe_at_ms:
            self._probe_at_ms = None
            self._ask_rebalance("tasks that waited for a copy or for their old owner may go on")

    def _compare_layout(self) -> None:
        """Have the tasks shared out again when topics have grown since they were.

        The leader's consumer looks after that; but a static leader that was started again while a
        topic grew does not know what was before.
        """
        directive = self.assignor.directive
        if directive is None or not self._is_settled or self._has_reported_growth:
            return
        for topic, count in directive.layout.partitions.items():
            if topic not in self.task_set.plan.topology.internal_topics and count < (
                self.consumer.known_partition_count(topic) or 0
            ):
                self._has_reported_growth = True
                self._ask_rebalance(f"topic {topic!r} has grown")
                return

    # --- committing -----------------------------------------------------------------------

    def _commit_if_due(self) -> None:
        now = self.clock.monotonic_ms()
        wanting = [task for task in self.tasks.values() if task.wants_commit]
        if now >= self._next_commit_ms:
            self._next_commit_ms = now + self.config.commit_interval_ms
            wanting = list(self.tasks.values())
            self._compare_layout()
        if wanting:
            self.try_commit(wanting)
        self.committer.poll()

    def commit(self, tasks: Iterable[Task]) -> None:
        """Commit those of the tasks that have done anything; a transaction takes all tasks of the thread."""
        chosen = self.tasks.values() if self.committer.is_exactly_once else tasks
        dirty = [task for task in chosen if task.is_dirty and not self.restorer.is_restoring(task.task_id)]
        self.committer.commit(dirty)
        self._note_loops()
        self.waiting.forget(task.task_id for task in dirty)

    def partition_count(self, topic: str) -> int:
        """Return the partitions of a topic that the plan does not know: it was chosen for a record."""
        count = self.committer.producer.partition_count(topic)
        self.events.new_topic(topic, count)
        return count

    def forget(self, task_id: TaskId) -> None:
        """Remove a closed task, maybe without a commit."""
        self.committer.forget(task_id)
        self.waiting.forget([task_id])

    def try_commit(self, tasks: Sequence[Task]) -> bool:
        """Commit; return whether that was possible: while the group rebalances it is left to the next attempt."""
        try:
            self.commit(tasks)
        except RebalanceInProgressError as error:
            if not self._is_commit_refused:
                log.info("%s: commit refused, comes again when the group has settled: %s", self.name, error)
            self._is_commit_refused = True
            return False
        self._is_commit_refused = False
        return True

    def _commit_at_last(self) -> None:
        """Commit everything before the end, through a rebalance if there is one."""
        deadline_ms = self.clock.monotonic_ms() + self.config.consumer.session_timeout_ms
        try:
            while not self.try_commit(list(self.tasks.values())):
                if self.clock.monotonic_ms() > deadline_ms:
                    log.warning("%s: ends without a last commit: the group did not settle in time", self.name)
                    return
                try:
                    # What this brings is not processed: positions are the tasks'.
                    self.consumer.poll_blocks(self.config.poll_ms)
                except WakeupError:
                    continue
        except (*_DISPLACED, RequestTimeoutError) as error:
            log.warning(
                "%s: ends without a last commit; what came after the one before comes again: %s", self.name, error
            )

    # --- rebalances -----------------------------------------------------------------------

    def listener(self) -> RebalanceListener:
        """Return the rebalance listener of the consumer."""
        return _Listener(self)

    def facts(self) -> MemberFacts:
        """Return the user data of this thread's subscription, with the positions of its process's stores."""
        task_set = self.task_set
        return MemberFacts(
            task_set.home.process_id,
            tuple(sorted(task_set.active)),
            tuple(sorted(task_set.copies)),
            task_set.positions(),
            self.wants_shutdown,
            self.name,
            self.config.application_server,
        )

    def changelog_ends(self, layout: PartitionLayout, tasks: Collection[TaskId]) -> Mapping[TaskId, int]:
        """Return the sum of the end offsets of each task's changelogs."""
        plan = self.shared.plans.of(layout)
        partitions = {
            task_id: list(plan.changelogs(task_id, [spec.name for spec in plan.stores_of(task_id)]).values())
            for task_id in tasks
        }
        ends = self.consumer.end_offsets(sorted({partition for group in partitions.values() for partition in group}))
        return {task_id: sum(ends[partition] for partition in group) for task_id, group in partitions.items()}

    def take_over(self, partitions: Sequence[TopicPartition]) -> None:
        """Schedule the opening of assigned tasks; their partitions are not read before that."""
        self.consumer.pause(partitions)
        self._held.update(partitions)
        self._held &= self.consumer.assignment()
        self._unsettle()
        # Ends the poll in which this is called.
        self.consumer.wakeup()

    def give_up(self, partitions: Sequence[TopicPartition], *, is_lost: bool) -> None:
        """Commit (unless lost) and close the tasks of these partitions."""
        gone = {
            self.task_set.owner_of[partition].task_id for partition in partitions if partition in self.task_set.owner_of
        }
        tasks = [self.tasks[task_id] for task_id in sorted(gone)]
        if is_lost:
            log.warning("%s: lost tasks %s: the group went on without this member", self.name, _names(gone))
        elif gone:
            log.info("%s: gives up tasks %s", self.name, _names(gone))
        is_kept = False
        if not is_lost:
            try:
                self.commit(tasks)
                is_kept = True
            except (*_DISPLACED, RebalanceInProgressError, RequestTimeoutError) as error:
                log.warning("%s: tasks %s are given up without a commit: %s", self.name, _names(gone), error)
        if not is_kept and self.committer.is_exactly_once:
            # One transaction holds the records of all tasks: they begin anew at their last commit.
            tasks = list(self.tasks.values())
            self.committer.renew()
        directive = self.assignor.directive
        followed = {*directive.standby, *directive.warmup} if directive is not None and is_kept else set()
        for task in tasks:
            self.task_set.close(task, keeps_stores=task.task_id in followed)
        self._unsettle()

    def _ask_rebalance(self, reason: str) -> None:
        log.info("%s: asks for a rebalance: %s", self.name, reason)
        self.consumer.enforce_rebalance(reason)

    def _unsettle(self) -> None:
        self._is_settled = False
        self._stages = None
        self._pace.wake()
        self._probe_at_ms = None
        if self._is_ready:
            self._is_ready = False
            self.events.readiness()

    def _start_anew(self, error: Exception) -> None:
        """The group or the broker has gone on without this thread: its tasks may be others' already, so they are
        dropped, and opened again at their last commit if they are not.
        """
        if isinstance(error, MemberFencedError) and error.code == ErrorCode.FENCED_INSTANCE_ID:
            raise error
        log.warning("%s: begins anew: %s", self.name, error)
        self.shared.metrics.counter("fenced-total").value += 1
        if self.committer.is_exactly_once:
            self.committer.renew()
        for task in list(self.tasks.values()):
            self.task_set.close(task)
        self._unsettle()
        if isinstance(error, MemberFencedError | ProducerFencedError):
            self._ask_rebalance("this member was out of the group")

    def _check_patience(self, error: RequestTimeoutError) -> None:
        """Tolerate an unavailable broker for a limited time."""
        now = self.clock.monotonic_ms()
        if self._unanswered_since_ms is None:
            self._unanswered_since_ms = now
        if now - self._unanswered_since_ms > self.config.task_timeout_ms:
            raise error
        log.warning("%s: no answer from the broker, tries again: %s", self.name, error)

    def _note_answer(self) -> None:
        if self._unanswered_since_ms is not None:
            away_ms = self.clock.monotonic_ms() - self._unanswered_since_ms
            self._unanswered_since_ms = None
            log.info("%s: goes on; the broker has not answered for %d ms", self.name, away_ms)

    def _reconcile(self) -> None:
        """Open and close tasks and standbys to match the group's assignment."""
        directive = self.assignor.directive
        if directive is None:
            return
        if directive.is_shutdown:
            self.events.shutdown()
            return
        plan = self.shared.plans.of(directive.layout)
        groups = plan.bundles()
        if self.consumer.assignment() != {tp for task_id in directive.active for tp in groups[task_id]}:
            # What the leader says comes before the partitions that it means.
            return
        self.committer.prepare()
        self.committer.plan = plan
        self._stages = None
        if not self.task_set.reconcile(plan, directive):
            return
        self._is_settled = True
        self._has_reported_warmup = self._has_reported_growth = False
        copies = self.task_set.copies
        log.info("%s: assigned tasks %s; copies of %s", self.name, _names(self.tasks), _names(copies))
        if not directive.is_final:
            # Whoever gives something up joins again for it; but it may die before, and come back as a static member.
            pause_ms = _FINAL_HEARTBEATS * self.config.consumer.heartbeat_interval_ms
            self._probe_at_ms = self.clock.monotonic_ms() + pause_ms
        elif self.assignor.awaits_warmups:
            self._probe_at_ms = self.clock.monotonic_ms() + self.config.probing_rebalance_interval_ms

    # --- the end ----------------------------------------------------------------------------

    def _close_clients(self) -> None:
        self.consumer.close()
        self.committer.close()
        self.restorer.close()
        self._questions.refuse(ClientClosedError(f"thread {self.name} has ended"))

    def _abandon(self) -> None:
        """Close after a failure, without a commit; the failure itself is what gets raised."""
        steps = (self._send_last_words, self.committer.abort, self.task_set.close_all, self._close_clients)
        for close in steps:
            try:
                close()
            except Exception:
                log.exception("%s: closing after a failure went wrong too", self.name)

    def _send_last_words(self) -> None:
        """Send the dead letters of a handler that has said fail; a transaction takes them back."""
        for task in self.tasks.values():
            if task.handlers.has_last_words and not self.schedule.is_finite:
                self.committer.send(task)
                self.committer.flush()


def _names(tasks: Iterable[TaskId]) -> str:
    """Return tasks as a log line has them."""
    return ", ".join(map(str, sorted(tasks))) or "none"


class _Listener(RebalanceListener):
    """The rebalance listener of a thread's consumer."""

    def __init__(self, thread: StreamThread) -> None:
        self._thread = thread

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Open new tasks."""
        self._thread.take_over(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit and close tasks."""
        self._thread.give_up(partitions, is_lost=False)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Close tasks that other members own already."""
        self._thread.give_up(partitions, is_lost=True)
