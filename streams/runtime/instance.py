"""An instance of an application: its threads, its stores on this machine, its state.

Several instances and threads of the same application id share the partitions through the
group.  Imports clients and state.
"""

import logging
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from itertools import count
from typing import Any, Literal

from attrs import define, field

from streams.clients.consumer import Consumer
from streams.clients.network import Network
from streams.clients.producer import Producer
from streams.core.clock import Clock
from streams.core.config import StreamsConfig
from streams.core.errors import ClientClosedError, ConfigError, StreamsError
from streams.core.metrics import Metrics
from streams.core.records import TaskId, TopicPartition
from streams.core.threads import Signal, SystemThreads, Threads, Worker
from streams.core.user_code import refuse_result
from streams.protocol.transport import Cluster
from streams.runtime import collector
from streams.runtime.assignment import Blueprint, StreamsAssignor
from streams.runtime.bounded import BoundedProgress
from streams.runtime.committing import Committer
from streams.runtime.globals import GlobalStores
from streams.runtime.homes import MemoryHome, StateHome
from streams.runtime.layout import Plans, check_groups
from streams.runtime.losses import LossGuard, check_inputs
from streams.runtime.plan import ApplicationPlan
from streams.runtime.provisioning import Provisioner
from streams.runtime.purge import Purger
from streams.runtime.restore import RestoreListener, Restorer
from streams.runtime.sharing import SharingRules
from streams.runtime.task_set import TaskSet
from streams.runtime.thread import StreamThread, ThreadEvents
from streams.state import MemoryBudget, RecordCache, open_store
from streams.topology.graph import Topology
from streams.topology.subtopologies import PartitionGrouper

log = logging.getLogger(__name__)


class State(Enum):
    """Life of an instance, with Kafka Streams' names."""

    CREATED = "created"
    REBALANCING = "rebalancing"
    RUNNING = "running"
    PENDING_SHUTDOWN = "pending_shutdown"
    NOT_RUNNING = "not_running"
    ERROR = "error"


