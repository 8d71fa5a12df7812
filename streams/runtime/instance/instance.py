"""An instance of an application, with its threads, local stores and state.

The consumer group of the application id distributes the partitions over all threads of all its instances.  The module
imports only ``clients``, ``core``, ``state`` and ``topology`` from outside ``runtime``.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field

from streams.clients import Consumer
from streams.core.clock import Clock
from streams.core.concurrency.forks import DISOWNED, stays_in_process
from streams.core.errors import ClientClosedError, StreamsError
from streams.core.installation import installed_version
from streams.core.metrics import MetricPlace, Metrics, Reading, RecordingLevel, table
from streams.core.serdes.serdes import FormatSerde
from streams.core.settings.config import StreamsConfig
from streams.runtime.assignment.memberships import GroupMembership, LeaderMembership, membership_of
from streams.runtime.in_step.progress_reader import ProgressReader
from streams.runtime.instance.bounds import DerivedBounds
from streams.runtime.instance.supervisor import Supervisor
from streams.runtime.plan.bounded import BoundedProgress
from streams.runtime.plan.caching import log_caching
from streams.runtime.plan.facts import PartitionLayout
from streams.runtime.plan.in_step import log_out_of_step
from streams.runtime.plan.layout import Plans
from streams.runtime.plan.life import Life, State
from streams.runtime.plan.losses_told import LossesTold
from streams.runtime.plan.misplaced import KeyWatch
from streams.runtime.plan.plan import ApplicationPlan, InternalTopicPlan
from streams.runtime.plan.provisioning import Provisioner
from streams.runtime.stores.globals import GlobalStores
from streams.runtime.stores.homes import DirectoryHome, StateHome
from streams.runtime.stores.listeners import InstanceListeners
from streams.runtime.stores.unknown_state import check_unknown_state
from streams.runtime.tasks.progress import ProgressBoard
from streams.runtime.threads.environment import Environment, SharedParts, ThreadEvents
from streams.runtime.threads.instance_clients import InstanceClients
from streams.runtime.threads.thread import StreamThread
from streams.runtime.threads.thread_pool import ThreadPool
from streams.runtime.threads.watchdog import Watchdog
from streams.runtime.threads.wiring import ThreadFactory
from streams.state import open_store
from streams.topology import PartitionGrouper, SinkNode, SourceNode, Topology, describe

log = logging.getLogger(__name__)
#: The ordinals of the states in Kafka Streams.
_NUMBERS: Mapping[State, int] = {
    State.CREATED: 0,
    State.REBALANCING: 1,
    State.RUNNING: 2,
    State.PENDING_SHUTDOWN: 3,
    State.NOT_RUNNING: 4,
    State.PENDING_ERROR: 5,
    State.ERROR: 6,
}


def metrics_of(config: StreamsConfig, clock: Clock) -> Metrics:
    """Return an empty metrics registry with the recording level and the sample window from ``config``."""
    return Metrics(clock, RecordingLevel.of(config.metrics_recording_level), config.metrics_sample_window_ms)


@define(eq=False, repr=False)
class Instance:
    """One instance of an application: the threads that run its share of the tasks, on one cluster.

    ``bounds`` creates the progress tracker of a bounded run from a plan; without ``bounds`` the run is live.
    """

    topology: Topology
    config: StreamsConfig
    environment: Environment
    listeners: InstanceListeners = field(factory=InstanceListeners)
    grouper: PartitionGrouper | None = None
    bounds: Callable[[ApplicationPlan], BoundedProgress] | None = None
    metrics: Metrics = field(init=False)
    life: Life = field(init=False)
    pool: ThreadPool = field(init=False)
    supervisor: Supervisor = field(init=False)
    #: The host:port under which other instances reach this one, or ""; see ``publish``.
    endpoint: str = field(init=False)
    #: Cache of ``runtime.queries.locating``: the ``StorePlaces`` of each store, by name.
    located: dict[str, Any] = field(init=False, factory=dict)
    #: Held while the tasks are traced, by one question at a time.
    tracing: threading.Lock = field(init=False, factory=threading.Lock)
    _globals: GlobalStores | None = field(init=False, default=None)
    _views: Mapping[str, Any] = field(init=False, factory=dict)
    _is_locked: bool = field(init=False, default=False)
    _is_disowned: bool = field(init=False, default=False)
    _plan: ApplicationPlan | None = field(init=False, default=None)
    _plans: Plans = field(init=False)
    _board: ProgressBoard = field(init=False, factory=ProgressBoard)
    _progress: ProgressReader | None = field(init=False, default=None)
    _keys: KeyWatch = field(init=False)
    _losses: LossesTold = field(init=False)
    _clients: InstanceClients = field(init=False)
    _provisioner: Provisioner = field(init=False)
    _membership: GroupMembership = field(init=False)
    #: Derives the bounds of queries whose position is of a topic upstream of a repartition.
    query_bounds: DerivedBounds = field(init=False)
    _watchdog: Watchdog | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        config, environment = self.config, self.environment
        cluster, clock = environment.cluster, environment.clock
        self.metrics = metrics_of(config, clock)
        self.metrics.watch(self._readings)
        self.endpoint = config.application_server
        self.supervisor = Supervisor(config, environment, self.listeners, self.metrics, self._make_thread)
        self.life = self.supervisor.life
        self.pool = self.supervisor.pool
        self._clients = InstanceClients(cluster, config, clock, environment.home, self.metrics, environment.on_client)
        self._plans = Plans(self.topology, config, clock, self.grouper, self.bounds is not None)
        self._provisioner = Provisioner(cluster, clock, config, self.topology, environment.creates_topics)
        self._membership = (
            membership_of(config, self.topology, self._plans, self._provisioner, self.grouper)
            if self.bounds is None
            # The broker of a bounded run has one group only.
            else LeaderMembership(config, self._plans, self._provisioner, is_bounded=True)
        )
        self.query_bounds = DerivedBounds(self._provisioner)
        self._keys = KeyWatch(config.misplaced_keys, self._is_by_key)
        self._losses = LossesTold(self.topology, self.metrics)
        stays_in_process(self)

    def _is_by_key(self, topic: str) -> bool:
        return topic not in self.environment.placed_by_rows and self._provisioner.is_by_key(topic)

    def _readings(self, now_ms: int) -> Iterator[Reading]:
        """Yield the current values of the metrics that are read from the instance itself."""
        place = MetricPlace(client=self.client_name)
        state = self.state
        yield table.VERSION, place, installed_version() or "unknown"
        yield table.APPLICATION_ID, place, self.config.application_id
        yield table.TOPOLOGY_DESCRIPTION, place, str(describe(self.topology))
        yield table.STATE, place, state.name
        yield table.CLIENT_STATE, place, _NUMBERS[state]
        yield table.RECORDING_LEVEL, place, int(self.metrics.level)
        yield table.ALIVE_THREADS, place, self.pool.alive
        yield table.FAILED_THREADS, place, self.pool.failed

    def disown(self) -> None:
        """Refuse all further use in a forked process, which has none of the threads and connections."""
        self._is_disowned = True

    def check_process(self) -> None:
        """Check that the instance belongs to this process.

        Raises:
            ClientClosedError: it belongs to the process that this one was forked from.
        """
        if self._is_disowned:
            raise ClientClosedError(f"application {self.config.application_id!r} {DISOWNED}: make a new one here")

    @property
    def home(self) -> StateHome:
        """The storage of the instance's local stores: a state directory, or memory."""
        return self.environment.home

    def start(self) -> None:
        """Check and create topics, fill global stores, and start the threads.

        Raises:
            TopologyError: source topics are missing or not co-partitioned, or internal topics do not match.
            SchemaError: a schema is incompatible with the topic's other schemas, or the schema registry does not
                respond.
            StateLockedError: another process uses the state directory.
            ClientClosedError: the instance was started before.
        """
        if self.state is not State.CREATED:
            raise ClientClosedError(
                f"application {self.config.application_id!r} was already started; create a new instance"
            )
        try:
            self.home.lock()
            self._is_locked = True
            if self.config.state_cleanup_dir_max_age_ms >= 0:
                self.home.delete_outdated(self.environment.clock.now_ms() - self.config.state_cleanup_dir_max_age_ms)
            partition_counts = self._provisioner.partition_counts()
            if isinstance(self.home, DirectoryHome):
                # Who has the lock knows that the process before is dead: nobody has to wait for its sessions.
                self._provisioner.remove_former(self._clients.name(""), self.home.process_id)
            plan = self._plan = self._membership.plan(partition_counts)
            check_unknown_state(plan, partition_counts, self.home.stores(), self._provisioner)
            log_caching(self.topology, self.config)
            if self.bounds is None:
                log_out_of_step(plan)
            self._membership.prepare(plan, partition_counts)
            _check_schemas(self.topology)
            if self.bounds is not None:
                self.supervisor.bounded = self.bounds(plan)
            self._views = self._open_globals(plan)
            self._read_progress(plan)
            self.supervisor.start(self.config.num_stream_threads)
            self._watch_iterations()
            self.life.notify()
        except BaseException:
            self.supervisor.stop(None)
            self._release()
            raise

    def close(self, timeout_ms: int | None = None) -> bool:
        """Stop the threads, commit and close; return whether the threads ended within ``timeout_ms``.

        Afterwards the state is NOT_RUNNING, or ERROR after a failure.  A call in a thread of the instance stops the
        threads, and its result is False.

        Raises:
            StreamsError: the call has no timeout, and is in a thread of the instance.
        """
        if timeout_ms is None:
            self.refuse_waiting("close")
        if self.state is State.CREATED:
            self.supervisor.move(State.NOT_RUNNING)
            self.supervisor.end()
        self.supervisor.move(State.PENDING_SHUTDOWN)
        if not self.supervisor.stop(timeout_ms) or self._is_in_own_thread:
            return False
        self._release()
        self.supervisor.move(State.NOT_RUNNING)
        self.supervisor.move(State.ERROR)
        return True

    def refuse_waiting(self, method: str) -> None:
        """Check that the caller does not run in a thread of the instance, which would wait for itself.

        Raises:
            StreamsError: it does; ``method`` is named in the message.
        """
        if self._is_in_own_thread:
            raise StreamsError(
                f"{method}() was called in a thread of application {self.config.application_id!r} and would wait for "
                "its own end: raise an exception, which stops the application, or let another thread call "
                f"{method}(); close(timeout_ms=0) only asks the threads to stop"
            )

    @property
    def _is_in_own_thread(self) -> bool:
        others = [part.thread for part in (self._globals, self._progress) if part is not None]
        return self.pool.is_current or any(thread.is_current for thread in others)

    @property
    def state(self) -> State:
        """The current state of the instance."""
        self.check_process()
        return self.life.state

    @property
    def failure(self) -> BaseException | None:
        """The failure that has ended the instance."""
        return self.supervisor.failure

    @property
    def bounded(self) -> BoundedProgress | None:
        """The progress of a bounded run that has started."""
        return self.supervisor.bounded

    @property
    def is_closed(self) -> bool:
        """Whether the instance was never started, or is closed."""
        return self.state in (State.CREATED, State.NOT_RUNNING, State.ERROR) and not self._is_locked

    def ask(self, question: Callable[[StreamThread], Any]) -> list[Any]:
        """Call a function with each stream thread, between two iterations of the thread's loop, and return the results.

        Raises:
            ClientClosedError: the instance is not running.
        """
        self._check_running()
        return self.pool.ask(question)

    @property
    def client_name(self) -> str:
        """The name of the instance, which is the prefix of its client IDs."""
        return self._clients.name("")[:-1]

    @property
    def global_views(self) -> Mapping[str, Any]:
        """The global stores, which any thread can read."""
        return self._views

    def iterations_ms(self) -> Mapping[str, int]:
        """Return the start time of each running thread's current loop iteration, in ``Clock.monotonic_ms``.

        An iteration takes at most about ``poll_ms``, unless user code, a store or the broker blocks it.  The values are
        current even if a thread is blocked, since they are read without waiting for the threads.
        """
        return self.pool.iterations_ms()

    def reader(self, role: str) -> Consumer:
        """Return a consumer that is not a member of the group, with the settings of the application."""
        return self._clients.reader(self._clients.name(role))

    def publish(self, endpoint: str) -> None:
        """Set the host:port under which other instances reach this one; a running instance rebalances to publish it."""
        if endpoint != self.endpoint:
            self.endpoint = endpoint
            reason = f"this instance is reached at {endpoint or 'no address'}"
            for thread in self.stream_threads:
                thread.ask(lambda thread: thread.ask_rebalance(reason))

    def plan_of(self, layout: PartitionLayout) -> ApplicationPlan:
        """Return the application plan for the partition layout that the group leader has sent."""
        return self._plans.of(layout)

    @property
    def stream_threads(self) -> Sequence[StreamThread]:
        """The stream threads of the instance."""
        return self.pool.stream_threads

    def add_thread(self) -> str:
        """Start a thread, to which a rebalance assigns a share of the tasks; return its name (KIP-663).

        Raises:
            ClientClosedError: the instance is not running.
        """
        self._check_running()
        added = self.pool.add().name
        log.info("%s: added; %d threads", added, len(self.pool.members))
        self.supervisor.settle()
        return added

    def remove_thread(self, timeout_ms: int | None = None) -> str | None:
        """Stop the thread with the highest number, whose tasks move to the other threads; return its name.

        The result is None if there is no thread to stop, or if the thread has not ended in time.

        Raises:
            ClientClosedError: the instance is not running.
            StreamsError: the call has no timeout, and is in a thread of the instance.
        """
        self._check_running()
        if timeout_ms is None:
            self.refuse_waiting("remove_thread")
        removed = self.pool.remove_youngest(timeout_ms)
        if removed is None:
            return None
        log.info("%s: removed; %d threads", removed.name, len(self.pool.members))
        self.supervisor.settle()
        return removed.name

    def pause(self) -> None:
        """Buffer records without processing until ``resume``; group membership continues (KIP-834)."""
        self._set_paused(True)

    def resume(self) -> None:
        """Resume processing after ``pause``."""
        self._set_paused(False)

    @property
    def is_paused(self) -> bool:
        """Whether processing is paused."""
        return self.pool.is_paused

    # --- start ------------------------------------------------------------------------

    def _open_globals(self, plan: ApplicationPlan) -> Mapping[str, Any]:
        if not self.topology.global_stores:
            return {}
        name = self._clients.name("global")
        self._globals = GlobalStores(
            plan, self._clients.reader(name), self.metrics, self.supervisor.fail, self.environment.threads
        )
        views = self._globals.open(lambda spec: open_store(spec, None))
        self._globals.thread.start(name)
        return views

    def _read_progress(self, plan: ApplicationPlan) -> None:
        if plan.in_step():
            reader = self._clients.progress_reader(self._board, self.supervisor.fail, self.environment.threads)
            self._progress = reader
            reader.open()
            reader.thread.start(reader.name)

    def _watch_iterations(self) -> None:
        limit_ms = self.config.watchdog_ms
        threads = self.environment.threads
        if limit_ms:
            clock = self.environment.clock
            self._watchdog = Watchdog(
                limit_ms, clock, self.iterations_ms, self.pool.stack_of, threads.signal(), self.metrics.notices
            )
            self._watchdog.start(self._clients.name("watchdog"), threads)

    def _make_thread(self, number: int) -> StreamThread:
        assert self._plan is not None
        shared = SharedParts(
            self.config,
            self.environment,
            self._plans,
            self._views,
            self.metrics,
            self.bounded,
            lambda: self.endpoint,
            self._board,
            self._progress,
            self._keys,
            self._losses,
        )
        events = ThreadEvents(self.supervisor.settle, self.supervisor.on_shutdown, self._on_new_topic)
        factory = ThreadFactory(
            shared, self._clients, self._plan, self._membership.assignment, events, self.listeners.on_restore
        )
        return factory.make(number)

    def _on_new_topic(self, topic: str, count: int) -> None:
        """Create the lanes for a topic that a task of a bounded run has chosen for a record."""
        if self.bounded is None:
            return
        plan = self.bounded.plan
        with self.life.lock:
            # Another thread may have created the lanes already; no task writes before they exist.
            if plan.partition_count(topic) is None:
                plan.add_topic(topic, count, self._provide)

    def _provide(self, topic: InternalTopicPlan) -> None:
        self._provisioner.provide([topic], self._provisioner.partition_counts())

    # --- life -------------------------------------------------------------------------

    def _set_paused(self, is_paused: bool) -> None:
        log.info("application %r: %s", self.config.application_id, "paused" if is_paused else "resumed")
        self.pool.set_paused(is_paused)

    def _check_running(self) -> None:
        self.check_process()
        if not self.life.is_up:
            raise ClientClosedError(f"application {self.config.application_id!r} is {self.state.value}, not running")

    def _release(self) -> None:
        if self.bounded is None:
            self._losses.look(self.environment.clock.monotonic_ms(), is_last=True)
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._globals is not None:
            self._globals.close()
            self._globals = None
        if self._progress is not None:
            self._progress.close()
            self._progress = None
        if self._is_locked:
            self._is_locked = False
            self.home.unlock()


def _check_schemas(topology: Topology) -> None:
    """Register the schemas of the topics that are written, and check those of the topics that are read.

    Raises:
        SchemaError: a schema is incompatible with others of its subject, or the schema registry does not respond.
    """
    for node in topology.nodes.values():
        if isinstance(node, (SinkNode, SourceNode)):
            for serde in (node.key_serde, node.value_serde):
                if isinstance(serde, FormatSerde):
                    serde.format.prepare(writes=isinstance(node, SinkNode))
