"""The operators of ``KTable`` except joins, implemented as functions that take a table reference.

The public signatures and their documentation are in ``KTable``.  The functions here add the nodes of each operator to
the logical graph, with the same names and numbers as in Kafka Streams.  The module imports only ``core``, ``state`` and
``topology`` from outside ``dsl``.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from attrs import frozen

from streams.core.arguments import NOT_GIVEN
from streams.core.blocks.records import Headers
from streams.core.errors import TopologyError
from streams.core.user_code import refuse_unawaited_methods
from streams.dsl.building import stream_operators
from streams.dsl.building.side_outputs import SideOutputs
from streams.dsl.functions import check_function, matching_form, pair_types, result_type
from streams.dsl.logical import LogicalNode
from streams.dsl.materialized import Materialized, StoreArguments, key_value
from streams.dsl.names import check_name
from streams.dsl.nodes import LogicalOperator
from streams.dsl.processing import (
    SUPPRESSED_CHANGE,
    ComputedValues,
    FilteredRow,
    MappedRow,
    Suppress,
    SuppressedValues,
    TableFilter,
    TableGroupMap,
    TableMapValues,
    TableTransformValues,
    TransformedRow,
    buffer_spec,
    buffer_upgrades,
)
from streams.dsl.ref import GroupedTableRef, StreamRef, TableRef
from streams.dsl.serde_variables import SerdeVariable, declared, declared_or_annotated, overridden
from streams.dsl.suppressed import Suppressed
from streams.dsl.table_state import DerivedState
from streams.state import StoreSpec
from streams.topology import NodeContext, ProcessorContext, StoreBuilder, TableToStream

K = TypeVar("K", contravariant=True)
V = TypeVar("V", contravariant=True)
R = TypeVar("R", covariant=True)

_KEY_VALUE = "(key, value)"


class ValueTransformer(Generic[K, V, R]):
    """Computes table values from the values of another table, with access to stores; one instance per task.

    Stores may be declared as class attributes, as in a ``Processor``.  ``context.timestamp_ms`` and ``context.headers``
    are those of the change; where a join reads a row of a table without a store, they are its time and no headers.
    """

    context: ProcessorContext[Any, Any]

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        """Prepare the transformer; called once per task."""

    def transform(self, key: K, value: V | None) -> R | None:
        """Return the new value of the row for ``key``; None deletes the row."""
        raise NotImplementedError(f"{type(self).__name__} must define transform(self, key, value)")

    def close(self) -> None:
        """Release the resources that ``init`` acquired; called when the task closes."""


def _materialized(
    table: TableRef, prefix: str | None, arguments: StoreArguments, key: SerdeVariable, value: SerdeVariable
) -> Materialized | None:
    """Return the store of a derived table if the user named one.

    As in Kafka Streams, an unnamed store is not created, but takes a number from the counter.
    """
    name = arguments.store_name(None)
    if name is not None:
        return key_value(table.graph, name, "", key, value, arguments.options)
    if arguments.options.keys() - {"caching", "logging"}:
        raise TopologyError(
            f"operator on {table!r}: {min(arguments.options)}= concerns a store, but there is none; name it with store="
        )
    if prefix is not None and arguments.is_given:
        table.graph.names.store(prefix)
    return None


def _versioned(arguments: StoreArguments, materialized: Materialized | None) -> bool | None:
    """Return whether the output is versioned, or None if this depends on the parent."""
    return (materialized is not None and materialized.is_versioned) if arguments.is_given else None


# Operators on single rows.


def filter_rows(
    table: TableRef, predicate: Callable[..., object], name: str | None, arguments: StoreArguments, *, negate: bool
) -> TableRef:
    """Add the node of ``filter`` or, with ``negate``, of ``filter_not`` to the logical graph."""
    check_function(predicate, "filter_not" if negate else "filter", _KEY_VALUE)
    value = overridden(table.value, arguments.value, table.name)
    key = overridden(table.key, arguments.key, table.name)
    materialized = _materialized(table, "KTABLE-FILTER-", arguments, key, value)
    full_name = table.graph.names.node(name, "KTABLE-FILTER-")
    # If a store of the parent provides old values, no tombstones are forwarded for rows that were never forwarded.
    state = DerivedState(
        (table.state,),
        materialized,
        lambda parent: ComputedValues(parent, FilteredRow(predicate, negate)),
        send_old=table.state.enable_old(False),
    )
    versioned: set[str] = set()
    content = LogicalOperator(
        lambda: TableFilter(predicate, negate, state.store, state.send_old, bool(versioned), state.closings),
        state.specs,
    )
    is_versioned = _versioned(arguments, materialized)
    node = LogicalNode(full_name, content, is_output_versioned=is_versioned, versioned_parents=versioned)
    return table.derived(node, key, value, state)


def map_values(table: TableRef, mapper: Callable[..., Any], name: str | None, arguments: StoreArguments) -> TableRef:
    """Add the node of ``map_values`` to the logical graph."""
    with_key = matching_form(mapper, "map_values", ("(value)", _KEY_VALUE)) == 1
    value = declared_or_annotated(arguments.value, result_type(mapper), table.name)
    key = overridden(table.key, arguments.key, table.name)
    materialized = _materialized(table, "KTABLE-MAPVALUES-", arguments, key, value)
    full_name = value.node = table.graph.names.node(name, "KTABLE-MAPVALUES-")
    state = DerivedState(
        (table.state,), materialized, lambda parent: ComputedValues(parent, MappedRow(mapper, with_key))
    )
    content = LogicalOperator(
        lambda: TableMapValues(mapper, with_key, state.store, state.send_old, state.closings), state.specs
    )
    node = LogicalNode(full_name, content, is_output_versioned=_versioned(arguments, materialized))
    return table.derived(node, key, value, state)


@frozen
class _TransformerOperator:
    """A supplier that creates the transformer of a task and returns its ``transform`` method."""

    supplier: Callable[[], ValueTransformer[Any, Any, Any]]

    def builders(self) -> dict[str, StoreBuilder[Any]]:
        """Return the stores that the transformer class declares as attributes, by attribute name."""
        transformer = self.supplier if isinstance(self.supplier, type) else self.supplier()
        _refuse_unawaited(transformer)
        owner = transformer if isinstance(transformer, type) else type(transformer)
        builders: dict[str, StoreBuilder[Any]] = {}
        for base in reversed(owner.__mro__):
            builders |= {name: item for name, item in vars(base).items() if isinstance(item, StoreBuilder)}
        return builders

    def __call__(self, context: NodeContext) -> Callable[[Any, Any, int, Headers | None], Any]:
        transformer = self.supplier()
        if not isinstance(transformer, ValueTransformer):
            raise TopologyError(f"transform_values needs a ValueTransformer, got {transformer!r}")
        _refuse_unawaited(transformer)
        user_context: ProcessorContext[Any, Any] = ProcessorContext(context, fixed_key=True)
        transformer.context = user_context
        for attribute, builder in self.builders().items():
            setattr(transformer, attribute, context.stores[builder.name])
        context.on_init(lambda: transformer.init(user_context))
        context.on_close(transformer.close)

        def transform(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> Any:
            user_context.process_row(key, value, timestamp_ms, headers)
            return transformer.transform(key, value)

        return transform


def _refuse_unawaited(transformer: Any) -> None:
    """Raise an error if a transformer, or its class, has async or generator methods, whose code would not run."""
    owner = transformer if isinstance(transformer, type) else type(transformer)
    refuse_unawaited_methods(transformer, ("init", "transform", "close"), f"transformer {owner.__qualname__}")


def transform_values(
    table: TableRef, supplier: Any, name: str | None, stores: Iterable[str], arguments: StoreArguments
) -> TableRef:
    """Add the node of ``transform_values`` to the logical graph."""
    check_function(supplier, "transform_values", "()")
    if isinstance(stores, str):
        raise TopologyError(f"transform_values: stores must be a list of names, not the text {stores!r}")
    stores = tuple(stores)
    value = declared(arguments.value, table.name)
    key = overridden(table.key, arguments.key, table.name)
    materialized = _materialized(table, None, arguments, key, value)
    full_name = value.node = table.graph.names.node(name, "KTABLE-TRANSFORMVALUES-")
    operator = _TransformerOperator(supplier)
    builders = list(operator.builders().values())
    used = (*stores, *(builder.name for builder in builders))
    state = DerivedState(
        (table.state,), materialized, lambda parent: ComputedValues(parent, TransformedRow(operator), used)
    )

    def specs() -> Iterable[StoreSpec]:
        return (*state.specs(), *(builder.spec() for builder in builders))

    content = LogicalOperator(
        lambda: TableTransformValues(operator, state.store, state.send_old, state.closings), specs, lambda: stores
    )
    node = LogicalNode(full_name, content, is_output_versioned=_versioned(arguments, materialized))
    return table.derived(node, key, value, state)


# Streams, buffers and groups.


def to_stream(
    table: TableRef, mapper: Callable[..., Any] | None, name: str | None, key: Any, *, tombstones: bool
) -> StreamRef:
    """Add the node of ``to_stream``, and that of ``select_key`` if there is a mapper, to the logical graph."""
    graph = table.graph
    full_name = graph.names.node(name, "KTABLE-TOSTREAM-")
    node = graph.add(table.node, LogicalNode(full_name, LogicalOperator(lambda: TableToStream(tombstones))))
    stream = StreamRef(graph, node, table.key, table.value)
    if mapper is not None:
        return stream_operators.select_key(stream, mapper, None, key, "to_stream")
    if key is not NOT_GIVEN:
        raise TopologyError(f"to_stream of {table!r}: key= is the type of what a mapper returns, and there is none")
    return stream


def dropped(table: TableRef, name: str | None) -> StreamRef:
    """Add the side output for the records that the table's node drops."""
    if table.side is None:
        raise TopologyError(
            f"dropped of {table!r}: only tables of topics and streams, joins and group_by drop rows; "
            "an aggregation drops records of its stream"
        )
    stream: StreamRef = table.side.dropped(name)
    return stream


