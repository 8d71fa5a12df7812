"""An instance of an application: its threads, its stores on this machine, its state.

Several instances and threads of the same application id share the partitions through the
group.  Imports clients and state.
"""

import logging
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import count
from typing import Any

from attrs import define, field

from streams.clients.consumer import Consumer
from streams.clients.producer import Producer
from streams.core.clock import Clock
from streams.core.config import StreamsConfig
from streams.core.errors import ClientClosedError, ConfigError, ProcessingError, StreamsError
from streams.core.metrics import Metrics
from streams.core.records import TaskId, TopicPartition
from streams.core.threads import Answer, Signal, SystemThreads, ThreadKilled, Threads, Worker
from streams.core.user_code import place_in_user_code, refuse_result
from streams.protocol.transport import Cluster
from streams.runtime import collector
from streams.runtime.assignment import Blueprint, StreamsAssignor
from streams.runtime.bounded import BoundedProgress, BoundedSchedule
from streams.runtime.committing import Committer
from streams.runtime.facts import PartitionLayout
from streams.runtime.globals import GlobalStores
from streams.runtime.homes import MemoryHome, StateHome
from streams.runtime.instance_clients import InstanceClients
from streams.runtime.layout import Plans, check_groups
from streams.runtime.life import Life, State, StateListener
from streams.runtime.losses import LossGuard, check_inputs
from streams.runtime.plan import ApplicationPlan
from streams.runtime.provisioning import Provisioner
from streams.runtime.refusals import Refusals
from streams.runtime.restore import RestoreListener, Restorer
from streams.runtime.schedule import LiveSchedule
from streams.runtime.sharing import SharingRules
from streams.runtime.task_set import TaskSet
from streams.runtime.thread import StreamThread, ThreadEvents
from streams.runtime.unknown_state import check_unknown_state
from streams.state import MemoryBudget, RecordCache, open_store
from streams.topology.graph import Topology
from streams.topology.subtopologies import PartitionGrouper

log = logging.getLogger(__name__)


class ExceptionResponse(Enum):
    """What to do when a thread has failed (KIP-671)."""

    #: Start another thread in its place; its tasks begin anew at their last commit.
    REPLACE_THREAD = "replace_thread"
    #: Stop this instance; the others go on with its tasks.
    SHUTDOWN_CLIENT = "shutdown_client"
    #: Stop all instances of the application.
    SHUTDOWN_APPLICATION = "shutdown_application"


#: Told of what ended a thread; says what to do.
ExceptionHandler = Callable[[BaseException], ExceptionResponse]


#: Restoring takes so many times the records of another poll: batches of changelogs are large, and taking them to
#: pieces costs.
_RESTORED_RECORDS = 5


