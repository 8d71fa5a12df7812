"""Writing of the logical graph as a topology, which includes the merging of sources and optimization.

The rules are those of Kafka Streams.  Several sources of the same topic are merged.  With
``topology_optimization="all"``, tables use their topic as changelog, repartition topics downstream of the same key
change are merged, and a stream joined with itself has a single store.  Repartition topics drop records without a key
unless a downstream operator uses these records.  The module imports only ``core`` and ``topology`` from outside
``dsl``.
"""

import heapq

from streams.core.errors import TopologyError
from streams.core.user_code import is_same
from streams.dsl.building.repartition import repartition_node
from streams.dsl.logical import LogicalContent, LogicalGraph, LogicalNode
from streams.dsl.nodes import LogicalRepartition, LogicalSource, LogicalStreamStreamJoin, LogicalTableSource
from streams.dsl.serde_variables import SerdeVariable
from streams.topology import Topology

#: Repartition nodes downstream of each node that changes the key.
_ByKeyChange = dict[LogicalNode, dict[LogicalNode, None]]


def write(graph: LogicalGraph, optimization: str) -> Topology:
    """Write a logical graph as a topology, and return the topology; ``optimization`` is ``none`` or ``all``.

    Raises:
        TopologyError: the graph is invalid as a whole.
    """
    for node in graph.side_outputs:
        if not node.parents:
            raise TopologyError(f"{node.name!r} has no aggregation whose dropped records it could forward; add one")
    _merge_duplicate_sources(graph)
    if optimization == "all":
        for node in graph.nodes:
            if isinstance(node.content, LogicalTableSource):
                node.content.is_changelog = True
        _merge_repartitions(graph)
        _rewrite_self_joins(graph)
    _drop_null_keys(graph)
    _mark_versioned(graph)
    topology = Topology()
    topology.topics.update(graph.topics)
    _write_in_order(graph, topology)
    return topology


def _write_in_order(graph: LogicalGraph, topology: Topology) -> None:
    """Write the nodes to the topology: parents before children, and otherwise in the order of node priority."""
    queue: list[tuple[int, int, LogicalNode]] = [(-1, 0, graph.root)]
    offered = 1
    while queue:
        _, _, node = heapq.heappop(queue)
        if not node.is_written and all(parent.is_written for parent in node.parents):
            node.content.write(node, topology)
            node.is_written = True
        for child in node.children:
            if not child.is_written:
                heapq.heappush(queue, (child.priority, offered, child))
                offered += 1


def _merge_duplicate_sources(graph: LogicalGraph) -> None:
    """Replace several sources of the same topics with a single source.

    Raises:
        TopologyError: two sources overlap but are not equal, or have different types, event times, or
            ``offset_reset`` or ``idle_close`` settings.
    """
    seen: dict[object, LogicalNode] = {}
    for node in list(graph.root.children):
        source = node.content
        if not isinstance(source, LogicalSource):
            continue
        keys = source.topics or (source.subscription,)
        first = next((seen[key] for key in keys if key in seen), None)
        if first is None:
            seen.update(dict.fromkeys(keys, node))
            continue
        other = first.content
        assert isinstance(other, LogicalSource)
        if other.subscription != source.subscription:
            raise TopologyError(
                f"streams {first.name!r} of {_shown(other)} and {node.name!r} of {_shown(source)} overlap; "
                "read the same topics in both, or each topic once and merge()"
            )
        for what in ("offset_reset", "idle_close_ms"):
            one = getattr(other, what)
            two = getattr(source, what)
            if one != two:
                raise TopologyError(
                    f"two streams of {_shown(source)} have different {what}: {one!r} and {two!r}; give both the same"
                )
        _check_same_records(other, source)
        other.key.unify(source.key)
        other.value.unify(source.value)
        for child in list(node.children):
            first.add_child(child, node.remove_child(child))
        graph.root.remove_child(node)


