"""The sub-topologies, partition counts and partition groups of a topology.

Nodes that are connected by edges or share a store form one sub-topology. Sub-topologies are numbered as in Kafka
Streams. A partition group is the input of one task: by default, the partitions with the same number of all source
topics of a sub-topology. The module imports only ``core`` from outside ``topology``.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

from attrs import frozen

from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.errors import TopologyError
from streams.core.topic import is_generated
from streams.topology.copartitioning import Copartition, copartitions
from streams.topology.graph import NodeGraph, ProcessorNode, SinkNode, SourceNode, reader_of
from streams.topology.operator import StoreNaming


@frozen
class SubTopology:
    """A connected part of the graph, run by one task per partition group.

    ``nodes`` are in the order in which they were added, parents first. Each global store forms a sub-topology of
    its own, without tasks.
    """

    id: int
    nodes: tuple[str, ...]
    source_topics: tuple[str, ...]
    sink_topics: tuple[str, ...]
    stores: tuple[str, ...]
    is_global: bool = False


def sub_topologies(topology: NodeGraph, topics: Iterable[str] = ()) -> list[SubTopology]:
    """Split the graph into sub-topologies; patterns are matched against the existing ``topics``.

    Raises:
        TopologyError: two patterns match a topic.
    """
    groups = _Groups()
    for node in topology.nodes.values():
        groups.add(node.name)
        if not isinstance(node, SourceNode):
            for parent in node.parents:
                groups.unite(node.name, parent)
    for users in topology.store_users.values():
        for user in users[1:]:
            groups.unite(users[0], user)
    for store in topology.global_stores.values():
        groups.add(store.source.name)
        groups.add(store.processor.name)
        groups.unite(store.source.name, store.processor.name)
    ids = _numbering(topology, groups)
    members: dict[str, list[str]] = defaultdict(list)
    for name in topology.nodes:
        members[groups.root(name)].append(name)
    matched = _matched(topology, topics)
    result = [_sub_topology(topology, ids[root], names, matched) for root, names in members.items()]
    for store in topology.global_stores.values():
        names = (store.source.name, store.processor.name)
        sub_id = ids[groups.root(names[0])]
        result.append(SubTopology(sub_id, names, store.source.topics, (), (store.spec.name,), is_global=True))
    return sorted(result, key=lambda sub: sub.id)


def _matched(topology: NodeGraph, existing: Iterable[str]) -> dict[str, list[str]]:
    """Return the existing topics that patterns match, in the order of their names, by the names of the sources."""
    patterns = [source for source in topology.sources() if source.pattern is not None]
    matched: dict[str, list[str]] = defaultdict(list)
    for topic in sorted(existing) if patterns else ():
        source = reader_of(topic, patterns)
        if source is not None:
            matched[source.name].append(topic)
    return matched


def _sub_topology(topology: NodeGraph, sub_id: int, names: list[str], matched: Mapping[str, list[str]]) -> SubTopology:
    sources: dict[str, None] = {}
    sinks: dict[str, None] = {}
    for name in names:
        node = topology.nodes[name]
        if isinstance(node, SourceNode):
            sources.update(dict.fromkeys([*node.topics, *matched.get(name, ())]))
        elif isinstance(node, SinkNode) and node.topic is not None:
            sinks[node.topic] = None
    inside = set(names)
    stores = tuple(store for store, users in topology.store_users.items() if inside & set(users))
    return SubTopology(sub_id, tuple(names), tuple(sources), tuple(sinks), stores)


def _numbering(topology: NodeGraph, groups: "_Groups") -> dict[str, int]:
    """Number the groups of connected nodes by their first nodes, in the order in which nodes were added."""
    ids: dict[str, int] = {}
    for name in topology.order:
        ids.setdefault(groups.root(name), len(ids))
    return ids


class _Groups:
    """Groups of connected nodes, as a union-find structure over node names."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def add(self, name: str) -> None:
        self._parent.setdefault(name, name)

    def root(self, name: str) -> str:
        while (parent := self._parent[name]) != name:
            self._parent[name] = name = self._parent[parent]
        return name

    def unite(self, one: str, two: str) -> None:
        self._parent[self.root(one)] = self.root(two)


def validate(topology: NodeGraph) -> None:
    """Check the processor graph as a whole.

    Raises:
        TopologyError: the topology is empty, or a processor or sink has no parent.
    """
    if not topology.nodes and not topology.global_stores:
        raise TopologyError("the topology is empty; start with builder.stream(topic) or builder.table(topic)")
    for node in topology.nodes.values():
        if isinstance(node, ProcessorNode | SinkNode) and not node.parents:
            raise TopologyError(
                f"node {node.name!r} has no parent, so it would never receive a record; name its parents"
            )


