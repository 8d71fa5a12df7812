"""Operators: the immutable behaviour of nodes, which each task binds to process functions.

Each task binds an operator once and receives the function that processes one record: ``process(key, value,
timestamp_ms, headers)``. Downstream of a table operator the value is a tuple ``(new, old, is_latest)``, which
corresponds to ``Change`` in Kafka Streams. Imports core only.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol, TypeAlias

from attrs import define, frozen

from streams.core.records import NO_TIMESTAMP, Headers, RecordContext, RecordMetadata, TaskId, Window

#: Processes one record: key, value, timestamp_ms, headers (None: no headers). A user's processor returns the
#: record headers, which may have been changed; other operators return None.
Process: TypeAlias = Callable[[Any, Any, int, Headers | None], Any]


class PunctuationType(Enum):
    """The clock that triggers a punctuation."""

    STREAM_TIME = "stream"
    WALL_CLOCK_TIME = "wall"


@define
class StreamTime:
    """Highest event time of an operator's records in epoch milliseconds; -1 before the first record.

    The operator updates the time; the task saves it with every commit and snapshot.
    """

    ms: int = NO_TIMESTAMP


class Cancellable(Protocol):
    """A scheduled punctuation."""

    def cancel(self) -> None:
        """Cancel the punctuation; idempotent."""
        ...


class NodeContext(Protocol):
    """The services that a task provides to its operators."""

    @property
    def node(self) -> str:
        """Return the name of the node."""
        ...

    @property
    def task_id(self) -> TaskId:
        """Return the task id."""
        ...

    @property
    def application_id(self) -> str:
        """Return the application id, the prefix of internal topics."""
        ...

    @property
    def forward(self) -> Process:
        """Return a process function that calls all children in order."""
        ...

    @property
    def children(self) -> Sequence[str]:
        """Return the names of the child nodes."""
        ...

    def forward_to(self, child: str) -> Process:
        """Return the process function of one child by its node name."""
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

    def drop(self, reason: str, count: int = 1) -> None:
        """Count records dropped at this node in the metric ``dropped-records-total``."""
        ...

    def task_stream_time_ms(self) -> int:
        """Return the highest timestamp of the records that the task has processed, including the current record."""
        ...

    def wall_clock_ms(self) -> int:
        """Return the wall-clock time in epoch milliseconds, from the clock of the instance or test driver."""
        ...

    def record_metadata(self) -> RecordMetadata | None:
        """Return topic, partition and offset of the current record, or None within a punctuation."""
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

    def on_final_flush(self, callback: Callable[[], None]) -> None:
        """Register a function that forwards buffered results at the end of a bounded run.

        Used by operators that buffer results: suppression, emission on window close, and outer joins.
        """
        ...

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a function to call when the task closes."""
        ...


@frozen
class StoreNaming:
    """The rule for the name of an operator's store: the user's ``argument`` plus a suffix."""

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
