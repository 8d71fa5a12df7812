"""The members of consumer groups that use the classic protocol, while a group is migrated (KIP-848, online migration).

The coordinator answers their JoinGroup, SyncGroup and Heartbeat at once, from the target assignment: no member leads,
and no member waits for another.  The generation of such a member is its epoch.  This is a part of ``coordinator``: a
state machine without I/O.
"""

from typing import TypeAlias, TypeGuard

from attrs import define, evolve

from streams.core.errors import BrokerError
from streams.group.consumer_group import (
    NO_PLACES,
    ClassicProtocol,
    ConsumerGroup,
    ConsumerGroupMember,
    ReconciliationState,
)
from streams.group.consumer_groups import ConsumerGroups
from streams.group.coordinator_config import MigrationPolicy
from streams.group.migration import encoded, joined_subscription, places_of
from streams.group.states import Group
from streams.group.subscriptions import CONSUMER_PROTOCOL_TYPE, Subscription
from streams.group.timers import GroupTimer, TimerKind
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    SyncGroup,
    SyncGroupResponse,
)
from streams.protocol.request import Request

ClassicRequest: TypeAlias = Heartbeat | JoinGroup | LeaveGroup | SyncGroup
ClassicResponse: TypeAlias = HeartbeatResponse | JoinGroupResponse | LeaveGroupResponse | SyncGroupResponse


@define(eq=False)
class ClassicMembers:
    """Answers the requests of the classic protocol in consumer groups."""

    consumers: ConsumerGroups

    def concerns(self, request: Request) -> TypeGuard[ClassicRequest]:
        """Whether a request is one of the classic protocol to a consumer group with members."""
        if not isinstance(request, ClassicRequest):
            return False
        shell = self.consumers.groups.get(request.group_id)
        return shell is not None and shell.consumer is not None and not shell.is_empty

    def handle(self, request: ClassicRequest, now_ms: int) -> ClassicResponse:
        """Handle a request to a consumer group with members."""
        shell = self.consumers.groups.get(request.group_id)
        assert shell is not None
        assert shell.consumer is not None
        try:
            match request:
                case JoinGroup():
                    return self._join(shell, shell.consumer, request, now_ms)
                case SyncGroup():
                    return self._sync(shell, shell.consumer, request, now_ms)
                case Heartbeat():
                    return self._heartbeat(shell, shell.consumer, request, now_ms)
                case LeaveGroup():
                    return self._leave(shell, shell.consumer, request)
        except BrokerError as error:
            return _refusal(request, ErrorCode(error.code))

    # --- join -------------------------------------------------------------------------

    def _join(self, shell: Group, group: ConsumerGroup, request: JoinGroup, now_ms: int) -> JoinGroupResponse:
        subscription = self._checked(group, request)
        if request.takes_member_id and not request.member_id and request.group_instance_id is None:
            # Assign the ID first, so that only one of several duplicate joins becomes a member (KIP-394).
            member_id = self.consumers.new_member_id()
            shell.pending[member_id] = None
            pending = GroupTimer(TimerKind.PENDING, shell.group_id, member_id)
            self.consumers.timers.set(pending, now_ms + request.session_timeout_ms)
            return JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        known = self._known(shell, group, request)
        member = evolve(
            known,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=frozenset(subscription.topics),
            topic_regex=None,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            server_assignor=None,
            classic=ClassicProtocol(request.session_timeout_ms, tuple(request.protocols)),
        )
        owned = places_of(subscription.owned, self.consumers.topics.found)
        found = self.consumers.reconcile(shell, known, member, owned, now_ms)
        # The member must synchronize before its rebalance timeout.
        self.consumers.timers.set(_step(shell, found), now_ms + found.rebalance_timeout_ms)
        name = request.protocols[0][0]
        # Without a leader, no member computes an assignment.
        return JoinGroupResponse(
            ErrorCode.NONE, found.epoch, name, "", found.member_id, (), CONSUMER_PROTOCOL_TYPE, None
        )

    def _checked(self, group: ConsumerGroup, request: JoinGroup) -> Subscription:
        """Return the subscription of a member that may join.

        Raises:
            BrokerError: it may not.
        """
        config = self.consumers.configs.defaults
        if not config.allows_session(request.session_timeout_ms):
            raise BrokerError("session timeout out of bounds", code=ErrorCode.INVALID_SESSION_TIMEOUT)
        subscription = joined_subscription(request.protocols)
        others = [m.classic.names for m in group.members.values() if m.classic and m.member_id != request.member_id]
        # A protocol that all support remains, so that the group can become classic again.
        common = frozenset(name for name, _ in request.protocols).intersection(*others)
        is_consumer = request.protocol_type == CONSUMER_PROTOCOL_TYPE and subscription is not None
        is_allowed = config.consumer_migration_policy is not MigrationPolicy.DISABLED
        if subscription is None or not (is_consumer and is_allowed and common):
            raise BrokerError(
                f"Member cannot join the consumer group {request.group_id} with the classic protocol.",
                code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            )
        return subscription

    def _known(self, shell: Group, group: ConsumerGroup, request: JoinGroup) -> ConsumerGroupMember:
        """Return the member of a join: a known one, a new one, or one that replaces its static predecessor."""
        member_id, instance = request.member_id, request.group_instance_id
        if member_id in shell.pending:
            del shell.pending[member_id]
            self.consumers.timers.cancel(GroupTimer(TimerKind.PENDING, shell.group_id, member_id))
            return ConsumerGroupMember(member_id, instance)
        if member_id:
            return _validated(group, member_id, instance)
        predecessor = None if instance is None else group.static_member(instance)
        member_id = self.consumers.new_member_id()
        if predecessor is None:
            return ConsumerGroupMember(member_id, instance)
        return self.consumers.rejoined(shell.group_id, group, predecessor, member_id)

    # --- sync, heartbeat, leave -------------------------------------------------------

    def _sync(self, shell: Group, group: ConsumerGroup, request: SyncGroup, now_ms: int) -> SyncGroupResponse:
        member, classic = _of_classic(group, request.member_id, request.group_instance_id)
        name = request.protocol_name
        if request.generation_id != member.epoch:
            return SyncGroupResponse(ErrorCode.ILLEGAL_GENERATION)
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or not (name is None or name in classic.names):
            return SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_revoking = member.state is ReconciliationState.UNREVOKED_PARTITIONS
        if group.assignment_epoch > member.epoch and not is_revoking:
            self._expect_join(shell, member, now_ms)
            return SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS)
        if not is_revoking:
            # A member that must revoke partitions must join again before the deadline that its join has set.
            self.consumers.timers.cancel(_step(shell, member))
        self._touch(shell, member, classic, now_ms)
        self.consumers.note(shell)
        assignment = encoded(member.assigned, group.topics.names)
        return SyncGroupResponse(ErrorCode.NONE, assignment, CONSUMER_PROTOCOL_TYPE, name or classic.protocols[0][0])

    def _heartbeat(self, shell: Group, group: ConsumerGroup, request: Heartbeat, now_ms: int) -> HeartbeatResponse:
        member, classic = _of_classic(group, request.member_id, request.group_instance_id)
        if request.generation_id != member.epoch:
            return HeartbeatResponse(ErrorCode.ILLEGAL_GENERATION)
        self._touch(shell, member, classic, now_ms)
        self.consumers.refresh(shell.group_id, group, now_ms, is_changed=False)
        self.consumers.note(shell)
        if not _must_join(group, member):
            return HeartbeatResponse(ErrorCode.NONE)
        self._expect_join(shell, member, now_ms)
        return HeartbeatResponse(ErrorCode.REBALANCE_IN_PROGRESS)

    def _leave(self, shell: Group, group: ConsumerGroup, request: LeaveGroup) -> LeaveGroupResponse:
        if request.member_id in shell.pending:
            del shell.pending[request.member_id]
            self.consumers.timers.cancel(GroupTimer(TimerKind.PENDING, shell.group_id, request.member_id))
            return LeaveGroupResponse(ErrorCode.NONE)
        instance, member_id = request.group_instance_id, request.member_id
        if not member_id and instance is not None:
            # An administrator may remove a static member by its instance ID.
            member_id = group.static_members.get(instance, "")
        member, _ = _of_classic(group, member_id, instance)
        self.consumers.remove(shell, member)
        return LeaveGroupResponse(ErrorCode.NONE)

    # --- timers -----------------------------------------------------------------------

    def _touch(self, shell: Group, member: ConsumerGroupMember, classic: ClassicProtocol, now_ms: int) -> None:
        """Restart a member's session."""
        session = GroupTimer(TimerKind.CONSUMER_SESSION, shell.group_id, member.member_id)
        self.consumers.timers.set(session, now_ms + classic.session_timeout_ms)

    def _expect_join(self, shell: Group, member: ConsumerGroupMember, now_ms: int) -> None:
        """Remove the member unless it joins within its rebalance timeout."""
        step = _step(shell, member)
        if self.consumers.timers.deadline_ms(step) is None:
            self.consumers.timers.set(step, now_ms + member.rebalance_timeout_ms)


