"""Archives: copies of topics in files, partition by partition, with the offsets of the broker.

A replay reads an archive without shuffle or sort.  One folder can archive any number of topics.
Archives are append-only: new records become valid with the manifest, which is replaced last.
"""

import os
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from attrs import field, frozen

from streams.broker import OfflineTopics
from streams.clients import Admin, Consumer
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import ConfigError, OffsetOutOfRangeError, UnknownTopicError
from streams.core.topic import TopicLike, topic_name
from streams.core.user_code import refuse_unawaited
from streams.protocol.transport import Cluster
from streams.replay.calls.state import MANIFEST, read_manifest, write_manifest
from streams.replay.errors import ReplayError
from streams.replay.storage.places import Place, sealed_name
from streams.replay.storage.segments import Extent, Segments

#: Name prefix of all files of an archive; other files in the folder are left alone.
_FILES = "archived-"
_SCRATCH = ".archiving"
#: Timeout of one poll, in milliseconds.
_POLL_MS = 500

#: Called with the number of records added so far.
Listener = Callable[[int], None]


@frozen
class ArchivedTopic:
    """The archived part of one topic."""

    topic: str
    partitions: int
    #: Extents by partition, with absolute paths.
    extents: Mapping[int, list[Extent]] = field(factory=dict)
    #: First offset of each partition that is not archived yet.
    ends: Mapping[int, int] = field(factory=dict)

    @property
    def records(self) -> int:
        """The number of archived records."""
        return sum(extent.rows for extents in self.extents.values() for extent in extents)


def archived_topics(folder: Place) -> dict[str, ArchivedTopic]:
    """Return the archived topics of a folder by name.

    Raises:
        ReplayError: the folder is not an archive, or its manifest is damaged.
    """
    content = read_manifest(folder)
    if content is None or content.get("kind") != "archive":
        raise ReplayError(f"{folder}: is not an archive; `streams archive` writes one")
    return {name: _from_json(folder.absolute(), name, entry) for name, entry in content["topics"].items()}


def read_archive(folder: Place, topic: str) -> ArchivedTopic:
    """Return the archived part of a topic.

    Raises:
        ReplayError: the folder is no archive, is damaged, or does not have the topic.
    """
    topics = archived_topics(folder)
    if topic not in topics:
        raise ReplayError(
            f"{folder}: is an archive of {', '.join(sorted(topics))}, not of {topic!r}; "
            f"Archive({str(folder)!r}, topic=...) reads a topic under another name"
        )
    return topics[topic]


def archive_topic(
    broker: Cluster,
    topic: TopicLike,
    folder: str | os.PathLike[str],
    *,
    on_progress: Listener = lambda count: None,
) -> ArchivedTopic:
    """Append the new committed records of a topic to an archive, with their offsets.

    The first call starts at the beginning of the topic.  Each partition is read up to its end offset at
    the time when its copy starts; records of open transactions are left to the next call.  If the call fails, the
    archive is unchanged.

    Raises:
        UnknownTopicError: the broker has no such topic.
        ReplayError: records were deleted before they were archived; the topic was recreated or has another
            number of partitions; or nothing can be written.
    """
    refuse_unawaited(on_progress, "on_progress of archive_topic", error=ConfigError)
    topic = topic_name(topic, "archive_topic()", ConfigError)
    with Admin(broker, client_id="archive") as admin:
        topics = admin.list_topics(include_internal=True)
        if topic not in topics:
            raise UnknownTopicError(f"there is no topic {topic!r}; the broker has {', '.join(topics) or 'none'}")
        count = len(admin.describe_topics([topic])[topic].leaders)

    def opened(partition: TopicPartition, position: int) -> AbstractContextManager[ArchivedPartition]:
        return broker_source(broker, partition)

    return write_archive(Place(os.fspath(folder)), topic, count, opened, on_progress)


def archive_offline(
    topics: OfflineTopics,
    topic: str,
    folder: str | os.PathLike[str],
    *,
    on_progress: Listener = lambda count: None,
) -> ArchivedTopic:
    """Archive a topic of a stopped broker like ``archive_topic``, without changing the files of the broker.

    The new segment files of each partition are first copied as a whole: into the archive folder if it is
    local, otherwise into the temporary folder.

    Raises:
        UnknownTopicError, ReplayError: the conditions are those of ``archive_topic``.
    """
    place = Place(os.fspath(folder))

    @contextmanager
    def opened(partition: TopicPartition, position: int) -> Iterator[ArchivedPartition]:
        with ExitStack() as stack:
            if place.is_local:
                scratch = place.child(_SCRATCH).path
                scratch.mkdir()
                stack.callback(scratch.rmdir)
            else:
                scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streams-archive-")))
            broker = stack.enter_context(topics.opened(partition, scratch, position - 1))
            yield stack.enter_context(broker_source(broker, partition))

    return write_archive(place, topic, topics.partition_count(topic), opened, on_progress)


@frozen
class ArchivedPartition:
    """One partition to archive: its log start offset, its last stable offset (``end``), and its records.

    ``read`` yields the records starting at an offset, possibly including records after ``end``.
    """

    start: int
    end: int
    read: Callable[[int], Iterator[Block]]


