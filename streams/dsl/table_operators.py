"""The operators of KTable except joins, as functions of the table.

KTable has the signatures; here is what they add to the logical graph, with the names and
numbers of Kafka Streams.  Imports operators and the logical graph.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from attrs import frozen

from streams.core.errors import TopologyError
from streams.core.user_code import refuse_unawaited_methods
from streams.dsl.functions import pair_types, result_type, settle, settled
from streams.dsl.logical import LogicalNode
from streams.dsl.materialized import NOT_GIVEN, Materialized, key_value, store_name
from streams.dsl.names import check_name
from streams.dsl.nodes import Process
from streams.dsl.operators import (
    FilteredValues,
    MappedValues,
    Suppress,
    SuppressedValues,
    TableFilter,
    TableGroupMap,
    TableMapValues,
    TableTransformValues,
    TransformedValues,
    suppress_store,
)
from streams.dsl.slots import Slot, declared, hinted, overridden
from streams.dsl.suppressed import Suppressed
from streams.dsl.table_state import DerivedState, SuppressedState, TableState
from streams.state.specs import StoreSpec
from streams.topology.inline import TableToStream
from streams.topology.operator import NodeContext
from streams.topology.processors import ProcessorContext, StoreBuilder

if TYPE_CHECKING:
    from streams.dsl.grouped_table import KGroupedTable
    from streams.dsl.stream import KStream
    from streams.dsl.table import KTable

K = TypeVar("K", contravariant=True)
V = TypeVar("V", contravariant=True)
R = TypeVar("R", covariant=True)

_KEY_VALUE = "(key, value)"


class ValueTransformer(Generic[K, V, R]):
    """Makes a table's values from another table's, with access to stores; one instance per task.

    Stores may be class attributes, as of a ``Processor``.
    """

    context: ProcessorContext[Any, Any]

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        """Prepare; called once per task."""

    def transform(self, key: K, value: V | None) -> R | None:
        """Return the value of the row; None deletes it."""
        raise NotImplementedError(f"{type(self).__name__} must define transform(self, key, value)")

    def close(self) -> None:
        """Release what ``init`` took."""


def _asked_for(
    table: "KTable[Any, Any]",
    prefix: str | None,
    store: str | None,
    key: Any,
    value: Any,
    value_slot: Slot,
    options: Mapping[str, Any],
) -> tuple[bool, Slot, Slot, Materialized | None]:
    """Return whether the user said anything about a store, the slots, and the store if it has a name.

    As in Kafka Streams a store without a name is not made, but uses up a number.
    """
    is_given = store is not None or key is not NOT_GIVEN or value is not NOT_GIVEN or bool(options)
    key_slot = overridden(table._key, key, table._name)
    if not is_given:
        return False, key_slot, value_slot, None
    wanted = store_name(None, store)
    if wanted is None:
        if options.keys() - {"caching", "logging"}:
            raise TopologyError(
                f"operator on {table!r}: {min(options)}= concerns a store, but there is none; name it with store="
            )
        if prefix is not None:
            table._graph.names.store(prefix)
        return True, key_slot, value_slot, None
    return True, key_slot, value_slot, key_value(table._graph, wanted, "", key_slot, value_slot, options)


def _derived(
    table: "KTable[Any, Any]", node: LogicalNode, key: Slot, value: Slot, state: TableState
) -> "KTable[Any, Any]":
    table._graph.add(table._node, node)
    return type(table)(table._graph, node.name, key, value, table._sources, state, node)


def _versioned(is_given: bool, kept: Materialized | None) -> bool | None:
    """Return whether the output is versioned; None leaves the answer to the parent."""
    return (kept is not None and kept.is_versioned) if is_given else None


def filtered(
    table: "KTable[Any, Any]",
    predicate: Callable[..., object],
    name: str | None,
    store: str | None,
    key: Any,
    value: Any,
    options: Mapping[str, Any],
    *,
    negate: bool,
) -> "KTable[Any, Any]":
    """Add a filter."""
    settled(predicate, "filter_not" if negate else "filter", _KEY_VALUE)
    slot = overridden(table._value, value, table._name)
    is_given, key_slot, value_slot, kept = _asked_for(table, "KTABLE-FILTER-", store, key, value, slot, options)
    full_name = table._graph.names.given(name, "KTABLE-FILTER-")
    # A parent that keeps its rows tells what they were, which saves deletions of what was never there.
    sends_old = table._state.enable_old(False)
    state = DerivedState(
        table._state, kept, lambda parent: FilteredValues(parent, predicate, negate), send_old=sends_old
    )
    versioned: set[str] = set()
    content = Process(lambda: TableFilter(predicate, negate, state.store, state.send_old, bool(versioned)), state.specs)
    node = LogicalNode(full_name, content, is_output_versioned=_versioned(is_given, kept), versioned_parents=versioned)
    return _derived(table, node, key_slot, value_slot, state)


def mapped_values(
    table: "KTable[Any, Any]",
    mapper: Callable[..., Any],
    name: str | None,
    store: str | None,
    key: Any,
    value: Any,
    options: Mapping[str, Any],
) -> "KTable[Any, Any]":
    """Add a map of values."""
    with_key = settle(mapper, "map_values", ("(value)", _KEY_VALUE)) == 1
    slot = _result(table, value, mapper)
    is_given, key_slot, value_slot, kept = _asked_for(table, "KTABLE-MAPVALUES-", store, key, value, slot, options)
    full_name = table._graph.names.given(name, "KTABLE-MAPVALUES-")
    value_slot.node = full_name
    state = DerivedState(table._state, kept, lambda parent: MappedValues(parent, mapper, with_key))
    content = Process(lambda: TableMapValues(mapper, with_key, state.store, state.send_old), state.specs)
    node = LogicalNode(full_name, content, is_output_versioned=_versioned(is_given, kept))
    return _derived(table, node, key_slot, value_slot, state)


def _result(table: "KTable[Any, Any]", value: Any, function: Callable[..., Any]) -> Slot:
    if value is not NOT_GIVEN:
        return declared(value, table._name)
    return hinted(result_type(function), table._name)


@frozen
class _TransformerOperator:
    """Makes a user's transformer in a task and returns its function."""

    supplier: Callable[[], ValueTransformer[Any, Any, Any]]

    def builders(self) -> dict[str, StoreBuilder[Any]]:
        """Return the stores that the class declares as attributes, by attribute."""
        made = self.supplier if isinstance(self.supplier, type) else self.supplier()
        _refuse_unawaited(made)
        owner = made if isinstance(made, type) else type(made)
        found: dict[str, StoreBuilder[Any]] = {}
        for base in reversed(owner.__mro__):
            found |= {name: item for name, item in vars(base).items() if isinstance(item, StoreBuilder)}
        return found

    def __call__(self, context: NodeContext) -> Callable[[Any, Any], Any]:
        transformer = self.supplier()
        if not isinstance(transformer, ValueTransformer):
            raise TopologyError(f"transform_values needs a ValueTransformer, got {transformer!r}")
        _refuse_unawaited(transformer)
        user_context: ProcessorContext[Any, Any] = ProcessorContext(context, fixed_key=True)
        transformer.context = user_context
        for attribute, builder in self.builders().items():
            setattr(transformer, attribute, context.store(builder.name))
        context.on_init(lambda: transformer.init(user_context))
        context.on_close(transformer.close)
        return transformer.transform


