"""The environment of an instance, and the objects that its threads share.

The module contains no logic, and imports only ``clients``, ``core`` and ``protocol`` from outside ``runtime``.
"""

from collections.abc import Callable, Mapping, Set
from typing import Any

from attrs import define, field, frozen

from streams.clients import Consumer, Producer
from streams.core.clock import Clock
from streams.core.concurrency.calls import PolledLoop, ThreadedLoop
from streams.core.concurrency.threads import SystemThreads, Threads
from streams.core.metrics import Metrics
from streams.core.settings.config import StreamsConfig
from streams.protocol.transport import Cluster
from streams.runtime.in_step.progress_reader import ProgressReader
from streams.runtime.plan.bounded import BoundedProgress, BoundedSchedule
from streams.runtime.plan.layout import Plans
from streams.runtime.plan.losses_told import LossesTold
from streams.runtime.plan.misplaced import KeyWatch
from streams.runtime.stores.homes import MemoryHome, StateHome
from streams.runtime.tasks.progress import ProgressBoard
from streams.runtime.tasks.sampling import SpanSource
from streams.runtime.tasks.schedule import LiveSchedule, Schedule


@frozen(eq=False)
class Environment:
    """The environment of an instance: its cluster, clock, threads, and local stores (a state directory or memory).

    With ``creates_topics``, missing source and sink topics are created with their declared partition counts; on an
    external cluster they are not created.
    """

    cluster: Cluster
    clock: Clock
    home: StateHome = field(factory=MemoryHome)
    threads: Threads = field(factory=SystemThreads)
    creates_topics: bool = False
    #: Creates the event loop for calls of async functions of a thread; its argument wakes the thread.
    call_loop: Callable[[Callable[[], None]], PolledLoop] = ThreadedLoop
    #: Topics with rows that name their partitions, which need not be those of their keys; grows as rows are read.
    placed_by_rows: Set[str] = frozenset()
    #: Called with each client of the instance, once.
    on_client: Callable[[Consumer | Producer], None] = lambda client: None
    #: Creates the spans of sampled records; None without tracing.
    spans: SpanSource | None = None


@frozen(eq=False)
class SharedParts:
    """Objects that the threads of one instance share; ``bounded`` is None in a live run.

    ``metrics`` is the registry of the instance or of one thread.  ``endpoint`` returns the host:port under which other
    instances can reach this instance, or "".
    """

    config: StreamsConfig
    environment: Environment
    plans: Plans
    global_stores: Mapping[str, Any]
    metrics: Metrics
    bounded: BoundedProgress | None
    endpoint: Callable[[], str]
    #: How far the tasks of the application are that write to repartition topics, and which of this instance have work.
    board: ProgressBoard
    #: Reads the progress topic; None if no topic is read in step.
    progress: ProgressReader | None
    keys: KeyWatch
    losses: LossesTold

    @property
    def schedule(self) -> Schedule:
        """Return the schedule for the tasks of the threads."""
        return LiveSchedule() if self.bounded is None else BoundedSchedule(self.bounded)


@define(eq=False)
class ThreadEvents:
    """Callbacks of a thread to its instance."""

    #: Called when all tasks are open and restored, and when this is no longer true.
    readiness: Callable[[], None]
    #: Called when a member has requested the shutdown of the whole application.
    shutdown: Callable[[], None]
    #: Called with a topic that is missing in the plan, and its partition count, before a task writes to it.
    new_topic: Callable[[str, int], None]
