"""The coordinator side of consumer groups, whose members are assigned partitions by the coordinator (KIP-848).

This is a part of ``coordinator``: a state machine without I/O.  All that a member does is its heartbeat; a rebalance
never stops members whose partitions stay with them.
"""

import uuid
from collections.abc import Mapping, Sequence, Set
from random import Random
from typing import Final

from attrs import define, evolve

from streams.core.blocks.records import TopicPartition
from streams.core.errors import BrokerError
from streams.group.consumer_group import (
    NO_PLACES,
    ConsumerGroup,
    ConsumerGroupMember,
    Places,
    ReconciliationState,
    by_id,
    named,
    reconciled,
)
from streams.group.consumer_log import (
    current_record,
    group_record,
    keys_of_member,
    member_record,
    target_member_record,
    target_record,
)
from streams.group.effects import Persist
from streams.group.group_configs import GroupConfigs
from streams.group.registry import Groups
from streams.group.server_assignors import DEFAULT_ASSIGNOR, SERVER_ASSIGNORS
from streams.group.states import Group, check_instance
from streams.group.subscriptions import Subscription
from streams.group.timers import GroupTimer, TimerKind, Timers
from streams.group.topic_directory import TopicDirectory
from streams.group.topic_patterns import PatternError, compiled
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    OffsetCommit,
)
from streams.protocol.messages import TxnOffsetCommit

_REJOIN: Final = "The member must abandon all its partitions and rejoin."


