"""From what a broker has acquired for a share consumer to the records that a poll returns.

Pure: no requests are sent here.  Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import define, frozen

from streams.clients.share_records import GAP, AcknowledgeType, Acquisition, ShareOrigin, ShareRecord
from streams.core.errors import BrokerError, SerializationError, StreamsError, UnreadableBatchError
from streams.core.records import Block, Headers
from streams.core.topic import Topic
from streams.protocol.share_group_messages import AcquiredRecords
from streams.protocol.wire import EncodedBlock


@frozen(eq=False)
class Received:
    """Records of one partition in a response: those in ``ranges`` are acquired, at least until ``locked_until_ms``."""

    origin: ShareOrigin
    blocks: Sequence[Block]
    ranges: Sequence[AcquiredRecords]
    locked_until_ms: int


@define(eq=False)
class DecodedRecords:
    """The readable records of a response, and the unreadable ones with their error, or None."""

    records: list[ShareRecord[Any, Any]]
    acquisition: Acquisition
    unreadable: Acquisition
    error: StreamsError | None = None


def deliver(received: Received, topic: Topic[Any, Any] | None) -> DecodedRecords:
    """Decode acquired records; ``topic`` has the types, or is None for bytes.

    Acquired offsets without a record are gaps.  A record that cannot be decoded is released, unless the application
    decides otherwise; what is in a damaged batch is rejected.
    """
    origin = received.origin
    delivery = DecodedRecords([], Acquisition(origin), Acquisition(origin))
    counts = {
        offset: acquired.delivery_count
        for acquired in received.ranges
        for offset in range(acquired.first_offset, acquired.last_offset + 1)
    }
    for block in received.blocks:
        if block.producer is not None and block.producer.is_control:
            continue
        try:
            offsets: Sequence[int] = block.offsets
            _ = block.values
        except BrokerError as error:
            _reject(delivery, block, counts, error)
            continue
        for row in _rows(block, offsets, topic):
            count = counts.pop(row[0], None)
            if count is None:
                continue
            offset, timestamp_ms, key, value, headers, failure = row
            if failure is None:
                name, number = origin.partition
                record = ShareRecord(name, number, offset, timestamp_ms, key, value, headers, count)
                delivery.records.append(record)
                delivery.acquisition.delivered[offset] = record
            else:
                delivery.unreadable.unreadable.add(offset)
                delivery.unreadable.types[offset] = AcknowledgeType.RELEASE
                if delivery.error is None:
                    delivery.error = _undecodable(origin, offset, count, failure)
    delivery.acquisition.types.update(dict.fromkeys(counts, GAP))
    return delivery


def _rows(
    block: Block, offsets: Sequence[int], topic: Topic[Any, Any] | None
) -> Iterator[tuple[int, int, Any, Any, Headers, SerializationError | None]]:
    headers: Sequence[Headers] = block.headers or [()] * len(block)
    keys: Sequence[Any] = block.keys
    values: Sequence[Any] = block.values
    if topic is not None:
        try:
            keys, values = topic.key_serde.deserialize_all(block.keys), topic.value_serde.deserialize_all(block.values)
        except SerializationError:
            yield from _rows_one_by_one(block, offsets, headers, topic)
            return
    for offset, timestamp_ms, key, value, of_record in zip(
        offsets, block.timestamps, keys, values, headers, strict=True
    ):
        yield offset, timestamp_ms, key, value, of_record, None


def _rows_one_by_one(
    block: Block, offsets: Sequence[int], headers: Sequence[Headers], topic: Topic[Any, Any]
) -> Iterator[tuple[int, int, Any, Any, Headers, SerializationError | None]]:
    rows = zip(offsets, block.timestamps, block.keys, block.values, headers, strict=True)
    for offset, timestamp_ms, raw_key, raw_value, of_record in rows:
        try:
            key, value = topic.key_serde.deserialize(raw_key), topic.value_serde.deserialize(raw_value)
        except SerializationError as error:
            yield offset, timestamp_ms, None, None, of_record, error
        else:
            yield offset, timestamp_ms, key, value, of_record, None


def _undecodable(origin: ShareOrigin, offset: int, count: int, failure: SerializationError) -> SerializationError:
    error = SerializationError(
        f"{origin.partition} at {offset}, delivery {count}: {failure}.  The next poll or commit releases the record, "
        "so that it is delivered again until the group's limit of deliveries; to be rid of it at once, call "
        f"acknowledge_offset({origin.partition!r}, {offset}, AcknowledgeType.REJECT)"
    )
    error.__cause__ = failure
    return error


def _reject(delivery: DecodedRecords, block: Block, counts: dict[int, int], failure: BrokerError) -> None:
    """Reject the acquired records of a damaged batch, which no consumer can read."""
    assert isinstance(block, EncodedBlock)
    first, end = block.header.base_offset, block.header.next_offset
    partition = delivery.acquisition.origin.partition
    for offset in range(first, end):
        if counts.pop(offset, None) is not None:
            delivery.unreadable.unreadable.add(offset)
            delivery.unreadable.types[offset] = AcknowledgeType.REJECT
    delivery.error = delivery.error or UnreadableBatchError(
        f"{partition}: the records from offset {first} up to {end - 1} cannot be read: {failure}.  The next poll or "
        "commit rejects them, so that they are not delivered again",
        code=failure.code,
        partition=partition,
        offset=first,
        next_offset=end,
    )
