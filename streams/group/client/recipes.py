"""Group recipes: leader election, task distribution, and member numbers.

Each recipe is a ``GroupClient``, a context manager that is polled or started in a separate thread.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Unpack

from streams.core.clock import Clock
from streams.core.concurrency.threads import Threads
from streams.core.errors import ConfigError
from streams.core.settings.settings import GroupClientOptions
from streams.core.user_code import refuse_unawaited
from streams.group.client.client import GroupClient, GroupListener
from streams.protocol.transport import Cluster


class MemberSettings(GroupClientOptions, total=False):
    """The arguments and settings of every group member; see ``GroupClient``."""

    clock: Clock | None
    threads: Threads | None


def _nothing() -> None:
    """Do nothing; the default for callbacks without arguments."""


def _no_tasks(tasks: Sequence[str]) -> None:
    """Do nothing; the default for callbacks that take tasks."""


def _refuse_unawaited(group_id: str, **functions: Callable[..., None]) -> None:
    for name, function in functions.items():
        refuse_unawaited(function, f"{name} of group {group_id!r}", error=ConfigError)


class _Election(GroupListener):
    def __init__(self, on_elected: Callable[[], None], on_deposed: Callable[[], None]) -> None:
        self.is_elected = False
        self._has_led = False
        self._on_elected = on_elected
        self._on_deposed = on_deposed

    def metadata(self) -> bytes:
        return b"leader" if self._has_led else b""

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        incumbents = [member for member, said in members.items() if said]
        chosen = (incumbents or list(members))[0]
        return {member: b"leader" if member == chosen else b"" for member in members}

    def on_assigned(self, assignment: bytes) -> None:
        self.is_elected = self._has_led = assignment == b"leader"
        if self.is_elected:
            self._on_elected()

    def on_revoked(self) -> None:
        was = self.is_elected
        self.is_elected = False
        if was:
            self._on_deposed()

    def on_lost(self) -> None:
        self._has_led = False
        self.on_revoked()


class LeaderElection(GroupClient):
    """A leader election: one member leads until it leaves or fails, and then another member takes over.

    ``on_elected`` and ``on_deposed`` are called inside ``poll``.  The leader stays the same when other members join or
    leave, but its leadership is suspended during the rebalance.  Check ``is_leader`` before each exclusive step: it
    becomes False after a session timeout without a response from the coordinator.
    """

    def __init__(
        self,
        broker: Cluster | None,
        group_id: str,
        *,
        on_elected: Callable[[], None] = _nothing,
        on_deposed: Callable[[], None] = _nothing,
        **settings: Unpack[MemberSettings],
    ) -> None:
        _refuse_unawaited(group_id, on_elected=on_elected, on_deposed=on_deposed)
        self._election = _Election(on_elected, on_deposed)
        super().__init__(broker, group_id, self._election, protocol_name="leader", **settings)

    @property
    def is_leader(self) -> bool:
        """Whether this member is certainly the only leader now."""
        return self._election.is_elected and self.has_assignment


class _Distribution(GroupListener):
    def __init__(
        self,
        tasks: Iterable[str],
        is_sticky: bool,
        on_assigned: Callable[[Sequence[str]], None],
        on_revoked: Callable[[Sequence[str]], None],
    ) -> None:
        self.choices = tuple(dict.fromkeys(tasks))
        self.tasks: tuple[str, ...] = ()
        self.has_changed = False
        self._owned: tuple[str, ...] = ()
        self._is_sticky = is_sticky
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked

    def metadata(self) -> bytes:
        self.has_changed = False
        return json.dumps([self.choices, self._owned]).encode()

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        said = {member: json.loads(data) for member, data in members.items()}
        order = sorted(members)
        tasks = list(dict.fromkeys(task for member in order for task in said[member][0]))
        if self._is_sticky:
            shares = share_sticky(tasks, {member: said[member][1] for member in order})
        else:
            shares = {member: tasks[index :: len(order)] for index, member in enumerate(order)}
        return {member: json.dumps(mine).encode() for member, mine in shares.items()}

    def on_assigned(self, assignment: bytes) -> None:
        self.tasks = self._owned = tuple(json.loads(assignment)) if assignment else ()
        self._on_assigned(self.tasks)

    def on_revoked(self) -> None:
        revoked = self.tasks
        self.tasks = ()
        self._on_revoked(revoked)

    def on_lost(self) -> None:
        self._owned = ()
        self.on_revoked()

    def is_rejoin_needed(self) -> bool:
        return self.has_changed


def share_sticky(tasks: Sequence[str], owned: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return an even distribution in which each member keeps as many of its tasks as possible."""
    existing = set(tasks)
    taken: set[str] = set()
    retained: dict[str, list[str]] = {}
    each, extra = divmod(len(tasks), len(owned))
    # Members with the most tasks get the longer lists, so that fewer tasks move.
    for member in sorted(owned, key=lambda member: -len(owned[member])):
        mine = [task for task in owned[member] if task in existing and task not in taken]
        mine = mine[: each + (extra > 0 and len(mine) > each)]
        extra -= len(mine) > each
        retained[member] = mine
        taken.update(mine)
    free = [task for task in tasks if task not in taken]
    shares: dict[str, list[str]] = {}
    for member in owned:
        count = each - len(retained[member])
        if count >= 0 and extra > 0 and len(retained[member]) <= each:
            count = count + 1
            extra = extra - 1
        shares[member] = retained[member] + free[: max(0, count)]
        del free[: max(0, count)]
    return shares


