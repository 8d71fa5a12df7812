"""Operators: the immutable behaviour of nodes, which each task binds to process functions.

Each task binds an operator once and receives the function that processes one record: ``process(key, value,
timestamp_ms, headers)``.  Downstream of a table operator the value is a tuple ``(new, old, is_latest)``, which
corresponds to ``Change`` in Kafka Streams.  The module imports only ``core`` and ``state``.
"""

from collections.abc import Callable, Sequence, Sized
from enum import Enum
from typing import Any, Protocol, TypeAlias

from attrs import define, frozen

from streams.core.blocks.records import NO_TIMESTAMP, Headers, RecordContext, RecordMetadata, Window
from streams.core.concurrency.calls import CallLoop
from streams.core.metrics import Amounts, Counter, DropReason, SensorSpec, Stopwatch
from streams.core.wrapping import WrappedNode
from streams.state import HotState

#: Processes one record: key, value, timestamp_ms, headers (None: no headers). A user's processor returns the
#: record headers, which may have been changed; other operators return None.
Process: TypeAlias = Callable[[Any, Any, int, Headers | None], Any]


class PunctuationType(Enum):
    """The clock that triggers a punctuation."""

    STREAM_TIME = "stream"
    WALL_CLOCK_TIME = "wall"


@define
class StreamTime:
    """The highest event time of an operator's records, in epoch milliseconds; -1 before the first record.

    The operator updates the time; the task saves it with every commit and snapshot.
    """

    ms: int = NO_TIMESTAMP


class Cancellable(Protocol):
    """A scheduled punctuation, which can be cancelled."""

    def cancel(self) -> None:
        """Cancel the punctuation; idempotent."""
        ...


class HeldState(Enum):
    """What a record waits for at a node that makes calls or collects batches; ``DELIVERED`` is the end of the wait."""

    IN_FLIGHT = "its call runs"
    QUEUED = "its call waits until fewer calls run"
    BEHIND_CALL = "its call waits for that of an earlier record with the same key"
    BEHIND_RESULT = "its result waits for that of an earlier record"
    DONE = "its result is forwarded next"
    IN_BATCH = "its batch is not complete"
    DELIVERED = "its result is being forwarded"


@frozen
class HeldRecord:
    """A record that a node holds, with the reason for which it waits; used by ``why``.

    ``attempts`` is the number of started attempts of its call, 0 if a cached answer was used.  ``took_ms`` is the
    duration of the call so far, in milliseconds.  ``records`` is the size of the batch, or the number of records that
    share the call.  ``behind`` locates the earlier record for which it waits; ``error`` is the error of a failed call.
    """

    origin: RecordMetadata | None
    value: Any
    state: HeldState
    attempts: int = 0
    took_ms: int = 0
    records: int = 1
    behind: RecordMetadata | None = None
    error: BaseException | None = None


class HoldingNode(Protocol):
    """A node of a task that holds records until a call or a batch has ended."""

    @property
    def name(self) -> str:
        """As in the topology and in metrics."""
        ...

    @property
    def held(self) -> Sized:
        """The records whose results are not forwarded yet."""
        ...

    def waiting(self) -> Sequence[HeldRecord]:
        """Return the waiting records; may be called by any thread."""
        ...

    def delivered(self) -> Sequence[HeldRecord]:
        """Return the records whose result is being forwarded, or () outside ``NodeContext.deliver``."""
        ...


class BatchingNode(HoldingNode, Protocol):
    """A node of a task that collects records in a batch."""

    def end_run(self) -> None:
        """Process the batch at the end of a run of records, unless ``max_wait`` lets it wait for more records."""
        ...

    def flush(self) -> None:
        """Process the batch regardless of its size, as the first step of a commit."""
        ...


