"""Produce, Fetch, ListOffsets and DeleteRecords in Kafka's words."""

import logging
from collections.abc import Sequence
from typing import Final

from streams.core.errors import BrokerError
from streams.core.records import Block, TopicPartition
from streams.protocol.batch import CorruptBatchError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    READ_COMMITTED,
    AbortedTransaction,
    DeleteRecords,
    DeleteRecordsResponse,
    Fetch,
    FetchedPartition,
    FetchResponse,
    ListOffsets,
    ListOffsetsResponse,
    Produce,
    ProduceResponse,
)
from streams.protocol.wire.encoded import EncodedBlock, encoded, fetched, produced
from streams.protocol.wire.errors import EncodingError
from streams.protocol.wire.fields import Fields
from streams.protocol.wire.mapping.base import (
    REQUEST_TIMEOUT_MS,
    Asked,
    Incoming,
    Refusal,
    Serving,
    Translation,
    by_topic,
    code,
    each_partition,
    fail_on,
    one,
    text,
)
from streams.protocol.wire.tables import records as tables

_LOGGER = logging.getLogger(__name__)

# Kafka's defaults of its consumer.
_MIN_BYTES: Final = 1
# Without a fetch session each request says everything (KIP-227).
_NO_SESSION: Final = -1
# First version of ListOffsets that tells leader epochs.
_EPOCHS_SINCE: Final = 4


# --- Produce ------------------------------------------------------------------------------


def _produce(request: Produce, version: int) -> Fields:
    return {
        "transactional_id": request.transactional_id,
        "acks": request.acks,
        "timeout_ms": REQUEST_TIMEOUT_MS,
        "topic_data": [
            {
                "name": topic,
                "partition_data": [
                    {"index": partition, "records": _batch(topic, partition, blocks, version)}
                    for partition, blocks in partitions
                ],
            }
            for topic, partitions in by_topic(request.blocks).items()
        ],
    }


def _batch(topic: str, partition: int, blocks: Sequence[Block], version: int) -> bytes:
    if len(blocks) != 1:
        raise EncodingError(
            f"{len(blocks)} blocks for {topic}-{partition}: a produce request has one batch for each partition",
            api="ProduceRequest",
            version=version,
            field="topic_data.partition_data.records",
        )
    return encoded(blocks[0], 0)


def _produce_answer(message: Fields, version: int, request: Produce) -> ProduceResponse:
    rows = each_partition(message["responses"], "name", "partition_responses", "index")
    return ProduceResponse(
        {partition: (code(row), row["base_offset"], text(row["error_message"])) for partition, row in rows}
    )


def _produce_asked(message: Fields, version: int, client_id: str) -> Asked[Produce]:
    blocks: dict[TopicPartition, Sequence[Block]] = {}
    refused: dict[TopicPartition, Refusal] = {}
    for partition, row in each_partition(message["topic_data"], "name", "partition_data", "index"):
        try:
            blocks[partition] = (produced(row["records"] or b""),)
        except BrokerError as error:
            refused[partition] = (ErrorCode(error.code), str(error))
    if not blocks:
        return (), refused
    return (Produce(blocks, message["acks"], message["transactional_id"]),), refused


def _produce_answered(incoming: Incoming[Produce], responses: Sequence[ProduceResponse], serving: Serving) -> Fields:
    found: dict[TopicPartition, tuple[ErrorCode, int, str]] = {}
    for response in responses:
        found.update(response.partitions)
    found.update((partition, (error, -1, reason)) for partition, (error, reason) in incoming.refused.items())
    rows = each_partition(incoming.message["topic_data"], "name", "partition_data", "index")
    return {
        "responses": [
            {
                "name": topic,
                "partition_responses": [
                    {"index": partition, "error_code": error, "base_offset": offset, "error_message": reason or None}
                    for partition, (error, offset, reason) in partitions
                ],
            }
            for topic, partitions in by_topic({partition: found[partition] for partition, _ in rows}).items()
        ]
    }


