"""Messages of foreign-key joins: the formats and partitions of subscriptions and responses.

The formats are private to internal topics and the subscription store.  Sizes in bytes are in parentheses.
A subscription has a mark (3), instruction (1), partition (4), flag and hash of the left value, and the serialized
left key.  A response has a mark (3), partition (4), flag and hash, and the serialized right value.  As in Kafka
Streams, a store key has the length (4) of the serialized foreign key, the foreign key and the left key.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from streams.core.errors import SerializationError
from streams.core.marks import Format, marked
from streams.core.serdes import BYTES, Serde
from streams.dsl.operators.portable import portable
from streams.state import TIMESTAMPED_KEY_VALUE, StoreSpec

HASH_BYTES = 16

_NO_HASH = b"\x00" * (HASH_BYTES + 1)
_HASH = b"\x01"
_SUBSCRIPTION = Struct(">bi")
_RESPONSE = Struct(">i")
_LENGTH = Struct(">i")

#: In Kafka Streams both begin with a version byte, 0 or 1, and a hash flag (SubscriptionWrapperSerde).
_REFERENCE_VERSIONS = (0x00, 0x01, 0x80, 0x81)


def _is_versioned(data: bytes) -> bool:
    return len(data) > 0 and data[0] in _REFERENCE_VERSIONS


SUBSCRIPTION = Format("subscription of a foreign-key join", "F", 1, "SubscriptionWrapper", _is_versioned)
RESPONSE = Format("response of a foreign-key join", "R", 1, "SubscriptionResponseWrapper", _is_versioned)


class Instruction(IntEnum):
    """The instruction of a subscription (Kafka Streams' ``SubscriptionWrapper.Instruction``)."""

    #: Delete the subscription, and send no response.
    DELETE = 0
    #: Delete the subscription, and respond with None.
    DELETE_AND_PROPAGATE = 1
    #: Store the subscription, and respond with the right row or None.
    PROPAGATE_NULL_IF_NONE = 2
    #: Store the subscription, and respond only if there is a right row.
    PROPAGATE_IF_ANY = 3


class ForeignKeySubscription(NamedTuple):
    """The subscription of a left row to a right row."""

    value_hash: bytes | None
    instruction: Instruction
    key: Any
    #: Partition of the left table, to which the response goes.
    partition: int


class SubscriptionResponse(NamedTuple):
    """The response to a subscription: the value of the right row, for one left row."""

    value_hash: bytes | None
    value: Any
    partition: int


def subscription_serde(key_serde: Serde[Any]) -> Serde[Any]:
    """Return the serde for subscriptions, given the key serde of the left table."""
    write_key, read_key = portable(key_serde)

    def write(value: ForeignKeySubscription) -> bytes:
        key = write_key(value.key)
        if key is None:
            raise SerializationError("the left table of a foreign-key join has a row without key")
        return _SUBSCRIPTION.pack(value.instruction, value.partition) + _hash_bytes(value.value_hash) + key

    def read(data: bytes, start: int) -> ForeignKeySubscription:
        instruction, partition = _SUBSCRIPTION.unpack_from(data, start)
        start += _SUBSCRIPTION.size
        key = read_key(data[start + HASH_BYTES + 1 :])
        return ForeignKeySubscription(_read_hash(data, start), Instruction(instruction), key, partition)

    return marked(SUBSCRIPTION, key_serde.name, write, read, is_immutable=key_serde.is_immutable)


def response_serde(value_serde: Serde[Any]) -> Serde[Any]:
    """Return the serde for responses, given the value serde of the right table."""
    write_value, read_value = portable(value_serde)

    def write(response: SubscriptionResponse) -> bytes:
        # Zero bytes mean no value: as in Kafka Streams, an empty string is read back as None.
        value = write_value(response.value) or b""
        return _RESPONSE.pack(response.partition) + _hash_bytes(response.value_hash) + value

    def read(data: bytes, start: int) -> SubscriptionResponse:
        (partition,) = _RESPONSE.unpack_from(data, start)
        start += _RESPONSE.size
        value = read_value(data[start + HASH_BYTES + 1 :] or None)
        return SubscriptionResponse(_read_hash(data, start), value, partition)

    return marked(RESPONSE, value_serde.name, write, read, is_immutable=value_serde.is_immutable)


def _hash_bytes(value_hash: bytes | None) -> bytes:
    return _NO_HASH if value_hash is None else _HASH + value_hash


def _read_hash(data: bytes, start: int) -> bytes | None:
    return data[start + 1 : start + 1 + HASH_BYTES] if data[start : start + 1] == _HASH else None


def subscriber_prefix(foreign_key_serde: Serde[Any]) -> Callable[[Any], bytes]:
    """Return the function that maps a foreign key to the store key prefix of its subscribers."""
    serialize = foreign_key_serde.serialize

    def prefix(foreign_key: Any) -> bytes:
        data = serialize(foreign_key)
        assert data is not None
        return _LENGTH.pack(len(data)) + data

    return prefix


def subscriber_key(foreign_key_serde: Serde[Any], key_serde: Serde[Any]) -> Callable[[Any, Any], bytes]:
    """Return the function that maps a foreign key and a left key to the store key of the subscription."""
    prefix, serialize = subscriber_prefix(foreign_key_serde), key_serde.serialize

    def place(foreign_key: Any, key: Any) -> bytes:
        data = serialize(key)
        assert data is not None
        return prefix(foreign_key) + data

    return place


def subscription_store(name: str, key_serde: Serde[Any], *, has_changelog: bool = True) -> StoreSpec:
    """Return the spec of the store of subscriptions; ``key_serde`` is the key serde of the left table."""
    return StoreSpec(
        name,
        TIMESTAMPED_KEY_VALUE,
        BYTES,
        subscription_serde(key_serde),
        has_caching=False,
        has_changelog=has_changelog,
    )


def subscription_partition(topic: str, key: Any, value: Any, partitions: int) -> int | None:
    """Return the partition of a subscription without a foreign key, which is that of the left row.

    Return None if there is a foreign key, for the default partition of that key.
    """
    return value.partition % partitions if key is None and value is not None else None


def response_partition(topic: str, key: Any, value: Any, partitions: int) -> int | None:
    """Return the partition of a response: that of the left row, modulo ``partitions``; None if ``value`` is None."""
    return None if value is None else value.partition % partitions
