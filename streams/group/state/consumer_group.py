"""The coordinator's state of one consumer group, and how its members reach their target assignment (KIP-848).

The coordinator computes a target assignment for each group epoch.  Each member moves towards it by itself, with its
heartbeats: it first revokes partitions, then it gets those that no other member owns any more.
This module performs no I/O.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from typing import TypeAlias

from attrs import define, evolve, field, frozen

from streams.core.blocks.records import TopicPartition
from streams.group.state.epoch_group import EpochGroup, EpochGroupMember, ReconciliationState
from streams.group.state.topic_directory import SubscribedTopics
from streams.protocol.group_messages import LEAVE_STATIC_EPOCH, PartitionsById

#: A partition: topic ID and partition number.
Place: TypeAlias = tuple[bytes, int]
#: Partitions of a member.
Places: TypeAlias = frozenset[Place]
NO_PLACES: Places = frozenset()


@frozen
class ConsumerGroupMember(EpochGroupMember):
    """The coordinator's state of a member of a consumer group.

    ``assigned`` are the partitions that the member may read; ``revoking`` those that it owns until it confirms their
    revocation.
    """

    topics: frozenset[str] = frozenset()
    topic_regex: str | None = None
    server_assignor: str | None = None
    assigned: Places = NO_PLACES
    revoking: Places = NO_PLACES

    def away(self) -> "ConsumerGroupMember":
        """Return the member as it leaves for a while."""
        return evolve(self, epoch=LEAVE_STATIC_EPOCH, revoking=NO_PLACES)

    @property
    def owned(self) -> Places:
        """The partitions that no other member may be assigned."""
        return self.assigned | self.revoking

    def restarted(self, member_id: str) -> "ConsumerGroupMember":
        """Return the member as it rejoins: without partitions, in epoch 0."""
        return evolve(
            self,
            member_id=member_id,
            epoch=0,
            previous_epoch=0,
            state=ReconciliationState.STABLE,
            assigned=NO_PLACES,
            revoking=NO_PLACES,
        )


@define(eq=False)
class ConsumerGroup(EpochGroup[ConsumerGroupMember, Places]):
    """The members and assignments of one consumer group."""

    topics: SubscribedTopics = field(factory=SubscribedTopics)
    _owners: dict[Place, str] = field(factory=dict)

    @property
    def is_blank(self) -> bool:
        """Whether the group has no epoch and no members: as if there was none."""
        return not (self.epoch or self.assignment_epoch or self.members or self.target)

    def is_free_for(self, member_id: str) -> Callable[[Place], bool]:
        """Return the function that tells whether a partition is owned by no member but this one."""
        owners = self._owners
        return lambda place: owners.get(place, member_id) == member_id

    def assignor(self, default: str) -> str:
        """Return the assignor that most members ask for, or the default if no member asks for one."""
        asked = [member.server_assignor for member in self.members.values() if member.server_assignor]
        return max(dict.fromkeys(asked), key=asked.count, default=default)

    def _own(self, member: ConsumerGroupMember) -> None:
        self._owners.update(dict.fromkeys(member.owned, member.member_id))

    def _release(self, member: ConsumerGroupMember) -> None:
        for place in member.owned:
            if self._owners.get(place) == member.member_id:
                del self._owners[place]


def reconciled(
    member: ConsumerGroupMember,
    epoch: int,
    target: Places,
    is_free: Callable[[Place], bool],
    owned: Iterable[Place] | None,
) -> ConsumerGroupMember:
    """Return the next state of a member on its way to the target assignment of an epoch.

    ``owned`` has the partitions that the member reports, or None if it reports none.
    """
    if member.is_reconciled(epoch) and member.assigned <= target:
        return member
    reported = None if owned is None else set(owned)
    if member.is_revoking:
        if _owns(reported, member.revoking):
            return member
        # The revocation is confirmed: the member advances, if only to an epoch before the target's.
        return _next(member, min(member.epoch + 1, epoch), epoch, target, is_free, reported)
    return _next(member, member.epoch, epoch, target, is_free, reported)


def _next(
    member: ConsumerGroupMember,
    own_epoch: int,
    epoch: int,
    target: Places,
    is_free: Callable[[Place], bool],
    reported: Set[Place] | None,
) -> ConsumerGroupMember:
    retained = member.assigned & target
    surplus = member.assigned - target
    if surplus and _owns(reported, surplus):
        return evolve(
            member,
            state=ReconciliationState.UNREVOKED,
            epoch=own_epoch,
            previous_epoch=member.epoch,
            assigned=retained,
            revoking=surplus,
        )
    missing = target - retained
    free = frozenset(filter(is_free, missing))
    return evolve(
        member,
        state=ReconciliationState.STABLE if free == missing else ReconciliationState.UNRELEASED,
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=retained | free,
        revoking=NO_PLACES,
    )


def _owns(reported: Set[Place] | None, places: Set[Place]) -> bool:
    """Whether a member may still own some of these partitions; it may if it reports nothing."""
    return reported is None or not reported.isdisjoint(places)


def by_id(places: Iterable[Place]) -> PartitionsById:
    """Return partitions as they are sent: by topic ID, sorted."""
    numbers: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(places):
        numbers.setdefault(topic_id, []).append(number)
    return PartitionsById(numbers)


def named(places: Iterable[Place], names: Mapping[bytes, str]) -> list[TopicPartition]:
    """Return partitions by topic name, without those of deleted topics."""
    return sorted(TopicPartition(names[topic_id], number) for topic_id, number in places if topic_id in names)
