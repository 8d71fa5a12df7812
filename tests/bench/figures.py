"""Tables of measurements: printed row by row, and kept in ``docs/figures.json``, from which the pages are made.

``docs/figures.py`` puts a kept table into every page that names it, so that no figure is written by hand twice.
"""

import json
import runpy
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from attrs import Factory, define

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = DOCS / "figures.json"


@define
class Table:
    """One table; its cells are text as they are shown.

    Args:
        name: Its key in ``docs/figures.json``.
        columns: The heads.
        conditions: Machine, load and size of the input, in one line.
    """

    name: str
    columns: Sequence[str]
    conditions: str
    rows: list[list[str]] = Factory(list)

    def open(self) -> None:
        """Print conditions and heads."""
        print(f"{self.conditions}\n")
        print(line(self.columns))
        print("|---" * len(self.columns) + "|", flush=True)

    def show(self) -> None:
        """Print the whole table."""
        self.open()
        for cells in self.rows:
            print(line(cells))

    def add(self, cells: Sequence[str]) -> None:
        """Keep a row and print it."""
        self.rows.append(list(cells))
        print(line(cells), flush=True)

    def write(self) -> None:
        """Keep the table in ``docs/figures.json`` in place of the last one, and make the pages from it.

        Raises:
            ValueError: It has no row, as when ``--only`` has found nothing.
        """
        if not self.rows:
            raise ValueError(f"table {self.name!r} has no row: nothing was measured")
        kept = json.loads(FIGURES.read_text(encoding="utf-8"))
        kept[self.name] = {"conditions": self.conditions, "columns": list(self.columns), "rows": self.rows}
        FIGURES.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        runpy.run_path(str(DOCS / "figures.py"), run_name="__main__")


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def add_write_option(options: ArgumentParser) -> None:
    options.add_argument("--write", action="store_true", help="keep the table in docs/figures.json, and in the pages")
