"""Drawings of a topology as SVG: for files, notebooks, and the live page, which adds numbers to the same drawing.

This module is pure; it imports only other modules of its package.
"""

from collections.abc import Sequence
from html import escape

from attrs import define, field

from streams.topology.layout import NO_BLOCK, Box, Graph, Marks

_HEIGHT = 44
_GAP_X = 38
_GAP_Y = 20
_MARGIN = 14
#: Head of a block, with its title.
_HEAD = 26
_CHAR = 6.9
_NARROWEST, _WIDEST = 156, 224
_INDENT = 18
#: How much the ends of a drum, which is a box with a store, are bent.
_BOW = 5
_WIDTH_OF_LIST = 340

#: With the class of the drawing, since styles in a notebook are those of the whole page.
_STYLE = """\
.topology text { font: 12.5px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1a2029 }
.topology .rate, .topology .block-title { font-size: 12px; fill: #586274 }
.topology .block { fill: none; stroke: #dde1e7; stroke-dasharray: 2 3 }
.topology .shape { fill: #ffffff; stroke: #8a94a3 }
.topology .topic .shape { fill: #eceff3 } .topology .store .shape { fill: #f3eefb; stroke: #8165b4 }
.topology .repartition .shape { fill: none; stroke-dasharray: 4 3 }
.topology .edge { fill: none; stroke: #8a94a3; stroke-width: 1.3 } .topology .arrow { fill: #8a94a3 }
.topology .use { fill: none; stroke: #8165b4; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) {
.topology text { fill: #e7ebf1 } .topology .rate, .topology .block-title { fill: #9aa6b6 }
.topology .block { stroke: #2c3542 } .topology .edge { stroke: #6d7a8c }
.topology .shape { fill: #191f28; stroke: #6d7a8c } .topology .topic .shape { fill: #262e3a }
.topology .store .shape { fill: #2a2438; stroke: #a68ddb } .topology .repartition .shape { fill: none }
}
.topology .new .shape { fill: #cdeedb; stroke: #1a7046 } .topology .gone .shape { fill: #fbd9d6; stroke: #b3261e }
.topology .edge.new { stroke: #1a7046; stroke-width: 2 } .topology .edge.gone { stroke: #b3261e; stroke-dasharray: 5 3 }
.topology .changed .shape { fill: #fbe7b8; stroke: #8a5a00 }
.topology :is(.new, .gone, .changed) text { fill: #1a2029 }
"""


