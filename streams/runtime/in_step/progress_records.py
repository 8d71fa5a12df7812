"""The progress topic of an application, to which each thread writes how far its upstream tasks are.

A record has what has changed since the last record of its thread, so a reader that begins at the end of the topic asks
for the rest: by a record with the number of its question, which each thread answers with all its marks.  Nothing needs
to be kept: the topic has one partition, and records are deleted by age.  The module imports only ``clients`` and
``core`` from outside ``runtime``.
"""

from collections.abc import Mapping
from typing import Final, NoReturn

from attrs import field, frozen

from streams.clients import progress_topic
from streams.core.blocks.marks import Format
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import ForeignFormatError
from streams.core.serdes.varints import read_varint, varint
from streams.runtime.tasks.progress import NO_GENERATION, MarkState, TaskMark

#: Records are of use only to those that read them at once, so an hour is long.
PROGRESS_CONFIG: Final = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "3600000",
}
_FORMAT: Final = Format("progress of tasks", "P", 1)


def progress_partition(application_id: str) -> TopicPartition:
    """Return the only partition of an application's progress topic."""
    return TopicPartition(progress_topic(application_id), 0)


@frozen
class ProgressRecord:
    """What a thread says, or the question of an instance.

    ``member`` is the client ID of the writer, ``generation`` that of its group.  ``marks`` are by lane.  ``question``
    is the number of a question to all threads of other instances for all their marks, 0 if there is none.
    """

    member: str
    generation: int = NO_GENERATION
    marks: Mapping[int, TaskMark] = field(factory=dict)
    question: int = 0

    def encode(self) -> bytes:
        member = self.member.encode()
        parts = [_FORMAT.mark, varint(len(member)), member, varint(self.generation), varint(self.question)]
        last_lane = last_ms = last_active = 0
        # Differences of neighbours are small: the partitions of a sub-topology follow each other, and are near in time.
        for lane, mark in sorted(self.marks.items()):
            parts += [varint(lane - last_lane), varint(mark.place_ms - last_ms), varint(mark.state)]
            if mark.state.is_awaited:
                parts.append(varint(mark.active - last_active))
                last_active = mark.active
            last_lane = lane
            last_ms = mark.place_ms
        return b"".join(parts)

    def block(self, now_ms: int) -> Block:
        """Return the record for the progress topic; ``now_ms`` is its timestamp, by which it is deleted."""
        return Block([None], [self.encode()], [now_ms], offsets=range(1))

    @classmethod
    def decode(cls, data: bytes | None, partition: TopicPartition, offset: int) -> "ProgressRecord":
        """Return the record with a value that was read at an offset.

        Raises:
            ForeignFormatError: the value is not in this format, or in that of another release.
        """
        try:
            _FORMAT.check(data or b"")
            return cls._decoded(data or b"", len(_FORMAT.mark))
        except (ForeignFormatError, ValueError, IndexError) as error:
            _refuse(partition, offset, error)

    @classmethod
    def _decoded(cls, data: bytes, place: int) -> "ProgressRecord":
        size, place = read_varint(data, place)
        member = data[place : place + size].decode()
        generation, place = read_varint(data, place + size)
        question, place = read_varint(data, place)
        marks: dict[int, TaskMark] = {}
        lane = place_ms = last_active = 0
        while place < len(data):
            step, place = read_varint(data, place)
            moved_ms, place = read_varint(data, place)
            state, place = read_varint(data, place)
            lane += step
            place_ms += moved_ms
            active = 0
            if MarkState(state).is_awaited:
                step, place = read_varint(data, place)
                active = last_active = last_active + step
            marks[lane] = TaskMark(place_ms, MarkState(state), active)
        return cls(member, generation, marks, question)


def _refuse(partition: TopicPartition, offset: int, error: Exception) -> NoReturn:
    raise ForeignFormatError(
        f"topic {partition.topic!r}, offset {offset}: not the progress of tasks as this release of streams writes it: "
        f"{error}. Run the same release on all instances; nothing else may write to this topic. It has no state: with "
        "all instances stopped it can be deleted",
        what=_FORMAT.what,
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
    ) from error
