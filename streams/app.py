"""``Streams`` and ``run``, which run an application with its broker and clients; bounded runs are in ``bounded``.

This module imports the lower layers, and none of them imports it.
"""

import os
import signal
import threading
from collections.abc import Collection, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast

from streams.broker import EmbeddedBroker
from streams.clients.tcp import TcpCluster, cluster_of
from streams.core.bars import Charts
from streams.core.blocks.records import TaskId
from streams.core.clock import Clock, SystemClock
from streams.core.concurrency.event_loops import LoopCalls, settle
from streams.core.concurrency.threads import SystemThreads, Threads
from streams.core.errors import ClientClosedError, ConfigError
from streams.core.metrics import Metrics
from streams.core.settings.config import StreamsConfig
from streams.core.settings.settings import ApplicationSettings, Settings
from streams.core.topic import TopicLike
from streams.core.user_code import refuse_unawaited_methods
from streams.dsl import TopologySource, build_topology
from streams.protocol.transport import Cluster
from streams.runtime import (
    Environment,
    ExceptionHandler,
    Instance,
    InstanceListeners,
    KeyPartitioner,
    KeyQueryMetadata,
    Notifier,
    Position,
    RestoreListener,
    State,
    StateListener,
    StateQueryResult,
    StoreChange,
    StoreQuery,
    StoreView,
    ask_instance,
    changes_of,
    charts_of,
    home_of,
    late_of,
    owner_of,
    request_of,
    spec_of,
    tuned_collector,
)
from streams.topology import PartitionGrouper, Topology

if TYPE_CHECKING:
    import asyncio

    from streams.broker.tcp import BrokerServer
    from streams.telemetry.lineage import LineageEvents
    from streams.telemetry.otel import Otlp
    from streams.web import WebServer
    from streams.why import Story

R = TypeVar("R")

#: Interval in milliseconds between two checks of ``run``.
_LOOK_MS = 50


def _named(config: StreamsConfig) -> StreamsConfig:
    """Return the settings after checking that they have an ``application_id``.

    Raises:
        ConfigError: ``application_id`` is empty.
    """
    if not config.application_id:
        raise ConfigError("an application needs a name: pass application_id=...")
    return config


def _otlp_of(config: StreamsConfig, clock: Clock) -> "Otlp | None":
    """Return the OTLP exporters, or None if ``otlp_endpoint`` is empty."""
    if not config.otlp_endpoint:
        return None
    # Imported here, because the extra ``otel`` is needed only with a collector.
    from streams.telemetry.otel import Otlp

    return Otlp.of(config, clock)


def _lineage_of(
    config: StreamsConfig, topology: Topology, clock: Clock, threads: Threads, cluster: Cluster
) -> "LineageEvents | None":
    """Return the sender of OpenLineage events, or None if ``openlineage_url`` is empty."""
    if not config.openlineage_url:
        return None
    # Imported here, because the extra ``openlineage`` is needed only with a collector.
    from streams.telemetry.lineage import LineageEvents, LineageJob

    address = str(cluster.bootstrap[0]) if isinstance(cluster, TcpCluster) else "embedded"
    return LineageEvents(config, topology, clock, threads, LineageJob.of_application(topology, f"kafka://{address}"))


def _cluster_of(config: StreamsConfig, broker: Cluster | str | None) -> tuple[Cluster, EmbeddedBroker | None]:
    """Return the cluster to run on, and the embedded broker if one was created, to be closed with the application."""
    if config.bootstrap_servers:
        if broker is not None:
            raise ConfigError("both broker= and bootstrap_servers= are given: give one of them")
        return TcpCluster.of(config), None
    if names := config.security.changed_names():
        raise ConfigError(
            f"{', '.join(names)}: for connections to a cluster; give bootstrap_servers=, or set them on broker="
        )
    if broker is not None:
        return cluster_of(broker, "", None, "Streams"), None
    own = EmbeddedBroker()
    return own, own


class InstanceArguments(ApplicationSettings, total=False):
    """The settings of an application, and the addresses of one instance."""

    listen: str | None
    http: str | None


