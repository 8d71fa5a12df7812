"""What the broker's topics make of the topology of a streams group: partition counts, tasks, and topics to create.

The rules are those of Kafka's coordinator (KIP-1071): a repartition topic gets the count that the application gives,
or else the largest count of the sources that lead to it; co-partitioned topics get the same count; a changelog gets the
count of tasks.  This module performs no I/O.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from attrs import evolve, field, frozen

from streams.core.errors import BrokerError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import TopicSpec
from streams.protocol.streams_group_messages import (
    CopartitionGroup,
    DescribedSubtopology,
    GroupStatus,
    GroupSubtopology,
    GroupTopology,
    StreamsStatus,
    TopicInfo,
)

_SHOWN = 3


@frozen
class ConfiguredTopology:
    """A topology whose topics were looked up.

    ``problem`` says what is wrong with the topics, or is None; ``subtopologies`` is empty if it cannot be repaired by
    creating topics.  ``missing`` are the internal topics to create.
    """

    subtopologies: Sequence[DescribedSubtopology] = ()
    #: The number of tasks of each sub-topology.
    tasks: Mapping[str, int] = field(factory=dict)
    missing: Sequence[TopicSpec] = ()
    problem: GroupStatus | None = None

    @property
    def is_ready(self) -> bool:
        """Whether all topics exist with the right partition counts."""
        return self.problem is None

    @property
    def stateful(self) -> Set[str]:
        """The sub-topologies that have state."""
        return {subtopology.subtopology_id for subtopology in self.subtopologies if subtopology.state_changelog_topics}


class _Misfit(Exception):
    """The topics cannot be used as they are."""

    def __init__(self, code: StreamsStatus, detail: str) -> None:
        self.status = GroupStatus(code, detail)


def required_topics(topology: GroupTopology) -> set[str]:
    """Return the names of all source and internal topics of a topology."""
    return {
        name
        for one in topology.subtopologies
        for name in (*sources_of(one), *(changelog.name for changelog in one.state_changelog_topics))
    }


def sources_of(subtopology: GroupSubtopology | DescribedSubtopology) -> list[str]:
    """Return the names of the topics that a sub-topology reads, including repartition topics."""
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def hash_of(topics: Mapping[str, tuple[bytes, int]]) -> int:
    """Return a hash of topics, given their ID and partition count by name; it fits into a signed 64-bit number."""
    digest = hashlib.blake2b(digest_size=8)
    for name, (topic_id, count) in sorted(topics.items()):
        digest.update(struct.pack(">16sI", topic_id, count) + name.encode() + b"\0")
    return int.from_bytes(digest.digest(), "big", signed=True) if topics else 0


def configured(topology: GroupTopology, existing: Mapping[str, int]) -> ConfiguredTopology:
    """Return what the existing topics, given by their partition counts, make of a topology.

    Raises:
        BrokerError: no partition count can be found for a repartition topic (``STREAMS_INVALID_TOPOLOGY``).
    """
    try:
        return _configured(topology, existing)
    except _Misfit as misfit:
        return ConfiguredTopology(problem=misfit.status)


def _configured(topology: GroupTopology, existing: Mapping[str, int]) -> ConfiguredTopology:
    missing = {name for one in topology.subtopologies for name in one.source_topics if name not in existing}
    if missing:
        raise _Misfit(StreamsStatus.MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing.")
    decided = _repartition_counts(topology, existing)

    def count(name: str) -> int:
        partitions = existing.get(name, decided.get(name))
        if partitions is None:
            raise _invalid(f"Number of partitions is not set for topic: {name}")
        return partitions

    fixed = {info.name for one in topology.subtopologies for info in one.repartition_source_topics if info.partitions}
    for one in topology.subtopologies:
        for group in one.copartition_groups:
            decided |= _copartitioned(_names(one, group), fixed, decided.keys(), count)
    tasks = {one.subtopology_id: max(map(count, sources_of(one)), default=0) for one in topology.subtopologies}
    if empty := [name for name, number in tasks.items() if not number]:
        raise _invalid(f"No source topics found for subtopology {empty[0]}")
    described = tuple(_described(one, decided, tasks[one.subtopology_id]) for one in topology.subtopologies)
    return _checked(described, tasks, existing)


def _checked(
    subtopologies: Sequence[DescribedSubtopology], tasks: Mapping[str, int], existing: Mapping[str, int]
) -> ConfiguredTopology:
    """Compare the internal topics with those that exist."""
    internal = {
        info.name: info
        for one in subtopologies
        for info in (*one.repartition_source_topics, *one.state_changelog_topics)
    }
    for name, info in sorted(internal.items()):
        if existing.get(name, info.partitions) != info.partitions:
            raise _Misfit(
                StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {info.partitions}, found "
                f"{existing[name]}",
            )
    missing = [info for name, info in sorted(internal.items()) if name not in existing]
    if not missing:
        return ConfiguredTopology(subtopologies, tasks)
    summary = _summary(info.name for info in missing)
    return ConfiguredTopology(
        subtopologies,
        tasks,
        tuple(TopicSpec(info.name, info.partitions, info.configs, info.replication_factor or -1) for info in missing),
        GroupStatus(StreamsStatus.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {summary}"),
    )


def _repartition_counts(topology: GroupTopology, existing: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of all repartition topics: those that are given, and those that follow from the sources."""
    counts = {
        info.name: info.partitions
        for one in topology.subtopologies
        for info in one.repartition_source_topics
        if info.partitions
    }
    waiting = [(sink, one) for one in topology.subtopologies for sink in one.repartition_sink_topics]
    while waiting:
        left = []
        for sink, one in waiting:
            source_counts = [counts[info.name] for info in one.repartition_source_topics if info.name in counts]
            source_counts += (existing[name] for name in one.source_topics)
            if sink in counts:
                continue
            if source_counts:
                counts[sink] = max(source_counts)
            else:
                left.append((sink, one))
        if len(left) == len(waiting):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                "topology that cannot be resolved."
            )
        waiting = left
    for one in topology.subtopologies:
        for info in one.repartition_source_topics:
            if info.name not in counts:
                raise _invalid(
                    "Failed to compute number of partitions for all repartition topics, because repartition source "
                    f"topic {info.name} is never used as a sink topic."
                )
    return counts


