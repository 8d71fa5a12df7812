"""Messages of foreign-key joins: the formats and partitions of subscriptions and responses, as in Kafka Streams.

Sizes in bytes are in parentheses.  A subscription has the version (1), which is 1, with a flag for a null hash, the
instruction (1), the hash of the left value (16, or none), the serialized left key and the partition of the left row
(4); version 0, which Kafka Streams wrote before 3.4, has no partition.  A response has the version (1), which is 0,
with the same flag, the hash, and the serialized right value.  A store key has the length (4) of the serialized foreign
key, the foreign key and the left key (``SubscriptionWrapperSerde``, ``SubscriptionResponseWrapperSerde``,
``CombinedKeySchema``; KIP-213, KIP-775).
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from streams.core.blocks.marks import KafkaFormat, unmarked
from streams.core.errors import SerializationError
from streams.core.serdes.serdes import BYTES, Serde
from streams.dsl.processing.portable import portable
from streams.state import TIMESTAMPED_KEY_VALUE, StoreSpec

_HASH_BYTES = 16
#: Set in the version byte of messages without a hash.
_NO_HASH = 0x80
_NUMBER = Struct(">i")


def _is_subscription(data: bytes) -> bool:
    if len(data) < 2 or data[0] & ~_NO_HASH > 1 or data[1] > max(Instruction):
        return False
    return len(data) >= _key_start(data) + _partition_bytes(data)


def _is_response(data: bytes) -> bool:
    return data[:1] == b"\x80" or (data[:1] == b"\x00" and len(data) > _HASH_BYTES)


SUBSCRIPTION = KafkaFormat("subscription of a foreign-key join", "SubscriptionWrapper", _is_subscription)
RESPONSE = KafkaFormat("response of a foreign-key join", "SubscriptionResponseWrapper", _is_response)


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
    #: Partition of the left table, to which the response goes; None in a subscription of version 0.
    partition: int | None


class SubscriptionResponse(NamedTuple):
    """The response to a subscription: the value of the right row, for one left row."""

    value_hash: bytes | None
    value: Any
    #: Partition of the left table, which chooses that of the response and is not written; None: by the left key.
    partition: int | None = None


def subscription_serde(key_serde: Serde[Any]) -> Serde[Any]:
    """Return the serde for subscriptions, given the key serde of the left table."""
    write_key, read_key = portable(key_serde)

    def write(value: ForeignKeySubscription) -> bytes:
        key = write_key(value.key)
        if key is None:
            raise SerializationError("the left table of a foreign-key join has a row without key")
        value_hash = value.value_hash
        version = 1
        end = b""
        if value.partition is None:
            version = 0
        else:
            end = _NUMBER.pack(value.partition)
        if value_hash is None:
            return bytes((version | _NO_HASH, value.instruction)) + key + end
        return bytes((version, value.instruction)) + value_hash + key + end

    def read(data: bytes) -> ForeignKeySubscription:
        start = _key_start(data)
        end = len(data) - _partition_bytes(data)
        partition = None if end == len(data) else _NUMBER.unpack_from(data, end)[0]
        value_hash = None if start == 2 else data[2:start]
        return ForeignKeySubscription(value_hash, Instruction(data[1]), read_key(data[start:end]), partition)

    return unmarked(SUBSCRIPTION, key_serde.name, write, read, is_immutable=key_serde.is_immutable)


def _key_start(data: bytes) -> int:
    """Return the position of the left key in a subscription."""
    return 2 if data[0] & _NO_HASH else 2 + _HASH_BYTES


def _partition_bytes(data: bytes) -> int:
    """Return the size of the partition in a subscription, which is 0 in version 0."""
    return _NUMBER.size if data[0] & ~_NO_HASH else 0


def response_serde(value_serde: Serde[Any]) -> Serde[Any]:
    """Return the serde for responses, given the value serde of the right table."""
    write_value, read_value = portable(value_serde)

    def write(response: SubscriptionResponse) -> bytes:
        # Zero bytes mean no value: as in Kafka Streams, an empty string is read back as None.
        value = write_value(response.value) or b""
        return b"\x80" + value if response.value_hash is None else b"\x00" + response.value_hash + value

    def read(data: bytes) -> SubscriptionResponse:
        start = 1 if data[0] == _NO_HASH else 1 + _HASH_BYTES
        return SubscriptionResponse(None if start == 1 else data[1:start], read_value(data[start:] or None))

    return unmarked(RESPONSE, value_serde.name, write, read, is_immutable=value_serde.is_immutable)


def subscriber_prefix(foreign_key_serde: Serde[Any]) -> Callable[[Any], bytes]:
    """Return the function that maps a foreign key to the store key prefix of its subscribers."""
    serialize = foreign_key_serde.serialize

    def prefix(foreign_key: Any) -> bytes:
        data = serialize(foreign_key)
        assert data is not None
        return _NUMBER.pack(len(data)) + data

    return prefix


def subscriber_key(foreign_key_serde: Serde[Any], key_serde: Serde[Any]) -> Callable[[Any, Any], bytes]:
    """Return the function that maps a foreign key and a left key to the store key of the subscription."""
    prefix = subscriber_prefix(foreign_key_serde)
    serialize = key_serde.serialize

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
    """Return the partition of a response: that of the left row, modulo ``partitions``; None if it is not known."""
    return None if value is None or value.partition is None else value.partition % partitions
