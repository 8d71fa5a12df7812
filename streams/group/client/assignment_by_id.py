"""The assignment of a member by topic ID, and how the member moves to it (KIP-848).

The names of topics come from the metadata.  This module performs no I/O; of the other packages, it imports only
``core`` and ``protocol``.
"""

from collections.abc import Callable, Mapping, Sequence

from attrs import define, field

from streams.core.blocks.records import TopicPartition
from streams.group.client.consumer_member import Assign, Lose, Revoke
from streams.group.client.member import Action
from streams.protocol.group_messages import PartitionsById

#: The name and topic ID of all topics whose metadata are known.
NamesById = Callable[[], Mapping[bytes, str]]


@define(eq=False)
class AssignmentById:
    """The partitions that a member has, and those that the coordinator has assigned last.

    ``names_by_id`` returns the names of topics by ID; while it lacks one of the assigned topics, ``needs_metadata`` is
    True, and the partitions of that topic wait.
    """

    _names_by_id: NamesById
    needs_metadata: bool = field(default=False, init=False)
    owned: tuple[TopicPartition, ...] = field(default=(), init=False)
    #: The topic IDs of all topics that were assigned.
    ids: dict[str, bytes] = field(factory=dict, init=False)
    _target: Mapping[bytes, Sequence[int]] | None = field(default=None, init=False)

    def receive(self, assignment: PartitionsById | None) -> None:
        """Store the assignment of a response; None leaves it as it is."""
        if assignment is not None:
            self._target = assignment.partitions

    def move(self) -> list[Action]:
        """Move to the assignment, as far as the names of its topics are known."""
        if self._target is None:
            return []
        names = {topic_id: name for name, topic_id in self.ids.items()} | dict(self._names_by_id())
        self.needs_metadata = any(topic_id not in names for topic_id in self._target)
        self.ids.update((names[topic_id], topic_id) for topic_id in self._target if topic_id in names)
        now = tuple(
            sorted(
                TopicPartition(names[topic_id], number)
                for topic_id, numbers in self._target.items()
                if topic_id in names
                for number in numbers
            )
        )
        if not self.needs_metadata:
            self._target = None
        gained = set(now).difference(self.owned)
        revoked = tuple(partition for partition in self.owned if partition not in set(now))
        if not gained and not revoked:
            return []
        self.owned = now
        actions: list[Action] = [Revoke(revoked)] if revoked else []
        return [*actions, Assign(now, tuple(partition for partition in now if partition in gained))]

    def lose(self) -> list[Action]:
        """Forget the assignment, because the member was removed from its group."""
        owned = self.owned
        self.owned = ()
        self._target = None
        return [Lose(owned)] if owned else []

    def leaving(self) -> list[Action]:
        """Revoke all partitions, because the member is leaving the group."""
        owned = self.owned
        self.owned = ()
        self._target = None
        return [Revoke(owned)] if owned else []
