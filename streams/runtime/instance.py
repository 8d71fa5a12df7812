"""An instance of an application: its threads, its stores on this machine, its state.

Several instances and threads of the same application id share the partitions through the
group.  Imports clients and state.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from attrs import define, field

from streams.clients.consumer import Consumer
from streams.clients.producer import Producer
from streams.core.clock import Clock
from streams.core.config import StreamsConfig
from streams.core.errors import ClientClosedError, ConfigError, StreamsError
from streams.core.metrics import Metrics
from streams.core.records import TopicPartition
from streams.core.threads import Answer, Signal, SystemThreads, Threads, Worker
from streams.protocol.transport import Cluster
from streams.runtime import collector
from streams.runtime.assignment import MemberTasks, StreamsAssignor
from streams.runtime.bounded import BoundedProgress
from streams.runtime.globals import GlobalStores
from streams.runtime.homes import MemoryHome, StateHome
from streams.runtime.plan import ApplicationPlan
from streams.runtime.provisioning import Provisioner
from streams.runtime.restore import RestoreListener, Restorer
from streams.runtime.thread import StreamThread
from streams.state import RecordCache, open_store
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
    end_offset: Callable[[TopicPartition], int] | None = None
    metrics: Metrics = field(factory=Metrics)
    state: State = State.CREATED
    failure: BaseException | None = None
    bounded: BoundedProgress | None = None
    #: Set when no thread is left.
    ended: Signal = field(init=False)
    _running: list[tuple[StreamThread, Worker]] = field(factory=list)
    _globals: GlobalStores | None = None
    _lock: threading.RLock = field(factory=threading.RLock)
    _is_tuned: bool = False
    _is_locked: bool = False
    _process_id: str = ""

    def __attrs_post_init__(self) -> None:
        self.ended = self.threads.signal()

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
        if self.config.is_exactly_once:
            raise ConfigError("processing_guarantee=exactly_once_v2 is not supported yet; use at_least_once")
        try:
            self.home.lock()
            self._is_locked = True
            self._process_id = self.home.process_id
            plan = self._plan()
            if self.is_bounded:
                assert self.end_offset is not None
                self.bounded = BoundedProgress(plan, self.end_offset, self.final_flush)
            views = self._open_globals(plan)
            collector.tune()
            self._is_tuned = True
            self._move(State.REBALANCING)
            for number in range(1, self.config.num_stream_threads + 1):
                self._add_thread(plan, views, number)
        except BaseException:
            self._release()
            raise

    def close(self, timeout_ms: int | None = None) -> bool:
        """Stop the threads, commit and close; return whether they ended in time."""
        if self.state in (State.CREATED, State.NOT_RUNNING):
            self._move(State.NOT_RUNNING)
            return True
        self._move(State.PENDING_SHUTDOWN)
        for stream_thread, _ in self._running:
            stream_thread.stopping.set()
            stream_thread.wake()
        for _, worker in self._running:
            worker.join(timeout_ms)
        is_done = not any(worker.is_alive for _, worker in self._running)
        if is_done:
            self._release()
            self._move(State.NOT_RUNNING)
        return is_done

    def ask(self, question: Callable[[StreamThread], Any]) -> list[Any]:
        """Run a function on every thread, between two turns of its loop; return the answers.

        Raises:
            ClientClosedError: the instance does not run.
        """
        if self.state not in (State.RUNNING, State.REBALANCING):
            raise ClientClosedError(f"application {self.config.application_id!r} is {self.state.value}, not running")
        answers: list[Answer[Any]] = [thread.ask(question) for thread, _ in self._running]
        return [answer.result() for answer in answers]

    @property
    def stream_threads(self) -> Sequence[StreamThread]:
        """The stream threads."""
        return [thread for thread, _ in self._running]

    # --- start ------------------------------------------------------------------------

    def _plan(self) -> ApplicationPlan:
        provisioner = Provisioner(self.cluster, self.clock, self.config, self.topology, self.creates_topics)
        known = provisioner.known()
        plan = ApplicationPlan.make(
            self.topology, self.config, self.clock, known, has_lanes=self.is_bounded, grouper=self.grouper
        )
        provisioner.provide(plan.internal_topics(), known)
        if self.is_bounded:
            provisioner.remove_members()
        return plan

    def _open_globals(self, plan: ApplicationPlan) -> Mapping[str, Any]:
        if not self.topology.global_stores:
            return {}
        consumer = Consumer(
            self.cluster, client_id=self._client("global"), auto_offset_reset="earliest", clock=self.clock
        )
        self._globals = GlobalStores(plan, consumer, self.metrics, self._fail, self.threads)
        views = self._globals.open(lambda spec: open_store(spec, None))
        self._globals.start(self._client("global"))
        return views

    def _add_thread(self, plan: ApplicationPlan, views: Mapping[str, Any], number: int) -> None:
        config = self.config
        name = self._client(f"thread-{number}")
        bundles = plan.bundles()
        assignor = StreamsAssignor(
            lambda _: bundles,
            lambda: MemberTasks(self._process_id, tuple(sorted(thread.tasks)), tuple(self.home.tasks())),
        )
        consumer = Consumer(
            self.cluster,
            config.application_id,
            client_id=name,
            assignors=[assignor],
            auto_offset_reset=config.auto_offset_reset,
            enable_auto_commit=False,
            max_poll_records=config.max_poll_records,
            fetch_max_wait_ms=config.fetch_max_wait_ms,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            request_timeout_ms=config.request_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            metadata_max_age_ms=config.metadata_max_age_ms,
            group_instance_id=f"{config.group_instance_id}-{number}" if config.group_instance_id else None,
            clock=self.clock,
        )
        thread = StreamThread(
            name,
            plan,
            config,
            self.clock,
            consumer,
            Producer(self.cluster, client_id=name, request_timeout_ms=config.request_timeout_ms, clock=self.clock),
            Restorer(
                Consumer(self.cluster, client_id=f"{name}-restore", auto_offset_reset="earliest", clock=self.clock),
                config.max_poll_records,
                self.restore_listener,
            ),
            self.home,
            views,
            self.metrics,
            RecordCache(config.cache_max_bytes // config.num_stream_threads) if config.cache_max_bytes else None,
            self.bounded,
            self._on_rebalance,
            self.threads,
        )
        topics = sorted({item.partition.topic for task in plan.groups for item in plan.inputs(task)})
        consumer.subscribe(topics, thread.listener())
        with self._lock:
            self._running.append((thread, self.threads.start(name, lambda: self._run(thread))))

    def _client(self, role: str) -> str:
        return f"{self.config.client_id or self.config.application_id}-{self._process_id[:8]}-{role}"

    # --- life -------------------------------------------------------------------------

    def _run(self, thread: StreamThread) -> None:
        try:
            thread.run()
        except Exception as error:
            self._fail(error)
        finally:
            with self._lock:
                if all(not other.is_alive or other.is_current for _, other in self._running):
                    self.ended.set()

    def _fail(self, error: BaseException) -> None:
        """One thread's failure ends the instance: its tasks would fail on the next thread too."""
        with self._lock:
            if self.failure is None:
                self.failure = error
            self._move(State.ERROR)
            for thread, _ in self._running:
                thread.stopping.set()
                thread.wake()
        if not isinstance(error, StreamsError):
            log.error("application %s failed", self.config.application_id, exc_info=error)
        self.ended.set()
        if self.bounded is not None:
            self.bounded.done.set()

    def _on_rebalance(self) -> None:
        with self._lock:
            if self.state is State.REBALANCING:
                self._move(State.RUNNING)

    def _move(self, state: State) -> None:
        with self._lock:
            if state is self.state or state not in _NEXT[self.state]:
                return
            before, self.state = self.state, state
        if self.on_state is not None:
            self.on_state(state, before)

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
