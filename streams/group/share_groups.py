"""The coordinator side of share groups: membership and assignment (KIP-932).

This is a part of ``coordinator``: a state machine without I/O.  The records of a partition are given to members by
``broker.shares``, which does not ask whether a member is assigned the partition.
"""

from collections.abc import Mapping

from attrs import define, evolve

from streams.core.errors import BrokerError
from streams.group.consumer_group import NO_PLACES, Places, by_id
from streams.group.effects import Persist
from streams.group.group_configs import GroupConfigs
from streams.group.registry import Groups
from streams.group.share_assignor import SIMPLE, assign_shares
from streams.group.share_group import ShareGroup, ShareGroupMember
from streams.group.share_log import (
    TARGETS,
    current_record,
    group_record,
    keys_of_member,
    member_record,
)
from streams.group.states import Group
from streams.group.timers import GroupTimer, TimerKind, Timers
from streams.group.topic_directory import TopicDirectory
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import JOIN_EPOCH, LEAVE_EPOCH, NamedAssignment, NamedPartitions
from streams.protocol.share_group_messages import (
    DescribedShareMember,
    ShareGroupDescribe,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
)

_REJOIN = "The member must abandon all its partitions and rejoin."


@define(eq=False)
class ShareGroups:
    """The share groups of one broker."""

    configs: GroupConfigs
    groups: Groups
    timers: Timers[GroupTimer]
    topics: TopicDirectory

    def heartbeat(self, request: ShareGroupHeartbeat, now_ms: int) -> ShareGroupHeartbeatResponse:
        """Handle a heartbeat: join, leave, or stay with what is the target assignment now."""
        try:
            _check(request)
            if request.member_epoch == LEAVE_EPOCH:
                return self._leave(request)
            return self._stay(request, now_ms)
        except BrokerError as error:
            return ShareGroupHeartbeatResponse(ErrorCode(error.code), str(error))

    def _stay(self, request: ShareGroupHeartbeat, now_ms: int) -> ShareGroupHeartbeatResponse:
        shell, group = self._opened(request)
        group_id = shell.group_id
        known = self._known(group_id, group, request)
        member = _subscribed(known, request)
        is_new = member.member_id not in group.members
        group.members[member.member_id] = member
        if is_new or member != known:
            self._persist(member_record(group_id, member))
        self._refresh(group_id, group, now_ms, is_changed=is_new or member.topics != known.topics)
        found = member.reached(group.assignment_epoch, group.target.get(member.member_id, NO_PLACES))
        if found != member:
            group.members[member.member_id] = found
            self._persist(current_record(group_id, found))
        self.set_timers(group_id, known, found, now_ms)
        delay_ms = self.configs.assignment_delay_ms("share", group_id, group, now_ms)
        is_full = request.member_epoch == JOIN_EPOCH or request.topics is not None
        return ShareGroupHeartbeatResponse(
            ErrorCode.NONE,
            "",
            found.member_id,
            found.epoch,
            self.configs.heartbeat_interval_ms("share", group_id, delay_ms),
            by_id(found.assigned) if is_full or found.assigned != known.assigned else None,
        )

    def _opened(self, request: ShareGroupHeartbeat) -> tuple[Group, ShareGroup]:
        """Return the share group of a request; a join creates it."""
        group_id = request.group_id
        shell = self.groups.get(group_id)
        if shell is None and request.member_epoch == JOIN_EPOCH:
            shell = self.groups.made(group_id)
            shell.modern = ShareGroup()
        if shell is None:
            raise BrokerError(f"Group {group_id} not found.", code=ErrorCode.GROUP_ID_NOT_FOUND)
        if shell.share is None:
            raise BrokerError(f"Group {group_id} is not a share group.", code=ErrorCode.GROUP_ID_NOT_FOUND)
        return shell, shell.share

    def _known(self, group_id: str, group: ShareGroup, request: ShareGroupHeartbeat) -> ShareGroupMember:
        """Return the member of a request; a join adds it."""
        member_id, epoch = request.member_id, request.member_epoch
        member = group.members.get(member_id)
        if member is None:
            if epoch != JOIN_EPOCH:
                raise BrokerError(
                    f"Member {member_id} is not a member of group {group_id}.", code=ErrorCode.UNKNOWN_MEMBER_ID
                )
            limit = self.configs.defaults.share_max_size
            if len(group.members) >= limit:
                raise BrokerError(
                    f"The share group has reached its maximum capacity of {limit} members.",
                    code=ErrorCode.GROUP_MAX_SIZE_REACHED,
                )
            return ShareGroupMember(member_id)
        # The response that advanced the epoch may have been lost.
        if epoch in (JOIN_EPOCH, member.epoch, member.previous_epoch) and epoch <= member.epoch:
            return member
        is_greater = "greater" if epoch > member.epoch else "smaller"
        raise BrokerError(
            f"The share group member has a {is_greater} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). {_REJOIN}",
            code=ErrorCode.FENCED_MEMBER_EPOCH,
        )

    def _leave(self, request: ShareGroupHeartbeat) -> ShareGroupHeartbeatResponse:
        shell, group = self._opened(request)
        member = group.members.get(request.member_id)
        if member is None:
            raise BrokerError(
                f"Member {request.member_id} is not a member of group {shell.group_id}.",
                code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
        self.remove(shell, member)
        return ShareGroupHeartbeatResponse(ErrorCode.NONE, "", member.member_id, LEAVE_EPOCH)

    # --- assignment -------------------------------------------------------------------

    def _refresh(self, group_id: str, group: ShareGroup, now_ms: int, *, is_changed: bool) -> None:
        """Compute a new target assignment if the subscriptions or the subscribed topics have changed."""
        is_outdated = is_changed or group.topics.version != self.topics.version
        if not is_outdated and group.epoch == group.assignment_epoch:
            return
        wanted = (member.topics for member in group.members.values())
        if is_outdated and group.topics.look_up(self.topics, wanted):
            is_changed = True
        if is_changed:
            self._advance(group_id, group)
        if group.epoch != group.assignment_epoch and not self.configs.assignment_delay_ms(
            "share", group_id, group, now_ms
        ):
            self._assign(group_id, group, group.topics.by_name)
            group.assigned_ms = now_ms

    def _assign(self, group_id: str, group: ShareGroup, topics: Mapping[str, tuple[bytes, int]]) -> None:
        wanted = {member.member_id: member.topics for member in group.members.values()}
        for member_id, target in assign_shares(topics, wanted, group.target).items():
            if target != group.target.get(member_id):
                group.target[member_id] = target
                self._persist(TARGETS.of_member(group_id, member_id, target))
        group.assignment_epoch = group.epoch
        self._persist(TARGETS.of_group(group_id, group.assignment_epoch))

    def _advance(self, group_id: str, group: ShareGroup) -> None:
        group.epoch += 1
        self._persist(group_record(group_id, group))

    # --- the end of members -----------------------------------------------------------

    def remove(self, shell: Group, member: ShareGroupMember) -> None:
        """Remove a member that has left or expired; the others are assigned its partitions."""
        group = shell.share
        assert group is not None
        self.timers.cancel(GroupTimer(TimerKind.CONSUMER_SESSION, shell.group_id, member.member_id))
        group.remove(member)
        self.groups.effects += (Persist(key, None) for key in keys_of_member(shell.group_id, member.member_id))
        if not group.members:
            group.assigned_ms = None
        self._advance(shell.group_id, group)

    def expire(self, shell: Group, timer: GroupTimer) -> None:
        """Remove a member whose session has expired."""
        assert shell.share is not None
        member = shell.share.members.get(timer.member_id)
        if member is not None:
            self.remove(shell, member)

    def set_timers(self, group_id: str, before: ShareGroupMember, member: ShareGroupMember, now_ms: int) -> None:
        """Start the session of a member anew."""
        session = GroupTimer(TimerKind.CONSUMER_SESSION, group_id, member.member_id)
        self.timers.set(session, now_ms + self.configs.value(group_id, "share.session.timeout.ms"))

    def _persist(self, record: tuple[bytes, bytes]) -> None:
        self.groups.effects.append(Persist(*record))


def describe_shares(shell: Group | None, request: ShareGroupDescribe) -> ShareGroupDescribeResponse:
    """Return the description of a share group."""
    if shell is None or shell.share is None:
        what = "not found" if shell is None else "is not a share group"
        return ShareGroupDescribeResponse(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} {what}.")
    group = shell.share
    names = group.topics.names
    members = tuple(
        DescribedShareMember(
            member.member_id,
            member.rack_id,
            member.epoch,
            member.client_id,
            member.client_host,
            tuple(sorted(member.topics)),
            _with_names(member.assigned, names),
        )
        for member in group.members.values()
    )
    return ShareGroupDescribeResponse(
        ErrorCode.NONE, "", group.state, group.epoch, group.assignment_epoch, SIMPLE, members
    )


def _with_names(places: Places, names: Mapping[bytes, str]) -> NamedAssignment:
    return NamedAssignment(
        tuple(
            NamedPartitions(topic_id, names.get(topic_id, ""), numbers)
            for topic_id, numbers in by_id(places).partitions.items()
        )
    )


def _check(request: ShareGroupHeartbeat) -> None:
    """Check a heartbeat, with Kafka's messages.

    Raises:
        BrokerError: a field is missing or invalid (``INVALID_REQUEST``).
    """
    epoch = request.member_epoch
    rules = (
        (not request.group_id, "GroupId can't be empty."),
        (not request.member_id, "MemberId can't be empty."),
        (request.rack_id == "", "RackId can't be empty."),
        (epoch < LEAVE_EPOCH, "MemberEpoch is invalid."),
        (
            epoch == JOIN_EPOCH and not request.topics,
            "SubscribedTopicNames must be set in first request.",
        ),
    )
    for is_broken, message in rules:
        if is_broken:
            raise BrokerError(message, code=ErrorCode.INVALID_REQUEST)


def _subscribed(member: ShareGroupMember, request: ShareGroupHeartbeat) -> ShareGroupMember:
    """Return a member with what a request says about it."""
    return evolve(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=member.topics if request.topics is None else frozenset(request.topics),
    )
