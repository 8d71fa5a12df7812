"""Partition assignors, which run on a group's leader: Kafka's assignors and two simple ones.

Only the leader calls ``assign``.  Through ``subscription_user_data`` and ``on_assignment``, members exchange data with
the leader's assignor.  This module performs no I/O.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import cycle
from typing import Protocol, TypeAlias

from attrs import evolve

from streams.core.blocks.records import TopicPartition
from streams.group.assignment.sticky import assign_sticky, withhold_owned
from streams.group.assignment.subscriptions import (
    Assignment,
    Subscription,
    decode_owned,
    decode_round,
    encode_owned,
    encode_round,
)


class RebalanceProtocol(Enum):
    """The rebalance protocol (KIP-429).

    Before a join, eager members revoke all partitions, and cooperative members revoke none.
    """

    EAGER = "eager"
    COOPERATIVE = "cooperative"


#: Subscription by member id.
Members: TypeAlias = Mapping[str, Subscription]


class Assignor(Protocol):
    """Assigns the partitions of a group's topics to the group's members."""

    @property
    def name(self) -> str:
        """The protocol name with which a group selects the assignor."""
        ...

    @property
    def protocols(self) -> Sequence[RebalanceProtocol]:
        """The supported rebalance protocols; a member uses cooperative rebalancing if all its assignors support it."""
        ...

    def subscription_user_data(self) -> bytes | None:
        """Return user data for the leader's assignor; called at every join."""
        ...

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Return the assignment of every member; called on the leader.

        ``partitions_per_topic`` has the existing topics that members subscribe to.  An
        assignment may also contain partitions of other topics.
        """
        ...

    def on_assignment(self, assignment: Assignment) -> None:
        """Receive this member's assignment; called before the member's listeners."""
        ...


class _Stateless:
    """The base class of assignors that keep no state."""

    protocols: Sequence[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self) -> bytes | None:
        """Return None, because the assignor has no user data."""
        return None

    def on_assignment(self, assignment: Assignment) -> None:
        """Do nothing, because the assignor keeps no state."""


def in_order(members: Members) -> list[str]:
    """Return the member ids in a stable order: static members by instance id, then other members by member id."""
    return sorted(members, key=lambda m: (members[m].group_instance_id is None, members[m].group_instance_id or m, m))


def _subscribers(partitions_per_topic: Mapping[str, int], members: Members) -> list[tuple[str, int, list[str]]]:
    """Return (topic, partition count, subscribed members in order) for each subscribed topic."""
    order = in_order(members)
    subscribed = {member: set(members[member].topics) for member in order}
    rows = [
        (topic, count, [member for member in order if topic in subscribed[member]])
        for topic, count in sorted(partitions_per_topic.items())
    ]
    return [row for row in rows if row[2]]


def _result(members: Members, partitions: Mapping[str, Sequence[TopicPartition]]) -> dict[str, Assignment]:
    return {member: Assignment(tuple(partitions.get(member, ()))) for member in members}


class RangeAssignor(_Stateless):
    """Assigns a range of each topic to each member, so that co-partitioned partitions have the same owner."""

    name = "range"

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Assign a contiguous range of each topic's partitions to each member; the first members get the remainder."""
        partitions: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic, count, subscribers in _subscribers(partitions_per_topic, members):
            each, extra = divmod(count, len(subscribers))
            start = 0
            for index, member in enumerate(subscribers):
                stop = start + each + (index < extra)
                partitions[member] += [TopicPartition(topic, number) for number in range(start, stop)]
                start = stop
        return _result(members, partitions)


class RoundRobinAssignor(_Stateless):
    """Assigns the partitions of all topics to the members round-robin."""

    name = "roundrobin"

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Assign partitions round-robin, skipping members that do not subscribe to the topic."""
        partitions: dict[str, list[TopicPartition]] = {member: [] for member in members}
        turn = cycle(in_order(members))
        for topic, count, subscribers in _subscribers(partitions_per_topic, members):
            wanting = set(subscribers)
            for number in range(count):
                member = next(member for member in turn if member in wanting)
                partitions[member].append(TopicPartition(topic, number))
        return _result(members, partitions)


class StickyAssignor(_Stateless):
    """An eager assignor with even assignments that moves as few partitions as possible (KIP-54).

    Each member keeps its last assignment and sends it to the leader, so every consumer needs a separate instance.
    """

    name = "sticky"

    def __init__(self) -> None:
        self._memory: bytes | None = None

    def subscription_user_data(self) -> bytes | None:
        """Return this member's last assignment and its generation."""
        return self._memory

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Assign partitions evenly, moving a partition only if balance requires it."""
        remembered = {member: _remembered(subscription) for member, subscription in members.items()}
        partitions = assign_sticky(partitions_per_topic, remembered, in_order(members))
        number = 1 + max((subscription.generation for subscription in remembered.values()), default=0)
        return {member: Assignment(tuple(mine), encode_round(number)) for member, mine in partitions.items()}

    def on_assignment(self, assignment: Assignment) -> None:
        """Store the assignment, which the next join sends to the leader."""
        self._memory = encode_owned(assignment.partitions, decode_round(assignment.user_data))


def _remembered(subscription: Subscription) -> Subscription:
    """Return a subscription with the member's last assignment, decoded from its user data."""
    if subscription.owned or subscription.user_data is None:
        return subscription
    owned, number = decode_owned(subscription.user_data)
    return evolve(subscription, owned=owned, generation=number)


class CooperativeStickyAssignor(_Stateless):
    """A sticky assignor for cooperative rebalancing; a moving partition is unassigned for one generation (KIP-429)."""

    name = "cooperative-sticky"
    protocols: Sequence[RebalanceProtocol] = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Assign partitions, but withhold each one that another member owns until that member has revoked it and
        rejoined.
        """
        partitions = assign_sticky(partitions_per_topic, members, in_order(members))
        return _result(members, withhold_owned(partitions, members))


class EqualCountAssignor(_Stateless):
    """Divides the list of all partitions into contiguous parts whose sizes differ by at most one."""

    name = "equal"

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Divide the partitions of topics with the same subscribers; the least loaded members get the longer parts."""
        partitions: dict[str, list[TopicPartition]] = {member: [] for member in members}
        rows: dict[tuple[str, ...], list[TopicPartition]] = {}
        for topic, count, subscribers in _subscribers(partitions_per_topic, members):
            rows.setdefault(tuple(subscribers), []).extend(TopicPartition(topic, number) for number in range(count))
        for subscribers_of_row, row in sorted(rows.items(), key=lambda item: len(item[0])):
            each, extra = divmod(len(row), len(subscribers_of_row))
            start = 0
            for index, member in enumerate(sorted(subscribers_of_row, key=lambda member: len(partitions[member]))):
                stop = start + each + (index < extra)
                partitions[member] += row[start:stop]
                start = stop
        return _result(members, partitions)


class ModuloAssignor(_Stateless):
    """Assigns by partition number modulo member count, so that co-partitioned partitions have the same owner."""

    name = "modulo"

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Assign each partition to the subscriber at index (partition number modulo number of subscribers)."""
        partitions: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic, count, subscribers in _subscribers(partitions_per_topic, members):
            for number in range(count):
                partitions[subscribers[number % len(subscribers)]].append(TopicPartition(topic, number))
        return _result(members, partitions)
