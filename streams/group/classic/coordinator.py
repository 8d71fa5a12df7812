"""The coordinator side of Kafka's classic group protocol, as a state machine; ``epoch_groups`` has the others.

The input is requests and the time.  The output is replies, which the driver (a broker or a simulation) delivers, and
records that the driver appends to the ``__consumer_offsets`` log.  Member metadata is opaque, so any
protocol type is supported.  Of the other packages, this module imports only ``core`` and ``protocol``.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from streams.core.blocks.records import Block, TopicPartition
from streams.group.classic import administration
from streams.group.epochs.consumer_kind import ConsumerKind
from streams.group.epochs.epoch_groups import EpochGroups
from streams.group.epochs.streams_kind import StreamsKind
from streams.group.state.coordinator_config import CoordinatorConfig
from streams.group.state.effects import Effect, Reply
from streams.group.state.epoch_group import EpochGroupMember
from streams.group.state.group_configs import GroupConfigs
from streams.group.state.registry import Groups
from streams.group.state.states import Group, GroupMember, GroupState
from streams.group.state.timers import GroupTimer, TimerKind, Timers
from streams.group.state.topic_directory import NoTopics, TopicDirectory
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    CreateGroup,
    CreateGroupResponse,
    DeleteGroup,
    DeleteGroupResponse,
    DescribeGroup,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    ListGroups,
    ListGroupsResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    ResetOffsets,
    ResetOffsetsResponse,
    SyncGroup,
    SyncGroupResponse,
)
from streams.protocol.group_requests import GroupRequest
from streams.protocol.messages import TxnOffsetCommit, TxnOffsetCommitResponse
from streams.protocol.request import Response


class Coordinator:
    """The coordinator of all groups on one broker; ``topics`` are those that it assigns to consumer groups."""

    def __init__(self, config: CoordinatorConfig, rng: Random, topics: TopicDirectory | None = None) -> None:
        self._config = config
        self._rng = rng
        self._effects: list[Effect] = []
        self.configs = GroupConfigs(config, self._effects)
        directory = topics or NoTopics()
        kinds = (ConsumerKind(self.configs, directory), StreamsKind(self.configs, directory, self._effects))
        self._groups = Groups(self._effects, self.configs, [kind.log for kind in kinds])
        self._timers: Timers[GroupTimer] = Timers()
        self._epoch_groups = EpochGroups(self.configs, rng, self._groups, self._timers, kinds)
        self._has_loaded_members = False

    # --- driver interface -------------------------------------------------------------

    def handle(self, request: GroupRequest | TxnOffsetCommit, now_ms: int, token: object) -> list[Effect]:
        """Handle a request and return the resulting effects.

        The reply carries ``token``, which must not be None.  If the reply is deferred, a later call returns it.
        """
        self._start_loaded_sessions(now_ms)
        self._answer(request, now_ms, token)
        return self.take_effects()

    def _answer(self, request: GroupRequest | TxnOffsetCommit, now_ms: int, token: object) -> None:
        match request:
            case Heartbeat():
                self._reply(token, HeartbeatResponse(self._heartbeat(request, now_ms)))
            case OffsetCommit():
                self._reply(token, OffsetCommitResponse(self._commit(request, now_ms)))
            case TxnOffsetCommit():
                self._reply(token, TxnOffsetCommitResponse(self._commit_in_transaction(request, now_ms)))
            case OffsetFetch():
                error = self._epoch_groups.check_fetch(request)
                self._reply(token, OffsetFetchResponse(error, {}) if error else self._groups.fetch(request))
            case JoinGroup():
                self._join(request, now_ms, token)
            case SyncGroup():
                self._sync(request, now_ms, token)
            case LeaveGroup():
                self._reply(token, LeaveGroupResponse(self._leave(request, now_ms)))
            case ListGroups():
                self._reply(token, ListGroupsResponse(administration.listed(self._groups, request)))
            case DescribeGroup():
                self._reply(token, administration.describe(self._groups.get(request.group_id)))
            case DeleteGroup():
                self._reply(token, DeleteGroupResponse(administration.delete(self._groups, request.group_id)))
            case CreateGroup():
                self._reply(token, CreateGroupResponse(administration.create(self._groups, self._config, request)))
            case ResetOffsets():
                self._reply(token, self._reset_offsets(request, now_ms))
            case _:
                self._reply(token, self._epoch_groups.handle(request, now_ms))

    def next_deadline_ms(self) -> int | None:
        """Return when ``tick`` is due next, or None if no timer is set."""
        if self._has_loaded_members:
            return 0
        return self._timers.next_ms()

    def tick(self, now_ms: int) -> list[Effect]:
        """Process due timers, which expire sessions and end join and sync phases."""
        self._start_loaded_sessions(now_ms)
        while (timer := self._timers.pop_due(now_ms)) is not None:
            group = self._groups.get(timer.group_id)
            if group is None:
                continue
            match timer.kind:
                case TimerKind.SESSION:
                    member = group.members.get(timer.member_id)
                    if member is not None:
                        self._remove_member(group, member, now_ms)
                case TimerKind.JOIN:
                    self._complete_join(group, now_ms)
                case TimerKind.SYNC:
                    self._expire_unsynced(group, now_ms)
                case TimerKind.PENDING:
                    self._forget_pending(group, timer.member_id)
                case TimerKind.CONSUMER_SESSION | TimerKind.RECONCILIATION | TimerKind.FIRST_ASSIGNMENT:
                    self._epoch_groups.expire(group, timer, now_ms)
                case TimerKind.VANISH:
                    if group.is_empty:
                        self._groups.delete(group)
        return self.take_effects()

    def load(self, blocks: Iterable[Block]) -> None:
        """Rebuild groups from blocks of the ``__consumer_offsets`` log, in order; sessions restart at the next call."""
        self._groups.load(blocks)
        self._has_loaded_members = any(not group.is_empty for group in self._groups)

    def remove_members(self, is_gone: Callable[[GroupMember | EpochGroupMember], bool], now_ms: int) -> None:
        """Remove the members for which ``is_gone`` is True, and rebalance; the next call returns the effects."""
        for group in list(self._groups):
            if gone := [member for member in group.members.values() if is_gone(member)]:
                self._remove_members(group, gone, now_ms)
        self._epoch_groups.remove_members(is_gone)

    def note_creation(self, group_id: str, failures: Mapping[str, str]) -> None:
        """Note why internal topics of a streams group could not be created; empty if all were."""
        group = self._groups.get(group_id)
        if group is not None and group.streams is not None:
            group.streams.creation_failures = failures

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Commit or drop the offsets in a producer's transaction after its marker is in the log."""
        self._groups.end_transaction(producer_id, is_commit=is_commit)

    def group(self, group_id: str) -> Group | None:
        """Return a group, or None if it does not exist."""
        return self._groups.get(group_id)

    def forget_topics(self, topics: Iterable[str]) -> list[Effect]:
        """Drop the committed offsets of deleted topics."""
        self._groups.forget_topics(set(topics))
        return self.take_effects()

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, Mapping[TopicPartition, ErrorCode], list[Effect]]:
        """Delete committed offsets that no member uses (KIP-496); return the error, partition errors and effects."""
        error, errors = administration.delete_offsets(self._groups, group_id, partitions)
        return error, errors, self.take_effects()

    # --- join -------------------------------------------------------------------------

    def _join(self, request: JoinGroup, now_ms: int, token: object) -> None:
        error = self._validate_join(request)
        if error:
            self._reply(token, JoinGroupResponse(error, member_id=request.member_id))
            return
        group = self._groups.get_or_create(request.group_id)
        member_id = request.member_id or group.static_members.get(request.group_instance_id or "", "")
        member = group.members.get(member_id)
        if group.epoch_group is not None and group.is_empty:
            self._groups.become_classic(group)
        if group.epoch_group is not None or not group.supports(request.protocol_type, request.protocols, member):
            self._reply(token, JoinGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id))
            self._groups.discard(group)
        elif member is None:
            self._join_new(group, request, now_ms, token)
        elif request.member_id:
            self._rejoin(group, member, request, now_ms, token)
        else:
            self._replace_static(group, member, request, now_ms, token)

    def _validate_join(self, request: JoinGroup) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not self._config.allows_session(request.session_timeout_ms):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        group = self._groups.get(request.group_id)
        if not request.member_id or (group is not None and request.member_id in group.pending):
            return ErrorCode.NONE
        return self._validate(group, request.member_id, request.group_instance_id)

    def _join_new(self, group: Group, request: JoinGroup, now_ms: int, token: object) -> None:
        if request.takes_member_id and not request.member_id and request.group_instance_id is None:
            # Assign the id first, so that only one of several duplicate joins becomes a member (KIP-394).
            # Unlike in Kafka, the join phase does not wait for these ids, because their clients may be disconnected.
            member_id = self._new_member_id(request)
            group.pending[member_id] = None
            timer = GroupTimer(TimerKind.PENDING, group.group_id, member_id)
            self._timers.set(timer, now_ms + request.session_timeout_ms)
            self._reply(token, JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
            return
        if request.member_id:
            del group.pending[request.member_id]
            self._timers.cancel(GroupTimer(TimerKind.PENDING, group.group_id, request.member_id))
        member = self._made_member(group, request, request.member_id or self._new_member_id(request))
        group.protocol_type = request.protocol_type
        group.add(member)
        self._timers.cancel(GroupTimer(TimerKind.VANISH, group.group_id))
        self._wait_for_join(group, member, token)
        self._rebalance(group, now_ms)

    @staticmethod
    def _made_member(group: Group, request: JoinGroup, member_id: str) -> GroupMember:
        return GroupMember(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            tuple(request.protocols),
            client_host=request.client_host,
        )

    def _forget_pending(self, group: Group, member_id: str) -> None:
        self._timers.cancel(GroupTimer(TimerKind.PENDING, group.group_id, member_id))
        group.pending.pop(member_id, None)
        self._groups.discard(group)

    def _rejoin(self, group: Group, member: GroupMember, request: JoinGroup, now_ms: int, token: object) -> None:
        protocols = tuple(request.protocols)
        is_settled = group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        is_same = protocols == tuple(member.protocols)
        must_assign = group.state is GroupState.STABLE and member.member_id == group.leader
        self._update(group, member, request)
        if is_settled and is_same and not must_assign:
            # The response was lost, or the member rejoined without need: return the current generation.
            self._reply(token, self._joined(group, member))
            self._touch(group, member, now_ms)
            return
        self._wait_for_join(group, member, token)
        self._rebalance(group, now_ms)

    def _replace_static(self, group: Group, old: GroupMember, request: JoinGroup, now_ms: int, token: object) -> None:
        """Replace a returning static member's id, keeping its assignment (KIP-345)."""
        old_leader = group.leader
        # Fence the pending requests of the old member id, because another process has this instance id now.
        self._dismiss(group, old, ErrorCode.FENCED_INSTANCE_ID)
        member = self._made_member(group, request, self._new_member_id(request))
        member.assignment = old.assignment
        member.has_synced = True
        group.remove(old)
        group.add(member)
        if old_leader == old.member_id:
            group.leader = member.member_id
        is_settled = group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name
        # Also within a rebalance: a coordinator that is started again must not fence the new member.
        if group.generation_id:
            self._groups.persist(group, now_ms, is_settled=is_settled)
        if is_settled:
            # Return the old leader's id, so that this member computes no assignment: the other members do not rejoin.
            self._reply(token, self._joined(group, member, leader=old_leader))
            self._touch(group, member, now_ms)
            return
        self._wait_for_join(group, member, token)
        self._rebalance(group, now_ms)

    def _update(self, group: Group, member: GroupMember, request: JoinGroup) -> None:
        group.update_protocols(member, tuple(request.protocols))
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host
        if len(group.members) == 1:
            group.protocol_type = request.protocol_type

    def _wait_for_join(self, group: Group, member: GroupMember, token: object) -> None:
        # A second join by the same member supersedes the first, whose response was lost.
        if member.join_token is None:
            group.joined += 1
        member.join_token = token
        self._timers.cancel(GroupTimer(TimerKind.SESSION, group.group_id, member.member_id))

    def _rebalance(self, group: Group, now_ms: int) -> None:
        """Start the join phase unless it has already started, and complete it if all members have joined."""
        timer = GroupTimer(TimerKind.JOIN, group.group_id)
        if group.state is GroupState.EMPTY and self._config.initial_rebalance_delay_ms:
            group.become(GroupState.PREPARING_REBALANCE)
            self._timers.set(timer, now_ms + self._config.initial_rebalance_delay_ms)
            return
        if group.state is not GroupState.PREPARING_REBALANCE:
            if group.state is GroupState.COMPLETING_REBALANCE:
                self._drop_syncs(group, now_ms)
            is_first = group.state is GroupState.EMPTY
            group.become(GroupState.PREPARING_REBALANCE)
            self._timers.set(timer, now_ms + (0 if is_first else group.rebalance_timeout_ms))
        if group.joined == len(group.members) and not self._is_delayed(group):
            self._complete_join(group, now_ms)

    def _is_delayed(self, group: Group) -> bool:
        """Whether the group is in the join phase of its first generation, which always lasts for the initial delay."""
        return bool(self._config.initial_rebalance_delay_ms) and not group.protocol_name and bool(group.members)

    def _complete_join(self, group: Group, now_ms: int) -> None:
        """End the join phase; remove members that did not rejoin, except static ones within their session."""
        self._timers.cancel(GroupTimer(TimerKind.JOIN, group.group_id))
        for member in [m for m in group.members.values() if m.join_token is None and not m.is_static]:
            self._timers.cancel(GroupTimer(TimerKind.SESSION, group.group_id, member.member_id))
            group.remove(member)
        if not group.members:
            self._become_empty(group, now_ms)
            return
        if not group.joined:
            # There are only static members and none has rejoined: extend the join phase.
            self._timers.set(GroupTimer(TimerKind.JOIN, group.group_id), now_ms + group.rebalance_timeout_ms)
            return
        if group.members[group.leader].join_token is None:
            group.leader = next(m.member_id for m in group.members.values() if m.join_token is not None)
        group.become(GroupState.COMPLETING_REBALANCE)
        group.generation_id += 1
        group.protocol_name = group.select_protocol()
        for member in group.members.values():
            token = member.join_token
            member.join_token = None
            # An absent static member may return within its session, and does not sync.
            member.has_synced = token is None
            if token is not None:
                self._reply(token, self._joined(group, member))
                self._touch(group, member, now_ms)
        group.joined = 0
        self._timers.set(GroupTimer(TimerKind.SYNC, group.group_id), now_ms + group.rebalance_timeout_ms)

    def _joined(self, group: Group, member: GroupMember, leader: str | None = None) -> JoinGroupResponse:
        leader = group.leader if leader is None else leader
        return JoinGroupResponse(
            ErrorCode.NONE,
            group.generation_id,
            group.protocol_name,
            leader,
            member.member_id,
            group.member_list() if leader == member.member_id else (),
            group.protocol_type,
            None if group.settings is None else group.settings.session_timeout_ms,
        )

    def _new_member_id(self, request: JoinGroup) -> str:
        name = request.group_instance_id or request.client_id or "member"
        return f"{name}-{uuid.UUID(int=self._rng.getrandbits(128), version=4)}"

    # --- sync and heartbeat -----------------------------------------------------------

    def _sync(self, request: SyncGroup, now_ms: int, token: object) -> None:
        group = self._groups.get(request.group_id)
        error = self._validate(group, request.member_id, request.group_instance_id)
        if group is None or error:
            self._reply(token, SyncGroupResponse(error))
            return
        member = group.members[request.member_id]
        if request.generation_id != group.generation_id:
            self._reply(token, SyncGroupResponse(ErrorCode.ILLEGAL_GENERATION))
        elif request.protocol_type not in (None, group.protocol_type) or (
            request.protocol_name not in (None, group.protocol_name)
        ):
            self._reply(token, SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif group.state is GroupState.PREPARING_REBALANCE and not group.owes_revocation(member):
            self._reply(token, SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS))
        elif group.state is not GroupState.COMPLETING_REBALANCE:
            member.has_synced = True
            self._reply(token, self._synced(group, member))
            self._touch(group, member, now_ms)
        else:
            member.sync_token = token
            member.has_synced = True
            self._timers.cancel(GroupTimer(TimerKind.SESSION, group.group_id, member.member_id))
            if member.member_id == group.leader:
                self._become_stable(group, request, now_ms)

    @staticmethod
    def _synced(group: Group, member: GroupMember) -> SyncGroupResponse:
        return SyncGroupResponse(ErrorCode.NONE, member.assignment, group.protocol_type, group.protocol_name)

    def _become_stable(self, group: Group, request: SyncGroup, now_ms: int) -> None:
        for member in group.members.values():
            member.assignment = request.assignments.get(member.member_id, b"")
        group.assigned_generation = group.generation_id
        group.become(GroupState.STABLE)
        self._groups.persist(group, now_ms)
        for member in group.members.values():
            token = member.sync_token
            member.sync_token = None
            if token is not None:
                self._reply(token, self._synced(group, member))
                self._touch(group, member, now_ms)

    def _drop_syncs(self, group: Group, now_ms: int) -> None:
        """Fail pending SyncGroup requests, because there will be no assignment; the members must rejoin."""
        self._timers.cancel(GroupTimer(TimerKind.SYNC, group.group_id))
        for member in group.members.values():
            member.assignment = b""
            token = member.sync_token
            member.sync_token = None
            if token is not None:
                self._reply(token, SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS))
                self._touch(group, member, now_ms)

    def _expire_unsynced(self, group: Group, now_ms: int) -> None:
        """End the sync phase; remove members that joined but sent no SyncGroup request."""
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        lost = [m for m in group.members.values() if not m.has_synced]
        if not lost:
            return
        for member in lost:
            self._timers.cancel(GroupTimer(TimerKind.SESSION, group.group_id, member.member_id))
            group.remove(member)
        self._rebalance(group, now_ms)

    def _heartbeat(self, request: Heartbeat, now_ms: int) -> ErrorCode:
        group = self._groups.get(request.group_id)
        error = self._validate(group, request.member_id, request.group_instance_id)
        if group is None or error:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._touch(group, group.members[request.member_id], now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    @staticmethod
    def _validate(group: Group | None, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return the error code for a member id and group instance id, or NONE."""
        return ErrorCode.UNKNOWN_MEMBER_ID if group is None else group.validate(member_id, group_instance_id)

    # --- leaving ----------------------------------------------------------------------

    def _leave(self, request: LeaveGroup, now_ms: int) -> ErrorCode:
        group = self._groups.get(request.group_id)
        member_id = request.member_id
        if group is not None and not member_id and request.group_instance_id is not None:
            # An administrator may remove a static member by its instance id.
            member_id = group.static_members.get(request.group_instance_id, "")
        if group is not None and member_id in group.pending:
            self._forget_pending(group, member_id)
            return ErrorCode.NONE
        error = self._validate(group, member_id, request.group_instance_id)
        if group is None or error:
            return error
        self._remove_member(group, group.members[member_id], now_ms)
        return ErrorCode.NONE

    def _remove_member(self, group: Group, member: GroupMember, now_ms: int) -> None:
        """Remove a member that has left or expired, and rebalance."""
        self._dismiss(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member)
        self._rebalance_without(group, now_ms)

    def _rebalance_without(self, group: Group, now_ms: int) -> None:
        """Rebalance after members were removed; complete a running join phase if all remaining members have joined."""
        if group.state is GroupState.PREPARING_REBALANCE:
            if group.joined == len(group.members) and not self._is_delayed(group):
                self._complete_join(group, now_ms)
        else:
            self._rebalance(group, now_ms)

    def _dismiss(self, group: Group, member: GroupMember, error: ErrorCode) -> None:
        """Reply to the pending requests of a removed member."""
        self._timers.cancel(GroupTimer(TimerKind.SESSION, group.group_id, member.member_id))
        if member.join_token is not None:
            self._reply(member.join_token, JoinGroupResponse(error, member_id=member.member_id))
        if member.sync_token is not None:
            self._reply(member.sync_token, SyncGroupResponse(error))

    def _become_empty(self, group: Group, now_ms: int) -> None:
        self._timers.cancel(GroupTimer(TimerKind.SYNC, group.group_id))
        group.become(GroupState.EMPTY)
        group.generation_id += 1
        group.protocol_name = ""
        if not group.is_ephemeral:
            self._groups.persist(group, now_ms)
        elif self._timers.deadline_ms(GroupTimer(TimerKind.VANISH, group.group_id)) is None:
            self._groups.delete(group)

    # --- offsets ----------------------------------------------------------------------

    def _commit(self, request: OffsetCommit, now_ms: int) -> dict[TopicPartition, ErrorCode]:
        error = self._validate_commit(request, now_ms)
        if error:
            return dict.fromkeys(request.offsets, error)
        group = self._groups.get_or_create(request.group_id)
        limit = self._config.offset_metadata_max_bytes
        accepted = {p: offset for p, offset in request.offsets.items() if len(offset.metadata.encode()) <= limit}
        self._groups.commit(group, accepted, now_ms)
        self._groups.discard(group)
        return {p: ErrorCode.NONE if p in accepted else ErrorCode.OFFSET_METADATA_TOO_LARGE for p in request.offsets}

    def _commit_in_transaction(self, request: TxnOffsetCommit, now_ms: int) -> dict[TopicPartition, ErrorCode]:
        error = self._validate_commit(request, now_ms)
        limit = self._config.offset_metadata_max_bytes
        if not error and any(len(committed.metadata.encode()) > limit for committed in request.offsets.values()):
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        if not error:
            self._groups.hold(request, now_ms)
        return dict.fromkeys(request.offsets, error)

    def _validate_commit(self, request: OffsetCommit | TxnOffsetCommit, now_ms: int) -> ErrorCode:
        """Return the error code for an offset commit; if the group has members, only they may commit, in its
        generation.
        """
        group = self._groups.get(request.group_id)
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group is not None and group.epoch_group is not None:
            return self._epoch_groups.check_commit(group.epoch_group, request)
        # A consumer that assigns its partitions itself, or an operator, commits without a generation, as any member.
        # Members of a group commit in its generation, and transactions are fenced by producer epoch.
        is_without_member = not request.member_id and not request.group_instance_id
        if request.generation_id < 0 and (
            group is None or not group.members or (is_without_member and isinstance(request, TxnOffsetCommit))
        ):
            return ErrorCode.NONE
        error = self._validate(group, request.member_id, request.group_instance_id)
        if group is None or error:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._touch(group, group.members[request.member_id], now_ms)
        # Ownership is undecided between join and sync.
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.COMPLETING_REBALANCE else ErrorCode.NONE

    # --- administration ---------------------------------------------------------------

    def _reset_offsets(self, request: ResetOffsets, now_ms: int) -> ResetOffsetsResponse:
        """Set committed offsets and atomically remove the partitions' owners, so that late commits are rejected."""
        group = self._groups.get(request.group_id)
        if group is None:
            return ResetOffsetsResponse(ErrorCode.GROUP_ID_NOT_FOUND)
        if request.nonce and request.nonce in group.resets:
            return group.resets[request.nonce]
        response = administration.reset_offsets(self._groups, group, request, now_ms)
        if gone := administration.holders(group, response.offsets.keys()):
            self._remove_members(group, gone, now_ms)
        self._epoch_groups.remove_owners(group, response.offsets.keys())
        return response

    def _remove_members(self, group: Group, gone: Sequence[GroupMember], now_ms: int) -> None:
        """Remove members that are expected to rejoin; an ephemeral group is kept for their session timeout."""
        if group.is_ephemeral:
            back_by_ms = now_ms + max(group.session_timeout_ms(member) for member in gone)
            self._timers.set(GroupTimer(TimerKind.VANISH, group.group_id), back_by_ms)
        for member in gone:
            self._dismiss(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
            group.remove(member)
        self._rebalance_without(group, now_ms)

    # --- helpers ----------------------------------------------------------------------

    def _touch(self, group: Group, member: GroupMember, now_ms: int) -> None:
        """Restart a member's session, which does not expire while a JoinGroup or SyncGroup response is pending."""
        if member.join_token is None and member.sync_token is None:
            self._timers.set(
                GroupTimer(TimerKind.SESSION, group.group_id, member.member_id),
                now_ms + group.session_timeout_ms(member),
            )

    def _start_loaded_sessions(self, now_ms: int) -> None:
        if self._has_loaded_members:
            self._has_loaded_members = False
            for group in self._groups:
                for member in group.members.values():
                    self._touch(group, member, now_ms)
                if group.state is GroupState.PREPARING_REBALANCE:
                    self._timers.set(GroupTimer(TimerKind.JOIN, group.group_id), now_ms + group.rebalance_timeout_ms)
            self._epoch_groups.start_sessions(now_ms)

    def _reply(self, token: object, response: Response) -> None:
        self._effects.append(Reply(token, response))

    def take_effects(self) -> list[Effect]:
        """Return the effects since the last call, such as those of ``configs.alter``; ``handle`` returns its own."""
        effects = self._effects.copy()
        self._effects.clear()
        return effects
