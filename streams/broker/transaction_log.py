"""Records of the ``__transaction_state`` log, in Kafka's format (TransactionLogKey, TransactionLogValue v0)."""

from enum import Enum

from attrs import frozen

from streams.core.blocks.records import TopicPartition
from streams.group.assignment.wire import Reader, Writer

_VERSION = 0
#: Key version of the record for producer IDs, which Kafka does not have; other readers skip unknown versions.
_PRODUCER_IDS_VERSION = 1_000


class TransactionState(Enum):
    """Kafka's transaction states, in the order of the numbers that represent them in the log."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_STATES = tuple(TransactionState)


@frozen
class TransactionMetadata:
    """The state of one transactional ID; immutable, so that a failed write changes nothing."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    started_ms: int = -1
    updated_ms: int = -1
    #: The epoch before the last bump, which the producer may not have heard of (KIP-360); otherwise -1.
    last_epoch: int = -1
    #: The producer ID of the transaction that is ending, if the producer goes on with another one; otherwise -1.
    previous_producer_id: int = -1


def transaction_key(transactional_id: str) -> bytes:
    """Return the record key for the state of a transactional ID."""
    return Writer().int16(_VERSION).string(transactional_id).finish()


def transaction_value(transaction: TransactionMetadata) -> bytes:
    """Return the record value for the state of a transactional ID."""
    writer = (
        Writer().int16(_VERSION).int64(transaction.producer_id).int16(transaction.epoch).int32(transaction.timeout_ms)
    )
    writer.int8(_STATES.index(transaction.state)).partitions(transaction.partitions)
    writer.int64(transaction.updated_ms).int64(transaction.started_ms)
    # Readers of version 0 ignore what follows.  Kafka has the previous ID in a tagged field of version 1, and forgets
    # the last epoch: there, a producer that asks again after a restart is fenced.
    return writer.int64(transaction.previous_producer_id).int16(transaction.last_epoch).finish()


def read_transaction(key: bytes, value: bytes | None) -> tuple[str, TransactionMetadata | None] | None:
    """Decode a record with the state of a transactional ID.

    Returns the ID and its state, which is None if the ID was deleted; or None if the record has another key version.
    """
    reader = Reader(key)
    if reader.int16() != _VERSION:
        return None
    transactional_id = reader.string()
    if value is None:
        return transactional_id, None
    reader = Reader(value)
    reader.int16()
    producer_id = reader.int64()
    epoch = reader.int16()
    timeout_ms = reader.int32()
    state = _STATES[reader.int8()]
    partitions = reader.partitions()
    updated_ms = reader.int64()
    started_ms = reader.int64()
    previous_producer_id = -1 if reader.is_at_end else reader.int64()
    last_epoch = -1 if reader.is_at_end else reader.int16()
    return transactional_id, TransactionMetadata(
        transactional_id,
        producer_id,
        epoch,
        timeout_ms,
        state,
        partitions,
        started_ms,
        updated_ms,
        last_epoch,
        previous_producer_id,
    )


def producer_ids_key() -> bytes:
    """Return the key of the record that reserves producer IDs."""
    return Writer().int16(_PRODUCER_IDS_VERSION).finish()


def producer_ids_value(below: int) -> bytes:
    """Return the value of the record that reserves all producer IDs less than ``below``."""
    return Writer().int64(below).finish()


def read_producer_ids(key: bytes, value: bytes | None) -> int:
    """Return the lowest producer ID that is not reserved, or 0 if the record does not reserve producer IDs."""
    if value is None or Reader(key).int16() != _PRODUCER_IDS_VERSION:
        return 0
    return Reader(value).int64()
