"""How an instance gets its tasks: from the leader of its group, or from the broker.

The setting ``group_protocol`` chooses.  A membership prepares the topics before the threads start, and creates the
assignment of each thread, which the thread treats in the same way.  The module imports only ``core`` and ``topology``
from outside ``runtime``.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from attrs import frozen

from streams.core.blocks.records import TopicPartition
from streams.core.errors import ConfigError, TopologyError
from streams.core.settings.config import StreamsConfig
from streams.protocol.group_messages import OffsetAndMetadata
from streams.runtime.assignment.assignment import Blueprint, StreamsAssignor, TaskAssignment
from streams.runtime.assignment.broker_assignment import BrokerAssignment
from streams.runtime.in_step.progress_records import PROGRESS_CONFIG, progress_partition
from streams.runtime.plan.facts import PartitionLayout
from streams.runtime.plan.layout import Plans, check_groups
from streams.runtime.plan.plan import ApplicationPlan, InternalTopicPlan
from streams.runtime.plan.provisioning import Provisioner
from streams.runtime.plan.sharing import SharingRules
from streams.runtime.stores.losses import check_inputs
from streams.runtime.tasks.recording import recorder_config, recorder_topic
from streams.topology import PartitionGrouper, Topology


class GroupMembership(Protocol):
    """The membership of an instance in its group."""

    def plan(self, partition_counts: Mapping[str, int]) -> ApplicationPlan:
        """Return the plan of the application for the partition counts of all topics in the cluster.

        Raises:
            TopologyError: a source topic is missing, inputs are not co-partitioned, or new partitions would move keys
                to groups that do not have their state.
        """
        ...

    def prepare(self, plan: ApplicationPlan, partition_counts: Mapping[str, int]) -> None:
        """Check the internal topics before the threads start, and create those that nobody else creates.

        Raises:
            TopologyError: an internal topic does not fit the topology.
        """
        ...

    def assignment(self, plan: ApplicationPlan) -> TaskAssignment:
        """Return the assignment of a new thread."""
        ...


@frozen(eq=False)
class LeaderMembership:
    """Membership in a classic group: the leader, which is one of the threads, assigns the tasks."""

    _config: StreamsConfig
    _plans: Plans
    _provisioner: Provisioner
    _is_bounded: bool = False

    def plan(self, partition_counts: Mapping[str, int]) -> ApplicationPlan:
        """Return the plan, in which new partitions join the groups that have the state of their keys."""
        return self._plans.of(self._layout(partition_counts, self._provisioner.committed()))

    def _layout(
        self, counts: Mapping[str, int], committed: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> PartitionLayout:
        compacted = () if self._is_bounded else self._provisioner.compacted(counts)
        return self._plans.layout(counts, committed, compacted)

    def prepare(self, plan: ApplicationPlan, partition_counts: Mapping[str, int]) -> None:
        """Create the missing internal topics, and check the existing ones."""
        own = () if self._is_bounded else _own_topics(self._config, plan)
        self._provisioner.provide([*plan.internal_topics(), *own], partition_counts)

    def assignment(self, plan: ApplicationPlan) -> StreamsAssignor:
        """Return the assignor of a new thread, which may become the leader."""
        return StreamsAssignor(self._blueprint, SharingRules.of(self._config))

    def _blueprint(self, _: Mapping[str, int]) -> Blueprint:
        """Look up the source topics, create or check the internal topics, and return the input of an assignment."""
        partition_counts = self._provisioner.partition_counts()
        committed = self._provisioner.committed()
        layout = self._layout(partition_counts, committed)
        plan = self._plans.of(layout)
        self.prepare(plan, partition_counts)
        _check_committed(plan, committed, self._provisioner, is_bounded=self._is_bounded)
        return Blueprint(layout, plan.bundles(), plan.stateful())


@frozen(eq=False)
class BrokerMembership:
    """Membership in a streams group: the broker assigns the tasks and creates their internal topics (KIP-1071)."""

    _config: StreamsConfig
    _plans: Plans
    _provisioner: Provisioner

    def plan(self, partition_counts: Mapping[str, int]) -> ApplicationPlan:
        """Return the plan, in which each partition has a task, as the broker assigns them."""
        return self._plans.of(self._plans.layout(partition_counts))

    def prepare(self, plan: ApplicationPlan, partition_counts: Mapping[str, int]) -> None:
        """Check the existing internal topics; the broker creates the missing ones when the first member joins."""
        existing = [topic for topic in plan.internal_topics() if topic.name in partition_counts]
        self._provisioner.provide([*existing, *_own_topics(self._config, plan)], partition_counts)
        _check_committed(plan, self._provisioner.committed(), self._provisioner)

    def assignment(self, plan: ApplicationPlan) -> BrokerAssignment:
        return BrokerAssignment(self._plans, plan)


def membership_of(
    config: StreamsConfig,
    topology: Topology,
    plans: Plans,
    provisioner: Provisioner,
    grouper: PartitionGrouper | None,
) -> GroupMembership:
    """Return the membership of a live instance.

    Raises:
        ConfigError: a partition grouper is given, but the broker groups the partitions.
        TopologyError: a source has a pattern, which brokers do not support in streams groups yet.
    """
    if config.group_protocol == "classic":
        return LeaderMembership(config, plans, provisioner)
    if grouper is not None:
        raise ConfigError(
            "group_protocol=streams with grouper=: the broker groups the partitions; leave the grouper out, or set "
            "group_protocol=classic"
        )
    patterns = [source.pattern.pattern for source in topology.sources() if source.pattern is not None]
    if patterns:
        raise TopologyError(
            f"group_protocol=streams with the pattern {patterns[0]!r} of source topics: brokers do not support "
            "patterns in streams groups; name the topics, or set group_protocol=classic"
        )
    return BrokerMembership(config, plans, provisioner)


def _own_topics(config: StreamsConfig, plan: ApplicationPlan) -> Sequence[InternalTopicPlan]:
    """Return the topics without records of users: of the flight recorder, and of the progress of tasks.

    Raises:
        TopologyError: the topology uses the name of such a topic.
    """
    topics = []
    if config.flight_recorder:
        frames = recorder_config(config.flight_recorder_retention_ms)
        topics.append(InternalTopicPlan(recorder_topic(config.application_id), 1, frames))
    if plan.in_step():
        name = progress_partition(config.application_id).topic
        if any(name in (*sub.source_topics, *sub.sink_topics) for sub in plan.subs):
            raise TopologyError(
                f"topic {name!r} is that of the progress of application {config.application_id!r}, which its tasks "
                "write themselves: use another topic name, or another application id"
            )
        topics.append(InternalTopicPlan(name, 1, PROGRESS_CONFIG))
    return topics


def _check_committed(
    plan: ApplicationPlan,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    provisioner: Provisioner,
    *,
    is_bounded: bool = False,
) -> None:
    """Check that committed offsets fit the partition groups, and that the topics reach them."""
    check_inputs(plan, committed, provisioner.ends)
    if not is_bounded:
        check_groups(plan, committed)
