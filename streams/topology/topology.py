"""``Topology``: the graph of nodes that a user builds, runs and looks at."""

from attrs import define

from streams.topology.describe import describe
from streams.topology.graph import NodeGraph


@define(repr=False)
class Topology(NodeGraph):
    """A topology of sources, processors, sinks and state stores, which a notebook shows as a drawing."""

    def __repr__(self) -> str:
        return f"<Topology: {len(self.order)} nodes, {len(self.stores) + len(self.global_stores)} stores>"

    def _repr_svg_(self) -> str:
        """Return the drawing that a notebook shows."""
        return describe(self).to_svg()
