"""The logical graph: the operators declared by the user, before they are written as a topology.

Each DSL call adds nodes to the graph and takes numbers from the counter, in the same order as Kafka Streams.
``optimize`` may rearrange the graph, and writes it as a ``Topology``.  All nodes have the same class and differ in
their ``content``, which adds them to the topology.  The module imports only ``core``, ``state`` and ``topology`` from
outside ``dsl``.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from attrs import Factory, define, field

from streams.core.errors import TopologyError
from streams.core.topic import Topic, agreed
from streams.dsl.names import Names
from streams.state import StoreSpec
from streams.topology import GlobalStore, Topology


class LogicalContent(Protocol):
    """The operator-specific part of a logical node, which writes nodes, stores and topics."""

    def write(self, node: "LogicalNode", topology: Topology) -> None:
        """Add nodes, stores and topics to the topology."""
        ...


@define(eq=False, repr=False)
class LogicalNode:
    """A node of the logical graph.

    Nodes are written to the topology after their parents, and otherwise by ascending ``priority``, which is set when a
    parent is connected.  ``is_output_versioned`` is None if the parents determine whether the output is versioned.
    ``grace_ms`` and ``window_ms`` are set by windowed aggregations.
    """

    name: str
    content: LogicalContent
    is_key_changing: bool = False
    is_value_changing: bool = False
    is_merge: bool = False
    #: Whether this is a left or outer join, whose upstream repartition topics must keep records with null keys.
    has_relaxed_null_keys: bool = False
    is_output_versioned: bool | None = None
    #: Names of parents whose rows are versioned, determined before writing (KIP-914).
    versioned_parents: set[str] = Factory(set)
    is_suppress: bool = False
    grace_ms: int | None = None
    #: Size in milliseconds of the windows of a windowed aggregation.
    window_ms: int = 0
    priority: int = -1
    is_written: bool = False
    #: Node -> how often it is connected, in the order of the first connection: a stream merged with itself is twice a
    #: parent of the merge.
    children: dict["LogicalNode", int] = Factory(dict)
    parents: dict["LogicalNode", int] = Factory(dict)

    def __repr__(self) -> str:
        return f"<{type(self.content).__name__} {self.name}>"

    def add_child(self, child: "LogicalNode", times: int = 1) -> None:
        """Connect a child downstream, in addition to its connections."""
        self.children[child] = child.parents[self] = self.children.get(child, 0) + times

    def remove_child(self, child: "LogicalNode") -> int:
        """Remove all connections to a child, and return how many there were."""
        del child.parents[self]
        return self.children.pop(child)

    def find_upwards(self, matches: Callable[["LogicalNode"], bool]) -> "LogicalNode | None":
        """Return this node if ``matches(node)`` is true for it, otherwise the nearest matching ancestor or None.

        If none of several parents matches, only the ancestors of the last parent are searched, as in Kafka Streams.
        """
        if matches(self):
            return self
        nearest = None
        for parent in self.parents:
            if matches(parent):
                return parent
            nearest = parent.find_upwards(matches)
        return nearest

    @property
    def parent_names(self) -> tuple[str, ...]:
        """The names of the parents in the order in which they were connected, each as often as it is connected."""
        return tuple(parent.name for parent, times in self.parents.items() for _ in range(times))


class Root:
    """The content of the root of the graph, which adds no node to the topology."""

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Write nothing, because the root is not part of the topology."""


@define(eq=False)
class LogicalGraph:
    """The logical graph of one ``StreamsBuilder``, with the counter for generated names."""

    names: Names = Factory(Names)
    root: LogicalNode = field(factory=lambda: LogicalNode("root", Root()))
    #: All nodes in the order in which they were first added, for the optimizer.
    nodes: dict[LogicalNode, None] = Factory(dict)
    topics: dict[str, Topic[Any, Any]] = Factory(dict)
    #: Nodes of dropped records, some of which may wait for the operator that drops the records.
    side_outputs: list[LogicalNode] = Factory(list)
    _next_priority: int = 0
    _stores: set[str] = Factory(set)
    is_built: bool = False

    def add(self, parents: LogicalNode | Iterable[LogicalNode], child: LogicalNode) -> LogicalNode:
        """Connect ``child`` to its parents and return ``child``.

        A node that is added again, such as a repartition topic that several aggregations share, keeps its connections;
        it is written later, as in Kafka Streams.

        Raises:
            TopologyError: the topology has already been built.
        """
        if self.is_built:
            raise TopologyError(f"{child.name}: the topology is already built; declare operators before build()")
        is_new = child not in self.nodes
        for parent in (parents,) if isinstance(parents, LogicalNode) else parents:
            if is_new:
                parent.add_child(child)
            child.priority = self._next_priority
            self._next_priority += 1
        self.nodes[child] = None
        return child

    def declare(self, topic: Topic[Any, Any]) -> None:
        """Register the declaration of a topic, to be added to the topology.

        Raises:
            TopologyError: the topic was declared before, with another type, function or partition count.
        """
        self.topics[topic.name] = agreed(self.topics.get(topic.name, topic), topic)

    def claim_store(self, store: str) -> None:
        """Reserve the name of a store for one operator.

        Raises:
            TopologyError: another operator already has a store with this name.
        """
        if store in self._stores:
            raise TopologyError(f"there are two stores of the name {store!r}; rename one of them")
        self._stores.add(store)


@define(eq=False)
class LogicalStore:
    """A store that the user adds for processors."""

    spec: StoreSpec

    def write(self, node: LogicalNode, topology: Topology) -> None:
        """Add the store without processors; the nodes that use it connect themselves."""
        topology.add_state_store(self.spec)


@define(eq=False)
class LogicalGlobalStore:
    """A global store that a user processor fills."""

    store: GlobalStore

    def write(self, node: LogicalNode, topology: Topology) -> None:
        topology.add_global_store(self.store)
