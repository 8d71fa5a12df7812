"""Archives: topics as they lie in a broker, partition by partition, offsets kept.

A replay reads an archive as it lies: no shuffle, no sort.  A folder is the archive of any number of
topics.  Each grows at its ends; what is added counts with the manifest, which is replaced last.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

from attrs import field, frozen

from streams.broker import EmbeddedBroker, OfflineTopics
from streams.clients import Consumer
from streams.core.errors import OffsetOutOfRangeError, UnknownTopicError
from streams.core.records import Block, TopicPartition
from streams.replay.errors import ReplayError
from streams.replay.places import Place
from streams.replay.segments import Extent, ExtentReader, SegmentWriter
from streams.replay.state import read_manifest, write_manifest

#: How the names of all that an archive writes begin; whatever else lies in the folder is left alone.
_FILES = "archived-"
_SCRATCH = ".archiving-"

#: Told how many records were added so far.
Listener = Callable[[int], None]


@frozen
class ArchivedTopic:
    """What an archive holds of a topic."""

    topic: str
    partitions: int
    #: By partition, with the whole paths of their files.
    extents: Mapping[int, list[Extent]] = field(factory=dict)
    #: First offset of each partition that is not archived yet.
    ends: Mapping[int, int] = field(factory=dict)

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(extent.rows for found in self.extents.values() for extent in found)


def archived_topics(folder: Place) -> dict[str, ArchivedTopic]:
    """Return what an archive holds, by topic.

    Raises:
        ReplayError: it is none, or its manifest is damaged.
    """
    content = read_manifest(folder)
    if content is None or content.get("kind") != "archive":
        raise ReplayError(f"{folder}: is no archive; `streams archive` writes one")
    return {name: _from_json(folder.absolute(), name, entry) for name, entry in content["topics"].items()}


def read_archive(folder: Place, topic: str) -> ArchivedTopic:
    """Return what an archive holds of a topic.

    Raises:
        ReplayError: it is no archive, is damaged, or has another topic.
    """
    found = archived_topics(folder)
    if topic not in found:
        raise ReplayError(
            f"{folder}: is an archive of {', '.join(sorted(found))}, not of {topic!r}; "
            f"Archive({str(folder)!r}, topic=...) reads a topic under another name"
        )
    return found[topic]


def archive_topic(
    broker: EmbeddedBroker,
    topic: str,
    folder: str | os.PathLike[str],
    *,
    on_progress: Listener = lambda count: None,
) -> ArchivedTopic:
    """Add to an archive what it does not have of a topic: the committed records, with their offsets.

    The first time that is all from the topic's start on.  The end is that of the moment at which the call
    comes to a partition; what transactions still hold open is left to the next call.  However the call ends, the
    archive is as it was or has everything.

    Raises:
        UnknownTopicError: the broker has no such topic.
        ReplayError: records were deleted before they were archived; the topic is another one of the same
            name or has other partitions; or nothing can be written.
    """
    count = broker.topics(include_internal=True).get(topic)
    if count is None:
        raise UnknownTopicError(f"there is no topic {topic!r}; the broker has {', '.join(broker.topics()) or 'none'}")
    return _archive(Place(os.fspath(folder)), topic, count, lambda partition: nullcontext(broker), on_progress)


def archive_offline(
    topics: OfflineTopics,
    topic: str,
    folder: str | os.PathLike[str],
    *,
    on_progress: Listener = lambda count: None,
) -> ArchivedTopic:
    """Do as ``archive_topic`` for a topic of a broker that does not run; its files are not touched.

    Each partition is copied in its turn, beside a local archive, else where temporary files go.

    Raises:
        UnknownTopicError, ReplayError: as ``archive_topic``.
    """
    place = Place(os.fspath(folder))

    @contextmanager
    def opened(partition: TopicPartition) -> Iterator[EmbeddedBroker]:
        beside = place.path if place.is_local else None
        with tempfile.TemporaryDirectory(dir=beside, prefix=_SCRATCH) as scratch:
            with topics.opened(partition, Path(scratch)) as broker:
                yield broker

    return _archive(place, topic, topics.partition_count(topic), opened, on_progress)


def _archive(
    folder: Place,
    topic: str,
    partitions: int,
    opened: Callable[[TopicPartition], AbstractContextManager[EmbeddedBroker]],
    on_progress: Listener,
) -> ArchivedTopic:
    with folder.locked():
        content = read_manifest(folder) or {"kind": "archive", "topics": {}}
        if content.get("kind") != "archive":
            raise ReplayError(f"{folder}: holds a {content.get('kind')}; choose another folder")
        _clear(folder, content)
        entry = content["topics"].get(topic, {"partitions": partitions, "extents": {}, "ends": {}})
        known = _from_json(folder, topic, entry)
        if known.partitions != partitions:
            raise ReplayError(
                f"{folder}: has {topic!r} with {known.partitions} partitions, now it has {partitions}, so keys lie "
                "elsewhere; start another archive"
            )
        ends = {}
        done = 0
        with SegmentWriter(folder, f"{_FILES}{uuid4().hex[:12]}.parquet") as writer:
            for number in range(partitions):
                partition = TopicPartition(topic, number)
                with opened(partition) as broker:
                    ends[number], blocks = _unread(broker, partition, known, folder)
                    for block in blocks:
                        writer.append("source", partition, block, keeps_offsets=True)
                        done += len(block)
                        on_progress(done)
        extents: dict[str, list[Any]] = {number: list(found) for number, found in entry["extents"].items()}
        for _, at, extent in writer.written:
            extents.setdefault(str(at.partition), []).append(list(extent))
        content["topics"][topic] = {
            "partitions": partitions,
            "extents": extents,
            "ends": {str(number): end for number, end in ends.items()},
        }
        write_manifest(folder, content)
    return read_archive(folder, topic)


def _unread(
    broker: EmbeddedBroker, partition: TopicPartition, known: ArchivedTopic, folder: Place
) -> tuple[int, Iterator[Block]]:
    """Return the offset up to which a partition is certain, and its records from where the archive ends.

    Raises:
        ReplayError: the archive cannot go on with it.
    """
    start = broker.start_offset(partition)
    position = known.ends.get(partition.partition, start)
    with Consumer(broker, client_id="archive", isolation_level="read_committed") as consumer:
        end = consumer.end_offsets([partition])[partition]
    if start > position:
        raise _gap(partition, position, start)
    if end < position or not _is_continued(broker, partition, known, folder):
        raise ReplayError(
            f"{partition}: is not what {folder} has up to offset {position}; the topic was made anew since: "
            "start another archive"
        )
    return end, _committed(broker, partition, position, end)


def _committed(broker: EmbeddedBroker, partition: TopicPartition, position: int, end: int) -> Iterator[Block]:
    while position < end:
        try:
            blocks = broker.read(partition, position, committed_only=True)
        except OffsetOutOfRangeError as error:
            raise _gap(partition, position, broker.start_offset(partition)) from error
        for block in blocks:
            if block.offsets[-1] >= end:
                block = block.slice(0, sum(offset < end for offset in block.offsets))
            if len(block):
                yield block
        position = blocks[-1].offsets[-1] + 1 if blocks else end


def _gap(partition: TopicPartition, position: int, start: int) -> ReplayError:
    return ReplayError(
        f"{partition}: the archive ends at offset {position}, but the topic begins at {start} now: a gap of "
        f"{start - position} offsets; archive before records are deleted, or start another archive"
    )


def _is_continued(broker: EmbeddedBroker, partition: TopicPartition, known: ArchivedTopic, folder: Place) -> bool:
    """Whether the last record of the archive is in the topic too, as far as that can be seen."""
    extents = known.extents.get(partition.partition)
    if not extents or extents[-1].last < broker.start_offset(partition):
        return True
    last = extents[-1].last
    found = broker.read(partition, last, 1, committed_only=True)
    if not found or found[0].offsets[0] != last:
        return True  # Compacted or expired since.
    (own,) = ExtentReader(folder).blocks(extents[-1:], last)
    return next(own.rows()) == next(found[0].rows())


def _from_json(folder: Place, topic: str, entry: Mapping[str, Any]) -> ArchivedTopic:
    extents = {
        int(number): [_below(folder, Extent(*extent)) for extent in found]
        for number, found in entry["extents"].items()
    }
    ends = {int(number): end for number, end in entry["ends"].items()}
    return ArchivedTopic(topic, entry["partitions"], extents, ends)


def _below(folder: Place, extent: Extent) -> Extent:
    return extent._replace(file=str(folder.child(extent.file)))


def _clear(folder: Place, content: Mapping[str, Any]) -> None:
    """Delete what calls that were killed have left."""
    listed = {
        extent[0] for entry in content["topics"].values() for found in entry["extents"].values() for extent in found
    }
    for file in folder.files():
        top = file.partition("/")[0]
        if top.startswith(_SCRATCH) or (top.startswith(_FILES) and file not in listed):
            folder.child(file).delete()
            if top.startswith(_SCRATCH):
                folder.child(top).delete()


__all__ = ["ArchivedTopic", "archive_offline", "archive_topic", "archived_topics", "read_archive"]