def _refuse_unawaited(transformer: Any) -> None:
    """Refuse a transformer, or its class, with a method that nobody would run to its end."""
    owner = transformer if isinstance(transformer, type) else type(transformer)
    refuse_unawaited_methods(transformer, ("init", "transform", "close"), f"transformer {owner.__qualname__}")


def transformed(
    table: "KTable[Any, Any]",
    supplier: Any,
    name: str | None,
    stores: Iterable[str],
    store: str | None,
    key: Any,
    value: Any,
    options: Mapping[str, Any],
) -> "KTable[Any, Any]":
    """Add a user's transformer of values."""
    settled(supplier, "transform_values", "()")
    if isinstance(stores, str):
        raise TopologyError(f"transform_values: stores must be a list of names, not the text {stores!r}")
    slot = declared(value, table._name)
    is_given, key_slot, value_slot, kept = _asked_for(table, None, store, key, value, slot, options)
    full_name = table._graph.names.given(name, "KTABLE-TRANSFORMVALUES-")
    value_slot.node = full_name
    operator = _TransformerOperator(supplier)
    builders = list(operator.builders().values())
    used = (*stores, *(builder.name for builder in builders))
    state = DerivedState(table._state, kept, lambda parent: TransformedValues(parent, operator, used))

    def specs() -> Iterable[StoreSpec]:
        return (*state.specs(), *(builder.spec() for builder in builders))

    content = Process(lambda: TableTransformValues(operator, state.store, state.send_old), specs, lambda: tuple(stores))
    node = LogicalNode(full_name, content, is_output_versioned=_versioned(is_given, kept))
    return _derived(table, node, key_slot, value_slot, state)


