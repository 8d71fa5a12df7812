"""Contents of logical nodes (sources, sinks, operators and repartitions), and how they are written.

Imports the logical graph, topology and core.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from attrs import define

from streams.core.errors import TopologyError
from streams.core.serdes import Serde
from streams.dsl.logical import LogicalNode
from streams.dsl.serde_variables import SerdeVariable
from streams.state import StoreSpec
from streams.topology import (
    Filter,
    GlobalStore,
    Operator,
    Partitioner,
    PassThrough,
    ProcessorNode,
    ProcessorOperator,
    RepartitionTopic,
    SinkNode,
    SourceNode,
    Topology,
)

#: Creates an operator; called when the graph is complete.
MakeOperator = Callable[[], Operator]
#: Creates a store spec; called when the graph is complete.
MakeSpec = Callable[[], StoreSpec]


def has_key(key: Any, value: Any) -> bool:
    """Whether a record has a key; used as the filter upstream of repartition topics."""
    return key is not None


@define(eq=False)
class LogicalSource:
    """Topics, or a pattern of topics, as a stream."""

    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    key: SerdeVariable
    value: SerdeVariable
    timestamp: Any = None
    offset_reset: str | None = None

    @property
    def subscription(self) -> object:
        """The topics or the pattern, in a form that can be compared and hashed."""
        return (self.pattern.pattern, self.pattern.flags) if self.pattern else frozenset(self.topics)

    def source(self, name: str) -> SourceNode:
        """Return the source as a node of the topology."""
        serdes = self.key.resolve(), self.value.resolve()
        return SourceNode(name, self.topics, self.pattern, *serdes, self.timestamp, self.offset_reset)

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the source."""
        topology.add_node(self.source(node.name))


@define(eq=False)
class LogicalSink:
    """A stream written to a topic, or to the topics that a function chooses."""

    topic: str | None
    topic_for: Callable[..., str] | None
    key: SerdeVariable
    value: SerdeVariable
    partitioner: Partitioner | None = None

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the sink."""
        topology.add_node(
            SinkNode(
                node.name,
                self.topic,
                self.key.resolve(),
                self.value.resolve(),
                node.parent_names,
                self.topic_for,
                self.partitioner,
            )
        )


@define(eq=False)
class LogicalOperator:
    """An operator, with the stores that it owns and the stores that it only reads."""

    make: MakeOperator
    owned: Callable[[], Iterable[StoreSpec]] | None = None
    connected: Callable[[], Iterable[str]] | None = None

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the operator and its stores."""
        self.write_as(node.name, node.parent_names, topology)

    def write_as(self, name: str, parents: tuple[str, ...], topology: Topology) -> None:
        """Add the operator and its stores as a node with the given name and parents."""
        topology.add_node(ProcessorNode(name, self.make(), parents))
        for spec in self.owned() if self.owned is not None else ():
            topology.add_state_store(spec, name)
        if self.connected is not None:
            topology.connect(name, *self.connected())


@define(eq=False)
class LogicalProcessor:
    """A user processor, with the stores that its class declares and the stores connected by name."""

    operator: ProcessorOperator
    stores: tuple[str, ...]

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the processor and connect its stores."""
        topology.add_node(ProcessorNode(node.name, self.operator, node.parent_names))
        topology.connect_declared(node.name, self.operator)
        topology.connect(node.name, *self.stores)


@define(eq=False)
class LogicalRepartition:
    """A repartition topic between two sub-topologies, with its filter, sink and source.

    ``filter`` is None for grouped tables.  The name of the node is that of the source.
    """

    topic: str
    sink: str
    source: str
    filter: str | None
    key: SerdeVariable
    value: SerdeVariable
    is_optimizable: bool
    partitions: int | None = None
    partitioner: Partitioner | None = None
    #: Set by ``optimize`` if no operator downstream uses records without key.
    is_dropping_null_keys: bool = False
    #: Makes the serde of table changes from the serde of the rows.
    change_of: Callable[[Any], Any] | None = None

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the topic, and the filter, sink and source around it."""
        key, value = self.key.resolve(), self.value.resolve()
        if self.change_of is not None:
            value = self.change_of(value)
        topology.add_internal_topic(RepartitionTopic(self.topic, self.partitions))
        parents = node.parent_names
        if self.filter is not None:
            operator: Operator = Filter(has_key) if self.is_dropping_null_keys else PassThrough()
            topology.add_node(ProcessorNode(self.filter, operator, parents))
            parents = (self.filter,)
        topology.add_node(SinkNode(self.sink, self.topic, key, value, parents, None, self.partitioner))
        topology.add_node(SourceNode(self.source, (self.topic,), None, key, value))