@define(eq=False)
class _Drawing:
    """The boxes of a graph with their positions in pixels."""

    graph: Graph
    is_list: bool
    notes: Sequence[str]
    x: dict[int, float] = field(factory=dict)
    y: dict[int, float] = field(factory=dict)
    widths: dict[int, float] = field(factory=dict)
    _lefts: dict[int, float] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if self.is_list:
            self._place_list()
        else:
            self._place()

    def _place(self) -> None:
        """Put each rank in a column that is as wide as its widest name."""
        columns: dict[int, float] = {}
        for box in self.graph.boxes:
            columns[box.rank] = max(columns.get(box.rank, _NARROWEST), min(_WIDEST, self._length(box) * _CHAR + 30))
        left = float(_MARGIN * 2)
        for rank in sorted(columns):
            self._lefts[rank] = left
            left += columns[rank] + _GAP_X
        for box in self.graph.boxes:
            self.x[box.number] = self._lefts[box.rank]
            self.y[box.number] = _top(box)
            self.widths[box.number] = columns[box.rank]

    def _length(self, box: Box) -> int:
        return max(len(box.label), len(self.notes[box.number]) if self.notes else 0)

    def _place_list(self) -> None:
        """Put the boxes below each other, each below the box that its records come from."""
        after: dict[int, list[int]] = {}
        ends = {end for _, end in self.graph.edges}
        for start, end in self.graph.edges:
            after.setdefault(start, []).append(end)
        top = float(_MARGIN)
        for block in sorted({box.block for box in self.graph.boxes}):
            top += _HEAD
            members = [box.number for box in self.graph.boxes if box.block == block]
            # The last one is taken first: those that nothing leads to, in their order.
            waiting = [(number, 0) for number in sorted(members, key=lambda each: (each not in ends, -each))]
            while waiting:
                number, depth = waiting.pop()
                if number not in self.y:
                    self.x[number] = _MARGIN * 2 + min(depth, 5) * _INDENT
                    self.y[number] = top
                    self.widths[number] = _WIDTH_OF_LIST - self.x[number]
                    top += _HEIGHT + _GAP_Y / 2
                    waiting += [(end, depth + 1) for end in reversed(after.get(number, []))]
            top += _GAP_Y

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the drawing."""
        numbers = self.x
        width = max((self.x[number] + self.widths[number] for number in numbers), default=0)
        tops = list(self.y.values())
        if not self.is_list:
            tops += [_top(way) for ways in self.graph.ways.values() for way in ways]
        height = max(tops, default=0) + _HEIGHT
        return width + _MARGIN * 2, height + _MARGIN * 2

    def curve(self, start: int, end: int) -> str:
        """Return the path of an edge, around boxes where it can be."""
        x1 = self.x[start] + self.widths[start]
        y1 = self.y[start] + _HEIGHT / 2
        x2 = self.x[end]
        y2 = self.y[end] + _HEIGHT / 2
        if self.is_list:
            x1 = self.x[start] + 9
            y1 = self.y[start] + (_HEIGHT if y2 > y1 else 0)
            return f"M{x1:.0f} {y1:.0f} V{y2:.0f} H{max(x2, x1 + 6):.0f}"
        if x2 == self.x[start]:
            # Below each other, as a store and its first user.
            upper = min(y1, y2) + _HEIGHT / 2
            return f"M{x2 + self.widths[end] / 2:.0f} {upper:.0f} V{max(y1, y2) - _HEIGHT / 2:.0f}"
        path = f"M{x1:.0f} {y1:.0f}"
        # Between the boxes of the ranks that it passes; a column is at least as wide as the narrowest box.
        ways = self.graph.ways.get((start, end)) or self.graph.ways.get((end, start), [])
        for left, y in [*((self._lefts[way.rank], _top(way) + _HEIGHT / 2) for way in ways), (x2, y2)]:
            bend = (left - x1) / 2
            path += f" C{x1 + bend:.0f} {y1:.0f} {left - bend:.0f} {y:.0f} {left:.0f} {y:.0f}"
            x1 = left + _NARROWEST
            y1 = y
            path += f" H{x1:.0f}" if left != x2 else ""
        return path


def _top(box: Box) -> float:
    return _MARGIN + _HEAD + box.lane * (_HEIGHT + _GAP_Y)


def to_svg(
    graph: Graph,
    *,
    is_list: bool = False,
    has_style: bool = True,
    marks: Marks | None = None,
    notes: Sequence[str] = (),
) -> str:
    """Return a drawing of a graph as an SVG document.

    ``is_list`` puts the boxes below each other, for narrow screens. Without ``has_style`` it has classes only.
    ``marks`` are further classes such as ``new``, and ``notes`` the second lines of the boxes.
    """
    marks = marks or {}
    drawing = _Drawing(graph, is_list, notes)
    width, height = drawing.size
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="topology" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">',
        *([f"<style>{_STYLE}</style>"] if has_style else []),
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'markerUnits="userSpaceOnUse" orient="auto"><path class="arrow" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
        *(_area(drawing, block, width) for block in sorted({box.block for box in graph.boxes} - {NO_BLOCK})),
        *(f'<path class="use" d="{drawing.curve(*_forward(drawing, *pair))}"/>' for pair in graph.uses),
        *(
            f'<path class="edge {marks.get(pair, "")}" data-edge="{number}" d="{drawing.curve(*pair)}" '
            'marker-end="url(#arrow)"/>'
            for number, pair in enumerate(graph.edges)
        ),
        *(_shape(drawing, box, marks, notes[box.number] if notes else _note(box)) for box in graph.boxes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _forward(drawing: _Drawing, node: int, store: int) -> tuple[int, int]:
    return (store, node) if drawing.x[store] <= drawing.x[node] else (node, store)


def _area(drawing: _Drawing, block: int, width: float) -> str:
    graph = drawing.graph
    tops = [drawing.y[box.number] for box in graph.boxes if box.block == block]
    if not drawing.is_list:
        tops += [_top(way) for ways in graph.ways.values() for way in ways if way.block == block]
    top = min(tops) - _HEAD + 4
    height = max(tops) + _HEIGHT + 9 - top
    size = f'width="{width - 2 * _MARGIN:.0f}" height="{height:.0f}"'
    return (
        f'<rect class="block" x="{_MARGIN}" y="{top:.0f}" {size} rx="8"/><text class="block-title" '
        f'data-block="{block}" x="{_MARGIN + 10}" y="{top + 15:.0f}">sub-topology {block}</text>'
    )


def _note(box: Box) -> str:
    kind = "repartition topic" if box.is_repartition else box.kind
    if box.stores:
        return "store" if len(box.stores) == 1 else f"{len(box.stores)} stores"
    return kind


def _fit(text: str, width: float) -> str:
    """Return a text that is cut in the middle if it is wider than a box."""
    length = int((width - 24) / _CHAR)
    if len(text) <= length:
        return text
    end = length // 2 - 1
    return f"{text[: length - end - 1]}…{text[-end:]}"


def _shape(drawing: _Drawing, box: Box, marks: Marks, note: str) -> str:
    number = box.number
    width = drawing.widths[number]
    has_store = box.kind == "store" or bool(box.stores)
    kinds = ["box", "store" if has_store else box.kind, "repartition" if box.is_repartition else ""]
    classes = " ".join(filter(None, [*kinds, marks.get(number, "")]))
    radius = _HEIGHT / 2 if box.kind == "topic" else 6
    body = (
        f'<path class="shape" d="M0 {_BOW} Q{width / 2:.0f} {-_BOW} {width:.0f} {_BOW} V{_HEIGHT - _BOW} '
        f'Q{width / 2:.0f} {_HEIGHT + _BOW} 0 {_HEIGHT - _BOW} Z"/>'
        if has_store
        else f'<rect class="shape" width="{width:.0f}" height="{_HEIGHT}" rx="{radius:.0f}"/>'
    )
    left = 16 if box.kind == "topic" else 12
    place = f"translate({drawing.x[number]:.0f} {drawing.y[number]:.0f})"
    return (
        f'<g class="{classes}" data-box="{number}" data-name="{escape(box.name)}" transform="{place}">'
        f"<title>{escape(box.title or box.name)}</title>{body}"
        f'<text x="{left}" y="19">{escape(_fit(box.label, width))}</text>'
        f'<text class="rate" x="{left}" y="35">{escape(_fit(note, width))}</text></g>'
    )
