"""Reset of an application: offsets, internal topics, local state and, on request, outputs.

First the committed offsets are written again unchanged, which the broker rejects while the group has members.  The
new offsets are written last, so that an interrupted reset can be repeated with the same arguments.  Until then, an
application with stores refuses to start, since its changelogs end before the offsets in its offset metadata.  The
procedure follows Kafka's ``kafka-streams-application-reset``, but the number of partition groups stays: a topic that
has grown has records of one key in two partitions, which the same task must read again.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from streams.clients import EARLIEST, LANES, LANES_GROUP, LATEST, Admin, GroupNotEmptyError, internal_topics
from streams.core.blocks.records import TopicPartition
from streams.core.errors import ConfigError, ForeignFormatError, UnknownTopicError
from streams.protocol.group_messages import OffsetAndMetadata
from streams.runtime.tasks.checkpoint import own_metadata
from streams.runtime.tasks.offset_metadata import OffsetMetadata, OwnMetadata
from streams.state import StateDirectory


@frozen
class ResetTarget:
    """The target of a reset, from which offsets are computed; exactly one field is given.

    ``to`` is EARLIEST, LATEST, or a time in epoch milliseconds, which selects the first record at or after it, or
    else the log end.  ``offset`` is set for all partitions.  ``shift`` is added to the committed offset, or to the log
    start if there is none.  ``offsets`` maps partitions to offsets.  Offsets outside the log become its start or end.
    """

    to: int | None = None
    offset: int | None = None
    shift: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None

    def __attrs_post_init__(self) -> None:
        if sum(target is not None for target in (self.to, self.offset, self.shift, self.offsets)) != 1:
            raise ConfigError("reset: give exactly one of a time, an offset, a shift, and offsets by partition")

    def resolved(
        self, admin: Admin, partitions: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the new offset of each partition, limited to the bounds of its log.

        Raises:
            UnknownTopicError: ``offsets`` has a partition that is not one of ``partitions``.
        """
        starts = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = admin.list_offsets(dict.fromkeys(partitions, LATEST))
        targets: dict[TopicPartition, int] = {}
        if self.to is not None:
            at_time = admin.list_offsets(dict.fromkeys(partitions, self.to))
            targets = {place: ends[place] if offset < 0 else offset for place, offset in at_time.items()}
        elif self.offset is not None:
            targets = dict.fromkeys(partitions, self.offset)
        elif self.shift is not None:
            targets = {place: committed.get(place, starts[place]) + self.shift for place in partitions}
        elif self.offsets is not None:
            unknown = sorted(self.offsets.keys() - set(partitions))
            if unknown:
                raise UnknownTopicError(f"reset: {unknown[0]} is not a partition of an input topic of the application")
            targets = dict(self.offsets)
        return {place: min(max(offset, starts[place]), ends[place]) for place, offset in targets.items()}