@define(eq=False)
class LogicalTableSource:
    """A topic as a table: a source and the operator that stores the rows."""

    source: str
    topics: LogicalSource
    operator: LogicalOperator
    #: Returns the store name, if there is a store; called when the graph is complete.
    store: Callable[[], str | None]
    #: Set by ``optimize`` if the topic itself serves as the changelog of the store.
    is_changelog: bool = False

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the source and the operator."""
        topology.add_node(self.topics.source(self.source))
        self.operator.write_as(node.name, (self.source,), topology)
        store = self.store()
        if self.is_changelog and store is not None:
            (topology.source_changelogs[store],) = self.topics.topics


@define(eq=False)
class LogicalGlobalTable:
    """A topic as a global store."""

    source: str
    topics: LogicalSource
    make: MakeOperator
    spec: MakeSpec

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the global store."""
        processor = ProcessorNode(node.name, self.make(), (self.source,))
        topology.add_global_store(GlobalStore(self.spec(), self.topics.source(self.source), processor))


@define(eq=False)
class LogicalStreamTableJoin:
    """A join of a stream and a table; ``grace_ms`` needs a versioned table with at least as much history."""

    process: LogicalOperator
    stores: Callable[[], Iterable[str]]
    grace_ms: int | None

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the join and connect it to the table's stores."""
        self.process.write(node, topology)
        for store in self.stores() if self.grace_ms is not None else ():
            history_ms = topology.stores[store].history_ms
            if history_ms < 0:
                raise TopologyError(
                    f"join {node.name!r}: grace= needs a versioned table, but store {store!r} is not; "
                    "give the table history="
                )
            if self.grace_ms is not None and self.grace_ms > history_ms:
                raise TopologyError(
                    f"join {node.name!r}: the grace of {self.grace_ms} ms is longer than the history of store "
                    f"{store!r}, {history_ms} ms; give the table a longer history="
                )


@define(eq=False)
class LogicalStreamStreamJoin:
    """The join nodes of both sides of a stream-stream join, and their merge.

    Upstream of each join node, a windowed node stores the records of its side.
    """

    this_windowed: str
    other_windowed: str
    this_name: str
    other_name: str
    this: LogicalOperator
    other: LogicalOperator
    self_join: LogicalOperator
    #: Set by ``optimize`` if both sides are the same stream, so that one store is enough.
    is_self_join: bool = False

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add both sides and the merge, or the self-join."""
        if self.is_self_join:
            self.self_join.write_as(node.name, (self.this_windowed,), topology)
            return
        self.this.write_as(self.this_name, (self.this_windowed,), topology)
        self.other.write_as(self.other_name, (self.other_windowed,), topology)
        topology.add_node(ProcessorNode(node.name, PassThrough(), (self.this_name, self.other_name)))


@define(eq=False)
class LogicalTableTableJoin:
    """Both sides of a table-table join, and their merge."""

    this_parent: str
    other_parent: str
    this_name: str
    other_name: str
    this: LogicalOperator
    other: LogicalOperator
    merge: LogicalOperator

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add both sides and the merge."""
        self.this.write_as(self.this_name, (self.this_parent,), topology)
        self.other.write_as(self.other_name, (self.other_parent,), topology)
        self.merge.write_as(node.name, (self.this_name, self.other_name), topology)


@define(eq=False)
class LogicalInternalSink:
    """A sink to an internal topic, whose serdes are created when the graph is complete."""

    topic: str
    key: Callable[[], Serde[Any]]
    value: Callable[[], Serde[Any]]
    partitioner: Partitioner | None = None

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the topic and the sink."""
        topology.add_internal_topic(RepartitionTopic(self.topic))
        topology.add_node(
            SinkNode(node.name, self.topic, self.key(), self.value(), node.parent_names, None, self.partitioner)
        )


@define(eq=False)
class LogicalInternalSource:
    """A source from an internal topic, whose serdes are created when the graph is complete."""

    topic: str
    key: Callable[[], Serde[Any]]
    value: Callable[[], Serde[Any]]

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the source."""
        topology.add_node(SourceNode(node.name, (self.topic,), None, self.key(), self.value()))
