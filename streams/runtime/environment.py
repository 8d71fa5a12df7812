"""The environment of an instance, and the objects that its threads share.  Contains no logic; imports clients."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from streams.core.clock import Clock
from streams.core.config import StreamsConfig
from streams.core.metrics import Metrics
from streams.core.threads import SystemThreads, Threads
from streams.protocol.transport import Cluster
from streams.runtime.bounded import BoundedProgress, BoundedSchedule
from streams.runtime.homes import MemoryHome, StateHome
from streams.runtime.layout import Plans
from streams.runtime.sampling import SpanSource
from streams.runtime.schedule import LiveSchedule, Schedule


@frozen(eq=False)
class Environment:
    """The environment of an instance: cluster, clock, threads, and store home.

    With ``creates_topics``, missing source and sink topics are created with their declared partition counts; on an
    external cluster they are not.  With ``tunes_collector``, the garbage collector is tuned while the instance runs.
    """

    cluster: Cluster
    clock: Clock
    home: StateHome = field(factory=MemoryHome)
    threads: Threads = field(factory=SystemThreads)
    creates_topics: bool = False
    tunes_collector: bool = True
    #: Creates the spans of sampled records; None without tracing.
    spans: SpanSource | None = None


@frozen(eq=False)
class SharedParts:
    """Objects that the threads of one instance share; ``bounded`` is None in a live run.

    ``metrics`` are those of the instance or of one thread.  ``endpoint`` returns the host:port under which other
    instances reach this one, or "".
    """

    config: StreamsConfig
    environment: Environment
    plans: Plans
    global_stores: Mapping[str, Any]
    metrics: Metrics
    bounded: BoundedProgress | None
    endpoint: Callable[[], str]

    @property
    def schedule(self) -> Schedule:
        """Return the schedule for the tasks of the threads."""
        return LiveSchedule() if self.bounded is None else BoundedSchedule(self.bounded)
