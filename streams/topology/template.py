"""Operators that are written into the program: what each record goes through most is not called, but spelled out.

A ``Template`` is the text of an operator's process function with places for the names of the record,
and what its own names stand for in one task.  ``compile`` sets it into the generated function of the
sub-topology, where what it emits goes straight on to the lines of the nodes behind it; ``bind_alone``
makes a function of it where nothing is generated.  There is one text for both.

The text is indented by four blanks.  ``{k}``, ``{v}``, ``{t}`` and ``{h}`` are key, value, timestamp and
headers; ``$`` before a name makes it one of this node.  ``-> key, value, timestamp, headers`` emits a record,
``=> key, new, old, timestamp, headers`` a table's change: ``(new, old, True)`` to those behind.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from textwrap import indent
from typing import Any

from attrs import frozen

from streams.topology.operator import NodeContext, Process

_OWN = re.compile(r"\$(\w+)")
_EMIT, _CHANGE = "-> ", "=> "


@frozen
class Emission:
    """A record that a template emits, in the names of the program."""

    key: str
    value: str
    timestamp: str
    headers: str


@frozen
class Change:
    """A table's change that a template emits, in the names of the program."""

    key: str
    new: str
    old: str
    timestamp: str
    headers: str


@frozen
class Template:
    """An operator as text, and what makes its names for a task."""

    text: str
    names: Callable[[NodeContext], dict[str, Any]]
    #: Whether nothing depends on the value of the record, not even on its being None.
    ignores_value: bool = False

    def lines(self, number: int, k: str, v: str, t: str, h: str) -> Iterator[tuple[int, str | Emission | Change]]:
        """Yield (depth, line), with the names of node ``number`` and of the record."""
        for line in _OWN.sub(rf"\1_{number}", self.text).strip("\n").splitlines():
            written = line.format(k=k, v=v, t=t, h=h)
            text = written.lstrip()
            depth = (len(written) - len(text)) // 4
            if text.startswith(_EMIT):
                yield depth, Emission(*_words(text.removeprefix(_EMIT)))
            elif text.startswith(_CHANGE):
                yield depth, Change(*_words(text.removeprefix(_CHANGE)))
            else:
                yield depth, text

    def own_names(self, number: int, context: NodeContext) -> dict[str, Any]:
        """Return what the names of node ``number`` stand for in a task."""
        return {f"{name}_{number}": value for name, value in self.names(context).items()}

    def bind_alone(self, context: NodeContext) -> Process:
        """Make the process function of one task, outside of a program."""
        names = {"forward": context.forward, **self.own_names(0, context)}
        lines = ["def process(k, v, t, h):"]
        for depth, line in self.lines(0, "k", "v", "t", "h"):
            if isinstance(line, Emission):
                line = f"forward({line.key}, {line.value}, {line.timestamp}, {line.headers})"
            elif isinstance(line, Change):
                line = f"forward({line.key}, ({line.new}, {line.old}, True), {line.timestamp}, {line.headers})"
            lines.append("    " * (depth + 1) + line)
        exec("\n".join(lines), names)
        process: Process = names["process"]
        return process


def filled(text: str, words: Mapping[str, str]) -> str:
    """Put in what words in capitals stand for; where one is a whole line, lines as deep as it was."""

    def lines(found: re.Match[str]) -> str:
        return indent(filled(words[found[2]].strip("\n"), words), found[1])

    text = re.sub(r"^( *)([A-Z_]{3,})$", lines, text, flags=re.MULTILINE)
    return re.sub(r"\b[A-Z_]{3,}\b", lambda found: words[found[0]], text)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]
