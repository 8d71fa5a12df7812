"""Publishes replay outputs to topics, exactly once, with their event times, headers and partitions.

Records and progress are written in one transaction; the progress is stored as committed offsets of a consumer
group named after the snapshot (``published``).  If publishing is killed and run again, it continues after the last
committed record.  The next snapshot of the same replay continues after the records of the previous snapshot.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from attrs import define, evolve, field

from streams.clients import Admin, GroupMetadata, Producer
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import ConfigError
from streams.core.topic import TopicLike, topic_names
from streams.core.user_code import refuse_unawaited
from streams.protocol.messages import TopicSpec
from streams.protocol.transport import Cluster
from streams.replay.calls.outputs import lanes_of, output_partitions, output_topics
from streams.replay.errors import ReplayError, SnapshotError
from streams.replay.handover.corrections import LastRecords, PublishedEnd, corrections
from streams.replay.handover.published import OutputDigest, Point, Published, find_published, group_prefix
from streams.replay.handover.snapshot import Snapshot
from streams.replay.history.archive import broker_source
from streams.replay.storage.places import Place

logger = logging.getLogger(__name__)

#: Bytes of keys and values per block; below the default maximum message size of a cluster (1 MiB).
_BLOCK_BYTES = 500_000

#: Called with the topic, the number of records committed so far, and the total.
Listener = Callable[[str, int, int], None]


def publish(
    snapshot: Snapshot | str | os.PathLike[str],
    broker: Cluster,
    *,
    topics: "Iterable[TopicLike] | None" = None,
    corrects: bool = False,
    transaction_records: int = 50_000,
    on_progress: Listener = lambda topic, count, total: None,
) -> dict[str, int]:
    """Publish the outputs of a snapshot to topics of a broker; return the number of records sent to each.

    ``topics`` are the topics to publish (default: all that the topology writes).  Missing topics are created with the
    partition count of the replay.  A transaction ends with the block that reaches ``transaction_records``.
    Consumers that read committed records see each record once, however often publishing was killed and run
    again, as long as the broker keeps the offsets of the group (Kafka: seven days after the last commit).

    If an earlier snapshot of the same replay was published, only further records are published.  If the end of the
    earlier run was computed again in another order, each record is still published once, except those of a key whose
    own records have changed: of these, the records from the first change on.  After a repair, the
    published records may no longer be the first records of the outputs.  With ``corrects``, such a partition is
    corrected as a table: the last record of each key is published if it differs from that in the topic, and a tombstone
    for each key that the outputs do not have.  This needs 100 to 200 bytes of memory for each key of a partition.

    Raises:
        SnapshotError: the snapshot is damaged or was saved without outputs.
        ReplayError: a topic is not one of the outputs, has another partition count, or already has the outputs of
            another replay of the application or of a later snapshot; or a partition has to be corrected and
            ``corrects`` is not set; or it cannot be corrected, since some records have no key or another producer.
        ProducerFencedError: the same replay is being published elsewhere.
    """
    refuse_unawaited(on_progress, "on_progress of publish", error=ConfigError)
    if not isinstance(snapshot, Snapshot):
        snapshot = Snapshot.open(Place(os.fspath(snapshot)))
    totals = _totals(snapshot, topics)
    group = publish_group(snapshot)
    with Admin(broker, client_id=group) as admin:
        _make_topics(admin, snapshot, totals)
        find_published(admin, snapshot, totals, group)
        transactional_id = f"{group_prefix(snapshot)}{snapshot.replay or snapshot.id}"
        with Producer(broker, client_id=group, transactional_id=transactional_id) as producer:
            # This comes first: it fences an earlier attempt and aborts its open transaction.
            producer.init_transactions()
            published = find_published(admin, snapshot, totals, group)
            run = _Publishing(broker, producer, snapshot, published, transaction_records, on_progress)
            starts = {topic: run.starts(topic, corrects=corrects) for topic in totals}
            return {topic: run.publish(topic, total, starts[topic]) for topic, total in totals.items()}


def publish_group(snapshot: Snapshot) -> str:
    """Return the consumer group whose offsets record the progress of a snapshot."""
    return f"{group_prefix(snapshot)}{snapshot.id}"


@define(eq=False)
class _Start:
    """The point from which a partition is published: the progress so far, and the digest of the outputs before it."""

    progress: Published
    digest: OutputDigest = field(factory=OutputDigest)
    #: Whether the published records are not the first ones of the outputs, and have to be corrected.
    is_other: bool = False
    #: Whether the end of the published records was computed again: the outputs after the last point of the progress.
    is_end_other: bool = False


@define(eq=False)
class _Publishing:
    """Publishes the output topics of one snapshot; ``known`` has the records published before, by partition."""

    _broker: Cluster
    _producer: Producer
    _snapshot: Snapshot
    _known: Mapping[TopicPartition, Published]
    _transaction_records: int
    _on_progress: Listener

    def starts(self, topic: str, *, corrects: bool) -> dict[TopicPartition, _Start]:
        """Return the point from which each partition of a topic is published.

        Raises:
            ReplayError: a partition has to be corrected, and ``corrects`` is not set.
        """
        numbers = {at.partition for at in self._known if at.topic == topic}
        numbers |= {*output_partitions(self._snapshot.outputs, topic)}
        result = {at: self._start(at) for at in (TopicPartition(topic, number) for number in sorted(numbers))}
        for at, start in result.items():
            if start.is_other and not corrects:
                raise ReplayError(
                    f"{at}: {start.progress.count:,} records of snapshot {self._known[at].snapshot} of this replay "
                    "were published, which are no longer the first records of the outputs, since late rows were "
                    "repaired; to publish the last record of each key that has changed, give corrects=True "
                    "(--corrections)"
                )
        return result

    def _start(self, at: TopicPartition) -> _Start:
        own = self._snapshot
        start = _Start(Published(own.id, 0, parent=own.parent, replay=own.replay, order=own.order))
        progress = self._known.get(at)
        if progress is None:
            return self._with_point(at, start)
        start.progress = evolve(
            start.progress, count=progress.count, digest=progress.digest, sent=progress.sent, points=progress.points
        )
        reached: list[tuple[Point, OutputDigest]] = []
        points = {point.count: point for point in progress.points}
        for block in (*_split(_before(self._outputs(at), progress.count), sorted(points)), Block([], [], [])):
            point = points.get(start.digest.count)
            if (
                point is not None
                and point.digest == start.digest.text()
                and point not in [passed for passed, _ in reached]
            ):
                reached.append((point, start.digest.copy()))
            start.digest.add(block)
        is_same = progress.digest in ("", start.digest.text()) and start.digest.count == progress.count
        if is_same and not progress.is_correcting:
            return start if progress.snapshot == own.id else self._with_point(at, start)
        if progress.is_correcting or progress.order[0] != own.order[0] or not reached:
            start.is_other = True
            return start
        start.is_end_other = True
        start.digest = reached[-1][1]
        start.progress = evolve(start.progress, points=tuple(point for point, _ in reached))
        return start

    def _with_point(self, at: TopicPartition, start: _Start) -> _Start:
        """Note that a run publishes from here."""
        with broker_source(self._broker, at) as source:
            point = Point(start.digest.count, start.digest.text(), start.progress.sent, source.end)
        start.progress = start.progress.after(point)
        return start

    def _outputs(self, at: TopicPartition) -> Iterator[Block]:
        outputs = self._snapshot.outputs
        return self._snapshot.segments.merged(lanes_of(outputs, at))

    def publish(self, topic: str, total: int, starts: Mapping[TopicPartition, _Start]) -> int:
        """Publish the remaining records of one topic; return the number of records sent.

        Raises:
            ReplayError: a partition cannot be corrected.
        """
        sent = 0
        before = sum(start.digest.count for start in starts.values() if not start.is_other)
        self._on_progress(topic, before, total)
        for at, start in starts.items():
            for count in self._sent(at, start):
                sent += count
                self._on_progress(topic, before + sent, total)
        return sent

    def _sent(self, at: TopicPartition, start: _Start) -> Iterator[int]:
        if start.is_other:
            yield from self._correct(at, start)
            return
        if start.is_end_other:
            yield self._replace_end(at, start)
        yield from self._continue(at, start)

    def _replace_end(self, at: TopicPartition, start: _Start) -> int:
        """Send what the topic needs where the end of the previous run was computed again; return the records sent.

        This is one transaction, so that the end is compared with the topic once.

        Raises:
            ReplayError: the end of the topic has records of other producers.
        """
        point = start.progress.points[-1]
        with broker_source(self._broker, at) as source:
            published = PublishedEnd.of(_until(source.read(max(point.offset, source.start)), source.end))
        _refuse_foreign(at, published.count - (start.progress.sent - point.sent))

        def outputs() -> Iterator[Block]:
            return _after(self._outputs(at), point.count)

        reached = published.reach(outputs())
        missing = published.missing(_before(outputs(), reached))
        for block in _before(outputs(), reached):
            start.digest.add(block)
        start.progress = evolve(start.progress, count=start.digest.count, digest=start.digest.text())
        blocks = missing.blocks(lambda: _before(self._outputs(at), point.count), _before(outputs(), reached))
        count = self._send(at, (part for block in blocks for part in _parts(block)), start)
        logger.info("%s: the end of the previous run was computed again in another order; %d records sent", at, count)
        return count

    def _continue(self, at: TopicPartition, start: _Start) -> Iterator[int]:
        """Send the records that are not published yet; yield the number of records of each transaction."""
        for chunk in _chunks(_after(self._outputs(at), start.progress.count), self._transaction_records):
            for block in chunk:
                start.digest.add(block)
            start.progress = evolve(start.progress, count=start.digest.count, digest=start.digest.text())
            yield self._send(at, chunk, start)

    def _correct(self, at: TopicPartition, start: _Start) -> Iterator[int]:
        """Send the records that correct a partition as a table; yield the number of records of each transaction.

        Raises:
            ReplayError: the partition has records without a key, or of other producers.
        """
        with broker_source(self._broker, at) as source:
            topic = LastRecords.of(at, _until(source.read(source.start), source.end))
        _refuse_foreign(at, topic.count - start.progress.sent)
        start.progress = evolve(start.progress, is_correcting=True, points=())
        blocks = corrections(at, lambda: self._outputs(at), topic)
        for chunk in _chunks(blocks, self._transaction_records):
            yield self._send(at, chunk, start)
        start.digest = OutputDigest()
        for block in self._outputs(at):
            start.digest.add(block)
        start.progress = evolve(
            start.progress, count=start.digest.count, digest=start.digest.text(), is_correcting=False
        )
        yield self._send(at, [], start)

    def _send(self, at: TopicPartition, blocks: Iterable[Block], start: _Start) -> int:
        """Send blocks and commit the progress in one transaction; return the number of records."""
        count = 0
        with self._producer.transaction():
            for block in blocks:
                self._producer.send_block(at, block)
                count += len(block)
            start.progress = evolve(start.progress, sent=start.progress.sent + count)
            group = GroupMetadata(publish_group(self._snapshot))
            self._producer.send_offsets_to_transaction({at: start.progress.committed()}, group)
        return count


def _refuse_foreign(at: TopicPartition, count: int) -> None:
    if count > 0:
        raise ReplayError(
            f"{at}: cannot be corrected: it has {count:,} records that were not published by `streams publish`, such "
            "as those of a live application; publish to another broker"
        )


def _split(blocks: Iterable[Block], counts: Sequence[int]) -> Iterator[Block]:
    """Yield the records as blocks that end at each of the ``counts``, which are ascending."""
    left = deque(counts)
    start = 0
    for block in blocks:
        done = 0
        while left and left[0] < start + len(block):
            place = left.popleft() - start
            if place > done:
                yield block.slice(done, place)
                done = place
        yield block.slice(done) if done else block
        start += len(block)


def _before(blocks: Iterable[Block], count: int) -> Iterator[Block]:
    """Yield the first ``count`` records, as blocks."""
    for block in blocks:
        if count <= 0:
            return
        yield block.slice(0, count) if count < len(block) else block
        count -= len(block)


def _until(blocks: Iterable[Block], end: int) -> Iterator[Block]:
    """Yield the records with offsets below ``end``, as blocks."""
    for block in blocks:
        size = sum(offset < end for offset in block.offsets)
        if size:
            yield block.slice(0, size)
        if size < len(block):
            return


def _after(blocks: Iterable[Block], position: int) -> Iterator[Block]:
    """Yield the blocks without their first ``position`` records."""
    for block in blocks:
        if position < len(block):
            yield block.slice(position) if position else block
        position = max(0, position - len(block))


def _chunks(blocks: Iterable[Block], records: int) -> Iterator[list[Block]]:
    """Divide blocks among transactions, and yield the blocks of each; no block exceeds the maximum message size."""
    chunk: list[Block] = []
    count = 0
    for block in blocks:
        for part in _parts(block):
            chunk.append(part)
            count += len(part)
            if count >= records:
                yield chunk
                chunk = []
                count = 0
    if chunk:
        yield chunk


def _parts(block: Block) -> Iterator[Block]:
    start = size = 0
    for index, (key, value) in enumerate(zip(block.keys, block.values, strict=True)):
        size += len(key or b"") + len(value or b"")
        if size >= _BLOCK_BYTES:
            yield block.slice(start, index + 1)
            start = index + 1
            size = 0
    if start < len(block):
        yield block.slice(start) if start else block


# --- checks ---------------------------------------------------------------------------------


def _totals(snapshot: Snapshot, topics: "Iterable[TopicLike] | None") -> dict[str, int]:
    """Return the topics to publish with their record counts.

    Raises:
        SnapshotError: the outputs were not saved.
        ReplayError: a topic is not one of the outputs.
    """
    sinks = sorted({*snapshot.structure["sinks"], *output_topics(snapshot.outputs)})
    names = sinks if topics is None else list(dict.fromkeys(topic_names(topics, "publish()", ReplayError)))
    for name in names:
        if name not in sinks:
            raise ReplayError(f"{snapshot.root}: has no output topic {name!r}; it has {', '.join(sinks) or 'none'}")
    for task, ends in snapshot.state.ends.items():
        for (kind, at), end in ends.items():
            stored = sum(extent.rows for extent in snapshot.outputs.get((at, str(task)), ()))
            if kind == "sink" and at.topic in names and stored != end:
                raise SnapshotError(
                    f"{snapshot.root}: keeps {stored:,} of the {end:,} records that task {task} wrote to {at}: it was "
                    "saved without outputs; save it with them"
                )
    totals = dict.fromkeys(names, 0)
    for (at, _), extents in snapshot.outputs.items():
        if at.topic in totals:
            totals[at.topic] += sum(extent.rows for extent in extents)
    return totals


def _make_topics(admin: Admin, snapshot: Snapshot, names: Iterable[str]) -> None:
    """Create the output topics that do not exist.

    Raises:
        ReplayError: an existing topic has another partition count than in the replay.
    """
    existing = set(admin.list_topics())
    for name in names:
        highest = max(output_partitions(snapshot.outputs, name), default=0)
        partitions = snapshot.partitions.get(name, highest + 1)
        if name not in existing:
            admin.create_topics([TopicSpec(name, partitions)], exist_ok=True)
        count = len(admin.describe_topics([name])[name].leaders)
        if count != partitions:
            raise ReplayError(
                f"topic {name!r} has {count} partitions, the replay wrote {partitions}; replay with that count, or "
                "publish to a topic made for it"
            )