@define(eq=False)
class ConsumerGroups:
    """The consumer groups of one broker; they share group IDs and committed offsets with the classic groups."""

    configs: GroupConfigs
    rng: Random
    groups: Groups
    timers: Timers[GroupTimer]
    topics: TopicDirectory

    # --- heartbeats -------------------------------------------------------------------

    def heartbeat(self, request: ConsumerGroupHeartbeat, now_ms: int) -> ConsumerGroupHeartbeatResponse:
        """Handle a heartbeat: join, leave, or move the member towards its target assignment."""
        try:
            _check(request)
            if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                return self._leave(request)
            return self._stay(request, now_ms)
        except BrokerError as error:
            return ConsumerGroupHeartbeatResponse(ErrorCode(error.code), str(error))

    def _stay(self, request: ConsumerGroupHeartbeat, now_ms: int) -> ConsumerGroupHeartbeatResponse:
        shell, group = self._opened(request)
        known = self._known(shell.group_id, group, request)
        member = _subscribed(known, request)
        found = self._reconcile(shell, known, member, None if request.owned is None else _places(request.owned), now_ms)
        delay_ms = self.configs.assignment_delay_ms("consumer", shell.group_id, group, now_ms)
        is_full = request.member_epoch == JOIN_EPOCH or not (
            request.rebalance_timeout_ms < 0 or request.topics is None or request.owned is None
        )
        return ConsumerGroupHeartbeatResponse(
            ErrorCode.NONE,
            "",
            found.member_id,
            found.epoch,
            self.configs.heartbeat_interval_ms("consumer", shell.group_id, delay_ms),
            by_id(found.assigned) if is_full or found.assigned != known.assigned else None,
        )

    def _reconcile(
        self, shell: Group, known: ConsumerGroupMember, member: ConsumerGroupMember, owned: Places | None, now_ms: int
    ) -> ConsumerGroupMember:
        """Replace a known member by what it is now, and move it towards its target assignment; return the result.

        ``owned`` has the partitions that it reports, or None if it reports none.
        """
        group = shell.consumer
        assert group is not None
        is_new = member.member_id not in group.members
        group.put(member)
        if is_new or member != known:
            self._persist(member_record(shell.group_id, member))
        is_changed = is_new or (member.topics, member.topic_regex) != (known.topics, known.topic_regex)
        wanted = self._refresh(shell.group_id, group, now_ms, is_changed=is_changed)
        target = group.target.get(member.member_id, NO_PLACES)
        if wanted is not None:
            # The target is of earlier subscriptions: the member may not want all of it any more.
            names = group.topics.names
            target = frozenset(place for place in target if names.get(place[0]) in wanted[member.member_id])
        found = reconciled(member, group.assignment_epoch, target, group.is_free_for(member.member_id), owned)
        if found != member:
            group.put(found)
            self._persist(current_record(shell.group_id, found))
        self.set_timers(shell.group_id, member, found, now_ms)
        return found

    def _opened(self, request: ConsumerGroupHeartbeat) -> tuple[Group, ConsumerGroup]:
        """Return the consumer group of a request; a join creates it, or converts a group without members."""
        group_id = request.group_id
        shell = self.groups.get(group_id)
        if request.member_epoch == JOIN_EPOCH:
            shell = shell or self.groups.made(group_id)
            if shell.modern is None and shell.is_empty:
                self.groups.become_modern(shell, ConsumerGroup(shell.generation_id))
        if shell is None:
            raise BrokerError(f"Group {group_id} not found.", code=ErrorCode.GROUP_ID_NOT_FOUND)
        if shell.consumer is None:
            raise BrokerError(f"Group {group_id} is not a consumer group.", code=ErrorCode.GROUP_ID_NOT_FOUND)
        return shell, shell.consumer

    def _known(self, group_id: str, group: ConsumerGroup, request: ConsumerGroupHeartbeat) -> ConsumerGroupMember:
        """Return the member of a request; a join adds it, or replaces the static member that is away."""
        member_id = request.member_id
        instance = request.group_instance_id
        is_joining = request.member_epoch == JOIN_EPOCH
        member = _registered(group, request)
        if member is None:
            if is_joining:
                return ConsumerGroupMember(member_id or self._new_member_id(), instance)
            who = f"Member {member_id}" if instance is None else f"Instance id {instance}"
            raise BrokerError(f"{who} is not a member of group {group_id}.", code=ErrorCode.UNKNOWN_MEMBER_ID)
        if is_joining:
            member_id = member_id or self._new_member_id()
            if member.member_id != member_id and not member.is_away:
                raise BrokerError(
                    f"Static member {member_id} with instance id {instance} cannot join the group: the instance id is "
                    f"used by member {member.member_id}.",
                    code=ErrorCode.UNRELEASED_INSTANCE_ID,
                )
            return self._rejoined(group_id, group, member, member_id)
        check_instance(member.member_id, request.member_id, request.group_instance_id)
        self._check_epoch(member, request)
        return member

    def _rejoined(
        self, group_id: str, group: ConsumerGroup, member: ConsumerGroupMember, member_id: str
    ) -> ConsumerGroupMember:
        """Return a member that joins again, without partitions; a static one takes the target of its predecessor."""
        target = group.target.get(member.member_id)
        if member.member_id != member_id:
            self._drop(group_id, group, member)
        again = member.restarted(member_id)
        group.put(again)
        self._persist(current_record(group_id, again))
        if member.member_id != member_id:
            self._persist(member_record(group_id, again))
            if target is not None:
                group.target[member_id] = target
                self._persist(target_member_record(group_id, member_id, target))
        return again

    @staticmethod
    def _check_epoch(member: ConsumerGroupMember, request: ConsumerGroupHeartbeat) -> None:
        epoch = request.member_epoch
        if epoch == member.epoch:
            return
        # The response that advanced the epoch may have been lost.
        is_behind = epoch == member.previous_epoch and epoch < member.epoch
        if is_behind and request.owned is not None and _places(request.owned) <= member.assigned:
            return
        is_greater = "greater" if epoch > member.epoch else "smaller"
        raise BrokerError(
            f"The consumer group member has a {is_greater} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). {_REJOIN}",
            code=ErrorCode.FENCED_MEMBER_EPOCH,
        )

    def _leave(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatResponse:
        shell, group = self._opened(request)
        member = self._leaving(shell.group_id, group, request)
        if request.member_epoch == LEAVE_EPOCH:
            self.remove(shell, member)
        else:
            self.timers.cancel(GroupTimer(TimerKind.RECONCILIATION, shell.group_id, member.member_id))
            away = evolve(member, epoch=LEAVE_STATIC_EPOCH, revoking=NO_PLACES)
            group.put(away)
            self._persist(current_record(shell.group_id, away))
        return ConsumerGroupHeartbeatResponse(ErrorCode.NONE, "", member.member_id, request.member_epoch)

    def _leaving(self, group_id: str, group: ConsumerGroup, request: ConsumerGroupHeartbeat) -> ConsumerGroupMember:
        member = _registered(group, request)
        if member is None:
            raise BrokerError(
                f"Member {request.member_id} is not a member of group {group_id}.", code=ErrorCode.UNKNOWN_MEMBER_ID
            )
        check_instance(member.member_id, request.member_id, request.group_instance_id)
        return member

    def _new_member_id(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    # --- assignment -------------------------------------------------------------------

    def _refresh(
        self, group_id: str, group: ConsumerGroup, now_ms: int, *, is_changed: bool
    ) -> Mapping[str, Set[str]] | None:
        """Compute a new target assignment if the subscriptions or the subscribed topics have changed.

        If it is too soon for that after the last time, return the topics that each member subscribes to now.
        """
        is_outdated = is_changed or group.topics.version != self.topics.version
        if not is_outdated and group.epoch == group.assignment_epoch:
            return None
        wanted = self._wanted_topics(group)
        if is_outdated and group.topics.look_up(self.topics, wanted.values()):
            is_changed = True
        if is_changed:
            self._advance(group_id, group)
        if group.epoch == group.assignment_epoch:
            return None
        if self.configs.assignment_delay_ms("consumer", group_id, group, now_ms):
            return wanted
        self._assign(group_id, group, wanted)
        group.assigned_ms = now_ms
        return None

    def _wanted_topics(self, group: ConsumerGroup) -> dict[str, Set[str]]:
        """Return the topics that each member subscribes to; each regular expression is matched once."""
        members = group.members.values()
        regexes = {member.topic_regex for member in members}
        matches = {regex: self._matching(regex) if regex else frozenset() for regex in regexes}
        return {member.member_id: member.topics | matches[member.topic_regex] for member in members}

    def _matching(self, regex: str) -> frozenset[str]:
        return frozenset(filter(compiled(regex).matches, self.topics.names()))

    def _assign(self, group_id: str, group: ConsumerGroup, wanted: Mapping[str, Set[str]]) -> None:
        topics = group.topics.by_name
        names = group.topics.names
        subscriptions = {
            member.member_id: Subscription(
                tuple(sorted(wanted[member.member_id])),
                tuple(named(group.target.get(member.member_id, NO_PLACES), names)),
                group.assignment_epoch,
                group_instance_id=member.group_instance_id,
                rack_id=member.rack_id,
            )
            for member in group.members.values()
        }
        assign = SERVER_ASSIGNORS[group.assignor(DEFAULT_ASSIGNOR)]
        given = assign({name: count for name, (_, count) in topics.items()}, subscriptions)
        for member_id in group.members:
            target = frozenset((topics[topic][0], number) for topic, number in given.get(member_id, ()))
            if target != group.target.get(member_id):
                group.target[member_id] = target
                self._persist(target_member_record(group_id, member_id, target))
        group.assignment_epoch = group.epoch
        self._persist(target_record(group_id, group))

    def _advance(self, group_id: str, group: ConsumerGroup) -> None:
        group.epoch += 1
        self._persist(group_record(group_id, group))

    # --- the end of members -----------------------------------------------------------

    def remove(self, shell: Group, member: ConsumerGroupMember) -> None:
        """Remove a member that has left, expired, or been fenced; the others are assigned its partitions."""
        group = shell.consumer
        assert group is not None
        self._drop(shell.group_id, group, member)
        if not group.members:
            group.assigned_ms = None
        self._advance(shell.group_id, group)

    def _cancel_timers(self, group_id: str, member_id: str) -> None:
        for kind in (TimerKind.CONSUMER_SESSION, TimerKind.RECONCILIATION):
            self.timers.cancel(GroupTimer(kind, group_id, member_id))

    def _drop(self, group_id: str, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        self._cancel_timers(group_id, member.member_id)
        group.remove(member)
        self.groups.effects += (Persist(key, None) for key in keys_of_member(group_id, member.member_id))

    def expire(self, shell: Group, timer: GroupTimer) -> None:
        """Remove a member whose session has expired, or which did not revoke partitions in time."""
        assert shell.consumer is not None
        member = shell.consumer.members.get(timer.member_id)
        if member is not None:
            self.remove(shell, member)

    def set_timers(self, group_id: str, before: ConsumerGroupMember, member: ConsumerGroupMember, now_ms: int) -> None:
        """Start the session of a member anew, and the time for what it has to give up since ``before``."""
        session = GroupTimer(TimerKind.CONSUMER_SESSION, group_id, member.member_id)
        self.timers.set(session, now_ms + self.configs.of(group_id).consumer_session_timeout_ms)
        step = GroupTimer(TimerKind.RECONCILIATION, group_id, member.member_id)
        if member.state is not ReconciliationState.UNREVOKED_PARTITIONS:
            self.timers.cancel(step)
        elif member.revoking != before.revoking or self.timers.deadline_ms(step) is None:
            self.timers.set(step, now_ms + member.rebalance_timeout_ms)

    # --- offsets and administration ---------------------------------------------------

    @staticmethod
    def check_commit(group: ConsumerGroup, request: OffsetCommit | TxnOffsetCommit) -> ErrorCode:
        """Return the error code for the member ID and epoch with which offsets are committed, or NONE.

        Without a member ID, offsets may be committed while the group has no members.
        """
        is_in_transaction = isinstance(request, TxnOffsetCommit)
        if not request.member_id and request.generation_id < 0:
            # Transactions are fenced by the producer epoch.
            return ErrorCode.UNKNOWN_MEMBER_ID if group.members and not is_in_transaction else ErrorCode.NONE
        error = _check_member(group, request.member_id, request.generation_id)
        # Transactions do not know member epochs.
        is_stale = error is ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.ILLEGAL_GENERATION if is_stale and is_in_transaction else error

    def remove_owners(self, shell: Group, partitions: Set[TopicPartition]) -> None:
        """Remove the members of a consumer group that own any of ``partitions``."""
        if shell.consumer is None:
            return
        ids = {name: topic_id for name, (topic_id, _) in shell.consumer.topics.by_name.items()}
        places = {(ids[partition.topic], partition.partition) for partition in partitions if partition.topic in ids}
        for member in [found for found in shell.consumer.members.values() if not places.isdisjoint(found.owned)]:
            self.remove(shell, member)

    def _persist(self, record: tuple[bytes, bytes]) -> None:
        self.groups.effects.append(Persist(*record))


def _registered(group: ConsumerGroup, request: ConsumerGroupHeartbeat) -> ConsumerGroupMember | None:
    """Return the member with the instance ID of a request, or else with its member ID; None if there is none."""
    instance = request.group_instance_id
    return group.members.get(request.member_id) if instance is None else group.static_member(instance)


def _check_member(group: ConsumerGroup, member_id: str, epoch: int) -> ErrorCode:
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member.epoch == epoch else ErrorCode.STALE_MEMBER_EPOCH


def _check(request: ConsumerGroupHeartbeat) -> None:
    """Check a heartbeat, with Kafka's messages.

    Raises:
        BrokerError: a field is missing or invalid.
    """
    epoch = request.member_epoch
    is_joining = epoch == JOIN_EPOCH
    has_subscription = request.topics is not None or request.topic_regex is not None
    rules = (
        (not request.group_id, "GroupId can't be empty."),
        (request.group_instance_id == "", "InstanceId can't be empty."),
        (request.rack_id == "", "RackId can't be empty."),
        (epoch < LEAVE_STATIC_EPOCH, "MemberEpoch is invalid."),
        (not is_joining and not request.member_id, "MemberId can't be empty."),
        (epoch == LEAVE_STATIC_EPOCH and request.group_instance_id is None, "InstanceId can't be null."),
        (is_joining and request.rebalance_timeout_ms < 0, "RebalanceTimeoutMs must be provided in first request."),
        (
            is_joining and request.owned != {},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            is_joining and not has_subscription,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
    )
    for is_broken, message in rules:
        if is_broken:
            raise BrokerError(message, code=ErrorCode.INVALID_REQUEST)
    if request.server_assignor is not None and request.server_assignor not in SERVER_ASSIGNORS:
        raise BrokerError(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(SERVER_ASSIGNORS)}.",
            code=ErrorCode.UNSUPPORTED_ASSIGNOR,
        )
    if request.topic_regex:
        try:
            compiled(request.topic_regex)
        except PatternError as error:
            raise BrokerError(
                f"SubscribedTopicRegex `{request.topic_regex}` is not a valid regular expression: {error}.",
                code=ErrorCode.INVALID_REGULAR_EXPRESSION,
            ) from error


def _subscribed(member: ConsumerGroupMember, request: ConsumerGroupHeartbeat) -> ConsumerGroupMember:
    """Return a member with what a request says about it."""
    has_timeout = request.rebalance_timeout_ms >= 0
    return evolve(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=member.topics if request.topics is None else frozenset(request.topics),
        topic_regex=member.topic_regex if request.topic_regex is None else request.topic_regex or None,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else member.rebalance_timeout_ms,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
    )


def _places(by_id: Mapping[bytes, Sequence[int]]) -> Places:
    return frozenset((topic_id, number) for topic_id, numbers in by_id.items() for number in numbers)