class TaskDistribution(GroupClient):
    """The distribution of a list of tasks among the members of a group.

    "round_robin" assigns adjacent tasks in the list to different members; "sticky" moves as few tasks as possible
    when members join or leave.  The tasks are the union of all members' lists, which are usually equal.
    ``on_assigned`` and ``on_revoked`` are called inside ``poll`` with all tasks of this member.  Rebalancing is eager:
    a member revokes all its tasks before each rebalance, so that no task has two owners.

    Raises:
        ConfigError: the strategy is unknown.
    """

    def __init__(
        self,
        broker: Cluster | None,
        group_id: str,
        tasks: Iterable[str],
        *,
        strategy: Literal["round_robin", "sticky"] = "round_robin",
        on_assigned: Callable[[Sequence[str]], None] = _no_tasks,
        on_revoked: Callable[[Sequence[str]], None] = _no_tasks,
        **settings: Unpack[MemberSettings],
    ) -> None:
        if strategy not in ("round_robin", "sticky"):
            raise ConfigError(f"strategy {strategy!r} of group {group_id!r}: use 'round_robin' or 'sticky'")
        _refuse_unawaited(group_id, on_assigned=on_assigned, on_revoked=on_revoked)
        self._distribution = _Distribution(tasks, strategy == "sticky", on_assigned, on_revoked)
        super().__init__(broker, group_id, self._distribution, protocol_name=strategy, **settings)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that this member certainly owns at this time."""
        return self._distribution.tasks if self.has_assignment else ()

    def change(self, tasks: Iterable[str]) -> None:
        """Replace this member's task list and trigger a rebalance."""
        self._distribution.choices = tuple(dict.fromkeys(tasks))
        self._distribution.has_changed = True


class _Numbering(GroupListener):
    def __init__(self, on_numbered: Callable[[int, int], None]) -> None:
        self.number: int | None = None
        self.count = 0
        self._last: int | None = None
        self._on_numbered = on_numbered

    def metadata(self) -> bytes:
        return json.dumps(self._last).encode()

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        count = len(members)
        numbers: dict[int, str] = {}
        for member in sorted(members):
            last = json.loads(members[member])
            if last is not None and last < count:
                numbers.setdefault(last, member)
        settled = set(numbers.values())
        others = (member for member in sorted(members) if member not in settled)
        for number in range(count):
            if number not in numbers:
                numbers[number] = next(others)
        return {member: json.dumps([number, count]).encode() for number, member in numbers.items()}

    def on_assigned(self, assignment: bytes) -> None:
        if assignment:
            self.number, self.count = json.loads(assignment)
            self._last = self.number
            self._on_numbered(json.loads(assignment)[0], self.count)

    def on_revoked(self) -> None:
        self.number = None

    def on_lost(self) -> None:
        self._last = self.number = None


def _no_number(number: int, count: int) -> None:
    """Do nothing; the default for ``on_numbered``."""


class MemberNumber(GroupClient):
    """Numbers a group's members from 0, so that work can be divided by key modulo member count.

    ``on_numbered`` is called inside ``poll`` with this member's number and the member count.  Numbers change as
    little as possible.
    """

    def __init__(
        self,
        broker: Cluster | None,
        group_id: str,
        *,
        on_numbered: Callable[[int, int], None] = _no_number,
        **settings: Unpack[MemberSettings],
    ) -> None:
        _refuse_unawaited(group_id, on_numbered=on_numbered)
        self._numbering = _Numbering(on_numbered)
        super().__init__(broker, group_id, self._numbering, protocol_name="number", **settings)

    @property
    def number(self) -> int | None:
        """This member's number, or None during a rebalance."""
        return self._numbering.number if self.has_assignment else None

    @property
    def count(self) -> int:
        """The number of members in the current generation."""
        return self._numbering.count

    def owns(self, key: int) -> bool:
        """Whether this member certainly owns ``key`` now, that is, ``key`` modulo the member count is this member's
        number.
        """
        number = self.number
        return number is not None and key % self._numbering.count == number
