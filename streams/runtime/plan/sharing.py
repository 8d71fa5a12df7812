"""Assignment of active tasks, standby replicas and warm-up replicas, as made by the group leader.

The assignment is balanced, sticky, and without downtime.  A task with much state moves only to a process that has this
state.  Until then the task stays with its owner, and a warm-up replica is built at its destination (KIP-441).  Standby
replicas are spread over the tags of the members (KIP-708).  The module is pure.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from attrs import define, field, frozen

from streams.core.blocks.records import TaskId
from streams.core.settings.config import StreamsConfig
from streams.runtime.plan.facts import MemberFacts


@frozen
class SharingRules:
    """Settings of the assignment; see ``StreamsConfig`` for their meaning."""

    standby_replicas: int = 0
    acceptable_lag: int = 10_000
    max_warmups: int = 2
    #: Tags whose values differ between the copies of a task, as far as possible (KIP-708).
    tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: StreamsConfig) -> "SharingRules":
        """Return the rules from the settings of an application."""
        return cls(
            config.num_standby_replicas,
            config.acceptable_recovery_lag,
            config.max_warmup_replicas,
            config.assignment_tags,
        )


@define(eq=False)
class Share:
    """The tasks and replicas assigned to one member."""

    active: list[TaskId] = field(factory=list)
    standby: list[TaskId] = field(factory=list)
    warmup: list[TaskId] = field(factory=list)

    @property
    def load(self) -> int:
        """The number of tasks and replicas."""
        return len(self.active) + len(self.standby) + len(self.warmup)


@define(eq=False)
class Sharing:
    """One assignment: the tasks, the members with their facts, and the rules.

    ``owned`` maps each task to the member to which it was last assigned, whether the task is open or not.
    ``changelog_ends`` maps each stateful task to the sum of its changelog end offsets.
    """

    tasks: Collection[TaskId]
    stateful: Collection[TaskId]
    members: Mapping[str, MemberFacts]
    order: Sequence[str]
    owned: Mapping[TaskId, str] = field(factory=dict)
    changelog_ends: Mapping[TaskId, int] = field(factory=dict)
    rules: SharingRules = SharingRules()
    #: Tasks of which two copies have the same value of a tag of the rules, once for each such copy.
    crowded: list[TaskId] = field(init=False, factory=list)
    _running: set[tuple[TaskId, str]] = field(init=False)
    #: Changelog positions by task and process.
    _positions: dict[TaskId, dict[str, int]] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self._running = {(task, facts.process_id) for facts in self.members.values() for task in facts.active}
        for facts in self.members.values():
            for task, position in facts.positions.items():
                positions = self._positions.setdefault(task, {})
                positions[facts.process_id] = max(position, positions.get(facts.process_id, 0))

    def shares(self) -> dict[str, Share]:
        """Return the active tasks, standby replicas and warm-up replicas of each member."""
        desired = self.balanced()
        result = {member: Share() for member in self.order}
        waiting: list[tuple[TaskId, str]] = []
        for member in self.order:
            for task in desired[member]:
                holder = member
                if task in self.stateful and not self._is_ready(task, member):
                    holder = self._ready_holder(task, result) or member
                result[holder].active.append(task)
                if holder != member:
                    waiting.append((task, member))
        self._add_replicas(waiting, result)
        for share in result.values():
            share.active.sort()
            share.standby.sort()
            share.warmup.sort()
        return result

    def balanced(self) -> dict[str, list[TaskId]]:
        """Assign tasks so that members differ by at most one task, and each task stays with its member if possible.

        A task that cannot stay is assigned to the first of these that can take a further task: a member with a
        caught-up replica of its state, a member of the same process, a member of a process whose state is caught up, a
        member of the process with the most recent state, any member.  Of several, the one with the fewest tasks is
        chosen.
        """
        # Sorted by partition first, so that the tasks of one sub-topology are spread over the members.
        open_tasks = sorted(self.tasks, key=lambda task: (task.partition, task.sub_topology))
        each, extra = divmod(len(open_tasks), len(self.order))
        result: dict[str, list[TaskId]] = {member: [] for member in self.order}
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

        members, owned = self.members, self.owned
        replicas: dict[TaskId, list[str]] = {}
        by_process: dict[str, list[str]] = {}
        for member in self.order:
            by_process.setdefault(members[member].process_id, []).append(member)
            for task in members[member].standby:
                replicas.setdefault(task, []).append(member)

        def in_processes(processes: Iterable[str]) -> list[str]:
            return [member for process in processes for member in by_process[process]]

        def holders(task: TaskId) -> list[str]:
            positions = self._positions.get(task, {})
            return sorted(positions, key=lambda process: -positions[process])

        give(lambda task: [owned[task]] if task in owned else [])
        give(lambda task: [member for member in replicas.get(task, ()) if self._is_ready(task, member)])
        give(lambda task: by_process[members[owned[task]].process_id] if task in owned else [])
        give(
            lambda task: [
                member for member in in_processes(by_process) if self._is_ready(task, member, needs_state=True)
            ]
        )
        give(lambda task: in_processes(holders(task)[:1]))
        give(lambda task: self.order)
        assert not open_tasks
        return result

    def _is_ready(self, task: TaskId, member: str, *, needs_state: bool = False) -> bool:
        """Return whether a member can run a task without a long restore; if ``needs_state``, only with local state."""
        process = self.members[member].process_id
        if (task, process) in self._running:
            return True
        position = self._positions.get(task, {}).get(process)
        if position is None:
            return not needs_state and self.changelog_ends.get(task, 0) <= self.rules.acceptable_lag
        return self.changelog_ends.get(task, 0) - position <= self.rules.acceptable_lag

    def _ready_holder(self, task: TaskId, result: Mapping[str, Share]) -> str | None:
        """Return a member that can run a task immediately, without a long restore, or None.

        The owner of the task is preferred, then a member with a standby replica, then any other member.
        """

        def rank(member: str) -> tuple[bool, bool, int]:
            return member != self.owned.get(task), task not in self.members[member].standby, result[member].load

        return min(
            (member for member in self.order if self._is_ready(task, member, needs_state=True)), key=rank, default=None
        )

    def _add_replicas(self, waiting: Sequence[tuple[TaskId, str]], result: Mapping[str, Share]) -> None:
        """Add warm-up replicas at the destinations of tasks, and standby replicas on other processes."""
        members, order = self.members, self.order
        taken: dict[TaskId, set[str]] = {task: set() for task in self.stateful}
        values: dict[TaskId, Counter[tuple[str, str]]] = {task: Counter() for task in self.stateful}

        def place(task: TaskId, member: str) -> None:
            taken[task].add(members[member].process_id)
            values[task].update(self._tags_of(member))

        for member in order:
            for task in result[member].active:
                if task in taken:
                    place(task, member)
        # Warm-ups in progress come first: stopping one would waste its work.
        waiting = sorted(waiting, key=lambda item: item[0] not in members[item[1]].standby)
        for task, member in waiting[: self.rules.max_warmups]:
            result[member].warmup.append(task)
            # Its tags do not count: until the task has moved, the copy that is active needs another one elsewhere.
            taken[task].add(members[member].process_id)

        def rank(task: TaskId, member: str) -> tuple[int, bool, bool, int]:
            is_new = task not in members[member].standby
            shared = sum(values[task][tag] for tag in self._tags_of(member))
            return shared, is_new, not self._is_ready(task, member, needs_state=True), result[member].load

        for _ in range(self.rules.standby_replicas):
            for task in sorted(self.stateful):
                free = [member for member in order if members[member].process_id not in taken[task]]
                chosen = min(free, key=partial(rank, task), default=None)
                if chosen is not None:
                    if any(values[task][tag] for tag in self._tags_of(chosen)):
                        self.crowded.append(task)
                    result[chosen].standby.append(task)
                    place(task, chosen)

    def _tags_of(self, member: str) -> list[tuple[str, str]]:
        """Return the tags of a member that the rules name, with their values."""
        tags = self.members[member].client_tags
        return [(name, tags[name]) for name in self.rules.tags if name in tags]
