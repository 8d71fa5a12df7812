"""Produce and Fetch, the hot requests: batches go from the socket to the log and back as bytes.

Between ``requests`` and the machine; what they mean in Kafka's words is said in ``protocol.wire.mapping``,
which these two pass by: it would make blocks of what is to leave as bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from streams.broker.limits import FETCH_MIN_BYTES
from streams.broker.reads import EncodedFetch, EncodedFetched, EncodedPartition
from streams.broker.service import Broker
from streams.core.errors import BrokerError
from streams.core.records import Block, TopicPartition
from streams.protocol.batch import COMPRESSION_MASK, LOG_APPEND_TIME
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import READ_COMMITTED, Produce, ProduceResponse, Response
from streams.protocol.wire import EncodedBlock, Fields, produced

#: Fetch session epoch of who wants none (KIP-227).
NO_SESSION: Final = -1
_ZSTD: Final = 4
# First versions whose clients know zstd (KIP-110).
_ZSTD_PRODUCED_SINCE: Final = 7
_ZSTD_FETCHED_SINCE: Final = 10
_ACKS: Final = (-1, 0, 1)


# --- Produce ------------------------------------------------------------------------------


def produce(machine: Broker, now_ms: int, message: Fields, version: int) -> Fields:
    """Append what a producer has sent; return the answer, which never waits."""
    blocks: dict[TopicPartition, Sequence[Block]] = {}
    results: dict[TopicPartition, tuple[ErrorCode, int, str]] = {}
    acks = message["acks"]
    for topic in message["topic_data"]:
        name = topic["name"]
        for row in topic["partition_data"]:
            partition = TopicPartition(name, row["index"])
            try:
                if acks not in _ACKS:
                    raise BrokerError(f"acks {acks}: use -1, 0 or 1", code=ErrorCode.INVALID_REQUIRED_ACKS)
                blocks[partition] = (_batch(row["records"] or b"", version),)
            except BrokerError as error:
                results[partition] = (ErrorCode(error.code), -1, str(error))
    if blocks:
        responses: list[Response] = []
        machine.handle(Produce(blocks, acks, message["transactional_id"]), now_ms, responses.append)
        (response,) = responses
        assert isinstance(response, ProduceResponse)
        results.update(response.partitions)
    return {
        "responses": [
            {
                "name": topic["name"],
                "partition_responses": [
                    _produced_row(
                        machine, TopicPartition(topic["name"], row["index"]), results, machine.wall_ms(now_ms)
                    )
                    for row in topic["partition_data"]
                ],
            }
            for topic in message["topic_data"]
        ]
    }


def has_failed(answer: Fields) -> bool:
    """Whether any partition of an answer to Produce is refused."""
    return any(row["error_code"] for topic in answer["responses"] for row in topic["partition_responses"])


def _batch(data: bytes, version: int) -> EncodedBlock:
    block = produced(data)
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
            "a batch that says that the log has given it its time: only the topic's settings can say so",
            code=ErrorCode.INVALID_TIMESTAMP,
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise BrokerError(
            f"a batch of producer {header.producer_id} without epoch or sequence", code=ErrorCode.INVALID_RECORD
        )
    return block


def _produced_row(
    machine: Broker,
    partition: TopicPartition,
    results: Mapping[TopicPartition, tuple[ErrorCode, int, str]],
    wall_ms: int,
) -> Fields:
    error, offset, reason = results[partition]
    log = machine.topics.logs.get(partition)
    is_stamped = log is not None and not error and log.config.timestamp_type == "LogAppendTime"
    return {
        "index": partition.partition,
        "error_code": error,
        "base_offset": offset,
        "log_append_time_ms": wall_ms if is_stamped else -1,
        "log_start_offset": -1 if log is None else log.start_offset,
        "error_message": reason or None,
    }


# --- Fetch --------------------------------------------------------------------------------


def fetch_of(message: Fields, most_bytes: int) -> EncodedFetch:
    """Return what a consumer asks for, but no more than ``most_bytes``."""
    positions: dict[TopicPartition, int] = {}
    limits: dict[TopicPartition, int] = {}
    for topic in message["topics"]:
        name = topic["topic"]
        for row in topic["partitions"]:
            partition = TopicPartition(name, row["partition"])
            positions[partition] = row["fetch_offset"]
            limits[partition] = row["partition_max_bytes"]
    return EncodedFetch(
        positions,
        limits,
        message["max_wait_ms"],
        min(message["min_bytes"], FETCH_MIN_BYTES, most_bytes),
        min(message["max_bytes"], most_bytes),
        message["isolation_level"],
    )


def names_session(message: Fields) -> bool:
    """Whether a fetch goes on with a session, of which we have none (KIP-227)."""
    return bool(message["session_id"]) and message["session_epoch"] != NO_SESSION


def no_session() -> Fields:
    """Return the answer to a fetch with a session: the consumer begins without one."""
    return {"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "session_id": 0, "responses": []}


def fetch_answer(response: EncodedFetched, isolation_level: int, version: int) -> Fields:
    """Return the answer with what was read."""
    is_committed_only = isolation_level == READ_COMMITTED
    topics: dict[str, list[Fields]] = {}
    for (name, number), found in response.partitions.items():
        if version < _ZSTD_FETCHED_SINCE and any(_is_zstd(chunk) for chunk in found.chunks):
            found = EncodedPartition(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, found.high_watermark, found.log_start_offset
            )
        aborted: list[Fields] | None = None
        if is_committed_only:
            aborted = [{"producer_id": one.producer_id, "first_offset": one.first_offset} for one in found.aborted]
        row = {
            "partition_index": number,
            "error_code": found.error,
            "high_watermark": found.high_watermark,
            "last_stable_offset": found.last_stable_offset,
            "log_start_offset": found.log_start_offset,
            "aborted_transactions": aborted,
            "records": found.chunks,
        }
        topics.setdefault(name, []).append(row)
    return {"session_id": 0, "responses": [{"topic": name, "partitions": rows} for name, rows in topics.items()]}


def _is_zstd(chunk: bytes) -> bool:
    """Whether the first batch of a chunk is compressed with zstd."""
    return chunk[22] & COMPRESSION_MASK == _ZSTD
