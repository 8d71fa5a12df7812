"""Layouts: the division of an application's partitions into partition groups, one for each task.

Partition counts may grow while an application runs.  The number of stateless tasks grows with them.  Existing state
stays divided into as many groups as its changelog has partitions, and a new partition joins the group that already has
its keys.  The module imports only ``clients``, ``core``, ``protocol`` and ``topology``
from outside ``runtime``.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from attrs import define, field

from streams.clients import progress_topic
from streams.core.blocks.records import TopicPartition
from streams.core.clock import Clock
from streams.core.errors import TopologyError
from streams.core.settings.config import StreamsConfig
from streams.protocol.group_messages import OffsetAndMetadata
from streams.runtime.plan.facts import PartitionLayout
from streams.runtime.plan.grouping import START_OVER
from streams.runtime.plan.plan import ApplicationPlan, Existing
from streams.runtime.tasks.checkpoint import own_metadata
from streams.topology import PartitionGrouper, Topology, copartitions, sub_topologies, unmatched_patterns

log = logging.getLogger(__name__)


@define(eq=False)
class Plans:
    """The plans of one application by layout; all members compute the same plan from the same layout."""

    _topology: Topology
    _config: StreamsConfig
    _clock: Clock
    _grouper: PartitionGrouper | None = None
    _has_lanes: bool = False
    _plans: dict[object, ApplicationPlan] = field(factory=dict)

    def layout(
        self,
        partition_counts: Mapping[str, int],
        committed: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({}),
        compacted: Collection[str] = (),
    ) -> PartitionLayout:
        """Return the layout for the partition counts of all topics in the cluster.

        The ``committed`` offsets have the numbers of partition groups, also where a reset has deleted all state;
        without them, the changelogs tell these numbers.  ``compacted`` topics are not read in step.

        Raises:
            TopologyError: a source topic is missing.
            ForeignFormatError: another release has committed an offset.
        """
        prefix = f"{self._config.application_id}-"
        own = (
            *(f"{prefix}{name}" for name in self._topology.internal_topics),
            progress_topic(self._config.application_id),
        )
        # Patterns do not match the application's own internal topics.
        others = {
            topic: count
            for topic, count in partition_counts.items()
            if topic not in own
            and not (topic.startswith(prefix) and topic.endswith(("-changelog", ".lanes", "-flight-recorder")))
        }
        subs = sub_topologies(self._topology, others)
        named = dict.fromkeys(topic for sub in subs for topic in sub.source_topics)
        if self._has_lanes:
            # Sink topics can have lanes too.
            named |= dict.fromkeys(topic for sub in subs for topic in sub.sink_topics)
            named |= dict.fromkeys([self._config.errors_dead_letter_queue_topic_name])
        counts = {topic: others[topic] for topic in named if topic in others}
        groups: dict[str, int] = {}
        if not self._has_lanes:
            # Existing repartition topics keep their partition counts.
            counts |= {
                name: partition_counts[f"{prefix}{name}"]
                for name in self._topology.internal_topics
                if f"{prefix}{name}" in partition_counts
            }
            for sub in subs:
                changelog_counts = [
                    partition_counts[changelog]
                    for store in sub.stores
                    if not sub.is_global
                    and store not in self._topology.source_changelogs
                    and (changelog := f"{prefix}{store}-changelog") in partition_counts
                ]
                if changelog_counts:
                    groups |= dict.fromkeys(sub.source_topics, min(changelog_counts))
            groups |= self._committed_groups(counts, committed)
        return PartitionLayout(counts, groups, tuple(sorted(compacted)))

    def _committed_groups(
        self, counts: Mapping[str, int], committed: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[str, int]:
        """Return the numbers of partition groups in the metadata of offsets, by topic.

        A topic without a committed offset has the number of the topics whose records meet its own in a store.
        """
        prefix = f"{self._config.application_id}-"
        names = {f"{prefix}{name}": name for name in self._topology.internal_topics}
        numbers: dict[str, int] = {}
        for partition, item in committed.items() if self._grouper is None else ():
            number = own_metadata(item.metadata).groups
            if number is not None:
                numbers[names.get(partition.topic, partition.topic)] = number
        groups: dict[str, int] = {}
        for joint in copartitions(self._topology):
            topics = joint.topics(self._topology, counts)
            committed_counts = {topic: numbers[topic] for topic in topics if topic in numbers}
            if committed_counts:
                groups |= dict.fromkeys(topics, min(committed_counts.values())) | committed_counts
        return groups

    def of(self, layout: PartitionLayout) -> ApplicationPlan:
        """Return the application's plan for a layout.

        Raises:
            TopologyError: a source topic is missing, inputs are not co-partitioned, or new partitions would move keys
                to groups that do not have their state.
        """
        key = layout.key()
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = ApplicationPlan.make(
                self._topology,
                self._config,
                self._clock,
                layout.partitions,
                has_lanes=self._has_lanes,
                grouper=self._grouper,
                existing=Existing(layout.groups),
            )
            plan.is_in_step = not self._has_lanes
            plan.compacted = frozenset(layout.compacted)
            log_unmatched_patterns(plan, layout.partitions)
        return plan


def log_unmatched_patterns(plan: ApplicationPlan, topics: Iterable[str]) -> None:
    """Log the sources whose patterns match no topic yet, and the repartition topics that depend on them."""
    waiting = [name for name in plan.topology.internal_topics if name not in plan.partitions]
    for source in unmatched_patterns(plan.topology, topics):
        log.warning(
            "application %s: no topic matches the pattern %r of source %s yet; it reads topics as they appear%s",
            plan.config.application_id,
            source.pattern.pattern if source.pattern is not None else "",
            source.name,
            f", and {', '.join(waiting)} will be created then" if waiting else "",
        )


def check_groups(plan: ApplicationPlan, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Check that partitions are in the same partition groups as when their offsets were committed.

    The metadata of every committed offset contains the number of its partition group.  The partitions of stateless
    tasks may be grouped differently.

    Raises:
        TopologyError: a partition would move to a partition group that does not have the state of its keys.
    """
    for task_id in plan.stateful():
        for item in plan.inputs(task_id):
            commit = committed.get(item.partition)
            group = None if commit is None else own_metadata(commit.metadata).group
            if group is not None and group != task_id.partition:
                raise TopologyError(
                    f"partition {item.partition} belonged to partition group {group} and would now belong to "
                    f"{task_id.partition} (task {task_id}), but the state of its keys is with group {group}; go back "
                    f"to the partition grouper, the group protocol and the topology of before, or {START_OVER}"
                )
