"""The assignment of a thread in a streams group: the broker assigns the tasks, and this module adopts them (KIP-1071).

The consumer's membership calls it within ``poll``.  Each member derives the partitions of its tasks from the metadata
of its own consumer.  The module imports only ``core``, ``group`` and ``protocol`` from outside ``runtime``.
"""

import logging
from collections.abc import Sequence
from typing import Final

from attrs import define, evolve, field, frozen

from streams.core.blocks.records import TopicPartition
from streams.core.errors import TopologyError
from streams.core.http.address import parse_address
from streams.group import ChangelogSums, HostFacts, TaskRoles
from streams.protocol.streams_group_messages import (
    Endpoint,
    EndpointPartitions,
    GroupStatus,
    GroupTopology,
    StreamsStatus,
)
from streams.runtime.assignment.assignment import AssignedThread, Groups, tasks_of
from streams.runtime.plan.facts import AssignedTasks, Directive, PartitionLayout
from streams.runtime.plan.group_topology import group_topology
from streams.runtime.plan.grouping import START_OVER
from streams.runtime.plan.layout import Plans
from streams.runtime.plan.plan import ApplicationPlan

log = logging.getLogger(__name__)

#: Statuses with which the broker assigns no tasks, or not all of them yet.
_UNREADY: Final = frozenset(
    {
        StreamsStatus.MISSING_SOURCE_TOPICS,
        StreamsStatus.MISSING_INTERNAL_TOPICS,
        StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
        StreamsStatus.ASSIGNMENT_DELAYED,
    }
)
#: Statuses that the application survives, but that somebody should know of.
_WARNED: Final = frozenset(
    {
        StreamsStatus.STALE_TOPOLOGY,
        StreamsStatus.MISSING_SOURCE_TOPICS,
        StreamsStatus.MISSING_CLIENT_TAGS,
    }
)


@frozen
class _Readiness:
    """What the status of the group says of an assignment."""

    is_final: bool = True
    is_shutdown: bool = False


