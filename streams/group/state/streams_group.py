"""The coordinator's state of one streams group, and how its members reach their target assignment (KIP-1071).

Like ``consumer_group``, but members are assigned tasks: active ones, of which each has one owner in the group, and
standby ones, of which each process has at most one copy.  No member is assigned warm-up tasks: as in Kafka 4.4, a
task moves without one.  This module performs no I/O.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from attrs import define, evolve, field, frozen

from streams.group.state.epoch_group import EpochGroup, EpochGroupMember, ReconciliationState
from streams.group.state.internal_topics import ConfiguredTopology
from streams.protocol.group_messages import LEAVE_STATIC_EPOCH
from streams.protocol.streams_group_messages import Endpoint, GroupTopology, TaskIds


class StreamsTask(NamedTuple):
    """A task of a streams group."""

    subtopology_id: str
    partition: int


TaskSet: TypeAlias = frozenset[StreamsTask]
NO_TASKS: TaskSet = frozenset()


@frozen
class RoleTasks:
    """Tasks of a member by role."""

    active: TaskSet = NO_TASKS
    standby: TaskSet = NO_TASKS

    def __bool__(self) -> bool:
        """Whether there are any tasks."""
        return bool(self.active or self.standby)

    def overlaps(self, other: "RoleTasks") -> bool:
        """Whether any task has the same role in both."""
        return not (self.active.isdisjoint(other.active) and self.standby.isdisjoint(other.standby))

    def covers(self, other: "RoleTasks") -> bool:
        """Whether all tasks of ``other`` have the same role here."""
        return other.active <= self.active and other.standby <= self.standby


NOTHING = RoleTasks()


@frozen
class StreamsGroupMember(EpochGroupMember):
    """The coordinator's state of a member of a streams group.

    ``assigned`` are the tasks of the member; ``revoking`` those that it owns until it confirms their revocation.
    ``since`` has the epoch in which each active task of either was assigned: commits of later epochs are accepted.
    """

    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(factory=dict)
    assigned: RoleTasks = NOTHING
    revoking: RoleTasks = NOTHING
    since: Mapping[StreamsTask, int] = field(factory=dict)

    def away(self) -> "StreamsGroupMember":
        """Return the member as it leaves for a while."""
        return evolve(self, epoch=LEAVE_STATIC_EPOCH, revoking=NOTHING, since=dict.fromkeys(self.assigned.active, 0))


@define(eq=False)
class StreamsGroup(EpochGroup[StreamsGroupMember, RoleTasks]):
    """The topology, members and assignments of one streams group."""

    epoch: int = 1
    assignment_epoch: int = 1
    topology: GroupTopology | None = None
    #: The epoch of the topology whose topics were complete when the group epoch was raised last; -1 for none.
    validated_epoch: int = -1
    #: A hash of the topics of the topology, which tells whether they have changed.
    topics_hash: int = 0
    #: The settings with which the target assignment was computed last.
    assignment_settings: Mapping[str, str] = field(factory=dict)
    #: What the broker's topics make of the topology, or None if they must be looked at.
    configured: ConfiguredTopology | None = None
    #: The state of the broker's topics for which ``configured`` is valid.
    topics_version: int = -1
    #: The changelog offsets that members report, by member, and the end offsets.  Not stored, as in Kafka.
    offsets: dict[str, dict[StreamsTask, int]] = field(factory=dict)
    end_offsets: dict[str, dict[StreamsTask, int]] = field(factory=dict)
    #: Raised whenever an endpoint, or a task of a member with an endpoint, changes.
    endpoint_epoch: int = 0
    #: The member that has asked for the end of the whole application.
    shutdown_member_id: str | None = None
    #: Why internal topics could not be created.
    creation_failures: Mapping[str, str] = field(factory=dict)
    _active: dict[StreamsTask, str] = field(factory=dict)
    _standby: dict[StreamsTask, set[str]] = field(factory=dict)

    @property
    def is_blank(self) -> bool:
        """Whether the group is as if there was none."""
        is_new = self.epoch == self.assignment_epoch == 1
        is_bare = self.topology is None
        return is_new and is_bare and not self.members and not self.target

    @property
    def is_ready(self) -> bool:
        """Whether the topics of the topology were complete when the group epoch was raised last."""
        return self.topology is not None and self.topology.epoch == self.validated_epoch

    def remove(self, member: StreamsGroupMember) -> None:
        super().remove(member)
        self.offsets.pop(member.member_id, None)
        self.end_offsets.pop(member.member_id, None)
        if not self.members:
            self.shutdown_member_id = None

    def may_run(self, member: StreamsGroupMember, task: StreamsTask) -> bool:
        """Whether a member may be given an active task.

        It may unless the task has another owner, or another member of its process has a standby copy, since both would
        use the same state directory.
        """
        is_free = self._active.get(task, member.member_id) == member.member_id
        return is_free and not self._is_copied_beside(member, task)

    def may_copy(self, member: StreamsGroupMember, task: StreamsTask) -> bool:
        """Whether a member may be given a standby task: no other member of its process has the task."""
        owner = self.members.get(self._active.get(task, ""))
        is_run_beside = (
            owner is not None and owner.member_id != member.member_id and owner.process_id == member.process_id
        )
        return not (is_run_beside or self._is_copied_beside(member, task))

    def _is_copied_beside(self, member: StreamsGroupMember, task: StreamsTask) -> bool:
        return any(
            member_id != member.member_id and self.members[member_id].process_id == member.process_id
            for member_id in self._standby.get(task, ())
        )

    def _own(self, member: StreamsGroupMember) -> None:
        for tasks in (member.assigned, member.revoking):
            self._active.update(dict.fromkeys(tasks.active, member.member_id))
            for task in tasks.standby:
                self._standby.setdefault(task, set()).add(member.member_id)

    def _release(self, member: StreamsGroupMember) -> None:
        for tasks in (member.assigned, member.revoking):
            for task in tasks.active:
                if self._active.get(task) == member.member_id:
                    del self._active[task]
            for task in tasks.standby:
                holders = self._standby.get(task)
                if holders is not None:
                    holders.discard(member.member_id)
                    if not holders:
                        del self._standby[task]


def reconciled(
    group: StreamsGroup, member: StreamsGroupMember, target: RoleTasks, owned: RoleTasks | None
) -> StreamsGroupMember:
    """Return the next state of a member of a group on its way to its target assignment.

    ``owned`` has the tasks that the member reports, or None if it reports none.
    """
    if member.is_reconciled(group.assignment_epoch):
        return member
    own_epoch = member.epoch
    if member.is_revoking:
        if owned is None or owned.overlaps(member.revoking):
            return member
        # The revocation is confirmed: the member advances, if only to an epoch before the target's.
        own_epoch += 1
    before = member.assigned
    # A task that becomes a copy on the same member is one at once, and is then revoked as an active one.
    demoted = frozenset(task for task in before.active & target.standby if group.may_copy(member, task))
    copies = before.standby & (target.standby | target.active)
    retained = RoleTasks(before.active & target.active, copies | demoted)
    # A copy that becomes active on the same member is not given back first: its state stays where it is.
    surplus = RoleTasks(before.active - retained.active, before.standby - target.standby - target.active)
    if surplus and (owned is None or owned.overlaps(surplus)):
        return _with(member, ReconciliationState.UNREVOKED, own_epoch, retained, surplus, group.assignment_epoch)
    active = frozenset(task for task in target.active - retained.active if group.may_run(member, task))
    standby = frozenset(task for task in target.standby - retained.standby if group.may_copy(member, task))
    assigned = RoleTasks(retained.active | active, (retained.standby | standby) - active)
    is_whole = target.active <= assigned.active and target.standby <= assigned.standby
    state = ReconciliationState.STABLE if is_whole else ReconciliationState.UNRELEASED
    return _with(member, state, group.assignment_epoch, assigned, NOTHING, group.assignment_epoch)


def _with(
    member: StreamsGroupMember,
    state: ReconciliationState,
    epoch: int,
    assigned: RoleTasks,
    revoking: RoleTasks,
    since: int,
) -> StreamsGroupMember:
    return evolve(
        member,
        state=state,
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=revoking,
        # What was given up and comes back is had since now: commits of the time before come too late.
        since={
            task: member.since[task] if task in member.assigned.active else since
            for task in assigned.active | revoking.active
        },
    )


def tasks_of(ids: TaskIds) -> TaskSet:
    """Return tasks that a message has by sub-topology."""
    return frozenset(
        StreamsTask(subtopology_id, number) for subtopology_id, numbers in ids.items() for number in numbers
    )


def ids_of(tasks: TaskSet) -> dict[str, list[int]]:
    """Return tasks by sub-topology, in order, for a message."""
    by_subtopology: dict[str, list[int]] = {}
    for task in sorted(tasks):
        by_subtopology.setdefault(task.subtopology_id, []).append(task.partition)
    return by_subtopology


def all_tasks(counts: Mapping[str, int]) -> Iterator[StreamsTask]:
    """Return all tasks, given their count by sub-topology."""
    return (StreamsTask(name, number) for name, count in counts.items() for number in range(count))
