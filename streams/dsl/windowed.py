"""Windowed grouped streams: ``TimeWindowedKStream`` and ``SessionWindowedKStream``.

In the examples ``orders`` is a stream of amounts by customer; ``play`` shows the output for some
input, and ``shown`` prints windowed keys as key@start/end.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from attrs import define, evolve
from typing_extensions import TypeForm

from streams.core.arguments import NOT_GIVEN
from streams.core.blocks.records import Windowed
from streams.core.errors import TopologyError
from streams.core.event_time.windows import UnlimitedWindows
from streams.core.serdes.serdes import Serde
from streams.dsl.building import early_results
from streams.dsl.building.aggregation import StreamAggregation
from streams.dsl.building.windowing import Windowing
from streams.dsl.initializer import Initializer
from streams.dsl.materialized import SAME_AS_NAME, StoreArguments, WindowStoreOptions
from streams.dsl.processing import Fold
from streams.dsl.suppressed import EmitStrategy
from streams.dsl.table import KTable

if TYPE_CHECKING:
    from streams.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


def _emitting(aggregation: StreamAggregation, strategy: EmitStrategy) -> StreamAggregation:
    """Return the aggregation with another emit strategy."""
    if not isinstance(strategy, EmitStrategy):
        raise TopologyError(f"emit_strategy needs EmitStrategy.ON_WINDOW_UPDATE or ON_WINDOW_CLOSE, got {strategy!r}")
    _refuse_early(aggregation, "emit_strategy")
    is_on_close = strategy is EmitStrategy.ON_WINDOW_CLOSE
    return evolve(aggregation, windowing=Windowing(aggregation.windowing.windows, is_on_close))


def _emitting_early(aggregation: StreamAggregation, every: Any) -> StreamAggregation:
    _refuse_early(aggregation, "emit")
    windowing = Windowing(aggregation.windowing.windows, early=early_results.early_every(every, aggregation.group))
    return evolve(aggregation, windowing=windowing)


def _refuse_early(aggregation: StreamAggregation, method: str) -> None:
    if aggregation.windowing.early is not None:
        raise TopologyError(
            f"{method} of {aggregation.group!r} follows emit(early_every=...), which already chooses that results are "
            "early and final; leave one of them out"
        )


@define(eq=False, repr=False)
class WindowedKStream(Generic[K, V]):
    """What the two kinds of windowed streams have in common: all but ``aggregate``, which merges sessions."""

    _ref: StreamAggregation

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._ref.group.name}>"

    def emit_strategy(self, strategy: EmitStrategy) -> Self:
        """Choose whether results are forwarded with each update (the default) or once when a window closes.

        >>> windowed = orders.group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1)))
        >>> final = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
        >>> shown(play(final, ("ann", 5, 0), ("ann", 2, 500), ("bob", 1, 1000)))
        ann@0/1000: 2
        """
        emitting = _emitting(self._ref, strategy)
        if emitting.windowing.emits_on_close and isinstance(emitting.windowing.windows, UnlimitedWindows):
            raise TopologyError(f"emit_strategy of {self!r}: unlimited windows never close; use ON_WINDOW_UPDATE")
        return evolve(self, ref=emitting)

    def emit(self, *, early_every: timedelta | int) -> Self:
        """Forward the result of a window early, at intervals, and the final result once the window closes.

        ``early_every`` is an interval of stream time, whose multiples are counted from 1970, or a number of records
        of a window.  At each multiple, the results of all windows changed since the previous one are forwarded.
        Whether a result is early or final is in its headers, which ``ResultTiming.of(headers)`` reads.  All results
        of unlimited windows are early.  A session that is merged into another session is deleted if a result of it was
        forwarded.  The aggregation has no record cache.

        >>> windowed = orders.group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1)))
        >>> counts = windowed.emit(early_every=2).count()
        >>> shown(play(counts, ("ann", 5, 0), ("ann", 2, 5), ("ann", 1, 9), ("bob", 1, 1000)))
        ann@0/1000: 2
        ann@0/1000: 3

        Raises:
            TopologyError: the interval is not a ``timedelta`` or a number, or is less than 1 ms or 1 record.
        """
        return evolve(self, ref=_emitting_early(self._ref, early_every))

    def late(self, name: str | None = None) -> "KStream[K, V]":
        """Return a stream of the records that arrive after their window has closed.

        The records keep their keys, values and timestamps.  Their headers, which ``DropNote.of(headers)`` reads,
        contain the window, by how much the record was late, and the stream time.  A record is in the stream once for
        each window for which it is late.  The records are those dropped by the first aggregation of this object.

        >>> windowed = orders.group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1)))
        >>> counts, late = windowed.count(), windowed.late()
        >>> play(late, ("ann", 5, 0), ("ann", 7, 3000), ("ann", 1, 500))
        [('ann', 1)]
        """
        from streams.dsl.stream import KStream

        return KStream(self._ref.side.late(name))

    def dropped(self, name: str | None = None) -> "KStream[K | None, V | None]":
        """Return a stream of all records that the aggregation drops: late records and records without a key.

        ``DropNote.of(headers)`` reads the reason from the headers of a record.

        >>> windowed = orders.group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1)))
        >>> counts, dropped = windowed.count(), windowed.dropped()
        >>> play(dropped, ("ann", 7, 3000), ("ann", 1, 500))
        [('ann', 1)]
        """
        from streams.dsl.stream import KStream

        return KStream(self._ref.side.dropped(name))

    def count(
        self,
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], int]:
        """Count the records of each key and window; a session that is merged into another session is deleted.

        >>> hopping = TimeWindows.of(timedelta(seconds=2), advance=timedelta(seconds=1))
        >>> shown(play(orders.group_by_key().windowed_by(hopping).count(), ("ann", 5, 1500)))
        ann@0/2000: 1
        ann@1000/3000: 1
        """
        return KTable(self._ref.count(name, StoreArguments(store, key, NOT_GIVEN, options)))

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key and window with ``reducer(old, new)``.

        >>> windowed = orders.group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1)))
        >>> shown(play(windowed.reduce(max), ("ann", 5, 0), ("ann", 7, 500), ("ann", 1, 1000)))
        ann@0/1000: 5
        ann@0/1000: 7
        ann@1000/2000: 1
        """
        return KTable(self._ref.reduce(reducer, name, StoreArguments(store, key, value, options)))

    @overload
    def summarize(
        self,
        summary: Callable[[V], A],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], A]: ...
    @overload
    def summarize(
        self,
        summary: Callable[[V], Any],
        name: str | None = None,
        *,
        value: TypeForm[A] | Serde[A],
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], A]: ...
    def summarize(
        self,
        summary: Callable[[V], Any],
        name: str | None = None,
        *,
        value: Any = NOT_GIVEN,
        store: str | None = SAME_AS_NAME,
        key: Any = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], Any]:
        """Aggregate the values of each key and window as declared by ``summary``, as in ``KGroupedStream``.

        Sessions are merged by the aggregates.

        >>> windowed = orders.group_by_key().windowed_by(SessionWindows.of(timedelta(seconds=1)))
        >>> shown(play(windowed.summarize(lambda amount: agg.max(amount)), ("ann", 5, 0), ("ann", 2, 500)))
        ann@0/0: 5
        ann@0/0: None
        ann@0/500: 5

        Raises:
            TopologyError: see ``KGroupedStream.summarize``.
        """
        return KTable(self._ref.summarize(summary, name, StoreArguments(store, key, value, options)))


