"""Blocking look-ups of partitions, and of offsets by time.

Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Mapping
from typing import Final

from streams.clients.arguments import checked_offset, checked_partitions
from streams.clients.errors import LEADER_MOVED, DisconnectedError, error_for, is_final, is_transient
from streams.clients.metadata import MetadataCache
from streams.clients.network import Backoff, Network, Settling
from streams.core.blocks.records import TopicPartition
from streams.core.clock import Deadline
from streams.core.errors import BrokerError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetAndMetadata
from streams.protocol.messages import READ_UNCOMMITTED, ListOffsets, Metadata
from streams.protocol.transport import ANY_NODE

_BACKOFF: Final = Backoff()


def list_offsets(
    network: Network,
    metadata: MetadataCache,
    times: Mapping[TopicPartition, int],
    deadline: Deadline,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, tuple[int, int]]:
    """Look up (timestamp, offset) for each partition's time (-2 earliest, -1 latest), retrying until the deadline.

    Raises:
        UnknownTopicError: a partition does not exist.
        RequestTimeoutError: no response came in time.
    """
    failures = 0
    settled = Settling(network)
    while True:
        try:
            return _list_once(network, metadata, times, deadline, isolation_level)
        except BrokerError as error:
            remaining_ms = deadline.remaining_ms(has_progress=False)
            is_passing = is_transient(error) or error.code in network.traits.retriable or settled.excuses(error)
            if not remaining_ms or not is_passing or is_final(error):
                raise
            if isinstance(error, DisconnectedError) or error.code in LEADER_MOVED:
                # The leader may have changed.
                for partition in times:
                    metadata.topics.pop(partition.topic, None)
            # The request only reads, so a retry is safe.
            failures += 1
            network.poll(min(remaining_ms, _BACKOFF.after(failures)))


def _list_once(
    network: Network,
    metadata: MetadataCache,
    times: Mapping[TopicPartition, int],
    deadline: Deadline,
    isolation_level: int,
) -> dict[TopicPartition, tuple[int, int]]:
    if any(metadata.leader(partition) is None for partition in times):
        topics = tuple(sorted({partition.topic for partition in times}))
        request = Metadata(topics, allow_auto_topic_creation=False)
        timeout_ms = deadline.remaining_ms(has_progress=True)
        metadata.update(network.request(ANY_NODE, request, timeout_ms), topics)
    by_node: dict[int, dict[TopicPartition, int]] = {}
    for partition, time_ms in times.items():
        node = metadata.leader(partition)
        if node is None:
            is_known = metadata.exists(partition)
            code = ErrorCode.LEADER_NOT_AVAILABLE if is_known else metadata.why_unknown(partition.topic)
            raise error_for(code, f"offsets of {partition}")
        by_node.setdefault(node, {})[partition] = time_ms
    offsets: dict[TopicPartition, tuple[int, int]] = {}
    for node, asked in by_node.items():
        timeout_ms = deadline.remaining_ms(has_progress=True)
        response = network.request(node, ListOffsets(asked, isolation_level), timeout_ms)
        for partition, listed in response.partitions.items():
            if listed.error is not ErrorCode.NONE:
                metadata.topics.pop(partition.topic, None)
                raise error_for(listed.error, f"offsets of {partition}")
            offsets[partition] = listed.timestamp, listed.offset
    return offsets


def partitions_of(
    network: Network, metadata: MetadataCache, topic: str, deadline: Deadline, *, allow_auto_create: bool
) -> list[TopicPartition]:
    """Return the partitions of a topic, or an empty list if the topic does not exist; retried until the deadline.

    Raises:
        RequestTimeoutError: no response came in time.
    """
    failures = 0
    while True:
        try:
            remaining_ms = deadline.remaining_ms(has_progress=True)
            response = network.request(ANY_NODE, Metadata((topic,), allow_auto_create), remaining_ms)
        except BrokerError as error:
            remaining_ms = deadline.remaining_ms(has_progress=False)
            if not remaining_ms or not is_transient(error) or is_final(error):
                raise
            failures += 1
            network.poll(min(remaining_ms, _BACKOFF.after(failures)))
            continue
        metadata.update(response, (topic,))
        return [TopicPartition(topic, number) for number in range(metadata.partition_count(topic) or 0)]


def with_metadata(offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return ``offsets`` to commit with offset metadata, which is empty if only an offset is given.

    Raises:
        ConfigError: a key is no TopicPartition, or an offset is negative or no int.
    """
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, offset in zip(checked_partitions(offsets, "a commit"), offsets.values(), strict=True):
        if isinstance(offset, OffsetAndMetadata):
            checked_offset(offset.offset, f"commit of {partition}")
            checked[partition] = offset
        else:
            checked[partition] = OffsetAndMetadata(checked_offset(offset, f"commit of {partition}"))
    return checked
