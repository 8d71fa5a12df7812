"""The topology of an application as its streams group knows it, equal to what Kafka Streams sends (KIP-1071).

The broker compares the topologies of all members, so sub-topologies, topics and topic settings must be those of Kafka
Streams.  The module imports only ``protocol`` and ``topology`` from outside ``runtime``.
"""

from collections.abc import Iterable, Sequence

from streams.protocol.streams_group_messages import (
    CopartitionGroup,
    GroupSubtopology,
    GroupTopology,
    TopicInfo,
)
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.plan.topic_configs import REPARTITION_CONFIG, changelog_config
from streams.topology import SourceNode, SubTopology, copartitions, joined_sources


def group_topology(plan: ApplicationPlan) -> GroupTopology:
    """Return the sub-topologies of an application, without those of global stores, which have no tasks.

    The broker derives the partition counts of changelogs, and of repartition topics without a declared count.  All
    sequences are tuples, as in the topology that the broker of this process reads from its log and compares.
    """
    subs = [sub for sub in plan.subs if not sub.is_global]
    groups = _copartition_groups(plan)
    return GroupTopology(0, tuple(_sub_topology(plan, sub, groups) for sub in subs))


def _sub_topology(plan: ApplicationPlan, sub: SubTopology, groups: Sequence[frozenset[str]]) -> GroupSubtopology:
    topology = plan.topology
    replicas = plan.config.replication_factor
    sources = tuple(sorted(topic for topic in sub.source_topics if not plan.is_internal(topic)))
    internal = sorted((topic for topic in sub.source_topics if plan.is_internal(topic)), key=plan.physical_topic)
    names = tuple(map(plan.physical_topic, internal))
    changelogs = {
        plan.changelog(store): dict(sorted(changelog_config(topology.stores[store]).items()))
        for store in sub.stores
        if topology.stores[store].has_changelog
    }
    return GroupSubtopology(
        str(sub.id),
        sources,
        (),
        tuple(TopicInfo(name, 0, replicas, configs) for name, configs in sorted(changelogs.items())),
        tuple(sorted(plan.physical_topic(topic) for topic in sub.sink_topics if plan.is_internal(topic))),
        tuple(
            TopicInfo(name, topology.internal_topics[topic].partitions or 0, replicas, _REPARTITION)
            for name, topic in zip(names, internal, strict=True)
        ),
        tuple(
            CopartitionGroup(_indexes(sources, group), (), _indexes(names, group))
            for group in groups
            if group <= {*sources, *names}
        ),
    )


def _indexes(topics: Sequence[str], group: frozenset[str]) -> tuple[int, ...]:
    return tuple(number for number, topic in enumerate(topics) if topic in group)


_REPARTITION = dict(sorted(REPARTITION_CONFIG.items()))


def _copartition_groups(plan: ApplicationPlan) -> list[frozenset[str]]:
    """Return the sets of topics that must have equal partition counts; sets with common topics are one."""
    groups: list[frozenset[str]] = []
    for sources in _joint_sources(plan):
        group = frozenset(plan.physical_topic(topic) for topic in _topics(plan, sources))
        common = [other for other in groups if other & group]
        groups = [other for other in groups if not other & group]
        groups.append(group.union(*common))
    return sorted(groups, key=sorted)


def _joint_sources(plan: ApplicationPlan) -> list[frozenset[str]]:
    """Return the co-partitioned sources that the broker has to know of.

    Kafka Streams tells it of joins and cogroups only.  Other state matters to the broker if it gives a repartition
    topic a count that the broker would not find otherwise.
    """
    result = joined_sources(plan.topology)
    joined = {topic for sources in result for topic in _topics(plan, sources)}
    for joint in copartitions(plan.topology):
        topics = set(joint.topics(plan.topology, plan.partitions)) - joined
        if any(_takes_other_count(plan, topic) for topic in topics):
            result.append(joint.sources)
    return result


def _takes_other_count(plan: ApplicationPlan, topic: str) -> bool:
    """Return whether the count of a repartition topic differs from the largest count of the topics that lead to it."""
    internal = plan.topology.internal_topics.get(topic)
    if internal is None or internal.partitions is not None:
        return False
    upstream = (name for sub in plan.subs if topic in sub.sink_topics for name in sub.source_topics)
    return plan.partitions[topic] != max(plan.partitions[name] for name in upstream)


def _topics(plan: ApplicationPlan, sources: Iterable[str]) -> Iterable[str]:
    for name in sources:
        node = plan.topology.nodes.get(name)
        if isinstance(node, SourceNode):
            yield from node.topics
