"""What the member of a streams group says in its heartbeats, and how it moves to its assignment (KIP-1071).

The coordinator assigns tasks: active, standby and warm-up.  The application, which a ``TaskHost`` stands for, knows
which partitions a task reads, and keeps its stores.  This module performs no I/O; of the other packages, it imports
only ``core`` and ``protocol``.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from attrs import define, field, frozen

from streams.core.blocks.records import TaskId, TopicPartition
from streams.group.client.consumer_member import Assign, Lose, Revoke
from streams.group.client.epoch_member import GroupHeartbeatResponse
from streams.group.client.member import Action, MemberConfig
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import JOIN_EPOCH
from streams.protocol.streams_group_messages import (
    Endpoint,
    EndpointPartitions,
    GroupStatus,
    GroupTopology,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TaskOffset,
)

#: Interval of reports of changelog offsets until the coordinator sets one.
_OFFSETS_INTERVAL_MS = 60_000

_OTHER_TOPOLOGY = (
    "all members of a group need the same topology, as the group keeps that of its first member: start the same "
    "version of the application everywhere; for a changed topology, stop all instances and delete the group "
    "(kafka-streams-groups.sh --delete), or start with a new application id"
)
_ADVICE: Mapping[ErrorCode, str] = {
    ErrorCode.UNSUPPORTED_VERSION: "streams groups need Kafka 4.2 or later, with the feature streams.version; or set "
    "group_protocol=classic",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group has members with another protocol: stop them all, then start with "
    "group_protocol=streams; or set group_protocol=classic",
    ErrorCode.INVALID_REQUEST: _OTHER_TOPOLOGY,
    ErrorCode.STREAMS_INVALID_TOPOLOGY: _OTHER_TOPOLOGY,
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: _OTHER_TOPOLOGY,
    ErrorCode.STREAMS_TOPOLOGY_FENCED: _OTHER_TOPOLOGY,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "have the broker allow this user to read the group (ACL)",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "have the broker allow this user to describe all topics of the topology, and "
    "to create internal topics (ACL)",
}


@frozen
class TaskRoles:
    """The tasks of one member by role."""

    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    warmup: tuple[TaskId, ...] = ()


@frozen
class HostFacts:
    """The facts of an instance: its process id, its endpoint for queries or None, and its tags."""

    process_id: str
    endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(factory=dict)


@frozen
class ChangelogSums:
    """For each task with local state, the sum of its changelog positions, and the sum of the known end offsets."""

    positions: Mapping[TaskId, int] = field(factory=dict)
    ends: Mapping[TaskId, int] = field(factory=dict)


class TaskHost(Protocol):
    """The part of an application that runs the tasks of one member: a stream thread."""

    @property
    def wants_shutdown(self) -> bool:
        """Whether to request the shutdown of all instances of the application."""
        ...

    def group_topology(self) -> GroupTopology:
        """Return the topology of the application."""
        ...

    def host_facts(self) -> HostFacts:
        """Return the facts of the instance."""
        ...

    def changelog_sums(self) -> ChangelogSums:
        """Return the positions of the local state of the instance."""
        ...

    def note_status(self, status: Sequence[GroupStatus], now_ms: int) -> None:
        """Handle the status of the group; empty if nothing keeps it from processing.

        Raises:
            TopologyError: the topics of the application do not fit its topology.
        """
        ...

    def note_acceptable_lag(self, lag: int) -> None:
        """Handle the lag in records up to which a warm-up task counts as caught up."""
        ...

    def note_endpoints(self, endpoints: Sequence[EndpointPartitions]) -> None:
        """Handle the locations of all tasks whose instances have an endpoint."""
        ...

    def has_news(self) -> bool:
        """Return whether the status has changed what the thread must do, since the last ``partitions_of``."""
        ...

    def partitions_of(self, roles: TaskRoles) -> tuple[TopicPartition, ...] | None:
        """Adopt tasks; return the partitions of the active ones, or None if their topics are not known yet."""
        ...


@define(eq=False)
class StreamsHeartbeats:
    """The tasks of one stream thread; ``rack_id`` is its rack, or None."""

    _config: MemberConfig
    _host: TaskHost
    _rack_id: str | None = None
    needs_metadata: bool = field(default=False, init=False)
    #: The tasks of the member; None before it has adopted any assignment.
    _roles: TaskRoles | None = field(default=None, init=False)
    _owned: tuple[TopicPartition, ...] = field(default=(), init=False)
    _target: TaskRoles | None = field(default=None, init=False)
    _reported: TaskRoles | None = field(default=None, init=False)
    _responses: list[StreamsGroupHeartbeatResponse] = field(factory=list, init=False)
    _endpoint_epoch: int = field(default=-1, init=False)
    _offsets_interval_ms: int = field(default=_OFFSETS_INTERVAL_MS, init=False)
    _offsets_sent_ms: int = field(default=0, init=False)
    _now_ms: int = field(default=0, init=False)

    def heartbeat(self, member_id: str, epoch: int, *, is_full: bool) -> StreamsGroupHeartbeat:
        config = self._config
        is_join = epoch == JOIN_EPOCH
        roles = self._roles or TaskRoles()
        must_report = is_full or roles != self._reported
        self._reported = roles
        facts = self._host.host_facts()
        sums = self._due_sums(is_full=is_full)
        return StreamsGroupHeartbeat(
            config.group_id,
            member_id,
            epoch,
            self._endpoint_epoch,
            config.group_instance_id,
            self._rack_id if is_full else None,
            config.max_poll_interval_ms if is_full else -1,
            self._host.group_topology() if is_join else None,
            _by_sub_topology(roles.active) if must_report else None,
            _by_sub_topology(roles.standby) if must_report else None,
            _by_sub_topology(roles.warmup) if must_report else None,
            facts.process_id if is_full else None,
            facts.endpoint if is_full else None,
            facts.client_tags if is_full else None,
            None if sums is None else _offsets(sums.positions),
            None if sums is None else _offsets(sums.ends),
            self._host.wants_shutdown,
            config.client_id,
        )

    def bare(self, member_id: str, epoch: int) -> StreamsGroupHeartbeat:
        config = self._config
        return StreamsGroupHeartbeat(
            config.group_id,
            member_id,
            epoch,
            self._endpoint_epoch,
            config.group_instance_id,
            shutdown_application=self._host.wants_shutdown,
            client_id=config.client_id,
        )

    def advice(self, error: ErrorCode) -> str:
        return _ADVICE.get(error, "")

    def receive(self, response: GroupHeartbeatResponse) -> None:
        """Store a response, of which the host hears in ``move``."""
        if isinstance(response, StreamsGroupHeartbeatResponse):
            self._offsets_interval_ms = response.task_offset_interval_ms or self._offsets_interval_ms
            self._endpoint_epoch = response.endpoint_information_epoch
            self._responses.append(response)

    def renew(self) -> None:
        """Derive the partitions of the tasks again, because topics may have more of them."""
        self._target = self._target or self._roles

    def move(self, now_ms: int) -> list[Action]:
        """Tell the host of responses, and move to the assignment if its topics are known."""
        self._now_ms = now_ms
        responses = self._responses
        self._responses = []
        for response in responses:
            if response.active_tasks is not None:
                self._target = TaskRoles(
                    _tasks(response.active_tasks), _tasks(response.standby_tasks), _tasks(response.warmup_tasks)
                )
            if response.acceptable_recovery_lag >= 0:
                self._host.note_acceptable_lag(response.acceptable_recovery_lag)
            if response.partitions_by_user_endpoint is not None:
                self._host.note_endpoints(response.partitions_by_user_endpoint)
            self._host.note_status(response.status or (), now_ms)
        has_news = self._host.has_news()
        target = self._target or (self._roles if has_news else None)
        if target is None:
            return []
        partitions = self._host.partitions_of(target)
        self.needs_metadata = partitions is None
        if partitions is None:
            self._target = target
            return []
        is_same = target == self._roles and partitions == self._owned and not has_news
        owned = self._owned
        self._owned = partitions
        self._roles = target
        self._target = None
        if is_same:
            return []
        revoked = tuple(partition for partition in owned if partition not in set(partitions))
        gained = tuple(partition for partition in partitions if partition not in set(owned))
        actions: list[Action] = [Revoke(revoked)] if revoked else []
        return [*actions, Assign(partitions, gained)]

    def lose(self) -> list[Action]:
        """Forget the tasks, because the member was removed from its group."""
        owned = self._clear()
        self._reported = None
        return [Lose(owned)] if owned else []

    def leaving(self) -> list[Action]:
        """Revoke all tasks, because the member is leaving the group."""
        owned = self._clear()
        return [Revoke(owned)] if owned else []

    def _clear(self) -> tuple[TopicPartition, ...]:
        owned = self._owned
        self._owned = ()
        self._roles = None
        self._target = None
        self._responses = []
        self._endpoint_epoch = -1
        self.needs_metadata = False
        return owned

    def _due_sums(self, *, is_full: bool) -> ChangelogSums | None:
        """Return the positions of the local state if they are due: in full heartbeats, and in intervals."""
        if not is_full and self._now_ms - self._offsets_sent_ms < self._offsets_interval_ms:
            return None
        self._offsets_sent_ms = self._now_ms
        return self._host.changelog_sums()


def _tasks(by_sub_topology: TaskIds | None) -> tuple[TaskId, ...]:
    numbers = (by_sub_topology or {}).items()
    return tuple(sorted(TaskId(int(sub), partition) for sub, partitions in numbers for partition in partitions))


def _by_sub_topology(tasks: Sequence[TaskId]) -> TaskIds:
    numbers: dict[str, list[int]] = {}
    for task in sorted(tasks):
        numbers.setdefault(str(task.sub_topology), []).append(task.partition)
    return numbers


def _offsets(sums: Mapping[TaskId, int]) -> list[TaskOffset]:
    return [TaskOffset(str(task.sub_topology), task.partition, total) for task, total in sorted(sums.items())]
