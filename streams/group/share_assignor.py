"""The assignor of share groups, ``simple``: several members may have a partition, and all have work (KIP-932).

Within each topic, every member has a partition and every partition has a member, in numbers that differ by one at most.
What a member has stays with it, as far as this allows.  Pure: no clock, no I/O.
"""

from collections.abc import Hashable, Mapping, Sequence, Set
from itertools import islice
from typing import Final, TypeVar

from streams.group.consumer_group import Place, Places

#: The name of the assignor.
SIMPLE: Final = "simple"

B = TypeVar("B", bound=Hashable)
G = TypeVar("G", bound=Hashable)


def assign_shares(
    topics: Mapping[str, tuple[bytes, int]], wanted: Mapping[str, Set[str]], before: Mapping[str, Places]
) -> dict[str, Places]:
    """Return the partitions of each member.

    - ``topics``: topic ID and partition count by name.
    - ``wanted``: the topics that each member subscribes to.
    - ``before``: the partitions that members have had.
    """
    given: dict[str, set[Place]] = {member_id: set() for member_id in wanted}
    for name, (topic_id, count) in sorted(topics.items()):
        # Those with the least work come first: they get the partition that is one more.
        members = sorted(
            (member_id for member_id in wanted if name in wanted[member_id]),
            key=lambda member_id: (len(given[member_id]), member_id),
        )
        if not members:
            continue
        places = [(topic_id, number) for number in range(count)]
        had = {
            member_id: [place for place in places if place in before.get(member_id, frozenset())]
            for member_id in members
        }
        if len(members) >= count:
            for member_id, place in _spread(members, places, had).items():
                given[member_id].add(place)
        else:
            owners: dict[Place, list[str]] = {}
            for member_id, kept in had.items():
                for place in kept:
                    owners.setdefault(place, []).append(member_id)
            for place, member_id in _spread(places, members, owners).items():
                given[member_id].add(place)
    return {member_id: frozenset(places) for member_id, places in given.items()}


def _spread(givers: Sequence[G], bins: Sequence[B], had: Mapping[G, Sequence[B]]) -> dict[G, B]:
    """Give each giver one bin, so that the numbers by bin differ by one at most; it keeps one that it had if it can."""
    quota, surplus = divmod(len(givers), len(bins))
    counts = dict.fromkeys(bins, 0)
    chosen: dict[G, B] = {}
    for giver in givers:
        for bin_ in had.get(giver, ()):
            if counts[bin_] < quota or (counts[bin_] == quota and surplus):
                surplus -= counts[bin_] == quota
                counts[bin_] += 1
                chosen[giver] = bin_
                break
    rest = iter([giver for giver in givers if giver not in chosen])
    for bin_ in bins:
        # One of the surplus, unless the bin has one already.
        is_extra = surplus > 0 and counts[bin_] <= quota
        surplus -= is_extra
        for giver in islice(rest, max(0, quota - counts[bin_]) + is_extra):
            chosen[giver] = bin_
    return chosen
