"""Puts the measured tables of ``figures.json`` into the pages that name them: ``python docs/figures.py``.

A page names a table by ``<!-- table: NAME -->`` and ``<!-- /table -->``, and a single figure, rounded to a whole number
of STEP, by ``<!-- figure: NAME / ROW / COLUMN / STEP -->`` and ``<!-- /figure -->``.  What is between is replaced.
"""

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
FIGURES = DOCS / "figures.json"
_TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- /table -->)", re.DOTALL)
_FIGURE = re.compile(r"(<!-- figure: (\S+) / ([^/]+) / (.+?) / (\d+) -->).*?(<!-- /figure -->)")


def pages() -> list[Path]:
    """Return all pages that may have figures."""
    return [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]


def _table(kept: dict[str, Any]) -> str:
    head, *rows = (f"| {' | '.join(cells)} |" for cells in [kept["columns"], *kept["rows"]])
    lines = "\n".join([head, "|---" * len(kept["columns"]) + "|", *rows])
    return f"\n{kept['conditions']}\n\n{lines}\n\n"


def _figure(kept: dict[str, Any], row: str, column: str, step: int) -> str:
    place = kept["columns"].index(column)
    cell = next(cells[place] for cells in kept["rows"] if cells[0] == row)
    return f"{round(float(cell.replace(',', '')) / step) * step:,}"


def rendered(text: str, figures: dict[str, Any]) -> str:
    """Return a page with its tables and figures replaced by those measured.

    Raises:
        KeyError: A table that was never measured.
    """
    text = _TABLE.sub(lambda found: found[1] + _table(figures[found[2]]) + found[3], text)
    return _FIGURE.sub(
        lambda found: found[1] + _figure(figures[found[2]], found[3], found[4], int(found[5])) + found[6], text
    )


if __name__ == "__main__":
    measured = json.loads(FIGURES.read_text(encoding="utf-8"))
    for page in pages():
        page.write_text(rendered(page.read_text(encoding="utf-8"), measured), encoding="utf-8")
