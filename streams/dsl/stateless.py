"""The operators of KStream that need no store, as functions of the stream.

KStream has the signatures; here is what they add to the logical graph, with the names and
numbers of Kafka Streams.  Between stream and the logical graph; imports inline operators.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, get_args, get_origin

from streams.core.errors import TopologyError
from streams.core.records import RecordContext
from streams.core.topic import Sink as TopicSink
from streams.core.topic import Topic, check_topic_name
from streams.dsl import materialized as stores_of
from streams.dsl.functions import UNKNOWN, element_type, pair_types, result_type, settle, settled, told
from streams.dsl.logical import LogicalNode
from streams.dsl.names import check_name
from streams.dsl.nodes import Process, Sink, UserProcess
from streams.dsl.repartition import repartition_node
from streams.dsl.slots import Slot, declared, hinted, joint, overridden
from streams.dsl.table_state import SourceState
from streams.topology.graph import Partitioner
from streams.topology.inline import Filter, FlatMap, FlatMapValues, Inline, Map, MapValues, PassThrough, Peek, SelectKey
from streams.topology.processors import Processor, ProcessorOperator

if TYPE_CHECKING:
    from streams.dsl.grouped import KGroupedStream
    from streams.dsl.stream import KStream
    from streams.dsl.table import KTable

_KEY_VALUE = "(key, value)"
_VALUE_FORMS = ("(value)", "(key, value)")
_PARTITIONER_FORM = "(topic, key, value, partitions)"


def following(
    stream: "KStream[Any, Any]",
    node: LogicalNode,
    key: Slot | None = None,
    value: Slot | None = None,
    *,
    needs_repartition: bool | None = None,
    sources: frozenset[str] | None = None,
) -> "KStream[Any, Any]":
    """Return the stream behind a node; what is not given stays as it was."""
    return type(stream)(
        stream._graph,
        node.name,
        key or stream._key,
        value or stream._value,
        stream._sources if sources is None else sources,
        stream._needs_repartition if needs_repartition is None else needs_repartition,
        node,
    )


def _add(
    stream: "KStream[Any, Any]", name: str, operator: Inline, *, changes_key: bool = False, changes_value: bool = False
) -> LogicalNode:
    node = LogicalNode(name, Process(lambda: operator), is_key_changing=changes_key, is_value_changing=changes_value)
    return stream._graph.add(stream._node, node)


def filtered(
    stream: "KStream[Any, Any]", predicate: Callable[[Any, Any], object], name: str | None, *, negate: bool
) -> "KStream[Any, Any]":
    """Add a filter."""
    settled(predicate, "filter_not" if negate else "filter", _KEY_VALUE)
    full_name = stream._graph.names.given(name, "KSTREAM-FILTER-")
    return following(stream, _add(stream, full_name, Filter(predicate, negate)))


def mapped(stream: "KStream[Any, Any]", mapper: Callable[..., Any], name: str | None) -> "KStream[Any, Any]":
    """Add a map of key and value."""
    settled(mapper, "map", _KEY_VALUE)
    full_name = stream._graph.names.given(name, "KSTREAM-MAP-")
    node = _add(stream, full_name, Map(mapper), changes_key=True)
    key, value = pair_types(result_type(mapper))
    return following(stream, node, hinted(key, full_name), hinted(value, full_name), needs_repartition=True)


def mapped_values(stream: "KStream[Any, Any]", mapper: Callable[..., Any], name: str | None) -> "KStream[Any, Any]":
    """Add a map of values."""
    with_key = settle(mapper, "map_values", _VALUE_FORMS) == 1
    full_name = stream._graph.names.given(name, "KSTREAM-MAPVALUES-")
    node = _add(stream, full_name, MapValues(mapper, with_key), changes_value=True)
    return following(stream, node, value=hinted(result_type(mapper), full_name))


def flat_mapped(stream: "KStream[Any, Any]", mapper: Callable[..., Any], name: str | None) -> "KStream[Any, Any]":
    """Add a flat map of key and value."""
    settled(mapper, "flat_map", _KEY_VALUE, may_yield=True)
    full_name = stream._graph.names.given(name, "KSTREAM-FLATMAP-")
    node = _add(stream, full_name, FlatMap(mapper), changes_key=True)
    key, value = pair_types(element_type(result_type(mapper)))
    return following(stream, node, hinted(key, full_name), hinted(value, full_name), needs_repartition=True)


def flat_mapped_values(
    stream: "KStream[Any, Any]", mapper: Callable[..., Any], name: str | None
) -> "KStream[Any, Any]":
    """Add a flat map of values."""
    with_key = settle(mapper, "flat_map_values", _VALUE_FORMS, may_yield=True) == 1
    full_name = stream._graph.names.given(name, "KSTREAM-FLATMAPVALUES-")
    node = _add(stream, full_name, FlatMapValues(mapper, with_key), changes_value=True)
    return following(stream, node, value=hinted(element_type(result_type(mapper)), full_name))


def with_key(
    stream: "KStream[Any, Any]", mapper: Callable[..., Any], name: str | None, operator: str = "select_key"
) -> "KStream[Any, Any]":
    """Add a change of the key."""
    settled(mapper, operator, _KEY_VALUE)
    full_name = stream._graph.names.given(name, "KSTREAM-KEY-SELECT-")
    node = _add(stream, full_name, SelectKey(mapper), changes_key=True)
    return following(stream, node, hinted(result_type(mapper), full_name), needs_repartition=True)


def peeked(stream: "KStream[Any, Any]", action: Callable[..., object], name: str | None) -> "KStream[Any, Any]":
    """Add an action in passing."""
    settled(action, "peek", _KEY_VALUE)
    full_name = stream._graph.names.given(name, "KSTREAM-PEEK-")
    return following(stream, _add(stream, full_name, Peek(action)))


def ended(stream: "KStream[Any, Any]", action: Callable[..., object], name: str | None) -> None:
    """Add an action at the end."""
    settled(action, "for_each", _KEY_VALUE)
    full_name = stream._graph.names.given(name, "KSTREAM-FOREACH-")
    _add(stream, full_name, Peek(action, is_terminal=True))


def merged(stream: "KStream[Any, Any]", other: Any, name: str | None) -> "KStream[Any, Any]":
    """Add a merge of two streams."""
    check_stream(stream, other, "merge")
    full_name = stream._graph.names.given(name, "KSTREAM-MERGE-")
    node = LogicalNode(full_name, Process(PassThrough), is_merge=True)
    stream._graph.add((stream._node, other._node), node)
    return following(
        stream,
        node,
        joint(stream._key, other._key, full_name),
        joint(stream._value, other._value, full_name),
        needs_repartition=stream._needs_repartition or other._needs_repartition,
        sources=stream._sources | other._sources,
    )


def check_stream(stream: "KStream[Any, Any]", other: Any, operator: str) -> None:
    """Refuse what is no stream of the same builder.

    Raises:
        TopologyError: it is something else, or belongs to another builder.
    """
    if not isinstance(other, type(stream)):
        raise TopologyError(f"{operator} of {stream!r} needs another stream, got {other!r}")
    check_builder(stream, other, operator)


def check_builder(one: Any, other: Any, operator: str) -> None:
    """Refuse to connect parts of two topologies.

    Raises:
        TopologyError: the two come from different builders.
    """
    if one._graph is not other._graph:
        raise TopologyError(
            f"{operator} of {one!r} and {other!r}: they belong to different StreamsBuilders; "
            "make both with the one that the topology function gets"
        )


def processed(
    stream: "KStream[Any, Any]", supplier: Any, name: str | None, stores: Iterable[str], key: Any, value: Any
) -> "KStream[Any, Any]":
    """Add a user's processor that may change the key."""
    full_name = _processor_name(stream, name, "KSTREAM-PROCESSOR-")
    node = _user_process(stream, full_name, supplier, stores, "process", has_fixed_key=False)
    told_key, told_value = _output_types(supplier)
    return following(
        stream,
        node,
        hinted(told_key, full_name) if key is stores_of.NOT_GIVEN else declared(key, full_name),
        hinted(told_value, full_name) if value is stores_of.NOT_GIVEN else declared(value, full_name),
        needs_repartition=True,
    )


