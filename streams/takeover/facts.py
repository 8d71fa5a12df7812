"""What a cluster tells of an application that is stopped: its group, committed offsets, topics and their records.

Everything is read; nothing is written.
"""

from collections.abc import Iterable, Iterator, Mapping

from attrs import define, field, frozen

from streams.clients import (
    EARLIEST,
    LATEST,
    Admin,
    Consumer,
    ConsumerSettings,
    InternalTopic,
    TcpCluster,
    internal_topics,
    is_by_key,
)
from streams.core.blocks.key_places import sampled_spans
from streams.core.blocks.records import Block, TopicPartition
from streams.core.closeable import Closeable
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.transport import Cluster

#: Timeout of one poll, in milliseconds.
_POLL_MS = 100


@frozen
class Facts:
    """The group of an application, its committed offsets and the topics of the cluster."""

    application_id: str
    #: Kafka's name of the group's state; "Dead" if there is no group.
    state: str
    members: tuple[str, ...]
    committed: Mapping[TopicPartition, OffsetAndMetadata]
    #: Partition counts of all topics.
    partition_counts: Mapping[str, int]
    #: Topics that belong to the application by their names.
    own: tuple[InternalTopic, ...]
    #: Settings of those, where the broker tells them.
    configs: Mapping[str, Mapping[str, str]]
    #: First offset, end and last stable offset of each partition that was asked for.
    starts: Mapping[TopicPartition, int] = field(factory=dict)
    ends: Mapping[TopicPartition, int] = field(factory=dict)
    stable: Mapping[TopicPartition, int] = field(factory=dict)

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic; none if it does not exist."""
        return [TopicPartition(topic, number) for number in range(self.partition_counts.get(topic, 0))]


@define
class ClusterReader(Closeable):
    """Reads facts and records from a cluster."""

    _cluster: Cluster
    _admin: Admin
    _consumer: Consumer = field(init=False)

    @_consumer.default
    def _reader(self) -> Consumer:
        settings = ConsumerSettings().replace(isolation_level="read_committed")
        return Consumer(self._cluster, settings=settings, client_id="takeover", auto_offset_reset="earliest")

    def close(self) -> None:
        self._consumer.close()

    def facts(self, application_id: str) -> Facts:
        """Return the facts of an application, without offsets of partitions."""
        group = self._admin.describe_group(application_id)
        topics = self._admin.all_topics()
        partition_counts = {topic.name: len(topic.leaders) for topic in topics}
        states = {listed.group_id: listed.state for listed in self._admin.list_groups()}
        own = tuple(internal_topics(application_id, partition_counts, states))
        configs: Mapping[str, Mapping[str, str]] = {topic.name: topic.config for topic in topics}
        if isinstance(self._cluster, TcpCluster) and own:
            configs = self._cluster.topic_configs([topic.name for topic in own])
        return Facts(
            application_id,
            # A group whose tasks the broker assigns (KIP-1071) is listed; described as others are, it is "Dead".
            states.get(application_id, group.state),
            tuple(member.member_id for member in group.members),
            self._admin.committed_offsets(application_id),
            partition_counts,
            own,
            configs,
        )

    def ranges(self, partitions: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], ...]:
        """Return the first offsets, the ends and the last stable offsets of partitions."""
        asked = list(partitions)
        if not asked:
            return {}, {}, {}
        starts = self._admin.list_offsets(dict.fromkeys(asked, EARLIEST))
        ends = self._admin.list_offsets(dict.fromkeys(asked, LATEST))
        return starts, ends, self._consumer.end_offsets(asked)

    def blocks(self, partition: TopicPartition, start: int, end: int) -> Iterator[Block]:
        """Yield the committed records of a partition from ``start`` up to ``end``, exclusive."""
        consumer = self._consumer
        if start >= end:
            return
        consumer.assign([partition])
        consumer.seek(partition, start)
        while consumer.position(partition) < end:
            for block in consumer.poll_blocks(_POLL_MS).get(partition, ()):
                if block.offsets[-1] >= end:
                    block = block.slice(0, sum(1 for offset in block.offsets if offset < end))
                if len(block):
                    yield block

    def is_by_key(self, topic: str) -> bool:
        """Return whether the default partitioner is that of a topic."""
        return is_by_key(self._admin.describe_topics([topic])[topic])

    def samples(self, partitions: Iterable[TopicPartition]) -> Iterator[tuple[TopicPartition, Block]]:
        """Yield a sample of the committed records of partitions: about 1,000 of each, old and new ones."""
        asked = list(partitions)
        starts, _, stable = self.ranges(asked)
        for at in asked:
            for start, end in sampled_spans(starts[at], stable[at]):
                yield from ((at, block) for block in self.blocks(at, start, end))
