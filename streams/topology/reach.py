"""The nodes upstream and downstream of others, also through topics, and those behind a record cache.

The module imports only ``topology``.
"""

from collections.abc import Iterable, Mapping, Sequence

from streams.topology.graph import Node, NodeGraph, ProcessorNode, SinkNode, SourceNode
from streams.topology.processors import ProcessorOperator


def reached(topology: NodeGraph, names: Iterable[str], *, up: bool) -> list[str]:
    """Return all nodes upstream or downstream of the given nodes, including through topics of the topology."""
    starts = list(names)
    writers: dict[str, list[str]] = {}
    readers: dict[str, list[str]] = {}
    for node in topology.nodes.values():
        if isinstance(node, SinkNode) and node.topic is not None:
            writers.setdefault(node.topic, []).append(node.name)
        elif isinstance(node, SourceNode):
            for topic in node.topics:
                readers.setdefault(topic, []).append(node.name)
    seen: dict[str, None] = {}
    pending = list(starts)
    while pending:
        node = topology.nodes[pending.pop()]
        for name in _above(node, writers) if up else _below(node, readers, topology.children[node.name]):
            if name not in seen:
                seen[name] = None
                pending.append(name)
    return [name for name in seen if name not in starts]


def _above(node: Node, writers: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Return the parents of a node; those of a source are the sinks that write its topics."""
    if isinstance(node, SourceNode):
        return [name for topic in node.topics for name in writers.get(topic, ())]
    return node.parents


def _below(node: Node, readers: Mapping[str, Sequence[str]], children: Sequence[str]) -> Sequence[str]:
    """Return the children of a node; those of a sink are the sources that read its topic."""
    if isinstance(node, SinkNode) and node.topic is not None:
        return readers.get(node.topic, ())
    return children


def is_one_to_one(node: Node) -> bool:
    """Return whether a node is an operator that forwards each record once, except those that it counts as dropped."""
    return isinstance(node, ProcessorNode) and getattr(node.operator, "is_one_to_one", False)


def holds_back(topology: NodeGraph, node: Node) -> bool:
    """Return whether all output of a node goes through the record cache, if the application has one."""
    operator = node.operator if isinstance(node, ProcessorNode) else None
    spec = topology.stores.get(getattr(operator, "store", None) or "")
    return spec is not None and spec.is_cacheable and not getattr(operator, "emit_on_close", False)


def behind_caches(topology: NodeGraph) -> Mapping[str, tuple[str, ...]]:
    """Return the nodes whose results depend on commits if the application has a record cache, each with the stores.

    Downstream of a cached store, only the last update of a key and commit arrives.  Nodes that forward each record
    once, and sinks, then give the last of their results; the others, such as filters, aggregates and joins, may give
    other results.  So may nodes that read a store which such a node writes.  The cached store itself is always current.
    """
    stores: dict[str, list[str]] = {}
    for cached in topology.nodes.values():
        if holds_back(topology, cached):
            [store] = _written(topology, cached)
            for name in _affected(topology, cached.name):
                node = topology.nodes[name]
                if isinstance(node, ProcessorNode) and not is_one_to_one(node):
                    stores.setdefault(name, []).append(store)
    return {name: tuple(dict.fromkeys(stores[name])) for name in topology.nodes if name in stores}


def _affected(topology: NodeGraph, cached: str) -> Iterable[str]:
    """Return the nodes downstream of a node, and of those that read what such nodes store."""
    behind = dict.fromkeys(reached(topology, [cached], up=False))
    while True:
        written = {store for name in behind for store in _written(topology, topology.nodes[name])}
        users = dict.fromkeys(user for store in written for user in topology.store_users[store])
        readers = [user for user in users if user not in behind and user != cached]
        if not readers:
            return behind
        behind |= dict.fromkeys([*readers, *reached(topology, readers, up=False)])


def _written(topology: NodeGraph, node: Node) -> Iterable[str]:
    """Return the stores that a node may write."""
    if not isinstance(node, ProcessorNode):
        return ()
    if isinstance(node.operator, ProcessorOperator):
        return topology.stores_of(node.name)
    store = getattr(node.operator, "store", None)
    return () if store is None else (store,)