def suppress(table: TableRef, suppressed: Any, name: str | None) -> TableRef:
    """Add the node of ``suppress``, which buffers changes, to the logical graph."""
    if not isinstance(suppressed, Suppressed):
        raise TopologyError(f"suppress of {table!r} needs Suppressed.until_...(), got {suppressed!r}")
    if table.node.is_output_versioned:
        raise TopologyError(f"suppress of {table!r}: a versioned table cannot be suppressed; leave out its history=")
    graph = table.graph
    full_name = graph.names.generated("KTABLE-SUPPRESS-") if name is None else check_name(name)
    wait_ms = grace_of(table.node) if suppressed.time_limit_ms is None else suppressed.time_limit_ms
    store = f"{name}-store" if name is not None else graph.names.store("KTABLE-SUPPRESS-")
    key, value = table.key, table.value
    table.state.enable_old(True)
    if suppressed.time_limit_ms is None:
        table.state.pass_time_to(store)
    state = DerivedState(
        (table.state,), None, lambda parent: SuppressedValues(parent, store, key.resolve()), is_held=True
    )

    def operator() -> Suppress:
        return Suppress(
            store,
            key.resolve(),
            value.resolve(),
            wait_ms,
            suppressed.time_limit_ms is None,
            suppressed.max_records,
            suppressed.max_bytes,
            suppressed.shuts_down_when_full,
            _longest_window(table.node) if suppressed.time_limit_ms is None else 0,
        )

    def specs() -> Iterable[StoreSpec]:
        serdes = (key.resolve(), value.resolve())
        has_changelog = suppressed.has_changelog
        return (buffer_spec(store, SUPPRESSED_CHANGE, *serdes, has_changelog=has_changelog, upgrades=buffer_upgrades),)

    node = LogicalNode(full_name, LogicalOperator(operator, specs), is_output_versioned=False, is_suppress=True)
    return table.derived(node, key, value, state)


