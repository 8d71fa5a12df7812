"""The state of a share group: members whose partitions may be shared, with their epochs and assignments (KIP-932).

A member follows its target at its next heartbeat: partitions need not be given up before others get them.
Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from attrs import define, evolve, field, frozen

from streams.group.consumer_group import NO_PLACES, Places
from streams.group.topic_directory import SubscribedTopics


@frozen
class ShareGroupMember:
    """The coordinator's state of a member of a share group; ``assigned`` are the partitions that it gets records of."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Places = NO_PLACES

    def reached(self, epoch: int, target: Places) -> "ShareGroupMember":
        """Return the member with the target assignment of an epoch."""
        if (self.epoch, self.assigned) == (epoch, target):
            return self
        return evolve(self, epoch=epoch, previous_epoch=self.epoch, assigned=target)


@define(eq=False)
class ShareGroup:
    """The members and assignments of one share group."""

    epoch: int = 0
    #: The group epoch for which ``target`` was computed.
    assignment_epoch: int = 0
    #: When ``target`` was computed, or None if it was not, or not by this coordinator.
    assigned_ms: int | None = None
    members: dict[str, ShareGroupMember] = field(factory=dict)
    #: The target assignment of each member.
    target: dict[str, Places] = field(factory=dict)
    topics: SubscribedTopics = field(factory=SubscribedTopics)

    @property
    def is_blank(self) -> bool:
        """Whether the group has no epoch and no members: as if there was none."""
        return not (self.epoch or self.assignment_epoch or self.members or self.target)

    @property
    def state(self) -> str:
        """The state of the group, with Kafka's names."""
        return "Stable" if self.members else "Empty"

    def remove(self, member: ShareGroupMember) -> None:
        """Remove a member with its assignment and its target assignment."""
        del self.members[member.member_id]
        self.target.pop(member.member_id, None)
