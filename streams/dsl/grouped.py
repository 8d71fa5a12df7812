"""KGroupedStream: records grouped by key, to be counted, reduced or aggregated.

In the examples ``orders`` is a stream of amounts by customer; ``play`` shows what comes out for
some input.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, Unpack, overload

from typing_extensions import TypeForm

from streams.core.errors import TopologyError
from streams.core.serdes import Serde
from streams.core.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from streams.dsl.aggregation import (
    AGGREGATE,
    REDUCE,
    REDUCER_FORM,
    Group,
    aggregate_slot,
    aggregated,
    check_aggregate,
    count_slot,
    is_given,
)
from streams.dsl.cogrouped import CogroupedKStream
from streams.dsl.functions import settled
from streams.dsl.initializer import Initializer
from streams.dsl.logical import LogicalGraph, LogicalNode
from streams.dsl.materialized import NOT_GIVEN, SAME_AS_NAME, StoreOptions, key_value, store_name
from streams.dsl.names import check_name
from streams.dsl.operators import StreamAggregate, StreamCount, StreamReduce
from streams.dsl.slots import Slot, overridden
from streams.dsl.table import KTable
from streams.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


class KGroupedStream(Generic[K, V]):
    """Records of type ``V`` grouped by keys of type ``K``.

    In all aggregations ``name`` also names the store, unless ``store`` does; records without key
    or value are dropped.
    """

    __slots__ = ("_group",)

    def __init__(
        self,
        graph: LogicalGraph,
        name: str,
        key: Slot,
        value: Slot,
        sources: frozenset[str],
        needs_repartition: bool,
        node: LogicalNode,
        topic: str | None,
    ) -> None:
        if topic is not None:
            check_name(topic)
        self._group = Group(graph, name, key, value, sources, needs_repartition, node, topic)

    def __repr__(self) -> str:
        return f"<KGroupedStream {self._group.name}>"

    @property
    def _graph(self) -> LogicalGraph:
        return self._group.graph

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
        group, names = self._group, self._graph.names
        wanted = store_name(name, store)
        if wanted is None and is_given(wanted, key, NOT_GIVEN, options):
            names.store(AGGREGATE)  # Kafka Streams uses up this number, too.
        slot = overridden(group.key, key, group.name)
        kept = key_value(group.graph, wanted, AGGREGATE, slot, count_slot(group.name), options)
        full_name = names.given(name, AGGREGATE)
        return aggregated(group, full_name, kept, lambda send_old: StreamCount(kept.store, send_old))

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
        """Combine the values of each key by ``reducer(old, new)``; the first one is kept as it is.

        >>> play(orders.group_by_key().reduce(max), ("ann", 5), ("ann", 2), ("ann", 7))
        [('ann', 5), ('ann', 5), ('ann', 7)]
        """
        settled(reducer, "reduce", REDUCER_FORM)
        group = self._group
        key_slot = overridden(group.key, key, group.name)
        value_slot = overridden(group.value, value, group.name)
        kept = key_value(group.graph, store_name(name, store), REDUCE, key_slot, value_slot, options)
        full_name = self._graph.names.given(name, REDUCE)
        return aggregated(group, full_name, kept, lambda send_old: StreamReduce(kept.store, reducer, send_old))

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
        """Fold the values of each key by ``aggregator(key, value, aggregate)`` from ``initializer()`` on.

        ``value`` is the aggregate's type, where it cannot be read off the initializer.

        >>> amounts = orders.group_by_key().aggregate(list, lambda key, amount, seen: [*seen, amount], value=list[int])
        >>> play(amounts, ("ann", 5), ("ann", 2))
        [('ann', [5]), ('ann', [5, 2])]
        """
        check_aggregate("aggregate", initializer, aggregator)
        group = self._group
        key_slot = overridden(group.key, key, group.name)
        value_slot = aggregate_slot(value, initializer, (aggregator,), group.name)
        kept = key_value(group.graph, store_name(name, store), AGGREGATE, key_slot, value_slot, options)
        full_name = value_slot.node = self._graph.names.given(name, AGGREGATE)
        return aggregated(
            group, full_name, kept, lambda send_old: StreamAggregate(kept.store, initializer, aggregator, send_old)
        )

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows | UnlimitedWindows) -> TimeWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...
    def windowed_by(self, windows: Any) -> Any:
        """Group the records by windows of time, too.

        >>> windows = TimeWindows.of(timedelta(seconds=1))
        >>> shown(play(orders.group_by_key().windowed_by(windows).count(), ("ann", 5, 100), ("ann", 2, 1000)))
        ann@0/1000: 1
        ann@1000/2000: 1
        """
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self._group, windows)
        if isinstance(windows, TimeWindows | SlidingWindows | UnlimitedWindows):
            return TimeWindowedKStream(self._group, windows)
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
        """Begin an aggregate over several grouped streams (KIP-150); ``value`` is its type.

        >>> seen = totals.to_stream().group_by_key()
        >>> most = orders.group_by_key().cogroup(lambda customer, amount, most: max(amount, most), value=int)
        >>> most = most.cogroup(seen, lambda customer, total, most: max(total, most))
        >>> play(most.aggregate(lambda: 0), ("ann", 5), ("totals", "ann", 9), ("ann", 7))
        [('ann', 5), ('ann', 9), ('ann', 9)]
        """
        return CogroupedKStream[K, Any](self._graph, (), value)._with(self, aggregator)
