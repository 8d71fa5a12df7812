"""An instance of an application: its threads, its stores on this machine, its state.

Several instances and threads of the same application id share the partitions through the
group.  Imports clients and state.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import uuid4

from attrs import define, field

from streams.clients.consumer import Consumer
from streams.clients.network import ANY_NODE, Network
from streams.clients.producer import Producer
from streams.core.clock import Clock
from streams.core.config import StreamsConfig
from streams.core.errors import BrokerError, ClientClosedError, ConfigError, StreamsError, TopologyError
from streams.core.metrics import Metrics
from streams.core.records import TaskId, TopicPartition
from streams.protocol.messages import (
    CreateTopics,
    CreateTopicsResponse,
    DescribeGroup,
    DescribeGroupResponse,
    ErrorCode,
    LeaveGroup,
    LeaveGroupResponse,
    Metadata,
    MetadataResponse,
    TopicSpec,
)
from streams.protocol.transport import Cluster
from streams.runtime import collector
from streams.runtime.assignment import MemberTasks, StreamsAssignor
from streams.runtime.bounded import BoundedProgress
from streams.runtime.globals import GlobalStores
from streams.runtime.plan import ApplicationPlan, InternalTopicPlan
from streams.runtime.restore import RestoreListener, Restorer
from streams.runtime.thread import StreamThread
from streams.state import RecordCache, StateDirectory, StoreSpec, is_on_disk, open_store
from streams.topology.graph import Topology
from streams.topology.subtopologies import PartitionGrouper, sub_topologies

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


class TaskStores:
    """Opens and closes the stores of tasks below one state directory (None = in memory)."""

    def __init__(self, plan: ApplicationPlan, directory: StateDirectory | None, engine: Any) -> None:
        self._plan = plan
        self._directory = directory
        self._engine = engine

    def open(self, task_id: TaskId, owner: object) -> dict[str, Any]:
        """Open all stores of a task.

        Raises:
            StateLockedError: another thread has not closed them yet.
            StoreError: one cannot be opened; those opened before it are closed again.
        """
        if self._directory is not None:
            self._directory.lock_task(task_id, owner)
        opened: dict[str, Any] = {}
        try:
            for spec in self._plan.stores_of(task_id):
                opened[spec.name] = self._open_one(task_id, spec)
        except BaseException:
            for store in opened.values():
                store.close()
            self.release(task_id, owner)
            raise
        return opened

    def renew(self, task_id: TaskId, stores: dict[str, Any], name: str) -> None:
        """Replace a store whose content is of no use by an empty one."""
        stores[name].close()
        if self._directory is not None:
            self._directory.delete_store(task_id, name)
        stores[name] = self._open_one(task_id, self._plan.topology.stores[name])

    def _open_one(self, task_id: TaskId, spec: StoreSpec) -> Any:
        path = None
        if self._directory is not None and is_on_disk(spec, self._engine):
            path = self._directory.store_path(task_id, spec.name)
        return open_store(spec, path, default_engine=self._engine)

    def release(self, task_id: TaskId, owner: object) -> None:
        """Let other threads open the task's stores."""
        if self._directory is not None:
            self._directory.unlock_task(task_id, owner)

    def on_disk(self) -> tuple[TaskId, ...]:
        """Return the tasks whose state lies here."""
        return () if self._directory is None else tuple(self._directory.tasks())


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
    state_dir: Path | None
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
    ended: threading.Event = field(factory=threading.Event)
    _threads: list[tuple[StreamThread, threading.Thread]] = field(factory=list)
    _globals: GlobalStores | None = None
    _directory: StateDirectory | None = None
    _lock: threading.RLock = field(factory=threading.RLock)
    _is_tuned: bool = False
    _process_id: str = field(factory=lambda: uuid4().hex)

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
            plan = self._plan()
            if self.state_dir is not None:
                self._directory = StateDirectory.of(self.state_dir, self.config.application_id)
                self._directory.lock()
            if self.is_bounded:
                assert self.end_offset is not None
                self.bounded = BoundedProgress(plan, self.end_offset, self.final_flush)
            engine = "in_memory" if self.state_dir is None else self.config.default_store
            stores = TaskStores(plan, self._directory, engine)
            views = self._open_globals(plan)
            collector.tune()
            self._is_tuned = True
            self._move(State.REBALANCING)
            for number in range(1, self.config.num_stream_threads + 1):
                self._add_thread(plan, stores, views, number)
        except BaseException:
            self._release()
            raise

    def close(self, timeout_ms: int | None = None) -> bool:
        """Stop the threads, commit and close; return whether they ended in time."""
        if self.state in (State.CREATED, State.NOT_RUNNING):
            self._move(State.NOT_RUNNING)
            return True
        self._move(State.PENDING_SHUTDOWN)
        for stream_thread, _ in self._threads:
            stream_thread.stopping.set()
            stream_thread.wake()
        for _, thread in self._threads:
            thread.join(None if timeout_ms is None else timeout_ms / 1000)
        is_done = not any(thread.is_alive() for _, thread in self._threads)
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
        answers: list[Future[Any]] = [thread.ask(question) for thread, _ in self._threads]
        return [answer.result() for answer in answers]

    @property
    def threads(self) -> Sequence[StreamThread]:
        """The stream threads."""
        return [thread for thread, _ in self._threads]

    # --- start ------------------------------------------------------------------------

    def _plan(self) -> ApplicationPlan:
        network = Network(self.cluster.connect(f"{self.config.application_id}-admin"), self.clock)
        try:
            known = self._known(network)
            if self.creates_topics:
                known |= self._create_declared(network, known)
            plan = ApplicationPlan.make(
                self.topology, self.config, self.clock, known, has_lanes=self.is_bounded, grouper=self.grouper
            )
            self._create_internal(network, plan.internal_topics(), known)
            if self.is_bounded:
                self._remove_members(network)
            return plan
        finally:
            network.close()

    def _known(self, network: Network) -> dict[str, int]:
        response = network.request(ANY_NODE, Metadata(None), MetadataResponse)
        return {topic.name: len(topic.leaders) for topic in response.topics if topic.error is ErrorCode.NONE}

    def _create_declared(self, network: Network, known: Mapping[str, int]) -> dict[str, int]:
        names: dict[str, None] = {}
        for sub in sub_topologies(self.topology):
            names |= dict.fromkeys((*sub.source_topics, *sub.sink_topics))
        if self.config.errors_dead_letter_queue_topic_name:
            names[self.config.errors_dead_letter_queue_topic_name] = None
        specs = []
        for name in names:
            if name not in known and name not in self.topology.internal_topics:
                declared = self.topology.topics.get(name)
                specs.append(TopicSpec(name, declared.partitions if declared and declared.partitions else -1))
        if not specs:
            return {}
        self._create(network, specs)
        return {name: count for name, count in self._known(network).items() if name not in known}

    def _create_internal(self, network: Network, plans: Sequence[InternalTopicPlan], known: Mapping[str, int]) -> None:
        missing = []
        for plan in plans:
            if plan.name not in known:
                missing.append(TopicSpec(plan.name, plan.partitions, plan.config))
            elif known[plan.name] != plan.partitions:
                raise TopologyError(
                    f"internal topic {plan.name!r} has {known[plan.name]} partitions, but the topology needs "
                    f"{plan.partitions}: the partition count of an input has changed since it was made; "
                    "go back to the old count, or start with a new application id (or state directory)"
                )
        if missing:
            self._create(network, missing)

    def _remove_members(self, network: Network) -> None:
        """Let members of an earlier run leave, which was killed before it could say so itself.

        A bounded run has its broker to itself, so whoever is in the group at its start is dead.
        """
        group_id = self.config.application_id
        group = network.request(ANY_NODE, DescribeGroup(group_id), DescribeGroupResponse)
        for member in group.members:
            network.request(
                ANY_NODE, LeaveGroup(group_id, member.member_id, member.group_instance_id), LeaveGroupResponse
            )

    def _create(self, network: Network, specs: Sequence[TopicSpec]) -> None:
        response = network.request(ANY_NODE, CreateTopics(tuple(specs)), CreateTopicsResponse)
        for name, (code, message) in response.errors.items():
            # Another instance that starts at the same time may have been faster.
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise BrokerError(f"topic {name!r} cannot be created: {message or code.name}", code=code)

    def _open_globals(self, plan: ApplicationPlan) -> Mapping[str, Any]:
        if not self.topology.global_stores:
            return {}
        consumer = Consumer(
            self.cluster, client_id=self._client("global"), auto_offset_reset="earliest", clock=self.clock
        )
        self._globals = GlobalStores(plan, consumer, self.metrics, self._fail)
        views = self._globals.open(lambda spec: open_store(spec, None))
        self._globals.start(self._client("global"))
        return views

    def _add_thread(self, plan: ApplicationPlan, stores: TaskStores, views: Mapping[str, Any], number: int) -> None:
        config = self.config
        name = self._client(f"thread-{number}")
        bundles = plan.bundles()
        assignor = StreamsAssignor(
            lambda _: bundles,
            lambda: MemberTasks(self._process_id, tuple(sorted(thread.tasks)), stores.on_disk()),
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
            stores,
            views,
            self.metrics,
            RecordCache(config.cache_max_bytes // config.num_stream_threads) if config.cache_max_bytes else None,
            self.bounded,
            self._on_rebalance,
        )
        topics = sorted({item.partition.topic for task in plan.groups for item in plan.inputs(task)})
        consumer.subscribe(topics, thread.listener())
        runner = threading.Thread(target=self._run, args=(thread,), name=name, daemon=True)
        with self._lock:
            self._threads.append((thread, runner))
        runner.start()

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
                if all(not other.is_alive() or other is threading.current_thread() for _, other in self._threads):
                    self.ended.set()

    def _fail(self, error: BaseException) -> None:
        """One thread's failure ends the instance: its tasks would fail on the next thread too."""
        with self._lock:
            if self.failure is None:
                self.failure = error
            self._move(State.ERROR)
            for thread, _ in self._threads:
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
        if self._directory is not None:
            self._directory.unlock()
            self._directory = None
