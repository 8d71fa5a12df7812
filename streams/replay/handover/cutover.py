"""The check that the topics of a cluster continue the replayed history, and the offsets to start from.

Records of an archive or Kafka topic have the offsets of the topic.  Rows of files only have row numbers,
which are accepted as offsets if the last record of each partition is the same in the topic.  Otherwise the
user specifies the time at which the history ends, and the topic continues with its first record at or after
that time.  The check, which ``golive`` runs, changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from streams.clients import EARLIEST, LATEST, Admin
from streams.core.blocks.records import TopicPartition
from streams.core.event_time.time_texts import time_ms, time_text
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.transport import Cluster
from streams.replay.errors import HandOverError, ReplayError
from streams.replay.handover.snapshot import LastRecord, Snapshot, record_digest
from streams.replay.history.archive import broker_source
from streams.replay.storage.segments import Extent, Segments

#: Offsets with their metadata, to be committed.
Offsets = dict[TopicPartition, OffsetAndMetadata]


def check_history(
    parent: Snapshot, topic: str, extents: Mapping[int, Sequence[Extent]] | None, segments: Segments
) -> None:
    """Check that an archive or Kafka topic continues the history of a snapshot.

    ``extents`` are the extents of the archive by partition, None if they are not known before the topic is read.

    Raises:
        ReplayError: the history is different, or cannot be checked because the snapshot was made from files.
    """
    other = ReplayError(
        f"topic {topic!r}: snapshot {parent.root} was replayed from "
        + (
            "files, and row numbers are not offsets of this history; give the files that follow, or replay all of "
            "this history from its start"
            if parent.is_of_files(topic)
            else "another history of this name; replay this one from its start"
        )
    )
    if extents is None:
        if parent.is_of_files(topic):
            raise other
        return
    for number in range(parent.partitions.get(topic, 0)):
        last = parent.last_record(TopicPartition(topic, number))
        if last is None:
            continue
        extent = next(
            (extent for extent in extents.get(number, ()) if extent.first <= last.offset <= extent.last), None
        )
        blocks = [] if extent is None else list(segments.blocks([extent], last.offset, last.offset + 1))
        digests = [record_digest(block) for block in blocks if len(block)]
        if digests != [last.digest] and (digests or parent.is_of_files(topic)):
            raise other


def check_cut(snapshot: Snapshot, cut: Mapping[str, Any]) -> dict[str, int]:
    """Return the times in ``cut``, at which the histories of topics end, in epoch milliseconds by topic.

    Raises:
        HandOverError: a topic was not replayed from files, a table is restored from the topic, or the replayed
            history reaches beyond the cut.
        InputError: a time is invalid.
    """
    result = {}
    for topic, end in cut.items():
        if topic not in snapshot.inputs:
            topics = ", ".join(sorted(snapshot.inputs)) or "none"
            raise HandOverError(f"cut {topic}: the snapshot has no input {topic!r}; it has {topics}")
        if not snapshot.is_of_files(topic):
            raise HandOverError(
                f"cut {topic}: its history has the offsets of the topic, so it is known where it ends; leave it out"
            )
        tables = [store for store, source in snapshot.live.source_changelogs.items() if source == topic]
        tables += [store for store, sources in snapshot.live.global_topics.items() if topic in sources]
        if tables:
            raise HandOverError(
                f"cut {topic}: table {tables[0]!r} is restored from the topic itself, which does not have the rows of "
                "these files; archive the topic, and replay the archive"
            )
        result[topic] = time_ms(end, f"cut {topic}")
        last_ms = snapshot.highest_ms(topic)
        if result[topic] <= last_ms:
            raise HandOverError(
                f"cut {topic}={end}: the history that was replayed goes up to {time_text(last_ms)}, so its records "
                "from the cut on would be repeated; give a later time, or replay --until the cut"
            )
    return result


def check_topics(
    snapshot: Snapshot, cluster: Cluster, admin: Admin, offsets: Offsets, cuts: Mapping[str, int]
) -> dict[TopicPartition, int]:
    """Return the offset from which the application continues to read each input partition.

    Raises:
        HandOverError: a topic is missing, has another partition count or history, or there is a gap after the history.
    """
    positions = {place: committed.offset for place, committed in offsets.items() if place.topic in snapshot.inputs}
    existing = set(admin.list_topics())
    for topic in sorted({partition.topic for partition in positions}):
        if topic not in existing:
            raise HandOverError(f"source topic {topic!r} does not exist; create it, or check the cluster")
        count = len(admin.describe_topics([topic])[topic].leaders)
        if count != snapshot.partitions[topic]:
            raise HandOverError(
                f"source topic {topic!r} has {count} partitions, but its history was replayed with "
                f"{snapshot.partitions[topic]}; replay with --partitions {count}"
            )
    starts = admin.list_offsets(dict.fromkeys(positions, EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(positions, LATEST))
    positions |= _cut_positions(snapshot, admin, cuts, starts, ends)
    for partition, position in sorted(positions.items()):
        if partition.topic not in cuts:
            _check_partition(snapshot, cluster, partition, position, starts[partition], ends[partition])
    return positions


def _cut_positions(
    snapshot: Snapshot,
    admin: Admin,
    cuts: Mapping[str, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the first offset at or after the time in ``cuts``, for each partition of these topics."""
    partitions = [partition for partition in starts if partition.topic in cuts]
    after = admin.list_offsets({at: snapshot.highest_ms(at.topic) + 1 for at in partitions})
    offsets = admin.list_offsets({at: cuts[at.topic] for at in partitions})
    result = {}
    for partition in partitions:
        last = time_text(snapshot.highest_ms(partition.topic))
        first, position = (where if where >= 0 else ends[partition] for where in (after[partition], offsets[partition]))
        if position > first:
            raise HandOverError(
                f"{partition}: between the end of the history that was replayed ({last}) and the cut "
                f"({time_text(cuts[partition.topic])}) it has {position - first} offsets that would be skipped: a "
                "gap; give a cut right after the history, or replay the records between"
            )
        if first == starts[partition] > 0:
            raise HandOverError(
                f"{partition}: begins at offset {first}, with records after the end of the replayed history "
                f"({last}); records deleted before them may be a gap; replay history up to a time that the topic has"
            )
        result[partition] = position
    return result