@define(eq=False)
class _Slot:
    """A stream thread, its number, and what runs it."""

    number: int
    stream_thread: StreamThread
    worker: Worker | None = None
    #: The thread has done its last; its worker may still be seen alive for a moment.
    has_ended: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether it runs, or is to, and was not asked to stop."""
        return not self.has_ended and not self.stream_thread.stopping.is_set()

    @property
    def is_alive(self) -> bool:
        return self.worker is not None and self.worker.is_alive

    def ask(self, question: Callable[[StreamThread], Any], threads: Threads) -> Answer[Any]:
        if self.worker is None or not self.worker.is_current:
            return self.stream_thread.ask(question)
        # A listener or processor asks on the thread itself, which would wait for its own answer.
        answer: Answer[Any] = Answer(threads)
        answer.settle(partial(question, self.stream_thread))
        return answer


@define(eq=False)
class Instance:
    """Threads that run an application's tasks over one cluster.

    ``creates_topics`` lets missing source and sink topics be made, with the partitions that their
    declarations name; a cluster of others is left as it is.
    """

    topology: Topology
    config: StreamsConfig
    cluster: Cluster
    clock: Clock
    home: StateHome = field(factory=MemoryHome)
    threads: Threads = field(factory=SystemThreads)
    creates_topics: bool = False
    grouper: PartitionGrouper | None = None
    is_bounded: bool = False
    final_flush: bool = False
    restore_listener: RestoreListener | None = None
    on_state: StateListener | None = None
    on_exception: ExceptionHandler | None = None
    end_offset: Callable[[TopicPartition], int] | None = None
    #: Whether the garbage collector is tuned for this process, which it belongs to.
    tunes_collector: bool = True
    metrics: Metrics = field(factory=Metrics)
    failure: BaseException | None = None
    bounded: BoundedProgress | None = None
    #: Set when no thread is left, or one has failed that ends them all.
    ended: Signal = field(init=False)
    life: Life = field(init=False)
    _slots: list[_Slot] = field(factory=list)
    _globals: GlobalStores | None = None
    _views: Mapping[str, Any] = field(factory=dict)
    _lock: threading.RLock = field(init=False)
    _is_tuned: bool = False
    _is_locked: bool = False
    _is_paused: bool = False
    _plan: ApplicationPlan | None = None
    _plans: Plans = field(init=False)
    _clients: InstanceClients = field(init=False)
    _provisioner: Provisioner = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.ended = self.threads.signal()
        self.life = Life(self.config.application_id, self.on_state)
        self._lock = self.life.lock
        self._clients = InstanceClients(self.cluster, self.config, self.clock, self.home)
        self._plans = Plans(self.topology, self.config, self.clock, self.grouper, self.is_bounded)
        self._provisioner = Provisioner(self.cluster, self.clock, self.config, self.topology, self.creates_topics)

    def start(self) -> None:
        """Check and create topics, fill global stores, and start the threads.

        Raises:
            TopologyError: source topics are missing, not co-partitioned, or internal ones do not fit.
            StateLockedError: another process uses the state directory.
            ClientClosedError: the instance was started before.
        """
        if self.state is not State.CREATED:
            raise ClientClosedError(
                f"application {self.config.application_id!r} was started before; make a new instance"
            )
        if not self.config.application_id:
            raise ConfigError("an application needs a name: pass application_id=...")
        try:
            self.home.lock()
            self._is_locked = True
            known = self._provisioner.known()
            plan = self._plan = self._plans.of(self._plans.layout(known))
            check_unknown_state(plan, known, self.home.stores(), self._provisioner)
            self._provisioner.provide(plan.internal_topics(), known)
            if self.is_bounded:
                assert self.end_offset is not None
                self.bounded = BoundedProgress(plan, self.end_offset, self.final_flush)
            self._views = self._open_globals(plan)
            if self.tunes_collector:
                collector.tune()
                self._is_tuned = True
            # Nobody is ready before all are there.
            with self._lock:
                if self.life.move(State.REBALANCING):
                    for _ in range(self.config.num_stream_threads):
                        self._add_thread()
            self.life.tell()
        except BaseException:
            self._end_threads(None)
            self._release()
            raise

    def close(self, timeout_ms: int | None = None) -> bool:
        """Stop the threads, commit and close; return whether they ended in time.

        The state is NOT_RUNNING then, and ERROR after a failure.
        """
        if self.state is State.CREATED:
            self._move(State.NOT_RUNNING)
            self.ended.set()
        self._move(State.PENDING_SHUTDOWN)
        if not self._end_threads(timeout_ms):
            return False
        self._release()
        self._move(State.NOT_RUNNING)
        self._move(State.ERROR)
        return True

    @property
    def state(self) -> State:
        """Where the instance is in its life."""
        return self.life.state

    @property
    def is_closed(self) -> bool:
        """Whether it holds nothing: it was not started, or it is closed."""
        return self.state in (State.CREATED, State.NOT_RUNNING, State.ERROR) and not self._is_locked

    def ask(self, question: Callable[[StreamThread], Any]) -> list[Any]:
        """Run a function on every thread, between two turns of its loop; return the answers.

        Raises:
            ClientClosedError: the instance does not run.
        """
        self._check_running()
        with self._lock:
            asked = [slot.ask(question, self.threads) for slot in self._slots if slot.is_alive]
        return [answer.result() for answer in asked]

    @property
    def client_name(self) -> str:
        """Name of the instance, with which those of its clients begin."""
        return self._clients.name("")[:-1]

    @property
    def global_views(self) -> Mapping[str, Any]:
        """The global stores, to be read from any thread."""
        return self._views

    def plan_of(self, layout: PartitionLayout) -> ApplicationPlan:
        """Return the plan of a layout that the leader has told."""
        return self._plans.of(layout)

    @property
    def stream_threads(self) -> Sequence[StreamThread]:
        """The stream threads."""
        return [slot.stream_thread for slot in self._slots]

    def add_thread(self) -> str:
        """Start one more thread, which gets its share of the tasks; return its name (KIP-663).

        Raises:
            ClientClosedError: the instance does not run.
        """
        self._check_running()
        added = self._add_thread().name
        log.info("%s: added; %d threads", added, len(self._slots))
        self._settle()
        return added

    def remove_thread(self, timeout_ms: int | None = None) -> str | None:
        """Stop the youngest thread, whose tasks the others take; return its name.

        None if there is no thread left, or it has not ended in time.

        Raises:
            ClientClosedError: the instance does not run.
        """
        self._check_running()
        with self._lock:
            slot = max((slot for slot in self._slots if slot.is_wanted), key=lambda slot: slot.number, default=None)
            if slot is None:
                return None
            _stop(slot)
        if slot.worker is not None and not slot.worker.join(timeout_ms):
            return None
        with self._lock:
            self._drop(slot)
        log.info("%s: removed; %d threads", slot.stream_thread.name, len(self._slots))
        self._settle()
        return slot.stream_thread.name

    def pause(self) -> None:
        """Take records in but process none, until ``resume``; membership goes on (KIP-834)."""
        self._set_paused(True)

    def resume(self) -> None:
        """Go on processing."""
        self._set_paused(False)

    @property
    def is_paused(self) -> bool:
        """Whether processing is paused."""
        return self._is_paused

    # --- start ------------------------------------------------------------------------

    def _open_globals(self, plan: ApplicationPlan) -> Mapping[str, Any]:
        if not self.topology.global_stores:
            return {}
        name = self._clients.name("global")
        self._globals = GlobalStores(plan, self._clients.reader(name), self.metrics, self._fail, self.threads)
        views = self._globals.open(lambda spec: open_store(spec, None))
        self._globals.start(name)
        return views

    def _add_thread(self) -> StreamThread:
        with self._lock:
            taken = {slot.number for slot in self._slots}
            number = next(number for number in count(1) if number not in taken)
            stream_thread = self._make_thread(number)
            stream_thread.is_paused = self._is_paused
            slot = _Slot(number, stream_thread)
            self._slots.append(slot)
            self._share_memory()
            slot.worker = self.threads.start(stream_thread.name, lambda: self._run(slot))
        return stream_thread

    def _make_thread(self, number: int) -> StreamThread:
        config = self.config
        plan = self._plan
        assert plan is not None
        name = self._clients.name(f"thread-{number}")
        assignor = StreamsAssignor(
            lambda _: self._blueprint(),
            lambda: thread.facts(),
            lambda tasks: _changelog_ends(self._plans, assignor, consumer, tasks),
            SharingRules(config.num_standby_replicas, config.acceptable_recovery_lag, config.max_warmup_replicas),
        )
        consumer = self._clients.consumer(name, number, assignor)
        committer = Committer(
            consumer,
            lambda: self._clients.producer(name, number),
            lambda: thread.task_set.plan,
            self.metrics,
            config.is_exactly_once,
            Refusals(config.producer.max_request_bytes, config.is_exactly_once),
            self._clients.purger(name) if plan.repartition_topics() else None,
        )
        restored = self.metrics.counter("restored-tasks-total")
        reader = self._clients.reader(f"{name}-restore")
        restorer = Restorer(
            reader, _RESTORED_RECORDS * config.consumer.max_poll_records, self.restore_listener, restored
        )
        task_set = TaskSet(
            name,
            plan,
            config,
            consumer,
            restorer,
            LossGuard(name, config, restorer, lambda: self._clients.producer(f"{name}-rebuild", None)),
            self.home,
            self._views,
            self.metrics,
            RecordCache(config.cache_max_bytes) if config.cache_max_bytes else None,
            self.bounded,
            lambda topic: self._partition_count(committer.producer, topic),
            lambda tasks: thread.commit(tasks),
            lambda task_id: thread.forget(task_id),
        )
        thread = StreamThread(
            name,
            self._plans,
            config,
            self.clock,
            consumer,
            committer,
            restorer,
            assignor,
            task_set,
            LiveSchedule() if self.bounded is None else BoundedSchedule(self.bounded),
            ThreadEvents(self._settle, self._on_shutdown),
            self.threads,
        )
        consumer.subscribe(self._subscription(plan), thread.listener())
        return thread

    def _partition_count(self, producer: Producer, topic: str) -> int:
        """Return the partitions of a topic that no plan knows: it was chosen for a record."""
        count = producer.partition_count(topic)
        if self.bounded is not None:
            plan = self.bounded.plan
            with self._lock:
                # Another thread may have been faster; nobody writes before the lanes are there.
                if plan.partition_count(topic) is None:
                    plan.add_topic(topic, count, lambda it: self._provisioner.provide([it], self._provisioner.known()))
        return count

    def _subscription(self, plan: ApplicationPlan) -> Sequence[str] | re.Pattern[str]:
        """Return the topics of all tasks; one pattern where a source has one."""
        topics = sorted({partition.topic for group in plan.partition_groups().values() for partition in group})
        patterns = [node.pattern.pattern for node in self.topology.sources() if node.pattern is not None]
        if not patterns:
            return topics
        return re.compile("|".join([*(f"(?:{pattern})" for pattern in patterns), *map(re.escape, topics)]))

    def _blueprint(self) -> Blueprint:
        """Return what there is to share out now: topics are looked up, and made or checked."""
        known = self._provisioner.known()
        layout = self._plans.layout(known)
        plan = self._plans.of(layout)
        self._provisioner.provide(plan.internal_topics(), known)
        committed = self._provisioner.committed()
        check_inputs(plan, committed, self._provisioner.ends)
        if not self.is_bounded:
            check_groups(plan, committed)
        return Blueprint(layout, plan.bundles(), plan.stateful())

    # --- life -------------------------------------------------------------------------

    def _run(self, slot: _Slot) -> None:
        try:
            slot.stream_thread.run()
        except ThreadKilled:
            raise
        except BaseException as error:
            # Nobody is above this thread: what passes here unseen would end it without a word.
            self._on_failure(slot, error)
        finally:
            with self._lock:
                slot.has_ended = True
                is_last = all(other.has_ended for other in self._slots)
            self._settle()
            if is_last:
                self._move(State.ERROR)
                self.ended.set()

    def _on_failure(self, slot: _Slot, error: BaseException) -> None:
        """Ask the user's handler what to do about a thread that has failed; without one the instance ends."""
        response = ExceptionResponse.SHUTDOWN_CLIENT
        if self.on_exception is not None and self.bounded is None:
            try:
                response = self.on_exception(error)
                refuse_result(response, "on_exception")
            except ThreadKilled:
                raise
            except BaseException as second:
                text = "the exception handler of application %s failed itself; it was asked about: %s"
                log.exception(text, self.config.application_id, _told(error))
                error = second
        is_running = self.life.is_up
        if slot.stream_thread.stopping.is_set() and is_running and self.bounded is None:
            # It was to end anyway: its tasks are the others' from here on.
            log.warning("%s: ends with a failure: %s", slot.stream_thread.name, error, exc_info=error)
            return
        if response is ExceptionResponse.REPLACE_THREAD and is_running:
            log.warning("%s: replaced: %s", slot.stream_thread.name, _told(error), exc_info=error)
            with self._lock:
                self._drop(slot)
                self._add_thread()
            self._settle()
            return
        if response is ExceptionResponse.SHUTDOWN_APPLICATION and is_running:
            self._announce_shutdown(slot)
        self._fail(error)

    def _announce_shutdown(self, failed: _Slot) -> None:
        """Have the group's leader tell all instances to end: said by a member that joins just for that."""
        with self._lock:
            herald = self._make_thread(failed.number)
        herald.wants_shutdown = True
        try:
            herald.announce()
        except StreamsError as error:
            log.warning("the other instances could not be told to end: %s", error)

    def _on_shutdown(self) -> None:
        """Another instance has asked for the end of the whole application."""
        if self.life.is_up:
            log.warning("application %r ends: another instance has asked for it", self.config.application_id)
            self._move(State.PENDING_SHUTDOWN)
        self._stop_all()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            is_first = self.failure is None
            if is_first:
                self.failure = error
            self.life.move(State.PENDING_ERROR)
        self._stop_all()
        if is_first and self.bounded is None:
            # A bounded run raises it to whoever waits for its end.  The traceback comes with what ``wait`` and
            # ``close`` raise; of our own mistakes it is shown here too.
            trace = None if isinstance(error, StreamsError) else error
            text = "application %r failed: %s"
            log.error(text, self.config.application_id, _told(error), exc_info=trace, extra={"failure": error})
        self.life.tell()
        self.ended.set()
        if self.bounded is not None:
            self.bounded.done.set()

    def _settle(self) -> None:
        """Be RUNNING while every thread has all its tasks open, and REBALANCING while one has not."""
        with self._lock:
            if self.life.is_up:
                is_ready = all(slot.stream_thread.is_ready for slot in self._slots if slot.is_wanted)
                self.life.move(State.RUNNING if is_ready else State.REBALANCING)
        self.life.tell()

    def _end_threads(self, timeout_ms: int | None) -> bool:
        """Stop all threads and wait for their end; return whether that came in time."""
        self._stop_all()
        deadline_ms = None if timeout_ms is None else self.clock.monotonic_ms() + timeout_ms
        for slot in list(self._slots):
            if slot.worker is not None:
                slot.worker.join(None if deadline_ms is None else max(0, deadline_ms - self.clock.monotonic_ms()))
        return not any(slot.is_alive for slot in self._slots)

    def _stop_all(self) -> None:
        with self._lock:
            for slot in self._slots:
                _stop(slot)

    def _set_paused(self, is_paused: bool) -> None:
        log.info("application %r: %s", self.config.application_id, "paused" if is_paused else "resumed")
        with self._lock:
            self._is_paused = is_paused
            for slot in self._slots:
                slot.stream_thread.is_paused = is_paused
                slot.stream_thread.wake()

    def _drop(self, slot: _Slot) -> None:
        if slot in self._slots:
            self._slots.remove(slot)
            self._share_memory()

    def _share_memory(self) -> None:
        """Divide the memory of record caches, and of state that waits to be written, among the threads."""
        budget, count = MemoryBudget(self.config.state_memory_max_bytes, self.config.cache_max_bytes), len(self._slots)
        for slot in self._slots:
            thread = slot.stream_thread
            thread.waiting.max_bytes = budget.waiting_bytes // count
            thread.restorer.max_uncommitted_bytes = budget.restoring_bytes // count
            if thread.task_set.cache is not None:
                thread.task_set.cache.max_bytes = self.config.cache_max_bytes // count

    def _check_running(self) -> None:
        if not self.life.is_up:
            raise ClientClosedError(f"application {self.config.application_id!r} is {self.state.value}, not running")

    def _move(self, state: State) -> None:
        self.life.move(state)
        self.life.tell()

    def _release(self) -> None:
        if self._is_tuned:
            self._is_tuned = False
            collector.restore()
        if self._globals is not None:
            self._globals.close()
            self._globals = None
        if self._is_locked:
            self._is_locked = False
            self.home.unlock()


def _told(error: BaseException) -> str:
    """Return an error as one line of a log, with the line of the user's code that it comes from."""
    # That an error has no text of its own must not hide what it is.
    text = str(error) if isinstance(error, StreamsError) else f"{type(error).__name__}: {error}"
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    cause = error.__cause__ if isinstance(error, ProcessingError) and error.__cause__ is not None else error
    place = place_in_user_code(cause)
    return "; ".join([*lines, *([f"in {place}"] if place and place not in text else [])])


def _stop(slot: _Slot) -> None:
    slot.stream_thread.stopping.set()
    slot.stream_thread.wake()


def _changelog_ends(
    plans: Plans, assignor: StreamsAssignor, consumer: Consumer, tasks: Collection[TaskId]
) -> dict[TaskId, int]:
    """Return the sum of the end offsets of each task's changelogs."""
    assert assignor.sharing is not None
    plan = plans.of(assignor.sharing)
    partitions = {
        task_id: list(plan.changelogs(task_id, [spec.name for spec in plan.stores_of(task_id)]).values())
        for task_id in tasks
    }
    ends = consumer.end_offsets(sorted({partition for group in partitions.values() for partition in group}))
    return {task_id: sum(ends[partition] for partition in group) for task_id, group in partitions.items()}
