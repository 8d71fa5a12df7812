"""The coordinator's state of one group, and its legal transitions.

This is Kafka's classic group: an empty group becomes ``PreparingRebalance`` when a member joins,
``CompletingRebalance`` when all members have joined, and ``Stable`` when the leader has sent the
assignment.  ``coordinator`` triggers the transitions.
Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeAlias

from attrs import define, field, frozen

from streams.core.blocks.records import TopicPartition
from streams.core.errors import BrokerError
from streams.group.assignment.subscriptions import CONSUMER_PROTOCOL_TYPE, is_to_revoke
from streams.group.state.consumer_group import ConsumerGroup
from streams.group.state.epoch_group import EpochGroup
from streams.group.state.streams_group import StreamsGroup
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import JoinGroupMember, OffsetAndMetadata, ResetOffsetsResponse

#: The members and assignments of a group whose coordinator assigns.
AnyEpochGroup: TypeAlias = EpochGroup[Any, Any]


class GroupState(Enum):
    """The states of a group, with Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: Legal previous states of each state.
LEGAL_PREVIOUS: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


@frozen
class GroupSettings:
    """Settings of an explicitly created group; ``session_timeout_ms`` overrides what members request."""

    is_ephemeral: bool = False
    session_timeout_ms: int | None = None


@define(eq=False)
class GroupMember:
    """The coordinator's state of a member; the tokens identify its pending JoinGroup and SyncGroup requests."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Sequence[tuple[str, bytes]]
    assignment: bytes = b""
    join_token: object = None
    sync_token: object = None
    has_synced: bool = False
    client_host: str = ""

    @property
    def is_static(self) -> bool:
        """Whether the member has a group instance id (KIP-345)."""
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str) -> bytes:
        """Return the member's metadata for a protocol."""
        return next((data for name, data in self.protocols if name == protocol_name), b"")


@define(eq=False)
class Group:
    """The members, generation and committed offsets of one group."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation_id: int = 0
    protocol_type: str = ""
    protocol_name: str = ""
    leader: str = ""
    members: dict[str, GroupMember] = field(factory=dict)
    static_members: dict[str, str] = field(factory=dict)
    offsets: dict[TopicPartition, OffsetAndMetadata] = field(factory=dict)
    #: The settings, if the group was created explicitly.
    settings: GroupSettings | None = None
    #: Member ids that were assigned but have not joined yet.
    pending: dict[str, None] = field(factory=dict)
    #: The responses to the latest offset resets, by nonce.
    resets: dict[int, ResetOffsetsResponse] = field(factory=dict)
    #: The members and assignments if this is a consumer (KIP-848) or streams group (KIP-1071), whose coordinator
    #: assigns; ``members`` and what belongs to them is empty then.  None for a classic group.
    epoch_group: AnyEpochGroup | None = None
    # The number of members whose JoinGroup response is pending; used at every join.
    joined: int = 0
    #: The last generation whose leader has assigned, since the coordinator was started.
    assigned_generation: int = 0
    _supporters: Counter[str] = field(factory=Counter)

    def become(self, state: GroupState) -> None:
        """Enter a state; an illegal transition is a bug."""
        assert self.state in LEGAL_PREVIOUS[state], f"group {self.group_id}: {self.state.value} -> {state.value}"
        self.state = state

    def add(self, member: GroupMember) -> None:
        """Add a member; the first one becomes leader."""
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self._supporters.update({name for name, _ in member.protocols})
        if not self.leader:
            self.leader = member.member_id

    def remove(self, member: GroupMember) -> None:
        """Remove a member; if it was the leader, choose another one."""
        del self.members[member.member_id]
        instance = member.group_instance_id
        if instance is not None and self.static_members.get(instance) == member.member_id:
            del self.static_members[instance]
        self._supporters.subtract({name for name, _ in member.protocols})
        if member.join_token is not None:
            self.joined -= 1
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")

    def validate(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return the error code for a member id and group instance id, or NONE."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def owes_revocation(self, member: GroupMember) -> bool:
        """Whether the generation takes partitions from a cooperative consumer that has not asked for its part yet.

        It gets its part although the next rebalance has begun, as if it had asked in time.  Kafka refuses it, so that
        of many members that have to revoke one after the other does, each in a rebalance of its own.
        """
        if member.has_synced or self.assigned_generation != self.generation_id:
            return False
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE and is_to_revoke(
            member.metadata(self.protocol_name), member.assignment
        )

    def update_protocols(self, member: GroupMember, protocols: Sequence[tuple[str, bytes]]) -> None:
        """Replace a member's protocols and metadata."""
        self._supporters.subtract({name for name, _ in member.protocols})
        member.protocols = protocols
        self._supporters.update({name for name, _ in protocols})

    def supports(self, protocol_type: str, protocols: Sequence[tuple[str, bytes]], besides: GroupMember | None) -> bool:
        """Return whether all members except ``besides`` have this protocol type and support one of ``protocols``."""
        others = len(self.members) - (besides is not None)
        if not protocol_type or not protocols:
            return False
        if others == 0:
            return True
        own = {name for name, _ in besides.protocols} if besides is not None else set()
        return protocol_type == self.protocol_type and any(
            self._supporters[name] - (name in own) == others for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Return the protocol that all members support and most members prefer; the leader's order breaks ties."""
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in candidates)] += 1
        order = [name for name, _ in self.members[self.leader].protocols if name in candidates]
        return max(order, key=lambda name: votes[name])

    def member_list(self) -> tuple[JoinGroupMember, ...]:
        """Return the members for the leader's join response."""
        return tuple(
            JoinGroupMember(member.member_id, member.group_instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    @property
    def consumer(self) -> ConsumerGroup | None:
        """The members and assignments of a consumer group, or None for a group of another kind."""
        return self.epoch_group if isinstance(self.epoch_group, ConsumerGroup) else None

    @property
    def streams(self) -> StreamsGroup | None:
        """The members and assignments of a streams group, or None for a group of another kind."""
        return self.epoch_group if isinstance(self.epoch_group, StreamsGroup) else None

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not (self.members or (self.epoch_group is not None and self.epoch_group.members))

    @property
    def state_name(self) -> str:
        """The state of the group, with Kafka's name."""
        return self.state.value if self.epoch_group is None else self.epoch_group.state

    @property
    def is_ephemeral(self) -> bool:
        """Whether the group is deleted when its last member leaves."""
        return self.settings is not None and self.settings.is_ephemeral

    def session_timeout_ms(self, member: GroupMember) -> int:
        """Return the effective session timeout of a member in milliseconds."""
        own = None if self.settings is None else self.settings.session_timeout_ms
        return member.session_timeout_ms if own is None else own

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member in milliseconds."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)


def absence(group: Group | None, group_id: str, kind: str) -> str:
    """Return why there is no group of a kind, such as "streams", to describe, with Kafka's words."""
    return f"Group {group_id} {'not found' if group is None else f'is not a {kind} group'}."


def check_instance(owner_id: str, member_id: str, instance_id: str | None) -> None:
    """Check that the member that asks is the one that has its instance ID.

    Raises:
        BrokerError: it is another one by now (``FENCED_INSTANCE_ID``).
    """
    if owner_id != member_id:
        raise BrokerError(
            f"Static member {member_id} with instance id {instance_id} was fenced by member {owner_id}.",
            code=ErrorCode.FENCED_INSTANCE_ID,
        )
