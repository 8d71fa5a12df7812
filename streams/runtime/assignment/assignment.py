"""The task assignor: it assigns whole partition groups, sticky and balanced, with standby and warm-up replicas.

The group leader runs the assignor over the partition groups of its plan.  Members send their process id,
their tasks and the positions of their state in their subscriptions.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from attrs import define, evolve, field, frozen

from streams.clients import Consumer
from streams.core.blocks.records import TaskId, TopicPartition
from streams.group import Assignment, Assignor, RebalanceProtocol, TaskHost
from streams.group.assignment.assignors import Members, in_order
from streams.group.assignment.sticky import withhold_owned
from streams.runtime.plan.facts import AssignedTasks, Directive, MemberFacts, PartitionLayout
from streams.runtime.plan.sharing import Sharing, SharingRules
from streams.runtime.stores.restore import Restorer

log = logging.getLogger(__name__)

#: Partition groups by task.
Groups = Mapping[TaskId, Sequence[TopicPartition]]


@frozen
class Blueprint:
    """The input of an assignment: the partition group of each task, the stateful tasks, and the partition layout."""

    layout: PartitionLayout
    groups: Groups
    stateful: Collection[TaskId] = ()


class AssignedThread(Protocol):
    """The stream thread that is a member of the group."""

    consumer: Consumer
    restorer: Restorer
    wants_shutdown: bool

    def facts(self) -> MemberFacts:
        """Return the current state of this member."""
        ...

    def changelog_ends(self, layout: PartitionLayout, tasks: Collection[TaskId]) -> Mapping[TaskId, int]:
        """Return, for each task, the sum of its changelog end offsets."""
        ...


class TaskAssignment(Protocol):
    """Where a stream thread gets its tasks from: the assignor of the leader, or the broker."""

    #: The last assignment, or None before the first one.
    directive: Directive | None

    @property
    def awaits_warmups(self) -> bool:
        """Whether this member has to ask whether warm-up replicas have caught up."""
        ...

    @property
    def acceptable_lag(self) -> int:
        """The lag up to which a warm-up replica counts as caught up."""
        ...

    @property
    def membership(self) -> Sequence[Assignor] | TaskHost:
        """The argument of the consumer that makes it a member of the group."""
        ...

    def serve(self, thread: AssignedThread) -> None:
        """Assign tasks to this thread."""
        ...


@define(eq=False)
class StreamsAssignor:
    """The assignor of one member; ``blueprint`` maps partition counts by topic to the input of the assignment."""

    blueprint: Callable[[Mapping[str, int]], Blueprint]
    rules: SharingRules = field(factory=SharingRules)
    member: AssignedThread = field(init=False)
    name: str = "streams"
    protocols: Sequence[RebalanceProtocol] = field(default=(RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER))
    #: The last assignment from the leader.
    directive: Directive | None = None
    #: On the leader: whether the last assignment has warm-up replicas that have not caught up.
    awaits_warmups: bool = False

    @property
    def acceptable_lag(self) -> int:
        return self.rules.acceptable_lag

    @property
    def membership(self) -> Sequence[Assignor]:
        return (self,)

    def serve(self, thread: AssignedThread) -> None:
        self.member = thread

    def subscription_user_data(self) -> bytes | None:
        """Return the subscription's user data: the member's process id, its tasks and the positions of their state."""
        return self.member.facts().encode()

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Assign partition groups to members; a group of partitions that moves is withheld until its owner revokes it.

        This is the cooperative protocol of KIP-429.
        """
        blueprint = self.blueprint(partitions_per_topic)
        groups = blueprint.groups
        order = in_order(members)
        facts = {member: MemberFacts.decode(members[member].user_data) for member in order}
        # No member has state that may lag, so changelog end offsets are not needed.
        has_copies = any(facts[member].positions for member in order)
        moves = has_copies or len({facts[member].process_id for member in order}) > 1
        ends = self.member.changelog_ends(blueprint.layout, blueprint.stateful) if moves else {}
        owned = _owned(groups, members, order)
        sharing = Sharing(groups.keys(), blueprint.stateful, facts, order, owned, ends, self.rules)
        shares = sharing.shares()
        if sharing.crowded:
            log.warning(
                "%d standby replicas, such as that of task %s, share a tag of rack_aware_assignment_tags (%s) with "
                "another copy of their task, for want of instances; start some with other values in client_tags",
                len(sharing.crowded),
                sharing.crowded[0],
                ", ".join(self.rules.tags),
            )
        self.awaits_warmups = any(share.warmup for share in shares.values())
        is_shutdown = any(facts[member].wants_shutdown for member in order)
        desired = {member: [tp for task in shares[member].active for tp in groups[task]] for member in order}
        assignable = withhold_owned(desired, members)
        is_final = all(len(assignable[member]) == len(desired[member]) for member in order)
        directives: dict[str, Directive] = {}
        for member in order:
            mine = shares[member]
            # A partition group moves as a whole: if one of its partitions is withheld, all are.
            free = set(assignable[member])
            whole = [task for task in mine.active if free.issuperset(groups[task])]
            # Withheld tasks remain standby tasks until their owners have revoked them, so that their state is current.
            coming = [task for task in mine.active if task not in whole and task in blueprint.stateful]
            standby = (*mine.standby, *coming)
            directives[member] = Directive(
                blueprint.layout, tuple(whole), standby, tuple(mine.warmup), is_shutdown, is_final
            )
        places = tuple(_place(facts[member], directive) for member, directive in directives.items())
        return {
            member: Assignment(
                tuple(tp for task in directive.active for tp in groups[task]), evolve(directive, places=places).encode()
            )
            for member, directive in directives.items()
        }

    def on_assignment(self, assignment: Assignment) -> None:
        """Store the assignment from the group leader; the consumer passes its partitions to the rebalance listener."""
        self.directive = Directive.decode(assignment.user_data)


def _place(facts: MemberFacts, directive: Directive) -> AssignedTasks:
    return AssignedTasks(
        facts.client_id, facts.process_id, facts.application_server, directive.active, directive.standby
    )


def _owned(groups: Groups, members: Members, order: Sequence[str]) -> dict[TaskId, str]:
    """Return the member that owns each partition group; if several members claim it, the latest generation wins.

    A task counts as owned before it is open.  Otherwise a member that must rejoin before it has opened its tasks would
    lose them, and the group would rebalance forever.
    """
    by_generation = sorted(order, key=lambda member: members[member].generation)
    return {task: member for member in by_generation for task in tasks_of(groups, members[member].owned)}


def tasks_of(groups: Groups, partitions: Iterable[TopicPartition]) -> list[TaskId]:
    """Return the tasks whose whole partition group is in ``partitions``."""
    owned = set(partitions)
    return sorted(task for task, group in groups.items() if owned.issuperset(group))
