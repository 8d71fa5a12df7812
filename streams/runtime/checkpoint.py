"""What a task remembers beside its stores and offsets: times.

Partition times, stream time and the operators' own stream times travel as the note of the
committed offsets, so that they belong to the same commit as the positions.  Pure.
"""

import json
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from streams.core.records import NO_TIMESTAMP, TopicPartition


@define(eq=True)
class Checkpoint:
    """Times of a task at a commit, epoch milliseconds; -1 where nothing was seen."""

    stream_time_ms: int = NO_TIMESTAMP
    partition_times: dict[TopicPartition, int] = field(factory=dict)
    #: Number of the task's partition group, which tells at a rebalance whether partitions are where they were.
    group: int | None = None
    #: Node name, or node name and "/" and the operator's own name -> its stream time.
    operator_times: dict[str, int] = field(factory=dict)

    def notes(self, partitions: list[TopicPartition]) -> dict[TopicPartition, str]:
        """Return the commit note of each partition; the first one also carries the task's times."""
        result = {}
        for index, partition in enumerate(partitions):
            note: dict[str, object] = {"p": self.partition_times.get(partition, NO_TIMESTAMP)}
            if self.group is not None:
                note["g"] = self.group
            if index == 0:
                note |= {"s": self.stream_time_ms, "o": self.operator_times}
            result[partition] = json.dumps(note, separators=(",", ":"))
        return result

    @classmethod
    def from_notes(cls, notes: Mapping[TopicPartition, str]) -> "Checkpoint":
        """Read the notes of a task's partitions; those written by others count as empty."""
        checkpoint = cls()
        for partition, note in notes.items():
            read = _read(note)
            checkpoint.partition_times[partition] = int(read.get("p", NO_TIMESTAMP))
            checkpoint.stream_time_ms = max(checkpoint.stream_time_ms, int(read.get("s", NO_TIMESTAMP)))
            for name, time in read.get("o", {}).items():
                checkpoint.operator_times[name] = max(int(time), checkpoint.operator_times.get(name, NO_TIMESTAMP))
        return checkpoint


def group_of_note(note: str) -> int | None:
    """Return the number of the partition group that committed an offset, None if its note does not say."""
    group = _read(note).get("g")
    return group if isinstance(group, int) else None


def _read(note: str) -> dict[str, Any]:
    try:
        read = json.loads(note) if note else {}
    except ValueError:
        return {}  # A note of another client: offsets may have been set by a tool.
    return read if isinstance(read, dict) else {}
