"""The flight recorder: the order in which a task has processed its inputs, written with each commit.

The results of a task are determined by its state, its inputs and a few choices that depend on timing: which input is
next, the wall-clock time, when punctuations fire, and when the task commits.  A recorder records these choices.  A
*frame* has the choices up to one commit, and the offsets of the outputs and changes of the commit.  With exactly-once,
frames are part of the transaction.  Otherwise they are sent before the offsets are committed: the frame of a failed
commit is recognized, since the task is then opened at an earlier position.  Imports clients.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from attrs import astuple, define, evolve, field, frozen

from streams.clients import Delivery
from streams.core.errors import ForeignFormatError
from streams.core.records import Block, TaskId, TopicPartition

#: Format version of frames.
_VERSION = 1
#: Compression level: frames are small, and the task is blocked while they are compressed.
_LEVEL = 1
_ONE, _MIXED, _PUNCTUATED, _FLUSHED = range(4)
#: Number of inputs up to which an input index is encoded as one byte.
_BYTE = 256
#: The configuration of the flight recorder's topic without its retention; frames are deleted by age.
_CONFIG = {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}

#: Numbers by partition: positions or base offsets.
Positions = Mapping[TopicPartition, int]


@frozen
class Choice:
    """One choice of a task, with the wall-clock time in epoch milliseconds.

    "took" means that ``count`` records of input ``index`` were processed; "punctuated" that wall-clock punctuations
    fired; "flushed" that the record cache was flushed, as the first step of a commit.
    """

    kind: Literal["took", "punctuated", "flushed"]
    now_ms: int
    index: int = 0
    count: int = 0


@frozen
class Written:
    """Records that a commit has written to a partition: the offset of the first one, and the record count."""

    partition: TopicPartition
    base: int
    count: int


@frozen
class Opening:
    """The state with which a task was opened.

    ``changelogs`` has the first changelog offset that is not in the state, by store; ``checkpoint`` is JSON data.
    """

    now_ms: int
    start: Positions
    checkpoint: Mapping[str, Any]
    changelogs: Mapping[str, int]


@frozen
class Frame:
    """The recording of one commit of a task.

    ``run`` identifies the opening of the task, and ``number`` counts its frames from 0.  ``inputs`` are in the order of
    the indices in ``steps``.  ``end`` (the positions), ``checkpoint`` and ``changelogs`` are those of the commit.
    ``cache_bytes`` is the size of the task's record cache, 0 without one.
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
    changes: Mapping[str, Written]
    cache_bytes: int
    #: None unless this is the first frame since the task was opened.
    opening: Opening | None
    #: The time to which that of the first step is relative, and the encoded steps.
    base_ms: int
    order: bytes = field(repr=False)

    @property
    def steps(self) -> Iterator[Choice]:
        """The choices of the task, in order."""
        return _steps(self.order, self.base_ms, len(self.inputs))

    @property
    def count(self) -> int:
        """The number of records that the task has processed."""
        return sum(step.count for step in self.steps)

    def encoded(self) -> bytes:
        """Return the frame as a record value."""
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
            "outputs": [astuple(row, recurse=False) for row in self.outputs],
            "changes": {name: astuple(row, recurse=False) for name, row in self.changes.items()},
            "cache_bytes": self.cache_bytes,
            "base_ms": self.base_ms,
            "opening": opening
            and [opening.now_ms, _rows(opening.start), dict(opening.checkpoint), dict(opening.changelogs)],
        }
        text = json.dumps(head, separators=(",", ":")).encode()
        return zlib.compress(b"%d\n" % len(text) + text + self.order, _LEVEL)

    @classmethod
    def decoded(cls, data: bytes) -> "Frame":
        """Return the frame from a record value.

        Raises:
            ForeignFormatError: the value is not a frame, or has another format version.
        """
        try:
            raw = zlib.decompress(data)
            start = raw.index(b"\n") + 1
            stop = start + int(raw[:start])
            head = json.loads(raw[start:stop])
            version = head["v"]
        except (zlib.error, ValueError, LookupError, TypeError) as error:
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
            {name: _written(row) for name, row in head["changes"].items()},
            head["cache_bytes"],
            opening and Opening(opening[0], _positions(opening[1]), opening[2], opening[3]),
            head["base_ms"],
            raw[stop:],
        )

    def block(self) -> Block:
        """Return the frame as a record for the topic of the recorder, with the task as its key."""
        return Block([str(self.task_id).encode()], [self.encoded()], [self.now_ms], None, range(1))


