"""``Story``, the explanation of an output or of its absence, which can be shown as text and as JSON."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from attrs import define, evolve, field, frozen

from streams.core.blocks.records import TaskId, Windowed
from streams.core.event_time.time_texts import time_text
from streams.topology import Graph, Marks, to_svg
from streams.why.question import shown
from streams.why.trace import Step


@frozen(repr=False)
class ShownText:
    """A key or value that was traced on another instance, represented by its ``repr`` there."""

    text: str

    def __repr__(self) -> str:
        return self.text


class Mark(NamedTuple):
    """The topic, timestamp and ``repr`` of the key, which identify a record in a topic of the application."""

    topic: str
    timestamp_ms: int
    key: str


@frozen
class Fact:
    """A source record, or the result of a node, with its causes.

    ``topic``, ``partition`` and ``offset`` locate a source record; they are None for the result of a node. ``via``
    lists the nodes and topics between this record and the record that it led to.
    """

    text: str
    node: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    key: Any = None
    value: Any = None
    timestamp_ms: int | None = None
    via: tuple[str, ...] = ()
    causes: "tuple[Fact, ...]" = ()
    #: Number of causes that are left out.
    more: int = 0
    #: Whether the bounds of the key's window are numbers of records, not times.
    is_counted: bool = False

    def mapped(self, change: "Callable[[Fact], Fact]") -> "Fact":
        """Return the fact with ``change`` applied to its causes, and then to itself."""
        return change(evolve(self, causes=tuple(cause.mapped(change) for cause in self.causes)))

    def as_text(self) -> "Fact":
        """Return the fact with its key and value as text, so that it can be sent to another instance."""
        return evolve(self, key=repr(self.key), value=shown(self.value))

    def as_shown(self) -> "Fact":
        """Convert a result of ``as_text`` to a fact whose key and value have the ``repr`` of the original objects."""
        return evolve(self, key=ShownText(self.key), value=ShownText(self.value))

    def as_json(self) -> dict[str, Any]:
        """Return the fact as JSON values, with keys and values as text."""
        content: dict[str, Any] = {"text": self.text}
        for name in ("node", "topic", "partition", "offset", "timestamp_ms"):
            if getattr(self, name) is not None:
                content[name] = getattr(self, name)
        if self.timestamp_ms is not None:
            content |= {"key": shown(self.key), "value": shown(self.value)}
        if self.via:
            content["via"] = list(self.via)
        if self.causes:
            content["causes"] = [cause.as_json() for cause in self.causes]
        if self.more:
            content["more"] = self.more
        return content

    def lines(self, depth: int) -> Iterator[str]:
        """Yield the fact and its causes as lines of text, indented by ``depth``."""
        via = f", via {', '.join(self.via)}" if self.via else ""
        yield f"{'  ' * depth}{self.text}{via}"
        for cause in self.causes:
            yield from cause.lines(depth + 1)
        if self.more:
            yield f"{'  ' * (depth + 1)}... and {self.more:,} earlier ones"


@frozen
class End:
    """The node where a record ended, and the reason.

    ``reason`` is one of ``REASONS``; ``numbers`` has the numbers in the text: milliseconds, offsets or counts.
    """

    reason: str
    node: str
    text: str
    numbers: dict[str, int] = field(factory=dict)
    record: Fact | None = None
    #: Whether the record is a buffered update of a row (suppression or record cache), which a later update replaces.
    is_row: bool = False
    #: For a record that is not read yet: its mark.
    mark: Mark | None = None
    #: For a record without partner: its task, and the nodes whose records could have been partners.
    task: TaskId | None = None
    partners: tuple[str, ...] = ()
    #: A clause that names the partitioner that the record was written with, or "".
    partitioner: str = ""

    def mapped(self, change: Callable[[Fact], Fact]) -> "End":
        """Return the end with ``change`` applied to the facts of its record."""
        return self if self.record is None else evolve(self, record=self.record.mapped(change))

    def as_json(self) -> dict[str, Any]:
        """Return the end as JSON values."""
        content: dict[str, Any] = {"reason": self.reason, "node": self.node, "text": self.text, "numbers": self.numbers}
        if self.record is not None:
            content["record"] = self.record.as_json()
        return content


#: Reasons for which a record leads to no output.
REASONS = (
    "filtered",
    "no partner",
    "late",
    "null key",
    "duplicate",
    "waiting for input",
    "waiting for task",
    "not waited for",
    "window open",
    "suppressed",
    "in record cache",
    "call in flight",
    "waiting for call",
    "in batch",
    "another partition",
    "dead letter",
    "failed",
    "unreadable",
    "tombstone",
    "not yet read",
    "forwarded nothing",
    "dropped",
    "another key",
    "no such key",
    "not at that time",
    "task moved",
    "not asked",
    "limit",
)


@frozen(repr=False, order=False)
class Story(str):
    """The explanation why there is, or is not, an output: the answer to a ``Question``.

    It is a text, since pytest shows no other message of an assertion whole; its parts are fields. ``outputs`` has the
    records that were found, with their causes; ``ends`` lists the nodes where the other records of the key ended.
    ``notes`` concern the application as a whole.
    """

    heading: str
    outputs: tuple[Fact, ...] = ()
    ends: tuple[End, ...] = ()
    notes: tuple[End, ...] = ()
    limit: int = 3

    def __new__(
        cls,
        heading: str,
        outputs: tuple[Fact, ...] = (),
        ends: tuple[End, ...] = (),
        notes: tuple[End, ...] = (),
        limit: int = 3,
    ) -> "Story":
        return super().__new__(cls, "\n".join(_lines(heading, outputs, ends, notes, limit)))

    def __repr__(self) -> str:
        return str(self)

    def mapped(self, change: Callable[[Fact], Fact]) -> "Story":
        """Return the story with ``change`` applied to all facts."""
        return evolve(
            self,
            outputs=tuple(fact.mapped(change) for fact in self.outputs),
            ends=tuple(end.mapped(change) for end in self.ends),
            notes=tuple(note.mapped(change) for note in self.notes),
        )

    @property
    def reasons(self) -> tuple[str, ...]:
        """The distinct reasons that ``ends`` and ``notes`` contain, in order."""
        return tuple(dict.fromkeys(end.reason for end in (*self.ends, *self.notes)))

    @property
    def text(self) -> str:
        """The story as lines of text, for a terminal."""
        return str(self)

    def to_svg(self, *, has_style: bool = True) -> str:
        """Return the story as a drawing: from source records to results; those that ended are red, with the reason.

        Of the records that ended at one node for one reason, it has as many as the text. Without ``has_style``, the
        drawing has classes only, for a page with styles of its own.
        """
        picture = _Picture()
        for fact in self.outputs:
            picture.add(fact)
        for (node, reason), ends in _grouped(self.ends).items():
            for end in ends[: self.limit]:
                number = picture.box("processor", node, end.text, reason)
                picture.marks[number] = "gone"
                if end.record is not None:
                    picture.graph.edges[picture.add(end.record), number] = ()
            if len(ends) > self.limit:
                more = f"and {len(ends) - self.limit:,} more records"
                picture.marks[picture.box("processor", node, more, more)] = "gone"
        picture.graph.arrange()
        return to_svg(picture.graph, has_style=has_style, marks=picture.marks, notes=picture.notes)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def as_json(self) -> dict[str, Any]:
        """Return the story as JSON values."""
        return {
            "title": self.heading,
            "reasons": list(self.reasons),
            "outputs": [fact.as_json() for fact in self.outputs],
            "ends": [end.as_json() for end in self.ends],
            "notes": [note.as_json() for note in self.notes],
            "text": self.text,
        }


@define
class _Picture:
    """The graph of a story: a box for each record, however many others it led to."""

    graph: Graph = field(factory=Graph)
    notes: list[str] = field(factory=list)
    marks: Marks = field(factory=dict)
    _numbers: dict[tuple[str, str], int] = field(factory=dict)

    def add(self, fact: Fact) -> int:
        place = fact.node or f"{fact.topic}-{fact.partition} at {fact.offset}"
        number = self._numbers.get((place, fact.text))
        if number is None:
            kind = "topic" if fact.node is None else "processor"
            text = f"{shown(fact.key)}: {shown(fact.value)}"
            number = self._numbers[place, fact.text] = self.box(kind, place, "\n".join(fact.lines(0)), text)
            for cause in fact.causes:
                self.graph.edges[self.add(cause), number] = ()
        return number

    def box(self, kind: str, name: str, title: str, note: str) -> int:
        self.notes.append(note)
        return self.graph.add(kind, name, title)


def _grouped(ends: Iterable[End]) -> dict[tuple[str, str], list[End]]:
    groups: dict[tuple[str, str], list[End]] = {}
    for end in ends:
        groups.setdefault((end.node, end.reason), []).append(end)
    return groups


def _lines(
    heading: str, outputs: tuple[Fact, ...], all_ends: tuple[End, ...], notes: tuple[End, ...], limit: int
) -> Iterator[str]:
    yield heading
    for fact in outputs:
        yield from fact.lines(1)
    groups = _grouped(all_ends)
    if groups:
        yield "where other records of its window ended:" if outputs else "where records of the key ended:"
    for (node, reason), ends in groups.items():
        many = f" ({len(ends):,} records)" if len(ends) > 1 else ""
        yield f"  {node}{many}: {reason}"
        for end in ends[:limit]:
            if end.record is not None:
                yield from end.record.lines(2)
            yield f"      -> {end.text}"
        if len(ends) > limit:
            yield f"    ... and {len(ends) - limit:,} more"
    for note in notes:
        yield f"{note.reason}: {note.text}"


def record_text(key: Any, value: Any, timestamp_ms: int) -> str:
    """Return a record as text for display."""
    return f"{shown(key)}: {shown(value)} at {time_text(timestamp_ms)}"


def step_text(step: Step, *, is_counted: bool) -> str:
    """Return the record of a step as text for display.

    With ``is_counted``, the bounds of its window are numbers of records, not times.
    """
    key = step.key
    value = change_value(step.value)
    if type(key) is Windowed:
        start, end = key.window
        window = f"its record {start} up to {end}" if is_counted else f"{time_text(start)} to {time_text(end)}"
        return f"{shown(key.key)} in {'the window from ' if is_counted else 'window '}{window}: {shown(value)}"
    return record_text(key, value, step.timestamp_ms)


def change_value(value: Any) -> Any:
    """Return the new value of a table change; any other value is returned unchanged."""
    is_change = type(value) is tuple and len(value) == 3 and type(value[2]) is bool
    return value[0] if is_change else value
