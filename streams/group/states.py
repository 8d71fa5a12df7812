"""What a coordinator knows of one group, and the legal ways between its states.

Kafka's classic group: an empty group becomes ``PreparingRebalance`` when somebody joins,
``CompletingRebalance`` when all have joined, ``Stable`` when the leader has brought the
assignment.  Data with little behaviour; the coordinator drives it.  Imports protocol only.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum

from attrs import define, field, frozen
from attrs.validators import ge

from streams.core.records import TopicPartition
from streams.protocol.messages import ErrorCode, JoinGroupMember, OffsetAndMetadata, ResetOffsetsResponse


class GroupState(Enum):
    """State of a group, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: From which states each state may be entered.
LEGAL_PREVIOUS: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


@frozen
class CoordinatorConfig:
    """Bounds and delays of groups; defaults fit a coordinator in process.

    ``initial_rebalance_delay_ms`` is how long an empty group waits for more members before
    its first generation (Kafka's ``group.initial.rebalance.delay.ms``, 3000 there).
    """

    min_session_timeout_ms: int = field(default=1, validator=ge(1))
    max_session_timeout_ms: int = field(default=1_800_000, validator=ge(1))
    initial_rebalance_delay_ms: int = field(default=0, validator=ge(0))
    offset_metadata_max_bytes: int = field(default=4096, validator=ge(0))

    def allows_session(self, timeout_ms: int) -> bool:
        """Whether a session timeout is within the bounds."""
        return self.min_session_timeout_ms <= timeout_ms <= self.max_session_timeout_ms


@frozen
class GroupSettings:
    """What a group was created with; ``session_timeout_ms`` takes the place of what its members ask for."""

    is_ephemeral: bool = False
    session_timeout_ms: int | None = None


@define(eq=False)
class GroupMember:
    """A member as the coordinator keeps it; tokens are those of requests that wait."""

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
        """Whether it restarts under an instance id."""
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str) -> bytes:
        """Return what it joined with under a protocol."""
        return next((data for name, data in self.protocols if name == protocol_name), b"")


@define(eq=False)
class Group:
    """Members, generation and committed offsets of one group."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation_id: int = 0
    protocol_type: str = ""
    protocol_name: str = ""
    leader: str = ""
    members: dict[str, GroupMember] = field(factory=dict)
    static_members: dict[str, str] = field(factory=dict)
    offsets: dict[TopicPartition, OffsetAndMetadata] = field(factory=dict)
    #: Of a group that was created on purpose.
    settings: GroupSettings | None = None
    #: Member ids that were given and not joined with yet.
    pending: dict[str, None] = field(factory=dict)
    #: The latest resets of offsets, by nonce.
    resets: dict[int, ResetOffsetsResponse] = field(factory=dict)
    # How many members wait for the end of the join phase: asked at every join.
    joined: int = 0
    _supporters: Counter[str] = field(factory=Counter)

    def become(self, state: GroupState) -> None:
        """Enter a state; an illegal way there is our own mistake."""
        assert self.state in LEGAL_PREVIOUS[state], f"group {self.group_id}: {self.state.value} -> {state.value}"
        self.state = state

    def add(self, member: GroupMember) -> None:
        """Take a member in; the first one leads."""
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self._supporters.update({name for name, _ in member.protocols})
        if not self.leader:
            self.leader = member.member_id

    def remove(self, member: GroupMember) -> None:
        """Let a member go; if it led, somebody else leads."""
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
        """Return why this member may not speak for the group, or NONE."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def update_protocols(self, member: GroupMember, protocols: Sequence[tuple[str, bytes]]) -> None:
        """Replace what a member supports and joined with."""
        self._supporters.subtract({name for name, _ in member.protocols})
        member.protocols = protocols
        self._supporters.update({name for name, _ in protocols})

    def supports(self, protocol_type: str, protocols: Sequence[tuple[str, bytes]], besides: GroupMember | None) -> bool:
        """Return whether somebody with these protocols fits all members, but for one who changes its own."""
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
        """Return the protocol that all support and most prefer; ties go by the leader's order."""
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in candidates)] += 1
        order = [name for name, _ in self.members[self.leader].protocols if name in candidates]
        return max(order, key=lambda name: votes[name])

    def member_list(self) -> tuple[JoinGroupMember, ...]:
        """Return the members as the leader sees them."""
        return tuple(
            JoinGroupMember(member.member_id, member.group_instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    @property
    def is_ephemeral(self) -> bool:
        """Whether it vanishes with its last member."""
        return self.settings is not None and self.settings.is_ephemeral

    def session_timeout_ms(self, member: GroupMember) -> int:
        """Return how long a member may be silent."""
        own = None if self.settings is None else self.settings.session_timeout_ms
        return member.session_timeout_ms if own is None else own

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest time that one of the members may need to rejoin."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
