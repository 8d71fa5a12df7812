"""The order of processing: the input with the lowest head timestamp is always next.

The rule applies to the inputs of a task (``queues``), the lanes of a partition (``lanes``) and the tasks of a stage
(``stage``); of equal timestamps, the first has precedence.  Each input keeps its own order: a record with a lower
timestamp than its predecessor is still processed after it.  So repeatedly taking the lowest head is equivalent to a
sort by the running maximum of the timestamps of each input (``core.loops.head_places``).  The module is pure and
imports only ``core``.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from attrs import define

from streams.core.records import Headers

T = TypeVar("T")


class RecordColumns(Protocol):
    """Records as columns of equal length: a block of raw records, or a batch of deserialized records."""

    @property
    def keys(self) -> Sequence[Any]:
        """The keys of the records, of any type."""
        ...

    @property
    def values(self) -> Sequence[Any]:
        """The values of the records, of any type."""
        ...

    @property
    def timestamps(self) -> Sequence[int]:
        """The event times of the records, in epoch milliseconds."""
        ...

    @property
    def headers(self) -> Sequence[Headers] | None:
        """The headers of the records, or None if no record has headers."""
        ...


C = TypeVar("C", bound=RecordColumns)


@define(eq=False)
class Span(Generic[T, C]):
    """The next records of one input: the rows of ``columns`` from ``start`` on, one for each sort key in ``places``."""

    input: T
    columns: C
    start: int
    #: The sort key of each row in the merged order (``head_places``).
    places: list[int]
    #: Whether further records of this input may follow; the order of records with a later place is then uncertain.
    is_open: bool = True

    @property
    def stop(self) -> int:
        """The index after the last row of the span."""
        return self.start + len(self.places)


def lowest_head(items: Iterable[T], head_ms: Callable[[T], int]) -> T | None:
    """Return the first item with the lowest head timestamp, or None if there are no items."""
    return min(items, key=head_ms, default=None)


def certain(spans: "list[Span[T, C]]", bounds: Iterable[int] = ()) -> "list[Span[T, C]]":
    """Truncate spans to the records whose order no later record can change, and return the non-empty spans.

    ``bounds`` are the lowest sort keys of the next records of inputs without a span.
    """
    bounds = [*bounds, *(span.places[-1] for span in spans if span.is_open)]
    if not bounds:
        return spans
    bound = min(bounds)
    for span in spans:
        if span.places[-1] > bound:
            span.places = span.places[: bisect_right(span.places, bound)]
    return [span for span in spans if span.places]


class Merged(NamedTuple):
    """The merged records of several spans; ``pick`` applies the same order to a further, concatenated column."""

    keys: Sequence[Any]
    values: Sequence[Any]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None
    pick: Callable[[Sequence[Any]], tuple[Any, ...]]


def merge(spans: "Sequence[Span[T, C]]") -> Merged:
    """Merge the records of two or more spans."""
    keys: list[Any] = []
    values: list[Any] = []
    timestamps: list[int] = []
    places: list[int] = []
    headers: list[Headers] | None = [] if any(span.columns.headers is not None for span in spans) else None
    for span in spans:
        columns, rows = span.columns, slice(span.start, span.stop)
        keys += columns.keys[rows]
        values += columns.values[rows]
        timestamps += columns.timestamps[rows]
        places += span.places
        if headers is not None:
            headers += columns.headers[rows] if columns.headers is not None else [()] * len(span.places)
    pick = itemgetter(*sorted(range(len(places)), key=places.__getitem__))
    return Merged(pick(keys), pick(values), pick(timestamps), None if headers is None else pick(headers), pick)