@define(eq=False, repr=False)
class TimeWindowedKStream(WindowedKStream[K, V]):
    """A grouped stream, aggregated in tumbling, hopping, sliding, unlimited or count windows.

    In all aggregations ``name`` is also the store name unless ``store`` is given.
    """

    @overload
    def aggregate(
        self,
        initializer: Initializer[A],
        aggregator: Callable[[K, V, A], A],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], A]: ...
    @overload
    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[K, V, A], A],
        name: str | None = None,
        *,
        value: TypeForm[A],
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], A]: ...
    @overload
    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[K, V, A], A],
        name: str | None = None,
        *,
        value: Serde[A],
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], A]: ...
    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[K, V, Any], Any],
        name: str | None = None,
        *,
        value: Any = NOT_GIVEN,
        store: str | None = SAME_AS_NAME,
        key: Any = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], Any]:
        """Fold the values of each key and window with ``aggregator(key, value, aggregate)``.

        >>> windowed = orders.group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1)))
        >>> total = windowed.aggregate(lambda: 0, lambda customer, amount, total: total + amount)
        >>> shown(play(total, ("ann", 5, 0), ("ann", 7, 500)))
        ann@0/1000: 5
        ann@0/1000: 12
        """
        fold = Fold(initializer, aggregator)
        return KTable(self._ref.aggregate(fold, name, StoreArguments(store, key, value, options)))


@define(eq=False, repr=False)
class SessionWindowedKStream(WindowedKStream[K, V]):
    """A grouped stream, aggregated in sessions, which an inactivity gap ends, or in the windows of a ``Windower``.

    In all aggregations ``name`` is also the store name unless ``store`` is given.

    >>> sessions = orders.group_by_key().windowed_by(SessionWindows.of(timedelta(seconds=1)))
    >>> shown(play(sessions.count(), ("ann", 5, 0), ("ann", 2, 500)))
    ann@0/0: 1
    ann@0/0: None
    ann@0/500: 2
    """

    @overload
    def aggregate(
        self,
        initializer: Initializer[A],
        aggregator: Callable[[K, V, A], A],
        merger: Callable[[K, A, A], A],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], A]: ...
    @overload
    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[K, V, A], A],
        merger: Callable[[K, A, A], A],
        name: str | None = None,
        *,
        value: TypeForm[A],
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], A]: ...
    @overload
    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[K, V, A], A],
        merger: Callable[[K, A, A], A],
        name: str | None = None,
        *,
        value: Serde[A],
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], A]: ...
    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[K, V, Any], Any],
        merger: Callable[[K, Any, Any], Any],
        name: str | None = None,
        *,
        value: Any = NOT_GIVEN,
        store: str | None = SAME_AS_NAME,
        key: Any = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], Any]:
        """Fold the values of each key and session; ``merger(key, left, right)`` merges two sessions.

        >>> sessions = orders.group_by_key().windowed_by(SessionWindows.of(timedelta(seconds=1)))
        >>> total = sessions.aggregate(lambda: 0, lambda key, amount, total: total + amount, lambda key, a, b: a + b)
        >>> shown(play(total, ("ann", 5, 0), ("ann", 7, 5000)))
        ann@0/0: 5
        ann@5000/5000: 7
        """
        fold = Fold(initializer, aggregator, merger)
        return KTable(self._ref.aggregate(fold, name, StoreArguments(store, key, value, options)))
