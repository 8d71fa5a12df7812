"""Record headers that several nodes and a record cache share, as in Kafka Streams.

Kafka Streams passes one record object to all children of a node. If a processor changes the headers, the change
is visible to the siblings after it, and to a record cache with an update of the record: the cache entry
references the headers, which are read at the flush.

In the generated program, headers are a tuple or None. A node that may change the headers returns them for the nodes
after it. Only if a cache may contain a record whose headers a processor can change, the headers are a list that all
nodes share: *live* headers.
"""

from attrs import frozen

from streams.topology.graph import Node, ProcessorNode, SourceNode
from streams.topology.processors import ProcessorOperator
from streams.topology.reach import holds_back
from streams.topology.stateless import Branch, PassThrough
from streams.topology.subtopologies import SubTopology
from streams.topology.topology import Topology

#: Operators that forward the record they receive. All other operators create a new record with its own headers,
#: including filters, peeks and value mappers: in Kafka Streams these are fixed-key processors, whose context
#: copies the record.
_SHARING = (PassThrough, Branch)


@frozen
class LiveHeaders:
    """The nodes of a sub-topology that use live headers."""

    #: Nodes that receive live headers.
    taking: frozenset[str] = frozenset()
    #: Receiving nodes that need a copy: all except caches, processors, and nodes that forward the same record.
    copying: frozenset[str] = frozenset()
    #: Nodes that create records with live headers.
    making: frozenset[str] = frozenset()


def changes_headers(node: Node) -> bool:
    """Return whether user code at a node may change the headers of a record."""
    return (
        isinstance(node, ProcessorNode)
        and isinstance(node.operator, ProcessorOperator)
        and not node.operator.has_fixed_key
    )


def shares_headers(node: Node) -> bool:
    """Return whether a node forwards the record that it receives."""
    return isinstance(node, ProcessorNode) and isinstance(node.operator, _SHARING)


def live_headers(topology: Topology, sub: SubTopology, *, has_cache: bool) -> LiveHeaders:
    """Return the nodes of a sub-topology that use live headers; ``has_cache`` means that there is a record cache."""
    nodes = [topology.nodes[name] for name in sub.nodes]
    if not has_cache or not any(changes_headers(node) for node in nodes):
        return LiveHeaders()
    group = {(name, side): {(name, side)} for name in sub.nodes for side in ("in", "out")}

    def join(one: tuple[str, str], two: tuple[str, str]) -> None:
        if group[one] is not group[two]:
            group[one] |= group[two]
            for member in group[two]:
                group[member] = group[one]

    for node in nodes:
        if shares_headers(node) or changes_headers(node):
            join((node.name, "in"), (node.name, "out"))
        for child in topology.children[node.name]:
            join((node.name, "out"), (child, "in"))

    def is_live(name: str, side: str) -> bool:
        inside = [topology.nodes[member] for member, into in group[name, side] if into == "in"]
        return any(map(changes_headers, inside)) and any(holds_back(topology, node) for node in inside)

    taking = [node for node in nodes if not isinstance(node, SourceNode) and is_live(node.name, "in")]
    passing = {node.name for node in taking if shares_headers(node) or changes_headers(node)}
    copying = (node.name for node in taking if node.name not in passing and not holds_back(topology, node))
    making = (node.name for node in nodes if node.name not in passing and is_live(node.name, "out"))
    return LiveHeaders(frozenset(node.name for node in taking), frozenset(copying), frozenset(making))