PRODUCE = Translation(
    tables.PRODUCE.key,
    Produce,
    ProduceResponse,
    tables.PRODUCE.versions,
    _produce,
    _produce_answer,
    _produce_asked,
    _produce_answered,
)


# --- Fetch --------------------------------------------------------------------------------


def _fetch(request: Fetch, version: int) -> Fields:
    return {
        "max_wait_ms": request.max_wait_ms,
        "min_bytes": _MIN_BYTES,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
        "session_id": 0,
        "session_epoch": _NO_SESSION,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {"partition": partition, "fetch_offset": offset, "partition_max_bytes": request.partition_max_bytes}
                    for partition, offset in partitions
                ],
            }
            for topic, partitions in by_topic(request.positions).items()
        ],
    }


def _fetch_answer(message: Fields, version: int, request: Fetch) -> FetchResponse:
    fail_on(message, "fetch")
    rows = each_partition(message["responses"], "topic", "partitions", "partition_index")
    return FetchResponse({partition: _fetched(partition, row) for partition, row in rows})


def _fetched(partition: TopicPartition, row: Fields) -> FetchedPartition:
    try:
        blocks, error = fetched(row["records"] or b""), code(row)
    except CorruptBatchError as damage:
        # Said of the partition, so that the others of the answer can be read.
        _LOGGER.warning("fetch of %s: %s", partition, damage)
        blocks, error = [], ErrorCode.CORRUPT_MESSAGE
    return FetchedPartition(
        error,
        row["high_watermark"],
        row["log_start_offset"],
        blocks,
        row["last_stable_offset"],
        tuple(
            AbortedTransaction(aborted["producer_id"], aborted["first_offset"])
            for aborted in row["aborted_transactions"] or ()
        ),
    )


def _fetch_asked(message: Fields, version: int, client_id: str) -> Asked[Fetch]:
    rows = dict(each_partition(message["topics"], "topic", "partitions", "partition"))
    positions = {partition: row["fetch_offset"] for partition, row in rows.items()}
    limits = {row["partition_max_bytes"] for row in rows.values()}
    return one(
        Fetch(
            positions,
            message["max_wait_ms"],
            isolation_level=message["isolation_level"],
            max_bytes=message["max_bytes"],
            # Each has its own in Kafka's words; see the answer.
            partition_max_bytes=max(limits, default=message["max_bytes"]),
        )
    )


def _fetch_answered(incoming: Incoming[Fetch], responses: Sequence[FetchResponse], serving: Serving) -> Fields:
    (response,) = responses
    message = incoming.message
    limits = {
        partition: row["partition_max_bytes"]
        for partition, row in each_partition(message["topics"], "topic", "partitions", "partition")
    }
    is_committed_only = message["isolation_level"] == READ_COMMITTED
    room, topics = message["max_bytes"], []
    is_first = True
    for topic, partitions in by_topic(response.partitions).items():
        rows = []
        for number, found in partitions:
            limit = min(room, limits.get(TopicPartition(topic, number), room))
            # The first batch of all is sent whatever its size, or a reader would never get past it (KIP-74).
            chunks, size = _within(found.blocks, limit, is_first=is_first)
            is_first = is_first and not chunks
            room -= size
            rows.append(_fetched_row(number, found, chunks, is_committed_only=is_committed_only))
        topics.append({"topic": topic, "partitions": rows})
    return {"session_id": 0, "responses": topics}


def _within(blocks: Sequence[Block], limit: int, *, is_first: bool) -> tuple[list[bytes], int]:
    """Return the bytes of as many blocks as fit."""
    chunks: list[bytes] = []
    size = 0
    for block in blocks:
        if not len(block) and not isinstance(block, EncodedBlock):
            continue
        data = encoded(block)
        if size + len(data) > limit and not (is_first and not chunks):
            break
        chunks.append(data)
        size += len(data)
    return chunks, size


def _fetched_row(number: int, found: FetchedPartition, chunks: list[bytes], *, is_committed_only: bool) -> Fields:
    aborted = [{"producer_id": one.producer_id, "first_offset": one.first_offset} for one in found.aborted]
    return {
        "partition_index": number,
        "error_code": found.error,
        "high_watermark": found.high_watermark,
        "last_stable_offset": found.last_stable_offset,
        "log_start_offset": found.log_start_offset,
        "aborted_transactions": aborted if is_committed_only else None,
        "records": chunks,
    }


