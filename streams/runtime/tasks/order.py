"""The order of processing: the input with the lowest head timestamp is always next.

The rule applies to the inputs of a task (``queues``), the lanes of a partition (``lanes``) and the tasks of a stage
(``stage``); of equal timestamps, the first has precedence.  Each input keeps its own order: a record with a lower
timestamp than its predecessor is still processed after it.  So repeatedly taking the lowest head is equivalent to a
sort by the running maximum of the timestamps of each input (``core.loops.running_max``).  The module is pure and
imports only ``core``.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from attrs import define

from streams.core.blocks.loops import interleaved, merge_order
from streams.core.blocks.records import Headers

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

    @property
    def offsets(self) -> Sequence[int]:
        """The offsets of the records."""
        ...


C = TypeVar("C", bound=RecordColumns)


@define(eq=False)
class Span(Generic[T, C]):
    """The next records of one input: the rows of ``columns`` from ``start`` on, one for each place in ``places``."""

    input: T
    columns: C
    #: Of equal places, the record of the input with the lower index is first.
    index: int
    start: int
    #: The place of each row; ascending.
    places: Sequence[int]
    #: Whether further records of this input may follow; the order of records with a later place is then uncertain.
    is_open: bool = True

    @property
    def stop(self) -> int:
        """The index after the last row of the span."""
        return self.start + len(self.places)


def lowest_head(items: Iterable[T], head_ms: Callable[[T], int]) -> T | None:
    """Return the first item with the lowest head timestamp, or None if there are no items."""
    return min(items, key=head_ms, default=None)


def count_certain(places: Sequence[int], index: int, bound: tuple[int, int], start: int = 0) -> int:
    """Return the index after the last place that is not after a bound, which is a place and the index of its input."""
    return (bisect_right if index <= bound[1] else bisect_left)(places, bound[0], start)


def certain(spans: "list[Span[T, C]]", bounds: Iterable[tuple[int, int]] = ()) -> "list[Span[T, C]]":
    """Truncate spans to the records whose order no later record can change, and return the non-empty spans.

    ``bounds`` are the lowest places of the next records of inputs without a span, each with the index of its input.
    """
    bounds = [*bounds, *((span.places[-1], span.index) for span in spans if span.is_open)]
    if not bounds:
        return spans
    bound = min(bounds)
    for span in spans:
        if (span.places[-1], span.index) > bound:
            span.places = span.places[: count_certain(span.places, span.index, bound)]
    return [span for span in spans if span.places]


class Merged(NamedTuple):
    """The merged records of several spans, as columns; ``order`` has the index of the span of each record."""

    keys: Sequence[Any]
    values: Sequence[Any]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None
    offsets: Sequence[int]
    places: Sequence[int]
    order: Sequence[int]


def merge(spans: "Sequence[Span[T, C]]") -> Merged:
    """Merge the records of spans, which are in the order of their indexes."""
    order = merge_order([span.places for span in spans])
    columns = [span.columns for span in spans]
    starts = [span.start for span in spans]
    headers: Sequence[Headers] | None = None
    if any(each.headers is not None for each in columns):
        headers = interleaved(order, [span.columns.headers or [()] * span.stop for span in spans], starts)
    return Merged(
        interleaved(order, [each.keys for each in columns], starts),
        interleaved(order, [each.values for each in columns], starts),
        interleaved(order, [each.timestamps for each in columns], starts),
        headers,
        interleaved(order, [each.offsets for each in columns], starts),
        interleaved(order, [span.places for span in spans], [0] * len(spans)),
        order,
    )
