"""The description of a topology in Java: its parsing, and its comparison with the topology here.

``Topology.describe()`` of Kafka Streams names sub-topologies, nodes, topics and stores, but no serdes and no partition
counts.  The module is pure.
"""

import re
from collections.abc import Iterable, Iterator

from attrs import define, field, frozen

from streams.comparison import Finding, Level
from streams.core.errors import InputError
from streams.topology import (
    GlobalStoreDescription,
    NodeDescription,
    SubTopologyDescription,
    TopologyDescription,
)

_SUB_TOPOLOGY = re.compile(r"Sub-topology: (\d+)( for global store)?")
_SOURCE = re.compile(r"Source:\s+(\S+) \(topics: (.*)\)$")
_PROCESSOR = re.compile(r"Processor:\s+(\S+) \(stores: \[(.*)\]\)$")
_SINK = re.compile(r"Sink:\s+(\S+) \((?:topic: (.*)|extractor class: .*)\)$")
_EDGES = re.compile(r"(-->|<--)\s*(.*)$")
#: What ``streams describe`` says of operators that Kafka Streams does not have.
_OWN = re.compile(r"[a-z_ ]+: \S+( ms)?$")
_EXTRACTED = "extractor class"


@define
class _Parsed:
    """One node as it is read, line by line."""

    kind: str
    name: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    topic: str | None = None
    stores: tuple[str, ...] = ()
    edges: dict[str, tuple[str, ...]] = field(factory=dict)

    def described(self) -> NodeDescription:
        before = self.edges.get("<--", ())
        after = self.edges.get("-->", ())
        return NodeDescription(self.kind, self.name, before, after, self.topics, self.pattern, self.topic, self.stores)


def parsed(text: str, where: str) -> TopologyDescription:
    """Parse the text of ``Topology.describe()``, or that of ``streams describe``; ``where`` names it in errors.

    Lines before the description, such as those of a log, are skipped.

    Raises:
        InputError: there is no description in the text, or a line of it is something else.
    """
    subs: dict[int, list[_Parsed]] = {}
    are_global: set[int] = set()
    current: list[_Parsed] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if match := _SUB_TOPOLOGY.search(content):
            sub = int(match[1])
            current = subs[sub] = []
            if match[2]:
                are_global.add(sub)
        elif current is None or not content or content.startswith("Internal topics:"):
            continue
        elif not line[:1].isspace():
            # What is printed after the description.
            break
        elif node := _node(content):
            current.append(node)
        elif current and (edge := _EDGES.match(content)):
            current[-1].edges[edge[1]] = () if edge[2] in ("none", "") else tuple(edge[2].split(", "))
        elif not (current and _OWN.match(content)):
            raise InputError(
                f"{where}:{number}: {content!r} is no line of a description; give what Topology.describe() prints"
            )
    if not subs:
        raise InputError(f"{where}: there is no 'Sub-topology: 0' in it; give what Topology.describe() prints")
    return _description(subs, are_global)


def _node(content: str) -> _Parsed | None:
    if match := _SOURCE.match(content):
        name, topics = match.groups()
        if topics.startswith("["):
            return _Parsed("source", name, _listed(topics[1:-1]))
        return _Parsed("source", name, pattern=topics)
    if match := _PROCESSOR.match(content):
        return _Parsed("processor", match[1], stores=_listed(match[2]))
    if match := _SINK.match(content):
        return _Parsed("sink", match[1], topic=None if match[2] in (None, _EXTRACTED) else match[2])
    return None


def _listed(text: str) -> tuple[str, ...]:
    return tuple(sorted(text.split(", "))) if text else ()


def _description(subs: dict[int, list[_Parsed]], are_global: set[int]) -> TopologyDescription:
    stores = []
    for number in sorted(are_global):
        source = next((node for node in subs[number] if node.kind == "source"), None)
        processor = next((node for node in subs[number] if node.kind == "processor"), None)
        if source is not None and processor is not None:
            stores.append(GlobalStoreDescription(number, source.name, source.topics, processor.name, processor.stores))
    described = tuple(
        SubTopologyDescription(number, tuple(node.described() for node in nodes))
        for number, nodes in sorted(subs.items())
        if number not in are_global
    )
    return TopologyDescription(described, tuple(stores), ())


# --- comparison ---------------------------------------------------------------------------


@frozen
class _Part:
    """What counts of one sub-topology."""

    number: int
    reads: frozenset[str]
    writes: frozenset[str]
    stores: frozenset[str]
    nodes: dict[str, NodeDescription]

    @classmethod
    def of(cls, sub: SubTopologyDescription) -> "_Part":
        nodes = {node.name: node for node in sub.nodes}
        return cls(
            sub.id,
            frozenset(topic for node in sub.nodes for topic in (*node.topics, *filter(None, [node.pattern]))),
            frozenset(node.topic or "topics chosen by record" for node in sub.nodes if node.type == "sink"),
            frozenset(store for node in sub.nodes for store in node.stores),
            nodes,
        )


