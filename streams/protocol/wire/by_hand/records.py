"""Produce and Fetch: their fields by version, and their translations.

Record batches stay encoded.  Some API versions limit the content of batches, such as the compression codec.
"""

import logging
from collections.abc import Sequence
from typing import Final

from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import BrokerError
from streams.protocol.batch import COMPRESSION_MASK, LOG_APPEND_TIME, CorruptBatchError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import (
    LEADER,
    NODES,
    READ_COMMITTED,
    REQUEST_TIMEOUT_MS,
    AbortedTransaction,
    Fetch,
    FetchedPartition,
    FetchResponse,
    Produce,
    Produced,
    ProduceResponse,
)
from streams.protocol.request import ClientInformation
from streams.protocol.schema import (
    ERROR,
    INDEX,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    Api,
    Field,
    Fields,
    array,
    fields_of,
    struct,
    topic_fields,
)
from streams.protocol.wire.derived import reader, writer
from streams.protocol.wire.encoded import EncodedBlock, encoded, fetched, produced
from streams.protocol.wire.errors import EncodingError
from streams.protocol.wire.translation import (
    Incoming,
    Refusal,
    RequestParts,
    Serving,
    Translation,
    code,
    each_partition,
    limited,
    values_by_topic,
)

_LOGGER = logging.getLogger(__name__)

_ZSTD: Final = 4
#: First version in which the broker adds the partitions to the transaction of the records (KIP-890).
_ADDED_SINCE: Final = 12
# First versions whose clients support zstd (KIP-110).
_ZSTD_PRODUCED_SINCE: Final = 7
_ZSTD_FETCHED_SINCE: Final = 10
#: First version of Fetch that names topics by their IDs (KIP-516).
_IDS_SINCE: Final = 13
_ACKS: Final = (-1, 0, 1)
#: Position of the low byte of the batch attributes.
_ATTRIBUTES_AT: Final = 22


# --- Produce ------------------------------------------------------------------------------


_PRODUCE: Final[Api] = Produce.api.with_fields(
    (
        Field("transactional_id", STRING, nullable=3, default=None),
        Field("acks", INT16),
        Field("timeout_ms", INT32),
        array(
            "topic_data",
            Field("name", STRING),
            array("partition_data", Field("index", INT32), Field("records", RECORDS, nullable=0)),
        ),
    ),
    fields_of(ProduceResponse),
)


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
            for topic, partitions in values_by_topic(request.blocks).items()
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


def _produce_request(message: Fields, version: int, client: ClientInformation) -> RequestParts[Produce]:
    blocks: dict[TopicPartition, Sequence[Block]] = {}
    refused: dict[TopicPartition, Refusal] = {}
    acks = message["acks"]
    for topic in message["topic_data"]:
        name = topic["name"]
        for row in topic["partition_data"]:
            partition = TopicPartition(name, row["index"])
            try:
                if acks not in _ACKS:
                    raise BrokerError(f"acks {acks}: use -1, 0 or 1", code=ErrorCode.INVALID_REQUIRED_ACKS)
                blocks[partition] = (_checked(produced(row["records"] or b""), version),)
            except BrokerError as error:
                refused[partition] = (ErrorCode(error.code), str(error))
    transactional_id = message["transactional_id"]
    is_added = transactional_id is not None and version >= _ADDED_SINCE
    requests = (Produce(blocks, acks, transactional_id, is_added),) if blocks else ()
    order: tuple[TopicPartition, ...] = ()
    if refused:
        rows = each_partition(message["topic_data"], "name", "partition_data", "index")
        order = tuple(dict.fromkeys(partition for partition, _ in rows))
    return RequestParts(requests, refused, order, acks != 0)