def _must_join(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """Whether a member must join again: for a new epoch, for a revocation, or to get all partitions that it lacks."""
    if member.epoch < group.assignment_epoch or member.state is ReconciliationState.UNREVOKED_PARTITIONS:
        return True
    missing = group.target.get(member.member_id, NO_PLACES) - member.assigned
    is_waiting = member.state is ReconciliationState.UNRELEASED_PARTITIONS
    return is_waiting and all(map(group.is_free_for(member.member_id), missing))


def _step(shell: Group, member: ConsumerGroupMember) -> GroupTimer:
    return GroupTimer(TimerKind.RECONCILIATION, shell.group_id, member.member_id)


def _validated(group: ConsumerGroup, member_id: str, group_instance_id: str | None) -> ConsumerGroupMember:
    member = group.members.get(member_id) if group_instance_id is None else group.static_member(group_instance_id)
    if member is None:
        raise BrokerError(f"Member {member_id} is not a member of the group.", code=ErrorCode.UNKNOWN_MEMBER_ID)
    if member.member_id != member_id:
        raise BrokerError(f"Member {member_id} was fenced.", code=ErrorCode.FENCED_INSTANCE_ID)
    return member


def _of_classic(
    group: ConsumerGroup, member_id: str, group_instance_id: str | None
) -> tuple[ConsumerGroupMember, ClassicProtocol]:
    """Return a member that uses the classic protocol.

    Raises:
        BrokerError: there is none with this ID (``UNKNOWN_MEMBER_ID``), or another process has its instance ID
            (``FENCED_INSTANCE_ID``).
    """
    member = _validated(group, member_id, group_instance_id)
    if member.classic is None:
        raise BrokerError(f"Member {member_id} uses the consumer protocol.", code=ErrorCode.UNKNOWN_MEMBER_ID)
    return member, member.classic


def _refusal(request: ClassicRequest, error: ErrorCode) -> ClassicResponse:
    match request:
        case JoinGroup():
            return JoinGroupResponse(error, member_id=request.member_id)
        case SyncGroup():
            return SyncGroupResponse(error)
        case Heartbeat():
            return HeartbeatResponse(error)
        case LeaveGroup():
            return LeaveGroupResponse(error)
