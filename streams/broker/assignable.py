"""The topics of a broker as the group coordinator assigns their partitions to consumer groups."""

from collections.abc import Iterable

from attrs import frozen

from streams.broker.topics import Topics


@frozen
class AssignableTopics:
    """The topics that consumer groups may subscribe to; see ``group.TopicDirectory``."""

    topics: Topics

    @property
    def version(self) -> int:
        return self.topics.version

    def names(self) -> Iterable[str]:
        """Return the names of all topics, internal ones too: as in Kafka, patterns match them."""
        return self.topics.by_name

    def topic(self, name: str) -> tuple[bytes, int] | None:
        topic = self.topics.by_name.get(name)
        return None if topic is None else (topic.topic_id, len(topic.logs))