class CallingNode(HoldingNode, Protocol):
    """A node of a task that calls async functions."""

    @property
    def in_flight(self) -> int:
        """The number of running calls; may be read by any thread."""
        ...

    @property
    def room(self) -> int:
        """The number of further records that the node can accept now."""
        ...

    def hand_over(self) -> None:
        """Start the calls for new records."""
        ...

    def forward(self, limit: int) -> int:
        """Forward at most ``limit`` results of finished calls.

        Return how many were forwarded, plus the number of other changes of state.
        """
        ...

    def finish(self) -> None:
        """Wait for all calls to finish, and forward their results."""
        ...

    def save(self) -> None:
        """Store the records whose calls are in flight, as part of a commit."""
        ...

    def close(self) -> None:
        """Cancel all calls that are in flight."""
        ...


class Lost(Protocol):
    """Forwards a dropped record to the side outputs of its node.

    ``closed_ms`` is the stream time from which the record was too late for its ``window``, and ``stream_time_ms`` is
    the current stream time.  Both are -1 if the record is not late.
    """

    def __call__(
        self,
        reason: DropReason,
        key: Any,
        value: Any,
        timestamp_ms: int,
        headers: Headers | None,
        window: Window | None = None,
        closed_ms: int = NO_TIMESTAMP,
        stream_time_ms: int = NO_TIMESTAMP,
    ) -> None:
        """Send a dropped record to the side outputs of its node, with the reason."""
        ...


