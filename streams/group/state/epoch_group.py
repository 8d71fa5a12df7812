"""What groups with epochs have in common, and their members: the coordinator's state of a group of either kind.

The coordinator computes a target assignment for each epoch of the group, and each member moves towards it by itself.
This module performs no I/O.
"""

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import Generic, TypeVar

from attrs import define, field, frozen

from streams.protocol.group_messages import LEAVE_STATIC_EPOCH


class ReconciliationState(IntEnum):
    """How far a member is on its way to the target assignment."""

    STABLE = 0
    #: The member must revoke work and confirm it before its epoch advances.
    UNREVOKED = 1
    #: The member waits for work that other members still own.
    UNRELEASED = 2


@frozen
class EpochGroupMember:
    """The coordinator's state of a member: who it is, and how far it has come."""

    member_id: str
    group_instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    epoch: int = 0
    previous_epoch: int = 0
    state: ReconciliationState = ReconciliationState.STABLE

    @property
    def is_away(self) -> bool:
        """Whether a static member has left for a while; its work remains assigned to it."""
        return self.epoch == LEAVE_STATIC_EPOCH

    @property
    def is_revoking(self) -> bool:
        """Whether the member must revoke work and confirm it."""
        return self.state is ReconciliationState.UNREVOKED

    def is_reconciled(self, epoch: int) -> bool:
        """Whether the member has reached the target assignment of an epoch."""
        return self.state is ReconciliationState.STABLE and self.epoch == epoch


M = TypeVar("M", bound=EpochGroupMember)
W = TypeVar("W")


@define(eq=False)
class EpochGroup(ABC, Generic[M, W]):
    """The members of a group, and the work that they are to have."""

    epoch: int = 0
    #: The group epoch for which ``target`` was computed.
    assignment_epoch: int = 0
    #: When ``target`` was computed, or None if it was not, or not by this coordinator.
    assigned_ms: int | None = None
    members: dict[str, M] = field(factory=dict)
    #: Member ID by group instance ID.
    static_members: dict[str, str] = field(factory=dict)
    #: The target assignment of each member.
    target: dict[str, W] = field(factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether the coordinator has what it needs to assign work."""
        return True

    @property
    def state(self) -> str:
        """The state of the group, with Kafka's names."""
        if not self.members:
            return "Empty"
        if not self.is_ready:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        is_stable = all(
            member.is_away or member.is_reconciled(self.assignment_epoch) for member in self.members.values()
        )
        return "Stable" if is_stable else "Reconciling"

    def put(self, member: M) -> None:
        """Add a member, or replace its state."""
        if former := self.members.get(member.member_id):
            self._release(former)
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self._own(member)

    def remove(self, member: M) -> None:
        """Remove a member with its assignment and its target assignment."""
        self._release(self.members.pop(member.member_id))
        self.target.pop(member.member_id, None)
        instance = member.group_instance_id
        if instance is not None and self.static_members.get(instance) == member.member_id:
            del self.static_members[instance]

    @abstractmethod
    def _own(self, member: M) -> None:
        """Note the work that a member has."""

    @abstractmethod
    def _release(self, member: M) -> None:
        """Note that a member has its work no longer."""
