"""Even and sticky assignment: keep partitions, assign free ones, then move partitions along the shortest paths.

Topics with the same subscribers form a pool.  Members keep their partitions, and each free partition is
assigned to the member with the fewest.  While there is a chain of moves from a member to another one with at
least two partitions fewer, the chain is applied.  Without such a chain the assignment is as even as possible.
This module performs no I/O.
"""

import heapq
from collections.abc import Mapping, Sequence

from attrs import define, field

from streams.core.blocks.records import TopicPartition
from streams.group.assignment.subscriptions import Subscription


def owners_of(members: Mapping[str, Subscription]) -> dict[TopicPartition, str | None]:
    """Return the owner of each partition, or None if two members report it as owned in the same generation.

    Owned partitions of an earlier generation are ignored, because these members have missed a rebalance.
    """
    owners: dict[TopicPartition, str | None] = {}
    generations: dict[TopicPartition, int] = {}
    for member, subscription in members.items():
        for partition in subscription.owned:
            generation = generations.get(partition)
            if generation is None or subscription.generation > generation:
                owners[partition] = member
                generations[partition] = subscription.generation
            elif subscription.generation == generation:
                owners[partition] = None
    return owners


def assign_sticky(
    partitions_per_topic: Mapping[str, int], members: Mapping[str, Subscription], order: Sequence[str]
) -> dict[str, list[TopicPartition]]:
    """Return each member's partitions; ``order`` breaks ties."""
    subscribed = {member: set(members[member].topics) for member in order}
    pools: dict[tuple[str, ...], _Pool] = {}
    pool_of: dict[str, _Pool] = {}
    for topic in sorted(partitions_per_topic):
        subscribers = tuple(member for member in order if topic in subscribed[member])
        if subscribers:
            pool_of[topic] = pools.setdefault(subscribers, _Pool(len(pools), subscribers))
    balance = _Balance(list(pools.values()), list(order))
    owners = owners_of(members)
    for topic, pool in pool_of.items():
        for number in range(partitions_per_topic[topic]):
            partition = TopicPartition(topic, number)
            owner = owners.get(partition)
            if owner is not None and topic in subscribed[owner]:
                balance.give(pool, owner, partition)
            else:
                pool.free.append(partition)
    balance.fill()
    balance.even_out()
    return {member: sorted(balance.partitions(member)) for member in order}


def withhold_owned(
    assignment: Mapping[str, Sequence[TopicPartition]], members: Mapping[str, Subscription]
) -> dict[str, list[TopicPartition]]:
    """Omit partitions that another member still owns, because that member must revoke them first."""
    claims: dict[TopicPartition, set[str]] = {}
    for member, subscription in members.items():
        for partition in subscription.owned:
            claims.setdefault(partition, set()).add(member)
    return {
        member: [partition for partition in partitions if claims.get(partition, {member}) == {member}]
        for member, partitions in assignment.items()
    }


@define(eq=False)
class _Pool:
    """Topics with the same subscribers, and the partitions of each subscriber."""

    index: int
    subscribers: tuple[str, ...]
    free: list[TopicPartition] = field(factory=list)
    owned: dict[str, list[TopicPartition]] = field(factory=dict)
    # (load, rank, member); entries with an outdated load are skipped.
    by_load: list[tuple[int, int, str]] = field(factory=list)


class _Balance:
    """The assignment while it is being balanced."""

    def __init__(self, pools: list[_Pool], order: list[str]) -> None:
        self._pools = pools
        self._rank = {member: rank for rank, member in enumerate(order)}
        self._load = dict.fromkeys(order, 0)
        self._pools_of: dict[str, list[_Pool]] = {member: [] for member in order}
        for pool in pools:
            for member in pool.subscribers:
                self._pools_of[member].append(pool)

    def partitions(self, member: str) -> list[TopicPartition]:
        """Return the partitions currently assigned to a member."""
        return [partition for pool in self._pools_of[member] for partition in pool.owned.get(member, ())]

    def give(self, pool: _Pool, member: str, partition: TopicPartition) -> None:
        """Assign a partition before ``fill`` is called, which initializes the heaps of member loads."""
        pool.owned.setdefault(member, []).append(partition)
        self._load[member] += 1

    def fill(self) -> None:
        """Assign free partitions to the least loaded members, starting with the topics with the fewest subscribers."""
        for pool in self._pools:
            pool.by_load = [(self._load[member], self._rank[member], member) for member in pool.subscribers]
            heapq.heapify(pool.by_load)
        for pool in sorted(self._pools, key=lambda pool: len(pool.subscribers)):
            for partition in pool.free:
                member = self._least(pool)
                pool.owned.setdefault(member, []).append(partition)
                self._change(member, 1)

    def even_out(self) -> None:
        """Move partitions until no chain of moves leads to a member with at least two partitions fewer."""
        settled: set[str] = set()
        heap = [(-load, self._rank[member], member) for member, load in self._load.items()]
        heapq.heapify(heap)
        while heap:
            noted, _, member = heapq.heappop(heap)
            if member in settled or -noted != self._load[member]:
                continue
            way = self._way_down(member, settled)
            if way is None:
                continue
            for giver, pool, taker in way:
                # The last partitions were newly assigned, not kept, so they move first.
                pool.owned.setdefault(taker, []).append(pool.owned[giver].pop())
            for changed, by in ((member, -1), (way[-1][2], 1)):
                self._change(changed, by)
                heapq.heappush(heap, (-self._load[changed], self._rank[changed], changed))

    def _way_down(self, start: str, settled: set[str]) -> list[tuple[str, _Pool, str]] | None:
        """Return the shortest chain of moves to a member with at least two partitions fewer than ``start``.

        Without such a chain, all reached members are final: none of their partitions can leave this set of members,
        and no member of the set has two partitions fewer than a member that is examined later.
        """
        goal = self._load[start] - 2
        came: dict[str, tuple[str, _Pool] | None] = {start: None}
        seen: set[int] = set()
        queue = [start]
        for member in queue:
            for pool in self._pools_of[member]:
                if pool.index in seen or not pool.owned.get(member):
                    continue
                seen.add(pool.index)
                least = self._least(pool)
                if self._load[least] <= goal and least not in settled:
                    came[least] = (member, pool)
                    return self._trace(came, least)
                for other in pool.subscribers:
                    if other not in came and other not in settled:
                        came[other] = (member, pool)
                        queue.append(other)
        settled.update(queue)
        return None

    @staticmethod
    def _trace(came: Mapping[str, tuple[str, _Pool] | None], end: str) -> list[tuple[str, _Pool, str]]:
        way: list[tuple[str, _Pool, str]] = []
        step = came[end]
        while step is not None:
            giver, pool = step
            way.append((giver, pool, end))
            end = giver
            step = came[giver]
        way.reverse()
        return way

    def _least(self, pool: _Pool) -> str:
        heap = pool.by_load
        while True:
            load, rank, member = heap[0]
            actual = self._load[member]
            if load == actual:
                return member
            heapq.heapreplace(heap, (actual, rank, member))

    def _change(self, member: str, by: int) -> None:
        self._load[member] += by
        if by < 0:
            for pool in self._pools_of[member]:
                heapq.heappush(pool.by_load, (self._load[member], self._rank[member], member))
