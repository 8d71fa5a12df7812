"""What an operator does with its users' functions, as far as columns may do the same."""

from collections.abc import Callable
from typing import Any, TypeAlias

from attrs import frozen

from streams.topology.node_context import NodeContext
from streams.topology.operator import StreamTime


@frozen(eq=False)
class Condition:
    """Forwards the records for which ``function(key, value)`` is true or, with ``negate``, false."""

    function: Callable[..., Any]
    negate: bool = False


@frozen(eq=False)
class NewValue:
    """Replaces the value with ``function(value)``, or ``function(key, value)``."""

    function: Callable[..., Any]
    with_key: bool


@frozen(eq=False)
class NewKey:
    """Replaces the key with ``function(key, value)``."""

    function: Callable[..., Any]


@frozen(eq=False)
class FoldState:
    """The state of an aggregate in one task, for the rows that columns take.

    Windows are given by their starts in epoch milliseconds, 0 without windows.
    """

    #: Stream time, which late records are behind; None without windows.
    time: StreamTime | None
    #: Returns (value, timestamp_ms) of a key and window, or None.
    fetch: Callable[[Any, int], tuple[Any, int] | None]
    #: Sets (key, value, timestamp_ms, window).
    put: Callable[[Any, Any, int, int], object]
    #: Counts records that are dropped since they are late for a window, each by so many milliseconds.
    late: Callable[[list[int]], None]
    #: Returns how many were.
    late_count: Callable[[], int]
    #: Returns the stream time with which a row has to be computed by Python, since windows close.
    end_ms: Callable[[], int]
    #: Forwards (key, value, timestamp_ms, window) after each update; None if results are emitted when windows close.
    emit: Callable[[Any, Any, int, int], None] | None


@frozen(eq=False)
class Aggregation:
    """Folds the values of a key, or of a key and window, with ``aggregator(key, value, aggregate)``."""

    initializer: Callable[[], Any]
    aggregator: Callable[..., Any]
    #: Size, advance and grace period of windows in milliseconds, zeros without windows.
    windows: tuple[int, int, int] = (0, 0, 0)
    store: str = ""
    #: Why columns cannot compute it, whatever its functions do.
    refusal: str = ""
    #: Returns its state in a task, or None if columns cannot compute it there.
    bind: Callable[[NodeContext], FoldState | None] = lambda context: None


ColumnForm: TypeAlias = Condition | NewValue | NewKey | Aggregation
