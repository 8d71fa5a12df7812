"""Goes live from a snapshot, without gaps or duplicates, even if it is killed between any two steps.

The committed offsets of the application's consumer group make the application live.  They are written last, in one
request; everything written earlier is recreated by the next attempt.  State is loaded into the
changelogs, from which any instance restores its stores.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from streams.broker import EmbeddedBroker
from streams.clients import Admin, Producer
from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import Block, Headers, TopicPartition
from streams.core.errors import ConfigError
from streams.core.migrations import VERSION_HEADER
from streams.core.topic import Topic
from streams.core.user_code import refuse_unawaited
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.messages import TopicSpec
from streams.protocol.transport import Cluster
from streams.replay.calls.shown import described_kind
from streams.replay.calls.work import StoreRef
from streams.replay.errors import HandOverError, SnapshotError
from streams.replay.handover.cutover import check_cut, check_topics
from streams.replay.handover.snapshot import Snapshot
from streams.runtime import with_origin
from streams.state import HEADER_PREFIX, KEY_TYPE, VALUE_TYPE

#: Marker files in a state directory: creation from a snapshot has finished, or has started.
MARKER = "FROM_SNAPSHOT.json"
_UNFINISHED = "FROM_SNAPSHOT.unfinished"

#: Called with the name of each step before it runs.
OnStep = Callable[[str], None]


def _ignored(step: str) -> None:
    del step


@frozen
class GoneLive:
    """The result of going live: the numbers of loaded changelog records and of partitions with committed offsets."""

    changelog_records: int
    partitions: int
    #: Whether an earlier attempt had already finished.
    was_live: bool = False


def go_live(
    snapshot: Snapshot,
    cluster: Cluster,
    *,
    force: bool = False,
    cut: "Mapping[Topic[Any, Any], Any] | Mapping[str, Any] | None" = None,
    on_step: OnStep = _ignored,
) -> GoneLive:
    """Load a snapshot into a cluster: first internal topics, then changelogs, and last the committed offsets.

    Then start the application as usual; it continues with the first record that the replay has not read.
    ``force`` overwrites offsets that the consumer group has already committed.

    A topic that was replayed from files must have the same records at the same offsets.  Otherwise, ``cut`` maps
    the topic to the time at which the history of the files ends (a datetime, ISO text or epoch milliseconds);
    each partition continues with its first record at or after that time.

    Raises:
        HandOverError: the consumer group is active or has committed other offsets; a source topic does not match, has
            another history, or has lost records after the snapshot; a cut would skip or repeat records; or a
            file of the snapshot is missing or damaged.
        InputError: a cut is not a valid time.
    """
    refuse_unawaited(on_step, "on_step of go_live", error=ConfigError)
    _check_whole(snapshot)
    cuts = check_cut(
        snapshot, {topic if isinstance(topic, str) else topic.name: end for topic, end in (cut or {}).items()}
    )
    return _load(snapshot, cluster, on_step, force=force, cuts=cuts)


def _load(
    snapshot: Snapshot, cluster: Cluster, on_step: OnStep, *, force: bool = False, cuts: Mapping[str, int] | None
) -> GoneLive:
    """Load a snapshot into a cluster; if ``cuts`` is None, topics are not checked, as they were created from it."""
    live = snapshot.live
    with Admin(cluster, client_id=f"{snapshot.application_id}-golive") as admin:
        on_step("check")
        offsets = _offsets(snapshot, cluster)
        if _is_live(snapshot, admin, offsets, force=force):
            return GoneLive(0, len(offsets), was_live=True)
        if cuts is not None:
            for partition, position in check_topics(snapshot, cluster, admin, offsets, cuts).items():
                offsets[partition] = evolve(offsets[partition], offset=position)
        on_step("delete what an earlier attempt left")
        existing = set(admin.list_topics(include_internal=True))
        stale = [topic.name for topic in live.internal_topics if topic.name in existing]
        if stale:
            admin.delete_topics(stale)
        on_step("create internal topics")
        admin.create_topics([TopicSpec(topic.name, topic.partitions, topic.config) for topic in live.internal_topics])
        on_step("load changelogs")
        count = _load_changelogs(snapshot, cluster, on_step)
        on_step("commit offsets")
        if offsets:
            admin.alter_offsets(snapshot.application_id, offsets)
        on_step("done")
    return GoneLive(count, len(offsets))


def lay_down(snapshot: Snapshot, folder: Path, *, on_step: OnStep = _ignored) -> None:
    """Create a state directory for an embedded broker from a snapshot; do nothing if this has been done before.

    Source topics start at the offsets where the replay ended.

    Raises:
        HandOverError: the directory holds another run, or was created from another snapshot.
    """
    refuse_unawaited(on_step, "on_step of lay_down", error=ConfigError)
    marker = folder / MARKER
    unfinished = folder / _UNFINISHED
    if marker.exists():
        origin = json.loads(marker.read_text())["id"]
        if origin != snapshot.id:
            raise HandOverError(
                f"{folder}: was created from snapshot {origin}, not {snapshot.id}; give another state directory"
            )
        return
    _check_whole(snapshot)
    folder.mkdir(parents=True, exist_ok=True)
    with EmbeddedBroker(folder / "broker", fsync="commit", maintenance_interval_ms=None) as broker:
        on_step("check the directory")
        if not unfinished.exists():
            _write_whole(unfinished, {"topics": sorted(_free_topics(snapshot, broker, folder))})
        # The offsets are written last: if they exist, so does everything else.
        if not _has_offsets(snapshot, broker):
            _begin_topics(snapshot, broker, folder, json.loads(unfinished.read_text())["topics"], on_step)
        _load(snapshot, broker, on_step, cuts=None)
        broker.flush()
    on_step("write the marker")
    _write_whole(marker, {"id": snapshot.id, "application_id": snapshot.application_id, "inputs": snapshot.inputs})
    unfinished.unlink()
    on_step("laid down")


def _begin_topics(
    snapshot: Snapshot, broker: EmbeddedBroker, folder: Path, free: Sequence[str], on_step: OnStep
) -> None:
    """Create the topics of an application; input topics start where the replay ended."""
    on_step("delete what an earlier attempt left")
    for topic in free:
        if topic in broker.topics():
            broker.delete_topic(topic)
    if (folder / "state").exists():
        shutil.rmtree(folder / "state")
    on_step("create topics")
    for topic, count in sorted(snapshot.partitions.items()):
        if topic not in snapshot.structure["internal_topics"] and topic not in broker.topics():
            broker.create_topic(topic, count)
    on_step("begin topics where the replay ended")
    for partition, block, offset in _beginnings(snapshot):
        broker.begin_at(partition, offset)
        if len(block):
            broker.append(partition, block)


def _has_offsets(snapshot: Snapshot, broker: EmbeddedBroker) -> bool:
    with Admin(broker, client_id=f"{snapshot.application_id}-golive") as admin:
        committed = admin.committed_offsets(snapshot.application_id)
    offsets = _offsets(snapshot, broker)
    return bool(committed) and all(committed.get(place) == offset for place, offset in offsets.items())


def _free_topics(snapshot: Snapshot, broker: EmbeddedBroker, folder: Path) -> set[str]:
    """Return the input topics of a snapshot, after checking that they have no records on a broker.

    Raises:
        HandOverError: a topic has records, or the application has run on this broker.
    """
    names = {
        partition.topic
        for topic in snapshot.inputs
        if topic in broker.topics()
        for number in range(broker.topics()[topic])
        if broker.end_offset(partition := TopicPartition(topic, number))
    }
    with Admin(broker, client_id=f"{snapshot.application_id}-golive") as admin:
        has_run = bool(admin.committed_offsets(snapshot.application_id))
    if has_run or names:
        raise HandOverError(
            f"{folder}: holds another run already; continue it without the snapshot, or give another state directory"
        )
    return set(snapshot.inputs)


def _write_whole(path: Path, content: Mapping[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content))
    part.replace(path)


# --- checks -------------------------------------------------------------------------------


def _check_whole(snapshot: Snapshot) -> None:
    try:
        snapshot.check_files()
    except SnapshotError as error:
        raise HandOverError(str(error)) from error
    both = sorted(snapshot.live.through & set(snapshot.inputs))
    if both:
        raise HandOverError(
            f"topic {both[0]!r} was given as input, but the application writes it too: its records would be "
            "duplicated; replay without it, then go live"
        )


def _is_live(
    snapshot: Snapshot, admin: Admin, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, force: bool
) -> bool:
    """Return whether the consumer group has already committed ``offsets``, the offsets of this snapshot.

    Raises:
        HandOverError: the group is active, or has committed other offsets.
    """
    group = snapshot.application_id
    members = admin.describe_group(group).members
    if members:
        raise HandOverError(
            f"group {group!r} has {len(members)} active members; stop the application before loading a snapshot"
        )
    committed = admin.committed_offsets(group)
    if not committed:
        return False
    # Compare the metadata, not the offsets, which may come from a cut.
    if all((own := committed.get(place)) and own.metadata == offset.metadata for place, offset in offsets.items()):
        return True
    if force:
        return False
    of_inputs = {place: offset for place, offset in committed.items() if place.topic in snapshot.inputs}
    partition, offset = sorted((of_inputs or committed).items())[0]
    raise HandOverError(
        f"group {group!r} has committed offsets already ({partition}: {offset.offset}); "
        "records it has processed would be repeated. Delete the group's offsets, or use force to replace its state"
    )


# --- contents -----------------------------------------------------------------------------


def _load_changelogs(snapshot: Snapshot, cluster: Cluster, on_step: OnStep) -> int:
    count = 0
    with Producer(cluster, client_id=f"{snapshot.application_id}-golive") as producer:
        for store, refs in sorted(snapshot.stores().items()):
            topic = snapshot.live.changelogs.get(store)
            if topic is None or store in snapshot.live.source_changelogs:
                continue
            for task, ref in sorted(refs.items()):
                on_step(f"load {store} of task {task}")
                for block in _with_headers(_as_changelog(snapshot, store, ref), ref):
                    producer.send_block(TopicPartition(topic, task.partition), block)
                    count += len(block)
        producer.flush()
    return count


def _as_changelog(snapshot: Snapshot, store: str, ref: StoreRef) -> Iterator[Block]:
    """Yield the contents of a store in an order that a changelog could have.

    For most kinds of stores this is key order, as in the snapshot.
    """
    blocks = snapshot.rows_of(ref)
    order_of = described_kind(snapshot.structure["stores"][store]).changelog_order
    if order_of is None:
        yield from blocks
        return
    whole = _joined(list(blocks))
    order = order_of(whole, ref.carried)
    yield whole if order is None else _picked(whole, order)


def _with_headers(blocks: Iterator[Block], ref: StoreRef) -> Iterator[Block]:
    """Add the headers of the changelog, and those with the types of keys and values and their version.

    A store, or Kafka Streams, reads them when it is restored.
    """
    names = (KEY_TYPE, VALUE_TYPE, VERSION_HEADER)
    own = [name for name in ref.carried if name.startswith(HEADER_PREFIX)]
    pins: Headers = tuple(
        (name.removeprefix(HEADER_PREFIX), ref.carried[name]) for name in (*own, *names) if name in ref.carried
    )
    for block in blocks:
        # Only stores that keep headers have any in a snapshot.
        rows = block.headers or [()] * len(block)
        yield evolve(block, headers=[own + pins for own in rows]) if pins else block


def _offsets(snapshot: Snapshot, cluster: Cluster) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets to commit.

    In bounded runs, repartition topics have separate partitions for each writing task.  Only an embedded broker has
    these topics; other brokers reject offsets for topics that do not exist.
    """
    live = snapshot.live
    topics = {*snapshot.partitions, *(topic.name for topic in live.internal_topics)}
    result = {}
    for topic, number, offset, metadata in live.offsets:
        if topic not in topics and not isinstance(cluster, EmbeddedBroker):
            continue
        result[TopicPartition(topic, number)] = OffsetAndMetadata(offset, with_origin(metadata, snapshot.id))
    return result