def processed_values(
    stream: "KStream[Any, Any]", supplier: Any, name: str | None, stores: Iterable[str], value: Any
) -> "KStream[Any, Any]":
    """Add a user's processor that keeps the key."""
    full_name = _processor_name(stream, name, "KSTREAM-PROCESSVALUES-")
    node = _user_process(stream, full_name, supplier, stores, "process_values", has_fixed_key=True)
    told = _output_types(supplier)[1]
    slot = hinted(told, full_name) if value is stores_of.NOT_GIVEN else declared(value, full_name)
    return following(stream, node, value=slot)


def _processor_name(stream: "KStream[Any, Any]", name: str | None, prefix: str) -> str:
    # A given name uses up no number here, unlike everywhere else in Kafka Streams.
    return stream._graph.names.generated(prefix) if name is None else check_name(name)


def _user_process(
    stream: "KStream[Any, Any]",
    name: str,
    supplier: Any,
    stores: Iterable[str],
    operator: str,
    *,
    has_fixed_key: bool,
) -> LogicalNode:
    if isinstance(supplier, Processor):
        raise TopologyError(
            f"{operator} needs a Processor class or a function that makes one, not an instance: each task has its own"
        )
    settled(supplier, operator, "()")
    if isinstance(stores, str):
        raise TopologyError(f"{operator}: stores must be a list of names, not the text {stores!r}")
    content = UserProcess(ProcessorOperator(supplier, has_fixed_key), tuple(stores))
    return stream._graph.add(stream._node, LogicalNode(name, content))