def _check_same_records(one: LogicalSource, two: LogicalSource) -> None:
    """Check that two sources of the same topics read records alike: only the first of them is kept."""
    for what, first, second in (("keys", one.key, two.key), ("values", one.value, two.value)):
        types = first.serde, second.serde
        if types[0] is not None and types[1] is not None and types[0].name != types[1].name:
            raise TopologyError(
                f"two streams of {_shown(two)} have {what} of different types: {types[0].name!r} and "
                f"{types[1].name!r}; give both the same, which may be bytes or a union, and map_values() one of them"
            )
    if not is_same(one.timestamp, two.timestamp):
        raise TopologyError(
            f"two streams of {_shown(two)} have different sources of event time; give both the same timestamp="
        )


def _shown(source: LogicalSource) -> str:
    return repr(source.pattern.pattern) if source.pattern else ", ".join(map(repr, source.topics))


# Repartition topics.


def _is_optimizable(node: LogicalNode) -> bool:
    return isinstance(node.content, LogicalRepartition) and node.content.is_optimizable


def _key_change_of(node: LogicalNode) -> LogicalNode | None:
    """Return the upstream node that changes the key, unless a node in between changes the value."""
    nearest = node.find_upwards(lambda other: other.is_key_changing or other.is_value_changing)
    change = node.find_upwards(lambda other: other.is_key_changing)
    return change if change is nearest else None


def _merge_repartitions(graph: LogicalGraph) -> None:
    """Replace the repartition topics downstream of a key change with a single topic."""
    by_change: _ByKeyChange = {}
    for node in graph.nodes:
        if node.is_key_changing:
            by_change[node] = {}
        elif _is_optimizable(node) and node.parents:
            change = _key_change_of(node)
            if change is not None:
                by_change[change][node] = None
    _move_below_merges(graph, by_change)
    for change, repartitions in by_change.items():
        if repartitions:
            _replace(graph, change, repartitions)


def _move_below_merges(graph: LogicalGraph, by_change: _ByKeyChange) -> None:
    """Treat a merge as the key change if it is upstream of all repartition topics of an upstream key change."""
    before: dict[LogicalNode, dict[LogicalNode, None]] = {}
    for merge in graph.nodes:
        if not merge.is_merge:
            continue
        before[merge] = {}
        for change, repartitions in by_change.items():
            is_before_all = all(_child_towards(merge, node) is not None for node in repartitions)
            if is_before_all and _child_towards(change, merge) is not None:
                before[merge][change] = None
    moved: set[LogicalNode] = set()
    for merge, changes in before.items():
        by_change[merge] = {node: None for change in changes for node in by_change[change]}
        moved.update(changes)
    for change in moved:
        del by_change[change]


def _child_towards(ancestor: LogicalNode, node: LogicalNode) -> LogicalNode | None:
    """Return the child of ``ancestor`` on the path upstream from ``node``."""
    return node.find_upwards(lambda other: ancestor in other.parents)


def _replace(graph: LogicalGraph, change: LogicalNode, repartitions: dict[LogicalNode, None]) -> None:
    contents = [node.content for node in repartitions]
    first = contents[0]
    assert isinstance(first, LogicalRepartition)
    key, value = first.key, first.value
    for content in contents[1:]:
        assert isinstance(content, LogicalRepartition)
        key = _better(key, content.key)
        value = _better(value, content.value)
    single = repartition_node(graph.names, first.topic, key, value)
    # With the priority of the key change, the node is written before all other nodes downstream of the key change.
    single.priority = change.priority
    for node in repartitions:
        child = _child_towards(change, node)
        if child is None:
            raise TopologyError(_no_way(change, node, contents))
        single.add_child(child, change.remove_child(child))
        for parent in list(node.parents):
            for descendant, times in node.children.items():
                parent.add_child(descendant, times)
            parent.remove_child(node)
        for descendant in list(node.children):
            node.remove_child(descendant)
    change.add_child(single)
    graph.nodes[single] = None


