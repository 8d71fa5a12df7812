"""The operators of ``KStream`` except joins, implemented as functions that take a stream reference.

The public signatures and their documentation are in ``KStream``.  The functions here add the nodes of each operator to
the logical graph, with the same names and numbers as in Kafka Streams.  The module imports only ``core`` and
``topology`` from outside ``dsl``.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, get_args, get_origin

from streams.core.arguments import NOT_GIVEN, checked_count
from streams.core.blocks.records import RecordContext
from streams.core.errors import TopologyError
from streams.core.topic import Sink, Topic, check_topic_name
from streams.dsl.building.repartition import repartition_node
from streams.dsl.building.side_outputs import SideOutputs
from streams.dsl.functions import (
    UNKNOWN,
    check_function,
    element_type,
    known_type,
    matching_form,
    pair_types,
    result_type,
)
from streams.dsl.logical import LogicalNode
from streams.dsl.materialized import StoreArguments, key_value, to_ms
from streams.dsl.names import check_name
from streams.dsl.nodes import LogicalOperator, LogicalProcessor, LogicalSink
from streams.dsl.processing import ToTable
from streams.dsl.ref import GroupRef, StreamRef, TableRef, check_builder
from streams.dsl.serde_variables import declared_or_annotated, joint, overridden
from streams.dsl.table_state import SourceState
from streams.topology import (
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    Operator,
    Partitioner,
    PassThrough,
    Peek,
    Processor,
    ProcessorOperator,
    SelectKey,
)

_KEY_VALUE = "(key, value)"
_VALUE_FORMS = ("(value)", "(key, value)")
_PARTITIONER_FORM = "(topic, key, value, partitions)"


# Operators on single records.


def filter_records(stream: StreamRef, predicate: Callable[..., object], name: str | None, *, negate: bool) -> StreamRef:
    """Add the node of ``filter`` or, with ``negate``, of ``filter_not`` to the logical graph."""
    check_function(predicate, "filter_not" if negate else "filter", _KEY_VALUE)
    full_name = stream.graph.names.node(name, "KSTREAM-FILTER-")
    return stream.at(stream.add(full_name, _inline(Filter(predicate, negate))))


def map_records(stream: StreamRef, mapper: Callable[..., Any], name: str | None, key: Any, value: Any) -> StreamRef:
    """Add the node of ``map`` to the logical graph."""
    check_function(mapper, "map", _KEY_VALUE)
    full_name = stream.graph.names.node(name, "KSTREAM-MAP-")
    return _with_pair(stream, full_name, Map(mapper), key, value, pair_types(result_type(mapper)))


def map_values(stream: StreamRef, mapper: Callable[..., Any], name: str | None, value: Any = NOT_GIVEN) -> StreamRef:
    """Add the node of ``map_values`` to the logical graph."""
    with_key = matching_form(mapper, "map_values", _VALUE_FORMS) == 1
    full_name = stream.graph.names.node(name, "KSTREAM-MAPVALUES-")
    return _with_value(stream, full_name, MapValues(mapper, with_key), value, result_type(mapper))


def flat_map(stream: StreamRef, mapper: Callable[..., Any], name: str | None, key: Any, value: Any) -> StreamRef:
    """Add the node of ``flat_map`` to the logical graph."""
    check_function(mapper, "flat_map", _KEY_VALUE, may_yield=True)
    full_name = stream.graph.names.node(name, "KSTREAM-FLATMAP-")
    return _with_pair(stream, full_name, FlatMap(mapper), key, value, pair_types(element_type(result_type(mapper))))


def flat_map_values(stream: StreamRef, mapper: Callable[..., Any], name: str | None, value: Any) -> StreamRef:
    """Add the node of ``flat_map_values`` to the logical graph."""
    with_key = matching_form(mapper, "flat_map_values", _VALUE_FORMS, may_yield=True) == 1
    full_name = stream.graph.names.node(name, "KSTREAM-FLATMAPVALUES-")
    return _with_value(stream, full_name, FlatMapValues(mapper, with_key), value, element_type(result_type(mapper)))


def select_key(
    stream: StreamRef, mapper: Callable[..., Any], name: str | None, key: Any = NOT_GIVEN, operator: str = "select_key"
) -> StreamRef:
    """Add the node of ``select_key`` to the logical graph; ``operator`` is the method name in messages."""
    check_function(mapper, operator, _KEY_VALUE)
    full_name = stream.graph.names.node(name, "KSTREAM-KEY-SELECT-")
    node = stream.add(full_name, _inline(SelectKey(mapper)), is_key_changing=True)
    return stream.at(node, declared_or_annotated(key, result_type(mapper), full_name), needs_repartition=True)


def peek(stream: StreamRef, action: Callable[..., object], name: str | None) -> StreamRef:
    """Add the node of ``peek`` to the logical graph."""
    check_function(action, "peek", _KEY_VALUE)
    full_name = stream.graph.names.node(name, "KSTREAM-PEEK-")
    return stream.at(stream.add(full_name, _inline(Peek(action))))


def for_each(stream: StreamRef, action: Callable[..., object], name: str | None) -> None:
    """Add the node of ``for_each`` to the logical graph."""
    check_function(action, "for_each", _KEY_VALUE)
    stream.add(stream.graph.names.node(name, "KSTREAM-FOREACH-"), _inline(Peek(action, is_terminal=True)))


def merge(stream: StreamRef, other: StreamRef | Any, name: str | None) -> StreamRef:
    """Add the node of ``merge`` to the logical graph.

    Raises:
        TopologyError: ``other`` is not a stream, or belongs to another builder.
    """
    if not isinstance(other, StreamRef):
        raise TopologyError(f"merge of {stream!r} needs another stream, got {other!r}")
    check_builder(stream, other, "merge")
    full_name = stream.graph.names.node(name, "KSTREAM-MERGE-")
    node = LogicalNode(full_name, _inline(PassThrough()), is_merge=True)
    return stream.at(
        stream.graph.add((stream.node, other.node), node),
        joint(stream.key, other.key, full_name),
        joint(stream.value, other.value, full_name),
        needs_repartition=stream.needs_repartition or other.needs_repartition,
    )


def _inline(operator: Operator) -> LogicalOperator:
    return LogicalOperator(lambda: operator)


def _with_pair(
    stream: StreamRef, name: str, operator: Operator, key: Any, value: Any, types: tuple[Any, Any]
) -> StreamRef:
    """Add an operator that creates new keys and values, of the declared or else the annotated ``types``."""
    node = stream.add(name, _inline(operator), is_key_changing=True)
    variables = declared_or_annotated(key, types[0], name), declared_or_annotated(value, types[1], name)
    return stream.at(node, *variables, needs_repartition=True)


def _with_value(stream: StreamRef, name: str, operator: Operator, value: Any, type_: Any) -> StreamRef:
    """Add an operator that keeps the key and creates new values, of the declared or else the annotated type."""
    node = stream.add(name, _inline(operator), is_value_changing=True)
    return stream.at(node, value=declared_or_annotated(value, type_, name))


# User processors.


def process(
    stream: StreamRef, supplier: Any, name: str | None, stores: Iterable[str], key: Any, value: Any
) -> StreamRef:
    """Add the node of ``process``, which may change the key, to the logical graph."""
    full_name = _processor_name(stream, name, "KSTREAM-PROCESSOR-")
    node = stream.add(full_name, _processor(supplier, stores, "process", has_fixed_key=False))
    key_type, value_type = _output_types(supplier)
    return stream.at(
        node,
        declared_or_annotated(key, key_type, full_name),
        declared_or_annotated(value, value_type, full_name),
        needs_repartition=True,
    )


def process_values(stream: StreamRef, supplier: Any, name: str | None, stores: Iterable[str], value: Any) -> StreamRef:
    """Add the node of ``process_values``, which keeps the key, to the logical graph."""
    full_name = _processor_name(stream, name, "KSTREAM-PROCESSVALUES-")
    node = stream.add(full_name, _processor(supplier, stores, "process_values", has_fixed_key=True))
    return stream.at(node, value=declared_or_annotated(value, _output_types(supplier)[1], full_name))


def _processor_name(stream: StreamRef, name: str | None, prefix: str) -> str:
    # If there is a name, Kafka Streams takes no number from the counter here, unlike for all other operators.
    return stream.graph.names.generated(prefix) if name is None else check_name(name)


def _processor(supplier: Any, stores: Iterable[str], operator: str, *, has_fixed_key: bool) -> LogicalProcessor:
    if isinstance(supplier, Processor):
        raise TopologyError(
            f"{operator} needs a Processor class or a function that makes one, not an instance: each task has its own"
        )
    check_function(supplier, operator, "()")
    if isinstance(stores, str):
        raise TopologyError(f"{operator}: stores must be a list of names, not the text {stores!r}")
    return LogicalProcessor(ProcessorOperator(supplier, has_fixed_key), tuple(stores))


def _output_types(supplier: Any) -> tuple[Any, Any]:
    """Return the types ``KO`` and ``VO`` if the supplier is a class like ``class P(Processor[KI, VI, KO, VO])``."""
    for base in getattr(supplier, "__orig_bases__", ()):
        if get_origin(base) is Processor:
            *_, key, value = get_args(base)
            return known_type(key), known_type(value)
    return UNKNOWN, UNKNOWN


# Topics, tables and groups.


def repartition(
    stream: StreamRef,
    name: str | None,
    partitions: int | None,
    key: Any,
    value: Any,
    partitioner: Partitioner | None,
    patience: timedelta | None,
) -> StreamRef:
    """Add the node of ``repartition`` to the logical graph."""
    if partitions is not None:
        checked_count(partitions, f"repartition of {stream!r}: partitions", TopologyError)
    if partitioner is not None:
        check_function(partitioner, "repartition", _PARTITIONER_FORM)
    names = stream.graph.names
    base = names.generated("KSTREAM-REPARTITION-") if name is None else check_name(name)
    types = overridden(stream.key, key, stream.name), overridden(stream.value, value, stream.name)
    node = repartition_node(
        names,
        base,
        *types,
        is_optimizable=False,
        partitions=partitions,
        partitioner=partitioner,
        patience_ms=None if patience is None else to_ms(patience, f"repartition of {stream!r}: patience"),
    )
    return stream.repartitioned(stream.graph.add(stream.node, node), *types)


def to_topic(
    stream: StreamRef, topic: Any, name: str | None, key: Any, value: Any, partitioner: Partitioner | None
) -> None:
    """Add the sink of ``to`` to the logical graph."""
    fixed = None
    topic_for = None
    keys = overridden(stream.key, key, stream.name)
    values = overridden(stream.value, value, stream.name)
    if isinstance(topic, Sink):
        arguments = [name for name, form in (("key=", key), ("value=", value)) if form is not NOT_GIVEN]
        if arguments:
            raise TopologyError(
                f"to() of {topic!r} also has {' and '.join(arguments)}: a Topic declares its types; leave these out, "
                f"or give the topic by its name, {topic.name!r}"
            )
        fixed = topic.name
        keys = overridden(keys, topic.key_serde, stream.name, f"the key of topic {topic.name!r}")
        values = overridden(values, topic.value_serde, stream.name, f"the value of topic {topic.name!r}")
    elif isinstance(topic, str):
        fixed = check_topic_name(topic)
    elif callable(topic):
        topic_for = topic
        if matching_form(topic, "to", (_KEY_VALUE, "(key, value, context)")) == 0:
            topic_for = _without_context(topic)
    else:
        raise TopologyError(f"to() needs a Topic, a topic's name or a function that chooses one, got {topic!r}")
    if partitioner is not None:
        check_function(partitioner, "to", _PARTITIONER_FORM)
    full_name = stream.graph.names.node(name, "KSTREAM-SINK-")
    if isinstance(topic, Topic):
        stream.graph.declare(topic)
    stream.add(full_name, LogicalSink(fixed, topic_for, keys, values, partitioner))


def _without_context(topic_for: Callable[[Any, Any], str]) -> Callable[[Any, Any, RecordContext], str]:
    def choose(key: Any, value: Any, _: RecordContext) -> str:
        return topic_for(key, value)

    return choose


def to_table(stream: StreamRef, name: str | None, arguments: StoreArguments) -> TableRef:
    """Add the node of ``to_table`` to the logical graph, downstream of a repartition topic if the key was changed."""
    graph = stream.graph
    full_name = graph.names.node(name, "KSTREAM-TOTABLE-")
    types = overridden(stream.key, arguments.key, full_name), overridden(stream.value, arguments.value, full_name)
    materialized = key_value(
        graph, arguments.store_name(name), "KSTREAM-TOTABLE-", *types, arguments.options, can_expire=True
    )
    if stream.needs_repartition:
        node = repartition_node(graph.names, full_name, *types)
        stream = stream.repartitioned(graph.add(stream.node, node), *types)
    state = SourceState(materialized, materialized.is_needed)
    content = LogicalOperator(lambda: ToTable(state.store, state.send_old), state.specs)
    node = stream.add(full_name, content, is_output_versioned=materialized.is_versioned)
    table = TableRef(graph, node, *types, state)
    table.side = SideOutputs.at(node, stream.at(node, *types, needs_repartition=False))
    return table


def group_by_key(stream: StreamRef, name: str | None, key: Any, value: Any) -> GroupRef:
    """Return the stream as a grouped stream; ``group_by_key`` adds no node."""
    types = overridden(stream.key, key, stream.name), overridden(stream.value, value, stream.name)
    return GroupRef(stream, *types, name)


def group_by(stream: StreamRef, mapper: Callable[..., Any], name: str | None, key: Any, value: Any) -> GroupRef:
    """Add the node of ``group_by``, which changes the key, to the logical graph."""
    return group_by_key(select_key(stream, mapper, name, operator="group_by"), name, key, value)
