"""A trace: the recorded steps of records through nodes, and their causes.

A *step* is one record at one node. An *output* is a record that a step forwards, with its steps at the child nodes.
An *episode* is everything that results from one source record, punctuation or flush within one task. This module
imports only ``core`` and ``topology``.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Literal

from attrs import define, field, frozen

from streams.core.blocks.records import TaskId, Windowed
from streams.core.metrics import DropReason
from streams.topology import HeldRecord

#: Maximum number of sink steps that are kept for records that have not been read yet.
_MAX_WRITTEN = 100_000

#: What started a step: a record, a punctuation, or a flush of buffered results (at a commit or at the end).
Cause = Literal["record", "punctuation", "flush"]


@frozen
class Origin:
    """The topic, partition and offset of a source record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


@frozen
class StoreCall:
    """A call to a state store by a user's processor: the method, its first argument, and the value read or written."""

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
    """A record that a node forwarded during a step, and the resulting steps at its child nodes."""

    step: "Step"
    key: Any
    value: Any
    timestamp_ms: int
    children: "list[Step]" = field(factory=list)


@define(eq=False)
class Step:
    """The processing of one record at one node.

    ``stream_time_ms`` is the stream time of the task, and ``node_time_ms`` the stream time of the operator, or -1 if it
    has none; both include the timestamp of the record.
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
    drops: list[tuple[DropReason, str]] = field(factory=list)
    error: BaseException | None = None
    calls: list[StoreCall] = field(factory=list)
    #: Rows of the key in the tables of a join: (store, value and timestamp, or None without a row).
    rows: list[tuple[str, Any]] = field(factory=list)
    stream_time_ms: int = -1
    node_time_ms: int = -1
    #: For a record written to a topic that the application reads: the episode that it caused.
    read_by: "Episode | None" = None
    #: For a result of a call or a batch: the steps of the records from which it was computed.
    made_of: "list[Step]" = field(factory=list)
    #: For a result of a call or a batch, or a record whose call or batch failed: the held record at its end.
    ended: HeldRecord | None = None
    #: For a record that waited for a call or a batch: the outputs of that call or batch.
    results: list[Output] = field(factory=list)

    @property
    def task_id(self) -> TaskId:
        """The ID of the task that performed the step."""
        return self.episode.task_id


@define(eq=False)
class Episode:
    """Everything that results from one source record, punctuation or flush within one task."""

    task_id: TaskId
    #: The source record, or None for a punctuation or a flush.
    place: Origin | None
    steps: list[Step] = field(factory=list)
    #: The sink step of this application that wrote the source record, if it was traced.
    producer: Step | None = None
    is_kept: bool = False


@define(eq=False)
class Trace:
    """The recorded episodes: all that concern the traced key, and the most recent episodes of all keys.

    ``follows(key)`` returns whether a key is traced, and ``mentions(value)`` whether the value of a source record
    contains it. The episodes of at most ``limit`` source records of the key are kept, with all that they led to;
    ``is_full`` is set if there were more.
    """

    follows: Callable[[Any], bool]
    mentions: Callable[[Any], bool]
    limit: int = 10_000
    traced: list[Episode] = field(factory=list)
    recent: deque[Episode] = field(factory=lambda: deque(maxlen=20_000))
    is_full: bool = False
    #: Number of the kept source records, and of the kept flushes and punctuations, that no kept episode led to.
    records: int = 0
    flushes: int = 0
    #: The error that ended the run before all history was read, or None.
    failure: BaseException | None = None
    #: Source records that cannot be read, as (task, node, reason, example): their keys are unknown.
    unreadable: list[tuple[TaskId, str, DropReason, str]] = field(factory=list)
    #: Number of source records by topic and partition.
    read: dict[tuple[str, int], int] = field(factory=dict)
    #: Some keys of the records read, to suggest similar ones.
    keys: dict[str, None] = field(factory=dict)
    numbers: Iterator[int] = field(factory=count)
    #: Partition counts by topic; empty if all partitions are traced.
    partition_counts: Mapping[str, int] = field(factory=dict)
    #: (topic, timestamp, key) -> sink steps of records in topics that the application reads, but has not read yet.
    _written: dict[tuple[str, int, str], list[Step]] = field(factory=dict)
    #: Keys of ``_written`` in write order; above the maximum, the oldest sink steps of unfollowed keys are removed.
    _order: deque[tuple[str, int, str]] = field(factory=deque)

    def concerns(self, key: Any) -> bool:
        """Return whether a key is traced; for a windowed key, whether its inner key is traced."""
        return self.follows(key.key if type(key) is Windowed else key)

    def remember(self, count: int) -> None:
        """Set the maximum number of recent episodes of all keys."""
        self.recent = deque(self.recent, count)

    def keep(self, episode: Episode, *, is_result: bool = False) -> None:
        """Keep an episode that concerns the traced key, unless ``limit`` of its kind are kept already.

        The result of a kept episode, or the record that it wrote, does not count.
        """
        if episode.is_kept:
            return
        if not is_result and (episode.producer is None or not episode.producer.episode.is_kept):
            if (self.flushes if episode.place is None else self.records) >= self.limit:
                self.is_full = True
                return
            if episode.place is None:
                self.flushes += 1
            else:
                self.records += 1
        episode.is_kept = True
        self.traced.append(episode)

    @property
    def is_awaiting(self) -> bool:
        """Whether a kept episode wrote a record, to a topic that the application reads, which is still unread."""
        # Stream threads change both; a copy is made in one step.
        return any(step.episode.is_kept for steps in list(self._written.values()) for step in list(steps))

    def note_written(self, topic: str, step: Step) -> None:
        """Store the step of a sink that has written a record to a topic that the application reads."""
        at = (topic, step.timestamp_ms, repr(step.key))
        self._written.setdefault(at, []).append(step)
        self._order.append(at)
        if len(self._order) > _MAX_WRITTEN:
            oldest = self._order.popleft()
            steps = [sink_step for sink_step in self._written.pop(oldest, ()) if sink_step.episode.is_kept]
            if steps:
                self._written[oldest] = steps

    def take_written(self, topic: str, key: Any, value: Any, timestamp_ms: int) -> Step | None:
        """Remove and return the sink step that wrote a record which has now been read; None if it was not traced."""
        at = (topic, timestamp_ms, repr(key))
        steps = self._written.get(at)
        if not steps:
            return None
        shown = repr(value)
        writer = next((step for step in steps if repr(step.value) == shown), steps[0])
        steps.remove(writer)
        if not steps:
            self._written.pop(at, None)
        return writer

    def episodes(self) -> list[Episode]:
        """Return the episodes that concern the traced key, and the recent episodes of all keys."""
        by_id = {id(episode): episode for episode in (*self.traced, *self.recent)}
        return list(by_id.values())


def is_from(step: Step, held: HeldRecord) -> bool:
    """Return whether a record that a node holds may be the record of a step: both have the same source record."""
    place = step.episode.place
    origin = held.origin
    return place is None or origin is None or (place.partition, place.offset) == (origin.partition, origin.offset)
