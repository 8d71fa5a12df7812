"""How the tasks of an application are shared out: whole partition groups, sticky and even.

The leader of the group runs this over the partition groups of its plan; members say in their
subscriptions which process they belong to and which tasks they run or have state of.  Between
the group's machinery, which carries partitions, and the threads, which run tasks.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import define, field, frozen

from streams.core.errors import TopologyError
from streams.core.records import TaskId, TopicPartition
from streams.group.assignors import Members, RebalanceProtocol, in_order
from streams.group.sticky import withhold_owned
from streams.group.subscriptions import Assignment

#: Partition groups by task.
Groups = Mapping[TaskId, Sequence[TopicPartition]]


@frozen
class MemberTasks:
    """What a member tells the leader: its process, the tasks it runs, those its process has state of."""

    process_id: str
    active: tuple[TaskId, ...] = ()
    on_disk: tuple[TaskId, ...] = ()

    def encode(self) -> bytes:
        """Return the bytes for the subscription."""
        return json.dumps(
            {"v": 1, "process": self.process_id, "active": self.active, "disk": self.on_disk}, separators=(",", ":")
        ).encode()

    @classmethod
    def decode(cls, data: bytes | None) -> "MemberTasks":
        """Read the bytes of a subscription.

        Raises:
            TopologyError: another kind of client is in the group.
        """
        try:
            read = json.loads(data or b"")
            return cls(read["process"], _task_ids(read["active"]), _task_ids(read["disk"]))
        except (ValueError, KeyError, TypeError) as error:
            raise TopologyError(
                "a member of the group is no instance of this application: another client uses its "
                "application id as group id; give the application an id of its own"
            ) from error


def _task_ids(pairs: Iterable[Sequence[int]]) -> tuple[TaskId, ...]:
    return tuple(TaskId(*pair) for pair in pairs)


def share_tasks(
    tasks: Iterable[TaskId], members: Mapping[str, MemberTasks], order: Sequence[str]
) -> dict[str, list[TaskId]]:
    """Share tasks out: nobody has two more than another, and each stays where it was if that allows.

    A task that cannot stay with its member goes to one of the same process, then to a process
    that has its state on disk, then to whoever has the least.
    """
    # By partition first, so that the tasks of one sub-topology spread over the members.
    open_tasks = sorted(tasks, key=lambda task: (task.partition, task.sub_topology))
    each, extra = divmod(len(open_tasks), len(order))
    result: dict[str, list[TaskId]] = {member: [] for member in order}

    def has_room(member: str) -> bool:
        used = len(result[member])
        return used < each or (used == each and sum(len(held) > each for held in result.values()) < extra)

    def give(prefers: Callable[[str, TaskId], bool]) -> None:
        nonlocal open_tasks
        left = []
        for task in open_tasks:
            fitting = [member for member in order if prefers(member, task) and has_room(member)]
            if fitting:
                result[min(fitting, key=lambda member: len(result[member]))].append(task)
            else:
                left.append(task)
        open_tasks = left

    owner_process = {task: facts.process_id for facts in members.values() for task in facts.active}
    give(lambda member, task: task in members[member].active)
    give(lambda member, task: owner_process.get(task) == members[member].process_id)
    give(lambda member, task: task in members[member].on_disk)
    give(lambda member, task: True)
    assert not open_tasks
    return result


@define(eq=False)
class StreamsAssignor:
    """The group-aware assignor of one member.

    ``groups`` gives the partition groups for the present partition counts; ``facts`` what this
    member has now.
    """

    groups: Callable[[Mapping[str, int]], Groups]
    facts: Callable[[], MemberTasks]
    name: str = "streams"
    protocols: Sequence[RebalanceProtocol] = field(default=(RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER))

    def subscription_user_data(self) -> bytes | None:
        """Return this member's process and tasks."""
        return self.facts().encode()

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Share whole partition groups out; what changes hands is withheld until its owner gave it up."""
        groups = self.groups(partitions_per_topic)
        order = in_order(members)
        facts = {member: MemberTasks.decode(members[member].user_data) for member in order}
        shared = share_tasks(groups, facts, order)
        wanted = {member: [tp for task in shared[member] for tp in groups[task]] for member in order}
        given = withhold_owned(wanted, members)
        # A group moves whole: if one of its partitions is withheld, all are.
        result = {}
        for member in order:
            whole = [task for task in shared[member] if set(groups[task]) <= set(given[member])]
            result[member] = Assignment(tuple(tp for task in whole for tp in groups[task]))
        return result

    def on_assignment(self, assignment: Assignment) -> None:
        """Nothing to keep: tasks follow from the partitions."""


def tasks_of(groups: Groups, partitions: Iterable[TopicPartition]) -> list[TaskId]:
    """Return the tasks whose whole partition group is among the partitions."""
    owned = Counter(partitions)
    return sorted(task for task, group in groups.items() if all(tp in owned for tp in group))
