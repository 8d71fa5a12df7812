"""Which sources must be co-partitioned: those whose records meet in a store.

A task has the entries of its own partitions only.  So all records of a key reach the same entry only if the topics that
lead to the store have equal partition counts.  Global stores are exempt, because each instance has all their entries.
The requirement follows from the graph, so that it holds for joins, aggregates and user processors alike.
"""

from collections.abc import Iterable, Mapping

from attrs import frozen

from streams.topology.graph import NodeGraph, ProcessorNode, SourceNode
from streams.topology.processors import ProcessorOperator


@frozen
class Copartition:
    """Sources whose topics must have equal partition counts, and the stores in which their records meet."""

    sources: frozenset[str]
    stores: tuple[str, ...]

    def topics(self, topology: NodeGraph, existing: Iterable[str]) -> list[str]:
        """Return the topics that the sources read; patterns are matched against the ``existing`` topics."""
        result: list[str] = []
        for source in sorted(self.sources):
            node = topology.nodes[source]
            assert isinstance(node, SourceNode)
            external = (topic for topic in existing if topic not in topology.internal_topics)
            result += [*node.topics, *(() if node.pattern is None else filter(node.reads, external))]
        return result


def copartitions(topology: NodeGraph) -> list[Copartition]:
    """Return the co-partitioned sources of a topology; each source is in at most one element.

    A source alone is an element too: it may read several topics.
    """
    result: list[Copartition] = []
    for store, users in topology.store_users.items():
        if not topology.stores[store].is_by_key or not users:
            continue
        sources = _upstream(topology, users)
        common = [other for other in result if other.sources & sources]
        result = [other for other in result if not other.sources & sources]
        stores = (name for other in common for name in other.stores)
        result.append(Copartition(sources.union(*(other.sources for other in common)), (*stores, store)))
    return result


def divided_keys(topology: NodeGraph, counts: Mapping[str, int], groups: Mapping[str, int]) -> dict[str, int]:
    """Return the number of partition groups among which keys are divided, by topic that leads to a store.

    It is the partition count that the topics had when the application began with them; ``groups`` has the numbers of
    existing state.  Topics whose records meet in a store have one number.
    """
    result: dict[str, int] = {}
    for joint in copartitions(topology):
        topics = [topic for topic in joint.topics(topology, counts) if topic in counts]
        number = min((groups[topic] for topic in topics if topic in groups), default=0)
        result |= {topic: min(number or counts[topic], counts[topic]) for topic in topics}
    return result


def joined_sources(topology: NodeGraph) -> list[frozenset[str]]:
    """Return the groups of sources that are joined or cogrouped, which is what Kafka Streams itself requires to match.

    Several nodes use a store of such an operator.  Processors of the user do not count.
    """
    result: dict[frozenset[str], None] = {}
    for users in topology.store_users.values():
        nodes = (topology.nodes[user] for user in users)
        own = [
            node.name
            for node in nodes
            if isinstance(node, ProcessorNode) and not isinstance(node.operator, ProcessorOperator)
        ]
        sources = _upstream(topology, own)
        if len(own) > 1 and len(sources) > 1:
            result[sources] = None
    return list(result)


def _upstream(topology: NodeGraph, nodes: Iterable[str]) -> frozenset[str]:
    """Return the sources from which records reach at least one of the nodes."""
    sources = set()
    seen = set()
    waiting = list(nodes)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        node = topology.nodes[name]
        if isinstance(node, SourceNode):
            sources.add(name)
        else:
            waiting.extend(node.parents)
    return frozenset(sources)
