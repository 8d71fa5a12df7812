"""What all aggregations of streams share: the repartition before, the store, the table behind.

Between the grouped streams and the logical graph.
"""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import define

from streams.core.serdes import LONG
from streams.dsl.functions import result_type, settled
from streams.dsl.logical import LogicalGraph, LogicalNode
from streams.dsl.materialized import NOT_GIVEN, Materialized
from streams.dsl.nodes import Process
from streams.dsl.repartition import repartition_node
from streams.dsl.slots import Slot, declared, hinted
from streams.dsl.table import KTable
from streams.dsl.table_state import AggregateState
from streams.topology.operator import Operator

REDUCE = "KSTREAM-REDUCE-"
AGGREGATE = "KSTREAM-AGGREGATE-"

REDUCER_FORM = "(old, new)"
AGGREGATOR_FORM = "(key, value, aggregate)"
MERGER_FORM = "(key, left, right)"

#: Makes the operator when it is known whether old values are sent.
MakeAggregate = Callable[[bool], Operator]


@define(eq=False)
class Group:
    """A grouped stream: where it stands, and whether its records must be brought together first."""

    graph: LogicalGraph
    name: str
    key: Slot
    value: Slot
    sources: frozenset[str]
    needs_repartition: bool
    node: LogicalNode
    #: As the user called the grouping, hence its repartition topic.
    topic: str | None
    repartition: LogicalNode | None = None

    def brought_together(self, store: str) -> tuple[LogicalNode, frozenset[str]]:
        """Return the node behind which all records of a key are in one partition, and its sources.

        The repartition topic is called like the grouping, which several aggregations then share, or
        like the store.
        """
        if not self.needs_repartition:
            return self.node, self.sources
        fresh = repartition_node(self.graph.names, self.topic or store, self.key, self.value)
        if self.repartition is None or self.topic is None:
            self.repartition = fresh
        self.graph.add(self.node, self.repartition)
        return self.repartition, frozenset((self.repartition.name,))


def is_given(store: str | None, key: Any, value: Any, options: Mapping[str, Any]) -> bool:
    """Whether the user said anything about the store."""
    return store is not None or key is not NOT_GIVEN or value is not NOT_GIVEN or bool(options)


def aggregated(
    group: Group,
    name: str,
    kept: Materialized,
    make: MakeAggregate,
    key: Slot | None = None,
    *,
    grace_ms: int | None = None,
) -> KTable[Any, Any]:
    """Add an aggregation and return its table; ``key`` is that of a windowed table."""
    parent, sources = group.brought_together(kept.store)
    state = AggregateState(kept)
    content = Process(lambda: make(state.send_old), state.specs)
    node = LogicalNode(name, content, is_output_versioned=kept.is_versioned, grace_ms=grace_ms)
    group.graph.add(parent, node)
    return KTable(group.graph, name, key or kept.key, kept.value, sources, state, node)


def count_slot(node: str) -> Slot:
    """Return the slot of counts."""
    return Slot(node, LONG)


def aggregate_slot(value: Any, initializer: Any, functions: tuple[Any, ...], node: str) -> Slot:
    """Return the slot of aggregates: as declared, as a function says, or as the initializer's class."""
    if value is not NOT_GIVEN:
        return declared(value, node)
    for function in functions:
        slot = hinted(result_type(function), node)
        if slot.hinted is not None:
            return slot
    return hinted(result_type(initializer), node)


def check_aggregate(verb: str, initializer: Any, aggregator: Any) -> None:
    """Refuse functions that an aggregation cannot call."""
    settled(initializer, f"initializer of {verb}", "()")
    settled(aggregator, verb, AGGREGATOR_FORM)
