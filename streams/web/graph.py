"""The topology as a graph with a layered layout, which is deterministic.

A box has a rank (its distance from the inputs) and a lane (its place among the boxes of this rank); the page converts
them to pixels, in either direction. Each sub-topology is a separate block, and blocks are stacked: a topic between two
sub-topologies is a box in both. This module is pure; of the other packages, it imports only ``topology``.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from attrs import define, field

from streams.topology import TopologyDescription

#: Number of passes that sort the boxes of each rank by the lanes of their neighbours.
_SWEEPS = 6
#: Gap between two blocks in lanes, for the heading of the lower block.
_BLOCK_GAP = 0.7
#: Name of the box for topics that a sink selects per record.
DYNAMIC_TOPIC = "chosen per record"


@define(eq=False)
class Box:
    """The box of a node, topic or store in the graph; ``rank`` and ``lane`` are its position in the layout."""

    number: int
    kind: str
    name: str
    #: The sub-topology.
    block: int
    rank: int = 0
    lane: float = 0

    def shown(self) -> dict[str, Any]:
        """Return the box as a JSON-compatible dict."""
        return {"kind": self.kind, "name": self.name, "sub": self.block, "rank": self.rank, "lane": self.lane}


@define(eq=False)
class Graph:
    """A topology as boxes, and edges as pairs of box numbers.

    ``uses`` are the pairs of a node and a store that it uses; no records flow along these.
    """

    boxes: list[Box] = field(factory=list)
    edges: dict[tuple[int, int], None] = field(factory=dict)
    uses: dict[tuple[int, int], None] = field(factory=dict)
    _box_by_key: dict[tuple[str, str, int], Box] = field(factory=dict)

    @classmethod
    def of(cls, description: TopologyDescription) -> "Graph":
        """Return the graph of a topology."""
        graph = cls()
        for sub in description.sub_topologies:
            for node in sub.nodes:
                graph._box(node.type, node.name, sub.id)
        for sub in description.sub_topologies:
            for node in sub.nodes:
                me = graph._box(node.type, node.name, sub.id)
                for name in [node.pattern] if node.pattern is not None else node.topics:
                    graph._connect(graph._box("topic", name, sub.id), me)
                if node.type == "sink":
                    graph._connect(me, graph._box("topic", node.topic or DYNAMIC_TOPIC, sub.id))
                for name in node.successors:
                    graph._connect(me, graph._box("node", name, sub.id))
                for name in node.stores:
                    graph.uses[me.number, graph._box("store", name, sub.id).number] = None
        for table in description.global_stores:
            store = graph._box("store", table.stores[0], table.id)
            for name in table.topics:
                graph._connect(graph._box("topic", name, table.id), store)
        graph._rank()
        graph._arrange()
        return graph

    def shown(self) -> dict[str, Any]:
        """Return the graph as a JSON-compatible dict."""
        return {
            "boxes": [box.shown() for box in self.boxes],
            "edges": list(self.edges),
            "uses": list(self.uses),
        }

    def _box(self, kind: str, name: str, block: int) -> Box:
        key = kind if kind in ("topic", "store") else "node", name, block
        box = self._box_by_key.get(key)
        if box is None:
            box = self._box_by_key[key] = Box(len(self.boxes), kind, name, block)
            self.boxes.append(box)
        return box

    def _connect(self, start: Box, end: Box) -> None:
        self.edges[start.number, end.number] = None

    # --- places ---------------------------------------------------------------------------

    def _rank(self) -> None:
        """Set the rank of each box, after those of its predecessors; in each cycle, one edge leads back."""
        after: dict[int, list[int]] = {box.number: [] for box in self.boxes}
        missing = dict.fromkeys(after, 0)
        for start, end in self.edges:
            after[start].append(end)
            missing[end] += 1
        left = dict.fromkeys(after)
        ready = [number for number in left if not missing[number]]
        while left:
            # If all remaining boxes are in cycles, start with the first one.
            number = ready.pop(0) if ready else next(iter(left))
            if number not in left:
                continue
            del left[number]
            for end in after[number]:
                if end in left:
                    self.boxes[end].rank = max(self.boxes[end].rank, self.boxes[number].rank + 1)
                    missing[end] -= 1
                    if not missing[end]:
                        ready.append(end)
        users: dict[int, list[int]] = {}
        for node, store in self.uses:
            users.setdefault(store, []).append(self.boxes[node].rank)
        for store, ranks in users.items():
            self.boxes[store].rank = min(ranks)
        for start, end in self.edges:
            # A source topic is placed directly before its first reader.
            box = self.boxes[start]
            if box.kind == "topic" and not box.rank and self.boxes[end].rank > 1:
                ends = [self.boxes[other].rank for one, other in self.edges if one == start]
                box.rank = max(0, min(ends) - 1)

    def _arrange(self) -> None:
        """Set the lane of each box near those of its neighbours, and stack the blocks of the sub-topologies."""
        near: dict[int, list[int]] = {box.number: [] for box in self.boxes}
        for start, end in (*self.edges, *self.uses):
            near[start].append(end)
            near[end].append(start)
        blocks: dict[int, list[Box]] = {}
        for box in self.boxes:
            blocks.setdefault(box.block, []).append(box)
        top = 0.0
        for _, members in sorted(blocks.items()):
            self._arrange_block(members, near)
            for box in members:
                box.lane = round(box.lane + top, 2)
            top = max(box.lane for box in members) + 1 + _BLOCK_GAP

    def _arrange_block(self, members: list[Box], near: Mapping[int, Iterable[int]]) -> None:
        """Set the lanes of one sub-topology's boxes, from 0 on, so that few edges cross."""
        own = {box.number for box in members}
        ranks: dict[int, list[Box]] = {}
        for box in members:
            ranks.setdefault(box.rank, []).append(box)
        for boxes in ranks.values():
            for lane, box in enumerate(boxes):
                box.lane = lane
        for sweep in range(_SWEEPS):
            for rank in sorted(ranks, reverse=bool(sweep % 2)):
                boxes = ranks[rank]
                middles = {box.number: self._middle(box, own, near) for box in boxes}
                boxes.sort(key=lambda box: (middles[box.number], box.number))
                # Place each box at the mean lane of its neighbours, but at least one lane after the previous box.
                for box in boxes:
                    box.lane = middles[box.number]
                for before, box in pairwise(boxes):
                    box.lane = max(box.lane, before.lane + 1)
        first = min(box.lane for box in members)
        for box in members:
            box.lane = round(box.lane - first, 2)

    def _middle(self, box: Box, own: set[int], near: Mapping[int, Iterable[int]]) -> float:
        lanes = [self.boxes[number].lane for number in near[box.number] if number in own]
        return sum(lanes) / len(lanes) if lanes else box.lane
