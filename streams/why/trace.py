"""What a trace has recorded: the steps of records through nodes, and how they follow from each other.

A *step* is one record at one node. An *output* is a record that a step forwards; its steps at the children follow.
An *episode* is everything that follows from one source record, punctuation or flush within one task. Values only;
imports core.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Literal

from attrs import define, field, frozen

from streams.core.records import TaskId, Windowed

#: Number of records that are written and not read yet of which the steps are known.
_MAX_WRITTEN = 100_000

#: Why a step began: a record came, a timer fired, or held results were forwarded (by a commit or at the end).
Cause = Literal["record", "punctuation", "flush"]


@frozen
class Origin:
    """Topic, partition and offset of a source record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


@frozen
class StoreCall:
    """A call of a store by a user's processor: the method, its first argument, and the value read or written."""

    store: str
    method: str
    key: Any
    value: Any
    is_write: bool

    def __str__(self) -> str:
        what = f"{self.store}.{self.method}({self.key!r}"
        return f"{what}, {self.value!r})" if self.is_write else f"{what}) gave {self.value!r}"


@define(eq=False)
class Output:
    """A record that a step forwarded, and the steps of its children."""

    step: "Step"
    key: Any
    value: Any
    timestamp_ms: int
    children: "list[Step]" = field(factory=list)


@define(eq=False)
class Step:
    """One record at one node.

    ``stream_time_ms`` is the highest timestamp that the task has taken, ``node_time_ms`` that of the operator
    itself, or -1; both include the record.
    """

    number: int
    node: str
    key: Any
    value: Any
    timestamp_ms: int
    episode: "Episode"
    parent: Output | None
    cause: Cause = "record"
    outputs: list[Output] = field(factory=list)
    #: Reasons of drops, each with an example or "".
    drops: list[tuple[str, str]] = field(factory=list)
    error: BaseException | None = None
    calls: list[StoreCall] = field(factory=list)
    #: What the tables of a join held for the key: (store, value and timestamp, or None).
    rows: list[tuple[str, Any]] = field(factory=list)
    stream_time_ms: int = -1
    node_time_ms: int = -1
    #: For a record written to a topic that the application reads: what came of it.
    read_by: "Episode | None" = None

    @property
    def task_id(self) -> TaskId:
        """The task of the step."""
        return self.episode.task_id


@define(eq=False)
class Episode:
    """What follows from one source record, punctuation or flush within one task."""

    task_id: TaskId
    #: The source record, or None for a punctuation or a flush.
    place: Origin | None
    steps: list[Step] = field(factory=list)
    #: The sink step of this application that wrote the source record, if it was traced.
    producer: Step | None = None
    is_kept: bool = False


@define(eq=False)
class Trace:
    """The recorded episodes: those that concern the followed key, and the last ones of all keys.

    ``follows(key)`` returns whether a key is followed, and ``mentions(value)`` whether the value of a source record
    contains it. At most ``limit`` episodes of the followed key are kept; ``is_full`` says that there were more.
    """

    follows: Callable[[Any], bool]
    mentions: Callable[[Any], bool]
    limit: int = 10_000
    kept: list[Episode] = field(factory=list)
    recent: deque[Episode] = field(factory=lambda: deque(maxlen=20_000))
    is_full: bool = False
    #: The error that ended the run, if it is not the whole history.
    failure: BaseException | None = None
    #: Source records that cannot be read, as (task, node, reason, example): their keys are unknown.
    unreadable: list[tuple[TaskId, str, str, str]] = field(factory=list)
    #: Number of source records by topic and partition.
    read: dict[tuple[str, int], int] = field(factory=dict)
    #: Some keys that were seen, to suggest one.
    keys: dict[str, None] = field(factory=dict)
    numbers: Iterator[int] = field(factory=count)
    #: Records written to topics that the application reads and has not read yet: their sink steps.
    _written: dict[tuple[str, int, str], list[Step]] = field(factory=dict)
    #: Where they are, in their order; the first of other keys are forgotten if there are too many.
    _order: deque[tuple[str, int, str]] = field(factory=deque)

    def concerns(self, key: Any) -> bool:
        """Return whether a key, or the key of a window, is followed."""
        return self.follows(key.key if type(key) is Windowed else key)

    def remember(self, count: int) -> None:
        """Change the number of last episodes of all keys that are known."""
        self.recent = deque(self.recent, count)

    def keep(self, episode: Episode) -> None:
        """Keep an episode of the followed key."""
        if not episode.is_kept:
            if len(self.kept) >= self.limit:
                self.is_full = True
                return
            episode.is_kept = True
            self.kept.append(episode)

    def note_written(self, topic: str, step: Step) -> None:
        """Note a record that a sink has written to a topic that the application reads."""
        at = (topic, step.timestamp_ms, repr(step.key))
        self._written.setdefault(at, []).append(step)
        self._order.append(at)
        if len(self._order) > _MAX_WRITTEN:
            oldest = self._order.popleft()
            steps = [found for found in self._written.pop(oldest, ()) if found.episode.is_kept]
            if steps:
                self._written[oldest] = steps

    def take_written(self, topic: str, key: Any, value: Any, timestamp_ms: int) -> Step | None:
        """Return the sink step that wrote a record which is now read, None if it was not traced."""
        at = (topic, timestamp_ms, repr(key))
        steps = self._written.get(at)
        if not steps:
            return None
        shown = repr(value)
        found = next((step for step in steps if repr(step.value) == shown), steps[0])
        steps.remove(found)
        if not steps:
            self._written.pop(at, None)
        return found

    def episodes(self) -> list[Episode]:
        """Return all episodes that are known, kept and recent."""
        known = {id(episode): episode for episode in (*self.kept, *self.recent)}
        return list(known.values())
