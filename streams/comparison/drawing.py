"""Two versions of a topology as one drawing."""

from collections.abc import Collection, Iterator

from streams.comparison.matching import fingerprint, is_numbered
from streams.topology import ProcessorNode, Topology, describe, to_svg


def drawing(old: Topology, new: Topology, differing: Collection[str] = ()) -> str:
    """Return both versions as an SVG document.

    What only NEW has is green, what only OLD has is red. Yellow are nodes of which a function has changed, and topics
    and stores of which the content is ``differing``.
    """
    names = dict(_pairs(old, new))
    graph, marks = describe(new).graph().beside(describe(old).graph(), names)
    others = {two for one, two in names.items() if _print(old, one) != _print(new, two)} | set(differing)
    for box in graph.boxes:
        if others.intersection((box.name, *box.nodes, *box.stores)):
            marks.setdefault(box.number, "changed")
    notes = [marks.get(box.number, box.kind) for box in graph.boxes]
    return to_svg(graph, marks=marks, notes=notes)


def _pairs(old: Topology, new: Topology) -> Iterator[tuple[str, str]]:
    """Yield the names of the nodes that are the same in both versions: by name, or numbered with the same function."""
    left = [name for name in new.nodes if is_numbered(name)]
    for name in old.nodes:
        kind = name[:-10]
        if not is_numbered(name):
            if name in new.nodes:
                yield name, name
            continue
        same = [other for other in left if other[:-10] == kind and _print(new, other) == _print(old, name)]
        # A function that has changed, of a node that has not moved.
        same = same or [name for other in left if other == name]
        if same:
            left.remove(same[0])
            yield name, same[0]


def _print(topology: Topology, name: str) -> object:
    node = topology.nodes[name]
    return fingerprint(node.operator) if isinstance(node, ProcessorNode) else None
