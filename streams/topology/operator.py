"""What an operator is to the task that runs it.

An operator is a value in the graph; each task binds it once and gets back the process
function that handles one record: ``process(key, value, timestamp_ms, headers)``.  On edges
that leave a table operator the value is a plain tuple ``(new, old, is_latest)``, Kafka
Streams' Change.  Imports core only.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, TypeAlias

from attrs import define

from streams.core.records import NO_TIMESTAMP, Headers, RecordContext, RecordMetadata, TaskId, Window

#: Handles one record: key, value, timestamp_ms, headers (None = no headers).  What a user's
#: processor gives back are the record's headers as it left them; others give back nothing.
Process: TypeAlias = Callable[[Any, Any, int, Headers | None], Any]


class PunctuationType(Enum):
    """Which clock drives a punctuation."""

    STREAM_TIME = "stream"
    WALL_CLOCK_TIME = "wall"


@define
class StreamTime:
    """Highest event time that an operator has seen, in epoch milliseconds; -1 at first.

    Owned by the operator, kept by the task: part of every commit and snapshot.
    """

    ms: int = NO_TIMESTAMP


class Cancellable(Protocol):
    """A scheduled punctuation."""

    def cancel(self) -> None:
        """Stop it; harmless when repeated."""
        ...


class NodeContext(Protocol):
    """What a bound operator may ask of its task."""

    @property
    def node(self) -> str:
        """Name of the node."""
        ...

    @property
    def task_id(self) -> TaskId:
        """Identity of the task."""
        ...

    @property
    def application_id(self) -> str:
        """Application id, the prefix of internal topics."""
        ...

    @property
    def forward(self) -> Process:
        """Process function of all children, called in their order."""
        ...

    def forward_to(self, child: str) -> Process:
        """Process function of one child by its node name."""
        ...

    def store(self, name: str) -> Any:
        """State store connected to this node, by name."""
        ...

    def table_forward(
        self, store: str | None, *, send_old: bool = True
    ) -> Callable[[Any, Any, Any, int, Headers | None, bool], None]:
        """Return ``emit(key, new, old, timestamp_ms, headers, is_latest)`` for table results.

        Behind a store with record cache it keeps the first old and the last new value of a key
        until the cache is flushed; otherwise it forwards ``(new, old, is_latest)`` at once.
        ``send_old`` False keeps the old value from those behind the cache, which itself is told.
        """
        ...

    def table_section(
        self, store: str, *, send_old: bool = True, window_of: Callable[[int], Window] | None = None
    ) -> Any:
        """Return the section of the record cache behind a store that has one: ``state.cache.Section``.

        With ``window_of`` its keys are (key, window start).
        """
        ...

    def stream_time(self, name: str = "") -> StreamTime:
        """Operator's own stream time, restored from the last commit."""
        ...

    def schedule(
        self,
        interval_ms: int,
        kind: PunctuationType,
        callback: Callable[[int], None],
        start_ms: int | None = None,
    ) -> Cancellable:
        """Call ``callback(now_ms)`` every interval of the given clock."""
        ...

    def commit(self) -> None:
        """Ask the task to commit as soon as the current record is done."""
        ...

    def drop(self, reason: str, count: int = 1) -> None:
        """Count records dropped at this node (metric ``dropped-records``)."""
        ...

    def task_stream_time_ms(self) -> int:
        """Highest timestamp that the task has taken so far, the current record included."""
        ...

    def wall_clock_ms(self) -> int:
        """Wall-clock time of the driver."""
        ...

    def record_metadata(self) -> RecordMetadata | None:
        """Origin of the record now processed; None within a punctuation."""
        ...

    def on_init(self, callback: Callable[[], None]) -> None:
        """Call back once, when all nodes are bound, in the order of the graph."""
        ...

    def caches(self, store: str | None) -> bool:
        """Whether a record cache holds back what is emitted behind this store."""
        ...

    def within(self, context: RecordContext, forward: Callable[[], None]) -> None:
        """Forward a record that was held back, as if the one of ``context`` were processed."""
        ...

    def on_final_flush(self, callback: Callable[[], None]) -> None:
        """Call back when a bounded run gives out what is still open, as if time had reached its end.

        For operators that hold results back: suppression, emission on window close, outer joins.
        """
        ...

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back when the task closes."""
        ...


class Operator(Protocol):
    """A node's behaviour: a frozen value, shared by all tasks."""

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        ...
