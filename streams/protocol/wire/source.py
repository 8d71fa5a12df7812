"""Generated Python source of a function, with the message field that each line handles.

If the function fails, the number of the failed line determines the field, so that nothing needs to be tracked while
the function runs.  This module imports no other module of the package.
"""

import linecache
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

from attrs import define, field, frozen

_INDENT: Final = "    "


@frozen
class FieldPlace:
    """The message fields (as dotted names) that one line of generated code reads or writes, with their sizes."""

    names: Sequence[str]
    sizes: Sequence[int] = ()

    def at(self, room: int) -> tuple[str, int]:
        """Return the first field that does not fit into ``room`` bytes, and its byte offset from the first field."""
        behind = 0
        for name, size in zip(self.names, self.sizes, strict=False):
            if behind + size > room:
                return name, behind
            behind += size
        return self.names[0] if self.names else "", 0


@define(eq=False)
class FunctionSource:
    """The source lines of a generated function, and the objects that they refer to."""

    lines: list[str] = field(factory=list)
    places: dict[int, FieldPlace] = field(factory=dict)
    names: dict[str, Any] = field(factory=dict)
    depth: int = 0
    _count: int = 0

    def add(self, line: str, place: FieldPlace | None = None) -> None:
        """Append a line at the current indentation; ``place`` has the fields that the line handles."""
        self.lines.append(_INDENT * self.depth + line)
        if place is not None:
            self.places[len(self.lines)] = place

    @contextmanager
    def block(self, line: str, place: FieldPlace | None = None) -> Iterator[None]:
        """Append the first line of a code block; the lines added within the context are indented."""
        self.add(line, place)
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def unless(self, condition: str, line: str, *, is_needed: bool = True) -> Iterator[None]:
        """Append an ``if`` statement with one line, and an ``else`` for the lines added within the context.

        If ``is_needed`` is False, only the lines added within the context are appended.
        """
        if not is_needed:
            yield
            return
        with self.block(f"if {condition}:"):
            self.add(line)
        with self.block("else:"):
            yield

    def fresh(self, letter: str) -> str:
        """Return an unused variable name."""
        self._count += 1
        return f"{letter}{self._count}"

    def constant(self, value: Any, letter: str = "C") -> str:
        """Bind an object to a new name in the generated code, and return the name."""
        name = self.fresh(letter)
        self.names[name] = value
        return name

    def compiled(self, function: str, file: str) -> Callable[..., Any]:
        """Compile the source, and return the function with this name; ``file`` is the file name in tracebacks."""
        text = "\n".join(self.lines) + "\n"
        namespace = dict(self.names)
        # Without a modification time linecache keeps the lines, so that tracebacks show them.
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), namespace)
        compiled = namespace[function]
        assert callable(compiled)
        return compiled  # type: ignore[no-any-return]

    def place_of(self, traceback: TracebackType | None) -> FieldPlace:
        """Return the fields handled by the generated line that raised an error, given the traceback of the error."""
        # The first entry is the frame that caught the error, which is this source's function.
        return self.places.get(traceback.tb_lineno if traceback is not None else -1, FieldPlace(()))
