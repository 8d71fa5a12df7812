"""Cached topic metadata: partition counts and leaders.

Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Iterable, Sequence

from attrs import define, field

from streams.clients.errors import RETRIABLE
from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import MetadataResponse, TopicMetadata


@define(eq=False)
class MetadataCache:
    """Cached topics by name; topics that do not exist or were never requested are absent."""

    topics: dict[str, TopicMetadata] = field(factory=dict)
    brokers: dict[int, str] = field(factory=dict)
    #: Error codes of requested topics without metadata.
    refused: dict[str, ErrorCode] = field(factory=dict)

    def update(self, response: MetadataResponse, asked: Sequence[str] | None) -> None:
        """Apply the response to a metadata request for the topics ``asked``, or for all topics if it is None.

        Topics with a transient error keep their cached metadata.
        """
        self.brokers = dict(response.brokers)
        refused = {topic.name: topic.error for topic in response.topics if topic.error is not ErrorCode.NONE}
        for name in list(self.topics) if asked is None else asked:
            if refused.get(name) not in RETRIABLE:
                self.topics.pop(name, None)
            self.refused.pop(name, None)
        self.refused.update(refused)
        self.topics.update((topic.name, topic) for topic in response.topics if topic.error is ErrorCode.NONE)

    def why_unknown(self, topic: str) -> ErrorCode:
        """Return the error code that explains why a topic has no cached metadata."""
        return self.refused.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def partition_count(self, topic: str) -> int | None:
        """Return the partition count of a topic, or None if the count is not cached."""
        described = self.topics.get(topic)
        return None if described is None else len(described.leaders)

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the partition counts of ``topics``, without topics that are not cached."""
        return {topic: len(self.topics[topic].leaders) for topic in sorted(topics) if topic in self.topics}

    def names_by_id(self) -> dict[bytes, str]:
        """Return the names of the cached topics by topic ID."""
        return {topic.topic_id: name for name, topic in self.topics.items()}

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the broker ID of a partition's leader, or None if the leader is unknown."""
        described = self.topics.get(partition.topic)
        if described is None or not 0 <= partition.partition < len(described.leaders):
            return None
        leader = described.leaders[partition.partition]
        return None if leader < 0 else leader

    def exists(self, partition: TopicPartition) -> bool:
        """Return whether the cached metadata contains a partition, with or without a leader."""
        return 0 <= partition.partition < (self.partition_count(partition.topic) or 0)
