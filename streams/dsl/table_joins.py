"""Joins of a table with a table, by key or by foreign key.

KTable has the signatures; here is what they add to the logical graph, with the names and
numbers of Kafka Streams.  Imports operators and the logical graph.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from streams.core.errors import TopologyError
from streams.dsl import foreign_key_joins
from streams.dsl.functions import result_type, settle
from streams.dsl.logical import LogicalNode
from streams.dsl.materialized import NOT_GIVEN, Materialized, key_value, store_name
from streams.dsl.names import check_name
from streams.dsl.nodes import Process
from streams.dsl.nodes import TableTableJoin as TableTableJoinNode
from streams.dsl.operators import JoinedValues, JoinKind, TableJoinMerge, TableTableJoin
from streams.dsl.slots import declared, hinted, overridden
from streams.dsl.stateless import check_builder
from streams.dsl.table_state import JoinedState

if TYPE_CHECKING:
    from streams.dsl.table import KTable

_JOINER_FORMS = ("(left, right)", "(key, left, right)")
_VERBS = {JoinKind.INNER: "join", JoinKind.LEFT: "left_join", JoinKind.OUTER: "outer_join"}


def joined(
    table: "KTable[Any, Any]",
    other: Any,
    joiner: Callable[..., Any],
    kind: JoinKind,
    name: str | None,
    options: Mapping[str, Any],
) -> "KTable[Any, Any]":
    """Join by key, or by foreign key where one is given."""
    verb = _VERBS[kind]
    if not isinstance(other, type(table)):
        raise TopologyError(f"{verb} of {table!r} needs another table, got {other!r}")
    check_builder(table, other, verb)
    with_key = settle(joiner, verb, _JOINER_FORMS) == 1
    if name is not None:
        check_name(name)
    if "foreign_key" not in options:
        return _join(table, other, joiner, with_key, kind, name, dict(options))
    if kind is JoinKind.OUTER:
        raise TopologyError("outer_join does not take foreign_key=; use join or left_join")
    return foreign_key_joins.joined(table, other, joiner, with_key, name, dict(options), is_left=kind is JoinKind.LEFT)


def _join(
    table: "KTable[Any, Any]",
    other: "KTable[Any, Any]",
    joiner: Callable[..., Any],
    with_key: bool,
    kind: JoinKind,
    name: str | None,
    options: dict[str, Any],
) -> "KTable[Any, Any]":
    graph = table._graph
    key_form, value_form = options.pop("key", NOT_GIVEN), options.pop("value", NOT_GIVEN)
    store = options.pop("store", None)
    is_given = store is not None or bool(options) or key_form is not NOT_GIVEN or value_form is not NOT_GIVEN
    key = overridden(table._key, key_form, table._name)
    value = hinted(result_type(joiner), table._name) if value_form is NOT_GIVEN else declared(value_form, table._name)
    kept: Materialized | None = None
    if is_given:
        kept = key_value(graph, store_name(None, store), "KTABLE-MERGE-", key, value, options)
    merge_name = graph.names.given(name, "KTABLE-MERGE-")
    value.node = merge_name
    key.same_as(other._key)
    sources = graph.copartition(table._sources | other._sources)
    if kind is not JoinKind.INNER:
        table._state.enable_old(True)
    if kind is JoinKind.OUTER:
        other._state.enable_old(True)
    this_name = graph.names.suffixed(name, "-join-this", "KTABLE-JOINTHIS-")
    other_name = graph.names.suffixed(name, "-join-other", "KTABLE-JOINOTHER-")
    left_values, right_values = table._state.values(), other._state.values()
    state = JoinedState(
        table._state,
        other._state,
        kept,
        lambda left, right: JoinedValues(left, right, joiner, kind, with_key),
    )
    versioned: set[str] = set()
    this = Process(
        lambda: TableTableJoin(
            right_values, joiner, with_key, kind, True, state.send_old, table._node.name in versioned
        ),
        connected=lambda: right_values.stores,
    )
    that = Process(
        lambda: TableTableJoin(
            left_values, joiner, with_key, kind, False, state.send_old, other._node.name in versioned
        ),
        connected=lambda: left_values.stores,
    )
    merge = Process(lambda: TableJoinMerge(state.store, state.send_old), state.specs)
    content = TableTableJoinNode(table._name, other._name, this_name, other_name, this, that, merge)
    node = LogicalNode(
        merge_name,
        content,
        is_output_versioned=kept is not None and kept.is_versioned,
        versioned_parents=versioned,
    )
    graph.add((table._node, other._node), node)
    return type(table)(graph, merge_name, key, value, sources, state, node)
