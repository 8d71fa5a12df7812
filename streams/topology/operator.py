"""Operators: the immutable behaviour of nodes, which each task binds to process functions.

Each task binds an operator once and receives the function that processes one record: ``process(key, value,
timestamp_ms, headers)``.  Downstream of a table operator the value is a tuple ``(new, old, is_latest)``, which
corresponds to ``Change`` in Kafka Streams.  The module imports only ``core`` and ``state``.
"""

from collections.abc import Callable, Sequence, Sized
from enum import Enum
from typing import Any, Protocol, TypeAlias

from attrs import define, frozen

from streams.core.blocks.records import NO_TIMESTAMP, Headers, RecordMetadata, Window
from streams.core.metrics import DropReason

#: Processes one record: key, value, timestamp_ms, headers (None: no headers). A user's processor returns the
#: record headers, which may have been changed; other operators return None.
Process: TypeAlias = Callable[[Any, Any, int, Headers | None], Any]


#: Forwards a change of a table: key, new, old, timestamp_ms, headers, is_latest.
TableForward: TypeAlias = Callable[[Any, Any, Any, int, Headers | None, bool], None]


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
        """Return the records whose result is being forwarded, or () outside ``NodeCalls.deliver``."""
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
