"""KGroupedTable: rows of a table grouped by a new key.

In the examples ``customers`` is a table of names; ``play`` shows what comes out for some input.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, Unpack, overload

from attrs import define
from typing_extensions import TypeForm

from streams.core.serdes import Serde
from streams.dsl.aggregation import AGGREGATOR_FORM, REDUCER_FORM, aggregate_slot, count_slot
from streams.dsl.functions import settled
from streams.dsl.initializer import Initializer
from streams.dsl.logical import LogicalGraph, LogicalNode
from streams.dsl.materialized import NOT_GIVEN, SAME_AS_NAME, Materialized, StoreOptions, key_value, store_name
from streams.dsl.names import REPARTITION_SUFFIX
from streams.dsl.nodes import Process, Repartition
from streams.dsl.operators import TableAggregate, TableCount, TableReduce, change_serde
from streams.dsl.slots import Slot, overridden
from streams.dsl.table import KTable
from streams.dsl.table_state import AggregateState
from streams.topology.operator import Operator

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

_AGGREGATE = "KTABLE-AGGREGATE-"
_REDUCE = "KTABLE-REDUCE-"


@define(eq=False, repr=False)
class KGroupedTable(Generic[K, V]):
    """Rows of a table under new keys; where a row changes, the old one is taken out of its group.

    In all aggregations ``name`` also names the store, unless ``store`` does.
    """

    _graph: LogicalGraph
    _name: str
    _key: Slot
    _value: Slot
    _sources: frozenset[str]
    _node: LogicalNode
    _topic: str | None
    _repartition: LogicalNode | None = None

    def __repr__(self) -> str:
        return f"<KGroupedTable {self._name}>"

    def count(
        self,
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, int]:
        """Count the rows of each group.

        >>> initials = customers.group_by(lambda customer, name: (name[0], name))
        >>> play(initials.count(), ("customers", "c1", "Ann"), ("customers", "c2", "Abe"))
        [('A', 1), ('A', 2)]
        """
        slot = overridden(self._key, key, self._name)
        kept = key_value(self._graph, store_name(name, store), _AGGREGATE, slot, count_slot(self._name), options)
        return self._aggregated(name, _AGGREGATE, kept, lambda send_old: TableCount(kept.store, send_old))

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, V]:
        """Combine the rows of each group: ``adder(aggregate, new)`` and ``subtractor(aggregate, old)``.

        >>> lengths = customers.group_by(lambda customer, name: ("all", len(name)))
        >>> total = lengths.reduce(lambda total, new: total + new, lambda total, old: total - old)
        >>> play(total, ("customers", "c1", "Ann"), ("customers", "c1", "Bobby"))
        [('all', 3), ('all', 5)]
        """
        settled(adder, "adder of reduce", REDUCER_FORM)
        settled(subtractor, "subtractor of reduce", REDUCER_FORM)
        key_slot = overridden(self._key, key, self._name)
        value_slot = overridden(self._value, value, self._name)
        kept = key_value(self._graph, store_name(name, store), _AGGREGATE, key_slot, value_slot, options)
        return self._aggregated(
            name, _REDUCE, kept, lambda send_old: TableReduce(kept.store, adder, subtractor, send_old)
        )

    @overload
    def aggregate(
        self,
        initializer: Initializer[A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
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
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
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
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
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
        adder: Callable[[K, V, Any], Any],
        subtractor: Callable[[K, V, Any], Any],
        name: str | None = None,
        *,
        value: Any = NOT_GIVEN,
        store: str | None = SAME_AS_NAME,
        key: Any = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, Any]:
        """Fold the rows of each group: ``adder`` and ``subtractor`` take (key, value, aggregate).

        >>> initials = customers.group_by(lambda customer, name: (name[0], name))
        >>> longest = initials.aggregate(
        ...     lambda: 0, lambda key, name, total: total + len(name), lambda key, name, total: total - len(name))
        >>> play(longest, ("customers", "c1", "Ann"), ("customers", "c2", "Abel"))
        [('A', 3), ('A', 7)]
        """
        settled(initializer, "initializer of aggregate", "()")
        settled(adder, "adder of aggregate", AGGREGATOR_FORM)
        settled(subtractor, "subtractor of aggregate", AGGREGATOR_FORM)
        key_slot = overridden(self._key, key, self._name)
        value_slot = aggregate_slot(value, initializer, (adder, subtractor), self._name)
        kept = key_value(self._graph, store_name(name, store), _AGGREGATE, key_slot, value_slot, options)
        return self._aggregated(
            name,
            _AGGREGATE,
            kept,
            lambda send_old: TableAggregate(kept.store, initializer, adder, subtractor, send_old),
        )

    def _aggregated(
        self, name: str | None, prefix: str, kept: Materialized, make: Callable[[bool], Operator]
    ) -> KTable[Any, Any]:
        names = self._graph.names
        sink = names.suffixed(name, "-sink", "KSTREAM-SINK-")
        source = names.suffixed(name, "-source", "KSTREAM-SOURCE-")
        full_name = kept.value.node = names.given(name, prefix)
        if self._repartition is None or self._topic is None:
            topic = (self._topic or kept.store) + REPARTITION_SUFFIX
            content = Repartition(
                topic, sink, source, None, self._key, self._value, is_optimizable=False, change_of=change_serde
            )
            self._repartition = LogicalNode(source, content)
        repartition = self._graph.add(self._node, self._repartition)
        state = AggregateState(kept)
        node = LogicalNode(
            full_name, Process(lambda: make(state.send_old), state.specs), is_output_versioned=kept.is_versioned
        )
        self._graph.add(repartition, node)
        sources = frozenset((repartition.name,))
        return KTable(self._graph, full_name, kept.key, kept.value, sources, state, node)
