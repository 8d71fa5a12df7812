"""What a fetch gets from the logs: blocks for who reads in this process, whole batches as bytes for all others.

Between ``service``, which lets fetches wait and answers them, and the logs.  Pure: time is an argument.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from attrs import field, frozen

from streams.broker.log import PartitionLog
from streams.broker.refusals import error_of
from streams.core.errors import BrokerError
from streams.core.records import Block, TopicPartition
from streams.protocol.messages import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    AbortedTransaction,
    ErrorCode,
    Fetch,
    FetchedPartition,
    FetchResponse,
)

_LOGGER = logging.getLogger(__name__)


@frozen
class EncodedFetch:
    """A fetch whose answer leaves the process: the same as ``Fetch``, bounded in bytes.

    Answered at once with ``min_bytes`` or more, after ``max_wait_ms`` in any case.  ``max_bytes`` bounds the
    whole answer, ``limits`` each partition's; the first batch of all comes whatever its size (KIP-74).
    """

    positions: Mapping[TopicPartition, int]
    limits: Mapping[TopicPartition, int]
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    isolation_level: int = READ_UNCOMMITTED


class EncodedPartition(NamedTuple):
    """What an encoded fetch gets of one partition; the meaning is that of ``FetchedPartition``."""

    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    chunks: Sequence[bytes] = ()
    last_stable_offset: int = -1
    aborted: Sequence[AbortedTransaction] = ()


@frozen
class EncodedFetched:
    """The answer to an encoded fetch, per partition in the order asked for."""

    partitions: Mapping[TopicPartition, EncodedPartition] = field(factory=dict)


def fetched(logs: Mapping[TopicPartition, PartitionLog], request: Fetch, now_ms: int) -> tuple[FetchResponse, bool]:
    """Return what there is to read, and whether it is worth an answer at once."""
    max_records = request.max_records
    is_committed_only = request.isolation_level == READ_COMMITTED
    partitions: dict[TopicPartition, FetchedPartition] = {}
    is_ready = False
    for partition, offset in request.positions.items():
        log = logs.get(partition)
        if log is None:
            partitions[partition] = FetchedPartition(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
            is_ready = True
            continue
        end = log.high_watermark
        if offset == end and log.damage is None:
            # Not being in the answer says so: thousands of partitions cost next to nothing while nothing happens.
            continue
        try:
            blocks = log.fetch(offset, max_records, now_ms)
        except (BrokerError, OSError) as error:
            code = _reported(log, offset, error)
            partitions[partition] = FetchedPartition(code, end, log.start_offset)
            is_ready = True
            continue
        stable = log.last_stable_offset
        aborted: Sequence[AbortedTransaction] = ()
        if is_committed_only and blocks:
            blocks = _below(blocks, stable) if stable < end else blocks
            aborted = log.aborted_between(offset, blocks[-1].offsets[-1] + 1) if blocks else ()
        is_ready = is_ready or bool(blocks)
        partitions[partition] = FetchedPartition(ErrorCode.NONE, end, log.start_offset, blocks, stable, aborted)
    return FetchResponse(partitions), is_ready or not request.positions


def fetched_encoded(
    logs: Mapping[TopicPartition, PartitionLog], request: EncodedFetch, now_ms: int
) -> tuple[EncodedFetched, bool]:
    """Return what there is to read as batches, and whether it is worth an answer at once."""
    isolation_level, room = request.isolation_level, request.max_bytes
    partitions: dict[TopicPartition, EncodedPartition] = {}
    is_ready, size = False, 0
    for partition, offset in request.positions.items():
        log = logs.get(partition)
        if log is None:
            partitions[partition] = EncodedPartition(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
            is_ready = True
            continue
        end = log.high_watermark
        try:
            run = log.fetch_encoded(
                offset, min(room, request.limits[partition]), now_ms, isolation_level, is_first=not size
            )
        except (BrokerError, OSError) as error:
            partitions[partition] = EncodedPartition(_reported(log, offset, error), end, log.start_offset)
            is_ready = True
            continue
        size += run.size
        room -= run.size
        aborted: Sequence[AbortedTransaction] = ()
        if isolation_level == READ_COMMITTED and run.chunks:
            aborted = log.aborted_between(offset, run.next_offset)
        partitions[partition] = EncodedPartition(
            ErrorCode.NONE, end, log.start_offset, run.chunks, log.last_stable_offset, aborted
        )
    return EncodedFetched(partitions), is_ready or size >= request.min_bytes or not partitions


def _reported(log: PartitionLog, offset: int, error: Exception) -> ErrorCode:
    code, message = error_of(error)
    if code is not ErrorCode.OFFSET_OUT_OF_RANGE:
        _LOGGER.error("reading %s at offset %d failed: %s", log.partition, offset, message)
    return code


def _below(blocks: Sequence[Block], offset: int) -> list[Block]:
    kept = []
    for block in blocks:
        count = sum(1 for found in block.offsets if found < offset)
        if count:
            kept.append(block if count == len(block) else block.slice(0, count))
    return kept
