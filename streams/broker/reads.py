"""Client reads: records as blocks or as stored bytes, and offsets by timestamp.

Fetches that must wait are kept by ``service``.  The functions receive the current time as an argument.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from streams.broker.logs.log import PartitionLog
from streams.broker.refusals import error_of
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import BrokerError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    READ_COMMITTED,
    AbortedTransaction,
    Fetch,
    FetchedPartition,
    FetchResponse,
    ListedOffset,
    ListOffsets,
)

_LOGGER = logging.getLogger(__name__)

#: The leader epoch, which never changes.
LEADER_EPOCH = 0


def fetched(logs: Mapping[TopicPartition, PartitionLog], request: Fetch, now_ms: int) -> tuple[FetchResponse, bool]:
    """Return the records that are available to a fetch, and whether they suffice to respond immediately.

    Every partition of the request is in the response.
    """
    as_bytes, isolation_level = request.as_bytes, request.isolation_level
    is_committed_only = isolation_level == READ_COMMITTED
    room = request.max_bytes
    limits = request.limits
    most = request.partition_max_bytes
    partitions: dict[TopicPartition, FetchedPartition] = {}
    is_ready = False
    size = 0
    for partition, offset in request.positions.items():
        log = logs.get(partition)
        if log is None:
            # The log of an ID is that of its topic, so that no ID is inconsistent with the name of a later topic.
            is_unknown_id = request.by_id and TopicPartition(partition.topic, 0) not in logs
            code = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions[partition] = FetchedPartition(code, -1, -1)
            is_ready = True
            continue
        end = log.high_watermark
        blocks: Sequence[Block] = ()
        chunks: Sequence[bytes] = ()
        try:
            if as_bytes:
                limit = min(room, limits.get(partition, most))
                run = log.fetch_encoded(offset, limit, now_ms, isolation_level, is_first=not size)
                chunks = run.chunks
                upto = run.next_offset
                size += run.size
                room -= run.size
            else:
                blocks = log.fetch(offset, request.max_records, now_ms)
        except (BrokerError, OSError) as error:
            code = _reported(log, offset, error)
            partitions[partition] = FetchedPartition(code, end, log.start_offset)
            is_ready = True
            continue
        stable = log.last_stable_offset
        if blocks:
            if is_committed_only and stable < end:
                blocks = _below(blocks, stable)
            is_ready = is_ready or bool(blocks)
            upto = blocks[-1].offsets[-1] + 1 if blocks else offset
        aborted: Sequence[AbortedTransaction] = ()
        if is_committed_only and (blocks or chunks):
            aborted = log.producers.aborted_between(offset, upto)
        partitions[partition] = FetchedPartition(ErrorCode.NONE, end, log.start_offset, blocks, stable, aborted, chunks)
    is_enough = as_bytes and size >= request.min_bytes
    return FetchResponse(partitions), is_ready or is_enough


def listed_offsets(
    log_of: Callable[[TopicPartition], PartitionLog], request: ListOffsets
) -> Mapping[TopicPartition, ListedOffset]:
    """Return the offset of the first record at or after the requested timestamp, for each partition.

    ``log_of`` returns the log of a partition, or raises ``BrokerError`` if there is none or it is damaged.
    """
    results: dict[TopicPartition, ListedOffset] = {}
    for partition, timestamp_ms in request.timestamps.items():
        try:
            timestamp, offset = log_of(partition).offset_for(timestamp_ms, request.isolation_level)
        except (BrokerError, OSError) as error:
            results[partition] = ListedOffset(error_of(error)[0])
            continue
        epoch = LEADER_EPOCH if offset >= 0 else -1
        results[partition] = ListedOffset(ErrorCode.NONE, timestamp, offset, epoch)
    return results


def _reported(log: PartitionLog, offset: int, error: Exception) -> ErrorCode:
    code, message = error_of(error)
    if code is not ErrorCode.OFFSET_OUT_OF_RANGE:
        _LOGGER.error("reading %s at offset %d failed: %s", log.partition, offset, message)
    return code


def _below(blocks: Sequence[Block], offset: int) -> list[Block]:
    parts = []
    for block in blocks:
        count = sum(1 for candidate in block.offsets if candidate < offset)
        if count:
            parts.append(block if count == len(block) else block.slice(0, count))
    return parts
