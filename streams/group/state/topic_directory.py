"""The topics of a broker, as the coordinator needs them to assign partitions.

Of the other packages, this module imports none.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from attrs import define, field


class TopicDirectory(Protocol):
    """The topics of a broker, as the coordinator needs them to assign partitions."""

    @property
    def version(self) -> int:
        """A number that changes whenever a topic is created, deleted, or gets partitions."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics, which patterns may match."""
        ...

    def topic(self, name: str) -> tuple[bytes, int] | None:
        """Return the ID and the partition count of a topic, or None if it does not exist."""
        ...


class NoTopics:
    """The directory of a coordinator without topics."""

    version = 0

    def names(self) -> Iterable[str]:
        return ()

    def topic(self, name: str) -> tuple[bytes, int] | None:
        return None


@define(eq=False)
class SubscribedTopics:
    """The topics that the members of a group subscribe to, as of ``version`` of the directory (-1: not looked up)."""

    #: Topic ID and partition count of those that exist, by name.
    by_name: Mapping[str, tuple[bytes, int]] = field(factory=dict)
    version: int = -1

    @property
    def names(self) -> dict[bytes, str]:
        """The name of each of these topics, by its ID."""
        return {topic_id: name for name, (topic_id, _) in self.by_name.items()}

    def look_up(self, directory: TopicDirectory, subscriptions: Iterable[Iterable[str]]) -> bool:
        """Look up the topics that each member wants; return whether they differ from before."""
        names = sorted(set[str]().union(*subscriptions))
        topics = {name: topic for name in names if (topic := directory.topic(name)) is not None}
        is_changed = self.version < 0 or topics != self.by_name
        self.by_name = topics
        self.version = directory.version
        return is_changed