@define(eq=False)
class BrokerAssignment:
    """The assignment of one thread; ``plan`` is the plan at the start of the instance."""

    _plans: Plans
    _plan: ApplicationPlan
    member: AssignedThread = field(init=False)
    #: The tasks that the broker has assigned last.
    directive: Directive | None = None
    #: Lag up to which a warm-up replica counts as caught up, as the broker says; not in version 0 of the heartbeat.
    acceptable_lag: int = 0
    _readiness: _Readiness = field(factory=_Readiness)
    _places: tuple[EndpointPartitions, ...] = ()
    _shown: frozenset[GroupStatus] = frozenset()
    #: Monotonic time since which source topics are missing, or None.
    _missing_since_ms: int | None = None

    @property
    def awaits_warmups(self) -> bool:
        """False, because members report when warm-up replicas have caught up, and the broker moves the tasks."""
        return False

    @property
    def membership(self) -> "BrokerAssignment":
        return self

    def serve(self, thread: AssignedThread) -> None:
        self.member = thread

    # --- the host of the tasks of a member ------------------------------------------------

    @property
    def wants_shutdown(self) -> bool:
        return self.member.wants_shutdown

    def group_topology(self) -> GroupTopology:
        return group_topology(self._plan)

    def host_facts(self) -> HostFacts:
        facts = self.member.facts()
        config = self._plan.config
        endpoint = None
        if facts.application_server:
            endpoint = Endpoint(*parse_address(facts.application_server))
        return HostFacts(facts.process_id, endpoint, config.tags)

    def changelog_sums(self) -> ChangelogSums:
        positions = self.member.facts().positions
        restorer = self.member.restorer
        ends = {task: at + lag for task, at in positions.items() if (lag := restorer.lag(task)) is not None}
        return ChangelogSums(positions, ends)

    def note_status(self, status: Sequence[GroupStatus], now_ms: int) -> None:
        """Log what keeps the group from processing, and note whether the assignment is final.

        Raises:
            TopologyError: topics have other partition counts than the topology needs, or source topics are missing for
                longer than ``task_timeout_ms``.
        """
        codes = {item.code for item in status}
        self._readiness = _Readiness(_UNREADY.isdisjoint(codes), StreamsStatus.SHUTDOWN_APPLICATION in codes)
        if self._readiness.is_shutdown and self.directive is None:
            self.directive = Directive(PartitionLayout(self._plan.partitions), is_shutdown=True)
        application = self._plan.config.application_id
        for item in status:
            if item not in self._shown and item.code in _WARNED:
                log.warning("application %r: status of its group: %s: %s", application, _name(item.code), item.detail)
        self._shown = frozenset(status)
        details = {item.code: item.detail for item in status}
        if StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS in details:
            raise TopologyError(
                f"application {application!r}: the broker does not assign tasks, because topics have other partition "
                f"counts than the topology needs: {details[StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS]}; give "
                f"co-partitioned topics equal counts, or {START_OVER}"
            )
        if StreamsStatus.MISSING_SOURCE_TOPICS not in details:
            self._missing_since_ms = None
            return
        since = self._missing_since_ms = now_ms if self._missing_since_ms is None else self._missing_since_ms
        if now_ms - since > self._plan.config.task_timeout_ms:
            raise TopologyError(
                f"application {application!r}: source topics are missing for {now_ms - since} ms: "
                f"{details[StreamsStatus.MISSING_SOURCE_TOPICS]}; create them"
            )

    def note_acceptable_lag(self, lag: int) -> None:
        """Note the lag up to which a warm-up replica counts as caught up."""
        self.acceptable_lag = lag

    def note_endpoints(self, endpoints: Sequence[EndpointPartitions]) -> None:
        """Note which instances have which tasks."""
        self._places = tuple(endpoints)
        if self.directive is not None:
            groups = self._plans.of(self.directive.layout).bundles()
            self.directive = evolve(self.directive, places=self._assigned(self.directive, groups))

    def has_news(self) -> bool:
        """Return whether the status of the group has changed since the last assignment."""
        directive = self.directive
        return directive is not None and self._readiness != _Readiness(directive.is_final, directive.is_shutdown)

    def partitions_of(self, roles: TaskRoles) -> tuple[TopicPartition, ...] | None:
        """Adopt tasks; return the partitions of the active ones, or None if the metadata lacks one of their topics.

        Raises:
            TopologyError: the topics no longer match the topology.
        """
        plan = self._plan
        names = {plan.physical_topic(topic) for sub in plan.subs if not sub.is_global for topic in sub.source_topics}
        counts = {
            name: count for name in names if (count := self.member.consumer.known_partition_count(name)) is not None
        }
        if len(counts) < len(names):
            return None
        layout = self._plans.layout(counts)
        groups = self._plans.of(layout).bundles()
        if not groups.keys() >= {*roles.active, *roles.standby, *roles.warmup}:
            return None
        directive = Directive(
            layout,
            roles.active,
            roles.standby,
            roles.warmup,
            is_shutdown=self._readiness.is_shutdown,
            is_final=self._readiness.is_final,
        )
        self.directive = evolve(directive, places=self._assigned(directive, groups))
        return tuple(sorted(partition for task in roles.active for partition in groups[task]))

    def _assigned(self, own: Directive, groups: Groups) -> tuple[AssignedTasks, ...]:
        """Return the tasks of this thread, and those of all instances that have an endpoint.

        The broker does not tell the process ids of others, so their endpoints identify them.
        """
        facts = self.member.facts()
        places = [AssignedTasks(facts.client_id, facts.process_id, facts.application_server, own.active, own.standby)]
        for place in self._places:
            server = f"{place.user_endpoint.host}:{place.user_endpoint.port}"
            process_id = facts.process_id if server == facts.application_server else server
            active = tasks_of(groups, place.active_partitions)
            standby = tasks_of(groups, place.standby_partitions)
            places.append(AssignedTasks(server, process_id, server, tuple(active), tuple(standby)))
        return tuple(places)


def _name(code: int) -> str:
    return next((status.name for status in StreamsStatus if status == code), f"status {code}")