@define(eq=False)
class OrderRecorder:
    """Records the choices of one task between two commits.

    ``start`` of the opening is complete before the task processes the first record.
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
    #: The time to which that of the first step of the current frame is relative, and the time of the last step.
    _base_ms: int = field(init=False)
    _last_ms: int = field(init=False)
    _order: bytearray = field(factory=bytearray)

    def __attrs_post_init__(self) -> None:
        self.now_ms = self._base_ms = self._last_ms = self.opening.now_ms

    def took(self, index: int, count: int) -> None:
        """Record a run of one input."""
        self._step(_ONE)
        _put(self._order, index)
        _put(self._order, count)

    def took_mixed(self, indices: Sequence[int], width: int) -> None:
        """Record a run of several inputs, by the input index of each record; the task has ``width`` inputs."""
        self._step(_MIXED)
        _put(self._order, len(indices))
        if width <= _BYTE:
            self._order += bytes(indices)
        else:
            for index in indices:
                _put(self._order, index)

    def punctuated(self, now_ms: int) -> None:
        """Record that wall-clock punctuations fired."""
        self.now_ms = now_ms
        self._step(_PUNCTUATED)

    def flushed(self, now_ms: int) -> None:
        """Record a flush of the record cache."""
        self.now_ms = now_ms
        self._step(_FLUSHED)

    def frame(
        self,
        inputs: Sequence[TopicPartition],
        end: Positions,
        checkpoint: Mapping[str, Any],
        changelogs: Mapping[str, int],
        changes: Mapping[str, Written],
    ) -> Frame:
        """Return the frame of a commit, whose outputs must be acknowledged, and start the next frame."""
        made = Frame(
            self.task_id,
            self.run,
            self.number,
            self.now_ms,
            inputs,
            end,
            checkpoint,
            changelogs,
            _merged((partition, delivery.base_offset(), count) for partition, delivery, count in self.sent),
            changes,
            self.cache_bytes,
            None if self.number else self.opening,
            self._base_ms,
            bytes(self._order),
        )
        self.number += 1
        self._base_ms = self._last_ms
        self.sent.clear()
        self._order.clear()
        return made

    def _step(self, kind: int) -> None:
        self._order.append(kind)
        # Zigzag encoding, because the wall clock may be set back.
        moved = self.now_ms - self._last_ms
        self._last_ms = self.now_ms
        _put(self._order, moved << 1 if moved >= 0 else (-moved << 1) - 1)


def recorder_topic(application_id: str) -> str:
    """Return the topic of an application's frames; it has one partition."""
    return f"{application_id}-flight-recorder"


def recorder_config(retention_ms: int) -> dict[str, str]:
    """Return the configuration of the flight recorder's topic."""
    return _CONFIG | {"retention.ms": str(retention_ms)}


def _merged(rows: Iterable[tuple[TopicPartition, int, int]]) -> list[Written]:
    """Merge adjacent ranges of offsets, and leave out blocks that were not accepted."""
    result: dict[TopicPartition, list[Written]] = {}
    for partition, base, count in rows:
        found = result.setdefault(partition, [])
        if found and found[-1].base + found[-1].count == base:
            found[-1] = evolve(found[-1], count=found[-1].count + count)
        elif base >= 0:
            found.append(Written(partition, base, count))
    return [row for found in result.values() for row in found]


def _put(into: bytearray, number: int) -> None:
    while number > 0x7F:
        into.append(number & 0x7F | 0x80)
        number >>= 7
    into.append(number)


def _get(data: bytes, place: int) -> tuple[int, int]:
    """Return the varint at an index, and the index after it."""
    number = shift = 0
    while data[place] & 0x80:
        number |= (data[place] & 0x7F) << shift
        shift += 7
        place += 1
    return number | data[place] << shift, place + 1


def _steps(order: bytes, now_ms: int, width: int) -> Iterator[Choice]:
    place = 0
    while place < len(order):
        kind = order[place]
        moved, place = _get(order, place + 1)
        now_ms += moved >> 1 if not moved & 1 else -(moved + 1 >> 1)
        if kind == _ONE:
            index, place = _get(order, place)
            count, place = _get(order, place)
            yield Choice("took", now_ms, index, count)
        elif kind == _MIXED:
            count, place = _get(order, place)
            indices: list[int] = []
            if width <= _BYTE:
                indices += order[place : place + count]
                place += count
            else:
                for _ in range(count):
                    index, place = _get(order, place)
                    indices.append(index)
            for index, group in groupby(indices):
                yield Choice("took", now_ms, index, sum(1 for _ in group))
        else:
            yield Choice("punctuated" if kind == _PUNCTUATED else "flushed", now_ms)


def _rows(positions: Positions) -> list[tuple[str, int, int]]:
    return [(*partition, number) for partition, number in positions.items()]


def _positions(rows: Iterable[tuple[str, int, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, number): position for topic, number, position in rows}


def _written(row: Any) -> Written:
    (topic, number), base, count = row
    return Written(TopicPartition(topic, number), base, count)
