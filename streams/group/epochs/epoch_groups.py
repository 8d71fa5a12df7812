"""The machine of all groups with epochs, whose coordinator assigns the work: consumer (KIP-848) and streams (KIP-1071).

This is a part of ``coordinator``, which has the classic groups: a state machine without I/O.  All that a member does is
its heartbeat.  A change raises the epoch of the group, for which its kind computes a target assignment, and each member
moves towards that by itself.  What is assigned, and what is recorded of it, is said by the kind (``EpochKind``).
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from random import Random
from typing import Any, Final, Protocol, TypeAlias

from attrs import evolve, frozen

from streams.core.blocks.records import TopicPartition
from streams.core.errors import BrokerError
from streams.group.state.effects import Persist
from streams.group.state.epoch_group import EpochGroupMember
from streams.group.state.epoch_log import GroupLog
from streams.group.state.group_configs import GroupConfigs
from streams.group.state.registry import Groups
from streams.group.state.states import AnyEpochGroup, Group, absence, check_instance
from streams.group.state.timers import GroupTimer, TimerKind, Timers
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    OffsetCommit,
    OffsetFetch,
)
from streams.protocol.messages import TxnOffsetCommit
from streams.protocol.request import Response
from streams.protocol.streams_group_messages import StreamsGroupDescribe, StreamsGroupHeartbeat

#: A request that only such groups have.
EpochRequest: TypeAlias = ConsumerGroupHeartbeat | ConsumerGroupDescribe | StreamsGroupHeartbeat | StreamsGroupDescribe
_MEMBER_TIMERS: Final = (TimerKind.CONSUMER_SESSION, TimerKind.RECONCILIATION)


class EpochKind(Protocol):
    """What one kind of group assigns and records.

    Its groups, members, requests and responses have the attributes that the machine uses; what is assigned, the work,
    is a value that can be compared.
    """

    @property
    def name(self) -> str:
        """The name of the kind in settings and messages."""
        ...

    @property
    def title(self) -> str:
        """The kind as the subject of a message."""
        ...

    @property
    def work(self) -> str:
        """What is assigned, as messages name it."""
        ...

    @property
    def log(self) -> GroupLog:
        """The records of a group."""
        ...

    @property
    def settles_when_empty(self) -> bool:
        """Whether a group without members has reached the target assignment of its epoch."""
        ...

    @property
    def heartbeat(self) -> type[Any]:
        """The class of its heartbeats."""
        ...

    @property
    def description(self) -> type[Any]:
        """The class of requests to describe a group."""
        ...

    def describe(self, shell: Group | None, request: Any) -> Response:
        """Return the description of a group, or that there is none."""
        ...

    def check(self, request: Any) -> None:
        """Check a heartbeat by itself.

        Raises:
            BrokerError: a field is missing or invalid.
        """
        ...

    def failed(self, request: Any, error: BrokerError) -> Response:
        """Return the response to a rejected heartbeat."""
        ...

    def left(self, group: Any, request: Any) -> Response:
        """Return the response to a member that has left the group."""
        ...

    def answered(self, group_id: str, group: Any, before: Any, member: Any, request: Any, delay_ms: int) -> Response:
        """Return the response to a member that stays; ``before`` is the member before the heartbeat."""
        ...

    def opened(self, generation_id: int) -> Any:
        """Return a new group; ``generation_id`` is that of the classic group whose place it takes, or 0."""
        ...

    def owned(self, request: Any) -> Any:
        """Return the work that a member reports, or None if it reports none."""
        ...

    def is_repeated(self, member: Any, request: Any) -> bool:
        """Whether a member of the previous epoch reports no more than it has: the last response may have been lost."""
        ...

    def rejoined(self, member: Any, member_id: str) -> Any:
        """Return a member as it joins again, with this ID."""
        ...

    def examined(self, group: Any, request: Any) -> Any:
        """Return what a heartbeat means for a group, for ``refresh``; nothing is changed.

        Raises:
            BrokerError: it does not fit the group.
        """
        ...

    def described(self, member: Any, request: Any) -> Any:
        """Return a member with what a heartbeat says that only this kind has."""
        ...

    def is_relevant(self, before: Any, member: Any) -> bool:
        """Whether a member that has changed requires a new assignment."""
        ...

    def note_change(self, group: Any, before: Any, member: Any) -> None:
        """Note that a member has changed, or, if ``member`` is None, that it is removed."""
        ...

    def refresh(self, group: Any, request: Any, facts: Any, *, is_changed: bool) -> bool:
        """Note what ``examined`` has returned, and the state of the topics; return whether a new assignment is due."""
        ...

    def first_delay_ms(self, group_id: str) -> int:
        """Return for how many milliseconds the first assignment waits for more members, or 0."""
        ...

    def targets(self, group_id: str, group: Any) -> Mapping[str, Any]:
        """Return the target assignment of each member for the epoch of the group."""
        ...

    def reconciled(self, group: Any, member: Any, owned: Any) -> Any:
        """Return the next state of a member on its way to its target assignment."""
        ...

    def owners(self, group: Any, partitions: Set[TopicPartition]) -> Sequence[Any]:
        """Return the members that own any of ``partitions``."""
        ...

    def has_had(self, group: Any, member: Any, partition: TopicPartition, epoch: int) -> bool:
        """Whether a member may commit a partition with an earlier epoch, because it has had it since then."""
        ...


@frozen(eq=False)
class EpochGroups:
    """The groups with epochs of one broker; they share group IDs and committed offsets with the classic groups."""

    configs: GroupConfigs
    rng: Random
    groups: Groups
    timers: Timers[GroupTimer]
    kinds: Sequence[EpochKind]

    # --- heartbeats -------------------------------------------------------------------

    def handle(self, request: EpochRequest, now_ms: int) -> Response:
        """Return the response to a request."""
        for kind in self.kinds:
            if isinstance(request, kind.heartbeat):
                return self._heartbeat(kind, request, now_ms)
            if isinstance(request, kind.description):
                return kind.describe(self.groups.get(request.group_id), request)
        raise AssertionError(f"no kind of group has a request {request!r}")

    def _heartbeat(self, kind: EpochKind, request: Any, now_ms: int) -> Response:
        """Handle a heartbeat: join, leave, or move the member towards its target assignment."""
        try:
            kind.check(request)
            if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                return self._leave(kind, request)
            return self._stay(kind, request, now_ms)
        except BrokerError as error:
            return kind.failed(request, error)

    def _stay(self, kind: EpochKind, request: Any, now_ms: int) -> Response:
        # Whatever may be wrong with a request is noticed before anything changes.
        group_id = request.group_id
        group = self._opened(kind, request)
        before, registered = self._begun(kind, group, request)
        facts = kind.examined(group, request)
        shell = self.groups.get_or_create(group_id)
        if shell.epoch_group is None:
            self.groups.become_epoch_group(shell, group)
        if registered is not None and before is not registered:
            self._replace(kind, group_id, group, registered, before)
        is_first = not group.members
        member = _described(kind, before, request)
        is_new = member.member_id not in group.members
        is_changed = is_new or member != before
        if is_changed:
            group.put(member)
            self._persist(kind.log.of_member(kind.log.member, group_id, member))
            kind.note_change(group, before, member)
            is_changed = is_new or kind.is_relevant(before, member)
        if kind.refresh(group, request, facts, is_changed=is_changed):
            self._advance(kind, group_id, group)
        delay_ms = self._delay_ms(kind, group_id, group, now_ms, is_first=is_first)
        if not delay_ms and group.epoch > group.assignment_epoch:
            self._assign(kind, group_id, group, now_ms)
        after = kind.reconciled(group, member, kind.owned(request))
        if after != member:
            group.put(after)
            self._persist(kind.log.of_member(kind.log.current, group_id, after))
            kind.note_change(group, member, after)
        self._set_timers(kind, group_id, member, after, now_ms)
        return kind.answered(group_id, group, before, after, request, delay_ms)

    def _opened(self, kind: EpochKind, request: Any) -> Any:
        """Return the group of a request; for a join it may be a new one, which is not registered yet."""
        group_id = request.group_id
        shell = self.groups.get(group_id)
        if shell is not None and isinstance(shell.epoch_group, kind.log.group_type):
            return shell.epoch_group
        is_free = shell is None or (shell.epoch_group is None and shell.is_empty)
        if request.member_epoch == JOIN_EPOCH and is_free:
            return kind.opened(0 if shell is None else shell.generation_id)
        message = absence(shell, group_id, kind.name) if shell else f"{kind.title} {group_id} not found."
        raise BrokerError(message, code=ErrorCode.GROUP_ID_NOT_FOUND)

    def _begun(self, kind: EpochKind, group: AnyEpochGroup, request: Any) -> tuple[Any, Any]:
        """Return the member of a request as it begins, and the registered one that it was, or None for a new one.

        Raises:
            BrokerError: the member is unknown, fenced by another one, or has another epoch.
        """
        is_joining = request.member_epoch == JOIN_EPOCH
        member = _registered(group, request)
        if member is None and not is_joining:
            raise _unknown(request)
        if member is not None and not is_joining:
            check_instance(member.member_id, request.member_id, request.group_instance_id)
            _check_epoch(kind, member, request)
            return member, member
        member_id = request.member_id or str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        if member is None:
            return kind.log.member_type(member_id, request.group_instance_id), None
        if member.member_id != member_id and not member.is_away:
            raise BrokerError(
                f"Static member {member_id} with instance id {member.group_instance_id} cannot join the group because "
                f"the instance id is owned by {member.member_id} member.",
                code=ErrorCode.UNRELEASED_INSTANCE_ID,
            )
        return kind.rejoined(member, member_id), member

    def _replace(self, kind: EpochKind, group_id: str, group: AnyEpochGroup, old: Any, member: Any) -> None:
        """Let a member take the place of its predecessor, which may be itself, with its target assignment."""
        log = kind.log
        target = group.target.get(old.member_id)
        is_other = member.member_id != old.member_id
        if is_other:
            self._drop(kind, group_id, group, old)
        group.put(member)
        self._persist(log.of_member(log.current, group_id, member))
        if is_other:
            self._persist(log.of_member(log.member, group_id, member))
            if target is not None:
                group.target[member.member_id] = target
                self._persist(log.of_target(group_id, member.member_id, target))

    def _leave(self, kind: EpochKind, request: Any) -> Response:
        group_id = request.group_id
        group = self._opened(kind, request)
        member = _registered(group, request)
        if member is None:
            raise _unknown(request)
        check_instance(member.member_id, request.member_id, request.group_instance_id)
        if request.member_epoch == LEAVE_EPOCH:
            self._remove(kind, group_id, group, member)
        else:
            self.timers.cancel(GroupTimer(TimerKind.RECONCILIATION, group_id, member.member_id))
            away = member.away()
            group.put(away)
            self._persist(kind.log.of_member(kind.log.current, group_id, away))
        return kind.left(group, request)

    # --- assignment -------------------------------------------------------------------

    def _advance(self, kind: EpochKind, group_id: str, group: AnyEpochGroup) -> None:
        group.epoch += 1
        self._persist(kind.log.of_group(kind.log.group, group_id, group))

    def _delay_ms(self, kind: EpochKind, group_id: str, group: AnyEpochGroup, now_ms: int, *, is_first: bool) -> int:
        """Return for how many milliseconds a group that has changed waits for its assignment, or 0.

        The first assignment waits for more members, from the first one on; the next ones keep a distance.
        """
        timer = GroupTimer(TimerKind.FIRST_ASSIGNMENT, group_id)
        if is_first and (first_ms := kind.first_delay_ms(group_id)) and self.timers.deadline_ms(timer) is None:
            self.timers.set(timer, now_ms + first_ms)
        if (deadline_ms := self.timers.deadline_ms(timer)) is not None:
            return max(1, deadline_ms - now_ms)
        return self.configs.assignment_delay_ms(kind.name, group_id, group, now_ms)

    def _assign(self, kind: EpochKind, group_id: str, group: AnyEpochGroup, now_ms: int) -> None:
        """Compute the target assignment of the group epoch."""
        targets = kind.targets(group_id, group)
        for member_id in group.members:
            target = targets[member_id]
            if target != group.target.get(member_id):
                group.target[member_id] = target
                self._persist(kind.log.of_target(group_id, member_id, target))
        group.assignment_epoch = group.epoch
        group.assigned_ms = now_ms
        self._persist(kind.log.of_group(kind.log.target, group_id, group))

    # --- the end of members -----------------------------------------------------------

    def _remove(self, kind: EpochKind, group_id: str, group: AnyEpochGroup, member: Any) -> None:
        """Remove a member that has left, expired, or been fenced; the others are assigned its work."""
        self._drop(kind, group_id, group, member)
        kind.note_change(group, member, None)
        self._advance(kind, group_id, group)
        if group.members:
            return
        self.timers.cancel(GroupTimer(TimerKind.FIRST_ASSIGNMENT, group_id))
        group.assigned_ms = None
        if kind.settles_when_empty:
            group.assignment_epoch = group.epoch
            self._persist(kind.log.of_group(kind.log.target, group_id, group))

    def _drop(self, kind: EpochKind, group_id: str, group: AnyEpochGroup, member: Any) -> None:
        for timer in _MEMBER_TIMERS:
            self.timers.cancel(GroupTimer(timer, group_id, member.member_id))
        group.remove(member)
        self.groups.effects += (Persist(key, None) for key in kind.log.keys_of_member(group_id, member.member_id))

    def expire(self, shell: Group, timer: GroupTimer, now_ms: int) -> None:
        """Remove a member whose session has expired, or which did not revoke its work in time; or assign at last."""
        group = shell.epoch_group
        if group is None:
            return
        kind = self._kind_of(group)
        if timer.kind is TimerKind.FIRST_ASSIGNMENT:
            if group.members and group.epoch > group.assignment_epoch:
                self._assign(kind, shell.group_id, group, now_ms)
        elif (member := group.members.get(timer.member_id)) is not None:
            self._remove(kind, shell.group_id, group, member)

    def remove_members(self, is_gone: Callable[[EpochGroupMember], bool]) -> None:
        """Remove the members for which ``is_gone`` is True from all groups."""
        for group_id, group, kind in self._all():
            for member in list(filter(is_gone, group.members.values())):
                self._remove(kind, group_id, group, member)

    def remove_owners(self, shell: Group, partitions: Set[TopicPartition]) -> None:
        """Remove the members that own any of ``partitions``."""
        if shell.epoch_group is not None:
            kind = self._kind_of(shell.epoch_group)
            for member in kind.owners(shell.epoch_group, partitions):
                self._remove(kind, shell.group_id, shell.epoch_group, member)

    def start_sessions(self, now_ms: int) -> None:
        """Start the sessions of all members that were loaded from the log."""
        for group_id, group, kind in self._all():
            for member in group.members.values():
                self._set_timers(kind, group_id, member, member, now_ms)

    def _set_timers(self, kind: EpochKind, group_id: str, before: Any, member: Any, now_ms: int) -> None:
        """Start the session of a member anew, and the time for what it has to give up since ``before``."""
        session = GroupTimer(TimerKind.CONSUMER_SESSION, group_id, member.member_id)
        self.timers.set(session, now_ms + self.configs.session_timeout_ms(kind.name, group_id))
        revocation = GroupTimer(TimerKind.RECONCILIATION, group_id, member.member_id)
        if not member.is_revoking:
            self.timers.cancel(revocation)
        elif member.revoking != before.revoking or self.timers.deadline_ms(revocation) is None:
            self.timers.set(revocation, now_ms + member.rebalance_timeout_ms)

    # --- offsets ----------------------------------------------------------------------

    def check_fetch(self, request: OffsetFetch) -> ErrorCode:
        """Return the error code for the member ID and epoch with which offsets are fetched, or NONE."""
        shell = self.groups.get(request.group_id)
        if shell is None or shell.epoch_group is None or request.member_id is None:
            return ErrorCode.NONE
        member = shell.epoch_group.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member.epoch == request.member_epoch else ErrorCode.STALE_MEMBER_EPOCH

    def check_commit(self, group: AnyEpochGroup, request: OffsetCommit | TxnOffsetCommit) -> ErrorCode:
        """Return the error code for the member ID and epoch with which offsets are committed, or NONE.

        Offsets may be committed without an epoch while the group has no members.
        """
        is_in_transaction = isinstance(request, TxnOffsetCommit)
        epoch = request.generation_id
        # Transactions without a member are fenced by the producer epoch.
        if epoch < 0 and (not group.members or (is_in_transaction and not request.member_id)):
            return ErrorCode.NONE
        member = group.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        kind = self._kind_of(group)
        if epoch == member.epoch or (
            epoch < member.epoch and all(kind.has_had(group, member, partition, epoch) for partition in request.offsets)
        ):
            return ErrorCode.NONE
        # Transactions do not know member epochs.
        return ErrorCode.ILLEGAL_GENERATION if is_in_transaction else ErrorCode.STALE_MEMBER_EPOCH

    def _all(self) -> Iterator[tuple[str, AnyEpochGroup, EpochKind]]:
        """Yield each group with its ID and kind."""
        for shell in self.groups:
            if shell.epoch_group is not None:
                yield shell.group_id, shell.epoch_group, self._kind_of(shell.epoch_group)

    def _kind_of(self, group: AnyEpochGroup) -> EpochKind:
        return next(kind for kind in self.kinds if isinstance(group, kind.log.group_type))

    def _persist(self, record: Persist) -> None:
        self.groups.effects.append(record)


def _described(kind: EpochKind, member: Any, request: Any) -> Any:
    """Return a member with what a heartbeat says about it."""
    has_timeout = request.rebalance_timeout_ms >= 0
    common = evolve(
        member,
        group_instance_id=request.group_instance_id or member.group_instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else member.rebalance_timeout_ms,
    )
    return kind.described(common, request)


def _registered(group: AnyEpochGroup, request: Any) -> Any:
    """Return the member with the instance ID of a request, or else with its member ID; None if there is none."""
    instance = request.group_instance_id
    return group.members.get(request.member_id if instance is None else group.static_members.get(instance, ""))


def _unknown(request: Any) -> BrokerError:
    instance = request.group_instance_id
    if instance is not None:
        return BrokerError(f"Instance id {instance} is unknown.", code=ErrorCode.UNKNOWN_MEMBER_ID)
    return BrokerError(
        f"Member {request.member_id} is not a member of group {request.group_id}.", code=ErrorCode.UNKNOWN_MEMBER_ID
    )


def _check_epoch(kind: EpochKind, member: Any, request: Any) -> None:
    """Check the epoch of a member.

    Raises:
        BrokerError: it is another one (``FENCED_MEMBER_EPOCH``), unless the response that advanced it was lost.
    """
    epoch = request.member_epoch
    is_previous = epoch == member.previous_epoch and epoch < member.epoch
    if epoch == member.epoch or (is_previous and kind.is_repeated(member, request)):
        return
    is_greater = "greater" if epoch > member.epoch else "smaller"
    raise BrokerError(
        f"The {kind.name} group member has a {is_greater} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its {kind.work} and rejoin.",
        code=ErrorCode.FENCED_MEMBER_EPOCH,
    )
