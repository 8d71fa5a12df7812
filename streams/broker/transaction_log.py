"""Records of the ``__transaction_state`` log, in Kafka's format (TransactionLogKey, TransactionLogValue v0)."""

from itertools import groupby
from typing import Any, Protocol

from streams.core.records import TopicPartition
from streams.group.wire import Reader, Writer

_VERSION = 0
#: Key version of our own record for producer IDs; other readers skip unknown versions.
_PRODUCER_IDS_VERSION = 1_000
#: Transaction states by the number that represents them in the log.
_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


class _State(Protocol):
    @property
    def value(self) -> str: ...


class _Metadata(Protocol):
    """The stored state of a transactional ID."""

    @property
    def producer_id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def timeout_ms(self) -> int: ...
    @property
    def state(self) -> _State: ...
    @property
    def partitions(self) -> tuple[TopicPartition, ...]: ...
    @property
    def started_ms(self) -> int: ...
    @property
    def updated_ms(self) -> int: ...


def transaction_key(transactional_id: str) -> bytes:
    """Return the record key for a transactional ID."""
    return Writer().int16(_VERSION).string(transactional_id).finish()


def transaction_value(known: _Metadata) -> bytes:
    """Return the record value with the producer identity, state and partitions of a transaction."""
    writer = Writer().int16(_VERSION).int64(known.producer_id).int16(known.epoch).int32(known.timeout_ms)
    writer.int8(_STATES.index(known.state.value))
    by_topic = [
        (topic, [partition for _, partition in group])
        for topic, group in groupby(sorted(known.partitions), key=lambda partition: partition.topic)
    ]
    writer.int32(len(by_topic))
    for topic, numbers in by_topic:
        writer.string(topic).int32s(numbers)
    return writer.int64(known.updated_ms).int64(known.started_ms).finish()


def read_transaction(key: bytes, value: bytes | None) -> tuple[str, dict[str, Any] | None] | None:
    """Return a transactional ID and its fields (None = deleted), or None for other key versions."""
    reader = Reader(key)
    if reader.int16() != _VERSION:
        return None
    transactional_id = reader.string()
    if value is None:
        return transactional_id, None
    reader = Reader(value)
    reader.int16()
    fields: dict[str, Any] = {
        "producer_id": reader.int64(),
        "epoch": reader.int16(),
        "timeout_ms": reader.int32(),
        "state": _STATES[reader.int8()],
    }
    partitions: list[TopicPartition] = []
    for _ in range(reader.int32()):
        topic = reader.string()
        partitions += [TopicPartition(topic, number) for number in reader.int32s()]
    fields["partitions"] = tuple(partitions)
    fields["updated_ms"], fields["started_ms"] = reader.int64(), reader.int64()
    return transactional_id, fields


def producer_ids_key() -> bytes:
    """Return the key of the record for producer IDs."""
    return Writer().int16(_PRODUCER_IDS_VERSION).finish()


def producer_ids_value(below: int) -> bytes:
    """Return the record value stating that all producer IDs below this one may be assigned."""
    return Writer().int64(below).finish()


def read_producer_ids(key: bytes, value: bytes | None) -> int:
    """Return the lowest unassigned producer ID, or 0 for other records."""
    if value is None or Reader(key).int16() != _PRODUCER_IDS_VERSION:
        return 0
    return Reader(value).int64()
