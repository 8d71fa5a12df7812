"""Numbers as bars: in a terminal as text, in a notebook or a file as an SVG drawing.

Pure; imports nothing of the package.
"""

from collections.abc import Iterator
from html import escape

from attrs import field, frozen

_WIDTH = 30
_LINE = 22
_BAR_PX = 300
#: Width of the labels and of what is beside a bar, in pixels.
_LABEL_PX = 110
_NOTE_PX = 260
_STYLE = """\
.bars text { font: 12.5px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1a2029 }
.bars .title { font-weight: 600 } .bars .note { fill: #586274 } .bars rect { fill: #1f5fa8 }
@media (prefers-color-scheme: dark) {
.bars text { fill: #e7ebf1 } .bars .note { fill: #9aa6b6 } .bars rect { fill: #7db6f2 }
}"""


@frozen
class Bars:
    """A title, and a bar for each row (label, number, what is said beside it)."""

    title: str
    rows: tuple[tuple[str, int, str], ...]

    def lines(self) -> Iterator[str]:
        """Yield the bars as lines of text."""
        yield self.title
        labels = max(len(label) for label, _, _ in self.rows)
        counts = max(len(f"{count:,}") for _, count, _ in self.rows)
        for (label, count, note), share in zip(self.rows, self._shares(), strict=True):
            bar = "█" * max(round(share * _WIDTH), count > 0)
            yield f"  {label:>{labels}}  {bar:{_WIDTH}}  {count:>{counts},}  {note}"

    def parts(self, top: int) -> Iterator[str]:
        """Yield the bars as parts of an SVG drawing, from ``top`` pixels on."""
        yield f'<text class="title" x="10" y="{top + 15}">{escape(self.title)}</text>'
        for number, ((label, count, note), share) in enumerate(zip(self.rows, self._shares(), strict=True), 1):
            y = top + number * _LINE
            width = max(round(share * _BAR_PX), count > 0)
            yield (
                f'<text x="{_LABEL_PX - 8}" y="{y + 15}" text-anchor="end">{escape(label)}</text>'
                f'<rect x="{_LABEL_PX}" y="{y + 4}" width="{width}" height="{_LINE - 8}"/>'
                f'<text class="note" x="{_LABEL_PX + width + 8}" y="{y + 15}">{count:,} {escape(note)}</text>'
            )

    def _shares(self) -> list[float]:
        most = max(count for _, count, _ in self.rows)
        return [count / (most or 1) for _, count, _ in self.rows]


@frozen(repr=False)
class Charts:
    """Bars below each other; ``nothing`` is said if there are none."""

    bars: tuple[Bars, ...]
    nothing: str = field(default="nothing to show")

    def __str__(self) -> str:
        return "\n".join(line for bars in self.bars for line in bars.lines()) or self.nothing

    def __repr__(self) -> str:
        return str(self)

    def to_svg(self) -> str:
        """Return the bars as an SVG document."""
        top = 8
        parts: list[str] = []
        for bars in self.bars:
            parts += bars.parts(top)
            top += (len(bars.rows) + 1) * _LINE + 14
        if not self.bars:
            parts.append(f'<text x="10" y="{top + 15}">{escape(self.nothing)}</text>')
            top += _LINE
        titles = (len(bars.title) * 7 + 20 for bars in self.bars)
        width = max(_LABEL_PX + _BAR_PX + _NOTE_PX, *titles, 0)
        head = f'<svg xmlns="http://www.w3.org/2000/svg" class="bars" width="{width}" height="{top}"'
        return "\n".join([f'{head} viewBox="0 0 {width} {top}">', f"<style>{_STYLE}</style>", *parts, "</svg>\n"])

    def _repr_svg_(self) -> str:
        return self.to_svg()