FETCH = Translation(
    tables.FETCH.key,
    Fetch,
    FetchResponse,
    # From version 13 on topics go by ids, which our messages do not have.
    (tables.FETCH.versions[0], 12),
    _fetch,
    _fetch_answer,
    _fetch_asked,
    _fetch_answered,
)


# --- ListOffsets --------------------------------------------------------------------------


def _list_offsets(request: ListOffsets, version: int) -> Fields:
    return {
        "isolation_level": request.isolation_level,
        "topics": [
            {
                "name": topic,
                "partitions": [{"partition_index": number, "timestamp": time} for number, time in partitions],
            }
            for topic, partitions in by_topic(request.timestamps).items()
        ],
    }


def _list_offsets_answer(message: Fields, version: int, request: ListOffsets) -> ListOffsetsResponse:
    rows = each_partition(message["topics"], "name", "partitions", "partition_index")
    return ListOffsetsResponse({partition: (code(row), row["timestamp"], row["offset"]) for partition, row in rows})


def _list_offsets_asked(message: Fields, version: int, client_id: str) -> Asked[ListOffsets]:
    rows = each_partition(message["topics"], "name", "partitions", "partition_index")
    return one(ListOffsets({partition: row["timestamp"] for partition, row in rows}, message["isolation_level"]))


def _list_offsets_answered(
    incoming: Incoming[ListOffsets], responses: Sequence[ListOffsetsResponse], serving: Serving
) -> Fields:
    (response,) = responses
    return {
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "error_code": error,
                        "timestamp": time,
                        "offset": offset,
                        # There is one leader, who never changed.
                        "leader_epoch": 0 if offset >= 0 and incoming.version >= _EPOCHS_SINCE else -1,
                    }
                    for number, (error, time, offset) in partitions
                ],
            }
            for topic, partitions in by_topic(response.partitions).items()
        ]
    }


LIST_OFFSETS = Translation(
    tables.LIST_OFFSETS.key,
    ListOffsets,
    ListOffsetsResponse,
    tables.LIST_OFFSETS.versions,
    _list_offsets,
    _list_offsets_answer,
    _list_offsets_asked,
    _list_offsets_answered,
)


# --- DeleteRecords ------------------------------------------------------------------------


def _delete_records(request: DeleteRecords, version: int) -> Fields:
    return {
        "timeout_ms": REQUEST_TIMEOUT_MS,
        "topics": [
            {
                "name": topic,
                "partitions": [{"partition_index": number, "offset": offset} for number, offset in partitions],
            }
            for topic, partitions in by_topic(request.offsets).items()
        ],
    }


def _delete_records_answer(message: Fields, version: int, request: DeleteRecords) -> DeleteRecordsResponse:
    rows = each_partition(message["topics"], "name", "partitions", "partition_index")
    return DeleteRecordsResponse({partition: (code(row), row["low_watermark"]) for partition, row in rows})


def _delete_records_asked(message: Fields, version: int, client_id: str) -> Asked[DeleteRecords]:
    rows = each_partition(message["topics"], "name", "partitions", "partition_index")
    return one(DeleteRecords({partition: row["offset"] for partition, row in rows}))


def _delete_records_answered(
    incoming: Incoming[DeleteRecords], responses: Sequence[DeleteRecordsResponse], serving: Serving
) -> Fields:
    (response,) = responses
    return {
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": number, "error_code": error, "low_watermark": start}
                    for number, (error, start) in partitions
                ],
            }
            for topic, partitions in by_topic(response.partitions).items()
        ]
    }


DELETE_RECORDS = Translation(
    tables.DELETE_RECORDS.key,
    DeleteRecords,
    DeleteRecordsResponse,
    tables.DELETE_RECORDS.versions,
    _delete_records,
    _delete_records_answer,
    _delete_records_asked,
    _delete_records_answered,
)

TRANSLATIONS = (PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS)
