"""Deletion of consumed records from repartition topics, which only the application reads.

Requests are sent without waiting for responses; a failed or lost request is repeated at the next interval.  The module
imports only ``clients``, ``core`` and ``protocol``.
"""

from collections import deque
from collections.abc import Mapping
from functools import partial

from attrs import define, field

from streams.clients import MetadataCache, Network
from streams.core.blocks.records import TopicPartition
from streams.core.clock import Clock
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.messages import DeleteRecords, DeleteRecordsResponse, Metadata, MetadataResponse
from streams.protocol.request import Response
from streams.protocol.transport import ANY_NODE


@define(eq=False)
class Purger:
    """Periodically deletes the records that one thread has consumed and committed.

    ``interval_ms`` is the setting ``repartition_purge_interval_ms``.  Records are kept for ``keep_ms`` after the
    commit.  Requests are sent to the leader of each partition; an unknown leader is looked up first.
    """

    _network: Network
    _clock: Clock
    _interval_ms: int
    _keep_ms: int = 0
    _next_ms: int = field(init=False)
    #: Offsets up to which records may be deleted now.
    _consumed: dict[TopicPartition, int] = field(factory=dict)
    #: Offsets committed since the last interval, and those of earlier intervals with the time of that interval.
    _noted: dict[TopicPartition, int] = field(factory=dict)
    _delayed: deque[tuple[int, dict[TopicPartition, int]]] = field(factory=deque)
    _metadata: MetadataCache = field(factory=MetadataCache)

    def __attrs_post_init__(self) -> None:
        self._next_ms = self._clock.monotonic_ms() + self._interval_ms

    def note(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Add committed offsets of repartition topics; records before them may be deleted."""
        for partition, commit in committed.items():
            self._noted[partition] = commit.offset

    def poll(self) -> None:
        """Process the responses, and send the next requests once the interval has passed."""
        if self._network.in_flight:
            self._network.poll(0)
        now = self._clock.monotonic_ms()
        if now < self._next_ms:
            return
        self._next_ms = now + self._interval_ms
        if self._noted:
            self._delayed.append((now, self._noted))
            self._noted = {}
        while self._delayed and now - self._delayed[0][0] >= self._keep_ms:
            self._consumed |= self._delayed.popleft()[1]
        if any(self._metadata.leader(partition) is None for partition in self._consumed):
            topics = tuple(sorted({partition.topic for partition in self._consumed}))
            self._network.send(ANY_NODE, Metadata(topics, False), partial(self._on_metadata, topics))
        else:
            self._send()

    def close(self) -> None:
        """Close the connections to the brokers."""
        self._network.close()

    def _on_metadata(self, topics: tuple[str, ...], response: Response | Exception) -> None:
        if isinstance(response, MetadataResponse):
            self._metadata.update(response, topics)
            self._send()

    def _send(self) -> None:
        by_node: dict[int, dict[TopicPartition, int]] = {}
        for partition, offset in self._consumed.items():
            node = self._metadata.leader(partition)
            if node is not None:
                by_node.setdefault(node, {})[partition] = offset
        for node, offsets in by_node.items():
            self._network.send(node, DeleteRecords(offsets), partial(self._on_deleted, offsets))

    def _on_deleted(self, asked: Mapping[TopicPartition, int], response: Response | Exception) -> None:
        for partition, offset in asked.items():
            outcome = response.partitions.get(partition) if isinstance(response, DeleteRecordsResponse) else None
            if outcome is None or outcome[0] is not ErrorCode.NONE:
                # The leader may have changed: it is looked up again, and the request is repeated at the next interval.
                self._metadata.topics.pop(partition.topic, None)
            elif self._consumed.get(partition) == offset:
                del self._consumed[partition]
