"""Publishes replay outputs to topics, exactly once, with their event times, headers and partitions.

Records and progress are written in one transaction; the progress is stored as committed offsets of a consumer
group named after the snapshot.  If publishing is killed and run again, it continues after the last committed record.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping

from streams.clients import Admin, GroupMetadata, Producer
from streams.core.errors import ConfigError
from streams.core.records import Block, TopicPartition
from streams.core.topic import TopicLike, topic_names
from streams.core.user_code import refuse_unawaited
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.messages import TopicSpec
from streams.protocol.transport import Cluster
from streams.replay.calls.outputs import OutputPart, lanes_of, output_partitions, output_topics, read_output
from streams.replay.errors import ReplayError, SnapshotError
from streams.replay.handover.snapshot import Snapshot
from streams.replay.storage.places import Place

#: Bytes of keys and values per block; below the default maximum message size of a cluster (1 MiB).
_BLOCK_BYTES = 500_000

#: Called with the topic, the number of records committed so far, and the total.
Listener = Callable[[str, int, int], None]


def publish(
    snapshot: Snapshot | str | os.PathLike[str],
    broker: Cluster,
    *,
    topics: "Iterable[TopicLike] | None" = None,
    transaction_records: int = 50_000,
    on_progress: Listener = lambda topic, count, total: None,
) -> dict[str, int]:
    """Publish the outputs of a snapshot to topics of a broker; return the number of records sent to each.

    ``topics`` are the topics to publish (default: all that the topology writes).  Missing topics are created with the
    partition count of the replay.  A transaction ends with the block that reaches ``transaction_records``.
    Consumers that read committed records see each record once, however often publishing was killed and run
    again, as long as the broker keeps the offsets of the group (Kafka: seven days after the last commit).

    Raises:
        SnapshotError: the snapshot is damaged or was saved without outputs.
        ReplayError: a topic is not one of the outputs, has another partition count, or already has the outputs of
            another snapshot of the application.
        ProducerFencedError: the same snapshot is being published elsewhere.
    """
    refuse_unawaited(on_progress, "on_progress of publish", error=ConfigError)
    if not isinstance(snapshot, Snapshot):
        snapshot = Snapshot.open(Place(os.fspath(snapshot)))
    totals = _totals(snapshot, topics)
    group = publish_group(snapshot)
    with Admin(broker, client_id=group) as admin:
        _make_topics(admin, snapshot, totals)
        _refuse_other_snapshots(admin, snapshot, totals)
        with Producer(broker, client_id=group, transactional_id=group) as producer:
            # This comes first: it fences an earlier attempt and aborts its open transaction.
            producer.init_transactions()
            positions = {at: found.offset for at, found in admin.committed_offsets(group).items()}
            return {
                topic: _publish_topic(producer, snapshot, topic, total, positions, transaction_records, on_progress)
                for topic, total in totals.items()
            }


def publish_group(snapshot: Snapshot) -> str:
    """Return the consumer group whose offsets record the progress; its name is also the transactional ID."""
    return f"{_prefix(snapshot)}{snapshot.id}"


def _publish_topic(
    producer: Producer,
    snapshot: Snapshot,
    topic: str,
    total: int,
    positions: Mapping[TopicPartition, int],
    transaction_records: int,
    on_progress: Listener,
) -> int:
    """Publish the remaining records of one topic; return the number of records sent."""
    group = GroupMetadata(publish_group(snapshot))
    metadata = json.dumps({"snapshot": snapshot.id, "parent": snapshot.parent})
    sent = 0
    before = sum(position for at, position in positions.items() if at.topic == topic)
    on_progress(topic, before, total)
    for number in output_partitions(snapshot.outputs, topic):
        at = TopicPartition(topic, number)
        position = positions.get(at, 0)
        blocks = read_output(snapshot.root, OutputPart(at.partition, lanes_of(snapshot.outputs, at)))
        for chunk in _chunks(_after(blocks, position), transaction_records):
            with producer.transaction():
                for block in chunk:
                    producer.send_block(at, block)
                    position += len(block)
                    sent += len(block)
                producer.send_offsets_to_transaction({at: OffsetAndMetadata(position, metadata)}, group)
            on_progress(topic, before + sent, total)
    return sent


def _after(blocks: Iterable[Block], position: int) -> Iterator[Block]:
    """Yield the blocks without their first ``position`` records."""
    for block in blocks:
        if position < len(block):
            yield block.slice(position) if position else block
        position = max(0, position - len(block))


def _chunks(blocks: Iterable[Block], records: int) -> Iterator[list[Block]]:
    """Yield the blocks of each transaction, divided so that each fits the maximum message size."""
    chunk: list[Block] = []
    count = 0
    for block in blocks:
        for part in _parts(block):
            chunk.append(part)
            count += len(part)
            if count >= records:
                yield chunk
                chunk, count = [], 0
    if chunk:
        yield chunk


def _parts(block: Block) -> Iterator[Block]:
    start = size = 0
    for index, (key, value) in enumerate(zip(block.keys, block.values, strict=True)):
        size += len(key or b"") + len(value or b"")
        if size >= _BLOCK_BYTES:
            yield block.slice(start, index + 1)
            start, size = index + 1, 0
    if start < len(block):
        yield block.slice(start) if start else block


# --- checks ---------------------------------------------------------------------------------


def _totals(snapshot: Snapshot, topics: "Iterable[TopicLike] | None") -> dict[str, int]:
    """Return the topics to publish with their record counts.

    Raises:
        SnapshotError: the outputs were not saved.
        ReplayError: a topic is not one of the outputs.
    """
    known = sorted({*snapshot.structure["sinks"], *output_topics(snapshot.outputs)})
    names = known if topics is None else list(dict.fromkeys(topic_names(topics, "publish()", ReplayError)))
    for name in names:
        if name not in known:
            raise ReplayError(f"{snapshot.root}: has no output topic {name!r}; it has {', '.join(known) or 'none'}")
    for task, ends in snapshot.state.ends.items():
        for (kind, at), end in ends.items():
            kept = sum(extent.rows for extent in snapshot.outputs.get((at, str(task)), ()))
            if kind == "sink" and at.topic in names and kept != end:
                raise SnapshotError(
                    f"{snapshot.root}: keeps {kept:,} of the {end:,} records that task {task} wrote to {at}: it was "
                    "saved without outputs; save it with them"
                )
    totals = dict.fromkeys(names, 0)
    for (at, _), extents in snapshot.outputs.items():
        if at.topic in totals:
            totals[at.topic] += sum(extent.rows for extent in extents)
    return totals


def _make_topics(admin: Admin, snapshot: Snapshot, names: Iterable[str]) -> None:
    """Create those output topics that are missing.

    Raises:
        ReplayError: an existing topic has another partition count than in the replay.
    """
    existing = set(admin.list_topics())
    for name in names:
        highest = max(output_partitions(snapshot.outputs, name), default=0)
        wanted = snapshot.partitions.get(name, highest + 1)
        if name not in existing:
            admin.create_topics([TopicSpec(name, wanted)], exist_ok=True)
        count = len(admin.describe_topics([name])[name].leaders)
        if count != wanted:
            raise ReplayError(
                f"topic {name!r} has {count} partitions, the replay wrote {wanted}; replay with that count, or "
                "publish to a topic made for it"
            )


def _refuse_other_snapshots(admin: Admin, snapshot: Snapshot, names: Mapping[str, int]) -> None:
    """Check that the topics only have outputs of this snapshot and of those that it continues.

    Raises:
        ReplayError: a topic has outputs of another snapshot, which publishing would duplicate.
    """
    parents: dict[str, str | None] = {snapshot.id: snapshot.parent}
    topics: dict[str, set[str]] = {}
    prefix, own = _prefix(snapshot), publish_group(snapshot)
    for group in admin.list_groups():
        if not group.group_id.startswith(prefix) or group.group_id == own:
            continue
        for at, offset in admin.committed_offsets(group.group_id).items():
            if at.topic in names:
                published = json.loads(offset.metadata)
                parents[published["snapshot"]] = published["parent"]
                topics.setdefault(published["snapshot"], set()).add(at.topic)
    line: list[str] = []
    found: str | None = snapshot.id
    while found is not None and found not in line:
        line.append(found)
        found = parents.get(found)
    for other, written in sorted(topics.items()):
        if other not in line:
            raise ReplayError(
                f"topic {min(written)!r} has the outputs of snapshot {other} of {snapshot.application_id!r} already, "
                f"which is no ancestor of {snapshot.id}: records would be duplicated; publish to another broker, or "
                "delete the topic first"
            )


def _prefix(snapshot: Snapshot) -> str:
    return f"{snapshot.application_id}-publish-"
