"""Task checkpoints: stream times, due times of punctuations, and changelog formats.

A checkpoint is committed as offset metadata, in the same commit as the positions.  What Kafka Streams keeps too, it
finds and leaves there in its own form (``offset_metadata``): partition times, and up to which time closed windows have
been emitted.  The rest is behind that (``OwnMetadata``).  The module is pure.

Kafka Streams loses the schedules of punctuations at a restart: a stream-time punctuation fires again with the first
record.  Here a punctuation keeps its due time, so that a run with restarts has the same results as a run without them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from attrs import define, evolve, field, frozen

from streams.core.blocks.records import NO_TIMESTAMP, TopicPartition
from streams.runtime.tasks.offset_metadata import OffsetMetadata, OwnMetadata
from streams.state import Content
from streams.topology import EMITTED, PunctuationType, emitted_name


class TimerPlace(NamedTuple):
    """The identity of a punctuation: its node, and its number in the order in which the node's ``init`` schedules."""

    node: str
    number: int


@frozen
class CarriedTimer:
    """The saved state of a punctuation; ``due_ms`` is None if it was cancelled."""

    kind: PunctuationType
    interval_ms: int
    due_ms: int | None


@define(eq=True)
class Checkpoint:
    """The stream times and punctuations of a task, as saved with a commit.

    Times are epoch milliseconds, or -1 before the first record.
    """

    stream_time_ms: int = NO_TIMESTAMP
    partition_times: dict[TopicPartition, int] = field(factory=dict)
    #: Number of the task's partition group; a rebalance checks that the partitions stay in this group.
    group: int | None = None
    #: Stream time by node name, or by node name and operator name, separated by "/".  By "/" and the name of a store:
    #: the time up to which its closed windows have been emitted.
    operator_times: dict[str, int] = field(factory=dict)
    #: Punctuations scheduled in ``init``, in the order in which they fire; cancelled ones last.
    timers: dict[TimerPlace, CarriedTimer] = field(factory=dict)
    #: Changelog format by store; manifests leave the formats out, because a snapshot has its own.
    contents: dict[str, Content] = field(factory=dict)
    #: Changelog end offset by store at the commit, where known.
    changelog_ends: dict[str, int] = field(factory=dict)
    #: Whether ``changelog_ends`` were committed in one transaction with the offsets; manifests leave it out.
    is_exactly_once: bool = False
    #: By partition whose records reach a store: number of partition groups among which the keys of its topic are
    #: divided; manifests leave it out.
    groups: dict[TopicPartition, int] = field(factory=dict)
    #: By repartition partition: how many offsets each lane that is ahead is ahead of the committed offset.  Manifests
    #: leave it out, because a bounded run ends with all lanes at their end.
    lanes: dict[TopicPartition, Mapping[int, int]] = field(factory=dict)
    #: Highest place among the inputs that the task had processed, if its outputs are merged by place.
    place_ms: int = NO_TIMESTAMP
    #: Number of commits of the task, with this one; manifests leave it out.
    commits: int = 0

    def offset_metadata(self, partitions: list[TopicPartition]) -> dict[TopicPartition, str]:
        """Return the offset metadata of each partition.

        The metadata of the first partition also has the times and punctuations of the task.  Changelog formats are
        distributed over all partitions, within the size limit; formats that do not fit are left out.
        """
        result = {}
        ends = self.changelog_ends
        emitted, others = _parted(self.operator_times)
        changelogs = {name: [ends.get(name), *content.to_json()] for name, content in self.contents.items()}
        for index, partition in enumerate(partitions):
            own = OwnMetadata(
                self.group,
                self.groups.get(partition),
                lanes=self.lanes.get(partition, {}),
                is_exactly_once=self.is_exactly_once,
            )
            if index == 0:
                own = evolve(
                    own,
                    stream_time_ms=self.stream_time_ms,
                    operator_times=others,
                    timers=_timer_rows(self.timers),
                    place_ms=self.place_ms,
                    commits=self.commits,
                )
            entry = OffsetMetadata(self.partition_times.get(partition, NO_TIMESTAMP), emitted, own)
            result[partition] = entry.with_changelogs(changelogs).encode()
        return result

    @classmethod
    def from_metadata(cls, metadata: Mapping[TopicPartition, str]) -> "Checkpoint":
        """Return the checkpoint in the offset metadata of a task's partitions; metadata of other clients is ignored.

        If the partitions belonged to several tasks, the latest stream times are used, and the punctuations of all these
        tasks are kept.  Of a task that Kafka Streams has committed, the stream time is the latest partition time.

        Raises:
            ForeignFormatError: the metadata has a format version that this release does not support.
        """
        checkpoint = cls()
        timers: dict[TimerPlace, CarriedTimer] = {}
        for partition, text in metadata.items():
            found = OffsetMetadata.decode(text, partition) or OffsetMetadata(own=OwnMetadata())
            own = found.own or OwnMetadata(stream_time_ms=found.partition_time_ms)
            checkpoint.partition_times[partition] = found.partition_time_ms
            checkpoint.stream_time_ms = max(checkpoint.stream_time_ms, own.stream_time_ms)
            checkpoint.place_ms = max(checkpoint.place_ms, own.place_ms)
            checkpoint.commits = max(checkpoint.commits, own.commits)
            emitted = {emitted_name(name): time for name, time in found.times.items()}
            for name, time in (emitted | dict(own.operator_times)).items():
                checkpoint.operator_times[name] = max(time, checkpoint.operator_times.get(name, NO_TIMESTAMP))
            for name, (end, *row) in own.changelogs.items():
                content = Content.from_json(row)
                if content is not None:
                    checkpoint.contents[name] = content
                if end is not None:
                    checkpoint.changelog_ends[name] = max(end, checkpoint.changelog_ends.get(name, 0))
            checkpoint.is_exactly_once |= own.is_exactly_once
            if own.groups is not None:
                checkpoint.groups[partition] = own.groups
            if own.lanes:
                checkpoint.lanes[partition] = own.lanes
            for place, timer in _timers(own.timers):
                known = timers.get(place)
                if known is None or known.due_ms is None or (timer.due_ms or NO_TIMESTAMP) > known.due_ms:
                    timers[place] = timer
        checkpoint.timers = dict(sorted(timers.items(), key=lambda item: _firing_order(item[1])))
        return checkpoint

    def to_json(self) -> dict[str, Any]:
        """Return the times and punctuations as JSON values, for the manifest of a snapshot."""
        return {
            "stream_time_ms": self.stream_time_ms,
            "partition_times": [[*partition, time] for partition, time in self.partition_times.items()],
            "group": self.group,
            "operator_times": dict(self.operator_times),
            "timers": _timer_rows(self.timers),
            "place_ms": self.place_ms,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Checkpoint":
        """Return the checkpoint for JSON values that ``to_json`` has returned."""
        return cls(
            data["stream_time_ms"],
            {TopicPartition(topic, number): time for topic, number, time in data["partition_times"]},
            data["group"],
            dict(data["operator_times"]),
            dict(_timers(data["timers"])),
            place_ms=data["place_ms"],
        )


def is_of_others(metadata: str) -> bool:
    """Return whether another client or tool than this library and Kafka Streams has committed an offset."""
    return bool(metadata) and OffsetMetadata.decode(metadata) is None


def with_origin(metadata: str, origin: str) -> str:
    """Return offset metadata of this library that also names the snapshot that the offset comes from."""
    found = OffsetMetadata.decode(metadata) or OffsetMetadata()
    return evolve(found, own=evolve(found.own or OwnMetadata(), origin=origin)).encode()


def own_metadata(metadata: str) -> OwnMetadata:
    """Return what only this library has committed with an offset; nothing if another client has committed it.

    Raises:
        ForeignFormatError: the metadata has a format version that this release does not support.
    """
    found = OffsetMetadata.decode(metadata)
    return OwnMetadata() if found is None or found.own is None else found.own


def _firing_order(timer: CarriedTimer) -> tuple[bool, int]:
    return timer.due_ms is None, timer.due_ms or 0


def _timer_rows(timers: Mapping[TimerPlace, CarriedTimer]) -> list[list[Any]]:
    return [[*place, timer.kind.value, timer.interval_ms, timer.due_ms] for place, timer in timers.items()]


def _timers(rows: Sequence[list[Any]]) -> Iterable[tuple[TimerPlace, CarriedTimer]]:
    for node, number, kind, interval_ms, due_ms in rows:
        yield TimerPlace(node, number), CarriedTimer(PunctuationType(kind), interval_ms, due_ms)


def _parted(times: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the times by store up to which windows have been emitted, and all other times."""
    emitted = {name.removeprefix(EMITTED): time for name, time in times.items() if name.startswith(EMITTED)}
    return emitted, {name: time for name, time in times.items() if not name.startswith(EMITTED)}
