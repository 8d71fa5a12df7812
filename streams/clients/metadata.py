"""What a client knows of topics: partition counts and leaders as last heard.  Imports protocol and core."""

from collections.abc import Iterable, Sequence

from attrs import define, field

from streams.clients.errors import RETRIABLE
from streams.core.records import TopicPartition
from streams.protocol.messages import ErrorCode, MetadataResponse, TopicMetadata


@define(eq=False)
class MetadataCache:
    """Topics by name; absent are those that do not exist or were never asked for."""

    topics: dict[str, TopicMetadata] = field(factory=dict)
    brokers: dict[int, str] = field(factory=dict)
    #: Why topics that were asked for are not known.
    refused: dict[str, ErrorCode] = field(factory=dict)

    def update(self, response: MetadataResponse, asked: Sequence[str] | None) -> None:
        """Take an answer to a request for these topics; None = all.

        What a broker cannot tell for the moment stays as it was.
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
        """Return why a topic is not known."""
        return self.refused.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def partition_count(self, topic: str) -> int | None:
        """Return how many partitions a topic has, None where it is not known."""
        found = self.topics.get(topic)
        return None if found is None else len(found.leaders)

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the partition count of those topics that are known."""
        return {topic: len(self.topics[topic].leaders) for topic in sorted(topics) if topic in self.topics}

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the node that leads a partition, None where it is not known."""
        found = self.topics.get(partition.topic)
        if found is None or not 0 <= partition.partition < len(found.leaders):
            return None
        leader = found.leaders[partition.partition]
        return None if leader < 0 else leader

    def exists(self, partition: TopicPartition) -> bool:
        """Return whether a partition is known, be it without a leader for the moment."""
        return 0 <= partition.partition < (self.partition_count(partition.topic) or 0)
