"""The topology as a graph with a layered layout, which is deterministic.

A box has a rank (its distance from the inputs) and a lane (its place among the boxes of this rank); drawings convert
them to pixels. Each sub-topology is a separate block, and blocks are stacked: a topic between two sub-topologies is a
box in both. The simple view has a box for what a user has written: sources, sinks and the nodes of a repartition are
part of their topic's box, the nodes of a join are one box, and a store is part of its first user's box.
This module is pure; it imports only the descriptions of its package.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from attrs import define, evolve, field

from streams.topology.descriptions import GlobalStoreDescription, SubTopologyDescription

#: Number of passes that sort the boxes of each rank by the lanes of their neighbours.
_SWEEPS = 6
#: Gap between two blocks in lanes, for the heading of the lower block.
_BLOCK_GAP = 0.7
#: The sub-topology of boxes that are in none.
NO_BLOCK = -1
#: Classes of boxes, by their numbers, and of edges, by the numbers of their boxes.
Marks: TypeAlias = dict[int | tuple[int, int], str]
#: Name of the box for topics that a sink selects per record.
DYNAMIC_TOPIC = "chosen per record"
#: Names of the nodes of a join before the one that merges their results, which is a box in the simple view.
_JOINED = re.compile(
    r"(JOIN|OUTER)(THIS|OTHER)-\d|ASOF(LEFT|RIGHT)-\d|WINDOWED-\d|-(this|other)-(join|windowed)$|-join-(this|other)$"
    r"|-(left|right)$"
)
_MERGED = re.compile(r"-merge$|^K(STREAM|TABLE)-MERGE-\d")


def short_name(name: str) -> str:
    """Return a name without what all generated names have: ``KSTREAM-MAPVALUES-0000000001`` is ``MAPVALUES-1``."""
    return re.sub(r"-0+(\d+)\b", r"-\1", re.sub(r"^K(STREAM|TABLE)-(?=[A-Z]+-)", "", name)).replace("-STATE-STORE", "")


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
    #: The nodes of which the box stands for several, and the stores that are drawn as a part of it.
    nodes: list[str] = field(factory=list)
    stores: list[str] = field(factory=list)
    is_repartition: bool = False
    #: What is shown of the box on hover; by default its name.
    title: str = ""

    @property
    def label(self) -> str:
        """The name as a drawing has it."""
        if self.is_repartition:
            return short_name(self.name.removesuffix("-repartition"))
        if len(self.stores) == 1 and re.search(r"-\d{10}$", self.name):
            return short_name(self.stores[0])
        return short_name(self.name if len(self.nodes) < 2 else self.name.removesuffix("-merge"))

    def shown(self) -> dict[str, Any]:
        """Return the box as a JSON-compatible dict."""
        return {
            "kind": self.kind,
            "name": self.name,
            "label": self.label,
            "sub": self.block,
            "nodes": self.nodes,
            "stores": self.stores,
        }


@define(eq=False)
class Graph:
    """A topology as boxes, and edges as pairs of box numbers.

    ``uses`` are the pairs of a node and a store that it uses; no records flow along these.
    """

    boxes: list[Box] = field(factory=list)
    #: Of each edge, the numbers of the edges of the whole graph that it stands for.
    edges: dict[tuple[int, int], tuple[int, ...]] = field(factory=dict)
    uses: dict[tuple[int, int], object] = field(factory=dict)
    #: The places that an edge over several ranks passes between boxes.
    ways: dict[tuple[int, int], list[Box]] = field(factory=dict)
    _box_by_key: dict[tuple[str, str, int], Box] = field(factory=dict)

    @classmethod
    def of(
        cls,
        sub_topologies: Sequence[SubTopologyDescription],
        global_stores: Sequence[GlobalStoreDescription] = (),
        internal_topics: Collection[str] | None = None,
    ) -> "Graph":
        """Return the graph of a topology; the simple view of it, if its ``internal_topics`` are given."""
        graph = cls()
        for sub in sub_topologies:
            for node in sub.nodes:
                graph._box(node.type, node.name, sub.id).nodes.append(node.name)
        for sub in sub_topologies:
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
        for table in global_stores:
            store = graph._box("store", table.stores[0], table.id)
            for name in table.topics:
                graph._connect(graph._box("topic", name, table.id), store)
        if internal_topics is not None:
            graph = graph._simple(internal_topics)
        graph.arrange()
        return graph

    def shown(self) -> dict[str, Any]:
        """Return the graph as a JSON-compatible dict."""
        return {
            "boxes": [box.shown() for box in self.boxes],
            "edges": [[start, end, *path] for (start, end), path in self.edges.items()],
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
        self.edges.setdefault((start.number, end.number), (len(self.edges),))

    def beside(self, old: "Graph", names: Mapping[str, str]) -> tuple["Graph", Marks]:
        """Return this graph with what only an older one has, and the marks ``new`` and ``gone`` of boxes and edges.

        ``names`` are the names in this graph of nodes of the old one; other boxes are the same if their names are.
        """
        graph = Graph(
            [evolve(box, number=box.number) for box in self.boxes], dict.fromkeys(self.edges, ()), dict(self.uses)
        )
        marks: Marks = dict.fromkeys([*(box.number for box in self.boxes), *self.edges], "new")
        places: dict[tuple[bool, str], list[int]] = {}
        for box in self.boxes:
            places.setdefault((box.kind == "topic", box.name), []).append(box.number)
        numbers: dict[int, int] = {}
        blocks: dict[int, int] = {}
        for box in old.boxes:
            if same := places.get((box.kind == "topic", names.get(box.name, box.name))):
                numbers[box.number] = same.pop(0)
                marks.pop(numbers[box.number])
                blocks.setdefault(box.block, graph.boxes[numbers[box.number]].block)
        last = max((box.block for box in self.boxes), default=-1)
        for box in old.boxes:
            if box.number not in numbers:
                number = numbers[box.number] = len(graph.boxes)
                block = blocks.get(box.block, last + 1 + box.block)
                graph.boxes.append(evolve(box, number=number, block=block, rank=0, lane=0))
                marks[number] = "gone"
        for pairs, own in ((old.edges, graph.edges), (old.uses, graph.uses)):
            for one, other in pairs:
                pair = numbers[one], numbers[other]
                if pair not in own:
                    marks[pair] = "gone"
                else:
                    marks.pop(pair, None)
                own[pair] = ()
        for box in graph.boxes:
            box.rank = 0
        graph.arrange()
        return graph, marks

    # --- the simple view ------------------------------------------------------------------

    def _simple(self, internal_topics: Collection[str]) -> "Graph":
        """Return the graph with fewer boxes, which each stand for what a user has written."""
        before: dict[int, list[int]] = {box.number: [] for box in self.boxes}
        after: dict[int, list[int]] = {box.number: [] for box in self.boxes}
        for start, end in self.edges:
            before[end].append(start)
            after[start].append(end)
        into: dict[int, int] = {}
        for box in self.boxes:
            if box.kind == "processor" and _MERGED.search(box.name):
                for one in (each for each in before[box.number] if _JOINED.search(self.boxes[each].name)):
                    into[one] = box.number
                    into |= {each: box.number for each in before[one] if _JOINED.search(self.boxes[each].name)}
        first_users = {store: node for node, store in reversed(self.uses) if not before[store]}
        into |= {store: into.get(node, node) for store, node in first_users.items()}
        passed = {box.number for box in self.boxes if self._is_passed(box, before, after, internal_topics)}
        graph = Graph()
        numbers: dict[int, int] = {}
        for box in self.boxes:
            if box.number not in into and box.number not in passed:
                simple = graph._box(box.kind, box.name, box.block)
                numbers[box.number] = simple.number
                simple.nodes = list(box.nodes)
                simple.is_repartition = box.kind == "topic" and box.name in internal_topics
        for box in self.boxes:
            if box.number in into and (owner := numbers.get(into[box.number])) is not None:
                numbers[box.number] = owner
                names = graph.boxes[owner].stores if box.kind == "store" else graph.boxes[owner].nodes
                names.append(box.name)
        for start in (number for number in numbers if number not in passed):
            for end, path in self._ends(start, after, passed):
                if numbers[start] != numbers[end]:
                    graph.edges.setdefault((numbers[start], numbers[end]), path)
        for pair in self.uses:
            user, owner = (numbers.get(number, -1) for number in pair)
            if -1 not in (user, owner) and user != owner and (owner, user) not in graph.edges:
                graph.uses[user, owner] = None
        return graph

    def _is_passed(
        self,
        box: Box,
        before: Mapping[int, Sequence[int]],
        after: Mapping[int, Sequence[int]],
        internal_topics: Collection[str],
    ) -> bool:
        """Whether a node only passes records on: a source, a sink, or what is before the sink of a repartition."""
        if box.kind in ("source", "sink") or box.name.startswith("KTABLE-TOSTREAM-"):
            return bool(before[box.number] and after[box.number])
        number = box.number
        steps = 0
        while len(after[number]) == 1 and self.boxes[number].kind == "processor" and steps < 2:
            number = after[number][0]
            steps += 1
        is_before = self.boxes[number].kind == "sink" and any(
            self.boxes[topic].name in internal_topics for topic in after[number]
        )
        kind = r"-repartition-filter$|^KSTREAM-FILTER-\d" if steps == 1 else r"^KSTREAM-KEY-SELECT-\d"
        return is_before and steps > 0 and re.search(kind, box.name) is not None

    def _ends(
        self, start: int, after: Mapping[int, Sequence[int]], passed: Collection[int], path: tuple[int, ...] = ()
    ) -> Iterable[tuple[int, tuple[int, ...]]]:
        """Yield the boxes to which the records of one flow, with the edges on their way."""
        for end in after[start]:
            way = (*path, *self.edges[start, end])
            if end not in passed:
                yield end, way
            elif len(way) < len(self.edges):
                yield from self._ends(end, after, passed, way)

    def add(self, kind: str, name: str, title: str) -> int:
        """Add a box that is in no sub-topology, and return its number."""
        self.boxes.append(Box(len(self.boxes), kind, name, NO_BLOCK, title=title))
        return len(self.boxes) - 1

    def arrange(self) -> None:
        """Set the ranks and lanes of all boxes."""
        self._rank()
        self._arrange()

    # --- places ---------------------------------------------------------------------------

    def _rank(self) -> None:
        """Set the rank of each box, after those of its predecessors; in each cycle, one edge leads back."""
        after: dict[int, list[int]] = {box.number: [] for box in self.boxes}
        missing = dict.fromkeys(after, 0)
        # A box with a store stands before those that read it.
        read = [(store, node) for node, store in self.uses if self.boxes[store].kind != "store"]
        for start, end in (*self.edges, *read):
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
            if self.boxes[store].kind == "store":
                self.boxes[store].rank = min(ranks)
        for start, end in self.edges:
            # A source topic is placed directly before its first reader.
            box = self.boxes[start]
            if box.kind == "topic" and not box.rank and self.boxes[end].rank > 1:
                ends = [self.boxes[other].rank for one, other in self.edges if one == start]
                box.rank = max(0, min(ends) - 1)

    def _arrange(self) -> None:
        """Set the lane of each box near those of its neighbours, and stack the blocks of the sub-topologies."""
        near: dict[int, list[Box]] = {box.number: [] for box in self.boxes}
        boxes = list(self.boxes)
        for pair in (*self.edges, *self.uses):
            first, last = sorted((self.boxes[number] for number in pair), key=lambda box: box.rank)
            way = self.ways[pair] = [
                Box(number, "way", "", first.block, rank)
                for number, rank in enumerate(range(first.rank + 1, last.rank), len(boxes))
            ]
            boxes += way
            for before, box in pairwise([first, *way, last]):
                near.setdefault(before.number, []).append(box)
                near.setdefault(box.number, []).append(before)
        blocks: dict[int, list[Box]] = {}
        for box in boxes:
            blocks.setdefault(box.block, []).append(box)
        top = 0.0
        for _, members in sorted(blocks.items()):
            self._arrange_block(members, near)
            for box in members:
                box.lane = round(box.lane + top, 2)
            top = max(box.lane for box in members) + 1 + _BLOCK_GAP

    def _arrange_block(self, members: list[Box], near: Mapping[int, Sequence[Box]]) -> None:
        """Set the lanes of one sub-topology's boxes, from 0 on, so that few edges cross."""
        ranks: dict[int, list[Box]] = {}
        for box in members:
            ranks.setdefault(box.rank, []).append(box)
        for boxes in ranks.values():
            for lane, box in enumerate(boxes):
                box.lane = lane
        for sweep in range(_SWEEPS):
            for rank in sorted(ranks, reverse=bool(sweep % 2)):
                boxes = ranks[rank]
                middles = {box.number: _middle(box, near) for box in boxes}
                boxes.sort(key=lambda box: (middles[box.number], box.number))
                # Place each box at the mean lane of its neighbours, but at least one lane after the previous box.
                for box in boxes:
                    box.lane = middles[box.number]
                for before, box in pairwise(boxes):
                    box.lane = max(box.lane, before.lane + 1)
        first = min(box.lane for box in members)
        for box in members:
            box.lane = round(box.lane - first, 2)


def _middle(box: Box, near: Mapping[int, Sequence[Box]]) -> float:
    lanes = [other.lane for other in near[box.number] if other.block == box.block]
    return sum(lanes) / len(lanes) if lanes else box.lane