def _no_way(change: LogicalNode, node: LogicalNode, contents: list[LogicalContent]) -> str:
    """Return the message for topics that cannot be merged, since one of them no longer has a path to the key change.

    Merging the previous topic has disconnected the operators on that path, or another merge upstream
    has already used the topic.  Kafka Streams 4.2 rejects the same topologies ("Found a null
    keyChangingChild node").
    """
    topics = ", ".join(repr(content.topic) for content in contents if isinstance(content, LogicalRepartition))
    if node.parents:
        what = f"merge the repartition topics {topics} downstream of {change.name!r}"
        why = "an operator in between leads to more than one of them"
    else:
        what = f"move {topics} downstream of the merge {change.name!r}"
        why = "the topic is downstream of another merge as well"
    return (
        f"topology_optimization='all' cannot {what}: {why}, which Kafka Streams rejects too; call repartition() "
        f"directly after {change.name!r}, or build with topology_optimization='none'"
    )


def _better(one: SerdeVariable, other: SerdeVariable) -> SerdeVariable:
    """Return ``other`` if only its serde is known; otherwise unify both variables and return ``one``."""
    if one.serde is None and other.serde is not None:
        return other
    one.unify(other)
    return one


# Self-joins.


def _rewrite_self_joins(graph: LogicalGraph) -> None:
    """Rewrite each join of a stream with itself, so that a single store replaces the stores of both sides."""
    for node in _from_root(graph):
        join = node.content
        if not isinstance(join, LogicalStreamStreamJoin) or len(node.parents) != 1:
            continue
        (parent,) = node.parents
        right = next((child for child in parent.children if child.name == join.other_windowed), None)
        if right is None:
            raise AssertionError(f"the right side of {node!r} is not a child of {parent!r}")
        parent.remove_child(right)
        join.is_self_join = True


def _from_root(graph: LogicalGraph) -> list[LogicalNode]:
    """Return the nodes that can be reached from the root, each once, in depth-first order."""
    reached: dict[LogicalNode, None] = {}
    waiting = [graph.root]
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached[node] = None
            waiting.extend(reversed(node.children))
    return list(reached)


# Properties that depend on all nodes upstream or downstream.


def _drop_null_keys(graph: LogicalGraph) -> None:
    """Drop records without a key before repartition topics, unless a downstream left or outer join uses them."""
    keeps: dict[LogicalNode, bool] = {}
    for node in _children_first(graph):
        keeps[node] = any(child.has_relaxed_null_keys or keeps[child] for child in node.children)
        if isinstance(node.content, LogicalRepartition) and not keeps[node]:
            node.content.is_dropping_null_keys = True


def _children_first(graph: LogicalGraph) -> list[LogicalNode]:
    done: dict[LogicalNode, None] = {}
    waiting: list[tuple[LogicalNode, bool]] = [(graph.root, False)]
    while waiting:
        node, is_expanded = waiting.pop()
        if is_expanded:
            done[node] = None
        elif node not in done:
            waiting.append((node, True))
            waiting.extend((child, False) for child in node.children if child not in done)
    return list(done)


def _mark_versioned(graph: LogicalGraph) -> None:
    """Determine for each node which of its parents are versioned tables (KIP-914).

    Raises:
        TopologyError: a versioned table is suppressed.
    """
    memo: dict[LogicalNode, bool] = {graph.root: False}

    def is_versioned(node: LogicalNode) -> bool:
        if node.is_output_versioned is not None:
            return node.is_output_versioned
        if node not in memo:
            memo[node] = all(is_versioned(parent) for parent in node.parents)
        return memo[node]

    for node in _from_root(graph):
        node.versioned_parents.update(parent.name for parent in node.parents if is_versioned(parent))
        if node.is_suppress and node.versioned_parents:
            raise TopologyError(
                f"suppress {node.name!r}: a versioned table cannot be suppressed; leave out history= "
                "of the table that it comes from"
            )