def _checked(block: EncodedBlock, version: int) -> EncodedBlock:
    header = block.header
    codec = header.attributes & COMPRESSION_MASK
    if codec > _ZSTD or (codec == _ZSTD and version < _ZSTD_PRODUCED_SINCE):
        raise BrokerError(
            f"a batch with compression {header.compression} in Produce version {version}: "
            f"none, gzip, snappy and lz4 may be used, zstd from version {_ZSTD_PRODUCED_SINCE} on",
            code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
    if header.attributes & LOG_APPEND_TIME:
        raise BrokerError(
            "a batch with log append time: only message.timestamp.type of the topic can set it",
            code=ErrorCode.INVALID_TIMESTAMP,
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise BrokerError(
            f"a batch of producer {header.producer_id} without epoch or sequence", code=ErrorCode.INVALID_RECORD
        )
    return block


def _produce_reply(incoming: Incoming[Produce], responses: Sequence[ProduceResponse], serving: Serving) -> Fields:
    results = responses[0].partitions if responses else {}
    if incoming.refused:
        refused = {
            partition: Produced(error, message=reason) for partition, (error, reason) in incoming.refused.items()
        }
        results = {partition: refused.get(partition) or results[partition] for partition in incoming.order}
    return writer(ProduceResponse)(ProduceResponse(results))


_limit_of_transactions = limited(_ADDED_SINCE, lambda request: request.adds_partitions)


def _produce_limit(request: Produce, version: int) -> int:
    return version if request.transactional_id is None else _limit_of_transactions(request, version)


PRODUCE = Translation(
    _PRODUCE,
    _produce,
    lambda message, version, request: reader(ProduceResponse)(message),
    _produce_request,
    _produce_reply,
    limit=_produce_limit,
)


# --- Fetch --------------------------------------------------------------------------------


_END: Final = (Field("epoch", INT32, default=-1), Field("end_offset", INT64, default=-1))
_FETCH: Final[Api] = Fetch.api.with_fields(
    fields_of(Fetch),
    (
        Field("error_code", INT16, since=7, default=0, is_ignorable=True),
        Field("session_id", INT32, since=7, default=0),
        array(
            "responses",
            *topic_fields("topic", _IDS_SINCE),
            array(
                "partitions",
                INDEX,
                ERROR,
                Field("high_watermark", INT64),
                Field("last_stable_offset", INT64, default=-1),
                Field("log_start_offset", INT64, since=5, default=-1, is_ignorable=True),
                struct("diverging_epoch", *_END, since=12, tag=0),
                struct("current_leader", *LEADER, since=12, tag=1),
                struct("snapshot_id", *reversed(_END), since=12, tag=2),
                array(
                    "aborted_transactions",
                    Field("producer_id", INT64),
                    Field("first_offset", INT64),
                    nullable=4,
                    default=None,
                ),
                Field("preferred_read_replica", INT32, since=11, default=-1),
                Field("records", RECORDS, nullable=0),
            ),
        ),
        Field("node_endpoints", NODES, since=16, tag=0, default=(), is_ignorable=True),
    ),
)


def _fetch(request: Fetch, version: int) -> Fields:
    fields = writer(Fetch)(request)
    most = request.partition_max_bytes
    limits = request.limits
    name_field = _name_field(version)
    if request.by_id:
        for topic in (*fields["topics"], *fields["forgotten_topics_data"]):
            topic[name_field] = topic.pop("topic")
    for topic in fields["topics"]:
        name = topic[name_field]
        for row in topic["partitions"]:
            row["partition_max_bytes"] = limits.get(TopicPartition(name, row["partition"]), most) if limits else most
    return fields


def _fetch_response(message: Fields, version: int, request: Fetch) -> FetchResponse:
    rows = each_partition(message["responses"], _name_field(version), "partitions", "partition_index")
    partitions = {partition: _fetched(partition, row) for partition, row in rows}
    return FetchResponse(partitions, code(message), message["session_id"])


def _fetched(partition: TopicPartition, row: Fields) -> FetchedPartition:
    try:
        blocks = fetched(row["records"] or b"")
        error = code(row)
    except CorruptBatchError as damage:
        # Report the damage as an error of this partition, so that the others can be read.
        _LOGGER.warning("fetch of %s: %s", partition, damage)
        blocks = []
        error = ErrorCode.CORRUPT_MESSAGE
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
        preferred_read_replica=row["preferred_read_replica"],
    )


def _fetch_request(message: Fields, version: int, client: ClientInformation) -> RequestParts[Fetch]:
    positions: dict[TopicPartition, int] = {}
    limits: dict[TopicPartition, int] = {}
    name_field = _name_field(version)
    for topic in message["topics"]:
        name = topic[name_field]
        for row in topic["partitions"]:
            partition = TopicPartition(name, row["partition"])
            positions[partition] = row["fetch_offset"]
            limits[partition] = row["partition_max_bytes"]
    request = Fetch(
        positions,
        message["max_wait_ms"],
        isolation_level=message["isolation_level"],
        max_bytes=message["max_bytes"],
        min_bytes=message["min_bytes"],
        limits=limits,
        as_bytes=True,
        by_id=version >= _IDS_SINCE,
        rack_id=message["rack_id"],
        session_id=message["session_id"],
        session_epoch=message["session_epoch"],
        forgotten=[
            TopicPartition(topic[name_field], number)
            for topic in message["forgotten_topics_data"]
            for number in topic["partitions"]
        ],
    )
    return RequestParts((request,))


def _fetch_reply(incoming: Incoming[Fetch], responses: Sequence[FetchResponse], serving: Serving) -> Fields:
    (response,) = responses
    is_committed_only = incoming.requests[0].isolation_level == READ_COMMITTED
    topics: dict[str, list[Fields]] = {}
    for (name, number), result in response.partitions.items():
        if incoming.version < _ZSTD_FETCHED_SINCE and any(
            chunk[_ATTRIBUTES_AT] & COMPRESSION_MASK == _ZSTD for chunk in result.chunks
        ):
            result = FetchedPartition(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, result.high_watermark, result.log_start_offset
            )
        aborted: list[Fields] | None = None
        if is_committed_only:
            aborted = [{"producer_id": one.producer_id, "first_offset": one.first_offset} for one in result.aborted]
        row = {
            "partition_index": number,
            "error_code": result.error,
            "high_watermark": result.high_watermark,
            "last_stable_offset": result.last_stable_offset,
            "log_start_offset": result.log_start_offset,
            "aborted_transactions": aborted,
            "records": result.chunks,
        }
        topics.setdefault(name, []).append(row)
    return {
        "error_code": response.error,
        "session_id": response.session_id,
        "responses": [{_name_field(incoming.version): name, "partitions": rows} for name, rows in topics.items()],
    }


def _name_field(version: int) -> str:
    """Return the field that names a topic."""
    return "topic_id" if version >= _IDS_SINCE else "topic"


def _fetch_limit(request: Fetch, version: int) -> int:
    return version if request.by_id else min(version, _IDS_SINCE - 1)


FETCH = Translation(_FETCH, _fetch, _fetch_response, _fetch_request, _fetch_reply, limit=_fetch_limit)

TRANSLATIONS = (PRODUCE, FETCH)
