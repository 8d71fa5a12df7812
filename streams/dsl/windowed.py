"""Grouped streams in time windows: TimeWindowedKStream and SessionWindowedKStream.

In the examples ``orders`` is a stream of amounts by customer; ``play`` shows the output for some
input, and ``shown`` prints windowed keys as key@start/end.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, Unpack, overload

from attrs import define
from typing_extensions import TypeForm

from streams.core.errors import TopologyError
from streams.core.records import Windowed
from streams.core.serdes import Serde
from streams.core.windows import UnlimitedWindows
from streams.dsl.aggregation import StreamAggregation
from streams.dsl.initializer import Initializer
from streams.dsl.materialized import NOT_GIVEN, SAME_AS_NAME, StoreArguments, WindowStoreOptions
from streams.dsl.operators import Fold
from streams.dsl.suppressed import EmitStrategy
from streams.dsl.table import KTable
from streams.dsl.windowing import Windowing

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


def _emitting(aggregation: StreamAggregation, strategy: EmitStrategy) -> StreamAggregation:
    """Return the aggregation with another emit strategy."""
    if not isinstance(strategy, EmitStrategy):
        raise TopologyError(f"emit_strategy needs EmitStrategy.ON_WINDOW_UPDATE or ON_WINDOW_CLOSE, got {strategy!r}")
    is_on_close = strategy is EmitStrategy.ON_WINDOW_CLOSE
    return StreamAggregation(aggregation.group, Windowing(aggregation.windowing.windows, is_on_close))


@define(eq=False, repr=False)
class TimeWindowedKStream(Generic[K, V]):
    """A grouped stream in tumbling, hopping, sliding or unlimited windows.

    In all aggregations ``name`` is also the store name unless ``store`` is given.
    """

    _ref: StreamAggregation

    def __repr__(self) -> str:
        return f"<TimeWindowedKStream {self._ref.group.name}>"

    def emit_strategy(self, strategy: EmitStrategy) -> "TimeWindowedKStream[K, V]":
        """Choose whether results are forwarded with each update (the default) or once when a window closes.

        >>> windowed = orders.group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1)))
        >>> final = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
        >>> shown(play(final, ("ann", 5, 0), ("ann", 2, 500), ("bob", 1, 1000)))
        ann@0/1000: 2
        """
        emitting = _emitting(self._ref, strategy)
        if emitting.windowing.emits_on_close and isinstance(emitting.windowing.windows, UnlimitedWindows):
            raise TopologyError(f"emit_strategy of {self!r}: unlimited windows never close; use ON_WINDOW_UPDATE")
        return TimeWindowedKStream(emitting)

    def count(
        self,
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], int]:
        """Count the records of each key and window.

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
class SessionWindowedKStream(Generic[K, V]):
    """A grouped stream in session windows, which grow while records of a key are within the inactivity gap.

    In all aggregations ``name`` is also the store name unless ``store`` is given.
    """

    _ref: StreamAggregation

    def __repr__(self) -> str:
        return f"<SessionWindowedKStream {self._ref.group.name}>"

    def emit_strategy(self, strategy: EmitStrategy) -> "SessionWindowedKStream[K, V]":
        """Choose whether results are forwarded with each update (the default) or once when a session closes.

        >>> sessions = orders.group_by_key().windowed_by(SessionWindows.of(timedelta(seconds=1)))
        >>> final = sessions.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
        >>> shown(play(final, ("ann", 5, 0), ("ann", 2, 500), ("bob", 1, 1502)))
        ann@0/500: 2
        """
        return SessionWindowedKStream(_emitting(self._ref, strategy))

    def count(
        self,
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], int]:
        """Count the records of each key and session; a session that is merged into another session is deleted.

        >>> sessions = orders.group_by_key().windowed_by(SessionWindows.of(timedelta(seconds=1)))
        >>> shown(play(sessions.count(), ("ann", 5, 0), ("ann", 2, 500)))
        ann@0/0: 1
        ann@0/0: None
        ann@0/500: 2
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
        """Combine the values of each key and session with ``reducer(old, new)``.

        >>> sessions = orders.group_by_key().windowed_by(SessionWindows.of(timedelta(seconds=1)))
        >>> shown(play(sessions.reduce(max), ("ann", 5, 0), ("ann", 2, 5000)))
        ann@0/0: 5
        ann@5000/5000: 2
        """
        return KTable(self._ref.reduce(reducer, name, StoreArguments(store, key, value, options)))

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