def _output_types(supplier: Any) -> tuple[Any, Any]:
    """Return KO and VO as a class says them: ``class P(Processor[KI, VI, KO, VO])``."""
    for base in getattr(supplier, "__orig_bases__", ()):
        if get_origin(base) is Processor:
            *_, key, value = get_args(base)
            return told(key), told(value)
    return UNKNOWN, UNKNOWN


def repartitioned(
    stream: "KStream[Any, Any]",
    name: str | None,
    partitions: int | None,
    key: Any,
    value: Any,
    partitioner: Partitioner | None,
) -> "KStream[Any, Any]":
    """Add a repartition topic that the user asks for."""
    if partitions is not None and (type(partitions) is not int or partitions < 1):
        raise TopologyError(f"repartition of {stream!r}: partitions must be an int of at least 1, not {partitions!r}")
    if partitioner is not None:
        settled(partitioner, "repartition", _PARTITIONER_FORM)
    names = stream._graph.names
    base = names.generated("KSTREAM-REPARTITION-") if name is None else check_name(name)
    key_slot, value_slot = overridden(stream._key, key, stream._name), overridden(stream._value, value, stream._name)
    node = repartition_node(
        names, base, key_slot, value_slot, is_optimizable=False, partitions=partitions, partitioner=partitioner
    )
    stream._graph.add(stream._node, node)
    return following(stream, node, key_slot, value_slot, needs_repartition=False, sources=frozenset((node.name,)))


def sunk(
    stream: "KStream[Any, Any]",
    topic: Any,
    name: str | None,
    key: Any,
    value: Any,
    partitioner: Partitioner | None,
) -> None:
    """Add a sink."""
    fixed, topic_for = None, None
    key_slot, value_slot = overridden(stream._key, key, stream._name), overridden(stream._value, value, stream._name)
    if isinstance(topic, TopicSink):
        fixed = topic.name
        if isinstance(topic, Topic):
            stream._graph.declare(topic)
        key_slot = overridden(key_slot, topic.key_serde, stream._name, f"the key of topic {topic.name!r}")
        value_slot = overridden(value_slot, topic.value_serde, stream._name, f"the value of topic {topic.name!r}")
    elif isinstance(topic, str):
        fixed = check_topic_name(topic)
    elif callable(topic):
        topic_for = topic
        if settle(topic, "to", (_KEY_VALUE, "(key, value, context)")) == 0:
            topic_for = _without_context(topic)
    else:
        raise TopologyError(f"to() needs a Topic, a topic's name or a function that chooses one, got {topic!r}")
    if partitioner is not None:
        settled(partitioner, "to", _PARTITIONER_FORM)
    full_name = stream._graph.names.given(name, "KSTREAM-SINK-")
    content = Sink(fixed, topic_for, key_slot, value_slot, partitioner)
    stream._graph.add(stream._node, LogicalNode(full_name, content))


def _without_context(topic_for: Callable[[Any, Any], str]) -> Callable[[Any, Any, RecordContext], str]:
    def choose(key: Any, value: Any, _: RecordContext) -> str:
        return topic_for(key, value)

    return choose


def tabled(
    stream: "KStream[Any, Any]", name: str | None, store: Any, key: Any, value: Any, options: Mapping[str, Any]
) -> "KTable[Any, Any]":
    """Add the operator that reads a stream as a table."""
    from streams.dsl.operators import ToTable
    from streams.dsl.table import KTable

    graph = stream._graph
    full_name = graph.names.given(name, "KSTREAM-TOTABLE-")
    key_slot, value_slot = overridden(stream._key, key, full_name), overridden(stream._value, value, full_name)
    wanted = stores_of.store_name(name, store)
    kept = stores_of.key_value(graph, wanted, "KSTREAM-TOTABLE-", key_slot, value_slot, options)
    parent, sources = stream._node, stream._sources
    if stream._needs_repartition:
        parent = repartition_node(graph.names, full_name, key_slot, value_slot)
        graph.add(stream._node, parent)
        sources = frozenset((parent.name,))
    state = SourceState(kept, kept.is_queryable)
    content = Process(lambda: ToTable(state.store, state.send_old), state.specs)
    node = graph.add(parent, LogicalNode(full_name, content, is_output_versioned=kept.is_versioned))
    return KTable(graph, full_name, key_slot, value_slot, sources, state, node)


def grouped(
    stream: "KStream[Any, Any]", mapper: Callable[..., Any], name: str | None, key: Any, value: Any
) -> "KGroupedStream[Any, Any]":
    """Add a change of the key before a grouping."""
    from streams.dsl.grouped import KGroupedStream

    selected = with_key(stream, mapper, name, "group_by")
    key_slot = overridden(selected._key, key, selected._name)
    value_slot = overridden(selected._value, value, selected._name)
    return KGroupedStream(
        selected._graph, selected._name, key_slot, value_slot, selected._sources, True, selected._node, name
    )
