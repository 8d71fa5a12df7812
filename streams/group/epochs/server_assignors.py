"""The assignors of the coordinator for consumer groups: Kafka's ``uniform`` and ``range`` (KIP-848).

This module performs no I/O.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from streams.core.blocks.records import TopicPartition
from streams.group.assignment.assignors import RangeAssignor, in_order
from streams.group.assignment.sticky import assign_sticky
from streams.group.assignment.subscriptions import Subscription

#: Assigns partitions, given the partition count by topic and the members, whose ``owned`` is their last target.
ServerAssign: TypeAlias = Callable[
    [Mapping[str, int], Mapping[str, Subscription]], Mapping[str, Sequence[TopicPartition]]
]


def _uniform(
    partitions_per_topic: Mapping[str, int], members: Mapping[str, Subscription]
) -> Mapping[str, Sequence[TopicPartition]]:
    """Assign as evenly as possible; a partition moves only if balance requires it."""
    return assign_sticky(partitions_per_topic, members, in_order(members))


def _range(
    partitions_per_topic: Mapping[str, int], members: Mapping[str, Subscription]
) -> Mapping[str, Sequence[TopicPartition]]:
    """Assign a range of each topic to each member, so that co-partitioned partitions have the same owner."""
    assignments = RangeAssignor().assign(partitions_per_topic, members)
    return {member: assignment.partitions for member, assignment in assignments.items()}


#: The assignors by name; the first is the default.
SERVER_ASSIGNORS: Final[Mapping[str, ServerAssign]] = {"uniform": _uniform, "range": _range}
DEFAULT_ASSIGNOR: Final = next(iter(SERVER_ASSIGNORS))
