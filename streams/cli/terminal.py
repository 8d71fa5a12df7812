"""Tables, trees and colours on standard output, for all commands that show more than lines.

Width and colours are those that rich finds: a terminal has colours unless NO_COLOR or TERM=dumb says otherwise.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

#: In terminals with fewer columns, each table shows only its most important columns.
NARROW = 80


def console(*, no_color: bool | None = None) -> "Console":
    """Return standard output as a console."""
    from rich.console import Console

    return Console(no_color=no_color or None, highlight=False)


def show(*parts: Any, no_color: bool | None = None) -> None:
    """Print tables, trees and texts, as wide as standard output."""
    output = console(no_color=no_color)
    with output.capture() as capture:
        for part in parts:
            output.print(part)
    # Written here, since rich ends the program by itself if the reader has closed the pipe.
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def table(heads: str, rows: Iterable[Sequence[str]], width: int, title: str = "", styles: Sequence[str] = ()) -> Any:
    """Return a table; columns whose head begins with ``*`` are left out in a narrow terminal."""
    from rich.table import Table

    shown = [(i, head) for i, head in enumerate(heads.split(",")) if width >= NARROW or not head.startswith("*")]
    result = Table(title=title or None, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for i, head in shown:
        result.add_column(
            head.removeprefix("*"), header_style="dim", overflow="fold", style=styles[i] if styles else None
        )
    for row in rows:
        result.add_row(*(text(row[i]) for i, _ in shown))
    return result


def text(content: str, style: str = "") -> Any:
    """Return a text whose markup and control characters are not interpreted."""
    from rich.text import Text

    return Text("".join(letter if letter.isprintable() else " " for letter in content), style)
