"""Assignment of active tasks, standby replicas and warm-up replicas, as made by the group leader.

The assignment is balanced, sticky, and without downtime.  A task with much state moves only to a process that
has this state; until then the task stays, and its destination builds a warm-up replica (KIP-441).  Pure.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from attrs import define, field, frozen

from streams.core.config import StreamsConfig
from streams.core.records import TaskId
from streams.runtime.facts import MemberFacts


@frozen
class SharingRules:
    """Settings of the assignment; see ``StreamsConfig`` for their meaning."""

    standby_replicas: int = 0
    acceptable_lag: int = 10_000
    max_warmups: int = 2

    @classmethod
    def of(cls, config: StreamsConfig) -> "SharingRules":
        """Return the rules from the settings of an application."""
        return cls(config.num_standby_replicas, config.acceptable_recovery_lag, config.max_warmup_replicas)


@define(eq=False)
class Share:
    """The share of one member."""

    active: list[TaskId] = field(factory=list)
    standby: list[TaskId] = field(factory=list)
    warmup: list[TaskId] = field(factory=list)

    @property
    def load(self) -> int:
        """The number of tasks and replicas."""
        return len(self.active) + len(self.standby) + len(self.warmup)


def share(
    tasks: Iterable[TaskId],
    stateful: Collection[TaskId],
    members: Mapping[str, MemberFacts],
    order: Sequence[str],
    owned: Mapping[TaskId, str],
    changelog_ends: Mapping[TaskId, int],
    rules: SharingRules,
) -> dict[str, Share]:
    """Assign tasks and replicas of their state.

    ``owned`` has the member to which each task was last assigned, whether the task is open or not.
    ``changelog_ends`` has, for each stateful task, the sum of its changelog end offsets.
    """
    lags = _Lags(members, changelog_ends, rules.acceptable_lag)
    desired = share_tasks(tasks, members, order, owned, lags)
    result = {member: Share() for member in order}
    waiting: list[tuple[TaskId, str]] = []
    for member in order:
        for task in desired[member]:
            holder = member
            if task in stateful and not lags.is_ready(task, members[member].process_id):
                holder = _ready_holder(task, owned.get(task), members, order, lags, result) or member
            result[holder].active.append(task)
            if holder != member:
                waiting.append((task, member))
    _copy(waiting, stateful, members, order, lags, rules, result)
    for given in result.values():
        given.active.sort()
        given.standby.sort()
        given.warmup.sort()
    return result


def share_tasks(
    tasks: Iterable[TaskId],
    members: Mapping[str, MemberFacts],
    order: Sequence[str],
    owned: Mapping[TaskId, str],
    lags: "_Lags | None" = None,
) -> dict[str, list[TaskId]]:
    """Assign tasks so that members differ by at most one task, and each task stays with its member if possible.

    A task that cannot stay goes to the first of these that exists: a member with a replica of its state, a member
    of the same process, a process whose state is nearly caught up, a process with some of its state, or the member
    with the lowest load.
    """
    lags = lags or _Lags(members, {}, 0)
    # By partition first, so that the tasks of one sub-topology spread over the members.
    open_tasks = sorted(tasks, key=lambda task: (task.partition, task.sub_topology))
    each, extra = divmod(len(open_tasks), len(order))
    result: dict[str, list[TaskId]] = {member: [] for member in order}
    above = 0

    def give(fitting: Callable[[TaskId], Iterable[str]]) -> None:
        nonlocal open_tasks, above
        left = []
        for task in open_tasks:
            limit = each + 1 if above < extra else each
            room = [member for member in fitting(task) if len(result[member]) < limit]
            if room:
                chosen = min(room, key=lambda member: len(result[member]))
                result[chosen].append(task)
                above += len(result[chosen]) > each
            else:
                left.append(task)
        open_tasks = left

    process_of = {task: members[member].process_id for task, member in owned.items()}
    copies: dict[TaskId, list[str]] = {}
    by_process: dict[str, list[str]] = {}
    for member in order:
        by_process.setdefault(members[member].process_id, []).append(member)
        for task in members[member].standby:
            copies.setdefault(task, []).append(member)

    def in_processes(processes: Iterable[str]) -> list[str]:
        return [member for process in processes for member in by_process[process]]

    give(lambda task: [owned[task]] if task in owned else [])
    give(lambda task: [member for member in copies.get(task, ()) if lags.is_ready(task, members[member].process_id)])
    give(lambda task: by_process[process_of[task]] if task in process_of else [])
    give(lambda task: in_processes(process for process in by_process if lags.is_ready(task, process, known=True)))
    give(lambda task: in_processes(lags.holders(task)[:1]))
    give(lambda task: order)
    assert not open_tasks
    return result


class _Lags:
    """The state lag of each process, by task."""

    def __init__(self, members: Mapping[str, MemberFacts], ends: Mapping[TaskId, int], acceptable: int) -> None:
        self._ends = ends
        self._acceptable = acceptable
        self._running = {(task, facts.process_id) for facts in members.values() for task in facts.active}
        self._positions: dict[TaskId, dict[str, int]] = {}
        for facts in members.values():
            for task, position in facts.positions.items():
                known = self._positions.setdefault(task, {})
                known[facts.process_id] = max(position, known.get(facts.process_id, 0))

    def is_ready(self, task: TaskId, process: str, *, known: bool = False) -> bool:
        """Return whether a process could run a task at once; with ``known``, only if it has state of the task."""
        if (task, process) in self._running:
            return True
        position = self._positions.get(task, {}).get(process)
        if position is None:
            return not known and self._ends.get(task, 0) <= self._acceptable
        return self._ends.get(task, 0) - position <= self._acceptable

    def holders(self, task: TaskId) -> list[str]:
        """Return the processes that have state of a task, with the lowest lag first."""
        positions = self._positions.get(task, {})
        return sorted(positions, key=lambda process: -positions[process])


def _ready_holder(
    task: TaskId,
    owner: str | None,
    members: Mapping[str, MemberFacts],
    order: Sequence[str],
    lags: _Lags,
    result: Mapping[str, Share],
) -> str | None:
    """Return the member that should run a task for now: its owner, a standby, or a process with its state."""
    ready = [member for member in order if lags.is_ready(task, members[member].process_id, known=True)]
    return min(
        ready,
        key=lambda member: (
            member != owner,
            task not in members[member].standby,
            result[member].load,
        ),
        default=None,
    )


def _copy(
    waiting: Sequence[tuple[TaskId, str]],
    stateful: Collection[TaskId],
    members: Mapping[str, MemberFacts],
    order: Sequence[str],
    lags: _Lags,
    rules: SharingRules,
    result: dict[str, Share],
) -> None:
    """Add warm-up replicas on the destinations of tasks, and standby replicas on separate processes."""
    taken: dict[TaskId, set[str]] = {task: set() for task in stateful}
    for member in order:
        for task in result[member].active:
            if task in taken:
                taken[task].add(members[member].process_id)
    # Warm-ups in progress first: stopping one would waste its work.
    waiting = sorted(waiting, key=lambda item: item[0] not in members[item[1]].standby)
    for task, member in waiting[: rules.max_warmups]:
        result[member].warmup.append(task)
        taken[task].add(members[member].process_id)
    for _ in range(rules.standby_replicas):
        for task in sorted(stateful):
            free = [member for member in order if members[member].process_id not in taken[task]]
            chosen = min(
                free,
                key=lambda member: (
                    task not in members[member].standby,
                    not lags.is_ready(task, members[member].process_id, known=True),
                    result[member].load,
                ),
                default=None,
            )
            if chosen is not None:
                result[chosen].standby.append(task)
                taken[task].add(members[chosen].process_id)