class Streams:
    """One instance of an application, as ``KafkaStreams`` in Java: its lifecycle, state, metrics and stores.

    As a context manager, the application is started on entry and closed on exit.  A failure of the application is
    raised at the end of the block, or added as a note to the exception that ends the block.

    ``topology`` is a function that takes the builder, or a built ``Topology``.  ``broker`` is an
    ``EmbeddedBroker`` (default: a new one, closed with the application), or addresses as text, ``"host:9092"``, as
    the setting ``bootstrap_servers`` has them: of brokers outside, where source and sink topics must exist; internal
    topics are created.
    The settings are those of ``StreamsConfig``.  Instances with the same application ID share the partitions.

    ``listen`` and ``http`` are addresses, ``"127.0.0.1:9092"``, that are open from the start to the end, as with the
    options ``--listen`` and ``--http`` of ``streams run``: of the embedded broker for Kafka clients, and of the live
    page (see ``serve``, which takes a token too).  Port 0 is a free one.

    ``on_state`` is called with the new and the old state, ``on_restore`` with a task, a store, the number of
    restored records, and the number of records to restore.  ``on_exception`` decides what happens when a thread
    has failed: replace the thread, stop this instance (default), or stop all instances.

    Raises:
        ConfigError: a setting is unknown or invalid, or there is no embedded broker to ``listen``.
        TopologyError: the topology cannot be built.
    """

    def __init__(
        self,
        topology: TopologySource,
        *,
        broker: Cluster | str | None = None,
        clock: Clock | None = None,
        grouper: PartitionGrouper | None = None,
        on_state: StateListener | None = None,
        on_restore: RestoreListener | None = None,
        on_exception: ExceptionHandler | None = None,
        threads: Threads | None = None,
        **arguments: Unpack[InstanceArguments],
    ) -> None:
        self._listen = listen = arguments.pop("listen", None)
        self._http = arguments.pop("http", None)
        settings = cast("ApplicationSettings", arguments)
        if isinstance(broker, str) and not broker.strip():
            # An empty variable of the environment must not mean a broker whose records end with the process.
            raise ConfigError(f"Streams: broker={broker!r} names no broker; give host:port, or leave it out")
        if isinstance(broker, str) and not settings.get("bootstrap_servers"):
            settings["bootstrap_servers"] = broker
            broker = None
        self.config = _named(StreamsConfig.of(**settings))
        if listen is not None and (self.config.bootstrap_servers or isinstance(broker, TcpCluster)):
            raise ConfigError(f"listen={listen!r} serves an embedded broker: omit it with brokers outside")
        refuse_unawaited_methods(grouper, ("groups",), "grouper", error=ConfigError)
        self.topology = build_topology(topology, self.config)
        self.broker, self._own_broker = _cluster_of(self.config, broker)
        environment = self._environment(clock or SystemClock(), threads or SystemThreads())
        listeners = InstanceListeners(on_state, on_restore, on_exception)
        self._instance = Instance(self.topology, self.config, environment, listeners, grouper)
        self._listener: BrokerServer | None = None
        self._servers: list[WebServer] = []
        self._calls: LoopCalls | None = None

    def _environment(self, clock: Clock, threads: Threads) -> Environment:
        self._otlp = _otlp_of(self.config, clock)
        self._lineage = _lineage_of(self.config, self.topology, clock, threads, self.broker)
        return Environment(
            self.broker,
            clock,
            home_of(Path(self.config.state_dir) if self.config.state_dir else None, self.config),
            threads,
            creates_topics=isinstance(self.broker, EmbeddedBroker),
            spans=None if self._otlp is None else self._otlp.traces,
        )

    def __repr__(self) -> str:
        return f"<Streams {self.config.application_id!r} {self._instance.life.state.value}>"

    @property
    def instance(self) -> Instance:
        """The runtime of this application, for servers and tools.

        Raises:
            ClientClosedError: it belongs to the process that this one was forked from.
        """
        self._instance.check_process()
        return self._instance

    @property
    def state(self) -> State:
        """The current state of the application; ERROR is final, even after ``close``."""
        return self.instance.state

    @property
    def metrics(self) -> Metrics:
        """The metrics of this instance, including those of its clients."""
        return self.instance.metrics

    def charts(self) -> Charts:
        """Return how late records were here, and how many each partition of its tasks has had, as bars for a notebook.

        The tasks are those that this instance has now, with their records since it has them.
        """
        metrics = self.instance.metrics
        tasks = set(self.tasks())
        processed = {task: count for task, count in metrics.processed().items() if task in tasks}
        return charts_of(late_of(self.instance.topology, metrics.tallies()), processed)

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped the application, None if it has not failed."""
        return self.instance.failure

    def start(self) -> None:
        """Check the topics, create missing internal topics, and start the stream threads.

        Raises:
            TopologyError: inputs are missing or not co-partitioned.
            StateLockedError: the state directory is in use.
            ConfigError: an address is taken.
        """
        if self._listen is not None and self._listener is None:
            assert isinstance(self.broker, EmbeddedBroker)
            self._listener = self.broker.serve(self._listen)
        if self._http is not None and self._server is None:
            self.serve(self._http)
        self.instance.start()
        if self._otlp is not None:
            self._otlp.start(self.metrics)
        if self._lineage is not None:
            self._lineage.start()

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until all stream threads have ended; return False if this takes longer than ``timeout_ms``.

        ``timeout_ms`` None (default) waits without limit.

        Raises:
            ClientClosedError: the application was not started.
            StreamsError: the application failed; or one of its own threads, such as in a mapper, waits without limit.
        """
        if timeout_ms is None:
            self.instance.refuse_waiting("wait")
        if self.state is State.CREATED:
            name = self.config.application_id
            raise ClientClosedError(f"application {name!r} was not started: call start(), or enter it with `with`")
        has_ended = self.instance.supervisor.ended.wait(timeout_ms)
        self._check_failure()
        return has_ended

    def close(self, timeout_ms: int | None = None) -> bool:
        """Commit, stop and close the application; return False if this took longer than ``timeout_ms``.  Idempotent.

        ``timeout_ms`` None (default) waits without limit.  In a thread of the application, such as in a mapper, a
        timeout is needed: ``close(timeout_ms=0)`` asks all threads to stop, and another thread closes later.

        Raises:
            StreamsError: the application failed; it is closed nevertheless.  Or one of its own threads waits without
                limit.
        """
        if timeout_ms is None:
            self.instance.refuse_waiting("close")
        if self._otlp is not None:
            self._otlp.stop_metrics()
        is_done = self.instance.close(timeout_ms)
        if is_done:
            if self._lineage is not None:
                self._lineage.close(self.failure)
            if self._otlp is not None:
                self._otlp.close()
            for server in self._servers:
                server.close()
            if self._listener is not None:
                self._listener.close()
            if self._own_broker is not None:
                self._own_broker.close()
        self._check_failure()
        return is_done

    def _check_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def add_thread(self) -> str:
        """Start another stream thread and return its name.

        Raises:
            ClientClosedError: the application is not running.
        """
        return self.instance.add_thread()

    def remove_thread(self, timeout_ms: int | None = None) -> str | None:
        """Stop one stream thread; return its name, or None if the thread has not ended within ``timeout_ms``.

        Raises:
            ClientClosedError: the application is not running.
            StreamsError: one of the application's own threads, such as in a mapper, waits without limit.
        """
        return self.instance.remove_thread(timeout_ms)

    def pause(self) -> None:
        """Pause processing on this instance until ``resume``; the instance stays in the group and keeps its tasks."""
        self.instance.pause()

    def resume(self) -> None:
        """Resume processing on this instance."""
        self.instance.resume()

    @property
    def is_paused(self) -> bool:
        """Whether processing is paused on this instance."""
        return self.instance.is_paused

    def clean_up(self) -> None:
        """Delete the local state of the application, which is restored from the changelogs at the next start.

        Raises:
            ClientClosedError: the application is running.
            StateLockedError: another instance uses the state directory.
        """
        if not self.instance.is_closed:
            raise ClientClosedError(f"application {self.config.application_id!r} is running: close it, then clean up")
        self.instance.home.clean_up()

    def copies(self) -> list[TaskId]:
        """Return the current standby tasks of this instance."""
        return sorted(
            task for tasks in self.instance.ask(lambda thread: list(thread.task_set.copies)) for task in tasks
        )

    def tasks(self) -> list[TaskId]:
        """Return the current active tasks of this instance."""
        return sorted(task for tasks in self.instance.ask(lambda thread: list(thread.tasks)) for task in tasks)

    def store(self, name: str, *, partitioner: KeyPartitioner | None = None) -> StoreView:
        """Return a read-only view of a store.

        If this instance and the others serve HTTP, the view covers the partitions of all instances, otherwise those of
        this instance.

        ``partitioner`` is required if a source topic upstream of the store is written with a custom partitioner.
        It is called with the topic, the key, None and the partition count.

        Raises:
            UnknownStateStoreError: the topology has no such store.
        """
        spec_of(self.instance, name)
        server = self._server
        return StoreView(self.instance, name, partitioner, None if server is None else server.ask)

    def query(
        self,
        store: str,
        query: StoreQuery[R],
        *,
        partitions: Collection[int] | None = None,
        position: Position | None = None,
        stale_ms: int | None = None,
        partitioner: KeyPartitioner | None = None,
    ) -> StateQueryResult[R]:
        """Query a store; return the result of each partition with its position, or the reason of its failure (KIP-796).

        A query by key reads the partition of the key; other queries read ``partitions``, by default all.  Partitions
        on other instances are queried if this instance and the others serve HTTP.  ``position`` is a bound: the result
        of a partition includes these records, or the partition fails with NOT_UP_TO_BOUND.  With ``stale_ms``, a
        standby task may be queried instead of the active task if it had reached the end of its changelog at most
        this many milliseconds ago.

        Raises:
            InvalidStateStoreError: there is no such store or partition, the application is not running or has no
                assignment yet, or the store does not read a topic of ``position``.
        """
        request = request_of(self.instance, store, query, position, stale_ms)
        server = self._server
        if server is not None:
            return server.ask(request, partitions, partitioner)
        return ask_instance(self.instance, request, partitions, partitioner)

    def why(
        self,
        key: Any,
        topic: TopicLike | None = None,
        *,
        node: str | None = None,
        at: str | datetime | int | None = None,
        seconds: float = 10.0,
        limit: int = 1_000,
    ) -> "Story":
        """Trace a key in this instance, and explain why there is, or is not, an output record for it.

        The tasks of this instance are traced until ``seconds`` have passed or ``limit`` records of the key have been
        processed; meanwhile, processing a record takes tens of microseconds instead of one or two. Earlier records
        are not traced. ``topic`` is the output topic (default: all); ``node`` selects a node instead. ``at`` is the
        event time of the output, or a time in its window (default: the last output): epoch milliseconds, a datetime,
        or ISO 8601 text, which selects all times with this prefix. ``POST /why`` also asks the other instances.

        Raises:
            ClientClosedError: the application is not running.
            UnknownTopicError: the topology writes no such topic, or has no such node.
            InputError: ``at`` is not a time.
            StreamsError: another call of ``why``, or ``POST /why``, traces this instance, or a limit is not above 0.
        """
        from streams.why import FollowLimits, Question, follow

        question = Question.of(key, topic, node, at)
        return follow(self.instance, self.topology, question, FollowLimits(seconds, limit)).story

    def owner_of(self, store: str, key: Any, *, partitioner: KeyPartitioner | None = None) -> KeyQueryMetadata:
        """Return the group members with the active task and the standby tasks for a key of a store (KIP-535).

        The result is from the last rebalance.  ``partitioner`` is as for ``store``.

        Raises:
            InvalidStateStoreError: the store does not exist, or the owner is currently unknown.
        """
        return owner_of(self.instance, store, key, partitioner)

    def changes(self, store: str) -> Iterator[StoreChange]:
        """Yield the committed changes of a store on all instances, from now on, until ``close``.

        The changes are read from the changelog of the store, which has only the last of several changes of a key
        between two commits.

        Raises:
            InvalidStateStoreError: there is no such store, it has no changelog of its own, or the application is
                not running or has no assignment yet.
        """
        return changes_of(self.instance, store)

    @property
    def _server(self) -> "WebServer | None":
        """The first HTTP server of this instance that is open, or None."""
        return next((server for server in self._servers if server.is_open), None)

    def serve(self, address: str = "127.0.0.1:0", *, token: str | None = None) -> "WebServer":
        """Serve the live page, health, metrics and queries over HTTP, before or after ``start``.

        ``address`` is ``host:port``; port 0 selects a free one.
        The server is a context manager with ``url`` and ``close()``; it is closed with the application at the latest.
        Requests that change state need ``Authorization: Bearer`` with the ``token``; on an address other than
        loopback all requests need it.  Needs the extra ``web``.

        Other instances reach this one at the setting ``application_server``, by default at this address (for a
        wildcard address: at the host name of this machine); if the application is already running, a rebalance
        publishes the address.  All instances need the same token.

        Raises:
            ConfigError: the address is invalid or taken, or is not loopback and there is no token; or the extra is
                not installed.
        """
        from streams.web import serve

        server = serve(self, address, token=token)
        self._servers.append(server)
        return server

    async def finished(self) -> None:
        """Wait in a coroutine until all stream threads have ended, without blocking the event loop.

        Raises:
            ClientClosedError: the application was not started.
            StreamsError: the application failed.
        """
        from asyncio import get_running_loop

        if self.state is not State.CREATED:
            ended: asyncio.Future[bool] = get_running_loop().create_future()
            with self.instance.supervisor.telling_end(partial(settle, ended, lambda: True)):
                await ended
        self.wait()

    async def __aenter__(self) -> Self:
        """Start the application on another thread; it is closed at the end of the ``async with`` block."""
        self._calls = LoopCalls(f"{self.config.application_id}-calls")
        try:
            await self._calls.call(self.start)
        except BaseException:
            await self._calls.call(self.close, is_certain=True)
            self._calls.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._calls is not None
        try:
            await self._calls.call(partial(self.__exit__, kind, error, trace), is_certain=True)
        finally:
            self._calls.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            if failure is not error:
                # The exception of the block is raised; the failure of the application may be its cause.
                error.add_note(f"application {self.config.application_id!r} failed: {failure}")


