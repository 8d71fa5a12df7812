"""Operators that are written into the program: what each record goes through most is not called, but spelled out.

A ``Template`` is the text of an operator's process function with places for the names of the record,
and what its own names stand for in one task.  ``compile`` sets it into the generated function of the
sub-topology, where what it emits goes straight on to the lines of the nodes behind it; ``bind_alone``
makes a function of it where nothing is generated.  There is one text for both.

The text is indented by four blanks.  ``{k}``, ``{v}``, ``{t}`` and ``{h}`` are key, value, timestamp and
headers; ``$`` before a name makes it one of this node.  ``=> key, new, old, timestamp, headers`` emits
a table's change: ``(new, old, True)`` to those behind.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen

from streams.topology.operator import NodeContext, Process

_OWN = re.compile(r"\$(\w+)")
_EMIT = "=> "


@frozen
class Change:
    """What a template emits, in the names of the program."""

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

    def lines(self, number: int, k: str, v: str, t: str, h: str) -> Iterator[tuple[int, str | Change]]:
        """Yield (depth, line), with the names of node ``number`` and of the record."""
        for line in _OWN.sub(rf"\1_{number}", self.text).strip("\n").splitlines():
            written = line.format(k=k, v=v, t=t, h=h)
            text = written.lstrip()
            depth = (len(written) - len(text)) // 4
            if text.startswith(_EMIT):
                yield depth, Change(*(part.strip() for part in text.removeprefix(_EMIT).split(",")))
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
            if isinstance(line, Change):
                line = f"forward({line.key}, ({line.new}, {line.old}, True), {line.timestamp}, {line.headers})"
            lines.append("    " * (depth + 1) + line)
        exec("\n".join(lines), names)
        process: Process = names["process"]
        return process