class NodeContext(WrappedNode, Protocol):
    """The services that a task provides to its operators."""

    @property
    def forward(self) -> Process:
        """Return a process function that calls all children in order."""
        ...

    @property
    def children(self) -> Sequence[str]:
        """Return the names of the child nodes."""
        ...

    def forward_to(self, child: str) -> Process:
        """Return the process function of one child, given its node name."""
        ...

    def store(self, name: str) -> Any:
        """Return a state store connected to this node, by name."""
        ...

    def table_forward(
        self, store: str | None, *, send_old: bool = True
    ) -> Callable[[Any, Any, Any, int, Headers | None, bool], None]:
        """Return the function ``emit(key, new, old, timestamp_ms, headers, is_latest)`` for table results.

        If the store has a record cache, the first old and the last new value of a key are cached until
        the flush; otherwise ``(new, old, is_latest)`` is forwarded at once.  With ``send_old`` False the
        old value is passed to the cache but not forwarded.
        """
        ...

    def table_section(
        self, store: str, *, send_old: bool = True, window_of: Callable[[int], Window] | None = None
    ) -> Any:
        """Return the section of a store in the record cache, a ``state.cache.Section``.

        With ``window_of``, the keys of the section are (key, window start).
        """
        ...

    def shared(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the object that nodes of the task share under ``key``; the first call creates it by ``make()``."""
        ...

    def stream_time(self, name: str = "") -> StreamTime:
        """Return the stream time of the operator, restored from the last commit."""
        ...

    def emitted_time(self, store: str) -> StreamTime:
        """Return the time up to which the closed windows of a store were emitted, restored from the last commit.

        Kafka Streams commits the same time under the name of the store: that of the latest record that emitted
        windows, minus the grace period (and the gap of sessions).
        """
        ...

    def schedule(
        self,
        interval_ms: int,
        kind: PunctuationType,
        callback: Callable[[int], None],
        start_ms: int | None = None,
    ) -> Cancellable:
        """Call ``callback(now_ms)`` at every interval of the given clock."""
        ...

    def commit(self) -> None:
        """Request a commit after the current record."""
        ...

    def drop(self, reason: DropReason, count: int = 1) -> None:
        """Count records dropped at this node in the metric ``dropped-records-total``."""
        ...

    def side_output(self) -> Lost | None:
        """Return the function that forwards a dropped record to the side outputs, or None if there are none.

        The function does not count the record.
        """
        ...

    def tally(self, reason: DropReason) -> Counter:
        """Return the counter of the records that this node does not forward for the given reason.

        It is for records that Kafka Streams does not count as dropped, so they do not count as drops of the task.
        """
        ...

    def counter(self, sensor: SensorSpec) -> Counter:
        """Return this node's counter of a sensor that is declared per node."""
        ...

    def records(self, sensor: SensorSpec) -> bool:
        """Return whether a sensor is recorded at the recording level."""
        ...

    def amounts(self, sensor: SensorSpec, store: str | None = None) -> Amounts:
        """Return the sensor of amounts of this node, or of a store if the sensor is declared per store."""
        ...

    def stopwatch(self, sensor: SensorSpec) -> Stopwatch:
        """Return this node's stopwatch of a sensor that is declared per node."""
        ...

    def running_clock(self) -> Callable[[], int] | None:
        """Return a function that returns the wall-clock time in epoch milliseconds, or None if the clock does not run.

        The clock does not run in bounded runs, nor in replays unless they use the append times of records.

        Raises:
            WallClockError: the driver has no wall clock.
        """
        ...

    def task_stream_time_ms(self) -> int:
        """Return the highest timestamp of the records that the task has processed, including the current record."""
        ...

    def on_init(self, callback: Callable[[], None]) -> None:
        """Register a function to call once all nodes are bound; functions are called in the order of the graph."""
        ...

    def caches(self, store: str | None) -> bool:
        """Return whether the output of this store goes through a record cache."""
        ...

    def within(self, context: RecordContext, forward: Callable[[], None]) -> None:
        """Call ``forward`` for a buffered record, with ``context`` as the current record context."""
        ...

    def call_loop(self) -> CallLoop:
        """Return the event loop that runs calls to async functions."""
        ...

    def add_calls(self, node: CallingNode) -> None:
        """Register the part of this node that calls async functions."""
        ...

    def raw_reader(self) -> Callable[[], tuple[bytes | None, bytes | None]]:
        """Return a function that returns the raw key and value of the source record, if a handler may need them."""
        ...

    def deliver(
        self, context: RecordContext, raw: tuple[bytes | None, bytes | None], forward: Callable[[], None]
    ) -> None:
        """Call ``forward`` for the result of an async call, with the metadata and raw record of its input."""
        ...

    def fail(self, error: BaseException, key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        """Call the processing handler for a record that failed at this node.

        Raises:
            ProcessingError: the handler returned "fail".
        """
        ...

    @property
    def ends_runs(self) -> bool:
        """Return whether batches end with each run of records, because there is no running clock, as in a replay."""
        ...

    def add_batches(self, node: BatchingNode) -> None:
        """Register the part of this node that collects records in batches."""
        ...

    def on_final_flush(self, callback: Callable[[], object]) -> None:
        """Register a function that forwards buffered results at the end of a bounded run.

        It is used by operators that buffer results: suppression, emission on window close, and outer joins.
        """
        ...

    def on_idle(self, advance: Callable[[int], bool], shared_store: str | None = None) -> None:
        """Register the function that advances this operator's stream time while its sources are idle.

        The function is called with ascending stream times, which may be before the operator's own, and returns whether
        it has forwarded records or changed its state.  With ``shared_store`` the sources are those of all nodes that
        use the store.
        """
        ...

    def hot_states(self) -> list[HotState]:
        """Return the hot states of the stores that are connected to this node."""
        ...

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a function to call when the task closes."""
        ...


@frozen
class StoreNaming:
    """The rule for naming an operator's store: the name is the user's ``argument`` plus a suffix."""

    argument: str = "store"
    #: Suffixes that the library appends to the argument; without suffixes, the argument is the whole name.
    ends: tuple[str, ...] = ()

    @classmethod
    def of(cls, operator: Any) -> "StoreNaming":
        """Return the store naming of an operator: its ``store_naming`` if present, otherwise the default."""
        naming: StoreNaming = getattr(operator, "store_naming", _PLAIN_NAMING)
        return naming


_PLAIN_NAMING = StoreNaming()


class Operator(Protocol):
    """The behaviour of a node: an immutable object that all tasks share."""

    def bind(self, context: NodeContext) -> Process:
        """Return the process function for one task."""
        ...
