"""The flight recorder: the order in which a task has processed its inputs, written with each commit.

The results of a task are determined by its state, its inputs and a few choices that depend on timing: which input is
next, the wall-clock time, when punctuations fire, and when the task commits.  The flight recorder records these
choices.  A *frame* contains the choices since the previous commit, and the offsets of the records that the commit wrote
to output topics and changelogs.  With exactly-once, frames are written in the transaction of the commit.  With
at-least-once, they are sent before the offsets are committed.  The frame of a failed commit can be recognized, since
the task is then opened at an earlier position.  The module imports only ``clients`` and ``core``.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec
from attrs import define, evolve, field, frozen

from streams.clients import Delivery
from streams.core.blocks.records import Block, TaskId, TopicPartition
from streams.core.errors import ForeignFormatError
from streams.core.serdes.varints import read_uvarint, read_varint, uvarint, varint

#: Format version of frames.
_VERSION = 2
#: Compression level: frames are small, and the task is blocked while they are compressed.
_LEVEL = 1
_ONE, _MIXED, _PUNCTUATED, _FLUSHED, _IDLED = range(5)
#: Number of inputs up to which an input index is encoded as one byte.
_BYTE = 256
#: The configuration of the flight recorder's topic without its retention; frames are deleted by age.
_CONFIG = {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}

#: Numbers by partition: positions or base offsets.
Positions = Mapping[TopicPartition, int]


@frozen
class Choice:
    """A timing-dependent choice of a task, with its wall-clock time in epoch milliseconds.

    "took" means that ``count`` records of input ``index`` were processed; "punctuated" that wall-clock punctuations
    fired; "flushed" that the record cache was flushed, as the first step of a commit; "idled" that the operators of the
    idle group ``index`` were advanced.
    """

    kind: Literal["took", "punctuated", "flushed", "idled"]
    now_ms: int
    index: int = 0
    count: int = 0


@frozen
class Written:
    """Records that a commit has written to a partition: the offset of the first record, and the number of records."""

    partition: TopicPartition
    base: int
    count: int

    @property
    def row(self) -> tuple[TopicPartition, int, int]:
        """The fields as JSON data."""
        return self.partition, self.base, self.count


@frozen
class Opening:
    """The state with which a task was opened.

    ``changelogs`` contains, by store, the first changelog offset that is not in the state; ``checkpoint`` is JSON data.
    """

    now_ms: int
    start: Positions
    checkpoint: Mapping[str, Any]
    changelogs: Mapping[str, int]


@frozen
class Frame:
    """The recording of one commit of a task.

    ``run`` identifies the opening of the task, and ``number`` counts its frames from 0.  ``inputs`` are in the order of
    the indices in ``steps``.  ``end`` (the positions), ``checkpoint`` and ``changelogs`` belong to the commit.
    ``outputs`` and ``changes`` (by store) were written since the previous frame, also by a commit that was retried.
    ``cache_bytes`` is the size of the task's record cache, or 0 without a cache.
    """

    task_id: TaskId
    run: str
    number: int
    now_ms: int
    inputs: Sequence[TopicPartition]
    end: Positions
    checkpoint: Mapping[str, Any]
    changelogs: Mapping[str, int]
    outputs: Sequence[Written]
    changes: Mapping[str, Sequence[Written]]
    cache_bytes: int
    #: None unless this is the first frame since the task was opened.
    opening: Opening | None
    #: The time to which that of the first step is relative, and the encoded steps.
    base_ms: int
    order: bytes = field(repr=False)

    @property
    def steps(self) -> Iterator[Choice]:
        """Yield the choices of the task, in order."""
        return _steps(self.order, self.base_ms, len(self.inputs))

    @property
    def count(self) -> int:
        """The number of records that the task processed in this frame."""
        return sum(step.count for step in self.steps)

    def encoded(self) -> bytes:
        """Return this frame, encoded as a record value."""
        opening = self.opening
        head = {
            "v": _VERSION,
            "task": list(self.task_id),
            "run": self.run,
            "number": self.number,
            "now_ms": self.now_ms,
            "inputs": self.inputs,
            "end": _rows(self.end),
            "checkpoint": self.checkpoint,
            "changelogs": self.changelogs,
            "outputs": [row.row for row in self.outputs],
            "changes": {name: [row.row for row in rows] for name, rows in self.changes.items()},
            "cache_bytes": self.cache_bytes,
            "base_ms": self.base_ms,
            "opening": opening
            and [opening.now_ms, _rows(opening.start), dict(opening.checkpoint), dict(opening.changelogs)],
        }
        text = msgspec.json.encode(head)
        return zlib.compress(b"%d\n" % len(text) + text + self.order, _LEVEL)

    @classmethod
    def decoded(cls, data: bytes) -> "Frame":
        """Decode a record value to a frame.

        Raises:
            ForeignFormatError: the value is not a frame, or has an unsupported format version.
        """
        try:
            raw = zlib.decompress(data)
            start = raw.index(b"\n") + 1
            stop = start + int(raw[:start])
            head = msgspec.json.decode(raw[start:stop])
            version = head["v"]
        except (zlib.error, ValueError, LookupError, TypeError, msgspec.DecodeError) as error:
            raise ForeignFormatError(f"not a frame of a flight recorder: {error}", what="frame") from error
        if version != _VERSION:
            raise ForeignFormatError(
                f"a flight recorder's frame of version {version}; this release reads version {_VERSION}: "
                "use the release that has written it",
                what="frame",
            )
        opening = head["opening"]
        return cls(
            TaskId(*head["task"]),
            head["run"],
            head["number"],
            head["now_ms"],
            [TopicPartition(*row) for row in head["inputs"]],
            _positions(head["end"]),
            head["checkpoint"],
            head["changelogs"],
            [_written(row) for row in head["outputs"]],
            {name: [_written(row) for row in rows] for name, rows in head["changes"].items()},
            head["cache_bytes"],
            opening and Opening(opening[0], _positions(opening[1]), opening[2], opening[3]),
            head["base_ms"],
            raw[stop:],
        )


@define(eq=False)
class OrderRecorder:
    """Records the choices of one task between two commits.

    The ``start`` positions of the task's ``Opening`` must be complete before the task processes the first record.
    """

    task_id: TaskId
    run: str
    opening: Opening
    cache_bytes: int
    #: Wall-clock time of the current call of the task.
    now_ms: int = 0
    #: Number of frames so far.
    number: int = 0
    #: Outputs sent since the last frame: partition, delivery and number of records.
    sent: list[tuple[TopicPartition, Delivery, int]] = field(factory=list)
    #: Changelog records sent since the last frame, by store.
    changed: dict[str, list[tuple[TopicPartition, Delivery, int]]] = field(factory=dict)
    #: The time to which that of the first step of the current frame is relative, and the time of the last step.
    _base_ms: int = field(init=False)
    _last_ms: int = field(init=False)
    _order: bytearray = field(factory=bytearray)
    #: Idle groups, with the time of their last advance, if it had no effect and is not yet part of the order.
    _idled: dict[int, int] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.now_ms = self._base_ms = self._last_ms = self.opening.now_ms

    def took(self, index: int, count: int) -> None:
        """Record that the task processed ``count`` records from the input ``index``."""
        self._step(_ONE)
        self._order += uvarint(index)
        self._order += uvarint(count)

    def took_mixed(self, indices: Sequence[int], width: int) -> None:
        """Record that the task processed records from several inputs, given the input index of each record.

        ``width`` is the number of inputs of the task.
        """
        self._step(_MIXED)
        self._order += uvarint(len(indices))
        if width <= _BYTE:
            self._order += bytes(indices)
        else:
            for index in indices:
                self._order += uvarint(index)

    def punctuated(self, now_ms: int) -> None:
        """Record that wall-clock punctuations fired."""
        self.now_ms = now_ms
        self._step(_PUNCTUATED)

    def idled(self, now_ms: int, index: int, *, is_kept: bool) -> None:
        """Record that an idle group was advanced; ``index`` is the number of the group in the task.

        Of consecutive calls with ``is_kept`` False, which are advances without effect, only the last is recorded.
        """
        self._idled[index] = now_ms
        if is_kept:
            self._keep_idled()

    def flushed(self, now_ms: int) -> None:
        """Record that the record cache was flushed."""
        self.now_ms = now_ms
        self._step(_FLUSHED)

    def frame(
        self,
        inputs: Sequence[TopicPartition],
        end: Positions,
        checkpoint: Mapping[str, Any],
        changelogs: Mapping[str, int],
    ) -> Frame:
        """Return the frame of a commit and start the next one; the records of the commit must be acknowledged."""
        self._keep_idled()
        made = Frame(
            self.task_id,
            self.run,
            self.number,
            self.now_ms,
            inputs,
            end,
            checkpoint,
            changelogs,
            _merged(self.sent),
            {name: _merged(sent) for name, sent in self.changed.items()},
            self.cache_bytes,
            None if self.number else self.opening,
            self._base_ms,
            bytes(self._order),
        )
        self.number += 1
        self._base_ms = self._last_ms
        self.sent.clear()
        self.changed.clear()
        self._order.clear()
        return made

    def _keep_idled(self) -> None:
        now_ms = self.now_ms
        while self._idled:
            index = next(iter(self._idled))
            self.now_ms = self._idled.pop(index)
            self._step(_IDLED)
            self._order += uvarint(index)
        self.now_ms = now_ms

    def _step(self, kind: int) -> None:
        if kind != _IDLED:
            self._keep_idled()
        self._order.append(kind)
        # A signed number, because the wall clock may be set back.
        moved = self.now_ms - self._last_ms
        self._last_ms = self.now_ms
        self._order += varint(moved)


def block_of(frames: Sequence[Frame]) -> Block:
    """Return frames as records for the flight recorder's topic: the task is the key, the frame the value."""
    keys: list[bytes | None] = [str(frame.task_id).encode() for frame in frames]
    values: list[bytes | None] = [frame.encoded() for frame in frames]
    return Block(keys, values, [frame.now_ms for frame in frames], None, range(len(frames)))


