"""What an instance runs on, and what its threads share.  Values; imports clients."""

from collections.abc import Mapping
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
from streams.runtime.schedule import LiveSchedule, Schedule


@frozen(eq=False)
class Environment:
    """Where an instance runs: the cluster, time, threads, and the stores' place on this machine.

    ``creates_topics`` lets missing source and sink topics be made, with the partitions that their declarations name;
    a cluster of others is left as it is.  ``tunes_collector``: the garbage collector is tuned while the instance
    runs, for the process is its own.
    """

    cluster: Cluster
    clock: Clock
    home: StateHome = field(factory=MemoryHome)
    threads: Threads = field(factory=SystemThreads)
    creates_topics: bool = False
    tunes_collector: bool = True


@frozen(eq=False)
class SharedParts:
    """What the threads of one instance share; ``bounded`` is None in a live run."""

    config: StreamsConfig
    environment: Environment
    plans: Plans
    global_stores: Mapping[str, Any]
    metrics: Metrics
    bounded: BoundedProgress | None

    @property
    def schedule(self) -> Schedule:
        """How the threads process their tasks."""
        return LiveSchedule() if self.bounded is None else BoundedSchedule(self.bounded)
