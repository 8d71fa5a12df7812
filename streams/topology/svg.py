"""Drawing of a topology as SVG: one column per processing step, one area per sub-topology.

Topics are drawn as rounded boxes and stores as cylinders; edges run from left to right.  This module is
pure; of the other packages, it imports only ``topology``.
"""

from collections.abc import Iterable, Sequence
from html import escape

from attrs import define, field, frozen

from streams.topology.descriptions import GlobalStoreDescription, SubTopologyDescription

_HEIGHT = 30
_GAP_X = 60
_GAP_Y = 18
_CHAR = 7.2
_MARGIN = 24

_STYLE = """\
text { font: 12px ui-monospace, monospace; fill: #1b1f24; text-anchor: middle; dominant-baseline: central }
.title { text-anchor: start; fill: #57606a }
.sub { fill: #f6f8fa; stroke: #d0d7de }
.node { fill: #ffffff; stroke: #57606a }
.topic { fill: #ddf4ff; stroke: #0969da }
.store { fill: #fff8c5; stroke: #9a6700 }
.edge { fill: none; stroke: #57606a; marker-end: url(#arrow) }
.uses { fill: none; stroke: #9a6700; stroke-dasharray: 3 3 }
"""


@define(eq=False)
class _Box:
    """A box of the drawing: its kind, its column (counted from the left) and, once set, its position."""

    kind: str
    label: str
    column: int = 0
    x: float = 0
    y: float = 0

    @property
    def width(self) -> float:
        return len(self.label) * _CHAR + 20


@frozen
class _Drawing:
    """The boxes, by number of their sub-topology (-1: topics between sub-topologies), and the edges."""

    boxes: dict[tuple[str, str], _Box] = field(factory=dict)
    members: dict[int, list[_Box]] = field(factory=dict)
    edges: list[tuple[_Box, _Box]] = field(factory=list)
    uses: list[tuple[_Box, _Box]] = field(factory=list)

    def box(self, sub: int, kind: str, name: str) -> _Box:
        box = self.boxes.get((kind, name))
        if box is None:
            box = self.boxes[kind, name] = _Box(kind, name)
            self.members.setdefault(sub, []).append(box)
        return box


def to_svg(
    sub_topologies: Sequence[SubTopologyDescription], global_stores: Sequence[GlobalStoreDescription] = ()
) -> str:
    """Return a drawing of the topology as an SVG document."""
    drawing = _collect(sub_topologies, global_stores)
    _set_columns(drawing)
    areas = _place(drawing)
    width = max((box.x + box.width for box in drawing.boxes.values()), default=0) + _MARGIN * 2
    height = max((bottom for _, _, bottom in areas), default=0) + _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#57606a"/></marker></defs>',
        *(_area(sub, top, bottom, width) for sub, top, bottom in areas if sub >= 0),
        *(_curve("edge", start, end) for start, end in drawing.edges),
        *(_line(start, end) for start, end in drawing.uses),
        *(_shape(box) for box in drawing.boxes.values()),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _collect(
    sub_topologies: Sequence[SubTopologyDescription], global_stores: Sequence[GlobalStoreDescription]
) -> _Drawing:
    drawing = _Drawing()
    for sub in sub_topologies:
        for node in sub.nodes:
            drawing.box(sub.id, "node", node.name)
    for sub in sub_topologies:
        for node in sub.nodes:
            me = drawing.boxes["node", node.name]
            for name in [node.pattern] if node.pattern is not None else node.topics:
                drawing.edges.append((drawing.box(-1, "topic", name), me))
            if node.type == "sink":
                drawing.edges.append((me, drawing.box(-1, "topic", node.topic or "chosen per record")))
            drawing.edges.extend((me, drawing.boxes["node", name]) for name in node.successors)
            drawing.uses.extend((me, drawing.box(sub.id, "store", name)) for name in node.stores)
    for table in global_stores:
        store = drawing.box(table.id, "store", table.stores[0])
        drawing.edges.extend((drawing.box(-1, "topic", name), store) for name in table.topics)
    return drawing


def _set_columns(drawing: _Drawing) -> None:
    """Put each box to the right of its predecessors; the number of rounds is limited, since a cycle never converges."""
    for _ in drawing.boxes:
        late = [(start, end) for start, end in drawing.edges if end.column <= start.column]
        for start, end in late:
            end.column = start.column + 1
        if not late:
            break
    columns = sorted({box.column for box in drawing.boxes.values()})
    for user, store in drawing.uses:
        store.column = max(store.column, user.column)
    for box in drawing.boxes.values():
        box.column = columns.index(box.column) if box.column in columns else box.column


def _place(drawing: _Drawing) -> list[tuple[int, float, float]]:
    """Set the position of each box, and return the area of each sub-topology as (sub-topology, top, bottom)."""
    boxes = drawing.boxes.values()
    widths = {column: max(box.width for box in boxes if box.column == column) for column in {b.column for b in boxes}}
    left: dict[int, float] = {}
    x = float(_MARGIN * 2)
    for column in sorted(widths):
        left[column] = x
        x += widths[column] + _GAP_X
    areas = []
    top = float(_MARGIN)
    for sub, members in sorted(drawing.members.items()):
        head = 0 if sub < 0 else 26
        bottom = top + head + _stack(members, left, widths, top + head)
        areas.append((sub, top, bottom))
        top = bottom + _MARGIN
    return areas


def _stack(members: Iterable[_Box], left: dict[int, float], widths: dict[int, float], top: float) -> float:
    """Stack the boxes of each column from ``top`` on, and return the height of the highest stack."""
    used: dict[int, int] = {}
    for box in members:
        row = used.get(box.column, 0)
        used[box.column] = row + 1
        box.x = left[box.column] + (widths[box.column] - box.width) / 2
        box.y = top + row * (_HEIGHT + _GAP_Y)
    return max(used.values(), default=0) * (_HEIGHT + _GAP_Y)


def _area(sub: int, top: float, bottom: float, width: float) -> str:
    return (
        f'<rect class="sub" x="{_MARGIN}" y="{top:.0f}" width="{width - 2 * _MARGIN:.0f}" '
        f'height="{bottom - top:.0f}" rx="6"/>'
        f'<text class="title" x="{_MARGIN + 10}" y="{top + 13:.0f}">sub-topology {sub}</text>'
    )


def _curve(kind: str, start: _Box, end: _Box) -> str:
    x1 = start.x + start.width
    y1 = start.y + _HEIGHT / 2
    x2 = end.x
    y2 = end.y + _HEIGHT / 2
    bend = max(_GAP_X / 2, (x2 - x1) / 2)
    return (
        f'<path class="{kind}" d="M{x1:.0f} {y1:.0f} C{x1 + bend:.0f} {y1:.0f} '
        f'{x2 - bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"/>'
    )


def _line(user: _Box, store: _Box) -> str:
    x1 = user.x + user.width / 2
    x2 = store.x + store.width / 2
    return f'<path class="uses" d="M{x1:.0f} {user.y + _HEIGHT:.0f} L{x2:.0f} {store.y:.0f}"/>'


def _shape(box: _Box) -> str:
    radius = {"topic": _HEIGHT / 2, "store": 10}.get(box.kind, 3)
    return (
        f'<rect class="{box.kind}" x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{_HEIGHT}" '
        f'rx="{radius:.0f}"/><text x="{box.x + box.width / 2:.0f}" y="{box.y + _HEIGHT / 2:.0f}">'
        f"{escape(box.label)}</text>"
    )
