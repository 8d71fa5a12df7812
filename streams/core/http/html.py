"""Tables as HTML, which notebooks show.

Pure; imports no other module of the package.
"""

import reprlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from html import escape
from typing import Any

#: Rows of a table that are shown.
ROWS = 20

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 120


def cell(value: object) -> str:
    """Return the text of a value: ints with separators, times in ISO 8601, other objects by their repr."""
    if isinstance(value, str):
        return value if len(value) <= 120 else f"{value[:117]}..."
    if isinstance(value, datetime):
        return value.isoformat().removesuffix("+00:00") + ("Z" if value.utcoffset() == timedelta(0) else "")
    return f"{value:,}" if type(value) is int else _short.repr(value)


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[Any]], more: int = 0) -> str:
    """Return a table as HTML, with all texts escaped; ``more`` is the number of rows that are left out.

    >>> table("totals", ["key", "value"], [["<ann>", 1200]])
    '<table><caption>totals</caption><tr><th>key</th><th>value</th></tr><tr><td>&lt;ann&gt;</td><td>1,200</td></tr></table>'
    """
    lines = ["".join(f"<td>{escape(cell(value))}</td>" for value in row) for row in rows]
    if more:
        lines.append(f'<td colspan="{len(header)}">and {more:,} more</td>')
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{line}</tr>" for line in [head, *lines])
    return f"<table><caption>{escape(caption)}</caption>{body}</table>"
