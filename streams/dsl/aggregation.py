"""Common steps of aggregations: the repartition topic upstream, the store, and the table downstream.

Grouped streams and tables use this module to extend the logical graph.  Imports references, logical nodes
and stores.
"""

from collections.abc import Callable
from typing import Any

from streams.core.serdes import LONG
from streams.dsl.functions import check_function, result_type
from streams.dsl.logical import LogicalNode
from streams.dsl.materialized import NOT_GIVEN, Materialized
from streams.dsl.nodes import LogicalOperator
from streams.dsl.ref import GroupedTableRef, GroupRef, TableRef
from streams.dsl.serde_variables import SerdeVariable, annotated, declared
from streams.dsl.table_state import AggregateState
from streams.topology import Operator

REDUCE = "KSTREAM-REDUCE-"
AGGREGATE = "KSTREAM-AGGREGATE-"
TABLE_REDUCE = "KTABLE-REDUCE-"
TABLE_AGGREGATE = "KTABLE-AGGREGATE-"

REDUCER_FORM = "(old, new)"
AGGREGATOR_FORM = "(key, value, aggregate)"
MERGER_FORM = "(key, left, right)"

#: Makes the operator when the graph is complete; the argument is whether the operator forwards old values.
MakeAggregate = Callable[[bool], Operator]


def aggregate_stream(
    group: GroupRef,
    name: str,
    materialized: Materialized,
    make: MakeAggregate,
    key: SerdeVariable | None = None,
    *,
    grace_ms: int | None = None,
) -> TableRef:
    """Add an aggregation of a grouped stream; ``key`` is the variable of windowed keys."""
    parent, sources = group.partitioned_by_key(materialized.store)
    state = AggregateState(materialized)
    content = LogicalOperator(lambda: make(state.send_old), state.specs)
    node = LogicalNode(name, content, is_output_versioned=materialized.is_versioned, grace_ms=grace_ms)
    group.graph.add(parent, node)
    return TableRef(group.graph, node, key or materialized.key, materialized.value, sources, state)


def aggregate_table(
    group: GroupedTableRef, name: str | None, prefix: str, materialized: Materialized, make: MakeAggregate
) -> TableRef:
    """Add an aggregation of a grouped table, downstream of its repartition topic."""
    names = group.graph.names
    sink = names.suffixed(name, "-sink", "KSTREAM-SINK-")
    source = names.suffixed(name, "-source", "KSTREAM-SOURCE-")
    full_name = materialized.value.node = names.given(name, prefix)
    repartition = group.partitioned_by_key(materialized.store, sink, source)
    state = AggregateState(materialized)
    content = LogicalOperator(lambda: make(state.send_old), state.specs)
    node = LogicalNode(full_name, content, is_output_versioned=materialized.is_versioned)
    group.graph.add(repartition, node)
    sources = frozenset((repartition.name,))
    return TableRef(group.graph, node, materialized.key, materialized.value, sources, state)


def count_variable(node: str) -> SerdeVariable:
    """Return the serde variable for counts."""
    return SerdeVariable(node, LONG)


def aggregate_variable(value: Any, initializer: Any, functions: tuple[Any, ...], node: str) -> SerdeVariable:
    """Return the serde variable for aggregates: declared, annotated, or from the class that serves as initializer."""
    if value is not NOT_GIVEN:
        return declared(value, node)
    for function in functions:
        variable = annotated(result_type(function), node)
        if variable.annotated is not None:
            return variable
    return annotated(result_type(initializer), node)


def check_aggregate(operator: str, initializer: Any, aggregator: Any) -> None:
    """Reject functions that an aggregation cannot call."""
    check_function(initializer, f"initializer of {operator}", "()")
    check_function(aggregator, operator, AGGREGATOR_FORM)