def _beginnings(snapshot: Snapshot) -> Iterator[tuple[TopicPartition, Block, int]]:
    """Yield (partition, block, offset) for the first records of each input partition on the embedded broker.

    Global tables, and tables whose changelog is their source topic, are restored from their topics: their rows
    are placed immediately before the offset where the replay ended.
    """
    rows = dict(_table_rows(snapshot))
    for topic in sorted(snapshot.inputs):
        for number, end in sorted(snapshot.ends(topic).items()):
            partition = TopicPartition(topic, number)
            block = rows.get(partition, Block([], [], []))
            if len(block) > end:
                raise HandOverError(
                    f"{partition}: its table has {len(block)} rows, but only {end} records were read; "
                    "its records were not partitioned by key"
                )
            yield partition, block, end - len(block)


def _table_rows(snapshot: Snapshot) -> Iterator[tuple[TopicPartition, Block]]:
    stores = snapshot.stores()
    for store, topic in snapshot.live.source_changelogs.items():
        for task, ref in stores.get(store, {}).items():
            yield TopicPartition(topic, task.partition), _joined(list(snapshot.rows_of(ref)))
    for store, topics in snapshot.live.global_topics.items():
        whole = _joined(list(snapshot.rows_of(snapshot.state.global_stores[store])))
        count = snapshot.partitions[topics[0]]
        for number in range(count):
            mine = [index for index, key in enumerate(whole.keys) if partition_for(key or b"", count) == number]
            yield TopicPartition(topics[0], number), _picked(whole, mine)


def _picked(block: Block, order: Sequence[int]) -> Block:
    """Return the records of a block at the indexes ``order``, in this order."""
    return Block(
        [block.keys[index] for index in order],
        [block.values[index] for index in order],
        [block.timestamps[index] for index in order],
        None,
        range(len(order)),
    )


def _joined(blocks: Sequence[Block]) -> Block:
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    timestamps: list[int] = []
    for block in blocks:
        keys += block.keys
        values += block.values
        timestamps += block.timestamps
    return Block(keys, values, timestamps, None, range(len(keys)))


def origin_of(folder: Path) -> Mapping[str, Any] | None:
    """Return the snapshot marker of a state directory, or None if the directory was not created from a snapshot."""
    marker = folder / MARKER
    return dict(json.loads(marker.read_text())) if marker.exists() else None