def grace_of(node: LogicalNode) -> int:
    """Return the grace period in ms of the windowed aggregations upstream; if there are several, the longest one.

    Raises:
        TopologyError: an upstream path has no windowed aggregation, so that no window ever closes.
    """
    if node.grace_ms is not None:
        return node.grace_ms
    if not node.parents:
        raise TopologyError(
            "Suppressed.until_window_closes() needs the result of a windowed aggregation; "
            f"{node.name!r} has none upstream, use Suppressed.until_time_limit(...); "
            "for count windows and a Windower, use emit_strategy(EmitStrategy.ON_WINDOW_CLOSE) of the windowed stream"
        )
    return max(grace_of(parent) for parent in node.parents)


def _longest_window(node: LogicalNode) -> int:
    """Return the size in ms of the longest window of the aggregations upstream."""
    return max(node.window_ms, *(_longest_window(parent) for parent in node.parents), 0)


def group_by(table: TableRef, mapper: Callable[..., Any], name: str | None, key: Any, value: Any) -> GroupedTableRef:
    """Add the node of ``group_by``, which maps rows to new keys and values, to the logical graph."""
    check_function(mapper, "group_by", _KEY_VALUE)
    graph = table.graph
    full_name = graph.names.node(name, "KTABLE-SELECT-")
    key_type, value_type = pair_types(result_type(mapper))
    versioned: set[str] = set()
    content = LogicalOperator(lambda: TableGroupMap(mapper, bool(versioned)))
    node = graph.add(table.node, LogicalNode(full_name, content, versioned_parents=versioned))
    table.state.enable_old(True)
    keys = declared_or_annotated(key, key_type, full_name)
    grouped = GroupedTableRef(graph, node, keys, declared_or_annotated(value, value_type, full_name), name)
    grouped.side = SideOutputs.at(node, StreamRef(graph, node, table.key, table.value))
    return grouped