@frozen
class ResetPlan:
    """The changes that a reset makes."""

    application_id: str
    #: Client ids of the members of the group.
    members: tuple[str, ...]
    #: Partition -> committed offset, or None, and the new offset.
    offsets: Mapping[TopicPartition, tuple[int | None, int]]
    internal_topics: tuple[str, ...]
    #: Partitions whose records are all deleted -> end offset.
    outputs: Mapping[TopicPartition, int]
    #: State directories of the application.
    folders: tuple[Path, ...] = field(default=())
    #: Whether the application has a group with the merge progress of bounded runs.
    has_lanes: bool = False
    #: By input topic: the number of partition groups among which its keys are divided.
    groups: Mapping[str, int] = field(factory=dict)
    #: Input topics whose offsets another release has committed, so that this number is unknown.
    ungrouped: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        admin: Admin,
        application_id: str,
        target: ResetTarget,
        *,
        topics: Iterable[str] = (),
        outputs: Iterable[str] = (),
        state_dirs: Iterable[Path] = (),
    ) -> "ResetPlan":
        """Return the plan of a reset.  ``topics`` are the input topics, by default all topics with committed offsets.

        Raises:
            UnknownTopicError: a topic does not exist, or the application has no committed offset, internal topic or
                state.
            ConfigError: a topic is an input and an output: its records would be deleted before they are read again.
        """
        names = {topic.name: len(topic.leaders) for topic in admin.all_topics()}
        group_ids = [group.group_id for group in admin.list_groups()]
        internal = tuple(topic.name for topic in internal_topics(application_id, names, group_ids))
        commits = admin.committed_offsets(application_id)
        committed = {place: item.offset for place, item in commits.items()}
        inputs = sorted(topics) or sorted({place.topic for place in committed} & names.keys() - set(internal))
        if both := sorted({*inputs} & {*outputs}):
            raise ConfigError(
                f"topic {both[0]!r} is an input of application {application_id!r}: its records would be deleted "
                "instead of being read again; leave it out of the outputs (`--output`), or, if the "
                "application writes it itself, name the other inputs (`--topic`)"
            )
        folders = tuple(
            directory.path
            for state_dir in state_dirs
            if any((directory := StateDirectory.of(state_dir, application_id)).tasks())
        )
        described = admin.describe_group(application_id)
        if not committed and not internal and not folders and not described.members:
            raise UnknownTopicError(
                f"there is no application {application_id!r}: it has no committed offsets, internal topics or state; "
                "`streams groups list` shows the groups"
            )
        ends = admin.list_offsets(dict.fromkeys(_partitions(names, outputs), LATEST))
        partitions = _partitions(names, inputs)
        offsets = target.resolved(admin, partitions, committed)
        return cls(
            application_id,
            tuple(member.client_id for member in described.members),
            {place: (committed.get(place), offset) for place, offset in sorted(offsets.items())},
            internal,
            ends,
            folders,
            application_id + LANES_GROUP in group_ids,
            *_groups_of({place: item.metadata for place, item in commits.items() if place.topic in inputs}),
        )

    def lines(self) -> list[str]:
        """Return a description of the plan, line by line."""
        return [
            *(
                f"{place}: offset {'none' if old is None else old} -> {new}"
                for place, (old, new) in self.offsets.items()
            ),
            *(
                f"topic {topic}: {count} partitions in {self.groups[topic]} partition groups, as before it grew"
                for topic, count in self._grown().items()
            ),
            *(
                f"topic {topic}: another release has committed its offsets, so that the number of its partition groups "
                "is lost; if it has grown, read it with .repartition()"
                for topic in self.ungrouped
            ),
            *(f"topic {name}: deleted" for name in self.internal_topics),
            *(f"{place}: records up to offset {end} deleted" for place, end in self.outputs.items()),
            *(f"state in {folder}: deleted" for folder in self.folders),
        ]

    def execute(
        self,
        admin: Admin,
        *,
        force: bool = False,
        set_offsets: bool = True,
    ) -> None:
        """Reset the application as planned.

        Args:
            admin: the admin client with which the plan was made.
            force: remove members from the group first.  Members that are still running rejoin, so stop them too.
            set_offsets: False keeps the offsets and all internal topics except the ``.lanes`` topics of bounded runs,
                so that a snapshot can be loaded afterwards.

        Raises:
            GroupNotEmptyError: the application is running, and ``force`` is not set.
            StateLockedError: a process uses a state directory.
        """
        if self.members and not force:
            raise GroupNotEmptyError(
                f"application {self.application_id!r} runs ({', '.join(self.members)}): stop it, or remove its members "
                "with force (`--force`)"
            )
        admin.remove_members(self.application_id)
        committed = admin.committed_offsets(self.application_id)
        if committed:
            admin.alter_offsets(self.application_id, committed)
        if self.outputs:
            admin.delete_records(dict.fromkeys(self.outputs, -1))
        if self.has_lanes:
            admin.delete_group(self.application_id + LANES_GROUP, force=True)
        for folder in self.folders:
            _clean(StateDirectory(folder))
        topics = [name for name in self.internal_topics if set_offsets or name.endswith(LANES)]
        if topics:
            admin.delete_topics(topics)
        if set_offsets and self.offsets:
            metadata = self._metadata()
            offsets = {place: OffsetAndMetadata(new, metadata[place]) for place, (_, new) in self.offsets.items()}
            admin.alter_offsets(self.application_id, offsets)

    def _grown(self) -> dict[str, int]:
        """Return the partition counts of the input topics that have more partitions than partition groups."""
        counts = Counter(place.topic for place in self.offsets)
        return {topic: counts[topic] for topic, number in self.groups.items() if counts[topic] > number}

    def _metadata(self) -> dict[TopicPartition, str]:
        """Return the metadata of the new offsets: the partition groups to which a grown topic's partitions belong."""
        grown = self._grown()
        result = {}
        for place in self.offsets:
            number = self.groups.get(place.topic)
            group = place.partition % number if number and place.topic in grown else None
            result[place] = "" if number is None else OffsetMetadata(own=OwnMetadata(group, number)).encode()
        return result


def _groups_of(metadata: Mapping[TopicPartition, str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the numbers of partition groups by topic, and the topics whose offsets another release has committed."""
    groups: dict[str, int] = {}
    others: dict[str, None] = {}
    for place, text in sorted(metadata.items()):
        try:
            number = own_metadata(text).groups
        except ForeignFormatError:
            # A reset is how to start over with this release, so that it must not fail.
            others[place.topic] = None
        else:
            groups |= {} if number is None else {place.topic: number}
    return groups, tuple(others)


def _partitions(counts: Mapping[str, int], topics: Iterable[str]) -> list[TopicPartition]:
    result = []
    for topic in topics:
        if topic not in counts:
            raise UnknownTopicError(f"there is no topic {topic!r}; `streams topics list` shows those that are there")
        result += [TopicPartition(topic, number) for number in range(counts[topic])]
    return result


def _clean(directory: StateDirectory) -> None:
    directory.lock()
    try:
        for task_id in list(directory.tasks()):
            directory.delete_task(task_id)
    finally:
        directory.unlock()
