"""Descriptions of a topology: text, JSON and Mermaid.

The text has the format of ``Topology.describe()`` in Kafka Streams. The module imports only ``topology``.
"""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from attrs import frozen

from streams.topology.descriptions import GlobalStoreDescription, NodeDescription, SubTopologyDescription
from streams.topology.graph import Node, NodeGraph, SinkNode, SourceNode
from streams.topology.layout import Graph
from streams.topology.reach import behind_caches
from streams.topology.subtopologies import SubTopology, sub_topologies
from streams.topology.svg import to_svg


@frozen
class TopologyDescription:
    """The description that ``streams describe`` prints."""

    sub_topologies: tuple[SubTopologyDescription, ...]
    global_stores: tuple[GlobalStoreDescription, ...]
    internal_topics: tuple[str, ...]
    #: Repartition topics that a live run reads in step, by event time, and those that it reads as records come, each
    #: with the reason; both empty if not asked for.
    in_step: tuple[str, ...] = ()
    out_of_step: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain JSON values, as printed by ``describe --format json``."""
        return {
            "subtopologies": [
                {"id": sub.id, "nodes": [_node_dict(node) for node in sorted(sub.nodes, key=lambda node: node.name)]}
                for sub in self.sub_topologies
            ],
            "global_stores": [
                {
                    "id": store.id,
                    "source": store.source,
                    "topics": list(store.topics),
                    "processor": store.processor,
                    "stores": list(store.stores),
                }
                for store in self.global_stores
            ],
            "internal_topics": list(self.internal_topics),
            **({"in_step": list(self.in_step)} if self.in_step else {}),
            **({"out_of_step": dict(self.out_of_step)} if self.out_of_step else {}),
        }

    def to_json(self) -> str:
        """Return the description as indented JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def to_text(self) -> str:
        """Return the description in the text format of Kafka Streams."""
        lines = ["Topologies:"]
        parts: list[tuple[int, list[str]]] = []
        for sub in self.sub_topologies:
            block = [f"   Sub-topology: {sub.id}"]
            for node in sub.nodes:
                block += _node_lines(node)
            parts.append((sub.id, block))
        for store in self.global_stores:
            topics = ", ".join(store.topics)
            parts.append(
                (
                    store.id,
                    [
                        f"   Sub-topology: {store.id} for global store (will not generate tasks)",
                        f"    Source: {store.source} (topics: [{topics}])",
                        f"      --> {store.processor}",
                        f"    Processor: {store.processor} (stores: [{', '.join(store.stores)}])",
                        "      --> none",
                        f"      <-- {store.source}",
                    ],
                )
            )
        for _, block in sorted(parts, key=lambda part: part[0]):
            lines += [*block, ""]
        if self.internal_topics:
            lines.append(f"Internal topics: {', '.join(self.internal_topics)}")
        if self.in_step:
            lines.append(f"In step: {', '.join(self.in_step)}")
        lines += [f"Not in step: {topic}: {reason}" for topic, reason in self.out_of_step]
        return "\n".join(lines).rstrip() + "\n"

    def graph(self, *, is_simple: bool = True) -> Graph:
        """Return the boxes and edges of a drawing: of what the user has written, or of each node."""
        return Graph.of(self.sub_topologies, self.global_stores, self.internal_topics if is_simple else None)

    def to_svg(self, *, is_simple: bool = True) -> str:
        """Return a drawing of the topology as an SVG document, of what the user has written, or of each node."""
        return to_svg(self.graph(is_simple=is_simple))

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def to_mermaid(self) -> str:
        """Return a Mermaid flowchart, in which sub-topologies are boxes, with topics and stores next to them."""
        return _Mermaid().render(self)


def describe(
    topology: NodeGraph, *, has_cache: bool = False, steps: Mapping[str, str | None] = MappingProxyType({})
) -> TopologyDescription:
    """Describe a topology's sub-topologies, internal topics, stores and global stores.

    ``steps`` are topics that a live run reads in step, with None, and those that it does not, each with the reason.

    With ``has_cache``, the application has a record cache: nodes whose results then depend on commits have the option
    ``behind_cache``, with the stores that hold updates back, separated by commas.
    """
    subs = sub_topologies(topology)
    behind = behind_caches(topology) if has_cache else {}
    changelogs = [
        f"{spec.name}-changelog"
        for spec in topology.stores.values()
        if spec.has_changelog and spec.name not in topology.source_changelogs
    ]
    return TopologyDescription(
        tuple(_sub(topology, sub, behind) for sub in subs if not sub.is_global),
        tuple(_global(sub) for sub in subs if sub.is_global),
        (*topology.internal_topics, *changelogs),
        tuple(topic for topic, reason in steps.items() if reason is None),
        tuple((topic, reason) for topic, reason in steps.items() if reason is not None),
    )


def _sub(topology: NodeGraph, sub: SubTopology, behind: Mapping[str, tuple[str, ...]]) -> SubTopologyDescription:
    nodes = (_node(topology, topology.nodes[name], behind.get(name, ())) for name in sub.nodes)
    return SubTopologyDescription(sub.id, tuple(nodes))


def _global(sub: SubTopology) -> GlobalStoreDescription:
    source, processor = sub.nodes
    return GlobalStoreDescription(sub.id, source, tuple(sorted(sub.source_topics)), processor, sub.stores)


