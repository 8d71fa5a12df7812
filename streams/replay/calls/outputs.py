"""Reads the output topics of a replay in their defined order.

If several tasks write a partition, their records are merged by their places, as in bounded live runs.  Offsets number
the records in this order.
"""

from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from streams.core.blocks.records import Block, TopicPartition
from streams.replay.calls.state import Outputs, task_of
from streams.replay.errors import ReplayError
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent, Segments


@frozen
class OutputPart:
    """One partition of an output topic: the extents (ranges of records) that each task wrote.

    If records of two tasks have equal places, those of the task that comes first have precedence.
    """

    partition: int
    lanes: Sequence[Sequence[Extent]]
    #: Offset of the first record; None keeps the offsets of the merge.
    first: int | None = None

    @property
    def rows(self) -> int:
        """The number of records."""
        return sum(extent.rows for lane in self.lanes for extent in lane)


def check_kept(root: Place) -> None:
    """Check that the files of a replay still exist.

    Raises:
        ReplayError: the temporary folder of the replay was deleted.
    """
    if root.is_local and not root.exists():
        raise ReplayError(
            f"{root}: the files of the replay were deleted when its result was closed; read outputs within the `with` "
            "block, or give replay() plan=Plan(keep=True) or a directory"
        )


def output_parts(outputs: Outputs, topic: str) -> list[OutputPart]:
    """Return the partitions of an output topic that have records."""
    return [
        OutputPart(number, lanes_of(outputs, TopicPartition(topic, number)))
        for number in output_partitions(outputs, topic)
    ]


def output_partitions(outputs: Outputs, topic: str) -> list[int]:
    """Return the numbers of a topic's partitions that have records."""
    return sorted({at.partition for at, _ in outputs if at.topic == topic})


def output_topics(outputs: Outputs) -> list[str]:
    """Return the names of the output topics that have records."""
    return sorted({at.topic for at, _ in outputs})


def lanes_of(outputs: Outputs, at: TopicPartition) -> list[list[Extent]]:
    """Return the extents (ranges of records) that each task wrote to a partition, the task with precedence first."""
    producers = sorted((producer for place, producer in outputs if place == at), key=_order)
    return [outputs[at, producer] for producer in producers]


def read_topic(segments: Segments, outputs: Outputs, topic: str) -> Iterator[tuple[int, Block]]:
    """Yield the records of an output topic as (partition, block of records), partition by partition."""
    for part in output_parts(outputs, topic):
        for block in segments.merged(part.lanes, part.first):
            yield part.partition, block


def counts(outputs: Outputs) -> Mapping[str, int]:
    """Return the number of records of each output topic."""
    result: dict[str, int] = {}
    for (at, _), extents in outputs.items():
        result[at.topic] = result.get(at.topic, 0) + sum(extent.rows for extent in extents)
    return result


def _order(producer: str) -> tuple[int, int]:
    # On a tie, records of external producers come before records of tasks.
    return (-1, -1) if not producer else task_of(producer)
