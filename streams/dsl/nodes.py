"""Contents of logical nodes: sources, sinks, operators and repartition topics, which are written to the topology.

The module imports only ``core``, ``state`` and ``topology`` from outside ``dsl``.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from attrs import define

from streams.core.errors import TopologyError
from streams.core.serdes.serdes import Serde, inside
from streams.dsl.logical import LogicalNode
from streams.dsl.serde_variables import SerdeVariable
from streams.state import StoreSpec
from streams.topology import (
    GlobalStore,
    KeyFilter,
    Operator,
    Partitioner,
    PassThrough,
    ProcessorNode,
    ProcessorOperator,
    RepartitionTopic,
    SideOutput,
    SinkNode,
    SourceNode,
    Topology,
)

#: Creates an operator; called when the graph is complete.
MakeOperator = Callable[[], Operator]
#: Creates a store spec; called when the graph is complete.
MakeSpec = Callable[[], StoreSpec]


@define(eq=False)
class LogicalSource:
    """A source node that reads the given topics, or all topics that match a pattern, as one stream."""

    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    key: SerdeVariable
    value: SerdeVariable
    timestamp: Any = None
    offset_reset: str | None = None
    idle_close_ms: int | None = None

    @property
    def subscription(self) -> object:
        """The topics or the pattern, in a form that can be compared and hashed."""
        return (self.pattern.pattern, self.pattern.flags) if self.pattern else frozenset(self.topics)

    def source(self, name: str) -> SourceNode:
        """Return the source as a topology node with this name."""
        serdes = self.key.resolve(), self.value.resolve()
        return SourceNode(
            name, self.topics, self.pattern, *serdes, self.timestamp, self.offset_reset, self.idle_close_ms
        )

    def write(self, node: LogicalNode, topology: Topology) -> None:
        topology.add_node(self.source(node.name))


@define(eq=False)
class LogicalSideOutput:
    """A stream of the records that some nodes drop; ``droppers`` are the names of these nodes in the topology."""

    reasons: frozenset[str]
    droppers: list[str]

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the side output to the topology, without nodes that the optimizer has removed."""
        parents = tuple(name for name in self.droppers if name in topology.nodes)
        topology.add_node(ProcessorNode(node.name, SideOutput(self.reasons), parents))


@define(eq=False)
class LogicalSink:
    """A sink, which writes a stream to a topic, or to the topics that a function chooses."""

    topic: str | None
    topic_for: Callable[..., str] | None
    key: SerdeVariable
    value: SerdeVariable
    partitioner: Partitioner | None = None

    def write(self, node: LogicalNode, topology: Topology) -> None:
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
        """Add the processor to the topology, and connect its stores."""
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
    patience_ms: int | None = None
    #: Set by ``optimize`` if no operator downstream uses records without key.
    is_dropping_null_keys: bool = False
    #: Makes the serde of table changes from the serde of the rows.
    change_of: Callable[[Any], Any] | None = None

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the repartition topic to the topology, with its filter, sink and source."""
        key = self.key.resolve()
        value = self.value.resolve()
        if self.change_of is not None:
            value = self.change_of(value)
        key = inside(key)
        value = inside(value)
        topology.add_internal_topic(RepartitionTopic(self.topic, self.partitions, self.patience_ms))
        parents = node.parent_names
        if self.filter is not None:
            operator: Operator = KeyFilter() if self.is_dropping_null_keys else PassThrough()
            topology.add_node(ProcessorNode(self.filter, operator, parents))
            parents = (self.filter,)
        topology.add_node(SinkNode(self.sink, self.topic, key, value, parents, None, self.partitioner))
        topology.add_node(SourceNode(self.source, (self.topic,), None, key, value))


@define(eq=False)
class LogicalTableSource:
    """A topic that is read as a table: a source, and the operator that stores the rows."""

    source: str
    topics: LogicalSource
    operator: LogicalOperator
    #: Returns the store name, if there is a store; called when the graph is complete.
    store: Callable[[], str | None]
    #: Set by ``optimize`` if the topic itself serves as the changelog of the store.
    is_changelog: bool = False

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the source and the operator to the topology."""
        topology.add_node(self.topics.source(self.source))
        self.operator.write_as(node.name, (self.source,), topology)
        store = self.store()
        # Rows that expire are deleted in a changelog; the topic itself does not have these deletions.
        if not self.is_changelog or store is None or topology.stores[store].ttl_ms >= 0:
            return
        if self._is_kept(topology, store):
            (topology.source_changelogs[store],) = self.topics.topics

    def _is_kept(self, topology: Topology, store: str) -> bool:
        """Return whether topic and store have the same serdes, so that the topic can be the changelog of the store."""
        node = topology.nodes[self.source]
        spec = topology.stores[store]
        assert isinstance(node, SourceNode)
        return (node.key_serde.name, node.value_serde.name) == (spec.key_serde.name, spec.value_serde.name)


@define(eq=False)
class LogicalGlobalTable:
    """A topic that is read as a global table."""

    source: str
    topics: LogicalSource
    make: MakeOperator
    spec: MakeSpec

    def write(self, node: LogicalNode, topology: Topology) -> None:
        processor = ProcessorNode(node.name, self.make(), (self.source,))
        topology.add_global_store(GlobalStore(self.spec(), self.topics.source(self.source), processor))


@define(eq=False)
class LogicalStreamTableJoin:
    """A join of a stream and a table; ``grace_ms`` requires a versioned table with at least that much history."""

    process: LogicalOperator
    stores: Callable[[], Iterable[str]]
    grace_ms: int | None

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the join to the topology, and connect it to the table's stores."""
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
        """Add both sides of the join and their merge, or the self-join, to the topology."""
        if self.is_self_join:
            self.self_join.write_as(node.name, (self.this_windowed,), topology)
            return
        self.this.write_as(self.this_name, (self.this_windowed,), topology)
        self.other.write_as(self.other_name, (self.other_windowed,), topology)
        topology.add_node(ProcessorNode(node.name, PassThrough(), (self.this_name, self.other_name)))


@define(eq=False)
class LogicalTableTableJoin:
    """The join nodes of both sides of a table-table join, and their merge."""

    this_parent: str
    other_parent: str
    this_name: str
    other_name: str
    this: LogicalOperator
    other: LogicalOperator
    merge: LogicalOperator

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add both sides of the join and their merge to the topology."""
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
        topology.add_node(SourceNode(node.name, (self.topic,), None, self.key(), self.value()))
