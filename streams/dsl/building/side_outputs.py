"""Side outputs: streams of the records that an operator drops.

This module is used by the references to grouped and joined streams.
"""

from collections.abc import Iterable

from attrs import define, field

from streams.core.errors import TopologyError
from streams.core.metrics import LATE_REASONS, DropReason
from streams.dsl.logical import LogicalGraph, LogicalNode
from streams.dsl.nodes import LogicalSideOutput
from streams.dsl.ref import GroupRef, StreamRef


@define(eq=False)
class SideOutputs:
    """Streams of the records that the nodes of one operator drop.

    Only the first aggregation of a windowed or grouped stream has side outputs, because further aggregations of the
    same object would drop the same records again.
    """

    #: The stream whose graph and serdes the dropped records have.
    origin: StreamRef
    #: Whether records of a join may be late.
    has_late: bool = field(default=False, kw_only=True)
    _droppers: list[str] = field(factory=list)
    _nodes: list[LogicalNode] = field(factory=list)
    _side: list[LogicalNode] = field(factory=list)
    #: The last stream of each kind.
    _streams: dict[str, StreamRef] = field(factory=dict)

    @classmethod
    def of(cls, group: GroupRef) -> "SideOutputs":
        """Return the side outputs of an aggregation of a grouped stream."""
        return cls(group.stream.at(group.stream.node, group.key, group.value))

    @classmethod
    def at(cls, node: LogicalNode, origin: StreamRef, *more: str) -> "SideOutputs":
        """Return the side outputs of a node; ``origin`` has the serdes of the dropped records."""
        side = cls(origin)
        side.attach([node], *more)
        return side

    def attach(self, nodes: Iterable[LogicalNode], *more: str) -> None:
        """Set the nodes that drop records, unless such nodes have been set before.

        ``more`` are the names of further topology nodes that these logical nodes write.
        """
        if self._nodes:
            return
        self._nodes = list(nodes)
        self._droppers += [*(node.name for node in self._nodes), *more]
        self.origin = self.origin.at(self.origin.node, needs_repartition=False)
        for node in self._side:
            self.origin.graph.add(self._nodes, node)

    def late(self, name: str | None) -> StreamRef:
        """Return the stream of the operator's late records."""
        return self._stream("KSTREAM-LATE-", LATE_REASONS, name)

    def dropped(self, name: str | None) -> StreamRef:
        """Return the stream of all records that the operator drops."""
        return self._stream("KSTREAM-DROPPED-", frozenset(DropReason), name)

    def _stream(self, prefix: str, reasons: Iterable[str], name: str | None) -> StreamRef:
        graph: LogicalGraph = self.origin.graph
        if name is None and prefix in self._streams:
            return self._streams[prefix]
        if not self._nodes and self.origin.needs_repartition:
            raise TopologyError(
                f"dropped records of {self.origin!r}, whose key was changed: call late() or dropped() after the "
                "aggregation, which determines the repartition topic"
            )
        full_name = graph.names.node(name, prefix)
        # An upstream repartition topic must keep records without a key, which are then dropped here.
        node = LogicalNode(
            full_name,
            LogicalSideOutput(frozenset(reasons), self._droppers),
            has_relaxed_null_keys=DropReason.NULL_KEY in reasons,
        )
        graph.side_outputs.append(node)
        self._side.append(node)
        if self._nodes:
            graph.add(self._nodes, node)
        stream = self._streams[prefix] = self.origin.at(node, needs_repartition=False)
        return stream
