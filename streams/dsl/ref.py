"""References to streams and tables in the logical graph.

The DSL operators are functions that take and return references.  They add nodes to the graph and import no public
classes.  ``KStream``, ``KTable`` and the other fluent classes each wrap a single reference.  The module imports only
``core`` from outside ``dsl``.
"""

from typing import Any, TypeAlias

from attrs import define

from streams.core.errors import TopologyError
from streams.dsl.building.repartition import repartition_node
from streams.dsl.logical import LogicalContent, LogicalGraph, LogicalNode
from streams.dsl.names import REPARTITION_SUFFIX, check_name
from streams.dsl.nodes import LogicalRepartition
from streams.dsl.processing import change_serde
from streams.dsl.serde_variables import SerdeVariable
from streams.dsl.table_state import TableState


@define(eq=False, repr=False)
class StreamRef:
    """A reference to a stream: the records that a node of the logical graph forwards."""

    graph: LogicalGraph
    node: LogicalNode
    key: SerdeVariable
    value: SerdeVariable
    #: Whether the key was changed upstream, so that records with equal keys may be in different partitions.
    needs_repartition: bool = False
    #: The repartition topic shared by all unnamed joins of this stream.
    _shared: LogicalNode | None = None
    #: The records that the node drops (``SideOutputs``), if it is a join.
    side: Any = None

    def __repr__(self) -> str:
        return f"<KStream {self.name}>"

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node.name

    def add(self, name: str, content: LogicalContent, **properties: Any) -> LogicalNode:
        """Add a node downstream of this stream and return it; ``properties`` are attributes of ``LogicalNode``."""
        return self.graph.add(self.node, LogicalNode(name, content, **properties))

    def at(
        self,
        node: LogicalNode,
        key: SerdeVariable | None = None,
        value: SerdeVariable | None = None,
        *,
        needs_repartition: bool | None = None,
    ) -> "StreamRef":
        """Return a reference to the stream that ``node`` forwards; properties not given are those of this stream."""
        return StreamRef(
            self.graph,
            node,
            key or self.key,
            value or self.value,
            self.needs_repartition if needs_repartition is None else needs_repartition,
        )

    def repartitioned(self, node: LogicalNode, key: SerdeVariable, value: SerdeVariable) -> "StreamRef":
        """Return the stream that is read back from the repartition topic of ``node``."""
        return self.at(node, key, value, needs_repartition=False)

    def repartitioned_for_join(self, base: str, key: SerdeVariable, value: SerdeVariable) -> "StreamRef":
        """Return the stream read back from a repartition topic named after ``base``.

        Joins without a name share one topic, for which ``base`` is the name of this stream.
        """
        node = repartition_node(self.graph.names, base, key, value)
        if self._shared is None or self.name != base:
            self._shared = self.graph.add(self.node, node)
        return self.repartitioned(self._shared, key, value)


@define(eq=False, repr=False)
class TableRef:
    """A reference to a table: the changes that a node of the logical graph forwards, and the table's state."""

    graph: LogicalGraph
    node: LogicalNode
    key: SerdeVariable
    value: SerdeVariable
    state: TableState
    #: The records that the node drops (``SideOutputs``), if it is a source or a join.
    side: Any = None

    def __repr__(self) -> str:
        return f"<KTable {self.name}>"

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node.name

    def derived(self, node: LogicalNode, key: SerdeVariable, value: SerdeVariable, state: TableState) -> "TableRef":
        """Add a node that computes new rows from the rows of this table, and return the new table."""
        self.graph.add(self.node, node)
        return TableRef(self.graph, node, key, value, state)


@define(eq=False, repr=False)
class GlobalTableRef:
    """A reference to a global table: a store that every instance fills from all partitions of a topic."""

    graph: LogicalGraph
    key: SerdeVariable
    value: SerdeVariable
    store: str

    def __repr__(self) -> str:
        return f"<GlobalKTable {self.store}>"


@define(eq=False, repr=False)
class GroupRef:
    """A reference to a grouped stream: the stream, the types declared for it, and its repartition topic."""

    stream: StreamRef
    key: SerdeVariable
    value: SerdeVariable
    #: The name that the user gave to the grouping and its repartition topic, or None.
    topic: str | None
    _shared: LogicalNode | None = None

    def __attrs_post_init__(self) -> None:
        if self.topic is not None:
            check_name(self.topic)

    def __repr__(self) -> str:
        return f"<KGroupedStream {self.name}>"

    @property
    def graph(self) -> LogicalGraph:
        """The logical graph to which the stream belongs."""
        return self.stream.graph

    @property
    def name(self) -> str:
        """The name of the stream's node."""
        return self.stream.name

    def partitioned_by_key(self, store: str) -> LogicalNode:
        """Return the node whose output is partitioned by the grouping key.

        A repartition topic is added if it is needed.

        If the grouping has a name, the repartition topic is named after it and shared by all aggregations of the
        grouping.  Otherwise the topic is named after the store.
        """
        stream = self.stream
        if not stream.needs_repartition:
            return stream.node
        node = repartition_node(self.graph.names, self.topic or store, self.key, self.value)
        if self._shared is None or self.topic is None:
            self._shared = node
        self.graph.add(stream.node, self._shared)
        return self._shared


@define(eq=False, repr=False)
class GroupedTableRef:
    """A reference to a grouped table: the rows with their new keys, before they are repartitioned."""

    graph: LogicalGraph
    node: LogicalNode
    key: SerdeVariable
    value: SerdeVariable
    #: The name that the user gave to the grouping and its repartition topic, or None.
    topic: str | None
    _shared: LogicalNode | None = None
    #: The rows that are in no group (``SideOutputs``).
    side: Any = None

    def __repr__(self) -> str:
        return f"<KGroupedTable {self.name}>"

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node.name

    def partitioned_by_key(self, store: str, sink: str, source: str) -> LogicalNode:
        """Add the repartition topic and return its node.

        If the grouping has a name, the topic is named after it and shared by all aggregations of the grouping.
        Otherwise the topic is named after the store.
        """
        if self._shared is None or self.topic is None:
            topic = (self.topic or store) + REPARTITION_SUFFIX
            content = LogicalRepartition(
                topic, sink, source, None, self.key, self.value, is_optimizable=False, change_of=change_serde
            )
            self._shared = LogicalNode(source, content)
        return self.graph.add(self.node, self._shared)


#: The possible right sides of a stream join.
JoinableRef: TypeAlias = StreamRef | TableRef | GlobalTableRef


def check_builder(one: Any, other: Any, operator: str) -> None:
    """Check that two streams or tables belong to the same builder.

    Raises:
        TopologyError: the two parts belong to different builders.
    """
    if one.graph is not other.graph:
        raise TopologyError(
            f"{operator} of {one!r} and {other!r}: they belong to different StreamsBuilders; "
            "make both with the builder that the topology function receives"
        )
