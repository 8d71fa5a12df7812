"""Output topics of a replay, read in their defined order.

A partition written by several tasks is the merge of their records by lowest head timestamp, as in
bounded live runs.  Offsets number the records in that order.
"""

from collections.abc import Iterator, Mapping, Sequence

from streams.core.records import Block, TopicPartition
from streams.replay.calls.state import Outputs, task_of
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent, ExtentReader
from streams.runtime import merge_lanes


def output_partitions(outputs: Outputs, topic: str) -> list[int]:
    """Return the partitions of a topic that have records."""
    return sorted({at.partition for at, _ in outputs if at.topic == topic})


def output_topics(outputs: Outputs) -> list[str]:
    """Return the topics that have records."""
    return sorted({at.topic for at, _ in outputs})


def lanes_of(outputs: Outputs, at: TopicPartition) -> list[list[Extent]]:
    """Return the extents that each task wrote to a partition, in tie-breaking order."""
    producers = sorted((producer for place, producer in outputs if place == at), key=_order)
    return [outputs[at, producer] for producer in producers]


def read_output(root: Place, lanes: Sequence[Sequence[Extent]]) -> Iterator[Block]:
    """Yield the records of one output partition, with offsets from 0 without gaps."""
    return merge_lanes([ExtentReader(root).blocks(extents) for extents in lanes])


def read_topic(root: Place, outputs: Outputs, topic: str) -> Iterator[tuple[int, Block]]:
    """Yield the records of an output topic as (partition, block), partition by partition."""
    for number in output_partitions(outputs, topic):
        for block in read_output(root, lanes_of(outputs, TopicPartition(topic, number))):
            yield number, block


def counts(outputs: Outputs) -> Mapping[str, int]:
    """Return the number of records of each topic."""
    result: dict[str, int] = {}
    for (at, _), extents in outputs.items():
        result[at.topic] = result.get(at.topic, 0) + sum(extent.rows for extent in extents)
    return result


def _order(producer: str) -> tuple[int, int]:
    # On a tie, records of external producers come before records of tasks.
    return (-1, -1) if not producer else task_of(producer)
