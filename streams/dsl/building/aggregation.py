"""Aggregations of grouped streams and tables: the repartition topic upstream, the store, and the table downstream.

The public signatures and their documentation are in the fluent classes.  The functions here add the nodes to the
logical graph, with the same names and numbers as in Kafka Streams.  The module imports only ``core`` from outside
``dsl``.
"""

from collections.abc import Callable
from typing import Any

from attrs import Factory, evolve, field, frozen

from streams.core.arguments import NOT_GIVEN
from streams.core.event_time.windows import SlidingWindows
from streams.core.serdes.serde_types import declared_type
from streams.core.serdes.serdes import LONG
from streams.dsl.building.early_results import with_early_results
from streams.dsl.building.side_outputs import SideOutputs
from streams.dsl.building.table_operators import map_values
from streams.dsl.building.windowing import UNWINDOWED, Windowing
from streams.dsl.functions import check_function, result_type
from streams.dsl.logical import LogicalNode
from streams.dsl.materialized import StoreArguments, key_value
from streams.dsl.nodes import LogicalOperator
from streams.dsl.processing import (
    COUNT,
    TABLE_COUNT,
    Fold,
    OwnAggregates,
    TableAggregate,
    TableFold,
    on_copies,
    reduction,
    state_fold,
    table_reduction,
)
from streams.dsl.ref import GroupedTableRef, GroupRef, TableRef
from streams.dsl.serde_variables import SerdeVariable, annotated, declared, overridden
from streams.dsl.summaries import summarized
from streams.dsl.table_state import SourceState

REDUCE = "KSTREAM-REDUCE-"
AGGREGATE = "KSTREAM-AGGREGATE-"
TABLE_REDUCE = "KTABLE-REDUCE-"
TABLE_AGGREGATE = "KTABLE-AGGREGATE-"

REDUCER_FORM = "(old, new)"
AGGREGATOR_FORM = "(key, value, aggregate)"
MERGER_FORM = "(key, left, right)"


@frozen
class StreamAggregation:
    """The aggregations of a grouped stream, by one kind of window or without windows."""

    group: GroupRef
    windowing: Windowing = UNWINDOWED
    #: The records that the first aggregation drops.
    side: SideOutputs = field(default=Factory(lambda self: SideOutputs.of(self.group), takes_self=True))

    def count(self, name: str | None, arguments: StoreArguments) -> TableRef:
        """Add the nodes of ``count`` to the logical graph, and return the table of counts."""
        is_sliding = isinstance(self.windowing.windows, SlidingWindows)
        if arguments.store_name(name) is None and arguments.is_given and not is_sliding:
            # As in Kafka Streams, a number is taken from the counter but not used.
            self.group.graph.names.store(AGGREGATE)
        return self._fold(name, AGGREGATE, COUNT, count_variable(self.group.name), arguments)

    def reduce(self, reducer: Callable[..., Any], name: str | None, arguments: StoreArguments) -> TableRef:
        """Add the nodes of ``reduce`` to the logical graph, and return the table of results."""
        check_function(reducer, "reduce", REDUCER_FORM)
        value = overridden(self.group.value, arguments.value, self.group.name)
        return self._fold(name, REDUCE, reduction(reducer), value, arguments)

    def aggregate(self, fold: Fold, name: str | None, arguments: StoreArguments) -> TableRef:
        """Add the nodes of ``aggregate`` to the logical graph; for sessions, ``fold`` also has the user's merger."""
        check_function(fold.initializer, "initializer of aggregate", "()")
        check_function(fold.aggregator, "aggregate", AGGREGATOR_FORM)
        functions: tuple[Any, ...] = (fold.aggregator,)
        if fold.merger is not None:
            check_function(fold.merger, "merger of aggregate", MERGER_FORM)
            functions = (fold.aggregator, fold.merger)
        value = aggregate_variable(arguments.value, fold.initializer, functions, self.group.name)
        fold = evolve(fold, initializer=OwnAggregates(fold.initializer))
        return self._fold(name, AGGREGATE, fold, value, arguments)

    def summarize(self, summary: Callable[..., Any], name: str | None, arguments: StoreArguments) -> TableRef:
        """Add the nodes of ``summarize`` to the logical graph: an aggregation, and what shows its states if needed."""
        group = self.group
        serde = group.value.serde
        written = summarized(summary, Any if serde is None else declared_type(serde) or Any, repr(group))
        form = written.form if arguments.value is NOT_GIVEN else arguments.value
        fold = state_fold(written.add, written.merge)
        if written.result is None:
            return self._fold(name, AGGREGATE, fold, declared(form, group.name), arguments)
        show = (written.result, declared(form, group.name))
        states = self._fold(name, AGGREGATE, fold, declared(written.state_form, group.name), arguments, show)
        results = StoreArguments(None, NOT_GIVEN, form, {})
        return map_values(states, written.result, name and f"{name}-result", results)

    def _fold(
        self,
        name: str | None,
        prefix: str,
        fold: Fold,
        value: SerdeVariable,
        arguments: StoreArguments,
        show: tuple[Callable[[Any], Any], SerdeVariable] | None = None,
    ) -> TableRef:
        group, windowing = self.group, self.windowing
        key = overridden(group.key, arguments.key, group.name)
        explicit_name = arguments.store_name(name)
        materialized = windowing.store(group.graph, explicit_name, prefix, key, value, arguments.options)
        if show is not None:
            materialized.show, materialized.shown = show
        full_name = value.node = group.graph.names.node(name, prefix)
        parent = group.partitioned_by_key(materialized.store)
        state = SourceState(materialized)
        content = LogicalOperator(lambda: windowing.operator(state, fold), state.specs)
        node = LogicalNode(
            full_name,
            content,
            is_output_versioned=materialized.is_versioned,
            grace_ms=windowing.closing_ms,
            window_ms=windowing.window_ms,
        )
        group.graph.add(parent, node)
        self.side.attach([node])
        table = TableRef(group.graph, node, windowing.table_key(key), value, state)
        return table if windowing.early is None else with_early_results(table, windowing, name)


