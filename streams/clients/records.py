"""Public value types of the consumer and the producer.

Of the other packages, this module imports only ``core``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from streams.core.blocks.records import Block, ConsumerRecord, Headers, TopicPartition
from streams.core.errors import SerializationError
from streams.core.topic import Topic


class OffsetAndTimestamp(NamedTuple):
    """The offset of the first record at or after a given time, and the timestamp of that record."""

    offset: int
    timestamp_ms: int


class GroupMetadata(NamedTuple):
    """The group membership of a consumer, needed to commit its offsets in a transaction (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class BadRecord(NamedTuple):
    """The offset of the record at which decoding stopped, and the error."""

    offset: int
    error: SerializationError


def decode_block(
    partition: TopicPartition, block: Block, topic: Topic[Any, Any] | None
) -> tuple[list[ConsumerRecord[Any, Any]], BadRecord | None]:
    """Return the records before the first that cannot be decoded, and a ``BadRecord`` for that one, or None."""
    keys: Sequence[Any] = block.keys
    values: Sequence[Any] = block.values
    bad: BadRecord | None = None
    if topic is not None:
        is_readable = True
        try:
            keys = topic.key_serde.deserialize_all(block.keys)
            values = topic.value_serde.deserialize_all(block.values)
        except SerializationError:
            is_readable = False
        if not is_readable:
            # Decode one by one to find the failing record.  This is outside the exception handler, because the error
            # caught there may concern another record.
            keys, values, bad = _decode_one_by_one(partition, block, topic)
    headers: Sequence[Headers] = block.headers or [()] * len(block)
    name, number = partition
    records = [
        ConsumerRecord(name, number, *row)
        for row in zip(block.offsets, block.timestamps, keys, values, headers, strict=False)
    ]
    return records, bad


def _decode_one_by_one(
    partition: TopicPartition, block: Block, topic: Topic[Any, Any]
) -> tuple[list[Any], list[Any], BadRecord | None]:
    keys: list[Any] = []
    values: list[Any] = []
    for offset, raw_key, raw_value in zip(block.offsets, block.keys, block.values, strict=True):
        try:
            key = topic.key_serde.deserialize(raw_key)
            value = topic.value_serde.deserialize(raw_value)
        except SerializationError as error:
            wrapped = SerializationError(f"{partition} at {offset}: {error}; seek to {offset + 1} to skip it")
            wrapped.__cause__ = error
            return keys, values, BadRecord(offset, wrapped)
        keys.append(key)
        values.append(value)
    return keys, values, None