def _node(topology: NodeGraph, node: Node, caches: tuple[str, ...]) -> NodeDescription:
    after = tuple(sorted(set(topology.children[node.name])))
    periods = tuple(periods_of(topology, node).items())
    if isinstance(node, SourceNode):
        pattern = node.pattern.pattern if node.pattern else None
        topics = tuple(sorted(node.topics))
        return NodeDescription("source", node.name, (), after, topics, pattern, periods=periods)
    before = tuple(sorted(set(node.parents)))
    if isinstance(node, SinkNode):
        return NodeDescription("sink", node.name, before, after, topic=node.topic)
    stores = tuple(sorted(topology.stores_of(node.name)))
    options = (*options_of(node).items(), *((("behind_cache", ",".join(caches)),) if caches else ()))
    return NodeDescription("processor", node.name, before, after, stores=stores, periods=periods, options=options)


def periods_of(topology: NodeGraph, node: Node) -> dict[str, int]:
    """Return the periods that a node declares, in milliseconds by name.

    For a source, this is ``idle_close`` (0: never) or the ``patience`` of its repartition topic, if it overrides the
    setting.  For a processor, these are the
    ``periods`` of its operator, and the ``ttl`` of a store of which the node is the first user (``ttl of STORE`` if
    there are several such stores).
    """
    if isinstance(node, SourceNode):
        periods = {} if node.idle_close_ms is None else {"idle_close": node.idle_close_ms}
        # A repartition topic has a source of its own.
        repartition = topology.internal_topics.get(node.topics[0]) if node.topics else None
        if repartition is None or repartition.patience_ms is None:
            return periods
        return periods | {"patience": repartition.patience_ms}
    periods = dict(getattr(getattr(node, "operator", None), "periods", {}))
    own = [name for name in topology.stores_of(node.name) if topology.store_users[name][0] == node.name]
    expiring = [name for name in own if topology.stores[name].ttl_ms >= 0]
    names = {name: "ttl" if len(expiring) == 1 else f"ttl of {name}" for name in expiring}
    return periods | {names[name]: topology.stores[name].ttl_ms for name in expiring}


def options_of(node: Node) -> dict[str, int | str]:
    """Return the ``options`` of a node's operator by name, which are its declared limits and choices except periods."""
    options: dict[str, int | str] = getattr(getattr(node, "operator", None), "options", {})
    return options


def _node_dict(node: NodeDescription) -> dict[str, Any]:
    result: dict[str, Any] = {
        "type": node.type,
        "name": node.name,
        "predecessors": list(node.predecessors),
        "successors": list(node.successors),
    }
    if node.type == "source":
        result |= {"pattern": node.pattern} if node.pattern is not None else {"topics": list(node.topics)}
    elif node.type == "sink":
        result["topic"] = node.topic
    else:
        result["stores"] = list(node.stores)
    return result | {f"{name}_ms": period_ms for name, period_ms in node.periods} | dict(node.options)


def _node_lines(node: NodeDescription) -> Iterable[str]:
    if node.type == "source":
        what = node.pattern if node.pattern is not None else f"[{', '.join(node.topics)}]"
        yield f"    Source: {node.name} (topics: {what})"
    elif node.type == "sink":
        yield f"    Sink: {node.name} (topic: {node.topic if node.topic is not None else 'extractor class'})"
    else:
        yield f"    Processor: {node.name} (stores: [{', '.join(node.stores)}])"
    for name, period_ms in node.periods:
        yield f"      {name}: {period_ms} ms"
    for name, option in node.options:
        yield f"      {name}: {option}"
    if node.type != "sink":
        yield f"      --> {', '.join(node.successors) or 'none'}"
    if node.type != "source":
        yield f"      <-- {', '.join(node.predecessors) or 'none'}"


class _Mermaid:
    """Writes a flowchart. Every name has a short id, because Mermaid restricts the characters in ids."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str], str] = {}
        self._shapes: list[str] = []
        self._edges: list[str] = []

    def render(self, description: TopologyDescription) -> str:
        lines = ["flowchart LR"]
        for sub in description.sub_topologies:
            lines.append(f'  subgraph sub{sub.id}["sub-topology {sub.id}"]')
            for node in sub.nodes:
                lines.append(f'    {self._id("node", node.name)}["{_escape(node.name)}"]')
            lines.append("  end")
            for node in sub.nodes:
                self._connect(node)
        for store in description.global_stores:
            topic = self._topic(store.topics[0])
            self._edges.append(f"  {topic} --> {self._store(store.stores[0])}")
        return "\n".join([*lines, *self._shapes, *self._edges]) + "\n"

    def _connect(self, node: NodeDescription) -> None:
        me = self._id("node", node.name)
        for topic in [node.pattern] if node.pattern is not None else node.topics:
            self._edges.append(f"  {self._topic(topic)} --> {me}")
        if node.type == "sink":
            self._edges.append(f"  {me} --> {self._topic(node.topic or 'chosen per record')}")
        for store in node.stores:
            self._edges.append(f"  {me} <-.-> {self._store(store)}")
        for after in node.successors:
            self._edges.append(f"  {me} --> {self._id('node', after)}")

    def _topic(self, name: str) -> str:
        return self._shape("topic", name, f'(["{_escape(name)}"])')

    def _store(self, name: str) -> str:
        return self._shape("store", name, f'[("{_escape(name)}")]')

    def _shape(self, kind: str, name: str, shape: str) -> str:
        is_drawn = (kind, name) in self._ids
        identity = self._id(kind, name)
        if not is_drawn:
            self._shapes.append(f"  {identity}{shape}")
        return identity

    def _id(self, kind: str, name: str) -> str:
        return self._ids.setdefault((kind, name), f"{kind}{len(self._ids)}")


def _escape(name: str) -> str:
    return name.replace('"', "#quot;")