def refuse_generated_names(topology: NodeGraph) -> None:
    """Check that all stores and repartition topics have names that the user gave (KIP-1111).

    Raises:
        TopologyError: a store or repartition topic has a generated name; the message lists all of them.
    """
    generated = []
    for store, users in topology.store_users.items():
        if is_generated(store):
            nodes = [topology.nodes[user] for user in users]
            arguments = {StoreNaming.of(node.operator).argument for node in nodes if isinstance(node, ProcessorNode)}
            generated.append(f"store {store!r} of node {users[0]!r} ({' or '.join(sorted(arguments))}=)")
    generated += [f"repartition topic {name!r} (name=)" for name in topology.internal_topics if is_generated(name)]
    if generated:
        raise TopologyError(
            f"the topology has generated names, which change with its nodes: {'; '.join(generated)}; name them with "
            "the arguments in parentheses, or set ensure_explicit_internal_resource_naming=false"
        )


def unmatched_patterns(topology: NodeGraph, topics: Iterable[str]) -> list[SourceNode]:
    """Return the sources whose patterns do not match any topic yet."""
    patterns = [source for source in topology.sources() if source.pattern is not None]
    names = list(topics)
    return [source for source in patterns if not any(map(source.reads, names))]


def resolve_partitions(
    topology: NodeGraph,
    subs: Iterable[SubTopology],
    external: Mapping[str, int],
    *,
    groups: Mapping[str, int] | None = None,
    later: int | None = None,
) -> dict[str, int]:
    """Return the partition count of every source, sink and repartition topic.

    ``external`` contains the counts of external topics. A repartition topic without a declared count gets the largest
    count of its upstream source topics; co-partitioned topics have equal counts. If all upstream sources are patterns
    that do not match any topic yet, the repartition topic gets the count of its co-partitioned topics, or else
    ``later``, the count for topics that a pattern matches later. If neither count is known, the topic has no count and
    no tasks.

    ``groups`` has the number of partition groups among which the keys of a topic with existing state are divided.
    Co-partitioned topics may have grown one after the other: then their counts are different multiples of that number.

    Raises:
        TopologyError: a source topic is missing, or topics that must be co-partitioned have different partition counts.
    """
    counts = dict(external)
    subs = [sub for sub in subs if not sub.is_global]
    joint = copartitions(topology)
    group_counts = groups or {}
    for internal in topology.internal_topics.values():
        if internal.partitions is not None:
            counts[internal.name] = internal.partitions
    for sub in subs:
        for topic in sub.source_topics:
            if topic not in counts and topic not in topology.internal_topics:
                raise TopologyError(f"source topic {topic!r} does not exist; create it with the partitions it needs")
    writers = {name: [sub for sub in subs if name in sub.sink_topics] for name in topology.internal_topics}
    open_topics = [name for name in topology.internal_topics if name not in counts]
    while open_topics:
        resolved = []
        for name in open_topics:
            sources = [topic for sub in writers[name] for topic in sub.source_topics]
            ready = [counts[topic] for topic in sources if topic in counts]
            # In a cycle of sub-topologies a source remains unresolved, so the other sources determine the count.
            if ready and (
                len(ready) == len(sources) or all(topic in open_topics for topic in sources if topic not in counts)
            ):
                resolved.append((name, max(ready)))
        complete = [
            (name, count)
            for name, count in resolved
            if all(t in counts for s in writers[name] for t in s.source_topics)
        ]
        for name, count in complete or resolved[:1]:
            counts[name] = count
        if not resolved and not _resolve_waiting(topology, joint, counts, external, open_topics, later):
            break
        open_topics = [name for name in open_topics if name not in counts]
        _copartition(topology, joint, counts, group_counts)
    _copartition(topology, joint, counts, group_counts)
    return counts


def _resolve_waiting(
    topology: NodeGraph,
    joint: Iterable[Copartition],
    counts: dict[str, int],
    external: Mapping[str, int],
    open_topics: list[str],
    later: int | None,
) -> bool:
    """Set the partition count of one repartition topic whose writers read patterns without a matching topic.

    Return whether a count was set.

    Raises:
        TopologyError: all patterns match topics, so the repartition topic has no writer with a source topic.
    """
    if not unmatched_patterns(topology, external):
        raise TopologyError(f"repartition topic {open_topics[0]!r} has no writer with a source topic")
    for name in open_topics:
        for copartition in joint:
            topics = copartition.topics(topology, counts)
            if name in topics and (partner_counts := [counts[topic] for topic in topics if topic in counts]):
                counts[name] = max(partner_counts)
                return True
    if later is not None:
        counts[open_topics[0]] = later
    return later is not None


