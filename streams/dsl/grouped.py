"""``KGroupedStream``: records grouped by key, to be counted, reduced or aggregated.

In the examples ``orders`` is a stream of amounts by customer; ``play`` shows the output for some
input.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from attrs import Factory, define, field
from typing_extensions import TypeForm

from streams.core.arguments import NOT_GIVEN
from streams.core.event_time.windower import Windower
from streams.core.event_time.windows import (
    CalendarWindows,
    CountWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)
from streams.core.serdes.serdes import Serde
from streams.dsl.building.aggregation import StreamAggregation
from streams.dsl.building.windowing import Windowing, check_windows
from streams.dsl.cogrouped import CogroupedKStream, CogroupRef
from streams.dsl.initializer import Initializer
from streams.dsl.materialized import SAME_AS_NAME, StoreArguments, StoreOptions
from streams.dsl.processing import Fold
from streams.dsl.ref import GroupRef
from streams.dsl.table import KTable
from streams.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream

if TYPE_CHECKING:
    from streams.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


@define(eq=False, repr=False)
class KGroupedStream(Generic[K, V]):
    """Records of type ``V`` grouped by keys of type ``K``.

    In all aggregations ``name`` is also the store name unless ``store`` is given.  Records without a key or value are
    dropped.
    """

    _ref: GroupRef
    #: The aggregations without windows, which share their side outputs.
    _plain: StreamAggregation = field(
        init=False, default=Factory(lambda self: StreamAggregation(self._ref), takes_self=True)
    )

    def __repr__(self) -> str:
        return repr(self._ref)

    def dropped(self, name: str | None = None) -> "KStream[K | None, V | None]":
        """Return a stream of the records without a key or value, which an aggregation without windows drops.

        ``DropNote.of(headers)`` reads the reason from the headers of a record.  The records are those dropped by the
        first aggregation of this object.

        >>> grouped = totals.to_stream().group_by_key()
        >>> counts, dropped = grouped.count(), grouped.dropped()
        >>> play(dropped, ("totals", "ann", 1), ("totals", "ann", None))
        [('ann', None)]
        """
        from streams.dsl.stream import KStream

        return KStream(self._plain.side.dropped(name))

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
        return KTable(self._plain.count(name, StoreArguments(store, key, NOT_GIVEN, options)))

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
        return KTable(self._plain.reduce(reducer, name, StoreArguments(store, key, value, options)))

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

        ``value`` is the type of the aggregate; it is required if the type does not follow from the initializer.
        The aggregator may change the aggregate and return it; the initializer must return a new one each time.

        >>> amounts = orders.group_by_key().aggregate(list, lambda key, amount, seen: [*seen, amount], value=list[int])
        >>> play(amounts, ("ann", 5), ("ann", 2))
        [('ann', [5]), ('ann', [5, 2])]
        """
        fold = Fold(initializer, aggregator)
        arguments = StoreArguments(store, key, value, options)
        return KTable(self._plain.aggregate(fold, name, arguments))

    @overload
    def summarize(
        self,
        summary: Callable[[V], A],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, A]: ...
    @overload
    def summarize(
        self,
        summary: Callable[[V], Any],
        name: str | None = None,
        *,
        value: TypeForm[A] | Serde[A],
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, A]: ...
    def summarize(
        self,
        summary: Callable[[V], Any],
        name: str | None = None,
        *,
        value: Any = NOT_GIVEN,
        store: str | None = SAME_AS_NAME,
        key: Any = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, Any]:
        """Aggregate the values of each key as declared by ``summary``, with the aggregates of ``streams.agg``.

        ``summary`` is read once, when the topology is built, with an expression in place of the value.  It returns one
        aggregate, or an object of a class whose fields are computed from aggregates; its type is that of the table.
        A store of states that are not the result shows the result to queries.
        Conditions of records are ``where=`` of an aggregate.

        >>> spent = orders.group_by_key().summarize(lambda amount: agg.sum(amount) / agg.count())
        >>> play(spent, ("ann", 5), ("ann", 2))
        [('ann', 5.0), ('ann', 3.5)]

        Raises:
            TopologyError: the summary has a condition, a loop or a call that cannot be written down, uses the value
                outside of an aggregate, or has no aggregate.
        """
        return KTable(self._plain.summarize(summary, name, StoreArguments(store, key, value, options)))

    @overload
    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | UnlimitedWindows | CountWindows | CalendarWindows
    ) -> TimeWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: SessionWindows | Windower[K, V]) -> SessionWindowedKStream[K, V]: ...
    def windowed_by(self, windows: Any) -> Any:
        """Group the records by time window as well as by key.

        >>> windows = TimeWindows.of(timedelta(seconds=1))
        >>> shown(play(orders.group_by_key().windowed_by(windows).count(), ("ann", 5, 100), ("ann", 2, 1000)))
        ann@0/1000: 1
        ann@1000/2000: 1
        """
        check_windows(self, windows)
        kind = SessionWindowedKStream if isinstance(windows, SessionWindows | Windower) else TimeWindowedKStream
        return kind(StreamAggregation(self._ref, Windowing(windows)))

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
        return CogroupedKStream(CogroupRef(self._ref.graph, (), value).with_group(self._ref, aggregator))
