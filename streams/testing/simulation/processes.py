"""Simulated machines, which run an instance of the application that crashes, stalls and restarts.

The simulated world causes the faults; the instance is production code (``runtime.instance.instance``).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from attrs import define, field

from streams.clients import Consumer, Producer
from streams.core.blocks.records import TopicPartition
from streams.core.concurrency.calls import SteppedLoop
from streams.core.errors import BrokerError, ClientClosedError, StreamsError
from streams.core.metrics import Metrics
from streams.core.settings.config import StreamsConfig
from streams.dsl import TopologySource, build_topology
from streams.protocol.wire.framing import MAX_FRAME_BYTES
from streams.runtime import Environment, ExceptionResponse, Instance, InstanceListeners, State, Task
from streams.testing.simulation.disk import SimDisk, SimHome
from streams.testing.simulation.network import SimNetwork
from streams.testing.simulation.report import Counters, SpinError
from streams.testing.simulation.scheduler import Scheduler, SimProcess, SimThreads, SpinDetector
from streams.testing.simulation.states import StateWatch

#: Time in milliseconds after which a process that has failed is restarted.
_SUPERVISOR_MS = 500
#: Time without a heartbeat after which a member is removed from its group, whatever its protocol.
SESSION_MS = 6_000


class _Loop(SteppedLoop):
    """The loop of a thread, with a pause in each of the thread's iterations."""

    pause: Callable[[], object] | None = None

    def step(self) -> None:
        """Let the thread wait, then run what is due."""
        if self.pause is not None:
            self.pause()
        super().step()


