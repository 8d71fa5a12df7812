"""An extension of the site's reader of docstrings: doctests are code, also without a heading ``Examples:``.

A paragraph that begins with ``>>>`` would be read as three quotes within each other, code and result in one line.
"""

import re
import textwrap
from typing import Any

from griffe import Extension, Object

#: Doctests between empty lines, several as one; those within a section are indented, and not found.
_DOCTESTS = re.compile(r"(?:\A|(?<=\n\n))>>> .*?(?=\n\n(?!>>> )|\Z)", re.DOTALL)


class Examples(Extension):
    """Puts the doctests of each docstring into a section."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for each object that is read."""
        if obj.docstring is not None:
            obj.docstring.value = in_sections(obj.docstring.value)


def in_sections(docstring: str) -> str:
    r"""Return a docstring whose doctests are in sections.

    >>> print(in_sections("Add.\n\n>>> 1 + 1\n2"))
    Add.
    <BLANKLINE>
    Examples:
        >>> 1 + 1
        2
    """
    return _DOCTESTS.sub(lambda it: f"Examples:\n{textwrap.indent(it[0], '    ')}", docstring)
