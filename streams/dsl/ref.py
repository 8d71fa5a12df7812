"""References to streams and tables in the logical graph.

The DSL operators are functions that take and return references.  They add nodes to the graph and
import no public classes.  ``KStream``, ``KTable`` and the other fluent classes each wrap a single
reference.  Imports the logical graph, serde variables and table states.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

from attrs import define

from streams.core.errors import TopologyError
from streams.dsl.logical import LogicalContent, LogicalGraph, LogicalNode
from streams.dsl.names import REPARTITION_SUFFIX, check_name
from streams.dsl.nodes import LogicalRepartition
from streams.dsl.operators import change_serde
from streams.dsl.repartition import repartition_node
from streams.dsl.serde_variables import SerdeVariable
from streams.dsl.table_state import TableState


@define(eq=False, repr=False)
class StreamRef:
    """The records that a node of the logical graph forwards."""

    graph: LogicalGraph
    node: LogicalNode
    key: SerdeVariable
    value: SerdeVariable
    #: Names of the source nodes that determine the partitions of the records.
    sources: frozenset[str]
    #: Whether the key was changed upstream, so that records with equal keys may be in different partitions.
    needs_repartition: bool = False
    #: The repartition topic shared by all unnamed joins of this stream.
    _shared: LogicalNode | None = None

    def __repr__(self) -> str:
        return f"<KStream {self.name}>"

    @property
    def name(self) -> str:
        """Name of the node."""
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
        sources: Iterable[str] | None = None,
    ) -> "StreamRef":
        """Return the stream that ``node`` forwards; properties that are not given are copied from this stream."""
        return StreamRef(
            self.graph,
            node,
            key or self.key,
            value or self.value,
            self.sources if sources is None else frozenset(sources),
            self.needs_repartition if needs_repartition is None else needs_repartition,
        )

    def repartitioned(self, node: LogicalNode, key: SerdeVariable, value: SerdeVariable) -> "StreamRef":
        """Return the stream that is read back from the repartition topic of ``node``."""
        return self.at(node, key, value, needs_repartition=False, sources=(node.name,))

    def repartitioned_for_join(self, base: str, key: SerdeVariable, value: SerdeVariable) -> "StreamRef":
        """Return the stream read back from a repartition topic named after ``base``.

        Unnamed joins share one topic, for which ``base`` is the name of this stream.
        """
        node = repartition_node(self.graph.names, base, key, value)
        if self._shared is None or self.name != base:
            self._shared = self.graph.add(self.node, node)
        return self.repartitioned(self._shared, key, value)


@define(eq=False, repr=False)
class TableRef:
    """The changes of a table that a node of the logical graph forwards, and the state of the table."""

    graph: LogicalGraph
    node: LogicalNode
    key: SerdeVariable
    value: SerdeVariable
    #: Names of the source nodes that determine the partitions of the rows.
    sources: frozenset[str]
    state: TableState

    def __repr__(self) -> str:
        return f"<KTable {self.name}>"

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.node.name

    def derived(self, node: LogicalNode, key: SerdeVariable, value: SerdeVariable, state: TableState) -> "TableRef":
        """Add a node that computes new rows from the rows of this table, and return the new table."""
        self.graph.add(self.node, node)
        return TableRef(self.graph, node, key, value, self.sources, state)


@define(eq=False, repr=False)
class GlobalTableRef:
    """A store that every instance fills from all partitions of a topic."""

    graph: LogicalGraph
    key: SerdeVariable
    value: SerdeVariable
    store: str

    def __repr__(self) -> str:
        return f"<GlobalKTable {self.store}>"


@define(eq=False, repr=False)
class GroupRef:
    """A grouped stream: the stream, the types declared for the group, and its repartition topic."""

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
        """The graph of the stream."""
        return self.stream.graph

    @property
    def name(self) -> str:
        """Name of the stream's node."""
        return self.stream.name

    def partitioned_by_key(self, store: str) -> tuple[LogicalNode, frozenset[str]]:
        """Return the node whose output is partitioned by key, and its source nodes; adds a repartition topic if needed.

        If the grouping has a name, the repartition topic is named after it and shared by all aggregations of the
        grouping.  Otherwise the topic is named after the store.
        """
        stream = self.stream
        if not stream.needs_repartition:
            return stream.node, stream.sources
        node = repartition_node(self.graph.names, self.topic or store, self.key, self.value)
        if self._shared is None or self.topic is None:
            self._shared = node
        self.graph.add(stream.node, self._shared)
        return self._shared, frozenset((self._shared.name,))


@define(eq=False, repr=False)
class GroupedTableRef:
    """Rows of a table with new keys, before they are repartitioned."""

    graph: LogicalGraph
    node: LogicalNode
    key: SerdeVariable
    value: SerdeVariable
    #: The name that the user gave to the grouping and its repartition topic, or None.
    topic: str | None
    _shared: LogicalNode | None = None

    def __repr__(self) -> str:
        return f"<KGroupedTable {self.name}>"

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.node.name

    def partitioned_by_key(self, store: str, sink: str, source: str) -> LogicalNode:
        """Add the repartition topic, named after the grouping, so that aggregations share it, or after the store."""
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
    """Reject connections between parts of two topologies.

    Raises:
        TopologyError: the two parts belong to different builders.
    """
    if one.graph is not other.graph:
        raise TopologyError(
            f"{operator} of {one!r} and {other!r}: they belong to different StreamsBuilders; "
            "make both with the builder that the topology function receives"
        )