_NEXT = {
    State.CREATED: {State.REBALANCING, State.PENDING_SHUTDOWN, State.NOT_RUNNING},
    State.REBALANCING: {State.RUNNING, State.PENDING_SHUTDOWN, State.ERROR},
    State.RUNNING: {State.REBALANCING, State.PENDING_SHUTDOWN, State.ERROR},
    State.PENDING_SHUTDOWN: {State.NOT_RUNNING, State.ERROR},
    State.NOT_RUNNING: set(),
    State.ERROR: {State.PENDING_SHUTDOWN, State.NOT_RUNNING},
}


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

    @property
    def is_alive(self) -> bool:
        return self.worker is not None and self.worker.is_alive


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
    on_state: Callable[[State, State], None] | None = None
    on_exception: ExceptionHandler | None = None
    end_offset: Callable[[TopicPartition], int] | None = None
    #: Whether the garbage collector is tuned for this process, which it belongs to.
    tunes_collector: bool = True
    metrics: Metrics = field(factory=Metrics)
    state: State = State.CREATED
    failure: BaseException | None = None
    bounded: BoundedProgress | None = None
    #: Set when no thread is left.
    ended: Signal = field(init=False)
    _slots: list[_Slot] = field(factory=list)
    _globals: GlobalStores | None = None
    _views: Mapping[str, Any] = field(factory=dict)
    _lock: threading.RLock = field(factory=threading.RLock)
    _is_tuned: bool = False
    _is_locked: bool = False
    _is_paused: bool = False
    _plan: ApplicationPlan | None = None
    _plans: Plans = field(init=False)
    _provisioner: Provisioner = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.ended = self.threads.signal()
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
            self._provisioner.provide(plan.internal_topics(), known)
            if self.is_bounded:
                assert self.end_offset is not None
                self._provisioner.remove_members()
                self.bounded = BoundedProgress(plan, self.end_offset, self.final_flush)
            self._views = self._open_globals(plan)
            if self.tunes_collector:
                collector.tune()
                self._is_tuned = True
            self._move(State.REBALANCING)
            for _ in range(self.config.num_stream_threads):
                self._add_thread()
        except BaseException:
            self._release()
            raise

    def close(self, timeout_ms: int | None = None) -> bool:
        """Stop the threads, commit and close; return whether they ended in time."""
        if self.state in (State.CREATED, State.NOT_RUNNING):
            self._move(State.NOT_RUNNING)
            return True
        self._move(State.PENDING_SHUTDOWN)
        self._stop_all()
        for slot in list(self._slots):
            if slot.worker is not None:
                slot.worker.join(timeout_ms)
        is_done = not any(slot.is_alive for slot in self._slots)
        if is_done:
            self._release()
            self._move(State.NOT_RUNNING)
        return is_done

    def ask(self, question: Callable[[StreamThread], Any]) -> list[Any]:
        """Run a function on every thread, between two turns of its loop; return the answers.

        Raises:
            ClientClosedError: the instance does not run.
        """
        self._check_running()
        with self._lock:
            asked = [slot.stream_thread.ask(question) for slot in self._slots if slot.is_alive]
        return [answer.result() for answer in asked]

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
        return self._add_thread().name

    def remove_thread(self, timeout_ms: int | None = None) -> str | None:
        """Stop the youngest thread, whose tasks the others take; return its name, None if it has not ended in time.

        Raises:
            ClientClosedError: the instance does not run.
        """
        self._check_running()
        with self._lock:
            slot = max((slot for slot in self._slots if slot.is_alive), key=lambda slot: slot.number)
            assert slot.worker is not None
            _stop(slot)
        if not slot.worker.join(timeout_ms):
            return None
        with self._lock:
            self._drop(slot)
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
        self._globals = GlobalStores(plan, self._reader(self._client("global")), self.metrics, self._fail, self.threads)
        views = self._globals.open(lambda spec: open_store(spec, None))
        self._globals.start(self._client("global"))
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
        name = self._client(f"thread-{number}")
        assignor = StreamsAssignor(
            lambda _: self._blueprint(),
            lambda: thread.facts(),
            lambda tasks: _changelog_ends(self._plans, assignor, consumer, tasks),
            SharingRules(config.num_standby_replicas, config.acceptable_recovery_lag, config.max_warmup_replicas),
        )
        consumer = self._consumer(name, number, assignor)
        committer = Committer(
            consumer,
            lambda: self._producer(name, number),
            lambda: thread.task_set.plan,
            self.metrics,
            config.is_exactly_once,
            self._purger(name, plan),
        )
        restored = self.metrics.counter("restored-tasks-total")
        reader = self._reader(f"{name}-restore")
        restorer = Restorer(reader, _RESTORED_RECORDS * config.max_poll_records, self.restore_listener, restored)
        task_set = TaskSet(
            name,
            plan,
            config,
            consumer,
            restorer,
            LossGuard(name, config, restorer, lambda: self._producer(f"{name}-rebuild", None)),
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
            self.bounded,
            ThreadEvents(self._on_settled, self._on_shutdown),
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

    def _reader(self, client_id: str) -> Consumer:
        """Return a consumer of changelogs or global topics, from their beginning."""
        config = self.config
        return Consumer(
            self.cluster,
            client_id=client_id,
            auto_offset_reset="earliest",
            isolation_level=self._isolation_level,
            fetch_max_wait_ms=config.fetch_max_wait_ms,
            fetch_max_bytes=config.fetch_max_bytes,
            max_partition_fetch_bytes=config.max_partition_fetch_bytes,
            request_timeout_ms=config.request_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            clock=self.clock,
        )

    def _consumer(self, name: str, number: int, assignor: StreamsAssignor) -> Consumer:
        config = self.config
        return Consumer(
            self.cluster,
            config.application_id,
            client_id=name,
            assignors=[assignor],
            auto_offset_reset=config.auto_offset_reset,
            enable_auto_commit=False,
            isolation_level=self._isolation_level,
            max_poll_records=config.max_poll_records,
            fetch_max_wait_ms=config.fetch_max_wait_ms,
            fetch_max_bytes=config.fetch_max_bytes,
            max_partition_fetch_bytes=config.max_partition_fetch_bytes,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            request_timeout_ms=config.request_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            metadata_max_age_ms=config.metadata_max_age_ms,
            group_instance_id=f"{config.group_instance_id}-{number}" if config.group_instance_id else None,
            clock=self.clock,
        )

    def _producer(self, name: str, number: int | None) -> Producer:
        """Return a producer; with exactly-once it has transactions, as the thread of that number, unless it is None."""
        config = self.config
        is_transactional = config.is_exactly_once and number is not None
        transactional_id = f"{config.application_id}-{self.home.process_id}-{number}"
        return Producer(
            self.cluster,
            client_id=name,
            linger_ms=config.linger_ms,
            batch_size=config.batch_size_bytes,
            buffer_memory_bytes=config.buffer_memory_bytes,
            max_block_ms=config.max_block_ms,
            max_request_size=config.max_request_bytes,
            max_in_flight=config.max_in_flight_requests,
            compression_type=config.compression_type,
            acks=-1 if config.acks == "all" else int(config.acks),
            request_timeout_ms=config.request_timeout_ms,
            delivery_timeout_ms=config.delivery_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            transactional_id=transactional_id if is_transactional else None,
            transaction_timeout_ms=config.transaction_timeout_ms,
            metadata_max_age_ms=config.metadata_max_age_ms,
            clock=self.clock,
        )

    def _purger(self, name: str, plan: ApplicationPlan) -> Purger | None:
        if not plan.repartition_topics():
            return None
        connection = self.cluster.connect(f"{name}-purge")
        network = Network(connection, self.clock, request_timeout_ms=self.config.request_timeout_ms)
        return Purger(network, self.clock, self.config.repartition_purge_interval_ms)

    def _subscription(self, plan: ApplicationPlan) -> Sequence[str] | re.Pattern[str]:
        """Return the topics of all tasks; one pattern where a source has one."""
        topics = sorted({partition.topic for group in plan.partition_groups().values() for partition in group})
        patterns = [node.pattern.pattern for node in self.topology.sources() if node.pattern is not None]
        if not patterns:
            return topics
        return re.compile("|".join([*(f"(?:{pattern})" for pattern in patterns), *map(re.escape, topics)]))

    @property
    def _isolation_level(self) -> Literal["read_committed", "read_uncommitted"]:
        wants_committed = self.config.is_exactly_once or self.config.isolation_level == "read_committed"
        return "read_committed" if wants_committed else "read_uncommitted"

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

    def _client(self, role: str) -> str:
        return f"{self.config.client_id or self.config.application_id}-{self.home.process_id[:8]}-{role}"

    # --- life -------------------------------------------------------------------------

    def _run(self, slot: _Slot) -> None:
        try:
            slot.stream_thread.run()
        except Exception as error:
            self._on_failure(slot, error)
        finally:
            with self._lock:
                if all(not other.is_alive for other in self._slots if other is not slot):
                    self.ended.set()

    def _on_failure(self, slot: _Slot, error: Exception) -> None:
        """Ask the user's handler what to do about a thread that has failed; without one the instance ends."""
        response = ExceptionResponse.SHUTDOWN_CLIENT
        if self.on_exception is not None and self.bounded is None:
            try:
                response = self.on_exception(error)
                refuse_result(response, "on_exception")
            except Exception as second:
                log.exception("the exception handler of application %s failed itself", self.config.application_id)
                error = second
        is_running = self.state in (State.RUNNING, State.REBALANCING)
        if slot.stream_thread.stopping.is_set() and is_running and self.bounded is None:
            # It was to end anyway: its tasks are the others' from here on.
            log.warning("%s ends with a failure: %s", slot.stream_thread.name, error, exc_info=error)
            return
        if response is ExceptionResponse.REPLACE_THREAD and is_running:
            log.warning("%s is replaced: %s", slot.stream_thread.name, error, exc_info=error)
            with self._lock:
                self._drop(slot)
            self._move(State.REBALANCING)
            self._add_thread()
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
        if self.state in (State.RUNNING, State.REBALANCING):
            log.warning("application %s ends: another instance has asked for it", self.config.application_id)
            self._move(State.PENDING_SHUTDOWN)
        self._stop_all()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self.failure is None:
                self.failure = error
            self._move(State.ERROR)
        self._stop_all()
        if not isinstance(error, StreamsError):
            log.error("application %s failed", self.config.application_id, exc_info=error)
        self.ended.set()
        if self.bounded is not None:
            self.bounded.done.set()

    def _on_settled(self) -> None:
        with self._lock:
            if self.state is State.REBALANCING and all(slot.stream_thread.is_settled for slot in self._slots):
                self._move(State.RUNNING)

    def _stop_all(self) -> None:
        with self._lock:
            for slot in self._slots:
                _stop(slot)

    def _set_paused(self, is_paused: bool) -> None:
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
        if self.state not in (State.RUNNING, State.REBALANCING):
            raise ClientClosedError(f"application {self.config.application_id!r} is {self.state.value}, not running")

    def _move(self, state: State) -> None:
        with self._lock:
            if state is self.state or state not in _NEXT[self.state]:
                return
            before, self.state = self.state, state
        if self.on_state is not None:
            refuse_result(self.on_state(state, before), "on_state")

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