@define(eq=False)
class Machine:
    """One machine with a disk, and the application process on it."""

    name: str
    scheduler: Scheduler
    network: SimNetwork
    disk: SimDisk
    topology: TopologySource
    settings: Mapping[str, Any]
    counters: Counters
    log_event: Callable[[str, str], None]
    #: The seed of the world, from which the durations of calls are drawn.
    seed: int = 0
    #: Times in ms, one of which each iteration of a thread takes.
    paces_ms: Sequence[int] = (0,)
    max_request_bytes: int = MAX_FRAME_BYTES
    #: Whether the threads of the instance are static members.
    is_static: bool = False
    #: Called when the instance is RUNNING, that is, its tasks match the group's assignment.
    on_settled: Callable[["Machine"], None] = lambda machine: None
    states: StateWatch = field(factory=StateWatch)
    #: Called with each client of an instance.
    on_client: Callable[[Consumer | Producer], None] = lambda client: None
    process: SimProcess | None = None
    instance: Instance | None = None
    #: Errors of user code or the library that no fault explains.
    failures: list[BaseException] = field(factory=list)
    #: Metrics of all instances so far.
    past: list[Metrics] = field(factory=list)
    is_wanted: bool = True
    _starts: int = 0
    #: The event loops of all processes so far.
    _loops: list[SteppedLoop] = field(factory=list)
    _stopped_ms: int | None = None

    # --- start and stop -------------------------------------------------------------------

    def start(self) -> None:
        """Start the process, unless it is running, or ``is_wanted`` is False."""
        if self.process is not None or not self.is_wanted:
            return
        self._starts += 1
        process = self.process = SimProcess(self.scheduler, self.name, SpinDetector(self._progress, self._on_spin))
        identity = f"{self.name}-disk" if self.disk.is_kept else f"{self.name}-{self._starts}"
        settings = dict(self.settings)
        if self.is_static:
            settings["group_instance_id"] = self.name
            if self._starts > 1 and self.scheduler.now_ms - (self._stopped_ms or 0) < SESSION_MS:
                self.counters.static_restarts += 1
        config = StreamsConfig.of(**settings)
        instance = self.instance = Instance(
            build_topology(self.topology, config),
            config,
            Environment(
                self.network.cluster(process, self.max_request_bytes),
                self.scheduler.clock,
                SimHome(self.disk, process, identity),
                SimThreads(process),
                call_loop=lambda _: self._call_loop(process, f"calls {self.seed} {identity}"),
                on_client=self.on_client,
            ),
            InstanceListeners(on_state=self._on_state, on_exception=self._on_exception),
        )
        self.past.append(instance.metrics)
        self.log_event(self.name, f"starts (number {self._starts})")
        process.spawn(lambda: self._run(process, instance))

    def crash(self) -> bool:
        """Crash the process; writes that are not synced may be lost.  Return whether it was running."""
        if self.process is None:
            return False
        self.states.note("crash in a restore", count=self.is_restoring)
        self._end("crashes")
        self.states.note("writes of a store lost in a crash", count=self.disk.crash())
        return True

    def stop(self, then: Callable[[], None]) -> bool:
        """Close the instance cleanly, then call ``then``; return whether it was running."""
        process, instance = self.process, self.instance
        if process is None or instance is None or instance.state not in (State.RUNNING, State.REBALANCING):
            return False

        def close() -> None:
            instance.close()
            if self.process is process:
                self._end("has closed")
                then()

        self.log_event(self.name, "closes")
        process.spawn(close)
        return True

    def stall(self, until_ms: int) -> bool:
        """Suspend the whole process until a virtual time, as in a long pause; return whether it was running."""
        if self.process is None:
            return False
        # A shorter stall within a longer one ends neither early, or calls would overtake those made before.
        self.process.stalled_until_ms = max(self.process.stalled_until_ms, until_ms)
        return True

    def do(self, what: Callable[[Instance], object]) -> bool:
        """Call ``what`` with the instance, in a coroutine of the process; return whether the instance was running."""
        process, instance = self.process, self.instance
        if process is None or instance is None or instance.state not in (State.RUNNING, State.REBALANCING):
            return False

        def act() -> None:
            try:
                what(instance)
            except ClientClosedError:
                # The instance was already closing.
                return

        process.spawn(act)
        return True

    # --- state ------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the instance is RUNNING: all its assigned tasks are open and restored."""
        return self.process is not None and self.instance is not None and self.instance.state is State.RUNNING

    @property
    def is_restoring(self) -> bool:
        """Whether stores of the instance's tasks are being restored."""
        threads = () if self.instance is None else self.instance.stream_threads
        return any(not thread.restorer.is_idle for thread in threads)

    def tasks(self) -> list[Task]:
        """Return the active tasks of the instance; empty if it is not running."""
        if self.instance is None:
            return []
        return [task for thread in self.instance.stream_threads for task in thread.tasks.values()]

    def owned(self) -> dict[TopicPartition, Task]:
        """Return the active tasks of the instance by input partition."""
        return {partition: task for task in self.tasks() for partition in task.inputs}

    def end(self) -> None:
        """Kill the process and drop its event loops, and those of crashed processes; used when the world ends.

        Until then the loops of crashed processes are kept, because the garbage collector would run cleanup of async
        functions, which a crash does not.
        """
        if self.process is not None:
            self.process.kill()
        for loop in self._loops:
            loop.abandon()

    # --- internals ----------------------------------------------------------------------------

    def _call_loop(self, process: SimProcess, seed: str) -> SteppedLoop:
        pace_ms = Random(f"pace {seed} {len(self._loops)}").choice(self.paces_ms)
        pause = partial(SimThreads(process).signal().wait, pace_ms) if pace_ms else None
        loop = _Loop(self.scheduler.clock, Random(seed), self._on_repeated, lambda: not process.is_alive)
        loop.pause = pause
        self._loops.append(loop)
        return loop

    def _run(self, process: SimProcess, instance: Instance) -> None:
        try:
            instance.start()
            instance.supervisor.ended.wait()
        except StreamsError as error:
            self._note(error)
        if self.process is process and instance.state is not State.PENDING_SHUTDOWN:
            # The instance has failed, so the supervisor restarts the process.
            self._end("has ended")
            self.scheduler.after(_SUPERVISOR_MS, self.start)

    def _end(self, how: str) -> None:
        process = self.process
        self.process = None
        self.instance = None
        self._stopped_ms = self.scheduler.now_ms
        self.log_event(self.name, how)
        if process is not None:
            # This is a separate event, because the caller may be a coroutine of this process.
            process.is_alive = False
            self.scheduler.after(0, process.kill)

    def _on_state(self, state: State, before: State) -> None:
        if state is State.RUNNING:
            self.on_settled(self)

    def _on_exception(self, error: BaseException) -> ExceptionResponse:
        self.log_event(self.name, f"a thread fails: {type(error).__name__}: {error}")
        self._note(error)
        return ExceptionResponse.REPLACE_THREAD

    def _progress(self) -> int:
        """Return the number of records that the instance has processed, restored or applied to standby replicas."""
        names = ("process-total", "restore-total", "update-total")
        return 0 if self.instance is None else sum(self.instance.metrics.get(name) for name in names)

    def _on_spin(self) -> None:
        self.failures.append(SpinError("a thread polls on without a pause, though nothing arrives or is processed"))

    def _on_repeated(self, count: int) -> None:
        self.counters.reprocessed += count

    def _note(self, error: BaseException) -> None:
        """Record an error as a failure, unless it is a broker or connection error."""
        if not isinstance(error, BrokerError):
            self.failures.append(error)