@frozen
class TableAggregation:
    """The aggregations of a grouped table."""

    group: GroupedTableRef

    def count(self, name: str | None, arguments: StoreArguments) -> TableRef:
        """Add the nodes of ``count`` to the logical graph, and return the table of counts."""
        return self._fold(name, TABLE_AGGREGATE, TABLE_COUNT, count_variable(self.group.name), arguments)

    def reduce(
        self, adder: Callable[..., Any], subtractor: Callable[..., Any], name: str | None, arguments: StoreArguments
    ) -> TableRef:
        """Add the nodes of ``reduce`` to the logical graph, and return the table of results."""
        check_function(adder, "adder of reduce", REDUCER_FORM)
        check_function(subtractor, "subtractor of reduce", REDUCER_FORM)
        value = overridden(self.group.value, arguments.value, self.group.name)
        return self._fold(name, TABLE_REDUCE, table_reduction(adder, subtractor), value, arguments)

    def aggregate(self, fold: TableFold, name: str | None, arguments: StoreArguments) -> TableRef:
        """Add the nodes of ``aggregate`` to the logical graph, and return the table of aggregates."""
        check_function(fold.initializer, "initializer of aggregate", "()")
        check_function(fold.adder, "adder of aggregate", AGGREGATOR_FORM)
        check_function(fold.subtractor, "subtractor of aggregate", AGGREGATOR_FORM)
        functions = (fold.adder, fold.subtractor)
        value = aggregate_variable(arguments.value, fold.initializer, functions, self.group.name)
        fold = evolve(fold, initializer=OwnAggregates(fold.initializer))
        return self._fold(name, TABLE_AGGREGATE, fold, value, arguments)

    def _fold(
        self, name: str | None, prefix: str, fold: TableFold, value: SerdeVariable, arguments: StoreArguments
    ) -> TableRef:
        """Add the repartition topic of an aggregation, and the aggregation downstream of it."""
        group = self.group
        names = self.group.graph.names
        key = overridden(group.key, arguments.key, group.name)
        explicit_name = arguments.store_name(name)
        materialized = key_value(
            group.graph, explicit_name, TABLE_AGGREGATE, key, value, arguments.options, can_expire=True
        )
        sink = names.suffixed(name, "-sink", "KSTREAM-SINK-")
        source = names.suffixed(name, "-source", "KSTREAM-SOURCE-")
        full_name = value.node = names.node(name, prefix)
        repartition = group.partitioned_by_key(materialized.store, sink, source)
        state = SourceState(materialized)

        def operator() -> TableAggregate:
            table_fold = on_copies(fold, materialized.value.resolve()) if state.send_old else fold
            return TableAggregate(materialized.store, table_fold, state.send_old)

        content = LogicalOperator(operator, state.specs)
        node = LogicalNode(full_name, content, is_output_versioned=materialized.is_versioned)
        group.graph.add(repartition, node)
        return TableRef(group.graph, node, key, value, state)


def count_variable(node: str) -> SerdeVariable:
    """Return the serde variable for the values of a table of counts; ``node`` names the position in messages."""
    return SerdeVariable(node, LONG)


def aggregate_variable(value: Any, initializer: Any, functions: tuple[Any, ...], node: str) -> SerdeVariable:
    """Return the serde variable for aggregates, from ``value``, an annotation, or the initializer class."""
    if value is not NOT_GIVEN:
        return declared(value, node)
    for function in functions:
        variable = annotated(result_type(function), node)
        if variable.annotated is not None:
            return variable
    return annotated(result_type(initializer), node)
