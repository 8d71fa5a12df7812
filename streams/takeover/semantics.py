"""What a topology does otherwise than the same topology in Java, as ``docs/coming-from/kafka-streams.md`` says it.

Pure: findings come back.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from streams.comparison import Finding, Level
from streams.core.settings.config import StreamsConfig
from streams.dsl.processing import Suppress, TableFilter, TableTableJoin
from streams.runtime import steps
from streams.topology import ProcessorNode, Topology
from streams.why import AGGREGATES


def of_semantics(topology: Topology, config: StreamsConfig) -> Iterator[Finding]:
    """Name what results differ by from those in Java."""
    yield from _merged_with_itself(topology)
    yield from _cogrouped_twice(topology)
    yield from _suppressed(topology)
    yield from _in_step(steps(topology, config))


def _merged_with_itself(topology: Topology) -> Iterator[Finding]:
    for node in topology.nodes.values():
        for parent, times in Counter(getattr(node, "parents", ())).items():
            if times > 1:
                says = f"has each record of {parent} {times} times, as it is merged so often; in Java it has it once"
                yield Finding(Level.BUT, f"node {node.name}", says, "merge different streams, or do not merge it")


def _cogrouped_twice(topology: Topology) -> Iterator[Finding]:
    for store, users in topology.store_users.items():
        nodes = [topology.nodes[user] for user in users]
        aggregates = [
            node for node in nodes if isinstance(node, ProcessorNode) and isinstance(node.operator, AGGREGATES)
        ]
        for parents, times in Counter(node.parents for node in aggregates).items():
            if times > 1:
                says = (
                    f"has {times} aggregators of {', '.join(parents)}, which are all applied; in Java the last one for "
                    "a grouped stream replaces the others"
                )
                yield Finding(Level.BUT, f"store {store}", says, "cogroup each grouped stream once")


def _suppressed(topology: Topology) -> Iterator[Finding]:
    for node in topology.nodes.values():
        operator = getattr(node, "operator", None)
        if isinstance(node, ProcessorNode) and isinstance(operator, Suppress) and operator.until_window_closes:
            dropping = _dropping(topology, node)
            if dropping:
                says = (
                    f"closes windows also by rows that {' or '.join(dropping)} does not pass on; in Java the results "
                    "of a quiet time wait for a row that passes"
                )
                yield Finding(Level.BUT, f"node {node.name}", says, "expect these results earlier")


def _dropping(topology: Topology, node: ProcessorNode) -> list[str]:
    """Return the nodes between an aggregate and a node that do not pass on all rows."""
    names: dict[str, None] = {}
    waiting = list(node.parents)
    while waiting:
        parent = topology.nodes[waiting.pop()]
        if not isinstance(parent, ProcessorNode) or isinstance(parent.operator, AGGREGATES):
            continue
        if isinstance(parent.operator, TableFilter | TableTableJoin):
            names[parent.name] = None
        waiting += parent.parents
    return sorted(names)


def _in_step(topics: Mapping[str, str | None]) -> Iterator[Finding]:
    for topic, reason in topics.items():
        if reason is None:
            says = "is read in step by event time: with a backlog, fewer records are late than in Java"
        else:
            says = f"is read as records come, as in Java, not in step by event time: {reason}"
        yield Finding(Level.NOTE, f"topic {topic}", says)
