"""How the leader of a group shares partitions out: Kafka's assignors, and two simple ones.

An assignor is asked by the leader only; ``subscription_user_data`` and ``on_assignment``
are its word with itself on the other members.  Pure; imports core only.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import cycle
from typing import Protocol, TypeAlias

from attrs import evolve

from streams.core.records import TopicPartition
from streams.group.sticky import assign_sticky, withhold_owned
from streams.group.subscriptions import (
    Assignment,
    Subscription,
    decode_owned,
    decode_round,
    encode_owned,
    encode_round,
)


class RebalanceProtocol(Enum):
    """What a member does with its partitions before it joins: gives up all, or keeps all (KIP-429)."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"


#: Subscription by member id.
Members: TypeAlias = Mapping[str, Subscription]


class Assignor(Protocol):
    """Shares the partitions of a group's topics out among its members."""

    @property
    def name(self) -> str:
        """The name under which a group agrees on it."""
        ...

    @property
    def protocols(self) -> Sequence[RebalanceProtocol]:
        """The rebalance protocols it can work under; a member takes the best that all its assignors know."""
        ...

    def subscription_user_data(self) -> bytes | None:
        """Return what this member tells the assignor on the leader; asked at every join."""
        ...

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Return everybody's assignment; runs on the leader.

        ``partitions_per_topic`` has the existing topics that members subscribe to.  An
        assignment may hold partitions of other topics as well.
        """
        ...

    def on_assignment(self, assignment: Assignment) -> None:
        """Learn what this member has got; called before the member's listeners."""
        ...


class _Stateless:
    """What assignors without memory have in common."""

    protocols: Sequence[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self) -> bytes | None:
        """Nothing to say."""
        return None

    def on_assignment(self, assignment: Assignment) -> None:
        """Nothing to keep."""


def in_order(members: Members) -> list[str]:
    """Return the member ids in an order that lasts: static members by instance id, then the others by id."""
    return sorted(members, key=lambda m: (members[m].group_instance_id is None, members[m].group_instance_id or m, m))


def _subscribers(partitions_per_topic: Mapping[str, int], members: Members) -> list[tuple[str, int, list[str]]]:
    """Return (topic, partition count, subscribed members in order) for each topic that somebody wants."""
    order = in_order(members)
    wanted = {member: set(members[member].topics) for member in order}
    rows = [
        (topic, count, [member for member in order if topic in wanted[member]])
        for topic, count in sorted(partitions_per_topic.items())
    ]
    return [row for row in rows if row[2]]


def _result(members: Members, given: Mapping[str, Sequence[TopicPartition]]) -> dict[str, Assignment]:
    return {member: Assignment(tuple(given.get(member, ()))) for member in members}


class RangeAssignor(_Stateless):
    """Each topic in ranges: co-partitioned topics meet on the same member."""

    name = "range"

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Give the first members of each topic one partition more where it does not divide."""
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic, count, subscribers in _subscribers(partitions_per_topic, members):
            each, extra = divmod(count, len(subscribers))
            start = 0
            for index, member in enumerate(subscribers):
                stop = start + each + (index < extra)
                given[member] += [TopicPartition(topic, number) for number in range(start, stop)]
                start = stop
        return _result(members, given)


class RoundRobinAssignor(_Stateless):
    """All partitions of all topics in turn."""

    name = "roundrobin"

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Go round the members, past those who do not want the topic."""
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        turn = cycle(in_order(members))
        for topic, count, subscribers in _subscribers(partitions_per_topic, members):
            wanting = set(subscribers)
            for number in range(count):
                member = next(member for member in turn if member in wanting)
                given[member].append(TopicPartition(topic, number))
        return _result(members, given)


class StickyAssignor(_Stateless):
    """As even as possible, and everybody keeps what it can (KIP-54); members give all up before they join.

    So each remembers what it had, and says it to the leader; one object serves one consumer.
    """

    name = "sticky"

    def __init__(self) -> None:
        self._memory: bytes | None = None

    def subscription_user_data(self) -> bytes | None:
        """Say what this member had last, and in which round."""
        return self._memory

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Move no partition that balance does not ask for."""
        known = {member: _remembered(subscription) for member, subscription in members.items()}
        given = assign_sticky(partitions_per_topic, known, in_order(members))
        number = 1 + max((subscription.generation for subscription in known.values()), default=0)
        return {member: Assignment(tuple(mine), encode_round(number)) for member, mine in given.items()}

    def on_assignment(self, assignment: Assignment) -> None:
        """Remember it."""
        self._memory = encode_owned(assignment.partitions, decode_round(assignment.user_data))


def _remembered(subscription: Subscription) -> Subscription:
    """Return a subscription with what its member had before it gave it up."""
    if subscription.owned or subscription.user_data is None:
        return subscription
    owned, number = decode_owned(subscription.user_data)
    return evolve(subscription, owned=owned, generation=number)


class CooperativeStickyAssignor(_Stateless):
    """As sticky, for members that go on working: what changes hands is free for one generation (KIP-429)."""

    name = "cooperative-sticky"
    protocols: Sequence[RebalanceProtocol] = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Withhold what another member still owns: it revokes it, rejoins, and then it is given."""
        given = assign_sticky(partitions_per_topic, members, in_order(members))
        return _result(members, withhold_owned(given, members))


class EqualCountAssignor(_Stateless):
    """All partitions in one row, cut into pieces of equal count (by one at most)."""

    name = "equal"

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Cut one row per set of topics with the same subscribers; who has least gets the longer pieces."""
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        rows: dict[tuple[str, ...], list[TopicPartition]] = {}
        for topic, count, subscribers in _subscribers(partitions_per_topic, members):
            rows.setdefault(tuple(subscribers), []).extend(TopicPartition(topic, number) for number in range(count))
        for subscribers_of_row, row in sorted(rows.items(), key=lambda item: len(item[0])):
            each, extra = divmod(len(row), len(subscribers_of_row))
            start = 0
            for index, member in enumerate(sorted(subscribers_of_row, key=lambda member: len(given[member]))):
                stop = start + each + (index < extra)
                given[member] += row[start:stop]
                start = stop
        return _result(members, given)


class ModuloAssignor(_Stateless):
    """Partition number modulo member count is the member's number: co-partitioned topics meet."""

    name = "modulo"

    def assign(self, partitions_per_topic: Mapping[str, int], members: Members) -> Mapping[str, Assignment]:
        """Number the subscribers of each topic in their order."""
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic, count, subscribers in _subscribers(partitions_per_topic, members):
            for number in range(count):
                given[subscribers[number % len(subscribers)]].append(TopicPartition(topic, number))
        return _result(members, given)