def _copartitioned(
    names: Set[str], fixed: Set[str], repartition: Set[str], count: Callable[[str], int]
) -> dict[str, int]:
    """Return the count of the repartition topics of one co-partition group."""
    counts = {name: count(name) for name in sorted(names)}
    internal = {name: counts[name] for name in counts if name in repartition}
    external = {name: counts[name] for name in counts if name not in repartition}
    deciding = external or {name: counts[name] for name in internal if name in fixed}
    if len(set(deciding.values())) > 1:
        listed = ", ".join(f"{name}={number}" for name, number in (external or internal).items())
        raise _Misfit(
            StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    agreed = next(iter(deciding.values())) if deciding else max(internal.values(), default=0)
    for name, number in internal.items():
        if name in fixed and number != agreed:
            raise _Misfit(
                StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{number}] of repartition topic [{name}] doesn't match number of partitions "
                f"[{agreed}] of the source topic.",
            )
    return dict.fromkeys(internal, agreed)


def _names(subtopology: GroupSubtopology, group: CopartitionGroup) -> set[str]:
    return {
        *(subtopology.source_topics[index] for index in group.source_topics),
        *(subtopology.repartition_source_topics[index].name for index in group.repartition_source_topics),
    }


def _described(subtopology: GroupSubtopology, counts: Mapping[str, int], tasks: int) -> DescribedSubtopology:
    return DescribedSubtopology(
        subtopology.subtopology_id,
        tuple(sorted(subtopology.source_topics)),
        tuple(sorted(subtopology.repartition_sink_topics)),
        _sized(subtopology.state_changelog_topics, lambda info: tasks),
        _sized(subtopology.repartition_source_topics, lambda info: info.partitions or counts[info.name]),
    )


def _sized(topics: Sequence[TopicInfo], count: Callable[[TopicInfo], int]) -> tuple[TopicInfo, ...]:
    return tuple(evolve(info, partitions=count(info)) for info in sorted(topics, key=lambda info: info.name))


def _invalid(reason: str) -> BrokerError:
    return BrokerError(reason, code=ErrorCode.STREAMS_INVALID_TOPOLOGY)


def _summary(names: Iterable[str]) -> str:
    ordered = sorted(names)
    rest = len(ordered) - _SHOWN
    return ", ".join(ordered[:_SHOWN]) + (f" and {rest} additional topics" if rest > 0 else "")