def recorder_topic(application_id: str) -> str:
    """Return the name of the topic to which an application's flight recorder writes; it has one partition."""
    return f"{application_id}-flight-recorder"


def recorder_config(retention_ms: int) -> dict[str, str]:
    """Return the configuration of the flight recorder's topic, whose records are kept for ``retention_ms``."""
    return _CONFIG | {"retention.ms": str(retention_ms)}


def _merged(sent: Iterable[tuple[TopicPartition, Delivery, int]]) -> list[Written]:
    """Return the offset ranges of the sent blocks of records that were not rejected; adjacent ranges are merged."""
    result: dict[TopicPartition, list[Written]] = {}
    for partition, delivery, count in sent:
        base = delivery.base_offset()
        found = result.setdefault(partition, [])
        if found and found[-1].base + found[-1].count == base:
            found[-1] = evolve(found[-1], count=found[-1].count + count)
        elif base >= 0:
            found.append(Written(partition, base, count))
    return [row for found in result.values() for row in found]


def _steps(order: bytes, now_ms: int, width: int) -> Iterator[Choice]:
    place = 0
    while place < len(order):
        kind = order[place]
        moved, place = read_varint(order, place + 1)
        now_ms += moved
        if kind == _ONE:
            index, place = read_uvarint(order, place)
            count, place = read_uvarint(order, place)
            yield Choice("took", now_ms, index, count)
        elif kind == _MIXED:
            count, place = read_uvarint(order, place)
            indices: list[int] = []
            if width <= _BYTE:
                indices += order[place : place + count]
                place += count
            else:
                for _ in range(count):
                    index, place = read_uvarint(order, place)
                    indices.append(index)
            for index, group in groupby(indices):
                yield Choice("took", now_ms, index, sum(1 for _ in group))
        elif kind == _IDLED:
            index, place = read_uvarint(order, place)
            yield Choice("idled", now_ms, index)
        else:
            yield Choice("punctuated" if kind == _PUNCTUATED else "flushed", now_ms)


def _rows(positions: Positions) -> list[tuple[str, int, int]]:
    return [(*partition, number) for partition, number in positions.items()]


def _positions(rows: Iterable[tuple[str, int, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, number): position for topic, number, position in rows}


def _written(row: Any) -> Written:
    (topic, number), base, count = row
    return Written(TopicPartition(topic, number), base, count)
