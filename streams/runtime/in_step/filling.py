"""The end of a bounded run: the records of lanes are appended to the topics to which several tasks write.

A lane contains the records that one task has written to a partition.

The records of a further run are appended after the existing records, whose offsets never change.  The records of each
run are merged in the order in which the tasks of that run have read them (see ``lanes``).

Before a merge, the lanes and the end offset of the topic are stored as committed offsets of a separate group.  After a
crash the next run continues from them, since the same lanes always merge in the same order.  The module imports only
``clients``, ``core`` and ``protocol`` from outside ``runtime``.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from attrs import define, evolve, field

from streams.clients import LANES_GROUP, Admin
from streams.core.blocks.records import NO_TIMESTAMP, Block, TopicPartition
from streams.core.errors import ForeignFormatError, TopologyError
from streams.protocol.group_messages import OffsetAndMetadata
from streams.runtime.plan.plan import ApplicationPlan, InternalTopicPlan
from streams.runtime.tasks.checkpoint import Checkpoint, own_metadata
from streams.runtime.tasks.lanes import merge_lanes

#: Format version of the offset metadata.
_VERSION = 1


class Logs(Protocol):
    """The broker logs of a bounded run."""

    def topics(self) -> dict[str, int]:
        """Return the number of partitions per topic."""
        ...

    def end_offset(self, partition: TopicPartition) -> int:
        """Return the log end offset of a partition."""
        ...

    def read(
        self, partition: TopicPartition, offset: int, max_records: int = ..., *, committed_only: bool = ...
    ) -> list[Block]:
        """Return blocks of records that start at an offset, or [] at the end of the log."""
        ...

    def append(self, partition: TopicPartition, block: Block) -> int:
        """Append a block of records, and return the offset of its first record."""
        ...

    def delete_records(self, partition: TopicPartition, offset: int) -> int:
        """Delete the records before an offset, and return the log start offset."""
        ...


@define(eq=False)
class LaneFilling:
    """Appends the records of the lanes of one application to their topics."""

    plan: ApplicationPlan
    logs: Logs
    admin: Admin
    _group: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._group = self.plan.config.application_id + LANES_GROUP

    def take_up(self) -> None:
        """Finish the merge of an earlier run that was killed, and check for external records that no task has read.

        Raises:
            TopologyError: another client has written to a topic that tasks both read and write, and no task has read
                its records; or the lanes of an earlier run do not match this topology.
        """
        self._know_chosen_topics()
        self._finish()
        if not self.plan.fed:
            return
        committed = self.admin.committed_offsets(self.plan.config.application_id)
        for partition in self._fed():
            commit = committed.get(partition)
            unread = self.logs.end_offset(partition) - (0 if commit is None else commit.offset)
            if unread:
                raise TopologyError(
                    f"{partition} has {unread} unread records of other producers: a bounded run reads a topic that its "
                    "own tasks write only from these tasks and from inputs; run live until these records are read, or "
                    "use another state directory"
                )

    def fill(self) -> None:
        """Append to each partition the records that its lanes have received since the last merge."""
        before = self.admin.committed_offsets(self._group)
        metadata: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic in self.plan.lanes:
            if not self.plan.is_internal(topic):
                for number in range(self.plan.partitions[topic]):
                    metadata |= self._span_metadata(TopicPartition(topic, number), before)
        if metadata:
            self.admin.alter_offsets(self._group, metadata)
            self._finish()
        if self.plan.fed:
            self._hand_over()

    def _know_chosen_topics(self) -> None:
        """Add topics to the plan that earlier runs have chosen for records, as the last run may have been killed."""
        existing = self.logs.topics()

        def check(plan: InternalTopicPlan) -> None:
            if existing.get(plan.name) != plan.partitions:
                raise TopologyError(
                    f"topic {plan.name!r} has {existing.get(plan.name)} partitions, but the topology needs "
                    f"{plan.partitions}: different tasks write it now; start with a new state directory"
                )

        for name in existing:
            topic = self.plan.topic_of_lanes(name)
            if topic in existing and topic not in self.plan.partitions:
                self.plan.add_topic(topic, existing[topic], check)

    def _span_metadata(
        self, target: TopicPartition, before: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit before lanes are merged into ``target``, or {} if there are no new records."""
        spans = {
            lane: (before[lane].offset if lane in before else 0, self.logs.end_offset(lane))
            for lane in self.plan.stored_in(target)
        }
        if all(start == end for start, end in spans.values()):
            return {}
        at = self.logs.end_offset(target)
        return {
            lane: OffsetAndMetadata(start, json.dumps({"v": _VERSION, "to": end, "into": target, "at": at}))
            for lane, (start, end) in spans.items()
        }

    def _finish(self) -> None:
        """Execute the merges stored in the committed offsets, and commit their completion."""
        spans: dict[tuple[TopicPartition, int], dict[TopicPartition, tuple[int, int]]] = {}
        for lane, commit in sorted(self.admin.committed_offsets(self._group).items()):
            if commit.metadata:
                span = self._read_span(lane, commit.metadata)
                target = TopicPartition(*span["into"])
                spans.setdefault((target, span["at"]), {})[lane] = (commit.offset, span["to"])
        for (target, at), lanes in spans.items():
            self._merge(target, at, lanes)
        ends = {lane: end for lanes in spans.values() for lane, (_, end) in lanes.items()}
        if ends:
            self.admin.alter_offsets(self._group, ends)
        for lane, end in ends.items():
            self.logs.delete_records(lane, end)

    def _read_span(self, lane: TopicPartition, text: str) -> dict[str, Any]:
        try:
            span = json.loads(text)
        except ValueError:
            span = None
        if not isinstance(span, dict) or span.get("v") != _VERSION:
            raise ForeignFormatError(
                f"group {self._group!r}: the committed offset of {lane} has metadata {text[:200]!r}, which this "
                f"release of streams has not written (version {_VERSION}); finish the run with the release that began "
                "it, or start with a new state directory",
                what="metadata of lanes being merged",
                topic=lane.topic,
                partition=lane.partition,
            )
        return span

    def _merge(self, target: TopicPartition, at: int, lanes: Mapping[TopicPartition, tuple[int, int]]) -> None:
        # Skip the records that were appended before the process was killed.
        done = self.logs.end_offset(target) - at
        for block in merge_lanes([self._read(lane, *span) for lane, span in lanes.items() if span[0] < span[1]]):
            if done < len(block):
                fresh = block.slice(done) if done else block
                # Sequence numbers are those of the lane, so they are not copied.
                self.logs.append(target, evolve(fresh, producer=None))
            done = max(0, done - len(block))

    def _read(self, lane: TopicPartition, start: int, end: int) -> Iterator[Block]:
        while start < end:
            blocks = self.logs.read(lane, start, committed_only=True)
            if not blocks:
                return
            yield from blocks
            start = blocks[-1].offsets[-1] + 1

    def _fed(self) -> Iterable[TopicPartition]:
        counts = self.plan.partitions
        return (TopicPartition(topic, number) for topic in sorted(self.plan.fed) for number in range(counts[topic]))

    def _hand_over(self) -> None:
        """Commit the end offsets of topics that tasks both read and write, so that later live runs continue there."""
        group = self.plan.config.application_id
        committed = self.admin.committed_offsets(group)
        offsets = {}
        for partition in self._fed():
            metadata = {lane: committed[lane].metadata for lane in self.plan.stored_in(partition) if lane in committed}
            times = Checkpoint.from_metadata(metadata)
            number = next((own.group for own in map(own_metadata, metadata.values()) if own.group is not None), None)
            groups = dict.fromkeys([partition], max(times.groups.values())) if times.groups else {}
            highest = max(times.partition_times.values(), default=NO_TIMESTAMP)
            merged = evolve(times, partition_times={partition: highest}, group=number, groups=groups)
            text = merged.offset_metadata([partition])[partition]
            offsets[partition] = OffsetAndMetadata(self.logs.end_offset(partition), text)
        self.admin.alter_offsets(group, offsets)