def _check_partition(
    snapshot: Snapshot, cluster: Cluster, partition: TopicPartition, position: int, start: int, end: int
) -> None:
    """Check that a partition continues where its replayed history ends."""
    hint = ""
    if snapshot.is_of_files(partition.topic):
        last_time = time_text(snapshot.highest_ms(partition.topic))
        hint = (
            "; row numbers of files are not offsets of another history: give the end of this one "
            f"with --cut {partition.topic}=TIME (its last record is of {last_time})"
        )
    if start > position:
        raise HandOverError(
            f"{partition} begins at offset {start}, but the snapshot continues at {position}: a gap of "
            f"{start - position} records, deleted by retention; replay them from an archive first{hint}"
        )
    if end < position:
        raise HandOverError(
            f"{partition} ends at offset {end}, but the snapshot continues at {position}: "
            f"its history was not that of this topic{hint}"
        )
    last = snapshot.last_record(partition)
    if last is None:
        return  # No record of this partition was replayed.
    is_same = _has(cluster, partition, last, start)
    if is_same is None and hint:
        raise HandOverError(
            f"{partition}: no longer has a record at offset {last.offset}, so it cannot be checked whether its "
            f"history is that of the files{hint}"
        )
    if is_same is False:
        raise HandOverError(
            f"{partition}: its record at offset {last.offset} is not the one that was replayed "
            f"({time_text(last.timestamp_ms)}): its history was not that of this topic, or the topic was recreated"
            f"{hint or '; replay an archive of the current topic'}"
        )


def _has(cluster: Cluster, partition: TopicPartition, last: LastRecord, start: int) -> bool | None:
    """Return whether a partition has the last replayed record at its offset, or None if there is no record there."""
    if last.offset < start:
        return None
    with broker_source(cluster, partition) as source:
        block = next(source.read(last.offset), None)
    if block is None or block.offsets[0] != last.offset:
        return None  # Compacted or expired.
    return record_digest(block.slice(0, 1)) == last.digest
