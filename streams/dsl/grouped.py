"""KGroupedStream: records grouped by key, to be counted, reduced or aggregated.

In the examples ``orders`` is a stream of amounts by customer; ``play`` shows the output for some
input.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, Unpack, overload

from attrs import define
from typing_extensions import TypeForm

from streams.core.errors import TopologyError
from streams.core.serdes import Serde
from streams.core.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from streams.dsl.aggregation import (
    AGGREGATE,
    REDUCE,
    REDUCER_FORM,
    aggregate_stream,
    aggregate_variable,
    check_aggregate,
    count_variable,
)
from streams.dsl.cogrouped import CogroupedKStream, CogroupRef
from streams.dsl.functions import check_function
from streams.dsl.initializer import Initializer
from streams.dsl.materialized import NOT_GIVEN, SAME_AS_NAME, StoreArguments, StoreOptions, key_value, store_name
from streams.dsl.operators import COUNT, Fold, StreamAggregate, reduction
from streams.dsl.ref import GroupRef
from streams.dsl.serde_variables import overridden
from streams.dsl.table import KTable
from streams.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


@define(eq=False, repr=False)
class KGroupedStream(Generic[K, V]):
    """Records of type ``V`` grouped by keys of type ``K``.

    In all aggregations ``name`` is also the store name unless ``store`` is given.  Records without key
    or value are dropped.
    """

    _ref: GroupRef

    def __repr__(self) -> str:
        return repr(self._ref)

    def count(
        self,
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, int]:
        """Count the records of each key.

        >>> play(orders.group_by_key().count("orders-per-customer"), ("ann", 5), ("bob", 1), ("ann", 2))
        [('ann', 1), ('bob', 1), ('ann', 2)]
        """
        group, names = self._ref, self._ref.graph.names
        arguments = StoreArguments(store, key, NOT_GIVEN, options)
        wanted = arguments.store_name(name)
        if wanted is None and arguments.is_given:
            names.store(AGGREGATE)  # As in Kafka Streams, a number is taken from the counter but not used.
        keys = overridden(group.key, key, group.name)
        materialized = key_value(group.graph, wanted, AGGREGATE, keys, count_variable(group.name), options)
        full_name = names.given(name, AGGREGATE)
        return KTable(
            aggregate_stream(
                group, full_name, materialized, lambda send_old: StreamAggregate(materialized.store, COUNT, send_old)
            )
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, V]:
        """Combine the values of each key with ``reducer(old, new)``; the first value is the initial result.

        >>> play(orders.group_by_key().reduce(max), ("ann", 5), ("ann", 2), ("ann", 7))
        [('ann', 5), ('ann', 5), ('ann', 7)]
        """
        check_function(reducer, "reduce", REDUCER_FORM)
        group = self._ref
        types = overridden(group.key, key, group.name), overridden(group.value, value, group.name)
        wanted = store_name(name, store)
        materialized = key_value(group.graph, wanted, REDUCE, *types, options)
        full_name = group.graph.names.given(name, REDUCE)
        return KTable(
            aggregate_stream(
                group,
                full_name,
                materialized,
                lambda send_old: StreamAggregate(materialized.store, reduction(reducer), send_old),
            )
        )

    @overload
    def aggregate(
        self,
        initializer: Initializer[A],
        aggregator: Callable[[K, V, A], A],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, A]: ...
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
        **options: Unpack[StoreOptions],
    ) -> KTable[K, A]: ...
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
        **options: Unpack[StoreOptions],
    ) -> KTable[K, A]: ...
    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[K, V, Any], Any],
        name: str | None = None,
        *,
        value: Any = NOT_GIVEN,
        store: str | None = SAME_AS_NAME,
        key: Any = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, Any]:
        """Fold the values of each key with ``aggregator(key, value, aggregate)``, starting with ``initializer()``.

        ``value`` is the type of the aggregate, which is needed if the type does not follow from the initializer.

        >>> amounts = orders.group_by_key().aggregate(list, lambda key, amount, seen: [*seen, amount], value=list[int])
        >>> play(amounts, ("ann", 5), ("ann", 2))
        [('ann', [5]), ('ann', [5, 2])]
        """
        check_aggregate("aggregate", initializer, aggregator)
        group = self._ref
        keys = overridden(group.key, key, group.name)
        values = aggregate_variable(value, initializer, (aggregator,), group.name)
        wanted = store_name(name, store)
        materialized = key_value(group.graph, wanted, AGGREGATE, keys, values, options)
        full_name = values.node = group.graph.names.given(name, AGGREGATE)

        def make(send_old: bool) -> StreamAggregate:
            return StreamAggregate(materialized.store, Fold(initializer, aggregator), send_old)

        return KTable(aggregate_stream(group, full_name, materialized, make))

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows | UnlimitedWindows) -> TimeWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...
    def windowed_by(self, windows: Any) -> Any:
        """Group the records by time window as well as by key.

        >>> windows = TimeWindows.of(timedelta(seconds=1))
        >>> shown(play(orders.group_by_key().windowed_by(windows).count(), ("ann", 5, 100), ("ann", 2, 1000)))
        ann@0/1000: 1
        ann@1000/2000: 1
        """
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self._ref, windows)
        if isinstance(windows, TimeWindows | SlidingWindows | UnlimitedWindows):
            return TimeWindowedKStream(self._ref, windows)
        raise TopologyError(
            f"windowed_by of {self!r} needs TimeWindows, SlidingWindows, SessionWindows or UnlimitedWindows, "
            f"got {windows!r}"
        )

    @overload
    def cogroup(self, aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]: ...
    @overload
    def cogroup(self, aggregator: Callable[[K, V, A], A], *, value: TypeForm[A]) -> CogroupedKStream[K, A]: ...
    @overload
    def cogroup(self, aggregator: Callable[[K, V, A], A], *, value: Serde[A]) -> CogroupedKStream[K, A]: ...
    def cogroup(self, aggregator: Callable[[K, V, Any], Any], *, value: Any = NOT_GIVEN) -> CogroupedKStream[K, Any]:
        """Start an aggregation over several grouped streams (KIP-150); ``value`` is the type of the aggregate.

        >>> seen = totals.to_stream().group_by_key()
        >>> most = orders.group_by_key().cogroup(lambda customer, amount, most: max(amount, most), value=int)
        >>> most = most.cogroup(seen, lambda customer, total, most: max(total, most))
        >>> play(most.aggregate(lambda: 0), ("ann", 5), ("totals", "ann", 9), ("ann", 7))
        [('ann', 5), ('ann', 9), ('ann', 9)]
        """
        return CogroupedKStream(CogroupRef(self._ref.graph, {}, value).with_group(self._ref, aggregator))
