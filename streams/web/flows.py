"""Record counts along the edges of a topology, derived from the counts of sources and sinks.

Only sources, sinks and drops are counted on the hot path.  A one-to-one node forwards as many records as it receives;
the output of another node is known if all of it goes to one counted node.  All other counts are unknown (None).
Of the other packages, this module imports only ``topology``.
"""

from collections.abc import Callable, Mapping

from attrs import define, field

from streams.topology import ProcessorNode, SinkNode, SourceNode, Topology, is_one_to_one


@define
class Flow:
    """The numbers of records into and out of a node; None if unknown."""

    came: float | None = None
    went: float | None = None


@define(eq=False)
class Flows:
    """The numbers of records at the nodes of one instance, as counts or as rates.

    ``counted`` returns the record count of a source or sink, and ``dropped`` the number of records dropped by a node.
    """

    _topology: Topology
    _counted: Callable[[str], float]
    _dropped: Callable[[str], float]
    nodes: dict[str, Flow] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.nodes = {name: Flow() for name in self._topology.nodes}
        for name in self.nodes:
            self._forward(name)
        for name in reversed(self.nodes):
            self._backward(name)

    def along(self, start: str, end: str) -> float | None:
        """Return the number of records that one node has forwarded to another, None if unknown."""
        if self._parents(end) == 1:
            return self.nodes[end].came
        # A branch, or a processor that names its children, may forward a record to only some of them.
        return self.nodes[start].went if len(self._topology.children[start]) == 1 or self._is_copied(start) else None

    def _forward(self, name: str) -> None:
        node = self._topology.nodes[name]
        flow = self.nodes[name]
        if not isinstance(node, ProcessorNode):
            flow.came = self._counted(name)
            flow.went = max(0, flow.came - self._dropped(name))
            return
        of_parents = [self.nodes[parent].went if self._is_copied(parent) else None for parent in node.parents]
        counts = [went for went in of_parents if went is not None]
        if counts and len(counts) == len(of_parents):
            flow.came = sum(counts)
            if is_one_to_one(node):
                flow.went = max(0, flow.came - self._dropped(name))

    def _backward(self, name: str) -> None:
        flow = self.nodes[name]
        children = self._topology.children[name]
        if flow.went is None and len(children) == 1 and self._parents(children[0]) == 1:
            flow.went = self.nodes[children[0]].came
        node = self._topology.nodes[name]
        if flow.came is None and is_one_to_one(node) and flow.went is not None:
            flow.came = flow.went + self._dropped(name)

    def _is_copied(self, name: str) -> bool:
        """Whether each output of a node goes to all its children."""
        node = self._topology.nodes[name]
        return isinstance(node, SourceNode) or is_one_to_one(node)

    def _parents(self, name: str) -> int:
        node = self._topology.nodes[name]
        return len(node.parents) if isinstance(node, ProcessorNode | SinkNode) else 0


def shown(counts: Mapping[str, Flow], rates: Mapping[str, Flow]) -> dict[str, list[float | None]]:
    """Return four numbers per node: the records in and out, as counts and as rates per second."""
    return {
        name: [count.came, count.went, _rounded(rates[name].came), _rounded(rates[name].went)]
        for name, count in counts.items()
    }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)