def _copartition(
    topology: NodeGraph, joint: Iterable[Copartition], counts: dict[str, int], group_counts: Mapping[str, int]
) -> None:
    """Set one partition count for each set of co-partitioned topics; reject external topics with other counts.

    ``group_counts`` has the number of partition groups among which the keys of a topic with existing state are divided.
    """
    for copartition in joint:
        store = copartition.stores[0]
        topics = copartition.topics(topology, counts)
        numbers = {topic: group_counts[topic] for topic in topics if topic in group_counts}
        if len(set(numbers.values())) > 1:
            listed = ", ".join(f"{topic!r} in {number}" for topic, number in sorted(numbers.items()))
            raise TopologyError(
                f"inputs whose records meet in store {store!r} have state in other numbers of partition groups, "
                f"{listed}: keys would be in two groups; repartition them with .repartition(partitions=n)"
            )
        number = next(iter(numbers.values()), 0)
        if number and all(topic in counts and counts[topic] % number == 0 for topic in topics):
            continue  # Each new partition is in the partition group that has the state of its keys.
        fixed: dict[str, int] = {}
        for topic in topics:
            internal = topology.internal_topics.get(topic)
            if topic in counts and (internal is None or internal.partitions is not None):
                fixed[topic] = counts[topic]
        if len(set(fixed.values())) > 1:
            listed = ", ".join(f"{topic!r} has {count}" for topic, count in sorted(fixed.items()))
            raise TopologyError(
                f"inputs of a join, or of other state, must be co-partitioned, but {listed} partitions and their "
                f"records meet in store {store!r}; give the topics equal counts, or repartition one with "
                ".repartition(partitions=n)"
            )
        if all(topic in counts for topic in topics) and topics:
            count = max(fixed.values(), default=0) or max(counts[topic] for topic in topics)
            for topic in topics:
                counts[topic] = count


class PartitionGrouper(Protocol):
    """Determines which partitions a task reads together; can be replaced by a custom grouper."""

    def groups(
        self, subs: Iterable[SubTopology], partitions: Mapping[str, int]
    ) -> dict[TaskId, tuple[TopicPartition, ...]]:
        """Return the partitions of each task, given the partition count of every topic."""
        ...


@frozen
class SamePartitionGrouper:
    """The default grouper: task ``p`` reads partition ``p`` of every source topic of a sub-topology."""

    def groups(
        self, subs: Iterable[SubTopology], partitions: Mapping[str, int]
    ) -> dict[TaskId, tuple[TopicPartition, ...]]:
        """Return one task per partition of the source topic with the most partitions."""
        result: dict[TaskId, tuple[TopicPartition, ...]] = {}
        for sub in subs:
            if sub.is_global:
                continue
            # A repartition topic that has no writers yet has no partition count.
            counts = {topic: partitions[topic] for topic in sub.source_topics if topic in partitions}
            for number in range(max(counts.values(), default=0)):
                result[TaskId(sub.id, number)] = tuple(
                    TopicPartition(topic, number) for topic, count in counts.items() if number < count
                )
        return result


def through_topics(topology: NodeGraph, subs: Iterable[SubTopology]) -> list[str]:
    """Return the topics named by the user that tasks both write and read, in the order in which sinks name them."""
    subs = [sub for sub in subs if not sub.is_global]
    read = {topic for sub in subs for topic in sub.source_topics}
    written = dict.fromkeys(topic for sub in subs for topic in sub.sink_topics)
    return [topic for topic in written if topic in read and topic not in topology.internal_topics]


def stages(subs: Iterable[SubTopology]) -> list[tuple[int, ...]]:
    """Order sub-topologies into stages, upstream first; a cycle is a single stage."""
    subs = [sub for sub in subs if not sub.is_global]
    readers: dict[str, list[int]] = defaultdict(list)
    for sub in subs:
        for topic in sub.source_topics:
            readers[topic].append(sub.id)
    edges = {sub.id: sorted({reader for topic in sub.sink_topics for reader in readers[topic]}) for sub in subs}
    return _components(edges)


def _components(edges: Mapping[int, list[int]]) -> list[tuple[int, ...]]:
    """Return the strongly connected components of a graph in topological order (Tarjan's algorithm)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    components: list[tuple[int, ...]] = []

    def visit(node: int) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for after in edges[node]:
            if after not in index:
                visit(after)
                low[node] = min(low[node], low[after])
            elif after in stack:
                low[node] = min(low[node], index[after])
        if low[node] == index[node]:
            component = []
            while True:
                member = stack.pop()
                component.append(member)
                if member == node:
                    break
            components.append(tuple(sorted(component)))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return components[::-1]
