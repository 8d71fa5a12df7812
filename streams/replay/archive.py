"""Archives: topics as they lie in a broker, partition by partition, offsets kept.

A replay reads an archive as it lies: no shuffle, no sort.  Archives grow at their ends.
"""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

from attrs import evolve, field, frozen

from streams.core.records import Block, TopicPartition
from streams.replay.errors import ReplayError
from streams.replay.places import Place
from streams.replay.segments import Extent, SegmentWriter
from streams.replay.state import read_manifest, write_manifest


@frozen
class ArchivedTopic:
    """What an archive holds."""

    topic: str
    partitions: int
    #: Extents with the whole paths of their files.
    extents: dict[int, list[Extent]] = field(factory=dict)
    #: Next offset to archive of each partition.
    ends: dict[int, int] = field(factory=dict)

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(extent.rows for found in self.extents.values() for extent in found)


def read_archive(folder: Place) -> ArchivedTopic:
    """Return what an archive holds.

    Raises:
        ReplayError: it is none, or is damaged.
    """
    content = read_manifest(folder)
    if content is None or content.get("kind") != "archive":
        raise ReplayError(f"{folder}: is no archive; `streams archive` writes one")
    extents = {
        int(number): [evolve_file(Extent(*extent), folder) for extent in found]
        for number, found in content["extents"].items()
    }
    ends = {int(number): end for number, end in content["ends"].items()}
    return ArchivedTopic(content["topic"], content["partitions"], extents, ends)


def evolve_file(extent: Extent, folder: Place) -> Extent:
    """Return an extent with the whole path of its file."""
    return extent._replace(file=str(folder.child(extent.file)))


def write_archive(
    folder: Place,
    topic: str,
    partitions: int,
    read: Callable[[TopicPartition, int], Iterator[Block]],
    *,
    ends: dict[int, int],
    on_progress: Callable[[int], None] = lambda count: None,
) -> ArchivedTopic:
    """Archive a topic up to ``ends``; what an archive in the folder has already is kept.

    ``read`` yields the blocks of a partition from an offset on.

    Raises:
        ReplayError: the folder holds another topic, the topic has lost records that come next, or
            nothing can be written; the archive is then as it was.
    """
    known = ArchivedTopic(topic, partitions)
    if read_manifest(folder) is not None:
        known = read_archive(folder)
        if (known.topic, known.partitions) != (topic, partitions):
            raise ReplayError(
                f"{folder}: holds {known.topic!r} with {known.partitions} partitions, not {topic!r} with "
                f"{partitions}; choose another folder"
            )
    name = f"{uuid4().hex[:12]}.parquet"
    done = 0
    with SegmentWriter(folder, name) as writer:
        for number in range(partitions):
            position = known.ends.get(number, 0)
            for block in read(TopicPartition(topic, number), position):
                if known.ends.get(number) and block.offsets[0] > position and number in known.ends:
                    raise ReplayError(
                        f"{topic}-{number}: the archive ends at offset {position}, but the topic begins at "
                        f"{block.offsets[0]}: a gap; archive before records are deleted, or start another archive"
                    )
                fresh = _before(block, ends[number])
                if len(fresh):
                    writer.append("source", TopicPartition(topic, number), fresh, keeps_offsets=True)
                    position = fresh.offsets[-1] + 1
                    done += len(fresh)
                    on_progress(done)
                if len(fresh) < len(block) or position >= ends[number]:
                    break
    extents: dict[int, list[Any]] = {
        number: [extent._replace(file=Place(extent.file).name) for extent in found]
        for number, found in known.extents.items()
    }
    for _, partition, extent in writer.written:
        extents.setdefault(partition.partition, []).append(extent)
    write_manifest(
        folder,
        {
            "kind": "archive",
            "topic": topic,
            "partitions": partitions,
            "extents": {str(number): list(map(list, found)) for number, found in sorted(extents.items())},
            "ends": {str(number): max(end, known.ends.get(number, 0)) for number, end in sorted(ends.items())},
        },
    )
    return read_archive(folder)


def _before(block: Block, end: int) -> Block:
    """Return the records of a block before an offset."""
    if block.offsets[-1] < end:
        return block
    return block.slice(0, sum(1 for offset in block.offsets if offset < end))


__all__ = ["ArchivedTopic", "evolve", "read_archive", "write_archive"]
