"""Joins of a table with a table, by key or by foreign key, implemented as functions that take references.

The public signatures and their documentation are in ``KTable``.  The functions here add the nodes of each join to the
logical graph, with the same names and numbers as in Kafka Streams.  The module imports only ``core`` from outside
``dsl``.
"""

from collections.abc import Callable, Mapping
from typing import Any

from streams.core.errors import TopologyError
from streams.dsl.building import foreign_key_joins
from streams.dsl.building.side_outputs import SideOutputs
from streams.dsl.functions import matching_form, result_type
from streams.dsl.logical import LogicalNode
from streams.dsl.materialized import Materialized, StoreArguments, key_value
from streams.dsl.names import check_name
from streams.dsl.nodes import LogicalOperator, LogicalTableTableJoin
from streams.dsl.processing import JoinedValues, JoinKind, TableJoinMerge, TableTableJoin
from streams.dsl.ref import StreamRef, TableRef, check_builder
from streams.dsl.serde_variables import declared_or_annotated, joint, overridden
from streams.dsl.table_state import DerivedState

_JOINER_FORMS = ("(left, right)", "(key, left, right)")
_VERBS = {JoinKind.INNER: "join", JoinKind.LEFT: "left_join", JoinKind.OUTER: "outer_join"}


def join(
    table: TableRef,
    other: TableRef | Any,
    joiner: Callable[..., Any],
    kind: JoinKind,
    name: str | None,
    options: Mapping[str, Any],
) -> TableRef:
    """Add a ``join``, ``left_join`` or ``outer_join``, by key or by foreign key, to the logical graph."""
    verb = _VERBS[kind]
    if not isinstance(other, TableRef):
        raise TopologyError(f"{verb} of {table!r} needs another table, got {other!r}")
    check_builder(table, other, verb)
    with_key = matching_form(joiner, verb, _JOINER_FORMS) == 1
    if name is not None:
        check_name(name)
    if "foreign_key" not in options:
        return _join(table, other, joiner, with_key, kind, name, dict(options))
    if kind is JoinKind.OUTER:
        raise TopologyError("outer_join does not take foreign_key=; use join or left_join")
    return foreign_key_joins.join(table, other, joiner, with_key, name, dict(options), is_left=kind is JoinKind.LEFT)


def _join(
    table: TableRef,
    other: TableRef,
    joiner: Callable[..., Any],
    with_key: bool,
    kind: JoinKind,
    name: str | None,
    options: dict[str, Any],
) -> TableRef:
    graph = table.graph
    arguments = StoreArguments.of(options)
    key = overridden(table.key, arguments.key, table.name)
    value = declared_or_annotated(arguments.value, result_type(joiner), table.name)
    materialized: Materialized | None = None
    if arguments.is_given:
        materialized = key_value(graph, arguments.store_name(None), "KTABLE-MERGE-", key, value, arguments.options)
    merge_name = value.node = graph.names.node(name, "KTABLE-MERGE-")
    key.unify(other.key)
    if kind is not JoinKind.INNER:
        table.state.enable_old(True)
    if kind is JoinKind.OUTER:
        other.state.enable_old(True)
    this_name = graph.names.suffixed(name, "-join-this", "KTABLE-JOINTHIS-")
    other_name = graph.names.suffixed(name, "-join-other", "KTABLE-JOINOTHER-")
    left_values = table.state.values()
    right_values = other.state.values()
    state = DerivedState(
        (table.state, other.state),
        materialized,
        lambda left, right: JoinedValues(left, right, joiner, kind, with_key),
    )
    versioned: set[str] = set()
    this = LogicalOperator(
        lambda: TableTableJoin(
            right_values, joiner, with_key, kind, True, state.send_old, table.node.name in versioned, state.closings
        ),
        connected=lambda: right_values.stores,
    )
    that = LogicalOperator(
        lambda: TableTableJoin(
            left_values, joiner, with_key, kind, False, state.send_old, other.node.name in versioned, state.closings
        ),
        connected=lambda: left_values.stores,
    )
    merge = LogicalOperator(lambda: TableJoinMerge(state.store, state.send_old), state.specs)
    content = LogicalTableTableJoin(table.name, other.name, this_name, other_name, this, that, merge)
    node = LogicalNode(
        merge_name,
        content,
        is_output_versioned=materialized is not None and materialized.is_versioned,
        versioned_parents=versioned,
    )
    graph.add((table.node, other.node), node)
    joined = TableRef(graph, node, key, value, state)
    rows = StreamRef(graph, node, key, joint(table.value, other.value, merge_name))
    joined.side = SideOutputs.at(node, rows, this_name, other_name)
    return joined
