"""The assignor of streams groups: Kafka's ``sticky`` (KIP-1071).

Active tasks stay with the member that has them, then go to a member that has their state, then to the process with the
least load, which is its number of tasks per member.  Standby tasks are spread in the same way; a process has a task at
most once.  This module performs no I/O.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

from attrs import define, field, frozen

from streams.group.state.streams_group import NO_TASKS, RoleTasks, StreamsTask, TaskSet, all_tasks

#: The name of the assignor.
STICKY: Final = "sticky"


@frozen
class TaskHolder:
    """A member as the assignor sees it: its process, its former target, and the sum of its offsets for each task."""

    process_id: str
    active: TaskSet = NO_TASKS
    standby: TaskSet = NO_TASKS
    offsets: Mapping[StreamsTask, int] = field(factory=dict)


@define(eq=False)
class _Process:
    """A process with the tasks that its members are given."""

    process_id: str
    counts: dict[str, int] = field(factory=dict)
    tasks: set[StreamsTask] = field(factory=set)
    assigned: dict[str, tuple[set[StreamsTask], set[StreamsTask]]] = field(factory=dict)

    @property
    def load(self) -> float:
        """The number of tasks for each member."""
        return len(self.tasks) / len(self.counts)

    def add(self, member_id: str) -> None:
        self.counts[member_id] = 0
        self.assigned[member_id] = set(), set()

    def give(self, member_id: str, task: StreamsTask, *, is_active: bool) -> int:
        """Give a task to a member; return how many it has then."""
        self.assigned[member_id][0 if is_active else 1].add(task)
        self.tasks.add(task)
        self.counts[member_id] += 1
        return self.counts[member_id]

    def idlest(self) -> str:
        """The member with the fewest tasks."""
        return min(self.counts, key=lambda member_id: (self.counts[member_id], member_id))


@define(eq=False)
class _Quota:
    """How many tasks a member may keep, so that the others get their share."""

    tasks: int
    members: int

    @property
    def each(self) -> int:
        return -(-self.tasks // self.members) if self.members else 0

    def note(self, count: int) -> None:
        """Note that a member has so many tasks now; a full one leaves the rest to the others."""
        if count == self.each:
            self.tasks -= count
            self.members -= 1


@define(eq=False)
class _Round:
    """One computation of an assignment."""

    members: Mapping[str, TaskHolder]
    active: _Quota
    total: _Quota
    processes: dict[str, _Process] = field(factory=dict)
    #: Former owner of each active task, and holders of its state, those with the most of it first.
    owners: dict[StreamsTask, str] = field(factory=dict)
    copies: dict[StreamsTask, list[str]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        ranked: dict[StreamsTask, list[tuple[bool, int, str]]] = {}
        for member_id, holder in sorted(self.members.items()):
            self.processes.setdefault(holder.process_id, _Process(holder.process_id)).add(member_id)
            self.owners.update(dict.fromkeys(holder.active, member_id))
            for task in holder.standby | holder.offsets.keys():
                # Former standby copies come before state that is only on disk.
                place = task not in holder.standby, -holder.offsets.get(task, 0), member_id
                ranked.setdefault(task, []).append(place)
        self.copies = {task: [member_id for *_, member_id in sorted(places)] for task, places in ranked.items()}

    def process_of(self, member_id: str) -> _Process:
        return self.processes[self.members[member_id].process_id]

    def give(self, member_id: str, task: StreamsTask, *, is_active: bool) -> None:
        count = self.process_of(member_id).give(member_id, task, is_active=is_active)
        if is_active:
            self.active.note(count)
        self.total.note(count)

    def has_room(self, member_id: str, quota: _Quota) -> bool:
        return self.process_of(member_id).counts[member_id] < quota.each

    def idlest_copy(self, task: StreamsTask, *, is_free: bool) -> str | None:
        """Return the member with the least load among those that have the state of a task.

        With ``is_free``, only processes that are not given the task count.
        """
        best: str | None = None
        least = 0.0, 0
        for member_id in self.copies.get(task, ()):
            process = self.process_of(member_id)
            if is_free and task in process.tasks:
                continue
            load = process.load, process.counts[member_id]
            if best is None or (load[0] < least[0] and load[1] < least[1]):
                best = member_id
                least = load
        return best

    def assign_active(self, tasks: Iterable[StreamsTask]) -> None:
        left = []
        for task in sorted(tasks, key=_by_partition):
            owner = self.owners.get(task)
            if owner is not None and self.has_room(owner, self.active):
                self.give(owner, task, is_active=True)
            else:
                left.append(task)
        rest = []
        for task in left:
            holder = self.idlest_copy(task, is_free=False)
            if holder is not None and self.has_room(holder, self.active):
                self.give(holder, task, is_active=True)
            else:
                rest.append(task)
        idlest = _IdlestProcess(self.processes.values())
        for task in sorted(rest):
            process = idlest.take(task, is_free=False)
            assert process is not None
            self.give(process.idlest(), task, is_active=True)
            idlest.put_back()

    def assign_standby(self, tasks: Iterable[StreamsTask], replicas: int) -> None:
        """Assign the standby tasks, as many for each task as there are processes for it."""
        left: list[tuple[StreamsTask, int]] = []
        for task in sorted(tasks, key=_by_partition, reverse=True):
            for number in range(replicas):
                member_id = self._known_copy(task)
                if member_id is None:
                    left.append((task, replicas - number))
                    break
                self.give(member_id, task, is_active=False)
        idlest = _IdlestProcess(self.processes.values())
        for task, count in sorted(left, reverse=True):
            for _ in range(count):
                process = idlest.take(task, is_free=True)
                if process is not None:
                    self.give(process.idlest(), task, is_active=False)
                idlest.put_back()

    def _known_copy(self, task: StreamsTask) -> str | None:
        """Return the member that has the state of a task and room for its copy: the former owner first."""
        owner = self.owners.get(task)
        is_free = owner is not None and task not in self.process_of(owner).tasks
        if owner is not None and is_free and self.has_room(owner, self.total):
            return owner
        holder = self.idlest_copy(task, is_free=True)
        return holder if holder is not None and self.has_room(holder, self.total) else None


class _IdlestProcess:
    """Processes by load, of equal ones the one that was taken longest ago; who is taken must be put back."""

    def __init__(self, processes: Iterable[_Process]) -> None:
        ordered = sorted(processes, key=lambda process: process.process_id)
        self._heap = [(process.load, turn, process) for turn, process in enumerate(ordered)]
        heapq.heapify(self._heap)
        self._turn = len(ordered)
        self._taken: list[_Process] = []

    def take(self, task: StreamsTask, *, is_free: bool) -> _Process | None:
        """Return the process with the least load; with ``is_free``, among those that are not given the task."""
        while self._heap:
            *_, process = heapq.heappop(self._heap)
            self._taken.append(process)
            if not (is_free and task in process.tasks):
                return process
        return None

    def put_back(self) -> None:
        """Put back what was taken."""
        for process in self._taken:
            heapq.heappush(self._heap, (process.load, self._turn, process))
            self._turn += 1
        self._taken.clear()


def _by_partition(task: StreamsTask) -> tuple[int, str]:
    return task.partition, task.subtopology_id


def assign_tasks(
    counts: Mapping[str, int], stateful: Set[str], members: Mapping[str, TaskHolder], standby_replicas: int
) -> dict[str, RoleTasks]:
    """Return the tasks of each member.

    ``counts`` has the number of tasks of each sub-topology; those in ``stateful`` get ``standby_replicas`` copies, or
    fewer if there are not enough processes.
    """
    tasks = list(all_tasks(counts))
    with_state: Sequence[StreamsTask] = [task for task in tasks if task.subtopology_id in stateful]
    size = len(members)
    total = len(tasks) + standby_replicas * len(with_state)
    work = _Round(members, _Quota(len(tasks), size), _Quota(total, size))
    if members:
        work.assign_active(tasks)
        work.assign_standby(with_state, standby_replicas)
    return {
        member_id: RoleTasks(frozenset(active), frozenset(standby))
        for process in work.processes.values()
        for member_id, (active, standby) in process.assigned.items()
    }