def write_archive(
    folder: Place,
    topic: str,
    partitions: int,
    opened: Callable[[TopicPartition, int], AbstractContextManager[ArchivedPartition]],
    on_progress: Listener = lambda count: None,
) -> ArchivedTopic:
    """Append new records of a topic to an archive; ``opened`` opens a partition at the next offset to archive.

    Raises:
        ReplayError: the conditions are those of ``archive_topic``.
    """
    folder.check_target()
    with folder.locked():
        content = read_manifest(folder) or {"kind": "archive", "topics": {}}
        if content.get("kind") != "archive":
            raise ReplayError(f"{folder}: holds a {content.get('kind')}; choose another folder")
        _clear(folder, content)
        entry = content["topics"].get(topic, {"partitions": partitions, "extents": {}, "ends": {}})
        archive = _from_json(folder.absolute(), topic, entry)
        if archive.partitions != partitions:
            raise ReplayError(
                f"{folder}: has {topic!r} with {archive.partitions} partitions, now it has {partitions}, so keys have "
                "moved; start another archive"
            )
        ends = {}
        done = 0
        with Segments(folder).writer(f"{_FILES}{uuid4().hex[:12]}.parquet") as writer:
            for number in range(partitions):
                partition = TopicPartition(topic, number)
                with opened(partition, archive.ends.get(number, 0)) as source:
                    ends[number] = source.end
                    for block in _new_records(source, partition, archive, folder):
                        writer.append("source", partition, block, keeps_offsets=True)
                        done += len(block)
                        on_progress(done)
        extents: dict[str, list[Any]] = {number: list(ranges) for number, ranges in entry["extents"].items()}
        sealed = _sealed(folder, {extent.file for _, _, extent in writer.written})
        for _, at, extent in writer.written:
            extents.setdefault(str(at.partition), []).append(list(extent._replace(file=sealed[extent.file])))
        content["topics"][topic] = {
            "partitions": partitions,
            "extents": extents,
            "ends": {str(number): end for number, end in ends.items()},
        }
        write_manifest(folder, content)
    return read_archive(folder, topic)


def _sealed(folder: Place, files: Iterable[str]) -> dict[str, str]:
    """Add a digest of the content to the name of each file; return a mapping of old to new names."""
    result = {}
    for file in sorted(files):
        result[file] = sealed_name(file, folder.child(file).digest())
        folder.child(file).rename_to(folder.child(result[file]))
    return result


def _new_records(
    source: ArchivedPartition, partition: TopicPartition, archive: ArchivedTopic, folder: Place
) -> Iterator[Block]:
    """Yield the records of a partition that are not archived yet.

    Raises:
        ReplayError: records were deleted before they were archived, or the archive belongs to another topic.
    """
    position = archive.ends.get(partition.partition, source.start)
    if source.start > position:
        raise _gap(partition, position, source.start)
    if source.end < position or not _is_continued(source, archive.extents.get(partition.partition, ())):
        raise ReplayError(
            f"{partition}: differs from {folder} before offset {position}; the topic was recreated since: "
            "start another archive"
        )
    for block in source.read(position) if position < source.end else ():
        if block.offsets[-1] < source.end:
            yield block
            continue
        yield block.slice(0, bisect_left(block.offsets, source.end))
        return


def _is_continued(source: ArchivedPartition, extents: Sequence[Extent]) -> bool:
    """Return whether a partition continues its archive: the last archived record is unchanged, compacted or expired."""
    if not extents or extents[-1].last < source.start:
        return True
    last = extents[-1].last
    block = next(source.read(last), None)
    if block is None or block.offsets[0] != last:
        return True  # Compacted or expired since.
    (own,) = Segments(Place("")).blocks(extents[-1:], last)
    return next(own.rows()) == next(block.rows())


@contextmanager
def broker_source(broker: Cluster, partition: TopicPartition) -> Iterator[ArchivedPartition]:
    """Open the committed records of a broker partition as a source for an archive."""
    with Consumer(
        broker,
        client_id="archive",
        isolation_level="read_committed",
        auto_offset_reset="none",
        enable_auto_commit=False,
    ) as consumer:
        end = consumer.end_offsets([partition])[partition]
        start = consumer.beginning_offsets([partition])[partition]
        consumer.assign([partition])

        def read(position: int) -> Iterator[Block]:
            consumer.seek(partition, position)
            # Transaction markers and compaction leave gaps in the offsets: only the position shows the end.
            while (consumer.known_position(partition) or position) < end:
                try:
                    blocks = consumer.poll_blocks(_POLL_MS).get(partition, ())
                except OffsetOutOfRangeError as error:
                    raise _gap(partition, position, consumer.beginning_offsets([partition])[partition]) from error
                yield from blocks

        yield ArchivedPartition(start, end, read)


def _gap(partition: TopicPartition, position: int, start: int) -> ReplayError:
    return ReplayError(
        f"{partition}: the archive ends at offset {position}, but the topic begins at {start} now: a gap of "
        f"{start - position} offsets; archive before records are deleted, or start another archive"
    )


def _from_json(folder: Place, topic: str, entry: Mapping[str, Any]) -> ArchivedTopic:
    extents = {
        int(number): [_below(folder, Extent(*extent)) for extent in rows] for number, rows in entry["extents"].items()
    }
    ends = {int(number): end for number, end in entry["ends"].items()}
    return ArchivedTopic(topic, entry["partitions"], extents, ends)


def _below(folder: Place, extent: Extent) -> Extent:
    return extent._replace(file=str(folder.child(extent.file)))


def _clear(folder: Place, content: Mapping[str, Any]) -> None:
    """Delete the files of unfinished archivings, which the manifest ``content`` does not list."""
    listed = {
        extent[0] for entry in content["topics"].values() for ranges in entry["extents"].values() for extent in ranges
    }
    folder.child(_SCRATCH).delete()
    for file in folder.files():
        is_part = file.startswith((_FILES, MANIFEST)) and file.endswith(".part")
        if is_part or (file.startswith(_FILES) and file not in listed):
            folder.child(file).delete()
