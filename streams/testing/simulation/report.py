"""The report of a simulation: counts of events, and failures. Of the other packages, this module imports only
``core``.
"""

from collections import Counter
from collections.abc import Sequence

import attrs
from attrs import define, field, frozen

from streams.core.errors import StreamsError


@define
class Counters:
    """Counts of events in simulated worlds."""

    crashes: int = 0
    stalls: int = 0
    cuts: int = 0
    broker_restarts: int = 0
    clean_restarts: int = 0
    static_restarts: int = 0
    added_threads: int = 0
    removed_threads: int = 0
    pauses: int = 0
    added_partitions: int = 0
    leader_moves: int = 0
    coordinator_moves: int = 0
    #: Generations of the group that became stable.
    rebalances: int = 0
    #: Members that the coordinator removed after a session timeout.
    evictions: int = 0
    #: Tasks whose stores were restored from changelogs.
    restores: int = 0
    standby_takeovers: int = 0
    #: Assignments with a warm-up replica (KIP-441).
    warmups: int = 0
    #: Standby replicas in stable generations with other tags than the active copy, if tags are given (KIP-708).
    tagged_standbys: int = 0
    #: Times that a thread was fenced, removed from the group or timed out, and reopened its tasks.
    fencings: int = 0
    #: Connections that were reset, closed by the broker when idle, or closed by it because of a request above the size
    #: limit.
    resets: int = 0
    idle_closes: int = 0
    refused_requests: int = 0
    #: Requests rejected by a broker that is not the leader or coordinator, has stale metadata, or is busy.
    refusals: int = 0
    #: Messages lost with their connection, slow messages, and requests handled after the client has closed the
    #: connection.
    drops: int = 0
    delays: int = 0
    late_requests: int = 0
    #: Records processed again after a failure, and calls of async functions made again after a restart; with
    #: exactly-once the results contain them only once.
    reprocessed: int = 0
    #: How often each state was reached that a thousand worlds must reach; by name, without those never reached.
    states: Counter[str] = field(factory=Counter)

    def add(self, other: "Counters") -> None:
        """Add the counters of another world."""
        for name in attrs.fields_dict(Counters):
            # Also of the states, by name.
            setattr(self, name, getattr(self, name) + getattr(other, name))


@define
class SimulationReport(Counters):
    """The report of all seeds; every counter is an attribute with the sum over all seeds.

    ``virtual_seconds`` is the total virtual time of all worlds. ``order_dependent`` has the names of the topics and
    stores that were not compared, because their results depend on the order in which records of different partitions
    arrive, or may depend on it according to ``may_depend_on_order``. ``out_of_step`` has the topics that
    live runs read as records come, each with the reason: intermediate results behind them are not promised.
    """

    seeds: int = 0
    virtual_seconds: float = 0.0
    records: int = 0
    order_dependent: tuple[str, ...] = ()
    out_of_step: dict[str, str] = field(factory=dict)
    #: Digest of all events and results of the last seed; a seed always has the same digest.
    digest: str = ""

    def summary(self) -> str:
        """Return the counters as one line of text."""
        shown = [f"{self.seeds} seeds", f"{self.virtual_seconds:,.0f} virtual seconds", f"{self.records:,} records"]
        shown += [
            f"{getattr(self, name):,} {name.replace('_', ' ')}"
            for name in attrs.fields_dict(Counters)
            if name != "states" and getattr(self, name)
        ]
        if self.states:
            reached = ", ".join(f"{name} {count:,}" for name, count in sorted(self.states.items()))
            shown.append(f"states reached: {reached}")
        if self.order_dependent:
            shown.append(f"not compared, for the order decides: {', '.join(self.order_dependent)}")
        if self.out_of_step:
            shown.append(f"not in step: {', '.join(self.out_of_step)}")
        return ", ".join(shown)


class SimulationError(StreamsError):
    """A seed failed, or a world without faults failed (seed -1 and below).

    Fields: ``seed``; ``invariant``, the violated invariant; ``schedule``, the smallest set of faults found that
    reproduces it; ``history``, the last events.  A failure of a seed is reproducible.
    """

    def __init__(self, seed: int, invariant: str, schedule: Sequence[str], history: Sequence[str], repeat: str) -> None:
        self.seed = seed
        self.invariant = invariant
        self.schedule = tuple(schedule)
        self.history = tuple(history)
        parts = [invariant if seed < 0 else f"seed {seed}: {invariant}"]
        if seed >= 0:
            faults = "\n".join(f"  {line}" for line in schedule) or "  none: the loss of connections is enough"
            parts.append(f"faults that are needed for it:\n{faults}")
        if history:
            parts.append("what happened last:\n" + "\n".join(f"  {line}" for line in history))
        super().__init__("\n\n".join([*parts, f"to repeat it: {repeat}"]))


class InvariantViolationError(Exception):
    """An invariant was violated in a simulated world; the simulation reports it as a ``SimulationError``."""


class SpinError(Exception):
    """A thread of a simulated process used its core without doing any work."""


@define
class EventLog:
    """The log of a world's events, of which it keeps the last ``limit`` lines and a digest of all lines."""

    limit: int = 80
    lines: list[str] = field(factory=list)

    def append(self, now_ms: int, who: str, what: str) -> None:
        """Append one event: when it happened, to whom, and what."""
        self.lines.append(f"{now_ms / 1000:9.3f} s  {who:<10} {what}")

    def last(self) -> list[str]:
        """Return the last lines of the log."""
        return self.lines[-self.limit :]


@frozen
class Verdict:
    """The result of the world of one seed."""

    seed: int
    counters: Counters
    virtual_ms: int
    records: int
    digest: str
    order_dependent: tuple[str, ...] = ()
    violation: str | None = None
    history: tuple[str, ...] = ()