def compare(java: TopologyDescription, here: TopologyDescription) -> list[Finding]:
    """Compare the topology of Java with the one here: sub-topologies, topics, stores and nodes."""
    one = [_Part.of(sub) for sub in java.sub_topologies]
    two = [_Part.of(sub) for sub in here.sub_topologies]
    return [*_parts(one, two), *_global_stores(java, here)]


def _parts(one: list[_Part], two: list[_Part]) -> Iterator[Finding]:
    left = {part.reads: part for part in two}
    alone = []
    for part in one:
        other = left.pop(part.reads, None)
        if other is None:
            alone.append(part)
        else:
            yield from _same_inputs(part, other)
    others = list(left.values())
    for part in alone:
        other = next(
            (candidate for candidate in others if candidate.reads & part.reads or candidate.stores & part.stores), None
        )
        if other is None:
            says = f"reads {_names(part.reads)} in Java; no sub-topology here does"
            yield Finding(Level.CANNOT, f"sub-topology {part.number}", says, "declare it here too")
            continue
        others.remove(other)
        says = (
            f"reads {_names(part.reads - other.reads) or 'nothing more'} only in Java, and "
            f"{_names(other.reads - part.reads) or 'nothing more'} only here"
        )
        do = "declare the same sources, and give operators with a repartition topic the names that Java has"
        yield Finding(Level.CANNOT, f"sub-topology {part.number}", says, do)
        yield from _same_inputs(part, other)
    for part in others:
        says = f"reads {_names(part.reads)}; no sub-topology in Java does"
        yield Finding(Level.CANNOT, f"sub-topology {part.number} here", says, "remove it, or go over without it first")


def _same_inputs(one: _Part, two: _Part) -> Iterator[Finding]:
    where = f"sub-topology {one.number}"
    if one.number != two.number:
        says = f"has number {two.number} here: tasks have other names, their partitions are the same"
        yield Finding(Level.NOTE, where, says)
    missing = one.stores - two.stores
    new = two.stores - one.stores
    for store in sorted(missing):
        renamed = f"name the one here {store!r}" if len(new) == 1 else "give the stores the names that Java has"
        says = "is a store in Java and not here: its state is not taken over"
        yield Finding(Level.BUT, f"store {store}", says, renamed if new else "")
    for store in sorted(new):
        says = "is a store here and not in Java: it starts empty"
        yield Finding(Level.CANNOT, f"store {store}", says, "give it the name that Java has")
    for topic in sorted(one.writes - two.writes):
        yield Finding(Level.BUT, where, f"writes {topic} in Java and not here")
    for topic in sorted(two.writes - one.writes):
        yield Finding(Level.BUT, where, f"writes {topic} here and not in Java")
    yield from _nodes(where, one, two)


def _nodes(where: str, one: _Part, two: _Part) -> Iterator[Finding]:
    missing = [node for name, node in one.nodes.items() if name not in two.nodes]
    new = [node for name, node in two.nodes.items() if name not in one.nodes]
    if sorted(node.type for node in missing) != sorted(node.type for node in new):
        says = f"has nodes only in Java ({_nodes_of(missing)}) and only here ({_nodes_of(new)})"
        yield Finding(Level.BUT, where, says, "check that both do the same to each record")
    elif missing:
        says = f"names nodes otherwise: {_nodes_of(missing)} in Java, {_nodes_of(new)} here; no state is found by them"
        yield Finding(Level.NOTE, where, says)
    else:
        turned = [name for name, node in one.nodes.items() if set(node.successors) != set(two.nodes[name].successors)]
        if turned:
            says = f"connects {_names(turned)} to other nodes than Java does"
            yield Finding(Level.BUT, where, says, "check that both do the same to each record")


def _global_stores(java: TopologyDescription, here: TopologyDescription) -> Iterator[Finding]:
    one = {store: part.topics for part in java.global_stores for store in part.stores}
    two = {store: part.topics for part in here.global_stores for store in part.stores}
    for store in sorted(one.keys() | two.keys()):
        if one.get(store) != two.get(store):
            was = f"reads {_names(one[store])}" if store in one else "does not exist"
            now = f"reads {_names(two[store])}" if store in two else "does not exist"
            says = f"{was} in Java and {now} here; a global store is filled from its topic, not from state"
            yield Finding(Level.BUT, f"global store {store}", says)


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _nodes_of(nodes: list[NodeDescription], most: int = 5) -> str:
    names = [node.name for node in nodes]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}" if names else "none"
