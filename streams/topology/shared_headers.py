"""Which nodes are handed the very same record, and where a record cache must see its headers change.

Kafka Streams hands one record object to all children of a forward.  What a processor does to its
headers is seen by the siblings behind it, and by a cache that holds an update of the record back:
its entry has a reference to the headers, not a copy, and is read when it is flushed.

Headers are a tuple, or None, in the program.  A node that may change them gives them back, and so
those behind it have them.  Only where a cache holds back what a processor may change, they are one
list for all that share the record: *live*.
"""

from collections.abc import Callable

from attrs import frozen

from streams.topology.graph import Node, ProcessorNode, SourceNode, Topology
from streams.topology.inline import Branch, PassThrough
from streams.topology.processors import ProcessorOperator
from streams.topology.subtopologies import SubTopology

#: Operators that hand on the record they got; the others make a new one, with headers of its own.  Filters, peeks and
#: value mappers do too: they are fixed-key processors in Kafka Streams, whose context copies what is forwarded.
_SHARING = (PassThrough, Branch)


@frozen
class LiveHeaders:
    """Nodes of a sub-topology with live headers."""

    #: Nodes that are given them.
    taking: frozenset[str] = frozenset()
    #: Those of them that need a copy: all but caches, processors, and those that hand the record on.
    copying: frozenset[str] = frozenset()
    #: Nodes that make records with live headers.
    making: frozenset[str] = frozenset()


def changes_headers(node: Node) -> bool:
    """Whether user code at a node may change the headers of the record it is given."""
    return (
        isinstance(node, ProcessorNode)
        and isinstance(node.operator, ProcessorOperator)
        and not node.operator.has_fixed_key
    )


def shares_headers(node: Node) -> bool:
    """Whether a node hands on the record it is given."""
    return isinstance(node, ProcessorNode) and isinstance(node.operator, _SHARING)


def live_headers(topology: Topology, sub: SubTopology, caches: Callable[[str], bool] | None) -> LiveHeaders:
    """Find what is live in a sub-topology; ``caches`` says of a store whether a record cache is behind it."""
    nodes = [topology.nodes[name] for name in sub.nodes]
    if caches is None or not any(changes_headers(node) for node in nodes):
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
        return any(map(changes_headers, inside)) and any(_holds(node, caches) for node in inside)

    taking = [node for node in nodes if not isinstance(node, SourceNode) and is_live(node.name, "in")]
    passing = {node.name for node in taking if shares_headers(node) or changes_headers(node)}
    copying = (node.name for node in taking if node.name not in passing and not _holds(node, caches))
    making = (node.name for node in nodes if node.name not in passing and is_live(node.name, "out"))
    return LiveHeaders(frozenset(node.name for node in taking), frozenset(copying), frozenset(making))


def _holds(node: Node, caches: Callable[[str], bool]) -> bool:
    """Whether all that a node emits goes through a record cache."""
    operator = node.operator if isinstance(node, ProcessorNode) else None
    store = getattr(operator, "store", None)
    return isinstance(store, str) and not getattr(operator, "emit_on_close", False) and caches(store)
