"""Grouped streams in time windows: TimeWindowedKStream and SessionWindowedKStream.

In the examples ``orders`` is a stream of amounts by customer; ``play`` shows the output for some
input, and ``shown`` prints windowed keys as key@start/end.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, Unpack, overload

from attrs import define
from typing_extensions import TypeForm

from streams.core.errors import TopologyError
from streams.core.records import Windowed
from streams.core.serdes import Serde
from streams.core.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows
from streams.dsl.aggregation import (
    AGGREGATE,
    MERGER_FORM,
    REDUCE,
    REDUCER_FORM,
    MakeAggregate,
    aggregate_stream,
    aggregate_variable,
    check_aggregate,
    count_variable,
)
from streams.dsl.functions import check_function
from streams.dsl.initializer import Initializer
from streams.dsl.materialized import (
    NOT_GIVEN,
    SAME_AS_NAME,
    Materialized,
    StoreArguments,
    WindowStoreOptions,
    store_name,
)
from streams.dsl.operators import COUNT, Fold, SessionAggregate, reduction, window_aggregate
from streams.dsl.ref import GroupRef
from streams.dsl.serde_variables import SerdeVariable, overridden
from streams.dsl.suppressed import EmitStrategy
from streams.dsl.table import KTable
from streams.dsl.window_stores import closing_ms, window_store, windowed_key
from streams.topology import Operator

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


def _aggregate(
    group: GroupRef, windows: Windows, materialized: Materialized, name: str | None, prefix: str, make: MakeAggregate
) -> KTable[Any, Any]:
    full_name = materialized.value.node = group.graph.names.given(name, prefix)
    keys = windowed_key(windows, materialized.key)
    return KTable(aggregate_stream(group, full_name, materialized, make, keys, grace_ms=closing_ms(windows)))


def _materialized(
    group: GroupRef,
    windows: Windows,
    wanted: str | None,
    prefix: str,
    key: Any,
    value: SerdeVariable,
    options: Mapping[str, Any],
    is_on_close: bool,
) -> Materialized:
    keys = overridden(group.key, key, group.name)
    return window_store(group.graph, windows, wanted, prefix, keys, value, options, emits_on_close=is_on_close)


def _checked(strategy: Any) -> EmitStrategy:
    if not isinstance(strategy, EmitStrategy):
        raise TopologyError(f"emit_strategy needs EmitStrategy.ON_WINDOW_UPDATE or ON_WINDOW_CLOSE, got {strategy!r}")
    return strategy


@define(eq=False, repr=False)
class TimeWindowedKStream(Generic[K, V]):
    """A grouped stream in tumbling, hopping, sliding or unlimited windows.

    In all aggregations ``name`` is also the store name unless ``store`` is given.
    """

    _ref: GroupRef
    _windows: TimeWindows | SlidingWindows | UnlimitedWindows
    _emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE

    def __repr__(self) -> str:
        return f"<TimeWindowedKStream {self._ref.name}>"

    @property
    def _is_on_close(self) -> bool:
        return self._emit is EmitStrategy.ON_WINDOW_CLOSE

    def emit_strategy(self, strategy: EmitStrategy) -> "TimeWindowedKStream[K, V]":
        """Choose whether results are forwarded with each update (the default) or once when a window closes.

        >>> windowed = orders.group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1)))
        >>> final = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
        >>> shown(play(final, ("ann", 5, 0), ("ann", 2, 500), ("bob", 1, 1000)))
        ann@0/1000: 2
        """
        if _checked(strategy) is EmitStrategy.ON_WINDOW_CLOSE and isinstance(self._windows, UnlimitedWindows):
            raise TopologyError(f"emit_strategy of {self!r}: unlimited windows never close; use ON_WINDOW_UPDATE")
        return TimeWindowedKStream(self._ref, self._windows, strategy)

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
        windows, on_close = self._windows, self._is_on_close
        wanted = store_name(name, store)
        is_sliding = isinstance(windows, SlidingWindows)
        if wanted is None and not is_sliding and StoreArguments(store, key, NOT_GIVEN, options).is_given:
            self._ref.graph.names.store(AGGREGATE)  # As Kafka Streams: a number is taken but not used.
        variable = count_variable(self._ref.name)
        materialized = _materialized(self._ref, windows, wanted, AGGREGATE, key, variable, options, on_close)

        def make(send_old: bool) -> Operator:
            return window_aggregate(materialized.store, windows, COUNT, send_old, on_close)

        return _aggregate(self._ref, windows, materialized, name, AGGREGATE, make)

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
        check_function(reducer, "reduce", REDUCER_FORM)
        windows, on_close = self._windows, self._is_on_close
        variable = overridden(self._ref.value, value, self._ref.name)
        materialized = _materialized(
            self._ref, windows, store_name(name, store), REDUCE, key, variable, options, on_close
        )

        def make(send_old: bool) -> Operator:
            return window_aggregate(materialized.store, windows, reduction(reducer), send_old, on_close)

        return _aggregate(self._ref, windows, materialized, name, REDUCE, make)

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
        check_aggregate("aggregate", initializer, aggregator)
        windows, on_close = self._windows, self._is_on_close
        variable = aggregate_variable(value, initializer, (aggregator,), self._ref.name)
        materialized = _materialized(
            self._ref, windows, store_name(name, store), AGGREGATE, key, variable, options, on_close
        )

        def make(send_old: bool) -> Operator:
            return window_aggregate(materialized.store, windows, Fold(initializer, aggregator), send_old, on_close)

        return _aggregate(self._ref, windows, materialized, name, AGGREGATE, make)


@define(eq=False, repr=False)
class SessionWindowedKStream(Generic[K, V]):
    """A grouped stream in session windows, which grow while records of a key are within the inactivity gap.

    In all aggregations ``name`` is also the store name unless ``store`` is given.
    """

    _ref: GroupRef
    _windows: SessionWindows
    _emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE

    def __repr__(self) -> str:
        return f"<SessionWindowedKStream {self._ref.name}>"

    @property
    def _is_on_close(self) -> bool:
        return self._emit is EmitStrategy.ON_WINDOW_CLOSE

    def emit_strategy(self, strategy: EmitStrategy) -> "SessionWindowedKStream[K, V]":
        """Choose whether results are forwarded with each update (the default) or once when a session closes.

        >>> sessions = orders.group_by_key().windowed_by(SessionWindows.of(timedelta(seconds=1)))
        >>> final = sessions.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
        >>> shown(play(final, ("ann", 5, 0), ("ann", 2, 500), ("bob", 1, 1502)))
        ann@0/500: 2
        """
        return SessionWindowedKStream(self._ref, self._windows, _checked(strategy))

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
        windows, on_close = self._windows, self._is_on_close
        wanted = store_name(name, store)
        if wanted is None and StoreArguments(store, key, NOT_GIVEN, options).is_given:
            self._ref.graph.names.store(AGGREGATE)  # As Kafka Streams: a number is taken but not used.
        variable = count_variable(self._ref.name)
        materialized = _materialized(self._ref, windows, wanted, AGGREGATE, key, variable, options, on_close)
        return _aggregate(
            self._ref,
            windows,
            materialized,
            name,
            AGGREGATE,
            lambda send_old: SessionAggregate(materialized.store, windows, COUNT, send_old, on_close),
        )

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
        check_function(reducer, "reduce", REDUCER_FORM)
        windows, on_close = self._windows, self._is_on_close
        variable = overridden(self._ref.value, value, self._ref.name)
        materialized = _materialized(
            self._ref, windows, store_name(name, store), REDUCE, key, variable, options, on_close
        )
        return _aggregate(
            self._ref,
            windows,
            materialized,
            name,
            REDUCE,
            lambda send_old: SessionAggregate(materialized.store, windows, reduction(reducer), send_old, on_close),
        )

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
        check_aggregate("aggregate", initializer, aggregator)
        check_function(merger, "merger of aggregate", MERGER_FORM)
        windows, on_close = self._windows, self._is_on_close
        variable = aggregate_variable(value, initializer, (aggregator, merger), self._ref.name)
        materialized = _materialized(
            self._ref, windows, store_name(name, store), AGGREGATE, key, variable, options, on_close
        )

        def make(send_old: bool) -> SessionAggregate:
            fold = Fold(initializer, aggregator, merger)
            return SessionAggregate(materialized.store, windows, fold, send_old, on_close)

        return _aggregate(self._ref, windows, materialized, name, AGGREGATE, make)