def run(
    topology: TopologySource,
    *,
    application_id: str,
    broker: Cluster | str | None = None,
    listen: str | None = None,
    http: str | None = None,
    on_state: StateListener | None = None,
    **settings: Unpack[Settings],
) -> None:
    """Run an application until SIGINT or SIGTERM, then close it cleanly; the arguments are those of ``Streams``.

    Raises:
        ConfigError: an address is taken, or the application has no embedded broker to ``listen``.
        StreamsError: the application failed.
    """
    run_until_signal(
        Streams(
            topology,
            application_id=application_id,
            broker=broker,
            listen=listen,
            http=http,
            on_state=on_state,
            **settings,
        )
    )


def run_until_signal(streams: Streams) -> None:
    """Start an application, run it until SIGINT or SIGTERM, then close it cleanly.

    If a service manager has set ``NOTIFY_SOCKET``, it is notified when the application is running and when it stops.

    Raises:
        StreamsError: the application failed.
    """
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)} if is_main else {}
    notifier = Notifier.of(streams.instance, os.environ)
    try:
        # Whoever calls this gives the process to the application; one that is embedded leaves the collector alone.
        with tuned_collector(), streams:
            # Wait in short steps, since signals are delivered between the steps.
            while not stop.is_set() and not streams.wait(_LOOK_MS):
                notifier.look()
            notifier.stopping()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