def streamed(
    table: "KTable[Any, Any]", mapper: Callable[..., Any] | None, name: str | None, *, tombstones: bool
) -> "KStream[Any, Any]":
    """Add the step from changes to new values."""
    from streams.dsl.stateless import with_key
    from streams.dsl.stream import KStream

    graph = table._graph
    full_name = graph.names.given(name, "KTABLE-TOSTREAM-")
    node = graph.add(table._node, LogicalNode(full_name, Process(lambda: TableToStream(tombstones))))
    stream: KStream[Any, Any] = KStream(graph, full_name, table._key, table._value, table._sources, False, node)
    return stream if mapper is None else with_key(stream, mapper, None, "to_stream")


def suppressed(table: "KTable[Any, Any]", how: Any, name: str | None) -> "KTable[Any, Any]":
    """Add a buffer of changes."""
    if not isinstance(how, Suppressed):
        raise TopologyError(f"suppress of {table!r} needs Suppressed.until_...(), got {how!r}")
    if table._node.is_output_versioned:
        raise TopologyError(f"suppress of {table!r}: a versioned table cannot be suppressed; leave out its history=")
    graph = table._graph
    full_name = graph.names.generated("KTABLE-SUPPRESS-") if name is None else check_name(name)
    wait_ms = grace_of(table._node) if how.time_limit_ms is None else how.time_limit_ms
    store = f"{name}-store" if name is not None else graph.names.store("KTABLE-SUPPRESS-")
    key, value = table._key, table._value
    table._state.enable_old(True)
    state = SuppressedState(table._state, lambda parent: SuppressedValues(parent, store, key.resolve()))

    def operator() -> Suppress:
        return Suppress(
            store,
            key.resolve(),
            value.resolve(),
            wait_ms,
            how.time_limit_ms is None,
            how.max_records,
            how.max_bytes,
            how.shuts_down_when_full,
        )

    def specs() -> Iterable[StoreSpec]:
        return (suppress_store(store, key.resolve(), value.resolve(), has_changelog=how.has_changelog),)

    node = LogicalNode(full_name, Process(operator, specs), is_output_versioned=False, is_suppress=True)
    return _derived(table, node, key, value, state)


def grace_of(node: LogicalNode) -> int:
    """Return the grace of the windowed aggregations that a table comes from, the longest of several.

    Raises:
        TopologyError: there is a way to the table without windows, so that nothing ever closes.
    """
    if node.grace_ms is not None:
        return node.grace_ms
    if not node.parents:
        raise TopologyError(
            "Suppressed.until_window_closes() needs the result of a windowed aggregation; "
            f"{node.name!r} is reached without one, use Suppressed.until_time_limit(...)"
        )
    return max(grace_of(parent) for parent in node.parents)


def grouped(
    table: "KTable[Any, Any]", mapper: Callable[..., Any], name: str | None, key: Any, value: Any
) -> "KGroupedTable[Any, Any]":
    """Add the map to new keys and values before a grouping."""
    from streams.dsl.grouped_table import KGroupedTable

    settled(mapper, "group_by", _KEY_VALUE)
    graph = table._graph
    full_name = graph.names.given(name, "KTABLE-SELECT-")
    told_key, told_value = pair_types(result_type(mapper))
    key_slot = declared(key, full_name) if key is not NOT_GIVEN else hinted(told_key, full_name)
    value_slot = declared(value, full_name) if value is not NOT_GIVEN else hinted(told_value, full_name)
    versioned: set[str] = set()
    node = LogicalNode(full_name, Process(lambda: TableGroupMap(mapper, bool(versioned))), versioned_parents=versioned)
    graph.add(table._node, node)
    table._state.enable_old(True)
    return KGroupedTable(graph, full_name, key_slot, value_slot, table._sources, node, name)
